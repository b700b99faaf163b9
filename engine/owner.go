package engine

import "context"

// owner lets other goroutines reach the one that owns a conversation.
type owner struct {
	calls chan func()     // run by the goroutine that owns the state
	over  chan struct{}   // closed when Run has returned
	base  context.Context // of Run
}

// Do runs f in the goroutine that owns the conversation and waits for it. It returns
// false without running f if the conversation is over. It may be called from anywhere but
// from inside another Do.
func (c *owner) Do(f func()) bool {
	done := make(chan struct{})
	select {
	case c.calls <- func() { defer close(done); f() }:
		<-done
		return true
	case <-c.over:
		return false
	}
}

// await serves requests for the conversation until ch delivers or is closed, or ctx ends.
// It reports whether ch did. Except in Run, the owner waits only through await.
func await[T any](ctx context.Context, c *owner, ch <-chan T) (v T, ok bool) {
	for {
		select {
		case v = <-ch:
			return v, true
		case f := <-c.calls:
			f()
		case <-ctx.Done():
			return v, false
		}
	}
}

// runWhileServing runs a function that takes time and serves the conversation meanwhile.
func (c *owner) runWhileServing(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	await(context.Background(), c, done)
}
