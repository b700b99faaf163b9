package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// addressing is a model that replaces AGENT with the id of a subagent that it knows: the last
// one, or the first one in the last result.
type addressing struct {
	model.Model
	first bool
}

var agentID = regexp.MustCompile(`agentId: (a[0-9a-f]{16})`)

func (a addressing) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	body := req.Body
	if a.first {
		body = body[max(0, bytes.LastIndex(body, []byte("tool_result"))):]
	}
	var id []byte
	if all := agentID.FindAllSubmatch(body, -1); a.first && len(all) > 0 {
		id = bytes.Clone(all[0][1])
	} else if len(all) > 0 {
		id = bytes.Clone(all[len(all)-1][1])
	}
	return func(yield func(model.Event, error) bool) {
		for e, err := range a.Model.Stream(ctx, req) {
			if id != nil {
				e.Data = bytes.ReplaceAll(e.Data, []byte("AGENT"), id)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// send is a turn that sends a message to the subagent.
func send(message string) *parleytest.Turn {
	return parleytest.Expect().Chunks(10000).Call("SendMessage", map[string]string{"to": "AGENT", "summary": "more of it", "message": message})
}

func launch(background bool) *parleytest.Turn {
	return parleytest.Call("Agent", map[string]any{"description": "one", "prompt": "P1", "run_in_background": background})
}

// TestSendMessageEnded checks that a subagent that has ended continues where it stopped, in
// the background, with the messages and in the order of the official command.
func TestSendMessageEnded(t *testing.T) {
	for _, kept := range []bool{true, false} {
		s := parleytest.Script(
			launch(false),
			send("and two"),
			parleytest.Expect(parleytest.ToolResult("resumedAgentId")).Say("main"),
			parleytest.Expect(parleytest.LastUser("has ended (completed)"), parleytest.LastUser("answer two")).Say("told"),
		)
		s.When("sub", parleytest.FirstUser("P1"),
			parleytest.Say("answer one"),
			parleytest.Expect(parleytest.LastUser("and two"), parleytest.Check("it knows what it said", func(r *parleytest.Request) error {
				return mentionsAll(r, "P1", "answer one")
			})).Pause(time.Second).Say("answer two"),
		)
		p := prompt(t, s, func(o *parley.Options, c *agent.Config) {
			c.Model = addressing{Model: c.Model}
			o.NoPersistence = !kept
			if !kept {
				c.Store = nil
			}
		})
		if p.err != nil || p.r.Result != "told" || p.r.Origin == nil || p.r.Origin.Kind != "task-notification" {
			t.Fatal(p.r, p.err)
		}
		if err := p.model.Done(); err != nil {
			t.Error(err)
		}
		want := "system/init assistant system/task_started user system/task_updated system/task_notification user " + // as ever
			"assistant system/background_tasks_changed system/task_started user assistant result " + // the message
			"assistant system/task_updated system/task_notification system/background_tasks_changed " + // what comes of it
			"system/init assistant result"
		if got := kinds(p.all); got != want {
			t.Errorf("kept %v: %s\nwant %s", kept, got, want)
		}
		var started []*wire.TaskStarted
		var ended []*wire.TaskNotification
		for _, m := range p.all {
			switch m := m.(type) {
			case *wire.TaskStarted:
				started = append(started, m)
			case *wire.TaskNotification:
				ended = append(ended, m)
			case *wire.Assistant:
				if m.AgentID != "" && m.ParentToolUseID != started[0].ToolUseID {
					t.Errorf("a line of the subagent is of %s, not of the call that started it", m.ParentToolUseID)
				}
			case *wire.Result:
				// As the official command counts: it was started once.
				var stats struct{ Spawned, Completed int }
				if json.Unmarshal(m.SubagentStats, &stats) != nil || stats.Spawned != 1 || stats.Completed != 1 {
					t.Errorf("%s", m.SubagentStats)
				}
			}
		}
		if len(started) != 2 || len(ended) != 2 || started[0].TaskID != started[1].TaskID || started[0].RunID == started[1].RunID || started[0].ToolUseID == started[1].ToolUseID ||
			!*started[1].IsBackgrounded || started[1].Prompt != "and two" || ended[1].ToolUseID != started[1].ToolUseID || ended[1].Summary != "answer two" {
			t.Errorf("%+v\n%+v", started, ended)
		}
	}
}

func mentionsAll(r *parleytest.Request, texts ...string) error {
	for _, s := range texts {
		if !strings.Contains(string(r.Body), s) {
			return errors.New(s + " is missing")
		}
	}
	return nil
}

// TestSendMessageRunning checks that a running subagent receives the message after its next
// tool call, or in a separate turn if it has none left, exactly once.
func TestSendMessageRunning(t *testing.T) {
	heard := parleytest.Check("the message once", func(r *parleytest.Request) error {
		if n := strings.Count(string(r.Body), "also this"); n != 1 {
			return fmt.Errorf("it is there %d times", n)
		}
		return nil
	})
	for name, sub := range map[string][]*parleytest.Turn{
		"behind a call": {parleytest.Pause(time.Minute).Call("Read", `{"file_path":"none"}`), parleytest.Expect(heard).Say("report")},
		"at the end":    {parleytest.Pause(time.Minute).Say("early"), parleytest.Expect(heard, parleytest.LastUser("also this")).Say("report")},
	} {
		t.Run(name, func(t *testing.T) {
			s := parleytest.Script(
				launch(true),
				send("also this"),
				parleytest.Expect(parleytest.ToolResult("receives the message")).Say("main"),
				parleytest.Expect(parleytest.LastUser("report")).Say("told"),
			)
			s.When("sub", parleytest.FirstUser("P1"), sub...)
			p := prompt(t, s, func(o *parley.Options, c *agent.Config) { c.Model = addressing{Model: c.Model} })
			if p.err != nil || p.r.Result != "told" || count[*wire.TaskStarted](p.all) != 1 || count[*wire.TaskNotification](p.all) != 1 {
				t.Errorf("%v %+v\n%s", p.err, p.r, kinds(p.all))
			}
			if err := p.model.Done(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSendMessageRefused sends to nobody, to somebody else's subagent, where rules forbid the
// agent, and where the tool is removed.
func TestSendMessageRefused(t *testing.T) {
	nobody := func(words string) *parleytest.Scenario {
		return parleytest.Script(
			parleytest.Call("SendMessage", `{"to":"a0000000000000000","message":"x"}`),
			parleytest.Expect(parleytest.ToolError(words)).Say("main"))
	}
	for name, tt := range map[string]struct {
		s      *parleytest.Scenario
		change func(*parley.Options, *agent.Config)
	}{
		"nobody":     {nobody("No subagent"), nil},
		"a path":     {parleytest.Script(parleytest.Call("SendMessage", `{"to":"../../x","message":"x"}`), parleytest.Expect(parleytest.ToolError("")).Say("main")), nil},
		"empty":      {parleytest.Script(parleytest.Call("SendMessage", `{"to":"a0","message":" "}`), parleytest.Expect(parleytest.ToolError("empty")).Say("main")), nil},
		"taken away": {nobody("No such tool"), func(o *parley.Options, _ *agent.Config) { o.DisallowedTools = []string{"SendMessage"} }},
	} {
		t.Run(name, func(t *testing.T) {
			if p := prompt(t, tt.s, tt.change); p.err != nil || p.r.Result != "main" {
				t.Error(p.r, p.err)
			}
		})
	}
	t.Run("a grandchild", func(t *testing.T) {
		s := parleytest.Script(
			launch(false),
			send("x"), // to the one that its subagent started
			parleytest.Expect(parleytest.ToolError("No subagent")).Say("main"))
		s.When("one", parleytest.FirstUser("P1"),
			parleytest.Call("Agent", `{"description":"two","prompt":"P2"}`),
			parleytest.Expect().Chunks(10000).Say("agentId: AGENT\ndone"))
		s.When("two", parleytest.FirstUser("P2"), parleytest.Say("report"))
		p := prompt(t, s, func(o *parley.Options, c *agent.Config) { c.Model = addressing{Model: c.Model, first: true} })
		if p.err != nil || p.r.Result != "main" {
			t.Error(p.r, p.err)
		}
	})
	t.Run("a rule", func(t *testing.T) {
		s := parleytest.Script(
			parleytest.Call("Agent", `{"description":"one","prompt":"P1","subagent_type":"Explore","run_in_background":false}`),
			send("x"),
			parleytest.Expect(parleytest.ToolError("Agent(Explore)")).Say("main"))
		s.When("sub", parleytest.FirstUser("P1"), parleytest.Say("report"))
		p := prompt(t, s, func(o *parley.Options, c *agent.Config) {
			c.Model = addressing{Model: c.Model}
			o.ExtraArgs = map[string]string{"settings": `{"permissions":{"ask":["Agent(Explore)"]}}`}
			asked := 0
			o.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
				if asked++; asked == 1 {
					return parley.Allow(), nil
				}
				return parley.Deny("Agent(Explore) is not to go on"), nil
			}
		})
		if p.err != nil || p.r.Result != "main" {
			t.Error(p.r, p.err)
		}
	})
}

// TestSendMessageLater checks that a subagent of an earlier process continues as well, from
// its log.
func TestSendMessageLater(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	s := parleytest.Script(launch(false), parleytest.Say("main"))
	s.When("sub", parleytest.FirstUser("P1"), parleytest.Say("answer one"))
	asked := make(chan struct{})
	close(asked)
	run := func(s *parleytest.Scenario, o *parley.Options, text string) ([]wire.Message, *wire.Result) {
		t.Helper()
		m := s.Model()
		m.Strict = true
		o.Cwd, o.Dialer = dir, agent.InProcess(agent.Config{Home: home, Model: &lateAnswer{Model: addressing{Model: m}, asked: asked}})
		all, r, err := collect(t, o, text)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Done(); err != nil {
			t.Error(err)
		}
		return all, r
	}
	_, r := run(s, &parley.Options{}, "hi")
	asked = make(chan struct{})
	s = parleytest.Script(
		parleytest.Expect().Chunks(10000).CallID("toolu_later", "SendMessage", `{"to":"AGENT","message":"and two"}`),
		parleytest.Expect(parleytest.ToolResult("resumedAgentId")).Say("main"),
		parleytest.Expect(parleytest.LastUser("answer two")).Say("told"))
	s.When("sub", parleytest.FirstUser("P1"), parleytest.Expect(parleytest.LastUser("and two"), parleytest.Check("it knows", func(r *parleytest.Request) error { return mentionsAll(r, "answer one") })).Say("answer two"))
	all, last := run(s, &parley.Options{Resume: r.SessionID}, "again")
	if last.Result != "told" {
		t.Error(last)
	}
	for _, m := range all {
		if m, ok := m.(*wire.TaskStarted); ok && (m.Description != "one" || m.SubagentType != "general-purpose") {
			t.Errorf("%+v", m)
		}
	}
	ids, err := session.Subagents(t.Context(), &session.Files{Dir: filepath.Join(home, ".claude")}, r.SessionID, nil)
	if err != nil || len(ids) != 1 {
		t.Error("one subagent, with one log", ids, err)
	}
}

// A lateAnswer lets the subagent P1 answer after the request that follows its start, which
// would otherwise contain its answer.
type lateAnswer struct {
	model.Model
	asked chan struct{}
	once  sync.Once
}

func (m *lateAnswer) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	switch body := string(req.Body); {
	case strings.Contains(body, `"text":"P1"`):
		<-m.asked
	case strings.Contains(body, "resumedAgentId"):
		m.once.Do(func() { close(m.asked) })
	}
	return m.Model.Stream(ctx, req)
}
