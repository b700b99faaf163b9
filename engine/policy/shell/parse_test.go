package shell

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A bashParser is a bash that parses commands and prints how it parsed them. It runs in a
// sandbox, because a command that ends the function around it is executed.
type bashParser struct {
	cmd  *exec.Cmd
	file string
	in   io.WriteCloser
	out  *bufio.Reader
}

// The parser reads a line, then a file of commands that each end with a zero byte. It answers
// each with the body of a function or nothing, and a zero byte. A command that ends the
// function around it may run forever, or end the shell: then the last answer is "-".
const parseLoop = `PATH=
while read -r; do
	mapfile -d '' -t commands </tmp/commands
	(
		ulimit -t 1
		for c in "${commands[@]}"; do
			unset -f f
			eval 'f() {
'"$c"'
}' && declare -f f
			printf '\0'
		done
	) </dev/null 2>/dev/null
	printf -- '-\0'
done`

func newBashParser(t testing.TB) *bashParser {
	file := filepath.Join(t.TempDir(), "commands")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
		"--ro-bind", file, "/tmp/commands", "--clearenv", "--chdir", "/tmp", "/bin/bash", "--noprofile", "--norc", "-c", parseLoop)
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
	return &bashParser{cmd: cmd, file: file, in: in, out: bufio.NewReader(out)}
}

func (p *bashParser) close() {
	p.in.Close()
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// parse calls yield with each command as bash parses it, or with false if bash rejects it. It
// returns how many it handled, because a command may end the shell.
func (p *bashParser) parse(commands []string, yield func(i int, body string, ok bool)) int {
	if err := os.WriteFile(p.file, []byte(strings.Join(commands, "\x00")+"\x00"), 0o600); err != nil {
		return 0
	}
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		return 0
	}
	for i := 0; ; i++ {
		text, err := p.out.ReadString(0)
		if err != nil || text == "-\x00" || i == len(commands) {
			return i
		}
		body, found := strings.CutPrefix(text, "f () \n{ \n")
		if !found {
			yield(i, "", false)
			continue
		}
		body, found = strings.CutSuffix(body, "\n}\n\x00")
		yield(i, body, found)
	}
}

// effectsOf formats the relevant effects of a script: programs with their arguments, files,
// and whether it is clear.
func effectsOf(s *Script) string {
	var b strings.Builder
	word := func(w Word) {
		for _, v := range w.Values() {
			if v.Pat == nil {
				fmt.Fprintf(&b, " %q", v.Text)
				continue
			}
			b.WriteString(" <")
			for _, r := range v.Pat {
				if r < 0 {
					fmt.Fprintf(&b, "%d", r)
				} else {
					b.WriteRune(r)
				}
			}
			b.WriteByte('>')
		}
	}
	for _, c := range s.Calls {
		if c.Guess {
			continue
		}
		b.WriteString("run")
		for _, a := range c.Args {
			word(a)
		}
		b.WriteByte('\n')
	}
	for _, f := range s.Files {
		if !f.Loose {
			b.WriteString(string(f.Kind))
			word(f.Word)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// TestBashReadsAlike compares the effects of randomly composed commands with those of the
// same commands as bash itself prints them after parsing. This finds a comment, a quote or a
// here-document that ends elsewhere for bash than for us. Commands that are unclear to us do
// not count.
func TestBashReadsAlike(t *testing.T) {
	if _, err := exec.LookPath("bwrap"); err != nil {
		t.Skip("bubblewrap is not installed")
	}
	rounds, seed := 2000, uint64(1)
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		rounds = 200_000
	}
	if n, err := strconv.Atoi(os.Getenv("PARLEY_PARSE_ROUNDS")); err == nil {
		rounds = n
	}
	if n, err := strconv.ParseUint(os.Getenv("PARLEY_PARSE_SEED"), 10, 64); err == nil {
		seed = n
	}
	p := newBashParser(t)
	defer func() { p.close() }()
	works := false
	p.parse([]string{"ls -l"}, func(_ int, _ string, ok bool) { works = ok })
	if !works {
		t.Skip("bubblewrap does not work here")
	}
	compared, rejected, unprintable, failures := 0, 0, 0, 0
	compare := func(command, body string, ours *Script) {
		theirs := Analyze(body, Env{Dir: "/w", Home: "/home/u"})
		if theirs.Unclear == notShell || theirs.Unclear == hasControls || strings.Contains(body, "time !") || strings.Contains(body, "time -p !") {
			unprintable++ // bash does not always print what it parsed
			if os.Getenv("PARLEY_PARSE_SHOW") != "" && strings.ContainsAny(command, "`(") {
				t.Logf("%q is printed as %q", command, body)
			}
			return
		}
		compared++
		if a, b := effectsOf(ours), effectsOf(theirs); a != b {
			failures++
			t.Errorf("bash reads %q otherwise: as %q\nours:\n%stheirs:\n%s", command, body, a, b)
			if failures > 10 {
				t.Fatal("and so on")
			}
		}
	}
	m := &commandMaker{r: rand.New(rand.NewPCG(seed, 77))}
	var commands []string
	var ours []*Script
	for made := range rounds {
		command := m.command()
		if parses(command) {
			if s := Analyze(command, Env{Dir: "/w", Home: "/home/u"}); s.Unclear == "" {
				commands, ours = append(commands, command), append(ours, s)
			}
		}
		if len(commands) < 200 && made < rounds-1 {
			continue
		}
		for len(commands) > 0 {
			n := p.parse(commands, func(i int, body string, ok bool) {
				if !ok {
					rejected++
					return
				}
				compare(commands[i], body, ours[i])
			})
			n = min(n+1, len(commands)) // skip the one that ended the shell
			commands, ours = commands[n:], ours[n:]
		}
	}
	t.Logf("%d made, %d compared, %d that bash rejects, %d that it prints wrongly", rounds, compared, rejected, unprintable)
	if compared < rounds/10 {
		t.Errorf("only %d of %d commands were compared", compared, rounds)
	}
}

// parses reports whether a command may be clear. Half of the generated commands are not, and
// this finds them faster.
func parses(command string) bool {
	if strings.ContainsFunc(command, isControl) {
		return false
	}
	text, ok := joinLines(command)
	if !ok {
		return false
	}
	parser := *newParser
	_, err := parser.Parse(strings.NewReader(text), "")
	return err == nil
}

// A commandMaker composes random commands: from pieces of the grammar, with inserted
// characters that are ambiguous.
type commandMaker struct{ r *rand.Rand }

func (m *commandMaker) pick(list []string) string { return list[m.r.IntN(len(list))] }

var (
	makerWords = []string{"a", "rm", "-x", "ls", "'q q'", `"d d"`, `"$v"`, "$v", "${v}", "${v:-x}", "${v#x}", "${#v}", `\ `, `\;`, `\\`, `\"`, `\'`, `"\$x"`, `"\""`,
		"'\\'", `"a'b"`, `'a"b'`, "$'a\\n'", `$"x"`, "#c", "a#b", `\#x`, "~", "~/x", "*", "?x", "[ab]", "[!a]", "{a,b}", "{1..3}", "{x", "x}", "$(ls a)", "`ls b`",
		"$((1+2))", "$((v<<2))", "<(ls c)", "@(a|b)", "!(a)", "a=b", "a+=c", "=", "==", "!", "!x", "$", "$$", "$?", "%", "^", ",", ":", "1", "2", "{}", "\"`ls d`\"",
		`"$(ls "e f")"`, `"${v:-"x"}"`, "${v/x/y}", "${v//\\//z}", "'", "\"", "-", "--", "é", "\u00a0", "\u2028", "x\ty", "then", "do", "in", "}", "{", "function", "time", "[[", "]]"}
	makerPrograms = []string{"a", "rm", "ls", "'q q'", `"d d"`, `\ls`, "l's'", "time", "!", "#c", "a#b", "é", "x}", "{x", "]]", "in", "-x", "/bin/ls", "~/x", "@(a|b)", "$v", "if", "$'a\\n'"}
	makerCommands = []string{"P", "P W", "P W W", "a=W P", "a=W", "P >W", "P 2>&1", "P <W", "P >>W 2>W", "P &>W", "P >|W", "P <<<W", "P 3<>W", "! P", "time P", "[[ W == W ]]", "[ W = W ]",
		"(( 1 < 2 ))", "a=(W W)", "a[1]=W", "P {fd}>W", "P W W W", "P W -W"}
	makerAround = []string{"@", "@; @", "@ && @", "@ || @", "@ | @", "@ |& @", "@\n@", "( @ )", "{ @; }", "if @; then @; fi", "if @; then @; elif @; then @; else @; fi", "while @; do @; done",
		"until @; do @; done", "for i in W W; do @; done", "for i; do @; done", "for ((i=0;i<2;i++)); do @; done", "case W in W) @;; esac", "case W in W|W) @;& (W) @;;& *) @;; esac",
		"P <<E\nW $(@)\nE\n@", "P <<'E'\nW $(@)\nE\n@", "P <<-E\n\tW\n\tE\n@", "P <<\"E F\"\nW\nE F\n@", "P <<E1 <<E2\nW\nE1\nW\nE2\n@", "g() { @; }; @", "function h { @; }", "g() ( @ )", "coproc @",
		"P $(@)", "P `@`", "P \"$(@)\"", "P <(@)", "a=$(@)", "P # @", "P #@\n@", "select i in W; do @; done", "@ &\n@", "[[ -n $(@) ]]", "P ${v:-$(@)}", "P $(W <<E\n@\nE\n)", "(( $(@) + 1 ))",
		"! @", "time -p @", "@;\n", "\n@", "\t@ ", "@ #\n@"}
	makerNoise = []string{"\\\n", "\\\n", "\\\n", "\n", " ", "\t", "\\", "'", "\"", "`", "$", "#", ";", "&", "|", "(", ")", "{", "}", "<", ">", "!", "*", "\r", "\v", "\x01", "\u00a0", "<<", "<<-", "$(", "${", "$((", "))", "((",
		"[[", "]]", "$'", "$\"", "\\'", "E", "=", "~", " #", "\\#", ";;", "esac", "done", "fi", "in ", "do ", "then ", "@(", "|&", "&>", ">&", "<&", ">|", "<<<", "<>"}
)

func (m *commandMaker) command() string {
	text := m.fill(m.r.IntN(4))
	for range m.r.IntN(4) {
		if m.r.IntN(3) == 0 {
			continue
		}
		at := m.r.IntN(len(text) + 1)
		text = text[:at] + m.pick(makerNoise) + text[at:]
	}
	return text
}

func (m *commandMaker) fill(depth int) string {
	if depth == 0 {
		return m.words(m.pick(makerCommands))
	}
	text := m.words(m.pick(makerAround))
	for strings.Contains(text, "@") {
		i := strings.IndexByte(text, '@')
		if strings.HasPrefix(text[i:], "@(") { // a pattern
			text = text[:i] + "\x00" + text[i+1:]
			continue
		}
		text = text[:i] + strings.ReplaceAll(m.fill(m.r.IntN(depth)), "@", "\x00") + text[i+1:]
	}
	return strings.ReplaceAll(text, "\x00", "@")
}

func (m *commandMaker) words(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case 'W':
			b.WriteString(m.pick(makerWords))
		case 'P':
			b.WriteString(m.pick(makerPrograms))
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

// TestOverlapFindsACommonText compares Overlap with a search for a text that both patterns match,
// for all short patterns of these characters.
func TestOverlapFindsACommonText(t *testing.T) {
	patterns := wordsOf([]rune{'a', '/', AnyText, AnyName, AnyOne}, 3)
	texts := wordsOf([]rune{'a', '/'}, 6)
	for _, a := range patterns {
		var common [][]rune
		for _, text := range texts {
			if matchesRunes(a, text) {
				common = append(common, text)
			}
		}
		for _, b := range patterns {
			want := slices.ContainsFunc(common, func(text []rune) bool { return matchesRunes(b, text) })
			if got := Overlap(a, b); got != want {
				t.Errorf("Overlap(%v, %v) = %v, want %v", a, b, got, want)
			}
		}
	}
}

// wordsOf returns all words of at most n of the given characters.
func wordsOf(chars []rune, n int) [][]rune {
	all := [][]rune{{}}
	for i := 0; i < len(all); i++ {
		if len(all[i]) == n {
			break
		}
		for _, c := range chars {
			all = append(all, append(slices.Clone(all[i]), c))
		}
	}
	return all
}

// matchesRunes reports whether a pattern matches a text.
func matchesRunes(pat, text []rune) bool {
	switch {
	case len(pat) == 0:
		return len(text) == 0
	case isStar(pat[0]) && matchesRunes(pat[1:], text):
		return true
	case len(text) == 0 || !fits(pat[0], text[0]):
		return false
	case isStar(pat[0]):
		return matchesRunes(pat, text[1:])
	}
	return matchesRunes(pat[1:], text[1:])
}
