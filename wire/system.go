package wire

import "encoding/json"

// Init is the message that starts a turn and describes the agent: its tools, servers
// and settings.
type Init struct {
	Cwd               string             `json:"cwd"`
	SessionID         string             `json:"session_id,omitzero"`
	Tools             Names              `json:"tools"` // the tools that the model may call
	MCPServers        []*InitMCPServer   `json:"mcp_servers"`
	Model             string             `json:"model"`
	PermissionMode    PermissionMode     `json:"permissionMode"`
	SlashCommands     Names              `json:"slash_commands"`               // the commands that prompts may start with
	APIKeySource      string             `json:"apiKeySource,omitzero"`        // the source of the key; "none" without one
	ClaudeCodeVersion string             `json:"claude_code_version,omitzero"` // the version of the agent, or of the one it replaces
	OutputStyle       string             `json:"output_style,omitzero"`
	Agents            Names              `json:"agents,omitzero"` // kinds of subagents
	Skills            Names              `json:"skills,omitzero"`
	Plugins           []*InitPlugin      `json:"plugins,omitzero"`
	PluginErrors      []*InitPluginError `json:"plugin_errors,omitzero"`
	Betas             []string           `json:"betas,omitzero"`
	Capabilities      []string           `json:"capabilities,omitzero"`
	UUID              string             `json:"uuid,omitzero"`

	TerminalSlashCommands  Names           `json:"terminal_slash_commands,omitzero"`
	OriginalCwd            string          `json:"original_cwd,omitzero"`
	AdditionalDirectories  []string        `json:"additional_directories,omitzero"`
	MemoryPaths            json.RawMessage `json:"memory_paths,omitzero"`
	MessagingSocketPath    string          `json:"messaging_socket_path,omitzero"`
	Effort                 string          `json:"effort,omitzero"`
	ViewMode               string          `json:"view_mode,omitzero"`
	FastModeState          string          `json:"fast_mode_state,omitzero"`
	FastModeDisabledReason string          `json:"fast_mode_disabled_reason,omitzero"`
	UserMessageUUIDs       []string        `json:"user_message_uuids,omitzero"`
	Timestamp              string          `json:"timestamp,omitzero"`
	Open                   `wire:"type=system,subtype=init"`
}

// Has reports whether the agent announced a capability.
func (m *Init) Has(capability string) bool {
	for _, c := range m.Capabilities {
		if c == capability {
			return true
		}
	}
	return false
}

// InitMCPServer is an MCP server of the agent.
type InitMCPServer struct {
	Name   string `json:"name"`
	Status string `json:"status"` // "connected", "failed", "pending" …
	Source string `json:"source,omitzero"`
	Open
}

// InitPlugin is a plugin that the agent loaded.
type InitPlugin struct {
	Name    string `json:"name"`
	Path    string `json:"path"`
	Source  string `json:"source,omitzero"`
	Version string `json:"version,omitzero"`
	Open
}

// InitPluginError is a plugin that the agent could not load.
type InitPluginError struct {
	Plugin  string `json:"plugin"`
	Type    string `json:"type"`
	Message string `json:"message"`
	Path    string `json:"path,omitzero"`
	Open
}

// CompactBoundary is the message that marks where a summary replaced older
// messages.
type CompactBoundary struct {
	Metadata          CompactMetadata `json:"compact_metadata"`
	LogicalParentUUID string          `json:"logical_parent_uuid,omitzero"`
	SessionID         string          `json:"session_id,omitzero"`
	UUID              string          `json:"uuid,omitzero"`
	Timestamp         string          `json:"timestamp,omitzero"`
	Open              `wire:"type=system,subtype=compact_boundary"`
}

// CompactMetadata describes a compaction.
type CompactMetadata struct {
	Trigger                 string          `json:"trigger"` // "manual" or "auto"
	PreTokens               int64           `json:"pre_tokens"`
	PostTokens              *int64          `json:"post_tokens,omitzero"`
	CumulativeDroppedTokens *int64          `json:"cumulative_dropped_tokens,omitzero"`
	DurationMS              *int64          `json:"duration_ms,omitzero"`
	PreservedSegment        json.RawMessage `json:"preserved_segment,omitzero"`
	PreservedMessages       json.RawMessage `json:"preserved_messages,omitzero"`
	Open
}

// Status is a message that reports the current activity of the agent.
type Status struct {
	Status             string         `json:"status" wire:"null"` // "compacting", "requesting", or empty
	PermissionMode     PermissionMode `json:"permissionMode,omitzero"`
	CompactResult      string         `json:"compact_result,omitzero"` // "success" or "failed"
	CompactError       string         `json:"compact_error,omitzero"`
	CompactOutputChars *int64         `json:"compact_output_chars,omitzero"`
	UserMessageUUIDs   []string       `json:"user_message_uuids,omitzero"`
	SessionID          string         `json:"session_id,omitzero"`
	UUID               string         `json:"uuid,omitzero"`
	Timestamp          string         `json:"timestamp,omitzero"`
	Open               `wire:"type=system,subtype=status"`
}

// APIRetry is a message that reports that a request to the API failed and is
// retried.
type APIRetry struct {
	Attempt      int             `json:"attempt"`
	MaxRetries   int             `json:"max_retries"`
	RetryDelayMS int64           `json:"retry_delay_ms"`
	ErrorStatus  int             `json:"error_status" wire:"null"` // HTTP status, 0 if there was no response
	Error        AssistantError  `json:"error"`
	NoResponse   json.RawMessage `json:"no_response,omitzero"`
	SessionID    string          `json:"session_id,omitzero"`
	UUID         string          `json:"uuid,omitzero"`
	Timestamp    string          `json:"timestamp,omitzero"`
	Open         `wire:"type=system,subtype=api_retry"`
}

// ModelFallback is a message that reports that another model answers from now on.
type ModelFallback struct {
	Trigger       string `json:"trigger"`
	OriginalModel string `json:"original_model"`
	FallbackModel string `json:"fallback_model"`
	Content       string `json:"content,omitzero"`
	SessionID     string `json:"session_id,omitzero"`
	UUID          string `json:"uuid,omitzero"`
	Timestamp     string `json:"timestamp,omitzero"`
	Open          `wire:"type=system,subtype=model_fallback"`
}

// ModelRefusalFallback is a message that reports that a prompt was refused and sent
// to another model.
type ModelRefusalFallback struct {
	Trigger                string   `json:"trigger,omitzero"`
	Direction              string   `json:"direction,omitzero"` // "retry", "revert" or "sticky"
	Scope                  string   `json:"scope,omitzero"`
	OriginalModel          string   `json:"original_model"`
	FallbackModel          string   `json:"fallback_model"`
	RequestID              string   `json:"request_id" wire:"null"`
	APIRefusalCategory     string   `json:"api_refusal_category,omitzero"`
	APIRefusalExplanation  string   `json:"api_refusal_explanation,omitzero"`
	RetractedMessageUUIDs  []string `json:"retracted_message_uuids,omitzero"`
	RefusedUserMessageUUID string   `json:"refused_user_message_uuid,omitzero"`
	Content                string   `json:"content,omitzero"`
	SessionID              string   `json:"session_id,omitzero"`
	UUID                   string   `json:"uuid,omitzero"`
	Timestamp              string   `json:"timestamp,omitzero"`
	Open                   `wire:"type=system,subtype=model_refusal_fallback"`
}

// ModelRefusalNoFallback is a message that reports that a prompt was refused and
// not sent to another model.
type ModelRefusalNoFallback struct {
	OriginalModel          string `json:"original_model"`
	RequestID              string `json:"request_id" wire:"null"`
	APIRefusalCategory     string `json:"api_refusal_category,omitzero"`
	APIRefusalExplanation  string `json:"api_refusal_explanation,omitzero"`
	RefusedUserMessageUUID string `json:"refused_user_message_uuid,omitzero"`
	Content                string `json:"content,omitzero"`
	SessionID              string `json:"session_id,omitzero"`
	UUID                   string `json:"uuid,omitzero"`
	Timestamp              string `json:"timestamp,omitzero"`
	Open                   `wire:"type=system,subtype=model_refusal_no_fallback"`
}

// SessionStateChanged is a message that reports whether the agent works, waits for
// a response of the host, or waits for a prompt.
type SessionStateChanged struct {
	State       string `json:"state"` // "idle", "running" or "requires_action"
	SDKHostOnly bool   `json:"sdk_host_only,omitzero"`
	SessionID   string `json:"session_id,omitzero"`
	UUID        string `json:"uuid,omitzero"`
	Timestamp   string `json:"timestamp,omitzero"`
	Open        `wire:"type=system,subtype=session_state_changed"`
}

// SessionTitleChanged is a message that reports a new title of the session.
type SessionTitleChanged struct {
	Title     string `json:"title"`
	SessionID string `json:"session_id,omitzero"`
	UUID      string `json:"uuid,omitzero"`
	Timestamp string `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=session_title_changed"`
}

// PermissionDenied is a message that reports that a tool call was denied without
// asking the host. The list in the result is authoritative.
type PermissionDenied struct {
	ToolName           string `json:"tool_name"`
	ToolUseID          string `json:"tool_use_id"`
	AgentID            string `json:"agent_id,omitzero"`
	DecisionReasonType string `json:"decision_reason_type,omitzero"`
	DecisionReason     string `json:"decision_reason,omitzero"`
	Message            string `json:"message"`
	SessionID          string `json:"session_id,omitzero"`
	UUID               string `json:"uuid,omitzero"`
	Timestamp          string `json:"timestamp,omitzero"`
	Open               `wire:"type=system,subtype=permission_denied"`
}

// TaskStarted is a message that reports that a subagent or a background command
// started.
type TaskStarted struct {
	TaskID          string `json:"task_id"`
	RunID           string `json:"run_id,omitzero"`
	ToolUseID       string `json:"tool_use_id,omitzero"`
	Description     string `json:"description"`
	SubagentType    string `json:"subagent_type,omitzero"`
	IsBackgrounded  *bool  `json:"is_backgrounded,omitzero"`
	SpawnDepth      *int   `json:"spawn_depth,omitzero"`
	ParentTaskID    string `json:"parent_task_id,omitzero"`
	OwnedBySubagent bool   `json:"owned_by_subagent,omitzero"` // a command that a subagent runs
	TaskType        string `json:"task_type,omitzero"`         // "local_agent", "local_bash" …
	WorkflowName    string `json:"workflow_name,omitzero"`
	Prompt          string `json:"prompt,omitzero"`
	SkipTranscript  bool   `json:"skip_transcript,omitzero"`
	Ambient         bool   `json:"ambient,omitzero"`
	SessionID       string `json:"session_id,omitzero"`
	UUID            string `json:"uuid,omitzero"`
	Timestamp       string `json:"timestamp,omitzero"`
	Open            `wire:"type=system,subtype=task_started"`
}

// TaskProgress is a message that reports the progress of a task.
type TaskProgress struct {
	TaskID       string     `json:"task_id"`
	RunID        string     `json:"run_id,omitzero"`
	ToolUseID    string     `json:"tool_use_id,omitzero"`
	Description  string     `json:"description"`
	SubagentType string     `json:"subagent_type,omitzero"`
	Usage        *TaskUsage `json:"usage,omitzero"`
	LastToolName string     `json:"last_tool_name,omitzero"`
	Summary      string     `json:"summary,omitzero"`
	SessionID    string     `json:"session_id,omitzero"`
	UUID         string     `json:"uuid,omitzero"`
	Timestamp    string     `json:"timestamp,omitzero"`
	Open         `wire:"type=system,subtype=task_progress"`
}

// TaskUsage is the usage of a task so far.
type TaskUsage struct {
	TotalTokens int64 `json:"total_tokens"`
	ToolUses    int64 `json:"tool_uses"`
	DurationMS  int64 `json:"duration_ms"`
	Open
}

// TaskUpdated is a message that reports changes of a task.
type TaskUpdated struct {
	TaskID    string    `json:"task_id"`
	RunID     string    `json:"run_id,omitzero"`
	Patch     TaskPatch `json:"patch"`
	SessionID string    `json:"session_id,omitzero"`
	UUID      string    `json:"uuid,omitzero"`
	Timestamp string    `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=task_updated"`
}

// TaskPatch holds the parts of a task that changed.
type TaskPatch struct {
	Status         string `json:"status,omitzero"` // "pending", "running", "completed", "failed", "killed" or "paused"
	Description    string `json:"description,omitzero"`
	EndTime        int64  `json:"end_time,omitzero"`
	TotalPausedMS  *int64 `json:"total_paused_ms,omitzero"`
	Error          string `json:"error,omitzero"`
	IsBackgrounded *bool  `json:"is_backgrounded,omitzero"`
	Open
}

// TaskNotification is a message that reports the end of a task.
type TaskNotification struct {
	TaskID         string          `json:"task_id"`
	RunID          string          `json:"run_id,omitzero"`
	ToolUseID      string          `json:"tool_use_id,omitzero"`
	Status         string          `json:"status"` // "completed", "failed" or "stopped"
	Reason         string          `json:"reason,omitzero"`
	OutputFile     string          `json:"output_file"`
	Summary        string          `json:"summary"`
	Usage          *TaskUsage      `json:"usage,omitzero"`
	ResourceLinks  json.RawMessage `json:"resource_links,omitzero"`
	SkipTranscript bool            `json:"skip_transcript,omitzero"`
	Ambient        bool            `json:"ambient,omitzero"`
	SessionID      string          `json:"session_id,omitzero"`
	UUID           string          `json:"uuid,omitzero"`
	Timestamp      string          `json:"timestamp,omitzero"`
	Open           `wire:"type=system,subtype=task_notification"`
}

// BackgroundTasksChanged is a message that lists all current background tasks.
type BackgroundTasksChanged struct {
	Tasks     []*BackgroundTask `json:"tasks"`
	SessionID string            `json:"session_id,omitzero"`
	UUID      string            `json:"uuid,omitzero"`
	Timestamp string            `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=background_tasks_changed"`
}

// BackgroundTask is a task that runs in the background.
type BackgroundTask struct {
	TaskID       string `json:"task_id"`
	RunID        string `json:"run_id,omitzero"`
	TaskType     string `json:"task_type"`
	SubagentType string `json:"subagent_type,omitzero"`
	Description  string `json:"description"`
	ParentTaskID string `json:"parent_task_id,omitzero"`
	Ambient      bool   `json:"ambient,omitzero"`
	Open
}

// HookStarted is a message that reports that a hook started.
type HookStarted struct {
	HookID    string    `json:"hook_id"`
	HookName  string    `json:"hook_name"`
	HookEvent HookEvent `json:"hook_event"`
	SessionID string    `json:"session_id,omitzero"`
	UUID      string    `json:"uuid,omitzero"`
	Timestamp string    `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=hook_started"`
}

// HookProgress is a message that carries the output of a hook so far.
type HookProgress struct {
	HookID    string    `json:"hook_id"`
	HookName  string    `json:"hook_name"`
	HookEvent HookEvent `json:"hook_event"`
	Stdout    string    `json:"stdout"`
	Stderr    string    `json:"stderr"`
	Output    string    `json:"output"`
	SessionID string    `json:"session_id,omitzero"`
	UUID      string    `json:"uuid,omitzero"`
	Timestamp string    `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=hook_progress"`
}

// HookResponse is a message that reports how a hook ended.
type HookResponse struct {
	HookID    string    `json:"hook_id,omitzero"`
	HookName  string    `json:"hook_name"`
	HookEvent HookEvent `json:"hook_event"`
	Output    string    `json:"output"`
	Stdout    string    `json:"stdout"`
	Stderr    string    `json:"stderr"`
	ExitCode  *int      `json:"exit_code,omitzero"`
	Outcome   string    `json:"outcome,omitzero"` // "success", "error" or "cancelled"
	SessionID string    `json:"session_id,omitzero"`
	UUID      string    `json:"uuid,omitzero"`
	Timestamp string    `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=hook_response"`
}

// Informational is a message that carries a notice for the person who uses the
// host.
type Informational struct {
	Content             string          `json:"content"`
	Level               string          `json:"level"` // "info", "notice", "suggestion" or "warning"
	ToolUseID           string          `json:"tool_use_id,omitzero"`
	PreventContinuation bool            `json:"prevent_continuation,omitzero"`
	PromptSubmitOutcome json.RawMessage `json:"prompt_submit_outcome,omitzero"`
	Tag                 string          `json:"tag,omitzero"`
	SessionID           string          `json:"session_id,omitzero"`
	UUID                string          `json:"uuid,omitzero"`
	Timestamp           string          `json:"timestamp,omitzero"`
	Open                `wire:"type=system,subtype=informational"`
}

// LocalCommandOutput is a message that carries the output of a slash command.
type LocalCommandOutput struct {
	Content   string `json:"content"`
	SessionID string `json:"session_id,omitzero"`
	UUID      string `json:"uuid,omitzero"`
	Timestamp string `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=local_command_output"`
}

// Notification is a message that carries a notification to show for a while.
type Notification struct {
	Key       string `json:"key"`
	Text      string `json:"text"`
	Priority  string `json:"priority"` // "low", "medium", "high" or "immediate"
	Color     string `json:"color,omitzero"`
	TimeoutMS int64  `json:"timeout_ms,omitzero"`
	SessionID string `json:"session_id,omitzero"`
	UUID      string `json:"uuid,omitzero"`
	Timestamp string `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=notification"`
}

// CommandsChanged is a message that lists all current slash commands.
type CommandsChanged struct {
	Commands  []*SlashCommand `json:"commands"`
	SessionID string          `json:"session_id,omitzero"`
	UUID      string          `json:"uuid,omitzero"`
	Timestamp string          `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=commands_changed"`
}

// ThinkingTokens is a message that estimates the number of thinking tokens so far.
type ThinkingTokens struct {
	EstimatedTokens      int64  `json:"estimated_tokens"`
	EstimatedTokensDelta int64  `json:"estimated_tokens_delta"`
	UserMessageUUID      string `json:"user_message_uuid,omitzero"`
	SessionID            string `json:"session_id,omitzero"`
	UUID                 string `json:"uuid,omitzero"`
	Timestamp            string `json:"timestamp,omitzero"`
	Open                 `wire:"type=system,subtype=thinking_tokens"`
}

// MemoryRecall is a message that lists the memories that were sent to the model.
type MemoryRecall struct {
	Mode      string          `json:"mode"` // "select" or "synthesize"
	Memories  json.RawMessage `json:"memories"`
	SessionID string          `json:"session_id,omitzero"`
	UUID      string          `json:"uuid,omitzero"`
	Timestamp string          `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=memory_recall"`
}

// ElicitationComplete is a message that reports that a question of an MCP server
// was answered elsewhere.
type ElicitationComplete struct {
	MCPServerName string `json:"mcp_server_name"`
	ElicitationID string `json:"elicitation_id"`
	SessionID     string `json:"session_id,omitzero"`
	UUID          string `json:"uuid,omitzero"`
	Timestamp     string `json:"timestamp,omitzero"`
	Open          `wire:"type=system,subtype=elicitation_complete"`
}

// PluginInstall is a message that reports the progress of a plugin installation.
type PluginInstall struct {
	Status    string `json:"status"` // "started", "installed", "failed" or "completed"
	Name      string `json:"name,omitzero"`
	Error     string `json:"error,omitzero"`
	SessionID string `json:"session_id,omitzero"`
	UUID      string `json:"uuid,omitzero"`
	Timestamp string `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=plugin_install"`
}

// FilesPersisted is a message that lists the files that a hosted agent stored.
type FilesPersisted struct {
	Files       json.RawMessage `json:"files"`
	Failed      json.RawMessage `json:"failed,omitzero"`
	ProcessedAt string          `json:"processed_at,omitzero"`
	SessionID   string          `json:"session_id,omitzero"`
	UUID        string          `json:"uuid,omitzero"`
	Timestamp   string          `json:"timestamp,omitzero"`
	Open        `wire:"type=system,subtype=files_persisted"`
}

// ControlRequestProgress is a message that reports the progress of a long control
// request.
type ControlRequestProgress struct {
	RequestID    string `json:"request_id"`
	Status       string `json:"status"` // "started" or "api_retry"
	Attempt      int    `json:"attempt,omitzero"`
	MaxRetries   int    `json:"max_retries,omitzero"`
	RetryDelayMS *int64 `json:"retry_delay_ms,omitzero"`
	ErrorStatus  *int   `json:"error_status,omitzero"`
	SessionID    string `json:"session_id,omitzero"`
	UUID         string `json:"uuid,omitzero"`
	Timestamp    string `json:"timestamp,omitzero"`
	Open         `wire:"type=system,subtype=control_request_progress"`
}

// MirrorError is a message that reports that part of a session could not be copied
// to its store.
type MirrorError struct {
	Error     string          `json:"error"`
	Key       json.RawMessage `json:"key,omitzero"`
	SessionID string          `json:"session_id,omitzero"`
	UUID      string          `json:"uuid,omitzero"`
	Timestamp string          `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=mirror_error"`
}

// SessionWritesLost is a message that reports that the agent could not write to
// disk.
type SessionWritesLost struct {
	ErrorCode            string   `json:"error_code"`
	Lost                 []string `json:"lost,omitzero"`
	TranscriptSessionIDs []string `json:"transcript_session_ids,omitzero"`
	SessionID            string   `json:"session_id,omitzero"`
	UUID                 string   `json:"uuid,omitzero"`
	Timestamp            string   `json:"timestamp,omitzero"`
	Open                 `wire:"type=system,subtype=session_writes_lost"`
}

// WorkerShuttingDown is a message that reports that a hosted agent is about to end.
type WorkerShuttingDown struct {
	Reason    string `json:"reason"`
	SessionID string `json:"session_id,omitzero"`
	UUID      string `json:"uuid,omitzero"`
	Timestamp string `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=worker_shutting_down"`
}

// UIInvalidate is a message that asks the host to redraw.
type UIInvalidate struct {
	Event     string `json:"event"`
	SessionID string `json:"session_id,omitzero"`
	UUID      string `json:"uuid,omitzero"`
	Timestamp string `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=ui_invalidate"`
}

// PermissionRequest is a message that announces a tool call; only some older agents
// send it. The permission request itself is a [CanUseTool] request.
type PermissionRequest struct {
	Tool      string          `json:"tool"`
	Params    json.RawMessage `json:"params,omitzero"`
	SessionID string          `json:"session_id,omitzero"`
	UUID      string          `json:"uuid,omitzero"`
	Timestamp string          `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=permission_request"`
}

// HookExecution is a message that reports the run of a hook; only some older agents
// send it.
type HookExecution struct {
	HookName  string          `json:"hook_name,omitzero"`
	HookEvent HookEvent       `json:"hook_event,omitzero"`
	HookData  json.RawMessage `json:"hook_data,omitzero"`
	SessionID string          `json:"session_id,omitzero"`
	UUID      string          `json:"uuid,omitzero"`
	Timestamp string          `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=hook_execution"`
}

// SystemError is a message that reports an error; only some older agents send it.
// The turn continues.
type SystemError struct {
	Err       *APIError `json:"error,omitzero"`
	Message   string    `json:"message,omitzero"`
	SessionID string    `json:"session_id,omitzero"`
	UUID      string    `json:"uuid,omitzero"`
	Timestamp string    `json:"timestamp,omitzero"`
	Open      `wire:"type=system,subtype=error"`
}
