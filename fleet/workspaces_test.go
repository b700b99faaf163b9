package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/fleet/workspace"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A listening model records its requests. It answers a prompt with the tool call for a word in it, and
// any other request with text.
type listening struct {
	mu  sync.Mutex
	all string
}

func (m *listening) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	m.mu.Lock()
	m.all += string(req.Body)
	m.mu.Unlock()
	var body struct {
		Messages []struct{ Content json.RawMessage }
	}
	json.Unmarshal(req.Body, &body)
	last, turn := string(body.Messages[len(body.Messages)-1].Content), parleytest.Say("Done.")
	if id := session.NewID(); !strings.Contains(last, `"tool_result"`) {
		switch {
		case strings.Contains(last, "first"):
			turn = parleytest.Say("I write.").CallID(id, "Bash", map[string]string{"command": "echo two > a.txt; echo new > b.txt", "description": "write"})
		case strings.Contains(last, "second"):
			turn = parleytest.Say("I look.").CallID(id, "Bash", map[string]string{"command": "cat a.txt b.txt", "description": "read"})
		case strings.Contains(last, "third"):
			turn = parleytest.Say("I write.").CallID(id, "Write", map[string]string{"file_path": "/nowhere/c.txt", "content": "c"})
		}
	}
	return parleytest.Script(turn).Model().Stream(ctx, req)
}

func (m *listening) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all
}

// newFiles starts a worker on a machine of its own, whose agents work in workspaces.
func newFiles(t *testing.T, b *Backend, dir string) (*crew, *listening) {
	t.Helper()
	c := &crew{b: b, w: NewWorker(b, 4, nil)}
	m := &listening{}
	files, err := b.OpenWorkspaces(t.Context(), dir, nil)
	if err == nil {
		err = b.Announce(t.Context(), "test", 4)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.hub, err = hub.New(hub.Config{Backend: c.w.Backend(), Name: b.cfg.Worker, Agent: func(ctx context.Context, start hub.Start) (*parley.Options, error) {
		var spec struct{ Workspace workspace.Spec }
		if err := json.Unmarshal(start.Spec, &spec); err != nil {
			return nil, err
		}
		opts := &parley.Options{Dialer: agent.InProcess(agent.Config{Model: m, Store: start.Store, Environ: os.Environ()}), AllowedTools: []string{"Bash"}}
		return opts, files.Prepare(ctx, start, spec.Workspace, opts)
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.w.Run(ctx, c.hub)
	}()
	c.stop = func() { cancel(); <-done; c.hub.Close() }
	t.Cleanup(c.stop)
	return c, m
}

func newRepo(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, line := range []string{
		"git init -q -b trunk", "echo one > a.txt", "git add -A", "git -c user.name=a -c user.email=a@localhost commit -qm one", "git config receive.denyCurrentBranch ignore",
	} {
		cmd := exec.Command("sh", "-c", line)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	return dir
}

// A session works in a worktree of its repository. When its machine dies, it continues on another
// one with the files of its last turn, and the model receives a notice.
func TestSessionMovesWithItsFiles(t *testing.T) {
	t.Parallel()
	open, repo := place(t), newRepo(t)
	gateway := newCrew(t, open(), 0, "")
	one, _ := newFiles(t, open(), t.TempDir())
	spec, err := json.Marshal(map[string]any{"workspace": workspace.Spec{Repo: repo}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := gateway.hub.Create(t.Context(), ann, hub.Spec{Agent: spec})
	if err != nil {
		t.Fatal(err)
	}
	var last uint64
	prompt := func(text string) {
		t.Helper()
		if _, err := s.Prompt(t.Context(), ann, wire.Prompt(wire.Text(text))); err != nil {
			t.Fatal(err)
		}
		until(t, s, &last, hub.KindFrame, isResult)
	}
	prompt("first")
	state, err := gateway.b.WorkspaceState(t.Context(), s.ID())
	if err != nil || state.Last == nil || state.Last.N != 1 {
		t.Fatalf("when the result is there, the state is %+v, %v", state, err)
	}
	one.b.nc.Close() // the machine is gone
	dir := t.TempDir()
	two, heard := newFiles(t, open(), dir)
	prompt("second")
	if !strings.Contains(heard.String(), "continues on another machine") || !strings.Contains(heard.String(), "snapshot 1") || !strings.Contains(heard.String(), `two\nnew`) {
		t.Errorf("the model got %.2000s", heard.String()[strings.LastIndex(heard.String(), `"messages"`):])
	}
	if got, err := os.ReadFile(filepath.Join(dir, "trees", s.ID(), "b.txt")); err != nil || string(got) != "new\n" {
		t.Errorf("b.txt is %q, %v", got, err)
	}
	// A turn that continues on a third machine has no prompt. The model still receives a notice.
	if _, err := s.Prompt(t.Context(), ann, wire.Prompt(wire.Text("third"))); err != nil {
		t.Fatal(err)
	}
	e := until(t, s, &last, hub.KindAsk, nil)
	two.b.nc.Close()
	_, heard = newFiles(t, open(), t.TempDir())
	until(t, s, &last, hub.KindOwner, nil)
	ask := new(hub.Ask)
	if err := json.Unmarshal(e.Data, ask); err != nil {
		t.Fatal(err)
	}
	if err := s.Answer(t.Context(), ann, hub.Deny(ask, "no")); err != nil {
		t.Fatal(err)
	}
	until(t, s, &last, hub.KindFrame, isResult)
	if n := strings.Count(heard.String(), "continues on another machine"); n < 2 { // the one before it is part of the conversation
		t.Errorf("the model got the notice %d times", n)
	}
	// A stale owner cannot replace the stored state.
	if err := gateway.b.SetWorkspaceState(t.Context(), s.ID(), 1, workspace.State{}); !errors.Is(err, hub.ErrConflict) {
		t.Errorf("a stale owner: %v", err)
	}
}

// A worker that has the repository gets a session before one that does not, while it has a free slot.
func TestPlacementPrefersWarmMirrors(t *testing.T) {
	t.Parallel()
	open, repo := place(t), newRepo(t)
	warm, cold := open(), open()
	spec, err := json.Marshal(map[string]any{"workspace": workspace.Spec{Repo: repo}})
	if err != nil {
		t.Fatal(err)
	}
	for b, slots := range map[*Backend]int{warm: 1, cold: 4} {
		m, err := b.OpenWorkspaces(t.Context(), t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if b == warm {
			if _, err := m.m.Open(t.Context(), "22222222-2222-4222-8222-222222222222", workspace.Spec{Repo: repo}, workspace.State{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Announce(t.Context(), "test", slots); err != nil {
			t.Fatal(err)
		}
	}
	gateway := newCrew(t, open(), 0, "")
	s, err := gateway.hub.Create(t.Context(), ann, hub.Spec{Agent: spec})
	if err != nil {
		t.Fatal(err)
	}
	better := func(b *Backend) bool {
		t.Helper()
		other, err := NewWorker(b, 4, nil).better(t.Context(), s.ID(), new([]WorkerInfo))
		if err != nil {
			t.Fatal(err)
		}
		return other
	}
	if better(warm) || !better(cold) {
		t.Errorf("the warm worker leaves it: %v; the cold one does: %v", better(warm), better(cold))
	}
	// A worker that has the files is preferred to both.
	if err := gateway.b.SetWorkspaceState(t.Context(), s.ID(), 1, workspace.State{Machine: cold.beat.describe().Machine}); err != nil {
		t.Fatal(err)
	}
	if better(cold) || !better(warm) {
		t.Errorf("the worker with the files leaves it: %v; the other does: %v", better(cold), better(warm))
	}
	// The session does not wait for a full worker.
	if err := gateway.b.SetWorkspaceState(t.Context(), s.ID(), 1, workspace.State{}); err != nil {
		t.Fatal(err)
	}
	l, err := warm.Lease(t.Context(), "33333333-3333-4333-8333-333333333333")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := warm.putBeat(t.Context(), warm.beat.describe()); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the cold worker takes it", func() bool { return !better(cold) })
}
