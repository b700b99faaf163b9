package shell

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// A Word is a word of a command, with its possible values when a shell runs it.
type Word struct {
	Raw   string  // roughly as written
	Multi bool    // it may become several words, or none
	vals  []Value // possible values, if there is not exactly one
	text  string
	known bool // text is its value
}

// A Value is a possible value of a word, or a pattern of such values.
type Value struct {
	Text string // if Pat is nil
	Pat  []rune // see [AnyOne]
}

// Characters of a pattern that stand for unknown text.
const (
	AnyOne  rune = -1 - iota // one character but /
	AnyName                  // any characters but /
	AnyText                  // any characters
	AnyDeep                  // any characters, but no .. that leads elsewhere
)

var unknown = Value{Pat: []rune{AnyText}}

// Literal returns a word with a known value.
func Literal(text string) Word { return Word{Raw: text, text: text, known: true} }

// anyWord returns a word with an unknown value.
func anyWord(raw string) Word { return Word{Raw: raw, vals: []Value{unknown}, Multi: true} }

// patternWord returns a word whose value matches a pattern.
func patternWord(raw string, pat ...rune) Word { return Word{Raw: raw, vals: []Value{{Pat: pat}}} }

// newWord returns a word with the given possible values.
func newWord(raw string, vals []Value, multi bool) Word {
	if len(vals) == 1 && vals[0].Pat == nil && !multi {
		return Word{Raw: raw, text: vals[0].Text, known: true}
	}
	return Word{Raw: raw, vals: vals, Multi: multi}
}

// Static reports whether the word certainly has one known value.
func (w Word) Static() bool { return w.known }

// substituted is the value of a word <(…). It stands for a pipe.
const substituted = "/dev/fd/63"

// Substituted reports whether the word is the output of a command as a file: <(…).
func (w Word) Substituted() bool { return w.text == substituted && strings.HasPrefix(w.Raw, "<(") }

// Text returns the value of a static word, and any other word as written.
func (w Word) Text() string {
	if w.known {
		return w.text
	}
	return w.Raw
}

// Values returns the possible values of the word. It returns nil for an empty Word.
func (w Word) Values() []Value {
	if w.known {
		return []Value{{Text: w.text}}
	}
	return w.vals
}

// none reports whether the Word is empty.
func (w Word) none() bool { return !w.known && len(w.vals) == 0 }

// Runes returns the value as a pattern.
func (v Value) Runes() []rune {
	if v.Pat != nil {
		return v.Pat
	}
	return []rune(v.Text)
}

func (v Value) join(w Value) Value {
	if v.Pat == nil && w.Pat == nil {
		return Value{Text: v.Text + w.Text}
	}
	if v.Pat == nil && v.Text == "" {
		return w
	}
	return Value{Pat: append(slices.Clone(v.Runes()), w.Runes()...)}
}

// Overlap reports whether some text matches both patterns.
func Overlap(a, b []rune) bool {
	if len(a)*len(b) > 1<<16 {
		return true
	}
	// Their literal prefixes decide most cases.
	for len(a) > 0 && len(b) > 0 && a[0] >= 0 && b[0] >= 0 {
		if a[0] != b[0] {
			return false
		}
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] >= 0 && b[len(b)-1] >= 0 {
		if a[len(a)-1] != b[len(b)-1] {
			return false
		}
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	if chains(a, b) || chains(b, a) {
		return true
	}
	// reach[j] is whether a up to i and b up to j match a common text.
	var small [2][64]bool // most patterns are short
	reach, next := small[0][:], small[1][:]
	if len(b) >= len(small[0]) {
		reach, next = make([]bool, len(b)+1), make([]bool, len(b)+1)
	}
	reach[0] = true
	for j := 1; j <= len(b) && isStar(b[j-1]); j++ {
		reach[j] = true
	}
	for i := 1; i <= len(a); i++ {
		x := a[i-1]
		starX := isStar(x)
		next[0] = starX && reach[0]
		for j := 1; j <= len(b); j++ {
			y := b[j-1]
			ok := reach[j-1] && fits(x, y)
			if starX {
				ok = ok || reach[j] || next[j-1] && fits(x, y)
			}
			if isStar(y) {
				ok = ok || next[j-1] || reach[j] && fits(x, y)
			}
			next[j] = ok
		}
		reach, next = next, reach
	}
	return reach[len(b)]
}

// chains reports whether a text of one pattern and then a text of another certainly match both.
func chains(a, b []rune) bool {
	return len(a) > 0 && len(b) > 0 && a[len(a)-1] == AnyText && b[0] == AnyText
}

func isStar(r rune) bool { return r == AnyText || r == AnyName || r == AnyDeep }

// fits reports whether two characters of patterns may be the same.
func fits(x, y rune) bool {
	if x == AnyText || y == AnyText || x == AnyDeep || y == AnyDeep {
		return true
	}
	if x < 0 && y < 0 {
		return true
	}
	if x < 0 {
		return y != '/' && y != 0
	}
	if y < 0 {
		return x != '/' && x != 0
	}
	return x == y
}

// plainText returns the text of an unquoted word without special characters.
func plainText(w *syntax.Word) (text string, ok bool) {
	if len(w.Parts) != 1 {
		return "", false
	}
	l, ok := w.Parts[0].(*syntax.Lit)
	if !ok || strings.ContainsAny(l.Value, "\\*?[~{") {
		return "", false
	}
	return l.Value, true
}

// fields expands a word: braces and unquoted variables can make several words of one.
func (s *scope) fields(w *syntax.Word) []Word {
	if text, ok := plainText(w); ok {
		return []Word{Literal(text)}
	}
	if lit := litOf(w); strings.Contains(lit, "{") && (strings.Contains(lit, ",") || strings.Contains(lit, "..")) {
		c := *w
		c.Parts = slices.Clone(w.Parts)
		if syntax.SplitBraces(&c) {
			alternatives, ok := braces(c.Parts)
			if !ok {
				s.unprove("it expands to too many words to check")
				return []Word{anyWord(rawOf(w))}
			}
			s.unprove("it contains a brace expansion")
			var all []Word
			for _, parts := range alternatives {
				all = append(all, s.split(parts, rawOf(w))...)
			}
			return all
		}
	}
	return s.split(w.Parts, rawOf(w))
}

// split splits a word at unquoted variables whose value contains spaces.
func (s *scope) split(parts []syntax.WordPart, raw string) []Word {
	spaced := false
	for i, p := range parts {
		pe, ok := p.(*syntax.ParamExp)
		if !ok || pe.Param == nil {
			continue
		}
		if pe.Param.Value == "IFS" && s.vars["IFS"] == nil && plain(pe) {
			s.unprove("part of it depends on a variable")
			var all []Word
			if i > 0 {
				all = s.split(parts[:i], raw)
			}
			if i+1 < len(parts) {
				all = append(all, s.split(parts[i+1:], raw)...)
			}
			return all
		}
		for _, v := range s.variable(pe) {
			spaced = spaced || strings.ContainsAny(v.Text, " \t\n")
		}
	}
	w := s.evalParts(parts, raw, true, false)
	if !spaced {
		return []Word{w}
	}
	if w.Static() {
		s.unprove("part of it depends on a variable")
		var all []Word
		for f := range strings.FieldsSeq(w.text) {
			all = append(all, Literal(f))
		}
		return all
	}
	s.blur("a variable may expand to several words")
	return []Word{anyWord(raw)}
}

// braces expands the braces of a word.
func braces(parts []syntax.WordPart) (all [][]syntax.WordPart, ok bool) {
	all = [][]syntax.WordPart{nil}
	for _, p := range parts {
		b, isBrace := p.(*syntax.BraceExp)
		if !isBrace || b.Sequence { // a sequence is numbers or letters
			for i := range all {
				all[i] = append(slices.Clip(all[i]), p)
			}
			continue
		}
		var next [][]syntax.WordPart
		for _, e := range b.Elems {
			subs, ok := braces(e.Parts)
			if !ok {
				return nil, false
			}
			for _, sub := range subs {
				for _, a := range all {
					next = append(next, append(slices.Clip(a), sub...))
				}
			}
			if len(next) > 64 {
				return nil, false
			}
		}
		all = next
	}
	return all, true
}

// eval returns the value of a word as a single word.
func (s *scope) eval(w *syntax.Word) Word {
	return s.evalParts(w.Parts, rawOf(w), true, false)
}

// evalParts evaluates the parts of a word. Here-documents are like text in double
// quotes; expand is set if variables are replaced.
func (s *scope) evalParts(parts []syntax.WordPart, raw string, expand, document bool) Word {
	e := &evaluation{s: s, vals: []Value{{}}}
	for i, p := range parts {
		e.part(p, i == 0 && !document, document, expand)
	}
	return newWord(raw, e.vals, e.multi)
}

// An evaluation is a word under construction.
type evaluation struct {
	s     *scope
	vals  []Value
	multi bool
}

// add appends something to every value so far.
func (e *evaluation) add(vals ...Value) {
	if len(vals) == 1 && len(e.vals) == 1 && vals[0].Pat == nil && e.vals[0].Pat == nil {
		e.vals[0].Text += vals[0].Text
		return
	}
	if len(vals)*len(e.vals) > maxValues || len(e.vals[0].Pat) > maxPattern {
		e.vals = []Value{unknown}
		return
	}
	next := make([]Value, 0, len(vals)*len(e.vals))
	for _, a := range e.vals {
		for _, b := range vals {
			next = append(next, a.join(b))
		}
	}
	e.vals = next
}

func (e *evaluation) part(p syntax.WordPart, first, quoted, expand bool) {
	switch p := p.(type) {
	case *syntax.Lit:
		e.lit(p.Value, first, quoted, expand)
	case *syntax.SglQuoted:
		if !p.Dollar {
			e.add(Value{Text: p.Value})
		} else if text, ok := decodeANSI(p.Value); ok {
			e.add(Value{Text: text})
		} else {
			e.add(unknown)
		}
	case *syntax.DblQuoted:
		for _, q := range p.Parts {
			e.part(q, false, true, true)
		}
		if p.Dollar {
			e.s.unprove("part of it is a translated string")
		}
	case *syntax.ParamExp:
		e.param(p, quoted)
	case *syntax.ProcSubst:
		e.add(Value{Text: substituted})
	case *syntax.ExtGlob:
		e.s.unprove("it depends on which files exist")
		e.add(Value{Pat: []rune{AnyName}})
	case *syntax.BraceExp:
		e.add(Value{Pat: []rune{AnyName}})
		e.multi = true
	case *syntax.ArithmExp:
		e.s.unprove("part of it is only known at run time")
		e.add(Value{Pat: []rune{AnyName}}) // a number
	default: // the output of a command, a number
		e.s.unprove("part of it is only known at run time")
		e.add(unknown)
		e.multi = e.multi || !quoted
	}
}

func (e *evaluation) param(p *syntax.ParamExp, quoted bool) {
	e.s.unprove("part of it depends on a variable")
	switch vals := e.s.variable(p); {
	case len(vals) > 0:
		e.add(vals...)
	case p.Length || plain(p) && p.Param != nil && (strings.Contains("?#$!", p.Param.Value) || e.s.isNumberVar(p.Param.Value)):
		e.add(Value{Pat: []rune{AnyName}}) // a number
	default:
		e.add(unknown)
		e.multi = e.multi || !quoted || p.Param != nil && p.Param.Value == "@" || p.Index != nil
	}
}

// lit appends literal text with its backslashes.
func (e *evaluation) lit(text string, first, quoted, expand bool) {
	if !expand || !strings.ContainsAny(text, "\\*?[~") {
		e.add(Value{Text: text})
		return
	}
	if !quoted {
		if i := tilde(text, first); i >= 0 {
			e.home(text, i)
			return
		}
	}
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			e.add(Value{Text: b.String()})
			b.Reset()
		}
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '\\' && i+1 < len(text):
			i++
			if text[i] == '\n' {
				continue
			}
			if quoted && !strings.ContainsRune("$`\"\\", rune(text[i])) {
				b.WriteByte('\\')
			}
			b.WriteByte(text[i])
		case !quoted && (c == '*' || c == '?' || c == '[' && strings.Contains(text[i:], "]")):
			flush()
			i = e.pattern(text, i)
		default:
			b.WriteByte(c)
		}
	}
	flush()
}

// home appends a text in which a tilde at i stands for a home directory.
func (e *evaluation) home(text string, i int) {
	e.lit(text[:i], false, false, true)
	name, _, _ := strings.Cut(text[i+1:], "/")
	if name == "" && e.s.env.Home != "" {
		e.add(Value{Text: e.s.env.Home})
	} else {
		e.s.unprove("part of it depends on a variable")
		e.add(unknown)
	}
	e.lit(text[i+1+len(name):], false, false, true)
}

// pattern appends the wildcard at i. It returns where it ends.
func (e *evaluation) pattern(text string, i int) int {
	e.glob()
	switch text[i] {
	case '*':
		if i+1 < len(text) && text[i+1] == '*' { // it may match directories, too
			for i+1 < len(text) && text[i+1] == '*' {
				i++
			}
			e.add(Value{Pat: []rune{AnyDeep}})
			return i
		}
		e.add(Value{Pat: []rune{AnyName}})
		return i
	case '?':
		e.add(Value{Pat: []rune{AnyOne}})
		return i
	}
	rest := text[i+1:]
	end := strings.IndexByte(rest, ']')
	if end == 0 || strings.HasPrefix(rest, "!]") || strings.HasPrefix(rest, "^]") || strings.HasPrefix(rest, "[") || strings.ContainsAny(rest[:end], "[\\") {
		e.add(Value{Pat: []rune{AnyName}})
		return i + 1 + strings.LastIndexByte(rest, ']')
	}
	e.add(Value{Pat: []rune{AnyOne}})
	return i + 1 + end
}

// glob records that file names replace the word. If its beginning is fixed, they cannot
// become options.
func (e *evaluation) glob() {
	v := e.vals[0]
	if len(e.vals) != 1 || v.Pat != nil && v.Pat[0] < 0 || v.Text == "" && v.Pat == nil || strings.HasPrefix(v.Text, "-") {
		e.s.unprove("it depends on which files exist")
	}
}

// tilde returns the index of a tilde that stands for a home directory, or -1.
func tilde(text string, first bool) int {
	if first && strings.HasPrefix(text, "~") {
		return 0
	}
	for _, sep := range []string{"=~", ":~"} {
		if i := strings.Index(text, sep); i > 0 && (first || sep == ":~") && strings.Contains(text[:i+1], "=") {
			return i + 1
		}
	}
	return -1
}

// plain reports whether a variable is expanded without modification.
func plain(p *syntax.ParamExp) bool {
	return p.Exp == nil && p.Repl == nil && p.Slice == nil && !p.Excl && !p.Length && !p.Width && p.Index == nil &&
		p.Names == 0 && p.Flags == nil && p.NestedParam == nil && p.Modifiers == nil
}

// variable returns the possible values of a variable, or nil if they are unknown.
func (s *scope) variable(p *syntax.ParamExp) []Value {
	if p.Param == nil || !plain(p) || s.anyVars {
		return nil
	}
	name := p.Param.Value
	if vals, ok := s.vars[name]; ok {
		if len(vals) == 0 || slices.ContainsFunc(vals, func(v Value) bool { return v.Pat != nil }) {
			return nil
		}
		return vals
	}
	if name == "HOME" && s.env.Home != "" {
		return []Value{{Text: s.env.Home}}
	}
	return nil
}

// escapes are the letters after a backslash in $'…' that stand for one character.
var escapes = map[byte]byte{
	'a': 7, 'b': 8, 'e': 27, 'E': 27, 'f': 12, 'n': '\n', 'r': '\r', 't': '\t', 'v': 11, '\\': '\\', '\'': '\'', '"': '"', '?': '?',
}

// decodeANSI returns the text of $'…'.
func decodeANSI(s string) (string, bool) {
	if !strings.Contains(s, `\`) {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if c, ok := escapes[s[i]]; ok {
			b.WriteByte(c)
			continue
		}
		start, most, base := i+1, 2, 16
		switch s[i] {
		case '0', '1', '2', '3', '4', '5', '6', '7':
			start, most, base = i, 3, 8
		case 'x':
		case 'u':
			most = 4
		case 'U':
			most = 8
		case 'c':
			return "", false
		default: // both characters stay
			b.WriteByte('\\')
			b.WriteByte(s[i])
			continue
		}
		v, n := leadingNumber(s[start:], most, base)
		if n == 0 { // both characters stay
			b.WriteString(s[i-1 : i+1])
			continue
		}
		if v == 0 {
			return "", false // the text ends there
		}
		if most > 3 {
			b.WriteRune(rune(v))
		} else {
			b.WriteByte(byte(v))
		}
		i = start + n - 1
	}
	return b.String(), utf8.ValidString(b.String())
}

// leadingNumber returns the number at the start of a text, and how many digits it has.
func leadingNumber(s string, most, base int) (v, n int) {
	for n < most && n < len(s) {
		if _, err := strconv.ParseUint(s[n:n+1], base, 8); err != nil {
			break
		}
		n++
	}
	u, _ := strconv.ParseUint(s[:n], base, 32)
	return int(u), n
}

// litOf returns the unquoted text of a word.
func litOf(w *syntax.Word) string {
	if len(w.Parts) == 1 {
		if l, ok := w.Parts[0].(*syntax.Lit); ok {
			return l.Value
		}
	}
	var b strings.Builder
	for _, p := range w.Parts {
		if l, ok := p.(*syntax.Lit); ok {
			b.WriteString(l.Value)
		}
	}
	return b.String()
}

// rawOf returns a word roughly as written.
func rawOf(w *syntax.Word) string {
	if len(w.Parts) == 1 {
		switch p := w.Parts[0].(type) {
		case *syntax.Lit:
			return p.Value
		case *syntax.SglQuoted:
			return p.Value
		}
	}
	var b strings.Builder
	if rawParts(&b, w.Parts) {
		return b.String()
	}
	b.Reset()
	printer := printers.Get().(*syntax.Printer)
	defer printers.Put(printer)
	if err := printer.Print(&b, w); err != nil {
		return "?"
	}
	return b.String()
}

// printers are reused memory.
var printers = sync.Pool{New: func() any { return syntax.NewPrinter() }}

// rawParts writes parts of a word as written. It reports whether all are of the common kinds,
// for which no printer is needed.
func rawParts(b *strings.Builder, parts []syntax.WordPart) bool {
	for _, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			b.WriteString(p.Value)
		case *syntax.SglQuoted:
			if p.Dollar {
				b.WriteByte('$')
			}
			b.WriteByte('\'')
			b.WriteString(p.Value)
			b.WriteByte('\'')
		case *syntax.DblQuoted:
			if p.Dollar {
				b.WriteByte('$')
			}
			b.WriteByte('"')
			if !rawParts(b, p.Parts) {
				return false
			}
			b.WriteByte('"')
		case *syntax.ParamExp:
			if !p.Short || p.Index != nil || p.Param == nil {
				return false
			}
			b.WriteByte('$')
			b.WriteString(p.Param.Value)
		default:
			return false
		}
	}
	return true
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 32)
	return err == nil
}

// Split splits a text into words as a shell would. ok is false if not all of them are
// known.
func Split(text string) (words []string, ok bool) {
	s := &scope{Script: &Script{}, vars: map[string][]Value{}}
	for w, err := range syntax.NewParser(syntax.Variant(syntax.LangBash)).WordsSeq(strings.NewReader(text)) {
		if err != nil {
			return nil, false
		}
		v := s.eval(w)
		if !v.Static() || s.Unproven != "" {
			return nil, false
		}
		words = append(words, v.Text())
	}
	return words, true
}
