package serve_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/serve"
)

// A firstPiece ends its request with the first piece of a stream.
type firstPiece struct {
	*httptest.ResponseRecorder
	end context.CancelFunc
}

func (w *firstPiece) Flush() { w.end() }

// FuzzHTTP sends requests to every route, with a token that allows everything. It checks that each gets a
// response, that no response is a failure of the server, and that an error is in JSON. SID stands for a
// session.
func FuzzHTTP(f *testing.F) {
	for _, c := range [][3]string{
		{"GET", "/v1/me", ""}, {"POST", "/v1/login", `{"token":"x"}`}, {"GET", "/v1/tokens", ""}, {"POST", "/v1/tokens", `{"name":"a","scope":"view"}`},
		{"DELETE", "/v1/tokens/x", ""}, {"GET", "/v1/sessions?q=a&limit=3", ""}, {"GET", "/v1/sessions/SID", ""}, {"PATCH", "/v1/sessions/SID", `{"title":"t","archived":true}`},
		{"POST", "/v1/sessions/SID/fork", `{"at":1}`}, {"POST", "/v1/sessions/SID/prompts", `{"prompt":"Hello"}`},
		{"POST", "/v1/sessions/SID/prompts", `{"message":{"type":"user","message":{"role":"user","content":[{"type":"text","text":"x"}]}}}`},
		{"DELETE", "/v1/sessions/SID/prompts/00000000-0000-4000-8000-000000000001", ""}, {"POST", "/v1/sessions/SID/interrupt", "{}"}, {"POST", "/v1/sessions/SID/stop", ""},
		{"POST", "/v1/sessions/SID/rewind", `{"to":"x"}`}, {"POST", "/v1/sessions/SID/control", `{"request":{"subtype":"get_context_usage"}}`},
		{"GET", "/v1/sessions/SID/entries?after=0&limit=2", ""}, {"GET", "/v1/sessions/SID/approvals", ""}, {"GET", "/v1/approvals", ""},
		{"POST", "/v1/sessions/SID/approvals/x", `{"shown":"h","response":{"behavior":"allow"}}`}, {"GET", "/v1/worktrees", ""}, {"GET", "/v1/schedules", ""},
		{"POST", "/v1/schedules", `{"session":"SID","cron":"0 9 * * 1","prompt":"x"}`}, {"DELETE", "/v1/schedules/x", ""}, {"GET", "/v1/costs", ""}, {"GET", "/v1/audit?limit=1", ""},
		{"POST", "/v1/render", `{"markdown":["# a\n[b](c)"]}`}, {"GET", "/v1/events", ""}, {"GET", "/v1/sessions/SID/events?after=0", ""}, {"GET", "/v1/sessions/SID/watch", ""},
		{"GET", "/v1/code/sessions/SID/events/stream", ""}, {"POST", "/v1/code/sessions/SID/events", `{"events":[{"type":"user","message":{"role":"user","content":"x"}}]}`},
		{"GET", "/healthz", ""}, {"GET", "/metrics", ""}, {"GET", "/openapi.json", ""}, {"GET", "/", ""}, {"PUT", "/v1/nothing", "[]"}, {"POST", "/v1/sessions/SID/control", `{"request":null}`},
	} {
		f.Add(c[0], c[1], c[2])
	}
	f.Fuzz(func(t *testing.T, method, path, body string) {
		r := newRig(t, func() *parleytest.Model { return parleytest.Script(parleytest.Say("Hello.").Always()).Model() }, nil)
		id := r.create("")
		path, body = strings.ReplaceAll(path, "SID", id), strings.ReplaceAll(body, "SID", id)
		where, err := url.ParseRequestURI(path)
		if err != nil || !strings.HasPrefix(path, "/") || strings.Contains(body, "cwd") || strings.Contains(path, "cwd") {
			return // not a request, or one that names a directory
		}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		req, err := http.NewRequestWithContext(ctx, method, r.url, strings.NewReader(body))
		if err != nil {
			return
		}
		req.URL.Path, req.URL.RawPath, req.URL.RawQuery = where.Path, where.RawPath, where.RawQuery
		req.RemoteAddr = "127.0.0.1:9"
		req.Header.Set("Authorization", "Bearer "+r.tokens[serve.ScopeAdmin])
		req.Header.Set("Content-Type", "application/json")
		w := &firstPiece{httptest.NewRecorder(), end}
		r.server.Handler().ServeHTTP(w, req)
		if w.Code >= 500 && w.Code != http.StatusNotImplemented {
			t.Errorf("%s %s with %q: %d %s", method, path, body, w.Code, w.Body)
		}
		if w.Code >= 400 && strings.HasPrefix(where.Path, "/v1/") && method != http.MethodHead && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s with %q: %d is not JSON: %s", method, path, body, w.Code, w.Body)
		}
	})
}
