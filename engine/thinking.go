package engine

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/model/catalog"
)

// Thinking says how a model reasons before it answers. The zero value is what is
// usual for the model: as much as it sees fit, or as much as its answer may have, or
// not at all.
type Thinking struct {
	Mode    string // "adaptive", "enabled" or "disabled"; empty means what is usual
	Budget  int64  // tokens, for models that take a bound; 0 means what is usual
	Display string // how much of it is shown, such as "summarized"; empty means what is usual
}

// thinkingMember is the thinking member of a request to the model that answers. A
// model gets what it takes: one that reasons as it sees fit has no bound, and some
// cannot be kept from it. A model that nothing is known of gets what was asked for.
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
			return nil // there is no room for it
		}
	}
	return mustJSON(m)
}

// minThinking is the smallest bound that the API takes.
const minThinking = 1024

// effortLevel is how hard the model that answers is to try: what was asked for, or
// the next lower level that it has. It is empty if the model has no levels.
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

// betas are the features of the API that a request needs, with those that were
// asked for.
func (c *choice) allBetas() []string {
	betas := slices.Clone(c.betas)
	if c.model.LongContext {
		betas = append(betas, "context-1m-2025-08-07")
	}
	if c.effortLevel() != "" {
		betas = append(betas, "effort-2025-11-24")
	}
	var think struct{ Display string }
	json.Unmarshal(c.thinkingMember(), &think)
	betas = append(betas, c.tuning.betas(think.Display)...)
	slices.Sort(betas[len(c.betas):])
	return slices.Compact(betas)
}

// header returns the header of requests.
func (c *choice) header() http.Header {
	h := http.Header{}
	if betas := c.allBetas(); len(betas) > 0 {
		h.Set("anthropic-beta", strings.Join(betas, ","))
	}
	return h
}

// thinkingDisplay is how much is shown of what the model thinks.
func (c *choice) thinkingDisplay() string {
	if c.thinking.Display != "" {
		return c.thinking.Display
	}
	return "updates"
}

// maxTokens bounds the answer.
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
