// Package files provides file access for tools.
//
// Commands that run beside the tools can change any path below the roots at any time. So a
// path is resolved once: [Targets] follows its symbolic links, the policy decides about the
// resulting path, and [Open] descends that path from the top of the file system without
// following any link. If a link has appeared, the call fails with [ErrMoved]. From then on
// everything happens relative to the directory that is held open ([os.Root]). The roots
// themselves are resolved when they become roots; see [Pin].
//
// A path that the policy has not decided about must not lead out of the roots.
//
// Only regular files are opened: no pipes, no devices, nothing below /proc, /sys and /dev.
// Writes are atomic. Reads are recorded in the [tool.Env], so that a file which has changed
// since is not overwritten.
package files

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/parley-go/parley/engine/tool"
)

// MaxSize is the size of the largest file that is read into memory.
const MaxSize = 64 << 20

// Access returns the access of a tool to the one file or directory that its input names.
func Access[In any](env *tool.Env, input json.RawMessage, kind tool.Kind, path func(*In) string) ([]tool.Access, error) {
	in := new(In)
	if err := tool.Decode(input, in); err != nil {
		return nil, err
	}
	name := path(in)
	if strings.IndexByte(name, 0) >= 0 {
		return nil, tool.Misuse("%q is not a path: it contains a NUL character.", name)
	}
	return []tool.Access{{Kind: kind, Path: Abs(env, name)}}, nil
}

// Absolute implements [tool.PathTool] for an input with one member that is a path.
func Absolute(env *tool.Env, input json.RawMessage, member string, abs func(*tool.Env, string) string) (json.RawMessage, error) {
	var given map[string]json.RawMessage
	if err := tool.Decode(input, &given); err != nil {
		return nil, err
	}
	var path string
	if raw, ok := given[member]; !ok || json.Unmarshal(raw, &path) != nil {
		return input, nil // there is no such member
	}
	return tool.SetMember(input, member, abs(env, path))
}

// Named returns the file that a model names: [Abs], without white space around a relative
// path unless such a file exists. An absolute path is not changed, so that Named is
// idempotent.
func Named(env *tool.Env, path string) string {
	exact := Abs(env, path)
	if trimmed := strings.TrimSpace(path); trimmed != path && trimmed != "" && !filepath.IsAbs(path) {
		if _, err := os.Lstat(exact); err != nil {
			return Abs(env, trimmed)
		}
	}
	return exact
}

// Abs makes a path absolute: relative to the working directory, with ~ as the home
// directory. It does not access the disk.
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

// Resolve follows the symbolic links of an absolute path. Missing elements at its end are
// kept.
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

// pins are the resolved roots of a conversation. Each is resolved once: a program that
// replaces a root by a symbolic link must not move the conversation elsewhere.
type pins struct {
	mu   sync.Mutex
	real map[string]string
}

type pinsKey struct{}

// Pin resolves a root for the rest of the conversation, and returns the result. The first
// call for a root decides.
func Pin(env *tool.Env, root string) string {
	p := tool.Shared(env, pinsKey{}, func() *pins { return &pins{real: map[string]string{}} })
	p.mu.Lock()
	defer p.mu.Unlock()
	real, ok := p.real[root]
	if !ok {
		var err error
		if real, err = Resolve(root); err != nil {
			return ""
		}
		p.real[root] = real
	}
	return real
}

// RealRoots returns the roots of the conversation as resolved when they became roots.
func RealRoots(env *tool.Env) []string {
	var roots []string
	for _, root := range env.Roots {
		if real := Pin(env, root); real != "" {
			roots = append(roots, real)
		}
	}
	return roots
}

// CheckRoots returns an error if a root now resolves to another path than when it became
// one.
func CheckRoots(env *tool.Env) error {
	for _, root := range env.Roots {
		if real, err := Resolve(root); err == nil && real != Pin(env, root) {
			return fmt.Errorf("%s was replaced by a symbolic link to %s; nothing was done", root, real)
		}
	}
	return nil
}

// Targets resolves the paths that a call would touch, for the policy to decide and for the
// tool to open. It includes the roots as they were pinned.
func Targets(env *tool.Env, access []tool.Access) map[string]tool.Target {
	targets := map[string]tool.Target{}
	for _, a := range access {
		if a.Path == "" {
			continue
		}
		if _, ok := targets[a.Path]; ok {
			continue
		}
		t := tool.Target{}
		if real, err := Resolve(a.Path); err == nil {
			t.Path = real
			t.Info, _ = os.Lstat(real)
		}
		targets[a.Path] = t
	}
	p := tool.Shared(env, pinsKey{}, func() *pins { return &pins{real: map[string]string{}} })
	p.mu.Lock()
	defer p.mu.Unlock()
	for root, real := range p.real {
		info, _ := os.Lstat(real)
		targets[root] = tool.Target{Path: real, Info: info}
	}
	return targets
}

// inRoots reports whether a path is within one of the roots.
func inRoots(roots []string, path string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return Within(root, path) })
}

// A Place is the location of a file that may or may not exist: a directory that is held
// open, and a name in it. Use it from one goroutine and close it.
type Place struct {
	Path  string // as requested, absolute
	Given string // as the model wrote it, for results
	Real  string // resolved

	env     *tool.Env
	judged  *tool.Target // nil if the policy has not decided about it
	dir     *os.Root
	missing []string // missing directories between dir and the file
	base    string
}

// Open opens the place of an absolute path for a call. The file need not exist.
func Open(call *tool.Call, path string) (*Place, error) {
	real, judged, err := locate(call, path)
	if err != nil {
		return nil, err
	}
	p := &Place{Path: path, Given: cmp.Or(call.Given, path), Real: real, env: call.Env, judged: judged, base: filepath.Base(real)}
	if p.dir, p.missing, err = walk(filepath.Dir(real)); err != nil {
		return nil, explain(err, path)
	}
	return p, nil
}

// OpenReal opens the place of an absolute path without symbolic links. If there is one now,
// the error is [ErrMoved].
func OpenReal(path string) (*Place, error) {
	p := &Place{Path: path, Real: path, env: &tool.Env{}, base: filepath.Base(path)}
	var err error
	if p.dir, p.missing, err = walk(filepath.Dir(path)); err != nil {
		return nil, explain(err, path)
	}
	return p, nil
}

// Visit calls f with the place of each regular file below a directory, until f returns
// false. The path of the directory must not contain a symbolic link, and none is followed;
// directories whose names are in skip are left out. The place is valid during the call.
// Visit reports whether it visited everything.
func Visit(dir string, skip []string, f func(*Place) bool) bool {
	root, missing, err := walk(dir)
	if err != nil {
		return false
	}
	defer root.Close()
	if len(missing) > 0 {
		return false
	}
	stopped := false
	var visit func(root *os.Root, dir string) bool
	visit = func(root *os.Root, dir string) bool {
		here, err := root.Open(".")
		if err != nil {
			return false
		}
		defer here.Close()
		whole := true
		var below []string
		for {
			entries, err := here.ReadDir(256)
			for _, e := range entries {
				switch {
				case e.IsDir() && !slices.Contains(skip, e.Name()):
					below = append(below, e.Name())
				case e.Type().IsRegular():
					path := filepath.Join(dir, e.Name())
					if !f(&Place{Path: path, Real: path, env: &tool.Env{}, dir: root, base: e.Name()}) {
						stopped = true
						return false
					}
				}
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				whole = false
				break
			}
		}
		for _, name := range below {
			sub, err := step(root, name)
			if err != nil {
				whole = whole && errors.Is(err, fs.ErrNotExist)
				continue
			}
			whole = visit(sub, filepath.Join(dir, name)) && whole
			sub.Close()
			if stopped {
				return false
			}
		}
		return whole
	}
	return visit(root, dir)
}

// OpenDirectory opens a directory for a call, and returns its resolved path. The caller
// closes it.
func OpenDirectory(call *tool.Call, path string) (dir *os.Root, real string, err error) {
	if real, _, err = locate(call, path); err != nil {
		return nil, "", err
	}
	dir, missing, err := walk(real)
	if err == nil && len(missing) > 0 {
		dir.Close()
		err = fs.ErrNotExist
	}
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		return nil, "", &fs.PathError{Op: "open", Path: path, Err: syscall.ENOTDIR}
	case err != nil:
		return nil, "", explain(err, path)
	}
	return dir, real, nil
}

// locate resolves an absolute path, and returns the target that the policy decided about. It
// returns an error if that is another path, or is outside of the roots, or is not a file on
// disk.
func locate(call *tool.Call, path string) (real string, judged *tool.Target, err error) {
	if strings.IndexByte(path, 0) >= 0 {
		return "", nil, fmt.Errorf("%q is not a path: it contains a NUL character", path)
	}
	if real, err = Resolve(path); err != nil {
		return "", nil, explain(err, path)
	}
	if call.Resolved != nil {
		t, ok := call.Resolved[path]
		switch {
		case !ok:
			return "", nil, fmt.Errorf("there is no decision about %s; nothing was done", path)
		case t.Path != real:
			return "", nil, fmt.Errorf("%s leads to another place than a moment ago, when its use was allowed; nothing was done", path)
		}
		judged = &t
	} else if roots := RealRoots(call.Env); inRoots(append(slices.Clone(call.Env.Roots), roots...), path) && !inRoots(roots, real) {
		return "", nil, fmt.Errorf("%s is a symbolic link that leads out of the allowed directories, to %s; nothing was done. To use that file, name it by that path", path, real)
	}
	if virtual(real) {
		return "", nil, fmt.Errorf("%s is not a file on disk but a view of the system or a device, which file tools do not open", path)
	}
	return real, judged, nil
}

// virtual reports whether a path is below a system directory without real files.
func virtual(path string) bool {
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if Within(dir, path) && !Within("/dev/shm", path) {
			return true
		}
	}
	return false
}

// ErrMoved means that a path contains a symbolic link that it did not contain when the
// policy decided, or that a part of the path is being replaced.
var ErrMoved = errors.New("a part of the path is being replaced while it is opened; try again")

// step opens a directory inside another one. It must not be a symbolic link.
func step(root *os.Root, name string) (*os.Root, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil, ErrMoved
	}
	if !info.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(root.Name(), name), Err: syscall.ENOTDIR}
	}
	next, err := root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if now, err := next.Stat("."); err != nil || !os.SameFile(info, now) {
		next.Close()
		return nil, ErrMoved
	}
	return next, nil
}

// Close releases the place.
func (p *Place) Close() error { return p.dir.Close() }

// Stat returns the FileInfo without opening the file. A missing file is [fs.ErrNotExist];
// anything but a regular file is an error that names its type.
func (p *Place) Stat() (fs.FileInfo, error) {
	if len(p.missing) > 0 {
		return nil, &fs.PathError{Op: "open", Path: p.Path, Err: fs.ErrNotExist}
	}
	info, err := p.dir.Lstat(p.base)
	if err != nil {
		return nil, explain(err, p.Path)
	}
	if err := regular(info, p.Path); err != nil {
		return nil, err
	}
	// A rule may name a file with several hard links by another name. It must be the file
	// that the policy decided about.
	if p.judged != nil && links(info) > 1 && (p.judged.Info == nil || !os.SameFile(p.judged.Info, info)) {
		return nil, ErrMoved
	}
	return info, nil
}

// ErrDirectory is wrapped by the error about a directory where a file is expected.
var ErrDirectory = errors.New("EISDIR")

// errNotDirectory is wrapped by the error about a path below a file.
var errNotDirectory = errors.New("ENOTDIR")

// misplaced returns an error about a path where no file can be written as a [tool.UseError], and others unchanged.
func misplaced(err error) error {
	if errors.Is(err, ErrDirectory) || errors.Is(err, errNotDirectory) {
		return tool.Misuse("%v", err)
	}
	return err
}

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
		return ErrMoved
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
		err = ErrMoved
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, info, nil
}

// ReadAll reads the whole file, if it is not larger than limit, and does not record the
// read.
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
		// Read the file again if it was written meanwhile.
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

// A TooBigError means that a file is too large to be read into memory.
type TooBigError struct {
	Path        string
	Size, Limit int64
}

// Error returns the size of the file and the limit.
func (e *TooBigError) Error() string {
	return fmt.Sprintf("%s is too big for this: %s, at most %s", e.Path, Size(e.Size), Size(e.Limit))
}

// Size formats a number of bytes for people.
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

// explain describes errors of the system.
func explain(err error, path string) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("no permission to access %s: %w", path, fs.ErrPermission)
	case errors.Is(err, syscall.ELOOP) || strings.Contains(err.Error(), "too many links"):
		return fmt.Errorf("%s is a symbolic link that leads in a circle", path)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %s cannot exist: a part of the path is a file, not a directory", errNotDirectory, path)
	case errors.Is(err, syscall.ENAMETOOLONG):
		return errors.New("the path is too long for the file system")
	}
	return err
}
