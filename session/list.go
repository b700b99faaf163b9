package session

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/internal/regular"
)

// ListOptions select sessions for a list. The zero value, and nil, mean all.
type ListOptions struct {
	Dir            string // only sessions that started in this directory or in another worktree of its git repository
	NoWorktrees    bool   // with Dir: exclude other worktrees
	NoProgrammatic bool   // leave out sessions that a program started through an SDK
	Offset         int    // number of sessions to skip
	Limit          int    // maximum number to return; zero or less means all
}

// An Info describes a session in a list.
type Info struct {
	ID           string
	Summary      string    // text to show: the title, or else the last prompt, a summary or the first prompt
	Modified     time.Time // when it was last written
	Created      time.Time // the first time in it; zero if there is none
	Size         int64     // of its file
	CustomTitle  string    // the title that was set
	FirstPrompt  string
	GitBranch    string // at its end; "HEAD" outside of repositories
	Cwd          string // at its start
	Tag          string
	Entrypoint   string // such as "cli" or "sdk-ts"
	Path         string // its file; empty if it is in none
	Project      string // the key of its project
	Programmatic bool   // a program started it through an SDK

	aiTitle string
}

// Branch returns the branch to show to a person. It is empty if the session has none.
func (i *Info) Branch() string {
	if i.GitBranch == "HEAD" {
		return ""
	}
	return i.GitBranch
}

// List returns sessions, newest first and without duplicate ids. Of a long log only the
// beginning and the end are read: an old title in between is not found.
func List(ctx context.Context, s Store, opts *ListOptions) ([]Info, error) {
	if opts == nil {
		opts = &ListOptions{}
	}
	if f, ok := s.(*Files); ok {
		return f.list(ctx, opts)
	}
	all, err := listed(ctx, s, &In{Dir: opts.Dir}, !opts.NoWorktrees)
	if err != nil {
		return nil, err
	}
	d, err := newDigester(ctx, s)
	if err != nil {
		return nil, err
	}
	return page(opts, len(all), func(from, to int) ([]*Info, error) {
		return each(ctx, to-from, func(i int) *Info {
			got, err := d.digest(ctx, all[from+i])
			if err != nil {
				return nil // there are others to show
			}
			return infoOf(all[from+i], got)
		})
	})
}

// page reads sessions until a page is full, because some of them are not shown.
func page(opts *ListOptions, n int, read func(from, to int) ([]*Info, error)) ([]Info, error) {
	offset, limit := max(0, opts.Offset), opts.Limit
	if limit <= 0 {
		limit = n
	}
	var infos []Info
	for at := 0; at < n && len(infos) < offset+limit; {
		to := min(n, at+max(32, offset+limit-len(infos)))
		batch, err := read(at, to)
		if err != nil {
			return nil, err
		}
		at = to
		for _, i := range batch {
			if i != nil && (!opts.NoProgrammatic || !i.Programmatic) {
				infos = append(infos, *i)
			}
		}
	}
	infos = infos[min(offset, len(infos)):]
	return infos[:min(limit, len(infos))], nil
}

// each calls f for all indexes, concurrently.
func each(ctx context.Context, n int, f func(i int) *Info) ([]*Info, error) {
	out := make([]*Info, n)
	var wg sync.WaitGroup
	workers := min(n, runtime.GOMAXPROCS(0), 8)
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n && ctx.Err() == nil; i += workers {
				out[i] = f(i)
			}
		})
	}
	wg.Wait()
	return out, ctx.Err()
}

// infoOf returns the Info of a session, or nil if it is not shown.
func infoOf(l Listed, d *digest) *Info {
	title := d.title()
	if d.sidechain || title == "" {
		return nil
	}
	return &Info{
		ID: l.Key.Session, Project: l.Key.Project, Summary: title, Modified: l.Modified, Created: d.created, Size: l.Size, CustomTitle: d.customTitle,
		FirstPrompt: d.firstPrompt, GitBranch: d.branch, Cwd: d.cwd, Tag: d.tag, Entrypoint: d.entrypoint,
		Programmatic: strings.HasPrefix(d.entrypoint, "sdk-"), aiTitle: d.aiTitle,
	}
}

// list implements [List]. It reads only the beginning and the end of each file.
func (f *Files) list(ctx context.Context, opts *ListOptions) (infos []Info, err error) {
	err = f.inRoot(ctx, func(root *os.Root) error {
		all, err := f.places(ctx, root, projectsIn(root, opts.Dir, !opts.NoWorktrees))
		if err != nil {
			return err
		}
		cache := f.readListCache()
		defer func() { cache.write(f, all, opts.Dir == "" && opts.Limit <= 0) }()
		infos, err = page(opts, len(all), func(from, to int) ([]*Info, error) {
			return each(ctx, to-from, func(i int) *Info {
				d, err := cache.digest(f, root, all[from+i])
				if err != nil {
					return nil
				}
				return f.info(all[from+i], d)
			})
		})
		return err
	})
	return infos, err
}

// info returns the Info of a session, or nil if it is not shown.
func (f *Files) info(p place, d *digest) *Info {
	i := infoOf(Listed{Key: Key{Project: p.project, Session: p.id}, Modified: p.mtime, Size: p.size}, d)
	if i != nil {
		i.Path = f.pathOf(p)
		if p.packed {
			i.Path += packedSuffix
		}
	}
	return i
}

// projectsIn returns the projects of a directory: its own and those of the worktrees of
// its repository. It returns nil, which means all, if dir is empty.
func projectsIn(root *os.Root, dir string, others bool) []string {
	if dir == "" {
		return nil
	}
	dirs := []string{dir}
	if others {
		dirs = append(dirs, worktrees(dir)...)
	}
	var in []string
	for _, d := range dirs {
		for _, project := range projectsOf(root, d) {
			if !slices.Contains(in, project) {
				in = append(in, project)
			}
		}
	}
	return in
}

// worktrees returns the directories of all worktrees of the git repository that
// contains a directory. It reads the repository and runs nothing.
func worktrees(dir string) []string {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil
	}
	var git, top string
	for up := real; ; up = filepath.Dir(up) {
		if _, err := os.Lstat(filepath.Join(up, ".git")); err == nil {
			git, top = filepath.Join(up, ".git"), up
			break
		}
		if filepath.Dir(up) == up {
			return nil
		}
	}
	if info, err := os.Stat(git); err != nil {
		return nil
	} else if !info.IsDir() { // a worktree that is not the main one
		own, ok := strings.CutPrefix(firstLine(git), "gitdir: ")
		if !ok {
			return nil
		}
		own = below(top, own)
		git = below(own, firstLine(filepath.Join(own, "commondir")))
	}
	all := []string{filepath.Dir(git)}
	entries, _ := os.ReadDir(filepath.Join(git, "worktrees"))
	for _, e := range entries {
		base := filepath.Join(git, "worktrees", e.Name())
		if link := firstLine(filepath.Join(base, "gitdir")); link != "" {
			all = append(all, filepath.Dir(below(base, link)))
		}
	}
	return all
}

// below resolves a path that may be relative to a directory.
func below(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

func firstLine(name string) string {
	text, _ := regular.Read(name, 64<<10)
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}

// In selects where to search for a session. The zero value, and nil, mean everywhere.
type In struct {
	Dir string // only this directory's project, and those of other worktrees of its repository
}

// at opens the projects directory and finds a session.
func (f *Files) at(ctx context.Context, id string, in *In) (*os.Root, place, error) {
	if err := ctx.Err(); err != nil {
		return nil, place{}, err
	}
	root, err := f.root(false)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = ErrNotFound
		}
		return nil, place{}, err
	}
	dir := ""
	if in != nil {
		dir = in.Dir
	}
	p, err := f.lookup(root, id, projectsIn(root, dir, true))
	if err != nil {
		root.Close()
		return nil, place{}, err
	}
	return root, p, nil
}

// Stat returns the Info of a session. The error is [ErrNotFound] if there is none, or
// none that a list would show.
func Stat(ctx context.Context, s Store, id string, in *In) (*Info, error) {
	f, ok := s.(*Files)
	if !ok {
		key, err := locate(ctx, s, id, in)
		if err != nil {
			return nil, err
		}
		all, err := s.List(ctx, key)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 {
			return nil, ErrNotFound
		}
		d, err := (&digester{store: s}).digest(ctx, all[0])
		if err != nil {
			return nil, err
		}
		if info := infoOf(all[0], d); info != nil {
			return info, nil
		}
		return nil, ErrNotFound
	}
	root, p, err := f.at(ctx, id, in)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	d, err := f.digestPlace(root, p)
	if err != nil {
		return nil, notFound(err)
	}
	if info := f.info(p, d); info != nil {
		return info, nil
	}
	return nil, ErrNotFound
}
