package parleytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/parley-go/parley/engine/model"
)

// A Model plays a scenario in process. It is safe for concurrent use and
// implements [model.Model]. Set its fields before the first request.
//
// All waits use package time, so pauses and stalls take no real time in a
// [testing/synctest] bubble.
type Model struct {
	// Strict rejects requests that the strict [API] rejects, except for headers.
	Strict bool

	// Record keeps every request for [Model.Requests]. Without it the memory use of a
	// Model is constant.
	Record bool

	play *play

	n        atomic.Int64
	mu       sync.Mutex
	requests []*Request
}

var _ model.Model = (*Model)(nil)

// Model returns a model that plays the scenario from its start.
func (s *Scenario) Model() *Model { return &Model{play: newPlay(s)} }

// NewModel returns a strict model that plays the scenario, and fails the test if the
// scenario was not played to its end.
func NewModel(tb TB, s *Scenario) *Model {
	tb.Helper()
	m := s.Model()
	m.Strict = true
	if m.play.invalid != nil {
		tb.Fatalf("%v", m.play.invalid)
	}
	tb.Cleanup(func() {
		if err := m.Done(); err != nil {
			tb.Errorf("%v", err)
		}
	})
	return m
}

// Requests returns the requests so far, if Record is set.
func (m *Model) Requests() []*Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	return copies(m.requests)
}

// Err reports the deviations from the scenario so far, nil if there are none.
func (m *Model) Err() error { return m.play.err() }

// Done is like [Model.Err], and also reports unplayed turns.
func (m *Model) Done() error { return errors.Join(m.play.err(), m.play.unplayed()) }

// Stream implements [model.Model]. Connection faults are the errors that a network
// client would see: [io.ErrUnexpectedEOF] for a stream cut off, [syscall.ECONNRESET] for
// a reset. A request that does not follow the scenario fails with a [*ScriptError].
func (m *Model) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return func(yield func(model.Event, error) bool) {
		if err := ctx.Err(); err != nil {
			yield(model.Event{}, err)
			return
		}
		if err := m.stream(ctx, req, yield); err != nil {
			yield(model.Event{}, err)
		}
	}
}

// stream yields the events and returns the final error, or nil if there is none or the
// consumer has stopped.
func (m *Model) stream(ctx context.Context, req model.Request, yield func(model.Event, error) bool) error {
	r := &Request{Time: time.Now(), Header: withoutSecrets(req.Header), Body: req.Body, view: new(view)}
	id := "req_" + strconv.FormatInt(m.n.Add(1), 10)
	if m.Record {
		r.Body = append([]byte(nil), req.Body...)
		m.mu.Lock()
		m.requests = append(m.requests, r)
		m.mu.Unlock()
	}

	if m.Strict {
		if ref := (&checked{r: r, memory: &m.play.memory}).refuse(); ref != nil {
			m.note(func() { r.Status, r.Err = ref.Status, ref })
			return &model.Error{Status: ref.Status, Type: ref.Type, Message: ref.Message, RequestID: id}
		}
	}
	p, err := m.play.next(r)
	m.note(func() { r.Script, r.Turn, r.Err = p.label, p.n, err })
	if err != nil {
		return err
	}
	t := p.turn
	header, retry := t.headers(id)
	respond := func(status int) {
		m.note(func() { r.Status = status })
		if req.OnResponse != nil {
			req.OnResponse(model.Response{Status: status, RequestID: id, Header: header})
			req.OnResponse = nil
		}
	}
	if t.status != 0 {
		for _, s := range t.steps {
			if err := wait(ctx, s.wait); err != nil {
				return err
			}
		}
		respond(t.status)
		typ, msg := t.failure()
		return &model.Error{Status: t.status, Type: typ, Message: msg, RequestID: id, RetryAfter: retry, Header: header}
	}
	name, _ := peek(req.Body)
	events := 0
	ans := p.answer(name, nil)
	if m.Strict {
		m.play.memory.remember(ans)
	}
	for _, o := range ans.ops() {
		if o.kind != opPause && o.kind != opStall && o.kind != opReset {
			respond(http.StatusOK)
		}
		switch o.kind {
		case opPause:
			if err := wait(ctx, o.wait); err != nil {
				return err
			}
		case opStall:
			<-ctx.Done()
			return ctx.Err()
		case opReset:
			return fmt.Errorf("parleytest: the script resets the connection: %w", syscall.ECONNRESET)
		case opCut, opCutClean:
			return fmt.Errorf("parleytest: the script cuts the stream off: %w", io.ErrUnexpectedEOF)
		case opError:
			return &model.Error{Type: o.typ, Message: string(o.data), RequestID: id}
		case opPing: // a model sends no pings
		case opMalformed:
			if !yield(model.Event{Type: "content_block_delta", Data: o.data}, nil) {
				return nil
			}
		case opEvent:
			if events > 0 {
				if err := wait(ctx, t.drip); err != nil {
					return err
				}
			}
			events++
			if err := ctx.Err(); err != nil {
				return err
			}
			if !yield(model.Event{Type: o.typ, Data: o.data}, nil) {
				return nil
			}
		}
	}
	return nil
}

// headers returns the header of a response, and its time to wait before a retry.
func (t *Turn) headers(id string) (http.Header, time.Duration) {
	header := http.Header{"Request-Id": {id}}
	var retry time.Duration
	for _, h := range t.header {
		header.Add(h[0], h[1])
		if s, err := strconv.Atoi(h[1]); err == nil && h[0] == "retry-after" {
			retry = time.Duration(s) * time.Second
		}
	}
	return header, retry
}

// note records the outcome of a request, if requests are kept.
func (m *Model) note(set func()) {
	if !m.Record {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	set()
}

// wait sleeps unless ctx ends first.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
