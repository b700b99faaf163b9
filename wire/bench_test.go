package wire_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/parley-go/parley/wire"
)

var benchLines = map[string]string{
	"delta":     `{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a few words of an answer"}},"session_id":"0b5ed6ae-55d1-4b8c-8ee8-7ab9ec8d34a5","parent_tool_use_id":null,"uuid":"a35c3d0c-3ad7-4c9b-9d80-1a3ab0a1e9f7","api_message_id":"msg_0001"}`,
	"assistant": `{"type":"assistant","message":{"id":"msg_0001","type":"message","role":"assistant","model":"claude-opus-4-5","content":[{"type":"text","text":"` + strings.Repeat("A line of the answer, with a \\\"quote\\\" in it.\\n", 45) + `"}],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":100,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":1,"service_tier":"standard"}},"parent_tool_use_id":null,"session_id":"0b5ed6ae-55d1-4b8c-8ee8-7ab9ec8d34a5","uuid":"a35c3d0c-3ad7-4c9b-9d80-1a3ab0a1e9f7"}`,
}

func BenchmarkDecode(b *testing.B) {
	for name, line := range benchLines {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := wire.Decode([]byte(line)); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/encoding-json-to-map", func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				var m map[string]any
				if err := json.Unmarshal([]byte(line), &m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	for name, line := range benchLines {
		m, err := wire.Decode([]byte(line))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				if buf, err = wire.AppendMessage(buf[:0], m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
