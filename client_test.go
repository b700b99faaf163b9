package parley_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/parleytest/parrot"
	"github.com/parley-go/parley/parleytest/peer"
	"github.com/parley-go/parley/wire"
)

func TestTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, plays(t, hello+`
			< {"type":"user","uuid":"$one","message":{"role":"user","content":"first"}}
			> {"type":"system","subtype":"init","session_id":"s","model":"m1","tools":[]}
			> {"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"hm"}]}}
			> {"type":"result","subtype":"success","is_error":false,"result":"1","user_message_uuids":["$one"]}
			< {"type":"user","uuid":"$two","message":{"role":"user","content":[{"type":"text","text":"second"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAE="}}]}}
			> {"type":"result","subtype":"success","is_error":false,"result":"2","user_message_uuid":"$two"}
			< {"type":"user","uuid":"mine","message":{"role":"user","content":"third"}}
			> {"type":"result","subtype":"success","is_error":false,"result":"3","user_message_uuids":["mine"]}
			< eof
		`))
		if c.LastInit() != nil {
			t.Errorf("the agent has said of itself: %+v", c.LastInit())
		}
		o := turn(t, c, "first")
		wantResult(t, o, "1")
		if len(o.messages) != 3 || c.LastInit().Model != "m1" {
			t.Errorf("%d messages, %+v", len(o.messages), c.LastInit())
		}
		o = outcome{}
		for m, err := range c.Turn(t.Context(), "second", &wire.ImageBlock{Source: wire.Base64("image/png", []byte{0, 1})}) {
			o.add(m, err)
		}
		wantResult(t, o, "2")
		own := wire.Prompt(wire.Text("third"))
		own.UUID = "mine"
		o = outcome{}
		for m, err := range c.TurnMessage(t.Context(), own) {
			o.add(m, err)
		}
		wantResult(t, o, "3")
	})
}

// TestSendDuringTurn adds to the running turn.
func TestSendDuringTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, plays(t, hello+`
			< {"type":"user","uuid":"$one","message":{"content":"first"}}
			> {"type":"assistant","message":{"role":"assistant","content":[]}}
			< {"type":"user","message":{"content":"and another"}}
			> {"type":"result","subtype":"success","is_error":false,"result":"both","user_message_uuids":["x","$one"]}
			< eof
		`))
		var o outcome
		for m, err := range c.Turn(t.Context(), "first") {
			o.add(m, err)
			if len(o.messages) == 1 {
				if err := c.Send(t.Context(), wire.Prompt(wire.Text("and another"))); err != nil {
					t.Error(err)
				}
			}
		}
		wantResult(t, o, "both")
	})
}

// TestSendAddsNothing checks that a message reaches the agent without a uuid unless the
// caller set one, as with the official SDKs.
func TestSendAddsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, agent(t, func(a *agentEnd) int {
			a.hello()
			for _, want := range []string{"", "mine"} {
				if m := a.wait("user"); m.UUID != want {
					a.t.Errorf("the uuid is %q, want %q", m.UUID, want)
				}
				a.done()
			}
			a.wait("")
			return 0
		}))
		for _, uuid := range []string{"", "mine"} {
			m := wire.Prompt(wire.Text("x"))
			m.UUID = uuid
			if err := c.Send(t.Context(), m); err != nil {
				t.Error(err)
			}
			for m, err := range c.Messages(t.Context()) {
				if _, ok := m.(*wire.Result); ok || err != nil {
					break
				}
			}
		}
	})
}

// TestResultForAnotherPrompt checks that a turn whose prompt no result names ends soon
// after the agent is idle, and not with the idle timeout.
func TestResultForAnotherPrompt(t *testing.T) {
	for name, tt := range map[string]struct {
		result string
		took   time.Duration
	}{
		"unknown":   {`"user_message_uuids":["x"]`, 10 * time.Second},
		"drained":   {`"user_message_uuid":"x","queued_turn_count":0`, 10 * time.Second},
		"one waits": {`"user_message_uuids":["x"],"queued_turn_count":1`, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts := agent(t, func(a *agentEnd) int {
					a.hello()
					a.wait("user")
					a.send(`{"type":"result","subtype":"success","is_error":false,"result":"of x",%s}`, tt.result)
					a.wait("")
					return 0
				})
				opts.IdleTimeout = time.Hour
				c := connect(t, opts)
				o := turn(t, c, "hi")
				if o.took != tt.took || (o.err == nil) != (tt.took < time.Hour) || o.result.Result != "of x" {
					t.Errorf("it took %v, result %+v, error %v", o.took, o.result, o.err)
				}
			})
		})
	}
}

// TestForeignResults checks that results that do not belong to the turn do not end it.
func TestForeignResults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, plays(t, hello+`
			< {"type":"user","uuid":"$one"}
			> {"type":"result","subtype":"success","is_error":false,"result":"a task","origin":{"kind":"task-notification"}}
			> {"type":"result","subtype":"success","is_error":false,"result":"another prompt","user_message_uuids":["other"]}
			> {"type":"result","subtype":"error_during_execution","is_error":true,"isReplay":true}
			> {"type":"system","subtype":"permission_request","tool_name":"Bash"}
			> {"type":"system","subtype":"hook_execution","hook_name":"h"}
			> {"type":"error","error":{"type":"overloaded_error","message":"busy"}}
			> {"type":"system","subtype":"error","error":"x"}
			> {"type":"result","subtype":"success","is_error":false,"result":"own","origin":{"kind":"human"},"user_message_uuids":["$one"]}
			< eof
		`))
		o := turn(t, c, "hi")
		wantResult(t, o, "own")
		if len(o.messages) != 8 {
			t.Errorf("%d of 8 messages came", len(o.messages))
		}
	})
}

// TestStaleResult checks that a result that arrived between two turns does not end the
// second, with an agent that does not name the prompts of its results.
func TestStaleResult(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, plays(t, hello+"< {\"type\":\"user\"}\n"+done+done+`
			> {"type":"assistant","message":{"role":"assistant","content":[]}}
			< {"type":"user"}
			> {"type":"result","subtype":"success","is_error":false,"result":"second"}
			< eof
		`))
		wantResult(t, turn(t, c, "hi"), "done")
		synctest.Wait()
		o := turn(t, c, "hi")
		wantResult(t, o, "second")
		if len(o.messages) != 3 {
			t.Errorf("%d of 3 messages came", len(o.messages))
		}
	})
}

// TestLeaveTurn checks that a turn that is left is interrupted, and that the next
// prompt waits for its result.
func TestLeaveTurn(t *testing.T) {
	const steps = hello + `
		< {"type":"user"}
		> {"type":"assistant","message":{"role":"assistant","content":[]}}
		< {"type":"control_request","request_id":"$stop","request":{"subtype":"interrupt"}}
		> {"type":"control_response","response":{"subtype":"success","request_id":"$stop"}}
		timeout 2s
		<? {"type":"user"}
		> {"type":"assistant","message":{"role":"assistant","content":[]}}
		> {"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_streaming"}
		timeout 10s
		< {"type":"user","message":{"content":"second"}}
		` + done + `
		< eof
	`
	leave := map[string]func(c *parley.Client, ctx context.Context){
		"break": func(c *parley.Client, ctx context.Context) {
			for range c.Turn(ctx, "first") {
				break
			}
		},
		"panic": func(c *parley.Client, ctx context.Context) {
			defer func() { recover() }()
			for range c.Turn(ctx, "first") {
				panic("out")
			}
		},
		"goexit": func(c *parley.Client, ctx context.Context) {
			var wg sync.WaitGroup
			wg.Go(func() {
				for range c.Turn(ctx, "first") {
					runtime.Goexit()
				}
			})
			wg.Wait()
		},
	}
	for name, leave := range leave {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := connect(t, plays(t, steps))
				leave(c, t.Context())
				o := turn(t, c, "second")
				wantResult(t, o, "done")
				if len(o.messages) != 1 || o.took != 2*time.Second {
					t.Errorf("%d messages after %v", len(o.messages), o.took)
				}
			})
		})
	}
}

// TestLeaveTurnAtResult checks that a turn that has ended is not interrupted.
func TestLeaveTurnAtResult(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, plays(t, hello+"< {\"type\":\"user\"}\n"+done+"< {\"type\":\"user\"}\n"+done+"< eof\n"))
		for range 2 {
			for range c.Turn(t.Context(), "hi") {
				break
			}
		}
	})
}

// TestLeaveTurnStuck checks that the wait for an interrupted turn that never ends is
// bounded, and that the next one may try again.
func TestLeaveTurnStuck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts := agent(t, func(a *agentEnd) int {
			a.hello()
			a.wait("user")
			a.send("%s", text("hm"))
			a.wait("control_request")
			time.Sleep(15 * time.Second)
			a.done()
			a.wait("user")
			a.done()
			a.wait("")
			return 0
		})
		opts.ControlTimeout = 10 * time.Second
		c := connect(t, opts)
		for range c.Turn(t.Context(), "first") {
			break
		}
		o := turn(t, c, "second")
		var timeout *parley.TimeoutError
		if !errors.As(o.err, &timeout) || !timeout.Timeout() || o.took != 10*time.Second {
			t.Errorf("%v after %v", o.err, o.took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, err := range c.Turn(ctx, "third") {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
		wantResult(t, turn(t, c, "fourth"), "done")
	})
}

// TestLeaveTurnForeignResult checks that a turn that was left also ends with a result that
// names another prompt, as agents send that merge prompts, and does not block the next one.
func TestLeaveTurnForeignResult(t *testing.T) {
	for name, limit := range map[string]time.Duration{"usual limit": 0, "short limit": 5 * time.Second} {
		for _, messages := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, messages %v", name, messages), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					opts := agent(t, func(a *agentEnd) int {
						a.hello()
						a.wait("user")
						a.send("%s", text("hm"))
						a.wait("control_request")
						a.send(`{"type":"result","subtype":"error_during_execution","is_error":true,"user_message_uuids":["other"]}`)
						m := a.wait("user")
						a.send(`{"type":"result","subtype":"success","is_error":false,"result":"done","user_message_uuids":[%q]}`, m.UUID)
						a.wait("")
						return 0
					})
					opts.ControlTimeout = limit
					c := connect(t, opts)
					for range c.Turn(t.Context(), "first") {
						break
					}
					if messages {
						for m := range c.Messages(t.Context()) {
							if _, ok := m.(*wire.Result); ok {
								break
							}
						}
					}
					o := turn(t, c, "second")
					wantResult(t, o, "done")
					if o.took > 10*time.Second {
						t.Errorf("it took %v", o.took)
					}
				})
			})
		}
	}
}

// TestNilMessage checks that a nil message is an error and not a panic, and that the
// client stays usable.
func TestNilMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, plays(t, hello+"< {\"type\":\"user\"}\n"+done+"< eof\n"))
		for _, err := range c.TurnMessage(t.Context(), nil) {
			if err == nil || !strings.Contains(err.Error(), "nil") {
				t.Errorf("TurnMessage: %v", err)
			}
		}
		if err := c.Send(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "nil") {
			t.Errorf("Send: %v", err)
		}
		wantResult(t, turn(t, c, "hi"), "done")
	})
}

// TestTurnContext checks that the end of a turn's context interrupts it at once,
// whatever the loop does, and leaves the client usable.
func TestTurnContext(t *testing.T) {
	cause := errors.New("enough")
	bubble(t, func(t *testing.T) {
		start := time.Now()
		c := connect(t, agent(t, func(a *agentEnd) int {
			a.hello()
			a.wait("user")
			a.send("%s", text("hm"))
			if m := a.next(); m.Request.Subtype != "interrupt" || time.Since(start) != time.Second {
				a.t.Errorf("got %+v after %v", m, time.Since(start))
			}
			a.send(`{"type":"result","subtype":"error_during_execution","is_error":true}`)
			a.wait("user")
			a.done()
			a.wait("")
			return 0
		}))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		var o outcome
		for m, err := range c.Turn(ctx, "first") {
			o.add(m, err)
			if err == nil {
				time.Sleep(5 * time.Second) // the loop does something else
			}
		}
		if !errors.Is(o.err, context.Canceled) || !errors.Is(o.err, cause) || len(o.messages) != 1 {
			t.Errorf("got %v after %d messages", o.err, len(o.messages))
		}
		for _, err := range c.Turn(ctx, "never sent") {
			if !errors.Is(err, cause) {
				t.Errorf("a turn with a context that has ended: %v", err)
			}
		}
		wantResult(t, turn(t, c, "second"), "done")
	})
}

// TestTurnNotSent checks that a prompt that is not yet written when its context ends is
// withdrawn, and that the turn has then ended.
func TestTurnNotSent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		resume := make(chan struct{})
		c := connect(t, agent(t, func(a *agentEnd) int {
			a.hello()
			<-resume
			big := a.wait("user")
			if len(big.Message) < 1<<20 {
				a.t.Errorf("the first prompt has %d bytes", len(big.Message))
			}
			a.send(`{"type":"result","subtype":"success","is_error":false,"result":"big","user_message_uuids":[%q]}`, big.UUID)
			m := a.wait("user")
			if !strings.Contains(string(m.Message), "third") {
				a.t.Errorf("the second prompt is %s", m.Message)
			}
			a.done()
			a.wait("")
			return 0
		}))
		wait := func(ctx context.Context, prompt string) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			for _, err := range c.Turn(ctx, prompt) {
				if err != nil {
					return err
				}
			}
			return nil
		}
		// The first is being written and cannot be withdrawn.
		if err := wait(t.Context(), strings.Repeat("x", 1<<20)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the first turn: %v", err)
		}
		if err := wait(t.Context(), "second"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second turn: %v", err)
		}
		sent := make(chan error)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			sent <- c.Send(ctx, wire.Prompt(wire.Text("sent")))
		}()
		if err := <-sent; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Send: %v", err)
		}
		close(resume)
		wantResult(t, turn(t, c, "third"), "done")
	})
}

func TestBusyAndUsed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, &parley.Options{Dialer: peer.AgentDialer(parrot.Agent{})})
		only := func(seq func(func(wire.Message, error) bool), want error) {
			t.Helper()
			n := 0
			for m, err := range seq {
				if n++; m != nil || err != want {
					t.Errorf("got %v, %v, want %v", m, err, want)
				}
			}
			if n != 1 {
				t.Errorf("%d pairs instead of one", n)
			}
		}
		first := c.Turn(t.Context(), "echo hi")
		for range first {
			only(c.Turn(t.Context(), "echo hi"), parley.ErrBusy)
			only(c.Messages(t.Context()), parley.ErrBusy)
		}
		only(first, parley.ErrUsed)
		wantResult(t, turn(t, c, "echo hi"), "hi")
		query := parley.Query(t.Context(), "echo hi", &parley.Options{Dialer: peer.AgentDialer(parrot.Agent{})})
		for range query {
			only(query, parley.ErrUsed)
		}
		only(query, parley.ErrUsed)
	})
}

// TestMessages reads all turns in one loop.
func TestMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, &parley.Options{Dialer: peer.AgentDialer(parrot.Agent{})})
		send := func(prompt string) {
			t.Helper()
			if err := c.Send(t.Context(), wire.Prompt(wire.Text(prompt))); err != nil {
				t.Fatal(err)
			}
		}
		send("echo one")
		var results []string
		for m, err := range c.Messages(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range c.Turn(t.Context(), "x") {
				if err != parley.ErrBusy {
					t.Errorf("a turn beside it: %v", err)
				}
			}
			if r, ok := m.(*wire.Result); ok {
				results = append(results, r.Result)
				if len(results) == 2 {
					break
				}
				send("echo two")
			}
		}
		if strings.Join(results, " ") != "one two" {
			t.Errorf("got the results %q", results)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for m, err := range c.Messages(ctx) {
			if m != nil || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v, %v", m, err)
			}
		}
		send("echo three")
		var last error
		for m, err := range c.Messages(t.Context()) {
			last = err
			if _, ok := m.(*wire.Result); ok {
				go c.Close()
			}
		}
		if last != parley.ErrClosed {
			t.Errorf("the last error is %v", last)
		}
	})
}

// TestMessagesAfterTurn checks that Messages may yield the result of a turn that was
// left, and that the next turn does not wait for it again.
func TestMessagesAfterTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, &parley.Options{Dialer: peer.AgentDialer(parrot.Agent{})})
		for range c.Turn(t.Context(), "sleep 1h") {
			break
		}
		for m, err := range c.Messages(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if r, ok := m.(*wire.Result); ok {
				if r.Outcome() != wire.OutcomeInterrupted {
					t.Errorf("the outcome is %v", r.Outcome())
				}
				break
			}
		}
		o := turn(t, c, "echo hi")
		wantResult(t, o, "hi")
		if o.took != 0 {
			t.Errorf("it took %v", o.took)
		}
	})
}

// TestMessagesExit checks the last pair when the agent ends by itself.
func TestMessagesExit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, plays(t, hello+"stderr out of memory\nexit 3\n"))
		for m, err := range c.Messages(t.Context()) {
			var exit *parley.ExitError
			if m != nil || !errors.As(err, &exit) || exit.Code != 3 || !strings.Contains(err.Error(), "out of memory") {
				t.Errorf("got %v, %v", m, err)
			}
		}
		for _, err := range c.Turn(t.Context(), "hi") {
			var exit *parley.ExitError
			if !errors.As(err, &exit) || exit.Code != 3 {
				t.Errorf("a turn after that: %v", err)
			}
		}
		if _, err := c.MCPStatus(t.Context()); err == nil {
			t.Error("a request after that was answered")
		}
	})
}

func TestClose(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, &parley.Options{Dialer: peer.AgentDialer(parrot.Agent{})})
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, err := range c.Turn(t.Context(), "hi") {
			if !errors.Is(err, parley.ErrClosed) {
				t.Errorf("a turn: %v", err)
			}
		}
		for _, err := range c.Messages(t.Context()) {
			if !errors.Is(err, parley.ErrClosed) {
				t.Errorf("messages: %v", err)
			}
		}
		if _, err := c.SetModel(t.Context(), "m"); !errors.Is(err, parley.ErrClosed) {
			t.Errorf("a request: %v", err)
		}
		if err := c.Send(t.Context(), wire.Prompt(wire.Text("hi"))); !errors.Is(err, parley.ErrClosed) {
			t.Errorf("a message: %v", err)
		}
	})
}

// TestCloseDuringTurn checks that the reader of a turn learns of its end, and that the
// agent is stopped.
func TestCloseDuringTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, plays(t, hello+`
			< {"type":"user"}
			> {"type":"assistant","message":{"role":"assistant","content":[]}}
			< {"type":"control_request","request":{"subtype":"interrupt"}}
			< eof
		`))
		ended := make(chan error, 1)
		started := make(chan struct{})
		go func() {
			var last error
			for _, err := range c.Turn(t.Context(), "hi") {
				if last = err; err == nil {
					close(started)
				}
			}
			ended <- last
		}()
		<-started
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, parley.ErrClosed) {
			t.Errorf("the turn ended with %v", err)
		}
	})
}

// TestCloseInCallback checks that a callback may close the client with its own context,
// and need not wait for itself to end.
func TestCloseInCallback(t *testing.T) {
	type closer func(context.Context) error
	ask := func(request string) string {
		return hello + "< {\"type\":\"user\"}\n> {\"type\":\"control_request\",\"request_id\":\"r\",\"request\":" + request + "}\nothers skip\n< eof\n"
	}
	tests := map[string]struct {
		steps string
		set   func(o *parley.Options, close closer)
	}{
		"CanUseTool": {
			ask(`{"subtype":"can_use_tool","tool_name":"Bash","input":{}}`),
			func(o *parley.Options, close closer) {
				o.CanUseTool = func(ctx context.Context, _ *wire.CanUseTool) (*wire.PermissionResult, error) {
					return parley.Allow(), close(ctx)
				}
			},
		},
		"hook": {
			ask(`{"subtype":"hook_callback","callback_id":"hook_0","input":{"hook_event_name":"Stop"}}`),
			func(o *parley.Options, close closer) {
				o.Hooks = []parley.Hook{parley.On("", func(ctx context.Context, _ *wire.StopInput) (*wire.HookOutput, error) { return nil, close(ctx) })}
			},
		},
		"OnElicitation": {
			ask(`{"subtype":"elicitation","mcp_server_name":"x","message":"?"}`),
			func(o *parley.Options, close closer) {
				o.OnElicitation = func(ctx context.Context, _ *wire.Elicitation) (*wire.ElicitResult, error) { return nil, close(ctx) }
			},
		},
		"OnWarning": {
			ask(`{"subtype":"can_use_tool","tool_name":"Bash","input":{}}`),
			func(o *parley.Options, close closer) {
				o.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) { return nil, nil }
				o.OnWarning = func(error) { go close(context.Background()) }
			},
		},
		"tool": {
			ask(`{"subtype":"mcp_message","server_name":"s","message":{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"close","arguments":{}}}}`),
			func(o *parley.Options, close closer) {
				o.ToolServers = map[string]*mcp.Server{"s": parley.ToolServer("s",
					parley.NewTool("close", "Closes.", func(ctx context.Context, _ struct{}) (string, error) { return "closed", close(ctx) }))}
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts := plays(t, tt.steps)
				var c *parley.Client
				closed := make(chan time.Duration, 1)
				tt.set(opts, func(ctx context.Context) error {
					start := time.Now()
					err := c.Shutdown(ctx)
					closed <- time.Since(start)
					return err
				})
				c = connect(t, opts)
				o := turn(t, c, "hi")
				if !errors.Is(o.err, parley.ErrClosed) {
					t.Errorf("the turn ended with %v", o.err)
				}
				if took := <-closed; took != 0 {
					t.Errorf("closing took %v", took)
				}
			})
		})
	}
}

// TestCloseWaitsForCallbacks checks that Close from elsewhere does wait, but not
// forever, and reports it.
func TestCloseWaitsForCallbacks(t *testing.T) {
	for name, takes := range map[string]time.Duration{"short": 2 * time.Second, "long": time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts := plays(t, hello+"< {\"type\":\"user\"}\n> {\"type\":\"control_request\",\"request_id\":\"r\",\"request\":{\"subtype\":\"can_use_tool\",\"tool_name\":\"Bash\",\"input\":{}}}\nothers skip\n< eof\n")
				var warned collector
				opts.OnWarning = warned.add
				running := make(chan struct{})
				opts.CanUseTool = func(ctx context.Context, _ *wire.CanUseTool) (*wire.PermissionResult, error) {
					close(running)
					<-ctx.Done()
					time.Sleep(takes)
					return parley.Allow(), nil
				}
				c := connect(t, opts)
				go func() {
					<-running
					start := time.Now()
					c.Close()
					if took, want := time.Since(start), min(takes, 5*time.Second); took != want {
						t.Errorf("Close took %v, want %v", took, want)
					}
				}()
				turn(t, c, "hi")
				synctest.Wait()
				time.Sleep(time.Minute)
				if n := len(warned.all()); n > 0 != (takes > 5*time.Second) {
					t.Errorf("warnings: %v", warned.all())
				}
			})
		})
	}
}

// TestConnectContext checks that a context bounds only connecting.
func TestConnectContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		c, err := parley.Connect(ctx, &parley.Options{Dialer: peer.AgentDialer(parrot.Agent{})})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		cancel()
		time.Sleep(time.Hour)
		wantResult(t, turn(t, c, "echo still here"), "still here")
		if _, err := parley.Connect(ctx, &parley.Options{Dialer: peer.AgentDialer(parrot.Agent{})}); !errors.Is(err, context.Canceled) {
			t.Errorf("Connect: %v", err)
		}
	})
}

// TestShutdown checks that its context shortens the wait for an agent that does not
// end, also when another call waits longer.
func TestShutdown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		stay := func(a *agentEnd) int {
			a.hello()
			<-a.Context().Done()
			return 0
		}
		c, err := parley.Connect(t.Context(), agent(t, stay))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { c.Close() })
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			c.Shutdown(ctx)
		})
		wg.Wait()
		if took := time.Since(start); took != time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestCloseUnread checks that Close does not wait long for an agent that reads
// nothing.
func TestCloseUnread(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, err := parley.Connect(t.Context(), agent(t, func(a *agentEnd) int {
			a.hello()
			<-a.Context().Done()
			return 0
		}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Send(ctx, wire.Prompt(wire.Text(strings.Repeat("x", 1<<20)))); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		start := time.Now()
		c.Close()
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestCloseTimeout checks that the option limits how long an agent may take to end.
func TestCloseTimeout(t *testing.T) {
	for _, limit := range []time.Duration{time.Second, 3 * time.Second} {
		bubble(t, func(t *testing.T) {
			opts := agent(t, func(a *agentEnd) int {
				a.hello()
				a.wait("user")
				a.done()
				<-a.Context().Done() // ignores the end of its input
				return 0
			})
			opts.CloseTimeout = limit
			o := ask(t.Context(), opts, 0)
			wantResult(t, o, "done")
			if o.took < limit || o.took > 3*limit {
				t.Errorf("with %v it took %v", limit, o.took)
			}
		})
	}
}

func TestTurnErrors(t *testing.T) {
	tests := map[string]struct {
		steps string
		check func(t *testing.T, o outcome)
	}{
		"result error": {
			`> {"type":"result","subtype":"error_max_turns","is_error":true,"errors":["too many"]}`,
			func(t *testing.T, o outcome) {
				var res *parley.ResultError
				if !errors.As(o.err, &res) || res.Outcome() != wire.OutcomeMaxTurns || res.Result != o.result || o.result == nil {
					t.Errorf("got %v, %+v", o.err, o.result)
				}
			},
		},
		"exit": {
			"stderr boom\nexit 7",
			func(t *testing.T, o outcome) {
				if exit := wantExit(t, o, "boom"); exit.Code != 7 || !errors.Is(o.err, parley.ErrNoResult) {
					t.Errorf("got %#v", exit)
				}
			},
		},
		"killed": {
			"! kill",
			func(t *testing.T, o outcome) {
				if exit := wantExit(t, o, "killed"); exit.Code != -1 || exit.Signal != "killed" {
					t.Errorf("got %#v", exit)
				}
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := connect(t, plays(t, hello+"< {\"type\":\"user\"}\n"+tt.steps+"\n"))
				tt.check(t, turn(t, c, "hi"))
			})
		})
	}
}

// TestInitializeAnswers checks connecting when initialize is answered in unusual ways.
func TestInitializeAnswers(t *testing.T) {
	const first = `< {"type":"control_request","request_id":"$init","request":{"subtype":"initialize"}}` + "\n"
	const rest = "\n< {\"type\":\"user\"}\n" + done + "< eof\n"
	t.Run("full", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := connect(t, plays(t, first+`> {"type":"control_response","response":{"subtype":"success","request_id":"$init","response":{"commands":[{"name":"compact","description":"","argumentHint":""}],"models":[{"value":"m"}],"output_style":"default"}}}`+rest))
			answer, err := c.InitializeResponse()
			if err != nil || len(answer.Commands) != 1 || answer.Models[0].Value != "m" {
				t.Errorf("got %+v, %v", answer, err)
			}
			wantResult(t, turn(t, c, "hi"), "done")
		})
	})
	t.Run("bare", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := connect(t, plays(t, first+`> {"type":"control_response","response":{"subtype":"success","request_id":"$init"}}`+rest))
			if answer, err := c.InitializeResponse(); err != nil || answer == nil || len(answer.Commands) != 0 {
				t.Errorf("got %+v, %v", answer, err)
			}
			wantResult(t, turn(t, c, "hi"), "done")
		})
	})
	t.Run("odd", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := connect(t, plays(t, first+`> {"type":"control_response","response":{"subtype":"success","request_id":"$init","response":{"commands":"none"}}}`+rest))
			if answer, err := c.InitializeResponse(); err != nil || answer == nil {
				t.Errorf("got %+v, %v", answer, err)
			}
			wantResult(t, turn(t, c, "hi"), "done")
		})
	})
	t.Run("refused", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			var warned collector
			opts := plays(t, first+`> {"type":"control_response","response":{"subtype":"error","request_id":"$init","error":"never heard of it"}}`+rest)
			opts.OnWarning = warned.add
			c := connect(t, opts)
			answer, err := c.InitializeResponse()
			var refused *parley.ControlError
			if answer == nil || !errors.As(err, &refused) || refused.Message != "never heard of it" || refused.Subtype != "initialize" {
				t.Errorf("got %+v, %v", answer, err)
			}
			synctest.Wait()
			if got := warned.all(); len(got) != 1 || !errors.As(got[0], &refused) {
				t.Errorf("warned of %v", got)
			}
			wantResult(t, turn(t, c, "hi"), "done")
		})
	})
	t.Run("again", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			c := connect(t, plays(t, hello+strings.ReplaceAll(first, "$init", "$second")+`> {"type":"control_response","response":{"subtype":"success","request_id":"$second","response":{"output_style":"x"}}}`+"\n< eof\n"))
			if answer, err := c.Reinitialize(t.Context()); err != nil || answer.OutputStyle != "x" {
				t.Errorf("got %+v, %v", answer, err)
			}
		})
	})
}

// TestInitTimeout checks that connecting to an agent that never answers fails, and that
// the time in which it waits for a callback does not count.
func TestInitTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, limit := range []time.Duration{0, time.Second} {
			opts := agent(t, func(a *agentEnd) int { a.wait(""); return 0 })
			opts.InitTimeout = limit
			start := time.Now()
			_, err := parley.Connect(t.Context(), opts)
			var late *parley.TimeoutError
			if want := max(limit, 60*time.Second*time.Duration(b2i(limit == 0))); !errors.As(err, &late) || late.After != want || time.Since(start) != want {
				t.Errorf("Connect: %v after %v", err, time.Since(start))
			}
			o := ask(t.Context(), opts, 0)
			if !errors.As(o.err, &late) || late.What != "initialize" {
				t.Errorf("Query: %v", o.err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := parley.Connect(ctx, agent(t, func(a *agentEnd) int { a.wait(""); return 0 })); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Connect with a deadline: %v", err)
		}
		opts := agent(t, func(a *agentEnd) int {
			init := a.next()
			a.send(`{"type":"control_request","request_id":"h","request":{"subtype":"hook_callback","callback_id":"hook_0","input":{"hook_event_name":"SessionStart","source":"startup"}}}`)
			a.wait("control_response")
			a.send(`{"type":"control_response","response":{"subtype":"success","request_id":%q}}`, init.RequestID)
			a.wait("")
			return 0
		})
		opts.Hooks = []parley.Hook{parley.On("", func(context.Context, *wire.SessionStartInput) (*wire.HookOutput, error) {
			time.Sleep(5 * time.Minute)
			return nil, nil
		})}
		connect(t, opts)
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestSendToolResult runs a tool in the host, for agents that leave that to the host.
func TestSendToolResult(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, plays(t, hello+`
			< {"type":"user"}
			> {"type":"assistant","message":{"role":"assistant","content":[{"type":"tool_use","id":"t1","name":"Weather","input":{"city":"Graz"}}],"stop_reason":"tool_use"}}
			< {"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"sunny","is_error":"$absent"}]}}
			> {"type":"assistant","message":{"role":"assistant","content":[{"type":"tool_use","id":"t2","name":"Weather","input":{}}]}}
			< {"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t2","content":"no city","is_error":true}]}}
			`+done+`
			< eof
		`))
		var o outcome
		for m, err := range c.Turn(t.Context(), "hi") {
			o.add(m, err)
			a, ok := m.(*wire.Assistant)
			if !ok {
				continue
			}
			use := a.Message.Content.Blocks[0].(*wire.ToolUseBlock)
			if use.ID == "t1" {
				err = c.SendToolResult(t.Context(), use.ID, wire.Text("sunny"), false)
			} else {
				err = c.SendToolResult(t.Context(), use.ID, wire.Text("no city"), true)
			}
			if err != nil {
				t.Error(err)
			}
		}
		wantResult(t, o, "done")
	})
}

// TestVerbatimPrompts checks the mark on each message.
func TestVerbatimPrompts(t *testing.T) {
	for _, verbatim := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			serve := func(a *agentEnd) int {
				a.hello()
				for {
					m := a.wait("user")
					if m.eof {
						return 0
					}
					if m.Composed != verbatim {
						a.t.Errorf("the mark is %v, want %v", m.Composed, verbatim)
					}
					a.done()
				}
			}
			opts := agent(t, serve)
			opts.VerbatimPrompts = verbatim
			wantResult(t, ask(t.Context(), opts, 0), "done")
			c := connect(t, opts)
			wantResult(t, turn(t, c, "/help"), "done")
			m := wire.Prompt(wire.Text("x"))
			if err := c.Send(t.Context(), m); err != nil || m.ClientComposed {
				t.Errorf("%v; the caller's message was changed: %v", err, m.ClientComposed)
			}
		})
	}
}

// TestMaxLine checks that a line beyond the limit is a separate message.
func TestMaxLine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts := agent(t, func(a *agentEnd) int {
			a.hello()
			a.wait("user")
			a.send("%s", text(strings.Repeat("x", 2000)))
			a.send("not JSON")
			a.done()
			a.wait("")
			return 0
		})
		opts.MaxLine = 1000
		o := ask(t.Context(), opts, 0)
		wantResult(t, o, "done")
		bad, ok := o.messages[0].(*wire.BadLine)
		if !ok || !errors.Is(bad.Err, wire.ErrLineTooLong) || bad.Size < 2000 || count[*wire.BadLine](o) != 2 {
			t.Errorf("got %v", o.messages)
		}
		opts.MaxLine = 0
		if o := ask(t.Context(), opts, 0); count[*wire.BadLine](o) != 1 {
			t.Errorf("got %v", o.messages)
		}
	})
}

// TestStderr checks that the agent's standard error arrives line by line.
func TestStderr(t *testing.T) {
	bubble(t, func(t *testing.T) {
		opts := plays(t, hello+"stderr one\nstderr two\n< {\"type\":\"user\"}\n"+done+"< eof\n")
		var lines []string
		opts.Stderr = func(line string) { lines = append(lines, line) }
		wantResult(t, ask(t.Context(), opts, 0), "done")
		if strings.Join(lines, "|") != "one|two" {
			t.Errorf("got %q", lines)
		}
	})
}

// TestReadFails checks a connection that breaks.
func TestReadFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := connect(t, agent(t, func(a *agentEnd) int {
			a.hello()
			a.wait("user")
			io.WriteString(a, `{"type":"resu`)
			return 9
		}))
		o := turn(t, c, "hi")
		if exit := wantExit(t, o, "without a result"); exit.Code != 9 {
			t.Errorf("got %#v", exit)
		}
		if count[*wire.BadLine](o) != 1 {
			t.Errorf("got %v", o.messages)
		}
	})
}
