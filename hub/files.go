package hub

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/parley-go/parley/internal/durable"
	"github.com/parley-go/parley/internal/filelock"
	"github.com/parley-go/parley/session"
)

// Files is a [Backend] that keeps each session in a directory below Dir, readable only for its
// owner. Several processes may use the directory. A process that follows another one's writes
// polls five times a second, and once a second after ten seconds without a change; see also Watch.
//
//	<id>/journal.jsonl   the journal, one entry a line
//	<id>/inbox.jsonl     the inbox, one item a line
//	<id>/lock            locked by the process that has the lease
//	work/<id>            the session has work to do
type Files struct {
	Dir string
	// Durability is what an appended entry survives. None means the same as Write.
	Durability session.Durability
	// Watch replaces polling by notifications of the system, where it sends any: on Linux, for a
	// directory on a local disk. An idle process then does nothing at all.
	Watch bool

	changes changes // of files
	leases  changes // of lock files: they are closed

	mu    sync.Mutex
	ends  map[string]journalEnd // ends of the journals of sessions that are leased here
	named map[string]bool       // files whose names this process has synced to disk
	bells bells

	woken     []string // session ids, in the order in which this process woke them
	forgotten int      // how many older ids were removed
}

// A journalEnd is the end of a journal when this process last wrote it.
type journalEnd struct {
	size int64
	last uint64
}

var _ Backend = (*Files)(nil)

const (
	journalName = "journal.jsonl"
	inboxName   = "inbox.jsonl"
	lockName    = "lock"
	workDir     = "work"

	// pollTime is how often a follower looks for writes of other processes. After idlePolls
	// attempts without a result it looks every idleTime.
	pollTime  = 200 * time.Millisecond
	idleTime  = time.Second
	idlePolls = 50
)

func (f *Files) path(id string, name string) string { return filepath.Join(f.Dir, id, name) }

// edit opens a file of a session, which it creates if necessary, and locks it against other
// writers. It removes an incomplete line at the end.
func (f *Files) edit(ctx context.Context, id, name string) (*os.File, int64, error) {
	for {
		file, err := os.OpenFile(f.path(id, name), os.O_RDWR|os.O_CREATE, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			if err = os.MkdirAll(filepath.Join(f.Dir, id), 0o700); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, 0, fmt.Errorf("hub: %w", err)
		}
		size, err := f.lock(ctx, file, id, name)
		if err == nil {
			return file, size, nil
		}
		file.Close()
		if !errors.Is(err, errReplaced) {
			return nil, 0, fmt.Errorf("hub: %w", err)
		}
	}
}

var errReplaced = errors.New("the file was replaced")

// lock waits for the lock of a file. Closing the file releases it.
func (f *Files) lock(ctx context.Context, file *os.File, id, name string) (size int64, err error) {
	for pause := time.Millisecond; ; pause = min(2*pause, 32*time.Millisecond) {
		if err = filelock.Try(file); err == nil {
			break
		}
		if !errors.Is(err, filelock.ErrHeld) {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if now, err := os.Stat(f.path(id, name)); err != nil || !os.SameFile(info, now) {
		return 0, errReplaced // it was trimmed or deleted while we waited
	}
	whole, err := wholeLines(file, info.Size())
	if err == nil && whole < info.Size() {
		err = file.Truncate(whole)
	}
	return whole, err
}

// wholeLines returns the size of a file without an incomplete line at the end.
func wholeLines(file io.ReaderAt, size int64) (int64, error) {
	buf := make([]byte, 1)
	for size > 0 {
		n, err := file.ReadAt(buf[:min(int64(len(buf)), size)], size-min(int64(len(buf)), size))
		if err != nil && err != io.EOF {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return size - int64(n) + int64(i) + 1, nil
		}
		size -= int64(n)
		buf = make([]byte, 64<<10)
	}
	return 0, nil
}

// put writes lines to the end of a file. If that fails, the whole lines that were written stay,
// because somebody may have read them, and the rest is removed.
func put(file interface {
	io.WriterAt
	Truncate(size int64) error
}, size int64, lines []byte) error {
	n, err := file.WriteAt(lines, size)
	if err != nil {
		whole := bytes.LastIndexByte(lines[:n], '\n') + 1
		err = errors.Join(err, file.Truncate(size+int64(whole)))
	}
	return err
}

// write appends lines to a file, and syncs it if Durability requires that.
func (f *Files) write(file *os.File, size int64, lines []byte) error {
	if err := put(file, size, lines); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	if f.Durability != session.Fsync {
		return nil
	}
	if err := durable.File(file); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	if err := f.syncName(file.Name(), size == 0); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	return nil
}

// syncName waits until a name below Dir would survive a power cut. It does nothing if this
// process has done so before, unless the name is fresh: another process may have created the
// file, and died before its name was on disk.
func (f *Files) syncName(path string, fresh bool) error {
	f.mu.Lock()
	known := f.named[path]
	f.mu.Unlock()
	if known && !fresh {
		return nil
	}
	if err := durable.Names(path, f.Dir); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.named == nil || len(f.named) >= 1024 {
		f.named = map[string]bool{}
	}
	f.named[path] = true
	return nil
}

// Append implements [Backend].
func (f *Files) Append(ctx context.Context, id string, expect uint64, entries []Entry) error {
	if err := CheckAppend(ctx, id, expect, entries); err != nil || len(entries) == 0 {
		return err
	}
	file, size, err := f.edit(ctx, id, journalName)
	if err != nil {
		return err
	}
	defer file.Close()
	f.mu.Lock()
	end, known := f.ends[id]
	f.mu.Unlock()
	if !known || end.size != size {
		if end.last, err = lastNumber(file, size); err != nil {
			return err
		}
	}
	if expect != AnyNumber && expect != end.last {
		return ErrConflict
	}
	var lines []byte
	for i := range entries {
		lines = append(entries[i].AppendTo(lines), '\n')
		end.last = max(end.last, entries[i].N)
	}
	if err := f.write(file, size, lines); err != nil {
		return err
	}
	if known {
		f.mu.Lock()
		if _, known := f.ends[id]; known {
			f.ends[id] = journalEnd{size + int64(len(lines)), end.last}
		}
		f.mu.Unlock()
	}
	f.bells.ring(f.path(id, journalName))
	return nil
}

// lastNumber returns the number of the last numbered entry.
func lastNumber(file io.ReaderAt, size int64) (uint64, error) {
	const step = 64 << 10
	for from := max(0, size-step); ; from = max(0, from-step) {
		last := uint64(0)
		for line, err := range linesFrom(file, from, size) {
			if err != nil {
				return 0, err
			}
			if n := numberOf(line); n > 0 {
				last = n
			}
		}
		if last > 0 || from == 0 {
			return last, nil
		}
	}
}

// numberOf returns the number of an entry, 0 if it has none.
func numberOf(line []byte) uint64 {
	s := scanner{rest: line}
	if !s.skip(`{"n":`) {
		return 0
	}
	n, _ := s.number()
	return n
}

// linesFrom yields the complete lines of a file between two offsets, without a line that began
// before the first. A line is valid until the next one.
func linesFrom(file io.ReaderAt, from, to int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		start := max(0, from-1) // if this is the end of a line, the next line is whole
		r := bufio.NewReaderSize(io.NewSectionReader(file, start, to-start), 64<<10)
		skip := from > 0
		var long []byte
		for {
			line, err := r.ReadSlice('\n')
			if errors.Is(err, bufio.ErrBufferFull) {
				long = append(long, line...)
				continue
			}
			if err == io.EOF {
				return // the rest is incomplete
			}
			if err != nil {
				yield(nil, fmt.Errorf("hub: %w", err))
				return
			}
			if len(long) > 0 {
				line = append(long, line...)
				long = line[:0]
			}
			if skip {
				skip = false
				continue
			}
			if !yield(line[:len(line)-1], nil) {
				return
			}
		}
	}
}

// searchBehind returns the offset of the line after the entry with the number n, or where it
// would be.
func searchBehind(file io.ReaderAt, size int64, n uint64) (int64, error) {
	if n == 0 {
		return 0, nil
	}
	low, high := int64(0), size // low is 0 or at the start of an entry with a number up to n
	for high-low > 64<<10 {
		middle := low + (high-low)/2
		found := uint64(0)
		for line, err := range linesFrom(file, middle, high) {
			if err != nil {
				return 0, err
			}
			if found = numberOf(line); found > 0 {
				break
			}
		}
		if found == 0 || found > n {
			high = middle
		} else {
			low = middle
		}
	}
	low, err := wholeLines(file, low)
	if err != nil {
		return 0, err
	}
	at, behind := low, int64(0)
	for line, err := range linesFrom(file, low, size) {
		if err != nil {
			return 0, err
		}
		k := numberOf(line)
		if k > n {
			break
		}
		if at += int64(len(line)) + 1; k > 0 {
			behind = at
		}
	}
	return behind, nil
}

// Read implements [Backend].
func (f *Files) Read(ctx context.Context, id string, after uint64, follow bool) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		r := &fileReader{path: f.path(id, journalName)}
		defer r.close()
		look(ctx, f, id, journalName, follow, yield, func(count func()) (bool, error) {
			size, fresh, err := r.open()
			if err == nil && fresh {
				r.place, err = searchBehind(r.file, size, after)
			}
			if err != nil {
				return false, err
			}
			for line, err := range r.lines(size) {
				if err != nil {
					return false, err
				}
				e, err := ParseEntry(bytes.Clone(line))
				if err != nil {
					return false, err
				}
				if 0 < e.N && e.N <= after {
					continue
				}
				after = max(after, e.N)
				count()
				if !yield(e, nil) {
					return false, nil
				}
				if ctx.Err() != nil {
					break
				}
			}
			return true, nil
		})
	}
}

// look calls more, and with follow again whenever there may be something new in a file, until more returns
// false. It yields the error of more, and that of ctx. The function more calls count for each value that it yields.
func look[T any](ctx context.Context, f *Files, id, file string, follow bool, yield func(T, error) bool, more func(count func()) (bool, error)) {
	var none T
	leave := func() {}
	defer func() { leave() }()
	var changed <-chan struct{}
	for quiet := 0; ; quiet++ {
		bell := f.bells.wait(f.path(id, file), follow)
		if f.Watch && follow && quiet > 0 && changed == nil {
			last := leave
			changed, leave = f.changes.watch(filepath.Join(f.Dir, id), file, written)
			last()
		}
		if ctx.Err() == nil {
			if goOn, err := more(func() { quiet = 0 }); err != nil {
				yield(none, err)
				return
			} else if !goOn {
				return
			}
		}
		if ctx.Err() == nil {
			if !follow {
				return
			}
			wait := pollTime
			if quiet > idlePolls {
				wait = idleTime
			}
			var poll <-chan time.Time
			if changed == nil {
				poll = time.After(wait)
			}
			select {
			case <-bell:
				quiet = 0
			case <-changed:
				quiet, changed = 0, nil
			case <-poll:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			yield(none, context.Cause(ctx))
			return
		}
	}
}

// A fileReader reads the lines of a file that may not exist yet, grow, and be replaced.
type fileReader struct {
	path  string
	file  *os.File
	place int64 // offset of the next line
}

// open opens the file at the path, unless it is open already, and returns its size. fresh reports
// that the file was replaced. Without a file the size is 0.
func (r *fileReader) open() (size int64, fresh bool, err error) {
	now, err := os.Stat(r.path)
	if err != nil {
		r.close()
		if errors.Is(err, fs.ErrNotExist) {
			return 0, false, nil
		}
		return 0, false, fmt.Errorf("hub: %w", err)
	}
	if r.file != nil {
		if info, err := r.file.Stat(); err == nil && os.SameFile(info, now) {
			return info.Size(), false, nil
		}
		r.close()
	}
	file, err := os.Open(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("hub: %w", err)
	}
	r.file, r.place = file, 0
	info, err := file.Stat()
	if err != nil {
		return 0, false, fmt.Errorf("hub: %w", err)
	}
	return info.Size(), true, nil
}

func (r *fileReader) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

// lines yields the lines from the reader's place on, and advances the place.
func (r *fileReader) lines(size int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if r.file == nil || size <= r.place {
			return
		}
		for line, err := range linesFrom(r.file, r.place, size) {
			if err == nil {
				r.place += int64(len(line)) + 1
			}
			if !yield(line, err) || err != nil {
				return
			}
		}
	}
}

// Trim implements [Backend].
func (f *Files) Trim(ctx context.Context, id string, before uint64) error {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return err
	}
	if _, err := os.Stat(f.path(id, journalName)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	file, size, err := f.edit(ctx, id, journalName)
	if err != nil {
		return err
	}
	defer file.Close()
	last, err := lastNumber(file, size)
	if err != nil {
		return err
	}
	err = f.rewrite(ctx, file, size, func(line []byte) bool {
		n := numberOf(line)
		return n == 0 || n >= min(before, last)
	})
	if err != nil {
		return err
	}
	f.mu.Lock()
	if _, known := f.ends[id]; known {
		f.ends[id] = journalEnd{size: -1}
	}
	f.mu.Unlock()
	return nil
}

// rewrite replaces a locked file with one that has only the lines for which keep returns true.
func (f *Files) rewrite(ctx context.Context, file *os.File, size int64, keep func(line []byte) bool) (err error) {
	temp := file.Name() + ".new"
	out, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("hub: the file was not trimmed: %w", errors.Join(err, out.Close(), os.Remove(temp)))
		}
	}()
	w := bufio.NewWriterSize(out, 64<<10)
	for line, err := range linesFrom(file, 0, size) {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && keep(line) {
			w.Write(line)
			err = w.WriteByte('\n')
		}
		if err != nil {
			return err
		}
	}
	if err = errors.Join(w.Flush(), durable.File(out), out.Close()); err != nil {
		return err
	}
	if err = os.Rename(temp, file.Name()); err != nil {
		return err
	}
	return durable.Dir(filepath.Dir(temp))
}

// Lease implements [Backend]. The lease ends with the process.
func (f *Files) Lease(ctx context.Context, id string) (Lease, error) {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(f.Dir, id), 0o700); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	// The owner has the file open for writing: closing it wakes those who wait for the lease. A failed
	// attempt wakes nobody.
	probe, err := os.OpenFile(f.path(id, lockName), os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	err = filelock.Try(probe)
	probe.Close()
	if errors.Is(err, filelock.ErrHeld) {
		return nil, ErrLocked
	}
	file, err := os.OpenFile(f.path(id, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	if err := filelock.Try(file); err != nil {
		file.Close()
		if errors.Is(err, filelock.ErrHeld) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("hub: %w", err)
	}
	if info, err := file.Stat(); err == nil {
		if now, err := os.Stat(file.Name()); err != nil || !os.SameFile(info, now) {
			file.Close() // the session was deleted in the meantime
			return nil, ErrLocked
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ends == nil {
		f.ends = map[string]journalEnd{}
	}
	f.ends[id] = journalEnd{size: -1}
	return &fileLease{files: f, id: id, file: file}, nil
}

// leaseEnds returns a channel that is closed when the lease of a session may have ended, or nil if the
// system cannot report that. Call stop when nobody waits for the channel any more.
func (f *Files) leaseEnds(id string) (ended <-chan struct{}, stop func()) {
	if !f.Watch {
		return nil, func() {}
	}
	return f.leases.watch(filepath.Join(f.Dir, id), lockName, closed)
}

type fileLease struct {
	files *Files
	id    string
	once  sync.Once
	file  *os.File
	err   error
}

// Lost implements [Lease]. The lock of a file cannot be lost.
func (l *fileLease) Lost() <-chan struct{} { return nil }

// Close implements [Lease].
func (l *fileLease) Close() error {
	l.once.Do(func() {
		l.files.mu.Lock()
		delete(l.files.ends, l.id)
		l.files.mu.Unlock()
		l.err = l.file.Close()
	})
	return l.err
}

// An itemLine is an item as it is stored in the file.
type itemLine struct {
	Number uint64          `json:"number"`
	Key    string          `json:"key"`
	Time   time.Time       `json:"time"`
	Data   json.RawMessage `json:"data"`
}

// Put implements [Backend].
func (f *Files) Put(ctx context.Context, id string, item Item) (Item, error) {
	if err := errors.Join(ctx.Err(), CheckID(id), CheckItem(item)); err != nil {
		return Item{}, err
	}
	file, size, err := f.edit(ctx, id, inboxName)
	if err != nil {
		return Item{}, err
	}
	defer file.Close()
	key, err := json.Marshal(item.Key)
	if err != nil {
		return Item{}, err
	}
	key = append(append([]byte(`"key":`), key...), ',')
	for line, err := range linesFrom(file, 0, size) {
		if err != nil {
			return Item{}, err
		}
		item.Number = itemNumber(line)
		if !bytes.Contains(line[:min(len(line), len(key)+40)], key) {
			continue
		}
		if there, err := parseItem(line); err != nil || there.Key == item.Key {
			return there, err
		}
	}
	item.Number++
	item.Time = item.Time.UTC().Truncate(time.Millisecond)
	item.Data = bytes.Clone(item.Data)
	line, err := json.Marshal(itemLine(item)) // it starts as itemNumber expects
	if err != nil {
		return Item{}, err
	}
	if err := f.write(file, size, append(line, '\n')); err != nil {
		return Item{}, err
	}
	f.bells.ring(f.path(id, inboxName))
	return item, nil
}

func parseItem(line []byte) (Item, error) {
	var l itemLine
	if err := json.Unmarshal(line, &l); err != nil {
		return Item{}, fmt.Errorf("hub: an item cannot be read: %w", err)
	}
	return Item(l), nil
}

// itemNumber returns the number of an item.
func itemNumber(line []byte) uint64 {
	s := scanner{rest: line}
	s.skip(`{"number":`)
	n, _ := s.number()
	return n
}

// fewItems is the size below which an inbox is not trimmed.
const fewItems = 64 << 10

// TrimInbox implements [Backend].
func (f *Files) TrimInbox(ctx context.Context, id string, before uint64) error {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return err
	}
	if info, err := os.Stat(f.path(id, inboxName)); err != nil || info.Size() < fewItems {
		return nil // even if there is no inbox
	}
	file, size, err := f.edit(ctx, id, inboxName)
	if err != nil {
		return err
	}
	defer file.Close()
	last := uint64(0)
	for line, err := range linesFrom(file, 0, size) {
		if err != nil {
			return err
		}
		last = itemNumber(line)
	}
	return f.rewrite(ctx, file, size, func(line []byte) bool { return itemNumber(line) >= min(before, last) })
}

// Inbox implements [Backend].
func (f *Files) Inbox(ctx context.Context, id string, after uint64, follow bool) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		r := &fileReader{path: f.path(id, inboxName)}
		defer r.close()
		look(ctx, f, id, inboxName, follow, yield, func(count func()) (bool, error) {
			size, _, err := r.open()
			if err != nil {
				return false, err
			}
			for line, err := range r.lines(size) {
				if err != nil {
					return false, err
				}
				item, err := parseItem(line)
				if err != nil {
					return false, err
				}
				if item.Number <= after {
					continue
				}
				after = item.Number
				count()
				if !yield(item, nil) {
					return false, nil
				}
				if ctx.Err() != nil {
					break
				}
			}
			return true, nil
		})
	}
}

// Wake implements [Backend].
func (f *Files) Wake(ctx context.Context, id string) error {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return err
	}
	name := filepath.Join(f.Dir, workDir, id)
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(name), 0o700); err == nil {
			file, err = os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
		}
	}
	if err == nil {
		err = file.Close()
	}
	if err == nil && f.Durability == session.Fsync {
		err = errors.Join(durable.Dir(filepath.Dir(name)), f.syncName(filepath.Dir(name), false))
	}
	if err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	f.mu.Lock()
	f.woken = append(f.woken, id)
	if n := len(f.woken) - 1024; n > 0 { // a reader that is so far behind reads the directory
		f.woken, f.forgotten = slices.Clone(f.woken[n:]), f.forgotten+n
	}
	f.mu.Unlock()
	f.bells.ring("")
	return nil
}

// Rest implements [Backend].
func (f *Files) Rest(ctx context.Context, id string) error {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(f.Dir, workDir, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("hub: %w", err)
	}
	return nil
}

// Work implements [Backend]. It follows only this process.
func (f *Files) Work(ctx context.Context, follow bool) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		seen := -1 // how many of woken were seen, including removed ones
		for {
			bell := f.bells.wait("", follow)
			f.mu.Lock()
			var ids []string
			all := seen < f.forgotten
			if !all {
				ids = slices.Clone(f.woken[seen-f.forgotten:])
			}
			seen = f.forgotten + len(f.woken)
			f.mu.Unlock()
			if all {
				list, err := os.ReadDir(filepath.Join(f.Dir, workDir))
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					yield("", fmt.Errorf("hub: %w", err))
					return
				}
				for _, d := range list {
					ids = append(ids, d.Name())
				}
			}
			for _, id := range ids {
				if ctx.Err() != nil {
					break
				}
				if session.ValidID(id) && !yield(id, nil) {
					return
				}
			}
			if !wait(ctx, bell, follow, yield) {
				return
			}
		}
	}
}

// List implements [Backend].
func (f *Files) List(ctx context.Context) ([]Listed, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	dirs, err := os.ReadDir(f.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("hub: %w", err)
	}
	var all []Listed
	for _, d := range dirs {
		if !session.ValidID(d.Name()) {
			continue
		}
		if info, err := os.Stat(f.path(d.Name(), journalName)); err == nil && info.Size() > 0 {
			all = append(all, Listed{ID: d.Name(), Modified: info.ModTime(), Size: info.Size()})
		}
	}
	return all, nil
}

// Delete implements [Backend].
func (f *Files) Delete(ctx context.Context, id string) error {
	if err := errors.Join(ctx.Err(), CheckID(id)); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(f.Dir, id)); err == nil {
		lease, err := f.Lease(ctx, id)
		if err != nil {
			return err
		}
		defer lease.Close()
	}
	// Remove it atomically: anyone who uses its name in the meantime creates a new session, and
	// loses nothing of it.
	dir := filepath.Join(f.Dir, id)
	gone := dir + ".removed"
	err := os.RemoveAll(gone) // left by a process that was killed here
	if err == nil && os.Rename(dir, gone) != nil {
		gone = dir // there is none, or the system does not rename open files
	}
	if err = errors.Join(err, os.RemoveAll(gone), f.Rest(ctx, id)); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	return nil
}
