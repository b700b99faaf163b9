package read_test

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/tool/read"
	"github.com/parley-go/parley/engine/tool/tooltest"
	"github.com/parley-go/parley/wire"
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
	tooltest.Write(t, env, "huge.txt", strings.Repeat("é", 50<<10)+"x\nend")
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
		{"before the start and without limit", []any{"file_path", "a.txt", "offset", -3, "limit", -1}, "1\tline one\n2\tline two\n3\tline three\n4\t", ""},
		{"past the end", []any{"file_path", "a.txt", "offset", 9}, "(The file has 4 lines; there is nothing at line 9.)", ""},
		{"byte order mark and CRLF", []any{"file_path", "crlf.txt"}, "1\ta\n2\tb\n3\t", ""},
		{"UTF-16", []any{"file_path", "utf16.txt"}, "1\ta\n2\té", ""},
		{"not UTF-8", []any{"file_path", "latin.txt"}, "1\tcaf\ufffd\n2\t\n\n(The file is not valid UTF-8;…", ""},
		{"empty", []any{"file_path", "empty.txt"}, "(The file exists and is empty.)", ""},
		{"long line", []any{"file_path", "long.txt"}, "1\t" + strings.Repeat("x", 5000) + "\n2\tend", ""},
		{"huge line", []any{"file_path", "huge.txt"}, "1\t" + strings.Repeat("é", 2000) + "… [cut; the line has 100KB]\n2\tend", ""},
		{"many lines", []any{"file_path", "many.txt"}, strings.TrimSuffix(numbered("y", 2000), "\n") + "\n\n(Lines 1 to 2000 of 5001. The file continues: read on with offset 2001.)", ""},
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

// A file that cannot be read is rejected with a reason, at once, with little memory.
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
			r := tooltest.Do(t, env, read.New(), "file_path", c.path)
			if !r.IsError || !strings.Contains(r.Content.Text, c.want) {
				t.Errorf("%v %q, want %q", r.IsError, r.Content.Text, c.want)
			}
		})
	}
	r := tooltest.Do(t, env, read.New(), "path", "a.txt")
	if want := "<tool_use_error>InputValidationError: Read failed due to the following issues:\nThe required parameter `file_path` is missing"; !r.IsError || !strings.HasPrefix(r.Content.Text, want) {
		t.Errorf("%q", r.Content.Text)
	}
}

// A large file is read as a stream: quickly, and with little memory.
func TestBig(t *testing.T) {
	env := tooltest.Env(t)
	path := filepath.Join(env.Roots[0], "big.log")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	block := []byte(strings.Repeat("a line of a big file\n", 50_000))
	for range 80 {
		if _, err := f.Write(block); err != nil {
			t.Skip(err)
		}
	}
	f.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := tooltest.Do(t, env, read.New(), "file_path", path, "offset", 3_000_000, "limit", 2)
	runtime.ReadMemStats(&after)
	if want := "3000000\ta line of a big file\n3000001\ta line of a big file"; r.Content.Text != want {
		t.Errorf("%q", r.Content.Text)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
	r = tooltest.Do(t, env, read.New(), "file_path", path)
	if !strings.Contains(r.Content.Text, "(Lines 1 to 2000 of more than 2000. The file continues: read on with offset 2001.)") {
		t.Errorf("%.200q", r.Content.Text[len(r.Content.Text)-200:])
	}
}

// Pictures are shown as such, made smaller if necessary.
func TestImages(t *testing.T) {
	env := tooltest.Env(t)
	picture := func(w, h int) string {
		var b bytes.Buffer
		if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, w, h))); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	small := picture(3, 2)
	tooltest.Write(t, env, "small.png", small)
	tooltest.Write(t, env, "big.png", picture(3000, 30))
	r := tooltest.Do(t, env, read.New(), "file_path", "small.png")
	data := base64.StdEncoding.EncodeToString([]byte(small))
	if want := `{"type":"image","file":{"base64":"` + data + `","type":"image/png","originalSize":` + strconv.Itoa(len(small)) + `,"dimensions":{"originalWidth":3,"originalHeight":2,"displayWidth":3,"displayHeight":2}}}`; tooltest.JSON(t, r) != want {
		t.Errorf("%s", tooltest.JSON(t, r))
	}
	if b, ok := r.Content.Blocks[0].(*wire.ImageBlock); !ok || b.Source.Data != data || b.Source.MediaType != "image/png" {
		t.Errorf("%+v", r.Content)
	}
	r = tooltest.Do(t, env, read.New(), "file_path", "big.png")
	if d := r.Structured.(*read.Output).File.(*read.ImageFile).Dimensions; *d != (read.Dimensions{OriginalWidth: 3000, OriginalHeight: 30, DisplayWidth: 2000, DisplayHeight: 20}) {
		t.Errorf("%+v", d)
	}
}

// A line of ten gigabytes is not read to its end, and reading it can be cancelled.
func TestEndlessLine(t *testing.T) {
	env := tooltest.Env(t)
	path := tooltest.Write(t, env, "x", strings.Repeat("a line\n", 100_000))
	if err := os.Truncate(path, 10<<30); err != nil {
		t.Skip(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := tooltest.Do(t, env, read.New(), "file_path", path, "offset", 100_000, "limit", 10)
	runtime.ReadMemStats(&after)
	if r.IsError || !strings.HasPrefix(r.Content.Text, "100000\ta line\n100001\t\x00") || !strings.Contains(r.Content.Text, "(Line 100001 does not end within 64MB, and the file was not read any further.") {
		t.Errorf("%.50q … %.200q", r.Content.Text, r.Content.Text[max(0, len(r.Content.Text)-200):])
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("%d bytes were allocated", grown)
	}
}

// Forty concurrent reads take as long as the slowest of them.
func TestParallel(t *testing.T) {
	env := tooltest.Env(t)
	for i := range 39 {
		tooltest.Write(t, env, strconv.Itoa(i), strings.Repeat("x\n", 100*i))
	}
	tooltest.Write(t, env, "39", strings.Repeat("a line of a file that takes a while\n", 500_000))
	// The best of several runs, because others use this machine, too.
	best := func(names ...string) time.Duration {
		least := time.Hour
		for range 5 {
			var wg sync.WaitGroup
			start := time.Now()
			for _, name := range names {
				wg.Go(func() {
					if r := tooltest.Do(t, env, read.New(), "file_path", name, "limit", 10); r.IsError {
						t.Errorf("%q", r.Content.Text)
					}
				})
			}
			wg.Wait()
			least = min(least, time.Since(start))
		}
		return least
	}
	var all []string
	for i := range 40 {
		all = append(all, strconv.Itoa(i))
	}
	slowest, together := best("39"), best(all...)
	t.Logf("the slowest takes %v, all together %v", slowest, together)
	if together > 2*slowest+100*time.Millisecond && os.Getenv("PARLEY_TEST_LONG") != "" {
		t.Errorf("the slowest takes %v, all together %v", slowest, together)
	}
}
