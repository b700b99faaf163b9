package agent_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
)

// TestDialersAgree checks that an agent in process accepts the working directory and
// the environment of the options like one in a separate process, or rejects them.
func TestDialersAgree(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string]*parley.Options{
		"no such directory": {Cwd: filepath.Join(t.TempDir(), "none")},
		"a file":            {Cwd: file},
	} {
		for _, inProcess := range []bool{false, true} {
			o := *opts
			o.Path, o.Dialer = os.Args[0], &transport.Process{}
			if inProcess {
				o.Path, o.Dialer = "", agent.InProcess(agent.Config{Model: parleytest.Script().Model(), Store: &session.Memory{}})
			}
			_, err := parley.Run(t.Context(), "hi", &o)
			var start *transport.StartError
			if !errors.As(err, &start) || !strings.Contains(err.Error(), "working directory") || !strings.Contains(err.Error(), o.Cwd) {
				t.Errorf("%s, in process %v: %v", name, inProcess, err)
			}
			if name == "no such directory" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s, in process %v: %v does not match fs.ErrNotExist", name, inProcess, err)
			}
		}
	}
	for option, o := range map[string]parley.Options{"Path": {Path: "/bin/claude"}, "CleanEnv": {CleanEnv: true}} {
		o.Dialer = agent.InProcess(agent.Config{Model: parleytest.Script().Model(), Store: &session.Memory{}})
		var bad *parley.OptionError
		if _, err := parley.Run(t.Context(), "hi", &o); !errors.As(err, &bad) || bad.Option != option {
			t.Errorf("%s: %v, want an *OptionError", option, err)
		}
	}
}

// TestOptionsEnvInProcess checks that the variables of the options reach the commands
// of an agent in process, and override those of its config.
func TestOptionsEnvInProcess(t *testing.T) {
	opts := &parley.Options{
		Env:          map[string]string{"GREETING": "hello", "OTHER": "x"},
		AllowedTools: []string{"Bash"},
		Dialer: agent.InProcess(agent.Config{Cwd: t.TempDir(), Environ: []string{"PATH=" + os.Getenv("PATH"), "GREETING=no"}, Store: &session.Memory{}, Model: parleytest.Script(
			parleytest.Call("Bash", map[string]any{"command": "echo $GREETING from $OTHER"}),
			parleytest.Expect(parleytest.ToolResult("hello from x")).Say("done"),
		).Model()}),
	}
	if r, err := parley.Run(t.Context(), "hi", opts); err != nil || r.Result != "done" {
		t.Errorf("got %+v, %v", r, err)
	}
}

// TestNoWorkingDirectory checks that without one, an agent in process works in the
// directory of this process, like any other.
func TestNoWorkingDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	opts := &parley.Options{Dialer: agent.InProcess(agent.Config{Store: &session.Memory{}, Model: parleytest.Script(parleytest.Say("done")).Model()})}
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, err := range c.Turn(t.Context(), "hi") {
		if err != nil {
			t.Error(err)
		}
	}
	if got := c.LastInit().Cwd; got != here {
		t.Errorf("it works in %q, want %q", got, here)
	}
}
