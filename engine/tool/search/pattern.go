package search

import (
	"bytes"
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// A Pattern is a regular expression to look for in lines of text, or across them.
// It is safe for concurrent use; a [Searcher] is not.
//
// Lines that may match are found by the longest text that every match has in it,
// or by an automaton that lets through too many but none too few; the regular
// expression is asked about those only.
type Pattern struct {
	re        *regexp.Regexp
	multiline bool
	literal   []byte // every match has it; may be empty
	fold      bool   // the literal is lower case and matches upper case too
	pure      bool   // the literal is all there is to match
	prog      *syntax.Prog
}

// Compile reads a regular expression. With multiline a match may span lines.
func Compile(expr string, ignoreCase, multiline bool) (*Pattern, error) {
	flags := "(?m)"
	if multiline {
		flags = "(?ms)"
	}
	if ignoreCase {
		flags += "(?i)"
	}
	re, err := regexp.Compile(flags + expr)
	if err != nil {
		var bad *syntax.Error
		if errors.As(err, &bad) {
			bad.Expr = strings.TrimPrefix(bad.Expr, flags)
			return nil, bad
		}
		return nil, err
	}
	p := &Pattern{re: re, multiline: multiline}
	tree, err := syntax.Parse(flags+expr, syntax.Perl)
	if err != nil {
		return nil, err
	}
	tree = tree.Simplify()
	p.literal, p.fold = required(tree)
	p.pure = !p.fold && tree.Op == syntax.OpLiteral && string(tree.Rune) == string(p.literal)
	if !multiline && bytes.IndexByte(p.literal, '\n') >= 0 {
		return nil, errors.New("it has a line end in it, and only with multiline a match can span lines")
	}
	// A short text is in too many lines to be worth looking for.
	if !p.pure && len(p.literal) < 3 {
		p.literal = nil
	}
	if !multiline && len(p.literal) == 0 {
		if p.prog, err = syntax.Compile(tree); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// required returns the longest text that every match contains. With fold it is
// ASCII in lower case, to be compared without case.
func required(re *syntax.Regexp) (literal []byte, fold bool) {
	switch re.Op {
	case syntax.OpLiteral:
		text := string(re.Rune)
		if re.Flags&syntax.FoldCase == 0 {
			return []byte(text), false
		}
		// Only letters whose other cases are ASCII too.
		best := ""
		for _, part := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r >= utf8.RuneSelf || r == 'k' || r == 's' }) {
			if len(part) > len(best) {
				best = part
			}
		}
		if strings.ToUpper(best) == best {
			return []byte(best), false // it has no case
		}
		return []byte(best), true
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if l, f := required(sub); len(l) > len(literal) {
				literal, fold = l, f
			}
		}
	}
	return literal, fold
}

// A Searcher looks for a pattern. It is used by one goroutine.
type Searcher struct {
	p   *Pattern
	dfa *automaton
	buf []byte
}

// NewSearcher returns a searcher for the pattern.
func (p *Pattern) NewSearcher() *Searcher {
	s := &Searcher{p: p}
	if p.prog != nil {
		s.dfa = newAutomaton(p.prog)
	}
	return s
}

// errBinary says that a file is no text.
var errBinary = errors.New("search: binary file")

func isBinary(head []byte) bool { return bytes.IndexByte(head, 0) >= 0 }

// MaxFile is the size of the biggest file that is searched.
const MaxFile = 64 << 20

// Read reads a file of a walk; the data is valid until the next call. text is false
// for one that is binary or cannot be read.
func (s *Searcher) Read(f *File) (data []byte, text, tooBig bool) {
	data, tooBig, err := f.dir.read(f.name, s.buf, MaxFile)
	if cap(data) > cap(s.buf) && cap(data) <= 1<<20 {
		s.buf = data
	}
	return data, err == nil && !tooBig, tooBig
}

// Next finds the first line at or after an offset that matches, or all the lines
// that a match spans: the offsets of their beginning and end, without the last line
// end. ok is false if there is none.
func (s *Searcher) Next(data []byte, from int) (start, end int, ok bool) {
	if s.p.multiline {
		return s.nextMulti(data, from)
	}
	for from < len(data) {
		at := s.candidate(data, from)
		if at < 0 {
			return 0, 0, false
		}
		start, end = lineAt(data, at)
		if s.p.pure || s.p.re.Match(data[start:end]) {
			return start, end, true
		}
		from = end + 1
	}
	return 0, 0, false
}

// nextMulti finds a match that may span lines.
func (s *Searcher) nextMulti(data []byte, from int) (start, end int, ok bool) {
	if from >= len(data) || len(s.p.literal) > 0 && s.index(data[from:]) < 0 {
		return 0, 0, false
	}
	// What comes before matters for ^ and \b; from is where a line begins.
	loc := s.p.re.FindIndex(data[from:])
	if loc == nil || from+loc[0] == len(data) && len(data) > 0 && data[len(data)-1] == '\n' {
		return 0, 0, false
	}
	start, _ = lineAt(data, from+loc[0])
	last := from + loc[1]
	if last > from+loc[0] {
		last-- // a match that ends with a line does not reach the next
	}
	_, end = lineAt(data, last)
	return start, end, true
}

// Matches returns the parts of a line, or of lines, that match.
func (s *Searcher) Matches(line []byte) [][]byte {
	var parts [][]byte
	for _, loc := range s.p.re.FindAllIndex(line, -1) {
		if loc[0] < loc[1] {
			parts = append(parts, line[loc[0]:loc[1]])
		}
	}
	return parts
}

// lineAt returns the beginning and the end of the line that an offset is in.
func lineAt(data []byte, at int) (start, end int) {
	start = bytes.LastIndexByte(data[:at], '\n') + 1
	end = len(data)
	if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
		end = at + i
	}
	return start, end
}

// candidate finds a place in the first line at or after an offset that may match.
func (s *Searcher) candidate(data []byte, from int) int {
	if s.dfa != nil {
		if !s.dfa.hopeless() {
			return s.dfa.find(data, from)
		}
		// A match of the whole text begins in a line that may match, and there
		// is none in the lines before it.
		if loc := s.p.re.FindIndex(data[from:]); loc != nil && from+loc[0] < len(data) {
			return from + loc[0]
		}
		return -1
	}
	i := s.index(data[from:])
	if i < 0 {
		return -1
	}
	return from + i
}

// index finds the literal.
func (s *Searcher) index(data []byte) int {
	if !s.p.fold {
		return bytes.Index(data, s.p.literal)
	}
	// By its rarest letter, in both cases.
	lit := s.p.literal
	r := rarest(lit)
	lower, upper := lit[r], lit[r]
	if 'a' <= lower && lower <= 'z' {
		upper = lower - 'a' + 'A'
	}
	nextLower, nextUpper := -2, -2
	for from := r; from < len(data); {
		if nextLower != -1 && nextLower < from {
			nextLower = indexFrom(data, lower, from)
		}
		if nextUpper != -1 && nextUpper < from {
			nextUpper = indexFrom(data, upper, from)
		}
		at := nextLower
		if at < 0 || nextUpper >= 0 && nextUpper < at {
			at = nextUpper
		}
		if at < 0 {
			return -1
		}
		if start := at - r; start+len(lit) <= len(data) && equalFold(data[start:start+len(lit)], lit) {
			return start
		}
		from = at + 1
	}
	return -1
}

func indexFrom(data []byte, b byte, from int) int {
	if i := bytes.IndexByte(data[from:], b); i >= 0 {
		return from + i
	}
	return -1
}

func equalFold(data, lower []byte) bool {
	for i, c := range data {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// rarest returns the index of the byte that text has least often, in English and
// in code.
func rarest(lit []byte) int {
	const common = " etaoinsrhldcumfpgwybvkxjqz"
	best, rank := 0, -1
	for i, c := range lit {
		at := strings.IndexByte(common, c)
		if at < 0 {
			at = len(common) // digits and signs
		}
		if at > rank {
			best, rank = i, at
		}
	}
	return best
}
