package policytest

import (
	"embed"
	"fmt"
	"hash/fnv"
	"io/fs"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/wire"
)

//go:embed attacks/*.txt
var tables embed.FS

// A Row is one attack of the table. attacks/README.md describes the columns.
type Row struct {
	Family  string
	Setting string
	Witness string
	Tool    string // "Bash", except for rows of tools.txt
	Arg     string // of the tool, with {ws} and other placeholders
	File    string
	Line    int

	line string // verbatim
}

// Rows returns the attacks, in the order of the table.
func Rows() ([]Row, error) {
	names, err := fs.Glob(tables, "attacks/*.txt")
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, name := range names {
		data, err := tables.ReadFile(name)
		if err != nil {
			return nil, err
		}
		parsed, err := parseRows(strings.TrimPrefix(name, "attacks/"), string(data))
		if err != nil {
			return nil, err
		}
		rows = append(rows, parsed...)
	}
	return rows, nil
}

func parseRows(file, text string) ([]Row, error) {
	var rows []Row
	for i, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		r := Row{File: file, Line: i + 1, Tool: "Bash", line: line}
		rest := line
		for _, column := range []*string{&r.Family, &r.Setting, &r.Witness} {
			*column, rest, _ = strings.Cut(rest, " ")
			rest = strings.TrimLeft(rest, " ")
		}
		if file == "tools.txt" {
			r.Tool, rest, _ = strings.Cut(rest, " ")
		}
		if witness, ok := strings.CutSuffix(r.Witness, "$"); ok {
			r.Witness = witness
			rest = strings.NewReplacer(`\\n`, "\\\n", `\n`, "\n", `\t`, "\t", `\r`, "\r", `\0`, "\x00", `\f`, "\f", `\v`, "\v").Replace(rest)
		}
		if r.Arg = rest; rest == "" {
			return nil, fmt.Errorf("%s: want family, setting, witness and command, got %q", r.Where(), line)
		}
		if _, err := ParseSetting(r.Setting); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Where(), err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// Where returns the file and line of the row.
func (r *Row) Where() string { return fmt.Sprintf("attacks/%s:%d", r.File, r.Line) }

// Needs returns the programs that the row requires: those before the colon in its
// family.
func (r *Row) Needs() []string {
	if programs, _, ok := strings.Cut(r.Family, ":"); ok {
		return strings.Split(programs, "+")
	}
	return nil
}

// InTenth reports whether the row is in the tenth that a short run plays. It depends on
// the row alone, so that adding and removing rows does not affect others.
func (r *Row) InTenth() bool {
	h := fnv.New32a()
	for _, s := range []string{r.Setting, r.Tool, r.Arg} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	return h.Sum32()%10 == 0
}

// A Setting is the place, the mode and the rules of a row.
type Setting struct {
	Place string // in places.sh; "app" unless the row names another
	Mode  wire.PermissionMode
	Rules []policy.Rule // with {ws} and other placeholders; see [Place.Fill]
}

var modes = map[string]wire.PermissionMode{
	"default": wire.ModeDefault, "plan": wire.ModePlan, "edits": wire.ModeAcceptEdits, "dontask": wire.ModeDontAsk, "bypass": wire.ModeBypassPermissions,
}

// ParseSetting parses the second column of the table.
func ParseSetting(text string) (*Setting, error) {
	s := &Setting{Place: "app"}
	denies := false
	for _, word := range splitOutside(text) {
		if word == "" || word == "-" {
			continue
		}
		if mode, ok := modes[word]; ok {
			s.Mode = mode
			continue
		}
		behavior, rule := wire.BehaviorAllow, word[1:]
		switch word[0] {
		case '@':
			s.Place = rule
			continue
		case '+':
		case '!':
			behavior, denies = wire.BehaviorDeny, true
		case '?':
			behavior, denies = wire.BehaviorAsk, true
		default:
			return nil, fmt.Errorf("%q is neither a mode nor a rule nor a place", word)
		}
		if !strings.HasPrefix(rule, "mcp__") {
			rule = strings.ReplaceAll(rule, "_", " ")
		}
		if rule[0] < 'A' || rule[0] > 'Z' && !strings.HasPrefix(rule, "mcp__") {
			rule = "Bash(" + rule + ":*)"
		}
		r, err := policy.Parse(rule, behavior, policy.Source{Layer: policy.LayerUser, File: "settings.json"})
		if err != nil {
			return nil, err
		}
		s.Rules = append(s.Rules, r)
	}
	if s.Mode == "" {
		if s.Mode = wire.ModeDefault; denies {
			s.Mode = wire.ModeBypassPermissions // so that only the rule can stop the call
		}
	}
	return s, nil
}

// Ruleless reports whether only proof could let a call run: there is no allow rule, and
// the mode allows nothing.
func (s *Setting) Ruleless() bool {
	return (s.Mode == wire.ModeDefault || s.Mode == wire.ModePlan || s.Mode == wire.ModeDontAsk) &&
		!slices.ContainsFunc(s.Rules, func(r policy.Rule) bool { return r.Behavior == wire.BehaviorAllow })
}

// splitOutside splits at commas outside of parentheses.
func splitOutside(text string) []string {
	var words []string
	depth, from := 0, 0
	for i, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			words, from = append(words, text[from:i]), i+1
		}
	}
	return append(words, text[from:])
}
