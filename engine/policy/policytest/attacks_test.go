package policytest

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/wire"
)

// TestPolicyStopsAttacks checks the policy alone against every row: the call must need
// permission or be denied. A call that runs behind the read wall may be allowed by
// proof, because the wall stops it then.
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
				continue // the tool rejects it
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

// TestTableIsWide checks the size of the table: many rows, few of each family, no
// duplicates.
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

// TestPlaceIsRestored changes a place in every way and restores it.
func TestPlaceIsRestored(t *testing.T) {
	for _, program := range []string{"bash", "git"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	world, err := NewWorld(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := world.Enter("app"); err != nil {
		t.Fatal(err)
	}
	want, err := ReadTree(world.Base)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []string{
		"touch ../../out/mark", "echo alphA >a.txt", "truncate -s1 a.txt; touch -d 2020-01-01 a.txt", "rm a.txt", "rm -r src", "chmod 600 a.txt", "chmod 000 src", "chmod 700 src", "mkdir -p n/e/w; touch n/e/w/x",
		"rm -r src; echo x >src", "rm a.txt; mkdir a.txt; touch a.txt/x", "ln -sf b.txt a.txt", "rm e; echo x >e", "cp h h2; mv h2 h", "cp .env e2; mv e2 .env", "echo x >>h", "rm .env h", "mv a.txt z; mv b.txt a.txt; mv z b.txt",
		"ln a.txt a2.txt", "cp -p a.txt a2; echo alphb >a.txt; touch -r a2 a.txt; rm a2", "git commit -qam x", "rm -rf .git", ":",
	} {
		for range 2 { // the second time with usable stamps
			cmd := exec.Command("bash", "-c", change)
			cmd.Dir, cmd.Env = world.Workspace(), append(os.Environ(), "HOME="+world.Home())
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", change, err, out)
			}
			world.Played()
			if changed := world.Changes(); (changed == nil) != (change == ":") {
				t.Errorf("%s: changed %q", change, changed)
			}
			if err := world.Enter("app"); err != nil {
				t.Errorf("%s: %v", change, err)
			}
			if changed := want.Changes(world.Base); changed != nil {
				t.Errorf("%s: restored but for %q", change, changed)
			}
		}
	}
	if err := world.Enter("extdiff"); err != nil || want.Changes(world.Base) == nil {
		t.Errorf("another place is the same (%v)", err)
	}
	if err := world.Enter("app"); err != nil || want.Changes(world.Base) != nil {
		t.Errorf("the place is not as it was after another: %v", err)
	}
}
