package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestTranscript checks that blocks which the API accepts only before another one are held back until
// that arrives.
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
		var tr Transcript
		for _, s := range tt.steps {
			if s.role == "user" {
				tr.Add("user", json.RawMessage(s.block))
			} else {
				tr.Answer(s.id, json.RawMessage(s.block))
			}
		}
		var messages []struct {
			Role    string
			Content []struct{ Type string }
		}
		if err := json.Unmarshal(tr.AppendMessages(nil, true), &messages); err != nil {
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

// FuzzMessageBlocks checks that a recorded message is parsed or rejected.
func FuzzMessageBlocks(f *testing.F) {
	f.Add(`{"role":"user","content":"hi"}`)
	f.Add(`{"id":"m","content":[{"type":"text","text":""},{"type":"text","text":"a"},{"type":"tool_use","id":"t"}]}`)
	f.Add(`{"content":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		_, blocks, err := MessageBlocks(json.RawMessage(text))
		if err != nil {
			return
		}
		var tr Transcript
		for _, b := range blocks {
			tr.Add("user", b)
		}
		if out := tr.AppendMessages(nil, true); !json.Valid(out) {
			t.Errorf("messages %s", out)
		}
	})
}

// result returns the result of a call with the given size in bytes.
func result(id string, size int) json.RawMessage {
	return recorder.JSON(&wire.ToolResultBlock{ToolUseID: id, Content: wire.Text(strings.Repeat("x", size))})
}

// TestPruneKeepsNewest checks that old results are removed, the newest stay, and a restored session
// sends the same.
func TestPruneKeepsNewest(t *testing.T) {
	var h History
	var entries []*session.Entry
	for _, id := range []string{"t1", "t2", "t3"} {
		e := &session.Entry{Type: "user", Message: recorder.JSON(map[string]any{"role": "user", "content": []json.RawMessage{result(id, 100_000)}})}
		entries = append(entries, e)
		h.Add("assistant", json.RawMessage(`{"type":"tool_use","id":"`+id+`","name":"Read","input":{}}`))
		if err := h.RestoreMessage(e); err != nil {
			t.Fatal(err)
		}
	}
	full := h.Size()
	if saved, err := h.Prune(200_000, 0, func(*session.Entry) error { return errors.New("full") }); err == nil || saved != 0 || h.Size() != full {
		t.Errorf("a prune that could not be recorded saved %d tokens: %v", saved, err)
	}
	latest := map[string]*session.Entry{}
	saved, err := h.Prune(200_000, 0, func(e *session.Entry) error { latest[e.Type] = e; return nil })
	if err != nil || saved < 40_000 || saved > 50_000 {
		t.Errorf("got %d tokens and %v, want two results", saved, err)
	}
	var again History
	again.Restore(latest)
	for i, e := range entries {
		again.Add("assistant", h.Messages[2*i].Blocks...)
		if err := again.RestoreMessage(e); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := string(again.AppendMessages(nil, true)), string(h.AppendMessages(nil, true)); got != want {
		t.Errorf("the restored session sends %d bytes, want the same %d", len(got), len(want))
	}
}

// TestQuarantineTakesOutThePicture checks that the block that the API names is removed, or the newest
// picture if it names none, and nothing for other failures.
func TestQuarantineTakesOutThePicture(t *testing.T) {
	image := json.RawMessage(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"eA=="}}`)
	for _, tt := range []struct {
		name, message string
		status        int
		want          string // which messages still have a picture
	}{
		{"by its place", "messages.0.content.0: cannot be read", 400, "2"},
		{"the newest", "an image cannot be read", 400, "0"},
		{"too large", "too large", 413, "0"},
		{"another failure", "no such model", 400, "02"},
		{"a failure of the server", "messages.0.content.0", 500, "02"},
		{"a place that does not exist", "messages.9.content.9: image", 400, "02"},
	} {
		var h History
		h.Add("user", image)
		h.Add("assistant", json.RawMessage(`{"type":"text","text":"a"}`))
		h.Add("user", image)
		record := h.Quarantine(tt.status, tt.message)
		got := ""
		for i, m := range h.Messages {
			if BlockType(m.Blocks[0]) == "image" {
				got += string(rune('0' + i))
			}
		}
		if got != tt.want || (record == nil) != (tt.want == "02") {
			t.Errorf("%s: pictures are left in %q with the record %v, want %q", tt.name, got, record, tt.want)
		}
	}
}

// TestPrefixIsKept checks that a recorded prefix is sent unchanged until its sources change.
func TestPrefixIsKept(t *testing.T) {
	var p Prefix
	p.SetSystem("k1", []string{"one"})
	e := p.Keep("t1")
	if e == nil || p.Keep("t1") != nil {
		t.Fatal("a prefix is recorded once")
	}
	var later Prefix
	later.Restore(map[string]*session.Entry{prefixType: e})
	later.SetSystem("k1", []string{"the same, told in other words"})
	if later.Keep("t1") != nil || string(later.System) != string(p.System) {
		t.Errorf("got %s, want the prefix of the log", later.System)
	}
	later.SetSystem("k2", []string{"two"})
	if later.Keep("t1") == nil || !strings.Contains(string(later.System), "two") {
		t.Errorf("got %s, want the new prefix", later.System)
	}
}

// TestCallsWithoutResultAreClosed checks that a side question can be asked while calls run.
func TestCallsWithoutResultAreClosed(t *testing.T) {
	var h History
	h.Add("user", json.RawMessage(`{"type":"text","text":"a"}`))
	h.Add("assistant", json.RawMessage(`{"type":"tool_use","id":"t1","name":"Bash","input":{}}`))
	of := h.Clone()
	of.CloseCalls("(The call still runs.)")
	if of.LastRole() != "user" || !IsResult(of.Messages[2].Blocks[0]) || len(h.Messages) != 2 {
		t.Errorf("got %s", of.AppendMessages(nil, false))
	}
}

// TestOnlyOpenCallsAreClosed checks that calls without a result get one if the turn ended between two
// results, because the API rejects a request with such a call.
func TestOnlyOpenCallsAreClosed(t *testing.T) {
	var h History
	h.Add("user", json.RawMessage(`{"type":"text","text":"a"}`))
	h.Add("assistant", json.RawMessage(`{"type":"tool_use","id":"t1","name":"A","input":{}}`), json.RawMessage(`{"type":"tool_use","id":"t2","name":"B","input":{}}`))
	h.Add("user", json.RawMessage(`{"type":"tool_result","tool_use_id":"t1","content":"x"}`))
	h.CloseCalls("unknown")
	h.CloseCalls("unknown")
	if n := len(h.Messages); n != 3 || len(h.Messages[2].Blocks) != 2 || !strings.Contains(string(h.Messages[2].Blocks[1]), `"t2"`) {
		t.Errorf("got %s", h.AppendMessages(nil, false))
	}
}

// TestRestoreReusedID checks that an answer with a reused id is placed after the results of the
// previous answer.
func TestRestoreReusedID(t *testing.T) {
	var h History
	for _, r := range []struct{ kind, index, blocks string }{
		{"assistant", "0", `{"type":"tool_use","id":"a","name":"Read","input":{}}`},
		{"user", "", `{"type":"tool_result","tool_use_id":"a","content":"x"}`},
		{"assistant", "0", `{"type":"text","text":"Done."}`},
	} {
		e := &session.Entry{Type: r.kind, Message: json.RawMessage(`{"role":"` + r.kind + `","id":"same","content":[` + r.blocks + `]}`), Fields: map[string]json.RawMessage{}}
		if r.index != "" {
			e.Fields["apiBlockIndex"] = json.RawMessage(r.index)
		}
		if err := h.RestoreMessage(e); err != nil {
			t.Fatal(err)
		}
	}
	if len(h.Messages) != 3 || h.Messages[1].Role != "user" || h.Messages[2].Role != "assistant" {
		t.Errorf("restored %s", h.AppendMessages(nil, true))
	}
}

// TestRestoreInModelOrder checks that results which were recorded as they arrived, even in the middle
// of an answer, are restored after the answer and in the order of its calls.
func TestRestoreInModelOrder(t *testing.T) {
	record := func(kind, id, blocks string) *session.Entry {
		return &session.Entry{Type: kind, Message: json.RawMessage(`{"role":"` + kind + `","id":"` + id + `","content":[` + blocks + `]}`)}
	}
	call := func(id string) string { return `{"type":"tool_use","id":"` + id + `","name":"Read","input":{}}` }
	result := func(id string) string { return `{"type":"tool_result","tool_use_id":"` + id + `","content":"x"}` }
	const think, text = `{"type":"thinking","thinking":"hm","signature":"s"}`, `{"type":"text","text":"t"}`
	var h History
	for _, e := range []*session.Entry{
		record("user", "", text),
		record("assistant", "m1", call("a")), record("user", "", result("a")), record("assistant", "m1", think), record("assistant", "m1", call("b")),
		record("assistant", "m1", call("c")), record("user", "", result("c")), record("user", "", result("b")), record("user", "", text),
		record("assistant", "m2", call("d")), record("assistant", "m2", call("e")), record("user", "", result("e")), record("user", "", result("d")),
	} {
		if err := h.RestoreMessage(e); err != nil {
			t.Fatal(err)
		}
	}
	var live Transcript
	for _, m := range [][]string{{"user", text}, {"m1", call("a"), think, call("b"), call("c")}, {"user", result("a"), result("b"), result("c")}, {"user", text},
		{"m2", call("d"), call("e")}, {"user", result("d"), result("e")}} {
		for _, b := range m[1:] {
			if m[0] == "user" {
				live.Add("user", json.RawMessage(b))
			} else {
				live.Answer(m[0], json.RawMessage(b))
			}
		}
	}
	if got, want := string(h.AppendMessages(nil, true)), string(live.AppendMessages(nil, true)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// A request of a conversation that grows is, byte for byte, the one that is written from
// scratch, whatever happens to the conversation between two of them.
func TestGrowingRequestEqualsAFreshOne(t *testing.T) {
	for seed := range int64(15) {
		r := rand.New(rand.NewSource(seed))
		h := &History{}
		h.Prefix.NoMarks = seed%5 == 0
		h.Prefix.SetSystem("key", []string{"text"})
		calls := 0
		for step := range 50 {
			switch n := r.Intn(12); {
			case n < 4:
				h.Add("user", recorder.JSON(&wire.TextBlock{Text: fmt.Sprint("prompt ", step, strings.Repeat("x", r.Intn(3000)))}))
			case n < 8:
				calls++
				id := fmt.Sprint("call_", calls)
				h.Answer(fmt.Sprint("msg_", step), recorder.JSON(&wire.ToolUseBlock{ID: id, Name: "Read", Input: json.RawMessage(`{}`)}))
				h.Add("user", recorder.JSON(&wire.ToolResultBlock{ToolUseID: id, Content: wire.Text(strings.Repeat("result ", r.Intn(3000)))}))
			case n < 10:
				h.Answer(fmt.Sprint("msg_", step), recorder.JSON(&wire.TextBlock{Text: "answer"}))
			case n == 10 && r.Intn(2) == 0:
				h.Add("user", json.RawMessage(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}`))
			case n == 10:
				for i, m := range h.Messages {
					k := slices.IndexFunc(m.Blocks, func(b json.RawMessage) bool { return BlockType(b) == "image" })
					if k < 0 {
						continue
					}
					if h.Messages[0].Role != "user" {
						i++
					}
					h.Quarantine(http.StatusBadRequest, fmt.Sprintf("messages.%d.content.%d: the image cannot be read", i, k))
					break
				}
			case r.Intn(4) == 0:
				if _, err := h.Prune(10_000, 0, func(*session.Entry) error { return nil }); err != nil {
					t.Fatal(err)
				}
			case r.Intn(6) == 0:
				h.SetMessages(h.Clone())
			}
			if len(h.Messages) == 0 || r.Intn(3) == 0 {
				continue
			}
			fresh := h.Clone()
			want := h.Prefix.Body(&fresh, Request{Model: "m", User: "u"})
			got := h.Prefix.Body(&h.Transcript, Request{Model: "m", User: "u", Grows: true})
			if string(got) != string(want) || !json.Valid(got) {
				t.Fatalf("seed %d, step %d:\ngot  %.2000s\nwant %.2000s", seed, step, got, want)
			}
			if got, want := h.Size(), fresh.Size(); got != want {
				t.Fatalf("seed %d, step %d: the size is %d, want %d", seed, step, got, want)
			}
		}
	}
}
