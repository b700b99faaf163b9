package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A journal is one hub's view of the backend.
type journal struct {
	*hub.Memory
	c    *city
	name string
	life *life
}

// A city is a session, the hubs that run it one after the other, and its viewers.
type city struct {
	w    *world
	mem  *hub.Memory
	dir  string
	id   string
	mu   sync.Mutex
	hubs []*hub.Hub
	life *life // of the newest hub
	// owner is the hub of the last owner entry.
	owner   string
	answers map[string]string // the accepted answer, by question
	closing sync.WaitGroup
}

var (
	first  = hub.Actor{Name: "first", From: "sim", Rights: hub.Everything}
	second = hub.Actor{Name: "second", From: "sim", Rights: hub.MayView | hub.MayApprove}
	guest  = hub.Actor{Name: "guest", From: "sim", Rights: hub.MayView}
)

// Append implements [hub.Backend].
func (j *journal) Append(ctx context.Context, id string, expect uint64, entries []hub.Entry) error {
	w := j.c.w
	f := w.fault("hub.killed", "lease.lost", "journal.after", "journal.before", "journal.slow")
	if f != nil {
		w.mu.Lock()
		j.life.healthy, j.life.unwritten = false, j.life.unwritten || f.Kind != "journal.slow"
		w.mu.Unlock()
		switch f.Kind {
		case "hub.killed", "lease.lost":
			j.c.replace(j, f.Kind == "hub.killed")
		case "journal.before":
			return errors.New("sim: input/output error")
		case "journal.slow":
			time.Sleep(f.D)
		}
	}
	time.Sleep(1 + time.Duration(source(w.plan.Seed, fmt.Sprint("journal ", expect, len(entries))).Int64N(int64(2*time.Millisecond))))
	w.mu.Lock()
	defer w.mu.Unlock()
	if j.life.dead {
		return errKilled
	}
	err := j.Memory.Append(context.WithoutCancel(ctx), id, expect, entries)
	for _, e := range entries {
		w.logLocked("journal", "%s writes %d %s: %v", j.name, e.N, e.Kind, err)
		if err != nil {
			continue
		}
		if e.Kind == hub.KindOwner {
			j.c.owner = j.name
		} else if e.N > 0 && e.Kind != hub.KindCreated && j.c.owner != j.name && j.c.owner != "" {
			w.violateLocked("one owner: %s wrote %d, a %s, and %q owns the session", j.name, e.N, e.Kind, j.c.owner)
		}
	}
	if err == nil && f != nil && f.Kind == "journal.after" {
		return errors.New("sim: the connection to the journal broke")
	}
	return err
}

// Lease implements [hub.Backend].
func (j *journal) Lease(ctx context.Context, id string) (hub.Lease, error) {
	j.c.w.mu.Lock()
	defer j.c.w.mu.Unlock()
	if j.life.dead {
		return nil, errKilled
	}
	return j.Memory.Lease(ctx, id)
}

// Put implements [hub.Backend].
func (j *journal) Put(ctx context.Context, id string, item hub.Item) (hub.Item, error) {
	j.c.w.mu.Lock()
	dead := j.life.dead
	j.c.w.mu.Unlock()
	if dead {
		return hub.Item{}, errKilled
	}
	return j.Memory.Put(ctx, id, item)
}

// TrimInbox implements [hub.Backend].
func (j *journal) TrimInbox(ctx context.Context, id string, before uint64) error {
	j.c.w.mu.Lock()
	dead := j.life.dead
	j.c.w.mu.Unlock()
	if dead {
		return errKilled
	}
	return j.Memory.TrimInbox(ctx, id, before)
}

// A watched store reports the agent's records to the world.
type watched struct {
	session.Store
	w *world
}

// Append implements [session.Store].
func (s *watched) Append(ctx context.Context, key session.Key, records []json.RawMessage) error {
	return s.w.recorded(s.Store.Append(ctx, key, records), records)
}

// Lease implements [session.Store].
func (s *watched) Lease(ctx context.Context, key session.Key) (session.Lease, error) {
	l, err := s.Store.Lease(ctx, key)
	if err != nil {
		return nil, err
	}
	return &watchedLease{l, s.w}, nil
}

type watchedLease struct {
	session.Lease
	w *world
}

// Append implements [session.Lease].
func (l *watchedLease) Append(ctx context.Context, sub string, records []json.RawMessage) error {
	return l.w.recorded(l.Lease.Append(ctx, sub, records), records)
}

func (w *world) recorded(err error, records []json.RawMessage) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observe(records, err)
	return err
}

// start starts a hub that replaces the previous one.
func (c *city) start() (*hub.Hub, error) {
	w := c.w
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.hubs)
	l := newLife(n)
	l.killed = make(chan struct{})
	l.cancel = func() {}
	j := &journal{c.mem, c, fmt.Sprint("hub ", n), l}
	h, err := hub.New(hub.Config{Backend: j, Name: j.name, AskExpiry: 2 * time.Minute, ViewerBytes: 4 << 10,
		Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
			cfg := agent.Config{Cwd: c.dir, Store: &watched{start.Store, w}, Model: &simModel{w, l}, Tools: w.tools(l), Catalog: models()}
			return &parley.Options{Cwd: c.dir, Dialer: w.dialer(l, cfg), Model: "claude-sonnet-4-5", SettingSources: []string{}}, nil
		}})
	if err != nil {
		return nil, err
	}
	c.hubs, c.life = append(c.hubs, h), l
	return h, nil
}

// replace makes another hub take over the session from a hub that was killed or that lost its
// lease.
func (c *city) replace(j *journal, killed bool) {
	c.w.mu.Lock()
	if j.life.dead || j.life.fenced {
		c.w.mu.Unlock()
		return
	}
	j.life.fenced, j.life.healthy = true, false
	if killed {
		j.life.dead = true
		close(j.life.killed)
	}
	c.w.mu.Unlock()
	c.mu.Lock()
	old := c.hubs[len(c.hubs)-1]
	c.mu.Unlock()
	c.mem.Expire(c.id)
	if _, err := c.start(); err != nil {
		c.w.violate("a hub starts: %v", err)
	}
	c.closing.Go(func() {
		if !killed {
			time.Sleep(20 * time.Second) // it was paused, and continues
		}
		old.Close()
	})
}

func (c *city) session() *hub.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hubs[len(c.hubs)-1].Session(c.id)
}

// runHub plays a hub with viewers, in one bubble.
func (w *world) runHub(t *testing.T, dir string) {
	w.bubble(t, 0, func(t *testing.T) {
		w.agents = new(sync.WaitGroup)
		c := &city{w: w, mem: &hub.Memory{}, dir: dir, answers: map[string]string{}}
		h, err := c.start()
		if err != nil {
			w.violate("a hub starts: %v", err)
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		var s *hub.Session
		for range 3 {
			if s, err = h.Create(ctx, first, hub.Spec{Cwd: dir}); err == nil {
				break
			}
			w.log("first", "create: %v", err)
		}
		if err == nil {
			c.id = s.ID()
			c.play(ctx)
		}
		cancel()
		c.closing.Wait()
		c.mu.Lock()
		last := c.hubs[len(c.hubs)-1]
		c.mu.Unlock()
		last.Close()
		w.agents.Wait()
		time.Sleep(time.Minute)
	})
}

// play sends prompts, with two viewers that answer questions, and checks their logs.
func (c *city) play(ctx context.Context) {
	w := c.w
	viewing, stop := context.WithCancel(ctx)
	var viewers sync.WaitGroup
	logs := make([][]string, 2)
	for i, by := range []hub.Actor{first, second} {
		viewers.Go(func() { logs[i] = c.view(viewing, by) })
	}
	r := source(w.plan.Seed, "first")
	for n := range w.plan.Prompts {
		m := wire.Prompt(wire.Text(fmt.Sprint("PROMPT-", n+1)))
		m.UUID = fmt.Sprintf("00000000-0000-4000-8000-%012d", n+1)
		for range 20 { // a repeated prompt is accepted once
			_, err := c.session().Prompt(ctx, first, m)
			w.log("first", "prompt %d: %v", n+1, err)
			if err == nil && r.IntN(4) > 0 {
				break
			}
			time.Sleep(time.Second)
		}
		pause(r, 3*time.Second)
		if w.fault("interrupt") != nil {
			w.log("first", "interrupt: %v", c.session().Interrupt(ctx, first))
		}
	}
	// Everything ends: questions expire, and stalled models time out.
	idle := false
	for range 90 {
		time.Sleep(20 * time.Second)
		state, err := c.session().State(ctx, first)
		if idle = err == nil && state.Phase == hub.Idle && len(state.Queued) == 0; idle {
			break
		}
	}
	if !idle {
		state, err := c.session().State(ctx, first)
		w.violate("it ends: the session is not idle after half an hour: %+v, %v", state, err)
	}
	time.Sleep(2 * time.Minute) // slow or absent viewers reach the end
	stop()
	viewers.Wait()
	c.checkJournal(ctx, logs)
}

// checkJournal compares the journal with the viewers' logs and the acknowledged entries.
func (c *city) checkJournal(ctx context.Context, logs [][]string) {
	w := c.w
	w.mu.Lock()
	written := slices.Sorted(maps.Keys(w.written)) // an agent may still be running
	w.mu.Unlock()
	var want []string
	asked, prompts, kept := map[string]int{}, map[string]int{}, map[string]bool{}
	for e, err := range c.mem.Read(ctx, c.id, 0, false) {
		if err != nil {
			w.violate("the journal can be read: %v", err)
			break
		}
		if e.Kind == hub.KindRecord {
			var line struct {
				Type      string `json:"type"`
				UUID      string `json:"uuid"`
				ToolUseID string `json:"toolUseId"`
			}
			jsonv2.Unmarshal(e.Data, &line)
			kept[line.UUID] = true
			if line.Type == "parley-intent" {
				kept["intent "+line.ToolUseID] = true
			}
		}
		if e.N == 0 {
			continue
		}
		if e.N != uint64(len(want))+1 {
			w.violate("numbers follow each other: %d behind %d", e.N, len(want))
		}
		want = append(want, string(e.AppendTo(nil)))
		var a hub.Answer
		if e.Kind == hub.KindAnswer && json.Unmarshal(e.Data, &a) == nil {
			asked[a.Ask]++
		}
		var p hub.Prompt
		if e.Kind == hub.KindPrompt && json.Unmarshal(e.Data, &p) == nil {
			prompts[p.UUID]++
		}
	}
	for _, id := range written {
		if !kept[id] {
			w.violate("acknowledged records are durable: the journal does not have %s", id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(prompts)) {
		if prompts[id] != 1 {
			w.violate("a prompt that is sent again is the same prompt: %s is in the journal %d times", id, prompts[id])
		}
	}
	for i, log := range logs {
		if !slices.Equal(log, want) {
			at := 0
			for at < min(len(log), len(want)) && log[at] == want[at] {
				at++
			}
			w.violate("all viewers have equal logs: viewer %d has %d entries of %d, and the entry %d differs", i, len(log), len(want), at+1)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(asked)) {
		if asked[id] != 1 {
			w.violate("an answer is created once: the question %s has %d", id, asked[id])
		}
	}
}

// view attaches until ctx is done, and reconnects when the connection ends.
func (c *city) view(ctx context.Context, by hub.Actor) (log []string) {
	w := c.w
	r := source(w.plan.Seed, "viewer "+by.Name)
	n := uint64(0)
	for ctx.Err() == nil {
		for e, err := range c.session().Attach(ctx, by, n) {
			if err != nil {
				w.log(by.Name, "attach: %v", err)
				break
			}
			if e.N > 0 {
				if e.N != n+1 {
					w.violate("attaching misses nothing: %s received %d behind %d", by.Name, e.N, n)
				}
				n = e.N
				log = append(log, string(e.AppendTo(nil)))
				w.log(by.Name, "receives %d %s", e.N, e.Kind)
			}
			if e.Kind == hub.KindAsk && e.N > 0 {
				after := time.Duration(r.Int64N(int64(2 * time.Second)))
				if source(w.plan.Seed, fmt.Sprint("ask ", e.N)).IntN(2) == 0 {
					after = 0 // all viewers answer at once
				}
				c.answer(ctx, by, e, r.IntN(5) > 0, after)
			}
			f := w.fault("viewer.slow", "viewer.gone")
			if f == nil {
				continue
			}
			if sleep(ctx, f.D) != nil || f.Kind == "viewer.gone" {
				break
			}
		}
		sleep(ctx, 500*time.Millisecond)
	}
	return log
}

// answer answers a question.
func (c *city) answer(ctx context.Context, by hub.Actor, e hub.Entry, yes bool, after time.Duration) {
	w := c.w
	var ask hub.Ask
	if err := json.Unmarshal(e.Data, &ask); err != nil {
		w.violate("a question can be read: %v", err)
		return
	}
	if sleep(ctx, 1+after) != nil {
		return
	}
	answer := hub.Allow(&ask)
	if !yes {
		answer = hub.Deny(&ask, "no")
	}
	if by.Name == second.Name { // viewers without the right to answer, and answers to another question, must be rejected
		other := answer
		other.Shown = "0" + other.Shown[1:] + "0"
		for _, try := range []struct {
			by  hub.Actor
			ans hub.Answer
		}{{guest, hub.Allow(&ask)}, {by, other}} {
			if err := c.session().Answer(ctx, try.by, try.ans); err == nil {
				w.violate("only an actor who may answer does, to what it was shown: %s answered %s", try.by.Name, ask.ID)
			}
		}
	}
	times := 1
	if w.fault("answer.twice") != nil {
		times = 2
	}
	for range times {
		err := c.session().Answer(ctx, by, answer)
		w.mu.Lock()
		w.logLocked(by.Name, "answers %s with %v: %v", ask.ToolUseID, yes, err)
		if err == nil {
			// Repeating the same answer is a retry.
			mine := fmt.Sprint(by.Name, " with ", yes)
			if other := c.answers[ask.ID]; other != "" && other != mine {
				w.violateLocked("an approval is answered once: %s was answered by %s and by %s", ask.ID, other, mine)
			}
			c.answers[ask.ID] = mine
			if !yes {
				w.call(ask.ToolUseID).denied = true
			}
		}
		w.mu.Unlock()
	}
}
