//go:build unix

package terminal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPermissionQuestions answers once, always, no, and no with a reason.
func TestPermissionQuestions(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write("real/a.txt", "one\ntwo\n")
	if err := os.Symlink("real", filepath.Join(p.home, "link")); err != nil {
		t.Fatal(err)
	}
	p.start(100, 40, `
turn
	call Bash <<END
{"command": "touch made.txt # \u001b[2K\u202e"}
END
turn
	call Bash {"command": "touch no.txt"}
turn
	expect tool-error The user said no
	call Bash {"command": "touch why.txt"}
turn
	expect tool-error use another name
	call Read {"file_path": "link/a.txt"}
turn
	call Edit {"file_path": "link/a.txt", "old_string": "two", "new_string": "zwei"}
turn
	call Edit {"file_path": "link/a.txt", "old_string": "one", "new_string": "eins"}
turn
	say Done.
`)
	p.enter("go")
	p.see("? May it run this command?", `touch made.txt # \x1b[2K\u202e`, "❯ y  Yes, once", "n  No\n", "r  No, and say why")
	p.keys("y")
	p.see("✓ Bash touch made.txt", "touch no.txt", "❯ y  Yes, once")
	p.keys("n")
	p.see("✗ Bash touch no.txt · The user said no.", "touch why.txt", "❯ y  Yes, once")
	p.keys("Up", "Enter") // the last one
	p.see("What should it do instead?")
	p.typeText("use another name")
	p.see("› use another name")
	p.keys("Enter")
	p.see("? May it edit link/a.txt?", "    2 - two", "    2 + zwei", "file: "+p.home+"/real/a.txt", "Yes, always in this session: ")
	p.see("edit files here without asking")
	p.keys("a")
	p.see("Done.")
	p.idle()
	if got := p.read("real/a.txt"); got != "eins\nzwei\n" {
		t.Errorf("a.txt is %q", got)
	}
	if p.read("no.txt") != "" || p.read("why.txt") != "" {
		t.Error("what was denied was done")
	}
}

// TestKeysBeforeAQuestionAreNoAnswer types just before a question appears: that text stays
// in the editor.
func TestKeysBeforeAQuestionAreNoAnswer(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(80, 24, `
turn
	say Wait.
	call Bash {"command": "until test -e gate; do sleep 0.05; done", "description": "waits"}
	call Bash {"command": "touch made.txt"}
turn
	expect tool-error
	say Not made.
`, "--allowedTools", "Bash(until:*),Bash(sleep:*),Bash(test:*)")
	p.enter("go")
	p.see("Wait.", "● Bash until")
	p.typeText("yyy a draft")
	p.see("> yyy a draft")
	p.write("gate", "")
	p.see("touch made.txt", "❯ y  Yes, once")
	p.keys("n")
	p.see("Not made.")
	p.idle()
	p.see("\n> yyy a draft")
	if p.read("made.txt") != "" {
		t.Error("what was typed before the question answered it")
	}
}

func TestPlanReview(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write("edit.sh", "#!/bin/sh\necho '2. Second step' >> \"$1\"\n")
	if err := os.Chmod(filepath.Join(p.home, "edit.sh"), 0o777); err != nil {
		t.Fatal(err)
	}
	p.env = []string{"EDITOR=./edit.sh"}
	p.start(80, 30, `
turn
	call ExitPlanMode {"plan": "# The plan\n\n1. First step\n"}
turn
	expect tool-error more detail
	call ExitPlanMode {"plan": "# The plan\n\n1. First step\n"}
turn
	expect result Second step
	say Working on it.
`, "--permission-mode", "plan")
	p.enter("plan it")
	p.see("? Carry out this plan?", "1. First step", "❯ y  Yes, and ask before each edit", "plan mode")
	p.keys("n")
	p.see("What should change?")
	p.typeText("more detail")
	p.keys("Enter")
	p.until("the second plan", func(s string) bool {
		return strings.Count(s, "? Carry out this plan?") == 2 && strings.Contains(s, "❯ y")
	})
	p.keys("e")
	p.see("the plan is now:", "2. Second step", "❯")
	p.keys("a")
	p.see("Working on it.", "accepts edits")
}

func TestAskUserQuestion(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(80, 30, `
turn
	call AskUserQuestion {"questions": [{"question": "Which colour?", "header": "Colour", "options": [{"label": "Red", "description": "like fire"}, {"label": "Blue", "description": "like water"}], "multiSelect": false}, {"question": "Which sizes?", "header": "Size", "options": [{"label": "Small", "description": ""}, {"label": "Large", "description": ""}], "multiSelect": true}, {"question": "Anything else?", "header": "Else", "options": [{"label": "No", "description": ""}, {"label": "Yes", "description": ""}], "multiSelect": false}]}
turn
	expect result Blue
	expect result Small, Large
	expect result a ribbon
	say Noted.
`, "--tools", "AskUserQuestion")
	p.enter("ask me")
	p.see("? Which colour?", "like water", "(1 of 3) Which colour?", "❯ 1  Red")
	p.keys("Down", "Enter")
	p.see("(2 of 3) Which sizes?", "☐ Small")
	p.keys("Space", "Down", "Space")
	p.see("☑ Small", "☑ Large")
	p.keys("Enter")
	p.see("(3 of 3) Anything else?")
	p.keys("o")
	p.see("Your answer:")
	p.typeText("a ribbon")
	p.keys("Enter")
	p.see("✓ AskUserQuestion Colour, Size, Else", "Noted.")
}

// TestSessions continues conversations: the last one, one from the picker, and one with
// /resume.
func TestSessions(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.start(80, 30, "turn\n\tsay The first answer.\n")
	p.enter("about apples")
	p.see("The first answer.")
	p.idle()
	p.keys("C-d")
	p.see("To continue: parley --continue", "exit status 0")
	p.tmux("kill-server")
	p.start(80, 30, "turn\n\tsay The second answer.\n")
	p.enter("about pears")
	p.see("The second answer.")
	p.idle()
	p.keys("C-d")
	p.see("exit status 0")
	p.tmux("kill-server")

	p.start(80, 30, "turn\n\texpect first-user about pears\n\tsay More of pears.\n", "--continue")
	p.see("> about pears", "The second answer.") // the end of the earlier conversation
	p.enter("more")
	p.see("More of pears.")
	p.idle()
	p.typeText("/resume")
	p.see("Continue another session")
	p.keys("Enter")
	p.see("Continue a session", "apples")
	p.typeText("apples")
	p.see("search: apples", "The first answer.") // the preview
	p.keys("Enter")
	p.see("── another session ──", "> about apples", "The first answer.")
	p.keys("C-d")
	p.see("exit status 0")
	p.tmux("kill-server")

	p.start(80, 30, "turn\n\texpect first-user about apples\n\tsay More of apples.\n", "--resume")
	p.see("Continue a session", "about apples", "about pears")
	p.typeText("apples")
	p.gone("pears")
	p.keys("Enter")
	p.see("The first answer.")
	p.enter("more")
	p.see("More of apples.")
	p.tmux("kill-server")

	p.start(80, 24, "turn\n\tsay Hi.\n", "--resume", "11111111-1111-4111-8111-111111111111")
	if s := p.see("exit status 1"); strings.Count(p.all(), "No conversation found") != 1 {
		t.Errorf("the missing session is not reported once:\n%s", s)
	}
}
