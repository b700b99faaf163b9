package parley

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// An outbox writes frames to a connection, one at a time. Its goroutine, which exists
// only while there is something to write, writes queued frames together; a sender waits
// for its frame or for its context, never for another sender's lock. A sender writes its
// frame itself if nobody else is writing.
type outbox struct {
	conn    transport.Conn
	record  func(dir byte, line []byte)
	watch   watch           // for one write
	stalled func()          // called when a write takes too long
	failed  func(err error) // called once when writing fails

	mu     sync.Mutex
	frames []*frame
	size   int           // bytes in frames
	busy   bool          // a sender or the goroutine is writing
	ended  bool          // no more frames are accepted; input ends once the rest is written
	closed bool          // done is closed or will be
	err    error         // why nothing can be written
	done   chan struct{} // closed when nothing is written any more
}

// maxOutbox limits how much is queued: an agent that sends many requests and reads
// nothing gets no more responses.
const maxOutbox = 64 << 20

type frame struct {
	line    []byte     // with its line feed
	written chan error // receives one value when it was written or cannot be
}

func newOutbox(conn transport.Conn, stall time.Duration) *outbox {
	return &outbox{conn: conn, watch: watch{limit: stall}, done: make(chan struct{})}
}

// post queues a message for writing.
func (o *outbox) post(m wire.Message) (*frame, error) {
	line, err := wire.Encode(m)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.add(append(line, '\n'))
}

// write writes a message and returns when it was written.
func (o *outbox) write(m wire.Message) error {
	line, err := wire.Encode(m)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	o.mu.Lock()
	if o.busy || len(o.frames) > 0 || o.ended || o.err != nil {
		f, err := o.add(line)
		o.mu.Unlock()
		if err == nil {
			err = <-f.written
		}
		return err
	}
	o.busy = true
	o.mu.Unlock()
	o.record('>', line[:len(line)-1])
	err = o.flush(line)
	o.mu.Lock()
	o.busy = false
	if err != nil && o.err == nil {
		o.err = err
	}
	o.poke()
	o.mu.Unlock()
	return err
}

// add queues a line. The caller holds mu.
func (o *outbox) add(line []byte) (*frame, error) {
	if o.err != nil {
		return nil, o.err
	}
	if o.ended {
		return nil, transport.ErrInputClosed
	}
	f := &frame{line: line, written: make(chan error, 1)}
	if o.size+len(f.line) > maxOutbox && len(o.frames) > 0 {
		return nil, fmt.Errorf("parley: more than %d bytes wait for the agent to read", maxOutbox)
	}
	o.size += len(f.line)
	o.frames = append(o.frames, f)
	o.poke()
	return f, nil
}

// withdraw removes a frame from the queue. It reports false if the frame is being
// written.
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

// end ends the input after the queued frames are written.
func (o *outbox) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	o.poke()
}

// poke starts the goroutine if there is something to do and nobody is writing, who would
// poke afterwards. The caller holds mu.
func (o *outbox) poke() {
	if !o.busy && !o.closed && (len(o.frames) > 0 || o.ended || o.err != nil) {
		o.busy = true
		go o.run()
	}
}

// abort fails the queued frames and later ones. A blocked write ends when the connection
// is closed.
func (o *outbox) abort() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.err != nil {
		return
	}
	o.err = ErrClosed
	o.drop(o.frames)
	o.frames = nil
	o.poke()
}

// drop fails frames that will not be written. The caller holds mu.
func (o *outbox) drop(frames []*frame) {
	for _, f := range frames {
		f.written <- o.err
	}
}

// run writes the queued frames.
func (o *outbox) run() {
	var buf []byte
	for {
		frames := o.next()
		if len(frames) == 0 {
			return
		}
		buf = buf[:0]
		for _, f := range frames {
			o.record('>', f.line[:len(f.line)-1])
			buf = append(buf, f.line...)
		}
		err := o.flush(buf)
		for _, f := range frames {
			f.written <- err
		}
		if err != nil {
			o.mu.Lock()
			if o.err == nil || o.err == ErrClosed {
				o.err = err
			}
			o.mu.Unlock()
		}
		if cap(buf) > 1<<20 {
			buf = nil
		}
	}
}

// next returns the frames that run writes next. If there are none, run returns; if there
// can be none any more, the outbox is done.
func (o *outbox) next() []*frame {
	o.mu.Lock()
	frames, err := o.frames, o.err
	o.frames, o.size = nil, 0
	switch {
	case err == nil && len(frames) > 0:
		o.mu.Unlock()
		return frames
	case err == nil && !o.ended:
		o.busy = false
		o.mu.Unlock()
		return nil
	}
	o.closed = true
	o.drop(frames)
	o.mu.Unlock()
	switch err {
	case nil:
		o.conn.CloseWrite()
	case ErrClosed:
	default:
		o.failed(err)
	}
	o.watch.stop()
	close(o.done)
	return nil
}

// flush writes b in pieces, so that an agent that reads slowly does not look like one
// that has stopped reading.
func (o *outbox) flush(b []byte) error {
	defer o.watch.end()
	for len(b) > 0 {
		n := min(len(b), writeSize)
		o.watch.begin(o.stalled)
		if _, err := o.conn.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// writeSize is how much an agent must read within the time limit of one write.
const writeSize = 1 << 20
