// Package telemetry reports the work of both ends to OpenTelemetry, following its
// conventions for generative AI: a span for a turn ("invoke_agent"), below it one for
// each request to a model ("chat") and each tool ("execute_tool"), and histograms of
// durations and tokens. It never includes the text of prompts and answers.
//
// A nil [*Telemetry] and a nil [*Span] do nothing, at no cost. The package uses only
// the API of OpenTelemetry: the caller provides the SDK and the exporter. It does not
// read the environment; [Extract] receives one.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/parley-go/parley/wire"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const scope = "github.com/parley-go/parley"

// Telemetry receives spans and measurements.
type Telemetry struct {
	tracer   trace.Tracer // nil if there are no traces
	duration metric.Float64Histogram
	tokens   metric.Int64Histogram
}

// New returns nil if both providers are nil. An instrument that cannot be created is
// left out.
func New(traces trace.TracerProvider, metrics metric.MeterProvider) *Telemetry {
	if traces == nil && metrics == nil {
		return nil
	}
	t := &Telemetry{}
	if traces != nil {
		t.tracer = traces.Tracer(scope)
	}
	if metrics != nil {
		m := metrics.Meter(scope)
		if h, err := m.Float64Histogram("gen_ai.client.operation.duration", metric.WithUnit("s"),
			metric.WithDescription("How long turns, requests to models and tools take."),
			metric.WithExplicitBucketBoundaries(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)); err == nil {
			t.duration = h
		}
		if h, err := m.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"),
			metric.WithDescription("How many tokens requests to models take."),
			metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304)); err == nil {
			t.tokens = h
		}
	}
	return t
}

// A Span is one operation in progress.
type Span struct {
	t     *Telemetry
	ctx   context.Context
	span  trace.Span // nil if there are no traces
	begun time.Time
	attrs []attribute.KeyValue // of the measurements
}

// start starts a span. The low attributes have few enough values to be used in
// measurements.
func (t *Telemetry) start(ctx context.Context, name string, kind trace.SpanKind, low, more []attribute.KeyValue) (context.Context, *Span) {
	s := &Span{t: t, begun: time.Now(), attrs: low}
	if t.tracer != nil {
		ctx, s.span = t.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(low...), trace.WithAttributes(more...))
	}
	s.ctx = ctx
	return ctx, s
}

func attributes(pairs ...string) []attribute.KeyValue {
	var list []attribute.KeyValue
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			list = append(list, attribute.String(pairs[i], pairs[i+1]))
		}
	}
	return list
}

// Turn starts the span of a turn. Unknown names are empty.
func (t *Telemetry) Turn(ctx context.Context, kind trace.SpanKind, conversation, model, agent string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	return t.start(ctx, strings.TrimSpace("invoke_agent "+agent), kind,
		attributes("gen_ai.operation.name", "invoke_agent", "gen_ai.request.model", model),
		attributes("gen_ai.conversation.id", conversation, "gen_ai.agent.name", agent))
}

// Chat starts the span of a request to a model.
func (t *Telemetry) Chat(ctx context.Context, provider, model, conversation string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	return t.start(ctx, "chat "+model, trace.SpanKindClient,
		attributes("gen_ai.operation.name", "chat", "gen_ai.provider.name", provider, "gen_ai.request.model", model),
		attributes("gen_ai.conversation.id", conversation))
}

// Tool starts the span of a tool call.
func (t *Telemetry) Tool(ctx context.Context, name, id string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	return t.start(ctx, "execute_tool "+name, trace.SpanKindInternal,
		attributes("gen_ai.operation.name", "execute_tool", "gen_ai.tool.name", name),
		attributes("gen_ai.tool.call.id", id))
}

// Callback starts the span of a request to the host, such as a permission or a hook.
func (t *Telemetry) Callback(ctx context.Context, what string) (context.Context, *Span) {
	if t == nil {
		return ctx, nil
	}
	return t.start(ctx, what, trace.SpanKindInternal, attributes("gen_ai.operation.name", what), nil)
}

// Usage is the usage of a request.
type Usage struct {
	Model, ID, StopReason    string // of the answer
	Input, Output            int64  // Input includes tokens read from a cache
	CacheRead, CacheCreation int64
	CostUSD                  float64 // 0 if unknown
	Turns                    int
}

// UsageOf converts the API's usage of a request or a turn; nil means none.
func UsageOf(u *wire.Usage) Usage {
	if u == nil {
		return Usage{}
	}
	return Usage{
		Input:         u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens,
		Output:        u.OutputTokens,
		CacheRead:     u.CacheReadInputTokens,
		CacheCreation: u.CacheCreationInputTokens,
	}
}

// Set adds the usage once it is known.
func (s *Span) Set(u Usage) {
	if s == nil {
		return
	}
	if s.span != nil {
		list := attributes("gen_ai.response.model", u.Model, "gen_ai.response.id", u.ID)
		if u.StopReason != "" {
			list = append(list, attribute.StringSlice("gen_ai.response.finish_reasons", []string{u.StopReason}))
		}
		for name, n := range map[string]int64{
			"gen_ai.usage.input_tokens": u.Input, "gen_ai.usage.output_tokens": u.Output,
			"gen_ai.usage.cache_read.input_tokens": u.CacheRead, "gen_ai.usage.cache_creation.input_tokens": u.CacheCreation,
			"parley.turns": int64(u.Turns),
		} {
			if n != 0 {
				list = append(list, attribute.Int64(name, n))
			}
		}
		if u.CostUSD != 0 {
			list = append(list, attribute.Float64("parley.cost_usd", u.CostUSD))
		}
		s.span.SetAttributes(list...)
	}
}

// Count adds the tokens of a request to the histogram. The tokens of a turn are the
// sum of its requests, and must not be counted again.
func (s *Span) Count(u Usage) {
	if s == nil || s.t.tokens == nil {
		return
	}
	for kind, n := range map[string]int64{"input": u.Input, "output": u.Output} {
		s.t.tokens.Record(s.ctx, n, metric.WithAttributes(s.attrs...), metric.WithAttributes(attribute.String("gen_ai.token.type", kind)))
	}
}

// Conversation sets the id of the conversation once it is known.
func (s *Span) Conversation(id string) {
	if s != nil && s.span != nil && id != "" {
		s.span.SetAttributes(attribute.String("gen_ai.conversation.id", id))
	}
}

// End ends the span. kind is the type of failure; empty if err is nil or implies it.
func (s *Span) End(err error, kind string) {
	if s == nil {
		return
	}
	if err != nil && kind == "" {
		kind = errorKind(err)
	}
	attrs := s.attrs
	if kind != "" {
		attrs = append(attrs[:len(attrs):len(attrs)], attribute.String("error.type", kind))
	}
	if s.t.duration != nil {
		s.t.duration.Record(s.ctx, time.Since(s.begun).Seconds(), metric.WithAttributes(attrs...))
	}
	if s.span == nil {
		return
	}
	if kind != "" {
		text := kind
		if err != nil {
			text = err.Error()
		}
		s.span.SetAttributes(attribute.String("error.type", kind))
		s.span.SetStatus(codes.Error, text)
	}
	s.span.End()
}

// errorKind returns the type of an error, of which there are few.
func errorKind(err error) string {
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return strings.TrimLeft(fmt.Sprintf("%T", err), "*")
}

// Environ returns the variables that pass the span of ctx to a process; none if there
// is no span.
func Environ(ctx context.Context) []string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return nil
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	list := []string{"TRACEPARENT=" + carrier["traceparent"]}
	if state := carrier["tracestate"]; state != "" {
		list = append(list, "TRACESTATE="+state)
	}
	return list
}

// Extract returns ctx with the span in the variables, if there is one and ctx has
// none.
func Extract(ctx context.Context, getenv func(string) string) context.Context {
	if trace.SpanContextFromContext(ctx).IsValid() {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
		"traceparent": getenv("TRACEPARENT"), "tracestate": getenv("TRACESTATE"),
	})
}
