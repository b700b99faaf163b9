// Package listagents implements the tool ListAgents, which lists the subagents of the
// conversation.
package listagents

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/parley-go/parley/engine/tool"
)

//go:embed listagents.md
var description string

// Tool is the tool ListAgents.
type Tool struct{ spec tool.Spec }

// New returns the tool.
func New() *Tool {
	return &Tool{spec: tool.Spec{Name: "ListAgents", Description: description, Schema: json.RawMessage(`{"type": "object", "properties": {}}`), ReadOnly: true}}
}

// Output is the structured result.
type Output struct {
	Listing  string    `json:"listing"`
	Sections []Section `json:"sections"`
	Notes    []string  `json:"notes"`
}

// A Section lists agents of one kind.
type Section struct {
	Title  string  `json:"title"`
	Agents []Agent `json:"agents"`
}

// An Agent is a subagent that was started.
type Agent struct {
	ID          string `json:"id"`
	Type        string `json:"type"`
	Description string `json:"description"`
	Status      string `json:"status"`
}

// Spec implements [tool.Tool].
func (t *Tool) Spec() *tool.Spec { return &t.spec }

// Access returns nothing: the agents belong to the conversation.
func (t *Tool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

// Run lists the agents.
func (t *Tool) Run(_ context.Context, call *tool.Call) (*tool.Result, error) {
	out := &Output{Sections: []Section{}, Notes: []string{}}
	var agents []Agent
	var b strings.Builder
	for _, task := range call.Env.Tasks().All() {
		info := task.Info()
		if info.Kind != tool.TaskAgent || info.ID == call.Env.Agent {
			continue
		}
		agents = append(agents, Agent{info.ID, info.AgentType, info.Description, info.Status})
		fmt.Fprintf(&b, "- %s (%s, %s): %s\n", info.ID, info.AgentType, info.Status, info.Description)
	}
	if len(agents) == 0 {
		out.Listing = "No agents: this conversation has started none, and no other session can be reached from here."
		return tool.Text(out.Listing, out), nil
	}
	out.Sections = append(out.Sections, Section{"Subagents of this conversation", agents})
	out.Listing = "Subagents of this conversation:\n" + strings.TrimSpace(b.String())
	return tool.Text(out.Listing, out), nil
}
