package engine

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/checkpoint"
	"github.com/parley-go/parley/engine/internal/compact"
	"github.com/parley-go/parley/engine/internal/crew"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/ledger"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/model/catalog"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/skill"
	"github.com/parley-go/parley/internal/telemetry"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A Conversation is a conversation between a user, a model and tools. Unless documented
// otherwise, its methods must be called from a function passed to [Conversation.Do].
//
// Its state is divided into parts, each with the methods that need only that part.
type Conversation struct {
	cfg    Config // never changes
	rec    *recorder.Recorder
	runner *call.Runner
	env    *tool.Env
	owner
	subagents

	// The fields below are owned by Run.

	set        changeable
	hist       history.History
	compaction compact.Compactor
	keeper     *checkpoint.Keeper // nil if file contents are not recorded
	permissions
	choice
	toolset
	money
	requester
	queue
	briefing
	turns
	hooks
	trees worktrees
}

// changeable is the part of a [Config] that may change while the conversation runs.
type changeable struct {
	agents       []*agents.Definition
	agent        *agents.Definition
	forward      bool // see Config.ForwardSubagents
	spare        bool // see Config.SpareBackground
	questions    []string
	systemPrompt []string
	appendPrompt string
	jsonSchema   json.RawMessage
	maxTurns     int
	loadPart     func(part string) ([]json.RawMessage, error)
	tuning       Tuning
}

// A prompt is a message of the user that is queued for a turn.
type prompt struct {
	m      *wire.User
	uuid   string       // of its record
	origin *wire.Origin // its source, if not the user

	continued *unfinishedTurn // the turn to continue, if this is not a new prompt

	expanded *wire.Content // the text sent to the model, if it differs
	typed    string        // a slash command as hosts see it again
	attached []*attachment // files that the prompt names
	recorded func()        // called once the prompt is recorded; may be nil

	job    *timedJob // the job that scheduled it, if any
	wakeup string    // id of that job for hosts
}

// New returns a conversation. [Conversation.Run] runs it.
func New(cfg Config, host Host) (*Conversation, error) {
	return newConversation(cfg, host, nil, nil)
}

// newConversation returns a conversation. If sub is not nil, it is that of a subagent of above.
func newConversation(cfg Config, host Host, sub *crew.Subagent, above *Conversation) (*Conversation, error) {
	c := &Conversation{cfg: cfg, env: cfg.Env}
	c.sub, c.host = sub, host
	c.allowBypass, c.fixedAllows, c.noPrompts, c.initExtra = cfg.AllowBypass, cfg.FixedAllows, cfg.NoPrompts, cfg.InitExtra
	c.calls, c.over = make(chan func()), make(chan struct{})
	c.mode, c.policy = cfg.Mode, cfg.Policy
	c.choice = choice{budgeted: cfg.MaxBudget > 0, tuning: &c.cfg.Tuning, betas: cfg.Betas, effort: cfg.Effort, thinking: cfg.Thinking, fallbacks: slices.Clone(cfg.Fallbacks)}
	c.toolset = toolset{tools: slices.Clone(cfg.Tools), aliases: cfg.Tuning.ToolAliases, servers: cfg.MCP, search: cfg.Tuning.ToolSearch, prefix: &c.hist.Prefix, serving: &c.owner}
	c.uuids = map[string]bool{}
	c.maxBudget = cfg.MaxBudget
	log, now := cfg.Logger, cfg.Now
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if now == nil {
		now = time.Now
	}
	c.set = changeable{tuning: cfg.Tuning,
		agents: cfg.Agents, forward: cfg.ForwardSubagents, spare: cfg.SpareBackground, questions: cfg.Questions,

		systemPrompt: cfg.SystemPrompt, appendPrompt: cfg.AppendSystemPrompt, jsonSchema: cfg.JSONSchema, maxTurns: cfg.MaxTurns, loadPart: cfg.LoadPart,
	}
	opts := recorder.Options{Place: recorder.Place{ID: cfg.SessionID, Log: cfg.Log}, Emit: host.Emit, Now: now, Follow: c.compaction.Follow,
		Sum: func() *session.Entry { return &session.Entry{Type: recorder.CostType, Fields: c.ledger.State()} }}
	if sub != nil {
		opts.Agent = sub.ID
	}
	c.rec = recorder.New(opts)
	if c.mode == "" {
		c.mode = wire.ModeDefault
	}
	if c.policy == nil {
		c.policy = policy.New()
	}
	if c.env == nil {
		c.env = &tool.Env{}
	}
	if c.cfg.Catalog == nil {
		c.cfg.Catalog = catalog.New()
	}
	c.start, c.permissions.rec, c.permissions.log = c.env, c.rec, log
	c.others = func(v *call.View) {
		v.Project, v.NoInstructions, v.Keeper, v.Forward = c.project, c.noInstructions, c.keeper, c.set.forward
	}
	var aboveRunner *call.Runner
	var top *crew.Top
	c.brief = &brief{}
	if sub != nil {
		aboveRunner, top, c.brief = above.runner, above.crew.Top, above.brief
	}
	c.runner = c.newRunner(sub, aboveRunner, log, now)
	c.crew = c.newCrew(sub, top)
	c.hooks = hooks{below: sub != nil, source: "startup", setup: cfg.Setup, serving: &c.owner, runner: c.runner, rec: c.rec, env: c.env,
		modelID: func() string { return c.model.ID }, rename: func(title string) error {
			c.title = strings.TrimSpace(title)
			return c.rec.Record(session.Title(c.title))
		}, reload: func() { c.reloadProject() }}
	c.briefing = briefing{project: cfg.Project, only: cfg.Skills, noInstructions: cfg.NoInstructions, outputStyle: cfg.OutputStyle, planWords: cfg.Tuning.PlanInstructions, hostPrompt: func() bool { return c.set.systemPrompt != nil },
		owner: &c.owner, permissions: &c.permissions, toolset: &c.toolset, hooks: &c.hooks, cfg: &c.cfg, env: c.env, rec: c.rec, hist: &c.hist, runner: c.runner}
	if cfg.History != nil {
		c.hooks.source = "resume"
	}
	c.requester = requester{owner: &c.owner, choice: &c.choice, money: &c.money, cfg: &c.cfg, hist: &c.hist, rec: c.rec, runner: c.runner,
		retry: func(failure *model.Error) {
			if h, ok := c.host.(interface{ Retrying(*model.Error) }); ok {
				h.Retrying(failure)
			}
		}}
	c.trees = worktrees{env: c.env, runner: c.runner, rec: c.rec, owner: &c.owner, grace: c.crew.Grace, move: c.publishEnv,
		view: func() *tool.Env { return c.view.Load().Env },
		promptID: func() string {
			if c.turn == nil {
				return ""
			}
			return c.turn.promptID
		}}
	c.began = c.runner.Now()
	c.compaction = compact.Compactor{Hist: &c.hist, Rec: c.rec, Env: c.env, Log: log, Now: now, View: c.view.Load, Serve: c.runWhileServing, Path: c.runner.Top.Path,
		HasTool: func(name string) bool { return c.findTool(name) != nil },
		Limits: func() compact.Limits {
			l, _ := c.cfg.Compaction.limits(c.model.ContextWindow)
			return l
		}}
	files.RealRoots(c.env) // fixes the roots: nothing moves them from now on
	if c.env.Dir != "" {
		files.Pin(c.env, c.env.Dir)
	}
	c.ledger = ledger.New(c.cfg.Catalog)
	c.catalog, c.notify, c.owe = c.cfg.Catalog, c.rec.Emit, c.rec.Owe
	if sub != nil {
		c.money.agent = sub.Def.Name
	}
	if err := c.use(cfg.ModelName); err != nil {
		return nil, err
	}
	if cfg.JSONSchema != nil {
		st, err := newStructuredOutput(cfg.JSONSchema)
		if err != nil {
			return nil, err
		}
		c.tools = append(c.tools, st)
	}
	c.tools = append(c.tools, c.questionTools()...)
	if cfg.Tuning.Worktrees && sub == nil {
		c.tools = append(c.tools, c.trees.tools()...)
	}
	if cfg.SkillTool {
		c.tools = append(c.tools, skill.New(newLibrary(&c.briefing)))
	}
	c.setAgents(cfg.Agents)
	if cfg.Agent != nil {
		if err := c.become(cfg.Agent); err != nil {
			return nil, err
		}
	}
	if sub == nil { // a subagent uses those of its parent
		watchSchedules(c)
	}
	c.env.Model = c.consult
	if cfg.Checkpoints {
		c.keeper = c.newKeeper()
	}
	c.publish()
	c.env.Hidden = func(path string, target *tool.Target) bool {
		v := c.view.Load()
		return v.Policy.Hides(&v.Hiding, path, target)
	}
	c.env.HiddenPatterns = func() []string {
		v := c.view.Load()
		return v.Policy.Hidden(&v.Hiding)
	}
	c.makePrefix()
	if cfg.History != nil {
		if err := c.restore(cfg.History); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// newRunner returns the runner of tool calls. It reads views, and reaches the owner only through
// [Conversation.Do].
func (c *Conversation) newRunner(sub *crew.Subagent, above *call.Runner, log *slog.Logger, now func() time.Time) *call.Runner {
	r := &call.Runner{Env: c.env, Rec: c.rec, Log: log, Telemetry: telemetry.New(c.cfg.Traces, c.cfg.Metrics), Now: now, View: c.view.Load, NoPrompts: c.cfg.NoPrompts,
		SetState: func(state string) { c.Do(func() { c.state(state) }) },
		AddNotes: func(v *hook.Verdict) { c.Do(func() { c.EmitHookMessages(v) }) },
		Judge: func(ctx context.Context, s *tool.Spec, input json.RawMessage) *policy.Judgement {
			ask := func(ctx context.Context, q tool.Question) (*tool.Reply, error) { return c.AskModel(ctx, q, "judge") }
			return c.brief.judge(ctx, ask, c.Roots(), s, input)
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

// makePrefix rebuilds the beginning of requests.
func (c *Conversation) makePrefix() {
	c.hist.Prefix.NoMarks = c.cfg.Tuning.NoCaching
	c.hist.Prefix.SetSystem(c.keyOfPrompt(), c.systemPrompt())
	c.offerTools()
}

// ID returns the id of the session, which /clear changes. It may be called from any goroutine.
func (c *Conversation) ID() string { return c.rec.ID() }

// Emit sends a message to the host and fills in a missing uuid, session id and time. It may be
// called from any goroutine.
func (c *Conversation) Emit(m wire.Message) { c.rec.Emit(m) }

// Stamp sets the uuid and time of a message that is emitted before a conversation exists, and its
// session id unless sessionID is empty.
func Stamp(m wire.Message, sessionID string) { recorder.Stamp(m, sessionID) }

// Run runs the conversation until its input has ended and everything is answered, or until ctx
// ends. In the latter case a running turn is interrupted, but still gets its result.
func (c *Conversation) Run(ctx context.Context) {
	c.base = ctx
	defer close(c.over)
	defer c.env.Close()
	defer func() {
		if c.trees.place != nil {
			c.trees.tidy(c.trees.place)
		}
	}()
	defer c.endSession()
	defer c.runWhileServing(c.crew.EndAll) // they report how they ended
	var patience <-chan time.Time
	for {
		if ctx.Err() != nil {
			c.leave(context.Cause(ctx))
			return
		}
		if c.ended {
			return
		}
		if len(c.inbox) > 0 {
			c.runTurn(ctx, c.nextPrompt())
			continue
		}
		if c.sub != nil && patience == nil {
			patience = time.After(commandWait)
		}
		// Every wakeup starts the loop over, so that the conditions above and quiet are never
		// older than the last call that could change them.
		var quiet <-chan struct{}
		if c.inputEnded && len(c.env.Tasks().RunningOf(c.env.Agent)) == 0 {
			quiet = c.tasks.Reports.None() // a task begins to report its end before it counts as ended
		}
		var still <-chan struct{} // the subagents have ended, and nobody reports about them
		if c.working && !agentsWork(c.env.Tasks()) {
			still = c.tasks.Reports.None()
		}
		select {
		case f := <-c.calls:
			f()
		case <-ctx.Done():
		case <-still:
			c.working = false
			c.state("idle")
		case <-quiet:
			if c.working {
				c.state("idle")
			}
			return
		case <-patience:
			return // the tasks that it left running end with it
		}
	}
}

// leave answers the queued prompts that will have no turn.
func (c *Conversation) leave(cause error) {
	waiting := c.inbox
	c.inbox = nil
	for _, p := range waiting {
		if p.origin != nil {
			continue // nobody waits for it
		}
		c.ledger.BeginTurn()
		c.finish(&turn{began: c.runner.Now(), prompts: []*prompt{p}}, &ending{subtype: "error_during_execution", reason: "aborted_streaming", isError: true, noTurns: true,
			errors: []string{"The prompt was not answered: " + cause.Error()}})
	}
}

// Prompt queues a message of the user. Tool results in it answer calls that are running; see
// [Conversation.answerCalls].
func (c *Conversation) Prompt(m *wire.User) {
	if m = c.answerCalls(m); m == nil {
		return
	}
	if m.UUID != "" {
		if c.uuids[m.UUID] { // it was sent before, and has or will have its answer
			if c.cfg.Replay {
				again := *m
				again.IsReplay, again.SessionID, again.Timestamp, again.Priority = true, "", "", ""
				c.rec.Emit(&again)
			}
			if c.turn == nil && !c.awake && !c.working {
				c.state("idle")
			}
			return
		}
		c.uuids[m.UUID] = true
	}
	if m.Origin != nil && m.Origin.Kind != "human" { // a host sends prompts only for its user
		own := *m
		own.Origin, m = nil, &own
	}
	p := &prompt{m: m, uuid: m.UUID}
	if p.uuid == "" {
		p.uuid = session.NewID()
	}
	if c.turn == nil && !c.awake && !c.working && m.UUID != "" { // before the first message about the prompt
		c.awake = true
		c.state("running")
	}
	c.lifecycle(p, "queued")
	if m.Priority == "now" && c.turn != nil {
		c.inbox = append([]*prompt{p}, c.inbox...)
		c.turn.cancel(errSuperseded)
		return
	}
	c.inbox = append(c.inbox, p)
}

// Seed adds an assistant message to the history without asking the model. Only its text is used.
func (c *Conversation) Seed(m *wire.Assistant) {
	if err := c.abandonUnfinished(); err != nil {
		c.runner.Log.Error("what was said could not be recorded", "error", err)
		return
	}
	id := session.NewID()
	for _, b := range m.Message.Content.All() {
		text, ok := b.(*wire.TextBlock)
		if !ok || text.Text == "" {
			continue
		}
		said := &wire.TextBlock{Text: text.Text}
		if err := c.rec.Record(&session.Entry{Type: "assistant",
			Message: mustJSON(&wire.APIMessage{ID: id, Type: "message", Role: "assistant", Model: c.model.ID, Content: wire.Blocks(said)})}); err != nil {
			c.runner.Log.Error("what was said could not be recorded", "error", err)
			return
		}
		c.hist.Add("assistant", mustJSON(said))
	}
}

// EndInput announces that no more prompts follow: the conversation ends when the queued ones are
// answered.
func (c *Conversation) EndInput() { c.inputEnded = true }

// End ends the conversation: the running turn is interrupted and gets its result, queued prompts
// are cancelled, and tasks in the background are stopped.
func (c *Conversation) End() {
	c.Interrupt(true)
	c.Stop()
	c.ended = true
}

// Interrupt prepares for [Conversation.Stop]. It returns the prompts that are still queued and,
// with cancelQueued, those that it cancelled.
func (c *Conversation) Interrupt(cancelQueued bool) *wire.InterruptResponse {
	r := &wire.InterruptResponse{StillQueued: []string{}}
	for _, p := range c.inbox {
		if p.m.UUID == "" {
			continue
		}
		if cancelQueued {
			r.Cancelled = append(r.Cancelled, p.m.UUID)
		} else {
			r.StillQueued = append(r.StillQueued, p.m.UUID)
		}
	}
	if cancelQueued {
		for _, p := range c.inbox {
			c.lifecycle(p, "cancelled")
		}
		c.inbox = nil
		if r.Cancelled == nil {
			r.Cancelled = []string{}
		}
	}
	return r
}

// Stop interrupts the running turn, if any; see [Conversation.Interrupt]. When it returns, the
// contexts of the turn and of its subagents have ended.
func (c *Conversation) Stop() {
	if c.turn != nil {
		c.turn.cancel(errInterrupted)
	}
	c.crew.Interrupt(errInterrupted, c.set.spare)
}

// CancelPrompt cancels a queued prompt. It reports whether it was queued.
func (c *Conversation) CancelPrompt(uuid string) bool {
	for i, p := range c.inbox {
		if p.m.UUID == uuid {
			c.inbox = slices.Delete(c.inbox, i, i+1)
			c.lifecycle(p, "cancelled")
			return true
		}
	}
	return false
}

// SetModel changes the model; an empty name means the default. It reports whether the model has
// changed. It returns an error for a model without a known price if there is a budget.
func (c *Conversation) SetModel(name string) (changed bool, err error) {
	was := c.model.ID
	if err := c.use(name); err != nil || c.model.ID == was {
		return false, err
	}
	c.makePrefix()
	return true, nil
}

// Busy reports whether a turn runs.
func (c *Conversation) Busy() bool { return c.turn != nil }

// Failed reports whether the result of the last turn was an error. It may be called once
// Run has returned.
func (c *Conversation) Failed() bool { return c.failed }

// Ledger returns the cost so far, in dollars and by model.
func (c *Conversation) Ledger() (usd float64, models map[string]*wire.ModelUsage) {
	return c.ledger.TotalUSD(), c.ledger.ModelUsage()
}

func (c *Conversation) lifecycle(p *prompt, state string) {
	if p.m.UUID != "" {
		m := &wire.CommandLifecycle{CommandUUID: p.m.UUID, State: state}
		if p.wakeup != "" && state == "started" {
			m.Extra = fields("wakeup_source", p.wakeup)
		}
		c.rec.Emit(m)
	}
}

// agentsWork reports whether subagents run in the background.
func agentsWork(tasks *tool.Tasks) bool {
	return slices.ContainsFunc(tasks.Running(), func(info tool.TaskInfo) bool { return info.Kind == tool.TaskAgent })
}

func (c *Conversation) state(state string) {
	if c.cfg.States != "" {
		c.rec.Emit(&wire.SessionStateChanged{State: state, SDKHostOnly: c.cfg.States == "sdk"})
	}
}

var (
	errInterrupted = errors.New("interrupted by the user")
	errSuperseded  = errors.New("another prompt came first")
)
