package engine

import (
	"encoding/json"
	"slices"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/tool"
)

// Changes are the settings that a host may still change before the first prompt.
type Changes struct {
	SystemPrompt       []string        // nil changes nothing
	AppendSystemPrompt string          // empty changes nothing
	JSONSchema         json.RawMessage // nil changes nothing
	Skills             []string        // names of the enabled skills; nil changes nothing

	Agents           []*agents.Definition // added to the present ones; the same name replaces one
	Agent            *agents.Definition   // the agent that the conversation runs as, if none is set yet
	ForwardSubagents bool                 // see [Config]; false changes nothing
	SpareBackground  bool                 // see [Config]; false changes nothing
	Questions        []string             // see [Config]; added only if none were set

	ToolAliases      map[string]string // see [Tuning]; nil changes nothing
	PlanInstructions string            // see [Tuning]; empty changes nothing
	Suggestions      bool              // see [Tuning]; false changes nothing
}

// Change applies changes that hosts make before the first prompt.
func (c *Conversation) Change(ch Changes) error {
	if ch.JSONSchema != nil && string(ch.JSONSchema) != "null" {
		st, err := newStructuredOutput(ch.JSONSchema)
		if err != nil {
			return err
		}
		c.tools = append(withoutStructured(c.tools), st)
	}
	if ch.SystemPrompt != nil {
		c.given = ch.SystemPrompt
	}
	if ch.AppendSystemPrompt != "" {
		c.appended = ch.AppendSystemPrompt
	}
	if ch.Skills != nil {
		c.only = ch.Skills
	}
	if len(ch.Agents) > 0 && len(c.agents) > 0 {
		c.setAgents(agents.Merge(c.agents, ch.Agents))
	}
	if ch.Agent != nil && c.role == nil {
		if err := c.runAs(ch.Agent); err != nil {
			return err
		}
	}
	if len(ch.Questions) > 0 && !slices.ContainsFunc(QuestionTools(), func(name string) bool { return c.findTool(name) != nil }) {
		c.tools = append(slices.Clone(c.tools), questionTools(ch.Questions, c.cfg.Tuning.PreviewFormat, &c.owner, &c.permissions)...)
	}
	if ch.ToolAliases != nil {
		c.aliases = ch.ToolAliases
	}
	if ch.PlanInstructions != "" {
		c.planWords = ch.PlanInstructions
	}
	c.suggests = c.suggests || ch.Suggestions
	c.forward = c.forward || ch.ForwardSubagents
	c.spare = c.spare || ch.SpareBackground
	c.makePrefix()
	c.publish()
	return nil
}

func withoutStructured(tools []tool.Tool) []tool.Tool {
	var rest []tool.Tool
	for _, t := range tools {
		if _, ok := t.(*structuredOutput); !ok {
			rest = append(rest, t)
		}
	}
	return rest
}
