package hub

import (
	"context"
	"errors"
	"testing"

	"github.com/parley-go/parley"
)

// TestEndingRoomIsAwaited checks that calls to a session whose room must be reopened wait until the room
// has ended, which takes as long as its agent does. They would otherwise try again and again, with all of a processor.
func TestEndingRoomIsAwaited(t *testing.T) {
	h, err := New(Config{Backend: &Memory{}, Name: "a", Agent: func(context.Context, Start) (*parley.Options, error) { return nil, errors.New("no agent") }})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	s, err := h.Create(t.Context(), Actor{Name: "a", From: "test", Rights: Everything}, Spec{Cwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r, err := h.enter(t.Context(), s.id, nil)
	if err != nil {
		t.Fatal(err)
	}
	agent := make(chan struct{})
	r.do(t.Context(), func(*tx) error {
		r.spawn(func(context.Context) { <-agent })
		r.broken = errReopen
		return nil
	})
	<-r.ctx.Done()
	h.exit(r)
	next := make(chan *room, 1)
	go func() {
		err := h.in(t.Context(), s.id, func(r *room) error {
			defer func() { next <- r }()
			return r.do(t.Context(), func(*tx) error { return nil })
		})
		if err != nil {
			t.Errorf("the next room: %v", err)
		}
	}()
	h.mu.Lock()
	leaving := r.leaving
	h.mu.Unlock()
	if !leaving {
		t.Error("a room that has ended its context can be entered")
	}
	close(agent)
	if got := <-next; got == r {
		t.Error("a call entered the room that was ending")
	}
}
