// Package worktree creates git worktrees for sessions, so that several can work on
// one repository at once. It runs git without the hooks of the repository, because a
// session may have written them.
package worktree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// ErrChanged is returned by [Tree.Remove] and [Tree.Merge] for a worktree whose changes
// would be lost or left out.
var ErrChanged = errors.New("worktree: it has changes")

// A Tree is a worktree other than the main one.
type Tree struct {
	Dir    string // its directory
	Branch string // the checked-out branch, "" if none
	Main   string // the main worktree of its repository; empty for a tree of Adopt
	// Base is the commit at which it started, and gitDir is git's directory for it. Both are
	// known for trees of Add and Adopt.
	Base   string
	gitDir string
}

// Folder is the directory in which Add creates worktrees, relative to the main worktree.
const Folder = ".claude/worktrees"

// ValidName reports whether a name is valid for a worktree: letters, digits, "-", "_", "+"
// and "." that form a single file name and branch name.
func ValidName(name string) bool {
	if name == "" || len(name) > 64 || name[0] == '-' || name[0] == '.' || strings.Contains(name, "..") || strings.HasSuffix(name, ".") || strings.HasSuffix(name, ".lock") {
		return false
	}
	for _, c := range name {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("-_.+", c)) {
			return false
		}
	}
	return true
}

// Add creates a worktree with a name for the repository that contains dir, on a new
// branch "worktree-NAME" that starts at the commit that is checked out in dir.
func Add(ctx context.Context, dir, name string) (*Tree, error) {
	if !ValidName(name) {
		return nil, fmt.Errorf("worktree: %q is not a name for a worktree: use letters, digits, - and _", name)
	}
	all, err := list(ctx, dir)
	if err != nil {
		if strings.Contains(err.Error(), "not a git repository") {
			err = fmt.Errorf("worktree: %s is not in a git repository: run git init and commit something first", dir)
		}
		return nil, err
	}
	// A .git of a project can name any repository; that one knows its worktrees.
	if top := Top(ctx, dir); !slices.ContainsFunc(all, func(t Tree) bool { return sameFile(t.Dir, top) }) {
		return nil, fmt.Errorf("worktree: the repository that %s names has no worktree there", dir)
	}
	t := &Tree{Main: all[0].Dir, Branch: "worktree-" + name}
	folder := filepath.Join(t.Main, filepath.FromSlash(Folder))
	made, err := makeDir(t.Main, Folder)
	if err != nil {
		return nil, fmt.Errorf("worktree: %s is not a directory of the repository: %w", folder, err)
	}
	defer made.Close()
	common, err := commonDir(ctx, t.Main)
	if err != nil {
		return nil, err
	}
	if err := ignore(ctx, t.Main, common); err != nil {
		return nil, err
	}
	t.Dir = filepath.Join(folder, name)
	head, err := git(ctx, dir, "rev-parse", "--verify", "HEAD")
	if err != nil {
		return nil, fmt.Errorf("worktree: the repository of %s has no commit to start from: commit something first", dir)
	}
	t.Base = strings.TrimSpace(head)
	if _, err := git(ctx, dir, "worktree", "add", "-q", "--no-checkout", "-b", t.Branch, "--", t.Dir, t.Base); err != nil {
		return nil, err
	}
	if err := t.checkOut(ctx, made, common); err != nil {
		t.undo(ctx, common)
		return nil, err
	}
	return t, nil
}

// checkOut puts the files into a new worktree. A command can replace the folder by a link at
// any moment, and git follows it. So git gets the directory only once it is known to be in the
// folder, and by a handle where the system can do that.
func (t *Tree) checkOut(ctx context.Context, folder *os.Root, common string) error {
	name := filepath.Base(t.Dir)
	replaced := fmt.Errorf("worktree: %s was replaced while the worktree was created", filepath.Dir(t.Dir))
	if info, err := folder.Lstat(name); err != nil || !info.IsDir() {
		return replaced
	}
	dir, err := folder.Open(name)
	if err != nil {
		return replaced
	}
	defer dir.Close()
	text, err := folder.ReadFile(filepath.Join(name, ".git"))
	if err != nil {
		return replaced
	}
	if t.gitDir = linked(t.Dir, text); t.gitDir == "" || !sameFile(filepath.Dir(filepath.Dir(t.gitDir)), common) {
		return replaced
	}
	here := t.Dir
	if runtime.GOOS == "linux" {
		here = fmt.Sprintf("/proc/self/fd/%d", dir.Fd())
	}
	if _, err := git(ctx, here, "--git-dir="+t.gitDir, "--work-tree=.", "reset", "-q", "--hard", "--no-recurse-submodules"); err != nil {
		return err
	}
	was, err := dir.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Stat(t.Dir); err != nil || !os.SameFile(was, now) {
		return replaced
	}
	return nil
}

// linked returns the directory that the content of a .git file names.
func linked(dir string, text []byte) string {
	git, ok := strings.CutPrefix(strings.TrimSuffix(string(text), "\n"), "gitdir: ")
	if ok && !filepath.IsAbs(git) {
		git = filepath.Join(dir, git)
	}
	return git
}

// undo removes what git created of a worktree without files, also where a link led it.
func (t *Tree) undo(ctx context.Context, common string) {
	name := filepath.Base(t.Dir)
	if folder, err := os.OpenRoot(filepath.Dir(t.Dir)); err == nil {
		defer folder.Close()
		text, _ := folder.ReadFile(filepath.Join(name, ".git"))
		if own := linked(t.Dir, text); own != "" && sameFile(filepath.Dir(filepath.Dir(own)), common) {
			folder.Remove(filepath.Join(name, ".git"))
			folder.Remove(name) // only if it is empty
			t.gitDir = own
		}
	}
	if trees, err := os.OpenRoot(filepath.Join(common, "worktrees")); err == nil && t.gitDir != "" {
		trees.RemoveAll(filepath.Base(t.gitDir))
		trees.Close()
	}
	git(ctx, t.Main, "branch", "-q", "-D", "--", t.Branch)
}

// commonDir returns the directory of the repository, which its worktrees share.
func commonDir(ctx context.Context, main string) (string, error) {
	out, err := git(ctx, main, "rev-parse", "--path-format=absolute", "--git-common-dir")
	return strings.TrimSuffix(out, "\n"), err
}

// Adopt returns an existing checkout, to detect changes from now on.
func Adopt(ctx context.Context, dir string) (*Tree, error) {
	out, err := git(ctx, dir, "rev-parse", "--absolute-git-dir", "HEAD")
	if err != nil {
		return nil, err
	}
	gitDir, head, _ := strings.Cut(strings.TrimSuffix(out, "\n"), "\n")
	return &Tree{Dir: dir, Base: head, gitDir: gitDir}, nil
}

// Top returns the top directory of the working tree that contains dir, or "" if dir is in no
// repository.
func Top(ctx context.Context, dir string) string {
	out, err := git(ctx, dir, "rev-parse", "--path-format=absolute", "--show-toplevel")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(out, "\n")
}

// ignore makes the repository ignore its worktrees, unless it already does.
func ignore(ctx context.Context, main, common string) error {
	if _, err := git(ctx, main, "check-ignore", "-q", "--", Folder+"/x"); err == nil {
		return nil
	}
	const base = "exclude"
	dir, err := makeDir(common, "info")
	if err != nil {
		return fmt.Errorf("worktree: %w", err)
	}
	defer dir.Close()
	before, err := dir.Lstat(base)
	if err == nil && !before.Mode().IsRegular() {
		return errors.New("worktree: info/exclude of the repository is not a regular file")
	}
	flag := os.O_APPEND | os.O_WRONLY
	if before == nil {
		flag |= os.O_CREATE | os.O_EXCL // so that no link is followed
	}
	f, err := dir.OpenFile(base, flag, 0o666)
	if err != nil {
		return fmt.Errorf("worktree: %w", err)
	}
	if now, err := f.Stat(); err != nil || before != nil && !os.SameFile(before, now) {
		return errors.Join(errors.New("worktree: info/exclude of the repository was replaced"), err, f.Close())
	}
	_, err = f.WriteString("\n/" + Folder + "/\n")
	return errors.Join(err, f.Close())
}

// makeDir makes a directory below another, unless it exists, and opens it. It follows no
// link below the first.
func makeDir(top, below string) (*os.Root, error) {
	dir, err := os.OpenRoot(top)
	for part := range strings.SplitSeq(below, "/") {
		if err != nil {
			break
		}
		if err = dir.Mkdir(part, 0o777); errors.Is(err, fs.ErrExist) {
			err = nil
		}
		var here, now fs.FileInfo
		var next *os.Root
		if err == nil {
			here, err = dir.Lstat(part)
		}
		if err == nil {
			next, err = dir.OpenRoot(part)
		}
		dir.Close()
		if err != nil {
			break
		}
		dir = next
		if now, err = dir.Stat("."); err == nil && !os.SameFile(here, now) {
			err = fmt.Errorf("%s is a symbolic link", part)
			dir.Close()
		}
	}
	return dir, err
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

// List returns the worktrees of the repository that contains dir, except the main one.
func List(ctx context.Context, dir string) ([]Tree, error) {
	all, err := list(ctx, dir)
	if err != nil {
		return nil, err
	}
	return all[1:], nil
}

// Open returns the worktree that contains dir. It is an error if that is the main one.
func Open(ctx context.Context, dir string) (*Tree, error) {
	all, err := list(ctx, dir)
	if err != nil {
		return nil, err
	}
	out, err := git(ctx, dir, "rev-parse", "--path-format=absolute", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	top := strings.TrimSuffix(out, "\n")
	i := slices.IndexFunc(all, func(t Tree) bool { return t.Dir == top })
	if i < 1 {
		return nil, fmt.Errorf("worktree: %s is not in a worktree of its own", dir)
	}
	return &all[i], nil
}

// list returns all worktrees, the main one first.
func list(ctx context.Context, dir string) ([]Tree, error) {
	out, err := git(ctx, dir, "worktree", "list", "--porcelain", "-z")
	if err != nil {
		return nil, err
	}
	var all []Tree
	for field := range strings.SplitSeq(out, "\x00") {
		if path, ok := strings.CutPrefix(field, "worktree "); ok {
			all = append(all, Tree{Dir: filepath.FromSlash(path)})
		} else if ref, ok := strings.CutPrefix(field, "branch refs/heads/"); ok && len(all) > 0 {
			all[len(all)-1].Branch = ref
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("worktree: %s has no worktree", dir)
	}
	for i := range all {
		all[i].Main = all[0].Dir
	}
	return all, nil
}

// Changes returns the number of uncommitted files, and the number of commits that neither the
// main worktree nor Base contains.
func (t *Tree) Changes(ctx context.Context) (files, commits int, err error) {
	// A command may have put another repository in its place, so git receives its path
	// explicitly. It does not look into submodules, whose configuration can name programs.
	in := func(args ...string) (string, error) {
		if t.gitDir != "" {
			args = append([]string{"--git-dir=" + t.gitDir, "--work-tree=" + t.Dir}, args...)
		}
		return git(ctx, t.Dir, args...)
	}
	out, err := in("status", "--porcelain", "-z", "--untracked-files=all", "--ignore-submodules=all")
	if err != nil {
		return 0, 0, err
	}
	files = strings.Count(out, "\x00")
	if out, err = in("ls-files", "-s", "-z"); err != nil {
		return 0, 0, err
	}
	for entry := range strings.SplitSeq(out, "\x00") {
		if meta, path, ok := strings.Cut(entry, "\t"); ok && strings.HasPrefix(meta, "160000 ") {
			if inside, err := os.ReadDir(filepath.Join(t.Dir, filepath.FromSlash(path))); err != nil || len(inside) > 0 {
				files++ // the contents of a submodule may have changed
			}
		}
	}
	known := []string{"rev-list", "HEAD"}
	if t.Main != "" {
		main, err := git(ctx, t.Main, "rev-parse", "HEAD")
		if err != nil {
			return 0, 0, err
		}
		known = append(known, "^"+strings.TrimSpace(main))
	}
	if t.Base != "" {
		known = append(known, "^"+t.Base)
	}
	if out, err = in(known...); err != nil {
		return 0, 0, err
	}
	return files, strings.Count(out, "\n"), nil
}

// Merge merges the worktree's branch into the current branch of the main worktree.
// The error is [ErrChanged] if files are not committed. If the branches conflict,
// nothing changes.
func (t *Tree) Merge(ctx context.Context) error {
	files, _, err := t.Changes(ctx)
	switch {
	case err != nil:
		return err
	case t.Branch == "":
		return fmt.Errorf("worktree: no branch is checked out in %s", t.Dir)
	case files > 0:
		return fmt.Errorf("%w: %d files in %s are not committed", ErrChanged, files, t.Dir)
	}
	if _, err = git(ctx, t.Main, "merge", "-q", "--no-edit", "--", t.Branch); err == nil {
		return nil
	}
	conflicts, _ := git(ctx, t.Main, "diff", "--name-only", "--diff-filter=U")
	if conflicts == "" {
		return err
	}
	if _, abort := git(ctx, t.Main, "merge", "--abort"); abort != nil {
		return errors.Join(err, abort)
	}
	return fmt.Errorf("worktree: %s and the branch of %s conflict in %s; merge them by hand", t.Branch, t.Main, strings.Join(strings.Fields(conflicts), ", "))
}

// Remove removes the worktree and its branch. The error is [ErrChanged] if that would
// lose changes, unless force is set.
func (t *Tree) Remove(ctx context.Context, force bool) error {
	if !force {
		files, commits, err := t.Changes(ctx)
		if err != nil {
			return err
		}
		if files+commits > 0 {
			return fmt.Errorf("%w that would be lost: %d files are not committed, %d commits are not merged", ErrChanged, files, commits)
		}
	}
	if _, err := git(ctx, t.Main, "worktree", "remove", "--force", "--", t.Dir); err != nil {
		return err
	}
	if t.Branch == "" {
		return nil
	}
	_, err := git(ctx, t.Main, "branch", "-q", "-D", "--", t.Branch)
	return err
}

// Git runs git in a directory, without the hooks and the monitor of the repository, and returns
// its output.
func Git(ctx context.Context, dir string, args ...string) (string, error) {
	return git(ctx, dir, args...)
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	words := 0 // options before the command that name the repository
	for words < len(args) && strings.HasPrefix(args[words], "--") {
		words++
	}
	programs, err := Programs(ctx, dir, args[:words]...)
	if err != nil {
		return "", err
	}
	return gitWith(ctx, dir, programs, args...)
}

// Programs returns the options without which git runs programs that the configuration of
// the repository names: filters of files, which are left out, and those for merging and
// signing, which then fail. Programs of the user's own configuration stay. The options
// need the variables of [Neutral]. repository may name the repository for git.
func Programs(ctx context.Context, dir string, repository ...string) (options []string, err error) {
	out, err := gitWith(ctx, dir, repository, "config", "--list", "--show-scope", "--name-only", "-z", "--includes")
	for entries := strings.Split(out, "\x00"); len(entries) > 1; entries = entries[2:] {
		if entries[0] != "local" && entries[0] != "worktree" {
			continue
		}
		section, rest, _ := strings.Cut(entries[1], ".")
		key := rest[strings.LastIndexByte(rest, '.')+1:]
		switch {
		case section == "filter" && key == "required", section == "merge" && key == "driver", section == "gpg" && key == "program":
			options = append(options, "--config-env="+entries[1]+"=PARLEY_FALSE")
		case section == "filter":
			options = append(options, "--config-env="+entries[1]+"=PARLEY_NONE")
		}
	}
	slices.Sort(options)
	return slices.Compact(options), err
}

// Neutral are the variables that the options of [Programs] refer to.
var Neutral = []string{"PARLEY_NONE=", "PARLEY_FALSE=false"}

// isSecret reports whether a variable looks like a credential.
func isSecret(name string) bool {
	for _, end := range []string{"KEY", "KEY_ID", "TOKEN", "SECRET", "PASSWORD", "CREDENTIALS"} {
		if strings.HasSuffix(strings.ToUpper(name), end) {
			return true
		}
	}
	return false
}

func gitWith(ctx context.Context, dir string, options []string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", slices.Concat([]string{"-c", "core.hooksPath=" + os.DevNull, "-c", "core.fsmonitor=false"}, options, args)...)
	cmd.Dir = dir
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		// Names such as GIT_DIR name another repository, and git needs no credentials.
		if !strings.HasPrefix(name, "GIT_") && !strings.HasPrefix(name, "ANTHROPIC_") && !isSecret(name) {
			cmd.Env = append(cmd.Env, v)
		}
	}
	// Git fetches nothing that it lacks, because the repository names the program for that, too.
	cmd.Env = append(cmd.Env, "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "LC_ALL=C")
	cmd.Env = append(cmd.Env, Neutral...)
	var out, failed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failed
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(failed.String())
		if text == "" {
			text = err.Error()
		}
		return "", fmt.Errorf("worktree: git %s: %s", command(args), text)
	}
	return out.String(), nil
}

// command returns the git command among the words.
func command(args []string) string {
	for _, a := range args {
		if !strings.HasPrefix(a, "-") {
			return a
		}
	}
	return ""
}
