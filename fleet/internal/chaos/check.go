package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/fleet"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

var chaos = hub.Actor{Name: "chaos", Rights: hub.Everything}

// A load simulates people who send prompts, at gateways on all nodes.
type load struct {
	hubs     []*hub.Hub
	sessions []string
	accepted [][]string // by session, the uuids of prompts in order
	stop     chan struct{}
	work     sync.WaitGroup
	results  atomic.Int64
	waits    []atomic.Pointer[string] // by session, what its client waits for
	cancel   context.CancelFunc
}

// startLoad starts sessions, each of which receives its next prompt when it is idle.
func (w *world) startLoad(ctx context.Context, sessions int) (*load, error) {
	l := &load{stop: make(chan struct{}), accepted: make([][]string, sessions), waits: make([]atomic.Pointer[string], sessions)}
	ctx, l.cancel = context.WithCancel(ctx)
	for _, b := range w.backends {
		h, err := hub.New(hub.Config{Backend: b, Gateway: true, Name: "gateway", Agent: func(context.Context, hub.Start) (*parley.Options, error) {
			return nil, errors.New("a gateway runs no agents")
		}})
		if err != nil {
			return nil, err
		}
		l.hubs = append(l.hubs, h)
	}
	for i := range sessions {
		id := session.NewID()
		create := func() error { _, err := l.hubs[0].Create(ctx, chaos, hub.Spec{ID: id, Cwd: w.dir}); return err }
		if err := again(ctx, create); err != nil && !errors.Is(err, hub.ErrExists) {
			return nil, err
		}
		l.sessions = append(l.sessions, id)
		l.work.Go(func() { l.drive(ctx, i) })
	}
	return l, nil
}

// again retries f until it succeeds.
func again(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || ctx.Err() != nil || errors.Is(err, hub.ErrExists) {
			return err
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// drive sends prompts to one session, one after the other, and waits for each result.
func (l *load) drive(ctx context.Context, i int) {
	var after uint64
	waits := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		l.waits[i].Store(&text)
	}
	defer l.waits[i].Store(nil)
	for n := 0; ; n++ {
		select {
		case <-l.stop:
			return
		case <-ctx.Done():
			return
		default:
		}
		s := l.hubs[(i+n)%3].Session(l.sessions[i])
		m := wire.Prompt(wire.Text(fmt.Sprintf("prompt-%d-%d", i, n)))
		m.UUID = session.NewID()
		waits("the acceptance of prompt %d (%s) at gateway %d", n, m.UUID, (i+n)%3)
		if again(ctx, func() error { _, err := s.Prompt(ctx, chaos, m); return err }) != nil {
			return
		}
		l.accepted[i] = append(l.accepted[i], m.UUID)
		waits("the result of prompt %d (%s) behind entry %d at gateway %d", n, m.UUID, after, (i+n)%3)
		again(ctx, func() error {
			for e, err := range s.Attach(ctx, chaos, after) {
				if err != nil {
					return err
				}
				after = max(after, e.N)
				if e.Kind == hub.KindFrame && wire.PeekType(e.Data) == "result" || e.Kind == hub.KindEnded {
					l.results.Add(1)
					return nil
				}
			}
			return ctx.Err()
		})
	}
}

// finishTime is how long the accepted prompts may take after the last fault.
const finishTime = 3 * time.Minute

// finish waits until every prompt has its result.
func (w *world) finish(ctx context.Context, l *load) (late error) {
	close(l.stop)
	done := make(chan struct{})
	go func() { l.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(finishTime):
		late = &lateError{fmt.Sprintf("some prompts have no result %v after the last fault:%s", finishTime, w.unfinished(ctx, l))}
		l.cancel()
		<-done
	}
	for _, h := range l.hubs {
		h.Close()
	}
	return late
}

// unfinished describes the sessions whose clients still wait.
func (w *world) unfinished(ctx context.Context, l *load) (text string) {
	b := w.backends[0]
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	work := map[string]bool{}
	for id, err := range b.Work(ctx, false) {
		if err == nil {
			work[id] = true
		}
	}
	for i, id := range l.sessions {
		waits := l.waits[i].Load()
		if waits == nil {
			continue
		}
		var end, item, owner uint64
		prompts, results := 0, 0
		for e, err := range b.Read(ctx, id, 0, false) {
			if err != nil {
				break
			}
			end, item, owner = max(end, e.N), max(item, e.Item), e.Epoch
			switch {
			case e.Kind == hub.KindPrompt:
				prompts++
			case e.Kind == hub.KindFrame && wire.PeekType(e.Data) == "result":
				results++
			}
		}
		unread := 0
		for _, err := range b.Inbox(ctx, id, item, false) {
			if err == nil {
				unread++
			}
		}
		text += fmt.Sprintf("\n  session %d (%s) waits for %s; its journal has %d prompts and %d results and ends with %d of owner %d; its inbox has %d more items; it is marked: %v", i, id, *waits, prompts, results, end, owner, unread, work[id])
	}
	return text
}

// A history holds the operations of clients on logs and leases, for porcupine.
type history struct {
	mu   sync.Mutex
	ops  map[string][]porcupine.Operation // by log or lease
	stop chan struct{}
	work sync.WaitGroup
}

type (
	// An input is an append after a number, or, for a lease, empty.
	input struct{ expect uint64 }
	// An output is the outcome of an operation, which may be unknown.
	output struct{ ok, unknown bool }
)

// startHistory starts a client on each node that appends to the same logs.
func (w *world) startHistory(ctx context.Context) *history {
	h := &history{ops: map[string][]porcupine.Operation{}, stop: make(chan struct{})}
	ids := []string{session.NewID(), session.NewID()}
	began := time.Now()
	for c, b := range w.backends {
		h.work.Go(func() {
			for k := 0; ; k++ {
				select {
				case <-h.stop:
					return
				case <-time.After(100 * time.Millisecond):
				}
				id := ids[k%len(ids)]
				h.appendOnce(ctx, b, c, id, began)
				if k%10 == 0 {
					h.leaseOnce(ctx, b, c, ids[0], began)
				}
			}
		})
	}
	return h
}

func (h *history) add(name string, op porcupine.Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops[name] = append(h.ops[name], op)
}

func (h *history) appendOnce(ctx context.Context, b *fleet.Backend, client int, id string, began time.Time) {
	var last uint64
	for e, err := range b.Read(ctx, id, 0, false) {
		if err != nil {
			return
		}
		last = max(last, e.N)
	}
	e := hub.Entry{N: last + 1, Kind: hub.KindFrame, Time: time.Now(), Data: json.RawMessage(fmt.Sprintf(`{"by":%d}`, client))}
	call := time.Since(began).Nanoseconds()
	err := b.Append(ctx, id, last, []hub.Entry{e})
	out := output{ok: err == nil, unknown: err != nil && !errors.Is(err, hub.ErrConflict)}
	end := time.Since(began).Nanoseconds()
	if out.unknown {
		end = time.Hour.Nanoseconds() // it may take place until the end
	}
	h.add("log "+id, porcupine.Operation{ClientId: client, Input: input{last}, Call: call, Output: out, Return: end})
}

// leaseOnce acquires and releases a lease. No two clients may hold it at once, since none of them
// dies.
func (h *history) leaseOnce(ctx context.Context, b *fleet.Backend, client int, id string, began time.Time) {
	call := time.Since(began).Nanoseconds()
	limit, cancel := context.WithTimeout(ctx, finishTime) // without a majority it would wait forever
	defer cancel()
	l, err := b.Lease(limit, id)
	if err != nil {
		return
	}
	got := time.Since(began).Nanoseconds()
	select {
	case <-l.Lost():
	case <-time.After(50 * time.Millisecond):
	}
	lost := false
	select {
	case <-l.Lost():
		lost = true
	default:
	}
	give := time.Since(began).Nanoseconds()
	l.Close()
	if lost {
		return
	}
	h.add("lease "+id, porcupine.Operation{ClientId: client, Input: input{1}, Call: call, Output: output{ok: true}, Return: got})
	h.add("lease "+id, porcupine.Operation{ClientId: client, Input: input{0}, Call: give, Output: output{ok: true}, Return: time.Since(began).Nanoseconds()})
}

func (h *history) finish() {
	close(h.stop)
	h.work.Wait()
}

// logModel models a log to which a client appends after the number that it expects to be the last.
var logModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{uint64(0)} },
	Step: func(state, in, out any) []any {
		n, i, o := state.(uint64), in.(input), out.(output)
		switch {
		case o.ok && i.expect == n:
			return []any{n + 1}
		case o.ok:
			return nil
		case o.unknown && i.expect == n:
			return []any{n, n + 1}
		}
		return []any{n}
	},
	Equal: func(a, b any) bool { return a == b },
}

// leaseModel models a lock: 1 acquires it, 0 releases it.
var leaseModel = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, in, _ any) (bool, any) {
		want := in.(input).expect
		return state.(uint64) != want, want
	},
}

// check checks the final state, and prints its findings.
func (w *world) check(ctx context.Context, l *load, h *history, finished bool) error {
	var problems []string
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	prompts, lost, entries, stale, ended, unknown := 0, 0, 0, 0, 0, 0
	var takeovers, resumed []takeover
	for i, id := range l.sessions {
		var n, epoch uint64
		owner, over := "", map[string]int{}
		consumed := map[string][]string{} // inbox items and the entries that consumed them
		for e, err := range w.backends[0].Read(ctx, id, 0, false) {
			if err != nil {
				return fmt.Errorf("session %d: %w", i, err)
			}
			entries++
			if e.N > 0 {
				if e.N != n+1 {
					complain("session %d: entry %d follows %d", i, e.N, n)
				}
				n = e.N
			}
			if e.Kind == hub.KindOwner {
				var o hub.Owner
				json.Unmarshal(e.Data, &o)
				if o.Hub != owner {
					w.note("session %d: entry %d of %s says that %s takes over from %s", i, e.N, e.Time.Local().Format("15:04:05.000"), o.Hub, owner)
					takeovers = append(takeovers, w.since(w.killed[owner], e.Time)...)
					resumed = append(resumed, w.since(w.paused[owner], e.Time)...)
				}
				owner, epoch = o.Hub, e.N
			}
			if e.Epoch != epoch && e.Kind != hub.KindCreated {
				stale++
			}
			if strings.Contains(string(e.Data), "outcome unknown") && e.Kind == hub.KindRecord {
				unknown++
			}
			switch {
			case e.Kind == hub.KindEnded:
				var x hub.Ended
				json.Unmarshal(e.Data, &x)
				ended++
				for _, uuid := range x.Prompts {
					over[uuid]++
				}
			case e.Kind == hub.KindFrame && wire.PeekType(e.Data) == "user" && e.Record != "":
				consumed[e.Record] = append(consumed[e.Record], fmt.Sprintf("%d of owner %d", e.N, e.Epoch))
			}
		}
		for _, uuid := range l.accepted[i] {
			times := len(consumed[uuid])
			if prompts++; finished && times != 1 && over[uuid] == 0 || times > 1 {
				lost++
				complain("session %d (%s): the prompt %s was consumed %d times: %s", i, id, uuid, times, strings.Join(consumed[uuid], "; "))
			}
		}
	}
	if finished && int64(prompts) != l.results.Load() {
		complain("%d prompts have %d results", prompts, l.results.Load())
	}
	if stale > 0 {
		complain("%d entries are by a process that was not the owner", stale)
	}
	effects, twice := w.readLedger(complain)
	for name, ops := range h.ops {
		ok := false
		if strings.HasPrefix(name, "log ") {
			model := logModel.ToModel()
			ok = porcupine.CheckOperations(model, ops)
		} else {
			ok = porcupine.CheckOperations(leaseModel, ops)
		}
		fmt.Printf("porcupine: %s: %d operations, linearizable: %v\n", name[:strings.IndexByte(name, ' ')], len(ops), ok)
		if !ok {
			complain("the history of a %s is not linearizable", name)
		}
	}
	fmt.Printf("prompts %d, lost %d, turns without a result %d, entries %d, by a process that was not the owner %d\n", prompts, lost, ended, entries, stale)
	fmt.Printf("effects %d, run twice %d, outcome unknown to the model %d\n", effects, twice, unknown)
	w.printTakeovers(takeovers, resumed)
	if len(problems) > 0 {
		return fmt.Errorf("%d problems (the log is %s):\n  %s", len(problems), w.log.Name(), strings.Join(problems[:min(20, len(problems))], "\n  "))
	}
	return nil
}

// A takeover is how long it took until another worker had a session.
type takeover struct {
	took time.Duration
	node string // the fault of a node meanwhile, if there was one: writes wait for the election of a leader
}

// printTakeovers prints how long takeovers took.
func (w *world) printTakeovers(killed, paused []takeover) {
	paused = slices.DeleteFunc(paused, func(t takeover) bool { return t.took > w.lease+pauseMore }) // another fault caused these
	for _, x := range []struct {
		fault string
		all   []takeover
		most  time.Duration
	}{{"killed", killed, 3 * time.Second}, {"paused", paused, w.lease + 2*time.Second}} {
		fmt.Printf("takeover after a worker was %s: %s\n", x.fault, summary(x.all))
		byNode := map[string][]takeover{}
		for _, t := range x.all {
			byNode[t.node] = append(byNode[t.node], t)
		}
		for _, node := range slices.Sorted(maps.Keys(byNode)) {
			fmt.Printf("  while %s: %s\n", cmp.Or(node, "all nodes were up"), summary(byNode[node]))
		}
		if len(x.all) > 0 {
			fmt.Println(bar{"takeover after a worker was " + x.fault + ", p50", middle(x.all).Seconds(), x.most.Seconds(), "s"})
		}
	}
}

// since returns how long ago the last of some faults was, if within the last minute.
func (w *world) since(faults []time.Time, at time.Time) (all []takeover) {
	for _, t := range faults {
		if gap := at.Sub(t); gap >= 0 && gap < time.Minute { // after an earlier fault, the worker had released the session
			node := ""
			if i := slices.IndexFunc(w.nodeFaults, func(f nodeFault) bool { return f.began.Before(at) && f.end.Add(electionTime).After(t) }); i >= 0 {
				node = w.nodeFaults[i].kind
			}
			all = []takeover{{gap, node}}
		}
	}
	return all
}

// electionTime is the longest time that the election of a leader takes: see raft.go of package fleet.
const electionTime = 4 * time.Second

// middle sorts takeovers and returns their median.
func middle(all []takeover) time.Duration {
	slices.SortFunc(all, func(a, b takeover) int { return cmp.Compare(a.took, b.took) })
	return all[len(all)/2].took
}

func summary(all []takeover) string {
	if len(all) == 0 {
		return "none"
	}
	half := middle(all)
	return fmt.Sprintf("p50 %v, max %v of %d", half.Round(100*time.Millisecond), all[len(all)-1].took.Round(100*time.Millisecond), len(all))
}

// readLedger looks for duplicate effects.
func (w *world) readLedger(complain func(string, ...any)) (effects, twice int) {
	f, err := os.Open(w.ledger)
	if err != nil {
		complain("there is no ledger: %v", err)
		return 0, 0
	}
	defer f.Close()
	seen := map[string]bool{}
	for s := bufio.NewScanner(f); s.Scan(); {
		effects++
		prompt, call, _ := strings.Cut(s.Text(), " ")
		for _, key := range []string{prompt, call} {
			if seen[key] {
				twice++
				complain("%s took place twice", s.Text())
			}
			seen[key] = true
		}
	}
	return effects, twice
}
