package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/internal/gate"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// The handlers in this file speak the protocol itself, as an agent does on its standard input and
// output, so that hosts drive sessions like an agent. A host sends initialize, user messages, control
// requests and responses; it receives the session's frames, the responses to its requests, and the
// questions, hooks and tool calls of the agent.
//
//	/v1/sessions/{id}/ws                      a WebSocket, one message a line
//	/v1/code/sessions/{id}/events/stream      frames as server-sent events, resumed by Last-Event-ID
//	/v1/code/sessions/{id}/events             a POST with frames of the host
//
// A browser cannot add a header to a WebSocket: a host without a header sends
// {"type":"auth","credential":{"type":"oauth","token":"TOKEN"}} first.
//
// A host with hooks or tools holds the session. A later host with the same name takes over (code
// [CloseSuperseded]); one with another name is rejected.

// authTime is how long a host may take to send its token.
const authTime = 10 * time.Second

// nativeLimit is the largest message of a host.
const nativeLimit = 32 << 20

// A frame is a message to a host. It has a number if it shows an entry of the journal.
type frame struct {
	n    uint64
	time time.Time
	data json.RawMessage

	request string // the id of the request in it, if it is one
	call    bool   // the request calls a tool, which must not run twice
}

// A native is a host, or a viewer, that speaks the protocol.
type native struct {
	s    *Server
	by   *identity
	on   *hub.Session
	ctx  context.Context
	stop context.CancelCauseFunc
	send func(frame) // never blocks

	// shared is the host that receives the answers, if this one only follows.
	shared *native

	// Set by look: the last number of the session, and the questions that are open.
	upTo uint64
	open []hub.Ask
	err  error // why they are not known

	mu    sync.Mutex
	asked map[string]hub.Ask             // questions that were sent to it, by request id
	waits map[string]chan *wire.Response // requests of the agent that it must answer
	calls map[string]context.CancelFunc  // its own requests in progress
	host  *hub.Host
	work  gate.Gate
}

func (s *Server) newNative(ctx context.Context, by *identity, id string, send func(frame)) *native {
	x := &native{s: s, by: by, on: s.cfg.Hub.Session(id), send: send,
		asked: map[string]hub.Ask{}, waits: map[string]chan *wire.Response{}, calls: map[string]context.CancelFunc{}}
	x.ctx, x.stop = context.WithCancelCause(ctx)
	return x
}

// close ends everything that the host has started. Its hooks and tools wait until it comes back.
func (x *native) close(cause error) {
	x.stop(cause)
	idle := x.work.Close()
	x.mu.Lock()
	host := x.host
	x.mu.Unlock()
	if host != nil {
		host.Close()
	}
	<-idle
}

// receive processes a line of the host. Changes are recorded in the audit log.
func (x *native) receive(line []byte) error {
	m, err := wire.Decode(line)
	kind := "line"
	if err != nil {
		err = badRequest("a message cannot be decoded: %v", err)
	} else {
		kind, err = x.handleMessage(m)
	}
	if kind == "" && err == nil {
		return nil
	}
	e := Event{By: x.by.Name, Token: x.by.token, From: x.by.From, Action: "host " + kind, Session: x.on.ID(), Status: http.StatusOK}
	if err != nil {
		e.Status, e.Reason = http.StatusBadRequest, clip(err.Error(), 500)
	}
	if err := x.s.audit.add(e); err != nil {
		x.s.logger().Error("the audit log cannot be written", "error", err)
	}
	return err
}

// handleMessage handles a message of the host. It returns its kind for the audit log.
func (x *native) handleMessage(m wire.Message) (kind string, err error) {
	switch m := m.(type) {
	case *wire.User:
		m.SessionID = ""
		_, err := x.on.Prompt(x.ctx, x.by.Actor, m)
		return "prompt", err
	case *wire.ControlRequest:
		if m.Request == nil {
			return "request", badRequest("a control request has no request")
		}
		request, err := json.Marshal(m.Request)
		if err != nil {
			return "request", err
		}
		ctx, cancel := context.WithCancel(x.ctx)
		x.mu.Lock()
		x.calls[m.RequestID] = cancel
		x.mu.Unlock()
		// A later prompt must find its hooks and tools.
		var refused error
		if m.Request.Subtype() == "initialize" && x.by.scope.allows(ScopeDrive) {
			refused = x.attachHost(ctx, request)
		}
		x.work.Go(func() {
			defer cancel()
			resp, err := json.RawMessage(nil), refused
			if err == nil {
				resp, err = x.control(ctx, request)
			}
			x.mu.Lock()
			delete(x.calls, m.RequestID)
			x.mu.Unlock()
			x.respond(m.RequestID, resp, err)
		})
		return "request " + m.Request.Subtype(), nil
	case *wire.ControlResponse:
		return "response", x.handleResponse(&m.Response)
	case *wire.ControlCancelRequest:
		x.mu.Lock()
		if cancel := x.calls[m.RequestID]; cancel != nil {
			cancel()
		}
		x.mu.Unlock()
	}
	return "", nil // keep_alive, auth, and messages of later versions
}

// respond sends the response to a request of the host.
func (x *native) respond(id string, resp json.RawMessage, err error) {
	r := wire.Response{Subtype: "success", RequestID: id, Response: resp}
	if err != nil {
		r = wire.Response{Subtype: "error", RequestID: id, Error: err.Error()}
	}
	x.emit(&wire.ControlResponse{Response: r})
}

// refused reports a message that has no effect.
func (x *native) refused(err error) {
	x.emit(&wire.ErrorLine{Err: wire.APIError{Type: "refused", Message: err.Error()}})
}

func (x *native) emit(m wire.Message) {
	line, err := wire.Encode(m)
	if err != nil {
		return
	}
	f := frame{data: line}
	if m, ok := m.(*wire.ControlRequest); ok {
		f.request = m.RequestID
		if r, ok := m.Request.(*wire.MCPMessage); ok {
			var rpc struct{ Method string }
			json.Unmarshal(r.Message, &rpc)
			f.call = rpc.Method == "tools/call"
		}
	}
	x.send(f)
}

// waiting reports whether a request that was sent to the host has no answer yet.
func (x *native) waiting(request string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.waits[request] != nil
}

// control runs a control request of the host.
func (x *native) control(ctx context.Context, request json.RawMessage) (json.RawMessage, error) {
	var r struct {
		Subtype string `json:"subtype"`
	}
	if err := json.Unmarshal(request, &r); err != nil {
		return nil, err
	}
	if r.Subtype != "initialize" {
		return x.on.Control(ctx, x.by.Actor, request)
	}
	resp, err := x.on.InitializeResponse(ctx, x.by.Actor)
	if err != nil {
		return nil, err
	}
	return json.Marshal(resp)
}

// brings reports whether a host provides something that the agent calls.
func brings(members map[string]json.RawMessage) bool {
	for _, name := range []string{"hooks", "sdkMcpServers"} {
		if v := bytes.TrimSpace(members[name]); len(v) > 2 && string(v) != "null" {
			return true
		}
	}
	return false
}

// attachHost makes it the host of the session, with the registration in its initialize request.
func (x *native) attachHost(ctx context.Context, request json.RawMessage) error {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(request, &members); err != nil {
		return err
	}
	delete(members, "subtype")
	opts := hub.HostOptions{Initialize: members, Handle: x.handle}
	h, err := x.on.Host(ctx, x.by.Actor, opts)
	var held *hub.HeldError
	if errors.As(err, &held) {
		if !brings(members) {
			return nil // it needs nothing from the agent beyond what every viewer receives
		}
		if held.By.Name != x.by.Name {
			return err
		}
		opts.TakeOver = true
		h, err = x.on.Host(ctx, x.by.Actor, opts)
	}
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.host = h
	x.mu.Unlock()
	if !x.work.Go(func() {
		select {
		case <-h.Done():
			if errors.Is(h.Err(), hub.ErrSuperseded) {
				x.stop(hub.ErrSuperseded)
			}
		case <-x.ctx.Done():
		}
	}) { // close may not have seen it
		return h.Close()
	}
	return nil
}

// errLeft leaves a question to the journal, through which every viewer receives it.
var errLeft = errors.New("serve: questions are answered through the journal")

// handle sends a request of the agent to the host and waits for the answer.
func (x *native) handle(ctx context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
	switch req.Request.(type) {
	case *wire.CanUseTool, *wire.Elicitation, *wire.RequestUserDialog:
		return nil, errLeft
	}
	id := session.NewID()
	ch := make(chan *wire.Response, 1)
	x.mu.Lock()
	x.waits[id] = ch
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		delete(x.waits, id)
		x.mu.Unlock()
	}()
	x.emit(&wire.ControlRequest{RequestID: id, Request: req.Request})
	select {
	case r := <-ch:
		switch r.Subtype {
		case "success":
			return r.Response, nil
		case "error":
			return nil, errors.New(r.Error)
		}
		return nil, fmt.Errorf("the host answered with the unknown subtype %q", r.Subtype)
	case <-ctx.Done():
		x.emit(&wire.ControlCancelRequest{RequestID: id})
		return nil, context.Cause(ctx)
	case <-x.ctx.Done():
		return nil, context.Cause(x.ctx)
	}
}

// handleResponse processes a response of the host: to a request of the agent, or to a question.
func (x *native) handleResponse(r *wire.Response) error {
	x.mu.Lock()
	ch, ask := x.waits[r.RequestID], x.asked[r.RequestID]
	x.mu.Unlock()
	if ch != nil {
		select {
		case ch <- r:
		default:
		}
		return nil
	}
	if ask.ID == "" || r.Subtype != "success" {
		return nil // there was no such request, or the host leaves the answer to others
	}
	err := x.on.Answer(x.ctx, x.by.Actor, hub.Answer{Ask: ask.ID, Shown: ask.Hash, Response: r.Response})
	var late *hub.AnsweredError
	if errors.As(err, &late) {
		return nil
	}
	return err
}

// look finds out what the session has now. A host that follows from then on misses nothing that
// happens after it is connected.
func (x *native) look() {
	info, asks, err := x.on.Info(x.ctx, x.by.Actor)
	if x.open = asks; info != nil {
		x.upTo = info.State.N
	}
	if !errors.Is(err, hub.ErrNotFound) { // it may have started outside the hub
		x.err = err
	}
}

// follow sends the frames of the session after a number, or those after look. Open and new questions
// become requests of the agent; a question that somebody else answers is cancelled. It calls attached
// once live frames arrive, too.
func (x *native) follow(after uint64, history bool, attached func()) error {
	if x.err != nil {
		return x.err
	}
	if !history {
		after = x.upTo
		for _, a := range x.open {
			x.question(frame{}, a)
		}
	}
	for e, err := range x.on.Attach(x.ctx, x.by.Actor, after) {
		if err != nil {
			return err
		}
		attached()
		f := frame{n: e.N, time: e.Time, data: e.Data}
		switch e.Kind {
		case hub.KindFrame, hub.KindLive:
			x.send(f)
		case hub.KindAsk:
			var a hub.Ask
			open := func(o hub.Ask) bool { return o.ID == a.ID }
			if json.Unmarshal(e.Data, &a) == nil && (e.N > x.upTo || slices.ContainsFunc(x.open, open)) {
				x.question(f, a)
			}
		case hub.KindAnswer:
			var a hub.Answer
			if json.Unmarshal(e.Data, &a) != nil {
				continue
			}
			to := x.answering()
			to.mu.Lock()
			_, sent := to.asked[a.Ask]
			to.mu.Unlock()
			if sent && !(a.By.Name == x.by.Name && a.By.From == x.by.From) {
				f.data, _ = wire.Encode(&wire.ControlCancelRequest{RequestID: a.Ask})
				x.send(f)
			}
		}
	}
	return context.Cause(x.ctx)
}

// answering returns the host that receives answers.
func (x *native) answering() *native {
	if x.shared != nil {
		return x.shared
	}
	return x
}

// question sends a question to a host that may answer it.
func (x *native) question(f frame, a hub.Ask) {
	if !x.by.scope.allows(ScopeApprove) {
		return
	}
	to := x.answering()
	to.mu.Lock()
	to.asked[a.ID] = a
	to.mu.Unlock()
	f.data, _ = json.Marshal(struct {
		Type      string          `json:"type"`
		RequestID string          `json:"request_id"`
		Request   json.RawMessage `json:"request"`
	}{"control_request", a.ID, a.Request})
	x.send(f)
}

// A queue holds frames for a connection, so that senders never wait. A queue that is full ends with a
// [hub.LaggedError].
type queue struct {
	mu    sync.Mutex
	list  []frame
	bytes int
	last  uint64
	full  bool
	bell  chan struct{} // holds a token if there is a new frame
}

const queueLimit = 8 << 20

func newQueue() *queue { return &queue{bell: make(chan struct{}, 1)} }

func (q *queue) put(f frame) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes += len(f.data); q.bytes > queueLimit && len(q.list) > 0 {
		q.full = true
	} else {
		q.list = append(q.list, f)
	}
	select {
	case q.bell <- struct{}{}:
	default:
	}
}

func (q *queue) drain() ([]frame, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.list
	q.list, q.bytes = nil, 0
	for _, f := range list {
		q.last = max(q.last, f.n)
	}
	if len(list) == 0 && q.full {
		return nil, &hub.LaggedError{After: q.last}
	}
	return list, nil
}

// wait sends the frames of a queue until ctx ends. It reports to send whether more follow at once.
func (q *queue) wait(ctx context.Context, send func(f frame, more bool) error) error {
	for {
		list, err := q.drain()
		if err != nil {
			return err
		}
		for i, f := range list {
			if err := send(f, i < len(list)-1); err != nil {
				return err
			}
		}
		if len(list) > 0 {
			continue
		}
		select {
		case <-q.bell:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// nativeSocket serves the WebSocket of a host.
func nativeSocket(c *call) {
	id, err := c.s.identify(c.r)
	if errors.Is(err, errNoToken) {
		err = nil // it arrives with the first message
	}
	if err == nil && c.r.Header.Get("Sec-WebSocket-Key") == "" {
		err = &problem{http.StatusUpgradeRequired, "upgrade", "this is a WebSocket"}
	}
	after, afterErr := c.after()
	err = errors.Join(err, afterErr)
	known := func() {}
	if err == nil && id == nil {
		known, err = c.s.strangers.enter(c.s.address(c.r))
		defer known()
	}
	if err != nil {
		c.s.fail(c.w, c.r, id, err)
		return
	}
	q := newQueue()
	var x *native
	begin := func() {
		x = c.s.newNative(c.r.Context(), id, c.r.PathValue("id"), q.put)
		x.look()
	}
	if id != nil {
		begin()
	}
	conn, more, err := c.acceptBundled()
	if err != nil {
		if x != nil {
			x.stop(err)
		}
		return // Accept has responded
	}
	defer conn.CloseNow()
	conn.SetReadLimit(4 << 10)
	if id == nil {
		ctx, cancel := context.WithTimeout(c.r.Context(), authTime)
		_, first, err := conn.Read(ctx)
		cancel()
		if err == nil {
			id, err = c.s.firstMessage(first, c.s.address(c.r))
		}
		if err != nil {
			c.s.note(c.r, nil, http.StatusUnauthorized, err.Error())
			conn.Close(CloseRevoked, "the token is not valid")
			return
		}
		known()
		begin()
	}
	conn.SetReadLimit(nativeLimit)
	defer context.AfterFunc(id.ctx, func() { x.stop(errRevoked) })()
	defer context.AfterFunc(c.s.ctx, func() { x.stop(context.Cause(c.s.ctx)) })()
	var work sync.WaitGroup
	attached := make(chan struct{})
	work.Go(func() {
		x.stop(x.follow(after, c.r.URL.Query().Has("after"), sync.OnceFunc(func() { close(attached) })))
	})
	// Cancelling a read or a write would end the connection before it is closed with a code.
	whole := context.WithoutCancel(c.r.Context())
	work.Go(func() {
		select {
		case <-attached: // the host receives everything that its messages lead to
		case <-x.ctx.Done():
		}
		x.stop(readLines(whole, conn, x))
	})
	work.Go(func() {
		for x.ctx.Err() == nil {
			select {
			case <-time.After(beatTime):
				ctx, cancel := context.WithTimeout(whole, writeTime)
				err := conn.Ping(ctx)
				if cancel(); err != nil {
					x.stop(err)
				}
			case <-x.ctx.Done():
			}
		}
	})
	err = q.wait(x.ctx, func(f frame, follows bool) error {
		ctx, cancel := context.WithTimeout(whole, writeTime)
		defer cancel()
		more.Store(follows)
		return conn.Write(ctx, websocket.MessageText, append(slices.Clip(f.data), '\n'))
	})
	x.stop(err)
	closeWith(conn, err)
	conn.CloseNow()
	work.Wait() // nothing more is received
	x.close(err)
}

// firstMessage reads the token of a host from its first message.
func (s *Server) firstMessage(line []byte, from string) (*identity, error) {
	var m struct {
		Type       string `json:"type"`
		Credential struct {
			Token string `json:"token"`
		} `json:"credential"`
	}
	if json.Unmarshal(line, &m) != nil || m.Type != "auth" || m.Credential.Token == "" {
		return nil, errNoToken
	}
	cred, err := s.authenticate(m.Credential.Token, from)
	if err != nil {
		return nil, err
	}
	return cred.identity(from), nil
}

// readLines passes the messages of a WebSocket to the host, until it ends.
func readLines(ctx context.Context, conn *websocket.Conn, x *native) error {
	for {
		_, data, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(data) {
			if line = bytes.TrimSpace(line); len(line) == 0 {
				continue
			}
			if err := x.receive(line); err != nil {
				x.refused(err)
			}
		}
	}
}
