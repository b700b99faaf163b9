package tool

import (
	"context"
	"path/filepath"
	"slices"
	"sync"

	"github.com/parley-go/parley/engine/sandbox"
)

// An Env is the environment of the tools of one conversation: its directories, its environment
// variables, and its state between calls. The engine creates it. It is safe for concurrent use: its
// fields never change once calls run, see [Env.With]. Tools use nothing of the process that they run
// in.
type Env struct {
	Roots []string // working directories, absolute; the conversation started in the first one
	// Outer are the previous directories of a conversation that is in a worktree. Rules still apply
	// to them, and nothing outside of Roots may be touched; nil means none.
	Outer   []string
	Home    string   // the user's home directory; may be empty
	Environ []string // the environment of commands, "KEY=value"
	Dir     string   // a directory of the session for files of tools; created when needed

	// Sandbox confines commands. If nil, they are not confined.
	Sandbox *sandbox.Sandbox
	// Wall confines commands that only proof allows. Nil means none.
	Wall *sandbox.Wall

	// Hidden reports whether a file or directory, by its absolute path, must not be visible to tools
	// that search many: Glob and Grep leave it out. target is the file that the path resolves to, if
	// the caller knows it; a target without an Info was not opened by the caller. Hidden may be nil,
	// and is called from several goroutines.
	Hidden func(path string, target *Target) bool
	// HiddenPatterns returns the same files as absolute patterns, for walls. It may be nil, and is
	// called from several goroutines.
	HiddenPatterns func() []string

	// Model sends a question to a model beside the conversation; see [Env.Ask]. It may be nil, and
	// is called from several goroutines.
	Model func(ctx context.Context, q Question) (*Reply, error)

	// Unsaved returns the text of a file in the editor of the user, who may not have saved it, and
	// reports whether there is one. If save is set, the editor stores the text first. It may be nil, and
	// is called from several goroutines. Tools call it only for files that they may access.
	Unsaved func(ctx context.Context, path string, save bool) (text string, ok bool)

	// Schedules stores prompts for later. If nil, nothing can be scheduled.
	Schedules Schedules

	// Notify is called with events of background tasks, such as a start or an end. It may be nil. It
	// must not block or call the task, which may hold its lock.
	Notify func(Event)

	// Agent is the id of the subagent that uses this Env, or "" for the conversation itself.
	Agent string

	mu     sync.Mutex
	cwd    string
	values map[any]any
	tasks  *Tasks // shared with subagents
	holders
	ending
}

// holders are the Envs that hold the state; nil means this one.
type holders struct {
	origin *Env
	shared *Env // the values that subagents share
}

// ending handles the end of a conversation.
type ending struct {
	closed  bool
	closers []func()
}

// An Event is something that happens beside the calls: [TaskStarted], [TaskUpdated] or [TaskEnded].
// Events of one task are sent in order.
type Event any

// With returns an Env with other directories and environment variables. Both share the same state,
// and a running call keeps the one that it started with.
func (e *Env) With(roots, environ []string) *Env {
	outer := e.Outer
	e = e.first()
	return &Env{Roots: roots, Outer: outer, Home: e.Home, Environ: environ, Dir: e.Dir, Sandbox: e.Sandbox, Wall: e.Wall, Hidden: e.Hidden, HiddenPatterns: e.HiddenPatterns,
		Model: e.Model, Unsaved: e.Unsaved, Schedules: e.Schedules, Notify: e.Notify, Agent: e.Agent, holders: holders{e, e.shared}}
}

// In returns an Env that is bound to a worktree: its directory replaces the first root and those
// inside of the repository.
func (e *Env) In(dir, repository string) *Env {
	roots := []string{dir}
	for i, r := range e.Roots {
		if rel, err := filepath.Rel(repository, r); i > 0 && (err != nil || !filepath.IsLocal(rel)) {
			roots = append(roots, r)
		}
	}
	in := e.With(roots, e.Environ)
	in.Outer = append(slices.Clone(e.Roots), e.Outer...)
	return in
}

// Judged returns the directories that rules apply to. If bound is not 0, only the first bound of
// them may be touched.
func (e *Env) Judged() (roots []string, bound int) {
	if e.Outer == nil {
		return e.Roots, 0
	}
	return append(slices.Clone(e.Roots), e.Outer...), len(e.Roots)
}

// first returns the Env that holds the state of e.
func (e *Env) first() *Env {
	if e.origin != nil {
		return e.origin
	}
	return e
}

// Cwd returns the working directory.
func (e *Env) Cwd() string {
	e = e.first()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cwd == "" && len(e.Roots) > 0 {
		return e.Roots[0]
	}
	return e.cwd
}

// SetCwd changes the working directory for later calls.
func (e *Env) SetCwd(dir string) {
	e = e.first()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cwd = dir
}

// Value returns the value that a package stores for the conversation under its key. init creates it
// on first use.
func Value[T any](e *Env, key any, init func() T) T {
	e = e.first()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.values == nil {
		e.values = map[any]any{}
	}
	v, ok := e.values[key]
	if !ok {
		v = init()
		e.values[key] = v
	}
	return v.(T)
}

// Shared is [Value] for a value that the conversation and all its subagents share.
func Shared[T any](e *Env, key any, init func() T) T {
	if e.shared != nil {
		e = e.shared
	}
	return Value(e, key, init)
}

// Tasks returns the background tasks of the conversation.
func (e *Env) Tasks() *Tasks {
	e = e.first()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tasks == nil {
		e.tasks = &Tasks{}
	}
	return e.tasks
}

// Child returns the Env of a subagent: the same directories, environment variables and list of
// tasks, with its own working directory and state. The caller closes it.
func (e *Env) Child(agent string) *Env {
	tasks, cwd, shared := e.Tasks(), e.Cwd(), e.first()
	if e.shared != nil {
		shared = e.shared
	}
	return &Env{Roots: slices.Clone(e.Roots), Outer: e.Outer, Home: e.Home, Environ: slices.Clone(e.Environ), Dir: e.Dir, Sandbox: e.Sandbox, Wall: e.Wall, Hidden: e.Hidden, HiddenPatterns: e.HiddenPatterns, Model: e.Model, Unsaved: e.Unsaved, Schedules: e.Schedules,
		Agent: agent, cwd: cwd, tasks: tasks, holders: holders{shared: shared}}
}

// OnClose registers f to be called when the conversation ends, in reverse order. If it has already
// ended, f is called at once.
func (e *Env) OnClose(f func()) {
	e = e.first()
	e.mu.Lock()
	if !e.closed {
		e.closers = append(e.closers, f)
		e.mu.Unlock()
		return
	}
	e.mu.Unlock()
	f()
}

// Close stops everything that the tools left running. It returns when that is done, within a few
// seconds, and may be called more than once.
func (e *Env) Close() {
	e = e.first()
	e.mu.Lock()
	e.closed = true
	closers := e.closers
	e.closers = nil
	e.mu.Unlock()
	for i := len(closers) - 1; i >= 0; i-- {
		closers[i]()
	}
}

// Send sends an event to Notify, if it is set.
func (e *Env) Send(event Event) {
	if e.Notify != nil {
		e.Notify(event)
	}
}
