package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

func ptr[T any](v T) *T { return &v }

// TestFlags has a row for each flag that an official SDK passes, with its value after a
// space and after an equals sign.
func TestFlags(t *testing.T) {
	const id = "11111111-1111-4111-8111-111111111111"
	for _, tt := range []struct {
		flag, value string
		more        []string // that it needs
		want        func(f *cli.Flags) (got, want any)
	}{
		{"--output-format", "json", nil, func(f *cli.Flags) (any, any) { return f.OutputFormat, "json" }},
		{"--output-format", "message", nil, func(f *cli.Flags) (any, any) { return f.OutputFormat, "stream-json" }},
		{"--input-format", "stream-json", []string{"--output-format=stream-json"}, func(f *cli.Flags) (any, any) { return f.InputFormat, "stream-json" }},
		{"--model", "opus", nil, func(f *cli.Flags) (any, any) { return f.Model, "opus" }},
		{"--fallback-model", "sonnet,haiku", nil, func(f *cli.Flags) (any, any) { return f.FallbackModels, []string{"sonnet", "haiku"} }},
		{"--effort", "HIGH", nil, func(f *cli.Flags) (any, any) { return f.Effort, "high" }},
		{"--max-turns", "-1", nil, func(f *cli.Flags) (any, any) { return f.MaxTurns, -1 }},
		{"--effort", "xhigh", nil, func(f *cli.Flags) (any, any) { return f.Effort, "xhigh" }},
		{"--thinking", "adaptive", nil, func(f *cli.Flags) (any, any) { return f.Thinking, "adaptive" }},
		{"--max-thinking-tokens", "2000", nil, func(f *cli.Flags) (any, any) { return f.ThinkingTokens, ptr(2000) }},
		{"--max-thinking-tokens", "0", nil, func(f *cli.Flags) (any, any) { return f.ThinkingTokens, ptr(0) }},
		{"--betas", "context-1m-2025-08-07,b", nil, func(f *cli.Flags) (any, any) { return f.Betas, []string{"context-1m-2025-08-07"} }},
		{"--max-turns", "5", nil, func(f *cli.Flags) (any, any) { return f.MaxTurns, 5 }},
		{"--max-budget-usd", "0.0001", nil, func(f *cli.Flags) (any, any) { return f.MaxBudget, int64(100_000) }},
		{"--max-budget-usd", "1", nil, func(f *cli.Flags) (any, any) { return f.MaxBudget, int64(1_000_000_000) }},
		{"--max-budget-usd", ".5", nil, func(f *cli.Flags) (any, any) { return f.MaxBudget, int64(500_000_000) }},
		{"--max-budget-usd", "1e-05", nil, func(f *cli.Flags) (any, any) { return f.MaxBudget, int64(10_000) }},
		{"--project-config-root", "/x", nil, func(f *cli.Flags) (any, any) { return f.ProjectRoot, "/x" }},
		{"--system-prompt", "", nil, func(f *cli.Flags) (any, any) { return f.SystemPrompt, ptr("") }},
		{"--system-prompt", "-x", nil, func(f *cli.Flags) (any, any) { return f.SystemPrompt, ptr("-x") }},
		{"--system-prompt-file", "p.md", nil, func(f *cli.Flags) (any, any) { return f.SystemPromptFile, "p.md" }},
		{"--append-system-prompt", "a=b", nil, func(f *cli.Flags) (any, any) { return f.AppendSystemPrompt, "a=b" }},
		{"--append-system-prompt-file", "p.md", nil, func(f *cli.Flags) (any, any) { return f.AppendSystemPromptFile, "p.md" }},
		{"--json-schema", `{"type":"object"}`, nil, func(f *cli.Flags) (any, any) { return f.JSONSchema, json.RawMessage(`{"type":"object"}`) }},
		{"--tools", "Read,Bash", nil, func(f *cli.Flags) (any, any) { return f.Tools, []string{"Read", "Bash"} }},
		{"--tools", "", nil, func(f *cli.Flags) (any, any) { return f.Tools, []string{} }},
		{"--tools", "default", nil, func(f *cli.Flags) (any, any) { return f.Tools, []string{"default"} }},
		{"--allowedTools", "Read,Bash(git diff:*, x),mcp__s", nil, func(f *cli.Flags) (any, any) {
			return f.AllowedTools, []string{"Read", "Bash(git diff:*, x)", "mcp__s"}
		}},
		{"--allowed-tools", "Read Bash(ls *)", nil, func(f *cli.Flags) (any, any) { return f.AllowedTools, []string{"Read", "Bash(ls *)"} }},
		{"--disallowedTools", "Write", nil, func(f *cli.Flags) (any, any) { return f.DisallowedTools, []string{"Write"} }},
		{"--disallowed-tools", "Write", nil, func(f *cli.Flags) (any, any) { return f.DisallowedTools, []string{"Write"} }},
		{"--permission-mode", "plan", nil, func(f *cli.Flags) (any, any) { return f.PermissionMode, wire.ModePlan }},
		{"--permission-mode", "delegate", nil, func(f *cli.Flags) (any, any) { return f.PermissionMode, wire.ModeDelegate }},
		{"--permission-mode", "default", nil, func(f *cli.Flags) (any, any) { return f.PermissionMode, wire.ModeDefault }},
		{"--permission-mode", "manual", nil, func(f *cli.Flags) (any, any) { return f.PermissionMode, wire.ModeDefault }},
		{"--permission-prompt-tool", "stdio", nil, func(f *cli.Flags) (any, any) { return f.PromptTool, "stdio" }},
		{"--permission-prompts", "none", nil, func(f *cli.Flags) (any, any) { return f.NoPrompts, true }},
		{"--permission-prompts", "host", nil, func(f *cli.Flags) (any, any) { return f.NoPrompts, false }},
		{"--add-dir", "/a,b", nil, func(f *cli.Flags) (any, any) { return f.AddDirs, []string{"/a,b"} }},
		{"--settings", `{"model":"x"}`, nil, func(f *cli.Flags) (any, any) { return f.Settings, `{"model":"x"}` }},
		{"--managed-settings", `{}`, nil, func(f *cli.Flags) (any, any) { return f.Managed, `{}` }},
		{"--setting-sources", "user,project", nil, func(f *cli.Flags) (any, any) { return f.SettingSources, []string{"user", "project"} }},
		{"--setting-sources", "", nil, func(f *cli.Flags) (any, any) { return f.SettingSources, []string{} }},
		{"--mcp-config", `{"mcpServers":{}}`, nil, func(f *cli.Flags) (any, any) { return f.MCPConfig, []string{`{"mcpServers":{}}`} }},
		{"--session-id", id, nil, func(f *cli.Flags) (any, any) { return f.SessionID, id }},
		{"--resume", id, nil, func(f *cli.Flags) (any, any) { return f.Resume, id }},
		{"--resume-session-at", id, []string{"--resume=" + id}, func(f *cli.Flags) (any, any) { return f.ResumeAt, id }},
		{"--resume-drops-turn", id, []string{"--resume=" + id, "--resume-session-at=" + id}, func(f *cli.Flags) (any, any) { return *f.DropsTurn, id }},
		{"--name", "n", nil, func(f *cli.Flags) (any, any) { return f.SessionName, "n" }},
		{"--api-key", "k", nil, func(f *cli.Flags) (any, any) { return f.APIKey, "k" }},
		{"--provider", "script", nil, func(f *cli.Flags) (any, any) { return f.Provider, "script" }},
		{"--base-url", "http://127.0.0.1:1", nil, func(f *cli.Flags) (any, any) { return f.BaseURL, "http://127.0.0.1:1" }},
		{"--script", "s", nil, func(f *cli.Flags) (any, any) { return f.Script, "s" }},
		{"--debug-file", "d", nil, func(f *cli.Flags) (any, any) { return f.DebugFile, "d" }},
	} {
		for _, args := range [][]string{{tt.flag, tt.value}, {tt.flag + "=" + tt.value}} {
			f, err := cli.Parse(append(slices.Clone(tt.more), args...))
			if err != nil {
				t.Errorf("%q: %v", args, err)
				continue
			}
			if got, want := tt.want(f); !reflect.DeepEqual(got, want) {
				t.Errorf("%q: got %#v, want %#v", args, got, want)
			}
			if f.HasPrompt || len(f.Ignored) > 0 {
				t.Errorf("%q: prompt %q, ignored %v", args, f.Prompt, f.Ignored)
			}
		}
	}
	for flag, field := range map[string]func(f *cli.Flags) bool{
		"-p": func(f *cli.Flags) bool { return f.Print }, "--print": func(f *cli.Flags) bool { return f.Print }, "--verbose": func(f *cli.Flags) bool { return f.Verbose },
		"--include-hook-events": func(f *cli.Flags) bool { return f.HookEvents }, "--allow-dangerously-skip-permissions": func(f *cli.Flags) bool { return f.AllowBypass },
		"--dangerously-skip-permissions": func(f *cli.Flags) bool { return f.SkipPermissions }, "--strict-mcp-config": func(f *cli.Flags) bool { return f.StrictMCP },
		"-c": func(f *cli.Flags) bool { return f.Continue }, "--continue": func(f *cli.Flags) bool { return f.Continue }, "--fork-session": func(f *cli.Flags) bool { return f.Fork },
		"--session-mirror": func(f *cli.Flags) bool { return f.Mirror }, "--no-session-persistence": func(f *cli.Flags) bool { return f.NoPersist }, "--debug": func(f *cli.Flags) bool { return f.Debug }, "-d": func(f *cli.Flags) bool { return f.Debug },
		"--debug-to-stderr": func(f *cli.Flags) bool { return f.DebugToStderr }, "-v": func(f *cli.Flags) bool { return f.Version }, "--help": func(f *cli.Flags) bool { return f.Help },
		"--bare": func(f *cli.Flags) bool { return f.Bare }, "--init-only": func(f *cli.Flags) bool { return f.InitOnly },
		"--init": func(f *cli.Flags) bool { return f.Init }, "--maintenance": func(f *cli.Flags) bool { return f.Maintenance },
	} {
		f, err := cli.Parse([]string{flag, "prompt"})
		if err != nil || !field(f) || f.Prompt != "prompt" {
			t.Errorf("%s: %v %+v", flag, err, f)
		}
		if f, err := cli.Parse([]string{flag + "=false"}); err != nil || field(f) && flag != "--debug" && flag != "-d" {
			t.Errorf("%s=false: %v", flag, err)
		}
	}
}

// TestOfficialFlags checks that every flag of the official command is known, if only to
// report that it is not supported.
func TestOfficialFlags(t *testing.T) {
	for _, name := range strings.Fields(`--add-dir --agent --agents --allow-dangerously-skip-permissions --allowedTools --allowed-tools --append-system-prompt --append-system-prompt-file
		--autocompact --ax-screen-reader --bg --background --bare --betas --brief --chrome --cloud -c --continue --dangerously-skip-permissions -d --debug --debug-file --debug-to-stderr
		--desktop --disable-slash-commands --disallowedTools --disallowed-tools --effort --environment --exclude-dynamic-system-prompt-sections --fallback-model --file --fork-session
		--forward-subagent-text --from-pr -h --help --ide --include-hook-events --include-partial-messages --input-format --json-schema --max-budget-usd --mcp-config --model -n --name
		--no-chrome --no-session-persistence --output-format --permission-mode --permission-prompts --permission-prompt-tool --plugin-dir --plugin-dir-no-mcp --plugin-url -p --print
		--prompt-suggestions --remote-control --remote-control-session-name-prefix --replay-user-messages --restricted -r --resume --resume-session-at --resume-drops-turn --rewind-files
		--safe-mode --session-id --session-mirror --setting-sources --settings --managed-settings --managed-settings-in-initialize --strict-mcp-config --system-prompt --system-prompt-file
		--system-prompt-snapshot --teleport --tmux --tools --verbose -v --version -w --worktree --max-turns --max-thinking-tokens --thinking --thinking-display --task-budget --init
		--init-only --maintenance --enable-auth-status --workload --advisor --prefill --await-initialize --await-claim --project-config-root`) {
		if _, err := cli.Parse([]string{name}); err != nil && strings.Contains(err.Error(), "unknown option") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDebugFile checks that debug output goes to the named file.
func TestDebugFile(t *testing.T) {
	dir := t.TempDir()
	var stdout, stderr bytes.Buffer
	cfg := Config{Cwd: dir, Model: parleytest.Script(parleytest.Say("hello")).Model(), Store: &session.Memory{}}
	if code := Run(t.Context(), cfg, []string{"-p", "hi", "--debug-file", "log/debug.txt", "--settings", `{"ofLater":1}`}, strings.NewReader(""), &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Errorf("exit status %d, %s", code, &stderr)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "log", "debug.txt")); err != nil || !strings.Contains(string(text), "the setting ofLater is not known") {
		t.Errorf("%q %v", text, err)
	}
	cfg.Model = parleytest.Script(parleytest.Say("hello")).Model()
	if code := Run(t.Context(), cfg, []string{"-p", "hi", "--debug-file", "log/debug.txt/x"}, strings.NewReader(""), &stdout, &stderr); code != 1 || !strings.Contains(stderr.String(), "the debug file cannot be written") {
		t.Errorf("exit status %d, %s", code, &stderr)
	}
}

// TestSessionName checks that a session that starts with a title is found by it.
func TestSessionName(t *testing.T) {
	cfg := Config{Cwd: t.TempDir(), Store: &session.Memory{}}
	for _, args := range [][]string{{"-p", "hi", "--name", "Tuesday"}, {"-p", "again", "--resume", "tuesday"}} {
		var stdout, stderr bytes.Buffer
		cfg.Model = parleytest.Script(parleytest.Say("hello")).Model()
		if code := Run(t.Context(), cfg, args, strings.NewReader(""), &stdout, &stderr); code != 0 {
			t.Errorf("%q: exit status %d, %s", args, code, &stderr)
		}
	}
	// If there is none, a person gets one message.
	var stdout, stderr bytes.Buffer
	if code := Run(t.Context(), cfg, []string{"-p", "hi", "--resume", "Wednesday"}, strings.NewReader(""), &stdout, &stderr); code != 1 || stdout.Len() > 0 || stderr.String() != "No conversation found with the title: Wednesday. \"parley sessions\" lists all.\n" {
		t.Errorf("exit status %d, %q %q", code, &stdout, &stderr)
	}
}

func TestPrompts(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		prompt string
		has    bool
	}{
		{nil, "", false},
		{[]string{"hi"}, "hi", true},
		{[]string{"hi", "there"}, "hi there", true},
		{[]string{"-p", "hi", "--model", "x"}, "hi", true},
		{[]string{"--", "--model"}, "--model", true},
		{[]string{"-p", "--", "-x", "y"}, "-x y", true},
		{[]string{""}, "", true},
		{[]string{"-"}, "-", true},
		{[]string{"--allowedTools", "Read", "Bash", "--", "hi"}, "hi", true},
		{[]string{"--allowedTools", "Read", "-p", "hi"}, "hi", true},
		{[]string{"--allowedTools=Read", "hi"}, "hi", true},
		{[]string{"--add-dir", "/a", "/b", "--verbose", "hi"}, "hi", true},
	} {
		f, err := cli.Parse(tt.args)
		if err != nil || f.Prompt != tt.prompt || f.HasPrompt != tt.has {
			t.Errorf("%q: %v, prompt %q", tt.args, err, f.Prompt)
		}
	}
}

func TestBadFlags(t *testing.T) {
	for _, tt := range []struct {
		args []string
		text string
	}{
		{[]string{"--bogus"}, "error: unknown option '--bogus'. Run \"parley help flags\" for the list"},
		{[]string{"--bogus=1"}, "error: unknown option '--bogus'"},
		{[]string{"--modle", "x"}, "error: unknown option '--modle' (did you mean --model?)"},
		{[]string{"--permission-mode", "bogus"}, "error: option '--permission-mode <mode>' argument 'bogus' is invalid. Allowed choices are acceptEdits, auto, bypassPermissions, manual, dontAsk, plan"},
		{[]string{"--output-format=xml"}, "error: option '--output-format <format>' argument 'xml' is invalid. Allowed choices are text, json, stream-json"},
		{[]string{"--session-id", "notauuid"}, "Error: Invalid session ID. Must be a valid UUID."},
		{[]string{"--model"}, "argument missing"},
		{[]string{"--allowedTools"}, "argument missing"},
		{[]string{"--max-turns", "many"}, "is invalid"},
		{[]string{"--max-budget-usd", "-1"}, "is invalid"},
		{[]string{"--max-budget-usd", "x"}, "is invalid"},
		{[]string{"--max-budget-usd", "1e400"}, "is invalid"},
		{[]string{"--max-budget-usd", "NaN"}, "is invalid"},
		{[]string{"--max-thinking-tokens", "x"}, "is invalid"},
		{[]string{"--autocompact", "50k"}, "from 100k to 1M"},
		{[]string{"--autocompact", "2M"}, "from 100k to 1M"},
		{[]string{"--autocompact", "NaN"}, "from 100k to 1M"},
		{[]string{"--autocompact", "soon"}, "from 100k to 1M"},
		{[]string{"--json-schema", "{"}, "not valid JSON"},
		{[]string{"--setting-sources", "nowhere"}, "user, project and local"},
		{[]string{"--verbose=maybe"}, "does not take the value"},
		{[]string{"--input-format", "stream-json"}, "Error: --input-format=stream-json requires output-format=stream-json."},
		{[]string{"--replay-user-messages"}, "Error: --replay-user-messages requires both --input-format=stream-json and --output-format=stream-json."},
		{[]string{"--include-partial-messages"}, "Error: --include-partial-messages requires --print and --output-format=stream-json."},
		{[]string{"-p", "hi", "--output-format", "stream-json"}, "Error: When using --print, --output-format=stream-json requires --verbose"},
		{[]string{"--resume-session-at", "x"}, "Error: --resume-session-at requires --resume"},
		{[]string{"--resume-drops-turn", "x", "--resume", "y"}, "requires --resume-session-at"},
		{[]string{"--resume", "x", "--continue"}, "cannot be combined"},
		{[]string{"--resume", "x", "--session-id", "11111111-1111-4111-8111-111111111111"}, "requires --fork-session"},
	} {
		var stdout, stderr bytes.Buffer
		code := Run(t.Context(), Config{Cwd: "/"}, tt.args, strings.NewReader(""), &stdout, &stderr)
		if code != 1 || !strings.Contains(stderr.String(), tt.text) || stdout.Len() > 0 || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%q: exit status %d, %q %q; want %q", tt.args, code, stderr.String(), stdout.String(), tt.text)
		}
		_, err := cli.Parse(tt.args)
		if usage := new(cli.UsageError); !errors.As(err, &usage) {
			t.Errorf("%q: error %v", tt.args, err)
		}
	}
}

// TestStartErrors checks that impossible options are reported in one sentence, and that
// restrictions that cannot be enforced are rejected.
func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "s.json"), []byte(`{"permissions":{"deny":["Bash("]}}`), 0o666); err != nil {
		t.Fatal(err)
	}
	home := func(name, text string) func(*Config) {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o777), os.WriteFile(path, []byte(text), 0o666)); err != nil {
			t.Fatal(err)
		}
		return func(c *Config) { c.Model, c.Store, c.Home = nil, nil, dir }
	}
	for _, tt := range []struct {
		name, text string
		args       []string
		change     func(*Config)
	}{
		{"a config file that is cut off", "config.json is malformed: it must be a JSON object such as", []string{"hi"}, home(".config/claude/config.json", `{"apiKey":`)},
		{"a config file of something else", "config.json is malformed: it must be a JSON object such as", []string{"hi"}, home(".config/claude/config.json", `["sk"]`)},
		{"no prompt", "Error: Input must be provided either through stdin or as a prompt argument when using --print", []string{"-p"}, nil},
		{"a flag that takes the prompt", "--tools took the words after it: put -- before the prompt", []string{"-p", "--tools", "Read", "hi"}, nil},
		{"a flag whose value is optional takes the prompt", "--worktree took the words after it: put -- before the prompt", []string{"-p", "--worktree", "hi"}, nil},
		{"a session that cannot be kept", "the session cannot be saved: ", []string{"hi"}, home(".claude/projects", "a file")},
		{"a server whose models nobody knows", "--provider openai needs --model NAME", []string{"hi", "--provider", "openai"}, func(c *Config) { c.Model = nil }},
		{"settings that are not there", "Error: Settings file not found: none.json", []string{"hi", "--settings", "none.json"}, nil},
		{"settings that are not JSON", "Error: Invalid JSON provided to --settings", []string{"hi", "--settings", "{oops"}, nil},
		{"a rule that is malformed", "no closing parenthesis", []string{"hi", "--settings", "s.json"}, nil},
		{"permissions that are malformed", "permissions.deny is a string", []string{"hi", "--settings", `{"permissions":{"deny":"Bash"}}`}, nil},
		{"a mode that is not there", `there is no permission mode "yolo"`, []string{"hi", "--settings", `{"permissions":{"defaultMode":"yolo"}}`}, nil},
		{"a sandbox", "the sandbox is not available", []string{"hi", "--settings", `{"sandbox":{"enabled":true,"bwrapPath":"/nonexistent"}}`}, nil},
		{"a managed sandbox", "the sandbox is not available", []string{"hi", "--managed-settings", `{"sandbox":{"enabled":true,"failIfUnavailable":true,"bwrapPath":"/nonexistent"}}`}, nil},
		{"a sandbox that is malformed", "the sandbox settings cannot be read", []string{"hi", "--settings", `{"sandbox":{"enabled":"yes"}}`}, nil},
		{"hooks", "of the type \"script\"", []string{"hi", "--settings", `{"hooks":{"PreToolUse":[{"hooks":[{"type":"script","prompt":"x"}]}]}}`}, nil},
		{"a matcher that is malformed", "the matcher \"(\" of a PreToolUse hook", []string{"hi", "--settings", `{"hooks":{"PreToolUse":[{"matcher":"(","hooks":[{"type":"command","command":"x"}]}]}}`}, nil},
		{"a digest that is malformed", "--trust-project takes all", []string{"hi", "--trust-project", "yes"}, nil},
		{"a project that is another", "not the trusted sha256:0", []string{"hi", "--trust-project", "sha256:0"}, nil},
		{"bypass that is disabled", "do not allow the mode bypassPermissions", []string{"hi", "--dangerously-skip-permissions", "--managed-settings", `{"permissions":{"disableBypassPermissionsMode":"disable"}}`}, nil},
		{"bypass as root", "--dangerously-skip-permissions cannot be used with root/sudo privileges for security reasons. Run it as another user", []string{"hi", "--dangerously-skip-permissions"}, func(c *Config) { c.Root = true }},
		{"bypass as root with the sandbox off", "cannot be used with root", []string{"hi", "--dangerously-skip-permissions", "--settings", `{"sandbox":{"enabled":false}}`}, func(c *Config) { c.Root = true }},
		{"a schema that cannot be", "the JSON schema cannot be used", []string{"hi", "--json-schema", `{"type":"array"}`}, nil},
		{"a prompt file that is not there", "the system prompt file does not exist", []string{"hi", "--system-prompt-file", "none"}, nil},
		{"a script that is not there", "--script FILE", []string{"hi", "--provider", "script"}, func(c *Config) { c.Model = nil }},
		{"a script and no provider for it", "--script needs --provider script", []string{"hi", "--script", "none"}, func(c *Config) { c.Model = nil }},
		{"no directory", "not an absolute path", []string{"hi"}, func(c *Config) { c.Cwd = "." }},
		{"a budget without a price", "the price of nobody-knows is unknown", []string{"hi", "--model", "nobody-knows", "--max-budget-usd", "1"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			cfg := Config{Cwd: dir, Model: parleytest.Script(parleytest.Say("never")).Model(), Store: &session.Memory{}}
			if tt.change != nil {
				tt.change(&cfg)
			}
			code := Run(t.Context(), cfg, tt.args, strings.NewReader(""), &stdout, &stderr)
			if code != 1 || !strings.Contains(stderr.String(), tt.text) || stdout.Len() > 0 {
				t.Errorf("exit status %d, %q %q", code, stderr.String(), stdout.String())
			}
		})
	}
}

// TestRunPrints checks the ways to print an answer.
func TestRunPrints(t *testing.T) {
	say := parleytest.Script(parleytest.Say("hello")).Model
	loop := parleytest.Script(parleytest.Call("Read", map[string]string{"file_path": "none"}).Usage(parleytest.Usage{Input: 100000}).Always()).Model
	for _, tt := range []struct {
		name  string
		args  []string
		stdin string
		model func() *parleytest.Model
		code  int
		check func(out string) bool
	}{
		{"text", []string{"-p", "hi"}, "", say, 0, func(out string) bool { return out == "hello\n" }},
		{"prompt on standard input", []string{"-p"}, "hi", say, 0, func(out string) bool { return out == "hello\n" }},
		{"prompt behind dashes", []string{"-p", "--", "-x"}, "", say, 0, func(out string) bool { return out == "hello\n" }},
		{"json", []string{"-p", "hi", "--output-format", "json"}, "", say, 0, func(out string) bool {
			return strings.HasPrefix(out, `{"type":"result"`) && strings.Count(out, "\n") == 1
		}},
		{"all json", []string{"-p", "hi", "--output-format", "json", "--verbose"}, "", say, 0, func(out string) bool {
			var all []map[string]any
			return json.Unmarshal([]byte(out), &all) == nil && len(all) == 3 && all[2]["type"] == "result" && strings.Count(out, "\n") == 1
		}},
		{"stream", []string{"-p", "hi", "--output-format", "stream-json", "--verbose"}, "", say, 0, func(out string) bool { return strings.Count(out, "\n") == 3 }},
		{"message", []string{"-p", "hi", "--output-format", "message"}, "", say, 0, func(out string) bool { return strings.Count(out, "\n") == 3 }},
		{"refused", []string{"-p", "hi"}, "", parleytest.Script(parleytest.Fail(400, "no")).Model, 1, func(out string) bool { return out == "API Error: 400 no\n" }},
		{"too many turns", []string{"-p", "hi", "--max-turns", "1"}, "", loop, 1, func(out string) bool { return out == "Error: Reached max turns (1)\n" }},
		{"too expensive", []string{"-p", "hi", "--max-budget-usd", "0.0001", "--model", "sonnet"}, "", loop, 1, func(out string) bool { return out == "Error: Exceeded USD budget (0.0001)\n" }},
		{"nothing to do", []string{"--init-only"}, "", say, 0, func(out string) bool { return out == "" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			cfg := Config{Cwd: t.TempDir(), Model: tt.model()}
			if code := Run(t.Context(), cfg, tt.args, strings.NewReader(tt.stdin), &stdout, &stderr); code != tt.code || !tt.check(stdout.String()) || stderr.Len() > 0 {
				t.Errorf("exit status %d, %q %q", code, stdout.String(), stderr.String())
			}
		})
	}
}

// TestRunCannotPrint checks that an answer that cannot be printed is reported on standard
// error.
func TestRunCannotPrint(t *testing.T) {
	file := filepath.Join(t.TempDir(), "full")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"text", "json", "message"} {
		stdout, err := os.Open(file) // which accepts nothing, like a full disk
		if err != nil {
			t.Fatal(err)
		}
		defer stdout.Close()
		var stderr bytes.Buffer
		cfg := Config{Cwd: t.TempDir(), Model: parleytest.Script(parleytest.Say("hello")).Model()}
		if code := Run(t.Context(), cfg, []string{"-p", "hi", "--output-format", format}, strings.NewReader(""), stdout, &stderr); code != 1 || !strings.HasPrefix(stderr.String(), "Error: the answer could not be written: ") {
			t.Errorf("%s: exit status %d, %q", format, code, stderr.String())
		}
	}
}

// TestRunRetries checks that a person who waits for a retry sees the reason.
func TestRunRetries(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		synctest.Test(t, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			cfg := Config{Cwd: "/", Model: parleytest.Script(parleytest.Fail(529, "busy"), parleytest.Say("hello")).Model()}
			code := Run(t.Context(), cfg, []string{"-p", "hi", "--output-format", format}, strings.NewReader(""), &stdout, &stderr)
			if code != 0 || !strings.Contains(stdout.String(), "hello") || !strings.HasPrefix(stderr.String(), "parley: the API answered with status 529; retrying in ") || !strings.HasSuffix(stderr.String(), " (1 of 10)\n") {
				t.Errorf("exit status %d, %q %q", code, stdout.String(), stderr.String())
			}
		})
	}
}

// TestBareTools checks the bare tools, and the effect of managed settings.
func TestRestrictingFlags(t *testing.T) {
	set, err := newSetup(&Config{Cwd: "/"}, &cli.Flags{Bare: true, AllowBypass: true, Managed: `{"permissions":{"deny":["Bash"],"allow":["Write"],"disableBypassPermissionsMode":"disable"}}`})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tl := range set.tools() {
		names = append(names, tl.Spec().Name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "Edit Read" { // a deny rule removes Bash
		t.Errorf("tools %s", got)
	}
	if set.bypassAllowed() {
		t.Error("bypass is allowed")
	}
	rules, err := set.rules()
	if err != nil || len(rules.Rules()) != 1 || rules.Rules()[0].Behavior != wire.BehaviorDeny {
		t.Errorf("%v, rules %v", err, rules)
	}
}
