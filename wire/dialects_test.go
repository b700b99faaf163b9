package wire_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/parley-go/parley/wire"
)

// TestDialects checks that spellings of other descriptions of the protocol decode to the
// same Go values, and are encoded unchanged.
func TestDialects(t *testing.T) {
	t.Run("error result", func(t *testing.T) {
		m := roundTrip(t, []byte(`{"type":"result","subtype":"error","error":{"type":"api_error","message":"Too many at once.","details":{"retry_after":2.50}},"session_id":"s","timestamp":"t"}`)).(*wire.Result)
		if m.Error == nil || m.Error.Type != "api_error" || m.Error.Message != "Too many at once." || string(m.Error.Details) != `{"retry_after":2.50}` {
			t.Errorf("got %+v", m.Error)
		}
		if m.Outcome() != wire.OutcomeModelError || m.Reason() != "Too many at once." {
			t.Errorf("%v: %s", m.Outcome(), m.Reason())
		}
	})
	for subtype, want := range map[string]wire.Outcome{
		"max_turns_reached": wire.OutcomeMaxTurns,
		"budget_exceeded":   wire.OutcomeBudget,
		"user_cancelled":    wire.OutcomeInterrupted,
		"error":             wire.OutcomeFailed,
	} {
		t.Run("result "+subtype, func(t *testing.T) {
			m := roundTrip(t, fmt.Appendf(nil, `{"type":"result","subtype":%q,"session_id":"s","num_turns":5}`, subtype)).(*wire.Result)
			if m.Outcome() != want {
				t.Errorf("got %v, want %v", m.Outcome(), want)
			}
		})
	}
	t.Run("flat token counts", func(t *testing.T) {
		m := roundTrip(t, []byte(`{"type":"result","subtype":"success","total_cost_usd":0.023,"input_tokens":1330,"output_tokens":512,"cache_creation_tokens":7,"cache_read_tokens":1e1}`)).(*wire.Result)
		want := &wire.Usage{InputTokens: 1330, OutputTokens: 512, CacheCreationInputTokens: 7, CacheReadInputTokens: 10}
		if !reflect.DeepEqual(m.Usage, want) {
			t.Errorf("got %+v", m.Usage)
		}
		// Longer names take precedence over shorter ones, and usage over both.
		m = roundTrip(t, []byte(`{"type":"result","subtype":"success","cache_read_tokens":1,"cache_read_input_tokens":2,"cache_creation_input_tokens":3,"cache_creation_tokens":4}`)).(*wire.Result)
		if m.Usage.CacheReadInputTokens != 2 || m.Usage.CacheCreationInputTokens != 3 {
			t.Errorf("got %+v", m.Usage)
		}
		m = roundTrip(t, []byte(`{"type":"result","subtype":"success","input_tokens":1,"usage":{"input_tokens":2}}`)).(*wire.Result)
		if m.Usage.InputTokens != 2 {
			t.Errorf("got %+v", m.Usage)
		}
		for _, line := range []string{
			`{"type":"result","subtype":"success","input_tokens":null,"output_tokens":"many"}`,
			`{"type":"result","subtype":"success","input_tokens":1,"usage":"much"}`,
			`{"type":"result","subtype":"success"}`,
		} {
			if m := roundTrip(t, []byte(line)).(*wire.Result); m.Usage != nil {
				t.Errorf("%s: %+v", line, m.Usage)
			}
		}
	})
	t.Run("errors as text", func(t *testing.T) {
		m := roundTrip(t, []byte(`{"type":"result","subtype":"error_during_execution","is_error":true,"errors":"No such session."}`)).(*wire.Result)
		if !reflect.DeepEqual(m.Errors, []string{"No such session."}) || m.Reason() != "No such session." {
			t.Errorf("got %q, %q", m.Errors, m.Reason())
		}
	})
	t.Run("error inside the message", func(t *testing.T) {
		for line, want := range map[string]wire.AssistantError{
			`{"type":"assistant","message":{"role":"assistant","content":[],"error":"rate_limit"}}`:                         wire.ErrorRateLimit,
			`{"type":"assistant","message":{"role":"assistant","content":[],"error":"rate_limit"},"error":null}`:            wire.ErrorRateLimit,
			`{"type":"assistant","message":{"role":"assistant","content":[],"error":"rate_limit"},"error":"server_error"}`:  wire.ErrorServer,
			`{"type":"assistant","message":{"role":"assistant","content":[],"error":"rate_limit"},"error":{"a":1}}`:         wire.ErrorRateLimit,
			`{"type":"assistant","message":{"role":"assistant","content":[],"error":{"a":1}}}`:                              "",
			`{"type":"assistant","message":{"role":"assistant","content":[],"error":"something else"}}`:                     "something else",
			`{"type":"assistant","message":{"role":"assistant","content":[],"error":null},"error":"authentication_failed"}`: wire.ErrorAuthentication,
		} {
			if m := roundTrip(t, []byte(line)).(*wire.Assistant); m.Error != want {
				t.Errorf("%s: %q, want %q", line, m.Error, want)
			}
		}
	})
	t.Run("tools as objects", func(t *testing.T) {
		m := roundTrip(t, []byte(`{"type":"system","subtype":"init","tools":[{"name":"Read","description":"d","input_schema":{"type":"object"}},"Bash",{"n\u0061me":"Edit"}],"agents":[{"name":"a","model":"m"}],"slash_commands":[]}`)).(*wire.Init)
		if !reflect.DeepEqual(m.Tools, wire.Names{"Read", "Bash", "Edit"}) || !reflect.DeepEqual(m.Agents, wire.Names{"a"}) || m.SlashCommands == nil {
			t.Errorf("got %q, %q, %q", m.Tools, m.Agents, m.SlashCommands)
		}
	})
	t.Run("mcp_status as an array", func(t *testing.T) {
		m := roundTrip(t, []byte(`{"type":"control_response","response":{"subtype":"success","request_id":"r","response":[{"name":"a","status":"connected","x":1},{"name":"b","status":"failed"}]}}`)).(*wire.ControlResponse)
		var status wire.MCPStatusResponse
		if err := m.Response.Decode(&status); err != nil || len(status.MCPServers) != 2 || status.MCPServers[1].Status != wire.MCPFailed {
			t.Fatalf("got %+v, %v", status, err)
		}
		sameJSON(t, status, string(m.Response.Response))
		status.MCPServers = status.MCPServers[:1]
		sameJSON(t, status, `[{"name":"a","status":"connected","x":1}]`)
	})
	t.Run("hook by name", func(t *testing.T) {
		m := roundTrip(t, []byte(`{"type":"control_request","request_id":"r","request":{"subtype":"hook_callback","hook_name":"pre-commit","hook_data":{"branch":"main"}}}`)).(*wire.ControlRequest)
		h := m.Request.(*wire.HookCallback)
		if h.HookName != "pre-commit" || h.Input.Event() != "pre-commit" || string(h.Input.(*wire.UnknownInput).Raw) != `{"branch":"main"}` {
			t.Errorf("got %+v", h)
		}
		m = roundTrip(t, []byte(`{"type":"control_request","request_id":"r","request":{"subtype":"hook_callback","hook_name":"PreToolUse","hook_data":{"tool_name":"Bash"},"input":null}}`)).(*wire.ControlRequest)
		if in, ok := m.Request.(*wire.HookCallback).Input.(*wire.PreToolUseInput); !ok || in.ToolName != "Bash" {
			t.Errorf("got %+v", m.Request)
		}
	})
	t.Run("sdk_control_interrupt", func(t *testing.T) {
		m := roundTrip(t, []byte(`{"type":"control_request","request_id":"r","request":{"subtype":"sdk_control_interrupt"}}`)).(*wire.ControlRequest)
		if _, ok := m.Request.(*wire.SDKControlInterrupt); !ok {
			t.Errorf("got %T", m.Request)
		}
	})
	t.Run("permission_request", func(t *testing.T) {
		m := roundTrip(t, []byte(`{"type":"system","subtype":"permission_request","tool":"Write","params":{"file_path":"a"},"session_id":"s","timestamp":"t"}`)).(*wire.PermissionRequest)
		if m.Tool != "Write" || string(m.Params) != `{"file_path":"a"}` {
			t.Errorf("got %+v", m)
		}
	})
	t.Run("hook_execution", func(t *testing.T) {
		m := roundTrip(t, []byte(`{"type":"system","subtype":"hook_execution","hook_name":"n","hook_event":"Stop","hook_data":[1],"timestamp":"t"}`)).(*wire.HookExecution)
		if m.HookName != "n" || m.HookEvent != wire.EventStop || string(m.HookData) != `[1]` {
			t.Errorf("got %+v", m)
		}
	})
	t.Run("error line", func(t *testing.T) {
		m := roundTrip(t, []byte(`{"type":"error","error":{"type":"overloaded_error","message":"Later."}}`)).(*wire.ErrorLine)
		if m.Err.Type != "overloaded_error" || m.Err.Message != "Later." {
			t.Errorf("got %+v", m)
		}
		s := roundTrip(t, []byte(`{"type":"system","subtype":"error","error":{"type":"system_error","message":"It fell."},"message":"m"}`)).(*wire.SystemError)
		if s.Err.Message != "It fell." || s.Message != "m" {
			t.Errorf("got %+v", s)
		}
	})
	t.Run("replay", func(t *testing.T) {
		if m := roundTrip(t, []byte(`{"type":"user","message":{"role":"user","content":"a"},"isReplay":true}`)).(*wire.User); !m.IsReplay {
			t.Error("user")
		}
		if m := roundTrip(t, []byte(`{"type":"assistant","message":{"role":"assistant","content":[]},"isReplay":true}`)).(*wire.Assistant); !m.IsReplay {
			t.Error("assistant")
		}
		if m := roundTrip(t, []byte(`{"type":"result","subtype":"success","isReplay":true}`)).(*wire.Result); !m.IsReplay {
			t.Error("result")
		}
	})
	t.Run("delta without type", func(t *testing.T) {
		m := roundTrip(t, []byte(`{"type":"stream_event","event":{"type":"content_block_delta","delta":{"text":"The"}}}`)).(*wire.StreamEvent)
		if m.Text() != "The" {
			t.Errorf("got %q", m.Text())
		}
	})
	t.Run("pending requests without type", func(t *testing.T) {
		m := roundTrip(t, []byte(`{"type":"control_response","response":{"subtype":"error","request_id":"r","error":"no","pending_permission_requests":[{"request_id":"p","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{}}}]}}`)).(*wire.ControlResponse)
		p := m.Response.PendingPermissionRequests
		if len(p) != 1 || p[0].RequestID != "p" || p[0].Request.Subtype() != "can_use_tool" {
			t.Errorf("got %+v", p)
		}
	})
	t.Run("JSON-RPC", func(t *testing.T) {
		m := roundTrip(t, []byte(`{"jsonrpc":"2.0","id":1,"method":"run","params":{"prompt":"hello"}}`))
		if _, ok := m.(*wire.Unknown); !ok {
			t.Errorf("got a %T", m)
		}
	})
}

// TestOutcome tries every subtype with every terminal reason, and the other members that
// decide.
func TestOutcome(t *testing.T) {
	const (
		completed   = wire.OutcomeCompleted
		model       = wire.OutcomeModelError
		turns       = wire.OutcomeMaxTurns
		budget      = wire.OutcomeBudget
		structured  = wire.OutcomeStructuredOutput
		refused     = wire.OutcomeRefused
		interrupted = wire.OutcomeInterrupted
		stopped     = wire.OutcomeStopped
		deferred    = wire.OutcomeDeferred
		failed      = wire.OutcomeFailed
		open        = wire.Outcome(-1) // the other one decides
	)
	subtypes := []struct {
		name    string
		isError bool
		alone   wire.Outcome // without a reason, or with one that says nothing
		sure    bool         // whatever the reason is
	}{
		{"success", false, completed, false},
		{"success", true, model, false},
		{"error_during_execution", true, failed, false},
		{"error_during_execution", false, failed, false},
		{"error_max_turns", true, turns, true},
		{"error_max_budget_usd", true, budget, true},
		{"error_max_structured_output_retries", true, structured, true},
		{"error", false, failed, false},
		{"max_turns_reached", false, turns, true},
		{"budget_exceeded", false, budget, true},
		{"user_cancelled", false, interrupted, true},
		{"", false, completed, false},
		{"", true, failed, false},
		{"error_of_tomorrow", true, failed, false},
		{"error_of_tomorrow", false, failed, false},
		{"gone_fishing", false, failed, false},
	}
	reasons := map[string]wire.Outcome{
		"": open, "completed": open, "background_requested": open, "a_reason_of_tomorrow": open,
		"blocking_limit": model, "rapid_refill_breaker": model, "prompt_too_long": model, "image_error": model,
		"model_error": model, "api_error": model, "malformed_tool_use_exhausted": model,
		"aborted_streaming": interrupted, "aborted_tools": interrupted,
		"stop_hook_prevented": stopped, "hook_stopped": stopped,
		"tool_deferred": deferred, "tool_deferred_unavailable": failed, "turn_setup_failed": failed,
		"max_turns": turns, "budget_exhausted": budget, "structured_output_retry_exhausted": structured,
	}
	for _, s := range subtypes {
		for reason, want := range reasons {
			if s.sure || want == open {
				want = s.alone
			}
			r := &wire.Result{Subtype: s.name, IsError: s.isError, TerminalReason: reason}
			if got := r.Outcome(); got != want {
				t.Errorf("%q, is_error %v, %q: %v, want %v", s.name, s.isError, reason, got, want)
			}
		}
	}
	for _, tt := range []struct {
		line string
		want wire.Outcome
	}{
		{`{"subtype":"success","stop_reason":"end_turn","terminal_reason":"completed"}`, completed},
		{`{"subtype":"success","stop_reason":"refusal","terminal_reason":"completed"}`, refused},
		{`{"subtype":"success","stop_reason":"refusal","is_error":true}`, refused},
		{`{"subtype":"success","stop_reason":"stop_sequence","is_error":true,"api_error_status":401}`, model},
		{`{"subtype":"error_during_execution","stop_reason":null,"is_error":true,"startup_failure_reason":"bypass_root"}`, failed},
		{`{"subtype":"error","error":{"type":"api_error","message":"m"}}`, model},
		{`{"subtype":"error","error":{"type":"overloaded_error","message":"m"}}`, model},
		{`{"subtype":"error","error":{"type":"tool_error","message":"m"}}`, failed},
		{`{"subtype":"error","error":{"type":"permission_denied","message":"m"}}`, failed},
		{`{"subtype":"error","error":{"type":"validation_error","message":"m"}}`, failed},
		{`{"subtype":"error","error":{"type":"system_error","message":"m"}}`, failed},
		{`{"subtype":"error","error":"just text"}`, failed},
		{`{"subtype":"success","error":{"type":"tool_error","message":"m"}}`, failed},
		{`{"subtype":"success","error":null}`, completed},
		{`{"subtype":"success","prompt_submit_outcome":{"kind":"blocked_by_hook"}}`, wire.OutcomeBlocked},
		{`{"subtype":"success","prompt_submit_outcome":{"kind":"accepted"}}`, completed},
		{`{"subtype":"success","prompt_submit_outcome":"blocked_by_hook"}`, completed},
		{`{"subtype":5}`, completed},
		{`{"subtype":5,"is_error":true}`, failed},
		{`{}`, completed},
	} {
		var r wire.Result
		if err := json.Unmarshal([]byte(tt.line), &r); err != nil {
			t.Fatal(err)
		}
		if got := r.Outcome(); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.line, got, tt.want)
		}
	}
	names := map[string]bool{}
	for o := completed; o <= failed; o++ {
		names[o.String()] = true
	}
	if len(names) != 10 || wire.Outcome(-1).String() != "unknown outcome" || wire.Outcome(99).String() != "unknown outcome" {
		t.Errorf("names %v", names)
	}
}

func TestReason(t *testing.T) {
	for _, tt := range []struct {
		r    wire.Result
		want string
	}{
		{wire.Result{Errors: []string{"a", "b"}, Result: "r"}, "a; b"},
		{wire.Result{Error: &wire.APIError{Message: "m"}, Result: "r"}, "m"},
		{wire.Result{Error: &wire.APIError{}, Result: "r"}, "r"},
		{wire.Result{}, ""},
	} {
		if got := tt.r.Reason(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestStreamEvent(t *testing.T) {
	for event, want := range map[string]string{
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\n\u00e9"}}`: "a\né",
		`{"delta":{"text":"a","type":"text_delta"},"type":"content_block_delta"}`:                   "a",
		`{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"b"}}`:           "",
		`{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{"}}`:     "",
		`{"type":"content_block_delta","delta":{"type":"text_delta","text":5}}`:                     "",
		`{"type":"content_block_delta","delta":"a"}`:                                                "",
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"}}`:                               "",
		`{"type":"message_stop"}`: "", `null`: "", `"a"`: "", `[]`: "", `{`: "", ``: "",
	} {
		e := &wire.StreamEvent{Event: raw(event)}
		if got := e.Text(); got != want {
			t.Errorf("%s: %q, want %q", event, got, want)
		}
	}
	e := &wire.StreamEvent{Event: raw(`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"N","input":{}},"x":1}`)}
	event, err := e.Parse()
	if err != nil {
		t.Fatal(err)
	}
	if b, ok := event.ContentBlock.(*wire.ToolUseBlock); !ok || b.Name != "N" || *event.Index != 1 || string(event.Extra["x"]) != "1" {
		t.Errorf("got %+v", event)
	}
	for _, bad := range []string{``, `{`, `5`, `[]`} {
		if _, err := (&wire.StreamEvent{Event: raw(bad)}).Parse(); err == nil {
			t.Errorf("%q was decoded as an event", bad)
		}
	}
	for _, line := range corpus(t) {
		if e, ok := decode(t, string(line)).(*wire.StreamEvent); ok && len(e.Event) > 0 && e.Event[0] == '{' {
			event, err := e.Parse()
			if err != nil {
				t.Errorf("%s: %v", line, err)
				continue
			}
			sameJSON(t, event, string(e.Event))
		}
	}
}

func TestContent(t *testing.T) {
	text := wire.Text("a")
	blocks := wire.Blocks(&wire.TextBlock{Text: "a"}, &wire.ImageBlock{Source: wire.Base64("image/png", []byte{1, 2})}, &wire.TextBlock{Text: "b"})
	if text.String() != "a" || blocks.String() != "ab" || (wire.Content{}).String() != "" {
		t.Errorf("got %q, %q", text, blocks)
	}
	if got := text.All(); len(got) != 1 || got[0].(*wire.TextBlock).Text != "a" {
		t.Errorf("got %v", got)
	}
	if len(blocks.All()) != 3 || (wire.Content{}).All() != nil || wire.Blocks().Blocks == nil {
		t.Error("All")
	}
	sameJSON(t, text, `"a"`)
	sameJSON(t, wire.Content{}, `""`)
	sameJSON(t, wire.Blocks(), `[]`)
	sameJSON(t, blocks, `[{"type":"text","text":"a"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AQI="}},{"type":"text","text":"b"}]`)
	if init := (&wire.Init{Capabilities: []string{"a"}}); !init.Has("a") || init.Has("b") {
		t.Error("Has")
	}
}
