package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/parley-go/parley/terminal"
	"github.com/parley-go/parley/wire"
)

// TestDemoCheck checks that the demo detects what did not happen.
func TestDemoCheck(t *testing.T) {
	good := &wire.Result{Subtype: "success", TerminalReason: "completed"}
	fix := func(t *testing.T, dir string) {
		data, err := os.ReadFile(filepath.Join(dir, "split.sh"))
		if err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(dir, "split.sh"), strings.Replace(string(data), "echo $(($1 / $2))", "echo $((($1 + $2 - 1) / $2))", 1))
	}
	log := func(text string) func(*testing.T, string) {
		return func(t *testing.T, dir string) { put(t, filepath.Join(dir, "test.log"), text) }
	}
	both := "1 of 3 tests pass\n3 of 3 tests pass\n"
	for _, c := range []struct {
		name   string
		result *wire.Result
		asked  []string
		do     []func(*testing.T, string)
		want   string
	}{
		{"all is well", good, []string{"Edit"}, []func(*testing.T, string){fix, log(both)}, ""},
		{"no result", nil, []string{"Edit"}, []func(*testing.T, string){fix, log(both)}, "no result"},
		{"failed", &wire.Result{Subtype: "error_max_turns", IsError: true}, []string{"Edit"}, []func(*testing.T, string){fix, log(both)}, "the conversation ended as"},
		{"not asked", good, nil, []func(*testing.T, string){fix, log(both)}, "permission was asked"},
		{"not edited", good, []string{"Edit"}, []func(*testing.T, string){log(both)}, "split.sh is not"},
		{"not tested", good, []string{"Edit"}, []func(*testing.T, string){fix}, "the tests did not run"},
		{"tested once", good, []string{"Edit"}, []func(*testing.T, string){fix, log("3 of 3 tests pass\n")}, "the tests said"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &demonstration{view: terminal.ViewerConfig{Output: io.Discard}, asked: c.asked}
			if err := d.prepare(t.TempDir()); err != nil {
				t.Fatal(err)
			}
			for _, f := range c.do {
				f(t, d.project)
			}
			err := d.check(c.result)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestDemoAgent runs the demo with agents that do not do their work.
func TestDemoAgent(t *testing.T) {
	for _, name := range []string{"true", "false"} {
		agent, err := exec.LookPath(name)
		if err != nil {
			t.Skip(err)
		}
		p := &process{stdout: io.Discard, stderr: io.Discard, env: os.Environ()}
		d := &demonstration{p: p, view: viewerConfig(p, ""), agent: agent}
		if err := d.run(context.Background()); err == nil {
			t.Errorf("%s is taken for an agent", name)
		}
		if _, err := os.Stat(d.project); err == nil {
			t.Errorf("%s is left", d.project)
		}
	}
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestDemoNeedsAShell checks that the demo reports a machine without a shell, such as the container
// image, before it starts.
func TestDemoNeedsAShell(t *testing.T) {
	dir := t.TempDir()
	if err := commandsRun(dir); err == nil {
		t.Error("commands run without a shell")
	}
	if err := os.WriteFile(filepath.Join(dir, "sh"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := commandsRun(dir); err != nil && runtime.GOOS != "windows" {
		t.Error(err)
	}
}
