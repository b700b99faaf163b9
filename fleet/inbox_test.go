package fleet

import (
	"fmt"
	"testing"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// Accepting a prompt takes few requests, and few of them wait for others, because each wait delays it.
func TestPromptTakesFewRequests(t *testing.T) {
	open := place(t)
	gateway := newCrew(t, open(), 0, "")
	s, err := gateway.hub.Create(t.Context(), ann, hub.Spec{Cwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	var last uint64
	go func() { // a viewer keeps the session open here
		for range s.Attach(t.Context(), ann, 0) {
		}
	}()
	until(t, s, &last, hub.KindCreated, nil)
	least := uint64(1000)
	for i := range 20 {
		before := gateway.b.nc.Stats().OutMsgs
		if _, err := s.Prompt(t.Context(), ann, wire.Prompt(wire.Text(fmt.Sprint("prompt ", i)))); err != nil {
			t.Fatal(err)
		}
		least = min(least, gateway.b.nc.Stats().OutMsgs-before)
	}
	// Two reads of the first entry, two of the inbox, the item, and two marks for work.
	if least > 7 {
		t.Errorf("a prompt takes %d messages to the server, want at most 7", least)
	}
}
