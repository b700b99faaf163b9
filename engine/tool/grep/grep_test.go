package grep_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/tool/grep"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestModes(t *testing.T) {
	env := tooltest.Env(t)
	root := env.Roots[0]
	for i, f := range [][2]string{{"a.txt", "line one\nline two\nline three\n"}, {"sub/c.txt", "three\n"}, {"b.go", "func F() {\n\treturn\n}\n"}, {"bin", "three\x00"}, {"crlf.md", "x\r\nTHREE\r\n"}} {
		path := tooltest.Write(t, env, f[0], f[1])
		at := time.Unix(1_700_000_000+int64(i), 0)
		os.Chtimes(path, at, at)
	}
	for _, c := range []struct {
		name       string
		input      []any
		text       string
		structured string
	}{
		{"files", []any{"pattern", "three"}, "Found 2 files\nsub/c.txt\na.txt", `{"mode":"files_with_matches","numFiles":2,"filenames":["sub/c.txt","a.txt"],"totalFiles":2}`},
		{"content", []any{"pattern", "three", "output_mode", "content"}, "a.txt:3:line three\nsub/c.txt:1:three", `{"mode":"content","numFiles":0,"filenames":[],"content":"a.txt:3:line three\nsub/c.txt:1:three","numLines":2,"totalLines":2}`},
		{"count", []any{"pattern", "line", "output_mode", "count"}, "a.txt:3\n\nFound 3 total occurrences across 1 file.", `{"mode":"count","numFiles":1,"filenames":[],"content":"a.txt:3","numMatches":3}`},
		{"nothing", []any{"pattern", "nothing"}, "No files found", ""},
		{"no lines", []any{"pattern", "nothing", "output_mode", "content"}, "No matches found", ""},
		{"ignore case", []any{"pattern", "three", "-i", true, "output_mode", "content", "-n", "false"}, "a.txt:line three\ncrlf.md:THREE\nsub/c.txt:three", ""},
		{"glob", []any{"pattern", "three", "glob", "sub/*"}, "Found 1 file\nsub/c.txt", ""},
		{"not glob", []any{"pattern", "three", "glob", "!sub"}, "Found 1 file\na.txt", ""},
		{"globs", []any{"pattern", ".", "glob", "*.{go,md} *.none"}, "Found 2 files\ncrlf.md\nb.go", ""},
		{"type", []any{"pattern", "return", "type", "go"}, "Found 1 file\nb.go", ""},
		{"context", []any{"pattern", "two", "output_mode", "content", "-C", 1}, "a.txt-1-line one\na.txt:2:line two\na.txt-3-line three", ""},
		{"before", []any{"pattern", "three", "output_mode", "content", "-B", 1}, "a.txt-2-line two\na.txt:3:line three\n--\nsub/c.txt:1:three", ""},
		{"after", []any{"pattern", "one|three", "output_mode", "content", "-A", 1, "path", "a.txt"}, "1:line one\n2-line two\n3:line three", ""},
		{"only", []any{"pattern", "t[a-z]+", "output_mode", "content", "-o", true, "path", "a.txt"}, "2:two\n3:three", ""},
		{"multiline", []any{"pattern", "one.*two", "output_mode", "content", "multiline", true}, "a.txt:1:line one\na.txt:2:line two", ""},
		{"not multiline", []any{"pattern", "one\\s+line", "output_mode", "content"}, "No matches found", ""},
		{"multiline anchors", []any{"pattern", "^line t\\w+$", "output_mode", "count", "multiline", true}, "a.txt:2\n\nFound 2 total occurrences across 1 file.", ""},
		{"limit", []any{"pattern", "line", "output_mode", "content", "head_limit", 1, "offset", 1}, "a.txt:2:line two\n\n(These are lines 2 to 2 of 3. For more use offset 2.)", `{"mode":"content","numFiles":0,"filenames":[],"content":"a.txt:2:line two","numLines":1,"totalLines":3,"appliedLimit":1,"appliedOffset":1}`},
		{"a file", []any{"pattern", "THREE", "path", root + "/crlf.md", "output_mode", "content"}, "2:THREE", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := tooltest.Do(t, env, grep.New(), c.input...)
			if r.IsError || r.Content.Text != c.text {
				t.Errorf("%q, want %q", r.Content.Text, c.text)
			}
			if got := tooltest.JSON(t, r); c.structured != "" && got != c.structured {
				t.Errorf("%s\nwant %s", got, c.structured)
			}
		})
	}
	for _, c := range []struct {
		want  string
		input []any
	}{
		{"is not a regular expression: error parsing regexp: missing closing )", []any{"pattern", "("}},
		{"There is no file type \"golang\"", []any{"pattern", "x", "type", "golang"}},
		{"is not a glob", []any{"pattern", "x", "glob", "a[b"}},
		{"Directory does not exist", []any{"pattern", "x", "path", "nowhere"}},
		{"binary file", []any{"pattern", "x", "path", "bin"}},
		{"must be one of", []any{"pattern", "x", "output_mode", "lines"}},
	} {
		if r := tooltest.Do(t, env, grep.New(), c.input...); !r.IsError || !strings.Contains(r.Content.Text, c.want) {
			t.Errorf("%q, want %q", r.Content.Text, c.want)
		}
	}
}

// patterns are compared with another program, in a syntax that both support.
var patterns = []string{
	"func", "Index", "TODO", "interface", "ErrUnexpectedEOF", "func \\(", "^func [A-Z]", "^import", "return nil, err$", "[A-Z]{3}[0-9]{4,}", "[a-z]+_[A-Z][a-z]+_[0-9]+", "\\b[A-Z]{3}[0-9]{4,}\\b",
	"(foo|bar|baz)+", "x{3,5}", "a.c", "^$", "^[[:space:]]+$", "[^ -~]", "0x[0-9a-fA-F]+", "\"[^\"]*\"", "if err != nil", "go:(build|embed|linkname)", "\\.(Read|Write)\\(", "([a-z])[0-9]\\)$", "=>|->", "é|ü|ß", "\\bmap\\[string\\]", "[0-9]+\\.[0-9]+e[+-]?[0-9]+",
	"//.*http", "chan<-", "\\*\\*", "_test", "^package [a-z]+$", "\t\t\t\t\t\t", ";$", "[aeiou]{5}", "zzz*", ".{200}", "(Lock|Unlock)\\(\\)$", "^type .* struct \\{$",
}

// goRoot returns the directory of the source of Go.
func goRoot(tb testing.TB) string {
	tb.Helper()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		tb.Skip("the go command does not say where Go is:", err)
	}
	return strings.TrimSpace(string(out))
}

// The matching lines are the same as those of GNU grep, on the strings and regexp
// packages of the Go tree, or on all of it.
func TestLikeGrep(t *testing.T) {
	program, err := exec.LookPath("grep")
	if err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(goRoot(t), "src", "strings")
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		dir = filepath.Join(goRoot(t), "src")
	}
	for _, ignoreCase := range []bool{false, true} {
		for _, p := range patterns {
			if dir != filepath.Join(goRoot(t), "src", "strings") && (p == "[^ -~]" || p == ".{200}") {
				continue // GNU grep never matches a byte that is not UTF-8
			}
			cmd := exec.Command(program, "-rIcE", "--exclude-dir=.git", p, ".")
			if ignoreCase {
				cmd.Args = append(cmd.Args, "-i")
			}
			cmd.Dir = dir
			cmd.Env = []string{"LC_ALL=C.UTF-8"}
			data, _ := cmd.Output()
			var want []string
			for line := range strings.Lines(string(data)) {
				if line = strings.TrimSpace(line); !strings.HasSuffix(line, ":0") {
					want = append(want, strings.TrimPrefix(line, "./"))
				}
			}
			env := tooltest.Env(t)
			env.Roots = []string{dir}
			r := tooltest.Do(t, env, grep.New(), "pattern", p, "-i", ignoreCase, "output_mode", "count", "head_limit", 0)
			out, ok := r.Structured.(*grep.Output)
			if !ok {
				t.Fatalf("%q: %s", p, r.Content.Text)
			}
			got := strings.Fields(strings.ReplaceAll(*out.Content, "\n", " "))
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				for _, g := range got {
					if !slices.Contains(want, g) {
						t.Errorf("%q (ignoring case %v): only we have %s", p, ignoreCase, g)
					}
				}
				for _, g := range want {
					if !slices.Contains(got, g) {
						t.Errorf("%q (ignoring case %v): only grep has %s", p, ignoreCase, g)
					}
				}
			}
		}
	}
}
