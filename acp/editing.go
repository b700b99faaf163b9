package acp

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/parley-go/parley/acp/internal/v1"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/wire"
)

// An editing is a session that a client has open. One goroutine, run, follows the session's
// journal and writes everything that the client receives about it: updates, questions, and
// the responses to prompts. So a question never overtakes an update, and the response to a
// prompt comes after the last update of its turn.
type editing struct {
	srv    *server
	hub    hub.Client
	id     string
	client client
	setup  *setup
	host   hub.HostLink // for the client's own MCP servers, or nil

	ctx  context.Context // ends when the client closes the session
	stop context.CancelCauseFunc
	done chan struct{} // closed when run has ended

	choosing sync.Mutex // held while an option is being set

	gate  sync.Mutex // held while a prompt or an interrupt is being sent to the hub
	mu    sync.Mutex
	turns []*turn         // unanswered prompts, in order
	stops []chan struct{} // cancels without a prompt, until they are done
	chosen
}

// A turn is a prompt of this client, until its response is sent.
type turn struct {
	req       *request
	uuid      string
	cancelled bool
	quit      chan struct{} // closed when it is cancelled
	sent      chan struct{} // closed when the hub has the prompt, or will not receive it
	began     chan struct{} // closed when the agent starts to process it
	done      chan struct{} // closed when its response is sent
	taken     uint64        // the number of the entry with which the agent started it, 0 before
}

// opened describes how to open a session.
type opened struct {
	replay  bool // send its history
	respond func(*editing) any
}

// errClosedSession ends an editing that the client closed or reopened.
var errClosedSession = errors.New("acp: the session was closed")

// open follows a session and responds to the request that opens it. The session's goroutine
// writes the response and everything after it.
func (s *server) open(r *request, id string, x *setup, how opened) (any, error) {
	if old := s.editing(id); old != nil {
		s.closeEditing(old)
	}
	e := &editing{srv: s, hub: s.cfg.Hub, id: id, client: *s.initializedClient(), setup: x, done: make(chan struct{})}
	e.ctx, e.stop = context.WithCancelCause(s.conn.ctx)
	if err := e.attachServers(r.ctx); err != nil {
		return nil, err
	}
	following := false
	defer func() {
		if !following {
			e.stop(errClosedSession)
			e.detachServers()
		}
	}()
	init, err := e.hub.InitializeResponse(r.ctx, id)
	if err != nil && (!how.replay || errors.Is(err, hub.ErrNotFound) || errors.Is(err, hub.ErrLocked) || r.ctx.Err() != nil) {
		return nil, err // otherwise the history can be shown, even if no agent can continue
	}
	if init != nil {
		if err := e.setServers(r.ctx); err != nil {
			return nil, err
		}
	}
	state, err := e.hub.State(r.ctx, id)
	if err != nil {
		return nil, err
	}
	e.chosen.begin(init, state)
	following = true
	s.mu.Lock()
	old := s.sessions[e.id] // if the client opens the session twice at the same time
	s.sessions[e.id] = e
	s.mu.Unlock()
	if old != nil {
		old.end()
	}
	s.conn.work.Go(func() { e.run(r, how, state) })
	return later, nil
}

// setServers passes the client's MCP servers to the agent. They are not stored, so an agent,
// which may have been restarted, gets them before each prompt.
func (e *editing) setServers(ctx context.Context) error {
	if len(e.setup.servers) == 0 {
		return nil
	}
	_, err := e.hub.Control(ctx, e.id, mustJSON(map[string]any{"subtype": "mcp_set_servers", "servers": e.setup.servers}))
	return err
}

// end ends the goroutine and waits for it. It cancels prompts without a response.
func (e *editing) end() {
	e.stop(errClosedSession)
	<-e.done
}

// send sends an update.
func (e *editing) send(u v1.SessionUpdate) {
	e.srv.conn.notify("session/update", &v1.SessionNotification{SessionID: e.id, Update: u})
}

// A follower is the state of run while it follows the journal.
type follower struct {
	*editing
	t    *translator
	n    uint64              // the last entry that was handled
	asks map[string]*openAsk // unanswered questions, by id
	held []*hub.Ask          // questions that were not sent to the client yet
	wait []*wire.User        // prompts that the agent has not started to process, in order
	echo string              // the uuid of the last shown prompt of another client
}

// run follows the journal until the session is closed.
func (e *editing) run(r *request, how opened, state *hub.State) {
	defer close(e.done)
	f := &follower{editing: e, asks: map[string]*openAsk{}}
	f.t = newTranslator(state.Cwd, e.client, e.send)
	defer func() {
		for _, a := range f.asks {
			a.withdraw(errClosedSession)
		}
		e.finishAll(context.Cause(e.ctx))
		e.detachServers()
	}()
	after := state.N
	if how.replay {
		after = 0
	}
	f.n = after
	begun := false
	var before []hub.Entry // entries before the state: the history
	for e.ctx.Err() == nil {
		var failed error
		for entry, err := range e.hub.Attach(e.ctx, e.id, f.n) {
			if err != nil {
				failed = err
				break
			}
			if !begun && entry.Kind != hub.KindState {
				if before = append(before, entry); entry.N > 0 {
					f.n = entry.N
				}
				continue
			}
			if !begun { // attached: nothing is missed from now on
				begun = true
				if how.replay {
					f.replay(before, entry)
					before = nil
				}
				if now := new(hub.State); json.Unmarshal(entry.Data, now) == nil {
					e.setChosen(now)
				}
				r.respond(how.respond(e), nil)
				f.t.commands(e.init.Commands)
				if opened := e.srv.cfg.Opened; opened != nil {
					opened()
				}
				for i := range before {
					f.entry(&before[i])
				}
				before = nil
			}
			f.entry(&entry)
		}
		var slow *hub.LaggedError
		if errors.As(failed, &slow) {
			f.n = max(f.n, slow.After)
			continue
		}
		if e.ctx.Err() == nil && failed != nil {
			if !begun {
				r.respond(nil, rpcError(failed))
			}
			e.stop(failed)
		}
	}
	if !begun {
		r.respond(nil, errorf(CodeCancelled, "the session was closed or opened again"))
	}
}

// replay sends the history, without the turns that a rewind removed.
func (f *follower) replay(history []hub.Entry, last hub.Entry) {
	var kept []hub.Entry
	for _, e := range history {
		if e.Kind == hub.KindRewound {
			var x hub.Rewound
			if json.Unmarshal(e.Data, &x) == nil {
				if i := slices.IndexFunc(kept, func(k hub.Entry) bool { return k.Record != "" && k.Record == x.To }); i >= 0 {
					kept = kept[:i+1]
				}
			}
			continue
		}
		kept = append(kept, e)
	}
	f.t.replay = true
	for _, e := range kept {
		switch e.Kind {
		case hub.KindFrame:
			if m, err := wire.Decode(e.Data); err == nil { // skip a record that cannot be read
				f.note(m)
				f.t.message(m)
			}
		case hub.KindAsk, hub.KindAnswer:
			f.entry(&e)
		}
	}
	f.t.replay = false
	var state hub.State
	if json.Unmarshal(last.Data, &state) == nil && state.Phase == hub.Idle {
		f.t.endCalls("The call was interrupted.")
	}
}

// entry handles one entry of the journal.
func (f *follower) entry(e *hub.Entry) {
	if e.N > 0 {
		f.n = e.N
	}
	switch e.Kind {
	case hub.KindFrame, hub.KindLive:
		m, err := wire.Decode(e.Data)
		if err != nil {
			return
		}
		f.frame(e, m)
	case hub.KindPrompt:
		var p hub.Prompt
		json.Unmarshal(e.Data, &p)
		if m, err := wire.Decode(p.Message); err == nil {
			if u, ok := m.(*wire.User); ok {
				f.wait = append(f.wait, u)
			}
		}
	case hub.KindAsk:
		a := new(hub.Ask)
		if json.Unmarshal(e.Data, a) == nil {
			f.held = append(f.held, a)
		}
		if !f.t.replay {
			f.askHeld()
		}
	case hub.KindAnswer:
		var a hub.Answer
		json.Unmarshal(e.Data, &a)
		f.held = slices.DeleteFunc(f.held, func(q *hub.Ask) bool { return q.ID == a.Ask })
		if open := f.asks[a.Ask]; open != nil {
			delete(f.asks, a.Ask)
			open.withdraw(errAnswered)
		}
	case hub.KindControl:
		var c struct {
			Request struct{ Subtype, Title string }
		}
		if json.Unmarshal(e.Data, &c) == nil && c.Request.Subtype == "rename_session" && c.Request.Title != "" {
			f.send(v1.SessionUpdate{SessionInfoUpdate: &v1.SessionInfoUpdate{Title: c.Request.Title}})
		}
	case hub.KindDropped:
		var d hub.Dropped
		json.Unmarshal(e.Data, &d)
		f.wait = slices.DeleteFunc(f.wait, func(u *wire.User) bool { return u.UUID == d.UUID })
		f.finishTurns(func(t *turn) bool { return t.uuid == d.UUID }, stopped(v1.StopReasonCancelled), nil)
	case hub.KindEnded:
		var x hub.Ended
		json.Unmarshal(e.Data, &x)
		f.t.endCalls(x.Reason)
		f.finishTurns(func(t *turn) bool { return t.taken > 0 || slices.Contains(x.Prompts, t.uuid) || len(x.Prompts) == 0 }, nil, errorf(CodeInternal, "%s", x.Reason))
	case hub.KindState:
		state := new(hub.State)
		if json.Unmarshal(e.Data, state) == nil && f.setChosen(state) {
			f.optionsChanged()
		}
		f.askHeld()
	}
}

// note applies the settings of the session that only a message contains.
func (f *follower) note(m wire.Message) (changed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch m := m.(type) {
	case *wire.Init: // of an agent that does not report its first mode earlier
		before := f.mode
		if m.PermissionMode != "" && !f.modeSet && !(f.t.replay && f.init.CurrentPermissionMode != "") {
			f.mode = string(m.PermissionMode)
		}
		return f.mode != before
	case *wire.CommandsChanged:
		f.init.Commands = m.Commands
	}
	return false
}

// frame handles a message of the agent.
func (f *follower) frame(e *hub.Entry, m wire.Message) {
	if f.note(m) {
		f.optionsChanged()
	}
	switch m := m.(type) {
	case *wire.Init: // a turn starts; the echo of its prompt may come after the first pieces of the answer
		f.state(map[string]any{"state": "running"})
		if len(f.wait) > 0 {
			f.showPrompt(f.wait[0])
		}
	case *wire.User:
		if f.took(m.UUID, e.N) {
			f.wait = slices.DeleteFunc(f.wait, func(u *wire.User) bool { return u.UUID == m.UUID })
			return // the client sent it
		}
		if m.UUID != "" && m.UUID == f.echo {
			return
		}
		if i := slices.IndexFunc(f.wait, func(u *wire.User) bool { return u.UUID == m.UUID }); i >= 0 {
			f.showPrompt(f.wait[i])
			return
		}
	case *wire.Result:
		if m.IsReplay {
			return
		}
		if o := m.Outcome(); o != wire.OutcomeCompleted {
			f.t.endCalls("The call was interrupted.")
		}
		f.t.message(m)
		result, err := f.srv.outcome(m)
		ids := append(slices.Clone(m.UserMessageUUIDs), m.UserMessageUUID)
		f.finishTurns(func(t *turn) bool { return t.taken > 0 && t.taken < e.N || slices.Contains(ids, t.uuid) }, result, err)
		return
	}
	f.t.message(m)
}

// showPrompt shows a prompt of another client.
func (f *follower) showPrompt(m *wire.User) {
	if slices.ContainsFunc(f.pending(), func(t *turn) bool { return t.uuid == m.UUID }) {
		return
	}
	f.wait = slices.DeleteFunc(f.wait, func(u *wire.User) bool { return u == m })
	f.echo = m.UUID
	f.t.message(m)
}

func (e *editing) pending() []*turn {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.turns)
}

// took records that the agent started to process a prompt. It reports whether the prompt is
// from this client.
func (e *editing) took(uuid string, n uint64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.turns {
		if t.uuid == uuid {
			if t.taken == 0 {
				t.taken = n
				close(t.began)
			}
			return true
		}
	}
	return false
}

func stopped(reason v1.StopReason) *v1.PromptResponse { return &v1.PromptResponse{StopReason: reason} }

// outcome returns the response to the prompts of a turn.
func (s *server) outcome(m *wire.Result) (*v1.PromptResponse, error) {
	switch m.Outcome() {
	case wire.OutcomeCompleted, wire.OutcomeStopped, wire.OutcomeDeferred, wire.OutcomeBlocked:
		if m.StopReason == "max_tokens" {
			return stopped(v1.StopReasonMaxTokens), nil
		}
		if m.StopReason == "refusal" {
			return stopped(v1.StopReasonRefusal), nil
		}
		return stopped(v1.StopReasonEndTurn), nil
	case wire.OutcomeRefused:
		return stopped(v1.StopReasonRefusal), nil
	case wire.OutcomeMaxTurns:
		return stopped(v1.StopReasonMaxTurnRequests), nil
	case wire.OutcomeInterrupted:
		return stopped(v1.StopReasonCancelled), nil
	}
	e := &Error{Code: CodeInternal, Message: m.Reason(), Data: mustJSON(map[string]any{"subtype": m.Subtype, "outcome": m.Outcome().String()})}
	if m.APIErrorStatus == 401 || m.APIErrorStatus == 403 {
		e.Code, e.Data = CodeAuthRequired, mustJSON(map[string]any{"authMethods": s.authMethods()})
	}
	return nil, e
}

// finishTurns responds to prompts. Cancelled prompts end as cancelled, whatever else
// happened.
func (e *editing) finishTurns(which func(*turn) bool, result *v1.PromptResponse, err error) {
	e.mu.Lock()
	var over []*turn
	var cancelled []bool // a cancel may still come, too late
	e.turns = slices.DeleteFunc(e.turns, func(t *turn) bool {
		if !which(t) {
			return false
		}
		over, cancelled = append(over, t), append(cancelled, t.cancelled)
		return true
	})
	e.mu.Unlock()
	last, failed := result, err
	for i, t := range over {
		close(t.done)
		if last, failed = result, err; cancelled[i] {
			last, failed = stopped(v1.StopReasonCancelled), nil
		}
		t.req.respond(last, failed)
	}
	e.idle(last, failed)
	if len(over) > 0 {
		e.srv.idle()
	}
}

// finishAll responds to all prompts when the session is no longer followed.
func (e *editing) finishAll(cause error) {
	if errors.Is(cause, errClosedSession) {
		e.finishTurns(func(*turn) bool { return true }, stopped(v1.StopReasonCancelled), nil)
		return
	}
	e.finishTurns(func(*turn) bool { return true }, nil, errorf(CodeInternal, "the session ended: %v", cause))
}

// prompt is called by the reader, so that a later cancel finds the turn.
func (s *server) prompt(r *request) {
	var p v1.PromptRequest
	err := r.decode(&p)
	var e *editing
	if err == nil {
		e, err = s.opened(p.SessionID)
	}
	var m *wire.User
	if err == nil {
		m, err = userMessage(p.Prompt)
	}
	if err != nil {
		s.respondBeside(r, err)
		return
	}
	t := &turn{req: r, uuid: m.UUID, quit: make(chan struct{}), sent: make(chan struct{}), began: make(chan struct{}), done: make(chan struct{})}
	e.mu.Lock()
	e.turns = append(e.turns, t)
	e.mu.Unlock()
	s.conn.work.Go(func() {
		if e.client.version == 2 {
			e.acceptDraft(t, p.Prompt)
		}
		e.submit(t, m)
	})
	s.conn.work.Go(func() {
		if <-r.ctx.Done(); errors.Is(context.Cause(r.ctx), errCancelled) {
			e.cancelTurns([]*turn{t})
		}
	})
}

// submit sends a prompt to the hub after the earlier ones. It waits for the end of cancelled
// prompts, so that their interrupt does not end this one.
func (e *editing) submit(t *turn, m *wire.User) {
	defer close(t.sent)
	for _, wait := range e.before(t) {
		select {
		case <-wait:
		case <-t.quit:
		case <-e.ctx.Done():
		}
	}
	e.gate.Lock()
	defer e.gate.Unlock()
	err := error(nil)
	if !e.isCancelled(t) {
		if err = e.setServers(e.ctx); err == nil {
			_, err = e.hub.Prompt(e.ctx, e.id, m)
		}
		if err == nil {
			return
		}
	}
	e.finishTurns(func(x *turn) bool { return x == t }, stopped(v1.StopReasonCancelled), rpcError(err))
}

// before returns what a prompt must wait for: the previous prompt must be sent to the hub,
// cancelled prompts must have ended, and so must a cancel without a prompt, because it must
// not end this one.
func (e *editing) before(t *turn) (list []<-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, over := range e.stops {
		list = append(list, over)
	}
	var last *turn
	for _, x := range e.turns {
		if x == t {
			break
		}
		if last = x; x.cancelled {
			list = append(list, x.done)
		}
	}
	if last != nil && !last.cancelled {
		list = append(list, last.sent)
	}
	return list
}

func (e *editing) isCancelled(t *turn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return t.cancelled
}

// cancel is called by the reader: session/cancel ends all prompts of a session.
func (s *server) cancel(r *request) {
	var p v1.CancelNotification
	if r.decode(&p) != nil {
		return
	}
	if e := s.editing(p.SessionID); e != nil {
		e.cancelAll()
	}
}

func (e *editing) cancelAll() {
	e.cancelTurns(e.pending())
}

// cancelTurns marks prompts as cancelled and interrupts the running one. The responses
// follow when the turn has ended.
func (e *editing) cancelTurns(turns []*turn) {
	e.mu.Lock()
	again := len(turns) == 0 && len(e.stops) > 1 || len(turns) > 0 // what an earlier cancel does anyway
	for _, t := range turns {
		if !t.cancelled {
			again, t.cancelled = false, true
			close(t.quit)
		}
	}
	if again {
		e.mu.Unlock()
		return
	}
	over := make(chan struct{})
	if len(turns) == 0 {
		e.stops = append(e.stops, over)
	}
	e.mu.Unlock()
	e.srv.conn.work.Go(func() {
		e.interrupt(turns)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.stops = slices.DeleteFunc(e.stops, func(c chan struct{}) bool { return c == over })
		close(over)
	})
}

// interrupt ends cancelled prompts: it drops queued ones, and interrupts running ones. A
// prompt that the agent starts in the meantime is interrupted again.
func (e *editing) interrupt(turns []*turn) {
	for _, t := range slices.Backward(turns) { // last first, so that none starts in place of another
		select {
		case <-t.sent:
		case <-e.ctx.Done():
			return
		}
		e.hub.Drop(e.ctx, e.id, t.uuid)
	}
	for first := true; e.ctx.Err() == nil; first = false {
		e.gate.Lock()
		e.mu.Lock()
		i := slices.IndexFunc(turns, func(t *turn) bool { return slices.Contains(e.turns, t) })
		var began, done chan struct{}
		if i >= 0 {
			if done = turns[i].done; turns[i].taken == 0 {
				began = turns[i].began
			}
		}
		e.mu.Unlock()
		if i >= 0 || first && len(turns) == 0 {
			e.hub.Interrupt(e.ctx, e.id)
		}
		e.gate.Unlock()
		if i < 0 {
			return
		}
		select {
		case <-began:
		case <-done:
		case <-e.ctx.Done():
		}
	}
}
