//go:build linux

package hub

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/parley-go/parley/internal/testwait"
)

// TestWatchReplacesPolling follows an inbox that another process writes: after the first quiet poll
// it waits for the system, without a timer, and still receives every item. Afterwards nothing is
// watched.
func TestWatchReplacesPolling(t *testing.T) {
	const id = "11111111-1111-4111-8111-111111111111"
	dir := t.TempDir()
	reader, writer := &Files{Dir: dir, Watch: true}, &Files{Dir: dir}
	put := func(key string) {
		t.Helper()
		if _, err := writer.Put(t.Context(), id, Item{Key: key, Time: time.Now(), Data: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	waiting := func() bool {
		reader.changes.mu.Lock()
		defer reader.changes.mu.Unlock()
		return len(reader.changes.dirs) > 0
	}
	put("0")
	ctx, cancel := context.WithCancel(t.Context())
	items, done := make(chan Item), make(chan struct{})
	go func() {
		defer close(done)
		for item, err := range reader.Inbox(ctx, id, 0, true) {
			if err != nil {
				return
			}
			items <- item
		}
	}()
	for _, key := range []string{"0", "1", "2", "3"} {
		if key != "0" {
			testwait.Until(t, "the inbox is watched", waiting)
			put(key)
		}
		if item := <-items; item.Key != key {
			t.Fatalf("got the item %s, want %s", item.Key, key)
		}
	}
	testwait.Until(t, "the inbox is watched again", waiting)
	cancel()
	<-done
	if reader.changes.file != nil || waiting() {
		t.Error("the directory is still watched")
	}
}

// TestWatchSeesTheEndOfADirectory checks that a directory that is renamed, removed or missing does
// not leave anybody waiting.
func TestWatchSeesTheEndOfADirectory(t *testing.T) {
	var c changes
	dir := t.TempDir() + "/s"
	if changed, _ := c.watch(dir, "file", written); changed != nil {
		t.Error("a missing directory is watched")
	}
	for name, end := range map[string]func() error{
		"renamed": func() error { return os.Rename(dir, dir+".removed") },
		"removed": func() error { return os.Remove(dir) },
	} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		changed, stop := c.watch(dir, "file", written)
		again, stopAgain := c.watch(dir, "file", written)
		if changed == nil || again != changed {
			t.Fatalf("%s: two waiters of one directory have %v and %v", name, changed, again)
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		<-changed
		stop()
		stopAgain()
		if c.file != nil {
			t.Errorf("%s: the directory is still watched", name)
		}
	}
}

// TestWatchIsKept follows an inbox while its session writes the journal: what changes in another file wakes
// nobody, and what changes in the inbox does not start another watch, which would make every line of the
// journal cost the time to close the last one.
func TestWatchIsKept(t *testing.T) {
	const id = "11111111-1111-4111-8111-111111111111"
	dir := t.TempDir()
	f, other := &Files{Dir: dir, Watch: true}, &Files{Dir: dir}
	put := func(key string) {
		t.Helper()
		if _, err := other.Put(t.Context(), id, Item{Key: key, Time: time.Now(), Data: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	put("first")
	ctx, cancel := context.WithCancel(t.Context())
	items, done := make(chan Item), make(chan struct{})
	go func() {
		defer close(done)
		for item, err := range f.Inbox(ctx, id, 0, true) {
			if err != nil {
				return
			}
			items <- item
		}
	}()
	<-items
	instance := func() (file *os.File) {
		testwait.Until(t, "the inbox is watched", func() bool {
			f.changes.mu.Lock()
			defer f.changes.mu.Unlock()
			file = f.changes.file
			return file != nil
		})
		return file
	}
	first := instance()
	changed, stop := f.changes.watch(dir+"/"+id, inboxName, written)
	journal, stopJournal := f.changes.watch(dir+"/"+id, journalName, written)
	if err := other.Append(t.Context(), id, 0, []Entry{{Kind: KindFrame, N: 1, Time: time.Now(), Data: json.RawMessage(`{}`)}}); err != nil {
		t.Fatal(err)
	}
	<-journal // the system reports in order
	select {
	case <-changed:
		t.Error("a line of the journal wakes those who wait for the inbox")
	default:
	}
	stop()
	stopJournal()
	put("second")
	<-items
	if instance() != first {
		t.Error("another watch was started")
	}
	cancel()
	<-done
}

// TestFailedLeaseWakesNobody waits for the lease of another process: its end wakes the waiter, and a
// failed attempt to get it does not. Otherwise two waiters would wake each other forever.
func TestFailedLeaseWakesNobody(t *testing.T) {
	const id, other = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	dir := t.TempDir()
	owner, waiter := &Files{Dir: dir}, &Files{Dir: dir, Watch: true}
	lease := func(id string) Lease {
		l, err := owner.Lease(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	mine, later := lease(id), lease(other)
	ended, stop := waiter.leaseEnds(id)
	defer stop()
	sentinel, stopSentinel := waiter.leaseEnds(other)
	defer stopSentinel()
	if _, err := waiter.Lease(t.Context(), id); !errors.Is(err, ErrLocked) {
		t.Fatalf("a second lease: %v, want %v", err, ErrLocked)
	}
	later.Close()
	<-sentinel // the system reports in order
	select {
	case <-ended:
		t.Error("a failed attempt looks like the end of the lease")
	default:
	}
	mine.Close()
	<-ended
	if l, err := waiter.Lease(t.Context(), id); err != nil {
		t.Error(err)
	} else {
		l.Close()
	}
}
