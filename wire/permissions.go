package wire

import "encoding/json"

// A PermissionMode says which tools an agent runs without asking.
type PermissionMode string

// The permission modes. ModeManual is another name of ModeDefault, ModeDelegate
// is one that only older agents have.
const (
	ModeDefault           PermissionMode = "default"           // ask before anything risky
	ModeAcceptEdits       PermissionMode = "acceptEdits"       // edit files without asking
	ModePlan              PermissionMode = "plan"              // look, but change nothing
	ModeBypassPermissions PermissionMode = "bypassPermissions" // ask nothing; explicit denials still hold
	ModeDontAsk           PermissionMode = "dontAsk"           // deny what was not allowed beforehand
	ModeAuto              PermissionMode = "auto"              // let a model decide, ask when it cannot
	ModeManual            PermissionMode = "manual"
	ModeDelegate          PermissionMode = "delegate"
)

// A PermissionBehavior is what happens to a tool call.
type PermissionBehavior string

// The behaviors of rules, of answers to [CanUseTool] and of hooks.
const (
	BehaviorAllow PermissionBehavior = "allow" // run it
	BehaviorDeny  PermissionBehavior = "deny"  // do not run it
	BehaviorAsk   PermissionBehavior = "ask"   // ask somebody; not as an answer to CanUseTool
	BehaviorDefer PermissionBehavior = "defer" // end the turn before it; only a PreToolUse hook may
)

// A PermissionUpdateType says what a [PermissionUpdate] changes.
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

// A PermissionDestination says where a [PermissionUpdate] is kept.
type PermissionDestination string

// The destinations. The first three are settings files, the others are forgotten
// with the session.
const (
	DestinationUserSettings    PermissionDestination = "userSettings"
	DestinationProjectSettings PermissionDestination = "projectSettings"
	DestinationLocalSettings   PermissionDestination = "localSettings"
	DestinationSession         PermissionDestination = "session"
	DestinationCLIArg          PermissionDestination = "cliArg"
)

// PermissionUpdate is a change of the rules by which tools are allowed. An agent
// suggests some with [CanUseTool]; returned in a [PermissionResult] they take
// effect.
type PermissionUpdate struct {
	Type        PermissionUpdateType  `json:"type"`
	Rules       []*PermissionRule     `json:"rules,omitzero"`       // of UpdateAddRules, UpdateReplaceRules and UpdateRemoveRules
	Behavior    PermissionBehavior    `json:"behavior,omitzero"`    // of the rules
	Mode        PermissionMode        `json:"mode,omitzero"`        // of UpdateSetMode
	Directories []string              `json:"directories,omitzero"` // of UpdateAddDirectories and UpdateRemoveDirectories
	Destination PermissionDestination `json:"destination,omitzero"`
	Open
}

// PermissionRule names a tool, or some of its calls.
type PermissionRule struct {
	ToolName    string `json:"toolName"`
	RuleContent string `json:"ruleContent,omitzero"` // which calls, such as "git *"; empty means all
	Open
}

// A DecisionClassification says how far a person's decision reaches.
type DecisionClassification string

// The classifications of a decision.
const (
	UserTemporary DecisionClassification = "user_temporary" // allowed this time
	UserPermanent DecisionClassification = "user_permanent" // allowed from now on
	UserReject    DecisionClassification = "user_reject"    // not allowed
)

// PermissionResult is the answer to [CanUseTool], and the decision of a
// PermissionRequest hook.
type PermissionResult struct {
	Behavior PermissionBehavior `json:"behavior"` // BehaviorAllow or BehaviorDeny

	// If the call is allowed.
	UpdatedInput       json.RawMessage     `json:"updatedInput,omitzero"` // what the tool gets in place of its input
	UpdatedPermissions []*PermissionUpdate `json:"updatedPermissions,omitzero"`

	// If the call is denied. Agents do not take a denial without a message.
	Message   string `json:"message,omitzero"`   // tells the model why
	Interrupt bool   `json:"interrupt,omitzero"` // end the turn as well

	ToolUseID              string                 `json:"toolUseID,omitzero"` // the call that was asked about
	DecisionClassification DecisionClassification `json:"decisionClassification,omitzero"`
	Open
}

// AskRule is the rule because of which an agent asks.
type AskRule struct {
	Source      string `json:"source"` // where the rule is written
	ToolName    string `json:"tool_name"`
	RuleContent string `json:"rule_content,omitzero"`
	Open
}

// ListedRule is one rule in the answer to [ListPermissionRules].
type ListedRule struct {
	Behavior    PermissionBehavior `json:"behavior"`
	Source      string             `json:"source"` // a destination, or where else the rule is from
	Rule        string             `json:"rule"`
	Description *RuleDescription   `json:"description,omitzero"`
	Editability string             `json:"editability,omitzero"` // "persistent", "session" or "readonly"
	NotInEffect json.RawMessage    `json:"notInEffect,omitzero"` // set if the rule does nothing
	Open
}

// RuleDescription says in words what a rule is about. Emphasis is the part that
// is to stand out.
type RuleDescription struct {
	Prefix   string `json:"prefix"`
	Emphasis string `json:"emphasis,omitzero"`
	Suffix   string `json:"suffix,omitzero"`
	Open
}

// PermissionState is all that decides about tools, as answered to
// [ListPermissionRules].
type PermissionState struct {
	Rules                []*ListedRule         `json:"rules"`
	WorkspaceDirectories []*WorkspaceDirectory `json:"workspaceDirectories"`
	OriginalCwd          string                `json:"originalCwd"`
	ManagedOnly          bool                  `json:"managedOnly"` // only the administrator's rules count
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
