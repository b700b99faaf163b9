package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/parley-go/parley/internal/regular"
)

// An access is what a command may do with a path and everything below it.
type access int

const (
	writable access = iota + 1
	readOnly
	hidden
)

// A plan holds the file access of a command. Everything that it does not name is
// read-only.
type plan struct {
	entries    map[string]access // by clean, resolved path; the most specific entry applies
	held       []*placeholder    // for paths that did not exist
	weak       []string          // paths that cannot be protected, with the reason
	home       string            // of the user; may be empty
	gitConfigs []string          // git's configuration of the user
}

// protectedNames are names that a command must not write in a directory that it may
// write to, because other programs execute or obey these files. For those of git, see
// [plan.protectGit].
var (
	protectedNames = append([]string{".claude", "CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", ".mcp.json", ".vscode", ".idea"}, homeFiles...)
	homeFiles      = []string{
		".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".profile",
		".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".gitconfig", ".ripgreprc",
	}
)

// protectedHome are names that a command must not write in the user's home directory,
// if it may write to that directory.
var protectedHome = []string{".ssh", ".gnupg", ".netrc", ".claude.json", ".config/git", ".config/claude", ".config/fish", ".config/autostart", ".config/systemd"}

// Protected lists the names that commands cannot write to in a working directory,
// whether they exist or not; those of git are the ones of a repository there.
func Protected() []string {
	return append(slices.Clone(protectedNames), ".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir")
}

// newPlan returns an empty plan for a user with this home directory, which may be
// empty.
func newPlan(home string) *plan {
	p := &plan{entries: map[string]access{}, home: home}
	if home != "" {
		p.gitConfigs = []string{filepath.Join(home, ".gitconfig"), filepath.Join(home, ".config/git/config")}
	}
	return p
}

// makePlan returns a plan for the present files. With hold, it creates placeholders for
// missing paths that must not be created; the caller releases them.
func (s *Sandbox) makePlan(roots []string, hold bool) (*plan, error) {
	p := newPlan(s.opts.Home)
	fs := &s.set.Filesystem
	if fs.Disabled {
		p.entries["/"] = writable
	}
	var work, all []string
	for _, dir := range roots {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			work = append(work, real)
		}
	}
	for _, path := range fs.AllowWrite {
		if real, err := filepath.EvalSymlinks(s.absolute(path)); err == nil {
			work = append(work, real)
		}
	}
	for _, dir := range work {
		if common := linkedRepository(dir); common != "" {
			work = append(work, common)
		}
	}
	all = slices.Clone(work)
	for _, dir := range s.opts.Temp {
		if real, err := filepath.EvalSymlinks(dir); err == nil && filepath.IsAbs(real) {
			all = append(all, real)
		}
	}

	var deny []string
	for _, pattern := range fs.DenyWrite {
		paths, err := s.expand(pattern)
		if err != nil {
			return nil, err
		}
		deny = append(deny, paths...)
	}
	for _, path := range all {
		real, err := filepath.EvalSymlinks(path)
		if err == nil && !slices.ContainsFunc(deny, func(d string) bool { return within(resolved(d), real) }) {
			p.entries[real] = writable
		}
	}
	if !fs.Disabled {
		s.protectWork(p, work, hold)
	}
	for _, path := range append(deny, s.opts.Protect...) {
		p.protect(path, false, nil, hold)
	}
	if err := s.hide(p); err != nil {
		p.release()
		return nil, err
	}
	return p, nil
}

// protectWork protects files with which a command could change later ones: below the
// directories that are written, and in the home directory if it is one of them.
func (s *Sandbox) protectWork(p *plan, work []string, hold bool) {
	explicit := map[string]bool{}
	for _, path := range s.set.Filesystem.AllowWrite {
		explicit[resolved(s.absolute(path))] = true
	}
	protect := func(path string, file bool) { p.protect(path, file, explicit, hold) }
	homes := []string{}
	if s.opts.Home != "" {
		if home := resolved(s.opts.Home); p.access(home) == writable {
			homes = append(homes, home)
		}
	}
	for _, root := range append(slices.Clone(work), homes...) {
		if info, err := os.Stat(root); err != nil || !info.IsDir() {
			continue
		}
		if base := filepath.Base(root); base != ".git" { // of a linked worktree
			for _, name := range protectedNames {
				// In a home directory, programs look for these files and expect
				// regular ones.
				protect(filepath.Join(root, name), slices.Contains(homes, root) && slices.Contains(homeFiles, name))
			}
			p.protectGit(root, protect)
			for _, repo := range nestedRepositories(root) {
				p.protectGit(repo, protect)
			}
		} else {
			p.protectGitDir(root, filepath.Dir(root), protect)
		}
	}
	for _, home := range homes {
		for _, name := range protectedHome {
			protect(filepath.Join(home, name), name == ".netrc" || name == ".claude.json")
		}
	}
	// Git finds a repository above a working directory.
	for _, dir := range s.opts.Temp {
		real := resolved(dir)
		if slices.ContainsFunc(work, func(root string) bool { return root != real && within(real, root) }) {
			p.protectGit(real, protect)
		}
	}
}

// hide adds the paths that must not be read.
func (s *Sandbox) hide(p *plan) error {
	fs := &s.set.Filesystem
	patterns := append(slices.Clone(fs.DenyRead), s.opts.Hide...)
	for _, c := range s.set.Credentials.Files {
		patterns = append(patterns, c.Path)
	}
	shown := map[string]bool{}
	for _, path := range fs.AllowRead {
		shown[resolved(s.absolute(path))] = true
	}
	for _, pattern := range patterns {
		paths, err := s.expand(pattern)
		if err != nil {
			return err
		}
		for _, path := range paths {
			if real, err := filepath.EvalSymlinks(path); err == nil && !shown[real] {
				p.entries[real] = hidden
			}
		}
	}
	for path := range shown {
		if _, err := os.Lstat(path); err == nil && p.access(path) == hidden && p.entries[path] == 0 {
			p.entries[path] = readOnly
		}
	}
	return nil
}

// absolute returns the absolute form of a path in the settings.
func (s *Sandbox) absolute(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok && s.opts.Home != "" {
		path = filepath.Join(s.opts.Home, rest)
	} else if path == "~" && s.opts.Home != "" {
		path = s.opts.Home
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.opts.Dir, path)
	}
	return filepath.Clean(path)
}

// expand returns the paths that match a pattern of the settings; one without wildcards
// stands for itself.
func (s *Sandbox) expand(pattern string) ([]string, error) {
	path := s.absolute(pattern)
	if !strings.ContainsAny(path, "*?[{") {
		return []string{path}, nil
	}
	if _, err := os.Lstat(path); err == nil {
		return []string{path}, nil // a name that only looks like a pattern
	}
	base, rest := doublestar.SplitPattern(filepath.ToSlash(path))
	found, err := doublestar.Glob(os.DirFS(base), rest, doublestar.WithNoFollow())
	if err != nil {
		return nil, fmt.Errorf("sandbox: the pattern %q of the settings: %w", pattern, err)
	}
	for i, f := range found {
		found[i] = filepath.Join(base, f)
	}
	return found, nil
}

// access returns the access to a path.
func (p *plan) access(path string) access {
	for {
		if a := p.entries[path]; a != 0 {
			return a
		}
		if path == filepath.Dir(path) {
			return readOnly
		}
		path = filepath.Dir(path)
	}
}

// protect makes a path read-only if it would be writable. With hold, a missing path is
// created first: as a directory, which no program uses, or as a file where programs
// expect one.
func (p *plan) protect(path string, file bool, explicit map[string]bool, hold bool) {
	// Its parents may be missing or be links.
	dir := filepath.Dir(path)
	switch info, err := os.Lstat(path); {
	case err == nil && info.Mode()&os.ModeSymlink != 0:
		real, err := filepath.EvalSymlinks(path)
		if p.access(resolved(dir)) == writable {
			p.weak = append(p.weak, path+" is a symbolic link, which can be replaced")
		}
		if err == nil && p.access(real) == writable && p.entries[real] != writable {
			p.entries[real] = readOnly
		}
		return
	case err == nil:
		real := resolved(path)
		if a := p.access(real); a == writable && !explicit[real] {
			if p.entries[real] == writable && explicit == nil || p.entries[real] == 0 {
				p.entries[real] = readOnly
			}
		}
		if placeheld(info) && hold {
			if ph, err := holdPlace(path, file); err == nil {
				p.held = append(p.held, ph)
			}
		}
		return
	}
	if _, err := os.Lstat(dir); err != nil {
		if parent := filepath.Dir(dir); parent != dir {
			p.protect(dir, false, explicit, hold)
		}
		return
	}
	real := filepath.Join(resolved(dir), filepath.Base(path))
	if p.access(real) != writable || explicit[real] {
		return
	}
	p.entries[real] = readOnly
	if !hold {
		return
	}
	ph, err := holdPlace(real, file)
	if err != nil {
		// A user who cannot create it here cannot create it inside, either.
		delete(p.entries, real)
		return
	}
	p.held = append(p.held, ph)
}

func (p *plan) release() {
	for _, ph := range p.held {
		ph.release()
	}
}

// A mount is a step in the order of mounts.
type mount struct {
	path   string
	access access
}

// mounts returns the entries, and the directories that must stay in place because
// something below them is protected, outer ones first.
func (p *plan) mounts() []mount {
	all := map[string]access{}
	for path, a := range p.entries {
		all[path] = a
		// A mount point cannot be moved away with its content.
		for dir := filepath.Dir(path); dir != filepath.Dir(dir) && p.entries[dir] == 0; dir = filepath.Dir(dir) {
			if p.access(dir) == writable {
				all[dir] = writable
			}
		}
	}
	var list []mount
	for path, a := range all {
		list = append(list, mount{path, a})
	}
	slices.SortStableFunc(list, func(a, b mount) int { return strings.Compare(a.path+"/", b.path+"/") })
	return list
}

// protectGit protects the files of a repository that git executes or obeys.
func (p *plan) protectGit(dir string, protect func(string, bool)) {
	git := filepath.Join(dir, ".git")
	info, err := os.Lstat(git)
	switch {
	case err != nil || placeheld(info):
		protect(git, false)
		// With these files a directory is a repository itself.
		protect(filepath.Join(dir, "HEAD"), false)
		return
	case info.Mode()&os.ModeSymlink != 0, !info.IsDir():
		protect(git, false)
	}
	if real, err := filepath.EvalSymlinks(git); err == nil {
		if info, err := os.Stat(real); err == nil && info.IsDir() {
			p.protectGitDir(real, dir, protect)
		}
	}
}

// protectGitDir protects the directory of a repository and those of its modules.
func (p *plan) protectGitDir(git, tree string, protect func(string, bool)) {
	protect(filepath.Join(git, "hooks"), false)
	protect(filepath.Join(git, "config"), false)
	protect(filepath.Join(git, "commondir"), true)
	for _, file := range append([]string{filepath.Join(git, "config"), filepath.Join(git, "config.worktree")}, p.gitConfigs...) {
		for _, path := range configPaths(file, git, tree, p.home) {
			protect(path, false)
		}
	}
	protect(filepath.Join(git, "config.worktree"), true)
	for _, pattern := range []string{"worktrees/*/commondir", "worktrees/*/gitdir", "worktrees/*/config.worktree"} {
		found, _ := filepath.Glob(filepath.Join(escape(git), pattern))
		for _, path := range found {
			protect(path, true)
		}
	}
	p.protectModules(filepath.Join(git, "modules"), 4, protect)
}

// protectModules protects the repositories of submodules, whose names may have slashes.
func (p *plan) protectModules(dir string, depth int, protect func(string, bool)) {
	modules, _ := os.ReadDir(dir)
	for _, m := range modules {
		switch sub := filepath.Join(dir, m.Name()); {
		case !m.IsDir():
		case exists(filepath.Join(sub, "HEAD")):
			p.protectGitDir(sub, "", protect)
		case depth > 1:
			p.protectModules(sub, depth-1, protect)
		}
	}
}

// escape returns a pattern that matches only the given path.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// configPaths returns the paths that a configuration makes git execute or obey in a
// work tree: its hooks directory, and included files.
func configPaths(file, git, tree, home string) (paths []string) {
	for _, v := range configValues(file) {
		base := ""
		switch v.section + "." + v.key {
		case "core.hookspath":
			base = tree
		case "include.path", "includeif.path":
			base = filepath.Dir(file)
		}
		if rest, ok := strings.CutPrefix(v.value, "~/"); ok && home != "" {
			v.value = filepath.Join(home, rest)
		}
		switch {
		case base == "" || v.value == "" || strings.HasPrefix(v.value, "~"):
		case filepath.IsAbs(v.value):
			paths = append(paths, filepath.Clean(v.value))
		default:
			paths = append(paths, filepath.Join(base, v.value))
		}
	}
	return paths
}

// nestedRepositories returns directories near the top of a directory that are
// repositories themselves. It checks a limited number.
func nestedRepositories(root string) []string {
	var found []string
	budget := 400
	var look func(dir string, depth int)
	look = func(dir string, depth int) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return
		}
		for _, e := range entries {
			if budget == 0 {
				return
			}
			if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || e.Name() == "node_modules" {
				continue
			}
			budget--
			sub := filepath.Join(dir, e.Name())
			if exists(filepath.Join(sub, ".git")) {
				found = append(found, sub)
			}
			if depth > 1 {
				look(sub, depth-1)
			}
		}
	}
	look(root, 2)
	return found
}

// linkedRepository returns the repository of which a directory is an additional work
// tree. The repository must name the work tree in return: a file that only claims it
// makes nothing writable.
func linkedRepository(dir string) string {
	file := filepath.Join(dir, ".git")
	text, err := regular.Read(file, 8192)
	if err != nil {
		return ""
	}
	git, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "gitdir: ")
	if !ok {
		return ""
	}
	if !filepath.IsAbs(git) {
		git = filepath.Join(dir, git)
	}
	if git, err = filepath.EvalSymlinks(git); err != nil {
		return ""
	}
	back, err := regular.Read(filepath.Join(git, "gitdir"), 8192)
	if err != nil || resolved(strings.TrimSpace(string(back))) != resolved(file) {
		return ""
	}
	common := filepath.Dir(filepath.Dir(git))
	if filepath.Base(common) != ".git" || filepath.Base(filepath.Dir(git)) != "worktrees" || !exists(filepath.Join(common, "HEAD")) {
		return ""
	}
	return common
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// resolved follows links as far as the path exists.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	dir := filepath.Dir(path)
	if dir == path {
		return path
	}
	return filepath.Join(resolved(dir), filepath.Base(path))
}

// resolvedIn is resolved for a relative path below a directory that is resolved. It looks only
// below that directory, unless there is a link.
func resolvedIn(dir, name string) string {
	path := dir
	for part := range strings.SplitSeq(filepath.ToSlash(name), "/") {
		path = filepath.Join(path, part)
		switch info, err := os.Lstat(path); {
		case err != nil:
			return filepath.Join(dir, name)
		case info.Mode()&os.ModeSymlink != 0:
			return resolved(filepath.Join(dir, name))
		}
	}
	return path
}
