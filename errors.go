package parley

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

var (
	// ErrClosed means that the client was closed.
	ErrClosed = errors.New("parley: the connection is closed")

	// ErrNoResult means that the agent ended its output before the result of the turn.
	// It is wrapped by an [*ExitError].
	ErrNoResult = errors.New("the agent ended without a result")

	// ErrBusy means that the client is in use: by a turn that is running, or by another
	// consumer.
	ErrBusy = errors.New("parley: another turn of this client is running")

	// ErrNotHandled is returned by [Options.OnRequest] to leave a request to the
	// other callbacks.
	ErrNotHandled = errors.New("parley: the request is left to other callbacks")

	// ErrNoAnswer is returned by [Options.OnRequest] to send the agent no answer.
	ErrNoAnswer = errors.New("parley: the request gets no answer")

	// ErrWithdrawn is the cancellation cause of a callback's context when the agent
	// has cancelled its request.
	ErrWithdrawn = errors.New("parley: the agent withdrew its request")

	// ErrUsed means that an iterator was ranged over a second time.
	ErrUsed = errors.New("parley: the iterator was used before; a query runs once")
)

// An ExitError means that the agent ended while it was still needed.
type ExitError struct {
	Code   int      // exit status, -1 if a signal ended it or it is unknown
	Signal string   // the signal that ended it, empty if none did
	Stderr string   // the end of its standard error
	Frames []string // the last lines of the conversation, oldest first, "> " to the agent, "< " from it
	Err    error    // the operation that failed, such as ErrNoResult; may be nil
}

// Error describes how the agent ended, which operation failed, and the last lines of
// its standard error.
func (e *ExitError) Error() string {
	var b strings.Builder
	b.WriteString("parley: ")
	switch {
	case e.Signal != "":
		fmt.Fprintf(&b, "the agent was ended by a signal (%s)", e.Signal)
	case e.Code >= 0:
		fmt.Fprintf(&b, "the agent exited with status %d", e.Code)
	default:
		b.WriteString("the connection to the agent ended")
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if tail := strings.TrimSpace(e.Stderr); tail != "" {
		fmt.Fprintf(&b, "; it wrote: %s", lastLines(tail, 5))
	}
	return b.String()
}

// Unwrap returns the operation that failed, such as [ErrNoResult].
func (e *ExitError) Unwrap() error { return e.Err }

func lastLines(s string, n int) string {
	lines := strings.Split(s, "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}

func exitError(exit transport.Exit, frames []string, err error) *ExitError {
	return &ExitError{Code: exit.Code, Signal: exit.Signal, Stderr: exit.Stderr, Frames: frames, Err: err}
}

// A ResultError means that a turn did not complete. The result itself was yielded
// before it.
type ResultError struct {
	Result *wire.Result // how the turn ended
}

// Outcome returns how the turn ended.
func (e *ResultError) Outcome() wire.Outcome { return e.Result.Outcome() }

// Error describes how the turn ended, and why.
func (e *ResultError) Error() string {
	msg := "parley: the turn ended: " + e.Outcome().String()
	if s := e.Result.APIErrorStatus; s != 0 {
		msg += fmt.Sprintf(" (HTTP %d)", s)
	}
	if reason := e.Result.Reason(); reason != "" {
		msg += ": " + reason
	}
	return msg
}

// A ControlError means that the agent rejected a control request.
type ControlError struct {
	Subtype string // of the request
	Message string // the agent's message
	Code    string // a code for programs; may be empty
}

// Error returns the request and the agent's message.
func (e *ControlError) Error() string {
	return fmt.Sprintf("parley: %s: the agent answered: %s", e.Subtype, e.Message)
}

// A TimeoutError means that the agent did not do something in time.
type TimeoutError struct {
	What   string        // the operation that timed out, such as "initialize"
	After  time.Duration // the time limit
	Frames []string      // the last lines of the conversation
	Stderr string        // the last part of the agent's standard error, if known
}

// Error names the operation that timed out and the limit.
func (e *TimeoutError) Error() string {
	msg := fmt.Sprintf("parley: %s: no answer after %v", e.What, e.After)
	if tail := strings.TrimSpace(e.Stderr); tail != "" {
		msg += "; the agent wrote: " + lastLines(tail, 5)
	}
	return msg
}

// Timeout returns true, as in net.Error.
func (e *TimeoutError) Timeout() bool { return true }

// An OverflowError means that the consumer did not keep up: the messages that it had
// not read exceeded [Options.MaxQueued].
type OverflowError struct {
	Bytes int64 // size of the unread messages
	Limit int64 // the limit
}

// Error states the size of the unread messages and the limit.
func (e *OverflowError) Error() string {
	return fmt.Sprintf("parley: %d bytes of messages were not read, more than the limit of %d (Options.MaxQueued)", e.Bytes, e.Limit)
}

// A BufferError means that the consumer did not keep up, and that its unread messages
// could not be written to a temporary file.
type BufferError struct {
	Bytes int64  // size of the unread messages
	Dir   string // directory of the file, from TMPDIR
	Err   error  // the reason
}

// Error states the size of the unread messages, why they cannot be kept, and a remedy.
func (e *BufferError) Error() string {
	return fmt.Sprintf("parley: %d bytes of messages were not read, and no more can be written to a temporary file in %s: %v: set TMPDIR to a directory that can be written, or raise Options.MaxBuffered", e.Bytes, e.Dir, e.Err)
}

// Unwrap returns Err.
func (e *BufferError) Unwrap() error { return e.Err }

// A ProtocolError means that the agent broke the protocol in a way that cannot be
// skipped.
type ProtocolError struct {
	Message string   // describes the violation
	Frames  []string // the last lines of the conversation
}

// Error describes the violation.
func (e *ProtocolError) Error() string { return "parley: protocol: " + e.Message }

// A CallbackError means that a callback of the host failed or panicked. It goes to
// [Options.OnWarning]; the agent received a denial or an error.
type CallbackError struct {
	Callback string // such as "CanUseTool" or "hook PreToolUse"
	Err      error  // the error that it returned
	Panic    any    // the value that it panicked with; nil if it did not panic
	Stack    []byte // of the panic
}

// Error names the callback and describes the failure.
func (e *CallbackError) Error() string {
	if e.Panic != nil {
		return fmt.Sprintf("parley: %s panicked: %v", e.Callback, e.Panic)
	}
	return fmt.Sprintf("parley: %s failed: %v", e.Callback, e.Err)
}

// Unwrap returns the error that the callback returned.
func (e *CallbackError) Unwrap() error { return e.Err }

// A DroppedError means that [Options.Stderr] did not keep up, so that some lines were
// dropped. It goes to [Options.OnWarning].
type DroppedError struct {
	Lines int // number of dropped lines
}

// Error states how many lines were dropped.
func (e *DroppedError) Error() string {
	return fmt.Sprintf("parley: %d lines of the agent's standard error were dropped: Options.Stderr did not keep up", e.Lines)
}

// An OptionError means that an option has an invalid value.
type OptionError struct {
	Option string // the field of Options, such as "Resume"
	Reason string // describes the problem
}

// Error names the field and describes the problem.
func (e *OptionError) Error() string { return "parley: Options." + e.Option + ": " + e.Reason }
