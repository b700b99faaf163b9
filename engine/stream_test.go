package engine

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/parley-go/parley/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// FuzzAnswer checks that assembling an answer from any stream results in an error or in
// blocks that are valid JSON.
func FuzzAnswer(f *testing.F) {
	f.Add(`{"type":"message_start","message":{"id":"m","role":"assistant","content":[],"usage":{"input_tokens":1}}}
{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}
{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}
{"type":"content_block_stop","index":0}
{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"Read","input":{}}}
{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}
{"type":"content_block_stop","index":1}
{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}
{"type":"message_stop"}`)
	f.Add(`{"type":"message_start","message":{}}
{"type":"content_block_start","index":0,"content_block":{"type":"thinking"}}
{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"x"}}
{"type":"content_block_stop","index":0}`)
	f.Add(`{"type":"content_block_stop","index":-1}`)
	f.Fuzz(func(t *testing.T, text string) {
		a := &answer{}
		for line := range strings.Lines(text) {
			ev := new(wire.APIEvent)
			if ev.UnmarshalJSON([]byte(strings.TrimSpace(line))) != nil {
				return
			}
			b, err := a.add(ev)
			if err != nil {
				return
			}
			if b != nil && (!json.Valid(b.raw) || !b.done || b.kind == "tool_use" && b.input != nil && !json.Valid(b.input)) {
				t.Errorf("block %s", b.raw)
			}
		}
		a.text()
		a.calls()
		a.empty()
		a.worthKeeping()
	})
}

// TestCitations checks that a text block keeps the citations of its stream.
func TestCitations(t *testing.T) {
	a := &answer{}
	var done *block
	for _, line := range []string{
		`{"type":"message_start","message":{"id":"m"}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"cited"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"type":"char_location","cited_text":"x"}}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"type":"char_location","cited_text":"y"}}}`,
		`{"type":"content_block_stop","index":0}`,
	} {
		ev := &wire.APIEvent{}
		if err := ev.UnmarshalJSON([]byte(line)); err != nil {
			t.Fatal(err)
		}
		b, err := a.add(ev)
		if err != nil {
			t.Fatal(err)
		}
		done = b
	}
	const want = `{"type":"text","text":"cited","citations":[{"type":"char_location","cited_text":"x"},{"type":"char_location","cited_text":"y"}]}`
	if string(done.raw) != want {
		t.Errorf("got %s, want %s", done.raw, want)
	}
}
