package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/tool"
)

// A called is a tool call of the model and its state in the world.
type called struct {
	id       string
	life     *life // in which the model made it
	name     string
	prompt   string // for which the model made it
	asked    int    // when the request started that it answers
	began    int    // how often it started
	running  bool   // it started and has not returned
	done     int    // how often it took effect
	receipt  string // the last recorded decision
	intents  int    // recorded intents
	outcomes int    // recorded outcomes
	results  int    // received by the host, in this life
	denied   bool   // the host or a hook denied it
	told     bool   // the model received a result
	deaf     bool   // it ignored the end of its context, or the store was slow, and nobody waited for it
}

// call returns the state of a call. The lock of the world is held.
func (w *world) call(id string) *called {
	c := w.calls[id]
	if c == nil {
		c = &called{id: id}
		w.calls[id] = c
	}
	return c
}

// A simTool is a tool of the agent.
type simTool struct {
	w        *world
	life     *life
	name     string
	readOnly bool
}

// tools returns the tools of an agent.
func (w *world) tools(l *life) []tool.Tool {
	return []tool.Tool{&simTool{w, l, "Look", true}, &simTool{w, l, "Do", false}, &simTool{w, l, "Make", false}}
}

// specs are the same for all agents of the process, so that a schema is parsed once.
var specs = map[string]*tool.Spec{"Look": spec("Look", true), "Do": spec("Do", false), "Make": spec("Make", false)}

func spec(name string, readOnly bool) *tool.Spec {
	return &tool.Spec{Name: name, Description: name, Schema: json.RawMessage(`{"type":"object"}`), ReadOnly: readOnly}
}

// Spec implements [tool.Tool].
func (s *simTool) Spec() *tool.Spec {
	return specs[s.name]
}

// Access implements [tool.Tool].
func (s *simTool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) {
	if s.readOnly {
		return nil, nil
	}
	return []tool.Access{{Kind: tool.Other, Name: s.name}}, nil
}

// Run implements [tool.Tool].
func (s *simTool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	w := s.w
	acked := s.life.acked.Load() // before anything that lets another goroutine run
	if !w.gate(s.life) {
		return nil, errKilled
	}
	f := w.fault("tool.fail", "tool.panic", "tool.deaf")
	r := source(w.plan.Seed, "tool "+call.ID)
	if !s.readOnly {
		w.begin(s.life, call.ID, s.name, int(acked))
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.call(call.ID).running = false
		}()
	} else {
		w.log("tool", "%s %s reads", s.name, call.ID)
	}
	d := time.Duration(r.Int64N(int64(300 * time.Millisecond)))
	if r.IntN(8) == 0 {
		d *= 20
	}
	switch {
	case f == nil:
	case f.Kind == "tool.deaf":
		w.mu.Lock()
		w.call(call.ID).deaf = true
		w.mu.Unlock()
		time.Sleep(f.D)
	case f.Kind == "tool.panic":
		panic("sim: the tool panics")
	}
	if err := sleep(ctx, 1+d); err != nil {
		w.log("tool", "%s stopped", call.ID)
		return nil, err
	}
	if !w.gate(s.life) {
		return nil, errKilled
	}
	if !s.readOnly {
		w.mu.Lock()
		if !s.life.dead {
			w.call(call.ID).done++
			w.logLocked("tool", "%s %s has its effect", s.name, call.ID)
		}
		w.mu.Unlock()
	}
	if f != nil && f.Kind == "tool.fail" {
		return nil, errors.New("the tool failed")
	}
	return tool.Text(fmt.Sprintf("%s %s is done", s.name, call.ID), nil), nil
}

// begin checks the invariants when an effect starts. acked is when an interrupt was last acknowledged before that.
func (w *world) begin(l *life, id, name string, acked int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.call(id)
	c.began++
	c.running = true
	w.logLocked("tool", "%s %s begins", name, id)
	if w.streaming[requestOf(id)] {
		w.violateLocked("a call with effects waits for the end of its message: %s began while the model wrote", id)
	}
	for _, other := range sortedCalls(w.calls) {
		if o := w.calls[other]; o != c && o.running && !o.deaf && o.life == l && requestOf(other) == requestOf(id) {
			w.violateLocked("calls with effects run one after the other: %s began while %s ran", id, other)
		}
	}
	if c.began > 1 {
		w.violateLocked("effects happen at most once: %s began %d times", id, c.began)
	}
	if c.denied {
		w.violateLocked("deny wins: %s began though it was denied", id)
	}
	if c.intents != 1 {
		w.violateLocked("intent before effect: %s began with %d intents on record", id, c.intents)
	}
	if c.receipt != "allow" {
		w.violateLocked("receipts: %s began and the decision on record is %q", id, c.receipt)
	}
	if c.asked > 0 && c.asked < acked && !l.startedAfter(c.prompt, acked) {
		w.violateLocked("nothing starts after a cancel was acknowledged: %s was asked for at %d, the interrupt was acknowledged at %d", id, c.asked, acked)
	}
}

// startedAfter reports whether a prompt of this life started after the agent composed a line. The prompt of a subagent
// counts as the one that it works for. The order of the agent's lines decides, because a line can be written much later.
func (l *life) startedAfter(prompt string, line int) bool {
	prompt, _, _ = strings.Cut(prompt, "x")
	at, ok := l.started[prompt]
	return ok && (at == 0 || at > line)
}

// requestOf returns the part of a call's id that identifies its request.
func requestOf(id string) string {
	request, _, _ := strings.Cut(strings.TrimPrefix(id, "toolu_"), "_")
	return request
}
