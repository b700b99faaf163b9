// Package settings reads the settings of a conversation: files of the machine's
// administrator, of the user and of the project, and what the command line gives.
// It says what counts, where each value is written, and what of it is inert.
//
// # Layers
//
// From the lowest to the highest: the user's settings.json in the config directory,
// the project's .claude/settings.json, its .claude/settings.local.json, --settings,
// and what is managed. Objects are merged member by member, lists are joined, and
// of anything else the highest layer counts.
//
// # Trust
//
// A project is written by somebody else. Its deny rules apply at once; content that
// starts, allows or sends something has no effect until a person has trusted it:
// see [Item] and [Store]. Some things are never taken from a project.
//
// # What is wrong is said
//
// A file that cannot be read as settings is an error with its file, line and what to
// do, and never skipped: it may hold a restriction.
//
// The package reads files that its options name, writes the record of trust and what
// a person wants kept ([Settings.Keep]), and nothing else. It does not know what settings are for: who uses a value judges it.
package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/parley-go/parley/internal/regular"
)

// A Layer is where settings are from.
type Layer string

// The layers, the lowest first.
const (
	User    Layer = "user"    // settings.json of the config directory
	Project Layer = "project" // .claude/settings.json, and .mcp.json
	Local   Layer = "local"   // .claude/settings.local.json
	Flag    Layer = "flag"    // --settings
	Managed Layer = "managed" // of the machine's administrator, and --managed-settings
)

// ofProject reports whether a layer is part of what somebody may have checked out.
func (l Layer) ofProject() bool { return l == Project || l == Local }

// Sources says which layers of files are read. Managed settings always are.
type Sources struct{ User, Project, Local bool }

// ParseSources returns the sources of a list of names, as --setting-sources has it.
// Nil means all of them, an empty list none.
func ParseSources(names []string) (Sources, error) {
	if names == nil {
		return Sources{true, true, true}, nil
	}
	var s Sources
	for _, n := range names {
		switch Layer(n) {
		case User:
			s.User = true
		case Project:
			s.Project = true
		case Local:
			s.Local = true
		default:
			return s, fmt.Errorf("there is no source of settings %q: use user, project and local", n)
		}
	}
	return s, nil
}

// Has reports whether a layer is read.
func (s Sources) Has(l Layer) bool {
	switch l {
	case User:
		return s.User
	case Project:
		return s.Project
	case Local:
		return s.Local
	}
	return true
}

// Options say what is read. The zero value reads nothing.
type Options struct {
	// Dir is the project: where the conversation works.
	Dir string
	// UserDir is the config directory of the user; empty means none.
	UserDir string
	// ManagedFile is what the machine's administrator wrote; files of the directory
	// beside it, named like it with ".d" for ".json", are read as well. Empty means
	// none.
	ManagedFile string
	Sources     Sources

	Flag     string // of --settings: a file or JSON
	Restrict string // of --managed-settings: a file or JSON, of which only what restricts counts

	// Trust is where it is recorded what a person trusts. Nil means nowhere.
	Trust *Store
	// TrustProject is what whoever starts the conversation says about the project:
	// "all", or the digest of what it brings (see [Settings.Digest]). Empty leaves it
	// to the record.
	TrustProject string
}

// An Origin is where a value is written.
type Origin struct {
	Layer Layer
	File  string // a path, or the name of a flag
	Line  int
}

// String returns the file and the line.
func (o Origin) String() string {
	if o.Line == 0 {
		return o.File
	}
	return fmt.Sprintf("%s:%d", o.File, o.Line)
}

// Base returns the directory that "/x" in a rule about files begins at: the project
// for its settings, the directory of the file for others; empty for a flag.
func (o Origin) Base() string {
	switch {
	case o.Layer.ofProject() && filepath.Base(filepath.Dir(o.File)) == ".claude":
		return filepath.Dir(filepath.Dir(o.File))
	case filepath.IsAbs(o.File):
		return filepath.Dir(o.File)
	}
	return ""
}

// An Error says what is wrong with settings, where, and what to do.
type Error struct {
	Origin
	Text string // what is wrong
	Hint string // what to do
}

// Error returns all of it.
func (e *Error) Error() string { return e.Origin.String() + ": " + e.Text + ". " + e.Hint }

// Settings are what was read. They do not change; it is safe to use them from
// several goroutines.
type Settings struct {
	opts    Options
	layers  []*layer // the lowest first
	servers *layer   // .mcp.json; nil if there is none
	merged  *Value
	trust   *trust
	items   []*Item // of the project, those that count and those that do not
	unknown []Origin
	names   []string // of the unknown keys
	places  []File   // where they are from, as it looked before it was read

	sure      map[string]bool // hashes that are trusted besides the record
	sureFiles bool            // files such as skills are all trusted

	before *Settings // while it is read again: what was read before
	keep   []string  // and the files that are taken as they were
}

// A layer is one file, or one flag.
type layer struct {
	Origin
	all      *Value // as it is written
	active   *Value // what of it counts
	restrict bool   // only what restricts counts
}

func (l *layer) at(v *Value) Origin { return Origin{l.Layer, l.File, v.Line} }

func (l *layer) wrong(v *Value, hint, format string, args ...any) error {
	return &Error{l.at(v), fmt.Sprintf(format, args...), hint}
}

// Load reads settings. Its error is an [*Error], or several of them joined.
func Load(opts Options) (*Settings, error) {
	s := &Settings{opts: opts}
	if errs := s.load(); errs != nil {
		return nil, errors.Join(errs...)
	}
	return s, s.sift()
}

// load reads the layers. When they are read again, one that is malformed is as it was.
func (s *Settings) load() (errs []error) {
	opts := s.opts
	s.places = places(opts) // what changes while it is read has changed
	put := func(path string, l *layer, err error) {
		if s.before != nil && slices.Contains(s.keep, path) {
			l, err = s.was(path), nil
		} else if err == nil && l != nil {
			err = s.check(l)
		}
		if err != nil {
			errs = append(errs, err)
			if l = nil; s.before != nil {
				l = s.was(path)
			}
		}
		if l != nil {
			s.layers = append(s.layers, l)
		}
	}
	read := func(name Layer, path string) {
		l, err := readFile(name, path)
		put(path, l, err)
	}
	user := ""
	if opts.UserDir != "" {
		user = filepath.Join(opts.UserDir, "settings.json")
		if opts.Sources.User {
			read(User, user)
		}
	}
	if opts.Dir != "" {
		if path := filepath.Join(opts.Dir, ".claude", "settings.json"); opts.Sources.Project && !sameFile(path, user) {
			read(Project, path)
		}
		if opts.Sources.Local {
			read(Local, filepath.Join(opts.Dir, ".claude", "settings.local.json"))
		}
	}
	given := func(text, name string, in Layer) {
		path, ok := flagFile(text, opts.Dir)
		if !ok {
			path = name
		}
		l, err := readFlag(text, name, in, opts.Dir)
		if l != nil {
			l.restrict = in == Managed
		}
		put(path, l, err)
	}
	given(opts.Flag, "--settings", Flag)
	given(opts.Restrict, "--managed-settings", Managed)
	for _, path := range managedFiles(opts.ManagedFile) {
		if err := onlyRoot(path); err != nil {
			put(path, nil, err)
			continue
		}
		read(Managed, path)
	}
	if opts.Dir != "" && opts.Sources.Project {
		// It holds no rules: something that is no file is as good as none.
		var l *layer
		var err error
		path := filepath.Join(opts.Dir, ".mcp.json")
		if info, e := os.Stat(path); e != nil || info.Mode().IsRegular() {
			l, err = readFile(Project, path)
		}
		if err == nil && l != nil {
			err = checkServers(l)
		}
		if err != nil {
			errs = append(errs, err)
			if l = nil; s.before != nil && s.before.servers != nil {
				same := *s.before.servers
				l = &same
			}
		}
		s.servers = l
	}
	return errs
}

// sameFile reports whether two paths lead to one file: who works in his home has the
// user's settings there, not a project's.
func sameFile(a, b string) bool {
	if b == "" {
		return false
	}
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// managedFiles returns the files of the administrator, the lowest first.
func managedFiles(path string) []string {
	if path == "" {
		return nil
	}
	files := []string{path}
	more, _ := filepath.Glob(filepath.Join(strings.TrimSuffix(path, ".json")+".d", "*.json"))
	sort.Strings(more)
	for _, f := range more {
		if !strings.HasPrefix(filepath.Base(f), ".") {
			files = append(files, f)
		}
	}
	return files
}

// readFile reads a file of settings. It returns nil if there is none.
func readFile(name Layer, path string) (*layer, error) {
	l := &layer{Origin: Origin{Layer: name, File: path}}
	text, err := readAll(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoDir) {
		return nil, nil
	}
	if err != nil {
		return nil, &Error{l.Origin, fmt.Sprintf("the settings cannot be read: %v", err), "Make the file readable, or leave the source out with --setting-sources."}
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return nil, nil
	}
	var line int
	if l.all, line, err = parse(text); err != nil {
		l.Line = line
		return nil, &Error{l.Origin, "the settings are not valid JSON: " + err.Error(), "Fix the file; it is not skipped, because it may forbid something."}
	}
	return l, nil
}

var errNoDir = errors.New("not a directory")

// readAll reads a regular file of a reasonable size.
func readAll(path string) ([]byte, error) {
	text, err := regular.Read(path, maxFile)
	if err != nil {
		if below, e := os.Stat(filepath.Dir(path)); e == nil && !below.IsDir() {
			return nil, errNoDir
		}
	}
	return text, err
}

// readFlag reads settings that a flag gives: JSON, or a file that must be there.
func readFlag(given, name string, in Layer, dir string) (*layer, error) {
	if given == "" {
		return nil, nil
	}
	l := &layer{Origin: Origin{Layer: in, File: name}}
	text := []byte(given)
	if path, ok := flagFile(given, dir); ok {
		l.File = path
		var err error
		if text, err = readAll(path); err != nil {
			return nil, fmt.Errorf("Settings file not found: %s", given)
		}
	}
	var line int
	var err error
	if l.all, line, err = parse(text); err != nil {
		l.Line = line
		return nil, fmt.Errorf("Invalid JSON provided to %s: %w", name, &Error{l.Origin, err.Error(), "Fix it, or leave the flag out."})
	}
	return l, nil
}

// Sources returns which layers of files are read.
func (s *Settings) Sources() Sources { return s.opts.Sources }

// Files returns the files and flags that were read, the lowest layer first.
func (s *Settings) Files() []Origin {
	var all []Origin
	for _, l := range s.layers {
		all = append(all, l.Origin)
	}
	if s.servers != nil {
		all = append(all, s.servers.Origin)
	}
	return all
}

// Layer returns what the highest file or flag of a layer says, as it is written; nil
// if there is none.
func (s *Settings) Layer(name Layer) json.RawMessage {
	if s != nil {
		for _, l := range slices.Backward(s.layers) {
			if l.Layer == name {
				return l.all.Raw()
			}
		}
	}
	return nil
}

// Unknown returns the keys that this package does not know, with their places. They
// are kept, and may mean something to others.
func (s *Settings) Unknown() (names []string, at []Origin) { return s.names, s.unknown }

// Ignored returns the unknown keys of settings that have an effect in the official CLI, with their places.
func Ignored(s *Settings) (names []string, at []Origin) {
	official := strings.Fields(ignored)
	for i, name := range s.names {
		if slices.Contains(official, name) && !slices.Contains(names, name) {
			names, at = append(names, name), append(at, s.unknown[i])
		}
	}
	return names, at
}

// Effective returns what counts, merged, without what is inert.
func (s *Settings) Effective() json.RawMessage {
	if s == nil || s.merged == nil {
		return json.RawMessage("{}")
	}
	return s.merged.Raw()
}

// Get returns what counts for a key, such as "sandbox" or "permissions",
// "defaultMode"; nil if nothing does. With it comes the highest layer that says so.
func (s *Settings) Get(names ...string) (json.RawMessage, Origin) {
	if s == nil {
		return nil, Origin{}
	}
	v := s.merged.Get(names...)
	if v == nil {
		return nil, Origin{}
	}
	for _, l := range slices.Backward(s.layers) {
		if own := l.active.Get(names...); own != nil {
			return v.Raw(), l.at(own)
		}
	}
	return v.Raw(), Origin{}
}

// String returns a setting that is a string, empty if there is none.
func (s *Settings) String(names ...string) string {
	if s == nil {
		return ""
	}
	text, _ := s.merged.Get(names...).text()
	return text
}

// Bool reports whether a setting is true.
func (s *Settings) Bool(names ...string) bool { return s != nil && s.merged.Get(names...).truth() }

// Int returns a setting that is a number, and whether there is one.
func (s *Settings) Int(names ...string) (n int, ok bool) {
	raw, _ := s.Get(names...)
	return n, raw != nil && json.Unmarshal(raw, &n) == nil
}

// List returns a setting that is a list of strings, of all layers.
func (s *Settings) List(names ...string) []string {
	if s == nil {
		return nil
	}
	v := s.merged.Get(names...)
	if v == nil {
		return nil
	}
	var all []string
	for _, item := range v.items {
		if text, ok := item.text(); ok {
			all = append(all, text)
		}
	}
	return all
}

// managed reports whether a managed layer sets a key to true.
func (s *Settings) managed(name string) bool {
	return slices.ContainsFunc(s.layers, func(l *layer) bool { return l.Layer == Managed && l.active.Get(name).truth() })
}
