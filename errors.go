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
	// ErrClosed is returned by calls on a client that was closed.
	ErrClosed = errors.New("parley: the connection is closed")

	// ErrNoResult says that the agent ended its output before the result of the
	// turn. It is wrapped by an [*ExitError].
	ErrNoResult = errors.New("the agent ended without a result")

	// ErrBusy is yielded by a second turn while one is running, and by two
	// consumers of one client.
	ErrBusy = errors.New("parley: another turn of this client is running")

	// ErrNotHandled is returned by [Options.OnRequest] to leave a request to the
	// other callbacks.
	ErrNotHandled = errors.New("parley: the request is left to other callbacks")

	// ErrNoAnswer is returned by [Options.OnRequest] if the agent gets no answer.
	ErrNoAnswer = errors.New("parley: the request gets no answer")

	// ErrWithdrawn is the cause of the context of a callback when the agent has
	// withdrawn its request.
	ErrWithdrawn = errors.New("parley: the agent withdrew its request")

	// ErrUsed is yielded by an iterator that is ranged over a second time.
	ErrUsed = errors.New("parley: the iterator was used before; a query runs once")
)

// An ExitError says that the agent is gone though it was still needed.
type ExitError struct {
	Code   int      // exit status, -1 if a signal ended it or it is not known
	Signal string   // the signal that ended it, empty if none did
	Stderr string   // the last part of its standard error
	Frames []string // the last lines of the conversation, oldest first, "> " to the agent, "< " from it
	Err    error    // what was being done, such as ErrNoResult; may be nil
}

// Error tells how the agent ended, what was being done, and its last words.
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

// Unwrap returns what was being done, such as [ErrNoResult].
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

// A ResultError says that a turn ended in another way than with an answer. The
// result itself came before it.
type ResultError struct {
	Result *wire.Result // how the turn ended
}

// Outcome tells how the turn ended.
func (e *ResultError) Outcome() wire.Outcome { return e.Result.Outcome() }

// Error tells how the turn ended, and why.
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

// A ControlError is the agent's refusal of a control request.
type ControlError struct {
	Subtype string // the request
	Message string // the agent's words
	Code    string // the same for programs; may be empty
}

// Error tells the request and the agent's words.
func (e *ControlError) Error() string {
	return fmt.Sprintf("parley: %s: the agent answered: %s", e.Subtype, e.Message)
}

// A TimeoutError says that the agent did not do something in time.
type TimeoutError struct {
	What   string        // what was waited for, such as "initialize"
	After  time.Duration // how long
	Frames []string      // the last lines of the conversation
	Stderr string        // the last part of the agent's standard error, if it is known
}

// Error tells what was waited for, and how long.
func (e *TimeoutError) Error() string {
	msg := fmt.Sprintf("parley: %s: no answer after %v", e.What, e.After)
	if tail := strings.TrimSpace(e.Stderr); tail != "" {
		msg += "; the agent wrote: " + lastLines(tail, 5)
	}
	return msg
}

// Timeout returns true, as net.Error has it.
func (e *TimeoutError) Timeout() bool { return true }

// An OverflowError says that the consumer was so far behind that the messages it
// had not read passed the bound of [Options.MaxQueued].
type OverflowError struct {
	Bytes int64 // how much was waiting
	Limit int64 // how much may
}

// Error tells how much was waiting.
func (e *OverflowError) Error() string {
	return fmt.Sprintf("parley: %d bytes of messages were not read, more than the limit of %d (Options.MaxQueued)", e.Bytes, e.Limit)
}

// A BufferError says that the consumer was behind, and that no temporary file could be
// written for the messages that it had not read.
type BufferError struct {
	Bytes int64  // how much was waiting
	Dir   string // where the file was to be, as TMPDIR says
	Err   error  // why it could not be written
}

// Error tells how much was waiting, why it cannot be kept, and what to do.
func (e *BufferError) Error() string {
	return fmt.Sprintf("parley: %d bytes of messages were not read, and no more can be written to a temporary file in %s: %v: set TMPDIR to a directory that can be written, or raise Options.MaxBuffered", e.Bytes, e.Dir, e.Err)
}

// Unwrap returns Err.
func (e *BufferError) Unwrap() error { return e.Err }

// A ProtocolError says that the agent broke the protocol in a way that cannot be
// skipped.
type ProtocolError struct {
	Message string   // what it did
	Frames  []string // the last lines of the conversation
}

// Error tells what the agent did.
func (e *ProtocolError) Error() string { return "parley: protocol: " + e.Message }

// A CallbackError says that a callback of the host failed or panicked. It goes to
// [Options.OnWarning]; the agent received a denial or an error.
type CallbackError struct {
	Callback string // such as "CanUseTool" or "hook PreToolUse"
	Err      error  // what it returned
	Panic    any    // what it panicked with; nil if it did not
	Stack    []byte // where it panicked
}

// Error tells which callback failed, and how.
func (e *CallbackError) Error() string {
	if e.Panic != nil {
		return fmt.Sprintf("parley: %s panicked: %v", e.Callback, e.Panic)
	}
	return fmt.Sprintf("parley: %s failed: %v", e.Callback, e.Err)
}

// Unwrap returns what the callback returned.
func (e *CallbackError) Unwrap() error { return e.Err }

// A DroppedError says that [Options.Stderr] did not keep up, so that it was not called
// with some lines. It goes to [Options.OnWarning].
type DroppedError struct {
	Lines int // how many lines were dropped
}

// Error tells how many lines were dropped.
func (e *DroppedError) Error() string {
	return fmt.Sprintf("parley: %d lines of the agent's standard error were dropped: Options.Stderr did not keep up", e.Lines)
}

// An OptionError says that an option cannot be what it is.
type OptionError struct {
	Option string // the field of Options, such as "Resume"
	Reason string // what is wrong with it
}

// Error tells the field and what is wrong with it.
func (e *OptionError) Error() string { return "parley: Options." + e.Option + ": " + e.Reason }
