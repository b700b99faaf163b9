//go:build unix

package terminal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/parley-go/parley/internal/testwait"
)

func TestEmacsKeysAndUndo(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(80, 24, `
turn
	expect user = "hello wörld 日本 end\nsecond"
	say First.
turn
	expect user = "one\ntwo\nthree"
	say Second.
`)
	p.see("\n>")
	p.typeText("wörld 日本")
	p.keys("C-a")
	p.typeText("hello ")
	p.keys("C-e")
	p.typeText(" gone")
	p.see("> hello wörld 日本 gone")
	p.keys("C-w")
	p.see("> hello wörld 日本\n")
	p.keys("C-y")
	p.see("日本 gone")
	p.keys("C-_") // undo the yank
	p.see("> hello wörld 日本\n")
	p.typeText("endx")
	p.keys("BSpace", "M-b", "Left", "Right", "C-e", "M-Enter")
	p.typeText("second")
	p.see("日本 end\n  second")
	p.keys("Enter")
	p.see("First.")
	p.idle()
	p.typeText(`one\`)
	p.keys("Enter")
	p.typeText("two")
	p.keys("S-Enter")
	p.typeText("three")
	p.see("> one\n  two\n  three")
	p.keys("Enter")
	p.see("Second.")
	p.keys("C-d")
	p.see("exit status 0")
}

// TestHistory recalls prompts, including those of an earlier session in the same directory.
func TestHistory(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(80, 24, "turn\n\ttimes 2\n\tsay Answer.\n")
	p.enter("first prompt")
	p.see("Answer.")
	p.idle()
	p.enter("second prompt")
	p.until("two answers", func(s string) bool { return strings.Count(s, "✓ 1 turn") == 2 })
	p.typeText("draft")
	p.keys("Up", "Up")
	p.see("\n> first prompt\nclaude")
	p.keys("Down", "Down")
	p.see("\n> draft\n")
	p.keys("C-c", "C-d")
	p.see("exit status 0")
	p.tmux("kill-server")

	p.start(80, 24, "turn\n\texpect user = first prompt\n\tsay Found again.\n")
	p.see("\n>")
	p.keys("C-r")
	p.typeText("first")
	p.see("search: first   first prompt")
	p.keys("Enter")
	p.see("Found again.")
}

func TestPastes(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 600)
	var many []string
	for i := range 50 {
		many = append(many, fmt.Sprintf("pasted line %d", i))
	}
	p := newPane(t)
	p.start(80, 24, fmt.Sprintf(`
turn
	expect user = "one\ntwo\nthree"
	say Three lines are one prompt.
turn
	expect user = %q
	say Nothing was cut.
turn
	expect user = %q
	say The whole paste.
`, long, "look: "+strings.Join(many, "\n")+" please"))
	p.see("\n>")
	p.paste("one\ntwo\nthree\n")
	p.see("> one\n  two\n  three")
	p.keys("Enter")
	p.see("Three lines are one prompt.")
	p.idle()
	p.paste(long)
	p.see("[Pasted #1: 6000 characters]")
	p.keys("Enter")
	p.see("Nothing was cut.")
	p.idle()
	p.typeText("look: ")
	p.paste(strings.Join(many, "\n"))
	p.typeText(" please")
	p.see("> look: [Pasted #2: 50 lines] please")
	p.keys("Enter")
	p.see("The whole paste.")
	if all := p.all(); strings.Contains(all, "pasted line 3") {
		t.Errorf("the paste was printed:\n%s", all)
	}
}

// TestUnknownCommandIsNotSent types an unknown command: it gets a suggestion, and nothing is
// sent to the model.
func TestUnknownCommandIsNotSent(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write(".claude/commands/deploy.md", "---\ndescription: Ships it\nargument-hint: \"[where]\"\n---\nDeploy to $ARGUMENTS.")
	p.start(80, 24, "turn\n\texpect user Deploy to production\n\tsay Shipped.\n")
	p.see("\n>")
	p.typeText("/dep")
	p.see("❯ /deploy [where]", "Ships it")
	p.keys("Escape")
	p.gone("Ships it")
	p.typeText("oly")
	p.keys("Enter")
	p.see("There is no command /depoly, and nothing was sent. Did you mean /deploy?", "\n> /deploy")
	p.typeText(" production")
	p.keys("Enter")
	p.see("Shipped.")
	p.idle()
	p.typeText("/usr/lib is a path")
	p.see("> /usr/lib is a path")
	p.keys("C-c")
	p.typeText("/")
	p.see("❯ /clear", "/compact")
}

func TestFileMenu(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write("notes/plan.txt", "x")
	p.write("other.go", "x")
	p.start(80, 24, "turn\n\texpect user look at @notes/plan.txt now\n\tsay Seen.\n")
	p.see("\n>")
	p.typeText("look at @plan")
	p.see("❯ notes/plan.txt")
	p.keys("Tab")
	p.see("> look at @notes/plan.txt")
	p.typeText("now")
	p.keys("Enter")
	p.see("Seen.")
}

func TestCommandsAndMemory(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write("CLAUDE.md", "Rules")
	p.start(80, 24, `
turn
	expect user I ran this command myself: echo out; exit 3
	expect user exit 3
	expect user what happened
	say You ran it.
`)
	p.see("\n>")
	p.typeText("!echo out; exit 3")
	p.keys("Enter")
	p.see("! echo out; exit 3\n  out\n  exit 3")
	p.enter("what happened?")
	p.see("You ran it.")
	p.idle()
	p.typeText("# always use tabs")
	p.keys("Enter")
	p.see("Where should it remember this?", "1  this project: ~/CLAUDE.md")
	p.keys("1")
	p.see("remembered in ~/CLAUDE.md: always use tabs")
	if got := p.read("CLAUDE.md"); got != "Rules\n- always use tabs\n" {
		t.Errorf("CLAUDE.md is %q", got)
	}
}

// TestOwnCommandEnds interrupts a command of the person, with Esc and with Ctrl-C: all its processes end.
func TestOwnCommandEnds(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(80, 24, "turn\n\texpect user interrupted\n\tsay You stopped it.\n")
	p.see("\n>")
	for i, key := range []string{"Escape", "C-c"} {
		name := fmt.Sprintf("pid%d", i)
		p.enter("!sh -c 'echo $$ > " + name + "; exec sleep 1000' | cat")
		p.see("Running sh -c", "Esc interrupts")
		testwait.Until(t, "the command runs", func() bool { return strings.HasSuffix(p.read(name), "\n") })
		p.keys(key)
		p.idle()
		pid, _ := strconv.Atoi(strings.TrimSpace(p.read(name)))
		testwait.Until(t, "the end of the command", func() bool { return syscall.Kill(pid, 0) != nil })
	}
	p.enter("why?")
	p.see("You stopped it.")
	p.idle()
	wantLines(t, p.all(), "! sh -c 'echo $$ > pid0", "  interrupted", "! sh -c 'echo $$ > pid1", "  interrupted", "> why?")
}

// TestOwnCommandDuringTurn runs a command of the person while a turn is running: the turn continues to be
// shown, and Esc still interrupts it.
func TestOwnCommandDuringTurn(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(80, 24, "turn\n\tsay Working.\n\tcall Bash {\"command\": \"until test -e gate; do sleep 0.05; done\"}\nturn\n\tsay Next.\n\tstall\n", "--allowedTools", "Bash")
	p.enter("go")
	p.see("● Bash until test -e gate")
	p.enter("!echo mine")
	p.see("! echo mine\n  mine", "● Bash until test -e gate", "Esc interrupts")
	p.write("gate", "")
	p.see("✓ Bash until test -e gate", "Next.")
	p.enter("!echo yours")
	p.see("! echo yours\n  yours", "Esc interrupts")
	p.keys("Escape")
	p.see("✗ interrupted")
}

// TestTypedAhead queues prompts while a turn is running, drops one, and runs the other.
func TestTypedAhead(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	fifo := filepath.Join(p.home, "gate")
	p.start(80, 24, `
turn
	say Working.
	call Bash {"command": "until test -e gate; do sleep 0.05; done", "description": "waits"}
turn
	expect user next please
	say Next is done.
`, "--allowedTools", "Bash,Edit,Read")
	p.enter("go")
	p.see("Working.", "● Bash until test -e gate")
	p.typeText("next please")
	p.keys("Enter")
	p.see("> next please  (queued)")
	p.typeText("not this")
	p.keys("Enter")
	p.see("> not this  (queued)")
	p.keys("Escape")
	p.until("the prompt is in the editor again", func(s string) bool {
		return !strings.Contains(s, "not this  (queued)") && strings.Contains(s, "\n> not this")
	})
	p.keys("C-c")
	if err := os.WriteFile(fifo, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	p.see("Next is done.")
	p.idle()
	wantLines(t, p.all(), "> go", "Working.", "✓ Bash", "> next please", "Next is done.")
}

func TestEscInterrupts(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(80, 24, "turn\n\tsay Working\n\tstall\nturn\n\tsay Still here.\n")
	p.enter("go")
	p.see("Working", "Esc interrupts")
	p.keys("Escape")
	p.see("✗ interrupted")
	p.idle()
	p.enter("again")
	p.see("Still here.")
	p.idle()
	p.keys("C-c")
	p.see("Ctrl-C again leaves")
	p.keys("C-c")
	p.see("exit status 0")
}

// TestLeaveDuringFirstTurn checks that a person who leaves before the first answer is complete learns how
// to return to the session.
func TestLeaveDuringFirstTurn(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(80, 24, "turn\n\tsay Working\n\tstall\n")
	p.enter("go")
	p.see("Working", "Esc interrupts")
	p.keys("C-d")
	p.see("exit status 0", "parley --resume")
}

// TestRewind goes back to the point before a prompt: conversation and files.
func TestRewind(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write("a.txt", "old\n")
	p.start(80, 24, `
turn
	expect user = one
	say One.
or
	expect user = other way
	expect first-user one
	expect not field messages two
	say Three.
turn
	call Read {"file_path": "a.txt"}
turn
	call Edit {"file_path": "a.txt", "old_string": "old", "new_string": "new"}
turn
	say Two.
`, "--allowedTools", "Bash,Edit,Read")
	p.enter("one")
	p.see("One.")
	p.idle()
	p.enter("two")
	p.see("Two.")
	p.idle()
	p.keys("Escape")
	p.see("Esc again goes back")
	p.keys("Escape")
	p.see("Go back to the moment before a prompt", "❯ two")
	p.keys("Enter")
	p.see("conversation and files")
	p.keys("b")
	p.see("1 file was restored", "continues from an earlier message", "\n> two")
	if got := p.read("a.txt"); got != "old\n" {
		t.Errorf("a.txt is %q", got)
	}
	p.keys("C-c")
	p.enter("other way")
	p.see("Three.")
}

func TestModesAndHelp(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(80, 24, "turn\n\tsay Hi.\n")
	p.see("\n>")
	p.keys("BTab")
	p.see("accepts edits")
	p.keys("BTab")
	p.see("plan mode")
	p.keys("?")
	p.see("Ctrl-R: search the history", "Shift-Tab: next permission mode")
	p.keys("Escape")
	p.gone("Ctrl-R: search")
}

func TestExternalEditor(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write("edit.sh", "#!/bin/sh\necho added >> \"$1\"\n")
	if err := os.Chmod(filepath.Join(p.home, "edit.sh"), 0o777); err != nil {
		t.Fatal(err)
	}
	p.env = []string{"EDITOR=./edit.sh"}
	p.start(80, 24, "turn\n\texpect user = \"typed\\nadded\"\n\tsay Edited.\n")
	p.see("\n>")
	p.typeText("typed")
	p.see("> typed")
	p.typeText("\n")
	p.see("> typed\n")
	p.keys("C-g")
	p.see("  added")
	p.keys("Enter")
	p.see("Edited.")
}

// onePixel is a picture.
const onePixel = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde\x00\x00\x00\x0cIDATx\x9cc\xf8\xcf\xc0\x00\x00\x03\x01\x01\x00\xc9\xfe\x92\xef\x00\x00\x00\x00IEND\xaeB`\x82"

// TestImages sends a picture by its path.
func TestImages(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write("pic.png", onePixel)
	p.start(80, 24, "turn\n\texpect field messages image/png\n\texpect user what is\n\tsay A picture.\n")
	p.see("\n>")
	p.typeText("what is ")
	p.paste(filepath.Join(p.home, "pic.png"))
	p.see("[Image #1: pic.png]")
	p.keys("Enter")
	p.see("A picture.")
}

// clipboard puts a picture into the clipboard. With waits it can be read only after the
// returned function was called.
func (p *pane) clipboard(waits bool) (release func()) {
	p.t.Helper()
	p.write("pic.png", onePixel)
	script := "#!/bin/sh\n"
	if waits {
		gate := filepath.Join(p.home, "gate")
		if err := syscall.Mkfifo(gate, 0o600); err != nil {
			p.t.Fatal(err)
		}
		f, err := os.OpenFile(gate, os.O_RDWR, 0)
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { f.Close() })
		release = func() { f.WriteString("open\n") }
		script += ": > \"$HOME/reads\"; read line < \"$HOME/gate\"\n"
	}
	p.write("bin/wl-paste", script+"cat \"$HOME/pic.png\"\n")
	if err := os.Chmod(filepath.Join(p.home, "bin/wl-paste"), 0o777); err != nil {
		p.t.Fatal(err)
	}
	p.env = append(p.env, "PATH="+filepath.Join(p.home, "bin")+":"+os.Getenv("PATH"))
	return release
}

// TestClipboardImage sends a picture from the clipboard, after the prompt was in an editor. It
// comes back with the prompt from the history.
func TestClipboardImage(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.clipboard(false)
	p.write("edit.sh", "#!/bin/sh\necho added >> \"$1\"\n")
	if err := os.Chmod(filepath.Join(p.home, "edit.sh"), 0o777); err != nil {
		t.Fatal(err)
	}
	p.env = append(p.env, "EDITOR=./edit.sh")
	p.start(80, 24, "turn\n\texpect field messages image/png\n\texpect user what is\n\tsay A picture.\n")
	p.see("\n>")
	p.typeText("what is ")
	p.see("> what is")
	p.keys("C-v")
	p.see("> what is [Image #1]")
	p.keys("C-g")
	p.see("> what is [Image #1]added")
	p.keys("Enter")
	p.see("A picture.")
	p.idle()
	p.keys("Up", "C-e", "BSpace", "BSpace", "BSpace", "BSpace", "BSpace", "BSpace") // a picture is one character
	p.typeText("that")
	p.see("\n> what is that")
}

// TestSlowClipboard sends the prompt while the picture is still being read: it is part of this
// prompt, and of no later one.
func TestSlowClipboard(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	release := p.clipboard(true)
	p.start(80, 24, "turn\n\texpect field messages image/png\n\texpect user in it\n\tsay A picture.\n")
	p.see("\n>")
	p.typeText("what is ")
	p.see("> what is")
	p.keys("C-v")
	p.until("the clipboard is read", func(string) bool {
		_, err := os.Stat(filepath.Join(p.home, "reads"))
		return err == nil
	})
	p.typeText(" in it")
	p.keys("Enter")
	p.typeText("later")
	release()
	p.see("> what is [Image #1] in it", "A picture.", "> later")
}

// TestSuspend presses Ctrl-Z: the shell has the terminal until it continues the program.
func TestSuspend(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write("model.script", "turn\n\texpect user = draft and more\n\tsay Still here.\n")
	p.write("run.sh", "exec "+parleyPath+" --provider script --script model.script\n")
	p.env = []string{"PS1=shell:", "ENV="}
	p.run(80, 24, "sh", "-i")
	p.see("shell:")
	p.typeText("sh run.sh\n")
	p.see("\n>")
	p.typeText("draft")
	p.see("> draft")
	p.keys("C-z")
	p.gone("> draft")
	p.see("shell:\n")
	p.typeText("stty -a | grep -c -e -icanon; echo $((40+2))\n")
	p.see("\n0\n42\n")
	p.typeText("fg\n")
	p.see("> draft")
	p.typeText(" and more")
	p.see("> draft and more")
	p.keys("Enter")
	p.see("Still here.")
	p.idle()
	p.keys("C-d") // and is gone before its home is
	p.until("the shell is back", func(s string) bool { return strings.HasSuffix(strings.TrimSpace(s), "shell:") })
}

// TestStopped stops the program with a signal that it does not see. When the shell continues it, keys work as before.
func TestStopped(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write("model.script", "turn\n\texpect user = draft and less\n\tsay Still here.\n")
	p.write("run.sh", "echo $$ > pid; exec "+parleyPath+" --provider script --script model.script\n")
	p.env = []string{"PS1=shell:"}
	p.run(80, 24, "bash", "--norc", "--noprofile", "-i")
	p.see("shell:")
	p.typeText("sh run.sh\n")
	p.see("\n>")
	p.typeText("draft")
	p.see("> draft")
	text, err := os.ReadFile(filepath.Join(p.home, "pid"))
	pid, err2 := strconv.Atoi(strings.TrimSpace(string(text)))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.see("Stopped", "\nshell:")
	p.typeText("fg\n")
	p.until("the prompt is back", func(s string) bool { return strings.Count(s, "> draft") == 2 })
	p.typeText(" and more")
	p.keys("BSpace", "BSpace", "BSpace", "BSpace")
	p.typeText("less")
	p.keys("Enter")
	p.see("Still here.")
	p.idle()
	p.keys("C-d")
	p.until("the shell is back", func(s string) bool { return strings.HasSuffix(strings.TrimSpace(s), "shell:") })
}

// TestCtrlJ starts a new line.
func TestCtrlJ(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.start(80, 24, "turn\n\texpect user = \"one\\ntwo\"\n\tsay Two lines.\n")
	p.see("\n>")
	p.typeText("one")
	p.keys("C-j")
	p.typeText("two")
	p.see("> one\n  two")
	p.keys("Enter")
	p.see("Two lines.")
}

// TestPrintAtTerminal prints an answer at a terminal, rendered, and ends.
func TestPrintAtTerminal(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.start(80, 24, "turn\n\texpect user = hello\n\tsay Some **bold** words.\n", "-p", "hello")
	p.see("Some bold words.", "exit status 0")
	if colors := p.colors(); !strings.Contains(colors, "\x1b[1mbold") {
		t.Errorf("the word is not bold: %q", colors)
	}
}

// TestCommandWithImage sends a command of the agent with a picture and a long paste, typed before and
// after the agent has reported its commands.
func TestCommandWithImage(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write("pic.png", onePixel)
	p.write(".claude/commands/look.md", "Look closely: $ARGUMENTS")
	p.start(80, 24, "turn\n\ttimes 2\n\texpect field messages image/png\n\texpect user Look closely: at\n\texpect user 99 of 100\n\tsay A picture.\n")
	var long strings.Builder
	for i := range 101 {
		fmt.Fprintf(&long, "%d of 100\n", i)
	}
	for n := range 2 {
		p.see("\n>")
		p.typeText("/look at ")
		p.see("> /look at")
		p.paste(filepath.Join(p.home, "pic.png"))
		p.see("pic.png]")
		p.paste(long.String())
		p.see("101 lines]")
		p.keys("Enter")
		p.until("the answer", func(s string) bool { return strings.Count(s, "A picture.") == n+1 })
		p.idle()
	}
	if all := p.all(); strings.Contains(all, "5 of 100") || strings.Count(all, "> /look at [Image #") != 2 {
		t.Errorf("the commands are not shown as typed:\n%s", all)
	}
}
