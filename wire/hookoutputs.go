package wire

import (
	"encoding/json"
)

// HookOutput is the response to a [HookCallback]. The zero value has no effect.
type HookOutput struct {
	// Async means that the hook continues to run and the agent does not wait. Of
	// the other fields, only AsyncTimeout then has an effect.
	Async        bool  `json:"async,omitzero"`
	AsyncTimeout int64 `json:"asyncTimeout,omitzero"` // in milliseconds

	Continue           *bool              `json:"continue,omitzero"`       // false ends the turn; nil means true
	StopReason         string             `json:"stopReason,omitzero"`     // the reason, for people
	SuppressOutput     bool               `json:"suppressOutput,omitzero"` // do not show the output of the hook
	Decision           HookDecision       `json:"decision,omitzero"`
	Reason             string             `json:"reason,omitzero"`        // the reason for the decision, for the model
	SystemMessage      string             `json:"systemMessage,omitzero"` // a text for people
	TerminalSequence   string             `json:"terminalSequence,omitzero"`
	HookSpecificOutput HookSpecificOutput `json:"hookSpecificOutput,omitzero"`
	Open
}

// A HookDecision is the decision of a hook about an event.
type HookDecision string

// The decisions. The event determines what a hook blocks: a prompt, a tool call, or
// the end of a turn.
const (
	DecisionBlock   HookDecision = "block"
	DecisionApprove HookDecision = "approve" // deprecated: see [PreToolUseOutput]
)

// A HookSpecificOutput is the part of a [HookOutput] that only one event has. Its
// concrete types are the structs of this package whose name is that of an event
// and Output; for an event of another name it is an [*UnknownOutput].
type HookSpecificOutput interface {
	// Event returns the name of the event.
	Event() HookEvent
	hookOutput()
}

// Context returns the text that a hook adds for the model, empty if there is none.
func (o *HookOutput) Context() string {
	switch out := o.HookSpecificOutput.(type) {
	case interface{ additionalContext() string }:
		return out.additionalContext()
	case *UnknownOutput:
		var has struct {
			AdditionalContext string `json:"additionalContext"`
		}
		json.Unmarshal(out.Raw, &has) // a member of another shape is left out
		return has.AdditionalContext
	}
	return ""
}

// UnknownOutput is output for an event that this package does not know.
type UnknownOutput struct {
	Name HookEvent       // its hookEventName member, empty if it has none
	Raw  json.RawMessage // the whole output
}

// Event returns Name.
func (u *UnknownOutput) Event() HookEvent { return u.Name }
func (*UnknownOutput) hookOutput()        {}

func (u *UnknownOutput) decodeWire(x item) (bool, error) {
	*u = UnknownOutput{Name: HookEvent(x.lookup("hookEventName")), Raw: x.raw()}
	return true, nil
}

func (u *UnknownOutput) encodeWire(dst []byte) ([]byte, error) { return appendRaw(dst, u.Raw) }

// decodeHookOutput reads any valid JSON value.
func decodeHookOutput(x item) HookSpecificOutput {
	if out, ok := decodeKind(x, "hookEventName", outputTypes).(HookSpecificOutput); ok {
		return out
	}
	u := new(UnknownOutput)
	u.decodeWire(x)
	return u
}

// PreToolUseOutput decides about a tool call before it runs.
type PreToolUseOutput struct {
	PermissionDecision       PermissionBehavior `json:"permissionDecision,omitzero"` // empty if the rules decide
	PermissionDecisionReason string             `json:"permissionDecisionReason,omitzero"`
	UpdatedInput             json.RawMessage    `json:"updatedInput,omitzero"` // replaces the input of the tool
	AdditionalContext        string             `json:"additionalContext,omitzero"`
	Open                     `wire:"hookEventName=PreToolUse"`
}

// PostToolUseOutput adds to the result of a tool, or replaces it.
type PostToolUseOutput struct {
	AdditionalContext    string          `json:"additionalContext,omitzero"`
	UpdatedToolOutput    json.RawMessage `json:"updatedToolOutput,omitzero"` // replaces the result, in the form of the tool
	UpdatedMCPToolOutput json.RawMessage `json:"updatedMCPToolOutput,omitzero"`
	ClassifierContext    string          `json:"classifierContext,omitzero"` // text for the model that decides in ModeAuto
	Open                 `wire:"hookEventName=PostToolUse"`
}

// PostToolUseFailureOutput adds text for the model to a failed call.
type PostToolUseFailureOutput struct {
	AdditionalContext string `json:"additionalContext,omitzero"`
	Open              `wire:"hookEventName=PostToolUseFailure"`
}

// PostToolBatchOutput adds text for the model to its tool calls.
type PostToolBatchOutput struct {
	AdditionalContext string `json:"additionalContext,omitzero"`
	Open              `wire:"hookEventName=PostToolBatch"`
}

// UserPromptSubmitOutput adds to a prompt.
type UserPromptSubmitOutput struct {
	AdditionalContext      string `json:"additionalContext,omitzero"`
	SessionTitle           string `json:"sessionTitle,omitzero"`
	SuppressOriginalPrompt bool   `json:"suppressOriginalPrompt,omitzero"` // do not show a blocked prompt
	Open                   `wire:"hookEventName=UserPromptSubmit"`
}

// UserPromptExpansionOutput adds to the prompt that a command was expanded to.
type UserPromptExpansionOutput struct {
	AdditionalContext      string `json:"additionalContext,omitzero"`
	SuppressOriginalPrompt bool   `json:"suppressOriginalPrompt,omitzero"`
	Open                   `wire:"hookEventName=UserPromptExpansion"`
}

// SessionStartOutput prepares a session.
type SessionStartOutput struct {
	AdditionalContext  string   `json:"additionalContext,omitzero"`
	InitialUserMessage string   `json:"initialUserMessage,omitzero"`
	SessionTitle       string   `json:"sessionTitle,omitzero"`
	WatchPaths         []string `json:"watchPaths,omitzero"` // files to watch for FileChanged events
	ReloadSkills       bool     `json:"reloadSkills,omitzero"`
	Open               `wire:"hookEventName=SessionStart"`
}

// StopOutput adds text for the model, which then continues.
type StopOutput struct {
	AdditionalContext string `json:"additionalContext,omitzero"`
	Open              `wire:"hookEventName=Stop"`
}

// SubagentStartOutput adds text for a subagent before it starts.
type SubagentStartOutput struct {
	AdditionalContext string `json:"additionalContext,omitzero"`
	Open              `wire:"hookEventName=SubagentStart"`
}

// SubagentStopOutput adds text for a subagent, which then continues.
type SubagentStopOutput struct {
	AdditionalContext string `json:"additionalContext,omitzero"`
	Open              `wire:"hookEventName=SubagentStop"`
}

// NotificationOutput adds text for the model.
type NotificationOutput struct {
	AdditionalContext string `json:"additionalContext,omitzero"`
	Open              `wire:"hookEventName=Notification"`
}

// PermissionRequestOutput answers a permission request in place of the host.
type PermissionRequestOutput struct {
	Decision *PermissionResult `json:"decision,omitzero"`
	Open     `wire:"hookEventName=PermissionRequest"`
}

// PermissionDeniedOutput can allow the model to retry the call.
type PermissionDeniedOutput struct {
	Retry bool `json:"retry,omitzero"`
	Open  `wire:"hookEventName=PermissionDenied"`
}

// PreModelSwitchOutput decides about a change of the model.
type PreModelSwitchOutput struct {
	PermissionDecision       PermissionBehavior `json:"permissionDecision,omitzero"`
	PermissionDecisionReason string             `json:"permissionDecisionReason,omitzero"`
	Open                     `wire:"hookEventName=PreModelSwitch"`
}

// PostModelSwitchOutput adds text for the new model.
type PostModelSwitchOutput struct {
	AdditionalContext string `json:"additionalContext,omitzero"`
	Open              `wire:"hookEventName=PostModelSwitch"`
}

// SetupOutput adds text about the workspace for the model.
type SetupOutput struct {
	AdditionalContext string `json:"additionalContext,omitzero"`
	Open              `wire:"hookEventName=Setup"`
}

// ElicitationOutput answers an MCP server instead of the user.
type ElicitationOutput struct {
	Action  ElicitAction    `json:"action,omitzero"`
	Content json.RawMessage `json:"content,omitzero"`
	Open    `wire:"hookEventName=Elicitation"`
}

// ElicitationResultOutput changes the user's answer to an MCP server.
type ElicitationResultOutput struct {
	Action  ElicitAction    `json:"action,omitzero"`
	Content json.RawMessage `json:"content,omitzero"`
	Open    `wire:"hookEventName=ElicitationResult"`
}

// WorktreeCreateOutput is the path of the worktree.
type WorktreeCreateOutput struct {
	WorktreePath string `json:"worktreePath"`
	Open         `wire:"hookEventName=WorktreeCreate"`
}

// CwdChangedOutput lists the files to watch in the new directory.
type CwdChangedOutput struct {
	WatchPaths []string `json:"watchPaths,omitzero"`
	Open       `wire:"hookEventName=CwdChanged"`
}

// FileChangedOutput lists the files to watch from now on.
type FileChangedOutput struct {
	WatchPaths []string `json:"watchPaths,omitzero"`
	Open       `wire:"hookEventName=FileChanged"`
}

// MessageDisplayOutput replaces the text that is shown.
type MessageDisplayOutput struct {
	DisplayContent *string `json:"displayContent,omitzero"` // nil keeps the text; empty shows nothing
	Open           `wire:"hookEventName=MessageDisplay"`
}
