package sandbox

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/parley-go/parley/internal/regular"
)

// A right is what a command may do with a path and everything below it.
type right uint8

const (
	toList  right = iota + 1 // list directories
	toRead                   // also read and execute files
	toWrite                  // also change files
)

// A grant gives a right to a path, which is resolved. Without a grant, access is
// denied.
type grant struct {
	path  string
	right right
}

// system are the directories of the programs on this machine, and files that programs
// read about the machine. /etc is handled separately.
var system = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/gnu/store", "/run/current-system",
	"/proc", "/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage",
	"/var/lib/dpkg", "/var/lib/rpm", "/var/lib/pacman/local", "/var/cache/man",
	// macOS
	"/System", "/Library/Apple", "/Library/Developer/CommandLineTools", "/Library/Frameworks", "/Applications/Xcode.app", "/opt/homebrew", "/opt/local",
	"/var/db/dyld", "/var/db/timezone", "/var/db/xcode_select_link", "/var/select",
}

// devices can be opened by everybody, also for writing.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// secrets are files and directories in a home directory that contain credentials.
var secrets = []string{
	".ssh", ".gnupg", ".aws", ".azure", ".kube", ".netrc", ".npmrc", ".yarnrc.yml", ".pypirc", ".git-credentials", ".vault-token", ".password-store", ".pgpass", ".my.cnf",
	".docker/config.json", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".terraform.d/credentials.tfrc.json", ".m2/settings.xml", ".gradle/gradle.properties",
	".config/git/credentials", ".config/gcloud", ".config/gh", ".config/glab-cli", ".config/hub", ".config/op", ".config/rclone", ".config/doctl", ".config/heroku",
	".config/google-chrome", ".config/chromium", ".config/BraveSoftware", ".mozilla", ".local/share/keyrings", ".local/share/kwalletd", "Library/Keychains", "Library/Application Support/Google/Chrome", "Library/Application Support/Firefox", "Library/Cookies", ".claude/.credentials.json", ".config/claude/config.json",
}

// companions are files and directories in a home directory that tools read which are on
// the PATH and also in a home directory.
var companions = []string{
	".rustup", ".tool-versions", ".asdfrc", ".python-version", ".node-version", ".nvmrc", ".ruby-version", ".nvm", ".pyenv", ".rbenv", ".nodenv", ".jenv", ".goenv",
	".sdkman", ".volta", ".asdf", ".deno", ".bun", ".local/share/mise", ".config/mise", ".config/go/env", ".config/ripgrep", ".ripgreprc", ".local/lib", ".local/pipx/venvs", ".local/share/pipx/venvs",
	".npm-global", ".local/share/uv/tools", ".local/share/uv/python",
}

// base returns the grants of every command: the system, the tools on the PATH with
// their installation, and git's configuration. It takes some milliseconds.
func (w *Wall) base() []grant {
	hide := w.hidden()
	var grants []grant
	read := func(path string) {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			grants = append(grants, around(real, toRead, hide)...)
		}
	}
	for _, dir := range system {
		read(dir)
	}
	for _, name := range devices {
		if real, err := filepath.EvalSymlinks(name); err == nil {
			grants = append(grants, grant{real, toWrite})
		}
	}
	grants = append(grants, etcGrants(hide)...)
	for _, dir := range w.toolDirs() {
		read(dir)
	}
	for _, file := range w.gitFiles() {
		read(file)
	}
	for _, path := range w.opts.Read {
		read(path)
	}
	return compact(grants)
}

// hidden returns the paths that can never be read, resolved.
func (w *Wall) hidden() []string {
	var hide []string
	if w.opts.Home != "" {
		home := resolved(w.opts.Home)
		for _, name := range secrets {
			hide = append(hide, resolvedIn(home, name))
		}
	}
	for _, path := range w.opts.Hide {
		hide = append(hide, resolved(path))
	}
	return hide
}

// refresh is how long the grants of every command are cached, and how long those of /etc are:
// together a minute.
const refresh = 30 * time.Second

// etcCache holds the grants of /etc, for all walls that hide nothing else in it.
var etcCache struct {
	sync.Mutex
	asOf   time.Time
	grants []grant
}

// etcGrants returns the grants of /etc: everything that is not hidden, and that not only its owner
// and group can read.
func etcGrants(hide []string) []grant {
	etc := resolved("/etc") // a link on macOS
	find := func() []grant { return around(etc, toRead, slices.Concat(hide, closed(etc))) }
	if slices.ContainsFunc(hide, func(h string) bool { return within(etc, h) || within(h, etc) }) {
		return find()
	}
	c := &etcCache
	c.Lock()
	defer c.Unlock()
	if c.grants == nil || time.Since(c.asOf) > refresh {
		c.asOf, c.grants = time.Now(), find()
	}
	return c.grants
}

// closed lists the entries of a directory that only their owner and group can read.
func closed(dir string) (list []string) {
	filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return fs.SkipDir // we cannot read it, either
		}
		if path == dir || e.Type()&fs.ModeSymlink != 0 {
			return nil
		}
		info, err := e.Info()
		switch {
		case err != nil:
		case info.IsDir() && info.Mode()&0o005 != 0o005:
			list = append(list, path)
			return fs.SkipDir
		case !info.IsDir() && info.Mode()&0o004 == 0:
			list = append(list, path)
		}
		return nil
	})
	return list
}

// around grants a right to a path except for hidden paths in it. If something below a
// directory is hidden, its entries are granted one by one, and the directory itself can
// be listed. Entries that are created later are not granted.
func around(path string, r right, hide []string) []grant {
	if slices.ContainsFunc(hide, func(h string) bool { return within(h, path) }) {
		return nil
	}
	inside := slices.DeleteFunc(slices.Clone(hide), func(h string) bool { return !within(path, h) || !exists(h) })
	if len(inside) == 0 {
		return []grant{{path, r}}
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil
	}
	grants := []grant{{path, toList}}
	for _, e := range entries {
		if e.Type()&fs.ModeSymlink == 0 { // the target of a link is decided separately
			grants = append(grants, around(filepath.Join(path, e.Name()), r, inside)...)
		}
	}
	return grants
}

// compact removes grants that another one covers.
func compact(grants []grant) []grant {
	slices.SortStableFunc(grants, func(a, b grant) int {
		if c := strings.Compare(a.path+"/", b.path+"/"); c != 0 {
			return c
		}
		return int(b.right) - int(a.right)
	})
	var out []grant
	var above []grant // the grants that apply to the path
	for _, g := range grants {
		for len(above) > 0 && !within(above[len(above)-1].path, g.path) {
			above = above[:len(above)-1]
		}
		if len(above) > 0 && above[len(above)-1].right >= g.right {
			continue
		}
		out, above = append(out, g), append(above, g)
	}
	return out
}

// toolDirs returns the directories of the PATH, with the installation directories of
// the programs in them.
func (w *Wall) toolDirs() []string {
	var dirs []string
	add := func(dir string) {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || !filepath.IsAbs(real) || slices.Contains(dirs, real) {
			return
		}
		dirs = append(dirs, real)
	}
	prefix := func(dir string) {
		switch filepath.Base(dir) {
		case "bin", "sbin", "shims", "libexec", "scripts", "Scripts", "cmd", ".bin":
		default:
			add(dir)
			return
		}
		if parent := filepath.Dir(dir); w.narrow(parent) {
			add(parent)
		} else {
			add(dir)
		}
	}
	for _, dir := range filepath.SplitList(w.opts.Path) {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || !filepath.IsAbs(dir) || real == "/" || w.opts.Home != "" && within(real, resolved(w.opts.Home)) {
			continue
		}
		prefix(real)
		if slices.ContainsFunc(system, func(s string) bool { return within(s, real) }) {
			continue // its links lead to other directories of the system
		}
		entries, _ := os.ReadDir(real)
		for _, e := range entries[:min(len(entries), 2000)] {
			if e.Type()&fs.ModeSymlink == 0 {
				continue
			}
			target, err := filepath.EvalSymlinks(filepath.Join(real, e.Name()))
			if err == nil && !within(real, target) && w.narrow(filepath.Dir(target)) {
				prefix(filepath.Dir(target))
			}
		}
	}
	if w.opts.Home != "" {
		home := resolved(w.opts.Home)
		for _, name := range companions {
			if path := filepath.Join(home, name); exists(path) {
				add(path)
			}
		}
	}
	return dirs
}

// narrow reports whether a directory can be granted as a whole: it contains no home
// directories, temporary files or files of more than one program.
func (w *Wall) narrow(dir string) bool {
	switch dir {
	case "/", "/home", "/root", "/tmp", "/var", "/var/tmp", "/opt", "/srv", "/mnt", "/media", "/run", "/etc", "/Users", "/private", "/private/tmp", "/private/var", "/private/var/tmp", "/private/etc", "/Library", "/Applications", "/Volumes":
		return false
	}
	if w.opts.Home == "" {
		return true
	}
	home := resolved(w.opts.Home)
	for _, broad := range []string{"", ".local", ".config", ".local/share", "Library", "Documents"} {
		if dir == filepath.Join(home, broad) {
			return false
		}
	}
	return !within(dir, home)
}

// gitFiles returns the user's git configuration and the files that it names.
func (w *Wall) gitFiles() []string {
	var todo, files []string
	if w.opts.Home != "" {
		todo = append(todo, filepath.Join(w.opts.Home, ".gitconfig"), filepath.Join(w.opts.Home, ".config/git/config"))
		files = append(files, filepath.Join(w.opts.Home, ".config/git/ignore"), filepath.Join(w.opts.Home, ".config/git/attributes"))
	}
	todo = append(todo, w.opts.GitConfig...)
	for i := 0; i < len(todo) && i < 32; i++ {
		file := todo[i]
		files = append(files, file)
		for _, v := range configValues(file) {
			value := v.value
			if rest, ok := strings.CutPrefix(value, "~/"); ok && w.opts.Home != "" {
				value = filepath.Join(w.opts.Home, rest)
			} else if !filepath.IsAbs(value) {
				value = filepath.Join(filepath.Dir(file), value)
			}
			switch v.section + "." + v.key {
			case "include.path", "includeif.path":
				if !slices.Contains(todo, value) {
					todo = append(todo, value)
				}
			case "core.excludesfile", "core.attributesfile", "commit.template", "mailmap.file", "blame.ignorerevsfile", "core.hookspath", "gpg.allowedsignersfile":
				files = append(files, value)
			}
		}
	}
	// The configuration may name a directory, or another file, to make it readable.
	return slices.DeleteFunc(files, func(f string) bool {
		info, err := os.Stat(f)
		return err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20
	})
}

// A configValue is a value of git's configuration.
type configValue struct{ section, key, value string }

// configValues parses a git configuration, well enough to find paths in it. Sections
// and keys are in lower case, sections without the quoted part.
func configValues(file string) (values []configValue) {
	text, err := regular.Read(file, 1<<20)
	if err != nil {
		return nil
	}
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			head, rest, _ := strings.Cut(line[1:], "]")
			name, _, _ := strings.Cut(head, " ")
			section, line = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(rest)
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		values = append(values, configValue{section, strings.ToLower(strings.TrimSpace(key)), strings.Trim(strings.TrimSpace(value), `"`)})
	}
	return values
}

// grants returns the grants of a command, in addition to those of every command.
func (w *Wall) grants(v *View, cache *lookout) []grant {
	hide := w.hidden()
	var patterns []string
	for _, h := range v.Hide {
		if path, ok := literal(h); ok {
			hide = append(hide, resolved(path))
		} else {
			patterns = append(patterns, filepath.ToSlash(h))
		}
	}
	r := toRead
	if v.Write {
		r = toWrite
	}
	var grants []grant
	add := func(path string, r right) {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			return
		}
		more := hide
		if r == toWrite {
			// No file could be created in a directory whose entries are granted one by
			// one.
			more = slices.DeleteFunc(slices.Clone(hide), func(h string) bool { return within(real, h) })
		} else if len(patterns) > 0 {
			more = append(slices.Clone(hide), cache.find(real, patterns)...)
		}
		grants = append(grants, around(real, r, more)...)
	}
	for _, root := range v.Roots {
		add(root, r)
		for _, dir := range repositories(root) {
			add(dir, r)
		}
	}
	for _, path := range v.Read {
		add(path, toRead)
	}
	return compact(grants)
}

// literal returns the path of a pattern without wildcards.
func literal(pattern string) (path string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case strings.IndexByte("*?[{", c) >= 0:
			return "", false
		case c == '\\' && i+1 < len(pattern) && filepath.Separator == '/':
			i++
		}
		b.WriteByte(pattern[i])
	}
	return b.String(), true
}

// repositories returns directories outside of a root that git needs in it: the
// repository of which the root is a work tree, a module or a part. Each must name the
// work tree in return, or be above the root: a file in a project alone makes no other
// directory readable.
func repositories(root string) (dirs []string) {
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil
	}
	for dir := real; ; dir = filepath.Dir(dir) {
		git := filepath.Join(dir, ".git")
		if info, err := os.Lstat(git); err == nil {
			switch {
			case info.IsDir():
				if dir != real && exists(filepath.Join(git, "HEAD")) {
					dirs = append(dirs, git)
				}
			case info.Mode().IsRegular():
				if common := linkedRepository(dir); common != "" {
					dirs = append(dirs, git, common)
				} else if module := moduleRepository(dir); module != "" {
					dirs = append(dirs, git, module)
				}
			}
			return dirs
		}
		if dir == filepath.Dir(dir) {
			return dirs
		}
	}
}

// moduleRepository returns the repository of a submodule, whose configuration names the
// work tree in return.
func moduleRepository(dir string) string {
	git := gitFile(filepath.Join(dir, ".git"))
	if git == "" || !exists(filepath.Join(git, "HEAD")) {
		return ""
	}
	for _, v := range configValues(filepath.Join(git, "config")) {
		if v.section == "core" && v.key == "worktree" {
			tree := v.value
			if !filepath.IsAbs(tree) {
				tree = filepath.Join(git, tree)
			}
			if resolved(tree) == resolved(dir) {
				return git
			}
		}
	}
	return ""
}

// gitFile returns the directory that a .git file names, resolved, or "".
func gitFile(file string) string {
	text, err := regular.Read(file, 8192)
	if err != nil {
		return ""
	}
	git, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "gitdir: ")
	if !ok {
		return ""
	}
	if !filepath.IsAbs(git) {
		git = filepath.Join(filepath.Dir(file), git)
	}
	real, err := filepath.EvalSymlinks(git)
	if err != nil {
		return ""
	}
	return real
}

// A lookout finds files in directories that patterns hide. It caches directories, and
// reads those again that have changed.
type lookout struct {
	dirs     map[string]*seenDir
	patterns []string
}

// A seenDir is a cached directory.
type seenDir struct {
	changed time.Time
	hidden  []string
	below   []string
}

// settled is how old the last change of a directory must be for another change to be
// noticed: the clock of file systems is coarse.
const settled = 50 * time.Millisecond

// find returns the paths in a directory that the patterns hide.
func (l *lookout) find(dir string, patterns []string) (hidden []string) {
	if l.dirs == nil || !slices.Equal(patterns, l.patterns) {
		l.dirs, l.patterns = map[string]*seenDir{}, slices.Clone(patterns)
	}
	todo := []string{dir}
	for len(todo) > 0 {
		dir := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			delete(l.dirs, dir)
			continue
		}
		seen := l.dirs[dir]
		if seen == nil || !info.ModTime().Equal(seen.changed) || time.Since(seen.changed) < settled {
			seen = l.read(dir, info.ModTime())
			l.dirs[dir] = seen
		}
		hidden, todo = append(hidden, seen.hidden...), append(todo, seen.below...)
	}
	return hidden
}

func (l *lookout) read(dir string, changed time.Time) *seenDir {
	seen := &seenDir{changed: changed}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return seen
	}
	objects := filepath.Base(dir) == ".git"
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch slashed := filepath.ToSlash(name); {
		case slices.ContainsFunc(l.patterns, func(p string) bool { return hides(p, slashed) }):
			seen.hidden = append(seen.hidden, name)
		case e.IsDir() && !(objects && e.Name() == "objects"):
			seen.below = append(seen.below, name)
		}
	}
	return seen
}

// hides reports whether a pattern matches a path, or everything in it.
func hides(pattern, name string) bool {
	if last := path.Base(pattern); last != "**" && !strings.ContainsAny(last, "*?[{\\") {
		if last != path.Base(name) {
			return false
		}
	}
	ok, _ := doublestar.Match(pattern, name)
	if !ok {
		if dir, all := strings.CutSuffix(pattern, "/**"); all {
			ok, _ = doublestar.Match(dir, name)
		}
	}
	return ok
}
