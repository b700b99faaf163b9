package session

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Types of records. Those of a conversation are part of its tree.
const (
	typeUser       = "user"
	typeAssistant  = "assistant"
	typeSystem     = "system"
	typeAttachment = "attachment"
	typeProgress   = "progress"
)

// timeFormat is the format of times in records.
const timeFormat = "2006-01-02T15:04:05.000Z"

// moreKey marks a record that was written together with others, with the number of
// those that follow it. If these are missing at the end of a log, the writer died in
// the middle, and none of them count. Elsewhere it has no meaning, since other programs
// may copy a record without those after it.
const moreKey = "parleyMore"

// lenient accepts what other writers may have written.
var lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// inTree reports whether a record of this type, with a uuid, is part of the conversation.
func inTree(typ string) bool {
	switch typ {
	case typeUser, typeAssistant, typeSystem, typeAttachment, typeProgress:
		return true
	}
	return false
}

// reserved reports whether the log itself writes this member.
func reserved(name string) bool {
	switch name {
	case "type", "uuid", "parentUuid", "sessionId", "timestamp", "message", moreKey:
		return true
	}
	return surrounding(name)
}

// reservedLoose is the same for a record outside of the tree, which may set the members
// of [Meta] itself.
func reservedLoose(name, typ string) bool {
	switch name {
	case "type", "sessionId", "timestamp", moreKey:
		return true
	case "uuid":
		return inTree(typ)
	}
	return false
}

// surrounding reports whether a member is part of [Meta].
func surrounding(name string) bool {
	switch name {
	case "userType", "entrypoint", "cwd", "version", "gitBranch":
		return true
	}
	return false
}

// NewID returns a new random UUID, for a session or a record.
func NewID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	var text [36]byte
	for i, at := range [][2]int{{0, 4}, {4, 6}, {6, 8}, {8, 10}, {10, 16}} { // between the hyphens
		hex.Encode(text[2*at[0]+i:], b[at[0]:at[1]])
		if at[1] < len(b) {
			text[2*at[1]+i] = '-'
		}
	}
	return string(text[:])
}

// ValidID reports whether an id is a UUID, as the ids of all sessions are.
func ValidID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}

// newSession sets the id of a new session.
func (m Meta) newSession() (Meta, error) {
	if m.ID == "" {
		m.ID = NewID()
	}
	if !ValidID(m.ID) {
		return m, fmt.Errorf("session: the id %q is not a UUID", m.ID)
	}
	return m, nil
}

// An encoder encodes entries as the lines of one session.
type encoder struct {
	session []byte // ,"sessionId":"…"
	around  []byte // ,"userType":"external",…
}

func newEncoder(meta Meta) *encoder {
	e := &encoder{session: appendMember(nil, "sessionId", meta.ID)}
	e.around = append(e.around, `,"userType":"external"`...)
	e.around = appendMember(e.around, "entrypoint", meta.Entrypoint)
	e.around = appendMember(e.around, "cwd", meta.Cwd)
	e.around = append(e.around, e.session...)
	e.around = appendMember(e.around, "version", meta.Version)
	e.around = appendMember(e.around, "gitBranch", meta.GitBranch)
	return e
}

// lines appends one line for each entry.
func (e *encoder) lines(dst []byte, entries []*Entry) ([]byte, error) {
	for i, entry := range entries {
		if entry == nil {
			return nil, errors.New("session: a nil entry")
		}
		var err error
		if dst, err = e.line(dst, entry, len(entries)-1-i, nil); err != nil {
			return nil, fmt.Errorf("session: entry %d of %d (%s): %w", i+1, len(entries), entry.Type, err)
		}
	}
	return dst, nil
}

// records returns one record for each entry.
func (e *encoder) records(entries []*Entry) ([]json.RawMessage, error) {
	records := make([]json.RawMessage, len(entries))
	for i := range entries {
		line, err := e.lines(nil, entries[i:i+1])
		if err != nil {
			return nil, err
		}
		records[i] = line[:len(line)-1]
	}
	return records, nil
}

// A sparse record keeps long fixed values separately: in its text they are replaced by
// null.
type sparse struct {
	text []byte
	uuid string
	out  []gap
}

// A gap is the position of a value that is left out of a text.
type gap struct {
	at    int
	value json.RawMessage
}

// sparseLeast is the minimum length of values that are left out.
const sparseLeast = 256

// encoded is room for the text of a record.
var encoded = sync.Pool{New: func() any { return new([]byte) }}

// sparse returns one record for each entry.
func (e *encoder) sparse(entries []*Entry) ([]sparse, error) {
	records := make([]sparse, len(entries))
	scratch := encoded.Get().(*[]byte)
	defer encoded.Put(scratch)
	for i, entry := range entries {
		if entry == nil {
			return nil, errors.New("session: a nil entry")
		}
		r := &records[i]
		text, err := e.line((*scratch)[:0], entry, 0, &r.out)
		if err != nil {
			return nil, fmt.Errorf("session: entry %d of %d (%s): %w", i+1, len(entries), entry.Type, err)
		}
		r.text, r.uuid = bytes.Clone(text[:len(text)-1]), entry.UUID
		if cap(text) <= 1<<20 {
			*scratch = text
		}
	}
	return records, nil
}

// size returns the length of the whole record.
func (r *sparse) size() int {
	n := len(r.text)
	for _, g := range r.out {
		n += len(g.value) - len("null")
	}
	return n
}

// whole returns the record with all its values.
func (r *sparse) whole() json.RawMessage {
	all, from := make([]byte, 0, r.size()), 0
	for _, g := range r.out {
		all = append(append(all, r.text[from:g.at]...), g.value...)
		from = g.at + len("null")
	}
	return append(all, r.text[from:]...)
}

// line appends the line of an entry. If out is not nil, it leaves out long fixed values
// and records their positions.
func (e *encoder) line(dst []byte, entry *Entry, more int, out *[]gap) ([]byte, error) {
	if entry.Type == "" {
		return nil, errors.New("it has no type")
	}
	placed := entry.UUID != ""
	if placed && !inTree(entry.Type) {
		return nil, errors.New("a record of this type has no uuid")
	}
	if !placed && (entry.ParentUUID != "" || len(entry.Message) > 0) {
		return nil, errors.New("a record with a parent or a message needs a uuid")
	}
	sidechain := false
	var err error
	if placed {
		if entry.ParentUUID == "" {
			dst = append(dst, `{"parentUuid":null`...)
		} else {
			dst = append(dst, `{"parentUuid":`...)
			dst = appendString(dst, entry.ParentUUID)
		}
		_, sidechain = entry.Fields["isSidechain"]
		if !sidechain {
			dst = append(dst, `,"isSidechain":false`...)
		}
		dst = appendMember(dst, "type", entry.Type)
		if len(entry.Message) > 0 {
			if dst, err = appendRaw(dst, "message", entry.Message); err != nil {
				return nil, err
			}
		}
		dst = appendMember(dst, "uuid", entry.UUID)
	} else {
		dst = append(dst, `{"type":`...)
		dst = appendString(dst, entry.Type)
	}
	if t := entry.Time; placed || !t.IsZero() {
		if t.IsZero() {
			t = time.Now()
		}
		dst = append(dst, `,"timestamp":"`...)
		dst = t.UTC().AppendFormat(dst, timeFormat)
		dst = append(dst, '"')
	}
	for _, name := range slices.Sorted(maps.Keys(entry.Fields)) {
		if placed && reserved(name) || !placed && reservedLoose(name, entry.Type) {
			return nil, fmt.Errorf("the log writes %q itself", name)
		}
		value := entry.Fields[name]
		if entry.Fixed {
			dst = append(appendString(append(dst, ','), name), ':')
			if out != nil && len(value) >= sparseLeast {
				*out = append(*out, gap{len(dst), value})
				value = json.RawMessage("null")
			}
			dst = append(dst, value...)
			continue
		}
		if dst, err = appendRaw(dst, name, value); err != nil {
			return nil, err
		}
	}
	if placed {
		dst = append(dst, e.around...)
	} else {
		dst = append(dst, e.session...)
	}
	if more > 0 {
		dst = fmt.Appendf(dst, `,%q:%d`, moreKey, more)
	}
	return append(dst, '}', '\n'), nil
}

func appendString(dst []byte, s string) []byte {
	out, err := jsontext.AppendQuote(dst, s)
	if err != nil {
		out, _ = jsontext.AppendQuote(dst, strings.ToValidUTF8(s, "\uFFFD"))
	}
	return out
}

func appendMember(dst []byte, name, value string) []byte {
	dst = append(appendString(append(dst, ','), name), ':')
	return appendString(dst, value)
}

// appendRaw appends a member whose value is JSON, byte for byte, in one line.
func appendRaw(dst []byte, name string, value json.RawMessage) ([]byte, error) {
	if isScalar(value) {
		dst = append(appendString(append(dst, ','), name), ':')
		return append(dst, value...), nil
	}
	v := jsontext.Value(value)
	if !v.IsValid(lenient...) {
		return nil, fmt.Errorf("the value of %q is not JSON", name)
	}
	dst = append(appendString(append(dst, ','), name), ':')
	if bytes.ContainsAny(v, "\n\r") { // between tokens: strings cannot contain them
		v = v.Clone()
		if err := v.Compact(lenient...); err != nil {
			return nil, err
		}
	}
	return append(dst, v...), nil
}

// isScalar reports whether a value is surely a literal, or a string that is ASCII and has no
// escapes.
func isScalar(v []byte) bool {
	switch string(v) {
	case "true", "false", "null":
		return true
	}
	n := len(v) - 1
	if n < 1 || v[0] != '"' || v[n] != '"' {
		return false
	}
	for _, c := range v[1:n] {
		if c < 0x20 || c >= 0x80 || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// A member is a name in a record, and its value.
type member struct {
	name  string
	value json.RawMessage
}

// decodeEntry decodes a line. The result shares no memory with it.
func decodeEntry(line []byte) (*Entry, Meta, error) {
	e, meta := &Entry{Fields: make(map[string]json.RawMessage)}, Meta{}
	var written []member // members that the log writes itself if the record is part of the tree
	stamp, sidechain := member{}, member{}
	d := jsontext.NewDecoder(bytes.NewBuffer(bytes.Clone(line)), lenient...)
	if tok, err := d.ReadToken(); err != nil {
		return nil, meta, err
	} else if tok.Kind() != '{' {
		return nil, meta, errors.New("session: a line is not an object")
	}
	for d.PeekKind() == '"' {
		m, err := readMember(d)
		if err != nil {
			return nil, meta, err
		}
		switch m.name {
		case "type":
			e.Type = textOf(m.value)
		case "sessionId":
			meta.ID = textOf(m.value)
		case "timestamp":
			stamp = m
		case "isSidechain":
			sidechain = m
		case moreKey:
		default:
			if reserved(m.name) {
				written = append(written, m)
			} else {
				e.Fields[m.name] = m.value
			}
		}
	}
	if _, err := d.ReadToken(); err != nil { // the closing brace
		return nil, meta, err
	}
	if e.Type == "" {
		return nil, meta, errors.New("session: a record without a type")
	}
	for _, m := range written {
		if field := meta.member(m.name); field != nil {
			*field = textOf(m.value)
		} else if m.name == "uuid" && inTree(e.Type) {
			e.UUID = textOf(m.value)
		}
	}
	for _, m := range written {
		switch {
		case e.UUID == "":
			e.Fields[m.name] = m.value
		case m.name == "parentUuid":
			e.ParentUUID = textOf(m.value)
		case m.name == "message":
			e.Message = m.value
		}
	}
	if sidechain.value != nil && (e.UUID == "" || string(sidechain.value) == "true") {
		e.Fields[sidechain.name] = sidechain.value
	}
	if t, err := time.Parse(time.RFC3339, textOf(stamp.value)); err == nil {
		e.Time = t.UTC().Truncate(time.Millisecond)
	} else if stamp.value != nil && e.UUID == "" {
		e.Fields[stamp.name] = stamp.value
	}
	if len(e.Fields) == 0 {
		e.Fields = nil
	}
	return e, meta, nil
}

// readMember reads a name and its value.
func readMember(d *jsontext.Decoder) (member, error) {
	key, err := d.ReadToken()
	if err != nil {
		return member{}, err
	}
	name := key.String()
	v, err := d.ReadValue()
	return member{name, json.RawMessage(slices.Clip(v))}, err
}

// member returns the field for a member of a record, if there is one.
func (m *Meta) member(name string) *string {
	switch name {
	case "cwd":
		return &m.Cwd
	case "version":
		return &m.Version
	case "gitBranch":
		return &m.GitBranch
	case "entrypoint":
		return &m.Entrypoint
	}
	return nil
}

// textOf returns the value of a JSON string, or "" if it is none.
func textOf(v []byte) string {
	if len(v) == 0 || v[0] != '"' {
		return ""
	}
	text := v[1:max(1, len(v)-1)]
	if v[len(v)-1] == '"' && bytes.IndexByte(text, '\\') < 0 && bytes.IndexByte(text, '"') < 0 && !hasControls(text) && utf8.Valid(text) {
		return string(text) // by far the most common, without a copy in between
	}
	b, _ := jsontext.AppendUnquote(nil, v)
	return string(b)
}
