//go:build unix

package parley_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest/peer"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
	"go.uber.org/goleak"
)

// TestFaults plays every known fault of a peer against Query or a Client. Nothing may
// be left after each: no goroutine, no process, no file.
func TestFaults(t *testing.T) {
	type env struct {
		opts *parley.Options
		ctx  context.Context
	}
	tests := map[string]struct {
		params map[string]string
		check  func(t *testing.T, e env)
	}{
		"exit-before-initialize": {check: func(t *testing.T, e env) {
			o := ask(e.ctx, e.opts, 0)
			wantExit(t, o, "Invalid API key")
			if _, err := parley.Connect(e.ctx, e.opts); err == nil || !strings.Contains(err.Error(), "Invalid API key") {
				t.Errorf("Connect: %v", err)
			}
		}},
		"false": {check: func(t *testing.T, e env) {
			e.opts.Path = "/bin/false"
			if exit := wantExit(t, ask(e.ctx, e.opts, 0), "status 1"); exit.Code != 1 {
				t.Errorf("exit code %d", exit.Code)
			}
		}},
		"die-mid-line": {check: func(t *testing.T, e env) {
			o := ask(e.ctx, e.opts, 0)
			exit := wantExit(t, o, "without a result")
			if !errors.Is(o.err, parley.ErrNoResult) || len(exit.Frames) == 0 {
				t.Errorf("%v, frames %q", o.err, exit.Frames)
			}
			if bad, ok := o.messages[len(o.messages)-1].(*wire.BadLine); !ok || len(bad.Text) == 0 {
				t.Errorf("the half line is a %T", o.messages[len(o.messages)-1])
			}
		}},
		"long-line": {check: func(t *testing.T, e env) {
			o := ask(e.ctx, e.opts, 0)
			wantResult(t, o, "")
			long := 0
			for _, m := range o.messages {
				if a, ok := m.(*wire.Assistant); ok {
					long = max(long, len(a.Message.Content.String()))
				}
			}
			if long < 19<<20 {
				t.Errorf("the longest message has %d bytes", long)
			}
		}},
		"stderr-flood": {check: func(t *testing.T, e env) {
			var bytes atomic.Int64
			e.opts.Stderr = func(line string) { bytes.Add(int64(len(line))) }
			wantResult(t, ask(e.ctx, e.opts, 0), "")
			if bytes.Load() < 4<<20 {
				t.Errorf("the callback got %d bytes", bytes.Load())
			}
		}},
		"burst": {check: func(t *testing.T, e env) {
			e.opts.MaxBuffered = 100 << 10 // most of it goes through the file
			o := ask(e.ctx, e.opts, 10*time.Millisecond)
			wantResult(t, o, "")
			if n := count[*wire.Assistant](o); n != 3000 {
				t.Errorf("%d of 3000 messages came", n)
			}
		}},
		"permission-after": {check: func(t *testing.T, e env) {
			asked := make(chan struct{})
			e.opts.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
				close(asked)
				return parley.Allow(), nil
			}
			read := 0
			for m, err := range parley.Query(e.ctx, "do it", e.opts) {
				if err != nil {
					t.Fatal(err)
				}
				if read++; read == 1 {
					<-asked // when only the first message has been read
				}
				if r, ok := m.(*wire.Result); ok && !strings.Contains(r.Result, "allow") {
					t.Errorf("result %q", r.Result)
				}
			}
		}},
		"ask-inside-callback": {check: func(t *testing.T, e env) {
			ready := make(chan *parley.Client, 1)
			e.opts.CanUseTool = func(ctx context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
				c := <-ready
				if _, err := c.MCPStatus(ctx); err != nil {
					return nil, err
				}
				return parley.Allow(), nil
			}
			c, err := parley.Connect(e.ctx, e.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ready <- c
			var last *wire.Result
			for m, err := range c.Turn(e.ctx, "do it") {
				if err != nil {
					t.Fatal(err)
				}
				last, _ = m.(*wire.Result)
			}
			if last == nil || !strings.Contains(last.Result, "mcp_status") {
				t.Errorf("result %+v", last)
			}
		}},
		"cancel-request": {check: func(t *testing.T, e env) {
			ended := make(chan error, 1)
			e.opts.CanUseTool = func(ctx context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
				<-ctx.Done()
				ended <- context.Cause(ctx)
				return parley.Allow(), nil
			}
			wantResult(t, ask(e.ctx, e.opts, 0), "")
			if err := <-ended; !strings.Contains(err.Error(), "withdrew") {
				t.Errorf("the callback's context ended with %v", err)
			}
		}},
		"unknown-things": {check: func(t *testing.T, e env) {
			o := ask(e.ctx, e.opts, 0)
			wantResult(t, o, "")
			if count[*wire.Unknown](o) == 0 || count[*wire.BadLine](o) == 0 {
				t.Errorf("%d unknown messages, %d bad lines", count[*wire.Unknown](o), count[*wire.BadLine](o))
			}
		}},
		"unknown-control-request": {check: func(t *testing.T, e env) { wantResult(t, ask(e.ctx, e.opts, 0), "") }},
		"ignore-eof": {check: func(t *testing.T, e env) {
			o := ask(e.ctx, e.opts, 0)
			wantResult(t, o, "")
		}},
		"ignore-signals": {check: func(t *testing.T, e env) { wantResult(t, ask(e.ctx, e.opts, 0), "") }},
		"never-initialize": {check: func(t *testing.T, e env) {
			e.opts.InitTimeout = 300 * time.Millisecond
			o := ask(e.ctx, e.opts, 0)
			var timeout *parley.TimeoutError
			if !errors.As(o.err, &timeout) || timeout.What != "initialize" {
				t.Errorf("error %v", o.err)
			}
			if _, err := parley.Connect(e.ctx, e.opts); !errors.As(err, &timeout) {
				t.Errorf("Connect: %v", err)
			}
			e.opts.InitTimeout = time.Hour
			ctx, cancel := context.WithTimeout(e.ctx, 50*time.Millisecond)
			defer cancel()
			if _, err := parley.Connect(ctx, e.opts); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Connect with a deadline: %v", err)
			}
		}},
		"stop-reading": {check: func(t *testing.T, e env) {
			e.opts.WriteTimeout = 300 * time.Millisecond
			big := strings.Repeat("x", 1<<20)
			c, err := parley.Connect(e.ctx, e.opts)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var last error
			for _, err := range c.Turn(e.ctx, big) {
				last = err
			}
			var timeout *parley.TimeoutError
			if !errors.As(last, &timeout) {
				t.Errorf("error %v", last)
			}
		}},
		"close-stdout": {check: func(t *testing.T, e env) {
			o := ask(e.ctx, e.opts, 0)
			wantExit(t, o, "without a result")
		}},
		"close-stdin":          {check: func(t *testing.T, e env) { wantResult(t, ask(e.ctx, e.opts, 0), "") }},
		"grandchildren":        {check: func(t *testing.T, e env) { wantResult(t, ask(e.ctx, e.opts, 0), "") }},
		"grandchildren-setsid": {check: func(t *testing.T, e env) { wantResult(t, ask(e.ctx, e.opts, 0), "") }},
		"answer-twice":         {check: func(t *testing.T, e env) { wantResult(t, ask(e.ctx, e.opts, 0), "") }},
		"two-results": {check: func(t *testing.T, e env) {
			o := ask(e.ctx, e.opts, 0)
			wantResult(t, o, "")
			if n := count[*wire.Result](o); n != 2 {
				t.Errorf("%d results", n)
			}
		}},
		"result-then-hang": {check: func(t *testing.T, e env) {
			o := ask(e.ctx, e.opts, 0)
			wantResult(t, o, "")
		}},
		"die-after-frame": {check: func(t *testing.T, e env) {
			e.opts.CanUseTool = allow
			frames := peer.Fault("die-after-frame").Frames()
			for n := range frames {
				cmd := command(t, peer.Fault("die-after-frame").With("n", strconv.Itoa(n)))
				e.opts.Path, e.opts.Env = cmd.path, cmd.env
				o := ask(e.ctx, e.opts, 0)
				if n == frames-1 { // the last frame is the result
					continue
				}
				var exit *parley.ExitError
				if !errors.As(o.err, &exit) || exit.Signal == "" {
					t.Errorf("killed after %d of %d frames: error %v", n, frames, o.err)
				}
			}
		}},
	}
	for _, fault := range peer.Faults() {
		if _, ok := tests[fault.Name]; !ok {
			t.Errorf("no row for the fault %s", fault.Name)
		}
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fault, ok := peer.LookupFault(name)
			if !ok {
				t.Fatal("there is no such fault")
			}
			left := residue(t)
			cmd := command(t, fault)
			tt.check(t, env{
				ctx: testwait.Context(t),
				opts: &parley.Options{
					Path:         cmd.path,
					Env:          cmd.env,
					CloseTimeout: 300 * time.Millisecond,
					CanUseTool:   allow,
				},
			})
			left(cmd)
		})
	}
}

// A fakeCLI is a command that plays a script, for options.
type fakeCLI struct {
	path   string
	env    map[string]string
	record string
}

func command(t *testing.T, s *peer.Script) fakeCLI {
	t.Helper()
	record := filepath.Join(t.TempDir(), "record.jsonl")
	cmd, err := peer.Command(s, &peer.CommandOptions{Record: record})
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{}
	for _, kv := range cmd.Env {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	return fakeCLI{path: cmd.Path, env: env, record: record}
}

// residue returns a function that checks for leaks of everything started since:
// goroutines, file descriptors, processes of the command.
func residue(t *testing.T) func(cmd fakeCLI) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	files := openFiles(t)
	return func(cmd fakeCLI) {
		t.Helper()
		goleak.VerifyNone(t, before)
		if runtime.GOOS == "linux" {
			testwait.Until(t, "files are left open", func() bool { return len(openFiles(t)) <= len(files) })
		}
		rec, err := peer.ReadRecord(cmd.record)
		if err != nil {
			return // it never ran
		}
		for _, pid := range rec.PIDs() {
			testwait.Until(t, fmt.Sprintf("the end of process %d", pid), func() bool {
				state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				return syscall.Kill(pid, 0) != nil || bytes.Contains(state, []byte(") Z ")) // dead, and not ours to reap
			})
		}
	}
}

func openFiles(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		switch {
		case err != nil, strings.Contains(target, "/proc/"):
		case strings.HasPrefix(target, "anon_inode:[event"): // the runtime's own
		default:
			names = append(names, e.Name()+" → "+target)
		}
	}
	return names
}

// TestNoAgent checks the errors of peers that never start.
func TestNoAgent(t *testing.T) {
	ctx := t.Context()
	_, err := parley.Run(ctx, "hi", &parley.Options{Path: filepath.Join(t.TempDir(), "nothing")})
	var missing *transport.NotFoundError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("a path that does not exist: %v", err)
	}
	_, err = parley.Run(ctx, "hi", &parley.Options{CleanEnv: true, Env: map[string]string{"PATH": "", "HOME": t.TempDir()}})
	if err == nil || !strings.Contains(err.Error(), "CLAUDE_BIN") {
		t.Errorf("no agent at all: %v", err)
	}
	_, err = parley.Run(ctx, "hi", &parley.Options{Path: "/bin/false", Cwd: filepath.Join(t.TempDir(), "gone")})
	var start *transport.StartError
	if !errors.As(err, &start) || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a working directory that does not exist: %v", err)
	}
}
