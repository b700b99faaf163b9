package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/project"
	"github.com/parley-go/parley/engine/tool/skill"
	"github.com/parley-go/parley/wire"
)

// finishOrContinue ends a turn whose answer calls no tool, unless there is a reason to continue.
func (c *rounds) finishOrContinue(t *turn, a *answer) *ending {
	goOn := func(text string) *ending {
		if err := c.appendAndEmitNote(t, text, ""); err != nil {
			return c.broken(err)
		}
		return nil
	}
	switch {
	case !a.complete:
		if t.continued++; t.continued <= 3 {
			return goOn("A connection failure cut off your answer above. Continue where it stopped; do not repeat it.")
		}
	case a.stopReason == "max_tokens", a.stopReason == "model_context_window_exceeded":
		if t.continued++; t.continued <= 3 {
			return goOn("Your answer reached the length limit. Continue exactly where it stopped, in smaller pieces.")
		}
		cut, text := "output_limit", fmt.Sprintf("API Error: The answer is longer than %d tokens, the limit of one answer. CLAUDE_CODE_MAX_OUTPUT_TOKENS sets this limit.", c.maxTokens())
		if a.stopReason != "max_tokens" {
			cut, text = "context_window", "API Error: The conversation has reached the end of the model's context window."
		}
		return c.failTurn(t, &ending{reason: "api_error", text: text}, syntheticError{code: wire.ErrorMaxOutputTokens, apiError: "max_output_tokens", cut: cut})
	case a.stopReason == "pause_turn":
		if t.continued++; t.continued <= 10 {
			c.hist.GoOn()
			return nil
		}
	case a.stopReason == "refusal":
		c.current.refusals++
		if t.refusals++; t.refusals <= 1 {
			c.rec.Emit(&wire.Informational{Content: "The model declined to answer, or a safety check stopped its answer. Parley asks it once more and mentions the refusal.", Level: "notice"})
			if err := c.appendAndEmitNote(t, "A safety check stopped your answer above; no tool and no connection failed. The rest of the answer is lost, and its incomplete calls did not run. Do not rephrase it: continue without it, or say what you cannot help with.", a.id); err != nil {
				return c.broken(err)
			}
			return nil
		}
		return c.endDeclined(t, a)
	case a.stopReason == "tool_use":
		if t.unparsed++; t.unparsed <= 2 {
			return goOn("Your answer announced a tool call but contains none. Make the call now.")
		}
		const failed = "malformed_tool_use_exhausted"
		return c.failTurn(t, &ending{reason: failed, text: "API Error: The model announced a tool call and made none, three times in a row."}, syntheticError{apiError: failed})
	case a.empty():
		if t.nudges++; t.nudges <= 1 {
			return goOn("Your answer was empty. Answer the prompt, or say why you cannot.")
		}
	}
	if form := c.form(); form != nil {
		if value := form.inText(a.text()); value != nil {
			t.structured = value
			c.stopHooks(t, t.lastText)
			return &ending{reason: "completed", text: compactJSON(value)}
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
	if more == nil && added == nil {
		return end
	}
	if t.stops++; int64(t.stops) > cmp.Or(c.cfg.Tuning.StopBlocks, maxStops) {
		text := fmt.Sprintf("Stop hooks have continued the turn %d times in a row. The turn ends now. A hook can see in stop_hook_active that it has continued the turn. CLAUDE_CODE_STOP_HOOK_BLOCK_CAP sets the limit.", t.stops-1)
		c.rec.Emit(&wire.Informational{Content: text, Level: "warning"})
		c.rec.Emit(&wire.Notification{Key: "stop-hook-block-cap", Text: text, Priority: "high", Color: "warning"})
		return end
	}
	for _, text := range added {
		if err := c.appendNote(text); err != nil {
			return c.broken(err)
		}
	}
	for _, reason := range more {
		if end := goOn("Stop hook feedback:\n" + reason); end != nil {
			return end
		}
	}
	if more != nil && t.stops == 1 {
		c.rec.Emit(&wire.Notification{Key: "stop-hook-error", Text: more[0], Priority: "immediate"})
	}
	return nil
}

// endDeclined ends a turn whose prompt the model has refused twice.
func (c *rounds) endDeclined(t *turn, a *answer) *ending {
	var why struct{ Category, Explanation *string }
	json.Unmarshal(a.stopDetails, &why)
	m := &wire.ModelRefusalNoFallback{OriginalModel: c.model.ID, RequestID: a.requestID, RefusedUserMessageUUID: t.prompts[0].uuid,
		Open: wire.Open{Extra: map[string]json.RawMessage{"api_refusal_category": mustJSON(why.Category), "api_refusal_explanation": mustJSON(why.Explanation), "content": json.RawMessage(`""`)}}}
	c.rec.Emit(m)
	text := "API Error: The model declined to answer twice. Change the prompt, or start a new session."
	if why.Explanation != nil {
		text += " " + *why.Explanation
	}
	return c.failTurn(t, &ending{reason: "api_error", text: text + "\n\nRequest ID: " + a.requestID + "\n\nMessage ID: " + a.id},
		syntheticError{code: wire.ErrorInvalidRequest, requestID: a.requestID, stopReason: "refusal", refusedID: a.id})
}

// collectResults waits for the tools of an answer and emits each result when its call ends. The next
// request contains them in the order of the calls.
func (c *rounds) collectResults(t *turn, a *answer, run *call.Batch) *ending {
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
			c.watch.Report()
		}
		out = cmp.Or(tc.Posted, out)
		if !tc.ReadOnly() {
			await(context.Background(), c.owner, c.watch.Reports.None()) // a task is reported before the result of its call
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
			c.briefing.addCommandRules(c.briefing.projectCommand(used.CommandName))
		}
		stopped = stopped || out.Stop
		if out.Interrupt {
			t.cancel(errInterrupted)
		}
	}
	c.current.batch = nil
	for i, out := range outs {
		more = append(more, out.Context...)
		nested = append(nested, out.Nested...)
		follow = append(follow, out.Result.Follow...)
		if e := t.outcomeEnding(run.Calls[i], out); end == nil || e != nil && out.Value != nil { // the last value is the answer
			end = e
		}
	}
	c.hist.Add("user", results...)
	for _, s := range follow {
		if err := c.appendAndEmitNote(t, s, ""); err != nil {
			return c.broken(err)
		}
	}
	if len(nested) > 0 {
		if err := c.briefing.sendNested(nested); err != nil {
			return c.broken(err)
		}
	}
	if t.ctx.Err() == nil && end == nil {
		batch, stop := c.batchHooks(t, run)
		more, stopped = append(more, batch...), stopped || stop
	}
	for _, s := range more {
		if err := c.appendNote(s); err != nil {
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
func (c *rounds) awaitEnd(run *call.Batch) int {
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
		if _, ended := await(ctx, c.owner, run.Ended); !ended && hold == 0 {
			c.rec.Emit(&wire.ToolProgress{ToolUseID: fmt.Sprintf("%s-heartbeat-%d", first.ID, first.Beats), ToolName: first.Name, ParentToolUseID: first.ID,
				ElapsedTimeSeconds: c.runner.Now().Sub(first.Began).Round(time.Second).Seconds(), Heartbeat: true})
			first.Beats++
		}
		cancel()
	}
}

// awaitStop waits for a call whose context has ended. A call that does not stop in time is
// abandoned.
func (c *rounds) awaitStop(tc *call.Call) *call.Outcome {
	ctx, cancel := context.WithTimeout(context.Background(), c.grace())
	defer cancel()
	if !c.awaitStopped(ctx, tc) {
		return call.Rejected(tc, nil, call.StoppedWhile) // its real outcome is unknown
	}
	return tc.Out
}

// awaitStopped waits for a stopped call until ctx ends, and reports whether it has ended.
func (c *rounds) awaitStopped(ctx context.Context, tc *call.Call) bool {
	if _, done := await(ctx, c.owner, tc.Done); done {
		return true
	}
	c.runner.Log.Warn("a tool does not stop", "tool", tc.Name)
	c.runner.AddUnstopped(tc)
	return false
}

// awaitAbandoned waits for the calls that turns have abandoned, because the log, the sandbox and
// the MCP servers that they use are closed next. It gives up on calls that do not stop.
func (c *rounds) awaitAbandoned() {
	ctx, cancel := context.WithTimeout(context.Background(), c.grace())
	defer cancel()
	for _, tc := range c.runner.Abandoned() {
		c.awaitStopped(ctx, tc)
	}
}

// cutOff ends a turn that was interrupted during the model's answer.
func (c *rounds) cutOff(t *turn, a *answer, run *call.Batch, cause error) *ending {
	if a == nil || !a.started {
		return c.interrupted(t, "[Request interrupted by user]", "aborted_streaming", cause)
	}
	if run != nil && len(run.Calls) > 0 {
		run.Abandon()
		end := c.collectResults(t, a, run)
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

// maxStops is how often Stop hooks may continue a turn; see [Tuning.StopBlocks].
const maxStops = 8

// heartbeat is how often the progress of a long call is emitted.
const heartbeat = 30 * time.Second
