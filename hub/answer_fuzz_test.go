package hub

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/parley-go/parley/wire"
)

// FuzzAnswer gives answers to a question about a tool. It checks that the agent receives only allow or deny,
// and that an actor who may only approve changes neither the input of the call nor the rules.
func FuzzAnswer(f *testing.F) {
	for _, response := range []string{
		`{"behavior":"allow"}`, `{"behavior":"deny","message":"no"}`, `{"behavior":"allow","updatedInput":{"command":"ls","n":1.0}}`, `{"behavior":"allow","updatedInput":null}`,
		`{"behavior":"allow","updatedPermissions":[{"type":"addRules"}]}`, `{"Behavior":"allow","behavior":"deny"}`, `{"behavior":"allow","updatedInput":{"n":1,"command":"ls"},"toolUseID":"other"}`,
		`{"behavior":"allow","updatedInput":{"command":"ls","command":"rm","n":1}}`, `null`, `[]`, `{`, `{"behavior":7}`,
	} {
		f.Add([]byte(response))
	}
	ask := &Ask{ID: "a", Kind: AskPermission, Tool: "Bash", ToolUseID: "t", Request: json.RawMessage(`{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls","n":1}}`)}
	ask.Hash = ask.hash()
	by := Actor{Name: "phone", Rights: MayView | MayApprove}
	f.Fuzz(func(t *testing.T, response []byte) {
		ans := &Answer{Ask: ask.ID, Shown: ask.Hash, Response: response, Outcome: Answered}
		if ask.check(by, ans) != nil {
			return
		}
		var got wire.PermissionResult
		raw := ask.response(ans)
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatalf("%s became %s: %v", response, raw, err)
		}
		if got.Behavior != wire.BehaviorAllow && got.Behavior != wire.BehaviorDeny || got.ToolUseID != ask.ToolUseID || len(got.UpdatedPermissions) > 0 {
			t.Fatalf("%s became %s", response, raw)
		}
		if got.Behavior != wire.BehaviorAllow {
			return
		}
		var was struct{ Input json.RawMessage }
		json.Unmarshal(ask.Request, &was)
		if !bytes.Equal(mustJSON(canonical(got.UpdatedInput)), mustJSON(canonical(was.Input))) {
			t.Fatalf("%s changed the input to %s", response, got.UpdatedInput)
		}
	})
}
