package parley_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/parleytest/parrot"
	"github.com/parley-go/parley/parleytest/peer"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// recording returns a provider and its recorded spans.
func recording(t *testing.T) (*sdktrace.TracerProvider, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	p := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	t.Cleanup(func() { p.Shutdown(context.Background()) })
	return p, spans
}

// TestTelemetry checks the telemetry of a query: a span for the turn and one for each
// callback, in the trace of the caller, which is passed to the agent.
func TestTelemetry(t *testing.T) {
	traces, spans := recording(t)
	reader := sdkmetric.NewManualReader()
	metrics := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	defer metrics.Shutdown(t.Context())
	var env []string
	agent := peer.AgentDialer(parrot.Agent{})
	var asked trace.SpanContext
	opts := &parley.Options{
		Traces:  traces,
		Metrics: metrics,
		Model:   "claude-fake-1",
		Env:     map[string]string{"TRACESTATE": "mine=1"},
		Dialer: transport.DialerFunc(func(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
			env = spec.Env
			return agent.Dial(ctx, spec)
		}),
	}
	t.Setenv("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01") // a stale one
	opts.CanUseTool = func(ctx context.Context, _ *wire.CanUseTool) (*wire.PermissionResult, error) {
		asked = trace.SpanContextFromContext(ctx)
		return parley.Allow(), nil
	}
	ctx, root := traces.Tracer("test").Start(t.Context(), "root")
	if _, err := parley.Run(ctx, "permissions 2", opts); err != nil {
		t.Fatal(err)
	}
	root.End()

	got := spans.GetSpans()
	find := func(name string) tracetest.SpanStub {
		t.Helper()
		i := slices.IndexFunc(got, func(s tracetest.SpanStub) bool { return strings.HasPrefix(s.Name, name) })
		if i < 0 {
			t.Fatalf("no span %q in %v", name, got)
		}
		return got[i]
	}
	turn, callback := find("invoke_agent"), find("can_use_tool ")
	if len(got) != 4 {
		t.Errorf("%d spans", len(got))
	}
	if turn.Parent.SpanID() != root.SpanContext().SpanID() || turn.SpanKind != trace.SpanKindClient {
		t.Errorf("the turn's parent is %v", turn.Parent)
	}
	if callback.Parent.SpanID() != turn.SpanContext.SpanID() || asked.TraceID() != root.SpanContext().TraceID() {
		t.Errorf("the callback's parent is %v", callback.Parent)
	}
	attrs := attribute.NewSet(turn.Attributes...)
	for _, name := range []string{"gen_ai.operation.name", "gen_ai.conversation.id", "gen_ai.request.model", "parley.turns"} {
		if _, ok := attrs.Value(attribute.Key(name)); !ok {
			t.Errorf("no %s", name)
		}
	}
	want := "TRACEPARENT=00-" + turn.SpanContext.TraceID().String() + "-" + turn.SpanContext.SpanID().String() + "-01"
	if !slices.Contains(env, want) || !slices.Contains(env, "TRACESTATE=mine=1") ||
		len(slices.DeleteFunc(slices.Clone(env), func(v string) bool { return !strings.HasPrefix(v, "TRACE") })) != 2 {
		t.Errorf("the agent's environment: %v, want %s", env, want)
	}
	var measured metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &measured); err != nil {
		t.Fatal(err)
	}
	if len(measured.ScopeMetrics) != 1 || measured.ScopeMetrics[0].Metrics[0].Name != "gen_ai.client.operation.duration" {
		t.Errorf("measured %+v", measured)
	}
}

// TestTelemetryTurns checks that the turns of a client belong to the trace of the
// connection, or of the caller of the turn, and that a failure is reported.
func TestTelemetryTurns(t *testing.T) {
	traces, spans := recording(t)
	ctx, root := traces.Tracer("test").Start(t.Context(), "root")
	c, err := parley.Connect(ctx, &parley.Options{Traces: traces, Dialer: peer.AgentDialer(parrot.Agent{})})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	turn(t, c, "echo hi")
	other, span := traces.Tracer("test").Start(t.Context(), "other")
	for range c.Turn(other, "error it broke") {
	}
	span.End()
	root.End()
	got := spans.GetSpans()
	if len(got) != 4 {
		t.Fatalf("%d spans", len(got))
	}
	if got[0].Parent.SpanID() != root.SpanContext().SpanID() || got[0].Status.Code == codes.Error {
		t.Errorf("the first turn: %+v", got[0])
	}
	if got[1].Parent.SpanID() != span.SpanContext().SpanID() || got[1].Status.Code != codes.Error {
		t.Errorf("the second turn: %+v", got[1])
	}
}

// TestNoTelemetry checks that a span in the context is passed on even if there is no
// telemetry, and that without one nothing changes.
func TestNoTelemetry(t *testing.T) {
	t.Setenv("TRACEPARENT", "inherited")
	for _, valid := range []bool{false, true} {
		ctx, want := t.Context(), "TRACEPARENT=inherited"
		if valid {
			ctx = trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}}))
			want = "TRACEPARENT=00-01000000000000000000000000000000-0200000000000000-00"
		}
		var env []string
		opts := &parley.Options{Dialer: transport.DialerFunc(func(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
			env = spec.Env
			return peer.AgentDialer(parrot.Agent{}).Dial(ctx, spec)
		})}
		if _, err := parley.Run(ctx, "echo hi", opts); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %v", want, env)
		}
	}
}
