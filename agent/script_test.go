package agent_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/builtin"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/parleytest/peer"
	"github.com/parley-go/parley/session"
	"golang.org/x/tools/txtar"
)

// streaming are the flags that every SDK passes.
var streaming = []string{"--output-format", "stream-json", "--verbose", "--input-format", "stream-json"}

// TestScripts plays the host's side of testdata/*.txtar, line by line, in virtual
// time. Beside the steps an archive may hold
//
//	model    what the model answers, a script of package parleytest
//	stderr   text that standard error must hold, a line each
//	exit     the exit status; 0 if there is none
//	env      the environment
//	real time  anything: the script is played in real time
//	dir/…    files of the working directory, which is written $DIR
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(data), "\n-- real time --\n") {
				// Virtual time stands still while a process runs.
				playScript(t, file, string(data), dir)
				return
			}
			synctest.Test(t, func(t *testing.T) { playScript(t, file, string(data), dir) })
		})
	}
}

func playScript(t *testing.T, name, text, dir string) {
	text = strings.ReplaceAll(text, "$DIR", dir)
	script, err := peer.Parse(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	cfg := agent.Config{Cwd: dir, Store: &session.Memory{}}
	wait := &funcTool{"Wait", true, func(ctx context.Context, _ *tool.Call) (*tool.Result, error) {
		time.Sleep(70 * time.Second)
		return tool.Text("waited", nil), nil
	}}
	cfg.Tools = append(builtin.All(nil), wait)
	turns, wantStderr, exit := "", "", 0
	for _, f := range txtar.Parse([]byte(text)).Files {
		body := string(f.Data)
		switch {
		case f.Name == "model":
			turns = body
		case f.Name == "stderr":
			wantStderr = body
		case f.Name == "exit":
			if exit, err = strconv.Atoi(strings.TrimSpace(body)); err != nil {
				t.Fatal(err)
			}
		case f.Name == "env":
			cfg.Environ = strings.Fields(body)
		case strings.HasPrefix(f.Name, "dir/"):
			path := filepath.Join(dir, strings.TrimPrefix(f.Name, "dir/"))
			if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, f.Data, 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	scenario, err := parleytest.ParseScript(name, []byte(turns))
	if err != nil {
		t.Fatal(err)
	}
	model := scenario.Model()
	model.Strict = true
	cfg.Model = model

	a := start(t, cfg, append(slices.Clone(streaming), script.Argv...))
	report, err := peer.Play(t.Context(), script, a.stdout, a.stdin, &peer.Options{
		Wait: func(context.Context) (int, error) { return a.wait(), nil },
	})
	if err != nil {
		t.Error(err)
	}
	checkFrames(t, report.Received)
	if code := a.wait(); code != exit {
		t.Errorf("exit status %d, want %d", code, exit)
	}
	for want := range strings.Lines(wantStderr) {
		if !strings.Contains(a.stderr.String(), strings.TrimSpace(want)) {
			t.Errorf("standard error is %q and lacks %q", a.stderr.String(), want)
		}
	}
	if wantStderr == "" && a.stderr.String() != "" {
		t.Errorf("standard error: %s", a.stderr.String())
	}
	if err := model.Done(); err != nil {
		t.Error(err)
	}
}

// A running is a running agent, with the host's ends of its pipes.
type running struct {
	stdin  *io.PipeWriter
	stdout *io.PipeReader
	stderr *safeBuffer
	cancel context.CancelCauseFunc
	wait   func() int
}

// start runs an agent over pipes.
func start(t *testing.T, cfg agent.Config, args []string) *running {
	t.Helper()
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	ctx, cancel := context.WithCancelCause(context.Background())
	a := &running{stdin: stdin, stdout: stdout, stderr: &safeBuffer{}, cancel: cancel}
	code, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		code = agent.Run(ctx, cfg, args, in, out, a.stderr)
		in.Close()
		out.Close()
	}()
	a.wait = func() int { <-done; return code }
	t.Cleanup(func() { cancel(nil); stdin.Close(); stdout.Close(); <-done })
	return a
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
