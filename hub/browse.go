package hub

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/session"
)

// An Info describes a session in a list.
type Info struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	State    State     `json:"state"`
	// Removed reports that the session was removed: see [Hub.Watch].
	Removed bool `json:"removed,omitempty"`
}

// CreatedBy returns the actor that created the session.
func (i *Info) CreatedBy() Actor { return i.State.by }

// A summary is the state of a session that is not open, computed from its journal.
type summary struct {
	modified time.Time
	size     int64
	state    *State
	asks     []Ask
}

// summarize returns the state of a session and its open questions, without opening it.
func (h *Hub) summarize(ctx context.Context, l Listed) (*State, []Ask, error) {
	h.mu.Lock()
	r := h.rooms[l.ID]
	known := h.summaries[l.ID]
	h.mu.Unlock()
	if r != nil {
		var state *State
		var asks []Ask
		select {
		case <-r.opened:
		case <-r.done:
		}
		if r.err == nil && r.do(ctx, func(*tx) error { state, asks = r.state(), r.fold.open(); return nil }) == nil {
			return state, asks, nil
		}
	}
	if l.Size > 0 && known != nil && known.size == l.Size && known.modified.Equal(l.Modified) {
		state := *known.state
		return &state, known.asks, nil
	}
	f := newFold()
	for e, err := range h.cfg.Backend.Read(ctx, l.ID, 0, false) {
		if err != nil {
			return nil, nil, err
		}
		f.add(&e)
	}
	if f.created == nil {
		return nil, nil, ErrNotFound
	}
	state, asks := f.state(), f.open()
	if l.Size > 0 {
		copied := *state
		h.mu.Lock()
		h.summaries[l.ID] = &summary{l.Modified, l.Size, &copied, asks}
		h.mu.Unlock()
	}
	return state, asks, nil
}

// open returns the open questions, oldest first.
func (f *fold) open() (asks []Ask) {
	for _, id := range f.openAsks {
		asks = append(asks, f.asks[id].Ask)
	}
	return asks
}

// List returns all sessions of the backend, most recently changed first. It opens none
// of them.
func (h *Hub) List(ctx context.Context, by Actor) ([]Info, error) {
	if err := by.need(MayView, "see sessions"); err != nil {
		return nil, err
	}
	listed, err := h.cfg.Backend.List(ctx)
	if err != nil {
		return nil, err
	}
	all := []Info{}
	for _, l := range listed {
		if l.ID == SchedulesID {
			continue
		}
		state, _, err := h.summarize(ctx, l)
		if errors.Is(err, ErrNotFound) {
			continue // it was removed in the meantime, or is being created
		}
		if err != nil {
			return nil, err
		}
		if h.Sees(by, state.by) {
			all = append(all, Info{ID: l.ID, Modified: l.Modified, State: *state})
		}
	}
	slices.SortStableFunc(all, func(a, b Info) int {
		if c := b.Modified.Compare(a.Modified); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all, nil
}

// Info returns the state of the session and its open questions, oldest first. It does
// not open the session, and so changes nothing.
func (s *Session) Info(ctx context.Context, by Actor) (*Info, []Ask, error) {
	if err := s.hub.check(ctx, by, s.id, MayView, "see the session"); err != nil {
		return nil, nil, err
	}
	if err := CheckID(s.id); err != nil || s.id == SchedulesID {
		return nil, nil, ErrNotFound
	}
	listed, err := s.hub.cfg.Backend.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(listed, func(l Listed) bool { return l.ID == s.id })
	if i < 0 {
		return nil, nil, ErrNotFound
	}
	state, asks, err := s.hub.summarize(ctx, listed[i])
	if err != nil {
		return nil, nil, err
	}
	return &Info{ID: s.id, Modified: listed[i].Modified, State: *state}, asks, nil
}

// Entries yields the entries with a number above after, up to the last one. Unlike
// [Session.Attach] it does not open the session, so it changes nothing.
func (s *Session) Entries(ctx context.Context, by Actor, after uint64) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		err := s.hub.check(ctx, by, s.id, MayView, "see the session")
		if err == nil && (CheckID(s.id) != nil || s.id == SchedulesID) {
			err = ErrNotFound
		}
		if err != nil {
			yield(Entry{}, err)
			return
		}
		for e, err := range s.hub.cfg.Backend.Read(ctx, s.id, after, false) {
			if err == nil && e.N == 0 {
				continue
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Rename sets the title of the session. Its agent need not run.
func (s *Session) Rename(ctx context.Context, by Actor, title string) error {
	title = strings.TrimSpace(title)
	if title == "" {
		return errors.New("hub: the title is empty")
	}
	_, err := s.Control(ctx, by, mustJSON(map[string]string{"subtype": "rename_session", "title": title}))
	return err
}

// renameRecords sets the title of the agent's own session while no agent runs.
func (r *room) renameRecords(ctx context.Context, title string) error {
	var agentID string
	err := r.do(ctx, func(*tx) error { agentID = r.fold.agentID; return nil })
	if err != nil || r.hub.cfg.Sessions == nil {
		return err
	}
	if err = session.Rename(ctx, r.hub.cfg.Sessions, agentID, title, nil); errors.Is(err, session.ErrNotFound) {
		return nil // there are no records yet
	}
	return err
}

// Archive marks the session as no longer needed, or removes the mark. It changes nothing
// else.
func (s *Session) Archive(ctx context.Context, by Actor, archived bool) error {
	if err := s.hub.check(ctx, by, s.id, MayDrive, "archive sessions"); err != nil {
		return err
	}
	err := s.hub.in(ctx, s.id, func(r *room) error {
		return r.do(ctx, func(x *tx) error {
			if r.lease == nil {
				return ErrLocked
			}
			if r.fold.archived != archived {
				x.append(KindArchived, mustJSON(Archived{By: by, Archived: archived}), nil)
			}
			return nil
		})
	})
	return s.elsewhere(ctx, err, "archive", by, archived, nil)
}

// A watcher is a queue of changes. It keeps only the last one of each session.
type watcher struct {
	mu      sync.Mutex
	changed map[string]Info
	order   []string
	bell    chan struct{} // holds a token if there is a new change
}

func (w *watcher) put(i Info) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, waits := w.changed[i.ID]; !waits {
		w.order = append(w.order, i.ID)
	}
	w.changed[i.ID] = i
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

func (w *watcher) drain() []Info {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]Info, len(w.order))
	for i, id := range w.order {
		all[i] = w.changed[id]
	}
	w.changed, w.order = map[string]Info{}, nil
	return all
}

// report sends a change of a session to all watchers of the hub.
func (h *Hub) report(i Info) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers {
		w.put(i)
	}
}

// reportState reports the state of the room's session. It runs in the room's goroutine.
func (r *room) reportState() {
	r.hub.mu.Lock()
	watched := len(r.hub.watchers) > 0
	r.hub.mu.Unlock()
	if watched {
		r.hub.report(Info{ID: r.id, Modified: time.Now(), State: *r.state()})
	}
}

// Watch yields every session as List does, then each one again whenever its state
// changes, and once more when it is removed, until ctx ends or the loop ends. A slow
// reader misses states in between, never the last one.
func (h *Hub) Watch(ctx context.Context, by Actor) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		w := &watcher{changed: map[string]Info{}, bell: make(chan struct{}, 1)}
		h.mu.Lock()
		h.watchers[w] = true
		h.mu.Unlock()
		defer func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			delete(h.watchers, w)
		}()
		all, err := h.List(ctx, by)
		if err != nil {
			yield(Info{}, err)
			return
		}
		shown := map[string]bool{}
		for {
			for _, i := range all {
				if h.cfg.Sees != nil {
					if shown[i.ID] = shown[i.ID] || !i.Removed && h.Sees(by, i.State.by); !shown[i.ID] {
						continue
					}
				}
				if !yield(i, nil) {
					return
				}
			}
			select {
			case <-w.bell:
				all = w.drain()
			case <-ctx.Done():
				yield(Info{}, context.Cause(ctx))
				return
			case <-h.ctx.Done():
				yield(Info{}, ErrClosed)
				return
			}
		}
	}
}
