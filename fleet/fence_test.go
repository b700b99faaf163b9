package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/hubtest"
	"github.com/parley-go/parley/session"
)

// A process that died has no connection: its sessions can be taken over long before its
// entry expires. If it is alive after all, it is notified.
func TestLeaseOfDeadProcessIsTakenAtOnce(t *testing.T) {
	t.Parallel()
	open, id := place(t), session.NewID()
	one, two := open(), open()
	l, err := one.Lease(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	one.nc.Close()
	next, err := two.Lease(t.Context(), id)
	if err != nil {
		t.Fatalf("after its holder has died: %v", err)
	}
	if n := two.Metrics().Takeovers.Load(); n != 1 {
		t.Errorf("%d takeovers, want 1", n)
	}
	l.Close() // must not release the lease of the other process
	three := open()
	if _, err := three.Lease(t.Context(), id); !errors.Is(err, hub.ErrLocked) {
		t.Errorf("a third process: %v, want ErrLocked", err)
	}
	next.Close()
}

// A holder whose session was taken over is notified, and so is one whose entry expired.
func TestHolderIsNotifiedOfALostLease(t *testing.T) {
	open, x, y := place(t), session.NewID(), session.NewID()
	one, two := open(), open()
	lx, err := one.Lease(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	ly, err := one.Lease(t.Context(), y)
	if err != nil {
		t.Fatal(err)
	}
	two.nc.Publish(two.workerSubject(one.id), []byte(x))
	<-lx.Lost()
	select {
	case <-ly.Lost():
		t.Error("the lease of another session is lost, too")
	default:
	}
	one.beat.loseAll()
	<-ly.Lost()
	lx.Close() // releases it, because nobody has taken it
	if free, err := two.Lease(t.Context(), x); err != nil {
		t.Errorf("after a lost lease was closed: %v", err)
	} else {
		free.Close()
	}
	if err := one.workers.Purge(t.Context(), one.id); err != nil { // as if it had expired
		t.Fatal(err)
	}
	next, err := two.Lease(t.Context(), y)
	if err != nil {
		t.Fatalf("after the entry of its holder is gone: %v", err)
	}
	next.Close()
}

// A process that has lost a lease which nobody has taken acquires it again, and keeps it.
func TestLostLeaseIsAcquiredAgain(t *testing.T) {
	b, id := place(t)(), session.NewID()
	if _, err := b.Lease(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	b.beat.lose(id)
	again, err := b.Lease(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.nc.Request(b.workerSubject(b.id), []byte(id), time.Minute); err != nil { // what it was sent before is handled
		t.Fatal(err)
	}
	select {
	case <-again.Lost():
		t.Error("it is lost at once")
	default:
	}
	if n := b.Metrics().Takeovers.Load(); n != 0 {
		t.Errorf("%d takeovers, want 0", n)
	}
}

// A request that marks a session as having no work to do, and arrives again late, does not remove a mark that was set
// meanwhile.
func TestLateRestLeavesLaterMarks(t *testing.T) {
	b, id := place(t)(), session.NewID()
	sub, err := b.nc.SubscribeSync("$JS.API.STREAM.PURGE." + b.stream(workStream))
	if err == nil {
		err = errors.Join(b.nc.Flush(), b.Wake(t.Context(), id), b.Rest(t.Context(), id))
	}
	if err != nil {
		t.Fatal(err)
	}
	if queued, err := b.queued(t.Context(), id); queued || err != nil {
		t.Fatalf("at rest: %v, %v", queued, err)
	}
	late, err := sub.NextMsg(time.Second)
	if err == nil {
		err = b.Wake(t.Context(), id)
	}
	if err == nil {
		_, err = b.nc.Request(late.Subject, late.Data, time.Second)
	}
	if err != nil {
		t.Fatal(err)
	}
	if queued, err := b.queued(t.Context(), id); !queued || err != nil {
		t.Errorf("after a late request: %v, %v; want true", queued, err)
	}
}

// An append whose answer was lost is repeated, and counts once.
func TestAppendWithLostAnswerCountsOnce(t *testing.T) {
	open, id := place(t), session.NewID()
	b := open()
	if err := b.Append(t.Context(), id, 0, hubtest.Entries(0, 1)); err != nil {
		t.Fatal(err)
	}
	before, _ := b.knownTail(id)
	more := hubtest.Entries(1, 2)
	if err := b.Append(t.Context(), id, 1, more); err != nil {
		t.Fatal(err)
	}
	last, err := b.leaderGet(t.Context(), logStream, getRequest{LastFor: b.logSubject(id)})
	if err != nil {
		t.Fatal(err)
	}
	same := chunk{data: last.data, n: 3}
	b.setTail(id, before)
	if err := b.appendChunk(t.Context(), id, 1, same, 0, last.header.Get(headerID)); err != nil {
		t.Errorf("repeated: %v", err)
	}
	b.setTail(id, before)
	if err := b.appendChunk(t.Context(), id, 1, same, 0, "another"); !errors.Is(err, hub.ErrConflict) {
		t.Errorf("by another process: %v, want ErrConflict", err)
	}
	if after, err := b.readTail(t.Context(), id); err != nil || after.seq != last.seq {
		t.Errorf("the journal ends with message %d, %v; want %d", after.seq, err, last.seq)
	}
	if err := b.Append(t.Context(), id, 1, more); !errors.Is(err, hub.ErrConflict) {
		t.Errorf("appended again: %v, want ErrConflict", err)
	}
	if n := b.Metrics().Fenced.Load(); n != 1 {
		t.Errorf("%d fenced, want 1", n)
	}
}

// Large entries and items are objects. They are removed with their session, and by a writer that was
// fenced.
func TestLargeEntriesAreObjects(t *testing.T) {
	t.Parallel()
	open, id := place(t), session.NewID()
	b, stale := open(), open()
	objects := func() int {
		t.Helper()
		all, err := b.blobs.List(t.Context())
		if err != nil && !errors.Is(err, jetstream.ErrNoObjectsFound) {
			t.Fatal(err)
		}
		return len(all)
	}
	large, _ := json.Marshal(strings.Repeat("x", maxMessage))
	e := hubtest.Entries(0, 2)
	e[1].Data = large
	if err := b.Append(t.Context(), id, 0, e); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Put(t.Context(), id, hub.Item{Key: "k", Data: large}); err != nil {
		t.Fatal(err)
	}
	for item, err := range b.Inbox(t.Context(), id, 0, false) {
		if err != nil || string(item.Data) != string(large) {
			t.Errorf("the item has %d bytes, %v; want %d", len(item.Data), err, len(large))
		}
	}
	if n := objects(); n != 2 {
		t.Errorf("%d objects, want 2", n)
	}
	late := hubtest.Entries(1, 1)
	late[0].Data = large
	if err := stale.Append(t.Context(), id, 1, late); !errors.Is(err, hub.ErrConflict) {
		t.Errorf("by a stale writer: %v, want ErrConflict", err)
	}
	if n := objects(); n != 2 {
		t.Errorf("%d objects after a writer was fenced, want 2", n)
	}
	if err := b.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if n := objects(); n != 0 {
		t.Errorf("%d objects are left, want 0", n)
	}
}

// A stream has as few messages as possible: entries that are appended together are stored
// together.
func TestEntriesOfOneAppendAreOneMessage(t *testing.T) {
	open, id := place(t), session.NewID()
	b := open()
	if err := b.Append(t.Context(), id, 0, hubtest.Entries(0, 200)); err != nil {
		t.Fatal(err)
	}
	if n := b.Metrics().Appends.Load(); n != 1 {
		t.Errorf("%d messages, want 1", n)
	}
}

func TestConfigErrors(t *testing.T) {
	s, err := oneServer()
	if err != nil {
		t.Fatal(err)
	}
	nc := connect(t, s)
	for want, cfg := range map[string]Config{
		"Conn is required": {}, "not a name": {Conn: nc, Name: "a.b"}, "use 1 or 3": {Conn: nc, Replicas: 2}, "too short": {Conn: nc, Lease: 1},
	} {
		if _, err := Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for want, cfg := range map[string]ServerConfig{
		"Dir is required":        {},
		"three nodes, and 2":     {Dir: t.TempDir(), Cluster: "127.0.0.1:0", Routes: []string{"a:1", "b:1"}},
		"not an address":         {Dir: t.TempDir(), Listen: "nowhere"},
		"routes need an address": {Dir: t.TempDir(), Routes: []string{"a:1", "b:1", "c:1"}},
	} {
		if _, err := StartServer(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestGoroutinesDoNotShareALease checks that a goroutine does not get a lease that another one of the same
// process is acquiring.
func TestGoroutinesDoNotShareALease(t *testing.T) {
	one := place(t)()
	for range 20 {
		id := session.NewID()
		got := make(chan hub.Lease, 8)
		var work sync.WaitGroup
		for range cap(got) {
			work.Go(func() {
				l, err := one.Lease(t.Context(), id)
				if err == nil {
					got <- l
				} else if !errors.Is(err, hub.ErrLocked) {
					t.Error(err)
				}
			})
		}
		work.Wait()
		if n := len(got); n != 1 {
			t.Fatalf("%d goroutines have the lease", n)
		}
		(<-got).Close()
	}
}

// If a server cannot store a message yet, its error requests the same bytes again. The message is stored once.
func TestSameBytesAreRepeated(t *testing.T) {
	t.Parallel()
	for _, code := range []int{codeInFlight, codeInProcess} {
		target, id := place(t)(), session.NewID()
		b, near := place(t)(), target.nc
		// The messages of b pass through here. The first ones are not stored.
		var tries []string
		sub, err := near.Subscribe(b.cfg.Name+"near."+logStream+".*", func(m *nats.Msg) {
			reply := m.Reply
			m.Reply = ""
			m.Sub = nil
			tries = append(tries, fmt.Sprint(m.Header, string(m.Data)))
			if len(tries) < 4 {
				near.Publish(reply, fmt.Appendf(nil, `{"error":{"code":400,"err_code":%d,"description":"not yet"}}`, code))
				return
			}
			m.Subject = target.logSubject(id)
			ack, err := near.RequestMsg(m, 10*time.Second)
			if err != nil {
				t.Error(err)
				return
			}
			near.Publish(reply, ack.Data)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := near.Flush(); err != nil {
			t.Fatal(err)
		}
		b.cfg.Name += "near"
		b.setTail(id, tail{})
		if err := b.Append(t.Context(), id, 0, hubtest.Entries(0, 3)); err != nil {
			t.Errorf("%d: %v", code, err)
		}
		sub.Unsubscribe()
		if len(tries) != 4 || slices.ContainsFunc(tries, func(s string) bool { return s != tries[0] }) {
			t.Errorf("%d: the tries are %q, want 4 that are the same", code, tries)
		}
		if got := journal(t, target, id); len(got) != 3 {
			t.Errorf("%d: the journal has %d entries, want 3", code, len(got))
		}
		if n := b.Metrics().Retries.Load(); n != 3 {
			t.Errorf("%d: %d retries, want 3", code, n)
		}
	}
}
