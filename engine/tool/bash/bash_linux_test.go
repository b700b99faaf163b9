package bash_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/bash"
	"github.com/parley-go/parley/engine/tool/tooltest"
	"github.com/parley-go/parley/internal/testwait"
)

func TestResults(t *testing.T) {
	env := tooltest.Env(t)
	env.Environ = append(env.Environ, "BASH_ENV=/nonexistent", "GREETING=hello")
	for _, c := range []struct {
		command, text, structured string
		isError                   bool
	}{
		{command: "echo hi; echo err >&2; exit 0", text: "hi\nerr", structured: `{"stdout":"hi\nerr","stderr":"","interrupted":false,"isImage":false,"noOutputExpected":false}`},
		{command: "true", text: "(Bash completed with no output)", structured: `{"stdout":"","stderr":"","interrupted":false,"isImage":false,"noOutputExpected":false}`},
		{command: "mkdir -p made && touch made/x", text: "(Bash completed with no output)", structured: `{"stdout":"","stderr":"","interrupted":false,"isImage":false,"noOutputExpected":true}`},
		{command: "set -e", text: "(Bash completed with no output)", structured: `{"stdout":"","stderr":"","interrupted":false,"isImage":false,"noOutputExpected":false}`},
		{command: "exit 3", text: "Exit code 3", structured: `"Error: Exit code 3"`, isError: true},
		{command: "echo out; echo err >&2; exit 3", text: "Exit code 3\nout\nerr", structured: `"Error: Exit code 3\nout\nerr"`, isError: true},
		{command: "kill -KILL $$", text: "Exit code 137", isError: true},
		{command: "grep nothing /dev/null", text: "(Exit code 1: No matches found)"},
		{command: "printf '\\n\\n  a\\xff \\n\\n'", text: "  a\ufffd"},
		{command: "cat", text: "(Bash completed with no output)"},
		{command: "echo $GREETING; echo ${BASH_ENV-unset} $TERM $GIT_TERMINAL_PROMPT", text: "hello\nunset dumb 0"},
		{command: "echo \"$# $0\"", text: "0 " + shell(t)},
		{command: "# only a comment", text: "(Bash completed with no output)"},
		{command: "cat <<E\nx\nE", text: "x"},
		{command: "printf 'data:image/png;base64,aGk='", text: "", structured: `{"stdout":"data:image/png;base64,aGk=","stderr":"","interrupted":false,"isImage":true,"noOutputExpected":false}`},
		{command: "sleep 30", text: "<tool_use_error>Blocked: standalone sleep 30. It would", isError: true},
		{command: "  ", text: "(Bash completed with no output)"},
		{command: "", text: "(Bash completed with no output)"},
		{command: ": " + strings.Repeat("x", 300_000) + "; echo long", text: "long"},
	} {
		t.Run(c.command[:min(len(c.command), 30)], func(t *testing.T) {
			r := tooltest.Do(t, env, bash.New(nil), "command", c.command)
			if got := r.Content.String(); got != c.text && (!strings.HasPrefix(got, c.text) || !strings.HasPrefix(c.text, "<")) || r.IsError != c.isError {
				t.Errorf("%v %q, want %v %q", r.IsError, got, c.isError, c.text)
			}
			if got := tooltest.JSON(t, r); c.structured != "" && got != c.structured {
				t.Errorf("%s\nwant %s", got, c.structured)
			}
		})
	}
}

func shell(t *testing.T) string {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(dir, "bash")); err == nil {
			return filepath.Join(dir, "bash")
		}
	}
	t.Skip("no bash")
	return ""
}

// The working directory carries over, and stays inside the roots.
func TestWorkingDirectory(t *testing.T) {
	env := tooltest.Env(t)
	root := env.Roots[0]
	run := func(command string) string {
		return tooltest.Do(t, env, bash.New(nil), "command", command).Content.Text
	}
	if got := run("mkdir -p 'a b' && cd 'a b' && pwd"); got != root+"/a b" {
		t.Errorf("%q", got)
	}
	if got := run("pwd; exit 0"); got != root+"/a b" {
		t.Errorf("%q", got)
	}
	if got := run("cd / && pwd"); got != "/\nShell cwd was reset to "+root || env.Cwd() != root {
		t.Errorf("%q", got)
	}
	run("cd 'a b'")
	if got := run("cd ..; exit 4"); got != "Exit code 4" || env.Cwd() != root {
		t.Errorf("%q %q", got, env.Cwd())
	}
	run("cd 'a b'")
	os.Remove(filepath.Join(root, "a b"))
	if got := run("pwd"); !strings.HasPrefix(got, root+"\n(The working directory") {
		t.Errorf("%q", got)
	}
	// A link in the root that leads out is outside.
	os.Symlink("/", filepath.Join(root, "out"))
	if got := run("cd out"); got != "Shell cwd was reset to "+root {
		t.Errorf("%q", got)
	}
}

// Large output is saved to a file, and the model receives both ends of it.
func TestLargeOutput(t *testing.T) {
	env := tooltest.Env(t)
	r := tooltest.Do(t, env, bash.New(nil), "command", "echo first; yes line | head -20000; echo last")
	out := r.Structured.(*bash.Output)
	if !strings.HasPrefix(r.Content.Text, "<persisted-output>\nOutput too large (97.7KB). Full output saved to: "+out.PersistedOutputPath+"\n\nPreview (first ") ||
		!strings.Contains(r.Content.Text, "):\nfirst\nline\n") || !strings.HasSuffix(r.Content.Text, "line\nlast\n</persisted-output>") || len(r.Content.Text) > 9000 {
		t.Errorf("%q", r.Content.Text)
	}
	data, err := os.ReadFile(out.PersistedOutputPath)
	if err != nil || int64(len(data)) != out.PersistedOutputSize || len(data) != 100011 || !strings.HasPrefix(out.PersistedOutputPath, env.Dir) {
		t.Errorf("%d bytes, %v, %+v", len(data), err, out.PersistedOutputSize)
	}
	if len(out.Stdout) != 30000 {
		t.Errorf("stdout has %d", len(out.Stdout))
	}
	// Larger than what is kept in memory.
	r = tooltest.Do(t, env, bash.New(nil), "command", "yes 0123456789 | head -100000; exit 2")
	if !r.IsError || !strings.HasPrefix(r.Content.Text, "Exit code 2\n<persisted-output>\nOutput too large (1MB)") {
		t.Errorf("%.200q", r.Content.Text)
	}
	env.Dir = ""
	r = tooltest.Do(t, env, bash.New(nil), "command", "yes 0123456789 | head -100000")
	if !strings.HasPrefix(r.Content.Text, "<persisted-output>\nOutput too large (1MB). It could not be saved") {
		t.Errorf("%.200q", r.Content.Text)
	}
}

// A command that prints forever is stopped; disk and memory use stay limited.
func TestEndless(t *testing.T) {
	env := tooltest.Env(t)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	r := tooltest.Do(t, env, bash.New(&bash.Options{MaxDisk: 4 << 20}), "command", "yes")
	runtime.GC()
	runtime.ReadMemStats(&after)
	if !r.IsError || !strings.Contains(r.Content.Text, "stopped because it printed more than 4MB") {
		t.Errorf("%.100q … %.200q", r.Content.Text, r.Content.Text[max(0, len(r.Content.Text)-200):])
	}
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 2<<20 {
		t.Errorf("memory grew by %d", grown)
	}
	var size int64
	filepath.Walk(env.Dir, func(_ string, info os.FileInfo, _ error) error { size += info.Size(); return nil })
	if size > 5<<20 {
		t.Errorf("%d bytes on disk", size)
	}
}

// pid reads a process id that a command wrote.
func pid(t *testing.T, file string) int {
	t.Helper()
	var n int
	testwait.Until(t, file, func() bool {
		data, err := os.ReadFile(file)
		fmt.Sscan(string(data), &n)
		return err == nil && strings.HasSuffix(string(data), "\n")
	})
	return n
}

func mustVanish(t *testing.T, pids ...int) {
	t.Helper()
	for _, p := range pids {
		testwait.Until(t, fmt.Sprintf("the end of process %d", p), func() bool { return !alive(p) })
	}
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// Cancelling stops the whole process tree, even if processes resist.
func TestCancel(t *testing.T) {
	for _, c := range []struct{ name, command string }{
		{"plain", "echo $$ >pid; sleep 1000"},
		{"child", "sh -c 'echo $$ >pid; sleep 1000; true'; true"},
		{"ignores SIGTERM", "trap '' TERM; echo $$ >pid; while :; do sleep 1; done"},
		{"child ignores SIGTERM", "bash -c 'trap \"\" TERM; echo $$ >pid; while :; do sleep 1; done' & wait"},
		{"left the group", "setsid sh -c 'echo $$ >pid; sleep 1000; true' >/dev/null 2>&1 </dev/null & wait"},
		{"closed its pipes", "exec >/dev/null 2>&1; echo $$ >pid; sleep 1000; true"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env := tooltest.Env(t)
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error)
			go func() {
				call := &tool.Call{ID: "x", Input: tooltest.Input(t, "command", c.command), Env: env}
				_, err := bash.New(nil).Run(ctx, call)
				done <- err
			}()
			p := pid(t, filepath.Join(env.Roots[0], "pid"))
			why := errors.New("enough")
			cancel(why)
			if err := <-done; err != why {
				t.Errorf("error %v", err)
			}
			mustVanish(t, p)
		})
	}
}

// Processes that a command leaves behind do not delay it, and end with the conversation.
func TestLeftBehind(t *testing.T) {
	for _, c := range []struct{ name, command string }{
		{"with the output", "sh -c 'echo $$ >pid; sleep 1000; true' & echo started"},
		{"without", "sh -c 'echo $$ >pid; sleep 1000; true' >/dev/null 2>&1 & echo started"},
		{"daemon", "setsid sh -c 'echo $$ >pid; sleep 1000; true' >/dev/null 2>&1 </dev/null & echo started"},
		{"daemon with the output", "setsid sh -c 'echo $$ >pid; sleep 1000; true' & echo started"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env := tooltest.Env(t)
			r := tooltest.Do(t, env, bash.New(nil), "command", c.command)
			if r.Content.Text != "started" {
				t.Errorf("%q", r.Content.Text)
			}
			p := pid(t, filepath.Join(env.Roots[0], "pid"))
			if !alive(p) {
				t.Error("it was killed")
			}
			env.Close()
			mustVanish(t, p)
		})
	}
}

// A command that exceeds its timeout continues, keeps its output, and can be stopped.
func TestTimeout(t *testing.T) {
	env := tooltest.Env(t)
	events := tooltest.Listen(env)
	r := tooltest.Do(t, env, bash.New(nil), "command", "echo a; read -t 1 </dev/zero; sleep 1; echo b; sleep 1000", "timeout", 300)
	out := r.Structured.(*bash.Output)
	if !strings.HasPrefix(r.Content.Text, "a\nCommand did not complete within its 300ms timeout and was moved to the background (ID: "+out.BackgroundTaskID+"). Output is being written to: ") || out.TimedOutAfterMS != 300 || out.Stdout != "a" {
		t.Fatalf("%q %+v", r.Content.Text, out)
	}
	task, ok := env.Tasks().Get(out.BackgroundTaskID)
	if !ok {
		t.Fatal("no task")
	}
	testwait.Until(t, "b", func() bool { return task.Output(100).Text == "a\nb\n" })
	data, _ := os.ReadFile(task.Info().OutputFile)
	if got := task.Output(100); got.Text != "a\nb\n" || got.Total != 4 || got.Truncated || string(data) != "a\nb\n" {
		t.Errorf("%+v %q", got, data)
	}
	task.Stop()
	<-task.Done()
	all := events.All()
	if len(all) != 2 {
		t.Fatalf("%+v", all)
	}
	started, ended := all[0].(tool.TaskStarted).Info, all[1].(tool.TaskEnded).Info
	if !started.Background || started.Kind != "local_bash" || started.ToolUseID != "toolu_test" || started.Status != "running" || len(started.ID) != 9 || started.ID[0] != 'b' {
		t.Errorf("%+v", started)
	}
	if ended.Status != "killed" || ended.OutputFile == "" || ended.Summary != ended.Description || ended.Ended.IsZero() {
		t.Errorf("%+v", ended)
	}
}

// A command that may not run in the background ends at its timeout, and so does one that only waits.
func TestTimeoutWithoutBackground(t *testing.T) {
	for command, opts := range map[string]*bash.Options{"echo a; tail -f /dev/null": {NoBackground: true}, " sleep 1000; echo b": nil} {
		env := tooltest.Env(t)
		input, _ := json.Marshal(map[string]any{"command": command, "timeout": 300})
		_, err := bash.New(opts).Run(t.Context(), &tool.Call{ID: "toolu_test", Input: input, Env: env})
		if err == nil || !strings.HasPrefix(err.Error(), "Exit code 143\nCommand timed out after 300ms") || len(env.Tasks().Running()) > 0 {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// The results name only tools that the model has.
func TestBackgroundNamesOnlyOfferedTools(t *testing.T) {
	for _, input := range []map[string]any{{"command": "cat /dev/zero >/dev/null", "timeout": 300}, {"command": "echo", "run_in_background": true}} {
		raw, _ := json.Marshal(input)
		r, err := bash.New(&bash.Options{NoTasks: true}).Run(t.Context(), &tool.Call{ID: "toolu_test", Input: raw, Env: tooltest.Env(t)})
		if err != nil || strings.Contains(r.Content.Text, "TaskOutput") || strings.Contains(r.Content.Text, "TaskStop") {
			t.Errorf("%v: %v %+v", input, err, r)
		}
	}
}

// A command in the background reports its end.
func TestBackground(t *testing.T) {
	env := tooltest.Env(t)
	events := tooltest.Listen(env)
	r := tooltest.Do(t, env, bash.New(nil), "command", "echo x; cd /; exit 3", "run_in_background", true, "description", "say x")
	out := r.Structured.(*bash.Output)
	if !strings.HasPrefix(r.Content.Text, "Command running in background with ID: "+out.BackgroundTaskID+". Output is being written to: ") {
		t.Errorf("%q", r.Content.Text)
	}
	if got, want := tooltest.JSON(t, r), `{"stdout":"","stderr":"","interrupted":false,"isImage":false,"noOutputExpected":false,"backgroundTaskId":"`+out.BackgroundTaskID+`"}`; got != want {
		t.Errorf("%s", got)
	}
	task, _ := env.Tasks().Get(out.BackgroundTaskID)
	<-task.Done()
	var ended tool.TaskInfo
	testwait.Until(t, "the event of the end", func() bool { return len(events.All()) == 2 })
	ended = events.All()[1].(tool.TaskEnded).Info
	if ended.Status != "failed" || *ended.ExitCode != 3 || ended.Summary != `Background command "say x" failed with exit code 3` {
		t.Errorf("%+v", ended)
	}
	if env.Cwd() != env.Roots[0] {
		t.Errorf("a background command changed the directory to %s", env.Cwd())
	}
}

// A long command in the foreground is reported as a task, and a person can move it to the
// background.
func TestForegroundTask(t *testing.T) {
	env := tooltest.Env(t)
	events := tooltest.Listen(env)
	b := bash.New(&bash.Options{Tell: 20 * time.Millisecond})
	r := tooltest.Do(t, env, b, "command", "sleep 0.3; echo x")
	all := events.All()
	if r.Content.Text != "x" || len(all) != 2 || all[0].(tool.TaskStarted).Info.Background || all[1].(tool.TaskEnded).Info.OutputFile != "" || all[1].(tool.TaskEnded).Info.Status != "completed" {
		t.Fatalf("%q %+v", r.Content.Text, all)
	}
	go func() {
		for env.Tasks().Background("", nil) == 0 {
			testwait.Pause(5 * time.Millisecond)
		}
	}()
	r = tooltest.Do(t, env, b, "command", "sleep 0.5; echo y")
	out := r.Structured.(*bash.Output)
	if !out.BackgroundedByUser || !strings.HasPrefix(r.Content.Text, "Command was manually backgrounded by user with ID: ") {
		t.Fatalf("%q", r.Content.Text)
	}
	if len(env.Tasks().Running()) != 1 {
		t.Errorf("%+v", env.Tasks().Running())
	}
	task, _ := env.Tasks().Get(out.BackgroundTaskID)
	<-task.Done()
	testwait.Until(t, "the event of the end", func() bool { return len(events.All()) == 5 })
	all = events.All()[2:]
	if len(all) != 3 || all[0].(tool.TaskStarted).Info.Background || !all[1].(tool.TaskUpdated).Info.Background || all[2].(tool.TaskEnded).Info.Summary != `Background command "sleep 0.5; echo y" completed (exit code 0)` {
		t.Errorf("%+v", all)
	}
}

// On a full disk a command runs as usual; only the middle of its output is lost, and the
// model receives a note.
func TestFullDisk(t *testing.T) {
	env := tooltest.Env(t)
	if err := os.MkdirAll(env.Dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", env.Dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("no right to mount: ", err)
	}
	t.Cleanup(func() { syscall.Unmount(env.Dir, syscall.MNT_DETACH) })
	r := tooltest.Do(t, env, bash.New(nil), "command", "echo first; yes 0123456789 | head -100000; echo last; touch done")
	if r.IsError || !strings.Contains(r.Content.Text, "Only a part of it could be saved to: ") || !strings.Contains(r.Content.Text, "no space left on device") ||
		!strings.Contains(r.Content.Text, "first\n") || !strings.HasSuffix(r.Content.Text, "last\n</persisted-output>") {
		t.Errorf("%.300q … %.100q", r.Content.Text, r.Content.Text[max(0, len(r.Content.Text)-100):])
	}
	if _, err := os.Stat(filepath.Join(env.Roots[0], "done")); err != nil {
		t.Error("the command did not come to its end: ", err)
	}
}

// The tool waits for a command that closes its pipes, and keeps the output before that.
func TestClosesPipes(t *testing.T) {
	env := tooltest.Env(t)
	r := tooltest.Do(t, env, bash.New(nil), "command", "echo before; exec >&- 2>&- <&-; sleep 0.3; : >made; exit 3")
	if !r.IsError || r.Content.Text != "Exit code 3\nbefore" {
		t.Errorf("%q", r.Content.Text)
	}
	if _, err := os.Stat(filepath.Join(env.Roots[0], "made")); err != nil {
		t.Errorf("it was not waited for: %v", err)
	}
}

// An earlier command cannot change startup files of a shell, or a command that is too long
// for an argument: they are not in any directory.
func TestNothingToTamperWith(t *testing.T) {
	env := tooltest.Env(t)
	os.MkdirAll(env.Home, 0o700)
	os.WriteFile(filepath.Join(env.Home, ".bashrc"), []byte("hello() { echo from bashrc; }\n"), 0o600)
	b := bash.New(&bash.Options{Snapshot: new(bash.Snapshot)})
	long := "x=" + strings.Repeat("y", 200_000) + "; hello; echo ${#x}; ls /proc/self/fd | wc -l"
	for range 2 {
		if r := tooltest.Do(t, env, b, "command", long); !strings.HasPrefix(r.Content.Text, "from bashrc\n200000\n") {
			t.Errorf("%q", r.Content.Text)
		}
	}
	filepath.WalkDir(env.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("%s was left", path)
		}
		return nil
	})
}

// TestOddInputs checks which inputs are valid, as with the official command.
func TestOddInputs(t *testing.T) {
	for input, want := range map[string]bool{
		`{"command":"pwd","foo":1}`:                          false,
		`{"command":"pwd","dangerouslyDisableSandbox":true}`: true,
		`{"command":""}`:                                     true,
		`{"command":"pwd","timeout":-1}`:                     true,
		`{"command":"pwd","timeout":2000.5}`:                 true,
		`{"command":"pwd","timeout":1e300}`:                  true,
		`{"command":"pwd","timeout":"x"}`:                    false,
	} {
		err := tool.Validate(bash.New(nil).Spec(), json.RawMessage(input))
		if (err == nil) != want {
			t.Errorf("%s: %v", input, err)
		}
		if err != nil {
			continue
		}
		var in map[string]any
		json.Unmarshal([]byte(input), &in)
		var pairs []any
		for name, value := range in {
			pairs = append(pairs, name, value)
		}
		if r := tooltest.Do(t, tooltest.Env(t), bash.New(nil), pairs...); r.IsError {
			t.Errorf("%s: %s", input, r.Content)
		}
	}
}
