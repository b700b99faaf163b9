package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRewindWhileSwapped rewinds while another goroutine keeps exchanging the directory
// of the files for a symbolic link. No file behind the link may change.
func TestRewindWhileSwapped(t *testing.T) {
	dir := tempDir(t)
	sub, link, target := filepath.Join(dir, "sub"), filepath.Join(dir, "link"), filepath.Join(dir, ".git", "hooks")
	for _, d := range []string{sub, target} {
		if err := os.MkdirAll(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	const names = 20
	k := memory()
	path := func(i int) string { return filepath.Join(sub, fmt.Sprint("f", i)) }
	var paths []string
	for i := range names {
		if i%2 == 0 {
			os.WriteFile(path(i), []byte("old\n"), 0o666)
		}
		os.WriteFile(filepath.Join(target, fmt.Sprint("f", i)), []byte("new\n"), 0o666)
		paths = append(paths, path(i))
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	exchange := func() error {
		return unix.Renameat2(unix.AT_FDCWD, sub, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
	}
	restored := 0
	for round := range 50 {
		message := fmt.Sprint("m", round)
		if err := k.Begin(message); err != nil {
			t.Fatal(err)
		}
		after, err := k.Before("c", paths, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range names {
			os.WriteFile(path(i), []byte("new\n"), 0o666)
		}
		if err := after(); err != nil {
			t.Fatal(err)
		}
		done, stopped := make(chan struct{}), make(chan error)
		go func() {
			n := 0
			for ; ; n++ {
				select {
				case <-done:
					if n%2 == 1 {
						stopped <- exchange()
					}
					close(stopped)
					return
				default:
					exchange()
				}
			}
		}()
		r, _ := k.Rewind(message, []string{dir}, false)
		close(done)
		for err := range stopped {
			if err != nil {
				t.Fatal(err)
			}
		}
		if r != nil {
			restored += len(r.Changed)
		}
		for i := range names {
			if got, err := os.ReadFile(filepath.Join(target, fmt.Sprint("f", i))); string(got) != "new\n" {
				t.Fatalf("round %d: a file behind the link is %q, %v", round, got, err)
			}
		}
		for i := range names { // reset for the next round
			if i%2 == 0 {
				os.WriteFile(path(i), []byte("old\n"), 0o666)
			} else {
				os.Remove(path(i))
			}
		}
	}
	if restored == 0 {
		t.Error("nothing was put back: nothing was tried")
	}
	t.Logf("%d files were put back", restored)
}
