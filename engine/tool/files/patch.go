package files

import (
	"strings"

	"github.com/aymanbagabas/go-udiff"
)

// A Hunk is one difference between two versions of a file, in structured results.
type Hunk struct {
	OldStart int      `json:"oldStart"`
	OldLines int      `json:"oldLines"`
	NewStart int      `json:"newStart"`
	NewLines int      `json:"newLines"`
	Lines    []string `json:"lines"` // each with " ", "-" or "+" before it
}

// contextLines is how many lines are shown around a change.
const contextLines = 3

// Size limits for reporting the changes of an edit. A difference of many lines needs a
// multiple of their size in memory.
const (
	maxOriginal = 8 << 20 // bytes of the original file
	maxPatch    = 2 << 20 // total bytes in which two versions differ
	maxChanged  = 40_000  // number of lines in which they differ
)

// Original returns the original content of a file for structured results, or nil if it
// is too large.
func Original(content string) *string {
	if len(content) > maxOriginal {
		return nil
	}
	content = strings.ToValidUTF8(content, "\ufffd")
	return &content
}

// Patch returns the differences between two versions of a text, never nil. It is empty
// if they differ too much.
func Patch(before, after string) []Hunk {
	hunks := []Hunk{}
	if before == after {
		return hunks
	}
	// Equal lines at both ends are removed, except for the context lines, so that a
	// small change of a large file costs little.
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

// commonLines returns the length in bytes of the common leading lines, without the
// context lines before a change.
func commonLines(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return lineBack(a[:n], contextLines+1)
}

// lineBack returns the start of the line that is the given number of lines before the
// end of the text; one is the last line.
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

// commonTail returns the length in bytes of the common trailing lines, without the
// context lines after a change.
func commonTail(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	tail := a[len(a)-n:]
	// The first line of the tail may be incomplete; the context lines follow.
	for range contextLines + 1 {
		i := strings.IndexByte(tail, '\n')
		if i < 0 {
			return 0
		}
		tail = tail[i+1:]
	}
	return len(tail)
}
