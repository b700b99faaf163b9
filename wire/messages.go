package wire

import (
	"bytes"
	"encoding/json"
)

// User is a message that adds a prompt or tool results to the conversation. From
// the host it is a prompt, or the result of a tool that the host ran. From the
// agent it is the result of a tool that the agent ran, an echo of a prompt
// (IsReplay), or text that the agent added for the model (IsSynthetic).
type User struct {
	Message         UserMessage `json:"message"`
	ParentToolUseID string      `json:"parent_tool_use_id" wire:"null"` // the call that started the subagent
	SessionID       string      `json:"session_id,omitzero"`
	UUID            string      `json:"uuid,omitzero"`
	Timestamp       string      `json:"timestamp,omitzero"`
	IsReplay        bool        `json:"isReplay,omitzero"`    // it repeats an earlier message
	IsSynthetic     bool        `json:"isSynthetic,omitzero"` // the agent wrote it, not a person

	// From the agent, with a tool result.
	ToolUseResult  json.RawMessage   `json:"tool_use_result,omitzero"` // the result of the tool, for programs
	ToolResultMeta []*ToolResultMeta `json:"tool_result_meta,omitzero"`

	// To the agent.
	Priority       string          `json:"priority,omitzero"`        // "now", "next" or "later"
	ShouldQuery    *bool           `json:"shouldQuery,omitzero"`     // false adds to the history without a request to the model
	ClientComposed bool            `json:"client_composed,omitzero"` // use the text as it is, without commands and file mentions
	PastedContent  json.RawMessage `json:"pasted_content,omitzero"`
	InlinePastes   json.RawMessage `json:"inline_pastes,omitzero"`

	Origin           *Origin         `json:"origin,omitzero"`
	FileAttachments  json.RawMessage `json:"file_attachments,omitzero"`
	RefusedMessageID string          `json:"refused_message_id,omitzero"`

	// Inside a subagent.
	AgentID         string `json:"agent_id,omitzero"`
	SubagentType    string `json:"subagent_type,omitzero"`
	TaskDescription string `json:"task_description,omitzero"`

	Open `wire:"type=user"`
}

// UserMessage is the content of a [User] message.
type UserMessage struct {
	Role    string  `json:"role"` // "user"
	Content Content `json:"content"`
	Open
}

// Prompt returns a prompt for the agent.
func Prompt(content Content) *User {
	return &User{Message: UserMessage{Role: "user", Content: content}}
}

// ToolResultMeta describes why a tool call ran, or why it did not.
type ToolResultMeta struct {
	ID                 string              `json:"id"` // the id of the tool_use block
	PermissionDecision *PermissionDecision `json:"permission_decision,omitzero"`
	NonExecutionKind   string              `json:"non_execution_kind,omitzero"` // such as "user-rejected"
	Open
}

// PermissionDecision is the decision about a tool call, and its source.
type PermissionDecision struct {
	Decision   string `json:"decision"` // "accept" or "reject"
	Source     string `json:"source,omitzero"`
	ReasonType string `json:"reason_type,omitzero"`
	Open
}

// Origin is the source of a message or a turn.
type Origin struct {
	Kind     string `json:"kind"` // "human", "task-notification", "peer" …
	Subkind  string `json:"subkind,omitzero"`
	Producer string `json:"producer,omitzero"`
	RunID    string `json:"runId,omitzero"`
	Server   string `json:"server,omitzero"`
	From     string `json:"from,omitzero"`
	Name     string `json:"name,omitzero"`
	Open
}

// Assistant is a message that carries an answer of the model. An agent that streams
// sends one for each content block; they share Message.ID, and their stop reason
// and usage are not final.
type Assistant struct {
	Message         APIMessage `json:"message"`
	ParentToolUseID string     `json:"parent_tool_use_id" wire:"null"` // the call that started the subagent
	SessionID       string     `json:"session_id,omitzero"`
	UUID            string     `json:"uuid,omitzero"`
	Timestamp       string     `json:"timestamp,omitzero"`
	RequestID       string     `json:"request_id,omitzero"` // the id of the request at the API
	IsReplay        bool       `json:"isReplay,omitzero"`   // it repeats an earlier message

	// Error is set if the message reports a failure instead of an answer. It is
	// also read from message.error, where some peers put it.
	Error          AssistantError `json:"error,omitzero"`
	IsAPIError     bool           `json:"is_api_error_message,omitzero"`
	APIErrorStatus int            `json:"api_error_status,omitzero"` // HTTP status
	APIErrorType   string         `json:"api_error_type,omitzero"`
	APIError       string         `json:"api_error,omitzero"`

	Aborted          bool           `json:"aborted,omitzero"` // the turn was interrupted during this message
	Supersedes       []string       `json:"supersedes,omitzero"`
	UserMessageUUID  string         `json:"user_message_uuid,omitzero"`
	UserMessageUUIDs []string       `json:"user_message_uuids,omitzero"`
	ToolUseMeta      []*ToolUseMeta `json:"tool_use_meta,omitzero"`

	ThinkingDurationMS int64  `json:"thinking_duration_ms,omitzero"`
	ThinkingDisplay    string `json:"thinking_display,omitzero"`

	ResumeReason                  string `json:"resume_reason,omitzero"`
	ResumedFromIncompleteThinking bool   `json:"resumed_from_incomplete_thinking,omitzero"`

	// Answers of slash commands.
	LocalCommandSource  string          `json:"local_command_source,omitzero"`
	LocalCommandRun     json.RawMessage `json:"local_command_run,omitzero"`
	LocalCommandOutcome json.RawMessage `json:"local_command_outcome,omitzero"`
	ContextUsage        json.RawMessage `json:"context_usage,omitzero"`
	UsageReport         json.RawMessage `json:"usage_report,omitzero"`

	// Inside a subagent.
	AgentID         string `json:"agent_id,omitzero"`
	SubagentType    string `json:"subagent_type,omitzero"`
	TaskDescription string `json:"task_description,omitzero"`

	Open `wire:"type=assistant"`
}

func (a *Assistant) derived(p *plan) {
	if raw, ok := a.Message.extra("error"); ok && a.Error == "" && len(raw) > 0 && raw[0] == '"' {
		a.Error = AssistantError(unquote(raw))
		a.derive(p.fieldOf("error"), a.Error)
	}
}

// An AssistantError is the reason why there is no answer.
type AssistantError string

// The errors of current agents; others may occur.
const (
	ErrorAuthentication   AssistantError = "authentication_failed"
	ErrorBilling          AssistantError = "billing_error"
	ErrorRateLimit        AssistantError = "rate_limit"
	ErrorOverloaded       AssistantError = "overloaded"
	ErrorInvalidRequest   AssistantError = "invalid_request"
	ErrorModelNotFound    AssistantError = "model_not_found"
	ErrorServer           AssistantError = "server_error"
	ErrorMaxOutputTokens  AssistantError = "max_output_tokens"
	ErrorUnknown          AssistantError = "unknown"
	ErrorOAuthOrg         AssistantError = "oauth_org_not_allowed"
	ErrorAccountOnHold    AssistantError = "account_on_hold"
	ErrorVerification     AssistantError = "verification_required"
	ErrorCloudCredentials AssistantError = "cloud_credential_error"
)

// ToolUseMeta has the names of a tool call to show to people.
type ToolUseMeta struct {
	ID                string `json:"id"`
	DisplayName       string `json:"display_name,omitzero"`
	ServerDisplayName string `json:"server_display_name,omitzero"`
	ToolName          string `json:"tool_name,omitzero"`
	Open
}

// APIMessage is an answer of the Messages API.
type APIMessage struct {
	ID                string          `json:"id,omitzero"`
	Type              string          `json:"type,omitzero"` // "message"
	Role              string          `json:"role"`          // "assistant"
	Model             string          `json:"model,omitzero"`
	Content           Content         `json:"content"`
	StopReason        string          `json:"stop_reason" wire:"null"`
	StopSequence      string          `json:"stop_sequence" wire:"null"`
	Usage             *Usage          `json:"usage,omitzero"`
	ContextManagement json.RawMessage `json:"context_management,omitzero"`
	Container         json.RawMessage `json:"container,omitzero"`
	Diagnostics       json.RawMessage `json:"diagnostics,omitzero"`
	StopDetails       json.RawMessage `json:"stop_details,omitzero"`
	Open
}

// Usage counts the tokens of one or several requests.
type Usage struct {
	InputTokens              int64               `json:"input_tokens" wire:"optional"` // an event may have only some of the counts
	CacheCreationInputTokens int64               `json:"cache_creation_input_tokens" wire:"optional"`
	CacheReadInputTokens     int64               `json:"cache_read_input_tokens" wire:"optional"`
	OutputTokens             int64               `json:"output_tokens" wire:"optional"`
	OutputTokensDetails      *OutputTokenDetails `json:"output_tokens_details,omitzero"`
	ServerToolUse            *ServerToolUsage    `json:"server_tool_use,omitzero"`
	ServiceTier              string              `json:"service_tier,omitzero"`
	CacheCreation            *CacheCreation      `json:"cache_creation,omitzero"`
	InferenceGeo             string              `json:"inference_geo,omitzero"`
	Iterations               json.RawMessage     `json:"iterations,omitzero"`
	Speed                    string              `json:"speed,omitzero"`
	FallbackCredit           json.RawMessage     `json:"fallback_credit,omitzero"`
	Open
}

// OutputTokenDetails splits the output tokens.
type OutputTokenDetails struct {
	ThinkingTokens int64 `json:"thinking_tokens"`
	Open
}

// ServerToolUsage counts calls of tools that the API runs.
type ServerToolUsage struct {
	WebSearchRequests int64 `json:"web_search_requests"`
	WebFetchRequests  int64 `json:"web_fetch_requests"`
	Open
}

// CacheCreation splits the tokens that were written to the cache by their lifetime.
type CacheCreation struct {
	Ephemeral1hInputTokens int64 `json:"ephemeral_1h_input_tokens"`
	Ephemeral5mInputTokens int64 `json:"ephemeral_5m_input_tokens"`
	Open
}

// StreamEvent is a message that carries one event of the API's stream, unchanged.
// [StreamEvent.Parse] decodes it.
type StreamEvent struct {
	Event            json.RawMessage `json:"event"`
	SessionID        string          `json:"session_id,omitzero"`
	ParentToolUseID  string          `json:"parent_tool_use_id" wire:"null"`
	UUID             string          `json:"uuid,omitzero"`
	APIMessageID     string          `json:"api_message_id,omitzero"`
	TTFTMS           *int64          `json:"ttft_ms,omitzero"` // time to the first token; only with message_start
	UserMessageUUID  string          `json:"user_message_uuid,omitzero"`
	UserMessageUUIDs []string        `json:"user_message_uuids,omitzero"`
	Timestamp        string          `json:"timestamp,omitzero"`
	Open             `wire:"type=stream_event"`
}

// Text returns the text that the event adds to the answer, empty if it adds none.
func (e *StreamEvent) Text() string {
	if text, ok := e.plainText(); ok {
		return text
	}
	d, err := scan(e.Event)
	if err != nil {
		return ""
	}
	defer d.release()
	delta, ok := d.root().get("delta")
	if !ok {
		return ""
	}
	if typ := delta.lookup("type"); typ != "text_delta" && typ != "" {
		return ""
	}
	return delta.lookup("text")
}

// plainText is Text for events as the API writes them, whose text has no escapes.
func (e *StreamEvent) plainText() (string, bool) {
	rest, ok := bytes.CutPrefix(e.Event, []byte(deltaType))
	if !ok {
		return "", false
	}
	rest, ok = bytes.CutPrefix(rest[skipDigits(rest, 0):], []byte(deltaText+`"`))
	if !ok {
		return "", false
	}
	end := bytes.IndexByte(rest, '"')
	if end < 0 || string(rest[end:]) != `"}}` || bytes.IndexByte(rest[:end], '\\') >= 0 {
		return "", false
	}
	return string(rest[:end]), true
}

// Parse decodes the event.
func (e *StreamEvent) Parse() (*APIEvent, error) {
	event := new(APIEvent)
	if err := unmarshal(e.Event, event); err != nil {
		return nil, err
	}
	return event, nil
}

// APIEvent is one event of the API's stream.
type APIEvent struct {
	Type              string          `json:"type"` // "message_start", "content_block_delta" …
	Message           *APIMessage     `json:"message,omitzero"`
	Index             *int            `json:"index,omitzero"`
	ContentBlock      Block           `json:"content_block,omitzero"`
	Delta             *Delta          `json:"delta,omitzero"`
	Usage             *Usage          `json:"usage,omitzero"`
	Error             *APIError       `json:"error,omitzero"`
	ContextManagement json.RawMessage `json:"context_management,omitzero"`
	Open
}

// Delta is the part that an [APIEvent] adds to a block or changes in a message.
type Delta struct {
	Type            string `json:"type,omitzero"` // "text_delta", "thinking_delta", "signature_delta", "input_json_delta"; empty in message_delta
	Text            string `json:"text,omitzero"`
	Thinking        string `json:"thinking,omitzero"`
	Signature       string `json:"signature,omitzero"`
	PartialJSON     string `json:"partial_json,omitzero"`
	EstimatedTokens int64  `json:"estimated_tokens,omitzero"`
	StopReason      string `json:"stop_reason,omitzero"`
	StopSequence    string `json:"stop_sequence,omitzero"`
	Open
}

// APIError is an error of the API.
type APIError struct {
	Type    string          `json:"type"`
	Message string          `json:"message"`
	Details json.RawMessage `json:"details,omitzero"`
	Open
}

// ofAPI reports whether the API made the error, not the agent.
func (e *APIError) ofAPI() bool {
	switch e.Type {
	case "api_error", "authentication_error", "billing_error", "invalid_request_error", "not_found_error", "overloaded_error",
		"permission_error", "rate_limit_error", "request_too_large", "timeout_error":
		return true
	}
	return false
}

// ConversationReset is a message that reports that the conversation starts over.
// SessionID is still that of the old session.
type ConversationReset struct {
	NewConversationID string `json:"new_conversation_id"`
	Trigger           string `json:"trigger,omitzero"` // "clear", "plan_mode_exit" …
	UserMessageUUID   string `json:"user_message_uuid,omitzero"`
	Timestamp         string `json:"timestamp,omitzero"`
	SessionID         string `json:"session_id,omitzero"`
	UUID              string `json:"uuid,omitzero"`
	Open              `wire:"type=conversation_reset"`
}

// ToolProgress is a message that reports that a tool is still running.
type ToolProgress struct {
	ToolUseID          string          `json:"tool_use_id"`
	ToolName           string          `json:"tool_name"`
	ParentToolUseID    string          `json:"parent_tool_use_id" wire:"null"`
	ElapsedTimeSeconds float64         `json:"elapsed_time_seconds"`
	Heartbeat          bool            `json:"heartbeat,omitzero"`
	Output             string          `json:"output,omitzero"` // the last output of a command; only if initialize has "toolOutput": true
	TaskID             string          `json:"task_id,omitzero"`
	SubagentType       string          `json:"subagent_type,omitzero"`
	SubagentRetry      json.RawMessage `json:"subagent_retry,omitzero"`
	SessionID          string          `json:"session_id,omitzero"`
	UUID               string          `json:"uuid,omitzero"`
	Timestamp          string          `json:"timestamp,omitzero"`
	Open               `wire:"type=tool_progress"`
}

// RateLimitEvent is a message that reports how much of a rate limit is left.
type RateLimitEvent struct {
	Info      RateLimitInfo `json:"rate_limit_info"`
	SessionID string        `json:"session_id,omitzero"`
	UUID      string        `json:"uuid,omitzero"`
	Timestamp string        `json:"timestamp,omitzero"`
	Open      `wire:"type=rate_limit_event"`
}

// RateLimitInfo is the state of a rate limit.
type RateLimitInfo struct {
	Status                string   `json:"status"`                 // "allowed", "allowed_warning" or "rejected"
	ResetsAt              int64    `json:"resetsAt,omitzero"`      // seconds since 1970
	RateLimitType         string   `json:"rateLimitType,omitzero"` // "five_hour", "seven_day" …
	Utilization           *float64 `json:"utilization,omitzero"`   // 0 to 1
	SurpassedThreshold    *float64 `json:"surpassedThreshold,omitzero"`
	OverageStatus         string   `json:"overageStatus,omitzero"`
	OverageResetsAt       int64    `json:"overageResetsAt,omitzero"`
	OverageDisabledReason string   `json:"overageDisabledReason,omitzero"`
	IsUsingOverage        bool     `json:"isUsingOverage" wire:"optional"`
	OverageInUse          bool     `json:"overageInUse,omitzero"`
	OverageEnabled        bool     `json:"overageEnabled,omitzero"`
	LimitScope            string   `json:"limitScope,omitzero"`
	ErrorCode             string   `json:"errorCode,omitzero"`
	CanPurchaseCredits    bool     `json:"canUserPurchaseCredits,omitzero"`
	HasPaymentMethod      bool     `json:"hasChargeableSavedPaymentMethod,omitzero"`
	Open
}

// AuthStatus is a message that reports the progress of a login.
type AuthStatus struct {
	IsAuthenticating bool     `json:"isAuthenticating"`
	Output           []string `json:"output"`
	Error            string   `json:"error,omitzero"`
	SessionID        string   `json:"session_id,omitzero"`
	UUID             string   `json:"uuid,omitzero"`
	Timestamp        string   `json:"timestamp,omitzero"`
	Open             `wire:"type=auth_status"`
}

// ToolUseSummary is a message that summarizes tool calls.
type ToolUseSummary struct {
	Summary             string   `json:"summary"`
	PrecedingToolUseIDs []string `json:"preceding_tool_use_ids"`
	SessionID           string   `json:"session_id,omitzero"`
	UUID                string   `json:"uuid,omitzero"`
	Timestamp           string   `json:"timestamp,omitzero"`
	Open                `wire:"type=tool_use_summary"`
}

// PromptSuggestion is a message that suggests the next prompt. It comes after the
// result.
type PromptSuggestion struct {
	Suggestion string `json:"suggestion"`
	SessionID  string `json:"session_id,omitzero"`
	UUID       string `json:"uuid,omitzero"`
	Timestamp  string `json:"timestamp,omitzero"`
	Open       `wire:"type=prompt_suggestion"`
}

// ActiveGoal is a message that reports the goal of the agent, nil if it has none.
type ActiveGoal struct {
	Value     *Goal  `json:"value" wire:"null"`
	SessionID string `json:"session_id,omitzero"`
	UUID      string `json:"uuid,omitzero"`
	Timestamp string `json:"timestamp,omitzero"`
	Open      `wire:"type=active_goal"`
}

// Goal is a condition that the agent tries to reach.
type Goal struct {
	Condition     string          `json:"condition"`
	Iterations    *int            `json:"iterations,omitzero"`
	SetAt         json.RawMessage `json:"set_at,omitzero"`
	TokensAtStart *int64          `json:"tokens_at_start,omitzero"`
	LastReason    string          `json:"last_reason,omitzero"`
	Open
}

// CommandLifecycle is a message that reports the state of a prompt with a uuid in
// the queue.
type CommandLifecycle struct {
	CommandUUID string `json:"command_uuid"`
	State       string `json:"state"` // "queued", "started", "completed" or "cancelled"
	SessionID   string `json:"session_id,omitzero"`
	UUID        string `json:"uuid,omitzero"`
	Timestamp   string `json:"timestamp,omitzero"`
	Open        `wire:"type=command_lifecycle"`
}

// TranscriptMirror is a message that repeats the records that the agent wrote to
// its session file, for hosts that keep sessions elsewhere.
type TranscriptMirror struct {
	FilePath  string            `json:"filePath"`
	Entries   []json.RawMessage `json:"entries"`
	Timestamp string            `json:"timestamp,omitzero"`
	Open      `wire:"type=transcript_mirror"`
}

// ErrorLine is a message that reports a failure of the API; only some older agents
// send it. The turn continues to its result.
type ErrorLine struct {
	Err       APIError `json:"error"`
	SessionID string   `json:"session_id,omitzero"`
	UUID      string   `json:"uuid,omitzero"`
	Timestamp string   `json:"timestamp,omitzero"`
	Open      `wire:"type=error"`
}

// UpdateEnvironmentVariables is a message that changes the environment of the
// agent.
type UpdateEnvironmentVariables struct {
	Variables map[string]string `json:"variables"`
	Open      `wire:"type=update_environment_variables"`
}
