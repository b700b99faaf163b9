//go:build unix

package regular

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.WriteFile(at("file"), []byte("1234"), 0o600), os.Symlink("file", at("link")), os.WriteFile(at("long"), []byte("12345"), 0o600),
		syscall.Mkfifo(at("pipe"), 0o600), os.Symlink("pipe", at("pipelink")), os.Symlink("/dev/zero", at("zero")), os.Mkdir(at("dir"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]error{"file": nil, "link": nil, "pipe": ErrNot, "pipelink": ErrNot, "dir": ErrNot, "zero": ErrNot, "none": os.ErrNotExist} {
		text, err := Read(at(name), 4)
		if !errors.Is(err, want) || (want == nil) != (string(text) == "1234") {
			t.Errorf("%s: %q %v, want %v", name, text, err, want)
		}
		if name == "zero" {
			continue // it is outside of the root
		}
		if text, err := ReadIn(root, name, 4); !errors.Is(err, want) || (want == nil) != (string(text) == "1234") {
			t.Errorf("%s below a root: %q %v, want %v", name, text, err, want)
		}
	}
	if text, err := Read(at("long"), 4); err == nil {
		t.Errorf("a file that is too large is read: %q", text)
	}
}
