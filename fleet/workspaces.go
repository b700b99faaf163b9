package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/fleet/workspace"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/transport"
	"github.com/parley-go/parley/wire"
)

// Workspaces provide the directories of a worker's sessions: see package workspace.
type Workspaces struct {
	b      *Backend
	m      *workspace.Manager
	logger *slog.Logger
}

// OpenWorkspaces keeps mirrors and worktrees in a directory of this machine. Only one
// process may use the directory. logger may be nil.
func (b *Backend) OpenWorkspaces(ctx context.Context, dir string, logger *slog.Logger) (*Workspaces, error) {
	m, err := workspace.NewManager(dir, b)
	if err != nil {
		return nil, err
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	ws := &Workspaces{b, m, logger}
	for _, id := range m.Sessions() {
		if there, err := b.exists(ctx, id); err == nil && !there {
			if err := m.Remove(ctx, id); err != nil {
				logger.Warn("the files of a session that was deleted cannot be removed", "session", id, "error", err)
			}
		}
	}
	b.beat.mu.Lock()
	b.beat.files = m
	b.beat.mu.Unlock()
	return ws, nil
}

// snapshotLimit is the time limit of a snapshot. The result of the turn waits for it.
const snapshotLimit = time.Minute

// Prepare creates the workspace of a session before its agent starts, and sets the options for it:
// the directory, the command that runs the agent, and a snapshot before the result of each turn.
// Set the Dialer of the options first.
func (ws *Workspaces) Prepare(ctx context.Context, start hub.Start, spec workspace.Spec, opts *parley.Options) error {
	state, err := ws.b.WorkspaceState(ctx, start.ID)
	if err != nil {
		return err
	}
	w, err := ws.m.Open(ctx, start.ID, spec, state)
	if err != nil {
		return err
	}
	if err := ws.b.SetWorkspaceState(ctx, start.ID, start.Epoch, w.State); err != nil {
		return err
	}
	opts.Cwd = w.Dir
	if w.Notice != "" {
		start.Inform(w.Notice)
	}
	dialer := opts.Dialer
	opts.Dialer = transport.DialerFunc(func(ctx context.Context, s transport.Spec) (transport.Conn, error) {
		if run := w.Prefix(s.Added); len(run) > 0 {
			s.Words = append(append(run[1:], s.Path), s.Words...)
			s.Path = run[0]
		}
		conn, err := dialer.Dial(ctx, s)
		if err != nil {
			return nil, err
		}
		return &snapshotConn{Conn: conn, lines: bufio.NewReaderSize(conn, 64<<10), store: func() { ws.snapshot(start, w) }}, nil
	})
	return nil
}

// snapshot stores the files of a session.
func (ws *Workspaces) snapshot(start hub.Start, w *workspace.Workspace) {
	ctx, cancel := context.WithTimeout(ws.b.ctx, snapshotLimit)
	defer cancel()
	old := w.State.Last
	changed, err := w.Snapshot(ctx)
	if err == nil && changed {
		if err = ws.b.SetWorkspaceState(ctx, start.ID, start.Epoch, w.State); err == nil {
			w.Forget(ctx, old)
		}
	}
	if err != nil && !errors.Is(err, hub.ErrConflict) {
		ws.logger.Warn("the files of a session could not be stored; the snapshot before counts", "session", start.ID, "error", err)
	}
}

// A snapshotConn stores the files of a session before the result of a turn is read, so that
// the files of a visible result are available on any machine.
type snapshotConn struct {
	transport.Conn
	lines *bufio.Reader
	rest  []byte
	err   error
	store func()
}

// Read implements [transport.Conn].
func (c *snapshotConn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		if c.rest, c.err = c.lines.ReadBytes('\n'); wire.PeekType(c.rest) == "result" {
			c.store()
		}
		if len(c.rest) == 0 {
			return 0, c.err
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// A placement determines where a session should run.
type placement struct {
	repo    string // the key of its repository
	machine string // the machine that has its files
}

// place returns where a session should run, or nil if all workers are equally suitable.
func (b *Backend) place(ctx context.Context, id string) (*placement, error) {
	c, err := b.created(ctx, id)
	if err != nil || c == nil {
		return nil, err
	}
	var spec struct {
		Workspace *workspace.Spec `json:"workspace"`
	}
	if json.Unmarshal(c.Spec, &spec) != nil || spec.Workspace == nil || spec.Workspace.Repo == "" {
		return nil, nil
	}
	s, err := b.WorkspaceState(ctx, id)
	if err != nil {
		return nil, err
	}
	return &placement{workspace.RepoKey(spec.Workspace.Repo), s.Machine}, nil
}

// fits rates a worker: 2 if it has the files, 1 if it has the repository.
func (p *placement) fits(w *WorkerInfo) int {
	switch {
	case p.machine != "" && p.machine == w.Machine:
		return 2
	case slices.Contains(w.Warm, p.repo):
		return 1
	}
	return 0
}

// warmTime is how long a session waits for a worker that has its files or its repository and a free
// slot.
const warmTime = 2 * time.Second

// better reports whether another worker should have a session that this one could claim.
func (w *Worker) better(ctx context.Context, id string, workers *[]WorkerInfo) (bool, error) {
	p, err := w.b.place(ctx, id)
	if err != nil || p == nil {
		return false, err
	}
	if *workers == nil {
		if *workers, err = w.b.Workers(ctx); err != nil {
			return false, err
		}
	}
	own := w.b.beat.describe()
	mine := p.fits(&own)
	for i := range *workers {
		if x := &(*workers)[i]; x.ID != w.b.id && x.Sessions < x.Slots && p.fits(x) > mine && !w.b.beat.foundDead(x.ID, w.b.cfg.Lease) {
			return w.waited(id) < warmTime, nil
		}
	}
	return false, nil
}

// waited returns how long this worker has seen a session wait.
func (w *Worker) waited(id string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, ok := w.seen[id]
	if !ok {
		since = time.Now()
		w.seen[id] = since
	}
	return time.Since(since)
}

// describe returns the information that this process publishes about itself.
func (t *beat) describe() WorkerInfo {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.describeLocked()
}

func (t *beat) describeLocked() WorkerInfo {
	info := t.info
	info.Sessions = len(t.idsLocked())
	if t.files != nil {
		info.Machine, info.Warm = t.files.Machine(), t.files.Warm()
	}
	return info
}
