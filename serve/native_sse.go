package serve

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/parley-go/parley/internal/rawjson"
	"github.com/parley-go/parley/session"
)

// A caller is a host that reads server-sent events and writes with POST. It is identified by its
// token and the session. It ends some time after its last stream.
type caller struct {
	*native
	streams map[*queue]bool
	kept    []frame         // frames without a number, for a stream that reconnects
	written map[string]bool // tool calls that a stream has written and that may have arrived
	timer   *time.Timer
}

type callerKey struct{ token, name, session string }

const (
	callerTime = 30 * time.Second // how long a host without a stream is kept
	keptFrames = 100
)

// callers are the hosts that use POST.
type callers struct {
	mu  sync.Mutex
	all map[callerKey]*caller
}

// caller returns the host of a request; the request uses it until it calls leave. A stream
// receives the frames that it may have missed.
func (c *call) caller(q *queue) (x *caller, leave func()) {
	key := callerKey{c.token, c.Name, c.r.PathValue("id")}
	all := &c.s.callers
	all.mu.Lock()
	defer all.mu.Unlock()
	x = all.all[key]
	if x == nil || x.ctx.Err() != nil {
		x = &caller{streams: map[*queue]bool{}, written: map[string]bool{}}
		x.native = c.s.newNative(c.s.ctx, c.identity, key.session, func(f frame) {
			all.mu.Lock()
			defer all.mu.Unlock()
			x.kept = append(x.kept, f)
			x.kept = x.kept[max(0, len(x.kept)-keptFrames):]
			for q := range x.streams {
				q.put(f)
			}
		})
		unbind := context.AfterFunc(c.identity.ctx, func() { x.stop(errRevoked) })
		x.timer = time.AfterFunc(callerTime, func() {
			all.mu.Lock()
			idle := len(x.streams) == 0
			all.mu.Unlock()
			if idle {
				x.stop(nil)
			}
		})
		mine := x
		c.s.work.Go(func() {
			<-mine.ctx.Done()
			unbind()
			mine.timer.Stop()
			mine.close(context.Cause(mine.ctx))
			all.mu.Lock()
			defer all.mu.Unlock()
			if all.all[key] == mine {
				delete(all.all, key)
			}
		})
		all.all[key] = x
	}
	x.timer.Reset(callerTime)
	if q == nil {
		return x, func() {}
	}
	x.streams[q] = true
	// The last stream may have ended before it wrote a request, or the host before it read it.
	x.kept = slices.DeleteFunc(x.kept, func(f frame) bool { return f.request != "" && (x.written[f.request] || !x.waiting(f.request)) })
	maps.DeleteFunc(x.written, func(request string, _ bool) bool { return !x.waiting(request) })
	for _, f := range x.kept {
		q.put(f)
	}
	return x, func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		delete(x.streams, q)
		x.timer.Reset(callerTime)
	}
}

// wrote records whether a frame that calls a tool was written to a stream.
func (x *caller) wrote(f frame, whole bool) {
	if !f.call {
		return
	}
	all := &x.s.callers
	all.mu.Lock()
	defer all.mu.Unlock()
	x.written[f.request] = whole
}

// nativeEvents streams frames to a host. Each connection follows the journal itself; frames
// without a number come through the caller.
func nativeEvents(c *call) {
	after, err := c.after()
	if err != nil {
		c.s.fail(c.w, c.r, c.identity, err)
		return
	}
	info, asks, err := c.session().Info(c.r.Context(), c.Actor)
	if err != nil {
		c.s.fail(c.w, c.r, c.identity, err)
		return
	}
	q := newQueue()
	x, leave := c.caller(q)
	defer leave()
	ctx, cancel := context.WithCancelCause(c.r.Context())
	defer cancel(nil)
	defer context.AfterFunc(x.ctx, func() { cancel(context.Cause(x.ctx)) })()
	view := &native{s: c.s, by: c.identity, on: c.session(), ctx: ctx, send: q.put, shared: x.native, upTo: info.State.N, open: asks}
	var work sync.WaitGroup
	attached := make(chan struct{})
	work.Go(func() { cancel(view.follow(after, true, sync.OnceFunc(func() { close(attached) }))) })
	defer work.Wait()
	defer cancel(nil)
	id := c.r.PathValue("id")
	c.sendEvents(func(open context.Context, yield func(item, error) bool) {
		defer context.AfterFunc(open, func() { cancel(context.Cause(open)) })()
		select {
		case <-attached: // the host receives everything that its next messages lead to
		case <-ctx.Done():
		}
		if !yield(item{name: "connected", data: []byte("{}")}, nil) {
			return
		}
		var line []byte
		err := q.wait(ctx, func(f frame, more bool) error {
			x.wrote(f, true)
			line = appendEnvelope(line[:0], id, f)
			if !yield(item{n: f.n, name: "client_event", data: line, more: more}, nil) {
				x.wrote(f, false) // it is incomplete, so the host does not see it
				return context.Canceled
			}
			return nil
		})
		yield(item{}, err)
	})
}

// appendEnvelope appends a frame in the form that hosts receive.
func appendEnvelope(dst []byte, id string, f frame) []byte {
	event := rawjson.String(f.data, "uuid")
	if f.n > 0 && event == "" {
		event = id + "-" + strconv.FormatUint(f.n, 10)
	} else if event == "" {
		event = session.NewID()
	}
	dst = appendJSON(append(dst, `{"event_id":`...), event)
	if f.n > 0 {
		dst = strconv.AppendUint(append(dst, `,"sequence_num":`...), f.n, 10)
	}
	dst = appendJSON(append(dst, `,"event_type":`...), rawjson.String(f.data, "type"))
	dst = append(append(dst, `,"source":"worker","payload":`...), f.data...)
	if !f.time.IsZero() {
		dst = f.time.UTC().AppendFormat(append(dst, `,"created_at":"`...), time.RFC3339Nano)
		dst = append(dst, '"')
	}
	return append(dst, '}')
}

// appendJSON appends a string as JSON.
func appendJSON(dst []byte, s string) []byte {
	quoted, _ := json.Marshal(s)
	return append(dst, quoted...)
}

// ClientEvents are messages of the protocol from a host.
type ClientEvents struct {
	ID      string        `json:"-" path:"id"`
	Session string        `json:"session_id,omitempty"`
	Events  []ClientEvent `json:"events"`
}

// A ClientEvent is one message of a host.
type ClientEvent struct {
	Payload json.RawMessage `json:"payload"`
}

// nativePost receives messages of a host.
func nativePost(c *call, _ context.Context, in *ClientEvents) (none, error) {
	if len(in.Events) == 0 {
		return none{}, badRequest("there are no events")
	}
	if in.Session != "" && in.Session != in.ID {
		return none{}, &problem{http.StatusConflict, "conflict", "session_id is not the session of the path"}
	}
	x, _ := c.caller(nil)
	for _, e := range in.Events {
		if err := x.receive(e.Payload); err != nil {
			return none{}, err
		}
	}
	return none{}, nil
}
