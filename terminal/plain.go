package terminal

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	uv "github.com/charmbracelet/ultraviolet"
)

// Without a live region, for screen readers and dumb terminals, the screen prints lines and
// redraws nothing. The terminal stays in its normal mode, where it edits and echoes a line by
// itself. The last line on the screen is the mark after which the person types.

// A typedLine is a line from a terminal in its normal mode, an inputEnd is Ctrl-D.
type (
	typedLine string
	inputEnd  struct{}
)

// readLines returns a keyboard that sends lines. Its reading goroutine ends with the input.
func readLines(ctx context.Context, in io.Reader) *keyboard {
	k := &keyboard{events: make(chan uv.Event)}
	send := func(m uv.Event) {
		select {
		case k.events <- m:
		case <-ctx.Done():
		}
	}
	go func() {
		lines := bufio.NewReader(in)
		for ctx.Err() == nil {
			line, err := lines.ReadString('\n')
			if line != "" {
				send(typedLine(strings.TrimRight(line, "\r\n")))
			}
			if err != nil {
				send(inputEnd{})
				return
			}
		}
	}()
	return k
}

// plainView prints what the person needs to know now, and returns the mark, nil while no input
// is expected.
func (s *screen) plainView() []string {
	for { // a line that was typed before a question appeared is not an answer to it
		select {
		case m := <-s.keys.events:
			s.event(m)
			continue
		default:
		}
		break
	}
	if s.help {
		s.help = false
		s.t.section("note")
		s.t.print(`Enter sends. A \ at the end continues in the next line. Ctrl-C interrupts; twice, it leaves.`)
		for _, c := range s.commandMenu("").items {
			s.t.print(clip("  "+c.label+"  "+Visible(c.about), s.width()))
		}
	}
	if s.hint != "" {
		s.t.section("note")
		s.t.paragraph(dim, "", s.hint)
		s.hint = ""
	}
	if q := s.current(); q != nil {
		return s.plainQuestion(q)
	}
	if !strings.HasSuffix(s.ed.text, "\n") {
		s.ed.set("") // the terminal edits the line, so no text can be put there
	}
	switch {
	case s.done || s.busy() || s.opening || !s.ready || len(s.queued) > 0:
		return nil
	case s.ended:
		s.done = true
		return nil
	case !s.ed.empty():
		return []string{s.t.paint(cyan, "… ")}
	}
	if len(s.t.out) > 0 || len(s.p.drawn) == 0 {
		s.t.section("mark")
	}
	return []string{s.t.paint(cyan, "> ")}
}

// plainQuestion lists the answers to a question.
func (s *screen) plainQuestion(q *question) []string {
	if s.ended && !q.sent {
		s.cancelQuestion(q)
	}
	if q.sent || s.ended {
		return nil
	}
	st := q.steps[q.at]
	if q.listed != st {
		q.listed = st
		if q.ask == nil {
			s.t.section("ask")
		}
		if st.title != "" && (q.ask == nil || len(q.steps) > 1 || st.input != nil) {
			s.t.paragraph(bold, "? ", Visible(st.title))
		}
		for _, o := range st.options {
			// Skip editors, which need the terminal for themselves. Choices were printed with
			// the question.
			if o.do == nil && st.chosen == nil {
				s.t.paragraph("", "  "+o.key+" = ", Visible(o.label))
			}
		}
		s.t.last = "tool"
	}
	q.queried, q.armed = true, true
	hint := "  answer"
	for _, o := range st.options {
		if st.input != nil && o.text != "" && o.value == st.picked {
			hint = "  " + o.text
		}
	}
	if st.problem != "" {
		hint = "  " + Visible(st.problem)
	} else if st.input != nil && !st.input.empty() {
		hint += " [" + Visible(st.input.text) + "]"
	} else if st.multi {
		hint += ", with commas"
	}
	return []string{s.t.paint(yellow, hint+" > ")}
}

// line handles a typed line: an answer, or a prompt.
func (s *screen) line(text string) {
	marked := len(s.p.drawn) > 0
	s.p.drawn = nil // Enter ended the line
	s.leaving = time.Time{}
	if len(s.asks) > 0 && s.asks[0].armed {
		if q := s.asks[0]; !q.sent {
			s.answerLine(q, strings.TrimSpace(text))
			return
		}
	}
	waiting := len(s.queued)
	s.ed.set(s.ed.text + cleanInput(text))
	s.submit()
	for i := waiting; i < len(s.queued); i++ {
		if marked {
			s.queued[i].echoed = s.p.printed + 1
		} else {
			s.t.print(s.t.paint(dim, "  (queued)"))
		}
	}
}

// answerLine answers the current step of a question with a line: a letter or number of an
// option, its word, a letter and a reason, or free text if there is an option for it.
func (s *screen) answerLine(q *question, text string) {
	st := q.steps[q.at]
	st.problem = ""
	if st.input != nil {
		if text != "" { // otherwise the default applies
			st.input.set(text)
		}
		s.questionKey(q, key{name: "enter"})
		return
	}
	find := func(word string) int {
		for i, o := range st.options {
			if o.do == nil && word != "" && (strings.EqualFold(o.key, word) || strings.EqualFold(o.value, word) || word == strconv.Itoa(i+1)) {
				return i
			}
		}
		return -1
	}
	reply := func(i int, why string) {
		if s.pick(q, i); why != "" && st.input != nil {
			st.input.set(why)
			s.questionKey(q, key{name: "enter"})
		}
	}
	word, why, _ := strings.Cut(text, " ")
	why = strings.TrimSpace(why)
	i := find(strings.TrimRight(word, ",:;"))
	free := -1 // the option that accepts text
	for j, o := range st.options {
		if o.text != "" {
			free = j
		}
	}
	switch {
	case text == "" && st.chosen != nil:
		s.cancelQuestion(q)
	case st.multi:
		clear(st.chosen)
		for w := range strings.SplitSeq(text, ",") {
			if j := find(strings.TrimSpace(w)); j >= 0 && j != free {
				st.chosen[j] = true
			} else {
				clear(st.chosen)
				reply(free, text)
				return
			}
		}
		s.nextStep(q)
	case i >= 0 && why == "":
		reply(i, "")
	case i >= 0 && free >= 0 && (i == free || st.options[i].value == "no"):
		reply(free, why)
	case free >= 0 && st.chosen != nil:
		reply(free, text)
	default:
		q.listed = nil // list the answers again
	}
}

// interrupted handles Ctrl-C in a terminal that turns it into a signal.
func (s *screen) interrupted() {
	s.p.drawn = []string{"^C"} // the terminal has echoed it
	if len(s.asks) > 0 && s.asks[0].armed && !s.asks[0].sent && time.Since(s.leaving) >= again {
		s.leaving = time.Now()
		s.cancelQuestion(s.asks[0])
		return
	}
	s.ctrlC()
	if s.busy() && !s.done {
		s.hint = "Interrupting. Ctrl-C again leaves."
	}
}

// printPlain writes lines, and the mark after them.
func (p *printer) printPlain(print, live []string) error {
	if len(print) == 0 && equal(live, p.drawn) {
		return nil
	}
	var b strings.Builder
	if len(p.drawn) > 0 {
		b.WriteByte('\n')
	}
	for _, l := range print {
		b.WriteString(strings.TrimRight(l, " ") + "\n")
	}
	for _, l := range live {
		b.WriteString(l)
	}
	p.printed += len(print)
	p.drawn = append(p.drawn[:0:0], live...)
	_, err := io.WriteString(p.w, b.String())
	return err
}

// openPlain prints the content of an overlay: everything in the pager, or the items of a
// picker as a question.
func (s *screen) openPlain(o overlay) {
	closed := s.closed
	s.closed = nil
	leave := func() {
		if closed != nil {
			closed()
		}
	}
	switch o := o.(type) {
	case *pager:
		o.layout(s.width())
		s.t.section("note")
		s.t.print(o.lines...)
	case *picker:
		if len(o.items) == 0 {
			s.hint = o.empty
			leave()
			return
		}
		var options []option
		for i, it := range o.items[:min(len(o.items), maxPlainItems)] {
			options = append(options, option{key: strconv.Itoa(i + 1), label: fmt.Sprintf("%s (%s)", it.label, it.about), value: it.id})
		}
		s.choose(o.title, append(options, option{key: "q", label: "none", value: "q"}), func(id string) {
			for _, it := range o.items {
				if it.id == id {
					o.chosen(it)
					return
				}
			}
			leave()
		})
	}
}

// maxPlainItems is the maximum number of listed items of a picker.
const maxPlainItems = 20

// onSignal ends the program, except for Ctrl-C without raw mode.
func (s *screen) onSignal(sig os.Signal) {
	if s.cfg.Plain && sig == os.Interrupt {
		s.interrupted()
		s.draw() // before its consequences
		return
	}
	s.status, s.done = exitOf(sig), true
}
