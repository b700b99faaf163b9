package project

import (
	"path/filepath"
	"strings"
)

// Limits of the index of notes that a session starts with.
const (
	maxNoteLines = 200
	maxNoteBytes = 25 << 10
)

// memory reads the index of the notes that the model keeps about the project. A link cannot
// lead out of their directory.
func (l *loader) memory() {
	dir := l.c.opts.MemoryDir
	if dir == "" {
		return
	}
	f := l.read(place{Memory, dir}, filepath.Join(dir, "MEMORY.md"), "memory")
	if f == nil {
		return
	}
	text, cut := f.Text, len(f.Text) > maxNoteBytes
	if cut {
		text = strings.ToValidUTF8(text[:maxNoteBytes], "")
	}
	if lines := strings.SplitAfterN(text, "\n", maxNoteLines+1); len(lines) > maxNoteLines {
		text, cut = strings.Join(lines[:maxNoteLines], ""), true
	}
	if cut {
		text = strings.TrimSpace(text) + "\n[The index is longer than what is shown here: shorten it.]"
	}
	f.Text = ""
	l.c.Memory = text
}
