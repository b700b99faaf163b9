package parley

import (
	"sync"
	"time"
)

// A watch detects operations that last too long. begin and end set no timer as long as
// they follow each other quickly: setting one wakes a thread, which may take longer
// than the operation.
type watch struct {
	limit time.Duration

	mu    sync.Mutex
	timer *time.Timer
	armed bool
	since time.Time // when it began; zero if nothing is in progress
	late  func()
	used  bool // an operation started since the timer was set
}

// begin starts watching an operation. If it has not ended when the limit is exceeded,
// late is called in its own goroutine, and the operation is not watched any more.
func (w *watch) begin(late func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.late, w.used = time.Now(), late, true
	if w.armed {
		return
	}
	w.armed = true
	if w.timer == nil {
		w.timer = time.AfterFunc(w.limit, w.look)
	} else {
		w.timer.Reset(w.limit)
	}
}

// end records that the operation has ended.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Time{}
}

// look is called when the timer fires, which may be early.
func (w *watch) look() {
	w.mu.Lock()
	left := w.limit
	if !w.since.IsZero() {
		left -= time.Since(w.since)
	}
	if left > 0 && (w.used || !w.since.IsZero()) {
		w.used = false
		w.timer.Reset(left)
		w.mu.Unlock()
		return
	}
	w.armed, w.since = false, time.Time{}
	late := w.late
	w.mu.Unlock()
	if left <= 0 {
		late()
	}
}

// stop ends the watch: it calls nothing any more.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Time{}
	if w.timer != nil {
		w.timer.Stop()
	}
	w.armed = true
}
