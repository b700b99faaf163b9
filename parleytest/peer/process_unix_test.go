//go:build unix

package peer_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-go/parley/internal/testwait"
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

// await reads the record of a peer until it contains the expected events.
func await(t *testing.T, path string, ready func(*peer.Record) bool) *peer.Record {
	t.Helper()
	var r *peer.Record
	testwait.Until(t, "the record of the peer", func() (ok bool) {
		var err error
		r, err = peer.ReadRecord(path)
		return err == nil && ready(r)
	})
	return r
}

func noted(text string) func(*peer.Record) bool {
	return func(r *peer.Record) bool { return slices.Contains(r.Notes, text) }
}

func sent(n int) func(*peer.Record) bool {
	return func(r *peer.Record) bool { return len(r.Out) == n }
}

func exited(r *peer.Record) bool {
	return len(r.Events) > 0 && r.Events[len(r.Events)-1].Dir == "exit"
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
	// A fault that does not end by itself is ended when its record shows that it has
	// happened.
	tests := map[string]struct {
		host  host
		end   syscall.Signal          // 0: it ends by itself
		ready func(*peer.Record) bool // when to end it
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
		"ignore-eof": {end: syscall.SIGTERM, ready: noted("ignores the end of its input"), check: func(t *testing.T, o outcome) {
			if signalled(o) != "terminated" || len(o.host.results) != 1 {
				t.Errorf("signal %q", signalled(o))
			}
		}},
		"ignore-signals": {end: syscall.SIGKILL, ready: noted("ignores the end of its input"), check: func(t *testing.T, o outcome) {
			if signalled(o) != "killed" || !strings.Contains(strings.Join(o.record.Notes, "\n"), "signal terminated") {
				t.Errorf("signal %q, notes %q", signalled(o), o.record.Notes)
			}
		}},
		"never-initialize": {end: syscall.SIGTERM, ready: func(r *peer.Record) bool { return len(r.In) == 2 }, check: func(t *testing.T, o outcome) {
			if o.host.messages != 0 || len(o.record.In) != 2 {
				t.Errorf("%d messages, %d received", o.host.messages, len(o.record.In))
			}
		}},
		"stop-reading": {end: syscall.SIGTERM, ready: sent(1), check: func(t *testing.T, o outcome) {
			if o.host.messages != 1 || len(o.record.In) != 1 {
				t.Errorf("%d messages, %d received", o.host.messages, len(o.record.In))
			}
		}},
		"close-stdout": {end: syscall.SIGTERM, ready: noted("output closed"), check: func(t *testing.T, o outcome) {
			if signalled(o) != "terminated" || o.host.messages != 3 {
				t.Errorf("signal %q, %d messages", signalled(o), o.host.messages)
			}
		}},
		"close-stdin":          {check: turn("deaf")},
		"grandchildren":        {end: syscall.SIGTERM, ready: exited, check: turn("orphan")},
		"grandchildren-setsid": {end: syscall.SIGTERM, ready: exited, check: turn("orphan")},
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
		"result-then-hang": {end: syscall.SIGTERM, ready: sent(4), check: func(t *testing.T, o outcome) {
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
			t.Parallel()
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
				await(t, record, tt.ready)
				if tt.end == syscall.SIGKILL {
					_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
					await(t, record, noted("signal terminated"))
				}
				r := await(t, record, tt.ready)
				if strings.HasPrefix(f.Name, "grandchildren") {
					if len(r.PIDs()) != 2 {
						t.Fatalf("notes %q: no grandchild", r.Notes)
					}
					if !slices.Contains(r.Running(), r.PIDs()[1]) {
						t.Error("the grandchild does not run")
					}
					group, err := syscall.Getpgid(r.PIDs()[1])
					if err != nil || (group == cmd.Process.Pid) != (f.Name == "grandchildren") {
						t.Errorf("the grandchild is in group %d (%v), the peer is %d", group, err, cmd.Process.Pid)
					}
					testwait.Pause(50 * time.Millisecond)
					select {
					case <-done:
						t.Error("the output ended before the grandchild did")
					default:
					}
					_ = syscall.Kill(r.PIDs()[1], syscall.SIGKILL)
				} else {
					_ = syscall.Kill(-cmd.Process.Pid, tt.end)
				}
			}
			<-done
			_ = cmd.Wait()
			stdin.Close()
			r := await(t, record, func(r *peer.Record) bool { return len(r.Running()) == 0 })
			tt.check(t, outcome{&tt.host, cmd.ProcessState, stderr.String(), r})
			if t.Failed() {
				t.Logf("stderr: %.2000s\nnotes: %q", stderr, r.Notes)
			}
		})
	}
}

func TestCommand(t *testing.T) {
	s := peer.MustParse("hello", "-- steps --\nparam word hello\n< {\"type\":\"user\"}\n> {\"said\":\"$word\"}\n< eof\nexit 3\n").With("word", "it's \"me\"")
	record := filepath.Join(t.TempDir(), "record.jsonl")
	c, err := peer.Command(s, &peer.CommandOptions{Record: record})
	if err != nil {
		t.Fatal(err)
	}
	launcher, err := c.Install(t.TempDir(), "claude")
	if err != nil {
		t.Fatal(err)
	}
	for name, cmd := range map[string]*exec.Cmd{
		"environment": c.Command(t.Context(), "--model", "x", "--settings", `{"a":1}`),
		"launcher":    exec.CommandContext(t.Context(), launcher, "--model", "x", "--settings", `{"a":1}`),
	} {
		t.Run(name, func(t *testing.T) {
			os.Remove(record)
			if cmd.Env == nil {
				cmd.Env = os.Environ()
			}
			cmd.Env = append(cmd.Env, "GREETING=hi there")
			cmd.Stdin = strings.NewReader(`{"type":"user","n":1}` + "\n")
			out, err := cmd.Output()
			if cmd.ProcessState.ExitCode() != 3 || string(out) != `{"said":"it's \"me\""}`+"\n" {
				t.Errorf("%q, %v", out, err)
			}
			r, err := peer.ReadRecord(record)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Argv) != 1 || strings.Join(r.Argv[0], " ") != `--model x --settings {"a":1}` {
				t.Errorf("argv %q", r.Argv)
			}
			if r.Env["GREETING"] != "hi there" || r.Env["PARLEY_PEER"] != "" {
				t.Errorf("environment %v", r.Env)
			}
			if len(r.In) != 1 || string(r.In[0]) != `{"type":"user","n":1}` || len(r.Out) != 1 {
				t.Errorf("in %s, out %s", r.In, r.Out)
			}
			if p := r.PIDs(); len(p) != 1 || p[0] != cmd.Process.Pid {
				t.Errorf("pids %v, want %d", p, cmd.Process.Pid)
			}
		})
	}
	for _, flag := range []string{"-v", "--version"} {
		if out, err := c.Command(t.Context(), flag).Output(); err != nil || string(out) != peer.Version+"\n" {
			t.Errorf("%s: %q, %v", flag, out, err)
		}
	}
	// Not followed: the reason is on standard error.
	cmd := c.Command(t.Context())
	cmd.Stdin = strings.NewReader(`{"type":"other"}` + "\n")
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != peer.ExitMismatch || !strings.Contains(string(out), `hello:3: the frame is not the one expected`) {
		t.Errorf("%d: %s", cmd.ProcessState.ExitCode(), out)
	}
}

func TestLargeScript(t *testing.T) {
	// Random enough not to be compressed away, larger than one variable.
	var b strings.Builder
	b.WriteString("-- steps --\n")
	x := uint64(88172645463325252)
	for range 12000 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b.WriteString(`> {"n":"` + strconv.FormatUint(x, 36) + "\"}\n")
	}
	s := peer.MustParse("large", b.String())
	c, err := peer.Command(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Env) < 2 {
		t.Errorf("%d variables", len(c.Env))
	}
	out, err := c.Command(t.Context()).Output()
	if err != nil || bytes.Count(out, []byte("\n")) != s.Frames() {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

func TestLimit(t *testing.T) {
	c, err := peer.Command(peer.Fault("ignore-signals"), &peer.CommandOptions{Limit: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	cmd := c.Command(t.Context())
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != peer.ExitMismatch {
		t.Error(err)
	}
}

func TestDrive(t *testing.T) {
	cli := peer.MustParse("cli", `-- steps --
< {"type":"control_request","request_id":"$init","request":{"subtype":"initialize"}}
stderr a warning
> {"type":"control_response","response":{"subtype":"success","request_id":"$init"}}
< {"type":"user"}
> {"type":"result","result":"done"}
< eof
exit 4
`)
	tests := map[string]struct{ steps, want string }{
		"followed": {`argv ["--verbose"]
> {"type":"control_request","request_id":"r9","request":{"subtype":"initialize"}}
< {"type":"control_response","response":{"subtype":"success","request_id":"r9"}}
< stderr "a warn"
> {"type":"user","message":{"role":"user","content":"hi"}}
< {"type":"result","result":"$text"}
close
< exit 4`, ""},
		"wrong status": {"> {\"type\":\"control_request\",\"request_id\":\"r9\",\"request\":{\"subtype\":\"initialize\"}}\nclose\n< ...\n< exit 0", "it exited with 97, want 0"},
		"wrong frame":  {"> {\"type\":\"control_request\",\"request_id\":\"r9\",\"request\":{\"subtype\":\"initialize\"}}\n< {\"type\":\"result\"}", `.type: want "result", got "control_response"`},
		"signal":       {"signal TERM\n< exit -1", ""},
		"no stderr":    {"timeout 10ms\n< stderr \"never\"", "no such text on standard error within 10ms"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			record := filepath.Join(t.TempDir(), "record")
			c, err := peer.Command(cli, &peer.CommandOptions{Record: record})
			if err != nil {
				t.Fatal(err)
			}
			rep, err := peer.Drive(t.Context(), peer.MustParse("host", "-- steps --\n"+tt.steps+"\n"), c.Command(t.Context(), "-x"), nil)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if name == "followed" {
				r, err := peer.ReadRecord(record)
				if err != nil || strings.Join(r.Argv[0], " ") != "-x --verbose" || !strings.Contains(rep.Stderr, "a warning") {
					t.Errorf("%v, argv %q, stderr %q", err, r.Argv, rep.Stderr)
				}
			}
		})
	}
	if _, err := peer.Drive(t.Context(), cli, exec.Command(filepath.Join(t.TempDir(), "missing")), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing command: %v", err)
	}
	if _, err := peer.Drive(t.Context(), peer.Fault("grandchildren"), exec.Command("true"), nil); !errors.Is(err, peer.ErrNeedsProcess) {
		t.Errorf("a fault of a process: %v", err)
	}
}

func TestAgentAsProcess(t *testing.T) {
	c, err := peer.AgentCommand(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := peer.MustParse("host", `-- steps --
argv ["--resume","77777777-7777-4777-8777-777777777777","--model=fast"]
> {"type":"user","message":{"role":"user","content":"error no luck"}}
< {"type":"system","subtype":"init","session_id":"77777777-7777-4777-8777-777777777777","model":"fast"}
< {"type":"result","is_error":true,"errors":["no luck"]}
close
< exit 1
`)
	if _, err := peer.Drive(t.Context(), s, c.Command(t.Context()), nil); err != nil {
		t.Error(err)
	}
}

// TestTranscriptAsProcesses replays transcripts with the CLI's side as a process and
// the host's driving it.
func TestTranscriptAsProcesses(t *testing.T) {
	for _, name := range []string{"permission", "print", "fatal", "killed"} {
		t.Run(name, func(t *testing.T) {
			var scripts [2]*peer.Script
			for side := range scripts {
				f, err := os.Open(filepath.Join("testdata", "transcripts", name+".jsonl"))
				if err != nil {
					t.Fatal(err)
				}
				scripts[side], err = peer.FromTranscript(f, &peer.TranscriptOptions{Name: name, Side: peer.Side(side), Timing: true})
				f.Close()
				if err != nil {
					t.Fatal(err)
				}
			}
			c, err := peer.Command(scripts[peer.CLI], nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := peer.Drive(t.Context(), scripts[peer.Host], c.Command(t.Context()), nil); err != nil {
				t.Error(err)
			}
		})
	}
}
