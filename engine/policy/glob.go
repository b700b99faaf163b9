package policy

import (
	"path/filepath"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/parley-go/parley/engine/policy/shell"
)

// A glob is a pattern of absolute paths. It is split so that most paths can be rejected
// without a full match. Everything below a matching path matches, too.
type glob struct {
	text       string
	prefix     string // prefix of every matching path
	literal    bool   // the pattern is a single path
	all        bool   // the pattern is base/**: a directory and everything below it
	anyDepth   bool   // the pattern is base/**/name: a name at any depth, like most rules
	base, name string
	namePrefix string // prefix of every matching name
	upper      bool   // the pattern contains upper case
	fixed      string // the leading directories, or the whole path, without a wildcard
	clean      string // text, cleaned
	rest       string // the part after fixed
	runes      []rune // result of overlap; set if several decisions share the glob
	top        string // result of atTop; may be empty
}

// overlap returns the pattern of everything below the matching paths, for
// [shell.Overlap]. Without its last two runes it is the pattern itself.
func (g *glob) overlap() []rune {
	if g.runes == nil {
		g.runes = append(globRunes(g.text), '/', shell.AnyText)
	}
	return g.runes
}

// atTop returns the pattern of a name at any depth for the topmost one, and any other pattern
// unchanged.
func (g *glob) atTop() string {
	if g.top != "" {
		return g.top
	}
	return strings.Replace(g.text, "/**/", "/", 1)
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
	if base, name, ok := strings.Cut(strings.TrimSuffix(g.text, "/**"), "/**/"); ok &&
		literal(base) && name != "" && !strings.Contains(name, "/") && !strings.Contains(name, "**") {
		g.anyDepth, g.base, g.name, g.namePrefix = true, base, name, literalPrefix(name)
	}
	return g
}

// matchGlob matches a path against a pattern.
func matchGlob(pattern, path string) bool { return newGlob(pattern).match(path) }

// match reports whether a path matches, or is below one that does.
func (g *glob) match(path string) bool {
	if g.text == "" {
		return true // matches everything
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

// matchName reports whether an element of a path matches the name of an anyDepth pattern.
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

// matchFolded reports whether a path matches only if case is ignored.
func (g *glob) matchFolded(path string) bool {
	if !beginsFolded(path, g.prefix) || !g.upper && !hasUpper(path) {
		return false // by far the most common case
	}
	if g.anyDepth && !g.mayFold(path) {
		return false
	}
	return matchGlob(strings.ToLower(g.text), strings.ToLower(path))
}

// mayFold reports whether an element of a path starts like the name of the pattern,
// ignoring case.
func (g *glob) mayFold(path string) bool {
	for part := range strings.SplitSeq(path[min(len(g.base), len(path)):], "/") {
		if beginsFolded(part, g.namePrefix) {
			return true
		}
	}
	return false
}

func beginsFolded(s, prefix string) bool {
	return strings.HasPrefix(s, prefix) || len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// hasUpper reports whether a text may differ in lower case.
func hasUpper(text string) bool {
	for i := range len(text) {
		if c := text[i]; c >= 'A' && c <= 'Z' || c >= 0x80 {
			return true
		}
	}
	return false
}

// literalPrefix returns the prefix of every path that matches a pattern, without a
// trailing slash: "x/**" matches x, too.
func literalPrefix(pattern string) string {
	if i := strings.IndexAny(pattern, `*?[{\`); i >= 0 {
		pattern = pattern[:i]
	}
	return strings.TrimRight(pattern, "/")
}
