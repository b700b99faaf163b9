package parleytest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
)

// A ScriptError reports that a scenario was not followed: a request did not
// match its turn, or no turn was left for it.
type ScriptError struct {
	Script string // the selected script
	Turn   int    // the turn in it, from one
	Reason string
	Diff   string // expected ("-") and received ("+"); may be empty
}

// Error names the turn, and how the request deviates.
func (e *ScriptError) Error() string {
	s := fmt.Sprintf("parleytest: script %s, turn %d: %s", e.Script, e.Turn, e.Reason)
	if e.Diff != "" {
		s += "\n" + strings.TrimRight(e.Diff, "\n")
	}
	return s
}

// A play is one run of a scenario: the position in each script.
type play struct {
	scenario *Scenario
	invalid  error
	memory   memory

	mu            sync.Mutex
	cursors       map[string]*cursor
	order         []*cursor
	conversations map[*script]int // number of conversations started, for scripts that start again for each
	errs          []error
}

// A cursor is a position in a script.
type cursor struct {
	entry  *script // the script of the first request
	in     *script // the current script
	label  string  // for ids: the entry's name, and the number of its conversation
	pos    int     // the next turn
	rep    map[*Turn]int
	played int
	failed *ScriptError // then all later requests fail with this error
}

// A part is the turn chosen for a request.
type part struct {
	turn  *Turn
	label string
	n     int // number of the turn played under this label, from one
}

func newPlay(s *Scenario) *play {
	if s == nil {
		s = Script()
	}
	return &play{scenario: s, invalid: s.Validate(), cursors: map[string]*cursor{}, conversations: map[*script]int{}}
}

// next chooses the turn for a request. With an error, the part has no turn, but
// the position in the scenario.
func (p *play) next(r *Request) (part, error) {
	if p.invalid != nil {
		return part{}, p.invalid
	}
	sc := p.scenario.scriptFor(r)
	key := sc.name
	if sc.each {
		key += "\n" + r.conversation()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.cursors[key]
	if c == nil {
		c = &cursor{entry: sc, in: sc, label: sc.name}
		if sc.each {
			if p.conversations[sc]++; p.conversations[sc] > 1 {
				c.label = fmt.Sprintf("%s-%d", sc.name, p.conversations[sc])
			}
		}
		p.cursors[key] = c
		p.order = append(p.order, c)
	}
	out := part{label: c.label, n: c.played + 1}
	t, err := c.step(p.scenario, r)
	if err != nil {
		if c.failed == nil {
			c.failed = err
			p.errs = append(p.errs, err)
		}
		return out, err
	}
	c.played++
	filled, bad := t.fill(r)
	if bad != nil {
		c.failed = &ScriptError{Script: c.label, Turn: c.played, Reason: bad.Error()}
		p.errs = append(p.errs, c.failed)
		return out, c.failed
	}
	out.turn = filled
	return out, nil
}

// scriptFor returns the script for the request.
func (s *Scenario) scriptFor(r *Request) *script {
	for _, sc := range s.scripts[1:] {
		if len(sc.when) == 0 {
			continue
		}
		all := true
		for _, m := range sc.when {
			if ok, _ := m.matches(r); !ok {
				all = false
				break
			}
		}
		if all {
			return sc
		}
	}
	return s.scripts[0]
}

// step chooses the turn at the cursor and advances the cursor.
func (c *cursor) step(s *Scenario, r *Request) (*Turn, *ScriptError) {
	if c.failed != nil {
		return nil, c.failed
	}
	if c.pos >= len(c.in.turns) {
		if s.fallback != nil {
			t, diff := choose(s.fallback, r)
			if t == nil {
				return nil, &ScriptError{Script: c.label, Turn: c.played + 1, Reason: "the request is not what the default turn expects", Diff: diff}
			}
			return t, nil
		}
		return nil, &ScriptError{Script: c.label, Turn: c.played + 1,
			Reason: fmt.Sprintf("the script has ended: it has %s and this request is one more", count(len(c.in.turns), "turn")),
			Diff:   summary(r)}
	}
	at := c.in.turns[c.pos]
	t, diff := choose(at, r)
	if t == nil {
		reason := "the request is not what the turn expects"
		if len(at.all()) > 1 {
			reason = "the request is not what any alternative of the turn expects"
		}
		return nil, &ScriptError{Script: c.label, Turn: c.played + 1, Reason: reason, Diff: diff}
	}
	switch {
	case t.goTo != "":
		for _, sc := range s.scripts {
			if sc.name == t.goTo {
				c.in, c.pos = sc, 0
			}
		}
	case t.always:
	case t.times > 1:
		if c.rep == nil {
			c.rep = map[*Turn]int{}
		}
		if c.rep[t]++; c.rep[t] >= t.times {
			delete(c.rep, t)
			c.pos++
		}
	default:
		c.pos++
	}
	return t, nil
}

// choose returns the first alternative that matches the request, or why none
// does.
func choose(t *Turn, r *Request) (*Turn, string) {
	var diff strings.Builder
	for i, alt := range t.all() {
		fits := true
		for _, m := range alt.expect {
			if ok, got := m.matches(r); !ok {
				if len(t.all()) > 1 {
					fmt.Fprintf(&diff, "  alternative %d:\n", i+1)
				}
				diff.WriteString(m.explain(got))
				fits = false
				break
			}
		}
		if fits {
			return alt, ""
		}
	}
	return nil, diff.String()
}

// summary describes a request in a few lines.
func summary(r *Request) string {
	var b strings.Builder
	for _, res := range r.ToolResults() {
		mark := ""
		if res.IsError {
			mark = " (error)"
		}
		fmt.Fprintf(&b, "+ tool result of %s%s: %s\n", res.ID, mark, shorten(res.Text, 300))
	}
	if b.Len() == 0 {
		fmt.Fprintf(&b, "+ last user text: %s\n", shorten(r.LastUser(), 600))
	}
	return b.String()
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// err joins the errors so far.
func (p *play) err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.invalid != nil {
		return p.invalid
	}
	return errors.Join(p.errs...)
}

// unplayed reports the unplayed turns: those of the main script, and those of
// other scripts that were started.
func (p *play) unplayed() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.invalid != nil {
		return p.invalid
	}
	var errs []error
	left := func(label string, sc *script, pos int) {
		if n := len(sc.turns); pos < n && !(pos == n-1 && sc.turns[pos].standing()) {
			errs = append(errs, &ScriptError{Script: label, Turn: pos + 1, Reason: fmt.Sprintf("never requested: the agent played %d of %s", pos, count(n, "turn"))})
		}
	}
	main := p.scenario.scripts[0]
	if p.cursors[mainScript] == nil && !main.each {
		left(mainScript, main, 0)
	}
	for _, c := range p.order {
		if c.failed == nil {
			left(c.label, c.in, c.pos)
		}
	}
	return errors.Join(errs...)
}

// standing reports whether the turn may answer an unlimited number of requests.
func (t *Turn) standing() bool {
	for _, alt := range t.all() {
		if alt.always {
			return true
		}
	}
	return false
}
