package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/internal/testwait"
)

const makes = `
turn
	call Bash {"command": "touch made", "description": "Make it"}
turn
	say Made it.
`

// TestTerminalSharesItsSession checks that a terminal shares its session: while no hub runs
// it holds its own, which others list, attach to and answer; otherwise it joins the hub,
// unless that has another environment, and the session continues when the terminal is
// killed.
func TestTerminalSharesItsSession(t *testing.T) {
	dir := t.TempDir()
	self := filepath.Join(dir, "parley")
	build(t, self)
	home, err := os.MkdirTemp("", "home") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	t.Cleanup(func() { endHub(t, filepath.Join(home, ".claude", "hub", "socket")) })
	script := filepath.Join(home, "model.script")
	if err := os.WriteFile(script, []byte(makes), 0o666); err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TERM=xterm", "TMPDIR=" + t.TempDir()}
	run := func(in string, args ...string) string {
		t.Helper()
		cmd := exec.Command(self, args...)
		cmd.Dir, cmd.Env, cmd.Stdin = home, env, strings.NewReader(in)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("parley %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	// waiting returns the session that has an open question.
	waiting := func() (found hub.Info) {
		t.Helper()
		testwait.Until(t, "a session that asks", func() bool {
			var all []hub.Info
			if err := json.Unmarshal([]byte(run("", "agents", "--json")), &all); err != nil {
				t.Fatal(err)
			}
			for _, i := range all {
				if i.State.Phase == hub.RequiresAction {
					found = i
					return true
				}
			}
			return false
		})
		return found
	}
	sit := func(more ...string) *keyboard {
		t.Helper()
		return sitWith(t, self, home, append(env, more...), "--provider", "script", "--script", script, "Make it.")
	}

	leave := func(k *keyboard) string {
		t.Helper()
		k.typeIn(ctrlD)
		if err := k.cmd.Wait(); err != nil {
			t.Error(err)
		}
		<-k.eof
		return k.out
	}

	k := sit()
	k.see("touch made")
	i := waiting() // which starts the hub
	if owners := run("", "logs", "--json", i.ID); !strings.Contains(owners, `{"hub":"terminal `) || i.State.Cwd != home {
		t.Errorf("the first session: %+v\n%s", i.State, owners)
	}
	run("y\n", "attach", i.ID)
	k.see("Made it.")
	if out := leave(k); !strings.Contains(out, i.ID) {
		t.Errorf("the end of the screen: %q", out)
	}
	os.Remove(filepath.Join(home, "made"))

	k = sit()
	k.see("touch made")
	i = waiting()
	if owners := run("", "logs", "--json", i.ID); !strings.Contains(owners, `{"hub":"hub `) {
		t.Errorf("the second session did not join the hub:\n%s", owners)
	}
	k.cmd.Process.Kill()
	k.cmd.Wait()
	if out := run("y\n", "attach", i.ID); !strings.Contains(out, "touch made") {
		t.Errorf("attached:\n%s", out)
	}
	if out := run("", "attach", i.ID); !strings.Contains(out, "Made it.") {
		t.Errorf("attached again:\n%s", out)
	}
	if _, err := os.Stat(filepath.Join(home, "made")); err != nil {
		t.Error(err)
	}

	k = sit("ANTHROPIC_BASE_URL=http://127.0.0.1:1")
	k.see("The session runs in this process")
	k.see("ANTHROPIC_BASE_URL")
	k.see("touch made")
	i = waiting()
	if owners := run("", "logs", "--json", i.ID); !strings.Contains(owners, `{"hub":"terminal `) {
		t.Errorf("the third session:\n%s", owners)
	}
	k.cmd.Process.Kill()
	k.cmd.Wait()
	run("", "stop", i.ID)
}
