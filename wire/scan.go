package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// A doc is scanned JSON text: one pass checks the grammar and records where each value
// begins and ends, so that extracting, skipping and rereading a value costs little. The
// grammar is that of RFC 8259; names may occur twice and \u escapes may be lone
// surrogates, because peers send such text.
//
// The scanner is our own because it is several times as fast as the library, which
// would walk the text once to check it and once more for each level of objects.
// FuzzScan compares the two.
type doc struct {
	src  []byte // the caller's
	tape []node
	wide bool // strings have characters beyond ASCII, or bytes that are not UTF-8
}

// A node is a value or the name of a member. Nodes are in the order of the text: a value
// comes before the nodes inside it.
type node struct {
	start, end uint32
	next       uint32 // index of the first node after the value
	escaped    bool   // a string with escapes
}

var (
	errSyntax = errors.New("not JSON")
	errDepth  = errors.New("nested too deeply")
	errValues = errors.New("too many values")
	errSize   = errors.New("longer than 4 GiB")
)

const (
	maxDepth = 10000
	// maxNodes limits the memory for the nodes of a line to about 128 MiB: a line with
	// more values is rejected.
	maxNodes = 8 << 20
)

var docs = sync.Pool{New: func() any { return new(doc) }}

// scan scans text. The caller must release the doc before text changes. Values taken from
// the doc are copies.
func scan(text []byte) (*doc, error) {
	if uint64(len(text)) > math.MaxUint32 {
		return nil, errSize // a node could not hold its position
	}
	d := docs.Get().(*doc)
	d.tape, d.wide = d.tape[:0], false
	end, err := d.value(text, skipSpace(text, 0), 0)
	if err == nil && skipSpace(text, end) != len(text) {
		err = errSyntax
	}
	if err != nil {
		d.release()
		return nil, err
	}
	d.src = text
	return d, nil
}

// scanValid scans text and replaces bytes that are not UTF-8 by U+FFFD. It looks for such
// bytes only if a string has bytes beyond ASCII, because nothing else in JSON has any.
func scanValid(text []byte) (*doc, error) {
	d, err := scan(text)
	if err == nil && d.wide && !utf8.Valid(text) {
		d.release()
		return scan(validUTF8(text))
	}
	return d, err
}

func (d *doc) release() {
	d.src = nil
	if cap(d.tape) > 1<<16 {
		d.tape = nil // do not keep the memory of a huge message
	}
	docs.Put(d)
}

func valid(text []byte) bool {
	d, err := scan(text)
	if err != nil {
		return false
	}
	d.release()
	return true
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// value scans the value at i and returns the index after it.
func (d *doc) value(b []byte, i, depth int) (int, error) {
	if i >= len(b) {
		return 0, errSyntax
	}
	at := len(d.tape)
	if at > maxNodes {
		return 0, errValues
	}
	switch c := b[i]; c {
	case '{':
		return d.object(b, i, depth)
	case '[':
		return d.array(b, i, depth)
	case '"':
		return d.string(b, i)
	case 't':
		return d.literal(b, i, "true", at)
	case 'f':
		return d.literal(b, i, "false", at)
	case 'n':
		return d.literal(b, i, "null", at)
	default:
		end := skipNumber(b, i)
		if end < 0 {
			return 0, errSyntax
		}
		d.tape = append(d.tape, node{start: uint32(i), end: uint32(end), next: uint32(at + 1)})
		return end, nil
	}
}

func (d *doc) literal(b []byte, i int, text string, at int) (int, error) {
	end := i + len(text)
	if end > len(b) || string(b[i:end]) != text {
		return 0, errSyntax
	}
	d.tape = append(d.tape, node{start: uint32(i), end: uint32(end), next: uint32(at + 1)})
	return end, nil
}

func (d *doc) object(b []byte, i, depth int) (_ int, err error) {
	if depth == maxDepth {
		return 0, errDepth
	}
	at := len(d.tape)
	d.tape = append(d.tape, node{start: uint32(i)})
	i = skipSpace(b, i+1)
	for first := true; ; first = false {
		switch {
		case i >= len(b):
			return 0, errSyntax
		case b[i] == '}' && first:
			return d.close(at, i), nil
		case b[i] != '"':
			return 0, errSyntax
		}
		if i, err = d.string(b, i); err != nil {
			return 0, err
		}
		if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
			return 0, errSyntax
		}
		if i, err = d.value(b, skipSpace(b, i+1), depth+1); err != nil {
			return 0, err
		}
		if i = skipSpace(b, i); i >= len(b) {
			return 0, errSyntax
		}
		if b[i] == '}' {
			return d.close(at, i), nil
		}
		if b[i] != ',' {
			return 0, errSyntax
		}
		i = skipSpace(b, i+1)
	}
}

func (d *doc) array(b []byte, i, depth int) (_ int, err error) {
	if depth == maxDepth {
		return 0, errDepth
	}
	at := len(d.tape)
	d.tape = append(d.tape, node{start: uint32(i)})
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return d.close(at, i), nil
	}
	for {
		if i, err = d.value(b, i, depth+1); err != nil {
			return 0, err
		}
		if i = skipSpace(b, i); i >= len(b) {
			return 0, errSyntax
		}
		if b[i] == ']' {
			return d.close(at, i), nil
		}
		if b[i] != ',' {
			return 0, errSyntax
		}
		i = skipSpace(b, i+1)
	}
}

// close records the end of the container that started at the node at.
func (d *doc) close(at, i int) int {
	n := &d.tape[at]
	n.end, n.next = uint32(i+1), uint32(len(d.tape))
	return i + 1
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// string scans the string that begins at i and returns the index after it.
func (d *doc) string(b []byte, i int) (int, error) {
	end, marks := stringEnd(b, i)
	if end < 0 {
		return 0, errSyntax
	}
	d.wide = d.wide || marks&wide != 0
	d.tape = append(d.tape, node{start: uint32(i), end: uint32(end), next: uint32(len(d.tape) + 1), escaped: marks&escaped != 0})
	return end, nil
}

// Properties of a string.
const (
	escaped = 1 << iota // it has escapes
	wide                // it has bytes beyond ASCII, or up to seven bytes after it have
)

// stringEnd returns the index after the string that begins at i, or -1 if the string is
// not valid.
func stringEnd(b []byte, i int) (end int, marks uint8) {
	var seen uint64 // bitwise or of all bytes that were examined
	i++
	for {
		// Examine eight bytes at a time, up to a quote, a backslash or a control
		// character.
		for run := i + 64; i+8 <= len(b); {
			x := binary.LittleEndian.Uint64(b[i:])
			seen |= x
			quote, slash := x^(ones*'"'), x^(ones*'\\')
			found := ((quote-ones)&^quote | (slash-ones)&^slash | (x-ones*0x20)&^x) & highs
			if found != 0 {
				i += bits.TrailingZeros64(found) / 8
				break
			}
			if i += 8; i >= run {
				// A long run of plain text: take larger steps.
				n, more := plain(b[i:])
				i += n
				seen |= more
				run = len(b)
			}
		}
		if i >= len(b) {
			return -1, 0
		}
		switch c := b[i]; {
		case c == '"':
			if seen&highs != 0 {
				marks |= wide
			}
			return i + 1, marks
		case c == '\\':
			marks |= escaped
			if i+1 >= len(b) {
				return -1, 0
			}
			switch b[i+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
			case 'u':
				if i+6 > len(b) || !isHex(b[i+2]) || !isHex(b[i+3]) || !isHex(b[i+4]) || !isHex(b[i+5]) {
					return -1, 0
				}
				i += 6
			default:
				return -1, 0
			}
		case c < 0x20:
			return -1, 0
		default: // near the end of the text
			seen |= uint64(c)
			i++
		}
	}
}

// plain returns how many bytes at the beginning of b are certainly inside the string: a
// multiple of 32, and at most four kilobytes, so that few bytes are examined twice. seen
// is the bitwise or of these bytes.
func plain(b []byte) (n int, seen uint64) {
	b = b[:min(len(b), 4096)]
	if n := bytes.IndexByte(b, '"'); n >= 0 {
		b = b[:n]
	}
	if n := bytes.IndexByte(b, '\\'); n >= 0 {
		b = b[:n]
	}
	const low = ones * 0x20
	for len(b) >= 32 {
		p := (*[32]byte)(b)
		w, x := binary.LittleEndian.Uint64(p[0:]), binary.LittleEndian.Uint64(p[8:])
		y, z := binary.LittleEndian.Uint64(p[16:]), binary.LittleEndian.Uint64(p[24:])
		if ((w-low)&^w|(x-low)&^x|(y-low)&^y|(z-low)&^z)&highs != 0 {
			break // a control character
		}
		seen |= w | x | y | z
		b = b[32:]
		n += 32
	}
	return n, seen
}

// isPlain reports whether text is ASCII that needs no escape.
func isPlain(s string) bool {
	for len(s) >= 8 {
		x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		quote, slash := x^(ones*'"'), x^(ones*'\\')
		if ((quote-ones)&^quote|(slash-ones)&^slash|(x-ones*0x20)&^x|x)&highs != 0 {
			return false
		}
		s = s[8:]
	}
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x80 || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// skipNumber returns the index after the number at i, or -1 if there is none.
func skipNumber(b []byte, i int) int {
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case i < len(b) && '1' <= b[i] && b[i] <= '9':
		i = skipDigits(b, i)
	default:
		return -1
	}
	if i < len(b) && b[i] == '.' {
		if end := skipDigits(b, i+1); end > i+1 {
			i = end
		} else {
			return -1
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		end := skipDigits(b, i)
		if end == i {
			return -1
		}
		i = end
	}
	return i
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}

// An item is one value of a doc.
type item struct {
	d *doc
	i uint32
}

// root returns the outermost value.
func (d *doc) root() item { return item{d, 0} }

// text returns the JSON text of the value.
func (x item) text() []byte {
	n := &x.d.tape[x.i]
	return x.d.src[n.start:n.end]
}

// kind returns the first character of the value: one of {["tfn- or a digit.
func (x item) kind() byte { return x.d.src[x.d.tape[x.i].start] }

func (x item) isNull() bool { return x.kind() == 'n' }

// raw returns a copy of the text.
func (x item) raw() []byte { return bytes.Clone(x.text()) }

// string decodes a string. exact is false if it has a lone surrogate, which becomes
// U+FFFD.
func (x item) string() (s string, exact bool) {
	n := &x.d.tape[x.i]
	if n.escaped {
		return unescape(x.text())
	}
	return string(x.inner()), true
}

// inner returns the text between the quotes of a string. Without escapes, that is the
// decoded string.
func (x item) inner() []byte {
	n := &x.d.tape[x.i]
	return x.d.src[n.start+1 : n.end-1]
}

// unescape decodes a JSON string with escapes. exact is false if one of them is a lone
// surrogate.
func unescape(quoted []byte) (s string, exact bool) {
	text := quoted[1 : len(quoted)-1]
	var b strings.Builder
	b.Grow(len(text))
	exact = true
	for {
		n := bytes.IndexByte(text, '\\')
		if n < 0 {
			b.Write(text)
			return b.String(), exact
		}
		b.Write(text[:n])
		c := text[n+1]
		text = text[n+2:]
		switch c {
		case 'b':
			b.WriteByte('\b')
		case 'f':
			b.WriteByte('\f')
		case 'n':
			b.WriteByte('\n')
		case 'r':
			b.WriteByte('\r')
		case 't':
			b.WriteByte('\t')
		case 'u':
			r := hexRune(text)
			text = text[4:]
			if utf16.IsSurrogate(r) {
				pair := rune(utf8.RuneError)
				if len(text) >= 6 && text[0] == '\\' && text[1] == 'u' {
					pair = utf16.DecodeRune(r, hexRune(text[2:]))
				}
				if pair != utf8.RuneError {
					text = text[6:]
				} else {
					exact = false
				}
				r = pair
			}
			b.WriteRune(r)
		default:
			b.WriteByte(c)
		}
	}
}

func hexRune(b []byte) rune {
	n, _ := strconv.ParseUint(string(b[:4]), 16, 32)
	return rune(n)
}

// unquote decodes JSON text that is a single string.
func unquote(raw []byte) string {
	s, _ := unescape(raw)
	return s
}

// members returns an iterator over the members of an object.
func (x item) members(visit func(name, value item) bool) {
	if x.kind() != '{' {
		return
	}
	tape := x.d.tape
	for i, end := x.i+1, tape[x.i].next; i < end; i = tape[i+1].next {
		if !visit(item{x.d, i}, item{x.d, i + 1}) {
			return
		}
	}
}

// elements returns an iterator over the elements of an array.
func (x item) elements(visit func(value item) bool) {
	if x.kind() != '[' {
		return
	}
	tape := x.d.tape
	for i, end := x.i+1, tape[x.i].next; i < end; i = tape[i].next {
		if !visit(item{x.d, i}) {
			return
		}
	}
}

// length returns the number of elements of an array.
func (x item) length() int {
	n := 0
	tape := x.d.tape
	for i, end := x.i+1, tape[x.i].next; i < end; i = tape[i].next {
		n++
	}
	return n
}

// get finds the last member of an object with a name. ok is false if there is none, or if
// x is not an object.
func (x item) get(name string) (value item, ok bool) {
	if x.kind() != '{' {
		return item{}, false
	}
	d := x.d
	for i, end := x.i+1, d.tape[x.i].next; i < end; i = d.tape[i+1].next {
		if d.named(i, name) {
			value, ok = item{d, i + 1}, true
		}
	}
	return value, ok
}

// named reports whether the name of a member is name.
func (d *doc) named(i uint32, name string) bool {
	n := &d.tape[i]
	if n.escaped {
		return (item{d, i}).is(name)
	}
	return int(n.end-n.start)-2 == len(name) && string(d.src[n.start+1:n.end-1]) == name
}

// is reports whether x is a string that decodes to s.
func (x item) is(s string) bool {
	if x.kind() != '"' {
		return false
	}
	if x.d.tape[x.i].escaped {
		got, _ := x.string()
		return got == s
	}
	return string(x.inner()) == s
}

// among returns the entry of a table for the string x, or nil.
func (x item) among(table map[string]reflect.Type) reflect.Type {
	if x.kind() != '"' {
		return nil
	}
	if x.d.tape[x.i].escaped {
		s, _ := x.string()
		return table[s]
	}
	return table[string(x.inner())]
}

// lookup returns a member that is a string, such as the type of an object, or "".
func (x item) lookup(name string) string {
	v, ok := x.get(name)
	if !ok || v.kind() != '"' {
		return ""
	}
	s, _ := v.string()
	return s
}

// trim removes white space from both ends.
func trim(b []byte) []byte {
	i := skipSpace(b, 0)
	j := len(b)
	for j > i && (b[j-1] == ' ' || b[j-1] == '\t' || b[j-1] == '\r' || b[j-1] == '\n') {
		j--
	}
	return b[i:j]
}
