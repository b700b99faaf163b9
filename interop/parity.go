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
	}
}
