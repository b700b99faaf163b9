package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
)

// TestToolSearch checks that 150 tools of the host cost little until they are used. The model
// finds one, calls it, and a resumed session still shows it.
func TestToolSearch(t *testing.T) {
	var tools []*parley.Tool
	for i := range 150 {
		tools = append(tools, parley.NewTool(fmt.Sprintf("tool_%d", i), strings.Repeat("Does a thing that takes a while to explain. ", 10)+fmt.Sprintf("Number%d.", i),
			func(_ context.Context, in struct {
				What string `json:"what"`
			}) (string, error) {
				return "ran with " + in.What, nil
			}))
	}
	store := &session.Memory{}
	const id = "3f1f7c1e-0f5b-4d3c-9c55-2f6a6c8f0a11"
	run := func(s *parleytest.Scenario, resume bool, environ ...string) []*parleytest.Request {
		t.Helper()
		m := s.Model()
		m.Strict, m.Record = true, true
		opts := &parley.Options{Cwd: t.TempDir(), ToolServers: map[string]*mcp.Server{"big": parley.ToolServer("big", tools...)}, AllowedTools: []string{"mcp__big"},
			Dialer: agent.InProcess(agent.Config{Model: m, Store: store, Environ: environ})}
		if resume {
			opts.Resume = id
		} else {
			opts.SessionID = id
		}
		_, r, err := collect(t, opts, "Do it.")
		if err != nil || r.IsError {
			t.Fatal(err, r)
		}
		if err := m.Done(); err != nil {
			t.Error(err)
		}
		return m.Requests()
	}
	size := func(r *parleytest.Request) (names []string, bytes int) {
		var body struct {
			Tools []json.RawMessage `json:"tools"`
		}
		if err := json.Unmarshal(r.Body, &body); err != nil {
			t.Fatal(err)
		}
		for _, raw := range body.Tools {
			var of struct{ Name string }
			json.Unmarshal(raw, &of)
			names = append(names, of.Name)
			if of.Name == "ToolSearch" || strings.HasPrefix(of.Name, "mcp__") {
				bytes += len(raw)
			}
		}
		return names, bytes
	}
	requests := run(parleytest.Script(
		parleytest.Call("ToolSearch", `{"query":"+number42."}`),
		parleytest.Expect(parleytest.ToolResult("mcp__big__tool_42")).Call("mcp__big__tool_42", `{"what":"care"}`),
		parleytest.Expect(parleytest.ToolResult("ran with care")).Say("done")), false)
	names, n := size(requests[0])
	if got := strings.Join(names, " "); strings.Contains(got, "mcp__big") || n/4 > 2000 {
		t.Errorf("before any search the tools of the server take about %d tokens, and the request has %s", n/4, got)
	}
	if names, _ = size(requests[1]); names[len(names)-1] != "mcp__big__tool_42" {
		t.Errorf("after the search the request has %s", names)
	}
	requests = run(parleytest.Script(parleytest.Say("again")), true)
	if names, _ = size(requests[0]); names[len(names)-1] != "mcp__big__tool_42" {
		t.Errorf("the resumed session has %s", names)
	}
	requests = run(parleytest.Script(parleytest.Say("all of them")), true, "ENABLE_TOOL_SEARCH=false")
	if names, _ = size(requests[0]); slices.Contains(names, "ToolSearch") || !slices.Contains(names, "mcp__big__tool_149") {
		t.Errorf("with ENABLE_TOOL_SEARCH=false the request has %s", names)
	}
}
