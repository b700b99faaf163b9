package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
)

// Create starts a session; if meta has no id, it gets a new one. The error is [ErrExists] if the
// id is in use.
func Create(ctx context.Context, s Store, meta Meta) (Log, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if f, ok := s.(*Files); ok {
		return f.create(meta)
	}
	meta, err := meta.newSession()
	if err != nil {
		return nil, err
	}
	key := Key{Project: ProjectKey(meta.Cwd), Session: meta.ID}
	lease, err := s.Lease(ctx, key)
	if errors.Is(err, ErrLocked) {
		err = ErrExists
	}
	if err != nil {
		return nil, err
	}
	there, err := s.List(ctx, Key{Session: meta.ID})
	if err == nil && len(there) > 0 {
		var records []json.RawMessage
		if records, err = s.Load(ctx, key); err == nil && (len(there) > 1 || slices.ContainsFunc(records, isPartOfTree)) || errors.Is(err, ErrNotFound) {
			err = ErrExists
		}
	}
	if err != nil {
		return nil, errors.Join(err, lease.Close())
	}
	return newLeaseLog(lease, key, meta), nil
}

// isPartOfTree reports whether a record is part of a conversation. A log without one was left by a
// process that died before its first prompt was written: nobody can resume it, and its session
// starts again.
func isPartOfTree(record json.RawMessage) bool {
	return RecordUUID(record) != "" || !json.Valid(record)
}

// Open opens a session to resume it, and returns its history. The error is [ErrNotFound] if there
// is none, and [ErrLocked] if it is open.
func Open(ctx context.Context, s Store, id string, meta Meta) (Log, *History, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	if f, ok := s.(*Files); ok {
		return f.open(ctx, id, meta)
	}
	key, err := locate(ctx, s, id, nil)
	if err != nil {
		return nil, nil, err
	}
	lease, err := s.Lease(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	h, err := loadHistory(ctx, s, key)
	if err != nil {
		return nil, nil, errors.Join(err, lease.Close())
	}
	meta.ID, h.Meta.ID = id, id
	return newLeaseLog(lease, key, meta), h, nil
}

func loadHistory(ctx context.Context, s Store, key Key) (*History, error) {
	r, err := openKey(ctx, s, key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	scan, _, err := scanLog(r, r.size)
	if err != nil {
		return nil, err
	}
	return scan.history(r)
}

// Latest returns the id of the newest session that started in a directory, or [ErrNotFound].
func Latest(ctx context.Context, s Store, cwd string) (string, error) {
	if f, ok := s.(*Files); ok {
		return f.first(ctx, func(root *os.Root) []string { return projectsOf(root, cwd) }, func(d *digest) bool { return d.conversation })
	}
	return newest(ctx, s, &In{Dir: cwd}, false, func(d *digest) bool { return d.conversation })
}

// Find returns the id of the newest session with a title, or [ErrNotFound]. A title is one that
// was set, or else one that a model generated; case is ignored.
func Find(ctx context.Context, s Store, title string) (string, error) {
	title = strings.TrimSpace(title)
	if title == "" {
		return "", ErrNotFound
	}
	if f, ok := s.(*Files); ok {
		return f.first(ctx, nil, func(d *digest) bool { return d.titled(title) })
	}
	return newest(ctx, s, nil, true, func(d *digest) bool { return d.titled(title) })
}

// newest returns the newest session for which ok returns true and that is not a subagent's.
func newest(ctx context.Context, s Store, in *In, worktrees bool, ok func(*digest) bool) (string, error) {
	all, err := listed(ctx, s, in, worktrees)
	if err != nil {
		return "", err
	}
	d, err := newDigester(ctx, s)
	if err != nil {
		return "", err
	}
	for _, l := range all {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if got, err := d.digest(ctx, l); err == nil && !got.sidechain && ok(got) {
			return l.Key.Session, nil
		}
	}
	return "", ErrNotFound
}

// listed returns the sessions of a store in a place, newest first and without duplicate ids.
func listed(ctx context.Context, s Store, in *In, others bool) ([]Listed, error) {
	var all []Listed
	if in == nil || in.Dir == "" {
		var err error
		if all, err = s.List(ctx, Key{}); err != nil {
			return nil, err
		}
	} else {
		for _, project := range projectKeys(in.Dir, others) {
			some, err := s.List(ctx, Key{Project: project})
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	}
	all = slices.DeleteFunc(all, func(l Listed) bool { return !ValidID(l.Key.Session) })
	slices.SortStableFunc(all, func(a, b Listed) int {
		if c := b.Modified.Compare(a.Modified); c != 0 {
			return c
		}
		return strings.Compare(a.Key.Session, b.Key.Session)
	})
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(l Listed) bool {
		was := seen[l.Key.Session]
		seen[l.Key.Session] = true
		return was
	}), nil
}

// projectKeys returns the keys of a directory and of other worktrees of its repository.
func projectKeys(dir string, others bool) []string {
	keys := []string{ProjectKey(dir)}
	if others {
		for _, w := range worktrees(dir) {
			if key := ProjectKey(w); !slices.Contains(keys, key) {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// locate finds the key of a session.
func locate(ctx context.Context, s Store, id string, in *In) (Key, error) {
	if err := ctx.Err(); err != nil {
		return Key{}, err
	}
	if !ValidID(id) {
		return Key{}, ErrNotFound
	}
	if f, ok := s.(*Files); ok {
		root, p, err := f.at(ctx, id, in)
		if err != nil {
			return Key{}, err
		}
		root.Close()
		return Key{Project: p.project, Session: id}, nil
	}
	all, err := s.List(ctx, Key{Session: id})
	if err != nil {
		return Key{}, err
	}
	if in != nil && in.Dir != "" {
		keys := projectKeys(in.Dir, true)
		all = slices.DeleteFunc(all, func(l Listed) bool { return !slices.Contains(keys, l.Key.Project) })
	}
	if len(all) == 0 {
		return Key{}, ErrNotFound
	}
	return slices.MaxFunc(all, func(a, b Listed) int { return a.Modified.Compare(b.Modified) }).Key, nil
}

// Records returns the records of a part of a session, or of the session itself if the part is
// empty. The error is [ErrNotFound] if there are none.
func Records(ctx context.Context, s Store, id, part string, in *In) ([]json.RawMessage, error) {
	key, err := locate(ctx, s, id, in)
	if err != nil {
		return nil, err
	}
	if err := checkSub(part); err != nil {
		return nil, err
	}
	key.Sub = part
	return s.Load(ctx, key)
}

// PartHistory returns the history of a part of a session, such as the conversation of a subagent,
// to resume it. The metadata of a subagent are in Latest, under the type "agent_metadata". The
// error is [ErrNotFound] if there is none.
func PartHistory(ctx context.Context, s Store, id, part string, in *In) (*History, error) {
	records, err := Records(ctx, s, id, part, in)
	if err != nil {
		return nil, err
	}
	lines, err := joinRecords(nil, records)
	if err != nil {
		return nil, err
	}
	r := bytes.NewReader(lines)
	scan, _, err := scanLog(r, r.Size())
	if err != nil {
		return nil, err
	}
	for _, n := range scan.nodes {
		n.sidechain = false // in its own part it is the conversation
	}
	scan.link()
	h, err := scan.history(r)
	if err != nil {
		return nil, err
	}
	h.Meta.ID = id
	return h, nil
}

// An openLog is a log that is open for random access.
type openLog struct {
	io.ReaderAt
	size  int64
	close func() error
}

// Close ends reading.
func (o *openLog) Close() error {
	if o.close == nil {
		return nil
	}
	return o.close()
}

func (o *openLog) all() io.Reader { return io.NewSectionReader(o, 0, o.size) }

// openKey opens a log for reading. Another process may be writing.
func openKey(ctx context.Context, s Store, key Key) (*openLog, error) {
	if f, ok := s.(*Files); ok {
		return f.openKey(key)
	}
	records, err := s.Load(ctx, key)
	if err != nil {
		return nil, err
	}
	lines, err := joinRecords(nil, records)
	if err != nil {
		return nil, err
	}
	return &openLog{ReaderAt: bytes.NewReader(lines), size: int64(len(lines))}, nil
}

// joinRecords appends records as lines.
func joinRecords(dst []byte, records []json.RawMessage) ([]byte, error) {
	for i, r := range records {
		var err error
		if dst, err = appendLine(dst, r); err != nil {
			return nil, fmt.Errorf("session: record %d of %d: %w", i+1, len(records), err)
		}
	}
	return dst, nil
}

// A leaseLog is a log in a store other than files.
type leaseLog struct {
	lease   Lease
	key     Key
	encoder *encoder
	mu      *sync.Mutex
	ended   *bool // shared with the parts: the session is closed
	closed  bool
}

func newLeaseLog(lease Lease, key Key, meta Meta) *leaseLog {
	return &leaseLog{lease: lease, key: key, encoder: newEncoder(meta), mu: new(sync.Mutex), ended: new(bool)}
}

func (l *leaseLog) ID() string                { return l.key.Session }
func (l *leaseLog) Path() string              { return "" }
func (l *leaseLog) encoding() (Key, *encoder) { return l.key, l.encoder }

func (l *leaseLog) Append(entries ...*Entry) error {
	l.mu.Lock()
	closed := l.closed || *l.ended
	l.mu.Unlock()
	if closed {
		return ErrClosed
	}
	if m, ok := l.lease.(*memoryLease); ok {
		records, err := l.encoder.sparse(entries)
		if err != nil || len(records) == 0 {
			return err
		}
		return m.append(l.key.Sub, records)
	}
	records, err := l.encoder.records(entries)
	if err != nil || len(records) == 0 {
		return err
	}
	return l.lease.Append(context.Background(), l.key.Sub, records)
}

func (l *leaseLog) Sub(name string) (Log, error) {
	if err := checkSub(name); err != nil || name == "" {
		return nil, errors.Join(err, errNoPart(name))
	}
	part := l.key
	part.Sub = name
	return &leaseLog{lease: l.lease, key: part, encoder: l.encoder, mu: l.mu, ended: l.ended}, nil
}

func errNoPart(name string) error {
	if name == "" {
		return errors.New("session: a part has a name")
	}
	return nil
}

func (l *leaseLog) Close() error {
	l.mu.Lock()
	closed := l.closed || *l.ended
	l.closed = true
	if l.key.Sub == "" {
		*l.ended = true
	}
	l.mu.Unlock()
	if closed || l.key.Sub != "" {
		return nil
	}
	return l.lease.Close()
}
