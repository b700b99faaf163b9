package project

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/parley-go/parley/engine/internal/frontmatter"
	"github.com/parley-go/parley/engine/tool/files"
)

// A conditionalRule is a rule that applies to some files only.
type conditionalRule struct {
	file  *File
	dir   string // directory that its patterns are relative to
	paths []string
}

// instructions reads CLAUDE.md files and rules: the user's, then those of the project
// (AGENTS.md in a directory without CLAUDE.md) from its root down to the working directory.
func (l *loader) instructions() {
	o := &l.c.opts
	if o.Has(User) && o.ConfigDir != "" {
		p := place{User, ""}
		l.instruct(p, filepath.Join(o.ConfigDir, "CLAUDE.md"))
		l.rules(p, filepath.Join(o.ConfigDir, "rules"), l.c.opts.Cwd)
	}
	dirs := above(o.Cwd, l.c.Root)
	slices.Reverse(dirs)
	for _, dir := range dirs {
		l.directory(dir)
	}
}

// directory reads the instructions of one directory of the project.
func (l *loader) directory(dir string) {
	if l.c.opts.Has(Project) {
		p := place{Project, l.c.Root}
		before := len(l.c.Instructions)
		l.instruct(p, filepath.Join(dir, "CLAUDE.md"))
		l.instruct(p, filepath.Join(dir, ".claude", "CLAUDE.md"))
		if len(l.c.Instructions) == before {
			l.instruct(p, filepath.Join(dir, "AGENTS.md"))
		}
		l.rules(p, filepath.Join(dir, ".claude", "rules"), dir)
	}
	if l.c.opts.Has(Local) {
		l.instruct(place{Local, l.c.Root}, filepath.Join(dir, "CLAUDE.local.md"))
	}
}

// instruct reads one file of instructions and its imports.
func (l *loader) instruct(p place, path string) {
	if l.has(path) || l.c.opts.excludes(path) {
		return
	}
	if f := l.read(p, path, "instructions"); f != nil {
		l.c.Instructions = append(l.c.Instructions, f)
		l.imports(p, f, 0)
	}
}

// excludes reports whether a pattern of the settings excludes a file of instructions.
func (o *Options) excludes(path string) bool {
	return slices.ContainsFunc(o.Excluded, func(pattern string) bool {
		if !filepath.IsAbs(pattern) {
			pattern = "**/" + pattern
		}
		ok, _ := doublestar.Match(filepath.ToSlash(pattern), filepath.ToSlash(path))
		return ok
	})
}

func (l *loader) has(path string) bool {
	return slices.ContainsFunc(l.c.Instructions, func(f *File) bool { return f.Path == path })
}

// rules reads rules. Those with paths apply once a matching file is read.
func (l *loader) rules(p place, dir, base string) {
	l.markdown(p, dir, func(path, _ string) {
		f := l.read(p, path, "rule")
		if f == nil {
			return
		}
		doc, err := frontmatter.Parse([]byte(f.Text))
		if err != nil {
			l.problem(path, "%v", err)
			return
		}
		f.Text = doc.Body
		if paths := doc.List("paths"); len(paths) > 0 {
			l.c.conditional = append(l.c.conditional, &conditionalRule{f, base, paths})
			return
		}
		l.c.Instructions = append(l.c.Instructions, f)
		l.imports(p, f, 0)
	})
}

// mention matches a path after an @ at the start of a word.
var mention = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:^|[\s(\["'])@(?:"([^"\n]+)"|([^\s"'()\[\]<>@]+))`)
})

// Mentions returns the paths that a text names with an @, in order and without duplicates. Code
// in Markdown is ignored.
func Mentions(text string) []string {
	var paths []string
	for _, m := range mention().FindAllStringSubmatch(withoutCode(text), 200) {
		path := m[1]
		if path == "" {
			path = strings.TrimRight(m[2], ".,;:!?")
		}
		if path != "" && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// withoutCode blanks text between backquotes and in fenced blocks.
func withoutCode(text string) string {
	var b strings.Builder
	fence := ""
	for line := range strings.Lines(text) {
		bare := strings.TrimSpace(line)
		if fence != "" {
			if strings.HasPrefix(bare, fence) {
				fence = ""
			}
			continue
		}
		if strings.HasPrefix(bare, "```") || strings.HasPrefix(bare, "~~~") {
			fence = bare[:3]
			continue
		}
		parts := strings.Split(line, "`")
		for i, part := range parts {
			if i%2 == 0 || i == len(parts)-1 {
				b.WriteString(part)
			} else {
				b.WriteByte(' ')
			}
		}
	}
	return b.String()
}

// imports reads the files that instructions import. Those of a project must be inside of the
// project; any other is a problem, and so are chains that are too long.
func (l *loader) imports(p place, from *File, depth int) {
	for _, ref := range Mentions(from.Text) {
		path := ref
		if rest, ok := strings.CutPrefix(ref, "~/"); ok {
			if l.c.opts.Home == "" {
				continue
			}
			path = filepath.Join(l.c.opts.Home, rest)
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(from.Path), path)
		}
		path = filepath.Clean(path)
		if l.has(path) {
			continue
		}
		if p.bound != "" && !files.Within(p.bound, path) {
			if !strings.ContainsAny(ref, "/\\.") {
				continue // such as @alice
			}
			l.expected(path, "%s imports it from outside the project, so it was not read", from.Path)
			continue
		}
		if depth >= maxImports {
			l.problem(path, "it is imported by %s over more than %d files", from.Path, maxImports)
			continue
		}
		if !importable(path) {
			continue
		}
		f := l.read(p, path, "import")
		if f == nil {
			continue
		}
		f.From = from.Path
		l.c.Instructions = append(l.c.Instructions, f)
		l.imports(p, f, depth+1)
	}
}

// importable reports whether a path looks like a file and not like a directory: directories are
// silently ignored.
func importable(path string) bool {
	ext := filepath.Ext(path)
	return !strings.HasSuffix(path, string(filepath.Separator)) && (ext != "" || strings.ToUpper(filepath.Base(path)) == filepath.Base(path))
}

// Below returns the instructions for a file that were not sent yet: those of the directories
// between the working directory and the file, and rules that match its path. It marks them as
// sent.
func (c *Context) Below(path string) []*File {
	if !c.opts.Has(Project) && !c.opts.Has(Local) && len(c.conditional) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*File
	for _, r := range c.conditional {
		if !c.told[r.file.Path] && r.about(path) {
			found = append(found, r.file)
			c.told[r.file.Path] = true
		}
	}
	if !files.Within(c.opts.Cwd, path) {
		return found
	}
	rel, err := filepath.Rel(c.opts.Cwd, filepath.Dir(path))
	if err != nil || rel == "." {
		return found
	}
	dir := c.opts.Cwd
	// These files are not among those that were read at the start.
	sub := &Context{opts: c.opts, Root: c.Root}
	l := &loader{c: sub}
	for i, part := range strings.Split(rel, string(filepath.Separator)) {
		if i >= maxParents {
			break
		}
		dir = filepath.Join(dir, part)
		if key := dir + string(filepath.Separator); !c.told[key] {
			c.told[key] = true
			l.directory(dir)
		}
	}
	for _, f := range sub.Instructions {
		if !c.told[f.Path] {
			c.told[f.Path] = true
			found = append(found, f)
		}
	}
	return found
}

// about reports whether a rule applies to a file.
func (r *conditionalRule) about(path string) bool {
	rel, err := filepath.Rel(r.dir, path)
	if err != nil || strings.HasPrefix(rel, "..") {
		return false
	}
	return slices.ContainsFunc(r.paths, func(pattern string) bool {
		ok, err := doublestar.Match(pattern, filepath.ToSlash(rel))
		return err == nil && ok
	})
}

// MarkSent marks instructions as sent, for example by a resumed session.
func (c *Context) MarkSent(paths ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range paths {
		c.told[p] = true
	}
}

// Forget makes [Context.Below] return all instructions again, after they were removed from the
// conversation.
func (c *Context) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.told)
	for _, f := range c.Instructions {
		c.told[f.Path] = true
	}
}

// Clone returns a context with the same content and its own record of sent instructions, for
// another conversation.
func (c *Context) Clone() *Context {
	clone := &Context{Root: c.Root, Instructions: c.Instructions, Commands: c.Commands, Styles: c.Styles, Plugins: c.Plugins, Files: c.Files, Problems: c.Problems,
		opts: c.opts, conditional: c.conditional, told: map[string]bool{}}
	clone.Forget()
	return clone
}

// AllTold returns the instructions that were sent so far, for another [Context.Told].
func (c *Context) AllTold() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var paths []string
	for p := range c.told {
		paths = append(paths, p)
	}
	return paths
}
