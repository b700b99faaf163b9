package session

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// Memory keeps sessions as long as it lives. The zero value is ready. It is safe
// for concurrent use.
type Memory struct {
	mu     sync.Mutex
	logs   map[Key]*memoryLog
	leases map[string]*memoryLease // by the id of the session
	last   time.Time               // its clock never stands still
}

var (
	_ Store      = (*Memory)(nil)
	_ Summarizer = (*Memory)(nil)
)

type memoryLog struct {
	records  []json.RawMessage
	uuids    map[string]bool
	size     int64
	modified time.Time
	summary  json.RawMessage
}

// Append implements [Store].
func (m *Memory) Append(ctx context.Context, key Key, records []json.RawMessage) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.append(ctx, key, records)
}

func (m *Memory) append(ctx context.Context, key Key, records []json.RawMessage) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := key.Check(); err != nil {
		return err
	}
	if err := CheckRecords(records); err != nil || len(records) == 0 {
		return err
	}
	if m.logs == nil {
		m.logs = map[Key]*memoryLog{}
	}
	l := m.logs[key]
	if l == nil {
		l = &memoryLog{uuids: map[string]bool{}}
		m.logs[key] = l
	}
	var added []json.RawMessage
	for _, r := range records {
		id := RecordUUID(r)
		if id != "" && l.uuids[id] {
			continue
		}
		l.uuids[id] = true
		added = append(added, bytes.Clone(r))
		l.size += int64(len(r)) + 1
	}
	l.records = append(l.records, added...)
	l.modified = m.now()
	if key.Sub == "" {
		l.summary = Fold(l.summary, added)
	}
	return nil
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
	l := m.logs[key]
	if l == nil {
		return nil, ErrNotFound
	}
	out := make([]json.RawMessage, len(l.records))
	for i, r := range l.records {
		out[i] = bytes.Clone(r)
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
	for key, l := range m.logs {
		if key.Sub == "" && (match.Project == "" || match.Project == key.Project) && (match.Session == "" || match.Session == key.Session) {
			all = append(all, Listed{Key: key, Modified: l.modified, Size: l.size})
		}
	}
	return all, nil
}

// Summaries implements [Summarizer].
func (m *Memory) Summaries(ctx context.Context, project string) ([]Summary, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Summary
	for key, l := range m.logs {
		if key.Sub == "" && (project == "" || project == key.Project) {
			all = append(all, Summary{Key: key, Modified: l.modified, Data: slices.Clone(l.summary)})
		}
	}
	return all, nil
}

// Delete implements [Store].
func (m *Memory) Delete(ctx context.Context, key Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.logs {
		if k == key || key.Sub == "" && k.Project == key.Project && k.Session == key.Session {
			delete(m.logs, k)
		}
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
	for k := range m.logs {
		if k.Sub != "" && k.Project == key.Project && k.Session == key.Session {
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
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	switch l.store.leases[l.key.Session] {
	case l:
	case nil:
		return ErrClosed
	default:
		return ErrLeaseLost
	}
	key := l.key
	key.Sub = sub
	return l.store.append(ctx, key, records)
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
