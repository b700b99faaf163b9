package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

// TestResolvedIn checks that a path below a resolved directory resolves as it does from the
// root, with and without links.
func TestResolvedIn(t *testing.T) {
	dir := resolved(t.TempDir())
	for _, d := range []string{"real/sub", "home/.config"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	home := filepath.Join(dir, "home")
	for link, target := range map[string]string{".ssh": "../real", ".aws": "missing", ".config/gh": "../../real/sub"} {
		if err := os.Symlink(target, filepath.Join(home, link)); err != nil {
			t.Skip(err)
		}
	}
	for _, name := range []string{".ssh", ".ssh/id", ".ssh/sub/deep", ".aws", ".aws/config", ".config/gh", ".config/gh/hosts", ".config/none", ".none/at/all", ".config"} {
		if got, want := resolvedIn(home, name), resolved(filepath.Join(home, name)); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestEtcIsReadOnce checks that walls share the list of /etc, unless they hide something in it.
func TestEtcIsReadOnce(t *testing.T) {
	if _, err := os.Stat("/etc/hosts"); err != nil {
		t.Skip(err)
	}
	first := etcGrants(nil)
	if again := etcGrants([]string{"/home/x/.ssh"}); len(first) == 0 || &first[0] != &again[0] {
		t.Error("/etc was read again for the next wall")
	}
	hidden := resolved("/etc/hosts")
	for _, g := range etcGrants([]string{hidden}) {
		if g.right >= toRead && within(g.path, hidden) {
			t.Errorf("%s is hidden, and %s is granted", hidden, g.path)
		}
	}
}
