package peer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/tools/txtar"
)

// A Script describes the actions of a peer: a parsed script file. It is immutable
// and may be played many times, also concurrently.
type Script struct {
	// Name is the name of the file, or of the fault.
	Name string
	// Doc is the prose above the first section.
	Doc string
	// Argv is the value of the argv step: the command line of the script. [Drive]
	// appends its arguments to the command; a player of the CLI ignores it.
	Argv []string

	src       []byte
	steps     []*step
	params    map[string]string // all parameters with their values
	overrides map[string]string // parameters that With set
}

// A ScriptError reports why a script was rejected. Line is 0 if there is no
// particular line.
type ScriptError struct {
	File   string
	Line   int
	Reason string
}

// Error returns the position and the reason.
func (e *ScriptError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("peer: %s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("peer: %s:%d: %s", e.File, e.Line, e.Reason)
}

// Load reads a script from a file.
func Load(path string) (*Script, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("peer: %w", err)
	}
	return Parse(filepath.Base(path), data)
}

// Parse parses a script. Errors, which are [*ScriptError]s, contain the name.
func Parse(name string, data []byte) (*Script, error) {
	return parse(name, data, nil)
}

// MustParse is [Parse] for scripts in source code: it panics if the script is
// invalid.
func MustParse(name, text string) *Script {
	s, err := Parse(name, []byte(text))
	if err != nil {
		panic(err)
	}
	return s
}

// With returns the script with another value for one of its parameters. It panics
// if there is no such parameter or the value makes the script invalid: both are
// mistakes in the test.
func (s *Script) With(param, value string) *Script {
	if _, ok := s.params[param]; !ok {
		panic(fmt.Sprintf("peer: %s has no parameter %q (it has %v)", s.Name, param, slices.Sorted(maps.Keys(s.params))))
	}
	over := maps.Clone(s.overrides)
	if over == nil {
		over = make(map[string]string)
	}
	over[param] = value
	c, err := parse(s.Name, s.src, over)
	if err != nil {
		panic(err)
	}
	return c
}

// Params returns the parameters and their values.
func (s *Script) Params() map[string]string { return maps.Clone(s.params) }

// String returns the text of the script.
func (s *Script) String() string { return string(s.src) }

// NeedsProcess reports whether the script contains a step that only a process can
// perform, such as ignoring signals. Such a script cannot be played in memory.
func (s *Script) NeedsProcess() bool {
	return anyStep(s.steps, func(st *step) bool {
		return st.op == opFault && (st.word == "ignore-signals" || st.word == "grandchild")
	})
}

// Frames returns how many frames the script expects and sends, from its first to
// its last step. With "! die-after $n", n from 0 to Frames covers every position
// between two frames.
func (s *Script) Frames() int { return countFrames(s.steps) }

func countFrames(steps []*step) int {
	n := 0
	for _, st := range steps {
		switch st.op {
		case opExpect, opExpectText, opSend:
			n++
		case opFault:
			if st.word == "long-line" {
				n++
			}
		case opRepeat:
			n += st.n * countFrames(st.body)
		case opUnordered:
			for _, b := range st.branches {
				n += countFrames(b)
			}
		}
	}
	return n
}

func anyStep(steps []*step, f func(*step) bool) bool {
	for _, st := range steps {
		if f(st) || anyStep(st.body, f) {
			return true
		}
		for _, b := range st.branches {
			if anyStep(b, f) {
				return true
			}
		}
	}
	return false
}

type op int

const (
	opExpect       op = iota // < JSON, <? JSON
	opExpectText             // < text "…"
	opExpectEOF              // < eof
	opExpectExit             // < exit N
	opExpectStderr           // < stderr "…"
	opSkip                   // < ...
	opSend                   // > JSON
	opRaw                    // raw "…"
	opStderr                 // stderr "…"
	opWait
	opTimeout
	opExit
	opIgnore
	opRefuse
	opOthers
	opOn
	opUnordered
	opRepeat
	opSignal
	opClose
	opFault
)

// A step is one line of a script, with the steps of its block.
type step struct {
	op       op
	line     int
	text     string // the line as written
	optional bool
	frame    *pattern
	word     string // fault name, signal name, others mode
	args     []string
	str      string
	dur      time.Duration
	n        int
	body     []*step
	branches [][]*step // of unordered; each starts with an expectation
}

// parser holds the state of one parse.
type parser struct {
	name   string
	script *Script
	blobs  map[string][]byte
	known  map[string]bool // variables bound so far, in the order of the text
	lines  []string
	first  int // number of lines[0] in the file
	pos    int // index of the next line
	depth  int
}

func parse(name string, data []byte, overrides map[string]string) (*Script, error) {
	ar := txtar.Parse(data)
	s := &Script{
		Name: name, Doc: strings.TrimSpace(string(ar.Comment)), src: bytes.Clone(data),
		params: make(map[string]string), overrides: overrides,
	}
	p := &parser{name: name, script: s, blobs: make(map[string][]byte), known: map[string]bool{"uuid": true}}
	found := false
	for _, f := range ar.Files {
		if f.Name == "steps" {
			if found {
				return nil, &ScriptError{name, 0, "two sections named steps"}
			}
			found = true
			p.lines = strings.Split(string(f.Data), "\n")
			continue
		}
		if _, dup := p.blobs[f.Name]; dup {
			return nil, &ScriptError{name, 0, fmt.Sprintf("two sections named %s", f.Name)}
		}
		p.blobs[f.Name] = f.Data
	}
	if !found {
		return nil, &ScriptError{name, 0, `no section "-- steps --"; "parley help steps" describes the format`}
	}
	for i, l := range strings.Split(string(data), "\n") {
		if m, ok := strings.CutPrefix(strings.TrimRight(l, " \r"), "-- "); ok {
			if m, ok = strings.CutSuffix(m, " --"); ok && strings.TrimSpace(m) == "steps" {
				p.first = i + 2
				break
			}
		}
	}
	for over := range overrides {
		p.known[over] = true
	}
	steps, err := p.block()
	if err != nil {
		return nil, err
	}
	s.steps = steps
	return s, nil
}

func (p *parser) errorf(line int, format string, args ...any) error {
	return &ScriptError{p.name, line, fmt.Sprintf(format, args...)}
}

const maxDepth = 16

// block parses steps up to the end of the text, or to the "end" of a block.
func (p *parser) block() ([]*step, error) {
	var steps []*step
	for p.pos < len(p.lines) {
		line := p.first + p.pos
		text := strings.TrimSpace(p.lines[p.pos])
		p.pos++
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		if text == "end" {
			if p.depth == 0 {
				return nil, p.errorf(line, "end without a block")
			}
			p.depth--
			return steps, nil
		}
		st, err := p.step(line, text)
		if err != nil {
			return nil, err
		}
		if st != nil {
			steps = append(steps, st)
		}
	}
	if p.depth > 0 {
		return nil, p.errorf(p.first+len(p.lines)-1, "a block is not ended: %d end missing", p.depth)
	}
	return steps, nil
}

// sub parses the block that the step at line opens.
func (p *parser) sub(line int) ([]*step, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.errorf(line, "blocks are nested deeper than %d", maxDepth)
	}
	return p.block()
}

func (p *parser) step(line int, text string) (*step, error) {
	st := &step{line: line, text: text}
	switch {
	case strings.HasPrefix(text, "<"):
		return st, p.expectation(st, text[1:])
	case strings.HasPrefix(text, ">"):
		st.op = opSend
		return st, p.sendFrame(st, strings.TrimSpace(text[1:]))
	case strings.HasPrefix(text, "!"):
		return st, p.fault(st, strings.TrimSpace(text[1:]))
	}
	word, rest, _ := strings.Cut(text, " ")
	rest = strings.TrimSpace(rest)
	switch word {
	case "param", "argv":
		return nil, p.header(line, word, rest)
	case "on", "repeat", "unordered":
		return st, p.opened(st, word, rest)
	}
	return st, p.action(st, word, rest)
}

// header parses a line that is not a step: a parameter or the arguments.
func (p *parser) header(line int, word, rest string) error {
	if word == "argv" {
		if err := json.Unmarshal([]byte(rest), &p.script.Argv); err != nil {
			return p.errorf(line, "argv wants a JSON array of strings: %v", err)
		}
		return nil
	}
	name, value, _ := strings.Cut(rest, " ")
	if !isName(name) {
		return p.errorf(line, "param wants a name and a value, got %q", rest)
	}
	if _, dup := p.script.params[name]; dup {
		return p.errorf(line, "parameter %s is given twice", name)
	}
	if over, ok := p.script.overrides[name]; ok {
		value = over
	}
	p.script.params[name] = strings.TrimSpace(value)
	p.known[name] = true
	return nil
}

// action parses a step that acts at once, and has no block.
func (p *parser) action(st *step, word, rest string) (err error) {
	wrong := func(format string, args ...any) error { return p.errorf(st.line, format, args...) }
	switch word {
	case "raw":
		st.op = opRaw
		if name, ok := strings.CutPrefix(rest, "@"); ok {
			blob, ok := p.blobs[name]
			if st.str = string(blob); !ok {
				return wrong("no section %q", name)
			}
		} else if st.str, err = strconv.Unquote(rest); err != nil {
			return wrong("raw wants a quoted string, as in Go, or @section")
		}
	case "stderr":
		st.op = opStderr
		if st.str, err = p.quoted(rest); err != nil {
			return wrong("stderr: %v", err)
		}
		if !strings.HasPrefix(rest, `"`) {
			st.str += "\n"
		}
	case "wait", "timeout":
		st.op = map[string]op{"wait": opWait, "timeout": opTimeout}[word]
		if st.dur, err = time.ParseDuration(p.expand(rest)); err != nil || st.dur < 0 {
			return wrong("%s wants a duration such as 50ms, got %q", word, rest)
		}
	case "exit":
		st.op = opExit
		if st.n, err = strconv.Atoi(p.expand(rest)); err != nil || st.n < 0 || st.n > 255 {
			return wrong("exit wants a status from 0 to 255, got %q", rest)
		}
	case "ignore", "refuse":
		st.op = map[string]op{"ignore": opIgnore, "refuse": opRefuse}[word]
		st.frame, err = p.pattern(st.line, rest, false)
		return err
	case "others":
		st.op, st.word = opOthers, rest
		if rest != "refuse" && rest != "skip" && rest != "keep" {
			return wrong("others wants refuse, skip or keep, got %q", rest)
		}
	case "close":
		if st.op = opClose; rest != "" {
			return wrong("close takes no argument")
		}
	case "signal":
		st.op, st.word = opSignal, strings.TrimPrefix(rest, "SIG")
		if !slices.Contains([]string{"INT", "TERM", "KILL"}, st.word) {
			return wrong("signal wants INT, TERM or KILL, got %q", rest)
		}
	default:
		return wrong("unknown step %q", word)
	}
	return nil
}

// opened parses a step that opens a block, and the block.
func (p *parser) opened(st *step, word, rest string) (err error) {
	switch word {
	case "on":
		st.op = opOn
		if st.frame, err = p.pattern(st.line, rest, true); err != nil {
			return err
		}
	case "repeat":
		st.op = opRepeat
		if st.n, err = strconv.Atoi(p.expand(rest)); err != nil || st.n < 0 {
			return p.errorf(st.line, "repeat wants a number, got %q", rest)
		}
		p.known["i"] = true
	case "unordered":
		if st.op = opUnordered; rest != "" {
			return p.errorf(st.line, "unordered takes no argument")
		}
	}
	body, err := p.sub(st.line)
	if err != nil {
		return err
	}
	if word == "on" && anyStep(body, func(b *step) bool { return b.op == opOn }) {
		return p.errorf(st.line, "on inside on")
	}
	if word != "unordered" {
		st.body = body
		return nil
	}
	for _, b := range body {
		switch last := len(st.branches) - 1; {
		case b.op == opExpect && !b.optional:
			st.branches = append(st.branches, []*step{b})
		case last < 0:
			return p.errorf(b.line, "unordered starts with an expectation")
		default:
			st.branches[last] = append(st.branches[last], b)
		}
	}
	return nil
}

// expectation parses the text after "<".
func (p *parser) expectation(st *step, rest string) error {
	if r, ok := strings.CutPrefix(rest, "?"); ok {
		st.optional, rest = true, r
	}
	rest = strings.TrimSpace(rest)
	word, arg, _ := strings.Cut(rest, " ")
	arg = strings.TrimSpace(arg)
	var err error
	switch word {
	case "...":
		st.op = opSkip
	case "eof":
		st.op = opExpectEOF
	case "exit":
		st.op = opExpectExit
		if st.n, err = strconv.Atoi(arg); err != nil {
			return p.errorf(st.line, "< exit wants a status, got %q", arg)
		}
	case "text", "stderr":
		st.op = opExpectText
		if word == "stderr" {
			st.op = opExpectStderr
		}
		if st.str, err = p.quoted(arg); err != nil {
			return p.errorf(st.line, "< %s: %v", word, err)
		}
	default:
		st.op = opExpect
		st.frame, err = p.pattern(st.line, rest, false)
		return err
	}
	if st.optional {
		return p.errorf(st.line, "only a frame can be optional")
	}
	if (word == "..." || word == "eof") && arg != "" {
		return p.errorf(st.line, "< %s takes no argument, got %q", word, arg)
	}
	return nil
}

// faultArgs holds the minimum and maximum number of arguments of a fault; the last
// may be a frame.
var faultArgs = map[string]struct{ min, max int }{
	"hang":           {0, 0},
	"kill":           {0, 0},
	"close-stdin":    {0, 0},
	"close-stdout":   {0, 0},
	"ignore-eof":     {0, 0},
	"ignore-signals": {0, 0},
	"die-after":      {1, 1},
	"long-line":      {1, 1},
	"stderr-flood":   {2, 2},
	"grandchild":     {0, 1},
	"half":           {1, 1},
}

func (p *parser) fault(st *step, rest string) error {
	st.op = opFault
	var arg string
	st.word, arg, _ = strings.Cut(rest, " ")
	arg = strings.TrimSpace(arg)
	want, ok := faultArgs[st.word]
	if !ok {
		return p.errorf(st.line, "unknown fault %q (known: %s)", st.word, strings.Join(slices.Sorted(maps.Keys(faultArgs)), ", "))
	}
	if st.word == "half" {
		return p.sendFrame(st, arg)
	}
	for _, a := range strings.Fields(arg) {
		st.args = append(st.args, p.expand(a))
	}
	if len(st.args) < want.min || len(st.args) > want.max {
		return p.errorf(st.line, "! %s takes %d to %d arguments, got %d", st.word, want.min, want.max, len(st.args))
	}
	var err error
	switch st.word {
	case "die-after":
		if st.n, err = strconv.Atoi(st.args[0]); err != nil || st.n < 0 {
			return p.errorf(st.line, "! die-after wants a number of frames, got %q", st.args[0])
		}
	case "long-line", "stderr-flood":
		for _, a := range st.args {
			if _, err := parseSize(a); err != nil {
				return p.errorf(st.line, "! %s: %v", st.word, err)
			}
		}
	case "grandchild":
		if len(st.args) == 1 && st.args[0] != "setsid" {
			return p.errorf(st.line, "! grandchild takes setsid or nothing, got %q", st.args[0])
		}
	}
	return nil
}

// frameText returns the JSON of a frame, given in the line or as @section.
func (p *parser) frameText(line int, text string) ([]byte, error) {
	raw := []byte(text)
	if name, ok := strings.CutPrefix(text, "@"); ok {
		blob, ok := p.blobs[name]
		if !ok {
			return nil, p.errorf(line, "no section %q", name)
		}
		raw = blob
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return nil, p.errorf(line, "not a JSON frame: %v", err)
	}
	return b.Bytes(), nil
}

// sendFrame parses a frame to send; all its variables must be known.
func (p *parser) sendFrame(st *step, text string) error {
	raw, err := p.frameText(st.line, text)
	if err != nil {
		return err
	}
	st.frame = &pattern{raw: raw, vars: frameVars(raw)}
	for _, v := range st.frame.vars {
		if !p.known[v] {
			return p.errorf(st.line, "$%s is not bound by a parameter or an earlier expectation", v)
		}
	}
	return nil
}

// pattern parses a frame to match. Variables not known before are bound by it; with
// local, all of them are.
func (p *parser) pattern(line int, text string, local bool) (*pattern, error) {
	raw, err := p.frameText(line, text)
	if err != nil {
		return nil, err
	}
	pt := &pattern{raw: raw, vars: frameVars(raw), binds: make(map[string]bool)}
	if pt.value, err = decode(raw); err != nil {
		return nil, p.errorf(line, "not a JSON frame: %v", err)
	}
	if err := pt.check(pt.value); err != nil {
		return nil, p.errorf(line, "%v", err)
	}
	for _, v := range pt.vars {
		if v == "_" || v == "absent" {
			continue
		}
		if _, param := p.script.params[v]; !param && (local || !p.known[v]) {
			pt.binds[v] = true
			p.known[v] = true
		}
	}
	return pt, nil
}

// quoted returns a string given in quotes, or unchanged.
func (p *parser) quoted(s string) (string, error) {
	if !strings.HasPrefix(s, `"`) {
		return s, nil
	}
	u, err := strconv.Unquote(s)
	if err != nil {
		return "", fmt.Errorf("bad quoted string %s", s)
	}
	return u, nil
}

// expand replaces an argument $name by the value of that parameter.
func (p *parser) expand(s string) string {
	if name, ok := strings.CutPrefix(s, "$"); ok {
		if v, ok := p.script.params[name]; ok {
			return v
		}
	}
	return s
}

// maxSize limits the size of one step.
const maxSize = 1 << 30

// parseSize parses 512, 64KB, 20MB.
func parseSize(s string) (int, error) {
	num, shift := s, 0
	switch {
	case strings.HasSuffix(s, "KB"):
		num, shift = s[:len(s)-2], 10
	case strings.HasSuffix(s, "MB"):
		num, shift = s[:len(s)-2], 20
	}
	n, err := strconv.Atoi(num)
	if err != nil || n < 0 || n > maxSize>>shift {
		return 0, fmt.Errorf("bad size %q: want a number, or one with KB or MB, up to 1024MB", s)
	}
	return n << shift, nil
}
