package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// Control sends a control request of the protocol to the session's agent, which is
// started if necessary, and returns its response. A request that changes something is
// recorded as an entry first, so that everybody sees who sent it. A request that sets
// something is sent again when the agent is restarted.
//
// If another process runs the session, the request is passed on to it. If that is not
// possible, a request that changes something goes to the inbox of the session, and there is
// no response.
func (s *Session) Control(ctx context.Context, by Actor, request json.RawMessage) (json.RawMessage, error) {
	var line bytes.Buffer
	if err := json.Compact(&line, request); err != nil {
		return nil, fmt.Errorf("hub: the control request is not JSON: %w", err)
	}
	request = line.Bytes()
	name := subtypeOf(request)
	switch name {
	case "":
		return nil, errors.New("hub: the control request has no subtype")
	case "initialize":
		return nil, errors.New("hub: initialize is for hosts: see Session.Host")
	}
	changes := !readOnly(name)
	right := MayView
	if changes {
		right = MayDrive
	}
	if err := s.hub.check(ctx, by, s.id, right, "send "+name); err != nil {
		return nil, err
	}
	var resp json.RawMessage
	err := s.hub.in(ctx, s.id, func(r *room) (err error) {
		resp, err = r.control(ctx, Control{By: by, Request: request}, changes)
		return err
	})
	if !errors.Is(err, ErrLocked) || ctx.Value(passed{}) != nil { // the process that passed it on asks the next one
		return resp, err
	}
	waits := ctx
	if settable(name) { // the inbox does as well, so it need not wait for a process that is paused
		var cancel context.CancelFunc
		waits, cancel = context.WithTimeout(ctx, settleTime)
		defer cancel()
	}
	if err = s.elsewhere(waits, err, "control", by, request, &resp); err == nil || !changes || !errors.Is(err, ErrLocked) && waits.Err() == nil || ctx.Err() != nil {
		return resp, err
	}
	_, err = s.hub.cfg.Backend.Put(ctx, s.id, Item{Key: controlKey + session.NewID(), Time: time.Now(), Data: mustJSON(Control{By: by, Request: request})})
	return nil, err
}

// settleTime is how long a request that could also go to the inbox waits for another process.
const settleTime = 5 * time.Second

func (r *room) control(ctx context.Context, c Control, changes bool) (json.RawMessage, error) {
	name := subtypeOf(c.Request)
	var a *agentRun
	pending := false
	var before json.RawMessage
	err := r.do(ctx, func(x *tx) error {
		if r.lease == nil {
			return ErrLocked
		}
		before = r.fold.request(name)
		if now := r.agent; now != nil && !now.closing {
			if pending = now.client == nil; !pending {
				a = now
				a.calls++
			}
		}
		if changes {
			x.append(KindControl, mustJSON(c), nil)
		}
		if name == "interrupt" || name == "end_session" {
			r.withdrawAll(a != nil)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case a == nil && !pending && settable(name):
		if name == "rename_session" {
			var in struct{ Title string }
			json.Unmarshal(c.Request, &in)
			return json.RawMessage("{}"), r.renameRecords(ctx, in.Title)
		}
		return json.RawMessage("{}"), nil // it takes effect when the agent is started
	case a == nil && (name == "interrupt" || name == "end_session"):
		// The agent is being started. If it continues the turn, it is interrupted before
		// anybody sees that; if it does not start, there is nothing to interrupt.
		if a, err = r.needAgent(ctx, false); a == nil || err != nil {
			return json.RawMessage("{}"), nil
		}
	case a == nil:
		if a, err = r.needAgent(ctx, true); err != nil {
			return nil, err
		}
	}
	defer r.post(context.Background(), func(*tx) error { a.calls--; return nil })
	var resp json.RawMessage
	err = a.client.Call(ctx, &wire.UnknownRequest{Name: name, Raw: c.Request}, &resp)
	var refused *parley.ControlError
	if errors.As(err, &refused) {
		r.restoreSetting(ctx, c.Request, before, a)
	}
	return resp, err
}

// restoreSetting records that a setting is as before, because the agent refused a request.
func (r *room) restoreSetting(ctx context.Context, request, before json.RawMessage, a *agentRun) {
	name := subtypeOf(request)
	if before == nil {
		switch name {
		case "set_permission_mode":
			mode := wire.ModeDefault
			if init, err := a.client.InitializeResponse(); err == nil && init.CurrentPermissionMode != "" {
				mode = init.CurrentPermissionMode
			}
			before = mustJSON(map[string]any{"subtype": name, "mode": mode})
		case "set_model":
			before = mustJSON(map[string]any{"subtype": name})
		default:
			return
		}
	}
	r.do(context.WithoutCancel(ctx), func(x *tx) error {
		if bytes.Equal(r.fold.request(name), request) { // nobody changed it since
			x.append(KindControl, mustJSON(Control{By: Actor{Name: r.hub.cfg.Name}, Request: before}), nil)
		}
		return nil
	})
}

// readOnly reports whether a control request changes nothing.
func readOnly(name string) bool {
	return strings.HasPrefix(name, "get_") || strings.HasPrefix(name, "list_") || name == "mcp_status" || name == "file_suggestions"
}

// settable reports whether a control request needs no agent: it takes effect with the
// next start, or ends something that does not run.
func settable(name string) bool {
	switch name {
	case "interrupt", "end_session", "set_model", "set_permission_mode", "set_max_thinking_tokens", "apply_flag_settings", "rename_session":
		return true
	}
	return false
}

// withdrawAll withdraws the questions of a turn that ends while no agent runs. A running
// agent does it itself.
func (r *room) withdrawAll(agentDoes bool) {
	if agentDoes {
		return
	}
	for _, id := range r.fold.openAsks {
		ans := &Answer{Ask: id, By: Actor{Name: r.hub.cfg.Name}, Outcome: Withdrawn}
		r.spawn(func(context.Context) { r.putAnswer(ans) })
	}
}

// needAgent waits until the agent is connected, and counts a call to it; the caller
// decrements the count again. With start it starts the agent if necessary; otherwise the
// result may be nil.
func (r *room) needAgent(ctx context.Context, start bool) (*agentRun, error) {
	for {
		var a *agentRun
		var ready chan struct{}
		var problem string
		claim := false
		err := r.do(ctx, func(*tx) error {
			if r.agent == nil && !start {
				return nil
			}
			if r.agent == nil && !r.owner {
				claim = true
				return nil
			}
			if r.agent == nil && time.Until(r.startAt) <= 0 {
				r.startAgent()
			}
			if problem = r.lastError; r.agent == nil {
				return fmt.Errorf("hub: the agent cannot be started: %s", problem)
			}
			if r.agent.client == nil || r.agent.closing {
				ready = make(chan struct{})
				r.agent.waiting = append(r.agent.waiting, ready)
			} else {
				a = r.agent
				a.calls++
			}
			return nil
		})
		if err == nil && claim {
			if err = r.do(ctx, (*tx).claim); err == nil {
				continue
			}
		}
		if err != nil || a != nil || ready == nil {
			return a, err
		}
		select {
		case <-ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Interrupt ends the current turn. Nothing of it starts after Interrupt has returned.
func (s *Session) Interrupt(ctx context.Context, by Actor) error {
	_, err := s.Control(ctx, by, json.RawMessage(`{"subtype":"interrupt"}`))
	return err
}

// Drop removes a prompt from the queue. It reports false if the prompt is not queued any
// more.
func (s *Session) Drop(ctx context.Context, by Actor, uuid string) (bool, error) {
	if err := s.hub.check(ctx, by, s.id, MayDrive, "take back prompts"); err != nil {
		return false, err
	}
	dropped := false
	err := s.hub.in(ctx, s.id, func(r *room) (err error) {
		dropped, err = r.drop(ctx, by, uuid)
		return err
	})
	err = s.elsewhere(ctx, err, "drop", by, uuid, &dropped)
	return dropped, err
}

func (r *room) drop(ctx context.Context, by Actor, uuid string) (bool, error) {
	if err := r.consumeAll(ctx); err != nil { // it may still be in the inbox
		return false, err
	}
	var a *agentRun
	waits, sent := false, false
	err := r.do(ctx, func(x *tx) error {
		if r.lease == nil {
			return ErrLocked
		}
		p := r.fold.prompts[uuid]
		if waits = p != nil && !p.consumed && !p.over; !waits {
			return nil
		}
		if a = r.agent; a != nil {
			sent = a.sent[uuid]
		}
		if !sent {
			x.append(KindDropped, mustJSON(Dropped{UUID: uuid, By: by, Reason: "taken back"}), nil)
		}
		return nil
	})
	if err != nil || !waits || !sent {
		return waits, err
	}
	// The agent must have the prompt before it can cancel it.
	if err := a.mail.flush(ctx, a.ctx); err != nil {
		return false, err
	}
	gone, err := a.client.CancelMessage(ctx, uuid)
	if err != nil || !gone {
		return false, err
	}
	return true, r.do(ctx, func(x *tx) error {
		x.append(KindDropped, mustJSON(Dropped{UUID: uuid, By: by, Reason: "taken back"}), nil)
		return nil
	})
}

// Rewind continues the conversation after the message with the given uuid. Later messages
// stay in the journal. The session must be idle.
func (s *Session) Rewind(ctx context.Context, by Actor, uuid string) error {
	if err := s.hub.check(ctx, by, s.id, MayDrive, "rewind the conversation"); err != nil {
		return err
	}
	err := s.hub.in(ctx, s.id, func(r *room) error {
		return r.do(ctx, func(x *tx) error {
			if r.lease == nil {
				return ErrLocked
			}
			if r.fold.midTurn || len(r.fold.queue) > 0 {
				return errors.New("hub: the session is not idle; interrupt it first")
			}
			x.append(KindRewound, mustJSON(Rewound{By: by, To: uuid}), nil)
			r.withdrawAll(false)
			if r.agent != nil && !r.agent.closing {
				r.closeAgent() // the next one starts there
			}
			return nil
		})
	})
	return s.elsewhere(ctx, err, "rewind", by, uuid, nil)
}

// Fork copies the session, up to the entry n, or all of it if n is 0, into a new session,
// with numbers that start at 1.
func (s *Session) Fork(ctx context.Context, by Actor, n uint64) (*Session, error) {
	return s.hub.Create(ctx, by, Spec{From: &Reference{s.id, n}})
}

func (h *Hub) fork(ctx context.Context, by Actor, spec Spec) (*Session, error) {
	s, n := &Session{h, spec.From.Session}, spec.From.N
	if err := h.check(ctx, by, s.id, MayView, "see the session"); err != nil {
		return nil, err
	}
	r, err := h.enter(ctx, s.id, nil)
	if err != nil {
		return nil, err
	}
	defer s.hub.exit(r)
	var created Created
	agentID := ""
	err = r.do(ctx, func(*tx) error {
		created, agentID = *r.fold.created, r.fold.agentID
		if created.Title = r.fold.title; spec.Title != "" {
			created.Title = spec.Title
		}
		if spec.Agent != nil {
			created.Spec = spec.Agent
		}
		created.Worktree = "" // the copy does not have the original's
		if n == 0 || n > r.fold.n {
			n = r.fold.n
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	upTo := ""
	for e, err := range s.hub.cfg.Backend.Read(ctx, s.id, 0, false) {
		if err != nil {
			return nil, err
		}
		if e.N > n {
			break
		}
		if e.Record != "" {
			upTo = e.Record
		}
	}
	records, err := r.agentRecords(ctx, agentID)
	if err != nil {
		return nil, err
	}
	id := session.NewID()
	created.By, created.Session, created.From, created.Outside = by, id, &Reference{s.id, n}, false
	if len(records) == 0 || upTo == "" {
		return s.hub.createFork(ctx, id, &created, nil)
	}
	if s.hub.cfg.Sessions != nil {
		if id, err = session.Fork(ctx, s.hub.cfg.Sessions, agentID, &session.ForkOptions{UpTo: upTo}); err != nil {
			return nil, err
		}
		created.Session = id
		return s.hub.createFork(ctx, id, &created, nil)
	}
	// The records are in the journal: make the copy in memory and move it over.
	var between session.Memory
	key := session.Key{Project: session.ProjectKey(created.Cwd), Session: agentID}
	if err := between.Append(ctx, key, records); err != nil {
		return nil, err
	}
	if id, err = session.Fork(ctx, &between, agentID, &session.ForkOptions{UpTo: upTo}); err != nil {
		return nil, err
	}
	created.Session = id
	key.Session = id
	if records, err = between.Load(ctx, key); err != nil {
		return nil, err
	}
	return s.hub.createFork(ctx, id, &created, func(r *room) error { return r.store().Append(ctx, key, records) })
}

// createFork creates a session that is a copy.
func (h *Hub) createFork(ctx context.Context, id string, created *Created, fill func(*room) error) (*Session, error) {
	r, err := h.enter(ctx, id, created)
	if err != nil {
		return nil, err
	}
	defer h.exit(r)
	if fill != nil {
		if err := fill(r); err != nil {
			return nil, err
		}
		missing, err := r.recover(ctx, created.Session, "", map[string]bool{})
		if err != nil {
			return nil, err
		}
		if err := r.do(ctx, func(x *tx) error { x.appendFrames(missing); return nil }); err != nil {
			return nil, err
		}
	}
	return &Session{h, id}, nil
}

// Trim removes the entries below a number, and announces that to viewers.
func (s *Session) Trim(ctx context.Context, by Actor, before uint64) error {
	if err := s.hub.check(ctx, by, s.id, MayAdmin, "trim the journal"); err != nil {
		return err
	}
	err := s.hub.in(ctx, s.id, func(r *room) error { return r.trim(ctx, before) })
	return s.elsewhere(ctx, err, "trim", by, before, nil)
}

func (r *room) trim(ctx context.Context, before uint64) error {
	record := ""
	for e, err := range r.hub.cfg.Backend.Read(ctx, r.id, 0, false) {
		if err != nil {
			return err
		}
		if e.N >= before {
			break
		}
		if e.Record != "" {
			record = e.Record
		}
	}
	err := r.do(ctx, func(x *tx) error {
		if r.lease == nil {
			return ErrLocked
		}
		if r.fold.midTurn || len(r.fold.queue) > 0 || len(r.fold.openAsks) > 0 {
			return errors.New("hub: the session is not idle")
		}
		before = min(before, r.fold.n)
		// The state must be available without the entries.
		t := r.fold.trimmed(before)
		if t.Record = record; record == "" {
			t.Record = r.fold.covered
		}
		x.append(KindTrimmed, mustJSON(t), nil)
		return nil
	})
	if err != nil {
		return err
	}
	if err := r.hub.cfg.Backend.Trim(ctx, r.id, before); err != nil {
		return err
	}
	return r.do(ctx, func(*tx) error {
		r.fold.first = max(r.fold.first, before)
		return nil
	})
}

// Remove stops the session and removes its journal. The agent's own records stay.
func (s *Session) Remove(ctx context.Context, by Actor) error {
	if err := s.hub.check(ctx, by, s.id, MayAdmin, "remove sessions"); err != nil {
		return err
	}
	if err := s.Stop(ctx, by); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if err := s.hub.unscheduleAll(ctx, s.id); err != nil { // they would open it again
		return err
	}
	for {
		s.hub.mu.Lock()
		r := s.hub.rooms[s.id]
		s.hub.mu.Unlock()
		if r == nil {
			if err := s.elsewhere(ctx, s.hub.cfg.Backend.Delete(ctx, s.id), "remove", by, nil, nil); err != nil {
				return err
			}
			s.hub.mu.Lock()
			delete(s.hub.summaries, s.id)
			s.hub.mu.Unlock()
			s.hub.report(Info{ID: s.id, Removed: true})
			return nil
		}
		r.post(ctx, func(*tx) error { r.broken = ErrNotFound; return nil })
		select {
		case <-r.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Stop interrupts the current turn, drops queued prompts, and ends the agent. The next
// prompt starts it again.
func (s *Session) Stop(ctx context.Context, by Actor) error {
	if err := s.hub.check(ctx, by, s.id, MayDrive, "stop the session"); err != nil {
		return err
	}
	// Otherwise the process that runs the session would receive the interrupt, although it is not stopped.
	err := s.hub.in(ctx, s.id, func(r *room) error {
		return r.do(ctx, func(*tx) error {
			if r.lease == nil {
				return ErrLocked
			}
			return nil
		})
	})
	if err == nil {
		if err = s.Interrupt(ctx, by); errors.Is(err, parley.ErrClosed) {
			err = nil
		}
	}
	if err == nil {
		err = s.hub.in(ctx, s.id, func(r *room) error { return r.stopAgent(ctx, by) })
	}
	return s.elsewhere(ctx, err, "stop", by, nil, nil)
}

func (r *room) stopAgent(ctx context.Context, by Actor) error {
	var ended chan struct{}
	err := r.do(ctx, func(x *tx) error {
		if r.lease == nil {
			return ErrLocked
		}
		for _, uuid := range r.fold.queue {
			x.append(KindDropped, mustJSON(Dropped{UUID: uuid, By: by, Reason: "the session was stopped"}), nil)
		}
		if r.agent != nil {
			ended = r.agent.done
			if !r.agent.closing {
				r.closeAgent()
			}
		}
		return nil
	})
	if err != nil || ended == nil {
		return err
	}
	select {
	case <-ended:
		return r.do(ctx, (*tx).endStopped)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// InitializeResponse returns the agent's response to initialize, with its commands and models.
// It starts the agent if necessary.
func (s *Session) InitializeResponse(ctx context.Context, by Actor) (*wire.InitializeResponse, error) {
	if err := s.hub.check(ctx, by, s.id, MayView, "see the session"); err != nil {
		return nil, err
	}
	var resp *wire.InitializeResponse
	err := s.hub.in(ctx, s.id, func(r *room) error {
		if err := r.do(ctx, func(*tx) error {
			if r.lease == nil {
				return ErrLocked
			}
			return nil
		}); err != nil {
			return err
		}
		a, err := r.needAgent(ctx, true)
		if err != nil {
			return err
		}
		defer r.post(context.Background(), func(*tx) error { a.calls--; return nil })
		resp, err = a.client.InitializeResponse()
		return err
	})
	err = s.elsewhere(ctx, err, "initialized", by, nil, &resp)
	return resp, err
}
