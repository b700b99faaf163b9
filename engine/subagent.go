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

// newCrew returns the interface of the conversation to the subagents that it starts. sub is
// the subagent that runs this conversation, and top is shared by the subagents of the
// session; both are nil in the topmost conversation.
func (c *Conversation) newCrew(sub *crew.Subagent, top *crew.Top) *crew.Parent {
	c.tasks = &crew.Watch{Env: c.env, Emit: c.rec.Emit, Now: c.runner.Now, Do: c.Do, AddPrompt: c.addPrompt}
	c.env.Notify = c.tasks.Notify
	p := &crew.Parent{Env: c.env, Log: c.runner.Log, Now: c.runner.Now, NoBackground: c.cfg.NoBackground, Watch: c.tasks, Top: top,
		Context: func() context.Context { return c.base }, Do: c.Do, View: c.view.Load, Spent: c.spent, Spawn: c.spawn}
	if sub != nil {
		p.Depth = sub.Depth()
		return p
	}
	p.Top = &crew.Top{Emit: c.rec.Emit, View: c.view.Load, Place: c.rec.Place, PartHistory: c.cfg.PartHistory,
		SetAsking: func(asking bool) {
			c.Do(func() {
				switch {
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

// addPrompt queues a prompt that is not from the host.
func (c *queue) addPrompt(text string, origin *wire.Origin) {
	c.inbox = append(c.inbox, &prompt{m: wire.Prompt(wire.Text(text)), uuid: session.NewID(), origin: origin})
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
		cfg.Agents, cfg.ForwardSubagents, cfg.AllowBypass, cfg.FixedAllows, cfg.Skills, cfg.InitExtra = c.set.agents, c.set.forward, c.allowBypass, c.fixedAllows, c.only, c.initExtra
		s.Continues = c.findTool(crew.MessageToolName) != nil
		cfg.Tools = chooseTools(&s.Narrow, c.tools)
		cfg.ModelName = c.model.ID
		cfg.Mode = c.mode
		cfg.Effort, cfg.Thinking = c.effort, c.thinking
		if cfg.Thinking.Display == "" && !c.set.forward {
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
		child.env.Hidden, child.env.HiddenPatterns = c.env.Hidden, c.env.HiddenPatterns
	}
	child.keeps, child.keeper = s.Narrow.Keeps, c.view.Load().Keeper
	child.publish()
	return &crew.Child{Watch: child.tasks, LastUsage: func() *wire.Usage { return child.lastUsage },
		Run: func(ctx context.Context, text string, recorded func(*wire.User)) {
			child.runSubagent(ctx, c.env.Cwd(), text, recorded)
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

// setAgents sets the agents that the model can start. If there are none, the tool is
// removed.
func (c *Conversation) setAgents(defs []*agents.Definition) {
	if c.self != nil {
		if defs = c.self.Agents(defs); !c.self.Has(call.AgentName, call.AgentHostName) {
			defs = nil
		}
	}
	c.set.agents = defs
	c.tools = slices.DeleteFunc(slices.Clone(c.tools), func(t tool.Tool) bool { _, ok := t.(call.AgentTool); return ok })
	if len(defs) > 0 {
		a := crew.NewTool(c.crew, defs)
		tools := []tool.Tool{a}
		if !c.cfg.NoSendMessage && (c.self == nil || c.self.Allows(crew.MessageToolName)) {
			tools = append(tools, crew.NewMessageTool(a))
		}
		c.tools = append(tools, c.tools...)
	}
}

// Agents returns the agents that the model can start.
func (c *Conversation) Agents() []*agents.Definition { return c.set.agents }

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

// ReportTasksNow reports the outcome of tasks that have ended so far, including those of
// subagents. It may be called from anywhere but from inside a Do.
func (c *Conversation) ReportTasksNow() {
	c.Do(c.tasks.Report)
	c.crew.ReportAll()
}

// Remark sends the model a text from outside the conversation, in a separate turn.
func (c *Conversation) Remark(text string) { c.addPrompt(text, &wire.Origin{Kind: "hook"}) }

// ReportTasks emits the list of background tasks to the host.
func (c *Conversation) ReportTasks() { c.tasks.Changed() }
