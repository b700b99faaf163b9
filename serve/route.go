package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/hub"
)

// A route is a row of the API table, from which both the server and its description are
// made.
type route struct {
	method, path string
	scope        Scope // empty: no token is needed
	id           string
	summary      string
	in, out      reflect.Type // nil: none, or not JSON
	media        string       // of the response, if it is not JSON
	reads        bool         // it changes nothing, whatever its method, and is not in the audit log
	serve        func(c *call)
}

// A call is one request to a route.
type call struct {
	*identity // nil if the route needs no token
	s         *Server
	w         http.ResponseWriter
	r         *http.Request
	route     *route
}

// session returns the session in the path.
func (c *call) session() *hub.Session { return c.s.cfg.Hub.Session(c.r.PathValue("id")) }

// sees reports whether the caller may see what belongs to the actor with a name.
func (c *call) sees(name string) bool { return c.s.cfg.Hub.Sees(c.Actor, hub.Actor{Name: name}) }

// none is the input or output type of a route without one.
type none struct{}

const (
	maxBody  = 32 << 20        // the largest body of a request
	bodyTime = 2 * time.Minute // how long the body may take to arrive
)

// endpoint returns a route whose request and response are JSON. Its function is
//
//	func(c *call, ctx context.Context, in *In) (Out, error)
//
// Members of In with the tag path or query come from the path or the query.
func endpoint(pattern string, scope Scope, id, summary string, f any) route {
	method, path, _ := strings.Cut(pattern, " ")
	v := reflect.ValueOf(f) // not generic: an instance for each route would add 50 KB to programs
	r := route{method: method, path: path, scope: scope, id: id, summary: summary, in: v.Type().In(2).Elem(), out: v.Type().Out(0)}
	r.serve = func(c *call) {
		in := reflect.New(r.in)
		c.answer(in.Interface(), func() (any, error) {
			out := v.Call([]reflect.Value{reflect.ValueOf(c), reflect.ValueOf(c.r.Context()), in})
			err, _ := out[1].Interface().(error)
			return withLists(out[0]), err
		})
	}
	return r
}

// withLists returns a result in which no list is null: an empty list is a list.
func withLists(out reflect.Value) any {
	if out.Kind() != reflect.Struct {
		return out.Interface()
	}
	filled := reflect.New(out.Type()).Elem()
	filled.Set(out)
	for _, f := range filled.Fields() {
		if f.Kind() == reflect.Slice && f.IsNil() && f.CanSet() && f.Type().Elem().Kind() != reflect.Uint8 {
			f.Set(reflect.MakeSlice(f.Type(), 0, 0))
		}
	}
	return filled.Interface()
}

// answer decodes a request, calls f and writes the result.
func (c *call) answer(in any, f func() (any, error)) {
	err := c.read(in)
	var out any
	if err == nil {
		out, err = f()
	}
	if err != nil {
		c.s.fail(c.w, c.r, c.identity, err)
		return
	}
	if !c.route.reads {
		c.s.note(c.r, c.identity, http.StatusOK, "")
	}
	c.w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(c.w).Encode(out)
}

// stream returns a route that is not JSON, or takes over the connection.
func stream(pattern string, scope Scope, id, summary, media string, in any, f func(c *call)) route {
	method, path, _ := strings.Cut(pattern, " ")
	return route{method: method, path: path, scope: scope, id: id, summary: summary, in: reflect.TypeOf(in), media: media, serve: f}
}

// A problem is an error that the caller caused.
type problem struct {
	status int
	code   string
	text   string
}

func (p *problem) Error() string { return p.text }

func badRequest(format string, args ...any) error {
	return &problem{http.StatusBadRequest, "invalid", fmt.Sprintf(format, args...)}
}

// read decodes the body, the path and the query of a request.
func (c *call) read(in any) error {
	v := reflect.ValueOf(in).Elem()
	if c.r.Method != http.MethodGet && c.r.ContentLength != 0 {
		kind, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
		if err != nil || kind != "application/json" {
			return &problem{http.StatusUnsupportedMediaType, "media_type", "the body must be application/json"}
		}
		body, err := c.body()
		if err != nil {
			return err
		}
		if len(body) > 0 {
			// A duplicate name would be ambiguous.
			if !jsontext.Value(body).IsValid() {
				return badRequest("the body is not JSON, or has a name twice")
			}
			if err := checkCase(body, v.Type()); err != nil {
				return err
			}
			if err := json.Unmarshal(body, in); err != nil {
				return badRequest("the body cannot be decoded: %v", err)
			}
		}
	}
	query := c.r.URL.Query()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		text := ""
		if name := f.Tag.Get("path"); name != "" {
			text = c.r.PathValue(name)
		} else if name := f.Tag.Get("query"); name != "" {
			text = query.Get(name)
		}
		if text == "" {
			continue
		}
		var err error
		switch field := v.Field(i); field.Kind() {
		case reflect.String:
			field.SetString(text)
		case reflect.Uint64:
			var n uint64
			n, err = strconv.ParseUint(text, 10, 64)
			field.SetUint(n)
		case reflect.Int:
			var n int64
			n, err = strconv.ParseInt(text, 10, 32)
			field.SetInt(n)
		case reflect.Bool:
			var b bool
			b, err = strconv.ParseBool(text)
			field.SetBool(b)
		}
		if err != nil {
			return badRequest("%s=%q is not a %s", f.Tag.Get("query"), text, v.Field(i).Kind())
		}
	}
	return nil
}

// checkCase returns an error if a member of an object differs from a field of t only in case: package json would accept
// both, so one object could mean two things.
func checkCase(body []byte, t reflect.Type) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return nil // the caller reports it
	}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		for m := range members {
			if m != name && strings.EqualFold(m, name) {
				return badRequest("the body has %q; the member is %q", m, name)
			}
		}
	}
	return nil
}

// body reads the body of a request. A sender without a token gets lower limits for its
// size and time.
func (c *call) body() ([]byte, error) {
	limit, wait := int64(maxBody), bodyTime
	if c.identity == nil {
		limit, wait = 4<<10, authTime
	}
	in := http.NewResponseController(c.w)
	in.SetReadDeadline(time.Now().Add(wait))
	body, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, limit))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, &problem{http.StatusRequestEntityTooLarge, "too_large", fmt.Sprintf("the body is larger than %d bytes", large.Limit)}
	}
	if err != nil {
		return nil, badRequest("the body cannot be read: %v", err)
	}
	in.SetReadDeadline(time.Time{})
	return body, nil
}

// mount creates the mux from the table of routes.
func (s *Server) mount() {
	s.mux = http.NewServeMux()
	s.routes = s.table()
	for i := range s.routes {
		r := &s.routes[i]
		s.mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, req *http.Request) { s.dispatch(r, w, req) })
	}
	s.mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.identify(r); err != nil { // reveal no paths to a sender without a token
			s.fail(w, r, nil, err)
			return
		}
		s.fail(w, r, nil, errUnknownPath)
	})
	console := s.cfg.Console
	if console == nil {
		console = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/" {
				s.fail(w, r, nil, errUnknownPath)
				return
			}
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			io.WriteString(w, "This is parley serve. Its API is described at /openapi.json.\n")
		})
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			s.fail(w, r, nil, errUnknownPath)
			return
		}
		console.ServeHTTP(w, r)
	})
}

// traceparent matches the W3C header that names a span.
var traceparent = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`) })

// dispatch checks the sender of a request and calls its route. The context of a route
// ends when its token is revoked and, for streams, when the server drains.
func (s *Server) dispatch(r *route, w http.ResponseWriter, req *http.Request) {
	if !s.requests.Enter() {
		writeError(w, http.StatusServiceUnavailable, "going_away", ErrDraining.Error())
		return
	}
	defer s.requests.Leave()
	s.counters.requests.Add(1)
	c := &call{s: s, w: w, r: req, route: r}
	if r.scope != "" {
		id, err := s.identify(req)
		if err == nil {
			err = id.require(r.scope)
		}
		if err != nil {
			s.fail(w, req, id, err)
			return
		}
		c.identity = id
		ctx, cancel := context.WithCancelCause(req.Context())
		defer cancel(nil)
		defer context.AfterFunc(id.ctx, func() { cancel(errRevoked) })()
		if r.media != "" {
			s.counters.streams.Add(1)
			defer s.counters.streams.Add(-1)
			defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
		}
		if parent := req.Header.Get("Traceparent"); traceparent().MatchString(parent) {
			ctx = hub.WithTrace(ctx, parent)
		}
		c.r = req.WithContext(ctx)
	}
	r.serve(c)
}

// fail responds to a request that failed.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, id *identity, err error) {
	status, code := http.StatusBadRequest, "invalid"
	var p *problem
	var late *hub.AnsweredError
	var held *hub.HeldError
	var refused *parley.ControlError
	switch {
	case errors.As(err, &p):
		status, code = p.status, p.code
	case errors.Is(err, errNoToken):
		status, code = http.StatusUnauthorized, "no_token"
	case errors.Is(err, errWrongToken):
		status, code = http.StatusUnauthorized, "wrong_token"
	case errors.Is(err, errTooMany):
		status, code = http.StatusTooManyRequests, "too_many_attempts"
		w.Header().Set("Retry-After", "60")
	case errors.Is(err, hub.ErrLimit):
		status, code = http.StatusTooManyRequests, "limit"
		w.Header().Set("Retry-After", "10")
	case errors.Is(err, errScope), errors.Is(err, hub.ErrForbidden):
		status, code = http.StatusForbidden, "scope"
	case errors.Is(err, hub.ErrNotFound), errors.Is(err, errUnknownPath):
		status, code = http.StatusNotFound, "not_found"
	case errors.As(err, &late):
		status, code = http.StatusConflict, "answered"
	case errors.Is(err, hub.ErrNotShown):
		status, code = http.StatusConflict, "not_shown"
	case errors.Is(err, hub.ErrExists), errors.Is(err, hub.ErrLocked), errors.Is(err, hub.ErrOtherPrompt), errors.As(err, &held):
		status, code = http.StatusConflict, "conflict"
	case errors.Is(err, hub.ErrClosed), errors.Is(err, ErrDraining):
		status, code = http.StatusServiceUnavailable, "going_away"
		w.Header().Set("Retry-After", "1")
	case errors.Is(err, hub.ErrUnavailable):
		status, code = http.StatusServiceUnavailable, "unavailable"
		w.Header().Set("Retry-After", "5")
	case errors.As(err, &refused):
		status, code = http.StatusBadGateway, "agent"
	}
	s.counters.failed.Add(1)
	if status == http.StatusUnauthorized {
		s.counters.refused.Add(1)
		w.Header().Set("WWW-Authenticate", `Bearer realm="parley"`)
	}
	text := err.Error()
	for _, pkg := range []string{"hub: ", "serve: ", "session: "} {
		text = strings.TrimPrefix(text, pkg)
	}
	if !errors.Is(err, errTooMany) { // do not let repeated attempts fill the log
		s.note(r, id, status, text)
	}
	writeError(w, status, code, text)
}

// An apiError is the body of an error response.
type apiError struct {
	Error struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func writeError(w http.ResponseWriter, status int, code, text string) {
	var e apiError
	e.Error.Code, e.Error.Message = code, text
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(e)
}

// refuse rejects a request that must not reach a route at all. Rejections are limited
// like failed attempts only in the audit log, which they must not fill.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, status int, code, text string) {
	s.counters.refused.Add(1)
	if s.failures.of("refused " + s.address(r)).Allow() {
		s.note(r, nil, status, text)
	}
	writeError(w, status, code, text)
}

// note writes a request that changed something, or was rejected, to the audit log.
func (s *Server) note(r *http.Request, id *identity, status int, reason string) {
	if r.Method == http.MethodGet && status != http.StatusUnauthorized && status != http.StatusForbidden && status != http.StatusMisdirectedRequest {
		return
	}
	if status == http.StatusUnauthorized && reason == errNoToken.Error() {
		return // there was no attempt
	}
	action := r.Pattern
	if action == "" || action == "/" || action == "/v1/" {
		action = r.Method + " " + clip(r.URL.Path, 200)
	}
	e := Event{From: s.address(r), Action: action, Session: clip(r.PathValue("id"), 50), Status: status, Reason: clip(reason, 500)}
	if id != nil {
		e.By, e.Token = id.Name, id.token
	}
	if err := s.audit.add(e); err != nil {
		s.logger().Error("the audit log cannot be written", "error", err)
	}
}

func clip(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "") + "…"
	}
	return s
}
