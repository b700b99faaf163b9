package agent_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/builtin"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestSteering checks that prompts that are sent while a tool runs reach the model after
// its result, each message exactly once, over many rounds, and that the log and a resumed
// session have them once as well.
func TestSteering(t *testing.T) {
	const rounds, each = 6, 3
	said := func(round, n int) string { return fmt.Sprintf("steer-%d-%d.", round, n) }
	once := func(rounds int) parleytest.Matcher {
		return parleytest.Check("all is said once", func(r *parleytest.Request) error {
			for i := range rounds {
				for n := range each {
					if got := strings.Count(string(r.Body), said(i, n)); got != 1 {
						return fmt.Errorf("%s is there %d times", said(i, n), got)
					}
				}
			}
			return nil
		})
	}
	var turns []*parleytest.Turn
	for i := range rounds {
		turns = append(turns, parleytest.Expect(once(i)).Call("Gate", `{}`))
	}
	model := parleytest.Script(append(turns, parleytest.Expect(once(rounds)).Say("done"))...).Model()
	model.Strict = true

	var c *parley.Client
	var mu sync.Mutex
	queued := map[string]chan struct{}{}
	round := 0
	gate := &funcTool{"Gate", true, func(ctx context.Context, _ *tool.Call) (*tool.Result, error) {
		var waits []chan struct{}
		for n := range each {
			m := wire.Prompt(wire.Text(said(round, n)))
			m.UUID = fmt.Sprintf("%08d-%04d-4000-8000-000000000000", round, n)
			seen := make(chan struct{})
			mu.Lock()
			queued[m.UUID] = seen
			mu.Unlock()
			waits = append(waits, seen)
			if err := c.Send(ctx, m); err != nil {
				return nil, err
			}
		}
		for _, seen := range waits {
			<-seen
		}
		round++
		return tool.Text("open", nil), nil
	}}
	store := &session.Memory{}
	c, err := parley.Connect(t.Context(), &parley.Options{Dialer: agent.InProcess(agent.Config{Cwd: t.TempDir(), Store: store, Model: model, Tools: append(builtin.All(nil), gate)})})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	states := map[string]string{}
	var last *wire.Result
	for m, err := range c.Turn(t.Context(), "begin") {
		if err != nil {
			t.Fatal(err)
		}
		switch m := m.(type) {
		case *wire.CommandLifecycle:
			states[m.CommandUUID] += " " + m.State
			if m.State == "queued" {
				mu.Lock()
				if seen := queued[m.CommandUUID]; seen != nil {
					close(seen)
				}
				mu.Unlock()
			}
		case *wire.Result:
			last = m
		}
	}
	if last == nil || last.Result != "done" || len(queued) != rounds*each {
		t.Fatalf("%+v, %d messages", last, len(queued))
	}
	for id := range queued {
		if states[id] != " queued started completed" {
			t.Errorf("%s:%s", id, states[id])
		}
	}
	c.Close()

	again := parleytest.Script(parleytest.Expect(once(rounds)).Say("more")).Model()
	again.Strict = true
	if r, err := parley.Run(t.Context(), "and now", &parley.Options{Resume: last.SessionID, Dialer: agent.InProcess(agent.Config{Cwd: t.TempDir(), Store: store, Model: again})}); err != nil || r.Result != "more" {
		t.Error(r, err)
	}
}
