package engine

import (
	"encoding/json"
	"time"

	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/ledger"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// uuids returns the uuids that the host gave its prompts.
func (t *turn) uuids() []string {
	var ids []string
	for _, p := range t.prompts {
		if p.m.UUID != "" {
			ids = append(ids, p.m.UUID)
		}
	}
	return ids
}

func firstOf(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return ids[0]
}

// result returns the last message of a turn.
func (c *Conversation) result(t *turn, end *ending) *wire.Result {
	ids := t.uuids()
	stops, index, queued := c.refusals, c.results, len(c.inbox)
	usage := c.ledger.TurnUsage()
	r := &wire.Result{
		Subtype: "success", IsError: end.isError,
		TerminalReason: end.reason, StopReason: t.stopReason, NumTurns: 1 + t.userLines, ResultIndex: &index,
		DurationMS: c.runner.Now().Sub(t.began).Milliseconds(), DurationAPIMS: t.apiTime.Milliseconds(),
		TotalCostUSD: c.ledger.TotalUSD(), Usage: usage, ModelUsage: c.ledger.ModelUsage(),
		ModelUsageSinceLastResult: c.ledger.TakeModelUsage(),
		PermissionDenials:         t.denials, DeferredToolUse: t.deferred, StructuredOutput: t.structured,
		APIErrorStatus: end.status, APIErrorType: end.apiType, APIError: end.apiError,
		QueuedTurnCount: &queued, UserMessageUUID: firstOf(ids), UserMessageUUIDs: ids,
		FastModeState: "off", FastModeDisabledReason: "sdk_opt_in_required", SafetyStops: &stops,
		SubagentStats: c.crew.Top.Stats.JSON(), Origin: originOf(t.prompts[0]),
	}
	if r.PermissionDenials == nil {
		r.PermissionDenials = []*wire.PermissionDenial{}
	}
	switch {
	case end.noTurns:
		r.NumTurns = 0
	case end.reason == "max_turns":
		r.NumTurns = max(c.maxTurns, 1) + 1 // the turn that did not begin counts, parallel calls do not
	}
	r.LocalCommand = end.localCommand
	if end.subtype != "" {
		r.Subtype, r.Errors = end.subtype, end.errors
	} else {
		r.Result = end.text
		r.Extra = map[string]json.RawMessage{}
		if end.text == "" {
			r.Extra["result"] = json.RawMessage(`""`)
		}
		if end.status == 0 && !end.noTurns && !end.local && end.localCommand == "" && t.deferred == nil {
			r.Extra["api_error_status"] = json.RawMessage("null")
		}
	}
	ms := func(at time.Time) *int64 {
		if at.IsZero() {
			return nil
		}
		n := at.Sub(t.began).Milliseconds()
		return &n
	}
	if end.subtype == "" && !end.isError && t.deferred == nil {
		r.TimeToRequestMS = ms(t.first.sent)
		if len(ids) > 0 && t.prompts[0].m.UUID != "" && t.first.usage != nil {
			sent, tokens, cached := t.first.sent.UnixMilli(), history.InputTokens(t.first.usage), t.first.usage.CacheReadInputTokens
			r.RequestSentWallMS, r.FirstRequestInputTokens, r.FirstRequestCacheReadInputToken = &sent, &tokens, &cached
		}
		r.TTFTMS, r.TTFTStreamMS, r.FirstContentFrameMS = ms(t.first.token), ms(t.first.token), ms(t.first.token)
	}
	return r
}

// A syntheticError describes the failure behind a message that no model wrote.
type syntheticError struct {
	code       wire.AssistantError
	status     int
	apiType    string
	apiError   string
	requestID  string
	stopReason string
	cut        string // the limit that cut off an answer
	refusedID  string // of the answer that was a refusal
}

// synthetic returns a message in place of the assistant's that no model wrote.
func synthetic(text string, e syntheticError) *wire.Assistant {
	stop := e.stopReason
	if stop == "" {
		stop = "stop_sequence"
	}
	m := &wire.Assistant{
		Message: wire.APIMessage{ID: session.NewID(), Type: "message", Role: "assistant", Model: "<synthetic>",
			Content: wire.Blocks(&wire.TextBlock{Text: text}), StopReason: stop,
			Usage:             unknownUsage(),
			ContextManagement: json.RawMessage("null"), Container: json.RawMessage("null"),
			Diagnostics: json.RawMessage("null"), StopDetails: json.RawMessage("null")},
		RequestID: e.requestID,
		Error:     e.code, IsAPIError: e.code != "" || e.apiError != "", APIErrorStatus: e.status, APIErrorType: e.apiType, APIError: e.apiError,
	}
	switch {
	case e.cut != "":
		m.Extra = map[string]json.RawMessage{"api_error_params": mustJSON(map[string]string{"cut": e.cut})}
	case e.refusedID != "":
		m.Extra = map[string]json.RawMessage{"refused_message_id": mustJSON(e.refusedID)}
	}
	if stop == "stop_sequence" || stop == "refusal" {
		m.Message.Extra = map[string]json.RawMessage{"stop_sequence": json.RawMessage(`""`)}
	}
	return m
}

// NoUsage returns the usage of a result before any request.
func NoUsage() *wire.Usage { return ledger.Full(&wire.Usage{}) }

// unknownUsage returns the usage of a message that no model wrote: its counts are zero,
// its other members are null.
func unknownUsage() *wire.Usage {
	u := &wire.Usage{ServerToolUse: &wire.ServerToolUsage{}, CacheCreation: &wire.CacheCreation{}}
	null := json.RawMessage("null")
	u.Iterations, u.FallbackCredit = null, null
	u.Extra = map[string]json.RawMessage{"output_tokens_details": null, "service_tier": null, "inference_geo": null, "speed": null}
	return u
}
