package terminal

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/parley-go/parley/wire"
)

// drawOverlay draws a picker or the pager on the alternate screen.
func (s *screen) drawOverlay() {
	w, h := s.p.size()
	lines, cursor := s.overlay.view(w, h)
	var b strings.Builder
	b.WriteString("\x1b[?2026h\x1b[?25l" + wrapOff)
	for i := range h {
		fmt.Fprintf(&b, "\x1b[%d;1H\x1b[K", i+1)
		if i < len(lines) {
			b.WriteString(lines[i])
		}
	}
	if cursor != hidden {
		fmt.Fprintf(&b, "\x1b[%d;%dH\x1b[?25h", cursor.row+1, cursor.col+1)
	}
	b.WriteString(wrapOn + "\x1b[?2026l")
	s.cfg.Out.WriteString(b.String())
}

// openOverlay switches to the alternate screen; output of the session waits.
func (s *screen) openOverlay(o overlay) {
	if s.cfg.Plain {
		s.openPlain(o)
		return
	}
	if s.overlay == nil {
		s.cfg.Out.WriteString("\x1b[?1049h")
	}
	s.overlay = o
	s.drawOverlay()
}

func (s *screen) closeOverlay() {
	if s.overlay == nil {
		return
	}
	s.overlay = nil
	show := "\x1b[?1049l\x1b[?25l"
	if s.p.shown {
		show = "\x1b[?1049l\x1b[?25h"
	}
	s.cfg.Out.WriteString(show)
	if f := s.closed; f != nil {
		s.closed = nil
		f()
	}
}

// A pager shows all details in full.
type pager struct {
	s      *screen
	lines  []string
	width  int
	top    int
	height int
	query  string
	typing bool
}

// openPager opens the pager at the end of the conversation.
func (s *screen) openPager() {
	p := &pager{s: s, top: 1 << 30}
	s.openOverlay(p)
}

// layout renders the lines of all details.
func (p *pager) layout(width int) {
	t := p.s.t
	p.width, p.lines = width, nil
	for _, d := range t.details {
		if d.title != "" {
			title := d.title
			mark := ""
			for _, m := range []string{t.paint(green, "✓"), t.paint(red, "✗")} {
				if rest, ok := strings.CutPrefix(title, m); ok {
					mark, title = m, rest
				}
			}
			for i, l := range strings.Split(strings.TrimRight(title, "\n"), "\n") {
				if i > 0 {
					mark = ""
				}
				p.lines = append(p.lines, mark+t.paint(bold, clip(expandTabs(strings.ReplaceAll(VisibleLines(l), "\n", "")), width-2)))
			}
			for l := range strings.SplitSeq(d.body, "\n") {
				p.lines = append(p.lines, t.wrap([]span{{text: expandTabs(strings.ReplaceAll(VisibleLines(l), "\n", ""))}}, width, []span{{text: "  "}}, []span{{text: "  "}})...)
			}
		} else {
			m := markdown{theme: t.theme, width: func() int { return width }}
			p.lines = append(p.lines, m.write(d.body)...)
			p.lines = append(p.lines, m.close()...)
		}
		p.lines = append(p.lines, "")
	}
	if len(p.lines) == 0 {
		p.lines = []string{t.paint(dim, "Nothing has happened yet.")}
	}
}

func (p *pager) view(width, height int) ([]string, position) {
	if p.width != width {
		p.layout(width)
	}
	p.height = max(1, height-1)
	p.top = max(0, min(p.top, len(p.lines)-p.height))
	lines := append([]string{}, p.lines[p.top:min(len(p.lines), p.top+p.height)]...)
	for len(lines) < p.height {
		lines = append(lines, "")
	}
	foot := fmt.Sprintf("%d–%d of %d · arrows, PgUp, PgDn, g, G move · / finds, n next · q closes", p.top+1, min(len(p.lines), p.top+p.height), len(p.lines))
	cursor := hidden
	if p.typing {
		foot = "/" + Visible(p.query)
		cursor = position{row: p.height, col: min(width-1, columns(foot))}
	}
	return append(lines, p.s.t.paint(inverse, clip(foot, width-1))), cursor
}

func (p *pager) key(k key) bool {
	if p.typing {
		switch k.name {
		case "enter":
			p.typing = false
			p.find(p.top)
		case "esc", "ctrl+c":
			p.typing = false
		case "backspace":
			if r := []rune(p.query); len(r) > 0 {
				p.query = string(r[:len(r)-1])
			}
		default:
			p.query += cleanInput(k.text)
		}
		return false
	}
	switch k.name {
	case "q", "esc", "ctrl+c", "ctrl+o":
		return true
	case "up", "k":
		p.top--
	case "down", "j", "enter":
		p.top++
	case "pgup", "b", "ctrl+b", "ctrl+u":
		p.top -= p.height
	case "pgdown", "space", "f", "ctrl+f", "ctrl+d":
		p.top += p.height
	case "g", "home":
		p.top = 0
	case "G", "shift+g", "end":
		p.top = 1 << 30
	case "/":
		p.typing, p.query = true, ""
	case "n":
		p.find(p.top + 1)
	}
	return false
}

// find goes to the next line with the query.
func (p *pager) find(from int) {
	if p.query == "" {
		return
	}
	for i := range p.lines {
		at := (max(0, from) + i) % len(p.lines)
		if strings.Contains(strings.ToLower(stripLooks(p.lines[at])), strings.ToLower(p.query)) {
			p.top = at
			return
		}
	}
}

// A picker lets the person choose one of many items, with a search.
type picker struct {
	s       *screen
	title   string
	items   []pick
	query   string
	at      int
	loading bool
	empty   string
	chosen  func(pick)
	action  map[string]func(pick) // other keys
	foot    string
}

// A pick is an item of a picker.
type pick struct {
	id      string
	label   string
	about   string
	preview func() []string
}

func (p *picker) found() (out []pick) {
	words := strings.Fields(strings.ToLower(p.query))
	for _, i := range p.items {
		text := strings.ToLower(i.label + " " + i.about + " " + i.id)
		ok := true
		for _, w := range words {
			ok = ok && strings.Contains(text, w)
		}
		if ok {
			out = append(out, i)
		}
	}
	return out
}

func (p *picker) view(width, height int) (lines []string, cursor position) {
	t := p.s.t
	lines = append(lines, t.paint(bold, clip(p.title, width-1)), t.paint(cyan, "search: ")+clip(Visible(p.query), width-10))
	cursor = position{row: 1, col: min(width-1, 8+columns(Visible(p.query)))}
	found := p.found()
	p.at = max(0, min(p.at, len(found)-1))
	foot := "Enter chooses · arrows move · Esc closes"
	if p.foot != "" {
		foot = p.foot + " · " + foot
	}
	var preview []string
	if len(found) > 0 && found[p.at].preview != nil && height >= 16 {
		preview = found[p.at].preview()
		if n := height / 3; len(preview) > n {
			preview = preview[len(preview)-n:]
		}
	}
	room := max(1, height-len(lines)-1-len(preview)-min(1, len(preview)))
	from := max(0, min(p.at-room/2, len(found)-room))
	for i := from; i < min(len(found), from+room); i++ {
		label, about := Visible(found[i].label), Visible(found[i].about)
		about = clip(about, max(0, width/3))
		label = clip(label, width-4-columns(about))
		pad := strings.Repeat(" ", max(1, width-3-columns(label)-columns(about)))
		if i == p.at {
			lines = append(lines, t.paint(cyan, "❯ ")+t.paint(bold, label)+pad+t.paint(dim, about))
		} else {
			lines = append(lines, "  "+label+pad+t.paint(dim, about))
		}
	}
	if len(found) == 0 {
		text := p.empty
		if p.loading {
			text = "…"
		} else if p.query != "" {
			text = "Nothing matches."
		}
		lines = append(lines, t.paint(dim, clip("  "+Visible(text), width-1)))
	}
	if len(preview) > 0 {
		for len(lines) < height-1-len(preview)-1 {
			lines = append(lines, "")
		}
		lines = append(lines, t.paint(dim, strings.Repeat("─", width-1)))
		lines = append(lines, preview...)
	}
	for len(lines) < height-1 {
		lines = append(lines, "")
	}
	return append(lines, t.paint(inverse, clip(foot, width-1))), cursor
}

func (p *picker) key(k key) bool {
	found := p.found()
	switch k.name {
	case "esc", "ctrl+c":
		if p.query != "" && k.name == "esc" {
			p.query = ""
			return false
		}
		return true
	case "up", "ctrl+p":
		p.at--
	case "down", "ctrl+n":
		p.at++
	case "pgup":
		p.at -= 10
	case "pgdown":
		p.at += 10
	case "enter":
		if len(found) == 0 {
			return false
		}
		p.s.closed = nil
		p.s.closeOverlay()
		p.chosen(found[p.at])
		return false
	case "backspace", "ctrl+h":
		if r := []rune(p.query); len(r) > 0 {
			p.query = string(r[:len(r)-1])
		}
	case "ctrl+u":
		p.query = ""
	default:
		if f := p.action[k.name]; f != nil && len(found) > 0 {
			f(found[p.at])
			return false
		}
		p.query += strings.ReplaceAll(cleanInput(k.text), "\n", " ")
		if k.text != "" {
			p.at = 0
		}
	}
	return false
}

// A Saved is a session that can be resumed.
type Saved struct {
	ID       string
	Title    string
	Branch   string
	Modified time.Time
	// Preview returns the end of the conversation as text. It may be nil.
	Preview func() string
}

// pickSession opens the picker of sessions.
func (s *screen) pickSession() {
	if s.cfg.Sessions == nil || s.cfg.Resume == nil {
		s.hint = "Sessions are not kept here."
		return
	}
	p := &picker{s: s, title: "Continue a session", loading: true, empty: "There are no sessions in this directory yet."}
	p.chosen = func(it pick) { s.resume(it.id) }
	if !s.cfg.Plain {
		s.openOverlay(p)
	}
	s.async(func(ctx context.Context) func() {
		list, err := s.cfg.Sessions(ctx)
		return func() {
			p.loading = false
			if err != nil {
				p.empty = err.Error()
			}
			for _, x := range list {
				about := ago(time.Since(x.Modified))
				if x.Branch != "" {
					about = x.Branch + " · " + about
				}
				it := pick{id: x.ID, label: strings.ReplaceAll(x.Title, "\n", " "), about: about}
				if x.Preview != nil {
					var cached []string
					it.preview = func() []string {
						if cached == nil {
							m := markdown{theme: s.t.theme, width: func() int { return s.width() - 1 }}
							cached = append(m.write(x.Preview()), m.close()...)
						}
						return cached
					}
				}
				p.items = append(p.items, it)
			}
			if s.cfg.Plain {
				s.openOverlay(p)
			} else if s.overlay == p {
				s.drawOverlay()
			}
		}
	})
	if s.session == nil { // before the first session: closing the picker starts a new one
		p.foot = "Esc begins a new session"
		s.closed = s.open
	}
}

// resume shows another session.
func (s *screen) resume(id string) {
	if s.session != nil && s.session.ID() == id {
		return
	}
	if s.t.busy {
		s.hint = "A turn runs. Interrupt it first."
		return
	}
	s.opening = true
	s.async(func(ctx context.Context) func() {
		session, err := s.cfg.Resume(ctx, id)
		return func() {
			if s.opening = false; err != nil {
				s.t.warn(err.Error())
				if s.session == nil {
					s.open()
				}
				return
			}
			s.t.section("note")
			s.t.print(s.t.paint(dim, "── another session ──"))
			s.t.todos, s.t.tasks, s.t.tokens, s.t.cost = nil, nil, 0, 0
			s.asks, s.queued, s.ready = nil, nil, false
			s.attach(session)
		}
	})
}

func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "now"
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

// openTasks lists background tasks.
func (s *screen) openTasks() {
	p := &picker{s: s, title: "Work in the background", empty: "Nothing runs in the background."}
	fill := func() {
		p.items = nil
		for _, t := range s.t.tasks {
			kind := t.TaskType
			if t.SubagentType != "" {
				kind = t.SubagentType
			}
			p.items = append(p.items, pick{id: t.TaskID, label: t.Description, about: kind + " " + t.TaskID})
		}
	}
	fill()
	p.foot = "Ctrl-X stops"
	p.action = map[string]func(pick){"ctrl+x": func(it pick) {
		s.control(map[string]any{"subtype": "stop_task", "task_id": it.id}, func(json.RawMessage) { fill() })
	}}
	p.chosen = func(it pick) { s.showTask(it) }
	s.openOverlay(p)
}

// showTask prints the output of a background task so far.
func (s *screen) showTask(it pick) {
	s.control(map[string]any{"subtype": "task_output", "task_id": it.id}, func(raw json.RawMessage) {
		var out map[string]any
		text := string(raw)
		if json.Unmarshal(raw, &out) == nil {
			if o, ok := out["output"].(string); ok {
				text = o
			}
		}
		s.t.section("tool")
		s.t.print(s.t.paint(bold, clip(Visible(it.label), s.width()-1)))
		s.t.print(limit(s.t.indentedLines("  ", strings.TrimRight(text, "\n")), 40, s.t.omitted())...)
		s.t.keep(it.label, text)
	})
}

// openRewind lists the prompts of the conversation that the person can go back to.
func (s *screen) openRewind() {
	if s.t.busy {
		s.hint = "A turn runs. Interrupt it first."
		return
	}
	p := &picker{s: s, title: "Go back to the moment before a prompt", empty: "There are no prompts in this conversation yet."}
	for i := len(s.prompts) - 1; i >= 0; i-- {
		x := s.prompts[i]
		first, _, _ := strings.Cut(strings.TrimSpace(x.text), "\n")
		p.items = append(p.items, pick{id: x.uuid, label: first, about: ago(time.Since(x.at))})
	}
	p.chosen = func(it pick) {
		s.choose("Go back to: "+it.label, []option{
			{key: "b", label: "conversation and files", value: "both"},
			{key: "c", label: "conversation only", value: "conversation"},
			{key: "f", label: "files only", value: "files"},
		}, func(what string) { s.rewind(it.id, what) })
	}
	s.openOverlay(p)
}

// rewind goes back to the point before a prompt.
func (s *screen) rewind(uuid, what string) {
	back := func() {
		if what == "files" {
			return
		}
		i := 0
		for i < len(s.prompts) && s.prompts[i].uuid != uuid {
			i++
		}
		if i == len(s.prompts) {
			return
		}
		x, to := s.prompts[i], s.session
		s.async(func(ctx context.Context) func() {
			err := to.rewind(ctx, x.before)
			return func() {
				if err != nil {
					s.t.warn("the conversation was not changed: " + err.Error())
					return
				}
				s.prompts = s.prompts[:i]
				if s.ed.empty() {
					s.ed.set(x.text)
				}
			}
		})
	}
	if what == "conversation" {
		back()
		return
	}
	s.control(map[string]any{"subtype": "rewind_files", "user_message_id": uuid}, func(raw json.RawMessage) {
		var r wire.RewindFilesResponse
		json.Unmarshal(raw, &r)
		s.t.section("note")
		said := count(len(r.FilesChanged), "file was restored", "files were restored")
		if r.Insertions != nil && r.Deletions != nil {
			said += fmt.Sprintf(": +%d −%d", *r.Insertions, *r.Deletions)
		}
		s.t.print(s.t.paint(dim, "── "+said+" ──"))
		back()
	})
}
