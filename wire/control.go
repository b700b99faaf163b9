package wire

import (
	"encoding/json"
)

// A Request is the payload of a [ControlRequest]. Its concrete types are the
// structs of this package whose comment calls them a request; a request of another
// kind is an [*UnknownRequest].
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

// ControlRequest is a message that carries a request to the other side. The
// response is a [ControlResponse] with the same id.
type ControlRequest struct {
	RequestID string  `json:"request_id,omitzero"`
	Request   Request `json:"request"`
	Open      `wire:"type=control_request"`
}

// ControlResponse is a message that responds to a [ControlRequest].
type ControlResponse struct {
	Response Response `json:"response"`
	Open     `wire:"type=control_response"`
}

// Response is the content of a [ControlResponse]: a payload or an error.
type Response struct {
	Subtype   string          `json:"subtype"` // "success" or "error"
	RequestID string          `json:"request_id,omitzero"`
	Response  json.RawMessage `json:"response,omitzero"`   // the payload of a success; may be absent
	Error     string          `json:"error,omitzero"`      // the error message
	ErrorCode string          `json:"error_code,omitzero"` // a code for programs; may be absent

	// Requests of the sender that are still open.
	PendingPermissionRequests  []*ControlRequest `json:"pending_permission_requests,omitzero"`
	PendingUserDialogRequests  []*ControlRequest `json:"pending_user_dialog_requests,omitzero"`
	PendingElicitationRequests []*ControlRequest `json:"pending_elicitation_requests,omitzero"`
	Open
}

// Decode reads the payload into v, a pointer to the response type that the comment
// of the request names. Without a payload, v keeps its value.
func (r *Response) Decode(v any) error {
	if r.Response == nil {
		return nil
	}
	return json.Unmarshal(r.Response, v)
}

// ControlCancelRequest is a message that cancels a [ControlRequest]. Neither of
// them gets a response.
type ControlCancelRequest struct {
	RequestID string `json:"request_id"`
	Open      `wire:"type=control_cancel_request"`
}

// KeepAlive is a message that keeps the connection alive and has no content.
type KeepAlive struct {
	Open `wire:"type=keep_alive"`
}
