package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/parley-go/parley/hub"
)

// A tail is the end of a journal or an inbox.
type tail struct {
	seq  uint64 // of the last message; 0 means none
	n    uint64 // the last number
	trim uint64 // entries with numbers below it were removed
}

func tailOf(m *stored) tail {
	if m == nil {
		return tail{}
	}
	return tail{m.seq, m.number(headerN), m.number(headerTrim)}
}

func (b *Backend) logSubject(id string) string { return b.cfg.Name + "." + logStream + "." + id }

// readTail requests the end of a journal from the leader. It does not return an end before
// the one that this process has already seen, unless the session was deleted.
func (b *Backend) readTail(ctx context.Context, id string) (t tail, err error) {
	seen, _ := b.knownTail(id)
	err = b.untilCurrent(ctx, func(ctx context.Context) (bool, error) {
		m, err := b.leaderGet(ctx, logStream, getRequest{LastFor: b.logSubject(id)})
		if t = tailOf(m); err != nil || t.seq >= seen.seq {
			return true, err
		}
		return b.removed(ctx, logStream, b.logSubject(id), seen.seq)
	})
	if err != nil {
		return tail{}, err
	}
	b.setTail(id, t)
	return t, nil
}

func (b *Backend) knownTail(id string) (tail, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t, ok := b.tails[id]
	return t, ok
}

// maxTails is how many ends are cached. Each one saves a request.
const maxTails = 4096

func (b *Backend) setTail(id string, t tail) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.setTailLocked(id, t)
}

func (b *Backend) setTailLocked(id string, t tail) {
	if len(b.tails) >= maxTails {
		for other := range b.tails {
			delete(b.tails, other)
			break
		}
	}
	b.tails[id] = t
}

// sawTail records the end of a journal that another process has written.
func (b *Backend) sawTail(id string, t tail) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.seq > b.tails[id].seq {
		b.setTailLocked(id, t)
	}
}

// maxMessage is the maximum size of a message. A larger entry goes to the object store first,
// and the message refers to it.
const maxMessage = 256 << 10

// blobMark begins a line that names an object instead of an entry or an item.
const blobMark = '@'

// putBlob stores large data and returns the line that refers to it.
func (b *Backend) putBlob(ctx context.Context, id string, data []byte) ([]byte, error) {
	sum := sha256.Sum256(data)
	name := id + "/" + hex.EncodeToString(sum[:])
	limit, cancel := context.WithTimeout(ctx, b.cfg.Lease)
	defer cancel()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		_, err := b.blobs.PutBytes(limit, name, data)
		if err == nil {
			return append([]byte{blobMark}, name...), nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if sleep(limit, wait) != nil {
			return nil, fmt.Errorf("fleet: a large entry could not be stored: %w", b.unanswered(err))
		}
	}
}

// resolve returns the data for a line.
func (b *Backend) resolve(ctx context.Context, line []byte) ([]byte, error) {
	if len(line) == 0 || line[0] != blobMark {
		return line, nil
	}
	name := string(line[1:])
	for try := 0; ; try++ {
		data, err := b.blobs.GetBytes(ctx, name)
		if err == nil {
			return data, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// A server that lags may not have it yet.
		if try == 20 || sleep(ctx, 100*time.Millisecond) != nil {
			return nil, fmt.Errorf("fleet: the large entry %s cannot be read: %w", name, err)
		}
	}
}

// A chunk holds the entries of one message.
type chunk struct {
	data  []byte
	n     uint64   // the last number in it; 0 means none
	blobs []string // objects that it refers to
}

// pack packs entries into as few messages as possible. Each message is stored completely or
// not at all.
func (b *Backend) pack(ctx context.Context, id string, entries []hub.Entry) (all []chunk, err error) {
	var c chunk
	for i := range entries {
		line := entries[i].AppendTo(nil)
		blob := ""
		if len(line) > maxMessage {
			if line, err = b.putBlob(ctx, id, line); err != nil {
				return nil, err
			}
			blob = string(line[1:])
		}
		if len(c.data)+len(line) >= maxMessage {
			all = append(all, c)
			c = chunk{}
		}
		if len(c.data) > 0 {
			c.data = append(c.data, '\n')
		}
		if c.data = append(c.data, line...); blob != "" {
			c.blobs = append(c.blobs, blob)
		}
		c.n = max(c.n, entries[i].N)
	}
	return append(all, c), nil
}

// Append implements [hub.Backend].
func (b *Backend) Append(ctx context.Context, id string, expect uint64, entries []hub.Entry) error {
	if err := hub.CheckAppend(ctx, id, expect, entries); err != nil || len(entries) == 0 {
		return err
	}
	chunks, err := b.pack(ctx, id, entries)
	if err != nil {
		return err
	}
	for i, c := range chunks {
		if err := b.appendChunk(ctx, id, expect, c, 0, nuid.Next()); err != nil {
			if errors.Is(err, hub.ErrConflict) {
				b.metrics.Fenced.Add(1)
				for _, c := range chunks[i:] {
					for _, name := range c.blobs {
						b.blobs.Delete(ctx, name) // nothing refers to it
					}
				}
			}
			return err
		}
		if c.n > 0 {
			expect = c.n
		}
	}
	return nil
}

// appendChunk stores one message at the end of a journal whose last number is expect. trim,
// unless it is 0, is the first number that was not removed. name identifies this message.
//
// This is the fence: the server stores the message only if the journal ends with the last message
// that this process has seen. Otherwise the newer messages decide: titles and similar records have
// no number and do not prevent the append, but an owner entry has a number and does.
func (b *Backend) appendChunk(ctx context.Context, id string, expect uint64, c chunk, trim uint64, name string) error {
	t, known := b.knownTail(id)
	for {
		var err error
		if !known || expect != hub.AnyNumber && t.n != expect {
			if t, err = b.readTail(ctx, id); err != nil {
				return err
			}
			if known = true; expect != hub.AnyNumber && t.n != expect {
				return hub.ErrConflict
			}
		}
		_, err = b.storeAfter(ctx, id, t, c, trim, name)
		var wrong *sequenceError
		if !errors.As(err, &wrong) {
			return err
		}
		if t, err = b.readTail(ctx, id); err != nil {
			return err
		}
		if t.seq < wrong.last && sleep(ctx, 20*time.Millisecond) != nil { // an old leader answered
			return context.Cause(ctx)
		}
		known = t.seq >= wrong.last
	}
}

// storeAfter stores one message in a journal that ends with t, and returns the new end. If the journal ends elsewhere, the
// error is [hub.ErrConflict] and a [*sequenceError].
func (b *Backend) storeAfter(ctx context.Context, id string, t tail, c chunk, trim uint64, name string) (next tail, err error) {
	subject := b.logSubject(id)
	next = tail{n: max(c.n, t.n), trim: max(trim, t.trim)}
	msg := newMsg(subject, c.data, headerID, name, headerExpect, number(t.seq), headerPrev, number(t.seq), headerN, number(next.n), headerTrim, number(next.trim))
	err = b.untilCurrent(ctx, func(ctx context.Context) (bool, error) {
		var wrong *sequenceError
		if next.seq, _, err = b.publish(ctx, msg); !errors.As(err, &wrong) {
			return true, err
		}
		if wrong.last < t.seq { // the server lags, unless the session was deleted
			if gone, err := b.removed(ctx, logStream, subject, t.seq); err != nil || !gone {
				return false, err
			}
			return true, errors.Join(hub.ErrConflict, wrong)
		}
		// An earlier attempt may have been stored, although no answer arrived.
		first, err := b.next(ctx, logStream, subject, t.seq+1, wrong.last)
		if err != nil {
			return true, err
		}
		if first == nil || first.header.Get(headerID) != name {
			return true, errors.Join(hub.ErrConflict, wrong)
		}
		next.seq = first.seq
		return true, nil
	})
	if err != nil {
		return tail{}, err
	}
	b.metrics.Appends.Add(1)
	b.setTail(id, next)
	return next, nil
}

// addWhole stores the journal of a new session. Only its last entry has a number, so the session does not exist until
// everything is stored. addWhole first removes the remains of an import that was killed.
func (b *Backend) addWhole(ctx context.Context, id string, entries []hub.Entry) error {
	if err := hub.CheckAppend(ctx, id, 0, entries); err != nil {
		return err
	}
	t, err := b.readTail(ctx, id)
	if err == nil && t.n > 0 {
		err = hub.ErrConflict
	}
	if err == nil && t.seq > 0 {
		t, err = tail{}, b.Delete(ctx, id)
	}
	if err != nil {
		return err
	}
	chunks, err := b.pack(ctx, id, entries)
	if err != nil {
		return err
	}
	for _, c := range chunks {
		if t, err = b.storeAfter(ctx, id, t, c, 0, nuid.Next()); err != nil {
			return err
		}
	}
	return nil
}

func (b *Backend) pieceSubject(id string) string { return b.cfg.Name + ".piece." + id }

// Broadcast implements [hub.Broadcaster]. The server drops the data if nobody follows the
// session.
func (b *Backend) Broadcast(id string, data json.RawMessage) {
	b.nc.Publish(b.pieceSubject(id), data)
}

// Read implements [hub.Backend].
func (b *Backend) Read(ctx context.Context, id string, after uint64, follow bool) iter.Seq2[hub.Entry, error] {
	return func(yield func(hub.Entry, error) bool) {
		if err := b.read(ctx, id, after, follow, yield); err != nil {
			yield(hub.Entry{}, err)
		}
	}
}

func (b *Backend) read(ctx context.Context, id string, after uint64, follow bool, yield func(hub.Entry, error) bool) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	if err := hub.CheckID(id); err != nil {
		return err
	}
	begun := false // all further entries have numbers above after
	return b.follow(ctx, follow, &reading{
		kind: logStream, subject: b.logSubject(id), live: b.cfg.Name + ".live." + logStream + "." + id, from: after,
		least:  func() uint64 { t, _ := b.knownTail(id); return t.seq },
		pieces: b.pieceSubject(id), piece: func(data []byte) bool { return yield(hub.Entry{Kind: hub.KindLive, Data: data}, nil) },
	}, func(m *stored, t tail) (bool, error) {
		b.sawTail(id, tailOf(m)) // a later reading must not end before it
		lines := bytes.Split(m.data, []byte("\n"))
		if len(m.data) == 0 { // it only records what was removed
			lines = nil
		}
		entries := make([]hub.Entry, len(lines))
		start := 0
		for i, line := range lines {
			line, err := b.resolve(ctx, line)
			if err != nil {
				return false, err
			}
			if entries[i], err = hub.ParseEntry(line); err != nil {
				return false, fmt.Errorf("fleet: message %d of session %s: %w", m.seq, id, err)
			}
			if !begun && after > 0 && entries[i].N == min(after, t.n) {
				start = i + 1
			}
		}
		begun = true
		for _, e := range entries[start:] {
			if e.N > 0 && (e.N <= after || e.N < t.trim) {
				continue
			}
			if !yield(e, nil) {
				return false, nil
			}
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
		}
		return true, nil
	})
}

// A reading describes what to follow.
type reading struct {
	kind, subject, live string
	from                uint64 // the first number
	pieces              string // the subject of transient messages; empty means none
	piece               func(data []byte) bool
	least               func() uint64 // returns a sequence up to which messages are known to exist
}

// pollTime is how often a reader polls the end of what it follows, because live messages can
// be lost when a connection breaks.
const pollTime = 5 * time.Second

// subscribe subscribes to subjects; empty ones are skipped.
func (b *Backend) subscribe(to chan *nats.Msg, subjects ...string) (stop func(), err error) {
	var all []*nats.Subscription
	stop = func() {
		for _, s := range all {
			s.Unsubscribe()
		}
	}
	for _, subject := range subjects {
		if subject == "" {
			continue
		}
		s, err := b.nc.ChanSubscribe(subject, to)
		if err != nil {
			stop()
			return nil, fmt.Errorf("fleet: %w", err)
		}
		all = append(all, s)
	}
	return stop, nil
}

// follow calls f with the messages of a journal or an inbox, from the first one whose number
// is at least that of the reading, until f returns false. Without follow it ends with the
// last one. There is no consumer: it subscribes, then reads the log, and skips duplicates by
// sequence.
func (b *Backend) follow(ctx context.Context, follow bool, r *reading, f func(*stored, tail) (bool, error)) error {
	var live chan *nats.Msg
	if follow {
		live = make(chan *nats.Msg, 1024)
		stop, err := b.subscribe(live, r.live, r.pieces) // in one channel they keep their order
		if err != nil {
			return err
		}
		defer stop()
		if err := b.nc.FlushWithContext(ctx); err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	var last uint64 // the sequence of the last message passed to f
	started := false
	// catchUp reads the stored messages.
	catchUp := func(least uint64) (bool, error) {
		m, first, err := b.ends(ctx, r, started)
		if err != nil {
			return false, err
		}
		t := tailOf(m)
		to := max(t.seq, least, r.least())
		if to == 0 || to <= last {
			return true, nil
		}
		from := last + 1
		if !started {
			if from, err = b.search(ctx, r.kind, r.subject, min(r.from, t.n), to); err != nil {
				return false, err
			}
			started = true
		}
		return b.eachOf(ctx, r.kind, r.subject, from, to, first, func(m *stored) (bool, error) {
			last = m.seq
			return f(m, tail{to, t.n, max(t.trim, m.number(headerTrim))})
		})
	}
	if goOn, err := catchUp(0); err != nil || !goOn || !follow {
		return err
	}
	poll := time.NewTicker(pollTime)
	defer poll.Stop()
	for {
		select {
		case m := <-live:
			if m.Subject == r.pieces {
				if !r.piece(m.Data) {
					return nil
				}
				continue
			}
			s, err := parseDirect(m)
			if err != nil {
				return err
			}
			if s.seq <= last {
				continue
			}
			if !started || s.number(headerPrev) != last {
				if goOn, err := catchUp(s.seq); err != nil || !goOn {
					return err
				}
				continue
			}
			last = s.seq
			if goOn, err := f(s, tailOf(s)); err != nil || !goOn {
				return err
			}
		case <-poll.C:
			if goOn, err := catchUp(0); err != nil || !goOn {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-b.ctx.Done():
			return errClosed
		}
	}
}

var errClosed = errors.New("fleet: the backend is closed")

// Trim implements [hub.Backend].
func (b *Backend) Trim(ctx context.Context, id string, before uint64) error {
	if err := errors.Join(ctx.Err(), hub.CheckID(id)); err != nil {
		return err
	}
	t, err := b.readTail(ctx, id)
	if before = min(before, t.n); err != nil || before <= max(1, t.trim) {
		return err
	}
	if err := b.appendChunk(ctx, id, hub.AnyNumber, chunk{}, before, nuid.Next()); err != nil {
		return err
	}
	// Messages that contain nothing else are removed.
	stream, err := b.js.Stream(ctx, b.stream(logStream))
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	var gone []uint64
	_, err = b.each(ctx, logStream, b.logSubject(id), 1, t.seq, func(m *stored) (bool, error) {
		if m.number(headerN) >= before {
			return false, nil
		}
		for _, line := range bytes.Split(m.data, []byte("\n")) {
			if e, err := hub.ParseEntry(line); err != nil || e.N == 0 {
				return true, nil // a record, or a large entry
			}
		}
		gone = append(gone, m.seq)
		return true, nil
	})
	for _, seq := range gone {
		if err := stream.DeleteMsg(ctx, seq); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) && ctx.Err() == nil {
			return fmt.Errorf("fleet: %w", err)
		}
	}
	return err
}
