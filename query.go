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
	return queryAll(ctx, func(yield func(*wire.User) bool) { yield(first) }, opts)
}

// QueryStream asks an agent several things on one connection: each prompt is sent
// as soon as prompts yields it, while earlier ones may still be worked on. It is
// otherwise as [Query]; the agent ends when the prompts have ended and been
// answered.
func QueryStream(ctx context.Context, prompts iter.Seq[*wire.User], opts *Options) iter.Seq2[wire.Message, error] {
	return queryAll(ctx, prompts, opts)
}

// Run asks an agent and returns the result. If the outcome is not completed, both
// the result and a [*ResultError] are returned.
func Run(ctx context.Context, prompt string, opts *Options, attach ...wire.Block) (*wire.Result, error) {
	var last *wire.Result
	for m, err := range Query(ctx, prompt, opts, attach...) {
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

func queryAll(ctx context.Context, prompts iter.Seq[*wire.User], opts *Options) iter.Seq2[wire.Message, error] {
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
		s, err := open(ctx, cfg)
		if err != nil {
			yield(nil, err)
			return
		}
		q := &query{s: s}
		s.onResult = q.resulted
		if err := q.run(ctx, prompts, yield); err != nil {
			yield(nil, err)
		}
	}
}

// A query is a session that ends by itself.
type query struct {
	s *session

	mu      sync.Mutex
	sent    int  // prompts
	results int  // of our prompts
	allSent bool // no more prompts
	settled *time.Timer
}

// run yields everything. It returns the error that is to be the last pair, and
// nil if the loop was left or all is well. The session is closed when it returns.
func (q *query) run(ctx context.Context, prompts iter.Seq[*wire.User], yield func(wire.Message, error) bool) (err error) {
	s := q.s
	left := false // the loop was left before the agent was done
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.exitGrace)
		defer cancel()
		if left {
			s.interruptAndForget()
		}
		s.shutdown(ctx, ErrClosed)
		q.mu.Lock()
		if q.settled != nil {
			q.settled.Stop()
		}
		q.mu.Unlock()
	}()

	if err := s.initialize(); err != nil {
		return err
	}
	feed, stopFeed := context.WithCancel(s.ctx)
	defer stopFeed()
	s.running.Go(func() { q.feed(feed, prompts) })

	var last *wire.Result
	for {
		m, err := s.in.pop(ctx)
		if err != nil {
			left = ctx.Err() != nil
			if left {
				return fmt.Errorf("parley: query: %w", err)
			}
			return q.verdict(err, last)
		}
		if r, ok := m.(*wire.Result); ok && !r.IsReplay {
			last = r
		}
		if !yield(m, nil) {
			left = true
			return nil
		}
	}
}

// feed sends the prompts.
func (q *query) feed(ctx context.Context, prompts iter.Seq[*wire.User]) {
	defer func() {
		if p := recover(); p != nil {
			q.s.fail(&CallbackError{Callback: "the sequence of prompts", Panic: p})
		}
	}()
	for m := range prompts {
		if ctx.Err() != nil {
			return
		}
		if m == nil {
			continue
		}
		if q.s.cfg.verbatim && !m.ClientComposed {
			c := *m
			c.ClientComposed = true
			m = &c
		}
		q.mu.Lock()
		q.sent++
		q.mu.Unlock()
		if err := q.s.out.send(ctx, m); err != nil {
			if ctx.Err() == nil {
				q.s.log.Warn("a prompt could not be sent", "error", err)
			}
			break
		}
	}
	q.mu.Lock()
	q.allSent = true
	q.mu.Unlock()
	q.settle(nil)
}

// resulted is told of each result, by the reader.
func (q *query) resulted(r *wire.Result) {
	q.mu.Lock()
	q.results++
	q.mu.Unlock()
	q.settle(r)
}

// settleTime is how long an agent that may have taken several prompts in one turn
// has to show that it goes on.
const settleTime = 3 * time.Second

// settle ends the input when nothing can need it any more: all prompts are sent
// and answered and no task of the agent runs. An agent finishes what it has begun
// when its input ends, but nobody can answer its questions any more.
func (q *query) settle(r *wire.Result) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.allSent {
		return
	}
	if q.sent == 0 { // nothing was asked
		q.s.out.end()
		return
	}
	if q.results == 0 || q.s.busyTasks() {
		return
	}
	if q.results >= q.sent || r != nil && r.QueuedTurnCount != nil && *r.QueuedTurnCount == 0 {
		q.finishInput()
		return
	}
	// Fewer results than prompts: some were taken together, or are still to come.
	if q.settled == nil {
		heard := q.s.heard.Load()
		q.settled = time.AfterFunc(settleTime, func() {
			q.mu.Lock()
			defer q.mu.Unlock()
			if now := q.s.heard.Load(); now != heard || q.s.atWork() || q.s.busyTasks() {
				heard = now
				q.settled.Reset(settleTime)
				return
			}
			q.finishInput()
		})
	}
}

// finishInput ends the input and gives the agent a bounded time to end, too: one
// that is silent for so long is done with.
func (q *query) finishInput() {
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

// verdict turns the end of the session into the error of the query.
func (q *query) verdict(err error, last *wire.Result) error {
	s := q.s
	if !errors.Is(err, io.EOF) || err != io.EOF {
		var exit *ExitError
		if errors.As(err, &exit) || last == nil || last.Outcome() == wire.OutcomeCompleted {
			return err
		}
		return &ResultError{last}
	}
	switch {
	case last == nil:
		return exitError(s.exit, s.lastFrames(), ErrNoResult)
	case last.Outcome() != wire.OutcomeCompleted:
		return &ResultError{last}
	case s.exit.Code > 0 && s.exit.Step <= 1:
		return exitError(s.exit, s.lastFrames(), errors.New("after its result"))
	}
	return nil
}
