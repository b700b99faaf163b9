package shell

import (
	"path"
	"slices"
	"strings"
)

// applyTable records the effects of a program according to the table: what it runs, reads and
// writes. For an unknown program, every argument may be a file or a program.
func (s *analysis) applyTable(c *Call, name string, input *Word) {
	if c.Args[0].Text() == "" {
		name = "?"
	}
	if p := lookup(name); p != nil {
		s.program(c, p, 1, input)
		return
	}
	s.unknownProgram(c, name, input)
}

// unknownProgram records the effects of a program without a line: every argument may be a file
// or a program.
func (s *analysis) unknownProgram(c *Call, name string, input *Word) {
	args := c.Args[1:]
	c.Loose = true
	c.Reads = asksVersion(nil, args)
	s.arguments(c, args)
	s.hidden(name, args)
	c.announced()
	s.parseInput(input)
	if s.writesConfigOf(name) {
		s.blur("it writes a file that " + name + " takes commands from")
	}
}

// unlisted is for programs that are unknown but for their ways to run a command.
func unlisted(a *argv, args []Word, at int) {
	a.s.unknownProgram(a.c, a.via, a.input)
	runsForms(a, args, at)
	if a.p.is(runsTrait) && !asksVersion(a.p, args) {
		for i, w := range args {
			if t := w.Text(); !w.Static() || t == "--" || !strings.HasPrefix(t, "-") {
				a.c.risk(at+i, t)
				return
			}
			a.c.risk(at+i, w.Text())
		}
	}
}

// announced records the words of an unknown program that are certainly a command: an interpreter
// with its code, and a program after a word such as exec. A rule for the unknown program does not
// cover them.
func (c *Call) announced() {
	if len(c.Args) > maxLoose {
		return
	}
	for i, w := range c.Args {
		if i == 0 || !w.Static() {
			continue
		}
		t := w.Text()
		if p := lookup(path.Base(t)); p != nil && (p.code == "shell" || p.code == "language") {
			shell := p.code == "shell"
			if slices.ContainsFunc(c.Args[i+1:], func(a Word) bool { return a.Static() && announcesCommand(a.Text(), shell) }) {
				c.risk(i, t)
			}
		}
		name, value, joined := strings.Cut(t, "=")
		switch {
		case joined && isExec(name) && value != "":
			c.risk(i, t)
		case i+1 == len(c.Args) || joined:
		case !c.Args[i+1].Static():
			if isExec(t) {
				c.risk(i, t)
			}
		case isExec(t) && !strings.HasPrefix(c.Args[i+1].Text(), "-"):
			c.risk(i, t)
		case t == "--" || announcesCommand(t, false):
			first, _, _ := strings.Cut(c.Args[i+1].Text(), " ")
			if p := lookup(path.Base(first)); p != nil && !p.is(readsTrait|printsTrait) {
				c.risk(i, t)
			}
		}
	}
}

// isExec reports whether a word can only mean that a command follows.
func isExec(t string) bool {
	switch strings.TrimLeft(t, "-") {
	case "exec", "execute", "exec-batch", "command", "cmd", "shell-command", "run-command", "on-change-exec", "eval":
		return t[0] == '-' || t == "exec"
	}
	return false
}

// asksVersion reports whether a program is only asked for its version or its help.
func asksVersion(p *program, args []Word) bool {
	if len(args) == 2 && args[1].Static() && (args[1].Text() == "--verbose" || args[1].Text() == "--client") {
		args = args[:1]
	}
	if len(args) != 1 || !args[0].Static() {
		return false
	}
	t := args[0].Text()
	return t == "--version" || t == "--help" || p != nil && slices.Contains(p.tells, t)
}

// program records the effects of a program with a line in the table. Its own arguments
// start at index at.
func (s *analysis) program(c *Call, p *program, at int, input *Word) {
	a := &argv{s: s, c: c, p: p, input: input, via: path.Base(p.name), quiet: true, reads: true}
	if len(c.Args) >= at {
		a.via = path.Base(c.Args[at-1].Text())
	}
	if f := functions[p.code]; f != nil {
		f(a, c.Args[at:], at)
		return
	}
	a.all(at)
}

// An argv is a walk over the arguments of a program, by its line of the table.
type argv struct {
	s     *analysis
	c     *Call
	p     *program
	input *Word  // here-document that the program reads
	via   string // its name, for people

	quiet    bool // everything so far is known and only reads
	reads    bool // everything so far only reads
	deep     bool // directories are touched with everything below them
	follow   bool // links are followed
	inplace  bool // the files that are read are also written
	into     Word // directory that files are copied into, if an option names it
	lists    bool // see the trait bare
	instead  bool // an option replaced the first operand
	unpacks  bool
	noindex  bool // git works on files outside of repositories, too
	operands []operand
	done     bool // the remaining words belong to another program

	delegated bool // the line of a subcommand covers everything
	end       int  // where its own arguments end, if not at the end
}

// An operand is an argument that is not an option.
type operand struct {
	word Word
	arg  int // its index in Args
}

// all handles the arguments starting at an index, and records the effects of the
// program.
func (a *argv) all(at int) {
	a.options(at)
	if !a.delegated {
		a.finish()
	}
}

// options handles the arguments starting at an index: it applies the options and
// collects the operands.
func (a *argv) options(at int) {
	p, args := a.p, a.c.Args
	if a.end > 0 {
		args = args[:a.end]
	}
	for i := at; i < len(args) && !a.done; i++ {
		w := args[i]
		t := w.Text()
		switch {
		case !w.Static():
			a.open(w, i)
		case t == "--":
			a.behind(i + 1)
			return
		case a.atFile(t, i):
		case len(t) > 1 && t[0] == '-' && (p.is(onedashTrait) || strings.HasPrefix(t, "--")):
			i = a.long(t, i)
		case len(t) > 1 && t[0] == '-':
			i = a.cluster(t, i)
		case a.pair(t, i):
		default:
			a.operands = append(a.operands, operand{w, i})
			if p.is(subTrait) && a.subcommand(i) {
				return
			}
			if p.is(stopTrait) && (len(p.args) == 0 || len(a.operands) >= a.stopAt()) {
				for j := i + 1; j < len(args); j++ {
					a.operands = append(a.operands, operand{args[j], j})
				}
				return
			}
		}
	}
}

// atFile handles an argument @FILE, which stands for the words in that file.
func (a *argv) atFile(t string, i int) bool {
	if !a.p.is(atfileTrait) || !strings.HasPrefix(t, "@") || len(t) == 1 {
		return false
	}
	a.apply("code", Literal(t[1:]), i)
	return true
}

// stopAt returns after how many operands parsing of options stops: after the first one
// that is not a variable for the command that follows.
func (a *argv) stopAt() int {
	n := 0
	for _, o := range a.operands {
		if slices.Contains(a.p.args, "env") && isAssignment(o.word.Text()) {
			n++
		}
	}
	return n + 1
}

func isAssignment(t string) bool {
	name, _, ok := strings.Cut(t, "=")
	return ok && name != ""
}

// open handles an argument that is not completely known. It may be an option, or several
// words.
func (a *argv) open(w Word, i int) {
	a.quiet = false
	if mayBegin(w, "-") && !a.p.is(anyTrait) {
		a.unknown(w.Raw, i)
	}
	a.operands = append(a.operands, operand{w, i})
}

// behind handles the arguments after --, which are not options of this program.
func (a *argv) behind(i int) {
	if a.p.pass != "" {
		other := &argv{s: a.s, c: a.c, p: programs().program(a.p.pass), via: a.via, quiet: true, reads: true}
		other.all(i)
		return
	}
	for ; i < len(a.c.Args); i++ {
		t := a.c.Args[i].Text()
		switch {
		case a.c.Args[i].Static() && a.atFile(t, i):
		case !a.c.Args[i].Static() || !a.pair(t, i):
			a.operands = append(a.operands, operand{a.c.Args[i], i})
		}
	}
}

// subcommand continues with the line of a subcommand, if there is one. The operand at the
// index is its name, or the second word of it: npm config set.
func (a *argv) subcommand(i int) bool {
	if len(a.operands) > 2 {
		return false
	}
	word := " " + a.c.Args[i].Text()
	if len(a.operands) == 2 {
		word = " " + a.operands[0].word.Text() + word
	}
	sub := programs().program(a.p.name + word)
	if a.p.name == "git" && sub != nil {
		a.beforeGit(i)
	}
	if sub == nil && !strings.Contains(a.p.name, " ") {
		// The line may be that of a similar program.
		sub = programs().program(a.via + word)
	}
	if sub == nil {
		return false
	}
	if sub.is(runsTrait) {
		a.runsWords(i)
		if sub.marks() {
			return false
		}
	}
	other := *a
	other.p, other.operands = sub, nil
	a.done, a.delegated = true, true
	if f := functions[sub.code]; f != nil {
		f(&other, a.c.Args[i+1:], i+1)
	} else {
		other.all(i + 1)
	}
	return true
}

// marks reports whether a line only marks a subcommand that runs a command: its words
// are those of the program's line.
func (p *program) marks() bool {
	return p.is(runsTrait) && p.code == "" && len(p.args)+len(p.short)+len(p.long)+len(p.begin) == 0
}

// runsWords records that the subcommand at an index runs the words after it, if there are any. Only a
// rule that contains the subcommand covers it.
func (a *argv) runsWords(i int) {
	for _, w := range a.c.Args[i+1:] {
		if t := w.Text(); !w.Static() || t == "-" || t != "--" && !strings.HasPrefix(t, "-") {
			a.acts()
			a.c.risk(i, a.c.Args[i].Text())
			return
		}
	}
}

// runsForms is runsWords for a program whose options are not known: any word may be its
// subcommand.
func runsForms(a *argv, args []Word, at int) {
	before := ""
	for i, w := range args {
		t := w.Text()
		if t == "--" {
			return
		}
		if !w.Static() || t == "" || t[0] == '-' {
			continue
		}
		for _, name := range []string{a.p.name, a.via} {
			sub := programs().program(name + " " + t)
			if sub == nil && before != "" {
				sub = programs().program(name + " " + before + " " + t)
			}
			if sub.is(runsTrait) && len(a.c.Danger) == 0 {
				a.runsWords(at + i)
			}
		}
		before = t
	}
}

// pair handles an operand of the form name=value that the line lists.
func (a *argv) pair(t string, i int) bool {
	if len(a.p.pairs) == 0 {
		return false
	}
	name, value, ok := strings.Cut(t, "=")
	k, known := a.p.pairs[name]
	if !ok || !known {
		return false
	}
	a.apply(k, Literal(value), i)
	return true
}

// settingBytes are the bytes of values that are neither paths nor commands: auto, 3, long-iso, +%F, a,b.
const settingBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-,+%:*"

// unknown handles an option that the line does not list.
func (a *argv) unknown(t string, i int) {
	a.quiet = false
	if a.p.is(anyTrait) {
		a.stray(t, i)
		return
	}
	a.reads = false
	a.c.Loose = true
	a.c.risk(i, t)
	a.s.addFile(File{Word: a.c.Args[i], Kind: Write, Via: a.via, Loose: true})
}

// stray handles the value of an option that is not known: it may be a file or a command.
func (a *argv) stray(t string, i int) {
	_, value, joinedValue := strings.Cut(t, "=")
	switch {
	case joinedValue:
		a.s.addFile(File{Word: Literal(value), Kind: Read, Via: a.via, Loose: true})
	case i+1 < len(a.c.Args) && !a.p.is(readsTrait) && !a.p.is(printsTrait):
		next := a.c.Args[i+1]
		switch n := next.Text(); {
		case !next.Static():
		case strings.HasPrefix(n, "http://"), strings.HasPrefix(n, "https://"):
			a.c.risk(i, t)
		case strings.Contains(n, "/"), strings.HasPrefix(n, ".."), strings.HasPrefix(n, "~"):
			a.c.Places = append(a.c.Places, Place{i, next})
		}
		fallthrough
	default:
		value = t // in -d../x
	}
	if value != "" && !consistsOf(value, settingBytes) {
		a.c.risk(i, t)
	}
}

// long handles an option with two dashes, or with one if the program has such long
// options. It returns the index of its last word.
func (a *argv) long(t string, i int) int {
	name, value, joinedValue := strings.Cut(t, "=")
	o, ok := a.p.find(name)
	abbreviated := ok && o.name != name && !a.p.is(onedashTrait)
	if !ok {
		for _, b := range a.p.begin {
			if rest, found := strings.CutPrefix(t, b.name); found {
				o, ok, value, joinedValue = b, true, strings.TrimPrefix(rest, "="), rest != ""
				if b.value == noValue {
					joinedValue = true
				}
				break
			}
		}
	}
	if !ok {
		switch t {
		case "--help", "--version":
			return i
		}
		a.unknown(t, i)
		return i
	}
	if abbreviated {
		a.quiet = false
		if !a.p.is(anyTrait) {
			a.c.risk(i, t)
		}
	}
	a.instead = a.instead || o.instead
	switch {
	case joinedValue:
		a.apply(o.kind, Literal(value), i)
		if o.value == needsTwo && i+1 < len(a.c.Args) {
			i++
		}
	case o.value == noValue || o.value == joined:
		a.apply(o.kind, Word{}, i)
	case o.value == needsTwo:
		if i += 2; i < len(a.c.Args) {
			a.apply(o.kind, a.c.Args[i], i)
		}
	case i+1 < len(a.c.Args):
		i = a.applyNext(o.kind, i)
	}
	return i
}

// cluster handles letters after a dash; the last may have a value. It returns the index
// of its last word.
func (a *argv) cluster(t string, i int) int {
	for k := 1; k < len(t); k++ {
		o, ok := a.p.short[t[k]]
		if !ok {
			for _, b := range a.p.begin {
				if rest, found := strings.CutPrefix(t, b.name); found && k == 1 {
					if b.value == needs && rest == "" && i+1 < len(a.c.Args) {
						return a.applyNext(b.kind, i)
					}
					a.apply(b.kind, Literal(rest), i)
					return i
				}
			}
			a.unknown(t, i)
			continue
		}
		a.instead = a.instead || o.instead
		rest := strings.TrimPrefix(t[k+1:], "=")
		switch {
		case o.value == noValue:
			a.apply(o.kind, Word{}, i)
			continue
		case t[k+1:] != "":
			a.apply(o.kind, Literal(t[k+1:]), i)
			if rest != t[k+1:] && o.kind != "" && o.kind != "text" {
				a.apply(o.kind, Literal(rest), i)
			}
		case o.value == joined:
			a.apply(o.kind, Word{}, i)
		case i+1 < len(a.c.Args):
			i = a.applyNext(o.kind, i)
		}
		return i
	}
	return i
}

// applyNext applies an option whose value is the next word. It returns the index of its
// last word.
func (a *argv) applyNext(k kind, i int) int {
	next := a.c.Args[i+1]
	if !next.Static() {
		a.quiet = false
	}
	a.value(k, next, i, i+1)
	return i + 1
}

// apply records the effect of an option with an attached value, or without a value.
func (a *argv) apply(k kind, w Word, i int) { a.value(k, w, i, i) }

// value records the effect of an option's value. The option is at index i, its value at
// index at, which may be the same.
func (a *argv) value(k kind, w Word, i, at int) {
	if k == "" || k == "text" {
		return
	}
	effects[k](a, w, i, at)
}

// finish records the effects of the operands, and the properties of the call.
func (a *argv) finish() {
	p := a.p
	if p.is(treeTrait) {
		a.deep = true
	}
	kinds := p.args
	if a.instead && len(kinds) > 0 && len(a.operands) > 0 {
		kinds = kinds[1:]
	}
	files := 0
	for n := 0; n < len(a.operands) && !a.done; n++ {
		o := a.operands[n]
		k := operandKind(kinds, p.rest, n)
		if k == "env" {
			if o.word.Static() && isAssignment(o.word.Text()) {
				name, value, _ := strings.Cut(o.word.Text(), "=")
				a.s.assign(name, Value{Text: value})
				a.s.setVar(name, Literal(value))
				kinds = append([]kind{"env"}, kinds...)
				continue
			}
			kinds = kinds[1:]
			k = operandKind(kinds, p.rest, n)
		}
		if k == "" {
			a.extra(o)
			continue
		}
		if k == "read" || k == "pathspec" {
			files++
		}
		a.operand(k, o)
	}
	if a.deep && files == 0 && p.is(readsTrait) {
		a.s.addFile(File{Word: Literal("."), Kind: Read, Via: a.via, Deep: true})
	}
	if p.is(bareTrait) && len(a.operands) > 0 && !a.lists {
		a.quiet, a.reads = false, false
	}
	a.recordFindings()
}

// operandKind returns the kind of the n-th operand.
func operandKind(kinds []kind, rest bool, n int) kind {
	switch {
	case n < len(kinds):
		return kinds[n]
	case rest && len(kinds) > 0:
		return kinds[len(kinds)-1]
	}
	return ""
}

// operand records the effect of an operand.
func (a *argv) operand(k kind, o operand) {
	if k == "text" {
		return
	}
	effects[k](a, o.word, o.arg, o.arg)
}

// extra handles an operand that the line does not expect.
func (a *argv) extra(o operand) {
	a.quiet, a.reads = false, false
	a.s.addFile(File{Word: o.word, Kind: Write, Via: a.via, Loose: true})
}

// recordFindings sets the properties of the call.
func (a *argv) recordFindings() {
	p, c := a.p, a.c
	quiet := p.is(readsTrait) || p.is(printsTrait)
	c.Quiet = quiet && a.quiet && !(a.deep && a.follow) && p.is(plainTrait)
	c.Reads = quiet && a.reads
	c.Edits = p.is(editsTrait) && a.reads
	if !quiet && asksVersion(p, c.Args[1:]) {
		c.Reads = true
	}
	if a.unpacks {
		a.s.unpacked(a.via)
	}
	a.readsCommands()
}

// readsCommands records that a program takes commands from its input, if it has one that is not a
// statement of SQL.
func (a *argv) readsCommands() {
	if !a.p.is(inputTrait) || !a.s.fed || a.input != nil && a.input.Static() && a.p.code == "database" && plainSQL(a.input.Text()) {
		return
	}
	a.acts()
	a.c.risk(-1, "commands from its input")
}

// hidden records what the arguments of an unknown program may run: a shell or another
// interpreter with its text, or an argument that is a command itself. It also records
// where it may work: every directory among its arguments.
func (s *analysis) hidden(name string, args []Word) {
	if len(args) > maxLoose {
		return
	}
	for i, a := range args {
		if !a.Static() {
			continue
		}
		t := a.Text()
		if p := lookup(path.Base(t)); p != nil && (p.code == "shell" || p.code == "language") {
			shell := p.code == "shell"
			if slices.ContainsFunc(args[i+1:], func(a Word) bool { return a.Static() && announcesCommand(a.Text(), shell) }) {
				s.run(args[i:], name, nil)
				break
			}
		}
		switch _, v, ok := strings.Cut(t, "="); {
		case i > 0 && announcesCommand(args[i-1].Text(), true) && strings.Contains(t, " "): // -c 'text'
			s.parseGuess(t, name)
		case LooksLikeCommand(t):
			s.parseGuess(t, name)
		case ok && strings.HasPrefix(t, "-") && LooksLikeCommand(v):
			s.parseGuess(v, name)
		}
		if len(s.Near) < maxValues*4 {
			s.Near = append(s.Near, t)
		}
	}
}

// LooksLikeCommand reports whether a text starts with a known program, followed by
// arguments.
func LooksLikeCommand(text string) bool {
	first, rest, ok := strings.Cut(strings.TrimSpace(text), " ")
	if !ok || rest == "" || len(text) >= MaxCommand {
		return false
	}
	return IsKnown(path.Base(strings.NewReplacer(`"`, "", "'", "", `\`, "").Replace(first)))
}

// announcesCommand reports whether an option announces that a text to run follows.
func announcesCommand(t string, shell bool) bool {
	if strings.HasPrefix(t, "--") {
		return t == "--command" || t == "--exec" || t == "--eval" || t == "--run" || t == "--shell"
	}
	return len(t) > 1 && len(t) < 6 && t[0] == '-' && (strings.HasSuffix(t, "c") || !shell && strings.HasSuffix(t, "e") || t == "-x" || t == "-r" && !shell)
}

// parseInput handles the input of an unknown program, as far as it is contained in the command:
// the program may execute it.
func (s *analysis) parseInput(input *Word) {
	text := s.piped
	if input != nil {
		text += input.Text()
	}
	if text != "" {
		s.addGuesses(text)
	}
}

// unpacked records that files with unknown names are created.
func (s *analysis) unpacked(via string) {
	s.addFile(File{Word: patternWord(".", AnyText), Kind: Write, Via: via, Loose: true, Deep: true})
}
