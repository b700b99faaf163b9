package process

import (
	"errors"
	"io"
	"os"
	"sync"
)

// Memory use of a spool.
const (
	headSize = 128 << 10 // size up to which all output is kept; then size of its beginning
	tailSize = 32 << 10  // size of the end of longer output
)

// A Spool stores the output of a command: a limited part in memory, and more in a file,
// up to a limit. It is safe for concurrent use.
type Spool struct {
	store Store // may be nil
	limit int64
	full  func() // called once when the limit is reached

	mu    sync.Mutex
	head  []byte
	tail  []byte // a ring buffer, once the head is full
	at    int    // start of the ring buffer
	total int64
	file  *os.File
	err   error // why there is no file
	done  bool
}

// A Store is the file that a [Spool] may create.
type Store interface {
	// Path returns the path of the file, for people and for the model.
	Path() string
	// Create creates the file, for writing and reading.
	Create() (*os.File, error)
	// Open opens the file that Create created, for reading.
	Open() (*os.File, error)
}

// NewSpool returns a spool that writes to a file once the output is large; without a
// store there is never one. After limit bytes, full is called in a separate goroutine,
// and the rest is dropped.
func NewSpool(store Store, limit int64, full func()) *Spool {
	return &Spool{store: store, limit: limit, full: full}
}

// Write stores output. It never fails: a full disk loses the middle of the output, but
// does not stop the command.
func (s *Spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(p)
	if room := s.limit - s.total; int64(len(p)) > room {
		if room >= 0 && s.full != nil {
			go s.full()
			s.full = nil
		}
		p = p[:max(0, room)]
	}
	if s.file != nil {
		s.put(p)
	}
	s.total += int64(len(p))
	if room := headSize - len(s.head); room > 0 {
		k := min(room, len(p))
		s.head = append(s.head, p[:k]...)
		p = p[k:]
	}
	if len(p) > 0 {
		if s.file == nil && s.err == nil {
			s.open()
			s.put(p)
		}
		s.keep(p)
	}
	return n, nil
}

// keep adds to the ring buffer of the end of the output.
func (s *Spool) keep(p []byte) {
	if len(p) > tailSize {
		p = p[len(p)-tailSize:]
	}
	for len(p) > 0 {
		if len(s.tail) < tailSize {
			k := min(tailSize-len(s.tail), len(p))
			s.tail = append(s.tail, p[:k]...)
			p = p[k:]
			continue
		}
		k := copy(s.tail[s.at:], p)
		s.at = (s.at + k) % tailSize
		p = p[k:]
	}
}

// open creates the file with the output so far, which is in the head.
func (s *Spool) open() {
	if s.store == nil {
		s.err = errors.New("there is no directory to put output in")
		return
	}
	if s.file, s.err = s.store.Create(); s.err != nil {
		s.file = nil
		return
	}
	s.put(s.head)
}

func (s *Spool) put(p []byte) {
	if s.file == nil || s.err != nil {
		return
	}
	_, s.err = s.file.Write(p)
}

// Persist makes sure that the output is in a file, and returns its path, or "" if that
// is not possible.
func (s *Spool) Persist() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil && s.err == nil && s.total <= headSize {
		s.open()
		if s.done && s.file != nil {
			s.file.Close()
		}
	}
	if s.file == nil {
		return ""
	}
	return s.store.Path()
}

// Close ends writing. The stored output can still be read.
func (s *Spool) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done && s.file != nil {
		s.file.Close()
	}
	s.done = true
}

// Total returns how many bytes were stored.
func (s *Spool) Total() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// Whole returns the complete output if it is in memory.
func (s *Spool) Whole() ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total > int64(len(s.head)) {
		return nil, false
	}
	return append([]byte(nil), s.head...), true
}

// Head returns the first bytes of the output, at most n.
func (s *Spool) Head(n int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]byte(nil), s.head[:min(n, len(s.head))]...)
}

// Tail returns the last bytes of the output, at most n; more than a few only if they
// are in a file.
func (s *Spool) Tail(n int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last(n)
}

// Since returns the output after the first bytes, only the last n bytes if there are more, and
// the number of bytes in total.
func (s *Spool) Since(first int64, n int) (data []byte, total int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last(int(min(int64(n), s.total-first))), s.total
}

func (s *Spool) last(n int) []byte {
	if s.total <= int64(len(s.head)) {
		return append([]byte(nil), s.head[max(0, len(s.head)-n):]...)
	}
	if n > len(s.tail) && s.file != nil && s.err == nil {
		if data, err := s.fromFile(n); err == nil {
			return data
		}
	}
	ring := append(append([]byte(nil), s.tail[s.at:]...), s.tail[:s.at]...)
	if len(s.tail) < tailSize {
		// The ring buffer has not wrapped around: the head is right before it.
		ring = append(append([]byte(nil), s.head...), s.tail...)
	}
	return ring[max(0, len(ring)-n):]
}

func (s *Spool) fromFile(n int) ([]byte, error) {
	f, err := s.store.Open()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	start := max(0, s.total-int64(n))
	data := make([]byte, s.total-start)
	_, err = io.ReadFull(io.NewSectionReader(f, start, int64(len(data))), data)
	return data, err
}

// Err returns why the output is not completely in its file, if it is not.
func (s *Spool) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
