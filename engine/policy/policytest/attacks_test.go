package policytest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/wire"
)

// TestPolicyStopsAttacks holds the policy alone against every row: the call is asked
// about or denied. A call that runs behind the read wall may be allowed by proof, for
// the wall is what stops it then.
func TestPolicyStopsAttacks(t *testing.T) {
	for _, program := range []string{"bash", "git"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	rows, err := Rows()
	if err != nil {
		t.Fatal(err)
	}
	world, err := NewWorld(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	byPlace := map[string][]int{}
	for i := range rows {
		s, err := ParseSetting(rows[i].Setting)
		if err != nil {
			t.Fatal(err)
		}
		byPlace[s.Place] = append(byPlace[s.Place], i)
	}
	pending, held := Pending(), 0
	for place, list := range byPlace {
		if err := world.Enter(place); err != nil {
			t.Fatal(err)
		}
		for _, i := range list {
			r := &rows[i]
			s, _ := ParseSetting(r.Setting)
			req, err := world.Request(r, s)
			if err != nil {
				if req == nil {
					t.Error(err)
				}
				continue // the tool refuses it
			}
			p := policy.New(world.Rules(s)...)
			d := p.Decide(req)
			allowed := d.Behavior == wire.BehaviorAllow
			if allowed && !r.IsPending(pending) {
				t.Errorf("%s: allowed, since %s:\t%s", r.Where(), d.Reason, r.line)
			}
			if !allowed && r.IsPending(pending) {
				held++
			}
			walled := *req
			walled.ReadWall = true
			if d := p.Decide(&walled); d.Behavior == wire.BehaviorAllow && d.DecidedBy != policy.ByProof && !r.IsPending(pending) {
				t.Errorf("%s: allowed outside of the read wall, since %s:\t%s", r.Where(), d.Reason, r.line)
			}
			// A narrowed policy is never wider.
			for _, mode := range []wire.PermissionMode{wire.ModeDefault, wire.ModeBypassPermissions} {
				n := p.Narrow(policy.Narrowing{Mode: mode, Rules: []policy.Rule{{Behavior: wire.BehaviorAllow, Tool: r.Tool}}})
				if d := n.Decide(req); d.Behavior == wire.BehaviorAllow && !allowed {
					t.Errorf("%s: a subagent in mode %q may", r.Where(), mode)
				}
			}
		}
	}
	t.Logf("%d rows, %d pending, of which %d hold now and can be removed from pending.txt", len(rows), len(pending), held)
}

// TestTableIsWide holds the table to its size: many rows, few of each family, none
// twice.
func TestTableIsWide(t *testing.T) {
	rows, err := Rows()
	if err != nil {
		t.Fatal(err)
	}
	families, seen := map[string]int{}, map[string]string{}
	for i := range rows {
		r := &rows[i]
		families[r.Family]++
		key := strings.Join([]string{r.Setting, r.Tool, r.Arg}, "\x00")
		if at, ok := seen[key]; ok {
			t.Errorf("%s: the row is at %s, too", r.Where(), at)
		}
		seen[key] = r.Where()
	}
	for family, n := range families {
		if n > 20 {
			t.Errorf("%d rows of the family %s, want at most 20", n, family)
		}
	}
	for line := range Pending() {
		if !slices.ContainsFunc(rows, func(r Row) bool { return strings.Join(strings.Fields(r.line), " ") == line }) {
			t.Errorf("pending.txt: no row of the table is %q", line)
		}
	}
	if len(rows) < 4500 {
		t.Errorf("%d rows, want at least 4,500", len(rows))
	}
	t.Logf("%d rows of %d families", len(rows), len(families))
}
