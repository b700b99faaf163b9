package agent_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/wire"
)

// A request is a request to a model.
type request struct {
	Model     string          `json:"model"`
	MaxTokens int64           `json:"max_tokens"`
	Thinking  json.RawMessage `json:"thinking"`
	Output    struct {
		Effort string `json:"effort"`
	} `json:"output_config"`
}

// TestRequest checks that the flags for the model reach the request, in the form that
// the model accepts. The rows are the requests of the official agent.
func TestRequest(t *testing.T) {
	for _, tt := range []struct {
		args     string
		model    string
		tokens   int64
		thinking string
		effort   string
		betas    string
	}{
		{"--model sonnet", "claude-sonnet-5-5", 128000, `{"type":"adaptive","display":"updates"}`, "medium", "effort-2025-11-24,interleaved-thinking-2025-05-14,thinking-display-updates-2026-08-18"},
		{"--model sonnet --thinking enabled", "claude-sonnet-5-5", 128000, `{"type":"adaptive","display":"updates"}`, "medium", "effort-2025-11-24,interleaved-thinking-2025-05-14,thinking-display-updates-2026-08-18"},
		{"--model sonnet --thinking disabled", "claude-sonnet-5-5", 128000, `{"type":"adaptive","display":"updates"}`, "medium", "effort-2025-11-24,interleaved-thinking-2025-05-14,thinking-display-updates-2026-08-18"},
		{"--model sonnet --max-thinking-tokens 2000", "claude-sonnet-5-5", 128000, `{"type":"adaptive","display":"updates"}`, "medium", "effort-2025-11-24,interleaved-thinking-2025-05-14,thinking-display-updates-2026-08-18"},
		{"--model sonnet --thinking-display summarized", "claude-sonnet-5-5", 128000, `{"type":"adaptive","display":"summarized"}`, "medium", "effort-2025-11-24,interleaved-thinking-2025-05-14"},
		{"--model sonnet --effort low --betas foo-2025,bar-2026", "claude-sonnet-5-5", 128000, `{"type":"adaptive","display":"updates"}`, "low", "effort-2025-11-24,interleaved-thinking-2025-05-14,thinking-display-updates-2026-08-18"},
		{"--model claude-sonnet-4-6 --thinking disabled", "claude-sonnet-4-6", 32000, `{"type":"disabled"}`, "high", "effort-2025-11-24,interleaved-thinking-2025-05-14"},
		{"--model claude-opus-4-6 --effort xhigh", "claude-opus-4-6", 64000, `{"type":"adaptive","display":"updates"}`, "high", "effort-2025-11-24,interleaved-thinking-2025-05-14,thinking-display-updates-2026-08-18"},
		{"--model claude-sonnet-4-5", "claude-sonnet-4-5", 32000, `{"type":"enabled","budget_tokens":31999,"display":"updates"}`, "", "interleaved-thinking-2025-05-14,thinking-display-updates-2026-08-18"},
		{"--model claude-sonnet-4-5 --thinking adaptive", "claude-sonnet-4-5", 32000, `{"type":"enabled","budget_tokens":31999,"display":"updates"}`, "", "interleaved-thinking-2025-05-14,thinking-display-updates-2026-08-18"},
		{"--model claude-sonnet-4-5 --max-thinking-tokens 2000 --effort low", "claude-sonnet-4-5", 32000, `{"type":"enabled","budget_tokens":2000,"display":"updates"}`, "", "interleaved-thinking-2025-05-14,thinking-display-updates-2026-08-18"},
		{"--model claude-sonnet-4-5 --max-thinking-tokens 0", "claude-sonnet-4-5", 32000, `{"type":"disabled"}`, "", "interleaved-thinking-2025-05-14"},
		{"--model claude-sonnet-4-5[1m]", "claude-sonnet-4-5", 32000, `{"type":"enabled","budget_tokens":31999,"display":"updates"}`, "", "context-1m-2025-08-07,interleaved-thinking-2025-05-14,thinking-display-updates-2026-08-18"},
		{"--model claude-3-5-sonnet-20241022", "claude-3-5-sonnet-20241022", 8192, ``, "", "interleaved-thinking-2025-05-14"},
		{"--model claude-3-5-sonnet-20241022 --thinking enabled", "claude-3-5-sonnet-20241022", 8192, ``, "", "interleaved-thinking-2025-05-14"},
		{"--model some-other", "some-other", 32000, ``, "", "interleaved-thinking-2025-05-14"},
		{"--model some-other --thinking enabled --effort max", "some-other", 32000, `{"type":"enabled","budget_tokens":31999,"display":"updates"}`, "max", "effort-2025-11-24,interleaved-thinking-2025-05-14,thinking-display-updates-2026-08-18"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			api := newEndpoint(t)
			got := say(t, agent.Config{Environ: []string{"ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=" + api.URL}}, strings.Fields(tt.args), hello)
			if got.code != 0 {
				t.Fatal(got.stderr)
			}
			var r request
			if err := json.Unmarshal([]byte(api.bodies[0]), &r); err != nil {
				t.Fatal(err)
			}
			if r.Model != tt.model || r.MaxTokens != tt.tokens || string(r.Thinking) != tt.thinking || r.Output.Effort != tt.effort {
				t.Errorf("asked %+v, thinking %s", r, r.Thinking)
			}
			if b := api.asked[0].Header.Get("anthropic-beta"); b != tt.betas {
				t.Errorf("betas %q", b)
			}
		})
	}
}

// TestWindow checks that the API counts tokens near the end of the window, that a
// request that does not fit is not sent, and that the remaining tokens limit the
// answer.
func TestWindow(t *testing.T) {
	big := `{"type":"user","message":{"role":"user","content":"` + strings.Repeat("word ", 150_000) + `"}}`
	for _, tt := range []struct {
		name   string
		count  int64 // the count of the API; 0 if it cannot count
		sent   bool
		tokens int64 // the limit of the answer
		reason string
	}{
		{"fits", 100_000, true, 32000, "completed"},
		{"tight", 190_000, true, 10_000, "completed"},
		{"too long", 199_000, false, 0, "blocking_limit"},
		{"cannot count", 0, true, 32000, "completed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			api := newEndpoint(t)
			asked := []string{}
			api.answer = func(n int, w http.ResponseWriter, r *http.Request) {
				api.mu.Lock()
				asked = append(asked, r.URL.Path)
				api.mu.Unlock()
				switch {
				case !strings.HasSuffix(r.URL.Path, "count_tokens"):
					sayOK(w)
				case tt.count == 0:
					http.NotFound(w, r)
				default:
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"input_tokens":%d}`, tt.count)
				}
			}
			got := say(t, agent.Config{Environ: []string{"ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=" + api.URL}}, []string{"--model", "claude-sonnet-4-5"}, big)
			want := "/v1/messages/count_tokens"
			if tt.sent {
				want += " /v1/messages"
			}
			if s := strings.Join(asked, " "); s != want || got.result == nil || got.result.TerminalReason != tt.reason {
				t.Fatalf("asked %s, result %+v", s, got.result)
			}
			if !tt.sent {
				if s := synthetic(got.all); got.code != 1 || !strings.HasPrefix(got.result.Result, "Prompt is too long: it has 199000 tokens, and the model takes 200000") || s.Error != wire.ErrorInvalidRequest {
					t.Errorf("exit %d, result %+v, synthetic %+v", got.code, got.result, s)
				}
				return
			}
			var r request
			if err := json.Unmarshal([]byte(api.bodies[1]), &r); err != nil || r.MaxTokens != tt.tokens {
				t.Errorf("%v, max_tokens is %d", err, r.MaxTokens)
			}
		})
	}
	t.Run("small", func(t *testing.T) {
		api := newEndpoint(t)
		say(t, agent.Config{Environ: []string{"ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=" + api.URL}}, []string{"--model", "claude-sonnet-4-5"}, hello)
		if len(api.asked) != 1 {
			t.Errorf("%d requests", len(api.asked))
		}
	})
}
