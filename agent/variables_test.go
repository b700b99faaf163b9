package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
)

// TestVariables checks that the variables of the official command reach the request. The rows
// are the requests of that command.
func TestVariables(t *testing.T) {
	for _, tt := range []struct {
		vars, args string
		path, want string // a member of the request, and its JSON; "" if it must be absent
	}{
		{"MAX_THINKING_TOKENS=3000", "--model claude-sonnet-4-5", "thinking.budget_tokens", "3000"},
		{"MAX_THINKING_TOKENS=0", "--model claude-sonnet-4-5", "thinking.type", `"disabled"`},
		{"MAX_THINKING_TOKENS=0", "--model sonnet", "thinking.type", `"adaptive"`},
		{"MAX_THINKING_TOKENS=3000", "--model claude-sonnet-4-5 --max-thinking-tokens 2000", "thinking.budget_tokens", "2000"},
		{"CLAUDE_CODE_MAX_OUTPUT_TOKENS=5000", "--model claude-sonnet-4-5", "max_tokens", "5000"},
		{"CLAUDE_CODE_MAX_OUTPUT_TOKENS=5000", "--model claude-sonnet-4-5", "thinking.budget_tokens", "4999"},
		{"CLAUDE_CODE_MAX_OUTPUT_TOKENS=500000", "--model claude-sonnet-4-5", "max_tokens", "64000"},
		{"CLAUDE_CODE_EFFORT_LEVEL=low", "--model sonnet", "output_config.effort", `"low"`},
		{"CLAUDE_CODE_EFFORT_LEVEL=low", "--model sonnet --effort high", "output_config.effort", `"high"`},
		{"", "--model claude-sonnet-4-5 --task-budget 50000", "output_config.task_budget", `{"total":50000,"type":"tokens"}`},
		{"", "--model claude-sonnet-4-5", "output_config", ""},
	} {
		t.Run(strings.TrimSpace(tt.vars+" "+tt.args), func(t *testing.T) {
			body, _ := requestWith(t, tt.vars, tt.args)
			var at any = body
			for name := range strings.SplitSeq(tt.path, ".") {
				m, _ := at.(map[string]any)
				at = m[name]
			}
			got, _ := json.Marshal(at)
			if at == nil {
				got = nil
			}
			if string(got) != tt.want {
				t.Errorf("%s is %s, want %s", tt.path, got, tt.want)
			}
		})
	}
	t.Run("prompt caching", func(t *testing.T) {
		for vars, want := range map[string]bool{"": true, "DISABLE_PROMPT_CACHING=1": false} {
			body, _ := requestWith(t, vars, "")
			text, _ := json.Marshal(body)
			if got := strings.Contains(string(text), "cache_control"); got != want {
				t.Errorf("%q: marks for the cache: %v, want %v", vars, got, want)
			}
		}
	})
	t.Run("timeouts of Bash", func(t *testing.T) {
		body, _ := requestWith(t, "BASH_DEFAULT_TIMEOUT_MS=1500 BASH_MAX_TIMEOUT_MS=2500", "--tools Bash")
		text, _ := json.Marshal(body["tools"])
		if !strings.Contains(string(text), "at most 2500") {
			t.Errorf("the model is offered %s", text)
		}
	})
	t.Run("no background", func(t *testing.T) {
		body, _ := requestWith(t, "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1", "--tools Bash")
		if text, _ := json.Marshal(body["tools"]); strings.Contains(string(text), "background") {
			t.Errorf("the model is offered %s", text)
		}
	})
	t.Run("requested betas", func(t *testing.T) {
		_, header := requestWith(t, "DISABLE_INTERLEAVED_THINKING=1 ANTHROPIC_BETAS=foo-2025-01-01,bar-2025-01-01", "--model claude-sonnet-4-5 --betas context-1m-2025-08-07,b")
		if got, want := header.Get("anthropic-beta"), "context-1m-2025-08-07,bar-2025-01-01,foo-2025-01-01,thinking-display-updates-2026-08-18"; got != want {
			t.Errorf("betas %q, want %q", got, want)
		}
	})
	t.Run("headers", func(t *testing.T) {
		_, header := requestWith(t, "DISABLE_INTERLEAVED_THINKING=1 CLAUDE_AGENT_SDK_CLIENT_APP=my-app/1.0 CLAUDE_AGENT_SDK_VERSION=0.3.325 CLAUDE_CODE_ENTRYPOINT=sdk-ts", "--model claude-sonnet-4-5 --task-budget 9")
		if got, want := header.Get("anthropic-beta"), "task-budgets-2026-03-13,thinking-display-updates-2026-08-18"; got != want {
			t.Errorf("betas %q, want %q", got, want)
		}
		if got := header.Get("user-agent"); !strings.HasSuffix(got, "(sdk-ts, agent-sdk/0.3.325, client-app/my-app/1.0)") {
			t.Errorf("user agent %q", got)
		}
	})
}

// requestWith returns the first request of an agent with these variables and flags, and its
// header.
func requestWith(t *testing.T, vars, args string) (map[string]any, interface{ Get(string) string }) {
	t.Helper()
	api := newEndpoint(t)
	environ := append([]string{"ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=" + api.URL}, strings.Fields(vars)...)
	if got := say(t, agent.Config{Environ: environ}, strings.Fields(args), hello); got.code != 0 {
		t.Fatal(got.stderr)
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(api.bodies[0]), &body); err != nil {
		t.Fatal(err)
	}
	return body, api.asked[0].Header
}

// TestPromptFileAndText checks the order of a system prompt from a file and from a flag.
func TestPromptFileAndText(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.md")
	if err := os.WriteFile(file, []byte("file\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	body, _ := requestWith(t, "", "--system-prompt text --system-prompt-file "+file+" --append-system-prompt-file "+file+" --append-system-prompt more")
	text, _ := json.Marshal(body["system"])
	for _, want := range []string{`"file\n\ntext"`, `"file\n\nmore"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the system prompt is %s, want %s in it", text, want)
		}
	}
}

// TestMaxTurnsWithoutLimit checks that 0 is no limit, and that a number below 0 is the limit 1.
func TestMaxTurnsWithoutLimit(t *testing.T) {
	for limit, want := range map[string]struct {
		turns   int
		subtype string
	}{"0": {3, "success"}, "-1": {2, "error_max_turns"}} {
		m := parleytest.Script(parleytest.Call("Glob", map[string]any{"pattern": "*"}), parleytest.Call("Glob", map[string]any{"pattern": "*"}), parleytest.Say("done")).Model()
		got := say(t, agent.Config{Model: m, Store: &session.Memory{}}, []string{"--max-turns", limit}, hello)
		if got.result == nil || got.result.NumTurns != want.turns || got.result.Subtype != want.subtype {
			t.Errorf("--max-turns %s: %+v; %s; want %+v", limit, got.result, got.stderr, want)
		}
	}
}

// TestCommandsGetTheEffort checks that commands and the hooks of tools get the effort of the model.
func TestCommandsGetTheEffort(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Bash does not run on Windows")
	}
	const hooks = `{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"echo $CLAUDE_EFFORT >hook"}]}]}}`
	for model, want := range map[string]string{"claude-opus-4-8": "low\n", "claude-sonnet-4-5": "\n"} {
		dir := t.TempDir()
		m := parleytest.Script(parleytest.Call("Bash", map[string]any{"command": "echo $CLAUDE_EFFORT >command"}), parleytest.Say("done")).Model()
		got := say(t, agent.Config{Cwd: dir, Model: m, Store: &session.Memory{}, Environ: []string{"PATH=" + os.Getenv("PATH")}}, []string{"--model", model, "--effort", "low", "--allowedTools", "Bash", "--settings", hooks}, hello)
		for _, name := range []string{"command", "hook"} {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != want {
				t.Errorf("%s: the %s got %q, want %q: %v %s", model, name, text, want, err, got.stderr)
			}
		}
	}
}

// TestSubagentModel checks that CLAUDE_CODE_SUBAGENT_MODEL is the model of every subagent.
func TestSubagentModel(t *testing.T) {
	dir, _ := workdir(t)
	s := parleytest.Script(
		parleytest.Call("Agent", map[string]any{"description": "look", "prompt": "SUBPROMPT", "subagent_type": "general-purpose", "model": "opus", "run_in_background": false}),
		parleytest.Say("done"),
	).When("sub", parleytest.FirstUser("SUBPROMPT"), parleytest.Expect(parleytest.ModelName("claude-haiku-4-5")).Say("report"))
	play(t, agent.Config{Cwd: dir, Environ: []string{"CLAUDE_CODE_SUBAGENT_MODEL=claude-haiku-4-5"}}, s)
}
