package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/parley-go/parley/hub"
)

// The server's close codes of WebSockets, in addition to those of RFC 6455.
const (
	CloseLagged     websocket.StatusCode = 4000 // too slow: reconnect after the last number
	CloseRevoked    websocket.StatusCode = 4001 // the token was revoked or has expired
	CloseNotFound   websocket.StatusCode = 4004 // the session does not exist any more
	CloseSuperseded websocket.StatusCode = 4090 // another host took over the session
)

// errViewerSends ends the connection of a viewer that sends a message.
var errViewerSends = errors.New("serve: a viewer sends no messages")

const (
	beatTime  = 20 * time.Second // interval of keep-alives on a stream
	writeTime = 10 * time.Second // how long a peer may take to receive a message
)

type watchQuery struct {
	ID    string `json:"-" path:"id"`
	After uint64 `json:"-" query:"after"` // the last number that the viewer has
}

// after returns the last number that a viewer has: Last-Event-ID, or else the query.
func (c *call) after() (uint64, error) {
	text, name := c.r.Header.Get("Last-Event-ID"), "Last-Event-ID"
	if text == "" {
		text, name = c.r.URL.Query().Get("after"), "after"
	}
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, badRequest("%s %q is not a number", name, clip(text, 40))
	}
	return n, nil
}

// An item is one message of a stream.
type item struct {
	n    uint64 // its number, or 0
	name string // of the event
	data []byte // valid until yield returns
	more bool   // another item follows at once, so that they are sent together
}

// togetherBytes is how many bytes are sent together at most.
const togetherBytes = 64 << 10

// A source yields the messages of a stream until its context ends.
type source func(ctx context.Context, yield func(item, error) bool)

// entries returns the source of the entries of a session.
func (c *call) entries() (source, error) {
	after, err := c.after()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, yield func(item, error) bool) {
		exists := true // the entry was there before the viewer: its state follows them
		var line []byte
		for e, err := range c.session().Attach(ctx, c.Actor, after) {
			if err == nil {
				line = e.AppendTo(line[:0])
			}
			exists = exists && e.Kind != hub.KindState
			if !yield(item{n: e.N, name: string(e.Kind), data: line, more: exists}, err) || err != nil {
				return
			}
		}
	}, nil
}

// states yields the states of all sessions.
func (c *call) states(ctx context.Context, yield func(item, error) bool) {
	for i, err := range c.s.cfg.Hub.Watch(ctx, c.Actor) {
		it := item{name: "session"}
		if err == nil {
			it.data, err = json.Marshal(i)
		}
		if !yield(it, err) || err != nil {
			return
		}
	}
}

func sessionEvents(c *call) {
	src, err := c.entries()
	if err != nil {
		c.s.fail(c.w, c.r, c.identity, err)
		return
	}
	c.sendEvents(src)
}

func hubEvents(c *call) {
	c.sendEvents(func(ctx context.Context, yield func(item, error) bool) {
		// There may be no session for a long time: show the reader that it is connected.
		if yield(item{name: "hub", data: []byte("{}")}, nil) {
			c.states(ctx, yield)
		}
	})
}

func watchSession(c *call) {
	src, err := c.entries()
	if err != nil {
		c.s.fail(c.w, c.r, c.identity, err)
		return
	}
	c.sendMessages(src)
}

func watchHub(c *call) { c.sendMessages(c.states) }

// pump passes the items of a source to send, and calls beat, in another goroutine, while
// nothing happens. It returns why the stream ended.
func pump(ctx context.Context, src source, send func(item) error, beat func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var last atomic.Int64 // time of the last item
	note := func() { last.Store(time.Now().UnixNano()) }
	note()
	var beats sync.WaitGroup
	beats.Go(func() {
		tick := time.NewTicker(beatTime)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if time.Since(time.Unix(0, last.Load())) < beatTime {
				continue
			}
			if err := beat(ctx); err != nil {
				cancel(err)
			}
		}
	})
	defer func() { cancel(nil); beats.Wait() }()
	var ended error
	src(ctx, func(it item, err error) bool {
		if err == nil {
			err = send(it)
			note()
		}
		ended = err
		return err == nil
	})
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return ended
}

// sendEvents sends the items of a source as server-sent events.
func (c *call) sendEvents(src source) {
	var mu sync.Mutex // guards everything below
	out := http.NewResponseController(c.w)
	begun := false
	var buf []byte
	flush := func() error {
		if !begun {
			begun = true
			c.w.Header().Set("Content-Type", "text/event-stream")
			c.w.Header().Set("X-Accel-Buffering", "no") // proxies do not buffer events
			buf = append([]byte("retry: 1000\n\n"), buf...)
		}
		out.SetWriteDeadline(time.Now().Add(writeTime))
		_, err := c.w.Write(buf)
		buf = buf[:0]
		return errors.Join(err, out.Flush())
	}
	err := pump(c.r.Context(), src, func(it item) error {
		mu.Lock()
		defer mu.Unlock()
		buf = appendEvent(buf, it)
		if it.more && len(buf) < togetherBytes {
			return nil
		}
		err := flush()
		if !it.more && cap(buf) > togetherBytes/4 {
			buf = nil // what follows is small, and may be hours away
		}
		return err
	}, func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		buf = append(buf, ":\n\n"...)
		return flush()
	})
	if !begun && endOf(err) != "lagged" {
		c.s.fail(c.w, c.r, c.identity, err)
		return
	}
	if name := endOf(err); name != "" { // the reader learns why, and reconnects
		text, _ := json.Marshal(map[string]string{"reason": name})
		buf = appendEvent(buf, item{name: "end", data: text})
		flush()
	}
}

// appendEvent appends a server-sent event. Its data is one line.
func appendEvent(dst []byte, it item) []byte {
	if it.n > 0 {
		dst = append(dst, "id: "...)
		dst = strconv.AppendUint(dst, it.n, 10)
		dst = append(dst, '\n')
	}
	dst = append(dst, "event: "...)
	dst = append(dst, it.name...)
	dst = append(dst, "\ndata: "...)
	dst = append(dst, it.data...)
	return append(dst, "\n\n"...)
}

// endOf returns a word for why a stream ended, "" if its reader left.
func endOf(err error) string {
	var lagged *hub.LaggedError
	switch {
	case errors.As(err, &lagged):
		return "lagged"
	case errors.Is(err, errRevoked):
		return "revoked"
	case errors.Is(err, hub.ErrNotFound):
		return "removed"
	case errors.Is(err, ErrDraining), errors.Is(err, hub.ErrClosed):
		return "going_away"
	}
	return ""
}

// accept upgrades a request to a WebSocket. The Origin was already checked for every
// request, so that there is one rule for it.
func (c *call) accept(protocols ...string) (*websocket.Conn, error) {
	return websocket.Accept(c.w, c.r, &websocket.AcceptOptions{InsecureSkipVerify: true, Subprotocols: protocols, CompressionMode: websocket.CompressionDisabled})
}

// acceptBundled is accept for a connection that writes messages together while the value
// that it returns reports that more follow at once. The library writes each on its own.
func (c *call) acceptBundled() (*websocket.Conn, *atomic.Bool, error) {
	w := &bundling{ResponseWriter: c.w}
	bundled := *c
	bundled.w = w
	conn, err := bundled.accept()
	return conn, &w.bundle.more, err
}

// bundling is a response whose connection is a bundle.
type bundling struct {
	http.ResponseWriter
	bundle bundle
}

// Hijack implements [http.Hijacker].
func (w *bundling) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.bundle.Conn = conn
	return &w.bundle, bufio.NewReadWriter(rw.Reader, bufio.NewWriter(&w.bundle)), nil
}

// A bundle is a connection that collects what is written while more is set.
type bundle struct {
	net.Conn
	more atomic.Bool

	mu   sync.Mutex
	held []byte
}

// Write implements [net.Conn].
func (b *bundle) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	more := b.more.Load()
	if !more && len(b.held) == 0 {
		return b.Conn.Write(p)
	}
	if b.held = append(b.held, p...); more && len(b.held) < togetherBytes {
		return len(p), nil
	}
	_, err := b.Conn.Write(b.held)
	if b.held = b.held[:0]; !more {
		b.held = nil
	}
	return len(p), err
}

// sendMessages sends the items of a source over a WebSocket.
func (c *call) sendMessages(src source) {
	if c.r.Header.Get("Sec-WebSocket-Key") == "" {
		c.s.fail(c.w, c.r, c.identity, &problem{http.StatusUpgradeRequired, "upgrade", "this is a WebSocket; /events is the same as server-sent events"})
		return
	}
	conn, more, err := c.acceptBundled()
	if err != nil {
		return // Accept has responded
	}
	conn.SetReadLimit(1 << 10)
	// Cancelling a read or a write would end the connection before it is closed with a
	// code.
	whole := context.WithoutCancel(c.r.Context())
	ctx, cancel := context.WithCancelCause(c.r.Context())
	defer cancel(nil)
	// It expects no messages. (CloseRead of the library deadlocks if there is one.)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer conn.CloseNow()
	reading.Go(func() {
		_, _, err := conn.Reader(whole)
		if err == nil {
			err = errViewerSends
		}
		cancel(err)
	})
	err = pump(ctx, src, func(it item) error {
		ctx, cancel := context.WithTimeout(whole, writeTime)
		defer cancel()
		more.Store(it.more)
		return conn.Write(ctx, websocket.MessageText, it.data)
	}, func(context.Context) error {
		ctx, cancel := context.WithTimeout(whole, writeTime)
		defer cancel()
		more.Store(false)
		return conn.Ping(ctx)
	})
	more.Store(false)
	closeWith(conn, err)
}

// closeWith closes a WebSocket with a code for the error.
func closeWith(conn *websocket.Conn, err error) {
	code := websocket.StatusNormalClosure
	var lagged *hub.LaggedError
	switch {
	case errors.As(err, &lagged):
		code = CloseLagged
		conn.Close(code, fmt.Sprintf("lagged, after=%d", lagged.After))
		return
	case errors.Is(err, errRevoked):
		code = CloseRevoked
	case errors.Is(err, hub.ErrNotFound):
		code = CloseNotFound
	case errors.Is(err, hub.ErrSuperseded):
		code = CloseSuperseded
	case errors.Is(err, ErrDraining), errors.Is(err, hub.ErrClosed):
		code = websocket.StatusGoingAway
	case errors.Is(err, errViewerSends):
		code = websocket.StatusPolicyViolation
	case err != nil:
		code = websocket.StatusInternalError
	}
	conn.Close(code, endOf(err))
}
