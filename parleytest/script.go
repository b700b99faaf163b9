package parleytest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/parley-go/parley/internal/spelling"
)

// A ParseError reports the position of an error in a script file.
type ParseError struct {
	File   string
	Line   int // from one
	Reason string
}

// Error returns the position and the reason.
func (e *ParseError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason) }

// ReadScript reads a script file; see [ParseScript].
func ReadScript(path string) (*Scenario, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("parleytest: %w", err)
	}
	return ParseScript(path, data)
}

// ParseScript parses the text of a script file; the package documentation
// describes the format. The name is for errors, which are [*ParseError]s.
func ParseScript(name string, data []byte) (*Scenario, error) {
	p := &parser{file: name, lines: strings.Split(string(data), "\n"), s: Script()}
	p.cur = p.s.scripts[0]
	for p.next() {
		p.line()
		if p.err != nil {
			return nil, p.err
		}
	}
	for _, g := range p.gotos {
		found := false
		for _, sc := range p.s.scripts {
			found = found || sc.name == g.name
		}
		if !found {
			return nil, &ParseError{name, g.line, "goto " + g.name + ": there is no such script"}
		}
	}
	if err := p.s.Validate(); err != nil { // errors without a line
		return nil, &ParseError{name, len(p.lines), err.Error()}
	}
	return p.s, nil
}

type parser struct {
	file  string
	lines []string
	n     int // number of the current line
	word  string
	rest  string // of the line, trimmed
	err   *ParseError

	s      *Scenario
	cur    *script
	step   *Turn // the current step, which may have alternatives
	turn   *Turn // the current alternative
	opened bool  // a script line was read
	gotos  []struct {
		name string
		line int
	}
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = &ParseError{p.file, p.n, fmt.Sprintf(format, args...)}
	}
}

// next reads the next line that is not empty or a comment.
func (p *parser) next() bool {
	for p.n < len(p.lines) {
		line := strings.TrimSpace(p.lines[p.n])
		p.n++
		if line == "" || line[0] == '#' {
			continue
		}
		p.word, p.rest = cutWord(line)
		return true
	}
	return false
}

func cutWord(s string) (word, rest string) {
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[:i], strings.TrimSpace(s[i:])
	}
	return s, ""
}

// line parses one line, and further lines of its text.
func (p *parser) line() {
	switch p.word {
	case "script":
		p.script()
		return
	case "count-tokens":
		p.s.tokens = p.number(1)
		return
	case "when":
		if p.turn != nil || p.cur.name == mainScript {
			p.fail("when belongs after a script line, before its first turn")
			return
		}
		p.cur.when = append(p.cur.when, p.matcher())
		return
	case "each":
		p.bare()
		if p.turn != nil {
			p.fail("each belongs after a script line, before its first turn")
		}
		p.cur.each = true
		return
	case "turn":
		p.bare()
		p.step = new(Turn)
		p.turn = p.step
		p.cur.turns = append(p.cur.turns, p.step)
		return
	case "default":
		p.bare()
		if p.s.fallback != nil {
			p.fail("a second default turn")
		}
		p.step = new(Turn)
		p.turn = p.step
		p.s.fallback = p.step
		return
	case "or":
		p.bare()
		if p.turn == nil {
			p.fail("or belongs after a turn")
			return
		}
		if p.step.alts == nil {
			first := *p.step
			*p.step = Turn{alts: []*Turn{&first}}
		}
		p.turn = new(Turn)
		p.step.alts = append(p.step.alts, p.turn)
		return
	}
	if p.turn == nil {
		if _, ok := turnWords[p.word]; ok {
			p.fail("%s belongs in a turn: there is no turn line before it", p.word)
		} else {
			p.unknown()
		}
		return
	}
	read, ok := turnWords[p.word]
	if !ok {
		p.unknown()
		return
	}
	read(p, p.turn)
	if len(p.turn.errs) > 0 {
		p.fail("%v", p.turn.errs[0])
	}
}

func (p *parser) unknown() {
	words := append([]string{"script", "count-tokens", "when", "each", "turn", "default", "or"}, slices.Sorted(maps.Keys(turnWords))...)
	if like := spelling.Closest(p.word, words); like != "" {
		p.fail("unknown word %q (did you mean %s?)", p.word, like)
		return
	}
	p.fail("unknown word %q; \"parley help script\" lists the words", p.word)
}

func (p *parser) script() {
	name := p.rest
	if !nameRE().MatchString(name) {
		p.fail("script %q: want a name of letters, digits, _ and -", name)
		return
	}
	p.step, p.turn = nil, nil
	if name == mainScript {
		if p.opened || len(p.s.scripts[0].turns) > 0 {
			p.fail("script main belongs first in the file")
		}
		p.opened = true
		return
	}
	p.opened = true
	for _, sc := range p.s.scripts {
		if sc.name == name {
			p.fail("script %s is defined twice", name)
		}
	}
	p.cur = &script{name: name}
	p.s.scripts = append(p.s.scripts, p.cur)
}

// turnWords are the words of a turn.
var turnWords map[string]func(*parser, *Turn)

func init() {
	turnWords = map[string]func(*parser, *Turn){
		"expect":   func(p *parser, t *Turn) { t.Expect(p.matcher()) },
		"say":      func(p *parser, t *Turn) { t.Say(p.texts()...) },
		"think":    func(p *parser, t *Turn) { t.Think(p.text()) },
		"redacted": func(p *parser, t *Turn) { t.Redacted(p.text()) },
		"call":     (*parser).call,
		"block": func(p *parser, t *Turn) {
			if s := p.text(); json.Valid([]byte(s)) {
				t.Block(s)
			} else {
				p.fail("block: not JSON: %v", jsonError(s))
			}
		},
		"after":         (*parser).after,
		"pause":         func(p *parser, t *Turn) { t.Pause(p.duration()) },
		"ping":          func(p *parser, t *Turn) { p.bare(); t.Ping() },
		"cut":           func(p *parser, t *Turn) { p.bare(); t.Cut() },
		"cut-clean":     func(p *parser, t *Turn) { p.bare(); t.CutClean() },
		"malformed":     func(p *parser, t *Turn) { t.Malformed(p.text()) },
		"stall":         func(p *parser, t *Turn) { p.bare(); t.Stall() },
		"reset":         func(p *parser, t *Turn) { p.bare(); t.Reset() },
		"error":         func(p *parser, t *Turn) { typ := p.nextWord(); t.StreamError(typ, p.text()) },
		"fail":          (*parser).status,
		"error-type":    func(p *parser, t *Turn) { t.ErrorType(p.one()) },
		"retry-after":   func(p *parser, t *Turn) { t.RetryAfter(p.duration()) },
		"header":        func(p *parser, t *Turn) { name := p.nextWord(); t.Header(name, p.text()) },
		"stop":          func(p *parser, t *Turn) { t.Stop(p.one()) },
		"stop-sequence": func(p *parser, t *Turn) { t.StopSequence(p.text()) },
		"usage":         (*parser).usage,
		"chunks":        func(p *parser, t *Turn) { t.Chunks(p.number(1)) },
		"drip":          func(p *parser, t *Turn) { t.Drip(p.duration()) },
		"times":         func(p *parser, t *Turn) { t.Times(p.number(1)) },
		"always":        func(p *parser, t *Turn) { p.bare(); t.Always() },
		"goto": func(p *parser, t *Turn) {
			name := p.one()
			p.gotos = append(p.gotos, struct {
				name string
				line int
			}{name, p.n})
			t.Goto(name)
		},
	}
}

// bare requires the end of the line.
func (p *parser) bare() {
	if p.rest != "" {
		p.fail("%s takes nothing after it, not %q", p.word, p.rest)
	}
}

// nextWord removes one word from the line.
func (p *parser) nextWord() (word string) {
	word, p.rest = cutWord(p.rest)
	if word == "" {
		p.fail("%s: a word is missing", p.word)
	}
	return word
}

// one requires exactly one word.
func (p *parser) one() string {
	word := p.nextWord()
	if p.rest != "" {
		p.fail("%s takes one word, not %q after it", p.word, p.rest)
	}
	return word
}

func (p *parser) number(least int) int {
	n, err := strconv.Atoi(p.one())
	if err != nil || n < least {
		p.fail("%s: want a number of %d or more", p.word, least)
	}
	return n
}

func (p *parser) duration() time.Duration {
	d, err := time.ParseDuration(p.one())
	if err != nil || d < 0 {
		p.fail("%s: want a duration such as 200ms or 5s", p.word)
	}
	return d
}

// text parses the text on the rest of the line, or after it.
func (p *parser) text() string { return strings.Join(p.texts(), "") }

// texts parses text in any of its three forms: quoted pieces, lines up to a
// tag, or the rest of the line unchanged.
func (p *parser) texts() []string {
	rest := p.rest
	if tag, ok := strings.CutPrefix(rest, "<<"); ok {
		if !nameRE().MatchString(tag) {
			p.fail("<<%s: want a tag of letters, such as <<END", tag)
			return nil
		}
		start := p.n
		for p.n < len(p.lines) {
			line := p.lines[p.n]
			p.n++
			if strings.TrimSpace(line) == tag {
				return []string{strings.Join(p.lines[start:p.n-1], "\n")}
			}
		}
		p.n = start
		p.fail("<<%s: there is no line %s after it", tag, tag)
		return nil
	}
	if !strings.HasPrefix(rest, `"`) {
		return []string{rest}
	}
	var out []string
	for rest != "" {
		q, err := strconv.QuotedPrefix(rest)
		if err != nil || q[0] != '"' {
			p.fail("bad quoted text: %s", rest)
			return nil
		}
		s, err := strconv.Unquote(q)
		if err != nil {
			p.fail("bad quoted text: %s", q)
			return nil
		}
		out = append(out, s)
		rest = strings.TrimSpace(rest[len(q):])
	}
	return out
}

func (p *parser) call(t *Turn) {
	name, id := p.nextWord(), ""
	if s, ok := strings.CutPrefix(p.rest, "id="); ok {
		id, p.rest = cutWord(s)
	}
	verbatim := strings.HasPrefix(p.rest, `"`)
	input := p.text()
	if input == "" && !verbatim {
		input = "{}"
	}
	if !verbatim && !json.Valid([]byte(input)) {
		p.fail("call %s: the input is not JSON: %v (quote it if that is intended)", name, jsonError(input))
		return
	}
	t.CallID(id, name, input)
}

func jsonError(s string) error {
	var v any
	return json.Unmarshal([]byte(s), &v)
}

// after parses "after N" and the pause, ping or fault that follows.
func (p *parser) after(t *Turn) {
	n, err := strconv.Atoi(p.nextWord())
	if err != nil || n < 1 {
		p.fail("after: want the number of an event, from 1")
		return
	}
	p.word, p.rest = cutWord(p.rest)
	switch p.word {
	case "pause", "ping", "cut", "cut-clean", "malformed", "stall", "reset", "error":
		turnWords[p.word](p, t)
		t.After(n)
	default:
		p.fail("after %d: want pause, ping, cut, cut-clean, malformed, stall, reset or error, not %q", n, p.word)
	}
}

func (p *parser) status(t *Turn) {
	word := p.nextWord()
	status, err := strconv.Atoi(word)
	if err != nil {
		p.fail("fail %s: want an HTTP status", word)
		return
	}
	if p.rest == "" {
		t.Fail(status)
		return
	}
	t.Fail(status, p.text())
}

// usageWords are the members of a usage line, in order.
var usageWords = []struct {
	word string
	at   func(*Usage) *int
}{
	{"input", func(u *Usage) *int { return &u.Input }},
	{"output", func(u *Usage) *int { return &u.Output }},
	{"cache-write", func(u *Usage) *int { return &u.CacheWrite }},
	{"cache-write-1h", func(u *Usage) *int { return &u.CacheWrite1h }},
	{"cache-read", func(u *Usage) *int { return &u.CacheRead }},
	{"web-search", func(u *Usage) *int { return &u.WebSearch }},
}

func (p *parser) usage(t *Turn) {
	var u Usage
next:
	for _, f := range strings.Fields(p.rest) {
		word, value, _ := strings.Cut(f, "=")
		n, err := strconv.Atoi(value)
		for _, w := range usageWords {
			if w.word == word && err == nil && n >= 0 {
				*w.at(&u) = n
				continue next
			}
		}
		p.fail("usage: bad item %q: want input=, output=, cache-write=, cache-write-1h=, cache-read= or web-search= and a number", f)
		return
	}
	t.Usage(u)
}

// matcher parses the text after expect and when.
func (p *parser) matcher() Matcher {
	var m Matcher
	m.kind = p.nextWord()
	if m.kind == "not" {
		m.not = true
		m.kind = p.nextWord()
	}
	switch m.kind {
	case "tools":
		m.tool = strings.Fields(p.rest)
		if len(m.tool) == 0 {
			p.fail("tools: want the names of tools")
		}
		return m
	case "user", "first-user", "system", "result", "tool-error", "model", "body":
	case "field", "header":
		if m.path = p.nextWord(); m.kind == "header" {
			m.path = strings.ToLower(m.path)
		}
	default:
		p.fail("unknown expectation %q: want user, first-user, system, result, tool-error, tools, model, body, field or header", m.kind)
		return m
	}
	if op, rest := cutWord(p.rest); op == "=" || op == "~" {
		m.op, p.rest = op, rest
	}
	m.text = p.text()
	if m.op == "~" {
		re, err := regexp.Compile(m.text)
		if err != nil {
			p.fail("%s: %v", m.kind, err)
		}
		m.re = re
	}
	return m
}

// Format writes the scenario as a script file that [ParseScript] parses to the
// same scenario. A matcher made by [Check] cannot be written.
func Format(s *Scenario) ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	var b strings.Builder
	var bad error
	if s.tokens > 0 {
		fmt.Fprintf(&b, "count-tokens %d\n", s.tokens)
	}
	step := func(word string, t *Turn) {
		for i, alt := range t.all() {
			if i > 0 {
				word = "or"
			}
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(word + "\n")
			if err := alt.format(&b); err != nil && bad == nil {
				bad = err
			}
		}
	}
	for i, sc := range s.scripts {
		if i > 0 || sc.each {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			fmt.Fprintf(&b, "script %s\n", sc.name)
		}
		for _, m := range sc.when {
			if m.fn != nil && bad == nil {
				bad = fmt.Errorf("parleytest: script %s: a check by a Go function cannot be written to a file", sc.name)
			}
			b.WriteString("when" + strings.TrimPrefix(formatMatcher(m), "expect") + "\n")
		}
		if sc.each {
			b.WriteString("each\n")
		}
		for _, t := range sc.turns {
			step("turn", t)
		}
	}
	if s.fallback != nil {
		step("default", s.fallback)
	}
	if bad != nil {
		return nil, bad
	}
	return []byte(b.String()), nil
}

func (t *Turn) format(b *strings.Builder) error {
	for _, m := range t.expect {
		if m.fn != nil {
			return fmt.Errorf("parleytest: check %q: a check by a Go function cannot be written to a file", m.text)
		}
		b.WriteString("\t" + formatMatcher(m) + "\n")
	}
	for _, s := range t.steps {
		if err := s.format(b); err != nil {
			return err
		}
	}
	line := func(format string, args ...any) { fmt.Fprintf(b, "\t"+format+"\n", args...) }
	if t.status != 0 {
		if t.message == "" {
			line("fail %d", t.status)
		} else {
			line("fail %d%s", t.status, formatTexts(t.message))
		}
	}
	if t.errType != "" {
		line("error-type %s", t.errType)
	}
	for _, h := range t.header {
		line("header %s%s", h[0], formatTexts(h[1]))
	}
	if t.stopSeq != "" {
		line("stop-sequence%s", formatTexts(t.stopSeq))
	} else if t.stop != "" {
		line("stop %s", t.stop)
	}
	if t.usage != nil {
		b.WriteString("\tusage")
		for _, w := range usageWords {
			if n := *w.at(t.usage); n != 0 {
				fmt.Fprintf(b, " %s=%d", w.word, n)
			}
		}
		b.WriteByte('\n')
	}
	if t.chunk > 0 {
		line("chunks %d", t.chunk)
	}
	if t.drip > 0 {
		line("drip %s", t.drip)
	}
	if t.times > 0 {
		line("times %d", t.times)
	}
	if t.always {
		line("always")
	}
	if t.goTo != "" {
		line("goto %s", t.goTo)
	}
	return nil
}

// format writes a step as a line.
func (s *step) format(b *strings.Builder) error {
	b.WriteByte('\t')
	if s.after > 0 {
		fmt.Fprintf(b, "after %d ", s.after)
	}
	b.WriteString(stepWords[s.kind])
	switch s.kind {
	case stepSay, stepThink, stepRedacted, stepBlock, stepMalformed:
		b.WriteString(formatTexts(s.texts...))
	case stepCall:
		if s.input != nil {
			return fmt.Errorf("parleytest: call %s: an input by a Go function cannot be written to a file", s.name)
		}
		b.WriteString(" " + s.name)
		if s.id != "" {
			b.WriteString(" id=" + s.id)
		}
		if in := s.texts[0]; json.Valid([]byte(in)) {
			b.WriteString(formatTexts(in))
		} else {
			b.WriteString(" " + strconv.Quote(in))
		}
	case stepPause:
		b.WriteString(" " + s.wait.String())
	case stepError:
		b.WriteString(" " + s.name + formatTexts(s.texts...))
	}
	b.WriteByte('\n')
	return nil
}

var stepWords = map[stepKind]string{
	stepSay: "say", stepThink: "think", stepRedacted: "redacted", stepCall: "call", stepBlock: "block", stepPause: "pause", stepPing: "ping", stepCut: "cut",
	stepCutClean: "cut-clean", stepMalformed: "malformed", stepStall: "stall", stepError: "error", stepReset: "reset",
}

func formatMatcher(m Matcher) string {
	s := "expect "
	if m.not {
		s += "not "
	}
	s += m.kind
	if m.kind == "tools" {
		return s + " " + strings.Join(m.tool, " ")
	}
	if m.path != "" {
		s += " " + m.path
	}
	if m.op != "" {
		return s + " " + m.op + formatTexts(m.text)
	}
	if m.text == "" {
		return s
	}
	if op, _ := cutWord(m.text); op == "=" || op == "~" {
		return s + " " + strconv.Quote(m.text)
	}
	return s + formatTexts(m.text)
}

// formatTexts writes text in the simplest form that parses to the same text,
// with a space before it.
func formatTexts(texts ...string) string {
	if len(texts) == 1 {
		s := texts[0]
		plain := s != "" && strings.TrimSpace(s) == s && !strings.HasPrefix(s, `"`) && !strings.HasPrefix(s, "<<") && !strings.HasPrefix(s, "id=")
		switch {
		case plain && !strings.ContainsAny(s, "\r\n"):
			return " " + s
		case strings.Contains(s, "\n") && !strings.Contains(s, "\r"):
			for _, tag := range []string{"END", "EOF", "EOT"} {
				taken := false
				for line := range strings.SplitSeq(s, "\n") {
					taken = taken || strings.TrimSpace(line) == tag
				}
				if !taken {
					return " <<" + tag + "\n" + s + "\n" + tag
				}
			}
		}
	}
	var b strings.Builder
	for _, s := range texts {
		b.WriteString(" " + strconv.Quote(s))
	}
	return b.String()
}
