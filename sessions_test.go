package parley_test

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/parley-go/parley"
)

// TestSessionsDir checks that the sessions are in the home of the user, which Windows
// calls USERPROFILE, or in CLAUDE_CONFIG_DIR.
func TestSessionsDir(t *testing.T) {
	home, profile, config := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("USERPROFILE", profile)
	t.Setenv("CLAUDE_CONFIG_DIR", "")
	want := filepath.Join(home, ".claude")
	if runtime.GOOS == "windows" {
		want = filepath.Join(profile, ".claude")
	}
	if got := parley.Sessions().Dir; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	t.Setenv("CLAUDE_CONFIG_DIR", config)
	if got := parley.Sessions().Dir; got != config {
		t.Errorf("%s, want %s", got, config)
	}
}
