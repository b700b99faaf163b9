package workspace

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// memory is a store of objects.
type memory struct {
	mu  sync.Mutex
	all map[string][]byte
}

func (m *memory) PutObject(_ context.Context, name string, r io.Reader) error {
	data, err := io.ReadAll(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[name] = data
	return err
}

func (m *memory) GetObject(_ context.Context, name string, w io.Writer) error {
	m.mu.Lock()
	data, ok := m.all[name]
	m.mu.Unlock()
	if !ok {
		return errors.New("no such object")
	}
	_, err := w.Write(data)
	return err
}

func (m *memory) DeleteObject(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, name)
	return nil
}

// newRepo returns a bare repository with one commit: a.txt, gone.txt, sub/b.txt and an ignore file.
func newRepo(t *testing.T) string {
	t.Helper()
	for name, value := range map[string]string{"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1"} {
		t.Setenv(name, value)
	}
	dir, repo := t.TempDir(), filepath.Join(t.TempDir(), "repo.git")
	write(t, dir, map[string]string{"a.txt": "one\n", "gone.txt": "x\n", "sub/b.txt": "b\n", ".gitignore": "*.log\n"})
	run(t, dir, "init", "-q", "-b", "trunk")
	run(t, dir, "add", "-A")
	run(t, dir, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "one")
	run(t, dir, "clone", "-q", "--bare", ".", repo)
	return repo
}

func run(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := git(t.Context(), dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		mode := os.FileMode(0o644)
		if strings.HasSuffix(name, ".sh") {
			mode = 0o755
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), mode)); err != nil {
			t.Fatal(err)
		}
	}
}

// files returns the names, modes and contents of a directory.
func files(t *testing.T, dir string) string {
	t.Helper()
	var b bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == ".git" {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := ""
		if d.Type() == os.ModeSymlink {
			text, err = os.Readlink(path)
		} else {
			var data []byte
			data, err = os.ReadFile(path)
			text = string(data)
		}
		b.WriteString(strings.TrimPrefix(path, dir) + " " + info.Mode().String() + " " + text + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func newMachine(t *testing.T, o Objects) *Manager {
	t.Helper()
	m, err := NewManager(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const id = "22222222-2222-4222-8222-222222222222"

// A session that moves to another machine has the files of its last snapshot there: changed, new and
// removed ones, modes, links and commits. The model receives a notice. A session that stays keeps
// its files and gets no notice.
func TestWorktreeMovesWithItsSession(t *testing.T) {
	for _, how := range []string{"ref", "object"} {
		t.Run(how, func(t *testing.T) {
			repo := newRepo(t)
			if how == "object" { // the repository accepts no push
				write(t, repo, map[string]string{"hooks/pre-receive.sh": "#!/bin/sh\nexit 1\n"})
				if err := os.Rename(filepath.Join(repo, "hooks/pre-receive.sh"), filepath.Join(repo, "hooks/pre-receive")); err != nil {
					t.Fatal(err)
				}
			}
			objects := &memory{all: map[string][]byte{}}
			one, two := newMachine(t, objects), newMachine(t, objects)
			spec := Spec{Repo: repo}
			open := func(m *Manager, s State) *Workspace {
				t.Helper()
				w, err := m.Open(t.Context(), id, spec, s)
				if err != nil {
					t.Fatal(err)
				}
				return w
			}
			w := open(one, State{})
			if w.Notice != "" || len(one.Warm()) != 1 || one.Warm()[0] != RepoKey(repo) {
				t.Errorf("notice %q, warm %v", w.Notice, one.Warm())
			}
			write(t, w.Dir, map[string]string{"a.txt": "two\n", "new/run.sh": "#!/bin/sh\n", "with space.txt": "s", "x.log": "ignored"})
			if err := errors.Join(os.Remove(filepath.Join(w.Dir, "gone.txt")), os.Symlink("a.txt", filepath.Join(w.Dir, "link"))); err != nil {
				t.Fatal(err)
			}
			run(t, w.Dir, "add", "sub")
			run(t, w.Dir, "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-q", "--allow-empty", "-m", "by the agent")
			head := run(t, w.Dir, "rev-parse", "HEAD")
			if changed, err := w.Snapshot(t.Context()); err != nil || !changed {
				t.Fatalf("snapshot: %v, %v", changed, err)
			}
			if got := run(t, repo, "for-each-ref", "refs/parley"); (got == "") != (how == "object") || len(objects.all) > 0 != (how == "object") {
				t.Errorf("refs %q, %d objects", got, len(objects.all))
			}
			if changed, err := w.Snapshot(t.Context()); err != nil || changed {
				t.Errorf("a snapshot of the same files: %v, %v", changed, err)
			}
			state := w.State
			want := strings.ReplaceAll(files(t, w.Dir), "/x.log -rw-r--r-- ignored\n", "")

			write(t, w.Dir, map[string]string{"later.txt": "after the snapshot"})
			if again := open(one, state); again.Notice != "" || !strings.Contains(files(t, again.Dir), "later.txt") {
				t.Errorf("on the same machine: notice %q\n%s", again.Notice, files(t, again.Dir))
			}

			w = open(two, state)
			if got := files(t, w.Dir); got != want {
				t.Errorf("restored\n%s\nwant\n%s", got, want)
			}
			if got := run(t, w.Dir, "rev-parse", "HEAD"); got != head {
				t.Errorf("HEAD is %s, want the commit of the agent %s", got, head)
			}
			if got := run(t, w.Dir, "diff", "--cached", "--name-only"); got != "" {
				t.Errorf("staged: %s", got)
			}
			if !strings.Contains(w.Notice, "snapshot 1") {
				t.Errorf("notice %q", w.Notice)
			}
			write(t, w.Dir, map[string]string{"a.txt": "three\n"})
			if _, err := w.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			want = files(t, w.Dir)
			w = open(one, w.State) // back, where older files are
			if got := files(t, w.Dir); got != want || !strings.Contains(w.Notice, "snapshot 2") {
				t.Errorf("back: notice %q\n%s\nwant\n%s", w.Notice, got, want)
			}
		})
	}
}

// A session whose machine dies before the first snapshot starts over, and the model receives a notice.
func TestWorktreeWithoutSnapshotBeginsAgain(t *testing.T) {
	repo := newRepo(t)
	one, two := newMachine(t, nil), newMachine(t, nil)
	w, err := one.Open(t.Context(), id, Spec{Repo: repo, Ref: "trunk", Path: "sub"}, State{})
	if err != nil {
		t.Fatal(err)
	}
	w, err = two.Open(t.Context(), id, Spec{Repo: repo, Ref: "trunk", Path: "sub"}, w.State)
	if err != nil || !strings.Contains(w.Notice, "No files were stored") || filepath.Base(w.Dir) != "sub" {
		t.Errorf("%+v, %v", w, err)
	}
}

// A snapshot includes a file that changed within the second in which git last read it, to the same size, so that its
// times have not changed.
func TestSnapshotHasQuickChanges(t *testing.T) {
	w, err := newMachine(t, &memory{}).Open(t.Context(), id, Spec{Repo: newRepo(t)}, State{})
	if err != nil {
		t.Fatal(err)
	}
	run(t, w.top, "config", "core.trustctime", "false") // a test cannot set that time
	then := time.Now().Add(-time.Hour)
	file, index := filepath.Join(w.top, "a.txt"), run(t, w.top, "rev-parse", "--path-format=absolute", "--git-path", "index")
	set := func(name string) {
		if err := os.Chtimes(name, then, then); err != nil {
			t.Fatal(err)
		}
	}
	set(file)
	run(t, w.top, "update-index", "--refresh")
	set(index)
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.ToUpper(string(old))
	write(t, w.top, map[string]string{"a.txt": changed})
	set(file)
	commit, err := w.commit(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, w.top, "show", commit+":a.txt"); got != strings.TrimSpace(changed) {
		t.Errorf("the snapshot has %q, want %q", got, changed)
	}
}

// Each mistake has an error that describes it, without passwords.
func TestErrorsDescribeTheMistake(t *testing.T) {
	repo := newRepo(t)
	m := newMachine(t, nil)
	for text, want := range map[string]string{
		repo + "#nowhere":                          `has no branch, tag or commit "nowhere"`,
		filepath.Join(t.TempDir(), "none"):         "cannot be fetched",
		"dir:/nowhere/at/all":                      "does not exist on this machine",
		"dir:relative":                             "absolute path",
		"container:image":                          "needs a repository or the absolute path",
		"command:":                                 "needs a program",
		`{"provider":"magic"}`:                     "is not a provider",
		`{"repo":"x","colour":"red"}`:              "unknown field",
		`{"repo":"x","path":"../y"}`:               "inside of the repository",
		"--upload-pack=touch x":                    "git would take as something else",
		"ext::sh -c true":                          "git would take as something else",
		"command:/nowhere/at/all":                  "no such file",
		"https://user:hidden@127.0.0.1:1/x.git":    "cannot be fetched",
		`{"repo":"` + repo + `","path":"nowhere"}`: "has no directory nowhere",
	} {
		spec, err := Parse(text)
		if err == nil {
			_, err = m.Open(t.Context(), RepoKey(text), spec, State{})
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

// The provider container runs the agent by podman or docker, with the worktree and its mirror at their
// paths, and shows no value of a variable.
func TestContainerRunsTheAgent(t *testing.T) {
	bin := t.TempDir()
	write(t, bin, map[string]string{"podman.sh": "#!/bin/sh\n"})
	if err := os.Rename(filepath.Join(bin, "podman.sh"), filepath.Join(bin, "podman")); err != nil {
		t.Fatal(err)
	}
	repo := newRepo(t)
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	spec, err := Parse("container:registry.example.com/dev:1=" + repo + "#trunk")
	if err != nil {
		t.Fatal(err)
	}
	m := newMachine(t, nil)
	w, err := m.Open(t.Context(), id, spec, State{})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(w.Prefix([]string{"KEY=secret"}), " ")
	want := filepath.Join(bin, "podman") + " run --rm -i --init -w " + w.Dir + " -v " + w.Dir + ":" + w.Dir + " -v " + m.mirror(repo) + ":" + m.mirror(repo) + " -e KEY registry.example.com/dev:1"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The provider command receives the session and its last snapshot, and decides where it works.
func TestCommandChoosesTheDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"make.sh": "#!/bin/sh\ncat > " + dir + "/in-$1\ncase $1 in open) echo '{\"dir\":\"" + dir + "\",\"run\":[\"ssh\",\"box\"],\"restored\":true}' ;; *) echo '{\"id\":\"snap-7\"}' ;; esac\n"})
	m := newMachine(t, nil)
	spec, err := Parse("command:" + dir + "/make.sh")
	if err != nil {
		t.Fatal(err)
	}
	w, err := m.Open(t.Context(), id, spec, State{Machine: "x", Last: &Snapshot{N: 3, ID: "snap-6"}})
	if err != nil || w.Dir != dir || strings.Join(w.Prefix(nil), " ") != "ssh box" || !strings.Contains(w.Notice, "snapshot 3") {
		t.Fatalf("%+v, %v", w, err)
	}
	if changed, err := w.Snapshot(t.Context()); err != nil || !changed || w.State.Last.ID != "snap-7" || w.State.Last.N != 4 {
		t.Errorf("%+v, %v", w.State.Last, err)
	}
	if in, err := os.ReadFile(filepath.Join(dir, "in-open")); err != nil || !strings.Contains(string(in), `"id":"snap-6"`) || !strings.Contains(string(in), id) {
		t.Errorf("it got %s, %v", in, err)
	}
}

// TestSnapshotRunsNoFilters lets a session configure filters in its repository, and replace
// it by another repository. Storing its files runs none of them.
func TestSnapshotRunsNoFilters(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		repo, witness := newRepo(t), filepath.Join(t.TempDir(), "witness")
		m := newMachine(t, &memory{all: map[string][]byte{}})
		w, err := m.Open(t.Context(), id, Spec{Repo: repo}, State{})
		if err != nil {
			t.Fatal(err)
		}
		if replaced {
			if err := os.Remove(filepath.Join(w.Dir, ".git")); err != nil {
				t.Fatal(err)
			}
			run(t, w.Dir, "init", "-q")
		}
		run(t, w.Dir, "config", "filter.x.clean", "touch '"+witness+"'; cat")
		write(t, w.Dir, map[string]string{".gitattributes": "* filter=x\n", "a.txt": "three\n"})
		control := exec.Command("git", "hash-object", "a.txt")
		control.Dir = w.Dir
		if out, err := control.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := os.Remove(witness); err != nil {
			t.Fatalf("git itself ran nothing: %v", err)
		}
		_, err = w.Snapshot(t.Context())
		if (err == nil) == replaced {
			t.Errorf("replaced: %v, saved: %v", replaced, err)
		}
		if _, err := os.Lstat(witness); err == nil {
			t.Errorf("replaced: %v, a program of the session ran", replaced)
		}
	}
}
