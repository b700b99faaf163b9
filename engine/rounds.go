package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parley-go/parley/engine/internal/ask"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/crew"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// rounds sends requests to the model and runs the tool calls of its answers. Its methods are called by the owner of
// the conversation.
type rounds struct {
	*owner
	*writer
	*requester
	*toolset
	*hooks
	briefing *briefing
	current  *turns
	cfg      *Config
	rec      *recorder.Recorder
	runner   *call.Runner
	watch    *crew.Watch
	grace    func() time.Duration // how long a call has to stop
}

// requestAnswer sends the conversation to the model and emits its answer as it arrives. Tools
// start meanwhile. Temporary failures are retried. The answer is not nil if the model
// started one. It is incomplete if the stream broke after a block that is worth keeping; with an
// error, the model cannot continue it.
func (c *rounds) requestAnswer(t *turn) (a *answer, run *call.Batch, err error) {
	whole := false
	if c.cfg.Partial {
		c.rec.Emit(&wire.Status{Status: "requesting", UserMessageUUIDs: t.uuids()})
	}
	loop := c.retryLoop(t.ctx)
	loop.Repair = func(err error, failure *model.Error, spent bool) bool {
		if c.quarantineMedia(failure) || c.dropRefused(failure) {
			return true
		}
		// Streams keep breaking: request the answer in one piece.
		_, can := c.cfg.Model.(model.Completer)
		was := whole
		whole = whole || can && spent && ask.Broken(err)
		return whole != was
	}
	err = loop.Do(t.ctx, func() error {
		var err error
		a, run, err = c.askOnce(t, whole)
		if err == nil || t.ctx.Err() != nil {
			return nil
		}
		keep := a.worthKeeping()
		if keep && len(a.calls()) == 0 && !ask.Continuable(ask.Failure(err)) && !errors.Is(err, recorder.ErrUnwritten) {
			return ask.Final(err) // the stream is closed after the message about the failure
		}
		c.closeStream(a, a.open(), false)
		if errors.Is(err, recorder.ErrUnwritten) {
			return ask.Final(err)
		}
		if keep {
			// The complete blocks were emitted and stay. The caller handles the rest.
			c.runner.Log.Warn("the model's stream broke", "error", err)
			a.dropOpen()
			return nil
		}
		run.Abandon()
		a, run = nil, nil
		if ask.Overflowed(err) != nil {
			return ask.Final(err)
		}
		if failure := ask.Failure(err); failure.Status == http.StatusTooManyRequests {
			c.reportLimits(failure.Status, failure.Header, failure.RetryAfter)
		}
		return err
	})
	return a, run, err
}

// askOnce sends one request. If whole is set, the answer arrives in one piece.
func (c *rounds) askOnce(t *turn, whole bool) (a *answer, run *call.Batch, err error) {
	a = &answer{}
	run = c.newBatch(t)
	sent := 0 // bytes
	began := c.runner.Now()
	if t.first.sent.IsZero() {
		t.first.sent = began
	}
	parent, span := c.runner.Telemetry.Chat(t.ctx, c.cfg.Provider, c.model.ID, c.rec.ID())
	defer func() {
		a.endSpan(span, err)
		t.apiTime += c.runner.Now().Sub(began)
		c.ledger.AddAPITime(c.runner.Now().Sub(began))
		if a.started {
			usage := a.usage
			c.lastUsage = &usage
			if t.first.usage == nil {
				t.first.usage = &usage
			}
			c.bookUsage(a, c.model.ID, "answer")
			if n := history.InputTokens(&usage); n > 0 {
				c.hist.Measured(sent, n)
			}
		}
	}()

	c.runner.Effort.Store(nil)
	if level := c.Effort(); level != "" {
		c.runner.Effort.Store(&wire.HookEffort{Level: wire.Effort(level)})
	}
	req := model.Request{Body: c.body(&c.hist.Transcript, false), Header: c.header()}
	if err := c.measure(t.ctx, req, &c.hist.Transcript); err != nil {
		return a, run, err
	}
	if c.room > 0 {
		req.Body = c.body(&c.hist.Transcript, false)
	}

	sent = c.hist.Size()
	stream := ask.Open(parent, c.cfg.Model, req, c.cfg.IdleTimeout, whole, c.runner.Log)
	defer func() { a.count(stream.Close()...) }()
	for {
		it, ok := await(stream.Ctx, c.owner, stream.Items)
		switch {
		case t.ctx.Err() != nil:
			a.count(it)
			return a, run, nil
		case !ok:
			return a, run, c.completeStream(t, a, run, stream.Err(context.Cause(stream.Ctx)))
		case it.Err != nil:
			return a, run, c.completeStream(t, a, run, stream.Err(it.Err))
		case it.Response != nil:
			a.requestID = it.Response.RequestID
			if it.Response.Status < 300 { // otherwise the error carries the status
				c.reportLimits(it.Response.Status, it.Response.Header, 0)
			}
		case it.Event == nil: // the stream has ended
			return a, run, c.completeStream(t, a, run, stream.Err(io.ErrUnexpectedEOF))
		default:
			if err := ask.Failed(it.Event); err != nil {
				return a, run, err
			}
			if err := c.handleStreamEvent(t, a, run, it.Event, it.Raw); err != nil {
				return a, run, err
			}
		}
	}
}

// newBatch starts the batch of calls of an answer.
func (c *rounds) newBatch(t *turn) *call.Batch {
	c.current.batch = c.runner.NewBatch(t.ctx)
	return c.current.batch
}

// newCall returns the call for a tool_use block. uuid is that of the block's record.
func (c *rounds) newCall(t *turn, b *block, uuid string) *call.Call {
	return &call.Call{ID: b.id, Name: b.name, Input: b.input, Text: b.text.String(), Tool: c.findTool(b.name), PromptID: t.promptID, UUID: uuid}
}

// completeStream handles a stream that broke. If the stop reason was received, the
// answer is complete. Otherwise completeStream returns err.
func (c *rounds) completeStream(t *turn, a *answer, run *call.Batch, err error) error {
	if a.complete {
		return nil
	}
	if a.stopReason == "" || a.open() != nil || t.ctx.Err() != nil {
		return err
	}
	c.runner.Log.Warn("the model's stream broke behind a complete answer", "error", err)
	return c.handleStreamEvent(t, a, run, &wire.APIEvent{Type: "message_stop"}, json.RawMessage(`{"type":"message_stop"}`))
}

// handleStreamEvent handles one event of the stream: it emits and records its effects. The message of
// a block is emitted before the event that ends the block.
func (c *rounds) handleStreamEvent(t *turn, a *answer, run *call.Batch, ev *wire.APIEvent, raw json.RawMessage) error {
	b, err := a.add(ev)
	if err != nil {
		return err
	}
	if ev.Type == "message_start" && t.first.token.IsZero() {
		t.first.token = c.runner.Now()
	}
	c.reportThinking(t, a, ev)
	if use, ok := ev.ContentBlock.(*wire.ToolUseBlock); ok {
		if tl := c.findTool(use.Name); tl != nil && !tl.Spec().ReadOnly {
			c.runner.View().Env.Wall.Prepare() // while the model writes the input; a command often follows other changes
		}
	}
	if b != nil {
		t.echoPrompts(c.rec)
		if b.kind == "tool_use" {
			if tl := c.findTool(b.name); tl != nil {
				if _, foreign := tl.(*mcp.Tool); !foreign {
					b.complete(tl.Spec())
				}
			}
		}
		m := c.assistantLine(a, b)
		if !t.first.named { // only the first line names the prompts
			t.first.named = true
			m.UserMessageUUIDs = t.uuids()
			m.UserMessageUUID = firstOf(m.UserMessageUUIDs)
		}
		if err := c.keepBlock(a, b, m.UUID, nil); err != nil {
			return err
		}
		if c.display(t, b, m); !b.hidden() {
			c.rec.Emit(m)
		}
		if b.kind == "tool_use" {
			run.Start(c.newCall(t, b, m.UUID))
		}
	}
	if c.cfg.Partial && ev.Type != "ping" {
		e := a.event(raw)
		if ev.Type == "message_start" {
			e.TTFTMS = new(c.runner.Now().Sub(t.first.sent).Milliseconds())
			if !t.first.named {
				e.UserMessageUUIDs = t.uuids()
				e.UserMessageUUID = firstOf(e.UserMessageUUIDs)
			}
		}
		if isThinking(ev) {
			e.Extra = fields("thinking_display", c.thinkingDisplay())
		}
		c.rec.Emit(e)
	}
	return nil
}

// reportThinking emits how many tokens the model has spent on a thinking block: the API's
// count, or an estimate.
func (c *rounds) reportThinking(t *turn, a *answer, ev *wire.APIEvent) {
	if ev.Index == nil || *ev.Index < 0 || *ev.Index >= len(a.blocks) || a.blocks[*ev.Index].kind != "thinking" {
		return
	}
	b := a.blocks[*ev.Index]
	switch {
	case ev.Type == "content_block_start":
		b.began = c.runner.Now()
	case ev.Delta != nil && ev.Delta.Type == "thinking_delta":
		n := ev.Delta.EstimatedTokens
		if n <= 0 {
			n = int64(utf8.RuneCountInString(ev.Delta.Thinking)+2) / 4
		}
		if n == 0 {
			return
		}
		b.tokens += n
		t.echoPrompts(c.rec)
		c.rec.Emit(&wire.ThinkingTokens{EstimatedTokens: b.tokens, EstimatedTokensDelta: n, UserMessageUUID: firstOf(t.uuids())})
	}
}

// isThinking reports whether an event may belong to a thinking block.
func isThinking(ev *wire.APIEvent) bool {
	if _, ok := ev.ContentBlock.(*wire.ThinkingBlock); ok {
		return true
	}
	return ev.Type == "message_start" || ev.Delta != nil && ev.Delta.Type == "thinking_delta"
}

// assistantLine returns the message for one block. Its stop reason and usage are not
// final.
func (c *rounds) assistantLine(a *answer, b *block) *wire.Assistant {
	m := &wire.Assistant{
		Message: wire.APIMessage{ID: a.id, Type: "message", Role: "assistant", Model: a.model,
			Content: wire.Blocks(decodeBlock(b.raw)), Usage: a.startUsage, ContextManagement: json.RawMessage("null")},
		RequestID: a.requestID,
	}
	c.rec.Stamp(m)
	switch b.kind {
	case "tool_use":
		m.ToolUseMeta = c.toolUseMeta(b)
	case "thinking":
		m.ThinkingDurationMS, m.ThinkingDisplay = max(1, c.runner.Now().Sub(b.began).Milliseconds()), c.thinkingDisplay()
	}
	return m
}

// failRequest ends a turn because the model cannot be reached or rejects the request. The
// failure is emitted in place of the answer.
func (c *rounds) failRequest(t *turn, err error) *ending {
	e := ask.Failure(err)
	end := &ending{reason: "api_error", status: e.Status, apiType: e.Type}
	if e.Status == 0 && e.Type == "rate_limit_error" { // reported by the stream
		end.status = http.StatusTooManyRequests
	}
	s := syntheticError{code: wire.ErrorUnknown, status: end.status, apiType: e.Type, requestID: e.RequestID}
	lower := strings.ToLower(e.Message)
	var missing *model.CredentialsError
	large := ask.Overflowed(err)
	switch {
	case errors.As(err, &missing):
		s.code, end.text = wire.ErrorAuthentication, "Not logged in · "+missing.Message
	case errors.Is(err, model.ErrNoCredentials):
		s.code, end.text = wire.ErrorAuthentication, "Not logged in · Set ANTHROPIC_API_KEY, run \"parley auth login\", or pass --api-key. A local model needs no key (--provider openai --base-url URL), and neither does \"parley demo\"."
	case e.Status == 401 || e.Status == 403:
		s.code, end.text = wire.ErrorAuthentication, fmt.Sprintf("Failed to authenticate. API Error: %d %s", e.Status, e.Message)
		if from := c.cfg.APIKeySource; from != "" && from != "none" {
			end.text += " · The key is from " + from
		}
	case e.Status == 429:
		s.code, end.text = wire.ErrorRateLimit, "API Error: Request rejected (429) · "+e.Message
	case e.Status == 404:
		s.code, end.text = wire.ErrorModelNotFound, fmt.Sprintf("API Error: 404 %s. The model may not exist, or this key may not use it: %s", e.Message, c.model.ID)
		if name := c.cfg.Catalog.Suggest(c.model.ID); name != "" {
			end.text += ". Did you mean " + name + "?"
		}
	case e.Status == 413:
		s.code, end.reason, end.text = wire.ErrorInvalidRequest, "image_error", "API Error: 413 "+e.Message
	case large != nil && large.Local:
		s.code, end.reason, end.text = wire.ErrorInvalidRequest, "blocking_limit", large.Error()+". Start a new conversation, or take something out of this one."
	case large != nil:
		s.code, end.reason, end.text = wire.ErrorInvalidRequest, "prompt_too_long", large.Error()
	case e.Status == 400 && (strings.Contains(lower, "image exceeds") || strings.Contains(lower, "image dimensions exceed")):
		s.code, end.reason, end.text = wire.ErrorInvalidRequest, "image_error", "An image is too large: "+e.Message
	case e.Status == 400 && strings.Contains(lower, "credit balance"):
		s.code, end.text = wire.ErrorBilling, "Credit balance is too low"
	case e.Status >= 500:
		s.code, end.text = wire.ErrorServer, fmt.Sprintf("API Error: %d %s", e.Status, e.Message)
	case !ask.Continuable(e) && e.Status == 0:
		end.text = "API Error: " + e.Message
	case e.Status == 0 && e.Type != "":
		s.code, end.text = wire.ErrorServer, fmt.Sprintf("API Error: %s: %s", e.Type, e.Message)
	case e.Status == 0:
		s.code, s.apiError, end.text = wire.ErrorServer, "connection_failed", "API Error: the model could not be reached: "+e.Message
	default:
		end.text = fmt.Sprintf("API Error: %d %s", e.Status, e.Message)
	}
	return c.failTurn(t, end, s)
}

// failTurn ends a turn in a failure, which is emitted in place of an answer.
func (c *rounds) failTurn(t *turn, end *ending, s syntheticError) *ending {
	end.isError, end.apiError = true, s.apiError
	t.stopReason = cmp.Or(s.stopReason, "stop_sequence")
	t.echoPrompts(c.rec)
	m := synthetic(end.text, s)
	said := &session.Entry{Type: "assistant", Message: mustJSON(&m.Message),
		Fields: fields("isApiErrorMessage", true, "error", s.code, "apiErrorStatus", end.status)}
	if err := c.rec.Record(said); err != nil {
		return c.broken(err)
	}
	m.UUID = said.UUID
	c.rec.Emit(m)
	c.failureHooks(t, cmp.Or(s.code, wire.ErrorUnknown), end.text)
	return end
}

// closeStream emits the final events of an answer that was interrupted or whose stream broke, if
// the host receives events. The last event has the index of the first block that is missing. open
// is the block that was not complete. A tool call among them gets no end event, because it would
// look complete.
func (c *rounds) closeStream(a *answer, open *block, interrupted bool) {
	if !c.cfg.Partial || !a.started || a.closed {
		return
	}
	a.closed = true
	if open != nil && open.kind != "tool_use" {
		c.rec.Emit(a.event(mustJSON(map[string]any{"type": "content_block_stop", "index": open.index})))
	}
	if interrupted {
		c.rec.Emit(a.event(mustJSON(map[string]any{"type": "message_delta", "context_management": nil,
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
	stop := a.event(json.RawMessage(`{"type":"message_stop"}`))
	stop.Extra = fields("abandoned_blocks", map[string]any{"api_message_id": a.id, "from_block_index": blocks})
	c.rec.Emit(stop)
}

func orZero[T any](v *T) *T {
	if v == nil {
		v = new(T)
	}
	return v
}
