package files

import (
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// A Hunk is one place where two versions of a file differ, as programs get it.
type Hunk struct {
	OldStart int      `json:"oldStart"`
	OldLines int      `json:"oldLines"`
	NewStart int      `json:"newStart"`
	NewLines int      `json:"newLines"`
	Lines    []string `json:"lines"` // each with " ", "-" or "+" before it
}

// contextLines is how many lines are shown around a change.
const contextLines = 3

// The sizes up to which programs get what an edit changed. A difference of many lines
// takes many times their size in memory.
const (
	maxOriginal = 8 << 20 // bytes of the file as it was
	maxPatch    = 2 << 20 // bytes in which two versions differ, both together
	maxChanged  = 40_000  // lines in which they do
)

// Original returns what a file was, for programs; nil if that is too much.
func Original(content string) *string {
	if len(content) > maxOriginal {
		return nil
	}
	content = strings.ToValidUTF8(content, "\ufffd")
	return &content
}

// Patch returns where two versions of a text differ, never nil. It is empty if they
// differ in too much.
func Patch(before, after string) []Hunk {
	hunks := []Hunk{}
	if before == after {
		return hunks
	}
	// Equal lines at both ends are cut off, except for the lines to show, so that
	// a small change of a big file costs little.
	head := commonLines(before, after)
	skipped := strings.Count(before[:head], "\n")
	before, after = before[head:], after[head:]
	tail := commonTail(before, after)
	before, after = before[:len(before)-tail], after[:len(after)-tail]
	if len(before)+len(after) > maxPatch || strings.Count(before, "\n")+strings.Count(after, "\n") > maxChanged {
		return hunks
	}

	diff, err := udiff.ToUnifiedDiff("", "", before, udiff.Lines(before, after), contextLines)
	if err != nil {
		return hunks
	}
	for _, h := range diff.Hunks {
		hunk := Hunk{OldStart: skipped + h.FromLine, NewStart: skipped + h.ToLine, Lines: []string{}}
		for _, l := range h.Lines {
			sign := " "
			switch l.Kind {
			case udiff.Delete:
				sign = "-"
				hunk.OldLines++
			case udiff.Insert:
				sign = "+"
				hunk.NewLines++
			default:
				hunk.OldLines++
				hunk.NewLines++
			}
			line, ended := strings.CutSuffix(l.Content, "\n")
			hunk.Lines = append(hunk.Lines, strings.ToValidUTF8(sign+line, "\ufffd"))
			if !ended {
				hunk.Lines = append(hunk.Lines, `\ No newline at end of file`)
			}
		}
		hunks = append(hunks, hunk)
	}
	return hunks
}

// commonLines returns how many bytes of whole lines both begin with, less the
// lines that are shown before a change.
func commonLines(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return lineBack(a[:n], contextLines+1)
}

// lineBack returns where the line begins that is so many lines before the end of
// the text; one is the line that the text ends in.
func lineBack(text string, lines int) int {
	at := len(text)
	for range lines {
		i := strings.LastIndexByte(text[:at], '\n')
		if i < 0 {
			return 0
		}
		at = i
	}
	return at + 1
}

// commonTail returns how many bytes of whole lines both end with, less the lines
// that are shown after a change.
func commonTail(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	tail := a[len(a)-n:]
	// The first line of the tail may be a part of one; then come those to show.
	for range contextLines + 1 {
		i := strings.IndexByte(tail, '\n')
		if i < 0 {
			return 0
		}
		tail = tail[i+1:]
	}
	return len(tail)
}
