package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// every returns options that together have everything set, as far as options do not
// exclude each other; the last resumes a session that does not exist.
func every(t *testing.T, dir string) []*parley.Options {
	plugin := filepath.Join(dir, "plugin")
	prompt := filepath.Join(dir, "prompt.txt")
	settings := filepath.Join(dir, "settings.json")
	for file, content := range map[string]string{
		filepath.Join(plugin, ".claude-plugin", "plugin.json"): `{"name":"small","version":"1.0.0","description":"A plugin."}`,
		prompt:   "You are brief.",
		settings: `{"cleanupPeriodDays":10}`,
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	no := false
	allow := func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) { return parley.Allow(), nil }
	return []*parley.Options{
		{
			Model: "claude-sonnet-4-5", FallbackModels: []string{"claude-opus-4-5"}, Effort: wire.EffortLow, Betas: []string{"context-1m-2025-08-07"},
			Thinking:          parley.Thinking{Mode: parley.ThinkingAdaptive, Display: "summarized"},
			SystemPromptParts: []string{"You are brief.", parley.SystemPromptBoundary, "It is late."}, AppendSystemPrompt: "Be kind.",
			ExcludeDynamicSections: true, FreshSystemPrompt: true, PlanModeInstructions: "Plan.", VerbatimPrompts: true,
			Tools: []string{"Read", "Bash"}, AllowedTools: []string{"Read"}, DisallowedTools: []string{"Bash(rm:*)"}, ToolAliases: map[string]string{"Cat": "Read"},
			Skills: []string{"small"}, MCPConfig: []string{`{"mcpServers":{}}`}, StrictMCPConfig: true,
			MCPServers:  map[string]*wire.MCPServerConfig{"none": {Type: "stdio", Command: filepath.Join(dir, "none")}},
			ToolServers: map[string]*mcp.Server{"calc": parley.ToolServer("calc", reverse)},
			Agents:      map[string]*wire.AgentDefinition{"helper": {Description: "Helps.", Prompt: "Help."}}, Agent: "helper",
			Plugins:        []*wire.PluginConfig{{Type: "local", Path: plugin}},
			PermissionMode: wire.ModeDefault, CanUseTool: allow, AllowBypass: true,
			Hooks: []parley.Hook{parley.On("", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) { return nil, nil })},
			OnElicitation: func(context.Context, *wire.Elicitation) (*wire.ElicitResult, error) {
				return &wire.ElicitResult{Action: "decline"}, nil
			},
			OnUserDialog: func(context.Context, *wire.RequestUserDialog) (*wire.RequestUserDialogResponse, error) {
				return nil, errors.New("no dialogs here")
			},
			DialogKinds: []string{"refusal_fallback_prompt"},
			AddDirs:     []string{plugin}, Settings: json.RawMessage(`{"cleanupPeriodDays":10}`), SettingSources: []string{"project"},
			ManagedSettings: json.RawMessage(`{"permissions":{"deny":["WebFetch"]}}`), Sandbox: &wire.SandboxSettings{Enabled: &no},
			SessionID: "4b5a8f6e-2f6e-4d5b-9c1e-0f4d6f7f8a9c", Title: "All of it", NoPersistence: true, Checkpoints: true,
			MaxTurns: 3, MaxBudgetUSD: 1.5, TaskBudget: 50_000,
			PartialMessages: true, HookEvents: true, SubagentText: true, ReplayUserMessages: true, PromptSuggestions: true, ProgressSummaries: true, SpareTasks: true,
			Debug: true, DebugFile: filepath.Join(dir, "debug.txt"),
			ExtraArgs: map[string]string{"prefill": "H"},
		},
		{
			Model: "claude-sonnet-4-5", Thinking: parley.Thinking{Mode: parley.ThinkingBudget, Budget: 2000}, SystemPromptFile: prompt,
			Tools: []string{}, AllSkills: true, PermissionPromptTool: "mcp__small__ask", NoPermissionPrompts: true, SettingsFile: settings, SettingSources: []string{},
			Plugins: []*wire.PluginConfig{{Type: "local", Path: plugin, SkipMCPDiscovery: true}}, Continue: true,
		},
		{
			Model: "claude-sonnet-4-5", Thinking: parley.Thinking{Mode: parley.ThinkingDisabled}, KeepSystemPrompt: true,
			Plugins: []*wire.PluginConfig{{Type: "local", Path: plugin}}, PluginsInStart: true, SessionStore: &session.Memory{},
		},
		{
			Resume: "00000000-0000-4000-8000-000000000000", Fork: true, SessionID: "4b5a8f6e-2f6e-4d5b-9c1e-0f4d6f7f8a9d",
			ResumeAt: "00000000-0000-4000-8000-000000000001", ResumeDropsTurn: "00000000-0000-4000-8000-000000000002",
		},
	}
}

// TestClaudeKnowsOurFlags checks that the official CLI knows every flag that our SDK
// can pass.
func TestClaudeKnowsOurFlags(t *testing.T) {
	p := peers(t)
	var mu sync.Mutex
	passed := map[string]bool{}
	for i, o := range every(t, t.TempDir()) {
		api := parleytest.NewAPI(t, parleytest.Script().Default(parleytest.Say("ello.")), &parleytest.APIOptions{Lenient: true})
		dir := t.TempDir()
		o.Path, o.Cwd = p.CLI(), dir
		o.Env = map[string]string{"HOME": filepath.Join(dir, "home"), "ANTHROPIC_BASE_URL": api.URL, "ANTHROPIC_API_KEY": fakeKey}
		o.Dialer = transport.DialerFunc(func(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			for _, arg := range spec.Args() {
				if name, ok := strings.CutPrefix(arg, "--"); ok {
					name, _, _ = strings.Cut(name, "=")
					passed[name] = true
				}
			}
			return new(transport.Process).Dial(ctx, spec)
		})
		var stderr bytes.Buffer
		o.Stderr = func(line string) {
			mu.Lock()
			defer mu.Unlock()
			if stderr.Len() < 4000 {
				stderr.WriteString(line + "\n")
			}
		}
		res, err := parley.Run(testwait.Context(t), "Say hello.", o)
		mu.Lock()
		said := stderr.String()
		mu.Unlock()
		switch {
		case strings.Contains(said, "unknown option"):
			t.Errorf("options %d: %s", i, said)
		case o.Resume != "":
			if res == nil || len(res.Errors) == 0 || !strings.Contains(res.Errors[0], o.Resume) {
				t.Errorf("options %d: not refused for the session: %+v, %v\n%s", i, res, err, said)
			}
		case err != nil:
			t.Errorf("options %d: %v\n%s", i, err, said)
		}
	}

	// An unknown flag is detected.
	_, err := parley.Run(t.Context(), "Say hello.", &parley.Options{Path: p.CLI(), Env: map[string]string{"HOME": t.TempDir()}, ExtraArgs: map[string]string{"no-such-flag": ""}})
	if exit := new(parley.ExitError); !errors.As(err, &exit) || !strings.Contains(err.Error(), "unknown option '--no-such-flag'") {
		t.Errorf("a flag that does not exist: %v", err)
	}

	// Every flag in the source was passed.
	source, err := os.ReadFile("../config.go")
	if err != nil {
		t.Fatal(err)
	}
	_, source, _ = bytes.Cut(source, []byte(") flags() ("))
	source, _, _ = bytes.Cut(source, []byte("\n}\n"))
	flags := regexp.MustCompile(`\b(?:set|flag|on|list|number)\("([A-Za-z-]+)"|"--([a-z-]+)`).FindAllSubmatch(source, -1)
	if len(flags) < 40 {
		t.Errorf("only %d flags in the source", len(flags))
	}
	for _, m := range flags {
		if name := string(m[1]) + string(m[2]); name != "" && !passed[name] {
			t.Errorf("--%s was not tried: set its option in the list above", name)
		}
	}
}
