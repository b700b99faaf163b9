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
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// heard records what hooks received, from several goroutines.
type heard struct {
	mu  sync.Mutex
	all []string
}

func (h *heard) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, fmt.Sprintf(format, args...))
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.all, "; ")
}

// TestEventsOfCalls checks that hooks learn that a call changed the directory, and that an
// answer added a directory and wrote a settings file, and that their additions reach the
// model.
func TestEventsOfCalls(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the command is one for bash")
	}
	dir, outside := workdir(t)
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o777); err != nil {
		t.Fatal(err)
	}
	var h heard
	p := promptIn(t, dir, parleytest.Script(
		parleytest.Call("Bash", map[string]string{"command": "cd sub && touch made"}),
		parleytest.Expect(anywhere("now in sub")).Say("done"),
	), func(o *parley.Options, cfg *agent.Config) {
		cfg.Home = outside
		cfg.SettingSources = []string{"user", "project", "local"}
		o.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
			r := parley.Allow()
			r.UpdatedPermissions = []*wire.PermissionUpdate{
				{Type: wire.UpdateAddDirectories, Directories: []string{outside}, Destination: wire.DestinationSession},
				{Type: wire.UpdateAddRules, Behavior: wire.BehaviorAllow, Rules: []*wire.PermissionRule{{ToolName: "Bash", RuleContent: "make"}}, Destination: wire.DestinationLocalSettings},
			}
			return r, nil
		}
		o.Hooks = []parley.Hook{
			parley.On("", func(_ context.Context, in *wire.CwdChangedInput) (*wire.HookOutput, error) {
				h.add("from %s to %s", filepath.Base(in.OldCwd), filepath.Base(in.NewCwd))
				return &wire.HookOutput{SystemMessage: "now in sub"}, nil
			}),
			parley.On("", func(_ context.Context, in *wire.DirectoryAddedInput) (*wire.HookOutput, error) {
				h.add("added %s", filepath.Base(in.Directory))
				return nil, nil
			}),
			parley.On("", func(_ context.Context, in *wire.ConfigChangeInput) (*wire.HookOutput, error) {
				h.add("%s %s", in.Source, filepath.Base(in.FilePath))
				return nil, nil
			}),
			parley.On("Bash", func(context.Context, *wire.PostToolUseInput) (*wire.HookOutput, error) {
				return &wire.HookOutput{HookSpecificOutput: &wire.PostToolUseOutput{AdditionalContext: "now in sub"}}, nil
			}),
		}
	})
	if got := h.String(); got != "added outside; local_settings settings.local.json; from project to sub" {
		t.Errorf("hooks heard %s", got)
	}
	if !slices.ContainsFunc(p.all, func(m wire.Message) bool {
		i, ok := m.(*wire.Informational)
		return ok && strings.Contains(i.Content, "CwdChanged says: now in sub")
	}) {
		t.Errorf("nobody was told: %s", kinds(p.all))
	}
}

// TestModelCommandHooks checks that hooks run before /model changes the model, and after
// it.
func TestModelCommandHooks(t *testing.T) {
	var h heard
	opts, _, _ := inProcess(t, parleytest.Script(parleytest.Expect(parleytest.ModelName("haiku")).Say("done")))
	opts.Hooks = []parley.Hook{
		parley.On("", func(_ context.Context, in *wire.PreModelSwitchInput) (*wire.HookOutput, error) {
			h.add("switch to %s by %s", in.RequestedModel, in.Source)
			out := &wire.PreModelSwitchOutput{PermissionDecision: wire.BehaviorAllow}
			if in.RequestedModel == "sonnet" {
				out.PermissionDecision, out.PermissionDecisionReason = wire.BehaviorDeny, "too dear"
			}
			return &wire.HookOutput{HookSpecificOutput: out}, nil
		}),
		parley.On("", func(_ context.Context, in *wire.PostModelSwitchInput) (*wire.HookOutput, error) {
			h.add("switched to %s by %s", in.RequestedModel, in.Source)
			return nil, nil
		}),
	}
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if r, err := run(t, c, "/model sonnet"); r == nil || !strings.Contains(r.Result, "too dear") {
		t.Errorf("%+v %v", r, err)
	}
	for _, text := range []string{"/model haiku", "hi"} {
		if r, err := run(t, c, text); err != nil || r.IsError {
			t.Errorf("%s: %+v %v", text, r, err)
		}
	}
	if got := h.String(); got != "switch to sonnet by command; switch to haiku by command; switched to haiku by command" {
		t.Errorf("hooks heard %s", got)
	}
}

// TestFailureAndNotificationHooks checks that hooks learn that the model did not answer,
// and command hooks that somebody is asked for permission; a host that is asked is not
// notified.
func TestFailureAndNotificationHooks(t *testing.T) {
	var h heard
	stop := parley.On("", func(_ context.Context, in *wire.StopFailureInput) (*wire.HookOutput, error) {
		h.add("failed: %s", in.Error)
		return nil, nil
	})
	stopped := parley.On("", func(context.Context, *wire.StopInput) (*wire.HookOutput, error) {
		h.add("stopped")
		return nil, nil
	})
	promptIn(t, t.TempDir(), parleytest.Script(parleytest.Fail(400)), func(o *parley.Options, _ *agent.Config) { o.Hooks = []parley.Hook{stop, stopped} })
	if got := h.String(); got != "failed: unknown" {
		t.Errorf("hooks heard %s", got)
	}
	if runtime.GOOS == "windows" {
		return
	}
	dir, _ := workdir(t)
	said := filepath.Join(dir, "said")
	var n heard
	opts, _, _ := inProcess(t, parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Say("done")))
	opts.Cwd, opts.Env = dir, map[string]string{"PATH": os.Getenv("PATH")}
	opts.Settings = json.RawMessage(`{"hooks":{"Notification":[{"hooks":[{"type":"command","command":"cat >> ` + said + `"}]}]}}`)
	opts.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
		// The command runs while somebody is asked; nothing waits for it.
		testwait.Until(t, "the hook runs", func() bool {
			text, _ := os.ReadFile(said)
			return strings.HasSuffix(strings.TrimSpace(string(text)), "}")
		})
		return parley.Deny("no"), nil
	}
	opts.Hooks = []parley.Hook{parley.On("", func(_ context.Context, in *wire.NotificationInput) (*wire.HookOutput, error) {
		n.add("%s", in.NotificationType)
		return nil, nil
	})}
	if _, _, err := collect(t, opts, "hi"); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(said)
	if !strings.Contains(string(text), "permission_prompt") || n.String() != "" {
		t.Errorf("the command heard %q, the host %q", text, n.String())
	}
}

// TestInstructionsHook checks that command hooks learn which files of instructions were
// read.
func TestInstructionsHook(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the hook is a line for a shell")
	}
	dir, _ := workdir(t)
	said := filepath.Join(dir, "said")
	write(t, filepath.Join(dir, "CLAUDE.md"), "@more.md\nBe kind.")
	write(t, filepath.Join(dir, "more.md"), "Be brief.")
	write(t, filepath.Join(dir, "sub", "CLAUDE.md"), "Be bold.")
	write(t, filepath.Join(dir, "sub", "f.txt"), "x")
	all := play(t, agent.Config{Cwd: dir, SettingSources: []string{"user", "project", "local"}}, parleytest.Script(
		parleytest.Call("Read", map[string]string{"file_path": filepath.Join(dir, "sub", "f.txt")}), parleytest.Say("done"),
	), "--include-hook-events", "--settings", `{"hooks":{"SessionEnd":[{"hooks":[{"type":"command","command":"true"}]}],"Stop":[{"hooks":[{"type":"command","command":"true"}]}],"InstructionsLoaded":[{"hooks":[{"type":"command","command":"cat >> `+said+`; echo >> `+said+`"}]}]}}`)
	for _, m := range all { // as in the official command, hosts do not see the hooks of some events begin and end
		if h, ok := m.(*wire.HookStarted); ok && h.HookEvent != wire.EventStop {
			t.Errorf("the host saw a hook of %s begin", h.HookEvent)
		}
	}
	if n := count[*wire.HookStarted](all); n != 1 {
		t.Errorf("the host saw %d hooks begin, want that of Stop", n)
	}
	text, _ := os.ReadFile(said)
	var got []string
	for line := range strings.Lines(string(text)) {
		var in wire.InstructionsLoadedInput
		if json.Unmarshal([]byte(line), &in) == nil && in.FilePath != "" {
			rel, _ := filepath.Rel(dir, in.FilePath)
			got = append(got, filepath.ToSlash(rel)+" "+in.MemoryType+" "+in.LoadReason)
		}
	}
	slices.Sort(got)
	if text := strings.Join(got, "; "); text != "CLAUDE.md Project session_start; more.md Project include; sub/CLAUDE.md Project nested_traversal" {
		t.Errorf("the hook heard %s", text)
	}
}

// askingServer is an MCP server on loopback whose tool asks the user for a name.
func askingServer(t *testing.T) string {
	s := mcp.NewServer(&mcp.Implementation{Name: "web", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		a, err := r.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Your name?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`)})
		if err != nil {
			return nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprint("it was ", a.Action, " ", a.Content["name"])}}}, nil
	})
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return srv.URL
}

// TestElicitationHooks checks that a hook answers a server's question for the user, or
// changes the answer, or denies it.
func TestElicitationHooks(t *testing.T) {
	url := askingServer(t)
	answer := func(action wire.ElicitAction, name string) parley.Hook {
		return parley.On("web", func(_ context.Context, in *wire.ElicitationInput) (*wire.HookOutput, error) {
			if in.Message != "Your name?" {
				return nil, fmt.Errorf("the message is %q", in.Message)
			}
			return &wire.HookOutput{HookSpecificOutput: &wire.ElicitationOutput{Action: action, Content: json.RawMessage(`{"name":"` + name + `"}`)}}, nil
		})
	}
	for name, tt := range map[string]struct {
		hooks []parley.Hook
		want  string
	}{
		"answered": {[]parley.Hook{answer(wire.ElicitAccept, "Ada")}, "it was accept Ada"},
		"declined": {[]parley.Hook{answer(wire.ElicitDecline, "")}, "it was decline"},
		"changed": {[]parley.Hook{answer(wire.ElicitAccept, "Ada"), parley.On("", func(_ context.Context, in *wire.ElicitationResultInput) (*wire.HookOutput, error) {
			return &wire.HookOutput{HookSpecificOutput: &wire.ElicitationResultOutput{Action: wire.ElicitAccept, Content: json.RawMessage(strings.Replace(string(in.Content), "Ada", "Grace", 1))}}, nil
		})}, "it was accept Grace"},
		"forbidden": {[]parley.Hook{answer(wire.ElicitAccept, "Ada"), parley.On("", func(context.Context, *wire.ElicitationResultInput) (*wire.HookOutput, error) {
			return &wire.HookOutput{Decision: wire.DecisionBlock}, nil
		})}, "it was decline"},
	} {
		t.Run(name, func(t *testing.T) {
			opts, m, _ := inProcess(t, parleytest.Script(parleytest.Call("mcp__web__ask", `{}`), parleytest.Expect(parleytest.ToolResult(tt.want)).Say("done")))
			opts.MCPServers = map[string]*wire.MCPServerConfig{"web": {Type: "http", URL: url}}
			opts.AllowedTools, opts.Hooks = []string{"mcp__web"}, tt.hooks
			if _, r, err := collect(t, opts, "hi"); err != nil || r.Result != "done" {
				t.Errorf("%+v %v %v", r, err, m.Err())
			}
		})
	}
}

// TestUpdatedMCPToolOutput checks that the model reads the output with which a hook
// replaces the result of an MCP tool; for another tool it changes nothing.
func TestUpdatedMCPToolOutput(t *testing.T) {
	url := webServer(t)
	dir, _ := workdir(t)
	opts, m, _ := inProcess(t, parleytest.Script(
		parleytest.Call("mcp__web__hello", `{}`).Call("Read", map[string]string{"file_path": filepath.Join(dir, "a.txt")}),
		parleytest.Expect(parleytest.ToolResult("REDACTED"), parleytest.ToolResult("alpha"), nowhere("HELLO")).Say("done")))
	opts.Cwd = dir
	opts.MCPServers = map[string]*wire.MCPServerConfig{"web": {Type: "http", URL: url}}
	opts.AllowedTools = []string{"mcp__web"}
	opts.Hooks = []parley.Hook{parley.On("", func(_ context.Context, in *wire.PostToolUseInput) (*wire.HookOutput, error) {
		return &wire.HookOutput{HookSpecificOutput: &wire.PostToolUseOutput{UpdatedMCPToolOutput: json.RawMessage(`[{"type":"text","text":"REDACTED"}]`)}}, nil
	})}
	if _, r, err := collect(t, opts, "hi"); err != nil || r.Result != "done" {
		t.Errorf("%+v %v %v", r, err, m.Err())
	}
}

// TestServersMeetRules checks that a call of an MCP tool with a file of a deny rule needs
// permission even where nothing else would, and does not run if nobody allows it.
func TestServersMeetRules(t *testing.T) {
	ran := new(heard)
	s := mcp.NewServer(&mcp.Implementation{Name: "fs", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "read_file", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		ran.add("%s", r.Params.Arguments)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "read"}}}, nil
	})
	dir, _ := workdir(t)
	opts, m, _ := inProcess(t, parleytest.Script(
		parleytest.Call("mcp__fs__read_file", `{"path":".env"}`).Call("mcp__fs__read_file", map[string]string{"path": filepath.Join(dir, "x", "..", ".env")}).Call("mcp__fs__read_file", `{"path":"a.txt"}`),
		parleytest.Say("done")))
	opts.Cwd, opts.ToolServers = dir, map[string]*mcp.Server{"fs": s}
	opts.PermissionMode, opts.AllowBypass = wire.ModeBypassPermissions, true
	opts.Settings = json.RawMessage(`{"permissions":{"deny":["Read(.env)"]}}`)
	all, r, err := collect(t, opts, "hi")
	if err != nil || r.Result != "done" || m.Err() != nil {
		t.Fatalf("%+v %v %v", r, err, m.Err())
	}
	if got := outcomes(played{all: all, r: r}); got != "denied denied ran" || ran.String() != `{"path":"a.txt"}` {
		t.Errorf("%s; the server ran %s", got, ran)
	}
}

// TestReceiptsOfSubagents checks that the record of a call names the agent that made it,
// and has every field that is needed to understand the decision.
func TestReceiptsOfSubagents(t *testing.T) {
	dir, _ := workdir(t)
	if err := os.Symlink(".env", filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	store := &session.Memory{}
	s := parleytest.Script(
		parleytest.Call("Agent", `{"description":"d","prompt":"SUB","run_in_background":false}`),
		parleytest.Say("main"))
	s.When("sub", parleytest.FirstUser("SUB"),
		parleytest.Call("Bash", map[string]string{"command": "env cat link"}), parleytest.Say("done"))
	var agents heard
	res, err := parley.Run(t.Context(), "hi", &parley.Options{Cwd: dir, Dialer: agent.InProcess(agent.Config{Model: s.Model(), Store: store}),
		Settings: json.RawMessage(`{"permissions":{"deny":["Read(.env)"]}}`),
		Hooks: []parley.Hook{parley.On("Bash", func(_ context.Context, in *wire.PreToolUseInput) (*wire.HookOutput, error) {
			agents.add("%s", in.AgentID)
			return &wire.HookOutput{HookSpecificOutput: &wire.PreToolUseOutput{PermissionDecision: wire.BehaviorAllow, PermissionDecisionReason: "fine"}}, nil
		})}})
	if err != nil || res.Result != "main" {
		t.Fatal(res, err)
	}
	var bash *policy.Receipt
	keys, err := store.Subkeys(t.Context(), session.Key{Project: session.ProjectKey(dir), Session: res.SessionID})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range append([]string{""}, keys...) {
		lines, err := store.Load(t.Context(), session.Key{Project: session.ProjectKey(dir), Session: res.SessionID, Sub: key})
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			var rec struct {
				Type    string          `json:"type"`
				Receipt *policy.Receipt `json:"receipt"`
			}
			if json.Unmarshal(line, &rec) == nil && rec.Type == "parley-receipt" && rec.Receipt.Tool == "Bash" {
				bash = rec.Receipt
			}
		}
	}
	if bash == nil {
		t.Fatal("there is no receipt of the call")
	}
	r := bash
	if r.AgentID == "" || r.AgentID != agents.String() {
		t.Errorf("the agent is %q in the receipt and %q to the hook", r.AgentID, agents.String())
	}
	if len(r.Commands) != 2 || !slices.Equal(r.Commands[1].Args, []string{"cat", "link"}) || r.Commands[1].Via != "env" {
		t.Errorf("the commands are %+v", r.Commands)
	}
	if len(r.Files) != 1 || r.Files[0].Path != filepath.Join(dir, "link") || r.Files[0].Resolved != filepath.Join(dir, ".env") || r.Files[0].Via != "cat" {
		t.Errorf("the files are %+v", r.Files)
	}
	if r.Rule == nil || r.Rule.String() != "Read(.env)" || r.Rule.Source.File == "" || r.Rule.Source.Line != 1 {
		t.Errorf("the rule is %+v", r.Rule)
	}
	if len(r.Hooks) != 1 || r.Hooks[0].Event != "PreToolUse" || r.Hooks[0].Decision != "allow" || r.Hooks[0].Reason != "fine" {
		t.Errorf("the hooks are %+v", r.Hooks)
	}
	if r.ToolUseID == "" || r.Behavior != wire.BehaviorDeny || r.Answer != wire.BehaviorDeny || r.By != "policy" || r.At.IsZero() || r.Mode == "" || len(r.Roots) == 0 || !strings.Contains(string(r.Input), "cat link") || r.Reason == "" || r.ReasonType != "rule" {
		t.Errorf("the receipt is %+v", r)
	}
}

// TestPluginHooksNotRun checks that a hook of a plugin that this version cannot run is
// reported, not silently skipped; one that could forbid something prevents the start.
func TestPluginHooksNotRun(t *testing.T) {
	for _, event := range []string{"Stop", "PreToolUse"} {
		plugin := filepath.Join(t.TempDir(), "kit")
		write(t, filepath.Join(plugin, ".claude-plugin", "plugin.json"), `{"name":"kit"}`)
		write(t, filepath.Join(plugin, "hooks", "hooks.json"), `{"hooks":{"`+event+`":[{"hooks":[{"type":"script","prompt":"x"}]}]}}`)
		got := say(t, agent.Config{Cwd: t.TempDir(), Model: parleytest.Script(parleytest.Say("done")).Model(), Store: &session.Memory{}}, []string{"--plugin-dir", plugin}, hello)
		told := slices.ContainsFunc(got.all, func(m wire.Message) bool {
			i, ok := m.(*wire.Informational)
			return ok && strings.Contains(i.Content, "hooks.json:1") && strings.Contains(i.Content, `"script"`) && strings.Contains(i.Content, "Stop")
		})
		if event == "Stop" && (!told || got.result == nil || got.result.Result != "done") {
			t.Errorf("%s: told is %v, %s, %+v", event, told, kinds(got.all), got.result)
		}
		if event == "PreToolUse" && (got.code == 0 || !strings.Contains(got.stderr, "hooks.json:1")) {
			t.Errorf("%s: %d %s", event, got.code, got.stderr)
		}
	}
}
