package session

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPartHistory reads the conversation of a subagent, all of whose messages are a side chain of the session.
func TestPartHistory(t *testing.T) {
	f := put(t, rec("user", 1, 0, ""))
	dir := filepath.Join(f.Dir, "projects", "-x", testID, "subagents")
	lines := side("user", 1, 0) + "\n" + side("assistant", 2, 1) + "\n"
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "agent-a.jsonl"), []byte(lines), 0o600)); err != nil {
		t.Fatal(err)
	}
	h, err := PartHistory(t.Context(), f, testID, "subagents/agent-a", nil)
	if err != nil || len(h.Entries) != 2 || h.Meta.ID != testID {
		t.Errorf("got %+v, %v, want two messages", h, err)
	}
	if all, err := Records(t.Context(), f, testID, "", nil); err != nil || len(all) != 1 {
		t.Errorf("got %s, %v, want the record of the session itself", all, err)
	}
	for part, want := range map[string]error{"subagents/agent-b": ErrNotFound, "../x": nil} {
		if _, err := PartHistory(t.Context(), f, testID, part, nil); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %v", part, err)
		}
	}
	if _, err := PartHistory(t.Context(), f, num(9), "subagents/agent-a", nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("another session: %v", err)
	}
}

func TestCheckSub(t *testing.T) {
	for sub, ok := range map[string]bool{
		"": true, "a": true, "subagents/agent-1": true, strings.Repeat("x", 512): true, strings.Repeat("a/", 15) + "a": true,
		strings.Repeat("x", 513): false, strings.Repeat("a/", 16) + "a": false, ".": false, "..": false, "/a": false, "a/": false, "a//b": false, "a/../b": false,
		`a\b`: false, "a:b": false, "a\x00b": false,
	} {
		if err := checkSub(sub); (err == nil) != ok {
			t.Errorf("%q: %v", sub, err)
		}
	}
}

// A failingLog fails to append.
type failingLog struct {
	Log
	err error
}

func (l *failingLog) Append(...*Entry) error { return l.err }

// TestMirror shows that both places get the same records, and the second one only what is on record.
func TestMirror(t *testing.T) {
	store := &Memory{}
	log, err := Create(t.Context(), store, Meta{ID: testID, Cwd: "/x"})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	told := map[string][]string{}
	tell := func(key Key, records []json.RawMessage) {
		for _, r := range records {
			told[key.Sub] = append(told[key.Sub], string(r))
		}
	}
	m := Mirror(log, tell)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	say := func(n int, at time.Time) *Entry {
		return &Entry{Type: "user", UUID: num(n), Time: at, Message: json.RawMessage(`{"role":"user","content":"x"}`)}
	}
	undated := say(2, time.Time{})
	part, err := m.Sub("subagents/agent-a")
	if err := errors.Join(err, m.Append(say(1, at), undated), m.Append(), part.Append(say(3, at))); err != nil {
		t.Fatal(err)
	}
	if !undated.Time.IsZero() {
		t.Error("the entry of the caller was changed")
	}
	for sub, want := range map[string]int{"": 2, "subagents/agent-a": 1} {
		records, err := Records(t.Context(), store, testID, sub, nil)
		var got []string
		for _, r := range records {
			got = append(got, string(r))
		}
		if err != nil || len(got) != want || strings.Join(got, "\n") != strings.Join(told[sub], "\n") {
			t.Errorf("%q has\n%s\nand the mirror\n%s, %v", sub, strings.Join(got, "\n"), strings.Join(told[sub], "\n"), err)
		}
	}
	clear(told)
	broken := errors.New("broken")
	if err := Mirror(&failingLog{log, broken}, tell).Append(say(4, at)); !errors.Is(err, broken) || len(told) > 0 {
		t.Errorf("got %v, and the mirror has %v", err, told)
	}
	if _, err := m.Sub("../x"); err == nil {
		t.Error("a part has a bad name")
	}
}

// TestReadIndex shows which indexes are used: those whose places are in the log, before the compaction.
func TestReadIndex(t *testing.T) {
	dir := t.TempDir()
	p := place{project: "p", id: testID}
	name := filepath.Join(dir, filepath.FromSlash(indexName(p)))
	root, err := os.OpenRoot(dir)
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(name), 0o700)); err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	log := strings.NewReader(strings.Repeat("x", 1000))
	good := index{Version: 1, Boundary: 500, Sum: boundarySum(log, 500)}
	spans := func(off int64, n int) (both [2]index) {
		both = [2]index{good, good}
		both[0].Loose, both[1].Kept = map[string]jsonSpan{"x": {off, n}}, []jsonSpan{{off, n}}
		return both
	}
	try := func(x index, want bool) {
		t.Helper()
		text, _ := json.Marshal(x)
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := readIndex(root, p, log, log.Size()); (got != nil) != want {
			t.Errorf("%s is used: %v, want %v", text, got != nil, want)
		}
	}
	try(good, true)
	for _, c := range []struct {
		off  int64
		n    int
		want bool
	}{{0, 1, true}, {0, 500, true}, {499, 1, true}, {-1, 1, false}, {0, 0, false}, {5, -1, false}, {0, 501, false}, {500, 1, false}, {1<<63 - 1, 9, false}, {1, 1<<63 - 1, false}} {
		for _, x := range spans(c.off, c.n) {
			try(x, c.want)
		}
	}
	for _, change := range []func(*index){
		func(x *index) { x.Version = 2 }, func(x *index) { x.Boundary = 0 }, func(x *index) { x.Boundary = 1000; x.Sum = boundarySum(log, 1000) },
		func(x *index) { x.Boundary = -1; x.Sum = boundarySum(log, -1) }, func(x *index) { x.Sum = "" },
	} {
		x := good
		change(&x)
		try(x, false)
	}
}
