package catalog

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/parley-go/parley/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two costs that were reported to a user.
func TestGoldenCosts(t *testing.T) {
	c := New()
	for _, g := range []struct {
		model string
		usage wire.Usage
		usd   float64 // to seven places
	}{
		{"claude-haiku-4-5-20251001", wire.Usage{InputTokens: 2, OutputTokens: 170, CacheReadInputTokens: 10531}, 0.0019051},
		{"claude-sonnet-4-5-20250929", wire.Usage{InputTokens: 9, OutputTokens: 143, CacheReadInputTokens: 39900, CacheCreationInputTokens: 439}, 0.0157882},
	} {
		m, ok := c.Resolve(g.model)
		got, known := m.Cost(&g.usage)
		if !ok || !known || math.Abs(float64(got)-g.usd*1e9) > 50.001 {
			t.Errorf("%s costs %d, want %v", g.model, got, g.usd)
		}
	}
}

// The table is valid, and no name stands for two models.
func TestTable(t *testing.T) {
	names := map[string]string{}
	for _, m := range known() {
		all := append([]string{m.ID}, m.Aliases...)
		if m.Canonical != m.ID {
			all = append(all, m.Canonical)
		}
		for _, n := range all {
			if other := names[n]; other != "" {
				t.Errorf("%s is %s and %s", n, other, m.ID)
			}
			names[n] = m.ID
		}
		if m.Name == "" || m.Prices == nil || m.DefaultOutput > m.MaxOutput || m.MaxOutput > m.ContextWindow {
			t.Errorf("%+v", m)
		}
		if !strings.HasPrefix(m.ID, m.Canonical) && m.Canonical != "claude-sonnet-4-0" {
			t.Errorf("%s is called %s", m.ID, m.Canonical)
		}
	}
}

func TestResolve(t *testing.T) {
	c := New()
	for _, r := range []struct {
		name, id, canonical string
		window              int64
		known               bool
	}{
		{"opus", "claude-opus-5-5", "claude-opus-5-5", 1_000_000, true},
		{" Sonnet ", "claude-sonnet-5-5", "claude-sonnet-5-5", 1_000_000, true},
		{"haiku[1m]", "claude-haiku-5-5", "claude-haiku-5-5", 1_000_000, true},
		{"claude-sonnet-4-5", "claude-sonnet-4-5", "claude-sonnet-4-5", 200_000, true},
		{"claude-sonnet-4-5[1M]", "claude-sonnet-4-5", "claude-sonnet-4-5", 1_000_000, true},
		{"claude-opus-4-5-20251101", "claude-opus-4-5-20251101", "claude-opus-4-5", 200_000, true},
		{"claude-opus-4-5-20991231", "claude-opus-4-5-20991231", "claude-opus-4-5", 200_000, true},
		{"claude-opus-4-5-latest", "claude-opus-4-5-latest", "claude-opus-4-5", 200_000, true},
		{"claude-sonnet-4-5@20250929", "claude-sonnet-4-5@20250929", "claude-sonnet-4-5", 200_000, true},
		{"anthropic.claude-opus-5-5-v1", "anthropic.claude-opus-5-5-v1", "claude-opus-5-5", 1_000_000, true},
		{"eu.anthropic.claude-haiku-4-5-20251001-v1:0", "eu.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5", 200_000, true},
		{"arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-opus-5-5", "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-opus-5-5", "claude-opus-5-5", 1_000_000, true},
		{"claude-opus-4-1-20250805", "claude-opus-5-5", "claude-opus-5-5", 1_000_000, true},
		{"claude-opus-9", "claude-opus-9", "claude-opus-9", 200_000, false},
		{"gpt-oss:20b", "gpt-oss:20b", "gpt-oss:20b", 200_000, false},
		{"[1m]", "[1m]", "[1m]", 200_000, false},
		{"", "", "", 200_000, false},
	} {
		m, ok := c.Resolve(r.name)
		if ok != r.known || m.ID != r.id || m.Canonical != r.canonical || m.ContextWindow != r.window {
			t.Errorf("%q: %v %+v", r.name, ok, m)
		}
		if m.Priced() != ok {
			t.Errorf("%q: prices %v", r.name, m.Prices)
		}
		if n, known := m.Cost(&wire.Usage{InputTokens: 1}); known != ok || !ok && n != 0 {
			t.Errorf("%q: costs %d, %v", r.name, n, known)
		}
	}
	m, _ := c.Resolve("opus")
	m.Aliases[0], m.Efforts[0] = "x", "x"
	if again, _ := c.Resolve("opus"); again.Aliases[0] == "x" || again.Efforts[0] == "x" {
		t.Error("the table can be changed from outside")
	}
}

func TestExtend(t *testing.T) {
	c := New()
	err := c.Extend([]byte(`{"models":[
		{"id":"qwen3-coder","aliases":["qwen","haiku"],"name":"Qwen","context_window":262144,"max_output_tokens":8192,"thinking":"none","efforts":["low"],
		 "prices":{"input":0.22,"output":"0.95","cache_read":0.01875,"web_search":10}},
		{"id":"local","prices":null},
		{"id":"free","prices":{"input":0,"output":0}},
		{"id":"claude-opus-5-5","context_window":500000},
		{"id":"claude-sonnet-4-5","prices":{"input":1,"output":2}},
		{"id":"claude-opus-5","prices":null}
	]}`))
	if err != nil {
		t.Fatal(err)
	}
	show := func(name string) string {
		m, ok := c.Resolve(name)
		if m.Prices == nil {
			return fmt.Sprint(ok, m.ID, m.ContextWindow, m.MaxOutput, m.DefaultOutput, nil)
		}
		return fmt.Sprint(ok, m.ID, m.ContextWindow, m.MaxOutput, m.DefaultOutput, *m.Prices)
	}
	for name, want := range map[string]string{
		"qwen":                       "trueqwen3-coder262144 8192 8192 {220 950 220 220 19 10000000}",
		"haiku":                      "trueqwen3-coder262144 8192 8192 {220 950 220 220 19 10000000}",
		"local":                      "truelocal200000 32000 32000 <nil>",
		"free":                       "truefree200000 32000 32000 {0 0 0 0 0 0}",
		"opus":                       "trueclaude-opus-5-5500000 128000 128000 {4000 20000 5000 8000 200 10000000}",
		"claude-sonnet-4-5-20250929": "trueclaude-sonnet-4-5-20250929200000 64000 32000 {1000 2000 1000 1000 1000 0}",
		"claude-opus-5":              "trueclaude-opus-51000000 128000 64000 <nil>",
	} {
		if got := show(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	before := len(c.All())
	for _, bad := range []string{
		``, `[]`, `{"model":[]}`, `{"models":[{"id":""}]}`, `{"models":[{"id":"a","price":{}}]}`,
		`{"models":[{"id":"a"},{"id":"b","context_window":-1}]}`,
		`{"models":[{"id":"a","default_output_tokens":99999}]}`,
		`{"models":[{"id":"a","prices":{"input":1}}]}`,
		`{"models":[{"id":"a","prices":{"input":1,"output":-1}}]}`,
		`{"models":[{"id":"a","prices":{"input":1e99,"output":1}}]}`,
		`{"models":[{"id":"a","prices":{"input":1,"output":1e-9999999999}}]}`,
		`{"models":[{"id":"a","prices":{"input":1,"output":1,"cache":1}}]}`,
		`{"models":[{"id":"a","aliases":["local"]}]}`,
		`{"models":[{"id":"a","thinking":"hard"}]}`,
	} {
		if err := c.Extend([]byte(bad)); err == nil || !strings.HasPrefix(err.Error(), "catalog: ") {
			t.Errorf("%s: error %v", bad, err)
		}
	}
	if len(c.All()) != before {
		t.Error("a document with an error changed the catalog")
	}
	if m, _ := New().Resolve("haiku"); m.ID != "claude-haiku-5-5" {
		t.Error("another catalog was changed")
	}
}
