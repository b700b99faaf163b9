package terminal

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/parley-go/parley/hub"
)

// newTestScreen returns a screen that draws nothing.
func newTestScreen() *screen {
	return &screen{ctx: context.Background(), ed: &editor{}, onResult: map[string]func(){}, posted: make(chan func(), 8),
		p: &printer{size: func() (int, int) { return 80, 24 }}, t: newTranscript(theme{}, func() int { return 80 }, "/work")}
}

// TestElicitationForm answers the form of an MCP server field by field.
func TestElicitationForm(t *testing.T) {
	s := newTestScreen()
	s.ask(&hub.Ask{ID: "1", Kind: hub.AskElicitation, Request: json.RawMessage(`{"subtype":"elicitation","mcp_server_name":"shop","message":"Who are you?\u001b[2J",
		"requested_schema":{"type":"object","required":["name"],"properties":{
			"name":{"type":"string","title":"Name"},"age":{"type":"integer","minimum":1},"size":{"type":"string","enum":["s","m"],"enumNames":["Small","Medium"]},"news":{"type":"boolean","default":false}}},
		"agent":true}`)}) // without property_order: the fields are in the order of the schema
	q := s.current()
	if text := strings.Join(s.t.out, "\n"); !strings.Contains(text, "The MCP server shop asks:") || !strings.Contains(text, `Who are you?\x1b[2J`) {
		t.Errorf("the question is not printed: %q", text)
	}
	typed := func(names ...string) {
		for _, n := range names {
			k := key{name: n}
			if len(n) == 1 {
				k.text = n
			}
			if q.at < len(q.steps) {
				st := q.steps[q.at]
				last := q.at == len(q.steps)-1
				if last && n == "enter" { // answering needs a session
					st.picked = st.options[st.at].value
					return
				}
				s.questionKey(q, k)
			}
		}
	}
	typed("enter")
	if q.at != 0 || q.steps[0].problem == "" {
		t.Error("an empty value was accepted where one is required")
	}
	typed("A", "d", "a", "enter", "x", "enter")
	if q.at != 1 || !strings.Contains(q.steps[1].problem, "not a number") {
		t.Errorf("step %d, problem %q", q.at, q.steps[1].problem)
	}
	typed("backspace", "0", "enter")
	if !strings.Contains(q.steps[1].problem, "smallest") {
		t.Errorf("problem %q", q.steps[1].problem)
	}
	typed("backspace", "4", "2", "enter", "down", "enter")
	lines, _ := s.questionView(q, 10)
	if text := strings.Join(lines, "\n"); !strings.Contains(text, "(4 of 4) news") || !strings.Contains(text, "❯ n  No") {
		t.Errorf("the last step is %q", text)
	}
	typed("enter")
	got, err := q.finish()
	if want := `{"action":"accept","content":{"age":42,"name":"Ada","news":false,"size":"m"}}`; err != nil || string(got) != want {
		t.Errorf("got  %s (%v)\nwant %s", got, err, want)
	}
	if got := string(q.cancel()); got != `{"action":"decline"}` {
		t.Errorf("Esc answers %s", got)
	}
}

// TestLightBackground uses colours that are readable on a light background.
func TestLightBackground(t *testing.T) {
	if got := (theme{color: true, light: true}).paint(yellow, "x"); got != "\x1b[35mx\x1b[0m" {
		t.Errorf("%q", got)
	}
	if !themeOf([]string{"COLORFGBG=0;15"}).light || themeOf([]string{"COLORFGBG=15;0"}).light {
		t.Error("COLORFGBG is not understood")
	}
}

// TestWidths wraps and clips by columns, not by characters.
func TestWidths(t *testing.T) {
	for text, want := range map[string]int{"abc": 3, "日本": 4, "é": 1, "👨‍👩‍👧": 2, "🇩🇪": 2, "✓": 1} {
		if got := columns(text); got != want {
			t.Errorf("%q has %d columns, want %d", text, got, want)
		}
	}
	for _, l := range (theme{}).wrap([]span{{text: "日本語のとても長い文 word 文字列 another"}}, 10, nil, nil) {
		if columns(l) > 10 {
			t.Errorf("%q is wider than 10", l)
		}
	}
	if got := clip("日本語", 5); got != "日本…" {
		t.Errorf("%q", got)
	}
}

// FuzzMarkdown feeds any text in any pieces, and checks that nothing panics, that no escape
// sequence gets through, and that lines fit.
func FuzzMarkdown(f *testing.F) {
	f.Add("# a\n\n- b\n  - c\n\n| d | e |\n|---|---|\n| f | g |\n\n```\nx\n", 3)
	f.Add("**a\x1b[2J** [x](http://e/\x1b)\n> q\n1. z\n", 1)
	f.Fuzz(func(t *testing.T, text string, n int) {
		if n < 1 || len(text) > 4096 {
			n = 1 + len(text)/7
		}
		m := markdown{width: func() int { return 40 }}
		var out []string
		for len(text) > 0 {
			k := min(n, len(text))
			out = append(out, m.write(text[:k])...)
			text = text[k:]
			m.tail()
		}
		out = append(out, m.close()...)
		for _, l := range out {
			if strings.ContainsAny(l, "\x1b\r\n\u202e\a") {
				t.Fatalf("%q was printed", l)
			}
			if columns(l) > 60 {
				t.Fatalf("%q is too wide", l)
			}
		}
	})
}
