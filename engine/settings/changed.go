package settings

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A File is a file that settings are read from, or would be if it were there.
type File struct {
	Origin
	info fs.FileInfo // nil if it is not there
	kept bool        // what it says does not count, but what it said before
}

// Same reports whether the file looks as another time it was looked at: its time, its
// size, and which file it is.
func (f File) Same(other File) bool {
	if f.info == nil || other.info == nil {
		return f.info == nil && other.info == nil
	}
	return f.info.Size() == other.info.Size() && f.info.ModTime().Equal(other.info.ModTime()) && os.SameFile(f.info, other.info)
}

// Look looks at a file.
func Look(path string) File {
	f := File{Origin: Origin{File: path}}
	f.info, _ = os.Stat(path)
	return f
}

// Event says what has become of a file that looked different: "add", "unlink" or
// "change", as the protocol has it.
func (f File) Event(before File) string {
	switch {
	case before.info == nil:
		return "add"
	case f.info == nil:
		return "unlink"
	}
	return "change"
}

// places looks at the files of settings, without .mcp.json: servers that run go on.
func places(opts Options) []File {
	var all []File
	add := func(name Layer, path string) {
		f := Look(path)
		f.Layer = name
		all = append(all, f)
	}
	user := ""
	if opts.UserDir != "" && opts.Sources.User {
		user = filepath.Join(opts.UserDir, "settings.json")
		add(User, user)
	}
	if opts.Dir != "" {
		if path := filepath.Join(opts.Dir, ".claude", "settings.json"); opts.Sources.Project && path != user {
			add(Project, path)
		}
		if opts.Sources.Local {
			add(Local, filepath.Join(opts.Dir, ".claude", "settings.local.json"))
		}
	}
	for _, flag := range []struct {
		given string
		Layer
	}{{opts.Flag, Flag}, {opts.Restrict, Managed}} {
		if path, ok := flagFile(flag.given, opts.Dir); ok {
			add(flag.Layer, path)
		}
	}
	for _, path := range managedFiles(opts.ManagedFile) {
		add(Managed, path)
	}
	return all
}

// flagFile returns the file that a flag names, if it names one.
func flagFile(given, dir string) (string, bool) {
	if given == "" || strings.HasPrefix(strings.TrimSpace(given), "{") {
		return "", false
	}
	if !filepath.IsAbs(given) {
		given = filepath.Join(dir, given)
	}
	return given, true
}

// Changed returns the files that do not look any more as they did when the settings were
// read: those that were changed, came or went. It reads none of them.
func (s *Settings) Changed() []File {
	if s == nil {
		return nil
	}
	var all []File
	now := places(s.opts)
	for _, f := range now {
		if i := slices.IndexFunc(s.places, func(was File) bool { return was.File == f.File }); i < 0 || !f.Same(s.places[i]) {
			all = append(all, f)
		}
	}
	for _, was := range s.places {
		if !slices.ContainsFunc(now, func(f File) bool { return f.File == was.File }) {
			was.info = nil
			all = append(all, was)
		}
	}
	return all
}

// Reload reads the files again, but for those in keep, which are taken as they were. A
// file that is malformed any more is taken as it was, too, and is an error of the list.
//
// Trusted content of the project stays trusted while it is unchanged; new content needs
// the record of trust, even if the conversation was started with trust in everything.
func (s *Settings) Reload(keep []File) (*Settings, []error) {
	return s.again(s.opts.Flag, keep)
}

// WithFlag returns the settings with others given by --settings. Files that have changed
// meanwhile are still so for [Settings.Changed].
func (s *Settings) WithFlag(flag string) (*Settings, error) {
	next, errs := s.again(flag, s.Changed())
	if len(errs) > 0 {
		return nil, errs[0]
	}
	next.places = places(next.opts)
	for i, f := range next.places {
		if j := slices.IndexFunc(s.places, func(was File) bool { return was.File == f.File }); j >= 0 {
			next.places[i] = s.places[j]
		}
	}
	return next, nil
}

// again reads the settings once more.
func (s *Settings) again(flag string, keep []File) (*Settings, []error) {
	opts := s.opts
	opts.Flag, opts.TrustProject = flag, ""
	next := &Settings{opts: opts, before: s, sure: map[string]bool{}, sureFiles: s.trust.all || s.trust.files}
	for hash := range s.sure {
		next.sure[hash] = true
	}
	for _, it := range s.items {
		if it.Trusted {
			next.sure[it.Hash] = true
		}
	}
	for _, f := range s.places {
		if f.kept && f.Same(Look(f.File)) {
			next.keep = append(next.keep, f.File)
		}
	}
	for _, f := range keep {
		next.keep = append(next.keep, f.File)
	}
	errs := next.load()
	next.before, next.keep = nil, nil
	if err := next.sift(); err != nil {
		return s.seen(), append(errs, err)
	}
	return next, errs
}

// seen returns the same settings, with the files as they look now.
func (s *Settings) seen() *Settings {
	same := *s
	same.places = places(s.opts)
	return &same
}

// was returns the layer that a file was before, nil if there was none. It is what counts
// until the file changes again.
func (s *Settings) was(path string) *layer {
	for i := range s.places {
		if s.places[i].File == path {
			s.places[i].kept = true
		}
	}
	for _, l := range s.before.layers {
		if l.File == path {
			same := *l // it may count in part, now
			return &same
		}
	}
	return nil
}
