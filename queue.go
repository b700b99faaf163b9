package parley

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/parley-go/parley/wire"
)

// A queue holds messages that the consumer has not read yet, in order: as messages, or
// as lines that the consumer decodes when it reads them. The producer waits only for a
// consumer that is at work, and only for a moment: beyond a first limit, messages go
// from memory to temporary files without a name, and beyond a second one the queue
// fails.
//
// One goroutine pushes, and one pops at a time.
type queue struct {
	memory int64 // limit of what is held in memory
	total  int64 // limit in total

	batch    []entry // taken from items; used only by the consumer
	next     int
	released int // before it, release has returned all blocks
	decode   wire.Decoder

	ahead wire.Decoder // used only by the producer

	mu      sync.Mutex
	items   []entry // after batch
	size    int64   // bytes of items
	added   int64   // how many entries were added in total
	taken   int64   // bytes of batch, while any of it is left
	spill   spill   // after items
	closed  error   // why no more messages come
	waiting bool    // the consumer waits for ready
	block   *block  // holds the next line
	ready   chan struct{}
	took    chan struct{} // signals the producer that a batch was taken
	slow    bool          // the consumer did not take a batch in time
}

// An entry is a message, or its encoded line.
type entry struct {
	m     wire.Message
	line  []byte
	block *block // the block that contains line; nil if none
}

// A block is memory for many lines. It is reused when all of them were read.
type block struct {
	buf  []byte
	left int // number of unread lines, plus one for the producer
}

// blocks and firstBlocks are the blocks that are not in use.
var (
	blocks      = sync.Pool{New: func() any { return &block{buf: make([]byte, 0, blockSize)} }}
	firstBlocks = sync.Pool{New: func() any { return &block{buf: make([]byte, 0, firstSize)} }}
)

// message returns the message, decoded if necessary. more is how many entries that follow
// it wait as well.
func (e entry) message(d *wire.Decoder, more int) wire.Message {
	if e.m != nil {
		return e.m
	}
	m, err := d.Decode(e.line, more)
	if err != nil {
		var bad *wire.BadLine
		errors.As(err, &bad) // Decode returns no other error
		return bad
	}
	return m
}

func newQueue(memory, total int64) *queue {
	return &queue{
		memory: memory,
		total:  total,
		ready:  make(chan struct{}, 1),
		took:   make(chan struct{}, 1),
		spill:  spill{fileSize: spillFileSize},
	}
}

// push adds a message that had size bytes on the wire. Its error is final: the queue or
// the disk is full.
func (q *queue) push(m wire.Message, size int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ahead = wire.Decoder{} // perhaps the end of a turn, after which it keeps no memory
	err := q.add(entry{m: m}, int64(size)+entrySize)
	q.wakeIfAny()
	return err
}

// pushLine adds a copy of a line. A waiting consumer may keep waiting until the
// producer calls flush, which it does before it waits itself: so a consumer is not
// woken for each of many lines.
//
// While the consumer has many lines to decode, the producer decodes some of them, so
// that both are at work.
func (q *queue) pushLine(line []byte) error {
	e := entry{line: line}
	q.mu.Lock()
	if q.size > behindSize && !q.slow {
		q.mu.Unlock()
		e = entry{m: e.message(&q.ahead, manyLines)}
		q.mu.Lock()
	}
	err := q.add(e, int64(len(line))+entrySize)
	q.mu.Unlock()
	return err
}

// flush wakes a waiting consumer if there is something to read.
func (q *queue) flush() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wakeIfAny()
}

func (q *queue) wakeIfAny() {
	if len(q.items) > 0 || q.spill.size > 0 {
		q.wake()
	}
}

const (
	entrySize  = 64       // memory of an entry in addition to its text
	blockSize  = 64 << 10 // memory for lines, while many arrive
	firstSize  = 4 << 10  // initial memory of an idle queue
	flushSize  = 64 << 10 // size of lines for which a consumer is not woken
	behindSize = 2 << 20  // size of lines that a consumer decodes by itself
	manyLines  = 64       // fewer than lines of that size usually are
)

// keep copies a line into the last block. The caller holds mu.
func (q *queue) keep(line []byte) entry {
	if len(line) > blockSize/4 {
		return entry{line: bytes.Clone(line)}
	}
	b := q.block
	if b == nil || len(b.buf)+len(line) > cap(b.buf) {
		if b != nil {
			q.unref(b)
		}
		from := &blocks
		if b == nil && len(line) <= firstSize {
			from = &firstBlocks
		}
		b = from.Get().(*block)
		b.buf, b.left = b.buf[:0], 1
		q.block = b
	}
	n := len(b.buf)
	b.buf = append(b.buf, line...)
	b.left++
	return entry{line: b.buf[n:], block: b}
}

// unref removes one reference to a block. The caller holds mu.
func (q *queue) unref(b *block) {
	if b.left--; b.left > 0 {
		return
	}
	if cap(b.buf) == firstSize {
		firstBlocks.Put(b)
	} else {
		blocks.Put(b)
	}
}

// add adds an entry, of whose line it keeps a copy. The caller holds mu.
func (q *queue) add(e entry, n int64) error {
	if q.closed != nil {
		return nil // the consumer is gone
	}
	if q.size > paceSize && !q.slow {
		q.pace()
		if q.closed != nil {
			return nil
		}
	}
	if waiting := q.taken + q.size + q.spill.size + n; waiting > q.total {
		return &OverflowError{Bytes: waiting, Limit: q.total}
	}
	if q.spill.size == 0 && q.taken+q.size+n <= q.memory {
		if e.line != nil {
			e = q.keep(e.line)
		}
		q.items = append(q.items, e)
		q.size += n
	} else if err := q.spill.write(e); err != nil {
		return &BufferError{Bytes: q.size + q.spill.size, Dir: os.TempDir(), Err: err}
	}
	if q.added++; q.size > flushSize {
		q.wake()
	}
	return nil
}

// count returns how many entries were added in total.
func (q *queue) count() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.added
}

const (
	paceSize = 3 << 20               // more than behindSize
	paceTime = 20 * time.Millisecond // longer than it takes to decode that much
)

// pace gives a consumer that is at work a moment to catch up, to avoid writing to a
// file what the consumer will read in a moment. If a consumer does not
// catch up, pace does not wait for it again until it has.
func (q *queue) pace() {
	q.wake()
	select {
	case <-q.took:
	default:
	}
	q.mu.Unlock()
	defer q.mu.Lock()
	t := time.NewTimer(paceTime)
	defer t.Stop()
	select {
	case <-q.took:
	case <-t.C:
		q.mu.Lock()
		q.slow = true
		q.mu.Unlock()
	}
}

// close lets the consumer read the remaining messages and then end with err.
func (q *queue) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed == nil {
		q.closed = err
	}
	q.wake()
}

// discard frees messages that nobody will read.
func (q *queue) discard() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items, q.size = nil, 0
	q.spill.close()
	if q.closed == nil {
		q.closed = ErrClosed
	}
	q.wake()
}

func (q *queue) wake() {
	if q.waiting {
		q.waiting = false
		q.ready <- struct{}{}
	}
}

// pop returns the next message. After the last message, the error is that of close; if
// ctx ends, it is the cause of ctx.
func (q *queue) pop(ctx context.Context) (wire.Message, error) {
	for {
		if q.next < len(q.batch) {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			e := q.batch[q.next]
			q.batch[q.next] = entry{block: e.block} // release returns the block
			q.next++
			m := e.message(&q.decode, len(q.batch)-q.next)
			pauses := e.m != nil && !isLine(m)
			if pauses {
				q.decode = wire.Decoder{}
			}
			if pauses || q.next == len(q.batch) {
				q.release()
			}
			return m, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		e, state, err := q.nextEntry()
		switch {
		case err != nil:
			return nil, err
		case state == tookOne:
			return e.message(&q.decode, 0), nil
		case state == tookBatch:
			continue
		}
		select {
		case <-q.ready:
		case <-ctx.Done():
			q.mu.Lock()
			if !q.waiting {
				<-q.ready // it was sent in the meantime
			}
			q.waiting = false
			q.mu.Unlock()
			return nil, context.Cause(ctx)
		}
	}
}

// signalRoom signals the producer that there is room again.
func (q *queue) signalRoom() {
	q.slow = false
	select {
	case q.took <- struct{}{}:
	default:
	}
}

// Outcomes of take.
const (
	tookNone = iota
	tookOne
	tookBatch
)

// nextEntry gets the next batch, or an entry from the file, or makes the consumer wait.
func (q *queue) nextEntry() (e entry, state int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) > 0 {
		q.batch, q.items = q.items, q.batch[:0]
		q.taken, q.size = q.size, 0
		q.signalRoom()
		return e, tookBatch, nil
	}
	q.taken = 0
	if cap(q.batch) > 1<<14 {
		q.batch, q.next, q.released = nil, 0, 0
	}
	if q.spill.size > 0 {
		e, err := q.spill.read()
		if err != nil {
			return e, tookNone, fmt.Errorf("parley: reading messages that were put aside: %w", err)
		}
		return e, tookOne, nil
	}
	if q.closed != nil {
		return e, tookNone, q.closed
	}
	q.waiting = true
	return e, tookNone, nil
}

// isLine reports whether the reader queues messages of this type as lines.
func isLine(m wire.Message) bool {
	switch m.(type) {
	case *wire.StreamEvent, *wire.Assistant, *wire.User:
		return true
	}
	return false
}

// release returns the blocks of the part of the batch that was read. It is called at the
// end of a batch and after messages that are not lines, such as the end of a turn: a
// consumer may not read the rest for long, and the queue then keeps no block.
func (q *queue) release() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for ; q.released < q.next; q.released++ {
		if e := &q.batch[q.released]; e.block != nil {
			q.unref(e.block)
			e.block = nil
		}
	}
	if q.next == len(q.batch) {
		q.batch, q.next, q.released, q.taken = q.batch[:0], 0, 0, 0
	}
	if b := q.block; b != nil && b.left == 1 {
		q.block = nil
		q.unref(b)
	}
}

// A spill is a queue of messages in files.
type spill struct {
	files    []*spillFile // read from the first, written to the last
	fileSize int64        // limit of a file
	size     int64        // bytes of unread records
	buf      []byte
}

// spillFileSize is the approximate size of one file: its space is freed when the whole
// file was read.
const spillFileSize = 64 << 20

// A spillFile is one of the files.
type spillFile struct {
	file    *os.File
	w       *bufio.Writer
	r       *bufio.Reader
	next    int64 // offset of the next read of r
	written int64
	unread  int64
}

func newSpillFile() (*spillFile, error) {
	f, err := os.CreateTemp("", "parley-queue-*")
	if err != nil {
		return nil, err
	}
	// Where the system allows it, remove the file's name at once, so that a crash
	// leaves nothing behind.
	os.Remove(f.Name())
	s := &spillFile{file: f, w: bufio.NewWriterSize(f, 64<<10)}
	s.r = bufio.NewReaderSize(&offsetReader{f, &s.next}, 64<<10)
	return s, nil
}

func (f *spillFile) close() {
	f.file.Close()
	os.Remove(f.file.Name()) // on systems where an open file keeps its name
}

// close drops everything.
func (s *spill) close() {
	for _, f := range s.files {
		f.close()
	}
	*s = spill{fileSize: s.fileSize}
}

// A record is a kind, a length and the text. The text of a message is its line, and
// that of a bad line is its size and its start.
const (
	spillMessage = 'm'
	spillBad     = 'b'
)

// write adds an entry. If it fails, it adds nothing.
func (s *spill) write(e entry) (err error) {
	s.buf = append(s.buf[:0], spillMessage, 0, 0, 0, 0, 0, 0, 0, 0)
	if e.m == nil {
		s.buf = append(s.buf, e.line...)
	} else if bad, ok := e.m.(*wire.BadLine); ok {
		s.buf[0] = spillBad
		s.buf = binary.BigEndian.AppendUint64(s.buf, uint64(bad.Size))
		reason := bad.Err.Error()
		s.buf = binary.BigEndian.AppendUint32(s.buf, uint32(len(reason)))
		s.buf = append(append(s.buf, reason...), bad.Text...)
	} else if s.buf, err = wire.AppendMessage(s.buf, e.m); err != nil {
		return err
	}
	binary.BigEndian.PutUint64(s.buf[1:], uint64(len(s.buf)-9))
	if n := len(s.files); n == 0 || s.files[n-1].written >= s.fileSize {
		f, err := newSpillFile()
		if err != nil {
			return err
		}
		s.files = append(s.files, f)
	}
	f := s.files[len(s.files)-1]
	if _, err := f.w.Write(s.buf); err != nil {
		return err
	}
	n := int64(len(s.buf))
	f.written += n
	f.unread += n
	s.size += n
	if cap(s.buf) > 1<<20 {
		s.buf = nil
	}
	return nil
}

// read removes and returns the first entry. There must be one.
func (s *spill) read() (e entry, err error) {
	f := s.files[0]
	if err := f.w.Flush(); err != nil {
		return e, err
	}
	var head [9]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return e, err
	}
	text := make([]byte, binary.BigEndian.Uint64(head[1:]))
	if _, err := io.ReadFull(f.r, text); err != nil {
		return e, err
	}
	n := int64(len(text)) + 9
	f.unread -= n
	s.size -= n
	if f.unread == 0 {
		f.close()
		s.files = s.files[1:]
	}
	if head[0] != spillBad {
		return entry{line: text}, nil
	}
	size := int64(binary.BigEndian.Uint64(text))
	text = text[8:]
	reason := string(text[4 : 4+binary.BigEndian.Uint32(text)])
	bad := &wire.BadLine{Size: size, Text: text[4+len(reason):], Err: errors.New(reason)}
	for _, known := range []error{wire.ErrLineTooLong, io.ErrUnexpectedEOF} {
		if known.Error() == reason {
			bad.Err = known
		}
	}
	return entry{m: bad}, nil
}

// An offsetReader reads a file at its own offset while another goroutine writes at the
// end.
type offsetReader struct {
	f    *os.File
	next *int64
}

func (r *offsetReader) Read(p []byte) (int, error) {
	n, err := r.f.ReadAt(p, *r.next)
	*r.next += int64(n)
	if n > 0 {
		err = nil
	}
	return n, err
}
