package agent_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/parley-go/parley/parleytest"
)

// TestWithdrawnRequestIsNoFailure checks, for every kind of request to the host, that an
// interrupt or the end of the session withdraws the request before its response, that no
// request follows, and that nothing reports the request as failed or denied.
func TestWithdrawnRequestIsNoFailure(t *testing.T) {
	waits := []string{"UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "PermissionRequest", "PermissionDenied",
		"SubagentStart", "SubagentStop", "Stop", "can_use_tool", "tools/call", "Elicitation", "elicitation", "ElicitationResult"}
	for _, at := range waits {
		for _, by := range []string{"interrupt", "end_session"} {
			t.Run(at+" "+by, func(t *testing.T) {
				for range 2 { // the order of goroutines differs
					synctest.Test(t, func(t *testing.T) { cutOffAt(t, at, by) })
				}
			})
		}
	}
}

// cutOffAt sends a control request when the agent first waits for an event's hook or for
// another request.
func cutOffAt(t *testing.T, at, by string) {
	dir, outside := workdir(t)
	turn := parleytest.Call("Read", map[string]string{"file_path": filepath.Join(outside, "b.txt")})
	var args []string
	switch at {
	case "PermissionDenied":
		turn = parleytest.Call("Write", map[string]string{"file_path": filepath.Join(dir, "new"), "content": "x"})
		args = []string{"--permission-mode", "auto"}
	case "PostToolUseFailure":
		turn = parleytest.Call("Read", map[string]string{"file_path": filepath.Join(dir, "missing")})
	case "SubagentStart", "SubagentStop":
		turn = parleytest.Call("Agent", map[string]any{"description": "d", "prompt": "BELOW", "run_in_background": false})
	case "tools/call", "Elicitation", "elicitation", "ElicitationResult":
		turn = parleytest.Call("mcp__s__tool", map[string]any{})
	}
	model := parleytest.Script(turn, parleytest.Say("done")).When("below", parleytest.FirstUser("BELOW"), parleytest.Say("found"))
	if at == "PermissionDenied" {
		model.When("judge", parleytest.FirstUser(`"user_prompts"`), parleytest.Say(`{"allow": false, "reason": "no"}`))
	}
	hooks := map[string]any{}
	if at != "can_use_tool" && at != "tools/call" && at != "elicitation" {
		hooks[at] = []any{map[string]any{"hookCallbackIds": []string{at}}}
	}
	registered, _ := json.Marshal(hooks)
	h := newRawHost(t, dir, model, string(registered)+`,"sdkMcpServers":["s"]`, args...)
	response, reached := false, false
	open := map[string]string{} // requests that were neither answered nor withdrawn
	for line := range h.lines {
		text, _ := json.Marshal(line)
		var m struct {
			Type      string
			Subtype   string
			RequestID string `json:"request_id"`
			Response  struct {
				RequestID string `json:"request_id"`
			}
			Request struct {
				Subtype    string
				CallbackID string          `json:"callback_id"`
				Message    json.RawMessage // of an elicitation, a text
			}
		}
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		var call struct {
			ID     json.RawMessage
			Method string
		}
		json.Unmarshal(m.Request.Message, &call)
		switch {
		case m.Type == "control_cancel_request":
			if _, ok := open[m.RequestID]; !ok || response {
				t.Errorf("after the response, or not open: %s", text)
			}
			delete(open, m.RequestID)
		case m.Type == "control_response" && m.Response.RequestID == "cut":
			response = true
		case m.Type == "control_request" && response && (m.Request.Subtype != "mcp_message" || call.Method == at):
			t.Errorf("after the response: %s", text)
		case m.Type == "control_request" && (m.Request.CallbackID == at || m.Request.Subtype == at || call.Method == at):
			reached = true
			open[m.RequestID] = string(text)
			h.say(`{"type":"control_request","request_id":"cut","request":{"subtype":%q}}`, by)
		case m.Type == "control_request" && call.Method == "tools/call": // it asks the user something
			open[m.RequestID] = string(text)
			h.say(`{"type":"control_request","request_id":"e","request":{"subtype":"mcp_message","server_name":"s","message":{"jsonrpc":"2.0","id":9,"method":"elicitation/create","params":{"message":"Your name?","requestedSchema":{"type":"object","properties":{}}}}}}`)
		case m.Type == "control_request":
			h.answer(m.RequestID, answerFor(at, m.Request.Subtype, call.Method, call.ID))
		case m.Type == "system" && (m.Subtype == "informational" || m.Subtype == "permission_denied"):
			t.Errorf("emitted %s", text)
		case m.Type == "user" && (strings.Contains(string(text), "hook error") || strings.Contains(string(text), "request failed")):
			t.Errorf("the model gets %s", text)
		case m.Type == "result":
			if !reached || len(open) > 0 || !response {
				t.Errorf("reached %v, not withdrawn %q, responded %v", reached, open, response)
			}
			if at != "Stop" && !strings.Contains(string(line["subtype"]), "error_during_execution") { // Stop follows the answer
				t.Errorf("the result is %s", text)
			}
			return
		}
	}
	t.Error("no result")
}

// answerFor responds to requests so that the agent reaches the one that a test is about.
func answerFor(at, subtype, method string, id json.RawMessage) string {
	switch {
	case subtype == "can_use_tool" && at == "PermissionDenied":
		return `{"behavior":"deny","message":"no"}`
	case subtype == "can_use_tool":
		return `{"behavior":"allow"}`
	case subtype == "elicitation":
		return `{"action":"accept","content":{}}`
	case method == "initialize":
		return fmt.Sprintf(`{"mcp_response":{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}}`, id)
	case method == "tools/list":
		return fmt.Sprintf(`{"mcp_response":{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"tool","inputSchema":{"type":"object"}}]}}}`, id)
	case subtype == "mcp_message":
		return `{"mcp_response":{"jsonrpc":"2.0","result":{}}}`
	}
	return "{}"
}
