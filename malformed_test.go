package parley_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/internal/malformed"
	"github.com/parley-go/parley/wire"
)

// TestMalformedMessages checks that malformed messages and requests of an agent reach the host,
// get a response, and end nothing.
func TestMalformedMessages(t *testing.T) {
	messages, requests := malformed.Messages(), malformed.Requests()
	answered := map[string]bool{}
	opts := agent(t, func(a *agentEnd) int {
		a.hello()
		a.wait("user")
		for i := range max(len(messages), len(requests)) {
			if i < len(messages) {
				a.send("%s", messages[i])
			}
			if i < len(requests) {
				id := fmt.Sprint("r", i)
				a.send(`{"type":"control_request","request_id":%q,"request":%s}`, id, requests[i])
				answered[a.wait("control_response").Response.RequestID] = true
			}
		}
		a.done()
		a.wait("")
		return 0
	})
	opts.CanUseTool = func(_ context.Context, req *wire.CanUseTool) (*wire.PermissionResult, error) {
		if q, ok := parley.Questions(req); ok && len(q) > 0 {
			return parley.Answer(req, map[string][]string{q[0].Question: {"a"}}), nil
		}
		if _, ok := parley.Plan(req); ok {
			return parley.Allow(), nil
		}
		return parley.AllowAlways(req), nil
	}
	opts.Hooks = []parley.Hook{parley.OnEvent("PreToolUse", "", func(context.Context, wire.HookInput) (*wire.HookOutput, error) { return parley.HookContext("x"), nil })}
	opts.OnElicitation = func(context.Context, *wire.Elicitation) (*wire.ElicitResult, error) { return nil, nil }
	opts.OnUserDialog = func(context.Context, *wire.RequestUserDialog) (*wire.RequestUserDialogResponse, error) {
		return &wire.RequestUserDialogResponse{}, nil
	}
	opts.DialogKinds = []string{"x"}
	opts.ToolServers = map[string]*mcp.Server{"a": parley.ToolServer("a", parley.NewTool("a", "", func(context.Context, struct{}) (string, error) { return "", nil }))}
	c := connect(t, opts)
	if err := c.Send(t.Context(), wire.Prompt(wire.Text("hi"))); err != nil {
		t.Fatal(err)
	}
	read := 0
	for m, err := range c.Messages(t.Context()) {
		if err != nil {
			t.Fatalf("after %d messages: %v", read, err)
		}
		read++
		if _, err := wire.Encode(m); err != nil {
			t.Errorf("%T cannot be encoded: %v", m, err)
		}
		if _, err := json.Marshal(m); err != nil {
			t.Errorf("%T cannot be encoded: %v", m, err)
		}
		if r, ok := m.(*wire.Result); ok {
			r.Outcome()
			r.Reason()
			if r.Result == "done" {
				break
			}
		}
	}
	if len(answered) != len(requests) {
		t.Errorf("%d of %d requests were answered", len(answered), len(requests))
	}
}
