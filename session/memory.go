package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"
)

// Memory keeps sessions as long as it lives. The zero value is ready. It is safe
// for concurrent use.
type Memory struct {
	mu     sync.Mutex
	logs   map[string]map[Key]*memoryLog // by the id of the session
	leases map[string]*memoryLease       // the same
	last   time.Time                     // its clock never stands still
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
	summary  kept
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
	m.mu.Lock()
	defer m.mu.Unlock()
	m.append(key, own)
	return nil
}

// ownRecords returns copies of records that may be appended.
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

// append adds records that nobody changes. The caller holds mu.
func (m *Memory) append(key Key, records []sparse) {
	of := m.logs[key.Session]
	if of == nil {
		if m.logs == nil {
			m.logs = map[string]map[Key]*memoryLog{}
		}
		of = map[Key]*memoryLog{}
		m.logs[key.Session] = of
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
		if key.Sub == "" {
			l.summary.fold(r.text)
		}
	}
	l.modified = m.now()
}

// now is later than the last time it was asked, by what a store must tell apart.
func (m *Memory) now() time.Time {
	now := time.Now().Truncate(time.Millisecond)
	if !now.After(m.last) {
		now = m.last.Add(time.Millisecond)
	}
	m.last = now
	return now
}

// Load implements [Store].
func (m *Memory) Load(ctx context.Context, key Key) ([]json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.logs[key.Session][key]
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
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Listed
	m.each(match, func(key Key, l *memoryLog) {
		all = append(all, Listed{Key: key, Modified: l.modified, Size: l.size})
	})
	return all, nil
}

// each calls f with the sessions that match, which may have no id.
func (m *Memory) each(match Key, f func(Key, *memoryLog)) {
	some := m.logs
	if match.Session != "" {
		some = map[string]map[Key]*memoryLog{match.Session: m.logs[match.Session]}
	}
	for _, of := range some {
		for key, l := range of {
			if key.Sub == "" && (match.Project == "" || match.Project == key.Project) {
				f(key, l)
			}
		}
	}
}

// Summaries implements [Summarizer].
func (m *Memory) Summaries(ctx context.Context, project string) ([]Summary, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Summary
	m.each(Key{Project: project}, func(key Key, l *memoryLog) {
		data, _ := json.Marshal(&l.summary) // texts and booleans only
		all = append(all, Summary{Key: key, Modified: l.modified, Data: data})
	})
	return all, nil
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, key Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.logs[key.Session]
	for k := range of {
		if k == key || key.Sub == "" && k.Project == key.Project {
			delete(of, k)
		}
	}
	if len(of) == 0 {
		delete(m.logs, key.Session)
	}
	return nil
}

// Subkeys implements [Store].
func (m *Memory) Subkeys(ctx context.Context, key Key) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for k := range m.logs[key.Session] {
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
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leases[key.Session] != nil {
		return nil, ErrLocked
	}
	if m.leases == nil {
		m.leases = map[string]*memoryLease{}
	}
	l := &memoryLease{store: m, key: key}
	m.leases[key.Session] = l
	return l, nil
}

// A memoryLease is the lease of a session of a [Memory].
type memoryLease struct {
	store *Memory
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

// append adds records that nobody changes, while the lease is held.
func (l *memoryLease) append(sub string, records []sparse) error {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	switch l.store.leases[l.key.Session] {
	case l:
	case nil:
		return ErrClosed
	default:
		return ErrLeaseLost
	}
	if len(records) > 0 {
		key := l.key
		key.Sub = sub
		l.store.append(key, records)
	}
	return nil
}

// Close implements [Lease].
func (l *memoryLease) Close() error {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.store.leases[l.key.Session] == l {
		delete(l.store.leases, l.key.Session)
	}
	return nil
}
