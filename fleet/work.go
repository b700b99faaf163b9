package fleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/parley-go/parley/hub"
)

func (b *Backend) workSubject(id string) string { return b.cfg.Name + "." + workStream + "." + id }

// idOf returns the last part of a subject, which is the id of a session.
func idOf(subject string) string { return subject[strings.LastIndexByte(subject, '.')+1:] }

// Wake implements [hub.Backend].
func (b *Backend) Wake(ctx context.Context, id string) error {
	if err := errors.Join(ctx.Err(), hub.CheckID(id)); err != nil {
		return err
	}
	_, _, err := b.publish(ctx, b.workMsg(ctx, id))
	var api *apiError
	if errors.As(err, &api) && api.ErrCode == codeMaxPerSubject {
		return nil // it is already recorded
	}
	return err
}

// Rest implements [hub.Backend].
func (b *Backend) Rest(ctx context.Context, id string) error {
	if err := errors.Join(ctx.Err(), hub.CheckID(id)); err != nil {
		return err
	}
	// A request that was repeated may arrive late. It must not remove a mark that was set after this one.
	mark, err := b.leaderGet(ctx, workStream, getRequest{LastFor: b.workSubject(id)})
	if err != nil || mark == nil {
		return err
	}
	return b.purge(ctx, workStream, b.workSubject(id), mark.seq)
}

// purge removes the messages of a subject, up to a sequence; 0 means all.
func (b *Backend) purge(ctx context.Context, kind, subject string, to uint64) error {
	req := map[string]any{"filter": subject}
	if to > 0 {
		req["seq"] = to + 1
	}
	var done struct{ Success bool }
	return b.call(ctx, "STREAM.PURGE."+b.stream(kind), req, &done)
}

// last returns the last message of each subject of a stream of small messages, oldest first.
func (b *Backend) last(ctx context.Context, stream string) ([]*stored, error) {
	each := firstTry
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		all, err := b.direct(ctx, stream, getRequest{MultiLast: []string{">"}}, each)
		each = min(2*each, tryTime)
		switch {
		case errors.Is(err, errTooMany):
			return b.scan(ctx, stream, ">", false)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err == nil:
			slices.SortFunc(all, func(x, y *stored) int { return int(x.seq) - int(y.seq) })
			return all, nil
		}
		if sleep(ctx, wait) != nil {
			return nil, context.Cause(ctx)
		}
	}
}

// scan returns the last message of each subject of a stream, oldest first, without data if
// headersOnly is set. It uses a consumer, which it removes.
func (b *Backend) scan(ctx context.Context, stream, filter string, headersOnly bool) (all []*stored, err error) {
	err = b.create(ctx, func(ctx context.Context) error {
		all = nil
		c, err := b.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
			FilterSubject: filter, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, AckPolicy: jetstream.AckNonePolicy,
			HeadersOnly: headersOnly, MemoryStorage: true, Replicas: 1, InactiveThreshold: 30 * time.Second,
		})
		if err != nil {
			return err
		}
		info := c.CachedInfo()
		defer b.js.DeleteConsumer(context.WithoutCancel(ctx), stream, info.Name)
		for left := info.NumPending; left > 0; {
			batch, err := c.Fetch(int(min(left, 5000)), jetstream.FetchMaxWait(2*time.Second))
			if err != nil {
				return err
			}
			got := uint64(0)
			for m := range batch.Messages() {
				meta, err := m.Metadata()
				if err != nil {
					return err
				}
				got, left = got+1, meta.NumPending
				all = append(all, &stored{subject: m.Subject(), seq: meta.Sequence.Stream, time: meta.Timestamp, header: m.Headers(), data: m.Data()})
			}
			if err := batch.Error(); err != nil {
				return err
			}
			if got == 0 {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				break // they were removed meanwhile
			}
		}
		return nil
	})
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("fleet: %s cannot be listed: %w", stream, err)
	}
	slices.SortFunc(all, func(x, y *stored) int { return int(x.seq) - int(y.seq) })
	return all, nil
}

// Work implements [hub.Backend]. With follow it yields sessions that any process wakes.
func (b *Backend) Work(ctx context.Context, follow bool) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var live chan *nats.Msg
		if follow {
			live = make(chan *nats.Msg, 4096)
			sub, err := b.nc.ChanSubscribe(b.cfg.Name+".live."+workStream+".*", live)
			if err != nil {
				yield("", fmt.Errorf("fleet: %w", err))
				return
			}
			defer sub.Unsubscribe()
			b.nc.FlushWithContext(ctx)
		}
		var last uint64
		poll := time.NewTicker(pollTime)
		defer poll.Stop()
		for {
			all, err := b.last(ctx, b.stream(workStream))
			if err != nil {
				yield("", err)
				return
			}
			for _, m := range all {
				last = max(last, m.seq)
				if !yield(idOf(m.subject), nil) {
					return
				}
			}
			for again := false; !again; {
				if !follow {
					if ctx.Err() != nil {
						yield("", context.Cause(ctx))
					}
					return
				}
				select {
				case m := <-live:
					s, err := parseDirect(m)
					if err != nil || s.seq <= last {
						continue
					}
					last = s.seq
					if !yield(idOf(s.subject), nil) {
						return
					}
				case <-poll.C: // live messages can be lost
					again = true
				case <-ctx.Done():
					yield("", context.Cause(ctx))
					return
				case <-b.ctx.Done():
					yield("", errClosed)
					return
				}
			}
		}
	}
}

// An index holds the list entries of all sessions. It follows the stream of logs.
type index struct {
	sessions map[string]hub.Listed
	seq      uint64 // of the last message that it has seen
	live     chan *nats.Msg
	sub      *nats.Subscription
}

// List implements [hub.Backend].
func (b *Backend) List(ctx context.Context) ([]hub.Listed, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	b.mu.Lock()
	x := b.index
	b.index = nil // one caller uses it at a time; others read for themselves
	b.mu.Unlock()
	var err error
	if x == nil {
		x = &index{sessions: map[string]hub.Listed{}, live: make(chan *nats.Msg, 16384)}
		if x.sub, err = b.nc.ChanSubscribe(b.cfg.Name+".live."+logStream+".*", x.live); err != nil {
			return nil, fmt.Errorf("fleet: %w", err)
		}
		b.nc.FlushWithContext(ctx)
	}
	if err = x.update(ctx, b); err != nil {
		x.sub.Unsubscribe()
		return nil, err
	}
	all := make([]hub.Listed, 0, len(x.sessions))
	for _, l := range x.sessions {
		all = append(all, l)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.index == nil && b.ctx.Err() == nil {
		b.index = x
	} else {
		x.sub.Unsubscribe()
	}
	return all, nil
}

func (x *index) add(m *stored) {
	if m.seq <= x.seq {
		return
	}
	x.seq = m.seq
	id := idOf(m.subject)
	x.sessions[id] = hub.Listed{ID: id, Modified: m.time, Size: int64(m.seq)}
}

// drain handles the messages that have arrived.
func (x *index) drain() {
	for {
		select {
		case m := <-x.live:
			if s, err := parseDirect(m); err == nil {
				x.add(s)
			}
		default:
			return
		}
	}
}

// update updates the index. If it has missed messages, it is rebuilt.
func (x *index) update(ctx context.Context, b *Backend) error {
	var info struct {
		State struct {
			LastSeq     uint64 `json:"last_seq"`
			NumSubjects int    `json:"num_subjects"`
		} `json:"state"`
	}
	if err := b.call(ctx, "STREAM.INFO."+b.stream(logStream), struct{}{}, &info); err != nil {
		return err
	}
	for try := 0; try < 3; try++ { // messages being delivered arrive within moments
		x.drain()
		if dropped, _ := x.sub.Dropped(); dropped == 0 && x.seq >= info.State.LastSeq && (x.seq > info.State.LastSeq || len(x.sessions) == info.State.NumSubjects) {
			return nil
		}
		if len(x.sessions) == 0 && x.seq == 0 {
			break
		}
		b.nc.FlushWithContext(ctx)
	}
	all, err := b.scan(ctx, b.stream(logStream), ">", true)
	if err != nil {
		return err
	}
	x.sessions, x.seq = map[string]hub.Listed{}, 0
	for _, m := range all {
		x.add(m)
	}
	return nil
}

// Delete implements [hub.Backend].
func (b *Backend) Delete(ctx context.Context, id string) error {
	if err := errors.Join(ctx.Err(), hub.CheckID(id)); err != nil {
		return err
	}
	l, err := b.Lease(ctx, id)
	if err != nil {
		return err
	}
	defer l.Close()
	for kind, subject := range map[string]string{logStream: b.logSubject(id), inStream: b.inSubject(id, "*")} {
		if err := b.deleteBlobs(ctx, kind, subject); err != nil {
			return err
		}
	}
	err = errors.Join(b.purge(ctx, workStream, b.workSubject(id), 0), b.purge(ctx, inStream, b.inSubject(id, "*"), 0), b.purge(ctx, logStream, b.logSubject(id), 0))
	b.mu.Lock()
	delete(b.tails, id)
	delete(b.began, id)
	b.mu.Unlock()
	return errors.Join(err, b.deleteState(ctx, id))
}

// deleteBlobs removes the objects that the messages of a subject refer to.
func (b *Backend) deleteBlobs(ctx context.Context, kind, subject string) error {
	m, err := b.leaderGet(ctx, kind, getRequest{LastFor: subject})
	if err != nil || m == nil {
		return err
	}
	_, err = b.each(ctx, kind, subject, 1, m.seq, func(m *stored) (bool, error) {
		for line := range strings.Lines(string(m.data)) {
			if line[0] != blobMark {
				continue
			}
			if err := b.blobs.Delete(ctx, strings.TrimSpace(line[1:])); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
				return false, err
			}
		}
		return true, nil
	})
	return err
}
