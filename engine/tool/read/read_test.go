package read_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/tool/read"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestText(t *testing.T) {
	env := tooltest.Env(t)
	tooltest.Write(t, env, "a.txt", "line one\nline two\nline three\n")
	tooltest.Write(t, env, "crlf.txt", "\ufeffa\r\nb\r\n")
	tooltest.Write(t, env, "utf16.txt", "\xff\xfea\x00\n\x00\xe9\x00")
	tooltest.Write(t, env, "latin.txt", "caf\xe9\n")
	tooltest.Write(t, env, "empty.txt", "")
	tooltest.Write(t, env, "long.txt", strings.Repeat("x", 5000)+"\nend")
	tooltest.Write(t, env, "many.txt", strings.Repeat("y\n", 5000))
	root := env.Roots[0]
	file := func(name, rest string) string {
		return `{"type":"text","file":{"filePath":"` + filepath.Join(root, name) + `",` + rest + `}}`
	}
	for _, c := range []struct {
		name       string
		input      []any
		text       string // ends in … if more follows
		structured string
	}{
		{"whole", []any{"file_path", root + "/a.txt"}, "1\tline one\n2\tline two\n3\tline three\n4\t",
			file("a.txt", `"content":"line one\nline two\nline three\n","numLines":4,"startLine":1,"totalLines":4`)},
		{"range", []any{"file_path", "a.txt", "offset", 2, "limit", 1}, "2\tline two",
			file("a.txt", `"content":"line two","numLines":1,"startLine":2,"totalLines":4`)},
		{"numbers as strings", []any{"file_path", "a.txt", "offset", "2", "limit", "1"}, "2\tline two", ""},
		{"offset zero", []any{"file_path", "a.txt", "offset", 0, "limit", 2000}, "1\tline one\n2\tline two\n3\tline three\n4\t", ""},
		{"past the end", []any{"file_path", "a.txt", "offset", 9}, "(The file has 4 lines; there is nothing at line 9.)", ""},
		{"byte order mark and CRLF", []any{"file_path", "crlf.txt"}, "1\ta\n2\tb\n3\t", ""},
		{"UTF-16", []any{"file_path", "utf16.txt"}, "1\ta\n2\té", ""},
		{"not UTF-8", []any{"file_path", "latin.txt"}, "1\tcaf\ufffd\n2\t\n\n(The file is not valid UTF-8;…", ""},
		{"empty", []any{"file_path", "empty.txt"}, "(The file exists and is empty.)", ""},
		{"long line", []any{"file_path", "long.txt"}, "1\t" + strings.Repeat("x", 2000) + "… [cut; the line has 4.9KB]\n2\tend", ""},
		{"many lines", []any{"file_path", "many.txt"}, strings.TrimSuffix(numbered("y", 2000), "\n") + "\n\n(Lines 1 to 2000 of 5001. The file goes on: read it with offset 2001.)", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := tooltest.Do(t, env, read.New(), c.input...)
			if prefix, more := strings.CutSuffix(c.text, "…"); more && strings.HasPrefix(r.Content.Text, prefix) {
				c.text = r.Content.Text
			}
			if r.Content.Text != c.text || r.IsError {
				t.Errorf("text %.300q, want %.300q", r.Content.Text, c.text)
			}
			if s := tooltest.JSON(t, r); c.structured != "" && s != c.structured {
				t.Errorf("structured %s\nwant %s", s, c.structured)
			}
		})
	}
}

func numbered(line string, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.TrimSpace(strings.Join([]string{itoa(i + 1), line}, "\t")) + "\n")
	}
	return b.String()
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

// What cannot be read is refused in words, at once, with little memory.
func TestRefused(t *testing.T) {
	env := tooltest.Env(t)
	root := env.Roots[0]
	tooltest.Write(t, env, "config.yaml", "a: 1\n")
	tooltest.Write(t, env, "bin", "\x7fELF\x00\x01")
	tooltest.Write(t, env, "a.txt", "a")
	sparse, err := os.Create(filepath.Join(root, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	if err := sparse.Truncate(10 << 30); err != nil {
		t.Skip(err)
	}
	sparse.Close()
	os.Symlink("/etc/hostname", filepath.Join(root, "out"))
	os.Symlink("loop", filepath.Join(root, "loop"))
	for _, c := range []struct{ name, path, want string }{
		{"missing", "nope.txt", "File does not exist. Note: your current working directory is " + root + "."},
		{"nearly", "config.yml", "Did you mean " + root + "/config.yaml?"},
		{"directory", root, "EISDIR"},
		{"below a file", "a.txt/b", "a part of the path is a file"},
		{"device", "/dev/zero", "not a file on disk"},
		{"process", "/proc/self/environ", "not a file on disk"},
		{"binary", "bin", "is a binary file"},
		{"sparse", "sparse", "is a binary file (application/octet-stream, 10GB)"},
		{"link out", "out", "leads out of the allowed directories, to /etc/hostname"},
		{"link to itself", "loop", "circle"},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			r := tooltest.Do(t, env, read.New(), "file_path", c.path)
			if !r.IsError || !strings.Contains(r.Content.Text, c.want) {
				t.Errorf("%v %q, want %q", r.IsError, r.Content.Text, c.want)
			}
			if d := time.Since(start); d > 2*time.Second {
				t.Errorf("it took %v", d)
			}
		})
	}
	r := tooltest.Do(t, env, read.New(), "path", "a.txt")
	if want := "<tool_use_error>InputValidationError: Read failed due to the following issues:\nThe required parameter `file_path` is missing"; !r.IsError || !strings.HasPrefix(r.Content.Text, want) {
		t.Errorf("%q", r.Content.Text)
	}
}
