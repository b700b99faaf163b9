package telemetry

import (
	"context"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// Without providers nothing happens, and nothing breaks.
func TestOff(t *testing.T) {
	tel := New(nil, nil)
	if tel != nil {
		t.Fatal("it is on")
	}
	for _, start := range []func(context.Context) (context.Context, *Span){
		func(ctx context.Context) (context.Context, *Span) {
			return tel.Turn(ctx, trace.SpanKindClient, "", "", "")
		},
		func(ctx context.Context) (context.Context, *Span) { return tel.Chat(ctx, "", "", "") },
		func(ctx context.Context) (context.Context, *Span) { return tel.Tool(ctx, "", "") },
		func(ctx context.Context) (context.Context, *Span) { return tel.Callback(ctx, "") },
	} {
		ctx, span := start(t.Context())
		if ctx != t.Context() || span != nil {
			t.Error("a span began")
		}
		span.Set(Usage{Input: 1})
		span.Count(Usage{Input: 1})
		span.Conversation("x")
		span.End(nil, "")
	}
	if n := testing.AllocsPerRun(100, func() {
		_, span := tel.Tool(t.Context(), "Bash", "id")
		span.End(nil, "")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestHandOn(t *testing.T) {
	sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: 1})
	list := Environ(trace.ContextWithSpanContext(t.Context(), sc))
	got := trace.SpanContextFromContext(Extract(t.Context(), func(name string) string {
		for _, v := range list {
			if len(v) > len(name) && v[:len(name)+1] == name+"=" {
				return v[len(name)+1:]
			}
		}
		return ""
	}))
	if fmt.Sprint(got.TraceID(), got.SpanID(), got.IsSampled()) != fmt.Sprint(sc.TraceID(), sc.SpanID(), true) {
		t.Errorf("%v became %v", sc, got)
	}
	for _, bad := range []string{"", "nonsense", "00-00-00-00", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"} {
		if ctx := Extract(t.Context(), func(string) string { return bad }); trace.SpanContextFromContext(ctx).IsValid() {
			t.Errorf("%q gave a span", bad)
		}
	}
}
