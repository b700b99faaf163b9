package terminal

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	uv "github.com/charmbracelet/ultraviolet"

	"github.com/parley-go/parley/hub"
)

// typist writes bytes to a keyboard and lists the keys that arrive, pastes in brackets.
func typist(t *testing.T, write func(w io.Writer, pause func())) string {
	t.Helper()
	k := &keyboard{ctx: t.Context(), term: "xterm-256color", events: make(chan uv.Event, 256), ended: make(chan struct{})}
	r, w := io.Pipe()
	done := make(chan struct{})
	go k.forward(r, done, nil)
	write(w, func() { time.Sleep(time.Second) })
	w.Close()
	<-done
	var b strings.Builder
	for len(k.events) > 0 {
		switch m, ok := keyOf(<-k.events); {
		case ok && m.paste:
			b.WriteString("[" + m.text + "]")
		case ok:
			b.WriteString("<" + m.name + ">")
		default:
			b.WriteString("<report>")
		}
	}
	return b.String()
}

// TestPasteEndsOnce pastes texts that contain the sequences that start and end a paste: nothing in
// them becomes a key. Keys that a person types afterwards still do.
func TestPasteEndsOnce(t *testing.T) {
	const start, end = "\x1b[200~", "\x1b[201~"
	for _, c := range []struct{ name, in, want string }{
		{"plain", start + "a\rb" + end, "[a\rb]"},
		{"end inside", start + "a" + end + "!rm\r" + end, "[a][!rm\n]"},
		{"two ends inside", start + "a" + end + "b\r" + end + "c\r" + end, "[a][b\n][c\n]"},
		{"end and start inside", start + "a" + end + "y\r" + start + "z" + end, "[a][y\n][z]"},
		{"keys inside", start + "a" + end + "\x03\x04\x1b[A\x1b[Zy\t" + end, "[a][y\t]"},
		{"only an end", end + "x", "<x>"},
		{"control characters", start + "a\x00\x07\x1b[2J\x1b]0;t\x07b" + end, "[a\x00\ab]"},
		{"report inside", start + "a" + end + "y\x1b[?62c" + end, "[a][y]<report>"},
		{"report between", start + "a" + end + "y\x1b[?62cn", "[a]<y><report><n>"},
		{"at once", start + "a" + end + "\r", "[a]<enter>"},
		{"before", "x\r" + start + "a" + end, "<x><enter>[a]"},
		{"two pastes", start + "a" + end + start + "b" + end, "[a][b]"},
		{"empty", start + end + "x", "[]<x>"},
		{"long", start + strings.Repeat("日本", 3000) + end, "[" + strings.Repeat("日本", 3000) + "]"},
	} {
		for _, size := range []int{1 << 20, 4096, 1} {
			synctest.Test(t, func(t *testing.T) {
				got := typist(t, func(w io.Writer, pause func()) {
					for text := c.in; text != ""; {
						n := min(size, len(text))
						io.WriteString(w, text[:n])
						text = text[n:]
					}
					pause()
					io.WriteString(w, "!")
				})
				if want := c.want + "<!>"; got != want {
					t.Errorf("%s, %d bytes at once: got %.200q, want %.200q", c.name, size, got, want)
				}
			})
		}
	}
}

// TestKeyProtocols reads the same keys from terminals that encode them differently.
func TestKeyProtocols(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"legacy", "\r\x01\x1b\r\x1b[Z\x7f\x1bb\x1f", "<enter><ctrl+a><alt+enter><shift+tab><backspace><alt+b><ctrl+_>"},
		{"kitty", "\x1b[13;2u\x1b[13;3u\x1b[13u\x1b[27u\x1b[9;2u\x1b[97;5u\x1b[127u\x1b[98;3u", "<shift+enter><alt+enter><enter><esc><shift+tab><ctrl+a><backspace><alt+b>"},
		{"kitty, releases", "\x1b[97;1:1u\x1b[97;1:3u\x1b[13;2:3u", "<a>"},
		{"kitty, lock keys", "\x1b[13;66u\x1b[97;69u", "<shift+enter><ctrl+a>"},
		{"modifyOtherKeys", "\x1b[27;2;13~\x1b[27;5;97~\x1b[27;2;9~", "<shift+enter><ctrl+a><shift+tab>"},
		{"arrows", "\x1b[A\x1bOA\x1b[1;5D\x1b[1;3C", "<up><up><ctrl+left><alt+right>"},
		{"linux console and rxvt", "\x1b[1~\x1b[4~\x1b[7~\x1b[8~\x1b[3~", "<home><end><home><end><delete>"},
		{"mouse that nobody asked for", "\x1b[<0;10;5M\x1b[<0;10;5m\x1b[M !!\x1b[<64;1;1Mx", "<x>"},
		{"Esc twice at once", "\x1b\x1b", "<esc><esc>"},
		{"focus", "\x1b[I\x1b[Ox", "<x>"},
		{"reports that nobody asked for", "\x1b[?1;2c\x1b[3;4R\x1b]10;rgb:ff/ff/ff\x07\x1bP>|xterm\x1b\\\x1b[?2026;2$yx", "<report><x>"},
	} {
		synctest.Test(t, func(t *testing.T) {
			got := typist(t, func(w io.Writer, _ func()) { io.WriteString(w, c.in) })
			if got != c.want {
				t.Errorf("%s: got %q, want %q", c.name, got, c.want)
			}
		})
	}
}

// TestCursorInsideCharacter places the cursor inside of a character that consists of several: where it is drawn, at the start of that
// character. Words do not end at the marks of their letters.
func TestCursorInsideCharacter(t *testing.T) {
	for _, c := range []struct {
		name, text string
		pos        int
		keys       []string
		col        int
		left       string // of the cursor
	}{
		{"a joiner typed between emoji", "ab👨👩cd", len("ab👨"), []string{"\u200d"}, 2, "ab👨\u200d"},
		{"half a flag before a flag", "ab🇩🇪", len("ab"), []string{"🇫"}, 2, "ab🇫"},
		{"a line joined with one that starts with a mark", "ae\n\u0301z", len("ae"), []string{"delete"}, 1, "ae"},
		{"to the end of a word with marks", "cafe\u0301s noirs", 0, []string{"alt+f"}, 5, "cafe\u0301s"},
		{"to the start of a word with marks", "x नमस्ते", len("x नमस्ते"), []string{"alt+b"}, 2, "x "},
		{"to the end of a word with a joiner", "می\u200cخواهم x", 0, []string{"alt+f"}, -1, "می\u200cخواهم"},
	} {
		e := &editor{text: c.text, pos: c.pos}
		for _, k := range c.keys {
			e.key(key{name: k, text: k})
		}
		if e.text[:e.pos] != c.left {
			t.Errorf("%s: left of the cursor is %q, want %q", c.name, e.text[:e.pos], c.left)
		}
		if _, at := e.rows(theme{}, 80); c.col >= 0 && (at.row != 0 || at.col != c.col) {
			t.Errorf("%s: the cursor is in column %d of row %d, want %d", c.name, at.col, at.row, c.col)
		}
	}
}

// TestEscIsAKey tells the key from the start of a sequence that arrives in two parts.
func TestEscIsAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := typist(t, func(w io.Writer, pause func()) {
			io.WriteString(w, "\x1b")
			pause()
			io.WriteString(w, "[A\x1b")
			io.WriteString(w, "[B")
		})
		if want := "<esc><[><shift+a><down>"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// TestConsoleMode keeps the selection with the mouse, and only that, when a screen opens a Windows
// console.
func TestConsoleMode(t *testing.T) {
	const virtualInput, lineInput, mouseInput = 0x200, 0x2, 0x10
	for _, c := range []struct{ before, want uint32 }{
		{lineInput | quickEdit | insertMode | extendedFlags, virtualInput | quickEdit | insertMode | extendedFlags},
		{lineInput | mouseInput, virtualInput | extendedFlags},
	} {
		if got := inputMode(virtualInput, c.before); got != c.want {
			t.Errorf("after the mode %#x the input has %#x, want %#x", c.before, got, c.want)
		}
	}
	if got := outputMode(0x8); got != 0xd {
		t.Errorf("the output has the mode %#x, want 0xd", got)
	}
}

// TestIdleScreenSleeps counts how often a screen draws in virtual time: during an hour without a turn,
// never; while a turn is running, for the spinner; and afterwards never again.
func TestIdleScreenSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var drawn atomic.Int64
		s := newTestScreen()
		ctx, cancel := context.WithCancel(t.Context())
		s.ctx, s.inbox.bell = ctx, make(chan struct{}, 1)
		s.p.w = io.Discard
		s.p.size = func() (int, int) { drawn.Add(1); return 80, 24 }
		s.keys = &keyboard{events: make(chan uv.Event, 8)}
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.loop(nil, nil)
		}()
		during := func(what func()) int64 {
			if what != nil {
				s.posted <- what
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			before := drawn.Load()
			time.Sleep(time.Hour)
			synctest.Wait()
			return drawn.Load() - before
		}
		for _, c := range []struct {
			name string
			what func()
			draw bool
		}{
			{"at the start", nil, false},
			{"with a hint and a draft", func() { s.hint = "hint"; s.ed.set("draft") }, false},
			{"while a turn is running", func() { s.t.begin() }, true},
			{"after the turn", func() { s.t.end() }, false},
			{"with a picker", func() { s.overlay = &picker{s: s} }, false},
		} {
			if n := during(c.what); (n > 0) != c.draw {
				t.Errorf("%s: the screen was drawn %d times in an hour", c.name, n)
			}
		}
		cancel()
		<-done
	})
}

// TestViewFitsEverySize draws everything that the live region can show on screens of all small sizes.
func TestViewFitsEverySize(t *testing.T) {
	ask := func(s *screen) {
		s.ask(&hub.Ask{ID: "1", Kind: hub.AskPermission, Request: json.RawMessage(`{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"touch a"}}`)})
	}
	for name, set := range map[string]func(s *screen){
		"empty":    func(*screen) {},
		"question": ask,
		"reason": func(s *screen) {
			ask(s)
			s.asks[0].armed = true
			s.key(key{name: "r", text: "r"})
			s.key(key{name: "paste", text: strings.Repeat("words 日本 ", 30), paste: true})
		},
		"help":   func(s *screen) { s.help = true },
		"menu":   func(s *screen) { s.ed.insert("/"); s.refreshMenu() },
		"input":  func(s *screen) { s.ed.insert(strings.Repeat("many words 👨‍👩‍👧 and\n", 20)); s.ed.pos = 40 },
		"search": func(s *screen) { s.ed.search = &search{at: -1, query: "日本語日本語"} },
		"everything": func(s *screen) {
			s.t.begin()
			s.hint, s.t.retry = "a hint", "retry"
			s.t.todos = []todo{{Content: "日本語", Status: "pending"}, {Content: "b", Status: "in_progress"}, {Content: "c", Status: "completed"}}
			s.queued = []queuedPrompt{{shown: "a\nb"}, {shown: "c"}, {shown: "d"}}
			s.ed.insert("/")
			s.refreshMenu()
			s.t.text.write("An answer that is being written, with 日本語 in it")
		},
	} {
		for w := 1; w <= 45; w++ {
			for h := 1; h <= 12; h++ {
				s := newTestScreen()
				s.p.size = func() (int, int) { return w, h }
				s.t = newTranscript(theme{}, func() int { return max(10, w) }, "/work")
				set(s)
				lines, cursor := s.view()
				if most := max(2, min(maxLive, h-1)); len(lines) > most {
					t.Fatalf("%s: %d lines on a screen of %d×%d, at most %d fit", name, len(lines), w, h, most)
				}
				if cursor != hidden && (cursor.row < 0 || cursor.row >= len(lines)) {
					t.Fatalf("%s: the cursor is in line %d of %d on a screen of %d×%d", name, cursor.row, len(lines), w, h)
				}
			}
		}
	}
}
