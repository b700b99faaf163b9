package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/parley-go/parley/hub"
)

// The headers of messages in the streams of logs and inboxes.
const (
	headerN    = "Parley-N"    // the last number in the journal or the inbox, including this message
	headerTrim = "Parley-Trim" // entries with numbers below it were removed
	headerPrev = "Parley-Prev" // the sequence of the previous message in its journal or inbox

	headerID      = "Nats-Msg-Id"
	headerExpect  = "Nats-Expected-Last-Subject-Sequence"
	headerSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
	headerSeq     = "Nats-Sequence"
	headerTime    = "Nats-Time-Stamp"
	headerLast    = "Nats-Last-Sequence"
)

// Error codes of JetStream.
const (
	codeWrongSequence = 10071 // a definite rejection, with the last sequence
	codeInFlight      = 10164 // the previous message is being stored: repeat the same bytes
	codeInProcess     = 10158 // an earlier try is being stored: repeat the same bytes
	codeNotFound      = 10037
	codeUnavailable   = 10008 // there is no leader
	codeMaxPerSubject = 10077
)

// An apiError is an error that JetStream returned.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

// Error includes the code, so that people can look it up.
func (e *apiError) Error() string {
	text := e.Description
	if e.ErrCode == 10023 || e.ErrCode == 10047 || e.ErrCode == 10028 || strings.Contains(text, "no space left") {
		text += "; the disk or the storage limit of the NATS server is full: free space, then restart it"
	}
	if e.ErrCode == codeUnavailable {
		text += "; the majority or the link is down"
	}
	return fmt.Sprintf("JetStream error %d: %s", e.ErrCode, text)
}

// passing reports whether retrying a request can help.
func (e *apiError) passing() bool {
	return e.Code == 503 && e.ErrCode != codeMaxPerSubject || e.ErrCode == codeInFlight || e.ErrCode == codeInProcess
}

// A sequenceError reports that a subject does not end where the writer expected.
type sequenceError struct{ last uint64 }

func (e *sequenceError) Error() string {
	return "the journal ends at another message: " + strconv.FormatUint(e.last, 10)
}

// tryTime is how long one request may take before it is retried, if the link is fast. The first tries take less: a request
// to a leader that has just died is lost, and the next leader may be there soon.
const (
	tryTime  = time.Second
	firstTry = tryTime / 4
)

// patience returns how long one request may take before it is retried: each, or longer on a slow link, where no answer
// would arrive in that time.
func (b *Backend) patience(each time.Duration) time.Duration {
	return each + 2*time.Duration(b.link.Load())
}

// measure measures the link after a request has had no answer. If the link is fast and a leader has died, that takes little
// time. A link that takes longer than an eighth of a lease counts as down.
func (b *Backend) measure(ctx context.Context) {
	limit, cancel := context.WithTimeout(ctx, b.cfg.Lease/8)
	defer cancel()
	if began := time.Now(); b.nc.FlushWithContext(limit) == nil {
		b.link.Store(int64(time.Since(began)))
	}
}

// request sends a message until there is an answer, for at most the length of a lease.
// It sends the same bytes each time.
func (b *Backend) request(ctx context.Context, msg *nats.Msg) (*nats.Msg, error) {
	limit, cancel := context.WithTimeout(ctx, b.cfg.Lease)
	defer cancel()
	each := firstTry
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		began := time.Now()
		try, cancel := context.WithTimeout(limit, b.patience(each))
		resp, err := b.nc.RequestMsgWithContext(try, msg)
		cancel()
		switch {
		case err == nil:
			if b.link.Load() > 0 { // the link may be fast again
				b.link.Store(int64(min(time.Since(began), b.cfg.Lease/8)))
			}
			return resp, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrMaxPayload), errors.Is(err, nats.ErrConnectionDraining):
			return nil, fmt.Errorf("fleet: %w", err)
		}
		b.metrics.Retries.Add(1)
		if errors.Is(err, context.DeadlineExceeded) {
			each = min(2*each, tryTime)
			b.measure(limit)
		}
		if sleep(limit, wait) != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, b.unanswered(err)
		}
	}
}

// call calls the API of JetStream.
func (b *Backend) call(ctx context.Context, subject string, in, out any) error {
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, b.cfg.Lease)
	defer cancel()
	var refused *apiError
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		resp, err := b.request(limit, &nats.Msg{Subject: "$JS.API." + subject, Data: data})
		if err != nil {
			return b.gaveUp(ctx, limit, refused, err)
		}
		var failed struct {
			Error *apiError `json:"error"`
		}
		if err := json.Unmarshal(resp.Data, &failed); err != nil {
			return fmt.Errorf("fleet: %s: %w", subject, err)
		}
		if failed.Error == nil {
			return json.Unmarshal(resp.Data, out)
		}
		if refused = failed.Error; !refused.passing() {
			return refused
		}
		if sleep(limit, wait) != nil {
			return b.gaveUp(ctx, limit, refused, nil)
		}
		b.metrics.Retries.Add(1)
	}
}

// publish stores a message, and returns its sequence. The error is a [*sequenceError] if
// the subject does not end where the message expects.
func (b *Backend) publish(ctx context.Context, msg *nats.Msg) (seq uint64, duplicate bool, err error) {
	limit, cancel := context.WithTimeout(ctx, b.cfg.Lease)
	defer cancel()
	var refused *apiError // the last answer, if there was one
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		resp, err := b.request(limit, msg)
		if err != nil {
			return 0, false, b.gaveUp(ctx, limit, refused, err)
		}
		var ack struct {
			Seq       uint64    `json:"seq"`
			Duplicate bool      `json:"duplicate"`
			Error     *apiError `json:"error"`
		}
		if err := json.Unmarshal(resp.Data, &ack); err != nil {
			return 0, false, fmt.Errorf("fleet: the acknowledgement cannot be read: %w", err)
		}
		switch {
		case ack.Error == nil:
			return ack.Seq, ack.Duplicate, nil
		case ack.Error.ErrCode == codeWrongSequence:
			_, number, _ := strings.Cut(ack.Error.Description, ": ")
			last, _ := strconv.ParseUint(number, 10, 64)
			return 0, false, &sequenceError{last}
		case !ack.Error.passing():
			return 0, false, ack.Error
		}
		b.metrics.Retries.Add(1)
		if ack.Error.ErrCode != codeInProcess { // that code only means that no majority has stored it yet
			refused = ack.Error
		}
		if sleep(limit, wait) != nil {
			return 0, false, b.gaveUp(ctx, limit, refused, ack.Error)
		}
	}
}

// gaveUp returns why publish no longer repeats a request: the caller gave up, the server refused each try, or nobody
// answered.
func (b *Backend) gaveUp(ctx, limit context.Context, refused *apiError, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case refused != nil && (err == nil || limit.Err() != nil):
		return fmt.Errorf("%w: refused for %v: %w", hub.ErrUnavailable, b.cfg.Lease, refused)
	case limit.Err() != nil:
		return b.unanswered(err)
	}
	return err
}

// unanswered returns the error of a request that had no answer for the length of a lease.
func (b *Backend) unanswered(err error) error {
	if errors.Is(err, hub.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: no NATS server has answered for %v (the majority or the link is down, or the disk of the server is or was full: its log says so, free space and restart it): %w", hub.ErrUnavailable, b.cfg.Lease, err)
}

// newMsg returns a message with headers.
func newMsg(subject string, data []byte, headers ...string) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Data = data
	for i := 0; i < len(headers); i += 2 {
		m.Header[headers[i]] = []string{headers[i+1]}
	}
	return m
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }
