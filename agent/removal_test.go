package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// TestRemovalOfTheWorkspaceNeedsTheHost checks the permission request for a command that removes the working directory,
// and that neither bypassPermissions, a rule nor a hook answers it.
func TestRemovalOfTheWorkspaceNeedsTheHost(t *testing.T) {
	for name, change := range map[string]func(*parley.Options){
		"bypass": func(o *parley.Options) { o.PermissionMode, o.AllowBypass = wire.ModeBypassPermissions, true },
		"rule":   func(o *parley.Options) { o.AllowedTools = []string{"Bash(rm:*)"} },
		"hook": func(o *parley.Options) {
			o.Hooks = []parley.Hook{parley.On("", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) {
				return &wire.HookOutput{HookSpecificOutput: &wire.PreToolUseOutput{PermissionDecision: wire.BehaviorAllow}}, nil
			})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("IS_SANDBOX", "1") // for tests that run as root
			dir, _ := workdir(t)
			var asked []*wire.CanUseTool
			s := parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "rm -rf " + dir}), parleytest.Say("done"))
			promptIn(t, dir, s, func(o *parley.Options, _ *agent.Config) {
				o.CanUseTool = func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
					asked = append(asked, req)
					return parley.Deny("no"), nil
				}
				change(o)
			})
			if _, err := os.Stat(filepath.Join(dir, "a.txt")); err != nil {
				t.Fatal(err)
			}
			if len(asked) != 1 {
				t.Fatalf("the host was asked %d times, want once", len(asked))
			}
			q := asked[0]
			if q.DecisionReasonType != "safetyCheck" || q.BlockedPath != "" || q.ClassifierApprovable == nil || *q.ClassifierApprovable || !q.SuppressAlwaysAllowRule || len(q.PermissionSuggestions) != 0 {
				got, _ := json.Marshal(q)
				t.Errorf("got %s", got)
			}
		})
	}
}
