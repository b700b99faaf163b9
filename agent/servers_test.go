package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// toolServer returns a server that runs in the host. Its tool meet returns when both of two calls have
// arrived.
func toolServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "calc", Version: "1.0.0"}, nil)
	object := json.RawMessage(`{"type":"object"}`)
	text := func(s string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
	}
	var wg sync.WaitGroup
	wg.Add(2)
	s.AddTool(&mcp.Tool{Name: "meet", InputSchema: object, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			wg.Done()
			wg.Wait()
			return text("met"), nil
		})
	s.AddTool(&mcp.Tool{Name: "grow", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.AddTool(&mcp.Tool{Name: "grown", InputSchema: object}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("new"), nil })
		return text("grew"), nil
	})
	s.AddTool(&mcp.Tool{Name: "hang", InputSchema: object}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	return s
}

func TestToolsOfHost(t *testing.T) {
	opts, m, _ := inProcess(t, parleytest.Script(
		parleytest.Expect(parleytest.Tools("mcp__calc__meet")).Call("mcp__calc__meet", `{"n":1}`).Call("mcp__calc__meet", `{"n":2}`),
		parleytest.Expect(parleytest.ToolResult("met")).Say("Done."),
	))
	opts.ToolServers = map[string]*mcp.Server{"calc": toolServer()}
	opts.AllowedTools = []string{"mcp__calc"}
	all, r, err := collect(t, opts, "meet")
	if err != nil || r.Result != "Done." {
		t.Fatal(r, err)
	}
	if err := m.Err(); err != nil {
		t.Error(err)
	}
	init := all[0].(*wire.Init)
	if len(init.MCPServers) != 1 || init.MCPServers[0].Status != "connected" || init.MCPServers[0].Source != "sdk" || !strings.Contains(strings.Join(init.Tools, " "), "mcp__calc__meet") {
		t.Errorf("init %+v", init)
	}
	if meta := all[1].(*wire.Assistant).ToolUseMeta; len(meta) != 1 || meta[0].DisplayName != "Meet" || meta[0].ServerDisplayName != "calc" || meta[0].ToolName != "meet" {
		t.Errorf("meta %v", meta)
	}
}

// The annotations of a server's own tool do not replace a permission request.
func TestHintsAllowNothing(t *testing.T) {
	opts, _, _ := inProcess(t, parleytest.Script(parleytest.Call("mcp__calc__meet", `{}`), parleytest.Say("Done.")))
	opts.ToolServers = map[string]*mcp.Server{"calc": toolServer()}
	var asked *wire.CanUseTool
	opts.CanUseTool = func(_ context.Context, q *wire.CanUseTool) (*wire.PermissionResult, error) {
		asked = q
		return parley.Deny("no"), nil
	}
	if _, _, err := collect(t, opts, "meet"); err != nil {
		t.Fatal(err)
	}
	if asked == nil || asked.MCPServer == nil || asked.MCPServer.Name != "calc" || asked.MCPServer.Source != "sdk" || asked.DisplayName != "Meet" {
		t.Errorf("asked %+v", asked)
	}
}

func TestHiddenTools(t *testing.T) {
	opts, _, _ := inProcess(t, parleytest.Script(parleytest.Say("Hello.")))
	opts.ToolServers = map[string]*mcp.Server{"calc": toolServer()}
	opts.DisallowedTools = []string{"mcp__calc__meet"}
	all, _, err := collect(t, opts, "hi")
	if err != nil {
		t.Fatal(err)
	}
	if tools := strings.Join(all[0].(*wire.Init).Tools, " "); strings.Contains(tools, "mcp__calc__meet") || !strings.Contains(tools, "mcp__calc__grow") {
		t.Error(tools)
	}
}

// New tools are available to the model in the next request.
func TestToolsGrow(t *testing.T) {
	opts, m, _ := inProcess(t, parleytest.Script(
		parleytest.Call("mcp__calc__grow", `{}`),
		parleytest.Say("Grown."),
		parleytest.Expect(parleytest.Tools("mcp__calc__grown")).Call("mcp__calc__grown", `{}`),
		parleytest.Expect(parleytest.ToolResult("new")).Say("Done."),
	))
	opts.ToolServers = map[string]*mcp.Server{"calc": toolServer()}
	opts.AllowedTools = []string{"mcp__calc"}
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	turn := func(prompt string) (r *wire.Result) {
		for msg, err := range c.Turn(t.Context(), prompt) {
			if err != nil {
				t.Fatal(err)
			}
			r, _ = msg.(*wire.Result)
		}
		return r
	}
	turn("grow")
	testwait.Until(t, "a fourth tool", func() bool {
		list, err := c.MCPStatus(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(list) == 1 && len(list[0].Tools) == 4
	})
	if r := turn("use it"); r.Result != "Done." {
		t.Errorf("%+v", r)
	}
	if err := m.Err(); err != nil {
		t.Error(err)
	}
}

func TestServerRequests(t *testing.T) {
	opts, _, _ := inProcess(t, parleytest.Script(parleytest.Say("Hello.")))
	opts.ToolServers = map[string]*mcp.Server{"calc": toolServer()}
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	for _, err := range []error{c.ReconnectMCPServer(ctx, "x"), c.ToggleMCPServer(ctx, "x", true)} {
		if err == nil || !strings.Contains(err.Error(), "Server not found: x") {
			t.Error(err)
		}
	}
	status := func() string {
		t.Helper()
		list, err := c.MCPStatus(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, s := range list {
			out = append(out, s.Name+" "+string(s.Status))
		}
		return strings.Join(out, ", ")
	}
	if err := c.ReconnectMCPServer(ctx, "calc"); err != nil || status() != "calc connected" {
		t.Error(err, status())
	}
	if err := c.ToggleMCPServer(ctx, "calc", false); err != nil || status() != "calc disabled" {
		t.Error(err, status())
	}
	if err := c.ToggleMCPServer(ctx, "calc", true); err != nil || status() != "calc connected" {
		t.Error(err, status())
	}
	r, err := c.SetMCPServers(ctx, map[string]*wire.MCPServerConfig{"bad": {Command: "/nonexistent/y"}})
	if err != nil || fmt.Sprint(r.Added, r.Removed) != "[bad] [calc]" || r.Errors["bad"] == "" || status() != "bad failed" {
		t.Errorf("%+v %v %s", r, err, status())
	}
}

// TestServersNotAdmitted checks that servers that the settings exclude stay out, whoever names them.
func TestServersNotAdmitted(t *testing.T) {
	opts, _, _ := inProcess(t, parleytest.Script(parleytest.Say("done")))
	opts.Cwd = t.TempDir()
	opts.Settings = json.RawMessage(`{"deniedMcpServers":[{"serverName":"calc"},{"serverCommand":["/nonexistent/y"]}]}`)
	opts.ToolServers = map[string]*mcp.Server{"calc": toolServer()}
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.SetMCPServers(t.Context(), map[string]*wire.MCPServerConfig{"bad": {Command: "/nonexistent/y"}, "other": {Command: "/nonexistent/z"}})
	if err != nil || fmt.Sprint(r.Added) != "[other]" || !strings.Contains(r.Errors["bad"], "deniedMcpServers") {
		t.Errorf("%+v %v", r, err)
	}
	list, err := c.MCPStatus(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != "other" {
		t.Errorf("%+v %v", list, err)
	}
}

// A call that hangs ends with its turn.
func TestInterruptedToolOfHost(t *testing.T) {
	opts, _, _ := inProcess(t, parleytest.Script(parleytest.Call("mcp__calc__hang", `{}`)))
	opts.ToolServers = map[string]*mcp.Server{"calc": toolServer()}
	opts.AllowedTools = []string{"mcp__calc"}
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var last *wire.Result
	for msg, err := range c.Turn(t.Context(), "hang") {
		if _, ok := msg.(*wire.Assistant); ok {
			go c.Interrupt(t.Context())
		}
		if r, ok := msg.(*wire.Result); ok {
			last = r
		}
		_ = err
	}
	if last == nil || last.TerminalReason != "aborted_tools" {
		t.Errorf("%+v", last)
	}
}

func TestRequiredServer(t *testing.T) {
	opts, _, _ := inProcess(t, parleytest.Script())
	opts.MCPServers = map[string]*wire.MCPServerConfig{"db": {Command: "/nonexistent/db"}}
	opts.MCPServers["db"].Extra = map[string]json.RawMessage{"startup": json.RawMessage(`"required"`)}
	_, r, _ := collect(t, opts, "hi")
	if r == nil || r.Subtype != "error_during_execution" || !r.IsError || r.NumTurns != 0 || len(r.Errors) != 1 || !strings.Contains(r.Errors[0], "Failed to connect to MCP server db") {
		t.Errorf("%+v", r)
	}
}

func TestServerConfig(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "servers.json")
	if err := os.WriteFile(file, []byte(`{"mcpServers":{"z":{"command":"${TOOL:-/nonexistent/z}"},"a":{"type":"http","url":"http://127.0.0.1:1"}}}`), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, config, want string
	}{
		{"a file and more", file + "|" + `{"mcpServers":{"b":{"command":"/nonexistent/b"}}}`, "z failed, a failed, b failed"},
		{"no file", "nowhere.json", "MCP config file not found"},
		{"no JSON", "{", "not valid JSON"},
		{"no servers", `{"servers":{}}`, "is missing"},
		{"no object", `{"mcpServers":[]}`, "mcpServers: expected an object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := append([]string{"-p", "hi", "--output-format=stream-json", "--verbose", "--mcp-config"}, strings.Split(tt.config, "|")...)
			var stdout, stderr strings.Builder
			code := agent.Run(t.Context(), agent.Config{Cwd: dir, Model: parleytest.Script(parleytest.Say("Hello.")).Model()}, args, strings.NewReader(""), &stdout, &stderr)
			got := stderr.String()
			if line, _, _ := strings.Cut(stdout.String(), "\n"); line != "" {
				m, err := wire.Decode([]byte(line))
				if err != nil {
					t.Fatal(err)
				}
				var states []string
				for _, s := range m.(*wire.Init).MCPServers {
					states = append(states, s.Name+" "+s.Status)
				}
				got = strings.Join(states, ", ")
			} else if code != 1 {
				t.Errorf("exit code %d", code)
			}
			if !strings.Contains(got, tt.want) {
				t.Error(got)
			}
		})
	}
}

// TestPromptTool checks that a tool of an MCP server decides about calls in place of the host, and
// that an invalid answer denies.
func TestPromptTool(t *testing.T) {
	for answer, made := range map[string]bool{
		`{"behavior":"allow","updatedInput":{"command":"touch made"}}`: true,
		`{"behavior":"deny","message":"not today"}`:                    false,
		`{"behavior":"perhaps"}`:                                       false,
		`sure`:                                                         false,
	} {
		t.Run(answer, func(t *testing.T) {
			dir, _ := workdir(t)
			opts, m, _ := inProcess(t, parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Say("done")))
			var asked string
			srv := mcp.NewServer(&mcp.Implementation{Name: "guard"}, nil)
			srv.AddTool(&mcp.Tool{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				asked = string(req.Params.Arguments)
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: answer}}}, nil
			})
			opts.Cwd, opts.ToolServers, opts.PermissionPromptTool = dir, map[string]*mcp.Server{"guard": srv}, "mcp__guard__ask"
			_, r, err := collect(t, opts, "hi")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(dir, "made")); (err == nil) != made {
				t.Errorf("made: %v", err)
			}
			if !strings.Contains(asked, `"tool_name":"Bash"`) || !strings.Contains(asked, `"tool_use_id"`) || len(r.PermissionDenials) == 0 != made {
				t.Errorf("asked %s, denials %v", asked, r.PermissionDenials)
			}
			if err := m.Done(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestMissingPromptToolEndsAgent checks that the agent ends, with the status 1 and a message that names
// the tool, if a call needs permission and the tool that decides does not exist.
func TestMissingPromptToolEndsAgent(t *testing.T) {
	dir, _ := workdir(t)
	m := parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Say("never")).Model()
	got := say(t, agent.Config{Cwd: dir, Model: m, Store: &session.Memory{}}, []string{"--permission-prompt-tool", "mcp__nope__ask"}, hello, hello)
	if got.code != 1 || got.result == nil || !got.result.IsError || !strings.Contains(got.stderr, "mcp__nope__ask") {
		t.Errorf("status %d, result %+v, standard error %q", got.code, got.result, got.stderr)
	}
	if _, err := os.Stat(filepath.Join(dir, "made")); err == nil {
		t.Error("the call ran")
	}
}

// TestUserServers checks that the servers that the user has added with "mcp add", in the official
// file, are there if the sources include them.
func TestUserServers(t *testing.T) {
	url := webServer(t)
	for _, tt := range []struct {
		name    string
		sources []string
		args    []string
		want    string
	}{
		{"user and local", []string{"user", "local"}, nil, "everywhere here"},
		{"user", []string{"user"}, nil, "everywhere"},
		{"local", []string{"local"}, nil, "here"},
		{"neither", []string{"project"}, nil, ""},
		{"strict", []string{"user", "local"}, []string{"--strict-mcp-config"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := workdir(t)
			home := filepath.Join(filepath.Dir(dir), "home")
			server := func(name string) string { return `{"` + name + `":{"type":"http","url":"` + url + `"}}` }
			writeFile(t, filepath.Join(home, ".claude.json"),
				`{"mcpServers":`+server("everywhere")+`,"projects":{"`+dir+`":{"mcpServers":`+server("here")+`},"/other":{"mcpServers":`+server("elsewhere")+`}}}`)
			var want []parleytest.Matcher
			for _, name := range []string{"everywhere", "here", "elsewhere"} {
				m := parleytest.Tools("mcp__" + name + "__hello")
				if !slices.Contains(strings.Fields(tt.want), name) {
					m = m.Not()
				}
				want = append(want, m)
			}
			m := parleytest.Script(parleytest.Expect(want...).Say("ok")).Model()
			got := say(t, agent.Config{Cwd: dir, Home: home, Model: m, Store: &session.Memory{}, SettingSources: tt.sources}, append([]string{"--setting-sources", strings.Join(tt.sources, ",")}, tt.args...), initialize, hello)
			if got.result == nil || got.result.Result != "ok" {
				t.Errorf("%+v %v %s", got.result, m.Err(), got.stderr)
			}
		})
	}
}

// TestMalformedServers checks that a server that cannot be used is reported, wherever it is configured,
// and that the session runs with the other servers.
func TestMalformedServers(t *testing.T) {
	entries := []struct{ name, config, why string }{
		{"unknown type", `{"type":"tcp","command":"true"}`, "type"},
		{"no command", `{"type":"stdio"}`, "command"},
		{"no URL", `{"type":"http"}`, "url"},
		{"unknown startup", `{"command":"true","startup":"require"}`, "startup"},
		{"type", `{"type":7,"command":"true"}`, "type"},
		{"command", `{"command":["true"]}`, "command"},
		{"arguments", `{"command":"true","args":"x"}`, "args"},
		{"environment", `{"command":"true","env":{"A":1}}`, "env"},
		{"headers", `{"type":"http","url":"http://127.0.0.1:1","headers":["A"]}`, "headers"},
		{"string", `"true"`, "object"},
		{"nothing", `null`, "object"},
	}
	const good = `{"command":"/nonexistent/good"}`
	// Each source returns the arguments and the lines on standard input.
	sources := []struct {
		name   string
		server string // the name of the good one
		setUp  func(dir, home, servers string) (args, lines []string)
	}{
		{"flag", "good", func(_, _, servers string) ([]string, []string) {
			return []string{"--mcp-config", `{"mcpServers":` + servers + `}`}, nil
		}},
		{"file", "good", func(dir, _, servers string) ([]string, []string) {
			writeFile(t, filepath.Join(dir, "servers.json"), `{"mcpServers":`+servers+`}`)
			return []string{"--mcp-config", "servers.json"}, nil
		}},
		{"project", "good", func(dir, _, servers string) ([]string, []string) {
			writeFile(t, filepath.Join(dir, ".mcp.json"), `{"mcpServers":`+servers+`}`)
			return []string{"--trust-project", "all"}, nil
		}},
		{"user", "good", func(_, home, servers string) ([]string, []string) {
			writeFile(t, filepath.Join(home, ".claude.json"), `{"mcpServers":`+servers+`}`)
			return nil, nil
		}},
		{"plugin", "plugin:kit:good", func(dir, _, servers string) ([]string, []string) {
			plugin := filepath.Join(dir, "kit")
			writeFile(t, filepath.Join(plugin, ".claude-plugin", "plugin.json"), `{"name":"kit"}`)
			writeFile(t, filepath.Join(plugin, ".mcp.json"), `{"mcpServers":`+servers+`}`)
			return []string{"--plugin-dir", plugin}, nil
		}},
		{"agent", "", func(_, _, servers string) ([]string, []string) {
			return nil, []string{`{"type":"control_request","request_id":"1","request":{"subtype":"initialize","agents":{"helper":{"description":"d","prompt":"You help.","mcpServers":[` + servers + `]}}}}`}
		}},
		{"agent file", "", func(dir, _, servers string) ([]string, []string) {
			writeFile(t, filepath.Join(dir, ".claude", "agents", "helper.md"), "---\nname: helper\ndescription: d\nmcpServers: ["+servers+"]\n---\nYou help.")
			return []string{"--trust-project", "all"}, nil
		}},
		{"request", "good", func(_, _, servers string) ([]string, []string) {
			return nil, []string{initialize, `{"type":"control_request","request_id":"2","request":{"subtype":"mcp_set_servers","servers":` + servers + `}}`}
		}},
	}
	for _, source := range sources {
		for _, entry := range entries {
			t.Run(source.name+"/"+entry.name, func(t *testing.T) {
				t.Parallel()
				dir, _ := workdir(t)
				home := filepath.Join(filepath.Dir(dir), "home")
				args, lines := source.setUp(dir, home, `{"odd": `+entry.config+`, "good": `+good+`}`)
				script := parleytest.Script(parleytest.Say("Hello."))
				if source.server == "" {
					script = parleytest.Script(parleytest.Call("Agent", `{"description":"d","prompt":"p","subagent_type":"helper","run_in_background":false}`),
						parleytest.Expect(parleytest.ToolResult("helped")).Say("Hello."))
					script.When("helper", parleytest.SystemPrompt("You help."), parleytest.Say("helped"))
				}
				sources := []string{"user", "project"}
				got := say(t, agent.Config{Cwd: dir, Home: home, Model: script.Model(), Store: &session.Memory{}, SettingSources: sources},
					append([]string{"--setting-sources", strings.Join(sources, ",")}, args...), append(lines, hello)...)
				if got.result == nil || got.result.Result != "Hello." {
					t.Fatalf("%+v\n%s", got.result, got.stderr)
				}
				report := got.stderr
				for _, m := range got.all {
					line, _ := json.Marshal(m)
					report += string(line) + "\n"
				}
				if source.name == "request" {
					refused := entry.config[0] != '{'
					if strings.Contains(report, `"errors":{`) == refused || strings.Contains(report, `expected an object of objects`) != refused || !refused && !strings.Contains(report, `"odd":"`) {
						t.Error(report)
					}
				} else if !strings.Contains(report, "the MCP server odd is left out: "+entry.why) && !strings.Contains(report, "the MCP server odd is left out: expected an "+entry.why) {
					t.Errorf("odd is not reported:\n%s", report)
				}
				var names []string
				for _, s := range got.init.MCPServers {
					names = append(names, s.Name)
				}
				if source.name != "request" && slices.Contains(names, "odd") || source.server != "" && entry.config[0] == '{' && !slices.Contains(names, source.server) {
					t.Errorf("servers: %q", names)
				}
			})
		}
	}
}
