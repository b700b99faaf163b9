package session

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// oldFiles writes a session of the older layout: files by their name.
func oldFiles(t *testing.T, f *Files, id string, files map[string]string) {
	t.Helper()
	dir := filepath.Join(f.Dir, "sessions", id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

var oldLines = strings.Join([]string{
	`{"type":"system","subtype":"init","session_id":"x","cwd":"/src/init","uuid":"` + num(9) + `"}`,
	`{"type":"user","message":{"role":"user","content":"hi"},"session_id":"x","parent_tool_use_id":null,"uuid":"` + num(1) + `"}`,
	`{"type":"stream_event","event":{}}`,
	`{"type":"assistant","message":{"id":"m","role":"assistant","content":[{"type":"tool_use","id":"t","name":"Bash","input":{}}]},"session_id":"x","timestamp":"2026-01-02T03:04:05.678Z"}`,
	`{"type":"assistant","message":{"role":"assistant","content":[]},"parent_tool_use_id":"t"}`,
	`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"x"}]},"tool_use_result":{"stdout":"x"}}`,
	`not a line`,
	`{"type":"assistant","content":[{"type":"text","text":"done"}]}`,
	`{"type":"result","subtype":"success","total_cost_usd":0.25}`,
	`{"type":"assistant","mess`,
}, "\n")

// TestOlderLayout opens a session of the older layout, with and without the files that
// describe it.
func TestOlderLayout(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  Info
		cost  string
	}{
		{"messages alone", nil, Info{Summary: "hi", Cwd: "/src/init"}, "0.25"},
		{"session.json", map[string]string{
			"session.json": `{"id":"x","title":"An old one","summary":"what it was","cwd":"/src/old","git_branch":"main","created_at":"2025-05-06T07:08:09Z","tag":"kept","model":"m"}`,
		}, Info{Summary: "An old one", CustomTitle: "An old one", Cwd: "/src/old", GitBranch: "main", Tag: "kept", Created: time.Date(2025, 5, 6, 7, 8, 9, 0, time.UTC)}, "0.25"},
		{"state.json", map[string]string{
			"state.json": `{"total_cost_usd":1.5,"modelUsage":{"m":{"inputTokens":3,"costUSD":1.5}},"num_turns":1}`,
		}, Info{Summary: "hi", Cwd: "/src/init"}, "1.5"},
		{"both", map[string]string{"session.json": `{"name":"Named"}`, "state.json": `{"totalCostUSD":2,"cwd":"/src/state"}`},
			Info{Summary: "Named", CustomTitle: "Named", Cwd: "/src/state"}, "2"},
		{"neither is JSON", map[string]string{"session.json": `{"title":"An`, "state.json": "\x00"}, Info{Summary: "hi", Cwd: "/src/init"}, "0.25"},
		{"members of other kinds", map[string]string{"session.json": `{"title":[1],"cwd":7,"created_at":"once"}`, "state.json": `{"total_cost_usd":"much"}`}, Info{Summary: "hi", Cwd: "/src/init"}, "0.25"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &Files{Dir: t.TempDir(), Durability: Write}
			oldFiles(t, f, testID, map[string]string{"messages.jsonl": oldLines})
			oldFiles(t, f, testID, c.files)
			path := filepath.Join(f.Dir, "sessions", testID, "messages.jsonl")

			// It is visible before anybody opens it, and reading writes nothing.
			check := func(when, path string) {
				t.Helper()
				all, err := List(t.Context(), f, nil)
				if err != nil || len(all) != 1 {
					t.Fatalf("%s: %d sessions, %v", when, len(all), err)
				}
				one, err := Stat(t.Context(), f, testID, nil)
				if err != nil {
					t.Fatal(err)
				}
				for _, got := range []Info{all[0], *one} {
					if got.ID != testID || got.Summary != c.want.Summary || got.CustomTitle != c.want.CustomTitle || got.Cwd != c.want.Cwd || got.GitBranch != c.want.GitBranch ||
						got.Tag != c.want.Tag || got.Path != path || got.Project != ProjectKey(c.want.Cwd) || got.FirstPrompt != "hi" || got.Size == 0 {
						t.Errorf("%s: %+v", when, got)
					}
					if !c.want.Created.IsZero() && !got.Created.Equal(c.want.Created) {
						t.Errorf("%s: created %v", when, got.Created)
					}
				}
				if in, err := List(t.Context(), f, &ListOptions{Dir: c.want.Cwd}); err != nil || len(in) != 1 {
					t.Errorf("%s: in its directory: %d, %v", when, len(in), err)
				}
				if in, err := List(t.Context(), f, &ListOptions{Dir: "/src/else"}); err != nil || len(in) != 0 {
					t.Errorf("%s: elsewhere: %d, %v", when, len(in), err)
				}
				if id, err := Latest(t.Context(), f, c.want.Cwd); err != nil || id != testID {
					t.Errorf("%s: latest %s, %v", when, id, err)
				}
			}
			check("before", path)
			said, err := Messages(t.Context(), f, testID, nil)
			if err != nil || len(said) != 4 || said[0].UUID != num(1) || !strings.Contains(string(said[3].Message), "done") {
				t.Fatalf("%d messages, %v", len(said), err)
			}
			if _, err := Subagents(t.Context(), f, testID, nil); err != nil {
				t.Error(err)
			}
			if files, _ := filepath.Glob(filepath.Join(f.Dir, "projects", "*", "*")); len(files) != 0 {
				t.Errorf("reading wrote %v", files)
			}

			h := open(t, f)
			if len(h.Entries) != 4 || h.Entries[0].UUID != num(1) || h.Entries[1].ParentUUID != num(1) || !h.Torn || len(h.Orphans()) != 0 {
				t.Fatalf("%d entries, %+v", len(h.Entries), h)
			}
			for i, e := range h.Entries {
				if e.UUID != said[i].UUID {
					t.Errorf("the uuid of message %d was %s, and is %s", i, said[i].UUID, e.UUID)
				}
			}
			if string(h.Entries[2].Fields["toolUseResult"]) != `{"stdout":"x"}` {
				t.Errorf("%s", h.Entries[2].Fields)
			}
			if got := h.Latest["cost-state"]; got == nil || string(got.Fields["totalCostUSD"]) != c.cost {
				t.Errorf("cost %+v, want %s", got, c.cost)
			}
			check("after", filepath.Join(f.Dir, "projects", ProjectKey(c.want.Cwd), testID+".jsonl"))
			again := open(t, f) // in the place that it was moved to
			if len(again.Entries) != 4 || again.Torn || again.Entries[2].UUID != h.Entries[2].UUID {
				t.Errorf("%+v", again)
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != oldLines {
				t.Errorf("the old one is another, %v", err)
			}
			if err := Delete(t.Context(), f, testID, nil); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Open(t.Context(), f, testID, Meta{}); !errors.Is(err, ErrNotFound) {
				t.Errorf("after Delete: %v", err)
			}
		})
	}
}

// TestOlderLayoutFunctions calls each function with a session of the older layout that
// nobody has opened yet.
func TestOlderLayoutFunctions(t *testing.T) {
	ctx := t.Context()
	for name, do := range map[string]func(t *testing.T, f *Files){
		"rename": func(t *testing.T, f *Files) {
			if err := Rename(ctx, f, testID, "New title", nil); err != nil {
				t.Fatal(err)
			}
			if id, err := Find(ctx, f, "new title"); err != nil || id != testID {
				t.Errorf("%s, %v", id, err)
			}
			if h := open(t, f); len(h.Entries) != 4 {
				t.Errorf("%d entries", len(h.Entries))
			}
		},
		"tag": func(t *testing.T, f *Files) {
			if err := Tag(ctx, f, testID, "x", &In{Dir: "/src/init"}); err != nil {
				t.Fatal(err)
			}
			if i, err := Stat(ctx, f, testID, nil); err != nil || i.Tag != "x" {
				t.Errorf("%+v, %v", i, err)
			}
		},
		"fork": func(t *testing.T, f *Files) {
			id, err := Fork(ctx, f, testID, nil)
			if err != nil {
				t.Fatal(err)
			}
			if said, err := Messages(ctx, f, id, nil); err != nil || len(said) != 4 {
				t.Errorf("%d messages, %v", len(said), err)
			}
		},
		"export and import": func(t *testing.T, f *Files) {
			var file bytes.Buffer
			if err := Export(ctx, f, testID, &file, nil); err != nil {
				t.Fatal(err)
			}
			m := &Memory{}
			if id, err := Import(ctx, m, bytes.NewReader(file.Bytes()), nil); err != nil || id != testID {
				t.Fatalf("%s, %v", id, err)
			}
			if said, err := Messages(ctx, m, testID, nil); err != nil || len(said) != 4 {
				t.Errorf("%d messages, %v", len(said), err)
			}
			if _, err := Import(ctx, f, bytes.NewReader(file.Bytes()), nil); !errors.Is(err, ErrExists) {
				t.Errorf("the id is taken: %v", err)
			}
		},
		"create": func(t *testing.T, f *Files) {
			if _, err := Create(ctx, f, Meta{ID: testID, Cwd: "/src/b"}); !errors.Is(err, ErrExists) {
				t.Errorf("the id is taken: %v", err)
			}
			if h := open(t, f); len(h.Entries) != 4 {
				t.Errorf("%d entries", len(h.Entries))
			}
		},
		"delete": func(t *testing.T, f *Files) {
			if err := Delete(ctx, f, testID, &In{Dir: "/src/else"}); !errors.Is(err, ErrNotFound) {
				t.Errorf("from elsewhere: %v", err)
			}
			if err := Delete(ctx, f, testID, &In{Dir: "/src/init"}); err != nil {
				t.Fatal(err)
			}
			if all, err := List(ctx, f, nil); err != nil || len(all) != 0 {
				t.Errorf("%d, %v", len(all), err)
			}
		},
		"compress": func(t *testing.T, f *Files) {
			if did, err := f.Pack(ctx, time.Now().Add(time.Hour)); err != nil || did.Sessions != 0 {
				t.Errorf("%+v, %v", did, err)
			}
		},
		"the other layout has it too": func(t *testing.T, f *Files) {
			putIn(t, f, testID, rec("user", 1, 0, "")+"\n")
			if h := open(t, f); len(h.Entries) != 1 {
				t.Errorf("%d entries", len(h.Entries))
			}
			if all, err := f.List(ctx, Key{}); err != nil || len(all) != 1 {
				t.Errorf("%v, %v", all, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Files{Dir: t.TempDir(), Durability: Write}
			oldFiles(t, f, testID, map[string]string{"messages.jsonl": oldLines})
			do(t, f)
		})
	}
}

// TestOlderLayoutNowhere checks a session without the directory in which it began: it
// moves to the directory from which it is opened.
func TestOlderLayoutNowhere(t *testing.T) {
	f := &Files{Dir: t.TempDir(), Durability: Write}
	oldFiles(t, f, testID, map[string]string{"messages.jsonl": `{"type":"user","message":{"role":"user","content":"hi"}}` + "\n"})
	os.MkdirAll(filepath.Join(f.Dir, "sessions", num(2)), 0o700)                                     // without content
	os.WriteFile(filepath.Join(f.Dir, "sessions", "1234.json"), []byte(`{"pid":1234}`), 0o600)       // of the official CLI
	oldFiles(t, f, num(3), map[string]string{"messages.jsonl": `{"type":"system"}` + "\n", "x": ""}) // without a message
	all, err := List(t.Context(), f, nil)
	if err != nil || len(all) != 1 || all[0].Cwd != "" {
		t.Fatalf("%+v, %v", all, err)
	}
	if _, err := Latest(t.Context(), f, "/src/b"); !errors.Is(err, ErrNotFound) {
		t.Errorf("before: %v", err)
	}
	log, _, err := Open(t.Context(), f, testID, Meta{Cwd: "/src/b"})
	if err != nil {
		t.Fatal(err)
	}
	log.Close()
	if id, err := Latest(t.Context(), f, "/src/b"); err != nil || id != testID {
		t.Errorf("after: %s, %v", id, err)
	}
}
