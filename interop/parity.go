package interop

import (
	pt "github.com/parley-go/parley/parleytest"
)

// parityScenarios are those of single features: options, requests of the host, variables, tools.
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
			Not:   []string{"py"}, // whose types do not name the events
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
	}
}
