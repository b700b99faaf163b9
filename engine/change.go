package engine

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
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
		c.set.jsonSchema = ch.JSONSchema
		c.tools = append(withoutStructured(c.tools), st)
	}
	if ch.SystemPrompt != nil {
		c.set.systemPrompt = ch.SystemPrompt
	}
	if ch.AppendSystemPrompt != "" {
		c.set.appendPrompt = ch.AppendSystemPrompt
	}
	if ch.Skills != nil {
		c.only = ch.Skills
	}
	if len(ch.Agents) > 0 && len(c.set.agents) > 0 {
		c.setAgents(agents.Merge(c.set.agents, ch.Agents))
	}
	if ch.Agent != nil && c.set.agent == nil {
		if err := c.become(ch.Agent); err != nil {
			return err
		}
	}
	if len(c.set.questions) == 0 && len(ch.Questions) > 0 {
		c.set.questions = ch.Questions
		c.tools = append(slices.Clone(c.tools), c.questionTools()...)
	}
	if ch.ToolAliases != nil {
		c.aliases = ch.ToolAliases
	}
	if ch.PlanInstructions != "" {
		c.planWords = ch.PlanInstructions
	}
	c.set.tuning.Suggestions = c.set.tuning.Suggestions || ch.Suggestions
	c.set.forward = c.set.forward || ch.ForwardSubagents
	c.set.spare = c.set.spare || ch.SpareBackground
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

// Times returns how long this process has run the conversation, and how long the
// session has waited for models.
func (c *Conversation) Times() (total, api time.Duration) {
	return c.runner.Now().Sub(c.began), c.ledger.APITime()
}

// Rename sets the title of the session and emits the change.
func (c *Conversation) Rename(title string) error {
	if err := c.rename(title); err != nil {
		return err
	}
	c.rec.Emit(&wire.SessionTitleChanged{Title: c.title})
	return nil
}
