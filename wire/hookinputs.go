package wire

import "encoding/json"

// All inputs embed [HookBase]; [HookInput.Base] returns it.

// PreToolUseInput is the input of a hook that runs before a tool runs.
type PreToolUseInput struct {
	HookBase
	ToolName  string          `json:"tool_name"`
	ToolInput json.RawMessage `json:"tool_input"`
	ToolUseID string          `json:"tool_use_id"`
	MCPServer *ToolServer     `json:"mcp_server,omitzero"` // the MCP server of the tool, if it has one
	Open      `wire:"hook_event_name=PreToolUse"`
}

// PostToolUseInput is the input of a hook that runs after a tool has succeeded.
type PostToolUseInput struct {
	HookBase
	ToolName     string          `json:"tool_name"`
	ToolInput    json.RawMessage `json:"tool_input"`
	ToolResponse json.RawMessage `json:"tool_response"` // the tool's result, in the form of the tool
	ToolUseID    string          `json:"tool_use_id"`
	DurationMS   *int64          `json:"duration_ms,omitzero"`
	MCPServer    *ToolServer     `json:"mcp_server,omitzero"` // the MCP server of the tool, if it has one
	Open         `wire:"hook_event_name=PostToolUse"`
}

// PostToolUseFailureInput is the input of a hook that runs after a tool has failed.
type PostToolUseFailureInput struct {
	HookBase
	ToolName    string          `json:"tool_name"`
	ToolInput   json.RawMessage `json:"tool_input"`
	ToolUseID   string          `json:"tool_use_id"`
	Error       string          `json:"error"`
	IsInterrupt bool            `json:"is_interrupt"` // somebody stopped the tool
	DurationMS  *int64          `json:"duration_ms,omitzero"`
	MCPServer   *ToolServer     `json:"mcp_server,omitzero"` // the MCP server of the tool, if it has one
	Open        `wire:"hook_event_name=PostToolUseFailure"`
}

// PostToolBatchInput is the input of a hook that runs after all tool calls of one
// answer, before the next request to the model.
type PostToolBatchInput struct {
	HookBase
	ToolCalls []*HookToolCall `json:"tool_calls"`
	Open      `wire:"hook_event_name=PostToolBatch"`
}

// UserPromptSubmitInput is the input of a hook that runs before a prompt is sent to
// the model.
type UserPromptSubmitInput struct {
	HookBase
	Prompt       string `json:"prompt"`
	Source       string `json:"source,omitzero"` // "user", "sdk", "system", "loop_wakeup", "schedule_wakeup" or "poll_event"
	SessionTitle string `json:"session_title,omitzero"`
	Open         `wire:"hook_event_name=UserPromptSubmit"`
}

// UserPromptExpansionInput is the input of a hook that runs when a command is
// expanded to a prompt.
type UserPromptExpansionInput struct {
	HookBase
	ExpansionType string `json:"expansion_type"` // "slash_command" or "mcp_prompt"
	CommandName   string `json:"command_name"`
	CommandArgs   string `json:"command_args"`
	CommandSource string `json:"command_source,omitzero"`
	Prompt        string `json:"prompt"`
	Open          `wire:"hook_event_name=UserPromptExpansion"`
}

// SessionStartInput is the input of a hook that runs when a session starts or
// continues.
type SessionStartInput struct {
	HookBase
	Source                   string   `json:"source"` // "startup", "resume", "clear", "compact" or "fork"
	Model                    string   `json:"model,omitzero"`
	SessionTitle             string   `json:"session_title,omitzero"`
	SecondsSinceLastResponse *float64 `json:"seconds_since_last_response,omitzero"`
	ContextTokens            *int64   `json:"context_tokens,omitzero"`
	PromptCacheLikelyExpired bool     `json:"prompt_cache_likely_expired,omitzero"`
	EstimatedCacheWriteUSD   *float64 `json:"estimated_cache_write_usd,omitzero"` // nil if unknown
	Open                     `wire:"hook_event_name=SessionStart"`
}

// SessionEndInput is the input of a hook that runs when a session ends.
type SessionEndInput struct {
	HookBase
	Reason string `json:"reason"` // "clear", "resume", "logout", "prompt_input_exit" or "other"
	Open   `wire:"hook_event_name=SessionEnd"`
}

// StopInput is the input of a hook that runs when the model has finished its turn.
type StopInput struct {
	HookBase
	StopHookActive       bool        `json:"stop_hook_active"` // a Stop hook has already continued this turn
	LastAssistantMessage string      `json:"last_assistant_message,omitzero"`
	BackgroundTasks      []*HookTask `json:"background_tasks,omitzero"` // work that is still running
	SessionCrons         []*HookCron `json:"session_crons,omitzero"`    // scheduled prompts
	Open                 `wire:"hook_event_name=Stop"`
}

// StopFailureInput is the input of a hook that runs when a turn ends because the
// model could not be reached or refused to answer.
type StopFailureInput struct {
	HookBase
	Error                AssistantError `json:"error"`
	ErrorDetails         string         `json:"error_details,omitzero"`
	LastAssistantMessage string         `json:"last_assistant_message,omitzero"`
	Open                 `wire:"hook_event_name=StopFailure"`
}

// SubagentStartInput is the input of a hook that runs when a subagent starts.
// AgentID and AgentType identify it.
type SubagentStartInput struct {
	HookBase
	Open `wire:"hook_event_name=SubagentStart"`
}

// SubagentStopInput is the input of a hook that runs when a subagent has finished.
// AgentID and AgentType identify it.
type SubagentStopInput struct {
	HookBase
	AgentTranscriptPath  string      `json:"agent_transcript_path"`
	StopHookActive       bool        `json:"stop_hook_active"` // a Stop hook has already continued this turn
	LastAssistantMessage string      `json:"last_assistant_message,omitzero"`
	BackgroundTasks      []*HookTask `json:"background_tasks,omitzero"` // work that is still running
	SessionCrons         []*HookCron `json:"session_crons,omitzero"`    // scheduled prompts
	Open                 `wire:"hook_event_name=SubagentStop"`
}

// PreCompactInput is the input of a hook that runs before a conversation is
// compacted.
type PreCompactInput struct {
	HookBase
	Trigger            string `json:"trigger"`                         // "manual" or "auto"
	CustomInstructions string `json:"custom_instructions" wire:"null"` // the user's instructions for the summary
	Open               `wire:"hook_event_name=PreCompact"`
}

// PostCompactInput is the input of a hook that runs after a conversation was
// compacted.
type PostCompactInput struct {
	HookBase
	Trigger        string `json:"trigger"` // "manual" or "auto"
	CompactSummary string `json:"compact_summary"`
	Open           `wire:"hook_event_name=PostCompact"`
}

// NotificationInput is the input of a hook that runs when the agent needs the
// attention of a person.
type NotificationInput struct {
	HookBase
	Message          string `json:"message"`
	Title            string `json:"title,omitzero"`
	NotificationType string `json:"notification_type"`
	Open             `wire:"hook_event_name=Notification"`
}

// PermissionRequestInput is the input of a hook that runs when a tool call needs permission,
// at the same time as the request to the host.
type PermissionRequestInput struct {
	HookBase
	ToolName              string              `json:"tool_name"`
	ToolInput             json.RawMessage     `json:"tool_input"`
	PermissionSuggestions []*PermissionUpdate `json:"permission_suggestions,omitzero"`
	MCPServer             *ToolServer         `json:"mcp_server,omitzero"` // the MCP server of the tool, if it has one
	Open                  `wire:"hook_event_name=PermissionRequest"`
}

// PermissionDeniedInput is the input of a hook that runs when a tool call was
// denied after a model judged it, in mode "auto".
type PermissionDeniedInput struct {
	HookBase
	ToolName  string          `json:"tool_name"`
	ToolInput json.RawMessage `json:"tool_input"`
	ToolUseID string          `json:"tool_use_id"`
	Reason    string          `json:"reason"`
	MCPServer *ToolServer     `json:"mcp_server,omitzero"` // the MCP server of the tool, if it has one
	Open      `wire:"hook_event_name=PermissionDenied"`
}

// PreModelSwitchInput is the input of a hook that runs before the session changes its
// model.
type PreModelSwitchInput struct {
	HookBase
	FromModel              string  `json:"from_model"`
	ToModel                string  `json:"to_model"`
	RequestedModel         string  `json:"requested_model" wire:"null"` // the name in the request; empty for the default
	Source                 string  `json:"source"`                      // "command", "picker" or "sdk"
	ContextTokens          int64   `json:"context_tokens"`
	PromptCacheWarm        bool    `json:"prompt_cache_warm"`
	CacheTTL               string  `json:"cache_ttl"`                 // such as "5m"
	EstimatedCacheWriteUSD float64 `json:"estimated_cache_write_usd"` // the estimated cost of filling the cache again
	Pricing                string  `json:"pricing"`                   // the source of the prices
	Open                   `wire:"hook_event_name=PreModelSwitch"`
}

// PostModelSwitchInput is the input of a hook that runs after the session changed its
// model.
type PostModelSwitchInput struct {
	HookBase
	FromModel              string  `json:"from_model"`
	ToModel                string  `json:"to_model"`
	RequestedModel         string  `json:"requested_model" wire:"null"` // the name in the request; empty for the default
	Source                 string  `json:"source"`                      // "command", "picker", "sdk", "auto" or "resume"
	ContextTokens          int64   `json:"context_tokens"`
	PromptCacheWarm        bool    `json:"prompt_cache_warm"`
	CacheTTL               string  `json:"cache_ttl"`                 // such as "5m"
	EstimatedCacheWriteUSD float64 `json:"estimated_cache_write_usd"` // the estimated cost of filling the cache again
	Pricing                string  `json:"pricing"`                   // the source of the prices
	Open                   `wire:"hook_event_name=PostModelSwitch"`
}

// SetupInput is the input of a hook that runs when a workspace is prepared.
type SetupInput struct {
	HookBase
	Trigger string `json:"trigger"` // "init" or "maintenance"
	Open    `wire:"hook_event_name=Setup"`
}

// TaskCreatedInput is the input of a hook that runs when a task was added to the
// task list.
type TaskCreatedInput struct {
	HookBase
	TaskID          string `json:"task_id"`
	TaskSubject     string `json:"task_subject"`
	TaskDescription string `json:"task_description,omitzero"`
	TeammateName    string `json:"teammate_name,omitzero"`
	TeamName        string `json:"team_name,omitzero"` // deprecated
	Open            `wire:"hook_event_name=TaskCreated"`
}

// TaskCompletedInput is the input of a hook that runs before a task is marked as
// completed.
type TaskCompletedInput struct {
	HookBase
	TaskID          string `json:"task_id"`
	TaskSubject     string `json:"task_subject"`
	TaskDescription string `json:"task_description,omitzero"`
	TeammateName    string `json:"teammate_name,omitzero"`
	TeamName        string `json:"team_name,omitzero"` // deprecated
	Open            `wire:"hook_event_name=TaskCompleted"`
}

// TeammateIdleInput is the input of a hook that runs when a teammate becomes idle.
type TeammateIdleInput struct {
	HookBase
	TeammateName string `json:"teammate_name"`
	TeamName     string `json:"team_name"`
	Open         `wire:"hook_event_name=TeammateIdle"`
}

// ElicitationInput is the input of a hook that runs when an MCP server asks the
// user a question.
type ElicitationInput struct {
	HookBase
	MCPServerName   string          `json:"mcp_server_name"`
	Message         string          `json:"message"`
	Mode            string          `json:"mode,omitzero"` // "form" or "url"
	URL             string          `json:"url,omitzero"`
	ElicitationID   string          `json:"elicitation_id,omitzero"`
	RequestedSchema json.RawMessage `json:"requested_schema,omitzero"`
	Open            `wire:"hook_event_name=Elicitation"`
}

// ElicitationResultInput is the input of a hook that runs before the user's answer
// is sent to the MCP server.
type ElicitationResultInput struct {
	HookBase
	MCPServerName string          `json:"mcp_server_name"`
	ElicitationID string          `json:"elicitation_id,omitzero"`
	Mode          string          `json:"mode,omitzero"` // "form" or "url"
	Action        ElicitAction    `json:"action"`
	Content       json.RawMessage `json:"content,omitzero"`
	Open          `wire:"hook_event_name=ElicitationResult"`
}

// ConfigChangeInput is the input of a hook that runs when a settings file changed.
type ConfigChangeInput struct {
	HookBase
	Source   string `json:"source"` // "user_settings", "project_settings", "local_settings", "policy_settings" or "skills"
	FilePath string `json:"file_path,omitzero"`
	Open     `wire:"hook_event_name=ConfigChange"`
}

// InstructionsLoadedInput is the input of a hook that runs when an instruction file
// was read.
type InstructionsLoadedInput struct {
	HookBase
	FilePath        string   `json:"file_path"`
	MemoryType      string   `json:"memory_type"` // "User", "Project", "Local" or "Managed"
	LoadReason      string   `json:"load_reason"` // "session_start", "nested_traversal", "path_glob_match", "include" or "compact"
	Globs           []string `json:"globs,omitzero"`
	TriggerFilePath string   `json:"trigger_file_path,omitzero"`
	ParentFilePath  string   `json:"parent_file_path,omitzero"`
	Open            `wire:"hook_event_name=InstructionsLoaded"`
}

// WorktreeCreateInput is the input of a hook that creates a worktree. Its output is
// the path of the worktree.
type WorktreeCreateInput struct {
	HookBase
	Name string `json:"name"`
	Open `wire:"hook_event_name=WorktreeCreate"`
}

// WorktreeRemoveInput is the input of a hook that runs when a worktree is no longer
// needed.
type WorktreeRemoveInput struct {
	HookBase
	WorktreePath string `json:"worktree_path"`
	Open         `wire:"hook_event_name=WorktreeRemove"`
}

// CwdChangedInput is the input of a hook that runs when the working directory changed.
type CwdChangedInput struct {
	HookBase
	OldCwd string `json:"old_cwd"`
	NewCwd string `json:"new_cwd"`
	Open   `wire:"hook_event_name=CwdChanged"`
}

// FileChangedInput is the input of a hook that runs when a watched file changed.
type FileChangedInput struct {
	HookBase
	FilePath string `json:"file_path"`
	Change   string `json:"event"` // "change", "add" or "unlink"
	Open     `wire:"hook_event_name=FileChanged"`
}

// DirectoryAddedInput is the input of a hook that runs when a directory was added
// to the session.
type DirectoryAddedInput struct {
	HookBase
	Directory string `json:"directory"`
	Source    string `json:"source"` // "slash_command" or "register_repo_root"
	Open      `wire:"hook_event_name=DirectoryAdded"`
}

// MessageDisplayInput is the input of a hook that runs before text of the model is
// shown.
type MessageDisplayInput struct {
	HookBase
	TurnID    string `json:"turn_id"`
	MessageID string `json:"message_id"`
	Index     int    `json:"index"`
	Final     bool   `json:"final"` // the message has no more text
	Delta     string `json:"delta"`
	Open      `wire:"hook_event_name=MessageDisplay"`
}
