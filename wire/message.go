package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// A Message is one line of the protocol, in either direction. Its concrete types
// are the structs of this package whose comment calls them a message; a line of an
// unknown kind is an [*Unknown], and a line that is not JSON is a [*BadLine].
type Message interface{ message() }

// Stamp sets the uuid, the session id and the timestamp of a message that the agent
// emits, each unless the message has one. Control lines have none of them.
func Stamp(m Message, newUUID func() string, sessionID string, timestamp func() string) {
	s, ok := m.(interface {
		stamp() (uuid, session, at *string)
	})
	if !ok {
		return
	}
	uuid, session, at := s.stamp()
	if uuid != nil && *uuid == "" {
		*uuid = newUUID()
	}
	if session != nil && *session == "" {
		*session = sessionID
	}
	if *at == "" {
		*at = timestamp()
	}
}

// Unknown is a message of a kind that this package does not know.
type Unknown struct {
	Type    string          // its type member, empty if it has none
	Subtype string          // its subtype member, empty if it has none
	Raw     json.RawMessage // the whole line
}

// BadLine replaces a line that could not be decoded: it is not JSON, or longer than
// the reader allows. It is also the error that [Decode] returns for such a line. It
// cannot be encoded.
type BadLine struct {
	Text []byte // the start of the line
	Size int64  // the length of the whole line, in bytes
	Err  error  // the reason
}

// ErrLineTooLong is the Err of a [BadLine] that is longer than the reader allows.
var ErrLineTooLong = errors.New("line too long")

// Error describes the problem and shows how the line begins.
func (b *BadLine) Error() string {
	return fmt.Sprintf("wire: bad line of %d bytes: %v: %s", b.Size, b.Err, excerpt(b.Text))
}

// Unwrap returns Err.
func (b *BadLine) Unwrap() error { return b.Err }

func (*Unknown) message() {}
func (*BadLine) message() {}

// MarshalJSON returns Raw.
func (u Unknown) MarshalJSON() ([]byte, error) { return appendRaw(nil, u.Raw) }

// UnmarshalJSON keeps the value as it is.
func (u *Unknown) UnmarshalJSON(data []byte) error {
	d, err := scanValid(data)
	if err != nil {
		return fmt.Errorf("wire: %w: %s", err, excerpt(data))
	}
	defer d.release()
	*u = unknownMessage(d.root())
	return nil
}

var byteOrderMark = []byte("\xEF\xBB\xBF")

const badLineText = 512 // bytes of a bad line that are kept

func badLine(line []byte, size int64, err error) *BadLine {
	return &BadLine{Text: bytes.Clone(line[:min(len(line), badLineText)]), Size: size, Err: err}
}

// validUTF8 replaces bytes that are not UTF-8 by U+FFFD.
func validUTF8(b []byte) []byte {
	if utf8.Valid(b) {
		return b
	}
	return bytes.ToValidUTF8(b, []byte("\uFFFD"))
}

// Decode decodes one line. Every line that is valid JSON decodes to a message. For a line
// that is not, or that is nested more than 10,000 levels deep, the error is a [*BadLine].
// Decode does not retain line.
func Decode(line []byte) (Message, error) {
	var d Decoder
	return d.Decode(line, 0)
}

// Decode decodes one line, as the function [Decode] does. more is how many other lines of
// the stream wait to be decoded: Decode allocates memory for their stream events in advance.
func (d *Decoder) Decode(line []byte, more int) (Message, error) {
	text := trim(bytes.TrimPrefix(line, byteOrderMark))
	if len(text) == 0 {
		return nil, badLine(line, int64(len(line)), errors.New("empty line"))
	}
	if e := d.delta(text, more); e != nil {
		return e, nil
	}
	if a := decodeAssistant(text); a != nil {
		return a, nil
	}
	parts, err := scanValid(text)
	if err != nil {
		return nil, badLine(line, int64(len(line)), err)
	}
	defer parts.release()
	return decodeMessage(parts.root()), nil
}

func decodeMessage(x item) Message {
	var t reflect.Type
	if typ, ok := x.get("type"); ok && typ.is("system") {
		t = messageTypes["system/"+x.lookup("subtype")]
	} else if ok {
		t = typ.among(messageTypes)
	}
	if t != nil {
		v := reflect.New(t)
		if err := decodeObject(x, v.Elem()); err == nil {
			return v.Interface().(Message)
		}
	}
	u := unknownMessage(x)
	return &u
}

func unknownMessage(x item) Unknown {
	return Unknown{Type: x.lookup("type"), Subtype: x.lookup("subtype"), Raw: x.raw()}
}

// Encode returns the message as one line of JSON, without the line end.
func Encode(m Message) ([]byte, error) {
	return viaScratch(func(dst []byte) ([]byte, error) { return AppendMessage(dst, m) })
}

// AppendMessage appends what [Encode] returns to dst.
func AppendMessage(dst []byte, m Message) ([]byte, error) {
	start := len(dst)
	if isNil(m) {
		return nil, errors.New("wire: cannot encode a nil message")
	}
	var err error
	switch m := m.(type) {
	case *BadLine:
		return nil, fmt.Errorf("wire: cannot encode: %w", m)
	case *Unknown:
		dst, err = appendRaw(dst, m.Raw)
	default:
		dst, err = encodeObject(dst, reflect.ValueOf(m).Elem())
	}
	if err != nil {
		return nil, err
	}
	return oneLine(dst, start), nil
}

func isNil(m Message) bool { return m == nil || reflect.ValueOf(m).IsNil() }

// oneLine makes text a single line for every reader: text from other programs may have
// line breaks between values, and some readers treat U+2028 and U+2029 as line ends.
// It also ensures UTF-8.
func oneLine(b []byte, start int) []byte {
	if !utf8.Valid(b[start:]) {
		b = append(b[:start], validUTF8(b[start:])...)
	}
	for _, end := range []byte{'\n', '\r'} {
		for i := start; ; i++ {
			n := bytes.IndexByte(b[i:], end)
			if n < 0 {
				break
			}
			i += n
			b[i] = ' '
		}
	}
	if bytes.Contains(b[start:], []byte("\u2028")) || bytes.Contains(b[start:], []byte("\u2029")) {
		tail := bytes.ReplaceAll(b[start:], []byte("\u2028"), []byte(`\u2028`))
		tail = bytes.ReplaceAll(tail, []byte("\u2029"), []byte(`\u2029`))
		b = append(b[:start], tail...)
	}
	return b
}

// TypeOf returns the type and subtype members of a message.
func TypeOf(m Message) (typ, subtype string) {
	if isNil(m) {
		return "", ""
	}
	switch m := m.(type) {
	case *Unknown:
		return m.Type, m.Subtype
	case *BadLine:
		return "", ""
	case *Result:
		return "result", m.Subtype
	case *ControlRequest:
		if m.Request == nil {
			return "control_request", ""
		}
		return "control_request", m.Request.Subtype()
	case *ControlResponse:
		return "control_response", m.Response.Subtype
	}
	for _, c := range planOf(reflect.TypeOf(m).Elem()).consts {
		switch c.name {
		case "type":
			typ = c.value
		case "subtype":
			subtype = c.value
		}
	}
	return typ, subtype
}
