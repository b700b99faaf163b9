package hub

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/parley-go/parley"
)

// TestPassedControlIsNotQueued checks that a process that cannot run a session says so to the process that passed a
// control request on, instead of putting it into the inbox, where its response would be lost.
func TestPassedControlIsNotQueued(t *testing.T) {
	b := new(Memory)
	h, err := New(Config{Backend: b, Gateway: true, Agent: func(context.Context, Start) (*parley.Options, error) { return nil, errors.New("no") }})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	me := Actor{Name: "me", Rights: Everything}
	s, err := h.Create(t.Context(), me, Spec{})
	if err != nil {
		t.Fatal(err)
	}
	request := mustJSON(passedCall{"control", me, me.Rights, json.RawMessage(`{"subtype":"set_model","model":"opus"}`)})
	if resp, err := h.answerCall(t.Context(), s.ID(), request); !errors.Is(err, ErrLocked) {
		t.Errorf("got %s, %v; want ErrLocked", resp, err)
	}
	for item, err := range b.Inbox(t.Context(), s.ID(), 0, false) {
		t.Errorf("the inbox has %+v, %v", item, err)
	}
}
