package tool

import (
	"context"
	"path/filepath"
	"slices"
	"sync"

	"github.com/parley-go/parley/engine/sandbox"
)

// An Env is where the tools of one conversation work: its directories, its
// environment, what they remember from call to call. It is made by the engine and
// safe for concurrent use: its fields never change once calls run, see [Env.With].
// Tools read nothing of the process they run in.
type Env struct {
	Roots []string // directories that the conversation may work in, absolute; the first is where it began
	// Outer are the directories that a conversation in a worktree worked in before. Rules are still
	// about them, and nothing outside of Roots may be touched; nil means none.
	Outer   []string
	Home    string   // the user's home; empty if there is none
	Environ []string // the environment of commands, "KEY=value"
	Dir     string   // a directory of the session for what tools put aside; made when needed

	// Sandbox is where commands run. Nil means that they are not confined.
	Sandbox *sandbox.Sandbox
	// Wall confines commands that only proof allows. Nil means none.
	Wall *sandbox.Wall

	// Hidden reports whether a file or directory, by its absolute path, must not
	// be seen by tools that look at many: Glob and Grep leave it out. target is
	// the file that the path leads to, if the caller knows that; a target without
	// an Info is one that the caller did not open. Hidden may be nil, and is
	// called from several goroutines.
	Hidden func(path string, target *Target) bool
	// HiddenPatterns returns the same as absolute patterns, for walls. It may be nil,
	// and is called from several goroutines.
	HiddenPatterns func() []string

	// Model puts a question to a model beside the conversation; see [Env.Ask]. It may
	// be nil, and is called from several goroutines.
	Model func(ctx context.Context, q Question) (*Reply, error)

	// Schedules keep prompts for later. Nil means that nothing can be scheduled.
	Schedules Schedules

	// Notify is called with what happens beside the calls: a background task that
	// started or ended. It may be nil. It must not block nor ask the task, which may hold
	// its lock.
	Notify func(Event)

	// Agent is the id of the subagent that works here, empty for the conversation
	// itself.
	Agent string

	mu     sync.Mutex
	cwd    string
	values map[any]any
	origin *Env   // holds what this one remembers; nil means this one
	shared *Env   // holds the values that subagents share; nil means this one
	tasks  *Tasks // shared with subagents
	ending
}

// ending is what happens when a conversation ends.
type ending struct {
	closed  bool
	closers []func()
}

// An Event is something that happens beside the calls: [TaskStarted],
// [TaskUpdated] or [TaskEnded]. Those of one task are sent one after the other.
type Event any

// With returns the same place with other directories and another environment. Both
// remember the same, and a call that runs keeps the one that it began with.
func (e *Env) With(roots, environ []string) *Env {
	outer := e.Outer
	e = e.first()
	return &Env{Roots: roots, Outer: outer, Home: e.Home, Environ: environ, Dir: e.Dir, Sandbox: e.Sandbox, Wall: e.Wall, Hidden: e.Hidden, HiddenPatterns: e.HiddenPatterns,
		Model: e.Model, Schedules: e.Schedules, Notify: e.Notify, Agent: e.Agent, origin: e, shared: e.shared}
}

// In returns the same place bound to a worktree: its directory takes the place of the first root and
// of those inside of the repository.
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

// Judged returns the directories that rules are about. If bound is not 0, only the first bound of
// them may be touched.
func (e *Env) Judged() (roots []string, bound int) {
	if e.Outer == nil {
		return e.Roots, 0
	}
	return append(slices.Clone(e.Roots), e.Outer...), len(e.Roots)
}

// first returns the Env that holds what e remembers.
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

// SetCwd changes the working directory for the calls that follow.
func (e *Env) SetCwd(dir string) {
	e = e.first()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cwd = dir
}

// Value returns what a package keeps for the conversation under its key, made by
// init at first.
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

// Shared is [Value] for what a package keeps for the conversation and all its
// subagents together.
func Shared[T any](e *Env, key any, init func() T) T {
	if e.shared != nil {
		e = e.shared
	}
	return Value(e, key, init)
}

// Tasks returns the work of the conversation that goes on beside the calls.
func (e *Env) Tasks() *Tasks {
	e = e.first()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.tasks == nil {
		e.tasks = &Tasks{}
	}
	return e.tasks
}

// Child returns what a subagent works in: the same directories and environment,
// and the same list of tasks, with a working directory and a memory of its own.
// The caller closes it.
func (e *Env) Child(agent string) *Env {
	tasks, cwd, shared := e.Tasks(), e.Cwd(), e.first()
	if e.shared != nil {
		shared = e.shared
	}
	return &Env{Roots: slices.Clone(e.Roots), Outer: e.Outer, Home: e.Home, Environ: slices.Clone(e.Environ), Dir: e.Dir, Sandbox: e.Sandbox, Wall: e.Wall, Hidden: e.Hidden, HiddenPatterns: e.HiddenPatterns, Model: e.Model, Schedules: e.Schedules,
		Agent: agent, cwd: cwd, tasks: tasks, shared: shared}
}

// OnClose has f called when the conversation ends, the last one first. If it has
// ended already f is called at once.
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

// Close ends what the tools left running. It returns when that is done, within a
// few seconds, and may be called more than once.
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

// Send tells of an event, if anybody listens.
func (e *Env) Send(event Event) {
	if e.Notify != nil {
		e.Notify(event)
	}
}
