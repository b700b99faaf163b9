package wire

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Result is the message that ends a turn.
type Result struct {
	Subtype   string `json:"subtype"`         // "success" or one of several errors; see Outcome
	IsError   bool   `json:"is_error"`        // the turn failed
	Result    string `json:"result,omitzero"` // the last text of the answer
	SessionID string `json:"session_id,omitzero"`
	UUID      string `json:"uuid,omitzero"`

	Errors           []string        `json:"errors,omitzero"`            // the error messages
	StructuredOutput json.RawMessage `json:"structured_output,omitzero"` // the answer that matches the schema
	StopReason       string          `json:"stop_reason" wire:"null"`    // the reason why the model stopped
	TerminalReason   string          `json:"terminal_reason,omitzero"`   // the reason why the turn ended
	NumTurns         int             `json:"num_turns"`                  // the rounds of model and tools in the turn
	ResultIndex      *int            `json:"result_index,omitzero"`      // the number of this result in the process, from 0

	DurationMS    int64 `json:"duration_ms"`     // the duration of the turn
	DurationAPIMS int64 `json:"duration_api_ms"` // the part of it that was spent waiting for the API

	// TotalCostUSD and ModelUsage are totals of the session; Usage is for this turn
	// only. Usage is also filled from flat token counts, which some agents send.
	TotalCostUSD              float64                `json:"total_cost_usd"`
	Usage                     *Usage                 `json:"usage,omitzero"`
	ModelUsage                map[string]*ModelUsage `json:"modelUsage,omitzero"`                    // usage by model
	ModelUsageSinceLastResult map[string]*ModelUsage `json:"model_usage_since_last_result,omitzero"` // the usage that no earlier result reported, by model

	PermissionDenials []*PermissionDenial `json:"permission_denials,omitzero"` // calls that were denied
	DeferredToolUse   *DeferredToolUse    `json:"deferred_tool_use,omitzero"`  // the call that a hook deferred

	// The error of the API, if it ended the turn.
	APIErrorStatus int    `json:"api_error_status,omitzero"`
	APIErrorType   string `json:"api_error_type,omitzero"`
	APIError       string `json:"api_error,omitzero"`

	// The error in the form that other agents use.
	Error *APIError `json:"error,omitzero"`

	StartupFailureReason string          `json:"startup_failure_reason,omitzero"`
	InvalidConfigFile    json.RawMessage `json:"invalid_config_file,omitzero"`

	Origin       *Origin `json:"origin,omitzero"`        // the source of the turn, if not a prompt
	LocalCommand string  `json:"local_command,omitzero"` // the slash command, if the turn was one
	// PromptSubmitOutcome is the outcome in the [Informational] before the result.
	// Agents do not send it here; package parley sets it.
	PromptSubmitOutcome json.RawMessage `json:"prompt_submit_outcome,omitzero"`

	QueuedTurnCount  *int     `json:"queued_turn_count,omitzero"` // the number of queued prompts
	UserMessageUUID  string   `json:"user_message_uuid,omitzero"`
	UserMessageUUIDs []string `json:"user_message_uuids,omitzero"`
	ResumeReason     string   `json:"resume_reason,omitzero"`

	FastModeState          string          `json:"fast_mode_state,omitzero"`
	FastModeDisabledReason string          `json:"fast_mode_disabled_reason,omitzero"`
	SubagentStats          json.RawMessage `json:"subagent_stats,omitzero"` // the number of subagents, and their outcomes
	SafetyStops            *int            `json:"safety_stops,omitzero"`
	CredentialExpiresAt    json.RawMessage `json:"credential_expires_at,omitzero"`

	// Durations.
	TTFTMS                          *int64 `json:"ttft_ms,omitzero"`
	TTFTStreamMS                    *int64 `json:"ttft_stream_ms,omitzero"`
	TimeToRequestMS                 *int64 `json:"time_to_request_ms,omitzero"`
	FirstContentFrameMS             *int64 `json:"first_content_frame_ms,omitzero"`
	RequestSentWallMS               *int64 `json:"request_sent_wall_ms,omitzero"`
	FirstRequestInputTokens         *int64 `json:"first_request_input_tokens,omitzero"`
	FirstRequestCacheReadInputToken *int64 `json:"first_request_cache_read_input_tokens,omitzero"`

	IsReplay  bool   `json:"isReplay,omitzero"` // it repeats the end of an earlier turn
	Timestamp string `json:"timestamp,omitzero"`
	Open      `wire:"type=result"`
}

func (r *Result) derived(p *plan) {
	if raw, ok := r.extra("errors"); ok && raw[0] == '"' {
		r.Errors = []string{unquote(raw)}
		r.derive(p.fieldOf("errors"), []string{unquote(raw)})
	}
	if len(r.Extra) == 0 {
		return
	}
	if _, given := r.extra("usage"); given || r.Usage != nil {
		return
	}
	var flat Usage
	found := r.count("input_tokens", &flat.InputTokens)
	found = r.count("output_tokens", &flat.OutputTokens) || found
	found = r.count("cache_creation_tokens", &flat.CacheCreationInputTokens) || found
	found = r.count("cache_creation_input_tokens", &flat.CacheCreationInputTokens) || found
	found = r.count("cache_read_tokens", &flat.CacheReadInputTokens) || found
	found = r.count("cache_read_input_tokens", &flat.CacheReadInputTokens) || found
	if found {
		was := flat
		r.Usage = &flat
		r.derive(p.fieldOf("usage"), &was)
	}
}

// count reads a number of tokens that no field holds.
func (r *Result) count(name string, n *int64) bool {
	raw, ok := r.extra(name)
	if !ok {
		return false
	}
	d, err := scan(raw)
	if err != nil {
		return false
	}
	defer d.release()
	_, err = decodeInt(d.root(), reflect.ValueOf(n).Elem())
	return err == nil
}

// ModelUsage is the usage and cost of one model.
type ModelUsage struct {
	InputTokens              int64   `json:"inputTokens"`
	OutputTokens             int64   `json:"outputTokens"`
	CacheReadInputTokens     int64   `json:"cacheReadInputTokens"`
	CacheCreationInputTokens int64   `json:"cacheCreationInputTokens"`
	WebSearchRequests        int64   `json:"webSearchRequests"`
	CostUSD                  float64 `json:"costUSD"`
	ContextWindow            int64   `json:"contextWindow"`
	MaxOutputTokens          int64   `json:"maxOutputTokens,omitzero"`
	ThinkingTokens           *int64  `json:"thinkingTokens,omitzero"`
	Ephemeral5mInputTokens   *int64  `json:"cacheCreationEphemeral5mInputTokens,omitzero"`
	Ephemeral1hInputTokens   *int64  `json:"cacheCreationEphemeral1hInputTokens,omitzero"`
	CanonicalModel           string  `json:"canonicalModel,omitzero"`
	Provider                 string  `json:"provider,omitzero"`
	CostBasis                string  `json:"costBasis,omitzero"` // "list", "managed" or "unknown"
	Open
}

// PermissionDenial is a tool call that was denied.
type PermissionDenial struct {
	ToolName  string          `json:"tool_name"`
	ToolUseID string          `json:"tool_use_id"`
	ToolInput json.RawMessage `json:"tool_input"`
	Open
}

// DeferredToolUse is a tool call that a hook deferred.
type DeferredToolUse struct {
	ID    string          `json:"id"`
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
	Open
}

// An Outcome is the way a turn ended. The set is closed: it covers all forms in which
// agents report the end of a turn.
type Outcome int

// The outcomes of a turn.
const (
	OutcomeCompleted        Outcome = iota // the model answered
	OutcomeModelError                      // the model or its API failed
	OutcomeMaxTurns                        // the turn needed more rounds than allowed
	OutcomeBudget                          // the turn cost more than allowed
	OutcomeStructuredOutput                // no answer matched the schema
	OutcomeRefused                         // the model declined
	OutcomeInterrupted                     // it was interrupted
	OutcomeStopped                         // a hook stopped it
	OutcomeDeferred                        // a hook deferred a tool call; see DeferredToolUse
	OutcomeFailed                          // anything else went wrong
	OutcomeBlocked                         // a hook blocked the prompt
)

var outcomeNames = [...]string{"completed", "model error", "max turns", "budget", "structured output",
	"refused", "interrupted", "stopped", "deferred", "failed", "blocked"}

// String returns the outcome in words.
func (o Outcome) String() string {
	if o < 0 || int(o) >= len(outcomeNames) {
		return "unknown outcome"
	}
	return outcomeNames[o]
}

// Outcome returns how the turn ended. It is derived from Subtype, TerminalReason,
// IsError, StopReason, PromptSubmitOutcome and Error, which agents fill in
// different ways. If these contradict each other or have unknown values, the turn
// is not completed.
func (r *Result) Outcome() Outcome {
	switch r.Subtype {
	case "error_max_turns", "max_turns_reached":
		return OutcomeMaxTurns
	case "error_max_budget_usd", "budget_exceeded":
		return OutcomeBudget
	case "error_max_structured_output_retries":
		return OutcomeStructuredOutput
	case "user_cancelled":
		return OutcomeInterrupted
	}
	switch r.TerminalReason {
	case "aborted_streaming", "aborted_tools":
		return OutcomeInterrupted
	case "max_turns":
		return OutcomeMaxTurns
	case "budget_exhausted":
		return OutcomeBudget
	case "structured_output_retry_exhausted":
		return OutcomeStructuredOutput
	case "hook_stopped", "stop_hook_prevented":
		return OutcomeStopped
	case "tool_deferred":
		return OutcomeDeferred
	case "api_error", "model_error", "malformed_tool_use_exhausted", "blocking_limit", "prompt_too_long", "image_error",
		"rapid_refill_breaker":
		return OutcomeModelError
	case "tool_deferred_unavailable", "turn_setup_failed":
		return OutcomeFailed
	}
	switch {
	case r.blocked():
		return OutcomeBlocked
	case r.StopReason == "refusal":
		return OutcomeRefused
	case r.Subtype == "success" && r.IsError:
		return OutcomeModelError
	case r.Error != nil && r.Error.ofAPI():
		return OutcomeModelError
	case r.IsError, r.Error != nil, r.Subtype != "success" && r.Subtype != "":
		return OutcomeFailed
	}
	return OutcomeCompleted
}

// blocked reports whether a hook blocked the prompt.
func (r *Result) blocked() bool {
	var outcome struct {
		Kind string `json:"kind"`
	}
	return len(r.PromptSubmitOutcome) > 0 && json.Unmarshal(r.PromptSubmitOutcome, &outcome) == nil && outcome.Kind == "blocked_by_hook"
}

// Reason returns the agent's explanation of why the turn did not complete, empty if
// it gave none.
func (r *Result) Reason() string {
	switch {
	case len(r.Errors) > 0:
		return strings.Join(r.Errors, "; ")
	case r.Error != nil && r.Error.Message != "":
		return r.Error.Message
	}
	return r.Result
}
