package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/parley-go/parley/session"
)

// Editors on other machines use the Agent Client Protocol at /acp, over a WebSocket or as
// streamable HTTP:
//
//	GET with Upgrade   a WebSocket, one JSON-RPC message each
//	POST               a message of the client; initialize opens a connection and is
//	                   answered in the response, the rest on a stream
//	GET                server-sent events: of the session in Acp-Session-Id, or else of
//	                   the connection in Acp-Connection-Id
//	DELETE             ends the connection
//
// A stream that breaks continues after its Last-Event-ID.

const (
	connectionHeader = "Acp-Connection-Id"
	sessionHeader    = "Acp-Session-Id"

	maxEditors     = 256             // concurrent connections over HTTP
	maxStreams     = 1000            // per connection
	editorIdleTime = 5 * time.Minute // how long a connection without a stream is kept
	mailboxKeep    = 4 << 20         // bytes that a stream keeps for readers that reconnect
	mailboxLimit   = 32 << 20        // bytes that were not fetched
)

var (
	errEditorGone = &problem{http.StatusNotFound, "not_found", "there is no such connection: it ended, or " + connectionHeader + " is wrong"}
	errTrimmed    = &problem{http.StatusConflict, "trimmed", "messages behind Last-Event-ID are gone: load the session again"}
	errEditorSlow = errors.New("the client does not read its messages")
	errEditorIdle = errors.New("the client is gone")
)

// editors are the connections over HTTP.
type editors struct {
	mu  sync.Mutex
	all map[string]*editor
}

// An editor is one client of the Agent Client Protocol.
type editor struct {
	id   string
	by   *identity
	stop context.CancelCauseFunc
	ctx  context.Context
	in   *io.PipeWriter
	sent sync.Mutex // guards writes to in
	one  bool       // all messages go to one stream

	mu      sync.Mutex
	streams map[string]*mailbox // by session; "" is that of the connection
	waits   map[string]string   // the stream for the answer to a request
	open    int                 // streams that are being read
	idle    *time.Timer
}

// A mailbox keeps the messages of one stream. Message n is list[n-first].
type mailbox struct {
	list    []json.RawMessage
	first   uint64 // number of list[0]
	fetched uint64 // number of the last message that was sent
	kept    int    // bytes of messages that were sent
	waiting int    // bytes of messages that were not sent
	bell    chan struct{}
	reader  context.CancelCauseFunc // ends the stream that reads it
	readers int
}

// newEditor starts a connection for an identity, which lasts until ctx ends.
func (s *Server) newEditor(ctx context.Context, by *identity, one bool) *editor {
	x := &editor{id: session.NewID(), by: by, one: one, streams: map[string]*mailbox{}, waits: map[string]string{}}
	x.ctx, x.stop = context.WithCancelCause(ctx)
	var in *io.PipeReader
	in, x.in = io.Pipe()
	s.work.Go(func() {
		defer context.AfterFunc(by.ctx, func() { x.stop(errRevoked) })()
		defer context.AfterFunc(s.ctx, func() { x.stop(context.Cause(s.ctx)) })()
		err := s.cfg.ACP(x.ctx, s.cfg.Hub.Client(by.Actor), in, (*editorWriter)(x))
		in.CloseWithError(io.ErrClosedPipe)
		x.stop(err)
	})
	return x
}

// receive passes on a message of the client.
func (x *editor) receive(line []byte) error {
	x.sent.Lock()
	defer x.sent.Unlock()
	_, err := x.in.Write(append(slices.Clip(bytes.TrimSpace(line)), '\n'))
	if err != nil {
		return errEditorGone
	}
	return nil
}

// box returns a stream. The caller holds the lock.
func (x *editor) box(name string) *mailbox {
	if x.one {
		name = ""
	}
	b := x.streams[name]
	if b == nil {
		b = &mailbox{first: 1, bell: make(chan struct{}, 1)}
		x.streams[name] = b
	}
	return b
}

// An editorWriter receives the messages to the client, each with its newline.
type editorWriter editor

func (w *editorWriter) Write(line []byte) (int, error) {
	x := (*editor)(w)
	if err := context.Cause(x.ctx); err != nil {
		return 0, err
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			SessionID string `json:"sessionId"`
		} `json:"params"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return 0, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	name := m.Params.SessionID
	if m.Method == "" {
		name = x.waits[string(m.ID)]
		delete(x.waits, string(m.ID))
	}
	b := x.box(name)
	b.list = append(b.list, bytes.Clone(bytes.TrimSpace(line)))
	if b.waiting += len(line); b.waiting > mailboxLimit {
		x.stop(errEditorSlow)
		return 0, errEditorSlow
	}
	ring(b.bell)
	return len(line), nil
}

// Close is called when the connection ends.
func (w *editorWriter) Close() error { return nil }

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// read sends the messages of a stream after a number. It calls opened once other requests find the
// stream open. A later reader takes over the stream.
func (x *editor) read(ctx context.Context, name string, after uint64, opened func() error, send func(n uint64, m json.RawMessage) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(x.ctx, func() { cancel(context.Cause(x.ctx)) })()
	x.mu.Lock()
	b := x.box(name)
	if b.reader != nil {
		b.reader(errors.New("another stream took over"))
	}
	b.reader = cancel
	b.readers++
	if x.open++; x.idle != nil {
		x.idle.Stop()
	}
	ring(b.bell)
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		b.readers--
		if x.open--; x.open == 0 && x.idle != nil {
			x.idle.Reset(editorIdleTime)
		}
	}()
	if err := opened(); err != nil {
		return err
	}
	for next := after + 1; ; {
		x.mu.Lock()
		var batch []json.RawMessage
		trimmed := next < b.first
		if ctx.Err() == nil && !trimmed {
			batch = slices.Clone(b.list[min(next-b.first, uint64(len(b.list))):])
		}
		x.mu.Unlock()
		if trimmed {
			return errTrimmed
		}
		for _, m := range batch {
			if err := send(next, m); err != nil {
				return err
			}
			x.fetched(b, next)
			next++
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-b.bell:
		case <-ctx.Done():
			ring(b.bell) // the reader that took over must not miss it
			return context.Cause(ctx)
		}
	}
}

// quietly is for streams whose clients need not know when they are open.
func quietly() error { return nil }

// fetched records that a message was sent, and removes old ones.
func (x *editor) fetched(b *mailbox, n uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n > b.fetched {
		b.fetched = n
		size := len(b.list[n-b.first])
		b.waiting -= size
		b.kept += size
	}
	for b.kept > mailboxKeep && b.first < b.fetched {
		b.kept -= len(b.list[0])
		b.list[0] = nil
		b.list = b.list[1:]
		b.first++
	}
}

// resume returns the number after which a stream continues: the one that the client has, or
// that of the last message that was sent.
func (x *editor) resume(c *call, name string) (uint64, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.streams[name] == nil && len(x.streams) >= maxStreams {
		return 0, &problem{http.StatusTooManyRequests, "too_many_streams", "the connection has too many streams"}
	}
	b := x.box(name)
	text := c.r.Header.Get("Last-Event-ID")
	if text == "" {
		return b.fetched, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	switch {
	case err != nil || n >= b.first+uint64(len(b.list)):
		return 0, badRequest("Last-Event-ID %q is not one of this stream", clip(text, 40))
	case n+1 < b.first:
		return 0, errTrimmed
	}
	return n, nil
}

// editor returns the connection that a request names. It must belong to the same token.
func (c *call) editor() (*editor, error) {
	id := c.r.Header.Get(connectionHeader)
	if id == "" {
		return nil, badRequest("%s is missing: initialize returns one", connectionHeader)
	}
	c.s.editors.mu.Lock()
	defer c.s.editors.mu.Unlock()
	x := c.s.editors.all[id]
	if x == nil || x.by.token != c.token || x.ctx.Err() != nil {
		return nil, errEditorGone
	}
	return x, nil
}

// acpGet serves a WebSocket, or a stream of server-sent events.
func acpGet(c *call) {
	if c.r.Header.Get("Sec-WebSocket-Key") != "" {
		acpSocket(c)
		return
	}
	x, err := c.editor()
	if err == nil && !strings.Contains(c.r.Header.Get("Accept"), "text/event-stream") {
		err = &problem{http.StatusNotAcceptable, "not_acceptable", "the response is text/event-stream, and Accept does not have it"}
	}
	name, after := c.r.Header.Get(sessionHeader), uint64(0)
	if err == nil {
		after, err = x.resume(c, name)
	}
	if err != nil {
		c.s.fail(c.w, c.r, c.identity, err)
		return
	}
	c.w.Header().Set(connectionHeader, x.id)
	c.w.Header().Set("Content-Type", "text/event-stream")
	c.w.Header().Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(c.w)
	var writing sync.Mutex
	write := func(data []byte) error {
		writing.Lock()
		defer writing.Unlock()
		out.SetWriteDeadline(time.Now().Add(writeTime))
		_, err := c.w.Write(data)
		return errors.Join(err, out.Flush())
	}
	beat := func() error { return write([]byte(":\n\n")) } // the first one shows the client that the stream is open
	pump(c.r.Context(), func(ctx context.Context, yield func(item, error) bool) {
		yield(item{}, x.read(ctx, name, after, beat, func(n uint64, m json.RawMessage) error {
			if !yield(item{n: n, name: "message", data: m}, nil) {
				return context.Canceled
			}
			return nil
		}))
	}, func(it item) error { return write(appendEvent(nil, it)) }, func(context.Context) error { return beat() })
}

// acpPost receives a message of a client.
func acpPost(c *call) {
	kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		c.s.fail(c.w, c.r, c.identity, &problem{http.StatusUnsupportedMediaType, "media_type", "the body must be application/json"})
		return
	}
	body, err := c.body()
	if err != nil {
		c.s.fail(c.w, c.r, c.identity, err)
		return
	}
	var line bytes.Buffer
	if json.Compact(&line, body) != nil {
		c.s.fail(c.w, c.r, c.identity, badRequest("the body is not JSON"))
		return
	}
	if bytes.HasPrefix(line.Bytes(), []byte("[")) {
		c.s.fail(c.w, c.r, c.identity, &problem{http.StatusNotImplemented, "batch", "batches are not part of the protocol: send one message at a time"})
		return
	}
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if err := json.Unmarshal(line.Bytes(), &m); err != nil {
		c.s.fail(c.w, c.r, c.identity, badRequest("the body is not a JSON-RPC message: %v", err))
		return
	}
	if m.Method == "initialize" && c.r.Header.Get(connectionHeader) == "" {
		c.acpInitialize(line.Bytes())
		return
	}
	x, err := c.editor()
	if err == nil {
		if name := c.r.Header.Get(sessionHeader); len(m.ID) > 0 && m.Method != "" && name != "" {
			x.mu.Lock()
			if b := x.streams[name]; !opensSession[m.Method] || b != nil && b.readers > 0 {
				x.waits[string(m.ID)] = name
			}
			x.mu.Unlock()
		}
		err = x.receive(line.Bytes())
	}
	if err != nil {
		c.s.fail(c.w, c.r, c.identity, err)
		return
	}
	if m.Method != "" {
		c.s.noteEditor(c.identity, m.Method, c.r.Header.Get(sessionHeader))
	}
	c.w.WriteHeader(http.StatusAccepted)
}

// opensSession are the requests whose answers go to the stream of the connection if the
// client does not read that of the session yet. If it does, the answer goes to the
// session's stream, after the history that session/load replays, which it could overtake on
// another stream.
var opensSession = map[string]bool{"session/new": true, "session/load": true, "session/resume": true, "session/fork": true}

// noteEditor writes a client's request to the audit log.
func (s *Server) noteEditor(by *identity, method, name string) {
	if err := s.audit.add(Event{By: by.Name, Token: by.token, From: by.From, Action: "acp " + clip(method, 50), Session: clip(name, 50), Status: http.StatusOK}); err != nil {
		s.logger().Error("the audit log cannot be written", "error", err)
	}
}

// acpInitialize opens a connection and responds with the agent's response.
func (c *call) acpInitialize(line []byte) {
	x := c.s.newEditor(context.WithoutCancel(c.r.Context()), c.identity, false)
	all := &c.s.editors
	all.mu.Lock()
	full := len(all.all) >= maxEditors
	if !full {
		all.all[x.id] = x
	}
	all.mu.Unlock()
	c.s.work.Go(func() {
		<-x.ctx.Done()
		x.in.Close()
		all.mu.Lock()
		defer all.mu.Unlock()
		delete(all.all, x.id)
	})
	if full {
		x.stop(errEditorIdle)
		c.s.fail(c.w, c.r, c.identity, &problem{http.StatusServiceUnavailable, "too_many", "too many editors are connected"})
		return
	}
	err := x.receive(line)
	answered := errors.New("answered")
	var answer json.RawMessage
	if err == nil {
		err = x.read(c.r.Context(), "", 0, quietly, func(_ uint64, m json.RawMessage) error {
			answer = m
			return answered
		})
	}
	if !errors.Is(err, answered) {
		x.stop(err)
		c.s.fail(c.w, c.r, c.identity, err)
		return
	}
	x.mu.Lock()
	x.box("").fetched, x.box("").waiting = 1, 0
	x.idle = time.AfterFunc(editorIdleTime, func() { x.stop(errEditorIdle) })
	x.mu.Unlock()
	context.AfterFunc(x.ctx, func() { x.idle.Stop() })
	c.s.noteEditor(c.identity, "initialize", "")
	c.w.Header().Set(connectionHeader, x.id)
	c.w.Header().Set("Content-Type", "application/json")
	c.w.Write(answer)
}

// acpDelete ends a connection. Sessions continue.
func acpDelete(c *call) {
	x, err := c.editor()
	if err != nil {
		c.s.fail(c.w, c.r, c.identity, err)
		return
	}
	x.stop(errEditorIdle)
	c.w.WriteHeader(http.StatusAccepted)
}

// acpSocket serves a connection over a WebSocket.
func acpSocket(c *call) {
	// Cancelling a read or a write would end the connection before it is closed with a
	// code.
	whole := context.WithoutCancel(c.r.Context())
	x := c.s.newEditor(c.r.Context(), c.identity, true)
	defer x.in.Close()
	defer x.stop(nil)
	c.w.Header().Set(connectionHeader, x.id)
	conn, err := c.accept()
	if err != nil {
		return // Accept has responded
	}
	defer conn.CloseNow()
	conn.SetReadLimit(maxBody)
	c.s.noteEditor(c.identity, "connect", "")
	c.s.work.Go(func() {
		for {
			kind, data, err := conn.Read(whole)
			if err == nil && kind == websocket.MessageText {
				// A line break between values would split a message in two.
				var line bytes.Buffer
				if json.Compact(&line, data) != nil {
					line.Reset()
					line.Write(bytes.ReplaceAll(data, []byte("\n"), []byte(" "))) // it leads to an error response
				}
				err = x.receive(line.Bytes())
			}
			if err != nil {
				x.stop(errEditorIdle)
				return
			}
		}
	})
	timed := func(f func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(whole, writeTime)
		defer cancel()
		return f(ctx)
	}
	err = pump(c.r.Context(), func(ctx context.Context, yield func(item, error) bool) {
		yield(item{}, x.read(ctx, "", 0, quietly, func(n uint64, m json.RawMessage) error {
			if !yield(item{n: n, data: m}, nil) {
				return context.Canceled
			}
			return nil
		}))
	}, func(it item) error {
		return timed(func(ctx context.Context) error { return conn.Write(ctx, websocket.MessageText, it.data) })
	}, func(context.Context) error { return timed(conn.Ping) })
	if errors.Is(err, errEditorIdle) {
		err = nil
	}
	closeWith(conn, err)
}
