package edit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/edit"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

// An edit either changes nothing, or has the requested result; the replaced text equals
// the requested one, except for white space and quotes.
func FuzzEdit(f *testing.F) {
	for _, c := range cases {
		f.Add(c.before, c.old, c.new, c.all)
	}
	plain := func(s string) string {
		for q, p := range map[string]string{"‘": "'", "’": "'", "‚": "'", "‛": "'", "“": "\"", "”": "\"", "„": "\"", "‟": "\"", "\ufeff": ""} {
			s = strings.ReplaceAll(s, q, p)
		}
		return strings.Join(strings.Fields(s), "")
	}
	f.Fuzz(func(t *testing.T, before, old, new string, all bool) {
		if !utf8.ValidString(old) || !utf8.ValidString(new) {
			return // JSON has no such strings
		}
		dir := t.TempDir()
		env := &tool.Env{Roots: []string{dir}}
		path := filepath.Join(dir, "f")
		os.WriteFile(path, []byte(before), 0o666)
		to := edit.New(&edit.Options{Unread: true})
		r := tooltest.Do(t, env, to, "file_path", path, "old_string", old, "new_string", new, "replace_all", all)
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if r.IsError {
			if string(got) != before {
				t.Fatalf("refused, but the file is %q", got)
			}
			return
		}
		out := r.Structured.(*edit.Output)
		was, is := files.Decode([]byte(before)), files.Decode(got)
		if was.Encoding != is.Encoding || was.BOM && !is.BOM {
			t.Fatalf("encoding %v became %v", was, is)
		}
		if out.Inexact == "" {
			return
		}
		if all {
			return
		}
		// Remove what is equal at both ends; the rest of the old text must be part of
		// the text to replace.
		if !strings.Contains(plain(before), plain(old)) {
			t.Fatalf("%q is not in %q, but it was replaced (%s)", old, before, out.Inexact)
		}
		if want := strings.Replace(plain(before), plain(old), plain(new), 1); strings.Count(plain(before), plain(old)) == 1 && plain(string(got)) != want {
			t.Fatalf("%q with %q for %q is %q (%s)", before, new, old, got, out.Inexact)
		}
	})
}
