package parley_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// writesStderr returns options for an agent that writes a number of lines to standard
// error in its turn.
func writesStderr(t *testing.T, lines int) *parley.Options {
	return &parley.Options{Dialer: transport.DialerFunc(func(_ context.Context, spec transport.Spec) (transport.Conn, error) {
		conn, far := transport.Pipe()
		stderr := far.Stderr(spec.Stderr)
		go func() {
			a := &agentEnd{Peer: far, t: t, lines: bufio.NewReader(far)}
			a.hello()
			a.wait("user")
			for i := range lines {
				fmt.Fprintf(stderr, "%01000d\n", i)
			}
			a.done()
			a.wait("eof")
			far.Exit(0, "")
		}()
		return conn, nil
	})}
}

// TestSlowStderrDoesNotDelay checks that a slow callback loses lines, that the agent
// never waits for it, and that the lines are counted.
func TestSlowStderrDoesNotDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const lines = 40000 // 40 MB
		opts := writesStderr(t, lines)
		var warned collector
		opts.OnWarning = warned.add
		calls := 0
		opts.Stderr = func(string) {
			calls++
			time.Sleep(time.Millisecond)
		}
		var answered time.Duration
		start := time.Now()
		for m, err := range parley.Query(t.Context(), "hi", opts) {
			if err != nil {
				t.Error(err)
			}
			if _, ok := m.(*wire.Result); ok {
				answered = time.Since(start)
			}
		}
		if answered != 0 {
			t.Errorf("the turn took %v", answered)
		}
		var dropped *parley.DroppedError
		for _, err := range warned.all() {
			errors.As(err, &dropped)
		}
		if dropped == nil || calls < 900 || calls > lines/2 || calls+dropped.Lines < lines || calls+dropped.Lines > lines+2 {
			t.Errorf("%d calls for %d lines; warnings: %v", calls, lines, warned.all())
		}
	})
}

// TestNoCallbackAfterEnd checks that no callback is called once Query has returned,
// whatever a dialer, a store or the agent does.
func TestNoCallbackAfterEnd(t *testing.T) {
	for name, set := range map[string]func(t *testing.T, opts *parley.Options, call func(string)){
		"slow Stderr": func(t *testing.T, opts *parley.Options, call func(string)) {
			*opts = *writesStderr(t, 5000)
			opts.Stderr = func(string) { time.Sleep(time.Millisecond); call("Stderr") }
		},
		"Stderr of a dialer that goes on": func(t *testing.T, opts *parley.Options, call func(string)) {
			inner := opts.Dialer
			opts.Dialer = transport.DialerFunc(func(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
				go func() {
					for range 1000 {
						time.Sleep(time.Millisecond)
						spec.Stderr("more")
					}
				}()
				return inner.Dial(ctx, spec)
			})
			opts.Stderr = func(string) { call("Stderr") }
		},
		"OnWarning": func(t *testing.T, opts *parley.Options, call func(string)) {
			*opts = *agent(t, func(a *agentEnd) int {
				a.hello()
				a.wait("user")
				for i := range 100 {
					a.send(`{"type":"control_request","request_id":"%d","request":{"subtype":"can_use_tool","tool_name":"X","input":{}}}`, i)
				}
				a.done()
				a.wait("eof")
				return 0
			})
			var n atomic.Int64
			opts.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
				time.Sleep(time.Duration(n.Add(1)) * 10 * time.Millisecond)
				return nil, nil
			}
			opts.OnWarning = func(error) { time.Sleep(time.Second); call("OnWarning") }
		},
		"SessionStore": func(t *testing.T, opts *parley.Options, call func(string)) {
			*opts = *agent(t, func(a *agentEnd) int {
				a.hello()
				a.wait("user")
				a.send(`{"type":"transcript_mirror","filePath":"projects/p/6f1c2f0e-6c1c-4f0a-9d55-0a9f6c1b2d3e.jsonl","entries":[{"type":"user"}]}`)
				a.wait("eof")
				return 0
			})
			opts.SessionStore = slowStore{Store: &session.Memory{}, call: call}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				opts := plays(t, hello+"< {\"type\":\"user\"}\n"+done+"< eof\n")
				var ended atomic.Bool
				set(t, opts, func(callback string) {
					if ended.Load() {
						t.Errorf("%s was called after the end", callback)
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for m, err := range parley.Query(ctx, "hi", opts) {
					if _, ok := m.(*wire.Result); ok || err != nil {
						break
					}
				}
				ended.Store(true)
				time.Sleep(time.Hour)
			})
		})
	}
}

// A slowStore is slow and then fails.
type slowStore struct {
	session.Store
	call func(string)
}

func (s slowStore) Append(ctx context.Context, _ session.Key, _ []json.RawMessage) error {
	s.call("SessionStore.Append")
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(59 * time.Second):
		return errors.New("no")
	}
}
