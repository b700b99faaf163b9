// Package files is how the tools touch files.
//
// A path is what the model says: relative to the working directory, with ~ for the
// home. [Open] finds where it leads and holds the directory that it is in by
// [os.Root], reached without following any symbolic link, so that what is read,
// written and renamed afterwards is what was looked at, whatever happens to the
// path meanwhile. A path inside the roots of the conversation does not lead out of
// them; one outside is opened because somebody decided that it may be.
//
// Only regular files are opened: no pipes, no devices, nothing below /proc, /sys
// and /dev. Writes are atomic. What was read is remembered in the [tool.Env], so
// that a file which changed since is not overwritten.
package files

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/parley-go/parley/engine/tool"
)

// MaxSize is the size of the biggest file that is taken into memory.
const MaxSize = 64 << 20

// Access is that of a tool to the one file or directory that its input names.
func Access[In any](env *tool.Env, input json.RawMessage, kind tool.Kind, path func(*In) string) ([]tool.Access, error) {
	in := new(In)
	if err := tool.Decode(input, in); err != nil {
		return nil, err
	}
	return []tool.Access{{Kind: kind, Path: Abs(env, path(in))}}, nil
}

// Abs makes a path absolute: relative to the working directory, ~ being the home.
// It does not look at the disk.
func Abs(env *tool.Env, path string) string {
	if env.Home != "" {
		if path == "~" {
			path = env.Home
		} else if rest, ok := strings.CutPrefix(path, "~/"); ok {
			path = filepath.Join(env.Home, rest)
		}
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(env.Cwd(), path)
	}
	return filepath.Clean(path)
}

// Resolve follows the symbolic links of an absolute path. What does not exist at
// its end stays as it is.
func Resolve(path string) (string, error) { return resolve(path, 40) }

func resolve(path string, links int) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return real, err
	}
	dir, base := filepath.Split(path)
	dir = filepath.Clean(dir)
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if links == 0 {
			return "", &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(path)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(dir, target)
		}
		return resolve(target, links-1)
	}
	if dir == path {
		return path, nil
	}
	if dir, err = resolve(dir, links); err != nil {
		return "", err
	}
	return filepath.Join(dir, base), nil
}

// Within reports whether a path is a directory or below it. Both are clean.
func Within(dir, path string) bool {
	if dir == path {
		return true
	}
	if !strings.HasSuffix(dir, string(filepath.Separator)) {
		dir += string(filepath.Separator)
	}
	return strings.HasPrefix(path, dir)
}

// RealRoots returns where the roots of the conversation lead.
func RealRoots(env *tool.Env) []string {
	var roots []string
	for _, root := range env.Roots {
		if real, err := filepath.EvalSymlinks(root); err == nil {
			roots = append(roots, real)
		}
	}
	return roots
}

// rootOf finds the innermost root that holds a path.
func rootOf(roots []string, path string) (root string, ok bool) {
	for _, r := range roots {
		if Within(r, path) && len(r) >= len(root) {
			root, ok = r, true
		}
	}
	return root, ok
}

// A Place is where a file is or will be: a directory that is held open, and a name
// in it. Use it from one goroutine and close it.
type Place struct {
	Path string // as it was asked for, absolute
	Real string // where that leads

	env     *tool.Env
	dir     *os.Root
	missing []string // directories between dir and the file that do not exist
	base    string
}

// Open finds the place of an absolute path for a call. The file need not exist.
func Open(call *tool.Call, path string) (*Place, error) {
	real, err := Resolve(path)
	if err != nil {
		return nil, explain(err, path)
	}
	if err := Allowed(call, path, real); err != nil {
		return nil, err
	}
	p := &Place{Path: path, Real: real, env: call.Env, base: filepath.Base(real)}
	if p.dir, p.missing, err = walk(RealRoots(call.Env), filepath.Dir(real)); err != nil {
		return nil, explain(err, path)
	}
	return p, nil
}

// Allowed returns an error if a call may not touch an absolute path that leads to a
// real one: because it leads elsewhere than when that was decided, or out of the
// roots, or to what is no file on disk.
func Allowed(call *tool.Call, path, real string) error {
	roots := RealRoots(call.Env)
	if decided, ok := call.Resolved[path]; ok {
		if decided != real {
			return fmt.Errorf("%s leads to another place than a moment ago, when its use was allowed; nothing was done", path)
		}
	} else if _, ok := rootOf(append(slices.Clone(call.Env.Roots), roots...), path); ok {
		if _, ok := rootOf(roots, real); !ok {
			return fmt.Errorf("%s is a symbolic link that leads out of the allowed directories, to %s; nothing was done. If that file is meant, name it by that path", path, real)
		}
	}
	if virtual(real) {
		return fmt.Errorf("%s is not a file on disk but a view of the system or a device, which file tools do not open", path)
	}
	return nil
}

// virtual reports whether a path is below a directory of the system that holds no
// files.
func virtual(path string) bool {
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if Within(dir, path) && !Within("/dev/shm", path) {
			return true
		}
	}
	return false
}

// errMoved says that a directory was replaced while its path was walked.
var errMoved = errors.New("a directory of the path is being replaced while it is opened; try again")

// walk opens a directory step by step and follows no symbolic link: the path is
// resolved, so there are none unless somebody puts one there now. It returns what
// does not exist of it.
func walk(roots []string, dir string) (_ *os.Root, missing []string, err error) {
	start, ok := rootOf(roots, dir)
	if !ok {
		start = filepath.VolumeName(dir) + string(filepath.Separator)
	}
	root, err := os.OpenRoot(start)
	if err != nil {
		return nil, nil, err
	}
	rel, err := filepath.Rel(start, dir)
	if err != nil {
		root.Close()
		return nil, nil, err
	}
	if rel == "." {
		return root, nil, nil
	}
	parts := strings.Split(rel, string(filepath.Separator))
	for i, part := range parts {
		info, err := root.Lstat(part)
		if errors.Is(err, fs.ErrNotExist) {
			return root, parts[i:], nil
		}
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			err = errMoved
		} else if err == nil && !info.IsDir() {
			err = &fs.PathError{Op: "open", Path: filepath.Join(start, filepath.Join(parts[:i+1]...)), Err: syscall.ENOTDIR}
		}
		var next *os.Root
		if err == nil {
			next, err = root.OpenRoot(part)
		}
		root.Close()
		if err != nil {
			return nil, nil, err
		}
		root = next
		if now, err := root.Stat("."); err != nil || !os.SameFile(info, now) {
			root.Close()
			return nil, nil, errMoved
		}
	}
	return root, nil, nil
}

// Close lets go of the place.
func (p *Place) Close() error { return p.dir.Close() }

// Stat looks at the file without opening it. A missing file is [fs.ErrNotExist],
// anything that is not a regular file an error that says what it is.
func (p *Place) Stat() (fs.FileInfo, error) {
	if len(p.missing) > 0 {
		return nil, &fs.PathError{Op: "open", Path: p.Path, Err: fs.ErrNotExist}
	}
	info, err := p.dir.Lstat(p.base)
	if err != nil {
		return nil, explain(err, p.Path)
	}
	return info, regular(info, p.Path)
}

// ErrDirectory is in the error about a directory where a file was wanted.
var ErrDirectory = errors.New("EISDIR")

// regular returns an error if it is not a regular file.
func regular(info fs.FileInfo, path string) error {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return fmt.Errorf("%w: %s is a directory, not a file; list it with Bash (ls) or find files in it with Glob", ErrDirectory, path)
	case mode&fs.ModeNamedPipe != 0:
		return fmt.Errorf("%s is a named pipe, which file tools do not open", path)
	case mode&fs.ModeSocket != 0:
		return fmt.Errorf("%s is a socket, which file tools do not open", path)
	case mode&fs.ModeDevice != 0:
		return fmt.Errorf("%s is a device, which file tools do not open", path)
	case mode&fs.ModeSymlink != 0:
		return errMoved
	}
	return fmt.Errorf("%s is not a regular file", path)
}

// Read opens the file for reading. It is a regular file, opened without blocking.
func (p *Place) Read() (*os.File, fs.FileInfo, error) {
	before, err := p.Stat()
	if err != nil {
		return nil, nil, err
	}
	f, err := p.dir.OpenFile(p.base, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, nil, explain(err, p.Path)
	}
	info, err := f.Stat()
	if err == nil {
		err = regular(info, p.Path)
	}
	if err == nil && !os.SameFile(before, info) {
		err = errMoved
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// ReadAll reads the whole file, if it is not bigger than limit, and remembers
// nothing.
func (p *Place) ReadAll(limit int64) ([]byte, fs.FileInfo, error) {
	for range 3 {
		f, info, err := p.Read()
		if err != nil {
			return nil, nil, err
		}
		if info.Size() > limit {
			f.Close()
			return nil, nil, &TooBigError{Path: p.Path, Size: info.Size(), Limit: limit}
		}
		data := make([]byte, 0, info.Size()+1)
		data, err = appendAll(data, io.LimitReader(f, limit+1))
		after, statErr := f.Stat()
		f.Close()
		if err = errors.Join(err, statErr); err != nil {
			return nil, nil, explain(err, p.Path)
		}
		if int64(len(data)) > limit {
			return nil, nil, &TooBigError{Path: p.Path, Size: int64(len(data)), Limit: limit}
		}
		// A file that was written meanwhile is read again.
		if StampOf(info) == StampOf(after) && int64(len(data)) == after.Size() {
			return data, after, nil
		}
	}
	return nil, nil, fmt.Errorf("%s is being written while it is read; try again when that has ended", p.Path)
}

func appendAll(data []byte, r io.Reader) ([]byte, error) {
	for {
		if len(data) == cap(data) {
			data = append(data, 0)[:len(data)]
		}
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return data, err
		}
	}
}

// A TooBigError says that a file is too big to be taken into memory.
type TooBigError struct {
	Path        string
	Size, Limit int64
}

// Error says how big the file is and what the limit is.
func (e *TooBigError) Error() string {
	return fmt.Sprintf("%s is too big for this: %s, at most %s", e.Path, Size(e.Size), Size(e.Limit))
}

// Size writes a number of bytes as people do.
func Size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d bytes", n)
	}
	f, i := float64(n)/1024, 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") + units[i:i+1] + "B"
}

// explain puts errors of the system into words.
func explain(err error, path string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no permission to access %s: %w", path, fs.ErrPermission)
	case errors.Is(err, syscall.ELOOP) || strings.Contains(err.Error(), "too many links"):
		return fmt.Errorf("%s is a symbolic link that leads in a circle", path)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s cannot exist: a part of the path is a file, not a directory", path)
	case errors.Is(err, syscall.ENAMETOOLONG):
		return errors.New("the path is too long for the file system")
	}
	return err
}
