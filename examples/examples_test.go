// Package examples_test runs every example as its readers do: the unchanged program,
// an agent as a process, files in a directory. Only the model plays a script.
package examples_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
)

var update = flag.Bool("update", false, "rewrite the output.txt of the examples")

// An example is a directory here with a model.script, which the model plays, an
// output.txt, which the program prints, optionally an input.txt, which is typed, and
// the files for the agent.
var programs = []struct {
	name string
	runs int // in one home and directory
}{
	{"hello", 1}, {"conversation", 1}, {"streaming", 1}, {"tools", 1}, {"permissions", 1}, {"hooks", 1},
	{"structured", 1}, {"subagents", 1}, {"sessions", 2}, {"many", 1},
}

// build builds the command and all examples at once.
func build(t *testing.T) (bin string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the examples use a POSIX shell")
	}
	bin = t.TempDir()
	args := []string{"build", "-ldflags=-s -w", "-o", bin + "/", "../cmd/parley", "./officialcli", "./toolserver"}
	for _, p := range programs {
		args = append(args, "./"+p.name)
	}
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // compiled by make check already
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %q: %v\n%s", args, err, out)
	}
	return bin
}

// play runs a program, as often as it requires, in a copy of an example's directory,
// and returns its output.
func play(t *testing.T, name string, runs int, env []string, command ...string) string {
	t.Helper()
	input, err := os.ReadFile(filepath.Join(name, "input.txt"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return playInput(t, name, runs, input, env, command...)
}

// playInput is like play, with typed input.
func playInput(t *testing.T, name string, runs int, input []byte, env []string, command ...string) string {
	t.Helper()
	script, err := parleytest.ReadScript(filepath.Join(name, "model.script"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "work")
	if err := os.CopyFS(dir, without{os.DirFS(name)}); err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	// People run an example again, in the same home: the script holds then, too.
	var first bytes.Buffer
	for _, out := range []io.Writer{&first, io.Discard} {
		api := parleytest.NewAPI(t, script, nil)
		for range runs {
			cmd := exec.CommandContext(testwait.Context(t), command[0], command[1:]...)
			cmd.Dir = dir
			cmd.Env = append([]string{
				"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + t.TempDir(), "GORACE=atexit_sleep_ms=0",
				"ANTHROPIC_BASE_URL=" + api.URL, "ANTHROPIC_API_KEY=none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
			}, env...)
			cmd.Stdin = bytes.NewReader(input)
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v\n%s%s", err, &stdout, &stderr)
			}
			io.Copy(out, &stdout)
		}
	}
	// The example did not change its own files.
	if got, want := tree(t, os.DirFS(dir)), tree(t, without{os.DirFS(name)}); got != want {
		t.Errorf("the example changed its directory to\n%sfrom\n%s", got, want)
	}
	return first.String()
}

// tree lists files with their content.
func tree(t *testing.T, dir fs.FS) string {
	t.Helper()
	var b strings.Builder
	if err := fs.WalkDir(dir, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(dir, path)
		fmt.Fprintf(&b, "%s: %q\n", path, data)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// without is a file system without the program itself.
type without struct{ fs.FS }

func (w without) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := fs.ReadDir(w.FS, name)
	var some []fs.DirEntry
	for _, e := range all {
		if name != "." || !strings.HasSuffix(e.Name(), ".go") && e.Name() != "model.script" && e.Name() != "output.txt" {
			some = append(some, e)
		}
	}
	return some, err
}

func TestExamples(t *testing.T) {
	bin := build(t)
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			got := play(t, p.name, p.runs, []string{"CLAUDE_BIN=" + filepath.Join(bin, "parley")}, filepath.Join(bin, p.name))
			golden := filepath.Join(p.name, "output.txt")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil || got != string(want) {
				t.Errorf("it prints\n%s\nand should (%v)\n%s", got, err, want)
			}
		})
	}
	// The example of permissions works whatever a person answers, and without one.
	for input, want := range map[string]string{
		"y\ny\n":      "The notes are in the directory old.\ndenied: Bash {\"command\": \"rm notes.txt\"}\n",
		"a\nalways\n": "The notes are in the directory old.\n",
		"n\n":         "the notes stay where they are.\n",
		"n\ny\n":      "The notes are in the directory old.\n",
		"y\nn\n":      "the notes stay where they are.\n",
		"":            "the notes stay where they are.\n",
	} {
		t.Run(fmt.Sprintf("permissions %q", input), func(t *testing.T) {
			got := playInput(t, "permissions", 1, []byte(input), []string{"CLAUDE_BIN=" + filepath.Join(bin, "parley")}, filepath.Join(bin, "permissions"))
			if !strings.Contains(got, want) {
				t.Errorf("it prints\n%s\nwhich lacks\n%s", got, want)
			}
		})
	}
	t.Run("toolserver by an agent", func(t *testing.T) {
		config := fmt.Sprintf(`{"mcpServers":{"text":{"command":%q}}}`, filepath.Join(bin, "toolserver"))
		got := play(t, "toolserver", 1, nil, filepath.Join(bin, "parley"), "-p", "How many words are in: To be or not to be?", "--allowedTools", "mcp__text__count", "--mcp-config", config)
		if want, err := os.ReadFile(filepath.Join("toolserver", "output.txt")); err != nil || got != string(want) {
			t.Errorf("it prints\n%s\nand should (%v)\n%s", got, err, want)
		}
	})
	t.Run("toolserver", func(t *testing.T) {
		config := fmt.Sprintf(`{"mcpServers":{"text":{"command":%q}}}`, filepath.Join(bin, "toolserver"))
		cmd := exec.Command(filepath.Join(bin, "parley"), "doctor", "--", "--mcp-config", config)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "ANTHROPIC_API_KEY=none"}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "text is connected, with ") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// TestOfficialPeers runs the examples that need the official CLI or SDK.
func TestOfficialPeers(t *testing.T) {
	dir := peers(t)
	bin := build(t)
	t.Run("officialcli", func(t *testing.T) {
		found, err := filepath.Glob(filepath.Join(dir, "node_modules", "@anthropic-ai", "claude-agent-sdk-"+runtime.GOOS+"-*", "claude"))
		if err != nil || len(found) == 0 {
			t.Skipf("the official CLI is not installed: %v", err)
		}
		got := play(t, "officialcli", 1, []string{"IS_SANDBOX=1"}, filepath.Join(bin, "officialcli"), found[0])
		if !strings.HasPrefix(got, "claude ") || !strings.HasSuffix(got, "\nHello.\n") {
			t.Errorf("%q", got)
		}
	})
	t.Run("typescript", func(t *testing.T) {
		// A module is found from where the file is.
		file := filepath.Join(t.TempDir(), "agent.mjs")
		data, err := os.ReadFile(filepath.Join("typescript", "agent.mjs"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(dir, "node_modules"), filepath.Join(filepath.Dir(file), "node_modules")); err != nil {
			t.Fatal(err)
		}
		got := play(t, "typescript", 1, []string{"CLAUDE_BIN=" + filepath.Join(bin, "parley")}, "node", file)
		if got != "tools: true\nBuy milk and bread.\n" {
			t.Errorf("%q", got)
		}
	})
}

// peers returns the directory of the official peers. They run with loopback only: make
// interop runs this test that way.
func peers(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("PARLEY_PEERS")
	if dir == "" || os.Getenv("PARLEY_OFFLINE") != "1" {
		t.Skip("make interop runs this with the official peers and loopback only")
	}
	ifaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range ifaces {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			t.Skipf("the official peers run with loopback only, and %s is up", i.Name)
		}
	}
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip(err)
	}
	return dir
}

// Every example is run by a test and is in the README's table.
func TestEveryExample(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	tested := map[string]bool{"toolserver": true, "officialcli": true, "typescript": true}
	for _, p := range programs {
		tested[p.name] = true
	}
	all, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if !e.IsDir() {
			continue
		}
		if own, err := filepath.Glob(filepath.Join(e.Name(), "*_test.go")); !tested[e.Name()] && (err != nil || len(own) == 0) {
			t.Errorf("examples/%s is run by no test", e.Name())
		}
		if _, err := os.Stat(filepath.Join(e.Name(), "model.script")); err != nil && e.Name() != "testing" { // it is a test itself
			t.Errorf("examples/%s has no script: %v", e.Name(), err)
		}
		if !bytes.Contains(readme, []byte("](examples/"+e.Name())) {
			t.Errorf("README.md has no link to examples/%s", e.Name())
		}
	}
}
