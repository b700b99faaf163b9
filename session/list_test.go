package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestInfo(t *testing.T) {
	prompt := func(n int, text string) string {
		return rec("user", n, n-1, fmt.Sprintf(`,"message":{"role":"user","content":%s}`, text))
	}
	long := strings.Repeat("x", 250)
	for _, c := range []struct {
		name        string
		lines       []string
		summary     string // empty: it is not shown
		firstPrompt string
	}{
		{"a prompt", []string{rec("user", 1, 0, "")}, "user 1", "user 1"},
		{"no prompt", []string{rec("assistant", 1, 0, "")}, "", ""},
		{"a sidechain", []string{side("user", 1, 0)}, "", ""},
		{"a title only", []string{`{"type":"custom-title","customTitle":"T"}`}, "T", ""},
		{"all titles", []string{rec("user", 1, 0, ""), `{"type":"custom-title","customTitle":"T"}`, `{"type":"ai-title","aiTitle":"A"}`, `{"type":"last-prompt","lastPrompt":"L"}`, `{"type":"summary","summary":"S"}`}, "T", "user 1"},
		{"a model's title", []string{rec("user", 1, 0, ""), `{"type":"ai-title","aiTitle":"A"}`, `{"type":"last-prompt","lastPrompt":"L"}`}, "A", "user 1"},
		{"the last prompt", []string{rec("user", 1, 0, ""), `{"type":"last-prompt","lastPrompt":"L"}`, `{"type":"summary","summary":"S"}`}, "L", "user 1"},
		{"a summary", []string{rec("user", 1, 0, ""), `{"type":"summary","summary":"S"}`}, "S", "user 1"},
		{"a title taken away", []string{rec("user", 1, 0, ""), `{"type":"custom-title","customTitle":"T"}`, `{"type":"custom-title","customTitle":""}`}, "user 1", "user 1"},
		{"a title in a message", []string{prompt(1, `"say \"customTitle\":\"no\""`)}, `say "customTitle":"no"`, `say "customTitle":"no"`},
		{"a title deep inside", []string{rec("user", 1, 0, `,"toolUseResult":{"customTitle":"no"}`)}, "user 1", "user 1"},
		{"a long prompt", []string{prompt(1, `"`+long+`"`)}, long[:200] + "…", long[:200] + "…"},
		{"pairs of units", []string{prompt(1, `"`+strings.Repeat("😀", 150)+`"`)}, strings.Repeat("😀", 100) + "…", strings.Repeat("😀", 100) + "…"},
		{"lines", []string{prompt(1, `" two\nlines "`)}, "two lines", "two lines"},
		{"what programs say", []string{prompt(1, `"<local-command-stdout>x</local-command-stdout>"`), prompt(2, `"[Request interrupted by user]"`), prompt(3, `"<ide_selection>x</ide_selection> y"`), prompt(4, `"real"`)}, "real", "real"},
		{"blocks", []string{prompt(1, `[{"type":"text","text":"<ide_opened_file>x</ide_opened_file>"},{"type":"text","text":"real"}]`)}, "real", "real"},
		{"a command", []string{prompt(1, `"<command-name>/foo</command-name> <command-args>x</command-args>"`)}, "/foo", "/foo"},
		{"a command, then a prompt", []string{prompt(1, `"<command-name>/foo</command-name>"`), prompt(2, `"real"`)}, "real", "real"},
		{"a shell command", []string{prompt(1, `"<bash-input>ls -l</bash-input>"`)}, "! ls -l", "! ls -l"},
		{"a result first", []string{result(1, 0, "t"), prompt(2, `"real"`)}, "real", "real"},
		{"meta and summary first", []string{rec("user", 1, 0, `,"isMeta":true`), rec("user", 2, 1, `,"isCompactSummary":true`), rec("user", 3, 2, "")}, "user 3", "user 3"},
		{"a picture first", []string{prompt(1, `[{"type":"image","source":{"data":"`+strings.Repeat("A", 100_000)+`"}},{"type":"text","text":"what is it?"}]`), rec("assistant", 2, 1, "")}, "what is it?", "what is it?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := put(t, c.lines...)
			info, err := Stat(t.Context(), f, testID, nil)
			if c.summary == "" {
				if !errors.Is(err, ErrNotFound) {
					t.Errorf("%+v, %v, want ErrNotFound", info, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if info.Summary != c.summary || info.FirstPrompt != c.firstPrompt {
				t.Errorf("%q and %q, want %q and %q", info.Summary, info.FirstPrompt, c.summary, c.firstPrompt)
			}
		})
	}
}

func TestInfoFields(t *testing.T) {
	began := time.Now().Add(-time.Minute) // clocks of file systems are coarse
	f := put(t, `{"type":"queue-operation","timestamp":"2025-05-05T00:00:00.000Z"}`, rec("user", 1, 0, `,"entrypoint":"sdk-ts"`),
		`{ "type":"tag", "tag":"old" }`, strings.Replace(rec("assistant", 2, 1, ""), `"main"`, `"dev"`, 1), `{"type":"tag","tag":"new"}`, `{"type":"mode","tag":"no"}`)
	info, err := Stat(t.Context(), f, testID, &In{})
	if err != nil {
		t.Fatal(err)
	}
	if info.ID != testID || info.GitBranch != "dev" || info.Cwd != "/x" || info.Tag != "new" || !info.Programmatic || info.Size == 0 ||
		!info.Created.Equal(time.Date(2025, 5, 5, 0, 0, 0, 0, time.UTC)) || info.Modified.Before(began) || info.Path == "" {
		t.Errorf("%+v", info)
	}
}

// TestInfoEnds checks that a long log is read at its ends.
func TestInfoEnds(t *testing.T) {
	filler := rec("assistant", 2, 1, `,"x":"`+strings.Repeat("y", 1<<10)+`"`)
	lines := []string{rec("user", 1, 0, ""), `{"type":"custom-title","customTitle":"early"}`}
	for range 200 {
		lines = append(lines, filler)
	}
	f := put(t, append(lines, `{"type":"last-prompt","lastPrompt":"late"}`)...)
	info, err := Stat(t.Context(), f, testID, nil)
	if err != nil || info.CustomTitle != "early" || info.FirstPrompt != "user 1" {
		t.Errorf("%+v, %v", info, err)
	}
	f = put(t, append(lines, `{"type":"custom-title","customTitle":"late"}`)...)
	if info, err = Stat(t.Context(), f, testID, nil); err != nil || info.CustomTitle != "late" {
		t.Errorf("%+v, %v", info, err)
	}
}

func TestList(t *testing.T) {
	f := &Files{Dir: t.TempDir(), Durability: Write}
	if infos, err := List(t.Context(), f, nil); err != nil || len(infos) != 0 {
		t.Errorf("of nothing: %v, %v", infos, err)
	}
	base := time.Now().Add(-time.Hour)
	for i := range 100 {
		text := rec("user", 1, 0, "")
		if i%10 == 3 {
			text = rec("assistant", 1, 0, "") // none to show
		}
		if i%10 == 4 {
			text = rec("user", 1, 0, `,"entrypoint":"sdk-py"`)
		}
		name := putIn(t, f, num(i), text+"\n")
		os.Chtimes(name, time.Time{}, base.Add(time.Duration(i)*time.Second))
	}
	putIn(t, f, "no-uuid", rec("user", 1, 0, "")+"\n")
	putIn(t, f, num(500), "")
	// An older copy elsewhere does not count.
	other := filepath.Join(f.Dir, "projects", "-other")
	os.MkdirAll(other, 0o700)
	os.WriteFile(filepath.Join(other, num(99)+".jsonl"), []byte(rec("user", 7, 0, "")+"\n"), 0o600)
	os.Chtimes(filepath.Join(other, num(99)+".jsonl"), time.Time{}, base)

	all, err := List(t.Context(), f, nil)
	if err != nil || len(all) != 90 || all[0].ID != num(99) || all[0].Summary != "user 1" || all[89].ID != num(0) {
		t.Fatalf("%d, %v", len(all), err)
	}
	for _, limit := range []int{13, 1000} {
		var paged []Info
		for {
			page, err := List(t.Context(), f, &ListOptions{Offset: len(paged), Limit: limit})
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			paged = append(paged, page...)
		}
		if fmt.Sprint(paged) != fmt.Sprint(all) {
			t.Errorf("pages of %d are not the list", limit)
		}
	}
	if some, err := List(t.Context(), f, &ListOptions{NoProgrammatic: true}); err != nil || len(some) != 80 {
		t.Errorf("%d, %v, want 80", len(some), err)
	}
	if some, err := List(t.Context(), f, &ListOptions{Dir: "/other"}); err != nil || len(some) != 1 || some[0].Summary != "user 7" {
		t.Errorf("%v, %v", some, err)
	}
	if _, err := Stat(t.Context(), f, num(0), &In{Dir: "/other"}); !errors.Is(err, ErrNotFound) {
		t.Errorf("Info of a session of another directory: %v", err)
	}
}

// TestWorktrees checks that a repository and its worktrees are one place.
func TestWorktrees(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	main, tree, sub := filepath.Join(base, "main"), filepath.Join(base, "tree"), filepath.Join(base, "main", "sub")
	admin := filepath.Join(main, ".git", "worktrees", "tree")
	for _, dir := range []string{admin, tree, sub} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		filepath.Join(tree, ".git"):       "gitdir: " + admin + "\n",
		filepath.Join(admin, "commondir"): "../..\n",
		filepath.Join(admin, "gitdir"):    filepath.Join(tree, ".git") + "\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := &Files{Dir: t.TempDir(), Durability: Write}
	for i, cwd := range []string{main, tree, sub, base} {
		log, err := Create(t.Context(), f, Meta{ID: num(i + 1), Cwd: cwd})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(log.Append(&Entry{Type: "user", UUID: num(1), Message: json.RawMessage(`{"content":"x"}`)}), log.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string]int{main: 2, tree: 2, sub: 3, base: 1} {
		if infos, err := List(t.Context(), f, &ListOptions{Dir: dir}); err != nil || len(infos) != want {
			t.Errorf("in %s: %v, %v, want %d", dir, infos, err, want)
		}
		if infos, err := List(t.Context(), f, &ListOptions{Dir: dir, NoWorktrees: true}); err != nil || len(infos) != 1 {
			t.Errorf("in %s alone: %v, %v", dir, infos, err)
		}
	}
}

func TestMessagesPages(t *testing.T) {
	f := put(t, rec("user", 1, 0, ""), rec("system", 2, 1, `,"subtype":"informational","content":"x"`), rec("assistant", 3, 2, ""), rec("user", 4, 3, ""))
	for _, c := range []struct {
		opts MessagesOptions
		want string
	}{
		{MessagesOptions{}, "1 3 4"},
		{MessagesOptions{System: true}, "1 2 3 4"},
		{MessagesOptions{Offset: 1}, "3 4"},
		{MessagesOptions{Offset: 1, Limit: 1}, "3"},
		{MessagesOptions{Offset: 9}, ""},
		{MessagesOptions{Offset: -1, Limit: -1}, "1 3 4"},
	} {
		all, err := Messages(t.Context(), f, testID, &c.opts)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range all {
			got = append(got, m.UUID[35:])
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %v, want %s", c.opts, got, c.want)
		}
	}
	if _, err := Messages(t.Context(), f, num(9), nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no session: %v", err)
	}
}

func TestSubagents(t *testing.T) {
	f := put(t, rec("user", 1, 0, ""))
	dir := filepath.Join(f.Dir, "projects", "-x", testID, "subagents")
	os.MkdirAll(filepath.Join(dir, "deep"), 0o700)
	lines := side("user", 1, 0) + "\n" + side("assistant", 2, 1) + "\n"
	os.WriteFile(filepath.Join(dir, "agent-b.jsonl"), []byte(lines), 0o600)
	os.WriteFile(filepath.Join(dir, "deep", "agent-a.jsonl"), []byte(lines), 0o600)
	os.WriteFile(filepath.Join(dir, "deep", "agent-a.meta.json"), []byte(`{"toolUseId":"tu","parentAgentId":"b"}`), 0o600)
	os.WriteFile(filepath.Join(dir, "other.jsonl"), []byte(lines), 0o600)
	ids, err := Subagents(t.Context(), f, testID, nil)
	if err != nil || strings.Join(ids, " ") != "a b" {
		t.Errorf("%v, %v", ids, err)
	}
	all, err := SubagentMessages(t.Context(), f, testID, "a", nil)
	if err != nil || len(all) != 2 || all[1].ParentToolUseID != "tu" || all[1].ParentAgentID != "b" || all[1].SessionID != testID {
		t.Errorf("%+v, %v", all, err)
	}
	for _, id := range []string{"c", "", "../x", "other"} {
		if _, err := SubagentMessages(t.Context(), f, testID, id, nil); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestRenameAndTag(t *testing.T) {
	f := put(t, rec("user", 1, 0, ""), `{"type":"user","torn`)
	name := filepath.Join(f.Dir, "projects", "-x", testID+".jsonl")
	text, _ := os.ReadFile(name)
	os.WriteFile(name, text[:len(text)-1], 0o600) // the last line is incomplete
	ctx := t.Context()
	for _, err := range []error{Rename(ctx, f, testID, "  ", nil), Rename(ctx, f, num(9), "x", nil), Rename(ctx, f, "nope", "x", nil), Tag(ctx, f, testID, "\u200b ", nil)} {
		if err == nil {
			t.Error("no error")
		}
	}
	log, _, err := Open(ctx, f, testID, Meta{Cwd: "/x"})
	if err != nil {
		t.Fatal(err)
	}
	// Also while it is open, and its writer continues.
	if err := errors.Join(Rename(ctx, f, testID, " A \"title\" ", nil), log.Append(&Entry{Type: "mode"}), Tag(ctx, f, testID, " a\u200bb ", nil), log.Close()); err != nil {
		t.Fatal(err)
	}
	info, err := Stat(ctx, f, testID, nil)
	if err != nil || info.CustomTitle != `A "title"` || info.Tag != "ab" {
		t.Errorf("%+v, %v", info, err)
	}
	if err := errors.Join(Rename(ctx, f, testID, "B", &In{Dir: "/x"}), Tag(ctx, f, testID, "", nil)); err != nil {
		t.Fatal(err)
	}
	info, err = Stat(ctx, f, testID, nil)
	if err != nil || info.CustomTitle != "B" || info.Tag != "" {
		t.Errorf("%+v, %v", info, err)
	}
	if h := open(t, f); h.Corrupt != 0 || h.Torn || names(h.Entries) != "u1" {
		t.Errorf("%+v", h)
	}
}

func TestDelete(t *testing.T) {
	f := put(t, rec("user", 1, 0, ""))
	dir := filepath.Join(f.Dir, "projects", "-x")
	os.MkdirAll(filepath.Join(dir, testID, "subagents"), 0o700)
	os.MkdirAll(filepath.Join(f.Dir, "projects", "-y"), 0o700)
	os.WriteFile(filepath.Join(f.Dir, "projects", "-y", testID+".jsonl"), []byte(rec("user", 1, 0, "")), 0o600)
	putIn(t, f, num(2), rec("user", 1, 0, "")+"\n")
	log, _, err := Open(t.Context(), f, num(2), Meta{})
	if err != nil {
		t.Fatal(err)
	}
	if err := Delete(t.Context(), f, num(2), nil); !errors.Is(err, ErrLocked) {
		t.Errorf("of an open session: %v, want ErrLocked", err)
	}
	log.Close()
	if err := Delete(t.Context(), f, testID, nil); err != nil {
		t.Fatal(err)
	}
	if err := Delete(t.Context(), f, testID, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("again: %v, want ErrNotFound", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestFork(t *testing.T) {
	f := put(t, rec("user", 1, 0, `,"slug":"s","teamName2":"kept","parleyMore":1`), rec("progress", 2, 1, ""), rec("assistant", 3, 2, `,"requestId":"r"`), side("user", 7, 3),
		`{"type":"custom-title","customTitle":"Orig"}`, `{"type":"tag","tag":"x"}`, `{"type":"content-replacement","replacements":[{"a":1}]}`,
		rec("user", 4, 3, `,"sourceToolAssistantUUID":"x"`), rec("system", 5, 0, fmt.Sprintf(`,"subtype":"compact_boundary","logicalParentUuid":%q,"compactMetadata":{"preservedMessages":{"anchorUuid":%q,"uuids":[%q]}}`, num(4), num(6), num(3))),
		rec("user", 6, 5, `,"isCompactSummary":true`))
	ctx := t.Context()
	for _, c := range []struct {
		opts        *ForkOptions
		from, title string
		whole       string // of the file
	}{
		{nil, "s5 u6 a3", "Orig (fork)", "1 3 4 5 6"},
		{&ForkOptions{UpTo: num(3)}, "u1 a3", "Orig (fork)", "1 3"},
		{&ForkOptions{Title: " Mine "}, "s5 u6 a3", "Mine", "1 3 4 5 6"},
	} {
		id, err := Fork(ctx, f, testID, c.opts)
		if err != nil {
			t.Fatal(err)
		}
		log, h, err := Open(ctx, f, id, Meta{})
		if err != nil {
			t.Fatal(err)
		}
		log.Close()
		var from []string
		for _, e := range h.Entries {
			var was struct{ SessionID, MessageUUID string }
			json.Unmarshal(e.Fields["forkedFrom"], &was)
			if was.SessionID != testID || e.UUID == was.MessageUUID || !ValidID(e.UUID) {
				t.Errorf("forked from %+v to %s", was, e.UUID)
			}
			for _, gone := range []string{"slug", "sourceToolAssistantUUID"} {
				if e.Fields[gone] != nil {
					t.Errorf("%s is still there", gone)
				}
			}
			from = append(from, e.Type[:1]+was.MessageUUID[35:])
		}
		if got := strings.Join(from, " "); got != c.from {
			t.Errorf("%+v: %s, want %s", c.opts, got, c.from)
		}
		info, err := Stat(ctx, f, id, nil)
		if err != nil || info.CustomTitle != c.title || info.Tag != "" {
			t.Errorf("%+v, %v", info, err)
		}
		if h.Corrupt != 0 || h.Torn || h.Latest["content-replacement"] == nil || h.Meta.ID != id {
			t.Errorf("%+v", h)
		}
		text, _ := os.ReadFile(info.Path)
		var whole []string
		for line := range strings.Lines(string(text)) {
			if _, was, ok := strings.Cut(line, `"messageUuid":"`); ok {
				whole = append(whole, was[35:36])
			}
			if strings.Contains(line, moreKey) {
				t.Errorf("%s", line)
			}
		}
		if got := strings.Join(whole, " "); got != c.whole {
			t.Errorf("the file holds %s, want %s", got, c.whole)
		}
	}
	for _, c := range []struct {
		id   string
		opts *ForkOptions
	}{{num(9), nil}, {"nope", nil}, {testID, &ForkOptions{UpTo: num(77)}}} {
		if _, err := Fork(ctx, f, c.id, c.opts); !errors.Is(err, ErrNotFound) {
			t.Errorf("Fork(%s, %+v): %v", c.id, c.opts, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(f.Dir, "projects", "-x", "*.tmp")); left != nil {
		t.Errorf("left: %v", left)
	}
}

// TestNames checks that names are the same in every Unicode composition.
func TestNames(t *testing.T) {
	if a, b := ProjectKey("/src/caf\u00e9"), ProjectKey("/src/cafe\u0301"); a != b || a != "-src-caf-" {
		t.Errorf("%q, %q", a, b)
	}
	m := &Memory{}
	id := NewID()
	record := json.RawMessage(`{"type":"user","uuid":"` + NewID() + `","message":{"role":"user","content":"x"}}`)
	if err := m.Append(t.Context(), Key{Project: "-a", Session: id}, []json.RawMessage{record}); err != nil {
		t.Fatal(err)
	}
	if err := Tag(t.Context(), m, id, " \ufb01\u200b\u0378x\uff11 ", nil); err != nil {
		t.Fatal(err)
	}
	if info, err := Stat(t.Context(), m, id, nil); err != nil || info.Tag != "fix1" {
		t.Errorf("%+v, %v", info, err)
	}
}
