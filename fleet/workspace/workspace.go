// Package workspace gives each session of a fleet a working directory, stores its files after
// each turn, and restores them when the session continues on another machine.
//
// A [Spec] names the provider. worktree keeps a bare mirror of each repository and creates a git
// worktree per session. dir uses a directory that exists on every machine, such as a shared one.
// container runs the agent in a container with access to either of those. command runs your own
// program: see [Spec.Command].
package workspace

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/internal/worktree"
)

// The providers.
const (
	Worktree  = "worktree"
	Dir       = "dir"
	Container = "container"
	Command   = "command"
)

// A Spec describes the workspace of a session.
type Spec struct {
	// Provider is worktree, dir, container or command. Empty means worktree if there is a Repo,
	// and dir otherwise.
	Provider string `json:"provider,omitempty"`
	// Repo is the URL or the path of a git repository, and Ref a branch, a tag or a commit of it. An
	// empty Ref means the default branch of the repository.
	Repo string `json:"repo,omitempty"`
	Ref  string `json:"ref,omitempty"`
	// Path is the directory of dir and of container. With a Repo it is a directory in it.
	Path string `json:"path,omitempty"`
	// Image is the image of container. It must have the program "parley", or that of --agent.
	Image string `json:"image,omitempty"`
	// Command is a program and its arguments. It runs with one more argument, "open" or "snapshot",
	// and receives {"session", "spec", "snapshot", "dir"} as JSON on its standard input. For open it
	// prints {"dir": "/where", "run": ["ssh", "host", …], "restored": true}; run, if present, is the
	// command that starts the agent. For snapshot it prints {"id": "…"}, and receives that id when it
	// opens the workspace again.
	Command []string `json:"command,omitempty"`
}

// Parse parses a spec: JSON, or PROVIDER:WHAT, or a repository with an optional #REF.
func Parse(text string) (Spec, error) {
	var s Spec
	provider, rest, found := strings.Cut(text, ":")
	switch {
	case strings.HasPrefix(text, "{"):
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			return s, fmt.Errorf("workspace: %w", err)
		}
	case found && provider == Dir:
		s = Spec{Provider: Dir, Path: rest}
	case found && provider == Container:
		s.Provider = Container
		s.Image, s.Repo, _ = strings.Cut(rest, "=")
		s.Repo, s.Ref, _ = strings.Cut(s.Repo, "#")
	case found && provider == Command:
		s = Spec{Provider: Command, Command: strings.Fields(rest)}
	default:
		if found && provider == Worktree {
			text = rest
		}
		s.Repo, s.Ref, _ = strings.Cut(text, "#")
	}
	return s, s.Check()
}

// Check sets the provider if it is empty, and reports missing or inconsistent members.
func (s *Spec) Check() error {
	if s.Provider == "" {
		s.Provider = Dir
		if s.Repo != "" {
			s.Provider = Worktree
		}
	}
	bad := func(text string) error {
		return fmt.Errorf("workspace: the provider %s %s", s.Provider, text)
	}
	switch {
	case !slices.Contains([]string{Worktree, Dir, Container, Command}, s.Provider):
		return fmt.Errorf("workspace: %q is not a provider: use worktree, dir, container or command", s.Provider)
	case s.Provider == Worktree && s.Repo == "":
		return bad("needs a repository")
	case s.Provider == Dir && !filepath.IsAbs(s.Path):
		return bad("needs the absolute path of a directory")
	case s.Provider == Container && s.Image == "":
		return bad("needs an image")
	case s.Provider == Container && s.Repo == "" && !filepath.IsAbs(s.Path):
		return bad("needs a repository or the absolute path of a directory")
	case s.Provider == Command && len(s.Command) == 0:
		return bad("needs a program")
	case s.Repo != "" && (s.Provider == Dir || s.Provider == Command):
		return bad("takes no repository")
	case s.Repo != "" && s.Path != "" && !filepath.IsLocal(s.Path):
		return bad("needs a path inside of the repository")
	case strings.HasPrefix(s.Repo, "-") || strings.HasPrefix(s.Ref, "-") || strings.Contains(s.Repo, "::"):
		return bad("refuses a repository or ref that git would take as something else")
	}
	return nil
}

// A Snapshot is the location of a session's stored files.
type Snapshot struct {
	N      int       `json:"n"` // number of the snapshot of a session
	Time   time.Time `json:"time"`
	Commit string    `json:"commit,omitempty"` // its tree is the files; its parent is the checked-out commit
	Ref    string    `json:"ref,omitempty"`    // in the repository, or the name in the object
	Object string    `json:"object,omitempty"` // a git bundle; empty if the repository has the commit
	ID     string    `json:"id,omitempty"`     // of a program
}

// A State is the fleet's state of a session's workspace.
type State struct {
	// Machine is where the workspace was last opened. Copies on other machines are older.
	Machine string    `json:"machine"`
	Last    *Snapshot `json:"last,omitempty"`
}

// Objects store snapshots that a repository does not accept.
type Objects interface {
	// PutObject stores the data of r under a name.
	PutObject(ctx context.Context, name string, r io.Reader) error
	// GetObject writes the data stored under a name to w.
	GetObject(ctx context.Context, name string, w io.Writer) error
	// DeleteObject removes the data stored under a name.
	DeleteObject(ctx context.Context, name string) error
}

// A Manager creates workspaces on one machine.
type Manager struct {
	dir, machine string
	objects      Objects

	mu    sync.Mutex
	locks map[string]*sync.Mutex // by mirror
}

// NewManager returns a manager that keeps mirrors and worktrees in a directory.
func NewManager(dir string, objects Objects) (*Manager, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	m := &Manager{dir: dir, objects: objects, locks: map[string]*sync.Mutex{}}
	file := filepath.Join(dir, "machine")
	name, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		name = []byte(rand.Text())
		err = os.WriteFile(file, name, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("workspace: %w", err)
	}
	m.machine = string(name)
	return m, nil
}

// RepoKey returns the key of a repository in the list of [Manager.Warm].
func RepoKey(repo string) string {
	sum := sha256.Sum256([]byte(repo))
	return hex.EncodeToString(sum[:8])
}

// Warm returns the keys of the repositories that are mirrored on this machine.
func (m *Manager) Warm() (keys []string) {
	list, _ := os.ReadDir(filepath.Join(m.dir, "mirrors"))
	for _, e := range list {
		if key, ok := strings.CutSuffix(e.Name(), ".git"); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// Machine returns the name of this machine in [State.Machine].
func (m *Manager) Machine() string { return m.machine }

// Sessions returns the sessions that have a worktree here.
func (m *Manager) Sessions() (ids []string) {
	list, _ := os.ReadDir(filepath.Join(m.dir, "trees"))
	for _, e := range list {
		ids = append(ids, e.Name())
	}
	return ids
}

// Remove removes the worktree of a session that no longer exists.
func (m *Manager) Remove(ctx context.Context, session string) error {
	tree := filepath.Join(m.dir, "trees", session)
	if mirror, err := git(ctx, tree, "rev-parse", "--path-format=absolute", "--git-common-dir"); err == nil {
		defer m.lock(mirror)()
		if _, err := git(ctx, mirror, "worktree", "remove", "--force", "--force", "--", tree); err == nil {
			git(ctx, mirror, "branch", "-q", "-D", "--", "parley/"+session)
			return nil
		}
	}
	return os.RemoveAll(tree)
}

func (m *Manager) mirror(repo string) string {
	return filepath.Join(m.dir, "mirrors", RepoKey(repo)+".git")
}

func (m *Manager) lock(mirror string) func() {
	m.mu.Lock()
	l := m.locks[mirror]
	if l == nil {
		l = new(sync.Mutex)
		m.locks[mirror] = l
	}
	m.mu.Unlock()
	l.Lock()
	return l.Unlock
}

// A Workspace is the workspace of a session.
type Workspace struct {
	Dir string   // working directory of the agent
	Run []string // the command that runs the agent; empty means that it runs as usual
	// Notice is a text for the model if the files were restored from a snapshot. It is empty if
	// the session's files are unchanged.
	Notice string
	// State is what the fleet must store before the agent starts.
	State State

	m       *Manager
	spec    Spec
	session string
	top     string // of the worktree
}

// Open creates or finds the workspace of a session. state is that of the fleet.
func (m *Manager) Open(ctx context.Context, session string, spec Spec, state State) (*Workspace, error) {
	if err := spec.Check(); err != nil {
		return nil, err
	}
	w := &Workspace{m: m, spec: spec, session: session, State: State{Machine: m.machine, Last: state.Last}}
	var err error
	switch {
	case spec.Provider == Command:
		err = w.openCommand(ctx)
	case spec.Repo != "":
		err = w.openWorktree(ctx, state)
	default:
		w.Dir = filepath.Clean(spec.Path)
		if info, statErr := os.Stat(w.Dir); statErr != nil || !info.IsDir() {
			err = fmt.Errorf("workspace: the directory %s does not exist on this machine", w.Dir)
		}
	}
	if err == nil && spec.Provider == Container {
		err = w.openContainer()
	}
	if err != nil {
		return nil, err
	}
	return w, nil
}

// notice returns the text for the model when files were restored.
func notice(last *Snapshot) string {
	if last == nil {
		return "This session continues on another machine. No files were stored before, so the working directory is as it was at the beginning. Check the files before you rely on earlier changes."
	}
	return fmt.Sprintf("This session continues on another machine. The files of the working directory were restored to the end of an earlier turn (snapshot %d of %s). Changes since then, ignored files and running processes are gone. Check the files before you rely on them.",
		last.N, last.Time.UTC().Format(time.RFC3339))
}

// openWorktree creates the mirror and the worktree.
func (w *Workspace) openWorktree(ctx context.Context, state State) error {
	m := w.m
	mirror := m.mirror(w.spec.Repo)
	defer m.lock(mirror)()
	w.top = filepath.Join(m.dir, "trees", w.session)
	w.Dir = filepath.Join(w.top, filepath.FromSlash(w.spec.Path))
	_, err := os.Stat(filepath.Join(w.top, ".git"))
	if err == nil && (state.Machine == m.machine || state == State{}) {
		return nil // as the session left it
	}
	if err := m.fetch(ctx, mirror, w.spec.Repo); err != nil {
		return err
	}
	if err == nil { // the worktree is older than the session's files elsewhere
		if _, err := git(ctx, mirror, "worktree", "remove", "--force", "--force", "--", w.top); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(w.top); err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	if _, err := git(ctx, mirror, "worktree", "prune"); err != nil {
		return err
	}
	last := state.Last
	commit, err := m.resolve(ctx, mirror, w.spec)
	if last != nil {
		if err = m.load(ctx, mirror, last); err == nil {
			commit, err = git(ctx, mirror, "rev-parse", "--verify", "--quiet", last.Commit+"^1")
		}
	}
	if err != nil {
		return err
	}
	if _, err := git(ctx, mirror, "worktree", "add", "-q", "-f", "-B", "parley/"+w.session, "--", w.top, commit); err != nil {
		return err
	}
	if last != nil {
		if _, err := git(ctx, w.top, "read-tree", "--reset", "-u", last.Commit); err != nil {
			return err
		}
		if _, err := git(ctx, w.top, "reset", "-q"); err != nil { // files that were not committed stay uncommitted
			return err
		}
	}
	if state.Machine != "" {
		w.Notice = notice(last)
	}
	if info, err := os.Stat(w.Dir); err != nil || !info.IsDir() {
		return fmt.Errorf("workspace: the repository %s has no directory %s", hidePassword(w.spec.Repo), w.spec.Path)
	}
	return nil
}

// fetch updates a mirror, and creates it if there is none.
func (m *Manager) fetch(ctx context.Context, mirror, repo string) error {
	update := func(dir string) error {
		if _, err := git(ctx, dir, "fetch", "-q", "--prune", "origin", "+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"); err != nil {
			return err
		}
		git(ctx, dir, "remote", "set-head", "origin", "--auto") // a repository may have no default branch
		return nil
	}
	if _, err := os.Stat(mirror); err == nil {
		if err := update(mirror); err != nil && ctx.Err() != nil {
			return err
		}
		return nil // the mirror may have the ref; if not, resolve fails
	}
	tmp, err := os.MkdirTemp(m.dir, "new-")
	if err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	defer os.RemoveAll(tmp)
	if _, err := git(ctx, tmp, "init", "-q", "--bare"); err != nil {
		return err
	}
	if _, err := git(ctx, tmp, "remote", "add", "--", "origin", repo); err != nil {
		return err
	}
	if err := update(tmp); err != nil {
		return fmt.Errorf("workspace: the repository %s cannot be fetched: check its address and the credentials of git on this machine: %w", hidePassword(repo), err)
	}
	if err := os.MkdirAll(filepath.Dir(mirror), 0o700); err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	if err := os.Rename(tmp, mirror); err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	return nil
}

// resolve returns the commit at which a new session starts.
func (m *Manager) resolve(ctx context.Context, mirror string, spec Spec) (string, error) {
	names := []string{"refs/remotes/origin/HEAD", "refs/remotes/origin/main", "refs/remotes/origin/master"}
	if spec.Ref != "" {
		names = []string{"refs/remotes/origin/" + spec.Ref, "refs/tags/" + spec.Ref, spec.Ref}
	}
	for _, name := range names {
		if commit, err := git(ctx, mirror, "rev-parse", "--verify", "--quiet", name+"^{commit}"); err == nil {
			return commit, nil
		}
	}
	if spec.Ref == "" {
		return "", fmt.Errorf("workspace: the repository %s has no default branch: name a ref", hidePassword(spec.Repo))
	}
	return "", fmt.Errorf("workspace: the repository %s has no branch, tag or commit %q", hidePassword(spec.Repo), spec.Ref)
}

// load fetches the commit of a snapshot into the mirror.
func (m *Manager) load(ctx context.Context, mirror string, s *Snapshot) error {
	if _, err := git(ctx, mirror, "cat-file", "-e", s.Commit+"^{commit}"); err == nil {
		return nil
	}
	from := "origin"
	if s.Object != "" {
		f, err := os.CreateTemp(m.dir, "bundle-")
		if err != nil {
			return fmt.Errorf("workspace: %w", err)
		}
		defer os.Remove(f.Name())
		if err := errors.Join(m.objects.GetObject(ctx, s.Object, f), f.Close()); err != nil {
			return fmt.Errorf("workspace: the snapshot %d cannot be read: %w", s.N, err)
		}
		from = f.Name()
	}
	if _, err := git(ctx, mirror, "fetch", "-q", from, "+"+s.Ref+":"+s.Ref); err != nil {
		return fmt.Errorf("workspace: the snapshot %d cannot be read: %w", s.N, err)
	}
	return nil
}

// Snapshot stores the files if they have changed since the last snapshot. The caller then
// stores State. A directory outside a repository is not stored: every machine has it.
func (w *Workspace) Snapshot(ctx context.Context) (changed bool, err error) {
	next := Snapshot{N: 1, Time: time.Now().UTC().Truncate(time.Millisecond)}
	last := w.State.Last
	if last != nil {
		next.N = last.N + 1
	}
	switch {
	case w.spec.Provider == Command:
		var out struct {
			ID string `json:"id"`
		}
		if err := w.command(ctx, "snapshot", &out); err != nil {
			return false, err
		}
		next.ID = out.ID
	case w.top == "":
		return false, nil
	default:
		if next.Commit, err = w.commit(ctx, next.N); err != nil {
			return false, err
		}
		if last != nil && sameFiles(ctx, w.top, last.Commit, next.Commit) {
			return false, nil
		}
		if err := w.store(ctx, &next, last); err != nil {
			return false, err
		}
	}
	w.State.Last = &next
	return true, nil
}

// commit creates a commit of all files except the ignored ones, and leaves the index unchanged.
func (w *Workspace) commit(ctx context.Context, n int) (string, error) {
	index, err := os.CreateTemp(w.m.dir, "index-")
	if err != nil {
		return "", fmt.Errorf("workspace: %w", err)
	}
	index.Close()
	defer os.Remove(index.Name())
	path, err := git(ctx, w.top, "rev-parse", "--path-format=absolute", "--git-path", "index")
	if err != nil {
		return "", err
	}
	info, statErr := os.Stat(path)                                    // before reading it: an older time only makes git read more
	if data, err := os.ReadFile(path); err == nil && statErr == nil { // with the index, git reads only changed files
		// The copy has the time of the index: git reads the files that may have changed in the same second.
		if err := errors.Join(os.WriteFile(index.Name(), data, 0o600), os.Chtimes(index.Name(), info.ModTime(), info.ModTime())); err != nil {
			return "", fmt.Errorf("workspace: %w", err)
		}
	} else {
		os.Remove(index.Name())
	}
	env := []string{"GIT_INDEX_FILE=" + index.Name()}
	if _, err := gitEnv(ctx, w.top, env, "add", "-A", "--", ":/"); err != nil {
		return "", err
	}
	tree, err := gitEnv(ctx, w.top, env, "write-tree")
	if err != nil {
		return "", err
	}
	return gitEnv(ctx, w.top, []string{"GIT_AUTHOR_NAME=parley", "GIT_AUTHOR_EMAIL=parley@localhost", "GIT_COMMITTER_NAME=parley", "GIT_COMMITTER_EMAIL=parley@localhost"},
		"commit-tree", tree, "-p", "HEAD", "-m", fmt.Sprintf("Snapshot %d of session %s", n, w.session))
}

// sameFiles reports whether two snapshots have the same files and the same parent.
func sameFiles(ctx context.Context, dir, a, b string) bool {
	x, err := git(ctx, dir, "rev-parse", a+"^{tree}", a+"^1")
	y, err2 := git(ctx, dir, "rev-parse", b+"^{tree}", b+"^1")
	return err == nil && err2 == nil && x == y
}

// store pushes a commit to a place that other machines can reach: the repository if it accepts it,
// otherwise the object store.
func (w *Workspace) store(ctx context.Context, s, last *Snapshot) error {
	s.Ref = fmt.Sprintf("refs/parley/%s/%d", w.session, s.N)
	mirror := w.m.mirror(w.spec.Repo)
	if _, err := git(ctx, mirror, "update-ref", s.Ref, s.Commit); err != nil {
		return err
	}
	if last == nil || last.Object == "" { // do not retry a repository that rejected the last snapshot
		if _, err := git(ctx, mirror, "push", "-q", "origin", s.Ref+":"+s.Ref); err == nil {
			return nil
		} else if ctx.Err() != nil {
			return err
		}
	}
	bundle, err := os.CreateTemp(w.m.dir, "bundle-")
	if err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	defer os.Remove(bundle.Name())
	defer bundle.Close()
	if _, err := git(ctx, mirror, "bundle", "create", "-q", bundle.Name(), s.Ref, "--not", "--remotes=origin"); err != nil {
		return err
	}
	r, err := os.Open(bundle.Name())
	if err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	defer r.Close()
	s.Object = fmt.Sprintf("%s/workspace-%d", w.session, s.N)
	if err := w.m.objects.PutObject(ctx, s.Object, r); err != nil {
		return fmt.Errorf("workspace: the snapshot %d cannot be stored: %w", s.N, err)
	}
	return nil
}

// Forget removes the object of a snapshot that was replaced.
func (w *Workspace) Forget(ctx context.Context, s *Snapshot) {
	if s != nil && s.Object != "" {
		w.m.objects.DeleteObject(ctx, s.Object)
	}
}

// openContainer makes the agent run in a container that has the files at the same path.
func (w *Workspace) openContainer() error {
	for _, engine := range []string{"podman", "docker"} {
		if program, err := exec.LookPath(engine); err == nil {
			w.Run = []string{program, "run", "--rm", "-i", "--init", "-w", w.Dir}
			dirs := []string{w.Dir}
			if w.top != "" {
				dirs = []string{w.top, w.m.mirror(w.spec.Repo)}
			}
			for _, dir := range dirs {
				w.Run = append(w.Run, "-v", dir+":"+dir)
			}
			return nil
		}
	}
	return errors.New("workspace: this machine has neither podman nor docker, which the provider container needs")
}

// Prefix returns the command that runs the agent, with its variables. It is empty if the agent runs as
// usual.
func (w *Workspace) Prefix(added []string) []string {
	run := slices.Clone(w.Run)
	if w.spec.Provider == Container {
		for _, v := range added {
			name, _, _ := strings.Cut(v, "=")
			run = append(run, "-e", name) // podman and docker take the value from their environment, so it is not in the process list
		}
		run = append(run, w.spec.Image)
	}
	return run
}

// openCommand lets a program of the user create the workspace.
func (w *Workspace) openCommand(ctx context.Context) error {
	var out struct {
		Dir      string   `json:"dir"`
		Run      []string `json:"run"`
		Restored bool     `json:"restored"`
	}
	if err := w.command(ctx, "open", &out); err != nil {
		return err
	}
	if w.Dir, w.Run = out.Dir, out.Run; !filepath.IsAbs(w.Dir) {
		return fmt.Errorf("workspace: %s did not print the absolute path of a directory as dir", w.spec.Command[0])
	}
	if out.Restored {
		w.Notice = notice(w.State.Last)
	}
	return nil
}

// command runs the program of the spec.
func (w *Workspace) command(ctx context.Context, verb string, out any) error {
	in, err := json.Marshal(map[string]any{"session": w.session, "spec": w.spec, "snapshot": w.State.Last, "dir": w.Dir})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, w.spec.Command[0], append(slices.Clone(w.spec.Command[1:]), verb)...)
	cmd.Stdin = bytes.NewReader(in)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("workspace: %s %s: %w: %s", w.spec.Command[0], verb, err, strings.TrimSpace(stderr.String()))
	}
	if err := json.Unmarshal(stdout.Bytes(), out); err != nil {
		return fmt.Errorf("workspace: %s %s did not print JSON: %w", w.spec.Command[0], verb, err)
	}
	return nil
}

// hidePassword removes user information from a URL.
func hidePassword(repo string) string {
	if scheme, rest, ok := strings.Cut(repo, "://"); ok {
		if _, host, ok := strings.Cut(rest, "@"); ok {
			return scheme + "://…@" + host
		}
	}
	return repo
}

func git(ctx context.Context, dir string, args ...string) (string, error) {
	return gitEnv(ctx, dir, nil, args...)
}

// gitEnv runs git without the hooks and filters of the repository: a session may have written
// them, or put another repository in its place.
func gitEnv(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	options, err := worktree.Programs(ctx, dir)
	if err != nil {
		return "", fmt.Errorf("workspace: %w", err)
	}
	options = append(options, "-c", "core.hooksPath="+os.DevNull, "-c", "core.fsmonitor=false", "-c", "gc.auto=0")
	cmd := exec.CommandContext(ctx, "git", append(options, args...)...)
	cmd.Dir = dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_") || strings.HasPrefix(v, "GIT_SSH") || strings.HasPrefix(v, "GIT_CONFIG") || strings.HasPrefix(v, "GIT_ASKPASS") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = slices.Concat(cmd.Env, []string{"GIT_TERMINAL_PROMPT=0", "LC_ALL=C"}, worktree.Neutral, env)
	if slices.Contains([]string{"add", "read-tree", "reset", "worktree", "write-tree"}, args[0]) { // these need no remote
		cmd.Env = append(cmd.Env, "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none")
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(stderr.String())
		if text == "" {
			text = err.Error()
		}
		return "", fmt.Errorf("workspace: git %s: %s", args[0], text)
	}
	return strings.TrimSpace(stdout.String()), nil
}
