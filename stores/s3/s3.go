// Package s3 stores sessions in a bucket of S3 or of a compatible server, so that many
// machines share them: it is a [session.Store] and a [session.Summarizer]. It is a
// separate module, so that programs without S3 do not link it.
//
// A session is one object, its head: its writer, the newest records, and the names of segments, objects
// that hold the older records and never change. Every change is a conditional write of the head
// (If-Match, If-None-Match): it succeeds only if the head is still the one that was read. So a change
// happens completely or not at all, and a writer that has lost its lease cannot write, however late it
// tries. The server must support such conditions, as do S3 and recent versions of MinIO, Ceph, R2 and
// Garage; [New] checks that.
//
// The holder of a lease renews it. If the holder does not renew it for [Options.Lease]
// and one second more, which is the resolution of the server's clock, another process
// may take it. Only the server's clock counts. A list reads the head of each session
// that has changed since the last list. A deleted session leaves a head without
// records, some 20 bytes, since not every server supports conditional deletes.
package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithy "github.com/aws/smithy-go/middleware"

	"github.com/parley-go/parley/session"
)

// Options configure a [Store]. The zero value suits most uses.
type Options struct {
	// Prefix is the prefix of every object name; empty means "parley/".
	Prefix string
	// Lease is how long a lease lasts without renewal before another writer may take
	// the session; zero means 30 seconds. It is renewed three times in that period.
	Lease time.Duration
}

// A Store stores sessions in a bucket. It is safe for concurrent use.
type Store struct {
	client *s3.Client
	bucket string
	prefix string
	lease  time.Duration
	ahead  atomic.Int64 // by how many nanoseconds the server's clock is ahead of ours

	turns [256]chan struct{} // serializes changes of a session in this process
	seed  maphash.Seed

	mu    sync.Mutex
	heads map[string]*head               // by the id of the session; each may be outdated
	rows  map[string]*row                // information for lists, by session
	uuids map[string]map[string]struct{} // of the records of a segment
}

var (
	_ session.Store      = (*Store)(nil)
	_ session.Summarizer = (*Store)(nil)
)

// Cache sizes that save requests: heads, and segments whose uuids are known.
const maxHeads, maxSegments = 128, 512

// New returns a store in a bucket. It checks whether the server supports
// conditional writes, and fails if it does not: two writers would overwrite
// each other.
func New(ctx context.Context, client *s3.Client, bucket string, opts *Options) (*Store, error) {
	s := &Store{client: client, bucket: bucket, prefix: "parley/", lease: 30 * time.Second, seed: maphash.MakeSeed(),
		heads: map[string]*head{}, rows: map[string]*row{}, uuids: map[string]map[string]struct{}{}}
	if opts != nil && opts.Prefix != "" {
		s.prefix = opts.Prefix
	}
	if opts != nil && opts.Lease > 0 {
		s.lease = opts.Lease
	}
	for i := range s.turns {
		s.turns[i] = make(chan struct{}, 1)
	}
	probe := s.prefix + "conditional"
	if _, err := s.put(ctx, probe, []byte("1"), ""); err != nil && !conflict(err) {
		return nil, fmt.Errorf("s3: bucket %s: %w", bucket, err)
	}
	_, twice := s.put(ctx, probe, []byte("1"), "")
	_, other := s.put(ctx, probe, []byte("1"), `"00000000000000000000000000000000"`)
	for _, err := range []error{twice, other} {
		if err == nil {
			return nil, fmt.Errorf("s3: the server of bucket %s ignores If-None-Match or If-Match when it writes, so writers of a session could not be kept apart; use a newer one", bucket)
		}
		if !conflict(err) {
			return nil, fmt.Errorf("s3: bucket %s: %w", bucket, err)
		}
	}
	return s, nil
}

// A head is the state of a session. It is immutable: a change creates another one.
type head struct {
	Lease *holder `json:"lease,omitempty"`
	Logs  []*log  `json:"logs,omitempty"`
	Last  string  `json:"last,omitempty"` // identifies the change that created it

	etag string // empty if the object does not exist
}

// A holder is the writer of the session.
type holder struct {
	Token   string `json:"token"`
	Expires int64  `json:"expires"` // in milliseconds, by the server's clock
}

// A log is the session in one project, or a part of it.
type log struct {
	Project  string            `json:"project"`
	Sub      string            `json:"sub,omitempty"`
	Modified int64             `json:"modified"` // in milliseconds, by the server's clock
	Size     int64             `json:"size"`
	Summary  json.RawMessage   `json:"summary,omitempty"`
	Segments []string          `json:"segments,omitempty"` // the older records
	Tail     []json.RawMessage `json:"tail,omitempty"`     // the newer ones
}

func (h *head) find(key session.Key) int {
	return slices.IndexFunc(h.Logs, func(l *log) bool { return l.Project == key.Project && l.Sub == key.Sub })
}

// names reports whether a log contains any of the given segments.
func (h *head) names(segments []string) bool {
	return slices.ContainsFunc(h.Logs, func(l *log) bool {
		return slices.ContainsFunc(segments, func(name string) bool { return slices.Contains(l.Segments, name) })
	})
}

// A row is the information of a head for lists.
type row struct {
	etag string
	logs []*log // sessions only, without records
}

func (s *Store) headName(id string) string { return s.prefix + "heads/" + id }

func (s *Store) segmentName(id, name string) string { return s.prefix + "segments/" + id + "/" + name }

// Append implements [session.Store].
func (s *Store) Append(ctx context.Context, key session.Key, records []json.RawMessage) error {
	return s.append(ctx, key, "", records)
}

// append adds records, for the holder of a token if there is one.
func (s *Store) append(ctx context.Context, key session.Key, token string, records []json.RawMessage) error {
	if err := errors.Join(ctx.Err(), key.Check(), session.CheckRecords(records)); err != nil || len(records) == 0 {
		return err
	}
	lines := make([]json.RawMessage, len(records))
	for i, r := range records {
		var line bytes.Buffer
		if err := json.Compact(&line, r); err != nil {
			return err
		}
		lines[i] = line.Bytes()
	}
	var written []string // segments that no head names yet
	return s.change(ctx, key.Session, token, func(h *head) (bool, error) {
		if !h.names(written) { // otherwise it was written after all, and then changed by another process
			s.remove(key.Session, written)
		}
		written = nil
		l := &log{Project: key.Project, Sub: key.Sub}
		at := h.find(key)
		if at >= 0 {
			*l = *h.Logs[at]
		}
		added, err := s.fresh(ctx, key.Session, l, lines)
		if err != nil {
			return false, err
		}
		tail := slices.Concat(l.Tail, added)
		for _, r := range added {
			l.Size += int64(len(r)) + 1
		}
		if size(tail) > max(32<<10, min(l.Size/32, 256<<10)) {
			name, err := s.putSegment(ctx, key.Session, tail)
			if err != nil {
				return false, err
			}
			written = append(written, name)
			l.Segments, tail = append(slices.Clip(l.Segments), name), nil
		}
		l.Tail = tail
		if key.Sub == "" {
			l.Summary = session.Fold(l.Summary, added)
		}
		l.Modified = max(s.now().UnixMilli(), l.Modified+1)
		if at < 0 {
			h.Logs = append(slices.Clip(h.Logs), l)
		} else {
			h.Logs = slices.Clone(h.Logs)
			h.Logs[at] = l
		}
		return true, nil
	})
}

func size(records []json.RawMessage) int64 {
	var n int64
	for _, r := range records {
		n += int64(len(r)) + 1
	}
	return n
}

// fresh returns the records that a log does not contain.
func (s *Store) fresh(ctx context.Context, id string, l *log, records []json.RawMessage) ([]json.RawMessage, error) {
	held := map[string]struct{}{}
	var added []json.RawMessage
	known := false
	for _, r := range records {
		uuid := session.RecordUUID(r)
		if uuid == "" {
			added = append(added, r)
			continue
		}
		if !known { // records without a uuid need not be looked up
			known = true
			for _, name := range l.Segments {
				some, err := s.segmentUUIDs(ctx, id, name)
				if err != nil {
					return nil, err
				}
				maps.Copy(held, some)
			}
			maps.Copy(held, uuidsOf(l.Tail))
		}
		if _, ok := held[uuid]; !ok {
			held[uuid] = struct{}{}
			added = append(added, r)
		}
	}
	return added, nil
}

func uuidsOf(records []json.RawMessage) map[string]struct{} {
	all := map[string]struct{}{}
	for _, r := range records {
		if id := session.RecordUUID(r); id != "" {
			all[id] = struct{}{}
		}
	}
	return all
}

func (s *Store) segmentUUIDs(ctx context.Context, id, name string) (map[string]struct{}, error) {
	s.mu.Lock()
	known, ok := s.uuids[name]
	s.mu.Unlock()
	if ok {
		return known, nil
	}
	records, err := s.segment(ctx, id, name)
	if err != nil {
		return nil, err
	}
	known = uuidsOf(records)
	s.remember(name, known)
	return known, nil
}

func (s *Store) remember(segment string, uuids map[string]struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.uuids {
		if len(s.uuids) < maxSegments {
			break
		}
		delete(s.uuids, name)
	}
	s.uuids[segment] = uuids
}

func (s *Store) putSegment(ctx context.Context, id string, records []json.RawMessage) (name string, err error) {
	var lines bytes.Buffer
	for _, r := range records {
		lines.Write(r)
		lines.WriteByte('\n')
	}
	name = rand.Text() + ".jsonl"
	if _, err := s.put(ctx, s.segmentName(id, name), lines.Bytes(), ""); err != nil && !conflict(err) {
		return "", err // a conflict with itself: the client repeats requests that may have succeeded
	}
	s.remember(name, uuidsOf(records))
	return name, nil
}

func (s *Store) segment(ctx context.Context, id, name string) ([]json.RawMessage, error) {
	data, _, err := s.get(ctx, s.segmentName(id, name))
	if err != nil {
		return nil, err
	}
	var records []json.RawMessage
	for line := range bytes.Lines(data) {
		records = append(records, json.RawMessage(bytes.TrimSuffix(line, []byte("\n"))))
	}
	return records, nil
}

// remove removes unreferenced segments. A failure is harmless.
func (s *Store) remove(id string, segments []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, name := range segments {
		s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: aws.String(s.segmentName(id, name))})
	}
}

// change changes the head of a session. It passes a copy to f and retries until nobody
// else has changed the head meanwhile. f reports whether there is anything to write.
// With a token it fails with [session.ErrLeaseLost] if another process has the lease.
func (s *Store) change(ctx context.Context, id, token string, f func(*head) (bool, error)) error {
	turn := s.turns[maphash.String(s.seed, id)%uint64(len(s.turns))]
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	this := rand.Text()
	h := s.remembered(id)
	for pause := time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		remembered := h != nil
		if !remembered {
			var err error
			if h, err = s.read(ctx, id); err != nil {
				return err
			}
		}
		if h.Last == this {
			return nil // the client repeated the request, and conflicted with itself
		}
		if token != "" && (h.Lease == nil || h.Lease.Token != token) {
			if remembered {
				h = nil
				continue
			}
			return session.ErrLeaseLost
		}
		next := *h
		changed, err := f(&next)
		if err != nil && remembered { // the error may come from an outdated head
			h = nil
			continue
		}
		if err != nil || !changed {
			return err
		}
		next.Last = this
		var body bytes.Buffer
		e := json.NewEncoder(&body)
		e.SetEscapeHTML(false)
		if err := e.Encode(&next); err != nil {
			return err
		}
		next.etag, err = s.put(ctx, s.headName(id), body.Bytes(), h.etag)
		if err == nil {
			s.keep(id, &next)
			return nil
		}
		s.keep(id, nil)
		if !conflict(err) {
			return err
		}
		h = nil
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Store) remembered(id string) *head {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heads[id]
}

// keep caches the head of a session, or removes it from the cache.
func (s *Store) keep(id string, h *head) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h == nil {
		delete(s.heads, id)
		return
	}
	for other := range s.heads {
		if len(s.heads) < maxHeads {
			break
		}
		delete(s.heads, other)
	}
	s.heads[id] = h
}

// read reads the head of a session; it is empty if there is none.
func (s *Store) read(ctx context.Context, id string) (*head, error) {
	data, etag, err := s.get(ctx, s.headName(id))
	if errors.Is(err, session.ErrNotFound) {
		return &head{}, nil
	}
	if err != nil {
		return nil, err
	}
	h := &head{}
	if err := json.Unmarshal(data, h); err != nil {
		return nil, fmt.Errorf("s3: the object %s is not the head of a session: %w", s.headName(id), err)
	}
	h.etag = etag
	return h, nil
}

// Load implements [session.Store].
func (s *Store) Load(ctx context.Context, key session.Key) ([]json.RawMessage, error) {
	if err := errors.Join(ctx.Err(), key.Check()); err != nil {
		return nil, err
	}
	for again := false; ; again = true {
		h, err := s.read(ctx, key.Session)
		if err != nil {
			return nil, err
		}
		at := h.find(key)
		if at < 0 {
			return nil, session.ErrNotFound
		}
		l := h.Logs[at]
		parts := make([][]json.RawMessage, len(l.Segments), len(l.Segments)+1)
		err = each(ctx, len(l.Segments), func(ctx context.Context, i int) (err error) {
			parts[i], err = s.segment(ctx, key.Session, l.Segments[i])
			return err
		})
		if errors.Is(err, session.ErrNotFound) {
			if !again {
				continue // it was deleted meanwhile
			}
			err = fmt.Errorf("s3: a segment of the session %s is missing", key.Session)
		}
		if err != nil {
			return nil, err
		}
		return slices.Concat(append(parts, l.Tail)...), nil
	}
}

// List implements [session.Store].
func (s *Store) List(ctx context.Context, match session.Key) ([]session.Listed, error) {
	var all []session.Listed
	err := s.list(ctx, match, func(key session.Key, l *log) {
		all = append(all, session.Listed{Key: key, Modified: time.UnixMilli(l.Modified), Size: l.Size})
	})
	return all, err
}

// Summaries implements [session.Summarizer].
func (s *Store) Summaries(ctx context.Context, project string) ([]session.Summary, error) {
	var all []session.Summary
	err := s.list(ctx, session.Key{Project: project}, func(key session.Key, l *log) {
		all = append(all, session.Summary{Key: key, Modified: time.UnixMilli(l.Modified), Data: slices.Clone(l.Summary)})
	})
	return all, err
}

// list iterates over the sessions of a store. It reads the heads that have changed.
func (s *Store) list(ctx context.Context, match session.Key, f func(session.Key, *log)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	tell := func(id string, logs []*log) {
		for _, l := range logs {
			if l.Sub == "" && (match.Project == "" || match.Project == l.Project) {
				f(session.Key{Project: l.Project, Session: id}, l)
			}
		}
	}
	if match.Session != "" {
		if !session.ValidID(match.Session) {
			return nil
		}
		h, err := s.read(ctx, match.Session)
		if err != nil {
			return err
		}
		tell(match.Session, h.Logs)
		return nil
	}
	etags := map[string]string{}
	under := s.prefix + "heads/"
	pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: &under})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, o := range page.Contents {
			if id := strings.TrimPrefix(aws.ToString(o.Key), under); session.ValidID(id) {
				etags[id] = aws.ToString(o.ETag)
			}
		}
	}
	rows := map[string]*row{}
	var changed []string
	s.mu.Lock()
	for id, etag := range etags {
		if r := s.rows[id]; r != nil && r.etag == etag && etag != "" {
			rows[id] = r
		} else {
			changed = append(changed, id)
		}
	}
	s.mu.Unlock()
	read := make([]*row, len(changed))
	err := each(ctx, len(changed), func(ctx context.Context, i int) error {
		h, err := s.read(ctx, changed[i])
		if err != nil {
			return err
		}
		read[i] = &row{etag: h.etag}
		for _, l := range h.Logs {
			if l.Sub == "" {
				slim := *l
				slim.Segments, slim.Tail = nil, nil
				read[i].logs = append(read[i].logs, &slim)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, id := range changed {
		rows[id] = read[i]
	}
	s.mu.Lock()
	s.rows = rows
	s.mu.Unlock()
	for id, r := range rows {
		tell(id, r.logs)
	}
	return nil
}

// each calls f with the numbers below n, some concurrently, until one fails.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(16, n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// Delete implements [session.Store].
func (s *Store) Delete(ctx context.Context, key session.Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if key.Check() != nil {
		return nil // there is no such log
	}
	var gone []string
	s.keep(key.Session, nil) // the cached head may be older than the log to delete
	err := s.change(ctx, key.Session, "", func(h *head) (bool, error) {
		var left []*log
		gone = nil
		for _, l := range h.Logs {
			if l.Project == key.Project && (key.Sub == "" || key.Sub == l.Sub) {
				gone = append(gone, l.Segments...)
			} else {
				left = append(left, l)
			}
		}
		changed := len(left) < len(h.Logs)
		h.Logs = left
		return changed, nil
	})
	if err == nil {
		s.remove(key.Session, gone)
	}
	return err
}

// Subkeys implements [session.Store].
func (s *Store) Subkeys(ctx context.Context, key session.Key) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !session.ValidID(key.Session) {
		return nil, nil
	}
	h, err := s.read(ctx, key.Session)
	if err != nil {
		return nil, err
	}
	var subs []string
	for _, l := range h.Logs {
		if l.Project == key.Project && l.Sub != "" {
			subs = append(subs, l.Sub)
		}
	}
	return subs, nil
}

// Lease implements [session.Store].
func (s *Store) Lease(ctx context.Context, key session.Key) (session.Lease, error) {
	if err := errors.Join(ctx.Err(), key.Check()); err != nil {
		return nil, err
	}
	token := rand.Text()
	hold := func(h *head) (bool, error) {
		h.Lease = &holder{Token: token, Expires: s.now().Add(s.lease).UnixMilli()}
		return true, nil
	}
	err := s.change(ctx, key.Session, "", func(h *head) (bool, error) {
		if h.Lease != nil && s.now().UnixMilli() < h.Lease.Expires+1000 {
			return false, session.ErrLocked
		}
		return hold(h)
	})
	if err != nil {
		return nil, err
	}
	return session.Renewal{
		Length: s.lease,
		Renew:  func(ctx context.Context) error { return s.change(ctx, key.Session, token, hold) },
		Append: func(ctx context.Context, sub string, records []json.RawMessage) error {
			return s.append(ctx, session.Key{Project: key.Project, Session: key.Session, Sub: sub}, token, records)
		},
		Release: func(ctx context.Context) error {
			err := s.change(ctx, key.Session, token, func(h *head) (bool, error) {
				h.Lease = nil
				return true, nil
			})
			if errors.Is(err, session.ErrLeaseLost) {
				return nil // it belongs to another process
			}
			return err
		},
	}.Lease(), nil
}

// now returns the time of the server's clock.
func (s *Store) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

// heard updates the server's clock from a response. Responses have no fractions of a
// second, so the estimate changes only if the response contradicts it.
func (s *Store) heard(m smithy.Metadata) {
	if t, ok := middleware.GetServerTime(m); ok {
		least := time.Until(t)
		s.ahead.Store(max(int64(least), min(s.ahead.Load(), int64(least+time.Second))))
	}
}

// put writes an object on the condition that the existing one has this etag, or that none
// exists if etag is empty.
func (s *Store) put(ctx context.Context, name string, data []byte, etag string) (string, error) {
	in := &s3.PutObjectInput{Bucket: &s.bucket, Key: &name, Body: bytes.NewReader(data), ContentType: aws.String("application/json")}
	if etag == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &etag
	}
	out, err := s.client.PutObject(ctx, in)
	if err != nil {
		return "", err
	}
	s.heard(out.ResultMetadata)
	if aws.ToString(out.ETag) == "" {
		return "", fmt.Errorf("s3: the server gave %s no ETag", name)
	}
	return *out.ETag, nil
}

// get reads an object. The error is [session.ErrNotFound] if there is none.
func (s *Store) get(ctx context.Context, name string) (data []byte, etag string, err error) {
	out, err := s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &name})
	if status(err) == http.StatusNotFound {
		return nil, "", session.ErrNotFound
	}
	if err != nil {
		return nil, "", err
	}
	defer out.Body.Close()
	s.heard(out.ResultMetadata)
	data, err = io.ReadAll(out.Body)
	return data, aws.ToString(out.ETag), err
}

// conflict reports whether an object was not written because of its condition.
func conflict(err error) bool {
	switch status(err) {
	case http.StatusPreconditionFailed, http.StatusConflict, http.StatusNotFound:
		return !isNoBucket(err)
	}
	return false
}

func isNoBucket(err error) bool {
	var api interface{ ErrorCode() string }
	return errors.As(err, &api) && api.ErrorCode() == "NoSuchBucket"
}

func status(err error) int {
	var answer *awshttp.ResponseError
	if errors.As(err, &answer) {
		return answer.HTTPStatusCode()
	}
	return 0
}
