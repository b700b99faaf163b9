// Package settings reads the settings of a conversation: files of the machine's administrator, of the user and of the
// project, and the values of flags. It reports which values apply, where each is written, and which are inert.
//
// # Layers
//
// From the lowest to the highest: the user's settings.json in the config directory, the project's
// .claude/settings.json, its .claude/settings.local.json, --settings, and managed settings. Objects are merged member
// by member, lists are concatenated, and for anything else the highest layer wins.
//
// # Trust
//
// A project is written by somebody else. Its deny rules apply at once. Content that starts, allows or sends something
// has no effect until a person has trusted it: see [Item] and [Store]. Some settings never apply if they come from a
// project.
//
// # Errors
//
// A file that cannot be parsed as settings is an error with its file, line and a hint. It is never skipped, because it
// may contain a restriction.
//
// The package reads the files that its options name, and writes only the record of trust and the changes that a person
// makes ([Settings.Keep]). It does not depend on the meaning of settings: the code that uses a value validates it.
package settings

import (
	"cmp"
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
	"github.com/parley-go/parley/internal/spelling"
)

// A Layer is the origin of settings.
type Layer string

// The layers, lowest first.
const (
	User    Layer = "user"    // settings.json of the config directory
	Project Layer = "project" // .claude/settings.json, and .mcp.json
	Local   Layer = "local"   // .claude/settings.local.json
	Flag    Layer = "flag"    // --settings
	Managed Layer = "managed" // of the machine's administrator, and --managed-settings
)

// ofProject reports whether a layer is part of what somebody may have checked out.
func (l Layer) ofProject() bool { return l == Project || l == Local }

// Sources selects which layers of files are read. Managed settings are always read.
type Sources struct{ User, Project, Local bool }

// ParseSources parses a list of sources, as in --setting-sources. Nil means all of them, an empty list none.
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
			return s, fmt.Errorf("unknown source of settings %q: use user, project and local", n)
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

// Options configure what is read. The zero value reads nothing.
type Options struct {
	// Dir is the directory of the project, in which the conversation works.
	Dir string
	// WorkDir is the working directory, if Dir is another checkout of the project; empty means Dir. Paths in Flag,
	// Restrict and the rules of the project are relative to it.
	WorkDir string
	// UserDir is the config directory of the user; empty means none.
	UserDir string
	// ManagedFile is the file of the machine's administrator. Files in the directory beside it, named like it with ".d"
	// for ".json", are read as well. Empty means none.
	ManagedFile string
	Sources     Sources

	Flag     string // of --settings: a file or JSON
	Restrict string // of --managed-settings: a file or JSON, of which only restrictions apply

	// Trust records what a person trusts. It may be nil.
	Trust *Store
	// TrustProject is the trust that the caller gives to the project: "all", or the digest of its content (see
	// [Settings.Digest]). If empty, the record decides.
	TrustProject string
}

func (o *Options) workDir() string { return cmp.Or(o.WorkDir, o.Dir) }

// An Origin is the place where a value is written.
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

// Base returns the directory that "/x" in a rule about files is relative to: the project for its settings, the
// directory of the file for others; empty for a flag.
func (o Origin) Base() string {
	switch {
	case o.Layer.ofProject() && filepath.Base(filepath.Dir(o.File)) == ".claude":
		return filepath.Dir(filepath.Dir(o.File))
	case filepath.IsAbs(o.File):
		return filepath.Dir(o.File)
	}
	return ""
}

// An Error describes what is wrong with settings, where, and how to fix it.
type Error struct {
	Origin
	Text string // the problem
	Hint string // how to fix it
}

// Error returns the place, the problem and the hint.
func (e *Error) Error() string { return e.Origin.String() + ": " + e.Text + ". " + e.Hint }

// Settings are the settings that were read. They are immutable and safe for concurrent use.
type Settings struct {
	opts    Options
	layers  []*layer // the lowest first
	servers *layer   // .mcp.json; nil if there is none
	merged  *Value
	trust   *trust
	unknown []Origin
	names   []string // of the unknown keys
	places  []File   // their files, as they were before reading

}

// A loader reads settings, and decides which of them apply.
type loader struct {
	*Settings
	before *Settings // during a reload: the previous settings
	keep   []string  // during a reload: the files whose previous content applies
}

// A layer is one file, or one flag.
type layer struct {
	Origin
	all      *Value // as it is written
	active   *Value // the part that applies
	restrict bool   // only restrictions apply
}

func (l *layer) at(v *Value) Origin { return Origin{l.Layer, l.File, v.Line} }

func (l *layer) wrong(v *Value, hint, format string, args ...any) error {
	return &Error{l.at(v), fmt.Sprintf(format, args...), hint}
}

// Load reads settings. Its error is an [*Error], or several of them joined.
func Load(opts Options) (*Settings, error) {
	l := &loader{Settings: &Settings{opts: opts, trust: newTrust(opts)}}
	if errs := l.load(); errs != nil {
		return nil, errors.Join(errs...)
	}
	return l.Settings, l.sift()
}

// load reads the layers. During a reload, a malformed one keeps its previous content.
func (s *loader) load() (errs []error) {
	opts := s.opts
	s.places = places(opts) // before reading, so that changes during it are noticed
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
		path, ok := flagFile(text, opts.workDir())
		if !ok {
			path = name
		}
		l, err := readFlag(text, name, in, opts.workDir())
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
		// It contains no rules, so anything but a regular file is treated as missing.
		var l *layer
		var err error
		path := filepath.Join(opts.Dir, serversFile)
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

// sameFile reports whether two paths lead to the same file. In the home directory, the file is that of the user and not
// of a project.
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

// managedFiles returns the files of the administrator, lowest first.
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
		hint := "Fix the file: Parley never skips settings, because they can contain deny rules."
		if filepath.Base(path) == serversFile {
			hint = "Fix the file, or remove it."
		}
		return nil, &Error{l.Origin, "the file is not valid JSON: " + err.Error(), hint}
	}
	return l, nil
}

var errNoDir = errors.New("not a directory")

// readAll reads a regular file of limited size.
func readAll(path string) ([]byte, error) {
	text, err := regular.Read(path, maxFile)
	if err != nil {
		if below, e := os.Stat(filepath.Dir(path)); e == nil && !below.IsDir() {
			return nil, errNoDir
		}
	}
	return text, err
}

// readFlag reads the settings in a flag: JSON, or a file that must exist.
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
			return nil, fmt.Errorf("Settings file not found: %s. Correct the path, or create the file", given)
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

// RuleBase returns the directory that "/x" in a rule about files is relative to.
func RuleBase(s *Settings, r Rule) string {
	if s.opts.WorkDir != "" && r.Layer.ofProject() {
		return s.opts.WorkDir
	}
	return r.Base()
}

// Sources returns which layers of files are read.
func (s *Settings) Sources() Sources { return s.opts.Sources }

// Files returns the files and flags that were read, lowest layer first.
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

// Layer returns the content of the highest file or flag of a layer, as written, or nil.
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

// Unknown returns the unknown keys, with their places. They are kept, and may be used by other programs.
func (s *Settings) Unknown() (names []string, at []Origin) { return s.names, s.unknown }

// Ignored returns the unknown keys that have an effect in the official CLI, or that look like a misspelled key, with
// their places.
func Ignored(s *Settings) (names []string, at []Origin) {
	if len(s.names) == 0 { // the usual case, for which the list is not split
		return nil, nil
	}
	official := strings.Fields(ignored)
	for i, name := range s.names {
		if (slices.Contains(official, name) || Suggest(name) != "") && !slices.Contains(names, name) && !satisfied(s, name) {
			names, at = append(names, name), append(at, s.unknown[i])
		}
	}
	return names, at
}

// satisfied reports whether an unknown key asks for what holds anyway: no attribution in commits, and servers of a
// trusted project.
func satisfied(s *Settings, name string) bool {
	is := func(text string) bool {
		return slices.ContainsFunc(s.layers, func(l *layer) bool { v := l.all.Get(name); return v != nil && string(v.Raw()) == text })
	}
	switch name {
	case "includeCoAuthoredBy":
		return !is("true")
	case "enableAllProjectMcpServers", "enabledMcpjsonServers":
		return !is("false") && !slices.ContainsFunc(s.Untrusted(), func(it Item) bool { return it.Kind == "mcp server" })
	}
	return false
}

// Suggest returns the known key that an unknown one may be a misspelling of, or "".
func Suggest(key string) string {
	if slices.Contains(strings.Fields(ignored), key) {
		return ""
	}
	if name, ok := strings.CutPrefix(key, "permissions."); ok {
		return spelling.Closest(name, Names("permissions"))
	}
	return spelling.Closest(key, Names())
}

// Effective returns the merged settings that apply, without inert ones.
func (s *Settings) Effective() json.RawMessage {
	if s == nil || s.merged == nil {
		return json.RawMessage("{}")
	}
	return s.merged.Raw()
}

// Get returns the value that applies for a key, such as "sandbox" or "permissions", "defaultMode", or nil. It also
// returns the highest layer that sets it.
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

// String returns a string setting, or "".
func (s *Settings) String(names ...string) string {
	if s == nil {
		return ""
	}
	text, _ := s.merged.Get(names...).text()
	return text
}

// Bool reports whether a setting is true.
func (s *Settings) Bool(names ...string) bool { return s != nil && s.merged.Get(names...).truth() }

// Int returns a numeric setting, and whether there is one.
func (s *Settings) Int(names ...string) (n int, ok bool) {
	raw, _ := s.Get(names...)
	return n, raw != nil && json.Unmarshal(raw, &n) == nil
}

// List returns a setting that is a list of strings, from all layers.
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
