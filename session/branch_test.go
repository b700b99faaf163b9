package session_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/parley-go/parley/session"
)

func TestGitBranch(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("repo/.git/HEAD", "ref: refs/heads/feat/one\n")
	write("repo/sub/file", "")
	write("detached/.git/HEAD", "0123456789abcdef\n")
	write("repo/.git/worktrees/w/HEAD", "ref: refs/heads/two\n")
	write("w/.git", "gitdir: ../repo/.git/worktrees/w\n")
	write("strange/.git/HEAD/file", "") // a directory
	write("far/.git", "gitdir: "+os.DevNull+"\n")
	for dir, want := range map[string]string{"repo": "feat/one", "repo/sub": "feat/one", "detached": "01234567", "w": "two", "strange": "", "far": "", ".": ""} {
		if got := session.GitBranch(filepath.Join(root, dir)); got != want {
			t.Errorf("%s: got %q, want %q", dir, got, want)
		}
	}
}
