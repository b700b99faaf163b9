package serve_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parley-go/parley/serve"
)

// TestNotifications checks that people who are away learn that a session asks, and that
// its turn has ended.
func TestNotifications(t *testing.T) {
	posts := make(chan string, 10)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posts <- r.URL.Path + " " + r.Header.Get("X-Tags") + " " + r.Header.Get("X-Priority") + " " + string(body)
	}))
	defer hook.Close()
	webhook, err := serve.Webhook(hook.URL + "/topic")
	if err != nil {
		t.Fatal(err)
	}
	notices := make(chan serve.Notice, 10)
	file := ""
	r := newRig(t, writing(&file), func(c *serve.Config) {
		c.Notify = func(ctx context.Context, n serve.Notice) error {
			notices <- n
			return webhook(ctx, n)
		}
	})
	file = filepath.Join(r.dir, "a\u202etxt.b")
	id := r.create("Write it.")
	n := <-notices
	if n.Event != "ask" || n.Session != id || n.Ask == nil || !strings.Contains(n.Text, `a\u{202e}txt.b`) || !strings.HasPrefix(n.Link, r.url) {
		t.Fatalf("notice %+v", n)
	}
	if got, want := <-posts, "/topic ask high "+n.Text; got != want {
		t.Errorf("posted %q, want %q", got, want)
	}
	metrics := r.do(serve.ScopeView, "GET", "/metrics", nil).body
	for _, want := range []string{`parley_sessions{phase="requires_action"} 1`, "parley_approvals_open 1", "# TYPE parley_requests_total counter"} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s:\n%s", want, metrics)
		}
	}
	r.do(serve.ScopeApprove, "POST", "/v1/sessions/"+id+"/approvals/"+n.Ask.ID, map[string]string{"shown": n.Ask.Hash, "behavior": "deny"}).decode(t, &struct{}{})
	if n := <-notices; n.Event != "done" {
		t.Errorf("notice %+v", n)
	}
	for _, bad := range []string{"", "ntfy.sh/x", "file:///etc/passwd"} {
		if _, err := serve.Webhook(bad); err == nil {
			t.Errorf("%q is taken for a webhook", bad)
		}
	}
	if got := r.do("", "GET", "/healthz", nil); got.StatusCode != 200 || got.body != "ok" {
		t.Errorf("health: %s %s", got.Status, got.body)
	}
}
