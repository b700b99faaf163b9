package engine

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/crew"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/files"
	"github.com/parley-go/parley/internal/worktree"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

//go:embed worktree_enter.md
var enterWorktreeDescription string

//go:embed worktree_exit.md
var exitWorktreeDescription string

// worktreeType is the type of the record of the worktree that a session works in, as the official
// command writes it.
const worktreeType = "worktree-state"

// A workplace is the worktree that a conversation works in.
type workplace struct {
	OriginalCwd string `json:"originalCwd"`
	Path        string `json:"worktreePath"`
	Name        string `json:"worktreeName"`
	Branch      string `json:"worktreeBranch,omitempty"`
	Base        string `json:"originalHeadCommit,omitempty"`
	HookBased   bool   `json:"hookBased,omitempty"` // a hook made it
	Entered     bool   `json:"enteredExisting,omitempty"`

	tree   *worktree.Tree // nil if a hook made a directory that is not a git worktree
	before *tool.Env      // environment of the conversation before
}

// worktrees moves a conversation between worktrees. Only the owner of the conversation moves it.
type worktrees struct {
	place *workplace // nil if the conversation is in none

	env      *tool.Env
	runner   *call.Runner
	rec      *recorder.Recorder
	owner    *owner
	grace    func() time.Duration
	promptID func() string    // of the running turn; empty if there is none
	view     func() *tool.Env // environment of calls
	move     func(*tool.Env)  // changes the environment of calls
}

// add creates a worktree at the commit that is checked out in the conversation's working
// directory. A WorktreeCreate hook replaces git.
func (c *worktrees) add(ctx context.Context, promptID, name string) (*workplace, error) {
	w := &workplace{OriginalCwd: c.env.Cwd(), Name: name}
	v := c.runner.Hooks(ctx, promptID, &wire.WorktreeCreateInput{Name: name}, "", "")
	if len(v.Answers) == 0 {
		tree, err := worktree.Add(ctx, w.OriginalCwd, name)
		if err != nil {
			return nil, err
		}
		w.tree, w.Path, w.Branch, w.Base = tree, tree.Dir, tree.Branch, tree.Base
		return w, nil
	}
	w.HookBased = true
	for o := range hook.Outputs[*wire.WorktreeCreateOutput](v) {
		w.Path = o.WorktreePath
	}
	for _, a := range v.Answers {
		if a.Err != nil {
			return nil, fmt.Errorf("the WorktreeCreate hook failed: %w", a.Err)
		}
	}
	if reason, blocked := v.Blocked(); blocked {
		return nil, fmt.Errorf("a WorktreeCreate hook blocked it: %s", reason)
	}
	if !filepath.IsAbs(w.Path) {
		return nil, errors.New("the WorktreeCreate hook returned no path of a worktree: a command prints the path, others return hookSpecificOutput.worktreePath")
	}
	real, err := files.Resolve(w.Path)
	if err != nil {
		return nil, fmt.Errorf("the worktree of the WorktreeCreate hook cannot be used: %w", err)
	}
	// Otherwise git would work on files outside of it.
	if top := worktree.Top(ctx, real); top != "" && top != real {
		return nil, fmt.Errorf("the worktree of the WorktreeCreate hook cannot be used: git works on %s there", top)
	}
	w.Path = real
	if tree, err := worktree.Adopt(ctx, real); err == nil {
		w.tree = tree
	}
	return w, nil
}

// remove removes a worktree that this conversation made.
func (c *worktrees) remove(ctx context.Context, w *workplace, force bool) error {
	if !w.HookBased {
		return w.tree.Remove(ctx, force)
	}
	if files, commits, err := w.changes(ctx); !force && (err != nil || files+commits > 0) {
		return errors.Join(err, worktree.ErrChanged)
	}
	v := c.runner.Hooks(ctx, "", &wire.WorktreeRemoveInput{WorktreePath: w.Path}, "", "")
	if reason, blocked := v.Blocked(); blocked {
		return fmt.Errorf("the WorktreeRemove hook failed: %s", reason)
	}
	return nil
}

// changes counts the files and commits that would be lost with the worktree.
func (w *workplace) changes(ctx context.Context) (files, commits int, err error) {
	if w.tree == nil {
		return 0, 0, errors.New("git does not know the worktree")
	}
	return w.tree.Changes(ctx)
}

// removeUnchanged removes the worktree of a conversation that has ended, unless something would be lost. It
// reports whether it was removed.
func (c *worktrees) removeUnchanged(w *workplace) bool {
	if w.Entered {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.owner.base), c.grace())
	defer cancel()
	err := c.remove(ctx, w, false)
	if err != nil && !errors.Is(err, worktree.ErrChanged) {
		c.runner.Log.Warn("a worktree cannot be removed", "path", w.Path, "error", err)
	}
	return err == nil
}

// repository returns the directory of the repository that the worktree belongs to.
func (w *workplace) repository() string {
	if w.tree != nil && w.tree.Main != "" {
		return w.tree.Main
	}
	return w.OriginalCwd
}

// moveInto moves the conversation into a worktree. The owner calls it.
func (c *worktrees) moveInto(w *workplace) {
	w.before = c.view()
	in := w.before.In(w.Path, w.repository())
	files.Pin(in, w.Path)
	c.place = w
	c.move(in)
	c.env.SetCwd(w.Path)
	c.record(w)
}

// moveBack moves the conversation back to its previous directory. The owner calls it.
func (c *worktrees) moveBack() {
	w := c.place
	c.place = nil
	c.move(w.before.With(w.before.Roots, c.view().Environ))
	c.env.SetCwd(w.OriginalCwd)
	c.record(nil)
}

func (c *worktrees) record(w *workplace) {
	if err := c.rec.Place().Append(&session.Entry{Type: worktreeType, Fields: fields("worktreeSession", w)}); err != nil {
		c.runner.Log.Warn("the worktree of the session cannot be recorded", "error", err)
	}
}

// StartInWorktree lets a conversation that does not run yet start in a new worktree, or in the
// one of that name. If the name is empty, one is generated.
func (c *Conversation) StartInWorktree(ctx context.Context, name string) error {
	return c.trees.startIn(ctx, name)
}

func (c *worktrees) startIn(ctx context.Context, name string) error {
	if c.place != nil { // a resumed session is in one already
		return nil
	}
	name, err := worktreeName(name)
	if err != nil {
		return err
	}
	w, err := c.add(ctx, "", name)
	if err != nil {
		if w, _ = c.existing(ctx, filepath.Join(worktree.Folder, name)); w == nil {
			return err
		}
	}
	c.moveInto(w)
	return nil
}

// restore moves a resumed session into its worktree. If that is gone, it returns a text for the
// model that explains it.
func (c *worktrees) restore(e *session.Entry) (gone string) {
	var w *workplace
	if e == nil || json.Unmarshal(e.Fields["worktreeSession"], &w) != nil || w == nil {
		return ""
	}
	ctx := context.Background()
	if w.HookBased {
		if real, err := files.Resolve(w.Path); err == nil && real == w.Path {
			if top := worktree.Top(ctx, real); top == "" || top == real {
				c.moveInto(w)
				return ""
			}
		}
	} else if found, err := c.existing(ctx, w.Path); err == nil {
		w.tree = found.tree
		w.tree.Base = w.Base
		c.moveInto(w)
		return ""
	}
	c.record(nil)
	return "The worktree " + w.Path + " that you worked in does not exist any more. You work in " + c.env.Cwd() + " again."
}

// isolate moves a subagent into its own worktree: a new one, or the one that it had before.
func (c *worktrees) isolate(ctx context.Context, s *crew.Subagent, env *tool.Env) (err error) {
	name := "agent-" + s.ID
	c.owner.Do(func() { s.PromptID = c.promptID() })
	var w *workplace
	if s.Again != nil {
		if w, err = c.existing(ctx, filepath.Join(worktree.Folder, name)); err == nil {
			w.Entered = false
		}
	}
	if w == nil {
		if w, err = c.add(ctx, s.PromptID, name); err != nil {
			return err
		}
	}
	bound := env.In(w.Path, w.repository())
	env.Roots, env.Outer = bound.Roots, bound.Outer
	env.SetCwd(w.Path)
	s.Place = &crew.Place{Path: w.Path, Branch: w.Branch, Tidy: func() bool { return c.removeUnchanged(w) }}
	return nil
}

// existing finds a worktree of the repository, below the directory in which they are created.
func (c *worktrees) existing(ctx context.Context, path string) (*workplace, error) {
	cwd := c.env.Cwd()
	all, err := worktree.List(ctx, cwd)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		folder := filepath.Join(t.Main, filepath.FromSlash(worktree.Folder))
		if path != t.Dir && filepath.Join(t.Main, path) != t.Dir && filepath.Join(cwd, path) != t.Dir || filepath.Dir(t.Dir) != folder || worktree.Top(ctx, t.Dir) != t.Dir {
			continue
		}
		return &workplace{OriginalCwd: cwd, Path: t.Dir, Name: filepath.Base(t.Dir), Branch: t.Branch, Entered: true, tree: &t}, nil
	}
	return nil, fmt.Errorf("%s is not a worktree of this repository below %s", path, worktree.Folder)
}

// worktreeName returns the name for a worktree: the one from the model or a flag, or a generated
// one.
func worktreeName(name string) (string, error) {
	if name == "" {
		var id [4]byte
		rand.Read(id[:])
		return "work-" + hex.EncodeToString(id[:]), nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if !worktree.ValidName(part) {
			return "", fmt.Errorf("%q is not a name for a worktree: use letters, digits, \"-\", \"_\" and \".\"", name)
		}
	}
	if name = strings.ReplaceAll(name, "/", "+"); !worktree.ValidName(name) {
		return "", fmt.Errorf("the name of the worktree is too long: %q", name)
	}
	return name, nil
}

// A worktreeTool enters or leaves a worktree.
type worktreeTool struct {
	spec *tool.Spec
	run  func(ctx context.Context, call *tool.Call) (*tool.Result, error)
}

func (t *worktreeTool) Spec() *tool.Spec { return t.spec }

func (*worktreeTool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

func (t *worktreeTool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	return t.run(ctx, call)
}

// tools returns the tools that enter and leave worktrees.
func (c *worktrees) tools() []tool.Tool {
	return []tool.Tool{&worktreeTool{enterWorktreeSpec, c.enter}, &worktreeTool{exitWorktreeSpec, c.exit}}
}

var enterWorktreeSpec = &tool.Spec{Name: "EnterWorktree", Description: enterWorktreeDescription,
	Schema: json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{
		"name":{"type":"string","description":"Name of a new worktree"},
		"path":{"type":"string","description":"An existing worktree of this repository; not together with name"}}}`)}

func (c *worktrees) enter(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	var in struct {
		Name string `json:"name"`
		Path string `json:"path"`
	}
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	promptID := ""
	var at *workplace
	c.owner.Do(func() { at, promptID = c.place, c.promptID() })
	if at != nil {
		return nil, tool.Misuse("The conversation is in the worktree %s. Leave it with ExitWorktree first.", at.Path)
	}
	if in.Name != "" && in.Path != "" {
		return nil, tool.Misuse("Give name or path, not both.")
	}
	name, err := worktreeName(in.Name)
	if err != nil {
		return nil, tool.Misuse("%v", err)
	}
	var w *workplace
	verb := "Made"
	if in.Path != "" {
		verb = "Entered"
		w, err = c.existing(ctx, in.Path)
	} else {
		w, err = c.add(ctx, promptID, name)
	}
	if err != nil {
		return nil, err
	}
	c.owner.Do(func() { c.moveInto(w) })
	text := fmt.Sprintf("%s the worktree %s%s. It is the working directory now, and files outside it cannot be read or changed. ExitWorktree leaves it.", verb, w.Path, onBranch(w))
	out := map[string]any{"worktreePath": w.Path, "message": text}
	if w.Branch != "" {
		out["worktreeBranch"] = w.Branch
	}
	return tool.Text(text, out), nil
}

func onBranch(w *workplace) string {
	if w.Branch == "" {
		return ""
	}
	return " on the branch " + w.Branch
}

var exitWorktreeSpec = &tool.Spec{Name: "ExitWorktree", Description: exitWorktreeDescription,
	Schema: json.RawMessage(`{"type":"object","required":["action"],"additionalProperties":false,"properties":{
		"action":{"type":"string","enum":["keep","remove"],"description":"What to do with the worktree"},
		"discard_changes":{"type":"boolean","description":"Remove it even if changes are lost"}}}`)}

func (c *worktrees) exit(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	var in struct {
		Action  string `json:"action"`
		Discard bool   `json:"discard_changes"`
	}
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	var w *workplace
	c.owner.Do(func() { w = c.place })
	remove := in.Action == "remove"
	switch {
	case w == nil:
		return nil, tool.Misuse("The conversation has not entered a worktree with EnterWorktree. Nothing was changed.")
	case remove && w.Entered:
		return nil, tool.Misuse("This session did not make the worktree %s, so it does not remove it. Use the action keep.", w.Path)
	}
	out := map[string]any{"action": in.Action, "originalCwd": w.OriginalCwd, "worktreePath": w.Path, "restoredCwd": w.OriginalCwd, "originalCwdMissing": false}
	if w.Branch != "" {
		out["worktreeBranch"] = w.Branch
	}
	text := fmt.Sprintf("Left the worktree %s%s; it stays as it is.", w.Path, onBranch(w))
	if remove {
		lost, commits, err := w.changes(ctx)
		if err != nil && !in.Discard {
			return nil, tool.Misuse("Parley could not check whether the worktree has work that would be lost: %v. Ask the user, then call ExitWorktree with discard_changes, or keep it.", err)
		}
		if lost+commits > 0 && !in.Discard {
			return nil, tool.Misuse("The worktree holds work that would be lost: %d files that are not committed and %d commits. Ask the user, then call ExitWorktree with discard_changes, or keep it.", lost, commits)
		}
		if err := c.remove(ctx, w, true); err != nil {
			return nil, err
		}
		out["discardedFiles"], out["discardedCommits"] = lost, commits
		text = fmt.Sprintf("Removed the worktree %s.", w.Path)
		if lost+commits > 0 {
			text += fmt.Sprintf(" %d files and %d commits were discarded.", lost, commits)
		}
	}
	c.owner.Do(c.moveBack)
	text += " The working directory is " + w.OriginalCwd + " again."
	out["message"] = text
	return tool.Text(text, out), nil
}
