package session

import (
	"bytes"
	"context"
	"strings"
	"sync"
)

// Memory keeps sessions as long as it lives, and behaves like [Files] otherwise.
// The zero value is ready. It is safe for concurrent use.
type Memory struct {
	mu       sync.Mutex
	sessions map[string]*memorySession
	clock    int64
}

var _ Store = (*Memory)(nil)

// A memorySession holds the lines that a file would hold.
type memorySession struct {
	cwd   string
	lines []byte
	open  bool
	mtime int64 // of the store's clock, which never stands still
}

// Create implements [Store].
func (m *Memory) Create(ctx context.Context, meta Meta) (Log, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	meta, err := meta.newSession()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions[meta.ID] != nil {
		return nil, ErrExists
	}
	if m.sessions == nil {
		m.sessions = map[string]*memorySession{}
	}
	m.sessions[meta.ID] = &memorySession{cwd: meta.Cwd, open: true}
	return &memoryLog{store: m, id: meta.ID, session: m.sessions[meta.ID], encoder: newEncoder(meta)}, nil
}

// Open implements [Store].
func (m *Memory) Open(ctx context.Context, id string, meta Meta) (Log, *History, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[id]
	switch {
	case s == nil || len(s.lines) == 0:
		return nil, nil, ErrNotFound
	case s.open:
		return nil, nil, ErrLocked
	}
	scan, _, err := scanLog(bytes.NewReader(s.lines))
	if err != nil {
		return nil, nil, err
	}
	h, err := scan.history(bytes.NewReader(s.lines))
	if err != nil {
		return nil, nil, err
	}
	meta.ID, h.Meta.ID = id, id
	s.open = true
	return &memoryLog{store: m, id: id, session: s, encoder: newEncoder(meta)}, h, nil
}

// Latest implements [Store].
func (m *Memory) Latest(ctx context.Context, cwd string) (string, error) {
	return m.newest(ctx, func(s *memorySession, d *digest) bool {
		return s.cwd == cwd && !d.sidechain && d.conversation
	})
}

// Find implements [Store].
func (m *Memory) Find(ctx context.Context, title string) (string, error) {
	title = strings.TrimSpace(title)
	return m.newest(ctx, func(s *memorySession, d *digest) bool {
		return title != "" && !d.sidechain && d.titled(title)
	})
}

func (m *Memory) newest(ctx context.Context, ok func(*memorySession, *digest) bool) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	best := ""
	for id, s := range m.sessions {
		if len(s.lines) > 0 && (best == "" || s.mtime > m.sessions[best].mtime) && ok(s, digestOf(s.lines, s.lines)) {
			best = id
		}
	}
	if best == "" {
		return "", ErrNotFound
	}
	return best, nil
}

// A memoryLog is a session of a [Memory] that is open.
type memoryLog struct {
	store   *Memory
	id      string
	session *memorySession
	encoder *encoder
	closed  bool
}

func (l *memoryLog) ID() string   { return l.id }
func (l *memoryLog) Path() string { return "" }

func (l *memoryLog) Append(entries ...*Entry) error {
	lines, err := l.encoder.lines(nil, entries)
	if err != nil {
		return err
	}
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if len(lines) == 0 {
		return nil
	}
	l.store.clock++
	l.session.mtime = l.store.clock
	l.session.lines = append(l.session.lines, lines...)
	return nil
}

func (l *memoryLog) Close() error {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.session.open = false
	if len(l.session.lines) == 0 {
		delete(l.store.sessions, l.id)
	}
	return nil
}
