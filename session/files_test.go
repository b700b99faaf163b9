package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/internal/testwait"
)

const testID = "0b7d9a66-6f7e-4a55-9a3b-8c1f6f1d2e3a"

// rec returns a line of a log: of a type, with the number of its uuid and of its
// parent's, and more members.
func rec(typ string, n, parent int, more string) string {
	up := "null"
	if parent != 0 {
		up = fmt.Sprintf("%q", num(parent))
	}
	message := ""
	if (typ == "user" || typ == "assistant") && !strings.Contains(more, `"message"`) {
		message = fmt.Sprintf(`"message":{"role":%q,"content":[{"type":"text","text":"%s %d"}]},`, typ, typ, n)
	}
	return fmt.Sprintf(`{"parentUuid":%s,"isSidechain":false,"type":%q,%s"uuid":%q,"timestamp":"2026-01-02T03:04:05.678Z"%s,"cwd":"/x","sessionId":%q,"gitBranch":"main"}`,
		up, typ, message, num(n), more, testID)
}

// side is the same on a sidechain.
func side(typ string, n, parent int) string {
	return strings.Replace(rec(typ, n, parent, ""), `"isSidechain":false`, `"isSidechain":true`, 1)
}

// call returns an assistant's block that calls a tool, of message 1.
func call(n, parent int, tool string) string {
	return rec("assistant", n, parent, fmt.Sprintf(`,"message":{"id":"msg_1","role":"assistant","content":[{"type":"tool_use","id":%q,"name":"Bash","input":{}}]}`, tool))
}

// result returns the answer to a call.
func result(n, parent int, tool string) string {
	return rec("user", n, parent, fmt.Sprintf(`,"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,"content":"x"}]}`, tool))
}

func num(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// put writes a session as another program would, and returns the store.
func put(t testing.TB, lines ...string) *Files {
	t.Helper()
	f := &Files{Dir: t.TempDir(), Durability: Write}
	putIn(t, f, testID, strings.Join(lines, "\n")+"\n")
	return f
}

func putIn(t testing.TB, f *Files, id, text string) string {
	t.Helper()
	dir := filepath.Join(f.Dir, "projects", "-x")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, id+".jsonl")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// open returns the content of a session.
func open(t testing.TB, f *Files) *History {
	t.Helper()
	log, h, err := Open(t.Context(), f, testID, Meta{Cwd: "/y"})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	return h
}

// names lists entries by the numbers of their uuids.
func names(entries []*Entry) string {
	var out []string
	for _, e := range entries {
		out = append(out, fmt.Sprint(e.Type[:1], strings.TrimLeft(e.UUID[24:], "0")))
	}
	return strings.Join(out, " ")
}

func TestChain(t *testing.T) {
	boundary := func(n int, metadata string) string {
		return rec("system", n, 0, `,"subtype":"compact_boundary","compactMetadata":`+metadata)
	}
	for _, c := range []struct {
		name  string
		lines []string
		want  string // of Open
		shown string // of Messages, if it differs
	}{
		{"nothing", []string{`{"type":"mode","mode":"plan"}`}, "", ""},
		{"a line", []string{rec("user", 1, 0, ""), rec("assistant", 2, 1, "")}, "u1 a2", ""},
		{"a branch", []string{rec("user", 1, 0, ""), rec("assistant", 2, 1, ""), rec("assistant", 3, 1, "")}, "u1 a3", ""},
		{"a cycle", []string{rec("user", 1, 2, ""), rec("assistant", 2, 1, "")}, "", ""},
		{"below a cycle", []string{rec("user", 1, 2, ""), rec("assistant", 2, 1, ""), rec("user", 3, 2, "")}, "u1 a2 u3", ""},
		{"its own parent", []string{rec("user", 1, 1, ""), rec("user", 2, 1, "")}, "u1 u2", ""},
		{"an unknown parent", []string{rec("user", 1, 99, ""), rec("assistant", 2, 1, "")}, "u1 a2", ""},
		{"a meta leaf", []string{rec("user", 1, 0, ""), rec("assistant", 2, 1, ""), rec("user", 3, 1, ""), rec("user", 4, 2, `,"isMeta":true`)}, "u1 a2 u4", "u1 a2"},
		{"a sidechain", []string{rec("user", 1, 0, ""), rec("assistant", 2, 1, ""), side("user", 3, 2), side("assistant", 4, 3)}, "u1 a2", ""},
		{"a sidechain later than a branch", []string{rec("user", 1, 0, ""), rec("assistant", 2, 1, ""), rec("user", 3, 1, ""), side("user", 4, 2)}, "u1 u3", ""},
		{"a team", []string{rec("user", 1, 0, ""), rec("assistant", 2, 1, ""), rec("user", 3, 2, `,"teamName":"t"`)}, "u1 a2", ""},
		{"progress", []string{rec("user", 1, 0, ""), rec("progress", 2, 1, ""), rec("assistant", 3, 2, "")}, "u1 a3", ""},
		{"what follows the last message", []string{rec("user", 1, 0, ""), rec("assistant", 2, 1, ""), rec("attachment", 3, 2, ""), rec("system", 4, 3, "")}, "u1 a2 a3 s4", "u1 a2"},
		{"corrupt lines", []string{rec("user", 1, 0, ""), `{"type":"user","uu`, "\x00\x00", "[1]", "{}", `{} {}`, "", rec("assistant", 2, 1, "")}, "u1 a2", ""},
		{"a uuid twice", []string{rec("user", 1, 0, ""), rec("assistant", 2, 1, ""), rec("user", 1, 0, "")}, "u1 a2", ""},
		{"calls at once", []string{rec("user", 1, 0, ""), call(2, 1, "a"), call(3, 2, "b"), call(4, 3, "c"),
			result(5, 2, "a"), result(6, 4, "c"), result(7, 3, "b"), rec("assistant", 8, 7, "")}, "u1 a2 a3 a4 u5 u6 u7 a8", ""},
		{"calls at once, one answered", []string{rec("user", 1, 0, ""), call(2, 1, "a"), call(3, 2, "b"), result(4, 2, "a")}, "u1 a2 a3 u4", ""},
		{"calls at once, none answered", []string{rec("user", 1, 0, ""), call(2, 1, "a"), call(3, 2, "b")}, "u1 a2 a3", ""},
		{"calls in a line", []string{rec("user", 1, 0, ""), call(2, 1, "a"), call(3, 2, "b"), result(4, 3, "b"), result(5, 4, "a"), rec("user", 6, 5, "")}, "u1 a2 a3 u4 u5 u6", ""},
		{"gone back into calls", []string{rec("user", 1, 0, ""), call(2, 1, "a"), call(3, 2, "b"), result(4, 2, "a"), result(5, 3, "b"), rec("user", 6, 2, "")},
			"u1 a2 u6", "u1 a2 a3 u4 u5 u6"},
		{"a compaction", []string{rec("user", 1, 0, ""), boundary(2, "{}"), rec("user", 3, 2, `,"isCompactSummary":true`), rec("user", 4, 3, "")}, "s2 u3 u4", "u3 u4"},
		{"a compaction below its past", []string{rec("user", 1, 0, ""), rec("system", 2, 1, `,"subtype":"compact_boundary"`), rec("user", 3, 2, "")}, "s2 u3", "u3"},
		{"two compactions", []string{rec("user", 1, 0, ""), boundary(2, "{}"), rec("user", 3, 2, ""), boundary(4, "{}"), rec("user", 5, 4, "")}, "s4 u5", "u5"},
		{"messages kept", []string{rec("user", 1, 0, ""), rec("assistant", 2, 1, ""), rec("user", 3, 2, ""),
			boundary(4, fmt.Sprintf(`{"preservedMessages":{"anchorUuid":%q,"uuids":[%q,%q,"gone"]}}`, num(5), num(2), num(3))),
			rec("user", 5, 4, `,"isCompactSummary":true`), rec("user", 6, 5, "")}, "s4 u5 a2 u3 u6", "u5 a2 u3 u6"},
		{"a segment kept", []string{rec("user", 1, 0, ""), rec("assistant", 2, 1, ""), rec("user", 3, 2, ""),
			boundary(4, fmt.Sprintf(`{"preservedSegment":{"anchorUuid":"?","headUuid":%q,"tailUuid":%q}}`, num(2), num(3))),
			rec("user", 5, 4, `,"isCompactSummary":true`), rec("user", 6, 5, "")}, "s4 u5 a2 u3 u6", "u5 a2 u3 u6"},
		{"a queued prompt", []string{rec("user", 1, 0, ""), rec("attachment", 2, 1, `,"attachment":{"type":"queued_command","prompt":"more"}`), rec("assistant", 3, 2, "")}, "u1 a2 a3", "u1 u2 a3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := put(t, c.lines...)
			if got := names(open(t, f).Entries); got != c.want {
				t.Errorf("Open: %s, want %s", got, c.want)
			}
			all, err := Messages(t.Context(), f, testID, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, m := range all {
				got = append(got, fmt.Sprint(m.Type[:1], strings.TrimLeft(m.UUID[24:], "0")))
				if !json.Valid(m.Message) {
					t.Errorf("the message %s", m.Message)
				}
			}
			if c.shown == "" {
				c.shown = c.want
			}
			if got := strings.Join(got, " "); got != c.shown {
				t.Errorf("Messages: %s, want %s", got, c.shown)
			}
		})
	}
}

// TestLayout checks that the lines are those of the official layout, member for member.
func TestLayout(t *testing.T) {
	cwd := t.TempDir()
	f := &Files{Dir: filepath.Join(t.TempDir(), "config")}
	log, err := Create(t.Context(), f, Meta{ID: testID, Cwd: cwd, Version: "2.1.0", GitBranch: "main", Entrypoint: "sdk-ts"})
	if err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(f.Dir, "projects", ProjectKey(cwd), testID+".jsonl")
	if log.Path() != want {
		t.Errorf("it is at %s, want %s", log.Path(), want)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_900_000, time.FixedZone("x", 3600))
	if err := errors.Join(
		log.Append(
			&Entry{Type: "user", UUID: num(1), Time: at, Message: json.RawMessage(`{"role":"user","content":"<hi>"}`), Fields: map[string]json.RawMessage{"promptId": json.RawMessage(`"p"`)}},
			&Entry{Type: "assistant", UUID: num(2), ParentUUID: num(1), Time: at, Message: json.RawMessage(`{"role":"assistant"}`)}),
		log.Append(&Entry{Type: "attachment", UUID: num(3), ParentUUID: num(2), Time: at, Fields: map[string]json.RawMessage{"attachment": json.RawMessage("{}"), "isSidechain": json.RawMessage("true")}}),
		log.Append(&Entry{Type: "mode", Fields: map[string]json.RawMessage{"mode": json.RawMessage(`"plan"`)}}, &Entry{Type: "queue-operation", Time: at}),
		log.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	around := fmt.Sprintf(`,"userType":"external","entrypoint":"sdk-ts","cwd":%s,"sessionId":"`+testID+`","version":"2.1.0","gitBranch":"main"`, quote(cwd))
	lines := `{"parentUuid":null,"isSidechain":false,"type":"user","message":{"role":"user","content":"<hi>"},"uuid":"` + num(1) + `","timestamp":"2026-01-02T02:04:05.678Z","promptId":"p"` + around + `,"parleyMore":1}
{"parentUuid":"` + num(1) + `","isSidechain":false,"type":"assistant","message":{"role":"assistant"},"uuid":"` + num(2) + `","timestamp":"2026-01-02T02:04:05.678Z"` + around + `}
{"parentUuid":"` + num(2) + `","type":"attachment","uuid":"` + num(3) + `","timestamp":"2026-01-02T02:04:05.678Z","attachment":{},"isSidechain":true` + around + `}
{"type":"mode","mode":"plan","sessionId":"` + testID + `","parleyMore":1}
{"type":"queue-operation","timestamp":"2026-01-02T02:04:05.678Z","sessionId":"` + testID + `"}
`
	if string(text) != lines {
		t.Errorf("got\n%swant\n%s", text, lines)
	}
	if runtime.GOOS != "windows" {
		for name, mode := range map[string]os.FileMode{want: 0o600, filepath.Dir(want): 0o700, filepath.Dir(filepath.Dir(want)): 0o700, f.Dir: 0o700} {
			if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, mode)
			}
		}
	}
}

func TestSlug(t *testing.T) {
	long := "/" + strings.Repeat("abcdefghi/", 25)
	for path, want := range map[string]string{
		"/home/u/my.project_1": "-home-u-my-project-1",
		`C:\Users\u`:           "C--Users-u",
		"/é":                   "--",
		"/😀":                   "---",
		long:                   "-" + strings.Repeat("abcdefghi-", 25)[:199] + "-" + "uwz0zt",
	} {
		if got := slug(path); got != want {
			t.Errorf("slug(%q) is %q, want %q", path, got, want)
		}
	}
	// A link and its target are one project.
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Skip(err)
	}
	if a, b := ProjectKey(dir), ProjectKey(link); a != b {
		t.Errorf("%s and %s", a, b)
	}
}

// TestTornAtEveryByte checks that wherever the last write ended, acknowledged records are
// there, a batch is there as a whole or not at all, and the next append is on its own line.
func TestTornAtEveryByte(t *testing.T) {
	f := &Files{Dir: t.TempDir(), Durability: Write}
	log, err := Create(t.Context(), f, Meta{ID: testID, Cwd: "/x"})
	if err != nil {
		t.Fatal(err)
	}
	say := func(n, parent int) *Entry {
		e := &Entry{Type: "user", UUID: num(n), Message: json.RawMessage(`{"role":"user","content":"ä"}`)}
		if parent > 0 {
			e.ParentUUID = num(parent)
		}
		return e
	}
	if err := errors.Join(log.Append(say(1, 0)), log.Append(say(2, 1), say(3, 2), &Entry{Type: "mode"}), log.Append(say(4, 3)), log.Close()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(log.Path())
	if err != nil {
		t.Fatal(err)
	}
	ends := []int{0}
	for i, c := range text {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	whole := []int{0, ends[1], ends[4], ends[5]} // the ends of the appends
	for cut := 1; cut <= len(text); cut++ {
		if err := os.WriteFile(log.Path(), text[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		want := 0
		for i, end := range whole {
			if cut >= end-1 && i > 0 { // a record without its newline is complete
				want = i
			}
		}
		next, h, err := Open(t.Context(), f, testID, Meta{Cwd: "/x"})
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if got, want := names(h.Entries), []string{"", "u1", "u1 u2 u3", "u1 u2 u3 u4"}[want]; got != want {
			t.Fatalf("cut at %d: %s, want %s", cut, got, want)
		}
		torn := !slices.Contains(whole, cut) && !slices.Contains(whole, cut+1)
		if h.Torn != torn || h.Corrupt != 0 {
			t.Fatalf("cut at %d: torn %v, corrupt %d", cut, h.Torn, h.Corrupt)
		}
		last := len(h.Entries)
		if cut%5 != 0 {
			next.Close()
			continue
		}
		if err := errors.Join(next.Append(say(9, last)), next.Close()); err != nil {
			t.Fatal(err)
		}
		h = open(t, f)
		if len(h.Entries) != last+1 || h.Torn || h.Corrupt != 0 {
			t.Fatalf("cut at %d, then one more: %s, torn %v, corrupt %d", cut, names(h.Entries), h.Torn, h.Corrupt)
		}
	}
}

// TestBatchInTheMiddle checks that a batch whose end is missing counts if others wrote after
// it: they may have copied some of its records and left out the rest.
func TestBatchInTheMiddle(t *testing.T) {
	title := `{"type":"custom-title","customTitle":"x"}`
	f := put(t, rec("user", 1, 0, `,"parleyMore":1`), rec("assistant", 2, 1, `,"parleyMore":2`), rec("user", 3, 2, `,"parleyMore":1`), title)
	if h := open(t, f); names(h.Entries) != "u1 a2 u3" || h.Corrupt != 0 || h.Torn || h.Latest["custom-title"] == nil {
		t.Errorf("%s, %+v", names(h.Entries), h)
	}
	f = put(t, rec("user", 1, 0, `,"parleyMore":2,"forkedFrom":{}`))
	if h := open(t, f); names(h.Entries) != "u1" || h.Torn {
		t.Errorf("%s, %+v", names(h.Entries), h)
	}
}

func TestOpenFromElsewhere(t *testing.T) {
	f := &Files{Dir: t.TempDir(), Durability: Write}
	old := put(t, rec("user", 1, 0, ""))
	text, _ := os.ReadFile(filepath.Join(old.Dir, "projects", "-x", testID+".jsonl"))
	name := putIn(t, f, testID, string(text))
	other := filepath.Join(f.Dir, "projects", "-other")
	os.MkdirAll(other, 0o700)
	os.WriteFile(filepath.Join(other, testID+".jsonl"), nil, 0o600) // an empty file is not a session
	log, h, err := Open(t.Context(), f, testID, Meta{Cwd: "/somewhere/else", Version: "9"})
	if err != nil {
		t.Fatal(err)
	}
	if log.Path() != name || len(h.Entries) != 1 || h.Meta.Cwd != "/x" {
		t.Errorf("%s, %+v", log.Path(), h)
	}
	if err := errors.Join(log.Append(&Entry{Type: "user", UUID: num(2), ParentUUID: num(1)}), log.Close()); err != nil {
		t.Fatal(err)
	}
	// Of two, the newest wins.
	newer := filepath.Join(other, testID+".jsonl")
	os.WriteFile(newer, []byte(rec("user", 7, 0, "")+"\n"), 0o600)
	os.Chtimes(newer, time.Time{}, time.Now().Add(time.Minute))
	if h := open(t, f); names(h.Entries) != "u7" {
		t.Errorf("%s, want u7", names(h.Entries))
	}
}

// TestLinks checks that nothing outside of the directory is written through a link, and that
// only regular files count.
func TestLinks(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("links need a privilege")
	}
	f := put(t, rec("user", 1, 0, ""))
	outside := filepath.Join(t.TempDir(), "outside.jsonl")
	os.WriteFile(outside, []byte(rec("user", 1, 0, "")+"\n"), 0o600)
	id := "11111111-1111-4111-8111-111111111111"
	if err := os.Symlink(outside, filepath.Join(f.Dir, "projects", "-x", id+".jsonl")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(t.Context(), f, id, Meta{Cwd: "/x"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("Open of a link: %v", err)
	}
	if log, err := Create(t.Context(), f, Meta{ID: id, Cwd: "/x"}); err == nil {
		log.Append(&Entry{Type: "mode"})
		log.Close()
		if text, _ := os.ReadFile(outside); strings.Contains(string(text), "mode") {
			t.Error("it wrote through a link")
		}
	}
	os.Symlink(filepath.Dir(outside), filepath.Join(f.Dir, "projects", "-link"))
	os.Rename(outside, filepath.Join(filepath.Dir(outside), "22222222-2222-4222-8222-222222222222.jsonl"))
	if _, _, err := Open(t.Context(), f, "22222222-2222-4222-8222-222222222222", Meta{Cwd: "/x"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("Open below a link that leads out: %v", err)
	}
	if err := os.Mkdir(filepath.Join(f.Dir, "projects", "-x", "33333333-3333-4333-8333-333333333333.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(t.Context(), f, "33333333-3333-4333-8333-333333333333", Meta{Cwd: "/x"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("Open of a directory: %v", err)
	}
	if infos, err := List(t.Context(), f, nil); err != nil || len(infos) != 1 {
		t.Errorf("List: %v, %v", infos, err)
	}
}

// TestLeftBehind checks that a file that a writer left behind before its first entry does no
// harm.
func TestLeftBehind(t *testing.T) {
	f := &Files{Dir: t.TempDir(), Durability: Write}
	putIn(t, f, testID, "")
	for _, cwd := range []string{"/x", "/y"} {
		log, err := Create(t.Context(), f, Meta{ID: testID, Cwd: cwd})
		if err != nil {
			t.Fatal(err)
		}
		log.Close()
	}
}

func TestNoDurability(t *testing.T) {
	f := &Files{Dir: t.TempDir(), Durability: None}
	log, err := Create(t.Context(), f, Meta{ID: testID, Cwd: "/x"})
	if err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		info, err := os.Stat(log.Path())
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	mode := &Entry{Type: "mode"}
	if err := log.Append(mode); err != nil || size() != 0 {
		t.Errorf("%v, %d bytes", err, size())
	}
	if err := log.Append(); err != nil || size() == 0 {
		t.Errorf("%v, nothing was written", err)
	}
	one := size()
	log.Append(mode)
	if err := log.Close(); err != nil || size() != 2*one {
		t.Errorf("%v, %d bytes, want %d", err, size(), 2*one)
	}
}

func TestLockWait(t *testing.T) {
	f := put(t, rec("user", 1, 0, ""))
	f.LockWait = time.Hour
	log, _, err := Open(t.Context(), f, testID, Meta{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		testwait.Pause(100 * time.Millisecond)
		log.Close()
	}()
	next, _, err := Open(t.Context(), f, testID, Meta{})
	if err != nil {
		t.Fatal(err)
	}
	next.Close()
}

// TestFull checks that a full disk accepts nothing, and that existing records stay intact.
func TestFull(t *testing.T) {
	f := put(t, rec("user", 1, 0, ""))
	log, _, err := Open(t.Context(), f, testID, Meta{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	l := log.(*fileLog)
	before, _ := os.ReadFile(l.path)
	if _, err := l.file.Write([]byte(`{"type":"half`)); err != nil { // as much as there was room for
		t.Fatal(err)
	}
	if err := l.undo(int64(len(`{"type":"half`))); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(l.path); string(after) != string(before) {
		t.Errorf("%s", after)
	}
	l.file.Close()
	if err := log.Append(&Entry{Type: "mode"}); err == nil {
		t.Error("no error")
	}
}

func TestRepair(t *testing.T) {
	intent := func(id string) string { return fmt.Sprintf(`{"type":"parley-intent","toolUseId":%q}`, id) }
	outcome := func(id, how, more string) string {
		return fmt.Sprintf(`{"type":"parley-outcome","toolUseId":%q,"outcome":%q%s}`, id, how, more)
	}
	f := put(t, rec("user", 1, 0, ""), call(2, 1, "a"), call(3, 2, "b"), call(4, 3, "c"), call(5, 4, "d"), call(6, 5, "e"), call(7, 6, "f"),
		intent("b"), intent("c"), intent("d"), intent("e"), outcome("c", "ok", ""), outcome("d", "failed", ""), outcome("e", "ok", `,"content":[{"type":"text","text":"<42>"}]`),
		result(8, 7, "f"))
	h := open(t, f)
	if got := strings.Join(h.Orphans(), " "); got != "a b c d e" {
		t.Fatalf("orphans %s", got)
	}
	added := Repair(h)
	want := []string{
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":` + string(quote(toldNone)) + `,"is_error":true}]}`,
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"b","content":` + string(quote(toldUnknown)) + `,"is_error":true}]}`,
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":` + string(quote(toldDone)) + `,"is_error":false}]}`,
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"d","content":` + string(quote(toldFailed)) + `,"is_error":true}]}`,
		`{"role":"user","content":[{"type":"tool_result","tool_use_id":"e","content":[{"type":"text","text":"<42>"}],"is_error":false}]}`,
	}
	if len(added) != len(want) {
		t.Fatalf("%d added", len(added))
	}
	parent := num(8)
	for i, e := range added {
		if string(e.Message) != want[i] || e.ParentUUID != parent {
			t.Errorf("%s below %s, want\n%s below %s", e.Message, e.ParentUUID, want[i], parent)
		}
		parent = e.UUID
	}
	if len(h.Entries) != 13 || len(h.Orphans()) != 0 || Repair(h) != nil {
		t.Errorf("%d entries", len(h.Entries))
	}
}

// TestRepairMiddle checks that calls that another writer left behind in the middle are answered
// there.
func TestRepairMiddle(t *testing.T) {
	h := open(t, put(t, rec("user", 1, 0, ""), call(2, 1, "a"), rec("user", 3, 2, ""), rec("assistant", 4, 3, "")))
	if added := Repair(h); len(added) != 0 || len(h.Entries) != 5 || h.Entries[2].Type != "user" || h.Entries[2].ParentUUID != num(2) {
		t.Errorf("%d added, %s", len(added), names(h.Entries))
	}
}

// TestHasty checks that a hasty entry is in the file at once, and that the disk is synced with
// the next entry, or at the end.
func TestHasty(t *testing.T) {
	store := &Files{Dir: t.TempDir()}
	log, err := Create(t.Context(), store, Meta{ID: testID, Cwd: "/x"})
	if err != nil {
		t.Fatal(err)
	}
	l := log.(*fileLog)
	for i, step := range []struct{ hasty, waits bool }{{false, true}, {true, false}, {true, false}, {false, true}, {true, false}} {
		name := fmt.Sprintf("note-%d", i)
		if err := log.Append(&Entry{Type: name, Hasty: step.hasty}); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(log.Path()); err != nil || !strings.Contains(string(text), name) || strings.Contains(string(text), "asty") {
			t.Errorf("%s: %s, %v", name, text, err)
		}
		if l.hasty == step.waits {
			t.Errorf("%s: the disk was waited for: %v, want %v", name, !l.hasty, step.waits)
		}
	}
	// An entry that is not hasty syncs the others of its append, too.
	if err := log.Append(&Entry{Type: "a", Hasty: true}, &Entry{Type: "b"}); err != nil || l.hasty {
		t.Error(l.hasty, err)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
}

// TestRepairSparesNewLines checks that a line which is being written while a log is opened is not removed as one
// that was never finished.
func TestRepairSparesNewLines(t *testing.T) {
	f := &Files{Dir: t.TempDir()}
	path := filepath.Join(f.Dir, "log.jsonl")
	one, two := rec("user", 1, 0, "")+"\n", rec("user", 2, 1, "")+"\n"
	if err := os.WriteFile(path, []byte(one+two[:9]), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	size := int64(len(one) + 9)
	s, end, err := scanLog(file, size)
	if err != nil || end != int64(len(one)) {
		t.Fatal(end, err)
	}
	if _, err := file.WriteString(two[9:]); err != nil { // the rest of the line
		t.Fatal(err)
	}
	if torn, err := repairEnd(s, file, path, size, end); torn || !errors.Is(err, errGrew) {
		t.Errorf("torn %v, %v", torn, err)
	}
	if err := load(file, path); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); string(text) != one+two || err != nil {
		t.Errorf("the log is now %q, %v", text, err)
	}
	if names, err := filepath.Glob(path + ".*"); len(names) != 0 || err != nil {
		t.Errorf("left behind: %v %v", names, err)
	}
}
