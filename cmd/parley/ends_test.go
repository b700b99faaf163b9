//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/wire"
)

// An agentProcess is the shipped command, as an agent that plays a script.
type agentProcess struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	lines  chan wire.Message
	stderr *bytes.Buffer
	ended  sync.WaitGroup
}

// TestEnds builds the command and ends it in many ways.
func TestEnds(t *testing.T) {
	shipped = filepath.Join(t.TempDir(), "parley")
	build(t, shipped)
	for name, f := range onlyHere {
		t.Run(name, f)
	}
	t.Run("signals", testSignals)
	t.Run("unread", testUnreadOutput)
	t.Run("killed", testKilled)
}

var (
	shipped  string                            // the command that TestEnds built
	onlyHere = map[string]func(t *testing.T){} // tests of one system
)

// startAgent starts the command in dir. The script has the answers of the model.
func startAgent(t *testing.T, dir, script string, args ...string) *agentProcess {
	t.Helper()
	file := filepath.Join(t.TempDir(), "model.script")
	if err := os.WriteFile(file, []byte(script), 0o666); err != nil {
		t.Fatal(err)
	}
	a := &agentProcess{t: t, lines: make(chan wire.Message, 1000), stderr: new(bytes.Buffer)}
	a.cmd = exec.Command(shipped, append([]string{"--output-format", "stream-json", "--verbose", "--input-format", "stream-json", "--provider", "script", "--script", file}, args...)...)
	a.cmd.Dir, a.cmd.Stderr = dir, a.stderr
	a.cmd.Env = []string{"HOME=" + filepath.Join(dir, "home"), "PATH=" + os.Getenv("PATH"), "IS_SANDBOX=1", "TMPDIR=" + os.TempDir()}
	var err error
	if a.stdin, err = a.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.ended.Go(func() {
		defer close(a.lines)
		r := wire.NewReader(out, nil)
		for m, err := r.Next(); err == nil; m, err = r.Next() {
			a.lines <- m
		}
	})
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill()
		a.ended.Wait()
		_ = a.cmd.Wait()
	})
	return a
}

func (a *agentProcess) say(text string) {
	a.t.Helper()
	if _, err := fmt.Fprintf(a.stdin, `{"type":"user","message":{"role":"user","content":%q}}`+"\n", text); err != nil {
		a.t.Fatal(err)
	}
}

// until reads messages up to one that f accepts. It fails the test if there is none.
func (a *agentProcess) until(f func(wire.Message) bool) wire.Message {
	a.t.Helper()
	limit := testwait.Late(a.t)
	for {
		select {
		case m, ok := <-a.lines:
			if !ok {
				a.t.Fatalf("the output ended; standard error: %s", a.stderr)
			}
			if f(m) {
				return m
			}
		case <-limit:
			a.t.Fatal("nothing came")
		}
	}
}

func isInit(m wire.Message) bool   { _, ok := m.(*wire.Init); return ok }
func isResult(m wire.Message) bool { _, ok := m.(*wire.Result); return ok }

// exit waits for the end and returns the status, with the results that still arrived.
func (a *agentProcess) exit() (code int, results []*wire.Result) {
	a.t.Helper()
	for m := range a.lines {
		if r, ok := m.(*wire.Result); ok {
			results = append(results, r)
		}
	}
	a.ended.Wait()
	err := a.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		a.t.Fatal(err)
	}
	return a.cmd.ProcessState.ExitCode(), results
}

// waitFor waits until a file exists.
func waitFor(t *testing.T, path string) {
	t.Helper()
	testwait.Until(t, path, func() bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

// testSignals ends the command with signals: a running turn gets its result, and an error
// never exits with 0.
func testSignals(t *testing.T) {
	for _, tt := range []struct {
		name    string
		script  string
		signal  os.Signal
		code    int
		results int
	}{
		{"SIGTERM while the model writes", "turn\n\tpause 1h\n\tsay never\n", syscall.SIGTERM, 143, 1},
		{"SIGINT while the model writes", "turn\n\tpause 1h\n\tsay never\n", os.Interrupt, 1, 1},
		{"SIGTERM while a tool runs", "turn\n\tcall Bash {\"command\":\"touch started; sleep 3600\"}\n", syscall.SIGTERM, 143, 1},
		{"SIGINT while a tool runs", "turn\n\tcall Bash {\"command\":\"touch started; sleep 3600\"}\n", os.Interrupt, 1, 1},
		{"SIGTERM behind a turn", "turn\n\tsay done\n", syscall.SIGTERM, 143, 0},
		{"SIGINT behind a turn", "turn\n\tsay done\n", os.Interrupt, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			a := startAgent(t, dir, tt.script, "--allowedTools", "Bash")
			a.say("hi")
			a.until(isInit)
			switch {
			case strings.Contains(tt.name, "tool"):
				waitFor(t, filepath.Join(dir, "started"))
			case strings.Contains(tt.name, "behind"):
				a.until(isResult)
			}
			if err := a.cmd.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			code, results := a.exit()
			if code != tt.code || len(results) != tt.results {
				t.Errorf("exit status %d, want %d; results %v; standard error %s", code, tt.code, results, a.stderr)
			}
			for _, r := range results {
				if !r.IsError || r.Subtype != "error_during_execution" {
					t.Errorf("result %+v", r)
				}
			}
		})
	}
}

// testUnreadOutput ends a command whose host does not read.
func testUnreadOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "model.script")
	if err := os.WriteFile(file, []byte("turn\n\tsay "+strings.Repeat("many words ", 20000)+"\n\talways\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(shipped, "--output-format", "stream-json", "--verbose", "--input-format", "stream-json", "--provider", "script", "--script", file, "--include-partial-messages")
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		fmt.Fprintln(in, `{"type":"user","message":{"role":"user","content":"hi"}}`)
	}
	testwait.Pause(200 * time.Millisecond)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_, _ = cmd.Process.Wait()
}

// testKilled kills the command in the middle of a call, at its results and between them, and
// continues: commands that ran do not run again, and the model learns what is known.
func testKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const id = "11111111-1111-4111-8111-111111111111"
	a := startAgent(t, dir, `
turn
	say I start it.
	call Bash {"command":"sleep 3600", "run_in_background":true}
	call Bash {"command":"echo once >> log; touch started; sleep 3600"}
	call Bash {"command":"echo never >> log"}
`, "--session-id", id, "--allowedTools", "Bash")
	a.say("hi")
	waitFor(t, filepath.Join(dir, "started"))
	if err := a.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if code, results := a.exit(); code != -1 || len(results) != 0 {
		t.Errorf("exit status %d, results %v", code, results)
	}
	b := startAgent(t, dir, `
turn
	expect tool-error outcome unknown
	expect tool-error did not run
	expect user go on
	say I see.
`, "--resume", id, "--allowedTools", "Bash")
	b.say("go on")
	r := b.until(isResult).(*wire.Result)
	if r.IsError || r.Result != "I see." {
		raw, _ := json.Marshal(r)
		t.Errorf("result %s", raw)
	}
	b.stdin.Close()
	if code, _ := b.exit(); code != 0 {
		t.Errorf("exit status %d: %s", code, b.stderr)
	}
	if log, _ := os.ReadFile(filepath.Join(dir, "log")); string(log) != "once\n" {
		t.Errorf("the log says %q", log)
	}
	testwait.Until(t, "the end of all commands", func() bool {
		out, _ := exec.Command("pgrep", "-f", "sleep 3600").Output()
		for pid := range strings.FieldsSeq(string(out)) {
			if cwd, err := os.Readlink("/proc/" + pid + "/cwd"); err == nil && cwd == dir {
				return false
			}
		}
		return true
	})
}
