// Package call runs one tool call: validate, hooks, decide, ask the host, intent, run, outcome.
//
// A call works on a [View], which never changes, and returns an [Outcome]. It reaches the
// goroutine that owns the conversation only through the few functions of its [Runner], so a
// slow file system, hook or host delays nothing else.
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
	"sync/atomic"
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
	Env       *tool.Env // holds its state; the directories are those of the View
	Rec       *recorder.Recorder
	Log       *slog.Logger
	Telemetry *telemetry.Telemetry
	Now       func() time.Time

	View   func() *View // returns the current view of the conversation
	Top    Top
	Effort atomic.Pointer[wire.HookEffort] // of the last request to the model; nil if the model has no levels
	// Agent is the subagent that makes the calls; nil if the conversation itself does.
	Agent     *Agent
	NoPrompts bool // deny calls that need permission instead of asking

	// Judge lets a model judge a call in mode auto. It never returns nil.
	Judge func(context.Context, *tool.Spec, json.RawMessage) *policy.Judgement

	// SetState reports to the host that a permission request is open, or no longer is.
	SetState func(state string)
	// AddNotes emits the messages of hooks that do not belong to a result; the model receives
	// them with the next prompt.
	AddNotes func(*hook.Verdict)

	abandoned []*Call // see Abandoned; used by the owner only
	unstopped []*Call // see Unstopped; used by the owner only
}

// A Top is the topmost conversation, whose rules and mode decide all calls.
type Top struct {
	View    func() *View
	Path    func() string // of the session's log
	Over    <-chan struct{}
	Refresh func(context.Context) // reads changed rules again; may be nil
	// Apply applies a permission update from an answer about a call. It returns the directories
	// that this adds.
	Apply func(*wire.PermissionUpdate) (added []string)
	// Keep stores the same update for later conversations; see engine.Config. It may be nil.
	Keep func(*wire.PermissionUpdate) (path string, err error)
}

// An Agent is a subagent.
type Agent struct {
	ID, Name string
	ReadOnly bool
	// Modes are those of the agents above it and its own.
	Modes []wire.PermissionMode
}

// A Form is a tool that does not run: its input is the answer of the turn.
type Form interface {
	tool.Tool
	// Fit returns the value that the model meant, or an error that describes why it does not
	// match.
	Fit(given json.RawMessage) (json.RawMessage, error)
}

// An AgentTool is a tool that starts or resumes subagents. Its calls run concurrently, and
// rules can name the agent.
type AgentTool interface {
	tool.Tool
	// AgentType returns the name of the agent that a call starts or resumes, or "".
	AgentType(input json.RawMessage) string
}

// A Call is one tool call. The fields of the first group are set before it starts.
type Call struct {
	ID, Name string
	Input    json.RawMessage // nil if the model wrote something other than a JSON object
	Text     string          // what the model wrote, if it is not a JSON object
	Tool     tool.Tool       // nil if there is no tool of that name
	PromptID string
	UUID     string // of the record that contains the call

	Began  time.Time
	Done   chan struct{}   // closed when Out is set
	Ctx    context.Context // ends with the call, or when it must stop
	Out    *Outcome
	Posted *Outcome // the host's result, which replaces Out; used by the owner only
	Told   bool     // the result was emitted; used by the owner only
	Beats  int      // number of heartbeats emitted; used by the owner only

	order    order // of the calls of a batch
	cancel   context.CancelCauseFunc
	final    bool                   // the host cannot answer it
	resolved map[string]tool.Target // targets of the call's paths, as they were when the call was decided
	receipt  *session.Entry         // of the decision, until it is recorded with the intent
	place    tool.Place             // where its command runs
}

// An order keeps calls that run concurrently in the order of the calls: their PreToolUse hooks begin in it.
type order struct {
	onlyReads *bool // see Batch.reads; nil if not known yet, used by the owner only

	earlier []*Call       // those whose hooks come first
	begun   chan struct{} // closed when the hooks of the call have their input, or will not get any; nil if it never runs
	begin   func()        // closes begun
}

// StartsAgent reports whether the call starts a subagent, which runs concurrently with others.
func (c *Call) StartsAgent() bool {
	_, ok := c.Tool.(AgentTool)
	return ok
}

// ReadOnly reports whether the call has no effects.
func (c *Call) ReadOnly() bool { return c.Tool != nil && c.Tool.Spec().ReadOnly && !c.StartsAgent() }

// server returns the MCP server of the tool, or nil.
func (c *Call) server() *wire.ToolServer {
	if m, ok := c.Tool.(*mcp.Tool); ok {
		return m.Server()
	}
	return nil
}

// An Outcome is the outcome of a call.
type Outcome struct {
	Result    *tool.Result
	Meta      *wire.ToolResultMeta
	Before    []wire.Message  // emitted before the result
	After     []wire.Message  // emitted after the result
	Context   []string        // texts for the model, after the results
	Nested    []*project.File // instructions for files that the call touched
	Denied    bool
	Input     json.RawMessage // as last sent to hosts: with absolute paths, changed by hooks; nil if it was not sent
	Interrupt bool            // the turn must end
	Stop      bool            // a hook ends the turn
	Stopped   bool            // the call was stopped
	Finished  bool            // the call ran to its end
	Deferred  bool            // a hook deferred the call; its result is not sent to the host
	Value     json.RawMessage // the input of a [Form], if it matches
	Misfit    error           // why the input does not match

	hooks []policy.HookAnswer // answers of hooks about the call
}

// InputOf returns the input of the call as last sent to hosts, or else the model's.
func (out *Outcome) InputOf(c *Call) json.RawMessage {
	if out.Input != nil {
		return out.Input
	}
	return c.Input
}

// add adds the answers of hooks about a call.
func (out *Outcome) add(v *hook.Verdict) {
	out.Before = append(out.Before, v.Notes...)
	out.Context = append(append(out.Context, v.Added()...), v.Halt()...)
	out.Stop = out.Stop || v.Stopped
	out.hooks = append(out.hooks, v.Noted...)
}

func failed(err error) *Outcome { return &Outcome{Result: tool.Failed(err), Finished: true} }

// Texts for the model about a call that was stopped.
const (
	// StoppedBefore is for a call that had not started when the turn was stopped.
	StoppedBefore = "The user stopped the turn before this call ran. It did nothing. Stop here and wait for the user."
	// stoppedDenied is for a call whose denial stopped the turn.
	stoppedDenied = "The user denied this call and stopped the turn. The call did not run. Stop here and wait for the user."
	// StoppedWhile is for a call that was running.
	StoppedWhile = "The user stopped the turn while this call ran. It may have run only in part, and its changes so far remain. Stop here and wait for the user."
)

// Rejected returns the outcome of a call that was stopped, with one of the texts above. input
// is as last sent to hosts, or nil if it was not sent.
func Rejected(c *Call, input json.RawMessage, text string) *Outcome {
	return &Outcome{
		Stopped: true, Input: input,
		Result: &tool.Result{Content: wire.Text(text), Structured: "User rejected tool use", IsError: true},
		Meta:   &wire.ToolResultMeta{ID: c.ID, NonExecutionKind: "user-rejected"},
	}
}

// A run is the state of a call in the stages.
type run struct {
	*Runner
	*Call
	Env      *tool.Env // as it was when the call started
	ctx      context.Context
	spec     *tool.Spec
	input    json.RawMessage
	hooks    *hook.Verdict // for PreToolUse
	mode     wire.PermissionMode
	decision policy.Decision
	judged   *policy.Judgement // nil if no model judged the call
	by       string            // who decided: "policy", "judge", "hook", "host" or "nobody"
	allowed  bool
	walled   bool   // it runs behind a working read wall and changes nothing
	changed  func() // records the changes of the call
	began    time.Time
	dir      string // the working directory before
	out      *Outcome
}

// stages handle a call in this order. A stage that returns true ends the call.
var stages = []func(*run) bool{
	(*run).validate,
	(*run).findMistake,
	(*run).callHooks,
	(*run).decideByRules,
	(*run).applyHooks,
	(*run).applyDecision,
	(*run).askJudge,
	(*run).askHost,
	(*run).recordIntent,
	(*run).execute,
	(*run).reportOutcome,
}

// Run decides a call and runs it.
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

// endCall ends a call with an outcome.
func (s *run) endCall(out *Outcome) bool {
	s.out = out
	return true
}

// misused ends a call whose input does not match the tool. It records that the call did not
// run.
func (s *run) misused(err error) bool {
	s.out.Result, s.out.Finished = tool.Failed(err), true
	s.recordDecision(policy.Decision{}, "schema", false)
	return true
}

// prepare validates an input against the schema of its tool and makes the paths in it absolute,
// so that hooks, rules and people see what the tool will open.
func (s *run) prepare(input json.RawMessage) (err error) {
	if _, form := s.Tool.(Form); !form { // a form checks its input itself
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

// validate is the first stage. It checks that the tool exists and that the input matches.
func (s *run) validate() bool {
	if s.Tool == nil {
		return s.endCall(failed(tool.Misuse("Error: No such tool available: %s", s.Name)))
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

// findMistake ends a call that cannot succeed, before hooks and people see it. It does not look at files that rules
// deny or that nobody allowed yet: the next stages decide about these.
func (s *run) findMistake() bool {
	c, ok := s.Tool.(tool.Checker)
	if !ok {
		return false
	}
	access, err := s.Tool.Access(s.Env, s.input)
	if err == nil {
		resolved := files.Targets(s.Env, access)
		d, _, over := s.Decide(s.Tool, s.input, access, resolved)
		if over != nil || d.Behavior == wire.BehaviorDeny || d.Behavior == wire.BehaviorAsk && d.Path != "" {
			return false
		}
		err = c.Check(s.ctx, &tool.Call{ID: s.ID, Input: s.input, Given: givenPath(s), Env: s.Env, Resolved: resolved})
	}
	if _, wrong := errors.AsType[*tool.UseError](err); wrong {
		return s.misused(err)
	}
	return false
}

// fill returns the outcome of a form: hooks see it like any call, and it needs no permission.
func (s *run) fill(form Form) bool {
	s.began = s.Now()
	s.input = s.Input
	if s.input == nil {
		s.input = json.RawMessage(s.Text) // it may still be the intended value as a string
	} else if s.callHooks() {
		return true
	}
	const text = "Structured output provided successfully"
	s.out.Result, s.out.Meta, s.out.Finished = &tool.Result{Content: wire.Text(text), Structured: text}, acceptedMeta(s.Call, "config", ""), true
	if s.out.Value, s.out.Misfit = form.Fit(s.input); s.out.Misfit != nil {
		s.out.Result = tool.Failed(s.out.Misfit)
	}
	if s.Input != nil {
		s.callResultHooks()
	}
	return true
}

// acceptedMeta returns the metadata that name who allowed a call.
func acceptedMeta(c *Call, source, reason string) *wire.ToolResultMeta {
	return &wire.ToolResultMeta{ID: c.ID, PermissionDecision: &wire.PermissionDecision{Decision: "accept", Source: source, ReasonType: reason}}
}

// recordIntent records that a call is about to have effects.
func (s *run) recordIntent() bool {
	if s.ctx.Err() != nil {
		return s.endCall(Rejected(s.Call, s.input, StoppedBefore))
	}
	if s.ReadOnly() {
		return false
	}
	if !s.StartsAgent() { // the calls of a subagent keep their own files
		if err := s.keepFiles(); err != nil {
			return s.endCall(failed(err))
		}
	}
	entries := []*session.Entry{session.Intent(s.ID, s.Name, s.input)}
	if s.receipt != nil {
		entries = []*session.Entry{s.receipt, entries[0]}
	}
	// A command behind the read wall changes nothing, so nothing is lost if its intent and its
	// outcome are not on disk. Its result waits for the disk.
	s.walled = s.place == tool.ReadWall && s.Env.Wall.Ready() == nil
	for _, e := range entries {
		e.Hasty = s.walled
	}
	if err := s.Rec.Place().Append(entries...); err != nil {
		return s.endCall(failed(fmt.Errorf("the call did not run, because %w", err)))
	}
	return false
}

// notBegun is the result of a call whose turn ended after its intent was recorded, if its own result
// is not recorded any more.
var notBegun = json.RawMessage(`"[The turn ended before this call began. It did not run and changed nothing.]"`)

// recordOutcome records that the effects of a call are complete. Its result is recorded later,
// after the hooks; the content is for a process that ends before that.
func (s *run) recordOutcome(failed bool, content json.RawMessage) {
	e := session.Outcome(s.ID, failed, content)
	e.Hasty = s.walled
	if err := s.Rec.Place().Append(e); err != nil {
		s.Log.Error("the outcome of a call could not be recorded", "error", err)
	}
}

// execute runs the tool.
func (s *run) execute() bool {
	s.began, s.dir = s.Now(), s.Env.Cwd()
	call := &tool.Call{ID: s.ID, Input: s.input, Given: givenPath(s), Env: s.Env, Resolved: s.resolved, Place: s.place, Hooks: s.callGuardHooks}
	if e := s.Effort.Load(); e != nil {
		call.Effort = e.Level
	}
	if !s.ReadOnly() && s.ctx.Err() != nil { // the turn may have ended during recording; nothing below waits before the call starts
		s.recordOutcome(true, notBegun)
		return s.endCall(Rejected(s.Call, s.input, StoppedBefore))
	}
	ctx, span := s.Telemetry.Tool(s.ctx, s.spec.Name, s.ID)
	returned := s.ReadOnly()
	defer func() {
		if !returned { // the tool panicked or called runtime.Goexit: none of it runs any more
			s.changed()
			s.recordOutcome(true, nil)
		}
	}()
	result, err := s.Tool.Run(ctx, call)
	returned = true
	failure := ""
	if result != nil && result.IsError {
		failure = "tool_error"
	}
	span.End(err, failure)
	if !s.ReadOnly() {
		s.changed()
		s.recordOutcome(err != nil || failure != "", nil)
	}
	if ctx.Err() != nil && (err != nil || result == nil) {
		return s.endCall(Rejected(s.Call, s.input, StoppedWhile))
	}
	if err != nil {
		result = tool.Failed(err)
		// A call with a wrong input carries no permission decision.
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

// reportOutcome is the last stage. It finds instructions for files that the call touched and
// runs hooks about the result.
func (s *run) reportOutcome() bool {
	if !s.out.Result.IsError {
		s.out.Nested = s.nestedFiles()
	}
	if s.spec.Name != "Read" { // which fits its pictures itself
		content, problems := picture.FitContent(s.out.Result.Content)
		if len(problems) > 0 {
			s.out.Before = append(s.out.Before, picture.LeftOut(fmt.Sprintf("A picture that %s returned was left out: %s.", s.spec.Name, strings.Join(problems, "; "))))
		}
		s.out.Result.Content = content
	}
	s.callResultHooks()
	for _, f := range s.out.Nested {
		in := InstructionsLoaded(f, "nested_traversal")
		in.PromptID, in.Effort, in.TriggerFilePath = s.PromptID, s.Effort.Load(), pathIn(s.input)
		s.callEventHooks("", in, f.Path)
	}
	if now := s.Env.Cwd(); now != s.dir && !s.ReadOnly() && !strings.HasSuffix(s.spec.Name, "Worktree") { // as the official command does
		s.callEventHooks(s.PromptID, &wire.CwdChangedInput{OldCwd: s.dir, NewCwd: now}, "")
	}
	return true
}

// nestedFiles returns the project's instructions for files that the call touched.
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

// pathIn returns the file that the input of a call names, or "".
func pathIn(input json.RawMessage) string {
	var in struct {
		FilePath string `json:"file_path"`
		Notebook string `json:"notebook_path"`
	}
	json.Unmarshal(input, &in)
	return cmp.Or(in.FilePath, in.Notebook)
}

// givenPath returns the path of the call as the model wrote it, unless a hook or the host changed it.
func givenPath(s *run) string {
	if p, ok := s.Tool.(tool.PathTool); ok {
		if abs, err := p.Absolute(s.Env, s.Input); err == nil && pathIn(abs) == pathIn(s.input) {
			return pathIn(s.Input)
		}
	}
	return ""
}

// keepFiles records the files that a call is about to change. s.changed is called after the
// call.
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
		dirs = files.RealRoots(s.Env) // only the working directories; others would be too much
		dirs = dirs[:min(1, len(dirs))]
	}
	if len(paths) == 0 && len(dirs) == 0 {
		return nil
	}
	done, err := keeper.Before(s.ID, paths, dirs)
	if err != nil {
		return fmt.Errorf("the call did not run, because the files that it would change cannot be saved: %w", err)
	}
	s.changed = func() {
		if err := done(); err != nil {
			s.Log.Error("what a call changed could not be recorded", "error", err)
		}
	}
	return nil
}
