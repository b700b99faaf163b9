package messages

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The events of a message add up to the message.
func TestSplit(t *testing.T) {
	events, err := Split([]byte(`{ "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "new": {"a": 1},
		"content": [
			{"type": "thinking", "thinking": "hm", "signature": "sig"},
			{"type": "redacted_thinking", "data": "x"},
			{"type": "text", "text": "a<b \u2028", "citations": [{"type": "c", "n": 1}, {"type": "c", "n": 2}]},
			{"type": "text", "text": "", "citations": null},
			{"type": "tool_use", "id": "t1", "name": "Read", "input": {"p": "a\"b"}, "caller": {"type": "direct"}},
			{"type": "tool_use", "id": "t2", "name": "None", "input": {}},
			{"type": "web_search_tool_result", "tool_use_id": "s", "content": [1]}
		],
		"stop_reason": "tool_use", "stop_sequence": null, "container": {"id": "c"}, "context_management": {"x": 1}, "usage": {"input_tokens": 1, "output_tokens": 2} }`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ev := range events {
		if typeOf(ev.Data) != ev.Type || !json.Valid(ev.Data) {
			t.Errorf("%s %s", ev.Type, ev.Data)
		}
		got = append(got, string(ev.Data))
	}
	want := `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","new":{"a":1},"content":[],"stop_reason":null,"stop_sequence":null,"container":{"id":"c"},"usage":{"input_tokens":1,"output_tokens":2}}}
{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}
{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"sig"}}
{"type":"content_block_stop","index":0}
{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"x"}}
{"type":"content_block_stop","index":1}
{"type":"content_block_start","index":2,"content_block":{"type":"text","text":"","citations":[]}}
{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"a<b \u2028"}}
{"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{"type":"c","n":1}}}
{"type":"content_block_delta","index":2,"delta":{"type":"citations_delta","citation":{"type":"c","n":2}}}
{"type":"content_block_stop","index":2}
{"type":"content_block_start","index":3,"content_block":{"type":"text","text":"","citations":null}}
{"type":"content_block_stop","index":3}
{"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"t1","name":"Read","input":{},"caller":{"type":"direct"}}}
{"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":"{\"p\":\"a\\\"b\"}"}}
{"type":"content_block_stop","index":4}
{"type":"content_block_start","index":5,"content_block":{"type":"tool_use","id":"t2","name":"None","input":{}}}
{"type":"content_block_stop","index":5}
{"type":"content_block_start","index":6,"content_block":{"type":"web_search_tool_result","tool_use_id":"s","content":[1]}}
{"type":"content_block_stop","index":6}
{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null,"container":{"id":"c"}},"usage":{"input_tokens":1,"output_tokens":2},"context_management":{"x":1}}
{"type":"message_stop"}`
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got\n%s\nwant\n%s", s, want)
	}
}

// The events of every server are JSON in one line.
func FuzzSplit(f *testing.F) {
	f.Add([]byte(`{"type":"message","content":[{"type":"text","text":"x"},{"type":"tool_use","input":[1]},5,null,"x"],"usage":5}`))
	f.Fuzz(func(t *testing.T, message []byte) {
		events, err := Split(message)
		if err != nil {
			return
		}
		for _, ev := range events {
			if !jsontext.Value(ev.Data).IsValid(jsontext.AllowDuplicateNames(true)) || bytes.ContainsAny(ev.Data, "\r\n") {
				t.Errorf("%s became %s", message, ev.Data)
			}
		}
	})
}

type transport []byte

func (s transport) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(s))}, nil
}

// One delta in a stream of 10,000, from the bytes of the response to the consumer, and
// with encoding/json in the consumer.
func BenchmarkStream(b *testing.B) {
	const events = 10_000
	delta := "event: content_block_delta\ndata: " + `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"some words of an answer, "}}` + "\n\n"
	stream := strings.Repeat(delta, events) + "data: {\"type\":\"message_stop\"}\n\n"
	c := &Client{HTTP: &http.Client{Transport: transport(stream)}}
	c.Prepare = func(ctx context.Context, _ Op, body []byte, _ http.Header) (*http.Request, error) {
		return http.NewRequestWithContext(ctx, http.MethodPost, "http://h", bytes.NewReader(body))
	}
	for _, decode := range []bool{false, true} {
		name := "raw"
		if decode {
			name = "encoding-json"
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for n := 0; n < b.N; {
				for ev, err := range c.Stream(b.Context(), model.Request{Body: []byte("{}")}) {
					if err != nil {
						b.Fatal(err)
					}
					if n++; n >= b.N {
						break
					}
					var v struct {
						Type  string
						Delta struct{ Type, Text string }
					}
					if decode {
						if err := json.Unmarshal(ev.Data, &v); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
		})
	}
}
