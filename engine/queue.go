package engine

import (
	"slices"

	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// A prompt is a message of the user that is queued for a turn.
type prompt struct {
	m      *wire.User
	uuid   string       // of its record
	origin *wire.Origin // its source, if not the user

	continued *unfinishedTurn // the turn to continue, if this is not a new prompt

	expanded *wire.Content // the text sent to the model, if it differs
	typed    string        // a slash command as hosts see it again
	attached []*attachment // files that the prompt names
	recorded func()        // called once the prompt is recorded; may be nil

	job    *timedJob // the job that scheduled it, if any
	wakeup string    // id of that job for hosts
}

// queue accepts prompts and holds those that wait for a turn. It emits what becomes of them. Its
// methods are called by the owner of the conversation.
type queue struct {
	turns
	rec    *recorder.Recorder
	replay bool   // see [Config]
	states string // see [Config]

	inbox      []*prompt
	inputEnded bool
	working    bool            // no turn runs, but subagents do, and the state is still "running"
	awake      bool            // the state "running" was emitted for a prompt that has no turn yet
	ended      bool            // the conversation is over, even if prompts are left
	uuids      map[string]bool // of accepted prompts
	timers     *timers         // of scheduled prompts; those of the topmost conversation
	unfinished *unfinishedTurn // left by an earlier process of the session
}

// nextPrompt removes the prompt to handle next from the queue: the first of those with
// the highest priority.
func (c *queue) nextPrompt() *prompt {
	rank := func(p *prompt) int {
		switch p.m.Priority {
		case "now":
			return 0
		case "later":
			return 2
		}
		return 1 // "next", the default
	}
	at := 0
	for i, p := range c.inbox {
		if rank(p) < rank(c.inbox[at]) {
			at = i
		}
	}
	p := c.inbox[at]
	c.inbox = slices.Delete(slices.Clone(c.inbox), at, at+1)
	return p
}

// Prompt queues a message of the user. Tool results in it become the results of calls that wait or
// run.
func (c *queue) Prompt(m *wire.User) {
	if m = c.answerCalls(m); m == nil {
		return
	}
	if m.UUID != "" {
		if c.uuids[m.UUID] { // it was sent before, and has or will have its answer
			if c.replay {
				again := *m
				again.IsReplay, again.SessionID, again.Timestamp, again.Priority = true, "", "", ""
				c.rec.Emit(&again)
			}
			if c.turn == nil && !c.awake && !c.working {
				c.state("idle")
			}
			return
		}
		c.uuids[m.UUID] = true
	}
	if m.Origin != nil && m.Origin.Kind != "human" { // a host sends prompts only for its user
		own := *m
		own.Origin, m = nil, &own
	}
	p := &prompt{m: m, uuid: m.UUID}
	if p.uuid == "" {
		p.uuid = session.NewID()
	}
	if c.turn == nil && !c.awake && !c.working && m.UUID != "" { // before the first message about the prompt
		c.awake = true
		c.state("running")
	}
	c.lifecycle(p, "queued")
	if m.Priority == "now" && c.turn != nil {
		c.inbox = append([]*prompt{p}, c.inbox...)
		c.turn.cancel(errSuperseded)
		return
	}
	c.inbox = append(c.inbox, p)
}

// EndInput announces that no more prompts follow: the conversation ends when the queued ones are
// answered.
func (c *queue) EndInput() { c.inputEnded = true }

// Interrupt prepares for [Conversation.Stop]. It returns the prompts that are still queued and,
// with cancelQueued, those that it cancelled.
func (c *queue) Interrupt(cancelQueued bool) *wire.InterruptResponse {
	r := &wire.InterruptResponse{StillQueued: []string{}}
	for _, p := range c.inbox {
		if p.m.UUID == "" {
			continue
		}
		if cancelQueued {
			r.Cancelled = append(r.Cancelled, p.m.UUID)
		} else {
			r.StillQueued = append(r.StillQueued, p.m.UUID)
		}
	}
	if cancelQueued {
		for _, p := range c.inbox {
			c.lifecycle(p, "cancelled")
		}
		c.inbox = nil
		if r.Cancelled == nil {
			r.Cancelled = []string{}
		}
	}
	return r
}

// CancelPrompt cancels a queued prompt. It reports whether it was queued.
func (c *queue) CancelPrompt(uuid string) bool {
	for i, p := range c.inbox {
		if p.m.UUID == uuid {
			c.inbox = slices.Delete(c.inbox, i, i+1)
			c.lifecycle(p, "cancelled")
			return true
		}
	}
	return false
}

func (c *queue) lifecycle(p *prompt, state string) {
	if p.m.UUID != "" {
		m := &wire.CommandLifecycle{CommandUUID: p.m.UUID, State: state}
		if p.wakeup != "" && state == "started" {
			m.Extra = fields("wakeup_source", p.wakeup)
		}
		c.rec.Emit(m)
	}
}

func (c *queue) state(state string) {
	if c.states != "" {
		c.rec.Emit(&wire.SessionStateChanged{State: state, SDKHostOnly: c.states == "sdk"})
	}
}

// answerCalls removes from a message the results that answer calls of the turn: a result
// from the host replaces the one of the tool. It returns the rest of the message, or nil
// if nothing is left. A result for any other call stays in the message, where it is
// ignored.
func (c *queue) answerCalls(m *wire.User) *wire.User {
	if c.batch == nil {
		return m
	}
	var rest []wire.Block
	taken := false
	for _, b := range m.Message.Content.All() {
		result, ok := b.(*wire.ToolResultBlock)
		if !ok || !c.batch.Answer(result, m.ToolUseResult) {
			rest = append(rest, b)
			continue
		}
		taken = true
	}
	switch {
	case !taken:
		return m
	case len(rest) == 0:
		return nil
	}
	more := *m
	more.Message.Content = wire.Blocks(rest...)
	more.ToolUseResult = nil
	return &more
}

// addPrompt queues a prompt that is not from the host.
func (c *queue) addPrompt(text string, origin *wire.Origin) {
	c.inbox = append(c.inbox, &prompt{m: wire.Prompt(wire.Text(text)), uuid: session.NewID(), origin: origin})
}

// Remark sends the model a text from outside the conversation, in a separate turn.
func (c *queue) Remark(text string) { c.addPrompt(text, &wire.Origin{Kind: "hook"}) }

// takeUnfinished returns the turn of an earlier process that is still unfinished, once, or nil.
func (c *queue) takeUnfinished() *unfinishedTurn {
	u := c.unfinished
	c.unfinished = nil
	return u
}

// Continue continues the turn that was running when an earlier process of the session
// died. It reports whether there is such a turn. Calls whose intent was not recorded
// are decided again and run under their old ids. For the others, the model receives
// their outcome in the log, if it is known.
func (c *queue) Continue() bool {
	u := c.unfinished
	if u == nil || c.turn != nil {
		return false
	}
	c.inbox = append([]*prompt{{m: &wire.User{UUID: u.prompt, Priority: "now"}, uuid: u.prompt, continued: u}}, c.inbox...)
	return true
}

// KeepSchedules lets the host store the jobs of the conversation. It may be called from any
// goroutine.
func (c *queue) KeepSchedules(host tool.Schedules) {
	c.timers.mu.Lock()
	defer c.timers.mu.Unlock()
	c.timers.host = host
}
