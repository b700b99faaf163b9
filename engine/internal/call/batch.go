package call

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// A Batch is the tool calls of one answer. Each is a goroutine. One without effects starts
// at once, unless an earlier one has effects; one with effects waits until the message is
// complete and everything before it is done.
//
// Its methods are called by the owner of the conversation.
type Batch struct {
	Calls []*Call
	// Ended receives after a call has ended or is to stop. It may stand for several.
	Ended chan struct{}

	runner   *Runner
	released chan struct{} // closed when calls with effects may start
	once     sync.Once
	ctx      context.Context
	cancel   context.CancelCauseFunc
}

// NewBatch returns a batch without calls. They stop when ctx ends.
func (r *Runner) NewBatch(ctx context.Context) *Batch {
	b := &Batch{runner: r, Ended: make(chan struct{}, 1), released: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancelCause(ctx)
	return b
}

// Release lets calls with effects start.
func (b *Batch) Release() { b.once.Do(func() { close(b.released) }) }

// Abandon stops what runs and lets nothing else start.
func (b *Batch) Abandon() {
	b.cancel(errors.New("the call was abandoned"))
	b.Release()
}

// Start begins a call.
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
		if (!c.ReadOnly() || !other.ReadOnly()) && (!c.StartsAgent() || !other.StartsAgent()) {
			before = append(before, other)
		}
	}
	b.Calls = append(b.Calls, c)
	go func() {
		defer close(c.Done)
		defer c.cancel(nil)
		defer func() {
			if c.Out == nil { // the tool ended its goroutine
				c.Out = failed(errors.New("the tool failed in an unexpected way: it never returned"))
			}
		}()
		stopped := false // by the answer to an earlier one
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

// Add adds a call that does not run: its result is known.
func (b *Batch) Add(c *Call, result *tool.Result) {
	c.Began, c.Done, c.final = b.runner.Now(), make(chan struct{}), true
	close(c.Done)
	c.Ctx, c.cancel = context.WithCancelCause(context.Background())
	c.cancel(nil)
	c.Out = &Outcome{Result: result, Finished: true}
	b.Calls = append(b.Calls, c)
}

// errAnswered is why a call is stopped whose result came from the host.
var errAnswered = errors.New("the host answered the call")

// Answer gives a call the result that the host has for it. It reports false if there is no
// such call, or its result was emitted.
//
// A call that waits, for its turn or for a permission, does not run; one that runs is
// stopped and its own result dropped, as is one that is done and not emitted yet. The first
// answer counts.
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
