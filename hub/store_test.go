package hub

import (
	"context"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/session/sessiontest"
)

// TestJournalIsStore checks that the journal of a session is a store for the records of
// its agent.
func TestJournalIsStore(t *testing.T) {
	sessiontest.Run(t, func(t *testing.T) session.Store {
		h, err := New(Config{Backend: &Memory{}, Agent: func(context.Context, Start) (*parley.Options, error) { return nil, nil }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		s, err := h.Create(t.Context(), Actor{Rights: Everything}, Spec{Cwd: "/src"})
		if err != nil {
			t.Fatal(err)
		}
		r, err := h.enter(t.Context(), s.id, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.exit(r) })
		return r.store()
	})
}
