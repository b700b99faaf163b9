package parleytest

import (
	"fmt"
	"strings"
)

// lineDiff shows how two texts differ, line by line: "- " for lines only in
// want, "+ " for lines only in got, and up to context equal lines around them.
func lineDiff(want, got string, context int) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	// Equal prefixes and suffixes need no table, and a table of two long texts
	// would be huge.
	pre := 0
	for pre < len(a) && pre < len(b) && a[pre] == b[pre] {
		pre++
	}
	post := 0
	for post < len(a)-pre && post < len(b)-pre && a[len(a)-1-post] == b[len(b)-1-post] {
		post++
	}
	type edit struct {
		mark byte
		line string
	}
	var edits []edit
	for _, l := range a[:pre] {
		edits = append(edits, edit{' ', l})
	}
	am, bm := a[pre:len(a)-post], b[pre:len(b)-post]
	if len(am)*len(bm) > 4<<20 {
		for _, l := range am {
			edits = append(edits, edit{'-', l})
		}
		for _, l := range bm {
			edits = append(edits, edit{'+', l})
		}
	} else {
		// common[i][j] is the length of the longest common part of am[i:], bm[j:].
		common := make([][]int, len(am)+1)
		for i := range common {
			common[i] = make([]int, len(bm)+1)
		}
		for i := len(am) - 1; i >= 0; i-- {
			for j := len(bm) - 1; j >= 0; j-- {
				if am[i] == bm[j] {
					common[i][j] = common[i+1][j+1] + 1
				} else {
					common[i][j] = max(common[i+1][j], common[i][j+1])
				}
			}
		}
		i, j := 0, 0
		for i < len(am) || j < len(bm) {
			switch {
			case i < len(am) && j < len(bm) && am[i] == bm[j]:
				edits = append(edits, edit{' ', am[i]})
				i++
				j++
			case j == len(bm) || i < len(am) && common[i+1][j] >= common[i][j+1]:
				edits = append(edits, edit{'-', am[i]})
				i++
			default:
				edits = append(edits, edit{'+', bm[j]})
				j++
			}
		}
	}
	for _, l := range a[len(a)-post:] {
		edits = append(edits, edit{' ', l})
	}
	near := make([]bool, len(edits))
	for i, e := range edits {
		if e.mark != ' ' {
			for k := max(0, i-context); k <= min(len(edits)-1, i+context); k++ {
				near[k] = true
			}
		}
	}
	var out strings.Builder
	skipped := 0
	for i, e := range edits {
		if !near[i] {
			skipped++
			continue
		}
		if skipped > 0 {
			fmt.Fprintf(&out, "  … %d equal lines\n", skipped)
			skipped = 0
		}
		fmt.Fprintf(&out, "%c %s\n", e.mark, shorten(e.line, 2000))
	}
	return out.String()
}
