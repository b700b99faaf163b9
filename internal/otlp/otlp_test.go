package otlp

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/parley-go/parley/internal/telemetry"
)

// A collector records the requests that it receives.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	bodies map[string][]byte
	header http.Header
}

func newCollector(t *testing.T, status int) *collector {
	c := &collector{bodies: map[string][]byte{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bodies[r.URL.Path], c.header = body, r.Header
		w.WriteHeader(status)
	}))
	t.Cleanup(c.Close)
	return c
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func TestExport(t *testing.T) {
	c := newCollector(t, 200)
	e, err := FromEnv(env("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL, "OTEL_EXPORTER_OTLP_HEADERS", "x-team=a%20b, x-other=1",
		"OTEL_SERVICE_NAME", "mine", "OTEL_RESOURCE_ATTRIBUTES", "deployment=test"), "1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	tel := telemetry.New(e.Traces, e.Metrics)
	ctx, turn := tel.Turn(context.Background(), trace.SpanKindInternal, "conversation", "m", "")
	_, chat := tel.Chat(ctx, "anthropic", "m", "conversation")
	u := telemetry.Usage{Model: "m-1", StopReason: "end_turn", Input: 100, Output: 7, CostUSD: 0.5}
	chat.Set(u)
	chat.Count(u)
	chat.End(nil, "")
	turn.End(errors.New("it broke"), "")
	if err := e.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	var traces struct {
		ResourceSpans []struct {
			Resource   struct{ Attributes []struct{ Key string } }
			ScopeSpans []struct {
				Spans []struct {
					TraceID, SpanID, ParentSpanID, Name, StartTimeUnixNano string
					Kind                                                   int
					Status                                                 struct {
						Code    int
						Message string
					}
					Attributes []struct {
						Key   string
						Value map[string]any
					}
				}
			}
		}
	}
	if err := json.Unmarshal(c.bodies["/v1/traces"], &traces); err != nil {
		t.Fatalf("%v: %s", err, c.bodies["/v1/traces"])
	}
	spans := traces.ResourceSpans[0].ScopeSpans[0].Spans
	if len(spans) != 2 || spans[0].Name != "chat m" || spans[0].Kind != 3 || spans[0].ParentSpanID != spans[1].SpanID || len(spans[0].TraceID) != 32 {
		t.Errorf("spans %+v", spans)
	}
	if spans[1].Status.Code != 2 || spans[1].Status.Message != "it broke" || spans[0].Status.Code != 0 {
		t.Errorf("status %+v", spans)
	}
	values := map[string]map[string]any{}
	for _, a := range spans[0].Attributes {
		values[a.Key] = a.Value
	}
	if values["gen_ai.usage.input_tokens"]["intValue"] != "100" || values["parley.cost_usd"]["doubleValue"] != 0.5 || values["gen_ai.provider.name"]["stringValue"] != "anthropic" {
		t.Errorf("attributes %v", values)
	}
	metrics := string(c.bodies["/v1/metrics"])
	for _, want := range []string{`"gen_ai.client.token.usage"`, `"gen_ai.client.operation.duration"`, `"sum":100`, `"stringValue":"mine"`, `"key":"deployment"`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in %s", want, metrics)
		}
	}
	if c.header.Get("x-team") != "a b" || c.header.Get("x-other") != "1" {
		t.Errorf("headers %v", c.header)
	}
}

func TestNotConfigured(t *testing.T) {
	for _, vars := range [][]string{
		{},
		{"OTEL_SDK_DISABLED", "true", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:1"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:1", "OTEL_TRACES_EXPORTER", "none", "OTEL_METRICS_EXPORTER", "none"},
	} {
		if e, err := FromEnv(env(vars...), ""); e != nil || err != nil {
			t.Errorf("%v: %v, %v", vars, e, err)
		}
	}
}

func TestOneSignal(t *testing.T) {
	e, err := FromEnv(env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://localhost:1/here"), "")
	if err != nil || e.Traces == nil || e.Metrics != nil {
		t.Fatalf("%+v, %v", e, err)
	}
	if got, _ := endpoint(env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://localhost:1/here"), "TRACES"); got.url != "http://localhost:1/here" {
		t.Errorf("sent to %s", got.url)
	}
	e.Shutdown(t.Context())
}

func TestBadConfiguration(t *testing.T) {
	for want, vars := range map[string][]string{
		"want an address":    {"OTEL_EXPORTER_OTLP_ENDPOINT", "localhost"},
		"want milliseconds":  {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://x", "OTEL_EXPORTER_OTLP_TIMEOUT", "soon"},
		"HTTP only":          {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
		"not key=value":      {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://x", "OTEL_EXPORTER_OTLP_HEADERS", "secret"},
		"only otlp and none": {"OTEL_TRACES_EXPORTER", "zipkin"},
	} {
		if _, err := FromEnv(env(vars...), ""); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v", vars, err)
		}
	}
}

// A collector that fails or hangs costs its time limit, and is reported.
func TestBadCollector(t *testing.T) {
	failing := newCollector(t, 503)
	hanging := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}))
	defer hanging.Close()
	for _, address := range []string{failing.URL, hanging.URL} {
		e, err := FromEnv(env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", address, "OTEL_EXPORTER_OTLP_TIMEOUT", "200"), "")
		if err != nil {
			t.Fatal(err)
		}
		_, span := telemetry.New(e.Traces, nil).Turn(t.Context(), trace.SpanKindInternal, "", "", "")
		span.End(nil, "")
		e.Shutdown(t.Context())
	}
}
