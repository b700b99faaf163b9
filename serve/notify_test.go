package serve_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/parley-go/parley/serve"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
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

// TestMetricsOverOpenTelemetry checks that a collector receives the numbers of GET /metrics.
func TestMetricsOverOpenTelemetry(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	defer provider.Shutdown(context.Background())
	r := newRig(t, nil, func(c *serve.Config) { c.Metrics = provider })
	r.create("")
	r.create("")
	r.do("", "GET", "/v1/sessions", nil) // refused
	text := r.do(serve.ScopeView, "GET", "/metrics", nil).body
	var all metricdata.ResourceMetrics
	collect := func() map[string]int64 {
		t.Helper()
		all = metricdata.ResourceMetrics{}
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for _, s := range all.ScopeMetrics {
			for _, m := range s.Metrics {
				name, points := strings.ReplaceAll(m.Name, ".", "_"), []metricdata.DataPoint[int64]{}
				switch data := m.Data.(type) {
				case metricdata.Sum[int64]:
					if !data.IsMonotonic {
						t.Errorf("%s may fall", m.Name)
					}
					name, points = name+"_total", data.DataPoints
				case metricdata.Gauge[int64]:
					points = data.DataPoints
				}
				if m.Unit == "By" {
					name += "_bytes"
				}
				for _, p := range points {
					label := ""
					if v, ok := p.Attributes.Value("phase"); ok {
						label = `{phase="` + v.AsString() + `"}`
					}
					got[name+label] = p.Value
				}
			}
		}
		return got
	}
	got := collect()
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, ok := got[name]
		switch {
		case strings.HasPrefix(line, "#"):
		case !ok:
			t.Errorf("OpenTelemetry lacks %s: %v", name, got)
		case name != "parley_memory_bytes" && name != "parley_goroutines" && name != "parley_streams" && strconv.FormatInt(v, 10) != value:
			t.Errorf("%s is %d, want %s", name, v, value)
		}
	}
	if got[`parley_sessions{phase="idle"}`] != 2 || got["parley_requests_refused_total"] != 1 {
		t.Errorf("got %v", got)
	}
	r.server.Close()
	if got := collect(); len(got) != 0 {
		t.Errorf("a closed server exports %v", got)
	}
}
