package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/engine/model/catalog"
	"github.com/parley-go/parley/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// random returns a usage of any size and shape that a server may claim.
func random(r *rand.Rand) *wire.Usage {
	n := func() int64 {
		switch r.IntN(20) {
		case 0:
			return math.MaxInt64 - r.Int64N(2)
		case 1:
			return -r.Int64N(1000)
		}
		return r.Int64N(200_000)
	}
	u := &wire.Usage{InputTokens: n(), OutputTokens: n(), CacheReadInputTokens: n(), CacheCreationInputTokens: n()}
	if r.IntN(2) == 0 {
		u.CacheCreation = &wire.CacheCreation{Ephemeral5mInputTokens: n(), Ephemeral1hInputTokens: n()}
	}
	if r.IntN(2) == 0 {
		u.ServerToolUse = &wire.ServerToolUsage{WebSearchRequests: n(), WebFetchRequests: n()}
	}
	if r.IntN(3) == 0 {
		u.OutputTokensDetails = &wire.OutputTokenDetails{ThinkingTokens: n()}
	}
	u.Speed = []string{"", "standard", "fast"}[r.IntN(3)]
	u.InferenceGeo = []string{"", "us", "global"}[r.IntN(3)]
	return u
}

var models = []string{"claude-opus-5-5", "claude-haiku-5-5", "claude-sonnet-4-5-20250929", "claude-opus-4-6", "unheard-of"}

// TestSums checks that the parts add up to the total, whoever adds them and in which
// order, and that a ledger survives being stored in a session and restored.
func TestSums(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := New(catalog.New())
		type entry struct {
			model string
			usage *wire.Usage
		}
		entries := make([]entry, r.IntN(40))
		var want int64
		unknown := false
		var turns int64
		for i := range entries {
			entries[i] = entry{models[r.IntN(len(models))], random(r)}
			a := l.Add(fmt.Sprint(i), entries[i].model, entries[i].usage)
			if a.Nanos < 0 || a.Unknown != (entries[i].model == "unheard-of") {
				t.Fatalf("%+v costs %+v", entries[i], a)
			}
			if got, ok := l.Cost(fmt.Sprint(i)); !ok || got != a {
				t.Fatalf("%+v cost %+v", a, got)
			}
			want += a.Nanos
			unknown = unknown || a.Unknown
			if r.IntN(5) == 0 {
				turns += l.Turn().Nanos
				l.BeginTurn()
			}
		}
		turns += l.Turn().Nanos
		if got := l.Total(); got != (Amount{want, unknown}) || turns != want {
			t.Fatalf("seed %d: total %+v, turns %d, want %d", seed, got, turns, want)
		}
		var parts int64
		for _, m := range l.ModelUsage() {
			parts += Nanos(m.CostUSD)
			if *m.Ephemeral5mInputTokens+*m.Ephemeral1hInputTokens != m.CacheCreationInputTokens {
				t.Fatalf("seed %d: %+v", seed, m)
			}
		}
		if parts != want && want < 1e15 {
			t.Fatalf("seed %d: the models cost %d, all %d", seed, parts, want)
		}

		// Concurrently, in any order.
		other := New(catalog.New())
		r.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
		var wg sync.WaitGroup
		for _, e := range entries {
			wg.Go(func() { other.Add("", e.model, e.usage) })
		}
		wg.Wait()
		if a, b := show(t, l.State()), show(t, other.State()); a != b {
			t.Fatalf("seed %d: got\n%s\nwant\n%s", seed, b, a)
		}

		// Stored and restored.
		kept := New(catalog.New())
		if err := kept.Restore(l.State()); err != nil {
			t.Fatal(err)
		}
		if a, b := show(t, l.State()), show(t, kept.State()); a != b {
			t.Fatalf("seed %d: restored\n%s\nwant\n%s", seed, b, a)
		}
		if len(kept.TakeModelUsage()) != 0 || kept.Turn() != (Amount{}) {
			t.Fatalf("seed %d: the turn is restored", seed)
		}
	}
}

func show(t *testing.T, v any) string {
	t.Helper()
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Every member of the protocol is present.
func TestWire(t *testing.T) {
	l := New(catalog.New())
	empty := `{"input_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0,"output_tokens_details":{"thinking_tokens":0},` +
		`"server_tool_use":{"web_search_requests":0,"web_fetch_requests":0},"service_tier":"standard",` +
		`"cache_creation":{"ephemeral_1h_input_tokens":0,"ephemeral_5m_input_tokens":0},"inference_geo":"","iterations":[],"speed":"standard","fallback_credit":null}`
	if got := l.TurnUsage(); !same(t, got, empty) {
		t.Errorf("an empty turn is %s", show(t, got))
	}
	l.Add("", "claude-opus-5-5", &wire.Usage{
		InputTokens: 100, OutputTokens: 10, CacheReadInputTokens: 1000, CacheCreationInputTokens: 30,
		CacheCreation:       &wire.CacheCreation{Ephemeral1hInputTokens: 20, Ephemeral5mInputTokens: 10},
		OutputTokensDetails: &wire.OutputTokenDetails{ThinkingTokens: 4},
		ServerToolUse:       &wire.ServerToolUsage{WebSearchRequests: 1, WebFetchRequests: 2},
		ServiceTier:         "priority",
	})
	if got := l.TurnUsage(); !same(t, got, `{"input_tokens":100,"cache_creation_input_tokens":30,"cache_read_input_tokens":1000,"output_tokens":10,"output_tokens_details":{"thinking_tokens":4},`+
		`"server_tool_use":{"web_search_requests":1,"web_fetch_requests":2},"service_tier":"priority",`+
		`"cache_creation":{"ephemeral_1h_input_tokens":20,"ephemeral_5m_input_tokens":10},"inference_geo":"","iterations":[],"speed":"standard","fallback_credit":null}`) {
		t.Errorf("the turn is %s", show(t, got))
	}
	want := `{"claude-opus-5-5":{"inputTokens":100,"outputTokens":10,"cacheReadInputTokens":1000,"cacheCreationInputTokens":30,"webSearchRequests":1,` +
		`"costUSD":0.01101,"contextWindow":1000000,"maxOutputTokens":128000,"thinkingTokens":4,"cacheCreationEphemeral5mInputTokens":10,` +
		`"cacheCreationEphemeral1hInputTokens":20,"canonicalModel":"claude-opus-5-5","provider":"firstParty","costBasis":"list"}}`
	for _, got := range []any{l.ModelUsage(), l.TakeModelUsage(), l.State()["modelUsage"]} {
		if !same(t, got, want) {
			t.Errorf("the models used %s", show(t, got))
		}
	}
	l.AddAPITime(1500 * time.Millisecond)
	state := l.State()
	delete(state, "modelUsage")
	if !same(t, state, `{"totalCostUSD":0.01101,"totalAPIDuration":1500,"hasUnknownModelCost":false}`) {
		t.Errorf("the state is %s", show(t, state))
	}
	l.Add("", "llama", &wire.Usage{InputTokens: 5})
	if m := l.ModelUsage()["llama"]; m.CostUSD != 0 || m.CostBasis != "unknown" || !l.Unknown() || l.TotalUSD() != 0.01101 {
		t.Errorf("what has no price: %s", show(t, m))
	}
	if got := fmt.Sprint(l.Models()); got != "[claude-opus-5-5 llama]" {
		t.Error(got)
	}
}

func same(t *testing.T, v any, want string) bool {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(show(t, v)), &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(a, b)
}

// A record of the official CLI, and some invalid ones.
func TestRestore(t *testing.T) {
	l := New(catalog.New())
	good := map[string]json.RawMessage{
		"totalCostUSD": json.RawMessage("0.0006000000000000001"), "totalAPIDuration": json.RawMessage("30"), "totalToolDuration": json.RawMessage("0"),
		"modelUsage": json.RawMessage(`{"claude-opus-5-5":{"inputTokens":100,"outputTokens":10,"cacheReadInputTokens":0,"cacheCreationInputTokens":0,"webSearchRequests":0,` +
			`"costUSD":0.0006000000000000001,"contextWindow":1000000,"maxOutputTokens":128000,"thinkingTokens":0,"canonicalModel":"claude-opus-5-5","new":[1]}}`),
	}
	if err := l.Restore(good); err != nil {
		t.Fatal(err)
	}
	if l.Total() != (Amount{Nanos: 600_000}) || l.APITime() != 30*time.Millisecond || l.ModelUsage()["claude-opus-5-5"].InputTokens != 100 {
		t.Errorf("restored %s", show(t, l.State()))
	}
	for name, bad := range map[string]string{
		"totalCostUSD": `"much"`, "totalAPIDuration": `{}`, "modelUsage": `{"m":null}`, "hasUnknownModelCost": `1`,
	} {
		fields := maps.Clone(good)
		fields[name] = json.RawMessage(bad)
		if err := l.Restore(fields); err == nil || !strings.HasPrefix(err.Error(), "ledger: ") {
			t.Errorf("%s %s: error %v", name, bad, err)
		}
	}
	if l.Total().Nanos != 600_000 {
		t.Error("a record with an error changed the ledger")
	}
	if err := l.Restore(map[string]json.RawMessage{
		"totalCostUSD": json.RawMessage("1e300"), "totalAPIDuration": json.RawMessage("1e300"),
		"modelUsage": json.RawMessage(`{"m":{"inputTokens":-5,"costUSD":-1,"costBasis":"unknown"}}`),
	}); err != nil {
		t.Fatal(err)
	}
	l.Add("", "claude-opus-5-5", &wire.Usage{InputTokens: 1})
	if l.Total() != (Amount{math.MaxInt64, true}) || !l.Exceeds(math.MaxInt64) {
		t.Errorf("absurd: %+v", l.Total())
	}
	if err := l.Restore(nil); err != nil || l.Total() != (Amount{}) {
		t.Errorf("nothing: %+v %v", l.Total(), err)
	}
}

func TestBudget(t *testing.T) {
	l := New(catalog.New())
	const budget = 10_000
	if l.Exceeds(budget) {
		t.Error("exceeded before the start")
	}
	release, ok := l.Reserve(budget, 6000)
	if _, also := l.Reserve(budget, 6000); !ok || also {
		t.Error("reserved twice")
	}
	second, ok := l.Reserve(budget, 4000)
	if _, more := l.Reserve(budget, 1); !ok || more {
		t.Error("more than all is reserved")
	}
	release()
	release()
	second()
	if _, ok := l.Reserve(budget, budget+1); ok {
		t.Error("more than all is reserved at once")
	}
	l.Add("", "claude-opus-5-5", &wire.Usage{InputTokens: 2}) // 8000
	if l.Exceeds(budget) {
		t.Error("exceeded by 8000")
	}
	if _, ok := l.Reserve(budget, 2001); ok {
		t.Error("reserved what is spent")
	}
	l.Add("", "claude-opus-5-5", &wire.Usage{InputTokens: 1})
	if _, ok := l.Reserve(budget, 0); ok || !l.Exceeds(budget) {
		t.Error("not exceeded by 12000")
	}
	if l.Exceeds(math.MaxInt64) {
		t.Error("exceeded without bound")
	}
}

func TestRemembered(t *testing.T) {
	l := New(catalog.New())
	for i := range 3 * remembered {
		l.Add(fmt.Sprint(i), "opus", &wire.Usage{InputTokens: 1})
	}
	if _, ok := l.Cost("0"); ok || len(l.costs) != remembered || len(l.recent) != remembered {
		t.Errorf("%d requests are remembered", len(l.costs))
	}
}

func TestNanos(t *testing.T) {
	for range 100_000 {
		n := rand.Int64N(1e15)
		if got := Nanos(USD(n)); got != n {
			t.Fatalf("%d became %d", n, got)
		}
	}
	for usd, want := range map[float64]int64{math.NaN(): 0, math.Inf(1): math.MaxInt64, math.Inf(-1): 0, -1: 0, 1e-10: 0, 0.1: 1e8} {
		if got := Nanos(usd); got != want {
			t.Errorf("%v is %d", usd, got)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	l := New(catalog.New())
	u := &wire.Usage{InputTokens: 1000, OutputTokens: 100, CacheReadInputTokens: 5000}
	for b.Loop() {
		l.Add("", "claude-opus-5-5", u)
	}
}

// The usage of a subagent is part of the turn's cost and of the usage by model, not
// of the usage of the conversation itself.
func TestChild(t *testing.T) {
	l := New(catalog.New())
	sub := l.Child()
	l.Add("", "claude-sonnet-4-5", &wire.Usage{InputTokens: 10})
	sub.Add("", "claude-sonnet-4-5", &wire.Usage{InputTokens: 100})
	if l.TurnUsage().InputTokens != 10 || sub.TurnUsage().InputTokens != 100 || l.ModelUsage()["claude-sonnet-4-5"].InputTokens != 110 || l.Turn() != l.Total() {
		t.Error(l.TurnUsage(), sub.TurnUsage(), l.ModelUsage(), l.Turn(), l.Total())
	}
}

// The parent pays for a child, and only the turn is the child's own. Requests beyond
// the budget wait until they are alone, and none is sent once it is spent.
func TestWaitAtDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top := New(catalog.New())
		child := top.Child().Child()
		if a := child.Add("r", "claude-haiku-4-5", &wire.Usage{InputTokens: 1000}); a.Nanos == 0 || top.Total().Nanos != a.Nanos || child.Total().Nanos != a.Nanos {
			t.Errorf("the child spent %v, of which the parent knows %v", a, top.Total())
		}
		budget := top.Total().Nanos + 100
		release, ok := child.Wait(t.Context(), budget, 80)
		if !ok {
			t.Fatal("a call that fits is refused")
		}
		// Another one does not fit at the same time.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, ok := top.Wait(ctx, budget, 80); ok {
			t.Error("two calls are made that exceed the budget together")
		}
		made := make(chan bool)
		go func() {
			release, ok := top.Wait(t.Context(), budget, 80)
			release()
			made <- ok
		}()
		release()
		if !<-made {
			t.Error("a call is not made although it is alone")
		}
		// One that costs more than is left is sent alone, and none after it.
		release, ok = top.Child().Wait(t.Context(), budget, 1000)
		child.Add("s", "claude-haiku-4-5", &wire.Usage{InputTokens: 1000})
		release()
		if !ok {
			t.Error("a call is refused although some of the budget is left")
		}
		if _, ok := child.Wait(t.Context(), budget, 1); ok {
			t.Error("a call is made although the budget is spent")
		}
	})
}
