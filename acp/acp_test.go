package acp_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/parley-go/parley/acp"
	pt "github.com/parley-go/parley/parleytest"
)

// script returns a model that plays turns.
func script(turns ...*pt.Turn) func(string) *pt.Scenario {
	return func(string) *pt.Scenario { return pt.Script(turns...) }
}

// writes returns a model that writes a file of the working directory and is done.
func writes(dir string) *pt.Scenario {
	return pt.Script(
		pt.Think("How?").Say("I write", " it.").Call("Write", object{"file_path": filepath.Join(dir, "new.txt"), "content": "hello\n"}),
		pt.Say("Done."),
	)
}

// TestPrompt is the protocol in one test: a session, a prompt whose answer streams, an
// allowed tool call, and the end of the turn.
func TestPrompt(t *testing.T) {
	run(t, setting{model: writes}, func(t *testing.T, e *editor) {
		e.permit = func(f *frame) any { return selects("allow-once") }
		id := e.newSession()
		if got := e.call("session/prompt", prompt(id, "Write it."))["stopReason"]; got != "end_turn" {
			t.Errorf("stop reason %v", got)
		}
		want := []string{
			`agent_thought_chunk "How?"`, `agent_message_chunk "I write"`, `agent_message_chunk " it."`,
			"tool_call CALL pending Preparing file…", "tool_call_update CALL Write new.txt",
			"tool_call_update CALL", "tool_call_update CALL completed", `agent_message_chunk "Done."`,
		}
		var got []string
		call := ""
		for _, s := range e.updates() {
			if words := strings.Fields(s); strings.HasPrefix(words[0], "tool_call") {
				call = words[1]
				s = strings.Replace(s, call, "CALL", 1)
			}
			got = append(got, s)
		}
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("received\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if data, err := os.ReadFile(filepath.Join(e.dir, "new.txt")); string(data) != "hello\n" {
			t.Errorf("the file holds %q, %v", data, err)
		}
		// The question came after its call, and names it.
		i := slices.IndexFunc(e.all, func(f *frame) bool { return f.Method == "session/request_permission" })
		var p struct {
			ToolCall struct {
				ToolCallID string
				Content    []object
			}
			Options []struct{ OptionID, Name, Kind string }
		}
		json.Unmarshal(e.all[i].Params, &p)
		if p.ToolCall.ToolCallID != call || len(p.ToolCall.Content) != 1 || p.ToolCall.Content[0]["type"] != "diff" {
			t.Errorf("asked about %+v", p.ToolCall)
		}
		if len(p.Options) != 3 || p.Options[1].Kind != "allow_always" || p.Options[1].Name != "Yes, allow all edits during this session" {
			t.Errorf("options %+v", p.Options)
		}
		if !slices.ContainsFunc(e.all[:i], func(f *frame) bool {
			u := update(f)
			return u != nil && u["toolCallId"] == call && u["rawInput"].(object)["content"] != nil
		}) {
			t.Error("the question overtook the update with the call's input")
		}
	})
}

// TestCancel checks that a cancel ends the turn as cancelled, whenever it comes.
func TestCancel(t *testing.T) {
	for name, when := range map[string]func(*frame) bool{
		"at once":              nil,
		"while it streams":     func(f *frame) bool { u := update(f); return u != nil && u["sessionUpdate"] == "agent_message_chunk" },
		"while a call waits":   func(f *frame) bool { return f.Method == "session/request_permission" },
		"when the call is new": func(f *frame) bool { u := update(f); return u != nil && u["sessionUpdate"] == "tool_call" },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, setting{model: func(dir string) *pt.Scenario {
				return pt.Script(pt.Say("Wait.").Pause(1e9).Call("Write", object{"file_path": filepath.Join(dir, "new.txt"), "content": "hello\n"}), pt.Say("Done.").Always())
			}}, func(t *testing.T, e *editor) {
				id := e.newSession()
				req := e.send("session/prompt", prompt(id, "Write it."))
				if when != nil {
					e.until("the moment", when)
				}
				e.notify("session/cancel", object{"sessionId": id})
				if f := e.response(req); f.Error != nil || !strings.Contains(string(f.Result), `"cancelled"`) {
					t.Errorf("response %s", brief(f))
				}
				if _, err := os.Stat(filepath.Join(e.dir, "new.txt")); err == nil {
					t.Error("the call ran after the cancel")
				}
				for _, c := range open(e) {
					t.Errorf("the call %s has no end", c)
				}
				// The session continues.
				e.permit = func(*frame) any { return selects("allow-once") }
				if got := e.call("session/prompt", prompt(id, "Again."))["stopReason"]; got != "end_turn" {
					t.Errorf("then: stop reason %v", got)
				}
			})
		})
	}
}

// open returns the calls that have not ended.
func open(e *editor) (list []string) {
	state := map[string]any{}
	for _, f := range e.all {
		if u := update(f); u != nil && u["toolCallId"] != nil && u["status"] != nil {
			state[u["toolCallId"].(string)] = u["status"]
		}
	}
	for id, s := range state {
		if s != "completed" && s != "failed" {
			list = append(list, id)
		}
	}
	return list
}

// TestPromptsQueue checks that queued prompts are answered in order, and that a cancel
// ends all of them.
func TestPromptsQueue(t *testing.T) {
	run(t, setting{model: script(pt.Say("One.").Pause(1e9), pt.Say("Two.").Pause(1e9), pt.Say("Three.").Always())}, func(t *testing.T, e *editor) {
		id := e.newSession()
		one, two := e.send("session/prompt", prompt(id, "1")), e.send("session/prompt", prompt(id, "2"))
		for _, id := range []string{one, two} {
			if f := e.response(id); !strings.Contains(string(f.Result), "end_turn") {
				t.Error(brief(f))
			}
		}
		var list []string
		for i := range 3 {
			list = append(list, e.send("session/prompt", prompt(id, "more")))
			if i == 0 {
				e.until("an answer", func(f *frame) bool { return update(f) != nil })
			}
		}
		e.notify("session/cancel", object{"sessionId": id})
		for _, id := range list {
			if f := e.response(id); !strings.Contains(string(f.Result), "cancelled") && !strings.Contains(string(f.Result), "end_turn") {
				t.Error(brief(f))
			}
		}
	})
}

// TestIdle checks that Config.Idle is called when the last running prompt has ended, and not
// while another session waits for an answer, and Config.Opened once for each session.
func TestIdle(t *testing.T) {
	var opened, idle atomic.Int32
	run(t, setting{model: writes, config: func(c *acp.Config) {
		c.Opened, c.Idle = func() { opened.Add(1) }, func() { idle.Add(1) }
	}}, func(t *testing.T, e *editor) {
		a, b := e.newSession(), e.newSession()
		if synctest.Wait(); opened.Load() != 2 {
			t.Errorf("%d sessions were opened, want two", opened.Load())
		}
		waiting := e.send("session/prompt", prompt(a, "Write it."))
		ask := e.until("question", func(f *frame) bool { return f.Method == "session/request_permission" })
		e.call("session/set_mode", object{"sessionId": b, "modeId": "acceptEdits"})
		e.call("session/prompt", prompt(b, "Write it."))
		if synctest.Wait(); idle.Load() != 0 {
			t.Error("idle while a prompt waits for an answer")
		}
		e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": selects("reject")})
		e.response(waiting)
		if synctest.Wait(); idle.Load() != 1 {
			t.Errorf("idle %d times, want once", idle.Load())
		}
	})
}
