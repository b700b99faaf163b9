package parleytest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/internal/testwait"
)

func TestAPI(t *testing.T) {
	api := NewAPI(t, Script(Expect(LastUser("hi")).Think("hm").Say("hello"), Call("Read", `{"a":1}`), Say("bye")).CountTokens(77), nil)
	resp, body := post(t, api.URL+"/v1/messages?beta=true", ask("hi"))
	if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("content-type"), "text/event-stream") || resp.Header.Get("request-id") != "req_1" {
		t.Errorf("streamed: %d %v", resp.StatusCode, resp.Header)
	}
	if !strings.HasPrefix(body, "event: message_start\ndata: {") || !strings.HasSuffix(body, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n") {
		t.Errorf("stream:\n%s", body)
	}
	_, body = post(t, api.URL+"/v1/messages", strings.Replace(ask("hi"), `"stream":true,`, "", 1))
	var msg struct {
		ID, Type, Role, Model string
		Content               []struct{ Type, ID, Name string }
		StopReason            string `json:"stop_reason"`
	}
	if err := json.Unmarshal([]byte(body), &msg); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(msg); got != "{msg_main_2 message assistant m [{tool_use toolu_main_2_1 Read}] tool_use}" {
		t.Errorf("whole: %s", got)
	}
	if _, body = post(t, api.URL+"/v1/messages/count_tokens", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`); body != `{"input_tokens":77}` {
		t.Errorf("count_tokens: %s", body)
	}
	for _, path := range []string{"/", "/v1/complete", "/v1/messages/batches"} {
		if resp, body = post(t, api.URL+path, "{}"); resp.StatusCode != 404 || !strings.Contains(body, `"not_found_error"`) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	if resp, err := http.Get(api.URL + "/v1/messages"); err != nil || resp.StatusCode != 405 {
		t.Errorf("GET: %v %v", resp, err)
	} else {
		resp.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	post(t, api.URL+"/v1/messages", ask("x"))
	reqs := api.Requests()
	if r := reqs[0]; r.Method != "POST" || r.Path != "/v1/messages?beta=true" || r.Header.Get("x-api-key") != "REDACTED" || r.LastUser() != "hi" || r.Script != "main" || r.Turn != 1 {
		t.Errorf("request: %+v", r)
	}
	// This test expects the rejection of GET.
	api.mu.Lock()
	if len(api.refusals) != 1 {
		t.Errorf("refusals %v", api.refusals)
	}
	api.refusals = nil
	api.mu.Unlock()
}

// A tbDouble stands for a test whose failure is looked for.
type tbDouble struct {
	errors  []string
	cleanup []func()
}

func (d *tbDouble) Helper()                   {}
func (d *tbDouble) Cleanup(f func())          { d.cleanup = append(d.cleanup, f) }
func (d *tbDouble) Errorf(f string, a ...any) { d.errors = append(d.errors, fmt.Sprintf(f, a...)) }
func (d *tbDouble) Fatalf(f string, a ...any) { d.Errorf(f, a...) }
func (d *tbDouble) end() string {
	for _, f := range d.cleanup {
		f()
	}
	return strings.Join(d.errors, "\n")
}

func TestAPIFailsTest(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"not followed", ask("pears"), "+ got pears"},
		{"refused", `{"model":"m"}`, "max_tokens: Field required (rule max_tokens)"},
		{"unplayed", ask("apples"), "turn 2: never requested"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := &tbDouble{}
			api := NewAPI(d, Script(Expect(LastUser("apples")).Say("x"), Say("y")), nil)
			resp, body := post(t, api.URL+"/v1/messages", tt.body)
			if tt.name != "unplayed" && (resp.StatusCode != 400 || resp.Header.Get("x-should-retry") != "false") {
				t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
			}
			if got := d.end(); !strings.Contains(got, tt.want) {
				t.Errorf("reported %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 413, 429, 500, 503, 529} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			api := NewAPI(t, Script(Fail(status).RetryAfter(time.Second).Header("anthropic-ratelimit-unified-status", "rejected")), nil)
			resp, body := post(t, api.URL+"/v1/messages", ask("x"))
			var e struct {
				Type      string
				Error     struct{ Type, Message string }
				RequestID string `json:"request_id"`
			}
			json.Unmarshal([]byte(body), &e)
			want := errorTypes[status]
			if want == "" {
				want = "api_error"
			}
			if resp.StatusCode != status || e.Type != "error" || e.Error.Type != want || e.Error.Message == "" || e.RequestID == "" {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
			if resp.Header.Get("retry-after") != "1" || resp.Header.Get("anthropic-ratelimit-unified-status") != "rejected" {
				t.Errorf("headers %v", resp.Header)
			}
		})
	}

	stream := func(t *testing.T, turn *Turn) (string, error) {
		t.Helper()
		api := NewAPI(t, Script(turn), nil)
		_, body, err := tryPost(t, api.URL+"/v1/messages", goodHeader(), ask("x"))
		return body, err
	}
	events := func(body string) int { return strings.Count(body, "\ndata: ") }

	t.Run("reset", func(t *testing.T) {
		if _, err := stream(t, Reset()); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
			t.Errorf("%v", err)
		}
	})
	// A turn of one text block has six events.
	for n := 1; n <= 6; n++ {
		t.Run(fmt.Sprint("cut after ", n), func(t *testing.T) {
			body, err := stream(t, Say("hello").Cut().After(n))
			if !errors.Is(err, io.ErrUnexpectedEOF) || events(body) != n {
				t.Errorf("%v after %d events", err, events(body))
			}
		})
		t.Run(fmt.Sprint("cut clean after ", n), func(t *testing.T) {
			body, err := stream(t, Say("hello").CutClean().After(n))
			if err != nil || events(body) != n {
				t.Errorf("%v after %d events", err, events(body))
			}
		})
	}
	t.Run("reset after 2", func(t *testing.T) {
		if _, err := stream(t, Say("hello").Reset().After(2)); err == nil {
			t.Error("no error")
		}
	})
	t.Run("malformed", func(t *testing.T) {
		body, err := stream(t, Say("hello").Malformed("{bad").After(2))
		if err != nil || !strings.Contains(body, "data: {bad\n\n") || events(body) != 7 {
			t.Errorf("%v: %s", err, body)
		}
	})
	t.Run("error event", func(t *testing.T) {
		body, err := stream(t, Say("hello").StreamError("overloaded_error", "Overloaded"))
		if err != nil || !strings.HasSuffix(body, "event: error\ndata: {\"error\":{\"message\":\"Overloaded\",\"type\":\"overloaded_error\"},\"type\":\"error\"}\n\n") || events(body) != 5 {
			t.Errorf("%v: %s", err, body)
		}
	})
	t.Run("ping", func(t *testing.T) {
		body, err := stream(t, Say("hello").Ping().After(1))
		if err != nil || !strings.Contains(body, "event: ping\ndata: {\"type\": \"ping\"}\n\nevent: content_block_start") {
			t.Errorf("%v: %s", err, body)
		}
	})
	t.Run("drip", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			req := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/messages", strings.NewReader(ask("x")))
			req.Header = goodHeader()
			NewHandler(Script(Say("hello").Drip(5*time.Second)), nil).ServeHTTP(httptest.NewRecorder(), req)
			if took := time.Since(start); took != 25*time.Second {
				t.Errorf("six events took %v, want 25s", took)
			}
		})
	})
	t.Run("stall", func(t *testing.T) {
		api := NewAPI(t, Script(Say("hello").Stall().After(2)), nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "POST", api.URL+"/v1/messages", strings.NewReader(ask("x")))
		req.Header = goodHeader()
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		lines, seen := bufio.NewScanner(resp.Body), 0
		for seen < 2 && lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data: ") {
				seen++
			}
		}
		go func() {
			testwait.Pause(30 * time.Millisecond)
			cancel()
		}()
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data: ") {
				t.Errorf("more came: %s", lines.Text())
			}
		}
		if !errors.Is(lines.Err(), context.Canceled) {
			t.Errorf("%v", lines.Err())
		}
	})
	t.Run("close ends a stall", func(t *testing.T) {
		api := NewHandler(Script(Say("x").Stall()), nil)
		if err := api.Listen("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			tryPost(t, api.URL+"/v1/messages", goodHeader(), ask("x"))
		}()
		testwait.Until(t, "a request", func() bool { return len(api.Requests()) > 0 && api.Requests()[0].Status != 0 })
		api.Close()
		<-done
	})
	t.Run("not streamed", func(t *testing.T) {
		api := NewAPI(t, Script(Say("x").StreamError("overloaded_error", "Overloaded"), Say("x").Cut(), Say("x").Malformed("{bad")), nil)
		whole := strings.Replace(ask("x"), `"stream":true,`, "", 1)
		if resp, body := post(t, api.URL+"/v1/messages", whole); resp.StatusCode != 529 {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
		if _, _, err := tryPost(t, api.URL+"/v1/messages", goodHeader(), whole); err == nil {
			t.Error("a cut gave no error")
		}
		if _, body := post(t, api.URL+"/v1/messages", whole); body != "{bad" {
			t.Errorf("malformed: %s", body)
		}
	})
}

// TestAccepted checks that requests that the API accepts are not rejected.
func TestAccepted(t *testing.T) {
	beta := goodHeader()
	beta.Set("anthropic-beta", "some-beta-2026-01-01,interleaved-thinking-2025-05-14")
	bearer := goodHeader("x-api-key")
	bearer.Set("authorization", "Bearer token")
	const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	for _, tt := range []struct {
		name   string
		header http.Header
		body   string
	}{
		{"bearer token", bearer, goodBody},
		{"system blocks", goodHeader(), strings.Replace(goodBody, "{", `{"system":[{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"ephemeral"}}],`, 1)},
		{"two of one role", goodHeader(), messages(`{"role":"user","content":"a"},{"role":"user","content":"b"}`)},
		{"results in two messages", goodHeader(), messages(`{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"x","input":{}},{"type":"tool_use","id":"b","name":"x","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"b","content":[]},{"type":"text","text":"t"}]}`)},
		{"an image in a result", goodHeader(), messages(`{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"x","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + png + `"}}]}]}`)},
		{"system messages with a beta", beta, messages(`{"role":"user","content":"a"},{"role":"system","content":"n"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}`)},
		{"unknown members with a beta", beta, strings.Replace(goodBody, "{", `{"context_management":{},"tomorrow":1,`, 1)},
		{"a large budget, interleaved", beta, strings.Replace(goodBody, "{", `{"thinking":{"type":"enabled","budget_tokens":2048},`, 1)},
		{"tools of the API", goodHeader(), tool(`{"type":"web_search_20250305","name":"web_search","max_uses":3},{"name":"a","input_schema":{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"p":{"type":"string","pattern":"(?=x)y"}},"additionalProperties":false}}`)},
		{"an old signature", goodHeader(), messages(`{"role":"user","content":"a"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"` + sign("hm") + `"},{"type":"text","text":"b"}]},{"role":"user","content":"c"}`)},
		{"a blank text beside another", goodHeader(), messages(`{"role":"user","content":[{"type":"text","text":" "},{"type":"text","text":"a"}]}`)},
		{"a prefill", goodHeader(), messages(`{"role":"user","content":"a"},{"role":"assistant","content":"So"}`)},
		{"surrogate pairs", goodHeader(), messages(`{"role":"user","content":"\ud83d\ude00 \\ud83d"}`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api := NewAPI(t, Script(Say("ok")), nil)
			if resp, body := postHeader(t, api.URL+"/v1/messages", tt.header, tt.body); resp.StatusCode != 200 {
				t.Errorf("%d %s", resp.StatusCode, body)
			}
		})
	}
}

func TestLenient(t *testing.T) {
	api := NewAPI(t, Script(Say("ok")), &APIOptions{Lenient: true})
	if resp, body := postHeader(t, api.URL+"/v1/messages", http.Header{}, `{"messages":[]}`); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestCache(t *testing.T) {
	text := func(s string, mark bool) string {
		cc := ""
		if mark {
			cc = `,"cache_control":{"type":"ephemeral"}`
		}
		return `{"type":"text","text":"` + strings.Repeat(s, 400) + `"` + cc + `}`
	}
	request := func(system string, msgs ...string) string {
		return `{"model":"m","max_tokens":9,"system":[` + system + `],"messages":[{"role":"user","content":[` + strings.Join(msgs, ",") + `]}]}`
	}
	api := NewAPI(t, Script(Say("x").Times(5), Say("y").Usage(Usage{Input: 1})), &APIOptions{Cache: true, CacheMin: 50})
	for i, tt := range []struct {
		body          string
		read, written bool
		uncached      bool
	}{
		{request(text("s", true), text("a", false)), false, true, true},
		{request(text("s", true), text("b", true)), true, true, false},
		{request(text("s", false), text("b", true)), true, false, false},
		{request(text("t", true), text("b", true)), false, true, false},
		{request(`{"type":"text","text":"short","cache_control":{"type":"ephemeral"}}`, text("b", false)), false, false, true},
	} {
		_, body := post(t, api.URL+"/v1/messages", tt.body)
		c := api.Requests()[i].Cache
		if (c.Read > 0) != tt.read || (c.Written > 0) != tt.written || (c.Uncached > 0) != tt.uncached {
			t.Errorf("request %d: %+v", i+1, c)
		}
		if want := fmt.Sprintf(`"input_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d`, c.Uncached, c.Written, c.Read); !strings.Contains(body, want) {
			t.Errorf("request %d: no %s in %s", i+1, want, body)
		}
	}
	if _, body := post(t, api.URL+"/v1/messages", goodBody); !strings.Contains(body, `"input_tokens":1,`) {
		t.Errorf("a usage of its own: %s", body)
	}
}

func TestCacheLifetime(t *testing.T) {
	var c cache
	now := time.Unix(1e9, 0)
	body := func(ttl string) *messagesBody {
		r := &Request{Body: []byte(`{"model":"m","system":[{"type":"text","text":"abcdefgh","cache_control":{"type":"ephemeral"` + ttl + `}}]}`)}
		return r.parse()
	}
	if u := c.use(body(""), 0, now); u.Written == 0 || u.Read != 0 {
		t.Errorf("first: %+v", u)
	}
	if u := c.use(body(""), 0, now.Add(4*time.Minute)); u.Read == 0 {
		t.Errorf("after four minutes: %+v", u)
	}
	if u := c.use(body(`,"ttl":"1h"`), 0, now.Add(10*time.Minute)); u.Read != 0 || u.Written1h == 0 {
		t.Errorf("after six more: %+v", u)
	}
	if u := c.use(body(`,"ttl":"1h"`), 0, now.Add(60*time.Minute)); u.Read == 0 {
		t.Errorf("after an hour, less: %+v", u)
	}
}
