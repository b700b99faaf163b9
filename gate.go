package parley

import "sync"

// A gate counts calls that run, and lets no more begin once it is closed.
type gate struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // closed when it is closed and nothing runs
}

func newGate() *gate { return &gate{idle: make(chan struct{})} }

// enter reports whether a call may begin. If so, leave must follow it.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.n++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n == 0 && g.closed {
		close(g.idle)
	}
}

// close lets no call begin any more. The channel that it returns is closed when none
// runs.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.closed = true
		if g.n == 0 {
			close(g.idle)
		}
	}
	return g.idle
}
