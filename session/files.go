package session

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/parley-go/parley/internal/filelock"
)

// A Durability is what an appended entry survives.
type Durability int

// From the safest to the fastest.
const (
	Fsync Durability = iota // a power failure, unless it is hasty; concurrent appends share the wait for the disk
	Write                   // the end of the process, including kill -9
	None                    // nothing: it is written when enough have gathered, when Append is called with no entries, and by Close
)

// Files stores sessions in files below a directory, in the same places and format as the
// official CLI: projects/<key>/<id>.jsonl, with the key that [ProjectKey] returns. Only
// their owner can read the files. It finds a session in every project, since its id is the
// only key, and also reads the older layout sessions/<id>/messages.jsonl. It keeps only
// logs open, and is safe for concurrent use in many processes.
type Files struct {
	Dir        string // the configuration directory, such as the one in CLAUDE_CONFIG_DIR
	Durability Durability
	LockWait   time.Duration // how long Open waits for another process to close the session; zero means a moment
	// Progress is called repeatedly while reading a long log that has no index yet or is
	// compressed, until done equals total. It may be nil.
	Progress func(done, total int64)
}

var _ Store = (*Files)(nil)

// grace is how long other processes may hold a lock to add a line, such as a title.
const grace = 50 * time.Millisecond

const (
	dirMode  = 0o700
	fileMode = 0o600
	suffix   = ".jsonl"
)

// root opens the projects directory. Symbolic links in it cannot lead reads or writes
// outside of it.
func (f *Files) root(create bool) (*os.Root, error) {
	if f.Dir == "" {
		return nil, errors.New("session: no directory")
	}
	dir := filepath.Join(f.Dir, "projects")
	if !create { // there may be only sessions in the older layout
		_, err := os.Stat(filepath.Join(f.Dir, oldDir))
		create = err == nil
	}
	if create {
		if err := os.MkdirAll(dir, dirMode); err != nil {
			return nil, fmt.Errorf("session: %w", err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	return root, nil
}

// inRoot calls do with the projects directory, if it exists.
func (f *Files) inRoot(ctx context.Context, do func(root *os.Root) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	root, err := f.root(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return do(root)
}

// pathOf returns the path of a session.
func (f *Files) pathOf(p place) string {
	return filepath.Join(f.Dir, "projects", filepath.FromSlash(p.name()))
}

// A place is a session on disk.
type place struct {
	project string // the name of its directory
	id      string
	size    int64
	mtime   time.Time
	packed  bool // it is compressed
	old     bool // it is in the older layout
}

// name returns the file of a session, below the projects directory or, in the older
// layout, beside it, where code that is confined to the projects directory cannot reach
// it.
func (p place) name() string {
	if p.old {
		return path.Join("..", oldDir, p.id, oldMessages)
	}
	return path.Join(p.project, p.id+suffix)
}

// stat returns a session of a project, if it is not empty.
func stat(root *os.Root, project, id string) (place, bool) {
	p := place{project: project, id: id}
	info, err := root.Lstat(p.name())
	if err != nil || info.Size() == 0 {
		if info, err = root.Lstat(p.name() + packedSuffix); err != nil {
			return p, false
		}
		p.packed = true
	}
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return p, false
	}
	p.size, p.mtime = info.Size(), info.ModTime()
	return p, true
}

// projects returns the names of all project directories.
func projects(root *os.Root) ([]string, error) {
	entries, err := readDir(root, ".")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() || e.Type()&fs.ModeSymlink != 0 {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func readDir(root *os.Root, name string) ([]fs.DirEntry, error) {
	d, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.ReadDir(-1)
}

// lookup finds a session in some projects, or in all if in is nil. The newest wins.
func (f *Files) lookup(root *os.Root, id string, in []string) (place, error) {
	if !ValidID(id) {
		return place{}, ErrNotFound
	}
	all := in == nil
	if all {
		var err error
		if in, err = projects(root); err != nil {
			return place{}, err
		}
	}
	var best place
	found := false
	for _, project := range in {
		if p, ok := stat(root, project, id); ok && (!found || p.mtime.After(best.mtime)) {
			best, found = p, true
		}
	}
	if found {
		return best, nil
	}
	if p, ok := f.oldPlace(id); ok && (all || slices.Contains(in, p.project)) {
		return p, nil
	}
	return place{}, ErrNotFound
}

// create starts a session. The file is created at once; it counts as a session once it has
// an entry.
func (f *Files) create(meta Meta) (*fileLog, error) {
	meta, err := meta.newSession()
	if err != nil {
		return nil, err
	}
	root, err := f.root(true)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	project := ProjectKey(meta.Cwd)
	if err := root.Mkdir(project, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("session: %w", err)
	}
	p := place{project: project, id: meta.ID}
	for range 100 {
		file, err := root.OpenFile(p.name(), os.O_RDWR|os.O_APPEND|os.O_CREATE|nonblock, fileMode)
		if err != nil {
			return nil, fmt.Errorf("session: %w", err)
		}
		err = claim(root, p, file)
		if errors.Is(err, errGone) { // its last owner has just removed it
			file.Close()
			continue
		}
		if err == nil {
			err = isDuplicate(root, p, file)
		}
		if err == nil {
			if at, there := f.lookup(root, p.id, nil); there == nil && (at.packed || at.name() != p.name()) { // compressed, or in the older layout
				err = ErrExists
				root.Remove(p.name())
			}
		}
		if err != nil {
			file.Close()
			if errors.Is(err, ErrLocked) {
				err = ErrExists
			}
			return nil, err
		}
		return f.newLog(p, file, meta), nil
	}
	return nil, ErrExists
}

// beginAgain prepares a file for a new session: it must be empty, or its process died
// before a message was written (see [isPartOfTree]). An incomplete line is removed.
func beginAgain(file *os.File) error {
	whole := int64(0)
	for lines := bufio.NewReader(io.NewSectionReader(file, 0, math.MaxInt64)); ; {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		if err != nil || isPartOfTree(line) {
			return errors.Join(ErrExists, err)
		}
		whole += int64(len(line))
	}
	if info, err := file.Stat(); err != nil || info.Size() == whole {
		return err
	}
	return file.Truncate(whole)
}

// isDuplicate returns an error if a new file is not the only one with its id. If two are created
// concurrently in two projects, each finds the other, and neither continues.
func isDuplicate(root *os.Root, p place, file *os.File) error {
	if err := beginAgain(file); err != nil {
		return err
	}
	all, err := projects(root)
	if err != nil {
		return err
	}
	for _, project := range all {
		if project == p.project {
			continue
		}
		other := place{project: project, id: p.id}
		info, err := root.Lstat(other.name())
		if err != nil {
			continue
		}
		if info.Size() == 0 && info.Mode().IsRegular() {
			file, err := root.OpenFile(other.name(), os.O_RDWR|nonblock, 0)
			if err != nil {
				continue
			}
			err = lockFile(file)
			file.Close()
			if err == nil {
				continue // left behind by a process that died
			}
		}
		root.Remove(p.name())
		return ErrExists
	}
	return nil
}

// lockFile locks a log without waiting.
func lockFile(file *os.File) error {
	err := filelock.Try(file)
	if errors.Is(err, filelock.ErrHeld) {
		err = ErrLocked
	}
	return err
}

// errGone means that a file was removed since it was opened.
var errGone = errors.New("session: the file is gone")

// claim locks a file that was opened by name.
func claim(root *os.Root, p place, file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("session: %s is not a file", p.name())
	}
	if err := lockFile(file); err != nil {
		return err
	}
	if now, err := root.Stat(p.name()); err != nil || !os.SameFile(now, info) {
		return errGone
	}
	return nil
}

// open opens a session. The log continues in the session's present file, whatever project
// that is in.
func (f *Files) open(ctx context.Context, id string, meta Meta) (Log, *History, error) {
	meta.ID = id
	deadline, pause := time.Now().Add(max(f.LockWait, grace)), time.Millisecond
	for {
		log, h, err := f.tryOpen(ctx, id, meta)
		if err == nil {
			return log, h, nil
		}
		if !errors.Is(err, ErrLocked) || !time.Now().Before(deadline) {
			return nil, nil, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(pause):
			pause = min(2*pause, 10*time.Millisecond)
		}
	}
}

func (f *Files) tryOpen(ctx context.Context, id string, meta Meta) (*fileLog, *History, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	root, err := f.root(false)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = ErrNotFound
		}
		return nil, nil, err
	}
	defer root.Close()
	p, err := f.lookup(root, id, nil)
	if err != nil {
		return nil, nil, err
	}
	torn := false
	if p.old {
		if p, torn, err = f.takeOver(root, p, meta.Cwd); err != nil {
			return nil, nil, err
		}
	}
	if err := f.unpack(root, p.project, p.id); err != nil {
		return nil, nil, err
	}
	file, err := openLocked(root, p)
	if err != nil {
		return nil, nil, err
	}
	h, err := f.loadHistory(root, p, file)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	h.Meta.ID = id
	h.Torn = h.Torn || torn
	return f.newLog(p, file, meta), h, nil
}

// openLocked opens the file of a session for writing.
func openLocked(root *os.Root, p place) (*os.File, error) {
	file, err := root.OpenFile(p.name(), os.O_RDWR|os.O_APPEND|nonblock, 0)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = ErrNotFound
		}
		return nil, err
	}
	if err := claim(root, p, file); err != nil {
		file.Close()
		if errors.Is(err, errGone) {
			err = ErrNotFound
		}
		return nil, err
	}
	return file, nil
}

// load reads a locked file and removes what its last writer did not finish.
func load(file *os.File, path string) error {
	for {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		s, end, err := scanLog(file, info.Size())
		if err != nil {
			return fmt.Errorf("session: %w", err)
		}
		if _, err = repairEnd(s, file, path, info.Size(), end); !errors.Is(err, errGrew) {
			return err
		}
	}
}

// errGrew reports that somebody wrote to a file while it was read.
var errGrew = errors.New("session: the log has grown")

// appendLock keeps writers that do not have the lock of a log apart from the repair of its end: to that, a line that is
// being written looks like one that was never finished.
func appendLock(path string) (unlock func(), err error) {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	release, err := filelock.Acquire(ctx, root, filepath.Base(path)+".append")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("session: %w", err), root.Close())
	}
	return func() { release(); root.Close() }, nil
}

// repairEnd removes what the last writer of a file did not finish. The error is errGrew if the file is longer than it
// was when it was read.
func repairEnd(s *scan, file *os.File, path string, size, end int64) (torn bool, err error) {
	if end == size {
		if s.unended {
			if _, err := file.Write([]byte("\n")); err != nil {
				return false, fmt.Errorf("session: %w", err)
			}
		}
		return false, nil
	}
	unlock, err := appendLock(path)
	if err != nil {
		return false, err
	}
	defer unlock()
	info, err := file.Stat()
	if err != nil {
		return false, err
	}
	if info.Size() != size {
		return false, errGrew
	}
	if err := cut(file, path, end); err != nil {
		return false, fmt.Errorf("session: cutting a torn line: %w", err)
	}
	return true, nil
}

// first returns the newest session in some projects, or in all if in is nil, for which ok
// returns true and that is not a subagent's.
func (f *Files) first(ctx context.Context, in func(root *os.Root) []string, ok func(*digest) bool) (string, error) {
	id := ""
	err := f.inRoot(ctx, func(root *os.Root) error {
		var names []string
		if in != nil {
			names = in(root)
		}
		all, err := f.places(ctx, root, names)
		if err != nil {
			return err
		}
		for _, p := range all {
			if err := ctx.Err(); err != nil {
				return err
			}
			if d, err := f.digestPlace(root, p); err == nil && !d.sidechain && ok(d) {
				id = p.id
				return nil
			}
		}
		return nil
	})
	if err == nil && id == "" {
		err = ErrNotFound
	}
	return id, err
}

// projectsOf returns the project directories that may belong to a directory. For a long
// path only the beginning is compared, because other programs use another hash.
func projectsOf(root *os.Root, cwd string) []string {
	key := ProjectKey(cwd)
	if len(key) <= slugMax {
		return []string{key}
	}
	all, _ := projects(root)
	all = slices.DeleteFunc(all, func(name string) bool { return name == key || !strings.HasPrefix(name, key[:slugMax]+"-") })
	return append(all, key)
}

// places returns the sessions of some projects, or of all if in is nil, newest first and
// without duplicate ids.
func (f *Files) places(ctx context.Context, root *os.Root, in []string) ([]place, error) {
	every := in == nil
	if every {
		var err error
		if in, err = projects(root); err != nil {
			return nil, fmt.Errorf("session: %w", err)
		}
	}
	var all []place
	for _, project := range in {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		all = append(all, placesIn(root, project)...)
	}
	all = append(all, f.oldPlaces(root, in, every)...)
	slices.SortStableFunc(all, func(a, b place) int {
		if c := b.mtime.Compare(a.mtime); c != 0 {
			return c
		}
		return strings.Compare(a.id, b.id)
	})
	seen := make(map[string]bool, len(all))
	return slices.DeleteFunc(all, func(p place) bool {
		was := seen[p.id]
		seen[p.id] = true
		return was
	}), nil
}

// placesIn returns the sessions of a project.
func placesIn(root *os.Root, project string) []place {
	entries, _ := readDir(root, project)
	var all []place
	for _, e := range entries {
		id, packed, ok := packedID(e.Name())
		if !ok || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err != nil || info.Size() == 0 {
			continue
		}
		all = append(all, place{project: project, id: id, size: info.Size(), mtime: info.ModTime(), packed: packed})
	}
	return all
}
