package glob_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/glob"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestGlob(t *testing.T) {
	env := tooltest.Env(t)
	root := env.Roots[0]
	for i, name := range []string{"a.txt", "b.go", "sub/c.txt", "sub/deep/d.go", ".hidden/e.txt", "out/f.txt", "x.log", "sub/keep.log", "sub/.ignore", "sub/ign/g.txt", "we[i]rd.txt"} {
		path := tooltest.Write(t, env, name, "")
		at := time.Unix(1_700_000_000+int64(i), 0)
		os.Chtimes(path, at, at)
	}
	os.Mkdir(filepath.Join(root, ".git"), 0o777)
	tooltest.Write(t, env, ".git/config", "")
	tooltest.Write(t, env, ".gitignore", "out/\n*.log\n!keep.log\n")
	os.WriteFile(filepath.Join(root, "sub/.ignore"), []byte("ign\n"), 0o666)
	os.Symlink("/etc", filepath.Join(root, "link"))
	env.Hidden = func(path string, _ *tool.Target) bool { return filepath.Base(path) == "d.go" }
	for _, c := range []struct {
		pattern, path string
		want          string
	}{
		{"**/*.txt", "", "a.txt sub/c.txt .hidden/e.txt we[i]rd.txt"},
		{"*.txt", "", "a.txt sub/c.txt .hidden/e.txt we[i]rd.txt"},
		{"sub/*", "", "sub/c.txt sub/keep.log sub/.ignore"},
		{"*.{go,log}", "", "b.go sub/keep.log"},
		{"**/*", root + "/sub", "sub/c.txt sub/keep.log sub/.ignore"},
		{root + "/sub/**/*.txt", "", "sub/c.txt"},
		{"we\\[i\\]rd.*", "", "we[i]rd.txt"},
		{"sub/deep/*", "", ""},
		{"nothing", "", ""},
		{"./a.*", "", "a.txt"},
	} {
		r := tooltest.Do(t, env, glob.New(), "pattern", c.pattern, "path", c.path)
		want := strings.Join(strings.Fields(c.want), "\n")
		if want == "" {
			want = "No files found"
		}
		if r.IsError || r.Content.Text != want {
			t.Errorf("%q in %q: %q, want %q", c.pattern, c.path, r.Content.Text, want)
		}
	}
	r := tooltest.Do(t, env, glob.New(), "pattern", "**/*.go")
	if got := tooltest.JSON(t, r); !strings.HasPrefix(got, `{"filenames":["b.go"],"durationMs":`) || !strings.HasSuffix(got, `,"numFiles":1,"truncated":false,"totalMatches":1,"countIsComplete":true}`) {
		t.Error(got)
	}
	for path, want := range map[string]string{"nowhere": "Directory does not exist", "a.txt": "not a directory", "link": "leads out of the allowed directories", "/proc": "not a file on disk"} {
		if r := tooltest.Do(t, env, glob.New(), "pattern", "*", "path", path); !r.IsError || !strings.Contains(r.Content.Text, want) {
			t.Errorf("%s: %q", path, r.Content.Text)
		}
	}
	if r := tooltest.Do(t, env, glob.New(), "pattern", "a[b"); !r.IsError || !strings.Contains(r.Content.Text, "is not a glob") {
		t.Errorf("%q", r.Content.Text)
	}
}

// Many files: the last hundred, and the total number.
func TestMany(t *testing.T) {
	env := tooltest.Env(t)
	for i := range 300 {
		tooltest.Write(t, env, fmt.Sprintf("d%d/%d.txt", i%7, i), "")
	}
	r := tooltest.Do(t, env, glob.New(), "pattern", "**/*.txt")
	out := r.Structured.(*glob.Output)
	if out.NumFiles != 100 || !out.Truncated || out.TotalMatches != 300 || !strings.Contains(r.Content.Text, "(These are the 100 of 300 that were changed last.") {
		t.Errorf("%+v", out)
	}
}

// In the source of Go, it finds the same files as ripgrep.
func TestLikeRipgrep(t *testing.T) {
	rg, err := exec.LookPath("rg")
	if err != nil {
		t.Skip("ripgrep is not there to compare with:", err)
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Skip("the go command does not say where Go is:", err)
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "src")
	env := tooltest.Env(t)
	env.Roots = []string{dir}
	for _, pattern := range []string{"**/*_test.go", "*.s", "net/http/*.go", "net/http/**/*.pem", "*.{md,html}", "**/testdata/**/*.golden", "cmd/*/main.go", "[a-c]*_arm64.s", "**/x?z*", "[!a-z]*", "cmd/go/**", "/strings/*", "**/internal/*/doc.go", "*", "none*such"} {
		cmd := exec.Command(rg, "--no-config", "--files", "--hidden", "--glob", pattern, "./")
		cmd.Dir = dir
		data, _ := cmd.Output()
		want := strings.Fields(strings.ReplaceAll(string(data), "./", ""))
		input := pattern
		if strings.HasPrefix(pattern, "/") {
			input = dir + pattern
		}
		r := tooltest.Do(t, env, glob.New(), "pattern", input)
		got, ok := r.Structured.(*glob.Output)
		if !ok || got.TotalMatches != len(want) {
			t.Errorf("%s: %d files, ripgrep has %d", pattern, got.TotalMatches, len(want))
			continue
		}
		for _, name := range got.Filenames {
			if !slices.Contains(want, name) {
				t.Errorf("%s: ripgrep has no %s", pattern, name)
			}
		}
	}
}
