package parley

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/wire"
)

// A Hook is a function that the agent calls on a certain event. Make one with [On]:
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
// Hooks for one event run concurrently, each in its own goroutine, and may call methods of the [Client]. A
// hook that fails or panics fails closed: before a tool runs it denies the call, and before a prompt is
// accepted it blocks the prompt. Afterwards there is nothing to deny; the agent receives the error.
type Hook struct {
	// Timeout is how long the agent waits for the hook. Zero means the agent's default, usually 60
	// seconds.
	Timeout time.Duration
	// FailOpen makes the agent continue as if there were no hook when it fails.
	FailOpen bool

	event   wire.HookEvent
	matcher string
	call    func(ctx context.Context, in wire.HookInput) (*wire.HookOutput, error)
}

// On returns a hook for the event that the function's input type belongs to. matcher selects the tools, or
// other subjects of the event: a name, several names as "Write|Edit", or a regular expression; empty means
// all. The function returns the output for the agent, or nil for none. Events without their own type need
// [OnEvent].
func On[In wire.HookInput](matcher string, f func(ctx context.Context, in In) (*wire.HookOutput, error)) Hook {
	var in In
	if reflect.TypeFor[In]().Kind() != reflect.Pointer || reflect.TypeFor[In]() == reflect.TypeFor[*wire.UnknownInput]() {
		return Hook{} // the event is unknown
	}
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

// checkMatcher returns an error if the matcher of a hook is invalid. Agents match in Go or in JavaScript;
// a matcher that only one of them accepts, or that they interpret differently, could keep the hook from
// being called.
func checkMatcher(matcher string) error {
	if matcher == "" || matcher == "*" {
		return nil
	}
	if only := goOnly().FindString(matcher); only != "" {
		return fmt.Errorf("%s is known to Go only", only)
	}
	// JavaScript has these, and an agent in Go calls a hook for everything if it cannot parse the matcher.
	common := jsOnly().ReplaceAllStringFunc(matcher, func(s string) string {
		if s[0] == '(' {
			return "(?:"
		}
		return ""
	})
	_, err := regexp.Compile(common)
	return err
}

var (
	goOnly = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\(\?(P[<=>]|[imsU-]+[:)])|\\[AzQECpP]|\[\[:`)
	})
	nameList  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[\w ,|-]+$`) })
	separator = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(` *[,|] *`) })

	jsOnly = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\(\?<?[=!]|\\[1-9]`) })
)

// OnEvent returns a hook for an event by name, for events that have no type in package wire.
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

// guards reports whether hooks of an event can prevent something.
func guards(event wire.HookEvent) bool {
	switch event {
	case wire.EventPreToolUse, wire.EventPermissionRequest, wire.EventUserPromptSubmit, wire.EventPreModelSwitch:
		return true
	}
	return false
}

// HookAllow allows a tool to run without asking for permission. It is a response to PreToolUse.
func HookAllow() *wire.HookOutput { return preToolUse(wire.BehaviorAllow, "") }

// HookDeny denies a tool call; the model receives the reason. It is a response to PreToolUse.
func HookDeny(reason string) *wire.HookOutput { return preToolUse(wire.BehaviorDeny, reason) }

// HookAsk asks the user for permission to run a tool, and shows the reason. It is a response to
// PreToolUse.
func HookAsk(reason string) *wire.HookOutput { return preToolUse(wire.BehaviorAsk, reason) }

// HookDefer ends the turn before a tool call; its result has the outcome [wire.OutcomeDeferred]. It is a
// response to PreToolUse.
func HookDefer() *wire.HookOutput { return preToolUse(wire.BehaviorDefer, "") }

func preToolUse(behavior wire.PermissionBehavior, reason string) *wire.HookOutput {
	return &wire.HookOutput{HookSpecificOutput: &wire.PreToolUseOutput{
		PermissionDecision:       behavior,
		PermissionDecisionReason: reason,
	}}
}

// HookInput changes the input of a tool; input is encoded as JSON. It is a response to PreToolUse.
func HookInput(input any) *wire.HookOutput {
	raw, err := json.Marshal(input)
	if err != nil {
		return HookDeny(fmt.Sprintf("the changed input cannot be encoded: %v", err))
	}
	return &wire.HookOutput{HookSpecificOutput: &wire.PreToolUseOutput{UpdatedInput: raw}}
}

// HookContext adds a text to the model's context. It is a response to any event that accepts context, such
// as UserPromptSubmit, SessionStart or PostToolUse.
func HookContext(text string) *wire.HookOutput {
	raw, _ := json.Marshal(map[string]string{"additionalContext": text})
	return &wire.HookOutput{HookSpecificOutput: &wire.UnknownOutput{Raw: raw}}
}

// HookBlock blocks an action and gives the reason: it rejects a prompt (UserPromptSubmit), keeps a turn
// from ending (Stop), or questions a tool's result (PostToolUse).
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

// hookCallback answers a hook_callback request.
func (s *session) hookCallback(ctx context.Context, req *wire.HookCallback) (any, error) {
	if req.CallbackID == "" {
		return s.namedHooks(ctx, req)
	}
	hook, ok := s.cfg.hooks[req.CallbackID]
	if !ok {
		return nil, fmt.Errorf("no hook callback with id %q", req.CallbackID)
	}
	return s.callHook(ctx, hook, req)
}

// namedHooks handles an agent that calls hooks by the name of their event. It calls all of them, in order,
// up to the first one that objects. The last output that is not empty is the response.
func (s *session) namedHooks(ctx context.Context, req *wire.HookCallback) (any, error) {
	var answer any
	var failed error
	found := false
	for i := range len(s.cfg.hooks) {
		h := s.cfg.hooks[hookID(i)]
		if !strings.EqualFold(string(h.event), req.HookName) || !h.matches(req.Input) {
			continue
		}
		found = true
		out, err := s.callHook(ctx, h, req)
		if err != nil {
			failed = err
			continue
		}
		if answer == nil || !isEmpty(out) {
			answer = out
		}
		if objects(out) {
			return out, nil
		}
	}
	if !found {
		return nil, fmt.Errorf("no hook named %q", req.HookName)
	}
	if answer == nil {
		return nil, failed
	}
	return answer, nil
}

// matches reports whether a hook is for this input. An agent that calls hooks by id does the matching
// itself.
func (h Hook) matches(in wire.HookInput) bool {
	if h.matcher == "" || h.matcher == "*" || in == nil {
		return true
	}
	var tool string
	switch in := in.(type) {
	case *wire.PreToolUseInput:
		tool = in.ToolName
	case *wire.PostToolUseInput:
		tool = in.ToolName
	case *wire.PostToolUseFailureInput:
		tool = in.ToolName
	case *wire.PermissionRequestInput:
		tool = in.ToolName
	default:
		return true
	}
	text := h.matcher
	if nameList().MatchString(text) {
		text = "^(?:" + separator().ReplaceAllString(strings.TrimSpace(text), "|") + ")$"
	}
	pattern, err := regexp.Compile(text)
	return err != nil || pattern.MatchString(tool)
}

func isEmpty(out *wire.HookOutput) bool {
	return out.Continue == nil && out.Decision == "" && out.HookSpecificOutput == nil && out.SystemMessage == ""
}

// objects reports whether the output of a hook blocks, denies or stops something.
func objects(out *wire.HookOutput) bool {
	if out.Continue != nil && !*out.Continue || out.Decision == wire.DecisionBlock {
		return true
	}
	switch o := out.HookSpecificOutput.(type) {
	case *wire.PreToolUseOutput:
		return o.PermissionDecision != "" && o.PermissionDecision != wire.BehaviorAllow
	case *wire.PermissionRequestOutput:
		return o.Decision != nil && o.Decision.Behavior != wire.BehaviorAllow
	}
	return false
}

// callHook calls one hook.
func (s *session) callHook(ctx context.Context, hook Hook, req *wire.HookCallback) (*wire.HookOutput, error) {
	name := "hook " + string(hook.event)
	if req.Input == nil {
		err := &CallbackError{Callback: name, Err: errors.New("the agent sent no input")}
		s.warn(err)
		return failClosed(hook, err)
	}
	if hook.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, hook.Timeout)
		defer cancel()
	}
	out, err := guard(s, name, func() (*wire.HookOutput, error) {
		if err := readOneWayInput(req.Input); err != nil {
			return nil, err
		}
		return hook.call(ctx, req.Input)
	})
	if err != nil {
		return failClosed(hook, err)
	}
	if out == nil {
		return &wire.HookOutput{}, nil
	}
	if u, ok := out.HookSpecificOutput.(*wire.UnknownOutput); ok && u.Name == "" {
		// The output comes from HookContext, which does not know the event.
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

// readOneWayInput is readOneWay for the tool call that a hook may prevent.
func readOneWayInput(in wire.HookInput) error {
	switch in := in.(type) {
	case *wire.PreToolUseInput:
		return readOneWay(in.ToolName, in.ToolInput)
	case *wire.PermissionRequestInput:
		return readOneWay(in.ToolName, in.ToolInput)
	}
	return nil
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

// failClosed returns the output of a hook that failed.
func failClosed(h Hook, err error) (*wire.HookOutput, error) {
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
	case wire.EventPreModelSwitch:
		return &wire.HookOutput{HookSpecificOutput: &wire.PreModelSwitchOutput{
			PermissionDecision:       wire.BehaviorDeny,
			PermissionDecisionReason: reason,
		}}, nil
	}
	return nil, err
}
