package terminal

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// A Session is the hub session that a screen shows. It may be in this process (see
// [Local]) or elsewhere. Its methods are safe for concurrent use.
type Session interface {
	// ID returns the id of the session.
	ID() string
	// State returns what the session is doing.
	State(ctx context.Context) (*hub.State, error)
	// Attach yields every entry behind a number, then what happens: see
	// [hub.Session.Attach].
	Attach(ctx context.Context, after uint64) iter.Seq2[hub.Entry, error]
	// Prompt sends a prompt and returns its uuid.
	Prompt(ctx context.Context, m *wire.User) (string, error)
	// Drop takes back a prompt that waits for its turn.
	Drop(ctx context.Context, uuid string) (bool, error)
	// Answer answers a question.
	Answer(ctx context.Context, a hub.Answer) error
	// Control sends a control request to the agent and returns its response.
	Control(ctx context.Context, request json.RawMessage) (json.RawMessage, error)
	// Rewind makes the conversation go on behind an earlier message.
	Rewind(ctx context.Context, uuid string) error
}

// Local returns a session of a hub in this process, used by one person.
func Local(s *hub.Session, by hub.Actor) Session { return &local{s, by} }

type local struct {
	s  *hub.Session
	by hub.Actor
}

func (l *local) ID() string { return l.s.ID() }

func (l *local) State(ctx context.Context) (*hub.State, error) { return l.s.State(ctx, l.by) }

func (l *local) Attach(ctx context.Context, after uint64) iter.Seq2[hub.Entry, error] {
	return l.s.Attach(ctx, l.by, after)
}

func (l *local) Prompt(ctx context.Context, m *wire.User) (string, error) {
	return l.s.Prompt(ctx, l.by, m)
}

func (l *local) Drop(ctx context.Context, uuid string) (bool, error) {
	return l.s.Drop(ctx, l.by, uuid)
}

func (l *local) Answer(ctx context.Context, a hub.Answer) error {
	a.By = l.by
	return l.s.Answer(ctx, l.by, a)
}

func (l *local) Control(ctx context.Context, request json.RawMessage) (json.RawMessage, error) {
	return l.s.Control(ctx, l.by, request)
}

func (l *local) Rewind(ctx context.Context, uuid string) error { return l.s.Rewind(ctx, l.by, uuid) }
