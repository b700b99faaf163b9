//go:build unix

package project_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/parley-go/parley/engine/project"
)

// A pipe without a writer does not block anything.
func TestPipe(t *testing.T) {
	dir := tree(t, map[string]string{".claude/commands/x.md": "x"})
	for _, name := range []string{"CLAUDE.md", ".claude/commands/p.md", ".claude/skills"} {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o666); err != nil {
			t.Skip(err)
		}
	}
	c := project.Load(project.Options{Cwd: dir, Sources: all})
	if len(c.Commands) != 1 || !strings.Contains(problems(c), "named pipe") {
		t.Errorf("%d commands\n%s", len(c.Commands), problems(c))
	}
}
