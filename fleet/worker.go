package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// A Worker claims sessions that have work to do, up to its number of slots, and makes a hub
// run them. Create it, pass [Worker.Backend] to the hub, then call [Worker.Run].
type Worker struct {
	b      *Backend
	slots  int
	logger *slog.Logger

	mu       sync.Mutex
	grants   map[string]*grant
	seen     map[string]time.Time // when this worker first left a session to a more suitable one
	draining bool

	// Only Run uses these.
	next   time.Duration   // until it looks for work again
	asked  map[string]bool // the processes that have not answered yet
	looks  chan looked     // receives what became of them
	looked []looked        // what came in before it looks for work again
}

// A looked is what a worker has found out about another process.
type looked struct {
	process string
	state   condition
	given   []string // the sessions that the process does not hold
}

// A grant allows the hub to run a session that has work to do. The lease is held until the
// hub requests it.
type grant struct{ lease hub.Lease }

// NewWorker returns a worker with a number of slots. With 0 it claims nothing. logger may be
// nil.
func NewWorker(b *Backend, slots int, logger *slog.Logger) *Worker {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Worker{b: b, slots: slots, logger: logger, grants: map[string]*grant{}, seen: map[string]time.Time{}, asked: map[string]bool{}, looks: make(chan looked)}
}

// Backend returns the backend for the hub of the worker. It rejects leases that the worker
// has not claimed, unless a slot is free and the session has no work to do.
func (w *Worker) Backend() hub.Backend { return &gate{w.b, w} }

// A gate is a backend whose leases the worker controls.
type gate struct {
	*Backend
	w *Worker
}

// Work yields nothing: the worker claims sessions that have work to do.
func (g *gate) Work(context.Context, bool) iter.Seq2[string, error] {
	return func(func(string, error) bool) {}
}

// Lease implements [hub.Backend].
func (g *gate) Lease(ctx context.Context, id string) (hub.Lease, error) {
	g.w.mu.Lock()
	x := g.w.grants[id]
	if x != nil && x.lease != nil {
		l := x.lease
		x.lease = nil
		g.w.mu.Unlock()
		return l, nil
	}
	draining := g.w.draining
	g.w.mu.Unlock()
	if draining {
		return nil, hub.ErrLocked
	}
	if x == nil && id != hub.SchedulesID {
		exists, err := g.exists(ctx, id)
		if err != nil {
			return nil, err
		}
		if exists && g.beat.count() >= g.w.slots {
			return nil, hub.ErrLocked
		}
		if queued, err := g.queued(ctx, id); queued || err != nil {
			return nil, errors.Join(hub.ErrLocked, err)
		}
	}
	return g.Backend.Lease(ctx, id)
}

// Put implements [hub.Backend]. A prompt of a tenant that is over its limit is rejected, unless
// it was accepted before.
func (g *gate) Put(ctx context.Context, id string, item hub.Item) (hub.Item, error) {
	if err := g.admit(ctx, id, item); err != nil {
		return hub.Item{}, err
	}
	return g.Backend.Put(ctx, id, item)
}

// PutAndWake implements [hub.Waker], with the same limits as Put.
func (g *gate) PutAndWake(ctx context.Context, id string, item hub.Item) (hub.Item, error) {
	if err := g.admit(ctx, id, item); err != nil {
		return hub.Item{}, err
	}
	return g.Backend.PutAndWake(ctx, id, item)
}

// admit returns an error for a prompt of a tenant that is over its limit, unless it was accepted before.
func (g *gate) admit(ctx context.Context, id string, item hub.Item) error {
	if !strings.HasPrefix(item.Key, promptPrefix) {
		return nil
	}
	err := g.checkPrompt(ctx, id)
	if err == nil {
		return nil
	}
	if there, getErr := g.leaderGet(ctx, inStream, getRequest{LastFor: g.inSubject(id, keyToken(item.Key))}); getErr == nil && there != nil {
		return nil
	}
	return err
}

// Append implements [hub.Backend]. It adds the cost of ended turns to their tenant's cost.
func (g *gate) Append(ctx context.Context, id string, expect uint64, entries []hub.Entry) error {
	if err := g.Backend.Append(ctx, id, expect, entries); err != nil {
		return err
	}
	for i := range entries {
		if e := &entries[i]; e.Kind == hub.KindFrame && wire.PeekType(e.Data) == "result" {
			if err := g.account(ctx, id, e.Data); err != nil {
				g.w.logger.Warn("the cost of a turn could not be added to its tenant", "session", id, "error", err)
			}
		}
	}
	return nil
}

// exists reports whether a session has a journal.
func (b *Backend) exists(ctx context.Context, id string) (bool, error) {
	if err := hub.CheckID(id); err != nil {
		return false, err
	}
	t, err := b.readTail(ctx, id)
	return t.seq > 0, err
}

// queued reports whether a session has work to do.
func (b *Backend) queued(ctx context.Context, id string) (bool, error) {
	m, err := b.leaderGet(ctx, workStream, getRequest{LastFor: b.workSubject(id)})
	return m != nil, err
}

// count returns how many sessions this process runs.
func (t *beat) count() int { return len(t.ids()) }

// claimTime is how often a worker looks for work, and for sessions whose worker has died. While only a few workers have
// work, it looks every quickTime.
const (
	claimTime = time.Second
	quickTime = claimTime / 4
)

// Run claims sessions for the hub until ctx ends.
func (w *Worker) Run(ctx context.Context, h *hub.Hub) error {
	woken := make(chan *nats.Msg, 4096)
	sub, err := w.b.nc.ChanSubscribe(w.b.cfg.Name+".live."+workStream+".*", woken)
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	defer sub.Unsubscribe()
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		for sleep(ctx, claimTime) == nil { // it may take long if a journal cannot be written
			w.countWaiting(ctx, h)
		}
	})
	tick := time.NewTimer(claimTime)
	defer tick.Stop()
	for {
		began := time.Now()
		if err := w.claimAll(ctx, h, &work); err != nil && ctx.Err() == nil {
			w.logger.Warn("sessions that have work cannot be found", "error", err)
		}
		took := time.Since(began)
		tick.Reset(w.next)
		select {
		case <-woken:
			for len(woken) > 0 {
				<-woken
			}
		case <-w.b.beat.freed: // there is room
		case x := <-w.looks:
			w.looked = append(w.looked, x)
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if took > 20*time.Millisecond { // a long queue must not occupy a whole processor
			sleep(ctx, min(took, w.next))
		}
	}
}

// countWaiting announces how many of the sessions here wait for a person.
func (w *Worker) countWaiting(ctx context.Context, h *hub.Hub) {
	n := 0
	for _, id := range w.b.beat.ids() {
		state, err := h.Session(id).State(ctx, hub.Actor{Name: w.b.cfg.Worker, Rights: hub.MayView})
		if err == nil && state.Phase == hub.RequiresAction {
			n++
		}
	}
	t := &w.b.beat
	t.mu.Lock()
	changed := t.started && t.info.Waiting != n
	t.info.Waiting = n
	info := t.describeLocked()
	t.mu.Unlock()
	if changed {
		w.b.putBeat(ctx, info) // if it fails, the next beat contains it
	}
}

// room returns how many more sessions the worker can run.
func (w *Worker) room() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.draining {
		return 0
	}
	return w.slots - w.b.beat.count()
}

// claimAll claims sessions that have work and no worker, the oldest first.
func (w *Worker) claimAll(ctx context.Context, h *hub.Hub, work *sync.WaitGroup) error {
	w.next = claimTime
	if w.room() <= 0 {
		return nil
	}
	queued, err := w.b.last(ctx, w.b.stream(workStream))
	if err != nil || len(queued) == 0 {
		return err
	}
	held, err := w.b.holderIDs(ctx)
	if err != nil {
		return err
	}
	free, err := w.freeSessions(ctx, queued, held, work)
	if err != nil {
		return err
	}
	var workers []WorkerInfo // read when first needed
	w.mu.Lock()
	for id := range w.seen {
		if !slices.ContainsFunc(queued, func(m *stored) bool { return idOf(m.subject) == id }) {
			delete(w.seen, id)
		}
	}
	w.mu.Unlock()
	order, err := w.order(ctx, queued, held)
	if err != nil {
		return err
	}
	for _, id := range order {
		if w.room() <= 0 || ctx.Err() != nil {
			return nil
		}
		if id == hub.SchedulesID { // the scheduler of a hub reads that inbox itself
			continue
		}
		by, ok := held[id]
		if ok && by.ID == w.b.id {
			if w.b.beat.holds(id) {
				continue
			}
		} else if ok { // a lease that this process has lost is free
			if !free[id] {
				continue
			}
		}
		if other, err := w.better(ctx, id, &workers); err != nil {
			return err
		} else if other {
			continue
		}
		w.claim(ctx, h, id, free[id], work)
	}
	return nil
}

// mostAsked is how many other workers a worker checks each time. All workers do so, so each worker is checked
// often enough, however many there are.
const mostAsked = 16

// lookTime is how long a worker waits for the answers of others before it goes on: a process that is paused does not answer.
const lookTime = 20 * time.Millisecond

// freeSessions returns which of the sessions that have work and a holder can be claimed, because the holder has died or
// has lost them. It does not wait for processes that do not answer: Run continues when it is known what became of them.
func (w *Worker) freeSessions(ctx context.Context, queued []*stored, held map[string]holder, work *sync.WaitGroup) (map[string]bool, error) {
	others := map[string][]string{}
	for _, m := range queued {
		id := idOf(m.subject)
		if h, ok := held[id]; ok && h.ID != w.b.id {
			others[h.ID] = append(others[h.ID], id)
		}
	}
	if len(others) <= mostAsked/4 {
		w.next = quickTime
	}
	free := map[string]bool{}
	use := func(x looked) {
		delete(w.asked, x.process)
		if x.state == dead {
			x.given = others[x.process]
		}
		for _, id := range x.given {
			free[id] = true
		}
		if x.state == silent || x.state == reconnecting {
			w.next = min(w.next, w.b.beat.deadIn(x.process, goneTime/4))
		}
	}
	for _, x := range w.looked {
		use(x)
	}
	w.looked = nil
	if len(others) == 0 {
		return free, nil
	}
	workers, err := w.b.Workers(ctx)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, x := range workers {
		there[x.ID] = true
	}
	asked, left := 0, 0
	for process, ids := range others { // in any order
		if there[process] && !w.b.beat.doubted(process) {
			if asked++; asked > mostAsked {
				continue
			}
		}
		if w.asked[process] {
			continue
		}
		w.asked[process] = true
		left++
		work.Go(func() {
			state, given := w.b.look(ctx, process, ids)
			select {
			case w.looks <- looked{process, state, given}:
			case <-ctx.Done():
			}
		})
	}
	limit := time.NewTimer(lookTime)
	defer limit.Stop()
	for ; left > 0; left-- {
		select {
		case x := <-w.looks: // perhaps a late one
			use(x)
		case <-limit.C:
			return free, nil
		case <-ctx.Done():
			return free, nil
		}
	}
	return free, nil
}

// claim acquires the lease of a session, and makes the hub open it. given reports that its holder has given it up or has died.
func (w *Worker) claim(ctx context.Context, h *hub.Hub, id string, given bool, work *sync.WaitGroup) {
	w.mu.Lock()
	busy := w.grants[id] != nil
	w.mu.Unlock()
	if busy {
		return
	}
	l, err := w.b.lease(ctx, id, func(ctx context.Context, process, id string) (bool, error) {
		switch {
		case w.b.beat.foundDead(process, claimTime):
			return true, nil
		case !given: // another worker was faster; other sessions do not wait until it answers
			return false, nil
		}
		return w.b.free(ctx, process, id)
	})
	if err != nil {
		if !errors.Is(err, hub.ErrLocked) && ctx.Err() == nil {
			w.logger.Warn("a session cannot be claimed", "session", id, "error", err)
		}
		return
	}
	x := &grant{lease: l}
	w.mu.Lock()
	w.grants[id] = x
	w.mu.Unlock()
	work.Go(func() {
		err := h.Session(id).TakeOver(ctx)
		w.mu.Lock()
		left := x.lease // nil if the hub runs the session
		delete(w.grants, id)
		w.mu.Unlock()
		if left != nil {
			left.Close()
		}
		if errors.Is(err, hub.ErrNotFound) {
			w.b.Rest(ctx, id)
		} else if err != nil && ctx.Err() == nil {
			w.logger.Warn("a session that has work cannot be opened", "session", id, "error", err)
		}
	})
}

// Drain stops claiming, and waits until no turn is running here or ctx ends. Close the backend
// afterwards, so that other workers continue its sessions.
func (w *Worker) Drain(ctx context.Context, h *hub.Hub) {
	w.mu.Lock()
	w.draining = true
	w.mu.Unlock()
	for ctx.Err() == nil {
		busy := false
		for _, id := range w.b.beat.ids() {
			info, err := h.Session(id).State(ctx, hub.Actor{Name: w.b.cfg.Worker, Rights: hub.MayView})
			busy = busy || err == nil && info.Phase == hub.Running
		}
		if !busy || sleep(ctx, 50*time.Millisecond) != nil {
			return
		}
	}
}

// ids returns the sessions that this process runs.
func (t *beat) ids() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.idsLocked()
}

// idsLocked leaves out the schedules of the fleet, which one of its hubs keeps: they need no slot.
func (t *beat) idsLocked() (all []string) {
	for id := range t.held {
		if id != hub.SchedulesID {
			all = append(all, id)
		}
	}
	return all
}
