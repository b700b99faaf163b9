package socket

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"sync"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// Own is the reason why a process holds a hub of its own.
type Own struct {
	// Private means that this process descends from a session, or may not use the hub for
	// another reason. Its hub must share no journals with others, so that a command of an
	// agent cannot approve the agent's calls.
	Private bool
	// Differs names the variables that differ from those of the running hub.
	Differs []string
}

// CheckSelf returns an error if this process is a command that an agent runs, as far as the
// system shows where it comes from.
func CheckSelf() error { return descends() }

// Join returns a client of the hub that serves the socket at path. If there is no hub, or
// its environment is not env, Join calls hold to create one in this process, which the
// client closes. A nil env matches every environment. If the hub is killed, the client joins
// the next one or holds its own, and viewers continue where they were.
func Join(ctx context.Context, path string, by hub.Actor, env []string, hold func(Own) (*hub.Hub, error)) (hub.Client, error) {
	j := &joined{path: path, by: by, env: env, hold: hold}
	_, err := j.client(ctx, nil)
	if err != nil {
		return nil, err
	}
	return j, nil
}

// joined is a client of whichever hub is running.
type joined struct {
	path string
	by   hub.Actor
	env  []string
	hold func(Own) (*hub.Hub, error)

	mu     sync.Mutex
	now    hub.Client
	held   *hub.Hub // the hub in this process, or nil
	closed bool
}

var _ hub.Client = (*joined)(nil)

// client returns a client of the running hub. lost is a client whose hub is gone.
func (j *joined) client(ctx context.Context, lost hub.Client) (hub.Client, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil, hub.ErrClosed
	}
	if j.now != nil && j.now != lost {
		return j.now, nil
	}
	if j.now != nil {
		j.now.Close()
		j.now = nil
	}
	own := Own{Private: descends() != nil}
	if !own.Private {
		c := NewClient(j.path)
		c.Name = j.by.Name
		_, err := c.List(ctx)
		if err == nil && j.env != nil {
			own.Differs, err = c.Differs(ctx, j.env)
		}
		var refused *Error
		switch {
		case err == nil && len(own.Differs) == 0:
			j.now = c
			return c, nil
		case err == nil:
		case ctx.Err() != nil:
			return nil, err
		case errors.As(err, &refused) && refused.Status != http.StatusForbidden && refused.Status != http.StatusNotFound:
			return nil, err
		}
		own.Private = refused != nil && refused.Status == http.StatusForbidden
		c.Close()
	}
	held, err := j.hold(own)
	if err != nil {
		return nil, err
	}
	j.held, j.now = held, held.Client(j.by)
	return j.now, nil
}

// Close implements [hub.Client]. It also ends the agents of the hub that this process holds.
func (j *joined) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	err := j.now.Close()
	if j.held != nil {
		err = errors.Join(err, j.held.Close())
	}
	return err
}

// with calls f with the running hub, and again with the next one if the hub was killed. It
// repeats a request that may have taken effect only if that does no harm.
func (j *joined) with(ctx context.Context, harmless bool, f func(hub.Client) error) error {
	var lost hub.Client
	for {
		c, err := j.client(ctx, lost)
		if err != nil {
			return err
		}
		err = f(c)
		var gone *GoneError
		if !errors.As(err, &gone) || gone.Sent && !harmless {
			return err
		}
		lost = c
	}
}

func (j *joined) List(ctx context.Context) (all []hub.Info, err error) {
	err = j.with(ctx, true, func(c hub.Client) error { all, err = c.List(ctx); return err })
	return all, err
}

func (j *joined) Create(ctx context.Context, spec hub.Spec) (string, error) {
	again := false
	if spec.ID == "" && spec.From == nil {
		spec.ID = session.NewID()
	}
	id := spec.ID
	err := j.with(ctx, spec.From == nil, func(c hub.Client) (err error) {
		made, err := c.Create(ctx, spec)
		if again && errors.Is(err, hub.ErrExists) {
			return nil // the hub that ended has created it
		}
		if again = true; err == nil {
			id = made
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return id, nil
}

func (j *joined) Open(ctx context.Context, spec hub.Spec) error {
	return j.with(ctx, true, func(c hub.Client) error { return c.Open(ctx, spec) })
}

func (j *joined) State(ctx context.Context, id string) (state *hub.State, err error) {
	err = j.with(ctx, true, func(c hub.Client) error { state, err = c.State(ctx, id); return err })
	return state, err
}

func (j *joined) InitializeResponse(ctx context.Context, id string) (resp *wire.InitializeResponse, err error) {
	err = j.with(ctx, true, func(c hub.Client) error { resp, err = c.InitializeResponse(ctx, id); return err })
	return resp, err
}

// Attach implements [hub.Client]. It continues in the next hub if one is killed. The viewer
// then receives the current state again.
func (j *joined) Attach(ctx context.Context, id string, after uint64) iter.Seq2[hub.Entry, error] {
	return func(yield func(hub.Entry, error) bool) {
		var lost hub.Client
		for {
			c, err := j.client(ctx, lost)
			if err != nil {
				yield(hub.Entry{}, err)
				return
			}
			for e, err := range c.Attach(ctx, id, after) {
				var gone *GoneError
				if errors.As(err, &gone) {
					break
				}
				if !yield(e, err) || err != nil {
					return
				}
				after = max(after, e.N)
			}
			lost = c
		}
	}
}

func (j *joined) Prompt(ctx context.Context, id string, m *wire.User) (string, error) {
	msg := *m
	if msg.UUID == "" {
		msg.UUID = session.NewID() // a repeated prompt is accepted once
	}
	err := j.with(ctx, true, func(c hub.Client) error { _, err := c.Prompt(ctx, id, &msg); return err })
	return msg.UUID, err
}

func (j *joined) Drop(ctx context.Context, id, uuid string) (dropped bool, err error) {
	err = j.with(ctx, false, func(c hub.Client) error { dropped, err = c.Drop(ctx, id, uuid); return err })
	return dropped, err
}

func (j *joined) Answer(ctx context.Context, id string, ans hub.Answer) error {
	again := false
	return j.with(ctx, true, func(c hub.Client) error {
		err := c.Answer(ctx, id, ans)
		var late *hub.AnsweredError
		if again && errors.As(err, &late) && late.Answer.By.Name == j.by.Name && string(late.Answer.Response) == string(ans.Response) {
			return nil // the hub that is gone accepted it
		}
		again = true
		return err
	})
}

func (j *joined) Control(ctx context.Context, id string, request json.RawMessage) (resp json.RawMessage, err error) {
	err = j.with(ctx, false, func(c hub.Client) error { resp, err = c.Control(ctx, id, request); return err })
	return resp, err
}

func (j *joined) Interrupt(ctx context.Context, id string) error {
	return j.with(ctx, true, func(c hub.Client) error { return c.Interrupt(ctx, id) })
}

func (j *joined) Rewind(ctx context.Context, id, uuid string) error {
	return j.with(ctx, true, func(c hub.Client) error { return c.Rewind(ctx, id, uuid) })
}

func (j *joined) Rename(ctx context.Context, id, title string) error {
	return j.with(ctx, true, func(c hub.Client) error { return c.Rename(ctx, id, title) })
}

// Host implements [hub.Client]. If the hub is killed, the link ends with a [*GoneError],
// and the caller may become the host again.
func (j *joined) Host(ctx context.Context, id string, opts hub.HostOptions) (link hub.HostLink, err error) {
	err = j.with(ctx, true, func(c hub.Client) error { link, err = c.Host(ctx, id, opts); return err })
	return link, err
}

func (j *joined) Stop(ctx context.Context, id string) error {
	return j.with(ctx, true, func(c hub.Client) error { return c.Stop(ctx, id) })
}

func (j *joined) Remove(ctx context.Context, id string) error {
	return j.with(ctx, true, func(c hub.Client) error { return c.Remove(ctx, id) })
}

func (j *joined) Delete(ctx context.Context, id string) error {
	again := false
	return j.with(ctx, true, func(c hub.Client) error {
		err := c.Delete(ctx, id)
		if again && errors.Is(err, hub.ErrNotFound) {
			return nil
		}
		again = true
		return err
	})
}

func (j *joined) Schedule(ctx context.Context, x hub.Schedule) (id string, err error) {
	err = j.with(ctx, false, func(c hub.Client) error { id, err = c.Schedule(ctx, x); return err })
	return id, err
}

func (j *joined) Unschedule(ctx context.Context, id string) error {
	return j.with(ctx, false, func(c hub.Client) error { return c.Unschedule(ctx, id) })
}

func (j *joined) Schedules(ctx context.Context, session string) (all []hub.Schedule, err error) {
	err = j.with(ctx, true, func(c hub.Client) error { all, err = c.Schedules(ctx, session); return err })
	return all, err
}

func (j *joined) Worktrees(ctx context.Context) (all []hub.Worktree, err error) {
	err = j.with(ctx, true, func(c hub.Client) error { all, err = c.Worktrees(ctx); return err })
	return all, err
}

func (j *joined) MergeWorktree(ctx context.Context, id string) error {
	return j.with(ctx, true, func(c hub.Client) error { return c.MergeWorktree(ctx, id) })
}

func (j *joined) RemoveWorktree(ctx context.Context, id string, force bool) error {
	return j.with(ctx, false, func(c hub.Client) error { return c.RemoveWorktree(ctx, id, force) })
}
