// Package sessiontest tests what every session.Store must guarantee. Run it for your
// own store:
//
//	func TestStore(t *testing.T) {
//		sessiontest.Run(t, func(t *testing.T) session.Store { return mystore.New(t) })
//	}
//
// It uses a store only through its interface. The first rules are about the six methods
// themselves, and include the 14 of the official SDKs' store; the others use whole
// sessions, as an agent does.
package sessiontest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/parley-go/parley/session"
)

// Run tests stores. It calls open for each test, which must return an empty store. If a
// store keeps sessions outside of the process, open must use a new place each time.
func Run(t *testing.T, open func(t *testing.T) session.Store) {
	for _, rule := range append(storeRules, []rule{
		{"AppendThenOpen", appendThenOpen},
		{"OrderOfAppends", orderOfAppends},
		{"ClockJumps", clockJumps},
		{"AppendNothing", appendNothing},
		{"AppendIsAllOrNone", appendIsAllOrNone},
		{"AppendKeepsNothing", appendKeepsNothing},
		{"EveryMember", everyMember},
		{"Reserved", reserved},
		{"Unknown", unknown},
		{"NewID", newID},
		{"BadID", badID},
		{"TakenID", takenID},
		{"EmptySession", emptySession},
		{"OneWriter", oneWriter},
		{"Closed", closed},
		{"Isolation", isolation},
		{"Latest", latest},
		{"Find", find},
		{"Branches", branches},
		{"Sidechains", sidechains},
		{"Compaction", compaction},
		{"LooseRecords", looseRecords},
		{"Effects", effects},
		{"Concurrent", concurrent},
		{"Canceled", canceled},
		{"Parts", parts},
		{"Functions", functions},
	}...) {
		t.Run(rule.name, func(t *testing.T) { rule.test(t, open(t)) })
	}
}

type rule struct {
	name string
	test func(t *testing.T, s session.Store)
}

// Meta returns the metadata that the tests use.
func Meta(id, cwd string) session.Meta {
	return session.Meta{ID: id, Cwd: cwd, Version: "2.1.0", GitBranch: "main", Entrypoint: "sdk-go"}
}

// Say returns a message with a role and one text, below a parent.
func Say(role, text, parent string) *session.Entry {
	content, _ := json.Marshal(text)
	message := fmt.Sprintf(`{"role":%q,"content":[{"type":"text","text":%s}]}`, role, content)
	return &session.Entry{Type: role, UUID: session.NewID(), ParentUUID: parent, Time: now(), Message: json.RawMessage(message)}
}

// now returns the time with the resolution of a log.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

func create(t *testing.T, s session.Store, meta session.Meta) session.Log {
	t.Helper()
	log, err := session.Create(t.Context(), s, meta)
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	t.Cleanup(func() { log.Close() })
	return log
}

func appendTo(t *testing.T, log session.Log, entries ...*session.Entry) {
	t.Helper()
	if err := log.Append(entries...); err != nil {
		t.Fatalf("Append: %v", err)
	}
}

func shut(t *testing.T, log session.Log) {
	t.Helper()
	if err := log.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

// reopen opens a session, closes it and returns its history.
func reopen(t *testing.T, s session.Store, id string) *session.History {
	t.Helper()
	log, h, err := session.Open(t.Context(), s, id, Meta("", "/src/b"))
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	if log.ID() != id {
		t.Errorf("Open(%s) returned the log of %s", id, log.ID())
	}
	shut(t, log)
	return h
}

// same compares entries, ignoring the formatting of JSON.
func same(t *testing.T, got, want []*session.Entry) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) {
			t.Fatalf("%d entries, want %d", len(got), len(want))
		}
		g, w := plain(t, got[i]), plain(t, want[i])
		if !reflect.DeepEqual(g, w) {
			t.Fatalf("entry %d\n got %v\nwant %v", i, g, w)
		}
	}
}

func plain(t *testing.T, e *session.Entry) map[string]any {
	t.Helper()
	out := map[string]any{"type": e.Type, "uuid": e.UUID, "parent": e.ParentUUID, "time": e.Time.UTC().Format(time.RFC3339Nano)}
	value := func(raw json.RawMessage) any {
		var v any
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
		}
		return v
	}
	out["message"] = value(e.Message)
	for name, raw := range e.Fields {
		out["field "+name] = value(raw)
	}
	return out
}

// Rules 1 and 3 of the official store: appended records are there, in order.
func appendThenOpen(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	if log.ID() != id {
		t.Errorf("ID() is %s, want %s", log.ID(), id)
	}
	a := Say("user", "hello", "")
	b := Say("assistant", "hi & <b>\u2028</b>", a.UUID)
	appendTo(t, log, a, b)
	shut(t, log)
	h := reopen(t, s, id)
	same(t, h.Entries, []*session.Entry{a, b})
	if h.Torn || h.Corrupt != 0 {
		t.Errorf("torn %v, corrupt %d, want neither", h.Torn, h.Corrupt)
	}
	if want := Meta(id, "/src/a"); h.Meta != want {
		t.Errorf("surroundings %+v, want %+v", h.Meta, want)
	}
}

func orderOfAppends(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	var want []*session.Entry
	parent := ""
	for i := range 30 {
		e := Say([]string{"user", "assistant"}[i%2], fmt.Sprint(i), parent)
		parent = e.UUID
		want = append(want, e)
		appendTo(t, log, e)
		if i%10 == 9 {
			log = openAgain(t, s, log, id, want)
		}
	}
	shut(t, log)
	same(t, reopen(t, s, id).Entries, want)
}

// openAgain closes a log, opens it, and compares its entries.
func openAgain(t *testing.T, s session.Store, log session.Log, id string, want []*session.Entry) session.Log {
	t.Helper()
	shut(t, log)
	next, h, err := session.Open(t.Context(), s, id, Meta("", "/src/a"))
	if err != nil {
		t.Fatal(err)
	}
	same(t, h.Entries, want)
	return next
}

// The order of a log does not depend on the clock, which may jump ahead and back.
func clockJumps(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	var want []*session.Entry
	parent := ""
	for i, year := range []int{2026, 2099, 1970, 2026, 9999, 1971} {
		e := Say([]string{"user", "assistant"}[i%2], fmt.Sprint(i), parent)
		e.Time = time.Date(year, 3, 29, 1, 59, 59, 999e6, time.UTC)
		parent = e.UUID
		want = append(want, e)
		appendTo(t, log, e)
		log = openAgain(t, s, log, id, want)
	}
	shut(t, log)
	infos, err := session.List(t.Context(), s, nil)
	if err != nil || len(infos) != 1 || infos[0].ID != id {
		t.Errorf("got %v, %v, want the session", infos, err)
	}
	fork, err := session.Fork(t.Context(), s, id, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := reopen(t, s, fork).Entries
	if len(got) != len(want) {
		t.Fatalf("the fork has %d entries, want %d", len(got), len(want))
	}
	for i := range got {
		if string(got[i].Message) != string(want[i].Message) {
			t.Errorf("entry %d of the fork is %s, want %s", i, got[i].Message, want[i].Message)
		}
	}
}

// Rule 4.
func appendNothing(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	appendTo(t, log)
	a := Say("user", "one", "")
	appendTo(t, log, a)
	appendTo(t, log)
	shut(t, log)
	same(t, reopen(t, s, id).Entries, []*session.Entry{a})
}

func appendIsAllOrNone(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	a := Say("user", "one", "")
	appendTo(t, log, a)
	bad := Say("assistant", "no", a.UUID)
	bad.Message = json.RawMessage(`{"broken`)
	for name, bad := range map[string]*session.Entry{
		"not JSON":          bad,
		"nil":               nil,
		"no type":           {UUID: session.NewID()},
		"a parent, no uuid": {Type: "user", ParentUUID: a.UUID},
	} {
		if err := log.Append(Say("assistant", "yes", a.UUID), bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	shut(t, log)
	same(t, reopen(t, s, id).Entries, []*session.Entry{a})
}

func appendKeepsNothing(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	a := Say("user", "one", "")
	want := *a
	want.Message = json.RawMessage(string(a.Message))
	appendTo(t, log, a)
	copy(a.Message, "XXXXXXXX")
	a.UUID, a.Fields = "changed", map[string]json.RawMessage{"x": json.RawMessage("1")}
	shut(t, log)
	h := reopen(t, s, id)
	same(t, h.Entries, []*session.Entry{&want})
	copy(h.Entries[0].Message, "XXXXXXXX") // the caller owns what it has read
	same(t, reopen(t, s, id).Entries, []*session.Entry{&want})
}

func everyMember(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	a := Say("user", "tabs\tand \"quotes\" and \x00 and 😀", "")
	a.Message = json.RawMessage("{\n  \"role\": \"user\",\r\n \"content\": \"two\\nlines\"}")
	a.Fields = map[string]json.RawMessage{
		"toolUseResult": json.RawMessage(`{"a":[1,2.50,null,true,"x"]}`), "requestId": json.RawMessage(`"req"`),
		"isMeta": json.RawMessage(`false`), "big": json.RawMessage(`12345678901234567890`), "null": json.RawMessage(`null`),
	}
	b := &session.Entry{Type: "attachment", UUID: session.NewID(), ParentUUID: a.UUID, Time: now(),
		Fields: map[string]json.RawMessage{"attachment": json.RawMessage(`{"type":"date"}`)}}
	c := &session.Entry{Type: "system", UUID: session.NewID(), ParentUUID: b.UUID, Time: now(),
		Fields: map[string]json.RawMessage{"subtype": json.RawMessage(`"informational"`), "content": json.RawMessage(`"x"`)}}
	d := Say("assistant", "answer", c.UUID)
	appendTo(t, log, a, b, c, d)
	shut(t, log)
	same(t, reopen(t, s, id).Entries, []*session.Entry{a, b, c, d})
}

func reserved(t *testing.T, s session.Store) {
	log := create(t, s, Meta("", "/src/a"))
	for _, name := range []string{"type", "uuid", "parentUuid", "sessionId", "timestamp", "message", "cwd", "version", "gitBranch", "entrypoint", "userType"} {
		e := Say("user", "x", "")
		e.Fields = map[string]json.RawMessage{name: json.RawMessage(`"y"`)}
		if err := log.Append(e); err == nil {
			t.Errorf("a second %s: no error", name)
		}
	}
}

// Rule 2.
func unknown(t *testing.T, s session.Store) {
	create(t, s, Meta("", "/src/a"))
	for _, id := range []string{session.NewID(), "", "no uuid", "../../etc/passwd"} {
		if _, _, err := session.Open(t.Context(), s, id, Meta("", "/src/a")); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("Open(%q): %v, want ErrNotFound", id, err)
		}
	}
	if _, err := session.Latest(t.Context(), s, "/src/none"); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Latest: %v, want ErrNotFound", err)
	}
	for _, title := range []string{"none", ""} {
		if _, err := session.Find(t.Context(), s, title); !errors.Is(err, session.ErrNotFound) {
			t.Errorf("Find(%q): %v, want ErrNotFound", title, err)
		}
	}
}

func newID(t *testing.T, s session.Store) {
	a, b := create(t, s, Meta("", "/src/a")), create(t, s, Meta("", "/src/a"))
	if !session.ValidID(a.ID()) || !session.ValidID(b.ID()) || a.ID() == b.ID() {
		t.Errorf("ids %q and %q, want two UUIDs", a.ID(), b.ID())
	}
}

func badID(t *testing.T, s session.Store) {
	for _, id := range []string{"x", "../" + session.NewID(), session.NewID() + "x", "zzzzzzzz-zzzz-zzzz-zzzz-zzzzzzzzzzzz"} {
		if log, err := session.Create(t.Context(), s, Meta(id, "/src/a")); err == nil {
			log.Close()
			t.Errorf("Create(%q): no error", id)
		}
	}
}

func takenID(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	again := func(when string) {
		t.Helper()
		for _, cwd := range []string{"/src/a", "/src/b"} {
			if other, err := session.Create(t.Context(), s, Meta(id, cwd)); !errors.Is(err, session.ErrExists) {
				if err == nil {
					other.Close()
				}
				t.Errorf("Create in %s %s: %v, want ErrExists", cwd, when, err)
			}
		}
	}
	again("while it is new")
	a := Say("user", "one", "")
	appendTo(t, log, a)
	again("while it is open")
	shut(t, log)
	again("when it is closed")
	same(t, reopen(t, s, id).Entries, []*session.Entry{a})
}

func emptySession(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	if _, err := session.Latest(t.Context(), s, "/src/a"); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Latest finds a session without entries: %v", err)
	}
	shut(t, log)
	if _, _, err := session.Open(t.Context(), s, id, Meta("", "/src/a")); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Open of a session without entries: %v, want ErrNotFound", err)
	}
	log = create(t, s, Meta(id, "/src/b")) // its id is free
	appendTo(t, log, Say("user", "one", ""))
	shut(t, log)
	if h := reopen(t, s, id); len(h.Entries) != 1 {
		t.Errorf("%d entries, want 1", len(h.Entries))
	}
}

func oneWriter(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	appendTo(t, log, Say("user", "one", ""))
	if _, _, err := session.Open(t.Context(), s, id, Meta("", "/src/a")); !errors.Is(err, session.ErrLocked) {
		t.Fatalf("a second Open: %v, want ErrLocked", err)
	}
	shut(t, log)
	log, _, err := session.Open(t.Context(), s, id, Meta("", "/src/a"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, _, err := session.Open(t.Context(), s, id, Meta("", "/src/b")); !errors.Is(err, session.ErrLocked) {
		t.Fatalf("a second Open from elsewhere: %v, want ErrLocked", err)
	}
}

func closed(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	a := Say("user", "one", "")
	appendTo(t, log, a)
	shut(t, log)
	shut(t, log)
	if err := log.Append(Say("assistant", "two", a.UUID)); !errors.Is(err, session.ErrClosed) {
		t.Errorf("Append after Close: %v, want ErrClosed", err)
	}
	next, _, err := session.Open(t.Context(), s, id, Meta("", "/src/a"))
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	shut(t, log) // the old log does not affect the new one
	if _, _, err := session.Open(t.Context(), s, id, Meta("", "/src/a")); !errors.Is(err, session.ErrLocked) {
		t.Errorf("Open while it is open: %v, want ErrLocked", err)
	}
}

// Rule 6: sessions and directories do not affect each other.
func isolation(t *testing.T, s session.Store) {
	var want [4]*session.Entry
	var ids [4]string
	for i := range want {
		log := create(t, s, Meta("", []string{"/src/a", "/src/b"}[i%2]))
		ids[i], want[i] = log.ID(), Say("user", fmt.Sprint("session ", i), "")
		appendTo(t, log, want[i])
		shut(t, log)
	}
	for i, id := range ids {
		same(t, reopen(t, s, id).Entries, []*session.Entry{want[i]})
	}
}

// Rule 7, for a list of one.
func latest(t *testing.T, s session.Store) {
	var logs []session.Log
	for _, cwd := range []string{"/src/a", "/src/a", "/src/b"} {
		log := create(t, s, Meta("", cwd))
		appendTo(t, log, Say("user", "hello", ""))
		logs = append(logs, log)
		time.Sleep(15 * time.Millisecond) // stores have a limited time resolution
	}
	is := func(cwd string, want session.Log) {
		t.Helper()
		if got, err := session.Latest(t.Context(), s, cwd); err != nil || got != want.ID() {
			t.Errorf("Latest(%s) is %s, %v, want %s", cwd, got, err, want.ID())
		}
	}
	is("/src/a", logs[1])
	is("/src/b", logs[2])
	appendTo(t, logs[0], Say("assistant", "again", ""))
	is("/src/a", logs[0])
	time.Sleep(15 * time.Millisecond)
	side := Say("user", "of a subagent", "")
	side.Fields = map[string]json.RawMessage{"isSidechain": json.RawMessage("true")}
	log := create(t, s, Meta("", "/src/a"))
	appendTo(t, log, side)
	is("/src/a", logs[0])
}

func find(t *testing.T, s session.Store) {
	titled := func(titles ...string) string {
		log := create(t, s, Meta("", "/src/a"))
		appendTo(t, log, Say("user", "hello", ""))
		for _, title := range titles {
			raw, _ := json.Marshal(title)
			appendTo(t, log, &session.Entry{Type: "custom-title", Fields: map[string]json.RawMessage{"customTitle": raw}})
		}
		shut(t, log)
		time.Sleep(15 * time.Millisecond)
		return log.ID()
	}
	a := titled("Fix the \"parser\"")
	b := titled("Old name", "New name")
	c := titled("New name")
	for title, want := range map[string]string{`Fix the "parser"`: a, "fix the \"parser\" ": a, "New name": c} {
		if got, err := session.Find(t.Context(), s, title); err != nil || got != want {
			t.Errorf("Find(%q) is %s, %v, want %s", title, got, err, want)
		}
	}
	if got, err := session.Find(t.Context(), s, "Old name"); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Find of a title that was changed: %s, %v (it was that of %s)", got, err, b)
	}
}

func branches(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	a := Say("user", "one", "")
	b := Say("assistant", "left behind", a.UUID)
	c := Say("user", "left behind too", b.UUID)
	d := Say("assistant", "taken", a.UUID)
	e := Say("user", "and on", d.UUID)
	appendTo(t, log, a, b, c, d, e)
	shut(t, log)
	same(t, reopen(t, s, id).Entries, []*session.Entry{a, d, e})
}

func sidechains(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	a := Say("user", "one", "")
	b := Say("assistant", "two", a.UUID)
	side := Say("user", "of a subagent", b.UUID)
	side.Fields = map[string]json.RawMessage{"isSidechain": json.RawMessage("true")}
	appendTo(t, log, a, b)
	appendTo(t, log, side)
	shut(t, log)
	same(t, reopen(t, s, id).Entries, []*session.Entry{a, b})
	log, _, err := session.Open(t.Context(), s, id, Meta("", "/src/a"))
	if err != nil {
		t.Fatal(err)
	}
	c := Say("user", "three", b.UUID)
	appendTo(t, log, c)
	shut(t, log)
	same(t, reopen(t, s, id).Entries, []*session.Entry{a, b, c})
}

func compaction(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	a := Say("user", "one", "")
	b := Say("assistant", "two", a.UUID)
	kept := Say("user", "kept", b.UUID)
	boundary := &session.Entry{Type: "system", UUID: session.NewID(), Time: now(), Fields: map[string]json.RawMessage{
		"subtype": json.RawMessage(`"compact_boundary"`), "logicalParentUuid": json.RawMessage(`"` + b.UUID + `"`),
	}}
	summary := Say("user", "what was said", boundary.UUID)
	summary.Fields = map[string]json.RawMessage{"isCompactSummary": json.RawMessage("true")}
	boundary.Fields["compactMetadata"] = json.RawMessage(`{"preservedMessages":{"anchorUuid":"` + summary.UUID + `","uuids":["` + kept.UUID + `"]}}`)
	next := Say("user", "go on", summary.UUID)
	appendTo(t, log, a, b, kept)
	appendTo(t, log, boundary, summary)
	appendTo(t, log, next)
	shut(t, log)
	same(t, reopen(t, s, id).Entries, []*session.Entry{boundary, summary, kept, next})
}

func looseRecords(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	mode := func(m string) *session.Entry {
		return &session.Entry{Type: "mode", Fields: map[string]json.RawMessage{"mode": json.RawMessage(m)}}
	}
	cost := &session.Entry{Type: "cost-state", Time: now(), Fields: map[string]json.RawMessage{"totalCostUSD": json.RawMessage("0.25"), "cwd": json.RawMessage(`"/else"`)}}
	a := Say("user", "one", "")
	appendTo(t, log, mode(`"plan"`), a, cost)
	appendTo(t, log, mode(`"default"`))
	shut(t, log)
	h := reopen(t, s, id)
	same(t, h.Entries, []*session.Entry{a})
	if len(h.Latest) != 2 {
		t.Errorf("types without a place: %v", h.Latest)
	}
	for typ, want := range map[string]*session.Entry{"mode": mode(`"default"`), "cost-state": cost} {
		if h.Latest[typ] == nil {
			t.Errorf("no %s", typ)
			continue
		}
		same(t, []*session.Entry{h.Latest[typ]}, []*session.Entry{want})
	}
}

func effects(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	a := Say("user", "do it", "")
	call := func(tool, parent string) *session.Entry {
		e := Say("assistant", "", parent)
		e.Message = json.RawMessage(`{"id":"msg_1","role":"assistant","content":[{"type":"tool_use","id":"` + tool + `","name":"Bash","input":{}}]}`)
		return e
	}
	b := call("t_none", a.UUID)
	c := call("t_unknown", b.UUID)
	d := call("t_done", c.UUID)
	appendTo(t, log, a, b, c, d)
	appendTo(t, log, session.Intent("t_unknown", "Bash", json.RawMessage(`{"command":"ls"}`)))
	appendTo(t, log, session.Intent("t_done", "Bash", nil))
	appendTo(t, log, session.Outcome("t_done", false, json.RawMessage(`"42 <ok>"`)))
	shut(t, log)

	log, h, err := session.Open(t.Context(), s, id, Meta("", "/src/a"))
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]session.Effect{"t_none": session.EffectNone, "t_unknown": session.EffectUnknown, "t_done": session.EffectDone} {
		if got := h.Effect(id); got != want {
			t.Errorf("the effect of %s is %v, want %v", id, got, want)
		}
	}
	added := session.Repair(h)
	if len(added) != 3 || len(h.Entries) != 7 {
		t.Fatalf("repaired with %d entries to %d, want 3 and 7", len(added), len(h.Entries))
	}
	appendTo(t, log, added...)
	shut(t, log)
	again := reopen(t, s, id)
	same(t, again.Entries, h.Entries)
	if more := session.Repair(again); more != nil {
		t.Errorf("a repaired session was repaired again: %d entries", len(more))
	}
}

func concurrent(t *testing.T, s session.Store) {
	const sessions, writers, each = 4, 4, 10
	var wg sync.WaitGroup
	for i := range sessions {
		wg.Go(func() {
			id := session.NewID()
			log, err := session.Create(t.Context(), s, Meta(id, fmt.Sprint("/src/", i%2)))
			if err != nil {
				t.Error(err)
				return
			}
			root := Say("user", "root", "")
			if err := log.Append(root); err != nil {
				t.Error(err)
			}
			var mu sync.Mutex
			want := map[string]bool{}
			var inner sync.WaitGroup
			for w := range writers {
				inner.Go(func() {
					for n := range each {
						typ := fmt.Sprintf("record-%d-%d", w, n)
						pair := []*session.Entry{{Type: typ}, {Type: typ + "-b"}}
						if err := log.Append(pair...); err != nil {
							t.Error(err)
						}
						mu.Lock()
						want[typ], want[typ+"-b"] = true, true
						mu.Unlock()
						if _, err := session.Latest(t.Context(), s, "/src/0"); err != nil && !errors.Is(err, session.ErrNotFound) {
							t.Error(err)
						}
					}
				})
			}
			inner.Wait()
			if err := log.Close(); err != nil {
				t.Error(err)
			}
			log, h, err := session.Open(t.Context(), s, id, Meta("", "/src/0"))
			if err != nil {
				t.Error(err)
				return
			}
			log.Close()
			for typ := range want {
				if h.Latest[typ] == nil {
					t.Errorf("%s is lost", typ)
				}
			}
			if len(h.Latest) != len(want) || len(h.Entries) != 1 || h.Corrupt != 0 {
				t.Errorf("%d records, %d entries, %d corrupt; want %d, 1, 0", len(h.Latest), len(h.Entries), h.Corrupt, len(want))
			}
		})
	}
	wg.Wait()
}

func canceled(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	appendTo(t, log, Say("user", "one", ""))
	shut(t, log)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := session.Create(ctx, s, Meta("", "/src/a")); err == nil {
		t.Error("Create: no error")
	}
	if _, _, err := session.Open(ctx, s, id, Meta("", "/src/a")); err == nil {
		t.Error("Open: no error")
	}
	reopen(t, s, id) // nothing was left locked
}

// parts writes the log of a subagent.
func parts(t *testing.T, s session.Store) {
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	a := Say("user", "begin", "")
	appendTo(t, log, a)
	for _, name := range []string{"", "..", "/x", "a//b"} {
		if _, err := log.Sub(name); err == nil {
			t.Errorf("Sub(%q): no error", name)
		}
	}
	sub, err := log.Sub("subagents/agent-7")
	if err != nil {
		t.Fatal(err)
	}
	side := map[string]json.RawMessage{"isSidechain": json.RawMessage("true"), "agentId": json.RawMessage(`"7"`)}
	b := Say("user", "of the subagent", "")
	b.Fields = side
	c := Say("assistant", "done", b.UUID)
	c.Fields = side
	appendTo(t, sub, &session.Entry{Type: "agent_metadata", Fields: map[string]json.RawMessage{"toolUseId": json.RawMessage(`"toolu_1"`), "agentType": json.RawMessage(`"x"`)}})
	appendTo(t, sub, b)
	appendTo(t, sub, c)
	shut(t, sub)
	if sub, err = log.Sub("subagents/agent-7"); err != nil {
		t.Fatal(err)
	}
	d := Say("user", "more", c.UUID)
	d.Fields = side
	appendTo(t, sub, d)
	appendTo(t, log, Say("assistant", "end", a.UUID))
	shut(t, log)
	if err := sub.Append(Say("user", "late", "")); err == nil {
		t.Error("a part outlives its session")
	}
	if h := reopen(t, s, id); len(h.Entries) != 2 {
		t.Errorf("%d entries, want 2", len(h.Entries))
	}
	agents, err := session.Subagents(t.Context(), s, id, nil)
	if err != nil || len(agents) != 1 || agents[0] != "7" {
		t.Fatalf("subagents %v, %v", agents, err)
	}
	said, err := session.SubagentMessages(t.Context(), s, id, "7", nil)
	if err != nil || len(said) != 3 || said[1].UUID != c.UUID || said[0].ParentToolUseID != "toolu_1" {
		t.Errorf("messages %+v, %v", said, err)
	}
}

// functions uses a session as people do.
func functions(t *testing.T, s session.Store) {
	ctx := t.Context()
	id := session.NewID()
	log := create(t, s, Meta(id, "/src/a"))
	a := Say("user", "Which tests are flaky?", "")
	b := Say("assistant", "Two.", a.UUID)
	appendTo(t, log, a, b)
	if err := errors.Join(session.Rename(ctx, s, id, " Flaky ", nil), session.Tag(ctx, s, id, "ci", nil)); err != nil {
		t.Fatalf("while it is open: %v", err)
	}
	if err := session.Delete(ctx, s, id, nil); !errors.Is(err, session.ErrLocked) {
		t.Fatalf("Delete while it is open: %v, want ErrLocked", err)
	}
	shut(t, log)
	info, err := session.Stat(ctx, s, id, nil)
	if err != nil || info.Summary != "Flaky" || info.Tag != "ci" || info.FirstPrompt != "Which tests are flaky?" || info.Cwd != "/src/a" || info.GitBranch != "main" || !info.Programmatic {
		t.Errorf("Stat: %+v, %v", info, err)
	}
	said, err := session.Messages(ctx, s, id, &session.MessagesOptions{Offset: 1})
	if err != nil || len(said) != 1 || said[0].UUID != b.UUID {
		t.Errorf("Messages: %+v, %v", said, err)
	}
	time.Sleep(15 * time.Millisecond)
	fork, err := session.Fork(ctx, s, id, &session.ForkOptions{UpTo: a.UUID})
	if err != nil {
		t.Fatal(err)
	}
	all, err := session.List(ctx, s, nil)
	if err != nil || len(all) != 2 || all[0].ID != fork || all[0].Summary != "Flaky (fork)" || all[1].ID != id {
		t.Errorf("List: %+v, %v", all, err)
	}
	if page, err := session.List(ctx, s, &session.ListOptions{Offset: 1, Limit: 5}); err != nil || len(page) != 1 || page[0].ID != id {
		t.Errorf("a page: %+v, %v", page, err)
	}
	if none, err := session.List(ctx, s, &session.ListOptions{NoProgrammatic: true}); err != nil || len(none) != 0 {
		t.Errorf("without those of programs: %+v, %v", none, err)
	}
	if h := reopen(t, s, fork); len(h.Entries) != 1 {
		t.Errorf("the fork holds %d entries", len(h.Entries))
	}
	if err := session.Delete(ctx, s, id, nil); err != nil {
		t.Fatal(err)
	}
	if err := session.Delete(ctx, s, id, nil); !errors.Is(err, session.ErrNotFound) {
		t.Errorf("Delete of what is gone: %v", err)
	}
	if all, err := session.List(ctx, s, nil); err != nil || len(all) != 1 {
		t.Errorf("after Delete: %+v, %v", all, err)
	}
}
