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

// Query sends a prompt to an agent and yields the agent's messages. The result comes
// last, except for messages that an agent may send after it. attach is sent along with
// the prompt: pictures, documents, more text.
//
// The agent starts when the iterator is ranged over, which can be done once. It ends
// with the loop: when the agent is done, when the loop ends early, or when ctx ends.
//
// An error is the last pair. If the result's [wire.Outcome] is not completed, the error
// is a [*ResultError]; if the agent ends before the result, an [*ExitError]. A line
// that cannot be parsed is not an error but a [*wire.BadLine] message.
func Query(ctx context.Context, prompt string, opts *Options, attach ...wire.Block) iter.Seq2[wire.Message, error] {
	first := promptMessage(prompt, attach)
	return queryAll(ctx, func(yield func(*wire.User) bool) { yield(first) }, false, opts)
}

// QueryStream sends several prompts to an agent on one connection: it sends each prompt
// as soon as prompts yields it, even while earlier ones are in progress. Otherwise it
// is like [Query]; the agent ends when all prompts have been sent and answered. The
// sequence runs in its own goroutine, and QueryStream does not wait for it: if the
// sequence blocks, it should also wait for ctx.
func QueryStream(ctx context.Context, prompts iter.Seq[*wire.User], opts *Options) iter.Seq2[wire.Message, error] {
	return queryAll(ctx, prompts, true, opts)
}

// Run sends a prompt to an agent and returns the result. If the outcome is not
// completed, it returns both the result and a [*ResultError].
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

// promptMessage returns the message for a prompt.
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
	many bool // there are several prompts, so that it matters which one a result is for

	mu      sync.Mutex
	sent    int             // how many prompts were sent
	results int             // how many results of our prompts arrived
	open    map[string]bool // uuids of prompts that no result has named
	named   bool            // results name their prompts
	drained bool            // the last result reported that no prompt is queued
	allSent bool            // there are no more prompts
	over    bool            // the input was ended, or the query has ended
	quiet   *time.Timer
}

// run yields all messages. It returns the error for the last pair, or nil if the loop
// ended early or nothing failed. The session is closed when it returns.
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
		// An agent that cannot start may be gone before initialize is sent. Prefer its
		// own error.
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
	again := false // a turn has started since
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
		returned = true // without callbacks there is nothing to do
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
		q.s.touch() // the idle timeout starts here
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
	q.endInputIfDone(false)
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
	q.endInputIfDone(false)
}

// tasksDone is called by the reader when the last task of the agent has ended.
func (q *query) tasksDone() { q.endInputIfDone(true) }

// turnRunning reports whether the agent owes an answer. It does not while the host
// prepares its next prompt.
func (q *query) turnRunning() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.allSent || !q.allAnswered()
}

// allAnswered reports whether every sent prompt has a result.
func (q *query) allAnswered() bool {
	if q.named {
		return len(q.open) == 0
	}
	return q.results >= q.sent || q.drained
}

// settleTime is how long an agent has to show that it continues, when that is
// uncertain: it may have merged several prompts into one turn, or may report on a task
// that has ended.
const settleTime = 3 * time.Second

// endInputIfDone ends the input when nothing can need it any more: all prompts are sent and
// answered and no task of the agent is running. When its input ends, an agent finishes
// what it has started, but nobody can answer its requests any more.
func (q *query) endInputIfDone(taskEnded bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.over || !q.allSent:
	case q.sent == 0: // there was no prompt
		q.over = true
		q.s.out.end()
	case q.results == 0 || q.s.busyTasks():
	case q.allAnswered() && !taskEnded:
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
			case q.allAnswered():
				q.finishInput()
			default:
				// More may come, so let the agent end by itself.
				q.over = true
				q.s.out.end()
			}
		})
	}
}

// finishInput ends the input and gives the agent a limited time to end, too: an agent
// that is silent for that long is done.
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
		// Everything that matters has arrived: this is not an error.
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.exitGrace)
		defer cancel()
		s.conn.Close(ctx)
	})
}

// verdict returns the error of the query for the end of the session. again reports that
// a turn had started after the last result.
func (q *query) verdict(err error, last *wire.Result, again bool) error {
	if err != io.EOF {
		return err
	}
	s := q.s
	// It ended by itself, or because its input ended, and failed.
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
