package settings

import (
	"context"
	"crypto/rand"
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

	"github.com/parley-go/parley/internal/filelock"
	"github.com/parley-go/parley/wire"
)

// An Item is a part of a project that is inert until it is trusted: a hook, an MCP
// server, an environment variable, an allow rule. Its hash covers its text, and the
// files of the project that it names to run: if one of them changes, it is a different
// item.
type Item struct {
	Kind    string `json:"kind"` // "hook", "mcp server", "env", "allow", "mode", "directory", "sandbox", "setting" or "file"
	Name    string `json:"name"` // short name
	Text    string `json:"text"` // the complete text
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Hash    string `json:"hash"`
	Trusted bool   `json:"trusted"`
	Never   bool   `json:"never,omitempty"` // it never applies if it comes from a project, trusted or not
}

// trust records which items of a project are trusted, and all items that were found.
type trust struct {
	dir    string // of the project
	all    bool
	hashes map[string]bool
	sure   map[string]bool // trusted by the caller that started the conversation, in addition to the record
	files  bool            // all files, such as skills, are trusted
	items  []*Item         // of the project, whether they apply or not
}

func newTrust(opts Options) *trust {
	return &trust{dir: opts.Dir, all: opts.TrustProject == "all", hashes: map[string]bool{}, sure: map[string]bool{}}
}

func (t *trust) has(hash string) bool { return t.all || t.hashes[hash] || t.sure[hash] }

// sift determines which parts of the layers apply.
func (s *loader) sift() error {
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
			return fmt.Errorf("the content of the project in %s has the digest %s, not the trusted %s. Look at it with \"parley trust --show\"", s.opts.Dir, have, want)
		}
		s.trust.all = true
		s.siftLayers()
	}
	return nil
}

func (s *loader) siftLayers() {
	s.trust.items, s.merged = nil, nil
	for _, l := range s.layers {
		switch {
		case l.Layer.ofProject():
			l.active = (&sieve{layer: l, trusts: s.trust.check}).settings()
		case l.restrict:
			l.active = (&sieve{layer: l, trusts: func(*layer, *Value, *Item) bool { return false }}).settings()
		default:
			l.active = l.all
		}
		s.merged = merge(s.merged, l.active)
	}
	if s.servers != nil {
		s.servers.active = (&sieve{layer: s.servers, trusts: s.trust.check}).servers()
	}
	if s.merged == nil {
		s.merged = &Value{members: map[string]*Value{}}
	}
}

// check decides whether an item of the project is trusted, and records the item.
func (t *trust) check(l *layer, v *Value, item *Item) bool {
	item.File, item.Line = l.File, v.Line
	if item.Text == "" {
		item.Text = string(v.Raw())
	}
	item.Hash = t.hash(item)
	item.Trusted = !item.Never && t.has(item.Hash)
	t.items = append(t.items, item)
	return item.Trusted
}

// hash returns the hash of an item, including the files of the project that its text
// names if it runs something.
func (t *trust) hash(item *Item) string {
	h := sha256.New()
	fmt.Fprintf(h, "parley trust 1\x00%s\x00%s\x00%s\x00", item.Kind, item.Name, item.Text)
	if item.Kind == "hook" || item.Kind == "mcp server" || item.Kind == "setting" {
		for _, path := range namedFiles(t.dir, item.Text) {
			sum, err := hashFile(path)
			if err != nil {
				sum = "unreadable"
			}
			rel, _ := filepath.Rel(t.dir, path)
			fmt.Fprintf(h, "%s\x00%s\x00", filepath.ToSlash(rel), sum)
		}
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// namedFiles returns the regular files of the project that words of a text name, such as the
// script in "bash .claude/hooks/check.sh". Files that these run in turn are not
// checked.
func namedFiles(dir, text string) []string {
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
		for _, path := range []string{filepath.Join(dir, w), w} {
			rel, err := filepath.Rel(dir, path)
			if err != nil || !filepath.IsLocal(rel) {
				continue
			}
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				found[filepath.Join(dir, rel)] = true
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

// free are settings of a project that apply at once: they restrict, or are a matter of
// taste.
var free = map[string]bool{
	"$schema": true, "disabledMcpjsonServers": true, "deniedMcpServers": true,
	"outputStyle": true, "language": true, "includeCoAuthoredBy": true, "attribution": true, "includeGitInstructions": true, "respectGitignore": true,
}

// never are settings that do not apply if they come from a project, even if it is
// trusted: they answer for the user, lift restrictions of the user or the
// administrator, produce credentials or choose where those go, or run a command that is
// not a hook.
var never = map[string]bool{
	"enableAllProjectMcpServers": true, "enabledMcpjsonServers": true, "allowedMcpServers": true, "disableAllHooks": true, "allowManagedHooksOnly": true,
	"allowManagedPermissionRulesOnly": true, "allowManagedMcpServersOnly": true, "skipDangerousModePermissionPrompt": true,
	"skipAutoPermissionPrompt": true, "policyHelper": true, "cleanupPeriodDays": true, "compressSessionsAfterDays": true,
	"apiKeyHelper": true, "awsAuthRefresh": true, "awsCredentialExport": true, "gcpAuthRefresh": true, "proxyAuthHelper": true, "otelHeadersHelper": true,
	"autoMemoryEnabled": true, "autoMemoryDirectory": true, "enabledPlugins": true, "extraKnownMarketplaces": true, "statusLine": true, "subagentStatusLine": true, "fileSuggestion": true, "forceLoginMethod": true, "forceLoginOrgUUID": true,
}

// A sieve returns the part of a layer that applies: restrictions, and trusted items.
type sieve struct {
	*layer
	trusts func(*layer, *Value, *Item) bool
}

// trusted returns a value, or nil if it is not trusted.
func (s *sieve) trusted(v *Value, item *Item) *Value {
	if s.trusts(s.layer, v, item) {
		return v
	}
	return nil
}

func (s *sieve) settings() *Value { return s.all.only(s.setting) }

func (s *sieve) setting(name string, v *Value) *Value {
	switch {
	case name == "permissions" && v.members != nil:
		return v.only(s.permission)
	case name == "hooks" && v.members != nil:
		return v.only(func(event string, groups *Value) *Value {
			return groups.pick(func(group *Value) *Value { return s.hooks(event, group) })
		})
	case name == "env" && v.members != nil:
		return v.only(func(name string, e *Value) *Value {
			return s.trusted(e, &Item{Kind: "env", Name: name, Text: name + "=" + string(e.Raw())})
		})
	case name == "sandbox" && v.members != nil:
		return s.sandbox(v)
	case name == "disableSkillShellExecution" && v.truth() || free[name]:
		return v
	case s.Layer == Managed && (name == "disableAllHooks" || strings.HasPrefix(name, "allowManaged") || name == "allowedMcpServers"):
		return v
	}
	return s.trusted(v, &Item{Kind: "setting", Name: name, Never: never[name]})
}

func (s *sieve) permission(name string, v *Value) *Value {
	items := func(kind string) *Value {
		return v.pick(func(r *Value) *Value { t, _ := r.text(); return s.trusted(r, &Item{Kind: kind, Name: t, Text: t}) })
	}
	switch name {
	case "deny", "ask", "disableBypassPermissionsMode", "disableAutoMode":
		return v
	case "denyInsteadOfPrompting":
		if v.truth() {
			return v
		}
		return nil
	case "allow":
		return items("allow")
	case "additionalDirectories":
		return items("directory")
	case "defaultMode":
		t, _ := v.text()
		mode := wire.PermissionMode(t)
		return s.trusted(v, &Item{Kind: "mode", Name: t, Text: t, Never: mode == wire.ModeBypassPermissions || mode == wire.ModeAuto})
	}
	return s.trusted(v, &Item{Kind: "setting", Name: "permissions." + name})
}

// hooks returns a group of hooks with those that are trusted, or nil.
func (s *sieve) hooks(event string, group *Value) *Value {
	title := event
	if matcher, _ := group.Get("matcher").text(); matcher != "" {
		title += "(" + matcher + ")"
	}
	kept := group.Get("hooks").pick(func(h *Value) *Value {
		command, _ := h.Get("command").text()
		return s.trusted(h, &Item{Kind: "hook", Name: strings.TrimSpace(title + " " + command), Text: title + " " + string(h.Raw())})
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
}

func (s *sieve) sandbox(v *Value) *Value {
	if s.restrict {
		return v
	}
	v = withoutNever(v, func(name string, m *Value) {
		s.trusts(s.layer, m, &Item{Kind: "sandbox", Name: name, Text: name + " " + string(m.Raw()), Never: true})
	})
	strict := tighten(v)
	if len(v.names) == 0 || strict != nil && string(strict.Raw()) == string(v.Raw()) || s.trusts(s.layer, v, &Item{Kind: "sandbox", Name: "sandbox"}) {
		return v
	}
	return strict
}

// servers returns the trusted MCP servers of .mcp.json.
func (s *sieve) servers() *Value {
	return s.all.only(func(name string, v *Value) *Value {
		if name != "mcpServers" || v.members == nil {
			return nil
		}
		return v.only(func(name string, srv *Value) *Value {
			return s.trusted(srv, &Item{Kind: "mcp server", Name: name, Text: name + " " + string(srv.Raw())})
		})
	})
}

// neverSandbox are members of a sandbox that do not apply if they come from a project,
// even if it is trusted: they choose how the sandbox is built, or open it to the
// network.
var neverSandbox = map[string]bool{
	"bwrapPath": true, "socatPath": true, "ripgrep": true, "allowNestedUserNamespaces": true,
	"network.httpProxyPort": true, "network.socksProxyPort": true, "network.allowAllUnixSockets": true,
}

// withoutNever returns the settings of a sandbox without the members that never apply,
// and calls report with each of those.
func withoutNever(v *Value, report func(name string, m *Value)) *Value {
	var walk func(prefix string, v *Value) *Value
	walk = func(prefix string, v *Value) *Value {
		return v.only(func(name string, m *Value) *Value {
			full := prefix + name
			switch {
			case neverSandbox[full] && string(m.scalar) != "false" || strings.HasPrefix(full, "network.allowed"):
				report(full, m)
				return nil
			case full == "credentials.envVars":
				return m.pick(func(item *Value) *Value {
					if mode, _ := item.Get("mode").text(); mode == "allow" {
						report(full, item)
						return nil
					}
					return item
				})
			case prefix == "" && m.members != nil:
				return walk(name+".", m)
			}
			return m
		})
	}
	return walk("", v)
}

// tighten returns the settings of a sandbox that only make it stricter, or nil.
func tighten(v *Value) *Value {
	isTrue := func(v *Value) bool { return v.truth() }
	isFalse := func(v *Value) bool { return string(v.scalar) == "false" }
	list := func(v *Value) bool { return v.array }
	strict := map[string]func(*Value) bool{
		"enabled": isTrue, "failIfUnavailable": isTrue, "allowUnsandboxedCommands": isFalse, "autoAllowBashIfSandboxed": isFalse,
		"enableWeakerNestedSandbox": isFalse, "enableWeakerNetworkIsolation": isFalse,
		"credentials.files": list, "credentials.envVars": list,
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

// Brought returns the items of the project that need trust, and whether each has it.
func (s *Settings) Brought() []Item {
	if s == nil {
		return nil
	}
	items := make([]Item, len(s.trust.items))
	for i, it := range s.trust.items {
		items[i] = *it
	}
	return items
}

// Untrusted returns the items of the project that have no effect.
func (s *Settings) Untrusted() []Item {
	return slices.DeleteFunc(s.Brought(), func(it Item) bool { return it.Trusted })
}

// fileDirs are the directories of a project whose files others read: commands, skills,
// agents and styles.
var fileDirs = []string{"agents", "commands", "output-styles", "skills"}

// ProjectFiles returns the files below .claude that instruct an agent, as items.
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
			items = append(items, s.trust.fileItem(path, content))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return items, nil
}

func (t *trust) fileItem(path string, content []byte) Item {
	sum := sha256.Sum256(content)
	rel, _ := filepath.Rel(t.dir, path)
	it := Item{Kind: "file", Name: filepath.ToSlash(rel), Text: hex.EncodeToString(sum[:]), File: path}
	it.Hash = t.hash(&it)
	it.Trusted = t.files || t.has(it.Hash)
	return it
}

// TrustsFile reports whether a file of the project, such as a skill, is trusted with
// the given content. Callers check this before they run the commands of the file or
// apply its rules. A file in the user's config directory is trusted. Any other file
// outside of the project is not, because no person has seen it.
func (s *Settings) TrustsFile(path string, content []byte) bool {
	if s == nil {
		return false
	}
	inside := func(dir string) bool {
		rel, err := filepath.Rel(dir, path)
		return dir != "" && err == nil && filepath.IsLocal(rel)
	}
	// A project may contain the config directory, and vice versa: the inner one
	// decides.
	if inside(s.opts.UserDir) && (!inside(s.opts.Dir) || len(s.opts.UserDir) >= len(s.opts.Dir)) {
		return true
	}
	return inside(s.opts.Dir) && s.trust.fileItem(path, content).Trusted
}

// Digest returns one hash of all items of the project that need trust.
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

// A Store records what a person trusts, in a file in the config directory of the user,
// outside of every project.
type Store struct {
	Dir string           // the config directory
	Now func() time.Time // nil means time.Now
}

// A Record lists the trusted items of one project.
type Record struct {
	Items map[string]Entry `json:"items"` // by hash
}

// An Entry is a trusted item.
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

// project returns the directory under which a project is recorded. A directory below it
// is a different project.
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
		err = fmt.Errorf("it has version %d; this program supports version 1", doc.Version)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the record of trust cannot be read: %w. Fix the file, or remove it and run \"parley trust\" again", st.Path(), err)
	}
	if doc.Projects == nil {
		doc.Projects = map[string]*Record{}
	}
	return doc, nil
}

// Hashes returns the hashes of the trusted items of a project.
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

// Projects returns the records, by directory.
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

// Trust records items of a project as trusted. They replace its earlier record; with
// more, they are added to it.
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

// Revoke removes the record of a project. It reports whether there was one.
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

// lockWait is how long to wait for a lock. A lock ends with its holder, so a long wait
// means that many processes compete for it.
const lockWait = 2 * time.Minute

func lock(root *os.Root, name string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	return filelock.Acquire(ctx, root, name)
}

// change changes the record atomically, one process at a time.
func (st *Store) change(f func(*recordFile)) error {
	if err := os.MkdirAll(st.Dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(st.Dir)
	if err != nil {
		return err
	}
	defer root.Close()
	name := filepath.Base(st.Path())
	unlock, err := lock(root, name+".lock")
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
	return writeFile(root, name, append(text, '\n'), 0o600)
}

// writeFile writes a file atomically.
func writeFile(root *os.Root, name string, text []byte, mode fs.FileMode) error {
	var random [8]byte
	rand.Read(random[:])
	tmp := name + "." + hex.EncodeToString(random[:])
	f, err := root.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = root.Rename(tmp, name)
	}
	if err != nil {
		root.Remove(tmp)
	}
	return err
}
