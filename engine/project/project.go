// Package project reads what a user and a project say to an agent: instructions
// (CLAUDE.md and rules), slash commands, skills, output styles and plugins.
//
// A checked-out project is hostile until proven otherwise. Of one nothing is read
// that its setting source was not asked for, nothing but regular files of text, no
// more of them than the limits below, and nothing that a symbolic link leads to
// outside of it. A file that was not read is a [Problem], never a silence. Content that
// grants or runs something — allowed tools, shell commands — is marked with whether it
// is trusted; by itself it has no effect.
//
// The package reads what [Options] name, and runs nothing. It knows neither the
// protocol nor the model.
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

// The sources of settings.
const (
	User    = "user"    // the user's own, in the config directory
	Project = "project" // what is checked in
	Local   = "local"   // what is in the project and not checked in
	Plugin  = "plugin"  // of a plugin that was named
	Memory  = "memory"  // notes that the model keeps
)

// The limits of what is read.
const (
	maxFile    = 256 << 10 // bytes of one file
	maxTotal   = 8 << 20   // bytes of all files
	maxFiles   = 2000      // files
	maxEntries = 5000      // entries of one directory
	maxDepth   = 8         // directories below one that is searched
	maxImports = 5         // imports of imports
	maxParents = 40        // directories above the one that is worked in
)

// Options say what is read.
type Options struct {
	// Cwd is where the work is. Files of the project are looked for there and
	// above, up to the root of the repository.
	Cwd string
	// ConfigDir is the user's, such as ~/.claude; empty means none.
	ConfigDir string
	// Home is what ~ means in imports of the user's files; empty means nothing.
	Home string
	// Sources are those that are read: [User], [Project], [Local].
	Sources []string
	// MemoryDir is where the model keeps notes about the project; empty means nowhere.
	MemoryDir string
	// PluginDirs are plugins that the user named.
	PluginDirs []string
	// PluginIDs are the ids of those among them that were installed, NAME@MARKETPLACE, by directory.
	PluginIDs map[string]string
	// NoServers are those among them whose MCP servers are left alone.
	NoServers []string
	// Trusted reports whether a file of the project may grant and run something.
	// Nil means that none may. Files of the user and of plugins that were named
	// may.
	Trusted func(path string, content []byte) bool
	// Hidden reports whether a rule denies that a file of the project is read, as
	// that of [tool.Env] does. It may be nil.
	Hidden func(path string, target *tool.Target) bool
	// Excluded are patterns of files of instructions that are not read, such as
	// "vendor/**/CLAUDE.md": absolute, or as seen from Cwd and the directories above.
	Excluded []string
}

// A File is one that was read.
type File struct {
	Path   string
	Kind   string // "instructions", "rule", "import", "command", "skill", "style", "plugin" or "memory"
	Source string // [User], [Project], [Local], [Plugin] or [Memory]
	Sum    [32]byte
	Size   int
	Text   string // of instructions; empty for others
	From   string // the file that imports it
}

// A Problem is something that was not read, and why.
type Problem struct {
	Path     string
	Reason   string
	Expected bool // by design: nothing is wrong with the file
}

// A Context is what was read. Its exported fields do not change. Its methods are
// safe for concurrent use.
type Context struct {
	Root         string // of the repository, or where the work is
	Instructions []*File
	Commands     []*Command // skills among them
	Styles       []*Style
	Plugins      []*PluginInfo
	MemoryDir    string  // where the model keeps notes; may be empty
	Memory       string  // the index of the notes
	Files        []*File // all that were read, in order
	Problems     []Problem

	opts        Options
	conditional []*conditionalRule

	mu   sync.Mutex
	told map[string]bool // instructions that were sent, by path
}

// Load reads what the options name. It does not fail: what cannot be read is a
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

// Has reports whether a source is read.
func (o *Options) Has(source string) bool { return slices.Contains(o.Sources, source) }

// repositoryRoot finds the directory above that has a .git.
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

// A loader reads with the limits of one load.
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

// A place is where files are read: from bound they may not lead out, unless it is
// empty.
type place struct {
	source string
	bound  string
}

// trusted reports whether a file may grant something.
func (l *loader) trusted(p place, path string, content []byte) bool {
	if p.source == User || p.source == Plugin {
		return true
	}
	return l.c.opts.Trusted != nil && l.c.opts.Trusted(path, content)
}

// read reads a file of text. It returns nil if there is none, and if it cannot be
// read, which is a problem then.
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

// call returns what opens a path of the place, and the path to open: one of the project
// does not lead out of it, one of the user leads anywhere.
func (p place) call(path string) (*tool.Call, string, error) {
	if p.bound != "" {
		return &tool.Call{Env: &tool.Env{Roots: []string{p.bound}}}, path, nil
	}
	real, err := files.Resolve(path)
	return &tool.Call{Env: &tool.Env{}}, real, err
}

// readFile reads a regular file that is not big. A file of the project that a link
// leads out of it to is refused, and so is one that is hidden.
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
		return nil, errors.New("a rule denies that it is read")
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

// markdown calls f with each .md file below a directory, by its path relative to
// it.
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

// homes returns the directories that hold commands, skills and styles, those that
// count more first: of the project from where the work is upwards, then the user's.
func (l *loader) homes() []home {
	var all []home
	o := &l.c.opts
	if o.Has(Project) {
		for _, dir := range l.c.above() {
			all = append(all, home{place{Project, l.c.Root}, filepath.Join(dir, ".claude")})
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

// above returns the directories from where the work is up to the root.
func (c *Context) above() []string {
	dirs := []string{c.opts.Cwd}
	for dir := c.opts.Cwd; dir != c.Root && len(dirs) < maxParents; {
		up := filepath.Dir(dir)
		if up == dir {
			break
		}
		dirs = append(dirs, up)
		dir = up
	}
	return dirs
}
