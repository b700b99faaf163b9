package wire

import (
	"reflect"
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
