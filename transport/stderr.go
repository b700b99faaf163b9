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

	// maxStderrPiece is the longest line handed to a callback; a longer one comes
	// in pieces of this size.
	maxStderrPiece = 64 << 10

	// stderrQueue is how much text may wait for the callback.
	stderrQueue = 1 << 20
)

// stderrStall is how long a callback may let a full queue wait before lines are
// dropped: what a peer writes to standard error is read whatever the callback
// does, because a peer that blocks there blocks everywhere. Tests shorten it.
var stderrStall = time.Second

// A stderrDrain reads standard error to its end, keeps its tail and calls a
// function for each line.
type stderrDrain struct {
	end chan struct{} // closed when everything was read and, within bounds, delivered

	mu       sync.Mutex
	tail     []byte // at most twice limit
	limit    int
	panicked error // the first panic of the callback
}

// drainStderr starts draining r. It ends when r does.
func drainStderr(r io.Reader, limit int, line func(string)) *stderrDrain {
	d := &stderrDrain{end: make(chan struct{}), limit: max(limit, 0)}
	go d.run(r, line)
	return d
}

func (d *stderrDrain) run(r io.Reader, line func(string)) {
	defer close(d.end)
	var lines *lineQueue
	if line != nil {
		lines = newLineQueue(func(s string) { d.call(line, s) })
	}
	buf := make([]byte, 16<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			d.keep(buf[:n])
			if lines != nil {
				lines.write(buf[:n])
			}
		}
		if err != nil {
			break
		}
	}
	if lines != nil {
		lines.close()
	}
}

// keep appends to the tail. Cutting only at twice the limit makes the copying
// cost constant per byte.
func (d *stderrDrain) keep(p []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tail = append(d.tail, p...)
	if len(d.tail) > 2*d.limit {
		d.tail = append(d.tail[:0], d.tail[len(d.tail)-d.limit:]...)
	}
}

// text returns the tail, whole characters only.
func (d *stderrDrain) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.ToValidUTF8(string(d.tail[max(0, len(d.tail)-d.limit):]), "")
}

// failure returns what went wrong with the callback.
func (d *stderrDrain) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.panicked
}

// call calls the callback and survives it.
func (d *stderrDrain) call(line func(string), s string) {
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

// A lineQueue cuts bytes into lines and delivers them from a goroutine of its
// own, in order.
type lineQueue struct {
	partial []byte // of the line being read
	split   bool   // part of that line was already delivered
	dropped int    // lines dropped since the last one that was not

	mu      sync.Mutex
	queue   []string
	size    int // bytes in queue
	stalled bool

	ready chan struct{} // one token: there may be lines
	space chan struct{} // one token: there may be room
	input chan struct{} // closed when no more lines come
	gone  chan struct{} // closed when the delivering goroutine ended
}

func newLineQueue(deliver func(string)) *lineQueue {
	q := &lineQueue{
		ready: make(chan struct{}, 1),
		space: make(chan struct{}, 1),
		input: make(chan struct{}),
		gone:  make(chan struct{}),
	}
	go q.run(deliver)
	return q
}

func (q *lineQueue) run(deliver func(string)) {
	defer close(q.gone) // also when the callback calls runtime.Goexit
	for {
		line, ok := q.take()
		if ok {
			deliver(line)
			continue
		}
		select {
		case <-q.ready:
		case <-q.input:
			if line, ok = q.take(); !ok {
				return
			}
			deliver(line)
		}
	}
}

func (q *lineQueue) take() (string, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		return "", false
	}
	line := q.queue[0]
	q.queue[0] = ""
	q.queue = q.queue[1:]
	q.size -= len(line) + 1
	wake(q.space)
	return line, true
}

func (q *lineQueue) write(p []byte) {
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

// flush queues the partial line. When the callback does not keep up it waits a
// while, then drops, and later says how much.
func (q *lineQueue) flush() {
	line := strings.ToValidUTF8(string(q.partial), "\uFFFD")
	q.partial = q.partial[:0]
	if q.dropped > 0 {
		note := fmt.Sprintf("[%d lines dropped: the Stderr callback does not keep up]", q.dropped)
		if !q.put(note) {
			q.dropped++
			return
		}
		q.dropped = 0
	}
	if !q.put(line) {
		q.dropped++
	}
}

func (q *lineQueue) put(line string) bool {
	var stall <-chan time.Time
	for {
		q.mu.Lock()
		if q.size < stderrQueue {
			q.queue = append(q.queue, line)
			q.size += len(line) + 1
			q.stalled = false
			wake(q.ready)
			q.mu.Unlock()
			return true
		}
		stalled := q.stalled
		q.mu.Unlock()
		if stalled {
			return false
		}
		if stall == nil {
			stall = time.After(stderrStall)
		}
		select {
		case <-q.space:
		case <-q.gone:
			return false
		case <-stall:
			q.mu.Lock()
			q.stalled = true
			q.mu.Unlock()
		}
	}
}

// close delivers what is left. A callback that blocks is not waited for beyond
// the bound: its goroutine ends when it does.
func (q *lineQueue) close() {
	if len(q.partial) > 0 {
		q.flush()
	}
	close(q.input)
	select {
	case <-q.gone:
	case <-time.After(stderrStall):
	}
}

// wake puts a token into a channel that holds one.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
