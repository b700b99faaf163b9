package fleet

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/serve"
)

// A face is the API of one node.
type face struct {
	t   *testing.T
	s   *serve.Server
	web *httptest.Server
}

func newFace(t *testing.T, b *Backend) *face {
	t.Helper()
	c := newCrew(t, b, 0, "")
	s, err := serve.New(serve.Config{Hub: c.hub, Tokens: b.Tokens(), NoDirectory: true, Dir: t.TempDir(), CheckPeer: func(net.Conn) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	web := httptest.NewServer(s.Handler())
	t.Cleanup(web.Close)
	return &face{t, s, web}
}

// call sends a request with a token, and returns the status and the body.
func (f *face) call(secret, method, path string, in any) (int, string) {
	f.t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		f.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.web.URL+path, bytes.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if in == nil {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// token creates a token in the name of the operator.
func (f *face) token(name string) string {
	f.t.Helper()
	_, secret, err := f.s.AddToken(name, serve.ScopeAdmin, time.Time{})
	if err != nil {
		f.t.Fatal(err)
	}
	return secret
}

// A token of one node works on all, and a token revoked on one works on none.
func TestTokensApplyToAllNodes(t *testing.T) {
	t.Parallel()
	open := place(t)
	one, two := newFace(t, open()), newFace(t, open())
	made, secret, err := one.s.AddToken("phone", serve.ScopeAdmin, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	other := two.token("laptop") // both are kept
	testwait.Until(t, "both tokens work on both nodes", func() bool {
		a, _ := two.call(secret, "GET", "/v1/me", nil)
		b, _ := one.call(other, "GET", "/v1/me", nil)
		return a == http.StatusOK && b == http.StatusOK
	})
	three := newFace(t, open()) // a node that starts later
	if code, body := three.call(secret, "GET", "/v1/me", nil); code != http.StatusOK {
		t.Errorf("on a node that starts later: %d %s", code, body)
	}
	// A stream on another node ends when the token is revoked.
	req, err := http.NewRequestWithContext(t.Context(), "GET", three.web.URL+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	stream, err := http.DefaultClient.Do(req)
	if err != nil || stream.StatusCode != http.StatusOK {
		t.Fatal(stream, err)
	}
	defer stream.Body.Close()
	if code, body := two.call(other, "DELETE", "/v1/tokens/"+made.ID, nil); code != http.StatusOK {
		t.Fatalf("revoke: %d %s", code, body)
	}
	io.Copy(io.Discard, stream.Body)
	for i, f := range []*face{one, two, three} {
		testwait.Until(t, "the token is refused", func() bool {
			code, _ := f.call(secret, "GET", "/v1/me", nil)
			return code == http.StatusUnauthorized
		})
		if n := len(f.s.Tokens()); n != 1 {
			t.Errorf("node %d has %d tokens, want 1", i, n)
		}
	}
}

// A tenant sees nothing of another: every request about the other's sessions fails as if they did not
// exist, and it cannot create a token that sees more.
func TestTenantsSeeOnlyTheirOwn(t *testing.T) {
	t.Parallel()
	f := newFace(t, place(t)())
	operator, alice, bob := f.token("operator"), f.token("acme/alice"), f.token("other/bob")
	create := func(secret, title string) string {
		t.Helper()
		code, body := f.call(secret, "POST", "/v1/sessions", map[string]any{"title": title, "prompt": "secret-" + title})
		var made struct{ ID string }
		if err := json.Unmarshal([]byte(body), &made); err != nil || code != http.StatusOK || made.ID == "" {
			t.Fatalf("create: %d %s", code, body)
		}
		return made.ID
	}
	hers, his, nobodys := create(alice, "alices"), create(bob, "bobs"), create(operator, "operators")
	code, body := f.call(bob, "POST", "/v1/schedules", map[string]any{"session": his, "prompt": "secret-schedule", "cron": "0 0 1 1 *"})
	var schedule struct{ ID string }
	if err := json.Unmarshal([]byte(body), &schedule); err != nil || code != http.StatusOK {
		t.Fatalf("schedule: %d %s", code, body)
	}
	var theirs serve.Token
	for _, x := range f.s.Tokens() {
		if x.Name == "other/bob" {
			theirs = x
		}
	}
	uuid := "11111111-1111-4111-8111-111111111111"
	for _, id := range []string{his, nobodys} {
		for _, x := range []struct {
			method, path string
			in           any
		}{
			{"GET", "/v1/sessions/" + id, nil},
			{"PATCH", "/v1/sessions/" + id, map[string]any{"title": "mine"}},
			{"PATCH", "/v1/sessions/" + id, map[string]any{"archived": true}},
			{"DELETE", "/v1/sessions/" + id, nil},
			{"POST", "/v1/sessions/" + id + "/fork", map[string]any{}},
			{"POST", "/v1/sessions/" + id + "/prompts", map[string]any{"text": "hello"}},
			{"DELETE", "/v1/sessions/" + id + "/prompts/" + uuid, nil},
			{"POST", "/v1/sessions/" + id + "/interrupt", map[string]any{}},
			{"POST", "/v1/sessions/" + id + "/stop", map[string]any{}},
			{"POST", "/v1/sessions/" + id + "/rewind", map[string]any{"to": uuid}},
			{"POST", "/v1/sessions/" + id + "/control", map[string]any{"request": map[string]string{"subtype": "get_settings"}}},
			{"POST", "/v1/sessions/" + id + "/control", map[string]any{"request": map[string]string{"subtype": "set_model", "model": "x"}}},
			{"GET", "/v1/sessions/" + id + "/entries", nil},
			{"GET", "/v1/sessions/" + id + "/events", nil},
			{"GET", "/v1/sessions/" + id + "/approvals", nil},
			{"POST", "/v1/sessions/" + id + "/approvals/x", map[string]any{"allow": true, "shown": "x"}},
			{"POST", "/v1/sessions/" + id + "/rules", map[string]any{}},
			{"DELETE", "/v1/sessions/" + id + "/worktree", nil},
			{"POST", "/v1/schedules", map[string]any{"session": id, "prompt": "x", "cron": "0 0 1 1 *"}},
			{"DELETE", "/v1/schedules/" + schedule.ID, nil},
			{"DELETE", "/v1/tokens/" + theirs.ID, nil},
			{"POST", "/v1/tokens", map[string]any{"name": "other/me", "scope": "admin"}},
			{"POST", "/v1/tokens", map[string]any{"name": "operator2", "scope": "admin"}},
			{"POST", "/v1/tokens", map[string]any{"name": "/operator2", "scope": "admin"}},
		} {
			if code, body := f.call(alice, x.method, x.path, x.in); code != http.StatusNotFound && code != http.StatusForbidden || strings.Contains(body, "secret-") || strings.Contains(body, "bobs") {
				t.Errorf("%s %s as another tenant: %d %s", x.method, x.path, code, body)
			}
		}
	}
	for _, path := range []string{"/v1/sessions", "/v1/sessions?q=secret-bobs", "/v1/approvals", "/v1/schedules", "/v1/tokens", "/v1/costs", "/v1/worktrees"} {
		code, body := f.call(alice, "GET", path, nil)
		if code != http.StatusOK || strings.Contains(body, his) || strings.Contains(body, nobodys) || strings.Contains(body, "bob") {
			t.Errorf("%s shows: %d %s", path, code, body)
		}
	}
	if code, body := f.call(alice, "GET", "/v1/audit", nil); code != http.StatusOK || strings.Contains(body, `"by":"other/bob"`) || strings.Contains(body, `"by":"operator"`) || !strings.Contains(body, `"by":"acme/alice"`) {
		t.Errorf("the audit log shows: %d %s", code, body)
	}
	if code, body := f.call(alice, "GET", "/v1/sessions", nil); code != http.StatusOK || !strings.Contains(body, hers) {
		t.Errorf("its own session: %d %s", code, body)
	}
	if code, body := f.call(alice, "POST", "/v1/tokens", map[string]any{"name": "acme/phone", "scope": "view"}); code != http.StatusOK {
		t.Errorf("a token of its own: %d %s", code, body)
	}
	if _, body := f.call(operator, "GET", "/v1/sessions", nil); !strings.Contains(body, hers) || !strings.Contains(body, his) {
		t.Errorf("the operator sees all: %s", body)
	}
	// The stream of all sessions starts with the list, and continues with changes.
	watching := make(chan hub.Info, 16)
	by := hub.Actor{Name: "acme/alice", Rights: hub.MayView}
	h := newCrew(t, place(t)(), 0, "").hub
	go func() {
		for i, err := range h.Watch(t.Context(), by) {
			if err != nil {
				return
			}
			watching <- i
		}
	}()
	for _, name := range []string{"other/bob", "acme/alice"} {
		s, err := h.Create(t.Context(), hub.Actor{Name: name, Rights: hub.Everything}, hub.Spec{Title: name})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.State(t.Context(), by); (err == nil) != (name == "acme/alice") {
			t.Errorf("the state of a session of %s: %v", name, err)
		}
	}
	if i := <-watching; i.State.Title != "acme/alice" {
		t.Errorf("it sees changes of %q", i.State.Title)
	}
}
