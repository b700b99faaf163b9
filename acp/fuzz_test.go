package acp_test

import (
	"encoding/json"
	"strings"
	"testing"

	pt "github.com/parley-go/parley/parleytest"
)

// FuzzFrames sends a line to the server, and checks that all responses match the published schema, which
// the editor validates, and that the connection stays open. SID stands for a session.
func FuzzFrames(f *testing.F) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":7,"method":"session/list","params":{}}`,
		`{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"SID","prompt":[{"type":"text","text":"x"}]}}`,
		`{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":{"sessionId":"SID","prompt":[{"type":"resource_link","uri":"file:///a","name":"a"}]}}`,
		`{"jsonrpc":"2.0","id":7,"method":"session/set_mode","params":{"sessionId":"SID","modeId":"plan"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"session/set_config_option","params":{"sessionId":"SID","configId":"model","value":"x"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"session/fork","params":{"sessionId":"SID","cwd":"/"}}`,
		`{"jsonrpc":"2.0","id":7,"method":"session/close","params":{"sessionId":"SID"}}`,
		`{"jsonrpc":"2.0","id":"a","method":"session/delete","params":{"sessionId":"SID"}}`,
		`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"SID"}}`,
		`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":55}}`,
		`{"jsonrpc":"2.0","id":7,"method":"authenticate","params":{"methodId":"x"}}`,
		`{"jsonrpc":"2.0","id":99,"result":{}}`, `[]`, `{"jsonrpc":`, ``, `{"jsonrpc":"2.0","id":1e400,"method":"x"}`, "\xff",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		// A server is a program that would run, and a response to the end of the test would end it
		// early.
		if strings.ContainsAny(line, "\n\r") || strings.Contains(line, "mcpServers") || strings.Contains(line, "session/new") || strings.Contains(line, "load") {
			return
		}
		var sent struct {
			ID     json.RawMessage
			Method string
		}
		if json.Unmarshal([]byte(line), &sent); strings.HasPrefix(string(sent.ID), "1000") {
			return
		}
		run(t, setting{model: script(pt.Say("Hello.").Always())}, func(t *testing.T, e *editor) {
			id := e.newSession()
			e.id = 1000_000
			e.mu.Lock()
			e.methods[string(sent.ID)] = sent.Method
			e.mu.Unlock()
			e.raw(strings.ReplaceAll(line, "SID", id))
			e.call("session/list", object{})
		})
	})
}
