package search

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Pattern is a regular expression to search for in lines of text, or across them. Its \w, \d,
// \s, \b and case are those of Unicode. It is safe for concurrent use; a [Searcher] is not.
//
// Candidate lines are found by text that every match contains, or by an automaton that accepts
// too many lines but never too few. For lines that are not ASCII, the regular expression
// decides.
type Pattern struct {
	re        *regexp.Regexp
	prog      *syntax.Prog
	multiline bool
	needles   []needle // every match contains one of them; none if that does not help
	pure      bool     // the needles are all that there is to match
	words     bool     // it contains \b or \B
}

// A needle is a text to search for.
type needle struct {
	text []byte
	fold bool // the text is lower case and matches upper case, too
	rare int  // the index of its rarest byte
}

// Compile parses a regular expression. With multiline a match may span lines.
func Compile(expr string, ignoreCase, multiline bool) (*Pattern, error) {
	flags := "(?m)"
	if multiline {
		flags = "(?ms)"
	}
	if ignoreCase {
		flags += "(?i)"
	}
	// The error must refer to the expression as written.
	if _, err := syntax.Parse(strings.ReplaceAll(expr, `\u`, `\x`), syntax.Perl); err != nil {
		var bad *syntax.Error
		if errors.As(err, &bad) && bad.Code != syntax.ErrInvalidEscape {
			return nil, err
		}
	}
	full := flags + inUnicode(expr)
	re, err := regexp.Compile(full)
	if err != nil {
		return nil, err
	}
	p := &Pattern{re: re, multiline: multiline}
	tree, err := syntax.Parse(full, syntax.Perl)
	if err != nil {
		return nil, err
	}
	tree = tree.Simplify()
	if p.prog, err = syntax.Compile(tree); err != nil {
		return nil, err
	}
	p.words = slices.ContainsFunc(p.prog.Inst, func(in syntax.Inst) bool {
		return in.Op == syntax.InstEmptyWidth && syntax.EmptyOp(in.Arg)&(syntax.EmptyWordBoundary|syntax.EmptyNoWordBoundary) != 0
	})
	p.needles = required(tree)
	if !multiline && len(p.needles) == 1 && bytes.IndexByte(p.needles[0].text, '\n') >= 0 {
		return nil, errors.New("it has a line end in it, and only with multiline a match can span lines")
	}
	p.pure = isPure(tree, p.needles)
	for i, n := range p.needles {
		p.needles[i].rare = rarest(n.text)
	}
	return p, nil
}

// maxNeedles is the maximum number of texts to search for; with more, the automaton is faster.
const maxNeedles = 6

// required returns texts of which every match contains one, as long as possible.
func required(re *syntax.Regexp) []needle {
	switch re.Op {
	case syntax.OpLiteral:
		text := string(re.Rune)
		if re.Flags&syntax.FoldCase == 0 {
			return []needle{{text: []byte(text)}}
		}
		// Only letters without non-ASCII case variants.
		best := ""
		for _, part := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r >= utf8.RuneSelf || r == 'k' || r == 's' }) {
			if len(part) > len(best) {
				best = part
			}
		}
		if best == "" {
			return nil
		}
		return []needle{{text: []byte(best), fold: strings.ToUpper(best) != best}}
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		var best []needle
		for _, sub := range re.Sub {
			if list := required(sub); shortest(list) > shortest(best) {
				best = list
			}
		}
		return best
	case syntax.OpAlternate:
		var all []needle
		for _, sub := range re.Sub {
			list := required(sub)
			if len(list) == 0 || len(all)+len(list) > maxNeedles {
				return nil
			}
			all = append(all, list...)
		}
		return all
	}
	return nil
}

// shortest returns the length of the shortest needle.
func shortest(list []needle) int {
	if len(list) == 0 {
		return 0
	}
	return len(slices.MinFunc(list, func(a, b needle) int { return cmp.Compare(len(a.text), len(b.text)) }).text)
}

// isPure reports whether an expression matches exactly the needles.
func isPure(re *syntax.Regexp, list []needle) bool {
	switch {
	case len(list) == 0:
		return false
	case re.Op == syntax.OpCapture:
		return isPure(re.Sub[0], list)
	case re.Op == syntax.OpLiteral:
		return len(list) == 1 && !list[0].fold && re.Flags&syntax.FoldCase == 0
	case re.Op == syntax.OpAlternate:
		return !slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return sub.Op != syntax.OpLiteral || sub.Flags&syntax.FoldCase != 0 })
	}
	return false
}

// A Searcher searches for a pattern. It is used by one goroutine.
type Searcher struct {
	p       *Pattern
	ctx     context.Context
	dfa     *automaton
	vm      machine
	buf     []byte
	foreign int // the end of the text that package regexp would handle wrongly, in the data of nextMulti
	// The literals to search for first, and the next position of each, at or after the start of
	// the last search; -1 if there is none.
	needles []needle
	next    []int
	found   int // number of needles found
	passed  int // number of bytes searched between them
}

// worth is the minimum average distance between needles in bytes; below it, the automaton is
// faster.
const worth = 100

// NewSearcher returns a searcher for the pattern. It finds nothing more once the context has
// ended, whatever the pattern and the length of the text.
func (p *Pattern) NewSearcher(ctx context.Context) *Searcher {
	return &Searcher{p: p, ctx: ctx, vm: machine{ctx: ctx, prog: p.prog}, needles: p.needles, next: make([]int, len(p.needles))}
}

// automaton returns the automaton of the searcher.
func (s *Searcher) automaton() *automaton {
	if s.dfa == nil {
		s.dfa = newAutomaton(s.p.prog, s.p.multiline)
	}
	return s.dfa
}

// errBinary means that a file is not text.
var errBinary = errors.New("search: binary file")

// errHidden means that a file must not be visible.
var errHidden = errors.New("search: hidden file")

// MaxFile is the size of the largest file that is searched.
const MaxFile = 64 << 20

// Read reads a file of a walk; the data is valid until the next call. text is false for a file
// that is binary or cannot be read.
func (s *Searcher) Read(f *File) (data []byte, text, tooBig bool) {
	data, tooBig, err := f.dir.read(f.name, s.buf, MaxFile, f.hidden)
	if cap(data) > cap(s.buf) && cap(data) <= 4<<20 {
		s.buf = data
	}
	return Text(data), err == nil && !tooBig, tooBig
}

// Next finds the first line at or after an offset that matches, or all lines that a match spans.
// It returns the offsets of their start and end, without the last line ending. ok is false if
// there is none. The first call for data must start at its beginning.
func (s *Searcher) Next(data []byte, from int) (start, end int, ok bool) {
	if from == 0 {
		for i := range s.next {
			s.next[i] = -2
		}
		if s.p.multiline {
			s.foreign = s.foreignEnd(data)
		}
	}
	if s.ctx.Err() != nil {
		return 0, 0, false
	}
	if s.p.multiline {
		return s.nextMulti(data, from)
	}
	for from < len(data) {
		at := s.candidate(data, from)
		if at < 0 {
			return 0, 0, false
		}
		start, end = lineAt(data, at)
		switch {
		case s.p.pure:
			return start, end, true
		case len(s.needles) > 0 || s.dfa.hopeless():
			ok = s.matches(data[start:end])
			if s.found, s.passed = s.found+1, s.passed+end-from; s.found > 1000 && s.passed/s.found < worth {
				s.needles = nil
			}
		default:
			ok = isASCII(data[start:min(at+1, end)]) || s.asked(data[start:end])
		}
		if ok {
			return start, end, true
		}
		from = end + 1
	}
	return 0, 0, false
}

// nextMulti finds a match that may span lines.
func (s *Searcher) nextMulti(data []byte, from int) (start, end int, ok bool) {
	if from >= len(data) || s.candidate(data, from) < 0 {
		return 0, 0, false
	}
	if a := s.automaton(); len(s.needles) > 0 && !a.hopeless() && a.find(data, from) < 0 {
		return 0, 0, false
	}
	// The preceding text matters for ^ and \b; from is the start of a line.
	first, last := s.match(data[from:], from < s.foreign)
	if first < 0 || from+first == len(data) && len(data) > 0 && data[len(data)-1] == '\n' {
		return 0, 0, false
	}
	start, _ = lineAt(data, from+first)
	if last > first {
		last-- // a match that ends with a line does not reach the next one
	}
	_, end = lineAt(data, from+last)
	return start, end, true
}

// matches reports whether a line matches.
func (s *Searcher) matches(line []byte) bool {
	a := s.automaton()
	if a.hopeless() {
		return s.asked(line)
	}
	at := a.find(line, 0)
	return at >= 0 && (isASCII(line[:min(at+1, len(line))]) || s.asked(line))
}

// asked reports whether the regular expression matches a line.
func (s *Searcher) asked(line []byte) bool {
	start, _ := s.match(line, s.foreignEnd(line) > 0)
	return start >= 0
}

// longText is the maximum number of bytes that package regexp handles without checking the
// context.
const longText = 256 << 10

// match returns the position of the first match in text; negative if there is none. foreign is
// set if package regexp would handle the text wrongly.
func (s *Searcher) match(text []byte, foreign bool) (start, end int) {
	if foreign {
		return s.vm.find(text, 0)
	}
	var loc []int
	if len(text) > longText {
		loc = s.p.re.FindReaderIndex(&textReader{s.ctx, text, 0})
	} else {
		loc = s.p.re.FindIndex(text)
	}
	if loc == nil || s.ctx.Err() != nil {
		return -1, -1
	}
	return loc[0], loc[1]
}

// A textReader reads a text, and stops when the context ends.
type textReader struct {
	ctx  context.Context
	text []byte
	at   int
}

func (r *textReader) ReadRune() (rune, int, error) {
	if r.at == len(r.text) || r.at&0xffff == 0 && r.ctx.Err() != nil {
		return 0, 0, io.EOF
	}
	if c := r.text[r.at]; c < utf8.RuneSelf {
		r.at++
		return rune(c), 1, nil
	}
	c, size := utf8.DecodeRune(r.text[r.at:])
	r.at += size
	return c, size, nil
}

// foreignEnd returns the end of the text that package regexp would handle wrongly: non-ASCII
// words, and invalid UTF-8. It is 0 if there is none.
func (s *Searcher) foreignEnd(text []byte) (end int) {
	if isASCII(text) || !s.p.words && utf8.Valid(text) {
		return 0
	}
	for at := 0; at < len(text); {
		r, size := decode(text[at:])
		if at += size; r < 0 || s.p.words && size > 1 {
			end = at
		}
	}
	return end
}

func isASCII(text []byte) bool {
	for _, c := range text {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// Matches returns the matching parts of a line, or of lines.
func (s *Searcher) Matches(line []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if len(line) <= longText && s.foreignEnd(line) == 0 {
			for _, loc := range s.p.re.FindAllIndex(line, -1) {
				if loc[0] < loc[1] && !yield(line[loc[0]:loc[1]]) {
					return
				}
			}
			return
		}
		for from := 0; from <= len(line) && s.ctx.Err() == nil; {
			start, end := s.vm.find(line, from)
			if start < 0 {
				return
			}
			if start == end {
				_, size := utf8.DecodeRune(line[end:])
				end += max(size, 1)
			} else if !yield(line[start:end]) {
				return
			}
			from = end
		}
	}
}

// lineAt returns the start and the end of the line that contains an offset.
func lineAt(data []byte, at int) (start, end int) {
	start = bytes.LastIndexByte(data[:at], '\n') + 1
	end = len(data)
	if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
		end = at + i
	}
	return start, end
}

// candidate finds a position in the first line at or after an offset that may match.
func (s *Searcher) candidate(data []byte, from int) int {
	if len(s.needles) > 0 {
		return s.needle(data, from)
	}
	if a := s.automaton(); !a.hopeless() {
		return a.find(data, from)
	}
	return from // any line may match
}

// needle finds the first of the needles at or after an offset.
func (s *Searcher) needle(data []byte, from int) int {
	first := -1
	for i := range s.needles {
		at := s.next[i]
		if at != -1 && at < from {
			at = s.needles[i].index(data[from:])
			if at >= 0 {
				at += from
			}
			s.next[i] = at
		}
		if at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	return first
}

// index finds the needle.
func (n *needle) index(data []byte) int {
	if !n.fold {
		return bytes.Index(data, n.text)
	}
	// Search for its rarest letter, in both cases.
	lit, r := n.text, n.rare
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

// rarest returns the index of the byte that is rarest in English text and in code.
func rarest(lit []byte) int {
	const common = " etaoinsrhldcumfpgwybvkxjqz"
	best, rank := 0, -1
	for i, c := range lit {
		at := strings.IndexByte(common, c)
		if at < 0 {
			at = len(common) // digits and punctuation
		}
		if at > rank {
			best, rank = i, at
		}
	}
	return best
}
