package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// The methods of a session that only the process that runs it can carry out. A hub that does not run the session
// passes them on, if its backend is a [Caller].
var passable = map[string]func(ctx context.Context, s *Session, by Actor, args json.RawMessage) (any, error){
	"control": func(ctx context.Context, s *Session, by Actor, args json.RawMessage) (any, error) {
		return s.Control(ctx, by, args)
	},
	"initialized": func(ctx context.Context, s *Session, by Actor, _ json.RawMessage) (any, error) {
		return s.InitializeResponse(ctx, by)
	},
	"drop": func(ctx context.Context, s *Session, by Actor, args json.RawMessage) (any, error) {
		uuid, err := argument[string](args)
		if err != nil {
			return nil, err
		}
		return s.Drop(ctx, by, uuid)
	},
	"rewind":  with(func(ctx context.Context, s *Session, by Actor, uuid string) error { return s.Rewind(ctx, by, uuid) }),
	"trim":    with(func(ctx context.Context, s *Session, by Actor, before uint64) error { return s.Trim(ctx, by, before) }),
	"archive": with(func(ctx context.Context, s *Session, by Actor, yes bool) error { return s.Archive(ctx, by, yes) }),
	"stop":    with(func(ctx context.Context, s *Session, by Actor, _ any) error { return s.Stop(ctx, by) }),
	"remove":  with(func(ctx context.Context, s *Session, by Actor, _ any) error { return s.Remove(ctx, by) }),
	"open": with(func(ctx context.Context, s *Session, by Actor, agent json.RawMessage) error {
		_, err := s.hub.Open(ctx, by, Spec{ID: s.id, Agent: agent})
		return err
	}),
	"host": func(ctx context.Context, s *Session, by Actor, args json.RawMessage) (any, error) {
		in, err := argument[hostCall](args)
		if err != nil {
			return nil, err
		}
		return s.admit(ctx, by, in)
	},
	"host_poll": func(ctx context.Context, s *Session, by Actor, args json.RawMessage) (any, error) {
		in, err := argument[hostPoll](args)
		if err != nil {
			return nil, err
		}
		g, err := s.guest(by, in.Host)
		if err != nil {
			return nil, err
		}
		return g.poll(ctx, in.After)
	},
	"host_answer": with(func(_ context.Context, s *Session, by Actor, in hostAnswer) error {
		g, err := s.guest(by, in.Host)
		if err == nil {
			g.answer(in)
		}
		return err
	}),
	"host_leave": with(func(ctx context.Context, s *Session, by Actor, in hostLeave) error {
		g, err := s.guest(by, in.Host)
		if err == nil {
			err = g.seat.leavePlace(ctx, in.Permanently)
		}
		return err
	}),
}

func argument[T any](args json.RawMessage) (v T, err error) { return v, json.Unmarshal(args, &v) }

// with returns a row of passable for a method that returns only an error.
func with[T any](f func(context.Context, *Session, Actor, T) error) func(context.Context, *Session, Actor, json.RawMessage) (any, error) {
	return func(ctx context.Context, s *Session, by Actor, args json.RawMessage) (any, error) {
		v, err := argument[T](args)
		if err != nil {
			return nil, err
		}
		return nil, f(ctx, s, by, v)
	}
}

// A passedCall is a call of a method in another process.
type passedCall struct {
	Method string          `json:"method"`
	By     Actor           `json:"by"`
	Rights Rights          `json:"rights"` // of By, whose JSON does not contain them
	Args   json.RawMessage `json:"args"`
}

// A callResult is the response to a passedCall.
type callResult struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Failure        `json:"error,omitempty"`
}

// passed marks the context of a call that another process passed on: it is not passed on again.
type passed struct{}

// callTime is how long another process may take. It may have to start the agent.
const callTime = time.Minute

// elsewhere passes a method on to the process that runs the session if err is [ErrLocked], and decodes the result
// into result, which may be nil. Any other err is returned as it is.
func (s *Session) elsewhere(ctx context.Context, err error, method string, by Actor, args, result any) error {
	c, ok := s.hub.cfg.Backend.(Caller)
	if !ok || !errors.Is(err, ErrLocked) || ctx.Value(passed{}) != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callTime, fmt.Errorf("hub: the process that runs the session did not answer %s within %v; it may have carried it out", method, callTime))
	defer cancel()
	data, err := c.Call(ctx, s.id, mustJSON(passedCall{method, by, by.Rights, mustJSON(args)}))
	if err != nil {
		return err
	}
	var resp callResult
	if err := json.Unmarshal(data, &resp); err != nil {
		return fmt.Errorf("hub: the response of the process that runs the session cannot be read: %w", err)
	}
	if resp.Error != nil {
		return resp.Error.Err()
	}
	if result == nil || resp.Result == nil {
		return nil
	}
	return json.Unmarshal(resp.Result, result)
}

// answerCall carries out a call that another process passed on.
func (h *Hub) answerCall(ctx context.Context, id string, request []byte) ([]byte, error) {
	var resp callResult
	var in passedCall
	err := json.Unmarshal(request, &in)
	in.By.Rights = in.Rights
	if err == nil {
		var v any
		if f := passable[in.Method]; f == nil {
			err = fmt.Errorf("hub: this process does not know the method %q: update it", in.Method)
		} else if v, err = f(context.WithValue(ctx, passed{}, true), h.Session(id), in.By, in.Args); err == nil && v != nil {
			resp.Result, err = json.Marshal(v)
		}
	}
	if errors.Is(err, ErrLocked) {
		return nil, ErrLocked
	}
	if err != nil {
		resp = callResult{Error: NewFailure(err)}
	}
	return mustJSON(resp), nil
}
