package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A toolRun is the tool calls of one answer. Each is a goroutine. One without
// effects starts at once, unless an earlier one has effects; one with effects waits
// until the message is complete and everything before it is done.
type toolRun struct {
	c        *Conversation
	t        *turn
	calls    []*toolCall
	released chan struct{} // closed when calls with effects may start
	once     sync.Once
	ctx      context.Context
	cancel   context.CancelCauseFunc
}

type toolCall struct {
	block    *block
	uuid     string // of the line that told it
	began    time.Time
	readOnly bool
	agent    bool // it starts a subagent, which runs beside others
	done     chan struct{}
	out      *outcome // once done
	answered *outcome // what the host said, in place of out; of the conversation's goroutine
	told     bool     // the result was told; of the conversation's goroutine
	final    bool     // nobody answers in its place
	ctx      context.Context
	cancel   context.CancelCauseFunc
	resolved map[string]tool.Target // of the paths of the call, as they were judged
	server   *wire.ToolServer       // whose tool it is, if an MCP server's
	receipt  *session.Entry         // of the decision, until it is written with the intent
	place    tool.Place             // where its command runs
}

// An outcome is what came of a call.
type outcome struct {
	result    *tool.Result
	meta      *wire.ToolResultMeta
	before    []wire.Message // told before the result
	context   []string       // told to the model behind the results
	nested    []*project.File
	hooks     []policy.HookAnswer // what hooks said about the call
	denied    bool
	input     json.RawMessage // as hosts saw it last: with absolute paths, changed by hooks; nil if nobody saw it
	silent    bool            // the host is not told the result
	interrupt bool            // the turn is to end
	stop      bool            // a hook ends the turn
	stopped   bool            // its result is that it was stopped
	finished  bool            // it ran to its end
	end       *ending
}

// inputOf returns the input of the call as hosts saw it last, or else the model's.
func (out *outcome) inputOf(call *toolCall) json.RawMessage {
	if out.input != nil {
		return out.input
	}
	return call.block.input
}

func newToolRun(c *Conversation, t *turn) *toolRun {
	r := &toolRun{c: c, t: t, released: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancelCause(t.ctx)
	c.running = r
	return r
}

// release lets calls with effects start.
func (r *toolRun) release() { r.once.Do(func() { close(r.released) }) }

// abandon stops what runs and lets nothing else start.
func (r *toolRun) abandon() {
	r.cancel(errors.New("the call was abandoned"))
	r.release()
}

// start begins a call.
func (r *toolRun) start(b *block, uuid string) {
	call := &toolCall{block: b, uuid: uuid, began: r.c.now(), done: make(chan struct{})}
	call.ctx, call.cancel = context.WithCancelCause(r.ctx)
	tl := r.c.findTool(b.name)
	_, call.final = tl.(*structuredOutput)
	call.agent = tl != nil && startsAgents(tl)
	call.readOnly = tl != nil && tl.Spec().ReadOnly && !call.agent
	if m, ok := tl.(*mcp.Tool); ok {
		call.server = m.Server()
	}
	var before []*toolCall
	for _, other := range r.calls {
		if (!call.readOnly || !other.readOnly) && (!call.agent || !other.agent) {
			before = append(before, other)
		}
	}
	r.calls = append(r.calls, call)
	go func() {
		defer close(call.done)
		defer call.cancel(nil)
		defer func() {
			if p := recover(); p != nil {
				r.c.log.Error("a tool panicked", "tool", b.name, "panic", p, "stack", string(debug.Stack()))
				call.out = failed(call, fmt.Errorf("the tool failed in an unexpected way: %v", p))
			} else if call.out == nil { // it ended its goroutine
				call.out = failed(call, errors.New("the tool failed in an unexpected way: it never returned"))
			}
		}()
		stopped := false // by the answer to an earlier one
		for _, other := range before {
			select {
			case <-other.done:
				stopped = stopped || other.out.interrupt
			case <-call.ctx.Done():
			}
		}
		if !call.readOnly {
			select {
			case <-r.released:
			case <-call.ctx.Done():
			}
		}
		if stopped || call.ctx.Err() != nil {
			call.out = rejected(call, nil, stoppedBefore)
			return
		}
		call.out = r.c.runCall(call.ctx, r.t, call, tl)
	}()
}

func failed(call *toolCall, err error) *outcome {
	return &outcome{result: tool.Failed(err), finished: true}
}

// Texts for the model about a call that was stopped.
const (
	// stoppedBefore is of a call that had not started when the turn was stopped.
	stoppedBefore = "The user stopped the turn before this call ran. It did nothing. Stop here and wait for what the user says next."
	// stoppedDenied is of a call whose denial stopped the turn.
	stoppedDenied = "The user denied this call and stopped the turn. The call did not run. Stop here and wait for what the user says next."
	// stoppedWhile is of a call that was running.
	stoppedWhile = "The user stopped the turn while this call ran. It may have run only in part, and what it changed until then stays changed. Stop here and wait for what the user says next."
)

// rejected is the outcome of a call that was stopped, with one of the texts above. Its input, nil
// if nobody looked at the call, is as hosts saw it.
func rejected(call *toolCall, input json.RawMessage, text string) *outcome {
	return &outcome{
		stopped: true, input: input,
		result: &tool.Result{Content: wire.Text(text), Structured: "User rejected tool use", IsError: true},
		meta:   &wire.ToolResultMeta{ID: call.block.id, NonExecutionKind: "user-rejected"},
	}
}

// runCall decides about a call and runs it. It is called in the call's own
// goroutine.
func (c *Conversation) runCall(ctx context.Context, t *turn, call *toolCall, tl tool.Tool) *outcome {
	b := call.block
	if tl == nil {
		return failed(call, tool.Misuse("Error: No such tool available: %s", b.name))
	}
	spec := tl.Spec()
	if st, ok := tl.(*structuredOutput); ok {
		given := b.input
		if given == nil {
			given = json.RawMessage(b.text.String()) // it may still be a string of what is meant
		}
		value, err := st.fit(given)
		if err != nil {
			return st.misfit(c, t, call, err)
		}
		return st.accept(c, t, call, value)
	}
	if b.input == nil {
		return c.misused(call, &outcome{}, tool.Misuse("InputValidationError: %s failed: its input is not a JSON object. Call it again with an object that fits its schema.", spec.Name))
	}
	out := &outcome{}
	input, err := prepare(c.env, tl, b.input)
	if err != nil {
		return c.misused(call, out, err)
	}
	out.input = input
	if look := c.root().cfg.Refresh; look != nil {
		look(ctx)
	}
	hooks := c.preToolHooks(ctx, t, call, spec, &input, out)
	if done := c.endedByHooks(ctx, t, call, spec.Name, hooks, out); done != nil {
		return done
	}
	if input, err = prepare(c.env, tl, input); err != nil { // hooks may have changed it
		return c.misused(call, out, err)
	}
	out.input = input
	if !c.permit(ctx, t, call, tl, &input, hooks, out) {
		if out.denied && !out.interrupt && ctx.Err() == nil {
			c.deniedHooks(ctx, t, call, spec.Name, input, out)
		}
		return out
	}
	if ctx.Err() != nil {
		return rejected(call, input, stoppedBefore)
	}
	changed := func() {}
	if !call.readOnly {
		var err error
		if !call.agent { // what a subagent changes is kept call by call
			if changed, err = c.keepFiles(call, tl, input); err != nil {
				return failed(call, err)
			}
		}
		// The intent is on record before the effect.
		if err := c.intent(call, input); err != nil {
			return failed(call, err)
		}
		if ctx.Err() != nil { // recording took a moment
			c.settle(call, true)
			return rejected(call, input, stoppedBefore)
		}
	}
	began, dir := c.now(), c.env.Cwd()
	ctx, span := c.telemetry.Tool(ctx, spec.Name, b.id)
	result, err := tl.Run(ctx, &tool.Call{ID: b.id, Input: input, Env: c.env, Resolved: call.resolved, Place: call.place})
	failure := ""
	if result != nil && result.IsError {
		failure = "tool_error"
	}
	span.End(err, failure)
	if !call.readOnly {
		changed()
		c.settle(call, err != nil || failure != "")
	}
	if ctx.Err() != nil && (err != nil || result == nil) {
		return rejected(call, input, stoppedWhile)
	}
	if err != nil {
		result = tool.Failed(err)
		// A call that was wrong is none that was decided about.
		if _, wrong := errors.AsType[*tool.UseError](err); wrong {
			out.meta = nil
		}
	}
	if result == nil {
		result = tool.Text("", nil)
	}
	out.result, out.finished = result, true
	if !result.IsError {
		out.nested = c.nestedFiles(spec, call)
	}
	if spec.Name != "Read" { // which has looked at its pictures
		content, problems := fitPictures(result.Content)
		if len(problems) > 0 {
			c.Do(func() {
				c.tellLeftOut(fmt.Sprintf("A picture that %s returned was left out: %s.", spec.Name, strings.Join(problems, "; ")))
			})
		}
		result.Content = content
	}
	c.postToolHooks(ctx, t, call, spec, input, c.now().Sub(began), out)
	for _, f := range out.nested {
		c.remarkHooks(ctx, "", instructionsInput(f, "nested_traversal"), f.Path, out)
	}
	if now := c.env.Cwd(); now != dir && !call.readOnly {
		c.remarkHooks(ctx, t.promptID, &wire.CwdChangedInput{OldCwd: dir, NewCwd: now}, "", out)
	}
	return out
}

// endedByHooks is the outcome of a call that does not run because its hooks were cut off,
// deny it or put it off, and nil otherwise.
func (c *Conversation) endedByHooks(ctx context.Context, t *turn, call *toolCall, name string, hooks *hook.Verdict, out *outcome) *outcome {
	b := call.block
	switch {
	case ctx.Err() != nil:
		return rejected(call, out.input, stoppedBefore)
	case hooks.Behavior == wire.BehaviorDeny:
		out.denied = true
		out.result = tool.Failed(deniedByHook(name, hooks))
		c.receipt(call, policy.Decision{}, out, "hook", false)
		out.meta = &wire.ToolResultMeta{ID: b.id, NonExecutionKind: "permission-rule",
			PermissionDecision: &wire.PermissionDecision{Decision: "reject", Source: "hook", ReasonType: "hook"}}
		return out
	case hooks.Behavior == wire.BehaviorDefer:
		out.end = &ending{reason: "tool_deferred"}
		out.result = tool.Failed(errors.New("The call was put off."))
		out.silent = true
		c.receipt(call, policy.Decision{}, out, "hook", false)
		c.Do(func() {
			t.stopReason = "tool_deferred"
			t.deferred = &wire.DeferredToolUse{ID: b.id, Name: b.name, Input: out.input}
		})
		return out
	}
	return nil
}

// deniedByHook is the result of a call that a hook denies: its reason alone, but for Bash, as the
// official command writes it.
func deniedByHook(name string, v *hook.Verdict) error {
	if v.Reason != "" && v.Failed == nil && name != "Bash" {
		return errors.New(v.Reason)
	}
	return fmt.Errorf("PreToolUse:%s hook error: %s", name, v.Reason)
}

// prepare checks an input against the schema of its tool and makes the paths in it absolute:
// whoever looks at the call from here on sees what the tool will open.
func prepare(env *tool.Env, tl tool.Tool, input json.RawMessage) (json.RawMessage, error) {
	if err := tool.Validate(tl.Spec(), input); err != nil {
		return input, err
	}
	if p, ok := tl.(tool.PathTool); ok {
		return p.Absolute(env, input)
	}
	return input, nil
}

// misused is the outcome of a call whose input is not what the tool takes. It did not
// run, and that is on record.
func (c *Conversation) misused(call *toolCall, out *outcome, err error) *outcome {
	out.result, out.finished = tool.Failed(err), true
	c.receipt(call, policy.Decision{}, out, "schema", false)
	return out
}

// intent records that a call is about to have effects.
func (c *Conversation) intent(call *toolCall, input json.RawMessage) error {
	entries := []*session.Entry{session.Intent(call.block.id, call.block.name, input)}
	if call.receipt != nil {
		entries = []*session.Entry{call.receipt, entries[0]}
	}
	// A command behind the read wall changes nothing, so that nothing is lost with its
	// intent. Its result waits for the disk.
	for _, e := range entries {
		e.Hasty = call.place == tool.ReadWall && c.env.Wall.Ready() == nil
	}
	if err := c.rec.Place().Append(entries...); err != nil {
		return fmt.Errorf("the call did not run, because %w", err)
	}
	return nil
}

// settle records that the effects of a call are complete. What it returned is told
// later, when hooks have seen it.
func (c *Conversation) settle(call *toolCall, failed bool) {
	if err := c.rec.Place().Append(session.Outcome(call.block.id, failed, nil)); err != nil {
		c.log.Error("the outcome of a call could not be recorded", "error", err)
	}
}

// permit decides whether a call may run. If not, out is what came of it.
func (c *Conversation) permit(ctx context.Context, t *turn, call *toolCall, tl tool.Tool, input *json.RawMessage, hooks *hook.Verdict, out *outcome) bool {
	spec, b := tl.Spec(), call.block
	var d policy.Decision
	var mode wire.PermissionMode
	decide := func() bool {
		access, err := tl.Access(c.env, *input)
		if err != nil {
			out.result = tool.Failed(err)
			return false
		}
		call.resolved = files.Targets(c.env, access)
		var alive bool
		d, mode, alive = c.decide(tl, *input, access, call.resolved)
		if alive && spec.Name == "ExitPlanMode" && mode != wire.ModePlan {
			out.result = tool.Failed(tool.Misuse("The mode is not plan mode, so there is no plan to approve. If it was approved, carry it out; to plan first, call EnterPlanMode."))
			return false
		}
		return alive
	}
	if !decide() {
		if out.result == nil {
			*out = *rejected(call, out.input, stoppedBefore)
		} else {
			c.receipt(call, d, out, "schema", false)
		}
		return false
	}
	if interactive(spec.Name) && d.Behavior == wire.BehaviorAllow {
		d.Behavior, d.Reason, d.ReasonType, d.Rule = wire.BehaviorAsk, "", "", nil
	}
	allow := hooks.Behavior == wire.BehaviorAllow
	if d.Behavior != wire.BehaviorDeny {
		if hooks.Behavior == wire.BehaviorAsk {
			d.Behavior, d.ReasonType, d.Reason = wire.BehaviorAsk, "hook", hooks.Reason
		} else if allow && d.Rule == nil && !interactive(spec.Name) {
			// A rule that asks is the user's word; a hook does not answer for him.
			d.Behavior, d.ReasonType = wire.BehaviorAllow, "hook"
			if mode != wire.ModePlan { // in which nothing changes, whatever a hook allows
				d.DecidedBy = policy.ByHook
			}
		}
		if d.Behavior == wire.BehaviorAsk && mode == wire.ModeDontAsk {
			d.Behavior, d.ReasonType, d.Reason = wire.BehaviorDeny, "mode", "nobody is asked in this mode, and no rule allows the call"
		}
	}
	accept := func(source, reason string) {
		out.meta = &wire.ToolResultMeta{ID: b.id, PermissionDecision: &wire.PermissionDecision{Decision: "accept", Source: source, ReasonType: reason}}
	}
	by := "policy"
	allowed := false
	defer func() { c.receipt(call, d, out, by, allowed) }()
	switch d.Behavior {
	case wire.BehaviorAllow:
		source := "config"
		if d.ReasonType == "hook" {
			source, by = "hook", "hook"
		}
		reason := d.ReasonType
		if call.agent && mode != wire.ModeBypassPermissions && d.Rule == nil && reason == "mode" {
			reason = "" // what a subagent does is decided about call by call
		}
		accept(source, reason)
		allowed, call.place = true, d.DecidedBy.Place()
		return true
	case wire.BehaviorDeny:
		if !allow {
			c.deny(call, d, out)
			return false
		}
		// Then the result alone says it, and as of a rule, as with the official command.
		c.denyQuietly(call, d, out)
		out.meta.NonExecutionKind = "permission-rule"
		if spec.Name == "Bash" && d.Rule != nil {
			out.meta.PermissionDecision.ReasonType = "subcommandResults"
		}
		return false
	}
	q := c.question(spec, b.id, *input, d)
	if m, ok := tl.(*mcp.Tool); ok {
		q.MCPServer, q.DisplayName, q.ServerPolicyAskOnly = call.server, m.DisplayName(), true
	}
	if d.ReasonType == "hook" {
		q.DecisionReasonHookEvent, q.DecisionReasonHookSource = wire.EventPreToolUse, hooks.Source
	}
	res, by2, err := c.askAround(ctx, t, call, q, mode, out)
	by = by2
	if res == nil && err == nil {
		if d.Reason == "" {
			d.Reason = fmt.Sprintf("%s needs approval, and nobody can be asked", spec.Name)
		}
		if interactive(spec.Name) {
			d.Reason = "Nobody is there to answer. Decide by yourself, and say what you decided."
		}
		if c.cfg.NoPrompts {
			d.ReasonType = "asyncAgent"
		}
		c.deny(call, d, out)
		return false
	}
	source := "user_reject"
	if by == "hook" {
		source = "hook"
	}
	switch {
	case ctx.Err() != nil: // nobody said yes
		*out = *rejected(call, out.input, stoppedBefore)
		out.denied = true
		return false
	case err != nil:
		out.denied = true
		out.result = tool.Failed(fmt.Errorf("Tool permission request failed: %v", err))
		return false
	case res.Behavior == wire.BehaviorDeny:
		out.denied = true
		out.interrupt = res.Interrupt
		if res.Interrupt {
			rej := rejected(call, out.input, stoppedDenied)
			out.result, out.meta, out.stopped = rej.result, rej.meta, true
			return false
		}
		out.result = tool.Failed(errors.New(res.Message))
		out.meta = &wire.ToolResultMeta{ID: b.id, NonExecutionKind: "permission-rule",
			PermissionDecision: &wire.PermissionDecision{Decision: "reject", Source: source}}
		return false
	case res.Behavior != wire.BehaviorAllow:
		out.denied = true
		out.result = tool.Failed(fmt.Errorf("The permission callback gave no valid answer: it must be allow or deny, and was %q.", res.Behavior))
		return false
	}
	c.takeUpdates(ctx, spec.Name, res.UpdatedPermissions, out)
	if res.UpdatedInput != nil && string(res.UpdatedInput) != "null" {
		changed, err := prepare(c.env, tl, res.UpdatedInput)
		if err != nil {
			out.result = tool.Failed(err)
			return false
		}
		*input, out.input = changed, changed
		// What was changed is judged again: a person may not be tricked past a
		// rule.
		if !decide() {
			if out.result == nil {
				*out = *rejected(call, out.input, stoppedBefore)
			}
			return false
		}
		if d.Behavior == wire.BehaviorDeny {
			c.deny(call, d, out)
			return false
		}
	}
	if d.DecidedBy = policy.ByAnswer; by == "hook" {
		d.DecidedBy = policy.ByHook
		accept("hook", "")
	} else {
		accept("user_temporary", "")
	}
	allowed = true
	return true
}

// takeUpdates changes rules as an answer about a call says, for the conversation and
// for those that follow.
func (c *Conversation) takeUpdates(ctx context.Context, name string, updates []*wire.PermissionUpdate, out *outcome) {
	for _, u := range updates {
		if u == nil {
			continue
		}
		root := c.root()
		var before, after []string
		root.Do(func() {
			before = slices.Clone(root.roots)
			root.Apply(u)
			after = slices.Clone(root.roots)
		})
		for _, d := range after {
			if !slices.Contains(before, d) {
				c.remarkHooks(ctx, "", &wire.DirectoryAddedInput{Directory: d, Source: "permission_update"}, d, out)
			}
		}
		if root.cfg.Keep == nil {
			continue
		}
		path, err := root.cfg.Keep(u)
		switch {
		case err != nil:
			out.before = append(out.before, &wire.Informational{Content: fmt.Sprintf("What was said about %s holds for this session only: %v", name, err),
				Level: "warning"})
		case path != "":
			source := map[wire.PermissionDestination]string{wire.DestinationUserSettings: "user_settings", wire.DestinationProjectSettings: "project_settings", wire.DestinationLocalSettings: "local_settings"}[u.Destination]
			c.remarkHooks(ctx, "", &wire.ConfigChangeInput{Source: source, FilePath: path}, source, out)
		}
	}
}

// deny is the outcome of a call that a rule or the mode does not allow. The host is told
// by a line of its own.
func (c *Conversation) deny(call *toolCall, d policy.Decision, out *outcome) {
	reason := c.denyQuietly(call, d, out)
	out.before = append(out.before, &wire.PermissionDenied{ToolName: call.block.name, ToolUseID: call.block.id,
		DecisionReasonType: d.ReasonType, DecisionReason: reason, Message: reason})
}

// denyQuietly is deny without the line. It returns the reason.
func (c *Conversation) denyQuietly(call *toolCall, d policy.Decision, out *outcome) (reason string) {
	if reason = d.Reason; reason == "" {
		reason = "the call is not allowed"
	}
	out.denied = true
	out.result = tool.Failed(errors.New(reason))
	out.meta = &wire.ToolResultMeta{ID: call.block.id, NonExecutionKind: "user-rejected",
		PermissionDecision: &wire.PermissionDecision{Decision: "reject", Source: "config", ReasonType: d.ReasonType}}
	return reason
}

// question asks the host about a call.
func (c *Conversation) question(spec *tool.Spec, id string, input json.RawMessage, d policy.Decision) *wire.CanUseTool {
	req := &wire.CanUseTool{ToolName: spec.Name, DisplayName: spec.Name, Input: input, ToolUseID: id,
		BlockedPath: d.Path, DecisionReason: d.Reason, DecisionReasonType: d.ReasonType, PermissionSuggestions: d.Suggestions()}
	var in struct {
		Description string `json:"description"`
		Command     string `json:"command"`
		FilePath    string `json:"file_path"`
		Notebook    string `json:"notebook_path"`
		Pattern     string `json:"pattern"`
	}
	json.Unmarshal(input, &in)
	req.Description = cmp.Or(in.Description, in.Command, shortPath(c.env, in.FilePath), shortPath(c.env, in.Notebook), in.Pattern)
	req.RequiresUserInteraction = interactive(spec.Name)
	// Nothing speaks against the call but that nothing allows it.
	req.ServerPolicyAskOnly = !req.RequiresUserInteraction && d.Reason == "" && d.ReasonType == "" && d.Path == ""
	if req.RequiresUserInteraction {
		req.PermissionSuggestions = nil
	}
	return req
}

// shortPath writes a path for people: relative to the working directory or to the home, if it
// is below one of them.
func shortPath(env *tool.Env, path string) string {
	below := func(dir string) (string, bool) {
		rel, err := filepath.Rel(dir, path)
		return rel, err == nil && dir != "" && rel != "." && filepath.IsLocal(rel)
	}
	if !filepath.IsAbs(path) {
		return path
	}
	if rel, ok := below(env.Cwd()); ok {
		return rel
	}
	if rel, ok := below(env.Home); ok {
		return filepath.Join("~", rel)
	}
	return path
}
