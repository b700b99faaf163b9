package terminal

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"regexp"
	"testing"

	"github.com/parley-go/parley/wire"
)

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                 "plain",
		"a\x1b[2Kb\x07":         `a\x1b[2Kb\x07`,
		"one\ntwo\tthree\r":     `one\ntwo\tthree\r`,
		"\u202egnp.exe\u2066":   `\u202egnp.exe\u2066`,
		"a\u200bb\u00a0c\u3164": `a\u200bb\u00a0c\u3164`,
		"\x9b31m\xff":           `\x9b31m\xff`,
		"\u009b31m":             `\u009b31m`,
		"\U000E0041":            `\ue0041`,
		"\u2065a\u17b4\ue000":   `\u2065a\u17b4\ue000`,
		"\U0001d159\U000e0fff":  `\u1d159\ue0fff`,
		"é 漢字 �":                "é 漢字 �",
	} {
		if got := Visible(in); got != want {
			t.Errorf("Visible(%q) = %q, want %q", in, got, want)
		}
	}
	if got, want := Readable("a\tb\nc\x1b[0m 👨\u200d👩 \u00a0"), "a\tb\nc\\x1b[0m 👨\u200d👩 \u00a0"; got != want {
		t.Errorf("readable: %q, want %q", got, want)
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		in   string
		wide int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"漢字漢字", 5, "漢字…"}, {"", 0, ""}, {"ab", 0, ""}} {
		if got := clip(c.in, c.wide); got != c.want {
			t.Errorf("clip(%q, %d) = %q, want %q", c.in, c.wide, got, c.want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := Grouped(n); got != want {
			t.Errorf("Grouped(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestEssence(t *testing.T) {
	s := &transcript{cwd: "/home/me/project"}
	for _, c := range []struct{ tool, input, want string }{
		{"Bash", `{"command":"make\u001b[A"}`, `make\x1b[A`},
		{"Bash", `{"command":"one\ntwo"}`, "one …"},
		{"Read", `{"file_path":"/home/me/project/a/b.go"}`, "a/b.go"},
		{"Read", `{"file_path":"/home/me/projects"}`, "/home/me/projects"},
		{"Grep", `{"pattern":"x+","path":"/home/me/project/a"}`, "x+ in a"},
		{"WebFetch", `{"url":"https://example.com"}`, "https://example.com"},
		{"mcp__x__y", `{"n":1}`, `{"n":1}`},
		{"TodoRead", `{}`, ""},
		{"Bash", `{"comm`, `{"comm`},
	} {
		if got := s.essence(json.RawMessage(c.input)); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.tool, c.input, got, c.want)
		}
	}
}

func TestOutcomeOf(t *testing.T) {
	for _, c := range []struct {
		text       string
		isError    bool
		structured string
		want       string
	}{
		{"Exit code 2\nmore\nlast\n", true, `"Error: Exit code 2"`, "exit 2 · last"},
		{"Exit code 1", true, ``, "exit 1"},
		{"<tool_use_error>No such file.\nmore</tool_use_error>", true, ``, "No such file."},
		{"a\nb", false, `{"stdout":"a\nb\n","stderr":""}`, "b"},
		{"", false, `{"stdout":"","stderr":""}`, ""},
		{"…", false, `{"type":"text","file":{"numLines":1}}`, "1 line"},
		{"…", false, `{"type":"update","structuredPatch":[{"lines":[" a","-b","+c","+d"]}]}`, "+2 −1"},
		{"…", false, `{"type":"create","structuredPatch":[],"content":"a\nb\n"}`, "new, 2 lines"},
		{"…", false, `{"mode":"content","numFiles":0,"numLines":3}`, "3 lines"},
		{"…", false, `{"filenames":["a"],"numFiles":1}`, "1 file"},
		{"it is \x1b[0m so\nmore", false, `null`, `it is \x1b[0m so`},
	} {
		r := &wire.ToolResultBlock{Content: wire.Text(c.text), IsError: c.isError}
		if got := new(transcript).outcome(r, json.RawMessage(c.structured)); got != c.want {
			t.Errorf("%q %s: %q, want %q", c.text, c.structured, got, c.want)
		}
	}
}

// TestViewerHolds receives the result of one call while a question about another is on
// the screen: the question stays intact.
func TestViewerHolds(t *testing.T) {
	var out bytes.Buffer
	v := NewViewer(ViewerConfig{Output: &out})
	v.Begin()
	call := func(id string) *wire.Assistant {
		return &wire.Assistant{Message: wire.APIMessage{Content: wire.Blocks(&wire.ToolUseBlock{ID: id, Name: "Tool", Input: json.RawMessage(`{"query":"` + id + `"}`)})}}
	}
	answer := func(id string) *wire.User {
		return &wire.User{Message: wire.UserMessage{Role: "user", Content: wire.Blocks(&wire.ToolResultBlock{ToolUseID: id, Content: wire.Text("ok")})}}
	}
	go func() { // the question overtakes the model
		v.Show(&wire.Assistant{Message: wire.APIMessage{Content: wire.Text("Two calls.")}})
		v.Show(call("1"))
		v.Show(call("2"))
	}()
	answered := v.Ask(context.Background(), &wire.CanUseTool{ToolName: "Tool", ToolUseID: "2", Input: json.RawMessage(`{"query":"2"}`)}, "  y or n > ")
	v.Show(answer("1"))
	v.Print("not yet")
	answered("y\n")
	v.Show(answer("2"))
	v.End()
	want := "Two calls.\n\n? May it use Tool?\n    {\n      \"query\": \"2\"\n    }\n  y or n > y\nnot yet\n✓ Tool 1 · ok\n✓ Tool 2 · ok\n"
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
}

// TestViewerBeside writes to standard error while text is pending, to the same terminal.
func TestViewerBeside(t *testing.T) {
	var out bytes.Buffer
	v := NewViewer(ViewerConfig{Output: &out, Live: true, Width: func() int { return 40 }})
	v.Begin()
	io.WriteString(v.Beside(&out), "a warning\n")
	v.End()
	if !regexp.MustCompile(`^(\S Thinking 0s\r\x1b\[K)*a warning\n`).MatchString(out.String()) {
		t.Errorf("%q", out.String())
	}
}
