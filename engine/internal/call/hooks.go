package call

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// Hooks runs the hooks for an event and merges their answers. If id is empty, a new one is used.
func (r *Runner) Hooks(ctx context.Context, promptID string, in wire.HookInput, subject, id string) *hook.Verdict {
	if !r.HasHooks(in.Event()) {
		hook.Sent(ctx)()
		return &hook.Verdict{}
	}
	if id == "" {
		id = session.NewID()
	}
	v := r.View()
	hook.Fill(in, wire.HookBase{SessionID: r.Rec.ID(), TranscriptPath: r.Top.Path(), Cwd: r.Env.Cwd(), PromptID: promptID, PermissionMode: v.Mode, Effort: r.Effort.Load()})
	return hook.Merge(in, subject, v.Host.Hooks(ctx, in, subject, id))
}

// HasHooks reports whether an event may have hooks. It is false only if the host knows that there are none.
func (r *Runner) HasHooks(event wire.HookEvent) bool {
	host, ok := r.View().Host.(interface{ HasHooks(wire.HookEvent) bool })
	return !ok || host.HasHooks(event)
}

// ownHooks runs hooks about the call.
func (s *run) ownHooks(in wire.HookInput) *hook.Verdict {
	return s.Hooks(s.ctx, s.PromptID, in, s.spec.Name, s.ID)
}

// callEventHooks runs hooks for an event that a call has caused. They can add texts, but change nothing.
func (s *run) callEventHooks(promptID string, in wire.HookInput, subject string) {
	v := s.Hooks(s.ctx, promptID, in, subject, "")
	s.out.Before = append(s.out.Before, v.Notes...)
	s.out.Context = append(s.out.Context, v.Added()...)
}

// callGuardHooks runs hooks for an effect that the call is about to have. It returns the reason if they block it.
func (s *run) callGuardHooks(in wire.HookInput) (reason string, blocked bool) {
	v := s.Hooks(s.ctx, s.PromptID, in, "", "")
	s.out.Before = append(s.out.Before, v.Notes...)
	s.out.Context = append(s.out.Context, v.Added()...)
	s.out.Stop = s.out.Stop || v.Stopped
	return v.Blocked()
}

// callHooks is the stage of PreToolUse hooks. They may change the input, or deny or defer the call.
func (s *run) callHooks() bool {
	if s.Top.Refresh != nil {
		s.Top.Refresh(s.ctx)
	}
	ctx := s.ctx
	if s.order.begin != nil { // hosts receive the calls of an answer in order, also those that run concurrently
		for _, other := range s.order.earlier {
			select {
			case <-other.order.begun:
			case <-s.ctx.Done():
			}
		}
		ctx = hook.WithSent(ctx, s.order.begin)
	}
	s.hooks = s.Hooks(ctx, s.PromptID, &wire.PreToolUseInput{ToolName: s.spec.Name, ToolInput: s.input, ToolUseID: s.ID, MCPServer: s.server()}, s.spec.Name, s.ID)
	if s.order.begin != nil {
		s.order.begin()
	}
	s.out.add(s.hooks)
	if s.ctx.Err() != nil { // the hooks were interrupted
		return s.endCall(Rejected(s.Call, s.out.Input, StoppedBefore))
	}
	switch s.hooks.Behavior {
	case wire.BehaviorDeny:
		s.out.Denied = true
		s.out.Result = tool.Failed(deniedByHook(s.spec.Name, s.hooks))
		s.recordDecision(policy.Decision{}, "hook", false)
		s.out.Meta = s.rejected("permission-rule", "hook", "hook")
		return true
	case wire.BehaviorDefer:
		s.out.Deferred = true
		s.out.Result = tool.Failed(errors.New("The call was deferred."))
		s.recordDecision(policy.Decision{}, "hook", false)
		return true
	}
	input := s.input
	if s.hooks.Input != nil {
		input = s.hooks.Input
	}
	err := s.prepare(input)
	if err != nil && s.hooks.Input != nil {
		s.out.Denied = true
		s.out.Meta = s.rejected("permission-rule", "hook", "hook")
		err = fmt.Errorf("A PreToolUse hook replaced the input of the call. %w", err)
	}
	return err != nil && s.misused(err)
}

// deniedByHook returns the error of a call that a hook denies. It is only the reason, except for Bash and
// StructuredOutput, as with the official command.
func deniedByHook(name string, v *hook.Verdict) error {
	if v.Failed == nil && !v.Exited && name != "Bash" && name != "StructuredOutput" {
		return errors.New(v.Reason)
	}
	return fmt.Errorf("PreToolUse:%s hook error: %s", name, v.Reason)
}

// An answer is the host's response to a permission request.
type answer struct {
	res *wire.PermissionResult
	err error
}

// requestPermission runs the PermissionRequest hooks and asks the host, concurrently. A denial by either takes effect
// at once; a permission of the host takes effect when no hook has denied. by names who answered; the result is nil if
// nobody did.
func (s *run) requestPermission(q *wire.CanUseTool) (res *wire.PermissionResult, by string, err error) {
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(errors.New("the question was answered elsewhere"))
	mode := s.mode // an answer may change it while hooks run
	var asked chan answer
	questioned := make(chan struct{}) // closed once the request is sent to the host
	sent := sync.OnceFunc(func() { close(questioned) })
	if host := s.View().Host; !s.NoPrompts && host.CanAsk() {
		s.SetState("requires_action")
		defer s.SetState("running")
		asked = make(chan answer, 1)
		go s.notifyHooks(ctx, q, mode)
		go func() {
			defer sent()
			r, err := host.Ask(ctx, q, sent)
			asked <- answer{r, err}
		}()
	} else {
		sent()
	}
	hooked := make(chan *hook.Verdict, 1)
	go func() {
		<-questioned // the request to the host goes first
		in := &wire.PermissionRequestInput{ToolName: q.ToolName, ToolInput: q.Input, PermissionSuggestions: q.PermissionSuggestions, MCPServer: s.server()}
		in.PermissionMode = mode
		hooked <- s.Hooks(ctx, s.PromptID, in, q.ToolName, q.ToolUseID)
	}()
	var host *answer
	for {
		select {
		case v := <-hooked:
			hooked = nil
			if ctx.Err() == nil {
				s.out.add(v)
				// A hook does not answer a question that is meant for a person.
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
				continue // a hook may still deny
			}
		}
		if host != nil {
			return host.res, "host", host.err
		}
		return nil, "nobody", nil
	}
}

// notifyHooks runs the hooks for the notification that a permission request is open.
func (s *run) notifyHooks(ctx context.Context, q *wire.CanUseTool, mode wire.PermissionMode) {
	in := &wire.NotificationInput{Message: "The agent needs permission to use " + q.ToolName, Title: "Permission needed", NotificationType: "permission_prompt"}
	in.PermissionMode = mode
	s.AddNotes(s.Hooks(context.WithoutCancel(ctx), s.PromptID, in, in.NotificationType, ""))
}

// callDeniedHooks runs the hooks for a call that was denied after a model judged it, in mode auto; the official command
// runs them for no other denial. A hook may let the model retry it.
func (s *run) callDeniedHooks() {
	v := s.ownHooks(&wire.PermissionDeniedInput{ToolName: s.spec.Name, ToolInput: s.input, ToolUseID: s.ID, Reason: s.out.Result.Content.String(), MCPServer: s.server()})
	s.out.Before = append(s.out.Before, v.Notes...)
	for o := range hook.Outputs[*wire.PermissionDeniedOutput](v) {
		if o.Retry {
			s.out.Context = append(s.out.Context, "A hook of the user says that the call which was not allowed may be tried again.")
		}
	}
}

// callResultHooks runs the hooks after a call. They may replace its result.
func (s *run) callResultHooks() {
	out, took := s.out, s.Now().Sub(s.began).Milliseconds()
	var in wire.HookInput
	if out.Result.IsError {
		in = &wire.PostToolUseFailureInput{ToolName: s.spec.Name, ToolInput: s.input, ToolUseID: s.ID, Error: out.Result.Content.String(), DurationMS: &took, MCPServer: s.server()}
	} else {
		in = &wire.PostToolUseInput{ToolName: s.spec.Name, ToolInput: s.input, ToolResponse: recorder.JSON(out.Result.Structured), ToolUseID: s.ID, DurationMS: &took, MCPServer: s.server()}
	}
	v := s.ownHooks(in)
	out.After = append(out.After, v.Notes...)
	out.Stop = out.Stop || v.Stopped
	out.Context = append(append(out.Context, v.ForModel("the result above")...), v.Halt()...)
	for o := range hook.Outputs[*wire.PostToolUseOutput](v) {
		updated := o.UpdatedToolOutput
		if updated == nil && s.server() != nil {
			updated = o.UpdatedMCPToolOutput
		}
		if updated != nil {
			out.Result = replaced(out.Result, updated)
		}
	}
}

// replaced returns a result with the replacement of a hook: text, content blocks as in MCP results, or any other
// value.
func replaced(was *tool.Result, updated json.RawMessage) *tool.Result {
	r := *was
	r.Structured = updated
	var text string
	var blocks []struct{ Type, Text string }
	var command struct{ Stdout, Stderr *string }
	switch {
	case json.Unmarshal(updated, &text) == nil:
	case json.Unmarshal(updated, &command) == nil && command.Stdout != nil: // in the form of Bash
		text = *command.Stdout
		if command.Stderr != nil && *command.Stderr != "" {
			text = strings.TrimPrefix(text+"\n"+*command.Stderr, "\n")
		}
	case json.Unmarshal(updated, &blocks) == nil && !slices.ContainsFunc(blocks, func(b struct{ Type, Text string }) bool { return b.Type != "text" }):
		r.Content = wire.Blocks()
		for _, b := range blocks {
			r.Content.Blocks = append(r.Content.Blocks, &wire.TextBlock{Text: b.Text})
		}
		return &r
	default:
		text = string(updated)
	}
	r.Content = wire.Text(text)
	return &r
}

// InstructionsLoaded returns the input of hooks for a file of instructions that was read.
func InstructionsLoaded(f *project.File, reason string) *wire.InstructionsLoadedInput {
	kind := map[string]string{project.User: "User", project.Local: "Local"}[f.Source]
	if kind == "" {
		kind = "Project"
	}
	if f.From != "" {
		reason = "include"
	}
	return &wire.InstructionsLoadedInput{FilePath: f.Path, MemoryType: kind, LoadReason: reason, ParentFilePath: f.From}
}
