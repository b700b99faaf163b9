package acp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/parley-go/parley/wire"
)

// An Error is a JSON-RPC error, as in a response.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// Error returns the message.
func (e *Error) Error() string { return "acp: " + e.Message }

// The error codes.
const (
	CodeParse          = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	CodeAuthRequired   = -32000
	CodeNotFound       = -32002
	CodeCancelled      = -32800
)

func errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// asError converts err for a response.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return errorf(CodeInternal, "%v", err)
}

const (
	// maxFrame is the maximum length of a line in bytes.
	maxFrame = 32 << 20
	// maxOpen is how many requests of the peer may wait for their responses. A cancel is not a
	// request, and is always read.
	maxOpen = 1024
)

// A frame is a request, a notification or a response.
type frame struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *Error          `json:"error,omitempty"`
}

// A request is a request of the peer. It is answered once; later responses have no effect.
type request struct {
	c      *conn
	id     json.RawMessage // nil: a notification
	method string
	params json.RawMessage
	ctx    context.Context // ends with the connection, and when the peer cancels the request
	cancel context.CancelCauseFunc
}

// errCancelled is the cancellation cause of the context of a request that its sender
// cancelled.
var errCancelled = errors.New("acp: the request was cancelled")

// decode decodes the parameters.
func (r *request) decode(v any) error {
	params := r.params
	if len(params) == 0 {
		params = json.RawMessage("{}")
	}
	if params[0] != '{' {
		return errorf(CodeInvalidParams, "%s: params must be an object", r.method)
	}
	if err := json.Unmarshal(params, v); err != nil {
		return errorf(CodeInvalidParams, "%s: %v", r.method, err)
	}
	return nil
}

// respond responds to the request with a result, or with an error if err is not nil.
func (r *request) respond(result any, err error) {
	if r.id == nil || !r.c.removeOpen(r) {
		return
	}
	f := frame{Version: "2.0", ID: r.id}
	if err == nil {
		f.Result, err = json.Marshal(result)
	}
	if err != nil {
		f.Result, f.Error = nil, asError(err)
	}
	r.c.write(&f)
}

// A conn is a JSON-RPC connection: one JSON object per line, in both directions.
//
// One goroutine reads. It passes requests and notifications to handle, in order, and writes
// only if it has more to reject than the peer reads; so a peer that does not read delays no
// cancel. Writers take turns with a lock: a frame is written before write returns, and a peer
// that does not read blocks writers.
type conn struct {
	handle func(*request) // called by the reader, in order; it must not block
	log    func(dir string, line []byte)
	draft  atomic.Pointer[draft] // translates if the peer speaks version 2

	writing sync.Mutex
	w       io.Writer

	mu     sync.Mutex
	open   map[string]*request // requests of the peer without a response, by id
	calls  map[string]*call    // requests to the peer without a response, by id
	nextID int64

	refusing chan struct{}  // holds a token for each rejection that is being written
	work     sync.WaitGroup // goroutines that end with ctx
	ctx      context.Context
	stop     context.CancelCauseFunc
}

func newConn(ctx context.Context, w io.Writer, handle func(*request)) *conn {
	c := &conn{handle: handle, w: w, open: map[string]*request{}, calls: map[string]*call{}, refusing: make(chan struct{}, 64)}
	c.ctx, c.stop = context.WithCancelCause(ctx)
	return c
}

// errEnded is the cancellation cause of a connection that ended without an error.
var errEnded = errors.New("acp: the connection ended")

// read reads frames until the stream ends or breaks.
func (c *conn) read(r io.Reader) error {
	lines := wire.NewReader(r, &wire.ReaderOptions{MaxLine: maxFrame})
	for {
		line, err := lines.ReadLine()
		var bad *wire.BadLine
		switch {
		case errors.As(err, &bad):
			c.refuse(nil, errorf(CodeInvalidRequest, "a message is longer than %d bytes", maxFrame))
		case errors.Is(err, io.EOF):
			c.stop(errEnded)
			return nil
		case err != nil:
			c.stop(err)
			return err
		default:
			if c.log != nil {
				c.log("in", line)
			}
			c.route(line)
		}
	}
}

// refuse rejects a message that no handler receives. It writes in its own goroutine, because
// the reader must continue, unless so many are waiting that the peer has to wait, too.
func (c *conn) refuse(id json.RawMessage, e *Error) {
	if id == nil {
		id = json.RawMessage("null")
	}
	f := &frame{Version: "2.0", ID: id, Error: e}
	select {
	case c.refusing <- struct{}{}:
		c.work.Go(func() {
			c.write(f)
			<-c.refusing
		})
	default:
		c.write(f)
	}
}

// route dispatches one line.
func (c *conn) route(line []byte) {
	if !utf8.Valid(line) { // parts of it are sent on as they are, such as ids
		line = bytes.ToValidUTF8(line, []byte("\ufffd"))
	}
	if !json.Valid(line) {
		c.refuse(nil, errorf(CodeParse, "a line is not JSON"))
		return
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(line, &members) != nil || members == nil {
		c.refuse(nil, errorf(CodeInvalidRequest, "a message must be a JSON object; batches are not part of the protocol"))
		return
	}
	id, hasID := members["id"]
	if hasID && !validID(id) {
		c.refuse(nil, errorf(CodeInvalidRequest, "id must be a string, an integer or null"))
		return
	}
	var f frame
	if err := json.Unmarshal(line, &f); err != nil || f.Version != "2.0" {
		if _, isRequest := members["method"]; isRequest || !hasID {
			c.refuse(id, errorf(CodeInvalidRequest, `a message needs "jsonrpc": "2.0" and members of the right types`))
		} else {
			c.handleResponse(&frame{ID: id, Error: errorf(CodeInternal, "the response is not valid JSON-RPC")})
		}
		return
	}
	if f.Method == "" {
		switch _, hasResult := members["result"]; {
		case hasID && (hasResult || f.Error != nil):
			f.ID = id
			c.handleResponse(&f)
		default:
			c.refuse(id, errorf(CodeInvalidRequest, "a message needs a method, a result or an error"))
		}
		return
	}
	r := &request{c: c, method: f.Method, params: f.Params}
	r.ctx, r.cancel = context.WithCancelCause(c.ctx)
	if !hasID {
		if f.Method == "$/cancel_request" {
			c.cancelled(r)
			return
		}
		c.handle(r)
		return
	}
	r.id = id
	key := string(id)
	c.mu.Lock()
	_, used := c.open[key]
	full := len(c.open) >= maxOpen
	if !used && !full {
		c.open[key] = r
	}
	c.mu.Unlock()
	switch {
	case used:
		c.refuse(id, errorf(CodeInvalidRequest, "the id %s is in use by a request that has no response yet", id))
	case full:
		c.refuse(id, errorf(CodeInvalidRequest, "more than %d requests wait for their responses", maxOpen))
	default:
		c.handle(r)
	}
}

// validID reports whether JSON-RPC allows an id.
func validID(id json.RawMessage) bool {
	if len(id) == 0 || len(id) > 1024 {
		return false
	}
	if id[0] == '"' || string(id) == "null" {
		return true
	}
	_, err := strconv.ParseInt(string(id), 10, 64)
	return err == nil
}

// removeOpen removes a request from the open ones, and reports whether it was there.
func (c *conn) removeOpen(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[string(r.id)] != r {
		return false
	}
	delete(c.open, string(r.id))
	r.cancel(nil)
	return true
}

// cancelled handles a $/cancel_request of the peer.
func (c *conn) cancelled(r *request) {
	var p struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if r.decode(&p) != nil {
		return
	}
	c.mu.Lock()
	target := c.open[string(bytes.TrimSpace(p.RequestID))]
	c.mu.Unlock()
	if target != nil {
		target.cancel(errCancelled)
	}
}

// handleResponse passes a response to the call that waits for it.
func (c *conn) handleResponse(f *frame) {
	c.mu.Lock()
	x := c.calls[string(f.ID)]
	delete(c.calls, string(f.ID))
	c.mu.Unlock()
	if d := c.draft.Load(); d != nil {
		if id, ok := d.noteAnswer(f.ID); ok {
			c.work.Go(func() { c.notify(stateMethod, map[string]any{"sessionId": id}) })
		}
	}
	switch {
	case x == nil:
	case x.then != nil:
		x.then(f)
	default:
		x.ch <- f
	}
}

// write writes a frame.
func (c *conn) write(f *frame) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	d := c.draft.Load()
	if d == nil {
		return c.writeNow(f)
	}
	for _, f := range d.outgoing(f) {
		if err := c.writeNow(f); err != nil {
			return err
		}
	}
	return nil
}

// writeNow writes a frame without translation.
func (c *conn) writeNow(f *frame) error {
	if err := context.Cause(c.ctx); err != nil {
		return err
	}
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if c.log != nil {
		c.log("out", data)
	}
	if _, err = c.w.Write(append(data, '\n')); err != nil {
		c.stop(err)
	}
	return err
}

// notify sends a notification.
func (c *conn) notify(method string, params any) error {
	data, err := json.Marshal(params)
	if err != nil {
		return err
	}
	return c.write(&frame{Version: "2.0", Method: method, Params: data})
}

// A call is a request to the peer.
type call struct {
	c    *conn
	id   json.RawMessage
	ch   chan *frame
	then func(*frame) // if set, the reader calls it with the response; it must not block
}

// send sends a request. It is written before send returns.
func (c *conn) send(method string, params any) (*call, error) {
	return c.sendThen(method, params, nil)
}

// sendThen is send with a function that the reader calls with the response before it continues.
func (c *conn) sendThen(method string, params any, then func(*frame)) (*call, error) {
	data, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.nextID++
	x := &call{c, json.RawMessage(strconv.FormatInt(c.nextID, 10)), make(chan *frame, 1), then}
	c.calls[string(x.id)] = x
	c.mu.Unlock()
	return x, c.write(&frame{Version: "2.0", ID: x.id, Method: method, Params: data})
}

// wait waits for the response, until ctx ends.
func (x *call) wait(ctx context.Context, result any) error {
	select {
	case f := <-x.ch:
		if f.Error != nil {
			return f.Error
		}
		return json.Unmarshal(f.Result, result)
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-x.c.ctx.Done():
		return context.Cause(x.c.ctx)
	}
}

// withdraw sends $/cancel_request, unless the response has arrived. It drops a later response.
func (x *call) withdraw() {
	x.c.mu.Lock()
	_, open := x.c.calls[string(x.id)]
	delete(x.c.calls, string(x.id))
	x.c.mu.Unlock()
	if open {
		x.c.notify("$/cancel_request", map[string]any{"requestId": x.id})
	}
}
