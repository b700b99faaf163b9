package agent

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/parley-go/parley/wire"
)

// An outbox is the only writer of a connection: messages are sent in the order in which
// they were added. Several waiting messages are written together. Its goroutine exists only
// while there is something to write.
type outbox struct {
	w io.Writer

	mu     sync.Mutex
	room   sync.Cond
	buf    []byte
	busy   bool // the goroutine exists, or will not be needed any more
	ended  bool
	failed error
	done   chan struct{} // closed when nothing is written any more
	gone   chan struct{} // closed to stop waiting for done

	writing time.Time // start of the present write; zero if there is none
}

// maxOutbox is how many bytes may wait before senders wait, too: a host that does not
// read slows the conversation down.
const maxOutbox = 16 << 20

func newOutbox(w io.Writer) *outbox {
	o := &outbox{w: w, done: make(chan struct{}), gone: make(chan struct{})}
	o.room.L = &o.mu
	return o
}

// send adds a message. It returns an error if the message cannot be encoded.
func (o *outbox) send(m wire.Message) error {
	_, err := o.sendUnless(nil, m)
	return err
}

// sendUnless adds a message unless done is closed, and reports whether it did. A caller
// that closes done and then puts a message can rely on it that this one does not
// follow.
func (o *outbox) sendUnless(done <-chan struct{}, m wire.Message) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.buf) > maxOutbox && o.failed == nil && !o.ended {
		o.room.Wait()
	}
	select {
	case <-done:
		return false, nil
	default:
	}
	if o.failed != nil || o.ended {
		return true, nil
	}
	old := o.buf
	if old == nil {
		old = (*spareBuffers.Get().(*[]byte))[:0]
	}
	buf, err := wire.AppendMessage(old, m)
	if err != nil {
		return true, err
	}
	o.buf = append(buf, '\n')
	o.startWriter()
	return true, nil
}

// startWriter starts the goroutine unless it is at work. The caller holds mu.
func (o *outbox) startWriter() {
	if !o.busy {
		o.busy = true
		go o.run()
	}
}

// watch ends all waits when the host has not read for the given time. Unread messages
// are lost. It returns when the outbox is closed.
func (o *outbox) watch(grace time.Duration) {
	tick := time.NewTicker(grace / 4)
	defer tick.Stop()
	for {
		select {
		case <-o.done:
			return
		case <-tick.C:
		}
		o.mu.Lock()
		stuck := !o.writing.IsZero() && time.Since(o.writing) > grace
		if stuck {
			if o.failed == nil {
				o.failed = errUnread
			}
			o.room.Broadcast()
			close(o.gone)
		}
		o.mu.Unlock()
		if stuck {
			return
		}
	}
}

var errUnread = errors.New("the host does not read its messages")

// stopAccepting rejects further messages. Waiting ones are still written.
func (o *outbox) stopAccepting() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.room.Broadcast()
	o.startWriter()
}

// close writes the remaining messages and returns when they are written, or abandoned.
func (o *outbox) close() error {
	o.stopAccepting()
	select {
	case <-o.done:
	case <-o.gone:
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failed
}

// spareBuffers are shared: most outboxes of a process are idle.
var spareBuffers = sync.Pool{New: func() any { return new([]byte) }}

func (o *outbox) run() {
	for {
		o.mu.Lock()
		buf, over := o.buf, o.ended
		o.buf = nil
		o.writing = time.Time{}
		if len(buf) > 0 {
			o.writing = time.Now()
		} else {
			o.busy = over
		}
		o.room.Broadcast()
		o.mu.Unlock()
		if len(buf) == 0 {
			if over {
				close(o.done)
			}
			return
		}
		if _, err := o.w.Write(buf); err != nil {
			o.mu.Lock()
			o.failed = err
			o.room.Broadcast()
			o.mu.Unlock()
			close(o.done)
			return
		}
		if cap(buf) <= 1<<20 {
			spareBuffers.Put(&buf)
		}
	}
}
