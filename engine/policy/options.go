package policy

import (
	"path"
	"slices"
	"strings"
)

// Options by which a program does more than the rule that allows it may have meant:
// "runs" have something else run, or read what to run; "places" name where it works
// or writes, which is asked about if that is outside of the roots, or says itself what
// programs run. They are written without their dashes, one letter or a name.
type moreOptions struct{ runs, places string }

var moreThanKnown = map[string]moreOptions{
	"npm":      {"script-shell node-options userconfig globalconfig shell", "prefix C"},
	"pnpm":     {"script-shell node-options config shell-mode", "dir C prefix"},
	"yarn":     {"use-yarnrc script-shell node-options", "cwd modules-folder"},
	"bun":      {"preload r config c", "cwd"},
	"go":       {"exec toolexec vettool modfile overlay ldflags gccgoflags", "o C coverprofile cpuprofile memprofile blockprofile mutexprofile trace outputdir pkgdir"},
	"cargo":    {"config Z", "manifest-path target-dir out-dir artifact-dir C"},
	"make":     {"f file makefile eval I include-dir", "C directory"},
	"pytest":   {"p c config-file o override-ini pdbcls pastebin confcutdir", "basetemp junitxml junit-xml rootdir log-file cov-config report-log"},
	"tox":      {"c conf x override", "workdir root"},
	"nox":      {"f noxfile", ""},
	"eslint":   {"rulesdir c config f format plugin parser resolve-plugins-relative-to", "o output-file cache-location cache-file"},
	"prettier": {"plugin config", "cache-location"},
	"jest":     {"c config globalSetup globalTeardown setupFiles setupFilesAfterEnv testRunner runner reporters transform resolver testEnvironment", "rootDir outputFile coverageDirectory cacheDirectory"},
	"vitest":   {"c config globals reporter environment", "root dir outputFile"},
	"mocha":    {"r require config package reporter R", "O"},
	"tsc":      {"plugins", "p project outDir outFile declarationDir tsBuildInfoFile"},
	"gcc":      {"fplugin B wrapper specs fuse-ld Xlinker", "o MF"},
	"clang":    {"fplugin fpass-plugin B load Xclang fuse-ld config", "o MF"},
	"zip":      {"TT T unzip-command", "b O out temp-path"},
	"unzip":    {"", "d"},
	"mvn":      {"s gs settings toolchains t", "f file"},
	"gradle":   {"I init-script c settings-file include-build", "b build-file p project-dir g gradle-user-home"},
	"cmake":    {"P E C", "B S"},
	"ninja":    {"", "C f"},
	"rake":     {"r require f rakefile", "C directory"},
	"rspec":    {"r require I options", "o out"},
	"phpunit":  {"bootstrap c configuration d", "log-junit cache-directory"},
	"mypy":     {"config-file plugins", "cache-dir junit-xml"},
	"pylint":   {"init-hook load-plugins rcfile", "output"},
	"ruff":     {"config", "o output-file cache-dir"},
	"flake8":   {"config append-config", "output-file"},
	"bazel":    {"run_under bazelrc override_repository", "output_base output_user_root"},
	"just":     {"f justfile shell shell-arg c command", "d working-directory"},
	"kubectl":  {"kubeconfig", ""},
	"tcpdump":  {"z", "w"},
	"rsync":    {"e rsh rsync-path", "log-file"},
}

// sameOptions are programs that have the options of another.
var sameOptions = map[string]string{"gmake": "make", "g++": "gcc", "cc": "gcc", "c++": "gcc", "clang++": "clang", "py.test": "pytest", "golangci-lint": "ruff", "npx": "npm"}

// options notes those options among the words of a call.
func (s *script) options(c *invocation) {
	name, args := path.Base(c.args[0].text()), c.args[1:]
	if interpreter(name) && len(args) > 1 && args[0].text() == "-m" { // python -m pytest
		name, args = args[1].text(), args[2:]
	}
	if other, ok := sameOptions[name]; ok {
		name = other
	}
	more, ok := moreThanKnown[name]
	if !ok {
		return
	}
	runs, places := strings.Fields(more.runs), strings.Fields(more.places)
	for i, a := range args {
		if !a.static() {
			continue // which is never proved
		}
		t := a.text()
		if t == "--" {
			return // what follows is not for the program, or no option
		}
		next := ""
		if i+1 < len(args) {
			next = args[i+1].text()
		}
		switch {
		case name == "make" && makeVariable(t), name == "gcc" && strings.HasPrefix(t, "@"):
			c.risk(t)
		case strings.HasPrefix(t, "-"):
			if o, value := option(t, runs, next); o != "" && !harmlessValue(name, o, value) {
				c.risk(t)
			}
			if o, value := option(t, places, next); o != "" && !s.ours(value) {
				c.risk(t)
			}
		case strings.Contains(t, "/") && (path.IsAbs(t) || strings.HasPrefix(t, "..")) && !s.ours(t):
			c.risk(t) // it is told to work elsewhere
		}
	}
}

// option returns which of some options a word is, with its value.
func option(t string, names []string, next string) (name, value string) {
	bare, value, joined := strings.Cut(strings.TrimLeft(t, "-"), "=")
	if !joined {
		value = next
	}
	if slices.Contains(names, bare) {
		return bare, value
	}
	if strings.HasPrefix(t, "--") || len(bare) < 2 {
		return "", ""
	}
	// -fx, -B.: a letter and its value; but not a name that begins with it.
	if letter := t[1:2]; slices.Contains(names, letter) && !isName(t[1:]) {
		return letter, t[2:]
	}
	return "", ""
}

// isName reports whether a word behind a dash is the name of an option and not a
// letter with its value.
func isName(t string) bool {
	return !strings.ContainsFunc(t, func(r rune) bool { return (r < 'a' || r > 'z') && r != '-' && r != '=' })
}

// harmlessValue reports whether the value of an option that may run something does
// not.
func harmlessValue(program, option, value string) bool {
	switch {
	case program == "pytest" && option == "p":
		return strings.HasPrefix(value, "no:")
	case program == "go" && option == "ldflags":
		return !strings.Contains(value, "ext") && !strings.Contains(value, "@")
	case option == "format" || option == "f" && program == "eslint" || option == "reporter" || option == "reporters" || option == "R" || option == "environment" || option == "testEnvironment":
		return !strings.ContainsAny(value, "./")
	}
	return false
}

// makeVariable reports whether a word gives make a variable that may be a command.
func makeVariable(t string) bool {
	name, value, ok := strings.Cut(t, "=")
	if !ok || strings.HasPrefix(t, "-") {
		return false
	}
	name = strings.TrimRight(name, ":?+!")
	return name == "SHELL" || saysWhatRuns(name) || changesWhatRuns(name) || strings.ContainsFunc(value, func(r rune) bool { return !(r < 0x80 && (isLetter(byte(r)) || strings.ContainsRune("._-,+:", r))) })
}

// ours reports whether a place is below a root and does not say what programs run.
func (s *script) ours(place string) bool {
	if place == "" || place == "/dev/null" || place == "-" {
		return true
	}
	j := &judgement{req: s.req}
	for _, p := range s.absolute(place, false) {
		if !j.inside(p) || protectedName(p, j.resolve(p)) != "" {
			return false
		}
	}
	return true
}
