package hub

import (
	"context"
	"encoding/json"
	"errors"
	"iter"

	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A Client is one actor's access to a hub, wherever the hub runs: [Hub.Client] returns one
// for a hub in this process, socket.NewClient one for the hub of another process, and
// socket.Join either of them. They return the same errors: errors.Is and errors.As find
// [ErrNotFound], [*AnsweredError] and so on.
//
// A Client is safe for concurrent use. Sessions are named by their ids.
type Client interface {
	// List returns all sessions of the hub, most recently changed first.
	List(ctx context.Context) ([]Info, error)
	// Create creates a session and returns its id. The error is [ErrExists] if Spec.ID is
	// in use. With Spec.From the new session is a copy of another one.
	Create(ctx context.Context, spec Spec) (string, error)
	// Open opens the session Spec.ID, which may have begun outside of the hub. If
	// Spec.Agent is not nil, the session runs with it from its next turn on. The error is
	// [ErrNotFound] if the session does not exist. A session need not be opened to be
	// used.
	Open(ctx context.Context, spec Spec) error
	// State returns the state of a session.
	State(ctx context.Context, id string) (*State, error)
	// InitializeResponse returns the agent's response to initialize, with its commands and
	// models. It starts the agent if necessary.
	InitializeResponse(ctx context.Context, id string) (*wire.InitializeResponse, error)
	// Attach yields the entries after a number, the state, and then live events: see
	// [Session.Attach].
	Attach(ctx context.Context, id string, after uint64) iter.Seq2[Entry, error]

	// Prompt sends a prompt. It returns the prompt's uuid when the prompt is durable.
	Prompt(ctx context.Context, id string, m *wire.User) (uuid string, err error)
	// Drop removes a prompt from the queue. It reports false if the prompt is not queued
	// any more.
	Drop(ctx context.Context, id, uuid string) (bool, error)
	// Answer answers a question: see [Session.Answer], [Allow] and [Deny].
	Answer(ctx context.Context, id string, ans Answer) error
	// Control sends a control request of the protocol to the agent and returns its
	// response: see [Session.Control] and [Call].
	Control(ctx context.Context, id string, request json.RawMessage) (json.RawMessage, error)
	// Interrupt ends the current turn.
	Interrupt(ctx context.Context, id string) error
	// Rewind continues the conversation after the message with the given uuid. It leaves
	// files as they are: the control request rewind_files changes them.
	Rewind(ctx context.Context, id, uuid string) error
	// Rename changes the title of a session.
	Rename(ctx context.Context, id, title string) error
	// Host makes the caller the host of a session, which provides hooks and tools.
	Host(ctx context.Context, id string, opts HostOptions) (HostLink, error)

	// Stop interrupts a session, drops its queued prompts and ends its agent. The next
	// prompt starts it again.
	Stop(ctx context.Context, id string) error
	// Remove stops a session and removes its journal. The agent's records stay, so the
	// session can be opened again.
	Remove(ctx context.Context, id string) error
	// Delete removes a session and the agent's records of it.
	Delete(ctx context.Context, id string) error

	// Schedule adds a schedule and returns its id: see [Hub.Schedule].
	Schedule(ctx context.Context, x Schedule) (string, error)
	// Unschedule removes a schedule.
	Unschedule(ctx context.Context, id string) error
	// Schedules returns the schedules of a session, or all schedules if session is empty.
	Schedules(ctx context.Context, session string) ([]Schedule, error)

	// Worktrees returns the git worktrees of sessions. Spec.AddWorktree creates one.
	Worktrees(ctx context.Context) ([]Worktree, error)
	// MergeWorktree merges the worktree of a session into the main one: see
	// [Session.MergeWorktree].
	MergeWorktree(ctx context.Context, id string) error
	// RemoveWorktree removes the worktree of a session. With force it does so even if that
	// loses changes.
	RemoveWorktree(ctx context.Context, id string, force bool) error

	// Close ends the access. A hub whose Client method returned it keeps running.
	Close() error
}

// A HostLink is the connection of a host to its session. [Host] is one.
type HostLink interface {
	// Epoch returns the number of the entry with which the host attached to the session.
	Epoch() uint64
	// Done is closed when the host is detached.
	Done() <-chan struct{}
	// Err returns why the host is detached, or nil while it is attached.
	Err() error
	// Close detaches the host. Its hooks and tools wait until it comes back.
	Close() error
	// Leave detaches the host permanently.
	Leave(ctx context.Context) error
}

// Args is the form of [Spec.Agent] that the hub of the parley command understands.
type Args struct {
	// Args are flags of the command line: --model, --permission-mode, --mcp-config …
	Args []string `json:"args,omitempty"`
	// Remote names the token of an agent that connects to parley serve by itself and runs the
	// session on another machine. Args are then that agent's own.
	Remote string `json:"remote,omitempty"`
}

// Spec returns a as JSON for [Spec.Agent].
func (a Args) Spec() json.RawMessage { return mustJSON(a) }

// Call sends a control request of the protocol and decodes the response into resp, which
// may be nil:
//
//	hub.Call(ctx, c, id, &wire.SetModel{Model: "opus"}, nil)
func Call(ctx context.Context, c Client, id string, request wire.Request, resp any) error {
	raw, err := json.Marshal(request)
	if err != nil {
		return err
	}
	data, err := c.Control(ctx, id, raw)
	if err != nil || resp == nil || len(data) == 0 {
		return err
	}
	return json.Unmarshal(data, resp)
}

// Allow returns an answer that allows a call.
func Allow(ask *Ask) Answer {
	return Answer{Ask: ask.ID, Shown: ask.Hash, Response: json.RawMessage(`{"behavior":"allow"}`)}
}

// Deny returns an answer that denies a call, with a reason for the model.
func Deny(ask *Ask, reason string) Answer {
	return Answer{Ask: ask.ID, Shown: ask.Hash, Response: mustJSON(map[string]string{"behavior": "deny", "message": reason})}
}

// Client returns an actor's access to the hub.
func (h *Hub) Client(by Actor) Client { return &local{h, by} }

// local is a [Client] of a hub in this process.
type local struct {
	hub *Hub
	by  Actor
}

var _ Client = (*local)(nil)

func (c *local) List(ctx context.Context) ([]Info, error) { return c.hub.List(ctx, c.by) }

func (c *local) Create(ctx context.Context, spec Spec) (string, error) {
	s, err := c.hub.Create(ctx, c.by, spec)
	if err != nil {
		return "", err
	}
	return s.id, nil
}

func (c *local) Open(ctx context.Context, spec Spec) error {
	_, err := c.hub.Open(ctx, c.by, spec)
	return err
}

func (c *local) State(ctx context.Context, id string) (*State, error) {
	return c.hub.Session(id).State(ctx, c.by)
}

func (c *local) InitializeResponse(ctx context.Context, id string) (*wire.InitializeResponse, error) {
	return c.hub.Session(id).InitializeResponse(ctx, c.by)
}

func (c *local) Attach(ctx context.Context, id string, after uint64) iter.Seq2[Entry, error] {
	return c.hub.Session(id).Attach(ctx, c.by, after)
}

func (c *local) Prompt(ctx context.Context, id string, m *wire.User) (string, error) {
	return c.hub.Session(id).Prompt(ctx, c.by, m)
}

func (c *local) Drop(ctx context.Context, id, uuid string) (bool, error) {
	return c.hub.Session(id).Drop(ctx, c.by, uuid)
}

func (c *local) Answer(ctx context.Context, id string, ans Answer) error {
	return c.hub.Session(id).Answer(ctx, c.by, ans)
}

func (c *local) Control(ctx context.Context, id string, request json.RawMessage) (json.RawMessage, error) {
	return c.hub.Session(id).Control(ctx, c.by, request)
}

func (c *local) Interrupt(ctx context.Context, id string) error {
	return c.hub.Session(id).Interrupt(ctx, c.by)
}

func (c *local) Rewind(ctx context.Context, id, uuid string) error {
	return c.hub.Session(id).Rewind(ctx, c.by, uuid)
}

func (c *local) Rename(ctx context.Context, id, title string) error {
	return c.hub.Session(id).Rename(ctx, c.by, title)
}

func (c *local) Host(ctx context.Context, id string, opts HostOptions) (HostLink, error) {
	h, err := c.hub.Session(id).Host(ctx, c.by, opts)
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (c *local) Stop(ctx context.Context, id string) error {
	return c.hub.Session(id).Stop(ctx, c.by)
}

func (c *local) Remove(ctx context.Context, id string) error {
	return c.hub.Session(id).Remove(ctx, c.by)
}

func (c *local) Delete(ctx context.Context, id string) error {
	return c.hub.Session(id).Delete(ctx, c.by)
}

func (c *local) Schedule(ctx context.Context, x Schedule) (string, error) {
	return c.hub.Schedule(ctx, c.by, x)
}

func (c *local) Unschedule(ctx context.Context, id string) error {
	return c.hub.Unschedule(ctx, c.by, id)
}

func (c *local) Schedules(ctx context.Context, session string) ([]Schedule, error) {
	return c.hub.Schedules(ctx, c.by, session)
}

func (c *local) Worktrees(ctx context.Context) ([]Worktree, error) {
	return c.hub.Worktrees(ctx, c.by)
}

func (c *local) MergeWorktree(ctx context.Context, id string) error {
	return c.hub.Session(id).MergeWorktree(ctx, c.by)
}

func (c *local) RemoveWorktree(ctx context.Context, id string, force bool) error {
	return c.hub.Session(id).RemoveWorktree(ctx, c.by, force)
}

func (c *local) Close() error { return nil }

// Open opens an existing session: see [Client].
func (h *Hub) Open(ctx context.Context, by Actor, spec Spec) (*Session, error) {
	if err := h.check(ctx, by, spec.ID, MayDrive, "open sessions"); err != nil {
		return nil, err
	}
	s := &Session{h, spec.ID}
	err := h.in(ctx, spec.ID, func(r *room) error {
		return r.do(ctx, func(x *tx) error {
			if spec.Agent == nil || string(spec.Agent) == string(r.fold.created.Spec) {
				return nil
			}
			if r.lease == nil {
				return ErrLocked
			}
			x.append(KindChanged, mustJSON(Changed{By: by, Spec: spec.Agent}), nil)
			return nil
		})
	})
	return s, s.elsewhere(ctx, err, "open", by, spec.Agent, nil)
}

// Delete stops the session and removes its journal and the agent's records.
func (s *Session) Delete(ctx context.Context, by Actor) error {
	if err := s.hub.check(ctx, by, s.id, MayAdmin, "delete sessions"); err != nil {
		return err
	}
	state, err := s.State(ctx, by)
	if err != nil {
		return err
	}
	if err := s.Remove(ctx, by); err != nil || s.hub.cfg.Sessions == nil {
		return err
	}
	if err = session.Delete(ctx, s.hub.cfg.Sessions, state.Session, nil); isNotFound(err) {
		return nil
	}
	return err
}

func isNotFound(err error) bool { return errors.Is(err, session.ErrNotFound) }
