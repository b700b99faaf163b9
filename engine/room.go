package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/model"
)

// How close a request may come to the window of the model, in tokens.
const (
	roomReserve = 33_000 // with less room than this the API is asked to count
	roomLeast   = 3_000  // with less room than this nothing is asked
)

// An overflow says that the conversation is larger than the model's window. It is
// found before a request is sent (measure), or told by the API.
type overflow struct {
	tokens, window int64        // 0 if they are not known
	local          bool         // nothing was sent
	why            error        // the conversation was not made smaller; nil if that was not tried
	told           *model.Error // what the API said; nil if it was not asked
}

// Error says so to people.
func (o *overflow) Error() string {
	text := "Prompt is too long"
	if o.tokens > 0 {
		text += fmt.Sprintf(": it has %d tokens, and the model takes %d", o.tokens, o.window)
	}
	if o.why != nil {
		text += " · It could not be made shorter: " + sentence(o.why)
	}
	return text
}

// Unwrap returns what the API said.
func (o *overflow) Unwrap() error {
	if o.told == nil {
		return nil
	}
	return o.told
}

// overflowed returns the overflow that an error is, nil if it is none. It is where
// making room begins: whoever makes some asks it in [Conversation.round] and starts
// another round.
func overflowed(err error) *overflow {
	var o *overflow
	if errors.As(err, &o) {
		return o
	}
	var e *model.Error
	if errors.As(err, &e) && e.Status == http.StatusBadRequest && strings.Contains(strings.ToLower(e.Message), "prompt is too long") {
		return &overflow{told: e}
	}
	return nil
}

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
		return &overflow{tokens: n, window: window, local: true}
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
