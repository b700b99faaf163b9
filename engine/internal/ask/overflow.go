package ask

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/parley-go/parley/engine/model"
)

// An Overflow is the error for a conversation that is larger than the model's window or
// the API's limit for a request. It is detected before a request is sent, or reported by the API.
type Overflow struct {
	Tokens, Window int64        // 0 if unknown
	Local          bool         // detected before sending
	Why            error        // why the conversation was not compacted; nil if that was not tried
	Reported       *model.Error // by the API; nil if no request was sent
}

// Error describes the overflow to people.
func (o *Overflow) Error() string {
	text := "Prompt is too long"
	if o.Tokens > 0 {
		text += fmt.Sprintf(": it has %d tokens, and the model takes %d", o.Tokens, o.Window)
	}
	if o.Why != nil {
		text += " · It could not be made shorter: " + Sentence(o.Why)
	}
	return text
}

// Unwrap returns the error of the API.
func (o *Overflow) Unwrap() error {
	if o.Reported == nil {
		return nil
	}
	return o.Reported
}

// Overflowed returns err as an overflow, or nil if it is none.
func Overflowed(err error) *Overflow {
	if o, ok := errors.AsType[*Overflow](err); ok {
		return o
	}
	e, ok := errors.AsType[*model.Error](err)
	if ok && (e.Status == http.StatusRequestEntityTooLarge ||
		e.Status == http.StatusBadRequest && strings.Contains(strings.ToLower(e.Message), "prompt is too long")) {
		return &Overflow{Reported: e}
	}
	return nil
}

// Sentence describes an error for people.
func Sentence(err error) string {
	if e, ok := errors.AsType[*model.Error](err); ok && e.Status != 0 {
		return fmt.Sprintf("API Error: %d %s", e.Status, e.Message)
	}
	return err.Error()
}
