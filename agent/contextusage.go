package agent

import (
	"math"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/wire"
)

// contextUsage estimates what fills the model's context. Names and colors are those of the official command.
func (s *server) contextUsage() *wire.GetContextUsageResponse {
	u := s.conv.Context()
	window := u.Window
	r := &wire.GetContextUsageResponse{
		Model: s.conv.Model().ID, MaxTokens: window, RawMaxTokens: window, AutocompactSource: u.WindowFrom,
		MemoryFiles: s.conv.MemoryFiles(), MCPTools: s.conv.ServerTools(), MCPInstructions: []*wire.ContextMCPInstructions{}, Agents: []*wire.ContextAgent{},
		AutoCompactThreshold: u.CompactsAt, IsAutoCompactEnabled: u.AutoCompact, APIUsage: u.Last,
	}
	var memory, servers, deferred, custom int64
	for _, f := range r.MemoryFiles {
		memory += f.Tokens
	}
	for _, t := range r.MCPTools {
		if *t.IsLoaded {
			servers += t.Tokens
		} else {
			deferred += t.Tokens
		}
	}
	for _, d := range s.conv.Agents() {
		if d.Source != agents.Builtin {
			a := &wire.ContextAgent{AgentType: d.Name, Source: string(d.Source), Path: d.Path, Tokens: int64(len(d.Name)+len(d.Description)) / 4}
			r.Agents, custom = append(r.Agents, a), custom+a.Tokens
		}
	}
	add := func(id, name, color, kind string, tokens int64) {
		if tokens > 0 || kind == "free" {
			r.Categories = append(r.Categories, &wire.ContextCategory{ID: id, Name: name, Tokens: tokens, Color: color, Kind: kind})
		}
	}
	add("system_prompt", "System prompt", "promptBorder", "used", u.System)
	add("system_tools", "System tools", "inactive", "used", max(0, u.Tools-servers-custom))
	add("mcp_tools", "MCP tools", "cyan_FOR_SUBAGENTS_ONLY", "used", servers)
	add("mcp_tools_deferred", "MCP tools (deferred)", "inactive", "deferred", deferred)
	add("custom_agents", "Custom agents", "permission", "used", custom)
	add("memory_files", "Memory files", "claude", "used", memory)
	add("messages", "Messages", "purple_FOR_SUBAGENTS_ONLY", "used", max(0, u.Messages-memory))
	for _, c := range r.Categories {
		if c.Kind == "used" {
			r.TotalTokens += c.Tokens
		}
	}
	buffer := int64(0)
	if u.AutoCompact {
		buffer = max(0, window-u.CompactsAt)
		add("autocompact_buffer", "Autocompact buffer", "inactive", "buffer", buffer)
	}
	add("free_space", "Free space", "promptBorder", "free", max(0, window-r.TotalTokens-buffer))
	if window > 0 {
		r.Percentage = math.Round(float64(r.TotalTokens*100) / float64(window))
		r.GridRows = contextGrid(r.Categories, window)
	}
	return r
}

// contextGrid draws the context as rows of squares: the used categories, free space, and at the end the buffer.
func contextGrid(categories []*wire.ContextCategory, window int64) [][]*wire.ContextCell {
	const rows = 10
	columns := 10
	if window >= 1_000_000 {
		columns = 20
	}
	squares := rows * columns
	draw := func(kind string) (cells []*wire.ContextCell) {
		for _, c := range categories {
			exact := float64(c.Tokens) / float64(window) * float64(squares)
			n := max(1, int(math.Round(exact)))
			for i := 0; c.Kind == kind && i < n; i++ {
				cells = append(cells, &wire.ContextCell{Color: c.Color, IsFilled: true, CategoryName: c.Name, Tokens: c.Tokens,
					Percentage: math.Round(float64(c.Tokens*100) / float64(window)), SquareFullness: min(1, max(0, exact-float64(i)))})
			}
		}
		return cells
	}
	cells, end, free := draw("used"), draw("buffer"), draw("free")
	cells = cells[:min(len(cells), squares)]
	end = end[:min(len(end), squares-len(cells))]
	for len(free) > 0 && len(cells)+len(end) < squares {
		cell := *free[0]
		cell.SquareFullness = 1
		cells = append(cells, &cell)
	}
	cells = append(cells, end...)
	var grid [][]*wire.ContextCell
	for len(cells) > 0 {
		n := min(columns, len(cells))
		grid, cells = append(grid, cells[:n]), cells[n:]
	}
	return grid
}
