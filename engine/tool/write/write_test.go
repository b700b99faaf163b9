package write_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/tool/read"
	"github.com/parley-go/parley/engine/tool/tooltest"
	"github.com/parley-go/parley/engine/tool/write"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWrite(t *testing.T) {
	env := tooltest.Env(t)
	path := filepath.Join(env.Roots[0], "d", "new.txt")
	r := tooltest.Do(t, env, write.New(), "file_path", "d/new.txt", "content", "n1\nn2\n")
	if want := "File created successfully at: " + path + " (file state is current in your context — no need to Read it back)"; r.Content.Text != want {
		t.Errorf("%q", r.Content.Text)
	}
	if want, got := `{"type":"create","filePath":"`+path+`","content":"n1\nn2\n","structuredPatch":[],"originalFile":null,"userModified":false}`, tooltest.JSON(t, r); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	os.Chmod(path, 0o640)
	r = tooltest.Do(t, env, write.New(), "file_path", path, "content", "z")
	if want := "The file " + path + " has been updated successfully. (file state is current in your context — no need to Read it back)"; r.Content.Text != want {
		t.Errorf("%q", r.Content.Text)
	}
	if want, got := `{"type":"update","filePath":"`+path+`","content":"z","structuredPatch":[{"oldStart":1,"oldLines":2,"newStart":1,"newLines":1,"lines":["-n1","-n2","+z","\\ No newline at end of file"]}],"originalFile":"n1\nn2\n","userModified":false}`, tooltest.JSON(t, r); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v", info.Mode())
	}
	if left, _ := filepath.Glob(filepath.Join(env.Roots[0], "d", ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRefused(t *testing.T) {
	env := tooltest.Env(t)
	root := env.Roots[0]
	old := tooltest.Write(t, env, "old.txt", "old\n")
	os.Symlink(t.TempDir(), filepath.Join(root, "out"))
	os.Symlink(filepath.Join(t.TempDir(), "dangling"), filepath.Join(root, "dangling"))
	for _, c := range []struct{ name, path, want string }{
		{"not read", old, "File has not been read yet"},
		{"directory", root, "is a directory, not a file. Give"},
		{"below a file", "old.txt/x", "a part of the path is a file"},
		{"device", "/dev/null", "not a file on disk"},
		{"link out", "out/x", "leads out of the allowed directories"},
		{"dangling link out", "dangling", "leads out of the allowed directories"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := tooltest.Do(t, env, write.New(), "file_path", c.path, "content", "x")
			if !r.IsError || !strings.Contains(r.Content.Text, c.want) {
				t.Errorf("%v %q, want %q", r.IsError, r.Content.Text, c.want)
			}
		})
	}
	tooltest.Do(t, env, read.New(), "file_path", old)
	os.WriteFile(old, []byte("other\n"), 0o666)
	if r := tooltest.Do(t, env, write.New(), "file_path", old, "content", "x"); !strings.Contains(r.Content.Text, "File has been modified since it was read") {
		t.Errorf("%q", r.Content.Text)
	}
	if got, _ := os.ReadFile(old); string(got) != "other\n" {
		t.Errorf("%q", got)
	}
}

// A link inside the roots is written through, and stays a link.
func TestLinks(t *testing.T) {
	env := tooltest.Env(t)
	root := env.Roots[0]
	path := tooltest.Write(t, env, "real.txt", "a\n")
	link := filepath.Join(root, "link.txt")
	os.Symlink(path, link) // absolute, but inside
	tooltest.Do(t, env, read.New(), "file_path", link)
	if r := tooltest.Do(t, env, write.New(), "file_path", link, "content", "b\n"); r.IsError {
		t.Fatalf("%q", r.Content.Text)
	}
	if got, _ := os.ReadFile(path); string(got) != "b\n" {
		t.Errorf("%q", got)
	}
	if info, _ := os.Lstat(link); info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link is gone")
	}
	hard := filepath.Join(root, "hard.txt")
	if err := os.Link(path, hard); err != nil {
		t.Skip(err)
	}
	if r := tooltest.Do(t, env, write.New(), "file_path", path, "content", "c\n"); !strings.Contains(r.Content.Text, "2 names") {
		t.Errorf("%q", r.Content.Text)
	}
}
