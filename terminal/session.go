package terminal

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// A Session is the hub session that a screen shows, in this process or elsewhere.
type Session struct {
	hub hub.Client
	id  string
}

// NewSession returns the session of a hub with an id.
func NewSession(c hub.Client, id string) *Session { return &Session{c, id} }

// ID returns the id of the session.
func (s *Session) ID() string { return s.id }

func (s *Session) state(ctx context.Context) (*hub.State, error) { return s.hub.State(ctx, s.id) }

func (s *Session) initializeResponse(ctx context.Context) (*wire.InitializeResponse, error) {
	return s.hub.InitializeResponse(ctx, s.id)
}

func (s *Session) attach(ctx context.Context, after uint64) iter.Seq2[hub.Entry, error] {
	return s.hub.Attach(ctx, s.id, after)
}

func (s *Session) prompt(ctx context.Context, m *wire.User) error {
	_, err := s.hub.Prompt(ctx, s.id, m)
	return err
}

func (s *Session) drop(ctx context.Context, uuid string) (bool, error) {
	return s.hub.Drop(ctx, s.id, uuid)
}

func (s *Session) answer(ctx context.Context, a hub.Answer) error { return s.hub.Answer(ctx, s.id, a) }

func (s *Session) control(ctx context.Context, request json.RawMessage) (json.RawMessage, error) {
	return s.hub.Control(ctx, s.id, request)
}

func (s *Session) rewind(ctx context.Context, uuid string) error {
	return s.hub.Rewind(ctx, s.id, uuid)
}
