package acp_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pt "github.com/parley-go/parley/parleytest"
)

// states lists the reported states of sessions, with the reason of an end.
func (e *editor) states() string {
	var list []string
	for _, f := range e.all {
		if u := update(f); u != nil && u["sessionUpdate"] == "state_update" {
			s := u["state"].(string)
			if r, ok := u["stopReason"].(string); ok {
				s += " " + r
			}
			list = append(list, s)
		}
	}
	return strings.Join(list, ", ")
}

// untilIdle waits until the session is idle.
func (e *editor) untilIdle() {
	e.t.Helper()
	e.until("idle", func(f *frame) bool {
		u := update(f)
		return u != nil && u["sessionUpdate"] == "state_update" && u["state"] == "idle"
	})
}

// TestDraft checks that a client that asks for version 2 gets it: a prompt is accepted
// at once, its end is a state, calls are updates, diffs are patches, questions have a
// title and a subject. The editor validates every frame with the schema of version 2.
func TestDraft(t *testing.T) {
	file := func(dir string) string { return filepath.Join(dir, "a.txt") }
	model := func(dir string) *pt.Scenario {
		return pt.Script(
			pt.Expect(pt.LastUser("one")).Say("I write.").Call("Write", map[string]string{"file_path": file(dir), "content": "a\n"}),
			pt.Expect(pt.ToolResult("")).Call("TodoWrite", map[string]any{"todos": []object{{"content": "Test it.", "status": "pending", "activeForm": "Testing it."}}}),
			pt.Expect(pt.ToolResult("")).Say("First."),
			pt.Expect(pt.LastUser("two")).Say("Second.").Always(),
		)
	}
	run(t, setting{model: model, version: 2}, func(t *testing.T, e *editor) {
		e.permit = func(f *frame) any { return selects("allow-once") }
		first := e.call("session/new", object{"cwd": e.dir, "mcpServers": []any{}})
		id := first["sessionId"].(string)
		if first["modes"] != nil || first["configOptions"].([]any)[0].(object)["configId"] != "mode" {
			t.Errorf("session/new: %v", first)
		}
		accepted := e.call("session/prompt", prompt(id, "one"))
		e.untilIdle()
		got := e.updates()
		for _, want := range []string{"user_message", "plan_update", `agent_message_chunk "I write."`, `agent_message_chunk "First."`} {
			if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, want) }) {
				t.Errorf("no %s in\n%s", want, e.received())
			}
		}
		if e.states() != "running, requires_action, running, idle end_turn" {
			t.Errorf("states %s", e.states())
		}
		var patch, title, echo bool
		for _, f := range e.all {
			switch u := update(f); {
			case f.Method == "session/request_permission":
				title = strings.Contains(string(f.Params), `"subject":{"toolCall":`) && strings.Contains(string(f.Params), `"title":"Write`)
			case u != nil && u["sessionUpdate"] == "tool_call":
				t.Error("version 2 has no tool_call")
			case u != nil && u["sessionUpdate"] == "user_message":
				echo = u["messageId"] == accepted["messageId"]
			case u != nil && strings.Contains(string(f.Params), `"format":"git_patch"`):
				patch = patch || strings.Contains(string(f.Params), `+++ b`+file(e.dir))
			}
		}
		if !patch || !title || !echo {
			t.Errorf("patch %v, title %v, echo %v in\n%s", patch, title, echo, e.received())
		}
		set := e.call("session/set_config_option", object{"sessionId": id, "configId": "mode", "type": "id", "value": "plan"})
		if set["configOptions"].([]any)[0].(object)["currentValue"] != "plan" {
			t.Errorf("session/set_config_option: %v", set)
		}
		for _, method := range []string{"session/load", "session/set_mode", "authenticate", "session/fork", "no/such"} {
			e.fails(-32601, method, object{"sessionId": id})
		}
		// Resume replays from the start if the client asks for it.
		e.call("session/close", object{"sessionId": id})
		e.reconnect()
		e.call("session/resume", object{"sessionId": id, "cwd": e.dir, "replayFrom": object{"type": "start"}})
		if got := e.received(); !strings.Contains(got, `agent_message_chunk "First."`) || !strings.Contains(got, `user_message_chunk "one"`) {
			t.Errorf("replayed\n%s", got)
		}
		e.fails(-32602, "session/resume", object{"sessionId": id, "cwd": e.dir, "replayFrom": object{"type": "middle"}})
		e.call("session/resume", object{"sessionId": id, "cwd": e.dir})
		e.call("session/prompt", prompt(id, "two"))
		e.untilIdle()
		e.fails(-32602, "session/prompt", object{"sessionId": id, "prompt": []any{}})
	})
}

// TestDraftEnds checks that a cancel in version 2 ends the turn as cancelled at any
// time, and that an error is a state.
func TestDraftEnds(t *testing.T) {
	model := func(dir string) *pt.Scenario {
		return pt.Script(pt.Expect(pt.LastUser("one")).Call("Write", map[string]string{"file_path": filepath.Join(dir, "a"), "content": ""}), pt.Fail(400, "invalid_request_error", "no").Always())
	}
	run(t, setting{model: model, version: 2}, func(t *testing.T, e *editor) {
		id := e.newSession()
		e.call("session/prompt", prompt(id, "one"))
		e.until("permission", func(f *frame) bool { return f.Method == "session/request_permission" })
		e.notify("session/cancel", object{"sessionId": id})
		e.untilIdle()
		if got := e.states(); !strings.HasPrefix(got, "running, requires_action") || !strings.HasSuffix(got, "idle cancelled") {
			t.Errorf("states %s", got)
		}
		e.all = nil
		e.call("session/prompt", prompt(id, "two"))
		e.untilIdle()
		if got := e.states(); got != "running, idle error" {
			t.Errorf("states %s", got)
		}
	})
}
