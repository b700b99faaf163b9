package engine

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// initWait is how long the first message of a turn waits for MCP servers that are being
// connected and say nothing of how they start, so that it names their tools.
const initWait = 5 * time.Second

// managers returns what holds MCP servers: that of the session, and that of the
// agent that the conversation is.
func (c *Conversation) managers() (list []*mcp.Manager) {
	if c.cfg.MCP != nil {
		list = append(list, c.cfg.MCP)
	}
	if c.brought != nil && c.brought.MCP != nil {
		list = append(list, c.brought.MCP)
	}
	return list
}

// beginServers has the MCP servers connected that are not yet, and waits a little for
// those that the first message of the turn is to name as connected.
func (c *Conversation) beginServers(t *turn) {
	managers := c.managers()
	if managers == nil {
		return
	}
	ctx, cancel := context.WithTimeout(t.ctx, initWait) // of all of them
	defer cancel()
	c.runWhileServing(func() {
		for _, m := range managers { // which connect side by side
			m.Begin(ctx, initWait)
		}
	})
	c.offerServers()
}

// awaitServers waits for the MCP servers that the model is not asked without. Its ending is
// one that the turn cannot do without.
func (c *Conversation) awaitServers(t *turn) *ending {
	managers := c.managers()
	if managers == nil {
		return nil
	}
	var err error
	c.runWhileServing(func() {
		for _, m := range managers {
			err = errors.Join(err, m.Ready(t.ctx))
		}
	})
	c.offerServers()
	if err == nil || t.ctx.Err() != nil {
		return nil
	}
	end := c.broken(err)
	end.noTurns = true
	return end
}

// offerServers gives the model the tools that the MCP servers have now.
func (c *Conversation) offerServers() {
	var tools []tool.Tool
	var generation uint64
	for _, m := range c.managers() {
		more, n := m.Tools()
		// Of two tools with one name the agent's own counts.
		tools = append(slices.DeleteFunc(tools, func(t tool.Tool) bool {
			return slices.ContainsFunc(more, func(own tool.Tool) bool { return own.Spec().Name == t.Spec().Name })
		}), more...)
		generation += n
	}
	if generation == c.offered {
		return
	}
	c.offered = generation
	if c.keeps != nil {
		tools = slices.DeleteFunc(slices.Clone(tools), func(t tool.Tool) bool { return !c.keeps(t) })
	}
	c.tools = append(slices.DeleteFunc(slices.Clone(c.tools), mcp.Offers), tools...)
	offerTools(c)
}

func (c *Conversation) initServers() []*wire.InitMCPServer {
	if c.cfg.MCP == nil {
		return []*wire.InitMCPServer{}
	}
	return c.cfg.MCP.Init()
}

// toolUseMeta names a call of an MCP server's tool for people.
func (c *Conversation) toolUseMeta(b *block) []*wire.ToolUseMeta {
	t, ok := c.findTool(b.name).(*mcp.Tool)
	if !ok {
		return nil
	}
	return []*wire.ToolUseMeta{{ID: b.id, DisplayName: t.DisplayName(), ServerDisplayName: t.ServerTitle(), ToolName: t.ServerName()}}
}
