package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/internal/testwait"
	pt "github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// withParley returns options for our command with a scripted model.
func withParley(t *testing.T, s *pt.Scenario) (context.Context, *parley.Options) {
	t.Helper()
	cli := parleyCLI(t)
	api := pt.NewAPI(t, s, nil)
	dir := t.TempDir()
	ctx := testwait.Context(t)
	return ctx, &parley.Options{
		Path: cli, Cwd: dir, Model: "claude-sonnet-4-5", SettingSources: []string{},
		Env: map[string]string{"HOME": filepath.Join(dir, "home"), "ANTHROPIC_BASE_URL": api.URL, "ANTHROPIC_API_KEY": fakeKey},
	}
}

// reference finds an official reference server.
func reference(t *testing.T, name string) (node, file string) {
	t.Helper()
	p := peers(t)
	file = filepath.Join(p.Dir, "node_modules", "@modelcontextprotocol", name, "dist", "index.js")
	if _, err := os.Stat(file); err != nil {
		t.Skipf("%s is not installed; scripts/peers does that", name)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node")
	}
	return node, file
}

// listening starts a reference server on its own port and returns the port.
func listening(t *testing.T, node, file, transport string) (port string) {
	t.Helper()
	address := testwait.Address()
	_, port, _ = net.SplitHostPort(address)
	cmd := exec.Command(node, file, transport)
	cmd.Env = append(os.Environ(), "PORT="+port)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	testwait.Until(t, "the server listens", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return port
}

// TestReferenceServers checks that the official reference servers work with our
// command: concurrent tool calls, pictures, structured results, progress, tools that
// come later, resources, templates, prompts, questions; the server "everything" with
// each transport.
func TestReferenceServers(t *testing.T) {
	node, everything := reference(t, "server-everything")
	_, filesystem := reference(t, "server-filesystem")
	for _, transport := range []string{"stdio", "sse", "http"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			files := t.TempDir()
			if err := os.WriteFile(filepath.Join(files, "note.txt"), []byte("remember the milk"), 0o600); err != nil {
				t.Fatal(err)
			}
			static := "demo://resource/static/document/"
			ctx, o := withParley(t, pt.Script(
				pt.Call("mcp__every__echo", `{"message":"hello there"}`).Call("mcp__files__read_text_file", map[string]string{"path": filepath.Join(files, "note.txt")}).
					Call("mcp__every__get-sum", `{"a":2,"b":40}`).Call("mcp__every__get-tiny-image", `{}`).Call("mcp__every__get-structured-content", `{"location":"Chicago"}`).
					Call("mcp__files__write_file", map[string]string{"path": filepath.Join(files, "new.txt"), "content": "made"}).Call("mcp__files__read_text_file", `{"path":"/etc/passwd"}`),
				pt.Expect(pt.ToolResult("hello there"), pt.ToolResult("remember the milk"), pt.ToolResult("42")).Call("mcp__every__trigger-long-running-operation", `{"duration":4.5,"steps":9}`),
				pt.Expect(pt.ToolResult("completed")).Call("ListMcpResourcesTool", `{"server":"every"}`),
				pt.Expect(pt.ToolResult(`"server":"every"`), pt.ToolResult("demo://resource/dynamic/text/{resourceId}")).Call("ReadMcpResourceTool", map[string]string{"server": "every", "uri": static + "features.md"}).
					Call("ReadMcpResourceTool", `{"server":"every","uri":"demo://resource/dynamic/text/7"}`).Call("ReadMcpResourceDirTool", map[string]string{"server": "every", "uri": static}),
				pt.Expect(pt.ToolResult("Everything"), pt.ToolResult("Resource 7"), pt.ToolResult(static+"startup.md")).Say("Done."),
				pt.Expect(pt.Tools("mcp__every__get-roots-list", "mcp__every__trigger-elicitation-request")).Call("mcp__every__trigger-elicitation-request", `{}`),
				pt.Say("Asked."),
				pt.Expect(pt.LastUser("Berlin")).Say("And the prompt."),
			))
			o.Cwd = files                      // the root that servers receive
			o.Env["MCP_TOOL_TIMEOUT"] = "3000" // of silence
			o.AllowedTools = []string{"mcp__every", "mcp__files"}
			every := &wire.MCPServerConfig{Command: node, Args: []string{everything, "stdio"}}
			switch transport {
			case "sse":
				every = &wire.MCPServerConfig{Type: "sse", URL: fmt.Sprintf("http://127.0.0.1:%s/sse", listening(t, node, everything, "sse"))}
			case "http":
				every = &wire.MCPServerConfig{Type: "http", URL: fmt.Sprintf("http://127.0.0.1:%s/mcp", listening(t, node, everything, "streamableHttp"))}
			}
			o.MCPServers = map[string]*wire.MCPServerConfig{"every": every, "files": {Command: node, Args: []string{filesystem, files}}}
			for _, s := range o.MCPServers {
				s.Extra = map[string]json.RawMessage{"startup": json.RawMessage(`"required"`)}
			}
			asked := make(chan *wire.Elicitation, 10)
			o.OnElicitation = func(_ context.Context, q *wire.Elicitation) (*wire.ElicitResult, error) {
				asked <- q
				return &wire.ElicitResult{Action: wire.ElicitDecline}, nil
			}
			c, err := parley.Connect(ctx, o)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var last *wire.Result
			results := map[string]*wire.ToolResultBlock{}
			names := map[string]string{}
			for m, err := range c.Turn(ctx, "use them") {
				if err != nil {
					t.Fatal(err)
				}
				switch m := m.(type) {
				case *wire.Assistant:
					for _, b := range m.Message.Content.All() {
						if b, ok := b.(*wire.ToolUseBlock); ok {
							names[b.ID] = b.Name + string(b.Input)
						}
					}
				case *wire.User:
					for _, b := range m.Message.Content.All() {
						if b, ok := b.(*wire.ToolResultBlock); ok {
							results[names[b.ToolUseID]] = b
						}
					}
				case *wire.Result:
					last = m
				}
			}
			if last == nil || last.Result != "Done." {
				t.Fatalf("%+v %v", last, results)
			}
			pictures := 0
			for _, b := range results[`mcp__every__get-tiny-image{}`].Content.All() {
				if _, ok := b.(*wire.ImageBlock); ok {
					pictures++
				}
			}
			if pictures != 1 {
				t.Errorf("%d pictures in %v", pictures, results[`mcp__every__get-tiny-image{}`].Content)
			}
			if r := results[`mcp__files__read_text_file{"path":"/etc/passwd"}`]; !r.IsError {
				t.Errorf("%+v", r)
			}
			if made, err := os.ReadFile(filepath.Join(files, "new.txt")); string(made) != "made" {
				t.Error(string(made), err)
			}
			// The server has these tools only once it knows the capabilities of its
			// client.
			testwait.Until(t, "the tools that come later", func() bool {
				status, err := c.MCPStatus(ctx)
				if err != nil {
					t.Fatal(err)
				}
				late := false
				for _, s := range status {
					if s.Status != wire.MCPConnected || len(s.Tools) == 0 {
						t.Errorf("%+v", s)
					}
					late = late || slices.ContainsFunc(s.Tools, func(i *wire.MCPToolInfo) bool { return i.Name == "get-roots-list" })
				}
				return late
			})
			if r, err := askTurn(ctx, t, c, "ask me"); err != nil || r.Result != "Asked." {
				t.Error(r, err)
			}
			select {
			case q := <-asked:
				if q.MCPServerName != "every" || q.Mode != "form" || q.RequestedSchema == nil {
					t.Errorf("%+v", q)
				}
			default:
				t.Error("nobody was asked")
			}
			if r, err := askTurn(ctx, t, c, "/mcp__every__args-prompt Berlin"); err != nil || r.Result != "And the prompt." {
				t.Error(r, err)
			}
		})
	}
}

// TestToolServerExample checks that the program of examples/toolserver is a server for
// both commands.
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
