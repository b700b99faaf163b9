package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// officialCLI returns the official CLI below the directory in PARLEY_PEERS. It runs only inside
// of scripts/offline, where it can reach only loopback:
//
//	PARLEY_PEERS=$(scripts/peers) scripts/offline go test -run Official ./engine/model/catalog
func officialCLI(t *testing.T) string {
	t.Helper()
	peers := os.Getenv("PARLEY_PEERS")
	if peers == "" || os.Getenv("PARLEY_OFFLINE") != "1" {
		t.Skip("the official CLI is asked inside of scripts/offline, with PARLEY_PEERS set")
	}
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	cli := filepath.Join(peers, "node_modules", "@anthropic-ai", "claude-agent-sdk-"+runtime.GOOS+"-"+arch, "claude")
	if _, err := os.Stat(cli); err != nil {
		t.Skipf("the official CLI is not there: %v", err)
	}
	return cli
}

// A use is a made-up usage, to find its cost.
type use struct {
	parleytest.Usage
	extra string // members of the usage that the test kit does not support
}

// of returns the usage as the API would report it.
func (u use) of(t *testing.T) *wire.Usage {
	t.Helper()
	out := &wire.Usage{
		InputTokens: int64(u.Input), OutputTokens: int64(u.Output), CacheReadInputTokens: int64(u.CacheRead),
		CacheCreationInputTokens: int64(u.CacheWrite + u.CacheWrite1h),
		CacheCreation:            &wire.CacheCreation{Ephemeral5mInputTokens: int64(u.CacheWrite), Ephemeral1hInputTokens: int64(u.CacheWrite1h)},
		ServerToolUse:            &wire.ServerToolUsage{WebSearchRequests: int64(u.WebSearch)},
	}
	if err := json.Unmarshal([]byte("{"+u.extra+"}"), &struct {
		Speed *string
		Geo   *string `json:"inference_geo"`
	}{&out.Speed, &out.InferenceGeo}); err != nil {
		t.Fatal(err)
	}
	return out
}

// An adder adds members to the usage in a response.
type adder struct {
	http.ResponseWriter
	extra string
}

func (a adder) Write(p []byte) (int, error) {
	const at = `"service_tier":"standard"`
	if _, err := a.ResponseWriter.Write(bytes.ReplaceAll(p, []byte(at), []byte(at+","+a.extra))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (a adder) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a adder) Flush() { _ = http.NewResponseController(a.ResponseWriter).Flush() }

// asked is the CLI's request and its report for a usage.
type asked struct {
	name string // the model that the usage is booked under
	wire.ModelUsage
	request struct {
		Model        string
		MaxTokens    int64 `json:"max_tokens"`
		Thinking     struct{ Type string }
		OutputConfig struct{ Effort string } `json:"output_config"`
	}
}

func ask(t *testing.T, cli, name string, u use, env []string, args ...string) *asked {
	t.Helper()
	api := parleytest.NewHandler(parleytest.Script().Default(parleytest.Say("hi").Usage(u.Usage)), &parleytest.APIOptions{Lenient: true, Partial: true})
	defer api.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u.extra != "" {
			w = adder{w, u.extra}
		}
		api.ServeHTTP(w, r)
	}))
	defer srv.Close()
	c := exec.CommandContext(testwait.Context(t), cli, append([]string{"-p", "hi", "--output-format", "json", "--model", name}, args...)...)
	c.Dir = t.TempDir()
	c.Env = append([]string{
		"HOME=" + t.TempDir(), "PATH=/usr/bin:/bin",
		"ANTHROPIC_BASE_URL=" + srv.URL, "ANTHROPIC_API_KEY=sk-ant-fake-test-key",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "DISABLE_AUTOUPDATER=1", "IS_SANDBOX=1",
	}, env...)
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	var result struct{ ModelUsage map[string]wire.ModelUsage }
	if err := json.Unmarshal(out, &result); err != nil || len(result.ModelUsage) != 1 || len(api.Requests()) != 1 {
		t.Fatalf("%s: %v, %d requests\n%s", name, err, len(api.Requests()), out)
	}
	a := &asked{}
	for a.name, a.ModelUsage = range result.ModelUsage {
	}
	if err := json.Unmarshal(api.Requests()[0].Body, &a.request); err != nil {
		t.Fatal(err)
	}
	return a
}

// The official CLI is the reference for everything in the table: it receives made-up usage, one
// kind at a time, and reports the cost.
func TestOfficial(t *testing.T) {
	cli := officialCLI(t)
	const many = 1_000_000
	uses := map[string]use{
		"input":      {Usage: parleytest.Usage{Input: many}},
		"output":     {Usage: parleytest.Usage{Output: many}},
		"5m":         {Usage: parleytest.Usage{CacheWrite: many}},
		"1h":         {Usage: parleytest.Usage{CacheWrite1h: many}},
		"read":       {Usage: parleytest.Usage{CacheRead: many}},
		"search":     {Usage: parleytest.Usage{WebSearch: 1000}},
		"few":        {Usage: parleytest.Usage{Input: 30_000, Output: 7, CacheWrite: 20_000, CacheWrite1h: 10_000, CacheRead: 40_000, WebSearch: 1}},
		"few plus 1": {Usage: parleytest.Usage{Input: 30_000, Output: 7, CacheWrite: 20_000, CacheWrite1h: 10_000, CacheRead: 40_001, WebSearch: 1}},
		"fast":       {Usage: parleytest.Usage{Input: 1000, Output: 10, CacheRead: 100, WebSearch: 1}, extra: `"speed":"fast"`},
		"us":         {Usage: parleytest.Usage{Input: 1000, Output: 10, CacheRead: 100, WebSearch: 1}, extra: `"inference_geo":"us"`},
	}
	turn := make(chan struct{}, 2) // limits concurrency
	c := New()
	for _, m := range c.All() {
		t.Run(m.ID, func(t *testing.T) {
			t.Parallel()
			turn <- struct{}{}
			defer func() { <-turn }()
			for kind, u := range uses {
				a := ask(t, cli, m.ID, u, nil)
				want, _ := m.Cost(u.of(t))
				if got := int64(math.Round(a.CostUSD * 1e9)); got != want {
					t.Errorf("%s costs %d nano-dollars, want %d", kind, got, want)
				}
				if kind != "input" {
					continue
				}
				if a.CostBasis != "list" || a.CanonicalModel != m.Canonical || a.name != m.ID {
					t.Errorf("booked for %s as %+v", a.name, a.ModelUsage)
				}
				if a.ContextWindow != m.ContextWindow || a.MaxOutputTokens != m.DefaultOutput || a.request.MaxTokens != m.DefaultOutput {
					t.Errorf("window %d, output %d, max_tokens %d", a.ContextWindow, a.MaxOutputTokens, a.request.MaxTokens)
				}
				if a.request.OutputConfig.Effort != m.DefaultEffort {
					t.Errorf("the effort is %q", a.request.OutputConfig.Effort)
				}
				thinking := map[Thinking]string{ThinkingNone: "", ThinkingBudget: "enabled", ThinkingAdaptive: "adaptive", ThinkingAlways: "adaptive"}
				if a.request.Thinking.Type != thinking[m.Thinking] {
					t.Errorf("thinking is %q", a.request.Thinking.Type)
				}
			}
			a := ask(t, cli, m.ID, use{}, []string{"CLAUDE_CODE_MAX_OUTPUT_TOKENS=999999"})
			if a.request.MaxTokens != m.MaxOutput {
				t.Errorf("at most %d output tokens", a.request.MaxTokens)
			}
			// A level that a model does not support becomes another one.
			var efforts []string
			for _, level := range effort5 {
				if ask(t, cli, m.ID, use{}, nil, "--effort", level).request.OutputConfig.Effort == level {
					efforts = append(efforts, level)
				}
			}
			if fmt.Sprint(efforts) != fmt.Sprint(m.Efforts) {
				t.Errorf("efforts %v", efforts)
			}
			for _, alias := range m.Aliases {
				if a := ask(t, cli, alias, use{}, nil); a.CanonicalModel != m.Canonical {
					t.Errorf("%s is %s", alias, a.CanonicalModel)
				}
			}
		})
	}
	for _, name := range []string{
		"OPUS", "sonnet[1m]", "claude-sonnet-4-5", "claude-sonnet-4-5-20250929[1m]", "claude-3-5-haiku-latest",
		"us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-opus-4-0", "claude-haiku-5-5[1m]",
	} {
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			t.Parallel()
			turn <- struct{}{}
			defer func() { <-turn }()
			a := ask(t, cli, name, use{}, nil)
			m, ok := c.Resolve(name)
			if !ok || a.request.Model != m.ID || a.CanonicalModel != m.Canonical || a.ContextWindow != m.ContextWindow {
				t.Errorf("asked for %s, booked as %+v; here %+v", a.request.Model, a.ModelUsage, m)
			}
		})
	}
}
