package parleytest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// TB is the part of [testing.TB] that this package uses.
type TB interface {
	// Helper marks the caller as a helper.
	Helper()
	// Cleanup registers a function to call at the end of the test.
	Cleanup(func())
	// Errorf reports a failure and continues.
	Errorf(format string, args ...any)
	// Fatalf reports a failure and ends the test.
	Fatalf(format string, args ...any)
}

// APIOptions configure an [API]. The zero value is the strict API.
type APIOptions struct {
	// Lenient accepts requests that the real API would reject.
	Lenient bool

	// Cache fills the usage of answers with the tokens that prompt caching
	// would have written and read, in turns without their own usage.
	Cache bool

	// CacheMin is the size in tokens below which a prefix is not cached. The
	// minimum of the real API is 1024 or more, depending on the model. Zero
	// means no minimum.
	CacheMin int

	// Partial accepts unplayed turns at the end of the test.
	Partial bool

	// Forget keeps no requests: [API.Requests] returns none. The memory use of
	// a long-running server then stays constant.
	Forget bool

	// Log, if not nil, is called with each request after it was answered.
	Log func(*Request)
}

// An API is a fake of the Messages API and of an OpenAI-compatible API that
// plays a scenario. It is an [http.Handler], and [NewAPI] serves it on
// loopback. It is safe for concurrent use.
//
// It answers POST /v1/messages, POST /v1/messages/count_tokens,
// POST /v1/chat/completions and GET /v1/models; everything else is not found.
// It rejects the requests that the real API rejects, by the rules of [Rules].
type API struct {
	URL string // its address, such as http://127.0.0.1:4711; empty before [API.Listen]

	play *play
	opts APIOptions

	mu       sync.Mutex
	n        int // number of requests so far
	requests []*Request
	refusals []error
	cache    cache

	server server
}

// NewAPI serves the scenario on a free port of the loopback interface until the
// test ends. It fails the test if the scenario was not played to its end or a
// rule rejected a request. opts may be nil.
func NewAPI(tb TB, s *Scenario, opts *APIOptions) *API {
	tb.Helper()
	a := NewHandler(s, opts)
	if a.play.invalid != nil {
		tb.Fatalf("%v", a.play.invalid)
	}
	if err := a.Listen("127.0.0.1:0"); err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		a.Close()
		err := a.Err()
		if err == nil && !a.opts.Partial {
			err = a.Done()
		}
		if err != nil {
			tb.Errorf("%v", err)
		}
	})
	return a
}

// NewHandler returns an API that is not served yet, for use with the caller's
// server or with [API.Listen]. opts may be nil.
func NewHandler(s *Scenario, opts *APIOptions) *API {
	a := &API{play: newPlay(s)}
	if opts != nil {
		a.opts = *opts
	}
	return a
}

// Listen serves the API at an address such as "127.0.0.1:0" and sets its URL.
func (a *API) Listen(addr string) error {
	if a.play.invalid != nil {
		return a.play.invalid
	}
	url, err := a.server.listen(addr, a)
	if err != nil {
		return err
	}
	a.URL = url
	return nil
}

// Close ends all answers in progress, and the server.
func (a *API) Close() error { return a.server.close() }

// Requests returns all requests so far, in the order in which they arrived.
func (a *API) Requests() []*Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return copies(a.requests)
}

// Err reports the requests that did not follow the scenario and those that a
// rule rejected; nil if there are none.
func (a *API) Err() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Join(append([]error{a.play.err()}, a.refusals...)...)
}

// Done is like [API.Err], and also reports unplayed turns.
func (a *API) Done() error { return errors.Join(a.Err(), a.play.unplayed()) }

// maxBody is the maximum size of a request. Source: the API's documentation of
// its errors (413 request_too_large, 32 MB).
const maxBody = 32 << 20

// ServeHTTP implements [http.Handler].
func (a *API) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	body, err := io.ReadAll(io.LimitReader(hr.Body, maxBody+1))
	if err != nil {
		return // the client has gone
	}
	r := &Request{Time: time.Now(), Method: hr.Method, Path: hr.URL.RequestURI(), Header: withoutSecrets(hr.Header), Body: body, view: new(view)}
	a.mu.Lock()
	a.n++
	id := fmt.Sprintf("req_%d", a.n)
	if !a.opts.Forget {
		a.requests = append(a.requests, r)
	}
	a.mu.Unlock()
	if a.opts.Log != nil {
		defer a.opts.Log(r)
	}
	x := &exchange{api: a, w: w, ctx: hr.Context(), r: r, id: id, face: messagesFace{}}
	path := hr.URL.Path
	switch {
	case path == "/v1/messages" && hr.Method == http.MethodPost:
		x.messages()
	case path == "/v1/messages/count_tokens" && hr.Method == http.MethodPost:
		x.countTokens()
	case path == "/v1/messages" || path == "/v1/messages/count_tokens":
		x.refuse(&Refusal{Rule: "method", Status: 405, Type: "invalid_request_error", Message: "Method Not Allowed"})
	case strings.HasPrefix(path, "/v1/chat/") || path == "/v1/models":
		x.face = openaiFace{}
		x.openai()
	default:
		x.fail(404, "not_found_error", "Not found")
	}
}

// An exchange is one request and its answer.
type exchange struct {
	api  *API
	w    http.ResponseWriter
	ctx  context.Context
	r    *Request
	id   string
	face face
}

// A face formats the answers of an API.
type face interface {
	// failure returns the body of an error response.
	failure(typ, message, requestID string) []byte
	// whole returns the body of an answer that is not streamed.
	whole(*answer) []byte
	// events returns the bytes on the wire for an op of the stream.
	events(*answer, op) []byte
}

// messagesFace is the Messages API.
type messagesFace struct{}

func (messagesFace) failure(typ, message, requestID string) []byte {
	b, _ := json.Marshal(map[string]any{
		"type":       "error",
		"error":      map[string]string{"type": typ, "message": message},
		"request_id": requestID,
	})
	return b
}

func (messagesFace) whole(a *answer) []byte { return a.message() }

func (messagesFace) events(_ *answer, o op) []byte {
	switch o.kind {
	case opEvent:
		return sse(o.typ, o.data)
	case opMalformed:
		return sse("content_block_delta", o.data)
	case opPing:
		return sse("ping", []byte(`{"type": "ping"}`))
	case opError:
		b, _ := json.Marshal(map[string]any{"type": "error", "error": map[string]string{"type": o.typ, "message": string(o.data)}})
		return sse("error", b)
	}
	return nil
}

func sse(event string, data []byte) []byte {
	var b []byte
	if event != "" {
		b = append(b, "event: "...)
		b = append(b, event...)
		b = append(b, '\n')
	}
	b = append(b, "data: "...)
	b = append(b, data...)
	return append(b, "\n\n"...)
}

// refuse rejects the request and records that.
func (x *exchange) refuse(ref *Refusal) {
	x.api.mu.Lock()
	x.r.Err = ref
	if !x.api.opts.Forget || len(x.api.refusals) == 0 {
		x.api.refusals = append(x.api.refusals, fmt.Errorf("parleytest: request %s refused: %w", x.id, ref))
	}
	x.api.mu.Unlock()
	x.w.Header().Set("x-should-retry", "false")
	x.fail(ref.Status, ref.Type, ref.Message)
}

func (x *exchange) fail(status int, typ, message string) {
	x.json(status, x.face.failure(typ, message, x.id))
}

// note records the outcome of the request.
func (x *exchange) note(set func(*Request)) {
	x.api.mu.Lock()
	defer x.api.mu.Unlock()
	set(x.r)
}

func (x *exchange) json(status int, body []byte) {
	x.note(func(r *Request) { r.Status = status })
	h := x.w.Header()
	h.Set("content-type", "application/json")
	h.Set("request-id", x.id)
	h.Set("content-length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	x.w.Write(body)
}

// check applies the rules to the request, and reports whether it may continue.
func (x *exchange) check(count bool) bool {
	if x.api.opts.Lenient {
		return true
	}
	c := &checked{r: x.r, http: true, count: count, memory: &x.api.play.memory}
	if ref := c.refuse(); ref != nil {
		x.refuse(ref)
		return false
	}
	return true
}

func (x *exchange) countTokens() {
	if !x.check(true) {
		return
	}
	n := x.api.play.scenario.tokens
	if n == 0 {
		n = estimate(len(x.r.Body))
	}
	x.json(200, fmt.Appendf(nil, `{"input_tokens":%d}`, n))
}

func (x *exchange) messages() {
	if !x.check(false) {
		return
	}
	x.answer(x.r.parse().Stream)
}

// answer plays the turn that the scenario has for the request.
func (x *exchange) answer(stream bool) {
	a := x.api
	p, err := a.play.next(x.r)
	x.note(func(r *Request) { r.Script, r.Turn, r.Err = p.label, p.n, err })
	if err != nil {
		x.w.Header().Set("x-should-retry", "false")
		x.fail(400, "invalid_request_error", err.Error())
		return
	}
	x.note(func(r *Request) { r.Cache = a.cache.use(r.parse(), a.opts.CacheMin, r.Time) })
	var auto *Usage
	if a.opts.Cache {
		c := x.r.Cache
		auto = &Usage{Input: c.Uncached, CacheWrite: c.Written, CacheWrite1h: c.Written1h, CacheRead: c.Read, Output: defaultUsage.Output}
	}
	t := p.turn
	for _, h := range t.header {
		x.w.Header().Add(h[0], h[1])
	}
	if t.status != 0 {
		for _, s := range t.steps {
			if wait(x.ctx, s.wait) != nil {
				return
			}
		}
		typ, msg := t.failure()
		x.fail(t.status, typ, msg)
		return
	}
	ans := p.answer(x.r.parse().Model, auto)
	a.play.memory.remember(ans)
	if stream {
		x.stream(ans)
		return
	}
	for _, o := range ans.ops() {
		switch o.kind {
		case opPause:
			if wait(x.ctx, o.wait) != nil {
				return
			}
		case opStall:
			<-x.ctx.Done()
			return
		case opReset, opCut, opCutClean:
			hangUp(x.w, o.kind == opReset)
		case opError:
			status := 0
			for s, typ := range errorTypes {
				if typ == o.typ {
					status = max(status, s)
				}
			}
			if status == 0 {
				status = 500
			}
			x.fail(status, o.typ, string(o.data))
			return
		case opMalformed:
			x.json(200, o.data)
			return
		}
	}
	x.json(200, x.face.whole(ans))
}

// stream sends the answer event by event.
func (x *exchange) stream(ans *answer) {
	rc := http.NewResponseController(x.w)
	begun := false
	begin := func() {
		if begun {
			return
		}
		begun = true
		x.note(func(r *Request) { r.Status = 200 })
		h := x.w.Header()
		h.Set("content-type", "text/event-stream; charset=utf-8")
		h.Set("cache-control", "no-cache")
		h.Set("request-id", x.id)
		x.w.WriteHeader(200)
	}
	events := 0
	for _, o := range ans.ops() {
		switch o.kind {
		case opPause:
			if wait(x.ctx, o.wait) != nil {
				return
			}
			continue
		case opStall:
			<-x.ctx.Done()
			return
		case opReset:
			hangUp(x.w, true)
		}
		begin()
		switch o.kind {
		case opCut:
			rc.Flush()
			hangUp(x.w, false)
		case opCutClean:
			return
		}
		if o.kind == opEvent {
			if events > 0 && wait(x.ctx, ans.turn.drip) != nil {
				return
			}
			events++
		}
		if b := x.face.events(ans, o); len(b) > 0 {
			if _, err := x.w.Write(b); err != nil {
				return
			}
			rc.Flush()
		}
		if o.kind == opError {
			return
		}
	}
}
