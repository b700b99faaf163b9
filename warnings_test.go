package parley_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestWarningsDelayNothing checks that an OnWarning that does not return, or that ends its
// goroutine, delays neither the agent's requests nor the end, and that guards stay closed.
func TestWarningsDelayNothing(t *testing.T) {
	const mirrors = `{"type":"transcript_mirror","filePath":"/etc/passwd","entries":[{"type":"user"}]}`
	for name, onWarning := range map[string]func(release chan struct{}){
		"blocks":             func(release chan struct{}) { <-release },
		"ends its goroutine": func(chan struct{}) { runtime.Goexit() },
		"panics":             func(chan struct{}) { panic("no") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var answered []received
				opts := agent(t, func(a *agentEnd) int {
					m := a.next()
					a.send(`{"type":"control_response","response":{"subtype":"error","request_id":%q,"error":"unknown"}}`, m.RequestID)
					a.wait("user")
					a.send(mirrors)
					a.send(`{"type":"control_request","request_id":"r","request":{"subtype":"interrupt"}}`)
					answered = append(answered, a.wait("control_response"))
					a.done()
					a.send(mirrors)
					a.wait("eof")
					return 0
				})
				release := make(chan struct{})
				opts.SessionStore = &session.Memory{}
				opts.OnWarning = func(error) { onWarning(release) }
				o := ask(t.Context(), opts, 0)
				wantResult(t, o, "done")
				if len(answered) != 1 || o.took > 5*time.Second {
					t.Errorf("%d answers, after %v", len(answered), o.took)
				}
				close(release)
			})
		})
	}
}

// TestWarningEndsItsGoroutine checks that a hook that fails denies the call although
// OnWarning ends its goroutine, and that later failures are reported.
func TestWarningEndsItsGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var answers []string
		opts := agent(t, func(a *agentEnd) int {
			a.hello()
			a.wait("user")
			for range 2 {
				a.send(`{"type":"control_request","request_id":"%d","request":{"subtype":"hook_callback","callback_id":"hook_0","input":{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{}}}}`, len(answers))
				answers = append(answers, string(a.wait("control_response").Response.Response))
			}
			a.done()
			a.wait("eof")
			return 0
		})
		opts.Hooks = []parley.Hook{parley.On("", func(context.Context, *wire.PreToolUseInput) (*wire.HookOutput, error) { panic("no") })}
		warned := 0
		opts.OnWarning = func(error) { warned++; runtime.Goexit() }
		wantResult(t, ask(t.Context(), opts, 0), "done")
		for _, answer := range answers {
			if !strings.Contains(answer, `"deny"`) {
				t.Errorf("the hook answered %s", answer)
			}
		}
		if len(answers) != 2 || warned != 2 {
			t.Errorf("%d answers, %d warnings", len(answers), warned)
		}
	})
}
