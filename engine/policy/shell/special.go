package shell

import (
	"path/filepath"
	"slices"
	"strings"
)

// steering lists the files that configure what programs run.
var steering = map[string][]string{
	"npm": {"package.json", ".npmrc"}, "npx": {"package.json", ".npmrc"}, "yarn": {"package.json", ".yarnrc", ".yarnrc.yml"},
	"pnpm": {"package.json", ".npmrc"}, "bun": {"package.json", "bunfig.toml"}, "make": {"makefile", "gnumakefile"},
	"gmake": {"makefile", "gnumakefile"}, "ninja": {"build.ninja"}, "just": {"justfile", ".justfile"}, "task": {"taskfile.yml", "taskfile.yaml"},
	"rake": {"rakefile"}, "bundle": {"gemfile"}, "cargo": {"build.rs", "cargo.toml", "config.toml"}, "go": {"go.mod"},
	"cmake": {"cmakelists.txt"}, "gradle": {"build.gradle", "settings.gradle"}, "mvn": {"pom.xml"},
	"pytest": {"conftest.py", "pytest.ini", "setup.cfg", "pyproject.toml"}, "tox": {"tox.ini"}, "pip": {"setup.py", "pyproject.toml"},
	"pre-commit": {".pre-commit-config.yaml"}, "docker": {"dockerfile", "docker-compose.yml", "compose.yaml"},
	"git": {".gitconfig", "config", ".gitmodules", ".gitattributes"}, "direnv": {".envrc"},
}

// find runs programs on the files that it finds, and writes.
func find(a *argv, args []Word, at int) {
	s, c := a.s, a.c
	c.Quiet, a.reads = true, true
	i, starts := a.findStarts(args)
	first := len(s.Files)
	found := Word{Raw: "{}"}
	for _, w := range starts {
		c.Quiet = c.Quiet && w.Static()
		s.addFile(File{Word: w, Kind: Read, Via: "find"})
		for _, v := range w.Values() {
			found.vals = append(found.vals, Value{Pat: append(slices.Clone(v.Runes()), AnyDeep)})
		}
	}
	n, tests := len(s.Files), args[i:]
	for ; i < len(args); i++ {
		t := args[i].Text()
		if !args[i].Static() {
			s.blur("what find does is only known at run time")
			c.Quiet = false
			continue
		}
		o, known := a.p.long[t]
		switch {
		case t == "-exec" || t == "-execdir" || t == "-ok" || t == "-okdir":
			c.Quiet = false
			if strings.HasSuffix(t, "dir") {
				s.AnyDir = true
			}
			i = a.findCommand(args, i, found)
		case t == "!" || t == "(" || t == ")" || t == ",":
		case !known:
			c.Quiet, a.reads, c.Loose = false, false, true
			c.risk(at+i, t)
		case o.kind == "delete":
			c.Quiet, a.reads = false, false
			c.risk(at+i, t)
			for _, w := range starts {
				s.addFile(File{Word: w, Kind: Write, Via: "find", Deep: true})
			}
		case o.value == needs && i+1 < len(args):
			i++
			if o.kind == "write" {
				c.Quiet, a.reads = false, false
				c.risk(at+i-1, t)
				s.addFile(File{Word: args[i], Kind: Write, Via: "find"})
			} else if o.kind == "read" {
				s.addFile(File{Word: args[i], Kind: Read, Via: "find"})
			} else if o.kind == "list" {
				c.Quiet = false
				s.addFile(File{Word: anyWord(t), Kind: Read, Via: "find"})
			}
			c.Quiet = c.Quiet && args[i].Static()
		case o.kind == "follow":
			c.Quiet = false
		}
	}
	markRemoved(s.Files[first:n], tests, s.Files[n:])
	c.Reads = a.reads
}

// markRemoved marks the starting points of find as removed if its expression selects everything and removes files.
func markRemoved(starts []*File, tests []Word, found []*File) {
	removes := func(f *File) bool { return f.Gone || f.Kind == Write && f.Via == "find" && f.Deep }
	if selectsAll(tests) && slices.ContainsFunc(found, removes) {
		for _, f := range starts {
			f.Gone = true
		}
	}
}

// selectsAll reports whether an expression of find selects everything, or every file.
func selectsAll(args []Word) bool {
	for i := 0; i < len(args); i++ {
		switch t := args[i].Text(); t {
		case "-delete", "-depth", "-d", "-xdev", "-mount", "-print", "-print0", "-ls", "-true", "-noleaf", "-ignore_readdir_race":
		case "-mindepth", "-type":
			i++
		case "-exec", "-execdir", "-ok", "-okdir":
			for i++; i < len(args) && args[i].Text() != ";" && args[i].Text() != "+"; i++ {
			}
		default:
			return false
		}
	}
	return true
}

// findStarts returns the starting points of find, and the index of what follows.
func (a *argv) findStarts(args []Word) (i int, starts []Word) {
	for ; i < len(args); i++ {
		t := args[i].Text()
		static := args[i].Static()
		switch {
		case static && (t == "-H" || t == "-L" || t == "-P"):
			if a.c.Quiet = a.c.Quiet && t == "-P"; t == "-L" {
				a.c.risk(i+1, t)
			}
			continue
		case static && strings.HasPrefix(t, "-O"):
			continue
		case static && t == "-D":
			i++
			continue
		case static && (strings.HasPrefix(t, "-") || t == "!" || t == "("):
			if len(starts) == 0 {
				starts = []Word{Literal(".")}
			}
			return i, starts
		}
		starts = append(starts, args[i])
	}
	if len(starts) == 0 {
		starts = []Word{Literal(".")}
	}
	return i, starts
}

// findCommand analyzes the command of -exec and similar options at index i. It returns
// the index of its last word.
func (a *argv) findCommand(args []Word, i int, found Word) int {
	option := args[i].Text()
	var cmd []Word
	for i++; i < len(args) && args[i].Text() != ";" && !(args[i].Text() == "+" && len(cmd) > 0 && cmd[len(cmd)-1].Raw == "{}"); i++ {
		w := args[i]
		if w.Static() && w.Text() == "{}" {
			w = found
		} else if w.Static() && strings.Contains(w.Text(), "{}") && len(cmd) > 0 {
			if p := lookup(filepath.Base(cmd[0].Text())); p != nil && p.code == "shell" {
				a.s.blur("file names become part of a shell command")
				a.s.parseWord(Literal(strings.ReplaceAll(w.Text(), "{}", "x")), "find")
			} else {
				w = anyWord(w.Raw)
			}
		}
		cmd = append(cmd, w)
	}
	if len(cmd) > 0 {
		a.s.run(cmd, "find "+option, nil)
	}
	return i
}

// risks are words of programs without a list of options with which they run, write or
// send something else, or communicate with another machine. Single letters also match
// in a cluster, a word with one dash is the beginning of an option, one without is an
// operand, and @ is a file with further words. Long options and operands may be abbreviated.
// isRisk explains / and :.
var risks = map[string]string{
	"docker": "v o H --volume --mount --output --privileged --device --cap-add --pid --security-opt --volumes-from --host --context" +
		" --config --env-file --secret --ssh" +
		" --build-context --iidfile --cidfile --metadata-file --runtime --userns --ipc --uts --add-host --allow --cache-to --volume-driver" +
		" --use-api-socket --label-file --cgroupns --log-opt --device-",
	"kubectl": "--kubeconfig --server --token --certificate-authority --client-certificate --client-key --insecure-skip-tls-verify --cache-dir --profile-output" +
		" --output-directory --helm-command --exec-command --proxy-url --as --as-group --as-uid --tls-server-name --profile s" +
		" --kuberc --enable-exec --enable-alpha-plugins --mount",
	"ss": "D F K --diag --filter --kill", "ip": "b -batch --batch exec", "lsof": "D", "dmesg": "C c D E n --clear --read-clear --console-",
	"journalctl": "M --machine --cursor-file --vacuum- --rotate --flush --sync --setup-keys --update-catalog --relinquish-var --smart-relinquish-var",
	"systemctl":  "H M --host --machine --root --image",
	"javac":      "-J -processor --processor -Xplugin @", "ld": "-plugin --plugin @", "objcopy": "@ --plugin --dump-section", "strip": "@ --plugin", "as": "@",
	"dig": "f k", "telnet": "n", "service": "/",
	"nmap": "-o -iL -script -datadir --script --script- --datadir --servicedb --versiondb --stylesheet --resume --append-output --excludefile --proxies",
	"sftp": "o S D F b", "lftp": "e c f", "sshfs": "o F", "mksquashfs": "-p -sort", "xorriso": "-external_filter -options_from_file -launch_frontend",
	"restic": "o --option --password-command --stdin-from-command", "borg": "--rsh --remote-path --debug-profile",
	"rclone":    ": --config --password-command --sftp-ssh --metadata-mapper --webdav-bearer-token-command --log-file --cpuprofile --memprofile --rc",
	"duplicity": "--gpg-binary --ssh-options --rsync-options --sftp-command --scp-command --use-scp",
	"unison":    "-sshcmd -rshcmd -servercmd -diff -merge -backup -logfile -addversionno -sshargs",
	"aws":       "--endpoint-url --cli-input- --ca-bundle", "gcloud": "--flags-file --configuration --access-token-file --credential-file-override",
	"s3cmd": "c --config --host --host-bucket --ca-certs",
	"zstd":  "o --output-dir- --trace --filelist --train",
	"bun": "r c --preload --require --import --config --cwd --env-file --define --loader --tsconfig-override --registry --outfile --outdir" +
		" --coverage-dir --reporter-outfile --cache-dir --cert --inspect",
	"deno": "A R W N E S r c --allow- --preload --import --import-map --config --env-file --unsafely- --require --location --cert --lock --v8-flags --output" +
		" --junit-path --coverage --coverage-path --inspect",
}

// exactOptions are programs of risks whose options cannot be abbreviated.
var exactOptions = []string{"docker", "kubectl", "bun", "deno", "aws", "rclone", "restic", "lftp"}

// risky records options of a program that only a rule with these options covers.
func risky(a *argv, args []Word, at int) {
	name := a.via
	switch name {
	case "podman", "nerdctl", "buildah":
		name = "docker"
	case "oc":
		name = "kubectl"
	}
	for i, w := range args {
		t, _, joined := strings.Cut(w.Text(), "=")
		if t == "--" {
			return
		}
		// The options of a command in a container are unknown: node -v.
		last := name == "docker" && i+1 == len(args) && !joined && !strings.ContainsAny(t, ":/")
		for risk := range strings.FieldsSeq(risks[name]) {
			if isRisk(t, risk, last, !slices.Contains(exactOptions, name)) {
				a.c.Danger = append(a.c.Danger, Danger{Arg: at + i, Word: w.Text()})
				break
			}
		}
	}
	a.readsCommands()
}

// isRisk reports whether a word is one of the risks of its program. The last word of a
// container may be an option of its command.
func isRisk(t, risk string, last, abbreviates bool) bool {
	option := len(t) > 1 && t[0] == '-'
	switch {
	case risk == "@":
		return strings.HasPrefix(t, "@")
	case risk == "/": // the path of a script
		return !option && strings.Contains(t, "/")
	case risk == ":": // a description of a remote, whose options can name a program
		return strings.HasPrefix(t, ":") || !option && strings.Contains(t, ",")
	case strings.HasPrefix(risk, "--"):
		return t == risk || abbreviates && len(t) > 2 && strings.HasPrefix(risk, t) || strings.HasSuffix(risk, "-") && strings.HasPrefix(t, risk)
	case strings.HasPrefix(risk, "-"):
		return strings.HasPrefix(t, risk)
	case len(risk) > 1:
		return t != "" && strings.HasPrefix(risk, t)
	}
	return option && t[1] != '-' && !last && strings.Contains(t[1:], risk)
}

// deeply is for programs that handle whole directories: everything below their
// arguments is touched, and the files whose names they read.
func deeply(a *argv, args []Word, at int) {
	s, c, name := a.s, a.c, a.via
	c.Loose = true
	runsForms(a, args, at)
	risky(a, args, at)
	transfers(a, args, at)
	c.Reads = asksVersion(a.p, args)
	s.arguments(c, args)
	s.hidden(name, args)
	s.parseInput(a.input)
	if len(args) > 0 && args[0].Text() == "exec" {
		return // in a running container, which has other directories
	}
	for i, w := range args {
		t := w.Text()
		if a.p.is(anyTrait) && w.Static() && strings.HasPrefix(t, "-") {
			a.stray(t, at+i)
		}
		if w.Static() && strings.HasPrefix(t, "-") && !strings.Contains(t, "=") {
			if t == "-@" || t == "-i" || strings.HasPrefix(t, "-T") {
				s.addFile(File{Word: anyWord(w.Raw), Kind: Read, Via: name, Loose: true})
			}
			continue
		}
		s.addFile(File{Word: w, Kind: Read, Via: name, Loose: true, Deep: true})
		if w.Static() && strings.ContainsAny(t, ":,=") { // host:path, type=bind,src=path
			for piece := range strings.FieldsFuncSeq(t, func(r rune) bool { return r == ':' || r == ',' || r == '=' }) {
				s.addFile(File{Word: Literal(piece), Kind: Read, Via: name, Loose: true, Deep: true})
			}
		}
	}
}

// transfers records where a program copies files from and to: only paths below the roots are
// covered by a rule for the program.
func transfers(a *argv, args []Word, at int) {
	remote := a.p.is(anyTrait) && a.p.code == "deep"
	for i, w := range args {
		t := w.Text()
		switch {
		case !w.Static() || t == "" || t == "-":
		case t == "--" && (!remote || len(a.c.Danger) > 0): // of a command in a container
			return
		case i > 0 && slices.Contains([]string{"-f", "--file", "--project-directory"}, args[i-1].Text()):
			a.c.Places = append(a.c.Places, Place{at + i - 1, w})
		case remote && t[0] != '-' && strings.IndexByte("/.~", t[0]) >= 0:
			a.c.Places = append(a.c.Places, Place{at + i, w})
		case remote && strings.HasPrefix(t, "file:"):
			a.c.risk(at+i, t)
		}
	}
}

// compress is for programs that replace a file by its compressed form, or print that.
func compress(a *argv, args []Word, at int) {
	deeply(a, args, at)
	a.c.Reads = a.c.Reads || len(a.c.Danger) == 0 && slices.ContainsFunc(args, func(w Word) bool {
		return w.Static() && slices.Contains([]string{"-c", "-dc", "-cd", "-l", "-t", "--stdout", "--list", "--test"}, w.Text())
	})
}

// archiveLists are options with which archivers create no files.
var archiveLists = map[string]string{"unzip": "-l -t -v -Z -p", "7z": "l t", "ar": "t p"}

// archivePlaces are options with which archivers write elsewhere.
var archivePlaces = map[string]string{
	"zip": "-b -O -lf --out --temp-path --logfile-path", "unzip": "-d", "7z": "-o", "7za": "-o", "7zr": "-o",
	"jar": "-C --file", "cpio": "-D --directory -O -F --file", "bsdcpio": "-O -F", "pax": "-f",
}

// archiveRuns are options with which archivers run something.
var archiveRuns = map[string]string{"zip": "-T -TT --unzip-command --test", "cpio": "--rsh-command", "7z": "-si", "pax": "-s", "ar": "--plugin"}

// archives is for programs that create files whose names are in their input, and that
// also pack.
func archives(a *argv, args []Word, at int) {
	deeply(a, args, at)
	s, name := a.s, a.via
	lists, packs := false, isPacking(name, args)
	for i, w := range args {
		t := w.Text()
		if packs && (filepath.IsAbs(t) || strings.HasPrefix(t, "..")) { // perhaps the archive
			a.c.Places = append(a.c.Places, Place{at + i, w})
		}
		if value, ok := optionValue(archiveRuns[name], args, i); ok {
			a.c.risk(at+i, t)
			s.parseWord(value, name)
		}
		if value, ok := optionValue(archivePlaces[name], args, i); ok {
			a.c.Places = append(a.c.Places, Place{at + i, value})
		}
		if (t == "-d" || t == "-D") && i+1 < len(args) { // unzip -d x, cpio -D x
			s.chdir(args[i+1])
		}
		lists = lists || w.Static() && slices.Contains(strings.Fields(archiveLists[name]), t)
	}
	a.c.Reads = a.c.Reads || len(args) > 0 && slices.Contains(strings.Fields(archiveLists[name]), args[0].Text()) && len(a.c.Danger)+len(a.c.Places) == 0
	if name == "cpio" || name == "bsdcpio" || name == "pax" { // names are read from the input
		s.addFile(File{Word: anyWord("names"), Kind: Read, Via: name, Loose: true})
	}
	if name != "zip" && !lists {
		s.unpacked(name)
	}
}

// isPacking reports whether an archiver writes an archive.
func isPacking(name string, args []Word) bool {
	if name == "zip" || len(args) == 0 {
		return name == "zip"
	}
	letters := map[string]string{"jar": "cu", "ar": "rqdms", "7z": "aud", "7za": "aud", "7zr": "aud", "rar": "aufm"}[name]
	first := strings.TrimLeft(args[0].Text(), "-")
	return letters != "" && (first == "" || strings.ContainsAny(first, letters))
}

// optionValue returns the value of a word that is one of the given options, which may
// be abbreviated or have the value attached.
func optionValue(options string, args []Word, i int) (Word, bool) {
	t := args[i].Text()
	name, joinedValue, isJoined := strings.Cut(t, "=")
	for o := range strings.FieldsSeq(options) {
		switch {
		case strings.HasPrefix(o, "--") && len(name) > 2 && strings.HasPrefix(o, name) && isJoined:
			return Literal(joinedValue), true
		case t == o || strings.HasPrefix(o, "--") && len(name) > 2 && strings.HasPrefix(o, name):
			if i+1 < len(args) {
				return args[i+1], true
			}
			return Literal(""), true
		case !strings.HasPrefix(o, "--") && strings.HasPrefix(t, o):
			return Literal(t[len(o):]), true
		case len(o) == 2 && len(t) > 2 && t[0] == '-' && t[1] != '-' && strings.HasSuffix(t, o[1:]) && i+1 < len(args): // at the end of a cluster
			return args[i+1], true
		}
	}
	return Word{}, false
}

// unpacks is for programs that change files whose names are in their input.
func unpacks(a *argv, args []Word, at int) {
	a.all(at)
	a.c.Quiet, a.c.Reads = false, false
	a.s.parseInput(a.input)
	a.s.unpacked(a.via)
}

// copies is for programs that write to their last operand.
func copies(a *argv, args []Word, at int) {
	s, c, name := a.s, a.c, a.via
	a.options(at)
	deep := name != "cp" && name != "install" && name != "scp"
	for _, w := range args {
		if t := w.Text(); w.Static() && strings.HasPrefix(t, "-") && strings.ContainsAny(t, "rRa") {
			deep = true
		}
	}
	a.deep = deep
	if a.p.is(netTrait) {
		c.Loose = true
	}
	var files []Word
	for _, o := range a.operands {
		files = append(files, o.word)
		if strings.Contains(o.word.Text(), "bin/") || !o.word.Static() {
			c.Loose = true // a program may get another name
		}
	}
	a.copied(files, deep)
	c.Edits = a.p.is(editsTrait) && len(c.Danger) == 0 && len(c.Places) == 0 && !slices.ContainsFunc(files, func(w Word) bool { return !w.Static() })
	if name == "ln" {
		s.act("it creates a link")
		if len(files) > 1 {
			// A write through the link goes to its target.
			for _, f := range files[:len(files)-1] {
				s.addFile(File{Word: f, Kind: Write, Via: name, Loose: true, Deep: true})
			}
		}
	}
}

// copied records the copied files and their destination.
func (a *argv) copied(files []Word, deep bool) {
	s, name := a.s, a.via
	remote := a.p.is(netTrait)
	for i, w := range files {
		last := i == len(files)-1 && !a.lists
		kind := Read
		if last && (len(files) > 1 || name == "ln") || name == "mv" || a.inplace {
			kind = Write
		}
		f := File{Word: w, Kind: kind, Via: name, Deep: deep, Loose: remote && strings.Contains(w.Text(), ":")}
		if name == "mv" && last && i > 0 {
			f.From = files[:i] // below the target, if directories may be copied there
		}
		s.addFile(f)
		if last {
			a.copiedInto(f, files[:i])
		}
	}
	if a.lists {
		a.copiedInto(File{Word: a.into, Via: name, Deep: deep}, files)
	}
}

// copiedInto records the files that a copy creates if its destination is a directory.
func (a *argv) copiedInto(dir File, files []Word) {
	for _, from := range files {
		if dir.Word.Static() && from.Static() {
			f := dir
			f.Word, f.Kind = Literal(dir.Word.Text()+"/"+filepath.Base(from.Text())), Write
			a.s.addFile(f)
		}
	}
}

// intoEffect records the directory that files are copied into.
func intoEffect(a *argv, w Word, _, _ int) {
	a.lists, a.into = true, w // the last operand is then one of the files
	a.s.addFile(File{Word: w, Kind: Write, Via: a.via, Deep: true})
}

// archiveEffect records the archive of tar.
func archiveEffect(a *argv, w Word, i, _ int) {
	a.acts()
	if !w.none() {
		a.s.addFile(File{Word: w, Kind: Write, Via: "tar", Loose: true})
		a.c.Places = append(a.c.Places, Place{i, w})
	}
}

// tar packs and unpacks.
func tar(a *argv, args []Word, at int) {
	s, c := a.s, a.c
	creates, extracts, lists := false, false, false
	for i, w := range args {
		t := w.Text()
		// is reports whether an option has a letter, or is the beginning of a name. Only the first
		// one chooses what to do, but any may extract.
		is := func(letter, name string, any bool) bool {
			short := i == 0 && !strings.HasPrefix(t, "-") || strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--")
			return short && (any || i == 0) && strings.Contains(t, letter) || len(t) > 4 && strings.HasPrefix(name, t)
		}
		extracts = extracts || is("x", "--extract", true) || t == "--get"
		creates = creates || is("c", "--create", false)
		lists = lists || is("t", "--list", false)
		if !w.Static() {
			c.Loose = true
		}
		s.addFile(File{Word: w, Kind: Read, Via: "tar", Loose: true, Deep: true})
	}
	if len(args) > 0 && args[0].Static() && !strings.HasPrefix(args[0].Text(), "-") {
		// Letters of options without a dash: their values follow one by one.
		at = a.bundle(args[0].Text(), at)
	}
	a.options(at)
	for _, o := range a.operands {
		if !creates {
			s.addFile(File{Word: o.word, Kind: Write, Via: "tar", Loose: true})
		}
	}
	if !creates {
		// An archive that is read may be anywhere.
		c.Places = slices.DeleteFunc(c.Places, func(p Place) bool { return strings.HasSuffix(strings.TrimRight(c.Args[p.Arg].Text(), "="), "f") })
	}
	if c.Reads = lists && !creates && !extracts && len(c.Danger) == 0; extracts {
		s.unpacked("tar")
	}
}

// bundle applies letters without a dash, whose values follow one by one. It returns the
// index after them.
func (a *argv) bundle(letters string, at int) int {
	next := at + 1
	for k := range len(letters) {
		o, ok := a.p.short[letters[k]]
		if !ok {
			a.unknown(letters, at)
			continue
		}
		w := Word{}
		if o.value == needs && next < len(a.c.Args) {
			w = a.c.Args[next]
			next++
		}
		a.value(o.kind, w, at, next-1)
	}
	return next
}

func parallel(a *argv, args []Word, _ int) {
	s, c := a.s, a.c
	c.Loose = true
	s.arguments(c, args)
	s.blur("parallel builds commands from its arguments")
	var cmd []Word
	for _, w := range args {
		if strings.HasPrefix(w.Text(), ":::") {
			break
		}
		if !strings.HasPrefix(w.Text(), "-") || len(cmd) > 0 {
			cmd = append(cmd, w)
		}
	}
	if len(cmd) > 0 {
		s.parseJoined(cmd, "parallel")
	}
	if a.input != nil {
		s.parseWord(*a.input, "parallel")
	}
}

func scriptProgram(a *argv, args []Word, _ int) {
	s := a.s
	s.act("script runs another program")
	a.c.Loose = true
	s.arguments(a.c, args)
	for i, w := range args {
		t := w.Text()
		name, v, joined := strings.Cut(t, "=")
		long := len(name) > 2 && strings.HasPrefix("--command", name)
		switch {
		case long && joined:
			s.parseWord(Literal(v), "script -c")
		case (strings.HasPrefix(t, "-") && strings.HasSuffix(t, "c") || long) && i+1 < len(args):
			s.parseWord(args[i+1], "script -c")
		}
	}
}

// ssh runs a command on another machine.
func ssh(a *argv, args []Word, _ int) {
	s, c := a.s, a.c
	if asksVersion(a.p, args) {
		c.Reads = true
		return
	}
	s.act("it runs a command on another machine")
	s.arguments(c, args)
	for i := 0; i < len(args); i++ {
		t := args[i].Text()
		if args[i].Static() && strings.HasPrefix(t, "-") {
			if strings.HasPrefix(t, "-o") {
				o := t[2:]
				if t == "-o" && i+1 < len(args) {
					o = args[i+1].Text()
				}
				if at := strings.IndexAny(o, "= \t"); at >= 0 {
					s.parseWord(Literal(strings.TrimLeft(o[at:], "= \t")), "ssh")
				}
			}
			if strings.HasPrefix(t, "-F") {
				s.blurOnly("a configuration file can tell ssh what to run")
			}
			if len(t) == 2 && strings.Contains("BbcDEeFIiJLlmOopQRSWw", t[1:]) {
				i++
			}
			continue
		}
		if i+1 < len(args) {
			s.parseJoined(args[i+1:], "ssh")
		} else {
			shell(a, nil, 0)
		}
		return
	}
}

// curl fetches, and may write a file named after the address.
func curl(a *argv, args []Word, at int) {
	named := slices.ContainsFunc(args, func(w Word) bool {
		t := w.Text()
		return strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--") && strings.Contains(t, "O") || len(t) > 4 && strings.HasPrefix("--remote-name-all", t)
	})
	a.network(args, at, named)
}

// wget fetches, and always writes a file.
func wget(a *argv, args []Word, at int) { a.network(args, at, true) }

func (a *argv) network(args []Word, at int, named bool) {
	if named {
		for _, f := range remoteNames(args) {
			a.s.addFile(File{Word: f, Kind: Write, Via: "curl", Loose: true})
		}
	}
	for _, w := range args {
		a.s.addFile(File{Word: w, Kind: Write, Via: "curl", Loose: true})
	}
	a.all(at)
}

// namedByServer are options with which the server chooses the names of files.
var namedByServer = []string{
	"--remote-header-name", "--content-disposition", "--trust-server-names", "--recursive", "--mirror", "--input-file", "--config",
	"--page-requisites", "--execute", "--default-page",
}

// remoteNames returns the files that are named after the addresses.
func remoteNames(args []Word) []Word {
	var files []Word
	for _, w := range args {
		t := w.Text()
		name, _, _ := strings.Cut(t, "=")
		short := strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--")
		long := len(name) > 3 && slices.ContainsFunc(namedByServer, func(o string) bool { return strings.HasPrefix(o, name) })
		if !w.Static() || short && strings.ContainsAny(t, "JrmiKeN") || long {
			return []Word{patternWord(".", AnyText)}
		}
		if strings.HasPrefix(t, "-") {
			continue
		}
		address, _, _ := strings.Cut(t, "?")
		if name := filepath.Base(address); name != "." && name != "/" {
			files = append(files, Literal(name), Literal(filepath.Base(t)))
		}
	}
	return append(files, Literal("index.html"))
}

// project is for programs that run parts of a project: scripts, tests, rules.
func project(a *argv, args []Word, at int) {
	s := a.s
	if s.writesConfigOf(a.via) {
		s.blur("it writes a file that " + a.via + " takes commands from")
	}
	a.c.Loose = true
	plain, near := a.plainOption(args), len(s.Near)
	argumentsBut(s, a.c, args, plain)
	s.hidden(a.via, args)
	s.Near = append(s.Near[:near], slices.DeleteFunc(s.Near[near:], plain)...)
	s.parseInput(a.input)
	a.all(at)
	a.c.Quiet = false
	a.c.Reads = a.c.Reads || asksVersion(a.p, args)
}

// plainOption returns a function that reports whether a word is an option that the line
// lists, without a value or with one that is not a file. It always reports false if
// some of the words are passed to another program.
func (a *argv) plainOption(args []Word) func(text string) bool {
	p := a.p
	if p.is(subTrait) && len(args) > 0 {
		if sub := lookup(p.name + " " + args[0].Text()); sub != nil && !sub.marks() {
			p = sub
		}
	}
	if slices.ContainsFunc(args, func(w Word) bool { return w.Text() == "--" || strings.TrimLeft(w.Text(), "-") == "args" }) {
		p = nil
	}
	return func(text string) bool {
		if p == nil || len(text) < 2 || text[0] != '-' || text[1] != '-' && !p.is(onedashTrait) {
			return false
		}
		name, _, _ := strings.Cut(text, "=")
		o, ok := p.long[name]
		return ok && (o.kind == "" || o.kind == "text")
	}
}

// runner is for programs that run parts of a project in unknown ways.
func runner(a *argv, args []Word, at int) {
	if len(args) < 2 || !args[0].Static() || args[0].Text() != "run" && args[0].Text() != "exec" || !args[1].Static() || strings.HasPrefix(args[1].Text(), "-") {
		project(a, args, at)
		return
	}
	// poetry run pytest, bundle exec rspec: the options are those of that program.
	a.end = at + 1
	project(a, args, at)
	switch p := lookup(filepath.Base(args[1].Text())); {
	case p == nil || p.code == "language":
	case p.code == "project" || p.code == "runner":
		a.s.program(a.c, p, at+2, a.input)
		a.c.Quiet, a.c.Reads, a.c.Edits = false, false, false
		return
	default: // of the system
		a.s.run(args[1:], a.via, a.input)
		return
	}
	for i, w := range args[1:] {
		if w.Static() && strings.HasPrefix(w.Text(), "-") {
			a.stray(w.Text(), at+1+i)
		}
	}
}

// database is for clients of databases: statements are not understood, but those that certainly
// neither run nor write something outside of the database are known.
func database(a *argv, args []Word, at int) {
	a.c.Loose = true
	a.s.arguments(a.c, args)
	if asksVersion(a.p, args) {
		a.c.Reads = true
		return
	}
	a.s.blurOnly(otherLanguage)
	a.all(at)
	a.c.Quiet, a.c.Reads = false, false
}

// pythonModules are modules that do only what they are known for.
var pythonModules = strings.Fields(`pytest unittest pip venv build black flake8 mypy pylint ruff isort coverage json.tool compileall tox nox
	pyflakes pyright django flask uvicorn gunicorn pre_commit doctest virtualenv poetry ensurepip`)

// Reasons why a program in another language is unclear.
const (
	otherLanguage = "Parley does not analyze code in other languages"
	madeLanguage  = "code in another language is only known at run time"
)

// language is for interpreters of other languages. A source file is a program like any
// other; a text in the command is not understood.
func language(a *argv, args []Word, at int) {
	s, c, name := a.s, a.c, a.via
	c.Loose = true
	afterSubcommand(a, args, at)
	s.arguments(c, args)
	if s.writesConfigOf(name) {
		s.blurOnly("it writes a file that " + name + " takes commands from")
	}
	l := &languageWords{a: a, args: args}
	for i, w := range args {
		if why := l.word(w, i); why != "" {
			s.blurOnly(why)
		}
		l.risk(w, at+i)
	}
	a.readsCommands()
	crontab := name == "crontab" && len(args) == 1 && args[0].Text() == "-l"
	if !l.file && !l.tells || a.input != nil && !sourceFile(args) || name == "at" || name == "batch" || name == "crontab" && !crontab {
		s.blurOnly(otherLanguage)
	}
	c.Reads = asksVersion(a.p, args)
	if len(args) > 1 && args[0].Static() && args[0].Text() == "-m" && args[1].Static() { // python -m pytest
		if p := lookup(args[1].Text()); p != nil && (p.code == "" || p.code == "project" || p.code == "runner") {
			s.program(c, p, at+2, a.input)
			c.Quiet, c.Edits = false, false
			c.Reads = c.Reads && p.name == "json.tool"
		}
	}
}

// afterSubcommand handles the arguments of an interpreter that has subcommands.
func afterSubcommand(a *argv, args []Word, at int) {
	if len(args) == 0 || strings.HasPrefix(args[0].Text(), "-") || risks[a.via] == "" {
		return
	}
	runsForms(a, args[:1], at)
	risky(a, args, at)
	for i, w := range args[1:] {
		if !strings.HasPrefix(w.Text(), "-") {
			targetEffect(a, w, at+1+i, at+1+i)
		}
	}
}

// languageWords is a walk over the arguments of an interpreter.
type languageWords struct {
	a                   *argv
	args                []Word
	file, module, tells bool
}

// risk records that the argument may be code. A rule for an interpreter allows any code, but a rule
// with further words does not, and a rule for an editor or a debugger does not either.
func (l *languageWords) risk(w Word, at int) {
	t, p := w.Text(), l.a.p
	runs := p.is(runsTrait)
	dashed := strings.HasPrefix(t, "-") && !asksVersion(p, []Word{w}) || runs && strings.HasPrefix(t, "+")
	if (runs || !l.file && !l.module) && (!w.Static() || dashed || p.is(stopTrait)) && !(l.a.via == "crontab" && t == "-l") {
		l.a.c.Danger = append(l.a.c.Danger, Danger{Arg: at, Word: t, Named: !runs})
	}
}

// word handles the next argument. It returns why its effect is unclear, if it is.
func (l *languageWords) word(w Word, i int) string {
	t, name := w.Text(), l.a.via
	switch {
	case !w.Static():
		return madeLanguage
	case evaluatesCode(t) || t == "eval" && !l.file:
		return otherLanguage
	case l.file && sourceFile(l.args[:i]): // of the program that the file is
	case strings.ContainsAny(t, " \n(;`|<>"):
		return otherLanguage
	case strings.HasPrefix(t, "-m") && strings.HasPrefix(name, "py") && !l.file:
		mod := strings.TrimPrefix(t, "-m")
		if mod == "" && i+1 < len(l.args) {
			mod = l.args[i+1].Text()
		}
		if l.module = true; !slices.Contains(pythonModules, mod) {
			return "what the module " + mod + " does is not known"
		}
	case t == "--version", t == "-V", t == "-v", t == "--help", t == "-h", name == "crontab" && t == "-l" && len(l.args) == 1:
		l.tells = true
	case strings.HasPrefix(t, "-") && !strings.HasPrefix(t, "--") && !l.file && !l.module:
		if strings.ContainsAny(t, "ceEprSx") {
			return otherLanguage
		}
	case !strings.HasPrefix(t, "-"):
		first := !l.file
		if l.file = true; !first {
			break
		}
		if l.a.runsFile(w, l.args[i+1:]); l.a.s.writes(w, l.a.c) {
			return "it runs a file that this command creates"
		}
	}
	return ""
}

// evaluatesCode reports whether an argument announces that code follows, or is read.
func evaluatesCode(t string) bool {
	upper := strings.ToUpper(t)
	for _, prefix := range []string{"+", "--eval", "--exec", "--c", "--print", "--run", "/dev/", "SHELL="} {
		if strings.HasPrefix(t, prefix) {
			return true
		}
	}
	return t == "-" || strings.HasPrefix(upper, "EXEC:") || strings.HasPrefix(upper, "SYSTEM:")
}

// sourceFile reports whether the first argument that is not an option is a source file
// of a language: the others are its arguments.
func sourceFile(args []Word) bool {
	for _, w := range args {
		if t := w.Text(); !strings.HasPrefix(t, "-") {
			switch filepath.Ext(t) {
			case ".py", ".js", ".mjs", ".cjs", ".ts", ".mts", ".tsx", ".rb", ".pl", ".php", ".lua", ".r", ".R", ".jl", ".exs", ".tcl", ".scm", ".rkt":
				return true
			}
			return false
		}
	}
	return false
}
