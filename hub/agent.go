package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A Start describes the session for which [Config.Agent] makes the options of an agent.
type Start struct {
	ID   string          // of the session
	Cwd  string          // its working directory
	Spec json.RawMessage // the value of [Spec.Agent] when the session was created
	// Epoch is the number of the owner entry under which the agent runs. A later owner has a
	// higher one.
	Epoch uint64
	// Store keeps the agent's records in the session's journal. An agent in this process
	// should use it if [Config.Sessions] is nil.
	Store session.Store
	// Inform gives the agent's model a text before its next answer, for example that files were
	// restored. [Config.Agent] may call it before it returns.
	Inform func(text string)
	// Records makes the hub read the records of the agent with load, and not from its own
	// stores, for an agent that keeps them elsewhere. [Config.Agent] may call it before it
	// returns.
	Records func(load func(ctx context.Context, id string) ([]json.RawMessage, error))
	// Away reports to viewers that the session waits for an agent with a name, which connects by
	// itself and is away since a time. The zero time means that it is back. It may be called until the
	// agent ends.
	Away func(name string, since time.Time)
}

// An agentRun is one run of an agent in a room, from its start to its end.
type agentRun struct {
	r    *room
	ctx  context.Context // ends when the agent must end at once
	stop context.CancelCauseFunc
	done chan struct{} // closed when everything that belongs to it has ended

	// Set before it starts.
	from    uint64                     // the last number before it started
	agentID string                     // of its session
	covered string                     // see fold
	again   bool                       // a turn should continue; set by run
	spec    json.RawMessage            // the spec that its options are made from
	host    map[string]json.RawMessage // the registration of the host
	rewind  string
	sticky  []json.RawMessage
	granted []json.RawMessage
	notices []string                                                        // for the model
	records func(ctx context.Context, id string) ([]json.RawMessage, error) // nil for the hub's own

	informed atomic.Bool             // the model has received the notices
	away     atomic.Pointer[Waiting] // nil unless the agent is away

	mail mailbox // prompts to send

	mu       sync.Mutex
	received int64         // how many messages were sent to the room
	more     chan struct{} // closed when there are more; nil if nobody waits

	// These belong to the room's goroutine.
	client  *parley.Client // nil until it is connected
	waiting []chan struct{}
	sent    map[string]bool
	closing bool
	calls   int       // control requests in progress
	idle    time.Time // when it became idle
	trace   string    // the span of the prompt for which it was started
	waits   []Waiting // requests that wait for the host
}

// startAgent starts an agent.
func (r *room) startAgent() {
	f := r.fold
	a := &agentRun{r: r, done: make(chan struct{}), sent: map[string]bool{}, mail: mailbox{bell: make(chan struct{}, 1)},
		from: f.n, agentID: f.agentID, covered: f.covered, spec: f.created.Spec, rewind: f.resumeAt, sticky: slices.Clone(f.sticky), granted: slices.Clone(f.granted), idle: time.Now()}
	if f.host != nil {
		a.host = f.host.Initialize
	}
	a.ctx, a.stop = context.WithCancelCause(r.ctx)
	start := Start{ID: r.id, Cwd: f.created.Cwd, Spec: f.created.Spec, Epoch: f.epoch, Store: r.store(), Inform: func(text string) { a.notices = append(a.notices, text) }}
	start.Away = func(name string, since time.Time) {
		w := &Waiting{Kind: "agent", About: name, Since: &since}
		if since.IsZero() {
			w = nil
		}
		a.away.Store(w)
		go r.post(a.ctx, func(*tx) error { r.fold.dirty = true; return nil })
	}
	start.Records = func(load func(context.Context, string) ([]json.RawMessage, error)) { a.records = load }
	for _, uuid := range slices.Concat(f.running, f.queue) {
		if p := f.prompts[uuid]; p != nil && a.trace == "" {
			a.trace = p.Trace
		}
	}
	r.agent = a
	go func() {
		defer close(a.done)
		defer a.stop(nil)
		err := a.run(start)
		r.post(context.Background(), func(x *tx) error { r.agentEnded(x, a, err); return nil })
	}()
}

// run connects the agent and sends its messages to the room until it ends.
func (a *agentRun) run(start Start) error {
	given, err := a.r.hub.cfg.Agent(a.ctx, start)
	if err != nil {
		return err
	}
	opts := *given
	if opts.Cwd == "" {
		opts.Cwd = start.Cwd
	}
	records, err := a.r.catchUp(a.ctx, a.agentID, a.covered, a.records)
	if err != nil {
		return err
	}
	err = a.r.do(a.ctx, func(*tx) error {
		a.again = a.r.fold.midTurn && !a.r.fold.stopped
		return nil
	})
	if err != nil {
		return err
	}
	if opts.SessionID, opts.Resume = a.agentID, ""; slices.ContainsFunc(records, isMessage) {
		opts.SessionID, opts.Resume, opts.ResumeAt = "", a.agentID, a.rewind
	}
	opts.PartialMessages, opts.ReplayUserMessages = true, true
	opts.IdleTimeout = -1
	client, continued, err := a.connect(&opts)
	if err != nil {
		return err
	}
	defer client.Close()
	for _, request := range a.sticky {
		if err := client.Call(a.ctx, &wire.UnknownRequest{Name: subtypeOf(request), Raw: request}, nil); err != nil && a.r.hub.cfg.Logger != nil {
			a.r.hub.cfg.Logger.Warn("what was set before could not be set again", "request", string(request), "error", err)
		}
	}
	a.r.post(a.ctx, func(x *tx) error { a.r.agentReady(x, a, client, continued); return nil })
	sender := make(chan struct{})
	go func() {
		defer close(sender)
		a.mail.each(a.ctx, func(m *wire.User) bool { return client.Send(a.ctx, m) == nil })
	}()
	defer func() { a.stop(nil); <-sender }()
	for m, err := range client.Messages(a.ctx) {
		if err != nil {
			return err
		}
		a.message(m)
		a.mu.Lock()
		if a.received++; a.more != nil {
			close(a.more)
			a.more = nil
		}
		a.mu.Unlock()
	}
	return nil
}

// isMessage reports whether a record is a message of the conversation. An agent that was killed
// early may have left only other records, from which it cannot resume.
func isMessage(record json.RawMessage) bool {
	var r struct{ Type string }
	json.Unmarshal(record, &r)
	return r.Type == "user" || r.Type == "assistant"
}

// inOrder waits until the room has the messages that the agent sent before a request.
func (a *agentRun) inOrder(ctx context.Context) {
	before := parley.MessagesBefore(ctx)
	for {
		a.mu.Lock()
		if a.received >= before {
			a.mu.Unlock()
			return
		}
		if a.more == nil {
			a.more = make(chan struct{})
		}
		more := a.more
		a.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return
		case <-a.ctx.Done():
			return
		}
	}
}

// noticeHook is the id of the hook that gives the model the texts of [Start.Inform].
const noticeHook = "hub-notice"

// connect connects the agent. It reports whether a turn continues.
func (a *agentRun) connect(opts *parley.Options) (client *parley.Client, continued bool, err error) {
	own := opts.ToolServers
	opts.OnRequest = func(ctx context.Context, req *wire.ControlRequest) (json.RawMessage, error) {
		switch r := req.Request.(type) {
		case *wire.CanUseTool, *wire.Elicitation, *wire.RequestUserDialog:
			return a.ask(ctx, req)
		case *wire.SDKControlInterrupt:
			return nil, parley.ErrNotHandled
		case *wire.HookCallback:
			if r.CallbackID == noticeHook {
				return mustJSON(a.notice()), nil
			}
		case *wire.MCPMessage:
			if own[r.ServerName] != nil {
				return nil, parley.ErrNotHandled
			}
		case *wire.UnknownRequest:
			if r.Name == "schedule" {
				return a.schedule(ctx, r.Raw)
			}
		}
		return a.askHost(ctx, req)
	}
	opts.ExtraInitialize = maps.Clone(opts.ExtraInitialize)
	if opts.ExtraInitialize == nil {
		opts.ExtraInitialize = map[string]json.RawMessage{}
	}
	maps.Copy(opts.ExtraInitialize, a.host)
	if len(a.notices) > 0 {
		hooks := map[string][]json.RawMessage{}
		json.Unmarshal(a.host["hooks"], &hooks) // keep those of the host
		event := string(wire.EventUserPromptSubmit)
		hooks[event] = append(hooks[event], mustJSON(map[string][]string{"hookCallbackIds": {noticeHook}}))
		opts.ExtraInitialize["hooks"] = mustJSON(hooks)
	}
	opts.ExtraInitialize["keepsSchedules"] = json.RawMessage("true")
	opts.ExtraInitialize["keepsTurns"] = json.RawMessage("true")
	opts.ExtraInitialize["toolOutput"] = json.RawMessage("true")
	if len(a.granted) > 0 {
		opts.ExtraInitialize["permissionUpdates"] = mustJSON(a.granted)
	}
	if a.again {
		opts.ExtraInitialize["continueTurn"] = json.RawMessage("true")
		if len(a.notices) > 0 {
			opts.ExtraInitialize["informModel"] = mustJSON(a.notices)
		}
	}
	if _, given := opts.Env["TRACEPARENT"]; a.trace != "" && !given {
		if opts.Env = maps.Clone(opts.Env); opts.Env == nil {
			opts.Env = map[string]string{}
		}
		opts.Env["TRACEPARENT"] = a.trace
	}
	client, err = parley.Connect(a.ctx, opts)
	if err != nil {
		return nil, false, err
	}
	if init, _ := client.InitializeResponse(); init != nil {
		continued = string(init.Extra["turn_continued"]) == "true"
	}
	if continued {
		a.informed.Store(true)
	}
	return client, continued, nil
}

// notice returns the notices for the model, with its first prompt only.
func (a *agentRun) notice() *wire.HookOutput {
	out := &wire.HookOutput{}
	if !a.informed.Swap(true) {
		out.HookSpecificOutput = &wire.UserPromptSubmitOutput{AdditionalContext: strings.Join(a.notices, "\n")}
	}
	return out
}

// message sends a message to the room.
func (a *agentRun) message(m wire.Message) {
	record := ""
	switch m := m.(type) {
	case *wire.KeepAlive, *wire.ControlRequest, *wire.ControlResponse, *wire.ControlCancelRequest, *wire.TranscriptMirror, *wire.BadLine:
		return
	case *wire.Assistant:
		record = m.UUID
	case *wire.User:
		record = m.UUID
	case *wire.CompactBoundary:
		record = m.UUID
	}
	data, err := wire.Encode(m)
	if err != nil {
		return
	}
	if ephemeral(m) {
		a.r.post(a.ctx, func(x *tx) error { x.live(data); return nil })
		return
	}
	init, _ := m.(*wire.Init)
	user, _ := m.(*wire.User)
	a.r.post(a.ctx, func(x *tx) error {
		if user != nil && user.IsReplay && a.r.fold.consumed(record) { // it was sent twice
			return nil
		}
		if init != nil && init.SessionID != "" && init.SessionID != a.r.fold.agentID {
			x.append(KindCleared, mustJSON(Cleared{Session: init.SessionID}), nil)
		}
		x.append(KindFrame, data, func(e *Entry) { e.Record = record })
		if _, ok := m.(*wire.Result); ok {
			a.r.attempts = 0
		}
		a.idle = time.Now()
		return nil
	})
}

// ephemeral reports whether a message is not worth keeping: progress, or a piece of an answer
// that also comes as a whole.
func ephemeral(m wire.Message) bool {
	switch m := m.(type) {
	case *wire.StreamEvent, *wire.ToolProgress, *wire.ThinkingTokens, *wire.CommandLifecycle, *wire.SessionStateChanged, *wire.TaskProgress, *wire.HookProgress:
		return true
	case *wire.Status:
		return m.Status == "requesting"
	}
	return false
}

// agentReady records that the agent is connected.
func (r *room) agentReady(x *tx, a *agentRun, client *parley.Client, continued bool) {
	a.client, a.idle = client, time.Now()
	for _, ch := range a.waiting {
		close(ch)
	}
	a.waiting = nil
	if f := r.fold; f.midTurn && !continued && (len(f.running) > 0 || len(f.queue) == 0) {
		// The agent cannot continue its turn, or must not, because somebody interrupted it. If the previous
		// agent was killed before it had recorded a prompt, that prompt is still queued and is sent again.
		reason := "the agent ended before it sent the result of the turn"
		if !a.again {
			reason = "the turn was interrupted"
		}
		x.append(KindEnded, mustJSON(Ended{Prompts: f.running, Reason: reason}), nil)
	}
}

// agentEnded records that the agent has ended.
func (r *room) agentEnded(x *tx, a *agentRun, err error) {
	for _, ch := range a.waiting {
		close(ch)
	}
	r.agent = nil
	if err != nil {
		r.lastError = err.Error()
	}
	if r.fold.dirty = true; a.closing || r.broken != nil {
		return
	}
	r.attempts++
	r.startAt = time.Now().Add(min(time.Second<<r.attempts, time.Minute))
	reason := "the agent ended"
	if err != nil {
		reason = err.Error()
	}
	if r.attempts >= maxAttempts && (r.fold.midTurn || len(r.fold.queue) > 0) {
		x.append(KindEnded, mustJSON(Ended{Prompts: r.fold.running, Reason: fmt.Sprintf("the agent failed %d times: %s", r.attempts, reason), Holds: true}), nil)
		r.attempts = 0
	}
}

// maxAttempts is how often an agent is restarted for the same turn.
const maxAttempts = 3

// manage starts and stops the agent, sends it prompts, and lets questions expire. It returns how
// long to wait before looking again.
func (r *room) manage() time.Duration {
	const long = time.Hour
	f, now, next := r.fold, time.Now(), long
	wanted := len(f.queue) > 0 && f.problem == "" || f.midTurn && !f.stopped
	switch a := r.agent; {
	case a == nil && wanted && !r.draining:
		if wait := r.startAt.Sub(now); wait > 0 {
			next = min(next, wait)
		} else if !r.owner {
			r.later((*tx).claim)
		} else {
			r.startAgent()
		}
	case a == nil, a.closing:
	case r.draining:
		r.closeAgent()
	case a.client == nil:
	default:
		for _, uuid := range f.queue {
			if !a.sent[uuid] {
				a.sent[uuid] = true
				a.idle = now
				a.mail.put(letter{message: f.prompts[uuid].Message})
			}
		}
		busy := f.midTurn || len(f.queue) > 0 || len(r.waiters) > 0 || len(f.tasks) > 0 || a.calls > 0
		if busy {
			a.idle = now
		} else if wait := a.idle.Add(r.hub.cfg.IdleAfter).Sub(now); wait <= 0 || a.stale() {
			r.closeAgent()
		} else {
			next = min(next, wait)
		}
	}
	if r.agent == nil && f.midTurn && f.stopped { // it was interrupted while no agent ran
		r.later((*tx).endStopped)
	}
	return min(next, r.expire(now))
}

// endStopped ends a turn that was interrupted and whose agent has ended without a result.
func (x *tx) endStopped() error {
	if f := x.r.fold; x.r.agent == nil && f.midTurn && f.stopped {
		x.append(KindEnded, mustJSON(Ended{Prompts: f.running, Reason: "the turn was interrupted"}), nil)
	}
	return nil
}

// stale reports whether the agent was started with another spec or host registration than the
// current ones.
func (a *agentRun) stale() bool {
	f := a.r.fold
	if string(a.spec) != string(f.created.Spec) {
		return true
	}
	if f.host == nil {
		return len(a.host) > 0
	}
	return !maps.EqualFunc(a.host, f.host.Initialize, func(a, b json.RawMessage) bool { return string(a) == string(b) })
}

// later makes the room call f in its next batch.
func (r *room) later(f func(*tx) error) {
	r.spawn(func(ctx context.Context) { r.post(ctx, f) })
}

// closeAgent ends the agent. It first stops the agent's background tasks, because an agent whose
// input ends waits for them.
func (r *room) closeAgent() {
	a := r.agent
	a.closing = true
	client := a.client
	if client == nil {
		a.stop(ErrClosed)
		return
	}
	tasks := slices.Clone(r.fold.tasks)
	go func() {
		for _, task := range tasks {
			if client.Call(a.ctx, &wire.StopTask{TaskID: task.ID}, nil) != nil {
				break
			}
		}
		client.Close() // it ends the messages that run ranges over
	}()
}

// kill ends the agent at once.
func (a *agentRun) kill(cause error) {
	a.stop(cause)
	if a.client != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		a.client.Shutdown(ctx)
	}
}

// A mailbox is a queue of prompts to send. It has no bound, because the prompts are already
// accepted.
type mailbox struct {
	mu   sync.Mutex
	list []letter
	bell chan struct{}
}

// A letter is a prompt, or a channel to close when the prompts before it are sent.
type letter struct {
	message json.RawMessage
	sent    chan struct{}
}

func (m *mailbox) put(l letter) {
	m.mu.Lock()
	m.list = append(m.list, l)
	m.mu.Unlock()
	select {
	case m.bell <- struct{}{}:
	default:
	}
}

// flush returns when all prompts in the mailbox are sent. The error is that of the first context
// that ends.
func (m *mailbox) flush(ctx, agent context.Context) error {
	l := letter{sent: make(chan struct{})}
	m.put(l)
	select {
	case <-l.sent:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-agent.Done():
		return context.Cause(agent)
	}
}

func (m *mailbox) drain() []letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.list
	m.list = nil
	return list
}

// each calls f with the messages, until f returns false or ctx ends.
func (m *mailbox) each(ctx context.Context, f func(*wire.User) bool) {
	for {
		for _, l := range m.drain() {
			if l.sent != nil {
				close(l.sent)
				continue
			}
			msg, err := wire.Decode(l.message)
			if u, ok := msg.(*wire.User); err == nil && ok && !f(u) {
				return
			}
		}
		select {
		case <-m.bell:
		case <-ctx.Done():
			return
		}
	}
}
