// Package sse reads server-sent events from a stream of bytes. It handles the framing
// and not the content.
package sse

import (
	"bytes"
	"errors"
	"io"
)

// DefaultMax is the largest event that a [Reader] accepts if no other limit is
// set.
const DefaultMax = 32 << 20

// ErrTooLarge means that an event is larger than the limit of the reader.
var ErrTooLarge = errors.New("the event is too large")

// An Event is one event. Its bytes are valid until the next call of Next.
type Event struct {
	Name []byte // the event field; empty if there was none
	Data []byte // the data fields, joined by newlines

	// Partial means that the stream ended inside of the event, before the blank line
	// that completes it.
	Partial bool
}

// A Reader reads events from a stream, with any line endings and however reads split
// it. It is not safe for concurrent use.
type Reader struct {
	r   io.Reader
	max int

	// buf[start:end] is what has been read of the current event and after it. All other
	// positions are relative to start, so that they stay valid when the bytes are moved
	// to the front.
	buf        []byte
	start, end int
	line       int  // start of the current line
	scanned    int  // position up to which the current line has no end
	skipLF     bool // the last line ended in \r: a following \n belongs to it
	begun      bool // the byte order mark was checked
	err        error

	name   []byte
	data   []span
	joined []byte
}

// A span is a field value inside of buf[start:].
type span struct{ from, to int }

// NewReader returns a reader of r that accepts events of up to limit bytes; 0 means
// [DefaultMax]. Lines that start with a colon do not count unless they are between the
// data of an event.
func NewReader(r io.Reader, limit int) *Reader {
	if limit <= 0 {
		limit = DefaultMax
	}
	return &Reader{r: r, max: limit}
}

// Next returns the next event that has data. At the end of the stream the error is
// io.EOF, after an event with [Event.Partial] if one was started; a stream that breaks
// returns its error at once.
func (r *Reader) Next() (Event, error) {
	r.data = r.data[:0]
	r.name = r.name[:0]
	for {
		if len(r.data) == 0 { // nothing before this line is needed any more
			r.start += r.line
			r.scanned -= r.line
			r.line = 0
		}
		line, ok := r.next()
		switch {
		case !ok && r.err == nil:
			r.fill()
		case !ok && r.err != io.EOF:
			return Event{}, r.err
		case !ok:
			// The last line may have no end.
			r.field(span{r.line, r.end - r.start})
			r.line = r.end - r.start
			r.scanned = r.line
			if len(r.data) == 0 {
				return Event{}, io.EOF
			}
			return r.event(true)
		case line.from < line.to:
			r.field(line)
		case len(r.data) > 0:
			return r.event(false)
		default:
			r.name = r.name[:0]
		}
	}
}

// next returns the next complete line without its end and skips it.
func (r *Reader) next() (span, bool) {
	if !r.begun {
		const mark = "\xef\xbb\xbf"
		have := r.buf[r.start:r.end]
		if len(have) < len(mark) && string(have) == mark[:len(have)] && r.err == nil {
			return span{}, false
		}
		r.begun = true
		if string(have[:min(len(have), len(mark))]) == mark {
			r.start += len(mark)
		}
	}
	if r.skipLF && r.start+r.line < r.end {
		r.skipLF = false
		if r.buf[r.start+r.line] == '\n' {
			r.line++
			r.scanned = max(r.scanned, r.line)
		}
	}
	rest := r.buf[r.start+r.scanned : r.end]
	i := bytes.IndexByte(rest, '\n')
	if i >= 0 {
		rest = rest[:i]
	}
	if j := bytes.IndexByte(rest, '\r'); j >= 0 {
		i = j
		r.skipLF = true
	}
	if i < 0 {
		r.scanned = r.end - r.start
		return span{}, false
	}
	line := span{r.line, r.scanned + i}
	r.line = line.to + 1
	r.scanned = r.line
	return line, true
}

// bytes returns the bytes of a span.
func (r *Reader) bytes(s span) []byte { return r.buf[r.start+s.from : r.start+s.to] }

// field handles the field on a line.
func (r *Reader) field(line span) {
	name, value, _ := bytes.Cut(r.bytes(line), []byte{':'})
	if len(value) > 0 && value[0] == ' ' {
		value = value[1:]
	}
	switch string(name) {
	case "data":
		r.data = append(r.data, span{line.to - len(value), line.to})
	case "event":
		r.name = append(r.name[:0], value...)
	}
}

// event returns the event with the fields handled so far.
func (r *Reader) event(partial bool) (Event, error) {
	e := Event{Name: r.name, Data: r.bytes(r.data[0]), Partial: partial}
	if len(r.data) > 1 {
		r.joined = r.joined[:0]
		for i, s := range r.data {
			if i > 0 {
				r.joined = append(r.joined, '\n')
			}
			r.joined = append(r.joined, r.bytes(s)...)
		}
		e.Data = r.joined
	}
	if len(e.Data) > r.max {
		r.err = ErrTooLarge
		return Event{}, r.err
	}
	r.data = r.data[:0]
	return e, nil
}

// fill reads once, after making room.
func (r *Reader) fill() {
	if r.end-r.start >= r.max {
		r.err = ErrTooLarge
		return
	}
	if r.start > 0 {
		copy(r.buf, r.buf[r.start:r.end])
		r.start, r.end = 0, r.end-r.start
	}
	if r.end == len(r.buf) {
		grown := make([]byte, min(max(2*len(r.buf), 4<<10), max(r.max, 4<<10)))
		copy(grown, r.buf[:r.end])
		r.buf = grown
	}
	for range 100 {
		n, err := r.r.Read(r.buf[r.end:])
		r.end += n
		r.err = err
		if n > 0 || err != nil {
			return
		}
	}
	r.err = io.ErrNoProgress
}
