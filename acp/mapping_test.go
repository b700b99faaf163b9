package acp_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/parley-go/parley/acp"
	pt "github.com/parley-go/parley/parleytest"
)

// option returns the current value of an option, and its possible values.
func option(t *testing.T, list any, id string) (current any, values []string) {
	t.Helper()
	for _, x := range list.([]any) {
		o := x.(object)
		if o["id"] == id {
			for _, v := range o["options"].([]any) {
				values = append(values, v.(object)["value"].(string))
			}
			return o["currentValue"], values
		}
	}
	t.Fatalf("there is no option %s in %v", id, list)
	return nil, nil
}

// TestOptions checks that modes, models and effort are options, and that a change of one
// appears in all of them.
func TestOptions(t *testing.T) {
	run(t, setting{model: script(pt.Say("Hello.").Always())}, func(t *testing.T, e *editor) {
		first := e.call("session/new", object{"cwd": e.dir, "mcpServers": []any{}})
		id := first["sessionId"].(string)
		if mode := first["modes"].(object)["currentModeId"]; mode != "default" {
			t.Errorf("mode %v", mode)
		}
		e.call("session/set_mode", object{"sessionId": id, "modeId": "acceptEdits"})
		if !strings.Contains(e.received(), "config_option_update") {
			t.Errorf("session/set_mode did not send the options:\n%s", e.received())
		}
		synctest.Wait()
		if n := strings.Count(e.received(), "current_mode_update"); n != 0 {
			t.Errorf("session/set_mode sent the client's own mode %d times:\n%s", n, e.received())
		}
		got := e.call("session/set_config_option", object{"sessionId": id, "configId": "mode", "value": "plan"})
		if mode, _ := option(t, got["configOptions"], "mode"); mode != "plan" {
			t.Errorf("mode %v", mode)
		}
		synctest.Wait()
		if n := strings.Count(e.received(), "current_mode_update"); n != 1 {
			t.Errorf("session/set_config_option sent the mode %d times, want 1:\n%s", n, e.received())
		}
		_, models := option(t, got["configOptions"], "model")
		got = e.call("session/set_config_option", object{"sessionId": id, "configId": "model", "value": models[len(models)-1]})
		if model, _ := option(t, got["configOptions"], "model"); model != models[len(models)-1] {
			t.Errorf("model %v, want %s", model, models[len(models)-1])
		}
		got = e.call("session/set_config_option", object{"sessionId": id, "configId": "model", "value": models[0]})
		_, levels := option(t, got["configOptions"], "effort")
		got = e.call("session/set_config_option", object{"sessionId": id, "configId": "effort", "value": levels[1]})
		if level, _ := option(t, got["configOptions"], "effort"); level != levels[1] {
			t.Errorf("effort %v, want %s", level, levels[1])
		}
		// The settings also apply for the next client that opens the session.
		for _, method := range []string{"session/load", "session/resume"} {
			e.reconnect()
			again := e.call(method, object{"sessionId": id, "cwd": e.dir, "mcpServers": []any{}})
			if mode := again["modes"].(object)["currentModeId"]; mode != "plan" {
				t.Errorf("%s: mode %v, want plan", method, mode)
			}
			for option, want := range map[string]any{"mode": "plan", "model": models[0], "effort": levels[1]} {
				if got := current(t, again["configOptions"], option); got != want {
					t.Errorf("%s: %s %v, want %v", method, option, got, want)
				}
			}
		}
	})
}

// TestRefusedMode checks that a mode that the agent refuses is not shown, now or later.
func TestRefusedMode(t *testing.T) {
	run(t, setting{model: script(pt.Say("Hello.").Always())}, func(t *testing.T, e *editor) {
		id := e.newSession()
		for _, before := range []string{"default", "plan"} {
			e.call("session/set_mode", object{"sessionId": id, "modeId": before})
			e.fails(acp.CodeInternal, "session/set_mode", object{"sessionId": id, "modeId": "bypassPermissions"})
			synctest.Wait()
			got := e.call("session/set_config_option", object{"sessionId": id, "configId": "effort", "value": "default"})
			if mode := current(t, got["configOptions"], "mode"); mode != before {
				t.Errorf("mode %v, want %s", mode, before)
			}
			e.reconnect()
			got = e.call("session/load", object{"sessionId": id, "cwd": e.dir, "mcpServers": []any{}})
			if mode := current(t, got["configOptions"], "mode"); mode != before {
				t.Errorf("mode %v after loading, want %s", mode, before)
			}
		}
	})
}

func current(t *testing.T, list any, id string) any {
	t.Helper()
	value, _ := option(t, list, id)
	return value
}

// TestPlanApproval checks that an approved plan is carried out, in the mode that was
// selected with it.
func TestPlanApproval(t *testing.T) {
	run(t, setting{model: func(dir string) *pt.Scenario {
		return pt.Script(
			pt.Call("ExitPlanMode", object{"plan": "1. Write it."}),
			pt.Call("Write", object{"file_path": filepath.Join(dir, "new.txt"), "content": "x"}),
			pt.Say("Done."),
		)
	}}, func(t *testing.T, e *editor) {
		asked := 0
		e.permit = func(f *frame) any {
			asked++
			return selects("exit-plan-accept-edits")
		}
		id := e.newSession()
		e.call("session/set_mode", object{"sessionId": id, "modeId": "plan"})
		e.call("session/prompt", prompt(id, "Go on."))
		if asked != 1 {
			t.Errorf("asked %d times, want once: the edits were accepted with the plan\n%s", asked, e.received())
		}
		if strings.Contains(e.received(), "failed") || !strings.Contains(e.received(), "current_mode_update acceptEdits") {
			t.Errorf("received\n%s", e.received())
		}
	})
}

const choose = `{"questions":[{"question":"Which one?","header":"Choice","multiSelect":false,"options":[{"label":"Red","description":"r"},{"label":"Blue","description":"b"}]}]}`

// TestQuestion checks that a question of the model is a form, or a permission request whose
// options are the answers.
func TestQuestion(t *testing.T) {
	answered := func(dir string) *pt.Scenario {
		return pt.Script(pt.Call("AskUserQuestion", json.RawMessage(choose)), pt.Expect(pt.ToolResult("Blue")).Say("Blue it is."))
	}
	t.Run("form", func(t *testing.T) {
		run(t, setting{model: answered, caps: object{"elicitation": object{"form": object{}}}}, func(t *testing.T, e *editor) {
			id := e.newSession()
			req := e.send("session/prompt", prompt(id, "Go on."))
			f := e.until("form", func(f *frame) bool { return f.Method == "elicitation/create" })
			e.write(object{"jsonrpc": "2.0", "id": f.ID, "result": object{"action": "accept", "content": object{"question_0": "Blue"}}})
			if f := e.response(req); !strings.Contains(string(f.Result), "end_turn") {
				t.Errorf("%s\n%s", brief(f), e.received())
			}
		})
	})
	t.Run("options", func(t *testing.T) {
		run(t, setting{model: answered}, func(t *testing.T, e *editor) {
			e.permit = func(f *frame) any { return selects("answer-2") }
			id := e.newSession()
			if got := e.call("session/prompt", prompt(id, "Go on."))["stopReason"]; got != "end_turn" {
				t.Errorf("%v\n%s", got, e.received())
			}
		})
	})
}

// TestLinks checks that a link to a file is a mention, quoted if necessary and with its lines, and that
// other links stay links.
func TestLinks(t *testing.T) {
	for uri, want := range map[string]string{
		"file:///src/a.go":            "@/src/a.go",
		"file://localhost/src/a.go":   "@/src/a.go",
		"file:///src/a.go#L10-20":     "@/src/a.go#L10-20",
		"file:///src/a.go#L10:20":     "@/src/a.go#L10-20",
		"file:///src/a.go#L7":         "@/src/a.go#L7",
		"file:///src/a.go#top":        "@/src/a.go",
		"file:///my%20src/a%20b.go":   `@"/my src/a b.go"`,
		"file:///a%22b":               "[a](file:///a%22b)",
		"file:///a%0Ab":               "[a](file:///a%0Ab)",
		"file://host/share/a.go":      "[a](file://host/share/a.go)",
		"file:a.go":                   "[a](file:a.go)",
		"https://example.com/x?y=z#w": "[a](https://example.com/x?y=z#w)",
		"zed:///agent/thread/1":       "[a](zed:///agent/thread/1)",
	} {
		run(t, setting{model: script(pt.Expect(pt.Check("the link", func(r *pt.Request) error {
			text, _ := json.Marshal(want)
			if !strings.Contains(string(r.Body), `"text":`+string(text)) {
				t.Errorf("%s: the request lacks %s", uri, text)
			}
			return nil
		})).Say("Seen."))}, func(t *testing.T, e *editor) {
			e.call("session/prompt", object{"sessionId": e.newSession(), "prompt": []any{object{"type": "resource_link", "name": "a", "uri": uri}}})
		})
	}
}

// TestPromptContent checks that the model gets text, links, resources and pictures of a
// prompt.
func TestPromptContent(t *testing.T) {
	const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
	run(t, setting{model: script(pt.Expect(pt.Check("all of it", func(r *pt.Request) error {
		for _, want := range []string{"Look at", "[site](https://example.com/x)", "unsaved text", `"image"`, "context ref"} {
			if !strings.Contains(string(r.Body), want) {
				t.Errorf("the request lacks %q", want)
			}
		}
		return nil
	})).Say("Seen."))}, func(t *testing.T, e *editor) {
		id := e.newSession()
		got := e.call("session/prompt", object{"sessionId": id, "prompt": []any{
			object{"type": "text", "text": "Look at "},
			object{"type": "resource_link", "name": "site", "uri": "https://example.com/x"},
			object{"type": "resource", "resource": object{"uri": "file:///a/b.txt", "text": "unsaved text"}},
			object{"type": "image", "mimeType": "image/png", "data": pixel},
		}})
		if got["stopReason"] != "end_turn" {
			t.Error(got)
		}
	})
}

// TestSessions forks, resumes and closes a session.
func TestSessions(t *testing.T) {
	run(t, setting{model: script(pt.Say("Hello.").Always())}, func(t *testing.T, e *editor) {
		id := e.newSession()
		e.call("session/prompt", prompt(id, "One."))
		fork := e.call("session/fork", object{"sessionId": id, "cwd": e.dir, "mcpServers": []any{}})["sessionId"].(string)
		if fork == id {
			t.Error("the fork is the session itself")
		}
		e.call("session/prompt", prompt(fork, "Two."))
		n := len(e.all)
		e.call("session/resume", object{"sessionId": id, "cwd": e.dir})
		for _, f := range e.all[n:] {
			if strings.Contains(brief(f), "chunk") {
				t.Errorf("session/resume replayed %s", brief(f))
			}
		}
		n = len(e.all)
		e.call("session/load", object{"sessionId": fork, "cwd": e.dir, "mcpServers": []any{}})
		var prompts []string
		for _, f := range e.all[n:] {
			if s := brief(f); strings.HasPrefix(s, "user_message_chunk") {
				prompts = append(prompts, s)
			}
		}
		if want := []string{`user_message_chunk "One."`, `user_message_chunk "Two."`}; !slices.Equal(prompts, want) {
			t.Errorf("the fork holds %q, want %q", prompts, want)
		}
		e.call("session/close", object{"sessionId": id})
		e.fails(acp.CodeNotFound, "session/prompt", prompt(id, "Three."))
	})
}

// TestCloseWhileRunning checks that a turn ends as cancelled when its session is closed.
func TestCloseWhileRunning(t *testing.T) {
	run(t, setting{model: writes}, func(t *testing.T, e *editor) {
		id := e.newSession()
		req := e.send("session/prompt", prompt(id, "Write it."))
		e.until("question", func(f *frame) bool { return f.Method == "session/request_permission" })
		e.call("session/close", object{"sessionId": id})
		if f := e.response(req); !strings.Contains(string(f.Result), "cancelled") {
			t.Error(brief(f))
		}
	})
}

// TestSteering checks that steering reaches the running turn, and requires a prompt without
// one.
func TestSteering(t *testing.T) {
	run(t, setting{model: writes}, func(t *testing.T, e *editor) {
		id := e.newSession()
		if got := e.call("_session/steering", prompt(id, "Left."))["outcome"]; got != "promptRequired" {
			t.Errorf("outcome %v", got)
		}
		req := e.send("session/prompt", prompt(id, "Write it."))
		ask := e.until("question", func(f *frame) bool { return f.Method == "session/request_permission" })
		if got := e.call("_session/steering", prompt(id, "Left."))["outcome"]; got != "injected" {
			t.Errorf("outcome %v", got)
		}
		e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": selects("allow-once")})
		e.response(req)
	})
}

// TestOutcomes checks that the end of a turn is its stop reason, or an error with its code.
func TestOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		turn *pt.Turn
		want string
	}{
		"max tokens":  {pt.Say("Long.").Stop("max_tokens").Always(), "error -32603"},
		"refusal":     {pt.Say("No.").Stop("refusal").Always(), "error -32603"},
		"bad request": {new(pt.Turn).Fail(400).Always(), "error -32603"},
		"bad key":     {new(pt.Turn).Fail(401).Always(), "error -32000"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, setting{model: script(c.turn)}, func(t *testing.T, e *editor) {
				id := e.newSession()
				f := e.response(e.send("session/prompt", prompt(id, "Go on.")))
				got := string(f.Result)
				if f.Error != nil {
					got = strings.Replace(brief(f), " "+string(f.ID), "", 1)
				}
				if !strings.Contains(got, c.want) {
					t.Errorf("got %s, want %s", got, c.want)
				}
			})
		})
	}
}

// TestNotices checks that only a client that knows notices receives retries.
func TestNotices(t *testing.T) {
	for name, caps := range map[string]object{"": nil, "notice": {"session": object{"notices": object{}}}} {
		run(t, setting{model: script(new(pt.Turn).Fail(529), pt.Say("Now.")), caps: caps}, func(t *testing.T, e *editor) {
			id := e.newSession()
			e.call("session/prompt", prompt(id, "Go on."))
			if got := strings.Contains(e.received(), "notice"); got != (name != "") {
				t.Errorf("with %v: notice %v\n%s", caps, got, e.received())
			}
		})
	}
}

// TestPlanUpdates checks that a task list is shown as the plan, and not as a call.
func TestPlanUpdates(t *testing.T) {
	run(t, setting{model: script(
		pt.Call("TodoWrite", object{"todos": []object{{"content": "First", "status": "in_progress", "activeForm": "Doing"}, {"content": "Second", "status": "pending", "activeForm": "Doing"}}}),
		pt.Say("Done."),
	)}, func(t *testing.T, e *editor) {
		id := e.newSession()
		e.call("session/prompt", prompt(id, "Go on."))
		var plans []any
		for _, f := range e.all {
			if u := update(f); u != nil && u["sessionUpdate"] == "plan" {
				plans = append(plans, u["entries"])
			}
		}
		if len(plans) != 1 || len(plans[0].([]any)) != 2 || strings.Contains(e.received(), "tool_call") {
			t.Errorf("plans %v\n%s", plans, e.received())
		}
	})
}

// TestSubagent checks that a subagent is a call of the kind think with the report as content, that its calls name
// it, and that a replay shows the same.
func TestSubagent(t *testing.T) {
	run(t, setting{model: func(dir string) *pt.Scenario {
		return pt.Script(
			pt.Call("Agent", object{"description": "Look at it", "prompt": "SUBPROMPT", "run_in_background": false}),
			pt.Say("Done.").Always(),
		).When("sub", pt.FirstUser("SUBPROMPT"), pt.Say("I look.").Call("Glob", object{"pattern": "*.txt"}), pt.Say("It says hello.").Always())
	}}, func(t *testing.T, e *editor) {
		id := e.newSession()
		e.call("session/prompt", prompt(id, "Go on."))
		live := shown(e)
		parents := map[any]any{}
		for _, f := range e.all {
			if u := update(f); u != nil && u["sessionUpdate"] == "tool_call" {
				parents[u["toolCallId"]] = u["_meta"].(object)["claudeCode"].(object)["parentToolUseId"]
			}
		}
		if len(parents) != 2 || parents["toolu_sub_1_1"] != "toolu_main_1_1" || parents["toolu_main_1_1"] != nil {
			t.Errorf("the parents of calls are %v", parents)
		}
		if want := `call toolu_main_1_1 think completed Look at it [{"content":{"text":"It says hello.","type":"text"},"type":"content"}]`; len(live) != 3 || !strings.HasPrefix(live[0], want) {
			t.Errorf("shown\n%s\nwant first\n%s", strings.Join(live, "\n"), want)
		}
		e.reconnect()
		e.call("session/load", object{"sessionId": id, "cwd": e.dir, "mcpServers": []any{}})
		if got, want := shown(e), append([]string{`user_message_chunk "Go on."`}, live...); !slices.Equal(got, want) {
			t.Errorf("replayed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// TestRunningOutput checks that the output of a command is shown while it runs.
func TestRunningOutput(t *testing.T) {
	model := func(string) *pt.Scenario {
		return pt.Script(pt.Say("").Call("Bash", map[string]string{"command": "echo early; until test -e gate; do sleep 0.05; done; echo late", "description": "Waits"}), pt.Say("Done.").Always())
	}
	e := start(t, setting{model: model}) // commands need real time
	defer e.close()
	e.permit = func(*frame) any { return selects("allow-once") }
	id := e.newSession()
	n := e.send("session/prompt", prompt(id, "Run it."))
	e.until("early output", func(f *frame) bool {
		u := update(f)
		return u["sessionUpdate"] == "tool_call_update" && strings.Contains(string(mustJSON(u["content"])), `console\nearly`)
	})
	if strings.Contains(e.received(), `console\nearly\nlate`) {
		t.Errorf("it was not shown before the end:\n%s", e.received())
	}
	if err := os.WriteFile(filepath.Join(e.dir, "gate"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e.response(n)
}

// TestTerminalOutput checks that a client with terminals receives the output of a command
// in one, and that a replay, and a client without terminals, get it as content.
func TestTerminalOutput(t *testing.T) {
	model := func(string) *pt.Scenario {
		return pt.Script(pt.Say("").Call("Bash", map[string]string{"command": "echo out; exit 3", "description": "Fails"}), pt.Say("Done.").Always())
	}
	run(t, setting{model: model, caps: object{"_meta": object{"terminal_output": true}}}, func(t *testing.T, e *editor) {
		e.permit = func(*frame) any { return selects("allow-once") }
		id := e.newSession()
		e.call("session/prompt", prompt(id, "Run it."))
		find := func() (info, output, exit, content string) {
			for _, f := range e.all {
				u := update(f)
				meta, _ := u["_meta"].(object)
				if meta["terminal_info"] != nil {
					info, content = string(mustJSON(meta["terminal_info"])), string(mustJSON(u["content"]))
				}
				if o, ok := meta["terminal_output"].(object); ok {
					output += o["data"].(string)
				}
				if meta["terminal_exit"] != nil {
					exit = string(mustJSON(meta["terminal_exit"]))
				}
			}
			return info, output, exit, content
		}
		info, output, exit, content := find()
		if !strings.Contains(info, `"terminal_id"`) || !strings.Contains(output, "out") || strings.Contains(output, "Exit code") || !strings.Contains(exit, `"exit_code":3`) || !strings.Contains(content, `"type":"terminal"`) {
			t.Errorf("terminal %s, output %q, exit %s, content %s in\n%s", info, output, exit, content, e.received())
		}
		e.reconnect()
		e.call("session/load", object{"sessionId": id, "cwd": e.dir, "mcpServers": []any{}})
		if info, output, _, _ := find(); info != "" || output != "" {
			t.Errorf("the replay has a terminal: %s %q", info, output)
		}
	})
}
