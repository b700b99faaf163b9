package wire

import (
	"encoding/json"
)

// A Request is what a [ControlRequest] asks for. Its concrete types are the
// structs of this package whose comment says that they are requests; one of
// another kind is an [*UnknownRequest].
type Request interface {
	// Subtype returns the name of the request on the wire.
	Subtype() string
	request()
}

// UnknownRequest is a control request of a kind that this package does not know.
type UnknownRequest struct {
	Name string          // its subtype member, empty if it has none
	Raw  json.RawMessage // the whole request
}

// Subtype returns Name.
func (u *UnknownRequest) Subtype() string { return u.Name }
func (*UnknownRequest) request()          {}

func (u *UnknownRequest) decodeWire(x item) (bool, error) {
	*u = UnknownRequest{Name: x.lookup("subtype"), Raw: x.raw()}
	return true, nil
}

func (u *UnknownRequest) encodeWire(dst []byte) ([]byte, error) { return appendRaw(dst, u.Raw) }

// decodeRequest reads any valid JSON value.
func decodeRequest(x item) Request {
	if r, ok := decodeKind(x, "subtype", requestTypes).(Request); ok {
		return r
	}
	u := new(UnknownRequest)
	u.decodeWire(x)
	return u
}

// ControlRequest is a message that asks the other side for something. The answer
// is a [ControlResponse] with the same id.
type ControlRequest struct {
	RequestID string  `json:"request_id,omitzero"`
	Request   Request `json:"request"`
	Open      `wire:"type=control_request"`
}

// ControlResponse is a message that answers a [ControlRequest].
type ControlResponse struct {
	Response Response `json:"response"`
	Open     `wire:"type=control_response"`
}

// Response is what a [ControlResponse] carries: a payload or an error.
type Response struct {
	Subtype   string          `json:"subtype"` // "success" or "error"
	RequestID string          `json:"request_id,omitzero"`
	Response  json.RawMessage `json:"response,omitzero"`   // the payload of a success; may be absent
	Error     string          `json:"error,omitzero"`      // what went wrong
	ErrorCode string          `json:"error_code,omitzero"` // the same for programs; may be absent

	// Requests of the sender that nobody has answered yet.
	PendingPermissionRequests  []*ControlRequest `json:"pending_permission_requests,omitzero"`
	PendingUserDialogRequests  []*ControlRequest `json:"pending_user_dialog_requests,omitzero"`
	PendingElicitationRequests []*ControlRequest `json:"pending_elicitation_requests,omitzero"`
	Open
}

// Decode reads the payload into v, a pointer to the type that the request says it
// is answered with. Without a payload, v keeps its value.
func (r *Response) Decode(v any) error {
	if r.Response == nil {
		return nil
	}
	return json.Unmarshal(r.Response, v)
}

// ControlCancelRequest is a message that takes a [ControlRequest] back. It has no
// answer, and the request gets none any more.
type ControlCancelRequest struct {
	RequestID string `json:"request_id"`
	Open      `wire:"type=control_cancel_request"`
}

// KeepAlive is a message that says nothing, so that the line is not silent.
type KeepAlive struct {
	Open `wire:"type=keep_alive"`
}
