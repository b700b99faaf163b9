// Package rawjson reads and changes single members of JSON objects and leaves every
// other byte as it is: a prompt cache identifies a request by its bytes.
//
// Its functions accept any input, but their results are meaningful only for valid JSON.
package rawjson

import (
	"bytes"
	"encoding/json"
	"slices"
)

// A Member is the position of a member in an object.
type Member struct {
	From, To int // from the name with its quotes to the end of the value
	Value    int // start of the value
}

// Find returns the member of an object with this name, the last one if there are
// several. Names that are written with escapes are not found.
func Find(object []byte, name string) (m Member, ok bool) {
	for f := range members(object) {
		if string(object[f.From+1:f.nameEnd]) == name {
			m, ok = f.Member, true
		}
	}
	return m, ok
}

// Get returns the value of a member, or nil.
func Get(object []byte, name string) []byte {
	if m, ok := Find(object, name); ok {
		return object[m.Value:m.To]
	}
	return nil
}

// String returns a string member, or "" if it is something else.
func String(object []byte, name string) string {
	v := Get(object, name)
	if len(v) < 2 || v[0] != '"' || v[len(v)-1] != '"' {
		return ""
	}
	if bytes.IndexByte(v, '\\') >= 0 {
		var s string
		if json.Unmarshal(v, &s) != nil {
			return ""
		}
		return s
	}
	return string(v[1 : len(v)-1])
}

// Set returns an object with a member set to a value: in place if it exists, else at
// the end. The object itself does not change.
func Set(object []byte, name, value string) []byte {
	// Find the last member without scanning what may be megabytes.
	if rest, ok := bytes.CutSuffix(object, []byte("}")); ok {
		if rest, ok = bytes.CutSuffix(rest, []byte(value)); ok && bytes.HasSuffix(rest, []byte(`,"`+name+`":`)) {
			return object
		}
	}
	if m, ok := Find(object, name); ok {
		if string(object[m.Value:m.To]) == value {
			return object
		}
		out := make([]byte, 0, len(object)+len(value))
		out = append(out, object[:m.Value]...)
		out = append(out, value...)
		return append(out, object[m.To:]...)
	}
	end := bytes.LastIndexByte(object, '}')
	if end < 0 {
		return object
	}
	out := make([]byte, 0, len(object)+len(name)+len(value)+4)
	out = append(out, object[:end]...)
	if head := bytes.TrimRight(object[:end], " \t\r\n"); len(head) > 0 && head[len(head)-1] != '{' {
		out = append(out, ',')
	}
	out = append(out, '"')
	out = append(out, name...)
	out = append(out, `":`...)
	out = append(out, value...)
	return append(out, object[end:]...)
}

// Delete returns an object without a member. The object itself does not change.
func Delete(object []byte, name string) []byte {
	for {
		m, ok := Find(object, name)
		if !ok {
			return object
		}
		from, to := m.From, m.To
		// Remove the comma after it, or the one before it if it is the last.
		if next := skipSpace(object, to); next < len(object) && object[next] == ',' {
			to = skipSpace(object, next+1)
		} else if head := bytes.TrimRight(object[:from], " \t\r\n"); len(head) > 0 && head[len(head)-1] == ',' {
			from = len(head) - 1
		}
		out := make([]byte, 0, len(object))
		out = append(out, object[:from]...)
		object = append(out, object[to:]...)
	}
}

// Walk calls f for each member of an object, in order, as far as the object is complete.
// It reports whether the object is complete and only followed by white space.
func Walk(object []byte, f func(name, value []byte)) bool {
	end := walk(object, func(m found) bool {
		f(object[m.From+1:m.nameEnd], object[m.Value:m.To])
		return true
	})
	return end > 0 && skipSpace(object, end) == len(object)
}

// Names returns the names of an object's members, in order.
func Names(object []byte) (all []string) {
	Walk(object, func(name, _ []byte) { all = append(all, unquote(name)) })
	return all
}

// Order returns an object whose members with the given names come first, in that order. The others
// keep theirs.
func Order(object []byte, names []string) []byte {
	var pairs [][2]string
	if !Walk(object, func(name, value []byte) { pairs = append(pairs, [2]string{string(name), string(value)}) }) {
		return object
	}
	place := func(p [2]string) int {
		if i := slices.Index(names, unquote([]byte(p[0]))); i >= 0 {
			return i
		}
		return len(names)
	}
	slices.SortStableFunc(pairs, func(a, b [2]string) int { return place(a) - place(b) })
	out := []byte{'{'}
	for i, p := range pairs {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, `"`+p[0]+`":`...), p[1]...)
	}
	return append(out, '}')
}

// unquote returns the name of a member without escapes.
func unquote(name []byte) (s string) {
	json.Unmarshal(append(append([]byte{'"'}, name...), '"'), &s)
	return s
}

// Elements returns the elements of an array, or nil if it is not an array.
func Elements(array []byte) (all [][]byte) {
	i := skipSpace(array, 0)
	if i >= len(array) || array[i] != '[' {
		return nil
	}
	for {
		from := skipSpace(array, i+1)
		to := skipValue(array, from)
		if to > len(array) || to <= from {
			return all
		}
		all = append(all, array[from:to:to])
		if i = skipSpace(array, to); i >= len(array) || array[i] != ',' {
			return all
		}
	}
}

type found struct {
	Member
	nameEnd int // the closing quote of the name
}

// members yields the members of an object in order.
func members(b []byte) func(yield func(found) bool) {
	return func(yield func(found) bool) { walk(b, yield) }
}

// walk yields the members of an object in order. It returns the end of the object, or 0 if
// the object is incomplete.
func walk(b []byte, yield func(found) bool) int {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return 0
	}
	if end := skipSpace(b, i+1); end < len(b) && b[end] == '}' {
		return end + 1
	}
	for {
		i = skipSpace(b, i+1)
		if i >= len(b) || b[i] != '"' {
			return 0
		}
		f := found{}
		f.From = i
		i = skipString(b, i)
		if i > len(b) || i < f.From+2 {
			return 0
		}
		f.nameEnd = i - 1
		i = skipSpace(b, i)
		if i >= len(b) || b[i] != ':' {
			return 0
		}
		f.Value = skipSpace(b, i+1)
		f.To = skipValue(b, f.Value)
		if f.To > len(b) || f.To <= f.Value || !yield(f) {
			return 0
		}
		i = skipSpace(b, f.To)
		if i < len(b) && b[i] == '}' {
			return i + 1
		}
		if i >= len(b) || b[i] != ',' {
			return 0
		}
	}
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the position after the string at i, more than len(b) if it has no
// end.
func skipString(b []byte, i int) int {
	for i++; i < len(b); {
		j := bytes.IndexByte(b[i:], '"')
		if j < 0 {
			break
		}
		k := i + j
		n := 0 // backslashes before the quote
		for n < j && b[k-1-n] == '\\' {
			n++
		}
		i = k + 1
		if n%2 == 0 {
			return i
		}
	}
	return len(b) + 1
}

// skipValue returns the position after the value at i, more than len(b) if it has no
// end.
func skipValue(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = skipString(b, i)
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth == 0 {
				return i + 1
			}
			if depth < 0 { // the end of the object around a number or literal
				return i
			}
		case ',', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return i
			}
		}
		i++
	}
	if depth == 0 {
		return i
	}
	return len(b) + 1
}
