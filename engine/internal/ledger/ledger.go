// Package ledger keeps the money of one conversation, with its retries and all its
// subagents: what was used, by model and by turn, and what that costs in whole
// nano-dollars. It asks a catalog for prices and knows nothing else.
//
// A cost that is not known is not zero: it is left out of every sum, and the sums
// say so ([Ledger.Unknown]).
package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/model/catalog"
	"github.com/parley-go/parley/wire"
)

// The most that one request can have used; more is a mistake of the server, and
// would overflow.
const (
	mostTokens   = 1_000_000_000
	mostSearches = 1_000_000
)

// remembered is how many requests [Ledger.Cost] knows.
const remembered = 1024

// A Ledger is the ledger of a conversation. It is safe for concurrent use.
type Ledger struct {
	catalog *catalog.Catalog
	parent  *Ledger // whose subagent this one is of; nil if it is the conversation's

	mu       sync.Mutex
	total    int64 // of the session, in nano-dollars
	unknown  bool  // something was used whose price is not known
	reserved int64
	released chan struct{} // closed when something that was held is held no more; nil if nobody waits
	apiTime  time.Duration
	models   map[string]*account // of the session
	since    map[string]*account // of what no result has told yet
	usage    account             // of this turn, all models, without what is beside it
	spent    Amount              // in this turn
	costs    map[string]Amount
	recent   []string // the requests in costs, oldest first
}

// An Amount is what something costs.
type Amount struct {
	Nanos   int64 // nano-dollars; if Unknown, of that part whose price is known
	Unknown bool  // the price of a part is not known
}

// USD returns the amount in dollars.
func (a Amount) USD() float64 { return USD(a.Nanos) }

// USD returns nano-dollars in dollars. As long as it is less than a million
// dollars, [Nanos] returns the same nano-dollars.
func USD(nanos int64) float64 { return float64(nanos) / 1e9 }

// Nanos returns dollars in nano-dollars, rounded to the nearest.
func Nanos(usd float64) int64 {
	n := math.Round(usd * 1e9)
	switch {
	case !(n > 0):
		return 0
	case n >= math.MaxInt64:
		return math.MaxInt64
	}
	return int64(n)
}

// An account adds up what was used.
type account struct {
	input, output, read, write5m, write1h int64
	thinking, searches, fetches           int64
	cost                                  Amount
	tier, geo, speed                      string // as the API told last
}

// New returns an empty ledger that asks a catalog for prices.
func New(c *catalog.Catalog) *Ledger {
	return &Ledger{catalog: c, models: map[string]*account{}, since: map[string]*account{}, costs: map[string]Amount{}}
}

// Child returns the ledger of a subagent. Its entries are added to this ledger,
// too, and so to those above; budgets are those of the topmost.
func (l *Ledger) Child() *Ledger {
	c := New(l.catalog)
	c.parent = l
	return c
}

// Add books what one request used, under the model that it asked for, and returns
// what that costs. Every call counts: one request is added once, when its answer
// has ended, well or not. The id is for [Ledger.Cost], and may be empty.
func (l *Ledger) Add(requestID, model string, u *wire.Usage) Amount {
	return l.add(requestID, model, u, false)
}

// AddBeside is [Ledger.Add] for a request that is no part of what the conversation says,
// such as for a summary: [Ledger.TurnUsage] is without it, all costs are with it.
func (l *Ledger) AddBeside(requestID, model string, u *wire.Usage) Amount {
	return l.add(requestID, model, u, true)
}

func (l *Ledger) add(requestID, model string, u *wire.Usage, beside bool) Amount {
	if l.parent != nil {
		l.parent.add(requestID, model, u, true) // it has a usage of its own
	}
	a := read(u)
	info, _ := l.catalog.Resolve(model)
	clean := a.wire()
	clean.Speed, clean.InferenceGeo = u.Speed, u.InferenceGeo
	if nanos, ok := info.Cost(clean); ok {
		a.cost.Nanos = nanos
	} else {
		a.cost.Unknown = true
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.total = sum(l.total, a.cost.Nanos)
	l.unknown = l.unknown || a.cost.Unknown
	l.spent.Nanos = sum(l.spent.Nanos, a.cost.Nanos)
	l.spent.Unknown = l.spent.Unknown || a.cost.Unknown
	if !beside {
		l.usage.add(a)
	}
	for _, m := range []map[string]*account{l.models, l.since} {
		if m[model] == nil {
			m[model] = &account{}
		}
		m[model].add(a)
	}
	if requestID != "" {
		if _, ok := l.costs[requestID]; !ok {
			l.recent = append(l.recent, requestID)
		}
		l.costs[requestID] = a.cost
		if len(l.recent) > remembered {
			delete(l.costs, l.recent[0])
			l.recent = slices.Delete(l.recent, 0, 1)
		}
	}
	return a.cost
}

// Cost returns what a request costs, if it is one of the last thousand.
func (l *Ledger) Cost(requestID string) (Amount, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.costs[requestID]
	return a, ok
}

// AddAPITime adds to the time that the conversation waited for models.
func (l *Ledger) AddAPITime(d time.Duration) {
	if l.parent != nil {
		l.parent.AddAPITime(d)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.apiTime += max(d, 0)
}

// APITime returns how long the conversation waited for models, since the session
// began.
func (l *Ledger) APITime() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.apiTime
}

// BeginTurn begins a new turn: what [Ledger.TurnUsage] returns is empty again.
func (l *Ledger) BeginTurn() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.usage, l.spent = account{}, Amount{}
}

// Total returns the cost of the session.
func (l *Ledger) Total() Amount {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Amount{l.total, l.unknown}
}

// TotalUSD returns the cost of the session in dollars, without what is not known.
func (l *Ledger) TotalUSD() float64 { return l.Total().USD() }

// Unknown reports whether something was used whose price is not known.
func (l *Ledger) Unknown() bool { return l.Total().Unknown }

// Turn returns the cost of the turn, with its subagents.
func (l *Ledger) Turn() Amount {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spent
}

// Exceeds reports whether the session has cost a budget in nano-dollars, or more.
// Unknown prices do not count: a caller with a budget refuses models without a
// price.
func (l *Ledger) Exceeds(budget int64) bool {
	if l.parent != nil {
		return l.parent.Exceeds(budget)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total >= budget
}

// Reserve holds an amount of a budget, both in nano-dollars, for a call that is
// about to be made, until release is called, which can be done more than once. It
// reports false, and holds nothing, if the budget is spent, or would be with this
// and what else is held. A call is added before it is released.
func (l *Ledger) Reserve(budget, nanos int64) (release func(), ok bool) {
	if l.parent != nil {
		return l.parent.Reserve(budget, nanos)
	}
	nanos = max(nanos, 0)
	l.mu.Lock()
	defer l.mu.Unlock()
	held := sum(l.total, l.reserved)
	if l.total >= budget || sum(held, nanos) > budget {
		return func() {}, false
	}
	return l.hold(nanos), true
}

// hold holds an amount. The caller holds mu.
func (l *Ledger) hold(nanos int64) (release func()) {
	l.reserved = sum(l.reserved, nanos)
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.reserved -= nanos
		if l.released != nil {
			close(l.released)
			l.released = nil
		}
	})
}

// Wait is [Ledger.Reserve] for a call that may cost so much at most. If the budget
// is left but not enough of it, the call waits until it is the only one, so that
// all calls together exceed a budget by one call at most. It reports false if the
// budget is spent, or ctx ends.
func (l *Ledger) Wait(ctx context.Context, budget, nanos int64) (release func(), ok bool) {
	if l.parent != nil {
		return l.parent.Wait(ctx, budget, nanos)
	}
	nanos = min(max(nanos, 1), math.MaxInt64/1024)
	for {
		l.mu.Lock()
		if l.total >= budget {
			l.mu.Unlock()
			return func() {}, false
		}
		if l.reserved == 0 || sum(sum(l.total, l.reserved), nanos) <= budget {
			release = l.hold(nanos)
			l.mu.Unlock()
			return release, true
		}
		if l.released == nil {
			l.released = make(chan struct{})
		}
		released := l.released
		l.mu.Unlock()
		select {
		case <-released:
		case <-ctx.Done():
			return func() {}, false
		}
	}
}

// TurnUsage returns what the turn itself used, of all models, without what its
// subagents did.
func (l *Ledger) TurnUsage() *wire.Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.usage.wire()
}

// ModelUsage returns what the session used and cost, by model.
func (l *Ledger) ModelUsage() map[string]*wire.ModelUsage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.modelUsage(l.models)
}

// TakeModelUsage returns what was used and cost since it was called before, by model:
// for the result of a turn, also what subagents did between turns. All of them together
// are [Ledger.ModelUsage].
func (l *Ledger) TakeModelUsage() map[string]*wire.ModelUsage {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.modelUsage(l.since)
	l.since = map[string]*account{}
	return taken
}

func (l *Ledger) modelUsage(accounts map[string]*account) map[string]*wire.ModelUsage {
	out := make(map[string]*wire.ModelUsage, len(accounts))
	for name, a := range accounts {
		info, _ := l.catalog.Resolve(name)
		basis := "list"
		if a.cost.Unknown {
			basis = "unknown"
		}
		out[name] = &wire.ModelUsage{
			InputTokens: a.input, OutputTokens: a.output,
			CacheReadInputTokens: a.read, CacheCreationInputTokens: a.write5m + a.write1h,
			WebSearchRequests: a.searches, CostUSD: a.cost.USD(),
			ContextWindow: info.ContextWindow, MaxOutputTokens: info.DefaultOutput,
			ThinkingTokens: &a.thinking, Ephemeral5mInputTokens: &a.write5m, Ephemeral1hInputTokens: &a.write1h,
			CanonicalModel: info.Canonical, Provider: "firstParty", CostBasis: basis,
		}
		detach(out[name])
	}
	return out
}

// detach gives a use numbers of its own.
func detach(m *wire.ModelUsage) {
	for _, p := range []**int64{&m.ThinkingTokens, &m.Ephemeral5mInputTokens, &m.Ephemeral1hInputTokens} {
		n := **p
		*p = &n
	}
}

// State returns the ledger as the fields of a cost-state record of the session.
func (l *Ledger) State() map[string]json.RawMessage {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]json.RawMessage{}
	put := func(name string, v any) {
		data, err := json.Marshal(v)
		if err != nil {
			panic(err) // numbers, strings and maps of them
		}
		out[name] = data
	}
	put("totalCostUSD", USD(l.total))
	put("totalAPIDuration", l.apiTime.Milliseconds())
	put("modelUsage", l.modelUsage(l.models))
	put("hasUnknownModelCost", l.unknown)
	return out
}

// Restore sets the ledger to what a cost-state record says, ours or that of the
// official CLI. The turn is empty afterwards. If there is an error, the ledger has
// not changed.
func (l *Ledger) Restore(fields map[string]json.RawMessage) error {
	var total *float64
	var duration float64
	var unknown bool
	var usage map[string]*wire.ModelUsage
	for name, to := range map[string]any{
		"totalCostUSD": &total, "totalAPIDuration": &duration, "modelUsage": &usage, "hasUnknownModelCost": &unknown,
	} {
		if raw := fields[name]; raw != nil {
			if err := json.Unmarshal(raw, to); err != nil {
				return fmt.Errorf("ledger: %s of the session's cost: %w", name, err)
			}
		}
	}
	models := map[string]*account{}
	var parts int64
	for name, u := range usage {
		if u == nil {
			return errors.New("ledger: modelUsage of the session's cost has a null")
		}
		a := &account{
			input: count(u.InputTokens), output: count(u.OutputTokens), read: count(u.CacheReadInputTokens),
			write5m: count(u.CacheCreationInputTokens), searches: count(u.WebSearchRequests),
			cost: Amount{Nanos(u.CostUSD), u.CostBasis == "unknown"},
		}
		if u.Ephemeral1hInputTokens != nil {
			a.write1h = min(count(*u.Ephemeral1hInputTokens), a.write5m)
			a.write5m -= a.write1h
		}
		if u.ThinkingTokens != nil {
			a.thinking = count(*u.ThinkingTokens)
		}
		unknown = unknown || a.cost.Unknown
		parts = sum(parts, a.cost.Nanos)
		models[name] = a
	}
	if total != nil {
		parts = Nanos(*total)
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	l.total, l.unknown, l.models = parts, unknown, models
	l.apiTime = time.Duration(min(max(duration, 0), 1e12)) * time.Millisecond
	l.usage, l.spent, l.since = account{}, Amount{}, map[string]*account{}
	clear(l.costs)
	l.recent = nil
	return nil
}

// Models returns the names of the models that the session used, in order.
func (l *Ledger) Models() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.models))
}

// read takes a use that the API told, within bounds.
func read(u *wire.Usage) *account {
	tokens := func(n int64) int64 { return min(count(n), mostTokens) }
	w5, w1 := catalog.Writes(u)
	a := &account{
		input: tokens(u.InputTokens), output: tokens(u.OutputTokens), read: tokens(u.CacheReadInputTokens),
		write5m: tokens(w5), write1h: tokens(w1),
		tier: u.ServiceTier, geo: u.InferenceGeo, speed: u.Speed,
	}
	if u.OutputTokensDetails != nil {
		a.thinking = tokens(u.OutputTokensDetails.ThinkingTokens)
	}
	if u.ServerToolUse != nil {
		a.searches = min(count(u.ServerToolUse.WebSearchRequests), mostSearches)
		a.fetches = min(count(u.ServerToolUse.WebFetchRequests), mostSearches)
	}
	return a
}

// count is a number of things: not negative.
func count(n int64) int64 { return max(n, 0) }

// sum adds what is not negative, and stays in range.
func sum(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func (a *account) add(b *account) {
	for _, f := range []struct{ to, from *int64 }{
		{&a.input, &b.input}, {&a.output, &b.output}, {&a.read, &b.read}, {&a.write5m, &b.write5m}, {&a.write1h, &b.write1h},
		{&a.thinking, &b.thinking}, {&a.searches, &b.searches}, {&a.fetches, &b.fetches}, {&a.cost.Nanos, &b.cost.Nanos},
	} {
		*f.to = sum(*f.to, *f.from)
	}
	a.cost.Unknown = a.cost.Unknown || b.cost.Unknown
	for _, f := range []struct{ to, from *string }{{&a.tier, &b.tier}, {&a.geo, &b.geo}, {&a.speed, &b.speed}} {
		if *f.from != "" {
			*f.to = *f.from
		}
	}
}

// Full returns a usage with every member, as in results.
func Full(u *wire.Usage) *wire.Usage {
	return read(u).wire()
}

// wire returns the account as the protocol tells it, every member there.
func (a *account) wire() *wire.Usage {
	u := &wire.Usage{
		InputTokens: a.input, OutputTokens: a.output, CacheReadInputTokens: a.read, CacheCreationInputTokens: a.write5m + a.write1h,
		OutputTokensDetails: &wire.OutputTokenDetails{ThinkingTokens: a.thinking},
		ServerToolUse:       &wire.ServerToolUsage{WebSearchRequests: a.searches, WebFetchRequests: a.fetches},
		CacheCreation:       &wire.CacheCreation{Ephemeral5mInputTokens: a.write5m, Ephemeral1hInputTokens: a.write1h},
		ServiceTier:         a.tier, Speed: a.speed, InferenceGeo: a.geo,
		Iterations: json.RawMessage("[]"), FallbackCredit: json.RawMessage("null"),
	}
	if u.ServiceTier == "" {
		u.ServiceTier = "standard"
	}
	if u.Speed == "" {
		u.Speed = "standard"
	}
	if u.InferenceGeo == "" {
		u.Extra = map[string]json.RawMessage{"inference_geo": json.RawMessage(`""`)}
	}
	return u
}
