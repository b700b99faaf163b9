// Package crew runs the subagents and background tasks of a conversation: the tools that start
// subagents and send them messages, their permissions, and the reports of their ends.
//
// It does not depend on conversations: a [Parent] is its interface to the one that starts
// subagents, a [Child] to the one that a subagent runs.
package crew

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
	"go.opentelemetry.io/otel/trace"
)

// Grace is how long a tool may take to stop after its turn has ended.
const Grace = 5 * time.Second

// A Parent is a conversation that starts subagents. It is safe for concurrent use.
type Parent struct {
	Env          *tool.Env
	Log          *slog.Logger
	Now          func() time.Time
	Depth        int  // 0 for the topmost conversation
	NoBackground bool // the conversation always waits for subagents
	Watch        *Watch
	Top          *Top

	Context func() context.Context // context of the conversation
	Do      func(func()) bool      // runs a function in the goroutine that owns the conversation
	View    func() *call.View
	Spent   func() bool // reports whether the budget is used up
	// Spawn creates the conversation of a subagent and sets those fields of s that are
	// documented as its own.
	Spawn func(ctx context.Context, s *Subagent, background bool) (*Child, error)
}

// A Top is the topmost conversation, which all subagents of a session share.
type Top struct {
	Emit  func(wire.Message)
	View  func() *call.View
	Place func() *recorder.Place
	// SetAsking reports that a subagent has an open permission request, or no longer has.
	SetAsking func(bool)
	// AddDenials adds denied calls to the result of the turn.
	AddDenials func([]*wire.PermissionDenial)
	// PartHistory reads the log of a subagent of a session; see engine.Config. It may be nil.
	PartHistory func(session, part string) (*session.History, error)

	Stats   Stats
	running atomic.Int64 // number of subagents
}

// A Child is the conversation of a subagent.
type Child struct {
	// Run runs the conversation for a prompt until it ends. It calls recorded, which may be
	// nil, once the prompt is recorded.
	Run func(ctx context.Context, text string, recorded func(*wire.User))
	// Tell queues a prompt. It returns false if the conversation has ended.
	Tell func(text string) bool
	// LastUsage returns the usage of the last answer. It is called by the goroutine that owns
	// the conversation.
	LastUsage func() *wire.Usage
	// Unstopped returns the calls that still run after Run has returned.
	Unstopped func() []*call.Call
	// Watch follows the tasks of the conversation.
	Watch *Watch
}

// A Place is a worktree that a subagent works in.
type Place struct {
	Path, Branch string
	Tidy         func() bool // removes it, unless something would be lost; reports whether it was removed
}

// Grace returns how long the tools of the conversation may take to stop. It is shorter in
// subagents, so that their parents have time left.
func (p *Parent) Grace() time.Duration { return Grace / time.Duration(1+p.Depth) }

// newSubagent prepares a subagent. It is called in the goroutine of the call, whose context is
// ctx. If again is not nil, the subagent resumes that run.
func (p *Parent) newSubagent(ctx context.Context, tc *tool.Call, def *agents.Definition, in *Input, background bool, again *Earlier) (*Subagent, error) {
	var id [8]byte
	rand.Read(id[:])
	s := &Subagent{ID: "a" + hex.EncodeToString(id[:]), Def: def, Asked: in, Again: again, parent: p, call: tc.ID, began: p.Now()}
	s.moved, s.done = make(chan struct{}), make(chan struct{})
	if again != nil {
		s.ID, s.call, s.memory = again.id, again.call, again.memory
	}
	var err error
	if s.Narrow, err = NewNarrowing(def); err != nil {
		return nil, err
	}
	if s.child, err = p.Spawn(ctx, s, background); err != nil {
		s.closeLog(nil)
		return nil, err
	}
	s.info = tool.TaskInfo{
		ID: s.ID, RunID: tool.NewRunID(), ToolUseID: tc.ID, Kind: tool.TaskAgent, AgentType: def.Name, Agent: p.Env.Agent,
		Description: in.Description, Background: background, Status: tool.TaskRunning, Started: s.began,
	}
	if s.info.Description == "" {
		s.info.Description = def.Name
	}
	if strings.HasPrefix(tc.ID, ForkedCommand) { // no call of the model
		s.info.ToolUseID = ""
	}
	s.openSpool()
	// The subagent may outlive the call, but its span is part of the call's.
	s.ctx, s.cancel = context.WithCancelCause(trace.ContextWithSpan(p.Context(), trace.SpanFromContext(ctx)))
	return s, nil
}

// EndAll stops the subagents of the conversation, which is ending, and waits for them.
func (p *Parent) EndAll() {
	var wg sync.WaitGroup
	for _, t := range p.Env.Tasks().All() {
		if s, ok := t.(*Subagent); ok && s.parent == p {
			wg.Go(func() { s.end("system", ErrEnded) })
		}
	}
	wg.Wait()
}

// Interrupt ends the contexts of the subagents that the turn waits for and, unless spare is
// set, of all in the background. It does not wait for them to end.
func (p *Parent) Interrupt(cause error, spare bool) {
	for _, t := range p.Env.Tasks().All() {
		s, ok := t.(*Subagent)
		if !ok {
			continue
		}
		switch info := s.Info(); {
		case info.Status != tool.TaskRunning:
		case !info.Background && s.parent == p:
			s.stop("user", cause)
		case info.Background && !spare:
			p.Env.Tasks().MarkStopped(info.ID)
			s.stop("user", errStopped)
			go s.Stop()
		}
	}
}

// ReportAll reports the events of the tasks of all running subagents.
func (p *Parent) ReportAll() {
	for _, t := range p.Env.Tasks().All() {
		s, ok := t.(*Subagent)
		if !ok {
			continue
		}
		s.mu.Lock()
		child := s.child
		s.mu.Unlock()
		if child != nil {
			child.Watch.reportLater()
		}
	}
}

// AllHooks runs the hooks of a host and those of an agent, which may be nil, concurrently.
func AllHooks(ctx context.Context, host call.Host, own func(ctx context.Context, in wire.HookInput, subject string) []hook.Answer, in wire.HookInput, subject, toolUseID string) []hook.Answer {
	if own == nil {
		return host.Hooks(ctx, in, subject, toolUseID)
	}
	answers := make(chan []hook.Answer, 1)
	go func() { answers <- own(ctx, in, subject) }()
	return append(host.Hooks(ctx, in, subject, toolUseID), <-answers...)
}

// A Pending counts operations in progress. Unlike with a [sync.WaitGroup], others may begin
// during a wait.
type Pending struct {
	mu   sync.Mutex
	n    int
	zero chan struct{} // closed when n is 0; nil if none has begun yet
}

// Begin counts one more operation.
func (p *Pending) Begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n++; p.n == 1 {
		p.zero = make(chan struct{})
	}
}

// End counts one operation less.
func (p *Pending) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n--; p.n == 0 {
		close(p.zero)
	}
}

// None returns a channel that is closed once all operations so far have ended.
func (p *Pending) None() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.zero == nil {
		p.zero = make(chan struct{})
		close(p.zero)
	}
	return p.zero
}
