package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/internal/ask"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/picture"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/tool/skill"
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

	began       time.Time
	first       firstAnswer
	apiTime     time.Duration
	userLines   int // user messages that were emitted, without replayed prompts
	rounds      int // requests that were answered
	stops       int // how often a Stop hook continued it
	nudges      int
	continued   int // how often it continued after a truncated answer
	refusals    int // how often a safety check of the provider stopped the model
	enforced    int // how often the model was reminded to use the structured output tool
	denials     []*wire.PermissionDenial
	lastText    string // last text of the model
	shownText   string // lastText, as it was emitted
	stopReason  string
	schemaFails int
	structured  json.RawMessage
	deferred    *wire.DeferredToolUse
}

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

	end := c.begin(t, p)
	for end == nil {
		end = c.round(t)
	}
	c.revoke()
	c.finish(t, end)
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
	blocked  bool // a hook blocked the prompt

	localCommand string // the slash command that was answered locally
}

// begin prepares a turn for its prompt: it runs hooks, expands the prompt and records it. It
// returns an ending if there is nothing to ask the model.
func (c *Conversation) begin(t *turn, p *prompt) *ending {
	if p.continued != nil {
		return c.continueTurn(t, p.continued)
	}
	if err := c.abandonUnfinished(); err != nil {
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
	for _, text := range c.notices {
		c.rec.Emit(&wire.Informational{Content: text, Level: "warning"})
	}
	c.notices = nil
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
	if c.cfg.AgentName != "" && c.set.agent == nil {
		end := c.broken(fmt.Errorf("There is no agent named %s, which this conversation is to be.", c.cfg.AgentName))
		end.noTurns = true
		return end
	}
	if err := c.keepPrompt(); err != nil {
		return c.broken(err)
	}
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

// reportBlocked ends a turn because a hook blocked its prompt. It does not repeat the prompt,
// whether or not the hook suppresses it, because the hook may protect a secret in it. With stopped
// the hook only ended the turn: the prompt stays in the conversation, and the next prompt tells
// the model why it was not answered.
func (c *Conversation) reportBlocked(reason, plain string, stopped bool) *ending {
	kind, told, result := "blocked_by_hook", "UserPromptSubmit operation blocked by hook:\n"+reason, "The prompt was blocked by a hook: "+reason
	if stopped {
		kind, told = "stopped_by_hook", strings.TrimSuffix("Operation stopped by hook: "+reason, ": ")
		result = told
		if err := c.inform(told); err != nil {
			return c.broken(err)
		}
	}
	c.rec.Emit(&wire.Informational{Content: told, Level: "warning", PreventContinuation: true,
		PromptSubmitOutcome: mustJSON(map[string]any{"kind": kind, "prompt_kept": stopped, "reason": plain})})
	return &ending{noTurns: true, blocked: true, text: result}
}

// unrecorded is the result of a call whose own result could not be recorded.
const unrecorded = "[The result of this call could not be recorded, so its outcome is unknown: it may have taken effect in full, in part or not at all. Find out before you repeat it.]"

// broken ends a turn because the engine itself cannot continue. Another prompt may follow, so
// every call needs a result.
func (c *Conversation) broken(err error) *ending {
	c.hist.CloseCalls(unrecorded)
	return &ending{subtype: "error_during_execution", isError: true, errors: []string{err.Error()}}
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
			if b.Text == "" {
				b = &wire.TextBlock{Text: "(no content)"}
			}
			blocks = append(blocks, mustJSON(b))
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
	}, {Type: "last-prompt", Fields: fields("lastPrompt", history.Clip(p.m.Message.Content.String(), 200), "leafUuid", p.uuid)}}
	if origin := originOf(p); origin != nil {
		entries[0].Fields["origin"] = mustJSON(origin)
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
		if err := c.inform(s); err != nil {
			return err
		}
	}
	return nil
}

// originOf returns the origin of a prompt: that of the host's message, or the source that queued
// it.
func originOf(p *prompt) *wire.Origin {
	if p.origin == nil {
		return p.m.Origin
	}
	return p.origin
}

// userEntry returns a record with the role of the user.
func userEntry(f map[string]json.RawMessage, blocks ...json.RawMessage) *session.Entry {
	return &session.Entry{Type: "user", Fields: f, Message: mustJSON(map[string]any{"role": "user", "content": blocks})}
}

// nudge is like inform, and also emits the text to the host. refused is the id of the model's
// message that was refused, if any.
func (c *Conversation) nudge(t *turn, text, refused string) error {
	if err := c.inform(text); err != nil {
		return err
	}
	t.userLines++
	c.rec.Emit(&wire.User{
		Message:     wire.UserMessage{Role: "user", Content: wire.Blocks(&wire.TextBlock{Text: text})},
		IsSynthetic: true, RefusedMessageID: refused,
	})
	return nil
}

func fields(pairs ...any) map[string]json.RawMessage {
	return recorder.Fields(pairs...)
}

// echoPrompts emits prompts back to the host, just before the first answer to them.
func (c *Conversation) echoPrompts(t *turn) {
	for _, p := range t.unspoken {
		m := *p.m
		m.IsReplay, m.UUID, m.SessionID, m.Timestamp, m.Origin, m.Priority = true, p.uuid, "", "", originOf(p), ""
		if p.typed != "" {
			m.Message.Content = wire.Text(p.typed)
		}
		c.rec.Emit(&m)
	}
	t.unspoken = nil
}

// round sends one request to the model and runs the tools that it calls. It returns nil if another
// round follows.
func (c *Conversation) round(t *turn) *ending {
	if c.spent() {
		return c.overBudget()
	}
	c.offerServers()
	if err := c.compaction.MakeRoom(c.compactTurn(t)); err != nil {
		if end := c.compactEnding(t, err); end != nil {
			return end
		}
	}
	if c.spent() {
		return c.overBudget()
	}
	a, run, err := c.ask(t)
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
		return c.refused(t, err)
	}
	c.compaction.NoteAnswer()
	t.rounds++
	t.stopReason = a.stopReason
	if s := a.text(); s != "" {
		t.lastText, t.shownText = s, a.shownText()
	}
	if c.spent() {
		run.Abandon()
		if err := c.answerUnrunCalls(a); err != nil {
			return c.broken(err)
		}
		return c.overBudget()
	}
	if len(run.Calls) == 0 {
		return c.finishOrContinue(t, a)
	}
	if end := c.collect(t, a, run); end != nil {
		return end
	}
	if !a.complete {
		// The stream broke after the call. The call has run, and the model continues from its
		// result.
		c.rec.Emit(c.synthetic("API Error: the connection was lost in the middle of the answer; what is above may be incomplete.",
			syntheticError{code: wire.ErrorServer, apiError: "connection_failed", stopReason: "tool_use"}))
	}
	if c.set.maxTurns > 0 && t.rounds >= c.set.maxTurns {
		return &ending{subtype: "error_max_turns", reason: "max_turns", isError: true,
			errors: []string{fmt.Sprintf("Reached maximum number of turns (%d)", c.set.maxTurns)}}
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
		c.echoPrompts(t)
		c.lifecycle(p, "started")
		t.first.named = t.first.named && p.m.UUID == ""
	}
	return nil
}

func (c *Conversation) overBudget() *ending {
	return &ending{subtype: "error_max_budget_usd", reason: "budget_exhausted", isError: true,
		errors: []string{fmt.Sprintf("Reached maximum budget ($%s)", dollars(c.cfg.MaxBudget))}}
}

// dollars formats nano-dollars as a decimal number.
func dollars(nano int64) string {
	s := fmt.Sprintf("%d.%09d", nano/1e9, nano%1e9)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// finishOrContinue ends a turn whose answer calls no tool, unless there is a reason to continue.
func (c *Conversation) finishOrContinue(t *turn, a *answer) *ending {
	goOn := func(text string) *ending {
		if err := c.nudge(t, text, ""); err != nil {
			return c.broken(err)
		}
		return nil
	}
	switch {
	case !a.complete:
		if t.continued++; t.continued <= 3 {
			return goOn("Your answer above was cut off by a failure of the connection. Go on where it stopped; do not repeat it.")
		}
	case a.stopReason == "max_tokens", a.stopReason == "model_context_window_exceeded":
		if t.continued++; t.continued <= 3 {
			return goOn("Your answer reached the limit of its length. Go on exactly where it stopped, in smaller pieces.")
		}
	case a.stopReason == "pause_turn":
		if t.continued++; t.continued <= 10 {
			c.hist.GoOn()
			return nil
		}
	case a.stopReason == "refusal":
		told := "The model declined to answer, or a safety check stopped its answer."
		c.refusals++
		if t.refusals++; t.refusals <= 1 {
			told += " It is asked once more, and told so."
		}
		c.rec.Emit(&wire.Informational{Content: told, Level: "notice"})
		if t.refusals <= 1 {
			if err := c.nudge(t, "A safety check stopped your answer above; no tool and no connection failed. What came after it is lost, and calls in it that were not complete did not run. Do not write it again in other words: go on without it, or say what you cannot help with.", a.id); err != nil {
				return c.broken(err)
			}
			return nil
		}
	case a.empty():
		if t.nudges++; t.nudges <= 1 {
			return goOn("Your answer was empty. Answer the prompt, or say why you cannot.")
		}
	}
	if c.set.jsonSchema != nil {
		if form := c.form(); form != nil {
			if value := form.inText(a.text()); value != nil {
				t.structured = value
				c.stopHooks(t, t.lastText)
				return &ending{reason: "completed", text: compactJSON(value)}
			}
		}
		if t.enforced == 0 {
			end := goOn("[structured-output-enforce] Give the answer by calling the StructuredOutput tool with a value that fits its schema.")
			if end == nil {
				c.stopHooks(t, t.lastText) // the turn continues in any case
			}
			t.enforced++
			return end
		}
		return &ending{subtype: "error_max_structured_output_retries", reason: "structured_output_retry_exhausted", isError: true,
			errors: []string{"The model answered with text and never called StructuredOutput."}}
	}
	more, added, stopped := c.stopHooks(t, t.lastText)
	end := &ending{reason: "completed", text: t.shownText}
	if stopped {
		end.reason = "stop_hook_prevented"
		return end
	}
	if more == "" && added == nil {
		return end
	}
	if t.stops++; t.stops > maxStops {
		return end
	}
	for _, text := range added {
		if err := c.inform(text); err != nil {
			return c.broken(err)
		}
	}
	if more == "" {
		return nil
	}
	end = goOn("Stop hook feedback:\n" + more)
	if t.stops == 1 {
		c.rec.Emit(&wire.Notification{Key: "stop-hook-error", Text: more, Priority: "immediate"})
	}
	return end
}

// maxStops limits how often Stop hooks may continue a turn.
const maxStops = 20

// collect waits for the tools of an answer and emits each result when its call ends. The next
// request contains them in the order of the calls.
func (c *Conversation) collect(t *turn, a *answer, run *call.Batch) *ending {
	run.Release()
	results := make([]json.RawMessage, len(run.Calls)) // nil: not emitted
	outs := make([]*call.Outcome, len(run.Calls))
	var more, follow []string
	var nested []*project.File
	var end *ending
	stopped := false
	for range run.Calls {
		i := c.awaitEnd(run)
		tc := run.Calls[i]
		out := c.awaitStop(tc)
		if t.ctx.Err() == nil {
			c.tasks.Report()
		}
		out = cmp.Or(tc.Posted, out)
		if !tc.ReadOnly() {
			await(context.Background(), &c.owner, c.tasks.Reports.None()) // a task is reported before the result of its call
		}
		if t.ctx.Err() != nil && !out.Finished && !out.Stopped {
			denied := out.Denied
			out = call.Rejected(tc, out.Input, call.StoppedBefore)
			out.Denied = denied
		}
		tc.Told = true
		raw, err := c.emitResult(t, tc, out)
		if err != nil {
			run.Abandon()
			c.hist.Add("user", slices.DeleteFunc(results, func(r json.RawMessage) bool { return r == nil })...)
			return c.broken(err)
		}
		results[i], outs[i] = raw, out
		if used, ok := out.Result.Structured.(*skill.Output); ok {
			c.grant(c.projectCommand(used.CommandName))
		}
		stopped = stopped || out.Stop
		if out.Interrupt {
			t.cancel(errInterrupted)
		}
	}
	c.batch = nil
	for i, out := range outs {
		more = append(more, out.Context...)
		nested = append(nested, out.Nested...)
		follow = append(follow, out.Result.Follow...)
		if e := t.outcomeEnding(run.Calls[i], out); end == nil {
			end = e
		}
	}
	c.hist.Add("user", results...)
	for _, s := range follow {
		if err := c.nudge(t, s, ""); err != nil {
			return c.broken(err)
		}
	}
	if len(nested) > 0 {
		if err := c.sendNested(nested); err != nil {
			return c.broken(err)
		}
	}
	if t.ctx.Err() == nil && end == nil {
		batch, stop := c.batchHooks(t, run)
		more, stopped = append(more, batch...), stopped || stop
	}
	for _, s := range more {
		if err := c.inform(s); err != nil {
			return c.broken(err)
		}
	}
	if cause := context.Cause(t.ctx); cause != nil {
		return c.interrupted(t, "[Request interrupted by user for tool use]", "aborted_tools", cause)
	}
	if stopped {
		return &ending{reason: "hook_stopped"}
	}
	if end != nil && end.reason == "completed" { // the answer has the required form
		c.stopHooks(t, a.text()) // they cannot continue the turn: nothing can be added to it
	}
	return end
}

// awaitEnd waits until a call without a result ends or must stop, and serves the conversation
// meanwhile. It returns the index of the call: the first, if there are several.
func (c *Conversation) awaitEnd(run *call.Batch) int {
	open := func(tc *call.Call) bool { return !tc.Told }
	for {
		i, hold := run.Ready()
		if i >= 0 {
			// A call that waited for an earlier one may have ended since the earlier one was
			// checked.
			for before := -1; i != before; {
				before = i
				i, _ = run.Ready()
			}
			return i
		}
		first := run.Calls[slices.IndexFunc(run.Calls, open)]
		ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(hold, heartbeat))
		if _, ended := await(ctx, &c.owner, run.Ended); !ended && hold == 0 {
			c.rec.Emit(&wire.ToolProgress{ToolUseID: fmt.Sprintf("%s-heartbeat-%d", first.ID, first.Beats), ToolName: first.Name, ParentToolUseID: first.ID,
				ElapsedTimeSeconds: c.runner.Now().Sub(first.Began).Round(time.Second).Seconds(), Heartbeat: true})
			first.Beats++
		}
		cancel()
	}
}

// awaitStop waits for a call whose context has ended. A call that does not stop in time is
// abandoned.
func (c *Conversation) awaitStop(tc *call.Call) *call.Outcome {
	ctx, cancel := context.WithTimeout(context.Background(), c.crew.Grace())
	defer cancel()
	if _, done := await(ctx, &c.owner, tc.Done); !done {
		c.runner.Log.Warn("a tool does not stop", "tool", tc.Name)
		return call.Rejected(tc, nil, call.StoppedWhile) // its real outcome is unknown
	}
	return tc.Out
}

// heartbeat is how often the progress of a long call is emitted.
const heartbeat = 30 * time.Second

// emitResult records the result of a call and emits it.
func (c *Conversation) emitResult(t *turn, tc *call.Call, out *call.Outcome) (json.RawMessage, error) {
	b := &wire.ToolResultBlock{ToolUseID: tc.ID, Content: out.Result.Content, IsError: out.Result.IsError}
	if tc.Name == "Bash" && !b.IsError && b.Content.Blocks == nil {
		// As in the official command, the result of a command always has is_error, unless it
		// contains a picture.
		b.Extra = map[string]json.RawMessage{"is_error": json.RawMessage("false")}
	}
	if b.IsError && b.Content.Text == "" && b.Content.Blocks == nil { // a denial without a reason
		b.Extra = map[string]json.RawMessage{"content": json.RawMessage(`""`)}
	}
	raw := mustJSON(b)
	structured := json.RawMessage(nil)
	if out.Result.Structured != nil {
		structured = mustJSON(out.Result.Structured)
	}
	said := userEntry(fields("sourceToolAssistantUUID", tc.UUID), raw)
	if structured != nil {
		said.Fields["toolUseResult"] = structured
	}
	if err := c.rec.Record(said); err != nil {
		return nil, err
	}
	for _, m := range out.Before {
		c.rec.Emit(m)
	}
	if out.Deferred {
		return raw, nil
	}
	if out.Denied {
		t.denials = append(t.denials, &wire.PermissionDenial{ToolName: tc.Name, ToolUseID: tc.ID, ToolInput: orEmpty(out.InputOf(tc))})
	}
	t.userLines++
	m := &wire.User{
		Message: wire.UserMessage{Role: "user", Content: wire.Blocks(b)},
		UUID:    said.UUID, ToolUseResult: structured,
	}
	if out.Meta != nil {
		m.ToolResultMeta = []*wire.ToolResultMeta{out.Meta}
	}
	c.rec.Emit(m)
	for _, m := range out.After {
		c.rec.Emit(m)
	}
	return raw, nil
}

func orEmpty(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("{}")
	}
	return raw
}

// answerUnrunCalls adds results for calls that never ran, so that the API accepts the conversation.
func (c *Conversation) answerUnrunCalls(a *answer) error {
	for _, b := range a.calls() {
		raw := mustJSON(&wire.ToolResultBlock{ToolUseID: b.id, Content: wire.Text("The call did not run: the turn ended before it."), IsError: true})
		if err := c.append(nil, raw); err != nil {
			return err
		}
	}
	return nil
}

// cutOff ends a turn that was interrupted during the model's answer.
func (c *Conversation) cutOff(t *turn, a *answer, run *call.Batch, cause error) *ending {
	if a == nil || !a.started {
		return c.interrupted(t, "[Request interrupted by user]", "aborted_streaming", cause)
	}
	if run != nil && len(run.Calls) > 0 {
		run.Abandon()
		end := c.collect(t, a, run)
		c.closeStream(a, a.open(), true)
		return end
	}
	open := a.open()
	if open != nil && open.kind == "text" && open.text.Len() > 0 {
		open.finish()
		m := c.assistantLine(a, open)
		m.Aborted = true
		if err := c.keepBlock(a, open, m.UUID, fields("isAbortedMidStream", true)); err != nil {
			return c.broken(err)
		}
		c.rec.Emit(m)
		t.lastText, t.shownText = a.text(), a.shownText()
	}
	marker := "[Request interrupted by user]"
	end := c.interrupted(t, marker, "aborted_streaming", cause)
	c.closeStream(a, open, true)
	return end
}

// interrupted returns the ending of an interrupted turn.
func (c *Conversation) interrupted(t *turn, marker, reason string, cause error) *ending {
	if errors.Is(cause, errSuperseded) {
		return &ending{reason: "aborted_streaming", text: t.shownText}
	}
	raw := mustJSON(&wire.TextBlock{Text: marker})
	said := userEntry(nil, raw)
	if err := c.rec.Record(said); err != nil {
		return c.broken(err)
	}
	c.hist.Add("user", raw)
	t.userLines++
	c.rec.Emit(&wire.User{Message: wire.UserMessage{Role: "user", Content: wire.Blocks(&wire.TextBlock{Text: marker})},
		UUID: said.UUID})
	words := "The turn was interrupted by the user."
	if !errors.Is(cause, errInterrupted) {
		words = "The turn was cut off: " + cause.Error()
	}
	return &ending{subtype: "error_during_execution", reason: reason, isError: true, errors: []string{words}}
}

// closeStream emits the final events of an answer that was interrupted or whose stream broke, if
// the host receives events. The last event has the index of the first block that is missing. open
// is the block that was not complete. A tool call among them gets no end event, because it would
// look complete.
func (c *Conversation) closeStream(a *answer, open *block, interrupted bool) {
	if !c.cfg.Partial || !a.started || a.closed {
		return
	}
	a.closed = true
	if open != nil && open.kind != "tool_use" {
		c.rec.Emit(c.streamEvent(a, mustJSON(map[string]any{"type": "content_block_stop", "index": open.index})))
	}
	if interrupted {
		c.rec.Emit(c.streamEvent(a, mustJSON(map[string]any{"type": "message_delta", "context_management": nil,
			"delta": map[string]any{"stop_reason": nil, "stop_sequence": nil, "stop_details": nil, "container": nil},
			"usage": map[string]any{
				"input_tokens": a.usage.InputTokens, "output_tokens": a.usage.OutputTokens,
				"cache_creation_input_tokens": a.usage.CacheCreationInputTokens, "cache_read_input_tokens": a.usage.CacheReadInputTokens,
				"output_tokens_details": orZero(a.usage.OutputTokensDetails), "server_tool_use": orZero(a.usage.ServerToolUse),
				"iterations": []any{}, "fallback_credit": nil,
			}})))
	}
	blocks := len(a.blocks)
	if a.open() != nil {
		blocks--
	}
	stop := c.streamEvent(a, json.RawMessage(`{"type":"message_stop"}`))
	stop.Extra = fields("abandoned_blocks", map[string]any{"api_message_id": a.id, "from_block_index": blocks})
	c.rec.Emit(stop)
}

func orZero[T any](v *T) *T {
	if v == nil {
		v = new(T)
	}
	return v
}

// finish records and emits the result of a turn.
func (c *Conversation) finish(t *turn, end *ending) {
	c.echoPrompts(t)
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
	if c.working = c.cfg.States != "" && agentsWork(c.env.Tasks()); !c.working {
		c.state("idle")
	}
}
