//go:build unix

package terminal_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMarkdown streams Markdown in small pieces.
func TestMarkdown(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(60, 40, `
turn
	chunks 3
	say <<END
# A title

Some **bold** and *italic* text with `+"`code`"+` that is long enough to be wrapped at a word, not in one.

1. first
2. second
   - nested [link](https://example.org/x)

> quoted

| name | 値段 | right |
|------|:----:|------:|
| 日本 | 5 | 1 |
| 😀 x | 10 | 22 |

`+"```go"+`
func main() {
	return
}
`+"```"+`
Last line.
END
`)
	p.enter("go")
	p.see("Last line.", "tokens in")
	wantLines(t, p.all(), "A title", "", "Some bold and italic text with code that is long enough to", "be wrapped at a word, not in one.", "",
		"1. first", "2. second", "   • nested link (https://example.org/x)", "", "│ quoted", "",
		"name │ 値段 │ right", "─────┼──────┼──────", "日本 │  5   │     1", "😀 x │  10  │    22", "",
		"  func main() {", "      return", "  }", "Last line.")
	colors := p.colors()
	for _, want := range []string{"\x1b[1mbold", "\x1b[3mitalic"} {
		if !strings.Contains(colors, want) {
			t.Errorf("%q is not in\n%q", want, colors)
		}
	}
}

// TestHostileText makes a model and a tool send escape sequences: all of them are visible, and none
// has an effect.
func TestHostileText(t *testing.T) {
	t.Parallel()
	hostile := "A\x1b[2J\x1b]0;title\x07\x1b[31mB\u202eC\u200bD\rF &#27;[2J `\x1b[1m`"
	say, _ := json.Marshal(hostile)
	command, _ := json.Marshal("printf '\\033[2Jdone\\033]0;x\\007\\n' # " + hostile)
	p := newPane(t)
	p.write("e\x1b[31mvil.txt", "x")
	p.start(100, 30, fmt.Sprintf("turn\n\tsay %s\n\tcall Bash {\"command\": %s}\nturn\n\tsay <<END\n| \x1b[2J | b |\n|---|---|\n| \x1b[7m | [x\x1b[2J](https://e.org/\x1b]8;;x) |\n\n```\n\x1b[2J\n```\n\nEnd.\nEND\n", say, command), "--allowedTools", "Bash")
	p.enter("go")
	p.see("End.", "tokens in")
	all := p.all()
	for _, want := range []string{`A\x1b[2J\x1b]0;title\x07\x1b[31mB\u202eC\u200bD`, `F \x1b[2J`, `\x1b[2Jdone`} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not on the screen:\n%s", want, all)
		}
	}
	if strings.ContainsAny(all, "\u202e\u200b\x1b") {
		t.Errorf("raw characters reached the screen: %q", all)
	}
	if title := p.tmux("display-message", "-p", "-t", "p", "#{pane_title}"); strings.Contains(title, "title") || strings.TrimSpace(title) == "x" {
		t.Errorf("the title was changed to %q", title)
	}
	p.typeText("@vil")
	p.see(`❯ e\x1b[31mvil.txt`)
}

var elapsed = regexp.MustCompile(`● Bash until .*… \d+s\n`)

// TestToolsTodosAndPager shows a line for each call, a diff, the todo list, and everything
// in the pager.
func TestToolsTodosAndPager(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write("a.txt", "one\ntwo\nthree\nfour\n")
	p.start(80, 30, `
turn
	think First a thought.
	say I look.
	call TodoWrite {"todos": [{"content": "Read it", "status": "completed", "activeForm": "Reading it"}, {"content": "Change it", "status": "in_progress", "activeForm": "Changing it"}, {"content": "Test it", "status": "pending", "activeForm": "Testing it"}]}
	call Read {"file_path": "a.txt"}
turn
	call Edit {"file_path": "a.txt", "old_string": "three", "new_string": "drei"}
turn
	call Bash {"command": "until test -e gate; do sleep 0.05; done; echo secret-output; echo last", "description": "waits"}
turn
	say Done.
`, "--allowedTools", "Bash,Edit,Read")
	p.enter("go")
	p.see("▶ Change it", "☐ Test it", "Changing it…", "● Bash until test -e gate")
	p.until("the elapsed time", func(s string) bool { return elapsed.MatchString(s) })
	p.write("gate", "")
	p.see("Done.")
	p.idle()
	wantLines(t, p.all(), "∴ First a thought.", "", "I look.", "", "✓ TodoWrite 1 of 3 done", "✓ Read a.txt · ", "✓ Edit a.txt · +1 −1",
		"    2   two", "    3 - three", "    3 + drei", "    4   four", "", "✓ Bash until test -e gate", "", "Done.", "", "✓ ")
	if all := p.all(); strings.Contains(all, "secret-output\n") {
		t.Errorf("all of the output is on the screen:\n%s", all)
	}
	p.keys("C-o")
	p.see("q closes", "secret-output", "\n  last")
	p.keys("g")
	p.see("> go")
	p.keys("/")
	p.typeText("drei")
	p.keys("Enter")
	p.see("drei")
	p.keys("q")
	p.gone("q closes")
	p.see("Done.")
}

// TestLastLinesOfACommand shows the output of a command while it runs, and removes it when it ends.
func TestLastLinesOfACommand(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(80, 24, `
turn
	call Bash {"command": "seq 1 40; printf '10%%\\r50%%\\r'; until test -e gate; do sleep 0.05; done", "description": "counts"}
turn
	say Done.
`, "--allowedTools", "Bash")
	p.enter("go")
	p.see("● Bash seq 1 40", "\n  39\n", "\n  40\n", "\n  50%\n")
	p.write("gate", "")
	p.see("Done.")
	p.gone("\n  39\n")
	wantLines(t, p.all(), "> go", "✓ Bash seq 1 40", "", "Done.")
}

// TestSubagentTree shows the progress of a subagent.
func TestSubagentTree(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write("a.txt", "x\n")
	p.start(80, 24, `
turn
	call Task {"description": "look around", "prompt": "SUBTASK", "subagent_type": "general-purpose"}
turn
	say All done.
default
	say The subagent is done.
script sub
when first-user SUBTASK
turn
	call Read {"file_path": "a.txt"}
turn
	call Bash {"command": "until test -e gate; do sleep 0.05; done", "description": "waits"}
turn
	say Found it.
`, "--allowedTools", "Bash,Read,Task")
	p.enter("go")
	p.see("◆ general-purpose: look around", "└ 2 calls · Bash until test -e gate", "All done.")
	p.write("gate", "")
	p.see("The subagent is done.")
	p.gone("◆")
	wantLines(t, p.all(), "> go", "✓ Task look around", "", "All done.", "✓ background completed: look around: Found it.", "The subagent is done.")
}

// TestBackgroundResultsAppearWhenTheyHappen ends a background command between turns: it is shown at
// once, not under the next prompt.
func TestBackgroundResultsAppearWhenTheyHappen(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(80, 24, `
turn
	call Bash {"command": "until test -e gate; do sleep 0.05; done; echo finished", "run_in_background": true, "description": "the build"}
turn
	say It runs.
default
	say The build has ended.
`, "--allowedTools", "Bash")
	p.enter("go")
	p.see("It runs.")
	p.idle()
	p.see("1 task (/tasks)")
	p.typeText("/tasks")
	p.see("❯ /tasks")
	p.keys("Enter")
	p.see("Work in the background", "the build")
	p.keys("Escape")
	p.gone("Work in the background")
	p.write("gate", "")
	p.see("The build has ended.")
	p.idle()
	p.enter("/resume")
	p.see("❯ go ") // the last prompt of a person, not the report
	p.keys("Escape")
	p.gone("Continue a session")
	p.enter("next")
	p.until("another answer", func(s string) bool { return strings.Count(s, "The build has ended.") == 2 })
	wantLines(t, p.all(), "It runs.", "✓ background completed", "The build has ended.", "> next", "The build has ended.")
	p.enter("/help") // without the model
	p.see("/rename <title>")
	p.idle()
	if strings.Contains(p.all(), "· 0 tokens in") {
		t.Errorf("a command without the model shows tokens:\n%s", p.all())
	}
}

// TestNoticeIsNoPrompt continues a session in which a background command ended: the agent's
// notification is not shown as a prompt of the user.
func TestNoticeIsNoPrompt(t *testing.T) {
	t.Parallel()
	script := `
turn
	call Bash {"command": "until test -e gate; do sleep 0.05; done", "run_in_background": true, "description": "the build"}
turn
	say It runs.
default
	say The build has ended.
`
	p := newPane(t).start(80, 24, script, "--allowedTools", "Bash")
	p.enter("go")
	p.see("It runs.")
	p.idle()
	p.write("gate", "")
	p.see("The build has ended.")
	p.idle()
	check := func() {
		t.Helper()
		if all := p.all(); strings.Contains(all, "The background task") || strings.Count(all, "✓ background completed") != 1 {
			t.Errorf("the end of the command is not shown once:\n%s", all)
		}
	}
	check()
	p.keys("C-d")
	p.see("exit status 0")
	p.start(80, 24, script, "--continue")
	p.see("The build has ended.")
	p.idle()
	check()
	p.keys("C-d")
	p.see("exit status 0")

	// Without the hub's journal there is only the notification for the model.
	if err := os.RemoveAll(filepath.Join(p.home, ".claude", "hub")); err != nil {
		t.Fatal(err)
	}
	p.start(80, 24, script, "--continue")
	p.see("· The background task", "The build has ended.")
}

// TestWarningsAtStart shows problems of the settings before the first prompt.
func TestWarningsAtStart(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write("servers.json", `{"mcpServers": {"broken": {"command": "/nonexistent/server"}}}`)
	p.start(100, 24, "turn\n\tsay Hi.\n", "--mcp-config", "servers.json")
	p.see("! ", "broken")
}

func TestNoColorAndPlain(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.env = []string{"NO_COLOR=1"}
	p.start(80, 24, "turn\n\tsay Some **bold** text.\n")
	p.enter("go")
	p.see("Some bold text.", "tokens in")
	p.idle()
	if c := p.colors(); strings.Contains(c, "\x1b[") {
		t.Errorf("colours with NO_COLOR: %q", c)
	}
}

// TestNarrow works in 40 columns and 8 rows.
func TestNarrow(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(40, 8, "turn\n\tsay A text that is longer than forty columns are, surely.\n\tcall Bash {\"command\": \"touch made; echo a long command that does not fit\"}\nturn\n\tsay Done.\n")
	p.enter("go")
	p.see("❯ y  Yes, once")
	p.keys("y")
	p.see("Done.")
	p.idle()
	for l := range strings.SplitSeq(p.screen(), "\n") {
		if len([]rune(l)) > 40 {
			t.Errorf("%q is too long", l)
		}
	}
	wantLines(t, p.all(), "A text that is longer than forty columns", "are, surely.")
}

// TestStatusLine shows the model, the context, the cost and the branch, or the output of a command
// of the user.
func TestStatusLine(t *testing.T) {
	t.Parallel()
	p := newPane(t)
	p.write(".git/HEAD", "ref: refs/heads/feature-x\n")
	p.start(100, 24, "turn\n\tsay Hi.\n")
	p.see("feature-x")
	p.enter("go")
	p.see("claude-opus-5-5 · context 0 % · $0.0006 · feature-x")
	p.keys("C-d")
	p.see("exit status 0")
	p.tmux("kill-server")
	p.write(".claude/settings.json", `{"statusLine": {"type": "command", "command": "sed 's/.*\"model\":{[^}]*\"id\":\"\\([^\"]*\\).*/mine: \\1/'"}}`)
	p.start(100, 24, "turn\n\tsay Hi.\n")
	p.enter("go")
	p.see("mine: claude-opus-5-5")
}
