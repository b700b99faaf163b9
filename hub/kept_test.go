package hub

import (
	"encoding/json"
	"testing"
)

// TestKeptAnswerCountsOnce checks that an answer is kept for one identical call of an agent
// that cannot continue its turn, in any order of the members of the input, and for no other
// call.
func TestKeptAnswerCountsOnce(t *testing.T) {
	question := func(id, use, input string) *Ask {
		return &Ask{ID: id, Kind: AskPermission, Tool: "Bash", ToolUseID: use, Request: json.RawMessage(`{"subtype":"can_use_tool","tool_name":"Bash","input":` + input + `,"tool_use_id":"` + use + `"}`)}
	}
	f := newFold()
	apply := func(k Kind, v any) {
		f.add(&Entry{N: f.n + 1, Kind: k, Data: mustJSON(v)})
	}
	apply(KindAsk, question("one", "u1", `{"command":"make","timeout":5}`))
	from := f.n // another agent starts
	apply(KindAnswer, Answer{Ask: "one", Outcome: Answered})
	if f.sameAsk(question("two", "u2", `{"command":"make test","timeout":5}`), from) != nil {
		t.Error("the answer counts for another call")
	}
	again := question("two", "u2", `{"timeout":5,"command":"make"}`)
	if old := f.sameAsk(again, 0); old != nil {
		t.Error("the answer counts for a second call of the same agent")
	}
	if old := f.sameAsk(again, from); old == nil || old.ID != "one" {
		t.Fatalf("the answer is not kept: %+v", old)
	}
	apply(KindAsk, again)
	apply(KindAnswer, Answer{Ask: "two", Kept: "one", Outcome: Answered})
	if old := f.sameAsk(question("three", "u3", `{"command":"make","timeout":5}`), from); old != nil {
		t.Errorf("the answer to %s counts twice", old.ID)
	}
	if old := f.sameAsk(question("two", "u2", `{"timeout":5,"command":"make"}`), from); old == nil || old.ID != "two" {
		t.Errorf("the call that was answered is asked again: %+v", old)
	}
}

// TestSubagentInTheBackgroundIsNoTurn checks that the session is idle although a background
// subagent sends messages after the result of the turn that started it.
func TestSubagentInTheBackgroundIsNoTurn(t *testing.T) {
	f := newFold()
	for _, c := range []struct {
		message string
		want    Phase
	}{
		{`{"type":"assistant","message":{"role":"assistant","content":[]},"parent_tool_use_id":null}`, Running},
		{`{"type":"assistant","message":{"role":"assistant","content":[]},"parent_tool_use_id":"u1"}`, Running},
		{`{"type":"result","subtype":"success","is_error":false}`, Idle},
		{`{"type":"assistant","message":{"role":"assistant","content":[]},"parent_tool_use_id":"u1"}`, Idle},
		{`{"type":"assistant","message":{"role":"assistant","content":[]}}`, Running},
	} {
		f.add(&Entry{N: f.n + 1, Kind: KindFrame, Data: json.RawMessage(c.message)})
		if got := f.state().Phase; got != c.want {
			t.Errorf("after %s: %s, want %s", c.message, got, c.want)
		}
	}
}
