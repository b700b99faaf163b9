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
	turn     *turn // the one that runs, or that was left and is not over
	consumer bool  // Messages is being ranged over
	inits    *wire.Init

	results atomic.Int64 // how many results were read, replays not counted
}

// A turn is a prompt and what comes of it, up to its result.
type turn struct {
	uuid  string
	stale int64 // results that had come before its prompt was sent and that were not read yet
	left  bool  // nobody reads it any more
}

// Connect starts an agent and waits until it is ready. ctx bounds the connecting
// only: [Client.Close] ends the connection.
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

// Turn sends a prompt and yields what the agent says up to the result of this
// turn. Messages that came since the last turn are yielded first.
//
// If the loop is left early or ctx ends, the turn is interrupted, and the next one
// starts when it is over. The iterator can be ranged over once. While it is, a
// second turn yields [ErrBusy]; [Client.Send] adds to the one that runs.
//
// Errors are as in [Query].
func (c *Client) Turn(ctx context.Context, prompt string, attach ...wire.Block) iter.Seq2[wire.Message, error] {
	return c.TurnMessage(ctx, promptMessage(prompt, attach))
}

// Run is [Client.Turn] that returns the result alone. If the outcome is not completed,
// both the result and a [*ResultError] are returned.
func (c *Client) Run(ctx context.Context, prompt string, attach ...wire.Block) (*wire.Result, error) {
	return lastResult(c.Turn(ctx, prompt, attach...))
}

// TurnMessage is [Client.Turn] with a message that the caller made.
func (c *Client) TurnMessage(ctx context.Context, m *wire.User) iter.Seq2[wire.Message, error] {
	var used atomic.Bool
	return func(yield func(wire.Message, error) bool) {
		if !once(&used, yield) {
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

// begin waits for a turn that was left to be over and claims the next one.
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
	c.s.touch() // the agent's silence counts from here
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

// drain reads a turn that was left up to its result.
func (c *Client) drain(ctx context.Context, t *turn) error {
	limit := c.s.cfg.controlTimeout
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		m, err := c.pop(bounded)
		switch {
		case err == nil && t.endedBy(m):
			return nil
		case err == nil:
		case ctx.Err() != nil:
			return ctxError(ctx, "turn")
		case bounded.Err() != nil:
			return &TimeoutError{What: "waiting for the interrupted turn to end", After: limit, Frames: c.s.lastFrames()}
		default:
			return c.over(err)
		}
	}
}

// pop returns the next message. All that is read of the queue comes through here.
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

// endedBy reports whether a message is the result of this turn, and not of one
// that the agent started by itself or that another prompt did.
func (t *turn) endedBy(m wire.Message) bool {
	r, ok := m.(*wire.Result)
	if !ok || r.IsReplay {
		return false
	}
	if t.stale > 0 {
		t.stale--
		return false
	}
	ids := promptsOf(r)
	return byPrompt(r) && (len(ids) == 0 || slices.Contains(ids, t.uuid))
}

// byPrompt reports whether a result is of a turn that a prompt started, and not
// the agent itself.
func byPrompt(r *wire.Result) bool {
	return r.Origin == nil || r.Origin.Kind == "" || r.Origin.Kind == "human"
}

// promptsOf returns the uuids of the prompts that a result is for, if the agent
// says so.
func promptsOf(r *wire.Result) []string {
	if len(r.UserMessageUUIDs) == 0 && r.UserMessageUUID != "" {
		return []string{r.UserMessageUUID}
	}
	return r.UserMessageUUIDs
}

func (c *Client) runTurn(ctx context.Context, t *turn, m *wire.User, yield func(wire.Message, error) bool) (err error) {
	// A turn belongs to the trace of whoever started it, or else of who connected.
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

	// The turn is interrupted when ctx ends, whatever the loop is doing, and when
	// the loop is left. Either way that is said before the next prompt can be.
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
	var other *wire.Result // that names another prompt; ours may be answered by it, too
	for {
		m, err := c.popUnlessIdle(ctx, other != nil)
		if err == errIdle {
			over = true
			return resultError(other)
		}
		if err != nil {
			if ctx.Err() != nil && err != io.EOF {
				return ctxError(ctx, "turn")
			}
			over = true
			return c.over(err)
		}
		stale := t.stale
		ended := t.endedBy(m)
		if ended {
			over = true
		} else if r, ok := m.(*wire.Result); ok && !r.IsReplay && stale == 0 && byPrompt(r) {
			other = nil
			if n := r.QueuedTurnCount; n == nil || *n == 0 {
				other = r
			}
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

// resultError returns the error that a result stands for, nil if the turn completed.
func resultError(r *wire.Result) error {
	if r.Outcome() != wire.OutcomeCompleted {
		return &ResultError{r}
	}
	return nil
}

// otherTime is how long an agent whose result names another prompt may be silent before
// that result counts for the turn: agents that merge prompts do not always name all.
const otherTime = 10 * time.Second

// errIdle says that the agent has nothing more to do.
var errIdle = errors.New("the agent is idle")

// popUnlessIdle is pop; if bounded is set, it returns errIdle when the agent is silent
// for a while though nothing keeps it busy.
func (c *Client) popUnlessIdle(ctx context.Context, bounded bool) (wire.Message, error) {
	for bounded {
		wait, cancel := context.WithTimeoutCause(ctx, otherTime, errIdle)
		m, err := c.pop(wait)
		idle := context.Cause(wait) == errIdle
		cancel()
		if err == nil || !idle || err == io.EOF {
			return m, err
		}
		if s := c.s; !s.midTurn.Load() && !s.atWork() && !s.busyTasks() {
			return nil, errIdle
		}
	}
	return c.pop(ctx)
}

// over explains why there are no more messages.
func (c *Client) over(err error) error {
	if err == io.EOF {
		return exitError(c.s.exit, c.s.lastFrames(), ErrNoResult)
	}
	return err
}

// Send sends a message and does not wait for what comes of it. While a turn runs
// the agent adds it to that turn or keeps it for the next one.
func (c *Client) Send(ctx context.Context, m *wire.User) error {
	_, err := c.send(ctx, m)
	return err
}

// send also reports whether the agent has, or may have, the message.
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

// SendToolResult answers a tool call that the host ran itself, for agents that
// leave tools to their host.
func (c *Client) SendToolResult(ctx context.Context, toolUseID string, content wire.Content, isError bool) error {
	return c.Send(ctx, wire.Prompt(wire.Blocks(&wire.ToolResultBlock{ToolUseID: toolUseID, Content: content, IsError: isError})))
}

// Messages yields everything that the agent says, over all turns, until the
// connection ends; for hosts that use [Client.Send] alone. It cannot be combined
// with [Client.Turn]. Leaving the loop interrupts nothing. The error of the last
// pair is [ErrClosed] after [Client.Close].
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
				if c.turn != nil && c.turn.endedBy(m) {
					c.turn = nil // it was left, and here is its end
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

// Close ends the conversation: a turn that runs is interrupted, the agent's input
// ends, and an agent that does not end then is terminated, and at last killed. Close
// returns when the agent is gone and no callback runs any more; it waits for one that
// ignores its context for 5 seconds. It may be called from any goroutine and more than
// once. Inside a callback use [Client.Shutdown] with the context of the callback; in one
// without a context, such as OnWarning, close the client in another goroutine.
func (c *Client) Close() error { return c.Shutdown(context.Background()) }

// Shutdown is [Client.Close] with a bound: when ctx ends the agent is killed. If ctx
// is the context of a callback of this client, or derived from it, only its deadline
// counts, and Shutdown does not wait for callbacks.
func (c *Client) Shutdown(ctx context.Context) error {
	if ctx.Value(sessionKey{}) == c.s {
		// The interrupt makes the agent withdraw what the callback is for.
		deadline, bounded := ctx.Deadline()
		ctx = context.WithoutCancel(ctx)
		if bounded {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, deadline)
			defer cancel()
		}
	}
	if _, bounded := ctx.Deadline(); !bounded {
		// An agent that does not end by itself needs three more steps.
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
