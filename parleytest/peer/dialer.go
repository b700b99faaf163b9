package peer

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/parley-go/parley/parleytest/parrot"
	"github.com/parley-go/parley/transport"
)

// A Dialer plays a script in memory, over a [transport.Pipe], from the start for
// each connection. It implements [transport.Dialer].
type Dialer struct {
	// Script is the script to play. It must not need a process.
	Script *Script
	// Options are the options of [Play]. Its Stderr also receives the standard error
	// of the script.
	Options *Options
	// Done, if not nil, is called when a play has ended, from its goroutine. The
	// error is nil if the script was followed or the host ended the play.
	Done func(*Report, error)
}

// Dial starts a play. The arguments and the environment of the spec are recorded, if
// the options request it, and otherwise ignored. If the script is not followed, the
// peer writes the reason to standard error, and its exit status is [ExitMismatch].
func (d *Dialer) Dial(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if d.Script.NeedsProcess() {
		return nil, ErrNeedsProcess
	}
	return dialMemory(spec, func(ctx context.Context, r io.Reader, w io.Writer, stderr io.Writer) (int, string) {
		var o Options
		if d.Options != nil {
			o = *d.Options
			newRecorder(o.Record).begin(spec.Args(), spec.Env)
		}
		o.Stderr = stderr
		if d.Options != nil && d.Options.Stderr != nil {
			o.Stderr = io.MultiWriter(stderr, d.Options.Stderr)
		}
		rep, err := Play(ctx, d.Script, r, w, &o)
		code, signal := rep.Code, rep.Signal
		switch {
		case ctx.Err() != nil: // ended by the host, which is allowed
			code, signal, err = -1, "terminated", nil
		case err != nil:
			code = ExitMismatch
			_, _ = io.WriteString(stderr, err.Error()+"\n") // to memory
		}
		if d.Done != nil {
			d.Done(rep, err)
		}
		return code, signal
	}), nil
}

// AgentDialer returns a dialer that serves a [parrot.Agent] in memory.
func AgentDialer(a parrot.Agent) transport.Dialer {
	return transport.DialerFunc(func(ctx context.Context, spec transport.Spec) (transport.Conn, error) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return dialMemory(spec, func(ctx context.Context, r io.Reader, w io.Writer, stderr io.Writer) (int, string) {
			stop := context.AfterFunc(ctx, func() { _, _ = r.(io.Closer).Close(), w.(io.Closer).Close() })
			defer stop()
			failed, err := a.Serve(ctx, r, w)
			switch {
			case ctx.Err() != nil:
				return -1, "terminated"
			case err != nil || failed:
				return 1, ""
			}
			return 0, ""
		}), nil
	})
}

// dialMemory runs serve in a goroutine at the other end of a pipe.
func dialMemory(spec transport.Spec, serve func(ctx context.Context, r io.Reader, w, stderr io.Writer) (code int, signal string)) transport.Conn {
	conn, far := transport.Pipe()
	far.SetCloseTimeout(spec.CloseTimeout)
	c := &memConn{Conn: conn}
	go func() {
		code, signal := serve(far.Context(), pipeReader{far}, pipeWriter{far}, far.Stderr(spec.Stderr))
		c.signal.Store(&signal)
		far.Exit(code, "")
	}()
	return c
}

// A memConn adds to a pipe the signal that killed the peer at its other end.
type memConn struct {
	transport.Conn
	signal atomic.Pointer[string]
}

func (c *memConn) Wait(ctx context.Context) (transport.Exit, error) {
	exit, err := c.Conn.Wait(ctx)
	if s := c.signal.Load(); s != nil && err == nil {
		exit.Signal = *s
	}
	return exit, err
}

// pipeReader and pipeWriter are the other end of a pipe, each closed separately.
type (
	pipeReader struct{ *transport.Peer }
	pipeWriter struct{ *transport.Peer }
)

func (r pipeReader) Close() error { return r.CloseRead() }
func (w pipeWriter) Close() error { return w.CloseWrite() }
