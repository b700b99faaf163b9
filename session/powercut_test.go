//go:build unix

package session_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/parley-go/parley/internal/durable/powercut"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/session/sessiontest"
)

// TestPowerCutLosesNothingAcknowledged cuts the power after every sync and after every append: the
// disk then has what was synced, and perhaps the start of what was written since. Each acknowledged
// record must be there.
func TestPowerCutLosesNothingAcknowledged(t *testing.T) {
	const id = "11111111-1111-4111-8111-111111111111"
	said := map[string]bool{} // uuids that were acknowledged, by session
	check := func(dir string) error {
		store := &session.Files{Dir: filepath.Join(dir, "config")}
		found := map[string]bool{}
		all, err := store.List(context.Background(), session.Key{})
		if err != nil {
			return err
		}
		for _, l := range all {
			_, h, err := session.Open(context.Background(), store, l.Key.Session, sessiontest.Meta("", "/src/a"))
			if err != nil {
				return fmt.Errorf("opening %s: %w", l.Key.Session, err)
			}
			for _, e := range h.Entries {
				found[l.Key.Session+" "+e.UUID] = true
			}
		}
		for key := range said {
			if !found[key] {
				return fmt.Errorf("%s was acknowledged and is gone", key)
			}
		}
		return nil
	}
	disk := powercut.Watch(t, check)
	dir := filepath.Join(disk.Dir, "config")
	store := &session.Files{Dir: dir, Durability: session.Fsync}
	parent := ""
	say := func(log session.Log, in string, n int) {
		t.Helper()
		for i := range n {
			e := sessiontest.Say("user", fmt.Sprint("number ", i), parent)
			parent = e.UUID
			if err := log.Append(e); err != nil {
				t.Fatal(err)
			}
			if in != "" {
				said[in+" "+e.UUID] = true
			}
			disk.Cut(fmt.Sprintf("behind append %d", len(said)))
		}
	}
	open := func(store *session.Files) session.Log {
		t.Helper()
		log, h, err := session.Open(t.Context(), store, id, sessiontest.Meta("", "/src/a"))
		if errors.Is(err, session.ErrNotFound) {
			log, err = session.Create(t.Context(), store, sessiontest.Meta(id, "/src/a"))
		} else if err == nil {
			parent = h.Entries[len(h.Entries)-1].UUID
		}
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	// A process that died before it synced anything, and one that continues.
	log := open(&session.Files{Dir: dir, Durability: session.Write})
	say(log, "", 1)
	log.Close()
	log = open(store)
	say(log, id, 3)
	sub, err := log.Sub("agent-a1")
	if err != nil {
		t.Fatal(err)
	}
	say(sub, "", 2)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	// A fork, which is acknowledged as a whole.
	fork, err := session.Fork(t.Context(), store, id, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, h, err := session.Open(t.Context(), store, fork, sessiontest.Meta("", "/src/a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range h.Entries {
		said[fork+" "+e.UUID] = true
	}
	disk.Cut("behind the fork")
	if disk.Cuts() < 20 {
		t.Errorf("%d power cuts, want at least 20", disk.Cuts())
	}
}
