package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A host at a socket keeps one response open, on which it receives the agent's requests,
// and sends each answer in a separate request.

// hostLine is one line of that response.
type hostLine struct {
	Epoch   uint64          `json:"epoch,omitempty"`   // in the first line
	Link    string          `json:"link,omitempty"`    // in the first line: names the host in its answers
	Call    string          `json:"call,omitempty"`    // identifies a request
	Request json.RawMessage `json:"request,omitempty"` // nil means that the answer is no longer needed
}

// hostRegistration is the body of the request that attaches a host.
type hostRegistration struct {
	Initialize map[string]json.RawMessage `json:"initialize"`
	TakeOver   bool                       `json:"take_over"`
}

// hostAnswer is the answer to a request.
type hostAnswer struct {
	Response json.RawMessage `json:"response,omitempty"`
	Error    string          `json:"error,omitempty"`
}

// A remoteHost is a host that is attached over the socket.
type remoteHost struct {
	lines chan hostLine
	done  <-chan struct{} // closed when it has left

	mu    sync.Mutex
	next  int
	calls map[string]chan hostAnswer
	host  *hub.Host
}

// handle sends a request to the host and waits for its answer.
func (h *remoteHost) handle(ctx context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
	raw, err := wire.Encode(req)
	if err != nil {
		return nil, err
	}
	answer := make(chan hostAnswer, 1)
	h.mu.Lock()
	h.next++
	call := fmt.Sprint(h.next)
	h.calls[call] = answer
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.calls, call)
		h.mu.Unlock()
	}()
	select {
	case h.lines <- hostLine{Call: call, Request: raw}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-h.done:
		return nil, hub.ErrClosed
	}
	select {
	case a := <-answer:
		if a.Error != "" {
			return nil, errors.New(a.Error)
		}
		return a.Response, nil
	case <-ctx.Done():
		select {
		case h.lines <- hostLine{Call: call}:
		case <-h.done:
		}
		return nil, context.Cause(ctx)
	case <-h.done:
		return nil, hub.ErrClosed
	}
}

// serveHost attaches a host until its connection ends.
func (s *server) serveHost(w http.ResponseWriter, r *http.Request) {
	reg, ok := read[hostRegistration](w, r)
	if !ok {
		return
	}
	rh := &remoteHost{lines: make(chan hostLine), done: r.Context().Done(), calls: map[string]chan hostAnswer{}}
	host, err := s.session(r).Host(r.Context(), by(r), hub.HostOptions{Initialize: reg.Initialize, TakeOver: reg.TakeOver, Handle: rh.handle})
	if err != nil {
		fail(w, err)
		return
	}
	defer host.Close()
	link := session.NewID()
	rh.host = host
	s.mu.Lock()
	s.hosts[link] = rh
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.hosts, link)
		s.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out, enc := http.NewResponseController(w), json.NewEncoder(w)
	if enc.Encode(hostLine{Epoch: host.Epoch(), Link: link}) != nil || out.Flush() != nil {
		return
	}
	for {
		select {
		case line := <-rh.lines:
			if enc.Encode(line) != nil || out.Flush() != nil {
				return
			}
		case <-host.Done():
			if err := host.Err(); r.Context().Err() == nil {
				enc.Encode(failureOf(err))
			}
			return
		case <-r.Context().Done():
			return
		}
	}
}

// remote returns the host that sent a request.
func (s *server) remote(r *http.Request) *remoteHost {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hosts[r.PathValue("link")]
}

// hostAnswers receives the answer of a host.
func (s *server) hostAnswers(w http.ResponseWriter, r *http.Request) {
	answer, ok := read[hostAnswer](w, r)
	if !ok {
		return
	}
	if rh := s.remote(r); rh != nil {
		rh.mu.Lock()
		call := rh.calls[r.PathValue("call")]
		delete(rh.calls, r.PathValue("call"))
		rh.mu.Unlock()
		if call != nil {
			call <- answer
		}
	}
	reply(w, struct{}{}, nil) // an answer that comes too late does no harm
}

// hostLeaves detaches a host permanently.
func (s *server) hostLeaves(w http.ResponseWriter, r *http.Request) {
	rh := s.remote(r)
	if rh == nil {
		fail(w, hub.ErrNotFound)
		return
	}
	reply(w, struct{}{}, rh.host.Leave(r.Context()))
}

// A hostLink is the client's side of a host.
type hostLink struct {
	c     *Client
	epoch uint64
	link  string
	stop  context.CancelCauseFunc
	done  chan struct{}
	err   error // set before done is closed
}

var _ hub.HostLink = (*hostLink)(nil)

// Host implements [hub.Client].
func (c *Client) Host(ctx context.Context, id string, opts hub.HostOptions) (hub.HostLink, error) {
	if opts.Handle == nil {
		return nil, errors.New("hub: HostOptions.Handle is required")
	}
	if !session.ValidID(id) {
		return nil, c.on(ctx, id, "", nil, nil)
	}
	body, err := json.Marshal(hostRegistration{opts.Initialize, opts.TakeOver})
	if err != nil {
		return nil, err
	}
	// The link outlives ctx, which belongs to the call.
	live, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })
	l := &hostLink{c: c, stop: stop, done: make(chan struct{})}
	ready := make(chan error, 1)
	go l.run(live, "/sessions/"+id+"/host", body, opts.Handle, ready)
	if err := <-ready; err != nil {
		stop(err)
		return nil, err
	}
	if !unlink() {
		<-l.done
		return nil, context.Cause(ctx)
	}
	return l, nil
}

// run receives requests until the link ends. It sends the result of attaching to ready.
func (l *hostLink) run(ctx context.Context, path string, body []byte, handle func(context.Context, *wire.ControlRequest) (json.RawMessage, error), ready chan<- error) {
	defer close(l.done)
	defer l.stop(hub.ErrClosed)
	resp, err := l.c.send(ctx, "POST", path, body)
	if err != nil {
		ready <- err
		return
	}
	defer resp.Body.Close()
	var mu sync.Mutex
	calls := map[string]context.CancelFunc{}
	for line, err := range l.c.lines(ctx, resp.Body) {
		var in hostLine
		if err == nil {
			err = json.Unmarshal(line, &in)
		}
		switch {
		case err != nil:
			if l.err = err; l.link == "" {
				ready <- err
			}
			return
		case l.link == "":
			l.epoch, l.link = in.Epoch, in.Link
			ready <- nil
		case in.Request == nil:
			mu.Lock()
			if cancel := calls[in.Call]; cancel != nil {
				cancel()
			}
			mu.Unlock()
		default:
			call, cancel := context.WithCancel(ctx)
			mu.Lock()
			calls[in.Call] = cancel
			mu.Unlock()
			go func() {
				defer cancel()
				l.answer(call, in, handle)
				mu.Lock()
				delete(calls, in.Call)
				mu.Unlock()
			}()
		}
	}
}

// answer calls handle with a request, and sends the answer.
func (l *hostLink) answer(ctx context.Context, in hostLine, handle func(context.Context, *wire.ControlRequest) (json.RawMessage, error)) {
	var out hostAnswer
	m, err := wire.Decode(in.Request)
	if req, ok := m.(*wire.ControlRequest); err == nil && ok {
		out.Response, err = handle(ctx, req)
	} else if err == nil {
		err = errors.New("the request cannot be read")
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		out = hostAnswer{Error: err.Error()}
	}
	l.c.do(ctx, "POST", "/hosts/"+l.link+"/"+in.Call, out, nil)
}

func (l *hostLink) Epoch() uint64         { return l.epoch }
func (l *hostLink) Done() <-chan struct{} { return l.done }

func (l *hostLink) Err() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}

func (l *hostLink) Close() error {
	l.stop(hub.ErrClosed)
	<-l.done
	return nil
}

func (l *hostLink) Leave(ctx context.Context) error {
	return errors.Join(l.c.do(ctx, "POST", "/hosts/"+l.link+"/leave", nil, nil), l.Close())
}
