package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// PipeBuffer is how many bytes a [Pipe] holds in each direction. A writer blocks when the
// buffer is full.
const PipeBuffer = 64 << 10

// errEnded is the cause of a [Peer]'s context after the host stopped waiting.
var errEnded = errors.New("transport: the host closed the connection")

// Pipe returns the two ends of an in-memory connection: the host's and the agent's. Each
// direction holds at most [PipeBuffer] bytes.
//
// The agent must call [Peer.Exit] last. Close of the host's end lets the agent read EOF,
// cancels the agent's context after 5 seconds, and gives up after 5 more: a goroutine
// cannot be killed, so Close cuts off its end and returns an error. [Peer.SetCloseTimeout]
// changes both waits. When the context of Close is done, Close skips the first wait and
// shortens the second to half a second.
//
// Pipe uses only channels, mutexes and timers, so it works under testing/synctest.
func Pipe() (Conn, *Peer) {
	ctx, cancel := context.WithCancelCause(context.Background())
	toAgent, toHost := newStream(), newStream()
	peer := &Peer{
		in: toAgent, out: toHost,
		ctx: ctx, cancel: cancel,
		gone: make(chan struct{}),
	}
	return &pipeConn{
		peer:   peer,
		output: newOutput(toHost),
		hurry:  make(chan struct{}),
		closed: make(chan struct{}),
	}, peer
}

// A Peer is the agent's end of a [Pipe]. One goroutine may read while another
// writes; the other methods may be called from any goroutine at any time.
type Peer struct {
	in, out *stream
	ctx     context.Context // lifetime of the connection: see Context
	cancel  context.CancelCauseFunc

	mu     sync.Mutex
	step   Step
	exit   Exit
	grace  time.Duration // for each step of Close; zero means defaultGrace
	left   bool          // gone is closed
	gone   chan struct{} // closed when exit is set
	stderr *stderrSink   // nil unless Stderr was called
}

// Stderr returns the standard error of the agent, for any number of goroutines. line is
// [Spec].Stderr, which may be nil. It is called as by [Process]: the agent never waits for
// it, and lines for which it has no time are dropped and counted. The tail becomes part of
// the [Exit]. Stderr must be called at most once, before Exit.
func (p *Peer) Stderr(line func(string)) io.Writer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stderr = newStderrSink(defaultStderrTail, line)
	if p.left {
		go p.stderr.close()
	}
	return p.stderr
}

// SetCloseTimeout sets how long each step of Close waits: a dialer passes
// [Spec].CloseTimeout. Zero means 5 seconds.
func (p *Peer) SetCloseTimeout(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.grace = d
}

// Read reads the host's input to the agent. It returns io.EOF when the host ended it.
func (p *Peer) Read(b []byte) (int, error) { return p.in.Read(b) }

// Await waits until Read would return at once, so that a reader needs no buffer meanwhile.
func (p *Peer) Await() { p.in.await() }

// Write sends bytes to the host. It blocks while the host does not read, and fails with
// [ErrClosed] after CloseWrite, after Exit, and after the host gave up on the agent.
func (p *Peer) Write(b []byte) (int, error) {
	n, err := p.out.Write(b)
	if err != nil {
		err = ErrClosed
	}
	return n, err
}

// CloseRead stops reading: the host's Write fails with [ErrInputClosed].
func (p *Peer) CloseRead() error {
	p.in.breakOff()
	return nil
}

// CloseWrite ends the output: the host reads EOF after the data that was written.
func (p *Peer) CloseWrite() error {
	p.out.finish()
	return nil
}

// Context is cancelled when the agent should stop at once: the host closed the connection
// and the agent did not end in time. It is also cancelled after Exit.
func (p *Peer) Context() context.Context { return p.ctx }

// Exit ends the agent: it closes both directions and passes the status and stderr to the
// host's Wait. If stderr is empty, it passes the tail of [Peer.Stderr]. Only the first
// call counts.
func (p *Peer) Exit(code int, stderr string) {
	p.leave(Exit{Code: code, Stderr: stderr})
}

// leave sets how the agent ended, unless that is set already. It reports whether it was
// the first.
func (p *Peer) leave(exit Exit) bool {
	p.mu.Lock()
	sink := p.stderr
	p.mu.Unlock()
	if sink != nil {
		sink.close()
		exit.Dropped = sink.dropped()
		if exit.Stderr == "" {
			exit.Stderr = sink.text()
		}
	}
	p.mu.Lock()
	first := !p.left
	if first {
		p.left = true
		exit.Step = p.step
		p.exit = exit
		close(p.gone)
	}
	p.mu.Unlock()
	p.CloseWrite()
	p.CloseRead()
	p.cancel(errEnded)
	return first
}

// raise records the step that is used to end the agent.
func (p *Peer) raise(s Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step = max(p.step, s)
}

// A pipeConn is the host's end.
type pipeConn struct {
	peer   *Peer
	output *output

	closeOnce sync.Once
	hurryOnce sync.Once
	hurry     chan struct{} // closed when a caller of Close runs out of time
	closed    chan struct{} // closed when shutdown ended and closeErr is set
	closeErr  error
}

func (c *pipeConn) Read(p []byte) (int, error) { return c.output.Read(p) }

// Await waits until Read would return at once, so that a reader needs no buffer meanwhile.
func (c *pipeConn) Await() { c.output.await(c.peer.out.await) }

func (c *pipeConn) Write(p []byte) (int, error) {
	n, err := c.peer.in.Write(p)
	if err == errBroken {
		err = fmt.Errorf("%w: the agent stopped reading or is gone", ErrInputClosed)
	} else if err != nil {
		err = ErrInputClosed
	}
	return n, err
}

func (c *pipeConn) CloseWrite() error {
	c.peer.raise(StepEOF)
	c.peer.in.finish()
	return nil
}

func (c *pipeConn) Wait(ctx context.Context) (Exit, error) {
	for _, over := range []chan struct{}{c.peer.gone, c.output.end} {
		select {
		case <-over:
			continue
		default:
		}
		select {
		case <-over:
		case <-ctx.Done():
			return Exit{Code: -1}, ctx.Err()
		}
	}
	return c.peer.exit, nil
}

func (c *pipeConn) Close(ctx context.Context) error {
	c.closeOnce.Do(func() { go c.shutdown() })
	select {
	case <-c.closed:
	case <-ctx.Done():
		c.hurryOnce.Do(func() { close(c.hurry) })
		<-c.closed
	}
	return c.closeErr
}

// shutdown runs the steps of [Process], as far as they are possible within one process.
func (c *pipeConn) shutdown() {
	defer close(c.closed)
	discarded := make(chan struct{})
	go func() {
		defer close(discarded)
		c.output.discard(nil)
	}()
	c.CloseWrite()
	c.peer.mu.Lock()
	grace := cmp.Or(c.peer.grace, defaultGrace)
	c.peer.mu.Unlock()
	if !c.within(grace, 0) {
		c.peer.raise(StepTerminate)
		c.peer.cancel(errEnded)
		if !c.within(grace, hurriedGrace) {
			c.peer.raise(StepKill)
			if c.peer.leave(Exit{Code: -1}) {
				c.closeErr = errors.New("transport: the agent in this process did not stop after its context was cancelled: it was cut off and may still run")
			}
		}
	}
	<-discarded
}

// within reports whether the agent ends within d, or within hurried after a caller of
// Close runs out of time.
func (c *pipeConn) within(d, hurried time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.peer.gone:
		return true
	case <-t.C:
		return false
	case <-c.hurry:
	}
	t.Reset(min(d, hurried))
	select {
	case <-c.peer.gone:
		return true
	case <-t.C:
		return false
	}
}

// Errors of a stream's writer.
var (
	errFinished = errors.New("finished") // the writer ended it
	errBroken   = errors.New("broken")   // the reader reads no more
)

// A stream is one direction of a Pipe: a bounded buffer.
type stream struct {
	mu       sync.Mutex
	buf      []byte // buf[off:] is unread
	off      int
	finished bool
	broken   bool

	// Each holds at most one token. A goroutine that consumes a token and leaves work for
	// another waiter passes it on.
	readable chan struct{}
	writable chan struct{}
}

// spareBuffers are shared by all streams: most of them are empty.
var spareBuffers = sync.Pool{New: func() any { return new([]byte) }}

// await waits until Read would not.
func (s *stream) await() {
	for {
		s.mu.Lock()
		if s.broken || s.finished || s.off < len(s.buf) {
			notify(s.readable)
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		<-s.readable
	}
}

func newStream() *stream {
	return &stream{readable: make(chan struct{}, 1), writable: make(chan struct{}, 1)}
}

func (s *stream) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		s.mu.Lock()
		switch {
		case s.broken:
			notify(s.readable)
			s.mu.Unlock()
			return 0, ErrClosed
		case s.off < len(s.buf):
			n := copy(p, s.buf[s.off:])
			if s.off += n; s.off == len(s.buf) {
				spare := s.buf
				spareBuffers.Put(&spare)
				s.buf, s.off = nil, 0
			} else {
				notify(s.readable)
			}
			notify(s.writable)
			s.mu.Unlock()
			return n, nil
		case s.finished:
			notify(s.readable)
			s.mu.Unlock()
			return 0, io.EOF
		}
		s.mu.Unlock()
		<-s.readable
	}
}

func (s *stream) Write(p []byte) (n int, err error) {
	for {
		s.mu.Lock()
		switch {
		case s.finished:
			err = errFinished
		case s.broken:
			err = errBroken
		}
		if err == nil {
			if k := min(PipeBuffer-(len(s.buf)-s.off), len(p)-n); k > 0 {
				if s.off > 0 && len(s.buf)+k > PipeBuffer {
					s.buf, s.off = append(s.buf[:0], s.buf[s.off:]...), 0
				}
				if s.buf == nil {
					s.buf = (*spareBuffers.Get().(*[]byte))[:0]
				}
				s.buf = append(s.buf, p[n:n+k]...)
				n += k
				notify(s.readable)
			}
		}
		full := len(s.buf)-s.off == PipeBuffer
		if err != nil || !full {
			notify(s.writable)
		}
		s.mu.Unlock()
		if err != nil || n == len(p) {
			return n, err
		}
		<-s.writable
	}
}

// finish ends the stream for the writer: the reader reads the remaining bytes, then EOF.
func (s *stream) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
	notify(s.readable)
	notify(s.writable)
}

// breakOff ends the stream for the reader: nothing is read any more.
func (s *stream) breakOff() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = true
	s.buf, s.off = nil, 0
	notify(s.readable)
	notify(s.writable)
}
