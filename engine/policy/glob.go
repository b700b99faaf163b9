package policy

import (
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/parley-go/parley/engine/policy/shell"
)

// A glob is a pattern of absolute paths, split so that most paths are found not to
// match without looking at all of it. Everything below a matching path matches, too.
type glob struct {
	text       string
	prefix     string // every path that fits begins with it
	literal    bool   // whether the pattern is one path
	all        bool   // whether it is base/**: what is below a directory, and that itself
	anyDepth   bool   // whether it is base/**/name: a name at any depth, as most rules are
	base, name string
	namePrefix string // every name that fits begins with it
	upper      bool   // whether it has other case
	fixed      string // the directories, or the whole path, that no character of a pattern is in
	clean      string // the same without what means nothing
	rest       string // what follows these
	runes      []rune // see overlap; may be nil
}

// overlap returns the pattern of what is below the paths that fit, for [shell.Overlap].
// Without its last two it is the pattern itself.
func (g *glob) overlap() []rune {
	if g.runes != nil {
		return g.runes
	}
	return append(globRunes(g.text), '/', shell.AnyText)
}

func newGlob(pattern string) *glob {
	g := &glob{text: strings.TrimSuffix(pattern, "/"), prefix: literalPrefix(pattern), literal: literal(pattern), upper: hasUpper(pattern), fixed: pattern}
	if !g.literal {
		base, rest := doublestar.SplitPattern(pattern)
		g.fixed, g.rest = unescape(base), rest
		g.all = rest == "**" && g.fixed == g.prefix
	}
	g.clean = filepath.Clean(g.fixed)
	// Paths below the name match at any depth.
	if base, name, ok := strings.Cut(strings.TrimSuffix(g.text, "/**"), "/**/"); ok && literal(base) && name != "" && !strings.Contains(name, "/") && !strings.Contains(name, "**") {
		g.anyDepth, g.base, g.name, g.namePrefix = true, base, name, literalPrefix(name)
	}
	return g
}

// matchGlob matches a path against a pattern.
func matchGlob(pattern, path string) bool { return newGlob(pattern).match(path) }

// match reports whether a path fits, or is below one that does.
func (g *glob) match(path string) bool {
	if g.text == "" {
		return true // everything
	}
	path = filepath.ToSlash(path)
	rest, ok := strings.CutPrefix(path, g.prefix)
	switch {
	case !ok:
		return false
	case g.literal, g.all:
		return rest == "" || rest[0] == '/'
	case g.anyDepth:
		return strings.HasPrefix(path[len(g.base):], "/") && g.matchName(path[len(g.base)+1:])
	}
	if ok, err := doublestar.Match(g.text, path); err == nil && ok {
		return true
	}
	if strings.HasSuffix(g.text, "/**") {
		return false
	}
	ok, err := doublestar.Match(g.text+"/**", path)
	return err == nil && ok
}

// matchName reports whether a part of a path is the name of a pattern at any depth.
func (g *glob) matchName(rest string) bool {
	for {
		part, after, more := strings.Cut(rest, "/")
		if strings.HasPrefix(part, g.namePrefix) {
			if len(g.namePrefix) == len(g.name) {
				if len(part) == len(g.name) {
					return true
				}
			} else if ok, err := doublestar.Match(g.name, part); err == nil && ok {
				return true
			}
		}
		if !more {
			return false
		}
		rest = after
	}
}

// matchFolded matches a path in other case, and only in other case.
func (g *glob) matchFolded(path string) bool {
	if !beginsFolded(path, g.prefix) || !g.upper && !hasUpper(path) {
		return false // by far the most
	}
	if g.anyDepth && !g.mayFold(path) {
		return false
	}
	return matchGlob(strings.ToLower(g.text), strings.ToLower(path))
}

// mayFold reports whether a part of a path begins as the name of a pattern does, in other
// case.
func (g *glob) mayFold(path string) bool {
	for part := range strings.SplitSeq(path[min(len(g.base), len(path)):], "/") {
		if beginsFolded(part, g.namePrefix) {
			return true
		}
	}
	return false
}

func beginsFolded(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// hasUpper reports whether a text may be written in other case.
func hasUpper(text string) bool {
	for i := range len(text) {
		if c := text[i]; c >= 'A' && c <= 'Z' || c >= 0x80 {
			return true
		}
	}
	return false
}

// literalPrefix returns what every path begins with that fits a pattern, without a slash
// at its end: "x/**" is x, too.
func literalPrefix(pattern string) string {
	if i := strings.IndexAny(pattern, `*?[{\`); i >= 0 {
		pattern = pattern[:i]
	}
	return strings.TrimRight(pattern, "/")
}
