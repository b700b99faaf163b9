package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/crew"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// runAs makes the conversation run as an agent, with the agent's prompt, tools, model
// and mode. It is called before the first prompt.
func (c *Conversation) runAs(def *agents.Definition) error {
	n, err := crew.NewNarrowing(def)
	if err != nil {
		return err
	}
	if def.Model != "" && def.Model != "inherit" {
		if err := c.useModel(def.Model); err != nil {
			return err
		}
	}
	if def.Effort != "" {
		c.effort = def.Effort
	}
	if def.MaxTurns > 0 {
		c.maxTurns = def.MaxTurns
	}
	if c.cfg.AgentParts != nil {
		parts, err := c.cfg.AgentParts(def)
		if err != nil {
			return fmt.Errorf("the agent %s cannot be used: %w", def.Name, err)
		}
		c.brought, c.own = parts, parts.MCP
		if parts.Close != nil {
			c.runner.Env.OnClose(parts.Close)
		}
		if parts.Hooks != nil {
			c.host = agentHost{c.host, parts}
		}
	}
	c.role, c.self, c.keeps = def, &n, n.Keeps
	c.noInstructions = c.noInstructions || def.OmitContext
	c.mode = call.Narrowest(c.mode, def.Mode)
	c.tools = slices.DeleteFunc(slices.Clone(c.tools), func(t tool.Tool) bool {
		switch t.(type) {
		case call.AgentTool, *structuredOutput, *askUser, *enterPlan, *exitPlan:
			return false
		case *mcp.Tool:
			return true // the MCP manager adds them
		}
		return !n.Keeps(t)
	})
	c.offered = 0
	c.setAgents(c.agents)
	return nil
}

// agentHost is the host of a conversation that runs as an agent with its own hooks.
type agentHost struct {
	Host
	parts *AgentParts
}

func (h agentHost) Hooks(ctx context.Context, in wire.HookInput, subject, toolUseID string) []hook.Answer {
	return crew.AllHooks(ctx, h.Host, h.parts.Hooks, in, subject, toolUseID)
}
