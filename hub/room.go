package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A room is a session that is in use in this process: it is watched, or its agent runs. One goroutine
// owns its state and writes its journal. Others send it functions to call, and wait only for their turn.
//
// A room owns its session if it has the lease. Otherwise another process does, and the room follows the
// journal that the other process writes, and retries the lease now and then.
type room struct {
	hub *Hub
	id  string

	ops  chan *op
	ctx  context.Context // ends with the room
	stop context.CancelCauseFunc
	done chan struct{} // closed when its goroutine and the ones it started have ended

	opened chan struct{} // closed when the session is open, or cannot be opened
	err    error         // why it cannot be opened; set before opened is closed

	// These are guarded by the hub's mutex.
	refs    int  // calls and viewers
	leaving bool // it is ending and accepts nobody any more

	// Everything below belongs to the goroutine.

	fold        *fold
	lease       Lease  // nil if another process owns the session
	owner       bool   // the journal has an owner entry of this lease
	seen        bool   // it has consumed the items that were in its inbox when it was opened
	trimmed     uint64 // the last consumed inbox item at the time of the last trim
	records     recordLogs
	logLeases   map[string]*journalLease // by the id of the agent's session
	viewers     map[*viewer]bool
	progress    map[string]json.RawMessage // the last output of calls that run, by their ids: see noteProgress
	waiters     map[string]chan *Answer    // channels that wait for answers, by question
	expiring    map[string]time.Time       // when to retry denying an expired question
	agent       *agentRun                  // nil if there is none
	attempts    int                        // how often the agent failed since the last result
	lastError   string                     // why the agent ended last
	startAt     time.Time                  // when it may be restarted
	draining    bool                       // the hub is closing
	host        *seat                      // the attached host, if any
	hostChanged chan struct{}              // closed when the host changes; nil if nobody waits for that
	hostAsks    map[string]*hostAsk        // open questions, by id
	work        sync.WaitGroup             // goroutines that end with ctx
	nudge       chan struct{}              // holds a token if the room should check whether it is still needed
	broken      error                      // the journal can no longer be written, or another process owns the session
}

// An op is a function that the room's goroutine calls.
type op struct {
	f    func(*tx) error
	done chan error // receives its error once its entries are durable; nil if nobody waits
}

// A tx collects the entries that ops append to the journal, to be written together.
type tx struct {
	r       *room
	entries []Entry
	claims  bool    // the first entry is an owner entry
	events  []Entry // for viewers, in order: numbered entries and live ones
}

// append adds an entry. It takes effect at once, but nobody receives it before it is durable.
func (x *tx) append(kind Kind, data json.RawMessage, more func(*Entry)) *Entry {
	if !x.r.owner && kind != KindCreated && kind != KindForked {
		x.r.owner, x.claims = true, true
		if kind != KindOwner {
			x.append(KindOwner, mustJSON(Owner{Hub: x.r.hub.cfg.Name}), nil)
		}
	}
	e := Entry{N: x.r.fold.n + 1, Kind: kind, Time: time.Now().UTC().Truncate(time.Millisecond), Epoch: x.r.fold.epoch, Data: data}
	if kind == KindOwner {
		e.Epoch = e.N
	}
	if more != nil {
		more(&e)
	}
	if kind == KindRecord {
		e.N = 0
	}
	x.r.fold.add(&e)
	x.entries = append(x.entries, e)
	if e.N > 0 {
		x.events = append(x.events, e)
	}
	return &x.entries[len(x.entries)-1]
}

// claim appends an owner entry unless there is one. An agent may start only after it: until then the
// last owner, if it still runs, can add records.
func (x *tx) claim() error {
	if x.r.lease == nil {
		return ErrLocked
	}
	if !x.r.owner {
		x.append(KindOwner, mustJSON(Owner{Hub: x.r.hub.cfg.Name}), nil)
	}
	return nil
}

// live sends viewers a message that is not recorded.
func (x *tx) live(data json.RawMessage) {
	if b, ok := x.r.hub.cfg.Backend.(Broadcaster); ok && x.r.lease != nil {
		b.Broadcast(x.r.id, data)
	}
	x.r.noteProgress(data)
	if len(x.r.viewers) > 0 {
		x.events = append(x.events, Entry{Kind: KindLive, Data: data})
	}
}

// do makes the room call f, and waits until the entries that f appended are durable.
func (r *room) do(ctx context.Context, f func(*tx) error) error {
	o := &op{f, make(chan error, 1)}
	select {
	case r.ops <- o:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	}
	select {
	case err := <-o.done:
		return err
	case <-r.done:
	}
	select {
	case err := <-o.done:
		return err
	default:
		return context.Cause(r.ctx)
	}
}

// post makes the room call f, and does not wait for it. The room itself must not post.
func (r *room) post(ctx context.Context, f func(*tx) error) {
	select {
	case r.ops <- &op{f: f}:
	case <-ctx.Done():
	case <-r.ctx.Done():
	}
}

// batchLimit is the maximum number of ops that are written together.
const batchLimit = 256

const (
	// leaseRetry is how often a room tries to get a lease that another process has, if the backend
	// cannot report its end, and otherwise how long it waits after such a report.
	leaseRetry = time.Second
	// followRetry is how long a room waits before it reopens a session whose journal it could not
	// follow.
	followRetry = 100 * time.Millisecond
)

// run is the room's goroutine.
func (r *room) run(create *Created) {
	defer close(r.done)
	if r.err = r.open(r.ctx, create); r.err != nil {
		r.hub.forgetRoom(r) // before anybody knows the error: who retries enters another room
	}
	close(r.opened)
	if r.err != nil {
		r.stop(r.err) // do not let callers with an op wait
		return
	}
	r.reportState()
	defer r.close()
	tick := time.NewTimer(0)
	defer tick.Stop()
	files, _ := r.hub.cfg.Backend.(*Files)
	var ended <-chan struct{} // the lease of the other process may have ended
	leave := func() {}
	defer func() { leave() }()
	for r.broken == nil {
		switch {
		case r.lease != nil:
			tick.Reset(r.manage())
		case ended == nil: // otherwise the timer was set when the watch began
			if tick.Reset(leaseRetry); files != nil {
				ended, leave = files.leaseEnds(r.id)
			}
		}
		if r.hub.leaveRoom(r) {
			return
		}
		var lost <-chan struct{}
		if r.lease != nil {
			lost = r.lease.Lost()
		}
		select {
		case o := <-r.ops:
			batch := []*op{o}
		more:
			for len(batch) < batchLimit {
				select {
				case o := <-r.ops:
					batch = append(batch, o)
				default:
					break more
				}
			}
			r.commit(batch)
		case <-tick.C:
			if r.lease == nil {
				r.tryLease()
			}
		case <-ended:
			leave()
			ended, leave = nil, func() {}
		case <-r.nudge:
		case <-lost:
			r.broken = ErrLocked
		case <-r.ctx.Done():
			return
		}
	}
	r.hub.closeEntrance(r)
	r.stop(r.broken)
}

// commit runs ops and writes the entries that they append.
func (r *room) commit(batch []*op) {
	x := &tx{r: r}
	before := r.fold.n
	errs := make([]error, len(batch))
	for i, o := range batch {
		errs[i] = o.f(x)
	}
	if len(x.entries) > 0 {
		r.broken = r.write(r.ctx, before, x)
	}
	for i, o := range batch {
		if r.broken != nil {
			errs[i] = r.broken
		}
		if o.done != nil {
			o.done <- errs[i]
		}
	}
	if r.broken == nil {
		r.deliver(x.events)
		if item := r.fold.item; item >= r.trimmed+inboxBatch && r.lease != nil {
			r.trimmed = item
			r.spawn(func(ctx context.Context) { r.trimInbox(ctx, item) })
		}
	}
}

// write appends the entries of a transaction to the journal. With the first entry of this room, it reads the records
// again: until then, the last owner could add some.
func (r *room) write(ctx context.Context, before uint64, x *tx) error {
	err := r.hub.cfg.Backend.Append(ctx, r.id, before, x.entries)
	switch {
	case x.claims && errors.Is(err, ErrConflict):
		return errReopen // the last owner was still running
	case x.claims && err == nil && r.hub.cfg.Sessions == nil:
		return r.rereadRecords(ctx)
	}
	return err
}

// inboxBatch is how many items are consumed before the inbox is trimmed.
const inboxBatch = 100

// trimInbox removes items that have entries in the journal. If such an item is sent again, its entry
// identifies it.
func (r *room) trimInbox(ctx context.Context, last uint64) {
	if err := r.hub.cfg.Backend.TrimInbox(ctx, r.id, last+1); err != nil && ctx.Err() == nil {
		r.hub.warn("the inbox of a session cannot be trimmed", err)
	}
}

// noteProgress keeps the last output of a call that runs, for viewers that attach later: the call may print nothing
// more for a long time.
func (r *room) noteProgress(data json.RawMessage) {
	if wire.PeekType(data) != "tool_progress" {
		return
	}
	var p struct {
		ToolUseID string `json:"tool_use_id"`
		Output    string `json:"output"`
	}
	if json.Unmarshal(data, &p) == nil && p.Output != "" {
		r.progress[p.ToolUseID] = data
	}
}

// forgetProgress drops the output of calls that have ended.
func (r *room) forgetProgress(e *Entry) {
	if len(r.progress) == 0 || e.Kind != KindFrame && e.Kind != KindEnded {
		return
	}
	switch wire.PeekType(e.Data) {
	case "user":
		maps.DeleteFunc(r.progress, func(id string, _ json.RawMessage) bool { return bytes.Contains(e.Data, []byte(id)) })
	case "assistant", "system":
	default:
		clear(r.progress)
	}
}

// deliver sends events to all viewers, and then the state if it changed.
func (r *room) deliver(events []Entry) {
	if r.fold.dirty {
		r.fold.dirty = false
		r.reportState()
		if len(r.viewers) > 0 {
			events = append(events, r.stateEvent())
		}
	}
	for i := range events {
		r.forgetProgress(&events[i])
	}
	for v := range r.viewers {
		for _, e := range events {
			if e.N == 0 || e.N > v.from {
				v.put(e)
			}
		}
	}
}

func (r *room) stateEvent() Entry { return Entry{Kind: KindState, Data: mustJSON(r.state())} }

func (r *room) state() *State {
	s := r.fold.state()
	if r.lease != nil {
		s.Owner = r.hub.cfg.Name
	} else {
		s.Owner = r.fold.owner
	}
	if s.Host != nil {
		s.Host.Away = r.host == nil
	}
	if r.agent != nil {
		if len(r.agent.waits) > 0 {
			s.Waiting = append(s.Waiting, r.agent.waits...)
			s.Phase = RequiresAction
		}
		if away := r.agent.away.Load(); away != nil && s.Phase != Idle {
			s.Waiting = append(s.Waiting, *away)
		}
	}
	return s
}

// open reads the journal, and takes over the session if no other process has it.
func (r *room) open(ctx context.Context, create *Created) (err error) {
	var lease Lease
	if !r.hub.cfg.Gateway || create != nil {
		if lease, err = r.hub.cfg.Backend.Lease(ctx, r.id); err != nil && !errors.Is(err, ErrLocked) {
			return err
		}
	}
	frames, err := r.read(ctx)
	switch {
	case err != nil:
	case create != nil && (r.fold.n > 0 || lease == nil):
		err = ErrExists
	case create == nil && r.fold.n == 0:
		create, err = r.outside(ctx)
	}
	if lease == nil {
		if err == nil {
			r.follow()
		}
		return err
	}
	if err == nil {
		err = r.own(ctx, create, frames)
	}
	if err != nil {
		return errors.Join(err, lease.Close())
	}
	if r.hub.cfg.Gateway {
		r.follow()
		return lease.Close()
	}
	r.lease = lease
	r.watchInbox()
	return nil
}

// read processes the whole journal. It returns the uuids of the records that have frames.
func (r *room) read(ctx context.Context) (frames map[string]bool, err error) {
	frames = map[string]bool{}
	for e, err := range r.hub.cfg.Backend.Read(ctx, r.id, 0, false) {
		if err != nil {
			return nil, err
		}
		r.apply(&e)
		if uuid := e.shows(); uuid != "" {
			frames[uuid] = true
		}
	}
	return frames, nil
}

// shows returns the uuid of the record or the result that an entry shows, or "" for any other entry.
func (e *Entry) shows() string {
	if e.Record == "" && e.Kind == KindFrame && wire.PeekType(e.Data) == "result" {
		return session.RecordUUID(e.Data)
	}
	return e.Record
}

// apply processes an entry that is in the journal already.
func (r *room) apply(e *Entry) {
	r.fold.add(e)
	if e.Kind == KindRecord {
		r.records.add(e)
	}
}

// own appends what a new owner must: the first entry of a new session, and frames of records that have
// none. If there is nothing to append, the room becomes the owner with its first entry.
func (r *room) own(ctx context.Context, create *Created, frames map[string]bool) error {
	x := &tx{r: r}
	before := r.fold.n
	if create != nil {
		kind := KindCreated
		if create.From != nil {
			kind = KindForked
		}
		x.append(kind, mustJSON(create), nil)
	}
	missing, err := r.recover(ctx, r.fold.agentID, r.fold.covered, frames)
	if err != nil {
		return err
	}
	x.appendFrames(missing)
	if len(x.entries) == 0 {
		return nil
	}
	err = r.write(ctx, before, x)
	if conflict := errors.Is(err, ErrConflict) || err == errReopen; conflict && create != nil && !create.Outside {
		return ErrExists
	} else if conflict {
		return errReopen
	}
	return err
}

// errReopen ends a room that must be reopened, because the owner of its session has left, or was not
// quite gone. Its users enter the next one.
var errReopen = errors.New("hub: the session must be opened again")

// tryLease ends the room if the owner of its session has left.
func (r *room) tryLease() {
	if r.hub.cfg.Gateway {
		return
	}
	if lease, err := r.hub.cfg.Backend.Lease(r.ctx, r.id); err == nil {
		lease.Close()
		r.broken = errReopen
	}
}

// follow makes the room follow the journal that another process writes.
func (r *room) follow() {
	from := r.fold.n
	r.spawn(func(ctx context.Context) {
		for e, err := range r.hub.cfg.Backend.Read(ctx, r.id, from, true) {
			if err != nil {
				select { // viewers must not wait for entries that nobody reads
				case <-time.After(followRetry):
					r.post(ctx, func(*tx) error { r.broken = errReopen; return nil })
				case <-ctx.Done(): // the room ends, or owns the session now
				}
				return
			}
			r.post(ctx, func(x *tx) error {
				if e.Kind == KindLive {
					x.live(e.Data)
					return nil
				}
				r.apply(&e)
				if e.N > 0 {
					x.events = append(x.events, e)
				}
				return nil
			})
		}
	})
}

// watchInbox makes the room consume its inbox. The room stays at least until it has consumed the items
// that are there.
func (r *room) watchInbox() {
	from := r.fold.item
	r.trimmed = from
	r.spawn(func(ctx context.Context) {
		for _, follow := range []bool{false, true} {
			for item, err := range r.hub.cfg.Backend.Inbox(ctx, r.id, from, follow) {
				if err != nil {
					if ctx.Err() == nil {
						r.post(ctx, func(*tx) error { r.broken = err; return nil })
					}
					return
				}
				from = item.Number
				r.post(ctx, func(x *tx) error { r.consume(x, item); return nil })
			}
			r.post(ctx, func(*tx) error { r.seen = true; return nil })
		}
	})
}

// close ends everything that the room has started.
func (r *room) close() {
	if r.ctx.Err() == nil {
		r.stop(ErrClosed)
	}
	cause := context.Cause(r.ctx)
	if r.agent != nil {
		r.agent.kill(cause)
		<-r.agent.done
	}
	r.work.Wait()
	for v := range r.viewers {
		v.end(cause)
	}
	again := false
	if r.lease != nil {
		if r.broken == nil && !r.draining {
			again = r.rest()
		}
		r.lease.Close()
	}
	r.hub.forgetRoom(r)
	r.drain(cause)
	if again {
		r.hub.poke(r.id)
	}
}

// rest marks the session as having no work to do. It reports whether there is work after all: an item
// may have arrived in the meantime.
func (r *room) rest() (again bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), 10*time.Second)
	defer cancel()
	b := r.hub.cfg.Backend
	if rester, ok := b.(Rester); ok {
		n := AnyNumber
		if !r.owner { // it has not written anything, so there may be more than it has read
			n = r.fold.n
		}
		if rests, err := rester.RestBehind(ctx, r.id, n, r.fold.item); !rests {
			return err == nil // otherwise it is checked again
		}
	} else {
		if err := b.Rest(ctx, r.id); err != nil {
			return false // then it is only checked again
		}
		for range b.Inbox(ctx, r.id, r.fold.item, false) {
			return b.Wake(ctx, r.id) == nil
		}
	}
	if r.fold.item > r.trimmed {
		r.trimInbox(ctx, r.fold.item)
	}
	return false
}

// drain fails ops that come too late.
func (r *room) drain(cause error) {
	for {
		select {
		case o := <-r.ops:
			if o.done != nil {
				o.done <- cause
			}
		default:
			return
		}
	}
}

// rereadRecords reads the records that the last owner added before the session was claimed.
func (r *room) rereadRecords(ctx context.Context) error {
	r.records = nil
	for e, err := range r.hub.cfg.Backend.Read(ctx, r.id, 0, false) {
		if err != nil {
			return err
		}
		if e.Kind == KindRecord {
			r.records.add(&e)
		}
	}
	return nil
}

// appendFrames adds frames of records that have none. A result is added only if a turn waits for it:
// results of turns that ran outside of the hub end nothing.
func (x *tx) appendFrames(missing []Entry) {
	for _, m := range missing {
		if wire.PeekType(m.Data) == "result" && !x.r.fold.awaits(m.Data) || x.r.fold.consumed(m.Record) {
			continue
		}
		x.append(KindFrame, m.Data, func(e *Entry) { e.Record, e.Recovered = m.Record, true })
	}
}

// recover returns frames for the records of the agent's session that have none.
func (r *room) recover(ctx context.Context, agentID, covered string, frames map[string]bool) ([]Entry, error) {
	records, err := r.agentRecords(ctx, agentID)
	if err != nil {
		return nil, err
	}
	return missingFrames(records, covered, frames), nil
}

// missingFrames returns frames for the records that have none, in the order of the log. The records up
// to the one with the uuid covered had frames, which were trimmed.
func missingFrames(records []json.RawMessage, covered string, frames map[string]bool) (missing []Entry) {
	if i := slices.IndexFunc(records, func(rec json.RawMessage) bool { return covered != "" && session.RecordUUID(rec) == covered }); i >= 0 {
		records = records[i+1:]
	}
	made := map[string]bool{}
	for _, record := range records {
		if result, ok := session.TurnResult(record); ok {
			if uuid := session.RecordUUID(result); uuid != "" && !frames[uuid] {
				missing = append(missing, Entry{Data: result})
			}
			continue
		}
		uuid := session.RecordUUID(record)
		if uuid == "" || made[uuid] {
			continue
		}
		if frames[uuid] { // the results before it are too late: a later turn has begun
			missing = slices.DeleteFunc(missing, func(e Entry) bool { return e.Record == "" })
		} else if data := frameOf(record); data != nil {
			missing = append(missing, Entry{Record: uuid, Data: data})
			made[uuid] = true
		}
	}
	return missing
}

// catchUp appends frames of records that have none, before an agent starts, because the last owner may have added records
// after the session was opened. It returns the records. This room has written its owner entry, so nobody else can add
// anything, and no agent runs here. So frames and records come from one reading, which must contain what this room has
// written. load, unless it is nil, returns records that are kept elsewhere.
func (r *room) catchUp(ctx context.Context, agentID, covered string, load func(context.Context, string) ([]json.RawMessage, error)) ([]json.RawMessage, error) {
	var last, written uint64
	if err := r.do(ctx, func(*tx) error { written = r.fold.n; return nil }); err != nil {
		return nil, err
	}
	frames := map[string]bool{}
	var records []json.RawMessage
	for e, err := range r.hub.cfg.Backend.Read(ctx, r.id, 0, false) {
		if err != nil {
			return nil, err
		}
		last = max(last, e.N)
		if uuid := e.shows(); uuid != "" {
			frames[uuid] = true
		}
		if e.isRecordOf(agentID) {
			records = append(records, e.Data)
		}
	}
	if last < written {
		return nil, shortRead(last, written)
	}
	if load == nil && r.hub.cfg.Sessions != nil {
		load = r.agentRecords
	}
	if load != nil {
		var err error
		if records, err = load(ctx, agentID); err != nil {
			return nil, err
		}
	}
	if missing := missingFrames(records, covered, frames); len(missing) > 0 {
		if err := r.do(ctx, func(x *tx) error { x.appendFrames(missing); return nil }); err != nil {
			return nil, err
		}
	}
	return records, nil
}

// shortRead is the error for a journal that was not read to its end.
func shortRead(last, want uint64) error {
	return fmt.Errorf("%w: the journal could be read up to entry %d only, and has %d", ErrUnavailable, last, want)
}

// isRecordOf reports whether an entry is a record of the main log of the agent's session.
func (e *Entry) isRecordOf(id string) bool {
	if e.Kind != KindRecord {
		return false
	}
	key := session.ParseKey(e.Log)
	return key.Session == id && key.Sub == ""
}

// agentRecords returns the records of a session of the agent, nil if it has none yet.
func (r *room) agentRecords(ctx context.Context, id string) ([]json.RawMessage, error) {
	var records []json.RawMessage
	var err error
	if r.hub.cfg.Sessions != nil {
		records, err = session.Records(ctx, r.hub.cfg.Sessions, id, "", nil)
	} else {
		for e, err := range r.hub.cfg.Backend.Read(ctx, r.id, 0, false) {
			if err != nil {
				return nil, err
			}
			if e.isRecordOf(id) {
				records = append(records, e.Data)
			}
		}
	}
	if errors.Is(err, session.ErrNotFound) {
		return nil, nil
	}
	return records, err
}

// outside describes a session that started outside a hub.
func (r *room) outside(ctx context.Context) (*Created, error) {
	if r.hub.cfg.Sessions == nil {
		return nil, ErrNotFound
	}
	info, err := session.Stat(ctx, r.hub.cfg.Sessions, r.id, nil)
	if errors.Is(err, session.ErrNotFound) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return &Created{By: Actor{Name: "outside"}, Cwd: info.Cwd, Title: info.CustomTitle, Session: r.id, Outside: true}, nil
}

// frameOf returns the message that shows a record, as the agent would have sent it, or nil if there is
// none.
func frameOf(record json.RawMessage) json.RawMessage {
	var rec struct {
		Type             string          `json:"type"`
		Subtype          string          `json:"subtype"`
		UUID             string          `json:"uuid"`
		SessionID        string          `json:"sessionId"`
		Timestamp        string          `json:"timestamp"`
		Message          json.RawMessage `json:"message"`
		ToolUseResult    json.RawMessage `json:"toolUseResult"`
		PromptID         string          `json:"promptId"`
		Origin           json.RawMessage `json:"origin"`
		CompactMetadata  json.RawMessage `json:"compactMetadata"`
		IsMeta           bool            `json:"isMeta"`
		IsSidechain      bool            `json:"isSidechain"`
		IsCompactSummary bool            `json:"isCompactSummary"`
	}
	if json.Unmarshal(record, &rec) != nil || rec.IsMeta || rec.IsSidechain || rec.IsCompactSummary {
		return nil
	}
	type frame struct {
		Type            string          `json:"type"`
		Subtype         string          `json:"subtype,omitempty"`
		Message         json.RawMessage `json:"message,omitempty"`
		Metadata        json.RawMessage `json:"compact_metadata,omitempty"`
		ParentToolUseID *string         `json:"parent_tool_use_id"`
		SessionID       string          `json:"session_id"`
		UUID            string          `json:"uuid"`
		Timestamp       string          `json:"timestamp,omitempty"`
		ToolUseResult   json.RawMessage `json:"tool_use_result,omitempty"`
		IsReplay        bool            `json:"isReplay,omitempty"`
		Origin          json.RawMessage `json:"origin,omitempty"`
	}
	f := frame{Type: rec.Type, SessionID: rec.SessionID, UUID: rec.UUID, Timestamp: rec.Timestamp}
	switch {
	case (rec.Type == "user" || rec.Type == "assistant") && rec.Message != nil:
		f.Message, f.ToolUseResult, f.Origin = rec.Message, rec.ToolUseResult, rec.Origin
		f.IsReplay = rec.Type == "user" && rec.PromptID != "" && rec.ToolUseResult == nil
	case rec.Type == "system" && rec.Subtype == "compact_boundary":
		f.Subtype, f.Metadata = rec.Subtype, rec.CompactMetadata
		if f.Metadata == nil {
			f.Metadata = json.RawMessage(`{"trigger":"auto","pre_tokens":0}`)
		}
	default:
		return nil
	}
	return mustJSON(f)
}

// spawn starts a goroutine that ends with the room. Only the room's goroutine calls it.
func (r *room) spawn(f func(context.Context)) { r.work.Go(func() { f(r.ctx) }) }
