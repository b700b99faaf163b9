package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// tokensKey is the key of the API's tokens.
const tokensKey = "tokens"

// Tokens stores the tokens of the API, so that a token of one node works on all nodes. It is a
// serve.TokenStore.
type Tokens struct{ b *Backend }

// Tokens returns the tokens of the fleet.
func (b *Backend) Tokens() *Tokens { return &Tokens{b} }

// Change replaces the value by the result of f, and calls f again if another node was faster.
func (t *Tokens) Change(ctx context.Context, f func(old []byte) ([]byte, error)) error {
	var value json.RawMessage
	err := t.b.changeState(ctx, tokensKey, &value, func() (err error) {
		value, err = f(value)
		return err
	})
	if err == nil {
		err = t.b.nc.Publish(t.subject(), nil)
	}
	return err
}

// subject returns the subject on which a node announces a change of the tokens.
func (t *Tokens) subject() string { return t.b.cfg.Name + ".live." + tokensKey }

// Watch calls f with the value, and again whenever it changes, until ctx ends.
func (t *Tokens) Watch(ctx context.Context, f func(value []byte)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.b.ctx, cancel)()
	var seen uint64
	read := func() error {
		var value json.RawMessage
		revision, err := t.b.getState(ctx, tokensKey, &value)
		if err == nil && (revision != seen || seen == 0) {
			seen = revision
			f(value)
		}
		return err
	}
	changes, err := t.b.nc.SubscribeSync(t.subject())
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	defer changes.Unsubscribe()
	if err := read(); err != nil {
		return err
	}
	for {
		try, stop := context.WithTimeout(ctx, pollTime) // a message can be lost when a connection breaks
		_, err := changes.NextMsgWithContext(try)
		stop()
		before := seen
		// A server that lags behind the leader may answer.
		for again := 0; ctx.Err() == nil && (again == 0 || err == nil && seen == before && again < 50); again++ {
			if again > 0 {
				sleep(ctx, 20*time.Millisecond)
			}
			if err := read(); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
