package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

var (
	// ErrClosed means that the hub was closed.
	ErrClosed = errors.New("hub: it is closed")

	// ErrLimit means that a backend accepts nothing more from an actor for now.
	ErrLimit = errors.New("hub: a limit is reached")

	// ErrUnavailable means that a backend cannot be reached or stores nothing for now.
	ErrUnavailable = errors.New("hub: the backend is not available")

	// ErrExists means that the id of a new session is in use.
	ErrExists = errors.New("hub: the session exists already")
)

// A Config configures a hub.
type Config struct {
	// Backend stores the journals. It is required.
	Backend Backend
	// Agent returns the SDK options for the agent of a session: which agent it is and how to reach it. It is
	// required. The hub overrides the options that concern the session itself, such as SessionID and CanUseTool.
	Agent func(ctx context.Context, start Start) (*parley.Options, error)
	// Sessions stores the agents' own records. Nil means the journal: see [Start.Store].
	Sessions session.Store
	// Name is the name of the hub in the entries that it writes. Empty means "hub".
	Name string
	// IdleAfter is how long an idle agent keeps running. Zero means 60 seconds. The next prompt starts it again.
	IdleAfter time.Duration
	// AskExpiry is how long a question waits for an answer. Zero means forever.
	AskExpiry time.Duration
	// HostGrace is how long hooks and tools wait for a host that is away. Zero means 10
	// minutes.
	HostGrace time.Duration
	// ViewerBytes is how much may be queued for a slow viewer. Zero means 1 MiB.
	ViewerBytes int
	// Describe returns the files that a call affects, with links resolved, and the change that it would make, for
	// people to see before they allow it. Nil means that neither is known.
	Describe func(*wire.CanUseTool) (paths []string, diff string)
	// OwnOnly is for a hub that belongs to one front end: it runs only the sessions that the front end uses. It
	// leaves the sessions of processes that have ended, and all schedules, to the user's shared hub.
	OwnOnly bool
	// OnSchedule is called when a schedule was added, so that a hub that fires it can be started. It may be nil.
	OnSchedule func(ctx context.Context) error
	// Gateway is for a hub that runs no agents. It creates and shows sessions, and accepts prompts, answers and
	// interrupts for them, which another process that shares the backend carries out.
	Gateway bool
	// Environment describes the variables that agents inherit from the process of the hub, as one "NAME=digest"
	// each: see socket.Join.
	Environment []string
	// Sees reports whether an actor may see and use the sessions of another actor. For an actor that may not, they
	// do not exist. Nil means that every actor may.
	Sees func(by, creator Actor) bool
	// Logger logs failures that end nothing. It may be nil.
	Logger *slog.Logger
}

// A Hub runs sessions. It is safe for concurrent use.
//
// A process that ends without closing its hub loses nothing, however it ends: interrupted turns continue when a
// hub opens their session again. [Hub.Close] ends agents, and interrupts their turns.
type Hub struct {
	cfg  Config
	ctx  context.Context
	stop context.CancelCauseFunc
	work sync.WaitGroup

	schedules *scheduler

	mu     sync.Mutex
	rooms  map[string]*room
	closed bool
	// For lists: the states of sessions that are not open, and the watchers of all sessions.
	summaries map[string]*summary
	watchers  map[*watcher]bool
	guests    map[string]*guest // hosts that are attached through other processes
}

// New starts a hub. Sessions that have work to do continue.
func New(cfg Config) (*Hub, error) {
	if cfg.Backend == nil || cfg.Agent == nil {
		return nil, errors.New("hub: Config.Backend and Config.Agent are required")
	}
	if cfg.Name == "" {
		cfg.Name = "hub"
	}
	if cfg.IdleAfter <= 0 {
		cfg.IdleAfter = time.Minute
	}
	if cfg.HostGrace <= 0 {
		cfg.HostGrace = hostGrace
	}
	if cfg.ViewerBytes <= 0 {
		cfg.ViewerBytes = 1 << 20
	}
	h := &Hub{cfg: cfg, rooms: map[string]*room{}, summaries: map[string]*summary{}, watchers: map[*watcher]bool{}, guests: map[string]*guest{}}
	h.ctx, h.stop = context.WithCancelCause(context.Background())
	h.schedules = &scheduler{hub: h}
	if c, ok := cfg.Backend.(Caller); ok {
		if err := c.Answer(h.ctx, h.answerCall); err != nil {
			h.stop(err)
			return nil, err
		}
	}
	if !cfg.OwnOnly {
		if !cfg.Gateway {
			h.work.Go(h.sweep)
		}
		h.work.Go(h.schedules.run)
	}
	return h, nil
}

// sweepTime is how often the hub looks for sessions that have work to do but no process, because their process has
// died.
const sweepTime = 10 * time.Second

// sweep opens sessions that have work to do.
func (h *Hub) sweep() {
	for h.ctx.Err() == nil {
		for id, err := range h.cfg.Backend.Work(h.ctx, false) {
			if err != nil {
				h.warn("sessions that have work cannot be found", err)
				break
			}
			h.poke(id)
		}
		select {
		case <-time.After(sweepTime):
		case <-h.ctx.Done():
		}
	}
}

func (h *Hub) warn(text string, err error) {
	if h.cfg.Logger != nil && h.ctx.Err() == nil {
		h.cfg.Logger.Warn(text, "error", err)
	}
}

// Sees reports whether an actor may see the sessions of another one: see [Config.Sees].
func (h *Hub) Sees(by, other Actor) bool { return h.cfg.Sees == nil || h.cfg.Sees(by, other) }

// check returns an error unless an actor may access a session.
func (h *Hub) check(ctx context.Context, by Actor, id string, need Rights, what string) error {
	if err := by.need(need, what); err != nil || h.cfg.Sees == nil {
		return err
	}
	err := CheckID(id)
	if err != nil || id == SchedulesID {
		return cmp.Or(err, ErrNotFound)
	}
	for e, err := range h.cfg.Backend.Read(ctx, id, 0, false) {
		if err != nil {
			return err
		}
		f := newFold()
		if f.add(&e); f.created == nil {
			continue
		}
		if !h.cfg.Sees(by, f.created.By) {
			break
		}
		return nil
	}
	return ErrNotFound
}

// start starts a goroutine that ends with the hub. It reports false if the hub is closed.
func (h *Hub) start(f func()) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed {
		h.work.Go(f)
	}
	return !h.closed
}

// poke opens a session, unless it is open, so that it does its work.
func (h *Hub) poke(id string) {
	err := h.in(h.ctx, id, func(*room) error { return nil })
	if err != nil && !errors.Is(err, ErrClosed) {
		h.warn("a session that has work cannot be opened", err)
		if errors.Is(err, ErrNotFound) {
			h.cfg.Backend.Rest(h.ctx, id)
		}
	}
}

// TakeOver makes the hub run the session, if its backend grants the lease. A hub that follows the session requests
// the lease only once a second, so a backend that has just granted it calls TakeOver.
func (s *Session) TakeOver(ctx context.Context) error {
	asked := false
	return s.hub.in(ctx, s.id, func(r *room) error {
		reopen := !asked
		asked = true
		return r.do(ctx, func(*tx) error {
			if reopen && r.lease == nil {
				r.broken = errReopen
			}
			return nil
		})
	})
}

// enter returns the room of a session. The caller must call exit.
func (h *Hub) enter(ctx context.Context, id string, create *Created) (*room, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	for {
		h.mu.Lock()
		if h.closed {
			h.mu.Unlock()
			return nil, ErrClosed
		}
		r := h.rooms[id]
		if r == nil {
			r = &room{hub: h, id: id, ops: make(chan *op), done: make(chan struct{}), opened: make(chan struct{}), fold: newFold(),
				logLeases: map[string]*journalLease{}, viewers: map[*viewer]bool{}, progress: map[string]json.RawMessage{}, waiters: map[string]chan *Answer{}, expiring: map[string]time.Time{}, hostAsks: map[string]*hostAsk{}, nudge: make(chan struct{}, 1)}
			r.ctx, r.stop = context.WithCancelCause(h.ctx)
			h.rooms[id] = r
			h.work.Go(func() { r.run(create) })
		} else if create != nil && !r.leaving {
			h.mu.Unlock()
			select {
			case <-r.opened:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			if r.err == nil {
				return nil, ErrExists
			}
			continue // a call that looked for the session did not find it
		}
		if r.leaving {
			h.mu.Unlock()
			select {
			case <-r.done:
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		r.refs++
		h.mu.Unlock()
		select {
		case <-r.opened:
		case <-ctx.Done():
			h.exit(r)
			return nil, context.Cause(ctx)
		}
		if r.err != nil {
			h.exit(r)
			if create == nil && errors.Is(r.err, ErrExists) { // a call tried to create it again
				<-r.done
				continue
			}
			return nil, r.err
		}
		return r, nil
	}
}

// in calls f with the room of a session, and again if the room has to be reopened: at once the first time, and then after
// a while, because the backend may still answer as before.
func (h *Hub) in(ctx context.Context, id string, f func(*room) error) error {
	for wait := time.Duration(0); ; wait = min(2*wait+reopenPause, followRetry) {
		if wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		r, err := h.enter(ctx, id, nil)
		if err == nil {
			err = f(r)
			h.exit(r)
		}
		if !errors.Is(err, errReopen) {
			return err
		}
	}
}

const reopenPause = 5 * time.Millisecond

// exit leaves a room that enter returned.
func (h *Hub) exit(r *room) {
	h.mu.Lock()
	r.refs--
	last := r.refs == 0
	h.mu.Unlock()
	if last {
		select {
		case r.nudge <- struct{}{}: // it may no longer be needed
		default:
		}
	}
}

// leaveRoom reports whether a room has nothing to do and nobody in it. Such a room accepts nobody any more.
func (h *Hub) leaveRoom(r *room) bool {
	f := r.fold
	busy := r.agent != nil || r.lease != nil && (!r.seen || f.midTurn && !f.stopped || len(f.queue) > 0 && f.problem == "")
	for _, id := range f.openAsks {
		busy = busy || r.lease != nil && f.asks[id].Expires != nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.agent == nil && r.draining || !busy && r.refs == 0 {
		r.leaving = true
	}
	return r.leaving
}

// closeEntrance makes those who want to enter a room wait for its end, and for the next one.
func (h *Hub) closeEntrance(r *room) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.leaving = true
}

// forgetRoom removes a room that has ended.
func (h *Hub) forgetRoom(r *room) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.leaving = true
	if h.rooms[r.id] == r {
		delete(h.rooms, r.id)
	}
}

// Environment returns [Config.Environment].
func (h *Hub) Environment() []string { return h.cfg.Environment }

// Busy reports whether a session is in use: it is running, or somebody is attached to it.
func (h *Hub) Busy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.rooms) > 0
}

// Close ends all agents and waits for them: it interrupts turns that are running. Viewers receive [ErrClosed].
func (h *Hub) Close() error {
	h.mu.Lock()
	h.closed = true
	var rooms []*room
	for _, r := range h.rooms {
		rooms = append(rooms, r)
	}
	h.mu.Unlock()
	for _, r := range rooms {
		select {
		case <-r.opened:
			r.post(h.ctx, func(*tx) error { r.draining = true; return nil })
		case <-r.done:
		}
	}
	for _, r := range rooms {
		<-r.done
	}
	h.stop(ErrClosed)
	h.work.Wait()
	return nil
}

// A Spec describes a session to create.
type Spec struct {
	ID    string // a UUID; empty means a new one
	Cwd   string // the working directory of its agent
	Title string
	// Worktree is the branch of the session's own worktree, if Cwd is in one.
	Worktree string
	// AddWorktree is the name of a git worktree to create for the session, in the repository that contains Cwd.
	// The session works there, on its own branch.
	AddWorktree string
	// Agent is interpreted by [Config.Agent] only. In a copy it replaces the value of the original, unless it is
	// nil.
	Agent json.RawMessage
	// From makes the session a copy of another one, up to the entry with the number N, or
	// all of it if N is 0. The copy gets a new id and the Cwd of the original.
	From *Reference
}

// Create creates a session. Its agent starts with the first prompt.
func (h *Hub) Create(ctx context.Context, by Actor, spec Spec) (*Session, error) {
	if err := by.need(MayAdmin, "create sessions"); err != nil {
		return nil, err
	}
	if spec.From != nil {
		for {
			s, err := h.fork(ctx, by, spec)
			if !errors.Is(err, errReopen) {
				return s, err
			}
		}
	}
	if spec.ID == "" {
		spec.ID = session.NewID()
	}
	undo := func() {}
	if spec.AddWorktree != "" {
		var err error
		if undo, err = addWorktree(ctx, &spec); err != nil {
			return nil, err
		}
	}
	r, err := h.enter(ctx, spec.ID, &Created{By: by, Cwd: spec.Cwd, Title: spec.Title, Session: spec.ID, Spec: spec.Agent, Worktree: spec.Worktree})
	if err != nil {
		undo()
		return nil, err
	}
	h.exit(r)
	return &Session{h, spec.ID}, nil
}

// Session returns the session with an id. It need not exist: its methods then return [ErrNotFound]. A session that
// began outside of a hub becomes one of the hub's when it is first used.
func (h *Hub) Session(id string) *Session { return &Session{h, id} }

// A Session is a handle to a session of a hub. It is safe for concurrent use, costs nothing,
// and need not be closed.
type Session struct {
	hub *Hub
	id  string
}

// ID returns the id of the session.
func (s *Session) ID() string { return s.id }

// State returns the state of the session.
func (s *Session) State(ctx context.Context, by Actor) (*State, error) {
	if err := s.hub.check(ctx, by, s.id, MayView, "see the session"); err != nil {
		return nil, err
	}
	var state *State
	err := s.hub.in(ctx, s.id, func(r *room) error {
		return r.do(ctx, func(*tx) error { state = r.state(); return nil })
	})
	return state, err
}

// Spec returns the value from which [Config.Agent] makes the options of the session's agent.
func (s *Session) Spec(ctx context.Context, by Actor) (spec json.RawMessage, err error) {
	if err := by.need(MayView, "see the session"); err != nil {
		return nil, err
	}
	err = s.hub.in(ctx, s.id, func(r *room) error {
		return r.do(ctx, func(*tx) error { spec = r.fold.created.Spec; return nil })
	})
	return spec, err
}

// Attach yields every entry with a number above after, exactly once and in order, then the state of the session,
// then live events, until ctx ends or the loop ends. If entries after that number were trimmed, a [KindTrimmed] event
// without a number comes first.
//
// A slow viewer loses pieces of answers first, and then a [*LaggedError] ends the iteration. The agent never waits
// for a viewer.
func (s *Session) Attach(ctx context.Context, by Actor, after uint64) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if err := s.hub.check(ctx, by, s.id, MayView, "see the session"); err != nil {
			yield(Entry{}, err)
			return
		}
		for {
			goOn, err := s.attach(ctx, &after, yield)
			if err != nil {
				yield(Entry{}, err)
			}
			if !goOn || err != nil {
				return
			}
		}
	}
}

// readTries is how often a viewer reads a journal that ends before an entry that the room has.
const readTries = 20

// attach yields events until the room ends or the viewer is too slow. It reports whether to continue in another
// room.
func (s *Session) attach(ctx context.Context, after *uint64, yield func(Entry, error) bool) (goOn bool, err error) {
	r, err := s.hub.enter(ctx, s.id, nil)
	if errors.Is(err, errReopen) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer s.hub.exit(r)
	v := newViewer(s.hub.cfg.ViewerBytes)
	var upTo, first uint64
	err = r.do(ctx, func(*tx) error {
		r.viewers[v] = true
		v.from, upTo, first = max(r.fold.n, *after), r.fold.n, r.fold.first
		v.put(r.stateEvent())
		for _, data := range r.progress {
			v.put(Entry{Kind: KindLive, Data: data})
		}
		return nil
	})
	if errors.Is(err, errReopen) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	defer r.post(s.hub.ctx, func(*tx) error { delete(r.viewers, v); return nil })
	if *after+1 < first && !yield(Entry{Kind: KindTrimmed, Data: mustJSON(Trimmed{Before: first})}, nil) {
		return false, nil
	}
	for try := 0; *after < upTo; try++ {
		if try == readTries {
			return false, shortRead(*after, upTo)
		}
		if try > 0 {
			select {
			case <-time.After(followRetry):
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
		}
		for e, err := range s.hub.cfg.Backend.Read(ctx, s.id, *after, false) {
			if err != nil {
				return false, err
			}
			if e.N == 0 {
				continue
			}
			if *after = min(e.N, upTo); e.N > upTo {
				break
			}
			if !yield(e, nil) {
				return false, nil
			}
		}
	}
	live := false
	for {
		events, lagged, over := v.drain()
		switch {
		case len(events) > 0:
		case lagged && !live: // it was slow while it read the journal, which it reads again
			return true, nil
		case lagged:
			return false, &LaggedError{After: *after}
		case errors.Is(over, errReopen), errors.Is(over, ErrConflict), errors.Is(over, ErrLocked):
			return true, nil // another process owns the session now
		case over != nil:
			return false, over
		default:
			select {
			case <-v.bell:
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
			continue
		}
		live = true
		for _, e := range events {
			if e.N > 0 {
				*after = e.N
			}
			if !yield(e, nil) {
				return false, nil
			}
		}
	}
}

// Prompt sends a prompt. It returns the prompt's uuid when the prompt is durable. A prompt that is sent again with
// the same uuid is accepted once. Prompts get their turns in the order in which they were accepted.
func (s *Session) Prompt(ctx context.Context, by Actor, m *wire.User) (uuid string, err error) {
	if err := s.hub.check(ctx, by, s.id, MayDrive, "send prompts"); err != nil {
		return "", err
	}
	msg := *m
	if msg.UUID == "" {
		msg.UUID = session.NewID()
	}
	if msg.Message.Role == "" {
		msg.Message.Role = "user"
	}
	line, err := wire.Encode(&msg)
	if err != nil {
		return "", err
	}
	p := Prompt{UUID: msg.UUID, By: by, Message: line}
	p.Trace, _ = ctx.Value(traceKey{}).(string)
	return msg.UUID, s.put(ctx, &p)
}

type traceKey struct{}

// WithTrace returns a context for [Session.Prompt] with an OpenTelemetry span, in the form of the header
// traceparent. The span becomes the parent of the spans of the agent that the prompt starts, wherever that runs.
func WithTrace(ctx context.Context, traceparent string) context.Context {
	return context.WithValue(ctx, traceKey{}, traceparent)
}

// ErrOtherPrompt means that another prompt has the same uuid.
var ErrOtherPrompt = errors.New("hub: another prompt has the same uuid; give every prompt a uuid of its own")

// hashPrompt returns a hash of the content of a prompt, independent of its sender and time.
func hashPrompt(line json.RawMessage) string {
	var m struct {
		Message json.RawMessage `json:"message"`
	}
	json.Unmarshal(line, &m)
	return hashOf(mustJSON(canonical(m.Message)))
}

// put puts a prompt into the inbox and makes sure that somebody consumes it.
func (s *Session) put(ctx context.Context, p *Prompt) error {
	said := hashPrompt(p.Message)
	return s.hub.in(ctx, s.id, func(r *room) error {
		there := "" // hash of the prompt that was accepted with this uuid
		known := false
		err := r.do(ctx, func(*tx) error {
			if old := r.fold.prompts[p.UUID]; old != nil {
				known, there = true, old.said
			}
			return nil
		})
		if err != nil {
			return err
		}
		if !known {
			stored, err := s.hub.put(ctx, s.id, Item{Key: promptKey + p.UUID, Time: time.Now(), Data: mustJSON(p)})
			if err != nil {
				return err
			}
			var first Prompt
			if err := json.Unmarshal(stored.Data, &first); err != nil {
				return err
			}
			there = hashPrompt(first.Message)
		}
		if there != "" && there != said {
			return ErrOtherPrompt
		}
		return nil
	})
}

// put puts an item into the inbox of a session and marks it as having work to do. It does so before, in case this
// process dies, and after, because the session's owner may have rested in between, when the inbox was empty.
func (h *Hub) put(ctx context.Context, id string, item Item) (stored Item, err error) {
	b := h.cfg.Backend
	if w, ok := b.(Waker); ok {
		return w.PutAndWake(ctx, id, item)
	}
	if err = b.Wake(ctx, id); err != nil {
		return stored, err
	}
	if stored, err = b.Put(ctx, id, item); err != nil {
		return stored, err
	}
	return stored, b.Wake(ctx, id)
}

// Answer answers a question. ans.Ask, ans.Shown and ans.Response are required. It returns when the answer is
// durable. The error is an [*AnsweredError] if another answer came first.
func (s *Session) Answer(ctx context.Context, by Actor, ans Answer) error {
	if err := s.hub.check(ctx, by, s.id, 0, ""); err != nil {
		return err
	}
	ans.By, ans.Outcome, ans.Kept = by, Answered, ""
	return s.hub.in(ctx, s.id, func(r *room) error { return r.answer(ctx, by, &ans) })
}

// answer puts an answer into the inbox.
func (r *room) answer(ctx context.Context, by Actor, ans *Answer) error {
	at, n := time.Now().UTC().Truncate(time.Millisecond), uint64(0)
	err := r.do(ctx, func(*tx) error {
		n = r.fold.n
		q := r.fold.asks[ans.Ask]
		switch {
		case q == nil:
			return ErrNotFound
		case q.answer != nil:
			if err := by.need(MayApprove, "answer questions"); err != nil {
				return err
			}
			return &AnsweredError{*q.answer}
		}
		if err := q.check(by, ans); err != nil {
			return err
		}
		if q.expired(at) {
			return &AnsweredError{Answer{Ask: ans.Ask, By: Actor{Name: r.hub.cfg.Name}, Outcome: Expired}}
		}
		return nil
	})
	if err != nil {
		return err
	}
	item := answerItem(ans)
	item.Time = at
	stored, err := r.hub.put(ctx, r.id, item)
	if err != nil {
		return err
	}
	if string(stored.Data) != string(item.Data) {
		first := new(Answer)
		if err := json.Unmarshal(stored.Data, first); err != nil {
			return err
		}
		return &AnsweredError{*first}
	}
	// An earlier answer may have been consumed and its item trimmed in the meantime. Then the journal has it.
	for e, err := range r.hub.cfg.Backend.Read(ctx, r.id, n, false) {
		if err != nil {
			return err
		}
		if e.Kind != KindAnswer || e.Item == stored.Number {
			continue
		}
		if first := decode[Answer](&e); first != nil && first.Ask == ans.Ask {
			return &AnsweredError{*first}
		}
	}
	return nil
}
