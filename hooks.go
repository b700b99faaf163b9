package parley

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/parley-go/parley/wire"
)

// A Hook is a function that the agent calls at a certain moment. Make one with
// [On]:
//
//	opts.Hooks = []parley.Hook{
//		parley.On("Bash", func(ctx context.Context, in *wire.PreToolUseInput) (*wire.HookOutput, error) {
//			if bytes.Contains(in.ToolInput, []byte("rm -rf")) {
//				return parley.HookDeny("nothing is removed here"), nil
//			}
//			return nil, nil
//		}),
//	}
//
// Hooks for one event run at once, each in its own goroutine; they may call
// methods of the [Client]. A hook that fails or panics fails closed: before a
// tool runs it denies the call, before a prompt is taken it blocks it. After the
// fact there is nothing to close; the agent is told of the failure.
type Hook struct {
	// Timeout is how long the agent waits for the hook. Zero means as long as
	// the agent likes, usually 60 seconds.
	Timeout time.Duration
	// FailOpen lets the agent go on as if there were no hook when it fails.
	FailOpen bool

	event   wire.HookEvent
	matcher string
	call    func(ctx context.Context, in wire.HookInput) (*wire.HookOutput, error)
}

// On returns a hook for the event that the function's input is for. matcher says
// for which tools, or other subjects of the event: a name, several as "Write|Edit",
// or a regular expression; empty means all. The function returns what the agent is
// to do, or nil for nothing.
func On[In wire.HookInput](matcher string, f func(ctx context.Context, in In) (*wire.HookOutput, error)) Hook {
	var in In
	return Hook{
		event:   in.Event(),
		matcher: matcher,
		call: func(ctx context.Context, in wire.HookInput) (*wire.HookOutput, error) {
			typed, ok := in.(In)
			if !ok {
				return nil, fmt.Errorf("the agent sent a %s input", in.Event())
			}
			return f(ctx, typed)
		},
	}
}

// OnEvent returns a hook for an event by name, for events that package wire has no
// type for.
func OnEvent(event wire.HookEvent, matcher string, f func(ctx context.Context, in wire.HookInput) (*wire.HookOutput, error)) Hook {
	return Hook{event: event, matcher: matcher, call: f}
}

func (h Hook) onFailure() string {
	switch {
	case h.FailOpen:
		return "continue"
	case guards(h.event):
		return "block"
	}
	return ""
}

// guards reports whether hooks of an event can keep something from happening.
func guards(event wire.HookEvent) bool {
	switch event {
	case wire.EventPreToolUse, wire.EventPermissionRequest, wire.EventUserPromptSubmit:
		return true
	}
	return false
}

// HookAllow lets a tool run without asking. It is an answer to PreToolUse.
func HookAllow() *wire.HookOutput { return preToolUse(wire.BehaviorAllow, "") }

// HookDeny does not let a tool run; the model is told the reason. It is an answer
// to PreToolUse.
func HookDeny(reason string) *wire.HookOutput { return preToolUse(wire.BehaviorDeny, reason) }

// HookAsk has the user asked about a tool call; the reason is shown. It is an
// answer to PreToolUse.
func HookAsk(reason string) *wire.HookOutput { return preToolUse(wire.BehaviorAsk, reason) }

// HookDefer ends the turn before a tool call; its result has the outcome
// [wire.OutcomeDeferred]. It is an answer to PreToolUse.
func HookDefer() *wire.HookOutput { return preToolUse(wire.BehaviorDefer, "") }

func preToolUse(behavior wire.PermissionBehavior, reason string) *wire.HookOutput {
	return &wire.HookOutput{HookSpecificOutput: &wire.PreToolUseOutput{
		PermissionDecision:       behavior,
		PermissionDecisionReason: reason,
	}}
}

// HookInput changes what a tool is called with; input is encoded as JSON. It is an
// answer to PreToolUse.
func HookInput(input any) *wire.HookOutput {
	raw, err := json.Marshal(input)
	if err != nil {
		return HookDeny(fmt.Sprintf("the changed input cannot be encoded: %v", err))
	}
	return &wire.HookOutput{HookSpecificOutput: &wire.PreToolUseOutput{UpdatedInput: raw}}
}

// HookContext tells the model something. It is an answer to any event that takes
// context, such as UserPromptSubmit, SessionStart or PostToolUse.
func HookContext(text string) *wire.HookOutput {
	raw, _ := json.Marshal(map[string]string{"additionalContext": text})
	return &wire.HookOutput{HookSpecificOutput: &wire.UnknownOutput{Raw: raw}}
}

// HookBlock blocks what is about to happen and tells why: a prompt is not taken
// (UserPromptSubmit), a turn does not end yet (Stop), a tool's result is called
// into question (PostToolUse).
func HookBlock(reason string) *wire.HookOutput {
	return &wire.HookOutput{Decision: wire.DecisionBlock, Reason: reason}
}

// HookStop ends the turn; its result has the outcome [wire.OutcomeStopped].
func HookStop(reason string) *wire.HookOutput {
	no := false
	return &wire.HookOutput{Continue: &no, StopReason: reason}
}

// HookMessage shows a message to the user.
func HookMessage(text string) *wire.HookOutput { return &wire.HookOutput{SystemMessage: text} }

// hookCallback answers the call of a hook.
func (s *session) hookCallback(ctx context.Context, req *wire.HookCallback) (any, error) {
	hook, ok := s.cfg.hooks[req.CallbackID]
	if !ok && req.CallbackID == "" {
		// Some agents call hooks by their event's name.
		for _, h := range s.cfg.hooks {
			if strings.EqualFold(string(h.event), req.HookName) {
				hook, ok = h, true
				break
			}
		}
	}
	if !ok {
		if req.CallbackID == "" {
			return nil, fmt.Errorf("no hook named %q", req.HookName)
		}
		return nil, fmt.Errorf("no hook callback with id %q", req.CallbackID)
	}
	if req.Input == nil {
		return failClosed(hook, &CallbackError{Callback: "hook " + string(hook.event), Err: fmt.Errorf("the agent sent no input")})
	}
	if hook.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, hook.Timeout)
		defer cancel()
	}
	out, err := guard(s, "hook "+string(hook.event), func() (*wire.HookOutput, error) { return hook.call(ctx, req.Input) })
	if err != nil {
		return failClosed(hook, err)
	}
	if out == nil {
		return &wire.HookOutput{}, nil
	}
	if u, ok := out.HookSpecificOutput.(*wire.UnknownOutput); ok && u.Name == "" {
		// Made by HookContext, which does not know the event.
		named, err := nameOutput(u.Raw, hook.event)
		if err != nil {
			return failClosed(hook, err)
		}
		answer := *out
		answer.HookSpecificOutput = named
		out = &answer
	}
	return out, nil
}

func nameOutput(raw json.RawMessage, event wire.HookEvent) (*wire.UnknownOutput, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	fields["hookEventName"], _ = json.Marshal(event)
	raw, err := json.Marshal(fields)
	return &wire.UnknownOutput{Name: event, Raw: raw}, err
}

// failClosed is the answer of a hook that failed.
func failClosed(h Hook, err error) (any, error) {
	if h.FailOpen {
		return nil, err
	}
	reason := fmt.Sprintf("A hook of the host failed: %v", err)
	switch h.event {
	case wire.EventPreToolUse:
		return HookDeny(reason), nil
	case wire.EventPermissionRequest:
		return &wire.HookOutput{HookSpecificOutput: &wire.PermissionRequestOutput{Decision: Deny(reason)}}, nil
	case wire.EventUserPromptSubmit:
		return HookBlock(reason), nil
	}
	return nil, err
}
