package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/crew"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// toolset is the tools that the model has, those of MCP servers included.
type toolset struct {
	tools   []tool.Tool
	keeps   func(tool.Tool) bool // whether it has a tool; nil means all
	aliases map[string]string    // see [Tuning]
	offered uint64               // the generation of the tools of MCP servers among them
	loaded  []string             // tools that ToolSearch loaded

	servers *mcp.Manager    // of the session; may be nil
	own     *mcp.Manager    // of the agent that the conversation is; may be nil
	search  string          // see [Tuning.ToolSearch]
	prefix  *history.Prefix // that shows the tools to the model
	serving *owner
}

// ToolNames returns the names of the tools, as hosts receive them.
func (c *toolset) ToolNames() []string {
	names := make([]string, 0, len(c.tools))
	for _, t := range c.tools {
		name := t.Spec().Name
		if _, ok := t.(*crew.Tool); ok {
			name = call.AgentHostName
		}
		names = append(names, name)
	}
	return names
}

func (c *toolset) findTool(name string) tool.Tool {
	if to, ok := c.aliases[name]; ok {
		name = to
	}
	for _, t := range c.tools {
		if s := t.Spec(); s.Name == name || slices.Contains(s.Aliases, name) {
			return t
		}
	}
	return nil
}

// form returns the tool for the answer's form; nil if it has none.
func (c *toolset) form() *structuredOutput {
	for _, t := range c.tools {
		if s, ok := t.(*structuredOutput); ok {
			return s
		}
	}
	return nil
}

// initWait is how long the first message of a turn waits for MCP servers that are being
// connected and say nothing of how they start, so that it names their tools.
const initWait = 5 * time.Second

// managers returns what holds MCP servers: that of the session, and that of the
// agent that the conversation is.
func (c *toolset) managers() (list []*mcp.Manager) {
	for _, m := range []*mcp.Manager{c.servers, c.own} {
		if m != nil {
			list = append(list, m)
		}
	}
	return list
}

// beginServers has the MCP servers connected that are not yet, and waits a little for
// those that the first message of the turn is to name as connected.
func (c *toolset) beginServers(turn context.Context) {
	managers := c.managers()
	if managers == nil {
		return
	}
	ctx, cancel := context.WithTimeout(turn, initWait) // of all of them
	defer cancel()
	c.serving.runWhileServing(func() {
		for _, m := range managers { // which connect side by side
			m.Begin(ctx, initWait)
		}
	})
	c.offerServers()
}

// awaitServers waits for the MCP servers that the model is not asked without. Its error is about
// one that the turn cannot do without.
func (c *toolset) awaitServers(ctx context.Context) (err error) {
	managers := c.managers()
	if managers == nil {
		return nil
	}
	c.serving.runWhileServing(func() {
		for _, m := range managers {
			err = errors.Join(err, m.Ready(ctx))
		}
	})
	c.offerServers()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// offerServers gives the model the tools that the MCP servers have now.
func (c *toolset) offerServers() {
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
	c.offerTools()
}

func (c *toolset) initServers() []*wire.InitMCPServer {
	if c.servers == nil {
		return []*wire.InitMCPServer{}
	}
	return c.servers.Init()
}

// toolUseMeta names a call of an MCP server's tool for people.
func (c *toolset) toolUseMeta(b *block) []*wire.ToolUseMeta {
	t, ok := c.findTool(b.name).(*mcp.Tool)
	if !ok {
		return nil
	}
	return []*wire.ToolUseMeta{{ID: b.id, DisplayName: t.DisplayName(), ServerDisplayName: t.ServerTitle(), ToolName: t.ServerName()}}
}

// offerTools shows the model the tools that there are: all of them, or the names of those of
// servers if they are too many.
func (c *toolset) offerTools() {
	c.tools = slices.DeleteFunc(slices.Clone(c.tools), func(t tool.Tool) bool { return t.Spec().Name == toolSearchName })
	var deferred []tool.Tool
	size := 0
	for _, t := range c.tools {
		if deferrable(t) {
			deferred = append(deferred, t)
			size += len(t.Spec().Description) + len(t.Spec().Schema)
		}
	}
	how := c.search
	if len(deferred) > 0 && how != searchNever && (how == searchAlways || size > deferAbove) {
		c.tools = append(c.tools, newToolSearch(deferred, func(names []string) { c.serving.Do(func() { c.loadTools(names) }) }))
	}
	c.prefix.SetTools(c.shownTools())
}

// loadTools shows the model tools that were deferred.
func (c *toolset) loadTools(names []string) {
	for _, name := range names {
		if !slices.Contains(c.loaded, name) {
			c.loaded = append(slices.Clone(c.loaded), name)
		}
	}
	c.prefix.SetTools(c.shownTools())
}

// shownTools returns the tools that the model is shown whole. Those that were loaded come last, in
// the order in which they were: what a request begins with changes as little as possible.
func (c *toolset) shownTools() []tool.Tool {
	if !slices.ContainsFunc(c.tools, func(t tool.Tool) bool { return t.Spec().Name == toolSearchName }) {
		return c.tools
	}
	shown := slices.DeleteFunc(slices.Clone(c.tools), deferrable)
	for _, name := range c.loaded {
		if i := slices.IndexFunc(c.tools, func(t tool.Tool) bool { return t.Spec().Name == name && deferrable(t) }); i >= 0 {
			shown = append(shown, c.tools[i])
		}
	}
	return shown
}

// restoreLoaded remembers the tools that a session loaded, from one of its records.
func (c *toolset) restoreLoaded(e *session.Entry) {
	raw := e.Fields["toolUseResult"]
	if !bytes.Contains(raw, []byte(`"total_deferred_tools"`)) {
		return
	}
	var found toolsFound
	if json.Unmarshal(raw, &found) == nil {
		c.loadTools(found.Matches)
	}
}

// keyOfTools tells which tools there are. What our own say of themselves may differ
// from version to version; what those of servers say is part of them.
func (c *toolset) keyOfTools() string {
	var all []any
	for _, t := range c.shownTools() {
		spec := t.Spec()
		switch t.(type) {
		case *mcp.Tool, *structuredOutput, *toolSearch:
			all = append(all, []any{spec.Name, spec.Description, spec.Schema})
		default:
			all = append(all, spec.Name)
		}
	}
	sum := sha256.Sum256(mustJSON(all))
	return hex.EncodeToString(sum[:16])
}
