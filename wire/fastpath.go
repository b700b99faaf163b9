package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"unicode/utf8"
)

// The fast path: nearly all lines of an answer are stream events and assistant messages
// that have only the usual members, written in the usual way. The fast path reads them
// without a tape and without reflection, in a fraction of the time. It leaves all other
// lines to decodeMessage; the fuzz targets FuzzDelta and FuzzAssistant check that the two
// agree.

// A cursor is a place in a line.
type cursor struct {
	line []byte
	i    int
	wide bool   // a string before i may have bytes beyond ASCII
	rest string // a copy of line[from:], empty before [cursor.keep]
	from int
}

// valid reports whether the text before the cursor is UTF-8. The text that skip compares is.
func (c *cursor) valid() bool { return !c.wide || utf8.Valid(c.line) }

// string moves past the next value and returns it with its quotes, if it is a string;
// otherwise it returns nil.
func (c *cursor) string() (quoted []byte, marks uint8) {
	if c.i >= len(c.line) || c.line[c.i] != '"' {
		return nil, 0
	}
	end, marks := stringEnd(c.line, c.i)
	if end < 0 {
		return nil, 0
	}
	quoted = c.line[c.i:end]
	c.i = end
	c.wide = c.wide || marks&wide != 0
	return quoted, marks
}

// skip moves past s if s comes next.
func (c *cursor) skip(s string) bool {
	if len(c.line)-c.i < len(s) || string(c.line[c.i:c.i+len(s)]) != s {
		return false
	}
	c.i += len(s)
	return true
}

// quoted reads a string that is not empty and has no escapes.
func (c *cursor) quoted() []byte {
	text, marks := c.string()
	if len(text) <= 2 || marks&escaped != 0 {
		return nil
	}
	return text[1 : len(text)-1]
}

// text reads a string.
func (c *cursor) text() (s string, ok bool) {
	quoted, marks := c.string()
	if quoted == nil {
		return "", false
	}
	if marks&escaped != 0 {
		return unescape(quoted)
	}
	return string(quoted[1 : len(quoted)-1]), true
}

// count reads a whole number of at most 18 digits.
func (c *cursor) count() (n int64, ok bool) {
	start := c.i
	for c.i < len(c.line) && c.line[c.i]-'0' <= 9 {
		n = 10*n + int64(c.line[c.i]-'0')
		c.i++
	}
	digits := c.i - start
	if digits == 0 || digits > 18 || digits > 1 && c.line[start] == '0' {
		return 0, false
	}
	// Something else may follow, such as a fraction.
	return n, c.i < len(c.line) && (c.line[c.i] == ',' || c.line[c.i] == '}')
}

// item scans any value, at a nesting depth, and calls f with it.
func (c *cursor) item(depth int, f func(x item) bool) bool {
	d := docs.Get().(*doc)
	defer d.release()
	d.src, d.tape, d.wide = c.line, d.tape[:0], false
	end, err := d.value(c.line, c.i, depth)
	if err != nil {
		return false
	}
	c.i = end
	c.wide = c.wide || d.wide
	return f(d.root())
}

// members reads the rest of an object after its opening brace. It calls member with the
// index of each name among labels, and gives up at a name that is not among them or that
// occurs twice.
func (c *cursor) members(labels []string, member func(k int) bool) (seen uint, ok bool) {
	for at := 0; ; {
		k, left := at, len(labels) // most members come in the order of labels
		for ; left > 0; left-- {
			if k == len(labels) {
				k = 0
			}
			if c.skip(labels[k]) {
				break
			}
			k++
		}
		if left == 0 || seen&(1<<k) != 0 || !member(k) {
			return 0, false
		}
		seen |= 1 << k
		at = k + 1
		if c.skip("}") {
			return seen, true
		}
		if !c.skip(",") {
			return 0, false
		}
	}
}

// The members that the fast path knows, in the order of the official CLI.
var (
	eventLabels     = []string{`"session_id":`, `"parent_tool_use_id":`, `"uuid":`, `"api_message_id":`, `"timestamp":`}
	assistantLabels = []string{`"parent_tool_use_id":`, `"session_id":`, `"uuid":`, `"request_id":`, `"timestamp":`}
	messageLabels   = []string{`"model":`, `"id":`, `"type":`, `"role":`, `"content":`, `"stop_reason":`, `"stop_sequence":`,
		`"stop_details":`, `"usage":`, `"context_management":`, `"container":`, `"diagnostics":`}
	usageLabels = []string{`"input_tokens":`, `"cache_creation_input_tokens":`, `"cache_read_input_tokens":`, `"cache_creation":`,
		`"output_tokens":`, `"service_tier":`, `"inference_geo":`}
	cacheLabels = []string{`"ephemeral_5m_input_tokens":`, `"ephemeral_1h_input_tokens":`}
)

// keep copies the rest of the line once: the strings in it share that copy.
func (c *cursor) keep() { c.rest, c.from = string(c.line[c.i:]), c.i }

// set sets dst, and reports true.
func set(dst *string, s string) bool {
	*dst = s
	return true
}

// copyQuoted reads a string into dst.
func (c *cursor) copyQuoted(dst *string) bool {
	text := c.quoted()
	if text == nil {
		return false
	}
	if end := c.i - 1 - c.from; c.rest != "" {
		*dst = c.rest[end-len(text) : end]
	} else {
		*dst = string(text)
	}
	return true
}

// A Decoder decodes the lines of one stream, as [Decode] does. Stream events share strings
// that repeat from line to line, such as the session id. In a backlog they also share memory:
// an event that the caller retains can keep up to 15 others in memory. The zero value is ready
// to use. A Decoder is not safe for concurrent use.
type Decoder struct {
	session, message string // of the last stream event
	events           []StreamEvent
	raw              []byte
	text             strings.Builder
}

// together is the most stream events that a [Decoder] puts into one block of memory.
const together = 16

// copyBytes returns a copy of b without spare capacity, in a block of memory for ahead times as
// many bytes.
func (d *Decoder) copyBytes(b []byte, ahead int) []byte {
	if cap(d.raw)-len(d.raw) < len(b) {
		d.raw = make([]byte, 0, len(b)*ahead)
	}
	n := len(d.raw)
	d.raw = append(d.raw, b...)
	return d.raw[n:len(d.raw):len(d.raw)]
}

// string returns b as a string, in the memory that [Decoder.room] allocated.
func (d *Decoder) string(b []byte) string {
	n := d.text.Len()
	d.text.Write(b)
	return d.text.String()[n:]
}

// room allocates memory for strings of n bytes, ahead times, unless there is enough left.
func (d *Decoder) room(n, ahead int) {
	if d.text.Cap()-d.text.Len() < n {
		d.text.Reset()
		d.text.Grow(n * ahead)
	}
}

// delta reads a stream event. It returns nil for an unusual line. [Decoder.Decode] explains
// more.
func (d *Decoder) delta(line []byte, more int) *StreamEvent {
	c := cursor{line: line}
	if !c.skip(`{"type":"stream_event","event":`) || c.i >= len(line) || line[c.i] != '{' {
		return nil
	}
	start := c.i
	if !c.plainDelta() && !c.item(1, func(item) bool { return true }) {
		return nil
	}
	event := line[start:c.i]
	if !c.skip(",") {
		return nil
	}
	var session, uuid, message, timestamp []byte
	seen, ok := c.members(eventLabels, func(k int) bool {
		switch k {
		case 0:
			session = c.quoted()
			return session != nil
		case 1:
			return c.skip("null")
		case 2:
			uuid = c.quoted()
			return uuid != nil
		case 3:
			message = c.quoted()
			return message != nil
		default:
			timestamp = c.quoted()
			return timestamp != nil
		}
	})
	if !ok || c.i != len(line) || seen&(1<<1) == 0 || !c.valid() {
		return nil
	}
	ahead := 1 + min(max(more, 0), together-1)
	if len(d.events) == 0 {
		d.events = make([]StreamEvent, ahead)
	}
	e := &d.events[0]
	d.events = d.events[1:]
	if len(event) > 1<<10 {
		e.Event = bytes.Clone(event)
	} else {
		e.Event = d.copyBytes(event, ahead)
	}
	room := len(uuid) + len(timestamp)
	if string(session) != d.session || string(message) != d.message {
		room, ahead = room+len(session)+len(message), 1
	}
	d.room(room, ahead)
	e.UUID, e.Timestamp = d.string(uuid), d.string(timestamp)
	if string(session) != d.session {
		d.session = d.string(session)
	}
	if string(message) != d.message {
		d.message = d.string(message)
	}
	e.SessionID, e.APIMessageID = d.session, d.message
	return e
}

// The beginning of an event that adds text, as the API writes it.
const deltaType, deltaText = `{"type":"content_block_delta","index":`, `,"delta":{"type":"text_delta","text":`

// plainDelta moves past an event that only adds text.
func (c *cursor) plainDelta() bool {
	start := c.i
	if c.skip(deltaType) {
		if _, ok := c.count(); ok && c.skip(deltaText) {
			if text, _ := c.string(); text != nil && c.skip("}}") {
				return true
			}
		}
	}
	c.i = start
	return false
}

// An answer holds all parts of a usual assistant message in one allocation.
type answer struct {
	Assistant
	usage  Usage
	cache  CacheCreation
	text   TextBlock
	blocks [1]Block
	nulls  [4][4]byte // of members that are null
}

// decodeAssistant reads an assistant message. It returns nil for an unusual line.
func decodeAssistant(line []byte) *Assistant {
	c := cursor{line: line}
	if !c.skip(`{"type":"assistant","message":{`) {
		return nil
	}
	a := new(answer)
	if !c.message(a) || !c.skip(",") {
		return nil
	}
	c.keep()
	seen, ok := c.members(assistantLabels, func(k int) bool {
		switch k {
		case 0:
			return c.skip("null") || c.copyQuoted(&a.ParentToolUseID)
		case 1:
			return c.copyQuoted(&a.SessionID)
		case 2:
			return c.copyQuoted(&a.UUID)
		case 3:
			return c.copyQuoted(&a.RequestID)
		default:
			return c.copyQuoted(&a.Timestamp)
		}
	})
	if !ok || c.i != len(line) || seen&(1<<0) == 0 || !c.valid() {
		return nil
	}
	return &a.Assistant
}

// message reads the message of an answer.
func (c *cursor) message(a *answer) bool {
	m := &a.Message
	seen, ok := c.members(messageLabels, func(k int) bool {
		var raw *json.RawMessage
		var null *[4]byte
		switch k {
		case 0:
			return c.copyQuoted(&m.Model)
		case 1:
			return c.copyQuoted(&m.ID)
		case 2:
			m.Type = "message"
			return c.skip(`"message"`)
		case 3:
			m.Role = "assistant"
			return c.skip(`"assistant"`)
		case 4:
			return c.content(a)
		case 5:
			return c.skip("null") || c.copyQuoted(&m.StopReason)
		case 6:
			return c.skip("null") || c.copyQuoted(&m.StopSequence)
		case 7:
			raw, null = &m.StopDetails, &a.nulls[0]
		case 8:
			return c.usage(a)
		case 9:
			raw, null = &m.ContextManagement, &a.nulls[1]
		case 10:
			raw, null = &m.Container, &a.nulls[2]
		case 11:
			raw, null = &m.Diagnostics, &a.nulls[3]
		}
		if c.skip("null") {
			*null = [4]byte{'n', 'u', 'l', 'l'}
			*raw = null[:]
			return true
		}
		return c.item(2, func(x item) bool { *raw = x.raw(); return true })
	})
	const required = 1<<3 | 1<<4 | 1<<5 | 1<<6 // role, content, stop_reason, stop_sequence
	return ok && seen&required == required
}

// content reads a list of blocks, usually a single text block.
func (c *cursor) content(a *answer) bool {
	start := c.i
	if c.skip(`[{"type":"text","text":`) {
		if text, ok := c.text(); ok && c.skip(`}]`) {
			a.text.Text = text
			a.blocks[0] = &a.text
			a.Message.Content.Blocks = a.blocks[:]
			return true
		}
	}
	c.i = start
	return c.item(2, func(x item) bool {
		faithful, err := a.Message.Content.decodeWire(x)
		return err == nil && faithful
	})
}

// usage reads the usage of an answer.
func (c *cursor) usage(a *answer) bool {
	start := c.i
	u := &a.usage
	a.Message.Usage = u
	if c.skip("{") {
		seen, ok := c.members(usageLabels, func(k int) (ok bool) {
			switch k {
			case 0:
				u.InputTokens, ok = c.count()
			case 1:
				u.CacheCreationInputTokens, ok = c.count()
			case 2:
				u.CacheReadInputTokens, ok = c.count()
			case 3:
				u.CacheCreation = &a.cache
				return c.cache(&a.cache)
			case 4:
				u.OutputTokens, ok = c.count()
			case 5:
				return c.skip(`"standard"`) && set(&u.ServiceTier, "standard") || c.copyQuoted(&u.ServiceTier)
			case 6:
				return c.copyQuoted(&u.InferenceGeo)
			}
			return ok
		})
		const required = 1<<0 | 1<<1 | 1<<2 | 1<<4
		if ok && seen&required == required {
			return true
		}
	}
	c.i = start
	*u = Usage{}
	return c.item(2, func(x item) bool {
		return decodeObject(x, reflect.ValueOf(u).Elem()) == nil
	})
}

func (c *cursor) cache(created *CacheCreation) bool {
	if !c.skip("{") {
		return false
	}
	seen, ok := c.members(cacheLabels, func(k int) (ok bool) {
		if k == 0 {
			created.Ephemeral5mInputTokens, ok = c.count()
		} else {
			created.Ephemeral1hInputTokens, ok = c.count()
		}
		return ok
	})
	return ok && seen == 3
}
