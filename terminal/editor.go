package terminal

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/uax29/v2/graphemes"
)

// A key is one key press, or a paste.
type key struct {
	name  string // "ctrl+a", "shift+enter", "x"
	text  string // the characters that it types
	paste bool   // text was pasted
}

// An editor holds the text that a person types. It is independent of the screen.
type editor struct {
	text string
	pos  int // of the cursor, in bytes
	// chips are pieces that are shown as one word and sent whole: long pastes and pictures.
	// In text each chip is one rune from firstChip on. They stay after the text was sent,
	// because it may come back: from the history, or because it was dropped from the queue.
	chips []chip

	killed  string
	undo    []snapshot
	typing  bool // the last change was typing, which one undo reverts
	history []string
	at      int    // in history; len(history) is the draft
	draft   string // the text before the history was browsed
	search  *search
}

// A chip represents text that is not shown.
type chip struct {
	label   string
	content string // text of a paste
	image   string // or the path of a picture
	data    []byte // or a picture itself
}

const firstChip = 0xF0000 // private use: typed or pasted text never contains these

// A snapshot is a state that undo restores.
type snapshot struct {
	text string
	pos  int
}

// A search is a search through the history, from the newest entry back.
type search struct {
	query string
	at    int // the matching entry, -1 if none
}

// Pastes above these limits become a chip.
const (
	chipLines = 4
	chipBytes = 800
)

// set replaces the text. It turns labels of chips back into chips.
func (e *editor) set(text string) {
	e.save()
	for i, c := range e.chips {
		text = strings.ReplaceAll(text, c.label, string(rune(firstChip+i)))
	}
	e.text, e.pos, e.typing = text, len(text), false
}

// reset empties the editor after its text was sent.
func (e *editor) reset() {
	*e = editor{chips: e.chips, killed: e.killed, history: e.history, at: len(e.history)}
}

func (e *editor) empty() bool { return e.text == "" }

func (e *editor) save() {
	if n := len(e.undo); n == 0 || e.undo[n-1] != (snapshot{e.text, e.pos}) {
		e.undo = append(e.undo, snapshot{e.text, e.pos})
	}
	if len(e.undo) > 500 {
		e.undo = e.undo[len(e.undo)-500:]
	}
}

// insert types text at the cursor.
func (e *editor) insert(text string) {
	text = cleanInput(text)
	if text == "" {
		return
	}
	if !e.typing || strings.ContainsAny(text, " \n") {
		e.save()
	}
	e.typing = true
	e.text = e.text[:e.pos] + text + e.text[e.pos:]
	e.pos += len(text)
}

// cleanInput removes characters that nobody types: control characters and those of chips.
func cleanInput(text string) string {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if unicode.IsControl(r) || r >= firstChip && r < firstChip+0x1000 {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// paste inserts pasted text; long text becomes a chip.
func (e *editor) paste(text string) {
	text = strings.TrimRight(cleanInput(text), "\n")
	lines := strings.Count(text, "\n") + 1
	if lines <= chipLines && len(text) <= chipBytes {
		e.typing = false
		e.insert(text)
		e.typing = false
		return
	}
	label := fmt.Sprintf("[Pasted #%d: %d lines]", len(e.chips)+1, lines)
	if lines == 1 {
		label = fmt.Sprintf("[Pasted #%d: %d characters]", len(e.chips)+1, utf8.RuneCountInString(text))
	}
	e.addChip(chip{label: label, content: text})
}

func (e *editor) addChip(c chip) {
	e.save()
	e.typing = false
	r := string(rune(firstChip + len(e.chips)))
	e.chips = append(e.chips, c)
	e.text = e.text[:e.pos] + r + e.text[e.pos:]
	e.pos += len(r)
}

// chipOf returns the chip of a rune.
func (e *editor) chipOf(r rune) (chip, bool) {
	if i := int(r) - firstChip; i >= 0 && i < len(e.chips) {
		return e.chips[i], true
	}
	return chip{}, false
}

// value returns the text with each chip replaced by the result of f.
func (e *editor) value(f func(chip) string) string {
	if len(e.chips) == 0 {
		return e.text
	}
	var b strings.Builder
	for _, r := range e.text {
		if c, ok := e.chipOf(r); ok {
			b.WriteString(f(c))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// prompt returns the text to send.
func (e *editor) prompt() string {
	return e.value(func(c chip) string {
		if c.image != "" || c.data != nil {
			return c.label
		}
		return c.content
	})
}

// shown returns the text to show.
func (e *editor) shown() string { return e.value(func(c chip) string { return c.label }) }

// images returns the chips in the text that are pictures.
func (e *editor) images() (list []chip) {
	for _, r := range e.text {
		if c, ok := e.chipOf(r); ok && (c.image != "" || c.data != nil) {
			list = append(list, c)
		}
	}
	return list
}

// before and after return the position one character away.
func (e *editor) before(pos int) int {
	start := strings.LastIndexByte(e.text[:pos], '\n') + 1
	if start == pos {
		return max(0, pos-1)
	}
	last := start
	for g := graphemes.FromString(e.text[start:pos]); g.Next(); {
		last = start + g.Start()
	}
	return last
}

func (e *editor) after(pos int) int {
	g := graphemes.FromString(e.text[pos:])
	if !g.Next() {
		return pos
	}
	return pos + g.End()
}

// isWord reports whether r is part of a word, as are the marks and joiners in the words of many languages.
func isWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) || r == '_' || r == '\u200c' || r == '\u200d'
}

// wordBefore and wordAfter return the position one word away.
func (e *editor) wordBefore(pos int) int {
	seen := false
	for pos > 0 {
		r, n := utf8.DecodeLastRuneInString(e.text[:pos])
		if seen && !isWord(r) {
			break
		}
		seen = seen || isWord(r)
		pos -= n
	}
	return pos
}

func (e *editor) wordAfter(pos int) int {
	seen := false
	for pos < len(e.text) {
		r, n := utf8.DecodeRuneInString(e.text[pos:])
		if seen && !isWord(r) {
			break
		}
		seen = seen || isWord(r)
		pos += n
	}
	return pos
}

// spaceBefore returns the position after the space before the word, as for Ctrl-W.
func (e *editor) spaceBefore(pos int) int {
	trimmed := strings.TrimRight(e.text[:pos], " \t\n")
	return strings.LastIndexAny(trimmed, " \t\n") + 1
}

func (e *editor) lineStart() int { return strings.LastIndexByte(e.text[:e.pos], '\n') + 1 }

func (e *editor) lineEnd() int {
	if i := strings.IndexByte(e.text[e.pos:], '\n'); i >= 0 {
		return e.pos + i
	}
	return len(e.text)
}

// cut removes the text between two positions and, with keep, stores it for Ctrl-Y.
func (e *editor) cut(from, to int, keep bool) {
	if from >= to {
		return
	}
	e.save()
	e.typing = false
	if keep {
		e.killed = e.text[from:to]
	}
	e.text, e.pos = e.text[:from]+e.text[to:], from
}

// key changes the text. It reports whether the editor uses the key.
func (e *editor) key(k key) bool {
	if k.paste {
		e.paste(k.text)
		return true
	}
	switch k.name {
	case "left", "ctrl+b":
		e.move(e.before(e.pos))
	case "right", "ctrl+f":
		e.move(e.after(e.pos))
	case "alt+left", "ctrl+left", "alt+b":
		e.move(e.wordBefore(e.pos))
	case "alt+right", "ctrl+right", "alt+f":
		e.move(e.wordAfter(e.pos))
	case "home", "ctrl+a":
		e.move(e.lineStart())
	case "end", "ctrl+e":
		e.move(e.lineEnd())
	case "alt+<", "ctrl+home":
		e.move(0)
	case "alt+>", "ctrl+end":
		e.move(len(e.text))
	case "up", "ctrl+p":
		e.vertical(-1)
	case "down", "ctrl+n":
		e.vertical(1)
	case "backspace", "ctrl+h", "shift+backspace":
		e.cut(e.before(e.pos), e.pos, false)
	case "delete", "ctrl+d":
		e.cut(e.pos, e.after(e.pos), false)
	case "ctrl+w":
		e.cut(e.spaceBefore(e.pos), e.pos, true)
	case "alt+backspace", "ctrl+backspace":
		e.cut(e.wordBefore(e.pos), e.pos, true)
	case "alt+d":
		e.cut(e.pos, e.wordAfter(e.pos), true)
	case "ctrl+k":
		end := e.lineEnd()
		if end == e.pos {
			end = min(len(e.text), end+1)
		}
		e.cut(e.pos, end, true)
	case "ctrl+u":
		e.cut(e.lineStart(), e.pos, true)
	case "ctrl+y":
		e.save()
		e.typing = false
		e.text = e.text[:e.pos] + e.killed + e.text[e.pos:]
		e.pos += len(e.killed)
	case "ctrl+t":
		e.transpose()
	case "ctrl+_", "ctrl+/", "ctrl+-", "ctrl+shift+-", "ctrl+7":
		e.undoChange()
	case "shift+enter", "alt+enter", "ctrl+j", "alt+shift+enter", "ctrl+enter":
		e.insert("\n")
	default:
		if k.text == "" {
			return false
		}
		e.insert(k.text)
	}
	return true
}

func (e *editor) move(pos int) { e.pos, e.typing = pos, false }

// transpose swaps the characters around the cursor.
func (e *editor) transpose() {
	at := e.pos
	if at == len(e.text) {
		at = e.before(at)
	}
	if at == 0 {
		return
	}
	from, to := e.before(at), e.after(at)
	e.save()
	e.typing = false
	e.text = e.text[:from] + e.text[at:to] + e.text[from:at] + e.text[to:]
	e.pos = to
}

func (e *editor) undoChange() {
	for n := len(e.undo); n > 0; n = len(e.undo) {
		s := e.undo[n-1]
		e.undo = e.undo[:n-1]
		if s.text != e.text {
			e.text, e.pos, e.typing = s.text, s.pos, false
			return
		}
	}
}

// vertical moves to the line above or below; at the first and last line it browses the
// history.
func (e *editor) vertical(by int) {
	start, end := e.lineStart(), e.lineEnd()
	col := columns(e.text[start:e.pos])
	switch {
	case by < 0 && start == 0:
		e.walk(-1)
		return
	case by > 0 && end == len(e.text):
		e.walk(1)
		return
	case by < 0:
		start = strings.LastIndexByte(e.text[:start-1], '\n') + 1
	default:
		start = end + 1
	}
	e.pos = start
	for columns(e.text[start:e.pos]) < col && e.pos < e.lineEnd() {
		e.pos = e.after(e.pos)
	}
	e.typing = false
}

// walk browses the history.
func (e *editor) walk(by int) {
	to := e.at + by
	if to < 0 || to > len(e.history) {
		return
	}
	if e.at == len(e.history) {
		e.draft = e.text
	}
	e.at = to
	if text := e.draft; to < len(e.history) {
		e.set(e.history[to])
	} else {
		e.set(text)
	}
	if by < 0 { // so that the next Up continues
		e.pos = e.firstLineEnd()
	}
}

func (e *editor) firstLineEnd() int {
	if i := strings.IndexByte(e.text, '\n'); i >= 0 {
		return i
	}
	return len(e.text)
}

// remember adds sent text to the history.
func (e *editor) remember(text string) {
	if n := len(e.history); n == 0 || e.history[n-1] != text {
		e.history = append(e.history, text)
	}
	e.at = len(e.history)
}

// searchKey handles a key while the history is searched. It reports false if the search has
// ended and the key must still be handled.
func (e *editor) searchKey(k key) bool {
	s := e.search
	switch k.name {
	case "ctrl+r", "up":
		if s.at > 0 {
			e.find(s.at - 1)
		}
	case "ctrl+g", "esc", "ctrl+c":
		e.search = nil
	case "backspace", "ctrl+h":
		if _, n := utf8.DecodeLastRuneInString(s.query); n > 0 {
			s.query = s.query[:len(s.query)-n]
			e.find(len(e.history) - 1)
		} else {
			e.search = nil
		}
	default:
		if k.text != "" && !k.paste {
			s.query += cleanInput(k.text)
			from := s.at
			if from < 0 {
				from = len(e.history) - 1
			}
			e.find(from)
			return true
		}
		if s.at >= 0 {
			e.set(e.history[s.at])
		}
		e.search = nil
		return false
	}
	return true
}

// find searches the history for the query, backward from an entry.
func (e *editor) find(from int) {
	s := e.search
	for i := min(from, len(e.history)-1); i >= 0; i-- {
		if strings.Contains(strings.ToLower(e.history[i]), strings.ToLower(s.query)) {
			s.at = i
			return
		}
	}
	if s.at >= 0 && s.at < len(e.history) && strings.Contains(strings.ToLower(e.history[s.at]), strings.ToLower(s.query)) {
		return // it is the oldest match
	}
	s.at = -1
}

// rows breaks the text into rows of at most width columns, and returns the position of the
// cursor.
func (e *editor) rows(t theme, width int) (rows []string, cursor position) {
	var row strings.Builder
	used, certain := 0, true // the width of the row, and that all terminals agree about it
	flush := func() {
		rows = append(rows, row.String())
		row.Reset()
		used, certain = 0, true
	}
	place := func() position {
		if certain {
			return position{row: len(rows), col: used}
		}
		return position{row: len(rows), col: used, before: row.String()}
	}
	put := func(text, look string) {
		w := widest(text)
		if used+w > width && used > 0 {
			flush()
		}
		row.WriteString(t.paint(look, clip(text, width)))
		used += min(w, width)
		certain = certain && w == columns(text)
	}
	pos := 0
	for g := graphemes.FromString(e.text); g.Next(); {
		cluster := g.Value()
		if pos <= e.pos && e.pos < pos+len(cluster) { // it may be inside
			if w := widest(Readable(cluster)); cluster != "\n" && used+w > width {
				flush()
			}
			cursor = place()
		}
		pos += len(cluster)
		r, _ := utf8.DecodeRuneInString(cluster)
		switch c, ok := e.chipOf(r); {
		case ok:
			put(c.label, inverse)
		case cluster == "\t":
			put("    ", "")
		default:
			text, ends := strings.CutSuffix(cluster, "\n") // "\r\n" is one cluster
			if text != "" {
				put(Readable(text), "")
			}
			if ends {
				flush()
			}
		}
	}
	if e.pos >= pos {
		if used >= width {
			flush()
		}
		cursor = place()
	}
	flush()
	return rows, cursor
}
