package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"
)

// Open is part of every object of the protocol. It keeps the members for which the Go
// type has no field, so that a decoded value encodes to its source.
type Open struct {
	// Extra holds the members that the Go type does not know, and those whose
	// value has a shape that the field cannot hold. A field that is set takes
	// precedence over a member of the same name.
	Extra map[string]json.RawMessage

	// odd remembers fields whose usual encoding differs from the text they were
	// decoded from: an explicit null or zero, 1.0 for an integer, a dialect.
	odd []odd
}

type odd struct {
	field   uint16 // of the plan; from firstConst on, a constant that was missing
	zero    bool   // text stands for the zero value
	derived any    // not nil: the value that the field got from other members
	text    string // the JSON text that the field was decoded from; empty if there was none
}

const firstConst = 1 << 15

func (o *Open) open() *Open { return o }

// extra returns a member that no field holds.
func (o *Open) extra(name string) (json.RawMessage, bool) {
	raw, ok := o.Extra[name]
	return raw, ok
}

// derive marks a field as filled from other members: while the field keeps that
// value, its own member is encoded as it was decoded.
func (o *Open) derive(field int, value any) {
	d := odd{field: uint16(field), derived: value}
	o.odd = slices.DeleteFunc(o.odd, func(k odd) bool {
		if k.field == d.field {
			d.text = k.text
		}
		return k.field == d.field
	})
	o.odd = append(o.odd, d)
}

// isDerived reports whether a field was filled from other members.
func (o *Open) isDerived(field int) bool {
	return slices.ContainsFunc(o.odd, func(k odd) bool { return int(k.field) == field && k.derived != nil })
}

// lacks reports whether the object was decoded without one of its constants.
func (o *Open) lacks(constant int) bool {
	return slices.ContainsFunc(o.odd, func(k odd) bool { return int(k.field) == firstConst+constant })
}

// complete makes the encoder write the constants that were missing when the object was
// decoded.
func (o *Open) complete() {
	o.odd = slices.DeleteFunc(o.odd, func(k odd) bool { return k.field >= firstConst })
}

// An object is a struct of this package that embeds Open.
type object interface{ open() *Open }

// A deriver fills fields from the members of a dialect after it was decoded.
type deriver interface{ derived(p *plan) }

// A value is a type that reads and writes its own JSON inside a message.
type value interface {
	// decodeWire reads a value that is not null. faithful reports
	// whether encodeWire would write the same value.
	decodeWire(x item) (faithful bool, err error)
	encodeWire(dst []byte) ([]byte, error)
}

// A plan describes how a struct is read and written.
type plan struct {
	name   string // of the Go type, for errors
	consts []constant
	fields []field
	byName map[string]int

	open     int             // index of the struct field Open
	derives  bool            // the type is a deriver
	required [2]uint64       // fields that are written even if zero
	follow   []atomic.Uint32 // by field + 1: the field that followed it last time; at 0: the first field
}

// A constant is a member that identifies the type of an object, such as its type and
// subtype.
type constant struct {
	name, value string
	text        []byte // `"name":"value"`
}

type field struct {
	index int // of the struct field
	base  int // of the embedded struct that the field is in; negative if it is in none
	label []byte
	name  string
	omit  bool // the zero value is not written
	null  bool // the zero value is written as null
	codec *codec
}

// of returns the field of a struct.
func (f *field) of(v reflect.Value) reflect.Value {
	if f.base >= 0 {
		v = v.Field(f.base)
	}
	return v.Field(f.index)
}

// A codec reads and writes values of one Go type.
type codec struct {
	// dec reads a value that is not null into v, which is zero.
	dec func(x item, v reflect.Value) (faithful bool, err error)
	enc func(dst []byte, v reflect.Value) ([]byte, error)
	raw bool // null is a value and does not mean that there is none
}

var (
	plans  sync.Map // reflect.Type → *plan
	codecs sync.Map // reflect.Type → *codec

	objectType  = reflect.TypeFor[object]()
	deriverType = reflect.TypeFor[deriver]()
	valueType   = reflect.TypeFor[value]()
	openType    = reflect.TypeFor[Open]()
	rawType     = reflect.TypeFor[json.RawMessage]()
	blockType   = reflect.TypeFor[Block]()
	requestType = reflect.TypeFor[Request]()
	hookType    = reflect.TypeFor[HookInput]()
	outputType  = reflect.TypeFor[HookSpecificOutput]()
)

func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	p := &plan{name: t.Name(), byName: make(map[string]int, t.NumField())}
	for i := range t.NumField() {
		switch sf := t.Field(i); {
		case sf.Type == openType:
			p.open = i
			for c := range strings.SplitSeq(sf.Tag.Get("wire"), ",") {
				if name, val, ok := strings.Cut(c, "="); ok {
					p.consts = append(p.consts, constant{name, val, fmt.Appendf(nil, "%q:%q", name, val)})
				}
			}
		case sf.Anonymous:
			for k := range sf.Type.NumField() {
				p.add(sf.Type.Field(k), i, k)
			}
		default:
			p.add(sf, -1, i)
		}
	}
	p.follow = make([]atomic.Uint32, len(p.fields)+1)
	p.derives = reflect.PointerTo(t).Implements(deriverType)
	actual, _ := plans.LoadOrStore(t, p)
	return actual.(*plan)
}

// add adds a field of the struct, or of the struct that it embeds at base.
func (p *plan) add(sf reflect.StructField, base, index int) {
	tag, tagged := sf.Tag.Lookup("json")
	if !sf.IsExported() || !tagged || tag == "-" {
		return
	}
	name, opts, _ := strings.Cut(tag, ",")
	f := field{
		index: index,
		base:  base,
		name:  name,
		label: fmt.Appendf(nil, "%q:", name),
		omit:  strings.Contains(opts, "omitzero"),
		null:  sf.Tag.Get("wire") == "null", // "optional" concerns only the schema: others may omit the member
		codec: codecOf(sf.Type),
	}
	n := len(p.fields)
	if n == 128 {
		panic("wire: " + p.name + " has too many fields")
	}
	if !f.omit {
		p.required[n/64] |= 1 << (n % 64)
	}
	p.byName[name] = n
	p.fields = append(p.fields, f)
}

// fieldOf returns the position in the plan of the field with a JSON name.
func (p *plan) fieldOf(name string) int {
	i, ok := p.byName[name]
	if !ok {
		panic("wire: " + p.name + " has no field " + name)
	}
	return i
}

func codecOf(t reflect.Type) *codec {
	if c, ok := codecs.Load(t); ok {
		return c.(*codec)
	}
	c := newCodec(t)
	actual, _ := codecs.LoadOrStore(t, c)
	return actual.(*codec)
}

// errShape means that a value has a shape that its field cannot hold.
var errShape = errors.New("unexpected shape")

func newCodec(t reflect.Type) *codec {
	switch {
	case t == rawType:
		return &codec{raw: true,
			dec: func(x item, v reflect.Value) (bool, error) {
				v.SetBytes(x.raw())
				return true, nil
			},
			enc: func(dst []byte, v reflect.Value) ([]byte, error) { return appendRaw(dst, v.Bytes()) },
		}
	case t == blockType:
		return interfaceCodec(decodeBlock)
	case t == requestType:
		return interfaceCodec(decodeRequest)
	case t == hookType:
		return interfaceCodec(decodeHookInput)
	case t == outputType:
		return interfaceCodec(decodeHookOutput)
	case reflect.PointerTo(t).Implements(valueType):
		return &codec{
			dec: func(x item, v reflect.Value) (bool, error) {
				return v.Addr().Interface().(value).decodeWire(x)
			},
			enc: func(dst []byte, v reflect.Value) ([]byte, error) {
				return addressable(v).Addr().Interface().(value).encodeWire(dst)
			},
		}
	case t.Kind() == reflect.Struct && reflect.PointerTo(t).Implements(objectType):
		return &codec{
			dec: func(x item, v reflect.Value) (bool, error) { return true, decodeObject(x, v) },
			enc: encodeObject,
		}
	}
	switch t.Kind() {
	case reflect.Bool:
		return &codec{dec: decodeBool, enc: func(dst []byte, v reflect.Value) ([]byte, error) {
			return strconv.AppendBool(dst, v.Bool()), nil
		}}
	case reflect.String:
		return &codec{dec: decodeString, enc: func(dst []byte, v reflect.Value) ([]byte, error) {
			return appendString(dst, v.String()), nil
		}}
	case reflect.Int, reflect.Int64, reflect.Int32:
		return &codec{dec: decodeInt, enc: func(dst []byte, v reflect.Value) ([]byte, error) {
			return strconv.AppendInt(dst, v.Int(), 10), nil
		}}
	case reflect.Float64:
		return &codec{dec: decodeFloat, enc: func(dst []byte, v reflect.Value) ([]byte, error) {
			return appendFloat(dst, v.Float())
		}}
	case reflect.Pointer:
		return pointerCodec(t.Elem())
	case reflect.Slice:
		return sliceCodec(t)
	case reflect.Map:
		return mapCodec(t)
	}
	panic("wire: no codec for " + t.String())
}

// lazy delays the look-up of an element's codec, since types may be recursive.
func lazy(t reflect.Type) func() *codec {
	return sync.OnceValue(func() *codec { return codecOf(t) })
}

func interfaceCodec[T any](decode func(x item) T) *codec {
	return &codec{
		dec: func(x item, v reflect.Value) (bool, error) {
			// reflect's Set would compare the methods of the types each time.
			*v.Addr().Interface().(*T) = decode(x)
			return true, nil
		},
		enc: func(dst []byte, v reflect.Value) ([]byte, error) {
			if v.IsNil() || v.Elem().IsNil() {
				return append(dst, "null"...), nil
			}
			e := v.Elem().Elem()
			return codecOf(e.Type()).enc(dst, e)
		},
	}
}

func pointerCodec(elem reflect.Type) *codec {
	c := lazy(elem)
	return &codec{
		dec: func(x item, v reflect.Value) (bool, error) {
			v.Set(reflect.New(elem))
			faithful, err := c().dec(x, v.Elem())
			if err != nil {
				v.SetZero()
			}
			return faithful, err
		},
		enc: func(dst []byte, v reflect.Value) ([]byte, error) {
			if v.IsNil() {
				return append(dst, "null"...), nil
			}
			return c().enc(dst, v.Elem())
		},
	}
}

func sliceCodec(t reflect.Type) *codec {
	c := lazy(t.Elem())
	nilable := t.Elem().Kind() == reflect.Pointer || t.Elem().Kind() == reflect.Interface
	return &codec{
		dec: func(x item, v reflect.Value) (faithful bool, err error) {
			if x.kind() != '[' {
				return false, errShape
			}
			faithful = true
			n := x.length()
			s := reflect.MakeSlice(t, n, n)
			i := 0
			x.elements(func(x item) bool {
				e := s.Index(i)
				i++
				if x.isNull() && !c().raw {
					faithful = faithful && nilable
					return true
				}
				var ok bool
				ok, err = c().dec(x, e)
				faithful = faithful && ok
				return err == nil
			})
			if err != nil {
				return false, err
			}
			v.Set(s)
			return faithful, nil
		},
		enc: func(dst []byte, v reflect.Value) (_ []byte, err error) {
			dst = append(dst, '[')
			for i := range v.Len() {
				if i > 0 {
					dst = append(dst, ',')
				}
				if dst, err = c().enc(dst, v.Index(i)); err != nil {
					return nil, err
				}
			}
			return append(dst, ']'), nil
		},
	}
}

func mapCodec(t reflect.Type) *codec {
	c := lazy(t.Elem())
	nilable := t.Elem().Kind() == reflect.Pointer || t.Elem().Kind() == reflect.Interface
	return &codec{
		dec: func(x item, v reflect.Value) (faithful bool, err error) {
			if x.kind() != '{' {
				return false, errShape
			}
			faithful = true
			m := reflect.MakeMap(t)
			x.members(func(name, x item) bool {
				key, ok := name.string()
				faithful = faithful && ok
				e := reflect.New(t.Elem()).Elem()
				if x.isNull() && !c().raw {
					faithful = faithful && nilable
				} else {
					ok, err = c().dec(x, e)
					faithful = faithful && ok
				}
				if err == nil {
					m.SetMapIndex(reflect.ValueOf(key).Convert(t.Key()), e)
				}
				return err == nil
			})
			if err != nil {
				return false, err
			}
			v.Set(m)
			return faithful, nil
		},
		enc: func(dst []byte, v reflect.Value) (_ []byte, err error) {
			keys := make([]string, 0, v.Len())
			for _, k := range v.MapKeys() {
				keys = append(keys, k.String())
			}
			slices.Sort(keys)
			dst = append(dst, '{')
			for i, k := range keys {
				if i > 0 {
					dst = append(dst, ',')
				}
				dst = append(appendString(dst, k), ':')
				if dst, err = c().enc(dst, v.MapIndex(reflect.ValueOf(k).Convert(t.Key()))); err != nil {
					return nil, err
				}
			}
			return append(dst, '}'), nil
		},
	}
}

func decodeBool(x item, v reflect.Value) (bool, error) {
	switch x.kind() {
	case 't':
		v.SetBool(true)
	case 'f':
		v.SetBool(false)
	default:
		return false, errShape
	}
	return true, nil
}

func decodeString(x item, v reflect.Value) (bool, error) {
	if x.kind() != '"' {
		return false, errShape
	}
	s, exact := x.string()
	v.SetString(s)
	return exact, nil
}

func isNumber(x item) bool {
	c := x.kind()
	return c == '-' || '0' <= c && c <= '9'
}

func decodeInt(x item, v reflect.Value) (bool, error) {
	if !isNumber(x) {
		return false, errShape
	}
	text := string(x.text())
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && !v.OverflowInt(n) {
		v.SetInt(n)
		return text != "-0", nil
	}
	// 1.0 and 1e3 are also integers.
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<53 || v.OverflowInt(int64(f)) {
		return false, errShape
	}
	v.SetInt(int64(f))
	return false, nil
}

func decodeFloat(x item, v reflect.Value) (bool, error) {
	if !isNumber(x) {
		return false, errShape
	}
	text := string(x.text())
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return false, errShape
	}
	v.SetFloat(f)
	again, _ := appendFloat(make([]byte, 0, 32), f)
	return string(again) == text, nil
}

// appendFloat writes a number as JavaScript does.
func appendFloat(dst []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fmt.Errorf("wire: %v is not a JSON number", f)
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, format, -1, 64)
	if n := len(dst); format == 'e' && n-start >= 4 && dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1] // e-09 is written e-9
		dst = dst[:n-1]
	}
	return dst, nil
}

func appendString(dst []byte, s string) []byte {
	if isPlain(s) {
		return append(append(append(dst, '"'), s...), '"')
	}
	out, err := jsontext.AppendQuote(dst, s)
	if err != nil { // not UTF-8
		out, _ = jsontext.AppendQuote(dst, strings.ToValidUTF8(s, "\uFFFD"))
	}
	return out
}

// appendRaw writes text from a caller, which may not be valid JSON.
func appendRaw(dst, raw []byte) ([]byte, error) {
	if raw == nil {
		return append(dst, "null"...), nil
	}
	if !valid(raw) {
		return nil, fmt.Errorf("wire: not valid JSON: %s", excerpt(raw))
	}
	return append(dst, trim(raw)...), nil
}

func excerpt(b []byte) string {
	if len(b) > 80 {
		return strconv.Quote(string(b[:80])) + "…"
	}
	return strconv.Quote(string(b))
}

// addressable returns v or an addressable copy of it.
func addressable(v reflect.Value) reflect.Value {
	if v.CanAddr() {
		return v
	}
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	return c
}

// decodeObject reads an object into a struct. Members that its fields cannot hold
// go to Extra. Only a value that is not an object, or an object of another type, is an
// error.
func decodeObject(x item, v reflect.Value) error {
	if x.kind() != '{' {
		return errShape
	}
	p := planOf(v.Type())
	o := v.Field(p.open).Addr().Interface().(*Open)
	var seen [2]uint64   // fields that were decoded
	var consts [2]uint32 // nodes of the constants
	d := x.d
	at := -1 // the last field
	for k, end := x.i+1, d.tape[x.i].next; k < end; k = d.tape[k+1].next {
		i, known := p.find(at, d, k)
		if !known {
			if c := p.constant(item{d, k}); c >= 0 {
				consts[c] = k + 1
			} else {
				name, _ := (item{d, k}).string()
				o.keep(name, item{d, k + 1})
			}
			continue
		}
		bit := uint64(1) << (i % 64)
		if seen[i/64]&bit != 0 {
			p.forget(o, i, v)
		}
		seen[i/64] |= bit
		p.decodeField(o, i, item{d, k + 1}, v)
		at = i
	}
	for i := range p.consts {
		if c := &p.consts[i]; consts[i] == 0 {
			o.odd = append(o.odd, odd{field: uint16(firstConst + i)})
		} else if v := (item{d, consts[i]}); !v.is(c.value) {
			return fmt.Errorf("wire: %s has %s %s, want %q", p.name, c.name, excerpt(v.text()), c.value)
		}
	}
	for w, missing := range p.required {
		for missing &^= seen[w]; missing != 0; missing &= missing - 1 {
			i := 64*w + bits.TrailingZeros64(missing)
			o.odd = append(o.odd, odd{field: uint16(i), zero: true})
		}
	}
	if p.derives {
		v.Addr().Interface().(deriver).derived(p)
	}
	return nil
}

// decodeKind reads an object whose member of the given name identifies its type. It
// returns nil if the table has no such type.
func decodeKind(x item, name string, types map[string]reflect.Type) any {
	kind, ok := x.get(name)
	if !ok {
		return nil
	}
	t := kind.among(types)
	if t == nil {
		return nil
	}
	v := reflect.New(t)
	if decodeObject(x, v.Elem()) != nil {
		return nil
	}
	return v.Interface()
}

// find returns the field with a JSON name. Peers write members in the same order each
// time, so it first tries the field that followed the last time.
func (p *plan) find(after int, d *doc, name uint32) (i int, known bool) {
	guess := int(p.follow[after+1].Load())
	if guess < len(p.fields) && d.named(name, p.fields[guess].name) {
		return guess, true
	}
	if x := (item{d, name}); d.tape[name].escaped {
		s, _ := x.string()
		i, known = p.byName[s]
	} else {
		i, known = p.byName[string(x.inner())]
	}
	if known {
		p.follow[after+1].Store(uint32(i))
	}
	return i, known
}

// constant returns the position of the constant with the name of a member, or -1.
func (p *plan) constant(name item) int {
	for i := range p.consts {
		if name.d.named(name.i, p.consts[i].name) {
			return i
		}
	}
	return -1
}

func (o *Open) keep(name string, x item) {
	if o.Extra == nil {
		o.Extra = make(map[string]json.RawMessage)
	}
	o.Extra[name] = x.raw()
}

// forget undoes decodeField: of two members with the same name, the last one counts.
func (p *plan) forget(o *Open, i int, v reflect.Value) {
	f := &p.fields[i]
	f.of(v).SetZero()
	delete(o.Extra, f.name)
	o.odd = slices.DeleteFunc(o.odd, func(k odd) bool { return int(k.field) == i })
}

func (p *plan) decodeField(o *Open, i int, x item, v reflect.Value) {
	f := &p.fields[i]
	fv := f.of(v)
	if x.isNull() && !f.codec.raw {
		if !f.null {
			o.odd = append(o.odd, odd{field: uint16(i), zero: true, text: "null"})
		}
		return
	}
	faithful, err := f.codec.dec(x, fv)
	if err != nil {
		fv.SetZero()
		o.keep(f.name, x)
		return
	}
	if faithful && !f.omit && !f.null {
		return
	}
	zero := fv.IsZero()
	if !faithful || zero {
		o.odd = append(o.odd, odd{field: uint16(i), zero: zero, text: string(x.text())})
	}
}

func encodeObject(dst []byte, v reflect.Value) (_ []byte, err error) {
	v = addressable(v)
	p := planOf(v.Type())
	o := v.Addr().Interface().(object).open()
	dst = append(dst, '{')
	for i, c := range p.consts {
		if !o.lacks(i) {
			dst = append(append(dst, c.text...), ',')
		}
	}
	for i := range p.fields {
		f := &p.fields[i]
		fv := f.of(v)
		zero := fv.IsZero()
		if zero && len(o.Extra) > 0 {
			if _, ok := o.Extra[f.name]; ok && !o.isDerived(i) {
				continue // written with the other extra members
			}
		}
		text, skip := o.unusualText(i, f, fv, zero)
		switch {
		case skip:
			raw, ok := o.Extra[f.name]
			if !ok {
				continue
			}
			if dst, err = appendRaw(append(dst, f.label...), raw); err != nil {
				return nil, fmt.Errorf("%s.%s: %w", p.name, f.name, err)
			}
		case text != "":
			dst = append(append(dst, f.label...), text...)
		case zero && f.omit:
			continue
		case zero && f.null:
			dst = append(append(dst, f.label...), "null"...)
		default:
			if dst, err = f.codec.enc(append(dst, f.label...), fv); err != nil {
				return nil, fmt.Errorf("%s.%s: %w", p.name, f.name, err)
			}
		}
		dst = append(dst, ',')
	}
	if dst, err = p.encodeExtra(dst, o, v); err != nil {
		return nil, err
	}
	if dst[len(dst)-1] == ',' {
		dst = dst[:len(dst)-1]
	}
	return append(dst, '}'), nil
}

// unusualText returns the text of a field that was decoded from an unusual encoding and
// has not changed since, or reports that the field was absent.
func (o *Open) unusualText(i int, f *field, fv reflect.Value, zero bool) (text string, skip bool) {
	for _, k := range o.odd {
		if int(k.field) != i {
			continue
		}
		if k.derived != nil {
			if !reflect.DeepEqual(k.derived, fv.Interface()) {
				return "", false
			}
			return k.text, k.text == ""
		}
		if k.zero != zero {
			continue // the value was changed
		}
		if k.zero {
			return k.text, k.text == ""
		}
		was := reflect.New(fv.Type()).Elem()
		d, err := scan([]byte(k.text))
		if err != nil {
			continue
		}
		_, err = f.codec.dec(d.root(), was)
		d.release()
		if err == nil && reflect.DeepEqual(was.Interface(), fv.Interface()) {
			return k.text, false
		}
	}
	return "", false
}

func (p *plan) encodeExtra(dst []byte, o *Open, v reflect.Value) (_ []byte, err error) {
	if len(o.Extra) == 0 {
		return dst, nil
	}
	names := make([]string, 0, len(o.Extra))
	for name := range o.Extra {
		if i, ok := p.byName[name]; ok && (!p.fields[i].of(v).IsZero() || o.isDerived(i)) {
			continue // the field takes precedence
		}
		if slices.ContainsFunc(p.consts, func(c constant) bool { return c.name == name }) {
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		dst = append(appendString(dst, name), ':')
		if dst, err = appendRaw(dst, o.Extra[name]); err != nil {
			return nil, fmt.Errorf("%s.%s: %w", p.name, name, err)
		}
		dst = append(dst, ',')
	}
	return dst, nil
}

// marshal is the MarshalJSON of every type.
func marshal(v any) ([]byte, error) {
	rv := reflect.ValueOf(v).Elem()
	return viaScratch(func(dst []byte) ([]byte, error) { return codecOf(rv.Type()).enc(dst, rv) })
}

// scratch holds buffers for encoding values whose size is unknown.
var scratch = sync.Pool{New: func() any { return new([4 << 10]byte) }}

// viaScratch calls encode with an empty buffer and returns a copy of the text. Growing a buffer from
// nothing would allocate more than twice its size.
func viaScratch(encode func(dst []byte) ([]byte, error)) ([]byte, error) {
	buf := scratch.Get().(*[4 << 10]byte)
	defer scratch.Put(buf)
	text, err := encode(buf[:0])
	if err != nil || len(text) == 0 || &text[0] != &buf[0] { // it did not fit
		return text, err
	}
	return bytes.Clone(text), nil
}

// unmarshal is the UnmarshalJSON of every type; v is a pointer. It clears all fields
// first; null changes nothing, as usual in Go. It is not generic, because that would make
// the command a megabyte larger.
func unmarshal(data []byte, v any) error {
	d, err := scanValid(data)
	if err != nil {
		return fmt.Errorf("wire: %w: %s", err, excerpt(data))
	}
	defer d.release()
	if d.root().isNull() {
		return nil
	}
	to := reflect.ValueOf(v).Elem()
	fresh := reflect.New(to.Type())
	if _, err := codecOf(to.Type()).dec(d.root(), fresh.Elem()); err != nil {
		if errors.Is(err, errShape) {
			err = fmt.Errorf("wire: %s cannot be read from %s", to.Type().Name(), excerpt(data))
		}
		return err
	}
	if o, ok := fresh.Interface().(object); ok {
		o.open().complete()
	}
	to.Set(fresh.Elem())
	return nil
}
