package engine

import (
	"context"
	"testing"

	"github.com/parley-go/parley/engine/internal/call"
)

// looked is a context that ends once it was checked.
type looked struct {
	context.Context
	ended bool
}

func (l *looked) Err() error {
	defer func() { l.ended = true }()
	if l.ended {
		return context.Canceled
	}
	return nil
}

// A call and the one that waited for it end while the owner looks for an ended call: the result
// of the first one is emitted first.
func TestEarlierCallsEndFirst(t *testing.T) {
	over := &looked{context.Background(), true}
	run := &call.Batch{Calls: []*call.Call{{Ctx: &looked{Context: context.Background()}}, {Ctx: over}}}
	if i := (&rounds{}).awaitEnd(run); i != 0 {
		t.Errorf("the result of call %d comes first", i)
	}
}
