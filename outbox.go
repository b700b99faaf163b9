package parley

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// An outbox is the one writer of a connection. Frames that wait are written
// together; a sender waits for its frame or for its context, never for the lock
// of another.
type outbox struct {
	conn    transport.Conn
	stall   time.Duration // how long one write may take
	record  func(dir byte, line []byte)
	stalled func()          // called when a write took longer
	failed  func(err error) // called once when writing fails

	mu     sync.Mutex
	frames []*frame
	size   int   // bytes of frames
	ended  bool  // no frame is taken any more; input ends once the rest is written
	err    error // why nothing can be written any more
	wake   chan struct{}
	done   chan struct{} // closed when the writer has ended
}

// maxOutbox bounds what waits to be written: an agent that asks much and reads
// nothing gets no more answers.
const maxOutbox = 64 << 20

type frame struct {
	line    []byte     // with its end
	written chan error // gets one value when it was written or cannot be
}

func newOutbox(conn transport.Conn, stall time.Duration) *outbox {
	return &outbox{conn: conn, stall: stall, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// post adds a message to what is to be written.
func (o *outbox) post(m wire.Message) (*frame, error) {
	line, err := wire.Encode(m)
	if err != nil {
		return nil, err
	}
	f := &frame{line: append(line, '\n'), written: make(chan error, 1)}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return nil, o.err
	}
	if o.ended {
		return nil, transport.ErrInputClosed
	}
	if o.size+len(f.line) > maxOutbox && len(o.frames) > 0 {
		return nil, fmt.Errorf("parley: more than %d bytes wait for the agent to read", maxOutbox)
	}
	o.size += len(f.line)
	o.frames = append(o.frames, f)
	o.poke()
	return f, nil
}

// send posts a message and waits until it was written. When ctx ends before, the
// message is taken back if that can still be done; taken says that it could not,
// or need not.
func (o *outbox) send(ctx context.Context, m wire.Message) (taken bool, err error) {
	f, err := o.post(m)
	if err != nil {
		return false, err
	}
	select {
	case err := <-f.written:
		return err == nil, err
	case <-ctx.Done():
		return !o.withdraw(f), context.Cause(ctx)
	}
}

// withdraw takes a frame back. It reports false if the frame is being written.
func (o *outbox) withdraw(f *frame) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.Index(o.frames, f)
	if i < 0 {
		return false
	}
	o.frames = slices.Delete(o.frames, i, i+1)
	o.size -= len(f.line)
	return true
}

// end ends the input once everything was written.
func (o *outbox) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.poke()
}

func (o *outbox) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// run writes until the input has ended or can take no more. abort ends it; a
// write that blocks ends when the connection is closed.
func (o *outbox) run(abort <-chan struct{}) {
	defer close(o.done)
	var buf []byte
	for {
		o.mu.Lock()
		frames, ended := o.frames, o.ended
		o.frames, o.size = nil, 0
		o.mu.Unlock()
		if len(frames) == 0 {
			if ended {
				o.conn.CloseWrite()
				return
			}
			select {
			case <-o.wake:
				continue
			case <-abort:
				o.fail(nil, ErrClosed)
				return
			}
		}
		buf = buf[:0]
		for _, f := range frames {
			o.record('>', f.line[:len(f.line)-1])
			buf = append(buf, f.line...)
		}
		if err := o.write(buf); err != nil {
			o.fail(frames, err)
			o.failed(err)
			return
		}
		for _, f := range frames {
			f.written <- nil
		}
		if cap(buf) > 1<<20 {
			buf = nil
		}
	}
}

// write writes in pieces: an agent that reads slowly is not one that has stopped
// reading.
func (o *outbox) write(b []byte) error {
	t := time.AfterFunc(o.stall, o.stalled)
	defer t.Stop()
	for len(b) > 0 {
		n := min(len(b), writeSize)
		if _, err := o.conn.Write(b[:n]); err != nil {
			return err
		}
		if b = b[n:]; len(b) > 0 {
			t.Reset(o.stall)
		}
	}
	return nil
}

// writeSize is how much an agent has to read in the time that one write may take.
const writeSize = 1 << 20

// fail tells everybody who waits, and whoever comes later, that nothing can be
// written.
func (o *outbox) fail(frames []*frame, err error) {
	o.mu.Lock()
	o.err = err
	frames = append(frames, o.frames...)
	o.frames = nil
	o.mu.Unlock()
	for _, f := range frames {
		f.written <- err
	}
}
