package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley"
)

// A fullDisk is a file on a disk with room for a number of bytes.
type fullDisk struct {
	*os.File
	room int64
}

func (d fullDisk) WriteAt(p []byte, at int64) (int, error) {
	if room := d.room - at; int64(len(p)) > room {
		n, _ := d.File.WriteAt(p[:max(0, room)], at)
		return n, syscall.ENOSPC
	}
	return d.File.WriteAt(p, at)
}

// TestFullDisk checks that on a full disk the whole lines that were written stay, because
// somebody may have read them, and their numbers are used. The rest is removed, and the next
// append follows.
func TestFullDisk(t *testing.T) {
	entry := func(n uint64) Entry {
		return Entry{N: n, Kind: KindPrompt, Time: time.Now(), Data: json.RawMessage(fmt.Sprintf(`{"uuid":"%d"}`, n))}
	}
	var lines []byte
	for n := uint64(2); n <= 4; n++ {
		e := entry(n)
		lines = append(e.AppendTo(lines), '\n')
	}
	for room := range int64(len(lines)) + 1 {
		f := &Files{Dir: t.TempDir()}
		id := "11111111-1111-4111-8111-111111111111"
		lease, err := f.Lease(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Append(t.Context(), id, 0, []Entry{entry(1)}); err != nil {
			t.Fatal(err)
		}
		file, size, err := f.edit(t.Context(), id, journalName)
		if err != nil {
			t.Fatal(err)
		}
		err = put(fullDisk{file, size + room}, size, lines)
		file.Close()
		if full := room < int64(len(lines)); errors.Is(err, syscall.ENOSPC) != full {
			t.Fatalf("room for %d: %v", room, err)
		}
		last := uint64(0)
		for e, err := range f.Read(t.Context(), id, 0, false) {
			if err != nil || e.N != last+1 {
				t.Fatalf("room for %d: entry %d behind %d, %v", room, e.N, last, err)
			}
			last = e.N
		}
		if want := 1 + uint64(room)/(uint64(len(lines))/3); last != want {
			t.Fatalf("room for %d: %d entries, want %d", room, last, want)
		}
		if err := f.Append(t.Context(), id, last, []Entry{entry(last + 1)}); err != nil {
			t.Fatalf("room for %d: the next append: %v", room, err)
		}
		lease.Close()
	}
}

// TestDeleteAgain checks that a removed session disappears at once, and that files of it
// that a killed process left behind do no harm.
func TestDeleteAgain(t *testing.T) {
	f := &Files{Dir: t.TempDir()}
	id := "11111111-1111-4111-8111-111111111111"
	left := filepath.Join(f.Dir, id+".removed", "x")
	for range 2 {
		if err := os.MkdirAll(left, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := f.Append(t.Context(), id, 0, []Entry{{N: 1, Kind: KindPrompt, Time: time.Now(), Data: json.RawMessage(`{}`)}}); err != nil {
			t.Fatal(err)
		}
		if all, err := f.List(t.Context()); err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		if err := f.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if all, err := f.List(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%v, %v", all, err)
		}
	}
	if entries, err := os.ReadDir(f.Dir); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

// A restless backend makes the owner of a session rest just before an item is put.
type restless struct{ *Memory }

func (r restless) Put(ctx context.Context, id string, item Item) (Item, error) {
	if err := r.Rest(ctx, id); err != nil {
		return Item{}, err
	}
	return r.Memory.Put(ctx, id, item)
}

// TestPromptWhileTheOwnerGoesToRest checks that a prompt that arrives while the owner of its
// session rests is not forgotten.
func TestPromptWhileTheOwnerGoesToRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := restless{&Memory{}}
		h, err := New(Config{Backend: b, OwnOnly: true, Agent: func(context.Context, Start) (*parley.Options, error) { return nil, errors.New("none") }})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		me := Actor{Name: "me", Rights: Everything}
		s, err := h.Create(t.Context(), me, Spec{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.put(t.Context(), s.ID(), Item{Key: promptKey + "1", Data: json.RawMessage(`{"uuid":"1"}`)}); err != nil {
			t.Fatal(err)
		}
		for id := range b.Work(t.Context(), false) {
			if id == s.ID() {
				return
			}
		}
		t.Error("nobody knows that the session has work to do")
	})
}
