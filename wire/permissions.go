package wire

import "encoding/json"

// A PermissionMode determines which tools an agent runs without asking.
type PermissionMode string

// The permission modes. ModeManual is another name of ModeDefault, ModeDelegate
// is one that only older agents have.
const (
	ModeDefault           PermissionMode = "default"           // ask before risky calls
	ModeAcceptEdits       PermissionMode = "acceptEdits"       // edit files without asking
	ModePlan              PermissionMode = "plan"              // read, but change nothing
	ModeBypassPermissions PermissionMode = "bypassPermissions" // do not ask; explicit denials still apply
	ModeDontAsk           PermissionMode = "dontAsk"           // deny calls that no rule allows
	ModeAuto              PermissionMode = "auto"              // let a model decide, and ask if it cannot
	ModeManual            PermissionMode = "manual"
	ModeDelegate          PermissionMode = "delegate"
)

// A PermissionBehavior is the decision about a tool call.
type PermissionBehavior string

// The behaviors of rules, of answers to [CanUseTool] and of hooks.
const (
	BehaviorAllow PermissionBehavior = "allow" // run the call
	BehaviorDeny  PermissionBehavior = "deny"  // do not run the call
	BehaviorAsk   PermissionBehavior = "ask"   // ask a person; not valid as a response to CanUseTool
	BehaviorDefer PermissionBehavior = "defer" // end the turn before the call; only for PreToolUse hooks
)

// A PermissionUpdateType is the kind of change of a [PermissionUpdate].
type PermissionUpdateType string

// The kinds of changes.
const (
	UpdateAddRules          PermissionUpdateType = "addRules"
	UpdateReplaceRules      PermissionUpdateType = "replaceRules"
	UpdateRemoveRules       PermissionUpdateType = "removeRules"
	UpdateSetMode           PermissionUpdateType = "setMode"
	UpdateAddDirectories    PermissionUpdateType = "addDirectories"
	UpdateRemoveDirectories PermissionUpdateType = "removeDirectories"
)

// A PermissionDestination is the place where a [PermissionUpdate] is stored.
type PermissionDestination string

// The destinations. The first three are settings files; the others end with the
// session.
const (
	DestinationUserSettings    PermissionDestination = "userSettings"
	DestinationProjectSettings PermissionDestination = "projectSettings"
	DestinationLocalSettings   PermissionDestination = "localSettings"
	DestinationSession         PermissionDestination = "session"
	DestinationCLIArg          PermissionDestination = "cliArg"
)

// PermissionUpdate is a change of the permission rules. An agent suggests updates
// with [CanUseTool]; the host applies them by returning them in a
// [PermissionResult].
type PermissionUpdate struct {
	Type        PermissionUpdateType  `json:"type"`
	Rules       []*PermissionRule     `json:"rules,omitzero"`       // of UpdateAddRules, UpdateReplaceRules and UpdateRemoveRules
	Behavior    PermissionBehavior    `json:"behavior,omitzero"`    // the behavior of the rules
	Mode        PermissionMode        `json:"mode,omitzero"`        // of UpdateSetMode
	Directories []string              `json:"directories,omitzero"` // of UpdateAddDirectories and UpdateRemoveDirectories
	Destination PermissionDestination `json:"destination,omitzero"`
	Open
}

// PermissionRule names a tool, or some of its calls.
type PermissionRule struct {
	ToolName    string `json:"toolName"`
	RuleContent string `json:"ruleContent,omitzero"` // the calls, such as "git *"; empty means all
	Open
}

// A DecisionClassification is the scope of a person's decision.
type DecisionClassification string

// The classifications of a decision.
const (
	UserTemporary DecisionClassification = "user_temporary" // allowed once
	UserPermanent DecisionClassification = "user_permanent" // allowed from now on
	UserReject    DecisionClassification = "user_reject"    // denied
)

// PermissionResult is the response to [CanUseTool], and the decision of a
// PermissionRequest hook.
type PermissionResult struct {
	Behavior PermissionBehavior `json:"behavior"` // BehaviorAllow or BehaviorDeny

	// If the call is allowed.
	UpdatedInput       json.RawMessage     `json:"updatedInput,omitzero"` // replaces the input of the tool
	UpdatedPermissions []*PermissionUpdate `json:"updatedPermissions,omitzero"`

	// If the call is denied. Agents do not accept a denial without a message.
	Message   string `json:"message,omitzero"`   // the reason, for the model
	Interrupt bool   `json:"interrupt,omitzero"` // also end the turn

	ToolUseID              string                 `json:"toolUseID,omitzero"` // the call in question
	DecisionClassification DecisionClassification `json:"decisionClassification,omitzero"`
	Open
}

// AskRule is the rule that makes an agent ask.
type AskRule struct {
	Source      string `json:"source"` // the place of the rule
	ToolName    string `json:"tool_name"`
	RuleContent string `json:"rule_content,omitzero"`
	Open
}

// ListedRule is one rule in the response to [ListPermissionRules].
type ListedRule struct {
	Behavior    PermissionBehavior `json:"behavior"`
	Source      string             `json:"source"` // a destination, or another place
	Rule        string             `json:"rule"`
	Description *RuleDescription   `json:"description,omitzero"`
	Editability string             `json:"editability,omitzero"` // "persistent", "session" or "readonly"
	NotInEffect json.RawMessage    `json:"notInEffect,omitzero"` // set if the rule has no effect
	Open
}

// RuleDescription describes a rule for people. Emphasis is the part to highlight.
type RuleDescription struct {
	Prefix   string `json:"prefix"`
	Emphasis string `json:"emphasis,omitzero"`
	Suffix   string `json:"suffix,omitzero"`
	Open
}

// PermissionState has everything that decides about tool calls, as in the response
// to [ListPermissionRules].
type PermissionState struct {
	Rules                []*ListedRule         `json:"rules"`
	WorkspaceDirectories []*WorkspaceDirectory `json:"workspaceDirectories"`
	OriginalCwd          string                `json:"originalCwd"`
	ManagedOnly          bool                  `json:"managedOnly"` // only the administrator's rules apply
	Errors               json.RawMessage       `json:"errors,omitzero"`
	Withheld             json.RawMessage       `json:"withheld,omitzero"`
	Open
}

// WorkspaceDirectory is a directory that the agent may work in.
type WorkspaceDirectory struct {
	Path   string `json:"path"`
	Source string `json:"source"`
	Open
}
