package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/checkpoint"
	"github.com/parley-go/parley/engine/internal/compact"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/ledger"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/model/catalog"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/engine/tool/skill"
	"github.com/parley-go/parley/internal/telemetry"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A Conversation is one conversation. Its methods that are not documented
// otherwise must be called from the function given to [Conversation.Do].
//
// Its state is in parts, each with the methods that need nothing else.
type Conversation struct {
	cfg    Config // never changes
	rec    *recorder.Recorder
	view   atomic.Pointer[call.View]
	runner *call.Runner
	env    *tool.Env
	owner
	crew

	// Everything below belongs to Run.

	set        changeable
	hist       history.History
	compaction compact.Compactor
	keeper     *checkpoint.Keeper // of files; nil if they are not kept
	permissions
	choice
	toolset
	money
	queue
	beginning
	current
	tally
	taskWatch
}

// changeable is what of a [Config] may change while the conversation runs.
type changeable struct {
	agents         []*agents.Definition
	agent          *agents.Definition
	forward        bool                           // see Config.ForwardSubagents
	serverModes    map[string]wire.PermissionMode // see SetServerMode
	spare          bool                           // see Config.SpareBackground
	questions      []string
	allowBypass    bool
	fixedAllows    bool
	project        *project.Context
	skills         []string
	noInstructions bool
	outputStyle    string
	systemPrompt   []string
	appendPrompt   string
	jsonSchema     json.RawMessage
	maxTurns       int
	loadPart       func(part string) ([]json.RawMessage, error)
	initExtra      map[string]json.RawMessage
	tuning         Tuning
}

// publish lets other goroutines know what the owner has changed.
func (c *Conversation) publish() {
	env := c.env
	if old := c.view.Load(); old != nil {
		env = old.Env
	}
	c.publishEnv(env)
}

// publishEnv is publish with another place where calls work from now on.
func (c *Conversation) publishEnv(env *tool.Env) {
	var hiding policy.Request
	if old := c.view.Load(); old != nil && slices.Equal(old.Env.Roots, env.Roots) && slices.Equal(old.Env.Outer, env.Outer) {
		hiding = old.Hiding
	} else {
		roots, _ := env.Judged()
		hiding = policy.Request{Roots: roots, Home: env.Home, Resolved: files.Targets(env, nil)}
	}
	v := &call.View{Host: c.host, Mode: c.mode, Policy: c.policy, Env: env, Hiding: hiding, Project: c.set.project, NoInstructions: c.set.noInstructions,
		Keeper: c.keeper, Forward: c.set.forward, ServerModes: c.set.serverModes}
	if c.self != nil {
		n := c.self.policy()
		v.Self = &n
	}
	c.view.Store(v)
}

// A prompt is a message of the user that waits for its turn.
type prompt struct {
	m      *wire.User
	uuid   string       // of its record
	origin *wire.Origin // what it came from, if not from the user

	continued *unfinishedTurn // the turn that it stands for, if it is no new prompt

	expanded *wire.Content // the text for the model, if it differs
	attached []*attachment // files that it names
	recorded func()        // called when it is in the log; may be nil

	job    *timedJob // what scheduled it, if something did
	wakeup string    // the same, as hosts know it
}

// New returns a conversation. [Conversation.Run] runs it.
func New(cfg Config, host Host) (*Conversation, error) { return newConversation(cfg, host, nil) }

// newConversation returns a conversation, which is that of a subagent unless sub is nil.
func newConversation(cfg Config, host Host, sub *subagent) (*Conversation, error) {
	c := &Conversation{cfg: cfg, env: cfg.Env}
	c.sub, c.host = sub, host
	c.calls, c.over = make(chan func()), make(chan struct{})
	c.mode, c.policy = cfg.Mode, cfg.Policy
	c.choice = choice{tuning: &c.cfg.Tuning, betas: cfg.Betas, effort: cfg.Effort, thinking: cfg.Thinking, fallbacks: slices.Clone(cfg.Fallbacks)}
	c.tools = slices.Clone(cfg.Tools)
	c.uuids, c.forgotten = map[string]bool{}, map[string]bool{}
	c.maxBudget = cfg.MaxBudget
	log, now := cfg.Logger, cfg.Now
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if now == nil {
		now = time.Now
	}
	c.set = changeable{tuning: cfg.Tuning,
		agents: cfg.Agents, forward: cfg.ForwardSubagents, spare: cfg.SpareBackground, questions: cfg.Questions, allowBypass: cfg.AllowBypass,
		fixedAllows: cfg.FixedAllows, project: cfg.Project, skills: cfg.Skills, noInstructions: cfg.NoInstructions, outputStyle: cfg.OutputStyle,
		systemPrompt: cfg.SystemPrompt, appendPrompt: cfg.AppendSystemPrompt, jsonSchema: cfg.JSONSchema, maxTurns: cfg.MaxTurns, loadPart: cfg.LoadPart, initExtra: cfg.InitExtra,
	}
	opts := recorder.Options{Place: recorder.Place{ID: cfg.SessionID, Log: cfg.Log}, Emit: host.Emit, Now: now, Follow: c.compaction.Follow,
		Sum: func() *session.Entry { return &session.Entry{Type: recorder.CostType, Fields: c.ledger.State()} }}
	if sub != nil {
		opts.Agent = sub.id
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
	c.runner = c.newRunner(sub, log, now)
	c.began = c.runner.Now()
	c.compaction = compact.Compactor{Hist: &c.hist, Rec: c.rec, Env: c.env, Log: log, Now: now, View: c.view.Load, Serve: c.runWhileServing, Path: c.runner.Top.Path,
		HasTool: func(name string) bool { return c.findTool(name) != nil },
		Limits: func() compact.Limits {
			l, _ := c.cfg.Compaction.limits(c.model.ContextWindow)
			return l
		}}
	c.model = c.resolve(cfg.ModelName)
	c.primary = c.model
	files.RealRoots(c.env) // from now on nothing moves them
	if c.env.Dir != "" {
		files.Pin(c.env, c.env.Dir)
	}
	c.ledger = ledger.New(c.cfg.Catalog)
	if cfg.MaxBudget > 0 && !c.model.Priced() {
		return nil, unpriced(c.model)
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
		c.tools = append(c.tools, worktreeTools(c)...)
	}
	if cfg.SkillTool {
		c.tools = append(c.tools, skill.New(newLibrary(c)))
	}
	c.setAgents(cfg.Agents)
	if cfg.Agent != nil {
		if err := c.become(cfg.Agent); err != nil {
			return nil, err
		}
	}
	c.watchTasks()
	if sub == nil { // a subagent has those of the conversation
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

// newRunner returns what runs the calls. It reads views, and reaches the owner through
// [Conversation.Do] only.
func (c *Conversation) newRunner(sub *subagent, log *slog.Logger, now func() time.Time) *call.Runner {
	r := &call.Runner{Env: c.env, Rec: c.rec, Log: log, Telemetry: telemetry.New(c.cfg.Traces, c.cfg.Metrics), Now: now, View: c.view.Load, NoPrompts: c.cfg.NoPrompts,
		SetState: func(state string) { c.Do(func() { c.state(state) }) },
		AddNotes: func(v *hook.Verdict) { c.Do(func() { c.TellHooks(v) }) },
		Judge: func(ctx context.Context, s *tool.Spec, input json.RawMessage) *policy.Judgement {
			ask := func(ctx context.Context, q tool.Question) (*tool.Reply, error) { return AskModel(ctx, c, q, "judge") }
			return c.brief.judge(ctx, ask, RootsOf(c), s, input)
		}}
	c.brief = &brief{}
	if sub != nil {
		c.brief = sub.parent.brief
		above := sub.parent.runner
		r.Top, r.Agent = above.Top, &call.Agent{ID: sub.id, Name: sub.def.Name, ReadOnly: sub.def.ReadOnly, Modes: []wire.PermissionMode{sub.narrow.mode}}
		if above.Agent != nil {
			r.Agent.Modes = append(slices.Clone(above.Agent.Modes), sub.narrow.mode)
		}
		return r
	}
	r.Top = call.Top{View: c.view.Load, Path: func() string { return c.rec.Place().Path() }, Over: c.over, Refresh: c.cfg.Refresh, Keep: c.cfg.Keep,
		Apply: func(u *wire.PermissionUpdate) (added []string) {
			c.Do(func() {
				before := RootsOf(c)
				c.Apply(u)
				added = slices.DeleteFunc(RootsOf(c), func(d string) bool { return slices.Contains(before, d) })
			})
			return added
		}}
	return r
}

// makePrefix writes the beginning of requests anew.
func (c *Conversation) makePrefix() {
	c.hist.Prefix.NoMarks = c.cfg.Tuning.NoCaching
	c.hist.Prefix.SetSystem(c.keyOfPrompt(), c.systemPrompt())
	offerTools(c)
}

func unpriced(m catalog.Info) error {
	return fmt.Errorf("the price of %s is not known, so a budget cannot be kept; name a model with a known price or leave the budget out", m.ID)
}

func (c *Conversation) resolve(name string) catalog.Info {
	if name == "" {
		name = "default"
	}
	info, _ := c.cfg.Catalog.Resolve(name)
	return info
}

// ID returns the id of the session, which /clear changes. It may be called from
// anywhere.
func (c *Conversation) ID() string { return c.rec.ID() }

// Emit sends a message to the host, with the uuid, session id and time that it lacks. It
// may be called from anywhere.
func (c *Conversation) Emit(m wire.Message) { c.rec.Emit(m) }

// Stamp gives a message that is emitted before there is a conversation its uuid and time,
// and the id of a session unless that is empty.
func Stamp(m wire.Message, sessionID string) { recorder.Stamp(m, sessionID) }

// Do runs f in the goroutine that owns the conversation and waits for it. It
// reports false, and does not run f, if the conversation is over. It may be called
// from anywhere but from inside another Do.
func (c *Conversation) Do(f func()) bool {
	done := make(chan struct{})
	select {
	case c.calls <- func() { defer close(done); f() }:
		<-done
		return true
	case <-c.over:
		return false
	}
}

// Run holds the conversation until its input has ended and everything is
// answered, or ctx ends: then a turn that runs is cut off but still gets its
// result.
func (c *Conversation) Run(ctx context.Context) {
	c.base = ctx
	defer close(c.over)
	defer c.env.Close()
	defer leaveWorktree(c)
	defer c.endSession()
	defer c.endSubagents()
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
			c.take(ctx, c.nextPrompt())
			continue
		}
		if c.sub != nil && patience == nil {
			patience = time.After(commandWait)
		}
		// Whatever wakes the loop, it starts over: the conditions above and quiet are never
		// older than the last call that could change them.
		var quiet <-chan struct{}
		if c.inputEnded && len(c.env.Tasks().RunningOf(c.env.Agent)) == 0 {
			quiet = c.nested.none() // a task begins to report its end before it counts as ended
		}
		select {
		case f := <-c.calls:
			f()
		case <-ctx.Done():
		case <-quiet:
			return
		case <-patience:
			return // what it left running ends with it
		}
	}
}

// leave answers prompts that will have no turn any more.
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

// awaitReports serves calls until the reports of tasks that have begun are emitted.
func (c *Conversation) awaitReports() {
	await(context.Background(), c, c.nested.none())
}

// A pending counts what was begun and is not over. Unlike a [sync.WaitGroup] it may be
// waited for while more begins.
type pending struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // closed when n is 0; nil if nothing was begun yet
}

func (p *pending) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n++; p.n == 1 {
		p.zero = make(chan struct{})
	}
}

func (p *pending) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n--; p.n == 0 {
		close(p.zero)
	}
}

// none is closed once all that was begun before is over.
func (p *pending) none() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.zero == nil {
		p.zero = make(chan struct{})
		close(p.zero)
	}
	return p.zero
}

// await serves requests for the conversation until ch delivers or is closed, or ctx ends.
// It reports whether ch did. Every wait of the owner but that of Run is one of these.
func await[T any](ctx context.Context, c *Conversation, ch <-chan T) (v T, ok bool) {
	for {
		select {
		case v = <-ch:
			return v, true
		case f := <-c.calls:
			f()
		case <-ctx.Done():
			return v, false
		}
	}
}

// runWhileServing runs something that takes time, and serves the conversation meanwhile.
func (c *Conversation) runWhileServing(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	await(context.Background(), c, done)
}

// Prompt adds a message of the user. What it says about calls that run is their
// result; see [Conversation.answerCalls].
func (c *Conversation) Prompt(m *wire.User) {
	if m = c.answerCalls(m); m == nil {
		return
	}
	if m.UUID != "" {
		if c.uuids[m.UUID] {
			return // it was said before
		}
		c.uuids[m.UUID] = true
	}
	if m.Origin != nil && m.Origin.Kind != "human" { // no host speaks for others
		own := *m
		own.Origin, m = nil, &own
	}
	p := &prompt{m: m, uuid: m.UUID}
	if p.uuid == "" {
		p.uuid = session.NewID()
	}
	c.lifecycle(p, "queued")
	if m.Priority == "now" && c.turn != nil {
		c.inbox = append([]*prompt{p}, c.inbox...)
		c.turn.cancel(errSuperseded)
		return
	}
	c.inbox = append(c.inbox, p)
}

// Seed adds what the assistant is to have said to the history, without asking
// anything. Only its text counts.
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

// EndInput says that no more prompts come: the conversation ends when those there
// are are answered.
func (c *Conversation) EndInput() { c.inputEnded = true }

// End ends the conversation: the turn that runs is cut off and gets its result,
// prompts that wait are taken back, and tasks in the background are ended.
func (c *Conversation) End() {
	c.Interrupt(true)
	c.Stop()
	c.ended = true
}

// Interrupt prepares for [Conversation.Stop]. It returns the prompts that still
// wait, and with cancelQueued those that do not any more.
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

// Stop cuts the turn off that runs, if one does: see [Conversation.Interrupt]. When it
// returns, the contexts of the turn and of its subagents have ended.
func (c *Conversation) Stop() {
	if c.turn != nil {
		c.turn.cancel(errInterrupted)
	}
	c.stopSubagents()
}

// CancelPrompt takes a prompt back that waits. It reports whether there was one.
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

// Model returns the model that answers.
func (c *Conversation) Model() catalog.Info { return c.model }

// SetModel changes the model; an empty name means the default. It reports whether
// that is another one. A model without a known price is refused if there is a
// budget.
func (c *Conversation) SetModel(name string) (changed bool, err error) {
	next := c.resolve(name)
	if c.cfg.MaxBudget > 0 && !next.Priced() {
		return false, unpriced(next)
	}
	was := c.model.ID
	c.model, c.primary = next, next
	if next.ID == was {
		return false, nil
	}
	c.makePrefix()
	return true, nil
}

// Mode returns the permission mode.
func (c *Conversation) Mode() wire.PermissionMode { return c.mode }

// SetMode changes the permission mode and says so.
func (c *Conversation) SetMode(mode wire.PermissionMode) {
	if mode == c.mode {
		return
	}
	if mode == wire.ModePlan {
		c.modeBefore = c.mode
	}
	c.mode = mode
	c.publish()
	c.rec.Emit(&wire.Status{PermissionMode: mode})
}

// SetThinking changes how the model reasons.
func (c *Conversation) SetThinking(t Thinking) { c.thinking = t }

// Apply changes the rules as the host said.
func (c *Conversation) Apply(u *wire.PermissionUpdate) {
	defer c.publish()
	switch u.Type {
	case wire.UpdateSetMode:
		mode := u.Mode
		switch mode {
		case wire.ModeManual:
			mode = wire.ModeDefault
		case wire.ModeDefault, wire.ModeAcceptEdits, wire.ModePlan, wire.ModeDontAsk, wire.ModeAuto:
		case wire.ModeBypassPermissions:
			if !c.set.allowBypass {
				return
			}
		default:
			return // there is no such mode
		}
		c.SetMode(mode)
	case wire.UpdateAddRules, wire.UpdateReplaceRules, wire.UpdateRemoveRules:
		if c.set.fixedAllows && u.Behavior == wire.BehaviorAllow && u.Type != wire.UpdateRemoveRules {
			return // one call may be allowed, not those that follow
		}
		c.policy.Update(u)
	case wire.UpdateAddDirectories:
		env := c.view.Load().Env
		roots := slices.Clone(env.Roots)
		for _, d := range u.Directories {
			if filepath.IsAbs(d) && !slices.Contains(roots, filepath.Clean(d)) {
				roots = append(roots, filepath.Clean(d))
				files.Pin(env, filepath.Clean(d))
			}
		}
		c.publishEnv(env.With(roots, env.Environ))
	case wire.UpdateRemoveDirectories:
		env := c.view.Load().Env
		first := true // where the conversation works stays
		c.publishEnv(env.With(slices.DeleteFunc(slices.Clone(env.Roots), func(d string) bool {
			gone := !first && slices.Contains(u.Directories, d)
			first = false
			return gone
		}), env.Environ))
	}
}

// SetEnviron changes the environment of commands that start from now on.
func (c *Conversation) SetEnviron(vars map[string]string) {
	changes := map[string]*string{}
	for k, v := range vars {
		changes[k] = &v
	}
	c.ChangeEnviron(changes)
}

// ChangeEnviron is [Conversation.SetEnviron] that can take variables away, too: those that
// are nil.
func (c *Conversation) ChangeEnviron(changes map[string]*string) {
	env := c.view.Load().Env
	environ := slices.Clone(env.Environ)
	for k, v := range changes {
		environ = slices.DeleteFunc(environ, func(kv string) bool { return strings.HasPrefix(kv, k+"=") })
		if v != nil {
			environ = append(environ, k+"="+*v)
		}
	}
	c.publishEnv(env.With(env.Roots, environ))
}

// Rules are what of the permissions can change while a conversation runs.
type Rules struct {
	// Rules take the place of those there are, but for those that Keep wants to stay.
	Rules       []policy.Rule
	Keep        func(policy.Rule) bool
	AllowBypass bool // see [Config]; a mode that is not allowed any more ends
	FixedAllows bool // see [Config]
	InitExtra   map[string]json.RawMessage
}

// SetRules changes the rules, for subagents that run as well.
func (c *Conversation) SetRules(r Rules) {
	c.policy.Replace(r.Rules, r.Keep)
	c.set.allowBypass, c.set.fixedAllows, c.set.initExtra = r.AllowBypass, r.FixedAllows, r.InitExtra
	if c.mode == wire.ModeBypassPermissions && !r.AllowBypass {
		c.SetMode(wire.ModeDefault)
	}
	c.publish()
}

// Hooks calls the hooks for an event that is not of a turn. It may be called from anywhere.
func (c *Conversation) Hooks(ctx context.Context, in wire.HookInput, subject string) *hook.Verdict {
	return c.runner.Hooks(ctx, "", in, subject, "")
}

// Busy reports whether a turn runs.
func (c *Conversation) Busy() bool { return c.turn != nil }

// LastResult returns the result of the last turn, nil if there was none. It may be
// called once Run has returned.
func (c *Conversation) LastResult() *wire.Result { return c.last }

// Ledger gives the cost so far, in dollars and by model.
func (c *Conversation) Ledger() (usd float64, models map[string]*wire.ModelUsage) {
	return c.ledger.TotalUSD(), c.ledger.ModelUsage()
}

// ToolNames returns the names of the tools, as hosts are told them.
func (c *Conversation) ToolNames() []string {
	names := make([]string, 0, len(c.tools))
	for _, t := range c.tools {
		name := t.Spec().Name
		if _, ok := t.(*agentTool); ok {
			name = call.AgentHostName
		}
		names = append(names, name)
	}
	return names
}

func (c *Conversation) findTool(name string) tool.Tool {
	if to, ok := c.set.tuning.ToolAliases[name]; ok {
		name = to
	}
	for _, t := range c.tools {
		if s := t.Spec(); s.Name == name || slices.Contains(s.Aliases, name) {
			return t
		}
	}
	return nil
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

func (c *Conversation) state(state string) {
	if c.cfg.States {
		c.rec.Emit(&wire.SessionStateChanged{State: state, SDKHostOnly: true})
	}
}

var (
	errInterrupted = errors.New("interrupted by the user")
	errSuperseded  = errors.New("another prompt came first")
)
