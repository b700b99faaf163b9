//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlainShowsBackgroundAnswersWhenTheyHappen ends a background command and a background
// subagent while no turn is running: they are shown at once, above the next prompt.
func TestPlainShowsBackgroundAnswersWhenTheyHappen(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	k := sit(t, home, `
turn
	call Bash {"command": "until test -e gate1; do sleep 0.05; done; echo finished", "run_in_background": true, "description": "the build"}
	call Task {"description": "look around", "prompt": "SUBTASK", "subagent_type": "general-purpose", "run_in_background": true}
turn
	say Both run.
turn
	expect user the build
	say The build has ended.
turn
	expect user Found it
	say The subagent has ended.
turn
	expect user = next
	say The next answer.
script sub
when first-user SUBTASK
turn
	call Bash {"command": "until test -e gate2; do sleep 0.05; done", "description": "waits"}
turn
	say Found it.
`, "--allowedTools", "Bash,Task")
	k.see("> ")
	k.typeIn("go\n")
	k.see("Both run.")
	k.see("> ")
	put(t, filepath.Join(home, "gate1"), "")
	k.see("The build has ended.")
	k.see("> ")
	put(t, filepath.Join(home, "gate2"), "")
	k.see("The subagent has ended.")
	k.see("> ")
	k.typeIn("next\n")
	k.see("The next answer.")
	k.see("> ")
	k.typeIn(ctrlD)
	status, screen := k.ends()
	if status != 0 {
		t.Errorf("exit status %d", status)
	}
	wants(t, screen, "> go", "Both run.", "✓ background completed", "The build has ended.", "✓ background completed: look around: Found it.", "The subagent has ended.", "> next", "", "The next answer.")
}

// TestPlainShowsWarnings starts with settings, rules and an MCP server that do not work.
func TestPlainShowsWarnings(t *testing.T) {
	t.Parallel()
	for _, dumb := range []bool{false, true} {
		home := t.TempDir()
		put(t, filepath.Join(home, "servers.json"), `{"mcpServers": {"broken": {"command": "/nonexistent/server"}}}`)
		if err := os.MkdirAll(filepath.Join(home, ".claude"), 0o777); err != nil {
			t.Fatal(err)
		}
		put(t, filepath.Join(home, ".claude", "settings.json"), `{"permissions": {"deny": ["Bsh(rm:*)"]}}`)
		args := []string{"--mcp-config", "servers.json"}
		if dumb {
			args = append(args, "TERM=dumb")
		}
		k := sit(t, home, "turn\n\tsay \"A **bold** [link](https://example.com).\"\n", args...)
		for _, warning := range []string{"Bsh", "the MCP server broken"} {
			k.seen = 0 // they come in any order
			k.see(warning)
		}
		k.typeIn("go\n")
		k.see("bold")
		k.see("1 turn")
		k.see("> ")
		k.typeIn(ctrlD)
		if status, _ := k.ends(); status != 0 {
			t.Errorf("exit status %d", status)
		}
		if dumb && strings.Contains(k.out, "\x1b") {
			t.Errorf("escape sequences on a dumb terminal: %q", k.out)
		}
	}
}

// TestPlainQueuesPrompts shows a prompt that was typed during a turn again where the agent
// reads it, and sends no unknown command.
func TestPlainQueuesPrompts(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	k := sit(t, home, `
turn
	call Bash {"command": "until test -e gate; do sleep 0.05; done"}
turn
	expect user second
	say One answer to both.
`, "--allowedTools", "Bash")
	k.see("> ")
	k.typeIn("first\n")
	k.see("first")
	k.typeIn("second\n")
	k.see("(queued)")
	put(t, filepath.Join(home, "gate"), "")
	k.see("One answer to both.")
	k.see("> ")
	k.typeIn("/modle\n") // is not sent
	k.see("/model?")
	k.see("> ")
	k.typeIn(ctrlD)
	if status, screen := k.ends(); status != 0 {
		t.Errorf("exit status %d", status)
	} else {
		wants(t, screen, "> first", "second", "  (queued)", "✓ Bash ", "> second", "", "One answer to both.", "> /modle")
	}
}

// TestPlainQuestions answers the questions of the model with lines, and chooses from lists.
func TestPlainQuestions(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	k := sit(t, home, `
turn
	call AskUserQuestion {"questions": [{"question": "Which one?", "header": "One", "options": [{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}], "multiSelect": false}, {"question": "Which ones?", "header": "Many", "options": [{"label": "a", "description": ""}, {"label": "b", "description": ""}, {"label": "c", "description": ""}], "multiSelect": true}, {"question": "Else?", "header": "Free", "options": [{"label": "x", "description": ""}, {"label": "y", "description": ""}], "multiSelect": false}]}
turn
	expect result "blue"
	expect result "a, c"
	expect result "none of them"
	call Bash {"command": "until test -e gate; do sleep 0.05; done", "run_in_background": true, "description": "a nap"}
turn
	say Thank you.
turn
	say Good morning.
`, "--allowedTools", "Bash")
	k.see("> ")
	k.typeIn("go\n")
	k.see("Which one?")
	k.see("2 blue")
	k.see("answer > ")
	k.typeIn("2\n")
	k.see("with commas > ")
	k.typeIn("1, 3\n")
	k.see("Else?")
	k.see("answer > ")
	k.typeIn("none of them\n")
	k.see("Thank you.")
	k.see("> ")
	k.typeIn("/tasks\n")
	k.see("1 = a nap")
	k.see("answer > ")
	k.typeIn("q\n")
	k.see("> ")
	k.typeIn("/verbose\n")
	k.see("multiSelect")
	k.see("> ")
	put(t, filepath.Join(home, "gate"), "")
	k.see("Good morning.")
	k.see("> ")
	k.typeIn(ctrlD)
	if status, _ := k.ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}

	k = sit(t, home, "turn\n\texpect first-user go\n\tsay The same session.\n", "--resume")
	k.see("Continue a session")
	k.see("1 = ")
	k.see("answer > ")
	k.typeIn("1\n")
	k.see("another session")
	k.see("Good morning.") // the end of the earlier conversation
	k.see("> ")
	k.typeIn("again\n")
	k.see("The same session.")
	k.see("> ")
	k.typeIn(ctrlD)
	if status, _ := k.ends(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}
