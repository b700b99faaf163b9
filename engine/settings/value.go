package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A Value is a JSON value with its position in a file.
type Value struct {
	Line    int               // line in its file, from 1
	members map[string]*Value // of an object; otherwise nil
	names   []string          // of the members, in their order
	items   []*Value          // of an array; otherwise nil
	scalar  json.RawMessage   // any other value
	array   bool
}

// Limits of a file of settings: size in bytes, and depth.
const (
	maxFile  = 4 << 20
	maxDepth = 64
)

// parse parses JSON. line is where the error is.
func parse(text []byte) (v *Value, line int, err error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	p := &parser{text: text, d: json.NewDecoder(bytes.NewReader(text))}
	p.d.UseNumber()
	v, err = p.value(0)
	if err == nil {
		if _, more := p.d.Token(); more != io.EOF {
			err = errors.New("something follows the closing brace")
		}
	}
	if err == nil {
		return v, 0, nil
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return nil, p.lineAt(syntax.Offset), errors.New(strings.TrimPrefix(syntax.Error(), "json: "))
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, p.lineAt(int64(len(text))), errors.New("it ends too early")
	}
	return nil, p.lineAt(p.d.InputOffset()), err
}

type parser struct {
	text []byte
	d    *json.Decoder
}

func (p *parser) lineAt(offset int64) int {
	return 1 + bytes.Count(p.text[:min(max(offset, 0), int64(len(p.text)))], []byte("\n"))
}

func (p *parser) value(depth int) (*Value, error) {
	if depth > maxDepth {
		return nil, errors.New("it is nested too deeply")
	}
	t, err := p.d.Token()
	if err != nil {
		return nil, err
	}
	v := &Value{Line: p.lineAt(p.d.InputOffset())}
	switch t {
	case json.Delim('{'):
		v.members = map[string]*Value{}
		for p.d.More() {
			key, err := p.d.Token()
			if err != nil {
				return nil, err
			}
			name, _ := key.(string)
			if before := v.members[name]; before != nil {
				return nil, fmt.Errorf("%q is there twice, first in line %d: only one of them could count", name, before.Line)
			}
			m, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			v.members[name] = m
			v.names = append(v.names, name)
		}
	case json.Delim('['):
		v.array = true
		for p.d.More() {
			item, err := p.value(depth + 1)
			if err != nil {
				return nil, err
			}
			v.items = append(v.items, item)
		}
	default:
		v.scalar = encode(t)
		return v, nil
	}
	_, err = p.d.Token() // the closing bracket
	return v, err
}

// encode encodes a scalar without escaping < and &.
func encode(t any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(t) // cannot fail for a decoded scalar or a string
	return bytes.TrimSpace(b.Bytes())
}

// Get returns a member of an object, or nil if it is missing or null.
func (v *Value) Get(names ...string) *Value {
	for _, n := range names {
		if v == nil {
			return nil
		}
		v = v.members[n]
		if v != nil && string(v.scalar) == "null" {
			v = nil
		}
	}
	return v
}

// Raw returns the value as JSON, with the members of objects in order.
func (v *Value) Raw() json.RawMessage {
	if v == nil {
		return nil
	}
	return v.append(nil)
}

func (v *Value) append(b []byte) []byte {
	switch {
	case v.members != nil:
		b = append(b, '{')
		for i, n := range v.names {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(append(b, encode(n)...), ':')
			b = v.members[n].append(b)
		}
		return append(b, '}')
	case v.array:
		b = append(b, '[')
		for i, item := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.append(b)
		}
		return append(b, ']')
	}
	return append(b, v.scalar...)
}

// kind returns the type of a value, for people.
func (v *Value) kind() string {
	switch {
	case v.members != nil:
		return "an object"
	case v.array:
		return "a list"
	case len(v.scalar) > 0 && v.scalar[0] == '"':
		return "a string"
	case string(v.scalar) == "true" || string(v.scalar) == "false":
		return "true or false"
	case string(v.scalar) == "null":
		return "null"
	}
	return "a number"
}

func (v *Value) text() (s string, ok bool) {
	if v == nil || len(v.scalar) == 0 || v.scalar[0] != '"' {
		return "", false
	}
	return s, json.Unmarshal(v.scalar, &s) == nil
}

// truth reports whether a value is true.
func (v *Value) truth() bool { return v != nil && string(v.scalar) == "true" }

// only returns an object with the members for which keep returns a value.
func (v *Value) only(keep func(name string, m *Value) *Value) *Value {
	c := &Value{Line: v.Line, members: map[string]*Value{}}
	for _, n := range v.names {
		if m := keep(n, v.members[n]); m != nil {
			c.set(n, m)
		}
	}
	return c
}

func (v *Value) set(name string, m *Value) {
	if v.members[name] == nil {
		v.names = append(v.names, name)
	}
	v.members[name] = m
}

// pick returns a list with the items for which keep returns a value; nil if there are
// none.
func (v *Value) pick(keep func(*Value) *Value) *Value {
	c := &Value{Line: v.Line, array: true}
	for _, item := range v.items {
		if item = keep(item); item != nil {
			c.items = append(c.items, item)
		}
	}
	if c.items == nil {
		return nil
	}
	return c
}

// merge merges one value over another: objects member by member, lists by concatenation
// without duplicates, and anything else by replacement.
func merge(under, over *Value) *Value {
	switch {
	case under == nil:
		return over
	case over == nil:
		return under
	case under.members != nil && over.members != nil:
		m := &Value{Line: over.Line, members: map[string]*Value{}}
		for _, n := range under.names {
			m.set(n, under.members[n])
		}
		for _, n := range over.names {
			m.set(n, merge(m.members[n], over.members[n]))
		}
		return m
	case under.array && over.array:
		m := &Value{Line: over.Line, array: true, items: slices.Clone(under.items)}
		there := make(map[string]bool, len(m.items))
		for _, item := range m.items {
			there[string(item.Raw())] = true
		}
		for _, item := range over.items {
			if raw := string(item.Raw()); !there[raw] {
				there[raw] = true
				m.items = append(m.items, item)
			}
		}
		return m
	}
	return over
}
