package files

import (
	"path/filepath"
	"strings"
)

// Similar finds a file beside a missing one with nearly the same name, or with another
// extension. It returns "" if there is none.
func (p *Place) Similar() string {
	if len(p.missing) > 0 {
		return ""
	}
	dir, base := filepath.Split(p.Path)
	f, err := p.dir.Open(".")
	if err != nil {
		return ""
	}
	defer f.Close()
	names, _ := f.Readdirnames(1000)
	stem := strings.TrimSuffix(base, filepath.Ext(base))
	best, score := "", 3
	for _, name := range names {
		if p.env.Hidden != nil && p.env.Hidden(filepath.Join(dir, name), nil) {
			continue
		}
		d := distance(strings.ToLower(base), strings.ToLower(name), score)
		if stem != "" && stem == strings.TrimSuffix(name, filepath.Ext(name)) {
			d = min(d, 1)
		}
		if d < score || d == score && best != "" && name < best {
			best, score = name, d
		}
	}
	if best == "" || score*3 > len(base) {
		return ""
	}
	return filepath.Join(dir, best)
}

// distance counts the edits between two names, up to a limit.
func distance(a, b string, bound int) int {
	if d := len(a) - len(b); d > bound || -d > bound {
		return bound + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost = 1 + min(diagonal, row[j], row[j-1])
			}
			diagonal, row[j] = row[j], cost
		}
	}
	return row[len(b)]
}
