package search

import (
	"context"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
)

// A Filter selects which files a walk visits.
type Filter struct {
	// Globs select files by their paths below the directory; one without a slash
	// matches the base name. Those that start with ! exclude files and directories. If
	// there are others, a file must match one of them.
	Globs []string
	// Types are globs of base names. If there are any, one must match.
	Types []string
	// Hidden reports whether a file or directory must not be visible, like that of
	// [tool.Env]. It may be nil.
	Hidden func(path string, target *tool.Target) bool
	// All includes files that ignore files exclude.
	All bool
}

// A File is a file that a walk visits.
type File struct {
	Path string // below the directory of the walk, with slashes
	dir  *directory
	name string
	walk *walk
}

// hidden reports whether the opened file must not be visible. It may have other hard
// links than when it was listed.
func (f *File) hidden(info fs.FileInfo) bool {
	if f.walk == nil || f.walk.filter.Hidden == nil {
		return false
	}
	path := filepath.Join(f.walk.root, filepath.FromSlash(f.Path))
	return f.walk.filter.Hidden(path, &tool.Target{Path: path, Info: info})
}

// versionControl are directories that are never visited.
var versionControl = []string{".git", ".svn", ".hg", ".bzr", ".jj", ".sl"}

// SplitGlobs splits a list of globs at commas and white space outside of braces.
func SplitGlobs(s string) []string {
	depth := 0
	return strings.FieldsFunc(s, func(r rune) bool {
		switch r {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case ',', ' ', '\t', '\n':
			return depth <= 0
		}
		return false
	})
}

// CheckGlob returns an error if a glob is invalid.
func CheckGlob(glob string) error {
	if !doublestar.ValidatePattern(strings.TrimPrefix(glob, "!")) {
		return doublestar.ErrBadPattern
	}
	return nil
}

// matchGlob matches a path below the directory of a walk.
func matchGlob(glob, name string) bool {
	glob, anchored := strings.CutPrefix(glob, "/")
	glob = strings.TrimPrefix(glob, "./")
	if !anchored && !strings.Contains(glob, "/") {
		return doublestar.MatchUnvalidated(glob, path.Base(name))
	}
	return doublestar.MatchUnvalidated(glob, name)
}

// matches reports whether the globs select a file or directory.
func (f *Filter) matches(name string, dir bool) bool {
	chosen, choice := false, false
	for _, glob := range f.Globs {
		if not, ok := strings.CutPrefix(glob, "!"); ok {
			if matchGlob(not, name) || dir && matchGlob(strings.TrimSuffix(strings.TrimSuffix(not, "/**"), "/"), name) {
				return false
			}
		} else if !dir {
			choice = true
			chosen = chosen || matchGlob(glob, name)
		}
	}
	if dir || choice && !chosen {
		return dir
	}
	if len(f.Types) == 0 {
		return true
	}
	base := path.Base(name)
	return slices.ContainsFunc(f.Types, func(glob string) bool { return doublestar.MatchUnvalidated(glob, base) })
}

// A layer holds the ignore files of one directory.
type layer struct {
	up     *layer
	base   string // path of the directory below that of the walk; see below
	prefix string // prefix for paths of the walk, for directories above it
	git    rules
	other  rules // .ignore and .rgignore
	inGit  bool  // git's rules apply here
	top    bool  // a repository starts here
}

// ignored reports whether the ignore files exclude a path of the walk.
func (l *layer) ignored(name string, dir bool) bool {
	for at := l; at != nil; at = at.up {
		if len(at.other) > 0 {
			if ignored, decided := at.other.match(at.relative(name), dir); decided {
				return ignored
			}
		}
	}
	if !l.inGit {
		return false
	}
	for at := l; at != nil; at = at.up {
		if len(at.git) > 0 {
			if ignored, decided := at.git.match(at.relative(name), dir); decided {
				return ignored
			}
		}
		if at.top {
			break
		}
	}
	return false
}

// relative makes a path of the walk relative to the layer's directory.
func (l *layer) relative(name string) string {
	if l.base == "" {
		return l.prefix + name
	}
	return name[len(l.base)+1:]
}

// A walk is a walk in progress.
type walk struct {
	filter *Filter
	root   string // absolute
	visit  func(worker int, file *File)

	mu      sync.Mutex
	wake    *sync.Cond
	stack   []job
	working int
	stopped atomic.Bool
}

// A job is a directory to open or a list of files to visit.
type job struct {
	dir   *directory // directory that contains the name or the files
	name  string
	path  string
	layer *layer
	files []string // their paths
}

// batch is the number of files of a directory in one job.
const batch = 64

// Walk visits the files below a directory, whose absolute path without symbolic links
// is root, in the given number of goroutines. visit is called concurrently; its first
// argument is the number of the goroutine. The file is valid until it returns.
func Walk(ctx context.Context, dir *os.Root, root string, filter *Filter, workers int, visit func(worker int, file *File)) error {
	top, err := openDirectory(dir)
	if err != nil {
		return err
	}
	w := &walk{filter: filter, root: root, visit: visit}
	w.wake = sync.NewCond(&w.mu)
	stop := context.AfterFunc(ctx, func() {
		w.stopped.Store(true)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wake.Broadcast()
	})
	defer stop()
	var above *layer
	if !filter.All {
		above = layersAbove(root)
	}
	w.enter(top, "", above)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() { w.work(i) })
	}
	wg.Wait()
	for _, j := range w.stack {
		j.dir.release()
	}
	return ctx.Err()
}

// Workers returns a good number of goroutines for a walk.
func Workers() int { return min(max(2, runtime.GOMAXPROCS(0)), 12) }

func (w *walk) push(jobs ...job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stack = append(w.stack, jobs...)
	w.wake.Broadcast()
}

// work does jobs until there are none.
func (w *walk) work(worker int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.stack) == 0 && w.working > 0 && !w.stopped.Load() {
			w.wake.Wait()
		}
		if len(w.stack) == 0 || w.stopped.Load() {
			w.wake.Broadcast()
			return
		}
		j := w.stack[len(w.stack)-1]
		w.stack = w.stack[:len(w.stack)-1]
		w.working++
		w.mu.Unlock()
		if j.files != nil {
			f := &File{dir: j.dir, walk: w}
			for _, name := range j.files {
				if w.stopped.Load() {
					break
				}
				f.Path, f.name = name, name[strings.LastIndexByte(name, '/')+1:]
				w.visit(worker, f)
			}
		} else if dir, err := j.dir.openDirectory(j.name); err == nil {
			w.enter(dir, j.path, j.layer)
		}
		j.dir.release()
		w.mu.Lock()
		w.working--
	}
}

// enter reads and releases a directory, and queues the jobs in it.
func (w *walk) enter(dir *directory, at string, above *layer) {
	defer dir.release()
	entries, _ := dir.list()
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(b.Name(), a.Name()) })
	l := above
	if !w.filter.All {
		l = dir.layer(entries, at, above)
	}
	var files []string
	var jobs []job
	for _, e := range entries {
		name := e.Name()
		if at != "" {
			name = at + "/" + name
		}
		isDir := e.IsDir()
		if !isDir && !e.Type().IsRegular() {
			continue
		}
		if isDir && slices.Contains(versionControl, e.Name()) {
			continue
		}
		if !w.filter.matches(name, isDir) || l != nil && l.ignored(name, isDir) {
			continue
		}
		if w.filter.Hidden != nil {
			full := filepath.Join(w.root, filepath.FromSlash(name))
			if w.filter.Hidden(full, &tool.Target{Path: full}) {
				continue
			}
		}
		if isDir {
			dir.hold()
			jobs = append(jobs, job{dir: dir, name: e.Name(), path: name, layer: l})
			continue
		}
		files = append(files, name)
	}
	for chunk := range slices.Chunk(files, batch) {
		dir.hold()
		jobs = append(jobs, job{dir: dir, files: chunk})
	}
	w.push(jobs...)
}

// layer adds the ignore files of a directory to those above it.
func (d *directory) layer(entries []fs.DirEntry, at string, above *layer) *layer {
	l := &layer{up: above, base: at, inGit: above != nil && above.inGit}
	found := false
	var ignore, rgignore rules
	for _, e := range entries {
		switch e.Name() {
		case ".git":
			l.inGit, l.top, found = true, true, true
		case ".gitignore":
			l.git, found = append(l.git, d.rules(".gitignore")...), true
		case ".ignore":
			ignore, found = d.rules(".ignore"), true
		case ".rgignore":
			rgignore, found = d.rules(".rgignore"), true
		}
	}
	if !found {
		return above
	}
	if l.top {
		l.git = append(d.rules(".git/info/exclude"), l.git...)
	}
	l.other = append(ignore, rgignore...)
	return l
}

// layersAbove reads the ignore files of the directories above one, up to the top of the
// repository. It returns nil if there are none.
func layersAbove(root string) *layer {
	var dirs []string // from the root upwards
	top := -1
	for dir := filepath.Dir(root); ; dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			top = len(dirs) - 1
			break
		}
		if filepath.Dir(dir) == dir {
			break
		}
	}
	var l *layer
	for i := len(dirs) - 1; i >= 0; i-- {
		rel, err := filepath.Rel(dirs[i], root)
		if err != nil {
			continue
		}
		read := func(name string) rules { return rulesOf(filepath.Join(dirs[i], name)) }
		next := &layer{up: l, prefix: filepath.ToSlash(rel) + "/", inGit: top >= 0, top: i == top, other: append(read(".ignore"), read(".rgignore")...)}
		if top >= 0 {
			next.git = read(".gitignore")
			if next.top {
				next.git = append(read(".git/info/exclude"), next.git...)
			}
		}
		if len(next.git)+len(next.other) > 0 || next.top {
			l = next
		}
	}
	return l
}

// maxIgnore is the size of the largest ignore file that is read.
const maxIgnore = 1 << 20

func rulesOf(name string) rules {
	at, err := files.Open(&tool.Call{Env: &tool.Env{}}, name)
	if err != nil {
		return nil
	}
	defer at.Close()
	data, _, err := at.ReadAll(maxIgnore)
	if err != nil {
		return nil
	}
	return parseRules(string(data))
}

func (d *directory) rules(name string) rules {
	data, err := d.readSmall(name)
	if err != nil {
		return nil
	}
	return parseRules(data)
}
