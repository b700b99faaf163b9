package call

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// A Batch holds the tool calls of one answer. Each runs in its own goroutine. A call
// without effects starts at once, unless an earlier one has effects. A call with effects
// waits until the message is complete and everything before it is done. A command that only
// reads also waits for the complete message, but not for others that only read. A call that
// fails does not affect the others.
//
// Its methods are called by the owner of the conversation.
type Batch struct {
	Calls []*Call
	// Ended receives after a call has ended or must stop. One value may stand for several
	// calls.
	Ended chan struct{}

	runner   *Runner
	released chan struct{} // closed when calls with effects may start
	once     sync.Once
	held     map[*Call]time.Time // since when Ready holds back a result
	ctx      context.Context
	cancel   context.CancelCauseFunc
}

// NewBatch returns an empty batch. Its calls stop when ctx ends.
func (r *Runner) NewBatch(ctx context.Context) *Batch {
	b := &Batch{runner: r, Ended: make(chan struct{}, 1), released: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	return b
}

// Release lets calls with effects start.
func (b *Batch) Release() { b.once.Do(func() { close(b.released) }) }

// Abandon stops the running calls and prevents others from starting.
func (b *Batch) Abandon() {
	b.cancel(errors.New("the call was abandoned"))
	b.Release()
	b.runner.abandoned = append(b.runner.Abandoned(), b.Calls...)
}

// Abandoned returns the calls of abandoned batches that may still run and whose results nobody
// waits for. The owner of the conversation calls it.
func (r *Runner) Abandoned() []*Call {
	r.abandoned = slices.DeleteFunc(r.abandoned, func(c *Call) bool {
		select {
		case <-c.Done:
			return true
		default:
			return c.Told
		}
	})
	return r.abandoned
}

// AddUnstopped adds a call that did not stop in time.
func (r *Runner) AddUnstopped(c *Call) { r.unstopped = append(r.Unstopped(), c) }

// Unstopped returns the calls that did not stop in time and still run. They need the log for
// their outcomes. The owner of the conversation calls it.
func (r *Runner) Unstopped() []*Call {
	r.unstopped = slices.DeleteFunc(r.unstopped, func(c *Call) bool {
		select {
		case <-c.Done:
			return true
		default:
			return false
		}
	})
	return r.unstopped
}

// Start starts a call.
func (b *Batch) Start(c *Call) {
	c.Began, c.Done = b.runner.Now(), make(chan struct{})
	c.Ctx, c.cancel = context.WithCancelCause(b.ctx)
	context.AfterFunc(c.Ctx, func() {
		select {
		case b.Ended <- struct{}{}:
		default:
		}
	})
	_, c.final = c.Tool.(Form)
	var before []*Call
	for _, other := range b.Calls {
		if (!b.reads(c) || !b.reads(other)) && (!c.StartsAgent() || !other.StartsAgent()) {
			before = append(before, other)
		}
	}
	c.order.begun = make(chan struct{})
	c.order.begin = sync.OnceFunc(func() { close(c.order.begun) })
	for _, other := range b.Calls {
		// Calls without effects do not wait for those that wait for the end of the message, and some are never run.
		if other.order.begun != nil && (other.ReadOnly() || !c.ReadOnly()) {
			c.order.earlier = append(c.order.earlier, other)
		}
	}
	b.Calls = append(b.Calls, c)
	go func() {
		defer c.order.begin()
		defer close(c.Done)
		defer c.cancel(nil)
		defer func() {
			if c.Out == nil { // the tool called runtime.Goexit
				c.Out = failed(errors.New("the tool failed in an unexpected way: it never returned"))
			}
		}()
		stopped := false // because an earlier call was answered with an interrupt
		for _, other := range before {
			select {
			case <-other.Done:
				stopped = stopped || other.Out.Interrupt
			case <-c.Ctx.Done():
			}
		}
		if !c.ReadOnly() {
			select {
			case <-b.released:
			case <-c.Ctx.Done():
			}
		}
		if stopped || c.Ctx.Err() != nil {
			c.Out = Rejected(c, nil, StoppedBefore)
			return
		}
		c.Out = b.runner.Run(c.Ctx, c)
	}()
}

// reads reports whether a call has no effects, or is a command that only reads and stays in
// its directory. Such calls run concurrently.
func (b *Batch) reads(c *Call) bool {
	if c.ReadOnly() {
		return true
	}
	if c.Tool == nil || c.Tool.Spec().Name != "Bash" {
		return false
	}
	if c.order.onlyReads == nil {
		env := b.runner.View().Env
		access, err := c.Tool.Access(env, c.Input)
		c.order.onlyReads = new(err == nil && len(access) == 1 && policy.OnlyReads(access[0].Command, env.Cwd(), env.Home))
	}
	return *c.order.onlyReads
}

// holdTime is how long the result of a command that only reads waits for those of earlier ones.
const holdTime = time.Second

// Ready returns the index of the first call whose result can be emitted, or -1. The result of a
// command that only reads waits a moment for those of earlier ones: they run concurrently, and
// what ends at about the same time is reported in order. If hold is not 0, look again after that time.
func (b *Batch) Ready() (index int, hold time.Duration) {
	var waits bool // an earlier command that only reads is running
	for i, c := range b.Calls {
		reads := c.order.onlyReads != nil && *c.order.onlyReads
		switch {
		case c.Told:
		case c.Ctx.Err() == nil: // its context ends with the call, or when it must stop
			waits = waits || reads
		case !reads || !waits:
			return i, 0
		default:
			now := b.runner.Now()
			if b.held == nil {
				b.held = map[*Call]time.Time{}
			}
			if b.held[c].IsZero() {
				b.held[c] = now
			}
			if left := holdTime - now.Sub(b.held[c]); left <= 0 {
				return i, 0
			} else if hold == 0 || left < hold {
				hold = left
			}
		}
	}
	return -1, hold
}

// Add adds a call that does not run, with its result.
func (b *Batch) Add(c *Call, result *tool.Result) {
	c.Began, c.Done, c.final = b.runner.Now(), make(chan struct{}), true
	close(c.Done)
	c.Ctx, c.cancel = context.WithCancelCause(context.Background())
	c.cancel(nil)
	c.Out = &Outcome{Result: result, Finished: true}
	b.Calls = append(b.Calls, c)
}

// errAnswered is the cause for stopping a call whose result came from the host.
var errAnswered = errors.New("the host answered the call")

// Answer sets the result of a call to one from the host. It returns false if there is no
// such call, or if its result was emitted.
//
// A call that waits for its turn or for permission does not run. One that is running is
// stopped, and its own result is dropped. The same holds for one that is done but not
// emitted yet. Only the first answer is used.
func (b *Batch) Answer(result *wire.ToolResultBlock, structured json.RawMessage) bool {
	for _, c := range b.Calls {
		if c.ID != result.ToolUseID || c.Told || c.Posted != nil || c.final {
			continue
		}
		out := &Outcome{Finished: true, Result: &tool.Result{Content: result.Content, IsError: result.IsError, Structured: result.Content.String()}}
		if len(structured) > 0 && string(structured) != "null" {
			out.Result.Structured = structured
		}
		c.Posted = out
		c.cancel(errAnswered)
		return true
	}
	return false
}
