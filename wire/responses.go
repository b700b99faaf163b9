package wire

import (
	"encoding/json"
	"reflect"
)

// InitializeResponse is the answer to [Initialize].
type InitializeResponse struct {
	Commands              []*SlashCommand `json:"commands,omitzero"`
	Agents                []*AgentInfo    `json:"agents,omitzero"`
	OutputStyle           string          `json:"output_style,omitzero"`
	AvailableOutputStyles []string        `json:"available_output_styles,omitzero"`
	UserOutputStylesDir   string          `json:"user_output_styles_dir,omitzero"`
	Models                []*ModelInfo    `json:"models,omitzero"`
	Account               *AccountInfo    `json:"account,omitzero"`
	PID                   int             `json:"pid,omitzero"` // of the agent's process
	ClaudeCodeVersion     string          `json:"claude_code_version,omitzero"`
	CurrentPermissionMode PermissionMode  `json:"current_permission_mode,omitzero"`
	SessionState          string          `json:"session_state,omitzero"` // "idle", "running" or "requires_action"
	Capabilities          []string        `json:"capabilities,omitzero"`

	HooksApplied             *bool `json:"hooks_applied,omitzero"`                // false if the hooks were refused; nil says nothing
	HookOnFailureSupported   bool  `json:"hook_on_failure_supported,omitzero"`    // [HookMatcher].OnFailure counts
	OtherHookAskOutranksHost bool  `json:"other_hook_ask_outranks_host,omitzero"` // a hook elsewhere may still ask what a host's hook allowed
	PluginsApplied           *bool `json:"plugins_applied,omitzero"`              // as HooksApplied

	// SDKMCPManifestsParked says for each manifest what became of it: "parked",
	// "already_connected", "protocol_version_mismatch", "malformed" or
	// "not_honoured".
	SDKMCPManifestsParked map[string]string `json:"sdk_mcp_manifests_parked,omitzero"`

	FastModeState          string          `json:"fast_mode_state,omitzero"` // "off", "cooldown" or "on"
	FastModeDisabledReason string          `json:"fast_mode_disabled_reason,omitzero"`
	FeedbackMode           json.RawMessage `json:"feedback_mode,omitzero"`
	AnalyticsDisabled      bool            `json:"analytics_disabled,omitzero"`
	Open
}

// InterruptResponse is the answer to [Interrupt]: the prompts that were waiting.
// Older agents leave both lists out.
type InterruptResponse struct {
	StillQueued []string `json:"still_queued,omitzero"` // will still be worked on
	Cancelled   []string `json:"cancelled,omitzero"`    // were dropped
	Open
}

// SetPermissionModeResponse is the answer to [SetPermissionMode].
type SetPermissionModeResponse struct {
	Mode PermissionMode `json:"mode,omitzero"` // what holds now; older agents do not say
	Open
}

// SetModelResponse is the answer to [SetModel].
type SetModelResponse struct {
	Model string `json:"model,omitzero"` // what the name stands for; older agents do not say
	Open
}

// MCPStatusResponse is the answer to [MCPStatus]. It is read from a bare array as
// well, which some agents send.
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

// MCPSetServersResponse is the answer to [MCPSetServers]: what it changed. A
// server that could not be connected is among the added and has an error.
type MCPSetServersResponse struct {
	Added   []string          `json:"added"`
	Removed []string          `json:"removed"`
	Errors  map[string]string `json:"errors"`
	Open
}

// MCPMessageResponse is the answer to an [MCPMessage] of the agent.
type MCPMessageResponse struct {
	MCPResponse json.RawMessage `json:"mcp_response"` // a JSON-RPC response
	Open
}

// MCPAuthenticateResponse is the answer to [MCPAuthenticate]: where the user logs in.
type MCPAuthenticateResponse struct {
	AuthURL            string `json:"authUrl,omitzero"`
	RequiresUserAction bool   `json:"requiresUserAction"`
	CallbackExpected   bool   `json:"callbackExpected,omitzero"` // the agent waits for the page to lead back
	RedirectScheme     string `json:"redirectScheme,omitzero"`   // such as "localhost"
	State              string `json:"state,omitzero"`            // that the address of the page's answer holds
	CallbackPort       int    `json:"callbackPort,omitzero"`     // that the agent listens at
	Open
}

// SetMCPPermissionModeOverrideResponse is the answer to [SetMCPPermissionModeOverride].
type SetMCPPermissionModeOverrideResponse struct {
	Warning string `json:"warning,omitzero"` // why the limit has no effect yet
	Open
}

// MCPReadResourceResponse is the answer to [MCPReadResource].
type MCPReadResourceResponse struct {
	Contents []*MCPResource `json:"contents"`
	Open
}

// MCPCallResponse is the answer to [MCPCall]: what the tool returned.
type MCPCallResponse struct {
	Content           json.RawMessage `json:"content,omitzero"` // blocks, as MCP has them
	StructuredContent json.RawMessage `json:"structuredContent,omitzero"`
	IsError           bool            `json:"isError,omitzero"`
	Meta              json.RawMessage `json:"_meta,omitzero"`
	Staging           json.RawMessage `json:"staging,omitzero"`
	Open
}

// RewindFilesResponse is the answer to [RewindFiles].
type RewindFilesResponse struct {
	CanRewind    bool     `json:"canRewind"`
	Error        string   `json:"error,omitzero"` // why not
	FilesChanged []string `json:"filesChanged,omitzero"`
	Insertions   int64    `json:"insertions,omitzero"` // lines
	Deletions    int64    `json:"deletions,omitzero"`  // lines
	SkippedLinks int64    `json:"skippedLinks,omitzero"`
	Open
}

// GetSettingsResponse is the answer to [GetSettings].
type GetSettingsResponse struct {
	Effective json.RawMessage   `json:"effective"` // all settings, as they are merged
	Sources   []*SettingsSource `json:"sources"`   // what each file says, the weakest first
	Applied   *AppliedSettings  `json:"applied,omitzero"`
	Errors    []*SettingsError  `json:"errors,omitzero"`
	Open
}

// SettingsSource is what one source of settings says.
type SettingsSource struct {
	Source   string          `json:"source"`
	Settings json.RawMessage `json:"settings,omitzero"`
	Open
}

// AppliedSettings are settings as the session uses them.
type AppliedSettings struct {
	Model   string `json:"model,omitzero"`
	Effort  Effort `json:"effort,omitzero"`
	Advisor string `json:"advisor,omitzero"`
	Open
}

// SettingsError is a settings file that could not be used.
type SettingsError struct {
	File    string `json:"file,omitzero"`
	Path    string `json:"path"` // of the setting inside the file
	Message string `json:"message"`
	Open
}

// GetSessionCostResponse is the answer to [GetSessionCost].
type GetSessionCostResponse struct {
	Text string `json:"text"`
	Open
}

// GetUsageResponse is the answer to [GetUsage].
type GetUsageResponse struct {
	Session             *SessionUsage   `json:"session"`
	SubscriptionType    string          `json:"subscription_type" wire:"null"`
	RateLimitsAvailable bool            `json:"rate_limits_available"`
	RateLimits          json.RawMessage `json:"rate_limits"`
	Behaviors           json.RawMessage `json:"behaviors"`
	Open
}

// SessionUsage is what a session has used.
type SessionUsage struct {
	TotalCostUSD       float64                `json:"total_cost_usd"`
	TotalAPIDurationMS int64                  `json:"total_api_duration_ms"`
	TotalDurationMS    int64                  `json:"total_duration_ms"`
	TotalLinesAdded    int64                  `json:"total_lines_added"`
	TotalLinesRemoved  int64                  `json:"total_lines_removed"`
	ModelUsage         map[string]*ModelUsage `json:"model_usage"`
	Open
}

// ListModelsResponse is the answer to [ListModels].
type ListModelsResponse struct {
	Models []*ModelInfo `json:"models"`
	Open
}

// GetBinaryVersionResponse is the answer to [GetBinaryVersion].
type GetBinaryVersionResponse struct {
	Version   string `json:"version"`
	BuildTime string `json:"buildTime,omitzero"`
	Open
}

// GetHooksListingResponse is the answer to [GetHooksListing].
type GetHooksListingResponse struct {
	Events       []*ListedEvent  `json:"events"` // that have hooks
	Hooks        []*ListedHook   `json:"hooks"`
	EventCatalog []*ListedEvent  `json:"eventCatalog"` // all there are
	Policy       *HookPolicy     `json:"policy,omitzero"`
	SafeMode     json.RawMessage `json:"safeMode,omitzero"`
	BareMode     json.RawMessage `json:"bareMode,omitzero"`
	Errors       json.RawMessage `json:"errors,omitzero"`
	Open
}

// ListedEvent is an event in the answer to [GetHooksListing].
type ListedEvent struct {
	Name            HookEvent `json:"name"`
	Summary         string    `json:"summary,omitzero"`
	SupportsMatcher bool      `json:"supportsMatcher"`
	HookCount       int       `json:"hookCount,omitzero"`
	Open
}

// ListedHook is a hook in the answer to [GetHooksListing].
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

// HookPolicy says which hooks may run.
type HookPolicy struct {
	DisabledByPolicy bool            `json:"disabledByPolicy"`
	ManagedOnly      bool            `json:"managedOnly"` // only the administrator's
	PluginOnly       bool            `json:"pluginOnly"`  // only those of plugins
	AllDisabled      bool            `json:"allDisabled"`
	PolicyHookCount  int             `json:"policyHookCount"`
	PolicyUnreadable json.RawMessage `json:"policyUnreadable,omitzero"`
	Open
}

// ListPermissionRulesResponse is the answer to [ListPermissionRules].
type ListPermissionRulesResponse struct {
	State *PermissionState `json:"state"`
	Open
}

// ReadFileResponse is the answer to [ReadFile].
type ReadFileResponse struct {
	Contents      string `json:"contents"`
	AbsPath       string `json:"absPath"`
	Truncated     bool   `json:"truncated,omitzero"`
	Encoding      string `json:"encoding,omitzero"` // of Contents: "utf-8" or "base64"
	Lossy         *bool  `json:"lossy,omitzero"`    // the file is not UTF-8, some of it was replaced; nil if it is not text
	RequestedPath string `json:"requested_path,omitzero"`
	Open
}

// FileSuggestionsResponse is the answer to [FileSuggestions].
type FileSuggestionsResponse struct {
	Suggestions []json.RawMessage `json:"suggestions"`
	Cwd         string            `json:"cwd,omitzero"`
	Open
}

// RegisterRepoRootResponse is the answer to [RegisterRepoRoot].
type RegisterRepoRootResponse struct {
	Directory string `json:"directory,omitzero"`
	Open
}

// ReloadPluginsResponse is the answer to [ReloadPlugins]: all there is now.
type ReloadPluginsResponse struct {
	Commands    []*SlashCommand    `json:"commands"`
	Agents      []*AgentInfo       `json:"agents"`
	Plugins     []*InitPlugin      `json:"plugins"`
	MCPServers  []*MCPServerStatus `json:"mcpServers"`
	ErrorCount  int                `json:"error_count"`
	Held        bool               `json:"held,omitzero"` // nothing was done, see CacheImpact
	CacheImpact *CacheImpact       `json:"cache_impact,omitzero"`
	Open
}

// CacheImpact is what a reload changes at the beginning of the prompt, so that
// the API has to read the conversation again.
type CacheImpact struct {
	MCPServersAdded   []string `json:"mcp_servers_added"`
	MCPServersRemoved []string `json:"mcp_servers_removed"`
	LSPToolChange     string   `json:"lsp_tool_change" wire:"null"` // "adds", "may-add", "removes", "may-remove" or empty
	Open
}

// ReloadSkillsResponse is the answer to [ReloadSkills].
type ReloadSkillsResponse struct {
	Skills []*SlashCommand `json:"skills"`
	Open
}

// ReloadOutputStylesResponse is the answer to [ReloadOutputStyles].
type ReloadOutputStylesResponse struct {
	AvailableOutputStyles []string `json:"available_output_styles"`
	Open
}

// GetTaskOutputResponse is the answer to [GetTaskOutput].
type GetTaskOutputResponse struct {
	Output     string `json:"output"` // the end of it
	TotalBytes int64  `json:"total_bytes"`
	Truncated  bool   `json:"truncated"`
	Open
}

// CancelAsyncMessageResponse is the answer to [CancelAsyncMessage].
type CancelAsyncMessageResponse struct {
	Cancelled bool `json:"cancelled"` // false if the prompt was not waiting any more
	Open
}

// GenerateSessionTitleResponse is the answer to [GenerateSessionTitle].
type GenerateSessionTitleResponse struct {
	Title string `json:"title" wire:"null"` // empty if there is none
	Open
}

// SideQuestionResponse is the answer to [SideQuestion].
type SideQuestionResponse struct {
	Response  string `json:"response" wire:"null"`
	Synthetic bool   `json:"synthetic"` // the text is not the model's
	Open
}

// RequestUserDialogResponse is the answer to [RequestUserDialog].
type RequestUserDialogResponse struct {
	Behavior string          `json:"behavior"`        // "completed" or "cancelled"
	Result   json.RawMessage `json:"result,omitzero"` // what the user entered
	Open
}
