package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/policy/policytest"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// TestAttacks plays the calls of decisions.txt end to end: a model asks for them, a
// host is asked and says no. Nothing of them runs: the witness is a file that
// each would make. Calls that rules allow are left out, for they would run here, and so
// are those of MCP servers, of which TestServersMeetRules has one.
func TestAttacks(t *testing.T) {
	cases, err := policytest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	for i := range cases {
		c := &cases[i]
		t.Run(fmt.Sprintf("%d %s", c.Line, c.ID), func(t *testing.T) {
			place, err := policytest.NewPlace(c, t.TempDir())
			if err != nil {
				t.Skip(err)
			}
			var calls []policytest.Call
			turn := &parleytest.Turn{}
			for _, call := range c.Calls {
				if call.Want == "allows" || call.Tool == "WebFetch" || strings.HasPrefix(call.Tool, "mcp__") {
					continue
				}
				calls = append(calls, call)
				turn = turn.CallID(fmt.Sprintf("toolu_%d", call.Line), call.Tool, place.Input(call))
			}
			if len(calls) == 0 {
				return
			}
			var mu sync.Mutex
			asked := map[string]bool{}
			p := promptIn(t, place.Workspace, parleytest.Script(turn, parleytest.Say("done")), func(o *parley.Options, cfg *agent.Config) {
				o.PermissionMode, o.AllowBypass = c.Mode, c.Mode == wire.ModeBypassPermissions
				o.Env = map[string]string{"HOME": place.Home}
				permissions := map[string][]string{}
				for _, r := range place.Rules(c) {
					permissions[string(r.Behavior)] = append(permissions[string(r.Behavior)], r.String())
				}
				o.Settings, _ = json.Marshal(map[string]any{"permissions": permissions})
				cfg.Home = place.Home
				o.CanUseTool = func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
					mu.Lock()
					defer mu.Unlock()
					asked[req.ToolUseID] = true
					return parley.Deny("no"), nil
				}
			})
			results := strings.Fields(outcomes(p))
			if len(results) != len(calls) {
				t.Fatalf("%d results of %d calls", len(results), len(calls))
			}
			for i, call := range calls {
				id := fmt.Sprintf("toolu_%d", call.Line)
				if results[i] == "ran" {
					t.Errorf("decisions.txt:%d: %s %s ran", call.Line, call.Tool, call.Arg[:min(len(call.Arg), 200)])
				}
				if call.Want == "asks" && !asked[id] && results[i] == "denied" || call.Want == "denies" && asked[id] {
					t.Errorf("decisions.txt:%d: %s %s: asked is %v", call.Line, call.Tool, call.Arg[:min(len(call.Arg), 200)], asked[id])
				}
			}
			if _, err := os.Lstat(place.Mark); err == nil {
				t.Error("the witness is there")
			}
		})
	}
}

// TestWitness sees that an attack that is let through leaves the witness.
func TestWitness(t *testing.T) {
	c := &policytest.Case{}
	place, err := policytest.NewPlace(c, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	call := policytest.Call{Tool: "Bash", Arg: "touch {mark}"}
	promptIn(t, place.Workspace, parleytest.Script(new(parleytest.Turn).Call("Bash", place.Input(call)), parleytest.Say("done")), func(o *parley.Options, _ *agent.Config) {
		o.AllowedTools = []string{"Bash(touch:*)"}
	})
	if _, err := os.Lstat(place.Mark); err != nil {
		t.Error(err)
	}
}

// TestAgentRules holds rules about agents against calls that start one, in the spellings
// that rules about names have.
func TestAgentRules(t *testing.T) {
	for _, c := range []struct {
		rules string
		mode  wire.PermissionMode
		want  string
	}{
		{`{"deny":["Task(general-purpose)"]}`, "", "denied"},
		{`{"deny":["Agent(General-Purpose)"]}`, "", "denied"},
		{`{"deny":["Task(general-*)"],"allow":["Task"]}`, wire.ModeBypassPermissions, "denied"},
		{`{"ask":["Task(general-*)"]}`, wire.ModeDontAsk, "denied"},
		{`{"ask":["Agent(general-purpose)"]}`, "", "denied"}, // by nobody, who is asked
		{`{"deny":["Task(Explore)"]}`, "", "ran"},
	} {
		script := parleytest.Script(new(parleytest.Turn).Call("Task", map[string]any{"subagent_type": "general-purpose", "description": "d", "prompt": "hello", "run_in_background": false}), parleytest.Say("done"))
		if c.want == "ran" {
			script = parleytest.Script(new(parleytest.Turn).Call("Task", map[string]any{"subagent_type": "general-purpose", "description": "d", "prompt": "hello", "run_in_background": false}), parleytest.Say("a report"), parleytest.Say("done"))
		}
		p := promptIn(t, t.TempDir(), script, func(o *parley.Options, _ *agent.Config) {
			o.PermissionMode, o.AllowBypass = c.mode, c.mode == wire.ModeBypassPermissions
			o.Settings = json.RawMessage(`{"permissions":` + c.rules + `}`)
		})
		if got := strings.TrimSpace(outcomes(p)); got != c.want {
			t.Errorf("%s in %q: %s, want %s", c.rules, c.mode, got, c.want)
		}
	}
}
