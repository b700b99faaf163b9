package session

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"
)

// A Renewal is what a store needs to keep a lease that ends by itself when its holder
// does not renew it: see [Renewal.Lease].
type Renewal struct {
	// Length is how long a lease lasts that nobody renews.
	Length time.Duration
	// Renew tells that the holder lives. [ErrLeaseLost] says that another has the
	// lease; after any other error it is tried again, since it is still ours as
	// long as nobody else has taken it.
	Renew func(ctx context.Context) error
	// Append writes records to a part, or fails with ErrLeaseLost and writes nothing.
	Append func(ctx context.Context, sub string, records []json.RawMessage) error
	// Release gives the lease up. If it cannot, the lease ends by itself.
	Release func(ctx context.Context) error
}

// Lease returns a lease, which the store has just taken, and renews it until it is
// closed.
func (r Renewal) Lease() Lease {
	l := &renewed{Renewal: r, ended: make(chan struct{}), done: make(chan struct{})}
	go l.run()
	return l
}

type renewed struct {
	Renewal
	once  sync.Once
	ended chan struct{} // closed by Close
	done  chan struct{} // closed when nobody renews it any more
	err   error         // of Close
}

func (l *renewed) run() {
	defer close(l.done)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-l.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	every := time.NewTicker(l.Length / 3)
	defer every.Stop()
	for {
		select {
		case <-l.ended:
			return
		case <-every.C:
		}
		try, stop := context.WithTimeout(ctx, l.Length/3)
		err := l.Renew(try)
		stop()
		if errors.Is(err, ErrLeaseLost) {
			return // Append says so
		}
	}
}

// Append implements [Lease].
func (l *renewed) Append(ctx context.Context, sub string, records []json.RawMessage) error {
	select {
	case <-l.ended:
		return ErrClosed
	default:
	}
	return l.Renewal.Append(ctx, sub, records)
}

// Close implements [Lease].
func (l *renewed) Close() error {
	l.once.Do(func() {
		close(l.ended)
		<-l.done
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		l.err = l.Release(ctx)
	})
	return l.err
}
