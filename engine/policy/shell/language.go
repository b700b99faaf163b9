package shell

import (
	"strings"
)

// sedEffect handles a script of sed.
func sedEffect(a *argv, w Word, i, at int) {
	if w.none() {
		return
	}
	if !w.Static() {
		a.s.blurOnly("what sed does is only known at run time")
		a.riskIf(true, at)
		return
	}
	if plainSed(w.Text()) {
		return
	}
	a.acts()
	a.c.risk(at, "its script")
	a.s.blurOnly("Parley cannot tell what this sed script does")
	for w := range strings.FieldsFuncSeq(w.Text(), func(r rune) bool { return strings.ContainsRune(" ;{}\n", r) }) {
		a.s.addFile(File{Word: Literal(w), Kind: Write, Via: "sed", Loose: true})
	}
}

// plainSed reports whether a script of sed certainly neither runs, reads nor writes
// anything. It parses the whole script; a command, an address or a flag that is not
// listed here is not plain.
func plainSed(script string) bool {
	p := &sedParser{rest: script}
	for {
		p.rest = strings.TrimLeft(p.rest, " \t\n;")
		if p.rest == "" {
			return p.depth == 0
		}
		if !p.command() {
			return false
		}
	}
}

// A sedParser parses a script of sed.
type sedParser struct {
	rest  string
	depth int // of braces
}

// command parses one command with its addresses.
func (p *sedParser) command() bool {
	if p.rest[0] == '#' {
		_, p.rest, _ = strings.Cut(p.rest, "\n")
		return true
	}
	if !p.addresses() || p.rest == "" {
		return false
	}
	c := p.rest[0]
	p.rest = p.rest[1:]
	switch c {
	case '{':
		p.depth++
		return true
	case '}':
		p.depth--
		return p.depth >= 0 && p.ends()
	case 'p', 'd', 'D', 'P', 'N', 'n', 'G', 'g', 'h', 'H', 'x', '=', 'z':
		return p.ends()
	case 'q', 'Q', 'l':
		p.rest = strings.TrimLeft(p.rest, " 0123456789")
		return p.ends()
	case 's', 'y':
		return p.substitution(c)
	case 'b', 't', 'T', ':':
		i := strings.IndexAny(p.rest, ";}\n")
		if i < 0 {
			i = len(p.rest)
		}
		label := strings.TrimSpace(p.rest[:i])
		p.rest = p.rest[i:]
		return label == "" || consistsOf(label, nameBytes)
	}
	return false
}

// ends reports whether a command ends here.
func (p *sedParser) ends() bool {
	p.rest = strings.TrimLeft(p.rest, " \t")
	return p.rest == "" || strings.IndexByte(";\n}", p.rest[0]) >= 0
}

// addresses parses the addresses of a command: numbers, $, /expressions/ and steps.
func (p *sedParser) addresses() bool {
	for first := true; ; first = false {
		p.rest = strings.TrimLeft(p.rest, " \t")
		if !first {
			rest, ok := strings.CutPrefix(p.rest, ",")
			if !ok {
				break
			}
			p.rest = strings.TrimLeft(rest, " \t+~")
		}
		switch {
		case p.rest == "":
			return false
		case p.rest[0] == '/':
			p.rest = p.rest[1:]
			if _, ok := p.expression('/'); !ok {
				return false
			}
			p.rest = strings.TrimLeft(p.rest, "IM")
		case p.rest[0] == '$':
			p.rest = p.rest[1:]
		default:
			digits := strings.TrimLeft(p.rest, "0123456789~")
			if digits == p.rest && !first {
				return false
			}
			p.rest = digits
		}
	}
	p.rest = strings.TrimLeft(p.rest, " \t!")
	return true
}

// expression parses a regular expression or a text up to its end. It is not plain if its
// end is ambiguous because of a ] at the start of a bracket, a class in it or an end in
// it.
func (p *sedParser) expression(end byte) (string, bool) {
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; c {
		case '\\':
			if i++; i == len(p.rest) || p.rest[i] == '\n' || p.rest[i] == 'c' {
				return "", false
			}
		case '\n':
			return "", false
		case '[':
			length, ok := bracket(p.rest[i:], end)
			if !ok {
				return "", false
			}
			i += length - 1
		case end:
			text := p.rest[:i]
			p.rest = p.rest[i+1:]
			return text, true
		}
	}
	return "", false
}

// bracket returns the length of a bracket of a regular expression, if all
// implementations agree where it ends: it contains neither the end of the expression nor
// a backslash, and other brackets only as whole classes such as [:alpha:].
func bracket(text string, end byte) (length int, ok bool) {
	i := 1
	if i < len(text) && text[i] == '^' {
		i++
	}
	for start := i; i < len(text); i++ {
		switch c := text[i]; {
		case c == end, c == '\\', c == '\n':
			return 0, false
		case c == '[':
			class, _, found := strings.Cut(text[i:], ":]")
			if !found || !strings.HasPrefix(class, "[:") || !consistsOf(class[2:], "abcdefghijklmnopqrstuvwxyz") {
				return 0, false
			}
			i += len(class) + 1
		case c == ']' && i == start:
			return 0, false
		case c == ']':
			return i + 1, true
		}
	}
	return 0, false
}

// substitution parses the rest of s or y.
func (p *sedParser) substitution(c byte) bool {
	if p.rest == "" {
		return false
	}
	end := p.rest[0]
	if strings.IndexByte("\\\n ;[", end) >= 0 || isWordByte(end) && end != '_' && end != '-' {
		return false
	}
	p.rest = p.rest[1:]
	if c == 'y' {
		from, to := p.text(end), p.text(end)
		return from && to && p.ends()
	}
	if _, ok := p.expression(end); !ok || !p.text(end) {
		return false
	}
	p.rest = strings.TrimLeft(p.rest, "gpiI0123456789")
	return p.ends()
}

// text parses a text up to its end.
func (p *sedParser) text(end byte) bool {
	for i := 0; i < len(p.rest); i++ {
		switch p.rest[i] {
		case '\\':
			i++
		case '\n':
			return false
		case end:
			p.rest = p.rest[i+1:]
			return true
		}
	}
	return false
}

// awkEffect handles a program of awk.
func awkEffect(a *argv, w Word, i, at int) {
	if w.none() {
		return
	}
	if w.Static() && plainAwk(w.Text()) {
		return
	}
	a.riskIf(true, at)
	a.c.risk(at, "its program")
	a.s.blurOnly("Parley cannot tell what this awk program does")
	a.s.arguments(a.c, []Word{w})
	a.c.Loose = true
}

// plainAwk reports whether a program of awk certainly neither runs nor writes anything,
// and reads only the files on the command line.
func plainAwk(code string) bool {
	for _, word := range []string{"system", "getline", "ARGV", "ENVIRON", "close", "@", "|&"} {
		if strings.Contains(code, word) {
			return false
		}
	}
	code = strings.ReplaceAll(code, "||", "&&")
	// A pattern or a condition may compare with >. After print it writes, so any > or |
	// after something that looks like print counts as writing.
	for rest := code; ; {
		_, after, ok := strings.Cut(rest, "print")
		if !ok {
			return !strings.Contains(code, "|")
		}
		if awkWrites(after) {
			return false
		}
		rest = after
	}
}

// awkWrites reports whether the text after print in a program of awk may redirect its
// output, up to the end of the statement.
func awkWrites(statement string) bool {
	quoted, depth := false, 0
	for i := 0; i < len(statement); i++ {
		switch c := statement[i]; {
		case c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '#': // a comment may contain quotes and parentheses
			if i = skipLine(statement, i); i < 0 {
				return false
			}
		case c == '/': // a regular expression may contain quotes
			return strings.ContainsAny(statement, ">|")
		case c == '(':
			depth++
		case c == ')':
			depth--
		case (c == '>' || c == '|') && depth <= 0:
			return true
		case c == ';' || c == '}': // a line break need not end it: print 1,
			return false
		}
	}
	return quoted
}

// skipLine returns the index of the next line break, or -1 if there is none.
func skipLine(text string, from int) int {
	i := strings.IndexByte(text[from:], '\n')
	if i < 0 {
		return -1
	}
	return from + i
}

// awkFileEffect handles a file that awk reads, or a variable that it sets.
func awkFileEffect(a *argv, w Word, _, _ int) {
	if w.Static() {
		if name, value, ok := strings.Cut(w.Text(), "="); ok && consistsOf(name, nameBytes) && !strings.ContainsAny(name, "-.") {
			a.s.addFile(File{Word: Literal(value), Kind: Read, Via: a.via, Loose: true})
			return
		}
	}
	a.file(w, false)
}

// jqEffect handles a program of jq.
func jqEffect(a *argv, w Word, i, at int) {
	if w.none() {
		return
	}
	t := w.Text()
	if a.via == "yq" { // it also accepts a file alone, and a subcommand before its program
		kind := Read
		if a.inplace {
			kind = Write
		}
		a.s.addFile(File{Word: w, Kind: kind, Via: a.via, Loose: true})
	}
	if !w.Static() || strings.Contains(t, "import") || strings.Contains(t, "include") || strings.Contains(t, "ENV") || HasWord(t, "env") ||
		a.via == "yq" && (strings.Contains(t, "load") || HasWord(t, "eval") && t != "eval" || strings.Contains(t, "env")) {
		a.acts()
		a.c.risk(at, "its program")
		a.s.blurOnly("Parley cannot tell what " + a.via + " reads")
	}
}

// HasWord reports whether a text contains a name as a separate word.
func HasWord(text, name string) bool {
	for rest := text; ; {
		i := strings.Index(rest, name)
		if i < 0 {
			return false
		}
		before, after := i == 0 || !isWordByte(rest[i-1]), i+len(name) == len(rest) || !isWordByte(rest[i+len(name)])
		if before && after {
			return true
		}
		rest = rest[i+1:]
	}
}

func isWordByte(b byte) bool {
	return b == '_' || b == '-' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= 0x80
}
