package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

func (c *Conversation) logPath() string {
	if c.cfg.Log == nil {
		return ""
	}
	return c.cfg.Log.Path()
}

// hookSays tells the user what a hook says.
func (c *Conversation) hookSays(name string, out *wire.HookOutput) wire.Message {
	return &wire.Informational{Content: name + " says: " + out.SystemMessage, Level: "notice", UUID: NewID(), SessionID: c.id}
}

func (c *Conversation) hookFailed(name string, err error) wire.Message {
	return &wire.Informational{Content: fmt.Sprintf("%s hook failed: %v", name, err), Level: "warning", Tag: "hook_callback_failed", UUID: NewID(), SessionID: c.id}
}

// promptHooks runs the hooks for a prompt. It is called by the owner of the
// conversation, which serves others meanwhile.
func (c *Conversation) promptHooks(t *turn, p *prompt) (more []string, blocked bool, reason string) {
	if p.origin != nil {
		return nil, false, "" // nobody wrote it
	}
	text := p.m.Message.Content.String()
	in := &wire.UserPromptSubmitInput{SessionID: c.id, TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: t.promptID, PermissionMode: c.mode, Prompt: text}
	answers := c.runHooks(t, in, "", NewID())
	if t.ctx.Err() != nil {
		return nil, false, "" // the turn is over
	}
	for _, a := range answers {
		if a.Err != nil {
			if a.Block {
				return nil, true, fmt.Sprintf("a hook failed: %v", a.Err)
			}
			c.emit(c.hookFailed("UserPromptSubmit", a.Err))
			continue
		}
		if a.Output == nil {
			continue
		}
		if a.Output.SystemMessage != "" {
			c.emit(c.hookSays("UserPromptSubmit", a.Output))
		}
		if a.Output.Decision == wire.DecisionBlock || a.Output.Continue != nil && !*a.Output.Continue {
			reason := a.Output.Reason
			if reason == "" {
				reason = a.Output.StopReason
			}
			return nil, true, reason
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
	go func() { answers <- c.host.Hooks(t.ctx, in, subject, id) }()
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

// stopHooks asks whether the turn may end. more is why not.
func (c *Conversation) stopHooks(t *turn) (more string, stopped bool) {
	in := &wire.StopInput{SessionID: c.id, TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: t.promptID, PermissionMode: c.mode,
		StopHookActive: t.stops > 0, LastAssistantMessage: t.lastText}
	for _, a := range c.runHooks(t, in, "", NewID()) {
		switch {
		case a.Err != nil:
			c.emit(c.hookFailed("Stop", a.Err))
		case a.Output == nil:
		case a.Output.Continue != nil && !*a.Output.Continue:
			return "", true
		case a.Output.Decision == wire.DecisionBlock:
			more += a.Output.Reason
		}
	}
	return more, false
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
}

// preToolHooks runs the hooks before a call. A denial wins over a question, a
// question over a permission. They may change the input.
func (c *Conversation) preToolHooks(ctx context.Context, t *turn, call *toolCall, spec *tool.Spec, input *json.RawMessage, out *outcome) hookVerdict {
	var v hookVerdict
	var mode wire.PermissionMode
	c.Do(func() { mode = c.mode })
	in := &wire.PreToolUseInput{SessionID: c.id, TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: t.promptID, PermissionMode: mode,
		ToolName: spec.Name, ToolInput: *input, ToolUseID: call.block.id, MCPServer: call.server}
	for _, a := range c.host.Hooks(ctx, in, spec.Name, call.block.id) {
		name := "PreToolUse:" + spec.Name
		if a.Err != nil {
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
			v.ask, v.reason = true, o.PermissionDecisionReason
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

// postToolHooks runs the hooks after a call.
func (c *Conversation) postToolHooks(ctx context.Context, t *turn, call *toolCall, spec *tool.Spec, input json.RawMessage, took time.Duration, out *outcome) {
	var mode wire.PermissionMode
	c.Do(func() { mode = c.mode })
	var in wire.HookInput
	name := "PostToolUse:" + spec.Name
	if out.result.IsError {
		name = "PostToolUseFailure:" + spec.Name
		in = &wire.PostToolUseFailureInput{SessionID: c.id, TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: t.promptID, PermissionMode: mode,
			ToolName: spec.Name, ToolInput: input, ToolUseID: call.block.id, Error: out.result.Content.String(), DurationMS: took.Milliseconds(), MCPServer: call.server}
	} else {
		in = &wire.PostToolUseInput{SessionID: c.id, TranscriptPath: c.logPath(), Cwd: c.env.Cwd(), PromptID: t.promptID, PermissionMode: mode,
			ToolName: spec.Name, ToolInput: input, ToolResponse: mustJSON(out.result.Structured), ToolUseID: call.block.id, DurationMS: took.Milliseconds(), MCPServer: call.server}
	}
	for _, a := range c.host.Hooks(ctx, in, spec.Name, call.block.id) {
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
		if o, ok := a.Output.HookSpecificOutput.(*wire.PostToolUseOutput); ok && o.UpdatedToolOutput != nil {
			replaced := *out.result
			replaced.Structured = o.UpdatedToolOutput
			var text string
			if json.Unmarshal(o.UpdatedToolOutput, &text) != nil {
				text = string(o.UpdatedToolOutput)
			}
			replaced.Content = wire.Text(text)
			out.result = &replaced
		}
	}
}
