package sessiontest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-go/parley/session"
)

// storeRules are the rules for the store itself. Those of the official SDKs' store have
// their numbers in their names.
var storeRules = []rule{
	{"Store/01-AppendThenLoad", storeAppendThenLoad},
	{"Store/02-LoadUnknown", storeLoadUnknown},
	{"Store/03-OrderOfAppends", storeOrder},
	{"Store/04-AppendNothing", storeAppendNothing},
	{"Store/05-PartsAreApart", storeParts},
	{"Store/06-ProjectsAreApart", storeProjects},
	{"Store/07-ListOfProject", storeList},
	{"Store/08-ListWithoutParts", storeListWithoutParts},
	{"Store/09-Delete", storeDelete},
	{"Store/10-DeleteTakesParts", storeDeleteTakesParts},
	{"Store/11-DeletePart", storeDeletePart},
	{"Store/12-SubkeysOfSession", storeSubkeys},
	{"Store/13-SubkeysWithoutMain", storeSubkeysWithoutMain},
	{"Store/14-Summaries", storeSummaries},
	{"Store/SameRecordTwice", storeSameRecordTwice}, // an append with an unknown outcome
	{"Store/AppendIsAllOrNone", storeAppendAllOrNone},
	{"Store/BadKeys", storeBadKeys},
	{"Store/AnyJSON", storeAnyJSON},
	{"Store/Lease", storeLease},
	{"Store/LeaseOfOneInMany", storeLeaseMany},
	{"Store/AppendWithoutLease", storeNote},
	{"Store/Concurrent", storeConcurrent},
	{"Store/Canceled", storeCanceled},
}

func record(n int) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"type":"user","uuid":%q,"parentUuid":null,"timestamp":"2026-01-02T03:04:05.678Z","cwd":"/src/a","message":{"role":"user","content":"number %d"}}`, session.NewID(), n))
}

func mustAppend(t *testing.T, s session.Store, key session.Key, records ...json.RawMessage) {
	t.Helper()
	if err := s.Append(t.Context(), key, records); err != nil {
		t.Fatalf("Append(%v): %v", key, err)
	}
}

// holds checks the records of a log; none means that there is no log.
func holds(t *testing.T, s session.Store, key session.Key, want ...json.RawMessage) {
	t.Helper()
	got, err := s.Load(t.Context(), key)
	if len(want) == 0 {
		if !errors.Is(err, session.ErrNotFound) {
			t.Fatalf("Load(%v): %d records, %v, want ErrNotFound", key, len(got), err)
		}
		return
	}
	if err != nil {
		t.Fatalf("Load(%v): %v", key, err)
	}
	if len(got) != len(want) {
		t.Fatalf("Load(%v): %d records, want %d", key, len(got), len(want))
	}
	for i := range want {
		var g, w any
		if err := json.Unmarshal(got[i], &g); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(want[i], &w); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(g, w) {
			t.Fatalf("Load(%v), record %d\n got %s\nwant %s", key, i, got[i], want[i])
		}
	}
}

func listIDs(t *testing.T, s session.Store, match session.Key) []string {
	t.Helper()
	all, err := s.List(t.Context(), match)
	if err != nil {
		t.Fatalf("List(%v): %v", match, err)
	}
	var ids []string
	for _, l := range all {
		if l.Key.Sub != "" {
			t.Errorf("List(%v) returned a part: %v", match, l.Key)
		}
		if l.Modified.UnixMilli() < 1e12 && !l.Modified.Equal(time.Time{}) || l.Modified.IsZero() {
			t.Errorf("List(%v): modified %v", match, l.Modified)
		}
		ids = append(ids, l.Key.Session)
	}
	slices.Sort(ids)
	return ids
}

func sorted(ids ...string) []string { slices.Sort(ids); return ids }

func storeAppendThenLoad(t *testing.T, s session.Store) {
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	want := []json.RawMessage{record(1), json.RawMessage(`{"type":"mode","mode":"plan"}`), record(2)}
	mustAppend(t, s, key, want...)
	holds(t, s, key, want...)
}

func storeOrder(t *testing.T, s session.Store) {
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	var want []json.RawMessage
	for i := range 20 {
		batch := []json.RawMessage{record(i)}
		if i%3 == 0 {
			batch = append(batch, record(100+i), json.RawMessage(`{"type":"mode","mode":"plan"}`))
		}
		mustAppend(t, s, key, batch...)
		want = append(want, batch...)
	}
	holds(t, s, key, want...)
	got, err := s.Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	copy(got[0], "XXXXXXXX") // the caller owns what it has read
	holds(t, s, key, want...)
}

func storeLoadUnknown(t *testing.T, s session.Store) {
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	holds(t, s, key)
	mustAppend(t, s, key, record(1))
	key.Sub = "subagents/agent-none"
	holds(t, s, key)
	holds(t, s, session.Key{Project: "-src-b", Session: key.Session})
}

func storeAppendNothing(t *testing.T, s session.Store) {
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	mustAppend(t, s, key)
	holds(t, s, key)
	if ids := listIDs(t, s, session.Key{}); len(ids) != 0 {
		t.Errorf("no records became the sessions %v", ids)
	}
	a := record(1)
	mustAppend(t, s, key, a)
	mustAppend(t, s, key)
	holds(t, s, key, a)
}

// someParts creates a session with two parts, and another one with a part.
func someParts(t *testing.T, s session.Store) (main, part, deep, other session.Key, records []json.RawMessage) {
	t.Helper()
	main = session.Key{Project: "-src-a", Session: session.NewID()}
	other = session.Key{Project: "-src-a", Session: session.NewID()}
	part, deep = main, main
	part.Sub, deep.Sub = "subagents/agent-1", "subagents/workflows/w/agent-2"
	otherPart := other
	otherPart.Sub = "subagents/agent-9"
	for i, key := range []session.Key{main, part, deep, other, otherPart} {
		records = append(records, record(i))
		mustAppend(t, s, key, records[i])
	}
	return main, part, deep, other, records
}

func wantSubkeys(t *testing.T, s session.Store, key session.Key, want ...string) {
	t.Helper()
	got, err := s.Subkeys(t.Context(), key)
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Subkeys(%v): %q, %v, want %q", key, got, err, want)
	}
}

func storeParts(t *testing.T, s session.Store) {
	main, part, deep, other, r := someParts(t, s)
	more := record(9)
	mustAppend(t, s, part, more)
	holds(t, s, main, r[0])
	holds(t, s, part, r[1], more)
	holds(t, s, deep, r[2])
	holds(t, s, other, r[3])
}

func storeListWithoutParts(t *testing.T, s session.Store) {
	main, _, _, other, _ := someParts(t, s)
	if ids := listIDs(t, s, session.Key{Project: "-src-a"}); !slices.Equal(ids, sorted(main.Session, other.Session)) {
		t.Errorf("List: %v", ids)
	}
}

func storeDeletePart(t *testing.T, s session.Store) {
	main, part, deep, _, r := someParts(t, s)
	if err := s.Delete(t.Context(), part); err != nil {
		t.Fatal(err)
	}
	holds(t, s, part)
	holds(t, s, main, r[0])
	holds(t, s, deep, r[2])
	wantSubkeys(t, s, main, deep.Sub)
}

func storeSubkeys(t *testing.T, s session.Store) {
	main, part, deep, other, _ := someParts(t, s)
	wantSubkeys(t, s, main, part.Sub, deep.Sub)
	wantSubkeys(t, s, other, "subagents/agent-9")
}

func storeSubkeysWithoutMain(t *testing.T, s session.Store) {
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	wantSubkeys(t, s, key)
	mustAppend(t, s, key, record(1))
	wantSubkeys(t, s, key)
}

func storeProjects(t *testing.T, s session.Store) {
	id := session.NewID()
	a, b := session.Key{Project: "-src-a", Session: id}, session.Key{Project: "-src-b", Session: id}
	one, two := record(1), record(2)
	mustAppend(t, s, a, one)
	mustAppend(t, s, b, two)
	holds(t, s, a, one)
	holds(t, s, b, two)
	if ids := listIDs(t, s, session.Key{Project: "-src-a"}); len(ids) != 1 {
		t.Errorf("in a project: %v", ids)
	}
	if ids := listIDs(t, s, session.Key{Session: id}); len(ids) != 2 {
		t.Errorf("of an id: %v", ids)
	}
}

func storeList(t *testing.T, s session.Store) {
	if ids := listIDs(t, s, session.Key{Project: "-none"}); len(ids) != 0 {
		t.Errorf("an empty store lists %v", ids)
	}
	var keys []session.Key
	for i := range 6 {
		key := session.Key{Project: []string{"-src-a", "-src-b"}[i%2], Session: session.NewID()}
		keys = append(keys, key)
		mustAppend(t, s, key, record(i))
		time.Sleep(5 * time.Millisecond)
	}
	if ids := listIDs(t, s, session.Key{}); len(ids) != 6 {
		t.Errorf("all: %v", ids)
	}
	if ids := listIDs(t, s, session.Key{Project: "-src-b"}); !slices.Equal(ids, sorted(keys[1].Session, keys[3].Session, keys[5].Session)) {
		t.Errorf("of a project: %v", ids)
	}
	if ids := listIDs(t, s, session.Key{Project: "-none"}); len(ids) != 0 {
		t.Errorf("of none: %v", ids)
	}
	if ids := listIDs(t, s, session.Key{Session: keys[3].Session}); !slices.Equal(ids, []string{keys[3].Session}) {
		t.Errorf("of an id: %v", ids)
	}
	if ids := listIDs(t, s, keys[2]); !slices.Equal(ids, []string{keys[2].Session}) {
		t.Errorf("of a key: %v", ids)
	}
	modified := func(key session.Key) time.Time {
		all, err := s.List(t.Context(), key)
		if err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		return all[0].Modified
	}
	before := modified(keys[0])
	time.Sleep(15 * time.Millisecond)
	mustAppend(t, s, keys[0], record(7))
	if now := modified(keys[0]); !now.After(before) || now.Before(modified(keys[5])) {
		t.Errorf("the time of an append is %v, was %v", now, before)
	}
}

func storeDelete(t *testing.T, s session.Store) {
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	if err := s.Delete(t.Context(), key); err != nil {
		t.Errorf("Delete of what was never there: %v", err)
	}
	a := record(1)
	mustAppend(t, s, key, a)
	if err := s.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	holds(t, s, key)
	mustAppend(t, s, key, a) // it can start again
	holds(t, s, key, a)
}

func storeDeleteTakesParts(t *testing.T, s session.Store) {
	main, part, deep, other, r := someParts(t, s)
	same := session.Key{Project: "-src-b", Session: main.Session}
	mustAppend(t, s, same, r[0])
	if err := s.Delete(t.Context(), main); err != nil {
		t.Fatal(err)
	}
	holds(t, s, main)
	holds(t, s, part)
	holds(t, s, deep)
	holds(t, s, same, r[0])
	holds(t, s, other, r[3])
	wantSubkeys(t, s, main)
	wantSubkeys(t, s, other, "subagents/agent-9")
	if ids := listIDs(t, s, session.Key{Project: "-src-a"}); !slices.Equal(ids, []string{other.Session}) {
		t.Errorf("List after Delete: %v", ids)
	}
}

func storeSummaries(t *testing.T, s session.Store) {
	z, ok := s.(session.Summarizer)
	if !ok {
		t.Skip("the store keeps no summaries")
	}
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	part := key
	part.Sub = "subagents/agent-1"
	get := func(project string) []session.Summary {
		t.Helper()
		all, err := z.Summaries(t.Context(), project)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if all := get("-src-a"); len(all) != 0 {
		t.Errorf("an empty store has %d summaries", len(all))
	}
	first := []json.RawMessage{record(1)}
	then := []json.RawMessage{json.RawMessage(`{"type":"custom-title","customTitle":"T"}`), record(2)}
	mustAppend(t, s, key, first...)
	mustAppend(t, s, key, then...)
	mustAppend(t, s, session.Key{Project: "-src-b", Session: session.NewID()}, record(3))
	all := get("-src-a")
	if len(all) != 1 || all[0].Key != key {
		t.Fatalf("summaries of a project: %+v", all)
	}
	want := session.Fold(session.Fold(nil, first), then)
	var g, w any
	json.Unmarshal(all[0].Data, &g)
	json.Unmarshal(want, &w)
	if !reflect.DeepEqual(g, w) {
		t.Errorf("data %s, want %s", all[0].Data, want)
	}
	listed, err := s.List(t.Context(), key)
	if err != nil || len(listed) != 1 || all[0].Modified.Before(listed[0].Modified) || all[0].Modified.UnixMilli() < 1e12 {
		t.Errorf("the summary is of %v, the session of %v, %v", all[0].Modified, listed, err)
	}
	mustAppend(t, s, part, json.RawMessage(`{"type":"custom-title","customTitle":"of a part"}`))
	if again := get("-src-a"); len(again) != 1 || !slices.Equal(again[0].Data, all[0].Data) {
		t.Errorf("a part changed the summary: %+v", again)
	}
	if got := get(""); len(got) != 2 {
		t.Errorf("%d summaries of all projects, want 2", len(got))
	}
	if err := s.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if again := get("-src-a"); len(again) != 0 {
		t.Errorf("the summary outlived its session: %+v", again)
	}
}

func storeSameRecordTwice(t *testing.T, s session.Store) {
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	a, b, c := record(1), record(2), record(3)
	mode := json.RawMessage(`{"type":"mode","mode":"plan"}`) // without a uuid it is a new record
	mustAppend(t, s, key, a, mode, b)
	mustAppend(t, s, key, a, mode, b, c)
	mustAppend(t, s, key, c)
	holds(t, s, key, a, mode, b, mode, c)
	part := key
	part.Sub = "subagents/agent-1"
	mustAppend(t, s, part, a, a) // a log compares only its own records
	holds(t, s, part, a)
}

func storeAppendAllOrNone(t *testing.T, s session.Store) {
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	for _, bad := range []string{"", "nothing", `{"broken`, "[1]", "1", `{"a":1}{"b":2}`} {
		if err := s.Append(t.Context(), key, []json.RawMessage{record(1), json.RawMessage(bad)}); err == nil {
			t.Errorf("a record %q: no error", bad)
		}
	}
	holds(t, s, key)
}

func storeBadKeys(t *testing.T, s session.Store) {
	id := session.NewID()
	for _, key := range []session.Key{
		{}, {Session: id}, {Project: "-a"}, {Project: "..", Session: id}, {Project: "a/b", Session: id}, {Project: `a\b`, Session: id},
		{Project: "-a", Session: "../" + id}, {Project: "-a", Session: "x"}, {Project: "-a", Session: id, Sub: ".."},
		{Project: "-a", Session: id, Sub: "../../x"}, {Project: "-a", Session: id, Sub: "/x"}, {Project: "-a", Session: id, Sub: "a//b"},
		{Project: "-a", Session: id, Sub: "a\x00b"}, {Project: "-a", Session: id, Sub: `C:\x`}, {Project: "-a", Session: id, Sub: "a/."},
	} {
		if err := s.Append(t.Context(), key, []json.RawMessage{record(1)}); err == nil {
			t.Errorf("Append(%+v): no error", key)
		}
		if _, err := s.Load(t.Context(), key); err == nil {
			t.Errorf("Load(%+v): no error", key)
		}
	}
	if ids := listIDs(t, s, session.Key{}); len(ids) != 0 {
		t.Errorf("bad keys became the sessions %v", ids)
	}
}

func storeAnyJSON(t *testing.T, s session.Store) {
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	records := []json.RawMessage{
		json.RawMessage("{\n \"type\" : \"x\",\r\n \"text\": \"two\\nlines \\u0000 \\u2028 😀 \\\"\"}"),
		json.RawMessage(`{"type":"x","big":12345678901234567890,"float":1.50,"null":null,"list":[{},[],""]}`),
		json.RawMessage(`{"type":"x","text":"` + strings.Repeat("long ", 300_000) + `"}`),
	}
	mustAppend(t, s, key, records...)
	holds(t, s, key, records...)
}

func storeLease(t *testing.T, s session.Store) {
	ctx := t.Context()
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	lease, err := s.Lease(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	holds(t, s, key) // a lease does not create a session
	if ids := listIDs(t, s, session.Key{}); len(ids) != 0 {
		t.Errorf("a lease became the session %v", ids)
	}
	for _, k := range []session.Key{key, {Project: "-src-b", Session: key.Session}} {
		if again, err := s.Lease(ctx, k); !errors.Is(err, session.ErrLocked) {
			if err == nil {
				again.Close()
			}
			t.Errorf("a second lease of %v: %v, want ErrLocked", k, err)
		}
	}
	other, err := s.Lease(ctx, session.Key{Project: "-src-a", Session: session.NewID()})
	if err != nil {
		t.Fatalf("the lease of another session: %v", err)
	}
	if err := other.Close(); err != nil {
		t.Error(err)
	}
	a, b := record(1), record(2)
	if err := errors.Join(lease.Append(ctx, "", []json.RawMessage{a}), lease.Append(ctx, "subagents/agent-1", []json.RawMessage{b}), lease.Append(ctx, "", nil)); err != nil {
		t.Fatal(err)
	}
	if err := lease.Append(ctx, "../x", []json.RawMessage{a}); err == nil {
		t.Error("a part outside of the session: no error")
	}
	part := key
	part.Sub = "subagents/agent-1"
	holds(t, s, key, a)
	holds(t, s, part, b)
	if err := errors.Join(lease.Close(), lease.Close()); err != nil {
		t.Fatal(err)
	}
	next, err := s.Lease(ctx, key)
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	if err := lease.Append(ctx, "", []json.RawMessage{record(3)}); err == nil {
		t.Error("an append of a lease that is over: no error")
	}
	lease.Close() // the old lease does not affect the new one
	if again, err := s.Lease(ctx, key); !errors.Is(err, session.ErrLocked) {
		if err == nil {
			again.Close()
		}
		t.Errorf("while the next one holds it: %v, want ErrLocked", err)
	}
	if err := next.Close(); err != nil {
		t.Error(err)
	}
	holds(t, s, key, a)
}

func storeLeaseMany(t *testing.T, s session.Store) {
	id := session.NewID()
	var mu sync.Mutex
	held, most, got := 0, 0, 0
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 5 {
				lease, err := s.Lease(t.Context(), session.Key{Project: fmt.Sprint("-p", i%2), Session: id})
				if errors.Is(err, session.ErrLocked) {
					time.Sleep(time.Millisecond)
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				held++
				got++
				most = max(most, held)
				mu.Unlock()
				time.Sleep(2 * time.Millisecond)
				mu.Lock()
				held--
				mu.Unlock()
				if err := lease.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if most != 1 || got == 0 {
		t.Errorf("%d held the lease at once, %d in all", most, got)
	}
}

func storeNote(t *testing.T, s session.Store) {
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	lease, err := s.Lease(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Close()
	a, title, b := record(1), json.RawMessage(`{"type":"custom-title","customTitle":"T"}`), record(2)
	if err := lease.Append(t.Context(), "", []json.RawMessage{a}); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, s, key, title)
	if err := lease.Append(t.Context(), "", []json.RawMessage{b}); err != nil {
		t.Fatal(err)
	}
	holds(t, s, key, a, title, b)
}

func storeConcurrent(t *testing.T, s session.Store) {
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	const writers, each = 6, 8
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				pair := []json.RawMessage{record(w*100 + n), json.RawMessage(fmt.Sprintf(`{"type":"pair","w":%d,"n":%d}`, w, n))}
				if err := s.Append(t.Context(), key, pair); err != nil {
					t.Error(err)
				}
				if _, err := s.Load(t.Context(), key); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	records, err := s.Load(t.Context(), key)
	if err != nil || len(records) != 2*writers*each {
		t.Fatalf("%d records, %v, want %d", len(records), err, 2*writers*each)
	}
	next := map[int]int{} // of each writer, in its order
	for i := 0; i < len(records); i += 2 {
		var first struct{ Type string }
		var second struct {
			Type string
			W, N int
		}
		json.Unmarshal(records[i], &first)
		json.Unmarshal(records[i+1], &second)
		if first.Type != "user" || second.Type != "pair" || next[second.W] != second.N {
			t.Fatalf("record %d: %s, %s: what was appended at once is apart, or out of order", i, records[i], records[i+1])
		}
		next[second.W]++
	}
}

func storeCanceled(t *testing.T, s session.Store) {
	key := session.Key{Project: "-src-a", Session: session.NewID()}
	a := record(1)
	mustAppend(t, s, key, a)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, f := range map[string]func() error{
		"Append":  func() error { return s.Append(ctx, key, []json.RawMessage{record(2)}) },
		"Load":    func() error { _, err := s.Load(ctx, key); return err },
		"List":    func() error { _, err := s.List(ctx, key); return err },
		"Delete":  func() error { return s.Delete(ctx, key) },
		"Subkeys": func() error { _, err := s.Subkeys(ctx, key); return err },
		"Lease":   func() error { _, err := s.Lease(ctx, key); return err },
	} {
		if f() == nil {
			t.Errorf("%s: no error", name)
		}
	}
	holds(t, s, key, a)
}
