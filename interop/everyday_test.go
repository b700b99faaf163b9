package interop

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/engine/policy/policytest"
	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// TestEverydayQuestions gives everyday commands to both commands, in default mode and
// without rules, and checks that Parley asks for permission no more often than the
// official one. It takes minutes, so it needs PARLEY_TEST_LONG.
func TestEverydayQuestions(t *testing.T) {
	if os.Getenv("PARLEY_TEST_LONG") == "" {
		t.Skip("PARLEY_TEST_LONG is not set")
	}
	claude, ours := peers(t).CLI(), parleyCLI(t)
	var commands []string
	for _, c := range policytest.EverydayCommands() {
		commands = append(commands, c.Command)
	}
	if len(commands) < 150 {
		t.Fatalf("%d commands, want at least 150", len(commands))
	}
	asked := map[string][]string{}
	for name, cli := range map[string]string{"claude": claude, "parley": ours} {
		asked[name] = questions(t, cli, commands)
		t.Logf("%s asks about %d of %d commands: %q", name, len(asked[name]), len(commands), asked[name])
	}
	if len(asked["parley"]) > len(asked["claude"]) {
		t.Errorf("Parley asks about %d commands, the official command about %d", len(asked["parley"]), len(asked["claude"]))
	}
}

// questions returns the commands that need permission. Each of them is denied.
func questions(t *testing.T, cli string, commands []string) []string {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module m\n", "a.txt": "a\n", "README.md": "# m\n", "src/main.go": "package main\n"} {
		os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o777)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("git", "-C", dir, "init", "-q").CombinedOutput(); err != nil {
		t.Skipf("git: %v %s", err, out)
	}
	var turns []*pt.Turn
	for some := range slices.Chunk(commands, 10) {
		turn := pt.Call("Bash", map[string]string{"command": some[0], "description": "Looks"})
		for _, c := range some[1:] {
			turn = turn.Call("Bash", map[string]string{"command": c, "description": "Looks"})
		}
		turns = append(turns, turn)
	}
	api := pt.NewAPI(t, pt.Script(append(turns, pt.Say("done"))...), nil)
	var mu sync.Mutex
	var asked []string
	opts := cancelCommand(cli, dir, api.URL)
	opts.CanUseTool = func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
		var in struct{ Command string }
		if err := json.Unmarshal(req.Input, &in); err != nil {
			return nil, err
		}
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, in.Command)
		return parley.Deny("not now"), nil
	}
	ran := 0
	for m, err := range parley.Query(t.Context(), "hi", opts) {
		if err != nil {
			t.Fatalf("%s: %v", cli, err)
		}
		if u, ok := m.(*wire.User); ok {
			for _, b := range u.Message.Content.Blocks {
				if _, ok := b.(*wire.ToolResultBlock); ok {
					ran++
				}
			}
		}
	}
	if ran != len(commands) {
		t.Errorf("%s: %d results for %d commands", cli, ran, len(commands))
	}
	return asked
}
