// Package postgres stores sessions in PostgreSQL, so that many machines share them: it
// is a [session.Store] and a [session.Summarizer]. It is a separate module, so that
// programs without a database do not link it.
//
// It uses three tables, whose names begin with "parley_" in the schema of the
// connection's search_path, and creates them if they are missing. Records are stored
// byte for byte, as bytea, since jsonb does not support every text and every number:
//
//	select convert_from(record, 'UTF8')::json from parley_records order by log, seq
//
// One writer at a time has the lease of a session. It is a row that the holder renews.
// If the holder does not renew it for [Options.Lease], another writer may take it, and
// all later writes of the first one fail with [session.ErrLeaseLost]. Only the
// database's clock counts. The package does not interpret records.
package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/parley-go/parley/session"
)

//go:embed schema.sql
var schema string

// Options configure a [Store]. The zero value suits most uses.
type Options struct {
	// Lease is how long a lease lasts without renewal before another writer may take
	// the session; zero means 30 seconds. It is renewed three times in that period.
	Lease time.Duration
	// NoSchema skips creating the tables: they were created with [Schema]. The role of
	// the connection then needs no right to create anything.
	NoSchema bool
}

// Schema returns the statements that create the tables, for callers that run them
// themselves. They can be repeated.
func Schema() string { return schema }

// A Store stores sessions in a database. It is safe for concurrent use.
type Store struct {
	pool  *pgxpool.Pool
	lease time.Duration
	owned bool
}

var (
	_ session.Store      = (*Store)(nil)
	_ session.Summarizer = (*Store)(nil)
)

// Open connects to a database, given as "postgres://user@host/database" or in any other
// form that pgx and libpq support, and creates the tables. The store's Close closes the
// connections.
func Open(ctx context.Context, dsn string, opts *Options) (*Store, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	s, err := New(ctx, pool, opts)
	if err != nil {
		pool.Close()
		return nil, err
	}
	s.owned = true
	return s, nil
}

// New returns a store in the database of a pool, which the caller keeps and closes,
// and creates the tables.
func New(ctx context.Context, pool *pgxpool.Pool, opts *Options) (*Store, error) {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{pool: pool, lease: opts.Lease}
	if s.lease <= 0 {
		s.lease = 30 * time.Second
	}
	if opts.NoSchema {
		return s, nil
	}
	// Creating tables concurrently fails, even with "if not exists".
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtext('parley_sessions'))"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, schema)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: the tables of sessions cannot be made (see postgres.Schema): %w", err)
	}
	return s, nil
}

// Close closes the connections of a store from [Open]. For a store from [New] it does
// nothing.
func (s *Store) Close() {
	if s.owned {
		s.pool.Close()
	}
}

// Append implements [session.Store].
func (s *Store) Append(ctx context.Context, key session.Key, records []json.RawMessage) error {
	return s.append(ctx, key, nil, records)
}

// append adds records, for the holder of a token if there is one.
func (s *Store) append(ctx context.Context, key session.Key, token []byte, records []json.RawMessage) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := key.Check(); err != nil {
		return err
	}
	if err := session.CheckRecords(records); err != nil {
		return err
	}
	if len(records) == 0 && token == nil {
		return nil
	}
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if token != nil {
			// The row stays locked until the records are stored: a process that takes
			// the lease waits for them.
			var one int
			err := tx.QueryRow(ctx, "select 1 from parley_leases where session = $1 and token = $2 for share", key.Session, token).Scan(&one)
			if errors.Is(err, pgx.ErrNoRows) {
				return session.ErrLeaseLost
			}
			if err != nil || len(records) == 0 {
				return err
			}
		}
		return add(ctx, tx, key, records)
	})
}

// add adds records in a transaction. The row of the log is its lock.
func add(ctx context.Context, tx pgx.Tx, key session.Key, records []json.RawMessage) error {
	var log, next, size int64
	var summary []byte
	err := tx.QueryRow(ctx, `insert into parley_logs (project, session, sub) values ($1, $2, $3)
		on conflict (project, session, sub) do update set sub = excluded.sub
		returning id, next, size, summary`, key.Project, key.Session, key.Sub).Scan(&log, &next, &size, &summary)
	if err != nil {
		return err
	}
	uuids := make([][]byte, len(records))
	for i, r := range records {
		uuids[i] = uuidOf(r)
	}
	rows, err := tx.Query(ctx, "select uuid from parley_records where log = $1 and uuid = any($2)", log, uuids)
	if err != nil {
		return err
	}
	there, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return err
	}
	held := map[string]bool{}
	for _, id := range there {
		held[string(id)] = true
	}
	var added []json.RawMessage
	var ids, raw [][]byte
	for i, r := range records {
		if id := uuids[i]; id != nil {
			if held[string(id)] {
				continue
			}
			held[string(id)] = true
		}
		ids, raw, added = append(ids, uuids[i]), append(raw, r), append(added, r)
		size += int64(len(r)) + 1
	}
	if key.Sub == "" {
		summary = session.Fold(summary, added)
	}
	_, err = tx.Exec(ctx, `insert into parley_records (log, seq, uuid, record)
		select $1, $2 + n, uuid, record from unnest($3::bytea[], $4::bytea[]) with ordinality as r (uuid, record, n)`, log, next, ids, raw)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `update parley_logs set next = $2, size = $3, summary = $4,
		modified = greatest(clock_timestamp(), modified + interval '1 millisecond') where id = $1`, log, next+int64(len(added)), size, summary)
	return err
}

// uuidOf returns the stored form of a record's uuid: short, since it is in an index.
func uuidOf(record json.RawMessage) []byte {
	id := session.RecordUUID(record)
	if id == "" {
		return nil
	}
	if len(id) > 64 {
		sum := sha256.Sum256([]byte(id))
		return sum[:]
	}
	return []byte(id)
}

// Load implements [session.Store].
func (s *Store) Load(ctx context.Context, key session.Key) ([]json.RawMessage, error) {
	if err := key.Check(); err != nil {
		return nil, err
	}
	rows, err := s.pool.Query(ctx, `select record from parley_records join parley_logs on log = id
		where project = $1 and session = $2 and sub = $3 order by seq`, key.Project, key.Session, key.Sub)
	if err != nil {
		return nil, err
	}
	records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (json.RawMessage, error) {
		var r []byte
		err := row.Scan(&r)
		return r, err
	})
	if err == nil && len(records) == 0 {
		err = session.ErrNotFound
	}
	return records, err
}

// List implements [session.Store].
func (s *Store) List(ctx context.Context, match session.Key) ([]session.Listed, error) {
	rows, err := s.pool.Query(ctx, `select project, session, modified, size from parley_logs
		where sub = '' and ($1 = '' or project = $1) and ($2 = '' or session = $2)`, match.Project, match.Session)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (session.Listed, error) {
		var l session.Listed
		err := row.Scan(&l.Key.Project, &l.Key.Session, &l.Modified, &l.Size)
		return l, err
	})
}

// Summaries implements [session.Summarizer].
func (s *Store) Summaries(ctx context.Context, project string) ([]session.Summary, error) {
	rows, err := s.pool.Query(ctx, `select project, session, modified, summary from parley_logs
		where sub = '' and ($1 = '' or project = $1)`, project)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (session.Summary, error) {
		var z session.Summary
		err := row.Scan(&z.Key.Project, &z.Key.Session, &z.Modified, (*[]byte)(&z.Data))
		return z, err
	})
}

// Delete implements [session.Store].
func (s *Store) Delete(ctx context.Context, key session.Key) error {
	_, err := s.pool.Exec(ctx, `delete from parley_logs where project = $1 and session = $2 and ($3 = '' or sub = $3)`,
		key.Project, key.Session, key.Sub)
	return err
}

// Subkeys implements [session.Store].
func (s *Store) Subkeys(ctx context.Context, key session.Key) ([]string, error) {
	rows, err := s.pool.Query(ctx, "select sub from parley_logs where project = $1 and session = $2 and sub <> ''", key.Project, key.Session)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// Lease implements [session.Store].
func (s *Store) Lease(ctx context.Context, key session.Key) (session.Lease, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := key.Check(); err != nil {
		return nil, err
	}
	token := make([]byte, 16)
	rand.Read(token)
	tag, err := s.pool.Exec(ctx, `insert into parley_leases (session, token, expires) values ($1, $2, clock_timestamp() + $3)
		on conflict (session) do update set token = excluded.token, expires = excluded.expires
		where parley_leases.expires < clock_timestamp()`, key.Session, token, s.lease)
	if err != nil {
		return nil, err
	}
	if tag.RowsAffected() == 0 {
		return nil, session.ErrLocked
	}
	return session.Renewal{
		Length: s.lease,
		Renew: func(ctx context.Context) error {
			tag, err := s.pool.Exec(ctx, "update parley_leases set expires = clock_timestamp() + $3 where session = $1 and token = $2", key.Session, token, s.lease)
			if err == nil && tag.RowsAffected() == 0 {
				err = session.ErrLeaseLost
			}
			return err
		},
		Append: func(ctx context.Context, sub string, records []json.RawMessage) error {
			return s.append(ctx, session.Key{Project: key.Project, Session: key.Session, Sub: sub}, token, records)
		},
		Release: func(ctx context.Context) error {
			_, err := s.pool.Exec(ctx, "delete from parley_leases where session = $1 and token = $2", key.Session, token)
			return err
		},
	}.Lease(), nil
}
