package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/ledger"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// init returns the message at the start of a turn that describes the agent and its
// features.
func (c *Conversation) init(t *turn) *wire.Init {
	agents := wire.Names{}
	for _, d := range c.set.agents {
		agents = append(agents, d.Name)
	}
	m := &wire.Init{
		Cwd: c.env.Cwd(), Tools: wire.Names(c.ToolNames()), MCPServers: c.initServers(),
		Model: c.model.ID, PermissionMode: c.mode, SlashCommands: wire.Names{}, APIKeySource: c.cfg.APIKeySource,
		ClaudeCodeVersion: c.cfg.Version, OutputStyle: "default", Agents: agents, Skills: wire.Names{},
		Plugins: []*wire.InitPlugin{}, Capabilities: Capabilities(),
		TerminalSlashCommands: wire.Names{}, AdditionalDirectories: []string{}, ViewMode: "default",
		FastModeState: "off", FastModeDisabledReason: "sdk_opt_in_required",
	}
	if roots := c.Roots(); len(roots) > 0 {
		m.OriginalCwd = roots[0]
		m.AdditionalDirectories = append(m.AdditionalDirectories, roots[1:]...)
	}
	m.UserMessageUUIDs = t.uuids()
	m.Extra = map[string]json.RawMessage{
		"analytics_disabled":        json.RawMessage("true"),
		"product_feedback_disabled": json.RawMessage("true"),
		"per_turn_effort_active":    json.RawMessage("false"),
		"ultrathink_available":      json.RawMessage("false"),
		"ultrathink_typed_raises":   json.RawMessage("false"),
	}
	if c.env.Sandbox != nil {
		m.Extra["sandbox"] = mustJSON(c.env.Sandbox.Report())
	}
	for _, cmd := range c.Commands() {
		m.SlashCommands = append(m.SlashCommands, cmd.Name)
	}
	c.initContext(m)
	maps.Copy(m.Extra, c.initExtra)
	if unseen := c.unseen(c.tools); len(unseen) > 0 {
		m.Extra["callback_never_sees"] = mustJSON(unseen)
	}
	if c.cfg.OwnVersion != "" {
		m.Extra["parley_version"] = mustJSON(c.cfg.OwnVersion)
	}
	return m
}

// Capabilities are the features that hosts may rely on.
func Capabilities() []string {
	return []string{"interrupt_receipt_v1", "interrupt_cancel_queued_v1", "msg_lifecycle_v1"}
}

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
	if end.noTurns {
		r.NumTurns = 0
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
		if end.status == 0 && !end.blocked && end.localCommand == "" {
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
	if end.subtype == "" && !end.isError {
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
}

// synthetic returns a message in place of the assistant's that no model wrote.
func (c *Conversation) synthetic(text string, e syntheticError) *wire.Assistant {
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
		Error:     e.code, IsAPIError: e.code != "", APIErrorStatus: e.status, APIErrorType: e.apiType, APIError: e.apiError,
	}
	if stop == "stop_sequence" {
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

// systemPrompt returns the system prompt in parts.
func (c *Conversation) systemPrompt() []string {
	var parts []string
	given := strings.TrimSpace(strings.Join(c.set.systemPrompt, "")) != ""
	if def := c.set.agent; def != nil && !given {
		parts = append(parts, def.Prompt, c.surroundings(c.Roots()))
		if def.Reminder != "" {
			parts = append(parts, def.Reminder)
		}
	} else if c.set.systemPrompt != nil {
		for _, s := range c.set.systemPrompt {
			if strings.TrimSpace(s) != "" {
				parts = append(parts, s)
			}
		}
		if c.sub == nil { // otherwise the prompt of the subagent contains it
			parts = append(parts, c.surroundings(c.Roots()))
		}
	} else {
		parts = append(parts, basePrompt, c.surroundings(c.Roots()))
	}
	if s := c.style(); s != nil {
		parts = append(parts, "# Output style: "+s.Name+"\n\n"+s.Text)
	}
	if s := c.set.appendPrompt; s != "" {
		parts = append(parts, s)
	}
	return parts
}

// keyOfPrompt returns a hash of the sources of the system prompt, except the date and
// the version.
func (c *Conversation) keyOfPrompt() string {
	of := []any{c.set.systemPrompt, c.set.appendPrompt, c.Roots(), c.cfg.Platform, c.model.ID}
	if c.set.agent != nil {
		of = append(of, c.set.agent.Prompt, c.set.agent.Reminder)
	}
	if s := c.style(); s != nil {
		of = append(of, s.Text)
	}
	sum := sha256.Sum256(mustJSON(of))
	return hex.EncodeToString(sum[:16])
}

// surroundings describes the working environment to the model.
func (c *Conversation) surroundings(roots []string) string {
	var b strings.Builder
	b.WriteString("# Where you work\n\n")
	if len(roots) > 0 {
		b.WriteString("- Working directory: " + roots[0] + "\n")
	}
	for _, d := range roots[min(1, len(roots)):] {
		b.WriteString("- Another directory you may work in: " + d + "\n")
	}
	if c.cfg.Platform != "" {
		b.WriteString("- Platform: " + c.cfg.Platform + "\n")
	}
	b.WriteString("- Date: " + c.runner.Now().Format("2006-01-02") + "\n")
	b.WriteString("- Model: " + c.model.ID + "\n")
	return b.String()
}
