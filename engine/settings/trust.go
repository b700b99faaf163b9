package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/parley-go/parley/wire"
)

// An Item is something that a project brings and that is inert until it is trusted:
// a hook, an MCP server, an environment variable, a rule that allows. Its hash is of
// what it says, and of the files of the project that it names to run: once one of
// them changes, it is another item.
type Item struct {
	Kind    string `json:"kind"` // "hook", "mcp server", "env", "allow", "mode", "directory", "sandbox", "setting" or "file"
	Name    string `json:"name"` // which, in a few words
	Text    string `json:"text"` // what it says, whole
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Hash    string `json:"hash"`
	Trusted bool   `json:"trusted"`
	Never   bool   `json:"never,omitempty"` // it is never taken from a project, trusted or not
}

// trust knows what of a project is trusted.
type trust struct {
	all    bool
	hashes map[string]bool
}

func (t *trust) has(hash string) bool { return t.all || t.hashes[hash] }

// sift finds out what of the layers counts.
func (s *Settings) sift() error {
	s.trust = &trust{all: s.opts.TrustProject == "all", hashes: map[string]bool{}}
	if s.opts.Trust != nil && s.opts.Dir != "" {
		var err error
		if s.trust.hashes, err = s.opts.Trust.Hashes(s.opts.Dir); err != nil {
			return err
		}
	}
	s.siftLayers()
	if want := s.opts.TrustProject; want != "" && want != "all" {
		have, err := s.Digest()
		if err != nil {
			return err
		}
		if want != have {
			return fmt.Errorf("the project in %s is not the one that is trusted: what it brings has the digest %s, and %s was expected. Look at it with \"parley trust\"", s.opts.Dir, have, want)
		}
		s.trust.all = true
		s.siftLayers()
	}
	return nil
}

func (s *Settings) siftLayers() {
	s.items, s.merged = nil, nil
	for _, l := range s.layers {
		switch {
		case l.Layer.ofProject():
			l.active = s.siftLayer(l, s.trusts)
		case l.restrict:
			l.active = s.siftLayer(l, func(*layer, *Value, *Item) bool { return false })
		default:
			l.active = l.all
		}
		s.merged = merge(s.merged, l.active)
	}
	if s.servers != nil {
		s.servers.active = s.siftServers(s.servers)
	}
	if s.merged == nil {
		s.merged = &Value{members: map[string]*Value{}}
	}
}

// trusts decides about an item of the project and notes it.
func (s *Settings) trusts(l *layer, v *Value, item *Item) bool {
	item.File, item.Line = l.File, v.Line
	if item.Text == "" {
		item.Text = string(v.Raw())
	}
	item.Hash = s.hash(item)
	item.Trusted = !item.Never && s.trust.has(item.Hash)
	s.items = append(s.items, item)
	return item.Trusted
}

// hash returns the hash of an item, and of the files of the project that its text
// names if it runs something.
func (s *Settings) hash(item *Item) string {
	h := sha256.New()
	fmt.Fprintf(h, "parley trust 1\x00%s\x00%s\x00%s\x00", item.Kind, item.Name, item.Text)
	if item.Kind == "hook" || item.Kind == "mcp server" || item.Kind == "setting" {
		for _, path := range s.named(item.Text) {
			sum, err := hashFile(path)
			if err != nil {
				sum = "unreadable"
			}
			rel, _ := filepath.Rel(s.opts.Dir, path)
			fmt.Fprintf(h, "%s\x00%s\x00", filepath.ToSlash(rel), sum)
		}
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// named returns the regular files of the project that words of a text name, such as
// the script in "bash .claude/hooks/check.sh". What those files run in turn is not
// seen.
func (s *Settings) named(text string) []string {
	found := map[string]bool{}
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\n\"'`;|&<>(){}[],=", r) })
	for _, w := range words {
		for _, prefix := range []string{"$CLAUDE_PROJECT_DIR", "CLAUDE_PROJECT_DIR", "%CLAUDE_PROJECT_DIR%", "$PWD"} {
			w = strings.TrimPrefix(w, prefix)
		}
		w = strings.ReplaceAll(w, `\`, "")
		if w == "" || w == "/" {
			continue
		}
		for _, path := range []string{filepath.Join(s.opts.Dir, w), w} {
			rel, err := filepath.Rel(s.opts.Dir, path)
			if err != nil || !filepath.IsLocal(rel) {
				continue
			}
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				found[filepath.Join(s.opts.Dir, rel)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func hashFile(path string) (string, error) {
	text, err := readAll(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// free are settings of a project that count at once: they restrict, or are a matter
// of taste.
var free = map[string]bool{
	"$schema": true, "disabledMcpjsonServers": true, "deniedMcpServers": true,
	"outputStyle": true, "language": true, "includeCoAuthoredBy": true, "attribution": true, "includeGitInstructions": true, "respectGitignore": true,
}

// never are settings that are not taken from a project, whoever trusts it: they
// answer in the place of the user, or lift what the user or the administrator set.
var never = map[string]bool{
	"enableAllProjectMcpServers": true, "enabledMcpjsonServers": true, "allowedMcpServers": true, "disableAllHooks": true, "allowManagedHooksOnly": true,
	"allowManagedPermissionRulesOnly": true, "allowManagedMcpServersOnly": true, "skipDangerousModePermissionPrompt": true,
	"skipAutoPermissionPrompt": true, "policyHelper": true, "cleanupPeriodDays": true,
}

// siftLayer returns what of a layer counts: what restricts, and what is trusted.
func (s *Settings) siftLayer(l *layer, trusted func(*layer, *Value, *Item) bool) *Value {
	ask := func(v *Value, item *Item) *Value {
		if trusted(l, v, item) {
			return v
		}
		return nil
	}
	return l.all.only(func(name string, v *Value) *Value {
		switch {
		case name == "permissions" && v.members != nil:
			return v.only(func(name string, p *Value) *Value {
				switch name {
				case "deny", "ask", "disableBypassPermissionsMode", "disableAutoMode":
					return p
				case "denyInsteadOfPrompting":
					if p.truth() {
						return p
					}
					return nil
				case "allow":
					return p.pick(func(r *Value) *Value { t, _ := r.text(); return ask(r, &Item{Kind: "allow", Name: t, Text: t}) })
				case "additionalDirectories":
					return p.pick(func(r *Value) *Value { t, _ := r.text(); return ask(r, &Item{Kind: "directory", Name: t, Text: t}) })
				case "defaultMode":
					t, _ := p.text()
					mode := wire.PermissionMode(t)
					return ask(p, &Item{Kind: "mode", Name: t, Text: t, Never: mode == wire.ModeBypassPermissions || mode == wire.ModeAuto})
				}
				return ask(p, &Item{Kind: "setting", Name: "permissions." + name})
			})
		case name == "hooks" && v.members != nil:
			return v.only(func(event string, list *Value) *Value {
				return list.pick(func(group *Value) *Value {
					kept := group.Get("hooks").pick(func(h *Value) *Value {
						matcher, _ := group.Get("matcher").text()
						command, _ := h.Get("command").text()
						title := event
						if matcher != "" {
							title += "(" + matcher + ")"
						}
						return ask(h, &Item{Kind: "hook", Name: strings.TrimSpace(title + " " + command), Text: title + " " + string(h.Raw())})
					})
					if kept == nil {
						return nil
					}
					return group.only(func(name string, m *Value) *Value {
						if name == "hooks" {
							return kept
						}
						return m
					})
				})
			})
		case name == "env" && v.members != nil:
			return v.only(func(name string, e *Value) *Value {
				return ask(e, &Item{Kind: "env", Name: name, Text: name + "=" + string(e.Raw())})
			})
		case name == "sandbox" && v.members != nil:
			strict := tighten(v)
			if l.restrict || strict != nil && string(strict.Raw()) == string(v.Raw()) || trusted(l, v, &Item{Kind: "sandbox", Name: "sandbox"}) {
				return v
			}
			return strict
		case name == "disableSkillShellExecution" && v.truth() || free[name]:
			return v
		case l.Layer == Managed && (name == "disableAllHooks" || strings.HasPrefix(name, "allowManaged") || name == "allowedMcpServers"):
			return v
		}
		return ask(v, &Item{Kind: "setting", Name: name, Never: never[name]})
	})
}

// tighten returns what of the settings of a sandbox only makes it stricter, nil if
// nothing does.
func tighten(v *Value) *Value {
	isTrue := func(v *Value) bool { return v.truth() }
	isFalse := func(v *Value) bool { return string(v.scalar) == "false" }
	list := func(v *Value) bool { return v.array }
	strict := map[string]func(*Value) bool{
		"enabled": isTrue, "failIfUnavailable": isTrue, "allowUnsandboxedCommands": isFalse, "autoAllowBashIfSandboxed": isFalse,
		"enableWeakerNestedSandbox": isFalse, "enableWeakerNetworkIsolation": isFalse,
		"filesystem.denyWrite": list, "filesystem.denyRead": list, "network.deniedDomains": list, "network.strictAllowlist": isTrue,
		"network.allowAllUnixSockets": isFalse, "network.allowLocalBinding": isFalse,
	}
	var walk func(prefix string, v *Value) *Value
	walk = func(prefix string, v *Value) *Value {
		kept := v.only(func(name string, m *Value) *Value {
			if ok := strict[prefix+name]; ok != nil && ok(m) {
				return m
			}
			if m.members != nil && prefix == "" {
				return walk(name+".", m)
			}
			return nil
		})
		if len(kept.names) == 0 {
			return nil
		}
		return kept
	}
	return walk("", v)
}

// Brought returns what the project brings that needs trust, and whether it has it.
func (s *Settings) Brought() []Item {
	if s == nil {
		return nil
	}
	items := make([]Item, len(s.items))
	for i, it := range s.items {
		items[i] = *it
	}
	return items
}

// Inert returns what the project brings that has no effect.
func (s *Settings) Inert() []Item {
	return slices.DeleteFunc(s.Brought(), func(it Item) bool { return it.Trusted })
}

// The directories of a project whose files others read: commands, skills, agents and
// styles.
var fileDirs = []string{"agents", "commands", "output-styles", "skills"}

// ProjectFiles returns the files below .claude that say what an agent does, as items.
func (s *Settings) ProjectFiles() ([]Item, error) {
	if s == nil || s.opts.Dir == "" || !s.opts.Sources.Project {
		return nil, nil
	}
	var items []Item
	for _, dir := range fileDirs {
		root := filepath.Join(s.opts.Dir, ".claude", dir)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				return err
			}
			if !d.Type().IsRegular() {
				return nil
			}
			if len(items) >= 10000 {
				return fmt.Errorf("there are more than 10000 files below %s", filepath.Join(s.opts.Dir, ".claude"))
			}
			content, err := readAll(path)
			items = append(items, s.fileItem(path, content))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return items, nil
}

func (s *Settings) fileItem(path string, content []byte) Item {
	sum := sha256.Sum256(content)
	rel, _ := filepath.Rel(s.opts.Dir, path)
	it := Item{Kind: "file", Name: filepath.ToSlash(rel), Text: hex.EncodeToString(sum[:]), File: path}
	it.Hash = s.hash(&it)
	it.Trusted = s.trust.has(it.Hash)
	return it
}

// TrustsFile reports whether a file of the project, such as a skill, is trusted with
// the content that was read. Whoever reads the file asks this before it does for the
// file what only a person may: run its commands, take its rules. A file of the user,
// outside of the project, is trusted.
func (s *Settings) TrustsFile(path string, content []byte) bool {
	if s == nil {
		return false
	}
	rel, err := filepath.Rel(s.opts.Dir, path)
	if err != nil || !filepath.IsLocal(rel) {
		return true
	}
	if s.opts.UserDir != "" {
		if rel, err := filepath.Rel(s.opts.UserDir, path); err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return s.fileItem(path, content).Trusted
}

// Digest returns one hash of all that the project brings and that needs trust.
func (s *Settings) Digest() (string, error) {
	files, err := s.ProjectFiles()
	if err != nil {
		return "", err
	}
	var hashes []string
	for _, it := range append(s.Brought(), files...) {
		hashes = append(hashes, it.Hash)
	}
	slices.Sort(hashes)
	sum := sha256.Sum256([]byte(strings.Join(hashes, "\n")))
	return "sha256:" + hex.EncodeToString(sum[:]), nil
}

// A Store is where it is recorded what a person trusts: one file in the config
// directory of the user, outside of every project.
type Store struct {
	Dir string           // the config directory
	Now func() time.Time // nil means time.Now
}

// A Record is what is trusted of one project.
type Record struct {
	Items map[string]Entry `json:"items"` // by hash
}

// An Entry is one thing that is trusted.
type Entry struct {
	Kind string    `json:"kind"`
	Name string    `json:"name"`
	At   time.Time `json:"at"`
}

type recordFile struct {
	Version  int                `json:"version"`
	Projects map[string]*Record `json:"projects"` // by directory, links resolved
}

// Path returns the file of the record.
func (st *Store) Path() string { return filepath.Join(st.Dir, "parley-trust.json") }

// project returns the directory under which a project is recorded. A directory below
// it is another project.
func project(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return filepath.Clean(dir)
}

func (st *Store) read() (*recordFile, error) {
	doc := &recordFile{Version: 1, Projects: map[string]*Record{}}
	text, err := readAll(st.Path())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoDir) {
		return doc, nil
	}
	if err == nil {
		if info, e := os.Stat(st.Path()); e == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0 {
			err = fmt.Errorf("others may write it (its mode is %v)", info.Mode().Perm())
		}
	}
	if err == nil {
		err = json.Unmarshal(text, doc)
	}
	if err == nil && doc.Version != 1 {
		err = fmt.Errorf("it is of version %d, and this program knows version 1", doc.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: what is trusted cannot be read: %w. Mend the file, or remove it and trust anew with \"parley trust\"", st.Path(), err)
	}
	if doc.Projects == nil {
		doc.Projects = map[string]*Record{}
	}
	return doc, nil
}

// Hashes returns what is trusted of a project.
func (st *Store) Hashes(dir string) (map[string]bool, error) {
	doc, err := st.read()
	if err != nil {
		return nil, err
	}
	hashes := map[string]bool{}
	if r := doc.Projects[project(dir)]; r != nil {
		for h := range r.Items {
			hashes[h] = true
		}
	}
	return hashes, nil
}

// Projects returns what is trusted, by directory.
func (st *Store) Projects() (map[string]Record, error) {
	doc, err := st.read()
	if err != nil {
		return nil, err
	}
	all := map[string]Record{}
	for dir, r := range doc.Projects {
		if r != nil {
			all[dir] = *r
		}
	}
	return all, nil
}

// Trust records items of a project in place of what was recorded of it before; with
// more, beside it.
func (st *Store) Trust(dir string, items []Item, more bool) error {
	return st.change(func(doc *recordFile) {
		key := project(dir)
		r := doc.Projects[key]
		if r == nil || !more {
			r = &Record{}
			doc.Projects[key] = r
		}
		if r.Items == nil {
			r.Items = map[string]Entry{}
		}
		now := time.Now
		if st.Now != nil {
			now = st.Now
		}
		for _, it := range items {
			if !it.Never {
				r.Items[it.Hash] = Entry{it.Kind, it.Name, now().UTC()}
			}
		}
	})
}

// Revoke forgets what is trusted of a project. It reports whether anything was.
func (st *Store) Revoke(dir string) (was bool, err error) {
	err = st.change(func(doc *recordFile) {
		for _, key := range []string{project(dir), filepath.Clean(dir)} {
			if doc.Projects[key] != nil {
				was = true
				delete(doc.Projects, key)
			}
		}
	})
	return was, err
}

// change changes the record, one process at a time, so that it is whole at every
// moment.
func (st *Store) change(f func(*recordFile)) error {
	if err := os.MkdirAll(st.Dir, 0o700); err != nil {
		return err
	}
	unlock, err := lock(st.Path() + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	doc, err := st.read()
	if err != nil {
		return err
	}
	f(doc)
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(st.Path(), append(text, '\n'), 0o600)
}

// writeFile writes a file whole or not at all.
func writeFile(path string, text []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(text)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// How long a lock is waited for, and how old one is that a process left behind.
const (
	lockWait  = 10 * time.Second
	lockStale = 30 * time.Second
)

// lock takes a lock that is a file.
func lock(path string) (unlock func(), err error) {
	for end := time.Now().Add(lockWait); ; time.Sleep(10 * time.Millisecond) {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			f.Close()
			return func() { os.Remove(path) }, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if info, e := os.Stat(path); e == nil && time.Since(info.ModTime()) > lockStale {
			os.Remove(path)
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("another process holds %s; if none runs, remove it", path)
		}
	}
}
