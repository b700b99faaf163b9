package acp_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/acp"
	pt "github.com/parley-go/parley/parleytest"
)

// docs answers messages like an MCP server with one tool.
func docs(call func(params json.RawMessage) any) func(string, json.RawMessage) any {
	return func(method string, params json.RawMessage) any {
		switch method {
		case "initialize":
			var p struct{ ProtocolVersion string }
			json.Unmarshal(params, &p)
			return object{"result": object{"protocolVersion": p.ProtocolVersion, "capabilities": object{"tools": object{}}, "serverInfo": object{"name": "docs", "version": "1"}}}
		case "tools/list":
			return object{"result": object{"tools": []any{object{"name": "lookup", "description": "Looks a word up.", "inputSchema": object{"type": "object"}}}}}
		case "tools/call":
			return call(params)
		}
		return object{"error": object{"code": acp.CodeMethodNotFound, "message": "there is no method " + method}}
	}
}

// ownServer is an MCP server that the client serves over the connection.
func ownServer(e *editor) object {
	return object{"cwd": e.dir, "mcpServers": []any{object{"type": "acp", "name": "docs", "serverId": "docs-1"}}}
}

// TestServerOfTheClient checks that the agent calls a tool of an MCP server that the client serves
// over the connection (type acp), in both versions of the protocol.
func TestServerOfTheClient(t *testing.T) {
	for version := 1; version <= 2; version++ {
		model := script(pt.Call("mcp__docs__lookup", object{"word": "hub"}), pt.Say("Done."))
		run(t, setting{model: model, version: version}, func(t *testing.T, e *editor) {
			e.permit = func(*frame) any { return selects("allow-once") }
			var asked []string
			e.serve = docs(func(params json.RawMessage) any {
				asked = append(asked, string(params))
				return object{"result": object{"content": []any{object{"type": "text", "text": "A hub runs sessions."}}}}
			})
			id := e.call("session/new", ownServer(e))["sessionId"].(string)
			e.call("session/prompt", prompt(id, "What is a hub?"))
			completed := func(f *frame) bool { u := update(f); return u != nil && u["status"] == "completed" }
			i := slices.IndexFunc(e.all, completed)
			if i < 0 { // version 2 responds to the prompt first
				e.until("result of the call", completed)
				i = len(e.all) - 1
			}
			if result := string(e.all[i].Params); !strings.Contains(result, "A hub runs sessions.") {
				t.Errorf("the result is %s", result)
			}
			if len(asked) != 1 || !strings.Contains(asked[0], `"word":"hub"`) {
				t.Errorf("the server received %q", asked)
			}
		})
	}
}

// TestServerOfTheClientFails checks that an error of the client's server reaches the model, that a
// cancel withdraws the message to it, and that the servers go away with the connection.
func TestServerOfTheClientFails(t *testing.T) {
	model := script(pt.Call("mcp__docs__lookup", object{}), pt.Say("It failed."), pt.Call("mcp__docs__lookup", object{}), pt.Say("Never."), pt.Call("mcp__docs__lookup", object{}), pt.Say("Gone."))
	run(t, setting{model: model}, func(t *testing.T, e *editor) {
		e.permit = func(*frame) any { return selects("allow-once") }
		e.serve = docs(func(json.RawMessage) any { return object{"error": object{"code": -1, "message": "no such word"}} })
		id := e.call("session/new", ownServer(e))["sessionId"].(string)
		e.call("session/prompt", prompt(id, "Look it up."))
		if !strings.Contains(e.received(), "failed") {
			t.Errorf("the call did not fail:\n%s", e.received())
		}
		e.serve = docs(func(json.RawMessage) any { return nil })
		waiting := e.send("session/prompt", prompt(id, "Again."))
		message := e.until("call", func(f *frame) bool {
			return f.Method == "mcp/message" && strings.Contains(string(f.Params), "tools/call")
		})
		progress := object{"serverId": "docs-1", "requestId": "1", "method": "notifications/progress", "params": object{"progressToken": 1, "progress": 0.5}}
		e.notify("mcp/message", progress)
		e.fails(acp.CodeInvalidRequest, "mcp/message", progress)
		e.notify("session/cancel", object{"sessionId": id})
		e.until("withdrawal", func(f *frame) bool {
			return f.Method == "$/cancel_request" && strings.Contains(string(f.Params), `"requestId":`+string(message.ID))
		})
		if f := e.response(waiting); !strings.Contains(string(f.Result), "cancelled") {
			t.Errorf("the cancelled prompt: %s", brief(f))
		}
		e.serve = nil
		e.reconnect()
		e.call("session/resume", object{"sessionId": id, "cwd": e.dir, "mcpServers": []any{}})
		if got := e.call("session/prompt", prompt(id, "And now?"))["stopReason"]; got != "end_turn" {
			t.Errorf("the prompt without the server: %v", got)
		}
		for _, bad := range []object{{"type": "acp", "name": "x"}, {"type": "acp", "name": "", "serverId": "1"}} {
			e.fails(acp.CodeInvalidParams, "session/new", object{"cwd": e.dir, "mcpServers": []any{bad}})
		}
	})
}
