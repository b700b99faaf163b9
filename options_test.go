package parley_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/parleytest/parrot"
	"github.com/parley-go/parley/parleytest/peer"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// A launch is the effect of options: what is dialed and what is sent first.
type launch struct {
	Path, Dir  string
	Args       []string          // after the fixed ones
	Env        map[string]string // differences from the zero value
	Initialize map[string]json.RawMessage
}

// fixedArgs are on every command line.
var fixedArgs = []string{"--output-format", "stream-json", "--verbose", "--input-format", "stream-json"}

// dial returns the effect of options, or the error of a query with them.
func dial(t *testing.T, opts parley.Options) (*launch, error) {
	t.Helper()
	var got *launch
	opts.Dialer = transport.DialerFunc(func(_ context.Context, spec transport.Spec) (transport.Conn, error) {
		got = &launch{Path: spec.Path, Dir: spec.Dir, Args: spec.Args(), Env: map[string]string{}}
		flags, err := cli.ParseSpec(spec.Words, spec.Flags)
		if want, wantErr := cli.Parse(spec.Args()); !reflect.DeepEqual(flags, want) || !reflect.DeepEqual(err, wantErr) {
			t.Errorf("the flags mean %+v, %v; their command line %q means %+v, %v", flags, err, spec.Args(), want, wantErr)
		}
		for _, kv := range spec.Env {
			k, v, _ := strings.Cut(kv, "=")
			got.Env[k] = v
		}
		conn, far := transport.Pipe()
		go func() {
			line, _ := bufio.NewReader(far).ReadBytes('\n')
			var frame struct {
				Request map[string]json.RawMessage `json:"request"`
			}
			if err := json.Unmarshal(line, &frame); err != nil {
				t.Errorf("the first frame is %q: %v", line, err)
			}
			got.Initialize = frame.Request
			far.Exit(0, "")
		}()
		return conn, nil
	})
	_, err := parley.Run(t.Context(), "hi", &opts)
	if got == nil {
		return nil, err
	}
	if n := len(fixedArgs); len(got.Args) < n || !slices.Equal(got.Args[:n], fixedArgs) {
		t.Fatalf("the command line begins with %q", got.Args)
	}
	got.Args = got.Args[len(fixedArgs):]
	return got, nil
}

func on[In wire.HookInput](context.Context, In) (*wire.HookOutput, error) { return nil, nil }

func elicit(context.Context, *wire.Elicitation) (*wire.ElicitResult, error) { return nil, nil }

func dialog(context.Context, *wire.RequestUserDialog) (*wire.RequestUserDialogResponse, error) {
	return nil, nil
}

func raw(context.Context, *wire.ControlRequest) (json.RawMessage, error) { return nil, nil }

const someUUID = "6f1c2f0e-6c1c-4f0a-9d55-0a9f6c1b2d3e"

// TestOptionsCarried checks that each option appears on the command line, in the
// environment or in the first request.
func TestOptionsCarried(t *testing.T) {
	t.Setenv("DEBUG_CLAUDE_AGENT_SDK", "")
	yes := true
	settings := filepath.Join(t.TempDir(), "settings.json")
	if err := os.WriteFile(settings, []byte(`{"model":"opus"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const own = `{"systemPrompt":null}` // the agent's own system prompt
	tests := []struct {
		name string
		opts parley.Options
		args []string
		env  map[string]string
		init string // members that differ from the zero value; null means none
	}{
		{name: "zero"},
		{name: "Model", opts: parley.Options{Model: "sonnet"}, args: []string{"--model=sonnet"}},
		{name: "FallbackModels", opts: parley.Options{FallbackModels: []string{"a", "b"}}, args: []string{"--fallback-model=a,b"}},
		{name: "Thinking adaptive", opts: parley.Options{Thinking: parley.Thinking{Mode: parley.ThinkingAdaptive, Display: "omitted"}}, args: []string{"--thinking=adaptive", "--thinking-display=omitted"}},
		{name: "Thinking budget", opts: parley.Options{Thinking: parley.Thinking{Mode: parley.ThinkingBudget, Budget: 2000}}, args: []string{"--max-thinking-tokens=2000"}},
		{name: "Thinking disabled", opts: parley.Options{Thinking: parley.Thinking{Mode: parley.ThinkingDisabled}}, args: []string{"--thinking=disabled"}},
		{name: "Effort", opts: parley.Options{Effort: "high"}, args: []string{"--effort=high"}},
		{name: "Betas", opts: parley.Options{Betas: []string{"x", "y"}}, args: []string{"--betas=x,y"}},

		{name: "SystemPrompt", opts: parley.Options{SystemPrompt: "Be brief."}, init: `{"systemPrompt":["Be brief."]}`},
		{name: "SystemPromptParts", opts: parley.Options{SystemPromptParts: []string{"a", parley.SystemPromptBoundary, "b"}}, init: `{"systemPrompt":["a","__SYSTEM_PROMPT_DYNAMIC_BOUNDARY__","b"]}`},
		{name: "SystemPromptFile", opts: parley.Options{SystemPromptFile: "p.md"}, args: []string{"--system-prompt-file=p.md"}, init: own},
		{name: "KeepSystemPrompt", opts: parley.Options{KeepSystemPrompt: true}, init: own},
		{name: "AppendSystemPrompt", opts: parley.Options{KeepSystemPrompt: true, AppendSystemPrompt: "And kind."}, init: `{"systemPrompt":null,"appendSystemPrompt":"And kind."}`},
		{name: "ExcludeDynamicSections", opts: parley.Options{KeepSystemPrompt: true, ExcludeDynamicSections: true}, init: `{"systemPrompt":null,"excludeDynamicSections":true}`},
		{name: "FreshSystemPrompt", opts: parley.Options{FreshSystemPrompt: true}, init: `{"systemPromptSnapshot":false}`},
		{name: "PlanModeInstructions", opts: parley.Options{PlanModeInstructions: "Draw it."}, init: `{"planModeInstructions":"Draw it."}`},

		{name: "Tools", opts: parley.Options{Tools: []string{"Read", "Grep"}}, args: []string{"--tools=Read,Grep"}},
		{name: "no Tools", opts: parley.Options{Tools: []string{}}, args: []string{"--tools="}},
		{name: "AllowedTools", opts: parley.Options{AllowedTools: []string{"Read", "Bash(git log, git diff)"}}, args: []string{"--allowedTools=Read,Bash(git log, git diff)"}},
		{name: "no AllowedTools", opts: parley.Options{AllowedTools: []string{}}},
		{name: "DisallowedTools", opts: parley.Options{DisallowedTools: []string{"Bash"}}, args: []string{"--disallowedTools=Bash"}},
		{name: "ToolAliases", opts: parley.Options{ToolAliases: map[string]string{"Sh": "Bash"}}, init: `{"toolAliases":{"Sh":"Bash"}}`},
		{name: "Skills", opts: parley.Options{Skills: []string{"pdf", "my skill"}}, args: []string{"--allowedTools=Skill(pdf),Skill(my skill)", "--setting-sources=user,project"}, init: `{"skills":["pdf","my skill"]}`},
		{name: "no Skills", opts: parley.Options{Skills: []string{}}, init: `{"skills":[]}`},
		{name: "Skills with sources", opts: parley.Options{Skills: []string{"pdf"}, SettingSources: []string{}}, args: []string{"--allowedTools=Skill(pdf)", "--setting-sources="}, init: `{"skills":["pdf"]}`},
		{name: "AllSkills", opts: parley.Options{AllSkills: true, AllowedTools: []string{"Read"}}, args: []string{"--allowedTools=Read,Skill"}},
		{
			name: "MCPServers", opts: parley.Options{MCPServers: map[string]*wire.MCPServerConfig{"db": {Command: "dbd", Args: []string{"-x"}}, "web": {Type: "http", URL: "http://h/"}}},
			args: []string{`--mcp-config={"mcpServers":{"db":{"command":"dbd","args":["-x"]},"web":{"type":"http","url":"http://h/"}}}`},
		},
		{name: "MCPConfig", opts: parley.Options{MCPConfig: []string{"a.json", `{"mcpServers":{}}`}}, args: []string{"--mcp-config=a.json", `--mcp-config={"mcpServers":{}}`}},
		{name: "ToolServers", opts: parley.Options{ToolServers: map[string]*mcp.Server{"calc": parley.ToolServer("calc"), "abc": parley.ToolServer("abc")}}, init: `{"sdkMcpServers":["abc","calc"]}`},
		{name: "StrictMCPConfig", opts: parley.Options{StrictMCPConfig: true}, args: []string{"--strict-mcp-config"}},
		{name: "Agents", opts: parley.Options{Agents: map[string]*wire.AgentDefinition{"rev": {Description: "d", Prompt: "p"}}}, init: `{"agents":{"rev":{"description":"d","prompt":"p"}}}`},
		{name: "Agent", opts: parley.Options{Agent: "rev"}, args: []string{"--agent=rev"}},
		{name: "Plugins", opts: parley.Options{Plugins: []*wire.PluginConfig{{Path: "p"}, {Path: "q", SkipMCPDiscovery: true}}}, args: []string{"--plugin-dir=p", "--plugin-dir-no-mcp=q"}},
		{name: "PluginsInStart", opts: parley.Options{Plugins: []*wire.PluginConfig{{Path: "p"}}, PluginsInStart: true}, args: []string{"--await-initialize"}, init: `{"plugins":[{"type":"local","path":"p"}]}`},

		{name: "PermissionMode", opts: parley.Options{PermissionMode: wire.ModePlan}, args: []string{"--permission-mode=plan"}},
		{name: "CanUseTool", opts: parley.Options{CanUseTool: allow}, args: []string{"--permission-prompt-tool=stdio"}},
		{name: "OnRequest", opts: parley.Options{OnRequest: raw}, args: []string{"--permission-prompt-tool=stdio"}},
		{name: "OnRequest with PermissionPromptTool", opts: parley.Options{OnRequest: raw, PermissionPromptTool: "mcp__x__ask"}, args: []string{"--permission-prompt-tool=mcp__x__ask"}},
		{name: "PermissionPromptTool", opts: parley.Options{PermissionPromptTool: "mcp__x__ask"}, args: []string{"--permission-prompt-tool=mcp__x__ask"}},
		{name: "NoPermissionPrompts", opts: parley.Options{NoPermissionPrompts: true}, args: []string{"--permission-prompts=none"}},
		{name: "AllowBypass", opts: parley.Options{AllowBypass: true, PermissionMode: wire.ModeBypassPermissions}, args: []string{"--permission-mode=bypassPermissions", "--allow-dangerously-skip-permissions"}},
		{
			name: "Hooks", opts: parley.Options{Hooks: []parley.Hook{
				parley.On("Bash|Write", on[*wire.PreToolUseInput]),
				parley.On("", on[*wire.StopInput]),
				parley.On("Read", on[*wire.PreToolUseInput]),
				parley.OnEvent("pre-commit", "", on[wire.HookInput]),
			}},
			init: `{"hooks":{
				"PreToolUse":[{"matcher":"Bash|Write","hookCallbackIds":["hook_0"],"onFailure":"block"},{"matcher":"Read","hookCallbackIds":["hook_2"],"onFailure":"block"}],
				"Stop":[{"hookCallbackIds":["hook_1"]}],
				"pre-commit":[{"hookCallbackIds":["hook_3"]}]}}`,
		},
		{
			name: "Hooks with bounds", opts: parley.Options{Hooks: []parley.Hook{withTimeout(parley.On("", on[*wire.UserPromptSubmitInput]), 1500*time.Millisecond, true)}},
			init: `{"hooks":{"UserPromptSubmit":[{"hookCallbackIds":["hook_0"],"timeout":1.5,"onFailure":"continue"}]}}`,
		},
		{name: "DialogKinds", opts: parley.Options{DialogKinds: []string{"k"}, OnUserDialog: dialog}, init: `{"supportedDialogKinds":["k"]}`},

		{name: "Cwd", opts: parley.Options{Cwd: "/nowhere"}, env: map[string]string{"PWD": "/nowhere"}},
		{name: "AddDirs", opts: parley.Options{AddDirs: []string{"a", "-b"}}, args: []string{"--add-dir=a", "--add-dir=-b"}},
		{name: "Env", opts: parley.Options{Env: map[string]string{"X_TEST": "1", "CLAUDE_CODE_ENTRYPOINT": "mine", "CLAUDE_AGENT_SDK_VERSION": "9"}}, env: map[string]string{"X_TEST": "1", "CLAUDE_CODE_ENTRYPOINT": "mine"}},
		{name: "Settings", opts: parley.Options{Settings: json.RawMessage(`{"a":1}`)}, args: []string{`--settings={"a":1}`}},
		{name: "SettingsFile", opts: parley.Options{SettingsFile: "s.json"}, args: []string{"--settings=s.json"}},
		{name: "SettingSources", opts: parley.Options{SettingSources: []string{"user", "local"}}, args: []string{"--setting-sources=user,local"}},
		{name: "no SettingSources", opts: parley.Options{SettingSources: []string{}}, args: []string{"--setting-sources="}},
		{name: "ManagedSettings", opts: parley.Options{ManagedSettings: json.RawMessage(`{"a":1}`)}, args: []string{`--managed-settings={"a":1}`}},
		{name: "Sandbox", opts: parley.Options{Sandbox: &wire.SandboxSettings{Enabled: &yes}, Settings: json.RawMessage(`{"a":1,"sandbox":{"x":2}}`)}, args: []string{`--settings={"a":1,"sandbox":{"enabled":true,"failIfUnavailable":true}}`}},
		{name: "Sandbox with a file", opts: parley.Options{Sandbox: &wire.SandboxSettings{}, SettingsFile: settings}, args: []string{`--settings={"model":"opus","sandbox":{}}`}},
		{name: "Sandbox with a file beside Cwd", opts: parley.Options{Sandbox: &wire.SandboxSettings{}, SettingsFile: "settings.json", Cwd: filepath.Dir(settings)}, args: []string{`--settings={"model":"opus","sandbox":{}}`}, env: map[string]string{"PWD": filepath.Dir(settings)}},

		{name: "Resume", opts: parley.Options{Resume: "abc"}, args: []string{"--resume=abc"}},
		{name: "Continue", opts: parley.Options{Continue: true}, args: []string{"--continue"}},
		{name: "Fork", opts: parley.Options{Resume: "abc", Fork: true, SessionID: someUUID}, args: []string{"--resume=abc", "--fork-session", "--session-id=" + someUUID}},
		{name: "SessionID", opts: parley.Options{SessionID: someUUID}, args: []string{"--session-id=" + someUUID}},
		{name: "ResumeAt", opts: parley.Options{Resume: "abc", ResumeAt: "m", ResumeDropsTurn: "n"}, args: []string{"--resume=abc", "--resume-session-at=m", "--resume-drops-turn=n"}},
		{
			name: "ExtraInitialize", opts: parley.Options{Title: "T", ExtraInitialize: map[string]json.RawMessage{"hooks": json.RawMessage(`{"Stop":[{"hookCallbackIds":["x"]}]}`), "systemPrompt": json.RawMessage(`"a"`), "new": json.RawMessage("{\n}")}},
			init: `{"title":"T","hooks":{"Stop":[{"hookCallbackIds":["x"]}]},"systemPrompt":"a","new":{}}`,
		},
		{name: "Title", opts: parley.Options{Title: "T"}, init: `{"title":"T"}`},
		{name: "NoPersistence", opts: parley.Options{NoPersistence: true}, args: []string{"--no-session-persistence"}},
		{name: "Checkpoints", opts: parley.Options{Checkpoints: true}, env: map[string]string{"CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "true"}},

		{name: "MaxTurns", opts: parley.Options{MaxTurns: 3}, args: []string{"--max-turns=3"}},
		{name: "MaxBudgetUSD", opts: parley.Options{MaxBudgetUSD: 0.0000001}, args: []string{"--max-budget-usd=0.0000001"}},
		{name: "TaskBudget", opts: parley.Options{TaskBudget: 5}, args: []string{"--task-budget=5"}},
		{name: "OutputSchema", opts: parley.Options{OutputSchema: json.RawMessage(`{"type":"object"}`)}, init: `{"jsonSchema":{"type":"object"}}`},

		{name: "PartialMessages", opts: parley.Options{PartialMessages: true}, args: []string{"--include-partial-messages"}},
		{name: "HookEvents", opts: parley.Options{HookEvents: true}, args: []string{"--include-hook-events"}},
		{name: "SubagentText", opts: parley.Options{SubagentText: true}, init: `{"forwardSubagentText":true}`},
		{name: "ReplayUserMessages", opts: parley.Options{ReplayUserMessages: true}, args: []string{"--replay-user-messages"}},
		{name: "PromptSuggestions", opts: parley.Options{PromptSuggestions: true}, init: `{"promptSuggestions":true}`},
		{name: "ProgressSummaries", opts: parley.Options{ProgressSummaries: true}, init: `{"agentProgressSummaries":true}`},
		{name: "SpareTasks", opts: parley.Options{SpareTasks: true}, init: `{"perTaskStopAffordance":true}`},
		{name: "Debug", opts: parley.Options{Debug: true}, args: []string{"--debug", "--debug-to-stderr"}, env: map[string]string{"DEBUG": "1"}},
		{name: "debug by environment", opts: parley.Options{Env: map[string]string{"DEBUG_CLAUDE_AGENT_SDK": "1"}}, args: []string{"--debug-to-stderr"}, env: map[string]string{"DEBUG": "1", "DEBUG_CLAUDE_AGENT_SDK": "1"}},
		{name: "DebugFile", opts: parley.Options{DebugFile: "d.log"}, args: []string{"--debug-file=d.log"}},
		{name: "ExtraArgs", opts: parley.Options{ExtraArgs: map[string]string{"b": "", "a": "-v"}}, args: []string{"--a=-v", "--b"}},
	}
	zero, err := dial(t, parley.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got := zero.Env["CLAUDE_CODE_ENTRYPOINT"]; got != "sdk-go" {
		t.Errorf("the entrypoint is %q", got)
	}
	if got := zero.Env["CLAUDE_AGENT_SDK_VERSION"]; got != parley.Version {
		t.Errorf("the version is %q", got)
	}
	if got := string(zero.Initialize["systemPrompt"]); got != `[""]` {
		t.Errorf("the system prompt is %s", got)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := dial(t, tt.opts)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Args, tt.args) {
				t.Errorf("the command line has\n%q, want\n%q", got.Args, tt.args)
			}
			changed := map[string]string{}
			for k, v := range got.Env {
				if old, ok := zero.Env[k]; !ok || old != v {
					changed[k] = v
				}
			}
			if !maps.Equal(changed, tt.env) {
				t.Errorf("the environment has %v, want %v", changed, tt.env)
			}
			want := maps.Clone(zero.Initialize)
			if tt.init != "" {
				var members map[string]json.RawMessage
				if err := json.Unmarshal([]byte(tt.init), &members); err != nil {
					t.Fatal(err)
				}
				for k, v := range members {
					if want[k] = v; string(v) == "null" {
						delete(want, k)
					}
				}
			}
			if !sameJSON(t, got.Initialize, want) {
				t.Errorf("initialize is\n%s, want\n%s", toJSON(t, got.Initialize), toJSON(t, want))
			}
		})
	}
}

func withTimeout(h parley.Hook, d time.Duration, open bool) parley.Hook {
	h.Timeout, h.FailOpen = d, open
	return h
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func sameJSON(t *testing.T, a, b any) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal([]byte(toJSON(t, a)), &x), json.Unmarshal([]byte(toJSON(t, b)), &y)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

// TestOptionsCleanEnv checks that nothing of this process reaches the agent.
func TestOptionsCleanEnv(t *testing.T) {
	t.Setenv("X_PARLEY", "1")
	t.Setenv("DEBUG_CLAUDE_AGENT_SDK", "1")
	t.Setenv("NODE_OPTIONS", "--inspect")
	t.Setenv("CLAUDECODE", "1")
	got, err := dial(t, parley.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Env["X_PARLEY"] != "1" || !slices.Contains(got.Args, "--debug-to-stderr") {
		t.Errorf("the environment of this process is not there: %v, %q", got.Env, got.Args)
	}
	for _, name := range []string{"NODE_OPTIONS", "CLAUDECODE"} {
		if v, ok := got.Env[name]; ok {
			t.Errorf("%s=%s reaches the agent", name, v)
		}
	}
	got, err = dial(t, parley.Options{CleanEnv: true, Env: map[string]string{"A": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"A": "b", "CLAUDE_CODE_ENTRYPOINT": "sdk-go", "CLAUDE_AGENT_SDK_VERSION": parley.Version}
	if !maps.Equal(got.Env, want) || len(got.Args) != 0 {
		t.Errorf("got %v, %q", got.Env, got.Args)
	}
}

// TestOptionsReflect checks that no option is forgotten: for each field of Options two
// values make a difference in what is dialed or sent first, or the test names another
// one that covers the field.
func TestOptionsReflect(t *testing.T) {
	yes := true
	// Two values for each field; rest is set for both.
	type pair struct {
		a, b any
		rest parley.Options
	}
	pairs := map[string]pair{
		"Model":                  {a: "a", b: "b"},
		"FallbackModels":         {a: []string{"a"}, b: []string{"b"}},
		"Thinking":               {a: parley.Thinking{Mode: parley.ThinkingAdaptive}, b: parley.Thinking{Mode: parley.ThinkingDisabled}},
		"Effort":                 {a: wire.EffortLow, b: wire.Effort("max")},
		"Betas":                  {a: []string{"a"}, b: []string{"b"}},
		"SystemPrompt":           {a: "a", b: "b"},
		"SystemPromptParts":      {a: []string{"a", "b"}, b: []string{"ab"}},
		"SystemPromptFile":       {a: "a", b: "b"},
		"KeepSystemPrompt":       {a: false, b: true},
		"AppendSystemPrompt":     {a: "a", b: "b"},
		"ExcludeDynamicSections": {a: false, b: true},
		"FreshSystemPrompt":      {a: false, b: true},
		"PlanModeInstructions":   {a: "a", b: "b"},
		"Tools":                  {a: []string(nil), b: []string{}},
		"AllowedTools":           {a: []string{"A"}, b: []string{"B"}},
		"DisallowedTools":        {a: []string{"A"}, b: []string{"B"}},
		"ToolAliases":            {a: map[string]string{"a": "b"}, b: map[string]string{"a": "c"}},
		"Skills":                 {a: []string(nil), b: []string{}},
		"AllSkills":              {a: false, b: true},
		"MCPServers":             {a: map[string]*wire.MCPServerConfig{"a": {Command: "a"}}, b: map[string]*wire.MCPServerConfig{"a": {Command: "b"}}},
		"MCPConfig":              {a: []string{"a"}, b: []string{"a", "b"}},
		"ToolServers":            {a: map[string]*mcp.Server{"a": parley.ToolServer("a")}, b: map[string]*mcp.Server{"b": parley.ToolServer("b")}},
		"StrictMCPConfig":        {a: false, b: true},
		"Agents":                 {a: map[string]*wire.AgentDefinition{"a": {}}, b: map[string]*wire.AgentDefinition{"a": {Prompt: "b"}}},
		"Agent":                  {a: "a", b: "b"},
		"Plugins":                {a: []*wire.PluginConfig{{Path: "a"}}, b: []*wire.PluginConfig{{Path: "a", SkipMCPDiscovery: true}}},
		"PluginsInStart":         {a: false, b: true, rest: parley.Options{Plugins: []*wire.PluginConfig{{Path: "a"}}}},
		"PermissionMode":         {a: wire.ModePlan, b: wire.ModeAcceptEdits},
		"CanUseTool":             {a: parley.CanUseTool(nil), b: parley.CanUseTool(allow)},
		"PermissionPromptTool":   {a: "a", b: "b"},
		"NoPermissionPrompts":    {a: false, b: true},
		"AllowBypass":            {a: false, b: true},
		"Hooks":                  {a: []parley.Hook(nil), b: []parley.Hook{parley.On("", on[*wire.StopInput])}},
		"DialogKinds":            {a: []string{"a"}, b: []string{"b"}, rest: parley.Options{OnUserDialog: dialog}},
		"Cwd":                    {a: "/a", b: "/b"},
		"AddDirs":                {a: []string{"a"}, b: []string{"b"}},
		"Env":                    {a: map[string]string{"A": "1"}, b: map[string]string{"A": "2"}},
		"CleanEnv":               {a: false, b: true},
		"Settings":               {a: json.RawMessage(`{}`), b: json.RawMessage(`{"a":1}`)},
		"SettingsFile":           {a: "a", b: "b"},
		"SettingSources":         {a: []string(nil), b: []string{}},
		"ManagedSettings":        {a: json.RawMessage(`{}`), b: json.RawMessage(`{"a":1}`)},
		"Sandbox":                {a: &wire.SandboxSettings{}, b: &wire.SandboxSettings{Enabled: &yes}},
		"Resume":                 {a: "a", b: "b"},
		"Continue":               {a: false, b: true},
		"Fork":                   {a: false, b: true, rest: parley.Options{Continue: true}},
		"SessionID":              {a: "", b: someUUID},
		"ResumeAt":               {a: "a", b: "b", rest: parley.Options{Resume: "x"}},
		"ResumeDropsTurn":        {a: "a", b: "b", rest: parley.Options{Resume: "x", ResumeAt: "y"}},
		"Title":                  {a: "a", b: "b"},
		"NoPersistence":          {a: false, b: true},
		"Checkpoints":            {a: false, b: true},
		"MaxTurns":               {a: 1, b: 2},
		"MaxBudgetUSD":           {a: 1.5, b: 2.0},
		"TaskBudget":             {a: 1, b: 2},
		"OutputSchema":           {a: json.RawMessage(`{}`), b: json.RawMessage(`{"type":"object"}`)},
		"PartialMessages":        {a: false, b: true},
		"HookEvents":             {a: false, b: true},
		"SubagentText":           {a: false, b: true},
		"ReplayUserMessages":     {a: false, b: true},
		"PromptSuggestions":      {a: false, b: true},
		"ProgressSummaries":      {a: false, b: true},
		"SpareTasks":             {a: false, b: true},
		"Debug":                  {a: false, b: true},
		"DebugFile":              {a: "a", b: "b"},
		"Path":                   {a: "a", b: "b"},
		"ExtraArgs":              {a: map[string]string{"a": "1"}, b: map[string]string{"a": ""}},
		"ExtraInitialize":        {a: map[string]json.RawMessage{"a": json.RawMessage("1")}, b: map[string]json.RawMessage{"a": json.RawMessage("2")}},
	}
	tests := map[string]string{
		"VerbatimPrompts": "TestVerbatimPrompts",
		"OnElicitation":   "TestElicitation",
		"OnUserDialog":    "TestUserDialog",
		"OnRequest":       "TestOnRequest",
		"Stderr":          "TestStderr",
		"OnWarning":       "TestShadowedWarning",
		"Logger":          "TestLogger",
		"Traces":          "TestTelemetry",
		"Metrics":         "TestTelemetry",
		"Dialer":          "ExampleOptions_dialer",
		"SessionStore":    "TestSessionStore",
		"InitTimeout":     "TestInitTimeout",
		"ControlTimeout":  "TestControlTimeout",
		"WriteTimeout":    "TestWriteTimeout",
		"IdleTimeout":     "TestIdleTimeout",
		"CloseTimeout":    "TestCloseTimeout",
		"MaxLine":         "TestMaxLine",
		"MaxBuffered":     "TestUnreadSpills",
		"MaxCallbacks":    "TestCallbacksAtOnce",
		"MaxQueued":       "TestOverflowEndsTurn",
	}
	there := testNames(t)
	fields := reflect.VisibleFields(reflect.TypeFor[parley.Options]())
	for _, f := range fields {
		p, hasPair := pairs[f.Name]
		test, hasTest := tests[f.Name]
		switch {
		case hasPair == hasTest:
			t.Errorf("Options.%s needs two values or a test", f.Name)
		case hasTest && !there[test]:
			t.Errorf("Options.%s: there is no %s", f.Name, test)
		case hasPair:
			var got [2]*launch
			for i, v := range []any{p.a, p.b} {
				opts := p.rest
				reflect.ValueOf(&opts).Elem().FieldByIndex(f.Index).Set(reflect.ValueOf(v))
				var err error
				if got[i], err = dial(t, opts); err != nil {
					t.Errorf("Options.%s = %v: %v", f.Name, v, err)
				}
			}
			if reflect.DeepEqual(got[0], got[1]) {
				t.Errorf("Options.%s: %v and %v make no difference", f.Name, p.a, p.b)
			}
		}
	}
	if n := len(pairs) + len(tests); n != len(fields) {
		t.Errorf("Options has %d fields, here are %d", len(fields), n)
	}
}

// testNames returns the functions of this package's test files.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if d, ok := d.(*ast.FuncDecl); ok && d.Recv == nil {
				names[d.Name.Name] = true
			}
		}
	}
	return names
}

// TestOptionErrors checks every rule that applies before anything is started. The error
// names the field.
func TestOptionErrors(t *testing.T) {
	const long = "\x00"
	tests := []struct {
		field string
		opts  parley.Options
	}{
		{"PermissionPromptTool", parley.Options{CanUseTool: allow, PermissionPromptTool: "x"}},
		{"PermissionMode", parley.Options{PermissionMode: wire.ModeBypassPermissions}},
		{"Continue", parley.Options{Continue: true, Resume: "x"}},
		{"Fork", parley.Options{Fork: true}},
		{"SessionStore", parley.Options{SessionStore: &session.Memory{}, NoPersistence: true}},
		{"SessionStore", parley.Options{SessionStore: &session.Memory{}, Checkpoints: true}},
		{"SessionID", parley.Options{SessionID: "not-a-uuid"}},
		{"SessionID", parley.Options{SessionID: someUUID + "\n"}},
		{"SessionID", parley.Options{SessionID: someUUID, Resume: "x"}},
		{"SessionID", parley.Options{SessionID: someUUID, Continue: true}},
		{"ResumeAt", parley.Options{ResumeAt: "x"}},
		{"ResumeDropsTurn", parley.Options{Resume: "x", ResumeDropsTurn: "y"}},
		{"SystemPromptParts", parley.Options{SystemPrompt: "x", SystemPromptParts: []string{"y"}}},
		{"SystemPromptFile", parley.Options{SystemPrompt: "x", SystemPromptFile: "y"}},
		{"KeepSystemPrompt", parley.Options{SystemPrompt: "x", KeepSystemPrompt: true}},
		{"DialogKinds", parley.Options{DialogKinds: []string{"x"}}},
		{"OnUserDialog", parley.Options{OnUserDialog: dialog}},
		{"SettingsFile", parley.Options{Settings: json.RawMessage(`{}`), SettingsFile: "x"}},
		{"SettingsFile", parley.Options{Sandbox: &wire.SandboxSettings{}, SettingsFile: "/there/is/none"}},
		{"Settings", parley.Options{Settings: json.RawMessage(`{"a":`)}},
		{"Settings", parley.Options{Settings: json.RawMessage(`"/etc/passwd"`)}},
		{"ManagedSettings", parley.Options{ManagedSettings: json.RawMessage(`x`)}},
		{"OutputSchema", parley.Options{OutputSchema: json.RawMessage(`[]`)}},
		{"Thinking", parley.Options{Thinking: parley.Thinking{Mode: "hard"}}},
		{"Thinking", parley.Options{Thinking: parley.Thinking{Mode: parley.ThinkingBudget}}},
		{"Thinking", parley.Options{Thinking: parley.Thinking{Mode: parley.ThinkingAdaptive, Budget: 5}}},
		{"Thinking", parley.Options{Thinking: parley.Thinking{Mode: parley.ThinkingDisabled, Display: "omitted"}}},
		{"MaxTurns", parley.Options{MaxTurns: -1}},
		{"MaxBudgetUSD", parley.Options{MaxBudgetUSD: -1}},
		{"MaxBudgetUSD", parley.Options{MaxBudgetUSD: math.NaN()}},
		{"MaxBudgetUSD", parley.Options{MaxBudgetUSD: math.Inf(1)}},
		{"TaskBudget", parley.Options{TaskBudget: -1}},
		{"PluginsInStart", parley.Options{PluginsInStart: true}},
		{"AllSkills", parley.Options{AllSkills: true, Skills: []string{"x"}}},
		{"InitTimeout", parley.Options{InitTimeout: -1}},
		{"ControlTimeout", parley.Options{ControlTimeout: -1}},
		{"WriteTimeout", parley.Options{WriteTimeout: -1}},
		{"CloseTimeout", parley.Options{CloseTimeout: -1}},
		{"MaxLine", parley.Options{MaxLine: -1}},
		{"MaxBuffered", parley.Options{MaxBuffered: -1}},
		{"MaxQueued", parley.Options{MaxQueued: -1}},

		{"MCPServers", parley.Options{MCPServers: map[string]*wire.MCPServerConfig{"x": nil}}},
		{"MCPServers", parley.Options{MCPServers: map[string]*wire.MCPServerConfig{"x y": {}}}},
		{"ToolServers", parley.Options{ToolServers: map[string]*mcp.Server{"x": nil}}},
		{"ToolServers", parley.Options{ToolServers: map[string]*mcp.Server{"": parley.ToolServer("x")}}},
		{"ToolServers", parley.Options{ToolServers: map[string]*mcp.Server{"x": parley.ToolServer("x")}, MCPServers: map[string]*wire.MCPServerConfig{"x": {}}}},
		{"Agents", parley.Options{Agents: map[string]*wire.AgentDefinition{"x": nil}}},
		{"Plugins", parley.Options{Plugins: []*wire.PluginConfig{nil}}},
		{"Plugins", parley.Options{Plugins: []*wire.PluginConfig{{}}}},
		{"Plugins", parley.Options{Plugins: []*wire.PluginConfig{{Type: "remote", Path: "x"}}}},
		{"Hooks", parley.Options{Hooks: []parley.Hook{{}}}},
		{"Hooks", parley.Options{Hooks: []parley.Hook{parley.On("", on[wire.HookInput])}}},
		{"Hooks", parley.Options{Hooks: []parley.Hook{parley.On("", on[*wire.UnknownInput])}}},
		{"Hooks", parley.Options{Hooks: []parley.Hook{parley.On("(", on[*wire.PreToolUseInput])}}},
		{"Hooks", parley.Options{Hooks: []parley.Hook{parley.On("Bash|*", on[*wire.PreToolUseInput])}}},
		{"Hooks", parley.Options{Hooks: []parley.Hook{parley.On("[a", on[*wire.PreToolUseInput])}}},
		{"Hooks", parley.Options{Hooks: []parley.Hook{parley.On("(?!a", on[*wire.PreToolUseInput])}}},
		{"Hooks", parley.Options{Hooks: []parley.Hook{parley.On("(?i)bash", on[*wire.PreToolUseInput])}}},
		{"Hooks", parley.Options{Hooks: []parley.Hook{parley.On("(?P<x>a)", on[*wire.PreToolUseInput])}}},
		{"Hooks", parley.Options{Hooks: []parley.Hook{parley.On(`\ABash\z`, on[*wire.PreToolUseInput])}}},
		{"Hooks", parley.Options{Hooks: []parley.Hook{parley.OnEvent("Stop", "+", on[wire.HookInput])}}},
		{"MaxCallbacks", parley.Options{MaxCallbacks: -1}},
		{"Hooks", parley.Options{Hooks: []parley.Hook{withTimeout(parley.On("", on[*wire.StopInput]), -1, false)}}},
		{"FallbackModels", parley.Options{FallbackModels: []string{"a,b"}}},
		{"Betas", parley.Options{Betas: []string{""}}},
		{"SettingSources", parley.Options{SettingSources: []string{"user,project"}}},
		{"ExtraArgs", parley.Options{ExtraArgs: map[string]string{"--model": "x"}}},
		{"ExtraArgs", parley.Options{ExtraArgs: map[string]string{"model=x --y": ""}}},
		{"ExtraArgs", parley.Options{ExtraArgs: map[string]string{"": "x"}}},
		{"ExtraInitialize", parley.Options{ExtraInitialize: map[string]json.RawMessage{"x": json.RawMessage("{")}}},
		{"ExtraInitialize", parley.Options{ExtraInitialize: map[string]json.RawMessage{"x": nil}}},
		{"ExtraInitialize", parley.Options{ExtraInitialize: map[string]json.RawMessage{"title": json.RawMessage(`"a"`)}, Title: "b"}},
		{"ExtraInitialize", parley.Options{ExtraInitialize: map[string]json.RawMessage{"subtype": json.RawMessage(`"a"`)}}},
		{"ExtraInitialize", parley.Options{ExtraInitialize: map[string]json.RawMessage{"systemPrompt": json.RawMessage(`"a"`)}, SystemPrompt: "b"}},
		{"Env", parley.Options{Env: map[string]string{"A=B": "x"}}},
		{"Env", parley.Options{Env: map[string]string{"": "x"}}},
		{"Env", parley.Options{Env: map[string]string{"A": long}}},

		{"Tools", parley.Options{Tools: []string{"Read,Bash"}}},
		{"AllowedTools", parley.Options{AllowedTools: []string{"Read,Bash"}}},
		{"AllowedTools", parley.Options{AllowedTools: []string{"Read Bash"}}},
		{"AllowedTools", parley.Options{AllowedTools: []string{"Bash(ls),Write"}}},
		{"AllowedTools", parley.Options{AllowedTools: []string{"Bash(ls"}}},
		{"AllowedTools", parley.Options{AllowedTools: []string{"Bash(ls))"}}},
		{"AllowedTools", parley.Options{AllowedTools: []string{")Write("}}},
		{"AllowedTools", parley.Options{AllowedTools: []string{"Bash(ls\nrm)"}}},
		{"AllowedTools", parley.Options{AllowedTools: []string{""}}},
		{"DisallowedTools", parley.Options{DisallowedTools: []string{" "}}},
		{"Skills", parley.Options{Skills: []string{""}}},
		{"Skills", parley.Options{Skills: []string{" pdf"}}},
		{"Skills", parley.Options{Skills: []string{"pdf),Bash("}}},
		{"Skills", parley.Options{Skills: []string{"pdf(x)"}}},
		{"Skills", parley.Options{Skills: []string{"a,b"}}},
		{"Skills", parley.Options{Skills: []string{"*"}}},
		{"Skills", parley.Options{Skills: []string{"pdf:*"}}},
		{"Skills", parley.Options{Skills: []string{"pdf *"}}},
		{"Skills", parley.Options{Skills: []string{"/pdf"}}},
		{"Skills", parley.Options{Skills: []string{`a\\b`}}},
		{"Skills", parley.Options{Skills: []string{`a\`}}},
		{"Skills", parley.Options{Skills: []string{"a\x85b"}}},
		{"Skills", parley.Options{Skills: []string{"a\u009fb"}}},
		{"Skills", parley.Options{Skills: []string{"\ufeffa"}}},
		{"Skills", parley.Options{Skills: []string{"a\xed\xa0\x80"}}}, // a surrogate

		{"Model", parley.Options{Model: long}},
		{"Effort", parley.Options{Effort: long}},
		{"Thinking", parley.Options{Thinking: parley.Thinking{Display: long}}},
		{"FallbackModels", parley.Options{FallbackModels: []string{"a\x00"}}},
		{"Resume", parley.Options{Resume: long}},
		{"ResumeAt", parley.Options{Resume: "x", ResumeAt: long}},
		{"Cwd", parley.Options{Cwd: long}},
		{"Path", parley.Options{Path: long}},
		{"AddDirs", parley.Options{AddDirs: []string{long}}},
		{"MCPConfig", parley.Options{MCPConfig: []string{long}}},
		{"Plugins", parley.Options{Plugins: []*wire.PluginConfig{{Path: long}}}},
		{"ExtraArgs", parley.Options{ExtraArgs: map[string]string{"a": long}}},
		{"Agent", parley.Options{Agent: long}},
		{"PermissionMode", parley.Options{PermissionMode: long}},
		{"PermissionPromptTool", parley.Options{PermissionPromptTool: long}},
		{"SettingsFile", parley.Options{SettingsFile: long}},
		{"SystemPromptFile", parley.Options{SystemPromptFile: long}},
		{"DebugFile", parley.Options{DebugFile: long}},
	}
	for _, tt := range tests {
		got, err := dial(t, tt.opts)
		var bad *parley.OptionError
		switch {
		case got != nil:
			t.Errorf("%s: an agent was started with %q", tt.field, got.Args)
		case !errors.As(err, &bad):
			t.Errorf("%s: got %v, want an *OptionError", tt.field, err)
		case bad.Option != tt.field || bad.Reason == "":
			t.Errorf("%s: got %v", tt.field, err)
		}
		if _, err := parley.Connect(t.Context(), &tt.opts); !errors.As(err, &bad) {
			t.Errorf("%s: Connect: %v", tt.field, err)
		}
	}
}

// TestOptionsInject checks that text with dashes, quotes and the like stays a single
// argument.
func TestOptionsInject(t *testing.T) {
	const evil = "--dangerously-skip-permissions"
	got, err := dial(t, parley.Options{
		Resume: evil, Model: "-p", Agent: evil, AddDirs: []string{evil}, DebugFile: evil, SettingsFile: evil,
		AllowedTools: []string{evil}, DisallowedTools: []string{evil}, Tools: []string{evil}, Betas: []string{evil},
		ExtraArgs: map[string]string{"x": evil}, MCPConfig: []string{evil}, Title: evil, SystemPrompt: evil,
		Plugins: []*wire.PluginConfig{{Path: evil}}, PermissionPromptTool: evil, PermissionMode: evil, Effort: evil,
		SettingSources: []string{evil}, FallbackModels: []string{evil},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, arg := range got.Args {
		if flag, _, ok := strings.Cut(arg, "="); !ok || flag == evil || !strings.HasPrefix(flag, "--") {
			t.Errorf("the argument %q", arg)
		}
	}
}

// TestShadowedWarning checks that options that defeat CanUseTool are reported once,
// when an agent is started, and not before.
func TestShadowedWarning(t *testing.T) {
	tests := []struct {
		name string
		opts parley.Options
		want string // a part of the warning; empty means no warning
	}{
		{"bypass", parley.Options{CanUseTool: allow, AllowedTools: []string{"Write"}, PermissionMode: wire.ModeBypassPermissions, AllowBypass: true}, "never asked"},
		{"rules for some tools, a callback for the rest", parley.Options{CanUseTool: allow, AllSkills: true, AllowedTools: []string{"Read", "Write(*)", "Bash(ls)"}}, ""},
		{"no callback", parley.Options{AllowedTools: []string{"Write"}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var warnings []error
			opts := tt.opts
			opts.OnWarning = func(err error) { warnings = append(warnings, err) }
			opts.Dialer = peer.AgentDialer(parrot.Agent{})
			query := parley.Query(t.Context(), "echo hi", &opts)
			if len(warnings) != 0 {
				t.Errorf("warned before the start: %v", warnings)
			}
			for _, err := range query {
				if err != nil {
					t.Error(err)
				}
			}
			switch {
			case tt.want == "" && len(warnings) == 0:
			case len(warnings) != 1 || tt.want == "" || !strings.Contains(warnings[0].Error(), tt.want):
				t.Errorf("got %v, want one with %q", warnings, tt.want)
			}
		})
	}
	t.Run("panic", func(t *testing.T) {
		opts := parley.Options{CanUseTool: allow, AllowedTools: []string{"Write"}, Dialer: peer.AgentDialer(parrot.Agent{})}
		opts.OnWarning = func(error) { panic("no") }
		if _, err := parley.Run(t.Context(), "echo hi", &opts); err != nil {
			t.Error(err)
		}
	})
}

// TestLogger checks that internal events are logged to the Logger of the options.
func TestLogger(t *testing.T) {
	var log bytes.Buffer
	opts := parley.Options{
		CanUseTool: allow, PermissionMode: wire.ModeBypassPermissions, AllowBypass: true,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Dialer: peer.AgentDialer(parrot.Agent{}),
	}
	if _, err := parley.Run(t.Context(), "echo hi", &opts); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "CanUseTool is never asked") {
		t.Errorf("logged %q", log.String())
	}
}
