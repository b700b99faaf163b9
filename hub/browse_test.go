package hub_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
)

// TestBrowsingOpensNothing checks that titles and archives are changed without an
// agent, that lists and entries open no session, and that watchers of the hub see the
// last state of each session.
func TestBrowsingOpensNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &hub.Memory{}, func() *parleytest.Model { t.Error("an agent was started"); return nil }).start()
		defer r.hub.Close()
		s := r.create()
		seen := map[string]hub.Info{}
		bell := make(chan struct{}, 100)
		watched := make(chan error, 1)
		go func() {
			var last error
			for i, err := range r.hub.Watch(t.Context(), viewer) {
				if last = err; err == nil {
					seen[i.ID] = i
					bell <- struct{}{}
				}
			}
			watched <- last
		}()
		synctest.Wait()
		if err := s.Rename(t.Context(), ann, " Bills "); err != nil {
			t.Fatal(err)
		}
		if err := s.Archive(t.Context(), ann, true); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := seen[s.ID()].State; got.Title != "Bills" || !got.Archived {
			t.Errorf("watching shows %+v", got)
		}
		if r.hub.Busy() {
			t.Error("the session is open and nobody uses it")
		}
		n := uint64(0)
		for e, err := range s.Entries(t.Context(), viewer, 1) {
			if n++; err != nil || e.N != n+1 {
				t.Errorf("entry %d, %v", e.N, err)
			}
		}
		info, asks, err := s.Info(t.Context(), viewer)
		if err != nil || info.State.Title != "Bills" || !info.State.Archived || len(asks) != 0 {
			t.Errorf("info is %+v, %v, %v", info, asks, err)
		}
		if all, err := r.hub.List(t.Context(), viewer); err != nil || len(all) != 1 || all[0].State.Title != "Bills" {
			t.Errorf("the list is %+v, %v", all, err)
		}
		if r.hub.Busy() {
			t.Error("looking at a session opened it")
		}
		for what, err := range map[string]error{
			"rename":  s.Rename(t.Context(), viewer, "x"),
			"archive": s.Archive(t.Context(), ben, false),
		} {
			if !errors.Is(err, hub.ErrForbidden) {
				t.Errorf("%s without the right: %v", what, err)
			}
		}
		for _, id := range []string{session.NewID(), "..", "00000000-0000-4000-8000-000000000001"} {
			if _, _, err := r.hub.Session(id).Info(t.Context(), viewer); !errors.Is(err, hub.ErrNotFound) {
				t.Errorf("info of %s: %v", id, err)
			}
		}
		if err := s.Remove(t.Context(), ann); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !seen[s.ID()].Removed {
			t.Error("watching does not show that the session is gone")
		}
		r.hub.Close()
		if err := <-watched; !errors.Is(err, hub.ErrClosed) {
			t.Errorf("watching ended with %v", err)
		}
	})
}

// A slowBackend takes a second for each lease.
type slowBackend struct{ hub.Backend }

// Lease implements [hub.Backend].
func (b slowBackend) Lease(ctx context.Context, id string) (hub.Lease, error) {
	time.Sleep(time.Second)
	return b.Backend.Lease(ctx, id)
}

// TestCreatingAgainDisturbsNobody checks that creating an existing session fails, and
// does not disturb its users.
func TestCreatingAgainDisturbsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, slowBackend{&hub.Memory{}}, nil).start()
		defer r.hub.Close()
		s := r.create()
		time.Sleep(time.Minute) // nobody is in it any more
		created := make(chan error, 1)
		go func() {
			_, err := r.hub.Create(t.Context(), ann, hub.Spec{ID: s.ID(), Cwd: r.dir})
			created <- err
		}()
		synctest.Wait()
		if _, err := s.State(t.Context(), viewer); err != nil {
			t.Error(err)
		}
		if err := <-created; !errors.Is(err, hub.ErrExists) {
			t.Error(err)
		}
	})
}
