package hub_test

import (
	"context"
	"errors"
	"testing"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// A gateway creates, shows and prompts sessions; an agent runs in the hub that is none.
func TestGatewayRunsNoAgents(t *testing.T) {
	b := new(hub.Memory)
	gateway, err := hub.New(hub.Config{Backend: b, Gateway: true, Agent: func(context.Context, hub.Start) (*parley.Options, error) {
		t.Error("the gateway starts an agent")
		return nil, errors.New("no")
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer gateway.Close()
	me := hub.Actor{Name: "me", Rights: hub.Everything}
	s, err := gateway.Create(t.Context(), me, hub.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gateway.Create(t.Context(), me, hub.Spec{ID: s.ID()}); !errors.Is(err, hub.ErrExists) {
		t.Errorf("created again: %v, want ErrExists", err)
	}
	uuid, err := s.Prompt(t.Context(), me, wire.Prompt(wire.Text("hello")))
	if err != nil {
		t.Fatal(err)
	}
	epoch := make(chan uint64, 1)
	worker, err := hub.New(hub.Config{Backend: b, Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
		epoch <- start.Epoch
		return nil, errors.New("this is enough")
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	owner := uint64(0)
	for e, err := range s.Attach(t.Context(), me, 0) { // at the gateway
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == hub.KindOwner {
			owner = e.N
		}
		if e.Kind == hub.KindPrompt && owner > 0 {
			break
		}
	}
	if got := <-epoch; got != owner {
		t.Errorf("the agent has the epoch %d, want %d (prompt %s)", got, owner, uuid)
	}
}
