package hub

import (
	"encoding/json"
	"fmt"
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

// TestResultSpendsAnswer checks that the answer to a question applies to no other call after its call has a result.
func TestResultSpendsAnswer(t *testing.T) {
	for n := 1; n <= 2; n++ {
		f := &fold{asks: map[string]*askState{}}
		for i := range n {
			id := fmt.Sprint("ask", i)
			f.asks[id], f.unspent = &askState{Ask: Ask{ID: id, ToolUseID: fmt.Sprint("call", i), Diff: "+a"}}, append(f.unspent, id)
		}
		f.spend(json.RawMessage(`{"message":{"content":"text"}}`))
		f.spend(json.RawMessage(`{"message":{"content":[{"type":"text","tool_use_id":"call0"},{"type":"tool_result","tool_use_id":"other"}]}}`))
		if len(f.unspent) != n {
			t.Errorf("of %d answers %d are left before the result", n, len(f.unspent))
		}
		f.spend(json.RawMessage(`{"message":{"content":[{"type":"tool_result","tool_use_id":"call0"}]}}`))
		if len(f.unspent) != n-1 || f.asks["ask0"].Diff != "" {
			t.Errorf("of %d answers %v are left after a result, diff %q", n, f.unspent, f.asks["ask0"].Diff)
		}
	}
}

// TestOutputOfEndedCallIsForgotten checks which entries drop the last output of a running call.
func TestOutputOfEndedCallIsForgotten(t *testing.T) {
	for _, test := range []struct {
		of   Kind
		data string
		left int
	}{
		{KindFrame, `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"call0"}]}}`, 1},
		{KindFrame, `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"other"}]}}`, 2},
		{KindFrame, `{"type":"assistant"}`, 2},
		{KindFrame, `{"type":"system"}`, 2},
		{KindFrame, `{"type":"result"}`, 0},
		{KindEnded, `{}`, 0},
		{KindAnswer, `{}`, 2},
	} {
		r := &room{progress: map[string]json.RawMessage{"call0": nil, "call1": nil}}
		r.forgetProgress(&Entry{Kind: test.of, Data: json.RawMessage(test.data)})
		if len(r.progress) != test.left {
			t.Errorf("after %s %s the output of %d calls is left, want %d", test.of, test.data, len(r.progress), test.left)
		}
	}
}
