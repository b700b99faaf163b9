package hook

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/wire"
)

// An Answer is the answer of one hook.
type Answer struct {
	Name   string           // of the hook: a callback's id or a command
	Source string           // "host", or the file and line of the hook
	Output *wire.HookOutput // nil if there is none
	Err    error            // why the hook failed
	Block  bool             // it failed, and what it guards must not happen
	Ask    bool             // it failed, and what it guards needs permission
	Late   bool             // it failed because of its timeout
	// Withdrawn means that the hook has no answer because the turn was interrupted. This is
	// not reported as a failure, but what the hook guards does not happen.
	Withdrawn bool
	Exited    bool // it blocks by its exit status, so the reason is no answer of its own
}

// noReason is the reason of a hook that blocks without one.
const noReason = "the hook gave no reason"

type sentKey struct{}

// WithSent returns a context with which hooks are called. The function is called once all of them have received their
// input, before they have answered.
func WithSent(ctx context.Context, sent func()) context.Context {
	return context.WithValue(ctx, sentKey{}, sent)
}

// Sent returns the function of [WithSent], or one that does nothing.
func Sent(ctx context.Context) func() {
	if sent, ok := ctx.Value(sentKey{}).(func()); ok {
		return sent
	}
	return func() {}
}

// withSubject are the events whose hooks are reported with their subject.
var withSubject = map[wire.HookEvent]bool{
	wire.EventPreToolUse: true, wire.EventPostToolUse: true, wire.EventPostToolUseFailure: true, wire.EventPermissionRequest: true, wire.EventPermissionDenied: true,
	wire.EventSetup: true, wire.EventSessionStart: true,
}

// withoutMode are the events whose inputs have no permission mode, and withoutPrompt those
// that do not belong to a prompt.
var (
	withoutMode = map[wire.HookEvent]bool{wire.EventPreCompact: true, wire.EventPostCompact: true, wire.EventPreModelSwitch: true, wire.EventPostModelSwitch: true, wire.EventTaskCreated: true, wire.EventTaskCompleted: true, wire.EventWorktreeCreate: true, wire.EventWorktreeRemove: true, wire.EventMessageDisplay: true, wire.EventCwdChanged: true, wire.EventSubagentStart: true, wire.EventElicitation: true, wire.EventElicitationResult: true,
		wire.EventFileChanged: true, wire.EventSessionStart: true, wire.EventSessionEnd: true, wire.EventSetup: true, wire.EventInstructionsLoaded: true, wire.EventDirectoryAdded: true, wire.EventConfigChange: true}
	withoutPrompt = map[wire.HookEvent]bool{wire.EventElicitation: true, wire.EventElicitationResult: true,
		wire.EventFileChanged: true, wire.EventSessionStart: true, wire.EventSessionEnd: true, wire.EventSetup: true, wire.EventInstructionsLoaded: true, wire.EventDirectoryAdded: true, wire.EventConfigChange: true}
)

// withEffort are the events whose inputs have the effort of the model.
var withEffort = map[wire.HookEvent]bool{wire.EventPreToolUse: true, wire.EventPostToolUse: true, wire.EventPostToolUseFailure: true, wire.EventPostToolBatch: true,
	wire.EventPermissionRequest: true, wire.EventPermissionDenied: true, wire.EventStop: true, wire.EventSubagentStop: true}

// Fill sets the missing common members of an input, as far as its event has them.
func Fill(in wire.HookInput, base wire.HookBase) {
	if withoutMode[in.Event()] {
		base.PermissionMode = ""
	}
	if withoutPrompt[in.Event()] {
		base.PromptID = ""
	}
	b := in.Base()
	if withEffort[in.Event()] {
		set(&b.Effort, base.Effort)
	}
	set(&b.SessionID, base.SessionID)
	set(&b.TranscriptPath, base.TranscriptPath)
	set(&b.Cwd, base.Cwd)
	set(&b.PromptID, base.PromptID)
	set(&b.PermissionMode, base.PermissionMode)
	set(&b.AgentID, base.AgentID)
	set(&b.AgentType, base.AgentType)
}

func set[T comparable](dst *T, v T) {
	var zero T
	if *dst == zero {
		*dst = v
	}
}

// A Verdict is the merged result of the hooks for one event.
type Verdict struct {
	Answers []Answer
	Notes   []wire.Message // for the host: failures, and messages of hooks to the user
	Context []string       // texts that hooks add for the model
	// Objections are the reasons of hooks that answered "block".
	Objections []string
	Stopped    bool // a hook stopped the turn
	StopReason string
	// Failed is the error of the first failed hook whose event must not happen without it:
	// it blocks, or requires permission.
	Failed error

	// Behavior is the decision of hooks about a call or a change: deny beats defer, defer
	// beats ask, and ask beats allow. It is empty if none decides.
	Behavior wire.PermissionBehavior
	Reason   string
	Source   string                 // of the hook that decides
	Exited   bool                   // it decides by its exit status
	Result   *wire.PermissionResult // the decision of hooks for permission requests
	Input    json.RawMessage        // replaces a call's input; nil keeps it
	Noted    []policy.HookAnswer    // for the record of the decision

	ofInput wire.PermissionBehavior // decision of the hook that set Input
}

var rank = map[wire.PermissionBehavior]int{wire.BehaviorAllow: 1, wire.BehaviorAsk: 2, wire.BehaviorDefer: 3, wire.BehaviorDeny: 4}

// Merge merges the answers of the hooks for an event.
func Merge(in wire.HookInput, subject string, answers []Answer) *Verdict {
	v := &Verdict{Answers: answers}
	name := string(in.Event())
	if withSubject[in.Event()] {
		name += ":" + subject
	}
	for _, a := range answers {
		v.decide(in.Event(), a)
		if a.Err != nil {
			if v.Failed == nil && (a.Block || a.Ask) {
				v.Failed = a.Err
			}
			// If it decides, its decision reports the timeout or the failure.
			if !a.Withdrawn && !(in.Event() == wire.EventPreToolUse && a.Late || in.Event() == wire.EventPermissionRequest && a.Block) {
				v.Notes = append(v.Notes, &wire.Informational{Content: fmt.Sprintf("%s hook failed: %v", name, a.Err), Level: "warning", Tag: "hook_callback_failed"})
			}
			continue
		}
		out := a.Output
		if out == nil {
			continue
		}
		if out.SystemMessage != "" {
			v.Notes = append(v.Notes, &wire.Informational{Content: name + " says: " + out.SystemMessage, Level: "notice"})
		}
		if out.Continue != nil && !*out.Continue && !v.Stopped {
			v.Stopped, v.StopReason = true, out.StopReason
		}
		if out.Decision == wire.DecisionBlock {
			v.Objections = append(v.Objections, cmp.Or(out.Reason, noReason))
		}
		if text := out.Context(); text != "" {
			v.Context = append(v.Context, text)
		}
	}
	if v.Behavior == wire.BehaviorAllow && v.Input != nil && v.ofInput != wire.BehaviorAllow {
		v.Behavior, v.Reason, v.Source, v.Result = "", "", "", nil // it was made for another input
	}
	return v
}

// decide merges the decision of an answer into the verdict.
func (v *Verdict) decide(event wire.HookEvent, a Answer) {
	noted := policy.HookAnswer{Event: string(event), Name: a.Name}
	if a.Source != "" && a.Source != "host" {
		noted.Name = a.Source + " " + a.Name
	}
	if a.Err != nil {
		noted.Error = a.Err.Error()
	}
	var input json.RawMessage
	behavior, reason, result := decision(event, a)
	if a.Output != nil {
		if o, ok := a.Output.HookSpecificOutput.(*wire.PreToolUseOutput); ok && o.UpdatedInput != nil {
			input, v.Input, v.ofInput = o.UpdatedInput, o.UpdatedInput, behavior
		}
		if result != nil {
			input = result.UpdatedInput
		}
	}
	noted.Decision, noted.Changed = string(behavior), input != nil
	if a.Err == nil {
		noted.Reason = reason
	}
	v.Noted = append(v.Noted, noted)
	// Of several denials of a call, the last one gives the reason, as in the official command.
	if rank[behavior] > rank[v.Behavior] || event == wire.EventPreToolUse && behavior == wire.BehaviorDeny {
		v.Behavior, v.Reason, v.Source, v.Exited = behavior, reason, a.Source, a.Exited
		if v.Result = result; result == nil {
			v.Result = &wire.PermissionResult{Behavior: behavior, Message: reason}
		}
	}
}

// decision returns the decision of one hook, or "" if it makes none.
func decision(event wire.HookEvent, a Answer) (behavior wire.PermissionBehavior, reason string, result *wire.PermissionResult) {
	switch {
	case a.Err != nil && a.Block:
		return wire.BehaviorDeny, fmt.Sprintf("a hook failed, and the call it guards was not made: %v", a.Err), nil
	case a.Err != nil && a.Ask:
		return wire.BehaviorAsk, fmt.Sprintf("a hook failed: %v", a.Err), nil
	case a.Err != nil || a.Output == nil:
		return "", "", nil
	}
	switch o := a.Output.HookSpecificOutput.(type) {
	case *wire.PreToolUseOutput:
		behavior, reason = o.PermissionDecision, o.PermissionDecisionReason
	case *wire.PreModelSwitchOutput:
		behavior, reason = o.PermissionDecision, o.PermissionDecisionReason
	case *wire.PermissionRequestOutput:
		if o.Decision != nil {
			return o.Decision.Behavior, o.Decision.Message, o.Decision
		}
	}
	switch {
	case a.Output.Decision == wire.DecisionBlock && behavior != wire.BehaviorDeny:
		return wire.BehaviorDeny, cmp.Or(a.Output.Reason, noReason), nil
	case a.Output.Decision == wire.DecisionApprove && behavior == "" && event == wire.EventPreToolUse:
		return wire.BehaviorAllow, a.Output.Reason, nil
	}
	if behavior == wire.BehaviorDeny {
		reason = cmp.Or(reason, noReason)
	}
	return behavior, reason, nil
}

// Blocked reports whether the hooks block the event, and the reason. It is for events for
// which no permission can be requested.
func (v *Verdict) Blocked() (reason string, blocked bool) {
	switch {
	case v.Failed != nil:
		return fmt.Sprintf("a hook failed: %v", v.Failed), true
	case len(v.Objections) > 0:
		return v.Objections[0], true
	}
	return v.StopReason, v.Stopped
}

// Plain returns a reason without the command whose exit status blocks.
func (v *Verdict) Plain(reason string) string {
	for _, a := range v.Answers {
		if a.Exited && a.Output.Reason == reason {
			return strings.TrimSpace(strings.TrimPrefix(reason, "["+a.Name+"]: "))
		}
	}
	return reason
}

// OnlyStopped reports whether a hook stopped without any objection or failure.
func (v *Verdict) OnlyStopped() bool { return v.Stopped && v.Failed == nil && len(v.Objections) == 0 }

// Above is the argument of [Verdict.ForModel] for hooks that run after an event.
const Above = "what is above"

// ForModel returns the texts for the model: objections to the named thing, and texts that
// hooks add.
func (v *Verdict) ForModel(about string) []string {
	var texts []string
	for _, reason := range v.Objections {
		texts = append(texts, "A hook of the user objects to "+about+":\n"+reason)
	}
	return append(texts, v.Added()...)
}

// Added returns the texts that hooks add for the model, each marked as such.
func (v *Verdict) Added() []string {
	var texts []string
	for _, text := range v.Context {
		texts = append(texts, "Context from a hook of the user:\n"+text)
	}
	return texts
}

// Halt returns the text for the model that a hook stopped the turn; none if no hook did.
func (v *Verdict) Halt() []string {
	if !v.Stopped {
		return nil
	}
	return []string{strings.TrimSuffix("A hook of the user stopped the turn here: "+v.StopReason, ": ")}
}

// Outputs iterates over the outputs of one type.
func Outputs[T wire.HookSpecificOutput](v *Verdict) iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, a := range v.Answers {
			if a.Err != nil || a.Output == nil {
				continue
			}
			if o, ok := a.Output.HookSpecificOutput.(T); ok && !yield(o) {
				return
			}
		}
	}
}
