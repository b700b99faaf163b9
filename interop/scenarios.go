package interop

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
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
func mentions(s string) pt.Matcher {
	return pt.Check("the request mentions "+s, func(r *pt.Request) error {
		if !strings.Contains(string(r.Body), s) {
			return fmt.Errorf("%q is not in the request", s)
		}
		return nil
	})
}

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
	return append(append(append(toolScenarios(), delegationScenarios()...), parityScenarios()...), []*Scenario{
		{
			Name: "one-shot",
			Says: "One question and its answer; the session is on disk.",
			API:  script(pt.Expect(pt.LastUser("Say hello")).Say("Hello there.")),
			Runs: []Run{{
				Job: `{"prompt":"Say hello.","options":{` + options + `}}`,
				Messages: `
					{"type":"system","subtype":"init","cwd":"${dir}","model":"claude-sonnet-4-5","permissionMode":"default","apiKeySource":"ANTHROPIC_API_KEY","tools":["...","Bash","Edit","Read","Write"],"mcp_servers":[],"session_id":"*","uuid":"*","claude_code_version":"*"}
					{"type":"assistant","message":{"role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"Hello there."}],"stop_reason":null},"parent_tool_use_id":null,"session_id":"${session}"}
					{"type":"result","subtype":"success","is_error":false,"num_turns":1,"result":"Hello there.","stop_reason":"end_turn","terminal_reason":"completed","session_id":"${session}","total_cost_usd":"*","usage":{"input_tokens":"*","output_tokens":"*"},"modelUsage":{"claude-sonnet-4-5":{"costUSD":"*"}},"permission_denials":[]}`,
			}},
			Check: transcript("Say hello.", "Hello there."),
		},
		{
			Name: "multi-turn",
			Says: "Three turns of one process; the model is told the history.",
			API: script(
				pt.Expect(pt.LastUser("My name is Ada")).Say("Hello, Ada."),
				pt.Expect(pt.LastUser("Who am I"), pt.FirstUser("My name is Ada"), mentions("Hello, Ada.")).Say("You are Ada."),
				pt.Expect(pt.LastUser("Goodbye")).Say("Goodbye."),
			),
			Runs: []Run{{
				Job: `{"options":{` + options + `},"steps":[
					{"send":"My name is Ada."},{"until":{"type":"result"}},
					{"send":"Who am I?"},{"until":{"type":"result"}},
					{"send":[{"type":"text","text":"Goodbye."}]},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Hello, Ada."}]}}
					{"type":"result","subtype":"success","result":"Hello, Ada.","num_turns":1,"result_index":0}
					{"type":"system","subtype":"init","session_id":"${session}"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"You are Ada."}]}}
					{"type":"result","subtype":"success","result":"You are Ada.","num_turns":1,"result_index":1}
					{"type":"system","subtype":"init","session_id":"${session}"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Goodbye."}]}}
					{"type":"result","subtype":"success","result":"Goodbye.","num_turns":1,"result_index":2}`,
			}},
			Check: transcript("My name is Ada.", "Hello, Ada.", "Who am I?", "You are Ada.", "Goodbye."),
		},
		{
			Name: "partial-cut",
			Says: "A stream breaks in its first text, then behind a text: each message ends, and says which blocks are void.",
			API:  script(pt.Say("One, ", "two.").CutClean().After(3), pt.Say("Three.").Call("Bash", bash("echo no")).CutClean().After(6), pt.Say("Four.")),
			Runs: []Run{{
				Job: `{"prompt":"Count.","options":{` + options + `,"includePartialMessages":true}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"system","subtype":"status","status":"requesting"}
					{"type":"stream_event","event":{"type":"message_start"}}
					{"type":"stream_event","event":{"type":"content_block_start","index":0}}
					{"type":"stream_event","event":{"type":"content_block_delta","index":0}}
					{"type":"stream_event","event":{"type":"content_block_stop","index":0}}
					{"type":"stream_event","event":{"type":"message_stop"},"abandoned_blocks":{"from_block_index":0}}
					{"type":"system","subtype":"api_retry"}
					{"type":"stream_event","event":{"type":"message_start"}}
					{"type":"stream_event","event":{"type":"content_block_start","index":0}}
					{"type":"stream_event","event":{"type":"content_block_delta","index":0}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Three."}]}}
					{"type":"stream_event","event":{"type":"content_block_stop","index":0}}
					{"type":"stream_event","event":{"type":"content_block_start","index":1}}
					{"type":"stream_event","event":{"type":"content_block_delta","index":1}}
					{"type":"stream_event","event":{"type":"message_stop"},"abandoned_blocks":{"from_block_index":1}}
					{"type":"user","isSynthetic":true}
					{"type":"system","subtype":"status","status":"requesting"}
					{"type":"stream_event","event":{"type":"message_start"}}
					{"type":"stream_event","event":{"type":"content_block_start","index":0}}
					{"type":"stream_event","event":{"type":"content_block_delta","index":0}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Four."}]}}
					{"type":"stream_event","event":{"type":"content_block_stop","index":0}}
					{"type":"stream_event","event":{"type":"message_delta"}}
					{"type":"stream_event","event":{"type":"message_stop"}}
					{"type":"result","subtype":"success","result":"Four."}`,
			}},
		},
		{
			Name: "partial-messages",
			Says: "The answer while it is written: events of the API, and each block's message before its content_block_stop.",
			API:  script(pt.Say("One, ", "two.").Call("Bash", bash("echo three")), pt.Expect(pt.ToolResult("three")).Say("Four.")),
			Runs: []Run{{
				Job: `{"prompt":"Count.","options":{` + options + `,"includePartialMessages":true}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"system","subtype":"status","status":"requesting"}
					{"type":"stream_event","event":{"type":"message_start","message":{"role":"assistant"}},"parent_tool_use_id":null,"session_id":"*","uuid":"*"}
					{"type":"stream_event","event":{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}}
					{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"One, "}}}
					{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"two."}}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"One, two."}]}}
					{"type":"stream_event","event":{"type":"content_block_stop","index":0}}
					{"type":"stream_event","event":{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_main_1_1","name":"Bash","input":{}}}}
					{"type":"stream_event","event":{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":""}}}
					{"type":"stream_event","event":{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"~command"}}}
					{"type":"stream_event","event":{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"~test"}}}
					{"type":"assistant","message":{"content":[{"type":"tool_use","id":"toolu_main_1_1","name":"Bash","input":{"command":"echo three"}}]}}
					{"type":"stream_event","event":{"type":"content_block_stop","index":1}}
					{"type":"stream_event","event":{"type":"message_delta","delta":{"stop_reason":"tool_use"}}}
					{"type":"stream_event","event":{"type":"message_stop"}}
					{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"toolu_main_1_1","content":"three"}]}}
					{"type":"system","subtype":"status","status":"requesting"}
					{"type":"stream_event","event":{"type":"message_start"}}
					{"type":"stream_event","event":{"type":"content_block_start","index":0}}
					{"type":"stream_event","event":{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Four."}}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Four."}]}}
					{"type":"stream_event","event":{"type":"content_block_stop","index":0}}
					{"type":"stream_event","event":{"type":"message_delta","delta":{"stop_reason":"end_turn"}}}
					{"type":"stream_event","event":{"type":"message_stop"}}
					{"type":"result","subtype":"success","num_turns":2,"result":"Four."}`,
			}},
		},
		{
			Name: "thinking",
			Says: "A thinking block is a message of its own, and goes back to the model as it was.",
			API: script(
				pt.Think("Three comes after two.").Say("I check.").Call("Bash", bash("echo 3")),
				pt.Expect(pt.ToolResult("3"), mentions("Three comes after two.")).Say("Three."),
			),
			Runs: []Run{{
				Job: `{"prompt":"What comes after two?","options":{` + options + `}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"thinking","thinking":"Three comes after two.","signature":"*"}]}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"I check."}]}}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","content":"3","is_error":false}]}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Three."}]}}
					{"type":"result","subtype":"success","num_turns":2,"result":"Three."}`,
			}},
		},
		{
			Name: "several-tools",
			Says: "Several calls in one answer, one of which fails: a message for each, results in order.",
			API: script(
				pt.Say("Three at once.").Call("Bash", bash("echo first")).Call("Bash", bash("echo second; exit 3")).Call("Bash", bash("echo third")),
				pt.Expect(pt.ToolResult("first"), pt.ToolResult("third"), pt.ToolError("second")).Say("Done."),
			),
			Runs: []Run{{
				Job: `{"prompt":"Do three things.","options":{` + options + `,"allowedTools":["Bash"]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Three at once."}]}}
					{"type":"assistant","message":{"content":[{"type":"tool_use","id":"toolu_main_1_1"}]}}
					{"type":"assistant","message":{"content":[{"type":"tool_use","id":"toolu_main_1_2"}]}}
					{"type":"assistant","message":{"content":[{"type":"tool_use","id":"toolu_main_1_3"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"toolu_main_1_1","content":"first","is_error":false}]},"tool_use_result":{"stdout":"first","stderr":"","interrupted":false,"isImage":false,"noOutputExpected":false}}
					{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"toolu_main_1_2","content":"Exit code 3\nsecond","is_error":true}]},"tool_use_result":"~^Error: Exit code 3"}
					{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"toolu_main_1_3","content":"third","is_error":false}]}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Done."}]}}
					{"type":"result","subtype":"success","num_turns":4,"result":"Done."}`,
			}},
		},
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
			Name: "permission-deny",
			Says: "The host is asked and says no; the model is told why and goes on.",
			API:  script(pt.Call("Bash", bash("touch made.txt")), pt.Expect(pt.ToolError("not on my watch")).Say("Then not.")),
			Runs: []Run{{
				Job: `{"prompt":"Make a file.","options":{` + options + `},"canUseTool":[{"tool":"Bash","answer":{"behavior":"deny","message":"not on my watch"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"toolu_main_1_1","content":"not on my watch","is_error":true}]},"tool_use_result":"Error: not on my watch","tool_result_meta":[{"non_execution_kind":"permission-rule","permission_decision":{"decision":"reject","source":"user_reject"}}]}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Then not."}]}}
					{"type":"result","subtype":"success","is_error":false,"permission_denials":[{"tool_name":"Bash","tool_use_id":"toolu_main_1_1","tool_input":{"command":"touch made.txt"}}]}`,
				Callbacks: `{"event":"canUseTool","tool":"Bash"}`,
			}},
			Check: file("made.txt", ""),
		},
		{
			Name: "permission-changed-input",
			Says: "The host lets the tool run with another input.",
			API:  script(pt.Call("Bash", bash("printf bad > made.txt")), pt.Expect(pt.ToolError("").Not()).Say("Made.")),
			Runs: []Run{{
				Job: `{"prompt":"Make a file.","options":{` + options + `},"canUseTool":[{"answer":{"behavior":"allow","updatedInput":{"command":"printf good > made.txt"}}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","input":{"command":"printf bad > made.txt"}}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":false}]}}
					{"type":"assistant"}
					{"type":"result","subtype":"success","permission_denials":[]}`,
				Callbacks: `{"event":"canUseTool","input":{"command":"printf bad > made.txt"}}`,
			}},
			Check: file("made.txt", "good"),
		},
		{
			Name: "permission-deny-interrupt",
			Says: "The host says no and ends the turn; the next one runs.",
			API:  script(pt.Call("Bash", bash("touch made.txt")), pt.Expect(pt.LastUser("Are you there")).Say("Yes.")),
			Runs: []Run{{
				Job: `{"options":{` + options + `},"canUseTool":[{"answer":{"behavior":"deny","message":"stop","interrupt":true}}],"steps":[
					{"send":"Make a file."},{"until":{"type":"result"}},
					{"send":"Are you there?"},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"toolu_main_1_1","is_error":true}]}}
					{"type":"user","message":{"content":[{"type":"text","text":"[Request interrupted by user for tool use]"}]}}
					{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools","num_turns":3,"errors":["*"]}
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Yes."}]}}
					{"type":"result","subtype":"success","is_error":false,"result":"Yes."}`,
				Callbacks: `{"event":"canUseTool","tool":"Bash"}`,
			}},
			Check: file("made.txt", ""),
		},
		{
			Name: "permission-rule",
			Says: "The host answers with a rule for the session and is not asked again.",
			API: script(
				pt.Call("Bash", bash("touch one.txt")),
				pt.Expect(pt.ToolError("").Not()).Call("Bash", bash("touch two.txt")),
				pt.Expect(pt.ToolError("").Not()).Say("Both."),
			),
			Runs: []Run{{
				Job: `{"prompt":"Make files.","options":{` + options + `},"canUseTool":[{"times":1,"answer":{"behavior":"allow","updatedInput":{"command":"touch one.txt"},"updatedPermissions":[
					{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"touch:*"}],"behavior":"allow","destination":"session"}]}},
					{"answer":{"behavior":"deny","message":"asked twice"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":false}]}}
					{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":false}]}}
					{"type":"assistant"}
					{"type":"result","subtype":"success","permission_denials":[]}`,
				Callbacks: `{"event":"canUseTool","tool":"Bash"}`,
			}},
		},
		{
			Name: "permission-nobody",
			Says: "Without a host to ask, a call that needs asking is denied.",
			API:  script(pt.Call("Bash", bash("touch made.txt")), pt.Expect(pt.ToolError("")).Say("Then not.")),
			Runs: []Run{{
				Job: `{"prompt":"Make a file.","options":{` + options + `}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}
					{"type":"system","subtype":"permission_denied","tool_name":"Bash","tool_use_id":"toolu_main_1_1","message":"*"}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":true}]},"tool_result_meta":[{"non_execution_kind":"user-rejected","permission_decision":{"decision":"reject","source":"config"}}]}
					{"type":"assistant"}
					{"type":"result","subtype":"success","is_error":false,"permission_denials":[{"tool_name":"Bash"}]}`,
			}},
			Check: file("made.txt", ""),
		},
		{
			Name: "ask-user-question",
			Says: "The model asks the user; the host answers.",
			API: script(
				pt.Call("AskUserQuestion", `{"questions":[{"question":"Which colour?","header":"Colour","multiSelect":false,"options":[{"label":"Red","description":"Warm"},{"label":"Blue","description":"Cold"}]}]}`),
				pt.Expect(pt.ToolResult("Blue")).Say("Blue it is."),
			),
			Runs: []Run{{
				Job: `{"prompt":"Paint it.","options":{` + options + `},"canUseTool":[{"tool":"AskUserQuestion","answer":{"behavior":"allow","updatedInput":{
					"questions":[{"question":"Which colour?","header":"Colour","multiSelect":false,"options":[{"label":"Red","description":"Warm"},{"label":"Blue","description":"Cold"}]}],
					"answers":{"Which colour?":"Blue"}}}}]}`,
				Messages: `
					{"type":"system","subtype":"init","tools":["...","AskUserQuestion"]}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"AskUserQuestion"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","content":"~Blue"}]},"tool_use_result":{"questions":[{"question":"Which colour?"}],"answers":{"Which colour?":"Blue"}}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Blue it is."}]}}
					{"type":"result","subtype":"success","permission_denials":[]}`,
				Callbacks: `{"event":"canUseTool","tool":"AskUserQuestion","input":{"questions":[{"question":"Which colour?","options":[{"label":"Red"},{"label":"Blue"}]}]}}`,
			}},
		},
		{
			Name:  "hook-deny",
			Says:  "A hook before a tool says no; one that is for another tool is not called.",
			Needs: []string{"hooks"},
			API:   script(pt.Call("Bash", bash("touch made.txt")), pt.Expect(pt.ToolError("the hook says no")).Say("Then not.")),
			Runs: []Run{{
				Job: `{"prompt":"Make a file.","options":{` + options + `,"allowedTools":["Bash"]},"hooks":{"PreToolUse":[
					{"matcher":"Bash","output":{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"the hook says no"}}},
					{"matcher":"Write|Edit","output":{}}]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","content":"~the hook says no","is_error":true}]},"tool_result_meta":[{"permission_decision":{"decision":"reject","source":"hook"}}]}
					{"type":"assistant"}
					{"type":"result","subtype":"success","permission_denials":[{"tool_name":"Bash"}]}`,
				Callbacks: `{"event":"hook","name":"PreToolUse","input":{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"touch made.txt"},"tool_use_id":"toolu_main_1_1","session_id":"${session}","cwd":"${dir}","transcript_path":"*","permission_mode":"default"}}`,
			}},
			Check: file("made.txt", ""),
		},
		{
			Name:  "hook-changed-input",
			Says:  "A hook before a tool changes its input: the changed one runs.",
			Needs: []string{"hooks"},
			API:   script(pt.Call("Bash", bash("printf bad > made.txt")), pt.Expect(pt.ToolError("").Not()).Say("Made.")),
			Runs: []Run{{
				Job: `{"prompt":"Make a file.","options":{` + options + `},"hooks":{"PreToolUse":[
					{"matcher":"Bash","output":{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"command":"printf good > made.txt"}}}}]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","input":{"command":"printf bad > made.txt"}}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":false}]}}
					{"type":"assistant"}
					{"type":"result","subtype":"success","permission_denials":[]}`,
				Callbacks: `{"event":"hook","name":"PreToolUse","input":{"tool_input":{"command":"printf bad > made.txt"}}}`,
			}},
			Check: file("made.txt", "good"),
		},
		{
			Name:  "hook-changed-input-denied",
			Says:  "A hook changes the input of a tool to one that a rule denies: its yes does not help.",
			Needs: []string{"hooks"},
			API:   script(pt.Call("Bash", bash("echo hi")), pt.Expect(pt.ToolError("")).Say("Then not.")),
			Runs: []Run{{
				Job: `{"prompt":"Make a file.","options":{` + options + `,"disallowedTools":["Bash(touch:*)"]},"hooks":{"PreToolUse":[
					{"matcher":"Bash","output":{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow","updatedInput":{"command":"touch made.txt"}}}}]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","input":{"command":"echo hi"}}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":true}]}}
					{"type":"assistant"}
					{"type":"result","subtype":"success","permission_denials":[{"tool_name":"Bash"}]}`,
				Callbacks: `{"event":"hook","name":"PreToolUse","input":{"tool_input":{"command":"echo hi"}}}`,
			}},
			Check: file("made.txt", ""),
		},
		{
			Name:  "paths",
			Says:  "Hosts and hooks see absolute paths, however the model spells them.",
			Needs: []string{"hooks"},
			Files: map[string]string{"b/c.txt": "gamma\n"},
			API: script(pt.Call("Read", map[string]any{"file_path": "b/../b//c.txt"}), pt.Call("Read", map[string]any{"file_path": "../out.txt"}),
				pt.Call("Read", map[string]any{"file_path": "~/out.txt"}), pt.Call("Write", map[string]any{"file_path": "b/./new.txt", "content": "x"}), pt.Say("Done.")),
			Runs: []Run{{
				Job: `{"prompt":"Go.","options":{` + options + `},"canUseTool":[{"answer":{"behavior":"deny","message":"no"}}],"hooks":{"PreToolUse":[
					{"matcher":"Read","output":{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"no"}}}]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use","input":{"file_path":"b/../b//c.txt"}}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":true}]}}
					{"type":"assistant","message":{"content":[{"type":"tool_use","input":{"file_path":"../out.txt"}}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":true}]}}
					{"type":"assistant","message":{"content":[{"type":"tool_use","input":{"file_path":"~/out.txt"}}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":true}]}}
					{"type":"assistant","message":{"content":[{"type":"tool_use","input":{"file_path":"b/./new.txt"}}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":true}]}}
					{"type":"assistant"}
					{"type":"result","subtype":"success","permission_denials":[{"tool_input":{"file_path":"${dir}/b/c.txt"}},{"tool_input":{"file_path":"~^/.*/out.txt$"}},{"tool_input":{"file_path":"${home}/out.txt"}},{"tool_input":{"file_path":"${dir}/b/new.txt"}}]}`,
				Callbacks: `
					{"event":"hook","name":"PreToolUse","input":{"tool_input":{"file_path":"${dir}/b/c.txt"}}}
					{"event":"hook","name":"PreToolUse","input":{"tool_input":{"file_path":"~^/.*/out.txt$"}}}
					{"event":"hook","name":"PreToolUse","input":{"tool_input":{"file_path":"${home}/out.txt"}}}
					{"event":"canUseTool","input":{"file_path":"${dir}/b/new.txt"}}`,
			}},
			Check: file("b/new.txt", ""),
		},
		{
			Name:  "hook-block-prompt",
			Says:  "A hook does not let a prompt through: no request is made.",
			Needs: []string{"hooks"},
			API:   script(),
			Runs: []Run{{
				Job: `{"prompt":"The password is 1234.","options":{` + options + `},"hooks":{"UserPromptSubmit":[{"output":{"decision":"block","reason":"no secrets here"}}]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"system","subtype":"informational","level":"warning","content":"~no secrets here","prevent_continuation":true}
					{"type":"result","subtype":"success","is_error":false,"num_turns":0,"result":"~no secrets here"}`,
				Callbacks: `{"event":"hook","name":"UserPromptSubmit","input":{"hook_event_name":"UserPromptSubmit","prompt":"The password is 1234."}}`,
			}},
		},
		{
			Name:  "hook-context",
			Says:  "Hooks add context to a prompt and to a tool's result; the model is told.",
			Needs: []string{"hooks"},
			API: script(
				pt.Expect(mentions("the word is plum")).Call("Bash", bash("echo hi")),
				pt.Expect(pt.ToolResult("hi"), mentions("the word is quince")).Say("Plum, quince."),
			),
			Runs: []Run{{
				Job: `{"prompt":"What is the word?","options":{` + options + `},"hooks":{
					"UserPromptSubmit":[{"output":{"hookSpecificOutput":{"hookEventName":"UserPromptSubmit","additionalContext":"the word is plum"}}}],
					"PostToolUse":[{"matcher":"Bash","output":{"hookSpecificOutput":{"hookEventName":"PostToolUse","additionalContext":"the word is quince"}}}]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","content":"hi"}]}}
					{"type":"assistant"}
					{"type":"result","subtype":"success","result":"Plum, quince."}`,
				Callbacks: `
					{"event":"hook","name":"UserPromptSubmit","input":{"prompt":"What is the word?"}}
					{"event":"hook","name":"PostToolUse","input":{"tool_name":"Bash","tool_response":{"stdout":"hi"},"duration_ms":"*"}}`,
			}},
		},
		{
			Name:  "hook-stop",
			Says:  "A hook does not let the turn end yet, once.",
			Needs: []string{"hooks"},
			API:   script(pt.Say("Done."), pt.Expect(mentions("and the tests?")).Say("Tested.")),
			Runs: []Run{{
				Job: `{"prompt":"Work.","options":{` + options + `},"hooks":{"Stop":[{"times":1,"output":{"decision":"block","reason":"and the tests?"}}]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Done."}]}}
					{"type":"user","isSynthetic":true,"message":{"content":[{"type":"text","text":"~and the tests\\?"}]}}
					{"type":"system","subtype":"notification","key":"stop-hook-error","priority":"immediate"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Tested."}]}}
					{"type":"result","subtype":"success","is_error":false,"num_turns":2,"result":"Tested."}`,
				Callbacks: `
					{"event":"hook","name":"Stop","input":{"hook_event_name":"Stop","stop_hook_active":false,"last_assistant_message":"Done."}}
					{"event":"hook","name":"Stop","input":{"stop_hook_active":true,"last_assistant_message":"Tested."}}`,
			}},
		},
		{
			Name:  "hook-timeout",
			Says:  "A hook that does not answer in time: it is taken back and the tool does not run.",
			Needs: []string{"hooks"},
			API:   script(pt.Call("Bash", bash("touch made.txt")), pt.Expect(pt.ToolError("")).Say("Then not.")),
			Runs: []Run{{
				Job: `{"prompt":"Make a file.","options":{` + options + `,"allowedTools":["Bash"]},"hooks":{"PreToolUse":[{"matcher":"Bash","timeout":1,"hang":true}]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":true}]}}
					{"type":"assistant"}
					{"type":"result","subtype":"success","is_error":false}`,
				Callbacks: `
					{"event":"hook","name":"PreToolUse"}
					{"event":"hook","cancelled":true}`,
			}},
			Check: file("made.txt", ""),
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
			Name:  "tool-in-process",
			Says:  "A tool that is a function of the host.",
			Needs: []string{"mcp"},
			API: script(
				pt.Expect(mentions("mcp__calc__add")).Call("mcp__calc__add", `{"a":1,"b":2}`),
				pt.Expect(pt.ToolResult("three")).Say("Three."),
			),
			Runs: []Run{{
				Job: `{"prompt":"One and two?","options":{` + options + `,"allowedTools":["mcp__calc__add"]},"tools":{"calc":[
					{"name":"add","description":"Adds.","input":{"a":"number","b":"number"},"result":{"content":[{"type":"text","text":"three"}]}}]}}`,
				Messages: `
					{"type":"system","subtype":"init","tools":["...","mcp__calc__add"],"mcp_servers":[{"name":"calc","status":"connected"}]}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"mcp__calc__add","input":{"a":1,"b":2}}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","content":[{"type":"text","text":"three"}]}]}}
					{"type":"assistant"}
					{"type":"result","subtype":"success","num_turns":2,"result":"Three."}`,
				Callbacks: `{"event":"tool","server":"calc","name":"add","args":{"a":1,"b":2}}`,
			}},
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
			Name:  "tool-error",
			Says:  "A tool of the host fails; the model is told.",
			Needs: []string{"mcp"},
			API: script(
				pt.Call("mcp__calc__add", `{"a":1,"b":2}`),
				pt.Expect(pt.ToolError("out of numbers")).Say("It cannot."),
			),
			Runs: []Run{{
				Job: `{"prompt":"One and two?","options":{` + options + `,"allowedTools":["mcp__calc__add"]},"tools":{"calc":[
					{"name":"add","input":{"a":"number","b":"number"},"result":{"content":[{"type":"text","text":"out of numbers"}],"isError":true}}]}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":true}]}}
					{"type":"assistant"}
					{"type":"result","subtype":"success","is_error":false}`,
				Callbacks: `{"event":"tool","name":"add"}`,
			}},
		},
		{
			Name:  "mcp-stdio",
			Says:  "An MCP server that is a process; its status.",
			Needs: []string{"mcp"},
			API: script(
				pt.Call("mcp__text__reverse", `{"text":"drawer"}`),
				pt.Expect(pt.ToolResult("reward")).Say("Reward."),
			),
			Runs: []Run{{
				Job: `{"options":{` + options + `,"allowedTools":["mcp__text__reverse"],"mcpServers":{
					"text":{"type":"stdio","command":"${exe}","args":[],"env":{"PARLEY_INTEROP_ROLE":"server"}},
					"broken":{"type":"stdio","command":"${dir}/not-there","args":[]}}},"steps":[
					{"send":"Turn drawer around."},{"until":{"type":"result"}},{"call":"mcpServerStatus"}]}`,
				Messages: `
					{"type":"system","subtype":"init","tools":["...","mcp__text__reverse"],"mcp_servers":["...",{"name":"text","status":"connected"},{"name":"broken","status":"failed"}]}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"mcp__text__reverse"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","content":[{"type":"text","text":"reward"}]}]}}
					{"type":"assistant"}
					{"type":"result","subtype":"success","result":"Reward."}`,
				Calls: `{"event":"call","method":"mcpServerStatus","error":null,"result":["...",{"name":"text","status":"connected","serverInfo":{"name":"*"},"tools":["...",{"name":"reverse"}]},{"name":"broken","status":"failed"}]}`,
			}},
		},
		{
			Name:  "elicitation",
			Says:  "An MCP server asks the user; the host answers.",
			Needs: []string{"mcp"},
			Not:   []string{"py", "py-stand-in"}, // their SDK has no callback for it
			API: script(
				pt.Call("mcp__text__ask", `{"question":"Which colour?"}`),
				pt.Expect(pt.ToolResult("blue")).Say("Blue."),
			),
			Runs: []Run{{
				Job: `{"prompt":"Ask.","options":{` + options + `,"allowedTools":["mcp__text__ask"],"mcpServers":{
					"text":{"type":"stdio","command":"${exe}","args":[],"env":{"PARLEY_INTEROP_ROLE":"server"}}}},
					"elicitation":{"answer":{"action":"accept","content":{"answer":"blue"}}}}`,
				Messages: `
					{"type":"system","subtype":"init","mcp_servers":[{"name":"text","status":"connected"}]}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"mcp__text__ask"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","content":[{"type":"text","text":"blue"}]}]}}
					{"type":"assistant"}
					{"type":"result","subtype":"success","result":"Blue."}`,
				Callbacks: `{"event":"elicitation","request":{"message":"Which colour?"}}`,
			}},
		},
		{
			Name:  "structured-output",
			Says:  "The answer has to fit a schema; a first one that does not is asked for again.",
			Needs: []string{"structured"},
			API: script(
				pt.Expect(pt.Tools("StructuredOutput")).Call("StructuredOutput", `{"name":"Ada"}`),
				pt.Expect(pt.ToolError("")).Call("StructuredOutput", `{"name":"Ada","age":36}`),
			),
			Runs: []Run{{
				Job: `{"prompt":"Who?","options":{` + options + `,"outputFormat":{"type":"json_schema","schema":{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"]}}}}`,
				Messages: `
					{"type":"system","subtype":"init","tools":["...","StructuredOutput"]}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"StructuredOutput","input":{"name":"Ada"}}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":true}]}}
					{"type":"assistant","message":{"content":[{"type":"tool_use","name":"StructuredOutput","input":{"name":"Ada","age":36}}]}}
					{"type":"user","message":{"content":[{"type":"tool_result"}]}}
					{"type":"result","subtype":"success","is_error":false,"structured_output":{"name":"Ada","age":36},"stop_reason":"tool_use"}`,
			}},
		},
		{
			Name: "interrupt",
			Says: "The host interrupts an answer that is being written; the next turn runs.",
			API: script(
				pt.Say("I will ", "never end").Stall().After(3),
				pt.Expect(pt.LastUser("Are you there")).Say("Yes."),
			),
			Runs: []Run{{
				Job: `{"options":{` + options + `,"includePartialMessages":true},"steps":[
					{"send":"Talk."},{"until":{"type":"stream_event","event":{"type":"content_block_delta"}}},
					{"call":"interrupt"},{"until":{"type":"result"}},
					{"send":"Are you there?"},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"stream_event","event":{"type":"message_start"}}
					{"type":"stream_event","event":{"type":"content_block_start"}}
					{"type":"stream_event","event":{"type":"content_block_delta","delta":{"text":"I will "}}}
					{"type":"assistant","aborted":true,"message":{"content":[{"type":"text","text":"I will "}]}}
					{"type":"user","message":{"content":[{"type":"text","text":"[Request interrupted by user]"}]}}
					{"type":"stream_event","event":{"type":"content_block_stop"}}
					{"type":"stream_event","event":{"type":"message_delta","delta":{"stop_reason":null}}}
					{"type":"stream_event","event":{"type":"message_stop"}}
					{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_streaming","num_turns":2,"errors":["*"]}
					{"type":"system","subtype":"init"}
					{"type":"stream_event","event":{"type":"message_start"}}
					{"type":"stream_event","event":{"type":"content_block_start"}}
					{"type":"stream_event","event":{"type":"content_block_delta","delta":{"text":"Yes."}}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Yes."}]}}
					{"type":"stream_event","event":{"type":"content_block_stop"}}
					{"type":"stream_event","event":{"type":"message_delta"}}
					{"type":"stream_event","event":{"type":"message_stop"}}
					{"type":"result","subtype":"success","is_error":false,"result":"Yes."}`,
				Calls: `{"event":"call","method":"interrupt","error":null}`,
			}},
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
			Name: "interrupt-permission",
			Says: "The host interrupts while it is being asked; the question is taken back.",
			API:  script(pt.Call("Bash", bash("touch made.txt")), pt.Expect(pt.LastUser("Are you there")).Say("Yes.")),
			Runs: []Run{{
				Job: `{"options":{` + options + `},"canUseTool":[{"mark":"${dir}.asked","hang":true}],"steps":[
					{"send":"Make a file."},{"until":{"type":"assistant"}},{"await":"${dir}.asked"},
					{"call":"interrupt"},{"until":{"type":"result"}},
					{"send":"Are you there?"},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","is_error":true}]}}
					{"type":"user","message":{"content":[{"type":"text","text":"[Request interrupted by user for tool use]"}]}}
					{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools"}
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Yes."}]}}
					{"type":"result","subtype":"success","is_error":false}`,
				Callbacks: `
					{"event":"canUseTool","tool":"Bash"}
					{"event":"canUseTool","cancelled":true}`,
				Calls: `{"event":"call","method":"interrupt","error":null}`,
			}},
			Check: file("made.txt", ""),
		},
		{
			Name: "set-model",
			Says: "The host changes the model between turns.",
			// A CLI may try a model before it accepts it.
			API: func(string) *pt.Scenario {
				return pt.Script(
					pt.Expect(pt.ModelName("claude-sonnet-4-5")).Say("Sonnet."),
					pt.Expect(pt.ModelName("claude-opus-4-5"), pt.LastUser("And now")).Say("Opus."),
				).When("probe", pt.Field("max_tokens", "1").Exact()).Default(pt.Say("Hi.").Stop("max_tokens"))
			},
			Runs: []Run{{
				Job: `{"options":{` + options + `},"steps":[
					{"send":"Who are you?"},{"until":{"type":"result"}},
					{"call":"setModel","args":["claude-opus-4-5"]},
					{"send":"And now?"},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init","model":"claude-sonnet-4-5"}
					{"type":"assistant","message":{"model":"claude-sonnet-4-5"}}
					{"type":"result","subtype":"success"}
					{"type":"user","isReplay":true,"message":{"content":"~claude-opus-4-5"}}
					{"type":"system","subtype":"init","model":"claude-opus-4-5"}
					{"type":"assistant","message":{"model":"claude-opus-4-5","content":[{"type":"text","text":"Opus."}]}}
					{"type":"result","subtype":"success","modelUsage":{"claude-sonnet-4-5":{"costUSD":"*"},"claude-opus-4-5":{"costUSD":"*"}}}`,
				Calls: `{"event":"call","method":"setModel","error":null}`,
			}},
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
			Name:  "mcp-status",
			Says:  "The host asks for the state of servers.",
			Needs: []string{"mcp"},
			API:   script(pt.Say("Hello.")),
			Runs: []Run{{
				Job: `{"options":{` + options + `},"tools":{"calc":[{"name":"add","input":{"a":"number"}}]},"steps":[
					{"send":"Hello."},{"until":{"type":"result"}},
					{"call":"mcpServerStatus"}]}`,
				Messages: `
					{"type":"system","subtype":"init","mcp_servers":[{"name":"calc","status":"connected"}]}
					{"type":"assistant"}
					{"type":"result","subtype":"success"}`,
				// Before the first turn it is a race whether the server is connected yet.
				Calls: `
					{"event":"call","method":"mcpServerStatus","error":null,"result":[{"name":"calc","status":"connected","serverInfo":{"name":"calc","version":"1.0.0"},"tools":[{"name":"add"}]}]}`,
			}},
		},
		{
			Name: "queued",
			Says: "A message that comes while a tool runs joins the turn.",
			API: script(
				pt.Call("Bash", bash("until [ -e sent ]; do sleep 0.1; done; echo slept")),
				pt.Expect(pt.ToolResult("slept"), mentions("and hurry up")).Say("Both."),
			),
			Runs: []Run{{
				Job: `{"options":{` + options + `,"allowedTools":["Bash"]},"steps":[
					{"send":"Sleep."},{"until":{"type":"assistant"}},{"send":"and hurry up"},{"call":"mcpServerStatus"},{"mark":"${dir}/sent"},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","content":"slept"}]}}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Both."}]}}
					{"type":"result","subtype":"success","num_turns":2,"result":"Both."}`,
				// Its response shows that the CLI has read the previous message.
				Calls: `{"event":"call","method":"mcpServerStatus","error":null}`,
			}},
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
			Name: "image",
			Says: "A picture with the prompt reaches the model.",
			API:  script(pt.Expect(pt.LastUser("What is this"), mentions(`"image/png"`), mentions(`"type":"image"`)).Say("A pixel.")),
			Runs: []Run{{
				Job: `{"options":{` + options + `},"steps":[
					{"send":[{"type":"text","text":"What is this?"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + pixel + `"}}]},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"A pixel."}]}}
					{"type":"result","subtype":"success","result":"A pixel."}`,
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
			Name: "continue",
			Says: "A second process goes on with the last session of the directory.",
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
				{Job: `{"prompt":"What is the word?","options":{` + options + `,"continue":true}}`,
					Messages: `
						{"type":"system","subtype":"init","session_id":"${before}"}
						{"type":"assistant","message":{"content":[{"type":"text","text":"Plum."}]}}
						{"type":"result","subtype":"success","result":"Plum."}`},
			},
			Check: same(true),
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
			Name: "session-id",
			Says: "The host chooses the id of the session.",
			API:  script(pt.Say("Hello.")),
			Runs: []Run{{
				Job: `{"prompt":"Hello.","options":{` + options + `,"sessionId":"4b5a8f6e-2f6e-4d5b-9c1e-0f4d6f7f8a9b"}}`,
				Messages: `
					{"type":"system","subtype":"init","session_id":"4b5a8f6e-2f6e-4d5b-9c1e-0f4d6f7f8a9b"}
					{"type":"assistant","session_id":"4b5a8f6e-2f6e-4d5b-9c1e-0f4d6f7f8a9b"}
					{"type":"result","subtype":"success","session_id":"4b5a8f6e-2f6e-4d5b-9c1e-0f4d6f7f8a9b"}`,
			}},
			Check: transcript("Hello."),
		},
		{
			Name:  "api-401",
			Says:  "A key that is refused: retried, then an error result.",
			Needs: []string{"retry-401"}, // ours does not retry: a rejected key stays rejected
			Env:   map[string]string{"CLAUDE_CODE_MAX_RETRIES": "1"},
			API:   script(pt.Fail(401, "invalid x-api-key").Times(2)),
			Runs: []Run{{
				Job: `{"prompt":"Hello.","options":{` + options + `}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"system","subtype":"api_retry","attempt":1,"max_retries":1,"error_status":401,"error":"authentication_failed","retry_delay_ms":"*"}
					{"type":"assistant","error":"authentication_failed","message":{"model":"<synthetic>","content":[{"type":"text","text":"*"}]}}
					{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error","api_error_status":401,"result":"*"}`,
				Fails: true,
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
			Name: "slash-compact",
			Says: "/compact puts a summary in the place of what was said, and the conversation goes on from it; /context is answered without the model.",
			API: script(
				pt.Expect(pt.LastUser("My name is Ada")).Say("Hello, Ada."),
				pt.Expect(pt.LastUser("And I like otters")).Say("So do I."),
				pt.Say("<summary>SUMMARY of Ada</summary>"),
				pt.Expect(pt.LastUser("Who am I"), mentions("SUMMARY of Ada")).Say("You are Ada."),
			),
			Runs: []Run{{
				Job: `{"options":{` + options + `},"steps":[
					{"send":"My name is Ada."},{"until":{"type":"result"}},
					{"send":"And I like otters."},{"until":{"type":"result"}},
					{"send":"/compact"},{"until":{"type":"result"}},
					{"send":"Who am I?"},{"until":{"type":"result"}},
					{"send":"/context"},{"until":{"type":"result"}}]}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant"}
					{"type":"result","subtype":"success","result_index":0}
					{"type":"system","subtype":"init"}
					{"type":"assistant"}
					{"type":"result","subtype":"success","result_index":1}
					{"type":"system","subtype":"status","status":"compacting"}
					{"type":"system","subtype":"status","status":null,"compact_result":"success"}
					{"type":"system","subtype":"init"}
					{"type":"system","subtype":"compact_boundary","compact_metadata":{"trigger":"manual"}}
					{"type":"user","message":{"content":"~SUMMARY of Ada"}}
					{"type":"user","isReplay":true,"message":{"content":"~local-command-stdout"}}
					{"type":"result","subtype":"success","num_turns":0,"local_command":"compact"}
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"You are Ada."}]}}
					{"type":"result","subtype":"success","result":"You are Ada."}
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"model":"<synthetic>","content":[{"type":"text","text":"~Context Usage"}]}}
					{"type":"result","subtype":"success","num_turns":0,"local_command":"context"}`,
			}},
		},
		{
			Name: "api-400",
			Says: "A request that the API does not take: an error result.",
			API:  script(pt.Fail(400, "the request is not to our taste").Always()),
			Runs: []Run{{
				Job: `{"prompt":"Hello.","options":{` + options + `}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","error":"unknown","message":{"model":"<synthetic>","content":[{"type":"text","text":"~not to our taste"}]}}
					{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error","api_error_status":400,"result":"~not to our taste"}`,
				Fails: true,
			}},
		},
		{
			Name: "api-529",
			Says: "An API that is overloaded once: retried, and all is well.",
			API:  script(pt.Fail(529), pt.Say("Hello.")),
			Runs: []Run{{
				Job: `{"prompt":"Hello.","options":{` + options + `}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"system","subtype":"api_retry","attempt":1,"max_retries":"*","error_status":529,"error":"overloaded"}
					{"type":"assistant","message":{"content":[{"type":"text","text":"Hello."}]}}
					{"type":"result","subtype":"success","is_error":false,"result":"Hello."}`,
			}},
		},
		{
			Name: "max-turns",
			Says: "The model wants more rounds than it may have.",
			API:  script(pt.Call("Bash", bash("echo one"))),
			Runs: []Run{{
				Job: `{"prompt":"Go on and on.","options":{` + options + `,"maxTurns":1}}`,
				Messages: `
					{"type":"system","subtype":"init"}
					{"type":"assistant","message":{"content":[{"type":"tool_use"}]}}
					{"type":"user","message":{"content":[{"type":"tool_result","content":"one"}]}}
					{"type":"result","subtype":"error_max_turns","is_error":true,"num_turns":2,"terminal_reason":"max_turns","stop_reason":"tool_use","errors":["*"]}`,
				Fails: true,
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
