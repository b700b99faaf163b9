package search

import (
	"bytes"
	"encoding/binary"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns the searchable bytes of a file: without a byte order mark, and converted
// to UTF-8 if that mark indicates UTF-16.
func Text(data []byte) []byte {
	order := byteOrder(data)
	if order == nil {
		return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	}
	text := make([]byte, 0, len(data))
	var high rune // the first half of a surrogate pair
	for i := 2; i+1 < len(data); i += 2 {
		r := rune(order.Uint16(data[i:]))
		if high != 0 {
			pair := utf16.DecodeRune(high, r)
			high = 0
			text = utf8.AppendRune(text, pair)
			if pair != utf8.RuneError {
				continue
			}
		}
		if 0xd800 <= r && r < 0xdc00 {
			high = r
			continue
		}
		text = utf8.AppendRune(text, r)
	}
	return text
}

// byteOrder returns the byte order of UTF-16 that starts with a mark; nil if it is
// something else.
func byteOrder(data []byte) binary.ByteOrder {
	switch {
	case bytes.HasPrefix(data, []byte("\xff\xfe")):
		return binary.LittleEndian
	case bytes.HasPrefix(data, []byte("\xfe\xff")):
		return binary.BigEndian
	}
	return nil
}

// isBinary reports whether the beginning of a file does not look like text.
func isBinary(head []byte) bool { return bytes.IndexByte(head, 0) >= 0 && byteOrder(head) == nil }
