package interop

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"

	pt "github.com/parley-go/parley/parleytest"
)

// A toolCall is one tool call in a scenario about the tool.
type toolCall struct {
	name  string
	input map[string]any // in texts, ${dir} is the project directory and ${task} the last task in a result
	fails bool
}

// toolScenario calls tools one after the other, each in its own turn: with valid and
// invalid input. TestParleyLikeClaude compares the results; here only failures are
// checked.
func toolScenario(name, says string, files map[string]string, calls ...toolCall) *Scenario {
	allowed := map[string]bool{}
	var tools []string
	messages := `{"type":"system","subtype":"init"}`
	for i, c := range calls {
		if !allowed[c.name] {
			allowed[c.name] = true
			tools = append(tools, `"`+c.name+`"`)
		}
		// A successful result need not say so.
		result := fmt.Sprintf(`{"type":"tool_result","tool_use_id":"toolu_main_%d_1"}`, i+1)
		if c.fails {
			result = fmt.Sprintf(`{"type":"tool_result","tool_use_id":"toolu_main_%d_1","is_error":true}`, i+1)
		}
		messages += fmt.Sprintf("\n{\"type\":\"assistant\",\"message\":{\"content\":[{\"type\":\"tool_use\",\"name\":%q}]}}\n{\"type\":\"user\",\"message\":{\"content\":[%s]}}", c.name, result)
	}
	messages += "\n" + `{"type":"assistant","message":{"content":[{"type":"text","text":"Done."}]}}` + "\n" + `{"type":"result","subtype":"success"}`
	list := strings.Join(tools, ",")
	return &Scenario{
		Name: name, Says: says, Files: files,
		API: func(dir string) *pt.Scenario {
			var turns []*pt.Turn
			task := ""
			for _, c := range calls {
				turns = append(turns, pt.Call(c.name, func(r *pt.Request) any {
					for _, res := range r.ToolResults() {
						if m := taskRE.FindStringSubmatch(res.Text); m != nil {
							task = m[1]
						}
					}
					vars := strings.NewReplacer("${dir}", dir, "${task}", task)
					input := map[string]any{}
					for k, v := range c.input {
						if s, ok := v.(string); ok {
							v = vars.Replace(s)
						}
						input[k] = v
					}
					return input
				}))
			}
			return pt.Script(append(turns, pt.Say("Done."))...)
		},
		Runs: []Run{{
			Job:      `{"prompt":"Use the tools.","options":{` + options + `,"tools":[` + list + `],"allowedTools":[` + list + `],"permissionMode":"acceptEdits"}}`,
			Messages: messages,
		}},
	}
}

// taskRE matches a background task in a result.
var taskRE = regexp.MustCompile(`ID: (b[0-9a-z]{8})\b`)

// with adds members to the options and the job of a scenario.
func (s *Scenario) with(options, job, callbacks string) *Scenario {
	run := &s.Runs[0]
	run.Job = strings.TrimSuffix(run.Job, "}}") + options + "}" + job + "}"
	run.Callbacks = callbacks
	return s
}

// suggestions asks about commands, one after the other: the question about each, and
// the suggestions that would avoid asking again.
func suggestions(name, says string, commands ...string) *Scenario {
	var calls []toolCall
	var callbacks strings.Builder
	for _, c := range commands {
		calls = append(calls, toolCall{"Bash", bash(c), true})
		fmt.Fprintf(&callbacks, "{\"event\":\"canUseTool\",\"tool\":\"Bash\",\"input\":{\"command\":%q}}\n", c)
	}
	s := toolScenario(name, says, map[string]string{"a.txt": "x\n", "sub/x": ""}, calls...).
		with("", `,"canUseTool":[{"answer":{"behavior":"deny","message":"no"}}]`, callbacks.String())
	s.Runs[0].Job = strings.Replace(s.Runs[0].Job, `,"allowedTools":["Bash"],"permissionMode":"acceptEdits"`, "", 1)
	return s
}

// environment sets additional environment variables for the CLI of a scenario.
func environment(vars map[string]string, s *Scenario) *Scenario {
	s.Env = vars
	return s
}

// searching answers the requests that search the web: the model calls the provider's
// tool, which returns a result.
func searching(s *Scenario) *Scenario {
	main := s.API
	s.API = func(dir string) *pt.Scenario {
		return main(dir).When("search", mentions("web_search_2025"),
			pt.Block(`{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"parley the word"}}`).
				Block(`{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","title":"Parley","url":"https://example.com/parley","encrypted_content":"x","page_age":null}]}`).
				Say("It is a talk between enemies."))
	}
	return s
}

// after adds a line after the result of a call.
func (s *Scenario) after(call int, pattern string) *Scenario {
	run := &s.Runs[0]
	end := fmt.Sprintf(`"toolu_main_%d_1"}]}}`, call)
	run.Messages = strings.Replace(run.Messages, end, end+"\n"+pattern, 1)
	return s
}

func decoded(s string) string {
	data, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return string(data)
}

const (
	notebook = `{"cells":[{"cell_type":"code","id":"c1","metadata":{},"source":["x = 1\n","x"],"outputs":[{"output_type":"execute_result","execution_count":1,"metadata":{},"data":{"text/plain":["1"]}}],"execution_count":1},{"cell_type":"markdown","id":"m1","metadata":{},"source":["# Title"]}],"metadata":{"language_info":{"name":"python"}},"nbformat":4,"nbformat_minor":5}`
	document = "%PDF-1.4\n1 0 obj\n<</Type/Catalog/Pages 2 0 R>>\nendobj\n2 0 obj\n<</Type/Pages/Kids[3 0 R]/Count 1>>\nendobj\n3 0 obj\n<</Type/Page/Parent 2 0 R/MediaBox[0 0 72 72]>>\nendobj\nxref\n0 4\n0000000000 65535 f \n0000000009 00000 n \n0000000054 00000 n \n0000000105 00000 n \ntrailer\n<</Size 4/Root 1 0 R>>\nstartxref\n168\n%%EOF\n"
)

type in = map[string]any

// toolScenarios returns the scenarios about each tool.
func toolScenarios() []*Scenario {
	return []*Scenario{
		toolScenario("tool-read", "Read: text, ranges, pictures, notebooks, and what cannot be read.",
			map[string]string{"a.txt": "one\ntwo\nthree\nfour\n", "noend.txt": "one\ntwo", "empty.txt": "", "crlf.txt": "one\r\ntwo\r\n", "p.png": decoded(pixel), "n.ipynb": notebook, "bin.dat": "\x00\x01\x02\xff\xfe", "latin.txt": "caf\xe9\n", "dir/x": "", "d.pdf": document, "bad.ipynb": "{", "bad.png": "no picture"},
			toolCall{"Read", in{"file_path": "${dir}/a.txt"}, false},
			toolCall{"Read", in{"file_path": "${dir}/a.txt", "offset": 2, "limit": 1}, false},
			toolCall{"Read", in{"file_path": "${dir}/a.txt", "offset": 4}, false},
			toolCall{"Read", in{"file_path": "${dir}/a.txt", "offset": 100}, false},
			toolCall{"Read", in{"file_path": "${dir}/a.txt"}, false},
			toolCall{"Read", in{"file_path": "${dir}/noend.txt"}, false},
			toolCall{"Read", in{"file_path": "${dir}/empty.txt"}, false},
			toolCall{"Read", in{"file_path": "${dir}/crlf.txt"}, false},
			toolCall{"Read", in{"file_path": "${dir}/latin.txt"}, false},
			toolCall{"Read", in{"file_path": "${dir}/p.png"}, false},
			toolCall{"Read", in{"file_path": "${dir}/n.ipynb"}, false},
			toolCall{"Read", in{"file_path": "${dir}/d.pdf"}, false},
			toolCall{"Read", in{"file_path": "${dir}/missing.txt"}, true},
			toolCall{"Read", in{"file_path": "${dir}/dir"}, true},
			toolCall{"Read", in{"file_path": "${dir}/bad.ipynb"}, true},
			toolCall{"Read", in{"file_path": "${dir}/a.txt", "pages": "1"}, false},
			toolCall{"Read", in{}, true},
			toolCall{"Read", in{"file_path": "${dir}/a.txt", "offset": "x"}, true},
			toolCall{"Read", in{"file_path": 7}, true},
			toolCall{"Read", in{"file_path": "${dir}/a.txt", "surprise": true}, true},
		),
		toolScenario("tool-write", "Write: new files, files over others, and what is refused.",
			map[string]string{"a.txt": "one\ntwo\n", "b.txt": "never read\n", "dir/x": ""},
			toolCall{"Write", in{"file_path": "${dir}/new/deep/c.txt", "content": "c\n"}, false},
			toolCall{"Write", in{"file_path": "${dir}/b.txt", "content": "over\n"}, true},
			toolCall{"Read", in{"file_path": "${dir}/a.txt"}, false},
			toolCall{"Write", in{"file_path": "${dir}/a.txt", "content": "one\nthree\n"}, false},
			toolCall{"Write", in{"file_path": "${dir}/a.txt", "content": "one\nthree\n"}, false},
			toolCall{"Write", in{"file_path": "${dir}/a.txt", "content": ""}, false},
			toolCall{"Write", in{"file_path": "${dir}/dir", "content": "x"}, true},
			toolCall{"Write", in{"file_path": "${dir}/a.txt"}, true},
		),
		toolScenario("tool-edit", "Edit: what is found once, often and never.",
			map[string]string{"a.txt": "red\ngreen\nred\n", "crlf.txt": "one\r\ntwo\r\n", "q.txt": "say “hello”\n", "other.txt": "x\n"},
			toolCall{"Edit", in{"file_path": "${dir}/other.txt", "old_string": "x", "new_string": "y"}, true},
			toolCall{"Read", in{"file_path": "${dir}/a.txt"}, false},
			toolCall{"Edit", in{"file_path": "${dir}/a.txt", "old_string": "green", "new_string": "blue"}, false},
			toolCall{"Edit", in{"file_path": "${dir}/a.txt", "old_string": "red", "new_string": "black"}, true},
			toolCall{"Edit", in{"file_path": "${dir}/a.txt", "old_string": "red", "new_string": "black", "replace_all": true}, false},
			toolCall{"Edit", in{"file_path": "${dir}/a.txt", "old_string": "nowhere", "new_string": "x"}, true},
			toolCall{"Edit", in{"file_path": "${dir}/a.txt", "old_string": "blue", "new_string": "blue"}, true},
			toolCall{"Edit", in{"file_path": "${dir}/missing.txt", "old_string": "a", "new_string": "b"}, true},
			toolCall{"Edit", in{"file_path": "${dir}/made.txt", "old_string": "", "new_string": "made\n"}, false},
			toolCall{"Edit", in{"file_path": "${dir}/a.txt", "old_string": "", "new_string": "x"}, true},
			toolCall{"Read", in{"file_path": "${dir}/q.txt"}, false},
			toolCall{"Edit", in{"file_path": "${dir}/q.txt", "old_string": "say \"hello\"", "new_string": "say \"bye\""}, false},
			toolCall{"Read", in{"file_path": "${dir}/crlf.txt"}, false},
			toolCall{"Edit", in{"file_path": "${dir}/crlf.txt", "old_string": "one\ntwo", "new_string": "one\n2"}, false},
			toolCall{"Edit", in{"file_path": "${dir}/a.txt", "old_string": "blue"}, true},
		),
		toolScenario("tool-notebookedit", "NotebookEdit: cells replaced, inserted and deleted, and what is no cell.",
			map[string]string{"n.ipynb": notebook, "a.txt": "x"},
			toolCall{"NotebookEdit", in{"notebook_path": "${dir}/n.ipynb", "cell_id": "c1", "new_source": "x = 2"}, true},
			toolCall{"Read", in{"file_path": "${dir}/n.ipynb"}, false},
			toolCall{"NotebookEdit", in{"notebook_path": "${dir}/n.ipynb", "cell_id": "c1", "new_source": "x = 2"}, false},
			toolCall{"NotebookEdit", in{"notebook_path": "${dir}/n.ipynb", "cell_id": "c1", "new_source": "text", "cell_type": "markdown", "edit_mode": "insert"}, false},
			toolCall{"NotebookEdit", in{"notebook_path": "${dir}/n.ipynb", "cell_id": "m1", "new_source": "", "edit_mode": "delete"}, false},
			toolCall{"NotebookEdit", in{"notebook_path": "${dir}/n.ipynb", "cell_id": "none", "new_source": "x"}, true},
			toolCall{"NotebookEdit", in{"notebook_path": "${dir}/a.txt", "cell_id": "c1", "new_source": "x"}, true},
			toolCall{"NotebookEdit", in{"notebook_path": "${dir}/missing.ipynb", "cell_id": "c1", "new_source": "x"}, true},
			toolCall{"NotebookEdit", in{"notebook_path": "${dir}/n.ipynb", "new_source": "x", "edit_mode": "insert"}, true},
		),
		toolScenario("tool-bash", "Bash: what commands print and how they end.",
			map[string]string{"sub/x": "", "p.png": decoded(pixel)},
			toolCall{"Bash", bash("echo out; echo err >&2"), false},
			toolCall{"Bash", bash("echo out; exit 7"), true},
			toolCall{"Bash", bash("true"), false},
			toolCall{"Bash", bash("echo"), false},
			toolCall{"Bash", bash("cd sub && pwd"), false},
			toolCall{"Bash", bash("pwd; cd /"), false},
			toolCall{"Bash", bash("grep nothing /dev/null"), false},
			toolCall{"Bash", bash("kill -9 $$"), true},
			toolCall{"Bash", bash("printf 'data:image/png;base64,'; base64 -w0 ${dir}/p.png"), false},
			toolCall{"Bash", bash("no-such-command-here"), true},
			toolCall{"Bash", bash("for i in $(seq 20000); do echo line $i; done"), false},
			toolCall{"Bash", bash("sleep 30"), true},
			toolCall{"Bash", in{"description": "nothing"}, true},
			toolCall{"Bash", in{"command": "true", "timeout": "soon"}, true},
		),
		suggestions("permission-suggestions", "What a host is told about commands, and what would spare it the question.",
			"touch made.txt", "touch p1", "touch 'a b'", "mkdir sub", "mkdir -p sub/deep", "mv a.txt b.txt", "tee f.txt",
			"npm run build", "git commit -m 'x y'", "go test ./...", "make", "make all", "./run.sh", "python3 x.py", "node -e '1'", "FOO=1 npm test", "npm test 2>&1", "curl https://example.com/",
			"cd sub && npm test", "npm test | tail", "npm test && npm run lint", "npm test; npm test",
			"cat /etc/passwd", "ls /etc", "touch /nowhere/zz", "cp /etc/hosts .",
		),
		toolScenario("tool-glob", "Glob: by pattern, in a directory, and where there is nothing.",
			map[string]string{"a.txt": "", "b.go": "", "sub/c.txt": "", "sub/deep/d.txt": "", ".gitignore": "out\n"},
			toolCall{"Glob", in{"pattern": "b.*"}, false},
			toolCall{"Glob", in{"pattern": "*.txt", "path": "${dir}/sub/deep"}, false},
			toolCall{"Glob", in{"pattern": "*.none"}, false},
			toolCall{"Glob", in{"pattern": "*", "path": "${dir}/nowhere"}, true},
			toolCall{"Glob", in{"pattern": "*", "path": "${dir}/a.txt"}, true},
			toolCall{"Glob", in{}, true},
		),
		toolScenario("tool-grep", "Grep: files, lines, counts, and patterns that are none.",
			map[string]string{"a.txt": "one\ntwo\nthree\none\n", "b.go": "// one\n", "sub/c.txt": "ONE\n"},
			toolCall{"Grep", in{"pattern": "two"}, false},
			toolCall{"Grep", in{"pattern": "nothing"}, false},
			toolCall{"Grep", in{"pattern": "two", "output_mode": "content"}, false},
			toolCall{"Grep", in{"pattern": "two", "output_mode": "content", "-C": 1, "-n": false}, false},
			toolCall{"Grep", in{"pattern": "nothing", "output_mode": "content"}, false},
			toolCall{"Grep", in{"pattern": "one", "output_mode": "count", "glob": "*.txt"}, false},
			toolCall{"Grep", in{"pattern": "nothing", "output_mode": "count"}, false},
			toolCall{"Grep", in{"pattern": "one", "output_mode": "content", "path": "${dir}/a.txt"}, false},
			toolCall{"Grep", in{"pattern": "o", "output_mode": "content", "path": "${dir}/a.txt", "head_limit": 1}, false},
			toolCall{"Grep", in{"pattern": "o", "output_mode": "content", "path": "${dir}/a.txt", "head_limit": 1, "offset": 1}, false},
			toolCall{"Grep", in{"pattern": "one", "type": "go"}, false},
			toolCall{"Grep", in{"pattern": "one.*two", "multiline": true}, false},
			toolCall{"Grep", in{"pattern": "("}, true},
			toolCall{"Grep", in{"pattern": "one", "type": "nonesuch"}, true},
			toolCall{"Grep", in{"pattern": "one", "path": "${dir}/nowhere"}, true},
			toolCall{"Grep", in{"pattern": "one", "output_mode": "all"}, true},
			toolCall{"Grep", in{}, true},
		),
		toolScenario("tool-background", "Bash in the background, by itself and past its time; tasks that are stopped.", nil,
			toolCall{"Bash", in{"command": "echo quick", "timeout": 60000}, false},
			toolCall{"Bash", in{"command": "echo begun; sleep 100; echo never", "description": "Waits", "run_in_background": true}, false},
			toolCall{"TaskStop", in{"task_id": "${task}"}, false},
			toolCall{"TaskStop", in{"task_id": "${task}"}, true},
			toolCall{"Bash", in{"command": "while true; do sleep 1; done", "timeout": 1000}, false}, // a command that prints may begin too late on a busy machine
			toolCall{"TaskStop", in{"shell_id": "${task}"}, false},
			toolCall{"Bash", in{"command": "true", "run_in_background": "maybe"}, true},
			toolCall{"Bash", in{"command": "true", "timeout": 99999999}, false},
			toolCall{"TaskStop", in{"task_id": 7}, true},
		),
		toolScenario("tool-tasks", "Tasks that are none.", nil,
			toolCall{"TaskStop", in{"task_id": "b00000000"}, true},
			toolCall{"TaskStop", in{}, true},
			toolCall{"TaskOutput", in{"task_id": "b00000000"}, true},
		),
		environment(map[string]string{"CLAUDE_CODE_ENABLE_TASKS": "0"}, toolScenario("tool-todowrite", "TodoWrite, where the official CLI has it: a list, another one, and what is no list.", nil,
			toolCall{"TodoWrite", in{"todos": []in{{"content": "Look", "status": "in_progress", "activeForm": "Looking"}, {"content": "Leap", "status": "pending", "activeForm": "Leaping"}}}, false},
			toolCall{"TodoWrite", in{"todos": []in{{"content": "Look", "status": "completed", "activeForm": "Looking"}}}, false},
			toolCall{"TodoWrite", in{"todos": []in{{"content": "Look", "status": "later", "activeForm": "Looking"}}}, true},
			toolCall{"TodoWrite", in{}, true},
		)),
		toolScenario("tool-skill", "Skill: one of a plugin, and none.",
			map[string]string{"plug/.claude-plugin/plugin.json": `{"name":"plug","version":"1.0.0","description":"A plugin."}`, "plug/skills/greet/SKILL.md": "---\nname: greet\ndescription: Greets somebody.\n---\nGreet $ARGUMENTS.\n"},
			toolCall{"Skill", in{"skill": "plug:greet", "args": "Ada"}, false},
			toolCall{"Skill", in{"skill": "nosuch"}, true},
			toolCall{"Skill", in{}, true},
		).with(`,"extraArgs":{"plugin-dir":"${dir}/plug"}`, "", "").after(1, `{"type":"user","message":{"content":[{"type":"text","text":"~Greet Ada"}]}}`),
		toolScenario("tool-agent", "Agent: input that is none.", nil,
			toolCall{"Agent", in{"description": "x", "prompt": "y", "subagent_type": "nosuch"}, true},
			toolCall{"Agent", in{"description": "x"}, true},
		),
		toolScenario("tool-ask", "AskUserQuestion: input that is none.", nil,
			toolCall{"AskUserQuestion", in{"questions": []in{}}, true},
			toolCall{"AskUserQuestion", in{"questions": []in{{"question": "Which?", "header": "It", "multiSelect": false, "options": []in{{"label": "One", "description": "1"}}}}}, true},
			toolCall{"AskUserQuestion", in{}, true},
		).with("", `,"canUseTool":[]`, ""),
		toolScenario("tool-plan", "EnterPlanMode and ExitPlanMode, with and without a plan.", nil,
			toolCall{"EnterPlanMode", in{}, false},
			toolCall{"ExitPlanMode", in{"plan": "1. Look."}, false},
			toolCall{"ExitPlanMode", in{"plan": "1. Look."}, true},
		).with("", `,"canUseTool":[]`, `{"event":"canUseTool","tool":"ExitPlanMode"}`),
		searching(toolScenario("tool-websearch", "WebSearch: what the provider's tool found, and input that is none.", nil,
			toolCall{"WebSearch", in{"query": "parley the word", "allowed_domains": []string{"example.com"}}, false},
			toolCall{"WebSearch", in{"query": "both lists", "allowed_domains": []string{"a.com"}, "blocked_domains": []string{"b.com"}}, true},
			toolCall{"WebSearch", in{"query": "x"}, true},
			toolCall{"WebSearch", in{}, true},
		)),
		toolScenario("tool-webfetch", "WebFetch: addresses that are none.", nil,
			toolCall{"WebFetch", in{"url": "no address", "prompt": "What is it?"}, true},
			toolCall{"WebFetch", in{"prompt": "What is it?"}, true},
			toolCall{"WebFetch", in{"url": "https://nowhere.invalid/", "prompt": "What is it?"}, true},
			toolCall{"WebFetch", in{"url": "ftp://nowhere.invalid/", "prompt": "What is it?"}, true},
		),
	}
}
