package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/parleytest"
)

// A collector receives telemetry.
type collector struct {
	*httptest.Server
	mu   sync.Mutex
	sent map[string]*bytes.Buffer // received data, by path
}

func newCollector(t *testing.T) *collector {
	c := &collector{sent: map[string]*bytes.Buffer{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.sent[r.URL.Path] == nil {
			c.sent[r.URL.Path] = &bytes.Buffer{}
		}
		io.Copy(c.sent[r.URL.Path], r.Body)
	}))
	t.Cleanup(c.Close)
	return c
}

type collected struct {
	TraceID, SpanID, ParentSpanID, Name string
	attributes                          map[string]bool
}

// spans returns the received spans, by their names.
func (c *collector) spans(t *testing.T) map[string]collected {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string]collected{}
	if c.sent["/v1/traces"] == nil {
		return found
	}
	d := json.NewDecoder(c.sent["/v1/traces"])
	for d.More() {
		var doc struct {
			ResourceSpans []struct {
				ScopeSpans []struct {
					Spans []struct {
						collected
						Attributes []struct{ Key string }
					}
				}
			}
		}
		if err := d.Decode(&doc); err != nil {
			t.Fatal(err)
		}
		for _, r := range doc.ResourceSpans {
			for _, s := range r.ScopeSpans {
				for _, span := range s.Spans {
					span.attributes = map[string]bool{}
					for _, a := range span.Attributes {
						span.attributes[a.Key] = true
					}
					found[span.Name] = span.collected
				}
			}
		}
	}
	return found
}

// TestExportTelemetry runs the command with a collector: traces and metrics by the
// conventions for generative AI, in the trace of the process that started it.
func TestExportTelemetry(t *testing.T) {
	script := filepath.Join(t.TempDir(), "hello.script")
	if err := os.WriteFile(script, []byte("turn\n\tcall Bash {\"command\":\"true\"}\nturn\n\tsay Hello.\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for name, c := range map[string]struct {
		env  func(url string) []string
		want string // on stderr
		sent bool
	}{
		"sent":    {func(url string) []string { return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + url} }, "", true},
		"refused": {func(string) []string { return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=nowhere"} }, "Warning: no telemetry is sent: OTEL_EXPORTER_OTLP_ENDPOINT is \"nowhere\"", false},
		"off":     {func(string) []string { return nil }, "", false},
		"disabled": {func(url string) []string {
			return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + url, "OTEL_SDK_DISABLED=true"}
		}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := newCollector(t)
			var stdout, stderr bytes.Buffer
			p := &process{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr, env: append(c.env(got.URL), "HOME="+t.TempDir(), "PATH="+os.Getenv("PATH"), "TRACEPARENT=00-"+trace+"-"+parent+"-01")}
			if code := run(t.Context(), p, []string{"-p", "hi", "--provider", "script", "--script", script, "--no-session-persistence", "--allowedTools", "Bash"}); code != 0 {
				t.Fatalf("exit %d: %s%s", code, stdout.String(), stderr.String())
			}
			if stdout.String() != "Hello.\n" || !strings.Contains(stderr.String(), c.want) {
				t.Errorf("stdout %q, stderr %q", stdout.String(), stderr.String())
			}
			if !c.sent {
				if len(got.sent) != 0 {
					t.Errorf("%d kinds of telemetry were sent", len(got.sent))
				}
				return
			}
			metrics := ""
			if b := got.sent["/v1/metrics"]; b != nil {
				metrics = b.String()
			}
			for _, want := range []string{`"gen_ai.client.operation.duration"`, `"gen_ai.client.token.usage"`, `"gen_ai.token.type"`, `"gen_ai.operation.name"`, `"gen_ai.provider.name"`} {
				if !strings.Contains(metrics, want) {
					t.Errorf("no %s in %s", want, metrics)
				}
			}
			spans := got.spans(t)
			turn := spans["invoke_agent"]
			if turn.TraceID != trace || turn.ParentSpanID != parent || !turn.attributes["gen_ai.conversation.id"] || !turn.attributes["gen_ai.usage.input_tokens"] {
				t.Errorf("turn %+v", turn)
			}
			chat, tool := collected{}, spans["execute_tool Bash"]
			for name, s := range spans {
				if strings.HasPrefix(name, "chat ") {
					chat = s
				}
			}
			for _, key := range []string{"gen_ai.operation.name", "gen_ai.request.model", "gen_ai.response.model", "gen_ai.usage.output_tokens", "gen_ai.response.finish_reasons"} {
				if !chat.attributes[key] {
					t.Errorf("a request does not tell %s: %v", key, chat.attributes)
				}
			}
			if !tool.attributes["gen_ai.tool.name"] || !tool.attributes["gen_ai.tool.call.id"] {
				t.Errorf("tool %+v", tool)
			}
			for _, s := range []collected{chat, tool} {
				if s.TraceID != trace || s.ParentSpanID != turn.SpanID {
					t.Errorf("%+v is not in the turn %+v", s, turn)
				}
			}
		})
	}
}

// TestOneTrace lets the SDK drive the command as a process: the telemetry of both is
// one trace, with the agent's turn in the SDK's.
func TestOneTrace(t *testing.T) {
	exe, err := exec.LookPath("parley")
	if err != nil {
		t.Fatal(err)
	}
	got := newCollector(t)
	api := parleytest.NewAPI(t, parleytest.Script(parleytest.Say("Hello.")), nil)
	ours := tracetest.NewInMemoryExporter()
	traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(ours))
	defer traces.Shutdown(context.Background())
	dir := t.TempDir()
	_, err = parley.Run(t.Context(), "hi", &parley.Options{
		Path: exe, Cwd: dir, Model: "claude-sonnet-4-5", SettingSources: []string{}, Traces: traces,
		Env: map[string]string{"HOME": dir, "GORACE": "atexit_sleep_ms=0", "ANTHROPIC_BASE_URL": api.URL, "ANTHROPIC_API_KEY": "sk-ant-fake-test-key", "OTEL_EXPORTER_OTLP_ENDPOINT": got.URL},
	})
	if err != nil {
		t.Fatal(err)
	}
	list := ours.GetSpans()
	if len(list) != 1 {
		t.Fatalf("%d spans of the SDK", len(list))
	}
	turn := got.spans(t)["invoke_agent"]
	if sdk := list[0].SpanContext; turn.TraceID != sdk.TraceID().String() || turn.ParentSpanID != sdk.SpanID().String() {
		t.Errorf("the agent's turn %+v is not in the SDK's %v %v", turn, sdk.TraceID(), sdk.SpanID())
	}
}
