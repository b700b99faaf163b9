package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

func (c *Conversation) logPath() string { return c.root().rec.Place().Path() }

// hookSays tells the user what a hook says.
func (c *Conversation) hookSays(name string, out *wire.HookOutput) wire.Message {
	return &wire.Informational{Content: name + " says: " + out.SystemMessage, Level: "notice"}
}

func (c *Conversation) hookFailed(name string, err error) wire.Message {
	return &wire.Informational{Content: fmt.Sprintf("%s hook failed: %v", name, err), Level: "warning", Tag: "hook_callback_failed"}
}

// promptHooks runs the hooks for a prompt. It is called by the owner of the
// conversation, which serves others meanwhile.
func (c *Conversation) promptHooks(t *turn, p *prompt) (more []string, blocked bool, reason string) {
	if p.origin != nil {
		return nil, false, "" // nobody wrote it
	}
	text := p.m.Message.Content.String()
	in := &wire.UserPromptSubmitInput{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: t.promptID, PermissionMode: c.mode, Prompt: text}
	answers := c.runHooks(t, in, "", session.NewID())
	if t.ctx.Err() != nil {
		return nil, false, "" // the turn is over
	}
	for _, a := range answers {
		if a.Err != nil {
			if a.Block || a.Ask { // there is nobody to ask about a prompt
				return nil, true, fmt.Sprintf("a hook failed: %v", a.Err)
			}
			c.rec.Emit(c.hookFailed("UserPromptSubmit", a.Err))
			continue
		}
		if a.Output == nil {
			continue
		}
		if a.Output.SystemMessage != "" {
			c.rec.Emit(c.hookSays("UserPromptSubmit", a.Output))
		}
		said, _ := specific[*wire.UserPromptSubmitOutput](a)
		if a.Output.Decision == wire.DecisionBlock || a.Output.Continue != nil && !*a.Output.Continue {
			reason := a.Output.Reason
			if reason == "" {
				reason = a.Output.StopReason
			}
			return nil, true, reason
		}
		if said != nil && said.SessionTitle != "" && c.sub == nil {
			c.Rename(said.SessionTitle)
		}
		if s := additionalContext(a.Output); s != "" {
			more = append(more, "Context from a hook of the user:\n"+s)
		}
	}
	return more, false, ""
}

// runHooks calls hooks from the goroutine that owns the conversation.
func (c *Conversation) runHooks(t *turn, in wire.HookInput, subject, id string) []HookAnswer {
	answers := make(chan []HookAnswer, 1)
	go func() { answers <- c.view.Load().host.Hooks(t.ctx, in, subject, id) }()
	for {
		select {
		case a := <-answers:
			return a
		case f := <-c.calls:
			f()
		case <-t.ctx.Done():
			return nil
		}
	}
}

// stopHooks asks whether the turn may end. more is why not; added is what the model is to
// know before it does, and goes on for.
func (c *Conversation) stopHooks(t *turn) (more string, added []string, stopped bool) {
	in := &wire.StopInput{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: t.promptID, PermissionMode: c.mode,
		StopHookActive: t.stops > 0, LastAssistantMessage: t.lastText, BackgroundTasks: c.hookTasks(), SessionCrons: []*wire.HookCron{}}
	for _, a := range c.runHooks(t, in, "", session.NewID()) {
		switch {
		case a.Err != nil:
			c.rec.Emit(c.hookFailed("Stop", a.Err))
		case a.Output == nil:
		default:
			if a.Output.SystemMessage != "" {
				c.rec.Emit(c.hookSays("Stop", a.Output))
			}
			if a.Output.Continue != nil && !*a.Output.Continue {
				return "", nil, true
			}
			if a.Output.Decision == wire.DecisionBlock {
				more += a.Output.Reason
			}
			if s := additionalContext(a.Output); s != "" {
				added = append(added, "Context from a hook of the user:\n"+s)
			}
		}
	}
	return more, added, false
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

// additionalContext returns what a hook adds for the model.
func additionalContext(out *wire.HookOutput) string {
	if out.HookSpecificOutput == nil {
		return ""
	}
	var has struct {
		AdditionalContext string `json:"additionalContext"`
	}
	json.Unmarshal(mustJSON(out.HookSpecificOutput), &has)
	return has.AdditionalContext
}

// A hookVerdict is what the hooks say before a call.
type hookVerdict struct {
	denied, allow, ask, deferred bool
	reason                       string
	source                       string // of the hook that has it asked
}

// preToolHooks runs the hooks before a call. A denial wins over a question, a
// question over a permission. They may change the input.
func (c *Conversation) preToolHooks(ctx context.Context, t *turn, call *toolCall, spec *tool.Spec, input *json.RawMessage, out *outcome) hookVerdict {
	var v hookVerdict
	var mode wire.PermissionMode
	c.Do(func() { mode = c.mode })
	in := &wire.PreToolUseInput{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: t.promptID, PermissionMode: mode,
		ToolName: spec.Name, ToolInput: *input, ToolUseID: call.block.id, MCPServer: call.server}
	for _, a := range c.view.Load().host.Hooks(ctx, in, spec.Name, call.block.id) {
		name := "PreToolUse:" + spec.Name
		noted := note(wire.EventPreToolUse, a)
		if o, ok := specific[*wire.PreToolUseOutput](a); ok {
			noted.Decision, noted.Reason, noted.Changed = string(o.PermissionDecision), o.PermissionDecisionReason, o.UpdatedInput != nil
		}
		out.hooks = append(out.hooks, noted)
		if a.Err != nil {
			if a.Ask {
				v.ask, v.reason, v.source = true, fmt.Sprintf("a hook failed: %v", a.Err), a.Source
			}
			if a.Block {
				v.denied, v.reason = true, fmt.Sprintf("a hook failed, and the call it guards was not made: %v", a.Err)
			}
			if !a.Late { // the result of the call says it
				out.before = append(out.before, c.hookFailed(name, a.Err))
			}
			continue
		}
		if a.Output == nil {
			continue
		}
		if a.Output.SystemMessage != "" {
			out.before = append(out.before, c.hookSays(name, a.Output))
		}
		if a.Output.Continue != nil && !*a.Output.Continue {
			out.stop = true
		}
		switch a.Output.Decision {
		case wire.DecisionBlock:
			v.denied, v.reason = true, a.Output.Reason
		case wire.DecisionApprove:
			v.allow = true
		}
		o, ok := a.Output.HookSpecificOutput.(*wire.PreToolUseOutput)
		if !ok {
			continue
		}
		switch o.PermissionDecision {
		case wire.BehaviorDeny:
			v.denied, v.reason = true, o.PermissionDecisionReason
		case wire.BehaviorAsk:
			v.ask, v.reason, v.source = true, o.PermissionDecisionReason, a.Source
		case wire.BehaviorAllow:
			v.allow = true
		case wire.BehaviorDefer:
			v.deferred = true
		}
		if o.UpdatedInput != nil {
			*input = o.UpdatedInput
		}
		if o.AdditionalContext != "" {
			out.context = append(out.context, "Context from a hook of the user:\n"+o.AdditionalContext)
		}
	}
	return v
}

// specific returns what a hook says in the words of its event.
func specific[T wire.HookSpecificOutput](a HookAnswer) (out T, ok bool) {
	if a.Output == nil || a.Output.HookSpecificOutput == nil {
		return out, false
	}
	out, ok = a.Output.HookSpecificOutput.(T)
	return out, ok
}

// note is the answer of a hook for the record.
func note(event wire.HookEvent, a HookAnswer) policy.HookAnswer {
	n := policy.HookAnswer{Event: string(event), Name: a.Name}
	if a.Source != "" && a.Source != "host" {
		n.Name = a.Source + " " + a.Name
	}
	switch {
	case a.Err != nil:
		n.Error = a.Err.Error()
		if a.Block {
			n.Decision = string(wire.BehaviorDeny)
		}
	case a.Output != nil && a.Output.Decision == wire.DecisionBlock:
		n.Decision, n.Reason = string(wire.BehaviorDeny), a.Output.Reason
	case a.Output != nil && a.Output.Decision == wire.DecisionApprove:
		n.Decision = string(wire.BehaviorAllow)
	}
	return n
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
	hooked := make(chan []HookAnswer, 1)
	go func() {
		<-questioned // the host is asked first
		in := &wire.PermissionRequestInput{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: t.promptID, PermissionMode: mode,
			ToolName: q.ToolName, ToolInput: q.Input, PermissionSuggestions: q.PermissionSuggestions, MCPServer: call.server}
		hooked <- c.view.Load().host.Hooks(ctx, in, q.ToolName, q.ToolUseID)
	}()
	var host *answer
	for {
		select {
		case answers := <-hooked:
			hooked = nil
			if ctx.Err() == nil {
				if res := c.foldRequest(q, answers, out); res != nil {
					return res, "hook", nil
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
	in := &wire.NotificationInput{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: t.promptID, PermissionMode: mode,
		Message: "The agent needs permission to use " + q.ToolName, Title: "Permission needed", NotificationType: "permission_prompt"}
	answers := c.view.Load().host.Hooks(context.WithoutCancel(ctx), in, in.NotificationType, session.NewID())
	c.Do(func() { c.TellHooks("Notification", answers) })
}

// Fits reports whether a call may be one that a rule is about, as the condition of a hook
// has it. Where that cannot be told it is: a hook that guards too much does less harm
// than one that guards nothing. It waits for the conversation.
func (c *Conversation) Fits(text, name string, input json.RawMessage) bool {
	rule, err := policy.Parse(text, wire.BehaviorDeny, policy.Source{Layer: policy.LayerHost})
	if err != nil {
		return true
	}
	fits := true
	c.Do(func() {
		tl := c.findTool(name)
		if tl == nil {
			return
		}
		access, err := tl.Access(c.env, input)
		if err != nil {
			return
		}
		d := policy.New(rule).Decide(&policy.Request{Tool: tl.Spec(), Access: access, Input: input, Mode: wire.ModeBypassPermissions,
			Roots: c.roots, Cwd: c.env.Cwd(), Home: c.env.Home, Resolved: files.Targets(c.env, access)})
		fits = d.Behavior != wire.BehaviorAllow
	})
	return fits
}

// SwitchInput is what hooks are told of a change of the model. It reports false if the
// model stays what it is.
func (c *Conversation) SwitchInput(name, source string) (*wire.PreModelSwitchInput, bool) {
	next := c.resolve(name)
	usage := c.Context()
	return &wire.PreModelSwitchInput{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PermissionMode: c.mode,
		FromModel: c.model.ID, ToModel: next.ID, RequestedModel: name, Source: source,
		ContextTokens: int64(usage.System + usage.Tools + usage.Messages), PromptCacheWarm: c.lastUsage != nil, CacheTTL: "5m", Pricing: "catalog"}, next.ID != c.model.ID
}

// foldRequest makes one answer of those of the hooks for permission requests: a no
// wins. It is nil if none decides.
func (c *Conversation) foldRequest(q *wire.CanUseTool, answers []HookAnswer, out *outcome) (res *wire.PermissionResult) {
	for _, a := range answers {
		noted := note(wire.EventPermissionRequest, a)
		name := "PermissionRequest:" + q.ToolName
		var said *wire.PermissionResult
		switch {
		case a.Err != nil && a.Block:
			said = &wire.PermissionResult{Behavior: wire.BehaviorDeny, Message: fmt.Sprintf("a hook failed, and the call it guards was not made: %v", a.Err)}
		case a.Err != nil:
			out.before = append(out.before, c.hookFailed(name, a.Err))
		case a.Output != nil:
			if a.Output.SystemMessage != "" {
				out.before = append(out.before, c.hookSays(name, a.Output))
			}
			if o, ok := specific[*wire.PermissionRequestOutput](a); ok {
				said = o.Decision
			} else if a.Output.Decision == wire.DecisionBlock {
				said = &wire.PermissionResult{Behavior: wire.BehaviorDeny, Message: a.Output.Reason}
			}
			if a.Output.Continue != nil && !*a.Output.Continue {
				out.stop = true
			}
		}
		if said != nil {
			noted.Decision, noted.Reason, noted.Changed = string(said.Behavior), said.Message, said.UpdatedInput != nil
		}
		out.hooks = append(out.hooks, noted)
		if said == nil || said.Behavior == wire.BehaviorAllow && (interactive(q.ToolName) || res != nil) {
			continue // a hook does not answer what a person is asked
		}
		if res == nil || res.Behavior != wire.BehaviorDeny {
			res = said
		}
	}
	return res
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
	in := &wire.PostToolBatchInput{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: t.promptID, PermissionMode: c.mode}
	for _, call := range run.calls {
		if call.out == nil {
			continue
		}
		in.ToolCalls = append(in.ToolCalls, &wire.HookToolCall{ToolName: call.block.name, ToolInput: orEmpty(call.out.inputOf(call)), ToolUseID: call.block.id,
			ToolResponse: mustJSON(call.out.result.Content.String())})
	}
	return c.foldHooks("PostToolBatch", c.runHooks(t, in, "", session.NewID()))
}

// foldHooks tells what hooks say that decide nothing, and returns what they tell the
// model and whether one of them ends the turn. It is called by the owner of the
// conversation.
func (c *Conversation) foldHooks(name string, answers []HookAnswer) (more []string, stop bool) {
	for _, a := range answers {
		if a.Err != nil {
			c.rec.Emit(c.hookFailed(name, a.Err))
			continue
		}
		if a.Output == nil {
			continue
		}
		if a.Output.SystemMessage != "" {
			c.rec.Emit(c.hookSays(name, a.Output))
		}
		stop = stop || a.Output.Continue != nil && !*a.Output.Continue
		if a.Output.Decision == wire.DecisionBlock {
			more = append(more, "A hook of the user objects to what is above:\n"+a.Output.Reason)
		}
		if s := additionalContext(a.Output); s != "" {
			more = append(more, "Context from a hook of the user:\n"+s)
		}
	}
	return more, stop
}

// remarkHooks tells hooks of something that has happened because of a call. They can say
// something about it, and change nothing.
func (c *Conversation) remarkHooks(ctx context.Context, in wire.HookInput, subject string, out *outcome) {
	for _, a := range c.view.Load().host.Hooks(ctx, in, subject, session.NewID()) {
		switch {
		case a.Err != nil:
			out.before = append(out.before, c.hookFailed(string(in.Event()), a.Err))
		case a.Output == nil:
		default:
			if a.Output.SystemMessage != "" {
				out.before = append(out.before, c.hookSays(string(in.Event()), a.Output))
			}
			if s := additionalContext(a.Output); s != "" {
				out.context = append(out.context, "Context from a hook of the user:\n"+s)
			}
		}
	}
}

// instructionsInput is what hooks are told of a file of instructions that was read.
func (c *Conversation) instructionsInput(f *project.File, reason string) *wire.InstructionsLoadedInput {
	kind := map[string]string{project.User: "User", project.Local: "Local"}[f.Source]
	if kind == "" {
		kind = "Project"
	}
	if f.From != "" {
		reason = "include"
	}
	return &wire.InstructionsLoadedInput{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), FilePath: f.Path, MemoryType: kind, LoadReason: reason, ParentFilePath: f.From}
}

// SwitchRefused returns why hooks do not let the model be another one, or nil.
func SwitchRefused(answers []HookAnswer) error {
	for _, a := range answers {
		if a.Err != nil {
			if a.Block || a.Ask {
				return fmt.Errorf("a hook failed, and the model stays: %w", a.Err)
			}
			continue
		}
		if a.Output == nil {
			continue
		}
		if o, ok := specific[*wire.PreModelSwitchOutput](a); ok && (o.PermissionDecision == wire.BehaviorDeny || o.PermissionDecision == wire.BehaviorAsk) {
			return fmt.Errorf("a hook does not let the model change: %s", o.PermissionDecisionReason)
		}
		if a.Output.Decision == wire.DecisionBlock || a.Output.Continue != nil && !*a.Output.Continue {
			return fmt.Errorf("a hook does not let the model change: %s", a.Output.Reason+a.Output.StopReason)
		}
	}
	return nil
}

// PostSwitch is what hooks are told when the model has become another one.
func PostSwitch(in *wire.PreModelSwitchInput) *wire.PostModelSwitchInput {
	return &wire.PostModelSwitchInput{SessionID: in.SessionID, TranscriptPath: in.TranscriptPath, Cwd: in.Cwd, PermissionMode: in.PermissionMode, FromModel: in.FromModel, ToModel: in.ToModel,
		RequestedModel: in.RequestedModel, Source: in.Source, ContextTokens: in.ContextTokens, PromptCacheWarm: in.PromptCacheWarm, CacheTTL: in.CacheTTL, Pricing: in.Pricing}
}

// TellHooks tells what hooks said that decide nothing; the model hears it with the next
// prompt.
func (c *Conversation) TellHooks(name string, answers []HookAnswer) {
	more, _ := c.foldHooks(name, answers)
	c.fromHooks = append(c.fromHooks, more...)
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
		in := &wire.SetupInput{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), Trigger: c.cfg.Setup}
		more, _ := c.foldHooks("Setup:"+in.Trigger, c.runHooks(t, in, in.Trigger, session.NewID()))
		begun = append(begun, more...)
	}
	return append(begun, c.sessionHooks(t, source)...)
}

// sessionHooks runs the hooks for the start of a session, or for what is like one, and
// returns what they tell the model.
func (c *Conversation) sessionHooks(t *turn, source string) []string {
	in := &wire.SessionStartInput{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), Source: source, Model: c.model.ID}
	answers := c.runHooks(t, in, source, session.NewID())
	more, _ := c.foldHooks("SessionStart:"+source, answers)
	for _, a := range answers {
		o, ok := specific[*wire.SessionStartOutput](a)
		if !ok {
			continue
		}
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
	return more
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
	c.foldHooks("SessionEnd", c.view.Load().host.Hooks(ctx, c.endInput("other"), "other", session.NewID()))
}

func (c *Conversation) endInput(reason string) *wire.SessionEndInput {
	return &wire.SessionEndInput{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), Reason: reason}
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
	var mode wire.PermissionMode
	c.Do(func() { mode = c.mode })
	in := &wire.PermissionDeniedInput{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: t.promptID, PermissionMode: mode,
		ToolName: name, ToolInput: input, ToolUseID: call.block.id, Reason: out.result.Content.String(), MCPServer: call.server}
	for _, a := range c.view.Load().host.Hooks(ctx, in, name, call.block.id) {
		switch {
		case a.Err != nil:
			out.before = append(out.before, c.hookFailed("PermissionDenied:"+name, a.Err))
			continue
		case a.Output == nil:
			continue
		case a.Output.SystemMessage != "":
			out.before = append(out.before, c.hookSays("PermissionDenied:"+name, a.Output))
		}
		if o, ok := specific[*wire.PermissionDeniedOutput](a); ok && o.Retry {
			out.context = append(out.context, "A hook of the user says that the call which was not allowed may be tried again.")
		}
	}
}

// failureHooks tells hooks that the turn ends because the model did not answer.
func (c *Conversation) failureHooks(t *turn, code wire.AssistantError, details string) {
	in := &wire.StopFailureInput{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: t.promptID, PermissionMode: c.mode,
		Error: code, ErrorDetails: details, LastAssistantMessage: t.lastText}
	c.foldHooks("StopFailure", c.runHooks(t, in, string(code), session.NewID()))
}

// expansionHooks tells hooks that a command becomes a prompt. One may object.
func (c *Conversation) expansionHooks(t *turn, p *prompt, cmd *slashCommand) (more []string, blocked bool, reason string) {
	in := &wire.UserPromptExpansionInput{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: t.promptID, PermissionMode: c.mode,
		ExpansionType: "slash_command", CommandName: cmd.name, CommandArgs: cmd.args, Prompt: p.m.Message.Content.String()}
	if cmd.from != nil {
		in.ExpansionType = "mcp_prompt"
	}
	answers := c.runHooks(t, in, cmd.name, session.NewID())
	for _, a := range answers {
		if a.Err != nil && (a.Block || a.Ask) { // there is nobody to ask about a prompt
			return nil, true, fmt.Sprintf("a hook failed: %v", a.Err)
		}
		if a.Err == nil && a.Output != nil && (a.Output.Decision == wire.DecisionBlock || a.Output.Continue != nil && !*a.Output.Continue) {
			return nil, true, a.Output.Reason + a.Output.StopReason
		}
	}
	more, _ = c.foldHooks("UserPromptExpansion", answers)
	return more, false, ""
}

// postToolHooks runs the hooks after a call.
func (c *Conversation) postToolHooks(ctx context.Context, t *turn, call *toolCall, spec *tool.Spec, input json.RawMessage, took time.Duration, out *outcome) {
	var mode wire.PermissionMode
	c.Do(func() { mode = c.mode })
	var in wire.HookInput
	name := "PostToolUse:" + spec.Name
	if out.result.IsError {
		name = "PostToolUseFailure:" + spec.Name
		in = &wire.PostToolUseFailureInput{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: t.promptID, PermissionMode: mode,
			ToolName: spec.Name, ToolInput: input, ToolUseID: call.block.id, Error: out.result.Content.String(), DurationMS: took.Milliseconds(), MCPServer: call.server}
	} else {
		in = &wire.PostToolUseInput{SessionID: c.rec.ID(), TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: t.promptID, PermissionMode: mode,
			ToolName: spec.Name, ToolInput: input, ToolResponse: mustJSON(out.result.Structured), ToolUseID: call.block.id, DurationMS: took.Milliseconds(), MCPServer: call.server}
	}
	for _, a := range c.view.Load().host.Hooks(ctx, in, spec.Name, call.block.id) {
		if a.Err != nil {
			out.before = append(out.before, c.hookFailed(name, a.Err))
			continue
		}
		if a.Output == nil {
			continue
		}
		if a.Output.SystemMessage != "" {
			out.before = append(out.before, c.hookSays(name, a.Output))
		}
		if a.Output.Continue != nil && !*a.Output.Continue {
			out.stop = true
		}
		if a.Output.Decision == wire.DecisionBlock {
			out.context = append(out.context, "A hook of the user objects to the result above:\n"+a.Output.Reason)
		}
		if s := additionalContext(a.Output); s != "" {
			out.context = append(out.context, "Context from a hook of the user:\n"+s)
		}
		if o, ok := a.Output.HookSpecificOutput.(*wire.PostToolUseOutput); ok {
			updated := o.UpdatedToolOutput
			if updated == nil && call.server != nil {
				updated = o.UpdatedMCPToolOutput
			}
			if updated != nil {
				out.result = replaced(out.result, updated)
			}
		}
	}
}
