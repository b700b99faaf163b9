package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A hookMatcher holds the callbacks that the host registered for an event.
type hookMatcher struct {
	matcher hook.Matcher
	text    string // of the matcher
	ids     []string
	timeout time.Duration
	failure string // "block", "ask" or "continue"; empty means the default of the event
}

// registerHooks replaces the hooks of the host by those of initialize. If one of them is malformed,
// it registers none and returns an error: a hook that is left out guards nothing.
func (s *server) registerHooks(req *wire.Initialize) error {
	if raw := req.Extra["hooks"]; raw != nil && string(raw) != "null" {
		return newCodedError("", "initialize: hooks must be an object with lists of matchers")
	}
	for event, list := range req.Hooks {
		for _, m := range list {
			if m == nil || m.Extra["hookCallbackIds"] != nil || m.Extra["matcher"] != nil && string(m.Extra["matcher"]) != "null" || slices.Contains(m.HookCallbackIDs, "") {
				return newCodedError("", "initialize: a hook for %.60q is malformed", event)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.hooks)
	for event, list := range req.Hooks {
		for _, m := range list {
			h := &hookMatcher{text: m.Matcher, ids: m.HookCallbackIDs, timeout: seconds(m.Timeout), failure: m.OnFailure}
			// An invalid matcher matches everything: a hook that guards too much does less
			// harm than one that guards nothing.
			if matcher, err := hook.Compile(m.Matcher); err == nil {
				h.matcher = matcher
			}
			s.hooks[event] = append(s.hooks[event], h)
		}
	}
	return nil
}

// seconds returns a number of seconds as a duration: at most a day, and 0 for a negative one.
func seconds(n float64) time.Duration {
	const day = 24 * 60 * 60
	return time.Duration(min(max(n, 0), day) * float64(time.Second))
}

// commandHooks returns a runner for the hooks of settings and plugins, and the given ones.
func (s *server) commandHooks(prefs *settings.Settings, held ...settings.Hook) (*hook.Runner, error) {
	hooks := slices.Concat(prefs.Hooks(), settings.Guards(prefs), held)
	for _, p := range s.plugins() {
		more, err := s.set.pluginHooks(prefs, p)
		if err != nil {
			return nil, err
		}
		hooks = append(hooks, more...)
	}
	return s.newRunner(hooks)
}

// newRunner returns a runner for hooks that are commands.
func (s *server) newRunner(hooks []settings.Hook) (*hook.Runner, error) {
	for i, h := range hooks {
		if !h.CanRun() {
			s.sendMessage(&wire.Informational{Content: fmt.Sprintf("%v: a %s hook of the type %q is not run by this version", h.Origin, h.Event, h.Kind), Level: "warning"})
		}
		if h.If == "" {
			continue
		}
		if _, err := policy.Parse(h.If, wire.BehaviorDeny, policy.Source{File: h.File, Line: h.Origin.Line}); err != nil {
			if h.Inactive {
				hooks[i].If = "" // it applies to every call
				continue
			}
			return nil, &settings.Error{Origin: h.Origin, Text: fmt.Sprintf("the condition %q of a %s hook cannot be read: %v", h.If, h.Event, err), Hint: "Write a rule such as Bash(git push:*)."}
		}
	}
	hooks = slices.DeleteFunc(hooks, func(h settings.Hook) bool { return !h.CanRun() })
	return hook.New(hook.Options{
		Fits:  s.hookApplies,
		Kinds: s.hookKinds(),
		Hooks: hooks, Dir: s.set.projectRoot(), Env: s.set.commandEnv(), Tell: s.sendMessage, All: s.set.flags.HookEvents,
		// Do not wait for Do: a conversation that ends waits for its hooks.
		Rewake: func(text string) { go s.conv.Do(func() { s.conv.Remark(text) }) },
		Late:   func(text string) { go s.conv.Do(func() { s.conv.Inform(text) }) },
	})
}

// setupTrigger returns why Setup hooks run, or "" if they do not.
func setupTrigger(f *cli.Flags) string {
	switch {
	case f.Init || f.InitOnly:
		return "init"
	case f.Maintenance:
		return "maintenance"
	}
	return ""
}

// setUp only runs the hooks of settings and plugins for setup and for the start of a
// session. It returns the exit status: 1 if one failed or blocks.
func (set *setup) setUp(ctx context.Context, stderr io.Writer) int {
	hooks := set.prefs().Hooks()
	for _, p := range set.loadProject().Plugins {
		more, err := set.pluginHooks(set.prefs(), p)
		if err != nil {
			fmt.Fprintln(stderr, "Error:", err)
			return 1
		}
		hooks = append(hooks, slices.DeleteFunc(more, func(h settings.Hook) bool { return !h.CanRun() })...)
	}
	runner, err := hook.New(hook.Options{Hooks: hooks, Dir: set.projectRoot(), Env: set.commandEnv()})
	if err != nil {
		fmt.Fprintln(stderr, "Error:", err)
		return 1
	}
	defer runner.Close()
	base, status := wire.HookBase{SessionID: session.NewID(), Cwd: set.cfg.Cwd}, 0
	run := func(in wire.HookInput, subject string) {
		for _, a := range runner.Run(ctx, in, subject) {
			switch {
			case a.Err != nil:
				fmt.Fprintf(stderr, "%s: the %s hook failed: %v\n", a.Source, in.Event(), a.Err)
				status = 1
			case a.Output != nil && (a.Output.Decision == wire.DecisionBlock || a.Output.Continue != nil && !*a.Output.Continue):
				fmt.Fprintf(stderr, "%s: the %s hook blocked it: %s\n", a.Source, in.Event(), a.Output.Reason+a.Output.StopReason)
				status = 1
			case a.Output != nil && a.Output.SystemMessage != "":
				fmt.Fprintln(stderr, a.Output.SystemMessage)
			}
		}
	}
	run(&wire.SetupInput{HookBase: base, Trigger: "init"}, "init")
	run(&wire.SessionStartInput{HookBase: base, Source: "startup"}, "startup")
	return status
}

// startHooks starts to use the hooks of settings.
func (s *server) startHooks() error {
	commands, err := s.commandHooks(s.set.prefs())
	if err != nil {
		return fmt.Errorf("Error: %w", err)
	}
	s.useHooks(commands)
	s.set.env.OnClose(s.closeHooks)
	return nil
}

// hookApplies reports whether a hook with a condition applies to a call.
func (s *server) hookApplies(rule string, in wire.HookInput) bool {
	switch in := in.(type) {
	case *wire.PreToolUseInput:
		return s.conv.Fits(rule, in.ToolName, in.ToolInput)
	case *wire.PostToolUseInput:
		return s.conv.Fits(rule, in.ToolName, in.ToolInput)
	case *wire.PostToolUseFailureInput:
		return s.conv.Fits(rule, in.ToolName, in.ToolInput)
	case *wire.PermissionRequestInput:
		return s.conv.Fits(rule, in.ToolName, in.ToolInput)
	case *wire.PermissionDeniedInput:
		return s.conv.Fits(rule, in.ToolName, in.ToolInput)
	}
	return true
}

// hasHook reports whether any hook is registered for an event.
func (s *server) hasHook(event wire.HookEvent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.hooks[event]) > 0 || s.runner.Has(event)
}

// elicitHooks runs the hooks for a question of an MCP server. They may answer for the user,
// and inspect the answer.
func (s *server) elicitHooks(ctx context.Context, q *wire.Elicitation, ask func() (*wire.ElicitResult, error)) (*wire.ElicitResult, error) {
	var answer *wire.ElicitResult
	if s.hasHook(wire.EventElicitation) {
		in := &wire.ElicitationInput{MCPServerName: q.MCPServerName, Message: q.Message, Mode: q.Mode, URL: q.URL,
			ElicitationID: q.ElicitationID, RequestedSchema: q.RequestedSchema}
		v := s.callHooks(ctx, in, q.MCPServerName)
		if len(v.Objections) > 0 {
			return &wire.ElicitResult{Action: wire.ElicitDecline}, nil
		}
		for o := range hook.Outputs[*wire.ElicitationOutput](v) {
			if o.Action != "" && (answer == nil || o.Action != wire.ElicitAccept) {
				answer = &wire.ElicitResult{Action: o.Action, Content: o.Content}
			}
		}
	}
	if answer == nil {
		var err error
		if answer, err = ask(); err != nil {
			return nil, err
		}
	}
	if s.hasHook(wire.EventElicitationResult) {
		in := &wire.ElicitationResultInput{MCPServerName: q.MCPServerName, Mode: q.Mode, ElicitationID: q.ElicitationID,
			Action: answer.Action, Content: answer.Content}
		v := s.callHooks(ctx, in, q.MCPServerName)
		if len(v.Objections) > 0 {
			return &wire.ElicitResult{Action: wire.ElicitDecline}, nil
		}
		for o := range hook.Outputs[*wire.ElicitationResultOutput](v) {
			if o.Action != "" {
				answer = &wire.ElicitResult{Action: o.Action, Content: o.Content}
			}
		}
	}
	return answer, nil
}

// callHooks runs the hooks for an event outside of a turn, and emits their messages to the
// user.
func (s *server) callHooks(ctx context.Context, in wire.HookInput, subject string) *hook.Verdict {
	v := s.conv.Hooks(ctx, in, subject)
	for _, m := range v.Notes {
		s.conv.Emit(m)
	}
	return v
}

// useHooks replaces the hooks of settings.
func (s *server) useHooks(r *hook.Runner) {
	s.mu.Lock()
	old := s.runner
	s.runner = r
	s.mu.Unlock()
	go old.Close() // its hooks may wait for us
}

// closeHooks stops the running hooks of settings.
func (s *server) closeHooks() {
	s.mu.Lock()
	r := s.runner
	s.mu.Unlock()
	r.Close()
}

// HasHooks reports whether the host or settings have hooks for an event.
func (s *server) HasHooks(event wire.HookEvent) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.hooks[event]) > 0 || s.runner.Has(event)
}

// Hooks calls the hooks of the host and of settings for an event, all at once. The host
// receives the requests in the order in which it registered the hooks.
func (s *server) Hooks(ctx context.Context, in wire.HookInput, subject, toolUseID string) []hook.Answer {
	type job struct {
		id string
		m  *hookMatcher
	}
	var jobs []job
	s.mu.Lock()
	if hostHears(in) {
		for _, m := range s.hooks[in.Event()] {
			if m.matcher.Match(subject) {
				for _, id := range m.ids {
					jobs = append(jobs, job{id, m})
				}
			}
		}
	}
	commands := s.runner
	s.mu.Unlock()
	answers := make([]hook.Answer, len(jobs))
	var wg sync.WaitGroup
	var before <-chan struct{} // closed when the host has the previous request
	for i, j := range jobs {
		turn, out := before, make(chan struct{})
		sent := sync.OnceFunc(func() { close(out) })
		before = out
		wg.Go(func() {
			defer sent()
			if turn != nil {
				<-turn
			}
			answers[i] = s.hook(ctx, j.m, j.id, in, toolUseID, sent)
		})
	}
	if sent := hook.Sent(ctx); before == nil {
		sent()
	} else {
		wg.Go(func() { <-before; sent() })
	}
	own := commands.Run(ctx, in, subject)
	wg.Wait()
	answers = append(answers, own...)
	s.setWatchedFiles(answers)
	return answers
}

// hostHears reports whether the host's own hooks run for an event. The host itself starts
// and ends sessions, so it gets no hooks for that.
func hostHears(in wire.HookInput) bool {
	switch in := in.(type) {
	case *wire.SessionStartInput:
		return in.Source != "startup" && in.Source != "resume"
	case *wire.SessionEndInput:
		return in.Reason == "clear"
	case *wire.SetupInput:
		return false // as in the official command
	case *wire.NotificationInput:
		return in.NotificationType != "permission_prompt" // the host receives the permission request itself
	}
	return true
}

// hook calls one hook of the host.
func (s *server) hook(ctx context.Context, m *hookMatcher, id string, in wire.HookInput, toolUseID string, sent func()) hook.Answer {
	answer := hook.Answer{Name: id, Source: "host"}
	limit := m.timeout
	if limit <= 0 {
		limit = hook.Timeout
	}
	bounded, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not answer within %v", limit))
	defer cancel()
	decides := settings.Decides(in.Event())
	// A hook that can decide and does not, denies, or asks for permission if the host
	// registered it so. One that reports its own failure may be registered to be skipped.
	failed := func(err error, passable bool) hook.Answer {
		answer.Err = err
		switch {
		case m.failure == "ask" && decides:
			answer.Ask = true
		case m.failure == "block":
			answer.Block = true
		default:
			answer.Block = decides && !(passable && m.failure == "continue")
		}
		return answer
	}
	r, err := s.requestSent(bounded, &wire.HookCallback{CallbackID: id, Input: in, ToolUseID: toolUseID}, sent)
	if err != nil {
		answer.Withdrawn = errors.Is(ctx.Err(), context.Canceled)
		answer.Late = bounded.Err() != nil && ctx.Err() == nil
		return failed(err, bounded.Err() == nil && !errors.Is(err, errNoAnswer))
	}
	out := new(wire.HookOutput)
	if len(r.Response) > 0 {
		if err := json.Unmarshal(r.Response, out); err != nil {
			return failed(fmt.Errorf("its answer cannot be read: %w", err), true)
		}
	}
	if err := hook.Check(out, in.Event()); err != nil {
		// The decision of the hook is unknown, so it must not count as an approval.
		return failed(fmt.Errorf("its answer is invalid: %w", err), false)
	}
	if !out.Async {
		answer.Output = out
	}
	return answer
}
