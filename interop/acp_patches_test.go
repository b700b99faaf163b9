package interop

import (
	"encoding/json"
	"testing"
)

// TestPatchesOfACallAreJoined checks that two updates of a call count as one that has both, and
// that nothing else does.
func TestPatchesOfACallAreJoined(t *testing.T) {
	parse := func(lines ...string) []any { return parseACP(t, lines...) }
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

func parseACP(t *testing.T, lines ...string) (list []any) {
	for _, line := range lines {
		var v any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
	return list
}

// TestRequestsOfTheAdapterMayOvertake checks that an update may be missing before a request of the
// reference adapter if the request, or the next update, has all of it.
func TestRequestsOfTheAdapterMayOvertake(t *testing.T) {
	const (
		start  = `{"sessionUpdate":"tool_call","toolCallId":"a","title":"Preparing"}`
		update = `{"sessionUpdate":"tool_call_update","toolCallId":"a","title":"Write b.txt","rawInput":{"x":1}}`
		asks   = `{"request":"session/request_permission","is":{"toolCall":{"toolCallId":"a","title":"Write b.txt","rawInput":{"x":1}}}}`
		form   = `{"request":"elicitation/create","is":{"toolCallId":"a"}}`
		other  = `{"request":"session/request_permission","is":{"toolCall":{"toolCallId":"b","title":"Write b.txt","rawInput":{"x":1}}}}`
		done   = `{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed"}`
		late   = `{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed","title":"Write b.txt","rawInput":{"x":1}}`
		wrong  = `{"sessionUpdate":"tool_call_update","toolCallId":"a","status":"completed","title":"Write c.txt","rawInput":{"x":1}}`
	)
	for _, tt := range []struct {
		name      string
		ref, ours []string
		same      bool
	}{
		{"the request has it", []string{start, asks, done}, []string{start, update, asks, done}, true},
		{"the next update has it", []string{start, asks, late}, []string{start, update, asks, done}, true},
		{"the next update after a form has it", []string{start, form, late}, []string{start, update, form, done}, true},
		{"the form is the end", []string{start, form}, []string{start, update, form}, false},
		{"the next update differs", []string{start, asks, wrong}, []string{start, update, asks, done}, false},
		{"a request about another call", []string{start, other, done}, []string{start, update, other, done}, false},
		{"ours is missing", []string{start, update, asks, done}, []string{start, asks, done}, false},
	} {
		if got := compareACP(parseACP(t, tt.ref...), parseACP(t, tt.ours...)); (len(got) == 0) != tt.same {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
