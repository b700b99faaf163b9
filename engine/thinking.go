package engine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/internal/ask"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/model/catalog"
	"github.com/parley-go/parley/wire"
)

// Thinking configures how a model reasons before it answers. The zero value is the
// model's default: adaptive, limited by the length of the answer, or off.
type Thinking struct {
	Mode    string // "adaptive", "enabled" or "disabled"; empty means the default
	Budget  int64  // in tokens, for models that accept a limit; 0 means the default
	Display string // how much of it is shown, such as "summarized"; empty means the default
}

// choice is the model that answers, and its settings.
type choice struct {
	model     catalog.Info
	primary   catalog.Info // the requested model; a fallback may replace it
	fallbacks []string     // models not yet tried in this turn
	effort    string
	thinking  Thinking
	betas     []string // see Config
	dropped   []string // beta features that the API refused; see dropRefused
	tuning    *Tuning  // see Config
	room      int64    // tokens of the window left for the answer; 0 means no limit

	catalog  *catalog.Catalog
	budgeted bool // reject models without a known price
	notify   func(wire.Message)
}

// thinkingMember returns the thinking member of a request. It is adjusted to what the
// model accepts: adaptive models have no limit, and thinking cannot be disabled in
// some. For an unknown model it is sent as configured.
func (c *choice) thinkingMember() json.RawMessage {
	t, kind := c.thinking, c.model.Thinking
	if kind == catalog.ThinkingNone {
		switch {
		case c.model.Known || t.Mode == "" && t.Budget == 0, t.Mode == "disabled":
			return nil
		case t.Mode == "adaptive":
			kind = catalog.ThinkingAdaptive
		default:
			kind = catalog.ThinkingBudget
		}
	}
	m := struct {
		Type    string `json:"type"`
		Budget  int64  `json:"budget_tokens,omitzero"`
		Display string `json:"display,omitzero"`
	}{Display: t.Display}
	if m.Display == "" {
		m.Display = c.tuning.display()
	}
	if m.Display == displayUpdates && slices.Contains(c.dropped, betaUpdates) {
		m.Display = ""
	}
	switch {
	case kind == catalog.ThinkingAlways:
		m.Type = "adaptive"
	case t.Mode == "disabled":
		m.Type, m.Display = "disabled", ""
	case kind == catalog.ThinkingAdaptive:
		m.Type = "adaptive"
	default:
		limit := c.maxTokens() - 1
		if m.Budget = limit; t.Budget > 0 {
			m.Budget = min(t.Budget, limit)
		}
		if m.Type = "enabled"; m.Budget < minThinking {
			return nil // the answer leaves no room for it
		}
	}
	return mustJSON(m)
}

// minThinking is the smallest limit that the API accepts.
const minThinking = 1024

// effortLevel returns the effort for the model: the requested level, or the next lower
// one that the model supports. It is empty if the model has no levels.
func (c *choice) effortLevel() string {
	have := c.model.Efforts
	if len(have) == 0 {
		if c.model.Known {
			return ""
		}
		return c.effort
	}
	if c.effort == "" {
		return c.model.DefaultEffort
	}
	all := []string{"low", "medium", "high", "xhigh", "max"}
	for i := slices.Index(all, c.effort); i >= 0; i-- {
		if slices.Contains(have, all[i]) {
			return all[i]
		}
	}
	if slices.Contains(have, c.effort) {
		return c.effort
	}
	return have[0]
}

// allBetas returns the beta features of the API that a request needs, and the requested
// ones.
func (c *choice) allBetas() []string {
	betas := slices.Clone(c.betas)
	if c.model.LongContext {
		betas = append(betas, catalog.BetaLongContext)
	}
	if c.effortLevel() != "" {
		betas = append(betas, "effort-2025-11-24")
	}
	var think struct{ Display string }
	json.Unmarshal(c.thinkingMember(), &think)
	for _, beta := range c.tuning.betas(think.Display) {
		if !slices.Contains(c.dropped, beta) {
			betas = append(betas, beta)
		}
	}
	slices.Sort(betas[len(c.betas):])
	return slices.Compact(betas)
}

// optionalBetas are the beta features that a request can do without, each with what an API that does not
// have it may complain about besides its name.
var optionalBetas = []struct {
	beta  string
	words []string
}{
	{betaUpdates, []string{".display", "anthropic-beta"}},
	{betaInterleaved, []string{"anthropic-beta"}},
}

// dropRefused drops optional beta features for the rest of the conversation if the API, or a gateway
// before it, refuses a request because of them. It reports whether there were any.
func (c *choice) dropRefused(e *model.Error) bool {
	if e.Status != http.StatusBadRequest {
		return false
	}
	sent, before := c.allBetas(), len(c.dropped)
	complains := func(about string) bool { return strings.Contains(e.Message, about) }
	named := slices.ContainsFunc(sent, complains)
	for _, o := range optionalBetas {
		if slices.Contains(sent, o.beta) && !slices.Contains(c.dropped, o.beta) &&
			(complains(o.beta) || !named && slices.ContainsFunc(o.words, complains)) {
			c.dropped = append(c.dropped, o.beta)
		}
	}
	return len(c.dropped) > before
}

// header returns the header of requests.
func (c *choice) header() http.Header {
	h := http.Header{}
	if betas := c.allBetas(); len(betas) > 0 {
		h.Set("anthropic-beta", strings.Join(betas, ","))
	}
	return h
}

// thinkingDisplay returns how much of the model's thinking is shown.
func (c *choice) thinkingDisplay() string {
	if c.thinking.Display != "" {
		return c.thinking.Display
	}
	return "updates"
}

// maxTokens returns the limit of tokens in the answer.
func (c *choice) maxTokens() int64 {
	n := c.model.DefaultOutput
	if limit := c.tuning.MaxTokens; limit > 0 {
		n = min(limit, cmp.Or(c.model.MaxOutput, limit))
	}
	if c.room > 0 {
		n = min(n, c.room)
	}
	return n
}

// Model returns the current model.
func (c *choice) Model() catalog.Info { return c.model }

// SetThinking changes how the model reasons.
func (c *choice) SetThinking(t Thinking) { c.thinking = t }

// SetEffort changes the effort of the model; empty means the model's default.
func (c *choice) SetEffort(effort string) { c.effort = effort }

// Effort returns the effort of the current model. It is empty if the model has no
// levels.
func (c *choice) Effort() string { return c.effortLevel() }

func unpriced(m catalog.Info) error {
	return fmt.Errorf("the price of %s is unknown, so a budget cannot be enforced; use a model with a known price, or no budget", m.ID)
}

func (c *choice) resolve(name string) catalog.Info {
	if name == "" {
		name = "default"
	}
	info, _ := c.catalog.Resolve(name)
	return info
}

// whyFallBack explains to people why another model answers.
var whyFallBack = map[string]string{ask.TriggerOverloaded: "is overloaded", ask.TriggerNotFound: "is not available", ask.TriggerDenied: "may not be used with these credentials",
	ask.TriggerServer: "fails"}

// fallBack switches to the next fallback model. It returns false if there is none.
func (c *choice) fallBack(trigger string) bool {
	for len(c.fallbacks) > 0 {
		next := c.resolve(c.fallbacks[0])
		c.fallbacks = c.fallbacks[1:]
		if next.ID == c.model.ID || c.budgeted && !next.Priced() {
			continue
		}
		was := c.model
		c.model = next
		c.notify(&wire.ModelFallback{Trigger: trigger, OriginalModel: was.ID, FallbackModel: next.ID,
			Content: fmt.Sprintf("%s %s; %s answers instead.", was.ID, whyFallBack[trigger], next.ID)})
		return true
	}
	return false
}

// useModel switches to the named model; an empty name means the default. It returns an error
// for a model without a known price if there is a budget.
func (c *choice) useModel(name string) error {
	next := c.resolve(name)
	if c.budgeted && !next.Priced() {
		return unpriced(next)
	}
	c.model, c.primary = next, next
	return nil
}

// useForTurn switches to the model that a command names, for this turn.
func (c *choice) useForTurn(name string) {
	if name == "" || name == "inherit" {
		return
	}
	if next := c.resolve(name); !c.budgeted || next.Priced() {
		c.model = next
	}
}
