// Package ledger tracks the cost of one conversation, with its retries and all its
// subagents: the usage, by model and by turn, and its cost in whole nano-dollars. It
// takes prices from a catalog and depends on nothing else.
//
// An unknown cost is not zero: it is left out of every sum, and the sums report that
// ([Ledger.Unknown]).
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

// The maximum usage of one request; more is a mistake of the server, and would overflow.
const (
	mostTokens   = 1_000_000_000
	mostSearches = 1_000_000
)

// remembered is how many requests [Ledger.Cost] remembers.
const remembered = 1024

// A Ledger is the ledger of a conversation. It is safe for concurrent use.
type Ledger struct {
	catalog *catalog.Catalog
	parent  *Ledger // of the conversation that started the subagent; nil for the topmost one

	mu       sync.Mutex
	total    int64 // of the session, in nano-dollars
	unknown  bool  // the price of some usage is unknown
	reserved int64
	released chan struct{} // closed when a reservation is released; nil if nobody waits
	apiTime  time.Duration
	models   map[string]*account // of the session
	since    map[string]*account // not yet reported in a result
	usage    account             // of this turn and all models, without requests beside the conversation
	spent    Amount              // in this turn
	costs    map[string]Amount
	recent   []string // the requests in costs, oldest first
}

// An Amount is a cost.
type Amount struct {
	Nanos   int64 // nano-dollars; if Unknown, only of the part with a known price
	Unknown bool  // the price of a part is unknown
}

// USD returns the amount in dollars.
func (a Amount) USD() float64 { return USD(a.Nanos) }

// USD converts nano-dollars to dollars. For less than a million dollars, [Nanos]
// converts it back without loss.
func USD(nanos int64) float64 { return float64(nanos) / 1e9 }

// Nanos converts dollars to nano-dollars, rounded to the nearest.
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

// An account sums up usage.
type account struct {
	input, output, read, write5m, write1h int64
	thinking, searches, fetches           int64
	cost                                  Amount
	tier, geo, speed                      string // as last reported by the API
}

// New returns an empty ledger that takes prices from a catalog.
func New(c *catalog.Catalog) *Ledger {
	return &Ledger{catalog: c, models: map[string]*account{}, since: map[string]*account{}, costs: map[string]Amount{}}
}

// Child returns the ledger of a subagent. Its entries are also added to this ledger, and
// so to those above it. Budgets are those of the topmost one.
func (l *Ledger) Child() *Ledger {
	c := New(l.catalog)
	c.parent = l
	return c
}

// Add books the usage of one request under the requested model, and returns its cost.
// Every call counts: a request is added once, when its answer has ended or failed. The
// id is for [Ledger.Cost], and may be empty.
func (l *Ledger) Add(requestID, model string, u *wire.Usage) Amount {
	return l.add(requestID, model, u, false)
}

// AddBeside is [Ledger.Add] for a request beside the conversation, such as for a
// summary. All costs include it, but [Ledger.TurnUsage] does not.
func (l *Ledger) AddBeside(requestID, model string, u *wire.Usage) Amount {
	return l.add(requestID, model, u, true)
}

func (l *Ledger) add(requestID, model string, u *wire.Usage, beside bool) Amount {
	if l.parent != nil {
		l.parent.add(requestID, model, u, true) // the child counts its own turn usage
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

// Cost returns the cost of a request, if it is one of the last thousand.
func (l *Ledger) Cost(requestID string) (Amount, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, ok := l.costs[requestID]
	return a, ok
}

// AddAPITime adds to the time that the conversation has waited for models.
func (l *Ledger) AddAPITime(d time.Duration) {
	if l.parent != nil {
		l.parent.AddAPITime(d)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.apiTime += max(d, 0)
}

// APITime returns how long the session has waited for models.
func (l *Ledger) APITime() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.apiTime
}

// BeginTurn starts a new turn and resets [Ledger.TurnUsage].
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

// TotalUSD returns the cost of the session in dollars, without unknown costs.
func (l *Ledger) TotalUSD() float64 { return l.Total().USD() }

// Unknown reports whether the price of some usage is unknown.
func (l *Ledger) Unknown() bool { return l.Total().Unknown }

// Turn returns the cost of the turn, including its subagents.
func (l *Ledger) Turn() Amount {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spent
}

// Exceeds reports whether the cost of the session has reached a budget in nano-dollars.
// Unknown prices do not count: a caller with a budget rejects models without a price.
func (l *Ledger) Exceeds(budget int64) bool {
	if l.parent != nil {
		return l.parent.Exceeds(budget)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total >= budget
}

// Reserve reserves an amount of a budget, both in nano-dollars, for a request, until
// release is called. release may be called more than once. It returns false and reserves
// nothing if the budget is spent, or would be with all reservations. A request is added
// before its reservation is released.
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
	return l.addReservation(nanos), true
}

// addReservation adds a reservation. The caller holds mu.
func (l *Ledger) addReservation(nanos int64) (release func()) {
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

// Wait is [Ledger.Reserve] for a request with the given maximum cost. If less than that
// is left of the budget, the request waits until it is the only one, so that all
// requests together exceed a budget by at most one request. It returns false if the
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
			release = l.addReservation(nanos)
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

// TurnUsage returns the usage of the turn itself, of all models, without its subagents.
func (l *Ledger) TurnUsage() *wire.Usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.usage.wire()
}

// ModelUsage returns the usage and cost of the session, by model.
func (l *Ledger) ModelUsage() map[string]*wire.ModelUsage {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.modelUsage(l.models)
}

// TakeModelUsage returns the usage and cost since its previous call, by model. It is for
// the result of a turn, and includes subagents that ran between turns. All results
// together add up to [Ledger.ModelUsage].
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
		copyNumbers(out[name])
	}
	return out
}

// copyNumbers copies the numbers that a usage points to.
func copyNumbers(m *wire.ModelUsage) {
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
			panic(err) // cannot fail: numbers, strings and maps of them
		}
		out[name] = data
	}
	put("totalCostUSD", USD(l.total))
	put("totalAPIDuration", l.apiTime.Milliseconds())
	put("modelUsage", l.modelUsage(l.models))
	put("hasUnknownModelCost", l.unknown)
	return out
}

// Restore sets the ledger from a cost-state record, ours or that of the official CLI.
// The turn is empty afterwards. If there is an error, the ledger does not change.
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

// Models returns the names of the models that the session used, sorted.
func (l *Ledger) Models() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.models))
}

// read converts a usage reported by the API, within limits.
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

// count returns n, or 0 if it is negative.
func count(n int64) int64 { return max(n, 0) }

// sum adds two non-negative numbers without overflow.
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

// wire returns the account as a usage of the protocol, with every member.
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
