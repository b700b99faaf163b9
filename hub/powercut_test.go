//go:build unix

package hub

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/parley-go/parley/internal/durable/powercut"
	"github.com/parley-go/parley/session"
)

// TestPowerCutLosesNothingAccepted cuts the power after every sync and every call, and checks that
// accepted entries, inbox items and sessions with work are there afterwards.
func TestPowerCutLosesNothingAccepted(t *testing.T) {
	const id = "11111111-1111-4111-8111-111111111111"
	accepted := map[string]bool{}
	check := func(dir string) error {
		f := &Files{Dir: filepath.Join(dir, "hub")}
		found := map[string]bool{}
		for e, err := range f.Read(t.Context(), id, 0, false) {
			if err != nil {
				return err
			}
			found[fmt.Sprint("entry ", e.N)] = true
		}
		for item, err := range f.Inbox(t.Context(), id, 0, false) {
			if err != nil {
				return err
			}
			found["item "+item.Key] = true
		}
		for woken, err := range f.Work(t.Context(), false) {
			if err != nil {
				return err
			}
			found["work "+woken] = true
		}
		for what := range accepted {
			if !found[what] {
				return fmt.Errorf("%s was accepted and is gone", what)
			}
		}
		return nil
	}
	disk := powercut.Watch(t, check)
	dir := filepath.Join(disk.Dir, "hub")
	n := uint64(0)
	add := func(f *Files, counts bool) {
		t.Helper()
		n++
		if err := f.Append(t.Context(), id, n-1, []Entry{{N: n, Kind: KindPrompt, Time: time.Now(), Data: json.RawMessage(`{}`)}}); err != nil {
			t.Fatal(err)
		}
		key := fmt.Sprint("prompt/", n)
		if _, err := f.Put(t.Context(), id, Item{Key: key, Time: time.Now(), Data: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
		if err := f.Wake(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if counts {
			accepted[fmt.Sprint("entry ", n)], accepted["item "+key], accepted["work "+id] = true, true, true
		}
		disk.Cut(fmt.Sprint("behind entry ", n))
	}
	// A process that died before it synced anything, and one that continues.
	add(&Files{Dir: dir, Durability: session.Write}, false)
	f := &Files{Dir: dir, Durability: session.Fsync}
	for range 4 {
		add(f, true)
	}
	delete(accepted, "entry 2")
	delete(accepted, "entry 3")
	if err := f.Trim(t.Context(), id, 4); err != nil {
		t.Fatal(err)
	}
	disk.Cut("behind the trim")
	add(f, true)
	if disk.Cuts() < 20 {
		t.Errorf("%d power cuts, want at least 20", disk.Cuts())
	}
}
