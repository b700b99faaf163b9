package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/parley-go/parley/session"
)

// Memory is a [Backend] that lasts as long as the process, for tests and simulations.
// Hubs that share one Memory behave like hubs of different processes. The zero value is
// ready to use.
type Memory struct {
	mu       sync.Mutex
	sessions map[string]*memorySession
	work     []string // sessions that have work to do, in the order in which they were woken
	wakes    int      // how many times Wake was called
	bells    bells
}

type memorySession struct {
	entries  []Entry
	last     uint64
	modified time.Time
	changes  int64
	trims    int
	items    []Item            // in order, the first has the number gone+1
	gone     uint64            // number of trimmed items
	keys     map[string]uint64 // numbers of items, by their keys
	lease    *memoryLease
}

var _ Backend = (*Memory)(nil)

// get returns a session, and creates it if it does not exist. The caller holds mu.
func (m *Memory) get(id string) *memorySession {
	s := m.sessions[id]
	if s == nil {
		if m.sessions == nil {
			m.sessions = map[string]*memorySession{}
		}
		s = &memorySession{keys: map[string]uint64{}}
		m.sessions[id] = s
	}
	return s
}

// Append implements [Backend].
func (m *Memory) Append(ctx context.Context, id string, expect uint64, entries []Entry) error {
	if err := CheckAppend(ctx, id, expect, entries); err != nil || len(entries) == 0 {
		return err
	}
	m.mu.Lock()
	s := m.get(id)
	if expect != AnyNumber && expect != s.last {
		m.mu.Unlock()
		return ErrConflict
	}
	for _, e := range entries {
		e.Data = bytes.Clone(e.Data)
		e.Time = e.Time.UTC().Truncate(time.Millisecond)
		s.entries = append(s.entries, e)
		s.last = max(s.last, e.N)
	}
	s.modified = time.Now()
	s.changes++
	m.mu.Unlock()
	m.bells.ring(id)
	return nil
}

// CheckAppend returns an error if a [Backend] must reject the arguments of its Append.
// It does not look at the journal.
func CheckAppend(ctx context.Context, id string, expect uint64, entries []Entry) error {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return err
	}
	last := expect
	if expect == AnyNumber {
		last = 0
		if slices.ContainsFunc(entries, func(e Entry) bool { return e.N > 0 }) {
			return errors.New("hub: an entry with a number needs an expected number")
		}
	}
	return checkEntries(last, entries)
}

// CheckID returns an error unless id is a valid session id.
func CheckID(id string) error {
	if !session.ValidID(id) {
		return fmt.Errorf("hub: %q is not a session id: %w", id, ErrNotFound)
	}
	return nil
}

// Read implements [Backend].
func (m *Memory) Read(ctx context.Context, id string, after uint64, follow bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		next, trims := -1, 0 // index of the next entry, and how many trims there were when it was computed
		for {
			bell := m.bells.wait(id, follow)
			m.mu.Lock()
			var entries []Entry
			if s := m.sessions[id]; s != nil {
				entries = s.entries
				if next < 0 || trims != s.trims {
					next, trims = behind(entries, after), s.trims
				}
			} else {
				next = -1
			}
			m.mu.Unlock()
			for ; next >= 0 && next < len(entries); next++ {
				if ctx.Err() != nil {
					break
				}
				e := entries[next]
				e.Data = bytes.Clone(e.Data)
				after = max(after, e.N)
				if !yield(e, nil) {
					return
				}
			}
			if !wait(ctx, bell, follow, yield) {
				return
			}
		}
	}
}

// behind returns the index of the first entry after the one with the number n.
func behind(entries []Entry, n uint64) int {
	for i := len(entries) - 1; i >= 0; i-- {
		if k := entries[i].N; 0 < k && k <= n {
			return i + 1
		}
	}
	return 0
}

// wait waits for a bell at the end of the journal. It reports whether the caller should
// look again.
func wait[T any](ctx context.Context, bell <-chan struct{}, follow bool, yield func(T, error) bool) bool {
	if follow && ctx.Err() == nil {
		select {
		case <-bell:
			return true
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		var none T
		yield(none, context.Cause(ctx))
	}
	return false
}

// Trim implements [Backend].
func (m *Memory) Trim(ctx context.Context, id string, before uint64) error {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	if s == nil {
		return nil
	}
	var kept []Entry
	for _, e := range s.entries {
		if e.N == 0 || e.N >= min(before, s.last) { // keep the last number
			kept = append(kept, e)
		}
	}
	s.entries = kept
	s.trims++
	s.changes++
	return nil
}

// Lease implements [Backend].
func (m *Memory) Lease(ctx context.Context, id string) (Lease, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.get(id)
	if s.lease != nil {
		return nil, ErrLocked
	}
	s.lease = &memoryLease{m, s, make(chan struct{})}
	return s.lease, nil
}

// Expire ends the lease of a session as if its holder had been silent for too long:
// another process can acquire it, and the holder does not know.
func (m *Memory) Expire(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[id]; s != nil {
		s.lease = nil
	}
}

type memoryLease struct {
	backend *Memory
	session *memorySession
	lost    chan struct{}
}

// Lost implements [Lease].
func (l *memoryLease) Lost() <-chan struct{} { return l.lost }

// Close implements [Lease].
func (l *memoryLease) Close() error {
	l.backend.mu.Lock()
	defer l.backend.mu.Unlock()
	if l.session.lease == l {
		l.session.lease = nil
	}
	return nil
}

// Put implements [Backend].
func (m *Memory) Put(ctx context.Context, id string, item Item) (Item, error) {
	if err := errors.Join(ctx.Err(), CheckID(id), CheckItem(item)); err != nil {
		return Item{}, err
	}
	m.mu.Lock()
	s := m.get(id)
	if n, ok := s.keys[item.Key]; ok {
		defer m.mu.Unlock()
		return cloneItem(s.items[n-s.gone-1]), nil
	}
	item = cloneItem(item)
	item.Time = item.Time.UTC().Truncate(time.Millisecond)
	item.Number = s.gone + uint64(len(s.items)) + 1
	s.keys[item.Key] = item.Number
	s.items = append(s.items, item)
	m.mu.Unlock()
	m.bells.ring(id)
	return cloneItem(item), nil
}

// CheckItem returns an error if a [Backend] must reject an item.
func CheckItem(item Item) error {
	switch {
	case item.Key == "" || len(item.Key) > 200:
		return fmt.Errorf("hub: %q is not the key of an item", item.Key)
	case len(item.Data) == 0 || bytes.IndexByte(item.Data, '\n') >= 0 || !json.Valid(item.Data):
		return fmt.Errorf("hub: the data of the item %q is not JSON on one line", item.Key)
	}
	return nil
}

func cloneItem(i Item) Item {
	i.Data = bytes.Clone(i.Data)
	return i
}

// Inbox implements [Backend].
func (m *Memory) Inbox(ctx context.Context, id string, after uint64, follow bool) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for {
			bell := m.bells.wait(id, follow)
			m.mu.Lock()
			var items []Item
			if s := m.sessions[id]; s != nil {
				items = s.items
			}
			m.mu.Unlock()
			for _, item := range items {
				if item.Number <= after {
					continue
				}
				if ctx.Err() != nil {
					break
				}
				if after = item.Number; !yield(cloneItem(item), nil) {
					return
				}
			}
			if !wait(ctx, bell, follow, yield) {
				return
			}
		}
	}
}

// TrimInbox implements [Backend].
func (m *Memory) TrimInbox(ctx context.Context, id string, before uint64) error {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	if s == nil {
		return nil
	}
	for len(s.items) > 1 && s.items[0].Number < before {
		delete(s.keys, s.items[0].Key)
		s.items, s.gone = s.items[1:], s.gone+1
	}
	return nil
}

// Wake implements [Backend].
func (m *Memory) Wake(ctx context.Context, id string) error {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return err
	}
	m.mu.Lock()
	m.work = append(slices.DeleteFunc(slices.Clone(m.work), func(w string) bool { return w == id }), id)
	m.wakes++
	m.mu.Unlock()
	m.bells.ring("")
	return nil
}

// Rest implements [Backend].
func (m *Memory) Rest(ctx context.Context, id string) error {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.work = slices.DeleteFunc(slices.Clone(m.work), func(w string) bool { return w == id })
	return nil
}

// Work implements [Backend].
func (m *Memory) Work(ctx context.Context, follow bool) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		seen := 0 // how many wakes were seen
		for {
			bell := m.bells.wait("", follow)
			m.mu.Lock()
			fresh := m.work[max(0, len(m.work)-(m.wakes-seen)):]
			if seen == 0 {
				fresh = m.work
			}
			seen = m.wakes
			m.mu.Unlock()
			for _, id := range fresh {
				if ctx.Err() != nil {
					break
				}
				if !yield(id, nil) {
					return
				}
			}
			if !wait(ctx, bell, follow, yield) {
				return
			}
		}
	}
}

// List implements [Backend].
func (m *Memory) List(ctx context.Context) ([]Listed, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Listed
	for id, s := range m.sessions {
		if len(s.entries) > 0 {
			all = append(all, Listed{ID: id, Modified: s.modified, Size: s.changes})
		}
	}
	return all, nil
}

// Delete implements [Backend].
func (m *Memory) Delete(ctx context.Context, id string) error {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[id]; s != nil && s.lease != nil {
		return ErrLocked
	}
	delete(m.sessions, id)
	m.work = slices.DeleteFunc(slices.Clone(m.work), func(w string) bool { return w == id })
	return nil
}

// bells wake the goroutines that wait for a change.
type bells struct {
	mu sync.Mutex
	by map[string]chan struct{}
}

// wait returns a channel that is closed by the next ring. Call it before looking for
// something new. Without follow it returns nil, because nobody waits.
func (b *bells) wait(name string, follow bool) <-chan struct{} {
	if !follow {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	ch := b.by[name]
	if ch == nil {
		if b.by == nil {
			b.by = map[string]chan struct{}{}
		}
		ch = make(chan struct{})
		b.by[name] = ch
	}
	return ch
}

func (b *bells) ring(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ch := b.by[name]; ch != nil {
		close(ch)
		delete(b.by, name)
	}
}
