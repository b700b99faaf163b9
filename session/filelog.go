package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"sync"

	"github.com/parley-go/parley/internal/durable"
)

// gather is how many bytes a log without durability buffers.
const gather = 64 << 10

// A fileLog is a session in a file that this process has locked.
type fileLog struct {
	files   *Files
	place   place
	name    string // of its file, relative to the projects directory
	path    string
	encoder *encoder
	parent  *fileLog // for a part: the session
	sub     string   // for a part: its name

	mu     sync.Mutex
	parts  []*fileLog // open parts
	next   *group     // the group of the next write, nil if nothing waits
	closed bool
	failed error // once set, the state of the file's end is unknown

	// turn is held by the writer. Others that arrive meanwhile form the next group, and
	// one of them writes for all.
	turn  chan struct{}
	file  *os.File
	named bool // the name of the file is on disk; it may not be if another process created the file
	hasty bool // the last write did not wait for the disk
}

// A group holds the lines of all callers that wait for the same write.
type group struct {
	lines []byte
	sync  bool // not all of them are hasty
	done  chan struct{}
	err   error
}

func (f *Files) newLog(p place, file *os.File, meta Meta) *fileLog {
	return &fileLog{
		files: f, place: p, name: p.name(), path: f.pathOf(p),
		encoder: newEncoder(meta), turn: make(chan struct{}, 1), file: file,
	}
}

func (l *fileLog) ID() string   { return l.place.id }
func (l *fileLog) Path() string { return l.path }

func (l *fileLog) encoding() (Key, *encoder) {
	return Key{l.place.project, l.place.id, l.sub}, l.encoder
}

// Sub implements [Log].
func (l *fileLog) Sub(name string) (Log, error) {
	if l.parent != nil {
		l = l.parent
	}
	return l.part(name)
}

// part opens the log of a part.
func (l *fileLog) part(name string) (*fileLog, error) {
	if err := errors.Join(checkSub(name), errNoPart(name)); err != nil {
		return nil, err
	}
	root, err := l.files.root(true)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	key := Key{l.place.project, l.place.id, name}
	if err := root.MkdirAll(path.Dir(key.fileName()), dirMode); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	file, err := root.OpenFile(key.fileName(), os.O_RDWR|os.O_APPEND|os.O_CREATE|nonblock, fileMode)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	part := l.files.newLog(l.place, file, Meta{})
	part.parent, part.sub, part.encoder, part.name, part.path = l, name, l.encoder, key.fileName(), l.files.keyPath(key)
	if err := load(file, part.path); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	l.mu.Lock()
	err = l.usable()
	if err == nil {
		l.parts = append(l.parts, part)
	}
	l.mu.Unlock()
	if err != nil {
		return nil, errors.Join(err, part.Close())
	}
	return part, nil
}

// writeMeta writes the metadata of a subagent beside its log, and returns the other
// entries.
func (l *fileLog) writeMeta(entries []*Entry) ([]*Entry, error) {
	if l.parent == nil || !slices.ContainsFunc(entries, func(e *Entry) bool { return e != nil && e.Type == metaType }) {
		return entries, nil
	}
	root, err := l.files.root(false)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var rest []*Entry
	for _, e := range entries {
		if e == nil || e.Type != metaType {
			rest = append(rest, e)
			continue
		}
		line, err := l.encoder.lines(nil, []*Entry{e})
		if err != nil {
			return nil, err
		}
		if _, err := l.files.splitMeta(root, Key{l.place.project, l.place.id, l.sub}, []json.RawMessage{line}); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// Append implements [Log].
func (l *fileLog) Append(entries ...*Entry) error {
	entries, err := l.writeMeta(entries)
	if err != nil {
		return err
	}
	lines, err := l.encoder.lines(nil, entries)
	if err != nil {
		return err
	}
	l.mu.Lock()
	if err := l.usable(); err != nil {
		l.mu.Unlock()
		return err
	}
	if l.next == nil {
		if len(lines) == 0 {
			l.mu.Unlock()
			return nil
		}
		l.next = &group{done: make(chan struct{})}
	}
	g := l.next
	g.lines = append(g.lines, lines...)
	g.sync = g.sync || len(entries) == 0 || slices.ContainsFunc(entries, func(e *Entry) bool { return e == nil || !e.Hasty })
	wait := l.files.Durability != None || len(entries) == 0 || len(g.lines) >= gather
	l.mu.Unlock()
	if !wait {
		return nil
	}
	select {
	case <-g.done:
	case l.turn <- struct{}{}:
		l.flush(g)
		<-l.turn
	}
	return g.err
}

// openParts returns the parts to close.
func (l *fileLog) openParts() []*fileLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	parts := l.parts
	l.parts = nil
	return parts
}

// usable returns why nothing can be appended, or nil. The caller holds mu.
func (l *fileLog) usable() error {
	if l.closed {
		return ErrClosed
	}
	return l.failed
}

// flush writes a group unless another goroutine has done so. The caller holds the
// turn.
func (l *fileLog) flush(g *group) {
	l.mu.Lock()
	if l.next != g { // written by another caller
		l.mu.Unlock()
		<-g.done
		return
	}
	l.next = nil
	g.err = l.failed
	l.mu.Unlock()
	if g.err == nil {
		var broken bool
		broken, g.err = l.write(g.lines, g.sync)
		if broken || g.err != nil && l.files.Durability == None { // an earlier Append has returned without an error
			l.mu.Lock()
			l.failed = g.err
			l.mu.Unlock()
		}
	}
	close(g.done)
}

// write appends lines to the file, all or none, and waits for the disk if sync is set.
// It also reports whether the state of the file is unknown after an error.
func (l *fileLog) write(lines []byte, sync bool) (broken bool, err error) {
	n, err := l.file.Write(lines)
	if err != nil {
		if n > 0 {
			if undo := l.undo(int64(n)); undo != nil {
				return true, fmt.Errorf("session: %w; undoing it failed: %w", err, undo)
			}
		}
		return false, fmt.Errorf("session: %w", err)
	}
	if l.files.Durability != Fsync {
		return false, nil
	}
	if l.hasty = !sync; l.hasty {
		return false, nil
	}
	if err := l.sync(); err != nil {
		// The state of the disk is unknown now, and another attempt cannot determine
		// it.
		return true, fmt.Errorf("session: %w", err)
	}
	return false, nil
}

// sync waits until the file and its name are on disk. The first time, the disk can sync the file and
// the directories at the same time.
func (l *fileLog) sync() error {
	if l.named {
		return durable.File(l.file)
	}
	names := make(chan error, 1)
	go func() { names <- durable.Names(l.path, l.files.Dir) }()
	err := errors.Join(durable.File(l.file), <-names)
	l.named = err == nil
	return err
}

// undo removes the last n bytes, unless another process has written after them.
func (l *fileLog) undo(n int64) error {
	end, err := l.file.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != end {
		return errors.New("another process wrote to the file")
	}
	return cut(l.file, l.path, end-n)
}

// cut shortens a file. Some systems do not allow that for a file that is open for
// appending.
func cut(file *os.File, path string, size int64) error {
	err := file.Truncate(size)
	if err == nil {
		return nil
	}
	again, openErr := os.OpenFile(path, os.O_WRONLY, 0)
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	return errors.Join(again.Truncate(size), again.Close())
}

// Close implements [Log].
func (l *fileLog) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()

	for _, part := range l.openParts() {
		part.Close()
	}
	if p := l.parent; p != nil {
		p.mu.Lock()
		p.parts = slices.DeleteFunc(p.parts, func(o *fileLog) bool { return o == l })
		p.mu.Unlock()
	}
	l.turn <- struct{}{} // never released: nothing is written after this
	l.mu.Lock()
	g := l.next
	l.mu.Unlock()
	var err error
	if g != nil {
		l.flush(g)
		err = g.err
	}
	if l.hasty {
		err = errors.Join(err, durable.File(l.file))
	}
	if info, statErr := l.file.Stat(); statErr == nil && info.Size() == 0 {
		if root, openErr := l.files.root(false); openErr == nil {
			err = errors.Join(err, root.Remove(l.name))
			root.Close()
		}
	}
	return errors.Join(err, l.file.Close())
}
