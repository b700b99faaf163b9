package shell

import (
	"path"
	"slices"
	"strings"
)

// An effect records the effect of a word of one kind: the value of the option at index
// i, or an operand at index at. The word is empty if an option has no value.
type effect func(a *argv, w Word, i, at int)

// effects maps each kind to its effect; programs.txt explains the kinds.
var effects map[kind]effect

// kinds are the kinds that programs.txt may name.
var kinds = map[kind]bool{"": true, "text": true}

func init() {
	effects = map[kind]effect{
		"read":    func(a *argv, w Word, _, _ int) { a.file(w, false) },
		"tree":    func(a *argv, w Word, _, _ int) { a.file(w, true) },
		"change":  changeEffect,
		"remove":  removeEffect,
		"write":   writeEffect,
		"place":   placeEffect,
		"dir":     dirEffect,
		"list":    listEffect,
		"code":    codeEffect,
		"run":     runEffect,
		"cmd":     cmdEffect,
		"join":    func(a *argv, w Word, _, at int) { a.rest(at, func(args []Word) { a.s.parseJoined(args, a.via) }) },
		"pkg":     packageEffect,
		"env":     func(a *argv, w Word, _, at int) {},
		"split":   splitEffect,
		"data":    dataEffect,
		"form":    dataEffect,
		"cookie":  cookieEffect,
		"out":     outEffect,
		"steer":   steerEffect,
		"sends":   sendsEffect,
		"field":   fieldEffect,
		"url":     urlEffect,
		"remote":  remoteEffect,
		"risk":    riskEffect,
		"acts":    func(a *argv, w Word, _, _ int) { a.acts() },
		"wait":    func(a *argv, w Word, _, _ int) { a.quiet = false },
		"lists":   func(a *argv, w Word, _, _ int) { a.lists = true },
		"tells":   func(a *argv, w Word, _, _ int) { a.lists, a.done = true, true },
		"deep":    func(a *argv, w Word, _, _ int) { a.deep = a.deep || w.none() || w.Text() == "recurse" || !w.Static() },
		"follows": func(a *argv, w Word, _, _ int) { a.deep, a.follow = true, true },
		"prog": func(a *argv, w Word, i, at int) {
			runEffect(a, w, i, at)
			a.s.blurOnly("what " + a.via + " runs is not known")
		},
		"follow":  func(a *argv, w Word, _, _ int) { a.follow = true },
		"inplace": inplaceEffect,
		"unpack":  func(a *argv, w Word, _, _ int) { a.acts(); a.unpacks = true },
		"target":  targetEffect,
		"script":  scriptEffect,
		"gorun":   goRunEffect,
		"media":   mediaEffect,
		"sql":     sqlEffect,
		"name":    nameEffect,
		"into":    intoEffect,
		"move":    func(a *argv, w Word, _, _ int) { a.inplace = true },
		"mode":    modeEffect,
		"newroot": newRootEffect,
		"xcmd":    xargsEffect,
		"sed":     sedEffect,
		"awk":     awkEffect,
		"awkfile": awkFileEffect,
		"jq":      jqEffect,
		"test":    func(a *argv, w Word, _, _ int) { a.testWord(w) },
		"pager":   pagerEffect,
		"man":     manEffect,
		"date":    dateEffect,
		"make":    makeEffect,
		"goal":    goalEffect,
		"ldflags": func(a *argv, w Word, i, _ int) {
			a.riskIf(!w.Static() || !plainLinkerFlags(w.Text()), i)
		},
		"cflag": func(a *argv, w Word, i, _ int) {
			name, _, hasValue := strings.Cut(w.Text(), "=")
			a.riskIf(hasValue && !slices.Contains(plainCompilerFlags, name), i)
		},
		"pyplugin": func(a *argv, w Word, i, _ int) {
			a.riskIf(!w.Static() || !strings.HasPrefix(w.Text(), "no:"), i)
		},
		"cmakevar": func(a *argv, w Word, i, _ int) {
			name, value, _ := strings.Cut(w.Text(), "=")
			name, _, _ = strings.Cut(name, ":")
			a.riskIf(!w.Static() || !plainCMakeValue(name, value), i)
		},
		"callout": func(a *argv, w Word, i, _ int) {
			if a.s.addFile(File{Word: w, Kind: Read, Via: a.via, Loose: true}); !w.Static() || strings.Contains(w.Text(), "(?C") {
				a.apply("code", w, i)
			}
		},
		"sshopt":    sshOptionEffect,
		"archive":   archiveEffect,
		"delete":    riskEffect,
		"pathspec":  pathspecEffect,
		"diffspec":  diffspecEffect,
		"cleanspec": func(a *argv, w Word, _, _ int) { a.gitFile(w, Write) },
		"noindex": func(a *argv, _ Word, i, _ int) {
			a.quiet, a.deep, a.noindex = false, true, true
			a.c.risk(i, a.c.Args[i].Text())
		},
		"gitdir":        gitDirEffect,
		"gitexec":       gitExecEffect,
		"gitconfig":     gitConfigEffect,
		"gitconfigfile": gitConfigFileEffect,
		"gitplace":      gitPlaceEffect,
		"actsread":      func(a *argv, w Word, _, _ int) { a.acts(); a.file(w, false) },
		"flockcmd":      flockEffect,
	}
	for k := range effects {
		kinds[k] = true
	}
}

// acts records that the program does more than read.
func (a *argv) acts() { a.quiet, a.reads = false, false }

// riskIf records an option that does more than the program is known for.
func (a *argv) riskIf(yes bool, i int) {
	if yes {
		a.acts()
		a.c.risk(i, a.c.Args[i].Text())
	}
}

// file records a file that is read, or written if the program works in place.
func (a *argv) file(w Word, deep bool) {
	if w.none() || w.Static() && w.Text() == "-" {
		return
	}
	if !w.Static() {
		a.quiet = false
	}
	if a.inplace {
		a.s.addFile(File{Word: w, Kind: Write, Via: a.via, Deep: deep})
		return
	}
	a.s.addFile(File{Word: w, Kind: Read, Via: a.via, Deep: deep || a.deep})
}

func changeEffect(a *argv, w Word, _, _ int) {
	a.quiet = false
	if !a.p.is(editsTrait) {
		a.reads = false
	}
	if !w.none() {
		a.s.addFile(File{Word: w, Kind: Write, Via: a.via, Deep: a.deep})
	}
}

func removeEffect(a *argv, w Word, i, at int) {
	n := len(a.s.Files)
	changeEffect(a, w, i, at)
	for _, f := range a.s.Files[n:] {
		f.Gone = true
	}
}

func writeEffect(a *argv, w Word, i, _ int) {
	a.riskIf(true, i)
	if !w.none() {
		a.s.addFile(File{Word: w, Kind: Write, Via: a.via})
	}
}

func placeEffect(a *argv, w Word, i, _ int) {
	a.acts()
	if w.none() {
		return
	}
	a.c.Places = append(a.c.Places, Place{i, w})
	a.s.addFile(File{Word: w, Kind: Write, Via: a.via, Loose: true})
	if t := w.Text(); w.Static() && strings.ContainsAny(t, ":=") { // html:DIR, NAME=FILE, DIR:DIR
		for part := range strings.FieldsFuncSeq(t, func(r rune) bool { return r == ':' || r == '=' }) {
			a.c.Places = append(a.c.Places, Place{i, Literal(part)})
		}
	}
}

func dirEffect(a *argv, w Word, i, at int) {
	placeEffect(a, w, i, at)
	if !w.none() {
		a.s.chdir(w)
	}
}

func listEffect(a *argv, w Word, i, _ int) {
	a.acts()
	a.s.addFile(File{Word: anyWord("names"), Kind: Read, Via: a.via, Loose: true})
	if w.none() {
		return // the names are read from its operands or its input
	}
	a.c.risk(i, a.c.Args[i].Text())
	a.s.addFile(File{Word: w, Kind: Read, Via: a.via})
}

func codeEffect(a *argv, w Word, i, _ int) {
	a.riskIf(true, i)
	a.s.blurOnly(a.via + " reads its instructions from a file or its input")
	if !w.none() {
		a.s.addFile(File{Word: w, Kind: Read, Via: a.via, Loose: true})
		a.s.addGuesses(w.Text())
	}
}

func runEffect(a *argv, w Word, i, _ int) {
	a.riskIf(true, i)
	a.c.Loose = true
	if w.none() {
		return
	}
	if text, ok := strings.CutPrefix(w.Text(), "exec="); ok && w.Static() { // --checkpoint-action
		w = Literal(text)
	}
	a.s.parseWord(w, a.via)
	a.s.addFile(File{Word: w, Kind: Read, Via: a.via, Loose: true})
}

// rest passes the words starting at an index to another program.
func (a *argv) rest(at int, f func(args []Word)) {
	a.done = true
	a.c.Loose = !a.p.is(clearTrait) // the word taken for the program may be the wrong one
	a.quiet = false
	f(a.c.Args[at:])
}

func cmdEffect(a *argv, w Word, _, at int) {
	for w.Static() && strings.HasPrefix(w.Text(), "-") && at+1 < len(a.c.Args) { // its own option
		at++
		w = a.c.Args[at]
	}
	if !w.Static() {
		a.s.blur("what " + a.via + " runs is only known at run time")
		a.c.Loose = true
		a.s.arguments(a.c, a.c.Args[at:])
		a.done = true
		a.acts()
		return
	}
	a.c.Clear = a.p.is(clearTrait)
	a.rest(at, func(args []Word) {
		if a.via == "fd" || a.via == "fdfind" {
			args = append(slices.Clone(args), anyWord("{}"))
		}
		a.s.run(args, a.via, a.input)
	})
}

// packageEffect handles a program that a package contains: its options are treated as
// those of the program that runs it. Programs of the system are found, too: they need a rule of
// their own.
func packageEffect(a *argv, w Word, _, at int) {
	a.acts()
	if !w.Static() {
		a.s.blur("what " + a.via + " runs is only known at run time")
		return
	}
	name := path.Base(w.Text())
	a.done = true
	a.s.addCall(&Call{Args: a.c.Args[at:], Via: a.via, Guess: true})
	if p := lookup(name); p != nil && (p.code == "project" || p.code == "runner") {
		a.s.program(a.c, p, at+1, a.input)
		a.c.Quiet, a.c.Reads, a.c.Edits = false, false, false
		return
	}
	a.c.Loose = true
	a.s.arguments(a.c, a.c.Args[at:])
	a.s.hidden(name, a.c.Args[at:])
	if IsKnown(name) {
		a.s.run(a.c.Args[at:], a.via, a.input)
	}
}

// splitEffect handles the text of env -S, which is split almost like a shell would.
func splitEffect(a *argv, w Word, i, at int) {
	a.s.act("env splits a string into arguments")
	a.acts()
	a.done = true
	if w.none() {
		return
	}
	a.s.parseJoined(append([]Word{w}, a.c.Args[at+1:]...), "env -S")
	if strings.ContainsAny(w.Text(), `$\`) {
		a.s.blur("env creates arguments at run time")
	}
}

func riskEffect(a *argv, w Word, i, _ int) {
	a.riskIf(true, i)
	if w.none() {
		return
	}
	a.c.Loose = true
	a.s.addFile(File{Word: w, Kind: Write, Via: a.via, Loose: true})
}

func inplaceEffect(a *argv, w Word, i, _ int) {
	a.riskIf(true, i)
	a.inplace = true
}

// targetEffect records what a build works on.
func targetEffect(a *argv, w Word, _, at int) {
	a.s.addFile(File{Word: w, Kind: Write, Via: a.via, Loose: true})
	if w.Static() {
		a.c.Places = append(a.c.Places, Place{at, w})
	}
}

// scriptEffect handles the name of a script of the project. Without such a script, the program
// of that name runs: "pnpm touch x".
func scriptEffect(a *argv, w Word, i, at int) {
	targetEffect(a, w, i, at)
	t, marked := w.Text(), func(d Danger) bool { return d.Arg == at }
	if !w.Static() || IsKnown(path.Base(t)) && !slices.Contains(packageCommands, t) && !slices.ContainsFunc(a.c.Danger, marked) {
		a.done = true
		a.acts()
		a.s.run(a.c.Args[at:], a.via, a.input)
	}
}

// packageCommands are commands of pnpm and yarn, and usual names of scripts, that are also names of programs.
var packageCommands = strings.Fields(`add audit bin cache ci config dedupe env fetch help import info init install link list ls node outdated owner pack patch
	prettier prune publish rebuild remove root run start store test tsc unlink update upgrade version view why workspace workspaces eslint jest vitest mocha
	playwright webpack vite rollup parcel mypy ruff build lint format watch dev clean deploy up t i`)

// goRunEffect handles the package that go runs: one of the project, not one that is fetched.
func goRunEffect(a *argv, w Word, i, at int) {
	targetEffect(a, w, i, at)
	if !w.Static() || strings.Contains(w.Text(), "@") {
		a.riskIf(true, at)
	}
}

// mediaEffect handles a file of a program that converts pictures, sound or films. Its name can
// also be an instruction or an address: msl:x, @list, |command, http://x, tee:x.
func mediaEffect(a *argv, w Word, i, at int) {
	targetEffect(a, w, i, at)
	t := w.Text()
	scheme, file, ok := strings.Cut(t, ":")
	if ok {
		targetEffect(a, Literal(file), i, at)
	}
	a.riskIf(!w.Static() || strings.HasPrefix(t, "@") || strings.Contains(t, "|") || strings.HasPrefix(t, "-") && len(t) > 1 ||
		ok && !slices.Contains(plainSchemes, strings.ToLower(scheme)), at)
}

// plainSchemes are formats of pictures that a name may begin with, and pictures that are drawn.
var plainSchemes = strings.Fields("png jpg jpeg gif webp bmp tiff tif ico avif heic xc canvas gradient plasma pattern null rose logo")

// sqlEffect handles statements of SQL.
func sqlEffect(a *argv, w Word, i, at int) {
	a.acts()
	a.riskIf(!w.Static() || !plainSQL(w.Text()), at)
}

// plainSQL reports whether statements certainly only work in the database: they contain no command
// of the client, and nothing that makes the database run a program or access a file.
func plainSQL(text string) bool {
	text = strings.TrimSuffix(strings.TrimSpace(text), `\G`)
	if strings.ContainsAny(text, "\\\x00`\r") {
		return false
	}
	starts := true // a statement or a line starts here
	first := true
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '\n' || c == ';':
			starts = true
			i++
		case c == ' ' || c == '\t':
			i++
		case isNameByte(c):
			end := i
			for end < len(text) && isNameByte(text[end]) {
				end++
			}
			word := strings.ToLower(text[i:end])
			if slices.Contains(sqlOutside, word) || starts && slices.Contains(sqlClient, word) || first && !slices.Contains(sqlPlain, word) {
				return false
			}
			starts, first = false, false
			i = end
		default:
			if starts && (c == '.' || c == '!' || c == '|' || c == '/' || c == '@') {
				return false
			}
			starts = false
			i++
		}
	}
	return true
}

func isNameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// Words of SQL: those that statements begin with, those that lead out of the database, and commands
// of clients that need no backslash.
var (
	sqlPlain = strings.Fields(`select insert update delete create drop alter explain show describe desc pragma begin commit rollback with values
		truncate analyze use set reindex start savepoint release grant revoke comment table replace merge`)
	sqlOutside = strings.Fields(`program copy outfile dumpfile infile load_file load_extension readfile writefile edit attach vacuum lo_import
		lo_export pg_read_file pg_read_binary_file pg_ls_dir pg_file_write xp_cmdshell sys_exec sys_eval fts3_tokenizer language function
		procedure extension handler foreign server dblink dblink_exec dblink_connect read_csv read_csv_auto read_text read_blob read_json
		read_parquet export install soname plugin library global local_infile url s3 file odbc jdbc`)
	sqlClient = strings.Fields(`system source tee notee pager nopager edit delimiter load import export do call execute prepare install attach
		copy connect exec help`)
)

// nameEffect handles a value that is the name of something built in, or a file to run.
func nameEffect(a *argv, w Word, i, _ int) {
	a.riskIf(!w.Static() || strings.ContainsAny(w.Text(), "./@"), i)
}

func modeEffect(a *argv, w Word, i, at int) {
	// A word that is the mode, or the file that it is read from.
	a.acts()
	if i != at || strings.HasPrefix(a.c.Args[i].Text(), "--") {
		a.s.addFile(File{Word: w, Kind: Read, Via: a.via, Loose: true})
		a.instead = true
	}
}

func newRootEffect(a *argv, w Word, _, _ int) {
	a.acts()
	if a.via == "chroot" {
		a.s.blur("paths mean other files after a change of root")
	}
	a.s.AnyDir = true
}

func pagerEffect(a *argv, w Word, i, _ int) {
	if !w.Static() || strings.HasPrefix(w.Text(), "+") {
		a.riskIf(true, i)
		a.s.blurOnly("Parley cannot tell what " + a.via + " does")
	}
	a.file(w, false)
}

func manEffect(a *argv, w Word, _, _ int) {
	if !w.Static() || strings.Contains(w.Text(), "/") { // a file
		a.file(w, false)
		return
	}
	a.s.addFile(File{Word: w, Kind: Read, Via: a.via, Loose: true}) // with -l
}

func dateEffect(a *argv, w Word, i, _ int) {
	a.riskIf(!w.Static() || !strings.HasPrefix(w.Text(), "+"), i)
}

// makeEffect records a target of make, or a variable that may be a command. Recipes may
// give the name of a target to a shell.
func makeEffect(a *argv, w Word, _, at int) {
	targetEffect(a, w, at, at)
	name, value, ok := strings.Cut(w.Text(), "=")
	if !ok {
		a.riskIf(strings.ContainsAny(name, ";&|`$<>(){}\"'\\\n"), at)
		return
	}
	name = strings.TrimRight(name, ":?+!")
	class := variableClass(name)
	a.riskIf(!consistsOf(name, nameBytes) || class == "changes" || class == "says" || name == "SHELL" || value != "" && !consistsOf(value, nameBytes+",+:"), at)
	if class == "says" && w.Static() {
		a.s.parseGuess(value, a.via)
	}
}

// goalEffect handles a goal of Maven: one with a colon can be any plugin.
func goalEffect(a *argv, w Word, _, at int) {
	a.riskIf(!w.Static() || strings.Contains(w.Text(), ":"), at)
}

// plainCMakeValue reports whether a variable for cmake neither leads out of the project nor
// is a list or a command. Of the paths outside, the place for the installation is harmless.
func plainCMakeValue(name, value string) bool {
	if name == "CMAKE_INSTALL_PREFIX" {
		return consistsOf(value, nameBytes+"/")
	}
	for _, end := range []string{"_COMPILER", "_LAUNCHER", "_PROGRAM", "_COMMAND", "_EMULATOR", "_LINKER"} {
		if strings.HasSuffix(name, end) {
			return slices.Contains(buildPrograms, strings.TrimRight(value, "-.0123456789"))
		}
	}
	return consistsOf(value, nameBytes+"/+,") && !path.IsAbs(value) && !strings.Contains(value, "..")
}

// buildPrograms are programs that a variable for cmake may name.
var buildPrograms = strings.Fields("cc gcc clang c++ g++ clang++ nvcc ccache sccache distcc ninja make gmake ld lld mold")

// plainCompilerFlags are the flags -f of compilers whose values are neither files nor
// programs.
var plainCompilerFlags = strings.Fields(`sanitize sanitize-recover no-sanitize visibility stack-protector lto cf-protection diagnostics-color max-errors
	message-length tabstop abi-version template-depth constexpr-depth constexpr-steps constexpr-ops-limit inline-limit align-functions align-loops
	align-jumps align-labels exec-charset input-charset debug-prefix-map file-prefix-map macro-prefix-map excess-precision fp-contract pack-struct
	tls-model vect-cost-model simd-cost-model patchable-function-entry zero-call-used-regs strict-flex-arrays reorder-blocks-algorithm ira-algorithm
	openmp stack-limit-size ftrapping-math debug-info-for-profiling color-diagnostics gnuc-version ms-compatibility-version`)

// plainLinkerFlags reports whether flags of Go's linker only set variables or leave
// something out: others run a program or write a file.
func plainLinkerFlags(text string) bool {
	for flag := range strings.FieldsSeq(text) {
		flag = strings.Trim(flag, `"'`)
		if pattern, rest, ok := strings.Cut(flag, "=-"); ok && !strings.HasPrefix(flag, "-") && pattern != "" {
			flag = "-" + rest // for some packages: all=-s
		}
		if !strings.HasPrefix(flag, "-") {
			continue // a value of -X
		}
		name, value, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
		switch name {
		case "s", "w", "X", "v", "race", "compressdwarf", "buildid", "checklinkname", "dumpdep":
		case "linkmode":
			if value != "internal" && value != "auto" {
				return false
			}
		default:
			return false
		}
	}
	return true
}

func flockEffect(a *argv, w Word, _, at int) {
	if t := w.Text(); w.Static() && (t == "-c" || t == "--command") {
		a.rest(at+1, func(args []Word) {
			if len(args) > 0 {
				a.s.parseWord(args[0], "flock -c")
			}
		})
		return
	}
	cmdEffect(a, w, at, at)
}

// ---- The network ----

// dataEffect handles a text that is sent, which may name a file to send: @file,
// a=@file, a=<file, a@file.
func dataEffect(a *argv, w Word, i, _ int) {
	a.acts()
	if w.none() {
		return
	}
	a.s.addFile(File{Word: w, Kind: Write, Via: "curl", Loose: true})
	a.riskIf(!w.Static() || sendsFile(w.Text(), a.c.Args[i].Text()) || strings.Contains(w.Text(), "%output{"), i)
}

func sendsFile(t, option string) bool {
	if strings.HasPrefix(option, "--data-urlencode") {
		name, _, ok := strings.Cut(t, "@")
		return ok && !strings.Contains(name, "=")
	}
	return strings.HasPrefix(t, "@") || strings.Contains(t, "=@") || strings.Contains(t, "=<")
}

// cookieEffect handles cookies, or a file of them.
func cookieEffect(a *argv, w Word, i, _ int) {
	a.acts()
	if !w.none() && (!w.Static() || !strings.Contains(w.Text(), "=")) {
		a.riskIf(true, i)
		a.s.addFile(File{Word: w, Kind: Read, Via: "curl", Loose: true})
	}
}

// fieldEffect handles -F of gh: name=value, name=@file, or a file with a text.
func fieldEffect(a *argv, w Word, i, at int) {
	cookieEffect(a, w, i, at)
	dataEffect(a, w, i, at)
}

// outEffect records where a response is written.
func outEffect(a *argv, w Word, i, _ int) {
	a.acts()
	if w.none() || w.Static() && (w.Text() == "/dev/null" || w.Text() == "-") {
		return
	}
	a.riskIf(true, i)
	a.s.addFile(File{Word: w, Kind: Write, Via: "curl"})
}

// steerEffect handles a file that configures which other files and hosts to use.
func steerEffect(a *argv, w Word, i, _ int) {
	a.riskIf(true, i)
	a.s.AnyHost = true
	a.s.addFile(File{Word: w, Kind: Read, Via: "curl", Loose: true})
	a.s.addFile(File{Word: anyWord(w.Raw), Kind: Write, Via: "curl", Loose: true})
}

func sendsEffect(a *argv, w Word, i, _ int) {
	a.riskIf(true, i)
	if !w.none() {
		a.s.addFile(File{Word: w, Kind: Read, Via: "curl", Loose: true})
	}
}

func urlEffect(a *argv, w Word, i, at int) {
	a.acts()
	a.s.addFile(File{Word: w, Kind: Write, Via: "curl", Loose: true})
	t := w.Text()
	if len(t) > 5 && strings.EqualFold(t[:5], "file:") {
		a.riskIf(true, at)
		if strings.ContainsAny(t, "[]{}") { // these are patterns for curl
			a.s.addFile(File{Word: anyWord(t), Kind: Read, Via: "curl", Loose: true})
		}
	}
}

// sshOptionEffect handles -o of ssh and similar options, whose value may be run.
func sshOptionEffect(a *argv, w Word, i, _ int) {
	a.riskIf(true, i)
	a.c.Loose = true
	if at := strings.IndexAny(w.Text(), "= \t"); at >= 0 {
		a.s.parseWord(Literal(strings.TrimLeft(w.Text()[at:], "= \t")), a.via)
	}
}
