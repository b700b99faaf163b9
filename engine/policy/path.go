package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/parley-go/parley/engine/policy/shell"
	"github.com/parley-go/parley/engine/tool"
)

// restricts reports whether a rule about files that denies or asks is about a way to
// touch one. A rule against reading is one against writing, too: what may not be
// seen may not be replaced.
func restricts(r *Rule, kind tool.Kind) bool {
	return isReadTool(r.Tool) && (kind == tool.Read || kind == tool.Write) || isEditTool(r.Tool) && kind == tool.Write
}

// covers reports whether a rule about files that allows is about a way to touch one.
func covers(r *Rule, kind tool.Kind) bool {
	return isReadTool(r.Tool) && kind == tool.Read || isEditTool(r.Tool) && kind == tool.Write
}

// Hides reports whether a rule denies that a file is read. Tools that look at many
// files leave it out. Of the request the roots, the home and Resolved count. target
// is the file that the path leads to, if that is known; without an Info its names are
// looked up.
func (p *Policy) Hides(req *Request, path string, target *tool.Target) bool {
	j := newJudgement(req, &ruleset{})
	if target != nil {
		j.real, j.links = map[string]string{path: target.Path}, map[string]string{}
		if target.Info != nil {
			j.stats = map[string]os.FileInfo{path: target.Info}
		}
	}
	for q := p; q != nil; q = q.parent {
		for _, r := range q.load().deny {
			if r.Content != "" && restricts(r, tool.Read) && j.touches(r, path) {
				return true
			}
		}
	}
	return false
}

// Hidden returns absolute patterns of the files that must not be read, by the rules that
// deny it. In them * ? [ { are wildcards unless a backslash is before them.
func (p *Policy) Hidden(req *Request) (patterns []string) {
	j := newJudgement(req, &ruleset{})
	for q := p; q != nil; q = q.parent {
		for _, r := range q.load().deny {
			if r.Content != "" && isFileTool(r.Tool) && restricts(r, tool.Read) {
				patterns = append(patterns, j.patterns(r, true)...)
			}
		}
	}
	return patterns
}

// touches reports whether a rule about files that restricts is about a path, however
// it is reached: as it is written or with links followed, relative to any root, by
// another name of the same file, in other case where that is the same.
func (j *judgement) touches(r *Rule, path string) bool { return j.matches(r, j.place(path)) }

// A disk is what a decision sees of the file system: it looks at every path once.
type disk struct {
	req    *Request
	real   map[string]string // paths with links followed
	links  map[string]string // where links lead
	stats  map[string]os.FileInfo
	folds  map[string]bool // directories whose names are the same in other case
	places map[string]*place

	script *shell.Script          // the one that these are of
	texts  map[string][]*place    // what texts in it may have in them
	words  map[looseWord][]*place // what words of it may be
	near   []string               // directories that its programs are given
	nears  bool                   // whether near was looked for
}

// about says of which script words are looked at.
func (j *disk) about(s *shell.Script) {
	if j.script != s {
		j.script, j.texts, j.words, j.near, j.nears = s, map[string][]*place{}, map[looseWord][]*place{}, nil, false
	}
}

// A place is a path that a call may touch, looked at once for a decision.
type place struct {
	path, clean, real string // as it is written, without what means nothing, with links followed
	away              bool   // whether it leads to what another program has open
	names             bool   // whether the file has several names
	folds             bool   // whether its name in other case is the same
}

// place looks at a path.
func (j *disk) place(path string) *place {
	p := j.places[path]
	if p == nil {
		if j.places == nil {
			j.places = map[string]*place{}
		}
		p = &place{path: path, clean: filepath.Clean(path), real: j.resolve(path)}
		p.away = j.leadsAway(path)
		if fi := j.stat(p.clean); fi != nil && !fi.IsDir() && links(fi) > 1 {
			p.names = true
		}
		p.folds = j.foldsCase(p.clean)
		j.places[path] = p
	}
	return p
}

// matches reports whether a rule about files that restricts is about a place.
func (j *judgement) matches(r *Rule, p *place) bool {
	globs := j.wide(r)
	for _, g := range globs {
		if g.match(p.clean) || p.real != p.clean && g.match(p.real) || p.names && j.linked(g.text, p.clean) {
			return true
		}
	}
	// In other case it is the same file on some file systems.
	if p.folds {
		for _, g := range globs {
			if g.matchFolded(p.clean) || p.real != p.clean && g.matchFolded(p.real) {
				return true
			}
		}
	}
	return false
}

// foldsCase reports the same as the function, looking once for each directory.
func (j *disk) foldsCase(path string) bool {
	dir := filepath.Dir(path)
	folds, ok := j.folds[dir]
	if !ok {
		for _, root := range j.req.Roots { // which are on one file system, as a rule
			if below(root, dir) {
				dir = root
				break
			}
		}
		if folds, ok = j.folds[dir]; !ok {
			folds = foldsCase(dir)
		}
		if j.folds == nil {
			j.folds = map[string]bool{}
		}
		j.folds[dir], j.folds[filepath.Dir(path)] = folds, folds
	}
	return folds
}

// within reports whether a rule about files that allows surely covers a path: as it
// is written and with links followed.
func (j *judgement) within(r *Rule, path string) bool {
	given := path
	path = filepath.Clean(path)
	lexical := slices.ContainsFunc(j.patterns(r, false), func(pattern string) bool { return matchGlob(pattern, path) })
	if !lexical {
		return false
	}
	real := j.resolve(given)
	if real == path {
		return true
	}
	// The rule's own directories may be links: what is below them is meant.
	return slices.ContainsFunc(j.patterns(r, false), func(pattern string) bool {
		base, rest := doublestar.SplitPattern(pattern)
		return matchGlob(pattern, real) || matchGlob(escape(j.resolve(unescape(base)))+"/"+rest, real)
	})
}

// wide returns the patterns of a rule that restricts, made once for a decision.
func (j *judgement) wide(r *Rule) []*glob {
	all, ok := j.globs[r]
	if !ok {
		if j.globs == nil {
			j.globs = map[*Rule][]*glob{}
		}
		lexical := j.set.lexical(r, j.req)
		all = lexical
		for _, g := range lexical {
			if other := j.followed(g.text); other != "" {
				all = append(all[:len(all):len(all)], newGlob(other))
			}
		}
		j.globs[r] = all
	}
	return all
}

// patterns returns the absolute patterns that a rule about files stands for: "//x" is
// absolute, "~/x" in the home, "/x" begins where the rule's source says, "x" and
// "./x" where the conversation began; a name without a slash is at any depth, as in a
// .gitignore file. A rule that restricts is about every root, as they are written and
// with links followed.
func (j *judgement) patterns(r *Rule, wide bool) []string {
	all := r.patterns(j.req, wide)
	if wide {
		for _, p := range slices.Clone(all) {
			if other := j.followed(p); other != "" {
				all = append(all, other)
			}
		}
	}
	return all
}

// patterns returns the absolute patterns of a rule without links followed.
func (r *Rule) patterns(req *Request, wide bool) []string {
	pattern := filepath.ToSlash(r.Content)
	var all []string
	add := func(base, rest string) {
		p := strings.TrimSuffix(escape(base), "/") + "/" + rest
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	switch {
	case strings.HasPrefix(pattern, "//"):
		return []string{pattern[1:]}
	case pattern == "~", strings.HasPrefix(pattern, "~/"):
		if req.Home != "" {
			add(req.Home, strings.TrimPrefix(pattern[1:], "/"))
		}
		return all
	}
	rooted := strings.HasPrefix(pattern, "/")
	relative := strings.HasPrefix(pattern, "./") || strings.HasPrefix(pattern, "../")
	if !rooted && !relative && pattern != "**" && !strings.Contains(strings.TrimSuffix(strings.TrimSuffix(pattern, "/**"), "/"), "/") {
		pattern = "**/" + pattern
	}
	pattern = strings.TrimPrefix(strings.TrimPrefix(pattern, "./"), "/")
	if rooted && r.Source.Base != "" {
		add(r.Source.Base, pattern)
		if !wide {
			return all
		}
	}
	for i, root := range req.Roots {
		if i > 0 && !wide {
			break
		}
		p := pattern
		for base := root; ; base = filepath.Dir(base) {
			rest, up := strings.CutPrefix(p, "../")
			if !up {
				add(base, p)
				break
			}
			p = rest
		}
	}
	return all
}

// followed returns what a pattern stands for when the links in its fixed beginning are
// followed, or nothing if that is the same.
func (j *disk) followed(p string) string {
	if literal(p) {
		if real := j.resolve(p); real != filepath.Clean(p) {
			return escape(real)
		}
		return ""
	}
	base, rest := doublestar.SplitPattern(p)
	if base = unescape(base); base == "/" {
		return ""
	}
	if real := j.resolve(base); real != base {
		return strings.TrimSuffix(escape(real), "/") + "/" + rest
	}
	return ""
}

// lexical returns the patterns of a rule that restricts, without links followed. They are
// kept for the next decision about the same directories.
func (s *ruleset) lexical(r *Rule, req *Request) []*glob {
	if s == nil {
		s = &ruleset{}
	}
	key := strings.Join(req.Roots, "\x00") + "\x00\x00" + req.Home
	kept := s.kept.Load()
	if kept == nil || kept.key != key {
		kept = &keptGlobs{key: key}
		s.kept.Store(kept)
	}
	if globs, ok := kept.byRule.Load(r); ok {
		return globs.([]*glob)
	}
	var globs []*glob
	for _, p := range r.patterns(req, true) {
		globs = append(globs, newGlob(p))
	}
	kept.byRule.Store(r, globs)
	return globs
}

// keptGlobs are patterns of rules for some directories.
type keptGlobs struct {
	key    string
	byRule sync.Map // of *Rule to []*glob
}

// literal reports whether a pattern stands for one path.
func literal(pattern string) bool { return !strings.ContainsAny(pattern, `*?[{\`) }

// linked reports whether a path is another name of a file that a pattern names. Of
// names at any depth, those at the top and beside the path are looked at.
func (j *disk) linked(pattern, path string) bool {
	fi := j.stat(path)
	if fi == nil || fi.IsDir() || links(fi) < 2 {
		return false
	}
	same := func(other string) bool {
		o := j.stat(other)
		return o != nil && os.SameFile(fi, o)
	}
	if literal(pattern) {
		return same(pattern)
	}
	base, name, ok := strings.Cut(pattern, "/**/")
	if !ok || !literal(base) || !literal(name) {
		return false
	}
	return same(filepath.Join(base, name)) || below(base, path) && same(filepath.Join(filepath.Dir(path), name))
}

// stat looks at a file, once for a decision.
func (j *disk) stat(path string) os.FileInfo {
	if t, ok := j.req.Resolved[path]; ok && t.Path != "" {
		return t.Info
	}
	fi, ok := j.stats[path]
	if !ok {
		if j.stats == nil {
			j.stats = map[string]os.FileInfo{}
		}
		fi, _ = os.Stat(path)
		j.stats[path] = fi
	}
	return fi
}

// foldsCase reports whether the file system of a path takes names in other case as
// the same.
func foldsCase(path string) bool {
	for p := path; p != filepath.Dir(p); p = filepath.Dir(p) {
		base := filepath.Base(p)
		other := strings.Map(func(r rune) rune {
			if unicode.IsUpper(r) {
				return unicode.ToLower(r)
			}
			return unicode.ToUpper(r)
		}, base)
		if other == base {
			continue
		}
		x, err := os.Stat(p)
		if err != nil {
			continue
		}
		y, err := os.Stat(filepath.Join(filepath.Dir(p), other))
		return err == nil && os.SameFile(x, y)
	}
	return false
}

// protected returns a file that a call would change and that says what programs
// run, unless a rule allows it by its name.
func (j *judgement) protected() string {
	for _, a := range j.req.Access {
		switch {
		case a.Kind == tool.Write && a.Path != "":
			if name := protectedName(a.Path, j.resolve(a.Path)); name != "" && !j.allowedByName(name, a.Path) {
				return a.Path
			}
		case a.Kind == tool.Execute:
			for _, f := range writes(j.script(a.Command)) {
				if name := protectedName(f, j.resolve(f)); name != "" && !j.allowedByName(name, f) {
					return f
				}
			}
		}
	}
	return ""
}

// allowedByName reports whether a rule allows the change of a protected file, and
// names what is protected about it.
func (j *judgement) allowedByName(name, path string) bool {
	return slices.ContainsFunc(j.set.allow, func(r *Rule) bool {
		return strings.Contains(r.Content, name) && covers(r, tool.Write) && j.within(r, path)
	})
}

// protectedName returns what makes a file one that says what programs run: of a
// repository, of an agent, of an editor, of a shell.
func protectedName(paths ...string) string {
	for _, path := range paths {
		path = filepath.ToSlash(path)
		for dir := range strings.SplitSeq(path, "/") {
			switch lower := strings.ToLower(strings.TrimRight(dir, ". ")); lower {
			case ".git", "git~1", ".hg", ".svn", ".claude", ".parley", ".vscode", ".idea", ".husky",
				".devcontainer", ".ssh", ".cargo", ".yarn", ".zed", ".cursor", ".fleet":
				return lower
			}
		}
		switch base := strings.ToLower(filepath.Base(path)); base {
		case ".gitmodules", ".gitconfig", ".mcp.json", ".claude.json", ".envrc", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases",
			".zshrc", ".zshenv", ".zprofile", ".zlogin", ".profile", ".inputrc", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".netrc", ".ripgreprc",
			".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".xprofile", ".xinitrc", ".vimrc", ".exrc",
			".gdbinit", ".lldbinit", ".curlrc", ".wgetrc", ".hgrc", ".pre-commit-config.yaml",
			".nvimrc", ".nvim.lua", ".emacs", ".dir-locals.el", ".bazelrc", ".lefthook.yml",
			"lefthook.yml", ".pnp.cjs", ".pnpmfile.cjs", ".justfile", ".mise.toml", ".pdbrc", ".irbrc", ".pythonrc", ".tmux.conf", ".screenrc":
			return base
		}
	}
	return ""
}

// outside returns a path of the call that is in none of the roots.
func (j *judgement) outside() string {
	for _, a := range j.req.Access {
		switch {
		case a.Path != "":
			if !j.inside(a.Path) {
				return a.Path
			}
		case a.Kind == tool.Execute && j.shell != nil:
			for _, f := range paths(j.shell) {
				if !j.inside(f) {
					return f
				}
			}
		}
	}
	return ""
}

func (j *disk) inside(path string) bool {
	return slices.ContainsFunc(j.req.Roots, func(root string) bool {
		return below(root, filepath.Clean(path)) && below(j.resolve(root), j.resolve(path))
	})
}

func below(root, path string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// isFile reports whether a path is that of a file that is no directory.
func isFile(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && !fi.IsDir()
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// resolve follows the links of a path, looking at each only once for a decision.
func (j *disk) resolve(path string) string {
	if t := j.req.Resolved[path]; t.Path != "" {
		return t.Path
	}
	if real, ok := j.real[path]; ok {
		return real
	}
	if j.real == nil {
		j.real, j.links = map[string]string{}, map[string]string{}
	}
	real := follow(path, func(p string) string {
		to, ok := j.links[p]
		if !ok {
			to = j.link(p)
			j.links[p] = to
		}
		return to
	})
	j.real[path] = real
	return real
}

// link returns where a link leads, or nothing. What it sees of a file that is none is
// kept.
func (j *disk) link(path string) string {
	fi, err := os.Lstat(path)
	if err == nil && fi.Mode()&os.ModeSymlink != 0 {
		to, _ := os.Readlink(path)
		return to
	}
	if j.stats == nil {
		j.stats = map[string]os.FileInfo{}
	}
	if _, ok := j.stats[path]; !ok {
		j.stats[path] = fi // nil if there is none
	}
	return ""
}

// isDir and isFile look at a file once for a decision.
func (j *disk) isDir(path string) bool {
	fi := j.stat(filepath.Clean(j.resolve(path)))
	return fi != nil && fi.IsDir()
}

func (j *disk) isFile(path string) bool {
	fi := j.stat(filepath.Clean(j.resolve(path)))
	return fi != nil && !fi.IsDir()
}

// resolve follows the links of a path as far as it exists. A link that leads to
// nothing is followed, too: what is written through it is made there.
func resolve(path string) string { return follow(path, link) }

// link returns where a link leads, or nothing.
func link(path string) string {
	fi, err := os.Lstat(path)
	if err != nil || fi.Mode()&os.ModeSymlink == 0 {
		return ""
	}
	to, _ := os.Readlink(path)
	return to
}

// follow goes through a path as a kernel does: a .. behind a link leads out of
// where the link leads.
func follow(path string, link func(string) string) string {
	if !filepath.IsAbs(path) || filepath.VolumeName(path) != "" {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return real
		}
		return filepath.Clean(path)
	}
	real, rest := "/", path
	for hops := 0; rest != ""; {
		var part string
		part, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
		switch part {
		case "", ".":
			continue
		case "..":
			real = filepath.Dir(real)
			continue
		}
		next := real + "/" + part
		if real == "/" {
			next = "/" + part
		}
		to := link(next)
		if to == "" {
			real = next
			continue
		}
		if hops++; hops > 40 {
			return filepath.Clean(path)
		}
		if filepath.IsAbs(to) {
			real = "/"
		}
		rest = to + "/" + rest
	}
	return real
}

// escape writes a path as a pattern that matches it alone.
func escape(path string) string {
	if !strings.ContainsAny(path, `*?[]{}\!^`) {
		return path
	}
	var b strings.Builder
	for _, r := range path {
		if strings.ContainsRune(`*?[]{}\!^`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// unescape is the way back.
func unescape(pattern string) string {
	if !strings.Contains(pattern, `\`) {
		return pattern
	}
	var b strings.Builder
	quoted := false
	for _, r := range pattern {
		if r == '\\' && !quoted {
			quoted = true
			continue
		}
		quoted = false
		b.WriteRune(r)
	}
	return b.String()
}
