package terminal

import (
	"fmt"
	"strings"
	"time"
)

// maxLive is the maximum number of lines of the live region.
const maxLive = 10

var spinner = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

// view returns the live region.
func (s *screen) view() (lines []string, cursor position) {
	if s.cfg.Plain {
		return s.plainView(), hidden
	}
	w, h := s.p.size()
	w-- // leave the last column free: a cursor there is ambiguous
	most := max(2, min(maxLive, h-1))

	// From the bottom up: the status line, the menu, the input. The rest is for
	// progress.
	var bottom []string
	if status := s.statusLine(w); status != "" && most > 3 {
		bottom = append(bottom, status)
	}
	var middle []string
	q := s.current()
	switch {
	case q != nil && (q.armed || s.ed.empty()):
		middle, cursor = s.questionView(q, most-len(bottom))
	default:
		if s.help {
			middle = s.helpLines(w, most-len(bottom)-1)
		} else if s.menu != nil {
			middle = s.menuLines(w, min(6, most-len(bottom)-1))
		}
		input, at := s.inputLines(w, max(1, min(5, most-len(bottom)-len(middle))))
		middle = append(input, middle...)
		cursor = at
	}
	room := max(0, most-len(bottom)-len(middle))
	top := s.activity(w, room)
	if over := len(top) - room; over > 0 {
		top = top[over:]
	}
	if cursor != hidden {
		cursor.row += len(top)
	}
	lines = append(append(top, middle...), bottom...)
	if over := len(lines) - most; over > 0 { // only on a very small screen
		from := min(over, max(0, cursor.row-most+1))
		lines = lines[from : from+most]
		if cursor != hidden {
			cursor.row -= from
		}
	}
	return lines, cursor
}

// activity returns the lines about current work, at most room of them.
func (s *screen) activity(w, room int) (lines []string) {
	if room <= 0 {
		return nil
	}
	t := s.t
	var queued []string
	for _, q := range s.queued {
		first, _, more := strings.Cut(strings.TrimSpace(q.shown), "\n")
		if more {
			first += " …"
		}
		queued = append(queued, t.paint(dim, clip("> "+Visible(first)+"  (queued)", w)))
	}
	if n := len(queued); n > 2 {
		queued = append(queued[:1], t.paint(dim, fmt.Sprintf("  … %d more prompts are queued", n-1)))
	}
	if room -= len(queued); room <= 0 {
		return queued
	}
	var spin []string
	asked := s.current() != nil
	if t.busy && !asked {
		spin = []string{s.spinLine(w)}
	}
	if n := len(s.running); n > 0 { // Esc ends this one first
		c := s.running[n-1]
		text := fmt.Sprintf("… %ds · Esc interrupts", int(time.Since(c.since).Seconds()))
		spin = append(spin, t.paint(cyan, spinner[s.spin%len(spinner)])+" "+t.paint(dim, clip("Running "+clip(Visible(c.text), 40)+text, w-2)))
	}
	if t.retry != "" {
		spin = append(spin, t.paint(yellow, clip(t.retry, w)))
	}
	if s.hint != "" {
		spin = append(spin, t.paint(dim, clip(Visible(s.hint), w)))
	}
	room -= len(spin)
	var todos []string
	if open := openTodos(t.todos); open > 0 && room > 1 {
		todos = s.todoLines(w, min(4, room/2+1))
	}
	room -= len(todos)
	var calls []string
	if !asked {
		calls = s.callLines(w, max(0, min(4, room)))
	}
	room -= len(calls)
	var tail []string
	switch {
	case room <= 0:
	case t.thought != nil:
		tail = t.thoughtLines(lastRunes(t.thought.text, 600))
		if n := len(tail); n > 2 {
			tail = tail[n-2:]
		}
	default:
		tail = t.text.tail()
	}
	if n := len(tail) - max(0, room); n > 0 {
		tail = tail[n:]
	}
	lines = append(lines, tail...)
	lines = append(lines, calls...)
	lines = append(lines, todos...)
	lines = append(lines, spin...)
	return append(lines, queued...)
}

func lastRunes(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[len(text)-n:], "")
}

func openTodos(list []todo) (n int) {
	for _, t := range list {
		if t.Status != "completed" {
			n++
		}
	}
	return n
}

// spinLine describes what the agent is doing.
func (s *screen) spinLine(w int) string {
	t := s.t
	what := t.doing
	if len(t.calls) > 0 && what != "Interrupting" {
		what = "Working"
	}
	if what == "" {
		what = "Thinking"
	}
	for _, x := range t.todos {
		if x.Status == "in_progress" && x.ActiveForm != "" && what != "Interrupting" {
			what = Visible(x.ActiveForm)
		}
	}
	text := fmt.Sprintf("%s… %ds · Esc interrupts", what, int(time.Since(t.since).Seconds()))
	return t.paint(cyan, spinner[s.spin%len(spinner)]) + " " + t.paint(dim, clip(text, w-2))
}

// callLines returns the running calls, with elapsed times, and subagents as a tree.
func (s *screen) callLines(w, most int) (lines []string) {
	t := s.t
	for _, c := range t.calls {
		if t.agent(c.id) == nil {
			lines = append(lines, s.runLine(w, "● ", Visible(c.name)+" "+c.arg, c.since))
			for _, line := range c.output {
				lines = append(lines, t.paint(dim, clip("  "+line, w)))
			}
		}
	}
	for _, a := range t.agents {
		indent := strings.Repeat("  ", a.depth)
		lines = append(lines, s.runLine(w, indent+"◆ ", a.kind+": "+a.name, a.since))
		if a.tools > 0 {
			lines = append(lines, t.paint(dim, clip(indent+"  └ "+count(a.tools, "call", "calls")+" · "+a.note, w)))
		}
	}
	if n := len(lines); n > most {
		if most <= 0 {
			return nil
		}
		lines = append(lines[:most-1], t.paint(dim, fmt.Sprintf("  … %d more lines", n-most+1)))
	}
	return lines
}

// runLine returns a line for something that is running.
func (s *screen) runLine(w int, mark, text string, since time.Time) string {
	elapsed := ""
	if d := time.Since(since); d >= 2*time.Second {
		elapsed = fmt.Sprintf(" %ds", int(d.Seconds()))
	}
	return s.t.paint(yellow, mark) + clip(text, w-columns(mark)-len(elapsed)) + s.t.paint(dim, elapsed)
}

// todoLines returns the model's todo list, starting at the current item.
func (s *screen) todoLines(w, most int) (lines []string) {
	t := s.t
	from := 0
	for i, x := range t.todos {
		if x.Status != "completed" {
			from = i
			break
		}
	}
	if from > 0 && len(t.todos)-from < most {
		from--
	}
	for _, x := range t.todos[from:] {
		if len(lines) == most {
			lines[most-1] = t.paint(dim, fmt.Sprintf("  … %d more", len(t.todos)-from-most+1))
			break
		}
		switch x.Status {
		case "completed":
			lines = append(lines, t.paint(dim, clip("☑ "+Visible(x.Content), w)))
		case "in_progress":
			lines = append(lines, t.paint(bold, clip("▶ "+Visible(x.Content), w)))
		default:
			lines = append(lines, clip("☐ "+Visible(x.Content), w))
		}
	}
	return lines
}

// inputLines returns the input, scrolled so that the cursor is visible.
func (s *screen) inputLines(w, most int) (lines []string, cursor position) {
	if q := s.ed.search; q != nil {
		match := "(no match)"
		if q.at >= 0 {
			match = strings.ReplaceAll(s.ed.history[q.at], "\n", " ⏎ ")
		}
		head := "search: " + Visible(q.query)
		line := s.t.paint(cyan, clip(head, w))
		rest := w - columns(head) - 3
		if rest > 5 && q.query != "" {
			line += s.t.paint(dim, "   "+clip(Visible(match), rest))
		}
		return []string{line}, position{col: min(w, columns(head))}
	}
	rows, at := s.ed.rows(s.t.theme, max(4, w-2))
	from := 0
	if at.row >= most {
		from = at.row - most + 1
	}
	to := min(len(rows), from+most)
	mark := "> "
	look := cyan + ";" + bold
	switch {
	case strings.HasPrefix(s.ed.text, "!"):
		look = yellow + ";" + bold
	case strings.HasPrefix(s.ed.text, "#"):
		look = green + ";" + bold
	}
	for i := from; i < to; i++ {
		prefix := "  "
		if i == 0 {
			prefix = s.t.paint(look, mark)
		} else if i == from {
			prefix = s.t.paint(dim, "↑ ")
		} else if i == to-1 && to < len(rows) {
			prefix = s.t.paint(dim, "↓ ")
		}
		lines = append(lines, prefix+rows[i])
		if i == at.row && at.before != "" {
			at.before = prefix + at.before
		}
	}
	return lines, position{at.row - from, at.col + 2, at.before}
}

// helpLines lists the keys in as many columns as fit.
func (s *screen) helpLines(w, most int) (lines []string) {
	var items []string
	widest := 0
	for _, k := range keyHelp {
		item := k[0] + ": " + k[1]
		items = append(items, item)
		widest = max(widest, columns(item))
	}
	per := max(1, (w+2)/(widest+2))
	if (len(items)+per-1)/per > most { // too many: as running text
		text := strings.Join(items, " · ")
		lines = s.t.wrap([]span{{look: dim, text: text}}, w, nil, nil)
		if len(lines) > most {
			lines = append(lines[:most-1], s.t.paint(dim, "… /keys has all of them"))
		}
		return lines
	}
	rows := (len(items) + per - 1) / per
	for r := range rows {
		var b strings.Builder
		for c := range per {
			if i := c*rows + r; i < len(items) {
				b.WriteString(items[i] + strings.Repeat(" ", widest+2-columns(items[i])))
			}
		}
		lines = append(lines, s.t.paint(dim, strings.TrimRight(b.String(), " ")))
	}
	return lines
}
