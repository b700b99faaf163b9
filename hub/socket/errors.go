package socket

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/hub"
)

// An Error is an error response of the hub. It wraps the hub's own error if that is one
// that callers check for.
type Error struct {
	Status  int // the HTTP status
	Message string
	err     error
}

// Error returns the hub's message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the hub's error, or nil.
func (e *Error) Unwrap() error { return e.err }

// sentinels are the errors that are sent over the socket by name.
var sentinels = []struct {
	name   string
	err    error
	status int
}{
	{"not_found", hub.ErrNotFound, http.StatusNotFound},
	{"forbidden", hub.ErrForbidden, http.StatusForbidden},
	{"exists", hub.ErrExists, http.StatusConflict},
	{"locked", hub.ErrLocked, http.StatusConflict},
	{"not_shown", hub.ErrNotShown, http.StatusConflict},
	{"changed", hub.ErrChanged, http.StatusConflict},
	{"other_prompt", hub.ErrOtherPrompt, http.StatusConflict},
	{"superseded", hub.ErrSuperseded, http.StatusConflict},
	{"closed", hub.ErrClosed, http.StatusServiceUnavailable},
}

// A failure is an error as it is sent over the socket.
type failure struct {
	Error    string               `json:"error"`
	Status   int                  `json:"status"`
	Name     string               `json:"name,omitempty"` // of a sentinel
	Answered *hub.AnsweredError   `json:"answered,omitempty"`
	Held     *hub.HeldError       `json:"held,omitempty"`
	Lagged   *hub.LaggedError     `json:"lagged,omitempty"`
	Control  *parley.ControlError `json:"control,omitempty"`
}

// failureOf describes an error.
func failureOf(err error) *failure {
	f := &failure{Error: err.Error(), Status: http.StatusBadRequest}
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			f.Name, f.Status = s.name, s.status
			return f
		}
	}
	if errors.As(err, &f.Answered) || errors.As(err, &f.Held) {
		f.Status = http.StatusConflict
	} else if !errors.As(err, &f.Lagged) {
		errors.As(err, &f.Control)
	}
	return f
}

// err returns the error that a failure describes.
func (f *failure) err() error {
	e := &Error{Status: f.Status, Message: f.Error}
	switch {
	case f.Answered != nil:
		e.err = f.Answered
	case f.Held != nil:
		e.err = f.Held
	case f.Lagged != nil:
		e.err = f.Lagged
	case f.Control != nil:
		e.err = f.Control
	}
	for _, s := range sentinels {
		if s.name == f.Name {
			e.err = s.err
		}
	}
	return e
}

// fail responds to a request with an error.
func fail(w http.ResponseWriter, err error) {
	f := failureOf(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Status)
	json.NewEncoder(w).Encode(f)
}
