package anthropic

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ask = `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"go"}]}`

func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// served returns a client of a server with the given handler.
func served(t *testing.T, cfg Config, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	cfg.BaseURL = s.URL
	return newClient(t, cfg)
}

type seq = func(func(model.Event, error) bool)

// all collects the events, one line each.
func all(s seq) (events []string, err error) {
	s(func(ev model.Event, e error) bool {
		if e != nil {
			err = e
			return true
		}
		if err != nil {
			panic("an event after the error")
		}
		events = append(events, string(ev.Data))
		var head struct{ Type string }
		if json.Unmarshal(ev.Data, &head) != nil || head.Type != ev.Type {
			panic(fmt.Sprintf("type %q of %s", ev.Type, ev.Data))
		}
		return true
	})
	return events, err
}

func request(body string) model.Request { return model.Request{Body: []byte(body)} }

// The client and the scripted model yield the same events for the same script, in a
// stream and in one piece.
func TestConversation(t *testing.T) {
	turn := func() *parleytest.Turn {
		return parleytest.Think("Hm, \u2028 first.").Ping().Say("I look at ", "it <first> ☺.").
			Call("Read", `{"file_path": "a.txt", "n": [1, {"x": "\""}]}`).
			Call("Empty", `{}`).
			Usage(parleytest.Usage{Input: 1, Output: 2, CacheWrite: 3, CacheRead: 4})
	}
	want, err := all(parleytest.Script(turn()).Model().Stream(t.Context(), request(ask)))
	if err != nil {
		t.Fatal(err)
	}
	api := parleytest.NewAPI(t, parleytest.Script(turn(), turn()), nil)
	c := newClient(t, Config{BaseURL: api.URL + "/", APIKey: "sk-1"})
	got, err := all(c.Stream(t.Context(), request(ask)))
	if err != nil {
		t.Fatal(err)
	}
	strip := strings.NewReplacer("toolu_main_2", "toolu_main_1")
	if a, b := anonymous(got), anonymous(want); a != b {
		t.Errorf("got\n%s\nwant\n%s", a, b)
	}
	for _, body := range []string{ask, strings.Replace(ask, "{", `{"stream":true,`, 1)} {
		if strings.Contains(body, "stream") {
			api = parleytest.NewAPI(t, parleytest.Script(turn()), nil)
			c = newClient(t, Config{BaseURL: api.URL, APIKey: "sk-1"})
		}
		whole, err := all(c.Complete(t.Context(), request(body)))
		if err != nil {
			t.Fatal(err)
		}
		if a, b := strip.Replace(folded(t, whole)), folded(t, want); a != b {
			t.Errorf("in one piece:\n%s\nwant\n%s", a, b)
		}
	}
}

// anonymous joins events without the parts that differ between runs.
func anonymous(events []string) string {
	out := strings.Join(events, "\n")
	if _, after, ok := strings.Cut(out, `"id":"msg_`); ok {
		id, _, _ := strings.Cut(after, `"`)
		out = strings.ReplaceAll(out, "msg_"+id, "msg_")
	}
	return out
}

// folded returns the message that events form.
func folded(t *testing.T, events []string) string {
	t.Helper()
	var out []any
	parts := ""
	for _, e := range events {
		var ev struct {
			Type         string
			ContentBlock map[string]any `json:"content_block"`
			Delta        map[string]any
			Usage        any
		}
		if err := json.Unmarshal([]byte(e), &ev); err != nil {
			t.Fatal(err)
		}
		switch ev.Type {
		case "content_block_start":
			parts = ""
			out = append(out, ev.ContentBlock)
		case "content_block_delta":
			for _, k := range []string{"text", "thinking", "partial_json", "signature"} {
				if s, ok := ev.Delta[k].(string); ok {
					parts += s
				}
			}
		case "content_block_stop":
			// Spaces are lost, and an empty input has no delta.
			if ev.Type = fmt.Sprint(out[len(out)-1].(map[string]any)["type"]); ev.Type == "tool_use" {
				var b bytes.Buffer
				if json.Compact(&b, []byte(cmp.Or(parts, "{}"))) == nil {
					parts = b.String()
				}
			}
			out = append(out, parts)
		case "message_delta":
			out = append(out, ev.Delta, ev.Usage)
		}
	}
	data, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestRequest(t *testing.T) {
	for _, c := range []struct {
		name, body, sent string
		cfg              Config
		header           http.Header
		want             map[string]string
		query            string
	}{
		{
			name: "key", body: `{"a": 1 }`, sent: `{"a": 1 ,"stream":true}`,
			cfg:  Config{APIKey: "sk-1"},
			want: map[string]string{"X-Api-Key": "sk-1", "Authorization": "", "Anthropic-Version": "2023-06-01", "User-Agent": "parley", "Content-Type": "application/json"},
		},
		{
			name: "token", body: `{"stream":false,"a":{"stream":1}}`, sent: `{"stream":true,"a":{"stream":1}}`,
			cfg:  Config{AuthToken: "t", UserAgent: "parley/1.2"},
			want: map[string]string{"Authorization": "Bearer t", "X-Api-Key": "", "User-Agent": "parley/1.2"},
		},
		{
			name: "betas", body: `{ "a":"}", "stream" : true}`, sent: `{ "a":"}", "stream" : true}`,
			cfg:    Config{Header: http.Header{"anthropic-beta": {"c"}, "x-Mine": {"1"}, "X-Other": {"1"}}},
			header: http.Header{"Anthropic-Beta": {"a", "b"}, "X-Other": {"2"}},
			want:   map[string]string{"Anthropic-Beta": "a,b,c", "X-Mine": "1", "X-Other": "2"},
			query:  "beta=true",
		},
		{name: "empty", body: `{}`, sent: `{"stream":true}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var body string
			var got *http.Request
			cl := served(t, c.cfg, func(w http.ResponseWriter, r *http.Request) {
				b, _ := io.ReadAll(r.Body)
				body, got = string(b), r
				w.WriteHeader(418)
			})
			_, err := all(cl.Stream(t.Context(), model.Request{Body: []byte(c.body), Header: c.header}))
			if e, ok := errors.AsType[*model.Error](err); !ok || e.Status != 418 || e.Message != "I'm a teapot" {
				t.Errorf("error %v", err)
			}
			if body != c.sent {
				t.Errorf("sent %s, want %s", body, c.sent)
			}
			for k, v := range c.want {
				if got.Header.Get(k) != v {
					t.Errorf("%s: %q, want %q", k, got.Header.Get(k), v)
				}
			}
			if got.URL.Path != "/v1/messages" || got.URL.RawQuery != c.query {
				t.Errorf("%s", got.URL)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	date := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	for _, c := range []struct {
		name   string
		status int
		header map[string]string
		body   string
		want   model.Error
	}{
		{"api", 529, map[string]string{"Request-Id": "req_1", "Retry-After": "2"},
			`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_2"}`,
			model.Error{Type: "overloaded_error", Message: "Overloaded", RequestID: "req_1", RetryAfter: 2 * time.Second}},
		{"ms", 429, map[string]string{"Retry-After": "7", "Retry-After-Ms": "150.5"}, `{"error":"slow down"}`,
			model.Error{Type: "rate_limit_error", Message: "slow down", RetryAfter: 150*time.Millisecond + 500*time.Microsecond}},
		{"date", 503, map[string]string{"Retry-After": date}, ``, model.Error{Type: "api_error", Message: "Service Unavailable", RetryAfter: time.Hour}},
		{"negative", 503, map[string]string{"Retry-After": "-5"}, ``, model.Error{Type: "api_error", Message: "Service Unavailable"}},
		{"absurd", 503, map[string]string{"Retry-After": "1e300"}, ``, model.Error{Type: "api_error", Message: "Service Unavailable", RetryAfter: 365 * 24 * time.Hour}},
		{"html", 502, nil, "<html>Bad gateway</html>", model.Error{Type: "api_error", Message: "Bad Gateway"}},
		{"text", 401, nil, "  no\n", model.Error{Type: "authentication_error", Message: "no"}},
		{"unknown", 529, nil, "", model.Error{Type: "overloaded_error", Message: "the server gave no reason"}},
		{"detail", 422, nil, `{"detail":[{"loc":1}]}`, model.Error{Type: "invalid_request_error", Message: `[{"loc":1}]`}},
		{"google", 404, nil, `[{"error":{"code":404,"status":"NOT_FOUND","message":"none"}}]`, model.Error{Type: "NOT_FOUND", Message: "none"}},
		{"numbers", 400, nil, `{"error":{"type":1,"message":2},"request_id":3}`, model.Error{Type: "invalid_request_error", Message: "2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := served(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
				for k, v := range c.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			})
			var seen model.Response
			req := request(ask)
			req.OnResponse = func(r model.Response) { seen = r }
			for _, s := range []seq{cl.Stream(t.Context(), req), cl.Complete(t.Context(), req)} {
				_, err := all(s)
				e, ok := errors.AsType[*model.Error](err)
				if !ok {
					t.Fatalf("error %v", err)
				}
				got := *e
				got.Header = nil
				got.RetryAfter = got.RetryAfter.Round(time.Microsecond)
				if c.name == "date" {
					got.RetryAfter = got.RetryAfter.Round(time.Minute)
				}
				c.want.Status = c.status
				if got.Error() != c.want.Error() || got.RequestID != c.want.RequestID || got.RetryAfter != c.want.RetryAfter {
					t.Errorf("got %+v, want %+v", got, c.want)
				}
				if seen.Status != c.status || e.Header == nil {
					t.Errorf("response %+v", seen)
				}
			}
		})
	}
}

// Each fault of a stream ends it with its own kind of error, after the preceding
// events.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name   string
		turn   *parleytest.Turn
		events int
		is     func(error) bool
	}{
		{"cut", parleytest.Say("hello").Cut().After(3), 3, func(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }},
		{"clean", parleytest.Say("hello").CutClean().After(3), 3, func(err error) bool {
			return errors.Is(err, io.ErrUnexpectedEOF) && strings.Contains(err.Error(), "before message_stop")
		}},
		{"reset", parleytest.Say("hello").Reset().After(3), -1, func(err error) bool { return errors.Is(err, syscall.ECONNRESET) }},
		{"no answer", parleytest.Reset(), 0, func(err error) bool { return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) }},
		{"malformed", parleytest.Say("hello").Malformed(`{"type":"content_block_del`).After(3), 3, func(err error) bool {
			e, ok := errors.AsType[*model.EventError](err)
			return ok && string(e.Data) == `{"type":"content_block_del`
		}},
		{"untyped", parleytest.Say("hello").Malformed(`{"kind":"x"}`).After(2), 2, func(err error) bool {
			_, ok := errors.AsType[*model.EventError](err)
			return ok
		}},
		{"error", parleytest.Say("hello").StreamError("overloaded_error", "Too much").After(4), 4, func(err error) bool {
			e, ok := errors.AsType[*model.Error](err)
			return ok && e.Status == 0 && e.Type == "overloaded_error" && e.Message == "Too much" && e.RequestID != ""
		}},
		{"refused", parleytest.Fail(401), 0, func(err error) bool {
			e, ok := errors.AsType[*model.Error](err)
			return ok && e.Status == 401 && e.Type == "authentication_error"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			api := parleytest.NewAPI(t, parleytest.Script(c.turn), nil)
			cl := newClient(t, Config{BaseURL: api.URL, APIKey: "sk-1", IdleTimeout: time.Hour})
			events, err := all(cl.Stream(t.Context(), request(ask)))
			if !c.is(err) {
				t.Errorf("error %T %v", err, err)
			}
			if len(events) != c.events && c.events >= 0 {
				t.Errorf("%d events, want %d", len(events), c.events)
			}
		})
	}
}

func TestRefusedConnection(t *testing.T) {
	cl := newClient(t, Config{BaseURL: "http://127.0.0.1:1"})
	if _, err := all(cl.Stream(t.Context(), request(ask))); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error %v", err)
	}
}

// An expiring context ends like one whose deadline has passed.
type expiring struct{ context.Context }

func (c expiring) Err() error {
	if c.Context.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// A cancelled call returns the cancellation, and the server sees the connection close.
func TestCancel(t *testing.T) {
	for _, how := range []string{"cancel", "cause", "deadline", "break"} {
		t.Run(how, func(t *testing.T) {
			gone := make(chan struct{})
			cl := served(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, "data: {\"type\":\"message_start\"}\n\n")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				close(gone)
			})
			why := errors.New("the user said so")
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if how == "deadline" {
				ctx = expiring{ctx}
			}
			var got error
			for _, err := range cl.Stream(ctx, request(ask)) {
				if err != nil {
					got = err
				} else if how == "break" {
					break
				} else if how == "cancel" {
					cancel(nil)
				} else if how == "cause" {
					cancel(why)
				} else {
					cancel(context.DeadlineExceeded)
				}
			}
			want := map[string]error{"cancel": context.Canceled, "cause": why, "deadline": context.DeadlineExceeded}[how]
			if !errors.Is(got, want) || how == "cause" && !errors.Is(got, context.Canceled) {
				t.Errorf("error %v, want %v", got, want)
			}
			select {
			case <-gone:
			case <-testwait.Late(t):
				t.Error("the connection is still open")
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cl := newClient(t, Config{BaseURL: "http://127.0.0.1:1"})
	if _, err := all(cl.Stream(ctx, request(ask))); !errors.Is(err, context.Canceled) {
		t.Errorf("before the start: %v", err)
	}
}

// A roundTripper answers without a network, so that a test can use the time of a
// synctest bubble.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The time that the consumer takes does not count; pings count as activity.
func TestIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newClient(t, Config{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			pr, pw := io.Pipe()
			go func() {
				defer pw.CloseWithError(io.ErrClosedPipe)
				for _, ev := range []string{"message_start", "ping", "ping", "content_block_start"} {
					time.Sleep(4 * time.Minute)
					if _, err := fmt.Fprintf(pw, "data: {\"type\":%q}\n\n", ev); err != nil {
						return
					}
				}
				<-r.Context().Done()
				pw.CloseWithError(r.Context().Err())
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: pr}, nil
		})})
		start := time.Now()
		n := 0
		for ev, err := range cl.Stream(t.Context(), request(ask)) {
			if err != nil {
				if e, ok := errors.AsType[*model.IdleError](err); !ok || e.After != 5*time.Minute || !e.Timeout() {
					t.Errorf("error %v", err)
				}
				continue
			}
			n++
			if ev.Type == "message_start" {
				time.Sleep(time.Hour)
			}
		}
		if n != 2 || time.Since(start) < 77*time.Minute || time.Since(start) > 81*time.Minute {
			t.Errorf("%d events in %v", n, time.Since(start))
		}
	})
}

// A server that accepts a request and does not answer is idle, too.
func TestIdleBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := newClient(t, Config{IdleTimeout: time.Minute, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})})
		start := time.Now()
		events, err := all(cl.Stream(t.Context(), request(ask)))
		if e, ok := errors.AsType[*model.IdleError](err); !ok || e.After != time.Minute || len(events) != 0 || time.Since(start) != time.Minute {
			t.Errorf("error %v after %v and %d events", err, time.Since(start), len(events))
		}
	})
}

// A key is requested once, however many requests need it, and again when it is
// rejected.
func TestKey(t *testing.T) {
	var asked atomic.Int64
	var refused atomic.Int64
	good := "key-1"
	var mu sync.Mutex
	cl := served(t, Config{Key: func(ctx context.Context) (string, error) {
		testwait.Pause(time.Millisecond)
		return fmt.Sprintf(" key-%d\n", asked.Add(1)), nil
	}}, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("X-Api-Key") != good || r.Header.Get("Authorization") != "Bearer "+good {
			refused.Add(1)
			w.WriteHeader(401)
			return
		}
		io.WriteString(w, "data: {\"type\":\"message_stop\"}\n\n")
	})
	ask := func(want string) {
		t.Helper()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				statuses := 0
				req := request(ask)
				req.OnResponse = func(model.Response) { statuses++ }
				if _, err := all(cl.Stream(t.Context(), req)); fmt.Sprint(err) != want || statuses != 1 {
					t.Errorf("error %v, want %s; %d answers", err, want, statuses)
				}
			})
		}
		wg.Wait()
	}
	ask("<nil>")
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times for eight requests", n)
	}
	good = "key-2"
	ask("<nil>")
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times after the key changed", n)
	}
	good = "none"
	refused.Store(0)
	ask("model: 401 authentication_error: Unauthorized")
	if n := refused.Load(); n != 16 {
		t.Errorf("%d requests were refused, want two for each", n)
	}
}

func TestKeyFails(t *testing.T) {
	why := errors.New("exit status 1")
	for _, c := range []struct {
		key string
		err error
	}{{"", why}, {" \n", nil}, {"a\nb", nil}} {
		cl := newClient(t, Config{BaseURL: "http://127.0.0.1:1", Key: func(context.Context) (string, error) { return c.key, c.err }})
		_, err := all(cl.Stream(t.Context(), request(ask)))
		if err == nil || !strings.HasPrefix(err.Error(), "anthropic: no key: ") || c.err != nil && !errors.Is(err, why) {
			t.Errorf("%q: error %v", c.key, err)
		}
	}
}

// Keys expire.
func TestKeyTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		k := newKeeper(func(context.Context) (string, error) { n++; return fmt.Sprint("k", n), nil }, time.Minute)
		for range 4 {
			for range 3 {
				if _, err := k.Get(t.Context(), ""); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(61 * time.Second)
		}
		if n != 4 {
			t.Errorf("asked %d times, want 4", n)
		}
	})
}

// Credentials are sent only to the server that they are for.
func TestRedirect(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("redirected here with %v", r.Header)
	}))
	defer other.Close()
	for _, c := range []struct {
		status   int
		to, want string
	}{
		{307, other.URL, "model: 307 invalid_request_error: redirected to " + other.URL + ", which is not followed"},
		{302, "/there", "model: 302 invalid_request_error: redirected to "},
		{308, "/there", "<nil>"},
		{308, "/loop", "model: 308 invalid_request_error: redirected to "},
	} {
		var body string
		cl := served(t, Config{APIKey: "sk-1"}, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/there" {
				b, _ := io.ReadAll(r.Body)
				body = string(b) + r.Header.Get("X-Api-Key")
				io.WriteString(w, "data: {\"type\":\"message_stop\"}\n\n")
				return
			}
			http.Redirect(w, r, c.to, c.status)
		})
		_, err := all(cl.Stream(t.Context(), request(`{}`)))
		if !strings.HasPrefix(fmt.Sprint(err), c.want) {
			t.Errorf("%d %s: error %v, want %s", c.status, c.to, err, c.want)
		}
		if err == nil && body != `{"stream":true}sk-1` {
			t.Errorf("repeated as %s", body)
		}
	}
}

// Responses that are not a stream although one was requested.
func TestOtherAnswers(t *testing.T) {
	const message = `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"a\u003cb"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":2}}`
	for _, c := range []struct {
		kind, body string
		events     int
		want       string
	}{
		{"application/json; charset=utf-8", message, 6, "<nil>"},
		{"application/json", `{"type":"error","error":{"type":"api_error","message":"no"}}`, 0, "model: api_error: no"},
		{"application/json", `{}`, 0, `model: malformed event: the answer is of type "", not a message: "{}"`},
		{"application/json", `{`, 0, `model: malformed event: the answer is not JSON: "{"`},
		{"text/html", "<p>Log in</p>", 0, "model: 200 api_error: the answer is text/html, not a stream of events: OK"},
		{"", "data: {\"type\":\"message_stop\"}\n\n", 1, "<nil>"},
		{"text/event-stream", "", 0, "anthropic: the stream ended before message_stop: unexpected EOF"},
		{"text/event-stream", "data: {\"type\":\"mess", 0, "anthropic: the stream ended before message_stop: unexpected EOF"},
		{"text/event-stream", `data: {"type":"message_stop"}`, 1, "<nil>"},
		{"text/event-stream", "event: x\ndata: {\ndata: \"type\": \"message_stop\"}\n\ndata: more\n\n", 1, "<nil>"},
		{"text/event-stream", "data: {\"type\":\"new\",\"t\":\"\xff\"}\n\ndata: {\"type\":\"message_stop\"}\n\n", 2, "<nil>"},
		{"text/event-stream", "data: {\"type\":\"new\"," + strings.Repeat(" ", 2000) + "}\n\n", 0, "model: malformed event: the event is too large: \"\""},
	} {
		cl := served(t, Config{MaxEvent: 1000}, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = nil
			if c.kind != "" {
				w.Header().Set("Content-Type", c.kind)
			}
			io.WriteString(w, c.body)
		})
		events, err := all(cl.Stream(t.Context(), request(ask)))
		if fmt.Sprint(err) != c.want || len(events) != c.events {
			t.Errorf("%s %.40q: %d events, error %v, want %d, %s", c.kind, c.body, len(events), err, c.events, c.want)
		}
		for _, e := range events {
			if strings.ContainsAny(e, "\r\n") {
				t.Errorf("an event of several lines: %q", e)
			}
		}
	}
}

func TestCountTokens(t *testing.T) {
	api := parleytest.NewAPI(t, parleytest.Script().CountTokens(42), nil)
	cl := newClient(t, Config{BaseURL: api.URL, APIKey: "sk-1"})
	n, err := cl.CountTokens(t.Context(), request(`{"stream":true,"temperature":1,"model":"m","max_tokens":9,"metadata":{},"messages":[{"role":"user","content":"go"}]}`))
	if n != 42 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	if got, want := string(api.Requests()[0].Body), `{"model":"m","messages":[{"role":"user","content":"go"}]}`; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
	bad := served(t, Config{}, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "{}") })
	if _, err := bad.CountTokens(t.Context(), request(ask)); err == nil {
		t.Error("an answer without a count is taken")
	}
}

// A connection is reused after a stream that was read to its end.
func TestKeepAlive(t *testing.T) {
	seen := map[string]bool{}
	cl := served(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		seen[r.RemoteAddr] = true
		io.WriteString(w, "data: {\"type\":\"message_stop\"}\n\n")
		w.(http.Flusher).Flush()
		testwait.Pause(time.Millisecond)
	})
	for range 5 {
		if _, err := all(cl.Stream(t.Context(), request(ask))); err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) != 1 {
		t.Errorf("%d connections for five requests", len(seen))
	}
}

func TestBadAddress(t *testing.T) {
	for _, base := range []string{"api.example.com", "ftp://x", "http://", ":", "/v1"} {
		if _, err := New(Config{BaseURL: base}); err == nil {
			t.Errorf("%q is taken for an address", base)
		}
	}
}
