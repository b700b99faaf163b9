package engine

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/internal/ask"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/ledger"
	"github.com/parley-go/parley/engine/model/catalog"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A namedTool is a tool that only has names.
type namedTool struct{ spec tool.Spec }

func (t *namedTool) Spec() *tool.Spec                                         { return &t.spec }
func (t *namedTool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }
func (t *namedTool) Run(context.Context, *tool.Call) (*tool.Result, error)    { return nil, nil }

func TestToolsAreFoundByTheirNames(t *testing.T) {
	read, write := &namedTool{tool.Spec{Name: "Read", Aliases: []string{"View"}}}, &namedTool{tool.Spec{Name: "Write"}}
	set := &toolset{tools: []tool.Tool{read, write}, aliases: map[string]string{"Save": "Write"}, prefix: &history.Prefix{}}
	for name, want := range map[string]tool.Tool{"Read": read, "View": read, "Save": write} {
		if got := set.findTool(name); got != want {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if got := set.findTool("Bash"); got != nil {
		t.Errorf("got %v for an unknown tool", got)
	}
	if got := set.ToolNames(); !slices.Equal(got, []string{"Read", "Write"}) {
		t.Errorf("got %q", got)
	}
	before := set.keyOfTools()
	set.tools = set.tools[:1]
	if set.keyOfTools() == before {
		t.Error("other tools have the same key")
	}
	set.beginServers(t.Context()) // there are none
	if err := set.awaitServers(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestModelWithoutAPriceIsRefusedWithABudget(t *testing.T) {
	var emitted []wire.Message
	c := &choice{catalog: catalog.New(), budgeted: true, fallbacks: []string{"unknown-model", "haiku"}, notify: func(m wire.Message) { emitted = append(emitted, m) }}
	if err := c.useModel("unknown-model"); err == nil || c.model.ID != "" {
		t.Errorf("got %v and the model %q", err, c.model.ID)
	}
	if err := c.useModel("sonnet"); err != nil {
		t.Fatal(err)
	}
	sonnet := c.model.ID
	if c.useForTurn("unknown-model"); c.model.ID != sonnet {
		t.Errorf("a command changed the model to %s", c.model.ID)
	}
	if !c.fallBack(ask.TriggerOverloaded) || !strings.Contains(c.model.ID, "haiku") || c.primary.ID != sonnet || len(emitted) != 1 {
		t.Errorf("got %s in place of %s, and %d messages", c.model.ID, c.primary.ID, len(emitted))
	}
	if c.fallBack(ask.TriggerOverloaded) {
		t.Error("there is no other model")
	}
}

func TestRequestsAreBooked(t *testing.T) {
	info, _ := catalog.New().Resolve("sonnet")
	var owed []*session.Entry
	m := &money{ledger: ledger.New(catalog.New()), maxBudget: 1, agent: "helper", owe: func(e *session.Entry) { owed = append(owed, e) }}
	m.bookUsage(&answer{}, info.ID, "answer")
	if len(owed) != 0 || m.budgetSpent() {
		t.Error("a request that was not answered is booked")
	}
	m.bookUsage(&answer{started: true, requestID: "r", usage: wire.Usage{InputTokens: 1000}}, info.ID, "answer")
	if len(owed) != 1 || string(owed[0].Fields["agentType"]) != `"helper"` || !m.budgetSpent() {
		t.Errorf("got %v, spent %v", owed, m.budgetSpent())
	}
	m.spentBefore = m.ledger.Total().Nanos
	if m.budgetSpent() {
		t.Error("what earlier processes spent counts")
	}
}
