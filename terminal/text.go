package terminal

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/clipperhouse/uax29/v2/graphemes"
	"github.com/mattn/go-runewidth"
)

// Visible returns text as one line that shows everything in it: it escapes characters that
// move the cursor, hide text or reorder it.
func Visible(text string) string { return escape(text, "", true) }

// VisibleLines is [Visible] for text of several lines.
func VisibleLines(text string) string { return escape(text, "\n\t", true) }

// Readable is [VisibleLines] for prose, which may contain joined emoji and any kind of
// space.
func Readable(text string) string { return escape(text, "\n\t\u200d", false) }

func escape(text, keep string, strict bool) string {
	if isPlain(text) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case strings.ContainsRune(keep, r):
			b.WriteRune(r)
		case r == unicode.ReplacementChar && text[i] != "\uFFFD"[0]:
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < ' ' || r == 0x7F:
			fmt.Fprintf(&b, `\x%02x`, r)
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp), strict && r != ' ' && (isBlank(r) || !unicode.IsPrint(r)):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isPlain reports whether text is printable ASCII.
func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// isBlank reports whether a printable character is invisible.
func isBlank(r rune) bool {
	return unicode.Is(unicode.Zs, r) || unicode.Is(unicode.Variation_Selector, r) || strings.ContainsRune("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U0001d159", r)
}

// widths measures text. Ambiguous characters are narrow in every locale, as terminals have
// them by default.
var widths = &runewidth.Condition{StrictEmojiNeutral: true}

// columns returns the width of text in columns, which must not contain escape sequences.
func columns(text string) int {
	if isPlain(text) {
		return len(text)
	}
	return widths.StringWidth(text)
}

// widest returns the largest width that terminals give text: some show the parts of a joined
// character next to each other.
func widest(text string) (n int) {
	if isPlain(text) {
		return len(text)
	}
	for g := graphemes.FromString(text); g.Next(); {
		parts := 0
		for _, r := range g.Value() {
			switch {
			case r == 0xFE0F: // the character before it is shown as an emoji
				parts = max(parts, 2)
			case 0x1F1E6 <= r && r <= 0x1F1FF, 0x1F3FB <= r && r <= 0x1F3FF: // parts of flags, colours of skin
				parts += 2
			default:
				parts += widths.RuneWidth(r)
			}
		}
		n += max(parts, columns(g.Value()))
	}
	return n
}

// Clip shortens text to a number of columns.
func Clip(text string, width int) string { return clip(text, width) }

func clip(text string, width int) string {
	if columns(text) <= width {
		return text
	}
	if width <= 0 {
		return ""
	}
	return widths.Truncate(text, width, "…")
}

// expandTabs replaces tabs with spaces, with stops every 4 columns.
func expandTabs(text string) string {
	if !strings.Contains(text, "\t") {
		return text
	}
	var b strings.Builder
	col := 0
	for part := range strings.SplitAfterSeq(text, "\t") {
		part, tab := strings.CutSuffix(part, "\t")
		b.WriteString(part)
		if col += columns(part); tab {
			n := 4 - col%4
			b.WriteString("    "[:n])
			col += n
		}
	}
	return b.String()
}

// The styles of text, as SGR parameters.
const (
	bold      = "1"
	dim       = "2"
	italic    = "3"
	underline = "4"
	strike    = "9"
	inverse   = "7"
	red       = "31"
	green     = "32"
	yellow    = "33"
	cyan      = "36"
)

// A theme configures how text is styled.
type theme struct {
	color bool // false: no styling sequences at all
	light bool // the background is light
	links bool // the terminal supports OSC 8
}

// paint styles text. It replaces yellow and cyan on a light background, where they are
// hard to read.
func (t theme) paint(look, text string) string {
	if !t.color || text == "" || look == "" {
		return text
	}
	if t.light {
		look = strings.NewReplacer(yellow, "35", cyan, "34").Replace(look)
	}
	return "\x1b[" + look + "m" + text + "\x1b[0m"
}

// A span is a piece of text with one style. Its text has no line feeds and no escape
// sequences.
type span struct {
	look string
	link string
	text string
}

// render returns spans as one string.
func (t theme) render(spans []span) string {
	var b strings.Builder
	for _, s := range spans {
		text := t.paint(s.look, s.text)
		if s.link != "" && t.color && t.links {
			text = "\x1b]8;;" + s.link + "\x1b\\" + text + "\x1b]8;;\x1b\\"
		}
		b.WriteString(text)
	}
	return b.String()
}

// wrap breaks spans into lines of at most width columns, at spaces if possible. The first
// line starts with first, the others with rest.
func (t theme) wrap(spans []span, width int, first, rest []span) []string {
	var out []string
	indent := func(s []span) int {
		n := 0
		for _, p := range s {
			n += columns(p.text)
		}
		return n
	}
	limit := max(8, width-max(indent(first), indent(rest)))
	var cur []span
	used := 0
	flush := func() {
		prefix := rest
		if len(out) == 0 {
			prefix = first
		}
		if n := len(cur); n > 0 {
			cur[n-1].text = strings.TrimRight(cur[n-1].text, " ")
		}
		out = append(out, strings.TrimRight(t.render(prefix)+t.render(cur), " "))
		cur, used = nil, 0
	}
	add := func(s span, text string) {
		if n := len(cur); n > 0 && cur[n-1].look == s.look && cur[n-1].link == s.link {
			cur[n-1].text += text
		} else {
			cur = append(cur, span{s.look, s.link, text})
		}
		used += columns(text)
	}
	for i := 0; i < len(spans); i++ {
		s := spans[i]
		if s.text == "\n" {
			flush()
			continue
		}
		for text := s.text; text != ""; {
			// A word and the spaces after it.
			n := strings.IndexByte(text, ' ')
			if n < 0 {
				n = len(text)
			}
			word := text[:n]
			spaces := len(text) - n - len(strings.TrimLeft(text[n:], " "))
			text = text[n+spaces:]
			w := columns(word)
			joined := w
			if spaces == 0 && text == "" { // the word may continue in the next span
				for _, next := range spans[i+1:] {
					if next.text == "\n" {
						break
					}
					m := strings.IndexByte(next.text, ' ')
					if m >= 0 {
						joined += columns(next.text[:m])
						break
					}
					joined += columns(next.text)
				}
			}
			if used > 0 && used+w > limit || used > 0 && joined <= limit && used+joined > limit {
				flush()
			}
			for w > limit-used {
				head := widths.Truncate(word, limit-used, "")
				if head == "" {
					if used > 0 {
						flush()
						continue
					}
					break
				}
				add(s, head)
				word = word[len(head):]
				w = columns(word)
				flush()
			}
			if word != "" {
				add(s, word)
			}
			if spaces > 0 {
				if used+spaces > limit {
					spaces = max(0, limit-used)
				}
				if spaces > 0 {
					add(s, strings.Repeat(" ", spaces))
				}
			}
		}
	}
	if len(cur) > 0 || len(out) == 0 {
		flush()
	}
	return out
}
