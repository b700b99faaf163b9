package wire

import (
	"reflect"
	"strings"
	"testing"
)

// FuzzDelta compares the short way to read a stream event with the usual one: where
// the short way gives something, the usual one gives the same.
func FuzzDelta(f *testing.F) {
	const event = `{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}`
	for _, rest := range []string{
		`,"parent_tool_use_id":null,"uuid":"u","session_id":"s","api_message_id":"m"}`,
		`,"session_id":"s","parent_tool_use_id":null,"uuid":"u"}`,
		`,"parent_tool_use_id":null}`,
		`,"uuid":"u"}`,
		`,"parent_tool_use_id":null,"uuid":"u","uuid":"v"}`,
		`,"parent_tool_use_id":null,"parent_tool_use_id":"p"}`,
		`,"parent_tool_use_id":null,"uuid":"","session_id":null}`,
		`,"parent_tool_use_id":null,"uuid":"\u0041","ttft_ms":3}`,
		`,"parent_tool_use_id":null,"type":"result"}`,
		`,"parent_tool_use_id":null}}`,
		`,"parent_tool_use_id":null,}`,
	} {
		f.Add([]byte(event + rest))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		short := decodeDelta(line)
		if short == nil {
			return
		}
		d, err := scan(line)
		if err != nil {
			t.Fatalf("a stream event was read from %q: %v", line, err)
		}
		defer d.release()
		if usual := decodeMessage(d.root()); !reflect.DeepEqual(usual, Message(short)) {
			t.Fatalf("%q\n short %#v\n usual %#v", line, short, usual)
		}
	})
}

// FuzzAssistant does so for assistant messages.
func FuzzAssistant(f *testing.F) {
	const (
		message = `{"model":"m","id":"i","type":"message","role":"assistant","content":[{"type":"text","text":"a"}],"stop_reason":null,"stop_sequence":null,`
		usage   = `"usage":{"input_tokens":1,"cache_creation_input_tokens":0,"cache_read_input_tokens":30,"output_tokens":1,"service_tier":"standard"}}`
		rest    = `,"parent_tool_use_id":null,"session_id":"s","uuid":"u","request_id":"r"}`
	)
	usual := `{"type":"assistant","message":` + message + usage + rest
	f.Add([]byte(usual))
	for _, change := range [][2]string{
		{`"a"`, `"\u00e9\n\ud83d\ude00"`},
		{`"a"`, `"\ud800"`},
		{`"a"}`, `"a","citations":null}`},
		{`"a"}]`, `"a"},{"type":"tool_use","id":"t","name":"Bash","input":{"command":"ls"}}]`},
		{`[{"type":"text","text":"a"}]`, `"a"`},
		{`[{"type":"text","text":"a"}]`, `[]`},
		{`[{"type":"text","text":"a"}]`, `null`},
		{`[{"type":"text","text":"a"}]`, `[{"type":"thinking","thinking":"t","signature":""},null,1]`},
		{`"stop_reason":null`, `"stop_reason":"end_turn"`},
		{`"stop_reason":null,`, ``},
		{`"stop_reason":null`, `"stop_reason":""`},
		{`:30,`, `:1.0,`},
		{`:30,`, `:030,`},
		{`:30,`, `:-3,`},
		{`:30,`, `:null,`},
		{`:30,`, `:3e1,`},
		{`:30,`, `:12345678901234567890,`},
		{`:30,`, `:30,"cache_creation":{"ephemeral_5m_input_tokens":1,"ephemeral_1h_input_tokens":2},`},
		{`:30,`, `:30,"cache_creation":{"ephemeral_5m_input_tokens":1},"server_tool_use":{"web_search_requests":1},`},
		{`"standard"`, `"standard","service_tier":"x"`},
		{`"standard"`, `""`},
		{`"input_tokens":1,`, ``},
		{`"cache_creation_input_tokens":0,`, ``},
		{`"cache_read_input_tokens":30,`, ``},
		{`"output_tokens":1,`, ``},
		{`"usage":{`, `"usage":null,"other":{`},
		{`"usage":{`, `"context_management":null,"container":{"id":"c"},"usage":{`},
		{`"usage":{`, `"error":"rate_limit","usage":{`},
		{`"role":"assistant"`, `"role":"user"`},
		{`null,"session_id"`, `"toolu_1","session_id"`},
		{`null,"session_id"`, `"","session_id"`},
		{`"uuid":"u"`, `"uuid":"u","timestamp":"2026","error":"overloaded"`},
		{`"uuid":"u"`, `"uuid":""`},
		{`"uuid":"u"`, `"uuid":"u","uuid":"v"`},
		{`"r"}`, `"r"} `},
		{`"r"}`, `"r"}}`},
		{`"r"}`, `"r",}`},
	} {
		f.Add([]byte(strings.Replace(usual, change[0], change[1], 1)))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		short := decodeAssistant(line)
		if short == nil {
			return
		}
		d, err := scan(line)
		if err != nil {
			t.Fatalf("an assistant message was read from %q: %v", line, err)
		}
		defer d.release()
		if usual := decodeMessage(d.root()); !reflect.DeepEqual(usual, Message(short)) {
			t.Fatalf("%q\n short %#v\n usual %#v", line, short, usual)
		}
	})
}
