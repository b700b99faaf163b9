//go:build unix

package peer_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-go/parley/parleytest/peer"
)

// start spawns a fake CLI that plays the script.
func start(t *testing.T, s *peer.Script, record string) (*exec.Cmd, io.WriteCloser, io.ReadCloser, *bytes.Buffer) {
	t.Helper()
	c, err := peer.Command(s, &peer.CommandOptions{Record: record, Limit: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	cmd := c.Command(t.Context(), "--output-format", "stream-json", "--verbose")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.WaitDelay = 200 * time.Millisecond
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, stdin, stdout, &stderr
}

// TestFaultsAsProcesses plays every fault as a process against a host that is just
// good enough, and checks that the fault happens.
func TestFaultsAsProcesses(t *testing.T) {
	type outcome struct {
		host   *host
		state  *os.ProcessState
		stderr string
		record *peer.Record
	}
	signalled := func(o outcome) string {
		if ws, ok := o.state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return ws.Signal().String()
		}
		return ""
	}
	turn := func(result string) func(*testing.T, outcome) {
		return func(t *testing.T, o outcome) {
			if len(o.host.results) != 1 || o.host.results[0] != result {
				t.Errorf("results %q, want %q", o.host.results, result)
			}
			if code := o.state.ExitCode(); code != 0 {
				t.Errorf("exit %d", code)
			}
		}
	}
	// A fault that does not end by itself is ended by the host, after its output
	// stalled for the time of end.
	tests := map[string]struct {
		host  host
		end   syscall.Signal // 0: it ends by itself
		check func(*testing.T, outcome)
	}{
		"exit-before-initialize": {check: func(t *testing.T, o outcome) {
			if o.state.ExitCode() != 1 || !strings.Contains(o.stderr, "Invalid API key") || o.host.messages != 0 {
				t.Errorf("exit %d, %d messages", o.state.ExitCode(), o.host.messages)
			}
		}},
		"false": {check: func(t *testing.T, o outcome) {
			if o.state.ExitCode() != 1 || o.stderr != "" {
				t.Errorf("exit %d, stderr %q", o.state.ExitCode(), o.stderr)
			}
		}},
		"die-mid-line": {check: func(t *testing.T, o outcome) {
			if signalled(o) != "killed" || o.host.bad != 1 || len(o.host.results) != 0 {
				t.Errorf("signal %q, %d bad lines", signalled(o), o.host.bad)
			}
		}},
		"long-line": {check: func(t *testing.T, o outcome) {
			turn("long")(t, o)
			if o.host.longest != 20<<20+1 {
				t.Errorf("longest line has %d bytes", o.host.longest)
			}
		}},
		"stderr-flood": {check: func(t *testing.T, o outcome) {
			turn("flooded")(t, o)
			if len(o.stderr) != 5<<20 || strings.IndexByte(o.stderr, '\n') < 1<<20 {
				t.Errorf("%d bytes on standard error", len(o.stderr))
			}
		}},
		"burst": {check: func(t *testing.T, o outcome) {
			turn("burst")(t, o)
			if o.host.messages != 3003 {
				t.Errorf("%d messages", o.host.messages)
			}
		}},
		"permission-after":    {check: turn("the answer was allow")},
		"ask-inside-callback": {host: host{inner: true}, check: turn("called back with mcp_status")},
		"cancel-request":      {host: host{silent: true}, check: turn("cancelled")},
		"unknown-things": {check: func(t *testing.T, o outcome) {
			turn("unknown")(t, o)
			if o.host.bad != 2 {
				t.Errorf("%d lines are not JSON", o.host.bad)
			}
		}},
		"unknown-control-request": {check: turn("it said: unsupported")},
		"ignore-eof": {end: syscall.SIGTERM, check: func(t *testing.T, o outcome) {
			if signalled(o) != "terminated" || len(o.host.results) != 1 {
				t.Errorf("signal %q", signalled(o))
			}
		}},
		"ignore-signals": {end: syscall.SIGKILL, check: func(t *testing.T, o outcome) {
			if signalled(o) != "killed" || !strings.Contains(strings.Join(o.record.Notes, "\n"), "signal terminated") {
				t.Errorf("signal %q, notes %q", signalled(o), o.record.Notes)
			}
		}},
		"never-initialize": {end: syscall.SIGTERM, check: func(t *testing.T, o outcome) {
			if o.host.messages != 0 || len(o.record.In) != 2 {
				t.Errorf("%d messages, %d received", o.host.messages, len(o.record.In))
			}
		}},
		"stop-reading": {end: syscall.SIGTERM, check: func(t *testing.T, o outcome) {
			if o.host.messages != 1 || len(o.record.In) != 1 {
				t.Errorf("%d messages, %d received", o.host.messages, len(o.record.In))
			}
		}},
		"close-stdout": {end: syscall.SIGTERM, check: func(t *testing.T, o outcome) {
			if signalled(o) != "terminated" || o.host.messages != 3 {
				t.Errorf("signal %q, %d messages", signalled(o), o.host.messages)
			}
		}},
		"close-stdin":          {check: turn("deaf")},
		"grandchildren":        {end: syscall.SIGTERM, check: turn("orphan")},
		"grandchildren-setsid": {end: syscall.SIGTERM, check: turn("orphan")},
		"answer-twice": {check: func(t *testing.T, o outcome) {
			turn("twice")(t, o)
			if o.host.messages != 5 {
				t.Errorf("%d messages", o.host.messages)
			}
		}},
		"two-results": {check: func(t *testing.T, o outcome) {
			if len(o.host.results) != 2 {
				t.Errorf("results %q", o.host.results)
			}
		}},
		"result-then-hang": {end: syscall.SIGTERM, check: func(t *testing.T, o outcome) {
			if len(o.host.results) != 1 || signalled(o) != "terminated" {
				t.Errorf("results %q, signal %q", o.host.results, signalled(o))
			}
		}},
		"die-after-frame": {check: func(t *testing.T, o outcome) {
			if signalled(o) != "killed" || o.host.messages != 1 {
				t.Errorf("signal %q, %d messages", signalled(o), o.host.messages)
			}
		}},
	}
	for _, f := range peer.Faults() {
		tt, ok := tests[f.Name]
		if !ok {
			t.Errorf("fault %s has no test", f.Name)
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			if f.Doc == "" {
				t.Error("no documentation")
			}
			record := filepath.Join(t.TempDir(), "record")
			cmd, stdin, stdout, stderr := start(t, f, record)
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = tt.host.run(stdout, stdin)
			}()
			if tt.end != 0 {
				// Long enough for a turn; grandchildren hold the pipes for longer.
				time.Sleep(400 * time.Millisecond)
				if tt.end == syscall.SIGKILL {
					_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
					time.Sleep(200 * time.Millisecond)
				}
				_ = syscall.Kill(-cmd.Process.Pid, tt.end)
				r, err := peer.ReadRecord(record)
				if err != nil {
					t.Fatal(err)
				}
				for _, pid := range r.PIDs()[1:] {
					if err := syscall.Kill(pid, 0); err != nil && f.Name == "grandchildren-setsid" {
						t.Errorf("the grandchild is not there: %v", err)
					}
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
				if strings.HasPrefix(f.Name, "grandchildren") && len(r.PIDs()) != 2 {
					t.Errorf("notes %q: no grandchild", r.Notes)
				}
			}
			select {
			case <-done:
			case <-time.After(10 * time.Second):
				_ = cmd.Process.Kill()
				t.Error("it does not end")
			}
			_ = cmd.Wait()
			stdin.Close()
			r, err := peer.ReadRecord(record)
			if err != nil {
				t.Fatal(err)
			}
			tt.check(t, outcome{&tt.host, cmd.ProcessState, stderr.String(), r})
			if t.Failed() {
				t.Logf("stderr: %.2000s\nnotes: %q", stderr, r.Notes)
			}
		})
	}
}
