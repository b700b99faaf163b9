package transport

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	defaultStderrTail = 64 << 10

	// maxStderrPiece is the longest line that is passed to a callback; a longer one
	// comes in pieces of this size.
	maxStderrPiece = 64 << 10

	// stderrQueue is how much text may be queued for the callback. Text that does not
	// fit is dropped, because a peer that waits for standard error stops everywhere.
	stderrQueue = 8 << 20
)

// stderrGrace is how long, at the end, a callback has for the queued lines; the call
// that is then running has the same time again. Tests shorten it.
var stderrGrace = time.Second

// A stderrSink receives the standard error of a peer. It keeps the tail and calls a
// function for each line, in its own goroutine.
type stderrSink struct {
	lines *lineQueue // nil if there is no function

	mu       sync.Mutex
	tail     []byte // at most twice limit
	limit    int
	panicked error // the first panic of the callback
}

// newStderrSink returns a sink that keeps limit bytes. Its owner must close it.
func newStderrSink(limit int, line func(string)) *stderrSink {
	d := &stderrSink{limit: max(limit, 0)}
	if line != nil {
		d.lines = newLineQueue(func(s string) { d.call(line, s) })
	}
	return d
}

// Write implements [io.Writer]. It never waits for the callback.
func (d *stderrSink) Write(p []byte) (int, error) {
	d.keep(p)
	if d.lines != nil {
		d.lines.write(p)
	}
	return len(p), nil
}

// close delivers the remaining lines, within limits. No call of the callback starts
// after it.
func (d *stderrSink) close() {
	if d.lines != nil {
		d.lines.close()
	}
}

// dropped returns how many lines were dropped.
func (d *stderrSink) dropped() int {
	if d.lines == nil {
		return 0
	}
	return d.lines.lost()
}

// A stderrDrain reads standard error to its end.
type stderrDrain struct {
	*stderrSink
	end chan struct{} // closed when everything was read and, within limits, delivered
}

// drainStderr starts draining r. It ends when r does.
func drainStderr(r io.Reader, limit int, line func(string)) *stderrDrain {
	d := &stderrDrain{stderrSink: newStderrSink(limit, line), end: make(chan struct{})}
	go func() {
		defer close(d.end)
		buf := make([]byte, 16<<10)
		for {
			n, err := r.Read(buf)
			d.Write(buf[:n])
			if err != nil {
				break
			}
		}
		d.close()
	}()
	return d
}

// keep appends to the tail. Cutting only at twice the limit makes the cost of copying
// constant per byte.
func (d *stderrSink) keep(p []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tail = append(d.tail, p...)
	if len(d.tail) > 2*d.limit {
		d.tail = append(d.tail[:0], d.tail[len(d.tail)-d.limit:]...)
	}
}

// text returns the tail, without incomplete characters.
func (d *stderrSink) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.ToValidUTF8(string(d.tail[max(0, len(d.tail)-d.limit):]), "")
}

// failure returns the error for a panic of the callback.
func (d *stderrSink) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.panicked
}

// call calls the callback and recovers from a panic.
func (d *stderrSink) call(line func(string), s string) {
	defer func() {
		if v := recover(); v != nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.panicked == nil {
				d.panicked = fmt.Errorf("transport: the Stderr callback panicked: %v", v)
			}
		}
	}()
	line(s)
}

// A lineQueue splits bytes into lines and delivers them in order, from its own
// goroutine. It drops and counts lines that do not fit.
type lineQueue struct {
	mu      sync.Mutex
	partial []byte // of the line being read
	split   bool   // part of that line was already delivered
	queue   []string
	size    int  // bytes in queue
	missing int  // lines dropped since the last one that was queued
	total   int  // lines dropped in total
	closed  bool // no more lines come
	ended   bool // nothing more is delivered

	ready chan struct{} // one token: there may be lines
	gone  chan struct{} // closed when the delivering goroutine ended
}

func newLineQueue(deliver func(string)) *lineQueue {
	q := &lineQueue{ready: make(chan struct{}, 1), gone: make(chan struct{})}
	go q.run(deliver)
	return q
}

func (q *lineQueue) run(deliver func(string)) {
	defer close(q.gone)
	defer q.abandon() // if the callback calls runtime.Goexit
	for {
		line, ok, over := q.next()
		switch {
		case ok:
			deliver(line)
		case over:
			return
		default:
			<-q.ready
		}
	}
}

// next returns the next line; over reports that none will come.
func (q *lineQueue) next() (line string, ok, over bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended || len(q.queue) == 0 {
		return "", false, q.ended || q.closed
	}
	line = q.queue[0]
	q.queue[0] = ""
	q.queue = q.queue[1:]
	q.size -= len(line) + 1
	return line, true, false
}

func (q *lineQueue) write(p []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		chunk := p
		if i >= 0 {
			chunk = p[:i]
		}
		room := maxStderrPiece - len(q.partial)
		if len(chunk) > room {
			q.partial = append(q.partial, chunk[:room]...)
			q.flush()
			q.split = true
			p = p[room:]
			continue
		}
		q.partial = append(q.partial, chunk...)
		p = p[len(chunk):]
		if i >= 0 {
			p = p[1:]
			q.partial = bytes.TrimSuffix(q.partial, []byte("\r"))
			if len(q.partial) > 0 || !q.split {
				q.flush()
			}
			q.split = false
		}
	}
}

// flush queues the partial line, or drops it. The caller holds mu.
func (q *lineQueue) flush() {
	line := strings.ToValidUTF8(string(q.partial), "\uFFFD")
	q.partial = q.partial[:0]
	if q.closed || q.size >= stderrQueue {
		q.missing++
		q.total++
		return
	}
	q.reportMissing()
	q.put(line)
}

// reportMissing queues a line that states how many were dropped. The caller holds mu.
func (q *lineQueue) reportMissing() {
	if q.missing > 0 {
		q.put(fmt.Sprintf("[%d lines dropped: the Stderr callback does not keep up]", q.missing))
		q.missing = 0
	}
}

// put queues a line. The caller holds mu.
func (q *lineQueue) put(line string) {
	q.queue = append(q.queue, line)
	q.size += len(line) + 1
	notify(q.ready)
}

// close delivers the remaining lines. A callback that is too slow loses the rest, and
// close does not wait for one that does not return.
func (q *lineQueue) close() {
	q.mu.Lock()
	if !q.closed {
		if len(q.partial) > 0 {
			q.flush()
		}
		q.reportMissing()
		q.closed = true
		notify(q.ready)
	}
	q.mu.Unlock()
	for range 2 {
		grace := time.NewTimer(stderrGrace)
		select {
		case <-q.gone:
		case <-grace.C:
			q.abandon()
		}
		grace.Stop()
	}
}

// abandon drops the queued lines.
func (q *lineQueue) abandon() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.total += len(q.queue)
	q.queue, q.size = nil, 0
	q.closed, q.ended = true, true
	notify(q.ready)
}

// lost returns how many lines were dropped.
func (q *lineQueue) lost() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}

// notify puts a token into a channel that has room for one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
