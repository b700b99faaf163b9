package engine

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/tool"
)

// The tools of many MCP servers would fill the model's context before the first prompt. Above a
// limit the model receives only their names, and loads those that it needs with ToolSearch. This
// is implemented here and not by the API, so that it works with every provider and for the tools
// of hosts.

//go:embed toolsearch.md
var toolSearchText string

// toolSearchName is the name of the tool that loads others.
const toolSearchName = "ToolSearch"

// deferAbove is the size of the specs of MCP tools above which they are deferred, in bytes: about
// 8,000 tokens.
const deferAbove = 32 << 10

// Values of [Tuning.ToolSearch], which ENABLE_TOOL_SEARCH sets.
const (
	searchAlways = "always"
	searchNever  = "never"
)

// deferrable reports whether a tool may be deferred.
func deferrable(t tool.Tool) bool {
	m, ok := t.(*mcp.Tool)
	return ok && !m.AlwaysLoad()
}

const toolSearchSchema = `{
	"type": "object",
	"properties": {
		"query": {"type": "string", "minLength": 1, "description": "select:NAME,NAME or words"},
		"max_results": {"type": "number", "minimum": 1, "description": "How many tools to load at most; default 5"}
	},
	"required": ["query"]
}`

// A toolSearch is the tool ToolSearch.
type toolSearch struct {
	spec  tool.Spec
	tools []tool.Tool // the deferred tools
	load  func(names []string)
}

// toolsFound is the structured result for programs.
type toolsFound struct {
	Matches []string `json:"matches"`
	Query   string   `json:"query"`
	Total   int      `json:"total_deferred_tools"`
}

func newToolSearch(tools []tool.Tool, load func([]string)) *toolSearch {
	byServer := map[string][]string{}
	var servers []string
	for _, t := range tools {
		spec := t.Spec()
		prefix := mcp.ToolName(spec.Server, "")
		if !strings.HasPrefix(spec.Name, prefix) {
			prefix = ""
		}
		if byServer[prefix] == nil {
			servers = append(servers, prefix)
		}
		byServer[prefix] = append(byServer[prefix], strings.TrimPrefix(spec.Name, prefix))
	}
	var b strings.Builder
	b.WriteString(strings.TrimSpace(toolSearchText) + "\n")
	for _, prefix := range servers {
		if prefix == "" {
			fmt.Fprintf(&b, "\nNames: %s", strings.Join(byServer[prefix], " "))
			continue
		}
		fmt.Fprintf(&b, "\nNames that begin with %s: %s", prefix, strings.Join(byServer[prefix], " "))
	}
	return &toolSearch{tool.Spec{Name: toolSearchName, Description: b.String(), Schema: json.RawMessage(toolSearchSchema), ReadOnly: true}, tools, load}
}

// Spec implements [tool.Tool].
func (t *toolSearch) Spec() *tool.Spec { return &t.spec }

// Access returns nothing: the list of tools is no secret.
func (t *toolSearch) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

// Run loads the tools that match the query.
func (t *toolSearch) Run(_ context.Context, call *tool.Call) (*tool.Result, error) {
	var in struct {
		Query string   `json:"query"`
		Max   tool.Int `json:"max_results"`
	}
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	found := toolsFound{Matches: t.find(in.Query, int(in.Max)), Query: in.Query, Total: len(t.tools)}
	if len(found.Matches) == 0 {
		return tool.Text("No tool matches. Try other words, or select a listed name with select:NAME.", &found), nil
	}
	t.load(found.Matches)
	var b strings.Builder
	b.WriteString("These tools are loaded and can be called from now on:")
	for _, name := range found.Matches {
		b.WriteString("\n- " + name)
	}
	return tool.Text(b.String(), &found), nil
}

// find returns the names of the tools that match a query, best match first.
func (t *toolSearch) find(query string, limit int) []string {
	matches := []string{}
	if names, ok := strings.CutPrefix(query, "select:"); ok {
		for name := range strings.SplitSeq(names, ",") {
			name = strings.TrimSpace(name)
			for _, tl := range t.tools {
				if spec := tl.Spec(); (strings.EqualFold(spec.Name, name) || strings.HasSuffix(spec.Name, "__"+name)) && !slices.Contains(matches, spec.Name) {
					matches = append(matches, spec.Name)
				}
			}
		}
		return matches
	}
	if limit <= 0 {
		limit = 5
	}
	score := map[string]int{}
	for _, tl := range t.tools {
		spec := tl.Spec()
		name, text := strings.ToLower(spec.Name), strings.ToLower(spec.Description)
		for word := range strings.FieldsSeq(strings.ToLower(query)) {
			word, must := strings.CutPrefix(word, "+")
			n := 0
			if strings.Contains(name, word) {
				n += 3
			}
			if strings.Contains(text, word) {
				n++
			}
			if must && n == 0 {
				score[spec.Name] = 0
				break
			}
			score[spec.Name] += n
		}
		if score[spec.Name] > 0 {
			matches = append(matches, spec.Name)
		}
	}
	slices.SortStableFunc(matches, func(a, b string) int { return cmp.Compare(score[b], score[a]) })
	return matches[:min(limit, len(matches))]
}
