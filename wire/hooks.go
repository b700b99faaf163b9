package wire

import (
	"encoding/json"
)

// A HookEvent is the name of an event for which hooks run.
type HookEvent string

// The events. Agents may have others.
const (
	EventPreToolUse          HookEvent = "PreToolUse"          // before a tool runs
	EventPostToolUse         HookEvent = "PostToolUse"         // after a tool has succeeded
	EventPostToolUseFailure  HookEvent = "PostToolUseFailure"  // after a tool has failed
	EventPostToolBatch       HookEvent = "PostToolBatch"       // after all tool calls of one answer
	EventUserPromptSubmit    HookEvent = "UserPromptSubmit"    // before a prompt is sent to the model
	EventUserPromptExpansion HookEvent = "UserPromptExpansion" // when a command is expanded to a prompt
	EventSessionStart        HookEvent = "SessionStart"        // when a session starts or continues
	EventSessionEnd          HookEvent = "SessionEnd"          // when a session ends
	EventStop                HookEvent = "Stop"                // when the model has finished its turn
	EventStopFailure         HookEvent = "StopFailure"         // when a turn ends in an error of the model
	EventSubagentStart       HookEvent = "SubagentStart"       // when a subagent starts
	EventSubagentStop        HookEvent = "SubagentStop"        // when a subagent has finished
	EventPreCompact          HookEvent = "PreCompact"          // before a conversation is compacted
	EventPostCompact         HookEvent = "PostCompact"         // after a conversation was compacted
	EventNotification        HookEvent = "Notification"        // when the agent needs the attention of a person
	EventPermissionRequest   HookEvent = "PermissionRequest"   // when a tool call needs permission, at the same time as the request to the host
	EventPermissionDenied    HookEvent = "PermissionDenied"    // when a tool call was denied after a model judged it, in mode "auto"
	EventPreModelSwitch      HookEvent = "PreModelSwitch"      // before the model changes
	EventPostModelSwitch     HookEvent = "PostModelSwitch"     // after the model changed
	EventSetup               HookEvent = "Setup"               // when a workspace is prepared
	EventTaskCreated         HookEvent = "TaskCreated"         // when a task was added to the task list
	EventTaskCompleted       HookEvent = "TaskCompleted"       // before a task is marked as completed
	EventTeammateIdle        HookEvent = "TeammateIdle"        // when a teammate becomes idle
	EventElicitation         HookEvent = "Elicitation"         // when an MCP server asks the user
	EventElicitationResult   HookEvent = "ElicitationResult"   // before the answer is sent to the MCP server
	EventConfigChange        HookEvent = "ConfigChange"        // when settings changed
	EventInstructionsLoaded  HookEvent = "InstructionsLoaded"  // when an instruction file was read
	EventWorktreeCreate      HookEvent = "WorktreeCreate"      // when the agent needs a worktree
	EventWorktreeRemove      HookEvent = "WorktreeRemove"      // when a worktree is no longer needed
	EventCwdChanged          HookEvent = "CwdChanged"          // when the working directory changed
	EventFileChanged         HookEvent = "FileChanged"         // when a watched file changed
	EventDirectoryAdded      HookEvent = "DirectoryAdded"      // when a directory was added to the session
	EventMessageDisplay      HookEvent = "MessageDisplay"      // before text is shown
)

// A HookInput is the input of a hook. Its concrete types are the structs of this
// package whose name ends in Input; for an event of another name it is an
// [*UnknownInput].
type HookInput interface {
	// Event returns the name of the event.
	Event() HookEvent
	// Base returns the part that every input has.
	Base() *HookBase
	hookInput()
}

// HookBase is the part that the inputs of all hooks have in common.
type HookBase struct {
	SessionID      string         `json:"session_id"`
	TranscriptPath string         `json:"transcript_path"`          // the file that stores the conversation
	Cwd            string         `json:"cwd"`                      // the agent's working directory
	PromptID       string         `json:"prompt_id,omitzero"`       // the current prompt
	PermissionMode PermissionMode `json:"permission_mode,omitzero"` // empty if the event does not depend on it
	AgentID        string         `json:"agent_id,omitzero"`        // the subagent, empty in the main conversation
	AgentType      string         `json:"agent_type,omitzero"`      // the name of the subagent's definition
	Effort         *HookEffort    `json:"effort,omitzero"`          // nil if unknown
}

// Base returns b. It makes every struct that embeds HookBase nearly a [HookInput].
func (b *HookBase) Base() *HookBase { return b }

// HookEffort is the reasoning effort of the model while a hook runs.
type HookEffort struct {
	Level Effort `json:"level"`
	Open
}

// HookToolCall is one of the calls of a [PostToolBatchInput].
type HookToolCall struct {
	ToolName     string          `json:"tool_name"`
	ToolInput    json.RawMessage `json:"tool_input"`
	ToolUseID    string          `json:"tool_use_id"`
	ToolResponse json.RawMessage `json:"tool_response,omitzero"`
	Open
}

// HookTask is work that still runs in the background when a turn ends.
type HookTask struct {
	ID          string `json:"id"`
	Type        string `json:"type"`
	Status      string `json:"status"`
	Description string `json:"description"`
	Command     string `json:"command,omitzero"`
	AgentType   string `json:"agent_type,omitzero"`
	Server      string `json:"server,omitzero"`
	Tool        string `json:"tool,omitzero"`
	Name        string `json:"name,omitzero"`
	Open
}

// HookCron is a prompt that the session sends to itself on a schedule.
type HookCron struct {
	ID        string `json:"id"`
	Schedule  string `json:"schedule"`
	Recurring bool   `json:"recurring"`
	Prompt    string `json:"prompt"`
	Open
}

// HookMatcher registers callbacks for an event; see [Initialize].
type HookMatcher struct {
	Matcher         string   `json:"matcher,omitzero"`   // the tools, such as "Write|Edit"; empty means all
	HookCallbackIDs []string `json:"hookCallbackIds"`    // the ids that a [HookCallback] uses
	Timeout         float64  `json:"timeout,omitzero"`   // in seconds; 0 means the agent's default
	OnFailure       string   `json:"onFailure,omitzero"` // "continue", or "block" the guarded action
	Open
}

// UnknownInput is the input of a hook for an event that this package does not
// know.
type UnknownInput struct {
	Name HookEvent       // its hook_event_name member, empty if it has none
	Raw  json.RawMessage // the whole input
}

// Event returns Name.
func (u *UnknownInput) Event() HookEvent { return u.Name }
func (*UnknownInput) hookInput()         {}

// Base returns a copy of the part that can be read from Raw.
func (u *UnknownInput) Base() *HookBase {
	b := new(HookBase)
	json.Unmarshal(u.Raw, b) // members of another shape are left out
	return b
}

func (u *UnknownInput) decodeWire(x item) (bool, error) {
	*u = UnknownInput{Name: HookEvent(x.lookup("hook_event_name")), Raw: x.raw()}
	return true, nil
}

func (u *UnknownInput) encodeWire(dst []byte) ([]byte, error) { return appendRaw(dst, u.Raw) }

// decodeHookInput reads any valid JSON value.
func decodeHookInput(x item) HookInput {
	if in, ok := decodeKind(x, "hook_event_name", hookTypes).(HookInput); ok {
		return in
	}
	u := new(UnknownInput)
	u.decodeWire(x)
	return u
}
