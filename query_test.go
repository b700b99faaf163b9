package parley_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/parleytest/parrot"
	"github.com/parley-go/parley/parleytest/peer"
	"github.com/parley-go/parley/wire"
)

// TestPromptWithInitialize checks that the first prompt does not wait for the answer
// to initialize.
func TestPromptWithInitialize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts := plays(t, `
			< {"type":"control_request","request_id":"$init","request":{"subtype":"initialize"}}
			< {"type":"user","message":{"role":"user","content":"do it"}}
			> {"type":"control_response","response":{"subtype":"success","request_id":"$init"}}
			`+done+`
			< eof
		`)
		wantResult(t, ask(t.Context(), opts, 0), "done")
	})
}

// TestQueryRefusedInitialize checks that a query continues without initialize.
func TestQueryRefusedInitialize(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts := plays(t, `
			< {"type":"control_request","request_id":"$init","request":{"subtype":"initialize"}}
			> {"type":"control_response","response":{"subtype":"error","request_id":"$init","error":"what?"}}
			< {"type":"user"}
			`+done+`
			< eof
		`)
		var warned collector
		opts.OnWarning = warned.add
		wantResult(t, ask(t.Context(), opts, 0), "done")
		if got := warned.all(); len(got) != 1 || !strings.Contains(got[0].Error(), "what?") {
			t.Errorf("warned of %v", got)
		}
	})
}

// TestRefusedInitializeWithGuards checks that hooks, callbacks and tools that would
// silently have no effect end the conversation before a prompt is sent.
func TestRefusedInitializeWithGuards(t *testing.T) {
	for name, set := range map[string]func(*parley.Options){
		"Hooks":        func(o *parley.Options) { o.Hooks = []parley.Hook{parley.On("", on[*wire.PreToolUseInput])} },
		"CanUseTool":   func(o *parley.Options) { o.CanUseTool = allow },
		"ToolServers":  func(o *parley.Options) { o.ToolServers = map[string]*mcp.Server{"a": parley.ToolServer("a")} },
		"OnRequest":    func(o *parley.Options) { o.OnRequest = raw },
		"SystemPrompt": func(o *parley.Options) { o.SystemPrompt = "Never write files." },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				refuses := func() *parley.Options {
					opts := agent(t, func(a *agentEnd) int {
						m := a.next()
						time.Sleep(time.Second)
						a.send(`{"type":"control_response","response":{"subtype":"error","request_id":%q,"error":"what?"}}`, m.RequestID)
						if m := a.wait("user"); !m.eof {
							t.Errorf("a prompt was sent: %s", m.Message)
						}
						return 0
					})
					set(opts)
					return opts
				}
				var refused *parley.ControlError
				if _, err := parley.Run(t.Context(), "hi", refuses()); !errors.As(err, &refused) || !strings.Contains(err.Error(), "Options."+name) {
					t.Errorf("Run: %v", err)
				}
				if _, err := parley.Connect(t.Context(), refuses()); !errors.As(err, &refused) || !strings.Contains(err.Error(), "Options."+name) {
					t.Errorf("Connect: %v", err)
				}
			})
		})
	}
}

// TestBlockedPrompt checks that a prompt that a hook blocked does not count as
// answered.
func TestBlockedPrompt(t *testing.T) {
	const blocked = `> {"type":"system","subtype":"informational","content":"no","level":"warning","prevent_continuation":true,"prompt_submit_outcome":{"kind":"blocked_by_hook","reason":"no"}}` + "\n"
	for name, tt := range map[string]struct {
		before string
		want   wire.Outcome
	}{
		"blocked":               {blocked, wire.OutcomeBlocked},
		"kept":                  {strings.Replace(blocked, "blocked_by_hook", "accepted", 1), wire.OutcomeCompleted},
		"before another result": {blocked + `> {"type":"result","subtype":"success","is_error":false,"result":"blocked"}` + "\n", wire.OutcomeCompleted},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts := plays(t, hello+"< {\"type\":\"user\"}\n"+tt.before+done+"< eof\n")
				o := ask(t.Context(), opts, 0)
				var failed *parley.ResultError
				if errors.As(o.err, &failed) != (tt.want != wire.OutcomeCompleted) || o.result.Outcome() != tt.want {
					t.Errorf("outcome %v, error %v; want %v", o.result.Outcome(), o.err, tt.want)
				}
			})
		})
	}
}

// TestResultErrors checks the errors for results and exits.
func TestResultErrors(t *testing.T) {
	const success = `> {"type":"result","subtype":"success","is_error":false,"result":"fine"}` + "\n"
	const failure = `> {"type":"result","subtype":"error_during_execution","is_error":true,"errors":["it broke","badly"]}` + "\n"
	const more = `> {"type":"assistant","message":{"role":"assistant","content":[]}}` + "\n"
	const state = `> {"type":"system","subtype":"session_state_changed","state":"idle"}` + "\n"
	tests := map[string]struct {
		steps   string
		outcome wire.Outcome // of the *ResultError; completed if there is none
		exit    int          // of the *ExitError; 0 if there is none
		text    string       // in the error
		results int
	}{
		"success":                        {steps: success + "< eof\n", results: 1},
		"success, exit 0 at once":        {steps: success + "exit 0\n", results: 1},
		"success, exit 1":                {steps: success + "stderr too late\nexit 1\n", exit: 1, text: "too late", results: 1},
		"success, killed":                {steps: success + "! kill\n", exit: -1, text: "killed", results: 1},
		"success that is an error":       {steps: `> {"type":"result","subtype":"success","is_error":true,"result":"API Error: 529","api_error_status":529}` + "\n< eof\n", outcome: wire.OutcomeModelError, text: "529", results: 1},
		"failure":                        {steps: failure + "< eof\n", outcome: wire.OutcomeFailed, text: "it broke", results: 1},
		"failure, exit 1":                {steps: failure + "exit 1\n", outcome: wire.OutcomeFailed, text: "badly", results: 1},
		"failure, state, exit 1":         {steps: failure + state + "exit 1\n", outcome: wire.OutcomeFailed, results: 1},
		"failure, crash in another turn": {steps: failure + more + "stderr segfault\nexit 139\n", exit: 139, text: "segfault", results: 1},
		"failure, then success":          {steps: failure + success + "< eof\n", results: 2},
		"success, then failure":          {steps: success + failure + "< eof\n", outcome: wire.OutcomeFailed, results: 2},
		"errors is a string":             {steps: `> {"type":"result","subtype":"error_during_execution","is_error":true,"errors":"one reason"}` + "\nexit 1\n", outcome: wire.OutcomeFailed, text: "one reason", results: 1},
		"errors is junk":                 {steps: `> {"type":"result","subtype":"error_during_execution","is_error":true,"errors":{"a":[1]}}` + "\nexit 1\n", outcome: wire.OutcomeFailed, results: 1},
		"max turns":                      {steps: `> {"type":"result","subtype":"error_max_turns","is_error":true}` + "\nexit 1\n", outcome: wire.OutcomeMaxTurns, results: 1},
		"budget":                         {steps: `> {"type":"result","subtype":"error_max_budget_usd","is_error":true}` + "\nexit 1\n", outcome: wire.OutcomeBudget, results: 1},
		"max turns in other words":       {steps: `> {"type":"result","subtype":"max_turns_reached"}` + "\nexit 0\n", outcome: wire.OutcomeMaxTurns, results: 1},
		"no result, exit 0":              {steps: "exit 0\n", exit: 0, text: "without a result"},
		"no result, exit 2":              {steps: "stderr bad flag\nexit 2\n", exit: 2, text: "bad flag"},
		"only a replayed result":         {steps: `> {"type":"result","subtype":"success","is_error":false,"isReplay":true}` + "\nexit 1\n", exit: 1, text: "without a result", results: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				o := ask(t.Context(), plays(t, hello+"< {\"type\":\"user\"}\n"+tt.steps), 0)
				if n := count[*wire.Result](o); n != tt.results {
					t.Errorf("%d results were yielded", n)
				}
				var res *parley.ResultError
				var exit *parley.ExitError
				switch isRes, isExit := errors.As(o.err, &res), errors.As(o.err, &exit); {
				case tt.outcome != wire.OutcomeCompleted:
					if !isRes || res.Outcome() != tt.outcome || res.Result != o.result {
						t.Errorf("got %v, want the outcome %v", o.err, tt.outcome)
					}
				case tt.exit != 0 || tt.text != "":
					if !isExit || isRes || exit.Code != tt.exit {
						t.Errorf("got %v, want the status %d", o.err, tt.exit)
					}
				case o.err != nil:
					t.Errorf("got %v", o.err)
				}
				if tt.text != "" && (o.err == nil || !strings.Contains(o.err.Error(), tt.text)) {
					t.Errorf("the error does not say %q: %v", tt.text, o.err)
				}
				// Run has the same outcome, and the result.
				got, err := parley.Run(t.Context(), "do it", plays(t, hello+"< {\"type\":\"user\"}\n"+tt.steps))
				if (err == nil) != (o.err == nil) || (got == nil) != (tt.results == 0 || name == "only a replayed result") {
					t.Errorf("Run: %+v, %v", got, err)
				}
			})
		})
	}
}

// TestInputLifetime checks how long the agent's input stays open.
func TestInputLifetime(t *testing.T) {
	const started = `{"type":"system","subtype":"task_started","task_id":"t","task_type":%q,"description":"d"}`
	const notified = `{"type":"system","subtype":"task_notification","task_id":"t","status":"completed","summary":"s"}`
	const killed = `{"type":"system","subtype":"task_updated","task_id":"t","patch":{"status":"killed"}}`
	tests := map[string]struct {
		agent func(a *agentEnd)
		want  time.Duration // when the input ends
	}{
		"at the result": {func(a *agentEnd) {
			time.Sleep(time.Minute)
			a.done()
		}, time.Minute},
		"not at a replayed result": {func(a *agentEnd) {
			a.send(`{"type":"result","subtype":"success","is_error":false,"isReplay":true}`)
			time.Sleep(time.Minute)
			a.done()
		}, time.Minute},
		"not at the result of another turn": {func(a *agentEnd) {
			a.send(`{"type":"result","subtype":"success","is_error":false,"origin":{"kind":"task-notification"}}`)
			time.Sleep(time.Minute)
			a.done()
		}, time.Minute},
		"not while an agent works": {func(a *agentEnd) {
			a.send(started, "local_agent")
			a.done()
			time.Sleep(time.Hour / 4)
			a.send(notified)
			time.Sleep(time.Second)
			a.send(`{"type":"result","subtype":"success","is_error":false,"origin":{"kind":"task-notification"}}`)
		}, time.Hour/4 + time.Second},
		"soon after an agent was killed": {func(a *agentEnd) {
			a.send(started, "local_workflow")
			a.done()
			time.Sleep(time.Minute)
			a.send(killed)
		}, time.Minute + 3*time.Second},
		"whatever a shell does": {func(a *agentEnd) {
			a.send(started, "local_bash")
			time.Sleep(time.Minute)
			a.done()
		}, time.Minute},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts := agent(t, func(a *agentEnd) int {
					a.hello()
					a.wait("user")
					start := time.Now()
					go tt.agent(a)
					a.wait("")
					if got := time.Since(start); got != tt.want {
						t.Errorf("the input ended after %v, want %v", got, tt.want)
					}
					time.Sleep(time.Second)
					return 0
				})
				if o := ask(t.Context(), opts, 0); o.err != nil {
					t.Error(o.err)
				}
			})
		})
	}
}

// prompts yields prompts, with a pause before each but the first.
func promptsAfter(pause time.Duration, texts ...string) iter.Seq[*wire.User] {
	return func(yield func(*wire.User) bool) {
		for i, s := range texts {
			if i > 0 {
				time.Sleep(pause)
			}
			if !yield(wire.Prompt(wire.Text(s))) {
				return
			}
		}
	}
}

// stream runs a query with several prompts.
func stream(ctx context.Context, prompts iter.Seq[*wire.User], opts *parley.Options) outcome {
	var o outcome
	start := time.Now()
	for m, err := range parley.QueryStream(ctx, prompts, opts) {
		o.add(m, err)
	}
	o.took = time.Since(start)
	return o
}

func TestQueryStream(t *testing.T) {
	named := func(a *agentEnd, uuids ...string) {
		a.send(`{"type":"result","subtype":"success","is_error":false,"result":"done","queued_turn_count":0,"user_message_uuids":["%s"]}`, strings.Join(uuids, `","`))
	}
	tests := map[string]struct {
		prompts iter.Seq[*wire.User]
		agent   func(a *agentEnd)
		results int
		want    time.Duration // when the input ends
		idle    time.Duration
	}{
		"one after the other": {
			promptsAfter(time.Minute, "a", "b", "c"),
			func(a *agentEnd) {
				for range 3 {
					a.wait("user")
					a.done()
				}
			}, 3, 2 * time.Minute, 0,
		},
		"the host thinks for longer than the agent may": {
			promptsAfter(time.Hour, "a", "b"),
			func(a *agentEnd) {
				for range 2 {
					a.wait("user")
					a.done()
				}
			}, 2, time.Hour, time.Minute,
		},
		"at once": {
			promptsAfter(0, "a", "b"),
			func(a *agentEnd) {
				a.wait("user")
				a.wait("user")
				a.done()
				a.send(`{"type":"system","subtype":"init"}`)
				time.Sleep(time.Minute) // the input must not end here
				a.send(`{"type":"control_request","request_id":"r","request":{"subtype":"elicitation","mcp_server_name":"x","message":"?"}}`)
				a.wait("control_response")
				a.done()
			}, 2, time.Minute, 0,
		},
		"at once, and the second takes long to begin": {
			promptsAfter(0, "a", "b"),
			func(a *agentEnd) {
				a.wait("user")
				a.wait("user")
				a.done()
				time.Sleep(time.Minute)
				a.done()
			}, 2, time.Minute, 0, // when it is read
		},
		"at once, and the agent says what it is at": {
			promptsAfter(0, "a", "b"),
			func(a *agentEnd) {
				one, two := a.wait("user"), a.wait("user")
				if one.UUID == "" || one.UUID == two.UUID {
					a.t.Errorf("the prompts have the uuids %q and %q", one.UUID, two.UUID)
				}
				named(a, one.UUID)
				time.Sleep(time.Second)
				a.send("%s", text("hm"))
				time.Sleep(time.Second)
				named(a, two.UUID)
			}, 2, 2 * time.Second, 0,
		},
		"taken together": {
			promptsAfter(0, "a", "b", "c"),
			func(a *agentEnd) {
				one, two, three := a.wait("user"), a.wait("user"), a.wait("user")
				time.Sleep(time.Minute)
				named(a, one.UUID, two.UUID, three.UUID)
			}, 1, time.Minute, 0,
		},
		"taken together, said by a count": {
			promptsAfter(0, "a", "b"),
			func(a *agentEnd) {
				a.wait("user")
				a.wait("user")
				a.send(`{"type":"result","subtype":"success","is_error":false,"queued_turn_count":0}`)
			}, 1, 0, 0,
		},
		"taken together without a word": {
			promptsAfter(0, "a", "b"),
			func(a *agentEnd) {
				a.wait("user")
				a.wait("user")
				a.done()
				time.Sleep(2 * time.Second)
				a.send(`{"type":"system","subtype":"status","status":null}`)
			}, 1, 6 * time.Second, 0,
		},
		"nil is no prompt": {
			func(yield func(*wire.User) bool) { _ = yield(nil) && yield(wire.Prompt(wire.Text("a"))) && yield(nil) },
			func(a *agentEnd) {
				a.wait("user")
				a.done()
			}, 1, 0, 0,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts := agent(t, func(a *agentEnd) int {
					a.hello()
					start := time.Now()
					tt.agent(a)
					if m := a.next(); !m.eof {
						t.Errorf("the agent got %+v", m)
					}
					if got := time.Since(start); got != tt.want {
						t.Errorf("the input ended after %v, want %v", got, tt.want)
					}
					return 0
				})
				opts.IdleTimeout = tt.idle
				o := stream(t.Context(), tt.prompts, opts)
				if n := count[*wire.Result](o); o.err != nil || n != tt.results {
					t.Errorf("%d results, error %v", n, o.err)
				}
			})
		})
	}
}

// TestSignsOfLife checks that an agent that sends signs of life and nothing else does not
// keep a query from ending: after the results, and when it is unclear whether more comes.
func TestSignsOfLife(t *testing.T) {
	for name, merges := range map[string]bool{"after the result": false, "after a merged prompt": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts := agent(t, func(a *agentEnd) int {
					a.hello()
					a.wait("user")
					if merges {
						a.wait("user")
					}
					a.done()
					ended := make(chan struct{})
					go func() {
						a.wait("")
						close(ended)
					}()
					for {
						a.send(`{"type":"keep_alive"}`)
						select {
						case <-a.Context().Done():
							return 0
						case <-ended:
							if merges {
								return 0
							}
							ended = nil // it does not end by itself
						case <-time.After(time.Second):
						}
					}
				})
				prompts := []*wire.User{wire.Prompt(wire.Text("one"))}
				if merges {
					prompts = append(prompts, wire.Prompt(wire.Text("two")))
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				var o outcome
				start := time.Now()
				for m, err := range parley.QueryStream(ctx, slices.Values(prompts), opts) {
					o.add(m, err)
				}
				wantResult(t, o, "done")
				if took := time.Since(start); took > time.Minute {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestQueryStreamFails checks sequences of prompts that fail.
func TestQueryStreamFails(t *testing.T) {
	serve := func(t *testing.T) *parley.Options { return &parley.Options{Dialer: peer.AgentDialer(parrot.Agent{})} }
	t.Run("panic", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			o := stream(t.Context(), func(yield func(*wire.User) bool) {
				yield(wire.Prompt(wire.Text("sleep 1h")))
				panic("out of prompts")
			}, serve(t))
			var failed *parley.CallbackError
			if !errors.As(o.err, &failed) || failed.Panic != "out of prompts" || o.took > 10*time.Second {
				t.Errorf("got %v after %v", o.err, o.took)
			}
		})
	})
	t.Run("none", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			o := stream(t.Context(), func(func(*wire.User) bool) {}, serve(t))
			if !errors.Is(o.err, parley.ErrNoResult) || o.took != 0 {
				t.Errorf("got %v after %v", o.err, o.took)
			}
		})
	})
	t.Run("never ends", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			forever := make(chan struct{})
			defer close(forever)
			opts := agent(t, func(a *agentEnd) int {
				a.hello()
				a.wait("user")
				return 3
			})
			o := stream(t.Context(), func(yield func(*wire.User) bool) {
				yield(wire.Prompt(wire.Text("a")))
				<-forever
			}, opts)
			if wantExit(t, o, "status 3"); o.took != 0 {
				t.Errorf("it took %v", o.took)
			}
		})
	})
}

// TestQueryContext checks that the end of its context ends the agent, whatever the loop
// does.
func TestQueryContext(t *testing.T) {
	cause := errors.New("enough")
	bubble(t, func(t *testing.T) {
		start := time.Now()
		ended := make(chan time.Duration, 1)
		opts := agent(t, func(a *agentEnd) int {
			a.hello()
			a.wait("user")
			a.send("%s", text("hm"))
			if m := a.next(); m.Request.Subtype != "interrupt" {
				t.Errorf("the agent got %+v", m)
			}
			a.wait("")
			ended <- time.Since(start)
			return 0
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		var o outcome
		for m, err := range parley.Query(ctx, "do it", opts) {
			o.add(m, err)
			if err == nil {
				time.Sleep(time.Minute) // the loop does something else
			}
		}
		if got := <-ended; got != time.Second {
			t.Errorf("the agent was ended after %v", got)
		}
		if !errors.Is(o.err, context.Canceled) || !errors.Is(o.err, cause) || len(o.messages) != 1 {
			t.Errorf("got %v after %d messages", o.err, len(o.messages))
		}
		if _, err := parley.Run(ctx, "do it", opts); !errors.Is(err, cause) || !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

// TestQueryLeft checks that leaving the loop ends the agent: at once and with an
// interrupt if it is working, without one if it is done.
func TestQueryLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts := plays(t, hello+`
			< {"type":"user"}
			> {"type":"assistant","message":{"role":"assistant","content":[]}}
			< {"type":"control_request","request":{"subtype":"interrupt"}}
			< eof
		`)
		for range parley.Query(t.Context(), "do it", opts) {
			break
		}
		opts = plays(t, hello+"< {\"type\":\"user\"}\n"+done+"< eof\n")
		for range parley.Query(t.Context(), "do it", opts) {
			break
		}
	})
}

// TestIdleTimeoutIsExact checks that the limit counts from the last line, whenever that
// arrived.
func TestIdleTimeoutIsExact(t *testing.T) {
	for _, spoke := range []time.Duration{0, time.Second, 59 * time.Second} {
		bubble(t, func(t *testing.T) {
			opts := agent(t, func(a *agentEnd) int {
				a.hello()
				a.wait("user")
				time.Sleep(spoke)
				a.send("%s", text("hm"))
				a.wait("")
				return 0
			})
			opts.IdleTimeout = time.Minute
			o := ask(t.Context(), opts, 0)
			var late *parley.TimeoutError
			if !errors.As(o.err, &late) || o.took != spoke+time.Minute {
				t.Errorf("it ended after %v with %v, want %v", o.took, o.err, spoke+time.Minute)
			}
		})
	}
}

// TestIdleTimeout checks that silence in a turn ends it, and what does not count as
// silence.
func TestIdleTimeout(t *testing.T) {
	silent := func(a *agentEnd) int {
		a.hello()
		a.wait("user")
		a.wait("")
		return 0
	}
	bubble(t, func(t *testing.T) {
		for _, limit := range []time.Duration{0, time.Minute} {
			opts := agent(t, silent)
			opts.IdleTimeout = limit
			want := limit
			if limit == 0 {
				want = 30 * time.Minute
			}
			var late *parley.TimeoutError
			o := ask(t.Context(), opts, 0)
			if !errors.As(o.err, &late) || late.After != want || o.took < want || o.took > 2*want {
				t.Errorf("Query: %v after %v", o.err, o.took)
			}
			c := connect(t, opts)
			time.Sleep(3 * want) // there is no request
			o = turn(t, c, "hi")
			if !errors.As(o.err, &late) || late.After != want || o.took < want || o.took > 2*want {
				t.Errorf("Turn: %v after %v", o.err, o.took)
			}
		}
	})
	bubble(t, func(t *testing.T) {
		opts := agent(t, func(a *agentEnd) int {
			a.hello()
			a.wait("user")
			a.send(`{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"X","input":{}}}`)
			a.wait("control_response")
			for range 10 {
				time.Sleep(40 * time.Second)
				a.send(`{"type":"keep_alive"}`)
			}
			a.done()
			a.wait("")
			return 0
		})
		opts.IdleTimeout = time.Minute
		opts.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
			time.Sleep(time.Hour) // a person is thinking about it
			return parley.Allow(), nil
		}
		wantResult(t, ask(t.Context(), opts, 0), "done")
	})
	bubble(t, func(t *testing.T) {
		opts := agent(t, func(a *agentEnd) int {
			a.hello()
			a.wait("user")
			time.Sleep(100 * time.Hour)
			a.done()
			a.wait("")
			return 0
		})
		opts.IdleTimeout = -1
		wantResult(t, ask(t.Context(), opts, 0), "done")
	})
}

// TestWriteTimeout checks that the session ends if an agent stops reading, and not if
// it reads slowly.
func TestWriteTimeout(t *testing.T) {
	big := strings.Repeat("x", 4<<20)
	bubble(t, func(t *testing.T) {
		for _, limit := range []time.Duration{0, 7 * time.Second} {
			opts := agent(t, func(a *agentEnd) int {
				a.hello()
				<-a.Context().Done()
				return 0
			})
			opts.WriteTimeout = limit
			c := connect(t, opts)
			want := limit
			if limit == 0 {
				want = time.Minute
			}
			o := turn(t, c, big)
			var late *parley.TimeoutError
			if !errors.As(o.err, &late) || late.After != want || o.took < want || o.took > want+15*time.Second {
				t.Errorf("got %v after %v", o.err, o.took)
			}
		}
	})
	bubble(t, func(t *testing.T) {
		opts := agent(t, func(a *agentEnd) int {
			a.hello()
			buf := make([]byte, 64<<10)
			for n := 0; n == 0 || buf[n-1] != '\n'; {
				time.Sleep(time.Second / 2)
				var err error
				if n, err = a.lines.Read(buf); err != nil {
					t.Error(err)
					return 1
				}
			}
			a.done()
			a.wait("")
			return 0
		})
		opts.WriteTimeout = 10 * time.Second
		c := connect(t, opts)
		o := turn(t, c, big)
		wantResult(t, o, "done")
		if o.took < 30*time.Second {
			t.Errorf("it took only %v", o.took)
		}
	})
}

// TestStoppedReading checks that the session does not wait for the idle timeout if an
// agent closed its input and waits for a response.
func TestStoppedReading(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts := agent(t, func(a *agentEnd) int {
			a.hello()
			a.wait("user")
			a.CloseRead()
			a.send(`{"type":"control_request","request_id":"r","request":{"subtype":"can_use_tool","tool_name":"X","input":{}}}`)
			<-a.Context().Done()
			return 0
		})
		opts.CanUseTool = allow
		o := ask(t.Context(), opts, 0)
		var broken *parley.ProtocolError
		if !errors.As(o.err, &broken) || o.took > 30*time.Second {
			t.Errorf("got %v after %v", o.err, o.took)
		}
	})
	bubble(t, func(t *testing.T) {
		opts := agent(t, func(a *agentEnd) int {
			a.hello()
			a.CloseRead() // before the prompt
			<-a.Context().Done()
			return 0
		})
		o := stream(t.Context(), promptsAfter(time.Second, "a", "b"), opts)
		var broken *parley.ProtocolError
		if !errors.As(o.err, &broken) || o.took > 30*time.Second {
			t.Errorf("got %v after %v", o.err, o.took)
		}
	})
}
