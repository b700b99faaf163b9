package policytest

import (
	"testing"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/wire"
)

// TestDecisions plays decisions.txt against the policy.
func TestDecisions(t *testing.T) {
	cases, err := Cases()
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for i := range cases {
		c := &cases[i]
		place, err := NewPlace(c, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		p := policy.New(place.Rules(c)...)
		for _, call := range c.Calls {
			rows++
			req, err := place.Request(call, c.Mode)
			if err != nil {
				if call.Want == "stops" && req != nil {
					continue // the tool rejects it before
				}
				t.Errorf("decisions.txt:%d: %v", call.Line, err)
				continue
			}
			if d := p.Decide(req); !call.Met(d.Behavior) {
				t.Errorf("decisions.txt:%d: %s: %s %s: %s (%s), want %s", call.Line, c.ID, call.Tool, call.Arg[:min(len(call.Arg), 200)], d.Behavior, d.Reason, call.Want)
			}
			// A narrowed policy is never wider.
			for _, mode := range []wire.PermissionMode{"", wire.ModeDefault, wire.ModeAcceptEdits, wire.ModeBypassPermissions, wire.ModePlan} {
				if d := p.Narrow(policy.Narrowing{Mode: mode, Rules: []policy.Rule{{Behavior: wire.BehaviorAllow, Tool: call.Tool}}}).Decide(req); d.Behavior == wire.BehaviorAllow && call.Want != "allows" {
					t.Errorf("decisions.txt:%d: a subagent in mode %q may", call.Line, mode)
				}
			}
		}
	}
	if rows < 500 {
		t.Errorf("only %d rows were played", rows)
	}
	t.Logf("%d cases, %d rows", len(cases), rows)
}
