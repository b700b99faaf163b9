package policy

import (
	"path/filepath"
	"slices"

	"github.com/parley-go/parley/engine/policy/shell"
	"github.com/parley-go/parley/engine/tool"
)

// vitalRemoved returns a vital directory that a command removes, or empties, or would if a variable
// is empty. It returns "" if there is none. A command that only might be one of several is not
// considered: bypassPermissions exists for callers who accept that.
func (j *judgement) vitalRemoved() string {
	for _, a := range j.req.Access {
		if a.Kind != tool.Execute {
			continue
		}
		s := j.script(a.Command)
		for i, f := range s.Files {
			if !f.Gone || f.Loose || f.Owner != nil && f.Owner.Guess {
				continue
			}
			for _, w := range j.word(s, i) {
				if path := vitalIn(&j.disk, s, &w); path != "" {
					return path
				}
			}
		}
	}
	return ""
}

// vitalIn returns a vital directory that a word stands for, or whose content it stands for.
func vitalIn(j *disk, s *shell.Script, w *seenWord) string {
	for _, p := range w.paths {
		if !p.away && j.isVital(p.clean) {
			return p.clean
		}
	}
	if len(w.Pat) > 1 && w.Pat[0] == shell.AnyText {
		if rest := cleanPattern(w.Pat[1:]); slices.Equal(rest, []rune("/")) || slices.Equal(rest, []rune{'/', shell.AnyName}) {
			return "/" // "$DIR"/ and "$DIR"/* if the variable is empty
		}
	}
	if len(w.Pat) == 0 || w.Pat[len(w.Pat)-1] != shell.AnyName {
		return ""
	}
	for _, pat := range absolutePatterns(s, w.Pat, false) {
		n := len(pat) - 2
		if n < 0 || pat[n] != '/' || slices.ContainsFunc(pat[:n], func(r rune) bool { return r < 0 }) {
			continue
		}
		if dir := filepath.Clean(string(pat[:n+1])); j.isVital(dir) {
			return dir
		}
	}
	return ""
}

// isVital reports whether a path is the root of the file system or directly in it, or contains the
// home or a working directory, or is one.
func (j *disk) isVital(path string) bool {
	parent := filepath.Dir(path)
	if filepath.Dir(parent) == parent {
		return true
	}
	real := filepath.Join(j.resolve(parent), filepath.Base(path)) // rm does not follow the last link
	for _, dir := range append([]string{j.req.Home, j.req.cwd()}, j.req.Roots...) {
		if dir != "" && (below(path, dir) || below(real, j.resolve(dir))) {
			return true
		}
	}
	return false
}
