package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// texts returns the texts of the model that were sent.
func texts(all []wire.Message) string {
	var said []string
	for _, m := range all {
		if a, ok := m.(*wire.Assistant); ok && a.ParentToolUseID == "" {
			for _, b := range a.Message.Content.All() {
				if b, ok := b.(*wire.TextBlock); ok {
					said = append(said, b.Text)
				}
			}
		}
	}
	return strings.Join(said, "|")
}

// shows returns a hook that replaces the shown text, or fails.
func shows(h *heard, shown *string, err error) parley.Hook {
	return parley.On("", func(_ context.Context, in *wire.MessageDisplayInput) (*wire.HookOutput, error) {
		if h != nil {
			h.add("%s %d %v", in.Delta, in.Index, in.Final && in.TurnID != "" && in.MessageID != "" && in.AgentID == "")
		}
		if err != nil {
			return nil, err
		}
		return &wire.HookOutput{HookSpecificOutput: &wire.MessageDisplayOutput{DisplayContent: shown}}, nil
	})
}

// TestMessageDisplay checks that a hook of the host determines how the texts of the model are
// shown: in their messages and in the result. The model, the session and other hooks have the
// original texts, and the hook does not apply to texts of subagents.
func TestMessageDisplay(t *testing.T) {
	fails := shows(nil, nil, errors.New("crash"))
	late := parley.On("", func(ctx context.Context, _ *wire.MessageDisplayInput) (*wire.HookOutput, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	late.Timeout = 2 * time.Second
	for _, tt := range []struct {
		name, told, result string
		hook               parley.Hook
		warned             bool
	}{
		{"another text", "***|***", "***", shows(nil, new("***"), nil), false},
		{"nothing", "", "", shows(nil, new(""), nil), false},
		{"as it is", "secret one|secret two", "secret two", shows(nil, nil, nil), false},
		{"fails", "secret one|secret two", "secret two", fails, true},
		{"is late", "secret one|secret two", "secret two", late, true},
		{"decides", "secret one|secret two", "secret two", parley.On("", func(context.Context, *wire.MessageDisplayInput) (*wire.HookOutput, error) {
			no := false
			return &wire.HookOutput{Continue: &no, Decision: wire.DecisionBlock, Reason: "it cannot"}, nil
		}), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := workdir(t)
			store := &session.Memory{}
			stopped := ""
			p := promptIn(t, dir, parleytest.Script(
				parleytest.Say("secret one").Call("Read", map[string]string{"file_path": filepath.Join(dir, "a.txt")}),
				parleytest.Expect(anywhere("secret one"), nowhere("***")).Say("secret two"),
			), func(o *parley.Options, cfg *agent.Config) {
				cfg.Store = store
				o.Hooks = []parley.Hook{tt.hook, parley.On("", func(_ context.Context, in *wire.StopInput) (*wire.HookOutput, error) {
					stopped = in.LastAssistantMessage
					return nil, nil
				})}
			})
			if got := texts(p.all); got != tt.told || p.r.Result != tt.result || p.r.IsError || p.r.TerminalReason != "completed" {
				t.Errorf("told %q, result %q %s", got, p.r.Result, p.r.TerminalReason)
			}
			if stopped != "secret two" {
				t.Errorf("another hook heard %q", stopped)
			}
			if warned := strings.Contains(kinds(p.all), "informational"); warned != tt.warned {
				t.Errorf("warned is %v: %s", warned, kinds(p.all))
			}
			lines, err := store.Load(t.Context(), session.Key{Project: session.ProjectKey(dir), Session: p.r.SessionID})
			if err != nil {
				t.Fatal(err)
			}
			lines = slices.DeleteFunc(lines, func(line json.RawMessage) bool { // the result is as it was shown
				result, _ := session.TurnResult(line)
				return result != nil
			})
			if all := string(mustMarshal(t, lines)); !strings.Contains(all, "secret two") || strings.Contains(all, "***") {
				t.Errorf("the session has %s", all)
			}
		})
	}
}

func mustMarshal(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestMessageDisplayOfStreams checks that the events of a stream are as the model sent them,
// and that the message is as the hook shows it; a hook receives each text once, whole, and
// none of a subagent.
func TestMessageDisplayOfStreams(t *testing.T) {
	var h heard
	s := parleytest.Script(parleytest.Call("Agent", `{"description":"d","prompt":"SUB","run_in_background":false}`), parleytest.Say("main secret"))
	s.When("sub", parleytest.FirstUser("SUB"), parleytest.Say("sub secret"))
	p := promptIn(t, t.TempDir(), s, func(o *parley.Options, _ *agent.Config) {
		o.PartialMessages = true
		o.Hooks = []parley.Hook{shows(&h, new("***"), nil)}
	})
	streamed := ""
	for _, m := range p.all {
		if e, ok := m.(*wire.StreamEvent); ok {
			if ev, err := e.Parse(); err == nil && ev.Delta != nil {
				streamed += ev.Delta.Text
			}
		}
	}
	if streamed != "main secret" || texts(p.all) != "***" || p.r.Result != "***" || h.String() != "main secret 0 true" {
		t.Errorf("streamed %q, told %q, result %q, heard %s", streamed, texts(p.all), p.r.Result, h.String())
	}
}

// TestMessageDisplayCommand checks the same with a command of settings. A command that fails
// leaves the text as it is, or hides it if its settings make a failure block.
func TestMessageDisplayCommand(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the hooks are lines for a shell")
	}
	for _, tt := range []struct{ name, hook, result string }{
		{"another text", `"command":"grep -q '\"delta\":\"secret\"' && echo '{\"hookSpecificOutput\":{\"hookEventName\":\"MessageDisplay\",\"displayContent\":\"***\"}}'"`, "***"},
		{"text is none", `"command":"echo something"`, "secret"},
		{"fails", `"command":"exit 1"`, "secret"},
		{"fails and blocks", `"command":"exit 1","onFailure":"block"`, ""},
		{"is late and blocks", `"command":"sleep 20","timeout":0.2,"onFailure":"block"`, ""},
		{"with a matcher", `"command":"echo '{\"hookSpecificOutput\":{\"hookEventName\":\"MessageDisplay\",\"displayContent\":\"***\"}}'"`, "***"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			matcher := ""
			if tt.name == "with a matcher" {
				matcher = `"matcher":"there is no subject",`
			}
			all := play(t, agent.Config{Cwd: t.TempDir()}, parleytest.Script(parleytest.Say("secret")), "--include-hook-events",
				"--settings", `{"hooks":{"MessageDisplay":[{`+matcher+`"hooks":[{"type":"command",`+tt.hook+`}]}]}}`)
			r, ok := all[len(all)-1].(*wire.Result)
			if !ok || r.Result != tt.result || texts(all) != tt.result || r.IsError {
				t.Errorf("told %q, result %+v", texts(all), r)
			}
			if got := kinds(all); !strings.HasPrefix(got, "system/init system/hook_started") || !strings.Contains(got, "system/hook_response") {
				t.Errorf("messages %s", got)
			}
		})
	}
}

// TestPromptHookAnswers checks the other outputs of hooks for prompts and for the end of a
// turn: a title, context for the model. A blocked prompt is not repeated.
func TestPromptHookAnswers(t *testing.T) {
	on := func(o *wire.HookOutput) func(*parley.Options, *agent.Config) {
		return func(opts *parley.Options, _ *agent.Config) {
			opts.Hooks = []parley.Hook{parley.On("a matcher does not keep it from prompts", func(context.Context, *wire.UserPromptSubmitInput) (*wire.HookOutput, error) { return o, nil })}
		}
	}
	p := prompt(t, parleytest.Script(parleytest.Say("done")), on(&wire.HookOutput{HookSpecificOutput: &wire.UserPromptSubmitOutput{SessionTitle: "A title"}}))
	if got := kinds(p.all); got != "system/session_title_changed system/init assistant result" {
		t.Errorf("messages %s", got)
	}
	p = prompt(t, parleytest.Script(), on(&wire.HookOutput{Decision: wire.DecisionBlock, Reason: "no", HookSpecificOutput: &wire.UserPromptSubmitOutput{SuppressOriginalPrompt: true}}))
	for _, m := range p.all {
		if i, ok := m.(*wire.Informational); ok && (!strings.Contains(i.Content, "no") || strings.Contains(i.Content, "hi")) || strings.Contains(p.r.Result, "hi") {
			t.Errorf("told %+v, %s", m, p.r.Result)
		}
	}
	stops := 0
	p = prompt(t, parleytest.Script(parleytest.Say("one"), parleytest.Expect(parleytest.LastUser("by the way")).Say("two")), func(o *parley.Options, _ *agent.Config) {
		o.Hooks = []parley.Hook{parley.On("", func(_ context.Context, in *wire.StopInput) (*wire.HookOutput, error) {
			if stops++; in.StopHookActive {
				return nil, nil
			}
			return &wire.HookOutput{HookSpecificOutput: &wire.StopOutput{AdditionalContext: "by the way"}}, nil
		})}
	})
	if stops != 2 || p.r.Result != "two" || kinds(p.all) != "system/init assistant assistant result" {
		t.Errorf("%d stops, %s, %+v", stops, kinds(p.all), p.r)
	}
}

// TestExpansionHook checks that a hook for commands that become prompts can block, and that
// one that fails blocks.
func TestExpansionHook(t *testing.T) {
	for _, tt := range []struct {
		name  string
		out   *wire.HookOutput
		err   error
		block bool
	}{
		{"nothing", nil, nil, false},
		{"block", &wire.HookOutput{Decision: wire.DecisionBlock, Reason: "no"}, nil, true},
		{"fails", nil, errors.New("crash"), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := workdir(t)
			write(t, filepath.Join(dir, ".claude", "commands", "greet.md"), "Say hello.")
			script := parleytest.Script()
			if !tt.block {
				script = parleytest.Script(parleytest.Expect(anywhere("Say hello.")).Say("hello"))
			}
			opts, m, _ := inProcess(t, script)
			opts.Cwd, opts.SettingSources = dir, []string{"project"}
			opts.Hooks = []parley.Hook{parley.On("greet", func(context.Context, *wire.UserPromptExpansionInput) (*wire.HookOutput, error) { return tt.out, tt.err })}
			_, r, err := collect(t, opts, "/greet")
			want := wire.OutcomeCompleted
			if tt.block {
				want = wire.OutcomeBlocked
			}
			if (err != nil) != tt.block || r == nil || r.Outcome() != want || m.Done() != nil {
				t.Errorf("%+v %v %v", r, err, m.Done())
			}
		})
	}
}

// TestHookAsksWhenItFails checks that a callback of the host that is registered to ask for
// permission when it fails does so, whatever the failure.
func TestHookAsksWhenItFails(t *testing.T) {
	for _, answer := range []string{`error`, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"perhaps"}}`, `{"decision":7}`} {
		dir, _ := workdir(t)
		h := newRawHost(t, dir, parleytest.Script(parleytest.Call("Bash", map[string]string{"command": "touch made"}), parleytest.Say("done")),
			`{"PreToolUse":[{"hookCallbackIds":["h"],"onFailure":"ask"}]}`, "--dangerously-skip-permissions")
		word, id, _ := h.next("control_request")
		if word != "hook_callback ." {
			t.Fatal(word)
		}
		if answer == "error" {
			h.say(`{"type":"control_response","response":{"subtype":"error","request_id":%q,"error":"crash"}}`, id)
		} else {
			h.answer(id, answer)
		}
		word, id, _ = h.next("control_request")
		if word != "can_use_tool ." {
			t.Fatal(word)
		}
		h.answer(id, `{"behavior":"deny","message":"no"}`)
		h.next("result")
		if _, err := os.Stat(filepath.Join(dir, "made")); err == nil {
			t.Error("the call was made")
		}
	}
}
