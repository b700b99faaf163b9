// Package redis stores sessions in Redis (or Valkey), so that many machines share them:
// it is a [session.Store] and a [session.Summarizer]. It is a separate module, so that
// programs without Redis do not link it.
//
// It uses only keys that begin with [Options.Prefix]. An append makes its changes in one
// script, so that it happens completely or not at all. The durability of accepted writes
// depends on the server's configuration. Recommended for sessions:
//
//	appendonly yes
//	appendfsync always
//	maxmemory-policy noeviction
//
// One writer at a time has the lease of a session, which it renews. If it does not renew
// it for [Options.Lease], another writer may take it, and all later writes of the first
// one fail with [session.ErrLeaseLost], since the script that appends checks the lease
// first. Only the server's clock counts. If a replica that has not received the last
// writes becomes the server, these are lost, as with everything in Redis.
package redis

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/parley-go/parley/session"
)

// Options configure a [Store]. The zero value suits most uses.
type Options struct {
	// Prefix is the prefix of every key; empty means "{parley}". The braces make a
	// cluster keep all keys on one node, which the scripts need; to spread sessions over
	// a cluster, use several stores with different prefixes.
	Prefix string
	// Lease is how long a lease lasts without renewal before another writer may take the
	// session; zero means 30 seconds. It is renewed three times in that period.
	Lease time.Duration
}

// A Store stores sessions in Redis. It is safe for concurrent use.
type Store struct {
	client redis.UniversalClient
	prefix string
	lease  time.Duration
	owned  bool
}

var (
	_ session.Store      = (*Store)(nil)
	_ session.Summarizer = (*Store)(nil)
)

//go:embed append.lua
var appendSource string

//go:embed delete.lua
var deleteSource string

//go:embed lease.lua
var leaseSource string

// The scripts, which the server caches by digest. They are constant.
var (
	appendScript = redis.NewScript(appendSource)
	deleteScript = redis.NewScript(deleteSource)
	leaseScript  = redis.NewScript(leaseSource)
)

// Open returns a store on the server at an address such as "redis://user@host:6379/0".
// The store's Close closes its connections.
func Open(ctx context.Context, url string, opts *Options) (*Store, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err // it already names the package
	}
	client := redis.NewClient(o)
	if err := client.Ping(ctx).Err(); err != nil {
		client.Close()
		return nil, fmt.Errorf("redis: the server does not answer: %w", err)
	}
	s := New(client, opts)
	s.owned = true
	return s, nil
}

// New returns a store on the server of a client, which the caller keeps and closes.
func New(client redis.UniversalClient, opts *Options) *Store {
	s := &Store{client: client, prefix: "{parley}", lease: 30 * time.Second}
	if opts != nil && opts.Prefix != "" {
		s.prefix = opts.Prefix
	}
	if opts != nil && opts.Lease > 0 {
		s.lease = opts.Lease
	}
	return s
}

// Close closes the connections of a store from [Open]. For a store from [New] it does
// nothing.
func (s *Store) Close() error {
	if s.owned {
		return s.client.Close()
	}
	return nil
}

// The keys. A session is identified by "project/id", a log by its [session.Key].
//
//	log:KEY     list: the records
//	uuids:KEY   set: the uuids of the records
//	head:KEY    hash: version, modified (in milliseconds), size, summary, the last append
//	parts:NAME  set: the names of the parts of a session
//	all         set: the sessions of the store
//	in:PROJECT  set: those of a project
//	id:ID       set: those of an id
//	lease:ID    hash: who writes it, until when
//	clock       counts versions
func (s *Store) key(kind, name string) string { return s.prefix + ":" + kind + ":" + name }

func name(key session.Key) string { return key.Project + "/" + key.Session }

// Append implements [session.Store].
func (s *Store) Append(ctx context.Context, key session.Key, records []json.RawMessage) error {
	return s.append(ctx, key, "", records)
}

// append adds records, for the holder of a token if there is one. Existing records, and
// their summary, are read here; the script does nothing if the log has changed since.
func (s *Store) append(ctx context.Context, key session.Key, token string, records []json.RawMessage) error {
	if err := key.Check(); err != nil {
		return err
	}
	if err := session.CheckRecords(records); err != nil {
		return err
	}
	if len(records) == 0 && token == "" {
		return ctx.Err()
	}
	log := key.String()
	head, uuids := s.key("head", log), s.key("uuids", log)
	once := rand.Text() // the client repeats requests that a broken connection may have cut off
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		version, summary := "", []byte(nil)
		is, err := s.client.HMGet(ctx, head, "version", "summary").Result()
		if err != nil {
			return err
		}
		if v, ok := is[0].(string); ok {
			version = v
		}
		if v, ok := is[1].(string); ok {
			summary = []byte(v)
		}
		ids := make([]string, len(records))
		var ask []any
		for i, r := range records {
			if ids[i] = uuidOf(r); ids[i] != "" {
				ask = append(ask, ids[i])
			}
		}
		held := map[string]bool{}
		if len(ask) > 0 {
			found, err := s.client.SMIsMember(ctx, uuids, ask...).Result()
			if err != nil {
				return err
			}
			for i, there := range found {
				held[ask[i].(string)] = there
			}
		}
		var added []json.RawMessage
		var size int64
		args := make([]any, 0, 7+2*len(records))
		args = append(args, token, version, "", "", key.Sub, name(key), once)
		for i, r := range records {
			if ids[i] != "" {
				if held[ids[i]] {
					continue
				}
				held[ids[i]] = true
			}
			added = append(added, r)
			size += int64(len(r)) + 1
			args = append(args, ids[i], []byte(r))
		}
		if args[2] = size; key.Sub == "" {
			args[3] = []byte(session.Fold(summary, added))
		}
		keys := []string{
			s.key("lease", key.Session), head, s.key("log", log), uuids, s.prefix + ":clock",
			s.key("parts", name(key)), s.prefix + ":all", s.key("in", key.Project), s.key("id", key.Session),
		}
		said, err := appendScript.Run(ctx, s.client, keys, args...).Text()
		switch {
		case err != nil:
			return err
		case said == "lost":
			return session.ErrLeaseLost
		case said == "ok":
			return nil
		}
	}
}

// uuidOf returns the stored, short form of a record's uuid.
func uuidOf(record json.RawMessage) string {
	id := session.RecordUUID(record)
	if len(id) > 64 {
		sum := sha256.Sum256([]byte(id))
		return string(sum[:])
	}
	return id
}

// Load implements [session.Store].
func (s *Store) Load(ctx context.Context, key session.Key) ([]json.RawMessage, error) {
	if err := errors.Join(ctx.Err(), key.Check()); err != nil {
		return nil, err
	}
	all, err := s.client.LRange(ctx, s.key("log", key.String()), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, session.ErrNotFound
	}
	records := make([]json.RawMessage, len(all))
	for i, r := range all {
		records[i] = json.RawMessage(r)
	}
	return records, nil
}

// List implements [session.Store].
func (s *Store) List(ctx context.Context, match session.Key) ([]session.Listed, error) {
	var all []session.Listed
	err := s.heads(ctx, match, func(key session.Key, modified time.Time, size int64, _ string) {
		all = append(all, session.Listed{Key: key, Modified: modified, Size: size})
	})
	return all, err
}

// Summaries implements [session.Summarizer].
func (s *Store) Summaries(ctx context.Context, project string) ([]session.Summary, error) {
	var all []session.Summary
	err := s.heads(ctx, session.Key{Project: project}, func(key session.Key, modified time.Time, _ int64, summary string) {
		all = append(all, session.Summary{Key: key, Modified: modified, Data: json.RawMessage(summary)})
	})
	return all, err
}

// heads iterates over the metadata of sessions.
func (s *Store) heads(ctx context.Context, match session.Key, each func(key session.Key, modified time.Time, size int64, summary string)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	set := s.prefix + ":all"
	if match.Session != "" {
		set = s.key("id", match.Session)
	} else if match.Project != "" {
		set = s.key("in", match.Project)
	}
	names, err := s.client.SMembers(ctx, set).Result()
	if err != nil {
		return err
	}
	const atOnce = 500
	for len(names) > 0 {
		some := names[:min(atOnce, len(names))]
		names = names[len(some):]
		asked := make([]*redis.SliceCmd, len(some))
		_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, n := range some {
				asked[i] = p.HMGet(ctx, s.key("head", n), "modified", "size", "summary")
			}
			return nil
		})
		if err != nil {
			return err
		}
		for i, n := range some {
			project, id, _ := strings.Cut(n, "/")
			is := asked[i].Val()
			modified, ok := is[0].(string)
			if !ok || match.Project != "" && match.Project != project {
				continue // just deleted, or another session
			}
			ms, _ := strconv.ParseInt(modified, 10, 64)
			text, _ := is[1].(string)
			size, _ := strconv.ParseInt(text, 10, 64)
			summary, _ := is[2].(string)
			each(session.Key{Project: project, Session: id}, time.UnixMilli(ms), size, summary)
		}
	}
	return nil
}

// Delete implements [session.Store].
func (s *Store) Delete(ctx context.Context, key session.Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if key.Check() != nil {
		return nil // there is no such log
	}
	keys := []string{s.key("parts", name(key)), s.prefix + ":all", s.key("in", key.Project), s.key("id", key.Session)}
	return deleteScript.Run(ctx, s.client, keys, s.prefix, name(key), key.Sub).Err()
}

// Subkeys implements [session.Store].
func (s *Store) Subkeys(ctx context.Context, key session.Key) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return s.client.SMembers(ctx, s.key("parts", name(key))).Result()
}

// Lease implements [session.Store].
func (s *Store) Lease(ctx context.Context, key session.Key) (session.Lease, error) {
	if err := errors.Join(ctx.Err(), key.Check()); err != nil {
		return nil, err
	}
	token := rand.Text()
	// ask takes, renews or releases the lease; lost is the error if another process has
	// it.
	ask := func(ctx context.Context, what string, lost error) error {
		said, err := leaseScript.Run(ctx, s.client, []string{s.key("lease", key.Session)}, what, token, s.lease.Milliseconds()).Text()
		if err == nil && said != "ok" {
			err = lost
		}
		return err
	}
	if err := ask(ctx, "take", session.ErrLocked); err != nil {
		return nil, err
	}
	return session.Renewal{
		Length: s.lease,
		Renew:  func(ctx context.Context) error { return ask(ctx, "keep", session.ErrLeaseLost) },
		Append: func(ctx context.Context, sub string, records []json.RawMessage) error {
			return s.append(ctx, session.Key{Project: key.Project, Session: key.Session, Sub: sub}, token, records)
		},
		Release: func(ctx context.Context) error { return ask(ctx, "drop", nil) },
	}.Lease(), nil
}
