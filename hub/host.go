package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// HostOptions configure a host.
type HostOptions struct {
	// Initialize is the host's registration: members of the protocol's initialize request,
	// such as hooks and sdkMcpServers. It stays registered while the host is away. If it
	// differs from the current registration, the agent receives it before its next turn.
	Initialize map[string]json.RawMessage
	// Handle answers requests of the agent: hooks, tools of the host's servers, questions,
	// and every request that the hub does not know. Its context ends when the answer is no
	// longer needed. If Handle returns an error for a question, the question is left to
	// others; for any other request the error is the answer.
	Handle func(ctx context.Context, req *wire.ControlRequest) (json.RawMessage, error)
	// TakeOver detaches the host that is attached. Without it a second host is rejected.
	TakeOver bool
}

// A HeldError means that another host is attached.
type HeldError struct {
	By    Actor // the attached host
	Epoch uint64
}

// Error names the host.
func (e *HeldError) Error() string {
	return fmt.Sprintf("hub: %s is the host of the session (epoch %d)", e.By.Name, e.Epoch)
}

// ErrSuperseded means that another host took over.
var ErrSuperseded = errors.New("hub: another host took the session over")

// A Host is a program that is attached to a session and answers its agent's requests. It stays
// attached when another process takes the session over.
type Host struct {
	s    *Session
	id   string // identifies it in other processes
	by   Actor
	opts HostOptions
	ctx  context.Context // ends with the host
	stop context.CancelCauseFunc
	left chan struct{} // closed when it is detached

	mu sync.Mutex
	at *place
}

// A place is where a host is attached: a room of this process, or another process.
type place struct {
	epoch uint64
	ctx   context.Context // ends when the host is no longer attached there
	leave func(ctx context.Context, permanently bool) error
}

// Epoch returns the number of the entry with which the host attached to the session. A
// later host has a higher one.
func (h *Host) Epoch() uint64 { return h.place().epoch }

func (h *Host) place() *place {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at
}

// Done is closed when the host is no longer attached; [Host.Err] returns the reason.
func (h *Host) Done() <-chan struct{} { return h.ctx.Done() }

// Err returns why the host is no longer attached: [ErrSuperseded] if another one took
// over. It returns nil while the host is attached.
func (h *Host) Err() error {
	if h.ctx.Err() == nil {
		return nil
	}
	return context.Cause(h.ctx)
}

// Host attaches a host to the session.
func (s *Session) Host(ctx context.Context, by Actor, opts HostOptions) (*Host, error) {
	if opts.Handle == nil {
		return nil, errors.New("hub: HostOptions.Handle is required")
	}
	if opts.Initialize == nil {
		opts.Initialize = map[string]json.RawMessage{}
	}
	for name, value := range opts.Initialize {
		var line bytes.Buffer
		if err := json.Compact(&line, value); err != nil {
			return nil, fmt.Errorf("hub: the member %s of initialize is not JSON: %w", name, err)
		}
		opts.Initialize = maps.Clone(opts.Initialize)
		opts.Initialize[name] = line.Bytes()
	}
	h := &Host{s: s, id: session.NewID(), by: by, opts: opts, left: make(chan struct{})}
	var err error
	if h.at, err = h.attach(ctx, opts); err != nil {
		return nil, err
	}
	h.ctx, h.stop = context.WithCancelCause(s.hub.ctx)
	if !s.hub.start(h.stay) {
		return nil, errors.Join(ErrClosed, h.at.leave(ctx, false))
	}
	return h, nil
}

// attach attaches the host here, or in the process that runs the session.
func (h *Host) attach(ctx context.Context, opts HostOptions) (*place, error) {
	seat, err := h.s.seatHost(ctx, h.by, opts)
	if err != nil {
		return h.hostElsewhere(ctx, err, opts)
	}
	return &place{seat.epoch, seat.ctx, seat.leavePlace}, nil
}

// hostRetry is how long a host that was detached waits between attempts to attach again.
const hostRetry = 250 * time.Millisecond

// stay keeps the host attached, wherever the session runs, until it is closed or superseded.
func (h *Host) stay() {
	defer close(h.left)
	for at := h.at; ; {
		select {
		case <-at.ctx.Done():
		case <-h.ctx.Done():
			at.leave(context.WithoutCancel(h.ctx), false)
			return
		}
		err := context.Cause(at.ctx)
		for wait := hostRetry; err != nil; wait = min(2*wait, 5*time.Second) {
			if held := (*HeldError)(nil); errors.As(err, &held) {
				err = ErrSuperseded
			}
			for _, final := range []error{ErrSuperseded, ErrClosed, ErrNotFound, ErrForbidden} {
				if errors.Is(err, final) {
					h.stop(err)
					return
				}
			}
			select {
			case <-time.After(wait):
			case <-h.ctx.Done():
				return
			}
			again := h.opts
			again.TakeOver = false
			at, err = h.attach(h.ctx, again)
		}
		h.mu.Lock()
		h.at = at
		h.mu.Unlock()
	}
}

// Close detaches the host. Its hooks and tools stay registered, and wait until it comes
// back.
func (h *Host) Close() error {
	h.stop(ErrClosed)
	<-h.left
	return nil
}

// Leave detaches the host for good and removes its registration.
func (h *Host) Leave(ctx context.Context) error {
	return errors.Join(h.place().leave(ctx, true), h.Close())
}

// A seat is the place of a host in a room.
type seat struct {
	by    Actor
	epoch uint64
	opts  HostOptions
	r     *room
	ctx   context.Context // ends when the host leaves it
	stop  context.CancelCauseFunc
	leave sync.Once
}

// seatHost attaches a host to the session in this process.
func (s *Session) seatHost(ctx context.Context, by Actor, opts HostOptions) (*seat, error) {
	if err := s.hub.check(ctx, by, s.id, MayDrive, "be the host"); err != nil {
		return nil, err
	}
	for {
		h, err := s.seatOnce(ctx, by, opts)
		if !errors.Is(err, errReopen) {
			return h, err
		}
	}
}

func (s *Session) seatOnce(ctx context.Context, by Actor, opts HostOptions) (*seat, error) {
	r, err := s.hub.enter(ctx, s.id, nil) // until the host leaves
	if err != nil {
		return nil, err
	}
	h := &seat{by: by, opts: opts, r: r}
	h.ctx, h.stop = context.WithCancelCause(r.ctx)
	err = r.do(ctx, func(x *tx) error {
		if r.lease == nil && r.fold.owner != "" {
			return fmt.Errorf("%w; the last one that did is %s: attach the host there", ErrLocked, r.fold.owner)
		}
		if r.lease == nil {
			return ErrLocked
		}
		if old := r.host; old != nil && !opts.TakeOver {
			return &HeldError{old.by, old.epoch}
		} else if old != nil {
			old.stop(ErrSuperseded)
		}
		h.epoch = x.append(KindHost, mustJSON(HostChange{By: by, Initialize: opts.Initialize}), nil).N
		r.setHost(h)
		return nil
	})
	if err != nil {
		h.stop(err)
		s.hub.exit(r)
		return nil, err
	}
	context.AfterFunc(h.ctx, h.detach)
	return h, nil
}

// detach removes the host from its room.
func (h *seat) detach() {
	h.leave.Do(func() {
		h.r.do(context.Background(), func(*tx) error {
			if h.r.host == h {
				h.r.setHost(nil)
			}
			return nil
		})
		h.r.hub.exit(h.r)
	})
}

// leavePlace detaches the host, and removes its registration if it leaves permanently.
func (h *seat) leavePlace(ctx context.Context, permanently bool) (err error) {
	if permanently {
		err = h.r.do(ctx, func(x *tx) error {
			if h.r.host == h {
				x.append(KindHost, mustJSON(HostChange{By: h.by}), nil)
			}
			return nil
		})
	}
	h.stop(ErrClosed)
	h.detach()
	return err
}

// setHost changes the attached host, and forwards the open questions to it.
func (r *room) setHost(h *seat) {
	r.host, r.fold.dirty = h, true
	if r.hostChanged != nil {
		close(r.hostChanged)
	}
	r.hostChanged = make(chan struct{})
	for _, w := range r.hostAsks {
		w.forward(h)
	}
}

// A hostAsk is a question that is also forwarded to an attached host.
type hostAsk struct {
	r      *room
	ask    *Ask
	req    *wire.ControlRequest
	ctx    context.Context
	cancel context.CancelFunc
}

// forward sends the question to a host.
func (w *hostAsk) forward(h *seat) {
	if h == nil {
		return
	}
	w.r.work.Go(func() {
		ctx, cancel := context.WithCancel(w.ctx)
		defer cancel()
		defer context.AfterFunc(h.ctx, cancel)()
		resp, err := h.opts.Handle(ctx, w.req)
		if err != nil || ctx.Err() != nil {
			return
		}
		ans := &Answer{Ask: w.ask.ID, By: h.by, Shown: w.ask.Hash, Response: resp, Outcome: Answered}
		if err := w.ask.check(h.by, ans); err != nil {
			w.r.hub.warn("the host's answer does not count", err)
			return
		}
		w.r.putAnswer(ans)
	})
}

// hostGrace is how long hooks and tools wait by default for a host that is away.
const hostGrace = 10 * time.Minute

// errHostAway is the error that the agent gets when the host does not come back.
var errHostAway = errors.New("the host that answers this is away, and did not come back in time")

// errHostLost is the error that the agent gets when a host went away while it ran a tool.
var errHostLost = errors.New("the host went away while it ran this: it may have taken effect in full, in part or not at all")

// askHost sends the host a request that only the host can answer, and waits for the
// answer.
func (a *agentRun) askHost(ctx context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
	r := a.r
	expires := time.Now().Add(r.hub.cfg.HostGrace).UTC().Truncate(time.Millisecond)
	timer := time.NewTimer(r.hub.cfg.HostGrace)
	defer timer.Stop()
	waiting := Waiting{Kind: "host", ID: req.RequestID, About: aboutRequest(req.Request), Expires: &expires}
	for {
		var h *seat
		var changed <-chan struct{}
		err := r.do(ctx, func(*tx) error {
			if r.fold.host == nil {
				return &parley.ControlError{Subtype: req.Request.Subtype(), Message: "no host is attached that could answer"}
			}
			if h = r.host; h == nil {
				if r.hostChanged == nil {
					r.hostChanged = make(chan struct{})
				}
				changed = r.hostChanged
				a.waits = append(a.waits, waiting)
				r.fold.dirty = true
			}
			return nil
		})
		if err != nil {
			return nil, a.unanswered(err)
		}
		if h != nil {
			if h.ctx.Err() != nil {
				continue // it was superseded before it received the request
			}
			resp, err, answered := h.handle(ctx, req)
			if answered {
				return resp, err
			}
			if callsTool(req.Request) {
				return nil, errHostLost
			}
			continue // a hook only decides, and a server only describes itself: the next host may answer
		}
		select {
		case <-changed:
		case <-timer.C:
			err = errHostAway
		case <-ctx.Done():
			err = a.unanswered(context.Cause(ctx))
		}
		r.post(context.Background(), func(*tx) error {
			for i, w := range a.waits {
				if w.ID == waiting.ID {
					a.waits = append(a.waits[:i:i], a.waits[i+1:]...)
					break
				}
			}
			r.fold.dirty = true
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
}

// callsTool reports whether a request runs a tool of a host's server.
func callsTool(req wire.Request) bool {
	m, ok := req.(*wire.MCPMessage)
	var call struct{ Method string }
	return ok && (json.Unmarshal(m.Message, &call) != nil || call.Method == "tools/call")
}

// handle calls the host's handler. answered is false if the host went away in the
// meantime.
func (h *seat) handle(ctx context.Context, req *wire.ControlRequest) (resp json.RawMessage, err error, answered bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })()
	type answer struct {
		resp json.RawMessage
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		resp, err := h.opts.Handle(ctx, req)
		done <- answer{resp, err}
	}()
	select {
	case a := <-done:
		if a.err != nil && h.ctx.Err() != nil {
			return nil, nil, false
		}
		return a.resp, a.err, true
	case <-ctx.Done():
		if h.ctx.Err() != nil {
			return nil, nil, false
		}
		return nil, context.Cause(ctx), true
	}
}

// aboutRequest describes in a word or two what the agent asks the host for.
func aboutRequest(req wire.Request) string {
	switch req := req.(type) {
	case *wire.HookCallback:
		if req.Input != nil {
			return "hook " + string(req.Input.Event())
		}
		return "hook " + req.CallbackID
	case *wire.MCPMessage:
		return "server " + req.ServerName
	}
	return req.Subtype()
}
