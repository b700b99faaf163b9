package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/internal/ask"
	"github.com/parley-go/parley/engine/internal/ledger"
	"github.com/parley-go/parley/engine/model/catalog"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// requestType is the type of the record with the usage and cost of one request. It is
// not part of the conversation, so other readers skip it.
const requestType = "parley-request"

// money tracks the cost of requests.
type money struct {
	ledger      *ledger.Ledger
	spentBefore int64 // in nano-dollars, by earlier processes of the session
	maxBudget   int64 // see Config

	owe   func(*session.Entry) // queues a record for the session's log
	began time.Time            // when this process started the conversation
	now   func() time.Time
	agent string // id of the subagent that sends the requests, if any
}

// bookUsage enters the usage of a request, if it was answered, in the ledger and in the
// session's log. purpose is "answer", "summary" or "tool". Summaries count towards the
// cost of the turn, but not towards its usage.
func (c *money) bookUsage(a *answer, model, purpose string) {
	if !a.started {
		return
	}
	add := c.ledger.Add
	if purpose == "summary" {
		add = c.ledger.AddBeside
	}
	cost := add(a.requestID, model, &a.usage)
	f := fields("id", session.NewID(), "requestId", a.requestID, "model", model, "purpose", purpose, "usage", &a.usage, "costNanos", cost.Nanos)
	if cost.Unknown {
		f["costUnknown"] = mustJSON(true)
	}
	if c.agent != "" {
		f["agentType"] = mustJSON(c.agent)
	}
	c.owe(&session.Entry{Type: requestType, Fields: f})
}

// budgetSpent reports whether the budget is used up. The cost of earlier processes of the
// session does not count.
func (c *money) budgetSpent() bool {
	b := c.budget()
	return b.limit > 0 && b.ledger.Exceeds(b.limit)
}

// A budget limits the cost of requests, together with those of subagents and of the
// parent conversation.
type budget struct {
	ledger *ledger.Ledger
	limit  int64 // in nano-dollars; 0 means none
}

// budget returns the budget for requests. The cost of earlier processes of the session
// does not count.
func (c *money) budget() budget {
	if c.maxBudget <= 0 {
		return budget{ledger: c.ledger}
	}
	return budget{c.ledger, c.spentBefore + c.maxBudget}
}

// reserve waits until a request of the given size in bytes fits into the budget.
func (b budget) reserve(ctx context.Context, info catalog.Info, bytes int, limit int64) (release func(), err error) {
	if b.limit == 0 {
		return func() {}, nil
	}
	worst, _ := info.Cost(&wire.Usage{InputTokens: int64(bytes) / 3, OutputTokens: limit})
	release, ok := b.ledger.Wait(ctx, b.limit, worst)
	switch {
	case ok:
		return release, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, ask.ErrSpent
}

// Ledger returns the cost so far, in dollars and by model.
func (c *money) Ledger() (usd float64, models map[string]*wire.ModelUsage) {
	return c.ledger.TotalUSD(), c.ledger.ModelUsage()
}

// Times returns how long this process has run the conversation, and how long the
// session has waited for models.
func (c *money) Times() (total, api time.Duration) {
	return c.now().Sub(c.began), c.ledger.APITime()
}

// overBudget returns the ending of a turn that has used up the budget.
func (c *money) overBudget() *ending {
	return &ending{subtype: "error_max_budget_usd", reason: "budget_exhausted", isError: true,
		errors: []string{fmt.Sprintf("Reached maximum budget ($%s)", dollars(c.maxBudget))}}
}

// dollars formats nano-dollars as a decimal number.
func dollars(nano int64) string {
	s := fmt.Sprintf("%d.%09d", nano/1e9, nano%1e9)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
