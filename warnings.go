package parley

import (
	"log/slog"
	"sync"

	"github.com/parley-go/parley/internal/gate"
)

// A reporter calls OnWarning: one call at a time, in order, in a goroutine of its own. The
// goroutines that report failures read from the agent and end the session, so they must
// not wait for the host.
type reporter struct {
	call  func(error)
	calls *gate.Gate // entered for each failure that is queued
	log   *slog.Logger

	mu      sync.Mutex
	queue   []error
	running bool          // the goroutine exists
	idle    chan struct{} // closed when it has ended; nil if nobody waits for that
	closed  bool
}

// maxWarnings is how many failures may be queued. Further ones are only logged.
const maxWarnings = 1024

// add queues a failure. It does not wait.
func (w *reporter) add(err error) {
	if w.call == nil || !w.calls.Enter() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.queue) >= maxWarnings {
		w.calls.Leave()
		return
	}
	w.queue = append(w.queue, err)
	if !w.running {
		w.running = true
		go w.run()
	}
}

// run reports failures until there are none.
func (w *reporter) run() {
	for {
		w.mu.Lock()
		if len(w.queue) == 0 {
			w.running = false
			if w.idle != nil {
				close(w.idle)
				w.idle = nil
			}
			w.mu.Unlock()
			return
		}
		err := w.queue[0]
		w.queue = w.queue[1:]
		w.mu.Unlock()
		w.report(err)
	}
}

// report calls the callback. If that ends the goroutine, another one continues.
func (w *reporter) report(err error) {
	ended := true
	defer func() {
		w.calls.Leave()
		if ended {
			go w.run()
		}
	}()
	w.callNow(err)
	ended = false
}

// callNow calls the callback in the goroutine of the caller.
func (w *reporter) callNow(err error) {
	if w.call == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			w.log.Error("OnWarning panicked", "panic", p)
		}
	}()
	w.call(err)
}

// last queues a failure, unless a call is in progress, and returns a channel that is
// closed when nothing is queued or in progress.
func (w *reporter) last(err error) <-chan struct{} {
	w.mu.Lock()
	busy := w.running
	w.mu.Unlock()
	if !busy {
		w.add(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if busy || !w.running {
		done := make(chan struct{})
		close(done)
		return done
	}
	if w.idle == nil {
		w.idle = make(chan struct{})
	}
	return w.idle
}

// drop drops what is queued. A call that is in progress continues.
func (w *reporter) drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range w.queue {
		w.calls.Leave()
	}
	w.queue = nil
}

// close is like drop, and lets nothing more be queued.
func (w *reporter) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.drop()
}
