package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// prints returns a hook of settings that prints an answer, for the matcher of its event.
func prints(event, matcher, answer string) string {
	line, _ := json.Marshal("cat >/dev/null; echo '" + answer + "'")
	return `"` + event + `":[{"matcher":"` + matcher + `","hooks":[{"type":"command","command":` + string(line) + `}]}]`
}

// TestHookAnswersBothWays gives every answer that a hook can give before and after a call,
// as a callback of the host and as a command of settings, and checks that each has the same
// effect. The deny rule must not be bypassed.
func TestHookAnswersBothWays(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the hooks are lines for a shell")
	}
	pre := func(more string) string {
		return `{"hookSpecificOutput":{"hookEventName":"PreToolUse",` + more + `}}`
	}
	for _, tt := range []struct {
		name, event, matcher, answer string
		made                         string // the file that exists
		told                         string // text for the model
		end                          string // the terminal reason, unless it is completed
		says                         string // text for the user
	}{
		{name: "allow", event: "PreToolUse", matcher: "Bash", answer: pre(`"permissionDecision":"allow"`), made: "made"},
		{name: "approve, as of old", event: "PreToolUse", matcher: "Bash", answer: `{"decision":"approve"}`, made: "made"},
		{name: "deny", event: "PreToolUse", matcher: "Ba.*|Write", answer: pre(`"permissionDecision":"deny","permissionDecisionReason":"not here"`), told: "not here"},
		{name: "ask, and nobody is there", event: "PreToolUse", matcher: "Bash", answer: pre(`"permissionDecision":"ask"`), told: "nobody can be asked"},
		{name: "of another tool", event: "PreToolUse", matcher: "Ba", answer: pre(`"permissionDecision":"allow"`), told: "nobody can be asked"},
		{name: "other input", event: "PreToolUse", matcher: "Bash", answer: pre(`"permissionDecision":"allow","updatedInput":{"command":"touch other"}`), made: "other"},
		{name: "input that does not match the tool", event: "PreToolUse", matcher: "Read, Bash", answer: pre(`"permissionDecision":"allow","updatedInput":{"cmd":1}`), told: "A PreToolUse hook replaced the input"},
		{name: "denial without a reason", event: "PreToolUse", matcher: "^B", answer: pre(`"permissionDecision":"deny"`), told: "the hook gave no reason"},
		{name: "block after all calls", event: "PostToolBatch", answer: `{"decision":"block"}`, end: "hook_stopped"},
		{name: "input past a rule", event: "PreToolUse", matcher: "Bash", answer: pre(`"permissionDecision":"allow","updatedInput":{"command":"cat .env > made"}`), told: "denied by the rule"},
		{name: "context", event: "PreToolUse", matcher: "Bash", answer: pre(`"permissionDecision":"allow","additionalContext":"by the way"`), made: "made", told: "by the way"},
		{name: "message", event: "PreToolUse", matcher: "Bash", answer: `{"systemMessage":"hello","hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}`, made: "made", says: "PreToolUse:Bash says: hello"},
		{name: "no more", event: "PreToolUse", matcher: "Bash", answer: `{"continue":false,"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}`, made: "made", end: "hook_stopped"},
		{name: "async decides nothing", event: "PreToolUse", matcher: "Bash", answer: `{"async":true}`, told: "nobody can be asked"},
		{name: "an answer for another event", event: "PreToolUse", matcher: "Bash", answer: `{"hookSpecificOutput":{"hookEventName":"PostToolUse"}}`, told: "a hook failed"},
		{name: "a decision that is none", event: "PreToolUse", matcher: "Bash", answer: pre(`"permissionDecision":"perhaps"`), told: "a hook failed"},
		{name: "a decision of another kind", event: "PreToolUse", matcher: "Bash", answer: `{"decision":true}`, told: "a hook failed"},
		{name: "request allows", event: "PermissionRequest", matcher: "Bash", answer: `{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"allow"}}}`, made: "made"},
		{name: "request denies", event: "PermissionRequest", matcher: "Bash", answer: `{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"deny","message":"nope"}}}`, told: "nope"},
	} {
		for _, by := range []string{"command", "host", "command in a subagent", "host in a subagent"} {
			t.Run(tt.name+" by "+by, func(t *testing.T) {
				t.Parallel()
				dir, _ := workdir(t)
				told := new(heard)
				check := parleytest.Check("told", func(r *parleytest.Request) error {
					told.add("%s%s", r.ToolResults()[0].Text, r.LastUser())
					return nil
				})
				call, end := parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Expect(check).Say("done")
				s := parleytest.Script(call, end)
				inside := strings.HasSuffix(by, "subagent")
				if inside {
					s = parleytest.Script(parleytest.Call("Agent", `{"description":"d","prompt":"SUB","run_in_background":false}`), parleytest.Say("done"))
					s.When("sub", parleytest.FirstUser("SUB"), call, end)
				}
				opts, m, _ := inProcess(t, s)
				opts.Cwd, opts.Env = dir, map[string]string{"PATH": os.Getenv("PATH")}
				rule := `"permissions":{"deny":["Read(.env)"]}`
				opts.Settings = json.RawMessage(`{` + rule + `}`)
				if strings.HasPrefix(by, "command") {
					opts.Settings = json.RawMessage(`{` + rule + `,"hooks":{` + prints(tt.event, tt.matcher, tt.answer) + `}}`)
				}
				var all []wire.Message
				if strings.HasPrefix(by, "host") {
					all = answering(t, dir, m, opts.Settings, tt.event, tt.matcher, tt.answer)
				} else {
					var err error
					if all, _, err = collect(t, opts, "hi"); err != nil && tt.end == "" {
						t.Fatal(err)
					}
				}
				for _, name := range []string{"made", "other"} {
					if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != (name == tt.made) {
						t.Errorf("%s: %v", name, err)
					}
				}
				r, _ := all[len(all)-1].(*wire.Result)
				if r == nil {
					t.Fatal(kinds(all))
				}
				if want := tt.end; !inside && want != "" && r.TerminalReason != want || !strings.Contains(told.String(), tt.told) {
					t.Errorf("the model was told %q, the turn ended with %s", told.String(), r.TerminalReason)
				}
				if said := informed(all); !inside && !strings.Contains(said, tt.says) {
					t.Errorf("the user was told %q", said)
				}
			})
		}
	}
}

// TestStopHooksCannotContinueForever lets a hook block the end of a turn without a reason, again and again.
func TestStopHooksCannotContinueForever(t *testing.T) {
	for limit, want := range map[string]int{"": 8, "2": 2, "none": 8} {
		opts, _, _ := inProcess(t, parleytest.Script(parleytest.Say("Done.").Always()))
		opts.Env = map[string]string{"CLAUDE_CODE_STOP_HOOK_BLOCK_CAP": limit}
		calls := 0
		second := parley.On("", func(context.Context, *wire.StopInput) (*wire.HookOutput, error) {
			return &wire.HookOutput{Decision: wire.DecisionBlock, Reason: "second"}, nil
		})
		opts.Hooks = []parley.Hook{parley.On("", func(_ context.Context, in *wire.StopInput) (*wire.HookOutput, error) {
			if in.StopHookActive != (calls > 0) {
				t.Errorf("call %d: stop_hook_active is %v", calls, in.StopHookActive)
			}
			calls++
			return &wire.HookOutput{Decision: wire.DecisionBlock}, nil
		}), second}
		all, _, err := collect(t, opts, "hi")
		if err != nil {
			t.Fatal(err)
		}
		feedback, seconds, capped := 0, 0, false
		for _, m := range all {
			switch m := m.(type) {
			case *wire.User:
				switch m.Message.Content.String() {
				case "Stop hook feedback:\nthe hook gave no reason":
					feedback++
				case "Stop hook feedback:\nsecond":
					seconds++
				}
			case *wire.Notification:
				capped = m.Key == "stop-hook-block-cap"
			}
		}
		if feedback != want || seconds != want || calls != want+1 || !capped {
			t.Errorf("limit %q: %d calls and %d messages, want %d; the limit is reported: %v", limit, calls, feedback, want, capped)
		}
	}
}

func informed(all []wire.Message) string {
	said := ""
	for _, m := range all {
		if i, ok := m.(*wire.Informational); ok {
			said += i.Content + "\n"
		}
	}
	return said
}

// answering runs a conversation with a host of lines whose one hook gives an answer
// verbatim, so that it can be one that no SDK would send.
func answering(t *testing.T, dir string, m *parleytest.Model, settings json.RawMessage, event, matcher, answer string) []wire.Message {
	t.Helper()
	conn, err := agent.InProcess(agent.Config{Model: m, Store: &session.Memory{}}).Dial(t.Context(), transport.Spec{Dir: dir, Env: []string{"PATH=" + os.Getenv("PATH")},
		Words: []string{"-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", "--settings", string(settings)}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	io.WriteString(conn, `{"type":"control_request","request_id":"i","request":{"subtype":"initialize","hooks":{"`+event+`":[{"matcher":"`+matcher+`","hookCallbackIds":["h"]}]}}}
{"type":"user","message":{"role":"user","content":"hi"}}
`)
	var all []wire.Message
	for lines := wire.NewReader(conn, nil); ; {
		m, err := lines.Next()
		if err != nil {
			t.Fatal(err, kinds(all))
		}
		all = append(all, m)
		switch m := m.(type) {
		case *wire.ControlRequest:
			io.WriteString(conn, `{"type":"control_response","response":{"subtype":"success","request_id":"`+m.RequestID+`","response":`+answer+"}}\n")
		case *wire.Result:
			return all
		}
	}
}

// TestSetup checks that setup hooks of settings run if a flag asks for it, before those for
// the start, and that the model receives their output. The host's own are not called.
func TestSetup(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the hooks are lines for a shell")
	}
	for flag, trigger := range map[string]string{"--init": "init", "--maintenance": "maintenance", "--verbose": ""} {
		said := filepath.Join(t.TempDir(), "said")
		hooks := `{"hooks":{"Setup":[{"hooks":[{"type":"command","command":"cat >>` + said + `; echo set up"}]},{"matcher":"other","hooks":[{"type":"command","command":"echo other >>` + said + `"}]}],` +
			`"SessionStart":[{"hooks":[{"type":"command","command":"cat >>` + said + `"}]}]}}`
		match := anywhere("set up")
		if trigger == "" {
			match = nowhere("set up")
		}
		all := play(t, agent.Config{Cwd: t.TempDir()}, parleytest.Script(parleytest.Expect(match).Say("done")), flag, "--settings", hooks)
		text, _ := os.ReadFile(said)
		before, _, _ := strings.Cut(string(text), "SessionStart")
		if strings.Contains(before, `"trigger":"`+trigger+`"`) != (trigger != "") || !strings.Contains(string(text), "startup") || strings.Contains(string(text), "other") {
			t.Errorf("%s: the hooks heard %s", flag, text)
		}
		told := "system/hook_started system/hook_response system/init"
		if trigger != "" {
			told = "system/hook_started system/hook_response " + told
		}
		if got := kinds(all); !strings.HasPrefix(got, told) {
			t.Errorf("%s: messages %s", flag, got)
		}
		// Only the hooks.
		for _, command := range []string{"true", "exit 1", "echo no >&2; exit 2"} {
			if flag != "--init" {
				break
			}
			os.Remove(said)
			var stdout, stderr bytes.Buffer
			code := agent.Run(t.Context(), agent.Config{Cwd: t.TempDir(), Model: parleytest.Script().Model(), Environ: []string{"PATH=" + os.Getenv("PATH")}},
				[]string{"--init-only", "--settings", `{"hooks":{"Setup":[{"hooks":[{"type":"command","command":"cat >>` + said + `; ` + command + `"}]}]}}`}, strings.NewReader(""), &stdout, &stderr)
			text, _ := os.ReadFile(said)
			if (code == 0) != (command == "true") || stdout.Len() > 0 || (stderr.Len() == 0) != (command == "true") || !strings.Contains(string(text), `"trigger":"init"`) {
				t.Errorf("%s: %d, %q, %q, the hook heard %s", command, code, stdout.String(), stderr.String(), text)
			}
		}
	}
}

// TestSessionStartAnswers checks that the initial message of a hook comes before the prompt,
// and that skills that it wrote are available.
func TestSessionStartAnswers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the hooks are lines for a shell")
	}
	dir := t.TempDir()
	line, _ := json.Marshal(`mkdir -p .claude/commands; echo 'Say hello to $ARGUMENTS.' > .claude/commands/greet.md; ` +
		`echo '{"hookSpecificOutput":{"hookEventName":"SessionStart","initialUserMessage":"Said first.","reloadSkills":true}}'`)
	all := play(t, agent.Config{Cwd: dir, SettingSources: []string{"project"}}, parleytest.Script(parleytest.Expect(parleytest.Check("both", func(r *parleytest.Request) error {
		if said := r.FirstUser(); !strings.Contains(said, "Said first.") || strings.Index(said, "Said first.") > strings.LastIndex(said, "hi") {
			t.Errorf("the model is told %s", said)
		}
		return nil
	})).Say("done")), "--settings", `{"hooks":{"SessionStart":[{"hooks":[{"type":"command","command":`+string(line)+`}]}]}}`)
	for _, m := range all {
		if i, ok := m.(*wire.Init); ok && !strings.Contains(strings.Join(i.SlashCommands, " "), "greet") {
			t.Errorf("the commands are %v", i.SlashCommands)
		}
	}
}
