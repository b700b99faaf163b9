package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/model/catalog"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

func contains(s, sub string) bool { return strings.Contains(s, sub) }

// models is read by all agents of the process.
var models = sync.OnceValue(catalog.New)

const sessionID = "5e550000-0000-4000-8000-000000000001"

// runPair plays the SDK and the agent, life after life.
func (w *world) runPair(t *testing.T, dir string) {
	for n := range w.plan.Lives {
		l := newLife(n)
		w.bubble(t, n, func(t *testing.T) {
			l.killed = make(chan struct{})
			w.live(t, l, dir)
		})
		w.checkLife(l)
		if len(w.bad) > 0 || !l.dead {
			break
		}
		w.disk.mu.Lock()
		w.disk.full = 0
		w.disk.mu.Unlock()
	}
	w.checkLog()
}

// live plays one life: a host that connects, prompts and closes.
func (w *world) live(t *testing.T, l *life, dir string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l.cancel = cancel
	w.log("world", "life %d begins", l.n)
	w.agents = new(sync.WaitGroup)
	h := &host{w: w, life: l, rand: source(w.plan.Seed, fmt.Sprint("host ", l.n))}
	cfg := agent.Config{Cwd: dir, Store: &store{w.disk, l}, Model: &simModel{w, l}, Tools: w.tools(l), Catalog: models()}
	opts := h.options(w.dialer(l, cfg))
	opts.Cwd = dir
	if found, _ := w.disk.inner.List(ctx, session.Key{Session: sessionID}); len(found) > 0 {
		opts.Resume = sessionID
	} else {
		opts.SessionID = sessionID
	}
	c, err := parley.Connect(ctx, opts)
	if err != nil {
		w.log("host", "connect: %v", err)
		w.agents.Wait()
		time.Sleep(time.Minute)
		if l.healthy && !l.cut {
			w.violate("a host can connect: %v", err)
		}
		return
	}
	h.client = c
	defer func() {
		w.agents.Wait()
		time.Sleep(time.Minute) // a tool that does not stop may still run; nothing else may
	}()
	var meddling sync.WaitGroup
	meddling.Go(func() { h.meddle(ctx) })
	for range w.plan.Prompts {
		w.mu.Lock()
		w.last++
		name := fmt.Sprint("PROMPT-", w.last)
		w.mu.Unlock()
		if !h.turn(ctx, name) {
			break
		}
		pause(h.rand, 20*time.Millisecond)
	}
	h.stop()
	meddling.Wait()
	began := time.Now()
	err = c.Close()
	w.log("host", "close: %v", err)
	if d := time.Since(began); d > 20*time.Second {
		w.violate("it ends: Close took %v", d)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && l.healthy && !w.plan.slow() {
		w.violateLocked("Close of a healthy connection returns no error: %v", err)
	}
	if err != nil {
		l.healthy = false // Close cut the agent off while it waited for a slow store or tool
	}
}

// A host is the program that drives the agent.
type host struct {
	w      *world
	life   *life
	rand   *rand.Rand
	client *parley.Client
	mu     sync.Mutex
	ended  bool
	wakes  []chan time.Duration
}

func (h *host) options(d transport.Dialer) *parley.Options {
	w := h.w
	r := source(w.plan.Seed, fmt.Sprint("options ", h.life.n))
	o := &parley.Options{Dialer: d, Model: "claude-sonnet-4-5", PartialMessages: r.IntN(3) == 0, SettingSources: []string{},
		ToolServers: nil}
	o.CanUseTool = func(ctx context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
		yes, err := h.callback(ctx, "permission", req.ToolUseID, 3)
		if err != nil {
			return nil, err
		}
		if yes {
			return parley.Allow(), nil
		}
		return parley.Deny("not this one"), nil
	}
	if r.IntN(2) == 0 {
		o.Hooks = append(o.Hooks, parley.On("", func(ctx context.Context, in *wire.PreToolUseInput) (*wire.HookOutput, error) {
			yes, err := h.callback(ctx, "PreToolUse", in.ToolUseID, 6)
			if err != nil || yes {
				return nil, err
			}
			return parley.HookDeny("a hook says no"), nil
		}))
	}
	if r.IntN(3) == 0 {
		o.Hooks = append(o.Hooks, parley.On("", func(ctx context.Context, in *wire.PostToolUseInput) (*wire.HookOutput, error) {
			h.callback(ctx, "PostToolUse", "", 1<<30)
			return nil, nil
		}))
	}
	if r.IntN(2) == 0 {
		type input struct{ A, B int }
		add := parley.NewTool("add", "Adds.", func(ctx context.Context, in input) (string, error) {
			h.callback(ctx, "add", "", 1<<30)
			return fmt.Sprint(in.A + in.B), nil
		})
		o.ToolServers = toolServers(add)
	}
	return o
}

// callback simulates a callback: it takes time, and it may misbehave. It denies one in so
// many calls.
func (h *host) callback(ctx context.Context, what, id string, one int) (bool, error) {
	w := h.w
	r := source(w.plan.Seed, fmt.Sprint(what, id, h.life.n))
	f := w.fault("host.silent", "host.late", "host.fail")
	w.log("host", "%s %s is asked", what, id)
	yes := r.IntN(one) != 0
	if f != nil {
		switch f.Kind {
		case "host.silent":
			<-ctx.Done()
			return false, ctx.Err()
		case "host.fail":
			h.deny(id)
			return false, errors.New("the callback failed")
		case "host.late":
			<-ctx.Done()
			time.Sleep(f.D)
			w.log("host", "%s %s is answered late: %v", what, id, yes)
			return yes, nil
		}
	}
	d := time.Duration(r.Int64N(int64(40 * time.Millisecond)))
	if r.IntN(10) == 0 {
		d *= 100
	}
	if err := sleep(ctx, 1+d); err != nil {
		return false, err
	}
	if !yes {
		h.deny(id)
	}
	if w.fault("host.both") != nil {
		h.wake(0)
	}
	w.log("host", "%s %s: %v", what, id, yes)
	return yes, nil
}

// deny records that a call must not run from here on.
func (h *host) deny(id string) {
	if id == "" {
		return
	}
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.call(id).denied = true
}

// turn sends one prompt and reads until its end. It reports whether another turn is possible.
func (h *host) turn(life context.Context, prompt string) bool {
	w := h.w
	ctx, cancel := context.WithTimeout(life, patience)
	defer cancel()
	results := 0
	var last error
	for m, err := range h.client.Turn(ctx, prompt) {
		if err != nil {
			last = err
			break
		}
		if f := w.fault("host.sleep"); f != nil {
			time.Sleep(f.D)
		}
		if f := w.fault("interrupt"); f != nil {
			h.wake(f.D)
		}
		if r, ok := m.(*wire.Result); ok && !r.IsReplay {
			results++
			h.checkResult(r)
		}
	}
	w.log("host", "turn %s: %d results, %v", prompt, results, last)
	var result *parley.ResultError
	w.mu.Lock()
	healthy := h.life.healthy
	w.mu.Unlock()
	switch {
	case last == nil || errors.As(last, &result):
		if results < 1 {
			w.violate("it ends: the turn %s is over without a result", prompt)
		}
		if (last == nil) == (result != nil) {
			w.violate("the outcome does not lie: %v", last)
		}
		return true
	case ctx.Err() != nil && life.Err() == nil && errors.Is(last, context.DeadlineExceeded):
		return true // the host abandoned the turn, and the agent was interrupted
	case healthy && ctx.Err() == nil:
		w.violate("it ends: nothing broke, and the turn %s ended with %v", prompt, last)
	case last.Error() == "":
		w.violate("errors have a text: %T", last)
	}
	return false
}

// checkResult compares a result with the state of the world.
func (h *host) checkResult(r *wire.Result) {
	if (r.Subtype == "success" && !r.IsError) != (r.Outcome() == wire.OutcomeCompleted) && r.Outcome() != wire.OutcomeInterrupted {
		h.w.log("host", "result %s %v is %v", r.Subtype, r.IsError, r.Outcome())
	}
}

// wake makes the meddler interrupt after a while.
func (h *host) wake(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.wakes {
		select {
		case c <- d:
		default:
		}
	}
}

func (h *host) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for _, c := range h.wakes {
		close(c)
	}
	h.wakes = nil
}

// patience is how long the host waits for a turn: a question may wait forever.
const patience = 5 * time.Minute

// limit is how long a control request may take while nothing is broken, not counting delays
// of the pipe and the store.
const limit = 25 * time.Second

// meddle sends control requests, independent of the consumer.
func (h *host) meddle(ctx context.Context) {
	w := h.w
	r := source(w.plan.Seed, fmt.Sprint("meddler ", h.life.n))
	wake := make(chan time.Duration, 4)
	h.mu.Lock()
	if h.ended {
		h.mu.Unlock()
		return
	}
	h.wakes = append(h.wakes, wake)
	h.mu.Unlock()
	for range 30 {
		t := time.NewTimer(1 + time.Duration(r.Int64N(int64(4*time.Second))))
		what := ""
		select {
		case d, ok := <-wake:
			t.Stop()
			if !ok || d > 0 && sleep(ctx, d) != nil {
				return
			}
			what = "interrupt"
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		began := time.Now()
		var err error
		if what == "" {
			what = []string{"context", "status", "model", "mode"}[r.IntN(4)]
		}
		switch what {
		case "interrupt":
			_, err = h.client.Interrupt(ctx)
		case "context":
			_, err = h.client.ContextUsage(ctx)
		case "status":
			_, err = h.client.MCPStatus(ctx)
		case "model":
			_, err = h.client.SetModel(ctx, "claude-sonnet-4-5")
		case "mode":
			_, err = h.client.SetPermissionMode(ctx, wire.ModeDefault)
		}
		d := time.Since(began)
		w.log("host", "%s took %v: %v", what, d, err)
		w.mu.Lock()
		healthy := h.life.healthy && !w.plan.slow()
		if healthy && ctx.Err() == nil {
			switch {
			case errors.Is(err, parley.ErrClosed):
			case err != nil:
				w.violateLocked("control is answered: %s failed: %v", what, err)
			case d > limit:
				w.violateLocked("control never waits behind data: %s took %v", what, d)
			}
		}
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// checkLife checks the invariants at the end of a life.
func (w *world) checkLife(l *life) {
	if !l.healthy {
		return
	}
	count := map[string]int{}
	for _, id := range l.results {
		count[id]++
	}
	for _, id := range l.prompts {
		if count[id] != 1 {
			w.violate("one terminal message per prompt: %s has %d", id, count[id])
		}
	}
	for _, id := range sortedCalls(w.calls) {
		c := w.calls[id]
		if c.life != l || c.deaf {
			continue
		}
		if c.intents != c.outcomes {
			w.violate("intents equal outcomes: %s has %d intents and %d outcomes", id, c.intents, c.outcomes)
		}
	}
}

func sortedCalls(m map[string]*called) (ids []string) {
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// checkLog checks the remaining session.
func (w *world) checkLog() {
	logs, err := w.disk.inner.List(context.Background(), session.Key{})
	if err != nil || len(logs) > 1 {
		w.bad = append(w.bad, fmt.Sprintf("one session: %d, %v", len(logs), err))
	}
	for _, l := range logs {
		records, err := w.disk.inner.Load(context.Background(), l.Key)
		if err != nil {
			w.bad = append(w.bad, fmt.Sprintf("the log can be read: %v", err))
		}
		seen := map[string]bool{}
		for i, line := range records {
			var r struct {
				Type       string `json:"type"`
				UUID       string `json:"uuid"`
				ParentUUID string `json:"parentUuid"`
			}
			if err := jsonv2.Unmarshal(line, &r); err != nil {
				w.bad = append(w.bad, fmt.Sprintf("records are JSON: %v", err))
			}
			if r.ParentUUID != "" && !seen[r.ParentUUID] {
				w.bad = append(w.bad, fmt.Sprintf("the log is a tree: record %d, a %s, has a parent that is not before it", i, r.Type))
			}
			seen[r.UUID] = true
		}
	}
}

// toolServers returns the server of the host, with its tools.
func toolServers(tools ...*parley.Tool) map[string]*mcp.Server {
	return map[string]*mcp.Server{"host": parley.ToolServer("host", tools...)}
}
