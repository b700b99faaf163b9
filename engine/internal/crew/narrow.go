package crew

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// A Narrowing limits an agent to a part of what its parent may do.
type Narrowing struct {
	Mode   wire.PermissionMode // its own mode; empty means that of the parent
	name   string
	tools  []policy.Rule // its tools; nil means all
	denied []policy.Rule // tools that it must not use
	all    bool
}

// NewNarrowing returns the limits of an agent.
func NewNarrowing(def *agents.Definition) (Narrowing, error) {
	n := Narrowing{name: def.Name, all: def.Tools == nil, Mode: def.Mode}
	if def.ReadOnly {
		n.Mode = wire.ModePlan
	}
	parse := func(texts []string, behavior wire.PermissionBehavior) (rules []policy.Rule, err error) {
		for _, text := range texts {
			r, err := policy.Parse(text, behavior, policy.Source{Layer: policy.LayerHost})
			if err != nil {
				return nil, fmt.Errorf("the agent %s cannot be used: %w", def.Name, err)
			}
			rules = append(rules, r)
		}
		return rules, nil
	}
	var err, err2 error
	n.tools, err = parse(def.Tools, wire.BehaviorAllow)
	n.denied, err2 = parse(def.Disallowed, wire.BehaviorDeny)
	if !n.all { // the agent has the tools of the servers that it names
		var servers []string
		for _, ref := range def.MCPServers {
			if ref.Name != "" {
				servers = append(servers, mcp.ToolName(ref.Name, "")+"*")
			}
			for _, name := range slices.Sorted(maps.Keys(ref.Configs)) {
				servers = append(servers, mcp.ToolName(name, "")+"*")
			}
		}
		more, err3 := parse(servers, wire.BehaviorAllow)
		n.tools, err = append(n.tools, more...), errors.Join(err, err3)
	}
	return n, errors.Join(err, err2)
}

// Policy returns the narrowing of the parent's rules.
func (n *Narrowing) Policy() policy.Narrowing {
	p := policy.Narrowing{Rules: n.denied, Mode: n.Mode}
	if n.all {
		return p
	}
	p.Tools = []string{}
	for _, r := range n.tools {
		if call.IsAgentName(r.Tool) {
			r.Content = "" // Agents decides which agents it may start
			p.Tools = append(p.Tools, MessageToolName)
		}
		p.Tools = append(p.Tools, r.String())
	}
	return p
}

// Has reports whether the agent has a tool, by one of its names.
func (n *Narrowing) Has(names ...string) bool {
	is := func(r policy.Rule) bool {
		server, all := strings.CutSuffix(r.Tool, "__*")
		all = all || strings.Count(server, "__") < 2 // mcp__a__b names a tool, and mcp__a__b__* a server
		return slices.ContainsFunc(names, func(name string) bool {
			return r.Tool == name || all && strings.HasPrefix(server, "mcp__") && strings.HasPrefix(name, server+"__")
		})
	}
	if slices.ContainsFunc(n.denied, func(r policy.Rule) bool { return r.Content == "" && r.NamesTool(names...) }) {
		return false
	}
	return n.all || slices.ContainsFunc(n.tools, func(r policy.Rule) bool { return is(r) || r.Tool == "*" })
}

// Allows reports whether no rule denies the agent a tool, by its name.
func (n *Narrowing) Allows(name string) bool {
	return !slices.ContainsFunc(n.denied, func(r policy.Rule) bool { return r.Content == "" && r.NamesTool(name) })
}

// Keeps reports whether the agent has a tool.
func (n *Narrowing) Keeps(t tool.Tool) bool {
	spec := t.Spec()
	return n.Has(append([]string{spec.Name}, spec.Aliases...)...)
}

// Agents returns the agents that the agent may start: all, or those that it names.
func (n *Narrowing) Agents(defs []*agents.Definition) []*agents.Definition {
	var only []string
	for _, r := range n.tools {
		if call.IsAgentName(r.Tool) && r.Content != "" {
			for name := range strings.SplitSeq(r.Content, ",") {
				only = append(only, strings.TrimSpace(name))
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(defs), func(d *agents.Definition) bool {
		not := func(r policy.Rule) bool {
			return call.IsAgentName(r.Tool) && r.Content == d.Name
		}
		return only != nil && !slices.Contains(only, d.Name) || slices.ContainsFunc(n.denied, not)
	})
}
