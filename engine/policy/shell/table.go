package shell

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
)

//go:embed programs.txt
var programsText string

// A program is a line of programs.txt: the known effects of a program, or of one of its
// subcommands.
type program struct {
	name   string
	traits trait
	code   string // name of a function that also handles its arguments
	pass   string // name of the program that receives the arguments after --
	short  map[byte]option
	long   map[string]option // with their dashes
	begin  []option          // options that are a prefix of a word, longest first
	pairs  map[string]kind   // operands of the form name=value
	args   []kind            // kinds of its operands
	rest   bool              // the last of args repeats
	tells  []string          // arguments that, alone, make it print information about itself
}

// An option is an argument that starts with a dash.
type option struct {
	name    string
	kind    kind
	value   valueOf
	instead bool // it replaces the first operand
}

// A valueOf is the position of an option's value.
type valueOf byte

const (
	noValue  valueOf = iota
	needs            // attached to it, or the next word
	joined           // attached to it, or none
	needsTwo         // the next two words
)

// A kind is the meaning of a value or an operand for a program; programs.txt explains
// them.
type kind string

func (p *program) is(t trait) bool { return p != nil && p.traits&t != 0 }

// A table holds the known programs. A line is parsed when its program is first needed: a process
// that runs a command needs few of them.
type table struct {
	lines  map[string]*programLine // by name; subcommands follow after a space
	groups map[string]string       // options that lines have in common
	forms  map[string][][]string
	fields map[string]bool // columns that ps may print in a literal form
}

// A programLine is a line of a table.
type programLine struct {
	first  string // its first name
	words  string // what follows the names
	number int

	once    sync.Once
	program *program
	err     error
}

// programs returns the table of programs.txt.
var programs = sync.OnceValue(func() *table {
	t, err := parseTable(programsText)
	if err != nil {
		panic(err) // a test parses the file
	}
	return t
})

// program returns the program with a name, or nil.
func (t *table) program(name string) *program {
	line := t.lines[name]
	if line == nil {
		return nil
	}
	line.once.Do(func() { line.program, line.err = t.parse(line) })
	if line.err != nil {
		panic(line.err) // a test parses every line
	}
	return line.program
}

// lookup returns the line of a program, if there is one. It ignores a version after the
// name, as in python3.11.
func lookup(name string) *program {
	t := programs()
	if p := t.program(name); p != nil {
		return p
	}
	if short := strings.TrimRight(name, "0123456789."); short != name && short != "" {
		if p := t.program(short); p != nil && p.code == "language" {
			return p
		}
	}
	return nil
}

// IsKnown reports whether the table has a program of this name.
func IsKnown(name string) bool { return lookup(name) != nil }

// A trait is a set of words of programs.txt that are neither names nor options, one bit
// for each.
type trait uint16

const (
	readsTrait trait = 1 << iota
	editsTrait
	printsTrait
	anyTrait
	plainTrait
	bareTrait
	onedashTrait
	stopTrait
	subTrait
	clearTrait
	netTrait
	treeTrait
	atfileTrait
	runsTrait
	inputTrait
)

var traits = map[string]trait{
	"reads": readsTrait, "edits": editsTrait, "prints": printsTrait, "any": anyTrait, "plain": plainTrait, "bare": bareTrait,
	"onedash": onedashTrait, "stop": stopTrait,
	"sub": subTrait, "clear": clearTrait, "net": netTrait, "tree": treeTrait, "atfile": atfileTrait,
	"runs": runsTrait, "input": inputTrait,
}

// parseTable finds the lines of a text in the form of programs.txt.
func parseTable(text string) (*table, error) {
	t := &table{lines: map[string]*programLine{}, groups: map[string]string{}, forms: map[string][][]string{}, fields: map[string]bool{}}
	for _, line := range tableLines(text) {
		if line.text[0] == '=' {
			words := strings.Fields(line.text)
			if words[0] == "=F" {
				for _, name := range words[1:] {
					t.fields[name] = true
				}
				continue
			}
			t.forms[words[1]] = append(t.forms[words[1]], words[1:])
			continue
		}
		if group, ok := strings.CutPrefix(line.text, "+"); ok {
			n := strings.IndexAny(group, " \n")
			t.groups[group[:n]] = group[n:]
			continue
		}
		names, words := tableNames(line.text)
		p := &programLine{words: words, number: line.number}
		p.first, _, _ = strings.Cut(names, ",")
		for name := range strings.SplitSeq(names, ",") {
			if t.lines[name] != nil {
				return nil, fmt.Errorf("programs.txt:%d: %s has a line already", line.number, name)
			}
			t.lines[name] = p
		}
	}
	return t, nil
}

// parse parses a line.
func (t *table) parse(line *programLine) (*program, error) {
	p := &program{name: line.first, short: map[byte]option{}, long: map[string]option{}, pairs: map[string]kind{}}
	words := strings.Fields(line.words)
	if slices.Contains(words, "onedash") { // it changes how options are read
		p.traits |= onedashTrait
	}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if group, ok := strings.CutPrefix(word, "+"); ok {
			if t.groups[group] == "" {
				return nil, fmt.Errorf("programs.txt:%d: there is no line +%s", line.number, group)
			}
			words = append(strings.Fields(t.groups[group]), words...)
			continue
		}
		if name, ok := strings.CutPrefix(word, "as="); ok {
			if t.lines[name] == nil || t.lines[name] == line {
				return nil, fmt.Errorf("programs.txt:%d: there is no line %s", line.number, name)
			}
			return t.program(name), nil
		}
		if name, ok := strings.CutPrefix(word, "pass="); ok {
			if p.pass = name; t.lines[name] == nil {
				return nil, fmt.Errorf("programs.txt:%d: there is no line %s", line.number, name)
			}
		} else if err := p.add(word); err != nil {
			return nil, fmt.Errorf("programs.txt:%d: %w", line.number, err)
		}
	}
	return p, nil
}

type tableLine struct {
	text   string
	number int
}

// tableLines returns the lines of a table without comments, with continuation lines
// joined.
func tableLines(text string) []tableLine {
	lines := make([]tableLine, 0, strings.Count(text, "\n"))
	number, start, at := 0, 0, 0 // start is where the last line of the result starts
	end := 0                     // where it ends
	for line := range strings.Lines(text) {
		number++
		from := at
		at += len(line)
		switch {
		case strings.TrimSpace(line) == "" || line[0] == '#':
		case line[0] == ' ' && len(lines) > 0:
			if last := &lines[len(lines)-1]; end == from { // the usual case: nothing between them
				last.text = text[start:at]
			} else {
				last.text += line
			}
			end = at
		default:
			lines = append(lines, tableLine{line, number})
			start, end = from, at
		}
	}
	return lines
}

// tableNames splits a line into names, separated by commas, and properties.
func tableNames(line string) (names, words string) {
	for word := range strings.FieldsSeq(line) {
		if names != "" && (traits[word] != 0 || strings.Contains(word, "=") || strings.IndexByte("-+@", word[0]) >= 0) {
			break
		}
		if names != "" {
			names += " "
		}
		names += word
		line = line[strings.Index(line, word)+len(word):]
	}
	return names, line
}

// add adds a word of a line.
func (p *program) add(word string) error {
	switch {
	case traits[word] != 0:
		p.traits |= traits[word]
	case strings.HasPrefix(word, "code="):
		p.code = word[len("code="):]
		if functions[p.code] == nil {
			return fmt.Errorf("there is no function %s", p.code)
		}
	case strings.HasPrefix(word, "args="):
		for k := range strings.SplitSeq(word[len("args="):], ",") {
			k, p.rest = strings.CutSuffix(k, "*")
			p.args = append(p.args, kind(k))
		}
	case strings.HasPrefix(word, "tells="):
		p.tells = strings.Split(word[len("tells="):], ",")
	case strings.HasPrefix(word, "@"):
		name, k, _ := strings.Cut(word[1:], ":")
		p.pairs[name] = kind(k)
	case strings.HasPrefix(word, "-"):
		return p.addOption(word)
	default:
		return fmt.Errorf("%q is neither a trait nor an option", word)
	}
	for _, k := range p.args {
		if !kinds[k] {
			return fmt.Errorf("there is no kind %s", k)
		}
	}
	return nil
}

func (p *program) addOption(word string) error {
	o := option{}
	word, o.instead = strings.CutSuffix(word, "^")
	// The name ends at the first of these characters that is not a part of it.
	end := strings.IndexAny(word[2:], ":=!*")
	names, rest := word, ""
	if end >= 0 {
		names, rest = word[:2+end], word[2+end:]
	}
	if at := strings.IndexByte(word, '*'); at > 0 {
		names, rest = word[:at], word[at+1:]
		o.name = names
		if k, ok := strings.CutPrefix(rest, ":"); ok {
			o.value, rest = needs, k
		}
		if o.kind = kind(rest); !kinds[o.kind] {
			return fmt.Errorf("there is no kind %s", o.kind)
		}
		at := 0
		for at < len(p.begin) && len(p.begin[at].name) > len(names) {
			at++
		}
		p.begin = append(p.begin[:at], append([]option{o}, p.begin[at:]...)...)
		return nil
	}
	if rest != "" {
		o.kind = kind(rest[1:])
		switch rest[0] {
		case ':':
			o.value = needs
			if k, ok := strings.CutPrefix(string(o.kind), "2"); ok {
				o.value, o.kind = needsTwo, kind(k)
			}
		case '=':
			o.value = joined
		}
	}
	if !kinds[o.kind] {
		return fmt.Errorf("there is no kind %s", o.kind)
	}
	if strings.HasPrefix(names, "--") || p.is(onedashTrait) {
		o.name = names
		if p.is(onedashTrait) && !strings.HasPrefix(names, "--") {
			p.long["-"+names] = o
		}
		p.long[names] = o
		return nil
	}
	for i := 1; i < len(names); i++ {
		o.name = "-" + names[i:i+1]
		p.short[names[i]] = o
	}
	return nil
}

// find returns the option for a long name, which may be abbreviated. If the
// abbreviation is ambiguous, it returns the option with the strongest effect. ok is
// false if there is none.
func (p *program) find(name string) (o option, ok bool) {
	if o, ok = p.long[name]; ok {
		o.name = name
		return o, true
	}
	if len(name) < 3 || p.is(onedashTrait) {
		return option{}, false
	}
	for full, other := range p.long {
		if strings.HasPrefix(full, name) && (!ok || other.kind != "" && other.kind != "text") {
			o, ok = other, true
			o.name = full
		}
	}
	return o, ok
}

// form reports whether words are one of the literal forms of the table.
func (t *table) form(words []string) bool {
	for _, form := range t.forms[words[0]] {
		if len(form) == len(words) && t.matchForm(form, words) {
			return true
		}
	}
	return false
}

func (t *table) matchForm(form, words []string) bool {
	for i, f := range form {
		if f == words[i] {
			continue
		}
		// N, P and F stand for something if they are the whole word or follow : or =.
		before, is := f[:len(f)-1], f[len(f)-1]
		w, ok := strings.CutPrefix(words[i], before)
		if !ok || w == "" || before != "" && !strings.HasSuffix(before, ":") && !strings.HasSuffix(before, "=") {
			return false
		}
		switch is {
		case 'N':
			ok = isNumber(w)
		case 'P':
			ok = consistsOf(w, nameBytes) && w[0] != '-'
		case 'F':
			ok = t.isFieldList(w)
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	return true
}

// isFieldList reports whether a text is a list of columns for ps, such as pid,args:40 or -rss.
func (t *table) isFieldList(text string) bool {
	for name := range strings.SplitSeq(text, ",") {
		name, width, wide := strings.Cut(strings.TrimLeft(name, "+-%"), ":")
		if !t.fields[name] || wide && !isNumber(width) {
			return false
		}
	}
	return true
}

const nameBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."

func consistsOf(s, bytes string) bool { return s != "" && strings.Trim(s, bytes) == "" }

// RunsOthers reports whether a program of this name runs its arguments as a command.
func RunsOthers(name string) bool {
	p := lookup(name)
	return p != nil && (p.code == "shell" || len(p.args) > 0 && (p.args[len(p.args)-1] == "cmd" || p.args[len(p.args)-1] == "xcmd"))
}
