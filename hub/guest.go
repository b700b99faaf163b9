package hub

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/parley-go/parley/wire"
)

// A host may be attached in one process while another one runs the session. The process that runs it seats a guest
// in its room. The process of the host asks the guest for requests of the agent, calls the handler, and sends the
// answers back, all of it through the [Caller].

const (
	guestPoll = 10 * time.Second // how long the guest waits for a request before it returns none
	pollGrace = 5 * time.Second  // how much longer the response may take
	// guestGrace is how long a guest stays that nobody polls.
	guestGrace = 15 * time.Second
)

// errNoHost means that a process does not have the guest any more. The host attaches again.
var errNoHost = errors.New("hub: the host is not attached here")

// The arguments and results of the calls between the two processes.
type (
	hostCall struct {
		Host       string                     `json:"host"` // the same when it attaches again
		Initialize map[string]json.RawMessage `json:"initialize"`
		TakeOver   bool                       `json:"take_over,omitempty"`
	}
	hostPoll struct {
		Host  string `json:"host"`
		After uint64 `json:"after"` // number of the last event that arrived
	}
	hostAnswer struct {
		Host     string          `json:"host"`
		Call     uint64          `json:"call"`
		Response json.RawMessage `json:"response,omitempty"`
		Error    string          `json:"error,omitempty"`
	}
	hostLeave struct {
		Host        string `json:"host"`
		Permanently bool   `json:"permanently,omitempty"`
	}
	// A hostEvent is a request of the agent, or says that the answer to one is no longer needed.
	hostEvent struct {
		N       uint64          `json:"n"`
		Request json.RawMessage `json:"request,omitempty"` // a control request; N identifies the call
		Cancel  uint64          `json:"cancel,omitempty"`
	}
)

// A guest stands for a host that is attached through another process.
type guest struct {
	session string
	by      string // name of the actor
	seat    *seat
	quiet   *time.Timer // ends the guest

	mu     sync.Mutex
	last   uint64                     // number of the last event
	events []hostEvent                // those that may not have arrived
	bell   chan struct{}              // closed when there is a new event
	calls  map[uint64]chan hostAnswer // by the number of the request
}

// admit seats a guest and returns its epoch.
func (s *Session) admit(ctx context.Context, by Actor, in hostCall) (uint64, error) {
	if g, err := s.guest(by, in.Host); err == nil && g.seat.ctx.Err() == nil {
		return g.seat.epoch, nil // the response to an earlier call was lost
	}
	g := &guest{session: s.id, by: by.Name, bell: make(chan struct{}), calls: map[uint64]chan hostAnswer{}}
	var err error
	if g.seat, err = s.seatHost(ctx, by, HostOptions{Initialize: in.Initialize, TakeOver: in.TakeOver, Handle: g.handle}); err != nil {
		return 0, err
	}
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.guests[in.Host] = g
	g.quiet = time.AfterFunc(guestGrace, func() {
		h.mu.Lock()
		if h.guests[in.Host] == g {
			delete(h.guests, in.Host)
		}
		h.mu.Unlock()
		g.seat.stop(errNoHost)
	})
	return g.seat.epoch, nil
}

// guest returns a guest of the session.
func (s *Session) guest(by Actor, id string) (*guest, error) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	g := s.hub.guests[id]
	if g == nil || g.session != s.id || g.by != by.Name {
		return nil, errNoHost
	}
	return g, nil
}

// put adds an event. g.mu is locked.
func (g *guest) put(e hostEvent) uint64 {
	g.last++
	e.N = g.last
	g.events = append(g.events, e)
	close(g.bell)
	g.bell = make(chan struct{})
	return e.N
}

// handle passes a request of the agent on to the host and waits for the answer.
func (g *guest) handle(ctx context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
	line, err := wire.Encode(req)
	if err != nil {
		return nil, err
	}
	answer := make(chan hostAnswer, 1)
	g.mu.Lock()
	n := g.put(hostEvent{Request: line})
	g.calls[n] = answer
	g.mu.Unlock()
	select {
	case a := <-answer:
		if a.Error != "" {
			return nil, errors.New(a.Error)
		}
		return a.Response, nil
	case <-ctx.Done():
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.calls, n)
		g.put(hostEvent{Cancel: n})
		return nil, context.Cause(ctx)
	}
}

// answer processes an answer of the host. One that arrives twice or too late does no harm.
func (g *guest) answer(a hostAnswer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch := g.calls[a.Call]; ch != nil {
		delete(g.calls, a.Call)
		ch <- a
	}
}

// poll returns the events after a number. It waits for some time until there are any.
func (g *guest) poll(ctx context.Context, after uint64) ([]hostEvent, error) {
	g.quiet.Stop()
	defer g.quiet.Reset(guestGrace)
	timer := time.NewTimer(guestPoll)
	defer timer.Stop()
	for {
		g.mu.Lock()
		g.events = slices.DeleteFunc(g.events, func(e hostEvent) bool { return e.N <= after })
		events, bell := slices.Clone(g.events), g.bell
		g.mu.Unlock()
		if len(events) > 0 {
			return events, nil
		}
		select {
		case <-bell:
		case <-timer.C:
			return nil, nil
		case <-g.seat.ctx.Done():
			if err := context.Cause(g.seat.ctx); errors.Is(err, ErrSuperseded) || errors.Is(err, ErrNotFound) {
				return nil, err
			}
			return nil, errNoHost
		case <-ctx.Done():
			return nil, errNoHost
		}
	}
}

// A farHost is a host that is attached in another process.
type farHost struct {
	s      *Session
	by     Actor
	handle func(context.Context, *wire.ControlRequest) (json.RawMessage, error)
	id     string
	ctx    context.Context // ends when it is no longer attached there
	stop   context.CancelCauseFunc
	done   chan struct{} // closed when all of its goroutines have ended

	mu    sync.Mutex
	calls map[uint64]context.CancelFunc // requests in progress, by number
}

// hostElsewhere attaches a host in the process that runs the session, if err is [ErrLocked].
func (h *Host) hostElsewhere(ctx context.Context, err error, opts HostOptions) (*place, error) {
	var epoch uint64
	if err := h.s.elsewhere(ctx, err, "host", h.by, hostCall{h.id, opts.Initialize, opts.TakeOver}, &epoch); err != nil {
		return nil, err
	}
	f := &farHost{s: h.s, by: h.by, handle: opts.Handle, id: h.id, done: make(chan struct{}), calls: map[uint64]context.CancelFunc{}}
	f.ctx, f.stop = context.WithCancelCause(h.s.hub.ctx)
	if !h.s.hub.start(f.run) {
		return nil, ErrClosed
	}
	return &place{epoch, f.ctx, f.leave}, nil
}

// call calls a method of the guest.
func (f *farHost) call(ctx context.Context, limit time.Duration, method string, args, result any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f.s.elsewhere(ctx, ErrLocked, method, f.by, args, result)
}

// pause waits before a call is repeated.
func (f *farHost) pause(ctx context.Context) {
	select {
	case <-time.After(hostRetry):
	case <-ctx.Done():
	}
}

// run receives requests of the agent and answers them, until the guest is gone.
func (f *farHost) run() {
	defer close(f.done)
	var work sync.WaitGroup
	defer work.Wait()
	for after := uint64(0); f.ctx.Err() == nil; {
		var events []hostEvent
		err := f.call(f.ctx, guestPoll+pollGrace, "host_poll", hostPoll{f.id, after}, &events)
		if errors.Is(err, errNoHost) || errors.Is(err, ErrSuperseded) || errors.Is(err, ErrNotFound) {
			f.stop(err)
		} else if err != nil { // the guest may still be there
			f.pause(f.ctx)
		}
		for _, e := range events {
			after = max(after, e.N)
			f.mu.Lock()
			if cancel := f.calls[e.Cancel]; cancel != nil {
				cancel()
			}
			if e.Request != nil {
				ctx, cancel := context.WithCancel(f.ctx)
				f.calls[e.N] = cancel
				work.Go(func() { f.answer(ctx, e) })
			}
			f.mu.Unlock()
		}
	}
}

// answer answers a request of the agent.
func (f *farHost) answer(ctx context.Context, e hostEvent) {
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.calls[e.N]()
		delete(f.calls, e.N)
	}()
	a := hostAnswer{Host: f.id, Call: e.N}
	m, err := wire.Decode(e.Request)
	if req, ok := m.(*wire.ControlRequest); ok && err == nil {
		a.Response, err = f.handle(ctx, req)
	}
	if err != nil {
		a.Response, a.Error = nil, err.Error()
	}
	for ctx.Err() == nil {
		if err := f.call(ctx, guestPoll, "host_answer", a, nil); err == nil || errors.Is(err, errNoHost) {
			return
		}
		f.pause(ctx)
	}
}

// leave detaches the host.
func (f *farHost) leave(ctx context.Context, permanently bool) error {
	f.stop(ErrClosed)
	<-f.done
	err := f.call(ctx, pollGrace, "host_leave", hostLeave{f.id, permanently}, nil)
	if errors.Is(err, errNoHost) && !permanently {
		return nil
	}
	return err
}
