package shell

import (
	"path/filepath"
	"slices"
	"strings"
)

// git has its own options before the command.
func git(a *argv, args []Word, at int) {
	s, c := a.s, a.c
	a.quiet = false
	a.options(at)
	if a.delegated {
		return
	}
	if len(a.operands) == 0 {
		c.Reads = a.reads
		return
	}
	sub := a.operands[0]
	if !sub.word.Static() {
		s.blur("what git does is only known at run time")
	} else if !IsGitCommand(sub.word.Text()) {
		s.blur(sub.word.Text() + " may be a git alias")
	}
	c.Loose = true
	for _, o := range a.operands[1:] {
		a.gitFile(o.word, Write)
	}
}

// beforeGit records the effects that every command of git has. The command is at index
// i.
func (a *argv) beforeGit(i int) {
	s, c := a.s, a.c
	if i > 1 {
		s.addCall(&Call{Args: append([]Word{c.Args[0]}, c.Args[i:]...), Via: "git", Guess: true})
	}
	sub, rest := c.Args[i].Text(), c.Args[i+1:]
	for j, w := range rest {
		// ext::command runs the command.
		if t := w.Text(); strings.Contains(t, "::") || strings.HasPrefix(t, "fd::") {
			a.riskIf(true, i+1+j)
			c.Loose = true
			if _, command, ok := strings.Cut(t, "::"); ok {
				s.parseWord(Literal(command), "git")
			}
		}
		if !w.Static() {
			c.risk(i+1+j, w.Text())
			c.Loose = true
		}
	}
	switch sub {
	case "grep", "archive", "checkout-index":
		plain := slices.DeleteFunc(slices.Clone(rest), func(w Word) bool { return strings.HasPrefix(w.Text(), "-") })
		if len(plain) < 2 || slices.ContainsFunc(rest, func(w Word) bool { return w.Text() == "--no-index" || w.Text() == "--untracked" }) {
			s.addFile(File{Word: Literal("."), Kind: Read, Via: "git", Loose: true, Deep: true})
		}
	case "add", "stash":
		// With these options it also takes in files that git would ignore.
		option := map[string]string{"add": "force", "stash": "all"}[sub]
		if slices.ContainsFunc(rest, func(w Word) bool { return isOption(w.Text(), option) }) {
			s.addFile(File{Word: Literal("."), Kind: Read, Via: "git", Loose: true, Deep: true})
		}
	case "clean":
		if !slices.ContainsFunc(rest, func(w Word) bool { return !strings.HasPrefix(w.Text(), "-") }) {
			s.addFile(File{Word: Literal("."), Kind: Write, Via: "git", Loose: true, Deep: true})
		}
	case "send-pack":
		s.addCall(&Call{Args: append([]Word{c.Args[0], Literal("push")}, rest...), Via: "git", Guess: true})
	}
}

// isOption reports whether a word is an option of git, long and perhaps abbreviated, or
// its first letter among others.
func isOption(word, name string) bool {
	if long, ok := strings.CutPrefix(word, "--"); ok {
		return long != "" && strings.HasPrefix(name, long)
	}
	return strings.HasPrefix(word, "-") && strings.Contains(word, name[:1])
}

// IsGitCommand reports whether git has a command of this name, which no configuration
// can replace.
func IsGitCommand(name string) bool { return programs().program("git "+name) != nil }

// GitCommand returns the command of git that follows its options, or "" if it is
// unknown.
func GitCommand(args []Word) string {
	p := lookup("git")
	for i := 0; i < len(args); i++ {
		t := args[i].Text()
		if !args[i].Static() {
			return ""
		}
		if !strings.HasPrefix(t, "-") {
			return t
		}
		o, ok := p.long[t]
		if len(t) == 2 {
			o, ok = p.short[t[1]]
		}
		if ok && o.value == needs {
			i++
		}
	}
	return ""
}

// Talks reports whether a call communicates with other machines, as far as its program
// is known.
func (c *Call) Talks() bool {
	name := filepath.Base(c.Args[0].Text())
	if c.Args[0].Text() == "/dev/tcp" {
		return true
	}
	if !c.Args[0].Static() {
		return false
	}
	if name == "git" {
		p := programs().program("git " + GitCommand(c.Args[1:]))
		return p == nil || p.is(netTrait)
	}
	return lookup(name).is(netTrait)
}

// gitFile records an argument of git that may be a file, or a pattern of files.
func (a *argv) gitFile(w Word, kind Kind) {
	if w.Static() {
		w = pathspec(w.Text())
	}
	a.s.addFile(File{Word: w, Kind: kind, Via: "git", Loose: !a.noindex, Deep: a.deep})
}

// pathspec returns the files that an argument of git stands for: git itself expands *
// and ?.
func pathspec(t string) Word {
	text := t
	if strings.HasPrefix(t, ":(") { // :(glob)x
		if _, rest, ok := strings.Cut(t, ")"); ok {
			text = rest
		}
	}
	if !strings.ContainsAny(text, `*?[\`) {
		if text != t || strings.HasPrefix(t, ":/") {
			return Word{Raw: t, vals: []Value{{Text: t}, {Text: strings.TrimPrefix(text, ":/")}}}
		}
		return Literal(t)
	}
	return patternWord(t, globPattern(text)...)
}

// globPattern returns the pattern of a text with the wildcards *, ? and []; * also
// matches directories.
func globPattern(text string) []rune {
	var pat []rune
	skip := 0
	for i, r := range text {
		if i < skip {
			continue
		}
		switch r {
		case '*':
			r = AnyText
		case '?':
			r = AnyOne
		case '[':
			if end := strings.LastIndexByte(text[i:], ']'); end > 0 {
				skip, r = i+end+1, AnyName
			}
		case '\\':
			continue
		}
		pat = append(pat, r)
	}
	return pat
}

func pathspecEffect(a *argv, w Word, _, _ int) {
	kind := Write
	if a.p.is(readsTrait) {
		kind = Read
	} else {
		a.acts()
	}
	if !w.none() {
		a.gitFile(w, kind)
	}
}

// diffspecEffect handles an argument of git diff, which also compares files outside of
// the repository.
func diffspecEffect(a *argv, w Word, i, at int) {
	pathspecEffect(a, w, i, at)
	if t := w.Text(); w.Static() && strings.Contains(t, "/") && !filepath.IsLocal(t) {
		a.c.risk(at, t)
	}
}

// remoteEffect handles a repository on another machine, or a branch.
func remoteEffect(a *argv, w Word, i, at int) {
	a.acts()
	a.gitFile(w, Write)
	if a.c.Args[0].Text() == "git" && GitCommand(a.c.Args[1:]) == "clone" {
		gitPlaceEffect(a, w, i, at)
	}
}

// gitPlaceEffect handles a path where git creates a repository or a directory.
func gitPlaceEffect(a *argv, w Word, i, at int) {
	a.acts()
	a.gitFile(w, Write)
	if t := w.Text(); !w.Static() || filepath.IsAbs(t) || strings.HasPrefix(t, "..") {
		a.c.risk(at, t)
	}
}

// gitDirEffect handles a directory that git works in.
func gitDirEffect(a *argv, w Word, i, _ int) {
	a.quiet = false
	a.c.risk(i, a.c.Args[i].Text())
	if w.none() {
		return
	}
	if a.c.Args[i].Text() == "-C" || strings.HasPrefix(a.c.Args[i].Text(), "-C") {
		a.s.chdir(w)
		return
	}
	a.reads = false
	a.s.addFile(File{Word: w, Kind: Write, Via: "git", Loose: true, Deep: true})
}

// gitExecEffect handles the directory of git's programs.
func gitExecEffect(a *argv, w Word, i, _ int) {
	if w.none() { // git prints it
		return
	}
	a.riskIf(true, i)
	a.s.addFile(File{Word: w, Kind: Write, Via: "git", Loose: true, Deep: true})
	a.s.blur("it changes where git finds its programs")
}

// gitRunKeys are parts of the names of settings whose values are executed.
var gitRunKeys = []string{
	"command", "pager", "editor", "fsmonitor", "program", "external", "textconv", "helper", "cmd", "path", "proxy", "askpass",
}

// gitConfigEffect handles -c name=value.
func gitConfigEffect(a *argv, w Word, i, _ int) {
	s := a.s
	a.riskIf(true, i)
	key, v, _ := strings.Cut(w.Text(), "=")
	key = strings.ToLower(key)
	s.addGuesses(v) // some program or file, whatever the key is
	s.addCall(&Call{Args: []Word{Literal("git"), Literal(key), Literal(v)}, Via: "git -c", Guess: true})
	if !w.Static() || strings.HasPrefix(a.c.Args[i].Text(), "--config-env") || strings.HasPrefix(key, "alias.") || strings.HasPrefix(key, "include") {
		s.blur("it sets git configuration that can redefine commands")
	}
	if strings.HasPrefix(v, "!") || strings.HasPrefix(key, "filter.") || strings.HasPrefix(key, "alias.") ||
		slices.ContainsFunc(gitRunKeys, func(part string) bool { return strings.Contains(key, part) }) {
		s.parseWord(Literal(strings.TrimPrefix(v, "!")), "git -c")
		s.act("git is given a program to run")
	}
}

// gitConfigFileEffect handles a configuration file.
func gitConfigFileEffect(a *argv, w Word, i, _ int) {
	a.riskIf(true, i)
	a.s.addFile(File{Word: w, Kind: Write, Via: "git config", Loose: true})
}

// gitConfig reads or writes the configuration.
func gitConfig(a *argv, args []Word, at int) {
	s, c := a.s, a.c
	reads := a.reads
	a.options(at)
	verb := ""
	if len(a.operands) > 0 {
		verb = a.operands[0].word.Text()
	}
	gets := verb == "get" || verb == "list" || slices.ContainsFunc(args, func(w Word) bool {
		t := w.Text()
		return strings.HasPrefix(t, "--get") || t == "--list" || t == "-l"
	})
	writes := verb == "edit" || verb == "set" || verb == "unset" || verb == "rename-section" || verb == "remove-section"
	if a.reads && !writes && (len(a.operands) < 2 || gets) {
		c.Reads = reads
		return
	}
	c.Loose = true
	c.risk(at-1, "config")
	file := ".git/config"
	if slices.ContainsFunc(args, func(w Word) bool { return w.Text() == "--global" }) {
		file = s.env.Home + "/.gitconfig"
	}
	s.addFile(File{Word: Literal(file), Kind: Write, Via: "git config"})
	for _, o := range a.operands {
		s.addFile(File{Word: o.word, Kind: Write, Via: "git", Loose: true})
	}
}

// gitSubmodule runs commands in submodules.
func gitSubmodule(a *argv, args []Word, at int) {
	i := slices.IndexFunc(args, func(w Word) bool { return w.Text() == "foreach" })
	if i < 0 {
		a.all(at)
		return
	}
	a.c.risk(at+i, "foreach")
	for i++; i < len(args) && strings.HasPrefix(args[i].Text(), "-"); i++ {
	}
	a.s.parseJoined(args[i:], "git submodule foreach")
}

// gitBisect runs a command for every revision.
func gitBisect(a *argv, args []Word, at int) {
	a.c.risk(at-1, "run")
	if len(args) > 0 {
		a.s.run(args, "git bisect run", nil)
	}
}

// gitBisectView is for git bisect visualize, whose words are options of git log or another
// command of git.
func gitBisectView(a *argv, args []Word, at int) {
	gitRisk(a, args, at)
	if len(args) > 0 {
		a.s.run(append([]Word{Literal("git")}, args...), "git bisect", nil)
	}
}

// gitRisk is for commands of git that run what the configuration names.
func gitRisk(a *argv, args []Word, at int) {
	a.c.Loose = true
	a.c.risk(at-1, a.c.Args[at-1].Text())
	for i, w := range args {
		if strings.HasPrefix(w.Text(), "-") || !w.Static() {
			a.c.risk(at+i, w.Text())
		}
		a.s.addFile(File{Word: w, Kind: Write, Via: "git", Loose: true})
		if _, v, ok := strings.Cut(w.Text(), "="); ok && strings.HasPrefix(w.Text(), "-") {
			a.s.parseWord(Literal(v), "git")
		} else if i > 0 && strings.HasPrefix(args[i-1].Text(), "-") {
			a.s.parseGuess(w.Text(), "git")
		}
	}
}
