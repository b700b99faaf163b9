package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/parley-go/parley/hub"
)

// A stored is a message of a stream.
type stored struct {
	subject string
	seq     uint64
	time    time.Time
	header  nats.Header
	data    []byte
}

// number returns the value of a numeric header.
func (s *stored) number(name string) uint64 {
	n, _ := strconv.ParseUint(s.header.Get(name), 10, 64)
	return n
}

// A getRequest is a request for messages. Only some of its members can be combined.
type getRequest struct {
	Seq      uint64 `json:"seq,omitempty"`
	LastFor  string `json:"last_by_subj,omitempty"`
	NextFor  string `json:"next_by_subj,omitempty"`
	Batch    int    `json:"batch,omitempty"`
	MaxBytes int    `json:"max_bytes,omitempty"`

	MultiLast []string `json:"multi_last,omitempty"`
}

// leaderGet requests one message from the leader of a stream. It is nil if there is none. Other
// servers may not have the latest messages yet.
func (b *Backend) leaderGet(ctx context.Context, kind string, req getRequest) (*stored, error) {
	return b.getFrom(ctx, b.stream(kind), req)
}

// getFrom is leaderGet for any stream.
func (b *Backend) getFrom(ctx context.Context, stream string, req getRequest) (*stored, error) {
	var resp struct {
		Message struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	err := b.call(ctx, "STREAM.MSG.GET."+stream, req, &resp)
	var api *apiError
	if errors.As(err, &api) && api.ErrCode == codeNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := &stored{subject: resp.Message.Subject, seq: resp.Message.Seq, time: resp.Message.Time, data: resp.Message.Data}
	if len(resp.Message.Header) > 0 {
		if m.header, err = nats.DecodeHeadersMsg(resp.Message.Header); err != nil {
			return nil, fmt.Errorf("fleet: message %d of %s cannot be read: %w", m.seq, stream, err)
		}
	}
	return m, nil
}

// parseDirect parses the response to a direct get.
func parseDirect(m *nats.Msg) (*stored, error) {
	s := &stored{subject: m.Header.Get("Nats-Subject"), header: m.Header, data: m.Data}
	if s.seq = s.number(headerSeq); s.seq == 0 {
		return nil, errors.New("fleet: a message without a sequence")
	}
	s.time, _ = time.Parse(time.RFC3339Nano, m.Header.Get(headerTime))
	return s, nil
}

// Limits of one request for many messages.
const (
	batchCount = 1000
	batchBytes = 8 << 20
)

// directGet requests messages of a subject, from a sequence on, from any server that has the
// stream. That server may lag behind the leader; if it has none, directGet returns none.
func (b *Backend) directGet(ctx context.Context, kind, subject string, from uint64, count int) ([]*stored, error) {
	return b.direct(ctx, b.stream(kind), getRequest{Seq: max(from, 1), NextFor: subject, Batch: count, MaxBytes: batchBytes}, firstTry)
}

// errTooMany is returned when a request matches too many subjects.
var errTooMany = errors.New("fleet: too many subjects for one request")

// direct sends a request to any server that has the stream. The server may be silent for a time, which is each if the link is
// fast.
func (b *Backend) direct(ctx context.Context, stream string, req getRequest, each time.Duration) ([]*stored, error) {
	data, err := json.Marshal(req)
	if err != nil {
		return nil, err
	}
	reply := b.nc.NewInbox()
	sub, err := b.nc.SubscribeSync(reply)
	if err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	defer sub.Unsubscribe()
	sub.SetPendingLimits(-1, -1)
	if err := b.nc.PublishMsg(&nats.Msg{Subject: "$JS.API.DIRECT.GET." + stream, Reply: reply, Data: data}); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	var all []*stored
	for {
		try, cancel := context.WithTimeout(ctx, b.patience(each))
		m, err := sub.NextMsgWithContext(try)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			b.measure(ctx)
			return all, err // the messages before it are valid
		}
		before := uint64(0) // the sequence of the message before this one
		if len(all) > 0 {
			before = all[len(all)-1].seq
		}
		switch m.Header.Get("Status") {
		case "":
		case "404":
			return all, nil
		case "204":
			if lastSent(m) != before {
				return all, errLost
			}
			return all, nil
		case "413":
			return nil, errTooMany
		default:
			return all, fmt.Errorf("fleet: direct get: %s %s", m.Header.Get("Status"), m.Header.Get("Description"))
		}
		s, err := parseDirect(m)
		if err != nil {
			return nil, err
		}
		if lastSent(m) != before {
			return all, errLost
		}
		all = append(all, s)
	}
}

// errLost means that messages of an answer were lost, because a connection broke meanwhile.
var errLost = errors.New("fleet: a part of an answer was lost")

// lastSent returns the sequence of the message that the server sent before m, in the same answer.
func lastSent(m *nats.Msg) uint64 {
	n, _ := strconv.ParseUint(m.Header.Get(headerLast), 10, 64)
	return n
}

// each calls f with the messages of a subject with the sequences from "from" to "to", in order, until f
// returns false. The message with the sequence to exists, so each waits for servers that lag.
func (b *Backend) each(ctx context.Context, kind, subject string, from, to uint64, f func(*stored) (bool, error)) (goOn bool, err error) {
	return b.eachOf(ctx, kind, subject, from, to, nil, f)
}

// ends requests the last message of a reading from the leader. If the reading has not started and begins at the first
// message, ends requests some of the first messages at the same time.
func (b *Backend) ends(ctx context.Context, r *reading, started bool) (last *stored, first []*stored, err error) {
	var reading sync.WaitGroup
	if !started && r.from == 0 {
		reading.Go(func() { first, _ = b.directGet(ctx, r.kind, r.subject, 1, firstCount) })
	}
	last, err = b.leaderGet(ctx, r.kind, getRequest{LastFor: r.subject})
	reading.Wait()
	return last, first, err
}

// firstCount is how many messages a reader requests first: most readers need few.
const firstCount = 16

// eachOf is each for a caller that has already requested the first messages.
func (b *Backend) eachOf(ctx context.Context, kind, subject string, from, to uint64, all []*stored, f func(*stored) (bool, error)) (goOn bool, err error) {
	count := firstCount
	for from <= to {
		var err error
		if len(all) == 0 {
			all, err = b.directGet(ctx, kind, subject, from, count)
		}
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		if len(all) == 0 { // no answer, or a server that lags: ask the leader
			m, leaderErr := b.next(ctx, kind, subject, from, to)
			if leaderErr != nil {
				return false, errors.Join(leaderErr, err)
			}
			if m == nil {
				return true, nil // they were removed meanwhile
			}
			all = append(all, m)
		}
		for _, m := range all {
			if m.seq > to {
				return true, nil
			}
			if goOn, err := f(m); err != nil || !goOn {
				return false, err
			}
			from = m.seq + 1
		}
		all, count = nil, batchCount
	}
	return true, nil
}

// next requests the first message of a subject from a sequence on. The message with the sequence to exists, so next retries
// while servers answer that lag: a leader that was cut off answers for up to 20 seconds after another one was elected. It
// returns nil if the messages were removed.
func (b *Backend) next(ctx context.Context, kind, subject string, from, to uint64) (m *stored, err error) {
	err = b.untilCurrent(ctx, func(ctx context.Context) (current bool, err error) {
		if m, err = b.leaderGet(ctx, kind, getRequest{Seq: from, NextFor: subject}); err != nil || m != nil {
			return true, err
		}
		return b.removed(ctx, kind, subject, to)
	})
	return m, err
}

// removed reports whether all messages of a subject were removed, according to a server that has or had the message with
// the sequence to.
func (b *Backend) removed(ctx context.Context, kind, subject string, to uint64) (bool, error) {
	var info struct {
		State struct {
			LastSeq  uint64            `json:"last_seq"`
			Subjects map[string]uint64 `json:"subjects"`
		} `json:"state"`
	}
	err := b.call(ctx, "STREAM.INFO."+b.stream(kind), map[string]string{"subjects_filter": subject}, &info)
	return info.State.LastSeq >= to && len(info.State.Subjects) == 0, err
}

// untilCurrent calls f until it reports that the answer was current, for at most the length of a lease.
func (b *Backend) untilCurrent(ctx context.Context, f func(context.Context) (bool, error)) error {
	limit, cancel := context.WithTimeout(ctx, b.cfg.Lease)
	defer cancel()
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		if current, err := f(ctx); current || err != nil {
			return err
		}
		b.metrics.Retries.Add(1)
		if sleep(limit, wait) != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("%w: for %v, the NATS servers that answered did not have the latest messages", hub.ErrUnavailable, b.cfg.Lease)
		}
	}
}

// search returns the sequence of the first message of a subject, up to the sequence to, whose
// number is at least n. The last message satisfies this.
func (b *Backend) search(ctx context.Context, kind, subject string, n, to uint64) (uint64, error) {
	from := uint64(1)
	if n == 0 {
		return from, nil
	}
	for from < to {
		mid := from + (to-from)/2
		all, err := b.directGet(ctx, kind, subject, mid, 1)
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if len(all) == 0 {
			m, leaderErr := b.leaderGet(ctx, kind, getRequest{Seq: mid, NextFor: subject})
			if leaderErr != nil {
				return 0, errors.Join(leaderErr, err)
			}
			if m == nil {
				return from, nil
			}
			all = append(all, m)
		}
		if m := all[0]; m.seq >= to || m.number(headerN) >= n {
			to = mid
		} else {
			from = m.seq + 1
		}
	}
	return from, nil
}
