package parley

import (
	"context"
	"slices"
	"strings"

	"github.com/parley-go/parley/internal/telemetry"
	"github.com/parley-go/parley/wire"
	"go.opentelemetry.io/otel/trace"
)

// observe starts the span of a turn. The caller passes every yielded message to see,
// and the error of the turn to end.
func (c *config) observe(ctx context.Context) (_ context.Context, see func(wire.Message), end func(error)) {
	ctx, span := c.telemetry.Turn(ctx, trace.SpanKindClient, "", c.model, c.agent)
	if span == nil {
		return ctx, func(wire.Message) {}, func(error) {}
	}
	failure := ""
	see = func(m wire.Message) {
		switch m := m.(type) {
		case *wire.Init:
			span.Conversation(m.SessionID)
		case *wire.Result:
			if o := m.Outcome(); o != wire.OutcomeCompleted {
				failure = o.String()
			}
			u := telemetry.UsageOf(m.Usage)
			u.Turns, u.CostUSD, u.StopReason = m.NumTurns, m.TotalCostUSD, m.StopReason
			span.Set(u)
		}
	}
	return ctx, see, func(err error) { span.End(err, failure) }
}

// handOn passes the span of ctx to the agent as the parent of its own. A variable of
// the options takes precedence; inherited variables belong to another trace.
func (c *config) handOn(ctx context.Context) {
	ours := telemetry.Environ(ctx)
	if len(ours) == 0 {
		return
	}
	env := slices.DeleteFunc(slices.Clone(c.spec.Env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		_, given := c.env[name]
		return !given && (name == "TRACEPARENT" || name == "TRACESTATE")
	})
	for _, v := range ours {
		name, _, _ := strings.Cut(v, "=")
		if _, given := c.env[name]; !given {
			env = append(env, v)
		}
	}
	c.spec.Env = env
}

// handleTraced runs the callback for a request inside a span.
func (s *session) handleTraced(ctx context.Context, m *wire.ControlRequest) (payload any, err error) {
	if parent := s.span.Load(); parent != nil {
		ctx = trace.ContextWithSpanContext(ctx, *parent)
	}
	if s.cfg.telemetry == nil || m.Request == nil {
		return s.handle(ctx, m)
	}
	what := m.Request.Subtype()
	switch req := m.Request.(type) {
	case *wire.CanUseTool:
		what += " " + req.ToolName
	case *wire.HookCallback:
		if req.Input != nil {
			what = "hook " + string(req.Input.Event())
		}
	case *wire.MCPMessage:
		what += " " + req.ServerName
	}
	ctx, span := s.cfg.telemetry.Callback(ctx, what)
	defer func() { span.End(err, "") }()
	return s.handle(ctx, m)
}

// under makes the span of ctx the parent of callback spans from now on.
func (s *session) under(ctx context.Context) {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		s.span.Store(&sc)
	}
}
