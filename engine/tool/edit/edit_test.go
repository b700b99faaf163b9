package edit_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/edit"
	"github.com/parley-go/parley/engine/tool/read"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each case is a file before and after, or the text of the error.
var cases = []struct {
	name, before, old, new, after string
	all                           bool
	inexact                       string
	refused                       string
}{
	{name: "exact", before: "a\nb\nc\n", old: "b", new: "B", after: "a\nB\nc\n"},
	{name: "no final newline", before: "a\nb", old: "b", new: "B", after: "a\nB"},
	{name: "all", before: "x x x\n", old: "x", new: "yy", all: true, after: "yy yy yy\n"},
	{name: "twice", before: "x\ny\nx\n", old: "x", new: "z", refused: "Found 2 matches of the string to replace, at lines 1, 3, but replace_all is false"},
	{name: "same", before: "x\n", old: "x", new: "x", refused: "exactly the same"},
	{name: "remove", before: "a\nb\nc\n", old: "b\n", new: "", after: "a\nc\n"},
	{name: "not there", before: "a\n", old: "nope", new: "x", refused: "<tool_use_error>String to replace not found in file.\nString: nope</tool_use_error>"},
	{name: "empty old", before: "a\n", old: "", new: "x", refused: "exists and is not empty"},
	{name: "empty file", before: "", old: "", new: "x\n", after: "x\n"},

	{name: "CRLF", before: "a\r\nb\r\nc\r\n", old: "a\nb", new: "A\nB\nB2", after: "A\r\nB\r\nB2\r\nc\r\n"},
	{name: "CRLF in the strings", before: "a\r\nb\r\n", old: "a\r\nb", new: "A\r\nB", after: "A\r\nB\r\n"},
	{name: "CRLF given, LF there", before: "a\nb\n", old: "a\r\nb", new: "A\r\nB", after: "A\nB\n", inexact: "line endings"},
	{name: "mixed line ends", before: "a\r\nb\nc\r\n", old: "a\nb\nc", new: "a\nb\nX\nc", after: "a\r\nb\nX\r\nc\r\n", inexact: "line endings"},
	{name: "byte order mark", before: "\ufeffa\nb\n", old: "a", new: "A", after: "\ufeffA\nb\n"},
	{name: "byte order mark given", before: "\ufeffa\nb\n", old: "\ufeffa", new: "\ufeffA", after: "\ufeffA\nb\n", inexact: "quotes"},
	{name: "UTF-16", before: "\xff\xfea\x00\r\x00\n\x00b\x00", old: "a\nb", new: "é", after: "\xff\xfe\xe9\x00"},
	{name: "not UTF-8", before: "caf\xe9 a\n", old: "a\n", new: "b\n", after: "caf\xe9 b\n"},
	{name: "typographic quotes", before: "say “hello” to ‘them’ now\n", old: `say "hello" to 'them' now`, new: `say "hello" to 'them' later`, after: "say “hello” to ‘them’ later\n", inexact: "quotes"},
	{name: "quotes twice", before: "“a”\n“a”\n", old: `"a"`, new: "b", refused: "at lines 1, 2"},
	{name: "quotes all", before: "“a”\n\"a\" “a”\n", old: `"a"`, new: `"b"`, all: true, after: "“a”\n\"b\" “a”\n"},
	{name: "quotes all, none plain", before: "“a” “a”\n", old: `"a"`, new: `"b"`, all: true, after: "“b” “b”\n", inexact: "quotes"},

	{name: "tabs for spaces", before: "func f() {\n\tif x {\n\t\tg()\n\t}\n}\n",
		old: "    if x {\n        g()\n    }", new: "    if y {\n        g()\n        h()\n    }",
		after: "func f() {\n\tif y {\n\t\tg()\n\t\th()\n\t}\n}\n", inexact: "white space"},
	{name: "trailing space", before: "a  \nb\t\nc\n", old: "a\nb\n", new: "a\nB\n", after: "a  \nB\nc\n", inexact: "white space"},
	{name: "white space, last line without end", before: "x\n\ty", old: "x\n  y", new: "x\n  z", after: "x\n\tz", inexact: "white space"},
	{name: "white space, removed", before: "a\n\tb\nc\n", old: "  b\n", new: "", after: "a\nc\n", inexact: "white space"},
	{name: "white space, emptied", before: "a\n\tb\nc\n", old: "  b", new: "", after: "a\n\nc\n", inexact: "white space"},
	{name: "white space, line end added", before: "a\n\tb\nc\n", old: "  b", new: "  b\n", after: "a\n\tb\n\nc\n", inexact: "white space"},
	{name: "white space, twice", before: "\tb\n\t\tb\n", old: "  b", new: "c", refused: "from lines 1 and 2 differ from it only in white space"},
	{name: "white space, crooked", before: "\ta\n\t\tb\n", old: "  a\n  b", new: "  a\n  c", refused: "more than one way"},
	{name: "white space, CRLF", before: "\ta\r\n\tb\r\n", old: "  a\n  b", new: "  a\n  c", after: "\ta\r\n\tc\r\n", inexact: "white space"},
	{name: "part of a line", before: "let  x  =  1;\n", old: "x = 1", new: "x = 2", refused: "not found"},
	{name: "only white space", before: "a\n\n\nb\n", old: "  \n", new: "x", refused: "not found"},

	{name: "nearest", before: "func a() {\n\treturn 1\n}\n\nfunc b() {\n\treturn 2\n}\n", old: "func b() {\n\treturn 3\n}\n", new: "x", refused: "Nothing was changed. The most similar text starts at line 5:\n5\tfunc b() {\n6\t\treturn 2\n7\t}</tool_use_error>"},
	{name: "binary", before: "a\x00b", old: "a", new: "b", refused: "binary"},
}

func TestEdit(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			env := tooltest.Env(t)
			path := tooltest.Write(t, env, "f", c.before)
			os.Chmod(path, 0o751)
			tool := edit.New(nil)
			if c.refused == "" {
				if r := tooltest.Do(t, env, tool, "file_path", path, "old_string", c.old, "new_string", c.new); !strings.Contains(r.Content.Text, "File has not been read yet") {
					t.Fatalf("before a read: %q", r.Content.Text)
				}
			}
			tooltest.Do(t, env, read.New(), "file_path", "f")
			if c.name == "binary" {
				tool = edit.New(&edit.Options{Unread: true})
			}
			r := tooltest.Do(t, env, tool, "file_path", path, "old_string", c.old, "new_string", c.new, "replace_all", c.all)
			if c.refused != "" {
				if !r.IsError || !strings.Contains(r.Content.Text, c.refused) {
					t.Errorf("got %v %q, want %q", r.IsError, r.Content.Text, c.refused)
				}
				c.after = c.before
			} else if out, ok := r.Structured.(*edit.Output); !ok || r.IsError || out.Inexact != c.inexact {
				t.Errorf("got %+v %q", r.Structured, r.Content.Text)
			} else if (out.Inexact != "") != strings.Contains(r.Content.Text, "Note:") {
				t.Errorf("the model is not told how it was: %q", r.Content.Text)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != c.after {
				t.Errorf("the file is %q, want %q", got, c.after)
			}
			if info, _ := os.Stat(path); info.Mode().Perm() != 0o751 {
				t.Errorf("mode %v", info.Mode())
			}
		})
	}
}

// The structured results.
// TestNotebook checks that Edit creates notebooks, and leaves those that exist to NotebookEdit.
func TestNotebook(t *testing.T) {
	env := tooltest.Env(t)
	content := `{"cells":[],"metadata":{},"nbformat":4,"nbformat_minor":5}`
	if r := tooltest.Do(t, env, edit.New(nil), "file_path", "new.ipynb", "old_string", "", "new_string", content); r.IsError {
		t.Error(r.Content.Text)
	}
	if r := tooltest.Do(t, env, edit.New(nil), "file_path", "new.ipynb", "old_string", "5", "new_string", "4"); !r.IsError || !strings.Contains(r.Content.Text, "Use NotebookEdit") {
		t.Error(r.Content.Text)
	}
}

func TestShape(t *testing.T) {
	env := tooltest.Env(t)
	path := tooltest.Write(t, env, "a.txt", "replaced\n")
	tooltest.Do(t, env, read.New(), "file_path", path)
	r := tooltest.Do(t, env, edit.New(nil), "file_path", path, "old_string", "replaced", "new_string", "edited")
	if want := "The file " + path + " has been updated successfully. (file state is current in your context — no need to Read it back)"; r.Content.Text != want {
		t.Errorf("%q", r.Content.Text)
	}
	want := `{"filePath":"` + path + `","oldString":"replaced","newString":"edited","originalFile":"replaced\n","structuredPatch":[{"oldStart":1,"oldLines":1,"newStart":1,"newLines":1,"lines":["-replaced","+edited"]}],"userModified":false,"replaceAll":false}`
	if got := tooltest.JSON(t, r); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	// Any number of times, without reading again.
	if r := tooltest.Do(t, env, edit.New(nil), "file_path", path, "old_string", "edited", "new_string", "again"); r.IsError {
		t.Errorf("%q", r.Content.Text)
	}
	// A new file.
	if r := tooltest.Do(t, env, edit.New(nil), "file_path", "d/new.txt", "old_string", "", "new_string", "n\n"); r.IsError || !strings.HasPrefix(r.Content.Text, "File created successfully at: ") {
		t.Errorf("%q", r.Content.Text)
	}
	if r := tooltest.Do(t, env, edit.New(nil), "file_path", "a.txd", "old_string", "x", "new_string", "n\n"); !strings.Contains(r.Content.Text, "File does not exist.") || !strings.Contains(r.Content.Text, "Did you mean "+path) {
		t.Errorf("%q", r.Content.Text)
	}
	// A file that was not read, if that is allowed.
	other := tooltest.Write(t, env, "b.py", "print(\"x\")\n")
	r = tooltest.Do(t, env, edit.New(&edit.Options{Unread: true}), "file_path", other, "old_string", "print", "new_string", "PRINT")
	if !strings.HasSuffix(r.Content.Text, "has been updated successfully.") || !strings.Contains(tooltest.JSON(t, r), `"contentNotInModelContext":true`) {
		t.Errorf("%q %s", r.Content.Text, tooltest.JSON(t, r))
	}
}

// A file that changed since it was read is not touched.
func TestStale(t *testing.T) {
	env := tooltest.Env(t)
	path := tooltest.Write(t, env, "a.txt", "one two\n")
	info, _ := os.Stat(path)
	tooltest.Do(t, env, read.New(), "file_path", path)
	// Same size, same time, different content.
	os.WriteFile(path, []byte("one 2wo\n"), 0o666)
	os.Chtimes(path, info.ModTime(), info.ModTime())
	r := tooltest.Do(t, env, edit.New(nil), "file_path", path, "old_string", "one", "new_string", "1")
	if !r.IsError || !strings.Contains(r.Content.Text, "File has been modified since it was read") {
		t.Errorf("%q", r.Content.Text)
	}
	if got, _ := os.ReadFile(path); string(got) != "one 2wo\n" {
		t.Errorf("%q", got)
	}
}

func manyLines(word string) string {
	var b strings.Builder
	for i := range 19_000 {
		fmt.Fprintf(&b, "%s%d\n", word, i)
	}
	return b.String()
}

// Memory use is limited, however large an edit would make a file: a result that is too
// large is rejected before it is built, and one that fits takes a small multiple of its
// size.
func TestGrowth(t *testing.T) {
	allocated := func(f func()) int64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		return int64(after.TotalAlloc - before.TotalAlloc)
	}
	for _, tt := range []struct {
		name, content, old, new string
		bound                   int64 // of allocated bytes
		ok                      bool
	}{
		{"exact", strings.Repeat("a", 1<<20), "a", strings.Repeat("b", 1000), 32 << 20, false},
		{"folded", strings.Repeat("“", 1<<18), `"`, strings.Repeat("b", 10_000), 64 << 20, false},
		{"one place", "x" + strings.Repeat("a\n", 1<<19), "x", strings.Repeat("b\n", 1<<10), 64 << 20, true},
		{"many lines", strings.Repeat("a\n", 1<<19), "a", "bb", 64 << 20, true},
		{"patch of many lines", strings.Repeat("a\n", 19_000), "a", "bb", 64 << 20, true},
		{"patch of other lines", manyLines("a"), "a", "b", 64 << 20, true},
		{"indented", strings.Repeat(" ", 1<<20) + "if x {\n" + strings.Repeat(" ", 1<<20) + "}\n", "\tif x {\n\t}", strings.Repeat("\ty\n", 1000), 64 << 20, false},
	} {
		env := tooltest.Env(t)
		path := tooltest.Write(t, env, "f", tt.content)
		tooltest.Do(t, env, read.New(), "file_path", path)
		var r *tool.Result
		got := allocated(func() {
			r = tooltest.Do(t, env, edit.New(nil), "file_path", path, "old_string", tt.old, "new_string", tt.new, "replace_all", true)
		})
		if r.IsError == tt.ok {
			t.Errorf("%s: %.200s", tt.name, r.Content.Text)
		}
		if got > tt.bound {
			t.Errorf("%s: %d MB were allocated", tt.name, got>>20)
		}
		if data, _ := os.ReadFile(path); !tt.ok && string(data) != tt.content {
			t.Errorf("%s: the file was changed", tt.name)
		}
		t.Logf("%s: %.1f MB", tt.name, float64(got)/(1<<20))
	}
}
