package interop

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley/internal/testwait"
	pt "github.com/parley-go/parley/parleytest"
)

// acpClientRun runs a client of the Agent Client Protocol with parley acp as its agent.
func acpClientRun(t *testing.T, command ...string) (stdout string, dir string) {
	t.Helper()
	dir = t.TempDir()
	api := pt.NewAPI(t, pt.Script(
		pt.Say("I write it.").Call("Write", map[string]string{"file_path": filepath.Join(dir, "new.txt"), "content": "hello\n"}),
		pt.Say("Done."),
		pt.Say("It is", " long").Stall().After(3),
		pt.Say("More.").Always(),
	).When("title", pt.Tools("Write").Not(), pt.Say("A title.").Always()), // the adapter asks for it at any time
		&pt.APIOptions{Partial: true})
	cmd := exec.CommandContext(testwait.Context(t), command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+filepath.Join(dir, "home"), "ANTHROPIC_BASE_URL="+api.URL, "ANTHROPIC_API_KEY="+fakeKey)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, stderr.String())
	}
	if data, err := os.ReadFile(filepath.Join(dir, "new.txt")); string(data) != "hello\n" {
		t.Errorf("new.txt holds %q, %v", data, err)
	}
	return string(out), dir
}

// acpSeen is the output of the drivers.
type acpSeen struct {
	Kinds                         map[string]int
	Text, Replayed, First, Second string
	Permissions, Version          int
	Listed                        bool
}

func (s *acpSeen) check(t *testing.T, out string) {
	t.Helper()
	if err := json.Unmarshal([]byte(out), s); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if s.Version != 1 || s.First != "end_turn" || s.Permissions != 1 || !s.Listed || s.Kinds["tool_call"] == 0 || s.Kinds["available_commands_update"] == 0 {
		t.Errorf("the client saw %s", out)
	}
	if !strings.Contains(s.Text, "I write it.Done.") || !strings.Contains(s.Replayed, "Write it.I write it.Done.") {
		t.Errorf("texts %q, replayed %q", s.Text, s.Replayed)
	}
}

// TestACPTypeScriptSDK drives parley acp with the official TypeScript SDK of the Agent
// Client Protocol, and parley serve over both of its network transports.
func TestACPTypeScriptSDK(t *testing.T) {
	t.Parallel()
	peers(t)
	here, _ := os.Getwd()
	for transport, command := range map[string][]string{
		"stdio": {"acp"},
		"http":  {"serve", "--addr", "127.0.0.1:0"},
		"ws":    {"serve", "--addr", "127.0.0.1:0"},
	} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			out, _ := acpClientRun(t, append([]string{"node", "--experimental-websocket", filepath.Join(here, "ts", "acp.mjs"), transport, parleyCLI(t)}, command...)...)
			var s acpSeen
			if s.check(t, out); s.Second != "cancelled" {
				t.Errorf("the prompt that was cancelled ended as %q", s.Second)
			}
		})
	}
}

// TestACPPythonSDK drives parley acp with the Python SDK of the Agent Client Protocol.
func TestACPPythonSDK(t *testing.T) {
	t.Parallel()
	p := peers(t)
	python := filepath.Join(p.Dir, "venv", "bin", "python")
	if exec.Command(python, "-c", "import acp").Run() != nil {
		t.Skip("the Python SDK of the Agent Client Protocol is not installed")
	}
	here, _ := os.Getwd()
	out, _ := acpClientRun(t, python, filepath.Join(here, "py", "acp_client.py"), parleyCLI(t), "acp")
	new(acpSeen).check(t, out)
}

// TestACPX drives parley acp with acpx, a client of the Agent Client Protocol for the
// command line.
func TestACPX(t *testing.T) {
	t.Parallel()
	p := peers(t)
	acpx := filepath.Join(p.Dir, "node_modules", ".bin", "acpx")
	if _, err := os.Stat(acpx); err != nil {
		t.Skip("acpx is not installed")
	}
	out, _ := acpClientRun(t, acpx, "--approve-all", "--agent", parleyCLI(t)+" acp", "exec", "Write it.")
	for _, want := range []string{"I write it.", "Done."} {
		if !strings.Contains(out, want) {
			t.Errorf("acpx did not print %q:\n%s", want, out)
		}
	}
}
