package interop

import (
	"os"
	"path/filepath"

	pt "github.com/parley-go/parley/parleytest"
)

// parityScenarios returns the scenarios of single features: options, requests of the host,
// variables, tools.
func parityScenarios() []*Scenario {
	return []*Scenario{
		{
			Name:  "host-requests",
			Says:  "The host reads a file, changes settings and limits a server, beside the conversation.",
			Not:   []string{"py"},
			Files: map[string]string{"src/alpha.go": "package alpha\n"},
			API:   script(pt.Say("Hello.")),
			Runs: []Run{{
				Job: `{"options":{"cwd":"${dir}","model":"claude-sonnet-4-5","settingSources":["local"]},"steps":[
					{"call":"readFile","args":["src/alpha.go"]},
					{"call":"readFile","args":["src/alpha.go",{"maxBytes":4,"encoding":"base64"}]},
					{"call":"updateSettings","args":["localSettings",{"outputStyle":"default"}]},
					{"call":"updateSettings","args":["localSettings",{"model":"opus"}]},
					{"call":"setMcpPermissionModeOverride","args":["nobody","default"]},
					{"send":"Hello."},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant"}
					{"type":"result","subtype":"success"}`,
				Calls: `
					{"event":"call","method":"readFile","error":null,"result":{"contents":"package alpha\n","absPath":"${dir}/src/alpha.go"}}
					{"event":"call","method":"readFile","error":null,"result":{"contents":"cGFjaw==","truncated":true,"encoding":"base64"}}
					{"event":"call","method":"updateSettings","error":null}
					{"event":"call","method":"updateSettings","error":"~keys not allowed: model"}
					{"event":"call","method":"setMcpPermissionModeOverride","error":null,"result":{"warning":"~not yet known"}}`,
			}},
			Check: file(".claude/settings.local.json", "{\n  \"outputStyle\": \"default\"\n}\n"),
		},
		{
			Name:  "host-controls",
			Says:  "Requests that no SDK has a method for: rules, files, roots, a side question, a title.",
			Not:   []string{"py", "ts"},
			Files: map[string]string{"src/alpha.go": "package alpha\n"},
			API: func(string) *pt.Scenario {
				return pt.Script(pt.Say("Hello.")).When("side", mentions("What is it about?"), pt.Say("About files.")).
					When("title", pt.LastUser("<session>"), pt.Say(`{"title":"Login bug"}`))
			},
			Runs: []Run{{
				Job: `{"options":{` + options + `,"allowedTools":["Bash(git *)","Edit"]},"steps":[
					{"call":"control","args":[{"subtype":"list_permission_rules"}]},
					{"call":"control","args":[{"subtype":"register_repo_root","directory":"src"}]},
					{"call":"control","args":[{"subtype":"register_repo_root","directory":"src"}]},
					{"call":"control","args":[{"subtype":"generate_session_title","description":"Fix the login bug","persist":true}]},
					{"send":"Hello."},{"until":{"type":"result"}},
					{"call":"control","args":[{"subtype":"side_question","question":"What is it about?"}]}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant"}
					{"type":"result","subtype":"success"}
					{"type":"system","subtype":"control_request_progress","status":"started"}`,
				Calls: `
					{"event":"call","error":null,"result":{"state":{"rules":[{"behavior":"allow","source":"cliArg","rule":"Bash(git *)","editability":"session"},{"rule":"Edit"}],"originalCwd":"${dir}","managedOnly":false}}}
					{"event":"call","error":null,"result":{"directory":"${dir}/src"}}
					{"event":"call","error":"~is already a registered working directory"}
					{"event":"call","error":null,"result":{"title":"Login bug"}}
					{"event":"call","error":null,"result":{"response":"About files.","synthetic":false}}`,
			}},
		},
		{
			Name:  "hook-tasks",
			Says:  "Hooks are asked before a task is put on the list and before it is ticked off; one that blocks keeps it from happening.",
			Needs: []string{"hooks"},
			Not:   []string{"py"}, // its types do not name the events
			API: script(
				pt.Call("TaskCreate", `{"subject":"Walk","description":"Far"}`),
				pt.Expect(pt.ToolError("NOT YET")).Call("TaskCreate", `{"subject":"Run","description":"Fast"}`),
				pt.Expect(pt.ToolResult("Run")).Call("TaskUpdate", `{"taskId":"2","status":"completed"}`),
				pt.Expect(mentions("NOT DONE")).Call("TaskUpdate", `{"taskId":"2","status":"completed"}`),
				pt.Expect(pt.ToolResult("")).Call("TaskList", `{}`),
				pt.Expect(mentions("completed")).Say("Done."),
			),
			Runs: []Run{{
				Job: `{"prompt":"Plan.","options":{` + options + `,"allowedTools":["TaskCreate","TaskUpdate","TaskList"]},"hooks":{
					"TaskCreated":[{"times":1,"output":{"decision":"block","reason":"NOT YET"}}],
					"TaskCompleted":[{"times":1,"output":{"decision":"block","reason":"NOT DONE"}}]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant"}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":true}]}}
					{"type":"assistant"}
					{"type":"user"}
					{"type":"assistant"}
					{"type":"user"}
					{"type":"assistant"}
					{"type":"user"}
					{"type":"assistant"}
					{"type":"user"}
					{"type":"assistant"}
					{"type":"result","subtype":"success"}`,
				Callbacks: `
					{"event":"hook","name":"TaskCreated","input":{"task_id":"1","task_subject":"Walk","task_description":"Far","prompt_id":"*","permission_mode":null}}
					{"event":"hook","name":"TaskCreated","input":{"task_subject":"Run"}}
					{"event":"hook","name":"TaskCompleted","input":{"task_id":"2","task_subject":"Run","task_description":"Fast"}}
					{"event":"hook","name":"TaskCompleted","input":{"task_id":"2"}}`,
			}},
		},
		{
			Name:  "hook-says",
			Says:  "Several hooks are asked in their order, and what they say to the user stands where the official CLI has it.",
			Needs: []string{"hooks"},
			API:   script(pt.Call("Bash", bash("echo hi")), pt.Expect(pt.ToolResult("hi")).Say("Said.")),
			Runs: []Run{{
				Job: `{"prompt":"Two.","options":{` + options + `},"hooks":{
					"UserPromptSubmit":[{"output":{"systemMessage":"note of the prompt"}}],
					"PreToolUse":[{"output":{}},{"matcher":"Bash","output":{"systemMessage":"note before"}},{"matcher":"Bash|Read","output":{}}],
					"PostToolUse":[{"output":{"systemMessage":"note after"}}]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"system","subtype":"informational","content":"UserPromptSubmit says: note of the prompt"}
					{"type":"assistant"}
					{"type":"system","subtype":"informational","content":"PreToolUse:Bash says: note before"}
					{"type":"user","message":{"content":[{"type":"tool_result","content":"hi"}]}}
					{"type":"system","subtype":"informational","content":"PostToolUse:Bash says: note after"}
					{"type":"assistant"}
					{"type":"result","subtype":"success","result":"Said."}`,
				Callbacks: `
					{"event":"hook","name":"UserPromptSubmit"}
					{"event":"hook","name":"PreToolUse"}
					{"event":"hook","name":"PreToolUse"}
					{"event":"hook","name":"PreToolUse"}
					{"event":"hook","name":"PostToolUse"}`,
			}},
		},
		{
			Name:  "hook-ends",
			Says:  "One hook stops a prompt, which stays in the conversation, and one the end of a turn, whose answer stays.",
			Needs: []string{"hooks"},
			API:   script(pt.Expect(mentions("Operation stopped by hook: not on Mondays"), mentions("One.")).Say("Said.")),
			Runs: []Run{{
				Job: `{"options":{` + options + `},"steps":[{"send":"One."},{"until":{"type":"result"}},{"send":"Two."},{"until":{"type":"result"}}],"hooks":{
					"UserPromptSubmit":[{"times":1,"output":{"continue":false,"stopReason":"not on Mondays"}}],
					"Stop":[{"output":{"continue":false,"stopReason":"enough"}}]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"system","subtype":"informational","content":"Operation stopped by hook: not on Mondays","prompt_submit_outcome":{"kind":"stopped_by_hook","prompt_kept":true}}
					{"type":"result","subtype":"success","num_turns":0,"result":"Operation stopped by hook: not on Mondays"}
					{"type":"system","subtype":"init"}
					{"type":"assistant"}
					{"type":"result","subtype":"success","terminal_reason":"stop_hook_prevented","result":"Said."}`,
				Callbacks: `
					{"event":"hook","name":"UserPromptSubmit"}
					{"event":"hook","name":"UserPromptSubmit"}
					{"event":"hook","name":"Stop"}`,
			}},
		},
		{
			Name:  "hook-structured",
			Says:  "Hooks see the answer that fits a schema like any call: one denies it, and the end of the turn is reported.",
			Needs: []string{"hooks", "structured"},
			API: script(
				pt.Call("StructuredOutput", `{"n": 1}`),
				pt.Expect(pt.ToolError("not yet")).Call("StructuredOutput", `{"n": 3}`),
			),
			Runs: []Run{{
				Job: `{"prompt":"Count.","options":{` + options + `,"outputFormat":{"type":"json_schema","schema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}},"hooks":{
					"PreToolUse":[{"times":1,"output":{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"not yet"}}}],
					"PostToolUse":[{"output":{}}],"Stop":[{"output":{"decision":"block","reason":"go on"}}]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant"}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":true}]}}
					{"type":"assistant"}
					{"type":"user","message":{"content":[{"type":"tool_result"}]}}
					{"type":"result","subtype":"success","result":"{\"n\":3}","structured_output":{"n":3},"permission_denials":[{"tool_name":"StructuredOutput"}]}`,
				Callbacks: `
					{"event":"hook","name":"PreToolUse","input":{"tool_name":"StructuredOutput","tool_input":{"n":1}}}
					{"event":"hook","name":"PreToolUse"}
					{"event":"hook","name":"PostToolUse","input":{"tool_name":"StructuredOutput","tool_response":"Structured output provided successfully"}}
					{"event":"hook","name":"Stop"}`,
			}},
		},
		{
			Name:  "tool-contents",
			Says:  "What a tool of the host returns beside text: resources, links, a value, nothing.",
			Needs: []string{"mcp"},
			Not:   []string{"py"}, // its SDK drops resources
			API: script(
				pt.Call("mcp__s__mixed", `{}`),
				pt.Expect(mentions("[Resource link: y] file:///y (why)")).Call("mcp__s__value", `{}`),
				pt.Expect(mentions("file:///x")).Call("mcp__s__empty", `{}`),
				pt.Expect(mentions("completed with no output")).Say("Seen."),
			),
			Runs: []Run{{
				Job: `{"prompt":"Look.","options":{` + options + `,"allowedTools":["mcp__s"]},"tools":{"s":[
					{"name":"mixed","input":{},"result":{"content":[{"type":"text","text":"a"},{"type":"resource","resource":{"uri":"file:///x","text":"res","mimeType":"text/plain"}},{"type":"resource_link","uri":"file:///y","name":"y","description":"why"}]}},
					{"name":"value","input":{},"result":{"content":[{"type":"text","text":"a"},{"type":"resource","resource":{"uri":"file:///x","text":"res","mimeType":"text/plain"}}],"structuredContent":{"n":1}}},
					{"name":"empty","input":{},"result":{"content":[]}}]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant"}
					{"type":"user","tool_use_result":{"resourceLinks":[{"uri":"file:///y","name":"y"}]}}
					{"type":"assistant"}
					{"type":"user","message":{"content":[{"type":"tool_result","content":[{"type":"text","text":"[Resource from s at file:///x] res"},{"type":"text","text":"{\"n\":1}"}]}]},"tool_use_result":{"structuredContent":{"n":1}}}
					{"type":"assistant"}
					{"type":"user","message":{"content":[{"type":"tool_result","content":"(mcp__s__empty completed with no output)"}]},"tool_use_result":[]}
					{"type":"assistant"}
					{"type":"result","subtype":"success"}`,
				Callbacks: `
					{"event":"tool","name":"mixed"}
					{"event":"tool","name":"value"}
					{"event":"tool","name":"empty"}`,
			}},
		},
		{
			Name: "permission-answers",
			Says: "Answers of the host that fail, give no reason, or change the mode: the call is decided as the answer says, and only later calls by the new mode.",
			API: script(
				pt.Call("Bash", bash("touch a.txt")),
				pt.Expect(pt.ToolError("broken")).Call("Bash", bash("touch b.txt")),
				pt.Expect(pt.ToolError("")).Call("Bash", bash("touch c.txt")),
				pt.Expect(pt.ToolError("").Not()).Say("Done."),
			),
			Runs: []Run{{
				Job: `{"prompt":"Try.","options":{` + options + `},"canUseTool":[{"times":1,"throw":"broken"},{"times":1,"answer":{"behavior":"deny","message":""}},
					{"answer":{"behavior":"allow","updatedInput":{"command":"touch c.txt"},"updatedPermissions":[{"type":"setMode","mode":"plan","destination":"session"}]}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant"}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":true,"content":"~broken"}]},"tool_result_meta":[{"non_execution_kind":"permission-rule","permission_decision":{"decision":"reject"}}]}
					{"type":"assistant"}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":true}]},"tool_result_meta":[{"permission_decision":{"decision":"reject","source":"user_reject"}}]}
					{"type":"assistant"}
					{"type":"system","subtype":"status","permissionMode":"plan"}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":false}]}}
					{"type":"assistant"}
					{"type":"result","subtype":"success","permission_denials":[{},{}]}`,
				Callbacks: `
					{"event":"canUseTool"}
					{"event":"canUseTool"}
					{"event":"canUseTool"}`,
			}},
			Check: func(o *Outcome) error {
				_, err := os.Stat(filepath.Join(o.Dir, "c.txt"))
				return err
			},
		},
		{
			Name:  "project-hooks",
			Says:  "Commands of the project's settings that block by their exit status, and commands of files as hosts see them again.",
			Needs: []string{"hooks"},
			Files: map[string]string{
				".claude/settings.json":     `{"hooks":{"PreToolUse":[{"matcher":"Write","hooks":[{"type":"command","command":"echo no writes >&2; exit 2"}]}],"Stop":[{"hooks":[{"type":"command","command":"grep -q stop_hook_active.:true || { echo more >&2; exit 2; }"}]}]}}`,
				".claude/commands/greet.md": "Hello $0\n",
			},
			API: script(
				pt.Expect(pt.LastUser("Hello Ann")).Call("Write", map[string]any{"file_path": "/nowhere/x", "content": "x"}),
				pt.Expect(pt.ToolError("no writes")).Say("One."),
				pt.Expect(mentions("]: more")).Say("Two."),
			),
			Runs: []Run{{
				Job: `{"options":{"cwd":"${dir}","model":"claude-sonnet-4-5","settingSources":["project"],"allowedTools":["Write"],"extraArgs":{"replay-user-messages":null}},"steps":[
					{"send":"/greet Ann"},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"user","isReplay":true,"message":{"content":"~^<command-message>greet"}}
					{"type":"assistant"}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":true,"content":"PreToolUse:Write hook error: [echo no writes >&2; exit 2]: no writes\n"}]}}
					{"type":"assistant"}
					{"type":"user","message":{"content":[{"type":"text","text":"~^Stop hook feedback:"}]}}
					{"type":"system","subtype":"notification"}
					{"type":"assistant"}
					{"type":"result","subtype":"success","result":"Two."}`,
			}},
		},
		{
			Name: "prompt-uuid",
			Says: "Prompts that the host gives an id: their lifecycle, the states around it, the first answer names them, and one that comes twice is acknowledged and not answered again.",
			Not:  []string{"py"}, // its driver waits for no message of this kind
			API:  script(pt.Say("First.").Call("Bash", bash("echo hi")), pt.Say("Second."), pt.Expect(pt.LastUser("Next")).Say("Third.")),
			Runs: []Run{{
				Job: `{"options":{` + options + `,"includePartialMessages":false,"extraArgs":{"replay-user-messages":null}},"steps":[
					{"send":"Go.","fields":{"uuid":"11111111-1111-4111-8111-111111111111"}},{"until":{"type":"result"}},
					{"send":"Go.","fields":{"uuid":"11111111-1111-4111-8111-111111111111"}},{"until":{"type":"user","isReplay":true,"message":{"content":"Go."}}},
					{"send":"Next."},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"user","isReplay":true,"message":{"content":"Go."}}
					{"type":"assistant","user_message_uuid":"11111111-1111-4111-8111-111111111111"}
					{"type":"assistant","user_message_uuid":null}
					{"type":"user"}
					{"type":"assistant","user_message_uuid":null}
					{"type":"result","subtype":"success","user_message_uuid":"11111111-1111-4111-8111-111111111111","first_request_input_tokens":"*","request_sent_wall_ms":"*"}
					{"type":"user","isReplay":true,"message":{"content":"Go."}}
					{"type":"system","subtype":"init"}
					{"type":"user","isReplay":true,"message":{"content":"Next."}}
					{"type":"assistant"}
					{"type":"result","subtype":"success","result":"Third."}`,
			}},
		},
	}
}
