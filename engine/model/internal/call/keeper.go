package call

import (
	"context"
	"time"
)

// A Keeper keeps a key or token that a function gives, as long as it is good. It is
// safe for concurrent use: however many need a key, it is asked for once.
type Keeper struct {
	ask  func(context.Context) (key string, till time.Time, err error)
	turn chan struct{} // holds one value; who took it may use the fields below
	key  string
	till time.Time
}

// NewKeeper returns a keeper of what a function gives, with the time until which it
// is good. Calls of the function do not overlap.
func NewKeeper(ask func(context.Context) (key string, till time.Time, err error)) *Keeper {
	k := &Keeper{ask: ask, turn: make(chan struct{}, 1)}
	k.turn <- struct{}{}
	return k
}

// Get returns the key, asking for it if there is none, it is too old, or it is the
// one that was refused.
func (k *Keeper) Get(ctx context.Context, refused string) (string, error) {
	select {
	case <-k.turn:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { k.turn <- struct{}{} }()
	if k.key != "" && k.key != refused && time.Now().Before(k.till) {
		return k.key, nil
	}
	key, till, err := k.ask(ctx)
	if err != nil {
		return "", err
	}
	k.key, k.till = key, till
	return key, nil
}
