package parley_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/wire"
)

// interop/cancel_test.go cancels at random moments. These tests cover the moments that
// it may miss.

// TestEarlyInterruptIsRepeated checks that an agent that acknowledges an interrupt
// before it has started the turn, and then starts it nevertheless, is interrupted
// again.
func TestEarlyInterruptIsRepeated(t *testing.T) {
	for name, cancelled := range map[string]func(t *testing.T, ctx context.Context, opts *parley.Options){
		"Query": func(t *testing.T, ctx context.Context, opts *parley.Options) {
			if _, err := parley.Run(ctx, "hi", opts); !errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v", err)
			}
		},
		"Turn": func(t *testing.T, ctx context.Context, opts *parley.Options) {
			c, err := parley.Connect(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for range c.Turn(ctx, "hi") {
			}
			time.Sleep(time.Second) // the agent needs some time to start
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				interrupts := 0
				opts := agent(t, func(a *agentEnd) int {
					a.hello()
					a.wait("user")
					cancel()
					for {
						m := a.next()
						if m.eof {
							return 0
						}
						if m.Request.Subtype != "interrupt" {
							continue
						}
						a.send(`{"type":"control_response","response":{"subtype":"success","request_id":%q,"response":{}}}`, m.RequestID)
						if interrupts++; interrupts == 1 {
							time.Sleep(500 * time.Millisecond)
							a.send(`{"type":"system","subtype":"init"}`)
							continue
						}
						a.send(`{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_streaming"}`)
					}
				})
				cancelled(t, ctx, opts)
				if interrupts != 2 {
					t.Errorf("the agent got %d interrupts, want 2", interrupts)
				}
			})
		})
	}
}

// TestNothingStartsWhileClosing checks that a session that is closing rejects what the
// agent requests, and sends no prompt.
func TestNothingStartsWhileClosing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		sent := make(chan struct{})
		opts := agent(t, func(a *agentEnd) int {
			a.hello()
			a.wait("user")
			a.send("%s", text("hm"))
			cancel()
			a.wait("control_request")
			a.send(`{"type":"control_request","request_id":"p","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{}}}`)
			a.send(`{"type":"control_request","request_id":"h","request":{"subtype":"hook_callback","callback_id":"hook_0","input":{"hook_event_name":"PreToolUse","tool_name":"Bash"}}}`)
			a.send(`{"type":"control_request","request_id":"t","request":{"subtype":"mcp_message","server_name":"s","message":{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"step","arguments":{}}}}}`)
			close(sent)
			if m := a.wait("user"); !m.eof {
				t.Errorf("a prompt came after the interrupt: %s", m.Message)
			}
			return 0
		})
		opts.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
			t.Error("CanUseTool was called")
			return parley.Allow(), nil
		}
		opts.Hooks = []parley.Hook{parley.On("", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) {
			t.Error("the hook was called")
			return nil, nil
		})}
		opts.ToolServers = map[string]*mcp.Server{"s": parley.ToolServer("s", parley.NewTool("step", "Steps.", func(context.Context, struct{}) (string, error) {
			t.Error("the tool was called")
			return "", nil
		}))}
		var prompts iter.Seq[*wire.User] = func(yield func(*wire.User) bool) {
			yield(wire.Prompt(wire.Text("one")))
			<-ctx.Done()
			yield(wire.Prompt(wire.Text("two")))
		}
		for _, err := range parley.QueryStream(ctx, prompts, opts) {
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		<-sent
	})
}

// TestCancelAfterInputEnded checks that a cancel ends an agent at once that keeps
// working after its input has ended, because it cannot be interrupted.
func TestCancelAfterInputEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		opts := agent(t, func(a *agentEnd) int {
			a.hello()
			a.wait("user")
			a.wait("user")
			a.done() // for one of them; the SDK waits a while, then ends the input
			if m := a.wait("user"); !m.eof {
				t.Errorf("a prompt came: %s", m.Message)
			}
			a.send(`{"type":"system","subtype":"init"}`)
			cancel()
			<-a.Context().Done()
			return 1
		})
		opts.CloseTimeout = time.Minute
		start := time.Now()
		var prompts iter.Seq[*wire.User] = func(yield func(*wire.User) bool) {
			_ = yield(wire.Prompt(wire.Text("one"))) && yield(wire.Prompt(wire.Text("two")))
		}
		for _, err := range parley.QueryStream(ctx, prompts, opts) {
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
