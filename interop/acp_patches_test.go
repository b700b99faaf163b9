package interop

import (
	"encoding/json"
	"testing"
)

// TestPatchesOfACallAreJoined checks that two updates of a call count as one that has both, and
// that nothing else does.
func TestPatchesOfACallAreJoined(t *testing.T) {
	parse := func(lines ...string) (list []any) {
		for _, line := range lines {
			var v any
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Fatal(err)
			}
			list = append(list, v)
		}
		return list
	}
	const (
		title = `{"sessionUpdate":"tool_call_update","toolCallId":"a","title":"Read b.txt"}`
		other = `{"sessionUpdate":"tool_call_update","toolCallId":"b","status":"completed"}`
		done  = `{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed"}`
		both  = `{"sessionUpdate":"tool_call_update","toolCallId":"a","title":"Read b.txt","status":"completed"}`
		fails = `{"sessionUpdate":"tool_call_update","toolCallId":"a","title":"Read b.txt","status":"failed"}`
		text  = `{"sessionUpdate":"agent_message_chunk","content":"x"}`
	)
	if got := compareACP(parse(done, text, done), parse(done, text)); len(got) != 1 {
		t.Errorf("a replayed update is missing: %v", got)
	}
	split := parse(title, other, done, text)
	for _, tt := range []struct {
		name  string
		other []any
		same  bool
	}{
		{"one patch", parse(both, other, text), true},
		{"another order", parse(other, title, done, text), true},
		{"a call that ends after the text", parse(title, done, text, other), false},
		{"one patch that differs", parse(fails, other, text), false},
		{"no end", parse(title, other, text), false},
		{"two texts", parse(both, other, text, text), false},
	} {
		if got := compareACP(split, tt.other); (len(got) == 0) != tt.same {
			t.Errorf("%s: %v", tt.name, got)
		}
		if got := compareACP(tt.other, split); (len(got) == 0) != tt.same {
			t.Errorf("%s, the other way round: %v", tt.name, got)
		}
	}
}
