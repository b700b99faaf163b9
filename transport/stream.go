package transport

import (
	"context"
	"io"
	"slices"
	"sync"
)

// NewConn returns a connection to an agent that is already running, over a reader and a
// writer: a socket, the channels of an SSH session, another process's pipes. CloseWrite
// closes w if it is an [io.Closer]; if w also has a CloseWrite method, as TCP
// connections have, that is called instead. Close then waits for the agent to end its
// output, 5 seconds or until its context is done, and closes r if it is an io.Closer. It
// is unknown how the agent ended: its exit status is 0 if its output ended by itself,
// else -1.
func NewConn(r io.Reader, w io.Writer) Conn {
	return &streamConn{output: newOutput(r), r: r, w: w, closed: make(chan struct{})}
}

// A streamConn is a connection over the caller's streams.
type streamConn struct {
	output *output
	r      io.Reader
	w      io.Writer

	inputOnce, closeOnce sync.Once
	inputErr             error
	closed               chan struct{} // closed when r was closed by force
}

func (c *streamConn) Read(p []byte) (int, error) { return c.output.Read(p) }

func (c *streamConn) Write(p []byte) (int, error) { return c.w.Write(p) }

func (c *streamConn) CloseWrite() error {
	c.inputOnce.Do(func() {
		switch w := c.w.(type) {
		case interface{ CloseWrite() error }:
			c.inputErr = w.CloseWrite()
		case io.Closer:
			c.inputErr = w.Close()
		}
	})
	return c.inputErr
}

func (c *streamConn) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-c.output.end:
	case <-ctx.Done():
		return Exit{Code: -1}, ctx.Err()
	}
	select {
	case <-c.closed:
		return Exit{Code: -1, Step: StepKill}, nil
	default:
		return Exit{}, nil
	}
}

func (c *streamConn) Close(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, defaultGrace)
	defer cancel()
	input := make(chan error, 1)
	go func() { input <- c.CloseWrite() }() // a TLS connection waits for a Write that is blocked
	stop := make(chan struct{})
	discarded := make(chan struct{})
	go func() {
		defer close(discarded)
		c.output.discard(stop)
	}()
	select {
	case <-c.output.end:
	case <-bounded.Done():
		c.closeOnce.Do(func() {
			close(c.closed)
			if r, ok := c.r.(io.Closer); ok {
				r.Close()
			}
			if _, halves := c.w.(interface{ CloseWrite() error }); !halves {
				return
			}
			if w, ok := c.w.(io.Closer); ok {
				w.Close() // ends a Write that is blocked
			}
		})
	}
	close(stop)
	select {
	case <-discarded:
	case <-c.closed: // a reader that cannot be closed may block forever
	}
	select {
	case err := <-input:
		return err
	case <-c.closed:
	}
	select {
	case err := <-input:
		return err
	default:
		return nil
	}
}

// Attach returns a [Dialer] for one existing connection, such as one of [NewConn]; a
// second Dial fails. The agent at its other end is already running, so options that are
// flags, variables or directories of an agent are rejected with a [*SpecError]; the
// agent must have been started with
//
//	--input-format stream-json --output-format stream-json --verbose
//
// and, to ask the host for permission, with --permission-prompt-tool stdio.
func Attach(conn Conn) Dialer { return &attached{conn: conn} }

type attached struct {
	mu   sync.Mutex
	conn Conn // nil after Dial returned it
}

// streaming are the flags that every agent is started with.
var streaming = []string{"--output-format", "stream-json", "--verbose", "--input-format", "stream-json", "--permission-prompt-tool=stdio"}

func (a *attached) Dial(ctx context.Context, spec Spec) (Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	const reason = "the agent of this Dialer already runs, so it cannot be started with "
	for _, arg := range spec.Args() {
		if !slices.Contains(streaming, arg) {
			return nil, &SpecError{Option: "Dialer", Reason: reason + arg}
		}
	}
	switch {
	case spec.Path != "":
		return nil, &SpecError{Option: "Path", Reason: reason + spec.Path}
	case spec.Dir != "":
		return nil, &SpecError{Option: "Cwd", Reason: reason + "the working directory " + spec.Dir}
	case spec.Clean:
		return nil, &SpecError{Option: "CleanEnv", Reason: reason + "another environment"}
	case len(spec.Added) > 0:
		return nil, &SpecError{Option: "Env", Reason: reason + spec.Added[0]}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	conn := a.conn
	a.conn = nil
	if conn == nil {
		return nil, &SpecError{Option: "Dialer", Reason: "its only connection was used before"}
	}
	return conn, nil
}
