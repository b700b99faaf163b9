package hub_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/parley-go/parley/hub"
)

// TestDropAtOnce checks that a prompt can be dropped right after it was accepted: while it is
// in the inbox, and while it is being sent to the agent.
func TestDropAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "effects")
		r := newRig(t, &hub.Memory{}, writes(&file)).start()
		defer r.hub.Close()
		s := r.create()
		w := attach(t, s, ann, 0)
		prompt(t, s, "Wait.")
		ask := data[hub.Ask](t, w.kind(hub.KindAsk))
		for range 50 {
			uuid := prompt(t, s, "Not this.")
			if gone, err := s.Drop(t.Context(), ann, uuid); err != nil || !gone {
				t.Fatalf("the prompt was taken back: %v, %v", gone, err)
			}
		}
		if err := s.Answer(t.Context(), ann, allow(ask)); err != nil {
			t.Fatal(err)
		}
		w.result()
		w.phase(hub.Idle)
		w.stop()
	})
}
