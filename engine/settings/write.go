package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/parley-go/parley/wire"
)

// ErrNotRead means that a change is for a layer that is not read: it would have no effect on
// conversations like this one.
var ErrNotRead = errors.New("settings of this kind are left out with --setting-sources")

// LayerOf returns the layer of files that an update of the protocol is written to, and false if it is
// not stored.
func LayerOf(d wire.PermissionDestination) (Layer, bool) {
	switch d {
	case wire.DestinationUserSettings:
		return User, true
	case wire.DestinationProjectSettings:
		return Project, true
	case wire.DestinationLocalSettings:
		return Local, true
	}
	return "", false
}

// Keep writes an update of permissions to the file of its destination, and returns its path; rules of
// the session are not written. The rest of the file stays as it is, in its order. An addition to a
// file of the project is recorded as trusted, because a person made it. The settings themselves do
// not change.
//
// A file that cannot be parsed as settings is left alone, and so is one of a project if a link leads
// out of the project.
func (s *Settings) Keep(u *wire.PermissionUpdate) (path string, err error) {
	layer, ok := LayerOf(u.Destination)
	if !ok {
		return "", nil
	}
	if !s.opts.Sources.Has(layer) {
		return "", ErrNotRead
	}
	if u.Type == wire.UpdateSetMode && layer.ofProject() && (u.Mode == wire.ModeBypassPermissions || u.Mode == wire.ModeAuto) {
		return "", fmt.Errorf("a project cannot have the mode %s", u.Mode)
	}
	f, err := s.open(layer)
	if err != nil {
		return "", err
	}
	defer f.root.Close()
	added, err := f.change(layer, func(v *Value) []*Item { return v.update(u) })
	if err != nil {
		return "", fmt.Errorf("%s: the change is not saved: %w", f.path, err)
	}
	if len(added) == 0 || !layer.ofProject() || s.opts.Trust == nil {
		return f.path, nil
	}
	items := make([]Item, len(added))
	for i, it := range added {
		it.File, it.Hash = f.path, s.trust.hash(it)
		items[i] = *it
	}
	return f.path, s.opts.Trust.Trust(s.opts.Dir, items, true)
}

// Set writes a string setting to the file of a layer, and returns the path of that file. The rest of
// the file stays as it is.
func Set(s *Settings, layer Layer, name, value string) (path string, err error) {
	f, err := s.open(layer)
	if err != nil {
		return "", err
	}
	defer f.root.Close()
	_, err = f.change(layer, func(v *Value) []*Item {
		v.set(name, textValue(value))
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("%s: the change is not written: %w", f.path, err)
	}
	return f.path, nil
}

// A file is a settings file to change, below a directory that no link can lead out of.
type file struct {
	root *os.Root
	path string // for people
	name string // relative to root
}

func (s *Settings) open(layer Layer) (*file, error) {
	dir, name := s.opts.Dir, filepath.Join(".claude", "settings.json")
	switch layer {
	case Local:
		name = filepath.Join(".claude", "settings.local.json")
	case User:
		dir, name = s.opts.UserDir, "settings.json"
		if dir != "" {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return nil, err
			}
			// The user's file may be a link to another place.
			if real, err := filepath.EvalSymlinks(filepath.Join(dir, name)); err == nil {
				dir, name = filepath.Split(real)
			}
		}
	}
	if dir == "" {
		return nil, fmt.Errorf("there is no directory for the settings of the %s", layer)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &file{root, filepath.Join(dir, name), name}, nil
}

// change changes the file atomically, one process at a time.
func (f *file) change(layer Layer, edit func(*Value) []*Item) ([]*Item, error) {
	if dir := filepath.Dir(f.name); dir != "." {
		if err := f.root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	unlock, err := lock(f.root, f.name+".lock")
	if err != nil {
		return nil, err
	}
	defer unlock()
	mode := fs.FileMode(0o600)
	if layer == Project {
		mode = 0o644
	}
	all, indent := &Value{members: map[string]*Value{}}, "  "
	info, err := f.root.Lstat(f.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case info.Size() > maxFile:
		return nil, fmt.Errorf("it is larger than %d MB", maxFile>>20)
	default:
		mode = info.Mode().Perm()
		text, err := f.root.ReadFile(f.name)
		if err != nil {
			return nil, err
		}
		if len(bytes.TrimSpace(text)) > 0 {
			v, line, err := parse(text)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", line, err)
			}
			if v.members == nil || v.Get("permissions") != nil && v.Get("permissions").members == nil {
				return nil, errors.New("it is not an object with permissions")
			}
			all, indent = v, indentOf(text)
		}
	}
	before := all.Raw()
	added := edit(all)
	if bytes.Equal(before, all.Raw()) {
		return added, nil
	}
	var text bytes.Buffer
	if err := json.Indent(&text, all.Raw(), "", indent); err != nil {
		return nil, err
	}
	text.WriteByte('\n')
	return added, writeFile(f.root, f.name, text.Bytes(), mode)
}

// indentOf returns the indentation of the first line inside of an object.
func indentOf(text []byte) string {
	_, rest, _ := strings.Cut(string(text), "\n")
	if n := len(rest) - len(strings.TrimLeft(rest, " \t")); n > 0 && n <= 8 {
		return rest[:n]
	}
	return "  "
}

// update applies an update of the protocol. It returns the resulting items that need trust in a
// project.
func (v *Value) update(u *wire.PermissionUpdate) (added []*Item) {
	inside := v.Get("permissions")
	if inside == nil {
		inside = &Value{members: map[string]*Value{}}
	}
	// edit changes a list of strings.
	edit := func(name string, f func(have []string) []string) {
		have := []string{}
		old := inside.Get(name)
		if old != nil {
			for _, item := range old.items {
				if t, ok := item.text(); ok {
					have = append(have, t)
				}
			}
		}
		next := f(slices.Clone(have))
		if slices.Equal(have, next) {
			return
		}
		list := &Value{array: true}
		for _, t := range next {
			list.items = append(list.items, textValue(t))
		}
		inside.set(name, list)
		v.set("permissions", inside)
	}
	without := func(have []string, gone []string, key func(string) string) []string {
		return slices.DeleteFunc(have, func(h string) bool {
			return slices.ContainsFunc(gone, func(g string) bool { return key(g) == key(h) })
		})
	}
	with := func(have []string, more []string, key func(string) string) []string {
		for _, m := range more {
			if !slices.ContainsFunc(have, func(h string) bool { return key(h) == key(m) }) {
				have = append(have, m)
			}
		}
		return have
	}
	same := func(s string) string { return s }
	switch u.Type {
	case wire.UpdateAddRules, wire.UpdateReplaceRules, wire.UpdateRemoveRules:
		if !slices.Contains([]wire.PermissionBehavior{wire.BehaviorAllow, wire.BehaviorAsk, wire.BehaviorDeny}, u.Behavior) {
			return nil
		}
		var rules []string
		for _, r := range u.Rules {
			if r != nil && r.ToolName != "" {
				rules = append(rules, ruleText(r))
			}
		}
		edit(string(u.Behavior), func(have []string) []string {
			switch u.Type {
			case wire.UpdateRemoveRules:
				return without(have, rules, plainRule)
			case wire.UpdateReplaceRules:
				have = nil
			}
			return with(have, rules, plainRule)
		})
		if u.Behavior == wire.BehaviorAllow && u.Type != wire.UpdateRemoveRules {
			for _, item := range inside.Get("allow").items {
				t, _ := item.text()
				if slices.ContainsFunc(rules, func(r string) bool { return plainRule(r) == plainRule(t) }) {
					added = append(added, &Item{Kind: "allow", Name: t, Text: t}) // as in the file
				}
			}
		}
	case wire.UpdateAddDirectories:
		edit("additionalDirectories", func(have []string) []string { return with(have, u.Directories, same) })
		for _, d := range u.Directories {
			added = append(added, &Item{Kind: "directory", Name: d, Text: d})
		}
	case wire.UpdateRemoveDirectories:
		edit("additionalDirectories", func(have []string) []string { return without(have, u.Directories, same) })
	case wire.UpdateSetMode:
		if !slices.Contains(modes, u.Mode) {
			return nil
		}
		inside.set("defaultMode", textValue(string(u.Mode)))
		v.set("permissions", inside)
		added = append(added, &Item{Kind: "mode", Name: string(u.Mode), Text: string(u.Mode)})
	}
	return added
}

func textValue(s string) *Value {
	return &Value{scalar: encode(s)}
}

// ruleText formats a rule for settings.
func ruleText(r *wire.PermissionRule) string {
	if r.RuleContent == "" {
		return r.ToolName
	}
	return r.ToolName + "(" + r.RuleContent + ")"
}

// plainRule returns the canonical form of a rule, to compare rules with the same meaning.
func plainRule(text string) string {
	text = strings.TrimSpace(text)
	for _, all := range []string{"(*)", "(:*)", "()"} {
		text = strings.TrimSuffix(text, all)
	}
	return text
}

// SetServer writes the configuration of an MCP server to a file that has servers by name below some
// keys, or removes it if config is nil. It reports whether there was one. The rest of the file stays
// as it is.
func SetServer(path string, below []string, name string, config json.RawMessage) (had bool, err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return false, err
	}
	defer root.Close()
	var next *Value
	if config != nil {
		if next, _, err = parse(config); err != nil {
			return false, err
		}
	}
	layer := User
	if len(below) == 1 && filepath.Base(path) == ".mcp.json" {
		layer = Project
	}
	f := &file{root, path, filepath.Base(path)}
	_, err = f.change(layer, func(v *Value) []*Item {
		for _, key := range below {
			inner := v.Get(key)
			if inner == nil || inner.members == nil {
				if config == nil {
					return nil
				}
				inner = &Value{members: map[string]*Value{}}
				v.set(key, inner)
			}
			v = inner
		}
		if had = v.Get(name) != nil; next != nil {
			v.set(name, next)
		} else if had {
			delete(v.members, name)
			v.names = slices.DeleteFunc(v.names, func(n string) bool { return n == name })
		}
		return nil
	})
	if err != nil {
		return had, fmt.Errorf("%s: the change is not written: %w", path, err)
	}
	return had, nil
}
