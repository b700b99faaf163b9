package engine

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

//go:embed subagent_tool.md
var agentToolDescription string

const agentToolSchema = `{"type":"object","required":["description","prompt"],"properties":{
	"description":{"type":"string","description":"What it does, in three to five words"},
	"prompt":{"type":"string","description":"The whole task: the subagent knows nothing else"},
	"subagent_type":{"type":"string","description":"Which agent; general-purpose without it"},
	"model":{"type":"string","description":"A model in place of the agent's own, such as haiku, sonnet or opus"},
	"effort":{"type":"string","enum":["low","medium","high","xhigh","max"],"description":"How hard it tries, if that is not to be as here"},
	"isolation":{"type":"string","enum":["worktree"],"description":"worktree: it works in a git worktree of its own, which stays if it changed something"},
	"run_in_background":{"type":"boolean","description":"Whether to go on at once; false waits for the report"}}}`

// An agentInput is what the model gives.
type agentInput struct {
	Description string     `json:"description"`
	Prompt      string     `json:"prompt"`
	Type        string     `json:"subagent_type"`
	Model       string     `json:"model"`
	Effort      string     `json:"effort"`
	Background  *tool.Bool `json:"run_in_background"`
	Isolation   string     `json:"isolation"`
}

// agentTool starts subagents of a conversation.
type agentTool struct {
	c    *Conversation
	spec *tool.Spec
	defs []*agents.Definition
}

func newAgentTool(c *Conversation, defs []*agents.Definition) *agentTool {
	var b strings.Builder
	b.WriteString(agentToolDescription)
	for _, d := range defs {
		fmt.Fprintf(&b, "- %s: %s\n", d.Name, strings.Join(strings.Fields(d.Description), " "))
	}
	return &agentTool{c: c, defs: defs, spec: &tool.Spec{
		// What it does is decided call by call inside the subagent: to start one
		// changes nothing.
		Name: call.AgentName, Aliases: []string{call.AgentHostName}, Description: b.String(), Schema: json.RawMessage(agentToolSchema), ReadOnly: true,
	}}
}

func (a *agentTool) Spec() *tool.Spec { return a.spec }

// AgentType returns the name of the agent that a call starts.
func (a *agentTool) AgentType(input json.RawMessage) string {
	var in agentInput
	tool.Decode(input, &in)
	if def, err := a.find(in.Type); err == nil {
		return def.Name
	}
	return ""
}

func (*agentTool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

// find returns the agent that a call means.
func (a *agentTool) find(name string) (*agents.Definition, error) {
	if name == "" {
		name = agents.Default
	}
	var names []string
	for _, d := range a.defs {
		if d.Name == name {
			return d, nil
		}
		names = append(names, d.Name)
	}
	for _, d := range a.defs {
		if strings.EqualFold(d.Name, name) {
			return d, nil
		}
	}
	return nil, fmt.Errorf("Agent type '%s' not found. Available agents: %s", name, strings.Join(names, ", "))
}

// Run starts a subagent and returns its report, or at once.
func (a *agentTool) Run(ctx context.Context, tc *tool.Call) (*tool.Result, error) {
	var in agentInput
	if err := tool.Decode(tc.Input, &in); err != nil {
		return nil, err
	}
	def, err := a.find(in.Type)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(in.Prompt) == "" {
		return nil, tool.Misuse("InputValidationError: Agent failed: the prompt is empty. The subagent knows nothing but its prompt.")
	}
	if in.Isolation == "" {
		in.Isolation = def.Isolation
	}
	if in.Isolation != "" && in.Isolation != "worktree" {
		return nil, tool.Misuse("InputValidationError: Agent failed: the isolation %q is not available here. Use worktree, or leave it out.", in.Isolation)
	}
	c := a.c
	stats := &c.root().stats
	leave, err := c.admit()
	if err != nil {
		return nil, err
	}
	// The conversation itself does not wait unless it is told to; a subagent does,
	// whose report would be early otherwise.
	background := c.depth() == 0 || def.Background
	asked := "unset"
	if in.Background != nil {
		background, asked = bool(*in.Background), "foreground"
		if background {
			asked = "background"
		}
	}
	if c.cfg.NoBackground {
		background = false
	}
	s, err := c.newSubagent(ctx, tc, def, &in, background, nil)
	if err != nil {
		leave()
		return nil, err
	}
	s.leave = leave
	stats.start(s, asked, background)
	return s.start(ctx, background)
}

// admit reports why no subagent can start now. If one can, it has its place among
// those that run until leave is called.
func (c *Conversation) admit() (leave func(), err error) {
	root := c.root()
	stats := &root.stats
	if c.depth() >= maxDepth {
		stats.refuse("depth_limit")
		return nil, fmt.Errorf("Subagents start subagents at most %d deep. Do the work yourself.", maxDepth)
	}
	if c.spent() {
		stats.refuse("budget")
		return nil, errors.New("The budget is used up, so no subagent was started.")
	}
	if root.running.Add(1) > maxSubagents {
		root.running.Add(-1)
		stats.refuse("concurrency_limit")
		return nil, fmt.Errorf("%d subagents are running already. Wait until some have ended.", maxSubagents)
	}
	return sync.OnceFunc(func() { root.running.Add(-1) }), nil
}

// setAgents gives the conversation the agents that its tool can start; none takes
// the tool away.
func (c *Conversation) setAgents(defs []*agents.Definition) {
	if c.self != nil {
		if defs = c.self.agents(defs); !c.self.has(call.AgentName, call.AgentHostName) {
			defs = nil
		}
	}
	c.set.agents = defs
	c.tools = slices.DeleteFunc(slices.Clone(c.tools), startsAgents)
	if len(defs) > 0 {
		a := newAgentTool(c, defs)
		tools := []tool.Tool{a}
		if !c.cfg.NoSendMessage && (c.self == nil || c.self.allows(messageToolName)) {
			tools = append(tools, newMessageTool(a))
		}
		c.tools = append(tools, c.tools...)
	}
}

// Agents returns the agents that the model can start.
func (c *Conversation) Agents() []*agents.Definition { return c.set.agents }

func (c *Conversation) agentNames() []string {
	names := []string{}
	for _, d := range c.set.agents {
		names = append(names, d.Name)
	}
	return names
}

// endSubagents ends what the conversation started, when it ends itself.
func (c *Conversation) endSubagents() {
	var wg sync.WaitGroup
	for _, t := range c.env.Tasks().All() {
		if s, ok := t.(*subagent); ok && s.parent == c {
			wg.Go(func() { s.end("system", errEnded) })
		}
	}
	c.runWhileServing(wg.Wait) // they tell how they ended
}

// stopSubagents ends the contexts of the subagents that the turn waits for and, unless the
// host spares them, of those in the background. It does not wait for their ends.
func (c *Conversation) stopSubagents() {
	for _, t := range c.env.Tasks().All() {
		s, ok := t.(*subagent)
		if !ok {
			continue
		}
		switch info := s.Info(); {
		case info.Status != tool.TaskRunning:
		case !info.Background && s.parent == c:
			s.stop("user", errInterrupted)
		case info.Background && !c.set.spare:
			c.env.Tasks().MarkStopped(info.ID)
			s.stop("user", errStopped)
			go s.Stop()
		}
	}
}

// A narrowing is what an agent may do of what its parent may.
type narrowing struct {
	name   string
	tools  []policy.Rule // that it has; nil means all
	denied []policy.Rule // that it has not
	all    bool
	mode   wire.PermissionMode
}

func newNarrowing(def *agents.Definition) (narrowing, error) {
	n := narrowing{name: def.Name, all: def.Tools == nil, mode: def.Mode}
	if def.ReadOnly {
		n.mode = wire.ModePlan
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
	if !n.all { // the servers that it names are for it
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

// policy returns what the rules of the parent are narrowed by.
func (n *narrowing) policy() policy.Narrowing {
	p := policy.Narrowing{Rules: n.denied, Mode: n.mode}
	if n.all {
		return p
	}
	p.Tools = []string{}
	for _, r := range n.tools {
		if call.IsAgentName(r.Tool) {
			r.Content = "" // which agents is decided by what is on offer
			p.Tools = append(p.Tools, messageToolName)
		}
		p.Tools = append(p.Tools, r.String())
	}
	return p
}

// has reports whether the agent has a tool, by one of its names.
func (n *narrowing) has(names ...string) bool {
	is := func(r policy.Rule) bool {
		server, all := strings.CutSuffix(r.Tool, "__*")
		// mcp__a__b names a tool, and mcp__a__b__* a server. A rule that denies is for both.
		all = all || r.Behavior == wire.BehaviorDeny || strings.Count(server, "__") < 2
		return slices.ContainsFunc(names, func(name string) bool {
			return r.Tool == name || all && strings.HasPrefix(server, "mcp__") && strings.HasPrefix(name, server+"__")
		})
	}
	if slices.ContainsFunc(n.denied, func(r policy.Rule) bool { return r.Content == "" && (is(r) || r.Tool == "*") }) {
		return false
	}
	return n.all || slices.ContainsFunc(n.tools, func(r policy.Rule) bool { return is(r) || r.Tool == "*" })
}

// allows reports whether nothing takes a tool away from the agent, by its name.
func (n *narrowing) allows(name string) bool {
	return !slices.ContainsFunc(n.denied, func(r policy.Rule) bool { return r.Content == "" && (r.Tool == name || r.Tool == "*") })
}

// startsAgents reports whether a tool starts subagents or lets them go on.
func startsAgents(t tool.Tool) bool {
	_, ok := t.(call.AgentTool)
	return ok
}

// keeps reports whether the agent has a tool.
func (n *narrowing) keeps(t tool.Tool) bool {
	spec := t.Spec()
	return n.has(append([]string{spec.Name}, spec.Aliases...)...)
}

// choose returns the tools of the parent that the agent has. Those that belong to
// the conversation with the user are not for subagents; those of MCP servers come
// by themselves.
func (n *narrowing) choose(tools []tool.Tool) []tool.Tool {
	var kept []tool.Tool
	for _, t := range tools {
		switch t.(type) {
		case *agentTool, *messageTool, *structuredOutput, *askUser, *enterPlan, *exitPlan, *worktreeTool, *mcp.Tool, *mcp.ResourceTool:
			continue
		}
		if t.Spec().Name == "Skill" { // it loads into the conversation it belongs to
			continue
		}
		if n.keeps(t) {
			kept = append(kept, t)
		}
	}
	return kept
}

// agents returns the agents that it may start: all, or those that it names.
func (n *narrowing) agents(defs []*agents.Definition) []*agents.Definition {
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

// agentStats counts subagents, for results.
type agentStats struct {
	mu sync.Mutex
	n  agentCounts
}

type agentCounts struct {
	Spawned   int `json:"spawned"`
	Requested struct {
		Background int `json:"background"`
		Foreground int `json:"foreground"`
		Unset      int `json:"unset"`
	} `json:"requested"`
	InBackground int `json:"started_in_background"`
	MaxDepth     int `json:"max_depth"`
	Nested       int `json:"spawned_by_subagents"`
	Completed    int `json:"completed"`
	Failed       int `json:"failed"`
	Killed       struct {
		Parent int `json:"parent"`
		User   int `json:"user"`
		System int `json:"system"`
	} `json:"killed"`
	Refused struct {
		Depth       int `json:"depth_limit"`
		Concurrency int `json:"concurrency_limit"`
		Budget      int `json:"budget"`
	} `json:"refused"`
	ByType map[string]int `json:"by_type"`
}

func (s *agentStats) start(a *subagent, asked string, background bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n.Spawned++
	switch asked {
	case "background":
		s.n.Requested.Background++
	case "foreground":
		s.n.Requested.Foreground++
	default:
		s.n.Requested.Unset++
	}
	if background {
		s.n.InBackground++
	}
	if a.depth > 1 {
		s.n.Nested++
	}
	s.n.MaxDepth = max(s.n.MaxDepth, a.depth)
	if s.n.ByType == nil {
		s.n.ByType = map[string]int{}
	}
	s.n.ByType[a.def.Name]++
}

func (s *agentStats) ended(status, killer string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch status {
	case tool.TaskCompleted:
		s.n.Completed++
	case tool.TaskFailed:
		s.n.Failed++
	default:
		switch killer {
		case "parent":
			s.n.Killed.Parent++
		case "system":
			s.n.Killed.System++
		default:
			s.n.Killed.User++
		}
	}
}

func (s *agentStats) refuse(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch why {
	case "depth_limit":
		s.n.Refused.Depth++
	case "concurrency_limit":
		s.n.Refused.Concurrency++
	case "budget":
		s.n.Refused.Budget++
	}
}

// json returns the counts as results tell them.
func (s *agentStats) json() json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.n
	n.ByType = maps.Clone(n.ByType)
	if n.ByType == nil {
		n.ByType = map[string]int{}
	}
	return mustJSON(n)
}
