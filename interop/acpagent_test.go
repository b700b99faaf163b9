package interop

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/acp"
	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// adapterOnParley returns the command of the reference adapter, running on parley.
func adapterOnParley(t *testing.T) []string {
	p := peers(t)
	return []string{"env", "CLAUDE_CODE_EXECUTABLE=" + parleyCLI(t), "node", filepath.Join(p.Dir, "node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js")}
}

// TestACPAdapterOnParley runs the reference adapter on parley, driven by the official
// TypeScript SDK.
func TestACPAdapterOnParley(t *testing.T) {
	t.Parallel()
	here, _ := os.Getwd()
	out, _ := acpClientRun(t, append([]string{"node", filepath.Join(here, "ts", "acp.mjs"), "stdio"}, adapterOnParley(t)...)...)
	var s acpSeen
	if s.check(t, out); s.Second != "cancelled" {
		t.Errorf("the prompt that was cancelled ended as %q: %s", s.Second, out)
	}
}

// TestACPAgents drives agents that speak the Agent Client Protocol with the SDK, as
// processes: parley acp, and the reference adapter on parley.
func TestACPAgents(t *testing.T) {
	t.Parallel()
	peers(t)
	for name, command := range map[string][]string{"parley": {parleyCLI(t), "acp"}, "adapter": adapterOnParley(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "new.txt")
			api := pt.NewAPI(t, pt.Script(
				pt.Say("I write it.").Call("Write", map[string]string{"file_path": file, "content": "hello\n"}),
				pt.Say("Done."),
			), &pt.APIOptions{Partial: true, Lenient: true})
			var asked []string
			r, err := parley.Run(t.Context(), "Write it.", &parley.Options{
				Cwd: dir, Dialer: &acp.Agent{Command: command}, Env: map[string]string{"HOME": filepath.Join(dir, "home"), "ANTHROPIC_BASE_URL": api.URL, "ANTHROPIC_API_KEY": fakeKey},
				CanUseTool: func(_ context.Context, r *wire.CanUseTool) (*wire.PermissionResult, error) {
					asked = append(asked, r.ToolName)
					return parley.Allow(), nil
				},
			})
			if err != nil || r.Result != "Done." || r.Outcome() != wire.OutcomeCompleted || len(asked) != 1 || asked[0] != "Write" {
				t.Errorf("%+v, %v, asked %q", r, err, asked)
			}
			if data, err := os.ReadFile(file); string(data) != "hello\n" {
				t.Errorf("new.txt holds %q, %v", data, err)
			}
		})
	}
}
