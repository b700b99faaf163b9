package session_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/session/sessiontest"
)

// TestReadOnlyDisk remounts the disk of a store read-only, as Linux does after an error of the disk. Everything
// that was acknowledged can be read, each change fails with the reason and leaves nothing behind, and the
// session continues when the disk can be written again.
func TestReadOnlyDisk(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, ""); err != nil {
		t.Skip("no right to mount: ", err)
	}
	t.Cleanup(func() { syscall.Unmount(disk, syscall.MNT_DETACH) })
	remount := func(flags uintptr) {
		t.Helper()
		if err := syscall.Mount("tmpfs", disk, "tmpfs", syscall.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	files := func() (names []string) {
		filepath.WalkDir(disk, func(path string, _ os.DirEntry, err error) error {
			names = append(names, path)
			return err
		})
		return names
	}
	const id = "11111111-1111-4111-8111-111111111111"
	ctx, store := t.Context(), &session.Files{Dir: filepath.Join(disk, "config")}
	log, err := session.Create(ctx, store, sessiontest.Meta(id, "/src/a"))
	if err != nil {
		t.Fatal(err)
	}
	said := sessiontest.Say("user", "one", "")
	if err := errors.Join(log.Append(said), log.Close()); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		before := strings.Join(files(), "\n")
		remount(syscall.MS_RDONLY)
		for name, change := range map[string]func() error{
			"open":   func() error { _, _, err := session.Open(ctx, store, id, sessiontest.Meta("", "/src/a")); return err },
			"create": func() error { _, err := session.Create(ctx, store, sessiontest.Meta("", "/src/a")); return err },
			"new":    func() error { _, err := session.Create(ctx, store, sessiontest.Meta("", "/src/b")); return err },
			"fork":   func() error { _, err := session.Fork(ctx, store, id, nil); return err },
			"rename": func() error { return session.Rename(ctx, store, id, "title", nil) },
			"delete": func() error { return session.Delete(ctx, store, id, nil) },
		} {
			if err := change(); !errors.Is(err, syscall.EROFS) {
				t.Errorf("%s: got %v, want %v", name, err, syscall.EROFS)
			}
		}
		infos, err := session.List(ctx, store, nil)
		if err != nil || len(infos) != 1 || infos[0].ID != id {
			t.Errorf("list: got %v, %v, want the session", infos, err)
		}
		if after := strings.Join(files(), "\n"); after != before {
			t.Errorf("got files\n%s\nwant\n%s", after, before)
		}
		remount(0)
		log, h, err := session.Open(ctx, store, id, sessiontest.Meta("", "/src/a"))
		if err != nil || len(h.Entries) != round+1 || h.Entries[round].UUID != said.UUID {
			t.Fatalf("open: got %+v, %v, want all that was acknowledged", h, err)
		}
		said = sessiontest.Say("user", "more", said.UUID)
		if err := errors.Join(log.Append(said), log.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
