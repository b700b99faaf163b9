package agent_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// TestTelemetry checks that both halves export one trace: the turn of the SDK, in it the turn of the
// agent, in that its requests and tools; and that it contains no text of the conversation.
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

// TestTelemetryOfSubagents checks that the turn of a subagent is exported with the subagent's name,
// as part of the call that started it, whether or not that call waits for it.
func TestTelemetryOfSubagents(t *testing.T) {
	for _, background := range []bool{false, true} {
		spans := tracetest.NewInMemoryExporter()
		traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
		defer traces.Shutdown(context.Background())
		script := parleytest.Script(
			parleytest.Call("Agent", map[string]any{"description": "look", "prompt": "SUB", "subagent_type": "Explore", "run_in_background": background}),
		).Default(parleytest.Say("Done."))
		script.When("sub", parleytest.FirstUser("SUB"), parleytest.Say("Seen."))
		opts := &parley.Options{Cwd: t.TempDir(), Dialer: agent.InProcess(agent.Config{Model: script.Model(), Traces: traces})}
		for _, err := range parley.Query(t.Context(), "hi", opts) {
			if err != nil {
				t.Fatal(err)
			}
		}
		byName := map[string]tracetest.SpanStub{}
		for _, s := range spans.GetSpans() {
			byName[s.Name] = s
		}
		call, sub := byName["execute_tool Agent"], byName["invoke_agent Explore"]
		if !sub.SpanContext.IsValid() || !call.Parent.IsValid() || sub.Parent.SpanID() != call.SpanContext.SpanID() || sub.SpanContext.TraceID() != call.SpanContext.TraceID() {
			t.Errorf("background %v: the subagent %+v is not in its call %+v", background, sub, call)
		}
		if !slices.ContainsFunc(sub.Attributes, func(a attribute.KeyValue) bool {
			return a.Key == "gen_ai.agent.name" && a.Value.AsString() == "Explore"
		}) {
			t.Error(sub.Attributes)
		}
	}
}
