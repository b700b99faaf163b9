package hub_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
)

// TestRefusedStopInterruptsNothing checks that a process that cannot stop a session, because another one runs it, does
// not interrupt its turn.
func TestRefusedStopInterruptsNothing(t *testing.T) {
	for name, stop := range map[string]func(context.Context, *hub.Session) error{
		"Stop":   func(ctx context.Context, s *hub.Session) error { return s.Stop(ctx, ann) },
		"Remove": func(ctx context.Context, s *hub.Session) error { return s.Remove(ctx, ann) },
		"Delete": func(ctx context.Context, s *hub.Session) error { return s.Delete(ctx, ann) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &hub.Memory{}
				model := func() *parleytest.Model { return parleytest.Script(bash(1)...).Model() }
				r, other := newRig(t, b, model).start(), newRig(t, b, model).start()
				defer r.hub.Close()
				defer other.hub.Close()
				s := r.create()
				prompt(t, s, "Go.")
				synctest.Wait()
				for range 2 {
					state, err := s.State(t.Context(), ann)
					if err != nil || state.Phase != hub.RequiresAction {
						t.Fatalf("the session is %+v, %v; want an open question", state, err)
					}
					if err := stop(t.Context(), other.hub.Session(s.ID())); !errors.Is(err, hub.ErrLocked) {
						t.Errorf("got %v, want %v", err, hub.ErrLocked)
					}
					synctest.Wait()
				}
			})
		})
	}
}
