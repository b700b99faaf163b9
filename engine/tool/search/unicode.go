package search

import (
	"context"
	"regexp/syntax"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The classes that \w, \d and \s stand for, inside of brackets: those of Unicode, as in
// most search programs, and not those of package regexp.
const (
	wordClass  = `\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}`
	digitClass = `\p{Nd}`
	spaceClass = `\t-\r \x{85}\p{Z}`
)

// inUnicode rewrites an expression so that package regexp treats \w, \d, \s and their
// negations as Unicode does, and \u00e9 as a character.
func inUnicode(expr string) string {
	if !strings.Contains(expr, `\`) {
		return expr
	}
	var b strings.Builder
	inClass := false
	for i := 0; i < len(expr); i++ {
		c := expr[i]
		if c != '\\' || i+1 == len(expr) {
			switch {
			case c == '[' && !inClass:
				inClass = true
				// A bracket that closes right here is literal.
				rest := strings.TrimPrefix(expr[i+1:], "^")
				if strings.HasPrefix(rest, "]") {
					n := len(expr) - i - len(rest) + 1
					b.WriteString(expr[i : i+n])
					i += n - 1
					continue
				}
			case c == '[' && strings.HasPrefix(expr[i:], "[:"):
				if end := strings.Index(expr[i:], ":]"); end > 0 {
					b.WriteString(expr[i : i+end+2])
					i += end + 1
					continue
				}
			case c == ']':
				inClass = false
			}
			b.WriteByte(c)
			continue
		}
		i++
		class := ""
		switch expr[i] {
		case 'w', 'W':
			class = wordClass
		case 'd', 'D':
			class = digitClass
		case 's', 'S':
			class = spaceClass
		case 'Q':
			end := strings.Index(expr[i:], `\E`)
			if end < 0 {
				end = len(expr) - i
			}
			b.WriteString(expr[i-1 : i+end])
			i += end - 1
			continue
		case 'u':
			if rest := expr[i+1:]; len(rest) >= 4 && isHex(rest[:4]) {
				b.WriteString(`\x{` + rest[:4] + "}")
				i += 4
				continue
			} else if strings.HasPrefix(rest, "{") {
				b.WriteString(`\x`)
				continue
			}
		}
		negated := 'A' <= expr[i] && expr[i] <= 'Z'
		switch {
		case class == "":
			b.WriteByte('\\')
			b.WriteByte(expr[i])
		case inClass && negated:
			b.WriteString(negatedClass(class))
		case inClass:
			b.WriteString(class)
		case negated:
			b.WriteString("[^" + class + "]")
		default:
			b.WriteString("[" + class + "]")
		}
	}
	return b.String()
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdefABCDEF") == "" }

// negatedClass returns the negation of a class for the inside of brackets.
func negatedClass(class string) string {
	tree, err := syntax.Parse("[^"+class+"]", syntax.Perl)
	if err != nil || tree.Op != syntax.OpCharClass {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(tree.String(), "["), "]")
}

// isWord reports whether a character matches \w.
func isWord(r rune) bool {
	if r < utf8.RuneSelf {
		return r >= 0 && syntax.IsWordChar(r)
	}
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc) || r == 0x200c || r == 0x200d ||
		0x24b6 <= r && r <= 0x24e9 || 0x1f130 <= r && r <= 0x1f149 || 0x1f150 <= r && r <= 0x1f169 || 0x1f170 <= r && r <= 0x1f189
}

// A machine runs a program where package regexp would be wrong, which supports \b for
// ASCII only and treats invalid UTF-8 as a character. It is slow.
type machine struct {
	ctx       context.Context
	prog      *syntax.Prog
	now, next []thread
	seen      []bool
	stack     []uint32
}

// A thread is the next instruction of a match that started at some position.
type thread struct {
	pc    uint32
	start int
}

// find returns the position of the first match at or after an offset: the one that
// package regexp would find. start is negative if there is none, or if the context
// ends.
func (m *machine) find(data []byte, from int) (start, end int) {
	if m.seen == nil {
		m.seen = make([]bool, len(m.prog.Inst))
	}
	start, end = -1, -1
	before := rune(-1)
	if from > 0 {
		before, _ = decodeLast(data[:from])
	}
	m.now = m.now[:0]
	for at, steps := from, 0; ; steps++ {
		if steps&0xffff == 0xffff && m.ctx.Err() != nil {
			return -1, -1
		}
		r, size := rune(-1), 0
		if at < len(data) {
			r, size = decode(data[at:])
		}
		holds := assertions(before, r, at == 0, at == len(data))
		// The threads in order of priority, each followed as far as it goes.
		waiting := m.now
		m.next = m.next[:0]
		clear(m.seen)
		if start < 0 {
			waiting = append(waiting, thread{uint32(m.prog.Start), at})
		}
	threads:
		for _, t := range waiting {
			m.stack = append(m.stack[:0], t.pc)
			for len(m.stack) > 0 {
				pc := m.stack[len(m.stack)-1]
				m.stack = m.stack[:len(m.stack)-1]
				if m.seen[pc] {
					continue
				}
				m.seen[pc] = true
				in := &m.prog.Inst[pc]
				switch in.Op {
				case syntax.InstAlt, syntax.InstAltMatch:
					m.stack = append(m.stack, in.Arg, in.Out) // the first has priority
				case syntax.InstCapture, syntax.InstNop:
					m.stack = append(m.stack, in.Out)
				case syntax.InstEmptyWidth:
					if syntax.EmptyOp(in.Arg)&^holds == 0 {
						m.stack = append(m.stack, in.Out)
					}
				case syntax.InstMatch:
					start, end = t.start, at
					break threads // threads with lower priority no longer count
				default:
					if size > 0 && r >= 0 && consumes(in) && in.MatchRune(r) {
						m.next = append(m.next, thread{in.Out, t.start})
					}
				}
			}
		}
		m.now, m.next = m.next, waiting
		if size == 0 || start >= 0 && len(m.now) == 0 {
			return start, end
		}
		before = r
		at += size
	}
}

// decode is like [utf8.DecodeRune], but returns -2 for a byte of invalid UTF-8.
func decode(data []byte) (rune, int) {
	r, size := utf8.DecodeRune(data)
	if r == utf8.RuneError && size == 1 {
		r = -2
	}
	return r, size
}

func decodeLast(data []byte) (rune, int) {
	r, size := utf8.DecodeLastRune(data)
	if r == utf8.RuneError && size == 1 {
		r = -2
	}
	return r, size
}

// assertions returns those that hold between two characters.
func assertions(before, after rune, textBegins, textEnds bool) syntax.EmptyOp {
	var op syntax.EmptyOp
	if textBegins {
		op |= syntax.EmptyBeginText
	}
	if textEnds {
		op |= syntax.EmptyEndText
	}
	if textBegins || before == '\n' {
		op |= syntax.EmptyBeginLine
	}
	if textEnds || after == '\n' {
		op |= syntax.EmptyEndLine
	}
	if isWord(before) != isWord(after) {
		return op | syntax.EmptyWordBoundary
	}
	return op | syntax.EmptyNoWordBoundary
}
