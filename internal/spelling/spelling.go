// Package spelling suggests a name for a misspelled one.
//
// It only compares words, and must not depend on the meaning of the names.
package spelling

import (
	"cmp"
	"slices"
	"strings"
)

// synonyms are words of other programs, with our name for each.
var synonyms = map[string]string{"listen": "addr", "bind": "addr", "address": "addr", "port": "addr"}

// Closest returns the names that are closest to a word, if any is close.
func Closest(word string, names []string) string {
	if name := synonyms[word]; name != "" && slices.Contains(names, name) && !slices.Contains(names, word) {
		return name
	}
	fold := func(s string) string { return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(s)) }
	type near struct {
		name string
		far  int
	}
	var all []near
	for _, name := range names {
		far := distance(fold(word), fold(name))
		if strings.HasPrefix(name, word+"-") {
			far = 1 // only the first word of two
		}
		if far <= max(1, len(name)/4) && far < len(name) {
			all = append(all, near{name, far})
		}
	}
	slices.SortStableFunc(all, func(a, b near) int { return cmp.Compare(a.far, b.far) })
	var out []string
	for _, n := range all {
		if n.far == all[0].far {
			out = append(out, n.name)
		}
	}
	return strings.Join(out, " or ")
}

// distance counts the letters to insert, remove, replace or swap with the next to
// turn a into b.
func distance(a, b string) int {
	prev2, prev := []int(nil), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur := make([]int, len(b)+1)
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev = prev, cur
	}
	return prev[len(b)]
}
