package parley

import (
	"context"
	"errors"
	"io"
	"iter"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	sessions "github.com/parley-go/parley/session"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// Query asks an agent and yields what it says, the result last but for what an
// agent may add behind it. attach is sent along with the prompt: pictures,
// documents, more text.
//
// The agent starts when the iterator is ranged over, which can be done once. It
// ends with the loop: when the agent is done, when the loop is left, or when ctx
// ends.
//
// An error is the last pair. If the result's [wire.Outcome] is not completed, it
// is a [*ResultError]; if the agent ends before the result, an [*ExitError]. A line
// that cannot be understood is no error but a [*wire.BadLine] message.
func Query(ctx context.Context, prompt string, opts *Options, attach ...wire.Block) iter.Seq2[wire.Message, error] {
	first := promptMessage(prompt, attach)
	return queryAll(ctx, func(yield func(*wire.User) bool) { yield(first) }, false, opts)
}

// QueryStream asks an agent several things on one connection: each prompt is sent
// as soon as prompts yields it, while earlier ones may still be worked on. It is
// otherwise as [Query]; the agent ends when the prompts have ended and been
// answered. The sequence runs in a goroutine of its own, which is not waited for:
// if it waits for something, it should wait for ctx as well.
func QueryStream(ctx context.Context, prompts iter.Seq[*wire.User], opts *Options) iter.Seq2[wire.Message, error] {
	return queryAll(ctx, prompts, true, opts)
}

// Run asks an agent and returns the result. If the outcome is not completed, both
// the result and a [*ResultError] are returned.
func Run(ctx context.Context, prompt string, opts *Options, attach ...wire.Block) (*wire.Result, error) {
	return lastResult(Query(ctx, prompt, opts, attach...))
}

// lastResult ranges over messages and returns the last result.
func lastResult(messages iter.Seq2[wire.Message, error]) (*wire.Result, error) {
	var last *wire.Result
	for m, err := range messages {
		if err != nil {
			return last, err
		}
		if r, ok := m.(*wire.Result); ok && !r.IsReplay {
			last = r
		}
	}
	return last, nil
}

// promptMessage makes the message for a prompt.
func promptMessage(prompt string, attach []wire.Block) *wire.User {
	if len(attach) == 0 {
		return wire.Prompt(wire.Text(prompt))
	}
	blocks := slices.Clone(attach)
	if prompt != "" {
		blocks = append([]wire.Block{&wire.TextBlock{Text: prompt}}, blocks...)
	}
	return wire.Prompt(wire.Blocks(blocks...))
}

func queryAll(ctx context.Context, prompts iter.Seq[*wire.User], many bool, opts *Options) iter.Seq2[wire.Message, error] {
	var used atomic.Bool
	return func(yield func(wire.Message, error) bool) {
		if !once(&used, yield) {
			return
		}
		cfg, err := newConfig(opts)
		if err != nil {
			yield(nil, err)
			return
		}
		ctx, see, end := cfg.observe(ctx)
		cfg.handOn(ctx)
		q := &query{many: many, open: map[string]bool{}}
		cfg.turnRunning = q.turnRunning
		err = open(ctx, cfg, func(s *session) {
			q.s = s
			s.onResult, s.onTasksDone = q.resulted, q.tasksDone
			s.under(ctx)
		})
		if err == nil {
			err = q.run(ctx, prompts, func(m wire.Message, err error) bool {
				see(m)
				return yield(m, err)
			})
		}
		end(err)
		if err != nil {
			yield(nil, err)
		}
	}
}

// A query is a session that ends by itself.
type query struct {
	s    *session
	many bool // prompts, so that it matters which of them a result is for

	mu      sync.Mutex
	sent    int             // prompts
	results int             // of our prompts
	open    map[string]bool // uuids of prompts that no result has named
	named   bool            // results name the prompts they are for
	drained bool            // the last result said that no prompt waits
	allSent bool            // no more prompts
	over    bool            // the input was ended, or all is over
	quiet   *time.Timer
}

// run yields everything. It returns the error that is to be the last pair, and
// nil if the loop was left or all is well. The session is closed when it returns.
func (q *query) run(ctx context.Context, prompts iter.Seq[*wire.User], yield func(wire.Message, error) bool) (err error) {
	s := q.s
	watched := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(watched)
		q.stop(ctxError(ctx, "query"))
	})
	defer func() {
		q.stop(ErrClosed)
		if !unwatch() {
			<-watched
		}
	}()

	if err := s.initialize(); err != nil {
		// An agent that cannot start may be gone before initialize is sent.
		// Its own error comes first.
		gone := time.NewTimer(s.cfg.exitGrace)
		defer gone.Stop()
		select {
		case <-s.readDone:
		case <-gone.C:
			return err
		case <-ctx.Done():
			return ctxError(ctx, "query")
		}
	}
	feed, stopFeed := context.WithCancel(s.ctx)
	defer stopFeed()
	go q.feed(feed, prompts)

	var last *wire.Result
	again := false // a turn has begun since
	for {
		m, err := s.pop(ctx)
		switch {
		case err == nil:
		case err != io.EOF && ctx.Err() != nil:
			return ctxError(ctx, "query")
		default:
			return q.verdict(err, last, again)
		}
		switch m := m.(type) {
		case *wire.Result:
			if !m.IsReplay {
				last, again = m, false
			}
		case *wire.Init, *wire.Assistant, *wire.StreamEvent:
			again = true
		}
		if !yield(m, nil) {
			return nil
		}
	}
}

// stop ends the session. It interrupts a running turn.
func (q *query) stop(cause error) {
	q.mu.Lock()
	q.over = true
	if q.quiet != nil {
		q.quiet.Stop()
	}
	q.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), q.s.cfg.exitGrace)
	defer cancel()
	q.s.shutdown(ctx, cause)
}

// feed sends the prompts.
func (q *query) feed(ctx context.Context, prompts iter.Seq[*wire.User]) {
	returned := false
	defer func() {
		if p := recover(); p != nil {
			q.s.fail(&CallbackError{Callback: "the sequence of prompts", Panic: p, Stack: debug.Stack()})
		} else if !returned {
			q.s.fail(&CallbackError{Callback: "the sequence of prompts", Err: errGoexit})
		}
	}()
	if len(q.s.cfg.needs) > 0 && q.s.awaitInitialize(ctx) != nil {
		returned = true // without callbacks nothing is to be done
		return
	}
	for m := range prompts {
		if ctx.Err() != nil {
			break
		}
		if m == nil {
			continue
		}
		m = q.s.outgoing(m)
		if q.many && m.UUID == "" {
			c := *m
			c.UUID = sessions.NewID()
			m = &c
		}
		q.s.touch() // the agent's silence counts from here
		q.mu.Lock()
		q.sent++
		q.drained = false
		if m.UUID != "" {
			q.open[m.UUID] = true
		}
		q.mu.Unlock()
		if _, err := q.s.sendPrompt(ctx, m); err != nil {
			if ctx.Err() == nil {
				q.s.log.Warn("a prompt could not be sent", "error", err)
				q.s.owe()
			}
			break
		}
	}
	returned = true
	q.mu.Lock()
	q.allSent = true
	q.mu.Unlock()
	q.settle(false)
}

// resulted is called by the reader for each result.
func (q *query) resulted(r *wire.Result) {
	q.mu.Lock()
	if byPrompt(r) {
		q.results++
		q.drained = r.QueuedTurnCount != nil && *r.QueuedTurnCount == 0
		for _, id := range promptsOf(r) {
			q.named = true
			delete(q.open, id)
		}
	}
	q.mu.Unlock()
	q.settle(false)
}

// tasksDone is called by the reader when no task of the agent runs any more.
func (q *query) tasksDone() { q.settle(true) }

// turnRunning reports whether the agent owes an answer: not while the host thinks
// about its next prompt.
func (q *query) turnRunning() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.allSent || !q.answered()
}

// answered reports whether there is a result for each prompt that was sent.
func (q *query) answered() bool {
	if q.named {
		return len(q.open) == 0
	}
	return q.results >= q.sent || q.drained
}

// settleTime is how long an agent has to show that it goes on, when that cannot be
// known: it may have taken several prompts in one turn, or have something to say
// about a task that has ended.
const settleTime = 3 * time.Second

// settle ends the input when nothing can need it any more: all prompts are sent
// and answered and no task of the agent runs. An agent finishes what it has begun
// when its input ends, but nobody can answer its questions any more.
func (q *query) settle(taskEnded bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.over || !q.allSent:
	case q.sent == 0: // nothing was asked
		q.over = true
		q.s.out.end()
	case q.results == 0 || q.s.busyTasks():
	case q.answered() && !taskEnded:
		q.finishInput()
	case q.quiet == nil:
		heard := q.s.heard.Load()
		q.quiet = time.AfterFunc(settleTime, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			now := q.s.heard.Load()
			switch {
			case q.over:
			case now != heard || q.s.midTurn.Load() || q.s.atWork() || q.s.busyTasks():
				heard = now
				q.quiet.Reset(settleTime)
			case q.answered():
				q.finishInput()
			default:
				// More may come, so the agent is left to end by itself.
				q.over = true
				q.s.out.end()
			}
		})
	}
}

// finishInput ends the input and gives the agent a bounded time to end, too: one
// that is silent for so long is done with.
func (q *query) finishInput() {
	q.over = true
	s := q.s
	s.out.end()
	s.running.Go(func() {
		for {
			heard := s.heard.Load()
			select {
			case <-s.readDone:
				return
			case <-time.After(s.cfg.exitGrace):
			}
			if s.heard.Load() == heard && !s.atWork() && !s.busyTasks() {
				break
			}
		}
		// All that matters was said: this is no error.
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.exitGrace)
		defer cancel()
		s.conn.Close(ctx)
	})
}

// verdict turns the end of the session into the error of the query. again says
// that a turn had begun after the last result.
func (q *query) verdict(err error, last *wire.Result, again bool) error {
	if err != io.EOF {
		return err
	}
	s := q.s
	// Ended by itself, or by the end of its input, and not well.
	crashed := (s.exit.Code > 0 || s.exit.Signal != "") && s.exit.Step <= transport.StepEOF
	switch {
	case last == nil || again && crashed:
		return exitError(s.exit, s.lastFrames(), ErrNoResult)
	case last.Outcome() != wire.OutcomeCompleted:
		return &ResultError{last}
	case crashed:
		return exitError(s.exit, s.lastFrames(), errors.New("after its result"))
	}
	return nil
}
