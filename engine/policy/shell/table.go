package shell

import (
	_ "embed"
	"fmt"
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
	code   string   // name of a function that also handles its arguments
	pass   *program // the program that receives the arguments after --
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

// A table holds the known programs.
type table struct {
	programs map[string]*program // by name; subcommands follow after a space
	forms    map[string][][]string
}

// programs returns the table of programs.txt, parsed when it is first needed.
var programs = sync.OnceValue(func() *table {
	t, err := parseTable(programsText)
	if err != nil {
		panic(err) // a test parses the file
	}
	return t
})

// lookup returns the line of a program, if there is one. It ignores a version after the
// name, as in python3.11.
func lookup(name string) *program {
	t := programs()
	if p := t.programs[name]; p != nil {
		return p
	}
	if short := strings.TrimRight(name, "0123456789."); short != name && short != "" {
		if p := t.programs[short]; p != nil && p.code == "language" {
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
)

var traits = map[string]trait{
	"reads": readsTrait, "edits": editsTrait, "prints": printsTrait, "any": anyTrait, "plain": plainTrait, "bare": bareTrait, "onedash": onedashTrait, "stop": stopTrait,
	"sub": subTrait, "clear": clearTrait, "net": netTrait, "tree": treeTrait, "atfile": atfileTrait,
}

// parseTable parses a text in the form of programs.txt.
func parseTable(text string) (*table, error) {
	t := &table{programs: map[string]*program{}, forms: map[string][][]string{}}
	groups := map[string][]string{}
	as, pass := map[string]string{}, map[*program]string{}
	for _, line := range tableLines(text) {
		words := strings.Fields(line.text)
		if words[0] == "=" {
			t.forms[words[1]] = append(t.forms[words[1]], words[1:])
			continue
		}
		if group, ok := strings.CutPrefix(words[0], "+"); ok {
			groups[group] = words[1:]
			continue
		}
		names, words := tableNames(words)
		p := &program{name: names[0], short: map[byte]option{}, long: map[string]option{}, pairs: map[string]kind{}}
		for len(words) > 0 {
			word := words[0]
			words = words[1:]
			if group, ok := strings.CutPrefix(word, "+"); ok {
				words = append(append([]string{}, groups[group]...), words...)
				if groups[group] == nil {
					return nil, fmt.Errorf("programs.txt:%d: there is no line +%s above", line.number, group)
				}
				continue
			}
			if name, ok := strings.CutPrefix(word, "as="); ok {
				as[names[0]] = name
			} else if name, ok := strings.CutPrefix(word, "pass="); ok {
				pass[p] = name
			} else if err := p.add(word); err != nil {
				return nil, fmt.Errorf("programs.txt:%d: %w", line.number, err)
			}
		}
		for _, name := range names {
			if t.programs[name] != nil {
				return nil, fmt.Errorf("programs.txt:%d: %s has a line already", line.number, name)
			}
			t.programs[name] = p
		}
	}
	for name, other := range as {
		if t.programs[name] = t.programs[other]; t.programs[other] == nil {
			return nil, fmt.Errorf("programs.txt: there is no line %s", other)
		}
	}
	for p, other := range pass {
		if p.pass = t.programs[other]; p.pass == nil {
			return nil, fmt.Errorf("programs.txt: there is no line %s", other)
		}
	}
	return t, nil
}

type tableLine struct {
	text   string
	number int
}

// tableLines returns the lines of a table without comments, with continuation lines
// joined.
func tableLines(text string) []tableLine {
	var lines []tableLine
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.TrimSpace(line) == "" || line[0] == '#':
		case line[0] == ' ' && len(lines) > 0:
			lines[len(lines)-1].text += line
		default:
			lines = append(lines, tableLine{line, number})
		}
	}
	return lines
}

// tableNames splits a line into names and properties.
func tableNames(words []string) (names, rest []string) {
	n := 1
	for n < len(words) && traits[words[n]] == 0 && !strings.ContainsAny(words[n], "=") && !strings.ContainsAny(words[n][:1], "-+@") {
		n++
	}
	return strings.Split(strings.Join(words[:n], " "), ","), words[n:]
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
	if len(name) < 4 || p.is(onedashTrait) {
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
		if len(form) == len(words) && matchForm(form, words) {
			return true
		}
	}
	return false
}

func matchForm(form, words []string) bool {
	for i, f := range form {
		w := words[i]
		switch {
		case f == w:
			continue
		case strings.HasSuffix(f, "N"):
			w, ok := strings.CutPrefix(w, strings.TrimSuffix(f, "N"))
			if !ok || !isNumber(w) {
				return false
			}
		case strings.HasSuffix(f, "P"):
			w, ok := strings.CutPrefix(w, strings.TrimSuffix(f, "P"))
			if !ok || !consistsOf(w, nameBytes) || w[0] == '-' {
				return false
			}
		case strings.HasSuffix(f, "F"):
			w, ok := strings.CutPrefix(w, strings.TrimSuffix(f, "F"))
			if !ok || !consistsOf(w, nameBytes+",%+:=") || w[0] == '-' && f == "F" {
				return false
			}
		default:
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
