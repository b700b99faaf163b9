package sandbox

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A pipe or a device in place of a file of git neither blocks nor fills the memory.
func TestGitFilesThatAreNoFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, ".git")
	for name, put := range map[string]func() error{
		"a pipe":   func() error { return syscall.Mkfifo(file, 0o600) },
		"a device": func() error { return os.Symlink("/dev/zero", file) },
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if got := linkedRepository(dir) + gitFile(file); got != "" || configValues(file) != nil {
			t.Errorf("%s: %q was found in it", name, got)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}
