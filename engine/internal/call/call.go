// Package call runs one tool call: validate, hooks, decide, ask the host, intent, run,
// outcome.
//
// A call works on a [View], which never changes, and returns an [Outcome]. It never reaches
// the goroutine that owns the conversation, except through the few functions of its
// [Runner]: a slow file system, hook or host delays nobody else.
package call

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/picture"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/internal/telemetry"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A Runner runs the calls of one conversation. It is safe for concurrent use.
type Runner struct {
	Env       *tool.Env // what it remembers; its directories are those of the View
	Rec       *recorder.Recorder
	Log       *slog.Logger
	Telemetry *telemetry.Telemetry
	Now       func() time.Time

	View func() *View // of the conversation, as it is now
	Top  Top
	// Agent is the subagent whose calls they are; nil if they are the conversation's own.
	Agent     *Agent
	NoPrompts bool // what would be asked is denied

	// Judge has a model judge a call in mode auto. It never returns nil.
	Judge func(context.Context, *tool.Spec, json.RawMessage) *policy.Judgement

	// SetState reports to the host that somebody is asked, or not any more.
	SetState func(state string)
	// AddNotes emits what hooks say beside a call; the model gets it with the next prompt.
	AddNotes func(*hook.Verdict)
}

// A Top is the topmost conversation, whose rules and mode decide about all calls.
type Top struct {
	View    func() *View
	Path    func() string // of the session's log
	Over    <-chan struct{}
	Refresh func(context.Context) // reads rules again that have changed; may be nil
	// Apply changes rules as an answer about a call says. It returns the directories that
	// this adds.
	Apply func(*wire.PermissionUpdate) (added []string)
	// Keep makes the same hold for conversations that follow; see engine.Config. It may be nil.
	Keep func(*wire.PermissionUpdate) (path string, err error)
}

// An Agent is a subagent.
type Agent struct {
	ID, Name string
	ReadOnly bool
	// Modes are those of the agents on the way down to it and its own.
	Modes []wire.PermissionMode
}

// A Form is a tool that does not run: the value that the model gives it is the answer of
// the turn.
type Form interface {
	tool.Tool
	// Fit returns the value that the model meant, or what is wrong with it.
	Fit(given json.RawMessage) (json.RawMessage, error)
}

// An AgentTool is a tool that starts subagents or lets them go on. Such calls run side by
// side, and rules can be about the agent.
type AgentTool interface {
	tool.Tool
	// AgentType returns the name of the agent that a call is about, empty if there is none.
	AgentType(input json.RawMessage) string
}

// A Call is one tool call. The fields of the first group are set before it starts.
type Call struct {
	ID, Name string
	Input    json.RawMessage // nil if the model wrote no JSON object
	Text     string          // what the model wrote, if that is no JSON object
	Tool     tool.Tool       // nil if there is none of that name
	PromptID string
	UUID     string // of the record of the call

	Began  time.Time
	Done   chan struct{}   // closed when Out is set
	Ctx    context.Context // ends with the call, and when it is to stop
	Out    *Outcome
	Posted *Outcome // the host's result, in place of Out; of the owner's goroutine
	Told   bool     // the result was emitted; of the owner's goroutine
	Beats  int      // heartbeats that were emitted; of the owner's goroutine

	cancel   context.CancelCauseFunc
	final    bool                   // nobody answers in its place
	resolved map[string]tool.Target // of the paths of the call, as they were judged
	receipt  *session.Entry         // of the decision, until it is written with the intent
	place    tool.Place             // where its command runs
}

// StartsAgent reports whether the call starts a subagent, which runs beside others.
func (c *Call) StartsAgent() bool {
	_, ok := c.Tool.(AgentTool)
	return ok
}

// ReadOnly reports whether the call has no effects.
func (c *Call) ReadOnly() bool { return c.Tool != nil && c.Tool.Spec().ReadOnly && !c.StartsAgent() }

// server returns the MCP server whose tool it is, nil if it is none's.
func (c *Call) server() *wire.ToolServer {
	if m, ok := c.Tool.(*mcp.Tool); ok {
		return m.Server()
	}
	return nil
}

// An Outcome is what came of a call.
type Outcome struct {
	Result    *tool.Result
	Meta      *wire.ToolResultMeta
	Before    []wire.Message  // emitted before the result
	After     []wire.Message  // emitted after the result
	Context   []string        // for the model, behind the results
	Nested    []*project.File // instructions for files that the call touched
	Denied    bool
	Input     json.RawMessage // as hosts saw it last: with absolute paths, changed by hooks; nil if nobody saw it
	Interrupt bool            // the turn is to end
	Stop      bool            // a hook ends the turn
	Stopped   bool            // its result is that it was stopped
	Finished  bool            // it ran to its end
	Deferred  bool            // a hook put the call off; the host does not receive the result
	Value     json.RawMessage // that a [Form] was given, if it fits
	Misfit    error           // why that does not fit

	hooks []policy.HookAnswer // what hooks said about the call
}

// InputOf returns the input of the call as hosts saw it last, or else the model's.
func (out *Outcome) InputOf(c *Call) json.RawMessage {
	if out.Input != nil {
		return out.Input
	}
	return c.Input
}

// add adds what hooks say about a call.
func (out *Outcome) add(v *hook.Verdict) {
	out.Before = append(out.Before, v.Notes...)
	out.Context = append(out.Context, v.Added()...)
	out.Stop = out.Stop || v.Stopped
	out.hooks = append(out.hooks, v.Noted...)
}

func failed(err error) *Outcome { return &Outcome{Result: tool.Failed(err), Finished: true} }

// Texts for the model about a call that was stopped.
const (
	// StoppedBefore is of a call that had not started when the turn was stopped.
	StoppedBefore = "The user stopped the turn before this call ran. It did nothing. Stop here and wait for what the user says next."
	// stoppedDenied is of a call whose denial stopped the turn.
	stoppedDenied = "The user denied this call and stopped the turn. The call did not run. Stop here and wait for what the user says next."
	// StoppedWhile is of a call that was running.
	StoppedWhile = "The user stopped the turn while this call ran. It may have run only in part, and what it changed until then stays changed. Stop here and wait for what the user says next."
)

// Rejected is the outcome of a call that was stopped, with one of the texts above. Its
// input, nil if nobody looked at the call, is as hosts saw it.
func Rejected(c *Call, input json.RawMessage, text string) *Outcome {
	return &Outcome{
		Stopped: true, Input: input,
		Result: &tool.Result{Content: wire.Text(text), Structured: "User rejected tool use", IsError: true},
		Meta:   &wire.ToolResultMeta{ID: c.ID, NonExecutionKind: "user-rejected"},
	}
}

// A run is a call on its way through the stages.
type run struct {
	*Runner
	*Call
	Env      *tool.Env // as it was when the call began
	ctx      context.Context
	spec     *tool.Spec
	input    json.RawMessage
	hooks    *hook.Verdict // for PreToolUse
	mode     wire.PermissionMode
	decision policy.Decision
	judged   *policy.Judgement // nil if no model was asked
	by       string            // who decided: "policy", "judge", "hook", "host" or "nobody"
	allowed  bool
	changed  func() // records what the call has changed
	began    time.Time
	dir      string // the working directory before
	out      *Outcome
}

// stages are what happens with a call, in this order. One that returns true ends it.
var stages = []func(*run) bool{
	(*run).validate,
	(*run).callHooks,
	(*run).decideByRules,
	(*run).applyHooks,
	(*run).applyDecision,
	(*run).judge,
	(*run).askHost,
	(*run).recordIntent,
	(*run).execute,
	(*run).reportOutcome,
}

// Run decides about a call and runs it.
func (r *Runner) Run(ctx context.Context, c *Call) (out *Outcome) {
	defer func() {
		if p := recover(); p != nil {
			r.Log.Error("a tool panicked", "tool", c.Name, "panic", p, "stack", string(debug.Stack()))
			out = failed(fmt.Errorf("the tool failed in an unexpected way: %v", p))
		}
	}()
	s := &run{Runner: r, Call: c, Env: r.View().Env, ctx: ctx, by: "policy", changed: func() {}, out: &Outcome{}}
	for _, stage := range stages {
		if stage(s) {
			break
		}
	}
	return s.out
}

// end ends a call with an outcome.
func (s *run) end(out *Outcome) bool {
	s.out = out
	return true
}

// misused ends a call whose input does not fit the tool. It did not run, and that is
// recorded.
func (s *run) misused(err error) bool {
	s.out.Result, s.out.Finished = tool.Failed(err), true
	s.recordDecision(policy.Decision{}, "schema", false)
	return true
}

// prepare checks an input against the schema of its tool and makes the paths in it absolute:
// whoever looks at the call from here on sees what the tool will open.
func (s *run) prepare(input json.RawMessage) (err error) {
	if _, form := s.Tool.(Form); !form { // which looks at its input itself
		if err = tool.Validate(s.spec, input); err != nil {
			return err
		}
	}
	if p, ok := s.Tool.(tool.PathTool); ok {
		if input, err = p.Absolute(s.Env, input); err != nil {
			return err
		}
	}
	s.input, s.out.Input = input, input
	return nil
}

// validate is the first stage: is there such a tool, and does the input fit?
func (s *run) validate() bool {
	if s.Tool == nil {
		return s.end(failed(tool.Misuse("Error: No such tool available: %s", s.Name)))
	}
	s.spec = s.Tool.Spec()
	if form, ok := s.Tool.(Form); ok {
		return s.fill(form)
	}
	if s.Input == nil {
		return s.misused(tool.Misuse("InputValidationError: %s failed: its input is not a JSON object. Call it again with an object that fits its schema.", s.spec.Name))
	}
	if err := s.prepare(s.Input); err != nil {
		return s.misused(err)
	}
	return false
}

// fill is the outcome of a form: hooks see it like any call, and nobody is asked about it.
func (s *run) fill(form Form) bool {
	s.began = s.Now()
	s.input = s.Input
	if s.input == nil {
		s.input = json.RawMessage(s.Text) // it may still be a string of what is meant
	} else if s.callHooks() {
		return true
	}
	const text = "Structured output provided successfully"
	s.out.Result, s.out.Meta, s.out.Finished = &tool.Result{Content: wire.Text(text), Structured: text}, accepted(s.Call, "config", ""), true
	if s.out.Value, s.out.Misfit = form.Fit(s.input); s.out.Misfit != nil {
		s.out.Result = tool.Failed(s.out.Misfit)
	}
	if s.Input != nil {
		s.callResultHooks()
	}
	return true
}

// accepted says who let a call run.
func accepted(c *Call, source, reason string) *wire.ToolResultMeta {
	return &wire.ToolResultMeta{ID: c.ID, PermissionDecision: &wire.PermissionDecision{Decision: "accept", Source: source, ReasonType: reason}}
}

// recordIntent records that a call is about to have effects, before it has.
func (s *run) recordIntent() bool {
	if s.ctx.Err() != nil {
		return s.end(Rejected(s.Call, s.input, StoppedBefore))
	}
	if s.ReadOnly() {
		return false
	}
	if !s.StartsAgent() { // what a subagent changes is kept call by call
		if err := s.keepFiles(); err != nil {
			return s.end(failed(err))
		}
	}
	entries := []*session.Entry{session.Intent(s.ID, s.Name, s.input)}
	if s.receipt != nil {
		entries = []*session.Entry{s.receipt, entries[0]}
	}
	// A command behind the read wall changes nothing, so that nothing is lost with its
	// intent. Its result waits for the disk.
	for _, e := range entries {
		e.Hasty = s.place == tool.ReadWall && s.Env.Wall.Ready() == nil
	}
	if err := s.Rec.Place().Append(entries...); err != nil {
		return s.end(failed(fmt.Errorf("the call did not run, because %w", err)))
	}
	if s.ctx.Err() != nil { // recording took a moment
		s.recordOutcome(true)
		return s.end(Rejected(s.Call, s.input, StoppedBefore))
	}
	return false
}

// recordOutcome records that the effects of a call are complete. Its result is recorded
// later, when hooks have seen it.
func (s *run) recordOutcome(failed bool) {
	if err := s.Rec.Place().Append(session.Outcome(s.ID, failed, nil)); err != nil {
		s.Log.Error("the outcome of a call could not be recorded", "error", err)
	}
}

// execute runs the tool.
func (s *run) execute() bool {
	s.began, s.dir = s.Now(), s.Env.Cwd()
	ctx, span := s.Telemetry.Tool(s.ctx, s.spec.Name, s.ID)
	returned := s.ReadOnly()
	defer func() {
		if !returned { // the tool panicked or ended its goroutine: nothing of it runs any more
			s.changed()
			s.recordOutcome(true)
		}
	}()
	result, err := s.Tool.Run(ctx, &tool.Call{ID: s.ID, Input: s.input, Env: s.Env, Resolved: s.resolved, Place: s.place, Hooks: s.callGuardHooks})
	returned = true
	failure := ""
	if result != nil && result.IsError {
		failure = "tool_error"
	}
	span.End(err, failure)
	if !s.ReadOnly() {
		s.changed()
		s.recordOutcome(err != nil || failure != "")
	}
	if ctx.Err() != nil && (err != nil || result == nil) {
		return s.end(Rejected(s.Call, s.input, StoppedWhile))
	}
	if err != nil {
		result = tool.Failed(err)
		// A call that was wrong is none that was decided about.
		if _, wrong := errors.AsType[*tool.UseError](err); wrong {
			s.out.Meta = nil
		}
	}
	if result == nil {
		result = tool.Text("", nil)
	}
	s.out.Result, s.out.Finished = result, true
	s.ctx = ctx
	return false
}

// reportOutcome is the last stage: what the call touched, and what hooks say about it.
func (s *run) reportOutcome() bool {
	if !s.out.Result.IsError {
		s.out.Nested = s.nestedFiles()
	}
	if s.spec.Name != "Read" { // which has looked at its pictures
		content, problems := picture.FitContent(s.out.Result.Content)
		if len(problems) > 0 {
			s.out.Before = append(s.out.Before, picture.LeftOut(fmt.Sprintf("A picture that %s returned was left out: %s.", s.spec.Name, strings.Join(problems, "; "))))
		}
		s.out.Result.Content = content
	}
	s.callResultHooks()
	for _, f := range s.out.Nested {
		s.callEventHooks("", InstructionsLoaded(f, "nested_traversal"), f.Path)
	}
	if now := s.Env.Cwd(); now != s.dir && !s.ReadOnly() && !strings.HasSuffix(s.spec.Name, "Worktree") { // as the official command
		s.callEventHooks(s.PromptID, &wire.CwdChangedInput{OldCwd: s.dir, NewCwd: now}, "")
	}
	return true
}

// nestedFiles returns what the project says about files that the call touched.
func (s *run) nestedFiles() (found []*project.File) {
	v := s.View()
	if v.NoInstructions || v.Project == nil {
		return nil
	}
	switch s.spec.Name {
	case "Read", "Edit", "Write", "NotebookEdit":
		for path := range s.resolved {
			found = append(found, v.Project.Below(path)...)
		}
	}
	return found
}

// keepFiles keeps what a call is about to change. s.changed is called when it has.
func (s *run) keepFiles() error {
	keeper := s.View().Keeper
	if keeper == nil {
		return nil
	}
	access, err := s.Tool.Access(s.Env, s.input)
	if err != nil {
		return err
	}
	var paths, dirs []string
	anything := len(access) == 0
	for _, a := range access {
		switch a.Kind {
		case tool.Write:
			if a.Path != "" {
				paths = append(paths, cmp.Or(s.resolved[a.Path].Path, a.Path))
			}
		case tool.Execute, tool.Other:
			anything = true
		}
	}
	if anything {
		dirs = files.RealRoots(s.Env) // where it works; the others are too much
		dirs = dirs[:min(1, len(dirs))]
	}
	if len(paths) == 0 && len(dirs) == 0 {
		return nil
	}
	done, err := keeper.Before(s.ID, paths, dirs)
	if err != nil {
		return fmt.Errorf("the call did not run, because what it would change cannot be kept: %w", err)
	}
	s.changed = func() {
		if err := done(); err != nil {
			s.Log.Error("what a call changed could not be recorded", "error", err)
		}
	}
	return nil
}
