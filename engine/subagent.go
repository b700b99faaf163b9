package engine

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/crew"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// commandWait is how long an idle subagent waits for commands that it left running.
const commandWait = 10 * time.Minute

//go:embed subagent_notes.md
var subagentNotes string

// subagents holds the agents that the model can start and the tasks in the background. It knows
// whether the conversation is that of a subagent itself.
type subagents struct {
	sub     *crew.Subagent // set if the conversation is that of a subagent
	crew    *crew.Parent   // subagents that it starts
	tasks   *crew.Watch    // background tasks
	brought *AgentParts    // parts of its agent; nil means none
	first   []string       // texts that a subagent receives with its first prompt
	brief   *brief         // for the judge of mode auto; that of the topmost conversation

	agents     []*agents.Definition // that the model can start
	noMessages bool                 // see [Config.NoSendMessage]
	forward    bool                 // see [Config.ForwardSubagents]
	spare      bool                 // see [Config.SpareBackground]

	owner       *owner
	permissions *permissions
	toolset     *toolset
}

// setAgents sets the agents that the model can start. If there are none, the tool is
// removed.
func (c *subagents) setAgents(defs []*agents.Definition) {
	if c.permissions.self != nil {
		if defs = c.permissions.self.Agents(defs); !c.permissions.self.Has(call.AgentName, call.AgentHostName) {
			defs = nil
		}
	}
	c.agents = defs
	c.toolset.tools = slices.DeleteFunc(slices.Clone(c.toolset.tools), func(t tool.Tool) bool { _, ok := t.(call.AgentTool); return ok })
	if len(defs) > 0 {
		a := crew.NewTool(c.crew, defs)
		tools := []tool.Tool{a}
		if !c.noMessages && (c.permissions.self == nil || c.permissions.self.Allows(crew.MessageToolName)) {
			tools = append(tools, crew.NewMessageTool(a))
		}
		c.toolset.tools = append(tools, c.toolset.tools...)
	}
}

// all returns a tool that starts any of the agents, for commands and skills that run in one.
func (c *subagents) all() *crew.Tool { return crew.NewTool(c.crew, c.agents) }

// Agents returns the agents that the model can start.
func (c *subagents) Agents() []*agents.Definition { return c.agents }

// ReportTasksNow reports the outcome of tasks that have ended so far, including those of
// subagents. It may be called from anywhere but from inside a Do.
func (c *subagents) ReportTasksNow() {
	c.owner.Do(c.tasks.Report)
	c.crew.ReportAll()
}

// ReportTasks emits the list of background tasks to the host.
func (c *subagents) ReportTasks() { c.tasks.Changed() }

// newCrew returns the interface of the conversation to the subagents that it starts. sub is
// the subagent that runs this conversation, and top is shared by the subagents of the
// session; both are nil in the topmost conversation.
func (c *Conversation) newCrew(sub *crew.Subagent, top *crew.Top) *crew.Parent {
	c.tasks = &crew.Watch{Env: c.runner.Env, Emit: c.rec.Emit, Now: c.runner.Now, Do: c.Do, AddPrompt: c.addPrompt}
	c.runner.Env.Notify = c.tasks.Notify
	p := &crew.Parent{Env: c.runner.Env, Log: c.runner.Log, Now: c.runner.Now, NoBackground: c.cfg.NoBackground, Watch: c.tasks, Top: top,
		Context: func() context.Context { return c.base }, Do: c.Do, View: c.view.Load, Spent: c.budgetSpent, Spawn: c.spawn}
	if sub != nil {
		p.Depth = sub.Depth()
		return p
	}
	p.Top = &crew.Top{Emit: c.rec.Emit, View: c.view.Load, Place: c.rec.Place, PartHistory: c.cfg.PartHistory,
		SetAsking: func(asking bool) {
			c.Do(func() {
				switch {
				case asking && c.cfg.Tuning.PromptTool != "": // a tool decides, nobody has to act
				case asking:
					c.state("requires_action")
				case c.turn != nil, c.working:
					c.state("running")
				default:
					c.state("idle")
				}
			})
		},
		AddDenials: func(denials []*wire.PermissionDenial) {
			c.Do(func() {
				if c.turn != nil {
					c.turn.denials = append(c.turn.denials, denials...)
				}
			})
		}}
	return p
}

// spawn creates the conversation of a subagent. It is called in the goroutine of the call
// that starts it, whose context is ctx.
func (c *Conversation) spawn(ctx context.Context, s *crew.Subagent, background bool) (_ *crew.Child, err error) {
	def, env := s.Def, c.view.Load().Env.Child(s.ID)
	if s.Asked.Isolation != "" {
		if err = c.trees.isolate(ctx, s, env); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				s.Place.Tidy()
			}
		}()
	}
	var cfg Config
	alive := c.Do(func() {
		cfg = c.cfg
		cfg.Agents, cfg.ForwardSubagents, cfg.AllowBypass, cfg.FixedAllows, cfg.Skills, cfg.InitExtra = c.agents, c.forward, c.allowBypass, c.fixedAllows, c.only, c.initExtra
		s.Continues = c.findTool(crew.MessageToolName) != nil
		cfg.Tools = chooseTools(&s.Narrow, c.tools)
		cfg.ModelName = c.model.ID
		cfg.Mode = c.mode
		cfg.Effort, cfg.Thinking = c.effort, c.thinking
		if cfg.Thinking.Display == "" && !c.forward {
			cfg.Thinking.Display = displayOmitted // nobody sees it
		}
		cfg.Policy = c.view.Load().Rules().Narrow(s.Narrow.Policy())
		cfg.SystemPrompt = []string{def.Prompt, subagentNotes, c.surroundings(env.Roots)}
		if c.project != nil {
			cfg.Project = c.project.Clone()
		}
		if def.Reminder != "" {
			cfg.SystemPrompt = append(cfg.SystemPrompt, def.Reminder)
		}
		cfg.MaxTurns = def.MaxTurns
		if c.turn != nil {
			s.PromptID = c.turn.promptID
		}
	})
	if !alive {
		return nil, crew.ErrEnded
	}
	cfg.AppendSystemPrompt, cfg.JSONSchema, cfg.History = "", nil, nil
	cfg.NoSendMessage = cfg.NoSendMessage || !s.Narrow.Allows(crew.MessageToolName)
	cfg.SkillTool = cfg.SkillTool && s.Narrow.Has("Skill")
	cfg.Git, cfg.NoInstructions, cfg.OutputStyle, cfg.PromptCommands, cfg.Agent, cfg.AgentName = nil, def.OmitContext, "", nil, nil, ""
	cfg.Questions, cfg.Partial, cfg.Replay, cfg.States = nil, false, false, ""
	cfg.SessionID, cfg.Checkpoints = c.rec.ID(), false
	cfg.Env = env
	if s.Depth() >= crew.MaxDepth || !s.Narrow.Has(call.AgentName, "Task") {
		cfg.Agents = nil
	} else {
		cfg.Agents = s.Narrow.Agents(cfg.Agents)
	}
	for _, name := range []string{def.Model, s.Asked.Model, cfg.Tuning.SubagentModel} {
		if name != "" && name != "inherit" {
			cfg.ModelName = name
		}
	}
	for _, effort := range []string{def.Effort, s.Asked.Effort} {
		if effort != "" {
			cfg.Effort = effort
		}
	}
	cfg.Mode = call.Narrowest(cfg.Mode, def.Mode)
	if cfg.Log, err = s.OpenLog(background); err != nil {
		return nil, err
	}
	if s.Again != nil {
		cfg.History = s.Again.History
	}
	child, err := newConversation(cfg, s, s, c)
	if err != nil {
		return nil, err
	}
	if cfg.AgentParts != nil {
		parts, err := cfg.AgentParts(def)
		if err != nil {
			return nil, fmt.Errorf("the agent %s cannot be used: %w", def.Name, err)
		}
		child.brought, child.own, s.Own = parts, parts.MCP, parts.Hooks
		if s.Again == nil { // otherwise it has received it before
			child.first = parts.Context
		}
		if parts.Close != nil {
			cfg.Env.OnClose(parts.Close)
		}
	}
	s.Model = child.primary.ID
	child.ledger, child.spentBefore = c.ledger.Child(), c.spentBefore
	if s.Place == nil {
		child.runner.Env.Hidden, child.runner.Env.HiddenPatterns = c.runner.Env.Hidden, c.runner.Env.HiddenPatterns
	}
	child.keeps, child.keeper = s.Narrow.Keeps, c.view.Load().Keeper
	child.publish()
	return &crew.Child{Watch: child.tasks, LastUsage: func() *wire.Usage { return child.lastUsage }, Unstopped: child.runner.Unstopped,
		Run: func(ctx context.Context, text string, recorded func(*wire.User)) {
			child.runSubagent(ctx, c.runner.Env.Cwd(), text, recorded)
		},
		Tell: func(text string) bool {
			return child.Do(func() { child.addPrompt(text, &wire.Origin{Kind: "agent"}) })
		}}, nil
}

// runSubagent runs the conversation of a subagent.
func (c *Conversation) runSubagent(ctx context.Context, cwd, text string, recorded func(*wire.User)) {
	ran := false
	defer func() {
		if !ran {
			close(c.over) // others wait for this
		}
	}()
	v := c.runner.Hooks(ctx, c.sub.PromptID, &wire.SubagentStartInput{HookBase: wire.HookBase{Cwd: cwd}}, c.sub.Def.Name, "")
	c.emitNotes(v)
	c.first = append(c.first, v.Added()...)
	if c.sub.Again == nil {
		c.first = append(c.first, c.preload(ctx, c.sub.Def, func(f func()) { f() })...)
	}
	p := &prompt{m: wire.Prompt(wire.Blocks(&wire.TextBlock{Text: text})), uuid: session.NewID(), origin: &wire.Origin{Kind: "agent"}}
	if recorded != nil {
		m := *p.m
		m.UUID = p.uuid
		p.recorded = func() { recorded(&m) }
	}
	c.inbox, c.inputEnded, ran = []*prompt{p}, true, true
	c.Run(ctx)
}

// chooseTools returns the parent's tools that an agent has. Tools that belong to the
// conversation with the user are left out, and those of MCP servers are added elsewhere.
func chooseTools(n *crew.Narrowing, tools []tool.Tool) []tool.Tool {
	var kept []tool.Tool
	for _, t := range tools {
		switch t.(type) {
		case call.AgentTool, *structuredOutput, *askUser, *enterPlan, *exitPlan, *worktreeTool, *mcp.Tool, *mcp.ResourceTool:
			continue
		}
		// Skill loads into the conversation that it belongs to.
		if t.Spec().Name != "Skill" && n.Keeps(t) {
			kept = append(kept, t)
		}
	}
	return kept
}
