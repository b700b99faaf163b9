package crew

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A fixture is a parent of subagents without a real conversation.
type fixture struct {
	*Parent
	tool *Tool
	// run stands for the conversation of a subagent.
	run func(ctx context.Context, s *Subagent, text string)

	mu      sync.Mutex
	emitted []wire.Message
	prompts []string
}

func newFixture(ctx context.Context) *fixture {
	f := &fixture{run: func(_ context.Context, s *Subagent, text string) {
		s.Emit(&wire.Assistant{Message: wire.APIMessage{Content: wire.Blocks(&wire.TextBlock{Text: "did " + text})}})
		s.Emit(&wire.Result{Result: "did " + text})
	}}
	emit := func(m wire.Message) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.emitted = append(f.emitted, m)
	}
	var owner sync.Mutex
	do := func(g func()) bool {
		owner.Lock()
		defer owner.Unlock()
		g()
		return true
	}
	env := &tool.Env{}
	view := func() *call.View { return &call.View{} }
	watch := &Watch{Env: env, Emit: emit, Now: time.Now, Do: do, AddPrompt: func(text string, _ *wire.Origin) { f.prompts = append(f.prompts, text) }}
	f.Parent = &Parent{Env: env, Log: slog.New(slog.DiscardHandler), Now: time.Now, Watch: watch, Context: func() context.Context { return ctx }, Do: do, View: view,
		Spent: func() bool { return false },
		Spawn: func(_ context.Context, s *Subagent, background bool) (*Child, error) {
			s.Model = "m"
			if _, err := s.OpenLog(background); err != nil {
				return nil, err
			}
			return &Child{Watch: watch, LastUsage: func() *wire.Usage { return &wire.Usage{InputTokens: 3, OutputTokens: 4} }, Unstopped: func() []*call.Call { return nil }, Tell: func(string) bool { return false },
				Run: func(ctx context.Context, text string, _ func(*wire.User)) { f.run(ctx, s, text) }}, nil
		},
		Top: &Top{Emit: emit, View: view, Place: func() *recorder.Place { return &recorder.Place{ID: "s"} }, SetAsking: func(bool) {}, AddDenials: func([]*wire.PermissionDenial) {}}}
	f.tool = NewTool(f.Parent, []*agents.Definition{{Name: agents.Default}, {Name: "helper"}})
	return f
}

func (f *fixture) start(ctx context.Context, input string) (*tool.Result, error) {
	return f.tool.Run(ctx, &tool.Call{ID: "call_1", Input: json.RawMessage(input), Env: f.Env})
}

// notification returns the last report of an end.
func (f *fixture) notification() *wire.TaskNotification {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range slices.Backward(f.emitted) {
		if m, ok := m.(*wire.TaskNotification); ok {
			return m
		}
	}
	return nil
}

func (f *fixture) counts(t *testing.T) (c counts) {
	t.Helper()
	if err := json.Unmarshal(f.Top.Stats.JSON(), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestForegroundSubagentReturnsItsReport(t *testing.T) {
	f := newFixture(t.Context())
	r, err := f.start(t.Context(), `{"description":"d","prompt":"work","run_in_background":false}`)
	if err != nil {
		t.Fatal(err)
	}
	out := r.Structured.(*agentOutput)
	if !strings.Contains(r.Content.String(), "did work") || out.Status != "completed" || out.Tokens != 7 || out.AgentType != agents.Default {
		t.Errorf("got %s and %+v", r.Content.String(), out)
	}
	if n := f.notification(); n == nil || n.Status != "completed" || len(f.prompts) != 0 {
		t.Errorf("got %+v and the prompts %q, want a report and no prompt", n, f.prompts)
	}
	if c := f.counts(t); c.Spawned != 1 || c.Completed != 1 || c.Requested.Foreground != 1 || c.ByType[agents.Default] != 1 {
		t.Errorf("got the counts %+v", c)
	}
}

// A closer is a log that reports whether it was closed.
type closer struct {
	session.Log
	closed bool
}

func (c *closer) Close() error { c.closed = true; return nil }

func TestLogIsOpenUntilAllCallsHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, late := &closer{}, &call.Call{Done: make(chan struct{})}
		s := &Subagent{log: log}
		s.closeLog([]*call.Call{late})
		synctest.Wait()
		if log.closed {
			t.Error("the log is closed while a call runs, whose outcome is lost")
		}
		close(late.Done)
		synctest.Wait()
		if !log.closed {
			t.Error("the log is open although all calls have ended")
		}
	})
}

func TestBackgroundSubagentReportsInAPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t.Context())
		r, err := f.start(t.Context(), `{"prompt":"work","subagent_type":"HELPER"}`)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(r.Content.String(), "works in the background") {
			t.Errorf("got %s", r.Content.String())
		}
		synctest.Wait()
		<-f.Watch.Reports.None()
		if len(f.prompts) != 1 || !strings.Contains(f.prompts[0], "has ended (completed)") || !strings.Contains(f.prompts[0], "  did work") {
			t.Errorf("got the prompts %q", f.prompts)
		}
	})
}

func TestEndsOfSubagents(t *testing.T) {
	for name, test := range map[string]struct {
		run    func(ctx context.Context, s *Subagent, text string)
		status string
		text   string
	}{
		"panic":     {func(context.Context, *Subagent, string) { panic("oops") }, "failed", "unexpected way: oops"},
		"no result": {func(context.Context, *Subagent, string) {}, "failed", "without a result"},
		"nothing":   {func(_ context.Context, s *Subagent, _ string) { s.Emit(&wire.Result{}) }, "failed", "without an answer"},
		"error": {func(_ context.Context, s *Subagent, _ string) {
			s.Emit(&wire.Result{IsError: true, Result: "API down"})
		}, "failed", "API down"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t.Context())
			f.run = test.run
			if _, err := f.start(t.Context(), `{"prompt":"work","run_in_background":false}`); err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want an error with %q", err, test.text)
			}
			if n := f.notification(); n.Status != test.status {
				t.Errorf("got %+v", n)
			}
		})
	}
}

func TestInterruptStopsSubagents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t.Context())
		f.run = func(ctx context.Context, _ *Subagent, _ string) { <-ctx.Done() }
		if _, err := f.start(t.Context(), `{"prompt":"spared"}`); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			_, err := f.start(ctx, `{"prompt":"waited for","run_in_background":false}`)
			ended <- err
		}()
		synctest.Wait()
		stop := errors.New("stop")
		cancel(stop) // first, as the conversation does
		f.Interrupt(stop, true)
		if err := <-ended; !errors.Is(err, stop) {
			t.Errorf("got %v", err)
		}
		if got := len(f.Env.Tasks().Running()); got != 1 {
			t.Errorf("%d tasks run, want the one in the background", got)
		}
		f.EndAll()
		if got := len(f.Env.Tasks().Running()); got != 0 {
			t.Errorf("%d tasks run after the end of the conversation", got)
		}
		if c := f.counts(t); c.Killed.User != 1 || c.Killed.System != 1 {
			t.Errorf("got the counts %+v", c)
		}
	})
}

func TestSubagentThatDoesNotStopIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t.Context())
		release := make(chan struct{})
		f.run = func(context.Context, *Subagent, string) { <-release }
		if _, err := f.start(t.Context(), `{"prompt":"hang"}`); err != nil {
			t.Fatal(err)
		}
		f.EndAll()
		n := f.notification()
		if n == nil || n.Status != "stopped" {
			t.Errorf("got %+v", n)
		}
		close(release)
		synctest.Wait()
		if got := f.notification(); got != n {
			t.Errorf("got a second report: %+v", got)
		}
	})
}

func TestSubagentsAreRefusedAtTheLimits(t *testing.T) {
	f := newFixture(t.Context())
	f.Spent = func() bool { return true }
	if _, err := f.start(t.Context(), `{"prompt":"work"}`); err == nil || !strings.Contains(err.Error(), "budget") {
		t.Errorf("got %v", err)
	}
	f.Spent, f.Depth = func() bool { return false }, MaxDepth
	if _, err := f.start(t.Context(), `{"prompt":"work"}`); err == nil || !strings.Contains(err.Error(), "deep") {
		t.Errorf("got %v", err)
	}
	f.Depth = 0
	f.Top.running.Store(maxSubagents)
	if _, err := f.start(t.Context(), `{"prompt":"work"}`); err == nil || f.Top.running.Load() != maxSubagents {
		t.Errorf("got %v and %d running", err, f.Top.running.Load())
	}
	if c := f.counts(t); c.Refused.Budget != 1 || c.Refused.Depth != 1 || c.Refused.Concurrency != 1 || c.Spawned != 0 {
		t.Errorf("got the counts %+v", c)
	}
	f.Spawn = func(context.Context, *Subagent, bool) (*Child, error) { return nil, session.ErrNotFound }
	f.Top.running.Store(0)
	if _, err := f.start(t.Context(), `{"prompt":"work"}`); !errors.Is(err, session.ErrNotFound) || f.Top.running.Load() != 0 {
		t.Errorf("got %v and %d running: a subagent that did not start keeps its place", err, f.Top.running.Load())
	}
}

func TestSubagentThatHasEndedGoesOn(t *testing.T) {
	f := newFixture(t.Context())
	f.NoBackground = true
	r, err := f.start(t.Context(), `{"prompt":"work"}`)
	if err != nil {
		t.Fatal(err)
	}
	id := r.Structured.(*agentOutput).AgentID
	m := NewMessageTool(f.tool)
	if got := m.AgentType(json.RawMessage(`{"to":"` + id + `","message":"more"}`)); got != agents.Default {
		t.Errorf("the message is for %q", got)
	}
	if r, err = m.Run(t.Context(), &tool.Call{ID: "call_2", Input: json.RawMessage(`{"to":"` + id + `","message":"more"}`), Env: f.Env}); err != nil {
		t.Fatal(err)
	}
	if out := r.Structured.(*agentOutput); out.AgentID != id || !strings.Contains(r.Content.String(), "Message from the agent that started you:\n  more") {
		t.Errorf("got %s of %s, want that %s goes on", r.Content.String(), out.AgentID, id)
	}
	if _, err = m.Run(t.Context(), &tool.Call{Input: json.RawMessage(`{"to":"nobody","message":"more"}`), Env: f.Env}); err == nil || !strings.Contains(err.Error(), "No subagent") {
		t.Errorf("got %v", err)
	}
}

func TestEndOfTaskIsReportedToTheModel(t *testing.T) {
	f := newFixture(t.Context())
	for _, test := range []struct {
		info   tool.TaskInfo
		forget bool
		want   string
	}{
		{tool.TaskInfo{ID: "1", Background: true, Status: tool.TaskCompleted, Summary: "built", OutputFile: "/o"}, false, "The background task 1 has ended (completed): built\nIts output is in /o"},
		{tool.TaskInfo{ID: "2", Background: true, Status: tool.TaskKilled, Summary: "sleep"}, false, "The background task 2 has ended (stopped): sleep"},
		{tool.TaskInfo{ID: "3", Background: true, Status: tool.TaskCompleted}, true, ""},
		{tool.TaskInfo{ID: "4", Status: tool.TaskCompleted}, false, ""},
	} {
		f.prompts = nil
		if test.forget {
			f.Watch.Forget(test.info.ID)
		}
		f.Watch.Notify(tool.TaskEnded{Info: test.info})
		<-f.Watch.Reports.None()
		if got := strings.Join(f.prompts, ""); got != test.want {
			t.Errorf("task %s: got %q, want %q", test.info.ID, got, test.want)
		}
	}
}

func TestNarrowing(t *testing.T) {
	n, err := NewNarrowing(&agents.Definition{Name: "n", Tools: []string{"Read", "mcp__web", "Task(helper)"}, Disallowed: []string{"mcp__web__post"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"Read": true, "Write": false, "mcp__web__get": true, "mcp__web__post": false} {
		if got := n.Has(name); got != want {
			t.Errorf("Has(%s) = %v", name, got)
		}
	}
	if got := n.Agents([]*agents.Definition{{Name: "helper"}, {Name: "other"}}); len(got) != 1 || got[0].Name != "helper" {
		t.Errorf("got the agents %v", got)
	}
	if got := n.Policy().Tools; !slices.Contains(got, MessageToolName) {
		t.Errorf("got the tools %q, want %s among them", got, MessageToolName)
	}
}
