package parley

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	sessions "github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
	"go.opentelemetry.io/otel/trace"
)

// A Client is a conversation with an agent: several turns on one connection. It is
// safe for concurrent use; one turn runs at a time.
type Client struct {
	s *session

	mu       sync.Mutex
	turn     *turn // the running turn, or one that was left and has not ended
	consumer bool  // Messages is being ranged over
	inits    *wire.Init

	results atomic.Int64 // number of results read, not counting replays
}

// A turn is a prompt and everything that follows from it, up to its result.
type turn struct {
	uuid  string
	stale int64 // results that had arrived before its prompt was sent and were not read yet
	left  bool  // the caller no longer reads it

	other *wire.Result // a result that names another prompt; it may answer this one, too
}

// Connect starts an agent and waits until it is ready. ctx bounds only the connecting:
// [Client.Close] ends the connection.
func Connect(ctx context.Context, opts *Options) (*Client, error) {
	cfg, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	c := &Client{}
	cfg.turnRunning = c.turnRunning
	cfg.handOn(ctx)
	err = open(ctx, cfg, func(s *session) {
		c.s = s
		s.under(ctx)
	})
	if err != nil {
		return nil, err
	}
	err = c.s.initialize()
	if err == nil {
		err = c.s.awaitInitialize(ctx)
	}
	if err != nil {
		closing, cancel := context.WithTimeout(context.Background(), cfg.exitGrace)
		defer cancel()
		c.s.shutdown(closing, err)
		return nil, err
	}
	return c, nil
}

func (c *Client) turnRunning() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.turn != nil
}

// Turn sends a prompt and yields the agent's messages up to the result of this turn. It
// first yields messages that arrived since the last turn.
//
// If the loop ends early or ctx ends, Turn interrupts the turn, and the next one starts
// when it has ended. The iterator can be ranged over once. Meanwhile a second turn
// yields [ErrBusy]; [Client.Send] adds to the running turn.
//
// Errors are as in [Query].
func (c *Client) Turn(ctx context.Context, prompt string, attach ...wire.Block) iter.Seq2[wire.Message, error] {
	return c.TurnMessage(ctx, promptMessage(prompt, attach))
}

// Run is like [Client.Turn] but returns only the result. If the outcome is not
// completed, it returns both the result and a [*ResultError].
func (c *Client) Run(ctx context.Context, prompt string, attach ...wire.Block) (*wire.Result, error) {
	return lastResult(c.Turn(ctx, prompt, attach...))
}

// TurnMessage is like [Client.Turn] with a complete message as the prompt.
func (c *Client) TurnMessage(ctx context.Context, m *wire.User) iter.Seq2[wire.Message, error] {
	var used atomic.Bool
	return func(yield func(wire.Message, error) bool) {
		if !once(&used, yield) {
			return
		}
		if m == nil {
			yield(nil, errNoMessage)
			return
		}
		t, err := c.begin(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		if err := c.runTurn(ctx, t, m, yield); err != nil {
			yield(nil, err)
		}
	}
}

// begin waits until a turn that was left has ended, and claims the next one.
func (c *Client) begin(ctx context.Context) (*turn, error) {
	if ctx.Err() != nil {
		return nil, ctxError(ctx, "turn")
	}
	c.mu.Lock()
	if c.consumer || c.turn != nil && !c.turn.left {
		c.mu.Unlock()
		return nil, ErrBusy
	}
	old := c.turn
	t := &turn{uuid: sessions.NewID()}
	c.s.touch() // the idle timeout starts here
	c.turn = t
	c.mu.Unlock()
	if old == nil {
		return t, nil
	}
	if err := c.drain(ctx, old); err != nil {
		c.mu.Lock()
		c.turn = old
		c.mu.Unlock()
		return nil, err
	}
	return t, nil
}

// drain reads an abandoned turn up to its result.
func (c *Client) drain(ctx context.Context, t *turn) error {
	limit := c.s.cfg.controlTimeout
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		m, err := c.popUnlessIdle(bounded, t.other != nil)
		switch {
		case err == nil && t.endedBy(m), err == errIdle:
			return nil
		case err == nil:
		case ctx.Err() != nil:
			return ctxError(ctx, "turn")
		case bounded.Err() != nil && t.other != nil && c.s.isIdle():
			return nil
		case bounded.Err() != nil:
			return &TimeoutError{What: "waiting for the interrupted turn to end", After: limit, Frames: c.s.lastFrames()}
		default:
			return c.over(err)
		}
	}
}

// pop returns the next message. All reads from the queue go through it.
func (c *Client) pop(ctx context.Context) (wire.Message, error) {
	m, err := c.s.pop(ctx)
	switch m := m.(type) {
	case *wire.Init:
		c.mu.Lock()
		c.inits = m
		c.mu.Unlock()
	case *wire.Result:
		if !m.IsReplay {
			c.results.Add(1)
		}
	}
	return m, err
}

// endedBy reports whether a message is the result of this turn, and not of a turn that
// the agent or another prompt started.
func (t *turn) endedBy(m wire.Message) bool {
	r, ok := m.(*wire.Result)
	if !ok || r.IsReplay {
		return false
	}
	if t.stale > 0 {
		t.stale--
		return false
	}
	if !byPrompt(r) {
		return false
	}
	if ids := promptsOf(r); len(ids) == 0 || slices.Contains(ids, t.uuid) {
		return true
	}
	t.other = nil
	if n := r.QueuedTurnCount; n == nil || *n == 0 {
		t.other = r
	}
	return false
}

// byPrompt reports whether a result is of a turn that was started by a prompt, and not
// by the agent itself.
func byPrompt(r *wire.Result) bool {
	return r.Origin == nil || r.Origin.Kind == "" || r.Origin.Kind == "human"
}

// promptsOf returns the uuids of the prompts that a result answers, if the agent names
// them.
func promptsOf(r *wire.Result) []string {
	if len(r.UserMessageUUIDs) == 0 && r.UserMessageUUID != "" {
		return []string{r.UserMessageUUID}
	}
	return r.UserMessageUUIDs
}

func (c *Client) runTurn(ctx context.Context, t *turn, m *wire.User, yield func(wire.Message, error) bool) (err error) {
	// A turn belongs to the trace of the caller that started it, or else of the caller
	// that connected.
	if parent := c.s.span.Load(); parent != nil && !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, *parent)
	}
	ctx, see, end := c.s.cfg.observe(ctx)
	defer func() { end(err) }()
	if before := c.s.span.Load(); c.s.cfg.telemetry != nil {
		c.s.under(ctx)
		defer c.s.span.Store(before)
	}
	prompt := *m
	if prompt.UUID == "" {
		prompt.UUID = t.uuid
	}
	t.uuid = prompt.UUID
	t.stale = c.s.results.Load() - c.results.Load()

	// Interrupt the turn when ctx ends, whatever the loop is doing, and when the loop
	// ends early. In both cases the interrupt is sent before the next prompt can be.
	interrupt := sync.OnceFunc(c.s.interruptAndForget)
	interrupted := make(chan struct{})
	over := false
	defer func() {
		if !over {
			interrupt()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if over {
			c.turn = nil
		} else {
			t.left = true
		}
	}()
	if taken, err := c.send(ctx, &prompt); err != nil {
		over = !taken
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		interrupt()
		close(interrupted)
	})
	defer func() {
		if !stop() {
			<-interrupted
		}
	}()
	for {
		m, err := c.popUnlessIdle(ctx, t.other != nil)
		if err == errIdle {
			over = true
			return resultError(t.other)
		}
		if err != nil {
			if ctx.Err() != nil && err != io.EOF {
				return ctxError(ctx, "turn")
			}
			over = true
			return c.over(err)
		}
		ended := t.endedBy(m)
		if ended {
			over = true
		}
		see(m)
		if !yield(m, nil) {
			return nil
		}
		if ended {
			return resultError(m.(*wire.Result))
		}
	}
}

// resultError returns the error for a result, nil if the turn completed.
func resultError(r *wire.Result) error {
	if r.Outcome() != wire.OutcomeCompleted {
		return &ResultError{r}
	}
	return nil
}

// otherTime is how long an agent whose result names another prompt may be silent before
// that result ends the turn: agents that merge prompts do not always name all of them.
const otherTime = 10 * time.Second

// errIdle means that the agent has nothing more to do.
var errIdle = errors.New("the agent is idle")

// popUnlessIdle is like pop, but if bounded is set, it returns errIdle when the agent is
// silent for a while although nothing keeps it busy.
func (c *Client) popUnlessIdle(ctx context.Context, bounded bool) (wire.Message, error) {
	for bounded {
		wait, cancel := context.WithTimeoutCause(ctx, otherTime, errIdle)
		m, err := c.pop(wait)
		idle := context.Cause(wait) == errIdle
		cancel()
		if err == nil || !idle || err == io.EOF {
			return m, err
		}
		if c.s.isIdle() {
			return nil, errIdle
		}
	}
	return c.pop(ctx)
}

// over returns the error that explains why there are no more messages.
func (c *Client) over(err error) error {
	if err == io.EOF {
		return exitError(c.s.exit, c.s.lastFrames(), ErrNoResult)
	}
	return err
}

// errNoMessage is the error for a nil message.
var errNoMessage = errors.New("parley: the message is nil")

// Send sends a message and does not wait for a response. While a turn is running, the
// agent adds the message to that turn or keeps it for the next one.
func (c *Client) Send(ctx context.Context, m *wire.User) error {
	if m == nil {
		return errNoMessage
	}
	_, err := c.send(ctx, m)
	return err
}

// send is like Send and also reports whether the agent has, or may have, received the
// message.
func (c *Client) send(ctx context.Context, m *wire.User) (taken bool, err error) {
	taken, err = c.s.sendPrompt(ctx, c.s.outgoing(m))
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return taken, ctxError(ctx, "send")
	}
	return taken, c.s.writeErr(err)
}

// SendToolResult sends the result of a tool call that the host ran itself, for agents
// that leave tools to their host.
func (c *Client) SendToolResult(ctx context.Context, toolUseID string, content wire.Content, isError bool) error {
	return c.Send(ctx, wire.Prompt(wire.Blocks(&wire.ToolResultBlock{ToolUseID: toolUseID, Content: content, IsError: isError})))
}

// Messages yields everything that the agent sends, over all turns, until the connection
// ends. It is for hosts that use only [Client.Send], and cannot be combined with
// [Client.Turn]. Leaving the loop interrupts nothing. The error of the last pair is
// [ErrClosed] after [Client.Close].
func (c *Client) Messages(ctx context.Context) iter.Seq2[wire.Message, error] {
	return func(yield func(wire.Message, error) bool) {
		c.mu.Lock()
		if c.consumer || c.turn != nil && !c.turn.left {
			c.mu.Unlock()
			yield(nil, ErrBusy)
			return
		}
		c.consumer = true
		c.mu.Unlock()
		defer func() {
			c.mu.Lock()
			c.consumer = false
			c.mu.Unlock()
		}()
		for {
			m, err := c.pop(ctx)
			switch {
			case err == nil:
				c.mu.Lock()
				if c.turn != nil && (c.turn.endedBy(m) || c.turn.other != nil) {
					c.turn = nil // it was left, and this is its end
				}
				c.mu.Unlock()
			case err == io.EOF:
				err = exitError(c.s.exit, c.s.lastFrames(), nil)
			case ctx.Err() != nil:
				err = ctxError(ctx, "messages")
			}
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

// Close ends the conversation. It interrupts a running turn and ends the agent's input.
// It terminates an agent that does not end by itself, and kills it in the end. Close
// returns when the agent is gone and no callback runs any more; it waits up to 5 seconds
// for a callback that ignores its context. It may be called from any goroutine and more
// than once. Inside a callback use [Client.Shutdown] with the context of the callback.
// In a callback without a context, such as OnWarning, close the client in another
// goroutine.
func (c *Client) Close() error { return c.Shutdown(context.Background()) }

// Shutdown is like [Client.Close] with a bound: when ctx ends it kills the agent. If ctx
// is the context of a callback of this client, or derived from it, only its deadline
// counts, and Shutdown does not wait for callbacks.
func (c *Client) Shutdown(ctx context.Context) error {
	if ctx.Value(sessionKey{}) == c.s {
		// The interrupt makes the agent withdraw the request that the callback handles.
		deadline, bounded := ctx.Deadline()
		ctx = context.WithoutCancel(ctx)
		if bounded {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline)
			defer cancel()
		}
	}
	if _, bounded := ctx.Deadline(); !bounded {
		// Ending an agent that does not end by itself takes three more steps.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 4*c.s.cfg.exitGrace+time.Second)
		defer cancel()
	}
	err := c.s.shutdown(ctx, ErrClosed)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("parley: close: %w", err)
	}
	return err
}
