package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/internal/ask"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/picture"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/internal/telemetry"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
	"go.opentelemetry.io/otel/trace"
)

// A turn is everything from a prompt to its result.
type turn struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	span   *telemetry.Span

	prompts  []*prompt // the prompts it answers; the first one started it
	unspoken []*prompt // prompts that are still to be emitted back
	promptID string
	id       string // id of the turn, for hooks

	began      time.Time
	first      firstAnswer
	apiTime    time.Duration
	userLines  int // user messages that were emitted, without replayed prompts
	rounds     int // requests that were answered
	denials    []*wire.PermissionDenial
	lastText   string // last text of the model
	shownText  string // lastText, as it was emitted
	stopReason string
	structured json.RawMessage
	deferred   *wire.DeferredToolUse
	attempts
}

// attempts counts how often a turn continued although it could have ended.
type attempts struct {
	stops       int // a Stop hook objected
	nudges      int // the answer was empty
	continued   int // the answer was truncated
	refusals    int // a safety check of the provider stopped the model
	unparsed    int // answers that announce a tool call and make none
	enforced    int // the model was reminded to use the structured output tool
	schemaFails int // the structured output did not match the schema
}

// turns is the running turn and the results of earlier ones.
type turns struct {
	turn     *turn       // nil while idle
	batch    *call.Batch // calls of the answer, until all their results are emitted
	results  int
	refusals int  // how often a safety check of the provider stopped the model in this conversation
	failed   bool // the result of the last turn was an error
	maxTurns int  // see [Config]
	suggests bool // see [Tuning.Suggestions]

	suggesting sync.WaitGroup  // requests for suggestions
	idle       context.Context // of these requests; it ends before Run returns
}

// Busy reports whether a turn runs.
func (c *turns) Busy() bool { return c.turn != nil }

// Failed reports whether the result of the last turn was an error. It may be called once
// Run has returned.
func (c *turns) Failed() bool { return c.failed }

// firstAnswer describes the first answer of a turn.
type firstAnswer struct {
	sent  time.Time   // when the request was sent
	token time.Time   // when the answer started
	usage *wire.Usage // nil until it is known
	named bool        // a message of it has named the prompts
}

// runTurn runs the turn of a prompt.
func (c *Conversation) runTurn(ctx context.Context, p *prompt) {
	t := &turn{began: c.runner.Now(), prompts: []*prompt{p}, promptID: session.NewID(), id: session.NewID()}
	ctx, t.span = c.runner.Telemetry.Turn(ctx, trace.SpanKindInternal, c.rec.ID(), c.primary.ID, c.agentName())
	if c.sub != nil && c.sub.PromptID != "" {
		t.promptID = c.sub.PromptID
	}
	id := t.promptID // a pointer into the turn would keep all of it
	c.hooks.promptID.Store(&id)
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	defer t.cancel(nil)
	c.turn = t
	c.model, c.fallbacks = c.primary, slices.Clone(c.cfg.Fallbacks)
	c.ledger.BeginTurn()
	c.compaction.BeginTurn()
	if !c.awake && !c.working {
		c.state("running")
	}
	c.awake, c.working = false, false
	c.lifecycle(p, "started")

	end := c.startTurn(t, p)
	for end == nil {
		end = c.round(t)
	}
	c.revoke()
	c.finishTurn(t, end)
	c.turn, c.batch = nil, nil
	suggestPrompt(c, end)
}

// An ending describes how a turn ended.
type ending struct {
	subtype  string // of the result; empty means success
	reason   string // its terminal_reason
	isError  bool
	text     string // the result of a success
	errors   []string
	status   int // HTTP status of the API's failure
	apiType  string
	apiError string
	noTurns  bool // no request was sent

	localCommand string // the slash command that was answered locally
	local        bool   // a slash command was answered locally; localCommand is empty if it is not available
}

// startTurn prepares a turn for its prompt: it runs hooks, expands the prompt and records it. It
// returns an ending if there is nothing to ask the model.
func (c *Conversation) startTurn(t *turn, p *prompt) *ending {
	if p.continued != nil {
		return c.continueTurn(t, p.continued)
	}
	if err := c.closeUnfinished(c.takeUnfinished()); err != nil {
		return c.broken(err)
	}
	cmd := c.slash(p)
	if cmd != nil && cmd.local != nil { // not replayed, as in the official command
		return cmd.local(t, p, cmd.args)
	}
	if c.sub == nil && c.cfg.Refresh != nil {
		c.runWhileServing(func() { c.cfg.Refresh(t.ctx) })
	}
	begun := c.startSession(t)
	c.instructionHooks(t)
	verdict := c.promptHooks(t, p)
	reason, blocked := verdict.Blocked()
	stopped := verdict.OnlyStopped()
	added := append(begun, verdict.Added()...)
	if !blocked && cmd != nil && (cmd.file != nil || cmd.from != nil) && t.ctx.Err() == nil {
		var more []string
		more, blocked, reason = c.expansionHooks(t, p, cmd)
		added = append(added, more...)
	}
	if c.sub != nil && c.results == 0 {
		added = append(added, c.first...)
	}
	c.beginServers(t.ctx)
	c.useForTurn(cmd.model())
	c.rec.Emit(c.init(t))
	c.emitNotices()
	if isBlank(p.content()) { // the API rejects it
		const text = "The prompt is blank, so nothing was sent to the model."
		c.rec.Emit(&wire.Informational{Content: text, Level: "warning"})
		return &ending{noTurns: true, text: text}
	}
	c.emitNotes(verdict)
	if blocked && !stopped {
		return c.reportBlocked(reason, verdict.Plain(reason), false)
	}
	failed := c.awaitServers(t.ctx)
	if cmd == nil {
		cmd = c.slash(p) // it may be a prompt of a server that was not connected before
	}
	if cause := context.Cause(t.ctx); cause != nil {
		// The hooks have not decided about the prompt, so it does not become part of the
		// conversation.
		return c.interrupted(t, "[Request interrupted by user]", "aborted_streaming", cause)
	}
	if failed != nil {
		end := c.broken(failed)
		end.noTurns = true
		return end
	}
	if c.cfg.AgentName != "" && c.role == nil {
		end := c.broken(fmt.Errorf("No agent is named %s.", c.cfg.AgentName))
		end.noTurns = true
		return end
	}
	c.keepPrompt()
	if err := c.sendContext(t); err != nil {
		return c.broken(err)
	}
	if err := c.sendMode(); err != nil {
		return c.broken(err)
	}
	if end := c.expandPrompt(t, p, cmd); end != nil {
		return end
	}
	added = append(c.beginAgent(t, p), added...)
	c.open(p)
	if err := c.appendPrompt(t, p, added); err != nil {
		return c.broken(err)
	}
	if stopped {
		return c.reportBlocked(reason, reason, true)
	}
	if p.m.ShouldQuery != nil && !*p.m.ShouldQuery {
		return &ending{noTurns: true}
	}
	return nil
}

// emitNotices emits the notices of the start.
func (c *briefing) emitNotices() {
	for _, text := range c.notices {
		c.rec.Emit(&wire.Informational{Content: text, Level: "warning"})
	}
	c.notices = nil
}

// isBlank reports whether a prompt consists of nothing but white space. An empty one is not blank.
func isBlank(content wire.Content) bool {
	text := ""
	for _, b := range content.All() {
		t, ok := b.(*wire.TextBlock)
		if !ok {
			return false
		}
		text += t.Text
	}
	return text != "" && strings.TrimSpace(text) == ""
}

// appendPrompt records a prompt and the texts that hooks add to it, and adds them to the history.
func (c *Conversation) appendPrompt(t *turn, p *prompt, context []string) error {
	content := p.content()
	attached := p.attached
	if hasPicture(content) {
		var problems []string
		c.runWhileServing(func() { content, problems = picture.FitContent(content) })
		if len(problems) > 0 {
			c.reportLeftOut("A picture of the prompt was left out: " + strings.Join(problems, "; ") + ".")
		}
	}
	var blocks []json.RawMessage
	for _, b := range content.All() {
		switch b := b.(type) {
		case *wire.ToolResultBlock:
			continue // it answers no call
		case *wire.TextBlock:
			if strings.TrimSpace(b.Text) != "" { // the API rejects the others
				blocks = append(blocks, mustJSON(b))
			}
		default:
			blocks = append(blocks, mustJSON(b))
		}
	}
	if len(blocks) == 0 {
		blocks = append(blocks, mustJSON(&wire.TextBlock{Text: "(no content)"}))
	}
	said := any(blocks)
	if content.Blocks == nil && content.Text != "" { // as the host sent it
		said = content.Text
	} else if c.sub != nil && len(content.Blocks) == 1 { // as the official command records it
		if b, ok := content.Blocks[0].(*wire.TextBlock); ok && b.Text != "" {
			said = b.Text
		}
	}
	entries := []*session.Entry{{
		Type: "user", UUID: p.uuid,
		Message: mustJSON(map[string]any{"role": "user", "content": said}),
		Fields:  fields("promptId", t.promptID, "permissionMode", c.mode),
	}}
	origin := originOf(p)
	if origin != nil {
		entries[0].Fields["origin"] = mustJSON(origin)
	}
	if origin == nil || origin.Kind == "human" { // lists of sessions show it
		entries = append(entries, &session.Entry{Type: "last-prompt", Fields: fields("lastPrompt", history.Clip(p.m.Message.Content.String(), 200), "leafUuid", p.uuid)})
	}
	if p == t.prompts[0] && c.sub == nil {
		entries = append(entries, session.TurnBegan(p.uuid, t.promptID))
	}
	if err := c.rec.Record(entries...); err != nil {
		return err
	}
	if p.recorded != nil {
		p.recorded()
	}
	if c.sub == nil && p.job == nil {
		c.brief.add(p.m.Message.Content.String(), originOf(p))
	}
	if c.keeper != nil && c.sub == nil { // changes of a subagent belong to the prompt of its parent
		if err := c.keeper.Begin(p.uuid); err != nil {
			return recorder.Unwritten(err)
		}
	}
	c.hist.Add("user", blocks...)
	if err := c.appendAttachments(attached); err != nil {
		return err
	}
	if c.cfg.Replay {
		t.unspoken = append(t.unspoken, p)
	}
	for _, s := range context {
		if err := c.appendNote(s); err != nil {
			return err
		}
	}
	return nil
}

// originOf returns the origin of a prompt: the source that queued it, or that of the host's
// message. The message of a program that names none is unclassified.
func originOf(p *prompt) *wire.Origin {
	switch {
	case p.origin != nil:
		return p.origin
	case p.m.Origin == nil && p.m.IsSynthetic:
		return &wire.Origin{Kind: "unclassified"}
	}
	return p.m.Origin
}

func fields(pairs ...any) map[string]json.RawMessage {
	return recorder.Fields(pairs...)
}

// echoPrompts emits prompts back to the host, just before the first answer to them.
func (t *turn) echoPrompts(rec *recorder.Recorder) {
	for _, p := range t.unspoken {
		m := *p.m
		m.IsReplay, m.UUID, m.SessionID, m.Timestamp, m.Origin, m.Priority = true, p.uuid, "", "", originOf(p), ""
		if p.typed != "" {
			m.Message.Content = wire.Text(p.typed)
		}
		rec.Emit(&m)
	}
	t.unspoken = nil
}

// round sends one request to the model and runs the tools that it calls. It returns nil if another
// round follows.
func (c *Conversation) round(t *turn) *ending {
	if c.budgetSpent() {
		return c.overBudget()
	}
	c.offerServers()
	if err := c.compaction.MakeRoom(c.compactTurn(t)); err != nil {
		if end := c.compactEnding(t, err); end != nil {
			return end
		}
	}
	if c.budgetSpent() {
		return c.overBudget()
	}
	a, run, err := c.requestAnswer(t)
	if errors.Is(err, ask.ErrSpent) {
		return c.overBudget()
	}
	if errors.Is(err, recorder.ErrUnwritten) {
		if run != nil {
			run.Abandon()
		}
		return c.broken(err)
	}
	if cause := context.Cause(t.ctx); cause != nil {
		return c.cutOff(t, a, run, cause)
	}
	if ask.Overflowed(err) != nil {
		var failed error
		if failed, err = c.compaction.Recover(c.compactTurn(t), err); err == nil {
			return nil
		}
		if failed != nil {
			if end := c.compactEnding(t, failed); end != nil {
				return end
			}
		}
	}
	if err != nil {
		end := c.failRequest(t, err)
		if a != nil {
			c.closeStream(a, a.open(), true)
		}
		return end
	}
	c.compaction.NoteAnswer()
	t.rounds++
	t.stopReason = a.stopReason
	if s := a.text(); s != "" {
		t.lastText, t.shownText = s, a.shownText()
	}
	if c.budgetSpent() {
		run.Abandon()
		if err := c.answerUnrunCalls(a); err != nil {
			return c.broken(err)
		}
		return c.overBudget()
	}
	if len(run.Calls) == 0 {
		return c.finishOrContinue(t, a)
	}
	if end := c.collectResults(t, a, run); end != nil {
		return end
	}
	if !a.complete {
		// The stream broke after the call. The call has run, and the model continues from its
		// result.
		c.rec.Emit(synthetic("API Error: the connection was lost in the middle of the answer; what is above may be incomplete.",
			syntheticError{code: wire.ErrorServer, apiError: "connection_failed", stopReason: "tool_use"}))
	}
	if c.maxTurns != 0 && t.rounds >= c.maxTurns {
		return &ending{subtype: "error_max_turns", reason: "max_turns", isError: true,
			errors: []string{fmt.Sprintf("Reached maximum number of turns (%d)", c.maxTurns)}}
	}
	return c.mergeQueuedPrompts(t)
}

// mergeQueuedPrompts merges prompts that were queued meanwhile into this turn.
func (c *Conversation) mergeQueuedPrompts(t *turn) *ending {
	for _, p := range slices.Clone(c.inbox) {
		// It stays queued while hooks run, so that the host can cancel it, or interrupt the turn.
		queued := func() bool { return t.ctx.Err() == nil && slices.Contains(c.inbox, p) }
		if p.m.Priority == "later" || !queued() || c.slash(p) != nil {
			continue
		}
		verdict := c.promptHooks(t, p)
		c.emitNotes(verdict)
		if !queued() {
			continue
		}
		c.inbox = slices.DeleteFunc(slices.Clone(c.inbox), func(q *prompt) bool { return q == p })
		if reason, blocked := verdict.Blocked(); blocked {
			c.lifecycle(p, "started")
			c.reportBlocked(reason, verdict.Plain(reason), false)
			c.lifecycle(p, "cancelled")
			continue
		}
		t.prompts = append(t.prompts, p)
		c.expandPrompt(t, p, nil)
		if err := c.appendPrompt(t, p, verdict.Added()); err != nil {
			return c.broken(err)
		}
		t.echoPrompts(c.rec)
		c.lifecycle(p, "started")
		t.first.named = t.first.named && p.m.UUID == ""
	}
	return nil
}

// finishTurn records and emits the result of a turn.
func (c *Conversation) finishTurn(t *turn, end *ending) {
	t.echoPrompts(c.rec)
	over := []*session.Entry{{Type: recorder.CostType, Fields: c.ledger.State()}}
	r := c.result(t, end)
	if c.sub == nil {
		if e := c.taskRecord(); e != nil {
			over = append(over, e)
		}
		c.rec.Stamp(r)
		line, _ := wire.Encode(r) // a result can always be encoded
		over = append(over, session.TurnEnded(line))
	}
	if err := c.rec.Record(over...); err != nil && end.subtype == "" {
		end = c.broken(err)
		since := r.ModelUsageSinceLastResult
		r = c.result(t, end)
		r.ModelUsageSinceLastResult = since
	}
	c.failed = r.IsError
	c.results++
	final := "completed"
	if slices.Contains([]string{"aborted_streaming", "aborted_tools"}, end.reason) {
		final = "cancelled"
	}
	for _, p := range t.prompts[1:] { // prompts that joined the turn have no result of their own
		c.lifecycle(p, final)
	}
	c.rec.Emit(r)
	t.endSpan(r)
	c.lifecycle(t.prompts[0], final)
	// Until they end, the host must not close its end: they may need permission.
	switch c.working = c.cfg.States != "" && agentsWork(c.runner.Env.Tasks()); {
	case c.working:
	case c.base.Err() == nil && !c.ended && len(c.inbox) > 0: // the next turn begins at once
		c.awake = true
	default:
		c.state("idle")
	}
}
