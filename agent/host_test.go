package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestHostAnswersCall checks that a result from the host answers the call with that id, whatever
// state the call is in. Its tool is stopped, or never runs.
func TestHostAnswersCall(t *testing.T) {
	result := func(id, text string) string {
		return fmt.Sprintf(`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":%q,"content":%q}]}}`, id, text)
	}
	for _, tt := range []struct {
		name   string
		args   []string
		script *parleytest.Scenario
		answer []string
		ran    int // times that the tool began
		stops  int // times that it was stopped
	}{
		{"runs", []string{"--allowedTools", "Slow"}, parleytest.Script(
			new(parleytest.Turn).CallID("call_1", "Slow", `{}`), parleytest.Expect(parleytest.ToolResult("by hand")).Say("ok")),
			[]string{result("call_1", "by hand")}, 1, 1},
		{"asks", []string{"--permission-prompt-tool", "stdio", "--settings", `{"permissions":{"ask":["Slow"]}}`}, parleytest.Script(
			new(parleytest.Turn).CallID("call_1", "Slow", `{}`), parleytest.Expect(parleytest.ToolResult("by hand")).Say("ok")),
			[]string{result("call_1", "by hand")}, 0, 0},
		{"first counts", []string{"--allowedTools", "Slow"}, parleytest.Script(
			new(parleytest.Turn).CallID("call_1", "Slow", `{}`), parleytest.Expect(parleytest.ToolResult("by hand")).Say("ok").Times(1), parleytest.Say("ok")),
			[]string{result("call_1", "by hand"), result("call_1", "again")}, 1, 1},
		{"second of two", []string{"--allowedTools", "Slow"}, parleytest.Script(
			new(parleytest.Turn).CallID("call_1", "Slow", `{}`).CallID("call_2", "Slow", `{}`), parleytest.Expect(parleytest.ToolResult("by hand")).Say("ok")),
			[]string{result("call_2", "by hand"), result("call_1", "me too")}, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ran, stops := 0, 0
				slow := &funcTool{"Slow", false, func(ctx context.Context, _ *tool.Call) (*tool.Result, error) {
					ran++
					select {
					case <-ctx.Done():
						stops++
						return nil, ctx.Err()
					case <-time.After(time.Hour):
						return tool.Text("by itself", nil), nil
					}
				}}
				m := tt.script.Model()
				m.Strict = true
				a := start(t, agent.Config{Model: m, Cwd: t.TempDir(), Tools: []tool.Tool{slow}}, append(append([]string{}, streaming...), tt.args...))
				go func() {
					io.WriteString(a.stdin, hello+"\n")
					time.Sleep(10 * time.Second)
					for _, line := range tt.answer {
						io.WriteString(a.stdin, line+"\n")
						time.Sleep(time.Second)
					}
					time.Sleep(10 * time.Second)
					a.stdin.Close()
				}()
				began := time.Now()
				var results []string
				var last *wire.Result
				cancelled := false
				lines := wire.NewReader(a.stdout, nil)
				for m, err := lines.Next(); err == nil; m, err = lines.Next() {
					switch m := m.(type) {
					case *wire.User:
						for _, b := range m.Message.Content.All() {
							if b, ok := b.(*wire.ToolResultBlock); ok {
								results = append(results, b.Content.String())
							}
						}
					case *wire.Result:
						if last == nil {
							last = m
						}
					case *wire.ControlCancelRequest:
						cancelled = true
					}
				}
				if code := a.wait(); code != 0 || last == nil || last.Result != "ok" || last.NumTurns < 2 || time.Since(began) > time.Minute {
					t.Errorf("exit %d, result %+v after %v; %s", code, last, time.Since(began), a.stderr)
				}
				if len(results) == 0 || !slices.Contains(results, "by hand") || ran != tt.ran || stops != tt.stops {
					t.Errorf("results %q, the tool ran %d times and was stopped %d times", results, ran, stops)
				}
				if tt.name == "asks" && !cancelled {
					t.Error("the question was not taken back")
				}
			})
		})
	}
}

// TestReplayHistory replays the earlier messages if the host asks for it.
func TestReplayHistory(t *testing.T) {
	store, dir := &session.Memory{}, t.TempDir()
	talk := func(args ...string) told {
		m := parleytest.Script(parleytest.Say("ok")).Model()
		return say(t, agent.Config{Model: m, Store: store, Cwd: dir}, args, hello)
	}
	first := talk()
	id := first.init.SessionID
	if got := kinds(talk("--resume", id).all); got != "system/init assistant result" {
		t.Errorf("without the flag: %s", got)
	}
	again := talk("--resume", id, "--replay-history")
	if got := kinds(again.all); got != "system/init user assistant user assistant assistant result" {
		t.Fatalf("with the flag: %s", got)
	}
	u, a := again.all[1].(*wire.User), again.all[2].(*wire.Assistant)
	if !u.IsReplay || u.Message.Content.String() != "hi" || u.SessionID != id || u.Timestamp == "" || a.Message.Content.String() != "ok" || a.SessionID != id {
		t.Errorf("%+v\n%+v", u, a)
	}
}

// TestRateLimits checks that the limits that the API reports are sent to the host, once they matter.
func TestRateLimits(t *testing.T) {
	for _, tt := range []struct {
		name   string
		header map[string]string
		status int
		want   []string
	}{
		{"none", nil, 200, nil},
		{"far away", map[string]string{"anthropic-ratelimit-requests-limit": "100", "anthropic-ratelimit-requests-remaining": "90"}, 200, nil},
		{"near", map[string]string{"anthropic-ratelimit-requests-limit": "100", "anthropic-ratelimit-requests-remaining": "90",
			"anthropic-ratelimit-input-tokens-limit": "1000", "anthropic-ratelimit-input-tokens-remaining": "100", "anthropic-ratelimit-input-tokens-reset": "2026-02-18T05:00:00Z"}, 200,
			[]string{`{"status":"allowed_warning","resetsAt":1771390800,"utilization":0.9,"isUsingOverage":false,"limitScope":"input_tokens"}`}},
		{"subscription", map[string]string{"anthropic-ratelimit-unified-status": "allowed", "anthropic-ratelimit-unified-reset": "1771390800", "anthropic-ratelimit-unified-representative-claim": "five_hour",
			"anthropic-ratelimit-unified-5h-utilization": "0.85", "anthropic-ratelimit-unified-overage-status": "rejected", "anthropic-ratelimit-unified-overage-disabled-reason": "org_level_disabled"}, 200,
			[]string{`{"status":"allowed","resetsAt":1771390800,"rateLimitType":"five_hour","utilization":0.85,"overageStatus":"rejected","overageDisabledReason":"org_level_disabled","isUsingOverage":false}`}},
		{"overage", map[string]string{"anthropic-ratelimit-unified-status": "rejected", "anthropic-ratelimit-unified-representative-claim": "seven_day", "anthropic-ratelimit-unified-7d-reset": "1771390800",
			"anthropic-ratelimit-unified-overage-status": "allowed", "anthropic-ratelimit-unified-overage-reset": "1771390900"}, 200,
			[]string{`{"status":"rejected","resetsAt":1771390800,"rateLimitType":"seven_day","overageStatus":"allowed","overageResetsAt":1771390900,"isUsingOverage":true}`}},
		{"refused", map[string]string{"anthropic-ratelimit-requests-limit": "100", "anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "2026-02-18T05:00:00Z", "retry-after": "1"}, 429,
			[]string{`{"status":"rejected","resetsAt":1771390800,"utilization":1,"isUsingOverage":false,"limitScope":"requests"}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api := newEndpoint(t)
			api.answer = func(n int, w http.ResponseWriter, _ *http.Request) {
				for k, v := range tt.header {
					w.Header().Set(k, v)
				}
				if tt.status != 200 {
					w.WriteHeader(tt.status)
					io.WriteString(w, `{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`)
					return
				}
				sayOK(w)
			}
			got := say(t, agent.Config{Environ: []string{"ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=" + api.URL, "CLAUDE_CODE_MAX_RETRIES=0"}}, nil, hello, hello)
			var events []string
			for _, m := range got.all {
				if e, ok := m.(*wire.RateLimitEvent); ok {
					line, err := wire.Encode(e)
					if err != nil || e.SessionID != got.init.SessionID || e.UUID == "" {
						t.Errorf("%v %+v", err, e)
					}
					_, info, _ := strings.Cut(string(line), `"rate_limit_info":`)
					info, _, _ = strings.Cut(info, `,"session_id"`)
					events = append(events, info)
				}
			}
			if strings.Join(events, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(events, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// TestControlsDoNotLie checks that the host receives the values that it sets, and that its seeds
// apply.
func TestControlsDoNotLie(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "seen.txt"), "one\n")
	info, err := os.Stat(filepath.Join(dir, "seen.txt"))
	if err != nil {
		t.Fatal(err)
	}
	api := newEndpoint(t)
	file, _ := json.Marshal(filepath.Join(dir, "seen.txt"))
	api.answer = func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			stream(w, "tool_use", "", calling("Edit", fmt.Sprintf(`{"file_path":%s,"old_string":"one","new_string":"two"}`, file)))
			return
		}
		testwait.Pause(20 * time.Millisecond)
		sayOK(w)
	}
	control := func(id, request string) string {
		return fmt.Sprintf(`{"type":"control_request","request_id":%q,"request":%s}`, id, request)
	}
	a := start(t, agent.Config{Cwd: dir, Environ: []string{"ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=" + api.URL}},
		append(append([]string{}, streaming...), "--model", "claude-opus-4-6", "--effort", "high", "--permission-mode", "acceptEdits"))
	answers := map[string]string{}
	go func() {
		for _, line := range []string{
			control("1", `{"subtype":"apply_flag_settings","settings":{"effortLevel":"low"}}`), control("2", `{"subtype":"get_settings"}`),
			control("3", fmt.Sprintf(`{"subtype":"seed_read_state","path":%s,"mtime":%d}`, file, info.ModTime().UnixMilli())), hello,
		} {
			io.WriteString(a.stdin, line+"\n")
		}
	}()
	lines := wire.NewReader(a.stdout, nil)
	for m, err := lines.Next(); err == nil; m, err = lines.Next() {
		switch m := m.(type) {
		case *wire.ControlResponse:
			answers[m.Response.RequestID] = string(m.Response.Response)
			if m.Response.RequestID == "4" {
				a.stdin.Close()
			}
		case *wire.Result:
			if m.IsError {
				t.Error(m.Result)
			}
			go io.WriteString(a.stdin, control("4", `{"subtype":"get_usage"}`)+"\n")
		}
	}
	a.wait()
	if !strings.Contains(answers["2"], `"effort":"low"`) {
		t.Errorf("settings %s", answers["2"])
	}
	if !strings.Contains(api.bodies[0], `"effort":"low"`) {
		t.Error("the effort does not reach the request")
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "seen.txt")); string(text) != "two\n" {
		t.Errorf("the file that the host has shown holds %q", text)
	}
	var usage wire.GetUsageResponse
	if err := json.Unmarshal([]byte(answers["4"]), &usage); err != nil || usage.Session.TotalAPIDurationMS < 20 || usage.Session.TotalDurationMS < usage.Session.TotalAPIDurationMS {
		t.Errorf("%v, usage %s", err, answers["4"])
	}
}

// TestTimestamps checks that every message has the time at which it was sent, once.
func TestTimestamps(t *testing.T) {
	api := newEndpoint(t)
	api.answer = func(n int, w http.ResponseWriter, _ *http.Request) {
		switch n {
		case 1:
			w.Header().Set("retry-after-ms", "1")
			w.WriteHeader(429)
		case 2:
			stream(w, "tool_use", "", calling("Read", `{"file_path":"nowhere"}`))
		default:
			sayOK(w)
		}
	}
	began := time.Now().Truncate(time.Millisecond)
	var out, stderr safeBuffer
	in := initialize + "\n" + `{"type":"control_request","request_id":"m","request":{"subtype":"set_model","model":"haiku"}}` + "\n" +
		`{"type":"control_request","request_id":"p","request":{"subtype":"set_permission_mode","mode":"plan"}}` + "\n" + hello + "\n"
	agent.Run(t.Context(), agent.Config{Cwd: t.TempDir(), Environ: []string{"ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=" + api.URL}},
		append(append([]string{}, streaming...), "--include-partial-messages"), strings.NewReader(in), &out, &stderr)
	seen := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		var m struct {
			Type, Subtype, Timestamp string
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err, line)
		}
		seen[m.Type+m.Subtype] = true
		if strings.HasPrefix(m.Type, "control_") {
			continue
		}
		if at, err := time.Parse(time.RFC3339, m.Timestamp); err != nil || at.Before(began) {
			t.Errorf("%v in %s", err, line)
		}
	}
	for _, want := range []string{"systeminit", "systemstatus", "systemapi_retry", "rate_limit_event", "stream_event", "assistant", "user", "resultsuccess", "control_response"} {
		if !seen[want] {
			t.Errorf("no %s", want)
		}
	}
}

// TestStreamsKeepBreaking checks that the last attempt requests the answer in one piece.
func TestStreamsKeepBreaking(t *testing.T) {
	for _, refused := range []bool{false, true} {
		api := newEndpoint(t)
		api.answer = func(n int, w http.ResponseWriter, r *http.Request) {
			api.mu.Lock()
			body := api.bodies[n-1]
			api.mu.Unlock()
			switch {
			case strings.Contains(body, `"stream":true`):
				w.Header().Set("Content-Type", "text/event-stream")
				io.WriteString(w, `data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`+"\n\n")
			case refused:
				w.WriteHeader(500)
			default:
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, `{"id":"m","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"whole"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`)
			}
		}
		got := say(t, agent.Config{Environ: []string{"ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=" + api.URL, "CLAUDE_CODE_MAX_RETRIES=1"}}, nil, hello)
		if len(api.bodies) != 3 || len(retries(got.all)) != 1 || got.result == nil || got.result.IsError != refused || !refused && got.result.Result != "whole" {
			t.Errorf("refused %v: %d requests, %s, result %+v", refused, len(api.bodies), kinds(got.all), got.result)
		}
	}
}

// TestRefusedFeaturesAreDropped checks that a request is sent again without the beta features that an API or
// a gateway refuses, also in later turns, and that other complaints end the turn at once.
func TestRefusedFeaturesAreDropped(t *testing.T) {
	const updates, interleaved = "thinking-display-updates-2026-08-18", "interleaved-thinking-2025-05-14"
	for _, tt := range []struct {
		complaint string
		without   []string // nil if the turn fails
	}{
		{"Unexpected value(s) `" + updates + "` for the `anthropic-beta` header.", []string{updates, `"display"`}},
		{"thinking.enabled.display: Extra inputs are not permitted", []string{updates, `"display"`}},
		{"anthropic-beta: this header is not supported", []string{updates, interleaved, `"display"`}},
		{"Unexpected value(s) `" + interleaved + "` for the `anthropic-beta` header.", []string{interleaved}},
		{"max_tokens: too large", nil},
	} {
		t.Run(tt.complaint, func(t *testing.T) {
			var sent []string
			api := newEndpoint(t)
			api.answer = func(n int, w http.ResponseWriter, r *http.Request) {
				api.mu.Lock()
				sent = append(sent, r.Header.Get("anthropic-beta")+" "+api.bodies[n-1])
				api.mu.Unlock()
				if n == 1 || tt.without == nil {
					w.WriteHeader(400)
					fmt.Fprintf(w, `{"type":"error","error":{"type":"invalid_request_error","message":%q}}`, tt.complaint)
					return
				}
				sayOK(w)
			}
			got := say(t, agent.Config{Environ: []string{"ANTHROPIC_API_KEY=k", "ANTHROPIC_BASE_URL=" + api.URL}}, []string{"--model", "claude-sonnet-4-5"}, hello, hello)
			if got.result == nil || got.result.IsError != (tt.without == nil) {
				t.Fatalf("result %+v", got.result)
			}
			api.mu.Lock()
			defer api.mu.Unlock()
			if want := 3; tt.without != nil && len(sent) != want || tt.without == nil && len(sent) > 2 {
				t.Fatalf("%d requests, want %d, or one for each turn that fails", len(sent), want)
			}
			for _, what := range tt.without {
				if !strings.Contains(sent[0], what) {
					t.Errorf("the first request has no %s", what)
				}
				for _, later := range sent[1:] {
					if strings.Contains(later, what) {
						t.Errorf("a later request has %s: %.300s", what, later)
					}
				}
			}
		})
	}
}

// TestOriginOfPrompts checks that a host may only say that a person wrote a prompt: the prompt, its
// record and its result have it. The result of a synthetic prompt without an origin is unclassified.
func TestOriginOfPrompts(t *testing.T) {
	for origin, want := range map[string]string{`{"kind":"human"}`: "human", `{"kind":"peer","from":"x"}`: "", `{"kind":"task-notification"}`: "", `null`: "", `null,"isSynthetic":true`: "unclassified"} {
		store := &session.Memory{}
		got := say(t, agent.Config{Model: parleytest.Script(parleytest.Say("ok")).Model(), Store: store}, []string{"--replay-user-messages"},
			`{"type":"user","origin":`+origin+`,"message":{"role":"user","content":"hi"}}`)
		if got.result == nil {
			t.Fatal(got.stderr)
		}
		kind := func(o *wire.Origin) string {
			if o == nil {
				return ""
			}
			return o.Kind
		}
		if kind(got.result.Origin) != want {
			t.Errorf("%s: the result has %q, want %q", origin, kind(got.result.Origin), want)
		}
		for _, m := range got.all {
			if u, ok := m.(*wire.User); ok && kind(u.Origin) != want && !u.IsSynthetic {
				t.Errorf("%s: the prompt has %q, want %q", origin, kind(u.Origin), want)
			}
		}
		log, h, err := session.Open(t.Context(), store, got.result.SessionID, session.Meta{})
		if err != nil {
			t.Fatal(err)
		}
		log.Close()
		for _, e := range h.Entries {
			if e.Type == "user" && (strings.Contains(string(e.Fields["origin"]), "human")) != (want == "human") {
				t.Errorf("%s: the record has %s, want %q", origin, e.Fields["origin"], want)
			}
		}
	}
}

// TestFlagsWithoutEffectAreReported checks that they are reported once, on standard error and to the
// host.
func TestFlagsWithoutEffectAreReported(t *testing.T) {
	got := say(t, agent.Config{Model: parleytest.Script(parleytest.Say("ok")).Model(), Store: &session.Memory{}}, []string{"--workload", "x", "--brief", "--brief"}, hello)
	const want = "without effect in this version: --brief, --workload"
	if strings.Count(got.stderr, want) != 1 {
		t.Errorf("standard error: %s", got.stderr)
	}
	n := 0
	for _, m := range got.all {
		if i, ok := m.(*wire.Informational); ok && strings.Contains(i.Content, want) {
			n++
		}
	}
	if n != 1 {
		t.Errorf("the host received the notice %d times", n)
	}
}
