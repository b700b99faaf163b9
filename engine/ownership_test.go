package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/engine"
	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A funcTool is a tool that runs a function.
type funcTool struct {
	name string
	run  func(ctx context.Context, call *tool.Call) (*tool.Result, error)
}

func (f *funcTool) Spec() *tool.Spec {
	return &tool.Spec{Name: f.name, Description: "Does " + f.name + ".", Schema: json.RawMessage(`{"type":"object"}`)}
}

func (f *funcTool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

func (f *funcTool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	return f.run(ctx, call)
}

// A slowTool is a tool whose paths are on a slow file system.
type slowTool struct {
	funcTool
	wait func()
}

func (s *slowTool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) {
	s.wait()
	return nil, nil
}

// A fakeHost receives the messages of a conversation and answers nothing.
type fakeHost struct {
	mu      sync.Mutex
	all     []wire.Message
	results chan *wire.Result
}

func newHost() *fakeHost { return &fakeHost{results: make(chan *wire.Result, 16)} }

func (h *fakeHost) Emit(m wire.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, m)
	if r, ok := m.(*wire.Result); ok {
		h.results <- r
	}
}

func (h *fakeHost) CanAsk() bool { return false }

func (h *fakeHost) Ask(context.Context, *wire.CanUseTool, func()) (*wire.PermissionResult, error) {
	return nil, nil
}

func (h *fakeHost) Hooks(context.Context, wire.HookInput, string, string) []hook.Answer {
	return nil
}

// bypass allows every call.
var bypass = engine.PermissionConfig{Mode: wire.ModeBypassPermissions}

// config returns the configuration of a conversation that may use all of its tools.
func config(m model.Model, tools ...tool.Tool) engine.Config {
	return engine.Config{ModelConfig: engine.ModelConfig{Model: m}, PermissionConfig: bypass, Tools: tools}
}

// start runs a conversation until the test ends.
func start(t *testing.T, cfg engine.Config, host engine.Host) *engine.Conversation {
	t.Helper()
	c, err := engine.New(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { defer close(done); c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

// TestInitializeWhileSubagentRuns checks that a host may send initialize again at any
// time, even while subagents read what it changes.
func TestInitializeWhileSubagentRuns(t *testing.T) {
	s := parleytest.Script(parleytest.Call("Agent", `{"description":"d","prompt":"P","run_in_background":false}`), parleytest.Say("main"))
	s.When("sub", parleytest.FirstUser("P"), parleytest.Call("Work", `{}`), parleytest.Call("Work", `{}`), parleytest.Say("report"))
	working := make(chan struct{}, 2)
	work := &funcTool{"Work", func(context.Context, *tool.Call) (*tool.Result, error) {
		working <- struct{}{}
		return tool.Text("done", nil), nil
	}}
	host := newHost()
	defs := agents.BuiltIn()
	cfg := config(s.Model(), work)
	cfg.Agents = defs
	c := start(t, cfg, host)
	c.Do(func() { c.Prompt(wire.Prompt(wire.Text("go"))) })
	for range 2 {
		<-working
		for range 20 {
			var err error
			c.Do(func() {
				err = c.Change(engine.Changes{ForwardSubagents: true, SpareBackground: true, AppendSystemPrompt: "more", Skills: []string{"s"}, Agents: defs})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if r := <-host.results; r.Result != "main" {
		t.Errorf("got the result %q, want main", r.Result)
	}
}

// TestCallBesideClear checks that a call from any goroutine may run while /clear starts
// another session.
func TestCallBesideClear(t *testing.T) {
	store := &session.Memory{}
	log, err := session.Create(t.Context(), store, session.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	work := &funcTool{"Work", func(_ context.Context, call *tool.Call) (*tool.Result, error) {
		return tool.Text(call.Env.Cwd(), nil), nil
	}}
	host := newHost()
	cfg := config(parleytest.Script().Model(), work)
	cfg.SessionConfig = engine.SessionConfig{SessionID: log.ID(), Log: log, Checkpoints: true, NewLog: func(id string) (session.Log, error) {
		return session.Create(context.Background(), store, session.Meta{ID: id})
	}}
	c := start(t, cfg, host)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					c.Call(context.Background(), "Work", json.RawMessage(`{}`))
				}
			}
		})
	}
	for range 5 {
		c.Do(func() { c.Prompt(wire.Prompt(wire.Text("/clear"))) })
		if r := <-host.results; r.IsError {
			t.Errorf("the command failed: %+v", r)
		}
		c.Do(func() { c.SetEnviron(map[string]string{"A": "b"}) })
	}
	close(stop)
	wg.Wait()
}

// TestCallBesideChangedDirectories checks that a call from any goroutine may run while the
// directories and the environment change. It keeps those that it started with.
func TestCallBesideChangedDirectories(t *testing.T) {
	first := t.TempDir()
	work := &funcTool{"Work", func(_ context.Context, call *tool.Call) (*tool.Result, error) {
		roots, environ := slices.Clone(call.Env.Roots), slices.Clone(call.Env.Environ)
		runtime.Gosched()
		if !slices.Equal(roots, call.Env.Roots) || !slices.Equal(environ, call.Env.Environ) {
			t.Error("the place of a call changed while it ran")
		}
		return tool.Text(fmt.Sprint(roots, environ, call.Env.Cwd()), nil), nil
	}}
	host := newHost()
	var answers []*parleytest.Turn
	for range 10 {
		answers = append(answers, parleytest.Say("done"))
	}
	cfg := config(parleytest.Script(answers...).Model(), work)
	cfg.Env = &tool.Env{Roots: []string{first}}
	c := start(t, cfg, host)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					c.Call(context.Background(), "Work", json.RawMessage(`{}`))
				}
			}
		})
	}
	second := t.TempDir()
	for i := range 10 {
		c.Do(func() {
			c.Apply(&wire.PermissionUpdate{Type: wire.UpdateAddDirectories, Directories: []string{second}})
			c.SetEnviron(map[string]string{"A": strconv.Itoa(i)})
			c.Prompt(wire.Prompt(wire.Text("go")))
		})
		if r := <-host.results; r.IsError {
			t.Errorf("the turn failed: %+v", r)
		}
		c.Do(func() {
			c.Apply(&wire.PermissionUpdate{Type: wire.UpdateRemoveDirectories, Directories: []string{second}})
		})
	}
	close(stop)
	wg.Wait()
	if got := c.Call(context.Background(), "Work", json.RawMessage(`{}`)).Content.String(); got != fmt.Sprint([]string{first}, []string{"A=9"}, first) {
		t.Errorf("got %s, want the first directory and A=9", got)
	}
}

// TestInterruptWhileDecisionIsStuck checks that an interrupt is answered within 10 ms
// while the decision about a call waits for a slow file system, and that the turn ends.
func TestInterruptWhileDecisionIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deciding, release := make(chan struct{}), make(chan struct{})
		ran := false
		work := &slowTool{funcTool{"Work", func(context.Context, *tool.Call) (*tool.Result, error) {
			ran = true
			return tool.Text("done", nil), nil
		}}, func() { close(deciding); <-release }}
		host := newHost()
		c, err := engine.New(config(parleytest.Script(parleytest.Call("Work", `{}`)).Model(), work), host)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { defer close(ended); c.Run(t.Context()) }()
		c.Do(func() { c.Prompt(wire.Prompt(wire.Text("go"))) })
		<-deciding
		asked := time.Now()
		c.Do(func() { c.Interrupt(true); c.Stop() })
		if took := time.Since(asked); took > 10*time.Millisecond {
			t.Errorf("the interrupt was answered after %v", took)
		}
		if r := <-host.results; r.TerminalReason != "aborted_tools" {
			t.Errorf("the turn ended with %q, want aborted_tools", r.TerminalReason)
		}
		close(release)
		synctest.Wait()
		if ran {
			t.Error("the call ran after it was interrupted")
		}
		c.Do(c.EndInput)
		<-ended
	})
}
