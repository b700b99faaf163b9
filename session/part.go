package session

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// partSize is how many bytes of a log a goroutine reads at a time. A shorter log is
// read by one.
const partSize = 2 << 20

// A logPart holds the records of the lines that start in a part of a log.
type logPart struct {
	heads   []head
	spans   []span
	corrupt []int64
	end     int64  // position after its last complete line; 0 if it has none
	rest    []byte // a last line without a newline
	err     error
}

// add and addCorrupt implement [lineSink].
func (p *logPart) add(h head, at span) {
	p.heads, p.spans = append(p.heads, h), append(p.spans, at)
}

func (p *logPart) addCorrupt(off int64) { p.corrupt = append(p.corrupt, off) }

// A lineSink receives the lines of a log: records, and those that are none.
type lineSink interface {
	add(h head, at span)
	addCorrupt(off int64)
}

// readParts reads a log from a position, and returns the position after its last complete line
// and the text after that. It reads the parts of a long log concurrently, and adds them in
// their order.
func (s *scan) readParts(r io.ReaderAt, from, size, part int64, report func(done int64)) (end int64, rest []byte, err error) {
	n := int((size - from + part - 1) / part)
	workers := min(n, runtime.GOMAXPROCS(0), 8)
	if n < 2 {
		return readPart(&partReader{r: r, off: from, to: size, size: size}, new([]byte), s)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)
	parts := make([]chan *logPart, workers)
	for w := range workers {
		parts[w] = make(chan *logPart, 1)
		wg.Go(func() {
			var room []byte
			records := 0 // in the previous part
			for i := w; i < n; i += workers {
				p := &logPart{heads: make([]head, 0, records+records/8), spans: make([]span, 0, records+records/8)}
				start := from + int64(i)*part
				in := &partReader{r: r, off: start, to: min(start+part, size), size: size}
				if i == 0 || in.findLine(&room) {
					p.end, p.rest, p.err = readPart(in, &room, p)
				}
				records = len(p.heads)
				select {
				case parts[w] <- p:
				case <-stop:
					return
				}
			}
		})
	}
	end = from
	for i := range n {
		p := <-parts[i%workers]
		if p.err != nil {
			return 0, nil, p.err
		}
		for k, h := range p.heads {
			s.add(h, p.spans[k])
		}
		for _, off := range p.corrupt {
			s.addCorrupt(off)
		}
		end, rest = max(end, p.end), p.rest
		if len(rest) > 0 {
			break // the last line continues to the end of the log
		}
		report(min(from+int64(i+1)*part, size))
	}
	report(size)
	return end, rest, nil
}

// errPartEnd reports that all lines of a part were read.
var errPartEnd = errors.New("session: end of a part")

// readPart reads the lines that start in a part of a log. It returns the position after the
// last complete one, and the text after it if it is the last one of the log. room is reused
// memory.
func readPart(in *partReader, room *[]byte, to lineSink) (end int64, rest []byte, err error) {
	d := jsontext.NewDecoder(new(bytes.Buffer), lenient...)
	base := in.off
	_, rest, err = readLinesInto(room, in, func(line []byte, off int64) error {
		off += base
		if len(bytes.TrimSpace(line)) > 0 {
			if h, err := headOf(d, line); err != nil {
				to.addCorrupt(off)
			} else {
				to.add(h, span{off, len(line)})
			}
		}
		if end = off + int64(len(line)) + 1; end >= in.to {
			return errPartEnd
		}
		return nil
	})
	if errors.Is(err, errPartEnd) {
		return end, nil, nil
	}
	if len(rest) > 0 {
		rest = bytes.Clone(rest) // the next part reuses the room
	}
	return max(end, base), rest, err
}

// A partReader reads a part of a log, and its last line to the end.
type partReader struct {
	r             io.ReaderAt
	off, to, size int64
}

// Read implements [io.Reader].
func (p *partReader) Read(b []byte) (int, error) {
	n := p.to - p.off
	if n <= 0 {
		n = min(32<<10, p.size-p.off) // the rest of a line is rarely longer
	}
	b = b[:min(int64(len(b)), max(n, 0))]
	if len(b) == 0 {
		return 0, io.EOF
	}
	got, err := p.r.ReadAt(b, p.off)
	p.off += int64(got)
	if got > 0 {
		err = nil
	}
	return got, err
}

// findLine moves to the first line that starts in the part, and reports whether there is
// one. The part must not be the first.
func (p *partReader) findLine(room *[]byte) bool {
	if *room == nil {
		*room = make([]byte, lineRoom)
	}
	buf := (*room)[:32<<10]
	for at := p.off - 1; at < p.to-1; {
		n, _ := p.r.ReadAt(buf[:min(int64(len(buf)), p.to-1-at)], at)
		if n == 0 {
			return false
		}
		if i := bytes.IndexByte(buf[:n], '\n'); i >= 0 {
			p.off = at + int64(i) + 1
			return true
		}
		at += int64(n)
	}
	return false
}
