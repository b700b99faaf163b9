package parley

import (
	"sync"
	"time"
)

// A watch tells when something lasts too long. Beginning and ending set no timer
// as long as they follow each other quickly: setting one wakes a thread, which may
// take longer than what is watched.
type watch struct {
	limit time.Duration

	mu    sync.Mutex
	timer *time.Timer
	armed bool
	since time.Time // when it began; zero if nothing is going on
	late  func()
	used  bool // something began since the timer was set
}

// begin says that something begins. If it has not ended when the limit is passed,
// late is called in a goroutine of its own, and what began is watched no more.
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

// end says that it has ended.
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

// stop ends the watch: nothing is called any more.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since = time.Time{}
	if w.timer != nil {
		w.timer.Stop()
	}
	w.armed = true
}
