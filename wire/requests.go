package wire

import (
	"encoding/json"
	"reflect"
)

// The requests of a host.

// Initialize is a request that opens a conversation: the host says what it wants
// and what it can do. All fields may be absent. It is answered with an
// [InitializeResponse] and may be sent again, which replaces the hooks.
type Initialize struct {
	Hooks map[HookEvent][]*HookMatcher `json:"hooks,omitzero"` // by event

	// MCP servers that live in the host. Of their configurations only the timeout
	// and the tools count.
	SDKMCPServers               []string                    `json:"sdkMcpServers,omitzero"`
	SDKMCPServerConfigs         map[string]*MCPServerConfig `json:"sdkMcpServerConfigs,omitzero"`
	SDKMCPServerManifests       map[string]*MCPManifest     `json:"sdkMcpServerManifests,omitzero"`
	SDKMCPServerManifestsOrigin string                      `json:"sdkMcpServerManifestsOrigin,omitzero"` // "host_per_send"

	SystemPrompt           SystemPrompt `json:"systemPrompt,omitzero"`           // in place of the agent's own
	AppendSystemPrompt     string       `json:"appendSystemPrompt,omitzero"`     // behind the agent's own
	SystemPromptSnapshot   *bool        `json:"systemPromptSnapshot,omitzero"`   // keep the prompt as it first was; nil means true
	ExcludeDynamicSections bool         `json:"excludeDynamicSections,omitzero"` // only the parts of the prompt that never change
	PlanModeInstructions   string       `json:"planModeInstructions,omitzero"`   // for the model in plan mode

	JSONSchema  json.RawMessage             `json:"jsonSchema,omitzero"` // of the answer that is wanted
	Agents      map[string]*AgentDefinition `json:"agents,omitzero"`     // subagents, by name
	Title       string                      `json:"title,omitzero"`
	Skills      []string                    `json:"skills,omitzero"` // those to use; an empty list means none, nil all
	Plugins     []*PluginConfig             `json:"plugins,omitzero"`
	ToolAliases map[string]string           `json:"toolAliases,omitzero"` // other names that the model may call tools by

	PromptSuggestions      bool     `json:"promptSuggestions,omitzero"`      // guess the next prompt
	AgentProgressSummaries bool     `json:"agentProgressSummaries,omitzero"` // say now and then what subagents do
	ForwardSubagentText    bool     `json:"forwardSubagentText,omitzero"`    // send what subagents say as well
	SupportedDialogKinds   []string `json:"supportedDialogKinds,omitzero"`   // that [RequestUserDialog] may ask for
	PerTaskStopAffordance  bool     `json:"perTaskStopAffordance,omitzero"`  // an interrupt spares background agents
	ProtocolVersion        string   `json:"protocolVersion,omitzero"`        // of an older description, by which to greet with it is to take [CanUseTool]
	Open                   `wire:"subtype=initialize"`
}

// SystemPrompt is the text that comes before a conversation, in parts. It is read
// from a text as well. A single empty part means no system prompt at all, nil the
// agent's own.
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

// Interrupt is a request to stop the turn. It is answered with an
// [InterruptResponse], also if there is no turn.
type Interrupt struct {
	CancelQueued bool `json:"cancel_queued,omitzero"` // drop the prompts that wait, too
	Open         `wire:"subtype=interrupt"`
}

// SetPermissionMode is a request to work in another mode. It is answered with a
// [SetPermissionModeResponse].
type SetPermissionMode struct {
	Mode PermissionMode `json:"mode"`
	Open `wire:"subtype=set_permission_mode"`
}

// SetModel is a request to use another model from now on. It is answered with a
// [SetModelResponse].
type SetModel struct {
	Model string `json:"model,omitzero"` // empty or "default" means the default
	Open  `wire:"subtype=set_model"`
}

// SetMaxThinkingTokens is a request to bound how much the model thinks.
type SetMaxThinkingTokens struct {
	MaxThinkingTokens *int64 `json:"max_thinking_tokens" wire:"null"` // 0 switches thinking off, nil lifts the bound
	ThinkingDisplay   string `json:"thinking_display,omitzero"`       // "summarized", "omitted" or "highlights"
	Open              `wire:"subtype=set_max_thinking_tokens"`
}

// MCPStatus is a request for the state of all MCP servers. It is answered with an
// [MCPStatusResponse].
type MCPStatus struct {
	LiveReply bool `json:"liveReply,omitzero"`
	Open      `wire:"subtype=mcp_status"`
}

// MCPSetServers is a request to use these MCP servers in place of those that an
// earlier one named. It is answered with an [MCPSetServersResponse].
type MCPSetServers struct {
	Servers map[string]*MCPServerConfig `json:"servers"`
	Open    `wire:"subtype=mcp_set_servers"`
}

// MCPReconnect is a request to connect an MCP server again.
type MCPReconnect struct {
	ServerName string `json:"serverName"`
	Open       `wire:"subtype=mcp_reconnect"`
}

// MCPToggle is a request to switch an MCP server on or off.
type MCPToggle struct {
	ServerName string `json:"serverName"`
	Enabled    bool   `json:"enabled"`
	Open       `wire:"subtype=mcp_toggle"`
}

// SetMCPPermissionModeOverride is a request to limit what the permission mode allows for the
// tools of one MCP server. It is answered with a [SetMCPPermissionModeOverrideResponse].
type SetMCPPermissionModeOverride struct {
	ServerName string         `json:"serverName"`
	Mode       PermissionMode `json:"mode" wire:"null"` // ModeDefault or ModeAuto; empty removes the limit
	Open       `wire:"subtype=set_mcp_permission_mode_override"`
}

// MCPMessage is a request that carries a JSON-RPC message between an MCP server
// in the host and the agent, in either direction. The host answers one of the
// agent with an [MCPMessageResponse]; the agent answers with nothing.
type MCPMessage struct {
	ServerName string          `json:"server_name"`
	Message    json.RawMessage `json:"message"`
	Open       `wire:"subtype=mcp_message"`
}

// MCPReadResource is a request for a resource of an MCP server. It is answered
// with an [MCPReadResourceResponse].
type MCPReadResource struct {
	ServerName string `json:"serverName"`
	URI        string `json:"uri"` // begins with "ui://"
	Open       `wire:"subtype=mcp_read_resource"`
}

// MCPCall is a request to call a tool of an MCP server without the model. It is
// answered with an [MCPCallResponse].
type MCPCall struct {
	Tool              string          `json:"tool"` // in full, such as "mcp__server__tool"
	Arguments         json.RawMessage `json:"arguments,omitzero"`
	ExpiresAt         json.RawMessage `json:"expires_at,omitzero"`
	TimeoutMS         int64           `json:"timeout_ms,omitzero"`
	ResultNotForModel bool            `json:"result_not_for_model,omitzero"`
	CheckPermissions  bool            `json:"check_permissions,omitzero"`
	InputFiles        []*MCPFile      `json:"input_files,omitzero"`
	OutputFiles       []*MCPFile      `json:"output_files,omitzero"`
	Open              `wire:"subtype=mcp_call"`
}

// MCPAuthenticate is a request to begin a login to an MCP server. It is answered
// with an [MCPAuthenticateResponse].
type MCPAuthenticate struct {
	ServerName string `json:"serverName"`
	Open       `wire:"subtype=mcp_authenticate"`
}

// MCPOAuthCallbackURL is a request to end a login to an MCP server with the address
// that the page of the login has led the user to.
type MCPOAuthCallbackURL struct {
	ServerName  string `json:"serverName"`
	CallbackURL string `json:"callbackUrl"`
	Open        `wire:"subtype=mcp_oauth_callback_url"`
}

// MCPClearAuth is a request to forget the login to an MCP server.
type MCPClearAuth struct {
	ServerName string `json:"serverName"`
	Open       `wire:"subtype=mcp_clear_auth"`
}

// GetContextUsage is a request to say what fills the model's context. It is
// answered with a [GetContextUsageResponse].
type GetContextUsage struct {
	Detail string `json:"detail,omitzero"` // "summary" or "full"
	Open   `wire:"subtype=get_context_usage"`
}

// GetUsage is a request to say what the session and the account have used. It is
// answered with a [GetUsageResponse].
type GetUsage struct {
	SkipBehaviors bool `json:"skip_behaviors,omitzero"`
	Open          `wire:"subtype=get_usage"`
}

// GetSessionCost is a request for the cost of the session in words. It is
// answered with a [GetSessionCostResponse].
type GetSessionCost struct {
	Open `wire:"subtype=get_session_cost"`
}

// ListModels is a request for the models there are. It is answered with a
// [ListModelsResponse].
type ListModels struct {
	Open `wire:"subtype=list_models"`
}

// GetBinaryVersion is a request for the version of the agent. It is answered with
// a [GetBinaryVersionResponse].
type GetBinaryVersion struct {
	Open `wire:"subtype=get_binary_version"`
}

// GetSettings is a request for the settings in force. It is answered with a
// [GetSettingsResponse].
type GetSettings struct {
	Open `wire:"subtype=get_settings"`
}

// ApplyFlagSettings is a request to change settings for this session. Each is
// replaced whole; null takes one back.
type ApplyFlagSettings struct {
	Settings map[string]json.RawMessage `json:"settings"`
	Open     `wire:"subtype=apply_flag_settings"`
}

// UpdateSettings is a request to write to a settings file. Only few settings may
// be changed so.
type UpdateSettings struct {
	Source   PermissionDestination      `json:"source"` // DestinationLocalSettings or DestinationUserSettings
	Settings map[string]json.RawMessage `json:"settings"`
	Open     `wire:"subtype=update_settings"`
}

// GetHooksListing is a request for all hooks there are. It is answered with a
// [GetHooksListingResponse].
type GetHooksListing struct {
	Open `wire:"subtype=get_hooks_listing"`
}

// ListPermissionRules is a request for all permission rules there are. It is
// answered with a [ListPermissionRulesResponse].
type ListPermissionRules struct {
	Open `wire:"subtype=list_permission_rules"`
}

// RewindFiles is a request to put files back as they were when a prompt was sent.
// It is answered with a [RewindFilesResponse].
type RewindFiles struct {
	UserMessageID string `json:"user_message_id"`
	DryRun        bool   `json:"dry_run,omitzero"` // only say what would change
	Open          `wire:"subtype=rewind_files"`
}

// ReadFile is a request for a file that the agent may read. It is answered with a
// [ReadFileResponse].
type ReadFile struct {
	Path     string `json:"path"`
	MaxBytes int64  `json:"max_bytes,omitzero"`
	Encoding string `json:"encoding,omitzero"` // "utf-8" or "base64"
	Open     `wire:"subtype=read_file"`
}

// SeedReadState is a request to treat a file as read, so that it may be edited.
type SeedReadState struct {
	Path  string  `json:"path"`
	Mtime float64 `json:"mtime"` // when the file was changed, in milliseconds since 1970
	Open  `wire:"subtype=seed_read_state"`
}

// FileSuggestions is a request for files that a prompt may mean. It is answered
// with a [FileSuggestionsResponse].
type FileSuggestions struct {
	Query string `json:"query"`
	Open  `wire:"subtype=file_suggestions"`
}

// RegisterRepoRoot is a request to treat a directory below the working directory
// as a repository of its own. It is answered with a [RegisterRepoRootResponse].
type RegisterRepoRoot struct {
	Directory      string `json:"directory"`
	ReloadClaudeMD bool   `json:"reload_claude_md,omitzero"`
	ReloadPlugins  bool   `json:"reload_plugins,omitzero"`
	ReloadSkills   bool   `json:"reload_skills,omitzero"`
	Open           `wire:"subtype=register_repo_root"`
}

// ReloadPlugins is a request to read all plugins again. It is answered with a
// [ReloadPluginsResponse].
type ReloadPlugins struct {
	HoldOnCacheImpact bool            `json:"hold_on_cache_impact,omitzero"` // only tell if the prompt cache would be lost
	AddPlugins        json.RawMessage `json:"add_plugins,omitzero"`
	RefuseIfBusy      bool            `json:"refuse_if_busy,omitzero"`
	Open              `wire:"subtype=reload_plugins"`
}

// ReloadSkills is a request to read all skills again. It is answered with a
// [ReloadSkillsResponse].
type ReloadSkills struct {
	Open `wire:"subtype=reload_skills"`
}

// ReloadOutputStyles is a request to read all output styles again. It is answered
// with a [ReloadOutputStylesResponse].
type ReloadOutputStyles struct {
	Open `wire:"subtype=reload_output_styles"`
}

// StopTask is a request to end a background task. It succeeds for a task that is
// not known, too.
type StopTask struct {
	TaskID string `json:"task_id"`
	Open   `wire:"subtype=stop_task"`
}

// BackgroundTasks is a request to let running tools go on in the background.
type BackgroundTasks struct {
	ToolUseID string `json:"tool_use_id,omitzero"` // only this one; empty means all
	Open      `wire:"subtype=background_tasks"`
}

// GetTaskOutput is a request for what a background task has printed. It is
// answered with a [GetTaskOutputResponse].
type GetTaskOutput struct {
	TaskID string `json:"task_id"`
	Open   `wire:"subtype=get_task_output"`
}

// CancelAsyncMessage is a request to drop a prompt that still waits. It is
// answered with a [CancelAsyncMessageResponse].
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

// SetHasSubscribers is a request that says whether anybody watches the session.
type SetHasSubscribers struct {
	HasSubscribers *bool `json:"has_subscribers" wire:"null"` // nil means unknown
	Open           `wire:"subtype=set_has_subscribers"`
}

// GenerateSessionTitle is a request to think of a title. It is answered with a
// [GenerateSessionTitleResponse].
type GenerateSessionTitle struct {
	Description string `json:"description"`
	Persist     bool   `json:"persist" wire:"optional"` // use the title, too
	Open        `wire:"subtype=generate_session_title"`
}

// SideQuestion is a request to answer something beside the conversation, which
// does not become part of it. It is answered with a [SideQuestionResponse].
type SideQuestion struct {
	Question string `json:"question"`
	Open     `wire:"subtype=side_question"`
}

// EndSession is a request to end the agent's process.
type EndSession struct {
	Open `wire:"subtype=end_session"`
}

// The requests of an agent.

// CanUseTool is a request to decide whether a tool may run. It is answered with a
// [PermissionResult].
type CanUseTool struct {
	ToolName  string          `json:"tool_name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id,omitzero"`
	AgentID   string          `json:"agent_id,omitzero"` // the subagent that wants it
	MCPServer *ToolServer     `json:"mcp_server,omitzero"`

	// PermissionSuggestions are changes that would make the question unnecessary
	// from now on.
	PermissionSuggestions []*PermissionUpdate `json:"permission_suggestions,omitzero"`

	// Texts for people.
	Title       string `json:"title,omitzero"`
	DisplayName string `json:"display_name,omitzero"` // of the tool
	Description string `json:"description,omitzero"`  // of the call

	// Why the agent asks.
	BlockedPath              string    `json:"blocked_path,omitzero"` // the file it is about
	DecisionReason           string    `json:"decision_reason,omitzero"`
	DecisionReasonType       string    `json:"decision_reason_type,omitzero"` // "rule", "mode", "hook", "workingDir" …
	DecisionReasonHookEvent  HookEvent `json:"decision_reason_hook_event,omitzero"`
	DecisionReasonHookSource string    `json:"decision_reason_hook_source,omitzero"`
	MatchedAskRule           *AskRule  `json:"matched_ask_rule,omitzero"`

	ClassifierApprovable    bool `json:"classifier_approvable,omitzero"`      // a model may decide
	SuppressAlwaysAllowRule bool `json:"suppress_always_allow_rule,omitzero"` // do not offer to allow it for good
	DefaultToNo             bool `json:"default_to_no,omitzero"`
	ServerPolicyAskOnly     bool `json:"server_policy_ask_only,omitzero"`
	RequiresUserInteraction bool `json:"requires_user_interaction,omitzero"` // the tool itself is a question
	Open                    `wire:"subtype=can_use_tool"`
}

// HookCallback is a request to run a hook that [Initialize] registered. It is
// answered with a [HookOutput].
//
// Some agents name the hook and give it data of their own instead: then HookName
// is set and Input is made of the data, as the input of the event with that name
// or, if there is none, as an [*UnknownInput].
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
	// A value of its own, so that a change of Input is seen.
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

// Elicitation is a request of an MCP server to ask the user something. It is
// answered with an [ElicitResult].
type Elicitation struct {
	MCPServerName   string          `json:"mcp_server_name"`
	Message         string          `json:"message"`
	Mode            string          `json:"mode,omitzero"` // "form", or "url" to have a page opened
	URL             string          `json:"url,omitzero"`
	ElicitationID   string          `json:"elicitation_id,omitzero"`
	RequestedSchema json.RawMessage `json:"requested_schema,omitzero"` // of the answer
	PropertyOrder   []string        `json:"property_order,omitzero"`   // in which to ask for its members
	Title           string          `json:"title,omitzero"`
	DisplayName     string          `json:"display_name,omitzero"`
	Description     string          `json:"description,omitzero"`
	Open            `wire:"subtype=elicitation"`
}

// RequestUserDialog is a request to show a dialog of a kind that the host said it
// has. It is answered with a [RequestUserDialogResponse].
type RequestUserDialog struct {
	DialogKind string          `json:"dialog_kind"`
	Payload    json.RawMessage `json:"payload,omitzero"`
	ToolUseID  string          `json:"tool_use_id,omitzero"`
	Open       `wire:"subtype=request_user_dialog"`
}

// SDKControlInterrupt is a request of some agents that says that an interrupt has
// reached them. It is answered with nothing.
type SDKControlInterrupt struct {
	Open `wire:"subtype=sdk_control_interrupt"`
}
