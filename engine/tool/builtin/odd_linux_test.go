package builtin_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/builtin"
	"github.com/parley-go/parley/engine/tool/edit"
	"github.com/parley-go/parley/engine/tool/notebookedit"
	"github.com/parley-go/parley/engine/tool/tooltest"
	"github.com/parley-go/parley/engine/tool/write"
)

// TestOddFiles gives every tool that works on files one that it cannot handle: it must
// report that at once, in a sentence, and neither wait for a writer nor read forever.
func TestOddFiles(t *testing.T) {
	env := tooltest.Env(t)
	root := env.Roots[0]
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(root, "dir.ipynb"), 0o777))
	must(syscall.Mkfifo(filepath.Join(root, "pipe.ipynb"), 0o666))
	must(os.Symlink("/dev/zero", filepath.Join(root, "zero.ipynb")))
	must(os.Symlink("loop.ipynb", filepath.Join(root, "loop.ipynb")))
	tooltest.Write(t, env, "huge.ipynb", "")
	must(os.Truncate(filepath.Join(root, "huge.ipynb"), 10<<30))
	tooltest.Write(t, env, "bytes.ipynb", "\xff\xfe\x00x")

	byName := map[string]tool.Tool{}
	for _, tl := range builtin.All(nil) {
		byName[tl.Spec().Name] = tl
	}
	calls := map[string][]any{
		"Read": {"file_path"}, "Write": {"content", "x", "file_path"}, "Edit": {"old_string", "a", "new_string", "b", "file_path"},
		"NotebookEdit": {"new_source", "x", "cell_id", "c", "notebook_path"}, "Grep": {"pattern", "x", "path"}, "Glob": {"pattern", "*", "path"},
	}
	for name, pairs := range calls {
		for _, file := range []string{"missing.ipynb", "dir.ipynb", "pipe.ipynb", "zero.ipynb", "loop.ipynb", "huge.ipynb", "bytes.ipynb", "missing/x.ipynb", "bytes.ipynb/x.ipynb"} {
			// Finding or creating something is not a failure.
			if name == "Write" && strings.HasPrefix(file, "missing") || (name == "Grep" || name == "Glob") && file == "dir.ipynb" || name == "Grep" && (file == "huge.ipynb" || file == "bytes.ipynb") {
				continue
			}
			t.Run(name+" "+strings.ReplaceAll(file, "/", " "), func(t *testing.T) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				r := tooltest.Do(t, env, byName[name], append(slices.Clone(pairs), filepath.Join(root, filepath.FromSlash(file)))...)
				runtime.ReadMemStats(&after)
				if !r.IsError || len(r.Content.Text) < 10 {
					t.Errorf("it says %q", r.Content.Text)
				}
				if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
					t.Errorf("it took %d bytes of memory", grown)
				}
			})
		}
	}
	if _, err := os.Stat(filepath.Join(root, "pipe.ipynb")); err != nil {
		t.Error(err)
	}
}

// TestMisplacedFiles checks that tools that change files explain a path that cannot be a file as a mistake of the model, and
// before anybody is asked.
func TestMisplacedFiles(t *testing.T) {
	env := tooltest.Env(t)
	root := env.Roots[0]
	tooltest.Write(t, env, "a", "x")
	if err := os.Mkdir(filepath.Join(root, "d.ipynb"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		tool  tool.Tool
		pairs []any
	}{
		{write.New(), []any{"file_path", "a/b", "content", "x"}},
		{write.New(), []any{"file_path", "d.ipynb", "content", "x"}},
		{edit.New(nil), []any{"file_path", "a/b", "old_string", "x", "new_string", "y"}},
		{edit.New(nil), []any{"file_path", ".", "old_string", "x", "new_string", "y"}},
		{notebookedit.New(), []any{"notebook_path", "d.ipynb", "new_source", "x", "cell_id", "1"}},
		{notebookedit.New(), []any{"notebook_path", "a/n.ipynb", "new_source", "x", "cell_id", "1"}},
	} {
		if r := tooltest.Do(t, env, tt.tool, tt.pairs...); !r.IsError || !strings.HasPrefix(r.Content.String(), "<tool_use_error>") {
			t.Errorf("%s %v: %s", tt.tool.Spec().Name, tt.pairs, r.Content)
		}
	}
}
