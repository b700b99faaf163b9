package session

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"
)

// A Renewal holds the operations of a store with which a lease is kept that expires if
// its holder does not renew it: see [Renewal.Lease].
type Renewal struct {
	// Length is how long a lease lasts that is not renewed.
	Length time.Duration
	// Renew reports that the holder is alive. [ErrLeaseLost] means that another process
	// has the lease. After any other error it is retried, since the lease is still ours
	// as long as no other process has taken it.
	Renew func(ctx context.Context) error
	// Append writes records to a part, or fails with ErrLeaseLost and writes nothing.
	Append func(ctx context.Context, sub string, records []json.RawMessage) error
	// Release gives the lease up. If it fails, the lease expires.
	Release func(ctx context.Context) error
}

// Lease returns a lease that the store has just acquired, and renews it until it is
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
	done  chan struct{} // closed when it is no longer renewed
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
			return // Append returns the error
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
