package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// richServer is a server in the host with a prompt and a resource.
func richServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "db", Version: "1"}, nil)
	s.AddPrompt(&mcp.Prompt{Name: "greet", Description: "Greets.", Arguments: []*mcp.PromptArgument{{Name: "name", Required: true}}},
		func(_ context.Context, r *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "Greet " + r.Params.Arguments["name"] + "!"}}}}, nil
		})
	s.AddResource(&mcp.Resource{URI: "mem://note", Name: "note"}, func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "mem://note", Text: "remember"}}}, nil
	})
	return s
}

// A prompt of a server is a slash command, and a connected host is notified of it.
func TestPromptsAreCommands(t *testing.T) {
	opts, m, _ := inProcess(t, parleytest.Script(
		parleytest.Expect(parleytest.LastUser("Greet Ann Lee!")).Say("Hello, Ann Lee."),
	))
	opts.ToolServers = map[string]*mcp.Server{"db": richServer()}
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var told, inited bool
	var last *wire.Result
	for msg, err := range c.Turn(t.Context(), "/mcp__db__greet Ann Lee") {
		if err != nil {
			t.Fatal(err)
		}
		switch msg := msg.(type) {
		case *wire.CommandsChanged:
			for _, cmd := range msg.Commands {
				told = told || cmd.Name == "mcp__db__greet" && cmd.ArgumentHint == "<name>" && strings.HasPrefix(cmd.Description, "Greets.")
			}
		case *wire.Init:
			inited = strings.Contains(strings.Join(msg.SlashCommands, " "), "mcp__db__greet")
		case *wire.Result:
			last = msg
		}
	}
	if last == nil || last.Result != "Hello, Ann Lee." || !told || !inited {
		t.Errorf("%+v told %v init %v", last, told, inited)
	}
	if err := m.Err(); err != nil {
		t.Error(err)
	}
}

func TestResourcesInTurn(t *testing.T) {
	script := func() *parleytest.Scenario {
		return parleytest.Script(
			parleytest.Expect(parleytest.Tools("ListMcpResourcesTool", "ReadMcpResourceTool")).Call("ListMcpResourcesTool", `{}`),
			parleytest.Expect(parleytest.ToolResult(`"uri":"mem://note"`)).Call("ReadMcpResourceTool", `{"server":"db","uri":"mem://note"}`),
			parleytest.Say("Done."),
		)
	}
	for rule, want := range map[string]string{"": "remember", "mcp__db": "remember"} { // a listed resource needs no rule
		opts, m, _ := inProcess(t, script())
		opts.ToolServers = map[string]*mcp.Server{"db": richServer()}
		if rule != "" {
			opts.AllowedTools = []string{rule}
		}
		all, _, err := collect(t, opts, "read")
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := json.Marshal(all[len(all)-3])
		if !strings.Contains(string(raw), want) {
			t.Errorf("%q: %s", rule, raw)
		}
		if err := m.Err(); err != nil {
			t.Error(err)
		}
	}
}

// self returns the path of the test binary, which is also an MCP server.
func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// A call of the host right before the end of the session, or of its input, is
// answered.
func TestCallBeforeEnd(t *testing.T) {
	for _, end := range []string{`{"type":"control_request","request_id":"e","request":{"subtype":"end_session"}}`, ""} {
		in, w := io.Pipe()
		r, out := io.Pipe()
		config := fmt.Sprintf(`{"mcpServers":{"slow":{"command":%q,"env":{"PARLEY_AGENT_TEST_SERVER":"1"}}}}`, self(t))
		done := make(chan int, 1)
		go func() {
			cfg := agent.Config{Cwd: t.TempDir(), Environ: os.Environ(), Model: parleytest.Script().Model(), Store: &session.Memory{}}
			code := agent.Run(t.Context(), cfg, []string{"-p", "--input-format=stream-json", "--output-format=stream-json", "--verbose", "--mcp-config", config}, in, out, io.Discard)
			out.Close()
			done <- code
		}()
		seen := make(chan string, 100)
		go func() {
			defer close(seen)
			lines := bufio.NewScanner(r)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				seen <- lines.Text()
			}
		}()
		send := func(line string) {
			if _, err := io.WriteString(w, line+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		for i := 0; ; i++ { // until it is connected
			send(fmt.Sprintf(`{"type":"control_request","request_id":"s%d","request":{"subtype":"mcp_status"}}`, i))
			if strings.Contains(<-seen, `"connected"`) {
				break
			}
			testwait.Pause(10 * time.Millisecond)
		}
		send(`{"type":"control_request","request_id":"a","request":{"subtype":"mcp_call","tool":"mcp__slow__wait","check_permissions":true}}`)
		send(`{"type":"control_request","request_id":"u","request":{"subtype":"mcp_read_resource","serverName":"slow","uri":"file:///x"}}`)
		send(`{"type":"control_request","request_id":"c","request":{"subtype":"mcp_call","tool":"mcp__slow__wait"}}`)
		if end != "" {
			send(end)
		} else {
			w.Close()
		}
		var all []string
		for line := range seen {
			all = append(all, line)
		}
		got := strings.Join(all, "\n")
		if !strings.Contains(got, `"request_id":"c","response":{"content":[{"type":"text","text":"waited"}]}`) || !strings.Contains(got, "the call is not allowed") || !strings.Contains(got, "must use the ui:// scheme") {
			t.Errorf("end %q: %s", end, got)
		}
		if code := <-done; code != 0 {
			t.Error("exit status", code)
		}
		w.Close()
	}
}

// slowServer is the test binary as an MCP server.
func slowServer() {
	type none struct{}
	wait := parley.NewTool("wait", "Waits.", func(context.Context, none) (string, error) {
		testwait.Pause(300 * time.Millisecond)
		return "waited", nil
	})
	if err := parley.ServeTools(context.Background(), wait); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The servers of a named plugin are connected, and get its directory.
func TestPluginServers(t *testing.T) {
	plugin := t.TempDir()
	for name, text := range map[string]string{
		".claude-plugin/plugin.json": `{"name":"plug"}`,
		".mcp.json":                  fmt.Sprintf(`{"mcpServers":{"slow":{"command":%q,"args":["${CLAUDE_PLUGIN_ROOT}"],"env":{"PARLEY_AGENT_TEST_SERVER":"1"}}}}`, self(t)),
	} {
		file := filepath.Join(plugin, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	opts, _, _ := inProcess(t, parleytest.Script(parleytest.Say("Hello.")))
	opts.Plugins = []*wire.PluginConfig{{Type: "local", Path: plugin}}
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for msg, err := range c.Turn(t.Context(), "hi") {
		if err != nil {
			t.Fatal(err)
		}
		if init, ok := msg.(*wire.Init); ok {
			if len(init.MCPServers) != 1 || init.MCPServers[0].Name != "plugin:plug:slow" || init.MCPServers[0].Source != "plugin" || init.MCPServers[0].Status != "connected" ||
				!strings.Contains(strings.Join(init.Tools, " "), "mcp__plugin_plug_slow__wait") {
				t.Errorf("%+v %v", init.MCPServers, init.Tools)
			}
		}
	}
	list, err := c.MCPStatus(t.Context())
	if err != nil || len(list) != 1 || len(list[0].Config.Args) != 1 || list[0].Config.Args[0] != plugin {
		t.Error(err, list)
	}
}
