package wire_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/parley-go/parley/wire"
)

func raw(s string) json.RawMessage { return json.RawMessage(s) }

// decodeRequest round-trips a control request and returns its payload.
func decodeRequest(t *testing.T, request string) wire.Request {
	t.Helper()
	m := roundTrip(t, fmt.Appendf(nil, `{"type":"control_request","request_id":"req-1","request":%s}`, request))
	c, ok := m.(*wire.ControlRequest)
	if !ok {
		t.Fatalf("got a %T", m)
	}
	if c.RequestID != "req-1" {
		t.Errorf("request id %q", c.RequestID)
	}
	return c.Request
}

// sameJSON checks that a value encodes to text with the meaning of want.
func sameJSON(t *testing.T, v any, want string) {
	t.Helper()
	got, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("%T: %v", v, err)
	}
	if !reflect.DeepEqual(parse(t, got), parse(t, []byte(want))) {
		t.Errorf("%T\n got %s\nwant %s", v, got, want)
	}
}

// Each line decodes to exactly its value, and the value encodes to the line.
var requests = []struct {
	line string
	want wire.Request
}{
	{`{"subtype":"initialize"}`, &wire.Initialize{}},
	{`{"subtype":"initialize","systemPrompt":[""],"title":"A walk"}`,
		&wire.Initialize{SystemPrompt: wire.SystemPrompt{""}, Title: "A walk"}},
	{`{"subtype":"initialize","hooks":{"PreToolUse":[{"matcher":"Bash","hookCallbackIds":["hook_0"],"timeout":30,"onFailure":"block"}],"Stop":[{"hookCallbackIds":["hook_1","hook_2"]}]},
		"sdkMcpServers":["calc"],"sdkMcpServerConfigs":{"calc":{"timeout":5000,"tools":[{"name":"add","permission_policy":"always_ask"}]}},
		"sdkMcpServerManifests":{"calc":{"initializeResult":{"protocolVersion":"2025-11-25"},"toolsListResult":{"tools":[]}}},"sdkMcpServerManifestsOrigin":"host_per_send",
		"jsonSchema":{"type":"object"},"systemPrompt":["one","two"],"appendSystemPrompt":"Be brief.","systemPromptSnapshot":false,"planModeInstructions":"Think first.",
		"toolAliases":{"Shell":"Bash"},"excludeDynamicSections":true,
		"agents":{"tester":{"description":"Runs the tests","prompt":"You test.","tools":["Read","Bash"],"model":"haiku","effort":3,"maxTurns":4,"mcpServers":["calc",{"new":{"command":"srv","args":["-x"]}}]}},
		"skills":[],"promptSuggestions":true,"agentProgressSummaries":true,"forwardSubagentText":true,"supportedDialogKinds":["pick"],"perTaskStopAffordance":true,
		"plugins":[{"type":"local","path":"/p","skipMcpDiscovery":true}]}`,
		&wire.Initialize{
			Hooks: map[wire.HookEvent][]*wire.HookMatcher{
				wire.EventPreToolUse: {{Matcher: "Bash", HookCallbackIDs: []string{"hook_0"}, Timeout: 30, OnFailure: "block"}},
				wire.EventStop:       {{HookCallbackIDs: []string{"hook_1", "hook_2"}}},
			},
			SDKMCPServers: []string{"calc"},
			SDKMCPServerConfigs: map[string]*wire.MCPServerConfig{"calc": {Timeout: 5000,
				Tools: []*wire.MCPToolPolicy{{Name: "add", PermissionPolicy: "always_ask"}}}},
			SDKMCPServerManifests: map[string]*wire.MCPManifest{"calc": {
				InitializeResult: raw(`{"protocolVersion":"2025-11-25"}`), ToolsListResult: raw(`{"tools":[]}`)}},
			SDKMCPServerManifestsOrigin: "host_per_send",
			JSONSchema:                  raw(`{"type":"object"}`),
			SystemPrompt:                wire.SystemPrompt{"one", "two"},
			AppendSystemPrompt:          "Be brief.",
			SystemPromptSnapshot:        new(false),
			PlanModeInstructions:        "Think first.",
			ToolAliases:                 map[string]string{"Shell": "Bash"},
			ExcludeDynamicSections:      true,
			Agents: map[string]*wire.AgentDefinition{"tester": {
				Description: "Runs the tests", Prompt: "You test.", Tools: []string{"Read", "Bash"}, Model: "haiku", Effort: "3", MaxTurns: 4,
				MCPServers: []*wire.MCPServerRef{{Name: "calc"}, {Configs: map[string]*wire.MCPServerConfig{"new": {Command: "srv", Args: []string{"-x"}}}}},
			}},
			Skills:                 []string{},
			PromptSuggestions:      true,
			AgentProgressSummaries: true,
			ForwardSubagentText:    true,
			SupportedDialogKinds:   []string{"pick"},
			PerTaskStopAffordance:  true,
			Plugins:                []*wire.PluginConfig{{Type: "local", Path: "/p", SkipMCPDiscovery: true}},
		}},
	{`{"subtype":"interrupt"}`, &wire.Interrupt{}},
	{`{"subtype":"interrupt","cancel_queued":true}`, &wire.Interrupt{CancelQueued: true}},
	{`{"subtype":"set_permission_mode","mode":"acceptEdits"}`, &wire.SetPermissionMode{Mode: wire.ModeAcceptEdits}},
	{`{"subtype":"set_model","model":"sonnet"}`, &wire.SetModel{Model: "sonnet"}},
	{`{"subtype":"set_model"}`, &wire.SetModel{}},
	{`{"subtype":"set_max_thinking_tokens","max_thinking_tokens":0}`, &wire.SetMaxThinkingTokens{MaxThinkingTokens: new(int64(0))}},
	{`{"subtype":"set_max_thinking_tokens","max_thinking_tokens":null,"thinking_display":"omitted"}`, &wire.SetMaxThinkingTokens{ThinkingDisplay: "omitted"}},
	{`{"subtype":"mcp_status","liveReply":true}`, &wire.MCPStatus{LiveReply: true}},
	{`{"subtype":"mcp_set_servers","servers":{}}`, &wire.MCPSetServers{Servers: map[string]*wire.MCPServerConfig{}}},
	{`{"subtype":"mcp_set_servers","servers":{"web":{"type":"http","url":"http://localhost/mcp","headers":{"X-Key":"k"},"alwaysLoad":true}}}`,
		&wire.MCPSetServers{Servers: map[string]*wire.MCPServerConfig{"web": {Type: "http", URL: "http://localhost/mcp", Headers: map[string]string{"X-Key": "k"}, AlwaysLoad: true}}}},
	{`{"subtype":"mcp_reconnect","serverName":"web"}`, &wire.MCPReconnect{ServerName: "web"}},
	{`{"subtype":"mcp_toggle","serverName":"web","enabled":false}`, &wire.MCPToggle{ServerName: "web"}},
	{`{"subtype":"set_mcp_permission_mode_override","serverName":"web","mode":"default"}`, &wire.SetMCPPermissionModeOverride{ServerName: "web", Mode: wire.ModeDefault}},
	{`{"subtype":"mcp_message","server_name":"calc","message":{"jsonrpc":"2.0","method":"tools/list","id":1}}`,
		&wire.MCPMessage{ServerName: "calc", Message: raw(`{"jsonrpc":"2.0","method":"tools/list","id":1}`)}},
	{`{"subtype":"mcp_read_resource","serverName":"web","uri":"ui://card"}`, &wire.MCPReadResource{ServerName: "web", URI: "ui://card"}},
	{`{"subtype":"mcp_call","tool":"mcp__web__ping","arguments":{},"timeout_ms":1000,"output_files":[{"name":"a","lane_path":"b","if_match":"c"}]}`,
		&wire.MCPCall{Tool: "mcp__web__ping", Arguments: raw(`{}`), TimeoutMS: 1000, OutputFiles: []*wire.MCPFile{{Name: "a", LanePath: "b", IfMatch: "c"}}}},
	{`{"subtype":"mcp_authenticate","serverName":"web"}`, &wire.MCPAuthenticate{ServerName: "web"}},
	{`{"subtype":"mcp_oauth_callback_url","serverName":"web","callbackUrl":"http://localhost:1/callback?code=c"}`, &wire.MCPOAuthCallbackURL{ServerName: "web", CallbackURL: "http://localhost:1/callback?code=c"}},
	{`{"subtype":"mcp_clear_auth","serverName":"web"}`, &wire.MCPClearAuth{ServerName: "web"}},
	{`{"subtype":"get_context_usage","detail":"summary"}`, &wire.GetContextUsage{Detail: "summary"}},
	{`{"subtype":"get_usage","skip_behaviors":true}`, &wire.GetUsage{SkipBehaviors: true}},
	{`{"subtype":"get_session_cost"}`, &wire.GetSessionCost{}},
	{`{"subtype":"list_models"}`, &wire.ListModels{}},
	{`{"subtype":"get_binary_version"}`, &wire.GetBinaryVersion{}},
	{`{"subtype":"get_settings"}`, &wire.GetSettings{}},
	{`{"subtype":"apply_flag_settings","settings":{"model":"opus","agent":null}}`,
		&wire.ApplyFlagSettings{Settings: map[string]json.RawMessage{"model": raw(`"opus"`), "agent": raw(`null`)}}},
	{`{"subtype":"update_settings","source":"localSettings","settings":{"outputStyle":"plain"}}`,
		&wire.UpdateSettings{Source: wire.DestinationLocalSettings, Settings: map[string]json.RawMessage{"outputStyle": raw(`"plain"`)}}},
	{`{"subtype":"get_hooks_listing"}`, &wire.GetHooksListing{}},
	{`{"subtype":"list_permission_rules"}`, &wire.ListPermissionRules{}},
	{`{"subtype":"rewind_files","user_message_id":"m-1","dry_run":true}`, &wire.RewindFiles{UserMessageID: "m-1", DryRun: true}},
	{`{"subtype":"read_file","path":"a.txt","max_bytes":10,"encoding":"base64"}`, &wire.ReadFile{Path: "a.txt", MaxBytes: 10, Encoding: "base64"}},
	{`{"subtype":"seed_read_state","path":"a.txt","mtime":1700000000000.5}`, &wire.SeedReadState{Path: "a.txt", Mtime: 1700000000000.5}},
	{`{"subtype":"file_suggestions","query":"ma"}`, &wire.FileSuggestions{Query: "ma"}},
	{`{"subtype":"register_repo_root","directory":"sub","reload_skills":true}`, &wire.RegisterRepoRoot{Directory: "sub", ReloadSkills: true}},
	{`{"subtype":"reload_plugins","refuse_if_busy":true}`, &wire.ReloadPlugins{RefuseIfBusy: true}},
	{`{"subtype":"reload_skills"}`, &wire.ReloadSkills{}},
	{`{"subtype":"reload_output_styles"}`, &wire.ReloadOutputStyles{}},
	{`{"subtype":"stop_task","task_id":"t1"}`, &wire.StopTask{TaskID: "t1"}},
	{`{"subtype":"background_tasks","tool_use_id":"toolu_1"}`, &wire.BackgroundTasks{ToolUseID: "toolu_1"}},
	{`{"subtype":"get_task_output","task_id":"t1"}`, &wire.GetTaskOutput{TaskID: "t1"}},
	{`{"subtype":"cancel_async_message","message_uuid":"m-1"}`, &wire.CancelAsyncMessage{MessageUUID: "m-1"}},
	{`{"subtype":"rename_session","title":"A walk","source":"host"}`, &wire.RenameSession{Title: "A walk", Source: "host"}},
	{`{"subtype":"set_color","color":"blue"}`, &wire.SetColor{Color: "blue"}},
	{`{"subtype":"set_has_subscribers","has_subscribers":true}`, &wire.SetHasSubscribers{HasSubscribers: new(true)}},
	{`{"subtype":"set_has_subscribers","has_subscribers":null}`, &wire.SetHasSubscribers{}},
	{`{"subtype":"generate_session_title","description":"we walked","persist":false}`, &wire.GenerateSessionTitle{Description: "we walked"}},
	{`{"subtype":"side_question","question":"What is the time?"}`, &wire.SideQuestion{Question: "What is the time?"}},
	{`{"subtype":"end_session"}`, &wire.EndSession{}},

	{`{"subtype":"can_use_tool","tool_name":"Bash","display_name":"Bash","input":{"command":"touch x"},"description":"touch x",
		"permission_suggestions":[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"touch *"}],"behavior":"allow","destination":"localSettings"},
			{"type":"addDirectories","directories":["/d"],"destination":"session"},{"type":"setMode","mode":"acceptEdits","destination":"session"}],
		"blocked_path":"/d/x","decision_reason":"It is outside.","decision_reason_type":"workingDir","tool_use_id":"toolu_1","agent_id":"a1",
		"mcp_server":{"name":"calc","source":"sdk"},"matched_ask_rule":{"source":"userSettings","tool_name":"Bash"},"requires_user_interaction":true,"server_policy_ask_only":true,
		"decision_reason_hook_event":"PreToolUse","decision_reason_hook_source":"settings"}`,
		&wire.CanUseTool{
			ToolName: "Bash", DisplayName: "Bash", Input: raw(`{"command":"touch x"}`), Description: "touch x",
			PermissionSuggestions: []*wire.PermissionUpdate{
				{Type: wire.UpdateAddRules, Rules: []*wire.PermissionRule{{ToolName: "Bash", RuleContent: "touch *"}}, Behavior: wire.BehaviorAllow, Destination: wire.DestinationLocalSettings},
				{Type: wire.UpdateAddDirectories, Directories: []string{"/d"}, Destination: wire.DestinationSession},
				{Type: wire.UpdateSetMode, Mode: wire.ModeAcceptEdits, Destination: wire.DestinationSession},
			},
			BlockedPath: "/d/x", DecisionReason: "It is outside.", DecisionReasonType: "workingDir", ToolUseID: "toolu_1", AgentID: "a1",
			MCPServer: &wire.ToolServer{Name: "calc", Source: "sdk"}, MatchedAskRule: &wire.AskRule{Source: "userSettings", ToolName: "Bash"},
			RequiresUserInteraction: true, ServerPolicyAskOnly: new(true),
			DecisionReasonHookEvent: wire.EventPreToolUse, DecisionReasonHookSource: "settings",
		}},
	{`{"subtype":"hook_callback","callback_id":"hook_0","input":{"session_id":"s","transcript_path":"/t","cwd":"/w","hook_event_name":"SessionEnd","reason":"clear"},"tool_use_id":"u"}`,
		&wire.HookCallback{CallbackID: "hook_0", ToolUseID: "u", Input: &wire.SessionEndInput{HookBase: wire.HookBase{SessionID: "s", TranscriptPath: "/t", Cwd: "/w"}, Reason: "clear"}}},
	{`{"subtype":"elicitation","mcp_server_name":"demo","message":"Your name?","mode":"form","requested_schema":{"type":"object"},"property_order":["name"]}`,
		&wire.Elicitation{MCPServerName: "demo", Message: "Your name?", Mode: "form", RequestedSchema: raw(`{"type":"object"}`), PropertyOrder: []string{"name"}}},
	{`{"subtype":"request_user_dialog","dialog_kind":"pick","payload":{"n":1}}`, &wire.RequestUserDialog{DialogKind: "pick", Payload: raw(`{"n":1}`)}},
	{`{"subtype":"sdk_control_interrupt"}`, &wire.SDKControlInterrupt{}},
	{`{"subtype":"never_heard_of","x":1}`, &wire.UnknownRequest{Name: "never_heard_of", Raw: raw(`{"subtype":"never_heard_of","x":1}`)}},
}

func TestRequests(t *testing.T) {
	known, _, _ := wire.Tables()
	for _, tt := range requests {
		delete(known, tt.want.Subtype())
		t.Run(tt.want.Subtype(), func(t *testing.T) {
			got := decodeRequest(t, tt.line)
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			if want := parse(t, []byte(tt.line)).(map[string]any)["subtype"]; got.Subtype() != want {
				t.Errorf("Subtype() = %q, want %q", got.Subtype(), want)
			}
			sameJSON(t, tt.want, tt.line)
		})
	}
	for name := range known {
		t.Errorf("no test of the request %s", name)
	}
}

// Other spellings decode to the same values.
func TestRequestDialects(t *testing.T) {
	t.Run("system prompt as text", func(t *testing.T) {
		r := decodeRequest(t, `{"subtype":"initialize","systemPrompt":"You are kind."}`).(*wire.Initialize)
		if !reflect.DeepEqual(r.SystemPrompt, wire.SystemPrompt{"You are kind."}) {
			t.Errorf("got %q", r.SystemPrompt)
		}
		r.SystemPrompt = append(r.SystemPrompt, "And brief.")
		sameJSON(t, r, `{"subtype":"initialize","systemPrompt":["You are kind.","And brief."]}`)
	})
	t.Run("no hooks", func(t *testing.T) {
		r := decodeRequest(t, `{"subtype":"initialize","hooks":null}`).(*wire.Initialize)
		if r.Hooks != nil {
			t.Errorf("got %v", r.Hooks)
		}
	})
	t.Run("null matcher", func(t *testing.T) {
		r := decodeRequest(t, `{"subtype":"initialize","hooks":{"Stop":[{"matcher":null,"hookCallbackIds":["hook_0"]}]}}`).(*wire.Initialize)
		if m := r.Hooks[wire.EventStop]; len(m) != 1 || m[0].Matcher != "" {
			t.Errorf("got %v", m)
		}
	})
	t.Run("protocol version", func(t *testing.T) {
		r := decodeRequest(t, `{"subtype":"initialize","protocolVersion":"1.0","features":[]}`).(*wire.Initialize)
		if r.ProtocolVersion != "1.0" || string(r.Extra["features"]) != "[]" {
			t.Errorf("got %q and %v", r.ProtocolVersion, r.Extra)
		}
	})
	t.Run("null model", func(t *testing.T) {
		if r := decodeRequest(t, `{"subtype":"set_model","model":null}`).(*wire.SetModel); r.Model != "" {
			t.Errorf("got %q", r.Model)
		}
	})
	t.Run("model of another shape", func(t *testing.T) {
		if r := decodeRequest(t, `{"subtype":"set_model","model":5}`).(*wire.SetModel); string(r.Extra["model"]) != "5" {
			t.Errorf("got %v", r.Extra)
		}
	})
	t.Run("null rule content", func(t *testing.T) {
		decodeRequest(t, `{"subtype":"can_use_tool","tool_name":"Bash","input":{},"permission_suggestions":[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":null}]}]}`)
	})
	t.Run("effort", func(t *testing.T) {
		for text, want := range map[string]wire.Effort{`"high"`: wire.EffortHigh, `7`: "7", `"7"`: "7", `1e1`: ""} {
			r := decodeRequest(t, `{"subtype":"initialize","agents":{"a":{"description":"d","prompt":"p","effort":`+text+`}}}`).(*wire.Initialize)
			if got := r.Agents["a"].Effort; got != want {
				t.Errorf("%s: got %q, want %q", text, got, want)
			}
		}
	})
	t.Run("hook by name", func(t *testing.T) {
		const line = `{"subtype":"hook_callback","hook_name":"pre-commit","hook_data":{"branch":"main"}}`
		r := decodeRequest(t, line).(*wire.HookCallback)
		in, ok := r.Input.(*wire.UnknownInput)
		if r.HookName != "pre-commit" || !ok || in.Event() != "pre-commit" || string(in.Raw) != `{"branch":"main"}` {
			t.Errorf("got %+v", r)
		}
		in.Raw = raw(`{"branch":"other"}`)
		sameJSON(t, r, `{"subtype":"hook_callback","hook_name":"pre-commit","hook_data":{"branch":"main"},"input":{"branch":"other"}}`)
	})
	t.Run("hook by name of an event", func(t *testing.T) {
		r := decodeRequest(t, `{"subtype":"hook_callback","hook_name":"PreToolUse","hook_data":{"tool_name":"Bash","tool_input":{"command":"ls"}}}`).(*wire.HookCallback)
		if in, ok := r.Input.(*wire.PreToolUseInput); !ok || in.ToolName != "Bash" {
			t.Errorf("got %+v", r.Input)
		}
	})
	t.Run("hook by another name with an event in its data", func(t *testing.T) {
		r := decodeRequest(t, `{"subtype":"hook_callback","hook_name":"mine","hook_data":{"hook_event_name":"Stop","stop_hook_active":true}}`).(*wire.HookCallback)
		if in, ok := r.Input.(*wire.StopInput); !ok || !in.StopHookActive {
			t.Errorf("got %+v", r.Input)
		}
	})
	for _, line := range []string{
		`{"subtype":"hook_callback","hook_name":"bare"}`,
		`{"subtype":"hook_callback","hook_name":"bare","hook_data":null}`,
		`{"subtype":"hook_callback","hook_name":"bare","hook_data":[1]}`,
	} {
		t.Run("hook without data", func(t *testing.T) {
			if r := decodeRequest(t, line).(*wire.HookCallback); r.Input == nil || r.Input.Event() != "bare" {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// payload decodes the payload of a response into a T and checks that nothing is lost.
func payload[T any](t *testing.T, text string) *T {
	t.Helper()
	m := roundTrip(t, fmt.Appendf(nil, `{"type":"control_response","response":{"subtype":"success","request_id":"req-1","response":%s}}`, text))
	v := new(T)
	if err := m.(*wire.ControlResponse).Response.Decode(v); err != nil {
		t.Fatal(err)
	}
	sameJSON(t, v, text)
	return v
}

func TestResponses(t *testing.T) {
	t.Run("initialize", func(t *testing.T) {
		r := payload[wire.InitializeResponse](t, `{"commands":[{"name":"review","description":"Reads the change","argumentHint":"[file]","builtin":true},{"name":"x","description":"","argumentHint":""}],
			"agents":[{"name":"Explore","description":"Looks around","model":"inherit"}],"output_style":"default","available_output_styles":["default"],"user_output_styles_dir":"/h/styles",
			"models":[{"value":"default","resolvedModel":"m-5","displayName":"Default","description":"The usual","supportsEffort":true,"supportedEffortLevels":["low","high"],"supportsThinkingOff":true}],
			"account":{"tokenSource":"none","apiKeySource":"ANTHROPIC_API_KEY","apiProvider":"firstParty"},"pid":1234,"claude_code_version":"2.1.0","current_permission_mode":"plan",
			"session_state":"idle","hooks_applied":true,"hook_on_failure_supported":true,"other_hook_ask_outranks_host":true,"analytics_disabled":true,"remote_control_available":false,
			"feedback_mode":{"kind":"disabled"},"fast_mode_state":"off","fast_mode_disabled_reason":"sdk_opt_in_required","capabilities":["interrupt_receipt_v1"],"sdk_mcp_manifests_parked":{"calc":"parked"}}`)
		if r.Models[0].SupportedEffortLevels[1] != wire.EffortHigh || !*r.HooksApplied || r.CurrentPermissionMode != wire.ModePlan ||
			r.Account.APIProvider != "firstParty" || r.SDKMCPManifestsParked["calc"] != "parked" || r.PluginsApplied != nil {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("initialize of older agents", func(t *testing.T) {
		payload[wire.InitializeResponse](t, `{"commands":[{"name":"commit","description":"","argumentHint":""}],"output_style":"plain","available_output_styles":["plain"],
			"models":[{"value":"m","displayName":"M","description":"one"}],"account":{"email":"a@b","organization":"o","subscriptionType":"max"}}`)
		payload[wire.InitializeResponse](t, `{}`)
	})
	t.Run("interrupt", func(t *testing.T) {
		if r := payload[wire.InterruptResponse](t, `{"still_queued":["u1"],"cancelled":[]}`); len(r.StillQueued) != 1 || r.Cancelled == nil {
			t.Errorf("got %+v", r)
		}
		if r := payload[wire.InterruptResponse](t, `{}`); r.StillQueued != nil {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("set_permission_mode", func(t *testing.T) {
		payload[wire.SetPermissionModeResponse](t, `{"mode":"default"}`)
		payload[wire.SetPermissionModeResponse](t, `{}`)
	})
	t.Run("set_model", func(t *testing.T) {
		payload[wire.SetModelResponse](t, `{"model":"m-5"}`)
	})
	t.Run("mcp_status", func(t *testing.T) {
		const servers = `[{"name":"demo","status":"connected","serverInfo":{"name":"demo","version":"1.0"},"config":{"type":"stdio","command":"srv","args":["a"]},"transport":"stdio","scope":"dynamic","source":"dynamic",
			"tools":[{"name":"echo","annotations":{"readOnly":true}},{"name":"fail","annotations":{}}]},
			{"name":"broken","status":"failed","error":"there is no such program","config":{"type":"stdio","command":"/none","args":[]},"transport":"stdio"}]`
		for _, text := range []string{`{"mcpServers":` + servers + `}`, servers} {
			r := payload[wire.MCPStatusResponse](t, text)
			if len(r.MCPServers) != 2 || r.MCPServers[0].Status != wire.MCPConnected || !r.MCPServers[0].Tools[0].Annotations.ReadOnly || r.MCPServers[1].Error == "" {
				t.Errorf("got %+v", r)
			}
		}
		payload[wire.MCPStatusResponse](t, `[]`)
		payload[wire.MCPStatusResponse](t, `{"mcpServers":[],"new":1}`)
		payload[wire.MCPStatusResponse](t, `[{"name":"x","status":"needs-auth","new":{"a":1}}]`)
		sameJSON(t, &wire.MCPStatusResponse{}, `{"mcpServers":[]}`)
	})
	t.Run("mcp_set_servers", func(t *testing.T) {
		r := payload[wire.MCPSetServersResponse](t, `{"added":["demo","bad"],"removed":[],"errors":{"bad":"no command"}}`)
		if r.Errors["bad"] != "no command" {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("mcp", func(t *testing.T) {
		payload[wire.MCPMessageResponse](t, `{"mcp_response":{"jsonrpc":"2.0","id":1,"result":{}}}`)
		payload[wire.MCPReadResourceResponse](t, `{"contents":[{"uri":"ui://a","mimeType":"text/html","text":"hi","_meta":{}}]}`)
		payload[wire.MCPAuthenticateResponse](t, `{"authUrl":"https://x","requiresUserAction":true,"callbackExpected":true,"redirectScheme":"localhost","state":"s","callbackPort":5000}`)
		payload[wire.MCPCallResponse](t, `{"content":[{"type":"text","text":"pong"}],"isError":true}`)
	})
	t.Run("rewind_files", func(t *testing.T) {
		r := payload[wire.RewindFilesResponse](t, `{"canRewind":true,"filesChanged":["/w/a"],"insertions":0,"deletions":1}`)
		if !r.CanRewind || *r.Deletions != 1 {
			t.Errorf("got %+v", r)
		}
		payload[wire.RewindFilesResponse](t, `{"canRewind":true,"skippedLinks":0}`)
		payload[wire.RewindFilesResponse](t, `{"canRewind":false,"error":"there is no checkpoint"}`)
	})
	t.Run("get_settings", func(t *testing.T) {
		r := payload[wire.GetSettingsResponse](t, `{"effective":{"model":"opus"},"sources":[{"source":"userSettings","settings":{"model":"opus"}}],
			"applied":{"model":"m-5","effort":"high","advisor":null,"ultracode":false},"errors":[{"file":"/s.json","path":"model","message":"not a name"}]}`)
		if r.Applied.Effort != wire.EffortHigh || r.Errors[0].Path != "model" {
			t.Errorf("got %+v", r)
		}
		payload[wire.GetSettingsResponse](t, `{"effective":{},"sources":[]}`)
	})
	t.Run("get_context_usage", func(t *testing.T) {
		r := payload[wire.GetContextUsageResponse](t, `{"categories":[{"id":"system_prompt","name":"System prompt","tokens":1457,"color":"blue","kind":"used"},{"name":"Later","tokens":1,"color":"x","isDeferred":true,"kind":"deferred"}],
			"totalTokens":9731,"maxTokens":200000,"rawMaxTokens":200000,"autocompactSource":"auto","percentage":5,
			"gridRows":[[{"color":"blue","isFilled":true,"categoryName":"System prompt","tokens":1457,"percentage":1,"squareFullness":0.7284999999999999}]],
			"model":"m-5","memoryFiles":[{"path":"/w/NOTES.md","type":"Project","tokens":3}],"mcpTools":[{"name":"echo","serverName":"demo","tokens":4,"isLoaded":false}],"mcpInstructions":[{"serverName":"demo","tokens":2}],
			"deferredBuiltinTools":[{"name":"Rare","tokens":9,"isLoaded":false}],"systemTools":[{"name":"Bash","tokens":8}],"systemPromptSections":[{"name":"intro","tokens":7}],
			"agents":[{"agentType":"tester","source":"projectSettings","tokens":5}],"slashCommands":{"totalCommands":2,"includedCommands":1,"tokens":6},
			"skills":{"totalSkills":1,"includedSkills":1,"tokens":2,"skillFrontmatter":[{"name":"charts","source":"built-in","tokens":2}]},
			"autoCompactThreshold":167000,"isAutoCompactEnabled":true,
			"messageBreakdown":{"toolCallTokens":35,"toolResultTokens":51,"attachmentTokens":17,"assistantMessageTokens":14,"userMessageTokens":44,"redirectedContextTokens":0,"unattributedTokens":0,
				"toolCallsByType":[{"name":"Write","callTokens":35,"resultTokens":51}],"attachmentsByType":[{"name":"files","tokens":17}]},
			"apiUsage":{"input_tokens":100,"output_tokens":10,"cache_creation_input_tokens":0,"cache_read_input_tokens":0}}`)
		if r.Categories[0].Tokens != 1457 || r.APIUsage.InputTokens != 100 || r.GridRows[0][0].SquareFullness < 0.7 || *r.MCPTools[0].IsLoaded {
			t.Errorf("got %+v", r)
		}
		if r := payload[wire.GetContextUsageResponse](t, `{"categories":[],"totalTokens":0,"maxTokens":1,"rawMaxTokens":1,"percentage":0.5,"model":"m","memoryFiles":[],"mcpTools":[],"agents":[],"isAutoCompactEnabled":false,"apiUsage":null}`); r.APIUsage != nil {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("get_usage", func(t *testing.T) {
		r := payload[wire.GetUsageResponse](t, `{"session":{"total_cost_usd":0.0012000000000000001,"total_api_duration_ms":60,"total_duration_ms":1400,"total_lines_added":2,"total_lines_removed":0,
			"model_usage":{"m-5":{"inputTokens":200,"outputTokens":20,"cacheReadInputTokens":0,"cacheCreationInputTokens":0,"webSearchRequests":0,"costUSD":0.0012,"contextWindow":1000000}}},
			"subscription_type":null,"rate_limits_available":false,"rate_limits":null,"behaviors":null}`)
		if r.Session.ModelUsage["m-5"].InputTokens != 200 {
			t.Errorf("got %+v", r)
		}
	})
	t.Run("the rest", func(t *testing.T) {
		payload[wire.GetSessionCostResponse](t, `{"text":"cheap"}`)
		payload[wire.ListModelsResponse](t, `{"models":[{"value":"m","displayName":"M","description":"one"}]}`)
		payload[wire.GetBinaryVersionResponse](t, `{"version":"1.2.3","buildTime":"2026-01-02T03:04:05Z"}`)
		payload[wire.GetHooksListingResponse](t, `{"events":[{"name":"Stop","summary":"At the end","supportsMatcher":false,"hookCount":1}],"hooks":[{"event":"Stop","matcher":"","source":"userSettings","sourceLabel":"User","type":"command","displayText":"say bye","commandText":"bye","timeout":2.5}],
			"eventCatalog":[{"name":"PreToolUse","summary":"Before a tool","supportsMatcher":true}],"policy":{"disabledByPolicy":false,"managedOnly":false,"pluginOnly":false,"allDisabled":false,"policyHookCount":0}}`)
		payload[wire.ListPermissionRulesResponse](t, `{"state":{"rules":[{"behavior":"deny","source":"cliArg","rule":"Bash(rm *)","description":{"prefix":"Commands that begin with ","emphasis":"rm"},"editability":"readonly"}],
			"workspaceDirectories":[{"path":"/w","source":"session"}],"originalCwd":"/w","managedOnly":false}}`)
		payload[wire.ReadFileResponse](t, `{"contents":"one\n","absPath":"/w/a","lossy":false,"requested_path":"a"}`)
		payload[wire.FileSuggestionsResponse](t, `{"suggestions":["a.txt",{"path":"b"}],"cwd":"/w"}`)
		payload[wire.RegisterRepoRootResponse](t, `{"directory":"/w/sub"}`)
		payload[wire.ReloadPluginsResponse](t, `{"commands":[],"agents":[],"plugins":[{"name":"p","path":"builtin","source":"p@builtin"}],"mcpServers":[],"error_count":0,"held":true,
			"cache_impact":{"mcp_servers_added":["a"],"mcp_servers_removed":[],"lsp_tool_change":null}}`)
		payload[wire.ReloadSkillsResponse](t, `{"skills":[{"name":"s","description":"d","argumentHint":""}]}`)
		payload[wire.ReloadOutputStylesResponse](t, `{"available_output_styles":["default"]}`)
		payload[wire.GetTaskOutputResponse](t, `{"output":"","total_bytes":0,"truncated":false}`)
		payload[wire.CancelAsyncMessageResponse](t, `{"cancelled":false}`)
		payload[wire.GenerateSessionTitleResponse](t, `{"title":null}`)
		payload[wire.SideQuestionResponse](t, `{"response":"Noon.","synthetic":false}`)
		payload[wire.RequestUserDialogResponse](t, `{"behavior":"cancelled"}`)
	})
	t.Run("can_use_tool", func(t *testing.T) {
		r := payload[wire.PermissionResult](t, `{"behavior":"allow","updatedInput":{"command":"ls -la"},"toolUseID":"toolu_1","decisionClassification":"user_permanent",
			"updatedPermissions":[{"type":"addRules","rules":[{"toolName":"Bash"}],"behavior":"allow","destination":"session"}]}`)
		if r.Behavior != wire.BehaviorAllow || r.UpdatedPermissions[0].Rules[0].ToolName != "Bash" || r.DecisionClassification != wire.UserPermanent {
			t.Errorf("got %+v", r)
		}
		if r := payload[wire.PermissionResult](t, `{"behavior":"deny","message":"Not now.","interrupt":true}`); !r.Interrupt || r.Message != "Not now." {
			t.Errorf("got %+v", r)
		}
		payload[wire.PermissionResult](t, `{"behavior":"deny","message":"","interrupt":false}`)
		payload[wire.PermissionResult](t, `{"behavior":"maybe"}`)
	})
	t.Run("elicitation", func(t *testing.T) {
		if r := payload[wire.ElicitResult](t, `{"action":"accept","content":{"name":"Ann"}}`); r.Action != wire.ElicitAccept {
			t.Errorf("got %+v", r)
		}
		payload[wire.ElicitResult](t, `{"action":"decline"}`)
	})
	t.Run("sandbox", func(t *testing.T) {
		r := payload[wire.SandboxSettings](t, `{"enabled":false,"allowUnsandboxedCommands":true,"excludedCommands":["docker"],"ignoreViolations":{"file":["/tmp"]},
			"network":{"allowedDomains":["example.com"],"allowLocalBinding":true,"httpProxyPort":8080,"tlsTerminate":{"caCertPath":"/c"}},"filesystem":{"denyRead":["/secret"]},
			"credentials":{"files":[{"path":"/k","mode":"mask","decode":"jwt"}],"envVars":[{"name":"KEY","mode":"deny"}]},"ripgrep":{"command":"rg"}}`)
		if *r.Enabled || r.Network.HTTPProxyPort != 8080 {
			t.Errorf("got %+v", r)
		}
	})
}

func TestResponseDecode(t *testing.T) {
	for _, line := range []string{
		`{"type":"control_response","response":{"subtype":"success","request_id":"a"}}`,
		`{"type":"control_response","response":{"subtype":"success","request_id":"a","response":null}}`,
		`{"type":"control_response","response":{"subtype":"error","request_id":"a","error":"no","error_code":"unsupported_request"}}`,
	} {
		r := roundTrip(t, []byte(line)).(*wire.ControlResponse).Response
		v := wire.SetModelResponse{Model: "kept"}
		if err := r.Decode(&v); err != nil || v.Model != "kept" {
			t.Errorf("%s: %v, %+v", line, err, v)
		}
	}
	r := roundTrip(t, []byte(`{"type":"control_response","response":{"subtype":"success","request_id":"a","response":["b"]}}`)).(*wire.ControlResponse).Response
	if err := r.Decode(new(wire.SetModelResponse)); err == nil {
		t.Error("an array was decoded as a SetModelResponse")
	}
}

func TestPendingRequests(t *testing.T) {
	m := roundTrip(t, []byte(`{"type":"control_response","response":{"subtype":"success","request_id":"a","response":{},
		"pending_permission_requests":[{"type":"control_request","request_id":"p","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{}}}],
		"pending_user_dialog_requests":[],"pending_elicitation_requests":[{"type":"control_request","request_id":"e","request":{"subtype":"elicitation","mcp_server_name":"s","message":"m"}}]}}`))
	r := m.(*wire.ControlResponse).Response
	if _, ok := r.PendingPermissionRequests[0].Request.(*wire.CanUseTool); !ok {
		t.Errorf("got %+v", r.PendingPermissionRequests[0])
	}
	if _, ok := r.PendingElicitationRequests[0].Request.(*wire.Elicitation); !ok {
		t.Errorf("got %+v", r.PendingElicitationRequests[0])
	}
}

// fill sets every field below v to a value other than zero, and adds an unknown member to
// every object.
func fill(v reflect.Value, depth int) {
	switch x := v.Addr().Interface().(type) {
	case *json.RawMessage:
		*x = raw(`{"a":[1,null]}`)
		return
	case *wire.Open:
		x.Extra = map[string]json.RawMessage{"from_tomorrow": raw(`{"b":1.50}`)}
		return
	case *wire.HookInput:
		*x = &wire.UnknownInput{Name: "New", Raw: raw(`{"hook_event_name":"New"}`)}
		return
	case *wire.HookSpecificOutput:
		*x = &wire.UnknownOutput{Name: "New", Raw: raw(`{"hookEventName":"New"}`)}
		return
	case *wire.MCPServerRef:
		x.Name = "server"
		return
	case *wire.Content:
		*x = wire.Blocks(&wire.UnknownBlock{Type: "new", Raw: raw(`{"type":"new"}`)})
		return
	case *wire.Block:
		*x = &wire.UnknownBlock{Type: "new", Raw: raw(`{"type":"new"}`)}
		return
	case *wire.Request:
		*x = &wire.UnknownRequest{Name: "new", Raw: raw(`{"subtype":"new"}`)}
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.String:
		v.SetString("text")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		if depth < 8 {
			fill(v.Elem(), depth+1)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		e := reflect.New(v.Type().Elem()).Elem()
		fill(e, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key").Convert(v.Type().Key()), e)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth+1)
			}
		}
	default:
		panic(v.Type().String())
	}
}

// answers are the payloads of responses.
var answers = []any{
	&wire.InitializeResponse{}, &wire.InterruptResponse{}, &wire.SetPermissionModeResponse{}, &wire.SetModelResponse{},
	&wire.MCPStatusResponse{}, &wire.MCPSetServersResponse{}, &wire.MCPMessageResponse{}, &wire.MCPReadResourceResponse{}, &wire.MCPAuthenticateResponse{},
	&wire.MCPCallResponse{}, &wire.RewindFilesResponse{}, &wire.GetSettingsResponse{}, &wire.GetSessionCostResponse{},
	&wire.GetUsageResponse{}, &wire.ListModelsResponse{}, &wire.GetBinaryVersionResponse{}, &wire.GetHooksListingResponse{},
	&wire.ListPermissionRulesResponse{}, &wire.ReadFileResponse{}, &wire.SetMCPPermissionModeOverrideResponse{}, &wire.FileSuggestionsResponse{}, &wire.RegisterRepoRootResponse{},
	&wire.ReloadPluginsResponse{}, &wire.ReloadSkillsResponse{}, &wire.ReloadOutputStylesResponse{}, &wire.GetTaskOutputResponse{},
	&wire.CancelAsyncMessageResponse{}, &wire.GenerateSessionTitleResponse{}, &wire.SideQuestionResponse{},
	&wire.RequestUserDialogResponse{}, &wire.GetContextUsageResponse{},
	&wire.PermissionResult{}, &wire.ElicitResult{}, &wire.HookOutput{}, &wire.SandboxSettings{},
}

// TestEveryFieldIsTransmitted sets all fields of all types, encodes the values, and
// compares them with the decoded ones.
func TestEveryFieldIsTransmitted(t *testing.T) {
	requests, inputs, outputs := wire.Tables()
	var all []reflect.Type
	for _, table := range []map[string]reflect.Type{requests, inputs, outputs, wire.Messages(), wire.BlockTypes()} {
		for _, typ := range table {
			all = append(all, typ)
		}
	}
	listed := map[string]bool{"HookResponse": true, "ControlResponse": true, "Response": true} // not payloads
	for _, a := range answers {
		typ := reflect.TypeOf(a).Elem()
		all = append(all, typ)
		listed[typ.Name()] = true
	}
	for _, name := range wire.Objects(t) {
		if strings.HasSuffix(name, "Response") && !listed[name] {
			t.Errorf("%s is not among the answers of this test", name)
		}
	}
	for _, typ := range all {
		t.Run(typ.Name(), func(t *testing.T) {
			v := reflect.New(typ)
			fill(v.Elem(), 0)
			text, err := json.Marshal(v.Interface())
			if err != nil {
				t.Fatal(err)
			}
			back := reflect.New(typ)
			if err := json.Unmarshal(text, back.Interface()); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(back.Interface(), v.Interface()) {
				t.Errorf("changed by %s:\n got %+v\nwant %+v", text, back, v)
			}
		})
	}
}

// TestStamp checks that Stamp sets only the members that a message lacks.
func TestStamp(t *testing.T) {
	stamp := func(m wire.Message) {
		wire.Stamp(m, func() string { return "new" }, "session", func() string { return "now" })
	}
	m := &wire.Assistant{}
	if stamp(m); m.UUID != "new" || m.SessionID != "session" || m.Timestamp != "now" {
		t.Errorf("got %q, %q, %q, want everything set", m.UUID, m.SessionID, m.Timestamp)
	}
	m = &wire.Assistant{}
	m.UUID, m.SessionID, m.Timestamp = "u", "s", "t"
	if stamp(m); m.UUID != "u" || m.SessionID != "s" || m.Timestamp != "t" {
		t.Errorf("got %q, %q, %q, want them unchanged", m.UUID, m.SessionID, m.Timestamp)
	}
	stamp(&wire.ControlRequest{}) // has none of them
}
