package parley_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/wire"
)

// asks runs a query against an agent that makes one request, and returns the response
// and the warnings. No response within 10 seconds is an empty one.
func asks(t *testing.T, opts parley.Options, request string) (answer received, warned []error) {
	t.Helper()
	var warnings collector
	opts.Dialer = agent(t, func(a *agentEnd) int {
		a.hello()
		a.wait("user")
		a.send(`{"type":"control_request","request_id":"r","request":%s}`, strings.ReplaceAll(request, "\n", ""))
		frames := make(chan received)
		go func() {
			for {
				m := a.next()
				frames <- m
				if m.eof {
					return
				}
			}
		}()
		timeout := time.After(10 * time.Second)
	wait:
		for {
			select {
			case m := <-frames:
				if m.Type == "control_response" && m.Response.RequestID == "r" {
					answer = m
					break wait
				}
			case <-timeout:
				break wait
			}
		}
		a.done()
		for m := range frames {
			if m.eof {
				return 0
			}
		}
		return 0
	}).Dialer
	opts.OnWarning = warnings.add
	wantResult(t, ask(t.Context(), &opts, 0), "done") // whatever the callback does, the process continues
	return answer, warnings.all()
}

const wantsBash = `{"subtype":"can_use_tool","tool_name":"Bash","tool_use_id":"t1","input":{"command":"ls"},
	"permission_suggestions":[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"ls"}],"behavior":"allow","destination":"session"}]}`

func TestCanUseTool(t *testing.T) {
	tests := map[string]struct {
		decide parley.CanUseTool
		want   string // the payload of the response
		warned string // a part of the warning
	}{
		"allow": {
			decide: allow,
			want:   `{"behavior":"allow","updatedInput":{"command":"ls"},"toolUseID":"t1"}`,
		},
		"other input": {
			decide: func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
				return parley.AllowInput(map[string]string{"command": "pwd"}), nil
			},
			want: `{"behavior":"allow","updatedInput":{"command":"pwd"},"toolUseID":"t1"}`,
		},
		"input that is none": {
			decide: func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
				return parley.AllowInput(func() {}), nil
			},
			want: `{"behavior":"deny","message":"the changed input cannot be encoded: json: unsupported type: func()","toolUseID":"t1"}`,
		},
		"always": {
			decide: func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
				return parley.AllowAlways(req), nil
			},
			want: `{"behavior":"allow","updatedInput":{"command":"ls"},"toolUseID":"t1",
				"updatedPermissions":[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"ls"}],"behavior":"allow","destination":"session"}]}`,
		},
		"deny": {
			decide: func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
				return parley.Deny("not here"), nil
			},
			want: `{"behavior":"deny","message":"not here","toolUseID":"t1"}`,
		},
		"deny without a reason": {
			decide: func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) { return parley.Deny(""), nil },
			want:   `{"behavior":"deny","message":"The call was not allowed.","toolUseID":"t1"}`,
		},
		"deny and stop": {
			decide: func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
				return parley.DenyAndStop("stop it"), nil
			},
			want: `{"behavior":"deny","message":"stop it","interrupt":true,"toolUseID":"t1"}`,
		},
		"error": {
			decide: func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
				return parley.Allow(), errors.New("the database is gone")
			},
			want:   `{"behavior":"deny","message":"The call was not allowed because the permission check failed: parley: CanUseTool failed: the database is gone","toolUseID":"t1"}`,
			warned: "the database is gone",
		},
		"panic": {
			decide: func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) { panic("oops") },
			want:   `{"behavior":"deny","message":"The call was not allowed because the permission check failed: parley: CanUseTool panicked: oops","toolUseID":"t1"}`,
			warned: "panicked: oops",
		},
		"nothing": {
			decide: func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) { return nil, nil },
			want:   `{"behavior":"deny","message":"The call was not allowed because the permission check failed: parley: CanUseTool failed: it returned no decision","toolUseID":"t1"}`,
			warned: "no decision",
		},
		"neither": {
			decide: func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
				return &wire.PermissionResult{UpdatedInput: json.RawMessage("{}")}, nil
			},
			want:   `{"behavior":"deny","message":"The call was not allowed because the permission check failed: parley: CanUseTool failed: it decided \"\", which is neither allow nor deny","toolUseID":"t1"}`,
			warned: "neither",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				answer, warned := asks(t, parley.Options{CanUseTool: tt.decide}, wantsBash)
				if answer.Response.Subtype != "success" || !sameJSON(t, answer.Response.Response, json.RawMessage(tt.want)) {
					t.Errorf("answered %s, want %s", answer.Response.Response, tt.want)
				}
				wantCallbackError(t, warned, "CanUseTool", tt.warned)
			})
		})
	}
	t.Run("no input", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			answer, _ := asks(t, parley.Options{CanUseTool: allow}, `{"subtype":"can_use_tool","tool_name":"X"}`)
			if !sameJSON(t, answer.Response.Response, json.RawMessage(`{"behavior":"allow","updatedInput":{}}`)) {
				t.Errorf("answered %s", answer.Response.Response)
			}
		})
	})
	t.Run("unset", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			answer, _ := asks(t, parley.Options{}, wantsBash)
			if answer.Response.Subtype != "error" || !strings.Contains(answer.Response.Error, "not allowed") {
				t.Errorf("answered %+v", answer.Response)
			}
		})
	})
	t.Run("goexit", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			answer, warned := asks(t, parley.Options{CanUseTool: func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
				runtime.Goexit()
				return parley.Allow(), nil
			}}, wantsBash)
			if answer.Response.Subtype != "error" {
				t.Errorf("answered %+v", answer.Response)
			}
			wantCallbackError(t, warned, "CanUseTool", "ended its goroutine")
		})
	})
}

func wantCallbackError(t *testing.T, warned []error, callback, text string) {
	t.Helper()
	if text == "" {
		if len(warned) > 0 {
			t.Errorf("warned of %v", warned)
		}
		return
	}
	var failed *parley.CallbackError
	if len(warned) != 1 || !errors.As(warned[0], &failed) || failed.Callback != callback || !strings.Contains(failed.Error(), text) {
		t.Errorf("warned of %v, want one of %s with %q", warned, callback, text)
		return
	}
	if (failed.Panic != nil) != (len(failed.Stack) > 0) {
		t.Errorf("the panic %v has the stack %s", failed.Panic, failed.Stack)
	}
}

func TestQuestions(t *testing.T) {
	req := &wire.CanUseTool{ToolName: "AskUserQuestion", Input: json.RawMessage(`{"questions":[
		{"question":"Which colour?","header":"Colour","options":[{"label":"Red","description":"warm"},{"label":"Blue","description":"cold"}],"multiSelect":true}],"extra":1}`)}
	questions, ok := parley.Questions(req)
	if !ok || len(questions) != 1 || questions[0].Options[1].Label != "Blue" || !questions[0].MultiSelect {
		t.Fatalf("got %+v, %v", questions, ok)
	}
	answer := parley.Answer(req, map[string][]string{"Which colour?": {"Red", "Blue"}})
	var input map[string]json.RawMessage
	if err := json.Unmarshal(answer.UpdatedInput, &input); err != nil {
		t.Fatal(err)
	}
	if answer.Behavior != wire.BehaviorAllow || string(input["answers"]) != `{"Which colour?":"Red, Blue"}` || string(input["extra"]) != "1" || input["questions"] == nil {
		t.Errorf("got %+v, %s", answer, answer.UpdatedInput)
	}
	if _, ok := parley.Questions(&wire.CanUseTool{ToolName: "Bash", Input: req.Input}); ok {
		t.Error("a call of Bash is a question")
	}
	odd := &wire.CanUseTool{ToolName: "AskUserQuestion", Input: json.RawMessage(`[]`)}
	if _, ok := parley.Questions(odd); ok {
		t.Error("a question without questions")
	}
	if got := parley.Answer(odd, nil); got.Behavior != wire.BehaviorDeny {
		t.Errorf("got %+v", got)
	}
}

func TestPlan(t *testing.T) {
	for input, want := range map[string]string{`{"plan":"1. Think"}`: "1. Think", `{}`: "", `[]`: ""} {
		plan, ok := parley.Plan(&wire.CanUseTool{ToolName: "ExitPlanMode", Input: json.RawMessage(input)})
		if !ok || plan != want {
			t.Errorf("%s: %q, %v", input, plan, ok)
		}
	}
	if _, ok := parley.Plan(&wire.CanUseTool{ToolName: "Bash"}); ok {
		t.Error("a call of Bash is a plan")
	}
}

func TestHooks(t *testing.T) {
	base := `"session_id":"s","cwd":"/w"`
	preBash := `{"subtype":"hook_callback","callback_id":"hook_0","tool_use_id":"t1","input":{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"ls"},"tool_use_id":"t1",` + base + `}}`
	fails := errors.New("broken")
	tests := map[string]struct {
		hook    parley.Hook
		request string
		want    string // the payload, or the error of the response
		warned  string
	}{
		"typed input": {
			hook: parley.On("Bash", func(_ context.Context, in *wire.PreToolUseInput) (*wire.HookOutput, error) {
				return parley.HookDeny(fmt.Sprintf("%s %s %s %s", in.ToolName, in.ToolInput, in.ToolUseID, in.Base().Cwd)), nil
			}),
			request: preBash,
			want:    `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"Bash {\"command\":\"ls\"} t1 /w"}}`,
		},
		"nothing to say": {
			hook:    parley.On("", on[*wire.PreToolUseInput]),
			request: preBash,
			want:    `{}`,
		},
		"allow": {
			hook:    parley.On("", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) { return parley.HookAllow(), nil }),
			request: preBash,
			want:    `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}`,
		},
		"ask": {
			hook: parley.On("", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) {
				return parley.HookAsk("sure?"), nil
			}),
			request: preBash,
			want:    `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"ask","permissionDecisionReason":"sure?"}}`,
		},
		"defer": {
			hook:    parley.On("", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) { return parley.HookDefer(), nil }),
			request: preBash,
			want:    `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"defer"}}`,
		},
		"other input": {
			hook: parley.On("", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) {
				return parley.HookInput(map[string]int{"n": 1}), nil
			}),
			request: preBash,
			want:    `{"hookSpecificOutput":{"hookEventName":"PreToolUse","updatedInput":{"n":1}}}`,
		},
		"context": {
			hook: parley.On("", func(_ context.Context, in *wire.UserPromptSubmitInput) (*wire.HookOutput, error) {
				return parley.HookContext("you said " + in.Prompt), nil
			}),
			request: `{"subtype":"hook_callback","callback_id":"hook_0","input":{"hook_event_name":"UserPromptSubmit","prompt":"hi",` + base + `}}`,
			want:    `{"hookSpecificOutput":{"hookEventName":"UserPromptSubmit","additionalContext":"you said hi"}}`,
		},
		"context after a tool": {
			hook: parley.On("", func(_ context.Context, in *wire.PostToolUseInput) (*wire.HookOutput, error) {
				return parley.HookContext(string(in.ToolResponse)), nil
			}),
			request: `{"subtype":"hook_callback","callback_id":"hook_0","input":{"hook_event_name":"PostToolUse","tool_name":"Bash","tool_response":[1],` + base + `}}`,
			want:    `{"hookSpecificOutput":{"hookEventName":"PostToolUse","additionalContext":"[1]"}}`,
		},
		"block": {
			hook: parley.On("", func(_ context.Context, in *wire.StopInput) (*wire.HookOutput, error) {
				if in.StopHookActive {
					return nil, nil
				}
				return parley.HookBlock("the tests fail"), nil
			}),
			request: `{"subtype":"hook_callback","callback_id":"hook_0","input":{"hook_event_name":"Stop","stop_hook_active":false,` + base + `}}`,
			want:    `{"decision":"block","reason":"the tests fail"}`,
		},
		"stop": {
			hook: parley.On("", func(context.Context, *wire.PostToolUseInput) (*wire.HookOutput, error) {
				return parley.HookStop("that will do"), nil
			}),
			request: `{"subtype":"hook_callback","callback_id":"hook_0","input":{"hook_event_name":"PostToolUse",` + base + `}}`,
			want:    `{"continue":false,"stopReason":"that will do"}`,
		},
		"message": {
			hook: parley.On("", func(_ context.Context, in *wire.SessionStartInput) (*wire.HookOutput, error) {
				return parley.HookMessage(string(in.Source)), nil
			}),
			request: `{"subtype":"hook_callback","callback_id":"hook_0","input":{"hook_event_name":"SessionStart","source":"startup",` + base + `}}`,
			want:    `{"systemMessage":"startup"}`,
		},
		"PreToolUse fails": {
			hook: parley.On("", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) {
				return parley.HookAllow(), fails
			}),
			request: preBash,
			want:    `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"A hook of the host failed: parley: hook PreToolUse failed: broken"}}`,
			warned:  "broken",
		},
		"PreToolUse panics": {
			hook:    parley.On("", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) { panic(fails) }),
			request: preBash,
			want:    `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"A hook of the host failed: parley: hook PreToolUse panicked: broken"}}`,
			warned:  "panicked",
		},
		"PreToolUse gets another input": {
			hook:    parley.On("", on[*wire.PreToolUseInput]),
			request: `{"subtype":"hook_callback","callback_id":"hook_0","input":{"hook_event_name":"Stop"}}`,
			want:    `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"A hook of the host failed: parley: hook PreToolUse failed: the agent sent a Stop input"}}`,
			warned:  "Stop input",
		},
		"PreToolUse gets no input": {
			hook:    parley.On("", on[*wire.PreToolUseInput]),
			request: `{"subtype":"hook_callback","callback_id":"hook_0"}`,
			want:    `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"A hook of the host failed: parley: hook PreToolUse failed: the agent sent no input"}}`,
			warned:  "no input",
		},
		"PreToolUse takes too long": {
			hook: withTimeout(parley.On("", func(ctx context.Context, _ *wire.PreToolUseInput) (*wire.HookOutput, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}), 3*time.Second, false),
			request: preBash,
			want:    `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"A hook of the host failed: parley: hook PreToolUse failed: context deadline exceeded"}}`,
			warned:  "deadline",
		},
		"PreToolUse fails open": {
			hook:    withTimeout(parley.On("", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) { return nil, fails }), 0, true),
			request: preBash,
			want:    `error: parley: hook PreToolUse failed: broken`,
			warned:  "broken",
		},
		"PermissionRequest fails": {
			hook:    parley.On("", func(context.Context, *wire.PermissionRequestInput) (*wire.HookOutput, error) { return nil, fails }),
			request: `{"subtype":"hook_callback","callback_id":"hook_0","input":{"hook_event_name":"PermissionRequest","tool_name":"Bash"}}`,
			want:    `{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"deny","message":"A hook of the host failed: parley: hook PermissionRequest failed: broken"}}}`,
			warned:  "broken",
		},
		"UserPromptSubmit fails": {
			hook:    parley.On("", func(context.Context, *wire.UserPromptSubmitInput) (*wire.HookOutput, error) { return nil, fails }),
			request: `{"subtype":"hook_callback","callback_id":"hook_0","input":{"hook_event_name":"UserPromptSubmit"}}`,
			want:    `{"decision":"block","reason":"A hook of the host failed: parley: hook UserPromptSubmit failed: broken"}`,
			warned:  "broken",
		},
		"PreModelSwitch fails": {
			hook:    parley.On("", func(context.Context, *wire.PreModelSwitchInput) (*wire.HookOutput, error) { return nil, fails }),
			request: `{"subtype":"hook_callback","callback_id":"hook_0","input":{"hook_event_name":"PreModelSwitch"}}`,
			want:    `{"hookSpecificOutput":{"hookEventName":"PreModelSwitch","permissionDecision":"deny","permissionDecisionReason":"A hook of the host failed: parley: hook PreModelSwitch failed: broken"}}`,
			warned:  "broken",
		},
		"PostToolUse fails": {
			hook:    parley.On("", func(context.Context, *wire.PostToolUseInput) (*wire.HookOutput, error) { return nil, fails }),
			request: `{"subtype":"hook_callback","callback_id":"hook_0","input":{"hook_event_name":"PostToolUse"}}`,
			want:    `error: parley: hook PostToolUse failed: broken`,
			warned:  "broken",
		},
		"event without a type": {
			hook: parley.OnEvent("Tomorrow", "", func(_ context.Context, in wire.HookInput) (*wire.HookOutput, error) {
				return parley.HookContext(string(in.Event())), nil
			}),
			request: `{"subtype":"hook_callback","callback_id":"hook_0","input":{"hook_event_name":"Tomorrow","x":1}}`,
			want:    `{"hookSpecificOutput":{"hookEventName":"Tomorrow","additionalContext":"Tomorrow"}}`,
		},
		"by name": {
			hook: parley.OnEvent("pre-commit", "", func(_ context.Context, in wire.HookInput) (*wire.HookOutput, error) {
				return parley.HookBlock(string(in.(*wire.UnknownInput).Raw)), nil
			}),
			request: `{"subtype":"hook_callback","hook_name":"Pre-Commit","hook_data":{"branch":"main"}}`,
			want:    `{"decision":"block","reason":"{\"branch\":\"main\"}"}`,
		},
		"by the name of an event": {
			hook: parley.On("", func(_ context.Context, in *wire.PreToolUseInput) (*wire.HookOutput, error) {
				return parley.HookDeny(in.ToolName), nil
			}),
			request: `{"subtype":"hook_callback","hook_name":"PreToolUse","hook_data":{"tool_name":"Bash"}}`,
			want:    `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"Bash"}}`,
		},
		"unknown name": {
			hook:    parley.On("", on[*wire.StopInput]),
			request: `{"subtype":"hook_callback","hook_name":"post-commit"}`,
			want:    `error: no hook named "post-commit"`,
		},
		"unknown id": {
			hook:    parley.On("", on[*wire.StopInput]),
			request: `{"subtype":"hook_callback","callback_id":"hook_1","input":{}}`,
			want:    `error: no hook callback with id "hook_1"`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				answer, warned := asks(t, parley.Options{Hooks: []parley.Hook{tt.hook}}, tt.request)
				got := answer.Response
				if reason, ok := strings.CutPrefix(tt.want, "error: "); ok {
					if got.Subtype != "error" || got.Error != reason {
						t.Errorf("answered %+v, want the error %s", got, reason)
					}
				} else if got.Subtype != "success" || !sameJSON(t, got.Response, json.RawMessage(tt.want)) {
					t.Errorf("answered %s %s, want %s", got.Response, got.Error, tt.want)
				}
				callback := ""
				for _, err := range warned {
					var failed *parley.CallbackError
					if errors.As(err, &failed) {
						callback = failed.Callback
					}
				}
				wantCallbackError(t, warned, callback, tt.warned)
			})
		})
	}
}

// TestHooksByName checks that an agent that calls hooks by name reaches all that match,
// and that an objection takes effect.
func TestHooksByName(t *testing.T) {
	var called []string
	hook := func(name, matcher string, out *wire.HookOutput) parley.Hook {
		return parley.On(matcher, func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) {
			called = append(called, name)
			return out, nil
		})
	}
	opts := parley.Options{Hooks: []parley.Hook{
		hook("a", "", parley.HookAllow()),
		hook("any", "*", nil),
		hook("b", "Write|Edit", parley.HookDeny("not for Bash")),
		parley.On("", on[*wire.StopInput]),
		hook("c", "Edit, Bash", nil),
		hook("d", "(?!Write).*", parley.HookDeny("d says no")), // a matcher that Go cannot parse matches
		hook("e", "", parley.HookAllow()),
	}}
	bubble(t, func(t *testing.T) {
		answer, _ := asks(t, opts, `{"subtype":"hook_callback","hook_name":"PreToolUse","hook_data":{"tool_name":"Bash"}}`)
		if !strings.Contains(string(answer.Response.Response), "d says no") || !slices.Equal(called, []string{"a", "any", "c", "d"}) {
			t.Errorf("answered %s after %q", answer.Response.Response, called)
		}
		called = nil
		opts.Hooks = opts.Hooks[:5]
		answer, _ = asks(t, opts, `{"subtype":"hook_callback","hook_name":"PreToolUse","hook_data":{"tool_name":"Bash"}}`)
		if !strings.Contains(string(answer.Response.Response), "allow") || !slices.Equal(called, []string{"a", "any", "c"}) {
			t.Errorf("answered %s after %q", answer.Response.Response, called)
		}
	})
}

func TestElicitation(t *testing.T) {
	const request = `{"subtype":"elicitation","mcp_server_name":"db","message":"Password?","mode":"form"}`
	var got *wire.Elicitation
	tests := map[string]struct {
		answer func(context.Context, *wire.Elicitation) (*wire.ElicitResult, error)
		want   string
		warned string
	}{
		"unset": {nil, `{"action":"decline"}`, ""},
		"accept": {func(_ context.Context, req *wire.Elicitation) (*wire.ElicitResult, error) {
			got = req
			return &wire.ElicitResult{Action: wire.ElicitAccept, Content: json.RawMessage(`{"p":"x"}`)}, nil
		}, `{"action":"accept","content":{"p":"x"}}`, ""},
		"nil":   {elicit, `{"action":"decline"}`, ""},
		"error": {func(context.Context, *wire.Elicitation) (*wire.ElicitResult, error) { return nil, errors.New("away") }, `{"action":"decline"}`, "away"},
		"panic": {func(context.Context, *wire.Elicitation) (*wire.ElicitResult, error) { panic("away") }, `{"action":"decline"}`, "away"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				answer, warned := asks(t, parley.Options{OnElicitation: tt.answer}, request)
				if !sameJSON(t, answer.Response.Response, json.RawMessage(tt.want)) {
					t.Errorf("answered %s, want %s", answer.Response.Response, tt.want)
				}
				wantCallbackError(t, warned, "OnElicitation", tt.warned)
			})
		})
	}
	if got == nil || got.MCPServerName != "db" || got.Message != "Password?" {
		t.Errorf("the callback got %+v", got)
	}
}

func TestUserDialog(t *testing.T) {
	const request = `{"subtype":"request_user_dialog","dialog_kind":"k","payload":{"a":1}}`
	tests := map[string]struct {
		answer func(context.Context, *wire.RequestUserDialog) (*wire.RequestUserDialogResponse, error)
		want   string // empty means no answer
		warned string
	}{
		"unset": {nil, "", ""},
		"nil":   {dialog, "", ""},
		"completed": {func(_ context.Context, req *wire.RequestUserDialog) (*wire.RequestUserDialogResponse, error) {
			return &wire.RequestUserDialogResponse{Behavior: "completed", Result: json.RawMessage(`"` + req.DialogKind + `"`)}, nil
		}, `{"behavior":"completed","result":"k"}`, ""},
		"error": {func(context.Context, *wire.RequestUserDialog) (*wire.RequestUserDialogResponse, error) {
			return nil, errors.New("no screen")
		}, `{"behavior":"cancelled"}`, "no screen"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts := parley.Options{OnUserDialog: tt.answer}
				if tt.answer != nil {
					opts.DialogKinds = []string{"k"}
				}
				answer, warned := asks(t, opts, request)
				if tt.want == "" {
					if answer.Type != "" {
						t.Errorf("answered %+v", answer)
					}
				} else if !sameJSON(t, answer.Response.Response, json.RawMessage(tt.want)) {
					t.Errorf("answered %s, want %s", answer.Response.Response, tt.want)
				}
				wantCallbackError(t, warned, "OnUserDialog", tt.warned)
			})
		})
	}
}

// TestOtherRequests checks the responses to requests that have no callback.
func TestOtherRequests(t *testing.T) {
	for request, want := range map[string]string{
		`{"subtype":"sdk_control_interrupt"}`: `{}`,
		`{"subtype":"dance","tempo":120}`:     "error: Unsupported control request subtype: dance",
		`{"subtype":"set_model","model":"x"}`: "error: Unsupported control request subtype: set_model",
		`{"no":"subtype"}`:                    "error:",
		`null`:                                "error:",
		`{"subtype":"mcp_message","server_name":"x","message":{"jsonrpc":"2.0","id":1,"method":"ping"}}`: "",
	} {
		bubble(t, func(t *testing.T) {
			answer, _ := asks(t, parley.Options{}, request)
			got := answer.Response
			switch reason, refused := strings.CutPrefix(want, "error:"); {
			case refused:
				if got.Subtype != "error" || !strings.Contains(got.Error, strings.TrimSpace(reason)) || got.Error == "" {
					t.Errorf("%s: answered %+v", request, got)
				}
			case got.Subtype != "success", want != "" && string(got.Response) != want:
				t.Errorf("%s: answered %+v", request, got)
			}
		})
	}
}

// TestPendingRequests checks that questions that come with a response are asked once
// each.
func TestPendingRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const asked = `"pending_permission_requests":[
			{"type":"control_request","request_id":"p1","request":{"subtype":"can_use_tool","tool_name":"A","input":{}}},
			{"type":"control_request","request_id":"p2","request":{"subtype":"can_use_tool","tool_name":"B","input":{}}}]`
		var calls atomic.Int64
		opts := agent(t, func(a *agentEnd) int {
			init := a.next()
			one := strings.ReplaceAll(asked, "\n", "")
			a.send(`{"type":"control_response","response":{"subtype":"success","request_id":%q,%s}}`, init.RequestID, one)
			a.send(`{"type":"control_response","response":{"subtype":"success","request_id":"nobody's",%s}}`, one)
			a.send(`{"type":"control_request","request_id":"p1","request":{"subtype":"can_use_tool","tool_name":"A","input":{}}}`)
			a.send(`{"type":"control_response","response":{"subtype":"success","request_id":"x","pending_elicitation_requests":[{"type":"control_request","request_id":"e1","request":{"subtype":"elicitation","mcp_server_name":"x","message":"?"}}]}}`)
			answers := map[string]int{}
			for len(answers) < 3 {
				m := a.wait("control_response")
				if m.eof {
					break
				}
				answers[m.Response.RequestID]++
			}
			if answers["p1"] != 1 || answers["p2"] != 1 || answers["e1"] != 1 {
				a.t.Errorf("answers: %v", answers)
			}
			a.wait("user")
			a.done()
			if m := a.wait("control_response"); !m.eof {
				a.t.Errorf("another answer: %+v", m)
			}
			return 0
		})
		opts.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
			calls.Add(1)
			return parley.Allow(), nil
		}
		opts.OnElicitation = func(context.Context, *wire.Elicitation) (*wire.ElicitResult, error) {
			calls.Add(1)
			return nil, nil
		}
		c := connect(t, opts)
		time.Sleep(time.Second)
		wantResult(t, turn(t, c, "hi"), "done")
		if calls.Load() != 3 {
			t.Errorf("%d calls", calls.Load())
		}
	})
}

// TestWithdrawnRequest checks that a withdrawn request ends its callback's context and
// gets no response, and that others continue.
func TestWithdrawnRequest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts := agent(t, func(a *agentEnd) int {
			a.hello()
			a.wait("user")
			for _, id := range []string{"a", "b"} {
				a.send(`{"type":"control_request","request_id":%q,"request":{"subtype":"can_use_tool","tool_name":%q,"input":{}}}`, id, id)
			}
			time.Sleep(time.Second)
			a.send(`{"type":"control_cancel_request","request_id":"a"}`)
			a.send(`{"type":"control_cancel_request","request_id":"never"}`)
			if m := a.next(); m.Response.RequestID != "b" {
				a.t.Errorf("got %+v", m)
			}
			a.send(`{"type":"control_cancel_request","request_id":"b"}`)
			a.done()
			if m := a.next(); !m.eof {
				a.t.Errorf("got %+v", m)
			}
			return 0
		})
		opts.CanUseTool = func(ctx context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
			if req.ToolName == "b" {
				time.Sleep(2 * time.Second)
				return parley.Allow(), ctx.Err()
			}
			<-ctx.Done()
			if !errors.Is(ctx.Err(), context.Canceled) || !strings.Contains(context.Cause(ctx).Error(), "withdrew") {
				t.Errorf("the context ended with %v", context.Cause(ctx))
			}
			return parley.Allow(), nil
		}
		wantResult(t, ask(t.Context(), opts, 0), "done")
	})
}

// TestQuickCallbacks checks that a callback that was quick so far, and that the reader
// therefore runs itself, delays nobody when it becomes slow.
func TestQuickCallbacks(t *testing.T) {
	const quick = 5
	for name, slow := range map[string]func(t *testing.T, c *parley.Client, ctx context.Context, next <-chan struct{}){
		"waits for another": func(t *testing.T, _ *parley.Client, _ context.Context, next <-chan struct{}) { <-next },
		"calls back": func(t *testing.T, c *parley.Client, ctx context.Context, _ <-chan struct{}) {
			if _, err := c.SetModel(ctx, "other"); err != nil {
				t.Error(err)
			}
		},
		"waits for its end":      func(_ *testing.T, _ *parley.Client, ctx context.Context, _ <-chan struct{}) { <-ctx.Done() },
		"ends its goroutine":     func(*testing.T, *parley.Client, context.Context, <-chan struct{}) { runtime.Goexit() },
		"panics":                 func(*testing.T, *parley.Client, context.Context, <-chan struct{}) { panic("no") },
		"closes its own session": func(_ *testing.T, c *parley.Client, ctx context.Context, _ <-chan struct{}) { c.Shutdown(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const request = `{"type":"control_request","request_id":"r%d","request":{"subtype":"can_use_tool","tool_name":"X","input":{}}}`
				opts := agent(t, func(a *agentEnd) int {
					a.hello()
					a.wait("user")
					for i := range quick {
						a.send(request, i)
						a.wait("control_response")
					}
					a.send(request, quick)
					time.Sleep(time.Second)
					a.send(request, quick+1)
					answered := 0
					for answered < 1 || name != "waits for its end" && answered < 2 {
						m := a.next()
						if m.eof {
							return 0
						}
						switch m.Type {
						case "control_response":
							answered++
						case "control_request":
							a.send(`{"type":"control_response","response":{"subtype":"success","request_id":%q}}`, m.RequestID)
						}
					}
					a.send(`{"type":"control_cancel_request","request_id":"r%d"}`, quick)
					a.done()
					a.wait("")
					return 0
				})
				var c *parley.Client
				var calls atomic.Int64
				next := make(chan struct{})
				opts.CanUseTool = func(ctx context.Context, _ *wire.CanUseTool) (*wire.PermissionResult, error) {
					switch calls.Add(1) {
					case quick + 1:
						slow(t, c, ctx, next)
					case quick + 2:
						close(next)
					}
					return parley.Allow(), nil
				}
				c = connect(t, opts)
				o := turn(t, c, "hi")
				if name == "closes its own session" {
					if !errors.Is(o.err, parley.ErrClosed) {
						t.Errorf("the turn ended with %v", o.err)
					}
					return
				}
				wantResult(t, o, "done")
				if n := calls.Load(); n != quick+2 {
					t.Errorf("%d calls", n)
				}
			})
		})
	}
}

// TestCallbacksAtOnce checks that up to MaxCallbacks requests do not wait for each
// other, that others wait for them, and that a flood is rejected rather than queued.
func TestCallbacksAtOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		max, requests, refused int
		took                   time.Duration
	}{
		"all at once":      {0, 1024, 0, time.Second},
		"some wait":        {0, 1100, 0, 2 * time.Second},
		"in turn":          {1, 5, 0, 5 * time.Second},
		"a limit":          {10, 25, 0, 3 * time.Second},
		"too many refused": {2, 200, 70, 65 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts := agent(t, func(a *agentEnd) int {
					a.hello()
					a.wait("user")
					go func() {
						for i := range tt.requests {
							a.send(`{"type":"control_request","request_id":"r%d","request":{"subtype":"can_use_tool","tool_name":"X","input":{}}}`, i)
						}
					}()
					refused := 0
					for range tt.requests {
						if m := a.wait("control_response"); m.Response.Subtype == "error" {
							refused++
						}
					}
					if refused != tt.refused {
						a.t.Errorf("%d were refused, want %d", refused, tt.refused)
					}
					a.done()
					a.wait("")
					return 0
				})
				opts.MaxCallbacks = tt.max
				opts.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
					time.Sleep(time.Second)
					return parley.Allow(), nil
				}
				o := ask(t.Context(), opts, 0)
				wantResult(t, o, "done")
				if o.took != tt.took {
					t.Errorf("it took %v, want %v", o.took, tt.took)
				}
			})
		})
	}
}

// TestWithdrawnWhileWaiting checks that a waiting request that is withdrawn calls
// nothing, and that a message that ends a tool call does not wait behind it.
func TestWithdrawnWhileWaiting(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts := agent(t, func(a *agentEnd) int {
			a.hello()
			a.wait("user")
			a.send(`{"type":"control_request","request_id":"t","request":{"subtype":"mcp_message","server_name":"s","message":{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{}}}}}`)
			time.Sleep(time.Second)
			a.send(`{"type":"control_request","request_id":"p","request":{"subtype":"can_use_tool","tool_name":"X","input":{}}}`)
			a.send(`{"type":"control_cancel_request","request_id":"p"}`)
			a.send(`{"type":"control_request","request_id":"c","request":{"subtype":"mcp_message","server_name":"s","message":{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}}}`)
			// The message ends the call, so that both are answered, in any order.
			answered := []string{a.wait("control_response").Response.RequestID, a.wait("control_response").Response.RequestID}
			if slices.Sort(answered); !slices.Equal(answered, []string{"c", "t"}) {
				t.Errorf("%q were answered", answered)
			}
			a.done()
			a.wait("")
			return 0
		})
		opts.MaxCallbacks = 1
		opts.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
			t.Error("CanUseTool was called")
			return parley.Allow(), nil
		}
		opts.ToolServers = map[string]*mcp.Server{"s": parley.ToolServer("s", parley.NewTool("wait", "Waits.", func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}))}
		wantResult(t, ask(t.Context(), opts, 0), "done")
	})
}

// TestCallbackCallsBack uses the client from inside a callback.
func TestCallbackCallsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts := plays(t, hello+`
			< {"type":"user"}
			> {"type":"control_request","request_id":"p","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{}}}
			< {"type":"control_request","request_id":"$m","request":{"subtype":"set_permission_mode","mode":"plan"}}
			> {"type":"control_response","response":{"subtype":"success","request_id":"$m","response":{"mode":"plan"}}}
			< {"type":"user","message":{"content":"more"}}
			< {"type":"control_response","response":{"request_id":"p","response":{"behavior":"allow"}}}
			`+done+`
			< {"type":"control_request","request_id":"$i","request":{"subtype":"interrupt","cancel_queued":true}}
			> {"type":"control_response","response":{"subtype":"success","request_id":"$i","response":{"still_queued":[],"cancelled":["more"]}}}
			< eof
		`)
		var c *parley.Client
		opts.CanUseTool = func(ctx context.Context, _ *wire.CanUseTool) (*wire.PermissionResult, error) {
			if _, err := c.SetPermissionMode(ctx, wire.ModePlan); err != nil {
				return nil, err
			}
			return parley.Allow(), c.Send(ctx, wire.Prompt(wire.Text("more")))
		}
		c = connect(t, opts)
		wantResult(t, turn(t, c, "hi"), "done")
		synctest.Wait()
	})
}

// TestOnRequest checks that the raw handler comes first, and the effect of its results.
func TestOnRequest(t *testing.T) {
	const tool = `{"subtype":"can_use_tool","tool_name":"Bash","input":{},"tool_use_id":"t1"}`
	for name, tt := range map[string]struct {
		request string
		answer  func() (json.RawMessage, error)
		want    string
	}{
		"unknown request": {
			`{"subtype":"of_tomorrow","x":[1.0]}`,
			func() (json.RawMessage, error) { return json.RawMessage("{\"y\":\n2.0}"), nil },
			`{"response":{"subtype":"success","response":{"y":2.0}}}`,
		},
		"known request": {
			tool,
			func() (json.RawMessage, error) { return json.RawMessage(`{"behavior":"deny","message":"raw"}`), nil },
			`{"response":{"subtype":"success","response":{"behavior":"deny","message":"raw"}}}`,
		},
		"no content": {tool, func() (json.RawMessage, error) { return nil, nil }, `{"response":{"subtype":"success","response":{}}}`},
		"not handled": {
			tool,
			func() (json.RawMessage, error) { return nil, fmt.Errorf("later: %w", parley.ErrNotHandled) },
			`{"response":{"subtype":"success","response":{"behavior":"allow"}}}`,
		},
		"unknown and not handled": {
			`{"subtype":"of_tomorrow"}`,
			func() (json.RawMessage, error) { return nil, parley.ErrNotHandled },
			`{"response":{"subtype":"error","error":"Unsupported control request subtype: of_tomorrow"}}`,
		},
		"refusal": {
			tool,
			func() (json.RawMessage, error) { return nil, &parley.ControlError{Message: "no", Code: "busy"} },
			`{"response":{"subtype":"error","error":"no","error_code":"busy"}}`,
		},
		"failure": {tool, func() (json.RawMessage, error) { return nil, errors.New("broken") }, `{"response":{"subtype":"success","response":{"behavior":"deny","toolUseID":"t1"}}}`},
		"panic":   {tool, func() (json.RawMessage, error) { panic("no") }, `{"response":{"subtype":"success","response":{"behavior":"deny"}}}`},
		"no JSON": {tool, func() (json.RawMessage, error) { return json.RawMessage("{"), nil }, `{"response":{"subtype":"success","response":{"behavior":"deny"}}}`},
		"failing hook": {
			`{"subtype":"hook_callback","callback_id":"elsewhere","input":{"hook_event_name":"PreToolUse","tool_name":"Bash"}}`,
			func() (json.RawMessage, error) { return nil, errors.New("broken") },
			`{"response":{"subtype":"success","response":{"hookSpecificOutput":{"permissionDecision":"deny"}}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts := plays(t, hello+"< {\"type\":\"user\"}\n> {\"type\":\"control_request\",\"request_id\":\"r\",\"request\":"+tt.request+"}\n< "+
					strings.Replace(tt.want, "{", `{"type":"control_response",`, 1)+done+"< eof\n")
				var seen []byte
				opts.CanUseTool = allow
				opts.OnRequest = func(_ context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
					seen, _ = json.Marshal(req.Request)
					if req.RequestID != "r" {
						t.Errorf("the request has the id %q", req.RequestID)
					}
					return tt.answer()
				}
				wantResult(t, ask(t.Context(), opts, 0), "done")
				if string(seen) != tt.request {
					t.Errorf("OnRequest got %s, want %s", seen, tt.request)
				}
			})
		})
	}
	t.Run("no answer", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			opts := plays(t, hello+"< {\"type\":\"user\"}\n> {\"type\":\"control_request\",\"request_id\":\"r\",\"request\":"+tool+"}\nwait 10s\n"+done+"< eof\n")
			opts.OnRequest = func(context.Context, *wire.ControlRequest) (json.RawMessage, error) { return nil, parley.ErrNoAnswer }
			wantResult(t, ask(t.Context(), opts, 0), "done")
		})
	})
}
