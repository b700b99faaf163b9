package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// webServer is an MCP server on loopback with the tool hello.
func webServer(t *testing.T) string {
	s := mcp.NewServer(&mcp.Implementation{Name: "web", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "hello", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "HELLO"}}}, nil
	})
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// anywhere matches a request that contains a text.
func anywhere(text string) parleytest.Matcher {
	return parleytest.Check("holds "+text, func(r *parleytest.Request) error {
		if !strings.Contains(string(r.Body), text) {
			return fmt.Errorf("%q is nowhere in the request", text)
		}
		return nil
	})
}

func nowhere(text string) parleytest.Matcher {
	return parleytest.Check("lacks "+text, func(r *parleytest.Request) error {
		if strings.Contains(string(r.Body), text) {
			return fmt.Errorf("%q is in the request", text)
		}
		return nil
	})
}

// An agent's skills, hooks, servers and memory take effect, and it receives the instructions of the
// project, also about files below. Neither hooks nor servers of an untrusted file run, and calls
// that its hooks guard need permission.
func TestAgentBrings(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the hook is a line for a shell")
	}
	url := webServer(t)
	for _, trusted := range []bool{true, false} {
		t.Run(fmt.Sprint("trusted ", trusted), func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "CLAUDE.md"), "THE-PROJECT-SAYS")
			write(t, filepath.Join(dir, "below", "CLAUDE.md"), "THE-DIRECTORY-SAYS")
			write(t, filepath.Join(dir, "below", "x"), "content")
			write(t, filepath.Join(dir, ".claude", "skills", "fix", "SKILL.md"), "---\nname: fix\ndescription: d\n---\nHOW-TO-FIX")
			write(t, filepath.Join(dir, ".claude", "skills", "other", "SKILL.md"), "---\nname: other\ndescription: d\n---\nTHE-OTHER-SKILL")
			write(t, filepath.Join(dir, ".claude", "agent-memory", "helper", "MEMORY.md"), "I-REMEMBER")
			write(t, filepath.Join(dir, ".claude", "agents", "helper.md"), "---\nname: helper\ndescription: d\ntools: Read, Skill\nskills: fix\nmemory: project\n"+
				"mcpServers:\n  - web:\n      type: http\n      url: "+url+"\n"+
				"hooks:\n  PreToolUse:\n    - matcher: Read\n      hooks:\n        - type: command\n          command: echo ran >> hook.txt\n"+
				"  Stop:\n    - hooks:\n        - type: command\n          command: echo stopped >> hook.txt\n---\nYou help.")
			first := parleytest.Expect(anywhere("HOW-TO-FIX"), anywhere("I-REMEMBER"), anywhere("THE-PROJECT-SAYS"), nowhere("THE-DIRECTORY-SAYS"), parleytest.Tools("Skill"), parleytest.Tools("mcp__web__hello"))
			if !trusted {
				first = parleytest.Expect(anywhere("HOW-TO-FIX"), anywhere("THE-PROJECT-SAYS"), parleytest.Tools("mcp__web__hello").Not())
			}
			sub := []*parleytest.Turn{
				first.Call("Read", fmt.Sprintf(`{"file_path":%q}`, filepath.Join(dir, "below", "x"))),
				parleytest.Expect(anywhere("THE-DIRECTORY-SAYS"), nowhere("THE-OTHER-SKILL")).Call("Skill", `{"skill":"other"}`),
			}
			if !trusted { // the hook may not look at the call, so the call needs permission
				sub[1] = parleytest.Expect(anywhere("did not run"), nowhere("THE-DIRECTORY-SAYS"), nowhere("THE-OTHER-SKILL")).Call("Skill", `{"skill":"other"}`)
			}
			if trusted {
				sub = append(sub, parleytest.Expect(anywhere("THE-OTHER-SKILL")).Call("mcp__web__hello", `{}`), parleytest.Expect(parleytest.ToolResult("HELLO")).Say("report"))
			} else {
				sub = append(sub, parleytest.Expect(anywhere("THE-OTHER-SKILL")).Say("report"))
			}
			s := parleytest.Script(
				parleytest.Call("Agent", `{"description":"d","prompt":"SUBPROMPT","subagent_type":"helper","run_in_background":false}`),
				parleytest.Expect(parleytest.ToolResult("report")).Say("main"))
			s.When("sub", parleytest.SystemPrompt("You help."), sub...)
			m := s.Model()
			m.Strict = true
			cfg := agent.Config{Cwd: dir, Model: m, Store: &session.Memory{}, SettingSources: []string{"project"}, Environ: []string{"PATH=" + os.Getenv("PATH")}}
			if trusted {
				cfg.TrustProject = "all"
			}
			got := say(t, cfg, []string{"--allowedTools", "mcp__web,Skill"}, hello)
			if got.result == nil || got.result.Result != "main" {
				t.Errorf("%+v %v", got.result, m.Err())
			}
			text, _ := os.ReadFile(filepath.Join(dir, "hook.txt"))
			if want := "ran\nstopped\n"; (string(text) == want) != trusted {
				t.Errorf("the hooks wrote %q", text)
			}
			warned := slices.ContainsFunc(got.all, func(m wire.Message) bool {
				i, ok := m.(*wire.Informational)
				return ok && strings.Contains(i.Content, "is not trusted")
			})
			if warned == trusted {
				t.Error("warned:", warned)
			}
		})
	}
}

// A named plugin provides agents, hooks and servers.
func TestPluginBrings(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the hook is a line for a shell")
	}
	url := webServer(t)
	dir, plugin := t.TempDir(), filepath.Join(t.TempDir(), "kit")
	write(t, filepath.Join(plugin, ".claude-plugin", "plugin.json"), `{"name":"kit"}`)
	write(t, filepath.Join(plugin, "agents", "a.md"), "---\nname: smith\ndescription: d\n---\nYou forge.")
	write(t, filepath.Join(plugin, "hooks", "hooks.json"), `{"hooks":{"PreToolUse":[{"matcher":"Agent","hooks":[{"type":"command","command":"sh '${CLAUDE_PLUGIN_ROOT}/say.sh'"}]}]}}`)
	write(t, filepath.Join(plugin, "say.sh"), "echo ran >> hook.txt")
	write(t, filepath.Join(plugin, ".mcp.json"), `{"mcpServers":{"web":{"type":"http","url":"`+url+`"}}}`)
	for _, args := range [][]string{{"--plugin-dir", plugin}, {"--plugin-dir-no-mcp", plugin}} {
		served := args[0] == "--plugin-dir"
		tools := parleytest.Tools("mcp__plugin_kit_web__hello")
		if !served {
			tools = tools.Not()
		}
		s := parleytest.Script(
			parleytest.Expect(tools).Call("Agent", `{"description":"d","prompt":"SUBPROMPT","subagent_type":"kit:smith","run_in_background":false}`),
			parleytest.Expect(parleytest.ToolResult("forged")).Say("main"))
		s.When("sub", parleytest.SystemPrompt("You forge."), parleytest.Say("forged"))
		m := s.Model()
		m.Strict = true
		got := say(t, agent.Config{Cwd: dir, Model: m, Store: &session.Memory{}, Environ: []string{"PATH=" + os.Getenv("PATH")}}, args, hello)
		if got.result == nil || got.result.Result != "main" || !slices.Contains(got.init.Agents, "kit:smith") {
			t.Errorf("%+v %v", got.result, m.Err())
		}
		if text, _ := os.ReadFile(filepath.Join(dir, "hook.txt")); string(text) != "ran\n" {
			t.Errorf("the hook wrote %q", text)
		}
		os.Remove(filepath.Join(dir, "hook.txt"))
	}
}

// With --agent the conversation itself is the agent, wherever that is defined; an unknown one
// answers nothing.
func TestMainAgent(t *testing.T) {
	defined := `{"smith":{"description":"d","prompt":"You forge.","tools":["Read","Bash(echo:*)","Agent(Explore)"],"model":"haiku","initialPrompt":"BEGIN","maxTurns":3}}`
	play := func() *parleytest.Model {
		m := parleytest.Script(
			parleytest.Expect(parleytest.SystemPrompt("You forge."), parleytest.ModelName("haiku"), anywhere("BEGIN"), parleytest.Tools("Read", "Bash"), parleytest.Tools("Write").Not(),
				anywhere("- Explore"), nowhere("- Plan")).Call("Bash", `{"command":"true x; ls"}`),
			parleytest.Expect(parleytest.ToolError("may not")).Say("main")).Model()
		m.Strict = true
		return m
	}
	initialize := `{"type":"control_request","request_id":"i","request":{"subtype":"initialize","systemPrompt":[""],"agents":` + defined + `}}`
	for name, tt := range map[string]struct {
		args  []string
		lines []string
	}{
		"flag": {[]string{"--agent", "smith", "--agents", defined}, []string{hello}},
		"host": {[]string{"--agent", "smith"}, []string{initialize, hello}},
	} {
		t.Run(name, func(t *testing.T) {
			m := play()
			got := say(t, agent.Config{Cwd: t.TempDir(), Model: m, Store: &session.Memory{}}, append(tt.args, "--permission-mode", "default", "--allowedTools", "Bash"), tt.lines...)
			if got.result == nil || got.result.Result != "main" {
				t.Errorf("%+v %v", got.result, m.Err())
			}
		})
	}
	got := say(t, agent.Config{Cwd: t.TempDir(), Model: parleytest.Script(parleytest.Say("no")).Model(), Store: &session.Memory{}}, []string{"--agent", "nobody"}, hello)
	if got.result == nil || !got.result.IsError || !strings.Contains(strings.Join(got.result.Errors, ""), "No agent is named nobody") || got.result.NumTurns != 0 {
		t.Errorf("%+v", got.result)
	}
}
