package engine

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/parley-go/parley/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTranscript: what the API takes only with something behind it waits for that.
func TestTranscript(t *testing.T) {
	const (
		think  = `{"type":"thinking","thinking":"hm","signature":"s"}`
		search = `{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}`
		found  = `{"type":"web_search_tool_result","tool_use_id":"s1","content":[]}`
		text   = `{"type":"text","text":"a"}`
	)
	type step struct{ role, id, block string }
	for _, tt := range []struct {
		name  string
		steps []step
		want  string // roles and types
	}{
		{"thought and text", []step{{"user", "", text}, {"a", "1", think}, {"a", "1", text}}, "user:text assistant:thinking,text"},
		{"only a thought", []step{{"user", "", text}, {"a", "1", think}, {"user", "", text}}, "user:text,text"},
		{"a thought, and another try", []step{{"user", "", text}, {"a", "1", think}, {"a", "2", think}, {"a", "2", text}}, "user:text assistant:thinking,text"},
		{"a search", []step{{"user", "", text}, {"a", "1", search}, {"a", "1", found}, {"a", "1", text}}, "user:text assistant:server_tool_use,web_search_tool_result,text"},
		{"a search that was cut off", []step{{"user", "", text}, {"a", "1", text}, {"a", "1", search}, {"user", "", text}}, "user:text assistant:text user:text"},
		{"a pause", []step{{"user", "", text}, {"a", "1", think}, {"a", "1", search}, {"a", "2", found}, {"a", "2", text}}, "user:text assistant:thinking,server_tool_use,web_search_tool_result,text"},
		{"the assistant first", []step{{"a", "1", text}, {"user", "", text}}, "user:text assistant:text user:text"},
	} {
		var tr transcript
		for _, s := range tt.steps {
			if s.role == "user" {
				tr.add("user", json.RawMessage(s.block))
			} else {
				tr.answer(s.id, json.RawMessage(s.block))
			}
		}
		var messages []struct {
			Role    string
			Content []struct{ Type string }
		}
		if err := json.Unmarshal(tr.appendMessages(nil, true), &messages); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, m := range messages {
			var types []string
			for _, c := range m.Content {
				types = append(types, c.Type)
			}
			all = append(all, m.Role+":"+strings.Join(types, ","))
		}
		if got := strings.Join(all, " "); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// FuzzAnswer: whatever a stream says, putting an answer together ends in an error or
// in blocks that are JSON.
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

// FuzzMessageBlocks: a recorded message is read or refused.
func FuzzMessageBlocks(f *testing.F) {
	f.Add(`{"role":"user","content":"hi"}`)
	f.Add(`{"id":"m","content":[{"type":"text","text":""},{"type":"text","text":"a"},{"type":"tool_use","id":"t"}]}`)
	f.Add(`{"content":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		_, blocks, err := messageBlocks(json.RawMessage(text))
		if err != nil {
			return
		}
		var tr transcript
		for _, b := range blocks {
			tr.add("user", b)
		}
		if out := tr.appendMessages(nil, true); !json.Valid(out) {
			t.Errorf("messages %s", out)
		}
	})
}
