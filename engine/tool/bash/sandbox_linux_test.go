package bash_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/sandbox"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/bash"
	"github.com/parley-go/parley/engine/tool/tooltest"
	"github.com/parley-go/parley/internal/testwait"
)

// confined returns an environment with a sandbox, and a directory outside of it.
func confined(t *testing.T, settings string) (env *tool.Env, outside string) {
	t.Helper()
	env = tooltest.Env(t)
	set, err := sandbox.Parse(json.RawMessage(settings))
	if err != nil {
		t.Fatal(err)
	}
	env.Sandbox, err = sandbox.New(sandbox.Options{Settings: set, Dir: env.Roots[0], Home: env.Home, Path: os.Getenv("PATH"), Only: sandbox.Bubblewrap})
	if errors.Is(err, sandbox.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(env.Sandbox.Close)
	return env, t.TempDir()
}

// The tool works inside a sandbox as it does outside: the working directory carries
// over, long commands run, a command that exceeds its timeout continues in the
// background, and everything is stopped at the end.
func TestSandbox(t *testing.T) {
	env, outside := confined(t, `{"enabled":true}`)
	env.Environ = append(env.Environ, "SOME_API_KEY=hush")
	do := func(pairs ...any) string {
		t.Helper()
		return tooltest.Do(t, env, bash.New(&bash.Options{Timeout: 5 * time.Second}), pairs...).Content.String()
	}
	if got := do("command", "mkdir -p sub && cd sub && echo ${SOME_API_KEY-gone}"); got != "gone" {
		t.Errorf("%q", got)
	}
	if got := do("command", "pwd"); got != filepath.Join(env.Roots[0], "sub") {
		t.Errorf("the working directory is %q", got)
	}
	if got := do("command", ": "+strings.Repeat("x", 200_000)+"; echo long"); got != "long" {
		t.Errorf("%.100q", got)
	}
	if got := do("command", "exit 7"); got != "Exit code 7" {
		t.Errorf("%q", got)
	}
	got := do("command", "echo x > "+outside+"/marker", "dangerouslyDisableSandbox", true)
	if _, err := os.Stat(filepath.Join(outside, "marker")); err == nil || !strings.Contains(got, "ran in a sandbox") || strings.Contains(got, "dangerously") {
		t.Errorf("%v: %s", err, got)
	}

	got = do("command", "echo $$ > pid; (setsid sh -c 'while :; do date +%N > beat; sleep 0.02; done' &) ; sleep 60", "run_in_background", true)
	if !strings.Contains(got, "running in background") {
		t.Fatal(got)
	}
	beat := filepath.Join(env.Roots[0], "sub", "beat")
	testwait.Until(t, beat, func() bool {
		_, err := os.Stat(beat)
		return err == nil
	})
	for _, info := range env.Tasks().Running() {
		if task, ok := env.Tasks().Get(info.ID); ok {
			task.Stop()
		}
	}
	first, err := os.ReadFile(beat)
	if err != nil {
		t.Fatal(err)
	}
	testwait.Pause(100 * time.Millisecond)
	if second, _ := os.ReadFile(beat); string(first) != string(second) {
		t.Error("it goes on")
	}
}

// A command runs outside the sandbox if the settings allow it to request that, and it
// does, or if they name the command.
func TestOutside(t *testing.T) {
	env, outside := confined(t, `{"enabled":true,"allowUnsandboxedCommands":true,"excludedCommands":["touch *","ls"]}`)
	for _, c := range []struct {
		command string
		disable bool
		where   string
		made    bool
	}{
		{"echo x > $M", false, tool.Inside, false},
		{"echo x > $M", true, tool.Outside, true},
		{"touch $M", false, "", true},
		{"touch $M; true", false, tool.Inside, false},
		{"touch $M && true", false, tool.Inside, false},
		{"touch '$M'", false, tool.Inside, false},
		{"ls; touch $M", false, tool.Inside, false},
		{"ls\ntouch $M", false, tool.Inside, false},
		{"touch `touch $M`", false, tool.Inside, false},
		{"x=1 touch $M", false, tool.Inside, false},
		{"touchx $M", false, tool.Inside, false},
		{"ls $M", false, "", false},
	} {
		marker := filepath.Join(outside, "marker")
		os.Remove(marker)
		b := bash.New(nil)
		input := tooltest.Input(t, "command", strings.ReplaceAll(c.command, "$M", marker), "dangerouslyDisableSandbox", c.disable)
		access, err := b.Access(env, input)
		if err != nil || access[0].Sandbox != c.where {
			t.Errorf("%s: %v %+v", c.command, err, access)
		}
		tooltest.Call(context.Background(), env, b, input)
		if _, err := os.Stat(marker); (err == nil) != c.made {
			t.Errorf("%s: made is %v", c.command, err == nil)
		}
	}
}

// A root that an earlier command replaced by a symbolic link does not make its target
// writable for the next command.
func TestReplacedRootConfinesNothing(t *testing.T) {
	env, outside := confined(t, `{"enabled":true}`)
	root := env.Roots[0]
	tool := bash.New(nil)
	if r := tooltest.Do(t, env, tool, "command", "echo x > inside"); r.IsError {
		t.Fatal(r.Content.Text)
	}
	if err := errors.Join(os.Rename(root, root+".moved"), os.Symlink(outside, root)); err != nil {
		t.Fatal(err)
	}
	r := tooltest.Do(t, env, tool, "command", "echo x > "+outside+"/marker")
	if entries, _ := os.ReadDir(outside); len(entries) > 0 || !r.IsError {
		t.Errorf("%q, outside there are %v", r.Content.Text, entries)
	}
}
