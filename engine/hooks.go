package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// runHooks calls the hooks for an event for the owner of the conversation, which serves others meanwhile
// and emits what hooks say to the user. If the turn ends first there are no answers.
func (c *Conversation) runHooks(t *turn, in wire.HookInput, subject string) *hook.Verdict {
	return c.runHooksAs(t, in, subject, "")
}

func (c *Conversation) runHooksAs(t *turn, in wire.HookInput, subject, id string) *hook.Verdict {
	verdicts := make(chan *hook.Verdict, 1)
	go func() { verdicts <- c.runner.Hooks(t.ctx, t.promptID, in, subject, id) }()
	v, ok := await(t.ctx, &c.owner, verdicts)
	if !ok || t.ctx.Err() != nil {
		return &hook.Verdict{}
	}
	c.emitNotes(v)
	return v
}

func (c *Conversation) emitNotes(v *hook.Verdict) {
	for _, m := range v.Notes {
		c.rec.Emit(m)
	}
}

// promptHooks runs the hooks for a prompt. It is called by the owner of the
// conversation.
func (c *Conversation) promptHooks(t *turn, p *prompt) (more []string, blocked bool, reason string) {
	if p.origin != nil {
		return nil, false, "" // nobody wrote it
	}
	v := c.runHooks(t, &wire.UserPromptSubmitInput{Prompt: p.m.Message.Content.String()}, "")
	if reason, blocked = v.Blocked(); blocked {
		return nil, true, reason
	}
	for o := range hook.Outputs[*wire.UserPromptSubmitOutput](v) {
		if o.SessionTitle != "" && c.sub == nil {
			c.Rename(o.SessionTitle)
		}
	}
	return v.Added(), false, ""
}

// stopHooks asks whether the turn may end. more is why not; added is what the model is to
// know before it does, and goes on for.
func (c *Conversation) stopHooks(t *turn) (more string, added []string, stopped bool) {
	v := c.runHooks(t, &wire.StopInput{StopHookActive: t.stops > 0, LastAssistantMessage: t.lastText, BackgroundTasks: c.hookTasks(), SessionCrons: hookCrons(t.ctx, c)}, "")
	if v.Stopped {
		return "", nil, true
	}
	return strings.Join(v.Objections, ""), v.Added(), false
}

// hookTasks tells hooks what runs in the background.
func (c *Conversation) hookTasks() []*wire.HookTask {
	tasks := []*wire.HookTask{}
	for _, info := range c.env.Tasks().Running() {
		kind := info.Kind // under the names that hooks know
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

// Fits reports whether a call may be one that a rule is about, as the condition of a hook
// has it. Where that cannot be told it is: a hook that guards too much does less harm
// than one that guards nothing. It waits for the conversation.
func (c *Conversation) Fits(text, name string, input json.RawMessage) bool {
	rule, err := policy.Parse(text, wire.BehaviorDeny, policy.Source{Layer: policy.LayerHost})
	if err != nil {
		return true
	}
	var tl tool.Tool
	c.Do(func() { tl = c.findTool(name) })
	if tl == nil {
		return true
	}
	access, err := tl.Access(c.env, input)
	if err != nil {
		return true
	}
	req := c.view.Load().Request(c.env, tl, input, access, nil)
	req.Mode = wire.ModeBypassPermissions
	return policy.New(rule).Decide(req).Behavior != wire.BehaviorAllow
}

// batchHooks runs the hooks after all calls of an answer. It returns what they tell
// the model, and whether the turn ends.
func (c *Conversation) batchHooks(t *turn, run *call.Batch) (more []string, stop bool) {
	in := &wire.PostToolBatchInput{}
	for _, tc := range run.Calls {
		if tc.Out == nil {
			continue
		}
		in.ToolCalls = append(in.ToolCalls, &wire.HookToolCall{ToolName: tc.Name, ToolInput: orEmpty(tc.Out.InputOf(tc)), ToolUseID: tc.ID,
			ToolResponse: mustJSON(tc.Out.Result.Content.String())})
	}
	v := c.runHooks(t, in, "")
	return v.ForModel(hook.Above), v.Stopped
}

// SwitchRefused returns why hooks do not let the model change, or nil.
func SwitchRefused(v *hook.Verdict) error {
	if v.Failed != nil {
		return fmt.Errorf("a hook failed, and the model stays: %w", v.Failed)
	}
	if v.Behavior == wire.BehaviorDeny || v.Behavior == wire.BehaviorAsk {
		return fmt.Errorf("a hook does not let the model change: %s", v.Reason)
	}
	if reason, blocked := v.Blocked(); blocked {
		return fmt.Errorf("a hook does not let the model change: %s", reason)
	}
	return nil
}

// PostSwitch is what hooks are told when the model has changed.
func PostSwitch(in *wire.PreModelSwitchInput) *wire.PostModelSwitchInput {
	return &wire.PostModelSwitchInput{HookBase: in.HookBase, FromModel: in.FromModel, ToModel: in.ToModel, RequestedModel: in.RequestedModel, Source: in.Source,
		ContextTokens: in.ContextTokens, PromptCacheWarm: in.PromptCacheWarm, CacheTTL: in.CacheTTL, Pricing: in.Pricing}
}

// TellHooks emits what hooks said to the user; the model hears the rest with the next
// prompt.
func (c *Conversation) TellHooks(v *hook.Verdict) {
	c.emitNotes(v)
	c.fromHooks = append(c.fromHooks, v.ForModel(hook.Above)...)
}

// startSession runs the hooks for the start of the session, once, and returns what
// they tell the model.
func (c *Conversation) startSession(t *turn) []string {
	if c.sub != nil {
		return nil // the session is not its own
	}
	begun := c.fromHooks
	c.fromHooks = nil
	if c.started {
		return begun
	}
	c.started = true
	source := "startup"
	if c.cfg.History != nil {
		source = "resume"
	}
	if c.cfg.Setup != "" {
		begun = append(begun, c.runHooks(t, &wire.SetupInput{Trigger: c.cfg.Setup}, c.cfg.Setup).ForModel(hook.Above)...)
	}
	return append(begun, c.sessionHooks(t, source)...)
}

// sessionHooks runs the hooks for the start of a session, or for what is like one, and
// returns what they tell the model.
func (c *Conversation) sessionHooks(t *turn, source string) []string {
	v := c.runHooks(t, &wire.SessionStartInput{Source: source, Model: c.model.ID}, source)
	for o := range hook.Outputs[*wire.SessionStartOutput](v) {
		if o.SessionTitle != "" {
			c.Rename(o.SessionTitle)
		}
		if o.ReloadSkills && c.set.project != nil && c.cfg.ReadProject != nil {
			c.SetProject(c.cfg.ReadProject()) // the hook may have written it
		}
		if o.InitialUserMessage != "" {
			c.opening = o.InitialUserMessage
		}
	}
	return v.ForModel(hook.Above)
}

// open says what a hook wants to be said first, before the first prompt and in its turn.
func (c *Conversation) open(p *prompt) {
	if c.opening == "" || p.origin != nil {
		return
	}
	content := wire.Blocks(append([]wire.Block{&wire.TextBlock{Text: c.opening}}, p.content().All()...)...)
	c.opening, p.expanded = "", &content
}

// endSession runs the hooks for the end of the session, if it began.
func (c *Conversation) endSession() {
	if c.sub != nil {
		return // the session is not its own
	}
	if !c.started {
		return
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), sessionEnd, errors.New("the session has ended"))
	defer cancel()
	c.emitNotes(c.runner.Hooks(ctx, "", &wire.SessionEndInput{Reason: "other"}, "other", ""))
}

// sessionEnd is how long the hooks for the end of a session have.
const sessionEnd = 10 * time.Second

// failureHooks tells hooks that the turn ends because the model did not answer.
func (c *Conversation) failureHooks(t *turn, code wire.AssistantError, details string) {
	c.runHooks(t, &wire.StopFailureInput{Error: code, ErrorDetails: details, LastAssistantMessage: t.lastText}, string(code))
}

// expansionHooks tells hooks that a command becomes a prompt. One may object.
func (c *Conversation) expansionHooks(t *turn, p *prompt, cmd *slashCommand) (more []string, blocked bool, reason string) {
	in := &wire.UserPromptExpansionInput{ExpansionType: "slash_command", CommandName: cmd.name, CommandArgs: cmd.args, Prompt: p.m.Message.Content.String()}
	if cmd.from != nil {
		in.ExpansionType = "mcp_prompt"
	}
	v := c.runHooks(t, in, cmd.name)
	reason, blocked = v.Blocked()
	return v.Added(), blocked, reason
}
