//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/parley-go/parley/internal/testwait"
)

// A keyboard is this program in a terminal, with a person in front of it.
type keyboard struct {
	t    *testing.T
	tty  *os.File
	cmd  *exec.Cmd
	home string

	mu   sync.Mutex
	out  string
	seen int // how much of out was already matched
	eof  chan struct{}
}

// sit starts the program in a terminal with a scripted model.
func sit(t *testing.T, home, script string, args ...string) *keyboard {
	t.Helper()
	file := filepath.Join(t.TempDir(), "model.script")
	if err := os.WriteFile(file, []byte(script), 0o666); err != nil {
		t.Fatal(err)
	}
	return sitAt(t, home, append([]string{"--plain", "--provider", "script", "--script", file}, args...)...)
}

func sitAt(t *testing.T, home string, args ...string) *keyboard {
	t.Helper()
	self, err := exec.LookPath("parley")
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TERM=xterm", "TMPDIR=" + t.TempDir(), "GORACE=atexit_sleep_ms=0"}
	if n := len(args) - 1; args[n] == "TERM=dumb" { // instead of --plain
		env = append(env, args[n])
		args = args[1:n]
	}
	return sitWith(t, self, home, env, args...)
}

// sitWith starts a program in a terminal with an environment.
func sitWith(t *testing.T, self, home string, env []string, args ...string) *keyboard {
	t.Helper()
	k := &keyboard{t: t, cmd: exec.Command(self, args...), home: home, eof: make(chan struct{})}
	k.cmd.Dir, k.cmd.Env = home, env
	var err error
	k.tty, err = pty.StartWithSize(k.cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		t.Skip("no terminal can be had here: ", err)
	}
	go func() {
		defer close(k.eof)
		buf := make([]byte, 4096)
		for {
			n, err := k.tty.Read(buf)
			k.mu.Lock()
			k.out += string(buf[:n])
			k.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		k.cmd.Process.Kill()
		k.tty.Close()
		if <-k.eof; t.Failed() {
			t.Logf("the screen, from where it was waited for:\n%q", k.out[k.seen:])
		}
	})
	return k
}

// see waits until a text is on the screen that was not matched before.
func (k *keyboard) see(text string) {
	k.t.Helper()
	ended := false
	testwait.Until(k.t, fmt.Sprintf("%q on the screen", text), func() bool {
		select {
		case <-k.eof:
			ended = true
		default:
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		i := strings.Index(k.out[k.seen:], text)
		if i < 0 && ended {
			k.t.Fatalf("%q is not on the screen, only\n%s", text, k.out[k.seen:])
		}
		if i >= 0 {
			k.seen += i + len(text)
		}
		return i >= 0
	})
}

func (k *keyboard) typeIn(text string) {
	k.t.Helper()
	if _, err := k.tty.WriteString(text); err != nil {
		k.t.Fatal(err)
	}
}

// ends waits for the end, and returns the exit status and the text on the screen.
func (k *keyboard) ends() (int, string) {
	k.t.Helper()
	testwait.Until(k.t, "the end of the program", func() bool {
		select {
		case <-k.eof:
			return true
		default:
			return false
		}
	})
	var exit *exec.ExitError
	if err := k.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		k.t.Fatal(err)
	}
	p := &paper{}
	if err := p.write(strings.ReplaceAll(k.out, "\a", "")); err != nil {
		k.t.Errorf("%v in %q", err, k.out)
	}
	return k.cmd.ProcessState.ExitCode(), p.String()
}

const (
	ctrlC = "\x03"
	ctrlD = "\x04"
)

// wants checks that lines are present, in this order.
func wants(t *testing.T, screen string, lines ...string) {
	t.Helper()
	rest := "\n" + screen
	for _, l := range lines {
		_, after, ok := strings.Cut(rest, "\n"+l)
		if !ok {
			t.Errorf("%q is not on the screen, or not where it should be:\n%s", l, screen)
			return
		}
		rest = "\n" + after
	}
}

func TestTerminalPrompt(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "notes.txt"), []byte("one\ntwo\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	k := sit(t, home, `
turn
	expect user what is
	pause 300ms
	say "I look " "at it.\x1b[31m\u202e"
	call Read {"file_path": "notes.txt"}
turn
	pause 1200ms
	say Two numbers.
`, "-p", "what is in notes.txt?")
	k.see("Thinking")
	k.see("Thinking\x1b[2m 1s")
	status, screen := k.ends()
	if status != 0 {
		t.Errorf("exit status %d", status)
	}
	wants(t, screen, `I look at it.\x1b[31m\u202e`, "", "✓ Read notes.txt · ", "", "Two numbers.", "", "✓ 2 turns · ")
	if strings.Contains(screen, "Thinking") {
		t.Errorf("the indicator stayed:\n%s", screen)
	}
}

// TestTerminalPromptRendersMarkdown checks that a prompt of the command line is answered with the
// renderer of the screen: Markdown is rendered, and the text after a paragraph that was cut off
// follows it. Into a pipe it is written verbatim.
func TestTerminalPromptRendersMarkdown(t *testing.T) {
	home := t.TempDir()
	script := `
turn
	say "# Title\n\nSome **bold** text and ` + "`code`" + `.\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nThe " "end"
`
	k := sit(t, home, script, "-p", "hello")
	status, screen := k.ends()
	if status != 0 {
		t.Errorf("exit status %d", status)
	}
	wants(t, screen, "Title", "", "Some bold text and code.", "", "The end", "", "✓ 1 turn · ")
	for _, raw := range []string{"**", "|---|", "# Title", "Writing"} {
		if strings.Contains(screen, raw) {
			t.Errorf("%q is on the screen:\n%s", raw, screen)
		}
	}
	self, err := exec.LookPath("parley")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(home, "s")
	if err := os.WriteFile(file, []byte(script), 0o666); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-p", "hi", "--provider", "script", "--script", file)
	cmd.Env = append(os.Environ(), "HOME="+home)
	if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), "# Title\n\nSome **bold** text") {
		t.Errorf("into a pipe: %q, %v", out, err)
	}
}

func TestTerminalPromptFails(t *testing.T) {
	k := sit(t, t.TempDir(), "turn\n\tfail 401 no such key\n", "-p", "hello")
	status, screen := k.ends()
	if status != 1 || !strings.Contains(screen, "no such key") || !strings.Contains(screen, "✗ ") {
		t.Errorf("exit status %d\n%s", status, screen)
	}
	k = sitAt(t, t.TempDir(), "-p", "hello", "--provider", "script", "--script", "nowhere")
	if status, screen := k.ends(); status != 1 || !strings.Contains(screen, "nowhere") {
		t.Errorf("exit status %d\n%s", status, screen)
	}
	k = sitAt(t, t.TempDir(), "--plain", "--provider", "script", "--script", "nowhere")
	if status, screen := k.ends(); status != 1 || !strings.Contains(screen, "nowhere") {
		t.Errorf("exit status %d\n%s", status, screen)
	}
}

func TestNoColor(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(file, []byte("turn\n\tsay Hello.\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	self, err := exec.LookPath("parley")
	if err != nil {
		t.Fatal(err)
	}
	for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
		cmd := exec.Command("env", env, self, "-p", "hi", "--provider", "script", "--script", file)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		tty, err := pty.Start(cmd)
		if err != nil {
			t.Skip(err)
		}
		var out strings.Builder
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			out.Write(buf[:n])
			if err != nil {
				break
			}
		}
		tty.Close()
		if err := cmd.Wait(); err != nil || strings.Contains(out.String(), "m") && strings.Contains(out.String(), "\x1b[3") || !strings.Contains(out.String(), "Hello.") {
			t.Errorf("%s: %v %q", env, err, out.String())
		}
	}
}

// TestMissingSessionIsReportedOnce resumes a session that does not exist.
func TestMissingSessionIsReportedOnce(t *testing.T) {
	for _, args := range [][]string{{"-p", "--resume", "nope", "hi"}, {"--resume", "11111111-1111-4111-8111-111111111111"}} {
		k := sit(t, t.TempDir(), "turn\n\tsay Hello.\n", args...)
		status, screen := k.ends()
		if n := strings.Count(screen, "No conversation found"); n != 1 || status != 1 || strings.Contains(screen, "tokens") {
			t.Errorf("%v: printed %d times, exit status %d: %s", args, n, status, screen)
		}
	}
}

func TestConversation(t *testing.T) {
	home := t.TempDir()
	k := sit(t, home, `
turn
	expect user = "first\nsecond"
	say Both lines came.
turn
	expect user run it
	call Bash <<END
{"command": "printf 'one\ttwo\\n' # \u001b[2K\u202e"}
END
	call Bash {"command": "touch made.txt"}
turn
	expect result one
	expect tool-error not in here
	call Edit {"file_path": "a.txt", "old_string": "", "new_string": "x\ny\n"}
turn
	expect result a.txt
	call Edit {"file_path": "b.txt", "old_string": "", "new_string": "z\n"}
turn
	expect result b.txt
	say Done.
turn
	expect user stall
	say "Working\n\nand"
	stall
turn
	expect user still there
	say Yes.
`)
	k.see("> ")
	k.typeIn("first\\\n")
	k.see("… ")
	k.typeIn("second\n")
	k.see("Both lines came.")
	k.see("✓ ")
	k.see("> ")

	k.typeIn("run it\n")
	k.see("May it run this command?")
	k.see(`printf 'one two\n' # \x1b[2K\u202e`)
	k.see("y = ")
	k.see("answer > ")
	k.typeIn("what\n")
	k.see("y = ")
	k.see("answer > ")
	k.typeIn("y\n")
	k.see("May it run this command?")
	k.see("touch made.txt")
	k.see("answer > ")
	k.typeIn("n, not in here\n")
	k.see("May it edit a.txt?")
	k.see("+ ")
	k.see("edit files here without asking")
	k.see("answer > ")
	k.typeIn("a\n")
	k.see("Edit")
	k.see("a.txt")
	k.see("Done.") // b.txt needed no permission
	k.see("> ")

	k.typeIn("stall\n")
	k.see("Working")
	k.typeIn(ctrlC)
	k.see("interrupted")
	k.see("> ")

	k.typeIn("still there?\n")
	k.see("Yes.")
	k.see("> ")
	k.typeIn(ctrlC)
	k.see("Ctrl-C again leaves")
	k.see("> ")
	k.typeIn(ctrlD)
	status, screen := k.ends()
	if status != 0 {
		t.Errorf("exit status %d", status)
	}
	wants(t, screen, "parley ", "> first", "… second", "", "Both lines came.", "", "✓ 1 turn · ",
		"> run it", "", "? May it run this command?", "✓ Bash printf", "✗ Bash touch made.txt · ", "✓ Edit a.txt", "✓ Edit b.txt", "", "Done.",
		"> stall", "Working", "✗ interrupted", "> still there?", "", "Yes.", "To continue: parley --continue")
	if _, err := os.Stat(filepath.Join(home, "made.txt")); err == nil {
		t.Error("what was denied was done")
	}
	if text, err := os.ReadFile(filepath.Join(home, "b.txt")); err != nil || string(text) != "z\n" {
		t.Errorf("b.txt: %q, %v", text, err)
	}

	// It continues where it was.
	k = sit(t, home, `
turn
	expect first-user "first\nsecond"
	expect user and now
	say We were at the end.
`, "--continue")
	k.see("> ")
	k.typeIn("and now?\n")
	k.see("We were at the end.")
	k.see("> ")
	k.typeIn("/exit\n")
	if status, screen := k.ends(); status != 0 {
		t.Errorf("exit status %d\n%s", status, screen)
	}
}

// TestTwoInterrupts ends the program in the middle of a turn, and of a question.
func TestTwoInterrupts(t *testing.T) {
	for name, script := range map[string]string{
		"turn":     "turn\n\tsay \"Working\\n\\nand\"\n\tstall\n",
		"tool":     "turn\n\tsay \"Working\\n\\nand\"\n\tcall Bash {\"command\": \"sleep 60\"}\n",
		"question": "turn\n\tsay \"Working\\n\\nand\"\n\tcall Bash {\"command\": \"touch x\"}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := sit(t, t.TempDir(), script, "--allowedTools", "Bash(sleep:*)")
			k.see("> ")
			k.typeIn("go\n")
			k.see("Working")
			if name == "question" {
				k.see("answer > ")
			}
			k.typeIn(ctrlC)
			k.see("^C") // two that are pending count as one
			k.typeIn(ctrlC)
			// On a busy machine they may still count as one, or be too far apart: then the program
			// waits for the next prompt, and this ends it. It does not end a turn that continues.
			k.tty.Write([]byte(ctrlD))
			if status, screen := k.ends(); status != 0 && status != 130 {
				t.Errorf("exit status %d\n%s", status, screen)
			}
		})
	}
}

func TestTerminated(t *testing.T) {
	k := sit(t, t.TempDir(), "turn\n\tsay \"Working\\n\\nand\"\n\tstall\n", "go")
	k.see("Working")
	k.cmd.Process.Signal(syscall.SIGTERM)
	if status, screen := k.ends(); status != 143 {
		t.Errorf("exit status %d\n%s", status, screen)
	}
}

// TestTypedAhead types an answer before the question: it is a prompt, not an answer.
func TestTypedAhead(t *testing.T) {
	home := t.TempDir()
	k := sit(t, home, `
turn
	say "Wait\n\nnow"
	call Bash {"command": "until test -e gate; do sleep 0.05; done"}
turn
	call Bash {"command": "touch made.txt"}
turn
	expect user y
	expect tool-error
	say "Not made. You said y."
or
	expect tool-error
	say Not made.
turn
	expect user y
	say You said y.
`, "--allowedTools", "Bash(until:*),Bash(sleep:*),Bash(test:*)")
	k.see("> ")
	k.typeIn("go\n")
	k.see("Wait")
	k.typeIn("y\n")
	k.see("(queued)")
	put(t, filepath.Join(home, "gate"), "")
	k.see("answer > ")
	k.typeIn("n\n")
	k.see("Not made.")
	k.see("You said y.") // in this turn, or in one of its own if it arrived late
	k.see("> ")
	k.typeIn(ctrlD)
	if status, screen := k.ends(); status != 0 {
		t.Errorf("exit status %d\n%s", status, screen)
	}
	if _, err := os.Stat(filepath.Join(home, "made.txt")); err == nil {
		t.Error("what was typed before the question answered it")
	}
}

func TestDemoAsks(t *testing.T) {
	k := sitAt(t, t.TempDir(), "demo", "--ask")
	k.see("n and why) > ")
	k.typeIn("y\n")
	status, screen := k.ends()
	if status != 0 {
		t.Errorf("exit status %d", status)
	}
	wants(t, screen, "✓ Edit split.sh · +1 −1", "✓ Bash sh test.sh · 3 of 3 tests pass", "", "Fixed.")

	k = sitAt(t, t.TempDir(), "demo", "--ask")
	k.see("n and why) > ")
	k.typeIn("n\n")
	status, screen = k.ends()
	if status != 0 {
		t.Errorf("exit status %d", status)
	}
	wants(t, screen, "✗ Edit split.sh · The user said no.", "", "All right, split.sh stays as it is.")
}

// TestNoKey checks that a person who starts a conversation without credentials sees what to do,
// and no screen that cannot answer.
func TestNoKey(t *testing.T) {
	for _, args := range [][]string{{"--verbose"}, {"--plain"}, {"a prompt"}} {
		status, screen := sitAt(t, t.TempDir(), args...).ends()
		if status != 1 {
			t.Errorf("%q: exit status %d, want 1", args, status)
		}
		for _, want := range []string{"three ways forward", "export ANTHROPIC_API_KEY=", "--provider openai --base-url http://127.0.0.1:11434/v1", "parley demo", "parley doctor"} {
			if !strings.Contains(screen, want) {
				t.Errorf("%q: %q is missing in\n%s", args, want, screen)
			}
		}
	}
}

// TestCommandsForProgramsExplainThemselves checks that a person who types a command for other programs sees what it
// waits for, and can end it.
func TestCommandsForProgramsExplainThemselves(t *testing.T) {
	for who, args := range map[string][]string{"an editor": {"acp"}, "a program": {"rpc"}, "an MCP client": {"mcp", "serve"}} {
		k := sitAt(t, t.TempDir(), args...)
		k.see("waiting for " + who)
		k.typeIn("\x03")
		k.ends()
	}
}

func TestWithFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-p hello", "-p hello X"},
		{"-p -- hello -x", "-p X -- hello -x"},
		{"--system-prompt -- -p -- hi", "--system-prompt -- -p X -- hi"},
		{"", "X"},
	} {
		if got := strings.Join(withFlags(strings.Fields(c.args), "X"), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.args, got, c.want)
		}
	}
}
