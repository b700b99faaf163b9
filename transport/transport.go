// Package transport carries protocol lines between a host and an agent.
//
// A [Conn] is one connection: a byte stream in each direction and the means to end it.
// This package does not interpret the bytes; package wire decodes lines. A [Dialer]
// makes one connection for each conversation. [Process] is the dialer that starts a
// command, and [Pipe] makes an in-memory pair for tests and for agents in the same
// process.
package transport

import (
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrInputClosed is returned by Write after the input was ended or the peer
// stopped reading.
var ErrInputClosed = errors.New("transport: input is closed")

// A Conn is one connection to an agent.
//
// One goroutine may read while another writes; Close, CloseWrite and Wait may be
// called from any goroutine at any time. Writes are not serialized: a connection has
// one writer.
type Conn interface {
	// Read reads the peer's output. It returns io.EOF when the peer ended its output,
	// and ErrClosed when Close discarded output that nobody read.
	io.Reader
	// Write sends bytes to the peer. It may block while the peer does not read;
	// Close unblocks it.
	io.Writer
	// CloseWrite ends the input: the peer reads EOF. Output of the peer can still
	// be read. It is idempotent.
	CloseWrite() error
	// Wait blocks until the peer is gone and returns how it ended, or until ctx is
	// done. A process is not gone before its output was read to the end, or discarded
	// by Close.
	Wait(ctx context.Context) (Exit, error)
	// Close ends the connection, gently first, and returns when the peer is gone or
	// could not be ended. ctx shortens the gentle part; it does not leave a process
	// behind. A reader that continues reading gets everything that the peer writes
	// until it is gone; without a reader Close discards it. It is idempotent.
	Close(ctx context.Context) error
}

// Exit describes how a peer ended.
type Exit struct {
	Code   int    // exit status; -1 when ended by a signal or unknown
	Signal string // name of the signal that ended it, such as "killed"; empty otherwise
	Stderr string // the last part of its standard error
	// Dropped is how many lines of standard error were dropped because [Spec].Stderr
	// did not keep up.
	Dropped int
	Step    Step // the step that ended it
}

// A Step is a step of ending a peer.
type Step int

// The steps, gentlest first.
const (
	StepNone      Step = iota // it ended by itself
	StepEOF                   // its input was ended
	StepTerminate             // it was asked to terminate (SIGTERM)
	StepKill                  // it was killed (SIGKILL)
)

// String returns the step in a word or two, for error messages.
func (s Step) String() string {
	switch s {
	case StepNone:
		return "none"
	case StepEOF:
		return "end of input"
	case StepTerminate:
		return "terminate"
	case StepKill:
		return "kill"
	}
	return "Step(" + strconv.Itoa(int(s)) + ")"
}

// A Spec describes a connection by the parts of a command line, which [Spec.Args] joins.
// Dialers that start no process can apply the flags without joining them.
type Spec struct {
	Path   string            // the executable; empty means that the dialer finds one
	Words  []string          // the first arguments, without the executable
	Flags  []Flag            // the arguments after Words: the options of the agent
	Env    []string          // the whole environment, "KEY=value"
	Added  []string          // the entries of Env that the caller added, for dialers that do not use Env
	Clean  bool              // Env inherits nothing from this process
	Dir    string            // working directory; empty means that of this process
	Stderr func(line string) // called for each line of standard error; may be nil

	// CloseTimeout is how long Close waits for the agent to end by itself, and again after Close stopped it.
	// Zero means that the dialer decides.
	CloseTimeout time.Duration
}

// Args returns the arguments of the command line, without the executable.
func (s Spec) Args() []string {
	args := slices.Clone(s.Words)
	for _, f := range s.Flags {
		args = append(args, f.String())
	}
	return args
}

// A Flag is an option of an agent, by its name on a command line.
type Flag struct {
	Name   string   // without dashes
	Values []string // nil if the flag has no value; several are the items of a list
}

// String returns the flag as an argument of a command line.
func (f Flag) String() string {
	if f.Values == nil {
		return "--" + f.Name
	}
	return "--" + f.Name + "=" + strings.Join(f.Values, ",")
}

// A Dialer creates connections. Its Dial may be called many times, from several
// goroutines.
type Dialer interface {
	Dial(ctx context.Context, spec Spec) (Conn, error)
}

// DialerFunc is a function that implements [Dialer].
type DialerFunc func(ctx context.Context, spec Spec) (Conn, error)

// Dial calls f.
func (f DialerFunc) Dial(ctx context.Context, spec Spec) (Conn, error) { return f(ctx, spec) }
