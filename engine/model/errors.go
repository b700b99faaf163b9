package model

import (
	"errors"
	"fmt"
	"time"
)

// An EventError means that an event of a stream is malformed: its data is not JSON, has
// no type, or is too large. It ends the stream. As with a broken connection, the
// request can be retried.
type EventError struct {
	Data []byte // the beginning of the data, at most 1 KiB
	Err  error  // what is wrong with it
}

// Error implements error.
func (e *EventError) Error() string {
	return fmt.Sprintf("model: malformed event: %v: %.200q", e.Err, e.Data)
}

// Unwrap returns Err.
func (e *EventError) Unwrap() error { return e.Err }

// An IdleError means that a server kept a connection open and sent nothing for too
// long.
type IdleError struct {
	After time.Duration // how long nothing was received
}

// Error implements error.
func (e *IdleError) Error() string {
	return fmt.Sprintf("model: nothing came for %v", e.After)
}

// Timeout reports true, as for the errors of package net.
func (e *IdleError) Timeout() bool { return true }

// ErrNoCredentials means that there are no credentials for the API.
var ErrNoCredentials = errors.New("model: no credentials")

// A CredentialsError is an [ErrNoCredentials] with an explanation for people. Retrying does
// not help.
type CredentialsError struct{ Message string }

// Error returns the message.
func (e *CredentialsError) Error() string { return e.Message }

// Is reports whether target is [ErrNoCredentials].
func (e *CredentialsError) Is(target error) bool { return target == ErrNoCredentials }
