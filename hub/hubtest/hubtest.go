// Package hubtest tests implementations of hub.Backend, so that your own backend can
// run the same tests:
//
//	func TestBackend(t *testing.T) {
//		hubtest.Run(t, func(t *testing.T) func() hub.Backend {
//			dir := t.TempDir()
//			return func() hub.Backend { return mybackend.Open(dir) }
//		})
//	}
//
// It uses nothing but the interface of a backend.
package hubtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/session"
)

// Run tests backends. It calls open once per test, for a place that holds no session.
// The function that open returns opens a backend there each time that it is called. Two
// of these backends must behave like those of two processes.
func Run(t *testing.T, open func(t *testing.T) func() hub.Backend) {
	for _, r := range []struct {
		name string
		test func(t *testing.T, open func() hub.Backend)
	}{
		{"AppendThenRead", appendThenRead},
		{"AppendKeepsBytes", appendKeepsBytes},
		{"AppendChecksNumbers", appendChecksNumbers},
		{"AppendChecksData", appendChecksData},
		{"AppendExpects", appendExpects},
		{"AppendRaceHasOneWinner", appendRace},
		{"OwnerEntryFencesStaleWriter", fence},
		{"RecordsHaveNoNumber", records},
		{"RecordsWithoutLease", recordsWithoutLease},
		{"ReadFromAnyNumber", readFromAny},
		{"ReadUnknown", readUnknown},
		{"ReadLarge", readLarge},
		{"ReadFollows", readFollows},
		{"ReadFollowsOtherProcess", readFollowsOther},
		{"ReadEndsWithContext", readEnds},
		{"TrimKeepsNumbers", trim},
		{"TrimKeepsRecords", trimRecords},
		{"TrimUnderFollower", trimUnderFollower},
		{"LeaseIsExclusive", lease},
		{"PutOnce", putOnce},
		{"PutRaceHasOneWinner", putRace},
		{"InboxOrder", inboxOrder},
		{"InboxFollows", inboxFollows},
		{"InboxTrimKeepsNumbers", inboxTrim},
		{"WorkListsWoken", work},
		{"WorkFollows", workFollows},
		{"List", list},
		{"Delete", deleted},
		{"SessionsAreApart", apart},
		{"BadIDs", badIDs},
		{"Cancelled", cancelled},
	} {
		t.Run(r.name, func(t *testing.T) { r.test(t, open(t)) })
	}
}

// Entries returns n entries with the numbers after last, for tests.
func Entries(last uint64, n int) []hub.Entry {
	var all []hub.Entry
	for i := range n {
		k := last + uint64(i) + 1
		all = append(all, hub.Entry{N: k, Kind: hub.KindFrame, Time: now(), Epoch: 1, Record: session.NewID(),
			Data: json.RawMessage(fmt.Sprintf(`{"type":"assistant","number":%d}`, k))})
	}
	return all
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

func record(text string) hub.Entry {
	data, _ := json.Marshal(map[string]string{"type": "user", "uuid": session.NewID(), "text": text})
	return hub.Entry{Kind: hub.KindRecord, Time: now(), Log: "-src/" + session.NewID(), Data: data}
}

func mustAppend(t *testing.T, b hub.Backend, id string, expect uint64, entries ...hub.Entry) {
	t.Helper()
	if err := b.Append(t.Context(), id, expect, entries); err != nil {
		t.Fatalf("Append behind %d: %v", expect, err)
	}
}

func collect[T any](t *testing.T, seq iter.Seq2[T, error]) []T {
	t.Helper()
	var all []T
	for v, err := range seq {
		if err != nil {
			t.Fatalf("after %d: %v", len(all), err)
		}
		all = append(all, v)
	}
	return all
}

func read(t *testing.T, b hub.Backend, id string, after uint64) []hub.Entry {
	t.Helper()
	return collect(t, b.Read(t.Context(), id, after, false))
}

func same(t *testing.T, got, want []hub.Entry) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d entries, want %d", len(got), len(want))
	}
	for i := range want {
		if g, w := string(got[i].AppendTo(nil)), string(want[i].AppendTo(nil)); g != w {
			t.Fatalf("entry %d\n got %s\nwant %s", i, g, w)
		}
	}
}

func appendThenRead(t *testing.T, open func() hub.Backend) {
	b, id := open(), session.NewID()
	want := Entries(0, 5)
	mustAppend(t, b, id, 0, want[:1]...)
	mustAppend(t, b, id, 1, want[1:4]...)
	mustAppend(t, b, id, 4, want[4:]...)
	mustAppend(t, b, id, 5)
	same(t, read(t, b, id, 0), want)
	same(t, read(t, open(), id, 0), want)
	got := read(t, b, id, 0)
	copy(got[0].Data, "XXXXXXXX") // the reader owns the entries
	same(t, read(t, b, id, 0), want)
	data := json.RawMessage(`{"a":1}`)
	e := hub.Entry{N: 6, Kind: hub.KindOwner, Time: now(), Data: data}
	mustAppend(t, b, id, 5, e)
	copy(data, "XXXXXXX") // and the backend keeps no reference to the caller's data
	if got := read(t, b, id, 5); len(got) != 1 || string(got[0].Data) != `{"a":1}` {
		t.Errorf("got %+v", got)
	}
}

func appendKeepsBytes(t *testing.T, open func() hub.Backend) {
	b, id := open(), session.NewID()
	var want []hub.Entry
	for _, data := range []string{
		`{"b":1,"a":2,"a":3}`, `{ "spaces" : [ 1 ,2 ] }`, `1.50`, `12345678901234567890`, `"<&>\u003c\u2028😀"`, `null`, `[]`, `"\"data\":{}}"`,
	} {
		want = append(want, hub.Entry{N: uint64(len(want)) + 1, Kind: hub.KindFrame, Time: now(), Epoch: 3, Item: 4, Record: `a "b" \ ü`, Recovered: len(want)%2 == 0, Data: json.RawMessage(data)})
	}
	want = append(want, hub.Entry{Kind: hub.KindRecord, Time: now(), Log: `p/s/sub "x"`, Data: json.RawMessage(`{}`)})
	mustAppend(t, b, id, 0, want...)
	same(t, read(t, open(), id, 0), want)
}

func appendChecksNumbers(t *testing.T, open func() hub.Backend) {
	b, id := open(), session.NewID()
	some := Entries(0, 3)
	mustAppend(t, b, id, 0, some...)
	gap, again := Entries(4, 1), Entries(2, 1)
	unnumbered, numbered := Entries(3, 1), record("x")
	unnumbered[0].N, numbered.N = 0, 4
	for name, bad := range map[string][]hub.Entry{
		"a gap": gap, "a number that is taken": again, "a frame without a number": unnumbered, "a record with a number": {numbered},
		"a gap behind a good one": append(Entries(3, 1), Entries(5, 1)...), "no kind": {{N: 4, Data: json.RawMessage("{}")}},
		"a kind that is no word": {{N: 4, Kind: `a"b`, Data: json.RawMessage("{}")}},
	} {
		if err := b.Append(t.Context(), id, 3, bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := b.Append(t.Context(), id, hub.AnyNumber, Entries(3, 1)); err == nil {
		t.Error("a number without an expected one: no error")
	}
	same(t, read(t, b, id, 0), some)
}

func appendChecksData(t *testing.T, open func() hub.Backend) {
	b, id := open(), session.NewID()
	for _, bad := range []string{"", "{", "nothing", "{}\n{}", "{\n}", `{"a":1} {"b":2}`} {
		e := Entries(0, 2)
		e[1].Data = json.RawMessage(bad)
		if err := b.Append(t.Context(), id, 0, e); err == nil {
			t.Errorf("data %q: no error", bad)
		}
	}
	same(t, read(t, b, id, 0), nil)
}

func appendExpects(t *testing.T, open func() hub.Backend) {
	one, two, id := open(), open(), session.NewID()
	first := Entries(0, 1)
	for _, expect := range []uint64{1, 7} {
		if err := one.Append(t.Context(), id, expect, Entries(expect, 1)); !errors.Is(err, hub.ErrConflict) {
			t.Errorf("an empty journal, expecting %d: %v, want ErrConflict", expect, err)
		}
	}
	mustAppend(t, one, id, 0, first...)
	second := Entries(1, 1)
	mustAppend(t, two, id, 1, second...)
	for _, expect := range []uint64{0, 1, 3} {
		if err := one.Append(t.Context(), id, expect, Entries(expect, 1)); !errors.Is(err, hub.ErrConflict) {
			t.Errorf("expecting %d of 2: %v, want ErrConflict", expect, err)
		}
	}
	same(t, read(t, one, id, 0), append(first, second...))
}

func appendRace(t *testing.T, open func() hub.Backend) {
	const writers, rounds = 4, 25
	id := session.NewID()
	won := make([]int, rounds)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			b := open()
			for n := range rounds {
				err := b.Append(t.Context(), id, uint64(n), Entries(uint64(n), 1))
				mu.Lock()
				if err == nil {
					won[n]++
				} else if !errors.Is(err, hub.ErrConflict) {
					t.Errorf("number %d: %v", n+1, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for n, k := range won {
		if k != 1 {
			t.Errorf("number %d was written %d times", n+1, k)
		}
	}
	if got := read(t, open(), id, 0); len(got) != rounds {
		t.Errorf("%d entries, want %d", len(got), rounds)
	}
}

func fence(t *testing.T, open func() hub.Backend) {
	stale, fresh, id := open(), open(), session.NewID()
	owner := func(n uint64) hub.Entry {
		return hub.Entry{N: n, Kind: hub.KindOwner, Time: now(), Epoch: n, Data: json.RawMessage(`{}`)}
	}
	mustAppend(t, stale, id, 0, owner(1))
	mustAppend(t, stale, id, 1, record("mine"))
	mustAppend(t, fresh, id, 1, owner(2))
	for name, late := range map[string][]hub.Entry{"a frame": Entries(1, 1), "a record": {record("late")}, "both": append(Entries(1, 1), record("late"))} {
		if err := stale.Append(t.Context(), id, 1, late); !errors.Is(err, hub.ErrConflict) {
			t.Errorf("%s by the stale owner: %v, want ErrConflict", name, err)
		}
	}
	mustAppend(t, fresh, id, 2, record("ours"))
	if got := read(t, fresh, id, 0); len(got) != 4 {
		t.Errorf("%d entries, want 4", len(got))
	}
}

func records(t *testing.T, open func() hub.Backend) {
	b, id := open(), session.NewID()
	e := Entries(0, 3)
	want := []hub.Entry{record("a"), e[0], record("b"), record("c"), e[1], e[2], record("d")}
	mustAppend(t, b, id, 0, want[0])
	mustAppend(t, b, id, 0, want[1:5]...)
	mustAppend(t, b, id, 2, want[5], want[6])
	same(t, read(t, b, id, 0), want)
	same(t, read(t, b, id, 1), want[2:])
	same(t, read(t, b, id, 2), want[5:])
	same(t, read(t, b, id, 3), want[6:])
}

func recordsWithoutLease(t *testing.T, open func() hub.Backend) {
	one, two, id := open(), open(), session.NewID()
	mustAppend(t, one, id, 0, Entries(0, 1)...)
	title := record("a title")
	mustAppend(t, two, id, hub.AnyNumber, title)
	mustAppend(t, one, id, 1, Entries(1, 1)...) // which is no reason to stop
	if got := read(t, one, id, 0); len(got) != 3 || got[1].Kind != hub.KindRecord {
		t.Errorf("got %+v", got)
	}
}

func readFromAny(t *testing.T, open func() hub.Backend) {
	b, id := open(), session.NewID()
	r := rand.New(rand.NewPCG(1, 2))
	var all []hub.Entry
	last := uint64(0)
	for range 400 {
		var e hub.Entry
		if r.IntN(3) == 0 {
			e = record(strings.Repeat("r", r.IntN(4000)))
		} else {
			last++
			e = Entries(last-1, 1)[0]
			e.Data, _ = json.Marshal(strings.Repeat("f", r.IntN(2000)))
		}
		all = append(all, e)
	}
	mustAppend(t, b, id, 0, all...)
	for _, n := range append([]uint64{0, 1, 2, last - 1, last}, r.Uint64N(last), r.Uint64N(last), r.Uint64N(last), r.Uint64N(last), r.Uint64N(last), r.Uint64N(last)) {
		from := 0
		for i, e := range all {
			if e.N > 0 && e.N <= n {
				from = i + 1
			}
		}
		same(t, read(t, b, id, n), all[from:])
	}
	same(t, slices.DeleteFunc(read(t, b, id, last+5), func(e hub.Entry) bool { return e.N == 0 }), nil)
}

func readUnknown(t *testing.T, open func() hub.Backend) {
	b := open()
	same(t, read(t, b, session.NewID(), 0), nil)
	same(t, read(t, b, session.NewID(), 9), nil)
	if all, err := b.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("reading made a session: %v, %v", all, err)
	}
}

func readLarge(t *testing.T, open func() hub.Backend) {
	b, id := open(), session.NewID()
	want := Entries(0, 3)
	want[1].Data, _ = json.Marshal(strings.Repeat("large ", 300_000))
	mustAppend(t, b, id, 0, want...)
	same(t, read(t, b, id, 0), want)
	same(t, read(t, b, id, 1), want[1:])
	mustAppend(t, b, id, 3, Entries(3, 1)...)
}

// next returns the next n values of an iterator, and then ends the iteration.
func next[T any](t *testing.T, n int, seq func(ctx context.Context) iter.Seq2[T, error], then func()) []T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all []T
	for v, err := range seq(ctx) {
		if err != nil {
			t.Fatalf("after %d of %d: %v", len(all), n, err)
		}
		if all = append(all, v); len(all) == n {
			break
		}
		if then != nil {
			then()
			then = nil
		}
	}
	return all
}

func readFollows(t *testing.T, open func() hub.Backend) {
	b, id := open(), session.NewID()
	follows(t, b, b, id)
}

func readFollowsOther(t *testing.T, open func() hub.Backend) {
	follows(t, open(), open(), session.NewID())
}

func follows(t *testing.T, reader, writer hub.Backend, id string) {
	want := Entries(0, 6)
	mustAppend(t, writer, id, 0, want[:2]...)
	var wg sync.WaitGroup
	defer wg.Wait()
	got := next(t, 5, func(ctx context.Context) iter.Seq2[hub.Entry, error] { return reader.Read(ctx, id, 1, true) }, func() {
		wg.Go(func() {
			for i := 2; i < 6; i++ {
				if err := writer.Append(t.Context(), id, uint64(i), want[i:i+1]); err != nil {
					t.Error(err)
				}
			}
		})
	})
	same(t, got, want[1:])
}

func readEnds(t *testing.T, open func() hub.Backend) {
	b, id := open(), session.NewID()
	mustAppend(t, b, id, 0, Entries(0, 1)...)
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	n := 0
	for _, err := range b.Read(ctx, id, 0, true) {
		n++
		cancel(stop)
		if n == 2 && !errors.Is(err, stop) && !errors.Is(err, context.Canceled) || n > 2 {
			t.Errorf("pair %d: %v", n, err)
		}
	}
	if n != 2 {
		t.Errorf("%d pairs, want an entry and an error", n)
	}
}

func trim(t *testing.T, open func() hub.Backend) {
	b, id := open(), session.NewID()
	all := Entries(0, 10)
	mustAppend(t, b, id, 0, all...)
	for _, before := range []uint64{0, 1} {
		if err := b.Trim(t.Context(), id, before); err != nil {
			t.Fatal(err)
		}
		same(t, read(t, b, id, 0), all)
	}
	if err := b.Trim(t.Context(), id, 4); err != nil {
		t.Fatal(err)
	}
	same(t, read(t, open(), id, 0), all[3:])
	same(t, read(t, b, id, 2), all[3:])
	same(t, read(t, b, id, 6), all[6:])
	mustAppend(t, b, id, 10, Entries(10, 1)...)
	if err := b.Append(t.Context(), id, 3, Entries(3, 1)); !errors.Is(err, hub.ErrConflict) {
		t.Errorf("expecting a number that is gone: %v, want ErrConflict", err)
	}
	if err := b.Trim(t.Context(), id, 100); err != nil { // all but the last, or the next number would be unknown
		t.Fatal(err)
	}
	if got := read(t, open(), id, 0); len(got) != 1 || got[0].N != 11 {
		t.Errorf("got %+v", got)
	}
	mustAppend(t, open(), id, 11, Entries(11, 1)...)
	if err := b.Trim(t.Context(), session.NewID(), 5); err != nil {
		t.Errorf("a session that does not exist: %v", err)
	}
}

func trimRecords(t *testing.T, open func() hub.Backend) {
	b, id := open(), session.NewID()
	e := Entries(0, 4)
	all := []hub.Entry{record("a"), e[0], record("b"), e[1], e[2], record("c"), e[3]}
	mustAppend(t, b, id, 0, all...)
	if err := b.Trim(t.Context(), id, 3); err != nil {
		t.Fatal(err)
	}
	same(t, read(t, b, id, 0), []hub.Entry{all[0], all[2], all[4], all[5], all[6]})
	same(t, read(t, b, id, 3), all[5:])
}

func trimUnderFollower(t *testing.T, open func() hub.Backend) {
	b, id := open(), session.NewID()
	all := Entries(0, 12)
	mustAppend(t, b, id, 0, all[:8]...)
	var wg sync.WaitGroup
	defer wg.Wait()
	got := next(t, 8, func(ctx context.Context) iter.Seq2[hub.Entry, error] { return b.Read(ctx, id, 4, true) }, func() {
		wg.Go(func() {
			if err := b.Trim(t.Context(), id, 3); err != nil {
				t.Error(err)
			}
			if err := b.Append(t.Context(), id, 8, all[8:]); err != nil {
				t.Error(err)
			}
		})
	})
	same(t, got, all[4:])
}

func lease(t *testing.T, open func() hub.Backend) {
	one, two, id := open(), open(), session.NewID()
	l, err := one.Lease(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []hub.Backend{one, two} {
		if again, err := b.Lease(t.Context(), id); !errors.Is(err, hub.ErrLocked) {
			if err == nil {
				again.Close()
			}
			t.Errorf("a second lease: %v, want ErrLocked", err)
		}
	}
	if all, err := one.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("a lease made a session: %v, %v", all, err)
	}
	if other, err := two.Lease(t.Context(), session.NewID()); err != nil {
		t.Errorf("of another session: %v", err)
	} else {
		other.Close()
	}
	select {
	case <-l.Lost():
		t.Error("it is lost")
	default:
	}
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	next, err := two.Lease(t.Context(), id)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	l.Close() // closing the old one does not affect the new one
	if again, err := one.Lease(t.Context(), id); !errors.Is(err, hub.ErrLocked) {
		if err == nil {
			again.Close()
		}
		t.Errorf("while another process has it: %v, want ErrLocked", err)
	}
	next.Close()
}

func item(key, text string) hub.Item {
	data, _ := json.Marshal(text)
	return hub.Item{Key: key, Time: now(), Data: data}
}

func put(t *testing.T, b hub.Backend, id string, i hub.Item) hub.Item {
	t.Helper()
	got, err := b.Put(t.Context(), id, i)
	if err != nil {
		t.Fatalf("Put(%s): %v", i.Key, err)
	}
	return got
}

func putOnce(t *testing.T, open func() hub.Backend) {
	one, two, id := open(), open(), session.NewID()
	first := put(t, one, id, item("answer/1", "yes"))
	if first.Number != 1 || string(first.Data) != `"yes"` {
		t.Errorf("got %+v", first)
	}
	for _, b := range []hub.Backend{one, two} {
		if got := put(t, b, id, item("answer/1", "no")); got.Number != 1 || string(got.Data) != `"yes"` || !got.Time.Equal(first.Time) {
			t.Errorf("a second one: %+v, want %+v", got, first)
		}
	}
	for i, key := range []string{"answer/11", "answer/", `answer/"1`, "answer/1,", "nswer/1", "ü"} {
		if got := put(t, one, id, item(key, key)); got.Number != uint64(i)+2 || got.Key != key {
			t.Errorf("key %q: %+v", key, got)
		}
	}
	if got := put(t, two, id, item(`answer/"1`, "again")); got.Number != 4 {
		t.Errorf("got %+v", got)
	}
	if got := put(t, two, session.NewID(), item("answer/1", "no")); string(got.Data) != `"no"` {
		t.Errorf("of another session: %+v", got)
	}
	for _, bad := range []hub.Item{{Key: "", Data: json.RawMessage("1")}, {Key: "k", Data: json.RawMessage("{")}, {Key: "k"}, {Key: strings.Repeat("k", 201), Data: json.RawMessage("1")}} {
		if _, err := one.Put(t.Context(), id, bad); err == nil {
			t.Errorf("%+v: no error", bad)
		}
	}
}

func putRace(t *testing.T, open func() hub.Backend) {
	id := session.NewID()
	const writers, keys = 4, 10
	var mu sync.Mutex
	won := map[string]map[string]bool{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			b := open()
			for k := range keys {
				key := fmt.Sprint("answer/", k)
				got, err := b.Put(t.Context(), id, item(key, fmt.Sprint("by ", w)))
				mu.Lock()
				if err != nil {
					t.Error(err)
				} else if won[key] == nil {
					won[key] = map[string]bool{string(got.Data): true}
				} else {
					won[key][string(got.Data)] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for key, by := range won {
		if len(by) != 1 {
			t.Errorf("%s has %d winners", key, len(by))
		}
	}
	if all := collect(t, open().Inbox(t.Context(), id, 0, false)); len(all) != keys {
		t.Errorf("%d items, want %d", len(all), keys)
	}
}

func inboxOrder(t *testing.T, open func() hub.Backend) {
	b, id := open(), session.NewID()
	for i := range 5 {
		put(t, b, id, item(fmt.Sprint("k", i), fmt.Sprint("v", i)))
	}
	for after := range uint64(7) {
		all := collect(t, open().Inbox(t.Context(), id, after, false))
		if len(all) != max(0, 5-int(after)) {
			t.Fatalf("behind %d: %d items", after, len(all))
		}
		for i, got := range all {
			if n := int(after) + i; got.Number != uint64(n)+1 || got.Key != fmt.Sprint("k", n) || string(got.Data) != fmt.Sprintf(`"v%d"`, n) || got.Time.IsZero() {
				t.Errorf("item %d: %+v", n, got)
			}
		}
	}
	if all := collect(t, b.Inbox(t.Context(), session.NewID(), 0, false)); len(all) != 0 {
		t.Errorf("of another session: %v", all)
	}
}

func inboxFollows(t *testing.T, open func() hub.Backend) {
	reader, writer, id := open(), open(), session.NewID()
	put(t, writer, id, item("k0", "v"))
	var wg sync.WaitGroup
	defer wg.Wait()
	got := next(t, 4, func(ctx context.Context) iter.Seq2[hub.Item, error] { return reader.Inbox(ctx, id, 0, true) }, func() {
		wg.Go(func() {
			for i := range 3 {
				if _, err := writer.Put(t.Context(), id, item(fmt.Sprint("k", i+1), "v")); err != nil {
					t.Error(err)
				}
			}
		})
	})
	for i, g := range got {
		if g.Key != fmt.Sprint("k", i) {
			t.Errorf("item %d: %+v", i, g)
		}
	}
}

func inboxTrim(t *testing.T, open func() hub.Backend) {
	one, two, id := open(), open(), session.NewID()
	text := strings.Repeat("x", 20_000)
	numbers := func() (all []uint64) {
		for _, i := range collect(t, open().Inbox(t.Context(), id, 0, false)) {
			all = append(all, i.Number)
		}
		return all
	}
	trimTo := func(b hub.Backend, before uint64) {
		t.Helper()
		if err := b.TrimInbox(t.Context(), id, before); err != nil {
			t.Fatal(err)
		}
	}
	trimTo(one, 3) // there is none
	for i := range 8 {
		put(t, one, id, item(fmt.Sprint("k", i), text))
	}
	// A reader that follows misses nothing, and receives nothing twice.
	var wg sync.WaitGroup
	defer wg.Wait()
	got := next(t, 10, func(ctx context.Context) iter.Seq2[hub.Item, error] { return two.Inbox(ctx, id, 0, true) }, func() {
		wg.Go(func() {
			trimTo(one, 6)
			if all := numbers(); !slices.Equal(all, []uint64{6, 7, 8}) {
				t.Errorf("after trimming below 6: %v", all)
			}
			if i := put(t, two, id, item("k7", "another")); i.Number != 8 || len(i.Data) < len(text) {
				t.Errorf("an item that is there: %d, %d bytes", i.Number, len(i.Data))
			}
			if i := put(t, two, id, item("k0", text)); i.Number != 9 {
				t.Errorf("an item that was trimmed: %d", i.Number)
			}
			put(t, one, id, item("k9", text))
		})
	})
	for i, g := range got {
		if g.Number != uint64(i)+1 {
			t.Errorf("the reader received %d as item %d", g.Number, i+1)
		}
	}
	wg.Wait()
	trimTo(two, 1000)
	if all := numbers(); !slices.Equal(all, []uint64{10}) {
		t.Errorf("after trimming everything: %v", all)
	}
	if i := put(t, one, id, item("k10", text)); i.Number != 11 {
		t.Errorf("the next number is %d", i.Number)
	}
}

func work(t *testing.T, open func() hub.Backend) {
	b := open()
	is := func(want ...string) {
		t.Helper()
		got := collect(t, open().Work(t.Context(), false))
		slices.Sort(got)
		slices.Sort(want)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
	is()
	x, y := session.NewID(), session.NewID()
	for _, id := range []string{x, y, x} {
		if err := b.Wake(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	is(x, y)
	if err := errors.Join(b.Rest(t.Context(), x), b.Rest(t.Context(), x), b.Rest(t.Context(), session.NewID())); err != nil {
		t.Fatal(err)
	}
	is(y)
	if err := b.Delete(t.Context(), y); err != nil {
		t.Fatal(err)
	}
	is()
}

func workFollows(t *testing.T, open func() hub.Backend) {
	b := open()
	x, y := session.NewID(), session.NewID()
	if err := b.Wake(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	got := next(t, 3, func(ctx context.Context) iter.Seq2[string, error] { return b.Work(ctx, true) }, func() {
		wg.Go(func() {
			if err := errors.Join(b.Rest(t.Context(), x), b.Wake(t.Context(), y), b.Wake(t.Context(), x)); err != nil {
				t.Error(err)
			}
		})
	})
	if got[0] != x || got[1] != y || got[2] != x {
		t.Errorf("got %v, want %v", got, []string{x, y, x})
	}
}

func list(t *testing.T, open func() hub.Backend) {
	b := open()
	sizes := func() map[string]hub.Listed {
		t.Helper()
		all, err := open().List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		by := map[string]hub.Listed{}
		for _, l := range all {
			by[l.ID] = l
		}
		if len(by) != len(all) {
			t.Errorf("a session is listed twice: %v", all)
		}
		return by
	}
	if got := sizes(); len(got) != 0 {
		t.Errorf("an empty backend lists %v", got)
	}
	x, y := session.NewID(), session.NewID()
	mustAppend(t, b, x, 0, Entries(0, 1)...)
	mustAppend(t, b, y, 0, Entries(0, 1)...)
	before := sizes()
	if len(before) != 2 || before[x].Modified.IsZero() {
		t.Fatalf("got %v", before)
	}
	mustAppend(t, b, x, 1, Entries(1, 1)...)
	after := sizes()
	if after[x].Size == before[x].Size || after[y] != before[y] {
		t.Errorf("before %v, after %v", before, after)
	}
}

func deleted(t *testing.T, open func() hub.Backend) {
	one, two, id := open(), open(), session.NewID()
	if err := one.Delete(t.Context(), id); err != nil {
		t.Errorf("a session that does not exist: %v", err)
	}
	mustAppend(t, one, id, 0, Entries(0, 2)...)
	put(t, one, id, item("k", "v"))
	l, err := one.Lease(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if err := two.Delete(t.Context(), id); !errors.Is(err, hub.ErrLocked) {
		t.Fatalf("while it is leased: %v, want ErrLocked", err)
	}
	l.Close()
	if err := two.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	same(t, read(t, one, id, 0), nil)
	if all := collect(t, one.Inbox(t.Context(), id, 0, false)); len(all) != 0 {
		t.Errorf("the inbox holds %v", all)
	}
	if all, err := one.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("List: %v, %v", all, err)
	}
	if err := one.Append(t.Context(), id, 2, Entries(2, 1)); !errors.Is(err, hub.ErrConflict) {
		t.Errorf("Append to what is gone: %v, want ErrConflict", err)
	}
	mustAppend(t, one, id, 0, Entries(0, 1)...) // it can start over
}

func apart(t *testing.T, open func() hub.Backend) {
	b := open()
	var ids []string
	for range 3 {
		id := session.NewID()
		ids = append(ids, id)
		mustAppend(t, b, id, 0, Entries(0, len(ids))...)
	}
	for i, id := range ids {
		if got := read(t, b, id, 0); len(got) != i+1 {
			t.Errorf("session %d has %d entries", i, len(got))
		}
	}
}

func badIDs(t *testing.T, open func() hub.Backend) {
	b, ctx := open(), t.Context()
	for _, id := range []string{"", "x", "..", "../" + session.NewID(), "work", session.NewID() + "/x", strings.ToUpper(session.NewID()) + "\x00"} {
		_, leaseErr := b.Lease(ctx, id)
		_, putErr := b.Put(ctx, id, item("k", "v"))
		for name, err := range map[string]error{"Append": b.Append(ctx, id, 0, Entries(0, 1)), "Lease": leaseErr, "Put": putErr,
			"Trim": b.Trim(ctx, id, 1), "Delete": b.Delete(ctx, id), "Wake": b.Wake(ctx, id), "Rest": b.Rest(ctx, id)} {
			if err == nil {
				t.Errorf("%s of %q: no error", name, id)
			}
		}
	}
	if all, err := b.List(ctx); err != nil || len(all) != 0 {
		t.Errorf("bad ids became sessions: %v, %v", all, err)
	}
}

func cancelled(t *testing.T, open func() hub.Backend) {
	b, id := open(), session.NewID()
	mustAppend(t, b, id, 0, Entries(0, 1)...)
	put(t, b, id, item("k", "v"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, leaseErr := b.Lease(ctx, id)
	_, putErr := b.Put(ctx, id, item("k2", "v"))
	_, listErr := b.List(ctx)
	for name, err := range map[string]error{"Append": b.Append(ctx, id, 1, Entries(1, 1)), "Lease": leaseErr, "Put": putErr, "List": listErr,
		"Delete": b.Delete(ctx, id), "TrimInbox": b.TrimInbox(ctx, id, 1), "Read": last(b.Read(ctx, id, 0, false)), "Inbox": last(b.Inbox(ctx, id, 0, true)), "Work": last(b.Work(ctx, true))} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want the error of the context", name, err)
		}
	}
	same(t, read(t, b, id, 1), nil)
}

// last returns the error of the last pair.
func last[T any](seq iter.Seq2[T, error]) (err error) {
	for _, err = range seq {
	}
	return err
}
