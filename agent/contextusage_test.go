package agent_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

// TestContextUsage checks the parts of the context that hosts receive: categories with the colors of the official
// command, files, tools of servers, agents, and the picture of all.
func TestContextUsage(t *testing.T) {
	opts, _, _ := inProcess(t, parleytest.Script(parleytest.Say("one")))
	dir, _ := workdir(t)
	write(t, filepath.Join(dir, "CLAUDE.md"), strings.Repeat("Be kind. ", 1000))
	opts.Cwd, opts.Model, opts.SettingSources = dir, "claude-sonnet-4-5", []string{"project"}
	opts.Agents = map[string]*wire.AgentDefinition{"rev": {Description: strings.Repeat("reviews ", 100), Prompt: "Review."}}
	look := parley.NewTool("look", strings.Repeat("Looks. ", 100), func(context.Context, struct{}) (string, error) { return "seen", nil })
	opts.ToolServers = map[string]*mcp.Server{"kit": parley.ToolServer("kit", look)}
	c, err := parley.Connect(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := run(t, c, "one"); err != nil {
		t.Fatal(err)
	}
	u, err := c.ContextUsage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	total := int64(0)
	for _, c := range u.Categories {
		got = append(got, fmt.Sprintf("%s %s %s", c.ID, c.Color, c.Kind))
		if total += c.Tokens; c.Tokens <= 0 {
			t.Errorf("%s has %d tokens", c.ID, c.Tokens)
		}
	}
	want := "system_prompt promptBorder used; system_tools inactive used; mcp_tools cyan_FOR_SUBAGENTS_ONLY used; custom_agents permission used; memory_files claude used; " +
		"messages purple_FOR_SUBAGENTS_ONLY used; autocompact_buffer inactive buffer; free_space promptBorder free"
	if text := strings.Join(got, "; "); text != want {
		t.Errorf("categories %s\nwant       %s", text, want)
	}
	if total != u.MaxTokens || u.Percentage != float64(int(u.Percentage)) || u.Percentage < 5 {
		t.Errorf("%d of %d tokens in the categories; %v percent used", total, u.MaxTokens, u.Percentage)
	}
	if len(u.MemoryFiles) != 1 || u.MemoryFiles[0].Type != "Project" || u.MemoryFiles[0].Tokens != 2249 && u.MemoryFiles[0].Tokens != 2250 {
		t.Errorf("memory files %+v", u.MemoryFiles)
	}
	if len(u.MCPTools) != 1 || u.MCPTools[0].Name != "mcp__kit__look" || u.MCPTools[0].ServerName != "kit" || !*u.MCPTools[0].IsLoaded {
		t.Errorf("tools %+v", u.MCPTools)
	}
	if len(u.Agents) != 1 || u.Agents[0].AgentType != "rev" || u.Agents[0].Source != "sdk" {
		t.Errorf("agents %+v", u.Agents)
	}
	if len(u.GridRows) != 10 {
		t.Fatalf("%d rows", len(u.GridRows))
	}
	squares := map[string]int{}
	for _, row := range u.GridRows {
		if len(row) != 10 {
			t.Errorf("%d squares in a row", len(row))
		}
		for _, cell := range row {
			squares[cell.CategoryName]++
			if cell.SquareFullness <= 0 || cell.SquareFullness > 1 || !cell.IsFilled {
				t.Errorf("square %+v", cell)
			}
		}
	}
	if squares["Memory files"] != 1 || squares["Autocompact buffer"] != 17 || squares["Free space"] < 60 {
		t.Errorf("squares %v", squares)
	}
	if last := u.GridRows[9][9]; last.CategoryName != "Autocompact buffer" {
		t.Errorf("the last square is %s", last.CategoryName)
	}
}
