package socket

import (
	"encoding/json"
	"errors"
	"net/http"

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

// statuses are the HTTP statuses of the failures that have a name. Others are bad requests.
var statuses = map[string]int{
	"not_found": http.StatusNotFound, "forbidden": http.StatusForbidden, "exists": http.StatusConflict, "locked": http.StatusConflict,
	"not_shown": http.StatusConflict, "changed": http.StatusConflict, "other_prompt": http.StatusConflict, "superseded": http.StatusConflict,
	"closed": http.StatusServiceUnavailable,
}

// A failure is an error as it is sent over the socket.
type failure struct {
	hub.Failure
	Status int `json:"status"`
}

// failureOf describes an error.
func failureOf(err error) *failure {
	f := &failure{*hub.NewFailure(err), http.StatusBadRequest}
	if status := statuses[f.Name]; status != 0 {
		f.Status = status
	} else if f.Answered != nil || f.Held != nil {
		f.Status = http.StatusConflict
	}
	return f
}

// err returns the error that a failure describes.
func (f *failure) err() error { return &Error{f.Status, f.Message, errors.Unwrap(f.Err())} }

// fail responds to a request with an error.
func fail(w http.ResponseWriter, err error) {
	f := failureOf(err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Status)
	json.NewEncoder(w).Encode(f)
}
