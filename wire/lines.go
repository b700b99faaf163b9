package wire

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"sync"
)

// DefaultMaxLine is the longest line that a [Reader] accepts by default, in bytes.
const DefaultMaxLine = 64 << 20

// ReaderOptions change how a [Reader] reads.
type ReaderOptions struct {
	// MaxLine is the longest line in bytes, without its end, that is decoded;
	// a longer one is skipped and becomes a [*BadLine]. Zero means
	// [DefaultMaxLine]. A reader never holds more than about twice as much.
	MaxLine int
}

// A Reader reads messages from a stream of lines. Lines end at "\n" alone; a
// carriage return before it, blank lines and a byte order mark are skipped,
// and a last line needs no end. A line that cannot be decoded is a [*BadLine],
// and the stream continues after it. A Reader is not safe for concurrent
// use.
type Reader struct {
	src   io.Reader
	await func() // waits until src has something to read; may be nil
	limit int
	buf   []byte // buf[r:w] has been read and not consumed
	r, w  int
	scan  int   // no line end before this
	err   error // the error that ended src
	begun bool  // the byte order mark was skipped, if there is one
	cut   bool  // the last line had no end
	full  bool  // the last read filled buf
	small int   // number of consecutive small reads
	last  []byte
}

// Sizes of the buffer: small at first, so that many idle connections fit into a
// process; larger under load; and small again after a while without load.
const (
	firstSize = 8 << 10
	readSize  = 256 << 10
	smallMany = 16
)

// NewReader returns a reader of the messages in src. opts may be nil.
func NewReader(src io.Reader, opts *ReaderOptions) *Reader {
	r := &Reader{src: src, limit: DefaultMaxLine}
	if opts != nil && opts.MaxLine > 0 {
		r.limit = opts.MaxLine
	}
	if a, ok := src.(interface{ Await() }); ok {
		r.await = a.Await
	}
	return r
}

// firstBuffers are shared by readers whose sources report when they have data: such a
// reader holds no buffer while it waits.
var firstBuffers = sync.Pool{New: func() any { return new([firstSize]byte) }}

// wait returns an empty buffer to the pool until the source has data.
func (r *Reader) wait() {
	if r.r < r.w || r.await == nil {
		return
	}
	if len(r.buf) == firstSize {
		firstBuffers.Put((*[firstSize]byte)(r.buf))
		r.buf, r.last, r.r, r.w, r.scan = nil, nil, 0, 0, 0
	}
	r.await()
	if r.buf == nil {
		r.buf = firstBuffers.Get().(*[firstSize]byte)[:]
	}
}

// Buffered returns how many bytes have been read that belong to no returned line. Zero means
// that no part of the next line has arrived.
func (r *Reader) Buffered() int { return r.w - r.r }

// ReadLine returns the next line that is not blank, without its end, for callers
// that decode it later; see [Decode] and [PeekType]. The line is valid until the next
// call. A [*BadLine] as the error stands for one line that is too long, and the
// stream continues after it. Any other error ends the stream.
func (r *Reader) ReadLine() ([]byte, error) {
	for {
		line, bad, err := r.line()
		switch {
		case err != nil:
			return nil, err
		case bad != nil:
			r.last = bad.Text
			return nil, bad
		case len(trim(line)) > 0:
			r.last = line
			return line, nil
		}
	}
}

// PeekType returns the type of a line without decoding it, if the type is the first
// member, as most peers write it; otherwise it returns "". It does not check the rest
// of the line, which may not even be JSON.
func PeekType(line []byte) string {
	const begin = `{"type":"`
	if len(line) < len(begin) || string(line[:len(begin)]) != begin {
		return ""
	}
	line = line[len(begin):]
	n := bytes.IndexByte(line, '"')
	if n < 0 || n > 64 {
		return ""
	}
	switch string(line[:n]) { // without an allocation
	case "stream_event":
		return "stream_event"
	case "assistant":
		return "assistant"
	case "user":
		return "user"
	case "system":
		return "system"
	}
	return string(line[:n])
}

// Next returns the next message. An error ends the stream: it is io.EOF, or the error
// of the source.
func (r *Reader) Next() (Message, error) {
	for {
		line, bad, err := r.line()
		if err != nil {
			return nil, err
		}
		if bad != nil {
			r.last = bad.Text
			return bad, nil
		}
		if len(trim(line)) == 0 {
			continue
		}
		r.last = line
		m, err := Decode(line)
		if err != nil {
			var b *BadLine
			if errors.As(err, &b) {
				if r.cut {
					b.Err = io.ErrUnexpectedEOF
				}
				return b, nil
			}
			return nil, err
		}
		return m, nil
	}
}

// Line returns the last line that was read, without its end, or the beginning of a line
// that is too long. It is valid until the next line is read.
func (r *Reader) Line() []byte { return r.last }

// All returns an iterator over the remaining messages. If the stream ends in an error
// other than io.EOF, the last pair has that error.
func (r *Reader) All() iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for {
			m, err := r.Next()
			if err == io.EOF {
				return
			}
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

// line returns the next line without its end, or a BadLine in place of a line
// that is too long. The line is valid until the next call.
func (r *Reader) line() (line []byte, bad *BadLine, err error) {
	for {
		if n := bytes.IndexByte(r.buf[r.scan:r.w], '\n'); n >= 0 {
			line = r.buf[r.r : r.scan+n]
			r.r = r.scan + n + 1
			r.scan = r.r
			if len(line) > r.limit {
				return nil, r.tooLong(line), nil
			}
			return r.unmark(line), nil, nil
		}
		r.scan = r.w
		if r.w-r.r > r.limit {
			return nil, r.skip(), nil
		}
		if r.err != nil {
			if r.r == r.w {
				return nil, nil, r.err
			}
			line = r.buf[r.r:r.w]
			r.r = r.w
			r.cut = true
			return r.unmark(line), nil, nil
		}
		r.fill()
	}
}

// unmark cuts the byte order mark off the first line.
func (r *Reader) unmark(line []byte) []byte {
	if !r.begun {
		r.begun = true
		line = bytes.TrimPrefix(line, byteOrderMark)
	}
	return line
}

// tooLong returns a BadLine for the part of a line that was read. It holds only the
// beginning of that part.
func (r *Reader) tooLong(line []byte) *BadLine {
	r.begun = true
	return badLine(line[:min(len(line), r.limit)], int64(len(line)), ErrLineTooLong)
}

// skip drops a line that is too long.
func (r *Reader) skip() *BadLine {
	bad := r.tooLong(r.buf[r.r:r.w])
	r.buf, r.r, r.w, r.scan = nil, 0, 0, 0
	for r.err == nil {
		r.fill()
		n := bytes.IndexByte(r.buf[:r.w], '\n')
		if n >= 0 {
			bad.Size += int64(n)
			r.r, r.scan = n+1, n+1
			break
		}
		bad.Size += int64(r.w)
		r.w, r.scan = 0, 0
	}
	return bad
}

// fill reads more, making room for it.
func (r *Reader) fill() {
	r.wait()
	if r.r > 0 {
		rest := r.buf[r.r:r.w]
		switch {
		case len(r.buf) > 2*readSize && len(rest) < readSize/2:
			// Free the memory of one long line once it is consumed.
			r.buf = append(make([]byte, 0, readSize), rest...)[:readSize]
			r.w = len(rest)
		case len(r.buf) > firstSize && len(rest) == 0 && r.small >= smallMany:
			r.buf, r.w = make([]byte, firstSize), 0
		default:
			r.w = copy(r.buf, rest)
		}
		r.scan -= r.r
		r.r = 0
	}
	size := len(r.buf)
	switch {
	case size == 0:
		size = firstSize
	case size < readSize && r.full:
		size = min(4*size, readSize)
	case size-r.w < min(size, readSize)/2:
		size *= 2
	}
	if size > len(r.buf) {
		grown := make([]byte, size)
		copy(grown, r.buf[:r.w])
		r.buf = grown
	}
	for range 100 {
		n, err := r.src.Read(r.buf[r.w:])
		r.full = r.w+n == len(r.buf)
		if n > firstSize/2 {
			r.small = 0
		} else {
			r.small++
		}
		r.w += n
		if err != nil {
			r.err = err
			return
		}
		if n > 0 {
			return
		}
	}
	r.err = io.ErrNoProgress
}
