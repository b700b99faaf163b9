package malformed

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/parley-go/parley/wire"
)

// The types of what agents send.
const (
	messages = `assistant user stream_event conversation_reset tool_progress rate_limit_event auth_status tool_use_summary prompt_suggestion active_goal command_lifecycle transcript_mirror
error result keep_alive control_response control_cancel_request`
	systems = `init compact_boundary status api_retry model_fallback model_refusal_fallback model_refusal_no_fallback session_state_changed session_title_changed permission_denied task_started
task_progress task_updated task_notification background_tasks_changed hook_started hook_progress hook_response informational local_command_output notification commands_changed thinking_tokens
memory_recall elicitation_complete plugin_install files_persisted control_request_progress mirror_error session_writes_lost worker_shutting_down ui_invalidate permission_request hook_execution error`
	blocks = `text thinking redacted_thinking tool_use tool_result image document server_tool_use other`
	events = `message_start content_block_start content_block_delta content_block_stop message_delta message_stop error other`
	hooks  = `PreToolUse PostToolUse PostToolUseFailure PermissionRequest UserPromptSubmit Stop SubagentStop SessionStart Notification Other`
)

// Messages returns lines that an agent may send, malformed in every member: all messages except
// requests.
func Messages() []string {
	var lines []string
	add := func(members string, depth int) {
		m, err := wire.Decode([]byte("{" + members + "}"))
		if err != nil {
			panic(fmt.Sprintf("%s: %v", members, err))
		}
		lines = append(lines, Objects(reflect.TypeOf(m), depth, members)...)
	}
	for _, name := range strings.Fields(messages) {
		add(fmt.Sprintf(`"type":%q`, name), 2)
	}
	for _, name := range strings.Fields(systems) {
		add(fmt.Sprintf(`"type":"system","subtype":%q`, name), 2)
	}
	for _, name := range strings.Fields(blocks) {
		for _, b := range Objects(reflect.TypeFor[block](), 2, fmt.Sprintf(`"type":%q`, name)) {
			lines = append(lines, fmt.Sprintf(`{"type":"assistant","message":{"role":"assistant","content":[%s]}}`, b), fmt.Sprintf(`{"type":"user","message":{"role":"user","content":[%s]}}`, b))
		}
	}
	for _, name := range strings.Fields(events) {
		for _, e := range Objects(reflect.TypeFor[event](), 3, fmt.Sprintf(`"type":%q`, name)) {
			lines = append(lines, fmt.Sprintf(`{"type":"stream_event","event":%s}`, e))
		}
	}
	return lines
}

// Requests returns the bodies of requests that an agent may send, malformed in every member.
func Requests() []string {
	var requests []string
	for _, req := range []wire.Request{&wire.CanUseTool{}, &wire.MCPMessage{}, &wire.Elicitation{}, &wire.RequestUserDialog{}, &wire.SDKControlInterrupt{}} {
		requests = append(requests, Objects(reflect.TypeOf(req), 2, fmt.Sprintf(`"subtype":%q`, req.Subtype()))...)
	}
	for _, name := range []string{"AskUserQuestion", "ExitPlanMode", "Bash", "Edit", "Write", "Read", "TodoWrite", "Agent"} {
		for _, in := range Objects(reflect.TypeFor[input](), 3, "") {
			requests = append(requests, fmt.Sprintf(`{"subtype":"can_use_tool","tool_use_id":"t","tool_name":%q,"input":%s}`, name, in))
		}
	}
	for _, name := range strings.Fields(hooks) {
		in, err := wire.Decode(fmt.Appendf(nil, `{"type":"control_request","request":{"subtype":"hook_callback","input":{"hook_event_name":%q}}}`, name))
		if err != nil {
			panic(err)
		}
		shape := reflect.TypeOf(in.(*wire.ControlRequest).Request.(*wire.HookCallback).Input)
		for _, v := range Objects(shape, 1, fmt.Sprintf(`"hook_event_name":%q`, name)) {
			requests = append(requests, fmt.Sprintf(`{"subtype":"hook_callback","callback_id":"hook_0","input":%s}`, v))
		}
	}
	return requests
}

// A block has the members of all content blocks.
type block struct {
	Text      string                     `json:"text"`
	Thinking  string                     `json:"thinking"`
	ID        string                     `json:"id"`
	Name      string                     `json:"name"`
	Input     map[string]any             `json:"input"`
	ToolUseID string                     `json:"tool_use_id"`
	Content   []struct{ Type, T string } `json:"content"`
	IsError   bool                       `json:"is_error"`
	Source    struct {
		Type string `json:"type"`
		Data string `json:"data"`
	} `json:"source"`
}

// An event has the members of all events of a model's stream.
type event struct {
	Index        int `json:"index"`
	ContentBlock struct {
		Type  string `json:"type"`
		Input string `json:"input"`
	} `json:"content_block"`
	Delta struct {
		Type string `json:"type"`
		Text string `json:"text"`
		JSON string `json:"partial_json"`
	} `json:"delta"`
	Message struct {
		Content []any  `json:"content"`
		Usage   any    `json:"usage"`
		Model   string `json:"model"`
	} `json:"message"`
	Usage any `json:"usage"`
}

// An input has members of the inputs of many tools.
type input struct {
	Questions []struct {
		Question string                            `json:"question"`
		Header   string                            `json:"header"`
		Options  []struct{ Label, Preview string } `json:"options"`
	} `json:"questions"`
	Plan    string `json:"plan"`
	Command string `json:"command"`
	Path    string `json:"file_path"`
	Old     string `json:"old_string"`
	New     string `json:"new_string"`
	Todos   []struct {
		Content string `json:"content"`
	} `json:"todos"`
	Edits []any `json:"edits"`
}
