package interop

import (
	"bytes"
	"context"
	"regexp"

	pt "github.com/parley-go/parley/parleytest"
)

var agentID = regexp.MustCompile(`agentId: ([0-9a-z]+)`)

// message calls SendMessage with the id of the first subagent in a result.
func message(text string) *pt.Turn {
	return pt.Call("SendMessage", func(r *pt.Request) any {
		found := agentID.FindSubmatch(r.Body)
		if found == nil {
			return "{}"
		}
		return map[string]any{"to": string(found[1]), "summary": "go on", "message": text}
	})
}

// gate returns the file that a step of a scenario marks when held requests may continue.
func gate(dir string) string { return dir + ".gate" }

// afterGate holds the requests with a text until a step has marked ${gate}, because two
// conversations of a CLI have no defined order.
func afterGate(dir, text string) pt.Matcher {
	return pt.Check("after the gate is marked", func(r *pt.Request) error {
		if bytes.Contains(r.Body, []byte(text)) {
			return await(context.Background(), gate(dir), 1) // play marks it in the end
		}
		return nil
	})
}

// delegate returns the input of a call of Agent.
func delegate(background bool) map[string]any {
	return map[string]any{"description": "do sub", "prompt": "SUBPROMPT go", "subagent_type": "general-purpose", "run_in_background": background}
}

// delegationScenarios returns the scenarios about subagents that nobody configured, messages to
// them, and commands of the conversation.
func delegationScenarios() []*Scenario {
	return []*Scenario{
		{
			Name:  "subagent-background",
			Says:  "A subagent in the background: the turn ends without it, hooks hear of it and of what it does, its end starts a turn.",
			Needs: []string{"hooks"},
			API: func(dir string) *pt.Scenario {
				return pt.Script(pt.Call("Agent", delegate(true)), pt.Say("Main done."), pt.Expect(pt.LastUser("SUB REPORT")).Say("Heard.")).
					When("sub", pt.FirstUser("SUBPROMPT"), pt.Call("Bash", bash("echo from-sub")), pt.Expect(pt.ToolResult("from-sub")).Say("SUB REPORT")).And(afterGate(dir, "SUBPROMPT"))
			},
			Runs: []Run{{
				Job: `{"options":{` + options + `},"hooks":{"SubagentStart":[{"output":{}}],"SubagentStop":[{"output":{}}],"PreToolUse":[{"matcher":"Bash","output":{}}],"PostToolUse":[{"matcher":"Bash","output":{}}]},
					"steps":[{"send":"Delegate."},{"until":{"type":"result"}},{"mark":"${gate}"},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","id":"toolu_main_1_1","name":"Agent"}]},"parent_tool_use_id":null}
					{"type":"system","subtype":"background_tasks_changed","tasks":[{"task_type":"local_agent","subagent_type":"general-purpose"}]}
					{"type":"system","subtype":"task_started","tool_use_id":"toolu_main_1_1","is_backgrounded":true}
					{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"toolu_main_1_1"}]},"tool_use_result":{"isAsync":true,"status":"async_launched"}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Main done."}]}}
					{"type":"result","subtype":"success","num_turns":2,"result_index":0}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"}]},"parent_tool_use_id":"toolu_main_1_1"}
					{"type":"system","subtype":"task_progress","tool_use_id":"toolu_main_1_1","last_tool_name":"Bash"}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":false}]},"parent_tool_use_id":"toolu_main_1_1"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"SUB REPORT"}]},"parent_tool_use_id":"toolu_main_1_1"}
					{"type":"system","subtype":"task_updated","patch":{"status":"completed"}}
					{"type":"system","subtype":"task_notification","tool_use_id":"toolu_main_1_1","status":"completed","summary":"SUB REPORT"}
					{"type":"system","subtype":"background_tasks_changed","tasks":[]}
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Heard."}]},"parent_tool_use_id":null}
					{"type":"result","subtype":"success","num_turns":1,"result_index":1,"origin":{"kind":"task-notification"}}`,
				Callbacks: `
					{"event":"hook","name":"SubagentStart","input":{"agent_type":"general-purpose","agent_id":"*"}}
					{"event":"hook","name":"PreToolUse","input":{"tool_name":"Bash","agent_type":"general-purpose","agent_id":"*"}}
					{"event":"hook","name":"PostToolUse","input":{"tool_name":"Bash","agent_type":"general-purpose","agent_id":"*"}}
					{"event":"hook","name":"SubagentStop","input":{"agent_type":"general-purpose","agent_id":"*","stop_hook_active":false}}`,
			}},
		},
		{
			Name: "subagent-message",
			Says: "SendMessage to a subagent that has ended: it goes on from what it knows, in the background, and its answer starts a turn.",
			API: func(dir string) *pt.Scenario {
				return pt.Script(pt.Call("Agent", delegate(false)), pt.Expect(pt.ToolResult("REPORT ONE")).Say("First.").Usage(pt.Usage{Input: 100, Output: 10}),
					message("MORE please"), pt.Say("Sent."), pt.Expect(pt.LastUser("REPORT TWO")).Say("Heard.")).
					When("sub", pt.FirstUser("SUBPROMPT"), pt.Say("REPORT ONE"), pt.Expect(pt.LastUser("MORE please"), mentions("REPORT ONE")).Say("REPORT TWO")).And(afterGate(dir, "MORE please"))
			},
			Runs: []Run{{
				Job: `{"options":{` + options + `},"steps":[{"send":"Delegate."},{"until":{"type":"result"}},{"send":"Ask again."},{"until":{"type":"result"}},{"mark":"${gate}"},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Agent"}]}}
					{"type":"system","subtype":"task_started","is_backgrounded":false}
					{"type":"user","message":{"content":[{"type":"text","text":"SUBPROMPT go"}]},"parent_tool_use_id":"toolu_main_1_1"}
					{"type":"system","subtype":"task_updated","patch":{"status":"completed"}}
					{"type":"system","subtype":"task_notification","status":"completed","summary":"REPORT ONE"}
					{"type":"user","message":{"content":[{"type":"tool_result"}]},"tool_use_result":{"status":"completed"}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"First."}]}}
					{"type":"result","subtype":"success","result_index":0}
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"SendMessage"}]}}
					{"type":"system","subtype":"background_tasks_changed","tasks":[{"task_type":"local_agent"}]}
					{"type":"system","subtype":"task_started","is_backgrounded":true}
					{"type":"user","message":{"content":[{"type":"tool_result"}]}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Sent."}]}}
					{"type":"result","subtype":"success","result_index":1}
					{"type":"assistant","message":{"content":[{"type":"text","text":"REPORT TWO"}]}}
					{"type":"system","subtype":"task_updated","patch":{"status":"completed"}}
					{"type":"system","subtype":"task_notification","status":"completed","summary":"REPORT TWO"}
					{"type":"system","subtype":"background_tasks_changed","tasks":[]}
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Heard."}]}}
					{"type":"result","subtype":"success","result_index":2,"origin":{"kind":"task-notification"}}`,
			}},
		},
		{
			Name: "subagent-moved",
			Says: "A subagent that is waited for goes on in the background when the host says so.",
			Not:  []string{"py"}, // its SDK has no such method
			API: func(dir string) *pt.Scenario {
				return pt.Script(pt.Call("Agent", delegate(false)), pt.Say("Main done."), pt.Expect(pt.LastUser("SUB REPORT")).Say("Heard.")).
					When("sub", pt.FirstUser("SUBPROMPT"), pt.Call("Bash", bash("echo from-sub")), pt.Expect(pt.ToolResult("from-sub")).Say("SUB REPORT")).And(afterGate(dir, "tool_result"))
			},
			Runs: []Run{{
				Job: `{"options":{` + options + `},"steps":[{"send":"Delegate."},{"until":{"type":"user","parent_tool_use_id":"toolu_main_1_1","message":{"content":[{"type":"tool_result"}]}}},
					{"call":"backgroundTasks","args":["toolu_main_1_1"]},{"until":{"type":"result"}},{"mark":"${gate}"},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Agent"}]}}
					{"type":"system","subtype":"task_started","is_backgrounded":false}
					{"type":"user","message":{"content":[{"type":"text","text":"SUBPROMPT go"}]},"parent_tool_use_id":"toolu_main_1_1"}
					{"type":"system","subtype":"task_progress"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"}]},"parent_tool_use_id":"toolu_main_1_1"}
					{"type":"user","message":{"content":[{"type":"tool_result"}]},"parent_tool_use_id":"toolu_main_1_1"}
					{"type":"system","subtype":"background_tasks_changed","tasks":[{"task_type":"local_agent","description":"do sub"}]}
					{"type":"system","subtype":"task_updated","patch":{"is_backgrounded":true}}
					{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"toolu_main_1_1"}]},"tool_use_result":{"isAsync":true,"status":"async_launched"}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Main done."}]}}
					{"type":"result","subtype":"success","result_index":0}
					{"type":"assistant","message":{"content":[{"type":"text","text":"SUB REPORT"}]},"parent_tool_use_id":"toolu_main_1_1"}
					{"type":"system","subtype":"task_updated","patch":{"status":"completed"}}
					{"type":"system","subtype":"task_notification","status":"completed","summary":"SUB REPORT"}
					{"type":"system","subtype":"background_tasks_changed","tasks":[]}
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Heard."}]}}
					{"type":"result","subtype":"success","result_index":1,"origin":{"kind":"task-notification"}}`,
				Calls: `{"event":"call","method":"backgroundTasks"}`,
			}},
		},
	}
}
