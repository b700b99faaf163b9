package policy

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/policy/shell"
)

// A commandPattern is the pattern of a rule about commands: "git diff:*" and "git diff
// *" match commands that start with these words, in "git * main" the * matches anything,
// and all else is a whole command.
type commandPattern struct {
	text   string   // as it is written
	words  []string // set if no word has a *
	prefix bool     // more words may follow
	glob   string   // set otherwise: words separated by a zero byte
	bare   string   // name of the program, without directory and version
}

// sep separates the words of a command.
const sep = "\x00"

func newCommandPattern(content string) *commandPattern {
	p := &commandPattern{text: strings.TrimSpace(content)}
	defer func() { p.bare = unversioned(filepath.Base(p.program())) }()
	text, ok := strings.CutSuffix(p.text, ":*")
	if !ok {
		text, ok = strings.CutSuffix(p.text, " *")
	}
	words := patternWords(text)
	if len(words) == 0 { // a comment, or nothing before :*
		if ok {
			p.glob = "*"
		}
		return p
	}
	if strings.Contains(text, "*") {
		p.glob = strings.Join(words, sep)
		if ok {
			p.glob += sep + "*"
		}
		return p
	}
	p.words, p.prefix = words, ok
	return p
}

// patternWords splits the pattern of a rule into words, like a shell if it contains
// quotes.
func patternWords(text string) []string {
	if strings.ContainsAny(text, `"'\`) {
		if words, ok := shell.Split(text); ok {
			return words
		}
	}
	return strings.Fields(text)
}

// program returns the program that a pattern names, or "" if it matches any.
func (p *commandPattern) program() string {
	if len(p.words) > 0 {
		return p.words[0]
	}
	first, _, _ := strings.Cut(p.glob, sep)
	if strings.Contains(first, "*") {
		return ""
	}
	return first
}

// proves reports whether the pattern certainly matches a call.
func (p *commandPattern) proves(c *shell.Call) bool {
	if p.words != nil {
		if len(c.Args) < len(p.words) || !p.prefix && len(c.Args) != len(p.words) {
			return false
		}
		for i, w := range p.words {
			if !c.Args[i].Static() || c.Args[i].Text() != w {
				return false
			}
		}
		return true
	}
	var b strings.Builder
	for i, a := range c.Args {
		if !a.Static() {
			return false
		}
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(a.Text())
	}
	return wildcard(p.glob, b.String()) || strings.HasSuffix(p.glob, sep+"*") && wildcard(strings.TrimSuffix(p.glob, sep+"*"), b.String())
}

// covers reports whether the pattern explicitly includes a danger of a call that it
// proves: it contains that very word.
func (p *commandPattern) covers(c *shell.Call, d shell.Danger) bool {
	if d.Arg < 0 || d.Arg >= len(c.Args) {
		return false
	}
	if p.words != nil {
		return d.Arg < len(p.words) || d.Named && len(p.words) == 1
	}
	word := c.Args[d.Arg].Text()
	return slices.Contains(strings.Split(p.glob, sep), word)
}

// suspects returns whether the pattern may match a call.
func (p *commandPattern) suspects(j *judgement, s *shell.Script, c *shell.Call) certainty {
	found := p.suspectsArgs(j, s, c.Args)
	if found == yes || !c.Loose {
		return found
	}
	program := p.program()
	if len(c.Args) > maxLoose {
		return maybe
	}
	for i := 1; i < len(c.Args) && found == no; i++ {
		if a := c.Args[i]; a.Static() {
			alone := len(p.words) > 1 && a.Text() == program // the words after it are compared instead
			if p.suspectsArgs(j, s, c.Args[i:]) != no || program != "" && !alone && shell.HasWord(a.Text(), filepath.Base(program)) {
				found = maybe
			}
		}
	}
	return found
}

// maxLoose is how many arguments of an unknown program are checked one by one.
const maxLoose = 1000

// suspectsArgs returns whether the pattern may match words.
func (p *commandPattern) suspectsArgs(j *judgement, s *shell.Script, args []shell.Word) certainty {
	static := !slices.ContainsFunc(args, func(a shell.Word) bool { return !a.Static() })
	if name := args[0].Text(); !args[0].Static() || !strings.Contains(name, "/") {
		return p.suspectsCall(name, args, static) // by far the most common case
	}
	found := no
	for _, name := range j.programNames(s, args[0].Text()) {
		if found = max(found, p.suspectsCall(name, args, static)); found == yes {
			return yes
		}
	}
	return found
}

// programNames returns the names by which a rule may refer to a program: as written,
// without its directory, and the name of the file that it resolves to.
func (j *judgement) programNames(s *shell.Script, name string) []string {
	return []string{name, filepath.Base(name), filepath.Base(j.programFile(s, name))}
}

// programFile resolves a program with a slash in its name to a file.
func (j *disk) programFile(s *shell.Script, name string) string {
	if !filepath.IsAbs(name) && len(s.Dirs) > 0 {
		name = s.Dirs[0] + "/" + name
	}
	return j.resolve(name)
}

// suspectsCall returns whether the pattern may match words, given a name of the program.
func (p *commandPattern) suspectsCall(name string, args []shell.Word, static bool) certainty {
	switch {
	case p.words != nil:
		if p.begins(name, args) && (p.prefix || static && len(args) == len(p.words)) {
			return yes
		}
		sameProgram := name != p.words[0] && unversioned(name) == p.bare
		if args[0].Static() && (p.resembles(name, args) || sameProgram && p.resembles(p.words[0], args)) {
			return maybe
		}
	case static:
		all := make([]string, len(args))
		all[0] = name
		for i, a := range args[1:] {
			all[i+1] = a.Text()
		}
		text := strings.Join(all, sep)
		if wildcard(p.glob, text) || wildcard(p.glob, text+sep) {
			return yes
		}
	}
	if static || !p.overlaps(name, args) {
		return no
	}
	return maybe
}

// overlaps reports whether the pattern may match words that are not all known.
func (p *commandPattern) overlaps(name string, args []shell.Word) bool {
	if len(p.words) > 0 && args[0].Static() && !strings.HasPrefix(p.words[0], name) {
		return false // another program
	}
	var runes []rune
	for i, a := range args {
		if i == 0 && a.Static() {
			runes = []rune(name)
			continue
		}
		if i > 0 && !a.Multi {
			runes = append(runes, 0)
		}
		if vals := a.Values(); len(vals) == 1 {
			runes = append(runes, vals[0].Runes()...)
		} else {
			runes = append(runes, shell.AnyText)
		}
	}
	if shell.Overlap(p.runes(), runes) || p.prefix && shell.Overlap(append(p.runes(), 0, shell.AnyText), runes) {
		return true
	}
	// The program may have a directory before its name.
	return !args[0].Static() && slices.Contains(runes, '/') &&
		shell.Overlap(append([]rune{shell.AnyText, '/'}, append(p.runes(), shell.AnyText)...), append(runes, shell.AnyText))
}

func (p *commandPattern) begins(name string, args []shell.Word) bool {
	if len(args) < len(p.words) || name != p.words[0] && name != filepath.Base(p.words[0]) {
		return false
	}
	for i, w := range p.words[1:] {
		if !args[i+1].Static() || args[i+1].Text() != w {
			return false
		}
	}
	return true
}

// gitFamilies are commands of git whose subcommands have the names of other commands:
// git lfs push.
var gitFamilies = []string{"lfs", "stash", "submodule"}

// resembles reports whether a command has the words of a pattern in another order, or
// with others between them: "git -C x push" for "git push", "rm -fr" and "rm -r -f" for
// "rm -rf".
func (p *commandPattern) resembles(name string, args []shell.Word) bool {
	if name != p.words[0] && name != filepath.Base(p.words[0]) {
		return false
	}
	if len(p.words) < 2 {
		return p.prefix || len(args) == 1
	}
	if name == "git" && !strings.HasPrefix(p.words[1], "-") {
		sub := shell.GitCommand(args[1:])
		if sub != p.words[1] && shell.IsGitCommand(sub) && !slices.Contains(gitFamilies, sub) {
			return false // the words after it belong to another command
		}
	}
	at, open := 1, false
	for _, want := range p.words[1:] {
		if strings.HasPrefix(want, "-") && len(want) > 1 {
			if !hasOptions(args[1:], want) && !forces(args[1:], want) {
				return false
			}
			continue
		}
		for ; at < len(args) && args[at].Static() && !sameWord(args[0].Text(), args[at].Text(), want); at++ {
		}
		if at == len(args) {
			return open
		}
		if !args[at].Static() {
			open = true
		}
		if !args[at].Multi {
			at++
		}
	}
	return true
}

// forces reports whether a +branch among the words, which is pushed by force, has the
// effect of an option.
func forces(args []shell.Word, option string) bool {
	return (option == "--force" || option == "-f") && slices.ContainsFunc(args, func(a shell.Word) bool { return strings.HasPrefix(a.Text(), "+") })
}

// unversioned returns the name of a program without a version: python for python3.11.
func unversioned(name string) string {
	for end := len(name); end > 0; end-- {
		if c := name[end-1]; (c < '0' || c > '9') && c != '.' && c != '-' {
			return name[:end]
		}
	}
	return name
}

// sameWord reports whether a word of a command may stand for one of a pattern: as an
// abbreviation, by an alias of the program, or as the same path or number in another
// notation.
func sameWord(program, have, want string) bool {
	if have == want || abbreviates(have, want) {
		return true
	}
	if strings.HasPrefix(want, "/") && strings.HasPrefix(have, "/") && filepath.Clean(have) == filepath.Clean(want) {
		return true
	}
	if isDigits(want) && isDigits(have) && strings.TrimLeft(have, "0") == strings.TrimLeft(want, "0") {
		return true
	}
	if program = filepath.Base(program); program == "npm" || program == "pnpm" || program == "bun" {
		return slices.Contains(npmNames[want], have)
	}
	return false
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// npmNames are aliases of npm's commands.
var npmNames = map[string][]string{
	"install":    {"i", "add", "isnt", "isnta", "isntal", "isntall", "install-test", "it", "ci", "clean-install", "ic"},
	"i":          {"install", "add"},
	"add":        {"install", "i"},
	"ci":         {"clean-install", "ic", "install-clean"},
	"uninstall":  {"rm", "r", "remove", "unlink", "un"},
	"remove":     {"rm", "r", "uninstall", "unlink", "un"},
	"run":        {"run-script", "rum", "urn"},
	"run-script": {"run", "rum", "urn"},
	"exec":       {"x"},
	"test":       {"t", "tst"},
	"update":     {"up", "upgrade", "udpate"},
}

// abbreviates reports whether a word abbreviates another, as some programs accept for
// the names of their commands.
func abbreviates(short, long string) bool {
	return len(short) > 0 && len(short) < len(long) && strings.HasPrefix(long, short) && !strings.ContainsAny(short, "./-")
}

// hasOptions reports whether words contain the letters of an option, or a long option
// that starts with them.
func hasOptions(args []shell.Word, option string) bool {
	letters := option[1:]
	if strings.HasPrefix(option, "--") {
		letters = strings.TrimLeft(option, "-")[:1]
	}
	for _, l := range strings.ToLower(letters) {
		if !slices.ContainsFunc(args, func(a shell.Word) bool {
			t := a.Text()
			switch {
			case !a.Static():
				return true
			case strings.HasPrefix(t, "--"):
				t = strings.ToLower(t)
				return strings.HasPrefix(t, "--"+string(l)) && (!strings.HasPrefix(option, "--") || strings.HasPrefix(option, t[:min(len(t), 4)]))
			}
			return strings.HasPrefix(t, "-") && strings.ContainsRune(strings.ToLower(t), l)
		}) {
			return false
		}
	}
	return true
}

// runes returns the pattern for shell.Overlap.
func (p *commandPattern) runes() []rune {
	text := p.glob
	if p.words != nil {
		text = strings.Join(p.words, sep)
	}
	var r []rune
	for _, c := range text {
		if c == '*' && p.words == nil {
			c = shell.AnyText
		}
		r = append(r, c)
	}
	return r
}
