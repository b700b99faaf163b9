//go:build unix

package terminal_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// odd are characters whose width terminals disagree about.
var odd = []string{"日本語", "👨‍👩‍👧‍👦", "🇩🇪🇯🇵", "👍🏽", "❤️", "1️⃣", "é", "ก็", "한국", "ﷺ", "𝕏", "·…—", "ｱｲｳ", "🏳️‍🌈", "שלום", "مرحبا", "⚠️", "✓"}

// TestOddWidthsStream streams lines that end near the edge of a narrow terminal with characters whose
// width terminals disagree about: each line is there once and in order, and nothing of the live
// region stays.
func TestOddWidthsStream(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("turn\n\tchunks 400\n\tsay <<END\n")
	n := 0
	for _, o := range odd {
		for fill := range 8 {
			fmt.Fprintf(&b, "line %05d %s%s%s\n", n, strings.Repeat("x", 20+fill), o, strings.Repeat(o, 4))
			n++
		}
	}
	b.WriteString("END\nturn\n\tsay Last.\n")
	p := newPane(t).start(40, 12, b.String())
	p.enter("go")
	p.see("tokens in")
	p.idle()
	checkNumbered(t, p.all(), n)
	p.enter("again")
	p.see("Last.")
	p.idle()
	all := p.all()
	checkNumbered(t, all, n)
	if left := strings.Count(all, "Esc interrupts"); left > 0 {
		t.Errorf("%d rests of the live region are in the scrollback:\n%s", left, all)
	}
}

// TestOddWidthsInput types and removes such characters at the edge of the input.
func TestOddWidthsInput(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(40, 20, "turn\n\tsay Hi.\n")
	empty := p.see("\n>")
	for _, o := range odd {
		p.typeText(strings.Repeat("x", 30))
		p.typeText(strings.Repeat(o+"-", 12) + "Z")
		p.see("Z")
		p.keys("C-a")
		p.typeText("Q")
		p.see("> Qxxx")
		p.keys("C-c")
		p.until("an empty input", func(s string) bool { return s == empty })
	}
	if all := p.all(); strings.Contains(all, "xxx") {
		t.Errorf("rests of the input are on the screen:\n%s", all)
	}
}

// TestTerminals works with the names of old and of other terminals.
func TestTerminals(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"xterm-256color", "screen", "linux", "vt100", ""} {
		t.Run("TERM="+name, func(t *testing.T) {
			t.Parallel()
			p := newPane(t)
			p.env = []string{"TERM=" + name}
			p.start(60, 12, "turn\n\tsay Some **bold** text.\n\tcall Bash {\"command\": \"touch made\"}\nturn\n\tsay Done.\n")
			p.enter("go")
			p.see("❯ y  Yes, once")
			p.keys("Down", "Up", "y")
			p.see("Done.")
			p.idle()
			p.typeText("one")
			p.keys("M-Enter")
			p.typeText("two")
			p.see("> one\n  two")
			p.keys("C-c", "C-d")
			p.see("exit status 0")
			wantLines(t, p.all(), "> go", "Some bold text.", "✓ Bash touch made", "Done.")
		})
	}
}

// TestThreeRows answers a question on a screen that is as small as it gets.
func TestThreeRows(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(40, 3, "turn\n\tcall Bash {\"command\": \"touch made\"}\nturn\n\tsay Done.\n")
	p.enter("go")
	p.see("❯ y  Yes, once")
	p.keys("y")
	p.see("tokens in")
	p.idle()
	p.keys("C-d")
	p.see("exit status 0")
	wantLines(t, p.all(), "> go", "? May it run this command?", "    touch made", "✓ Bash touch made", "Done.")
}

// TestNarrowQuestion checks that a question shows in full what "always" would allow, even if the line
// of the answer is too long for the screen.
func TestNarrowQuestion(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(40, 24, "turn\n\tcall Bash {\"command\": \"touch a-long-name-of-a-file and-another-one\"}\nturn\n\tsay Done.\n")
	p.enter("go")
	p.see("    a  Yes, always in this session: ")
	shown := strings.Join(strings.Fields(p.all()), " ")
	if want := "Yes, always in this session: Bash(touch a-long-name-of-a-file *); edit files here without asking"; !strings.Contains(shown, want) {
		t.Errorf("the question does not show %q:\n%s", want, p.all())
	}
	p.keys("y")
	p.see("Done.")
}

// scripted starts parley with a scripted model at a pseudo-terminal.
func scripted(t *testing.T, script string) (home string, d *desk) {
	t.Helper()
	home = t.TempDir()
	file := filepath.Join(home, "model.script")
	if err := os.WriteFile(file, []byte(script), 0o666); err != nil {
		t.Fatal(err)
	}
	return home, newDesk(t, home, "--provider", "script", "--script", file)
}

// TestHostilePaste pastes text that tries to end the paste, to answer a question and to run a
// command. The terminal passes it on unchanged.
func TestHostilePaste(t *testing.T) {
	t.Parallel()
	home, d := scripted(t, "turn\n\tcall Bash {\"command\": \"touch made\"}\nturn\n\tsay Done.\n")
	d.wait("\x1b[?25h")
	d.tty.WriteString("go\r")
	d.wait("\x1b[c")               // behind the question
	d.tty.WriteString("\x1b[?62c") // the terminal shows the question
	d.tty.WriteString("\x1b[200~x\x1b[201~y\r!touch made\r\x1b[201~")
	d.tty.WriteString("n")
	d.wait("Done.")
	d.tty.WriteString("\x1b[200~safe\x1b[201~\x15!touch made\r\x1b[201~")
	d.wait("!touch made")
	d.tty.WriteString("\x03\x04")
	if err := d.cmd.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(home, "made")); err == nil {
		t.Error("pasted text ran a command")
	}
}

// TestReportedBackground uses the colours for the background that the terminal reports.
func TestReportedBackground(t *testing.T) {
	t.Parallel()
	for report, want := range map[string]string{"ffff/ffff/ffff": "\x1b[34;1m> ", "0000/0000/0000": "\x1b[36;1m> "} {
		_, d := scripted(t, "turn\n\tsay Hi.\n")
		d.wait("\x1b]11;?")
		d.tty.WriteString("\x1b]11;rgb:" + report + "\x1b\\x")
		d.wait(want + "\x1b[0mx")
	}
}

// TestTerminalGoesAway ends the program when its terminal does, and restores the modes of a terminal
// that stays.
func TestTerminalGoesAway(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		_, d := scripted(t, "turn\n\tsay Hi.\n")
		d.wait("\x1b[?25h")
		d.cmd.Process.Signal(sig)
		d.wait("\x1b[?2004l\x1b[<1u\x1b[>4;0m")
		var exit *exec.ExitError
		if err := d.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 128+int(sig) {
			t.Errorf("after %v it ends with %v", sig, err)
		}
	}
	_, d := scripted(t, "turn\n\tsay Hi.\n")
	d.wait("\x1b[?25h")
	d.tty.Close()
	d.cmd.Wait()
}

// TestElicitationAtTerminal fills in the form of an MCP server, and opens the page of another one.
func TestElicitationAtTerminal(t *testing.T) {
	t.Parallel()
	s := mcp.NewServer(&mcp.Implementation{Name: "forms", Version: "1"}, nil)
	for name, ask := range map[string]*mcp.ElicitParams{
		"fill": {Message: "Who are you?", RequestedSchema: json.RawMessage(`{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"size":{"type":"string","enum":["s","m"]}}}`)},
		"page": {Mode: "url", ElicitationID: "1", URL: "https://login.example/start", Message: "Log in, please."},
	} {
		s.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			a, err := r.Session.Elicit(ctx, ask)
			if err != nil {
				return nil, err
			}
			text, err := json.Marshal(a.Content)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: a.Action + " " + string(text)}}}, err
		})
	}
	srv := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	p := newPane(t).start(100, 30, `
turn
	call mcp__forms__fill {}
turn
	expect result accept {"name":"Ada","size":"m"}
	call mcp__forms__page {}
turn
	expect result accept
	say Thanks.
`, "--mcp-config", `{"mcpServers":{"forms":{"type":"http","url":"`+srv.URL+`"}}}`, "--allowedTools", "mcp__forms__fill,mcp__forms__page")
	p.enter("go")
	p.see("The MCP server forms asks:", "Who are you?", "(1 of 2) name")
	p.keys("Enter")
	p.typeText("Ada")
	p.see("› Ada")
	p.keys("Enter")
	p.see("(2 of 2) size")
	p.keys("Down", "Enter")
	p.see("Log in, please.", "https://login.example/start")
	p.keys("Enter")
	p.see("Thanks.")
}

// TestPlainScreen uses the screen without a live region: a question, a queued prompt and a picker.
func TestPlainScreen(t *testing.T) {
	t.Parallel()
	p := newPane(t).start(80, 40, "turn\n\tsay Some **bold** text.\n\tcall Bash {\"command\": \"touch made\"}\nturn\n\texpect tool-error not this one\n\tsay Denied.\n", "--plain")
	p.see("\n>")
	p.tmux("pipe-pane", "-t", "p", "cat > "+filepath.Join(p.home, "raw"))
	p.typeText("go")
	p.keys("Enter")
	p.see("May it run this command?", "touch made", "y = Yes, once", "n = No", "answer >")
	p.typeText("n not this one")
	p.keys("Enter")
	p.see("Denied.", "tokens in")
	p.typeText("/rewind")
	p.keys("Enter")
	p.see("1 = go", "q = none")
	p.typeText("q")
	p.keys("Enter")
	p.keys("C-d")
	p.see("exit status 0")
	if raw := p.read("raw"); regexp.MustCompile(`\x1b\[(\d*[ABCDHJK]|\?)`).MatchString(raw) {
		t.Errorf("the cursor was moved: %q", raw)
	}
}
