//go:build linux

package socket_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/hub/socket"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

var me = hub.Actor{Name: "me", From: "test", Rights: hub.Everything}

// shortDir returns a directory for a socket, whose path must be short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "hub")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// newHub starts a hub in a directory.
func newHub(t *testing.T, dir string, b hub.Backend) *hub.Hub {
	t.Helper()
	store := &session.Files{Dir: filepath.Join(dir, "config"), Durability: session.Write, LockWait: 5 * time.Second}
	h, err := hub.New(hub.Config{Backend: b, Sessions: store, Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
		cfg := agent.Config{Model: echo{}, Store: store, Environ: append(os.Environ(), "HOME="+dir)}
		return &parley.Options{Cwd: start.Cwd, Dialer: agent.InProcess(cfg)}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// serve serves a hub at the socket in dir until the test ends.
func serve(t *testing.T, dir string, h *hub.Hub) string {
	t.Helper()
	path := filepath.Join(dir, "socket")
	l, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		socket.Serve(ctx, h, l)
	}()
	t.Cleanup(func() {
		stop()
		<-done
		l.Close()
	})
	return path
}

// follow attaches until ok accepts an event, and returns it.
func follow(t *testing.T, c hub.Client, id string, after uint64, ok func(hub.Entry) bool) hub.Entry {
	t.Helper()
	ctx, cancel := context.WithCancel(testwait.Context(t))
	defer cancel()
	for e, err := range c.Attach(ctx, id, after) {
		if err != nil {
			t.Fatal(err)
		}
		if ok(e) {
			return e
		}
	}
	t.Fatal("the events ended")
	return hub.Entry{}
}

func isResult(e hub.Entry) bool {
	return e.Kind == hub.KindFrame && wire.PeekType(e.Data) == "result"
}

// TestClientsAreAlike checks that a front end can do the same with a hub in its process,
// over a socket, and joined.
func TestClientsAreAlike(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, dir string, h *hub.Hub) hub.Client{
		"in process": func(_ *testing.T, _ string, h *hub.Hub) hub.Client { return h.Client(me) },
		"socket": func(t *testing.T, dir string, h *hub.Hub) hub.Client {
			c := socket.NewClient(serve(t, dir, h))
			c.Name = me.Name
			return c
		},
		"joined": func(t *testing.T, dir string, h *hub.Hub) hub.Client {
			c, err := socket.Join(t.Context(), serve(t, dir, h), me, nil, func(socket.Own) (*hub.Hub, error) { return nil, errors.New("a hub runs") })
			if err != nil {
				t.Fatal(err)
			}
			return c
		},
		"held": func(t *testing.T, dir string, h *hub.Hub) hub.Client {
			c, err := socket.Join(t.Context(), filepath.Join(dir, "none"), me, nil, func(own socket.Own) (*hub.Hub, error) { return h, nil })
			if err != nil {
				t.Fatal(err)
			}
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := shortDir(t)
			h := newHub(t, dir, new(hub.Memory))
			defer h.Close()
			c := open(t, dir, h)
			defer c.Close()
			useClient(t, c, dir)
		})
	}
}

func useClient(t *testing.T, c hub.Client, dir string) {
	ctx := t.Context()
	id, err := c.Create(ctx, hub.Spec{Cwd: dir, Title: "First", Agent: hub.Args{Args: []string{"--verbose"}}.Spec()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(ctx, hub.Spec{ID: id}); !errors.Is(err, hub.ErrExists) {
		t.Errorf("created twice: %v", err)
	}
	for _, unknown := range []string{session.NewID(), "x", "../" + id, ""} {
		if _, err := c.State(ctx, unknown); !errors.Is(err, hub.ErrNotFound) {
			t.Errorf("the state of %q: %v", unknown, err)
		}
		if err := c.Open(ctx, hub.Spec{ID: unknown}); !errors.Is(err, hub.ErrNotFound) {
			t.Errorf("%q was opened: %v", unknown, err)
		}
		for _, err := range c.Attach(ctx, unknown, 0) {
			if !errors.Is(err, hub.ErrNotFound) {
				t.Errorf("attached to %q: %v", unknown, err)
			}
		}
	}

	// A prompt, a question, an answer.
	first, err := c.Prompt(ctx, id, wire.Prompt(wire.Text("echo 1 >> effects")))
	if err != nil {
		t.Fatal(err)
	}
	var ask hub.Ask
	asked := follow(t, c, id, 0, func(e hub.Entry) bool { return e.Kind == hub.KindAsk })
	if err := json.Unmarshal(asked.Data, &ask); err != nil {
		t.Fatal(err)
	}
	if err := c.Answer(ctx, id, hub.Answer{Ask: ask.ID, Shown: "else", Response: hub.Allow(&ask).Response}); !errors.Is(err, hub.ErrNotShown) {
		t.Errorf("an answer to something else: %v", err)
	}
	if err := c.Answer(ctx, id, hub.Allow(&ask)); err != nil {
		t.Fatal(err)
	}
	var late *hub.AnsweredError
	if err := c.Answer(ctx, id, hub.Deny(&ask, "no")); !errors.As(err, &late) || late.Answer.By.Name != "me" {
		t.Errorf("a second answer: %v", err)
	}
	deltas := false
	result := follow(t, c, id, 0, isResult)
	if got, _ := os.ReadFile(filepath.Join(dir, "effects")); string(got) != "1\n" {
		t.Errorf("the call left %q", got)
	}

	// Deltas, and an interrupt.
	var once sync.Once
	second := follow(t, c, id, result.N, func(e hub.Entry) bool {
		if e.Kind == hub.KindState { // nothing is missed from here on
			once.Do(func() { go c.Prompt(ctx, id, wire.Prompt(wire.Text("Hello."))) })
		}
		deltas = deltas || e.Kind == hub.KindLive && wire.PeekType(e.Data) == "stream_event"
		return isResult(e)
	})
	if !deltas {
		t.Error("no deltas were received")
	}
	if err := c.Interrupt(ctx, id); err != nil {
		t.Errorf("interrupt: %v", err)
	}
	if dropped, err := c.Drop(ctx, id, first); dropped || err != nil {
		t.Errorf("a prompt that had its turn was taken back: %v, %v", dropped, err)
	}

	// Control requests, and rejections by the agent.
	if err := hub.Call(ctx, c, id, &wire.SetPermissionMode{Mode: "default"}, nil); err != nil {
		t.Error(err)
	}
	var refused *parley.ControlError
	if _, err := c.Control(ctx, id, json.RawMessage(`{"subtype":"no_such_request"}`)); !errors.As(err, &refused) {
		t.Errorf("an unknown control request: %v", err)
	}

	if init, err := c.InitializeResponse(ctx, id); err != nil || len(init.Commands) == 0 {
		t.Errorf("initialized: %v, %v", init, err)
	}

	// A host, and a second one.
	calls := make(chan string, 10)
	opts := hub.HostOptions{
		Initialize: map[string]json.RawMessage{"hooks": json.RawMessage(`{"PreToolUse":[{"matcher":null,"hookCallbackIds":["h1"]}]}`)},
		Handle: func(_ context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
			switch r := req.Request.(type) {
			case *wire.HookCallback:
				calls <- r.CallbackID
				return json.RawMessage(`{}`), nil
			case *wire.CanUseTool:
				calls <- r.ToolName
				return json.RawMessage(`{"behavior":"deny","message":"The host says no."}`), nil
			}
			return nil, errors.New("no answer")
		},
	}
	link, err := c.Host(ctx, id, opts)
	if err != nil {
		t.Fatal(err)
	}
	var held *hub.HeldError
	if _, err := c.Host(ctx, id, opts); !errors.As(err, &held) || held.Epoch != link.Epoch() {
		t.Errorf("a second host: %v", err)
	}
	if _, err := c.Prompt(ctx, id, wire.Prompt(wire.Text("echo 2 >> effects"))); err != nil {
		t.Fatal(err)
	}
	third := follow(t, c, id, second.N, isResult)
	if a, b := <-calls, <-calls; a != "h1" || b != "Bash" {
		t.Errorf("the host got %s and %s", a, b)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "effects")); string(got) != "1\n" {
		t.Errorf("the host denied, and the call left %q", got)
	}
	opts.TakeOver = true
	link2, err := c.Host(ctx, id, opts)
	if err != nil {
		t.Fatal(err)
	}
	<-link.Done()
	if !errors.Is(link.Err(), hub.ErrSuperseded) {
		t.Errorf("the first host ended with %v", link.Err())
	}
	if err := link2.Leave(ctx); err != nil {
		t.Errorf("leave: %v", err)
	}
	<-link2.Done()

	// Rename, reopen with other options, fork, rewind.
	if err := c.Rename(ctx, id, "Second"); err != nil {
		t.Fatal(err)
	}
	if err := c.Open(ctx, hub.Spec{ID: id, Agent: hub.Args{Args: []string{"--model", "opus"}}.Spec()}); err != nil {
		t.Fatal(err)
	}
	state, err := c.State(ctx, id)
	if err != nil || state.Title != "Second" || state.Session != id || state.Host != nil {
		t.Errorf("the state is %+v, %v", state, err)
	}
	follow(t, c, id, third.N, func(e hub.Entry) bool {
		return e.Kind == hub.KindChanged && strings.Contains(string(e.Data), "opus")
	})
	fork, err := c.Create(ctx, hub.Spec{From: &hub.Reference{Session: id, N: result.N}})
	if err != nil {
		t.Fatal(err)
	}
	frames := 0
	follow(t, c, fork, 0, func(e hub.Entry) bool {
		if e.Kind == hub.KindFrame {
			frames++
		}
		return e.Kind == hub.KindState
	})
	if frames == 0 {
		t.Error("the fork is empty")
	}
	if err := c.Rewind(ctx, id, first); err != nil {
		t.Errorf("rewind: %v", err)
	}
	all, err := c.List(ctx)
	if err != nil || len(all) != 2 {
		t.Errorf("the list is %v, %v", all, err)
	}

	// Schedules.
	sid, err := c.Schedule(ctx, hub.Schedule{Session: id, Prompt: "Later.", Cron: "0 0 1 1 *"})
	if err != nil {
		t.Fatal(err)
	}
	if list, err := c.Schedules(ctx, id); err != nil || len(list) != 1 || list[0].ID != sid || list[0].By.Name != "me" {
		t.Errorf("schedules: %v, %v", list, err)
	}
	if err := c.Unschedule(ctx, sid); err != nil {
		t.Error(err)
	}
	if err := c.Unschedule(ctx, sid); !errors.Is(err, hub.ErrNotFound) {
		t.Errorf("a schedule was removed twice: %v", err)
	}

	// Worktrees.
	gitInit(t, dir)
	own, err := c.Create(ctx, hub.Spec{Cwd: dir, AddWorktree: "fix"})
	if err != nil {
		t.Fatal(err)
	}
	if st, err := c.State(ctx, own); err != nil || st.Worktree != "worktree-fix" || st.Cwd == dir {
		t.Errorf("the session with a worktree: %+v, %v", st, err)
	} else if err := os.WriteFile(filepath.Join(st.Cwd, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := c.Worktrees(ctx); err != nil || len(list) != 1 || list[0].Files != 1 || list[0].Session != own || list[0].Problem != "" {
		t.Errorf("worktrees: %+v, %v", list, err)
	}
	if err := c.MergeWorktree(ctx, own); !errors.Is(err, hub.ErrChanged) {
		t.Errorf("merged without its changes: %v", err)
	}
	if err := c.RemoveWorktree(ctx, own, false); !errors.Is(err, hub.ErrChanged) {
		t.Errorf("removed with its changes: %v", err)
	}
	if err := c.RemoveWorktree(ctx, own, true); err != nil {
		t.Error(err)
	}
	if err := c.MergeWorktree(ctx, id); !errors.Is(err, hub.ErrNotFound) {
		t.Errorf("merged the worktree of a session that has none: %v", err)
	}

	// Stop, remove, delete.
	if err := c.Stop(ctx, id); err != nil {
		t.Error(err)
	}
	if err := c.Remove(ctx, fork); err != nil {
		t.Error(err)
	}
	if _, err := c.State(ctx, fork); err != nil {
		t.Errorf("the records of a removed session are gone: %v", err)
	}
	if err := c.Delete(ctx, id); err != nil {
		t.Error(err)
	}
	if _, err := c.State(ctx, id); !errors.Is(err, hub.ErrNotFound) {
		t.Errorf("the deleted session: %v, behind %d", err, third.N)
	}
}

// TestJoinedGoesOnWhenTheHubIsKilled checks that clients of a killed hub continue: a
// viewer misses nothing, and a prompt is accepted by the hub that the process then holds
// itself.
func TestJoinedGoesOnWhenTheHubIsKilled(t *testing.T) {
	child := startChild(t)
	if err := retry(t, func() error { _, err := child.c.List(t.Context()); return err }); err != nil {
		t.Fatal(err)
	}
	c, err := socket.Join(t.Context(), filepath.Join(child.dir, "socket"), me, nil, func(own socket.Own) (*hub.Hub, error) {
		if own.Private {
			t.Error("the hub is held in private")
		}
		return newHub(t, child.dir, &hub.Files{Dir: filepath.Join(child.dir, "hub"), Durability: session.Write}), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	id, err := c.Create(t.Context(), hub.Spec{Cwd: child.dir})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(testwait.Context(t))
	defer cancel()
	results, n := 0, uint64(0)
	send := func() {
		if _, err := c.Prompt(ctx, id, wire.Prompt(wire.Text("Hello."))); err != nil {
			t.Fatal(err)
		}
	}
	send()
	for e, err := range c.Attach(ctx, id, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.N > 0 {
			if e.N != n+1 {
				t.Fatalf("received %d behind %d", e.N, n)
			}
			n = e.N
		}
		if isResult(e) {
			if results++; results == 2 {
				break
			}
			child.kill()
			send()
		}
	}
	if all, err := c.List(ctx); err != nil || len(all) != 1 || strings.HasPrefix(all[0].State.Owner, "hub ") {
		t.Errorf("the list is %+v, %v", all, err)
	}
}

// TestJoinInsideASessionIsPrivate checks that a process that an agent runs holds its own
// hub, which shares nothing.
func TestJoinInsideASessionIsPrivate(t *testing.T) {
	t.Setenv("CLAUDECODE", "1")
	dir := shortDir(t)
	h := newHub(t, dir, new(hub.Memory))
	path := serve(t, dir, h)
	defer h.Close()
	private := false
	c, err := socket.Join(t.Context(), path, me, nil, func(own socket.Own) (*hub.Hub, error) {
		private = own.Private
		return newHub(t, shortDir(t), new(hub.Memory)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Close(); !private {
		t.Error("a command of an agent joined the hub")
	}
}

// TestJoinNeedsTheSameEnvironment checks that a process whose environment differs from the
// hub's holds its own hub, on the same journals, and learns which variables differ.
func TestJoinNeedsTheSameEnvironment(t *testing.T) {
	dir := shortDir(t)
	b := new(hub.Memory)
	config := func(env ...string) hub.Config {
		return hub.Config{Backend: b, Environment: env, Agent: func(context.Context, hub.Start) (*parley.Options, error) { return nil, errors.New("none") }}
	}
	h, err := hub.New(config("A=1", "B=1"))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	path := serve(t, dir, h)
	id, err := h.Client(me).Create(t.Context(), hub.Spec{Cwd: dir})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env  []string
		want string // the variables that differ, or "joined"
	}{{nil, "joined"}, {[]string{"B=1", "A=1"}, "joined"}, {[]string{"A=1", "B=2"}, "[B]"}, {[]string{"A=1"}, "[B]"}, {[]string{"A=1", "B=1", "C=1"}, "[C]"}, {[]string{}, "[A B]"}} {
		got := "joined"
		j, err := socket.Join(t.Context(), path, me, c.env, func(own socket.Own) (*hub.Hub, error) {
			if got = fmt.Sprint(own.Differs); own.Private {
				t.Error("held in private")
			}
			config := config(c.env...)
			config.OwnOnly = true
			return hub.New(config)
		})
		if err != nil {
			t.Fatal(err)
		}
		if all, err := j.List(t.Context()); err != nil || len(all) != 1 || all[0].ID != id {
			t.Errorf("%v: sessions %+v, %v", c.env, all, err)
		}
		if j.Close(); got != c.want {
			t.Errorf("%v: %s, want %s", c.env, got, c.want)
		}
	}
}

// gitInit turns a directory into a repository with one commit.
func gitInit(t *testing.T, dir string) {
	t.Helper()
	for _, args := range [][]string{{"init", "-q"}, {"-c", "user.email=a@example.com", "-c", "user.name=A", "commit", "-q", "--allow-empty", "-m", "first"}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
}
