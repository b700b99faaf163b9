package agent_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestDescribedCommands runs command lines as in the descriptions of the protocol, and
// compares the output.
func TestDescribedCommands(t *testing.T) {
	for _, tt := range []struct {
		name, model string
		args        []string
		kinds       string // of all lines
		line        int    // the one that must have members
		members     string
	}{
		{"every message", "turn\n\tsay Four.", []string{"--print", "--output-format", "stream-json", "--verbose", "--model", "sonnet", "--max-turns", "5", "--max-budget-usd", "0.50", "--", "How much is two and two?"},
			"system/init assistant result", 0,
			"uuid session_id cwd model tools mcp_servers permissionMode apiKeySource slash_commands agents claude_code_version output_style skills plugins timestamp"},
		{"the members of a result", "turn\n\tsay Four.", []string{"-p", "--output-format", "stream-json", "--verbose", "--", "How much?"}, "system/init assistant result", 2,
			"subtype uuid session_id is_error duration_ms duration_api_ms num_turns result total_cost_usd usage modelUsage permission_denials timestamp"},
		{"messages without tokens", "turn\n\tsay Four.", []string{"--print", "--output-format", "message", "--", "How much?"}, "system/init assistant result", 1,
			"message parent_tool_use_id session_id uuid timestamp"},
		{"tokens", "turn\n\tsay \"Fo\" \"ur.\"", []string{"-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages", "--", "How much?"},
			"system/init system/status stream_event stream_event stream_event stream_event assistant stream_event stream_event stream_event result", 4,
			"event uuid session_id parent_tool_use_id"},
		{"another system prompt", "turn\n\texpect system You are brief.\n\tsay Four.", []string{"-p", "--system-prompt", "You are brief.", "--output-format", "message", "--", "How much?"}, "system/init assistant result", 1, "message"},
		{"a longer system prompt", "turn\n\texpect system Look at Ruby.\n\tsay Four.", []string{"-p", "--append-system-prompt", "Look at Ruby.", "--output-format", "message", "--", "How much?"}, "system/init assistant result", 1, "message"},
		{"a whitelist", "turn\n\tcall Write {\"file_path\":\"$DIR/new\",\"content\":\"x\"}\nturn\n\texpect tool-error needs approval\n\tsay No.", []string{"-p", "--allowed-tools", "Read,Glob,Grep", "--output-format", "message", "--", "Find"},
			"system/init assistant system/permission_denied user assistant result", 5, "permission_denials"},
		{"a blacklist", "turn\n\texpect not tools Write\n\texpect not tools Bash\n\tsay No.", []string{"-p", "--disallowed-tools", "Bash,Write,Edit", "--output-format", "message", "--", "Look"}, "system/init assistant result", 2, "result"},
		{"inputs of tools", `turn
	call Read {"file_path":"$DIR/a.rb","offset":0,"limit":2000}
	call Glob {"pattern":"**/*.rb","path":"$DIR"}
	call Grep {"pattern":"def\\s+\\w+","path":"$DIR","glob":"*.rb","output_mode":"content","-i":true,"-n":true,"-C":3,"head_limit":100}
turn
	expect not tool-error
	expect result def ruby
	call Edit {"file_path":"$DIR/a.rb","old_string":"ruby","new_string":"gem","replace_all":false}
	call Bash {"command":"cat a.rb","timeout":120000,"description":"Show it","run_in_background":false}
	call TodoWrite {"todos":[{"content":"Look","status":"pending","activeForm":"Looking"}]}
	call TodoWrite {"subject":"Look","description":"At it"}
turn
	expect not tool-error
	expect result def gem
	say Done.`, []string{"--dangerously-skip-permissions", "--print", "--output-format", "message", "--", "Look"},
			"system/init assistant assistant assistant user user user assistant assistant assistant assistant user user user user assistant result", 5,
			"message tool_use_result parent_tool_use_id session_id uuid"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "a.rb"), "def ruby\nend\n")
			scenario, err := parleytest.ParseScript(tt.name, []byte(strings.ReplaceAll(tt.model, "$DIR", filepath.ToSlash(dir))))
			if err != nil {
				t.Fatal(err)
			}
			m := scenario.Model()
			m.Strict = true
			var out, stderr safeBuffer
			if code := agent.Run(context.Background(), agent.Config{Cwd: dir, Model: m, Store: &session.Memory{}}, tt.args, strings.NewReader(""), &out, &stderr); code != 0 || stderr.String() != "" {
				t.Fatalf("exit status %d, %s", code, stderr.String())
			}
			if err := m.Done(); err != nil {
				t.Error(err)
			}
			var all []wire.Message
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			for _, line := range lines {
				msg, err := wire.Decode([]byte(line))
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, msg)
			}
			if got := kinds(all); got != tt.kinds {
				t.Fatalf("the lines are\n%s\nnot\n%s", got, tt.kinds)
			}
			var members map[string]json.RawMessage
			if err := json.Unmarshal([]byte(lines[tt.line]), &members); err != nil {
				t.Fatal(err)
			}
			for name := range strings.FieldsSeq(tt.members) {
				if _, ok := members[name]; !ok {
					t.Errorf("line %d has no %s", tt.line, name)
				}
			}
		})
	}
}

// TestDescribedLines plays hosts that follow a description to the letter.
func TestDescribedLines(t *testing.T) {
	const greet = `> {"type":"control_request","request_id":"greet","request":{"subtype":"initialize","protocolVersion":"1.0","features":[]}}
< {"type":"control_response","response":{"subtype":"success","request_id":"greet"}}
> {"type":"user","message":{"role":"user","content":[{"type":"text","text":"hi"}]},"session_id":"3f1c0de5-0000-4000-8000-0000005e5510"}
`
	for _, tt := range []struct{ name, text string }{
		{"greeting with a version is asking to be asked", `
-- model --
turn
	call Write {"file_path":"$DIR/one","content":"x"}
turn
	expect not tool-error
	call AskUserQuestion {"questions":[{"header":"Which","question":"Which box?","multiSelect":false,"options":[{"label":"A file"},{"label":"A container"}]}]}
turn
	expect result A container
	call Write {"file_path":"$DIR/two","content":"x"}
turn
	expect tool-error not that one
	say done
-- steps --
ignore {"type":"assistant"}
` + greet + `< {"type":"system","subtype":"init"}
< {"type":"control_request","request_id":"$one","request":{"subtype":"can_use_tool","tool_name":"Write","tool_use_id":"$_","input":{"content":"x"}}}
> {"type":"control_response","response":{"subtype":"success","request_id":"$one","response":{"behavior":"allow","updatedInput":{"file_path":"$DIR/one","content":"y"}}}}
< {"type":"user"}
< {"type":"control_request","request_id":"$two","request":{"subtype":"can_use_tool","tool_name":"AskUserQuestion","input":{"questions":["$_"]}}}
> {"type":"control_response","response":{"subtype":"success","request_id":"$two","response":{"behavior":"allow","updatedInput":{"questions":[{"question":"Which box?","options":[{"label":"A file"},{"label":"A container"}]}],"answers":{"Which box?":"A container"}}}}}
< {"type":"user"}
< {"type":"control_request","request_id":"$three","request":{"subtype":"can_use_tool","tool_name":"Write"}}
> {"type":"control_response","response":{"subtype":"success","request_id":"$three","response":{"behavior":"deny","message":"not that one"}}}
< {"type":"user"}
< {"type":"result","subtype":"success","permission_denials":[{"tool_name":"Write"}]}
close
< eof
`},
		{"a plan is shown, revised and approved", `
-- model --
turn
	call ExitPlanMode {"plan":"1. Write."}
turn
	expect tool-error mind the errors
	call ExitPlanMode {"plan":"1. Write, and mind errors."}
turn
	expect result approved
	say done
-- steps --
argv ["--permission-mode","plan"]
ignore {"type":"assistant"}
` + greet + `< {"type":"system","subtype":"init","permissionMode":"plan"}
< {"type":"control_request","request_id":"$one","request":{"subtype":"can_use_tool","tool_name":"ExitPlanMode","input":{"plan":"1. Write."}}}
> {"type":"control_response","response":{"subtype":"success","request_id":"$one","response":{"behavior":"deny","message":"mind the errors"}}}
< {"type":"user"}
< {"type":"control_request","request_id":"$two","request":{"subtype":"can_use_tool","tool_name":"ExitPlanMode"}}
> {"type":"control_response","response":{"subtype":"success","request_id":"$two","response":{"behavior":"allow","updatedInput":{"plan":"1. Write, and mind errors."}}}}
< {"type":"system","subtype":"status","permissionMode":"default"}
< {"type":"user"}
< {"type":"result","result":"done"}
close
< eof
`},
		{"without a version nobody is asked", `
-- model --
turn
	call Write {"file_path":"$DIR/one","content":"x"}
turn
	expect tool-error needs approval
	say done
-- steps --
ignore {"type":"assistant"}
` + strings.Replace(greet, `,"protocolVersion":"1.0","features":[]`, "", 1) + `< {"type":"system","subtype":"init"}
< {"type":"system","subtype":"permission_denied","tool_name":"Write"}
< {"type":"user"}
< {"type":"result","result":"done"}
close
< eof
`},
		{"prompts in all their forms", `
-- model --
turn
	expect user one
	say first
turn
	expect user two
	say second
-- steps --
ignore {"type":"assistant"}
> {"type":"keep_alive"}
> {"type":"user","message":{"role":"user","content":"one"},"session_id":"default"}
< {"type":"system","subtype":"init"}
< {"type":"result","result":"first"}
> {"type":"user","session_id":"","message":{"role":"user","content":[{"type":"text","text":"two"}]},"parent_tool_use_id":null}
< {"type":"system","subtype":"init"}
< {"type":"result","result":"second"}
close
< eof
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) { playScript(t, tt.name, tt.text, filepath.ToSlash(dir)) })
		})
	}
}
