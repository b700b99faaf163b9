package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// hooks runs the hooks of a session and keeps their texts for the next prompt. Its methods are called by
// the owner of the conversation unless documented otherwise.
type hooks struct {
	promptID  atomic.Pointer[string] // of the last turn
	started   bool                   // the hooks for the start of the session have run
	opening   string                 // text that a hook puts before the first prompt
	fromHooks []string               // texts from hooks that are sent to the model with the next prompt

	below   bool   // the conversation is that of a subagent and does not own the session
	source  string // how the session started: "startup" or "resume"
	setup   string // see [Config]
	serving *owner
	runner  *call.Runner
	rec     *recorder.Recorder
	env     *tool.Env
	modelID func() string            // the current model
	rename  func(title string) error // renames the session
	title   string                   // of the session; empty if nobody named it
	reload  func()                   // reads the project's files again
}

// runHooks runs the hooks for an event in a turn. Meanwhile the owner of the conversation serves other
// goroutines; then it emits the messages of the hooks to the user. If the turn ends first, there are no
// answers.
func (c *hooks) runHooks(t *turn, in wire.HookInput, subject string) *hook.Verdict {
	return c.runHooksAs(t, in, subject, "")
}

func (c *hooks) runHooksAs(t *turn, in wire.HookInput, subject, id string) *hook.Verdict {
	v := c.callHooks(t, in, subject, id)
	c.emitNotes(v)
	return v
}

// callHooks is like runHooks, but the caller emits the messages of the hooks.
func (c *hooks) callHooks(t *turn, in wire.HookInput, subject, id string) *hook.Verdict {
	if !c.runner.HasHooks(in.Event()) {
		return &hook.Verdict{}
	}
	verdicts := make(chan *hook.Verdict, 1)
	go func() { verdicts <- c.runner.Hooks(t.ctx, t.promptID, in, subject, id) }()
	v, ok := await(t.ctx, c.serving, verdicts)
	if !ok || t.ctx.Err() != nil {
		return &hook.Verdict{}
	}
	return v
}

func (c *hooks) emitNotes(v *hook.Verdict) {
	for _, m := range v.Notes {
		c.rec.Emit(m)
	}
}

// promptHooks runs the hooks for a prompt. It is called by the owner of the
// conversation, which emits their notes.
func (c *hooks) promptHooks(t *turn, p *prompt) *hook.Verdict {
	if p.origin != nil && p.origin.Kind != "task-notification" { // as in the official command
		return &hook.Verdict{} // a program wrote it
	}
	v := c.callHooks(t, &wire.UserPromptSubmitInput{Prompt: p.m.Message.Content.String(), SessionTitle: c.title}, "", "")
	if _, blocked := v.Blocked(); blocked {
		return v
	}
	for o := range hook.Outputs[*wire.UserPromptSubmitOutput](v) {
		if o.SessionTitle != "" && !c.below {
			c.Rename(o.SessionTitle)
		}
	}
	return v
}

// stopHooks runs the Stop hooks. last is the text of the last answer. more has the reasons why the turn must not end. added is text that
// the model receives, for which the turn continues as well.
func (c *hooks) stopHooks(t *turn, last string) (more, added []string, stopped bool) {
	v := c.runHooks(t, &wire.StopInput{StopHookActive: t.stops > 0 || t.enforced > 0, LastAssistantMessage: last, BackgroundTasks: c.hookTasks(), SessionCrons: c.hookCrons(t.ctx)}, "")
	if v.Stopped {
		return nil, nil, true
	}
	return v.Objections, v.Added(), false
}

// hookTasks lists the background tasks for hooks.
func (c *hooks) hookTasks() []*wire.HookTask {
	tasks := []*wire.HookTask{}
	for _, info := range c.env.Tasks().Running() {
		kind := info.Kind // renamed below as hooks expect
		switch kind {
		case "local_bash":
			kind = "shell"
		case "local_agent":
			kind = "subagent"
		}
		tasks = append(tasks, &wire.HookTask{ID: info.ID, Type: kind, Status: info.Status, Description: info.Description,
			Command: info.Command, AgentType: info.AgentType})
	}
	return tasks
}

// batchHooks runs the hooks after all calls of an answer. It returns their texts for the model, and
// whether the turn ends.
func (c *hooks) batchHooks(t *turn, run *call.Batch) (more []string, stop bool) {
	in := &wire.PostToolBatchInput{}
	for _, tc := range run.Calls {
		if tc.Out == nil {
			continue
		}
		response := any(tc.Out.Result.Content.Text)
		if tc.Out.Result.Content.Blocks != nil {
			response = tc.Out.Result.Content.Blocks
		}
		in.ToolCalls = append(in.ToolCalls, &wire.HookToolCall{ToolName: tc.Name, ToolInput: orEmpty(tc.Out.InputOf(tc)), ToolUseID: tc.ID,
			ToolResponse: mustJSON(response)})
	}
	v := c.runHooksAs(t, in, "", "hook-"+session.NewID()) // the name that hosts know
	return append(v.ForModel(hook.Above), v.Halt()...), v.Stopped || len(v.Objections) > 0
}

// SwitchRefused returns the reason why hooks deny a change of the model, or nil.
func SwitchRefused(v *hook.Verdict) error {
	if v.Failed != nil {
		return fmt.Errorf("a hook failed, so the model does not change: %w", v.Failed)
	}
	if v.Behavior == wire.BehaviorDeny || v.Behavior == wire.BehaviorAsk {
		return fmt.Errorf("a hook blocked the change of the model: %s", v.Reason)
	}
	if reason, blocked := v.Blocked(); blocked {
		return fmt.Errorf("a hook blocked the change of the model: %s", reason)
	}
	return nil
}

// PostSwitch returns the input of the hooks that run after a change of the model.
func PostSwitch(in *wire.PreModelSwitchInput) *wire.PostModelSwitchInput {
	return &wire.PostModelSwitchInput{HookBase: in.HookBase, FromModel: in.FromModel, ToModel: in.ToModel, RequestedModel: in.RequestedModel, Source: in.Source,
		ContextTokens: in.ContextTokens, PromptCacheWarm: in.PromptCacheWarm, CacheTTL: in.CacheTTL, Pricing: in.Pricing}
}

// EmitHookMessages emits the messages of hooks to the user. The model receives the rest with the next prompt.
func (c *hooks) EmitHookMessages(v *hook.Verdict) {
	c.emitNotes(v)
	c.fromHooks = append(c.fromHooks, v.ForModel(hook.Above)...)
}

// startSession runs the hooks for the start of the session, once, and returns their texts for the model.
func (c *hooks) startSession(t *turn) []string {
	if c.below {
		return nil // a subagent does not own the session
	}
	begun := c.fromHooks
	c.fromHooks = nil
	if c.started {
		return begun
	}
	c.started = true
	if c.setup != "" {
		begun = append(begun, c.runHooks(t, &wire.SetupInput{Trigger: c.setup}, c.setup).ForModel(hook.Above)...)
	}
	return append(begun, c.sessionHooks(t, c.source)...)
}

// sessionHooks runs the hooks for the start of a session, or for an event like it, and returns their
// texts for the model.
func (c *hooks) sessionHooks(t *turn, source string) []string {
	in := &wire.SessionStartInput{Source: source, Model: c.modelID()}
	if source == "compact" {
		in.PromptID = t.promptID
	}
	v := c.runHooks(t, in, source)
	for o := range hook.Outputs[*wire.SessionStartOutput](v) {
		if o.SessionTitle != "" {
			c.rename(o.SessionTitle)
		}
		if o.ReloadSkills {
			c.reload() // the hook may have written the project's files
		}
		if o.InitialUserMessage != "" {
			c.opening = o.InitialUserMessage
		}
	}
	return v.ForModel(hook.Above)
}

// open prepends the text of a hook to the first prompt, in the same turn.
func (c *hooks) open(p *prompt) {
	if c.opening == "" || p.origin != nil {
		return
	}
	content := wire.Blocks(append([]wire.Block{&wire.TextBlock{Text: c.opening}}, p.content().All()...)...)
	c.opening, p.expanded = "", &content
}

// endSession runs the hooks for the end of the session, if it has started.
func (c *hooks) endSession() {
	if c.below {
		return // a subagent does not own the session
	}
	if !c.started {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), sessionEnd, errors.New("the session has ended"))
	defer cancel()
	c.runHooks(&turn{ctx: ctx}, &wire.SessionEndInput{Reason: "other"}, "other")
}

// sessionEnd is the time limit of the hooks for the end of a session.
const sessionEnd = 10 * time.Second

// failureHooks runs the hooks for a turn that ends because the model did not answer.
func (c *hooks) failureHooks(t *turn, code wire.AssistantError, details string) {
	c.runHooks(t, &wire.StopFailureInput{Error: code, ErrorDetails: details, LastAssistantMessage: t.lastText}, string(code))
}

// expansionHooks runs the hooks for a command that becomes a prompt. A hook may block it.
func (c *hooks) expansionHooks(t *turn, p *prompt, cmd *slashCommand) (more []string, blocked bool, reason string) {
	in := &wire.UserPromptExpansionInput{ExpansionType: "slash_command", CommandName: cmd.name, CommandArgs: cmd.args, Prompt: p.m.Message.Content.String()}
	if cmd.from != nil {
		in.ExpansionType = "mcp_prompt"
	}
	v := c.runHooks(t, in, cmd.name)
	reason, blocked = v.Blocked()
	return v.Added(), blocked, reason
}

// Hooks runs the hooks for an event outside of a turn. It may be called from any goroutine.
func (c *hooks) Hooks(ctx context.Context, in wire.HookInput, subject string) *hook.Verdict {
	promptID := ""
	if last := c.promptID.Load(); last != nil {
		promptID = *last
	}
	return c.runner.Hooks(ctx, promptID, in, subject, "")
}

// display lets hooks change how a text of the model is shown: in its message m and in the result. The
// history, the session and the events of a stream keep the original text. The hooks do not apply to the
// text of subagents. It is called by the owner of the conversation.
func (c *hooks) display(t *turn, b *block, m *wire.Assistant) {
	if c.below || b.kind != "text" || b.text.Len() == 0 {
		return
	}
	v := c.runHooksAs(t, &wire.MessageDisplayInput{TurnID: t.id, MessageID: m.UUID, Final: true, Delta: b.text.String()}, "", m.UUID+"-0")
	for o := range hook.Outputs[*wire.MessageDisplayOutput](v) {
		if o.DisplayContent != nil {
			b.shown = o.DisplayContent
		}
	}
	if v.Behavior == wire.BehaviorDeny && v.Failed != nil {
		b.shown = new("") // a hook that must not fail did: show nothing that it has not seen
	}
	if b.shown != nil {
		m.Message.Content = wire.Blocks(&wire.TextBlock{Text: *b.shown})
	}
}

// hookCrons lists the scheduled prompts for hooks.
func (c *hooks) hookCrons(ctx context.Context) []*wire.HookCron {
	crons := []*wire.HookCron{}
	s := c.env.Schedules
	if s == nil {
		return crons
	}
	c.serving.runWhileServing(func() {
		jobs, _ := s.List(ctx)
		for _, j := range jobs {
			at := j.At.Local()
			crons = append(crons, &wire.HookCron{ID: j.ID, Schedule: cmp.Or(j.Cron, fmt.Sprintf("%d %d * * *", at.Minute(), at.Hour())), Recurring: j.Recurring, Prompt: j.Prompt})
		}
	})
	return crons
}

// Inform sends texts to the model with the next turn.
func (c *hooks) Inform(texts ...string) { c.fromHooks = append(c.fromHooks, texts...) }

// Rename sets the title of the session and emits the change.
func (c *hooks) Rename(title string) error {
	if err := c.rename(title); err != nil {
		return err
	}
	c.EmitTitle()
	return nil
}

// maxTitle is the length of a title in characters.
const maxTitle = 200

// cleanTitle returns a title in one line, without what exceeds the limit.
func cleanTitle(title string) string {
	title = strings.Join(strings.Fields(title), " ")
	if r := []rune(title); len(r) > maxTitle {
		title = strings.TrimSpace(string(r[:maxTitle]))
	}
	return title
}

// EmitTitle emits the title of the session, if it has one.
func (c *hooks) EmitTitle() {
	if c.title != "" {
		c.rec.Emit(&wire.SessionTitleChanged{Title: c.title})
	}
}
