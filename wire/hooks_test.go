package wire_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/wire"
)

// Each line decodes to exactly its value. BASE stands for the members that every hook
// receives.
var hookInputs = []struct {
	line string
	want wire.HookInput
}{
	{`{BASE,"hook_event_name":"PreToolUse","tool_name":"mcp__calc__add","tool_input":{"a":1},"tool_use_id":"toolu_1","mcp_server":{"name":"calc","source":"sdk"}}`,
		&wire.PreToolUseInput{ToolName: "mcp__calc__add", ToolInput: raw(`{"a":1}`), ToolUseID: "toolu_1", MCPServer: &wire.ToolServer{Name: "calc", Source: "sdk"}}},
	{`{BASE,"hook_event_name":"PostToolUse","tool_name":"Bash","tool_input":{},"tool_response":{"stdout":"hi"},"tool_use_id":"toolu_1","duration_ms":21}`,
		&wire.PostToolUseInput{ToolName: "Bash", ToolInput: raw(`{}`), ToolResponse: raw(`{"stdout":"hi"}`), ToolUseID: "toolu_1", DurationMS: new(int64(21))}},
	{`{BASE,"hook_event_name":"PostToolUseFailure","tool_name":"Bash","tool_input":{},"tool_use_id":"toolu_1","error":"it broke","is_interrupt":true,"duration_ms":3}`,
		&wire.PostToolUseFailureInput{ToolName: "Bash", ToolInput: raw(`{}`), ToolUseID: "toolu_1", Error: "it broke", IsInterrupt: true, DurationMS: new(int64(3))}},
	{`{BASE,"hook_event_name":"PostToolBatch","tool_calls":[{"tool_name":"Read","tool_input":{},"tool_use_id":"toolu_1","tool_response":"text"}]}`,
		&wire.PostToolBatchInput{ToolCalls: []*wire.HookToolCall{{ToolName: "Read", ToolInput: raw(`{}`), ToolUseID: "toolu_1", ToolResponse: raw(`"text"`)}}}},
	{`{BASE,"hook_event_name":"UserPromptSubmit","prompt":"hello","source":"sdk"}`, &wire.UserPromptSubmitInput{Prompt: "hello", Source: "sdk"}},
	{`{BASE,"hook_event_name":"UserPromptExpansion","expansion_type":"slash_command","command_name":"review","command_args":"a.go","prompt":"Read a.go"}`,
		&wire.UserPromptExpansionInput{ExpansionType: "slash_command", CommandName: "review", CommandArgs: "a.go", Prompt: "Read a.go"}},
	{`{BASE,"hook_event_name":"SessionStart","source":"resume","model":"m-5","seconds_since_last_response":0.5,"context_tokens":10,"estimated_cache_write_usd":0.01}`,
		&wire.SessionStartInput{Source: "resume", Model: "m-5", SecondsSinceLastResponse: new(0.5), ContextTokens: new(int64(10)), EstimatedCacheWriteUSD: new(0.01)}},
	{`{BASE,"hook_event_name":"SessionEnd","reason":"clear"}`, &wire.SessionEndInput{Reason: "clear"}},
	{`{BASE,"hook_event_name":"Stop","stop_hook_active":false,"last_assistant_message":"done","background_tasks":[{"id":"t1","type":"shell","status":"running","description":"tests","command":"make"}],"session_crons":[{"id":"c1","schedule":"* * * * *","recurring":true,"prompt":"look"}]}`,
		&wire.StopInput{LastAssistantMessage: "done",
			BackgroundTasks: []*wire.HookTask{{ID: "t1", Type: "shell", Status: "running", Description: "tests", Command: "make"}},
			SessionCrons:    []*wire.HookCron{{ID: "c1", Schedule: "* * * * *", Recurring: true, Prompt: "look"}}}},
	{`{BASE,"hook_event_name":"StopFailure","error":"rate_limit","error_details":"wait"}`, &wire.StopFailureInput{Error: "rate_limit", ErrorDetails: "wait"}},
	{`{BASE,"hook_event_name":"SubagentStart"}`, &wire.SubagentStartInput{}},
	{`{BASE,"hook_event_name":"SubagentStop","agent_transcript_path":"/t/a","stop_hook_active":true,"background_tasks":[],"session_crons":[]}`,
		&wire.SubagentStopInput{AgentTranscriptPath: "/t/a", StopHookActive: true, BackgroundTasks: []*wire.HookTask{}, SessionCrons: []*wire.HookCron{}}},
	{`{BASE,"hook_event_name":"PreCompact","trigger":"manual","custom_instructions":null}`, &wire.PreCompactInput{Trigger: "manual"}},
	{`{BASE,"hook_event_name":"PostCompact","trigger":"auto","compact_summary":"We walked."}`, &wire.PostCompactInput{Trigger: "auto", CompactSummary: "We walked."}},
	{`{BASE,"hook_event_name":"Notification","message":"Look","title":"T","notification_type":"idle"}`, &wire.NotificationInput{Message: "Look", Title: "T", NotificationType: "idle"}},
	{`{BASE,"hook_event_name":"PermissionRequest","tool_name":"Bash","tool_input":{},"permission_suggestions":[{"type":"setMode","mode":"plan","destination":"session"}]}`,
		&wire.PermissionRequestInput{ToolName: "Bash", ToolInput: raw(`{}`), PermissionSuggestions: []*wire.PermissionUpdate{{Type: wire.UpdateSetMode, Mode: wire.ModePlan, Destination: wire.DestinationSession}}}},
	{`{BASE,"hook_event_name":"PermissionDenied","tool_name":"Bash","tool_input":{},"tool_use_id":"toolu_1","reason":"a rule"}`,
		&wire.PermissionDeniedInput{ToolName: "Bash", ToolInput: raw(`{}`), ToolUseID: "toolu_1", Reason: "a rule"}},
	{`{BASE,"hook_event_name":"PreModelSwitch","from_model":"a","to_model":"b","requested_model":null,"source":"sdk","context_tokens":5,"prompt_cache_warm":false,"cache_ttl":"5m","estimated_cache_write_usd":0.01,"pricing":"catalog"}`,
		&wire.PreModelSwitchInput{FromModel: "a", ToModel: "b", Source: "sdk", ContextTokens: 5, CacheTTL: "5m", EstimatedCacheWriteUSD: 0.01, Pricing: "catalog"}},
	{`{BASE,"hook_event_name":"PostModelSwitch","from_model":"a","to_model":"b","requested_model":"b","source":"auto","context_tokens":5,"prompt_cache_warm":true,"cache_ttl":"1h","estimated_cache_write_usd":0,"pricing":"catalog"}`,
		&wire.PostModelSwitchInput{FromModel: "a", ToModel: "b", RequestedModel: "b", Source: "auto", ContextTokens: 5, PromptCacheWarm: true, CacheTTL: "1h", Pricing: "catalog"}},
	{`{BASE,"hook_event_name":"Setup","trigger":"init"}`, &wire.SetupInput{Trigger: "init"}},
	{`{BASE,"hook_event_name":"TaskCreated","task_id":"1","task_subject":"Walk","teammate_name":"Ann"}`, &wire.TaskCreatedInput{TaskID: "1", TaskSubject: "Walk", TeammateName: "Ann"}},
	{`{BASE,"hook_event_name":"TaskCompleted","task_id":"1","task_subject":"Walk","task_description":"Far"}`, &wire.TaskCompletedInput{TaskID: "1", TaskSubject: "Walk", TaskDescription: "Far"}},
	{`{BASE,"hook_event_name":"TeammateIdle","teammate_name":"Ann","team_name":"walkers"}`, &wire.TeammateIdleInput{TeammateName: "Ann", TeamName: "walkers"}},
	{`{BASE,"hook_event_name":"Elicitation","mcp_server_name":"demo","message":"Name?","mode":"form","requested_schema":{"type":"object"}}`,
		&wire.ElicitationInput{MCPServerName: "demo", Message: "Name?", Mode: "form", RequestedSchema: raw(`{"type":"object"}`)}},
	{`{BASE,"hook_event_name":"ElicitationResult","mcp_server_name":"demo","action":"accept","content":{"name":"Ann"}}`,
		&wire.ElicitationResultInput{MCPServerName: "demo", Action: wire.ElicitAccept, Content: raw(`{"name":"Ann"}`)}},
	{`{BASE,"hook_event_name":"ConfigChange","source":"user_settings","file_path":"/s"}`, &wire.ConfigChangeInput{Source: "user_settings", FilePath: "/s"}},
	{`{BASE,"hook_event_name":"InstructionsLoaded","file_path":"/w/NOTES.md","memory_type":"Project","load_reason":"include","globs":["*.go"],"parent_file_path":"/w/A.md"}`,
		&wire.InstructionsLoadedInput{FilePath: "/w/NOTES.md", MemoryType: "Project", LoadReason: "include", Globs: []string{"*.go"}, ParentFilePath: "/w/A.md"}},
	{`{BASE,"hook_event_name":"WorktreeCreate","name":"side"}`, &wire.WorktreeCreateInput{Name: "side"}},
	{`{BASE,"hook_event_name":"WorktreeRemove","worktree_path":"/w/side"}`, &wire.WorktreeRemoveInput{WorktreePath: "/w/side"}},
	{`{BASE,"hook_event_name":"CwdChanged","old_cwd":"/w","new_cwd":"/v"}`, &wire.CwdChangedInput{OldCwd: "/w", NewCwd: "/v"}},
	{`{BASE,"hook_event_name":"FileChanged","file_path":"/w/a","event":"unlink"}`, &wire.FileChangedInput{FilePath: "/w/a", Change: "unlink"}},
	{`{BASE,"hook_event_name":"DirectoryAdded","directory":"/d","source":"slash_command"}`, &wire.DirectoryAddedInput{Directory: "/d", Source: "slash_command"}},
	{`{BASE,"hook_event_name":"MessageDisplay","turn_id":"t","message_id":"m","index":0,"final":true,"delta":"text"}`, &wire.MessageDisplayInput{TurnID: "t", MessageID: "m", Final: true, Delta: "text"}},
}

const hookBase = `"session_id":"s-1","transcript_path":"/t/s-1.jsonl","cwd":"/w","prompt_id":"p-1","permission_mode":"plan","agent_id":"a-1","agent_type":"tester","effort":{"level":"high"}`

// setBase sets the HookBase of an input to hookBase.
func setBase(in wire.HookInput) {
	v := reflect.ValueOf(in).Elem()
	for name, value := range map[string]any{
		"SessionID": "s-1", "TranscriptPath": "/t/s-1.jsonl", "Cwd": "/w", "PromptID": "p-1", "PermissionMode": wire.ModePlan,
		"AgentID": "a-1", "AgentType": "tester", "Effort": &wire.HookEffort{Level: wire.EffortHigh},
	} {
		v.FieldByName(name).Set(reflect.ValueOf(value))
	}
}

func TestHookInputs(t *testing.T) {
	_, known, _ := wire.Tables()
	if len(known) != 33 {
		t.Errorf("there are %d events, want 33", len(known))
	}
	base := wire.HookBase{SessionID: "s-1", TranscriptPath: "/t/s-1.jsonl", Cwd: "/w", PromptID: "p-1", PermissionMode: wire.ModePlan,
		AgentID: "a-1", AgentType: "tester", Effort: &wire.HookEffort{Level: wire.EffortHigh}}
	for _, tt := range hookInputs {
		delete(known, string(tt.want.Event()))
		t.Run(string(tt.want.Event()), func(t *testing.T) {
			line := strings.Replace(tt.line, "BASE", hookBase, 1)
			setBase(tt.want)
			got := decodeRequest(t, `{"subtype":"hook_callback","callback_id":"hook_0","input":`+line+`,"tool_use_id":"u"}`).(*wire.HookCallback).Input
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			sameJSON(t, tt.want, line)
			if !reflect.DeepEqual(*got.Base(), base) {
				t.Errorf("Base() = %+v", got.Base())
			}

			// Only the required members, and the same through encoding/json.
			short := strings.Replace(tt.line, "BASE", `"session_id":"s-1","transcript_path":"","cwd":"/w"`, 1)
			fresh := reflect.New(reflect.TypeOf(tt.want).Elem()).Interface()
			if err := json.Unmarshal([]byte(short), fresh); err != nil {
				t.Fatal(err)
			}
			sameJSON(t, fresh, short)
		})
	}
	if len(known) > 0 {
		t.Errorf("no test of the events %v", slices.Collect(maps.Keys(known)))
	}
}

func TestUnknownHookInput(t *testing.T) {
	r := decodeRequest(t, `{"subtype":"hook_callback","callback_id":"hook_0","input":{`+hookBase+`,"hook_event_name":"Sunrise","cwd":5,"sky":"red"}}`).(*wire.HookCallback)
	in, ok := r.Input.(*wire.UnknownInput)
	if !ok || in.Event() != "Sunrise" {
		t.Fatalf("got %+v", r.Input)
	}
	if b := in.Base(); b.SessionID != "s-1" || b.AgentType != "tester" || b.Effort.Level != wire.EffortHigh {
		t.Errorf("Base() = %+v", b)
	}
}

func TestHookOutput(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		want       *wire.HookOutput
	}{
		{"nothing", `{}`, &wire.HookOutput{}},
		{"async", `{"async":true,"asyncTimeout":1000}`, &wire.HookOutput{Async: true, AsyncTimeout: 1000}},
		{"stop", `{"continue":false,"stopReason":"enough"}`, &wire.HookOutput{Continue: new(false), StopReason: "enough"}},
		{"go on", `{"continue":true,"suppressOutput":true,"systemMessage":"note"}`, &wire.HookOutput{Continue: new(true), SuppressOutput: true, SystemMessage: "note"}},
		{"block", `{"decision":"block","reason":"not yet"}`, &wire.HookOutput{Decision: wire.DecisionBlock, Reason: "not yet"}},
		{"unknown", `{"hookSpecificOutput":{"hookEventName":"Sunrise","sky":"red"}}`,
			&wire.HookOutput{HookSpecificOutput: &wire.UnknownOutput{Name: "Sunrise", Raw: raw(`{"hookEventName":"Sunrise","sky":"red"}`)}}},
		{"nameless", `{"hookSpecificOutput":{"additionalContext":"c"}}`,
			&wire.HookOutput{HookSpecificOutput: &wire.UnknownOutput{Raw: raw(`{"additionalContext":"c"}`)}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := payload[wire.HookOutput](t, tt.line); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			sameJSON(t, tt.want, tt.line)
		})
	}
	t.Run("odd", func(t *testing.T) {
		payload[wire.HookOutput](t, `{"async":false,"decision":null,"hookSpecificOutput":null,"hint":[1]}`)
		payload[wire.HookOutput](t, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","updatedInput":null,"permissionDecision":"perhaps","hint":[1.0]}}`)
	})
}

var hookOutputs = []struct {
	line string
	want wire.HookSpecificOutput
}{
	{`{"hookEventName":"PreToolUse","permissionDecision":"defer","permissionDecisionReason":"later","updatedInput":{"a":1},"additionalContext":"c"}`,
		&wire.PreToolUseOutput{PermissionDecision: wire.BehaviorDefer, PermissionDecisionReason: "later", UpdatedInput: raw(`{"a":1}`), AdditionalContext: "c"}},
	{`{"hookEventName":"PostToolUse","additionalContext":"c","updatedToolOutput":{"stdout":"x"},"updatedMCPToolOutput":[1],"classifierContext":"k"}`,
		&wire.PostToolUseOutput{AdditionalContext: "c", UpdatedToolOutput: raw(`{"stdout":"x"}`), UpdatedMCPToolOutput: raw(`[1]`), ClassifierContext: "k"}},
	{`{"hookEventName":"PostToolUseFailure","additionalContext":"c"}`, &wire.PostToolUseFailureOutput{AdditionalContext: "c"}},
	{`{"hookEventName":"PostToolBatch","additionalContext":"c"}`, &wire.PostToolBatchOutput{AdditionalContext: "c"}},
	{`{"hookEventName":"UserPromptSubmit","additionalContext":"c","sessionTitle":"t","suppressOriginalPrompt":true}`,
		&wire.UserPromptSubmitOutput{AdditionalContext: "c", SessionTitle: "t", SuppressOriginalPrompt: true}},
	{`{"hookEventName":"UserPromptExpansion","suppressOriginalPrompt":true}`, &wire.UserPromptExpansionOutput{SuppressOriginalPrompt: true}},
	{`{"hookEventName":"SessionStart","additionalContext":"c","initialUserMessage":"hi","sessionTitle":"t","watchPaths":["/w"],"reloadSkills":true}`,
		&wire.SessionStartOutput{AdditionalContext: "c", InitialUserMessage: "hi", SessionTitle: "t", WatchPaths: []string{"/w"}, ReloadSkills: true}},
	{`{"hookEventName":"Stop","additionalContext":"c"}`, &wire.StopOutput{AdditionalContext: "c"}},
	{`{"hookEventName":"SubagentStart","additionalContext":"c"}`, &wire.SubagentStartOutput{AdditionalContext: "c"}},
	{`{"hookEventName":"SubagentStop","additionalContext":"c"}`, &wire.SubagentStopOutput{AdditionalContext: "c"}},
	{`{"hookEventName":"Notification","additionalContext":"c"}`, &wire.NotificationOutput{AdditionalContext: "c"}},
	{`{"hookEventName":"PermissionRequest","decision":{"behavior":"deny","message":"no","interrupt":true}}`,
		&wire.PermissionRequestOutput{Decision: &wire.PermissionResult{Behavior: wire.BehaviorDeny, Message: "no", Interrupt: true}}},
	{`{"hookEventName":"PermissionDenied","retry":true}`, &wire.PermissionDeniedOutput{Retry: true}},
	{`{"hookEventName":"PreModelSwitch","permissionDecision":"ask","permissionDecisionReason":"dear"}`,
		&wire.PreModelSwitchOutput{PermissionDecision: wire.BehaviorAsk, PermissionDecisionReason: "dear"}},
	{`{"hookEventName":"PostModelSwitch","additionalContext":"c"}`, &wire.PostModelSwitchOutput{AdditionalContext: "c"}},
	{`{"hookEventName":"Setup","additionalContext":"c"}`, &wire.SetupOutput{AdditionalContext: "c"}},
	{`{"hookEventName":"Elicitation","action":"accept","content":{"name":"Ann"}}`, &wire.ElicitationOutput{Action: wire.ElicitAccept, Content: raw(`{"name":"Ann"}`)}},
	{`{"hookEventName":"ElicitationResult","action":"cancel"}`, &wire.ElicitationResultOutput{Action: wire.ElicitCancel}},
	{`{"hookEventName":"WorktreeCreate","worktreePath":"/w/side"}`, &wire.WorktreeCreateOutput{WorktreePath: "/w/side"}},
	{`{"hookEventName":"CwdChanged","watchPaths":[]}`, &wire.CwdChangedOutput{WatchPaths: []string{}}},
	{`{"hookEventName":"FileChanged","watchPaths":["/w"]}`, &wire.FileChangedOutput{WatchPaths: []string{"/w"}}},
	{`{"hookEventName":"MessageDisplay","displayContent":"shown"}`, &wire.MessageDisplayOutput{DisplayContent: new("shown")}},
}

func TestHookSpecificOutputs(t *testing.T) {
	_, _, known := wire.Tables()
	if len(known) != 22 {
		t.Errorf("there are outputs for %d events, want 22", len(known))
	}
	for _, tt := range hookOutputs {
		delete(known, string(tt.want.Event()))
		t.Run(string(tt.want.Event()), func(t *testing.T) {
			line := `{"hookSpecificOutput":` + tt.line + `}`
			if got := payload[wire.HookOutput](t, line).HookSpecificOutput; !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
			sameJSON(t, &wire.HookOutput{HookSpecificOutput: tt.want}, line)
		})
	}
	if len(known) > 0 {
		t.Errorf("no test of the outputs for %v", slices.Collect(maps.Keys(known)))
	}
}

// TestHookContext checks the text for the model in the outputs of known and unknown events.
func TestHookContext(t *testing.T) {
	for text, want := range map[string]string{
		`{"hookSpecificOutput":{"hookEventName":"Stop","additionalContext":"c"}}`:     "c",
		`{"hookSpecificOutput":{"hookEventName":"Tomorrow","additionalContext":"c"}}`: "c",
		`{"hookSpecificOutput":{"hookEventName":"Tomorrow","additionalContext":7}}`:   "",
		`{"hookSpecificOutput":{"hookEventName":"Tomorrow"}}`:                         "",
		`{}`: "",
	} {
		var o wire.HookOutput
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		if got := o.Context(); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
