package settings

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A File is a file that settings are read from, or would be if it existed.
type File struct {
	Origin
	info fs.FileInfo // nil if it does not exist
	kept bool        // its previous content applies, not the present one
}

// Same reports whether the file is unchanged since another look at it, by its time, size
// and identity.
func (f File) Same(other File) bool {
	if f.info == nil || other.info == nil {
		return f.info == nil && other.info == nil
	}
	return f.info.Size() == other.info.Size() && f.info.ModTime().Equal(other.info.ModTime()) && os.SameFile(f.info, other.info)
}

// Look returns the present state of a file.
func Look(path string) File {
	f := File{Origin: Origin{File: path}}
	f.info, _ = os.Stat(path)
	return f
}

// Event returns how a file has changed since before: "add", "unlink" or "change", as the
// protocol names it.
func (f File) Event(before File) string {
	switch {
	case before.info == nil:
		return "add"
	case f.info == nil:
		return "unlink"
	}
	return "change"
}

// places returns the files of settings, without .mcp.json: running servers are not
// affected.
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
		if path, ok := flagFile(flag.given, opts.workDir()); ok {
			add(flag.Layer, path)
		}
	}
	for _, path := range managedFiles(opts.ManagedFile) {
		add(Managed, path)
	}
	return all
}

// flagFile returns the file that a flag names, if any.
func flagFile(given, dir string) (string, bool) {
	if given == "" || strings.HasPrefix(strings.TrimSpace(given), "{") {
		return "", false
	}
	if !filepath.IsAbs(given) {
		given = filepath.Join(dir, given)
	}
	return given, true
}

// Changed returns the files that were changed, created or removed since the settings
// were read. It reads none of them.
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

// Reload reads the files again, except those in keep, whose previous content stays in
// effect. The same holds for a file that is now malformed, which is an error in the
// list.
//
// Trusted content of the project stays trusted while it is unchanged. New content needs
// the record of trust, even if the conversation was started with trust in everything.
func (s *Settings) Reload(keep []File) (*Settings, []error) {
	return s.again(s.opts.Flag, keep)
}

// WithFlag returns the settings with another value of --settings. [Settings.Changed]
// still reports files that have changed meanwhile.
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
	next := &loader{Settings: &Settings{opts: opts, trust: newTrust(opts)}, before: s}
	next.trust.files = s.trust.all || s.trust.files
	maps.Copy(next.trust.sure, s.trust.sure)
	for _, it := range s.trust.items {
		if it.Trusted {
			next.trust.sure[it.Hash] = true
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
	if err := next.sift(); err != nil {
		return s.withFileStates(), append(errs, err)
	}
	return next.Settings, errs
}

// withFileStates returns the same settings, with the present state of their files.
func (s *Settings) withFileStates() *Settings {
	same := *s
	same.places = places(s.opts)
	return &same
}

// was returns the previous layer of a file, or nil if there was none. It applies until
// the file changes again.
func (s *loader) was(path string) *layer {
	for i := range s.places {
		if s.places[i].File == path {
			s.places[i].kept = true
		}
	}
	for _, l := range s.before.layers {
		if l.File == path {
			same := *l // other parts of it may apply now
			return &same
		}
	}
	return nil
}
