package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

func before(f func(*wire.PreToolUseInput) (*wire.HookOutput, error)) parley.Hook {
	return parley.On("Bash", func(_ context.Context, in *wire.PreToolUseInput) (*wire.HookOutput, error) { return f(in) })
}

func says(o *wire.PreToolUseOutput) func(*wire.PreToolUseInput) (*wire.HookOutput, error) {
	return func(*wire.PreToolUseInput) (*wire.HookOutput, error) {
		return &wire.HookOutput{HookSpecificOutput: o}, nil
	}
}

// TestPreToolUse plays a call with every answer that a hook can give.
func TestPreToolUse(t *testing.T) {
	no := false
	late := parley.On("Bash", func(ctx context.Context, _ *wire.PreToolUseInput) (*wire.HookOutput, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	late.Timeout = 2 * time.Second
	open := before(func(*wire.PreToolUseInput) (*wire.HookOutput, error) { return nil, errors.New("crash") })
	open.FailOpen = true
	for _, tt := range []struct {
		name  string
		hooks []parley.Hook
		asked int
		made  string // the file that exists
		told  string // text for the model
		end   string // the terminal reason
		kinds string
	}{
		{"nothing", []parley.Hook{before(func(*wire.PreToolUseInput) (*wire.HookOutput, error) { return nil, nil })}, 1, "made", "", "completed", ""},
		{"deny", []parley.Hook{before(says(&wire.PreToolUseOutput{PermissionDecision: wire.BehaviorDeny, PermissionDecisionReason: "not here"}))}, 0, "", "PreToolUse:Bash hook error: not here", "completed", ""},
		{"block, as of old", []parley.Hook{before(func(*wire.PreToolUseInput) (*wire.HookOutput, error) {
			return &wire.HookOutput{Decision: wire.DecisionBlock, Reason: "never"}, nil
		})}, 0, "", "hook error: never", "completed", ""},
		{"allow", []parley.Hook{before(says(&wire.PreToolUseOutput{PermissionDecision: wire.BehaviorAllow}))}, 0, "made", "", "completed", ""},
		{"ask", []parley.Hook{before(says(&wire.PreToolUseOutput{PermissionDecision: wire.BehaviorAsk, PermissionDecisionReason: "look"}))}, 1, "made", "", "completed", ""},
		{"deny beats allow", []parley.Hook{
			before(says(&wire.PreToolUseOutput{PermissionDecision: wire.BehaviorDeny})), before(says(&wire.PreToolUseOutput{PermissionDecision: wire.BehaviorAllow})),
		}, 0, "", "hook error", "completed", ""},
		{"ask beats allow", []parley.Hook{
			before(says(&wire.PreToolUseOutput{PermissionDecision: wire.BehaviorAllow})), before(says(&wire.PreToolUseOutput{PermissionDecision: wire.BehaviorAsk})),
		}, 1, "made", "", "completed", ""},
		{"other input", []parley.Hook{before(says(&wire.PreToolUseOutput{PermissionDecision: wire.BehaviorAllow, UpdatedInput: json.RawMessage(`{"command":"touch other"}`)}))}, 0, "other", "", "completed", ""},
		{"invalid input", []parley.Hook{before(says(&wire.PreToolUseOutput{PermissionDecision: wire.BehaviorAllow, UpdatedInput: json.RawMessage(`{"command":7}`)}))}, 0, "", "InputValidationError", "completed", ""},
		{"context", []parley.Hook{before(says(&wire.PreToolUseOutput{PermissionDecision: wire.BehaviorAllow, AdditionalContext: "by the way"}))}, 0, "made", "by the way", "completed", ""},
		{"no more", []parley.Hook{before(func(*wire.PreToolUseInput) (*wire.HookOutput, error) {
			return &wire.HookOutput{Continue: &no, StopReason: "enough"}, nil
		})}, 1, "made", "", "hook_stopped", "system/init assistant user result"},
		{"defer", []parley.Hook{before(says(&wire.PreToolUseOutput{PermissionDecision: wire.BehaviorDefer}))}, 0, "", "", "tool_deferred", "system/init assistant result"},
		{"message", []parley.Hook{before(func(*wire.PreToolUseInput) (*wire.HookOutput, error) {
			return &wire.HookOutput{SystemMessage: "hello"}, nil
		})}, 1, "made", "", "completed", "system/init assistant system/informational user assistant result"},
		{"fails", []parley.Hook{before(func(*wire.PreToolUseInput) (*wire.HookOutput, error) { return nil, errors.New("crash") })}, 0, "", "hook error", "completed", ""},
		{"fails open", []parley.Hook{open}, 1, "made", "", "completed", "system/init assistant system/informational user assistant result"},
		{"is late", []parley.Hook{late}, 0, "", "hook error", "completed", ""},
		{"of another tool", []parley.Hook{parley.On("Write|Ed.*", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) {
			return parley.HookDeny("no"), nil
		})}, 1, "made", "", "completed", ""},
		{"of tools by pattern", []parley.Hook{parley.On("B.sh", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) {
			return parley.HookDeny("no"), nil
		})}, 0, "", "hook error: no", "completed", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, _ := workdir(t)
			turns := []*parleytest.Turn{parleytest.Call("Bash", map[string]string{"command": "touch made"})}
			if tt.end == "completed" {
				turns = append(turns, parleytest.Expect(parleytest.Check("told", func(r *parleytest.Request) error {
					if !strings.Contains(r.ToolResults()[0].Text+r.LastUser(), tt.told) {
						return errors.New("the model is told " + r.ToolResults()[0].Text + r.LastUser())
					}
					return nil
				})).Say("done"))
			}
			asked := 0
			p := promptIn(t, dir, parleytest.Script(turns...), func(o *parley.Options, _ *agent.Config) {
				o.Hooks = tt.hooks
				o.CanUseTool = func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
					asked++
					if tt.name == "ask" && (req.DecisionReasonType != "hook" || req.DecisionReason != "look") {
						t.Errorf("asked %+v", req)
					}
					return parley.Allow(), nil
				}
			})
			if asked != tt.asked {
				t.Errorf("asked %d times, want %d", asked, tt.asked)
			}
			for _, name := range []string{"made", "other"} {
				if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != (name == tt.made) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if p.r.TerminalReason != tt.end || p.r.IsError {
				t.Errorf("result %+v", p.r)
			}
			if got := kinds(p.all); tt.kinds != "" && got != tt.kinds {
				t.Errorf("messages\n got %s\nwant %s", got, tt.kinds)
			}
			switch tt.name {
			case "defer":
				if d := p.r.DeferredToolUse; d == nil || d.Name != "Bash" || p.r.StopReason != "tool_deferred" || p.r.NumTurns != 1 {
					t.Errorf("result %+v", p.r)
				}
			case "deny", "fails", "is late":
				if len(p.r.PermissionDenials) != 1 {
					t.Errorf("denials %v", p.r.PermissionDenials)
				}
			}
		})
	}
}

func TestPostToolUse(t *testing.T) {
	dir, _ := workdir(t)
	read := parleytest.Call("Read", map[string]string{"file_path": filepath.Join(dir, "a.txt")})
	for _, tt := range []struct {
		name string
		out  *wire.HookOutput
		told string
	}{
		{"context", &wire.HookOutput{HookSpecificOutput: &wire.PostToolUseOutput{AdditionalContext: "it is old"}}, "it is old"},
		{"block", &wire.HookOutput{Decision: wire.DecisionBlock, Reason: "suspicious"}, "suspicious"},
		{"other output", &wire.HookOutput{HookSpecificOutput: &wire.PostToolUseOutput{UpdatedToolOutput: json.RawMessage(`"redacted"`)}}, "redacted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := promptIn(t, dir, parleytest.Script(read, parleytest.Expect(parleytest.Check("told", func(r *parleytest.Request) error {
				if all := r.ToolResults()[0].Text + r.LastUser(); !strings.Contains(all, tt.told) || tt.name == "other output" && strings.Contains(all, "alpha") {
					return errors.New("the model is told " + all)
				}
				return nil
			})).Say("done")), func(o *parley.Options, _ *agent.Config) {
				o.Hooks = []parley.Hook{parley.On("Read", func(_ context.Context, in *wire.PostToolUseInput) (*wire.HookOutput, error) {
					if !strings.Contains(string(in.ToolResponse), "alpha") || in.ToolUseID != "toolu_main_1_1" {
						t.Errorf("the hook is told %+v", in)
					}
					return tt.out, nil
				})}
			})
			if got := kinds(p.all); got != "system/init assistant user assistant result" {
				t.Errorf("messages %s", got)
			}
		})
	}
	failed := ""
	promptIn(t, dir, parleytest.Script(parleytest.Call("Read", map[string]string{"file_path": filepath.Join(dir, "none")}), parleytest.Say("done")), func(o *parley.Options, _ *agent.Config) {
		o.Hooks = []parley.Hook{parley.On("Read", func(_ context.Context, in *wire.PostToolUseFailureInput) (*wire.HookOutput, error) {
			failed = in.Error
			return nil, nil
		})}
	})
	if !strings.Contains(failed, "does not exist") {
		t.Errorf("the hook is told %q", failed)
	}
}

func TestUserPromptSubmit(t *testing.T) {
	hook := func(f func(ctx context.Context, in *wire.UserPromptSubmitInput) (*wire.HookOutput, error)) func(*parley.Options, *agent.Config) {
		return func(o *parley.Options, _ *agent.Config) { o.Hooks = []parley.Hook{parley.On("", f)} }
	}
	t.Run("block", func(t *testing.T) {
		p := prompt(t, parleytest.Script(), hook(func(context.Context, *wire.UserPromptSubmitInput) (*wire.HookOutput, error) {
			return &wire.HookOutput{Decision: wire.DecisionBlock, Reason: "refused"}, nil
		}))
		if got := kinds(p.all); got != "system/init system/informational result" || p.r.NumTurns != 0 || p.r.IsError || !strings.Contains(p.r.Result, "refused") {
			t.Errorf("%s, result %+v", got, p.r)
		}
	})
	t.Run("fails", func(t *testing.T) {
		p := prompt(t, parleytest.Script(), hook(func(context.Context, *wire.UserPromptSubmitInput) (*wire.HookOutput, error) {
			return nil, errors.New("crash")
		}))
		if p.r.NumTurns != 0 || !strings.Contains(p.r.Result, "blocked") {
			t.Errorf("result %+v", p.r)
		}
	})
	t.Run("context", func(t *testing.T) {
		prompt(t, parleytest.Script(parleytest.Expect(parleytest.LastUser("it rains")).Say("ok")), hook(func(_ context.Context, in *wire.UserPromptSubmitInput) (*wire.HookOutput, error) {
			if in.Prompt != "hi" {
				t.Errorf("the hook is told %q", in.Prompt)
			}
			return &wire.HookOutput{HookSpecificOutput: &wire.UserPromptSubmitOutput{AdditionalContext: "it rains"}}, nil
		}))
	})
}

// TestStopHook checks that a hook may continue a turn, but not forever.
func TestStopHook(t *testing.T) {
	for _, times := range []int{1, 1000} {
		n, active := 0, 0
		p := prompt(t, parleytest.Script(parleytest.Say("one"), parleytest.Expect(parleytest.LastUser("Stop hook feedback:\nkeep going")).Say("more").Always()), func(o *parley.Options, _ *agent.Config) {
			o.Hooks = []parley.Hook{parley.On("", func(_ context.Context, in *wire.StopInput) (*wire.HookOutput, error) {
				if in.StopHookActive {
					active++
				}
				if n++; n > times {
					return nil, nil
				}
				return &wire.HookOutput{Decision: wire.DecisionBlock, Reason: "keep going"}, nil
			})}
		})
		if p.r.IsError || p.r.Result != "more" || active != n-1 || n > 50 || times == 1 && (n != 2 || p.r.NumTurns != 2) {
			t.Errorf("%d hooks, %d of them active, result %+v", n, active, p.r)
		}
	}
}

// TestStructuredOutput checks structured output with the flag and with initialize.
func TestStructuredOutput(t *testing.T) {
	schema := `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`
	good := parleytest.Call("StructuredOutput", `{"n":1}`)
	bad := func(n int) *parleytest.Turn { return parleytest.Call("StructuredOutput", `{"n":"one"}`).Times(n) }
	for _, tt := range []struct {
		name    string
		turns   []*parleytest.Turn
		subtype string
		turnN   int
	}{
		{"at once", []*parleytest.Turn{good}, "success", 2},
		{"after a tool", []*parleytest.Turn{parleytest.Call("Read", map[string]string{"file_path": "none"}), good}, "success", 3},
		{"after a mistake", []*parleytest.Turn{bad(1), parleytest.Expect(parleytest.ToolError("does not fit the schema")).Call("StructuredOutput", `{"n":1}`)}, "success", 3},
		{"after text", []*parleytest.Turn{parleytest.Say("one"), parleytest.Expect(parleytest.LastUser("[structured-output-enforce]")).Call("StructuredOutput", `{"n":1}`)}, "success", 3},
		{"after nothing, then text", []*parleytest.Turn{parleytest.Expect(), parleytest.Say("one"), good}, "success", 4},
		{"wrapped", []*parleytest.Turn{parleytest.Call("StructuredOutput", `{"value":{"n":1}}`)}, "success", 2},
		{"wrapped twice", []*parleytest.Turn{parleytest.Call("StructuredOutput", `{"output":{"parameters":{"n":1}}}`)}, "success", 2},
		{"a string of it", []*parleytest.Turn{parleytest.Call("StructuredOutput", `{"json":"{\"n\":1}"}`)}, "success", 2},
		{"a fence in a string", []*parleytest.Turn{parleytest.Call("StructuredOutput", "{\"answer\":\"```json\\n{\\\"n\\\":1}\\n```\"}")}, "success", 2},
		{"a number in quotes", []*parleytest.Turn{parleytest.Call("StructuredOutput", `{"n":"1"}`)}, "success", 2},
		{"text that is it", []*parleytest.Turn{parleytest.Say(`{"n":1}`)}, "success", 1},
		{"text with a fence", []*parleytest.Turn{parleytest.Say("```json\n{\"n\":1}\n```")}, "success", 1},
		{"text that is none", []*parleytest.Turn{parleytest.Say(`{"m":1}`), good}, "success", 3},
		{"a member twice", []*parleytest.Turn{parleytest.Call("StructuredOutput", `{"n":1,"n":"one"}`), good}, "success", 3},
		{"no object", []*parleytest.Turn{parleytest.Call("StructuredOutput", json.RawMessage(`[1]`)).Times(5)}, "error_max_structured_output_retries", 6},
		{"never right", []*parleytest.Turn{bad(5)}, "error_max_structured_output_retries", 6},
		{"never called", []*parleytest.Turn{parleytest.Say("one").Times(2)}, "error_max_structured_output_retries", 2},
	} {
		for _, how := range []string{"flag", "initialize"} {
			t.Run(tt.name+" by "+how, func(t *testing.T) {
				p := prompt(t, parleytest.Script(tt.turns...), func(o *parley.Options, _ *agent.Config) {
					if how == "flag" {
						o.ExtraArgs = map[string]string{"json-schema": schema}
					} else {
						o.OutputSchema = json.RawMessage(schema)
					}
				})
				if p.r.Subtype != tt.subtype || p.r.NumTurns != tt.turnN {
					t.Errorf("result %+v", p.r)
				}
				if tt.subtype == "success" {
					if string(p.r.StructuredOutput) != `{"n":1}` || p.r.Result != `{"n":1}` || p.r.StopReason == "" || p.r.TerminalReason != "completed" || p.err != nil {
						t.Errorf("error %v, result %+v", p.err, p.r)
					}
				} else if !p.r.IsError || len(p.r.Errors) != 1 || p.err == nil || p.r.StructuredOutput != nil {
					t.Errorf("error %v, result %+v", p.err, p.r)
				}
			})
		}
	}
}

// TestHookConditions checks that a hook with a condition runs for the calls that its rule may
// match, however they are written, and for no others.
func TestHookConditions(t *testing.T) {
	dir, _ := workdir(t)
	said := filepath.Join(dir, "said")
	play(t, agent.Config{Cwd: dir}, parleytest.Script(
		parleytest.Call("Bash", map[string]string{"command": "echo one"}).
			Call("Bash", map[string]string{"command": "true; env touch x"}).
			Call("Bash", map[string]string{"command": "$(printf tou)ch y"}).
			Call("Read", map[string]string{"file_path": filepath.Join(dir, "a.txt")}),
		parleytest.Say("done"),
	), "--settings", `{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"cat >> `+said+`","if":"Bash(touch:*)"}]}]}}`)
	text, _ := os.ReadFile(said)
	got := ""
	for _, word := range []string{"echo one", "env touch x", "printf tou", "a.txt"} {
		got += fmt.Sprint(strings.Count(string(text), word), " ")
	}
	if got != "0 1 1 0 " {
		t.Errorf("the hook ran for %s: %s", got, text)
	}
	// An unreadable condition is rejected.
	var stderr bytes.Buffer
	code := agent.Run(t.Context(), agent.Config{Cwd: dir, Model: parleytest.Script().Model()}, []string{"-p", "hi", "--settings", `{"hooks":{"PreToolUse":[{"hooks":[{"type":"command","command":"x","if":"Bash(touch"}]}]}}`},
		strings.NewReader(""), io.Discard, &stderr)
	if code == 0 || !strings.Contains(stderr.String(), "condition") {
		t.Errorf("%d %s", code, stderr.String())
	}
}

// TestHooksNotRun checks that hooks of an unsupported kind are reported if they can forbid
// nothing, and rejected if they can.
func TestHooksNotRun(t *testing.T) {
	for _, kind := range []string{"script", "other"} {
		for _, event := range []string{"Stop", "PreToolUse"} {
			var stdout, stderr bytes.Buffer
			code := agent.Run(t.Context(), agent.Config{Cwd: t.TempDir(), Model: parleytest.Script(parleytest.Say("done")).Model(), Store: &session.Memory{}},
				[]string{"-p", "hi", "--settings", `{"hooks":{"` + event + `":[{"hooks":[{"type":"` + kind + `","prompt":"x","url":"http://x.test"}]}]}}`}, strings.NewReader(""), &stdout, &stderr)
			if !strings.Contains(stderr.String(), event) || !strings.Contains(stderr.String(), kind) || (code == 0) != (event == "Stop") {
				t.Errorf("%s %s: %d %s", event, kind, code, stderr.String())
			}
		}
	}
}

// TestMoreEvents checks that a rule that denies runs no hook, and the hooks for a change of
// the model, and /clear.
func TestMoreEvents(t *testing.T) {
	dir, _ := workdir(t)
	var mu sync.Mutex
	var heard []string
	hear := func(text string) { mu.Lock(); heard = append(heard, text); mu.Unlock() }
	synctest.Test(t, func(t *testing.T) {
		opts, m, _ := inProcess(t, parleytest.Script(
			parleytest.Call("Bash", map[string]string{"command": "touch no"}), parleytest.Say("done"),
			parleytest.Expect(parleytest.FirstUser("began anew")).Say("two"),
		))
		opts.Cwd, opts.DisallowedTools = dir, []string{"Bash(touch:*)"}
		opts.Hooks = []parley.Hook{
			parley.On("", func(_ context.Context, in *wire.PermissionDeniedInput) (*wire.HookOutput, error) {
				hear("denied " + in.ToolName)
				return &wire.HookOutput{HookSpecificOutput: &wire.PermissionDeniedOutput{Retry: true}}, nil
			}),
			parley.On("", func(_ context.Context, in *wire.PreModelSwitchInput) (*wire.HookOutput, error) {
				hear("switch to " + in.RequestedModel + " by " + in.Source)
				out := &wire.PreModelSwitchOutput{PermissionDecision: wire.BehaviorAllow}
				if in.RequestedModel == "sonnet" {
					out.PermissionDecision, out.PermissionDecisionReason = wire.BehaviorDeny, "too dear"
				}
				return &wire.HookOutput{HookSpecificOutput: out}, nil
			}),
			parley.On("", func(_ context.Context, in *wire.PostModelSwitchInput) (*wire.HookOutput, error) {
				hear("switched to " + in.RequestedModel)
				return nil, nil
			}),
			parley.On("", func(_ context.Context, in *wire.SessionEndInput) (*wire.HookOutput, error) {
				hear("end by " + in.Reason)
				return nil, nil
			}),
			parley.On("", func(_ context.Context, in *wire.SessionStartInput) (*wire.HookOutput, error) {
				hear("start by " + in.Source)
				return &wire.HookOutput{HookSpecificOutput: &wire.SessionStartOutput{AdditionalContext: "began anew"}}, nil
			}),
		}
		c, err := parley.Connect(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := run(t, c, "one"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.SetModel(t.Context(), "sonnet"); err == nil || !strings.Contains(err.Error(), "too dear") {
			t.Errorf("the model changed: %v", err)
		}
		if _, err := c.SetModel(t.Context(), "haiku"); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		for _, text := range []string{"/clear", "two"} {
			if _, err := run(t, c, text); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Done(); err != nil {
			t.Error(err)
		}
	})
	if got, want := strings.Join(heard, ", "), "switch to sonnet by sdk, switch to haiku by sdk, switched to haiku, end by clear, start by clear"; got != want {
		t.Errorf("heard %s\nwant  %s", got, want)
	}
}
