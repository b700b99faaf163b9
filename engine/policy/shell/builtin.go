package shell

import (
	"slices"
	"strings"
)

// functions implement the parts of programs.txt that a line cannot express: code=NAME.
// Each receives the arguments of the program, and the index of the first.
var functions map[string]func(a *argv, args []Word, at int)

func init() {
	functions = map[string]func(a *argv, args []Word, at int){
		"builtin": builtin, "cd": changeDir, "dark": dark, "jobs": jobs, "variables": variables, "export": exports, "set": set,
		"mapfile": mapfile, "printf": printf, "test": testProgram,
		"loose": loosely, "unlisted": unlisted,
		"deep": deeply, "compress": compress, "archive": archives, "mode": fileMode, "unpack": unpacks, "copy": copies, "tar": tar,
		"find": find, "xargs": allWords, "sudo": sudo, "parallel": parallel, "script": scriptProgram, "ssh": ssh, "pkg": allWords,
		"shell": shell, "language": language, "database": database, "curl": curl, "wget": wget, "project": project, "runner": runner,
		"git": git, "gitconfig": gitConfig, "gitsub": gitSubmodule, "gitbisect": gitBisect, "gitview": gitBisectView, "gitunpack": unpacks, "gitrisk": gitRisk,
	}
}

// allWords is for programs that their line describes completely.
func allWords(a *argv, _ []Word, at int) { a.all(at) }

// loosely is for programs of which only the name is known.
func loosely(a *argv, args []Word, at int) {
	a.c.Loose = true
	runsForms(a, args, at)
	risky(a, args, at)
	a.c.Reads = asksVersion(a.p, args)
	a.s.arguments(a.c, args)
	a.s.hidden(a.via, args)
	a.s.parseInput(a.input)
}

// fileMode is for chmod and similar programs: a mode may start with a dash.
func fileMode(a *argv, args []Word, at int) {
	for i, w := range args {
		if t := w.Text(); w.Static() && len(t) > 1 && t[0] == '-' && strings.Trim(t, "-rwxXst") == "" {
			a.c.Args = slices.Clone(a.c.Args)
			a.c.Args[at+i] = Literal("a" + t)
			defer func(before Word) { a.c.Args[at+i] = before }(w)
			break
		}
	}
	a.all(at)
}

// builtin is for shell builtins that evaluate texts.
func builtin(a *argv, args []Word, _ int) {
	s := a.s
	switch a.via {
	case "eval":
		s.unprove("it runs text as a command")
		if len(args) > 0 && args[0].Text() == "--" {
			args = args[1:]
		}
		a.c.Clear, a.c.Reads = false, true // the evaluated text is analyzed
		s.parseJoined(args, "eval")
	case "trap":
		s.act("it sets a command that runs later")
		for _, w := range args {
			if !w.Static() || !strings.HasPrefix(w.Text(), "-") {
				s.parseWord(w, "trap")
				return
			}
		}
	case "alias":
		if len(args) == 0 { // it prints them
			a.c.Reads = true
			return
		}
		s.act("it defines an alias")
		for _, w := range args {
			if _, v, found := strings.Cut(w.Text(), "="); found {
				s.blur("it defines an alias")
				s.parseWord(Literal(v), "alias")
			}
		}
	default: // source
		s.act("it runs the commands in a file")
		shell(a, append([]Word{Literal("-e")}, args...), 0)
	}
}

// changeDir is for cd, pushd and popd.
func changeDir(a *argv, args []Word, _ int) {
	s, c := a.s, a.c
	c.Dir = true
	var to []Word
	for _, w := range args {
		if t := w.Text(); !w.Static() || !slices.Contains([]string{"-L", "-P", "-e", "-@", "--", "-n"}, t) {
			to = append(to, w)
		}
	}
	c.Reads = true
	switch {
	case a.via != "cd", len(to) > 1, len(to) == 1 && strings.HasPrefix(to[0].Text(), "-"), len(to) == 1 && to[0].Text() == "":
		s.AnyDir = true
	case len(to) == 0:
		s.chdir(Literal(s.env.Home))
	default:
		s.chdir(to[0])
		c.Quiet = to[0].Static()
	}
}

// dark is for builtins that change the meaning of names.
func dark(a *argv, args []Word, _ int) {
	a.s.blur("it changes which program a name refers to")
	for _, w := range args {
		if LooksLikeCommand(w.Text()) {
			a.s.parseGuess(w.Text(), a.via)
		}
	}
}

// jobs lists jobs; with -x it runs a command.
func jobs(a *argv, args []Word, _ int) {
	a.s.unprove("it changes shell variables")
	a.c.Reads = len(args) == 0
	for i, w := range args {
		if w.Static() && strings.HasPrefix(w.Text(), "-") && strings.Contains(w.Text(), "x") && i+1 < len(args) {
			a.s.run(args[i+1:], "jobs -x", nil)
			return
		}
		if !w.Static() {
			a.s.blur("the command that jobs runs is only known at run time")
		}
	}
}

// variables is for builtins that change variables or processes of the shell.
func variables(a *argv, args []Word, _ int) {
	a.s.unprove("it changes shell variables")
	switch a.via {
	case "read", "wait", "unset", "dirs", "ulimit":
		a.c.Reads = true
	case "history":
		a.s.arguments(a.c, args)
		a.c.Reads = len(args) == 0
	case "kill":
		a.c.Reads = len(args) == 1 && args[0].Text() == "-l"
	}
}

func exports(a *argv, args []Word, _ int) {
	a.c.Reads = true
	for _, w := range args {
		n, v, ok := strings.Cut(w.Text(), "=")
		if !ok {
			continue
		}
		if w.Static() {
			a.s.setVar(n, Literal(v))
		} else {
			a.s.setVar(n, newWord(v, w.Values(), w.Multi))
		}
	}
	a.s.unprove("it changes shell variables")
}

// readsOtherwise are shell options that change which files or variables the same words
// refer to.
var readsOtherwise = []string{"nocaseglob", "cdable_vars", "keyword", "-k"}

// harmlessSet are arguments of set that only change how errors are handled.
var harmlessSet = []string{"-e", "-u", "-x", "-o", "pipefail", "-eu", "-ex", "-euo", "-eux", "-euxo", "errexit", "nounset", "xtrace", "+e", "+x", "-v", "-f"}

func set(a *argv, args []Word, _ int) {
	a.c.Quiet, a.c.Reads = true, true
	for _, w := range args {
		t := w.Text()
		if !w.Static() || slices.Contains(readsOtherwise, t) || strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--") && strings.Contains(t, "k") {
			a.s.blur("it changes how the shell parses commands")
		}
		if !slices.Contains(harmlessSet, t) {
			a.c.Quiet = false
			a.s.unprove("it changes how the shell parses commands")
		}
	}
}

// mapfile may evaluate a text for the lines that it reads.
func mapfile(a *argv, args []Word, _ int) {
	a.s.unprove("it changes shell variables")
	a.c.Reads = true
	for i, w := range args {
		t := w.Text()
		if !w.Static() && mayBegin(w, "-") {
			a.s.blur("the command that mapfile runs is only known at run time")
			continue
		}
		at := strings.IndexByte(t, 'C')
		if !strings.HasPrefix(t, "-") || at < 0 {
			continue
		}
		a.c.Reads = false
		a.s.blur("mapfile runs a command for the lines it reads")
		switch {
		case at+1 < len(t):
			a.s.parseWord(Literal(t[at+1:]), "mapfile")
		case i+1 < len(args):
			a.s.parseWord(args[i+1], "mapfile")
		}
	}
}

// printf prints. With -v it assigns to a variable, and with %n to one that an argument
// names.
func printf(a *argv, args []Word, _ int) {
	c := a.c
	c.Quiet = len(args) == 0 || !strings.HasPrefix(args[0].Text(), "-") || args[0].Text() == "--"
	c.Reads = true
	for i, w := range args {
		c.Quiet = c.Quiet && w.Static()
		if i < 2 && (!w.Static() || assignsByFormat(w.Text())) && len(args) > 1 {
			if c.Quiet = false; w.Static() || i == 0 {
				a.s.formatAssigns(args[i+1:], w.Static())
			}
		}
	}
}

// assignsByFormat reports whether a format of printf contains %n, possibly with flags
// in between.
func assignsByFormat(format string) bool {
	for {
		_, rest, ok := strings.Cut(format, "%")
		if !ok {
			return false
		}
		rest = strings.TrimLeft(rest, "#0- +'123456789.*hlLjzt")
		if strings.HasPrefix(rest, "n") {
			return true
		}
		if rest == "" {
			return false
		}
		format = rest[1:]
	}
}

// formatAssigns records that words may name variables that printf changes.
func (s *analysis) formatAssigns(words []Word, sure bool) {
	if !sure {
		s.unprove("a printf format is only known at run time")
	}
	for _, w := range words {
		s.blurTextIf(!w.Static() || strings.Contains(w.Text(), "["))
		if sure && w.Static() && variableClass(w.Text()) != "" {
			s.blur("the variable " + w.Text() + " changes which programs run")
		}
	}
}

// testProgram is for test and [.
func testProgram(a *argv, args []Word, at int) {
	a.quiet, a.reads = true, true
	for i, w := range args {
		a.testWord(w)
		if t := w.Text(); w.Static() && (t == "-v" || t == "-R") && i+1 < len(args) {
			a.quiet = false
		}
	}
	a.recordFindings()
}

// testWord records an argument of test: a file, unless it is an operator.
func (a *argv) testWord(w Word) {
	if !w.Static() {
		a.quiet = false
	}
	if t := w.Text(); w.Static() && (strings.HasPrefix(t, "-") || t == "]" || t == "!" || t == "=" || t == "==" || t == "!=" || t == "(" || t == ")") {
		return
	}
	a.s.addFile(File{Word: w, Kind: Read, Via: a.via})
}

// sudo runs a command as another user.
func sudo(a *argv, args []Word, at int) {
	for i, w := range args {
		if t := w.Text(); t == "-e" || t == "--edit" {
			a.s.arguments(a.c, args[i+1:])
			a.c.Loose = true
			a.c.risk(at+i, t)
			return
		}
		if !strings.HasPrefix(w.Text(), "-") {
			break
		}
	}
	a.all(at)
	if !a.done && !a.c.Reads {
		shell(a, nil, at)
	}
}

// xargsEffect handles the command of xargs, which receives words from its input.
func xargsEffect(a *argv, w Word, _, at int) {
	if !w.Static() {
		cmdEffect(a, w, at, at)
		return
	}
	var marks []string // texts that xargs replaces
	for i := 1; i < at; i++ {
		marks = append(marks, placeholder(a.c.Args[i].Text(), a.c.Args[i+1:]))
	}
	rest := append(slices.Clone(a.c.Args[at:]), anyWord("{}"))
	for j, w := range rest {
		marked := func(m string) bool { return m != "" && strings.Contains(w.Text(), m) }
		if w.Static() && (marked("{}") || slices.ContainsFunc(marks, marked)) {
			rest[j] = anyWord(w.Raw)
		}
	}
	a.done, a.c.Loose, a.quiet = true, true, false
	a.c.Reads = true
	a.s.run(rest, a.via, nil)
}

// placeholder returns the text that an option of xargs declares as replaced, if it is
// such an option.
func placeholder(t string, rest []Word) string {
	if strings.HasPrefix(t, "--") {
		if name, v, ok := strings.Cut(t, "="); ok && strings.HasPrefix("--replace", name) {
			return v
		}
		return ""
	}
	at := strings.IndexAny(t, "IiJ")
	switch {
	case at < 1 || t[0] != '-':
		return ""
	case at+1 < len(t):
		return t[at+1:]
	case t[at] != 'i' && len(rest) > 0:
		return rest[0].Text()
	}
	return "{}"
}

// otherShells are shells with a syntax of their own: =ls, (ls), other options.
var otherShells = []string{"zsh", "fish", "csh", "tcsh", "ksh", "mksh", "yash", "pwsh"}

// shell is for programs that read commands: from a text, a file, or their input.
func shell(a *argv, args []Word, _ int) {
	if slices.Contains(otherShells, a.via) && !asksVersion(nil, args) {
		a.s.blurOnly(a.via + " reads commands differently from bash")
	}
	a.shellWords(args)
}

// shellWords handles the arguments of a shell.
func (a *argv) shellWords(args []Word) {
	s, c, name := a.s, a.c, a.via
	text, next := false, 0
	for i, w := range args {
		t := w.Text()
		if !w.Static() {
			s.blur("what the inner shell runs is only known at run time")
		}
		switch {
		case next < 0: // the name of an option
			next = 0
			if slices.Contains(readsOtherwise, t) {
				s.blur("it changes how the shell parses commands")
			}
		case text && (!strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "+") || next > 0):
			a.shellText(w, args[i+1:])
			return
		case t == "--command", t == "--session-command":
			text, next = true, 1
		case strings.HasPrefix(t, "--command="):
			s.parseWord(Literal(strings.TrimPrefix(t, "--command=")), name+" -c")
			return
		case t == "--rcfile", t == "--init-file":
			s.blur("a shell reads its commands from its input")
			next = -1
		case t == "--version" || t == "--help":
			c.Reads = len(args) == 1
			return
		case strings.HasPrefix(t, "--"):
		case len(t) > 1 && (t[0] == '-' || t[0] == '+'):
			text = text || t[0] == '-' && strings.Contains(t, "c")
			if strings.Contains(t, "s") && t[0] == '-' && !text {
				s.blur("a shell reads its commands from its input") // even if operands follow
				s.parseInput(nil)
				if a.input != nil {
					s.parseWord(*a.input, name)
				}
			}
			if strings.HasSuffix(t, "o") || strings.HasSuffix(t, "O") {
				next = -1
			}
		case name == "su" || name == "runuser" || name == "sg": // a user name
		default:
			a.shellFile(w, args[i+1:])
			return
		}
	}
	if a.input != nil {
		s.parseWord(*a.input, name)
		return
	}
	s.blur("a shell reads its commands from its input")
}

// shellText handles the text of a shell's -c, and its parameters.
func (a *argv) shellText(w Word, rest []Word) {
	a.c.Reads = !slices.Contains([]string{"su", "runuser", "sg", "pwsh", "csh", "tcsh", "fish"}, a.via) // the commands in the text are analyzed
	a.s.parseWord(w, a.via+" -c")
	for _, r := range rest {
		a.s.addFile(File{Word: r, Kind: Write, Via: a.via, Loose: true})
	}
	if len(rest) > 1 && strings.Contains(w.Text(), "$@") {
		a.s.run(rest[1:], a.via+" -c", nil)
	}
	if len(rest) > 0 && strings.Contains(w.Text(), "$") {
		a.s.act("a shell gets arguments that it may run")
	}
}

// runsFile records that an interpreter runs a file. The file may be a program that is a
// script: "bash npm" finds it in the PATH, "node /usr/bin/npm" names its path.
func (a *argv) runsFile(w Word, rest []Word) {
	a.s.addCall(&Call{Args: append([]Word{w}, rest...), Via: a.via, Guess: true})
}

// shellFile handles a file of commands.
func (a *argv) shellFile(w Word, rest []Word) {
	t := w.Text()
	if t == "-" || strings.HasPrefix(t, "/dev/") || strings.HasPrefix(t, "/proc/") {
		a.s.blur("a shell reads its commands from its input")
		if a.input != nil {
			a.s.parseWord(*a.input, a.via)
		}
		return
	}
	a.s.addFile(File{Word: w, Kind: Read, Via: a.via})
	a.runsFile(w, rest)
	if a.s.writes(w, a.c) {
		a.s.blur("a shell runs a file that this command creates")
	}
	a.s.arguments(a.c, rest)
}
