package hub

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/parley-go/parley/internal/worktree"
)

// ErrChanged means that a worktree has changes that removing it would lose, or that
// merging it would leave out.
var ErrChanged = worktree.ErrChanged

// A Worktree is the git worktree of a session.
type Worktree struct {
	Session string `json:"session"`
	Dir     string `json:"dir"`
	Branch  string `json:"branch"`
	Main    string `json:"main"`    // the main worktree of the repository
	Files   int    `json:"files"`   // not committed
	Commits int    `json:"commits"` // not in the main worktree
	// Problem is the reason why the worktree cannot be read, for example because it was
	// removed.
	Problem string `json:"problem,omitempty"`
}

// addWorktree creates the worktree that a spec asks for, and changes the spec so that the
// session works in it. The returned function removes it again.
func addWorktree(ctx context.Context, spec *Spec) (undo func(), err error) {
	tree, err := worktree.Add(ctx, spec.Cwd, spec.AddWorktree)
	if err != nil {
		return nil, err
	}
	dir := tree.Dir
	if real, err := filepath.EvalSymlinks(spec.Cwd); err == nil { // the same directory within it
		if sub, err := filepath.Rel(tree.Main, real); err == nil && filepath.IsLocal(sub) {
			dir = filepath.Join(dir, sub)
		}
	}
	spec.Cwd, spec.Worktree = dir, tree.Branch
	return func() { tree.Remove(context.WithoutCancel(ctx), true) }, nil
}

// Worktrees returns the worktrees of sessions.
func (h *Hub) Worktrees(ctx context.Context, by Actor) ([]Worktree, error) {
	list, err := h.List(ctx, by)
	if err != nil {
		return nil, err
	}
	all := []Worktree{}
	for _, s := range list {
		if s.State.Worktree == "" {
			continue
		}
		w := Worktree{Session: s.ID, Dir: s.State.Cwd, Branch: s.State.Worktree}
		tree, err := worktree.Open(ctx, w.Dir)
		if err == nil {
			w.Dir, w.Main = tree.Dir, tree.Main
			w.Files, w.Commits, err = tree.Changes(ctx)
		}
		if err != nil {
			w.Problem = err.Error()
		}
		all = append(all, w)
	}
	return all, nil
}

// MergeWorktree merges the branch of the session's worktree into the branch that is
// checked out in the main worktree. The session must not be running. The error is
// [ErrChanged] if files are not committed. If the branches conflict, nothing changes.
func (s *Session) MergeWorktree(ctx context.Context, by Actor) error {
	tree, err := s.worktree(ctx, by, "merge worktrees")
	if err != nil {
		return err
	}
	return tree.Merge(ctx)
}

// RemoveWorktree removes the session's worktree and its branch. The session must not be
// running. The error is [ErrChanged] if that would lose changes, unless force is set.
func (s *Session) RemoveWorktree(ctx context.Context, by Actor, force bool) error {
	tree, err := s.worktree(ctx, by, "remove worktrees")
	if err != nil {
		return err
	}
	return tree.Remove(ctx, force)
}

// worktree returns the worktree of a session that is not running.
func (s *Session) worktree(ctx context.Context, by Actor, to string) (*worktree.Tree, error) {
	if err := s.hub.check(ctx, by, s.id, MayAdmin, to); err != nil {
		return nil, err
	}
	state, err := s.State(ctx, by)
	switch {
	case err != nil:
		return nil, err
	case state.Worktree == "":
		return nil, fmt.Errorf("hub: the session has no worktree of its own: %w", ErrNotFound)
	case state.Phase != Idle:
		return nil, errors.New("hub: the session is not idle; stop it first")
	}
	tree, err := worktree.Open(ctx, state.Cwd)
	if err != nil {
		return nil, err
	}
	if tree.Branch != state.Worktree { // the session switched branches; its commits are elsewhere
		return nil, fmt.Errorf("hub: the worktree has the branch %q checked out, not %q", tree.Branch, state.Worktree)
	}
	return tree, nil
}
