package acp_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/parley-go/parley/acp"
	pt "github.com/parley-go/parley/parleytest"
)

// TestHostileFrames checks that every message of a client is answered as JSON-RPC requires,
// and that the connection stays open.
func TestHostileFrames(t *testing.T) {
	const none = "null"
	for _, c := range []struct {
		name, line string
		id         string // of the response; empty: there is none
		code       int
	}{
		{"not JSON", `{"jsonrpc":`, none, -32700},
		{"text", `hello`, none, -32700},
		{"a batch", `[{"jsonrpc":"2.0","id":7,"method":"session/list"}]`, none, -32600},
		{"a number", `7`, none, -32600},
		{"null", `null`, none, -32600},
		{"an empty object", `{}`, none, -32600},
		{"no version", `{"id":7,"method":"session/list"}`, "7", -32600},
		{"another version", `{"jsonrpc":"1.0","id":7,"method":"session/list"}`, "7", -32600},
		{"a number as version", `{"jsonrpc":2,"id":7,"method":"session/list"}`, "7", -32600},
		{"an object as id", `{"jsonrpc":"2.0","id":{},"method":"session/list"}`, none, -32600},
		{"a fraction as id", `{"jsonrpc":"2.0","id":1.5,"method":"session/list"}`, none, -32600},
		{"true as id", `{"jsonrpc":"2.0","id":true,"method":"session/list"}`, none, -32600},
		{"a number as method", `{"jsonrpc":"2.0","id":7,"method":9}`, "7", -32600},
		{"an unknown method", `{"jsonrpc":"2.0","id":7,"method":"session/dance"}`, "7", -32601},
		{"an extension", `{"jsonrpc":"2.0","id":"x","method":"_vendor/thing","params":{}}`, `"x"`, -32601},
		{"an unknown notification", `{"jsonrpc":"2.0","method":"session/dance"}`, "", 0},
		{"a response to nothing", `{"jsonrpc":"2.0","id":99,"result":{}}`, "", 0},
		{"an error to nothing", `{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"x"}}`, "", 0},
		{"an error that is none", `{"jsonrpc":"2.0","id":99,"error":"x"}`, "", 0},
		{"params that are a list", `{"jsonrpc":"2.0","id":7,"method":"session/new","params":[]}`, "7", -32602},
		{"params that are missing", `{"jsonrpc":"2.0","id":7,"method":"session/new"}`, "7", -32602},
		{"a number as path", `{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":5,"mcpServers":[]}}`, "7", -32602},
		{"a relative path", `{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"x","mcpServers":[]}}`, "7", -32602},
		{"a server without a command", `{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/","mcpServers":[{"name":"x"}]}}`, "7", -32602},
		{"a server of an unknown type", `{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/","mcpServers":[{"type":"pigeon","name":"x"}]}}`, "7", -32602},
		{"a prompt that is a text", `{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"SID","prompt":"x"}}`, "7", -32602},
		{"an empty prompt", `{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"SID","prompt":[]}}`, "7", -32602},
		{"a block of an unknown type", `{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"SID","prompt":[{"type":"smell"}]}}`, "7", -32602},
		{"sound", `{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"SID","prompt":[{"type":"audio","data":"","mimeType":"audio/wav"}]}}`, "7", -32602},
		{"a picture that is none", `{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"SID","prompt":[{"type":"image","data":"%%%","mimeType":"image/png"}]}}`, "7", -32602},
		{"a prompt to nobody", `{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"x","prompt":[{"type":"text","text":"x"}]}}`, "7", -32002},
		{"a mode that is none", `{"jsonrpc":"2.0","id":7,"method":"session/set_mode","params":{"sessionId":"SID","modeId":"x"}}`, "7", -32602},
		{"an option that is none", `{"jsonrpc":"2.0","id":7,"method":"session/set_config_option","params":{"sessionId":"SID","configId":"x","value":"y"}}`, "7", -32602},
		{"a value of the wrong type", `{"jsonrpc":"2.0","id":7,"method":"session/set_config_option","params":{"sessionId":"SID","configId":"mode","type":"boolean","value":true}}`, "7", -32602},
		{"a session that is none", `{"jsonrpc":"2.0","id":7,"method":"session/load","params":{"sessionId":"../../etc","cwd":"/","mcpServers":[]}}`, "7", -32002},
		{"a session that is not there", `{"jsonrpc":"2.0","id":7,"method":"session/resume","params":{"sessionId":"11111111-1111-4111-8111-111111111111","cwd":"/"}}`, "7", -32002},
		{"a fork of nothing", `{"jsonrpc":"2.0","id":7,"method":"session/fork","params":{"sessionId":"11111111-1111-4111-8111-111111111111","cwd":"/"}}`, "7", -32002},
		{"a session to delete that is not there", `{"jsonrpc":"2.0","id":7,"method":"session/delete","params":{"sessionId":"11111111-1111-4111-8111-111111111111"}}`, "7", -32002},
		{"a session to close that is not open", `{"jsonrpc":"2.0","id":7,"method":"session/close","params":{"sessionId":"x"}}`, "7", -32002},
		{"a cursor of another list", `{"jsonrpc":"2.0","id":7,"method":"session/list","params":{"cursor":"x"}}`, "7", -32602},
		{"a key of an unknown kind", `{"jsonrpc":"2.0","id":7,"method":"authenticate","params":{"methodId":"x"}}`, "7", -32602},
		{"a cancel of nothing", `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"x"}}`, "", 0},
		{"a cancel without params", `{"jsonrpc":"2.0","method":"session/cancel"}`, "", 0},
		{"a cancelled request that is none", `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":55}}`, "", 0},
		{"a cancel with an id", `{"jsonrpc":"2.0","id":7,"method":"session/cancel","params":{"sessionId":"SID"}}`, "7", -32600},
		{"a cancelled request with an id", `{"jsonrpc":"2.0","id":7,"method":"$/cancel_request","params":{"requestId":55}}`, "7", -32601},
		{"a message of a server with an id", `{"jsonrpc":"2.0","id":7,"method":"mcp/message","params":{"serverId":"x","method":"y"}}`, "7", -32600},
		{"a prompt without an id", `{"jsonrpc":"2.0","method":"session/prompt","params":{"sessionId":"SID","prompt":[{"type":"text","text":"x"}]}}`, "", 0},
		{"a new session without an id", `{"jsonrpc":"2.0","method":"session/new","params":{"cwd":"/","mcpServers":[]}}`, "", 0},
		{"a deletion without an id", `{"jsonrpc":"2.0","method":"session/delete","params":{"sessionId":"SID"}}`, "", 0},
		{"a directory that is not there", `{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/nothing/here","mcpServers":[]}}`, "7", -32603},
		{"a directory that is a file", `{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/etc/passwd","mcpServers":[]}}`, "7", -32603},
		{"a zero byte in a path", `{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/\u0000","mcpServers":[]}}`, "7", -32603},
		{"another directory that is relative", `{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/","additionalDirectories":["../x"],"mcpServers":[]}}`, "7", -32602},
		{"a directory that is a flag", `{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"--settings","mcpServers":[]}}`, "7", -32602},
		{"a server with a number as command", `{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/","mcpServers":[{"name":"x","command":7,"args":[],"env":[]}]}}`, "7", -32602},
		{"servers that are an object", `{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/","mcpServers":{}}}`, "7", -32602},
		{"a server of the client without an id", `{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/","mcpServers":[{"type":"acp","name":"x"}]}}`, "7", -32602},
		{"initialize once more", `{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":1}}`, "7", -32600},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, setting{model: script(pt.Say("Hello.").Always())}, func(t *testing.T, e *editor) {
				id := e.newSession()
				e.raw(strings.ReplaceAll(c.line, "SID", id))
				if c.id != "" {
					f := e.until("answer", func(f *frame) bool { return f.Method == "" && (string(f.ID) == c.id || f.ID == nil && c.id == none) })
					if f.Error == nil || f.Error.Code != c.code {
						t.Errorf("answer %s, want error %d", brief(f), c.code)
					}
				}
				if got := e.call("session/prompt", prompt(id, "Still there?"))["stopReason"]; got != "end_turn" {
					t.Errorf("then: %v", got)
				}
			})
		})
	}
}

// TestLongLine checks that a line that is too long is rejected without being held in memory,
// and that the next one is processed.
func TestLongLine(t *testing.T) {
	run(t, setting{model: script(pt.Say("Hello.").Always())}, func(t *testing.T, e *editor) {
		piece := strings.Repeat("x", 1<<20)
		for range 33 {
			fmt.Fprint(e.w, piece)
		}
		e.raw("")
		if f := e.until("answer", func(f *frame) bool { return f.Error != nil }); f.Error.Code != -32600 {
			t.Error(brief(f))
		}
		e.newSession()
	})
}

// TestInitialize checks that nothing else is served before initialize, and that a version is
// negotiated.
func TestInitialize(t *testing.T) {
	run(t, setting{model: script(pt.Say("Hello.").Always()), version: -1}, func(t *testing.T, e *editor) {
		e.fails(-32600, "session/new", object{"cwd": e.dir, "mcpServers": []any{}})
		e.fails(-32602, "initialize", object{})
		e.fails(-32602, "initialize", object{"protocolVersion": "latest"})
		e.notify("session/cancel", object{"sessionId": "x"})
		for _, c := range []struct {
			asked any
			want  int
		}{{7, 2}, {"2", 2}, {2, 2}, {0, 1}, {"1", 1}, {1, 1}} {
			e.mu.Lock()
			e.version = c.want
			e.mu.Unlock()
			got := e.call("initialize", object{"protocolVersion": c.asked})
			if got["protocolVersion"] != float64(c.want) {
				t.Errorf("asked for %v, got %v, want %v", c.asked, got["protocolVersion"], c.want)
			}
		}
		e.newSession()
	})
}

// TestTerminalLogin checks that the login in a terminal is offered to clients that declare that they
// have one, and to no others, in both versions.
func TestTerminalLogin(t *testing.T) {
	for name, c := range map[string]struct {
		version int
		caps    object
		offered bool
	}{
		"version 1":              {1, object{"auth": object{"terminal": true}}, true},
		"version 1, no terminal": {1, object{"auth": object{"terminal": false}}, false},
		"version 1, nothing":     {1, object{}, false},
		"version 2":              {2, object{"auth": object{"terminal": object{}}}, true},
		"version 2, no terminal": {2, object{"auth": object{"terminal": nil}}, false},
		"version 2, nothing":     {2, object{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, setting{model: script(pt.Say("Hello.").Always()), version: -1, caps: c.caps, config: func(cfg *acp.Config) { cfg.Login = []string{"--login"} }}, func(t *testing.T, e *editor) {
				e.mu.Lock()
				e.version = c.version
				e.mu.Unlock()
				got := fmt.Sprint(e.initialize()["authMethods"])
				if strings.Contains(got, "type:terminal") != c.offered || strings.Contains(got, "[--login]") != c.offered || !strings.Contains(got, "api-key") {
					t.Errorf("methods %s; a login is offered, want %v", got, c.offered)
				}
			})
		})
	}
}

// TestReusedRequestID checks that an id in use is rejected, and that the request that has it
// is answered.
func TestReusedRequestID(t *testing.T) {
	run(t, setting{model: writes}, func(t *testing.T, e *editor) {
		id := e.newSession()
		first := e.send("session/prompt", prompt(id, "Write it."))
		ask := e.until("question", func(f *frame) bool { return f.Method == "session/request_permission" })
		e.raw(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"session/list","params":{}}`, first))
		if f := e.until("refusal", func(f *frame) bool { return f.Error != nil }); string(f.ID) != first || f.Error.Code != -32600 {
			t.Error(brief(f))
		}
		e.write(object{"jsonrpc": "2.0", "id": ask.ID, "result": selects("allow-once")})
		e.until("response", func(f *frame) bool { return string(f.ID) == first && strings.Contains(string(f.Result), "end_turn") })
	})
}

// TestClientThatDoesNotRead checks that a client that reads nothing delays no cancel, and
// sees everything that matters when it reads again.
func TestClientThatDoesNotRead(t *testing.T) {
	run(t, setting{model: script(pt.Say(strings.Split(strings.Repeat("word ", 20_000), " ")...).Pause(1e9).Call("Bash", object{"command": "touch made"}), pt.Say("Done.").Always())}, func(t *testing.T, e *editor) {
		id := e.newSession()
		e.hold.Lock()
		req := e.send("session/prompt", prompt(id, "Go on."))
		e.notify("session/cancel", object{"sessionId": id})
		e.hold.Unlock()
		if f := e.response(req); !strings.Contains(string(f.Result), "cancelled") {
			t.Error(brief(f))
		}
	})
}

// TestWrongPermissionAnswers checks that invalid answers to permission requests deny the
// call.
func TestWrongPermissionAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"an option that was not offered": `"result":{"outcome":{"outcome":"selected","optionId":"everything"}}`,
		"no outcome":                     `"result":{}`,
		"an unknown outcome":             `"result":{"outcome":{"outcome":"perhaps"}}`,
		"a result of the wrong type":     `"result":7`,
		"an error":                       `"error":{"code":-32601,"message":"no such method"}`,
		"an error that is none":          `"error":7`,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, setting{model: writes}, func(t *testing.T, e *editor) {
				id := e.newSession()
				req := e.send("session/prompt", prompt(id, "Write it."))
				ask := e.until("question", func(f *frame) bool { return f.Method == "session/request_permission" })
				e.raw(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, ask.ID, answer))
				e.response(req)
				if !strings.Contains(e.received(), "failed") {
					t.Errorf("the call was not denied:\n%s", e.received())
				}
			})
		})
	}
}

// TestFailedSessionIsNotKept checks that no session is left of a request that could not open one.
func TestFailedSessionIsNotKept(t *testing.T) {
	run(t, setting{model: script(pt.Say("Hello.").Always())}, func(t *testing.T, e *editor) {
		e.fails(-32603, "session/new", object{"cwd": "/nothing/here", "mcpServers": []any{}})
		list, err := e.cfg.Hub.List(t.Context())
		if err != nil || len(list) > 0 {
			t.Errorf("the hub has %d sessions, want none: %v", len(list), err)
		}
	})
}

// TestOpenedTwice checks that requests that open, close and delete the same session at the same time
// all have a response, and that the session is shown once afterwards.
func TestOpenedTwice(t *testing.T) {
	run(t, setting{model: script(pt.Say("Hello.").Always())}, func(t *testing.T, e *editor) {
		id := e.newSession()
		e.call("session/prompt", prompt(id, "Hello?"))
		at := object{"sessionId": id, "cwd": e.dir, "mcpServers": []any{}}
		want := map[string]bool{}
		for range 8 {
			for _, method := range []string{"session/load", "session/resume", "session/close"} {
				want[e.send(method, at)] = true
			}
		}
		want[e.send("session/load", at)] = true
		for len(want) > 0 {
			f := e.until("a response", func(f *frame) bool { return f.Method == "" && want[string(f.ID)] })
			delete(want, string(f.ID))
		}
		e.call("session/load", at)
		before := strings.Count(e.received(), `"Hello."`)
		e.call("session/prompt", prompt(id, "And now?"))
		if n := strings.Count(e.received(), `"Hello."`) - before; n != 1 {
			t.Errorf("the answer came %d times, want once", n)
		}
	})
}

// TestManyNotifications checks that a flood of notifications starts few goroutines, and that the
// connection stays open.
func TestManyNotifications(t *testing.T) {
	run(t, setting{model: script(pt.Say("Hello.").Always())}, func(t *testing.T, e *editor) {
		id := e.newSession()
		before := runtime.NumGoroutine()
		for range 5000 {
			e.notify("session/cancel", object{"sessionId": id})
			e.notify("mcp/message", object{"serverId": "x", "method": "y"})
			e.notify("session/prompt", prompt(id, "More."))
			e.notify("session/list", object{})
		}
		if n := runtime.NumGoroutine() - before; n > 2*256 {
			t.Errorf("%d more goroutines", n)
		}
		if got := e.call("session/prompt", prompt(id, "Still there?"))["stopReason"]; got != "end_turn" {
			t.Errorf("then: %v", got)
		}
	})
}

// TestFlood checks that many concurrent prompts are all answered: queued ones are cancelled,
// and excess ones are rejected.
func TestFlood(t *testing.T) {
	run(t, setting{model: script(pt.Say("Hello.").Stall().Always())}, func(t *testing.T, e *editor) {
		id := e.newSession()
		var ids []string
		for range 1050 {
			ids = append(ids, e.send("session/prompt", prompt(id, "More.")))
		}
		e.notify("session/cancel", object{"sessionId": id})
		answers := map[string]int{}
		for range ids {
			f := e.until("an answer", func(f *frame) bool { return f.Method == "" })
			switch {
			case f.Error != nil:
				answers[fmt.Sprint(f.Error.Code)]++
			case strings.Contains(string(f.Result), "cancelled"):
				answers["cancelled"]++
			default:
				t.Error(brief(f))
			}
		}
		if answers["cancelled"] != 1024 || answers["-32600"] != 26 {
			t.Errorf("answers %v, want 1024 that are cancelled and 26 that are refused", answers)
		}
	})
}
