package grep_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/parley-go/parley/engine/tool/glob"
	"github.com/parley-go/parley/engine/tool/grep"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

// Pipes, devices, links, huge files and unreadable directories do not block a search,
// and nothing outside is found.
func TestOddPlaces(t *testing.T) {
	env := tooltest.Env(t)
	root := env.Roots[0]
	tooltest.Write(t, env, "a.txt", "needle\n")
	outside := t.TempDir()
	os.WriteFile(filepath.Join(outside, "secret"), []byte("needle"), 0o666)
	os.Symlink(outside, filepath.Join(root, "dir"))
	os.Symlink(filepath.Join(outside, "secret"), filepath.Join(root, "file"))
	os.Symlink(".", filepath.Join(root, "loop"))
	os.Symlink("/dev/zero", filepath.Join(root, "zero"))
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	tooltest.Write(t, env, "locked/x", "needle")
	os.Chmod(filepath.Join(root, "locked"), 0)
	defer os.Chmod(filepath.Join(root, "locked"), 0o777)
	huge := tooltest.Write(t, env, "huge", "needle\n")
	if err := os.Truncate(huge, 10<<30); err != nil {
		t.Skip(err)
	}
	r := tooltest.Do(t, env, grep.New(), "pattern", "needle", "output_mode", "content", "glob", "!locked")
	if r.IsError || !strings.HasPrefix(r.Content.Text, "a.txt:1:needle") || strings.Contains(r.Content.Text, "secret") || strings.Contains(r.Content.Text, "dir") {
		t.Errorf("%q", r.Content.Text)
	}
	for path, want := range map[string]string{"pipe": "named pipe", "zero": "leads out", "file": "leads out", "dir": "leads out", "huge": "too big", "/dev/zero": "not a file on disk"} {
		if r := tooltest.Do(t, env, grep.New(), "pattern", "needle", "path", path); !r.IsError || !strings.Contains(r.Content.Text, want) {
			t.Errorf("%s: %v %q", path, r.IsError, r.Content.Text)
		}
	}
	r = tooltest.Do(t, env, glob.New(), "pattern", "**")
	if r.IsError || strings.Contains(r.Content.Text, "secret") || strings.Contains(r.Content.Text, "loop") || strings.Contains(r.Content.Text, "pipe") {
		t.Errorf("%q", r.Content.Text)
	}
}
