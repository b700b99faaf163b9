package parley

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/parley-go/parley/wire"
)

// TestReadOneWay checks that an ambiguous input is never shown to the callback that
// decides.
func TestReadOneWay(t *testing.T) {
	for _, tt := range []struct{ tool, input, want string }{
		{"Bash", `{"command":"ls","description":"x"}`, ""},
		{"Bash", `{"command":"touch p","Command":"ls"}`, "differ in case only"},
		{"Bash", `{"command":"touch p","command":"ls"}`, "not valid"},
		{"Bash", `{"command":"touch p","\u0063ommand":"ls"}`, "not valid"},
		{"Bash", "{\"command\":\"touch \xff\"}", "not valid"},
		{"Bash", `{"command":"\ud800"}`, "not valid"},
		{"TodoWrite", `{"todos":[{"content":"a","Content":"b"}]}`, "differ in case only"},
		{"TodoWrite", `{"todos":[{"content":"a"},{"content":"Content"}]}`, ""},
		{"Bash", `{"tas\u212a":"a","task":"b"}`, "differ in case only"},
		{"mcp__grep__run", `{"-i":true,"-I":false}`, ""},
		{"mcp__grep__run", `{"-i":true,"-i":false}`, "not valid"},
		{"EnterPlanMode", ``, ""},
		{"EnterPlanMode", `null`, ""},
	} {
		err := readOneWay(tt.tool, json.RawMessage(tt.input))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want %q", tt.tool, tt.input, err, tt.want)
		}
	}
}

// TestReadOneWayByHooks checks that an ambiguous input is never shown to a hook that
// decides: the call is denied.
func TestReadOneWayByHooks(t *testing.T) {
	ambiguous := json.RawMessage(`{"command":"touch p","Command":"ls"}`)
	see := func(context.Context, wire.HookInput) (*wire.HookOutput, error) {
		t.Error("the hook was called")
		return nil, nil
	}
	s := &session{cfg: &config{logger: slog.New(slog.DiscardHandler), warnings: &reporter{}}, ctx: t.Context()}
	for _, in := range []wire.HookInput{
		&wire.PreToolUseInput{ToolName: "Bash", ToolInput: ambiguous},
		&wire.PermissionRequestInput{ToolName: "Bash", ToolInput: ambiguous},
	} {
		out, err := s.callHook(t.Context(), OnEvent(in.Event(), "", see), &wire.HookCallback{Input: in})
		if err != nil || !objects(out) {
			t.Errorf("%s: %+v, %v", in.Event(), out, err)
		}
	}
}
