package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(crashEnv) != "" {
		crashAgent()
		return
	}
	switch role := os.Getenv("PARLEY_AGENT_TEST_SERVER"); role {
	case "":
	case "1":
		slowServer()
		return
	default:
		hostileServer(role)
		return
	}
	goleak.VerifyTestMain(m)
}

// inProcess returns options for an agent in this process that plays a script.
func inProcess(t *testing.T, s *parleytest.Scenario) (*parley.Options, *parleytest.Model, string) {
	t.Helper()
	dir := t.TempDir()
	m := s.Model()
	m.Strict = true
	return &parley.Options{
		Cwd:       dir,
		Dialer:    agent.InProcess(agent.Config{Model: m, Store: &session.Memory{}}),
		OnWarning: func(err error) { t.Log("warning:", err) },
		Stderr:    func(line string) { t.Log("stderr:", line) },
	}, m, dir
}

// kinds lists the kinds of messages.
func kinds(messages []wire.Message) string {
	var names []string
	for _, m := range messages {
		typ, sub := wire.TypeOf(m)
		if sub != "" && typ != "result" {
			typ += "/" + sub
		}
		names = append(names, typ)
	}
	return strings.Join(names, " ")
}

func collect(t *testing.T, opts *parley.Options, prompt string) ([]wire.Message, *wire.Result, error) {
	t.Helper()
	var all []wire.Message
	var last *wire.Result
	for m, err := range parley.Query(t.Context(), prompt, opts) {
		if err != nil {
			return all, last, err
		}
		all = append(all, m)
		if r, ok := m.(*wire.Result); ok {
			last = r
		}
	}
	return all, last, nil
}

func TestOneTurn(t *testing.T) {
	opts, m, _ := inProcess(t, parleytest.Script(parleytest.Say("hello there")))
	all, r, err := collect(t, opts, "hi")
	if err != nil {
		t.Fatal(err)
	}
	if got := kinds(all); got != "system/init assistant result" {
		t.Errorf("messages: %s", got)
	}
	if r.Result != "hello there" || r.NumTurns != 1 || r.Outcome() != wire.OutcomeCompleted {
		t.Errorf("result %+v", r)
	}
	if err := m.Err(); err != nil {
		t.Error(err)
	}
}

func TestToolRound(t *testing.T) {
	opts, m, dir := inProcess(t, parleytest.Script(
		parleytest.Say("Let me look.").Call("Read", map[string]string{"file_path": "FILE"}),
		parleytest.Expect(parleytest.ToolResult("two lines")).Say("It says two lines."),
	))
	_ = m
	file := filepath.Join(dir, "a.txt")
	if err := os.WriteFile(file, []byte("two lines\nin a file\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	opts2, _, _ := inProcess(t, parleytest.Script(
		parleytest.Say("Let me look.").Call("Read", map[string]string{"file_path": file}),
		parleytest.Expect(parleytest.ToolResult("two lines")).Say("It says two lines."),
	))
	opts.Dialer = opts2.Dialer
	all, r, err := collect(t, opts, "what does a.txt say?")
	if err != nil {
		t.Fatal(err)
	}
	if got := kinds(all); got != "system/init assistant assistant user assistant result" {
		t.Errorf("messages: %s", got)
	}
	if r.NumTurns != 2 {
		t.Errorf("num_turns is %d", r.NumTurns)
	}
}

func TestPermission(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(*wire.CanUseTool) *wire.PermissionResult
		wrote  bool
	}{
		{"allow", func(*wire.CanUseTool) *wire.PermissionResult { return parley.Allow() }, true},
		{"deny", func(*wire.CanUseTool) *wire.PermissionResult { return parley.Deny("not today") }, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "new.txt")
			opts, _, _ := inProcess(t, parleytest.Script(
				parleytest.Call("Write", map[string]string{"file_path": file, "content": "hello\n"}),
				parleytest.Say("Done."),
			))
			opts.Cwd = dir
			asked := 0
			opts.CanUseTool = func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
				asked++
				return tt.answer(req), nil
			}
			_, r, err := collect(t, opts, "write it")
			if err != nil {
				t.Fatal(err)
			}
			_, statErr := os.Stat(file)
			if wrote := statErr == nil; wrote != tt.wrote || asked != 1 {
				t.Errorf("wrote %v, asked %d times", wrote, asked)
			}
			if denied := len(r.PermissionDenials) == 1; denied == tt.wrote {
				t.Errorf("denials: %v", r.PermissionDenials)
			}
		})
	}
}

func TestAPIErrorEndsInResult(t *testing.T) {
	opts, _, _ := inProcess(t, parleytest.Script(parleytest.Fail(400)))
	_, r, err := collect(t, opts, "hi")
	var failed *parley.ResultError
	if !errors.As(err, &failed) || failed.Outcome() != wire.OutcomeModelError || r.APIErrorStatus != 400 {
		t.Errorf("result %+v, error %v", r, err)
	}
}
