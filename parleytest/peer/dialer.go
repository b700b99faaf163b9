package peer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/parley-go/parley/transport"
)

// A Dialer plays a script in memory, anew for each connection. It implements
// [transport.Dialer].
type Dialer struct {
	// Script is what is played. It must not need a process.
	Script *Script
	// Options are those of [Play]. Its Stderr gets the standard error of the
	// script beside the connection.
	Options *Options
	// Done, if not nil, is called when a play has ended, from its goroutine. A
	// test fails here when the script was not followed.
	Done func(*Report, error)
	// Grace is how long Close waits for the script to end by itself before it ends
	// it. If zero, it is 5 seconds.
	Grace time.Duration
}

// Dial starts a play. The arguments and the environment of the spec are dropped.
func (d *Dialer) Dial(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if d.Script.NeedsProcess() {
		return nil, ErrNeedsProcess
	}
	return dialMemory(ctx, spec, d.Grace, func(ctx context.Context, r io.ReadCloser, w io.WriteCloser, stderr io.Writer) transport.Exit {
		var o Options
		if d.Options != nil {
			o = *d.Options
		}
		if o.Stderr != nil {
			stderr = io.MultiWriter(stderr, o.Stderr)
		}
		o.Stderr = stderr
		rep, err := Play(ctx, d.Script, r, w, &o)
		exit := transport.Exit{Code: rep.Code, Signal: rep.Signal}
		switch {
		case ctx.Err() != nil:
			exit.Code, exit.Signal, exit.Step = -1, "killed", transport.StepKill
			err = nil // it was ended on purpose
		case err != nil:
			exit.Code = ExitMismatch
			_, _ = io.WriteString(stderr, err.Error()+"\n") // to memory
		}
		if d.Done != nil {
			d.Done(rep, err)
		}
		return exit
	}), nil
}

// AgentDialer returns a dialer of agents in memory.
func AgentDialer(a Agent) transport.Dialer {
	return transport.DialerFunc(func(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		return dialMemory(ctx, spec, 0, func(ctx context.Context, r io.ReadCloser, w io.WriteCloser, stderr io.Writer) transport.Exit {
			stop := context.AfterFunc(ctx, func() { _, _ = r.Close(), w.Close() })
			defer stop()
			failed, err := a.serve(r, w)
			_, _ = r.Close(), w.Close() // pipes in memory
			switch {
			case ctx.Err() != nil:
				return transport.Exit{Code: -1, Signal: "killed", Step: transport.StepKill}
			case err != nil || failed:
				return transport.Exit{Code: 1}
			}
			return transport.Exit{}
		}), nil
	})
}

// memConn is a connection to a goroutine.
type memConn struct {
	io.Reader
	in     *io.PipeWriter
	out    *io.PipeReader
	cancel context.CancelFunc
	grace  time.Duration
	stderr *stderrTail
	done   chan struct{}

	mu    sync.Mutex
	eof   bool // the input was ended
	exit  transport.Exit
	drain sync.Once
}

func dialMemory(ctx context.Context, spec transport.Spec, grace time.Duration,
	serve func(context.Context, io.ReadCloser, io.WriteCloser, io.Writer) transport.Exit) transport.Conn {
	if grace == 0 {
		grace = 5 * time.Second
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	inr, inw := io.Pipe()
	outr, outw := io.Pipe()
	c := &memConn{
		Reader: outr, in: inw, out: outr, cancel: cancel, grace: grace,
		stderr: &stderrTail{tail: newTail(), line: spec.Stderr}, done: make(chan struct{}),
	}
	go func() {
		defer close(c.done)
		exit := serve(life, inr, outw, c.stderr)
		c.stderr.flush()
		exit.Stderr = c.stderr.String()
		c.mu.Lock()
		if exit.Step == transport.StepNone && c.eof {
			exit.Step = transport.StepEOF
		}
		c.exit = exit
		c.mu.Unlock()
	}()
	return c
}

func (c *memConn) Write(p []byte) (int, error) {
	n, err := c.in.Write(p)
	if errors.Is(err, io.ErrClosedPipe) {
		err = transport.ErrInputClosed
	}
	return n, err
}

func (c *memConn) CloseWrite() error {
	c.mu.Lock()
	select {
	case <-c.done:
	default:
		c.eof = true
	}
	c.mu.Unlock()
	return c.in.Close()
}

func (c *memConn) Wait(ctx context.Context) (transport.Exit, error) {
	select {
	case <-c.done:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.exit, nil
	case <-ctx.Done():
		return transport.Exit{}, context.Cause(ctx)
	}
}

func (c *memConn) Close(ctx context.Context) error {
	_ = c.CloseWrite() // never fails
	c.drain.Do(func() {
		go func() { _, _ = io.Copy(io.Discard, c.out) }() // ends when the play does
	})
	t := time.NewTimer(c.grace)
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
	case <-ctx.Done():
	}
	c.cancel()
	<-c.done
	return nil
}

// stderrTail keeps the end of standard error and hands out its lines.
type stderrTail struct {
	*tail
	line func(string)
	part []byte
}

func (s *stderrTail) Write(p []byte) (int, error) {
	n, err := s.tail.Write(p)
	if s.line == nil {
		return n, err
	}
	s.part = append(s.part, p...)
	for {
		line, after, ok := bytes.Cut(s.part, []byte("\n"))
		if !ok {
			return n, err
		}
		s.line(string(line))
		s.part = after
	}
}

func (s *stderrTail) flush() {
	if s.line != nil && len(s.part) > 0 {
		s.line(string(s.part))
		s.part = nil
	}
}
