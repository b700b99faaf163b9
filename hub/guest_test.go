package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// A board connects hubs that share a memory, as if each were a process of its own.
type board struct {
	hub.Memory
	mu    sync.Mutex
	lines []*line
}

// A line is the backend of one of these hubs.
type line struct {
	*board
	answer func(context.Context, string, []byte) ([]byte, error)
	cut    bool // its calls arrive nowhere
}

// Call implements [hub.Caller].
func (l *line) Call(ctx context.Context, id string, request []byte) ([]byte, error) {
	l.mu.Lock()
	others, cut := append([]*line{}, l.lines...), l.cut
	l.mu.Unlock()
	for _, o := range others {
		if o == l || cut {
			continue
		}
		type response struct {
			data []byte
			err  error
		}
		got := make(chan response, 1)
		go func() {
			data, err := o.answer(context.WithoutCancel(ctx), id, request)
			got <- response{data, err}
		}()
		select {
		case r := <-got:
			if !errors.Is(r.err, hub.ErrLocked) {
				return r.data, r.err
			}
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, hub.ErrLocked
}

// Answer implements [hub.Caller].
func (l *line) Answer(ctx context.Context, answer func(context.Context, string, []byte) ([]byte, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = answer
	l.lines = append(l.lines, l)
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for i, o := range l.lines {
			if o == l {
				l.lines = append(l.lines[:i:i], l.lines[i+1:]...)
			}
		}
	})
	return nil
}

// far starts a gateway, whose hosts are attached in other processes, and returns a function that starts workers.
func far(t *testing.T, turns func() []*parleytest.Turn) (gateway *rig, l *line, worker func() *rig) {
	b := new(board)
	l = &line{board: b}
	gateway = newRig(t, l, nil)
	gateway.cfg.Gateway = true
	gateway.cfg.Agent = func(context.Context, hub.Start) (*parley.Options, error) { return nil, errors.New("this is a gateway") }
	gateway.start()
	model := parleytest.Script(turns()...).Model() // of all workers
	return gateway, l, func() *rig {
		w := newRig(t, &line{board: b}, func() *parleytest.Model { return model })
		w.cfg.IdleAfter = time.Second
		return w.start()
	}
}

var preToolUse = map[string]json.RawMessage{"hooks": json.RawMessage(`{"PreToolUse":[{"matcher":"Bash","hookCallbackIds":["cb"],"timeout":3600}]}`)}

func bash(n int) (turns []*parleytest.Turn) {
	for range n {
		turns = append(turns, parleytest.Call("Bash", map[string]string{"command": "true && touch x"}), parleytest.Say("Done."))
	}
	return turns
}

// TestHostElsewhere attaches hosts at a process that does not run the session. Their hooks decide, they are superseded,
// they leave, and a request that is no longer needed is cancelled.
func TestHostElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gateway, _, worker := far(t, func() []*parleytest.Turn { return bash(2) })
		defer gateway.hub.Close()
		w := worker()
		defer w.hub.Close()
		s := gateway.create()
		view := attach(t, s, ann, 0)
		defer view.stop()
		requests := make(chan string, 10)
		host := func(name, reason string) hub.HostOptions {
			return hub.HostOptions{Initialize: preToolUse, Handle: func(ctx context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
				requests <- name + " " + req.Request.Subtype()
				if reason == "" {
					<-ctx.Done()
					requests <- name + " cancelled"
					return nil, ctx.Err()
				}
				return json.RawMessage(`{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"` + reason + `"}}`), nil
			}}
		}
		first, err := s.Host(t.Context(), ann, host("first", "the first host says no"))
		if err != nil {
			t.Fatal(err)
		}
		prompt(t, s, "one")
		denied := view.until("the denial", func(e hub.Entry) bool { return strings.Contains(string(e.Data), "the first host says no") })
		if got := <-requests; got != "first hook_callback" || denied.N == 0 {
			t.Errorf("the first request is %q", got)
		}
		view.result()
		var held *hub.HeldError
		if _, err := s.Host(t.Context(), ann, host("second", "")); !errors.As(err, &held) || held.Epoch != first.Epoch() {
			t.Errorf("a second host: %v, want a HeldError with the epoch %d", err, first.Epoch())
		}
		opts := host("second", "")
		opts.TakeOver = true
		second, err := s.Host(t.Context(), ann, opts)
		if err != nil {
			t.Fatal(err)
		}
		<-first.Done()
		if !errors.Is(first.Err(), hub.ErrSuperseded) || second.Epoch() <= first.Epoch() {
			t.Errorf("the first host ends with %v, epochs %d and %d", first.Err(), first.Epoch(), second.Epoch())
		}
		prompt(t, s, "two")
		if got := <-requests; got != "second hook_callback" {
			t.Errorf("the request is %q", got)
		}
		if err := s.Interrupt(t.Context(), ann); err != nil {
			t.Fatal(err)
		}
		if got := <-requests; got != "second cancelled" {
			t.Errorf("after the interrupt: %q", got)
		}
		view.result()
		if err := second.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		if st, err := w.hub.Session(s.ID()).State(t.Context(), ann); err != nil || st.Host != nil {
			t.Errorf("after the host has left: %+v, %v", st.Host, err)
		}
	})
}

// TestHostStaysAttached checks that a host stays attached when the process that runs the session ends: the next one
// calls its hooks.
func TestHostStaysAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gateway, _, worker := far(t, func() []*parleytest.Turn { return bash(2) })
		defer gateway.hub.Close()
		w := worker()
		s := gateway.create()
		view := attach(t, s, ann, 0)
		defer view.stop()
		requests := make(chan string, 10)
		host, err := s.Host(t.Context(), ann, hub.HostOptions{Initialize: preToolUse, Handle: func(_ context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
			requests <- req.Request.Subtype()
			return json.RawMessage(`{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny"}}`), nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		prompt(t, s, "one")
		view.result()
		<-requests
		epoch := host.Epoch()
		w.hub.Close()
		w = worker()
		defer w.hub.Close()
		prompt(t, s, "two")
		view.result()
		if got := <-requests; got != "hook_callback" || host.Err() != nil || host.Epoch() <= epoch {
			t.Errorf("the next process requests %q; the host ended with %v; epochs %d and %d", got, host.Err(), epoch, host.Epoch())
		}
		host.Close()
		if err := s.Remove(t.Context(), ann); err != nil {
			t.Fatal(err)
		}
	})
}

// TestLostHostIsAway checks that the process that runs a session notices within half a minute that the process of the
// host is gone, and that the host is attached again when it returns.
func TestLostHostIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gateway, line, worker := far(t, func() []*parleytest.Turn { return bash(1) })
		defer gateway.hub.Close()
		w := worker()
		defer w.hub.Close()
		s := gateway.create()
		host, err := s.Host(t.Context(), ann, hub.HostOptions{Initialize: preToolUse, Handle: func(context.Context, *wire.ControlRequest) (json.RawMessage, error) { return nil, nil }})
		if err != nil {
			t.Fatal(err)
		}
		away := func() bool {
			t.Helper()
			st, err := w.hub.Session(s.ID()).State(t.Context(), ann)
			if err != nil || st.Host == nil {
				t.Fatalf("state %+v, %v", st, err)
			}
			return st.Host.Away
		}
		cut := func(yes bool) {
			line.mu.Lock()
			defer line.mu.Unlock()
			line.cut = yes
		}
		time.Sleep(5 * time.Minute)
		if away() {
			t.Error("a host that has nothing to do is away")
		}
		cut(true)
		time.Sleep(30 * time.Second)
		if !away() {
			t.Error("a host whose process is gone is not away")
		}
		cut(false)
		time.Sleep(30 * time.Second)
		if away() || host.Err() != nil {
			t.Errorf("the host that returned is away, and ended with %v", host.Err())
		}
		// The session is removed: its host ends.
		if err := s.Remove(t.Context(), ann); err != nil {
			t.Fatal(err)
		}
		<-host.Done()
		if !errors.Is(host.Err(), hub.ErrNotFound) {
			t.Errorf("the host of a removed session ends with %v", host.Err())
		}
	})
}
