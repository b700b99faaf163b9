package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/policy/policytest"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestAttacks plays the calls of decisions.txt end to end: a model makes them, and a host
// denies them. The table has the decisions of a machine without a wall. On a machine with
// a wall a command that was found to be read-only runs without permission, but only behind
// the wall, as its receipt says. None has an effect: the witness is a file that each would
// create, the workspace is unchanged, and no result has the text of a secret file. Calls
// that rules allow are left out, because they would run here, and so are those of MCP
// servers, of which TestServersMeetRules has one. Of a case with many calls every fifth is
// played, or all with PARLEY_TEST_LONG; TestDecisions of policytest has all decisions.
func TestAttacks(t *testing.T) {
	cases, err := policytest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	all := os.Getenv("PARLEY_TEST_LONG") != ""
	for i := range cases {
		c := &cases[i]
		t.Run(fmt.Sprintf("%d %s", c.Line, c.ID), func(t *testing.T) {
			t.Parallel()
			place, err := policytest.NewPlace(c, t.TempDir())
			if err != nil {
				t.Skip(err)
			}
			var calls []policytest.Call
			turn := &parleytest.Turn{}
			for i, call := range c.Calls {
				if len(c.Calls) > 10 && i%5 != 0 && !all || call.Want == "allows" || call.Tool == "WebFetch" || strings.HasPrefix(call.Tool, "mcp__") {
					continue
				}
				calls = append(calls, call)
				turn = turn.CallID(fmt.Sprintf("toolu_%d", call.Line), call.Tool, place.Input(call))
			}
			if len(calls) == 0 {
				return
			}
			const canary = "Zanzibar7Quokka3Fjord"
			for _, path := range []string{filepath.Join(place.Workspace, ".env"), filepath.Join(place.Home, ".netrc"), filepath.Join(filepath.Dir(place.Workspace), "beside")} {
				if _, err := os.Lstat(path); err == nil {
					continue // the case has its own
				}
				if err := os.WriteFile(path, []byte(canary+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			before := tree(t, place.Workspace)
			var mu sync.Mutex
			asked := map[string]bool{}
			store := &session.Memory{}
			p := promptIn(t, place.Workspace, parleytest.Script(turn, parleytest.Say("done")), func(o *parley.Options, cfg *agent.Config) {
				o.PermissionMode, o.AllowBypass = c.Mode, c.Mode == wire.ModeBypassPermissions
				o.Env = map[string]string{"HOME": place.Home}
				permissions := map[string][]string{}
				for _, r := range place.Rules(c) {
					permissions[string(r.Behavior)] = append(permissions[string(r.Behavior)], r.String())
				}
				o.Settings, _ = json.Marshal(map[string]any{"permissions": permissions})
				cfg.Home, cfg.Store = place.Home, store
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
			receipts := receiptsOf(t, store, session.Key{Project: session.ProjectKey(place.Workspace), Session: p.r.SessionID})
			for i, call := range calls {
				id := fmt.Sprintf("toolu_%d", call.Line)
				is := fmt.Sprintf("decisions.txt:%d: %s %s", call.Line, call.Tool, call.Arg[:min(len(call.Arg), 200)])
				r := receipts[id]
				if r == nil {
					t.Errorf("%s: there is no receipt", is)
					continue
				}
				walled := r.Answer == wire.BehaviorAllow && call.Tool == "Bash" && call.Want != "denies" && r.ReadWall && r.DecidedBy == policy.ByProof
				if (r.Answer == wire.BehaviorAllow || results[i] == "ran") && !walled {
					t.Errorf("%s: %s, allowed by %q", is, results[i], r.DecidedBy)
				}
				if call.Want == "asks" && !asked[id] && results[i] == "denied" || (call.Want == "denies" || walled) && asked[id] {
					t.Errorf("%s: asked is %v", is, asked[id])
				}
			}
			if after := tree(t, place.Workspace); after != before {
				t.Errorf("the workspace was\n%s\nand is\n%s", before, after)
			}
			for _, m := range p.all {
				if u, ok := m.(*wire.User); ok {
					if text, _ := wire.Encode(u); policytest.Leaks(text, canary) {
						t.Errorf("a secret is read: %.300s", text)
					}
				}
			}
			if _, err := os.Lstat(place.Mark); err == nil {
				t.Error("the witness is there")
			}
		})
	}
}

// receiptsOf returns the receipts of a session, by call.
func receiptsOf(t *testing.T, store session.Store, key session.Key) map[string]*policy.Receipt {
	t.Helper()
	lines, err := store.Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	receipts := map[string]*policy.Receipt{}
	for _, line := range lines {
		var rec struct {
			Type    string          `json:"type"`
			Receipt *policy.Receipt `json:"receipt"`
		}
		if json.Unmarshal(line, &rec) == nil && rec.Type == "parley-receipt" {
			receipts[rec.Receipt.ToolUseID] = rec.Receipt
		}
	}
	return receipts
}

// tree returns the names, modes and texts below a directory.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := ""
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			text = string(data)
		case info.Mode()&fs.ModeSymlink != 0:
			if text, err = os.Readlink(path); err != nil {
				return err
			}
		}
		fmt.Fprintf(&all, "%s %s %q\n", info.Mode(), path, text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// TestWitness checks that an attack that is allowed leaves the witness.
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

// TestAgentRules checks rules about agents against calls that start one, in the spellings
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
		{`{"ask":["Agent(general-purpose)"]}`, "", "denied"}, // by nobody, because there is no host to ask
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
