package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

func (c *Conversation) logPath() string { return c.root().rec.Place().Path() }

// callHooks calls the hooks for an event and merges their answers. It may be called from
// anywhere.
func (c *Conversation) callHooks(ctx context.Context, promptID string, in wire.HookInput, subject, id string) *hook.Verdict {
	v := c.view.Load()
	hook.Fill(in, wire.HookBase{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: promptID, PermissionMode: v.mode})
	return hook.Merge(in, subject, v.host.Hooks(ctx, in, subject, id))
}

// runHooks is callHooks for the owner of the conversation, which serves others meanwhile
// and emits what hooks say to the user. If the turn ends first there are no answers.
func (c *Conversation) runHooks(t *turn, in wire.HookInput, subject string) *hook.Verdict {
	return c.runHooksAs(t, in, subject, session.NewID())
}

func (c *Conversation) runHooksAs(t *turn, in wire.HookInput, subject, id string) *hook.Verdict {
	verdicts := make(chan *hook.Verdict, 1)
	go func() { verdicts <- c.callHooks(t.ctx, t.promptID, in, subject, id) }()
	v, ok := await(t.ctx, c, verdicts)
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

// aboveHooks names what hooks behind an event object to.
const aboveHooks = "what is above"

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
	v := c.runHooks(t, &wire.StopInput{StopHookActive: t.stops > 0, LastAssistantMessage: t.lastText, BackgroundTasks: c.hookTasks(), SessionCrons: []*wire.HookCron{}}, "")
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

// preToolHooks runs the hooks before a call. They may change the input.
func (c *Conversation) preToolHooks(ctx context.Context, t *turn, call *toolCall, spec *tool.Spec, input *json.RawMessage, out *outcome) *hook.Verdict {
	v := c.callHooks(ctx, t.promptID, &wire.PreToolUseInput{ToolName: spec.Name, ToolInput: *input, ToolUseID: call.block.id, MCPServer: call.server}, spec.Name, call.block.id)
	out.take(v)
	if v.Input != nil {
		*input = v.Input
	}
	return v
}

// take adds what hooks say about a call to its outcome.
func (out *outcome) take(v *hook.Verdict) {
	out.before = append(out.before, v.Notes...)
	out.context = append(out.context, v.Added()...)
	out.stop = out.stop || v.Stopped
	out.hooks = append(out.hooks, v.Noted...)
}

// askAround asks about a call: the hooks for permission requests and the host, both at
// once. A no of either counts at once, a yes of the host when no hook has said no. by
// is who answered; the answer is nil if nobody did.
func (c *Conversation) askAround(ctx context.Context, t *turn, call *toolCall, q *wire.CanUseTool, mode wire.PermissionMode, out *outcome) (res *wire.PermissionResult, by string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errors.New("the question was answered elsewhere"))
	type answer struct {
		res *wire.PermissionResult
		err error
	}
	var asked chan answer
	questioned := make(chan struct{}) // closed when the host is asked
	sent := sync.OnceFunc(func() { close(questioned) })
	if !c.cfg.NoPrompts && c.view.Load().host.CanAsk() {
		c.Do(func() { c.state("requires_action") })
		defer c.Do(func() { c.state("running") })
		asked = make(chan answer, 1)
		go c.notifyHooks(ctx, t, q, mode)
		go func() {
			defer sent()
			r, err := c.view.Load().host.Ask(ctx, q, sent)
			asked <- answer{r, err}
		}()
	} else {
		sent()
	}
	hooked := make(chan *hook.Verdict, 1)
	go func() {
		<-questioned // the host is asked first
		in := &wire.PermissionRequestInput{ToolName: q.ToolName, ToolInput: q.Input, PermissionSuggestions: q.PermissionSuggestions, MCPServer: call.server}
		in.PermissionMode = mode
		hooked <- c.callHooks(ctx, t.promptID, in, q.ToolName, q.ToolUseID)
	}()
	var host *answer
	for {
		select {
		case v := <-hooked:
			hooked = nil
			if ctx.Err() == nil {
				out.take(v)
				// A hook does not answer in the place of a person who is asked a question.
				if v.Behavior == wire.BehaviorDeny || v.Behavior == wire.BehaviorAllow && !interactive(q.ToolName) {
					return v.Result, "hook", nil
				}
			}
			if host != nil || asked == nil {
				break
			}
			continue
		case a := <-asked:
			asked, host = nil, &a
			if hooked != nil && a.err == nil && a.res.Behavior == wire.BehaviorAllow {
				continue // a hook may still say no
			}
		}
		if host != nil {
			return host.res, "host", host.err
		}
		return nil, "nobody", nil
	}
}

// notifyHooks tells hooks that a person should look: somebody is asked about a call.
func (c *Conversation) notifyHooks(ctx context.Context, t *turn, q *wire.CanUseTool, mode wire.PermissionMode) {
	in := &wire.NotificationInput{Message: "The agent needs permission to use " + q.ToolName, Title: "Permission needed", NotificationType: "permission_prompt"}
	in.PermissionMode = mode
	v := c.callHooks(context.WithoutCancel(ctx), t.promptID, in, in.NotificationType, session.NewID())
	c.Do(func() { c.TellHooks(v) })
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
	req := c.view.Load().request(c.env, tl, input, access, nil)
	req.Mode = wire.ModeBypassPermissions
	return policy.New(rule).Decide(req).Behavior != wire.BehaviorAllow
}

// SwitchInput is what hooks are told of a change of the model. It reports false if the
// model stays what it is.
func (c *Conversation) SwitchInput(name, source string) (*wire.PreModelSwitchInput, bool) {
	next := c.resolve(name)
	usage := c.Context()
	return &wire.PreModelSwitchInput{FromModel: c.model.ID, ToModel: next.ID, RequestedModel: name, Source: source,
		ContextTokens: int64(usage.System + usage.Tools + usage.Messages), PromptCacheWarm: c.lastUsage != nil, CacheTTL: "5m", Pricing: "catalog"}, next.ID != c.model.ID
}

// receipt records a decision about a call and who made it.
func (c *Conversation) receipt(call *toolCall, d policy.Decision, out *outcome, by string, allowed bool) {
	if c.rec.Place().Log == nil {
		return
	}
	r := d.Receipt()
	if c.sub != nil {
		r.AgentID = c.sub.id
	}
	r.ToolUseID, r.Hooks, r.By, r.At = call.block.id, out.hooks, by, c.now().UTC()
	if r.Tool == "" {
		r.Tool, r.Input, r.Cwd = call.block.name, out.inputOf(call), c.env.Cwd()
	}
	if r.Behavior == "" { // the policy was not asked
		r.Reason = reasonOf(out)
	}
	r.Answer = wire.BehaviorDeny
	switch {
	case allowed:
		r.Answer = wire.BehaviorAllow
	case out.end != nil && out.end.reason == "tool_deferred":
		r.Answer = wire.BehaviorDefer
	}
	e := &session.Entry{Type: "parley-receipt", Time: r.At, Fields: fields("receipt", r)}
	if allowed && !call.readOnly {
		call.receipt = e // it is written with the intent
		return
	}
	// Nothing happens because of it but that files are read, if at all. The result of the
	// call comes behind it, and the disk is waited for then.
	e.Hasty = !allowed || !slices.ContainsFunc(r.Access, func(a tool.Access) bool { return a.Kind != tool.Read })
	if err := c.rec.Place().Append(e); err != nil {
		c.log.Error("a decision could not be recorded", "error", err)
		out.before = append(out.before, &wire.Informational{Content: fmt.Sprintf("The decision about %s could not be recorded: %v", call.block.name, err),
			Level: "warning"})
	}
}

// reasonOf is what came of a call, for the record.
func reasonOf(out *outcome) string {
	if out.result == nil {
		return ""
	}
	return out.result.Content.String()
}

// batchHooks runs the hooks after all calls of an answer. It returns what they tell
// the model, and whether the turn ends.
func (c *Conversation) batchHooks(t *turn, run *toolRun) (more []string, stop bool) {
	in := &wire.PostToolBatchInput{}
	for _, call := range run.calls {
		if call.out == nil {
			continue
		}
		in.ToolCalls = append(in.ToolCalls, &wire.HookToolCall{ToolName: call.block.name, ToolInput: orEmpty(call.out.inputOf(call)), ToolUseID: call.block.id,
			ToolResponse: mustJSON(call.out.result.Content.String())})
	}
	v := c.runHooks(t, in, "")
	return v.ForModel(aboveHooks), v.Stopped
}

// remarkHooks calls hooks for something that has happened because of a call. They can say
// something about it, and change nothing.
func (c *Conversation) remarkHooks(ctx context.Context, promptID string, in wire.HookInput, subject string, out *outcome) {
	v := c.callHooks(ctx, promptID, in, subject, session.NewID())
	out.before = append(out.before, v.Notes...)
	out.context = append(out.context, v.Added()...)
}

// instructionsInput is what hooks are told of a file of instructions that was read.
func instructionsInput(f *project.File, reason string) *wire.InstructionsLoadedInput {
	kind := map[string]string{project.User: "User", project.Local: "Local"}[f.Source]
	if kind == "" {
		kind = "Project"
	}
	if f.From != "" {
		reason = "include"
	}
	return &wire.InstructionsLoadedInput{FilePath: f.Path, MemoryType: kind, LoadReason: reason, ParentFilePath: f.From}
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
	c.fromHooks = append(c.fromHooks, v.ForModel(aboveHooks)...)
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
		begun = append(begun, c.runHooks(t, &wire.SetupInput{Trigger: c.cfg.Setup}, c.cfg.Setup).ForModel(aboveHooks)...)
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
	return v.ForModel(aboveHooks)
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
	c.emitNotes(c.callHooks(ctx, "", &wire.SessionEndInput{Reason: "other"}, "other", session.NewID()))
}

// sessionEnd is how long the hooks for the end of a session have.
const sessionEnd = 10 * time.Second

// replaced is a result that a hook has put something else in place of: text, blocks as
// MCP servers answer with, or any other value.
func replaced(was *tool.Result, updated json.RawMessage) *tool.Result {
	r := *was
	r.Structured = updated
	var text string
	var blocks []struct{ Type, Text string }
	switch {
	case json.Unmarshal(updated, &text) == nil:
	case json.Unmarshal(updated, &blocks) == nil && !slices.ContainsFunc(blocks, func(b struct{ Type, Text string }) bool { return b.Type != "text" }):
		for i, b := range blocks {
			if i > 0 {
				text += "\n"
			}
			text += b.Text
		}
	default:
		text = string(updated)
	}
	r.Content = wire.Text(text)
	return &r
}

// deniedHooks tells the hooks of a call that was not allowed. One may say that the
// model should try again.
func (c *Conversation) deniedHooks(ctx context.Context, t *turn, call *toolCall, name string, input json.RawMessage, out *outcome) {
	v := c.callHooks(ctx, t.promptID, &wire.PermissionDeniedInput{ToolName: name, ToolInput: input, ToolUseID: call.block.id, Reason: out.result.Content.String(), MCPServer: call.server},
		name, call.block.id)
	out.before = append(out.before, v.Notes...)
	for o := range hook.Outputs[*wire.PermissionDeniedOutput](v) {
		if o.Retry {
			out.context = append(out.context, "A hook of the user says that the call which was not allowed may be tried again.")
		}
	}
}

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

// postToolHooks runs the hooks after a call.
func (c *Conversation) postToolHooks(ctx context.Context, t *turn, call *toolCall, spec *tool.Spec, input json.RawMessage, took time.Duration, out *outcome) {
	var in wire.HookInput
	if out.result.IsError {
		in = &wire.PostToolUseFailureInput{ToolName: spec.Name, ToolInput: input, ToolUseID: call.block.id, Error: out.result.Content.String(), DurationMS: took.Milliseconds(), MCPServer: call.server}
	} else {
		in = &wire.PostToolUseInput{ToolName: spec.Name, ToolInput: input, ToolResponse: mustJSON(out.result.Structured), ToolUseID: call.block.id, DurationMS: took.Milliseconds(), MCPServer: call.server}
	}
	v := c.callHooks(ctx, t.promptID, in, spec.Name, call.block.id)
	out.before = append(out.before, v.Notes...)
	out.stop = out.stop || v.Stopped
	out.context = append(out.context, v.ForModel("the result above")...)
	for o := range hook.Outputs[*wire.PostToolUseOutput](v) {
		updated := o.UpdatedToolOutput
		if updated == nil && call.server != nil {
			updated = o.UpdatedMCPToolOutput
		}
		if updated != nil {
			out.result = replaced(out.result, updated)
		}
	}
}
