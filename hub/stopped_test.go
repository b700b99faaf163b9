package hub

import (
	"encoding/json"
	"testing"
)

// TestStoppedTurnEnds checks that a turn that was interrupted while its agent was gone ends when the next agent
// is connected, and that prompts that are queued behind it still run.
func TestStoppedTurnEnds(t *testing.T) {
	message := json.RawMessage(`{"type":"user","message":{"role":"user","content":"x"}}`)
	for _, queued := range []bool{false, true} {
		r := &room{fold: newFold(), owner: true}
		add := func(what Kind, data any, record string) {
			r.fold.add(&Entry{N: r.fold.n + 1, Kind: what, Data: mustJSON(data), Record: record})
		}
		add(KindPrompt, Prompt{UUID: "one", Message: message}, "")
		add(KindFrame, message, "one")
		add(KindControl, Control{Request: json.RawMessage(`{"subtype":"interrupt"}`)}, "")
		want := Idle
		if queued {
			add(KindPrompt, Prompt{UUID: "two", Message: message}, "")
			want = Running
		}
		x := &tx{r: r}
		r.agentReady(x, &agentRun{r: r}, nil, false)
		if r.fold.midTurn || r.fold.phase != want || (r.fold.problem == "") != queued {
			t.Errorf("with a queued prompt: %v: phase %s, in a turn: %v, problem %q", queued, r.fold.phase, r.fold.midTurn, r.fold.problem)
		}
	}
}

// TestFailedAgentHoldsPrompts checks that queued prompts wait after an agent that failed several times.
func TestFailedAgentHoldsPrompts(t *testing.T) {
	f := newFold()
	f.add(&Entry{N: 1, Kind: KindPrompt, Data: mustJSON(Prompt{UUID: "one", Message: json.RawMessage(`{}`)})})
	f.add(&Entry{N: 2, Kind: KindEnded, Data: mustJSON(Ended{Reason: "it failed", Holds: true})})
	if f.phase != Idle || f.problem == "" || len(f.queue) != 1 {
		t.Errorf("phase %s, problem %q, queue %v", f.phase, f.problem, f.queue)
	}
}
