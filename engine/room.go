package engine

import (
	"context"
	"time"

	"github.com/parley-go/parley/engine/internal/ask"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/model"
)

// How close a request may come to the window of the model, in tokens.
const (
	roomReserve = 33_000 // with less room than this the API is asked to count
	roomLeast   = 3_000  // with less room than this nothing is asked
)

// measure sees whether a request fits into the model's window. Near the limit the
// API counts it, if it can. What is left of the window bounds the answer.
func (c *Conversation) measure(t *turn, req model.Request, of *history.Transcript) error {
	c.room = 0
	window, guess := c.model.ContextWindow, c.hist.Tokens(of)
	if window <= 0 || guess < window-roomReserve-c.maxTokens() {
		return nil
	}
	counter, ok := c.cfg.Model.(model.Counter)
	if !ok {
		// Whether it fits the API will say.
		if c.hist.Known() {
			c.room = max(window-guess-roomLeast, roomLeast)
		}
		return nil
	}
	n, err := c.count(t, counter, req)
	if err != nil {
		c.runner.Log.Warn("the tokens of a request could not be counted", "error", err)
		return nil
	}
	c.hist.Measured(of.Size(), n)
	if n > window-roomLeast {
		return &ask.Overflow{Tokens: n, Window: window, Local: true}
	}
	c.room = window - n
	return nil
}

// count has the API count a request and serves the conversation meanwhile.
func (c *Conversation) count(t *turn, counter model.Counter, req model.Request) (n int64, err error) {
	ctx, cancel := context.WithTimeout(t.ctx, 20*time.Second)
	defer cancel()
	c.runWhileServing(func() { n, err = counter.CountTokens(ctx, req) })
	return n, err
}
