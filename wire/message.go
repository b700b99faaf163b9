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
// are the structs of this package whose comment says that they are messages; a
// line of a kind that this package does not know is an [*Unknown], a line that is
// not JSON a [*BadLine].
type Message interface{ message() }

// Unknown is a message of a kind that this package does not know.
type Unknown struct {
	Type    string          // its type member, empty if it has none
	Subtype string          // its subtype member, empty if it has none
	Raw     json.RawMessage // the whole line
}

// BadLine stands in the place of a line that could not be taken apart: it is not
// JSON, or longer than the reader allows. It is also the error that [Decode]
// returns for such a line. It cannot be encoded.
type BadLine struct {
	Text []byte // the beginning of the line
	Size int64  // how long the whole line was, in bytes
	Err  error  // what is wrong with it
}

// ErrLineTooLong is the Err of a [BadLine] that is longer than the reader allows.
var ErrLineTooLong = errors.New("line too long")

func (b *BadLine) Error() string {
	return fmt.Sprintf("wire: bad line of %d bytes: %v: %s", b.Size, b.Err, excerpt(b.Text))
}

func (b *BadLine) Unwrap() error { return b.Err }

func (*Unknown) message() {}
func (*BadLine) message() {}

// MarshalJSON returns Raw.
func (u *Unknown) MarshalJSON() ([]byte, error) { return appendRaw(nil, u.Raw) }

// UnmarshalJSON keeps the value as it is.
func (u *Unknown) UnmarshalJSON(data []byte) error {
	*u = Unknown{Type: lookup(data, "type"), Subtype: lookup(data, "subtype"), Raw: bytes.Clone(data)}
	return nil
}

var byteOrderMark = []byte("\xEF\xBB\xBF")

const badLineText = 512 // how much of a bad line is kept

func badLine(line []byte, size int64, err error) *BadLine {
	return &BadLine{Text: bytes.Clone(line[:min(len(line), badLineText)]), Size: size, Err: err}
}

// Decode takes one line apart. A line that is valid JSON always gives a message;
// one that is not gives a [*BadLine] as error. Nothing of line is kept.
func Decode(line []byte) (Message, error) {
	text := trim(bytes.TrimPrefix(line, byteOrderMark))
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	if len(text) == 0 {
		return nil, badLine(line, int64(len(line)), errors.New("empty line"))
	}
	if !valid(text) {
		return nil, badLine(line, int64(len(line)), errors.New("not JSON"))
	}
	return decodeMessage(text), nil
}

// decodeMessage reads valid JSON.
func decodeMessage(text []byte) Message {
	if text[0] == '{' {
		typ := lookup(text, "type")
		if typ == "system" {
			typ = "system/" + lookup(text, "subtype")
		}
		if t, ok := messageTypes[typ]; ok {
			v := reflect.New(t)
			if err := decodeObject(text, v.Elem()); err == nil {
				return v.Interface().(Message)
			}
		}
	}
	u := new(Unknown)
	u.UnmarshalJSON(text)
	return u
}

// Encode returns the message as one line of JSON, without the line end.
func Encode(m Message) ([]byte, error) { return AppendMessage(nil, m) }

// AppendMessage appends what [Encode] returns to dst.
func AppendMessage(dst []byte, m Message) ([]byte, error) {
	start := len(dst)
	var err error
	switch m := m.(type) {
	case nil:
		return nil, errors.New("wire: cannot encode a nil message")
	case *BadLine:
		return nil, fmt.Errorf("wire: cannot encode: %w", m)
	case *Unknown:
		dst, err = appendRaw(dst, m.Raw)
	default:
		v := reflect.ValueOf(m)
		if v.IsNil() {
			return nil, errors.New("wire: cannot encode a nil message")
		}
		dst, err = encodeObject(dst, v.Elem())
	}
	if err != nil {
		return nil, err
	}
	return oneLine(dst, start), nil
}

// oneLine makes sure that readers of lines agree where the line ends: text that
// others made may hold line breaks between values, and some readers take U+2028
// and U+2029 for line ends.
func oneLine(b []byte, start int) []byte {
	for i := start; i < len(b); i++ {
		n := bytes.IndexAny(b[i:], "\n\r")
		if n < 0 {
			break
		}
		i += n
		b[i] = ' '
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
	switch m := m.(type) {
	case *Unknown:
		return m.Type, m.Subtype
	case *BadLine, nil:
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
