package transport

import (
	"io"
	"sync/atomic"
	"time"
)

// readerPause is how long after its last Read a consumer still counts as reading.
// During that time Close does not discard the output, so that a reader that works
// between two reads loses nothing.
const readerPause = 250 * time.Millisecond

// An output is the output of a peer, for both kinds of connection: it records its end,
// and Close can discard what nobody reads.
type output struct {
	src io.Reader
	end chan struct{} // closed when src was read to its end, by anyone

	// turn holds one token, which a goroutine takes while it reads src. It is a channel
	// and not a mutex because goroutines may wait for it for long, and under
	// testing/synctest only a channel lets time pass in the meantime.
	turn      chan struct{}
	err       error // why reading has ended; guarded by turn
	discarded bool  // Close discarded unread output; guarded by turn

	lastRead atomic.Int64 // when the consumer's last Read returned, in Unix nanoseconds; 0 if never
	awaiting atomic.Bool  // the consumer waits for something to read
}

func newOutput(src io.Reader) *output {
	o := &output{src: src, end: make(chan struct{}), turn: make(chan struct{}, 1)}
	o.turn <- struct{}{}
	return o
}

// Read reads for the consumer.
func (o *output) Read(p []byte) (int, error) {
	<-o.turn
	defer func() {
		o.lastRead.Store(time.Now().UnixNano())
		o.turn <- struct{}{}
	}()
	if o.discarded {
		return 0, ErrClosed
	}
	return o.read(p)
}

// await calls wait, which returns when there is something to read. The consumer counts as
// reading meanwhile.
func (o *output) await(wait func()) {
	o.awaiting.Store(true)
	wait()
	o.lastRead.Store(time.Now().UnixNano())
	o.awaiting.Store(false)
}

// read reads src. The caller holds the turn.
func (o *output) read(p []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	n, err := o.src.Read(p)
	if err != nil {
		o.err = err
		close(o.end)
	}
	return n, err
}

// ended reports whether the end was reached.
func (o *output) ended() bool {
	select {
	case <-o.end:
		return true
	default:
		return false
	}
}

// discard reads to the end in place of a consumer that does not. It returns when the
// end was reached, or when stop was closed before there was a reason to take over.
func (o *output) discard(stop <-chan struct{}) {
	for !o.ended() {
		select {
		case <-o.turn:
			awaiting := o.awaiting.Load()
			last := o.lastRead.Load()
			if awaiting || last != 0 && time.Since(time.Unix(0, last)) < readerPause {
				o.turn <- struct{}{}
				break
			}
			buf := make([]byte, 32<<10)
			for o.err == nil {
				if n, _ := o.read(buf); n > 0 {
					o.discarded = true
				}
			}
			o.turn <- struct{}{}
			return
		default:
			// A Read is in progress and will reach the end.
		}
		pause := time.NewTimer(readerPause / 5)
		select {
		case <-o.end:
		case <-stop:
			pause.Stop()
			return
		case <-pause.C:
		}
		pause.Stop()
	}
}
