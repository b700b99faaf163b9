package shell

import "strings"

// joinLines takes out a backslash and the line break behind it where bash does, and
// comments, so that a parser need not know the places where it does not: in single
// quotes, in comments, in documents whose end is quoted. It reports false, and returns
// the text as it is, where a simple scan cannot tell: then nothing may be proved.
func joinLines(text string) (string, bool) {
	if !strings.Contains(text, "\\\n") {
		return text, true
	}
	// Quotes inside of what stands in quotes are read in other ways. An operator that is
	// in two parts may begin a document.
	joined := strings.ReplaceAll(text, "\\\n", "")
	for _, hard := range []string{"`", "$'", `$"`, "((", ")#"} {
		if strings.Contains(joined, hard) {
			return text, false
		}
	}
	if strings.Contains(text, "<\\\n") {
		return text, false
	}
	// In brackets of these kinds a # may begin no comment.
	l := &lineJoiner{text: text, brackets: strings.Contains(joined, "${") || strings.Contains(joined, "[")}
	for l.pos < len(text) {
		if !l.step() {
			return text, false
		}
	}
	return l.out.String(), l.quote == 0 && len(l.documents) == 0
}

// A lineJoiner is a scan of a command, in one quote or none.
type lineJoiner struct {
	text      string
	pos       int
	out       strings.Builder
	quote     byte           // ', " or 0
	last      byte           // what was written last, outside of quotes
	brackets  bool           // whether there are brackets in which a # is a character
	documents []documentMark // that begin on this line
}

// A documentMark is the end of a document that a line begins.
type documentMark struct {
	end    string
	tabs   bool // whether tabs before lines do not count
	quoted bool
}

func (l *lineJoiner) put(b byte) {
	l.out.WriteByte(b)
	l.last = b
	l.pos++
}

// step takes the next character. It reports false if it cannot tell what follows.
func (l *lineJoiner) step() bool {
	c := l.text[l.pos]
	next := byte(0)
	if l.pos+1 < len(l.text) {
		next = l.text[l.pos+1]
	}
	if l.quote == '\'' {
		if c == '\'' {
			l.quote = 0
		}
		l.put(c)
		return true
	}
	switch {
	case c == '\\' && next == '\n':
		l.pos += 2
	case c == '\\' && next != 0:
		l.put(c)
		l.put(next)
		l.last = 'x'
	case l.quote == '"':
		if c == '"' {
			l.quote = 0
		}
		l.put(c)
		// A substitution has quotes of its own.
		rest := l.text[l.pos:]
		for strings.HasPrefix(rest, "\\\n") {
			rest = rest[2:]
		}
		return c != '$' || !strings.HasPrefix(rest, "(") && !strings.HasPrefix(rest, "{")
	case c == '\'' || c == '"':
		l.quote = c
		l.put(c)
	case c == '#' && (l.last == 0 || strings.IndexByte(" \t\n;&|()<>", l.last) >= 0):
		if l.brackets || l.last == '(' {
			return false
		}
		for l.pos < len(l.text) && l.text[l.pos] != '\n' {
			l.pos++
		}
	case c == '<' && next == '<':
		return l.document()
	case c == '\n' && len(l.documents) > 0:
		l.put(c)
		return l.bodies()
	default:
		l.put(c)
	}
	return true
}

// document takes the beginning of a document: << and its end, or <<< and nothing more.
func (l *lineJoiner) document() bool {
	l.put('<')
	l.put('<')
	if strings.HasPrefix(l.text[l.pos:], "<") {
		l.put('<')
		return true
	}
	m := documentMark{}
	if strings.HasPrefix(l.text[l.pos:], "-") {
		m.tabs = true
		l.put('-')
	}
	for l.pos < len(l.text) && (l.text[l.pos] == ' ' || l.text[l.pos] == '\t') {
		l.put(l.text[l.pos])
	}
	quote := byte(0)
	if l.pos < len(l.text) && (l.text[l.pos] == '\'' || l.text[l.pos] == '"') {
		quote = l.text[l.pos]
		m.quoted = true
		l.put(quote)
	}
	start := l.pos
	for l.pos < len(l.text) && strings.IndexByte(nameBytes, l.text[l.pos]) >= 0 {
		l.put(l.text[l.pos])
	}
	if m.end = l.text[start:l.pos]; m.end == "" {
		return false
	}
	if quote != 0 {
		if l.pos == len(l.text) || l.text[l.pos] != quote {
			return false
		}
		l.put(quote)
	}
	// Nothing may be joined to the end.
	if l.pos < len(l.text) && strings.IndexByte(" \t\n;&|)<>", l.text[l.pos]) < 0 {
		return false
	}
	l.documents = append(l.documents, m)
	return true
}

// bodies takes the documents that a line began.
func (l *lineJoiner) bodies() bool {
	for len(l.documents) > 0 {
		if l.pos >= len(l.text) {
			return false
		}
		line, _, whole := strings.Cut(l.text[l.pos:], "\n")
		m := l.documents[0]
		if !m.quoted && strings.HasSuffix(line, "\\") {
			return false
		}
		for range len(line) {
			l.put(l.text[l.pos])
		}
		if whole {
			l.put('\n')
		}
		if m.tabs {
			line = strings.TrimLeft(line, "\t")
		}
		if line == m.end {
			l.documents = l.documents[1:]
		}
	}
	return true
}
