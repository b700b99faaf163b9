package terminal

import (
	"io"
	"strconv"
	"strings"
	"time"
)

// A printer writes to a terminal: finished lines, once, and below them the live region,
// which it redraws. It uses no sequence that clears the screen, because terminals push the
// cleared text into the scrollback. It is for one goroutine.
type printer struct {
	w    io.Writer
	size func() (columns, rows int)

	plain   bool // no escape sequences except for styling
	printed int  // lines; only if plain

	drawn  []string // the lines of the live region that are on the screen
	cursor position // in the live region
	shown  bool     // the cursor is visible
	sizes  []seenSize
	buf    []byte
	query  string // is sent after the next drawing, in the same write
}

// A position is a position in the live region.
type position struct {
	row, col int
	// before is the text of the line before the cursor if terminals disagree about its width.
	before string
}

// hidden is the position of a cursor that is not shown.
var hidden = position{row: -1}

// The live region is drawn without wrapping: terminals disagree about the width of some characters,
// and a line that wraps would shift all others.
const wrapOff, wrapOn = "\x1b[?7l", "\x1b[?7h"

// A seenSize is a current or earlier width of the terminal.
type seenSize struct {
	width int
	until time.Time
}

// settleTime is how long after a change of size it is unclear with which size the terminal
// draws: tmux reports a change up to 250 ms later.
const settleTime = 400 * time.Millisecond

// widest returns the largest width with which the terminal may draw.
func (p *printer) widest(width int) int {
	now := time.Now()
	if n := len(p.sizes); n == 0 || p.sizes[n-1].width != width {
		p.sizes = append(p.sizes, seenSize{width: width})
	}
	p.sizes[len(p.sizes)-1].until = now
	for len(p.sizes) > 1 && now.Sub(p.sizes[0].until) > settleTime {
		p.sizes = p.sizes[1:]
	}
	most := width
	for _, s := range p.sizes {
		most = max(most, s.width)
	}
	return most
}

// forget starts a new live region where the cursor is: another program has written below the old one.
func (p *printer) forget() { p.drawn, p.cursor = nil, hidden }

// draw prints finished lines and replaces the live region, in one write. Each line fits in
// the width of the terminal and has no line feed.
func (p *printer) draw(print, live []string, cursor position) error {
	if p.plain {
		return p.printPlain(print, live)
	}
	width, _ := p.size()
	wide := p.widest(width)
	settled := len(p.sizes) == 1
	if len(print) == 0 && p.query == "" && cursor == p.cursor && settled && equal(live, p.drawn) {
		return nil
	}
	b := append(p.buf[:0], "\x1b[?2026h"...)
	if p.shown {
		b = append(b, "\x1b[?25l"...)
	}
	// If the terminal is narrower than it was, lines of the live region may now take
	// several rows. Moving up too far would overwrite finished text, so the largest width
	// counts.
	at := p.cursor
	if at == hidden {
		at = position{row: max(0, len(p.drawn)-1)}
	}
	if len(print) == 0 && settled && len(live) == len(p.drawn) {
		// Redraw only lines that changed.
		row := at.row
		b = append(b, wrapOff...)
		for i, text := range live {
			if text == p.drawn[i] {
				continue
			}
			b = moveRows(b, i-row)
			b = append(append(b, "\r\x1b[K"...), text...)
			row = i
		}
		b = moveRows(b, cursorRow(cursor, live)-row)
	} else {
		up := at.col / wide
		for i := range min(at.row, len(p.drawn)) {
			up += (max(1, columns(stripLooks(p.drawn[i]))) - 1) / wide
			up++
		}
		b = moveRows(b, -up)
		b = append(b, '\r')
		stale := len(p.drawn)
		for i, text := range print {
			if i < stale {
				b = append(b, "\x1b[K"...)
			}
			b = append(append(b, text...), "\r\n"...)
		}
		b = append(b, wrapOff...)
		for i, text := range live {
			if i > 0 {
				b = append(b, "\r\n"...)
			}
			b = append(append(b, "\x1b[K"...), text...)
		}
		row := max(0, len(live)-1)
		if extra := stale - len(print) - len(live); extra > 0 {
			if len(live) == 0 {
				b = append(b, "\x1b[K"...)
				extra--
			}
			for range extra {
				b = append(b, "\r\n\x1b[K"...)
			}
			row += extra
		} else if len(live) == 0 && stale > len(print) {
			b = append(b, "\x1b[K"...)
		}
		b = moveRows(b, cursorRow(cursor, live)-row)
	}
	b = append(b, '\r')
	if cursor.before != "" {
		b = append(b, cursor.before...)
	} else if cursor.col > 0 {
		b = append(b, "\x1b["...)
		b = strconv.AppendInt(b, int64(cursor.col), 10)
		b = append(b, 'C')
	}
	b = append(b, wrapOn...)
	if p.shown = cursor != hidden; p.shown {
		b = append(b, "\x1b[?25h"...)
	}
	b = append(append(b, "\x1b[?2026l"...), p.query...)
	p.query = ""
	p.drawn, p.cursor, p.buf = append(p.drawn[:0], live...), cursor, b
	_, err := p.w.Write(b)
	return err
}

func cursorRow(c position, live []string) int {
	if c == hidden {
		return max(0, len(live)-1)
	}
	return c.row
}

// moveRows moves the cursor down, or up if n is negative.
func moveRows(b []byte, n int) []byte {
	if n == 0 {
		return b
	}
	b = append(b, "\x1b["...)
	if n < 0 {
		b = strconv.AppendInt(b, int64(-n), 10)
		return append(b, 'A')
	}
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, 'B')
}

func equal(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// stripLooks removes the styling sequences of this package from a line.
func stripLooks(text string) string {
	if !strings.Contains(text, "\x1b") {
		return text
	}
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(text, "\x1b")
		b.WriteString(before)
		if !ok {
			return b.String()
		}
		if strings.HasPrefix(rest, "]") { // up to ESC \
			_, rest, _ = strings.Cut(rest, "\x1b\\")
		} else if i := strings.IndexByte(rest, 'm'); i >= 0 {
			rest = rest[i+1:]
		}
		text = rest
	}
}
