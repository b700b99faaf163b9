// Package hook runs the hooks of settings: commands that receive an event of a conversation on
// their standard input and answer with their exit status and their output. It parses and validates
// the answers of all hooks.
//
// # The answer of a command
//
// With status 0 a command prints nothing, text, or a JSON object of the protocol
// ([wire.HookOutput]); text is context for the model if the event supports that. With status 2 it
// blocks, and standard error is the reason. Anything else is a failure: another status, a missing
// command, a timeout, a malformed object, or too much output. A failure of a hook that can decide
// blocks what the hook guards, unless its settings say otherwise.
//
// # How a command runs
//
// A command runs in the project, in its own process group that is stopped completely, with the
// given environment and CLAUDE_PROJECT_DIR. All hooks of an event run concurrently.
//
// The package starts processes and nothing else. It does not depend on the effect of a decision.
package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/settings"
	"github.com/parley-go/parley/engine/tool/process"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// Timeout is the default timeout of a hook.
const Timeout = 60 * time.Second

// maxOutput is the maximum size of a hook's output, in bytes. More is a failure.
const maxOutput = 1 << 20

// A Runner runs the hooks of a conversation. It is safe for concurrent use.
type Runner struct {
	opts  Options
	hooks []compiled

	ctx    context.Context
	cancel context.CancelFunc
	mu     sync.Mutex
	done   map[int]bool // hooks with Once that have run
	behind int          // goroutines of hooks
	idle   sync.Cond    // signals that behind is less
}

// Options configure how hooks run.
type Options struct {
	Hooks []settings.Hook
	Dir   string   // the project
	Env   []string // "KEY=value"
	// Tell receives messages about running hooks. It may be nil.
	Tell func(wire.Message)
	// All reports every hook, not only those for setup and for the start of a session.
	All bool
	// Fits reports whether the rule of a hook's condition may match its event. If nil, every event
	// matches.
	Fits func(rule string, in wire.HookInput) bool
	// Kinds run hooks that are not commands, by their kind. A function returns what a command
	// would print; refused is the reason if the hook denies.
	Kinds map[string]func(ctx context.Context, h *settings.Hook, input []byte) (said, refused string, err error)
	// Rewake receives the texts that hooks in the background send to the model.
	Rewake func(text string)
	// Late receives the other texts of hooks in the background, for the next request.
	Late func(text string)
}

type compiled struct {
	settings.Hook
	fits Matcher
}

// New returns a runner. [Runner.Close] stops the hooks that it runs.
func New(opts Options) (*Runner, error) {
	r := &Runner{opts: opts, done: map[int]bool{}}
	r.idle.L = &r.mu
	for _, h := range opts.Hooks {
		m, err := Compile(h.Matcher)
		if err != nil && !h.Inactive { // an inactive one guards every call then
			return nil, &settings.Error{Origin: h.Origin, Text: fmt.Sprintf("the matcher %q of a %s hook cannot be read: %v", h.Matcher, h.Event, err),
				Hint: "Write the name of a tool, several as \"Write|Edit\", or a regular expression without look-around."}
		}
		r.hooks = append(r.hooks, compiled{h, m})
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// Close stops hooks that still run in the background.
func (r *Runner) Close() {
	if r == nil {
		return
	}
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.behind > 0 {
		r.idle.Wait()
	}
}

// background runs f in a goroutine that Close waits for. A hook may start while the runner is
// being closed.
func (r *Runner) background(f func()) {
	r.mu.Lock()
	r.behind++
	r.mu.Unlock()
	go func() {
		f()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.behind--
		r.idle.Broadcast()
	}()
}

// Has reports whether there is a hook for an event.
func (r *Runner) Has(event wire.HookEvent) bool {
	return r != nil && slices.ContainsFunc(r.hooks, func(h compiled) bool { return h.Event == event })
}

// Matchers returns the matchers of the hooks for an event.
func (r *Runner) Matchers(event wire.HookEvent) []string {
	var all []string
	if r != nil {
		for _, h := range r.hooks {
			if h.Event == event {
				all = append(all, h.Matcher)
			}
		}
	}
	return all
}

// Run runs the hooks for an event, concurrently, and returns their answers in the order of the
// settings. The subject is what matchers match: for most events the name of a tool.
func (r *Runner) Run(ctx context.Context, in wire.HookInput, subject string) []Answer {
	if !r.Has(in.Event()) {
		return nil
	}
	var jobs []compiled
	seen := map[string]bool{}
	r.mu.Lock()
	for i, h := range r.hooks {
		key := h.Kind + h.Line() + "\x00" + h.Command + "\x00" + strings.Join(h.Args, "\x00") + "\x00" + h.Shell
		if h.Event != in.Event() || !h.fits.Match(subject) || seen[key] || h.Once && r.done[i] {
			continue
		}
		if h.If != "" && r.opts.Fits != nil {
			r.mu.Unlock() // Fits may take a while
			fits := r.opts.Fits(h.If, in)
			r.mu.Lock()
			if !fits || h.Once && r.done[i] {
				continue
			}
		}
		seen[key] = true
		r.done[i] = true
		jobs = append(jobs, h)
	}
	r.mu.Unlock()
	if jobs == nil {
		return nil
	}
	answers := make([]Answer, len(jobs))
	input, err := json.Marshal(in)
	input = append(input, '\n')
	var wg sync.WaitGroup
	for i, h := range jobs {
		if h.Inactive {
			answers[i] = inactive(h.Hook)
			continue
		}
		if err != nil {
			answers[i] = failed(h.Hook, err)
			continue
		}
		wg.Go(func() { answers[i] = r.one(ctx, h.Hook, in.Event(), subject, input) })
	}
	wg.Wait()
	return answers
}

// inactive returns the answer of an untrusted hook: the call needs permission.
func inactive(h settings.Hook) Answer {
	reason := fmt.Sprintf("the hook of %s that guards this call is not trusted and did not run; look at it with \"parley trust\"", h.Origin)
	return settingsAnswer(h, &wire.HookOutput{HookSpecificOutput: &wire.PreToolUseOutput{PermissionDecision: wire.BehaviorAsk, PermissionDecisionReason: reason}})
}

// settingsAnswer returns the answer of a hook of settings.
func settingsAnswer(h settings.Hook, out *wire.HookOutput) Answer {
	return Answer{Name: h.Line(), Source: h.Origin.String(), Output: out}
}

// failed returns the answer of a hook that failed.
func failed(h settings.Hook, err error) Answer {
	a := settingsAnswer(h, nil)
	a.Err = err
	switch h.OnFailure {
	case "block":
		a.Block = true
	case "ask":
		a.Ask = true
	case "":
		a.Block = settings.Decides(h.Event)
	}
	return a
}

// one runs one hook.
func (r *Runner) one(ctx context.Context, h settings.Hook, event wire.HookEvent, subject string, input []byte) Answer {
	name := string(event)
	if subject != "" {
		name += ":" + subject
	}
	id := ""
	tell := r.opts.Tell != nil && (r.opts.All && !unreported[event] || event == wire.EventSessionStart || event == wire.EventSetup)
	var told struct {
		ID     string          `json:"session_id"`
		Effort wire.HookEffort `json:"effort"`
	}
	json.Unmarshal(input, &told)
	if tell {
		id = session.NewID()
		r.opts.Tell(&wire.HookStarted{HookID: id, HookName: name, HookEvent: event, SessionID: told.ID})
	}
	if h.Spec != nil {
		report := func(res result, a Answer) {
			if tell {
				r.opts.Tell(response(id, name, event, told.ID, res, a))
			}
		}
		if h.Async {
			r.background(func() { r.other(r.ctx, h, event, input, report) })
			return settingsAnswer(h, nil)
		}
		return r.other(ctx, h, event, input, report)
	}
	run, cancel := ctx, context.CancelFunc(func() {})
	if h.Async {
		run, cancel = context.WithCancel(r.ctx)
	}
	c, err := r.start(run, h, input, told.Effort.Level)
	if err == nil && tell {
		c.progress = func(stdout string) {
			r.opts.Tell(&wire.HookProgress{HookID: id, HookName: name, HookEvent: event, Stdout: stdout, Output: stdout, SessionID: told.ID})
		}
	}
	finish := func() Answer {
		defer cancel()
		var a Answer
		var res result
		if err != nil {
			res = result{err: fmt.Errorf("it does not start: %w", err), code: -1}
		} else {
			res = c.wait()
		}
		a = parseAnswer(h, event, res)
		a.Withdrawn = res.err != nil && errors.Is(run.Err(), context.Canceled)
		if tell {
			r.opts.Tell(response(id, name, event, told.ID, res, a))
		}
		return a
	}
	if h.Async && err == nil {
		r.background(func() {
			a := finish()
			if !h.Rewake {
				r.deliverLate(a)
			} else if r.opts.Rewake != nil && a.Output != nil && a.Output.Decision == wire.DecisionBlock {
				r.opts.Rewake(fmt.Sprintf("The hook %s of the user says:\n%s", name, a.Output.Reason))
			}
		})
		return settingsAnswer(h, nil)
	}
	if err == nil {
		// A hook may declare in its first line that it runs asynchronously.
		c.onAsync = func(limit time.Duration) { c.limit(limit); c.detach(r.ctx) }
		done := make(chan Answer, 1)
		r.background(func() {
			a := finish()
			select {
			case <-c.asyncs:
				r.deliverLate(a)
			default:
				done <- a
			}
		})
		select {
		case a := <-done:
			return a
		case <-c.asyncs:
			return settingsAnswer(h, nil)
		}
	}
	return finish()
}

// deliverLate passes on the texts of a hook that ended in the background.
func (r *Runner) deliverLate(a Answer) {
	if a.Output == nil || r.opts.Late == nil {
		return
	}
	if text := strings.TrimSpace(a.Output.SystemMessage + "\n" + a.Output.Context()); text != "" {
		r.opts.Late(text)
	}
}

// other runs a hook that is not a command.
func (r *Runner) other(ctx context.Context, h settings.Hook, event wire.HookEvent, input []byte, report func(result, Answer)) Answer {
	limit := h.Timeout
	if limit <= 0 {
		limit = Timeout
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	res := result{code: -1}
	if run := r.opts.Kinds[h.Kind]; run == nil {
		res.err = fmt.Errorf("hooks of the type %s cannot run here", h.Kind)
	} else {
		said, refused, err := run(bounded, &h, input)
		switch {
		case err != nil:
			res.err, res.late, res.cancelled = err, bounded.Err() != nil && ctx.Err() == nil, ctx.Err() != nil
			if res.late {
				res.err = fmt.Errorf("it did not answer within %v", limit)
			}
		case refused != "" && h.Kind == "prompt" && event != wire.EventStop && event != wire.EventSubagentStop:
			// As in the official command, the turn ends. A call is denied too.
			res.code, res.stderr, res.stops = 2, refused, true
		case refused != "":
			res.code, res.stderr = 2, refused
		default:
			res.code, res.stdout = 0, said
		}
	}
	a := parseAnswer(h, event, res)
	a.Withdrawn = res.err != nil && errors.Is(ctx.Err(), context.Canceled)
	if h.Kind == "http" && res.code == 0 {
		res.code = http.StatusOK
	}
	report(res, a)
	return a
}

// response returns the message about the end of a hook.
func response(id, name string, event wire.HookEvent, session string, res result, a Answer) *wire.HookResponse {
	m := &wire.HookResponse{HookID: id, HookName: name, HookEvent: event, Stdout: res.stdout, Stderr: res.stderr, Output: res.stdout + res.stderr,
		SessionID: session, Outcome: "success"}
	if res.code >= 0 {
		code := res.code
		m.ExitCode = &code
	}
	switch {
	case res.cancelled:
		m.Outcome = "cancelled"
	case a.Err != nil || res.code != 0 && res.code != http.StatusOK:
		m.Outcome = "error"
	}
	if a.Err != nil && m.Output == "" {
		m.Output = a.Err.Error()
	}
	if a.Output != nil && a.Output.SuppressOutput {
		m.Output, m.Stdout = "", ""
	}
	return m
}

// unreported are the events whose hooks hosts do not see begin and end, as with the official command.
var unreported = map[wire.HookEvent]bool{wire.EventInstructionsLoaded: true, wire.EventPreCompact: true, wire.EventPostCompact: true, wire.EventSessionEnd: true}

// A result is the outcome of a command.
type result struct {
	code           int // -1 if it never ran or was stopped
	stdout, stderr string
	err            error // why it did not end by itself
	late           bool
	cancelled      bool
	stops          bool // the turn ends, because of stderr
}

// parseAnswer parses the answer of a command.
func parseAnswer(h settings.Hook, event wire.HookEvent, res result) Answer {
	if res.err != nil {
		a := failed(h, res.err)
		a.Late = res.late
		return a
	}
	switch res.code {
	case 0:
	case 2:
		reason := res.stderr
		if strings.TrimSpace(reason) == "" {
			reason = res.stdout
		}
		if strings.TrimSpace(reason) == "" {
			reason = "the hook denied it and gave no reason"
		}
		plain := reason
		if h.Kind != "agent" {
			reason = fmt.Sprintf("[%s]: %s", h.Line(), reason)
		}
		out := &wire.HookOutput{Decision: wire.DecisionBlock, Reason: reason}
		if res.stops {
			out.Continue, out.StopReason = new(false), plain
			if event != wire.EventPreToolUse {
				out.Decision, out.Reason = "", ""
			}
		}
		if event == wire.EventPermissionRequest {
			out = &wire.HookOutput{HookSpecificOutput: &wire.PermissionRequestOutput{Decision: &wire.PermissionResult{Behavior: wire.BehaviorDeny, Message: reason}}}
		}
		a := settingsAnswer(h, out)
		a.Exited = true
		return a
	default:
		text := fmt.Sprintf("it ended with status %d", res.code)
		if said := strings.TrimSpace(res.stderr); said != "" {
			text += ": " + clip(said)
		}
		return failed(h, errors.New(text))
	}
	said := strings.TrimSpace(res.stdout)
	if first, rest, _ := strings.Cut(said, "\n"); isAsync(first) != nil {
		said = strings.TrimSpace(rest)
	}
	if said == "" {
		return settingsAnswer(h, nil)
	}
	if !strings.HasPrefix(said, "{") {
		return settingsAnswer(h, contextOutput(event, said))
	}
	out := new(wire.HookOutput)
	if err := json.Unmarshal([]byte(said), out); err != nil {
		return failed(h, fmt.Errorf("its output is not a JSON object: %w", err))
	}
	if err := Check(out, event); err != nil {
		// The decision of the hook is unknown, so it must not count as an approval.
		return failed(h, fmt.Errorf("its answer is invalid: %w", err))
	}
	if out.Async {
		return settingsAnswer(h, nil)
	}
	return settingsAnswer(h, out)
}

// contextOutput returns the meaning of plain text: context for the model, if the event supports
// that.
func contextOutput(event wire.HookEvent, text string) *wire.HookOutput {
	switch event {
	case wire.EventUserPromptSubmit:
		return &wire.HookOutput{HookSpecificOutput: &wire.UserPromptSubmitOutput{AdditionalContext: text}}
	case wire.EventWorktreeCreate:
		return &wire.HookOutput{HookSpecificOutput: &wire.WorktreeCreateOutput{WorktreePath: text}}
	case wire.EventSetup:
		return &wire.HookOutput{HookSpecificOutput: &wire.SetupOutput{AdditionalContext: text}}
	case wire.EventSessionStart:
		return &wire.HookOutput{HookSpecificOutput: &wire.SessionStartOutput{AdditionalContext: text}}
	}
	return nil
}

func clip(s string) string {
	if r := []rune(s); len(r) > 2000 {
		return string(r[:2000]) + "…"
	}
	return s
}

// A command is a running hook.
type command struct {
	ctx    context.Context
	tree   *process.Tree
	mark   string
	stderr *process.Spool
	out    *output
	timer  *time.Timer
	bound  time.Duration
	asyncs chan struct{}

	progress func(stdout string)
	onAsync  func(limit time.Duration)

	mu       sync.Mutex
	detached context.Context
	changed  chan struct{}
}

// start starts the command of a hook.
func (r *Runner) start(ctx context.Context, h settings.Hook, input []byte, effort wire.Effort) (*command, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	args, err := r.args(h)
	if err != nil {
		return nil, err
	}
	c := &command{ctx: ctx, mark: process.NewMark(), bound: h.Timeout, asyncs: make(chan struct{}), changed: make(chan struct{}, 1)}
	if c.bound <= 0 {
		c.bound = Timeout
	}
	c.stderr = process.NewSpool(nil, maxOutput, nil)
	env := append(slices.Clone(r.opts.Env), "CLAUDE_PROJECT_DIR="+r.opts.Dir)
	if effort != "" {
		env = append(env, "CLAUDE_EFFORT="+string(effort))
	}
	tree, feed, printed, err := process.StartPiped(&process.Command{Args: args, Dir: r.opts.Dir, Env: env, Mark: c.mark, Output: c.stderr})
	if err != nil {
		return nil, err
	}
	c.tree = tree
	go func() {
		feed.Write(input) // a hook need not read it
		feed.Close()
	}()
	c.out = &output{ended: make(chan struct{}), first: make(chan struct{})}
	go c.out.read(printed)
	c.timer = time.NewTimer(c.bound)
	return c, nil
}

// args returns the command line of a hook.
func (r *Runner) args(h settings.Hook) ([]string, error) {
	var words []string
	switch {
	case h.Args != nil:
		words = append([]string{h.Command}, h.Args...)
	case h.Shell == "powershell":
		words = []string{"pwsh", "-NoProfile", "-Command", h.Command}
		if runtime.GOOS == "windows" {
			words[0] = "powershell.exe"
		}
	case h.Shell != "":
		words = []string{h.Shell, "-c", h.Command}
	case runtime.GOOS == "windows":
		words = []string{"cmd.exe", "/d", "/s", "/c", h.Command}
	default:
		return []string{"/bin/sh", "-c", h.Command}, nil
	}
	path, err := r.lookPath(words[0])
	words[0] = path
	return words, err
}

// lookPath finds a program in the PATH of the hook's environment. A relative one is in the
// project.
func (r *Runner) lookPath(name string) (string, error) {
	if filepath.IsAbs(name) {
		return name, nil
	}
	if strings.ContainsAny(name, `/\`) {
		return filepath.Join(r.opts.Dir, name), nil
	}
	path := ""
	for _, kv := range r.opts.Env {
		if k, v, _ := strings.Cut(kv, "="); k == "PATH" || runtime.GOOS == "windows" && strings.EqualFold(k, "PATH") {
			path = v
		}
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return found, nil
		}
	}
	return name, fmt.Errorf("there is no program %q on the PATH", name)
}

// limit sets another timeout from now on.
func (c *command) limit(d time.Duration) {
	if d > 0 {
		c.timer.Reset(d)
		c.mu.Lock()
		c.bound = d
		c.mu.Unlock()
	}
}

// detach lets the command outlive the event it was started for.
func (c *command) detach(ctx context.Context) {
	c.mu.Lock()
	c.detached = ctx
	c.mu.Unlock()
	c.changed <- struct{}{}
	close(c.asyncs)
}

// wait waits for the end of the command and stops the processes that it left running.
func (c *command) wait() result {
	defer c.timer.Stop()
	ctx, first := c.ctx, c.out.first
	res := result{code: -1}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	told := 0
	for waiting := true; waiting; {
		select {
		case <-c.tree.Exited():
			waiting = false
		case <-c.timer.C:
			c.mu.Lock()
			bound := c.bound
			c.mu.Unlock()
			res.late, waiting = true, false
			res.err = fmt.Errorf("it did not answer within %v", bound)
		case <-ctx.Done():
			res.cancelled, waiting = true, false
			res.err = fmt.Errorf("it was ended: %w", context.Cause(ctx))
		case <-c.out.full():
			waiting = false
			res.err = fmt.Errorf("it printed more than %d MB", maxOutput>>20)
		case <-first:
			first = nil
			if limit, ok := c.out.async(); ok && c.onAsync != nil {
				c.onAsync(limit)
			}
		case <-c.changed:
			c.mu.Lock()
			ctx = c.detached
			c.mu.Unlock()
		case <-tick.C:
			if c.progress == nil {
				continue
			}
			if text := c.out.text(); len(text) > told {
				told = len(text)
				c.progress(text)
			}
		}
	}
	if res.err == nil {
		c.tree.WaitOutput(c.stderr)
		select { // the rest of its output
		case <-c.out.ended:
		case <-time.After(100 * time.Millisecond):
		}
	}
	c.tree.Stop() // and processes that it left running
	process.Sweep(c.mark)
	if res.err == nil {
		res.code = c.tree.Code()
		select {
		case <-c.out.full():
			res.err, res.code = fmt.Errorf("it printed more than %d MB", maxOutput>>20), -1
		default:
		}
	}
	res.stdout, res.stderr = c.out.text(), string(c.stderr.Head(maxOutput))
	return res
}

// An output stores the output of a command, up to a limit.
type output struct {
	mu    sync.Mutex
	b     bytes.Buffer
	over  chan struct{} // closed when the limit is reached
	ended chan struct{}
	first chan struct{} // closed with the first line
}

func (o *output) full() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over == nil {
		o.over = make(chan struct{})
	}
	return o.over
}

func (o *output) read(r io.ReadCloser) {
	defer close(o.ended)
	defer r.Close()
	buf := make([]byte, 32<<10)
	line, full := false, false
	o.full()
	for {
		n, err := r.Read(buf)
		o.mu.Lock()
		if room := maxOutput - o.b.Len(); n > room {
			o.b.Write(buf[:max(room, 0)])
			if !full {
				full = true
				close(o.over)
			}
		} else {
			o.b.Write(buf[:n])
		}
		if !line && bytes.IndexByte(o.b.Bytes(), '\n') >= 0 {
			line = true
			close(o.first)
		}
		o.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// async reports whether the first line declares the hook as asynchronous, and its timeout.
func (o *output) async() (time.Duration, bool) {
	line, _, _ := strings.Cut(o.text(), "\n")
	said := isAsync(line)
	if said == nil {
		return 0, false
	}
	return time.Duration(said.Timeout * float64(time.Millisecond)), true
}

// A detaching is the first line of a hook that runs asynchronously.
type detaching struct {
	Async   bool    `json:"async"`
	Timeout float64 `json:"asyncTimeout"` // in milliseconds
}

// isAsync parses the first line of a hook. It returns nil if the hook does not run asynchronously.
func isAsync(line string) *detaching {
	var said detaching
	if json.Unmarshal([]byte(line), &said) != nil || !said.Async {
		return nil
	}
	return &said
}
