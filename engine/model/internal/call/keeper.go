package call

import (
	"context"
	"time"
)

// A Keeper caches a key or token from a function, as long as it is valid. It is safe
// for concurrent use: however many callers need a key, it is requested once.
type Keeper struct {
	ask  func(context.Context) (key string, till time.Time, err error)
	turn chan struct{} // holds one value, which guards the fields below
	key  string
	till time.Time
}

// NewKeeper returns a keeper for a function that returns a key and the time until which
// it is valid. Calls of the function do not overlap.
func NewKeeper(ask func(context.Context) (key string, till time.Time, err error)) *Keeper {
	k := &Keeper{ask: ask, turn: make(chan struct{}, 1)}
	k.turn <- struct{}{}
	return k
}

// Get returns the key. It requests one if there is none, it has expired, or it is the
// rejected one.
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
