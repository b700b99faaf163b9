package wire

import (
	"encoding/json"
	"reflect"
)

// The requests of a host.

// Initialize is a request to open a conversation with the options and features of
// the host. All fields may be absent. The response is an [InitializeResponse]. A
// host may send it again, which replaces the hooks.
type Initialize struct {
	Hooks map[HookEvent][]*HookMatcher `json:"hooks,omitzero"` // callbacks by event

	// MCP servers in the host. Of their configurations, only the timeout and the
	// tools have an effect.
	SDKMCPServers               []string                    `json:"sdkMcpServers,omitzero"`
	SDKMCPServerConfigs         map[string]*MCPServerConfig `json:"sdkMcpServerConfigs,omitzero"`
	SDKMCPServerManifests       map[string]*MCPManifest     `json:"sdkMcpServerManifests,omitzero"`
	SDKMCPServerManifestsOrigin string                      `json:"sdkMcpServerManifestsOrigin,omitzero"` // "host_per_send"

	SystemPrompt           SystemPrompt `json:"systemPrompt,omitzero"`           // replaces the agent's own
	AppendSystemPrompt     string       `json:"appendSystemPrompt,omitzero"`     // added after the agent's own
	SystemPromptSnapshot   *bool        `json:"systemPromptSnapshot,omitzero"`   // keep the prompt of the first request; nil means true
	ExcludeDynamicSections bool         `json:"excludeDynamicSections,omitzero"` // leave out the parts of the prompt that change
	PlanModeInstructions   string       `json:"planModeInstructions,omitzero"`   // instructions for the model in plan mode

	JSONSchema  json.RawMessage             `json:"jsonSchema,omitzero"` // the schema of the answer
	Agents      map[string]*AgentDefinition `json:"agents,omitzero"`     // subagents, by name
	Title       string                      `json:"title,omitzero"`
	Skills      []string                    `json:"skills,omitzero"` // the skills to use; an empty list means none, nil means all
	Plugins     []*PluginConfig             `json:"plugins,omitzero"`
	ToolAliases map[string]string           `json:"toolAliases,omitzero"` // other names for tools, which the model may use

	PromptSuggestions      bool     `json:"promptSuggestions,omitzero"`      // suggest the next prompt
	AgentProgressSummaries bool     `json:"agentProgressSummaries,omitzero"` // report from time to time what subagents do
	ForwardSubagentText    bool     `json:"forwardSubagentText,omitzero"`    // also send the text of subagents
	SupportedDialogKinds   []string `json:"supportedDialogKinds,omitzero"`   // the kinds that [RequestUserDialog] may use
	PerTaskStopAffordance  bool     `json:"perTaskStopAffordance,omitzero"`  // an interrupt does not stop background agents
	ProtocolVersion        string   `json:"protocolVersion,omitzero"`        // an older form: a host that sets it handles [CanUseTool]
	Open                   `wire:"subtype=initialize"`
}

// SystemPrompt is the system prompt, in parts. A plain string is also decoded. A
// single empty part means no system prompt at all; nil means the agent's own.
type SystemPrompt []string

func (s *SystemPrompt) decodeWire(x item) (faithful bool, err error) {
	if x.kind() == '"' {
		text, _ := x.string()
		*s = SystemPrompt{text}
		return false, nil
	}
	return codecOf(stringsType).dec(x, reflect.ValueOf((*[]string)(s)).Elem())
}

func (s *SystemPrompt) encodeWire(dst []byte) ([]byte, error) {
	return codecOf(stringsType).enc(dst, reflect.ValueOf((*[]string)(s)).Elem())
}

var stringsType = reflect.TypeFor[[]string]()

// Interrupt is a request to interrupt the turn. The response is an
// [InterruptResponse], even if there is no turn.
type Interrupt struct {
	CancelQueued bool `json:"cancel_queued,omitzero"` // also drop the queued prompts
	Open         `wire:"subtype=interrupt"`
}

// SetPermissionMode is a request to change the permission mode. The response is a
// [SetPermissionModeResponse].
type SetPermissionMode struct {
	Mode PermissionMode `json:"mode"`
	Open `wire:"subtype=set_permission_mode"`
}

// SetModel is a request to change the model. The response is a [SetModelResponse].
type SetModel struct {
	Model string `json:"model,omitzero"` // empty or "default" means the default
	Open  `wire:"subtype=set_model"`
}

// SetMaxThinkingTokens is a request to limit the thinking of the model.
type SetMaxThinkingTokens struct {
	MaxThinkingTokens *int64 `json:"max_thinking_tokens" wire:"null"` // 0 disables thinking, nil removes the limit
	ThinkingDisplay   string `json:"thinking_display,omitzero"`       // "summarized", "omitted" or "highlights"
	Open              `wire:"subtype=set_max_thinking_tokens"`
}

// MCPStatus is a request to report the status of all MCP servers. The response is
// an [MCPStatusResponse].
type MCPStatus struct {
	LiveReply bool `json:"liveReply,omitzero"`
	Open      `wire:"subtype=mcp_status"`
}

// MCPSetServers is a request to replace the MCP servers of an earlier request of
// this kind. The response is an [MCPSetServersResponse].
type MCPSetServers struct {
	Servers map[string]*MCPServerConfig `json:"servers"`
	Open    `wire:"subtype=mcp_set_servers"`
}

// MCPReconnect is a request to reconnect an MCP server.
type MCPReconnect struct {
	ServerName string `json:"serverName"`
	Open       `wire:"subtype=mcp_reconnect"`
}

// MCPToggle is a request to enable or disable an MCP server.
type MCPToggle struct {
	ServerName string `json:"serverName"`
	Enabled    bool   `json:"enabled"`
	Open       `wire:"subtype=mcp_toggle"`
}

// SetMCPPermissionModeOverride is a request to limit what the permission mode
// allows for the tools of one MCP server. The response is a
// [SetMCPPermissionModeOverrideResponse].
type SetMCPPermissionModeOverride struct {
	ServerName string         `json:"serverName"`
	Mode       PermissionMode `json:"mode" wire:"null"` // ModeDefault or ModeAuto; empty removes the limit
	Open       `wire:"subtype=set_mcp_permission_mode_override"`
}

// MCPMessage is a request to deliver a JSON-RPC message between an MCP server in
// the host and the agent, in either direction. The host's response is an
// [MCPMessageResponse]; the agent's is empty.
type MCPMessage struct {
	ServerName string          `json:"server_name"`
	Message    json.RawMessage `json:"message"`
	Open       `wire:"subtype=mcp_message"`
}

// MCPReadResource is a request to read a resource of an MCP server. The response is
// an [MCPReadResourceResponse].
type MCPReadResource struct {
	ServerName string `json:"serverName"`
	URI        string `json:"uri"` // starts with "ui://"
	Open       `wire:"subtype=mcp_read_resource"`
}

// MCPCall is a request to call a tool of an MCP server without the model. The
// response is an [MCPCallResponse].
type MCPCall struct {
	Tool              string          `json:"tool"` // the full name, such as "mcp__server__tool"
	Arguments         json.RawMessage `json:"arguments,omitzero"`
	ExpiresAt         json.RawMessage `json:"expires_at,omitzero"`
	TimeoutMS         int64           `json:"timeout_ms,omitzero"`
	ResultNotForModel bool            `json:"result_not_for_model,omitzero"`
	CheckPermissions  bool            `json:"check_permissions,omitzero"`
	InputFiles        []*MCPFile      `json:"input_files,omitzero"`
	OutputFiles       []*MCPFile      `json:"output_files,omitzero"`
	Open              `wire:"subtype=mcp_call"`
}

// MCPAuthenticate is a request to start a login to an MCP server. The response is
// an [MCPAuthenticateResponse].
type MCPAuthenticate struct {
	ServerName string `json:"serverName"`
	Open       `wire:"subtype=mcp_authenticate"`
}

// MCPOAuthCallbackURL is a request to complete a login to an MCP server with the
// URL to which the login page redirected the user.
type MCPOAuthCallbackURL struct {
	ServerName  string `json:"serverName"`
	CallbackURL string `json:"callbackUrl"`
	Open        `wire:"subtype=mcp_oauth_callback_url"`
}

// MCPClearAuth is a request to delete the login to an MCP server.
type MCPClearAuth struct {
	ServerName string `json:"serverName"`
	Open       `wire:"subtype=mcp_clear_auth"`
}

// GetContextUsage is a request to report the use of the model's context. The
// response is a [GetContextUsageResponse].
type GetContextUsage struct {
	Detail string `json:"detail,omitzero"` // "summary" or "full"
	Open   `wire:"subtype=get_context_usage"`
}

// GetUsage is a request to report the usage of the session and of the account. The
// response is a [GetUsageResponse].
type GetUsage struct {
	SkipBehaviors bool `json:"skip_behaviors,omitzero"`
	Open          `wire:"subtype=get_usage"`
}

// GetSessionCost is a request to report the cost of the session as text. The
// response is a [GetSessionCostResponse].
type GetSessionCost struct {
	Open `wire:"subtype=get_session_cost"`
}

// ListModels is a request to list the models. The response is a
// [ListModelsResponse].
type ListModels struct {
	Open `wire:"subtype=list_models"`
}

// GetBinaryVersion is a request to report the version of the agent. The response is
// a [GetBinaryVersionResponse].
type GetBinaryVersion struct {
	Open `wire:"subtype=get_binary_version"`
}

// GetSettings is a request to report the settings in force. The response is a
// [GetSettingsResponse].
type GetSettings struct {
	Open `wire:"subtype=get_settings"`
}

// ApplyFlagSettings is a request to change settings for this session. Each setting
// is replaced as a whole; null removes it.
type ApplyFlagSettings struct {
	Settings map[string]json.RawMessage `json:"settings"`
	Open     `wire:"subtype=apply_flag_settings"`
}

// UpdateSettings is a request to write to a settings file. It can change only a few
// settings.
type UpdateSettings struct {
	Source   PermissionDestination      `json:"source"` // DestinationLocalSettings or DestinationUserSettings
	Settings map[string]json.RawMessage `json:"settings"`
	Open     `wire:"subtype=update_settings"`
}

// GetHooksListing is a request to list all hooks. The response is a
// [GetHooksListingResponse].
type GetHooksListing struct {
	Open `wire:"subtype=get_hooks_listing"`
}

// ListPermissionRules is a request to list all permission rules. The response is a
// [ListPermissionRulesResponse].
type ListPermissionRules struct {
	Open `wire:"subtype=list_permission_rules"`
}

// RewindFiles is a request to restore files to their state before a prompt. The
// response is a [RewindFilesResponse].
type RewindFiles struct {
	UserMessageID string `json:"user_message_id"`
	DryRun        bool   `json:"dry_run,omitzero"` // only report the changes
	Open          `wire:"subtype=rewind_files"`
}

// ReadFile is a request to read a file that the agent may read. The response is a
// [ReadFileResponse].
type ReadFile struct {
	Path     string `json:"path"`
	MaxBytes int64  `json:"max_bytes,omitzero"`
	Encoding string `json:"encoding,omitzero"` // "utf-8" or "base64"
	Open     `wire:"subtype=read_file"`
}

// SeedReadState is a request to treat a file as read, so that the model can edit
// it.
type SeedReadState struct {
	Path  string  `json:"path"`
	Mtime float64 `json:"mtime"` // the time of the last change, in milliseconds since 1970
	Open  `wire:"subtype=seed_read_state"`
}

// FileSuggestions is a request to suggest files for a mention in a prompt. The
// response is a [FileSuggestionsResponse].
type FileSuggestions struct {
	Query string `json:"query"`
	Open  `wire:"subtype=file_suggestions"`
}

// RegisterRepoRoot is a request to treat a directory below the working directory as
// a repository of its own. The response is a [RegisterRepoRootResponse].
type RegisterRepoRoot struct {
	Directory      string `json:"directory"`
	ReloadClaudeMD bool   `json:"reload_claude_md,omitzero"`
	ReloadPlugins  bool   `json:"reload_plugins,omitzero"`
	ReloadSkills   bool   `json:"reload_skills,omitzero"`
	Open           `wire:"subtype=register_repo_root"`
}

// ReloadPlugins is a request to reload all plugins. The response is a
// [ReloadPluginsResponse].
type ReloadPlugins struct {
	HoldOnCacheImpact bool            `json:"hold_on_cache_impact,omitzero"` // only report whether the prompt cache would be lost
	AddPlugins        json.RawMessage `json:"add_plugins,omitzero"`
	RefuseIfBusy      bool            `json:"refuse_if_busy,omitzero"`
	Open              `wire:"subtype=reload_plugins"`
}

// ReloadSkills is a request to reload all skills. The response is a
// [ReloadSkillsResponse].
type ReloadSkills struct {
	Open `wire:"subtype=reload_skills"`
}

// ReloadOutputStyles is a request to reload all output styles. The response is a
// [ReloadOutputStylesResponse].
type ReloadOutputStyles struct {
	Open `wire:"subtype=reload_output_styles"`
}

// StopTask is a request to stop a background task. It also succeeds for an unknown
// task.
type StopTask struct {
	TaskID string `json:"task_id"`
	Open   `wire:"subtype=stop_task"`
}

// BackgroundTasks is a request to send running tools to the background.
type BackgroundTasks struct {
	ToolUseID string `json:"tool_use_id,omitzero"` // only this call; empty means all
	Open      `wire:"subtype=background_tasks"`
}

// GetTaskOutput is a request to return the output of a background task. The
// response is a [GetTaskOutputResponse].
type GetTaskOutput struct {
	TaskID string `json:"task_id"`
	Open   `wire:"subtype=get_task_output"`
}

// CancelAsyncMessage is a request to cancel a queued prompt. The response is a
// [CancelAsyncMessageResponse].
type CancelAsyncMessage struct {
	MessageUUID string `json:"message_uuid"`
	Open        `wire:"subtype=cancel_async_message"`
}

// RenameSession is a request to give a session a title.
type RenameSession struct {
	Title     string `json:"title"`
	Source    string `json:"source,omitzero"` // "remote" or "host"
	SessionID string `json:"session_id,omitzero"`
	Open      `wire:"subtype=rename_session"`
}

// SetColor is a request to show the session in a color.
type SetColor struct {
	Color string `json:"color"`
	Open  `wire:"subtype=set_color"`
}

// SetHasSubscribers is a request to record whether anybody watches the session.
type SetHasSubscribers struct {
	HasSubscribers *bool `json:"has_subscribers" wire:"null"` // nil means unknown
	Open           `wire:"subtype=set_has_subscribers"`
}

// GenerateSessionTitle is a request to generate a title for the session. The
// response is a [GenerateSessionTitleResponse].
type GenerateSessionTitle struct {
	Description string `json:"description"`
	Persist     bool   `json:"persist" wire:"optional"` // also set the title
	Open        `wire:"subtype=generate_session_title"`
}

// SideQuestion is a request to answer a question that does not become part of the
// conversation. The response is a [SideQuestionResponse].
type SideQuestion struct {
	Question string `json:"question"`
	Open     `wire:"subtype=side_question"`
}

// EndSession is a request to end the agent's process.
type EndSession struct {
	Open `wire:"subtype=end_session"`
}

// The requests of an agent.

// CanUseTool is a request to decide whether a tool may run. The response is a
// [PermissionResult].
type CanUseTool struct {
	ToolName  string          `json:"tool_name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id,omitzero"`
	AgentID   string          `json:"agent_id,omitzero"` // the subagent that makes the call
	MCPServer *ToolServer     `json:"mcp_server,omitzero"`

	// PermissionSuggestions are updates that would make such requests unnecessary
	// from now on.
	PermissionSuggestions []*PermissionUpdate `json:"permission_suggestions,omitzero"`

	// Texts for people.
	Title       string `json:"title,omitzero"`
	DisplayName string `json:"display_name,omitzero"` // the name of the tool
	Description string `json:"description,omitzero"`  // the description of the call

	// Why the agent asks.
	BlockedPath              string    `json:"blocked_path,omitzero"` // the file that the call uses
	DecisionReason           string    `json:"decision_reason,omitzero"`
	DecisionReasonType       string    `json:"decision_reason_type,omitzero"` // "rule", "mode", "hook", "workingDir" …
	DecisionReasonHookEvent  HookEvent `json:"decision_reason_hook_event,omitzero"`
	DecisionReasonHookSource string    `json:"decision_reason_hook_source,omitzero"`
	DecisionReasonRuleSource string    `json:"decision_reason_rule_source,omitzero"` // the place of the rule, as in AskRule
	MatchedAskRule           *AskRule  `json:"matched_ask_rule,omitzero"`

	ClassifierApprovable    *bool `json:"classifier_approvable,omitzero"`      // a model may decide; nil if no safety check asks
	SuppressAlwaysAllowRule bool  `json:"suppress_always_allow_rule,omitzero"` // do not offer a permanent allow rule
	DefaultToNo             bool  `json:"default_to_no,omitzero"`
	ServerPolicyAskOnly     *bool `json:"server_policy_ask_only,omitzero"`    // false if a rule asks
	RequiresUserInteraction bool  `json:"requires_user_interaction,omitzero"` // the tool itself is a question
	Open                    `wire:"subtype=can_use_tool"`
}

// HookCallback is a request to run a hook that [Initialize] registered. The
// response is a [HookOutput].
//
// Some agents send the name of the hook and its data instead. Then HookName is set,
// and Input is built from the data: as the input of the event with that name or, if
// there is none, as an [*UnknownInput].
type HookCallback struct {
	CallbackID string    `json:"callback_id,omitzero"`
	Input      HookInput `json:"input,omitzero"`
	ToolUseID  string    `json:"tool_use_id,omitzero"`

	HookName string          `json:"hook_name,omitzero"`
	HookData json.RawMessage `json:"hook_data,omitzero"`
	Open     `wire:"subtype=hook_callback"`
}

func (h *HookCallback) derived(p *plan) {
	if h.Input != nil || h.HookName == "" {
		return
	}
	if _, ok := h.extra("input"); ok {
		return
	}
	h.Input = namedInput(h.HookName, h.HookData)
	// Decode Input a second time, so that the encoder notices a change of it.
	h.derive(p.fieldOf("input"), namedInput(h.HookName, h.HookData))
}

// namedInput reads the input of a hook whose name is beside its data.
func namedInput(name string, data []byte) HookInput {
	if d, err := scan(data); err == nil {
		defer d.release()
		if in := decodeHookInput(d.root()); in.Event() != "" {
			return in
		}
		if t, ok := hookTypes[name]; ok {
			v := reflect.New(t)
			if err := decodeObject(d.root(), v.Elem()); err == nil {
				v.Interface().(object).open().complete()
				return v.Interface().(HookInput)
			}
		}
	}
	u := &UnknownInput{Name: HookEvent(name)}
	if data != nil {
		u.Raw = append(u.Raw, data...)
	}
	return u
}

// Elicitation is a request to ask the user a question of an MCP server. The
// response is an [ElicitResult].
type Elicitation struct {
	MCPServerName   string          `json:"mcp_server_name"`
	Message         string          `json:"message"`
	Mode            string          `json:"mode,omitzero"` // "form", or "url" to open a page
	URL             string          `json:"url,omitzero"`
	ElicitationID   string          `json:"elicitation_id,omitzero"`
	RequestedSchema json.RawMessage `json:"requested_schema,omitzero"` // the schema of the answer
	PropertyOrder   []string        `json:"property_order,omitzero"`   // the order in which to ask for its members
	Title           string          `json:"title,omitzero"`
	DisplayName     string          `json:"display_name,omitzero"`
	Description     string          `json:"description,omitzero"`
	Open            `wire:"subtype=elicitation"`
}

// RequestUserDialog is a request to show a dialog of a kind that the host supports.
// The response is a [RequestUserDialogResponse].
type RequestUserDialog struct {
	DialogKind string          `json:"dialog_kind"`
	Payload    json.RawMessage `json:"payload,omitzero"`
	ToolUseID  string          `json:"tool_use_id,omitzero"`
	Open       `wire:"subtype=request_user_dialog"`
}

// SDKControlInterrupt is a request to confirm that an interrupt has arrived; only
// some older agents send it. The response is empty.
type SDKControlInterrupt struct {
	Open `wire:"subtype=sdk_control_interrupt"`
}
