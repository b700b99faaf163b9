package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/wire"
)

var ann = hub.Actor{Name: "ann", From: "test", Rights: hub.Everything}

// A crew is a worker with its hub, like a process.
type crew struct {
	b    *Backend
	w    *Worker
	hub  *hub.Hub
	stop func()
}

// always is a model that answers every prompt with text.
type always struct{}

// Stream implements [model.Model].
func (always) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	return parleytest.Script(parleytest.Say("Done.")).Model().Stream(ctx, req)
}

// newCrew starts a worker whose agents play a script that notes each effect in a file, with the epoch. Without a file they
// answer every prompt.
func newCrew(t *testing.T, b *Backend, slots int, file string) *crew {
	t.Helper()
	c := &crew{b: b, w: NewWorker(b, slots, nil)}
	cfg := hub.Config{Backend: c.w.Backend(), Sees: Sees, Name: b.cfg.Worker, Gateway: slots == 0, Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
		var m model.Model = parleytest.Script(
			parleytest.FirstOf(
				parleytest.Expect(parleytest.ToolResult("")).Say("Done."),
				parleytest.Say("I write it.").Call("Bash", map[string]string{"command": "echo $PARLEY_EPOCH $TRACEPARENT >> " + file}),
			),
			parleytest.Say("Done."),
		).Model()
		if file == "" {
			m = always{}
		}
		return &parley.Options{Cwd: start.Cwd, Dialer: agent.InProcess(agent.Config{Model: m, Store: start.Store, Environ: os.Environ()}),
			Env: map[string]string{"PARLEY_EPOCH": strconv.FormatUint(start.Epoch, 10)}}, nil
	}}
	h, err := hub.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.hub = h
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if slots > 0 {
			c.w.Run(ctx, h)
		}
	}()
	c.stop = func() { cancel(); <-done; h.Close() }
	t.Cleanup(c.stop)
	return c
}

// until attaches to a session and returns the first entry of a kind that matches. The numbers of
// the entries before it have no gap.
func until(t *testing.T, s *hub.Session, after *uint64, kind hub.Kind, ok func(hub.Entry) bool) hub.Entry {
	t.Helper()
	for {
		for e, err := range s.Attach(t.Context(), ann, *after) {
			if lagged := new(hub.LaggedError); errors.As(err, &lagged) {
				break // on a busy machine; it attaches again, as clients do
			}
			if err != nil {
				t.Fatalf("no %s: %v", kind, err)
			}
			if e.N > 0 {
				if e.N != *after+1 {
					t.Fatalf("entry %d follows %d", e.N, *after)
				}
				*after = e.N
			}
			if e.Kind == kind && (ok == nil || ok(e)) {
				return e
			}
		}
	}
}

// begin creates a session and sends it a prompt.
func (c *crew) begin(t *testing.T) *hub.Session {
	t.Helper()
	s, err := c.hub.Create(t.Context(), ann, hub.Spec{Cwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prompt(t.Context(), ann, wire.Prompt(wire.Text("Do it."))); err != nil {
		t.Fatal(err)
	}
	return s
}

func isResult(e hub.Entry) bool { return wire.PeekType(e.Data) == "result" }

// A session is created and prompted at a gateway, and run by a worker, which dies while a
// question is open. The answer is given while no worker has the session. The next worker applies
// it, once, with its own epoch.
func TestAnswerCountsWhileNoWorkerOwnsTheSession(t *testing.T) {
	t.Parallel()
	open, file := place(t), filepath.Join(t.TempDir(), "effects")
	gateway := newCrew(t, open(), 0, file)
	one := newCrew(t, open(), 4, file)
	s := gateway.begin(t)
	var last uint64
	e := until(t, s, &last, hub.KindAsk, nil)
	one.b.nc.Close() // simulates a kill: nothing reaches the others any more
	ask := new(hub.Ask)
	if err := json.Unmarshal(e.Data, ask); err != nil {
		t.Fatal(err)
	}
	if err := s.Answer(t.Context(), ann, hub.Allow(ask)); err != nil {
		t.Fatal(err)
	}
	newCrew(t, open(), 4, file)
	owner := until(t, s, &last, hub.KindOwner, nil)
	until(t, s, &last, hub.KindFrame, isResult)
	if got, err := os.ReadFile(file); err != nil || string(got) != strconv.FormatUint(owner.N, 10)+"\n" {
		t.Errorf("the effects are %q, %v; want the epoch %d once", got, err, owner.N)
	}
}

// A draining worker claims no more sessions, and another one continues its sessions.
func TestAnotherWorkerContinuesDrainedSessions(t *testing.T) {
	t.Parallel()
	open, file := place(t), filepath.Join(t.TempDir(), "effects")
	gateway := newCrew(t, open(), 0, file)
	one := newCrew(t, open(), 4, file)
	s := gateway.begin(t)
	var last uint64
	e := until(t, s, &last, hub.KindAsk, nil)
	one.w.Drain(t.Context(), one.hub) // the turn waits for a person, which does not prevent draining
	if one.w.room() != 0 {
		t.Errorf("a worker that drains has room for %d", one.w.room())
	}
	one.b.Close()
	newCrew(t, open(), 4, file)
	until(t, s, &last, hub.KindOwner, nil)
	ask := new(hub.Ask)
	if err := json.Unmarshal(e.Data, ask); err != nil {
		t.Fatal(err)
	}
	if err := s.Answer(t.Context(), ann, hub.Deny(ask, "no")); err != nil {
		t.Fatal(err)
	}
	until(t, s, &last, hub.KindFrame, isResult)
	if got, err := os.ReadFile(file); err == nil {
		t.Errorf("what was denied ran: %q", got)
	}
}

// No worker runs more sessions than it has slots; the status shows the queue.
func TestWorkerRunsNoMoreSessionsThanSlots(t *testing.T) {
	t.Parallel()
	open, file := place(t), filepath.Join(t.TempDir(), "effects")
	gateway := newCrew(t, open(), 0, file)
	one := newCrew(t, open(), 1, file)
	if err := one.b.Announce(t.Context(), "test", 1); err != nil {
		t.Fatal(err)
	}
	var sessions []*hub.Session
	for range 3 {
		s := gateway.begin(t)
		sessions = append(sessions, s)
	}
	testwait.Until(t, "one session runs and two wait", func() bool {
		st, err := gateway.b.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := one.b.beat.count(); n > 1 {
			t.Fatalf("a worker with one slot runs %d sessions", n)
		}
		return st.Running == 1 && st.Waiting == 1 && st.Queued == 2 && st.Sessions == 3 && len(st.Workers) >= 1
	})
	newCrew(t, open(), 2, file) // it claims the rest
	for _, s := range sessions {
		var last uint64
		until(t, s, &last, hub.KindAsk, nil)
	}
}

// The schedules of the fleet need no slot: a worker with one slot that keeps them runs a session.
func TestSchedulesNeedNoSlot(t *testing.T) {
	t.Parallel()
	b := place(t)()
	for _, c := range []struct {
		id       string
		sessions int
	}{{hub.SchedulesID, 0}, {"11111111-1111-4111-8111-111111111111", 1}} {
		if _, err := b.Lease(t.Context(), c.id); err != nil {
			t.Fatal(err)
		}
		if n, info := b.beat.count(), b.beat.describe(); n != c.sessions || info.Sessions != c.sessions {
			t.Errorf("with the lease of %s: %d and %d sessions, want %d", c.id, n, info.Sessions, c.sessions)
		}
	}
}

// A worker that was paused for longer than its lease loses its sessions. If nobody has taken them
// meanwhile, it claims them again.
func TestLostSessionsAreClaimedAgain(t *testing.T) {
	t.Parallel()
	open, file := place(t), filepath.Join(t.TempDir(), "effects")
	gateway := newCrew(t, open(), 0, file)
	one := newCrew(t, open(), 4, file)
	s := gateway.begin(t)
	var last uint64
	e := until(t, s, &last, hub.KindAsk, nil)
	one.b.beat.loseAll()
	until(t, s, &last, hub.KindOwner, nil)
	ask := new(hub.Ask)
	if err := json.Unmarshal(e.Data, ask); err != nil {
		t.Fatal(err)
	}
	if err := s.Answer(t.Context(), ann, hub.Allow(ask)); err != nil {
		t.Fatal(err)
	}
	until(t, s, &last, hub.KindFrame, isResult)
	if got, err := os.ReadFile(file); err != nil || len(strings.Fields(string(got))) != 1 {
		t.Errorf("the effects are %q, %v; want one", got, err)
	}
}

// Viewers at another node receive the pieces of an answer that is being written, and then the whole.
func TestPiecesReachOtherNodes(t *testing.T) {
	t.Parallel()
	open, file := place(t), filepath.Join(t.TempDir(), "effects")
	gateway := newCrew(t, open(), 0, file)
	s, err := gateway.hub.Create(t.Context(), ann, hub.Spec{Cwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan string, 2)
	attached := make(chan struct{})
	go func() {
		pieces, once := "", sync.OnceFunc(func() { close(attached) })
		for e, err := range s.Attach(t.Context(), ann, 0) {
			if err != nil {
				seen <- err.Error()
				return
			}
			switch {
			case e.Kind == hub.KindState:
				once()
			case e.Kind == hub.KindLive && wire.PeekType(e.Data) == "stream_event":
				pieces += string(e.Data)
			case e.Kind == hub.KindFrame && wire.PeekType(e.Data) == "assistant" && strings.Contains(string(e.Data), "I write it."):
				seen <- pieces
				return
			}
		}
	}()
	<-attached
	newCrew(t, open(), 4, file)
	if _, err := s.Prompt(t.Context(), ann, wire.Prompt(wire.Text("Do it."))); err != nil {
		t.Fatal(err)
	}
	if got := <-seen; !strings.Contains(got, "text_delta") {
		t.Errorf("before the whole message came %q, want its pieces", got)
	}
}

// A host that is attached at another node answers the hooks of the agent, however large they are, and stays attached
// when the session moves to another worker.
func TestHostCrossesNodes(t *testing.T) {
	t.Parallel()
	open, file := place(t), filepath.Join(t.TempDir(), "effects")
	gateway := newCrew(t, open(), 0, file)
	worker := newCrew(t, open(), 4, file)
	if err := worker.b.Announce(t.Context(), "", 4); err != nil {
		t.Fatal(err)
	}
	s, err := gateway.hub.Create(t.Context(), ann, hub.Spec{Cwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	reason := strings.Repeat("no, ", 500_000)
	calls := make(chan string, 10)
	host, err := s.Host(t.Context(), ann, hub.HostOptions{
		Initialize: map[string]json.RawMessage{"hooks": json.RawMessage(`{"PreToolUse":[{"matcher":"Bash","hookCallbackIds":["cb"]}]}`)},
		Handle: func(_ context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
			calls <- req.Request.Subtype()
			return json.RawMessage(`{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"` + reason + `"}}`), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	prompt := func() {
		t.Helper()
		if _, err := s.Prompt(t.Context(), ann, wire.Prompt(wire.Text("Do it."))); err != nil {
			t.Fatal(err)
		}
	}
	prompt()
	var last uint64
	until(t, s, &last, hub.KindFrame, func(e hub.Entry) bool { return strings.Contains(string(e.Data), "no, no, ") })
	until(t, s, &last, hub.KindFrame, isResult)
	if got := <-calls; got != "hook_callback" {
		t.Errorf("the agent requests %q", got)
	}
	epoch := host.Epoch()
	worker.stop()
	next := newCrew(t, open(), 4, file)
	if err := next.b.Announce(t.Context(), "", 4); err != nil {
		t.Fatal(err)
	}
	prompt()
	until(t, s, &last, hub.KindFrame, isResult)
	if got := <-calls; got != "hook_callback" || host.Err() != nil || host.Epoch() <= epoch {
		t.Errorf("the next worker requests %q; the host ended with %v; epochs %d and %d", got, host.Err(), epoch, host.Epoch())
	}
}

// Methods that need the process that runs a session work at every node: while a worker runs the
// session, and when none does.
func TestCallsCrossNodes(t *testing.T) {
	t.Parallel()
	open, file := place(t), filepath.Join(t.TempDir(), "effects")
	gateway := newCrew(t, open(), 0, file)
	worker := newCrew(t, open(), 4, file)
	if err := worker.b.Announce(t.Context(), "", 4); err != nil {
		t.Fatal(err)
	}
	s := gateway.begin(t)
	var last uint64
	until(t, s, &last, hub.KindAsk, nil) // a worker runs it, and waits
	control := func(request string) string {
		t.Helper()
		resp, err := s.Control(t.Context(), ann, json.RawMessage(request))
		if err != nil {
			t.Errorf("%s: %v", request, err)
		}
		return string(resp)
	}
	if got := control(`{"subtype":"get_context_usage"}`); !strings.Contains(got, "totalTokens") {
		t.Errorf("the context usage is %q", got)
	}
	var refused *parley.ControlError
	if _, err := s.Control(t.Context(), ann, json.RawMessage(`{"subtype":"set_model","model":7}`)); !errors.As(err, &refused) {
		t.Errorf("the error of the agent is %v", err)
	}
	later, err := s.Prompt(t.Context(), ann, wire.Prompt(wire.Text("And this.")))
	if err != nil {
		t.Fatal(err)
	}
	if dropped, err := s.Drop(t.Context(), ann, later); !dropped || err != nil {
		t.Errorf("the prompt was dropped: %t, %v", dropped, err)
	}
	if err := s.Rewind(t.Context(), ann, "x"); err == nil || errors.Is(err, hub.ErrLocked) || !strings.Contains(err.Error(), "not idle") {
		t.Errorf("rewind during a turn: %v", err)
	}
	viewer := hub.Actor{Name: "bob", Rights: hub.MayView}
	if err := s.Stop(t.Context(), viewer); !errors.Is(err, hub.ErrForbidden) {
		t.Errorf("a viewer stops the session: %v", err)
	}
	if err := s.Stop(t.Context(), ann); err != nil {
		t.Errorf("stop: %v", err)
	}
	if err := s.Rewind(t.Context(), ann, ""); err != nil {
		t.Errorf("rewind: %v", err)
	}
	if init, err := s.InitializeResponse(t.Context(), ann); err != nil || len(init.Commands) == 0 {
		t.Errorf("initialized: %+v, %v", init, err)
	}
	if err := s.Archive(t.Context(), ann, true); err != nil {
		t.Errorf("archive: %v", err)
	}
	if err := s.Remove(t.Context(), ann); err != nil {
		t.Errorf("remove: %v", err)
	}
	if _, err := s.State(t.Context(), ann); !errors.Is(err, hub.ErrNotFound) {
		t.Errorf("after remove: %v", err)
	}
	if _, err := s.Control(t.Context(), ann, json.RawMessage(`{"subtype":"get_context_usage"}`)); !errors.Is(err, hub.ErrNotFound) {
		t.Errorf("control after remove: %v", err)
	}
}

// The span in which a prompt was sent at a gateway is the parent of the spans of the agent on the
// worker.
func TestTraceCrossesNodes(t *testing.T) {
	t.Parallel()
	open, file := place(t), filepath.Join(t.TempDir(), "effects")
	gateway := newCrew(t, open(), 0, file)
	newCrew(t, open(), 4, file)
	s, err := gateway.hub.Create(t.Context(), ann, hub.Spec{Cwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	const span = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if _, err := s.Prompt(hub.WithTrace(t.Context(), span), ann, wire.Prompt(wire.Text("Do it."))); err != nil {
		t.Fatal(err)
	}
	var last uint64
	ask := new(hub.Ask)
	if err := json.Unmarshal(until(t, s, &last, hub.KindAsk, nil).Data, ask); err != nil {
		t.Fatal(err)
	}
	if err := s.Answer(t.Context(), ann, hub.Allow(ask)); err != nil {
		t.Fatal(err)
	}
	until(t, s, &last, hub.KindFrame, isResult)
	if got, err := os.ReadFile(file); err != nil || !strings.Contains(string(got), span) {
		t.Errorf("the tool has the span %q, %v; want %s", got, err, span)
	}
}

// Workers are replaced one after the other while sessions work: every prompt has one result, and no turn fails.
func TestRollingRestartFailsNoTurn(t *testing.T) {
	t.Parallel()
	const sessions, prompts, restarts = 4, 6, 3
	open := place(t)
	gateway := newCrew(t, open(), 0, "")
	worker := newCrew(t, open(), 8, "")
	var work sync.WaitGroup
	var done atomic.Int64
	for range sessions {
		s, err := gateway.hub.Create(t.Context(), ann, hub.Spec{Cwd: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		work.Go(func() {
			var last uint64
			for range prompts {
				if _, err := s.Prompt(t.Context(), ann, wire.Prompt(wire.Text("Do it."))); err != nil {
					t.Errorf("a prompt: %v", err)
					return
				}
				for e, err := range s.Attach(t.Context(), ann, last) {
					if err != nil {
						t.Errorf("attach: %v", err)
						return
					}
					last = max(last, e.N)
					if e.Kind == hub.KindEnded || e.Kind == hub.KindFrame && isResult(e) && !strings.Contains(string(e.Data), `"subtype":"success"`) {
						t.Errorf("a turn failed: %s", e.Data)
						return
					}
					if e.Kind == hub.KindFrame && isResult(e) {
						done.Add(1)
						break
					}
				}
			}
		})
	}
	for n := range restarts {
		testwait.Until(t, "some turns are over", func() bool { return done.Load() > int64(n)*sessions*prompts/(restarts+1) })
		next := newCrew(t, open(), 8, "")
		worker.w.Drain(t.Context(), worker.hub)
		worker.b.Close()
		worker = next
	}
	work.Wait()
	if got := done.Load(); got != sessions*prompts {
		t.Errorf("%d turns are over, want %d", got, sessions*prompts)
	}
}

// A worker that has lost its lease ends the commands of that session, with the processes that they started.
func TestCommandsEndWithTheLease(t *testing.T) {
	t.Parallel()
	open, dir := place(t), t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if out, err := exec.Command("mkfifo", fifo).CombinedOutput(); err != nil {
		t.Skipf("a named pipe cannot be made here: %v: %s", err, out)
	}
	gateway := newCrew(t, open(), 0, dir)
	// The pipe is open as long as the command or a process that it started runs.
	worker := newCrew(t, open(), 4, filepath.Join(dir, "effects")+"; exec 3>"+fifo+"; sleep 100000 & echo ready >&3; wait")
	s := gateway.begin(t)
	var last uint64
	ask := new(hub.Ask)
	if err := json.Unmarshal(until(t, s, &last, hub.KindAsk, nil).Data, ask); err != nil {
		t.Fatal(err)
	}
	if err := s.Answer(t.Context(), ann, hub.Allow(ask)); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.Open(fifo) // waits for the command
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	r := bufio.NewReader(pipe)
	if line, err := r.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("the command wrote %q, %v", line, err)
	}
	worker.w.mu.Lock()
	worker.w.draining = true // so that it does not claim the session again
	worker.w.mu.Unlock()
	worker.b.beat.loseAll()
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("the command wrote %q, %v", rest, err)
	}
}
