package wire

import (
	"encoding/json"
	"reflect"
)

// InitializeResponse is the response to [Initialize].
type InitializeResponse struct {
	Commands              []*SlashCommand `json:"commands,omitzero"`
	Agents                []*AgentInfo    `json:"agents,omitzero"`
	OutputStyle           string          `json:"output_style,omitzero"`
	AvailableOutputStyles []string        `json:"available_output_styles,omitzero"`
	UserOutputStylesDir   string          `json:"user_output_styles_dir,omitzero"`
	Models                []*ModelInfo    `json:"models,omitzero"`
	Account               *AccountInfo    `json:"account,omitzero"`
	PID                   int             `json:"pid,omitzero"` // the id of the agent's process
	ClaudeCodeVersion     string          `json:"claude_code_version,omitzero"`
	CurrentPermissionMode PermissionMode  `json:"current_permission_mode,omitzero"`
	SessionState          string          `json:"session_state,omitzero"` // "idle", "running" or "requires_action"
	Capabilities          []string        `json:"capabilities,omitzero"`

	HooksApplied             *bool `json:"hooks_applied,omitzero"`                // false if the hooks were rejected; nil if unknown
	HookOnFailureSupported   bool  `json:"hook_on_failure_supported,omitzero"`    // the agent supports [HookMatcher].OnFailure
	OtherHookAskOutranksHost bool  `json:"other_hook_ask_outranks_host,omitzero"` // another hook may still ask about a call that a hook of the host allowed
	PluginsApplied           *bool `json:"plugins_applied,omitzero"`              // like HooksApplied

	// SDKMCPManifestsParked has the state of each manifest: "parked",
	// "already_connected", "protocol_version_mismatch", "malformed" or
	// "not_honoured".
	SDKMCPManifestsParked map[string]string `json:"sdk_mcp_manifests_parked,omitzero"`

	FastModeState          string          `json:"fast_mode_state,omitzero"` // "off", "cooldown" or "on"
	FastModeDisabledReason string          `json:"fast_mode_disabled_reason,omitzero"`
	FeedbackMode           json.RawMessage `json:"feedback_mode,omitzero"`
	AnalyticsDisabled      bool            `json:"analytics_disabled,omitzero"`
	Open
}

// InterruptResponse is the response to [Interrupt]: the prompts that were queued.
// Older agents omit both lists.
type InterruptResponse struct {
	StillQueued []string `json:"still_queued,omitzero"` // prompts that are still queued
	Cancelled   []string `json:"cancelled,omitzero"`    // prompts that were dropped
	Open
}

// SetPermissionModeResponse is the response to [SetPermissionMode].
type SetPermissionModeResponse struct {
	Mode PermissionMode `json:"mode,omitzero"` // the current mode; older agents omit it
	Open
}

// SetModelResponse is the response to [SetModel].
type SetModelResponse struct {
	Model string `json:"model,omitzero"` // the full name of the model; older agents omit it
	Open
}

// MCPStatusResponse is the response to [MCPStatus]. A bare array is also decoded;
// some agents send one.
type MCPStatusResponse struct {
	MCPServers []*MCPServerStatus `json:"mcpServers"`
	bare       bool               // it was an array
	Open
}

func (r *MCPStatusResponse) decodeWire(x item) (faithful bool, err error) {
	if x.kind() == '[' {
		r.bare = true
		v := reflect.ValueOf(&r.MCPServers).Elem()
		return codecOf(v.Type()).dec(x, v)
	}
	return true, decodeObject(x, reflect.ValueOf(r).Elem())
}

func (r *MCPStatusResponse) encodeWire(dst []byte) ([]byte, error) {
	if r.bare && len(r.Extra) == 0 {
		v := reflect.ValueOf(&r.MCPServers).Elem()
		return codecOf(v.Type()).enc(dst, v)
	}
	return encodeObject(dst, reflect.ValueOf(r).Elem())
}

// MCPSetServersResponse is the response to [MCPSetServers]: the changes. A server
// that could not be connected is in Added, and in Errors.
type MCPSetServersResponse struct {
	Added   []string          `json:"added"`
	Removed []string          `json:"removed"`
	Errors  map[string]string `json:"errors"`
	Open
}

// MCPMessageResponse is the response to an [MCPMessage] of the agent.
type MCPMessageResponse struct {
	MCPResponse json.RawMessage `json:"mcp_response"` // a JSON-RPC response
	Open
}

// MCPAuthenticateResponse is the response to [MCPAuthenticate]: the page where the
// user logs in.
type MCPAuthenticateResponse struct {
	AuthURL            string `json:"authUrl,omitzero"`
	RequiresUserAction bool   `json:"requiresUserAction"`
	CallbackExpected   bool   `json:"callbackExpected,omitzero"` // the agent waits for the redirect of the page
	RedirectScheme     string `json:"redirectScheme,omitzero"`   // such as "localhost"
	State              string `json:"state,omitzero"`            // the state in the URL of the redirect
	CallbackPort       int    `json:"callbackPort,omitzero"`     // the port on which the agent listens
	Open
}

// SetMCPPermissionModeOverrideResponse is the response to
// [SetMCPPermissionModeOverride].
type SetMCPPermissionModeOverrideResponse struct {
	Warning string `json:"warning,omitzero"` // the reason why the limit has no effect yet
	Open
}

// MCPReadResourceResponse is the response to [MCPReadResource].
type MCPReadResourceResponse struct {
	Contents []*MCPResource `json:"contents"`
	Open
}

// MCPCallResponse is the response to [MCPCall]: the result of the tool.
type MCPCallResponse struct {
	Content           json.RawMessage `json:"content,omitzero"` // content blocks in the form of MCP
	StructuredContent json.RawMessage `json:"structuredContent,omitzero"`
	IsError           bool            `json:"isError,omitzero"`
	Meta              json.RawMessage `json:"_meta,omitzero"`
	Staging           json.RawMessage `json:"staging,omitzero"`
	Open
}

// RewindFilesResponse is the response to [RewindFiles].
type RewindFilesResponse struct {
	CanRewind    bool     `json:"canRewind"`
	Error        string   `json:"error,omitzero"` // the reason, if the files cannot be restored
	FilesChanged []string `json:"filesChanged,omitzero"`
	Insertions   *int64   `json:"insertions,omitzero"` // lines
	Deletions    *int64   `json:"deletions,omitzero"`  // lines
	SkippedLinks *int64   `json:"skippedLinks,omitzero"`
	Open
}

// GetSettingsResponse is the response to [GetSettings].
type GetSettingsResponse struct {
	Effective json.RawMessage   `json:"effective"` // all settings, merged
	Sources   []*SettingsSource `json:"sources"`   // the settings of each file, the weakest first
	Applied   *AppliedSettings  `json:"applied,omitzero"`
	Errors    []*SettingsError  `json:"errors,omitzero"`
	Open
}

// SettingsSource has the settings of one source.
type SettingsSource struct {
	Source   string          `json:"source"`
	Settings json.RawMessage `json:"settings,omitzero"`
	Open
}

// AppliedSettings are the settings that the session uses.
type AppliedSettings struct {
	Model   string `json:"model,omitzero"`
	Effort  Effort `json:"effort,omitzero"`
	Advisor string `json:"advisor,omitzero"`
	Open
}

// SettingsError is a settings file that could not be used.
type SettingsError struct {
	File    string `json:"file,omitzero"`
	Path    string `json:"path"` // the setting inside the file
	Message string `json:"message"`
	Open
}

// GetSessionCostResponse is the response to [GetSessionCost].
type GetSessionCostResponse struct {
	Text string `json:"text"`
	Open
}

// GetUsageResponse is the response to [GetUsage].
type GetUsageResponse struct {
	Session             *SessionUsage   `json:"session"`
	SubscriptionType    string          `json:"subscription_type" wire:"null"`
	RateLimitsAvailable bool            `json:"rate_limits_available"`
	RateLimits          json.RawMessage `json:"rate_limits"`
	Behaviors           json.RawMessage `json:"behaviors"`
	Open
}

// SessionUsage is the usage of a session.
type SessionUsage struct {
	TotalCostUSD       float64                `json:"total_cost_usd"`
	TotalAPIDurationMS int64                  `json:"total_api_duration_ms"`
	TotalDurationMS    int64                  `json:"total_duration_ms"`
	TotalLinesAdded    int64                  `json:"total_lines_added"`
	TotalLinesRemoved  int64                  `json:"total_lines_removed"`
	ModelUsage         map[string]*ModelUsage `json:"model_usage"`
	Open
}

// ListModelsResponse is the response to [ListModels].
type ListModelsResponse struct {
	Models []*ModelInfo `json:"models"`
	Open
}

// GetBinaryVersionResponse is the response to [GetBinaryVersion].
type GetBinaryVersionResponse struct {
	Version   string `json:"version"`
	BuildTime string `json:"buildTime,omitzero"`
	Open
}

// GetHooksListingResponse is the response to [GetHooksListing].
type GetHooksListingResponse struct {
	Events       []*ListedEvent  `json:"events"` // events that have hooks
	Hooks        []*ListedHook   `json:"hooks"`
	EventCatalog []*ListedEvent  `json:"eventCatalog"` // all events
	Policy       *HookPolicy     `json:"policy,omitzero"`
	SafeMode     json.RawMessage `json:"safeMode,omitzero"`
	BareMode     json.RawMessage `json:"bareMode,omitzero"`
	Errors       json.RawMessage `json:"errors,omitzero"`
	Open
}

// ListedEvent is an event in the response to [GetHooksListing].
type ListedEvent struct {
	Name            HookEvent `json:"name"`
	Summary         string    `json:"summary,omitzero"`
	SupportsMatcher bool      `json:"supportsMatcher"`
	HookCount       int       `json:"hookCount,omitzero"`
	Open
}

// ListedHook is a hook in the response to [GetHooksListing].
type ListedHook struct {
	Event            HookEvent       `json:"event"`
	Matcher          string          `json:"matcher,omitzero"`
	Source           string          `json:"source"`
	SourceLabel      string          `json:"sourceLabel,omitzero"`
	PluginName       string          `json:"pluginName,omitzero"`
	Type             string          `json:"type"` // "command", "prompt", "agent", "http", "mcp_tool" or "callback"
	DisplayText      string          `json:"displayText,omitzero"`
	CommandText      string          `json:"commandText,omitzero"`
	ContentLabel     string          `json:"contentLabel,omitzero"`
	Condition        string          `json:"condition,omitzero"`
	Timeout          float64         `json:"timeout,omitzero"` // in seconds
	StatusMessage    string          `json:"statusMessage,omitzero"`
	RunsOnce         bool            `json:"runsOnce,omitzero"`
	RunsInBackground bool            `json:"runsInBackground,omitzero"`
	Disabled         bool            `json:"disabled,omitzero"`
	Editable         json.RawMessage `json:"editable,omitzero"`
	Open
}

// HookPolicy determines which hooks may run.
type HookPolicy struct {
	DisabledByPolicy bool            `json:"disabledByPolicy"`
	ManagedOnly      bool            `json:"managedOnly"` // only the administrator's hooks
	PluginOnly       bool            `json:"pluginOnly"`  // only hooks of plugins
	AllDisabled      bool            `json:"allDisabled"`
	PolicyHookCount  int             `json:"policyHookCount"`
	PolicyUnreadable json.RawMessage `json:"policyUnreadable,omitzero"`
	Open
}

// ListPermissionRulesResponse is the response to [ListPermissionRules].
type ListPermissionRulesResponse struct {
	State *PermissionState `json:"state"`
	Open
}

// ReadFileResponse is the response to [ReadFile].
type ReadFileResponse struct {
	Contents      string `json:"contents"`
	AbsPath       string `json:"absPath"`
	Truncated     bool   `json:"truncated,omitzero"`
	Encoding      string `json:"encoding,omitzero"` // the encoding of Contents: "utf-8" or "base64"
	Lossy         *bool  `json:"lossy,omitzero"`    // true if bytes that are not UTF-8 were replaced; nil if the file is not text
	RequestedPath string `json:"requested_path,omitzero"`
	Open
}

// FileSuggestionsResponse is the response to [FileSuggestions].
type FileSuggestionsResponse struct {
	Suggestions []json.RawMessage `json:"suggestions"`
	Cwd         string            `json:"cwd,omitzero"`
	Open
}

// RegisterRepoRootResponse is the response to [RegisterRepoRoot].
type RegisterRepoRootResponse struct {
	Directory string `json:"directory,omitzero"`
	Open
}

// ReloadPluginsResponse is the response to [ReloadPlugins]: everything that is
// loaded now.
type ReloadPluginsResponse struct {
	Commands    []*SlashCommand    `json:"commands"`
	Agents      []*AgentInfo       `json:"agents"`
	Plugins     []*InitPlugin      `json:"plugins"`
	MCPServers  []*MCPServerStatus `json:"mcpServers"`
	ErrorCount  int                `json:"error_count"`
	Held        bool               `json:"held,omitzero"` // nothing was reloaded, see CacheImpact
	CacheImpact *CacheImpact       `json:"cache_impact,omitzero"`
	Open
}

// CacheImpact lists the changes that a reload makes at the start of the prompt. They
// invalidate the API's prompt cache.
type CacheImpact struct {
	MCPServersAdded   []string `json:"mcp_servers_added"`
	MCPServersRemoved []string `json:"mcp_servers_removed"`
	LSPToolChange     string   `json:"lsp_tool_change" wire:"null"` // "adds", "may-add", "removes", "may-remove" or empty
	Open
}

// ReloadSkillsResponse is the response to [ReloadSkills].
type ReloadSkillsResponse struct {
	Skills []*SlashCommand `json:"skills"`
	Open
}

// ReloadOutputStylesResponse is the response to [ReloadOutputStyles].
type ReloadOutputStylesResponse struct {
	AvailableOutputStyles []string `json:"available_output_styles"`
	Open
}

// GetTaskOutputResponse is the response to [GetTaskOutput].
type GetTaskOutputResponse struct {
	Output     string `json:"output"` // the end of the output
	TotalBytes int64  `json:"total_bytes"`
	Truncated  bool   `json:"truncated"`
	Open
}

// CancelAsyncMessageResponse is the response to [CancelAsyncMessage].
type CancelAsyncMessageResponse struct {
	Cancelled bool `json:"cancelled"` // false if the prompt was no longer queued
	Open
}

// GenerateSessionTitleResponse is the response to [GenerateSessionTitle].
type GenerateSessionTitleResponse struct {
	Title string `json:"title" wire:"null"` // empty if there is none
	Open
}

// SideQuestionResponse is the response to [SideQuestion].
type SideQuestionResponse struct {
	Response  string `json:"response" wire:"null"`
	Synthetic bool   `json:"synthetic"` // the text is not from the model
	Open
}

// RequestUserDialogResponse is the response to [RequestUserDialog].
type RequestUserDialogResponse struct {
	Behavior string          `json:"behavior"`        // "completed" or "cancelled"
	Result   json.RawMessage `json:"result,omitzero"` // the input of the user
	Open
}
