package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/parley-go/parley/fleet/workspace"
	"github.com/parley-go/parley/hub"
)

// A lease determines which process runs a session. It provides liveness; safety comes from the fence
// of the log. All leases of a process last as long as its entry in the bucket of workers, which
// expires unless the process renews it. A process that has an entry but no connection has died. A
// process reports on request which sessions it holds, so a lease that it has lost is free although
// the process is alive.

// A holder is the value of a lease.
type holder struct {
	ID   string `json:"id"`   // of the process
	Name string `json:"name"` // for people
}

// A WorkerInfo is the information that a process publishes about itself.
type WorkerInfo struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Version string    `json:"version,omitempty"`
	Since   time.Time `json:"since"`
	// Sessions is how many sessions it runs, Waiting how many of them wait for a person, and Slots how
	// many it can run.
	Sessions int `json:"sessions"`
	Waiting  int `json:"waiting,omitempty"`
	Slots    int `json:"slots,omitempty"`
	// Machine and Warm describe the files that it has: those of the sessions that ran there last,
	// and mirrors of repositories.
	Machine string   `json:"machine,omitempty"`
	Warm    []string `json:"warm,omitempty"`
}

// A beat keeps the entry of this process, and with it its leases, alive.
type beat struct {
	mu        sync.Mutex
	started   bool
	held      map[string]*lease    // by session
	acquiring map[string]*lease    // leases that others may see as ours, but that we do not hold yet
	seen      map[string]*sighting // other processes, by id
	forget    time.Duration        // how long a sighting is remembered
	freed     chan struct{}        // holds a token when a lease was given up
	info      WorkerInfo
	files     *workspace.Manager // nil if there are no workspaces
}

// workerSubject returns the subject on which a process answers that it is alive.
func (b *Backend) workerSubject(id string) string { return b.cfg.Name + ".worker." + id }

// Announce sets the information about this process, and starts to publish it.
func (b *Backend) Announce(ctx context.Context, version string, slots int) error {
	b.beat.mu.Lock()
	b.beat.info.Version, b.beat.info.Slots = version, slots
	b.beat.mu.Unlock()
	return b.startBeat(ctx)
}

// startBeat writes the entry of this process and keeps it alive.
func (b *Backend) startBeat(ctx context.Context) error {
	b.beat.mu.Lock()
	defer b.beat.mu.Unlock()
	if b.beat.started {
		return nil
	}
	b.beat.info.ID, b.beat.info.Name, b.beat.info.Since = b.id, b.cfg.Worker, time.Now().UTC()
	sub, err := b.nc.Subscribe(b.workerSubject(b.id), func(m *nats.Msg) {
		if m.Reply != "" {
			m.Respond([]byte(strings.Join(b.beat.notHeld(strings.Fields(string(m.Data))), "\n")))
			return
		}
		b.beat.lose(string(m.Data)) // another process has taken over this session
	})
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if err := b.putBeat(ctx, b.beat.describeLocked()); err != nil {
		sub.Unsubscribe()
		return err
	}
	if !b.work.Go(func() {
		defer sub.Unsubscribe()
		b.keepBeat()
	}) {
		sub.Unsubscribe()
		return errClosed
	}
	b.beat.started = true
	return nil
}

func (b *Backend) putBeat(ctx context.Context, info WorkerInfo) error {
	data, err := json.Marshal(info)
	if err != nil {
		return err
	}
	return b.retry(ctx, func(ctx context.Context) error {
		_, err := b.workers.Put(ctx, b.id, data)
		return err
	})
}

// keepBeat renews the entry of this process. If it fails for as long as the entry lasts, all
// leases are lost. It uses only the monotonic clock of this process.
func (b *Backend) keepBeat() {
	renewed, reconnects := time.Now(), b.nc.Stats().Reconnects
	tick := time.NewTicker(b.cfg.Lease / 4)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			return
		}
		info := b.beat.describe()
		began := time.Now()
		end := renewed.Add(b.cfg.Lease)
		if !began.Before(end) { // this process was paused: others may have its sessions
			b.beat.loseAll()
			end = began.Add(b.cfg.Lease)
		}
		// The entry expires no earlier than this: by then the leases must be lost.
		ctx, cancel := context.WithDeadline(b.ctx, end)
		err := b.putBeat(ctx, info)
		cancel()
		if err != nil && b.ctx.Err() == nil {
			sleep(b.ctx, time.Until(end))
			b.beat.loseAll()
			continue
		}
		renewed = began
		if n := b.nc.Stats().Reconnects; n != reconnects {
			reconnects = n
			b.loseTaken()
		}
	}
}

// loseTaken ends the leases that other processes took while this one had no connection and missed
// their messages.
func (b *Backend) loseTaken() {
	held, err := b.holderIDs(b.ctx)
	if err != nil {
		return // appends are still fenced
	}
	b.beat.mu.Lock()
	ids := slices.Collect(maps.Keys(b.beat.held))
	b.beat.mu.Unlock()
	for _, id := range ids {
		if by, ok := held[id]; ok && by.ID != b.id {
			b.beat.lose(id)
		}
	}
}

// lose ends the lease of one session.
func (t *beat) lose(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.acquiring[id]; l != nil {
		l.lose()
	}
	if l := t.held[id]; l != nil {
		l.lose()
		delete(t.held, id)
	}
}

func (t *beat) loseAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.acquiring {
		l.lose()
	}
	for id, l := range t.held {
		l.lose()
		delete(t.held, id)
	}
}

func (t *beat) closeAll() {
	t.mu.Lock()
	var all []*lease
	for _, l := range t.held {
		all = append(all, l)
	}
	t.mu.Unlock()
	for _, l := range all {
		l.Close()
	}
}

// leave removes the entry of this process.
func (t *beat) leave(b *Backend) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started && !b.nc.IsClosed() {
		ctx, cancel := context.WithTimeout(context.Background(), b.patience(tryTime))
		defer cancel()
		b.workers.Purge(ctx, b.id)
	}
}

// A lease is the right to run a session.
type lease struct {
	b        *Backend
	id       string // of the session
	revision uint64
	lost     chan struct{}
	lostOnce sync.Once
	close    sync.Once
}

func (l *lease) lose() { l.lostOnce.Do(func() { close(l.lost) }) }

// Lost implements [hub.Lease].
func (l *lease) Lost() <-chan struct{} { return l.lost }

// markerTime is how long a released lease leaves a marker.
const markerTime = 2 * time.Second

// Close implements [hub.Lease].
func (l *lease) Close() error {
	l.close.Do(func() {
		t := &l.b.beat
		t.mu.Lock()
		if t.held[l.id] == l {
			delete(t.held, l.id)
		}
		t.mu.Unlock()
		select {
		case t.freed <- struct{}{}:
		default:
		}
		if l.b.nc.IsClosed() {
			return
		}
		// Release it even if it was lost, in case nobody else has taken it. The revision is that of
		// this lease.
		ctx, cancel := context.WithTimeout(context.Background(), l.b.cfg.Lease)
		defer cancel()
		l.b.retry(ctx, func(ctx context.Context) error {
			err := l.b.leases.Purge(ctx, l.id, jetstream.LastRevision(l.revision), jetstream.PurgeTTL(markerTime))
			if isWrongRevision(err) {
				return nil
			}
			return err
		})
	})
	return nil
}

func isWrongRevision(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, jetstream.ErrKeyExists) || errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence
}

// Lease implements [hub.Backend].
func (b *Backend) Lease(ctx context.Context, id string) (hub.Lease, error) {
	return b.lease(ctx, id, b.free)
}

// lease acquires a lease. free reports whether a session can be taken from a process.
func (b *Backend) lease(ctx context.Context, id string, free func(ctx context.Context, process, id string) (bool, error)) (hub.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := hub.CheckID(id); err != nil {
		return nil, err
	}
	if b.ctx.Err() != nil {
		return nil, errClosed
	}
	if err := b.startBeat(ctx); err != nil {
		return nil, err
	}
	value, err := json.Marshal(holder{b.id, b.cfg.Worker})
	if err != nil {
		return nil, err
	}
	l := &lease{b: b, id: id, lost: make(chan struct{})}
	if !b.beat.beginAcquire(l) {
		return nil, hub.ErrLocked // another goroutine of this process is acquiring it
	}
	defer b.beat.endAcquire(l)
	if l.revision, err = b.acquire(ctx, id, value, free); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	b.beat.mu.Lock()
	b.beat.held[id] = l
	b.beat.mu.Unlock()
	return l, nil
}

// acquire stores this process as the holder of a lease, unless another one has it, and returns the revision. Like appends,
// it repeats the same bytes until it is known whether they were stored.
func (b *Backend) acquire(ctx context.Context, id string, value []byte, free func(ctx context.Context, process, id string) (bool, error)) (revision uint64, err error) {
	bucket := b.cfg.Name + "-" + leaseKV
	subject, name := "$KV."+bucket+"."+id, nuid.Next()
	var last uint64
	var from string // the process that has died
	for took := false; ; {
		var wrong *sequenceError
		if revision, _, err = b.publish(ctx, newMsg(subject, value, headerID, name+number(last), headerExpect, number(last))); err == nil {
			if took && from != b.id {
				b.metrics.Takeovers.Add(1)
				b.nc.Publish(b.workerSubject(from), []byte(id)) // in case it is only slow
			}
			return revision, nil
		}
		if !errors.As(err, &wrong) {
			return 0, err
		}
		old, err := b.getFrom(ctx, "KV_"+bucket, getRequest{LastFor: subject})
		switch {
		case err != nil:
			return 0, err
		case old == nil || old.seq < wrong.last:
			return 0, hub.ErrLocked // it is changing owners, or the server lags
		case old.header.Get(headerID) == name+number(last): // an earlier try was stored
			return old.seq, nil
		case took || old.seq == last:
			return 0, hub.ErrLocked // another process was faster
		}
		last = old.seq
		if old.header.Get("KV-Operation") != "" { // it was given up
			continue
		}
		var by holder
		json.Unmarshal(old.data, &by)
		if by.ID == b.id && b.beat.holds(id) {
			return 0, hub.ErrLocked
		}
		if by.ID != b.id {
			if yes, err := free(ctx, by.ID, id); !yes || err != nil {
				return 0, errors.Join(hub.ErrLocked, err)
			}
		}
		took, from = true, by.ID
	}
}

// beginAcquire records a lease before others can see it. It reports false if another goroutine is acquiring
// the same one.
func (t *beat) beginAcquire(l *lease) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.acquiring[l.id] != nil {
		return false
	}
	t.acquiring[l.id] = l
	return true
}

// endAcquire records that a lease is held, or could not be acquired.
func (t *beat) endAcquire(l *lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.acquiring, l.id)
}

// notHeld returns the given sessions that this process neither holds nor is acquiring.
func (t *beat) notHeld(ids []string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(ids, func(id string) bool { return t.held[id] != nil || t.acquiring[id] != nil })
}

func (t *beat) holds(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held[id] != nil
}

// free reports whether the lease of a session can be taken from the process that has it. It waits while that process may be
// reconnecting.
func (b *Backend) free(ctx context.Context, process, id string) (bool, error) {
	for {
		state, given := b.look(ctx, process, []string{id})
		if state != reconnecting {
			return state == dead || len(given) > 0, ctx.Err()
		}
		if err := sleep(ctx, goneTime/4); err != nil {
			return false, err
		}
	}
}

// The sessions of a process are taken over only if nobody answers for it for goneTime: it may be
// reconnecting. A process that does not answer within answerTime is slow or paused, and its entry
// decides.
const (
	goneTime   = 1200 * time.Millisecond
	answerTime = 500 * time.Millisecond
)

// A condition is the state of another process, as this one sees it.
type condition int

const (
	alive        condition = iota
	silent                 // it has a connection and does not answer: it is slow or paused
	reconnecting           // nobody answers for it, but that may change
	dead                   // its sessions can be taken over
)

// A sighting records when and how this process has last seen another one, by its own clock.
type sighting struct {
	at     time.Time // of the last look
	absent time.Time // since when nobody has answered for it
	died   time.Time // when it was found dead
	seq    uint64    // of its entry
	since  time.Time // when this process first saw that entry
}

// look looks once for a process. It also returns the given sessions that the process does not hold.
//
// A process that answers is alive, even if its entry has expired, because the clocks of servers differ. A paused process has a
// connection but does not answer: it counts as dead when its entry has expired, or was not renewed for the length of a lease by
// the clock of this process. A killed process has no connection, which NATS reports at once.
func (b *Backend) look(ctx context.Context, id string, sessions []string) (state condition, given []string) {
	t, began := &b.beat, time.Now()
	if t.foundDead(id, answerTime) {
		return dead, nil
	}
	try, cancel := context.WithTimeout(ctx, b.patience(answerTime))
	resp, err := b.nc.RequestWithContext(try, b.workerSubject(id), []byte(strings.Join(sessions, "\n")))
	cancel()
	switch {
	case err == nil:
		t.see(id, func(s *sighting) { s.absent, s.died = time.Time{}, time.Time{} })
		return alive, strings.Fields(string(resp.Data))
	case ctx.Err() != nil:
		return alive, nil // its state is unknown
	}
	state = silent
	t.see(id, func(s *sighting) {
		if !errors.Is(err, nats.ErrNoResponders) {
			s.absent = time.Time{}
			return
		}
		if s.absent.IsZero() {
			s.absent = began
		}
		if state = reconnecting; time.Since(s.absent) >= goneTime {
			state = dead
		}
	})
	if state != dead {
		limit, cancel := context.WithTimeout(ctx, t.deadIn(id, b.patience(tryTime)))
		entry, err := b.getFrom(limit, "KV_"+b.cfg.Name+"-"+workerKV, getRequest{LastFor: "$KV." + b.cfg.Name + "-" + workerKV + "." + id})
		cancel()
		if err != nil {
			return state, nil
		}
		if entry == nil || entry.header.Get("KV-Operation") != "" || t.stale(id, entry.seq, b.cfg.Lease) {
			state = dead
		}
	}
	if state == dead {
		t.see(id, func(s *sighting) { s.died = time.Now() })
	}
	return state, nil
}

// see changes the sighting of a process.
func (t *beat) see(id string, change func(*sighting)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for other, s := range t.seen {
		if now.Sub(s.at) > t.forget {
			delete(t.seen, other)
		}
	}
	s := t.seen[id]
	if s == nil {
		s = new(sighting)
		t.seen[id] = s
	}
	if now.Sub(s.at) > 5*goneTime { // the process may have returned since
		s.absent = time.Time{}
	}
	s.at = now
	change(s)
}

// foundDead reports whether a process was recently found dead and has not answered since.
func (t *beat) foundDead(id string, within time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.seen[id]
	return s != nil && time.Since(s.died) < within
}

// stale records the entry of a process, and reports whether the entry has not changed for the length of a lease.
func (t *beat) stale(id string, seq uint64, lease time.Duration) (yes bool) {
	t.see(id, func(s *sighting) {
		if seq > s.seq {
			s.seq, s.since = seq, time.Now()
		}
		yes = time.Since(s.since) >= lease
	})
	return yes
}

// doubted reports whether a process did not answer the last look of this process.
func (t *beat) doubted(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.seen[id]
	return s != nil && !s.absent.IsZero()
}

// deadIn returns a time, or less if another process, for which nobody answers, counts as dead before.
func (t *beat) deadIn(id string, most time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.seen[id]
	if s == nil || s.absent.IsZero() {
		return most
	}
	return max(min(goneTime-time.Since(s.absent), most), time.Millisecond)
}

// Workers returns the live processes.
func (b *Backend) Workers(ctx context.Context) (all []WorkerInfo, err error) {
	entries, err := b.last(ctx, "KV_"+b.cfg.Name+"-"+workerKV)
	if err != nil {
		return nil, err
	}
	for _, m := range entries {
		var w WorkerInfo
		if m.header.Get("KV-Operation") == "" && json.Unmarshal(m.data, &w) == nil {
			all = append(all, w)
			b.beat.stale(w.ID, m.seq, b.cfg.Lease)
		}
	}
	return all, nil
}

// holderIDs returns the holders of leases, by session.
func (b *Backend) holderIDs(ctx context.Context) (map[string]holder, error) {
	entries, err := b.last(ctx, "KV_"+b.cfg.Name+"-"+leaseKV)
	if err != nil {
		return nil, err
	}
	all := map[string]holder{}
	for _, m := range entries {
		var h holder
		if m.header.Get("KV-Operation") == "" && json.Unmarshal(m.data, &h) == nil {
			all[idOf(m.subject)] = h
		}
	}
	return all, nil
}

// A Status is the state of a fleet.
type Status struct {
	Workers []WorkerInfo `json:"workers"`
	// Queued is how many sessions have work and no worker, and Running how many have one.
	Queued  int `json:"queued"`
	Running int `json:"running"`
	// Waiting is how many of those wait for a person.
	Waiting int `json:"waiting"`
	// Oldest is how long the oldest queued session has waited.
	Oldest   time.Duration `json:"oldest"`
	Sessions int           `json:"sessions"` // number of existing sessions
	// Owners are the names of the workers, by session.
	Owners map[string]string `json:"owners,omitempty"`
}

// Status returns the state of the fleet.
func (b *Backend) Status(ctx context.Context) (*Status, error) {
	workers, err := b.Workers(ctx)
	if err != nil {
		return nil, err
	}
	queued, err := b.last(ctx, b.stream(workStream))
	if err != nil {
		return nil, err
	}
	held, err := b.holderIDs(ctx)
	if err != nil {
		return nil, err
	}
	listed, err := b.List(ctx)
	if err != nil {
		return nil, err
	}
	alive := map[string]bool{}
	waiting := 0
	for _, w := range workers {
		alive[w.ID] = true
		waiting += w.Waiting
	}
	s := &Status{Waiting: waiting, Workers: workers, Sessions: len(listed), Owners: map[string]string{}}
	for id, h := range held {
		if alive[h.ID] {
			s.Owners[id] = h.Name
		}
	}
	for _, m := range queued {
		if s.Owners[idOf(m.subject)] != "" {
			s.Running++
			continue
		}
		if s.Queued++; s.Queued == 1 {
			s.Oldest = max(0, time.Since(m.time))
		}
	}
	return s, nil
}
