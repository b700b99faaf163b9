package search

import (
	"path"
	"strings"
)

// A rule is one line of an ignore file.
type rule struct {
	pattern string // without the parts that the fields below represent
	include bool   // it starts with !
	dirOnly bool   // it ends in /
	anchor  bool   // it contains a slash before its end: it is matched against the whole path
	plain   bool   // it contains no special characters
	suffix  string // suffix of the base name, for "*.o"
}

// rules are the lines of one ignore file; a later one wins.
type rules []rule

// parseRules parses an ignore file.
func parseRules(data string) rules {
	var list rules
	data = strings.TrimPrefix(data, "\ufeff")
	for line := range strings.Lines(data) {
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if r, ok := parseRule(line); ok {
			list = append(list, r)
		}
	}
	return list
}

func parseRule(line string) (rule, bool) {
	var r rule
	if line == "" || line[0] == '#' {
		return r, false
	}
	line = trimSpaces(line)
	if rest, ok := strings.CutPrefix(line, "!"); ok {
		r.include, line = true, rest
	}
	if rest, ok := strings.CutSuffix(line, "/"); ok {
		r.dirOnly, line = true, rest
	}
	if line == "" {
		return r, false
	}
	r.anchor = strings.Contains(line, "/")
	line = strings.TrimPrefix(line, "/")
	r.pattern = line
	r.plain = !strings.ContainsAny(line, `*?[\`)
	if rest, ok := strings.CutPrefix(line, "*"); ok && !r.anchor && rest != "" && !strings.ContainsAny(rest, `*?[\`) {
		r.suffix = rest
	}
	return r, true
}

// trimSpaces removes trailing spaces that are not escaped.
func trimSpaces(s string) string {
	end := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ':
		case '\\':
			i++
			end = i + 1
		default:
			end = i + 1
		}
	}
	return s[:min(end, len(s))]
}

// match reports whether the rules ignore a path, or include it again; decided is false
// if none of them matches. The path is relative to the directory of the ignore file.
func (rs rules) match(name string, dir bool) (ignored, decided bool) {
	base := path.Base(name)
	for i := len(rs) - 1; i >= 0; i-- {
		r := &rs[i]
		if r.dirOnly && !dir {
			continue
		}
		var hit bool
		switch {
		case r.suffix != "":
			hit = strings.HasSuffix(base, r.suffix)
		case r.anchor && r.plain:
			hit = name == r.pattern
		case r.plain:
			hit = base == r.pattern
		case r.anchor:
			hit = wildmatch(r.pattern, name)
		default:
			hit = wildmatch(r.pattern, base)
		}
		if hit {
			return !r.include, true
		}
	}
	return false, false
}

// wildmatch matches a path as git does: a star does not match a slash, but two do if
// they stand for whole directories.
func wildmatch(p, s string) bool { return wild(p, s, true) == matched }

type verdict int

const (
	matched  verdict = iota
	missed           // at this position
	hopeless         // wherever the last star ends
	toSlash          // wherever the last star ends, unless it may match a slash
)

// wild is the recursion of wildmatch. start is set if p starts after a slash or at the
// beginning.
func wild(p, s string, start bool) verdict {
	for len(p) > 0 {
		c := p[0]
		if len(s) == 0 && c != '*' {
			return hopeless
		}
		switch c {
		case '\\':
			if len(p) < 2 {
				return hopeless
			}
			if p[1] != s[0] {
				return missed
			}
			start = p[1] == '/'
			p, s = p[2:], s[1:]
			continue
		case '?':
			if s[0] == '/' {
				return missed
			}
		case '*':
			return star(p, s, start)
		case '[':
			rest, ok, valid := class(p, s[0])
			if !valid {
				return hopeless
			}
			if !ok || s[0] == '/' {
				return missed
			}
			p, s, start = rest, s[1:], false
			continue
		default:
			if c != s[0] {
				return missed
			}
		}
		start = c == '/'
		p, s = p[1:], s[1:]
	}
	if len(s) > 0 {
		return missed
	}
	return matched
}

// star is wild for a pattern that begins with a star.
func star(p, s string, start bool) verdict {
	rest := strings.TrimLeft(p, "*")
	slashes := false // the star may match slashes
	if len(p)-len(rest) > 1 && start && (rest == "" || rest[0] == '/' || strings.HasPrefix(rest, `\/`)) {
		slashes = true
		// There may be no directories at all.
		if rest != "" && rest[0] == '/' && wild(rest[1:], s, true) == matched {
			return matched
		}
	}
	switch {
	case rest == "" && !slashes && strings.Contains(s, "/"):
		return toSlash
	case rest == "":
		return matched
	case !slashes && rest[0] == '/':
		_, after, ok := strings.Cut(s, "/")
		if !ok {
			return hopeless
		}
		return wild(rest[1:], after, true)
	}
	for ; ; s = s[1:] {
		if v := wild(rest, s, false); v == matched || v == hopeless || v == toSlash && !slashes {
			return v
		}
		if len(s) == 0 {
			return hopeless
		}
		if !slashes && s[0] == '/' {
			return toSlash
		}
	}
}

// class matches a byte against a bracket expression and returns what follows it.
func class(p string, c byte) (rest string, ok, valid bool) {
	i := 1
	negated := false
	if i < len(p) && (p[i] == '!' || p[i] == '^') {
		negated = true
		i++
	}
	first := true
	var previous byte
	for ; ; first = false {
		if i >= len(p) {
			return "", false, false
		}
		b := p[i]
		switch {
		case b == ']' && !first:
			return p[i+1:], ok != negated, true
		case b == '\\':
			i++
			if i >= len(p) {
				return "", false, false
			}
			ok = ok || p[i] == c
			previous = p[i]
			i++
		case b == '-' && previous != 0 && i+1 < len(p) && p[i+1] != ']':
			i++
			end := p[i]
			if end == '\\' {
				i++
				if i >= len(p) {
					return "", false, false
				}
				end = p[i]
			}
			ok = ok || previous <= c && c <= end
			previous = 0
			i++
		case b == '[' && i+1 < len(p) && p[i+1] == ':':
			j := strings.IndexByte(p[i+2:], ']')
			if j < 0 {
				return "", false, false
			}
			name := p[i+2 : i+2+j]
			if !strings.HasSuffix(name, ":") {
				// Not a named class: the bracket is literal.
				ok = ok || c == '['
				previous = '['
				i++
				continue
			}
			in, known := named(strings.TrimSuffix(name, ":"), c)
			if !known {
				return "", false, false
			}
			ok = ok || in
			previous = 0
			i += 2 + j + 1
		default:
			ok = ok || b == c
			previous = b
			i++
		}
	}
}

// named reports whether a byte is in a named class.
func named(name string, c byte) (in, known bool) {
	has := classes[name]
	return has != nil && has(c), has != nil
}

var classes = map[string]func(c byte) bool{
	"alnum":  func(c byte) bool { return isLetter(c) || isDigit(c) },
	"alpha":  isLetter,
	"blank":  func(c byte) bool { return c == ' ' || c == '\t' },
	"cntrl":  func(c byte) bool { return c < ' ' || c == 0x7f },
	"digit":  isDigit,
	"graph":  isGraph,
	"lower":  func(c byte) bool { return 'a' <= c && c <= 'z' },
	"print":  func(c byte) bool { return isGraph(c) || c == ' ' },
	"punct":  func(c byte) bool { return isGraph(c) && !isLetter(c) && !isDigit(c) },
	"space":  func(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' },
	"upper":  func(c byte) bool { return 'A' <= c && c <= 'Z' },
	"xdigit": func(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' },
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isGraph(c byte) bool  { return '!' <= c && c <= '~' }
