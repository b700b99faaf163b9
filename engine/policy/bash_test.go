package policy

import (
	"bufio"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/policy/shell"
)

// stubs are programs that only log how they were called.
var stubs = []string{"rm", "touch", "cat", "git", "x", "y"}

// A bashRunner is a sandbox without network in which only one directory is writable. A
// loop inside passes commands to a bash whose programs are all stubs.
type bashRunner struct {
	home string
	in   io.WriteCloser
	out  *bufio.Reader
}

// runLoop reads commands that end with a zero byte, and answers with the programs that
// each called and a zero byte. Each command has its own log, since it may leave
// processes behind.
const runLoop = `n=0
while IFS= read -r -d '' c; do
	export LOG=$HOME/log.$((n++))
	timeout -k 1 2 bash --noprofile --norc -c "$c" </dev/null >/dev/null 2>&1
	[[ ! -e $LOG ]] || printf '%s\n' "$(<"$LOG")"
	printf '\0'
done`

// newBashRunner starts the sandbox. It skips the test if bubblewrap is not installed.
func newBashRunner(t testing.TB) *bashRunner {
	if _, err := exec.LookPath("bwrap"); err != nil {
		t.Skip("bubblewrap is not installed")
	}
	dir := newStubs(t)
	cmd := exec.Command("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--bind", dir, dir, "--chdir", filepath.Join(dir, "work"),
		"--clearenv", "--setenv", "PATH", filepath.Join(dir, "bin"), "--setenv", "HOME", dir, "/bin/bash", "--noprofile", "--norc", "-c", runLoop)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	b := &bashRunner{dir, in, bufio.NewReader(out)}
	if called, err := b.run("rm"); err != nil || !slices.Equal(called, []string{"rm"}) {
		t.Skipf("bubblewrap does not work here: %v %v", called, err)
	}
	return b
}

// run returns the programs that a command called.
func (b *bashRunner) run(command string) (called []string, err error) {
	if _, err := io.WriteString(b.in, command+"\x00"); err != nil {
		return nil, err
	}
	text, err := b.out.ReadString(0)
	return strings.Fields(strings.TrimSuffix(text, "\x00")), err
}

// env returns the environment in which its commands run.
func (b *bashRunner) env() shell.Env {
	return shell.Env{Dir: filepath.Join(b.home, "work"), Home: b.home}
}

func newStubs(t testing.TB) string {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"bin", "work"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range stubs {
		if err := os.WriteFile(filepath.Join(dir, "bin", name), []byte("#!/bin/sh\necho "+name+" >> \"$LOG\"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bash", "sh"} {
		if err := os.Symlink("/bin/bash", filepath.Join(dir, "bin", name)); err != nil {
			t.Skip(err)
		}
	}
	for _, name := range []string{"env", "xargs", "nice", "nohup", "timeout", "find"} {
		if path, err := exec.LookPath(name); err == nil {
			os.Symlink(path, filepath.Join(dir, "bin", name))
		}
	}
	return dir
}

// FuzzBash compares the programs found in a command with those that a bash really ran.
// A program that ran and was not found, in a command that is claimed to be understood,
// is a hole.
func FuzzBash(f *testing.F) {
	for _, s := range []string{"rm x; touch y", "x $(rm)", "x `rm`", "x <(rm)", "if x; then rm; fi", "f() { rm; }; f", "env A=1 rm", "bash -c 'rm; x'", "eval 'r''m'", "r\\m", "$'r\\x6d'", "x && y || rm | touch",
		"for i in rm x; do $i; done", "case a in a) rm;; esac", "{ rm; }", "! rm", "time rm", "a=rm; $a", "{rm,x}", "cat <<E\n$(rm)\nE", "cat <<'E'\n$(rm)\nE", "x \"${a:-$(rm)}\"", "(( 1 + $(rm) ))", "[[ $(rm) ]]", "trap rm EXIT", "echo rm | bash", "bash <<< rm",
		"x # ; rm", "x '; rm'", "x \"; rm\"", "x \\; rm", "x \\\nrm", "a='a[$(rm)]'; ((a))", "command rm", "exec rm", "xargs rm <<< a", "find . -exec rm {} +", "nice -n 1 rm", "alias a=rm\na", "x &>y rm", "a=(rm x); ${a[0]}", "set -- rm; \"$@\"", "select a in b; do rm; done <<< 1",
		"coproc rm; wait", "x | while read a; do rm; done", "until rm; do :; done", "echo ${a:=`rm`}", "rm${IFS}x", "a=r b=m; $a$b", "function g { rm; }; g", "PATH=bin rm", "source <(echo rm)", "~+/../bin/rm", "$HOME/bin/rm", "bi?/x; ../bin/r?",
		"a=x; printf -va rm; $a", "a=x; builtin read a <<< rm; $a", "a=x; declare \"a=rm\"; $a", "a=x; b=a; read $b <<< rm; $a", "_=x; : rm; $_", "REPLY=x; read <<< rm; $REPLY", "env rm; env() { :; }", "(nice() { :; }); nice rm", "xargs -IR R <<< rm", "xargs -I% sh -c % <<< rm",
		"bash < <(echo rm)", "bash 3<<< rm <&3", ". /dev/fd/3 3<<< rm", "exec 3> >(bash); echo rm >&3; wait", "a=(x rm); \"${a[@]:1}\"", "a=xrm; ${a:1}", "a=xm; ${a/x/r}", "a=RM; ${a,,}", "mapfile -C rm -c1 a <<< x", "env -S'rm x'", "r{m,} x", "{r,}m", "case a in a) x;;& *) rm;; esac", "x 2>&1 >y rm",
		"set -- x rm; $2", "set -- x rm; shift; \"$@\"", "f() { $1; }; f rm", "f() { \"${@:2}\"; }; f x rm", "a='x; rm'; eval $a", "a='rm'; bash -c \"$a\"", "bash -c '$0' rm", "bash -c '\"$@\"' _ rm", "coproc a { rm; }; wait", "a=b; b=rm; ${!a}", "declare -n a=b; b=rm; $a", "a[0]=rm; $a", "a+=r; a+=m; $a",
		"while read a; do $a; done <<< rm", "for a in x rm; do :; done; $a", "time -p rm", "x |& rm", "((a=1)) && rm", "[[ x =~ x ]] && rm", "command -p rm", "exec -a x rm", "trap rm DEBUG; :", "PS4='$(rm)'; set -x; :", "a='$(rm)'; x \"${a@P}\"", "let 'a[$(rm)]=1'", "unset 'a[$(rm)]'", "x ${a[$(rm)]}", "function rm { x; }; command rm",
		"shopt -s expand_aliases\nalias a=rm\na", "hash -p $HOME/bin/rm x; x", "cd ..; bin/rm", "cd ../bin && ./rm", "PATH= ../bin/rm", "find . -maxdepth 0 -execdir rm \\;", "timeout 1 nice nohup rm", "x $'\\x60'rm$'\\x60'", "x `x \\`rm\\``", "x \"${a-`rm`}\"", "{ x; rm; } <&- 2>&-", "! { ! rm; }", "until ! rm; do x; done", "a=1 b=$(rm) x"} {
		f.Add(s)
	}
	b := newBashRunner(f)
	f.Fuzz(func(t *testing.T, command string) {
		if len(command) > 200 || strings.Contains(command, "\x00") {
			t.Skip()
		}
		s := shell.Analyze(command, b.env())
		called, err := b.run(command)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range called {
			r := &Rule{Tool: "Bash", Content: name + ":*"}
			if newJudgement(&Request{}, &noRules).mayRun(s, r) == no {
				t.Errorf("%q ran %s, which was not found", command, name)
			}
		}
		// A command that is proved to only print runs only programs that print.
		if quiet(s) && slices.ContainsFunc(called, func(name string) bool { return name != "cat" }) {
			t.Errorf("%q is said to have no effect, and ran %v", command, called)
		}
	})
}

// TestBashMade makes the same comparison for commands that are randomly composed from
// the grammar.
func TestBashMade(t *testing.T) {
	b := newBashRunner(t)
	words := []string{"rm", "touch a", `r\m`, "'rm' b", `$'r\x6d'`, "a=rm; $a", "{rm,x}", "x rm", "echo rm", "git rm", "x '$(rm)'", `x "$(rm)"`, "A=1 rm", "x >rm", "rm${IFS}x", "a=x; printf -va rm; $a", "a=x; read a <<< rm; $a", "set -- rm; $1", "a=(x rm); ${a[1]}", "a=xrm; ${a#x}", "xargs rm <<< a", "xargs -IR R <<< rm", "env rm", "nice rm", "b=a; a=rm; ${!b}", ": rm; $_", "{r,x}m", "find . -maxdepth 0 -exec rm {} +", "command -p rm", "touch rm; rm() { x; }; rm"}
	around := []string{"@; @", "@ && @", "x || @", "@ | @", "x $(@)", "x \"$(@)\"", "x <(@)", "if @; then @; fi", "{ @; }", "( @ )", "f() { @; }; f", "! @", "x ${u:-$(@)}", "cat <<E\n$(@)\nE\n", "cat <<'E'\n$(@)\nE\n", "for i in 1; do @; done",
		"case x in x) @;; esac", "[[ -z $(@) ]]", "x $(( 1 + $(@ >&2; echo 1) ))", "bash -c \"@\"", "eval \"@\"", "bash <<E\n@\nE\n", "u=$(@)", "while @; do break; done", "x # @", "until x; do @; done", "coproc { @; }; wait", "trap \"@\" EXIT",
		"bash < <(echo \"@\")", "bash 3<<< \"@\" <&3", "case x in x) x;;& *) @;; esac", "g() ( @ ); g", "@ &\nwait", "select s in 1; do @; break; done <<< 1", "x \"${u/x/$(@)}\"", "[[ x ]] && @", "time @", "exec 4< <(@); cat <&4", "a=($(@))", "declare v=$(@)", "bash -c '$0' rm; @", "{ @; } 2>&1 | x", "env -i PATH=\"$PATH\" LOG=\"$LOG\" bash -c \"@\"", "x \"`@`\"", "cat <<-E\n\t$(@)\n\tE\n", "while read l; do @; done <<< a", "printf -v v %s \"$(@)\""}
	seed := uint64(1)
	if n, err := strconv.ParseUint(os.Getenv("PARLEY_BASH_SEED"), 10, 64); err == nil {
		seed = n
	}
	r := rand.New(rand.NewPCG(seed, 2))
	var made func(depth int) string
	made = func(depth int) string {
		if depth == 0 {
			return words[r.IntN(len(words))]
		}
		text := around[r.IntN(len(around))]
		for strings.Contains(text, "@") {
			text = strings.Replace(text, "@", made(r.IntN(depth)), 1)
		}
		return text
	}
	found := 0
	rounds := 200
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		rounds = 5000
	}
	if n, err := strconv.Atoi(os.Getenv("PARLEY_BASH_ROUNDS")); err == nil {
		rounds = n
	}
	for range rounds {
		command := made(3)
		s := shell.Analyze(command, b.env())
		called, err := b.run(command)
		if err != nil {
			t.Fatal(err)
		}
		found += len(called)
		for _, name := range called {
			if newJudgement(&Request{}, &noRules).mayRun(s, &Rule{Tool: "Bash", Content: name + ":*"}) == no {
				t.Errorf("%q ran %s, which was not found", command, name)
			}
		}
	}
	t.Logf("%d commands ran %d programs", rounds, found)
	if found < rounds/2 {
		t.Errorf("only %d programs ran: the stubs do not work", found)
	}
}

// TestSubstitutionsAreFound puts substitutions of every kind into every place of the
// grammar that may expand them. Every program that bash runs there must be found.
// Without PARLEY_TEST_LONG each place gets one of them.
func TestSubstitutionsAreFound(t *testing.T) {
	b := newBashRunner(t)
	data, err := os.ReadFile("testdata/places.txt")
	if err != nil {
		t.Fatal(err)
	}
	kinds := []string{"$(rm)", "<(rm)", "${u:-$(rm)}", "`rm`", "'$(rm)'", ">(rm)", "${u:-<(rm)}", "$((1+$(rm)0))", "@($(rm))", "a\\\n$(rm)", `"$(rm)"`, "$'$(rm)'", `$"$(rm)"`, `\$(rm)`, `"${u:-'$(rm)'}"`, "a[$(rm)]"}
	places, played, ran := 0, 0, 0
	for place := range strings.Lines(string(data)) {
		if place = strings.ReplaceAll(strings.TrimSuffix(place, "\n"), `\n`, "\n"); strings.HasPrefix(place, "#") {
			continue
		}
		places++
		for i, kind := range kinds {
			if os.Getenv("PARLEY_TEST_LONG") == "" && i != places%len(kinds) {
				continue
			}
			command := strings.ReplaceAll(place, "@", kind)
			called, err := b.run(command + "\nwait")
			if err != nil {
				t.Fatal(err)
			}
			played++
			if slices.Contains(called, "rm") {
				ran++
			}
			s := shell.Analyze(command, b.env())
			for _, name := range slices.Compact(called) {
				if newJudgement(&Request{}, &noRules).mayRun(s, &Rule{Tool: "Bash", Content: name + ":*"}) == no {
					t.Errorf("%q ran %s, which was not found", command, name)
				}
			}
		}
	}
	t.Logf("%d commands of %d places, %d of them ran the substitution", played, places, ran)
	if ran < played/4 {
		t.Error("too few substitutions ran: the stubs do not work")
	}
}
