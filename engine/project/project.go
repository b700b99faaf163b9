// Package project reads the files with which a user and a project instruct an agent: instructions
// (CLAUDE.md and rules), slash commands, skills, output styles and plugins.
//
// A checked-out project is untrusted until proven otherwise. It is read only if its setting source
// is enabled: only regular text files, within the limits below, and nothing outside of it that a
// symbolic link leads to. A file that was not read is a [Problem], and never skipped silently.
// Content that allows or runs something — allowed tools, shell commands — is marked as trusted or
// not; on its own it has no effect.
//
// The package reads the files that [Options] name, and runs nothing. It does not depend on the
// protocol or the model.
package project

import (
	"crypto/sha256"
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
	"unicode/utf8"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
)

// Sources of settings.
const (
	User    = "user"    // the user's own, in the config directory
	Project = "project" // files that are checked in
	Local   = "local"   // files in the project that are not checked in
	Plugin  = "plugin"  // files of a plugin
	Memory  = "memory"  // notes that the model keeps
)

// Limits of what is read.
const (
	maxFile    = 256 << 10 // bytes of one file
	maxTotal   = 8 << 20   // bytes of all files
	maxFiles   = 2000      // files
	maxEntries = 5000      // entries of one directory
	maxDepth   = 8         // levels below a directory that is searched
	maxImports = 5         // nested imports
	maxParents = 40        // directories above the working directory
)

// Options configure what is read.
type Options struct {
	// Cwd is the working directory. Files of the project are searched there and above, up to the
	// root of the repository.
	Cwd string
	// ConfigRoot is the directory of the project whose .claude has its commands, skills and styles; empty means Cwd.
	ConfigRoot string
	// ConfigDir is the user's config directory, such as ~/.claude; empty means none.
	ConfigDir string
	// Home is the value of ~ in imports of the user's files; empty means unknown.
	Home string
	// Sources are the sources to read: [User], [Project], [Local].
	Sources []string
	// MemoryDir is the directory of the model's notes about the project; empty means none.
	MemoryDir string
	// PluginDirs are the directories of the user's plugins.
	PluginDirs []string
	// PluginIDs are the ids of the installed ones among them, NAME@MARKETPLACE, by directory.
	PluginIDs map[string]string
	// NoServers are those among them whose MCP servers are ignored.
	NoServers []string
	// Trusted reports whether a file of the project may allow and run something. If nil, none may.
	// Files of the user and of the user's plugins always may.
	Trusted func(path string, content []byte) bool
	// Hidden reports whether a rule denies reading a file of the project, like that of [tool.Env].
	// It may be nil.
	Hidden func(path string, target *tool.Target) bool
	// Excluded are patterns of files of instructions that are not read, such as
	// "vendor/**/CLAUDE.md": absolute, or relative to Cwd and the directories above.
	Excluded []string
}

// A File is a file that was read.
type File struct {
	Path   string
	Kind   string // "instructions", "rule", "import", "command", "skill", "style", "plugin" or "memory"
	Source string // [User], [Project], [Local], [Plugin] or [Memory]
	Sum    [32]byte
	Size   int
	Text   string // set for instructions only
	From   string // the file that imports it
}

// A Problem is a file that was not read, with the reason.
type Problem struct {
	Path     string
	Reason   string
	Expected bool // by design: the file itself is fine
}

// A Context holds the files that were read. Its exported fields do not change. Its methods are safe
// for concurrent use.
type Context struct {
	Root         string // of the repository, or the working directory
	Instructions []*File
	Commands     []*Command // including skills
	Styles       []*Style
	Plugins      []*PluginInfo
	MemoryDir    string  // directory of the model's notes; may be empty
	Memory       string  // the index of the notes
	Files        []*File // all files that were read, in order
	Problems     []Problem

	opts        Options
	conditional []*conditionalRule

	mu   sync.Mutex
	told map[string]bool // instructions that were sent, by path
}

// Load reads the files that the options name. It does not fail: a file that cannot be read is a
// problem.
func Load(opts Options) *Context {
	c := &Context{opts: opts, Root: repositoryRoot(opts.Cwd), MemoryDir: opts.MemoryDir, told: map[string]bool{}}
	l := &loader{c: c}
	l.instructions()
	l.commands()
	l.styles()
	l.plugins()
	l.memory()
	for _, f := range c.Instructions {
		c.told[f.Path] = true
	}
	return c
}

// Has reports whether a source is enabled.
func (o *Options) Has(source string) bool { return slices.Contains(o.Sources, source) }

// repositoryRoot returns the directory at or above cwd that has a .git.
func repositoryRoot(cwd string) string {
	dir := cwd
	for range maxParents {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			break
		}
		dir = up
	}
	return cwd
}

// A loader reads files within the limits of one load.
type loader struct {
	c     *Context
	bytes int
	files int
	full  bool
}

func (l *loader) problem(path, format string, args ...any) {
	if len(l.c.Problems) < 200 {
		l.c.Problems = append(l.c.Problems, Problem{Path: path, Reason: fmt.Sprintf(format, args...)})
	}
}

// expected is like problem, for a file that is left out by design.
func (l *loader) expected(path, format string, args ...any) {
	n := len(l.c.Problems)
	if l.problem(path, format, args...); len(l.c.Problems) > n {
		l.c.Problems[n].Expected = true
	}
}

// A place is where files are read from. They must not lead out of bound, unless it is empty.
type place struct {
	source string
	bound  string
}

// trusted reports whether a file may allow and run something.
func (l *loader) trusted(p place, path string, content []byte) bool {
	if p.source == User || p.source == Plugin {
		return true
	}
	return l.c.opts.Trusted != nil && l.c.opts.Trusted(path, content)
}

// read reads a text file. It returns nil if there is none, or if it cannot be read, which it reports
// as a problem.
func (l *loader) read(p place, path, kind string) *File {
	if l.full {
		return nil
	}
	data, err := readFile(p, path, l.c.opts.Hidden)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		switch {
		case l.files >= maxFiles || l.bytes+len(data) > maxTotal:
			l.full = true
			l.problem(path, "there is more than is read: %d files or %s", maxFiles, files.Size(maxTotal))
			return nil
		case !utf8.Valid(data) || slices.Contains(data, 0):
			err = errors.New("it is not text")
		}
	}
	if err != nil {
		l.problem(path, "%v", err)
		return nil
	}
	l.files++
	l.bytes += len(data)
	f := &File{Path: path, Kind: kind, Source: p.source, Sum: sha256.Sum256(data), Size: len(data), Text: string(data)}
	l.c.Files = append(l.c.Files, f)
	return f
}

// call returns a call that can open a path of the place, and the path to open. A path of the project
// must not lead out of it; a path of the user may lead anywhere. A missing file, as most of them are,
// is an error at once.
func (p place) call(path string) (*tool.Call, string, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	if p.bound != "" {
		return &tool.Call{Env: &tool.Env{Roots: []string{p.bound}}}, path, nil
	}
	real, err := files.Resolve(path)
	return &tool.Call{Env: &tool.Env{}}, real, err
}

// readFile reads a regular file of limited size. It rejects a file of the project if a link leads
// out of the project, or if the file is hidden.
func readFile(p place, path string, hidden func(string, *tool.Target) bool) ([]byte, error) {
	call, path, err := p.call(path)
	if err != nil {
		return nil, err
	}
	at, err := files.Open(call, path)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	data, info, err := at.ReadAll(maxFile)
	if err == nil && p.bound != "" && hidden != nil && hidden(at.Real, &tool.Target{Path: at.Real, Info: info}) {
		return nil, errors.New("a rule denies reading it")
	}
	return data, err
}

// list returns the names in a directory, sorted; directories end in a slash.
func (l *loader) list(p place, dir string) []string {
	call, path, err := p.call(dir)
	if err != nil {
		return nil
	}
	root, real, err := files.OpenDirectory(call, path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		l.problem(dir, "%v", err)
		return nil
	}
	defer root.Close()
	f, err := root.Open(".")
	if err != nil {
		l.problem(dir, "%v", err)
		return nil
	}
	defer f.Close()
	var names []string
	for {
		entries, err := f.ReadDir(256)
		for _, e := range entries {
			name := e.Name()
			mode := e.Type()
			if mode&fs.ModeSymlink != 0 {
				if info, err := os.Stat(filepath.Join(real, name)); err == nil {
					mode = info.Mode().Type()
				}
			}
			if mode.IsDir() {
				name += "/"
			}
			names = append(names, name)
		}
		if len(names) > maxEntries {
			l.problem(dir, "it has more than %d entries, of which the rest is not looked at", maxEntries)
			names = names[:maxEntries]
			break
		}
		if err == io.EOF || err != nil {
			break
		}
	}
	slices.Sort(names)
	return names
}

// markdown calls f with each .md file below a directory, and with its path relative to it.
func (l *loader) markdown(p place, dir string, f func(path, rel string)) {
	var walk func(rel string, depth int)
	walk = func(rel string, depth int) {
		for _, name := range l.list(p, filepath.Join(dir, rel)) {
			if l.full {
				return
			}
			if sub, ok := strings.CutSuffix(name, "/"); ok {
				switch {
				case strings.HasPrefix(sub, "."), sub == "node_modules":
				case depth >= maxDepth:
					l.problem(filepath.Join(dir, rel, sub), "it is more than %d directories deep", maxDepth)
				default:
					walk(filepath.Join(rel, sub), depth+1)
				}
				continue
			}
			if strings.EqualFold(filepath.Ext(name), ".md") {
				f(filepath.Join(dir, rel, name), filepath.Join(rel, name))
			}
		}
	}
	walk("", 0)
}

// homes returns the directories that hold commands, skills and styles, in order of precedence: those
// of the project from the working directory, or [Options.ConfigRoot], upwards, then the user's.
func (l *loader) homes() []home {
	var all []home
	o := &l.c.opts
	if o.Has(Project) {
		cwd, root := o.Cwd, l.c.Root
		if o.ConfigRoot != "" {
			cwd, root = o.ConfigRoot, repositoryRoot(o.ConfigRoot)
		}
		for _, dir := range above(cwd, root) {
			all = append(all, home{place{Project, root}, filepath.Join(dir, ".claude")})
		}
	}
	if o.Has(User) && o.ConfigDir != "" {
		all = append(all, home{place{User, ""}, o.ConfigDir})
	}
	return all
}

type home struct {
	place
	dir string
}

// above returns the directories from a directory up to the root.
func above(dir, root string) []string {
	dirs := []string{dir}
	for dir != root && len(dirs) < maxParents {
		up := filepath.Dir(dir)
		if up == dir {
			break
		}
		dirs = append(dirs, up)
		dir = up
	}
	return dirs
}
