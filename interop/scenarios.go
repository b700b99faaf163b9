package interop

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	pt "github.com/parley-go/parley/parleytest"
)

// options are the options of every scenario: CLIs differ in their default model, and
// nothing of the machine must be read.
const options = `"cwd":"${dir}","model":"claude-sonnet-4-5","settingSources":[]`

// pixel is a picture.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="

// script returns an API that does not depend on the project directory.
func script(turns ...*pt.Turn) func(string) *pt.Scenario {
	return func(string) *pt.Scenario { return pt.Script(turns...) }
}

// bash returns the input of a call of Bash.
func bash(command string) map[string]any {
	return map[string]any{"command": command, "description": "A step of the test"}
}

// mentions checks that a request contains a text.
func mentions(s string) pt.Matcher { return pt.Body(s) }

// file checks that a file of the project has this content; empty means that the file must
// not exist.
func file(name, content string) func(*Outcome) error {
	return func(o *Outcome) error {
		data, err := os.ReadFile(filepath.Join(o.Dir, name))
		switch {
		case content == "" && errors.Is(err, os.ErrNotExist):
			return nil
		case content == "" && err == nil:
			return fmt.Errorf("there is a file %s, which nobody was to write", name)
		case err == nil && string(data) != content:
			return fmt.Errorf("%s holds %q, not %q", name, data, content)
		}
		return err
	}
}

// transcript checks that the session of the last run is on disk in the official layout,
// with the texts of the user and the model in it.
func transcript(said ...string) func(*Outcome) error {
	return func(o *Outcome) error {
		f, err := os.Open(o.SessionFile(o.Sessions[len(o.Sessions)-1]))
		if err != nil {
			return err
		}
		defer f.Close()
		var found []string
		var wrong error
		err = lines(bufio.NewReader(f), func(line string) {
			var record struct {
				Type, SessionID, UUID, Timestamp string
				Message                          json.RawMessage
			}
			if err := json.Unmarshal([]byte(line), &record); err != nil {
				wrong = err
			}
			if record.Type != "user" && record.Type != "assistant" {
				return
			}
			if record.UUID == "" || record.Timestamp == "" {
				wrong = fmt.Errorf("a record without uuid or timestamp: %.200s", line)
			}
			if len(found) < len(said) && strings.Contains(string(record.Message), said[len(found)]) {
				found = append(found, said[len(found)])
			}
		})
		if len(found) < len(said) {
			wrong = fmt.Errorf("the transcript has %q and not %q", found, said[len(found):])
		}
		if wrong != nil {
			return wrong
		}
		if err.Error() != "EOF" {
			return err
		}
		return nil
	}
}

// same checks whether the last two runs have the same session id.
func same(want bool) func(*Outcome) error {
	return func(o *Outcome) error {
		n := len(o.Sessions)
		if a, b := o.Sessions[n-2], o.Sessions[n-1]; a == "" || b == "" || (a == b) != want {
			return fmt.Errorf("the sessions are %q and %q; the same: %v expected", a, b, want)
		}
		return nil
	}
}

// Scenarios returns the scenarios for CLIs and SDKs.
func Scenarios() []*Scenario {
	return append(slices.Concat(fileScenarios(), toolScenarios(), delegationScenarios(), parityScenarios()), []*Scenario{
		{
			Name:  "files",
			Says:  "Read, Edit and Write do what they say, and tell programs what they did.",
			Files: map[string]string{"a.txt": "red\ngreen\n"},
			API: func(dir string) *pt.Scenario {
				a, b := filepath.Join(dir, "a.txt"), filepath.Join(dir, "b.txt")
				return pt.Script(
					pt.Call("Read", map[string]any{"file_path": a}),
					pt.Expect(pt.ToolResult("green")).Call("Edit", map[string]any{"file_path": a, "old_string": "green", "new_string": "blue"}),
					pt.Expect(pt.ToolError("").Not()).Call("Write", map[string]any{"file_path": b, "content": "new\n"}),
					pt.Expect(pt.ToolError("").Not()).Say("Written."),
				)
			},
			Runs: []Run{{
				Job: `{"prompt":"Change the files.","options":{` + options + `,"permissionMode":"acceptEdits"}}`,
				Messages: `
					{"type":"system","subtype":"init","permissionMode":"acceptEdits"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Read","input":{"file_path":"${dir}/a.txt"}}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","content":"1\tred\n2\tgreen\n3\t"}]},"tool_use_result":{"type":"text","file":{"filePath":"${dir}/a.txt","content":"red\ngreen\n","numLines":3,"startLine":1,"totalLines":3}}}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Edit"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","content":"*"}]},"tool_use_result":{"filePath":"${dir}/a.txt","oldString":"green","newString":"blue","originalFile":"red\ngreen\n","structuredPatch":[{"oldStart":1,"oldLines":2,"newStart":1,"newLines":2,"lines":[" red","-green","+blue"]}],"userModified":false,"replaceAll":false}}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Write"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","content":"*"}]},"tool_use_result":{"type":"create","filePath":"${dir}/b.txt","content":"new\n","structuredPatch":[],"originalFile":null}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Written."}]}}
					{"type":"result","subtype":"success","num_turns":4}`,
			}},
			Check: func(o *Outcome) error {
				return errors.Join(file("a.txt", "red\nblue\n")(o), file("b.txt", "new\n")(o))
			},
		},
		{
			Name: "permission-allow",
			Says: "The host is asked and lets the tool run.",
			API:  script(pt.Call("Bash", bash("touch made.txt")), pt.Expect(pt.ToolError("").Not()).Say("Made.")),
			Runs: []Run{{
				Job: `{"prompt":"Make a file.","options":{` + options + `},"canUseTool":[]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","id":"toolu_main_1_1","name":"Bash","input":{"command":"touch made.txt"}}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"toolu_main_1_1","is_error":false}]},"tool_result_meta":[{"id":"toolu_main_1_1","permission_decision":{"decision":"accept","source":"user_temporary"}}]}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Made."}]}}
					{"type":"result","subtype":"success","num_turns":2,"permission_denials":[]}`,
				Callbacks: `{"event":"canUseTool","tool":"Bash","input":{"command":"touch made.txt"},"context":"*"}`,
			}},
			Check: func(o *Outcome) error {
				_, err := os.Stat(filepath.Join(o.Dir, "made.txt"))
				return err
			},
		},
		{
			Name: "subagent",
			Says: "An agent of the host does a piece of work: its lines carry the call and its id, hooks and questions say who it is, its report is the result.",
			API: func(string) *pt.Scenario {
				return pt.Script(
					pt.Call("Agent", map[string]any{"description": "do sub", "prompt": "SUBPROMPT go", "subagent_type": "tester", "run_in_background": false}),
					pt.Expect(pt.ToolResult("SUB FINAL REPORT")).Say("Main done."),
				).When("sub", pt.FirstUser("SUBPROMPT"),
					pt.Expect(mentions("You test things."), mentions(`"display":"omitted"`)).Say("Aloud.").Call("Bash", bash("touch made.txt")),
					pt.Say("SUB FINAL REPORT"))
			},
			Needs: []string{"hooks"},
			Runs: []Run{{
				Job: `{"prompt":"Delegate.","options":{` + options + `,"agents":{"tester":{"description":"Tests.","prompt":"You test things.","tools":["Bash"]}}},"canUseTool":[],"hooks":{"PreToolUse":[{"matcher":"Bash","output":{}}]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","id":"toolu_main_1_1","name":"Agent"}]},"parent_tool_use_id":null}
					{"type":"system","subtype":"task_started","tool_use_id":"toolu_main_1_1","description":"do sub","task_type":"local_agent"}
					{"type":"user","message":{"content":[{"type":"text","text":"SUBPROMPT go"}]},"parent_tool_use_id":"toolu_main_1_1"}
					{"type":"system","subtype":"task_progress","tool_use_id":"toolu_main_1_1","last_tool_name":"Bash"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"}]},"parent_tool_use_id":"toolu_main_1_1"}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":false}]},"parent_tool_use_id":"toolu_main_1_1"}
					{"type":"system","subtype":"task_updated","patch":{"status":"completed"}}
					{"type":"system","subtype":"task_notification","tool_use_id":"toolu_main_1_1","status":"completed","summary":"SUB FINAL REPORT"}
					{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"toolu_main_1_1"}]},"parent_tool_use_id":null,"tool_use_result":{"status":"completed","agentType":"tester","totalToolUseCount":1,"toolsUsed":["Bash"]}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Main done."}]}}
					{"type":"result","subtype":"success","num_turns":2}`,
				Callbacks: `
					{"event":"hook","name":"PreToolUse","input":{"tool_name":"Bash","agent_type":"tester"}}
					{"event":"canUseTool","tool":"Bash","input":{"command":"touch made.txt"},"context":"*"}`,
			}},
			Check: func(o *Outcome) error {
				_, err := os.Stat(filepath.Join(o.Dir, "made.txt"))
				return err
			},
		},
		{
			Name:  "tools-in-process-at-once",
			Says:  "Three calls of a tool of the host that only reads run side by side.",
			Needs: []string{"mcp"},
			API: script(
				pt.Call("mcp__calc__look", `{"n":1}`).Call("mcp__calc__look", `{"n":2}`).Call("mcp__calc__look", `{"n":3}`),
				pt.Expect(pt.ToolResult("seen")).Say("Three."),
			),
			Runs: []Run{{
				Job: `{"prompt":"Look three times.","options":{` + options + `,"allowedTools":["mcp__calc__look"]},"tools":{"calc":[
					{"name":"look","description":"Looks.","input":{"n":"number"},"annotations":{"readOnlyHint":true},"mark":"${dir}.looks","await":3,"result":{"content":[{"type":"text","text":"seen"}]}}]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","input":{"n":1}}]}}
					{"type":"assistant","message":{"content":[{"type":"tool_use","input":{"n":2}}]}}
					{"type":"assistant","message":{"content":[{"type":"tool_use","input":{"n":3}}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","content":[{"type":"text","text":"seen"}]}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","content":[{"type":"text","text":"seen"}]}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","content":[{"type":"text","text":"seen"}]}]}}
					{"type":"assistant"}
					{"type":"result","subtype":"success","result":"Three."}`,
				Callbacks: `
					{"event":"tool","name":"look"}
					{"event":"tool","name":"look"}
					{"event":"tool","name":"look"}`,
			}},
			Check: func(o *Outcome) error {
				begun := 0
				for _, e := range o.Runs[0] {
					if e.Kind() == "tool" {
						begun++
					}
					if m := e.Message(); m != nil && m["type"] == "user" {
						break
					}
				}
				if begun != 3 {
					return fmt.Errorf("%d calls had begun when the first ended", begun)
				}
				return nil
			},
		},
		{
			Name: "interrupt-tool",
			Says: "The host interrupts a tool that runs; what it started is gone.",
			API: script(
				pt.Call("Bash", bash("echo $$ > pid; for i in 1 2 3 4 5 6; do sleep 5; done")),
				pt.Expect(pt.LastUser("Are you there")).Say("Yes."),
			),
			Runs: []Run{{
				Job: `{"options":{` + options + `,"allowedTools":["Bash"]},"steps":[
					{"send":"Wait."},{"until":{"type":"assistant"}},{"await":"${dir}/pid"},
					{"call":"interrupt"},{"until":{"type":"result"}},
					{"send":"Are you there?"},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":true}]}}
					{"type":"user","message":{"content":[{"type":"text","text":"[Request interrupted by user for tool use]"}]}}
					{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools","num_turns":3}
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Yes."}]}}
					{"type":"result","subtype":"success","is_error":false,"num_turns":1}`,
				Calls: `{"event":"call","method":"interrupt","error":null}`,
			}},
			Check: func(o *Outcome) error {
				data, err := os.ReadFile(filepath.Join(o.Dir, "pid"))
				if err != nil {
					return err
				}
				pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
				if err != nil {
					return err
				}
				if runs(pid) {
					return fmt.Errorf("process %d, which the tool started, still runs", pid)
				}
				return nil
			},
		},
		{
			Name: "set-permission-mode",
			Says: "The host changes the permission mode between turns: first it is asked, then not.",
			API: func(dir string) *pt.Scenario {
				write := func(name string) map[string]any {
					return map[string]any{"file_path": filepath.Join(dir, name), "content": "x"}
				}
				return pt.Script(
					pt.Call("Write", write("one.txt")), pt.Expect(pt.ToolError("")).Say("Not one."),
					pt.Call("Write", write("two.txt")), pt.Expect(pt.ToolError("").Not()).Say("Two."),
				)
			},
			Runs: []Run{{
				Job: `{"options":{` + options + `},"canUseTool":[{"answer":{"behavior":"deny","message":"no"}}],"steps":[
					{"send":"Write one."},{"until":{"type":"result"}},
					{"call":"setPermissionMode","args":["acceptEdits"]},
					{"send":"Write two."},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init","permissionMode":"default"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Write"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","content":"no","is_error":true}]}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Not one."}]}}
					{"type":"result","subtype":"success","permission_denials":[{"tool_name":"Write"}]}
					{"type":"system","subtype":"status","status":null,"permissionMode":"acceptEdits"}
					{"type":"system","subtype":"init","permissionMode":"acceptEdits"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Write"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":null}]},"tool_use_result":{"type":"create"}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Two."}]}}
					{"type":"result","subtype":"success"}`,
				Callbacks: `{"event":"canUseTool","tool":"Write","input":{"file_path":"${dir}/one.txt","content":"x"}}`,
				Calls:     `{"event":"call","method":"setPermissionMode","error":null}`,
			}},
			Check: func(o *Outcome) error { return errors.Join(file("one.txt", "")(o), file("two.txt", "x")(o)) },
		},
		{
			Name: "queued-turn",
			Says: "A message that comes while the model only talks is a turn of its own.",
			API: func(dir string) *pt.Scenario {
				return pt.Script(pt.Expect(pt.LastUser("second thing")).Say("Second.")).
					When("first", pt.LastUser("first thing"), pt.Say("First.")).And(afterGate(dir, "first thing"))
			},
			Runs: []Run{{
				Job: `{"options":{` + options + `},"steps":[
					{"send":"The first thing."},{"until":{"type":"system","subtype":"init"}},{"send":"The second thing."},{"call":"mcpServerStatus"},{"mark":"${gate}"},{"until":{"type":"result"}},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"First."}]}}
					{"type":"result","subtype":"success","result":"First.","result_index":0}
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Second."}]}}
					{"type":"result","subtype":"success","result":"Second.","result_index":1}`,
				Calls: `{"event":"call","method":"mcpServerStatus","error":null}`,
			}},
		},
		{
			Name: "resume",
			Says: "A second process goes on with the session; nothing is repeated on the wire.",
			API: script(
				pt.Say("Noted."),
				pt.Expect(pt.FirstUser("The word is plum"), pt.LastUser("What is the word")).Say("Plum."),
			),
			Runs: []Run{
				{Job: `{"prompt":"The word is plum.","options":{` + options + `}}`,
					Messages: `
						{"type":"system","subtype":"init"}
						{"type":"assistant"}
						{"type":"result","subtype":"success"}`},
				{Job: `{"prompt":"What is the word?","options":{` + options + `,"resume":"${session}"}}`,
					Messages: `
						{"type":"system","subtype":"init","session_id":"${before}"}
						{"type":"assistant","message":{"content":[{"type":"text","text":"Plum."}]},"session_id":"${before}"}
						{"type":"result","subtype":"success","result":"Plum.","num_turns":1,"result_index":0}`},
			},
			Check: func(o *Outcome) error {
				return errors.Join(same(true)(o), transcript("The word is plum.", "Noted.", "What is the word?", "Plum.")(o))
			},
		},
		{
			Name: "fork",
			Says: "A second process goes on in a new session with the history of the first, which stays as it was.",
			API: script(
				pt.Say("Noted."),
				pt.Expect(pt.FirstUser("The word is plum"), pt.LastUser("What is the word")).Say("Plum."),
			),
			Runs: []Run{
				{Job: `{"prompt":"The word is plum.","options":{` + options + `}}`,
					Messages: `
						{"type":"system","subtype":"init"}
						{"type":"assistant"}
						{"type":"result","subtype":"success"}`},
				{Job: `{"prompt":"What is the word?","options":{` + options + `,"resume":"${session}","forkSession":true}}`,
					Messages: `
						{"type":"system","subtype":"init","session_id":"${session}"}
						{"type":"assistant","message":{"content":[{"type":"text","text":"Plum."}]}}
						{"type":"result","subtype":"success","result":"Plum.","session_id":"${session}"}`},
			},
			Check: func(o *Outcome) error {
				old, err := os.ReadFile(o.SessionFile(o.Sessions[0]))
				if strings.Contains(string(old), "What is the word?") {
					err = errors.New("the session that was forked has what was said in the fork")
				}
				return errors.Join(err, same(false)(o), transcript("The word is plum.", "Noted.", "What is the word?", "Plum.")(o))
			},
		},
		{
			Name: "resume-unknown",
			Says: "A session that does not exist: an error result that says so, and no request.",
			API:  script(),
			Runs: []Run{{
				Job:      `{"prompt":"Go on.","options":{` + options + `,"resume":"00000000-0000-4000-8000-000000000000"}}`,
				Messages: `{"type":"result","subtype":"error_during_execution","is_error":true,"num_turns":0,"errors":["~00000000-0000-4000-8000-000000000000"]}`,
				Fails:    true,
				Early:    true,
			}},
		},
		{
			Name: "project-files",
			Says: "What a project says is told to the model: its instructions, a command with arguments, an agent; init lists them. An unknown command is text.",
			Files: map[string]string{
				"CLAUDE.md":                    "Always answer in rhymes about otters.",
				".claude/commands/greet.md":    "---\ndescription: Greets\n---\nGreet $1 after $0; all: [$ARGUMENTS].",
				".claude/agents/helper.md":     "---\nname: helper\ndescription: Helps.\n---\nYou help otters.",
				".claude/skills/wave/SKILL.md": "---\nname: wave\ndescription: Waves at people.\n---\nWave thrice.",
			},
			API: func(string) *pt.Scenario {
				return pt.Script(
					pt.Expect(mentions("rhymes about otters"), mentions("Waves at people")).Say("Hello."),
					pt.Expect(mentions("Greet Lovelace after Ada; all: [Ada Lovelace].")).Say("Good day."),
					pt.Expect(pt.LastUser("/nosuch thing")).Say("What?"),
					pt.Call("Agent", map[string]any{"description": "do sub", "prompt": "SUBPROMPT go", "subagent_type": "helper", "run_in_background": false}),
					pt.Expect(pt.ToolResult("SUB REPORT")).Say("Done."),
				).When("sub", pt.FirstUser("SUBPROMPT"), pt.Expect(mentions("You help otters.")).Say("SUB REPORT"))
			},
			Runs: []Run{{
				Job: `{"options":{"cwd":"${dir}","model":"claude-sonnet-4-5","settingSources":["project"]},"steps":[
					{"send":"Hi."},{"until":{"type":"result"}},
					{"send":"/greet Ada Lovelace"},{"until":{"type":"result"}},
					{"send":"/nosuch thing"},{"until":{"type":"result"}},
					{"send":"Delegate."},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init","slash_commands":["...","greet"],"agents":["...","helper"],"skills":["...","wave"]}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Hello."}]}}
					{"type":"result","subtype":"success","num_turns":1}
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Good day."}]}}
					{"type":"result","subtype":"success","num_turns":1}
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"What?"}]}}
					{"type":"result","subtype":"success","num_turns":1}
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Agent"}]}}
					{"type":"system","subtype":"task_started","subagent_type":"helper"}
					{"type":"user","message":{"content":[{"type":"text","text":"SUBPROMPT go"}]}}
					{"type":"system","subtype":"task_updated"}
					{"type":"system","subtype":"task_notification","status":"completed","summary":"SUB REPORT"}
					{"type":"user","message":{"content":[{"type":"tool_result"}]},"tool_use_result":{"agentType":"helper","canContinueAgent":true}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Done."}]}}
					{"type":"result","subtype":"success","num_turns":2}`,
			}},
		},
		{
			Name: "budget",
			Says: "The money is spent after the first answer.",
			API:  script(pt.Call("Bash", bash("echo one")).Usage(pt.Usage{Input: 100_000, Output: 1000})),
			Runs: []Run{{
				Job: `{"prompt":"Spend.","options":{` + options + `,"maxBudgetUsd":0.001,"allowedTools":["Bash"]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}
					{"type":"result","subtype":"error_max_budget_usd","is_error":true,"terminal_reason":"budget_exhausted","errors":["*"]}`,
				Fails: true,
			}},
			Check: func(o *Outcome) error {
				m := o.Messages(0)
				if cost, _ := m[len(m)-1]["total_cost_usd"].(float64); math.Abs(cost-0.315) > 1e-9 {
					return fmt.Errorf("the cost is %v, not 0.315", cost)
				}
				return nil
			},
		},
	}...)
}
