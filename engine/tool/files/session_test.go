package files_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
)

// A session file is created and read only in its directory, whatever commands do to that
// directory.
func TestSessionFile(t *testing.T) {
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	os.WriteFile(secret, []byte("secret"), 0o600)
	fresh := func(t *testing.T) (dir string, f *files.SessionFile) {
		dir = filepath.Join(t.TempDir(), "session")
		return dir, files.InSession(&tool.Env{Dir: dir}, "tasks/a.output")
	}
	create := func(t *testing.T, f *files.SessionFile) {
		t.Helper()
		out, err := f.Create()
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString("text")
		out.Close()
	}
	t.Run("created and read", func(t *testing.T) {
		dir, f := fresh(t)
		create(t, f)
		if _, err := f.Create(); err == nil {
			t.Error("it was created twice")
		}
		out, err := f.Append()
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString(" and more")
		out.Close()
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		in.Close()
		if data, err := os.ReadFile(f.Path()); string(data) != "text and more" {
			t.Errorf("%q, %v", data, err)
		}
		for _, path := range []string{dir, filepath.Dir(f.Path()), f.Path()} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s is %v, %v", path, info.Mode(), err)
			}
		}
	})
	t.Run("directory is a link", func(t *testing.T) {
		dir, f := fresh(t)
		os.MkdirAll(dir, 0o700)
		if err := os.Symlink(outside, filepath.Join(dir, "tasks")); err != nil {
			t.Skip(err)
		}
		for _, open := range []func() (*os.File, error){f.Create, f.Append} {
			if out, err := open(); err == nil {
				out.Close()
				t.Error("it was created behind a link")
			}
		}
	})
	t.Run("file is a link", func(t *testing.T) {
		dir, f := fresh(t)
		os.MkdirAll(filepath.Join(dir, "tasks"), 0o700)
		os.Symlink(secret, f.Path())
		for _, open := range []func() (*os.File, error){f.Create, f.Append} {
			if out, err := open(); err == nil {
				out.Close()
				t.Error("it was opened behind a link")
			}
		}
	})
	t.Run("replaced", func(t *testing.T) {
		_, f := fresh(t)
		create(t, f)
		os.Remove(f.Path())
		os.Symlink(secret, f.Path())
		if in, err := f.Open(); err == nil {
			in.Close()
			t.Error("the file behind the link was opened")
		}
		os.Remove(f.Path())
		os.Link(secret, f.Path())
		if in, err := f.Open(); err == nil {
			in.Close()
			t.Error("another file was opened")
		}
	})
	t.Run("name leads out", func(t *testing.T) {
		dir, _ := fresh(t)
		if out, err := files.InSession(&tool.Env{Dir: dir}, "../x").Create(); err == nil {
			out.Close()
			t.Error("it was created elsewhere")
		}
	})
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Errorf("outside there are %v", entries)
	}
	if files.InSession(&tool.Env{}, "x") != nil {
		t.Error("a session without a directory has files")
	}
}
