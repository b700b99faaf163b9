package wire

import (
	"bytes"

	"github.com/go-json-experiment/json/jsontext"
)

// The functions of this file walk JSON text that was found to be valid before:
// the library checks the grammar once, here values are only cut out. On text
// that is not valid they return something, never panic.

// lenient is how the protocol reads JSON: last of two equal names wins, a lone
// surrogate is a replacement character.
var lenient = []jsontext.Options{
	jsontext.AllowDuplicateNames(true),
	jsontext.AllowInvalidUTF8(true),
}

// valid reports whether b is one JSON value.
func valid(b []byte) bool { return jsontext.Value(b).IsValid(lenient...) }

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skipString returns the index behind the string whose opening quote is at i.
func skipString(b []byte, i int) int {
	for start := i + 1; ; {
		n := bytes.IndexByte(b[start:], '"')
		if n < 0 {
			return len(b)
		}
		end := start + n
		slashes := 0
		for k := end - 1; k > i && b[k] == '\\'; k-- {
			slashes++
		}
		if slashes%2 == 0 {
			return end + 1
		}
		start = end + 1
	}
}

// skipValue returns the index behind the value that starts at i.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ' ', '\t', '\r', '\n', ',', ':':
			if depth == 0 {
				return i
			}
			i++
			continue
		default:
			for i < len(b) && !isDelimiter(b[i]) {
				i++
			}
		}
		if depth <= 0 {
			return i
		}
	}
	return len(b)
}

func isDelimiter(c byte) bool {
	switch c {
	case ' ', '\t', '\r', '\n', ',', ':', ']', '}', '[', '{', '"':
		return true
	}
	return false
}

// trim cuts white space off both ends.
func trim(b []byte) []byte {
	i := skipSpace(b, 0)
	j := len(b)
	for j > i && (b[j-1] == ' ' || b[j-1] == '\t' || b[j-1] == '\r' || b[j-1] == '\n') {
		j--
	}
	return b[i:j]
}

// members walks the members of an object: name is the quoted name, value the
// text of the value.
func members(b []byte, visit func(name, value []byte) bool) {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return
	}
	i++
	for {
		i = skipSpace(b, i)
		if i >= len(b) || b[i] != '"' {
			return
		}
		end := skipString(b, i)
		name := b[i:end]
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ':' {
			return
		}
		i = skipSpace(b, i+1)
		end = skipValue(b, i)
		if end <= i || !visit(name, b[i:end]) {
			return
		}
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ',' {
			return
		}
		i++
	}
}

// elements walks the elements of an array.
func elements(b []byte, visit func(value []byte) bool) {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '[' {
		return
	}
	i++
	for {
		i = skipSpace(b, i)
		if i >= len(b) || b[i] == ']' {
			return
		}
		end := skipValue(b, i)
		if end <= i || !visit(b[i:end]) {
			return
		}
		i = skipSpace(b, end)
		if i >= len(b) || b[i] != ',' {
			return
		}
		i++
	}
}

// unquote returns the string that the JSON string b stands for. exact is false
// if it held a lone surrogate or bytes that are not UTF-8, which became U+FFFD.
func unquote(b []byte) (s string, exact bool) {
	if len(b) >= 2 && bytes.IndexByte(b, '\\') < 0 {
		return string(b[1 : len(b)-1]), true
	}
	out, err := jsontext.AppendUnquote(nil, b)
	return string(out), err == nil
}

// lookup finds a member of an object that is a string, such as its type.
func lookup(b []byte, name string) string {
	var s string
	members(b, func(n, v []byte) bool {
		if len(n) == len(name)+2 && string(n[1:len(n)-1]) == name {
			if v[0] == '"' {
				s, _ = unquote(v)
			}
			return false
		}
		return true
	})
	return s
}
