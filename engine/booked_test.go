package engine_test

import (
	"context"
	"iter"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/parley-go/parley/engine"
	"github.com/parley-go/parley/engine/agents"
	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A lateModel plays a scenario, except for the first request that contains a mark: its answer
// starts when the request is stopped.
type lateModel struct {
	model.Model
	mark  string
	asked chan struct{} // closed at that request
	// stop, if not nil, stops the request at the moment when the start of the answer was
	// received. Otherwise somebody else stops it, and the answer starts then.
	stop func()
}

func (m *lateModel) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	if !strings.Contains(string(req.Body), m.mark) {
		return m.Model.Stream(ctx, req)
	}
	return func(yield func(model.Event, error) bool) {
		close(m.asked)
		if m.stop == nil {
			<-ctx.Done()
		}
		start := `{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[],"usage":{"input_tokens":1234,"output_tokens":1}}}`
		if !yield(model.Event{Type: "message_start", Data: []byte(start)}, nil) {
			return
		}
		if m.stop != nil {
			m.stop()
		}
		<-ctx.Done()
		yield(model.Event{}, ctx.Err())
	}
}

// inputTokens returns the input tokens in the ledger of a conversation that has ended.
func inputTokens(c *engine.Conversation) (n int64) {
	_, models := c.Ledger()
	for _, u := range models {
		n += u.InputTokens
	}
	return n
}

const suggestionMark = "likely next prompt"

// TestReceivedUsageIsBooked checks that the usage that a model reports is booked if the request is
// stopped at the same moment, whoever sent the request.
func TestReceivedUsageIsBooked(t *testing.T) {
	// With one processor, the model takes its next step before the receiver of an event continues.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	prompt := func(c *engine.Conversation, texts ...string) {
		for _, text := range texts {
			c.Do(func() { c.Prompt(wire.Prompt(wire.Text(text))) })
		}
	}
	for _, tt := range []struct {
		name   string
		ask    func(ctx context.Context, c *engine.Conversation)
		mark   string
		before int64 // requests that were answered, with 100 tokens each
	}{
		{"a turn", func(_ context.Context, c *engine.Conversation) { prompt(c, "LATE") }, "LATE", 0},
		{"a subagent", func(_ context.Context, c *engine.Conversation) { prompt(c, "delegate") }, "LATE", 1},
		{"a summary", func(_ context.Context, c *engine.Conversation) { prompt(c, "hello", "/compact LATE") }, "LATE", 1},
		{"a suggestion", func(_ context.Context, c *engine.Conversation) { prompt(c, "hello", "/cost", "hello") }, suggestionMark, 2},
		{"a side question", func(ctx context.Context, c *engine.Conversation) { c.SideQuestion(ctx, "LATE") }, "LATE", 0},
		{"a question of a hook", func(ctx context.Context, c *engine.Conversation) {
			c.AskModel(ctx, tool.Question{Prompt: "LATE"}, "hook")
		}, "LATE", 0},
	} {
		for _, received := range []bool{true, false} {
			name := tt.name + ", stopped before its answer"
			if received {
				name = tt.name + ", stopped after the start of its answer"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := parleytest.Script(parleytest.Call("Agent", `{"description":"d","prompt":"LATE","run_in_background":false}`))
					s.When("hello", parleytest.FirstUser("hello"), parleytest.Say("hi"), parleytest.Say("hi"))
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					m := &lateModel{Model: s.Model(), mark: tt.mark, asked: make(chan struct{})}
					if received {
						m.stop = cancel
					}
					c, err := engine.New(engine.Config{ModelConfig: engine.ModelConfig{Model: m, Tuning: engine.Tuning{Suggestions: true}}, AgentConfig: engine.AgentConfig{Agents: agents.BuiltIn()}, PermissionConfig: bypass}, newHost())
					if err != nil {
						t.Fatal(err)
					}
					ended := make(chan struct{})
					go func() { defer close(ended); c.Run(ctx) }()
					go tt.ask(ctx, c)
					<-m.asked
					if !received {
						cancel()
					}
					<-ended
					synctest.Wait()
					if got, want := inputTokens(c), 100*tt.before+1234; got != want {
						t.Errorf("the ledger has %d input tokens, want %d", got, want)
					}
				})
			})
		}
	}
}

// A memoryLog keeps the records of a conversation.
type memoryLog struct {
	session.Log
	entries []*session.Entry
}

func (l *memoryLog) Path() string { return "" }

func (l *memoryLog) Append(entries ...*session.Entry) error {
	l.entries = append(l.entries, entries...)
	return nil
}

// An endHost has a hook for the end of the session, which asks a model.
type endHost struct {
	*fakeHost
	conv *engine.Conversation
}

func (h *endHost) Hooks(ctx context.Context, in wire.HookInput, _, _ string) []hook.Answer {
	if in.Event() == wire.EventSessionEnd {
		h.conv.AskModel(ctx, tool.Question{Prompt: "is all done?"}, "hook")
	}
	return nil
}

// TestLastRequestsAreRecorded checks that requests after the last turn are in the session's log: a
// side question, a question of a hook for the end of the session, and a suggestion that is stopped
// because the input ends.
func TestLastRequestsAreRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := parleytest.Script(parleytest.Say("hi"), parleytest.Say("hi"), parleytest.Say("an answer"), parleytest.Say("yes"))
		m := &lateModel{Model: s.Model(), mark: suggestionMark, asked: make(chan struct{})}
		log, host := &memoryLog{}, &endHost{fakeHost: newHost()}
		c, err := engine.New(engine.Config{ModelConfig: engine.ModelConfig{Model: m, Tuning: engine.Tuning{Suggestions: true}}, SessionConfig: engine.SessionConfig{Log: log}}, host)
		if err != nil {
			t.Fatal(err)
		}
		host.conv = c
		ended := make(chan struct{})
		go func() { defer close(ended); c.Run(t.Context()) }()
		for range 2 {
			c.Do(func() { c.Prompt(wire.Prompt(wire.Text("hello"))) })
			<-host.results
		}
		<-m.asked
		if _, err := c.SideQuestion(t.Context(), "why?"); err != nil {
			t.Fatal(err)
		}
		c.Do(c.EndInput)
		<-ended
		var purposes []string
		last := ""
		for _, e := range log.entries {
			if e.Type == "parley-request" {
				purposes = append(purposes, string(e.Fields["purpose"]))
			}
			last = e.Type
		}
		if got, want := strings.Join(purposes, " "), `"answer" "answer" "side question" "hook" "suggestion"`; got != want || last != "cost-state" {
			t.Errorf("the log has the requests %s and ends with %s, want %s and cost-state", got, last, want)
		}
	})
}
