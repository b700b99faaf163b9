package policy

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/tool"
)

// known notes what is known of a program: what it runs, what it reads and writes.
// Of a program that is not known, every argument may be a file or a program.
func known(s *script, c *invocation, input *word) {
	name, args := c.args[0].text(), c.args[1:]
	if name != "." {
		name = path.Base(name)
	}
	if c.args[0].text() == "" {
		name = "?"
	}
	if w, ok := wrappers[name]; ok {
		s.wrapper(c, name, w, args, input)
		return
	}
	if slices.Contains(shells, name) {
		s.shell(c, args, input)
		return
	}
	if f, ok := programs[name]; ok {
		f(s, c, args, input)
		return
	}
	if letters, ok := quietFiles[name]; ok {
		s.readers(c, args, letters)
		return
	}
	if letters, ok := quietWords[name]; ok {
		c.quiet = options(args, letters)
		c.loose = !c.quiet // it may do more, with options that are not known
		for _, a := range args {
			if len(a.vals) > 0 && !a.static() {
				c.quiet = false
			}
		}
		return
	}
	if interpreter(name) {
		s.interpreter(c, name, args, input)
		return
	}
	c.loose = true
	s.arguments(c, args)
	s.hidden(name, args)
	s.fed(input)
	if steers, ok := steering[name]; ok && s.steered(steers...) {
		s.blur("it writes what " + name + " takes its commands from")
	}
}

// isKnown reports whether a program is one of which something is known.
func isKnown(name string) bool {
	_, wraps := wrappers[name]
	_, reads := quietFiles[name]
	_, prints := quietWords[name]
	return wraps || reads || prints || programs[name] != nil || slices.Contains(shells, name) || interpreter(name)
}

// hidden notes what the words of a program that is not known would run: a shell or
// another interpreter with its text, a word that is a command itself. And where it
// may work: every directory that it is given.
func (s *script) hidden(name string, args []word) {
	if len(args) > maxLoose {
		return
	}
	for i, a := range args {
		if !a.static() {
			continue
		}
		t := a.text()
		base := path.Base(t)
		if shell := slices.Contains(shells, base); shell || interpreter(base) {
			if rest := args[i+1:]; slices.ContainsFunc(rest, func(a word) bool { return a.static() && tells(a.text(), shell) }) {
				s.run(args[i:], name, nil)
				break
			}
		}
		switch _, v, ok := strings.Cut(t, "="); {
		case i > 0 && tells(args[i-1].text(), true) && strings.Contains(t, " "): // -c 'text'
			s.aside(t, name)
		case looksLikeCommand(t):
			s.aside(t, name)
		case ok && strings.HasPrefix(t, "-") && looksLikeCommand(v):
			s.aside(v, name)
		}
		for _, dir := range s.absolute(t, true) {
			if len(s.near) < maxValues && dir != "" && !slices.Contains(s.near, dir) && isDir(dir) {
				s.near = append(s.near, filepath.Clean(dir))
			}
		}
	}
}

// tells reports whether an option says that a text to run is next.
func tells(t string, shell bool) bool {
	if strings.HasPrefix(t, "--") {
		return t == "--command" || t == "--exec" || t == "--eval" || t == "--run" || t == "--shell"
	}
	return len(t) > 1 && len(t) < 6 && t[0] == '-' && (strings.HasSuffix(t, "c") || !shell && strings.HasSuffix(t, "e") || t == "-x" || t == "-r" && !shell)
}

// aside takes a text apart that a program may give to a shell. It need not be one:
// what is found in it counts, and not that some of it is not understood.
func (s *script) aside(text, via string) {
	if s.depth >= maxDepth {
		return
	}
	other := &script{text: text, req: s.req, dirs: s.dirs, anyDir: s.anyDir, depth: s.depth}
	other.parse(text, via)
	for _, c := range other.calls {
		c.quoted = true // it is not sure that it is run
		s.call(c)
	}
	for _, f := range other.files {
		f.loose, f.hint = true, true
		s.use(*f)
	}
	s.anyHost = s.anyHost || other.anyHost
	if other.unclear != "" && len(other.calls) > 0 && !strings.Contains(text, "\n") {
		s.blurOnly(other.unclear)
	}
}

// fed notes what a program that is not known reads, as far as it stands in the
// command: it may do what it says.
func (s *script) fed(input *word) {
	text := s.piped
	if input != nil {
		text += input.text()
	}
	if text != "" {
		s.guess(text)
	}
}

// steering are the files from which programs take what to run.
var steering = map[string][]string{
	"npm": {"package.json", ".npmrc"}, "npx": {"package.json", ".npmrc"}, "yarn": {"package.json", ".yarnrc", ".yarnrc.yml"}, "pnpm": {"package.json", ".npmrc"}, "bun": {"package.json", "bunfig.toml"},
	"make": {"makefile", "gnumakefile"}, "gmake": {"makefile", "gnumakefile"}, "ninja": {"build.ninja"}, "just": {"justfile", ".justfile"}, "task": {"taskfile.yml", "taskfile.yaml"}, "rake": {"rakefile"}, "bundle": {"gemfile"},
	"cargo": {"build.rs", "cargo.toml", "config.toml"}, "go": {"go.mod"}, "cmake": {"cmakelists.txt"}, "gradle": {"build.gradle", "settings.gradle"}, "mvn": {"pom.xml"}, "pytest": {"conftest.py", "pytest.ini", "setup.cfg", "pyproject.toml"}, "tox": {"tox.ini"},
	"pip": {"setup.py", "pyproject.toml"}, "pre-commit": {".pre-commit-config.yaml"}, "docker": {"dockerfile", "docker-compose.yml", "compose.yaml"}, "git": {".gitconfig", "config", ".gitmodules", ".gitattributes"}, "direnv": {".envrc"},
}

// quietWords are programs that do nothing with files and have no effect, with the
// letters of the options they may have in a proof.
var quietWords = map[string]string{"echo": "neE", "true": "", "false": "", ":": "", "pwd": "LP", "whoami": "", "uname": "asnrvmpio", "id": "unGgr", "arch": "", "nproc": "", "tty": "s",
	"basename": "asz", "dirname": "z", "seq": "fsw", "sleep": "", "tr": "cCdst", "expr": "", "which": "a", "type": "aftpP", "yes": "", "factor": "", "logname": "", "groups": "", "users": "", "uptime": "ps", "exit": "", "return": "", "break": "", "continue": "", "shift": "", "hostid": "", "getconf": "a"}

// quietFiles are programs that read the files of their arguments and have no other
// effect, with the letters of the options they may have in a proof.
var quietFiles = map[string]string{"cat": "AbeEnstTuv", "head": "ncqvz0123456789", "tail": "ncqvz0123456789", "wc": "clmwL", "nl": "bdfhilnpsvw", "tac": "brs", "rev": "", "cut": "bcdfsnz", "paste": "dsz", "join": "ae1234567890ijotvz", "comm": "123z",
	"md5sum": "btz", "sha1sum": "btz", "sha256sum": "btz", "sha512sum": "btz", "cksum": "", "sum": "rs", "b2sum": "btz", "od": "AjNStvwabcdfilosx", "hexdump": "bcCdovxns", "xxd": "", "strings": "afnoteTsw", "base64": "diw", "base32": "diw",
	"ls": "aAbBcCdDfFgGhHiIklLmnNopqQrRsStTuUvwxXZ1", "dir": "alhR", "stat": "Lftc", "du": "abcdDhHkmPsSx0", "readlink": "femnqsvz", "realpath": "emLPqsz", "fold": "bsw", "fmt": "cstuw", "expand": "it", "unexpand": "at",
	"cmp": "bilnsv", "diff": "aBbcdEeHiLNnPpqstTuUwyZ", "grep": "EFGPabcehHilLnoqrsTvwxzZABCm0123456789", "egrep": "abcehHilLnoqsvwxABCm", "fgrep": "abcehHilLnoqsvwxABCm", "column": "tsc", "test": "*", "[": "*", "jq": "rcnsaSMCje", "tsort": "",
	"less": "", "more": "", "zcat": "", "bzcat": "", "xzcat": "", "zgrep": "", "rg": "", "ag": "", "ack": "", "bat": "", "rgrep": "", "ugrep": "", "ug": "", "pcregrep": "", "pcre2grep": "", "bzgrep": "", "xzgrep": "", "zstdgrep": "", "git-grep": "", "tree": "adfLpsh", "file": "bhikLNprsvzZ0", "uniq": "cdiuDfswz", "look": "", "diff3": "", "sdiff": "", "zdiff": "", "zcmp": "", "nroff": "", "iconv": "ft"}

// recursive reports whether a reader goes down directories.
func recursive(name string, args []word) bool {
	switch name {
	case "rg", "ag", "ack", "tree", "du", "rgrep", "ugrep", "ug":
		return true
	case "grep", "egrep", "fgrep", "zgrep", "bzgrep", "xzgrep", "zstdgrep", "pcregrep", "pcre2grep", "ls", "diff":
		return slices.ContainsFunc(args, func(a word) bool {
			t := a.text()
			return t == "recurse" || t == "-d" || strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--") && strings.ContainsAny(t, "rR") || strings.HasPrefix(t, "--rec") || strings.HasPrefix(t, "--dereference-r") || strings.HasPrefix(t, "--directories")
		})
	}
	return false
}

// options reports whether the options among the words are made of letters; a few
// long ones are fine with every program.
func options(args []word, letters string) bool {
	for _, a := range args {
		t := a.text()
		if !strings.HasPrefix(t, "-") || t == "-" || letters == "*" {
			continue
		}
		if t == "--" {
			return true
		}
		switch t {
		case "--help", "--version", "--color", "--color=auto", "--color=never", "--color=always":
			continue
		}
		if strings.HasPrefix(t, "--") || strings.Trim(t[1:], letters) != "" && !valued(t, letters) {
			return false
		}
	}
	return true
}

// valued reports whether an option is letters and a number, such as -n20.
func valued(t, letters string) bool {
	rest := strings.TrimRight(t[1:], "0123456789,-")
	return rest != "" && strings.Trim(rest, letters) == ""
}

// readers notes a program that reads the files of its arguments.
func (s *script) readers(c *invocation, args []word, letters string) {
	name := filepath.Base(c.args[0].text())
	deep := recursive(name, args)
	c.quiet = letters != "" || len(args) == 0 || name == "rev" || name == "cksum"
	c.quiet = c.quiet && options(args, letters) && !follows(name, args)
	s.outputs(c, name, args)
	files, pattern := 0, name == "grep" || name == "egrep" || name == "fgrep" || name == "rg" || name == "ag" || name == "ack" || name == "jq" || name == "look" || strings.HasSuffix(name, "grep") || name == "ug"
	if pattern && slices.ContainsFunc(args, func(a word) bool {
		t := a.text() // what to look for is said by an option
		return strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--") && strings.ContainsAny(t, "ef") || prefixOf(t, "--regexp", "--file", "--from-file") || t == "--files"
	}) {
		pattern = false
	}
	for _, a := range args {
		c.quiet = c.quiet && a.static()
		option := strings.HasPrefix(a.text(), "-")
		if pattern && !option && a.static() {
			pattern = false
			continue
		}
		if option && a.static() && strings.Trim(a.text()[1:], letters) == "" && a.text() != "-" {
			continue
		}
		if !option {
			files++
		}
		kind := tool.Read
		if name == "uniq" && files > 1 || name == "xxd" && files > 1 {
			kind, c.quiet = tool.Write, false
			c.risk("a file to write")
		}
		s.use(fileUse{word: a, kind: kind, via: name, deep: deep})
	}
	if letters == "" && slices.ContainsFunc(args, func(a word) bool { return strings.HasPrefix(a.text(), "-") || strings.HasPrefix(a.text(), "+") }) {
		c.loose = true // what its options do is not known
	}
	for _, a := range args {
		if prefixOf(a.text(), "--files0-from", "--files-from") && !(name == "rg" && a.text() == "--files") {
			s.use(fileUse{word: anyWord(a.raw), kind: tool.Read, via: name})
			c.quiet = false
		}
	}
	switch name {
	case "jq":
		for _, a := range args {
			if t := a.text(); strings.Contains(t, "import") || strings.Contains(t, "include") || strings.Contains(t, "ENV") || hasWord(t, "env") {
				c.quiet = false
				c.risk("its program")
				s.blurOnly("what jq reads is not understood")
			}
		}
	case "rg":
		for _, a := range args {
			if t := a.text(); !a.static() || prefixOf(t, "--pre", "--hostname-bin", "--search-zip") || t == "-z" {
				c.risk(t)
				s.sub(literalWord(t), name)
			}
		}
	case "less", "more", "view":
		c.risk(name)
		if slices.ContainsFunc(args, func(a word) bool { return strings.HasPrefix(a.text(), "+") }) {
			s.blurOnly("what " + name + " does is not understood")
		}
	}
	if deep && files == 0 {
		s.use(fileUse{word: literalWord("."), kind: tool.Read, via: name, deep: true})
	}
}

// readerWrites are the options by which programs that read write a file.
var readerWrites = map[string][]string{"iconv": {"-o", "--output"}, "tree": {"-o"}, "less": {"-o", "-O", "--log-file", "--LOG-FILE"}, "sdiff": {"-o", "--output"}, "file": {"-C", "-m", "--compile", "--magic-file"}, "ugrep": {"--save-config"}, "ug": {"--save-config"}, "base64": {"-o", "--output"}}

// outputs notes the files that a program which reads is told to write.
func (s *script) outputs(c *invocation, name string, args []word) {
	for i, a := range args {
		for _, o := range readerWrites[name] {
			t := a.text()
			short := !strings.HasPrefix(o, "--") && strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--") && strings.Contains(t, o[1:])
			if !short && !prefixOf(t, o) {
				continue
			}
			c.quiet = false
			c.risk(t)
			s.use(fileUse{word: a, kind: tool.Write, via: name, loose: true})
			if i+1 < len(args) {
				s.use(fileUse{word: args[i+1], kind: tool.Write, via: name, loose: true})
			}
		}
	}
}

// follows reports whether a program goes through links as it goes down directories.
func follows(name string, args []word) bool {
	letter := func(letters string) bool {
		return slices.ContainsFunc(args, func(a word) bool {
			t := a.text()
			return strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--") && strings.ContainsAny(t, letters)
		})
	}
	return name == "ls" && letter("R") && letter("LH")
}

// prefixOf reports whether a word is one of some options, or one of them cut short,
// with a value or without.
func prefixOf(t string, opts ...string) bool {
	name, _, _ := strings.Cut(t, "=")
	if len(name) < 4 || !strings.HasPrefix(name, "--") {
		return false
	}
	return slices.ContainsFunc(opts, func(o string) bool { return strings.HasPrefix(o, name) })
}

// A wrapper is how a program that runs another takes its arguments.
type wrapper struct {
	values string // letters of options with a value of their own
	long   []string
	before int  // how many words stand before the program
	clear  bool // whether it adds nothing to what it runs
	script bool // whether a shell reads what it runs
	env    bool // whether assignments may stand before the program
}

var wrappers = map[string]wrapper{
	"timeout": {values: "ks", long: []string{"--kill-after", "--signal"}, before: 1, clear: true}, "nice": {values: "n", long: []string{"--adjustment"}, clear: true}, "nohup": {clear: true},
	"stdbuf": {values: "ioe", long: []string{"--input", "--output", "--error"}, clear: true}, "time": {values: "fo", long: []string{"--format", "--output"}},
	"ionice": {values: "cnpPu", long: []string{"--class", "--classdata"}}, "setsid": {}, "chrt": {before: 1, values: "TPD"}, "taskset": {before: 1, values: ""}, "env": {values: "uCS", long: []string{"--unset", "--chdir"}, env: true},
	"sudo": {values: "ugpCTrtDRhU", long: []string{"--user", "--group", "--prompt", "--chdir", "--chroot", "--host", "--role", "--type"}, env: true}, "doas": {values: "uC"}, "pkexec": {long: []string{"--user"}}, "gosu": {before: 1}, "su-exec": {before: 1},
	"command": {clear: true}, "builtin": {clear: true}, "exec": {values: "a"}, "nocorrect": {}, "noglob": {}, "xargs": {values: "adEILnPs", long: []string{"--arg-file", "--delimiter", "--max-lines", "--max-args", "--max-procs", "--max-chars", "--replace", "--eof"}},
	"watch": {values: "nq", long: []string{"--interval"}, script: true}, "strace": {values: "abeEIoOPpsSuUX"}, "ltrace": {values: "aAbDeFlLnopsSuwxX"}, "chroot": {before: 1, long: []string{"--userspec", "--groups"}},
	"setpriv": {long: []string{"--reuid", "--regid", "--groups", "--inh-caps", "--bounding-set", "--ambient-caps"}}, "busybox": {}, "toybox": {}, "chronic": {}, "unbuffer": {}, "fakeroot": {}, "eatmydata": {}, "catchsegv": {}, "ifne": {}, "torsocks": {}, "proxychains": {}, "proxychains4": {},
	"tini": {}, "dumb-init": {}, "numactl": {}, "linux64": {}, "linux32": {}, "i386": {}, "x86_64": {}, "setarch": {before: 1}, "dbus-run-session": {}, "prlimit": {}, "coproc": {}, "then": {}, "do": {}, "else": {}, "!": {},
}

// wrapper notes what a program runs.
func (s *script) wrapper(c *invocation, name string, w wrapper, args []word, input *word) {
	c.clear = w.clear
	c.loose = !w.clear // which of its words is the program may be told wrongly
	before := w.before
	var marks []string // what xargs replaces
	for i := 0; i < len(args); i++ {
		a := args[i]
		if !a.static() {
			s.blur("what " + name + " runs is made at run time")
			c.loose = true
			s.arguments(c, args)
			return
		}
		t := a.text()
		switch {
		case t == "--":
			continue
		case strings.HasPrefix(t, "-") && len(t) > 1:
			c.clear = c.clear && (name == "timeout" || name == "nice" || name == "stdbuf")
			if name == "command" && (t == "-v" || t == "-V") {
				c.quiet = true
				return // it tells where the program is
			}
			if name == "env" && (strings.HasPrefix(t, "-S") || prefixOf(t, "--split-string") || strings.Contains(t, "S") && !strings.HasPrefix(t, "--")) {
				s.envString(c, args[i:])
				return
			}
			if name == "sudo" && (t == "-e" || t == "--edit") {
				s.arguments(c, args[i+1:])
				return
			}
			if !w.clear && !w.script {
				s.arguments(c, args[i:min(i+2, len(args))])
			}
			if name == "xargs" {
				marks = append(marks, placeholder(t, args[i+1:]))
			}
			if (name == "env" && strings.HasPrefix(t, "-C") || name == "sudo" && strings.HasPrefix(t, "-D")) && len(t) > 2 {
				s.chdir(literalWord(t[2:]))
			}
			long := strings.HasPrefix(t, "--") && !strings.Contains(t, "=") && slices.ContainsFunc(w.long, func(l string) bool { return strings.HasPrefix(l, t) })
			if name == "xargs" && (t == "--replace" || t == "--eof" || t == "--max-lines") {
				long = false // their values are joined to them
			}
			if long || !strings.HasPrefix(t, "--") && strings.IndexAny(t[1:], w.values) == len(t)-2 && w.values != "" {
				i++
				if (t == "-C" || t == "--chdir" || t == "-D" && name == "sudo") && i < len(args) {
					s.chdir(args[i])
				}
			} else if !w.clear {
				c.risk(t)
			}
			if opt, dir, ok := strings.Cut(t, "="); ok && prefixOf(opt, "--chdir") {
				s.chdir(literalWord(dir))
			}
			continue
		case w.env && strings.Contains(t, "=") && !strings.HasPrefix(t, "="):
			n, v, _ := strings.Cut(t, "=")
			s.setVar(n, literalWord(v))
			continue
		case before > 0:
			before--
			if name == "chroot" {
				s.blur("paths are others below another root")
			}
			if name == "chroot" || name == "setarch" {
				s.anyDir = true
			}
			continue
		}
		rest := args[i:]
		if w.script {
			s.joined(rest, name)
			return
		}
		if name == "xargs" {
			rest = append(slices.Clone(rest), anyWord("{}"))
			for j, a := range rest {
				if a.static() && (strings.Contains(a.text(), "{}") || slices.ContainsFunc(marks, func(m string) bool { return m != "" && strings.Contains(a.text(), m) })) {
					rest[j] = anyWord(a.raw)
				}
			}
			input = nil
		}
		if name == "exec" || name == "sudo" || name == "env" || name == "busybox" || name == "xargs" {
			c.clear = false
		}
		s.run(rest, name, input)
		return
	}
	c.clear = false
	if name == "sudo" || name == "su" || name == "chroot" || name == "setarch" {
		s.shell(c, nil, input)
	}
	if name == "env" || name == "command" || name == "exec" || name == "time" || name == "nohup" {
		c.quiet = name != "env" && name != "nohup"
	}
}

// placeholder returns the text that an option of xargs says is replaced, if it is one.
func placeholder(t string, rest []word) string {
	if strings.HasPrefix(t, "--") {
		if _, v, ok := strings.Cut(t, "="); ok && prefixOf(t, "--replace") {
			return v
		}
		return ""
	}
	at := strings.IndexAny(t, "IiJ")
	switch {
	case at < 0:
		return ""
	case at+1 < len(t):
		return t[at+1:]
	case t[at] != 'i' && len(rest) > 0:
		return rest[0].text()
	}
	return "{}"
}

// joined notes words that a shell reads as one text.
func (s *script) joined(args []word, via string) {
	var b strings.Builder
	for _, a := range args {
		if !a.static() {
			s.blur("what " + via + " runs is made at run time")
			s.call(&invocation{args: args, via: via, loose: true})
			return
		}
		b.WriteString(a.text())
		b.WriteByte(' ')
	}
	s.parse(strings.TrimSpace(b.String()), via)
}

// envString notes env -S, which splits a text as a shell would, nearly.
func (s *script) envString(c *invocation, args []word) {
	s.unprove("env splits a text into words")
	_, text, _ := strings.Cut(args[0].text(), "S")
	if strings.HasPrefix(args[0].text(), "--") {
		_, text, _ = strings.Cut(args[0].text(), "=")
	}
	rest := args[1:]
	words := []word{literalWord(strings.TrimPrefix(text, "="))}
	s.joined(append(words, rest...), "env -S")
	if strings.ContainsAny(text, `$\`) {
		s.blur("env makes words at run time")
	}
}

var shells = []string{"sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "mksh", "rbash", "yash", "pwsh", "csh", "tcsh", "su", "runuser", "sg"}

// shell notes what a shell is given to run: a text, a file, or its input.
func (s *script) shell(c *invocation, args []word, input *word) {
	name := filepath.Base(c.args[0].text())
	text, next := false, 0
	for i, a := range args {
		t := a.text()
		if !a.static() {
			s.blur("what a shell runs is made at run time")
		}
		switch {
		case next < 0: // the name of an option
			next = 0
			if slices.Contains(readsOtherwise, t) {
				s.blur("it changes how the shell reads")
			}
		case text && (!strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "+") || next > 0):
			s.sub(a, name+" -c")
			for _, rest := range args[i+1:] { // its parameters
				s.use(fileUse{word: rest, kind: tool.Write, via: name, loose: true})
			}
			if rest := args[i+1:]; len(rest) > 1 && strings.Contains(t, "$@") {
				s.run(rest[1:], name+" -c", nil)
			}
			return
		case t == "--command", t == "--session-command":
			text, next = true, 1
		case strings.HasPrefix(t, "--command="):
			s.sub(literalWord(strings.TrimPrefix(t, "--command=")), name+" -c")
			return
		case strings.HasPrefix(t, "--"):
			if t == "--rcfile" || t == "--init-file" {
				s.blur("a shell reads what to run")
				next = -1
			}
		case strings.HasPrefix(t, "-") && len(t) > 1:
			text = text || strings.Contains(t, "c")
			if strings.Contains(t, "s") && input != nil && !text {
				s.sub(*input, name)
			}
			if strings.HasSuffix(t, "o") || strings.HasSuffix(t, "O") {
				next = -1
			}
		case strings.HasPrefix(t, "+") && len(t) > 1:
			if strings.HasSuffix(t, "o") || strings.HasSuffix(t, "O") {
				next = -1
			}
		case name == "su" || name == "runuser" || name == "sg": // a name
		case t == "-", strings.HasPrefix(t, "/dev/"), strings.HasPrefix(t, "/proc/"):
			s.blur("a shell reads what to run")
			if input != nil {
				s.sub(*input, name)
			}
			return
		default: // a file of commands
			s.use(fileUse{word: a, kind: tool.Read, via: name})
			if s.written(a, c) {
				s.blur("a shell runs a file that the command makes")
			}
			s.arguments(c, args[i+1:])
			return
		}
	}
	if input != nil {
		s.sub(*input, name)
		return
	}
	s.blur("a shell reads what to run")
}

func interpreter(name string) bool {
	base := strings.TrimRight(name, "0123456789.")
	return slices.Contains([]string{"python", "pypy", "perl", "ruby", "node", "nodejs", "deno", "bun", "php", "lua", "luajit", "tclsh", "wish", "expect", "osascript", "Rscript", "R", "julia", "ghci", "runghc", "guile", "racket", "sbcl", "elixir", "erl", "iex", "irb", "ipython",
		"groovy", "scala", "jshell", "ts-node", "tsx", "emacs", "vi", "vim", "nvim", "view", "rview", "vimdiff", "gvim", "ex", "ed", "gdb", "lldb", "m", "dc", "sqlite", "psql", "mysql", "make", "gmake", "ninja", "at", "batch", "crontab", "nc", "ncat", "socat"}, base)
}

// interpreter notes a program that runs what is written in another language. A file
// of it is a program like any other; a text in the command is not understood.
func (s *script) interpreter(c *invocation, name string, args []word, input *word) {
	c.loose = true
	s.arguments(c, args)
	builds := strings.Contains(name, "make") || name == "ninja"
	if s.steered(steering[name]...) {
		s.blurOnly("it writes what " + name + " takes its commands from")
	}
	file, module, tells := false, false, false
	for i, a := range args {
		t := a.text()
		switch {
		case !a.static():
			s.blurOnly("code in another language is made at run time")
		case strings.HasPrefix(t, "+"), strings.HasPrefix(t, "--eval"), strings.HasPrefix(t, "--exec"), strings.HasPrefix(t, "--c") && !builds, strings.HasPrefix(t, "--print"), strings.HasPrefix(t, "--run"), t == "-", strings.HasPrefix(t, "/dev/"), strings.HasPrefix(t, "SHELL="), strings.HasPrefix(strings.ToUpper(t), "EXEC:"), strings.HasPrefix(strings.ToUpper(t), "SYSTEM:"), t == "eval" && !file:
			s.blurOnly("code in another language is not understood")
		case file && sourceFile(args[:i]): // of a program of its own
		case !builds && strings.ContainsAny(t, " \n(;`|<>"):
			s.blurOnly("code in another language is not understood")
		case strings.HasPrefix(t, "-m") && strings.HasPrefix(name, "py") && !file:
			mod := strings.TrimPrefix(t, "-m")
			if mod == "" && i+1 < len(args) {
				mod = args[i+1].text()
			}
			if module = true; !slices.Contains(pythonModules, mod) {
				s.blurOnly("what the module " + mod + " does is not known")
			}
		case t == "--version", t == "-V", t == "-v", t == "--help", t == "-h", name == "crontab" && t == "-l" && len(args) == 1:
			tells = true
		case strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--") && !file && !module:
			if strings.ContainsAny(t, "ceEprSx") && !(builds && !strings.Contains(t, "E")) {
				s.blurOnly("code in another language is not understood")
			}
		case !strings.HasPrefix(t, "-"):
			if !file && s.written(a, c) {
				s.blurOnly("it runs a file that the command makes")
			}
			file = true
		}
	}
	if !file && !tells && !builds || input != nil && !sourceFile(args) || name == "at" || name == "batch" || name == "crontab" && !(len(args) == 1 && args[0].text() == "-l") {
		s.blurOnly("code in another language is not understood")
	}
}

// pythonModules are modules that do what they are known for and no more.
var pythonModules = []string{"pytest", "unittest", "pip", "venv", "build", "black", "flake8", "mypy", "pylint", "ruff", "isort", "coverage", "json.tool", "compileall", "tox", "nox", "pyflakes", "pyright", "django", "flask", "uvicorn", "gunicorn", "pre_commit", "doctest", "virtualenv", "poetry", "ensurepip"}

// sourceFile reports whether the first word that is no option is a file of a
// language: what follows are its arguments.
func sourceFile(args []word) bool {
	for _, a := range args {
		if t := a.text(); !strings.HasPrefix(t, "-") {
			switch filepath.Ext(t) {
			case ".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".tsx", ".rb", ".pl", ".php", ".lua", ".r", ".R", ".jl", ".exs", ".tcl", ".scm", ".rkt":
				return true
			}
			return false
		}
	}
	return false
}

// blurOnly notes that a rule that restricts cannot be sure; one that allows the
// program may.
func (s *script) blurOnly(why string) {
	if s.unclear == "" {
		s.unclear = why
	}
}

// chdir notes that the directory changes.
func (s *script) chdir(w word) {
	if !w.static() || s.anyDir {
		s.anyDir = true
		return
	}
	for _, d := range slices.Clone(s.dirs) {
		t := w.text()
		to := t
		if !filepath.IsAbs(t) {
			to = filepath.Join(d, t)
		}
		if !slices.Contains(s.dirs, to) {
			s.dirs = append(s.dirs, to)
		}
		if strings.Contains(t, "..") { // behind a link it leads elsewhere, but to cd
			if !filepath.IsAbs(t) {
				t = d + "/" + t
			}
			if real := resolve(t); !slices.Contains(s.dirs, real) {
				s.dirs = append(s.dirs, real)
			}
		}
	}
	if len(s.dirs) > maxValues {
		s.anyDir = true
	}
	s.use(fileUse{word: w, kind: tool.Read, via: "cd", loose: true})
}

// A program notes what one program does.
type program func(s *script, c *invocation, args []word, input *word)

// programs are those that run others, write files, or need a closer look.
var programs map[string]program

func init() {
	programs = map[string]program{
		"cd": cd, "pushd": cd, "popd": cd, "eval": eval, "source": source, ".": source, "trap": firstText, "alias": aliases, "git": git, "find": find, "fd": fd, "fdfind": fd, "mapfile": mapfile, "readarray": mapfile, "sed": sed, "gsed": sed, "awk": awk, "gawk": awk, "mawk": awk, "nawk": awk,
		"sort": sortFiles, "tee": writer(""), "touch": writer("drt"), "mkdir": writer("m"), "rmdir": writer(""), "rm": writer(""), "unlink": writer(""), "shred": writer("ns"), "truncate": writer("sr"), "mkfifo": writer("m"), "mktemp": writer(""),
		"chmod": firstNot, "chown": firstNot, "chgrp": firstNot, "setfacl": loosely, "cp": copies, "mv": copies, "ln": copies, "install": copies, "rsync": copies, "scp": copies, "dd": dd, "date": date, "printf": printf, "hash": dark, "enable": dark, "bind": dark, "complete": dark, "compgen": dark,
		"ssh": ssh, "parallel": parallel, "flock": flock, "script": scriptProgram, "export": exports, "read": quietly, "wait": quietly, "jobs": quietly, "set": set, "shopt": set, "unset": quietly, "let": dark, "declare": dark, "typeset": dark, "local": exports, "readonly": exports,
		"man": man, "tar": tar, "bsdtar": tar, "curl": network, "wget": network,
	}
	for _, name := range strings.Fields("zip 7z 7za 7zr rar gzip bzip2 xz zstd jar shar pax ar cpio bsdcpio mksquashfs genisoimage mkisofs xorriso restic borg duplicity rclone aws gsutil az gcloud s3cmd docker podman nerdctl buildah kubectl oc sftp lftp unison mount bindfs sshfs ditto magic-wormhole wormhole croc") {
		programs[name] = deeply
	}
	for _, name := range strings.Fields("unzip unrar unar patch 7z 7za 7zr cpio bsdcpio pax jar ar rar") {
		programs[name] = unpacks
	}
}

func cd(s *script, c *invocation, args []word, _ *word) {
	var to []word
	for _, a := range args {
		if t := a.text(); a.static() && (t == "-L" || t == "-P" || t == "-e" || t == "-@" || t == "--" || t == "-n") {
			continue
		}
		to = append(to, a)
	}
	name := c.args[0].text()
	switch {
	case name != "cd", len(to) > 1, len(to) == 1 && strings.HasPrefix(to[0].text(), "-"), len(to) == 1 && to[0].text() == "":
		s.anyDir = true
	case len(to) == 0:
		s.chdir(literalWord(s.req.Home))
	default:
		s.chdir(to[0])
		c.quiet = to[0].static()
	}
}

func eval(s *script, c *invocation, args []word, _ *word) {
	s.unprove("it evaluates a text")
	if len(args) > 0 && args[0].text() == "--" {
		args = args[1:]
	}
	s.joined(args, "eval")
}

func source(s *script, c *invocation, args []word, input *word) {
	s.unprove("it runs the commands of a file")
	s.shell(c, append([]word{literalWord("-e")}, args...), input)
}

// firstText is a program whose first argument is read by a shell.
func firstText(s *script, _ *invocation, args []word, _ *word) {
	s.unprove("it runs a text later")
	for _, a := range args {
		if a.static() && strings.HasPrefix(a.text(), "-") {
			continue
		}
		s.sub(a, "trap")
		return
	}
}

func aliases(s *script, _ *invocation, args []word, _ *word) {
	s.unprove("it gives a program another name")
	for _, a := range args {
		_, v, found := strings.Cut(a.text(), "=")
		if found {
			s.blur("it gives a program another name")
			s.sub(literalWord(v), "alias")
		}
	}
}

func dark(s *script, c *invocation, args []word, _ *word) { s.blur("it changes what names mean") }

func quietly(s *script, c *invocation, args []word, _ *word) { s.unprove("it changes variables") }

// deeply is a program that takes whole directories: what is below its words is
// touched, and what it reads the names of.
func deeply(s *script, c *invocation, args []word, input *word) {
	c.loose = true
	s.arguments(c, args)
	s.hidden(filepath.Base(c.args[0].text()), args)
	s.fed(input)
	if len(args) > 0 && args[0].text() == "exec" {
		return // in a container that runs: its directories are others
	}
	for _, a := range args {
		t := a.text()
		if a.static() && strings.HasPrefix(t, "-") && !strings.Contains(t, "=") {
			if t == "-@" || t == "-i" || strings.HasPrefix(t, "-T") {
				s.use(fileUse{word: anyWord(a.raw), kind: tool.Read, via: c.args[0].text(), loose: true})
			}
			continue
		}
		s.use(fileUse{word: a, kind: tool.Read, via: c.args[0].text(), loose: true, deep: true})
		if a.static() { // host:path, type=bind,src=path
			for piece := range strings.FieldsFuncSeq(t, func(r rune) bool { return r == ':' || r == ',' || r == '=' }) {
				s.use(fileUse{word: literalWord(piece), kind: tool.Read, via: c.args[0].text(), loose: true, deep: true})
			}
		}
	}
}

// unpacks is a program that makes files whose names stand in what it reads. Those
// that pack, too, are looked at for both.
func unpacks(s *script, c *invocation, args []word, _ *word) {
	deeply(s, c, args, nil)
	name := filepath.Base(c.args[0].text())
	for i, a := range args { // unzip -d x, patch -d x, cpio -D x
		if t := a.text(); (t == "-d" || t == "-D") && i+1 < len(args) {
			s.chdir(args[i+1])
		}
	}
	if name == "cpio" || name == "bsdcpio" || name == "pax" { // names from the input
		s.use(fileUse{word: anyWord("names"), kind: tool.Read, via: name, loose: true})
	}
	lists := name == "unzip" && slices.ContainsFunc(args, func(a word) bool { t := a.text(); return t == "-l" || t == "-t" || t == "-v" || t == "-Z" || t == "-p" })
	if name != "zip" && !lists {
		s.unpacked(name)
	}
}

// unpacked notes that files are made whose names are not known.
func (s *script) unpacked(via string) {
	s.use(fileUse{word: word{raw: ".", vals: []value{{pat: []rune{anyText}}}}, kind: tool.Write, via: via, loose: true, deep: true})
}

// mapfile may call a text for the lines that it reads.
func mapfile(s *script, c *invocation, args []word, _ *word) {
	s.unprove("it changes variables")
	for i, a := range args {
		switch t := a.text(); {
		case t == "-C" && i+1 < len(args):
			s.sub(args[i+1], "mapfile")
		case strings.HasPrefix(t, "-C"):
			s.sub(literalWord(t[2:]), "mapfile")
		}
	}
}

// fd looks for files, and runs programs on them.
func fd(s *script, c *invocation, args []word, _ *word) {
	loosely(s, c, args, nil)
	for i, a := range args {
		t := a.text()
		if !a.static() {
			s.blur("what fd does is made at run time")
		}
		if t == "-x" || t == "-X" || prefixOf(t, "--exec", "--exec-batch") {
			c.risk(t)
			if i+1 < len(args) {
				s.run(append(slices.Clone(args[i+1:]), anyWord("{}")), "fd "+t, nil)
			}
			return
		}
	}
}

func loosely(s *script, c *invocation, args []word, _ *word) {
	c.loose = true
	s.arguments(c, args)
}

func exports(s *script, c *invocation, args []word, _ *word) {
	for _, a := range args {
		if n, v, ok := strings.Cut(a.text(), "="); ok {
			s.setVar(n, word{raw: v, vals: a.vals})
			if a.static() {
				s.setVar(n, literalWord(v))
			}
		}
	}
	s.unprove("it changes variables")
}

// readsOtherwise are options of a shell after which the same words mean other files or
// variables.
var readsOtherwise = []string{"nocaseglob", "cdable_vars", "keyword", "-k"}

func set(s *script, c *invocation, args []word, _ *word) {
	c.quiet = true
	for _, a := range args {
		if t := a.text(); !a.static() || slices.Contains(readsOtherwise, t) || strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--") && strings.Contains(t, "k") {
			s.blur("it changes how the shell reads")
		}
		switch a.text() {
		case "-e", "-u", "-x", "-o", "pipefail", "-eu", "-ex", "-euo", "-eux", "-euxo", "errexit", "nounset", "xtrace", "+e", "+x", "-v", "-f":
		default:
			c.quiet = false
			s.unprove("it changes how the shell reads")
		}
	}
}

func printf(s *script, c *invocation, args []word, _ *word) {
	c.quiet = len(args) == 0 || !strings.HasPrefix(args[0].text(), "-") || args[0].text() == "--"
	for _, a := range args {
		c.quiet = c.quiet && a.static()
	}
}

func date(s *script, c *invocation, args []word, _ *word) {
	c.quiet = len(args) == 0 || len(args) == 1 && args[0].static() && (strings.HasPrefix(args[0].text(), "+") || args[0].text() == "-u") ||
		len(args) == 2 && args[0].text() == "-u" && args[1].static() && strings.HasPrefix(args[1].text(), "+")
	s.arguments(c, args)
}

// writer is a program that writes the files of its arguments. The letters are those
// of options with a value.
func writer(letters string) program {
	return func(s *script, c *invocation, args []word, _ *word) {
		name := filepath.Base(c.args[0].text())
		deep := name == "rm"
		options := true
		if name == "mktemp" {
			for i, a := range args {
				if t := a.text(); t == "-p" && i+1 < len(args) {
					s.use(fileUse{word: args[i+1], kind: tool.Write, via: name})
				} else if strings.HasPrefix(t, "-p") || prefixOf(t, "--tmpdir") {
					s.use(fileUse{word: a, kind: tool.Write, via: name, loose: true})
				}
			}
		}
		for i := 0; i < len(args); i++ {
			t := args[i].text()
			if options && args[i].static() && t == "--" {
				options = false
				continue
			}
			if options && args[i].static() && strings.HasPrefix(t, "-") && len(t) > 1 {
				if !strings.HasPrefix(t, "--") && letters != "" && strings.IndexAny(t[1:], letters) == len(t)-2 && i+1 < len(args) {
					i++
					s.use(fileUse{word: args[i], kind: tool.Read, via: name, loose: true})
				} else if strings.Contains(t, "=") {
					s.use(fileUse{word: args[i], kind: tool.Read, via: name, loose: true})
				}
				continue
			}
			s.use(fileUse{word: args[i], kind: tool.Write, via: name, deep: deep})
		}
		c.edits = name == "tee" || name == "touch" || name == "mkdir" || name == "rmdir"
	}
}

// firstNot is a program that changes files, after a word that is none.
func firstNot(s *script, c *invocation, args []word, _ *word) {
	name := filepath.Base(c.args[0].text())
	first := true
	for _, a := range args {
		t := a.text()
		if a.static() && strings.HasPrefix(t, "-") && (strings.HasPrefix(t, "--") || strings.ContainsAny(t, "Rfvch")) {
			if strings.Contains(t, "=") {
				s.use(fileUse{word: a, kind: tool.Read, via: name, loose: true})
				first = false
			}
			continue
		}
		if first {
			first = false
			continue
		}
		s.use(fileUse{word: a, kind: tool.Write, via: name, deep: true})
	}
}

// copies is a program whose last argument is where it writes.
func copies(s *script, c *invocation, args []word, _ *word) {
	name := filepath.Base(c.args[0].text())
	var files []word
	target, deep := false, name != "cp" && name != "install" && name != "scp"
	c.edits = name == "cp" || name == "mv"
	removes := name == "rsync" && slices.ContainsFunc(args, func(a word) bool { return prefixOf(a.text(), "--remove-source-files") })
	for i := 0; i < len(args); i++ {
		a, t := args[i], args[i].text()
		if a.static() && strings.HasPrefix(t, "-") && len(t) > 1 {
			if t != "--" && strings.Trim(t, "-abdfilnPprRuvxT") != "" {
				c.edits = false
			}
			deep = deep || strings.ContainsAny(t, "rRa")
			if prefixOf(t, "--target-directory") || strings.HasPrefix(t, "-t") && name != "rsync" {
				target = true
				to := strings.TrimPrefix(t, "-t")
				_, value, found := strings.Cut(t, "=")
				switch {
				case found:
					s.use(fileUse{word: literalWord(value), kind: tool.Write, via: name, deep: deep})
				case t != "-t" && !strings.HasPrefix(t, "--"):
					s.use(fileUse{word: literalWord(to), kind: tool.Write, via: name, deep: deep})
				case i+1 < len(args):
					i++
					s.use(fileUse{word: args[i], kind: tool.Write, via: name, deep: deep})
				}
				continue
			}
			if name == "rsync" && !strings.HasPrefix(t, "--") && strings.HasSuffix(t, "e") || strings.HasPrefix(t, "-e") || prefixOf(t, "--rsh", "--rsync-path", "--strip-program") || strings.HasPrefix(t, "-S") || strings.HasPrefix(t, "-o") {
				s.unprove(name + " runs another program")
				c.loose = true
				if strings.HasPrefix(t, "-S") && name != "install" || strings.HasPrefix(t, "-F") {
					s.blurOnly("what " + name + " runs is not known")
				}
				if i+1 < len(args) {
					s.sub(args[i+1], name)
				}
				if _, v, ok := strings.Cut(t, "="); ok {
					s.sub(literalWord(v), name)
				}
			}
			s.use(fileUse{word: a, kind: tool.Write, via: name, loose: true})
			continue
		}
		files = append(files, a)
		if strings.Contains(t, "bin/") || !a.static() {
			c.loose = true // a program may get another name
		}
	}
	for i, a := range files {
		last := i == len(files)-1 && !target
		kind := tool.Read
		if last && (len(files) > 1 || name == "ln") || name == "mv" || removes {
			kind = tool.Write
		}
		// What is below the target is changed if directories may be put there.
		below := deep && !(name == "mv" && last && i > 0 && !slices.ContainsFunc(files[:i], func(f word) bool {
			return !f.static() || slices.ContainsFunc(s.absolute(f.text(), false), func(p string) bool { return !isFile(p) })
		}))
		s.use(fileUse{word: a, kind: kind, via: name, deep: below, loose: strings.Contains(a.text(), ":") && (name == "scp" || name == "rsync")})
		if last && a.static() {
			for _, f := range files[:i] {
				if f.static() {
					s.use(fileUse{word: literalWord(a.text() + "/" + filepath.Base(f.text())), kind: tool.Write, via: name, deep: below, loose: strings.Contains(a.text(), ":") && (name == "scp" || name == "rsync")})
				}
			}
		}
	}
	if name == "ln" {
		c.edits = false
		s.unprove("it makes a link")
		if len(files) > 1 {
			// What is written through the link is written to its target.
			for _, f := range files[:len(files)-1] {
				s.use(fileUse{word: f, kind: tool.Write, via: name, loose: true, deep: true})
			}
		}
	}
}

func dd(s *script, c *invocation, args []word, _ *word) {
	for _, a := range args {
		n, v, found := strings.Cut(a.text(), "=")
		switch {
		case !a.static() || !found:
			s.use(fileUse{word: a, kind: tool.Write, via: "dd", loose: true})
		case n == "if":
			s.use(fileUse{word: literalWord(v), kind: tool.Read, via: "dd"})
		case n == "of":
			s.use(fileUse{word: literalWord(v), kind: tool.Write, via: "dd"})
		}
	}
}

func sortFiles(s *script, c *invocation, args []word, _ *word) {
	c.quiet = options(args, "bdfghiMnrRuVzkt0123456789,.")
	for i, a := range args {
		t := a.text()
		c.quiet = c.quiet && a.static()
		switch {
		case prefixOf(t, "--compress-program", "--files0-from", "--random-source", "--temporary-directory"):
			c.quiet = false
			c.risk(t)
			_, v, found := strings.Cut(t, "=")
			if !found && i+1 < len(args) {
				v = args[i+1].text()
			}
			s.sub(literalWord(v), "sort")
			s.use(fileUse{word: literalWord(v), kind: tool.Read, via: "sort", loose: true})
			if prefixOf(t, "--files0-from") {
				s.use(fileUse{word: anyWord(a.raw), kind: tool.Read, via: "sort"})
			}
		case prefixOf(t, "--output") || strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--") && strings.Contains(t, "o"):
			c.quiet = false
			c.risk(t)
			s.use(fileUse{word: a, kind: tool.Write, via: "sort", loose: true})
			if i+1 < len(args) {
				s.use(fileUse{word: args[i+1], kind: tool.Write, via: "sort"})
			}
		case strings.HasPrefix(t, "-S") || strings.HasPrefix(t, "-T"):
			c.quiet = false
			c.risk(t)
		case !strings.HasPrefix(t, "-"):
			s.use(fileUse{word: a, kind: tool.Read, via: "sort"})
		}
	}
}

// find runs programs on what it finds, and writes.
func find(s *script, c *invocation, args []word, _ *word) {
	c.quiet = true
	var starts []word
	i := 0
	for ; i < len(args); i++ {
		t := args[i].text()
		if args[i].static() && (t == "-H" || t == "-L" || t == "-P") {
			if c.quiet = c.quiet && t == "-P"; t == "-L" {
				c.risk(t)
			}
			continue
		}
		if args[i].static() && strings.HasPrefix(t, "-O") {
			continue
		}
		if args[i].static() && t == "-D" {
			i++
			continue
		}
		if args[i].static() && (strings.HasPrefix(t, "-") || t == "!" || t == "(") {
			break
		}
		starts = append(starts, args[i])
	}
	if slices.ContainsFunc(args, func(a word) bool { return a.text() == "-files0-from" }) {
		starts, c.quiet = append(starts, anyWord("-files0-from")), false
	}
	if len(starts) == 0 {
		starts = []word{literalWord(".")}
	}
	found := word{raw: "{}", vals: nil}
	for _, st := range starts {
		c.quiet = c.quiet && st.static()
		s.use(fileUse{word: st, kind: tool.Read, via: "find"})
		for _, v := range st.vals {
			found.vals = append(found.vals, value{pat: append(slices.Clone(v.runes()), anyDeep)})
		}
	}
	for ; i < len(args); i++ {
		t := args[i].text()
		if !args[i].static() {
			s.blur("what find does is made at run time")
			c.quiet = false
			continue
		}
		switch t {
		case "-exec", "-execdir", "-ok", "-okdir":
			c.quiet = false
			if strings.HasSuffix(t, "dir") {
				s.anyDir = true
			}
			var cmd []word
			for i++; i < len(args) && args[i].text() != ";" && !(args[i].text() == "+" && len(cmd) > 0 && cmd[len(cmd)-1].raw == "{}"); i++ {
				a := args[i]
				if a.static() && a.text() == "{}" {
					a = found
				} else if a.static() && strings.Contains(a.text(), "{}") && len(cmd) > 0 {
					if slices.Contains(shells, filepath.Base(cmd[0].text())) {
						s.blur("names of files become a part of what a shell reads")
						s.sub(literalWord(strings.ReplaceAll(a.text(), "{}", "x")), "find")
					} else {
						a = anyWord(a.raw)
					}
				}
				cmd = append(cmd, a)
			}
			if len(cmd) > 0 {
				s.run(cmd, "find "+t, nil)
			}
		case "-delete":
			c.quiet = false
			c.risk(t)
			for _, st := range starts {
				s.use(fileUse{word: st, kind: tool.Write, via: "find", deep: true})
			}
		case "-fprint", "-fprint0", "-fls", "-fprintf":
			c.quiet = false
			c.risk(t)
			if i++; i < len(args) {
				s.use(fileUse{word: args[i], kind: tool.Write, via: "find"})
			}
		case "-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex", "-type", "-maxdepth", "-mindepth", "-size", "-mtime", "-mmin", "-ctime", "-atime", "-amin", "-cmin", "-perm", "-user", "-group", "-printf", "-regextype", "-links", "-xtype":
			i++
		case "-newer", "-samefile":
			if i++; i < len(args) {
				s.use(fileUse{word: args[i], kind: tool.Read, via: "find"})
			}
		case "-print", "-print0", "-ls", "-o", "-a", "-not", "!", "(", ")", "-empty", "-prune", "-depth", "-xdev", "-mount", "-readable", "-writable", "-executable", "-or", "-and", "-true", "-false", "-quit", ",", "-daystart":
		default:
			c.quiet, c.loose = false, true
			c.risk(t)
		}
	}
}

func sed(s *script, c *invocation, args []word, _ *word) {
	c.quiet = true
	kind := tool.Read
	for _, a := range args {
		if t := a.text(); strings.HasPrefix(t, "-i") || prefixOf(t, "--in-place") || strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--") && strings.Contains(t, "i") {
			kind, c.quiet = tool.Write, false
			c.risk(t)
		}
	}
	script, options := true, true
	for i := 0; i < len(args); i++ {
		a, t := args[i], args[i].text()
		c.quiet = c.quiet && a.static()
		expression := ""
		switch {
		case options && t == "--":
			options = false
			continue
		case options && a.static() && (t == "-e" || t == "--expression") && i+1 < len(args):
			i++
			script, expression = false, args[i].text()
			if !args[i].static() {
				s.blurOnly("what sed does is made at run time")
				c.quiet = false
			}
		case options && a.static() && prefixOf(t, "--expression"):
			_, expression, _ = strings.Cut(t, "=")
			script = false
		case options && a.static() && (strings.HasPrefix(t, "-f") || prefixOf(t, "--file")):
			script, c.quiet = false, false
			c.risk(t)
			s.blurOnly("sed reads what to do")
			s.use(fileUse{word: a, kind: tool.Read, via: "sed", loose: true})
			continue
		case options && a.static() && strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--") && strings.Contains(t, "f"): // -nf x
			script, c.quiet = false, false
			c.risk(t)
			s.blurOnly("sed reads what to do")
			s.use(fileUse{word: a, kind: tool.Read, via: "sed", loose: true})
			continue
		case options && a.static() && strings.HasPrefix(t, "-") && len(t) > 1:
			c.quiet = c.quiet && strings.Trim(t[1:], "nErsuz") == ""
			if strings.Contains(t, "e") && !strings.HasPrefix(t, "--") {
				c.quiet = false
				c.risk(t)
				s.blurOnly("what sed does is not understood")
			}
			continue
		case script:
			script, expression = false, t
			if !a.static() {
				s.blurOnly("what sed does is made at run time")
				c.quiet = false
				continue
			}
		default:
			s.use(fileUse{word: a, kind: kind, via: "sed"})
			continue
		}
		if !plainSed(expression) {
			c.quiet = false
			c.risk("its script")
			s.blurOnly("what sed does is not understood")
			for w := range strings.FieldsFuncSeq(expression, func(r rune) bool { return strings.ContainsRune(" ;{}\n", r) }) {
				s.use(fileUse{word: literalWord(w), kind: tool.Write, via: "sed", loose: true})
			}
		}
	}
}

// plainSed reports whether a script of sed surely neither runs nor reads nor writes
// anything.
func plainSed(script string) bool {
	for part := range strings.FieldsFuncSeq(script, func(r rune) bool { return r == ';' || r == '\n' }) {
		part = strings.TrimLeft(strings.TrimSpace(part), "0123456789,$ !")
		if strings.HasPrefix(part, "/") {
			end := strings.IndexByte(part[1:], '/')
			if end < 0 || strings.Contains(part[1:end+1], `\`) || !closed(part[1:end+1]) {
				return false
			}
			part = strings.TrimLeft(part[end+2:], " !")
		}
		switch {
		case part == "", part == "p", part == "d", part == "q", part == "=", part == "D", part == "P", part == "N", part == "n", part == "G", part == "g", part == "h", part == "H", part == "x":
			continue
		case len(part) > 3 && (part[0] == 's' || part[0] == 'y'):
			fields := strings.Split(part[2:], part[1:2])
			if len(fields) != 3 || strings.Contains("abcdefghijklmnopqrstuvwxyz\\ \n", part[1:2]) || strings.Trim(fields[2], "gpiI0123456789 ") != "" ||
				strings.HasSuffix(fields[0], `\`) || strings.HasSuffix(fields[1], `\`) || !closed(fields[0]) {
				return false
			}
		default:
			return false
		}
	}
	return true
}

// closed reports whether the brackets of a regular expression end in it. In one that
// does not, what looks like its end is one more character.
func closed(expr string) bool {
	for {
		_, rest, ok := strings.Cut(expr, "[")
		if !ok {
			return true
		}
		rest = strings.TrimPrefix(rest, "^")
		if rest == "" {
			return false
		}
		if strings.Contains(rest, "[") && strings.ContainsAny(rest, ":.=") {
			return strings.Count(expr, "[:") == strings.Count(expr, ":]") && !strings.Contains(expr, "[.") && !strings.Contains(expr, "[=") && strings.Contains(rest, ":]]")
		}
		// A ] at the beginning is one of the characters.
		end := strings.IndexByte(rest[1:], ']')
		if rest[0] != ']' && end < 0 || rest[0] == ']' && end < 0 {
			return false
		}
		expr = rest[1+end+1:]
	}
}

func awk(s *script, c *invocation, args []word, _ *word) {
	program := true
	for i := 0; i < len(args); i++ {
		a, t := args[i], args[i].text()
		switch {
		case a.static() && (t == "-F" || t == "-v") && program:
			i++
		case a.static() && strings.HasPrefix(t, "-") && len(t) > 1 && program:
			if !strings.HasPrefix(t, "-F") && !strings.HasPrefix(t, "-v") && t != "-n" && t != "-r" && t != "-c" && t != "-P" {
				c.risk(t)
				s.blurOnly("awk reads what to do")
				s.arguments(c, args[i:])
				return
			}
		case program:
			program = false
			code := strings.ReplaceAll(t, "||", "")
			if !a.static() || strings.Contains(code, "system") || strings.Contains(code, "|") || strings.Contains(code, "getline") || strings.Contains(code, "@") || strings.Contains(code, ">") && strings.Contains(code, "print") ||
				strings.Contains(code, "ARGV") || strings.Contains(code, "close") {
				c.risk("its program")
				s.blurOnly("what awk does is not understood")
				s.arguments(c, []word{a})
				c.loose = true
			}
		default:
			s.use(fileUse{word: a, kind: tool.Read, via: "awk"})
		}
	}
}

func man(s *script, c *invocation, args []word, _ *word) {
	for _, a := range args {
		t := a.text()
		if strings.HasPrefix(t, "-") {
			c.loose = true
			c.risk(t)
			if _, v, ok := strings.Cut(t, "="); ok {
				s.sub(literalWord(v), "man")
			}
			s.arguments(c, []word{a})
		} else if !a.static() || strings.Contains(t, "/") { // a file
			s.use(fileUse{word: a, kind: tool.Read, via: "man"})
		}
	}
	if len(c.danger) > 0 {
		s.arguments(c, args)
	}
}

func tar(s *script, c *invocation, args []word, _ *word) {
	extracts := false
	for i, a := range args {
		t := a.text()
		short := i == 0 && !strings.HasPrefix(t, "-") || strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--")
		extracts = extracts || short && strings.Contains(t, "x") || prefixOf(t, "--extract", "--get")
		if prefixOf(t, "--to-command", "--checkpoint-action", "--use-compress-program", "--rsh-command", "--info-script", "--new-volume-script", "--rmt-command") || short && strings.ContainsAny(t, "IF") || !a.static() {
			c.loose = true
			c.risk(t)
			if _, v, ok := strings.Cut(t, "="); ok {
				s.sub(literalWord(strings.TrimPrefix(v, "exec=")), "tar")
			} else {
				for _, next := range args[i+1 : min(i+3, len(args))] {
					s.sub(next, "tar")
				}
			}
		}
		if prefixOf(t, "--directory") || short && strings.HasPrefix(t, "-C") { // where files are looked for, and made
			_, dir, ok := strings.Cut(t, "=")
			switch {
			case ok:
				s.chdir(literalWord(dir))
			case len(t) > 2 && !strings.HasPrefix(t, "--"):
				s.chdir(literalWord(t[2:]))
			case i+1 < len(args):
				s.chdir(args[i+1])
			}
			c.risk(t)
		}
		if short && strings.Contains(t, "P") || prefixOf(t, "--absolute-names") {
			c.risk(t)
		}
		if short && strings.Contains(t, "T") || prefixOf(t, "--files-from") {
			s.use(fileUse{word: anyWord(a.raw), kind: tool.Read, via: "tar", loose: true})
		}
		s.use(fileUse{word: a, kind: tool.Read, via: "tar", loose: true, deep: true})
		if creates := prefixOf(args[0].text(), "--create") || strings.Contains(args[0].text(), "c") && !strings.HasPrefix(args[0].text(), "--"); !creates || i < 2 || strings.HasPrefix(t, "-") || strings.HasPrefix(args[i-1].text(), "-") {
			s.use(fileUse{word: a, kind: tool.Write, via: "tar", loose: true})
			if creates && i > 0 && strings.HasSuffix(args[i-1].text(), "f") && !s.ours(t) {
				c.risk(t) // an archive elsewhere
			}
		}
	}
	if extracts {
		s.unpacked("tar")
	}
}

// curlFiles are the letters of curl's options that are followed by a file it writes or
// sends, and wgetFiles those of wget's.
const curlFiles, wgetFiles = "oODcTKE", "OPoaiK"

func network(s *script, c *invocation, args []word, input *word) {
	s.fetches = true
	name := filepath.Base(c.args[0].text())
	letters := curlFiles
	if name == "wget" {
		letters = wgetFiles
	}
	if name == "wget" || slices.ContainsFunc(args, func(a word) bool {
		return strings.HasPrefix(a.text(), "-") && strings.Contains(a.text(), "O") || prefixOf(a.text(), "--remote-name")
	}) {
		for _, f := range remoteNames(args) {
			s.use(fileUse{word: f, kind: tool.Write, via: "curl", loose: true})
		}
	}
	for i, a := range args {
		t := a.text()
		next := word{}
		if i+1 < len(args) {
			next = args[i+1]
		}
		short := strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--")
		at := -1
		if short {
			at = strings.IndexAny(t, letters)
		}
		s.use(fileUse{word: a, kind: tool.Write, via: "curl", loose: true})
		switch {
		case at > 0:
			value := next
			if at+1 < len(t) {
				value = literalWord(t[at+1:])
			}
			if t[at] == 'O' && name != "wget" {
				c.risk(t)
				break
			}
			if v := value.text(); v != "/dev/null" && v != "-" {
				c.risk(t)
			}
			if letter := t[at]; letter == 'K' || letter == 'i' {
				s.steeredBy(value)
			} else if len(value.vals) > 0 {
				s.use(fileUse{word: value, kind: tool.Write, via: "curl"})
			}
		case prefixOf(t, "--config", "--input-file"):
			c.risk(t)
			s.steeredBy(next)
		case prefixOf(t, "--output", "--remote-name", "--remote-name-all", "--output-dir", "--dump-header", "--cookie-jar", "--trace", "--trace-ascii", "--stderr", "--upload-file", "--etag-save", "--hsts", "--alt-svc", "--use-askpass",
			"--post-file", "--body-file", "--output-document", "--output-file", "--append-output", "--directory-prefix", "--save-cookies", "--warc-file", "--execute", "--engine", "--libcurl", "--unix-socket"):
			if v := next.text(); v != "/dev/null" {
				c.risk(t)
			}
			if prefixOf(t, "--output", "--output-document") && len(next.vals) > 0 && !strings.Contains(t, "=") {
				s.use(fileUse{word: next, kind: tool.Write, via: "curl"})
			}
		case !short && (strings.HasPrefix(t, "@") || strings.Contains(t, "=@") || strings.Contains(t, "=<")), short && strings.Contains(t, "@") && strings.ContainsAny(t[:strings.IndexByte(t, '@')], "dF"):
			c.risk(t) // it sends a file
		case len(t) > 5 && strings.EqualFold(t[:5], "file:"):
			c.risk(t)
			if strings.ContainsAny(t, "[]{}") { // which are patterns to curl
				s.use(fileUse{word: anyWord(t), kind: tool.Read, via: "curl", loose: true})
			}
		}
	}
}

// remoteNames returns the files that are named as at the end of the addresses.
func remoteNames(args []word) []word {
	var files []word
	for _, a := range args {
		t := a.text()
		short := strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--")
		if !a.static() || short && strings.ContainsAny(t, "JrmiKeN") || prefixOf(t, "--remote-header-name", "--content-disposition", "--trust-server-names", "--recursive", "--mirror", "--input-file", "--config", "--page-requisites", "--execute", "--default-page") {
			// The server says how they are called.
			return []word{{raw: ".", vals: []value{{pat: []rune{anyText}}}}}
		}
		if strings.HasPrefix(t, "-") {
			continue
		}
		address, _, _ := strings.Cut(t, "?")
		if name := path.Base(address); name != "." && name != "/" {
			files = append(files, literalWord(name), literalWord(path.Base(t)))
		}
	}
	return append(files, literalWord("index.html"))
}

// steeredBy notes that a program is told by a file which other files and hosts to use.
func (s *script) steeredBy(w word) {
	s.anyHost = true
	s.use(fileUse{word: anyWord(w.raw), kind: tool.Write, via: "curl", loose: true})
}

func ssh(s *script, c *invocation, args []word, input *word) {
	s.unprove("it runs something on another machine")
	s.fetches = true
	s.arguments(c, args)
	for i := 0; i < len(args); i++ {
		t := args[i].text()
		if args[i].static() && strings.HasPrefix(t, "-") {
			if strings.HasPrefix(t, "-o") {
				o := t[2:]
				if t == "-o" && i+1 < len(args) {
					o = args[i+1].text()
				}
				if at := strings.IndexAny(o, "= \t"); at >= 0 {
					s.sub(literalWord(strings.TrimLeft(o[at:], "= \t")), "ssh")
				}
			}
			if strings.HasPrefix(t, "-F") {
				s.blurOnly("ssh is told what to run by a file")
			}
			if len(t) == 2 && strings.Contains("BbcDEeFIiJLlmOopQRSWw", t[1:]) {
				i++
			}
			continue
		}
		if i+1 < len(args) {
			s.joined(args[i+1:], "ssh")
		} else {
			s.shell(c, nil, input)
		}
		return
	}
}

func parallel(s *script, c *invocation, args []word, input *word) {
	s.unprove("parallel makes commands of texts")
	c.loose = true
	s.arguments(c, args)
	s.blur("parallel makes commands of texts")
	var cmd []word
	for _, a := range args {
		if strings.HasPrefix(a.text(), ":::") || strings.HasPrefix(a.text(), "::::") {
			break
		}
		if !strings.HasPrefix(a.text(), "-") || len(cmd) > 0 {
			cmd = append(cmd, a)
		}
	}
	if len(cmd) > 0 {
		s.joined(cmd, "parallel")
	}
	if input != nil {
		s.sub(*input, "parallel")
	}
}

func flock(s *script, c *invocation, args []word, input *word) {
	s.unprove("flock runs another program")
	lock := false
	for i := 0; i < len(args); i++ {
		t := args[i].text()
		switch {
		case t == "-c" || t == "--command":
			if i+1 < len(args) {
				s.sub(args[i+1], "flock -c")
			}
			return
		case t == "-w" || t == "-E" || t == "--timeout" || t == "--wait":
			i++
		case strings.HasPrefix(t, "-"):
		case !lock:
			lock = true
			s.use(fileUse{word: args[i], kind: tool.Write, via: "flock"})
		default:
			s.run(args[i:], "flock", input)
			return
		}
	}
}

func scriptProgram(s *script, c *invocation, args []word, _ *word) {
	s.unprove("script runs another program")
	c.loose = true
	s.arguments(c, args)
	for i, a := range args {
		t := a.text()
		if _, v, ok := strings.Cut(t, "="); ok && prefixOf(t, "--command") {
			s.sub(literalWord(v), "script -c")
		} else if (strings.HasPrefix(t, "-") && strings.HasSuffix(t, "c") || prefixOf(t, "--command")) && i+1 < len(args) {
			s.sub(args[i+1], "script -c")
		}
	}
}

// gitCommands are the commands of git that no configuration can replace.
var gitCommands = strings.Fields(`add am annotate apply archive bisect blame branch bundle cat-file check-ignore checkout checkout-index cherry cherry-pick clean clone commit commit-tree config count-objects describe diff
diff-files diff-index diff-tree difftool fetch fetch-pack filter-branch for-each-ref format-patch fsck gc grep gui hash-object help index-pack init instaweb log ls-files ls-remote ls-tree maintenance merge merge-base merge-file
merge-tree mergetool mktag mktree mv name-rev notes pack-objects pack-refs prune pull push range-diff read-tree rebase reflog remote repack replace request-pull rerere reset restore rev-list rev-parse revert rm send-email send-pack
shortlog show show-branch show-ref sparse-checkout stash status stripspace submodule switch symbolic-ref tag update-index update-ref update-server-info var verify-commit verify-pack verify-tag version whatchanged worktree write-tree lfs`)

// gitLocal are commands of git that talk to no other machine.
var gitLocal = []string{"add", "apply", "am", "blame", "branch", "cat-file", "check-ignore", "checkout", "cherry-pick", "clean", "commit", "describe", "diff", "format-patch", "grep", "hash-object", "log", "ls-files", "ls-tree", "merge", "mv", "notes", "rebase", "reflog", "reset", "restore", "rev-list", "rev-parse", "revert", "rm", "shortlog", "show", "stash", "status", "switch", "tag", "worktree"}

// gitLooks are the commands of git that change nothing, if no option makes them.
var gitLooks = []string{"annotate", "blame", "cat-file", "check-ignore", "cherry", "count-objects", "describe", "diff", "diff-index", "diff-tree", "for-each-ref", "log", "ls-files", "ls-tree", "merge-base", "name-rev", "rev-list", "rev-parse", "shortlog", "show", "show-ref", "status", "version", "whatchanged"}

func git(s *script, c *invocation, args []word, _ *word) {
	i := 0
	for ; i < len(args); i++ {
		t := args[i].text()
		if !args[i].static() {
			s.blur("what git does is made at run time")
			break
		}
		if !strings.HasPrefix(t, "-") {
			break
		}
		switch {
		case t == "-C":
			if i++; i < len(args) {
				s.chdir(args[i])
				c.risk(t)
			}
		case t == "-c" || strings.HasPrefix(t, "-c"), t == "--config-env", strings.HasPrefix(t, "--config-env="):
			v := strings.TrimPrefix(t, "-c")
			if t == "-c" || t == "--config-env" {
				if i++; i < len(args) {
					v = args[i].text()
				}
			}
			c.risk("-c")
			key, v, _ := strings.Cut(v, "=")
			key = strings.ToLower(key)
			s.guess(v) // whatever the key is, some program or file
			s.call(&invocation{args: []word{literalWord("git"), literalWord(key), literalWord(v)}, via: "git -c", quoted: true})
			if i < len(args) && !args[i].static() || strings.HasPrefix(t, "--config-env") || strings.HasPrefix(key, "alias.") || strings.HasPrefix(key, "include") {
				s.blur("git is told what its commands mean")
			}
			if strings.HasPrefix(v, "!") || strings.Contains(key, "command") || strings.Contains(key, "pager") || strings.Contains(key, "editor") || strings.Contains(key, "fsmonitor") || strings.Contains(key, "program") || strings.Contains(key, "external") ||
				strings.Contains(key, "textconv") || strings.Contains(key, "helper") || strings.Contains(key, "cmd") || strings.Contains(key, "path") || strings.Contains(key, "proxy") || strings.Contains(key, "askpass") || strings.HasPrefix(key, "filter.") || strings.HasPrefix(key, "alias.") {
				s.sub(literalWord(strings.TrimPrefix(v, "!")), "git -c")
				s.unprove("git is told what to run")
			}
		case t == "--git-dir", t == "--work-tree", t == "--namespace", t == "--exec-path", t == "--super-prefix":
			if i++; i < len(args) && (t == "--git-dir" || t == "--work-tree") {
				s.use(fileUse{word: args[i], kind: tool.Write, via: "git", loose: true, deep: true})
			}
			c.risk(t)
		case strings.HasPrefix(t, "--exec-path="), strings.HasPrefix(t, "--git-dir="), strings.HasPrefix(t, "--work-tree="):
			c.risk(t)
			_, dir, _ := strings.Cut(t, "=")
			s.use(fileUse{word: literalWord(dir), kind: tool.Write, via: "git", loose: true, deep: true})
			if strings.HasPrefix(t, "--exec-path=") {
				s.blur("git is told where its commands are")
			}
		case t == "--no-pager", t == "--version", t == "--no-optional-locks", t == "--literal-pathspecs":
		default:
			c.risk(t)
		}
	}
	if i >= len(args) {
		return
	}
	if i > 0 {
		s.call(&invocation{args: append([]word{c.args[0]}, args[i:]...), via: "git", quoted: true})
	}
	sub, rest := args[i].text(), args[i+1:]
	if !slices.Contains(gitCommands, sub) {
		s.blur("git may know " + sub + " by another name")
	}
	for j, a := range rest {
		t := a.text()
		if !a.static() || prefixOf(t, "--upload-pack", "--receive-pack", "--exec", "--ext-diff", "--textconv", "--output", "--open-files-in-pager", "--extcmd", "--tree-filter", "--index-filter", "--msg-filter", "--env-filter", "--template", "--config", "--tool", "--gpg-sign", "--edit-description", "--sequence-editor", "--smtp-server", "--to-cmd", "--cc-cmd", "--strategy", "--file", "--from-file", "--no-index", "--output-directory", "--prefix", "--filters", "--contents") ||
			strings.HasPrefix(t, "ext::") || strings.HasPrefix(t, "fd::") || strings.Contains(t, "::") {
			c.risk(a.text())
			s.useless(c, a, rest, j)
		}
		if letters := gitRuns[sub]; letters != "" && strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--") {
			if at := strings.IndexAny(t, letters); at > 0 {
				c.risk(t)
				s.useless(c, a, rest, j)
				if at+1 < len(t) {
					s.sub(literalWord(t[at+1:]), "git")
				}
			}
		}
	}
	s.gitFiles(c, sub, rest)
	switch {
	case sub == "bisect" && len(rest) > 1 && rest[0].text() == "run":
		c.risk("run")
		s.run(rest[1:], "git bisect run", nil)
	case sub == "submodule" && len(rest) > 1 && slices.ContainsFunc(rest, func(a word) bool { return a.text() == "foreach" }):
		c.risk("foreach")
		k := slices.IndexFunc(rest, func(a word) bool { return a.text() == "foreach" })
		for k++; k < len(rest) && strings.HasPrefix(rest[k].text(), "-"); k++ {
		}
		s.joined(rest[k:], "git submodule foreach")
	case sub == "filter-branch", sub == "difftool", sub == "mergetool", sub == "instaweb", sub == "config":
		c.loose = true
	}
	{
		for k, a := range rest {
			if k > 0 && (rest[k-1].text() == "--message" || sub == "commit" && strings.HasPrefix(rest[k-1].text(), "-") && !strings.HasPrefix(rest[k-1].text(), "--") && strings.HasSuffix(rest[k-1].text(), "m") || rest[k-1].text() == "-m") {
				continue
			}
			kind := tool.Write
			if slices.Contains(gitLooks, sub) {
				kind = tool.Read
			}
			if sub == "grep" {
				kind = tool.Read
			}
			s.use(fileUse{word: a, kind: kind, via: "git", loose: true, deep: sub == "rm" || sub == "mv" || sub == "clean" || sub == "checkout" || sub == "restore"})
			if prefixOf(a.text(), "--output", "--output-directory") {
				s.use(fileUse{word: a, kind: tool.Write, via: "git", loose: true})
				if k+1 < len(rest) {
					s.use(fileUse{word: rest[k+1], kind: tool.Write, via: "git", loose: true})
				}
			}
		}
	}
}

// gitRuns are the letters of options of git's commands whose value is run, or where
// they write to.
var gitRuns = map[string]string{"grep": "O", "rebase": "x", "difftool": "x", "clone": "uc", "ls-remote": "u", "fetch": "u", "archive": "o", "format-patch": "o", "merge": "s", "pull": "s"}

// gitFiles notes what commands of git do to files that no word of theirs names, and
// to those of its configuration.
func (s *script) gitFiles(c *invocation, sub string, rest []word) {
	var plain []word
	has := func(options ...string) bool {
		return slices.ContainsFunc(rest, func(a word) bool { return slices.Contains(options, a.text()) || prefixOf(a.text(), options...) })
	}
	for _, a := range rest {
		if !strings.HasPrefix(a.text(), "-") {
			plain = append(plain, a)
		}
	}
	if has("--stdin", "--stdin-paths", "--batch", "--batch-check", "--batch-command", "--batch-all-objects", "--pathspec-from-file") {
		// The names of files are read.
		s.use(fileUse{word: anyWord("names"), kind: tool.Read, via: "git", loose: true})
		if !slices.Contains(gitLooks, sub) {
			s.use(fileUse{word: anyWord("names"), kind: tool.Write, via: "git", loose: true})
		}
	}
	switch sub {
	case "grep", "archive", "checkout-index":
		if len(plain) < 2 || has("--no-index", "--untracked") {
			s.use(fileUse{word: literalWord("."), kind: tool.Read, via: "git", loose: true, deep: true})
		}
	case "diff":
		for _, a := range plain { // which compares files that are not of the repository
			if t := a.text(); a.static() && (filepath.IsAbs(t) || strings.HasPrefix(t, "..") && strings.Contains(t, "/")) {
				c.risk(t)
			}
		}
		if has("--no-index") {
			for _, a := range plain {
				s.use(fileUse{word: a, kind: tool.Read, via: "git", loose: true, deep: true})
			}
		}
	case "apply", "am":
		s.unpacked("git " + sub)
	case "clean":
		if len(plain) == 0 {
			s.use(fileUse{word: literalWord("."), kind: tool.Write, via: "git", loose: true, deep: true})
		}
	case "send-pack":
		s.call(&invocation{args: append([]word{c.args[0], literalWord("push")}, rest...), via: "git", quoted: true})
	case "clone", "init", "worktree", "bundle", "submodule":
		for _, a := range plain {
			if t := a.text(); !a.static() || filepath.IsAbs(t) || strings.HasPrefix(t, "..") {
				c.risk(t)
			}
		}
		if sub == "clone" {
			s.unpacked("git clone")
		}
	case "hook", "maintenance":
		c.risk(sub)
	case "config":
		verb := ""
		if len(plain) > 0 {
			verb = plain[0].text()
		}
		looks := len(plain) < 2 && !has("--unset", "--unset-all", "--add", "--replace-all", "--rename-section", "--remove-section", "-e", "--edit") && verb != "edit" ||
			has("--get", "--get-all", "--get-regexp", "--list", "-l", "--get-urlmatch") || verb == "get" || verb == "list"
		if looks {
			break
		}
		switch c.risk("config"); {
		case has("--global"):
			s.use(fileUse{word: literalWord(s.req.Home + "/.gitconfig"), kind: tool.Write, via: "git config"})
		default:
			s.use(fileUse{word: literalWord(".git/config"), kind: tool.Write, via: "git config"})
		}
	}
}

// useless notes a value of an option that git runs.
func (s *script) useless(c *invocation, a word, rest []word, at int) {
	c.loose = true
	if _, v, ok := strings.Cut(a.text(), "="); ok {
		s.sub(literalWord(v), "git")
	} else if at+1 < len(rest) {
		s.sub(rest[at+1], "git")
	}
}
