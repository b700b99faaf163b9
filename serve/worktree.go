package serve

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/internal/worktree"
)

// A Worktree is the git worktree that was created for a session.
type Worktree struct {
	Session string `json:"session"`
	Title   string `json:"title,omitempty"` // of the session
	Branch  string `json:"branch"`
	Path    string `json:"path"`
	Changed int    `json:"changed"`           // files with uncommitted changes
	Problem string `json:"problem,omitempty"` // why it cannot be read
}

// WorktreeList is a list of worktrees.
type WorktreeList struct {
	Worktrees []Worktree `json:"worktrees"`
}

// git runs git in a directory, as for the worktrees of agents. Its errors are the
// caller's mistake.
func git(ctx context.Context, dir string, args ...string) (string, error) {
	out, err := worktree.Git(ctx, dir, args...)
	if err != nil {
		return "", badRequest("%s", clip(strings.TrimPrefix(err.Error(), "worktree: "), 300))
	}
	return strings.TrimSpace(out), nil
}

// addWorktree creates a worktree beside a repository, with a new or existing branch,
// and returns the directory in it that corresponds to dir.
func addWorktree(ctx context.Context, dir, branch string) (string, error) {
	if strings.HasPrefix(branch, "-") {
		return "", badRequest("%q is not the name of a branch", branch)
	}
	if _, err := git(ctx, dir, "check-ref-format", "--branch", branch); err != nil {
		return "", badRequest("%q is not the name of a branch", branch)
	}
	top, err := git(ctx, dir, "rev-parse", "--show-toplevel")
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	below, err := filepath.Rel(top, real)
	if err != nil {
		return "", err
	}
	path := filepath.Join(filepath.Dir(top), filepath.Base(top)+"-"+strings.ReplaceAll(branch, "/", "-"))
	args := []string{"worktree", "add", "--quiet", "-b", branch, "--", path}
	if _, err := git(ctx, dir, "rev-parse", "--verify", "--quiet", "refs/heads/"+branch); err == nil {
		args = []string{"worktree", "add", "--quiet", "--", path, branch}
	}
	if _, err := git(ctx, dir, args...); err != nil {
		return "", err
	}
	return filepath.Join(path, below), nil
}

// removeWorktree removes a worktree; its branch stays. Without force, a worktree with
// uncommitted changes stays, too.
func removeWorktree(ctx context.Context, dir string, force bool) error {
	top, err := git(ctx, dir, "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	common, err := git(ctx, dir, "rev-parse", "--path-format=absolute", "--git-common-dir")
	if err != nil {
		return err
	}
	args := []string{"worktree", "remove"}
	if force {
		args = append(args, "--force")
	}
	_, err = git(ctx, common, append(args, "--", top)...)
	return err
}

func listWorktrees(c *call, ctx context.Context, _ *none) (list WorktreeList, err error) {
	list.Worktrees = []Worktree{}
	all, err := c.s.cfg.Hub.List(ctx, c.Actor)
	for _, i := range all {
		if i.State.Worktree == "" {
			continue
		}
		w := Worktree{Session: i.ID, Title: i.State.Title, Branch: i.State.Worktree, Path: i.State.Cwd}
		status, err := git(ctx, i.State.Cwd, "status", "--porcelain")
		if err != nil {
			w.Problem = err.Error()
		} else if status != "" {
			w.Changed = strings.Count(status, "\n") + 1
		}
		list.Worktrees = append(list.Worktrees, w)
	}
	return list, err
}

type worktreePath struct {
	ID    string `json:"-" path:"id"`
	Force bool   `json:"-" query:"force"` // even if it has uncommitted changes
}

func deleteWorktree(c *call, ctx context.Context, in *worktreePath) (none, error) {
	info, _, err := c.session().Info(ctx, c.Actor)
	if err != nil {
		return none{}, err
	}
	if info.State.Worktree == "" {
		return none{}, fmt.Errorf("serve: the session has no worktree of its own: %w", hub.ErrNotFound)
	}
	if info.State.Phase != hub.Idle {
		return none{}, badRequest("the session is not idle; stop it first")
	}
	return none{}, removeWorktree(ctx, info.State.Cwd, in.Force)
}
