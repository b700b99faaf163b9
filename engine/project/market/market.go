// Package market installs plugins from marketplaces. A marketplace is a directory or a git
// repository with the file .claude-plugin/marketplace.json, which lists plugins.
//
// The files are those of the official command, so both programs share the installed plugins:
// known_marketplaces.json, installed_plugins.json and the directories cache and
// marketplaces, all below plugins in the user's config directory.
//
// # Trust
//
// A plugin is a copy, made when a person installs it: a later change of its marketplace has
// no effect until it is installed again. Only regular files are copied, no links, and a path
// in a marketplace cannot lead out of it. Git runs without hooks, without the configuration
// of the user, of the machine and of the caller's environment, and only with the protocols
// https, ssh and file.
//
// The package runs git and writes below its directory. It does not depend on which plugins
// are enabled, which is a setting.
package market

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/internal/filelock"
)

// A Store is the directory of installed plugins: the directory plugins in the user's config
// directory.
type Store struct {
	Dir string
	// Environ is the environment of the process. Git receives the variables that it needs to
	// reach a server.
	Environ []string
}

// A Source is the origin of a marketplace or a plugin, as in manifests.
type Source struct {
	Source string `json:"source"` // "directory", "github", "git", "url" or "git-subdir"
	Path   string `json:"path,omitempty"`
	Repo   string `json:"repo,omitempty"`
	URL    string `json:"url,omitempty"`
	Ref    string `json:"ref,omitempty"`
	SHA    string `json:"sha,omitempty"`
}

// A Market is a marketplace that was added.
type Market struct {
	Source          Source `json:"source"`
	InstallLocation string `json:"installLocation"`
	LastUpdated     string `json:"lastUpdated"`
}

// An Installed is an installed plugin.
type Installed struct {
	Scope       string `json:"scope"`
	InstallPath string `json:"installPath"`
	Version     string `json:"version"`
	InstalledAt string `json:"installedAt"`
	LastUpdated string `json:"lastUpdated"`
}

// An Entry is a plugin that a marketplace lists.
type Entry struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Version     string          `json:"version"`
	Source      json.RawMessage `json:"source"`
}

// A Manifest is the manifest of a marketplace.
type Manifest struct {
	Name     string `json:"name"`
	Metadata struct {
		PluginRoot string `json:"pluginRoot"`
	} `json:"metadata"`
	Plugins []Entry `json:"plugins"`
}

// Limits of what is copied.
const (
	maxFiles = 10_000
	maxBytes = 64 << 20
	maxGit   = 5 * time.Minute
	maxLock  = 10 * time.Second // limit for waiting for another process that writes
)

var (
	namePattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`) })
	repoPattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9._-]+$`)
	})
	refPattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_./-]*$`) })
	urlPattern = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:(?:https|ssh|file)://[^\s-][^\s]*|[A-Za-z0-9_][A-Za-z0-9_.-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[^\s:-][^\s:]*)$`)
	})
)

// ReadManifest reads the manifest of the marketplace in a directory.
func ReadManifest(dir string) (*Manifest, error) {
	path := filepath.Join(dir, ".claude-plugin", "marketplace.json")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not a marketplace: it has no .claude-plugin/marketplace.json", dir)
	}
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s: invalid JSON: %w", path, err)
	}
	if !namePattern().MatchString(m.Name) {
		return nil, fmt.Errorf("%s: %q cannot be the name of a marketplace: use letters, digits, - and _", path, m.Name)
	}
	seen := map[string]bool{}
	for i, e := range m.Plugins {
		switch {
		case !namePattern().MatchString(e.Name):
			return nil, fmt.Errorf("%s: plugins[%d]: %q cannot be the name of a plugin: use letters, digits, - and _", path, i, e.Name)
		case seen[e.Name]:
			return nil, fmt.Errorf("%s: plugins[%d]: there is another plugin with the name %s", path, i, e.Name)
		}
		seen[e.Name] = true
		if _, err := e.from(m); err != nil {
			return nil, fmt.Errorf("%s: plugins[%d]: %w", path, i, err)
		}
	}
	return m, nil
}

// from returns the source of a plugin. A path is relative to the directory of the
// marketplace.
func (e *Entry) from(m *Manifest) (Source, error) {
	var src Source
	if json.Unmarshal(e.Source, &src.Path) == nil {
		src.Source, src.Path = "directory", filepath.FromSlash(src.Path)
		if root := m.Metadata.PluginRoot; root != "" && !strings.HasPrefix(src.Path, ".") {
			src.Path = filepath.Join(filepath.FromSlash(root), src.Path)
		}
		if src.Path == "" || !filepath.IsLocal(src.Path) {
			return src, fmt.Errorf("%s: the source %q is not a path below the marketplace", e.Name, src.Path)
		}
		return src, nil
	}
	if err := json.Unmarshal(e.Source, &src); err != nil {
		return src, fmt.Errorf("%s: the source is neither a path nor an object: %w", e.Name, err)
	}
	_, err := src.address()
	if err == nil && src.Path != "" && !filepath.IsLocal(filepath.FromSlash(src.Path)) {
		err = fmt.Errorf("the path %q is not one below the repository", src.Path)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", e.Name, err)
	}
	return src, err
}

// address returns the URL of a git repository.
func (s *Source) address() (url string, err error) {
	switch s.Source {
	case "github":
		if !repoPattern().MatchString(s.Repo) {
			return "", fmt.Errorf("%q is not a repository of GitHub, such as owner/name", s.Repo)
		}
		url = "https://github.com/" + s.Repo + ".git"
	case "git", "url", "git-subdir":
		url = s.URL
	default:
		return "", fmt.Errorf("plugins from %q cannot be installed; directories and git repositories can", s.Source)
	}
	if !urlPattern().MatchString(url) || strings.Contains(url, "::") {
		return "", fmt.Errorf("%q is not the address of a git repository: use https://, ssh://, file:// or user@host:path", url)
	}
	for _, ref := range []string{s.Ref, s.SHA} {
		if ref != "" && !refPattern().MatchString(ref) {
			return "", fmt.Errorf("%q is not a branch, tag or commit", ref)
		}
	}
	return url, nil
}

// ParseSource parses the source of a marketplace, as a person writes it: a directory,
// owner/name on GitHub, or the address of a git repository, which may end in #REF.
func ParseSource(text, cwd string) (Source, error) {
	path := text
	if !filepath.IsAbs(path) {
		path = filepath.Join(cwd, path)
	}
	if info, err := os.Stat(path); err == nil {
		if !info.IsDir() && filepath.Base(path) == "marketplace.json" {
			path = filepath.Dir(filepath.Dir(path))
		}
		return Source{Source: "directory", Path: path}, nil
	}
	where, ref, _ := strings.Cut(text, "#")
	src := Source{Source: "git", URL: where, Ref: ref}
	if repoPattern().MatchString(where) {
		src = Source{Source: "github", Repo: where, Ref: ref}
	}
	if _, err := src.address(); err != nil {
		return src, fmt.Errorf("%q is neither a directory nor owner/name on GitHub nor the address of a git repository (https://, ssh://, file:// or user@host:path)", text)
	}
	return src, nil
}

// Add adds a marketplace, or updates it, and returns its name.
func (s *Store) Add(ctx context.Context, src Source) (string, error) {
	dir := src.Path
	if src.Source != "directory" {
		tmp, err := s.clone(ctx, src)
		if err != nil {
			return "", err
		}
		defer os.RemoveAll(tmp)
		dir = tmp
	}
	m, err := ReadManifest(dir)
	if err != nil {
		return "", err
	}
	markets, err := s.Markets()
	if err != nil {
		return "", err
	}
	if have, ok := markets[m.Name]; ok && have.Source != src {
		return "", fmt.Errorf("there is another marketplace with the name %s; \"parley plugin marketplace remove %s\" removes it", m.Name, m.Name)
	}
	if src.Source != "directory" {
		place := filepath.Join(s.Dir, "marketplaces", m.Name)
		if err := replace(dir, place); err != nil {
			return "", err
		}
		dir = place
	}
	return m.Name, s.edit("known_marketplaces.json", func(doc map[string]json.RawMessage) error {
		doc[m.Name], err = json.Marshal(Market{src, dir, now()})
		return err
	})
}

// Markets returns the marketplaces that were added, by name.
func (s *Store) Markets() (map[string]Market, error) {
	all := map[string]Market{}
	return all, s.read("known_marketplaces.json", &all)
}

// RemoveMarket removes a marketplace. Its installed plugins stay.
func (s *Store) RemoveMarket(name string) error {
	return s.edit("known_marketplaces.json", func(doc map[string]json.RawMessage) error {
		if doc[name] == nil {
			return fmt.Errorf("no marketplace is named %s; \"parley plugin marketplace list\" lists them", name)
		}
		delete(doc, name)
		return os.RemoveAll(filepath.Join(s.Dir, "marketplaces", filepath.Base(name)))
	})
}

// Find returns the marketplace to install a plugin from. If market is empty, it is the only
// one that lists the plugin.
func (s *Store) Find(plugin, market string) (string, error) {
	markets, err := s.Markets()
	if err != nil {
		return "", err
	}
	if market != "" {
		if _, ok := markets[market]; !ok {
			return "", fmt.Errorf("no marketplace is named %s; \"parley plugin marketplace add\" adds one", market)
		}
		return market, nil
	}
	var found []string
	for name, m := range markets {
		if list, err := ReadManifest(m.InstallLocation); err == nil && list.entry(plugin) != nil {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	switch len(found) {
	case 0:
		return "", fmt.Errorf("no marketplace lists the plugin %s; \"parley plugin marketplace add\" adds one", plugin)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("several marketplaces list the plugin %s; install %s", plugin, plugin+"@"+strings.Join(found, " or "+plugin+"@"))
}

func (m *Manifest) entry(name string) *Entry {
	if i := slices.IndexFunc(m.Plugins, func(e Entry) bool { return e.Name == name }); i >= 0 {
		return &m.Plugins[i]
	}
	return nil
}

// Install copies a plugin of a marketplace and returns its location. check may reject the
// copy before it replaces the installed version.
func (s *Store) Install(ctx context.Context, plugin, market string, check func(dir string) error) (*Installed, error) {
	markets, err := s.Markets()
	if err != nil {
		return nil, err
	}
	m, err := ReadManifest(markets[market].InstallLocation)
	if err != nil {
		return nil, err
	}
	e := m.entry(plugin)
	if e == nil {
		names := make([]string, len(m.Plugins))
		for i := range m.Plugins {
			names[i] = m.Plugins[i].Name
		}
		return nil, fmt.Errorf("the marketplace %s does not list the plugin %s; use one of: %s", market, plugin, strings.Join(names, ", "))
	}
	src, err := e.from(m)
	if err != nil {
		return nil, err
	}
	from := markets[market].InstallLocation
	if src.Source != "directory" {
		if from, err = s.clone(ctx, src); err != nil {
			return nil, err
		}
		defer os.RemoveAll(from)
	}
	tmp, err := s.temp()
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	if err := copyTree(from, src.Path, tmp); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the plugin %s: the marketplace lists %s, which does not exist; correct its source in .claude-plugin/marketplace.json", plugin, cmp.Or(src.Path, "."))
	} else if err != nil {
		return nil, fmt.Errorf("the plugin %s: %w", plugin, err)
	}
	if err := check(tmp); err != nil {
		return nil, err
	}
	var manifest struct{ Version string }
	if text, err := os.ReadFile(filepath.Join(tmp, ".claude-plugin", "plugin.json")); err == nil {
		_ = json.Unmarshal(text, &manifest) // check has parsed it
	}
	version := cmp.Or(manifest.Version, e.Version)
	if !namePattern().MatchString(version) {
		version = "unknown"
	}
	in := &Installed{Scope: "user", InstallPath: filepath.Join(s.Dir, "cache", market, plugin, version), Version: version, InstalledAt: now(), LastUpdated: now()}
	if err := replace(tmp, in.InstallPath); err != nil {
		return nil, err
	}
	return in, s.editInstalled(func(all map[string]json.RawMessage) error {
		all[plugin+"@"+market], err = json.Marshal([]*Installed{in})
		return err
	})
}

// Installed returns the installed plugins, by NAME@MARKETPLACE.
func (s *Store) Installed() (map[string]Installed, error) {
	var doc struct {
		Plugins map[string][]Installed `json:"plugins"`
	}
	err := s.read("installed_plugins.json", &doc)
	all := map[string]Installed{}
	for id, list := range doc.Plugins {
		for _, in := range list {
			if in.Scope == "user" {
				all[id] = in
			}
		}
	}
	return all, err
}

// Remove removes a plugin.
func (s *Store) Remove(id string) error {
	return s.editInstalled(func(all map[string]json.RawMessage) error {
		if all[id] == nil {
			return fmt.Errorf("the plugin %s is not installed", id)
		}
		delete(all, id)
		plugin, market, _ := strings.Cut(id, "@")
		if !namePattern().MatchString(plugin) || !namePattern().MatchString(market) {
			return nil
		}
		return os.RemoveAll(filepath.Join(s.Dir, "cache", market, plugin))
	})
}

func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000Z") }

// read reads a JSON file; one that does not exist is empty.
func (s *Store) read(name string, into any) error {
	path := filepath.Join(s.Dir, name)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && len(bytes.TrimSpace(text)) > 0 {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w. Fix the file, or remove it", path, err)
	}
	return nil
}

// edit changes a JSON file atomically. Unknown members stay.
func (s *Store) edit(name string, f func(doc map[string]json.RawMessage) error) error {
	if s.Dir == "" {
		return errors.New("there is no home directory to save plugins in; set HOME or CLAUDE_CONFIG_DIR")
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	ctx, cancel := context.WithTimeout(context.Background(), maxLock)
	defer cancel()
	unlock, err := filelock.Acquire(ctx, root, ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	doc := map[string]json.RawMessage{}
	if err := s.read(name, &doc); err != nil {
		return err
	}
	if err := f(doc); err != nil {
		return err
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(s.Dir, name+".*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(append(text, '\n'))
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), filepath.Join(s.Dir, name))
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

func (s *Store) editInstalled(f func(all map[string]json.RawMessage) error) error {
	return s.edit("installed_plugins.json", func(doc map[string]json.RawMessage) error {
		all := map[string]json.RawMessage{}
		if raw := doc["plugins"]; raw != nil {
			if err := json.Unmarshal(raw, &all); err != nil {
				return fmt.Errorf("installed_plugins.json: %w", err)
			}
		}
		if err := f(all); err != nil {
			return err
		}
		raw, err := json.Marshal(all)
		doc["version"], doc["plugins"] = json.RawMessage("2"), raw
		return err
	})
}

// temp creates a directory on the same file system, so that it can be renamed.
func (s *Store) temp() (string, error) {
	if s.Dir == "" {
		return "", errors.New("there is no home directory to save plugins in; set HOME or CLAUDE_CONFIG_DIR")
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return "", err
	}
	return os.MkdirTemp(s.Dir, "new-*")
}

// replace moves a directory to a place and removes what was there.
func replace(dir, place string) error {
	if err := os.MkdirAll(filepath.Dir(place), 0o700); err != nil {
		return err
	}
	if err := os.RemoveAll(place); err != nil {
		return err
	}
	if err := os.Rename(dir, place); err != nil {
		return err
	}
	return os.Chmod(place, 0o700)
}

// copyTree copies a directory below root: only regular files, without .git.
func copyTree(root, sub, to string) error {
	bound, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer bound.Close()
	from, err := bound.OpenRoot(cmp.Or(filepath.FromSlash(sub), "."))
	if err != nil {
		return err
	}
	defer from.Close()
	count, size := 0, int64(0)
	return fs.WalkDir(from.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		place := filepath.Join(to, filepath.FromSlash(path))
		info, err := d.Info()
		if err != nil {
			return err
		}
		if count++; count > maxFiles {
			return fmt.Errorf("it has more than %d files", maxFiles)
		}
		switch {
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(place, 0o700)
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is not a regular file; links cannot be installed", path)
		}
		if size += info.Size(); size > maxBytes {
			return fmt.Errorf("it is larger than %d MB", maxBytes>>20)
		}
		text, err := from.ReadFile(filepath.FromSlash(path))
		if err != nil {
			return err
		}
		return os.WriteFile(place, text, 0o600|info.Mode().Perm()&0o100)
	})
}

// String returns the path, the repository or the address.
func (s Source) String() string { return cmp.Or(s.Repo, s.URL, s.Path) }
