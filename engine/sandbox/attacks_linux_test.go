package sandbox_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/policy/policytest"
	"github.com/parley-go/parley/engine/sandbox"
)

// long says that all of what takes its time is tried, and not every fifth.
var long = os.Getenv("PARLEY_TEST_LONG") != ""

// The commands of the table of attacks run, as if every one of them had got past the
// rules, and leave no trace outside: every fifth case, or all with PARLEY_TEST_LONG.
func TestAttacks(t *testing.T) {
	t.Parallel()
	cases, err := policytest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for i, c := range cases {
		if i%5 != 0 && !long {
			continue
		}
		dir := t.TempDir()
		place, err := policytest.NewPlace(&c, dir)
		if err != nil {
			t.Fatal(err)
		}
		var script strings.Builder
		script.WriteString("ulimit -f 1024; ulimit -c 0; run() { timeout -k 0.2 0.5 bash -c \"$1\" </dev/null >/dev/null 2>&1 & }\n")
		n := 0
		for _, call := range c.Calls {
			var in struct{ Command string }
			json.Unmarshal(place.Input(call), &in)
			if call.Tool != "Bash" || in.Command == "" || strings.ContainsRune(in.Command, 0) {
				continue
			}
			n++
			script.WriteString("run '" + strings.ReplaceAll(in.Command, "'", `'\''`) + "'\n")
		}
		if n == 0 {
			continue
		}
		ran += n
		p := try(t, sandbox.Bubblewrap, "", func(o *sandbox.Options) { o.Dir, o.Home, o.Temp = place.Workspace, place.Home, nil })
		p.work = place.Workspace
		p.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + place.Home}
		// Nothing runs if it would not be held.
		if ran == n {
			if p.run("touch " + place.Mark); exists(place.Mark) {
				t.Fatal("the sandbox does not hold")
			}
		}
		before := tree(t, place.Home)
		out, _ := p.run(script.String() + "wait\n")
		if exists(place.Mark) || !equal(before, tree(t, place.Home)) {
			t.Errorf("%s (attacks.txt:%d): %s left a trace: %s", c.ID, c.Line, c.Title, out)
		}
		p.Close()
	}
	if ran < 30 || long && ran < 500 {
		t.Errorf("only %d commands ran", ran)
	}
	t.Logf("%d commands", ran)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
