// Package gate counts running work, and lets none start once its owner ends. A [sync.WaitGroup]
// alone cannot: its Add must not run beside or after its Wait.
package gate

import "sync"

// A Gate counts running calls. The zero Gate is open. It is safe for concurrent use.
type Gate struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // closed when the gate is closed and no call runs; nil before Close
}

// Enter reports whether a call may start. If so, the caller must call Leave afterwards.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	return true
}

// Leave ends a call that Enter allowed.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n == 0 && g.closed {
		close(g.idle)
	}
}

// Go runs f in a goroutine. It returns false without running f if the gate is closed.
func (g *Gate) Go(f func()) bool {
	if !g.Enter() {
		return false
	}
	go func() {
		defer g.Leave()
		f()
	}()
	return true
}

// Close lets no more calls start. The channel that it returns is closed when none runs.
func (g *Gate) Close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed, g.idle = true, make(chan struct{})
		if g.n == 0 {
			close(g.idle)
		}
	}
	return g.idle
}
