package session

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPack compresses a session, and then calls each function with it.
func TestPack(t *testing.T) {
	ctx := t.Context()
	lines := strings.Join([]string{rec("user", 1, 0, ""), rec("assistant", 2, 1, ""), `{"type":"custom-title","customTitle":"Kept","sessionId":"` + testID + `"}`}, "\n") + "\n"
	old := time.Now().Add(-40 * 24 * time.Hour).Truncate(time.Millisecond)
	for name, do := range map[string]func(t *testing.T, f *Files, path string){
		"list": func(t *testing.T, f *Files, path string) {
			all, err := List(ctx, f, nil)
			if err != nil || len(all) != 1 || all[0].Path != path+".gz" || all[0].Summary != "Kept" || !all[0].Modified.Equal(old) {
				t.Errorf("%+v, %v", all, err)
			}
			one, err := Stat(ctx, f, testID, nil)
			if err != nil || one.CustomTitle != "Kept" || one.FirstPrompt != "user 1" {
				t.Errorf("%+v, %v", one, err)
			}
			if id, err := Find(ctx, f, "kept"); err != nil || id != testID {
				t.Errorf("%s, %v", id, err)
			}
			if _, err := os.Stat(path); err == nil {
				t.Error("a list made it a plain file")
			}
		},
		"messages": func(t *testing.T, f *Files, path string) {
			if said, err := Messages(ctx, f, testID, nil); err != nil || len(said) != 2 {
				t.Errorf("%d messages, %v", len(said), err)
			}
			if text, err := os.ReadFile(path); err != nil || string(text) != lines {
				t.Errorf("it became %q, %v", text, err)
			}
		},
		"open": func(t *testing.T, f *Files, path string) {
			if h := open(t, f); names(h.Entries) != "u1 a2" {
				t.Errorf("%s", names(h.Entries))
			}
			if _, err := os.Stat(path + ".gz"); err == nil {
				t.Error("both are there")
			}
		},
		"export and import": func(t *testing.T, f *Files, path string) {
			var file bytes.Buffer
			m := &Memory{}
			if err := Export(ctx, f, testID, &file, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := Import(ctx, m, bytes.NewReader(file.Bytes()), nil); err != nil {
				t.Fatal(err)
			}
			if said, err := Messages(ctx, m, testID, nil); err != nil || len(said) != 2 {
				t.Errorf("%d messages, %v", len(said), err)
			}
		},
		"rename": func(t *testing.T, f *Files, path string) {
			if err := Rename(ctx, f, testID, "Other", nil); err != nil {
				t.Fatal(err)
			}
			if id, err := Find(ctx, f, "other"); err != nil || id != testID {
				t.Errorf("%s, %v", id, err)
			}
		},
		"fork": func(t *testing.T, f *Files, path string) {
			if id, err := Fork(ctx, f, testID, nil); err != nil || id == testID {
				t.Errorf("%s, %v", id, err)
			}
		},
		"id in use": func(t *testing.T, f *Files, path string) {
			if _, err := Create(ctx, f, Meta{ID: testID, Cwd: "/x"}); !errors.Is(err, ErrExists) {
				t.Errorf("in its project: %v", err)
			}
			if _, err := Create(ctx, f, Meta{ID: testID, Cwd: "/y"}); !errors.Is(err, ErrExists) {
				t.Errorf("in another: %v", err)
			}
			if h := open(t, f); names(h.Entries) != "u1 a2" {
				t.Errorf("%s", names(h.Entries))
			}
		},
		"delete": func(t *testing.T, f *Files, path string) {
			if err := Delete(ctx, f, testID, nil); err != nil {
				t.Fatal(err)
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 0 {
				t.Errorf("left over: %v", left)
			}
		},
		"the process died between the two": func(t *testing.T, f *Files, path string) {
			if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
				t.Fatal(err)
			}
			if all, err := List(ctx, f, nil); err != nil || len(all) != 1 {
				t.Errorf("%+v, %v", all, err)
			}
			if h := open(t, f); names(h.Entries) != "u1 a2" {
				t.Errorf("%s", names(h.Entries))
			}
			if err := Delete(ctx, f, testID, nil); err != nil {
				t.Fatal(err)
			}
			if all, err := List(ctx, f, nil); err != nil || len(all) != 0 {
				t.Errorf("after Delete: %+v, %v", all, err)
			}
		},
		"it is damaged": func(t *testing.T, f *Files, path string) {
			text, _ := os.ReadFile(path + ".gz")
			text[len(text)-10] ^= 0xff
			os.WriteFile(path+".gz", text, 0o600)
			if _, _, err := Open(ctx, f, testID, Meta{}); err == nil || !strings.Contains(err.Error(), testID) {
				t.Errorf("error %v", err)
			}
			if _, err := os.Stat(path); err == nil {
				t.Error("a part of it became the session")
			}
			if _, err := os.Stat(path + ".gz"); err != nil {
				t.Error("it is gone")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Files{Dir: t.TempDir(), Durability: Write}
			path := putIn(t, f, testID, lines)
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
			did, err := f.Pack(ctx, time.Now().AddDate(0, 0, -30))
			if err != nil || did.Sessions != 1 || did.Before != int64(len(lines)) || did.After <= 0 {
				t.Fatalf("%+v, %v", did, err)
			}
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("the plain file is there: %v", err)
			}
			do(t, f, path)
		})
	}
}

// TestPackLeavesOut checks that open, new and already compressed sessions stay as they
// are, and that a context ends it.
func TestPackLeavesOut(t *testing.T) {
	f := put(t, rec("user", 1, 0, ""))
	if did, err := f.Pack(t.Context(), time.Now().AddDate(0, 0, -1)); err != nil || did.Sessions != 0 {
		t.Errorf("a new one: %+v, %v", did, err)
	}
	log, _, err := Open(t.Context(), f, testID, Meta{})
	if err != nil {
		t.Fatal(err)
	}
	if did, err := f.Pack(t.Context(), time.Now().Add(time.Hour)); err != nil || did.Sessions != 0 {
		t.Errorf("an open one: %+v, %v", did, err)
	}
	log.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Pack(ctx, time.Now().Add(time.Hour)); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	for _, want := range []int{1, 0} {
		if did, err := f.Pack(t.Context(), time.Now().Add(time.Hour)); err != nil || did.Sessions != want {
			t.Errorf("%+v, %v, want %d", did, err, want)
		}
	}
}
