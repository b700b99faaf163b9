package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Memory stores sessions in memory. The zero value is ready for use. It is safe for
// concurrent use.
type Memory struct {
	shards [64]memoryShard
	last   atomic.Int64 // its clock in milliseconds, which always increases
}

// A memoryShard holds some of the sessions, so that writers of other sessions need not
// wait.
type memoryShard struct {
	mu     sync.Mutex
	logs   map[string]map[Key]*memoryLog // by the id of the session
	leases map[string]*memoryLease       // by the id of the session
}

// shard returns the shard of a session. The caller locks it.
func (m *Memory) shard(id string) *memoryShard {
	h := uint32(2166136261) // FNV-1a
	for i := range len(id) {
		h = (h ^ uint32(id[i])) * 16777619
	}
	return &m.shards[h%uint32(len(m.shards))]
}

var (
	_ Store      = (*Memory)(nil)
	_ Summarizer = (*Memory)(nil)
)

type memoryLog struct {
	records  []sparse
	uuids    map[string]struct{}
	size     int64
	modified time.Time
	summary  storedSummary
	folded   int // how many records the summary is of
}

// Append implements [Store].
func (m *Memory) Append(ctx context.Context, key Key, records []json.RawMessage) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	own, err := ownRecords(key, records)
	if err != nil || len(own) == 0 {
		return err
	}
	s := m.shard(key.Session)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.append(key, own, m.now())
	return nil
}

// ownRecords validates records and returns copies.
func ownRecords(key Key, records []json.RawMessage) ([]sparse, error) {
	if err := key.Check(); err != nil {
		return nil, err
	}
	if err := CheckRecords(records); err != nil {
		return nil, err
	}
	own := make([]sparse, len(records))
	for i, r := range records {
		own[i] = sparse{text: bytes.Clone(r), uuid: RecordUUID(r)}
	}
	return own, nil
}

// append adds records that are never modified. The caller holds mu.
func (s *memoryShard) append(key Key, records []sparse, now time.Time) {
	of := s.logs[key.Session]
	if of == nil {
		if s.logs == nil {
			s.logs = map[string]map[Key]*memoryLog{}
		}
		of = map[Key]*memoryLog{}
		s.logs[key.Session] = of
	}
	l := of[key]
	if l == nil {
		l = &memoryLog{uuids: map[string]struct{}{}}
		of[key] = l
	}
	for _, r := range records {
		if r.uuid != "" {
			if _, ok := l.uuids[r.uuid]; ok {
				continue
			}
			l.uuids[r.uuid] = struct{}{}
		}
		l.records = append(l.records, r)
		l.size += int64(r.size()) + 1
	}
	l.modified = now
}

// now returns a time that is later than the previous one by the resolution of a store.
func (m *Memory) now() time.Time {
	for {
		last := m.last.Load()
		if next := max(time.Now().UnixMilli(), last+1); m.last.CompareAndSwap(last, next) {
			return time.UnixMilli(next)
		}
	}
}

// Load implements [Store].
func (m *Memory) Load(ctx context.Context, key Key) ([]json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := m.shard(key.Session)
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.logs[key.Session][key]
	if l == nil {
		return nil, ErrNotFound
	}
	out := make([]json.RawMessage, len(l.records))
	for i := range l.records {
		out[i] = l.records[i].whole()
	}
	return out, nil
}

// List implements [Store].
func (m *Memory) List(ctx context.Context, match Key) ([]Listed, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var all []Listed
	m.each(match, func(key Key, l *memoryLog) {
		all = append(all, Listed{Key: key, Modified: l.modified, Size: l.size})
	})
	return all, nil
}

// each calls f with the sessions that match; the id of match may be empty.
func (m *Memory) each(match Key, f func(Key, *memoryLog)) {
	visit := func(of map[Key]*memoryLog) {
		for key, l := range of {
			if key.Sub == "" && (match.Project == "" || match.Project == key.Project) {
				f(key, l)
			}
		}
	}
	if match.Session != "" {
		s := m.shard(match.Session)
		s.mu.Lock()
		defer s.mu.Unlock()
		visit(s.logs[match.Session])
		return
	}
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.Lock()
		for _, of := range s.logs {
			visit(of)
		}
		s.mu.Unlock()
	}
}

// Summaries implements [Summarizer].
func (m *Memory) Summaries(ctx context.Context, project string) ([]Summary, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var all []Summary
	m.each(Key{Project: project}, func(key Key, l *memoryLog) {
		for ; l.folded < len(l.records); l.folded++ {
			l.summary.add(l.records[l.folded].text)
		}
		data, _ := json.Marshal(&l.summary) // only strings and booleans
		all = append(all, Summary{Key: key, Modified: l.modified, Data: data})
	})
	return all, nil
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, key Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s := m.shard(key.Session)
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.logs[key.Session]
	for k := range of {
		if k == key || key.Sub == "" && k.Project == key.Project {
			delete(of, k)
		}
	}
	if len(of) == 0 {
		delete(s.logs, key.Session)
	}
	return nil
}

// Subkeys implements [Store].
func (m *Memory) Subkeys(ctx context.Context, key Key) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s := m.shard(key.Session)
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for k := range s.logs[key.Session] {
		if k.Sub != "" && k.Project == key.Project {
			all = append(all, k.Sub)
		}
	}
	return all, nil
}

// Lease implements [Store].
func (m *Memory) Lease(ctx context.Context, key Key) (Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := key.Check(); err != nil {
		return nil, err
	}
	s := m.shard(key.Session)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[key.Session] != nil {
		return nil, ErrLocked
	}
	if s.leases == nil {
		s.leases = map[string]*memoryLease{}
	}
	l := &memoryLease{store: m, shard: s, key: key}
	s.leases[key.Session] = l
	return l, nil
}

// A memoryLease is the lease of a session in a [Memory].
type memoryLease struct {
	store *Memory
	shard *memoryShard
	key   Key
}

// Append implements [Lease].
func (l *memoryLease) Append(ctx context.Context, sub string, records []json.RawMessage) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	key := l.key
	key.Sub = sub
	own, err := ownRecords(key, records)
	if err != nil || len(own) == 0 {
		return errors.Join(err, l.append(sub, nil))
	}
	return l.append(sub, own)
}

// append adds records that are never modified, while the lease is held.
func (l *memoryLease) append(sub string, records []sparse) error {
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	switch l.shard.leases[l.key.Session] {
	case l:
	case nil:
		return ErrClosed
	default:
		return ErrLeaseLost
	}
	if len(records) > 0 {
		key := l.key
		key.Sub = sub
		l.shard.append(key, records, l.store.now())
	}
	return nil
}

// Close implements [Lease].
func (l *memoryLease) Close() error {
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	if l.shard.leases[l.key.Session] == l {
		delete(l.shard.leases, l.key.Session)
	}
	return nil
}
