package engine

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/compact"
	"github.com/parley-go/parley/engine/internal/crew"
	"github.com/parley-go/parley/engine/internal/ledger"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/internal/telemetry"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// assemble returns a conversation whose parts know each other. Its tools and its model are not set yet.
func assemble(cfg Config, host Host, sub *crew.Subagent, above *Conversation) *Conversation {
	c := &Conversation{cfg: cfg}
	env, now := cfg.Env, cfg.Now
	c.calls, c.over = make(chan func()), make(chan struct{})
	opts := recorder.Options{Place: recorder.Place{ID: cfg.SessionID, Log: cfg.Log}, Emit: host.Emit, Now: now, Follow: c.compaction.Follow,
		Sum: func() *session.Entry { return &session.Entry{Type: recorder.CostType, Fields: c.ledger.State()} }}
	if sub != nil {
		opts.Agent = sub.ID
	}
	c.rec = recorder.New(opts)
	c.writer = writer{rec: c.rec}

	// Permissions and tools.
	c.host, c.mode, c.policy = host, cfg.Mode, cfg.Policy
	c.allowBypass, c.fixedAllows, c.noPrompts, c.initExtra = cfg.AllowBypass, cfg.FixedAllows, cfg.NoPrompts, cfg.InitExtra
	c.start, c.permissions.rec, c.permissions.log = env, c.rec, cfg.Logger
	c.others = func(v *call.View) {
		v.Project, v.NoInstructions, v.Keeper, v.Forward = c.project, c.noInstructions, c.keeper, c.forward
	}
	c.toolset = toolset{tools: slices.Clone(cfg.Tools), aliases: cfg.Tuning.ToolAliases, servers: cfg.MCP, search: cfg.Tuning.ToolSearch, hidden: cfg.Tuning.PromptTool, prefix: &c.hist.Prefix, serving: &c.owner}

	// Calls, hooks and subagents.
	c.subagents = subagents{sub: sub, brief: &brief{}, noMessages: cfg.NoSendMessage, forward: cfg.ForwardSubagents, spare: cfg.SpareBackground,
		owner: &c.owner, permissions: &c.permissions, toolset: &c.toolset}
	if sub == nil {
		c.runner = c.newRunner(nil, nil)
		c.crew = c.newCrew(nil, nil)
	} else {
		c.brief = above.brief
		c.runner = c.newRunner(sub, above.runner)
		c.crew = c.newCrew(sub, above.crew.Top)
	}
	c.hooks = hooks{below: sub != nil, source: "startup", setup: cfg.Setup, title: cfg.Title, serving: &c.owner, runner: c.runner, rec: c.rec, env: env,
		modelID: func() string { return c.model.ID }, rename: func(title string) error {
			c.title = cleanTitle(title)
			return c.rec.Record(session.Title(c.title))
		}, reload: func() { c.reloadProject() }}
	if cfg.History != nil {
		c.hooks.source = "resume"
	}

	// The model and its context.
	c.choice = choice{budgeted: cfg.MaxBudget > 0, tuning: &c.cfg.Tuning, betas: cfg.Betas, effort: cfg.Effort, thinking: cfg.Thinking, fallbacks: slices.Clone(cfg.Fallbacks),
		catalog: cfg.Catalog, notify: c.rec.Emit}
	c.briefing = briefing{project: cfg.Project, only: cfg.Skills, noInstructions: cfg.NoInstructions, outputStyle: cfg.OutputStyle, planWords: cfg.Tuning.PlanInstructions,
		hostPrompt: func() bool { return c.given != nil },
		owner:      &c.owner, permissions: &c.permissions, toolset: &c.toolset, hooks: &c.hooks, cfg: &c.cfg, env: env, rec: c.rec, writer: &c.writer, runner: c.runner}
	c.preface = preface{given: cfg.SystemPrompt, appended: cfg.AppendSystemPrompt, briefing: &c.briefing, choice: &c.choice, subagents: &c.subagents}
	c.compaction = compact.Compactor{Hist: &c.hist, Rec: c.rec, Env: env, Log: cfg.Logger, Now: now, View: c.view.Load, Serve: c.runWhileServing, Path: c.runner.Top.Path,
		HasTool: func(name string) bool { return c.findTool(name) != nil },
		Limits: func() compact.Limits {
			l, _ := cfg.Compaction.limits(c.model.ContextWindow)
			return l
		}}

	// Requests and turns.
	c.requester = requester{owner: &c.owner, choice: &c.choice, cfg: &c.cfg.ModelConfig, writer: &c.writer, runner: c.runner,
		money: money{ledger: ledger.New(cfg.Catalog), maxBudget: cfg.MaxBudget, owe: c.rec.Owe, now: now, began: now()},
		retry: func(failure *model.Error) {
			if h, ok := c.host.(interface{ Retrying(*model.Error) }); ok {
				h.Retrying(failure)
			}
		}}
	if sub != nil {
		c.money.agent = sub.Def.Name
	}
	c.queue = queue{turns: turns{maxTurns: cfg.MaxTurns, suggests: cfg.Tuning.Suggestions}, rec: c.rec, replay: cfg.Replay, states: cfg.States, uuids: map[string]bool{}}
	c.rounds = rounds{owner: &c.owner, writer: &c.writer, requester: &c.requester, toolset: &c.toolset, hooks: &c.hooks, briefing: &c.briefing, current: &c.queue.turns,
		cfg: &c.cfg, rec: c.rec, runner: c.runner, watch: c.tasks, grace: c.crew.Grace}
	c.commands = commands{preface: &c.preface, requests: &c.requester, setModel: c.SetModel, forkable: c.subagents.all, clear: c.clearCommand, compact: c.compactCommand}

	// Services for hosts and tools.
	c.beside = beside{owner: &c.owner, permissions: &c.permissions, toolset: &c.toolset, env: env, runner: c.runner}
	c.checkpoints = checkpoints{loadPart: cfg.LoadPart, env: env, rec: c.rec, permissions: &c.permissions, busy: c.Busy}
	c.trees = worktrees{env: env, runner: c.runner, rec: c.rec, owner: &c.owner, grace: c.crew.Grace, move: c.publishEnv,
		view: func() *tool.Env { return c.view.Load().Env },
		promptID: func() string {
			if c.turn == nil {
				return ""
			}
			return c.turn.promptID
		}}
	if sub == nil { // a subagent uses those of its parent
		c.timers = &timers{do: c.Do, queue: &c.queue, brief: c.brief}
		watchSchedules(env, c.timers)
	}
	env.Model = c.sendQuestion
	env.Hidden = func(path string, target *tool.Target) bool {
		v := c.view.Load()
		return v.Policy.Hides(&v.Hiding, path, target)
	}
	env.HiddenPatterns = func() []string {
		v := c.view.Load()
		return v.Policy.Hidden(&v.Hiding)
	}
	return c
}

// newRunner returns the runner of tool calls. It reads views, and reaches the owner only through
// [Conversation.Do].
func (c *Conversation) newRunner(sub *crew.Subagent, above *call.Runner) *call.Runner {
	r := &call.Runner{Env: c.cfg.Env, Rec: c.rec, Log: c.cfg.Logger, Telemetry: telemetry.New(c.cfg.Traces, c.cfg.Metrics), Now: c.cfg.Now, View: c.view.Load, NoPrompts: c.cfg.NoPrompts,
		SetState: func(state string) {
			if cfg := &c.cfg.Tuning; cfg.PromptTool == "" { // otherwise a tool decides, and nobody has to act
				c.Do(func() { c.state(state) })
			}
		},
		AddNotes: func(v *hook.Verdict) { c.Do(func() { c.EmitHookMessages(v) }) },
		Judge: func(ctx context.Context, s *tool.Spec, input json.RawMessage) *policy.Judgement {
			ask := func(ctx context.Context, q tool.Question) (*tool.Reply, error) { return c.AskModel(ctx, q, "judge") }
			return c.brief.judgeCall(ctx, ask, c.Roots(), s, input)
		}}
	if sub != nil {
		r.Top, r.Agent = above.Top, &call.Agent{ID: sub.ID, Name: sub.Def.Name, ReadOnly: sub.Def.ReadOnly, Modes: []wire.PermissionMode{sub.Narrow.Mode}}
		if above.Agent != nil {
			r.Agent.Modes = append(slices.Clone(above.Agent.Modes), sub.Narrow.Mode)
		}
		return r
	}
	r.Top = call.Top{View: c.view.Load, Path: func() string { return c.rec.Place().Path() }, Over: c.over, Refresh: c.cfg.Refresh, Keep: c.cfg.Keep,
		Apply: func(u *wire.PermissionUpdate) (added []string) {
			c.Do(func() {
				before := c.Roots()
				c.Apply(u)
				added = slices.DeleteFunc(c.Roots(), func(d string) bool { return slices.Contains(before, d) })
			})
			return added
		}}
	return r
}
