package hub_test

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// TestGatewayRunsNoAgents checks that a gateway creates, shows and prompts sessions, and that the
// agent runs in the other hub.
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

// A breaking backend fails once while it follows a journal, like one that lost its connection.
type breaking struct {
	*hub.Memory
	fails chan struct{} // closed when it must fail
	did   atomic.Bool
}

// Read implements [hub.Backend].
func (b *breaking) Read(ctx context.Context, id string, after uint64, follow bool) iter.Seq2[hub.Entry, error] {
	if !follow || b.did.Swap(true) {
		return b.Memory.Read(ctx, id, after, follow)
	}
	return func(yield func(hub.Entry, error) bool) {
		select {
		case <-b.fails:
			yield(hub.Entry{}, errors.New("no server answers"))
		case <-ctx.Done():
			yield(hub.Entry{}, context.Cause(ctx))
		}
	}
}

// TestGatewayFollowsAgainAfterAnError checks that a gateway that could not follow a journal for a
// while reopens the session, and that its viewers miss nothing.
func TestGatewayFollowsAgainAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := new(hub.Memory)
		b := &breaking{Memory: memory, fails: make(chan struct{})}
		none := func(context.Context, hub.Start) (*parley.Options, error) { return nil, errors.New("no agent") }
		gateway, err := hub.New(hub.Config{Backend: b, Gateway: true, Agent: none})
		if err != nil {
			t.Fatal(err)
		}
		defer gateway.Close()
		me := hub.Actor{Name: "me", Rights: hub.Everything}
		s, err := gateway.Create(t.Context(), me, hub.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		renamed := make(chan uint64, 1)
		go func() {
			for e, err := range s.Attach(t.Context(), me, 0) {
				if err != nil {
					t.Error(err)
				}
				if e.Kind == hub.KindOwner || err != nil {
					renamed <- e.N
					return
				}
			}
		}()
		synctest.Wait()
		close(b.fails)
		entry := hub.Entry{N: 2, Epoch: 2, Kind: hub.KindOwner, Data: []byte(`{"hub":"worker"}`)}
		if err := memory.Append(t.Context(), s.ID(), 1, []hub.Entry{entry}); err != nil {
			t.Fatal(err)
		}
		if n := <-renamed; n != 2 {
			t.Errorf("the viewer received entry %d, want 2", n)
		}
	})
}
