package fleet

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/fleet/workspace"
	"github.com/parley-go/parley/hub"
)

// A restored backup has the same journals, inboxes, large entries, work and limits. A prompt that was accepted
// but not started gets its turn in the new fleet. Restore does not change a fleet with sessions.
func TestBackupIsRestored(t *testing.T) {
	t.Parallel()
	b := place(t)()
	name := b.cfg.Name
	s2, err := StartServer(ServerConfig{Name: "other", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s2.Shutdown(); s2.WaitForShutdown() })
	other := func() *Backend {
		t.Helper()
		b, err := Open(t.Context(), Config{Conn: connect(t, s2), Name: name})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		return b
	}
	gateway := newCrew(t, b, 0, "")
	s := gateway.begin(t) // no worker runs it
	big := hub.Entry{Kind: hub.KindRecord, Log: "x", Data: []byte(`"` + strings.Repeat("x", 300<<10) + `"`)}
	err = errors.Join(
		b.Append(t.Context(), s.ID(), hub.AnyNumber, []hub.Entry{big}),
		b.SetTenant(t.Context(), Tenant{Name: "acme", Running: 7}),
		b.SetWorkspaceState(t.Context(), s.ID(), 1, workspace.State{Machine: "m"}),
	)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "backup")
	report := func(string) {}
	if err := Backup(t.Context(), b.nc, "nobody", dir, report); err == nil || !strings.Contains(err.Error(), "there is no fleet") {
		t.Errorf("a backup of nothing: %v", err)
	}
	if err := Backup(t.Context(), b.nc, name, dir, report); err != nil {
		t.Fatal(err)
	}
	if err := Backup(t.Context(), b.nc, name, dir, report); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("a second backup to the same place: %v", err)
	}
	if err := Restore(t.Context(), b.nc, name, dir, report); err == nil || !strings.Contains(err.Error(), "has sessions") {
		t.Errorf("a restore into a fleet with sessions: %v", err)
	}
	next := other()
	if err := Restore(t.Context(), next.nc, name, t.TempDir(), report); err == nil || !strings.Contains(err.Error(), "is not a backup") {
		t.Errorf("a restore of nothing: %v", err)
	}
	if err := Restore(t.Context(), next.nc, name, dir, report); err != nil {
		t.Fatal(err)
	}
	read := func(b *Backend) (all []string) {
		t.Helper()
		for e, err := range b.Read(t.Context(), s.ID(), 0, false) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(e.AppendTo(nil)))
		}
		return all
	}
	if got, want := read(next), read(b); !slices.Equal(got, want) || len(got) < 2 {
		t.Errorf("the journal has %d entries, want %d", len(got), len(want))
	}
	tenant, err := next.Tenant(t.Context(), "acme")
	if err != nil || tenant == nil || tenant.Running != 7 {
		t.Errorf("the tenant is %+v, %v", tenant, err)
	}
	if state, err := next.WorkspaceState(t.Context(), s.ID()); err != nil || state.Machine != "m" {
		t.Errorf("the workspace is %+v, %v", state, err)
	}
	newCrew(t, next, 4, filepath.Join(t.TempDir(), "effects"))
	var last uint64
	until(t, newCrew(t, other(), 0, "").hub.Session(s.ID()), &last, hub.KindAsk, nil)
}
