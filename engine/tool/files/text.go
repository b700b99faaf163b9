package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// An Encoding is a character encoding.
type Encoding string

// The encodings that are distinguished. Text in any other one is kept as raw bytes,
// which are not valid UTF-8 then.
const (
	UTF8    Encoding = "utf-8"
	UTF16LE Encoding = "utf-16le" // with a byte order mark
	UTF16BE Encoding = "utf-16be" // with a byte order mark
)

// A Text is the content of a file with the properties needed to write it back
// unchanged.
type Text struct {
	Content  string // without byte order mark; line endings are \n if CRLF
	Encoding Encoding
	BOM      bool // it starts with a byte order mark
	CRLF     bool // every line ends in \r\n
}

const bom = "\ufeff"

// Binary reports whether the beginning of a file does not look like text.
func Binary(head []byte) bool {
	if _, ok := utf16Of(head); ok {
		return false
	}
	return bytes.IndexByte(head, 0) >= 0
}

func utf16Of(data []byte) (Encoding, bool) {
	switch {
	case bytes.HasPrefix(data, []byte{0xff, 0xfe}) && !bytes.HasPrefix(data, []byte{0xff, 0xfe, 0, 0}):
		return UTF16LE, true
	case bytes.HasPrefix(data, []byte{0xfe, 0xff}):
		return UTF16BE, true
	}
	return "", false
}

func order(e Encoding) binary.ByteOrder {
	if e == UTF16BE {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// Decode decodes the bytes of a file.
func Decode(data []byte) Text {
	t := Text{Encoding: UTF8}
	if e, ok := utf16Of(data); ok && len(data)%2 == 0 {
		units := make([]uint16, 0, len(data)/2-1)
		for i := 2; i < len(data); i += 2 {
			units = append(units, order(e).Uint16(data[i:]))
		}
		content := string(utf16.Decode(units))
		// Unpaired surrogates would not survive.
		if !strings.ContainsRune(content, utf8.RuneError) {
			t.Encoding, t.BOM, t.Content = e, true, content
			return t.lines()
		}
	}
	t.Content, t.BOM = strings.CutPrefix(string(data), bom)
	return t.lines()
}

func (t Text) lines() Text {
	if n := strings.Count(t.Content, "\r\n"); n > 0 && n == strings.Count(t.Content, "\n") && n == strings.Count(t.Content, "\r") {
		t.CRLF = true
		t.Content = strings.ReplaceAll(t.Content, "\r\n", "\n")
	}
	return t
}

// With returns the text with another content.
func (t Text) With(content string) Text {
	if t.BOM {
		content = strings.TrimPrefix(content, bom)
	}
	if t.CRLF {
		content = strings.ReplaceAll(content, "\r\n", "\n")
	}
	t.Content = content
	return t
}

// Encode returns the bytes of the text.
func (t Text) Encode() ([]byte, error) {
	content := t.Content
	if t.CRLF {
		content = strings.ReplaceAll(content, "\n", "\r\n")
	}
	if t.Encoding == UTF8 || t.Encoding == "" {
		if t.BOM {
			content = bom + content
		}
		return []byte(content), nil
	}
	if !utf8.ValidString(content) {
		return nil, errors.New("the text cannot be written in the encoding of the file")
	}
	units := utf16.Encode([]rune(content))
	data := make([]byte, 2, 2+2*len(units))
	order(t.Encoding).PutUint16(data, 0xfeff)
	for _, u := range units {
		data = order(t.Encoding).(binary.AppendByteOrder).AppendUint16(data, u)
	}
	return data, nil
}
