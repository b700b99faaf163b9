package hub

import (
	"errors"

	"github.com/parley-go/parley"
)

// named are the errors that callers check for, by the names under which they travel.
var named = []struct {
	name string
	err  error
}{
	{"not_found", ErrNotFound}, {"forbidden", ErrForbidden}, {"exists", ErrExists}, {"locked", ErrLocked}, {"not_shown", ErrNotShown},
	{"changed", ErrChanged}, {"other_prompt", ErrOtherPrompt}, {"superseded", ErrSuperseded}, {"closed", ErrClosed}, {"no_host", errNoHost},
}

// A Failure is an error as JSON, for other processes. Its Err method returns an error with the same text, in
// which errors.Is and errors.As find what they would find in the original: [ErrNotFound], [*HeldError] and so on.
type Failure struct {
	Message  string               `json:"error"`
	Name     string               `json:"name,omitempty"` // not_found, locked …
	Answered *AnsweredError       `json:"answered,omitempty"`
	Held     *HeldError           `json:"held,omitempty"`
	Lagged   *LaggedError         `json:"lagged,omitempty"`
	Control  *parley.ControlError `json:"control,omitempty"`
}

// NewFailure describes an error.
func NewFailure(err error) *Failure {
	f := &Failure{Message: err.Error()}
	for _, n := range named {
		if errors.Is(err, n.err) {
			f.Name = n.name
			return f
		}
	}
	_ = errors.As(err, &f.Answered) || errors.As(err, &f.Held) || errors.As(err, &f.Lagged) || errors.As(err, &f.Control)
	return f
}

// Err returns the error that the failure describes.
func (f *Failure) Err() error { return &failed{f} }

type failed struct{ f *Failure }

func (e *failed) Error() string { return e.f.Message }

func (e *failed) Unwrap() error {
	switch f := e.f; {
	case f.Answered != nil:
		return f.Answered
	case f.Held != nil:
		return f.Held
	case f.Lagged != nil:
		return f.Lagged
	case f.Control != nil:
		return f.Control
	}
	for _, n := range named {
		if n.name == e.f.Name {
			return n.err
		}
	}
	return nil
}
