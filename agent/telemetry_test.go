package agent_test

import (
	"context"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// TestTelemetry checks that both halves tell one trace: the turn of the SDK, in it the
// turn of the agent, in that its requests and tools; and that what was said is in none
// of it.
func TestTelemetry(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	defer traces.Shutdown(context.Background())
	script := parleytest.Script(
		parleytest.Call("Bash", map[string]string{"command": "echo secret words; exit 3"}),
		parleytest.Say("secret words"),
	)
	opts := &parley.Options{
		Cwd:            t.TempDir(),
		PermissionMode: wire.ModeBypassPermissions,
		AllowBypass:    true,
		Traces:         traces,
		Dialer:         agent.InProcess(agent.Config{Model: script.Model(), Traces: traces}),
	}
	if _, err := parley.Run(t.Context(), "secret words", opts); err != nil {
		t.Fatal(err)
	}
	byName := map[string][]tracetest.SpanStub{}
	for _, s := range spans.GetSpans() {
		name, _, _ := strings.Cut(s.Name, " ")
		byName[name] = append(byName[name], s)
		for _, a := range s.Attributes {
			if strings.Contains(a.Value.String(), "secret") {
				t.Errorf("%s tells %s=%s", s.Name, a.Key, a.Value.String())
			}
		}
	}
	turns := byName["invoke_agent"]
	if len(turns) != 2 || turns[0].Parent.SpanID() != turns[1].SpanContext.SpanID() || turns[1].SpanKind != trace.SpanKindClient {
		t.Fatalf("turns %+v", turns)
	}
	if n := len(byName["chat"]); n != 2 {
		t.Errorf("%d requests", n)
	}
	tools := byName["execute_tool"]
	if len(tools) != 1 || tools[0].Name != "execute_tool Bash" || tools[0].Status.Code != codes.Error {
		t.Errorf("tools %+v", tools)
	}
	for _, s := range append(byName["chat"], tools...) {
		if s.Parent.SpanID() != turns[0].SpanContext.SpanID() {
			t.Errorf("%s is not in the agent's turn", s.Name)
		}
	}
}
