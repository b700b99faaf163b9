package shell

import "strings"

// joinLines removes comments, and each backslash with the line break after it where bash
// does, so that a parser need not handle the places where bash does not: single quotes,
// comments, and here-documents with a quoted delimiter. It returns false and the
// unchanged text if a simple scan cannot decide; then nothing may be proved.
func joinLines(text string) (string, bool) {
	if !strings.Contains(text, "\\\n") {
		return text, true
	}
	// Nested quotes follow other rules. An operator that is split in two may start a
	// here-document.
	joined := strings.ReplaceAll(text, "\\\n", "")
	for _, hard := range []string{"`", "$'", `$"`, "((", ")#"} {
		if strings.Contains(joined, hard) {
			return text, false
		}
	}
	if strings.Contains(text, "<\\\n") {
		return text, false
	}
	// Inside of these brackets a # may not start a comment.
	l := &lineJoiner{text: text, brackets: strings.Contains(joined, "${") || strings.Contains(joined, "[")}
	for l.pos < len(text) {
		if !l.step() {
			return text, false
		}
	}
	return l.out.String(), l.quote == 0 && len(l.documents) == 0
}

// A lineJoiner scans a command, inside of at most one quote.
type lineJoiner struct {
	text      string
	pos       int
	out       strings.Builder
	quote     byte           // ', " or 0
	last      byte           // last byte written outside of quotes
	brackets  bool           // there are brackets in which a # is a character
	documents []documentMark // here-documents that start on this line
}

// A documentMark is the delimiter of a here-document that a line starts.
type documentMark struct {
	end    string
	tabs   bool // leading tabs are removed
	quoted bool
}

func (l *lineJoiner) put(b byte) {
	l.out.WriteByte(b)
	l.last = b
	l.pos++
}

// step handles the next character. It returns false if what follows is ambiguous.
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
		// A substitution has its own quotes.
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

// document handles the start of a here-document: << and its delimiter, or just <<<.
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
	// Nothing may be attached to the delimiter.
	if l.pos < len(l.text) && strings.IndexByte(" \t\n;&|)<>", l.text[l.pos]) < 0 {
		return false
	}
	l.documents = append(l.documents, m)
	return true
}

// bodies handles the here-documents that a line started.
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
