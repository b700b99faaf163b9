package agent_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/agent"
)

// toolClient connects a client to the agent's tools.
func toolClient(t *testing.T, dir string, args ...string) *mcp.ClientSession {
	t.Helper()
	server, end, err := agent.ToolServer(t.Context(), agent.Config{Cwd: dir, Home: t.TempDir(), Environ: os.Environ(), SettingSources: []string{"project"}}, args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	ct, st := mcp.NewInMemoryTransports()
	ss, err := server.Connect(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	cs, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), ct, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cs.Close(); ss.Wait() })
	return cs
}

func callTool(t *testing.T, cs *mcp.ClientSession, name string, args map[string]any) (text string, failed bool) {
	t.Helper()
	r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Content {
		if c, ok := c.(*mcp.TextContent); ok {
			text += c.Text
		}
	}
	return text, r.IsError
}

func TestToolServer(t *testing.T) {
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "a.txt"), filepath.Join(dir, "secret.txt")
	for _, f := range []string{file, secret} {
		if err := os.WriteFile(f, []byte("two lines\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, ".claude"), 0o777); err != nil {
		t.Fatal(err)
	}
	// A project can tighten the rules here, too.
	settings := `{"permissions":{"deny":["Read(./secret.txt)"],"allow":["Bash(rm:*)"]}}`
	if err := os.WriteFile(filepath.Join(dir, ".claude", "settings.json"), []byte(settings), 0o666); err != nil {
		t.Fatal(err)
	}
	cs := toolClient(t, dir, "--allowedTools", "Bash(echo:*)", "--disallowedTools", "WebSearch")
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
		if tool.Name == "Read" && !tool.Annotations.ReadOnlyHint || tool.Name == "Bash" && tool.Annotations.ReadOnlyHint || tool.Description == "" {
			t.Errorf("%+v", tool)
		}
	}
	if got := strings.Join(names, " "); !strings.Contains(got, "Read") || !strings.Contains(got, "Bash") || strings.Contains(got, "WebSearch") || strings.Contains(got, "Skill") || strings.Contains(got, "Task ") || strings.Contains(got, "Agent") || strings.Contains(got, "AskUser") {
		t.Error(got)
	}
	for _, tt := range []struct {
		tool   string
		args   map[string]any
		want   string
		failed bool
	}{
		{"Read", map[string]any{"file_path": file}, "two lines", false},
		{"Read", map[string]any{"file_path": secret}, "denied by the rule", true},
		{"Bash", map[string]any{"command": "cat secret.txt"}, "denied by the rule", true},
		{"Bash", map[string]any{"command": "echo hello"}, "hello", false},
		{"Bash", map[string]any{"command": "rm a.txt"}, "nobody can be asked", true},
		{"Write", map[string]any{"file_path": filepath.Join(dir, "b.txt"), "content": "x"}, "nobody can be asked", true},
		{"Read", map[string]any{"path": file}, "InputValidationError", true},
		{"Nothing", nil, "No such tool available", true},
		{"StructuredOutput", nil, "No such tool available", true},
	} {
		got, failed := callTool(t, cs, tt.tool, tt.args)
		if failed != tt.failed || !strings.Contains(got, tt.want) {
			t.Errorf("%s %v: %v %s", tt.tool, tt.args, failed, got)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "b.txt")); err == nil {
		t.Error("it was written")
	}
}

func TestToolServerEdits(t *testing.T) {
	dir := t.TempDir()
	cs := toolClient(t, dir, "--permission-mode", "acceptEdits")
	file := filepath.Join(dir, "b.txt")
	if got, failed := callTool(t, cs, "Write", map[string]any{"file_path": file, "content": "x\n"}); failed {
		t.Error(got)
	}
	// A call knows the files that an earlier call has read.
	if got, failed := callTool(t, cs, "Edit", map[string]any{"file_path": file, "old_string": "x", "new_string": "y"}); failed {
		t.Error(got)
	}
	if b, _ := os.ReadFile(file); string(b) != "y\n" {
		t.Errorf("%q", b)
	}
}

// A call that its client cancels ends, and so does everything that runs when the server
// ends.
func TestToolServerCancel(t *testing.T) {
	dir := t.TempDir()
	cs := toolClient(t, dir, "--allowedTools", "Bash")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "Bash", Arguments: map[string]any{"command": "touch started; sleep 1000"}})
		done <- err
	}()
	for range 1000 {
		if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
			break
		}
		callTool(t, cs, "Bash", map[string]any{"command": "sleep 0.01"}) // calls do not wait for each other
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("it was not given up")
	}
}
