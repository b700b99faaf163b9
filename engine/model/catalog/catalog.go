// Package catalog describes models: their names and aliases, their limits, their features and
// their prices.
//
// There is one table, which a JSON document can extend and change ([Catalog.Extend]). Prices
// are whole nano-dollars, and an unknown price is not zero but missing. The package reads no
// files and keeps no global state.
package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/parley-go/parley/internal/spelling"
	"github.com/parley-go/parley/wire"
)

// Limits assumed for an unknown model.
const (
	unknownWindow = 200_000
	unknownOutput = 32_000
)

// An Info describes a model.
type Info struct {
	ID        string   // the name to request
	Canonical string   // the name without date, region and version: the same for all names of a model
	Aliases   []string // other names of this model
	Name      string   // for people
	Known     bool     // it is in the catalog, by this name or another

	ContextWindow int64 // in tokens
	MaxOutput     int64 // the maximum number of output tokens
	DefaultOutput int64 // the number of output tokens to request by default

	// Prices is nil if the prices are unknown. If LongPrices is not nil, it applies to requests
	// whose prompt, cached or not, has more than LongPrompt tokens.
	Prices     *Prices
	LongPrompt int64
	LongPrices *Prices

	// Fast is the price factor for speed "fast"; 0 if the model does not support that speed.
	Fast int64

	Thinking      Thinking
	Efforts       []string // the supported levels of effort, lowest first; empty if none
	DefaultEffort string

	// LongContext means that the name has the suffix [1m], for which this model needs the beta
	// of that name.
	LongContext bool
}

// Thinking is the kind of thinking of a model.
type Thinking int

// Kinds of thinking.
const (
	ThinkingNone     Thinking = iota // not supported
	ThinkingBudget                   // within a budget of tokens, if one is set
	ThinkingAdaptive                 // as much as the model chooses
	ThinkingAlways                   // like adaptive, and it cannot be disabled
)

// Prices are in nano-dollars per token, and per search.
type Prices struct {
	Input        int64
	Output       int64
	CacheWrite5m int64
	CacheWrite1h int64
	CacheRead    int64
	WebSearch    int64
}

// Priced reports whether the prices are known.
func (i *Info) Priced() bool { return i.Prices != nil }

// Cost returns the cost of a usage in nano-dollars; false if the prices are unknown. Cache
// writes of unknown lifetime cost as much as those of five minutes. Tokens of a request that
// was processed in the US cost a tenth more.
func (i *Info) Cost(u *wire.Usage) (nanos int64, known bool) {
	if i.Prices == nil {
		return 0, false
	}
	p := i.Prices
	if i.LongPrices != nil && u.InputTokens+u.CacheCreationInputTokens+u.CacheReadInputTokens > i.LongPrompt {
		p = i.LongPrices
	}
	write5m, write1h := Writes(u)
	tokens := u.InputTokens*p.Input + u.OutputTokens*p.Output + u.CacheReadInputTokens*p.CacheRead +
		write5m*p.CacheWrite5m + write1h*p.CacheWrite1h
	if u.Speed == "fast" && i.Fast > 0 {
		tokens *= i.Fast
	}
	if u.InferenceGeo == "us" {
		tokens = (tokens*11 + 5) / 10
	}
	if u.ServerToolUse != nil {
		tokens += u.ServerToolUse.WebSearchRequests * p.WebSearch
	}
	return tokens, true
}

// Writes returns the tokens of a usage that were written to the cache, by lifetime.
func Writes(u *wire.Usage) (fiveMinutes, oneHour int64) {
	if u.CacheCreation != nil {
		oneHour = min(u.CacheCreation.Ephemeral1hInputTokens, u.CacheCreationInputTokens)
	}
	return u.CacheCreationInputTokens - oneHour, oneHour
}

// A Catalog is a table of models. Once it is filled, it is safe for concurrent use.
type Catalog struct {
	models []*Info
	byName map[string]*Info // ids, canonical names and aliases, in lower case
	long   bool             // see WithLongContext
}

// BetaLongContext is the beta of the API for a context of a million tokens.
const BetaLongContext = "context-1m-2025-08-07"

// WithLongContext returns a catalog for requests that all name the beta for a context of a million tokens.
func (c *Catalog) WithLongContext() *Catalog {
	return &Catalog{models: c.models, byName: c.byName, long: true}
}

// New returns a catalog with the built-in models.
func New() *Catalog {
	c := &Catalog{byName: map[string]*Info{}}
	for _, m := range known() {
		if err := c.add(m); err != nil {
			panic(err) // the table is wrong; a test checks it
		}
	}
	return c
}

// add adds a model, or replaces the one with the same id.
func (c *Catalog) add(m *Info) error {
	for _, name := range append([]string{m.ID, m.Canonical}, m.Aliases...) {
		if has := c.byName[strings.ToLower(name)]; has != nil && has.ID != m.ID && strings.EqualFold(has.ID, name) {
			return fmt.Errorf("%q is the id of another model", name)
		}
	}
	for name, has := range c.byName {
		if has.ID == m.ID {
			delete(c.byName, name)
		}
	}
	c.models = slices.DeleteFunc(c.models, func(has *Info) bool { return has.ID == m.ID })
	c.models = append(c.models, m)
	for _, name := range append([]string{m.ID, m.Canonical}, m.Aliases...) {
		c.byName[strings.ToLower(name)] = m // the last model that claims an alias gets it
	}
	return nil
}

// All returns every model of the catalog.
func (c *Catalog) All() []Info {
	out := make([]Info, len(c.models))
	for i, m := range c.models {
		out[i] = m.clone()
	}
	return out
}

func (i *Info) clone() Info {
	out := *i
	out.Aliases = slices.Clone(i.Aliases)
	out.Efforts = slices.Clone(i.Efforts)
	return out
}

// variant matches the additions of platforms to the name of a model: a region and vendor before
// it, a date and version after it.
var variant = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:[a-z-]+\.)?(?:anthropic\.|anthropic/)?(claude-[a-z0-9-]+?)(?:[-@](?:\d{8}|latest|default))?(?:-v\d+(?::\d+)?)?$`)
})

// Resolve returns the model with a name: an alias such as "sonnet", an id with or without its
// date, or an id of Bedrock or Vertex. Case does not matter; a suffix [1m] requests a window of
// a million tokens. The ID of the result is the name to send to the API: an alias becomes the
// id of its model, any other name stays as it is. For an unknown model the result has this
// name, cautious limits and no prices, and false is returned.
func (c *Catalog) Resolve(name string) (Info, bool) {
	name = strings.TrimSpace(name)
	base, long := name, false
	if n := len(name) - len("[1m]"); n > 0 && strings.EqualFold(name[n:], "[1m]") {
		base, long = strings.TrimSpace(name[:n]), true
	}
	lower := strings.ToLower(base)
	m, ok := c.byName[lower]
	out := Info{
		ID: base, Canonical: base, Name: base,
		ContextWindow: unknownWindow, MaxOutput: unknownOutput, DefaultOutput: unknownOutput,
	}
	switch {
	case ok:
		out = m.clone()
		if lower == strings.ToLower(m.Canonical) {
			out.ID = m.Canonical
		}
	default:
		// For arn:…/us.anthropic.claude-… look up the last part.
		tail := lower[strings.LastIndexByte(lower, '/')+1:]
		if v := variant().FindStringSubmatch(tail); v != nil {
			if m, ok = c.byName[v[1]]; ok {
				out = m.clone()
				out.ID = base
			}
		}
	}
	out.Known = ok
	if c.long && strings.HasPrefix(out.Canonical, "claude-sonnet-") { // the models with that beta
		out.ContextWindow = max(out.ContextWindow, 1_000_000)
	}
	if long && out.ContextWindow < 1_000_000 {
		out.ContextWindow = 1_000_000
		out.LongContext = true
	}
	return out, ok
}

// Suggest returns the names in the catalog that an unknown name may be a misspelling of, if there are any.
func (c *Catalog) Suggest(name string) string {
	if _, ok := c.Resolve(name); ok {
		return ""
	}
	return spelling.Closest(name, slices.Sorted(maps.Keys(c.byName)))
}

// Extend adds models to the catalog and changes existing ones, with a JSON document:
//
//	{"models": [
//		{"id": "qwen3-coder", "aliases": ["qwen"], "name": "Qwen3 Coder",
//		 "context_window": 262144, "max_output_tokens": 65536, "default_output_tokens": 32768,
//		 "thinking": "none", "efforts": ["low", "high"], "default_effort": "low",
//		 "prices": {"input": 0.22, "output": 0.95}},
//		{"id": "claude-opus-5-5", "prices": null}
//	]}
//
// Missing members do not change. Prices are in dollars per million tokens, those of a search
// ("web_search") per thousand searches; they replace all prices of the model. If missing,
// "cache_read", "cache_write_5m" and "cache_write_1h" default to the price of input, and
// "web_search" to 0. A nano-dollar is the smallest price of a token; fractions are rounded up.
// With null the prices are unknown. If there is an error, the catalog does not change.
func (c *Catalog) Extend(document []byte) error {
	var doc struct {
		Models []entry `json:"models"`
	}
	d := json.NewDecoder(bytes.NewReader(document))
	d.DisallowUnknownFields()
	if err := d.Decode(&doc); err != nil {
		return fmt.Errorf("catalog: %w", err)
	}
	next := &Catalog{byName: map[string]*Info{}}
	for _, m := range c.models {
		if err := next.add(m); err != nil {
			return fmt.Errorf("catalog: %w", err)
		}
	}
	for i, e := range doc.Models {
		m, err := next.changed(&e)
		if err == nil {
			err = next.add(m)
		}
		if err != nil {
			return fmt.Errorf("catalog: model %d %q: %w", i+1, e.ID, err)
		}
	}
	*c = *next
	return nil
}

// An entry is a model in a document.
type entry struct {
	ID            string          `json:"id"`
	Aliases       *[]string       `json:"aliases"`
	Name          *string         `json:"name"`
	ContextWindow *int64          `json:"context_window"`
	MaxOutput     *int64          `json:"max_output_tokens"`
	DefaultOutput *int64          `json:"default_output_tokens"`
	Thinking      *string         `json:"thinking"`
	Efforts       *[]string       `json:"efforts"`
	DefaultEffort *string         `json:"default_effort"`
	Prices        json.RawMessage `json:"prices"`
}

// changed returns the model that results from applying an entry to an existing model, or to a
// new one.
func (c *Catalog) changed(e *entry) (*Info, error) {
	if strings.TrimSpace(e.ID) == "" {
		return nil, errors.New("it has no id")
	}
	m := Info{
		ID: e.ID, Canonical: e.ID, Name: e.ID,
		ContextWindow: unknownWindow, MaxOutput: unknownOutput, DefaultOutput: unknownOutput,
	}
	if has := c.byName[strings.ToLower(e.ID)]; has != nil && (strings.EqualFold(has.ID, e.ID) || strings.EqualFold(has.Canonical, e.ID)) {
		m = has.clone()
	}
	set(&m.Aliases, e.Aliases)
	set(&m.Name, e.Name)
	set(&m.ContextWindow, e.ContextWindow)
	set(&m.MaxOutput, e.MaxOutput)
	if e.MaxOutput != nil {
		m.DefaultOutput = min(m.DefaultOutput, m.MaxOutput)
	}
	set(&m.DefaultOutput, e.DefaultOutput)
	set(&m.Efforts, e.Efforts)
	set(&m.DefaultEffort, e.DefaultEffort)
	if m.ContextWindow <= 0 || m.MaxOutput <= 0 || m.DefaultOutput <= 0 || m.DefaultOutput > m.MaxOutput {
		return nil, errors.New("its limits are malformed")
	}
	if e.Thinking != nil {
		i := slices.Index([]string{"none", "budget", "adaptive", "always"}, *e.Thinking)
		if i < 0 {
			return nil, fmt.Errorf("thinking is %q, not none, budget, adaptive or always", *e.Thinking)
		}
		m.Thinking = Thinking(i)
	}
	if e.Prices == nil {
		return &m, nil
	}
	m.Prices, m.LongPrices, m.LongPrompt, m.Fast = nil, nil, 0, 0
	if string(e.Prices) == "null" {
		return &m, nil
	}
	p, err := readPrices(e.Prices)
	if err != nil {
		return nil, err
	}
	m.Prices = p
	return &m, nil
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// readPrices parses the prices of a document.
func readPrices(raw []byte) (*Prices, error) {
	var in struct {
		Input        json.Number `json:"input"`
		Output       json.Number `json:"output"`
		CacheWrite5m json.Number `json:"cache_write_5m"`
		CacheWrite1h json.Number `json:"cache_write_1h"`
		CacheRead    json.Number `json:"cache_read"`
		WebSearch    json.Number `json:"web_search"`
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return nil, err
	}
	if in.Input == "" || in.Output == "" {
		return nil, errors.New("prices need input and output")
	}
	var out Prices
	for _, f := range []struct {
		to   *int64
		from json.Number
		not  json.Number // default if missing
		unit int64       // nano-dollars per dollar and quantity
	}{
		{&out.Input, in.Input, "", 1000},
		{&out.Output, in.Output, "", 1000},
		{&out.CacheWrite5m, in.CacheWrite5m, in.Input, 1000},
		{&out.CacheWrite1h, in.CacheWrite1h, in.Input, 1000},
		{&out.CacheRead, in.CacheRead, in.Input, 1000},
		{&out.WebSearch, in.WebSearch, "0", 1_000_000},
	} {
		if f.from == "" {
			f.from = f.not
		}
		n, err := nanos(f.from.String(), f.unit)
		if err != nil {
			return nil, err
		}
		*f.to = n
	}
	return &out, nil
}

// nanos returns a number of dollars times unit, rounded up.
func nanos(dollars string, unit int64) (int64, error) {
	if len(dollars) > 30 {
		return 0, fmt.Errorf("%s is no price", dollars)
	}
	r, ok := new(big.Rat).SetString(dollars)
	if !ok || r.Sign() < 0 || r.Cmp(big.NewRat(10_000, 1)) > 0 {
		return 0, fmt.Errorf("%s is no price", dollars)
	}
	r.Mul(r, big.NewRat(unit, 1))
	q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64(), nil
}
