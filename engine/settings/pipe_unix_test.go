//go:build unix

package settings

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe among the files of a project does not block. Unreadable settings are an error
// because they may contain restrictions; .mcp.json cannot.
func TestPipesInAProject(t *testing.T) {
	for name, want := range map[string]string{".mcp.json": "", ".claude/settings.json": "not a regular file", ".claude/settings.local.json": "not a regular file"} {
		dir := t.TempDir()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Load(Options{Dir: dir, Sources: Sources{Project: true, Local: true}})
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", name, err, want)
		case want == "" && (err != nil || len(s.Servers()) > 0):
			t.Errorf("%s: %v, want no servers and no error", name, err)
		}
	}
}
