package engine

import (
	"errors"
	"strconv"

	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/internal/telemetry"
	"github.com/parley-go/parley/wire"
)

// endSpan ends the span of a turn with its result.
func (t *turn) endSpan(r *wire.Result) {
	u := telemetry.UsageOf(r.Usage)
	u.Turns, u.CostUSD, u.StopReason = r.NumTurns, r.TotalCostUSD, r.StopReason
	t.span.Set(u)
	failure := ""
	if o := r.Outcome(); o != wire.OutcomeCompleted {
		failure = o.String()
	}
	t.span.End(nil, failure)
}

// endSpan ends the span of the request that returned the answer.
func (a *answer) endSpan(span *telemetry.Span, err error) {
	if a.started {
		u := telemetry.UsageOf(&a.usage)
		u.Model, u.ID, u.StopReason = a.model, a.id, a.stopReason
		span.Set(u)
		span.Count(u)
	}
	kind := ""
	var failed *model.Error
	if errors.As(err, &failed) {
		if kind = failed.Type; kind == "" {
			kind = strconv.Itoa(failed.Status)
		}
	}
	span.End(err, kind)
}
