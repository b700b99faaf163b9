package worktree_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/parley-go/parley/internal/worktree"
)

// newRepo returns a repository with one commit.
func newRepo(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", dir)
	t.Setenv("GIT_DIR", "/nowhere") // must not count
	run(t, dir, "init", "-q", "-b", "main")
	run(t, dir, "config", "user.email", "a@example.com")
	run(t, dir, "config", "user.name", "A")
	commit(t, dir, "a", "one\n")
	return dir
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func commit(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "add", name)
	run(t, dir, "commit", "-q", "-m", name)
}

func TestWorktreesAreAddedListedMergedAndRemoved(t *testing.T) {
	dir, ctx := newRepo(t), t.Context()
	hook := filepath.Join(dir, ".git", "hooks", "post-checkout")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\ntouch '"+dir+"/hooked'\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	tree, err := worktree.Add(ctx, dir, "fix")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "hooked")); err == nil {
		t.Error("a hook of the repository ran")
	}
	if got := run(t, dir, "status", "--porcelain"); got != "" {
		t.Errorf("the main worktree shows %q", got)
	}
	if _, err := worktree.Add(ctx, dir, "fix"); err == nil {
		t.Error("a worktree was added twice")
	}
	all, err := worktree.List(ctx, tree.Dir)
	want := worktree.Tree{Dir: tree.Dir, Branch: tree.Branch, Main: tree.Main}
	if err != nil || len(all) != 1 || all[0] != want {
		t.Errorf("listed %+v, %v; want %+v", all, err, want)
	}
	if found, err := worktree.Open(ctx, tree.Dir); err != nil || *found != want {
		t.Errorf("opened %+v, %v", found, err)
	}
	if _, err := worktree.Open(ctx, dir); err == nil {
		t.Error("the main worktree was opened")
	}

	if err := os.WriteFile(filepath.Join(tree.Dir, "b"), []byte("two\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{"merged": tree.Merge(ctx), "removed": tree.Remove(ctx, false)} {
		if !errors.Is(err, worktree.ErrChanged) {
			t.Errorf("a file that is not committed was %s: %v", what, err)
		}
	}
	commit(t, tree.Dir, "b", "two\n")
	if files, commits, err := tree.Changes(ctx); files != 0 || commits != 1 || err != nil {
		t.Errorf("%d files, %d commits, %v", files, commits, err)
	}
	if err := tree.Remove(ctx, false); !errors.Is(err, worktree.ErrChanged) {
		t.Errorf("a commit was removed: %v", err)
	}
	if err := tree.Merge(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "b")); err != nil {
		t.Error(err)
	}
	if err := tree.Remove(ctx, false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(tree.Dir); err == nil {
		t.Error("the worktree is still there")
	}
	if got := run(t, dir, "branch"); strings.Contains(got, "worktree-fix") {
		t.Errorf("the branch is still there: %s", got)
	}
}

func TestMergeThatConflictsChangesNothing(t *testing.T) {
	dir, ctx := newRepo(t), t.Context()
	tree, err := worktree.Add(ctx, dir, "fix")
	if err != nil {
		t.Fatal(err)
	}
	commit(t, tree.Dir, "a", "theirs\n")
	commit(t, dir, "a", "ours\n")
	if err := tree.Merge(ctx); err == nil || !strings.Contains(err.Error(), "conflict in a") {
		t.Errorf("merged: %v", err)
	}
	if got := run(t, dir, "status", "--porcelain"); got != "" {
		t.Errorf("the main worktree shows %q", got)
	}
	if err := tree.Remove(ctx, true); err != nil {
		t.Error(err)
	}
}

func TestHostileNamesAndFoldersAreRefused(t *testing.T) {
	dir, ctx := newRepo(t), t.Context()
	for _, name := range []string{"", "..", ".", "a/b", "../x", "-f", "--force", ".git", "a..b", "x.lock", "a b", "a\nb", "a\x00b", strings.Repeat("a", 65), "ä"} {
		if _, err := worktree.Add(ctx, dir, name); err == nil {
			t.Errorf("%q was added", name)
		}
	}
	outside := t.TempDir()
	if err := os.Symlink(outside, filepath.Join(dir, ".claude")); err != nil {
		t.Fatal(err)
	}
	if _, err := worktree.Add(ctx, dir, "fix"); err == nil {
		t.Error("a worktree was added behind a link")
	}
	if _, err := worktree.Add(ctx, outside, "fix"); err == nil {
		t.Error("a worktree was added without a repository")
	}
}

// A worktree that was turned into another repository is still inspected as the original one, so
// that no program of the other one runs.
func TestChangesDoNotTrustWhatIsInTheWorktree(t *testing.T) {
	dir, ctx := newRepo(t), t.Context()
	tree, err := worktree.Add(ctx, dir, "fix")
	if err != nil {
		t.Fatal(err)
	}
	evil := func(at string) {
		run(t, at, "init", "-q")
		run(t, at, "config", "filter.x.clean", "touch '"+dir+"/ran'; cat")
		for name, text := range map[string]string{".gitattributes": "* filter=x\n", "f": "1\n"} {
			if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	sub := filepath.Join(tree.Dir, "sub")
	if err := os.Mkdir(sub, 0o777); err != nil {
		t.Fatal(err)
	}
	run(t, sub, "init", "-q")
	run(t, sub, "-c", "user.email=a@example.com", "-c", "user.name=A", "commit", "-q", "--allow-empty", "-m", "x")
	run(t, tree.Dir, "add", "sub")
	run(t, tree.Dir, "commit", "-q", "-m", "sub")
	evil(sub)
	if files, commits, err := tree.Changes(ctx); files != 1 || commits != 1 || err != nil {
		t.Errorf("with a submodule: %d files, %d commits, %v; want 1, 1", files, commits, err)
	}
	if err := os.Remove(filepath.Join(tree.Dir, ".git")); err != nil {
		t.Fatal(err)
	}
	evil(tree.Dir)
	if files, _, err := tree.Changes(ctx); files == 0 || err != nil {
		t.Errorf("with another repository: %d files, %v", files, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("a program ran that a repository in the worktree names")
	}
}

// The base is the commit that is checked out where the worktree was asked for.
func TestWorktreeBeginsAtTheParentsHead(t *testing.T) {
	dir, ctx := newRepo(t), t.Context()
	first, err := worktree.Add(ctx, dir, "first")
	if err != nil {
		t.Fatal(err)
	}
	commit(t, first.Dir, "b", "two\n")
	second, err := worktree.Add(ctx, first.Dir, "second")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(second.Dir, "b")); err != nil {
		t.Error(err)
	}
	if files, commits, err := second.Changes(ctx); files != 0 || commits != 0 || err != nil {
		t.Errorf("a new worktree has %d files and %d commits that are its own, %v", files, commits, err)
	}
	if err := second.Remove(ctx, false); err != nil {
		t.Error(err)
	}
}

// TestNothingOfTheRepositoryRuns configures every program that git could run for a
// worktree in the repository, and sees that the user's own git would run it.
func TestNothingOfTheRepositoryRuns(t *testing.T) {
	dir, ctx := newRepo(t), t.Context()
	witness := filepath.Join(t.TempDir(), "witness")
	commit(t, dir, ".gitattributes", "f filter=x\ng filter=y merge=m\n")
	commit(t, dir, "f", "text\n")
	commit(t, dir, "g", "text\n")
	included := filepath.Join(dir, ".git", "included")
	if err := os.WriteFile(included, []byte("[filter \"y\"]\n\tsmudge = touch '"+witness+"'; cat\n\tclean = touch '"+witness+"'; cat\n\trequired\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "config", "include.path", included)
	run(t, dir, "config", "filter.x.smudge", "touch '"+witness+"'; cat")
	run(t, dir, "config", "filter.x.clean", "touch '"+witness+"'; cat")
	run(t, dir, "config", "filter.x.required", "true")
	run(t, dir, "config", "filter.z=q.process", "touch '"+witness+"'")
	run(t, dir, "config", "gpg.program", witness+".sh")
	run(t, dir, "config", "commit.gpgsign", "true")
	run(t, dir, "config", "merge.m.driver", "touch '"+witness+"'")
	if err := os.WriteFile(witness+".sh", []byte("#!/bin/sh\ntouch '"+witness+"'\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	clean := func(what string) {
		t.Helper()
		if _, err := os.Lstat(witness); err == nil {
			t.Errorf("%s ran a program that the repository names", what)
			os.Remove(witness)
		}
	}
	run(t, dir, "worktree", "add", "-q", filepath.Join(t.TempDir(), "control"))
	if err := os.Remove(witness); err != nil {
		t.Fatalf("git itself ran nothing: %v", err)
	}
	tree, err := worktree.Add(ctx, dir, "fix")
	if err != nil {
		t.Fatal(err)
	}
	clean("Add")
	for _, name := range []string{"f", "g"} {
		if err := os.WriteFile(filepath.Join(tree.Dir, name), []byte("mark\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if files, _, err := tree.Changes(ctx); err != nil || files != 2 {
		t.Errorf("%d changed files, %v; want 2", files, err)
	}
	clean("Changes")
	run(t, tree.Dir, "-c", "commit.gpgsign=false", "-c", "filter.x.clean=cat", "-c", "filter.y.clean=cat", "commit", "-qam", "mark")
	run(t, dir, "-c", "commit.gpgsign=false", "commit", "-q", "--allow-empty", "-m", "beside")
	os.Remove(witness)
	if err := tree.Merge(ctx); err == nil {
		t.Error("Merge made a commit without the signature that the repository asks for")
	}
	clean("Merge")
	if err := tree.Remove(ctx, true); err != nil {
		t.Error(err)
	}
	clean("Remove")
}

// TestForeignRepository lets a project claim to be a work tree of another repository. No
// worktree of that one may be made, because the session would then work there.
func TestForeignRepository(t *testing.T) {
	other, ctx := newRepo(t), t.Context()
	run(t, other, "worktree", "add", "-q", filepath.Join(t.TempDir(), "w"))
	for name, make := range map[string]func(git string) error{
		"a file": func(git string) error { return os.WriteFile(git, []byte("gitdir: "+other+"/.git\n"), 0o666) },
		"a link": func(git string) error { return os.Symlink(filepath.Join(other, ".git"), git) },
		"a file of a worktree": func(git string) error {
			return os.WriteFile(git, []byte("gitdir: "+other+"/.git/worktrees/w\n"), 0o666)
		},
	} {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		if err := make(filepath.Join(dir, ".git")); err != nil {
			t.Fatal(err)
		}
		if tree, err := worktree.Add(ctx, dir, "fix"); err == nil {
			t.Errorf("%s: a worktree was made at %s", name, tree.Dir)
		}
		if _, err := os.Lstat(filepath.Join(other, ".claude")); err == nil {
			t.Fatalf("%s: a directory was made in the other repository", name)
		}
	}
}

// TestAddFollowsNoLink puts links where Add writes. Nothing may appear behind them.
func TestAddFollowsNoLink(t *testing.T) {
	for name, at := range map[string]string{"the exclude file": ".git/info/exclude", "its directory": ".git/info", ".claude": ".claude", "the folder": ".claude/worktrees",
		"git's own worktrees": ".git/worktrees", "a hook": ".git/info/exclude"} {
		t.Run(name, func(t *testing.T) {
			dir, target := newRepo(t), t.TempDir()
			path := filepath.Join(dir, filepath.FromSlash(at))
			if err := errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Dir(path), 0o777)); err != nil {
				t.Fatal(err)
			}
			switch {
			case name == "a hook":
				target = filepath.Join(dir, ".git", "hooks", "pre-push")
				if err := os.WriteFile(target, nil, 0o777); err != nil {
					t.Fatal(err)
				}
			case strings.HasSuffix(at, "exclude"):
				target = filepath.Join(target, "file")
				if err := os.WriteFile(target, nil, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(target, path); err != nil {
				t.Fatal(err)
			}
			if tree, err := worktree.Add(t.Context(), dir, "fix"); err == nil {
				t.Errorf("a worktree was made at %s", tree.Dir)
			}
			if info, err := os.Stat(target); err != nil {
				t.Fatal(err)
			} else if info.IsDir() {
				if entries, err := os.ReadDir(target); err != nil || len(entries) > 0 {
					t.Errorf("behind the link appeared %v (%v)", entries, err)
				}
			} else if info.Size() > 0 {
				t.Error("the file behind the link was written")
			}
		})
	}
}

// The folder of worktrees is replaced by a link right before git creates the worktree, or
// before it checks out the files: nothing stays behind the link.
func TestAddFollowsNoLinkThatComesLater(t *testing.T) {
	real, err := exec.LookPath("git")
	if err != nil || runtime.GOOS != "linux" {
		t.Skip(err, "git gets a directory by a handle on Linux only")
	}
	for _, at := range []string{"worktree add", "reset"} {
		for _, link := range []bool{false, true} {
			t.Run(fmt.Sprint(at, link), func(t *testing.T) {
				dir, target, bin := newRepo(t), t.TempDir(), t.TempDir()
				swap := ":"
				if link {
					swap = fmt.Sprintf("mv %[1]s/.claude/worktrees %[1]s/.claude/old && ln -s %[2]s %[1]s/.claude/worktrees", dir, target)
				}
				script := fmt.Sprintf("#!/bin/sh\ncase \" $* \" in *' %s '*) echo >>%s/seen; %s;; esac\nexec %s \"$@\"\n", at, bin, swap, real)
				if err := os.WriteFile(filepath.Join(bin, "git"), []byte(script), 0o755); err != nil {
					t.Fatal(err)
				}
				t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
				tree, err := worktree.Add(t.Context(), dir, "fix")
				if (err == nil) == link {
					t.Errorf("%+v, error %v", tree, err)
				}
				if seen, err := os.ReadFile(filepath.Join(bin, "seen")); err != nil || string(seen) != "\n" {
					t.Errorf("git ran %q times at this moment (%v)", seen, err)
				}
				if entries, err := os.ReadDir(target); err != nil || len(entries) > 0 {
					t.Errorf("behind the link appeared %v (%v)", entries, err)
				}
				if list := run(t, dir, "worktree", "list", "--porcelain"); strings.Contains(list, "fix") == link {
					t.Errorf("worktrees:\n%s", list)
				}
				if branch := run(t, dir, "branch", "--list", "worktree-fix"); (branch == "") != link {
					t.Errorf("the branch is %q", branch)
				}
			})
		}
	}
}
