package catalog

// Levels of effort.
var (
	effort3 = []string{"low", "medium", "high"}
	effort4 = []string{"low", "medium", "high", "max"}
	effort5 = []string{"low", "medium", "high", "xhigh", "max"}
)

// usual returns prices with the usual cost of caching: a write costs 1.25 times the
// input or, for an hour, twice, and a read a tenth. The arguments are in thousandths of
// a dollar per million tokens.
func usual(input, output int64) *Prices {
	return &Prices{
		Input: input, Output: output,
		CacheWrite5m: input * 5 / 4, CacheWrite1h: input * 2, CacheRead: input / 10,
		WebSearch: 10_000_000,
	}
}

// reading is [usual] with another price for reading from the cache.
func reading(input, output, cacheRead int64) *Prices {
	p := usual(input, output)
	p.CacheRead = cacheRead
	return p
}

// known returns the table. All of it but the names for people is what the official CLI
// reports; TestOfficial checks it.
func known() []*Info {
	return []*Info{
		{
			ID: "claude-opus-5-5", Canonical: "claude-opus-5-5", Name: "Claude Opus 5.5",
			// The last four are retired; requests for them get this one.
			Aliases:       []string{"opus", "default", "best", "claude-opus-4-1", "claude-opus-4-1-20250805", "claude-opus-4-0", "claude-opus-4-20250514"},
			ContextWindow: 1_000_000, MaxOutput: 128_000, DefaultOutput: 128_000,
			Prices: reading(4000, 20000, 200), Fast: 2,
			Thinking: ThinkingAlways, Efforts: effort5, DefaultEffort: "medium",
		},
		{
			ID: "claude-sonnet-5-5", Canonical: "claude-sonnet-5-5", Name: "Claude Sonnet 5.5",
			Aliases:       []string{"sonnet", "opusplan"}, // opusplan: with Opus in plan mode, which the engine handles
			ContextWindow: 1_000_000, MaxOutput: 128_000, DefaultOutput: 128_000,
			Prices:   reading(2000, 10000, 100),
			Thinking: ThinkingAlways, Efforts: effort5, DefaultEffort: "medium",
		},
		{
			ID: "claude-haiku-5-5", Canonical: "claude-haiku-5-5", Name: "Claude Haiku 5.5",
			Aliases:       []string{"haiku"},
			ContextWindow: 1_000_000, MaxOutput: 128_000, DefaultOutput: 128_000,
			Prices: usual(100, 500), LongPrompt: 100_000, LongPrices: usual(500, 2500),
			Thinking: ThinkingAlways, Efforts: effort5, DefaultEffort: "medium",
		},
		{
			ID: "claude-fable-5-2", Canonical: "claude-fable-5-2", Name: "Claude Fable 5.2",
			Aliases:       []string{"fable"},
			ContextWindow: 1_000_000, MaxOutput: 128_000, DefaultOutput: 128_000,
			Prices: reading(8000, 40000, 200), Fast: 2,
			Thinking: ThinkingAlways, Efforts: effort5, DefaultEffort: "medium",
		},
		{
			ID: "claude-fable-5-1", Canonical: "claude-fable-5-1", Name: "Claude Fable 5.1",
			ContextWindow: 1_000_000, MaxOutput: 128_000, DefaultOutput: 64_000,
			Prices:   reading(10000, 50000, 250),
			Thinking: ThinkingAlways, Efforts: effort5, DefaultEffort: "high",
		},
		{
			ID: "claude-fable-5", Canonical: "claude-fable-5", Name: "Claude Fable 5",
			ContextWindow: 1_000_000, MaxOutput: 128_000, DefaultOutput: 64_000,
			Prices:   usual(10000, 50000),
			Thinking: ThinkingAlways, Efforts: effort5, DefaultEffort: "high",
		},
		{
			ID: "claude-mythos-5", Canonical: "claude-mythos-5", Name: "Claude Mythos 5",
			ContextWindow: 1_000_000, MaxOutput: 128_000, DefaultOutput: 64_000,
			Prices:   usual(10000, 50000),
			Thinking: ThinkingAdaptive, Efforts: effort5, DefaultEffort: "high",
		},
		{
			ID: "claude-opus-5", Canonical: "claude-opus-5", Name: "Claude Opus 5",
			ContextWindow: 1_000_000, MaxOutput: 128_000, DefaultOutput: 64_000,
			Prices: usual(5000, 25000), Fast: 2,
			Thinking: ThinkingAdaptive, Efforts: effort5, DefaultEffort: "high",
		},
		{
			ID: "claude-sonnet-5", Canonical: "claude-sonnet-5", Name: "Claude Sonnet 5",
			ContextWindow: 1_000_000, MaxOutput: 128_000, DefaultOutput: 64_000,
			Prices:   usual(2000, 10000),
			Thinking: ThinkingAdaptive, Efforts: effort5, DefaultEffort: "high",
		},
		{
			ID: "claude-opus-4-8", Canonical: "claude-opus-4-8", Name: "Claude Opus 4.8",
			ContextWindow: 1_000_000, MaxOutput: 128_000, DefaultOutput: 64_000,
			Prices: usual(5000, 25000), Fast: 2,
			Thinking: ThinkingAdaptive, Efforts: effort5, DefaultEffort: "high",
		},
		{
			ID: "claude-opus-4-7", Canonical: "claude-opus-4-7", Name: "Claude Opus 4.7",
			ContextWindow: 1_000_000, MaxOutput: 128_000, DefaultOutput: 64_000,
			Prices: usual(5000, 25000), Fast: 6,
			Thinking: ThinkingAdaptive, Efforts: effort5, DefaultEffort: "xhigh",
		},
		{
			ID: "claude-opus-4-6", Canonical: "claude-opus-4-6", Name: "Claude Opus 4.6",
			ContextWindow: 200_000, MaxOutput: 128_000, DefaultOutput: 64_000,
			Prices: usual(5000, 25000), Fast: 6,
			Thinking: ThinkingAdaptive, Efforts: effort4, DefaultEffort: "high",
		},
		{
			ID: "claude-sonnet-4-6", Canonical: "claude-sonnet-4-6", Name: "Claude Sonnet 4.6",
			ContextWindow: 200_000, MaxOutput: 128_000, DefaultOutput: 32_000,
			Prices:   usual(3000, 15000),
			Thinking: ThinkingAdaptive, Efforts: effort4, DefaultEffort: "high",
		},
		{
			ID: "claude-opus-4-5-20251101", Canonical: "claude-opus-4-5", Name: "Claude Opus 4.5",
			ContextWindow: 200_000, MaxOutput: 64_000, DefaultOutput: 32_000,
			Prices:   usual(5000, 25000),
			Thinking: ThinkingBudget, Efforts: effort3, DefaultEffort: "high",
		},
		{
			ID: "claude-sonnet-4-5-20250929", Canonical: "claude-sonnet-4-5", Name: "Claude Sonnet 4.5",
			ContextWindow: 200_000, MaxOutput: 64_000, DefaultOutput: 32_000,
			Prices:   usual(3000, 15000),
			Thinking: ThinkingBudget,
		},
		{
			ID: "claude-haiku-4-5-20251001", Canonical: "claude-haiku-4-5", Name: "Claude Haiku 4.5",
			ContextWindow: 200_000, MaxOutput: 64_000, DefaultOutput: 32_000,
			Prices:   usual(1000, 5000),
			Thinking: ThinkingBudget,
		},
		{
			ID: "claude-sonnet-4-20250514", Canonical: "claude-sonnet-4-0", Name: "Claude Sonnet 4",
			Aliases:       []string{"claude-sonnet-4"},
			ContextWindow: 200_000, MaxOutput: 64_000, DefaultOutput: 32_000,
			Prices:   usual(3000, 15000),
			Thinking: ThinkingBudget,
		},
		{
			ID: "claude-3-7-sonnet-20250219", Canonical: "claude-3-7-sonnet", Name: "Claude Sonnet 3.7",
			ContextWindow: 200_000, MaxOutput: 64_000, DefaultOutput: 32_000,
			Prices: usual(3000, 15000),
		},
		{
			ID: "claude-3-5-sonnet-20241022", Canonical: "claude-3-5-sonnet", Name: "Claude Sonnet 3.5",
			ContextWindow: 200_000, MaxOutput: 8192, DefaultOutput: 8192,
			Prices: usual(3000, 15000),
		},
		{
			ID: "claude-3-5-haiku-20241022", Canonical: "claude-3-5-haiku", Name: "Claude Haiku 3.5",
			ContextWindow: 200_000, MaxOutput: 8192, DefaultOutput: 8192,
			Prices: usual(800, 4000),
		},
	}
}
