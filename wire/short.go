package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// Nearly all lines of an answer are stream events and assistant messages that have
// none but the usual members, written the usual way. They are read here without a
// tape and without reflection, in a fraction of the time. Lines with anything
// unusual are left to decodeMessage; the fuzz targets FuzzDelta and FuzzAssistant
// hold that the two agree.

// A cursor is a place in a line.
type cursor struct {
	line []byte
	i    int
	rest string // a copy of the line from a place on, empty before [cursor.keep]
	from int
}

// skip moves behind s if it is what comes next.
func (c *cursor) skip(s string) bool {
	if len(c.line)-c.i < len(s) || string(c.line[c.i:c.i+len(s)]) != s {
		return false
	}
	c.i += len(s)
	return true
}

// quoted reads a string that is not empty and has no escapes.
func (c *cursor) quoted() []byte {
	if c.i >= len(c.line) || c.line[c.i] != '"' {
		return nil
	}
	end, escaped, err := stringEnd(c.line, c.i)
	if err != nil || escaped || end-c.i == 2 {
		return nil
	}
	text := c.line[c.i+1 : end-1]
	c.i = end
	return text
}

// text reads a string.
func (c *cursor) text() (s string, ok bool) {
	if c.i >= len(c.line) || c.line[c.i] != '"' {
		return "", false
	}
	end, escaped, err := stringEnd(c.line, c.i)
	if err != nil {
		return "", false
	}
	quoted := c.line[c.i:end]
	c.i = end
	if escaped {
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

// item takes any value apart, which is inside of depth others, and calls f with it.
func (c *cursor) item(depth int, f func(x item) bool) bool {
	d := docs.Get().(*doc)
	defer d.release()
	d.src, d.tape = c.line, d.tape[:0]
	end, err := d.value(c.line, c.i, depth)
	if err != nil {
		return false
	}
	c.i = end
	return f(d.root())
}

// members reads the rest of an object, whose opening brace is behind us, calling
// member with the place of each name among labels. A name that is not there ends
// it, and so does one that comes twice.
func (c *cursor) members(labels []string, member func(k int) bool) (seen uint, ok bool) {
	for at := 0; ; {
		k, left := at, len(labels) // most come in the order in which they are listed
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

// The members that the short ways know, in the order of the official CLI.
var (
	eventLabels     = []string{`"session_id":`, `"parent_tool_use_id":`, `"uuid":`, `"api_message_id":`, `"timestamp":`}
	assistantLabels = []string{`"parent_tool_use_id":`, `"session_id":`, `"uuid":`, `"request_id":`, `"timestamp":`}
	messageLabels   = []string{`"model":`, `"id":`, `"type":`, `"role":`, `"content":`, `"stop_reason":`, `"stop_sequence":`,
		`"stop_details":`, `"usage":`, `"context_management":`, `"container":`, `"diagnostics":`}
	usageLabels = []string{`"input_tokens":`, `"cache_creation_input_tokens":`, `"cache_read_input_tokens":`, `"cache_creation":`,
		`"output_tokens":`, `"service_tier":`, `"inference_geo":`}
	cacheLabels = []string{`"ephemeral_5m_input_tokens":`, `"ephemeral_1h_input_tokens":`}
)

// keep copies the rest of the line at once: the strings in it share that copy.
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

// decodeDelta reads a stream event; nil means that the line is not a usual one.
func decodeDelta(line []byte) *StreamEvent {
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
	c.keep()
	var e StreamEvent
	seen, ok := c.members(eventLabels, func(k int) bool {
		switch k {
		case 0:
			return c.copyQuoted(&e.SessionID)
		case 1:
			return c.skip("null")
		case 2:
			return c.copyQuoted(&e.UUID)
		case 3:
			return c.copyQuoted(&e.APIMessageID)
		default:
			return c.copyQuoted(&e.Timestamp)
		}
	})
	if !ok || c.i != len(line) || seen&(1<<1) == 0 {
		return nil
	}
	e.Event = bytes.Clone(event)
	return &e
}

// How the API begins an event that adds text.
const deltaType, deltaText = `{"type":"content_block_delta","index":`, `,"delta":{"type":"text_delta","text":`

// plainDelta moves behind an event that adds text and says nothing else.
func (c *cursor) plainDelta() bool {
	start := c.i
	if c.skip(deltaType) {
		if _, ok := c.count(); ok && c.skip(deltaText) && c.i < len(c.line) && c.line[c.i] == '"' {
			if end, _, err := stringEnd(c.line, c.i); err == nil {
				if c.i = end; c.skip("}}") {
					return true
				}
			}
		}
	}
	c.i = start
	return false
}

// An answer is what most assistant messages consist of, in one piece.
type answer struct {
	Assistant
	usage  Usage
	cache  CacheCreation
	text   TextBlock
	blocks [1]Block
	nulls  [4][4]byte // of members that are null
}

// decodeAssistant reads an assistant message; nil means that the line is not a usual
// one.
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
	if !ok || c.i != len(line) || seen&(1<<0) == 0 {
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

// content reads a list of blocks; one text block is the usual.
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
