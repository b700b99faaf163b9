package sim

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/fleet"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// On a link that is slower than the initial limit of a request, a prompt is accepted late but once, and a viewer receives
// everything once and in order.
func TestSlowLinkLosesNothing(t *testing.T) {
	dir, err := os.MkdirTemp(simDir(), "fleet-sim-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	synctest.Test(t, func(t *testing.T) {
		const slow = 1500 * time.Millisecond
		w := &simWorld{seed: 1}
		stopClock := runClock()
		if w.server, err = fleet.StartServer(fleet.ServerConfig{Name: "sim", Dir: dir}); err != nil {
			t.Fatal(err)
		}
		far, near := w.addWorker(t, "far", 0), w.addWorker(t, "near", 4)
		time.Sleep(time.Second) // a new connection takes no time
		far.link.mu.Lock()
		far.link.slow = slow
		far.link.mu.Unlock()
		s, err := far.hub.Create(t.Context(), ann, hub.Spec{Cwd: dir})
		if err != nil {
			t.Fatal(err)
		}
		prompts := []string{"first", "second", "third"}
		for _, text := range prompts {
			began := time.Now()
			if _, err := s.Prompt(t.Context(), ann, wire.Prompt(wire.Text(text))); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if took := time.Since(began); took < slow || took > simLease {
				t.Errorf("%s was accepted after %v", text, took)
			}
		}
		var seen, found, stored []string
		for e, err := range s.Attach(t.Context(), ann, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.N == 0 {
				continue
			}
			seen = append(seen, string(e.AppendTo(nil)))
			if e.Kind == hub.KindPrompt {
				if found = append(found, string(e.Data)); len(found) == len(prompts) {
					break
				}
			}
		}
		time.Sleep(time.Minute) // long enough for any repetition
		for e, err := range near.b.Read(t.Context(), s.ID(), 0, false) {
			if err != nil {
				t.Fatal(err)
			}
			if e.N > 0 {
				stored = append(stored, string(e.AppendTo(nil)))
			}
		}
		if len(stored) < len(seen) || !slices.Equal(seen, stored[:len(seen)]) {
			t.Errorf("the viewer saw %q, and the journal has %q", seen, stored)
		}
		for i, text := range prompts {
			if !strings.Contains(found[i], `"`+text+`"`) {
				t.Errorf("prompt %d is %s, want %q", i, found[i], text)
			}
		}
		n := 0
		for _, line := range stored {
			if strings.Contains(line, `"kind":"prompt"`) {
				n++
			}
		}
		if n != len(prompts) {
			t.Errorf("the journal has %d prompts, want %d", n, len(prompts))
		}
		if far.b.Metrics().Retries.Load() == 0 {
			t.Error("the link was not slow")
		}
		near.close()
		far.close()
		w.server.Shutdown()
		w.server.WaitForShutdown()
		stopClock()
		time.Sleep(2 * time.Hour) // messages in transit are lost
	})
}
