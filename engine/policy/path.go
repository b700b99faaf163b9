package policy

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/parley-go/parley/engine/tool"
)

// restricts reports whether a deny or ask rule about files applies to an access of that kind. A
// rule against reading is also one against writing: a file that must not be read must not be
// replaced.
func restricts(r *Rule, kind tool.Kind) bool {
	return isReadTool(r.Tool) && (kind == tool.Read || kind == tool.Write) || isEditTool(r.Tool) && kind == tool.Write
}

// covers reports whether an allow rule about files applies to an access of that kind.
func covers(r *Rule, kind tool.Kind) bool {
	return isReadTool(r.Tool) && kind == tool.Read || isEditTool(r.Tool) && kind == tool.Write
}

// Hides reports whether a rule denies reading a file. Tools that search many files leave it out. Of
// the request only Roots, Home and Resolved are used. target is the file that the path resolves to,
// if known; without an Info its hard links are looked up.
func (p *Policy) Hides(req *Request, path string, target *tool.Target) bool {
	for q := p; q != nil; q = q.parent {
		set := q.load()
		j := newJudgement(req, set)
		if target != nil {
			*j.at(path) = sight{real: target.Path}
			if target.Info != nil {
				*j.at(target.Path) = sight{looked: true, entry: entryOf(target.Info), real: target.Path}
			}
		}
		for _, r := range set.deny {
			if r.Content != "" && restricts(r, tool.Read) && j.touches(r, path) {
				return true
			}
		}
		j.forget()
	}
	return false
}

// Hidden returns absolute patterns of the files that deny rules protect from being read. In them *
// ? [ { are wildcards unless escaped by a backslash.
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

// touches reports whether a deny or ask rule about files matches a path, however it is reached: as
// written or with links followed, relative to any root, by another hard link of the same file, or
// in another case if the file system ignores it.
func (j *judgement) touches(r *Rule, path string) bool { return j.fits(j.wide(r), j.placeOf(path)) }

// fits reports whether a place matches one of the patterns of a deny or ask rule.
func (j *disk) fits(globs []*glob, p *place) bool {
	for _, g := range globs {
		if g.match(p.clean) || p.real != p.clean && g.match(p.real) || p.names && j.linked(g.text, p.clean) {
			return true
		}
	}
	// Some file systems ignore the case of names.
	for _, g := range globs {
		if (g.upper || p.upper) && (g.matchFolded(p.clean) || p.real != p.clean && g.matchFolded(p.real)) && j.foldsCase(p.clean) {
			return true
		}
	}
	return false
}

// within reports whether an allow rule about files certainly covers a path: as written and with
// links followed.
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
	// The rule's own directories may be links; the rule covers what is below their targets.
	return slices.ContainsFunc(j.patterns(r, false), func(pattern string) bool {
		base, rest := doublestar.SplitPattern(pattern)
		return matchGlob(pattern, real) || matchGlob(escape(j.resolve(unescape(base)))+"/"+rest, real)
	})
}

// wide returns the patterns of a deny or ask rule. They are built once for a decision.
func (j *judgement) wide(r *Rule) []*glob {
	lexical, ok := j.kept.rules[r]
	if !ok {
		lexical.globs, lexical.index = r.globs(j.req), -1
	} else if all := j.globs[lexical.index]; all != nil {
		return all
	}
	all := lexical.globs
	for _, g := range lexical.globs {
		if other := j.followed(g); other != "" {
			all = append(all[:len(all):len(all)], newGlob(other))
		}
	}
	if ok {
		j.globs[lexical.index] = all
	}
	return all
}

// patterns returns the absolute patterns of a rule about files: "//x" is absolute, "~/x" is in the
// home directory, "/x" is relative to the base of the rule's source, "x" and "./x" are relative to
// where the conversation started. A name without a slash is at any depth, as in a .gitignore file.
// A deny or ask rule applies to every root, as written and with links followed.
func (j *judgement) patterns(r *Rule, wide bool) []string {
	all := r.patterns(j.req, wide)
	if wide {
		for _, p := range slices.Clone(all) {
			if other := j.followed(newGlob(p)); other != "" {
				all = append(all, other)
			}
		}
	}
	return all
}

// patterns returns the absolute patterns of a rule, without following links.
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

// followed returns the pattern with the links in its fixed beginning followed, or "" if that is the
// same.
func (j *disk) followed(g *glob) string {
	switch real := ""; {
	case g.fixed == "/":
		return ""
	case g.literal:
		if real = j.resolveAs(g.fixed, g.clean); real != g.clean {
			return escape(real)
		}
	default:
		if real = j.resolveAs(g.fixed, g.clean); real != g.fixed {
			return strings.TrimSuffix(escape(real), "/") + "/" + g.rest
		}
	}
	return ""
}

// keptGlobs caches the patterns of all deny and ask rules about files, for given directories and
// without following links.
type keptGlobs struct {
	roots []string
	home  string
	rules map[*Rule]keptRule
}

type keptRule struct {
	globs []*glob
	index int // among the rules
}

// keptFor returns the patterns for the directories of a request. They are cached for the next decision
// with the same directories.
func (s *ruleset) keptFor(req *Request) *keptGlobs {
	kept := s.kept.Load()
	if kept == nil || kept.home != req.Home || !slices.Equal(kept.roots, req.Roots) {
		kept = &keptGlobs{roots: slices.Clone(req.Roots), home: req.Home, rules: map[*Rule]keptRule{}}
		for _, list := range [][]*Rule{s.deny, s.ask} {
			for _, r := range list {
				if r.Content != "" && isFileTool(r.Tool) {
					kept.rules[r] = keptRule{r.globs(req), len(kept.rules)}
				}
			}
		}
		s.kept.Store(kept)
	}
	return kept
}

// globs returns the patterns of a deny or ask rule, without following links.
func (r *Rule) globs(req *Request) (globs []*glob) {
	for _, p := range r.patterns(req, true) {
		g := newGlob(p)
		g.runes, g.top = g.overlap(), g.atTop()
		globs = append(globs, g)
	}
	return globs
}

// literal reports whether a pattern is a single path.
func literal(pattern string) bool { return !strings.ContainsAny(pattern, `*?[{\`) }

// linked reports whether a path is another hard link of a file that a pattern names. For a name at
// any depth, only those at the top and beside the path are checked.
func (j *disk) linked(pattern, path string) bool {
	e := j.stat(path)
	if !e.exists() || e.isDir() || e.names() < 2 {
		return false
	}
	same := func(other string) bool {
		o := j.stat(other)
		return o.exists() && e.same(o)
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

// protected returns a file that a call would change and that configures what programs execute,
// unless a rule allows it by its name.
func (j *judgement) protected() string {
	for _, a := range j.req.Access {
		switch {
		case a.Kind == tool.Write && a.Path != "":
			if j.keeps(a.Path) {
				return a.Path
			}
		case a.Kind == tool.Execute:
			for _, f := range writes(j.script(a.Command)) {
				if j.keeps(f) {
					return f
				}
			}
		}
	}
	return ""
}

// keeps reports whether a path is protected and no rule allows by name to change it.
func (j *judgement) keeps(path string) bool {
	real := j.resolve(path)
	name := protectedName(j.inWorktree(path), j.inWorktree(real))
	if name == "" {
		name = cmp.Or(j.inHome(path), j.inHome(real))
	}
	return name != "" && !j.allowedByName(name, path)
}

// inHome returns the file or directory of the user's home that contains a path, if programs keep
// files there that they execute: a hidden one, bin or Library. It returns "" if the project is in the
// same one.
func (j *disk) inHome(path string) string {
	if j.req.Home == "" {
		return ""
	}
	for _, home := range []string{j.req.Home, j.resolve(j.req.Home)} {
		name := configBelow(home, path)
		if name != "" && !slices.ContainsFunc(j.req.Roots, func(root string) bool {
			return configBelow(home, root) == name || configBelow(home, j.resolve(root)) == name
		}) {
			return name
		}
	}
	return ""
}

// configBelow returns the first element of the path from a home to another path, if programs keep
// files there that they execute.
func configBelow(dir, path string) string {
	rest, err := filepath.Rel(dir, path)
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(filepath.ToSlash(rest), "/")
	if name == "bin" || name == "Library" {
		return name
	}
	if len(name) < 2 || name[0] != '.' || name == ".." {
		return ""
	}
	return name
}

// inWorktree returns a path in a root that is a worktree relative to that root, because the path to
// the root contains .claude.
func (j *disk) inWorktree(path string) string {
	for _, root := range j.req.Roots {
		if filepath.Base(filepath.Dir(root)) == "worktrees" && filepath.Base(filepath.Dir(filepath.Dir(root))) == ".claude" && below(root, filepath.Clean(path)) {
			path, _ = filepath.Rel(root, path)
			return path
		}
	}
	return path
}

// allowedByName reports whether a rule allows changing a protected file and names the protected
// part.
func (j *judgement) allowedByName(name, path string) bool {
	return slices.ContainsFunc(j.set.allow, func(r *Rule) bool {
		return strings.Contains(r.Content, name) && covers(r, tool.Write) && j.within(r, path)
	})
}

// protectedName returns the element of a path that makes it a file which configures what programs
// execute: of a repository, an agent, an editor or a shell.
func protectedName(paths ...string) string {
	for _, path := range paths {
		path = filepath.ToSlash(path)
		for dir := range strings.SplitSeq(path, "/") {
			switch lower := foldName(strings.TrimRight(dir, ". ")); lower {
			case ".git", "git~1", ".githooks", ".hg", ".svn", ".claude", ".parley", ".vscode", ".idea", ".husky",
				".devcontainer", ".ssh", ".gnupg", ".cargo", ".yarn", ".zed", ".cursor", ".fleet", ".run", ".vs", ".theia", ".windsurf",
				".codex", ".gemini", ".kiro", ".mise", ".emacs.d", ".vim", ".nvim", ".helix", ".nova":
				return lower
			}
		}
		switch base := foldName(filepath.Base(path)); base {
		case ".gitmodules", ".gitconfig", ".mcp.json", ".claude.json", ".envrc", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases",
			".zshrc", ".zshenv", ".zprofile", ".zlogin", ".profile", ".inputrc", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pypirc", ".netrc", ".ripgreprc",
			".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".xprofile", ".xinitrc", ".vimrc", ".exrc",
			".gdbinit", ".lldbinit", ".curlrc", ".wgetrc", ".hgrc", ".pre-commit-config.yaml", ".pre-commit-config.yml", ".overcommit.yml",
			".nvimrc", ".nvim.lua", ".lvimrc", ".local.vimrc", ".emacs", ".dir-locals.el", ".bazelrc", ".lefthook.yml", ".lefthook.yaml", ".lefthook.toml",
			"lefthook.yml", "lefthook.yaml", "lefthook.toml", "lefthook-local.yml", ".pnp.cjs", ".pnpmfile.cjs", ".justfile", ".mise.toml", "mise.toml",
			".mise.local.toml", "mise.local.toml", ".pdbrc", ".irbrc", ".pryrc", ".pythonrc", ".ghci", ".iex.exs", ".psqlrc", ".sqliterc", ".rprofile",
			".octaverc", ".xonshrc", ".direnvrc", ".autoenv", ".autoenv.zsh", ".login", ".devcontainer.json", ".tmux.conf", ".screenrc",
			".luarc.json", ".luarc.jsonc":
			return base
		default:
			if strings.HasSuffix(base, ".code-workspace") { // tasks of an editor
				return base
			}
		}
	}
	return ""
}

// foldName returns a name in the form in which file systems that ignore case compare it: in
// small letters, with other forms of a letter (a long s, a Kelvin sign) as that letter, and
// without characters that have no width.
func foldName(name string) string {
	if !strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }) {
		return strings.ToLower(name)
	}
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return unicode.ToLower(least)
	}, name)
}

// outside returns a path of the call that is outside of all roots.
func (j *judgement) outside() string {
	for _, a := range j.req.Access {
		switch {
		case a.Path != "":
			if !j.insideRoots(a.Path) && !j.readable(a) {
				return a.Path
			}
		case a.Kind == tool.Execute && j.shell != nil:
			for _, f := range paths(j.shell) {
				if !j.insideRoots(f) {
					return f
				}
			}
		}
	}
	return ""
}

// unbound returns a path that the call must not touch because it is bound to a worktree.
func unbound(j *judgement) string {
	if j.req.Bound == 0 {
		return ""
	}
	for _, a := range j.req.Access {
		if a.Path != "" && !j.insideRoots(a.Path) && !j.readable(a) && (j.allows(a) == nil || slices.ContainsFunc(j.req.Roots[j.req.Bound:], func(root string) bool {
			return below(root, filepath.Clean(a.Path)) || below(j.resolve(root), j.resolve(a.Path))
		})) {
			return a.Path
		}
		if a.Kind == tool.Execute {
			for _, f := range paths(j.script(a.Command)) {
				if !j.insideRoots(f) {
					return f
				}
			}
		}
	}
	return ""
}

// readable reports whether a file tool reads below a directory of the session.
func (j *disk) readable(a tool.Access) bool {
	return a.Kind == tool.Read && slices.ContainsFunc(j.req.Readable, func(dir string) bool {
		return below(dir, a.Path) && below(j.resolve(dir), j.resolve(a.Path))
	})
}

func (j *disk) insideRoots(path string) bool {
	roots := j.req.Roots
	if j.req.Bound > 0 {
		roots = roots[:j.req.Bound]
	}
	return slices.ContainsFunc(roots, func(root string) bool {
		return below(root, path) && below(j.resolve(root), j.resolve(path))
	})
}

// cleaned is [filepath.Clean], faster for a path that is clean already.
func cleaned(path string) string {
	rest, more := strings.CutPrefix(path, "/")
	if filepath.Separator != '/' || !more {
		return filepath.Clean(path)
	}
	for more {
		var part string
		if part, rest, more = strings.Cut(rest, "/"); part == "" || part == "." || part == ".." {
			return filepath.Clean(path)
		}
	}
	return path
}

// below reports whether a path is a directory, or below it.
func below(root, path string) bool {
	if filepath.Separator == '/' && strings.HasPrefix(root, "/") && strings.HasPrefix(path, "/") {
		return begins(strings.TrimSuffix(cleaned(root), "/"), cleaned(path))
	}
	rel, err := filepath.Rel(root, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// begins is like below for clean paths.
func begins(root, path string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == filepath.Separator)
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// resolve follows the links of a path as far as it exists. A dangling link is followed, too,
// because writing through it creates its target.
func resolve(path string) string { return follow(path, link) }

// link returns the target of a symbolic link, or "".
func link(path string) string {
	fi, err := os.Lstat(path)
	if err != nil || fi.Mode()&os.ModeSymlink == 0 {
		return ""
	}
	to, _ := os.Readlink(path)
	return to
}

// follow resolves a path like a kernel does: a .. after a link leads to the parent of the link's
// target.
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

// escape returns a pattern that matches only the given path.
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

// unescape is the inverse of escape.
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
