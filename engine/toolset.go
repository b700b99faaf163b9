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

// toolset holds the tools of the model, including those of MCP servers.
type toolset struct {
	tools   []tool.Tool
	keeps   func(tool.Tool) bool // reports whether the model has a tool; nil means all
	aliases map[string]string    // see [Tuning]
	offered uint64               // generation of the MCP tools among them
	loaded  []string             // tools that ToolSearch loaded

	servers *mcp.Manager    // of the session; may be nil
	own     *mcp.Manager    // of the agent that the conversation runs as; may be nil
	search  string          // see [Tuning.ToolSearch]
	hidden  string          // see [Tuning.PromptTool]
	prefix  *history.Prefix // contains the tools in requests
	serving *owner
}

// ToolNames returns the names of the tools, as sent to hosts.
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

// form returns the tool for structured output, or nil.
func (c *toolset) form() *structuredOutput {
	for _, t := range c.tools {
		if s, ok := t.(*structuredOutput); ok {
			return s
		}
	}
	return nil
}

// initWait is how long the first message of a turn waits for MCP servers that are connecting and
// do not configure how to wait for them, so that it can name their tools.
const initWait = 5 * time.Second

// managers returns the managers of MCP servers: that of the session, and that of the agent that
// the conversation runs as.
func (c *toolset) managers() (list []*mcp.Manager) {
	for _, m := range []*mcp.Manager{c.servers, c.own} {
		if m != nil {
			list = append(list, m)
		}
	}
	return list
}

// beginServers starts to connect the MCP servers, and waits briefly for those that the first
// message of the turn should name as connected.
func (c *toolset) beginServers(turn context.Context) {
	managers := c.managers()
	if managers == nil {
		return
	}
	ctx, cancel := context.WithTimeout(turn, initWait) // for all of them together
	defer cancel()
	c.serving.runWhileServing(func() {
		for _, m := range managers { // they connect concurrently
			m.Begin(ctx, initWait)
		}
	})
	c.offerServers()
}

// awaitServers waits for the MCP servers that must be connected before the model is asked. It
// returns an error if one that the turn requires has failed.
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

// offerServers updates the model's tools to those that the MCP servers have now.
func (c *toolset) offerServers() {
	var tools []tool.Tool
	var generation uint64
	for _, m := range c.managers() {
		more, n := m.Tools()
		// If two tools have the same name, the agent's own is used.
		tools = append(slices.DeleteFunc(tools, func(t tool.Tool) bool {
			return slices.ContainsFunc(more, func(own tool.Tool) bool { return own.Spec().Name == t.Spec().Name })
		}), more...)
		generation += n
	}
	if generation == c.offered {
		return
	}
	c.offered = generation
	tools = slices.DeleteFunc(slices.Clone(tools), func(t tool.Tool) bool {
		return t.Spec().Name == c.hidden || c.keeps != nil && !c.keeps(t)
	})
	c.tools = append(slices.DeleteFunc(slices.Clone(c.tools), mcp.Offers), tools...)
	c.offerTools()
}

func (c *toolset) initServers() []*wire.InitMCPServer {
	if c.servers == nil {
		return []*wire.InitMCPServer{}
	}
	return c.servers.InitServers()
}

// toolUseMeta returns the display names of a call of an MCP tool.
func (c *toolset) toolUseMeta(b *block) []*wire.ToolUseMeta {
	t, ok := c.findTool(b.name).(*mcp.Tool)
	if !ok {
		return nil
	}
	return []*wire.ToolUseMeta{{ID: b.id, DisplayName: t.DisplayName(), ServerDisplayName: t.ServerTitle(), ToolName: t.ServerName()}}
}

// offerTools adds the tools to requests: all of them, or only the names of MCP tools if they are
// too many.
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

// loadTools adds deferred tools to requests.
func (c *toolset) loadTools(names []string) {
	for _, name := range names {
		if !slices.Contains(c.loaded, name) {
			c.loaded = append(slices.Clone(c.loaded), name)
		}
	}
	c.prefix.SetTools(c.shownTools())
}

// shownTools returns the tools that are sent with their full spec. Loaded tools come last, in the
// order of loading, so that the beginning of requests changes as little as possible.
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

// ServerTools lists the tools of MCP servers with an estimate of their tokens.
func (c *toolset) ServerTools() []*wire.ContextMCPTool {
	list, shown := []*wire.ContextMCPTool{}, c.shownTools()
	for _, t := range c.tools {
		if m, ok := t.(*mcp.Tool); ok {
			spec := m.Spec()
			list = append(list, &wire.ContextMCPTool{Name: spec.Name, ServerName: spec.Server, Tokens: int64(len(spec.Name)+len(spec.Description)+len(spec.Schema)) / 4,
				IsLoaded: new(slices.Contains(shown, t))})
		}
	}
	return list
}

// restoreLoaded restores from a record which tools a session has loaded.
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

// keyOfTools returns a hash that identifies the tools. The description of a built-in tool is not
// part of it, because it may differ between versions; that of an MCP tool is.
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
