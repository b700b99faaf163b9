package engine

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/wire"
)

// newQueue returns a queue, and a function that returns the messages that it has emitted since the last call.
func newQueue() (*queue, func() []string) {
	var emitted []string
	rec := recorder.New(recorder.Options{Now: time.Now, Emit: func(m wire.Message) {
		switch m := m.(type) {
		case *wire.CommandLifecycle:
			emitted = append(emitted, m.CommandUUID+" "+m.State)
		case *wire.SessionStateChanged:
			emitted = append(emitted, m.State)
		default:
			emitted = append(emitted, fmt.Sprintf("%T", m))
		}
	}})
	q := &queue{rec: rec, replay: true, states: "all", uuids: map[string]bool{}}
	return q, func() []string {
		list := emitted
		emitted = nil
		return list
	}
}

func userPrompt(uuid, priority string) *wire.User {
	m := wire.Prompt(wire.Text("prompt " + uuid))
	m.UUID, m.Priority = uuid, priority
	return m
}

func TestPromptIsQueuedOnce(t *testing.T) {
	q, emitted := newQueue()
	q.Prompt(userPrompt("a", ""))
	if got := emitted(); !slices.Equal(got, []string{"running", "a queued"}) {
		t.Errorf("got %q", got)
	}
	q.Prompt(userPrompt("a", ""))
	if got := emitted(); len(q.inbox) != 1 || !slices.Equal(got, []string{"*wire.User"}) {
		t.Errorf("the same prompt again: %d queued, emitted %q", len(q.inbox), got)
	}
}

func TestPromptsAreHandledByPriority(t *testing.T) {
	q, _ := newQueue()
	for _, p := range []string{"later", "next", "now", ""} {
		q.Prompt(userPrompt("p"+p, p))
	}
	var order []string
	for len(q.inbox) > 0 {
		order = append(order, q.nextPrompt().uuid)
	}
	if !slices.Equal(order, []string{"pnow", "pnext", "p", "plater"}) {
		t.Errorf("got %q", order)
	}
}

func TestPromptForNowInterruptsTheTurn(t *testing.T) {
	q, _ := newQueue()
	ctx, cancel := context.WithCancelCause(t.Context())
	q.turn = &turn{ctx: ctx, cancel: cancel}
	q.Prompt(userPrompt("a", "next"))
	if ctx.Err() != nil {
		t.Error("an ordinary prompt interrupts the turn")
	}
	q.Prompt(userPrompt("b", "now"))
	if context.Cause(ctx) != errSuperseded || q.inbox[0].uuid != "b" {
		t.Errorf("got %v, and %s is first", context.Cause(ctx), q.inbox[0].uuid)
	}
}

func TestQueuedPromptsAreCancelled(t *testing.T) {
	q, emitted := newQueue()
	for _, uuid := range []string{"a", "b", "c"} {
		q.Prompt(userPrompt(uuid, ""))
	}
	emitted()
	if !q.CancelPrompt("b") || q.CancelPrompt("b") {
		t.Error("a queued prompt is cancelled once")
	}
	if r := q.Interrupt(false); !slices.Equal(r.StillQueued, []string{"a", "c"}) || len(q.inbox) != 2 {
		t.Errorf("got %q", r.StillQueued)
	}
	if r := q.Interrupt(true); !slices.Equal(r.Cancelled, []string{"a", "c"}) || len(q.inbox) != 0 {
		t.Errorf("got %q", r.Cancelled)
	}
	if got := emitted(); !slices.Equal(got, []string{"b cancelled", "a cancelled", "c cancelled"}) {
		t.Errorf("got %q", got)
	}
}
