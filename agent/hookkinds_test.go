package agent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// TestAgentHookLooks checks that a hook of the kind agent reads files before it answers, and changes
// none: tools with effects are not available, and files of deny rules stay hidden. Its cost is part of
// the result.
func TestAgentHookLooks(t *testing.T) {
	dir, _ := workdir(t)
	s := parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Expect(parleytest.ToolResult("it says alpha")).Say("done"))
	offered := parleytest.Check("only tools that read", func(r *parleytest.Request) error {
		if body := string(r.Body); strings.Contains(body, `"name":"Bash"`) || strings.Contains(body, `"name":"Write"`) || !strings.Contains(body, `"name":"Read"`) {
			return errors.New("the tools are " + body)
		}
		return nil
	})
	read := func(name string) map[string]string { return map[string]string{"file_path": filepath.Join(dir, name)} }
	s.When("check", parleytest.FirstUser("Is it safe?"),
		parleytest.Expect(offered).Call("Read", read("a.txt")),
		parleytest.Expect(parleytest.ToolResult("alpha")).Call("Read", read(".env")),
		parleytest.Expect(parleytest.ToolError("denied")).Call("Write", map[string]string{"file_path": filepath.Join(dir, "new"), "content": "x"}),
		parleytest.Expect(parleytest.ToolError("No such tool")).Call("StructuredOutput", `{"ok":false,"reason":"it says alpha"}`))
	play(t, agent.Config{Cwd: dir}, s, "--settings", `{"permissions":{"allow":["Bash(touch *)"],"deny":["Read(.env)"]},"hooks":{"PreToolUse":[{"hooks":[{"type":"agent","prompt":"Is it safe?"}]}]}}`)
	for _, name := range []string{"made", "new"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s exists", name)
		}
	}
}

// TestHookKinds checks that hooks of settings that are not commands decide like commands, and fail
// closed.
func TestHookKinds(t *testing.T) {
	asked := make(chan *http.Request, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		asked <- r
		switch r.URL.Path {
		case "/allow":
			fmt.Fprint(w, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}`)
		case "/deny":
			fmt.Fprint(w, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"not today"}}`)
		case "/away":
			http.Redirect(w, r, "/allow", http.StatusFound)
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer srv.Close()
	judge := func(answer string) *parleytest.Turn {
		return parleytest.Expect(parleytest.LastUser("Is it safe?")).Say(answer)
	}
	for _, tt := range []struct {
		name, hook string
		judge      *parleytest.Turn
		made       bool
		told       string
	}{
		{"http allows", `{"type":"http","url":"$URL/allow","headers":{"X-Token":"$TOKEN$OTHER"},"allowedEnvVars":["TOKEN"]}`, nil, true, ""},
		{"http denies", `{"type":"http","url":"$URL/deny"}`, nil, false, "not today"},
		{"http fails", `{"type":"http","url":"$URL/broken"}`, nil, false, "status 500"},
		{"http fails and may", `{"type":"http","url":"$URL/broken","onFailure":"continue"}`, nil, true, ""},
		{"http redirects", `{"type":"http","url":"$URL/away"}`, nil, false, "status 302"},
		{"prompt agrees", `{"type":"prompt","prompt":"Is it safe? $ARGUMENTS"}`, judge(`{"ok":true}`), true, ""},
		{"prompt objects", `{"type":"prompt","prompt":"Is it safe?"}`, judge(`{"ok":false,"reason":"it touches"}`), false, "it touches"},
		{"prompt babbles", `{"type":"prompt","prompt":"Is it safe?"}`, judge(`Sure!`), false, "in place of"},
		{"agent agrees", `{"type":"agent","prompt":"Is it safe?"}`, judge(`{"ok":true}`), true, ""},
		{"agent objects", `{"type":"agent","prompt":"Is it safe? $ARGUMENTS"}`, judge(`{"ok":false,"reason":"it touches"}`), false, "hook error: Agent hook condition was not met: it touches"},
		{"agent fails", `{"type":"agent","prompt":"Is it safe?"}`, parleytest.Fail(400), false, "400"},
		{"no such server", `{"type":"mcp_tool","server":"nobody","tool":"check","input":{"c":"${tool_input.command}"}}`, nil, false, "nobody"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := workdir(t)
			s := parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Expect(parleytest.ToolResult(tt.told)).Say("done"))
			if tt.name == "prompt objects" { // the turn ends
				s = parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch made"}))
			}
			if tt.judge != nil {
				s.When("judge", parleytest.LastUser("Is it safe?"), tt.judge)
			}
			settings := `{"permissions":{"allow":["Bash(touch *)"]},"hooks":{"PreToolUse":[{"matcher":"Bash","hooks":[` + strings.ReplaceAll(tt.hook, "$URL", srv.URL) + `]}]}}`
			play(t, agent.Config{Cwd: dir, Environ: []string{"TOKEN=secret", "OTHER=hidden"}}, s, "--settings", settings)
			if _, err := os.Stat(filepath.Join(dir, "made")); (err == nil) != tt.made {
				t.Errorf("the command ran: %v, want %v", err == nil, tt.made)
			}
			if strings.HasPrefix(tt.name, "http") {
				r := <-asked
				body, _ := io.ReadAll(r.Body)
				if !strings.Contains(string(body), `"tool_name":"Bash"`) || !strings.Contains(string(body), "touch made") {
					t.Errorf("the server was sent %s", body)
				}
				if got := r.Header.Get("X-Token"); tt.name == "http allows" && got != "secret" {
					t.Errorf("the header is %q, want only the variable that the hook may name", got)
				}
			}
		})
	}
}

// TestPromptHookEndsTurn checks that an objection of a prompt hook ends the turn, except at its end, and that the
// model learns about it with the next prompt.
func TestPromptHookEndsTurn(t *testing.T) {
	touch := parleytest.Call("Bash", map[string]string{"command": "touch made"})
	for _, tt := range []struct {
		event, reason string
		turns         []*parleytest.Turn
	}{
		{"PreToolUse", "hook_stopped", []*parleytest.Turn{touch, parleytest.Expect(parleytest.LastUser("stopped the turn here: it touches")).Say("two")}},
		{"PostToolUse", "hook_stopped", []*parleytest.Turn{touch, parleytest.Expect(parleytest.LastUser("stopped the turn here: it touches")).Say("two")}},
		{"UserPromptSubmit", "", []*parleytest.Turn{parleytest.Expect(parleytest.LastUser("Operation stopped by hook: it touches")).Say("two")}},
		{"Stop", "completed", []*parleytest.Turn{parleytest.Say("one"), parleytest.Expect(parleytest.LastUser("[Is it safe?]: it touches")).Say("more"), parleytest.Say("two")}},
	} {
		t.Run(tt.event, func(t *testing.T) {
			s := parleytest.Script(tt.turns...)
			s.When("judge", parleytest.LastUser("hook_event_name"), parleytest.Say(`{"ok":false,"reason":"it touches"}`), parleytest.Say(`{"ok":true}`).Always())
			k := hold(t, s, func(o *parley.Options, _ *agent.Config) {
				o.Settings = json.RawMessage(`{"permissions":{"allow":["Bash(touch *)"]},"hooks":{"` + tt.event + `":[{"hooks":[{"type":"prompt","prompt":"Is it safe?"}]}]}}`)
			}, func(k *held) {
				if r := k.say("one"); r.TerminalReason != tt.reason {
					t.Errorf("the turn ended by %q, want %q", r.TerminalReason, tt.reason)
				}
				k.say("two")
			})
			if tt.event != "UserPromptSubmit" {
				return
			}
			for _, m := range k.all {
				if n, ok := m.(*wire.Informational); ok && n.PromptSubmitOutcome != nil {
					if got := string(n.PromptSubmitOutcome); !strings.Contains(got, `"stopped_by_hook"`) || !strings.Contains(got, `"prompt_kept":true`) {
						t.Errorf("the prompt's outcome is %s", got)
					}
				}
			}
		})
	}
}
