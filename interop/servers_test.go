package interop

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// withParley returns options for our command with a scripted model.
func withParley(t *testing.T, s *pt.Scenario) (context.Context, *parley.Options) {
	t.Helper()
	cli := parleyCLI(t)
	api := pt.NewAPI(t, s, nil)
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx, &parley.Options{
		Path: cli, Cwd: dir, Model: "claude-sonnet-4-5", SettingSources: []string{},
		Env: map[string]string{"HOME": filepath.Join(dir, "home"), "ANTHROPIC_BASE_URL": api.URL, "ANTHROPIC_API_KEY": fakeKey},
	}
}

// The official reference servers work with our command.
func TestReferenceServers(t *testing.T) {
	t.Parallel()
	p := peers(t)
	module := func(name string) string {
		file := filepath.Join(p.Dir, "node_modules", "@modelcontextprotocol", name, "dist", "index.js")
		if _, err := os.Stat(file); err != nil {
			t.Skipf("%s is not installed; scripts/peers does that", name)
		}
		return file
	}
	everything, filesystem := module("server-everything"), module("server-filesystem")
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node")
	}
	files := t.TempDir()
	if err := os.WriteFile(filepath.Join(files, "note.txt"), []byte("remember the milk"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, o := withParley(t, pt.Script(
		pt.Call("mcp__every__echo", `{"message":"hello there"}`).Call("mcp__files__read_text_file", map[string]string{"path": filepath.Join(files, "note.txt")}),
		pt.Expect(pt.ToolResult("hello there"), pt.ToolResult("remember the milk")).Call("ListMcpResourcesTool", `{"server":"every"}`),
		pt.Expect(pt.ToolResult(`"server":"every"`)).Say("Done."),
		pt.Say("And the prompt."),
	))
	o.Cwd = files // which servers are told as the root
	o.AllowedTools = []string{"mcp__every", "mcp__files"}
	o.MCPServers = map[string]*wire.MCPServerConfig{"every": {Command: node, Args: []string{everything, "stdio"}}, "files": {Command: node, Args: []string{filesystem, files}}}
	for _, s := range o.MCPServers {
		s.Extra = map[string]json.RawMessage{"startup": json.RawMessage(`"required"`)}
	}
	c, err := parley.Connect(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if r, err := askTurn(ctx, t, c, "use them"); err != nil || r.Result != "Done." {
		t.Fatal(r, err)
	}
	status, err := c.MCPStatus(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range status {
		if s.Status != wire.MCPConnected || len(s.Tools) == 0 {
			t.Errorf("%+v", s)
		}
	}
	if r, err := askTurn(ctx, t, c, "/mcp__every__simple-prompt"); err != nil || r.Result != "And the prompt." {
		t.Error(r, err)
	}
}

// The program of examples/toolserver is a server for both commands.
func TestToolServerExample(t *testing.T) {
	for name, with := range map[string]func(*testing.T, *pt.Scenario) (context.Context, *parley.Options){"claude": claude, "parley": withParley} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, o := with(t, pt.Script(
				pt.Call("mcp__text__count", `{"text":"one two\nthree\n"}`),
				pt.Expect(pt.ToolResult(`"words":3`)).Say("Three."),
			))
			exe := filepath.Join(t.TempDir(), "toolserver")
			if out, err := exec.Command("go", "build", "-o", exe, "../examples/toolserver").CombinedOutput(); err != nil {
				t.Fatal(err, string(out))
			}
			o.AllowedTools = []string{"mcp__text"}
			o.MCPServers = map[string]*wire.MCPServerConfig{"text": {Command: exe}}
			c, err := parley.Connect(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if r, err := askTurn(ctx, t, c, "count"); err != nil || !strings.Contains(r.Result, "Three.") {
				t.Error(r, err)
			}
		})
	}
}
