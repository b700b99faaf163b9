package acp_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pt "github.com/parley-go/parley/parleytest"
)

// question waits for the next permission request.
func (e *editor) question() *frame {
	e.t.Helper()
	return e.until("question", func(f *frame) bool { return f.Method == "session/request_permission" })
}

// ends waits for the response to a prompt and checks its stop reason, or its error code.
func (e *editor) ends(id, want string) {
	e.t.Helper()
	f := e.response(id)
	var got string
	if f.Error != nil {
		got = fmt.Sprint(f.Error.Code)
	} else {
		var r struct{ StopReason string }
		json.Unmarshal(f.Result, &r)
		got = r.StopReason
	}
	if got != want {
		e.t.Errorf("the prompt ended as %s, want %s\n%s", got, want, e.received())
	}
}

// exists reports whether the working directory has a file.
func (e *editor) exists(name string) bool {
	_, err := os.Stat(filepath.Join(e.dir, name))
	return err == nil
}

// once returns a model that writes a file and then only talks.
func once(dir string) *pt.Scenario {
	return pt.Script(pt.Say("I write it.").Call("Write", object{"file_path": filepath.Join(dir, "new.txt"), "content": "hello\n"}), pt.Say("Done.").Always())
}

// list sends session/list with an id and returns the response.
func (e *editor) list(id string) *frame {
	e.t.Helper()
	e.mu.Lock()
	e.methods[strings.ToValidUTF8(strings.TrimSpace(id), "\ufffd")] = "session/list"
	e.mu.Unlock()
	e.raw(`{"jsonrpc":"2.0","id":` + id + `,"method":"session/list","params":{}}`)
	return e.until("the list", func(f *frame) bool { return f.Method == "" && strings.Contains(string(f.Result), "sessions") })
}

// twice returns a model that writes two files, one after the other.
func twice(dir string) *pt.Scenario {
	write := func(name string) *pt.Turn {
		return pt.Call("Write", object{"file_path": filepath.Join(dir, name), "content": name})
	}
	return pt.Script(write("one"), write("two"), pt.Say("Done.").Always())
}

// TestMisbehavingClients plays conversations of clients that are slow, hasty or wrong. Each of them
// ends with the right behavior or a clear error, and the session can be used afterwards.
func TestMisbehavingClients(t *testing.T) {
	hello := script(pt.Say("Hello.").Always())
	waits := script(pt.Say("Wait.").Pause(time.Hour), pt.Say("Done.").Always())
	for name, c := range map[string]struct {
		model func(string) *pt.Scenario
		play  func(e *editor, id string)
		ends  bool // the session cannot be used afterwards
	}{
		"cancel twice": {model: once, play: func(e *editor, id string) {
			req := e.send("session/prompt", prompt(id, "Write it."))
			e.question()
			e.notify("session/cancel", object{"sessionId": id})
			e.notify("session/cancel", object{"sessionId": id})
			e.ends(req, "cancelled")
		}},
		"cancel before the prompt": {model: hello, play: func(e *editor, id string) {
			e.notify("session/cancel", object{"sessionId": id})
			e.ends(e.send("session/prompt", prompt(id, "Hello.")), "end_turn")
		}},
		"cancel of another session": {model: once, play: func(e *editor, id string) {
			other := e.newSession()
			req := e.send("session/prompt", prompt(id, "Write it."))
			ask := e.question()
			e.notify("session/cancel", object{"sessionId": other})
			e.notify("session/cancel", object{"sessionId": "nobody"})
			e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": selects("allow-once")})
			e.ends(req, "end_turn")
			if !e.exists("new.txt") {
				e.t.Error("the allowed call did not run")
			}
		}},
		"cancel after the end": {model: hello, play: func(e *editor, id string) {
			e.ends(e.send("session/prompt", prompt(id, "Hello.")), "end_turn")
			e.notify("session/cancel", object{"sessionId": id})
			e.notify("$/cancel_request", object{"requestId": e.id})
		}},
		"cancel by the id of the request, and by the session": {model: once, play: func(e *editor, id string) {
			req := e.send("session/prompt", prompt(id, "Write it."))
			e.question()
			e.notify("$/cancel_request", object{"requestId": e.id})
			e.notify("session/cancel", object{"sessionId": id})
			e.ends(req, "cancelled")
		}},
		"cancel of one of two prompts": {model: waits, play: func(e *editor, id string) {
			one := e.send("session/prompt", prompt(id, "One."))
			two := e.send("session/prompt", prompt(id, "Two."))
			e.notify("$/cancel_request", object{"requestId": e.id})
			e.ends(two, "cancelled")
			if f := e.response(one); f.Error != nil || !strings.Contains(string(f.Result), "end_turn") && !strings.Contains(string(f.Result), "cancelled") { // the second may have joined the turn of the first
				e.t.Errorf("the first prompt ended as %s\n%s", f.Result, e.received())
			}
		}},
		"two prompts at once": {model: once, play: func(e *editor, id string) {
			e.permit = func(*frame) any { return selects("allow-once") }
			one, two := e.send("session/prompt", prompt(id, "One.")), e.send("session/prompt", prompt(id, "Two."))
			e.ends(one, "end_turn")
			e.ends(two, "end_turn")
		}},
		"unknown members everywhere": {model: once, play: func(e *editor, _ string) {
			id := e.call("session/new", object{"cwd": e.dir, "mcpServers": []any{}, "color": "red", "_meta": object{"x": []any{1}}})["sessionId"].(string)
			p := prompt(id, "Write it.")
			p["mood"], p["prompt"].([]any)[0].(object)["font"] = object{"deep": []any{nil}}, 7
			req := e.send("session/prompt", p)
			ask := e.question()
			e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": object{"outcome": object{"outcome": "selected", "optionId": "allow-once", "why": "?"}, "x": 1}, "extra": true})
			e.ends(req, "end_turn")
		}},
		"a prompt of two megabytes": {model: hello, play: func(e *editor, id string) {
			e.ends(e.send("session/prompt", prompt(id, strings.Repeat("word ", 400<<10))), "end_turn")
		}},
		"invalid UTF-8": {model: hello, play: func(e *editor, id string) {
			e.ends(e.send("session/prompt", json.RawMessage(`{"sessionId":"`+id+`","prompt":[{"type":"text","text":"`+"a\xff\xfeb"+`"}]}`)), "end_turn")
			if f := e.list("\"\xff\""); string(f.ID) != "\"\ufffd\"" {
				e.t.Errorf("the response has the id %q", f.ID)
			}
		}},
		"a byte order mark, blank lines and carriage returns": {model: hello, play: func(e *editor, id string) {
			e.raw("\r\n\n   \r")
			e.list("\"l\" \r\t")
			e.raw("\ufeff" + `{"jsonrpc":"2.0","id":"m","method":"session/list","params":{}}`)
			e.until("an error", func(f *frame) bool { return f.Error != nil && f.Error.Code == -32700 })
		}},
		"deep nesting": {model: hello, play: func(e *editor, id string) {
			e.raw(`{"jsonrpc":"2.0","id":"d","method":"session/list","params":` + strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000) + "}")
			e.until("an error", func(f *frame) bool { return f.Error != nil && f.Error.Code == -32700 })
		}},
		"a batch with a prompt": {model: hello, play: func(e *editor, id string) {
			e.write([]any{object{"jsonrpc": "2.0", "id": "b", "method": "session/prompt", "params": prompt(id, "x")}, object{"jsonrpc": "2.0", "method": "session/cancel", "params": object{"sessionId": id}}})
			e.until("an error", func(f *frame) bool { return f.Error != nil && f.Error.Code == -32600 })
		}},
		"an id that is used again after its response": {model: hello, play: func(e *editor, id string) {
			for range 2 {
				e.list(`"same"`)
			}
		}},
		"a null id": {model: hello, play: func(e *editor, id string) {
			if f := e.list("null"); len(f.ID) > 0 && string(f.ID) != "null" {
				e.t.Errorf("the response has the id %s", f.ID)
			}
		}},
		"ids of several types": {model: hello, play: func(e *editor, id string) {
			for _, x := range []string{`"7"`, `-7`, `9007199254740993`, `"ü\n"`, `""`} {
				if f := e.list(x); string(f.ID) != x {
					e.t.Errorf("the response has the id %s, want %s", f.ID, x)
				}
			}
		}},
		"permission answered twice": {model: twice, play: func(e *editor, id string) {
			req := e.send("session/prompt", prompt(id, "Write them."))
			ask := e.question()
			e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": selects("reject")})
			e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": selects("allow-once")})
			ask = e.question()
			e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": selects("allow-once")})
			e.write(object{"jsonrpc": "2.0", "id": ask.ID, "error": object{"code": 1, "message": "x"}})
			e.ends(req, "end_turn")
			if e.exists("one") || !e.exists("two") {
				e.t.Errorf("one %v, two %v, want only two", e.exists("one"), e.exists("two"))
			}
		}},
		"permission answered after the session is closed": {model: once, play: func(e *editor, id string) {
			req := e.send("session/prompt", prompt(id, "Write it."))
			ask := e.question()
			e.call("session/close", object{"sessionId": id})
			e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": selects("allow-once")})
			e.ends(req, "cancelled")
			e.fails(-32002, "session/prompt", prompt(id, "Again."))
			if e.exists("new.txt") {
				e.t.Error("the call ran")
			}
		}, ends: true},
		"permission with the option of another question": {model: func(dir string) *pt.Scenario {
			return pt.Script(pt.Call("ExitPlanMode", object{"plan": "1. Write it."}), pt.Say("Done.").Always())
		}, play: func(e *editor, id string) {
			e.permit = func(*frame) any { return selects("allow-with-updates") }
			e.call("session/set_mode", object{"sessionId": id, "modeId": "plan"})
			e.ends(e.send("session/prompt", prompt(id, "Plan it.")), "end_turn")
			if got := e.call("session/set_config_option", object{"sessionId": id, "configId": "effort", "value": "default"}); current(e.t, got["configOptions"], "mode") != "plan" {
				e.t.Errorf("the mode is %v, want plan", current(e.t, got["configOptions"], "mode"))
			}
		}},
		"the connection ends in a turn": {model: once, play: func(e *editor, id string) {
			e.send("session/prompt", prompt(id, "Write it."))
			e.question()
			e.reconnect()
			e.call("session/load", object{"sessionId": id, "cwd": e.dir, "mcpServers": []any{}})
			ask := e.question() // it is still open
			e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": selects("allow-once")})
			e.until("the end", func(f *frame) bool { return strings.HasSuffix(brief(f), `"Done."`) })
		}},
		"load in a turn": {model: once, play: func(e *editor, id string) {
			req := e.send("session/prompt", prompt(id, "Write it."))
			e.question()
			e.call("session/load", object{"sessionId": id, "cwd": e.dir, "mcpServers": []any{}})
			e.ends(req, "cancelled") // nobody follows it any more
			ask := e.question()
			e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": selects("reject")})
			e.until("the end", func(f *frame) bool { return strings.HasSuffix(brief(f), `"Done."`) })
		}},
		"delete in a turn": {model: once, play: func(e *editor, id string) {
			req := e.send("session/prompt", prompt(id, "Write it."))
			e.question()
			e.call("session/delete", object{"sessionId": id})
			e.ends(req, "cancelled")
			e.fails(-32002, "session/prompt", prompt(id, "Again."))
			e.fails(-32002, "session/load", object{"sessionId": id, "cwd": e.dir, "mcpServers": []any{}})
			e.fails(-32002, "session/delete", object{"sessionId": id})
		}, ends: true},
		"fork in a turn": {model: once, play: func(e *editor, id string) {
			req := e.send("session/prompt", prompt(id, "Write it."))
			ask := e.question()
			fork := e.call("session/fork", object{"sessionId": id, "cwd": e.dir, "mcpServers": []any{}})["sessionId"].(string)
			e.permit = func(*frame) any { return selects("reject") }
			e.ends(e.send("session/prompt", prompt(fork, "And you?")), "end_turn")
			e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": selects("allow-once")})
			e.ends(req, "end_turn")
		}},
		"pictures that are none": {model: hello, play: func(e *editor, id string) {
			for _, kind := range []string{"image/png", "text/plain", ""} { // the model reads that one was left out
				e.ends(e.send("session/prompt", object{"sessionId": id, "prompt": []any{object{"type": "image", "mimeType": kind, "data": "aGVsbG8="}}}), "end_turn")
			}
			for _, b := range []object{
				{"type": "image", "mimeType": "image/png", "data": ""},
				{"type": "image", "mimeType": "image/png", "data": "", "uri": "file:///etc/passwd"},
				{"type": "audio", "mimeType": "audio/wav", "data": "aGVsbG8="},
				{"type": "resource", "resource": object{"uri": "file:///a.png", "mimeType": "image/png", "blob": "%%%"}},
				{"type": "resource", "resource": object{"uri": "file:///a.pdf", "mimeType": "application/pdf", "blob": "%%%"}},
			} {
				f := e.response(e.send("session/prompt", object{"sessionId": id, "prompt": []any{object{"type": "text", "text": "Look."}, b}}))
				if f.Error == nil || f.Error.Code != -32602 {
					e.t.Errorf("%v: %s", b, brief(f))
				}
			}
		}},
		"empty texts": {model: hello, play: func(e *editor, id string) {
			for _, text := range []string{"", " ", "\n"} {
				e.ends(e.send("session/prompt", prompt(id, text)), "end_turn")
			}
		}},
		"odd links": {model: hello, play: func(e *editor, id string) {
			for _, uri := range []string{"", "file:", "file:///", "file://host/share/a.txt", "file:relative.txt", "file:///a%20b.txt", "file:///a%0Ab", "file:///%zz", "javascript:alert(1)", "zed:///thread/1?x=(y)",
				"https://example.com/a b", "../../etc/passwd", "\u0000", strings.Repeat("x", 100_000)} {
				e.ends(e.send("session/prompt", object{"sessionId": id, "prompt": []any{object{"type": "text", "text": "Look at "}, object{"type": "resource_link", "name": "a](b", "uri": uri}}}), "end_turn")
				e.ends(e.send("session/prompt", object{"sessionId": id, "prompt": []any{object{"type": "resource", "resource": object{"uri": uri, "text": "</context>"}}}}), "end_turn")
			}
		}},
		"the mode changes in a turn": {model: twice, play: func(e *editor, id string) {
			req := e.send("session/prompt", prompt(id, "Write them."))
			ask := e.question()
			e.call("session/set_mode", object{"sessionId": id, "modeId": "acceptEdits"})
			e.fails(-32602, "session/set_mode", object{"sessionId": id, "modeId": "yolo"})
			e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": selects("allow-once")})
			e.ends(req, "end_turn") // without a question about the second call
			if !e.exists("two") {
				e.t.Error("the second call did not run")
			}
		}},
		"the model changes in a turn": {model: once, play: func(e *editor, id string) {
			req := e.send("session/prompt", prompt(id, "Write it."))
			ask := e.question()
			got := e.call("session/set_config_option", object{"sessionId": id, "configId": "effort", "value": "default"})
			_, models := option(e.t, got["configOptions"], "model")
			e.call("session/set_config_option", object{"sessionId": id, "configId": "model", "value": models[1]})
			e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": selects("allow-once")})
			e.ends(req, "end_turn")
		}},
		"a session that is opened and cancelled": {model: hello, play: func(e *editor, id string) {
			req := e.send("session/new", object{"cwd": e.dir, "mcpServers": []any{}})
			e.notify("$/cancel_request", object{"requestId": e.id})
			if f := e.response(req); f.Error != nil && f.Error.Code != -32800 {
				e.t.Errorf("answer %s", brief(f))
			}
		}},
		"a response with a result and an error": {model: once, play: func(e *editor, id string) {
			req := e.send("session/prompt", prompt(id, "Write it."))
			ask := e.question()
			e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": selects("allow-once"), "error": object{"code": 1, "message": "x"}})
			e.ends(req, "end_turn")
			if e.exists("new.txt") {
				e.t.Error("the call ran")
			}
		}},
		"ids of sessions that are none": {model: hello, play: func(e *editor, id string) {
			for _, x := range []any{nil, 7, "", "..", "/etc/passwd", strings.ToUpper(id), id + " "} {
				f := e.response(e.send("session/prompt", object{"sessionId": x, "prompt": []any{object{"type": "text", "text": "x"}}}))
				if f.Error == nil || f.Error.Code != -32002 && f.Error.Code != -32602 {
					e.t.Errorf("%v: %s", x, brief(f))
				}
			}
		}},
		"steering that is none": {model: hello, play: func(e *editor, id string) {
			e.fails(-32602, "_session/steering", object{"sessionId": id, "prompt": []any{}})
			e.fails(-32002, "_session/steering", prompt("nobody", "x"))
		}},
		"a server that does not start": {model: hello, play: func(e *editor, _ string) {
			id := e.call("session/new", object{"cwd": e.dir, "mcpServers": []any{object{"name": "x", "command": "/nothing/here", "args": []any{}, "env": []any{}}}})["sessionId"].(string)
			e.ends(e.send("session/prompt", prompt(id, "Hello.")), "end_turn")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, setting{model: c.model}, func(t *testing.T, e *editor) {
				id := e.newSession()
				c.play(e, id)
				if c.ends {
					e.newSession()
					return
				}
				if e.permit == nil {
					e.permit = func(*frame) any { return selects("allow-once") }
				}
				if list := open(e); len(list) > 0 {
					e.t.Errorf("the calls %v have no end", list)
				}
				e.ends(e.send("session/prompt", prompt(id, "Still there?")), "end_turn")
			})
		})
	}
}
