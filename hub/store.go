package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/parley-go/parley/session"
)

// recordLogs are the logs that have records in a journal, by their keys.
type recordLogs map[string]*recordLog

type recordLog struct {
	uuids    map[string]bool
	size     int64
	modified time.Time
}

// add processes a record. A record that is null removes its log.
func (l *recordLogs) add(e *Entry) {
	if string(e.Data) == "null" {
		delete(*l, e.Log)
		return
	}
	if *l == nil {
		*l = recordLogs{}
	}
	log := (*l)[e.Log]
	if log == nil {
		log = &recordLog{uuids: map[string]bool{}}
		(*l)[e.Log] = log
	}
	if id := session.RecordUUID(e.Data); id != "" {
		log.uuids[id] = true
	}
	log.size += int64(len(e.Data)) + 1
	if !e.Time.After(log.modified) { // modified always increases
		log.modified = log.modified.Add(time.Millisecond)
	} else {
		log.modified = e.Time
	}
}

// store returns the store that keeps the records of an agent in the session's journal,
// so that there is one log, one writer and one fence.
func (r *room) store() session.Store { return &journalStore{r} }

type journalStore struct{ r *room }

var _ session.Store = (*journalStore)(nil)

// Append implements [session.Store].
func (s *journalStore) Append(ctx context.Context, key session.Key, records []json.RawMessage) error {
	if err := errors.Join(ctx.Err(), key.Check(), session.CheckRecords(records)); err != nil || len(records) == 0 {
		return err
	}
	lines := make([]json.RawMessage, len(records))
	for i, rec := range records {
		var line bytes.Buffer
		if err := json.Compact(&line, rec); err != nil {
			return err
		}
		lines[i] = line.Bytes()
	}
	return s.write(ctx, func(x *tx) error {
		for _, line := range lines {
			id := session.RecordUUID(line)
			if log := s.r.records[key.String()]; log != nil && id != "" && log.uuids[id] {
				continue
			}
			s.r.records.add(x.append(KindRecord, line, func(e *Entry) { e.Log = key.String() }))
		}
		return nil
	})
}

func (s *journalStore) write(ctx context.Context, f func(*tx) error) error {
	err := s.r.do(ctx, func(x *tx) error {
		if s.r.lease == nil {
			return session.ErrLeaseLost
		}
		return f(x)
	})
	if errors.Is(err, ErrConflict) || errors.Is(err, ErrLocked) {
		return session.ErrLeaseLost
	}
	return err
}

// Load implements [session.Store].
func (s *journalStore) Load(ctx context.Context, key session.Key) ([]json.RawMessage, error) {
	var all []json.RawMessage
	if err := key.Check(); err != nil {
		return nil, err
	}
	for e, err := range s.r.hub.cfg.Backend.Read(ctx, s.r.id, 0, false) {
		switch {
		case err != nil:
			return nil, err
		case e.Kind != KindRecord || e.Log != key.String():
		case string(e.Data) == "null":
			all = nil
		default:
			all = append(all, e.Data)
		}
	}
	if all == nil {
		return nil, session.ErrNotFound
	}
	return all, nil
}

// each calls f with every log.
func (s *journalStore) each(ctx context.Context, f func(session.Key, *recordLog)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.r.do(ctx, func(*tx) error {
		for name, log := range s.r.records {
			f(session.ParseKey(name), log)
		}
		return nil
	})
}

// List implements [session.Store].
func (s *journalStore) List(ctx context.Context, match session.Key) (all []session.Listed, err error) {
	err = s.each(ctx, func(key session.Key, log *recordLog) {
		if key.Sub == "" && (match.Project == "" || match.Project == key.Project) && (match.Session == "" || match.Session == key.Session) {
			all = append(all, session.Listed{Key: key, Modified: log.modified, Size: log.size})
		}
	})
	return all, err
}

// Subkeys implements [session.Store].
func (s *journalStore) Subkeys(ctx context.Context, key session.Key) (all []string, err error) {
	err = s.each(ctx, func(k session.Key, _ *recordLog) {
		if k.Sub != "" && k.Project == key.Project && k.Session == key.Session {
			all = append(all, k.Sub)
		}
	})
	return all, err
}

// Delete implements [session.Store]. The records stay in the journal but no longer
// count.
func (s *journalStore) Delete(ctx context.Context, key session.Key) error {
	if err := errors.Join(ctx.Err(), key.Check()); err != nil {
		return err
	}
	return s.write(ctx, func(x *tx) error {
		for name := range maps.Clone(s.r.records) {
			k := session.ParseKey(name)
			if k == key || key.Sub == "" && k.Project == key.Project && k.Session == key.Session {
				s.r.records.add(x.append(KindRecord, json.RawMessage("null"), func(e *Entry) { e.Log = name }))
			}
		}
		return nil
	})
}

// Lease implements [session.Store]. It is part of the lease of the room.
func (s *journalStore) Lease(ctx context.Context, key session.Key) (session.Lease, error) {
	if err := errors.Join(ctx.Err(), key.Check()); err != nil {
		return nil, err
	}
	l := &journalLease{s, key}
	err := s.r.do(ctx, func(*tx) error {
		if s.r.logLeases[key.Session] != nil {
			return session.ErrLocked
		}
		s.r.logLeases[key.Session] = l
		return nil
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

type journalLease struct {
	store *journalStore
	key   session.Key
}

// Append implements [session.Lease].
func (l *journalLease) Append(ctx context.Context, sub string, records []json.RawMessage) error {
	held := false
	err := l.store.r.do(ctx, func(*tx) error {
		held = l.store.r.logLeases[l.key.Session] == l
		return nil
	})
	switch {
	case err != nil:
		return session.ErrLeaseLost
	case !held:
		return session.ErrClosed
	}
	key := l.key
	key.Sub = sub
	return l.store.Append(ctx, key, records)
}

// Close implements [session.Lease].
func (l *journalLease) Close() error {
	l.store.r.do(context.Background(), func(*tx) error {
		if l.store.r.logLeases[l.key.Session] == l {
			delete(l.store.r.logLeases, l.key.Session)
		}
		return nil
	})
	return nil
}
