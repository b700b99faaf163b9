// Package compact makes a conversation smaller that outgrows the model's window, in two steps. It
// first removes old results of tools, if that is enough. Otherwise the model writes a summary. The
// request for it repeats the previous one and adds one message, so that nearly all of it is read
// from the cache. The summary replaces the messages that it covers. Prompts without an answer are
// kept after the summary.
package compact

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/hook"
	"github.com/parley-go/parley/engine/internal/ask"
	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/todowrite"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

const (
	maxFails   = 3 // failures in a row after which automatic compaction is disabled
	maxVain    = 3 // compactions in a row that made room for no more than one answer
	maxShrinks = 6 // how often a request for a summary is made smaller
	maxRecover = 3 // how often in one turn room is made because the API rejected a request
)

// Triggers of a compaction, as the protocol names them.
const (
	Auto   = "auto"
	Manual = "manual"
)

var errNothingToCompact = errors.New("there is nothing to compact: the conversation is a single exchange")

// Blocked is the error of a compaction that a PreCompact hook does not allow.
type Blocked struct{ Reason string }

// Error returns the reason of the hook.
func (b *Blocked) Error() string { return "Compaction was blocked by a PreCompact hook: " + b.Reason }

// Limits configure when a conversation is compacted.
type Limits struct {
	Window int64 // tokens of the model's window
	At     int64 // tokens at which the conversation is compacted
	Auto   bool  // compact without a request
}

// A Compactor compacts one conversation. It belongs to the goroutine that owns the conversation.
// The exported fields are set before it is used.
type Compactor struct {
	Hist    *history.History
	Rec     *recorder.Recorder
	Env     *tool.Env
	Log     *slog.Logger
	Now     func() time.Time
	View    func() *call.View
	Serve   func(f func())         // runs f in another goroutine while the owner serves others, and waits for it
	Limits  func() Limits          // returns the current limits
	HasTool func(name string) bool // reports whether the model has a tool
	Path    func() string          // of the log of the session; empty if there is none

	state
}

// state is the state of the compactions of a session.
type state struct {
	trail     []trailing // the user's records since the last answer
	dropped   int64      // tokens that compactions have saved
	made      bool       // there was a compaction
	answers   int        // answers since the last compaction
	vain      int        // compactions in a row that made little room
	failed    int        // failed compactions in a row
	gaveUp    bool       // automatic compaction is disabled
	recovered int        // how often room was made in this turn because a request did not fit
}

// A trailing is a record with the role of the user after the last answer.
type trailing struct {
	uuid   string
	blocks int // number of blocks in the record
}

// A Turn is the turn in which a conversation is compacted.
type Turn struct {
	Ctx context.Context
	// Hooks runs the hooks of an event. It returns no answers if the turn has ended.
	Hooks func(in wire.HookInput, subject string) *hook.Verdict
	// Ask sends a conversation to the model. Temporary failures are retried.
	Ask func(of history.Transcript, noTools bool) (Reply, error)
	// Replaced is called after the summary has replaced the conversation.
	Replaced func()
	// EmitInit and EmitUser send messages to the host.
	EmitInit func()
	EmitUser func(*wire.User)
	// SendContext sends the model the context that a session starts with.
	SendContext func() error
	// SessionHooks runs the hooks for the start of a session and returns their texts for the model.
	SessionHooks func() []string
	// Inform sends the model a text that is not from the user.
	Inform func(text string) error
}

// A Reply is the model's answer to a request for a summary.
type Reply struct {
	Text    string
	Refused bool
	Called  bool // the model calls tools instead
}

// Reset clears the state for another session.
func (c *Compactor) Reset() { c.state = state{} }

// BeginTurn is called when a turn begins.
func (c *Compactor) BeginTurn() { c.recovered = 0 }

// NoteAnswer is called with each answer of the model.
func (c *Compactor) NoteAnswer() { c.answers++ }

// Follow tracks the records after the last answer. It is called with each record of the
// conversation.
func (c *Compactor) Follow(e *session.Entry) {
	switch {
	case e.Type == "assistant":
		if string(e.Fields["isApiErrorMessage"]) != "true" { // the model never sees an API error
			c.trail = nil
		}
	case e.Type == "user":
		_, blocks, err := history.MessageBlocks(e.Message)
		if err != nil || slices.ContainsFunc(blocks, history.IsResult) {
			c.trail = nil
			return
		}
		c.trail = append(c.trail, trailing{e.UUID, len(blocks)})
	}
}

// Restore restores the state from the record of a compaction by an earlier process.
func (c *Compactor) Restore(e *session.Entry) {
	var subtype string
	if json.Unmarshal(e.Fields["subtype"], &subtype); subtype != "compact_boundary" {
		return
	}
	var meta struct {
		Dropped int64 `json:"cumulativeDroppedTokens"`
	}
	json.Unmarshal(e.Fields["compactMetadata"], &meta)
	c.made, c.answers, c.dropped = true, 0, meta.Dropped
}

// parts returns the messages that a compaction summarizes, and those that it keeps.
func (c *Compactor) parts() (head history.Transcript, tail []json.RawMessage, kept []string) {
	n := 0
	for _, r := range c.trail {
		n += r.blocks
		kept = append(kept, r.uuid)
	}
	head, tail = c.Hist.Split(n)
	if len(tail) == 0 {
		kept = nil
	}
	return head, tail, kept
}

// prune removes old results of tools from the conversation, if that is enough; see
// [history.History.Prune]. It reports whether it did.
func (c *Compactor) prune(below int64) bool {
	saved, err := c.Hist.Prune(c.Limits().Window, below, func(e *session.Entry) error { return c.Rec.Record(e) })
	if err != nil {
		c.Log.Error("that results were taken out could not be recorded", "error", err)
	}
	if saved > 0 {
		c.Log.Info("old results of tools were taken out of the conversation", "tokens", saved)
	}
	return saved > 0
}

// MakeRoom compacts the conversation if its next request comes near the limit. The turn can
// continue after an error, because some room is left.
func (c *Compactor) MakeRoom(t Turn) error {
	limits := c.Limits()
	if !limits.Auto || c.gaveUp || c.made && c.answers == 0 || c.Hist.Tokens(&c.Hist.Transcript) < limits.At {
		return nil
	}
	head, _, _ := c.parts()
	if len(head.Messages) == 0 || c.Hist.LastRole() != "user" {
		return nil // nothing to gain, or an answer has to be continued
	}
	if c.prune(limits.At) {
		return nil
	}
	if c.made && c.answers <= 1 {
		c.vain++
	} else {
		c.vain = 0
	}
	if c.vain >= maxVain {
		c.giveUp("Automatic compaction is off: the conversation was full again right after each one.")
		return nil
	}
	return c.Replace(t, Auto, "", false)
}

// giveUp disables automatic compaction.
func (c *Compactor) giveUp(why string) {
	c.gaveUp = true
	c.Rec.Emit(&wire.Informational{Content: why + " Use /compact, or /clear to begin a new one.", Level: "warning"})
}

// Recover makes room after a request did not fit, with the error err. If rest is nil, there is room
// now; otherwise rest is the error to report. failed is the error of a failed compaction.
func (c *Compactor) Recover(t Turn, err error) (failed, rest error) {
	over := ask.Overflowed(err)
	switch head, _, _ := c.parts(); {
	case !c.Limits().Auto:
		return nil, err
	case len(head.Messages) == 0:
		if over.Local {
			c.emitBegin(Auto)
			c.emitEnd("too_few_groups")
		}
		over.Why = errNothingToCompact
		return nil, over
	}
	if c.recovered++; c.recovered > maxRecover {
		over.Why = errors.New("it was compacted, and is too long again")
		return nil, over
	}
	if c.recovered == 1 && c.prune(0) {
		return nil, nil
	}
	if failed = c.Replace(t, Auto, "", true); failed == nil {
		return nil, nil
	}
	over.Why = failed
	return failed, over
}

// emitBegin emits that a compaction starts.
func (c *Compactor) emitBegin(trigger string) {
	m := &wire.Status{Status: "compacting"}
	if trigger == Auto {
		m.CompactOutputChars = new(int64)
	}
	c.Rec.Emit(m)
}

// emitEnd emits the end of a compaction; problem is empty if it succeeded.
func (c *Compactor) emitEnd(problem string) {
	m := &wire.Status{CompactResult: "success"}
	if problem != "" {
		m.CompactResult, m.CompactError = "failed", problem
	}
	c.Rec.Emit(m)
}

// countFailure counts a failed compaction.
func (c *Compactor) countFailure(trigger string) {
	if c.failed++; trigger == Auto && c.failed >= maxFails && !c.gaveUp {
		c.giveUp(fmt.Sprintf("Automatic compaction is off: it has failed %d times.", c.failed))
	}
}

// Replace replaces the conversation by a summary. If it fails, the conversation does not change.
// tight is set if the conversation does not fit into a request.
func (c *Compactor) Replace(t Turn, trigger, instructions string, tight bool) (err error) {
	began := c.Now()
	head, tail, kept := c.parts()
	if trigger == Manual { // no prompt is waiting for an answer
		head, tail, kept = c.Hist.Clone(), nil, nil
	}
	before := c.Hist.Tokens(&c.Hist.Transcript)
	c.emitBegin(trigger)
	defer func() {
		switch {
		case err == nil:
		case context.Cause(t.Ctx) != nil:
			c.emitEnd("Compaction was interrupted.")
		default:
			problem := "Error during compaction: " + ask.Sentence(err)
			if b := new(Blocked); errors.As(err, &b) {
				problem = "skipped: " + err.Error()
			}
			c.emitEnd(problem)
			c.countFailure(trigger)
		}
	}()
	more, err := c.preHooks(t, trigger, instructions)
	if err != nil {
		return err
	}
	instructions = strings.TrimSpace(strings.Join(append([]string{instructions}, more...), "\n\n"))
	summary, err := summarize(t, head, instructions, tight)
	if err != nil {
		return err
	}
	if err := context.Cause(t.Ctx); err != nil {
		return err
	}

	next := history.Transcript{}
	text := summaryText(summary, toolsUsed(head), c.Path(), len(tail) > 0)
	next.Add("user", recorder.JSON(&wire.TextBlock{Text: text}))
	said := &session.Entry{Type: "user", Fields: recorder.Fields("isCompactSummary", true, "isVisibleInTranscriptOnly", true),
		Message: recorder.JSON(map[string]any{"role": "user", "content": text})}
	if todos := todowrite.Of(c.Env); len(todos) > 0 {
		said.Fields[todosField] = recorder.JSON(todos)
	}
	boundary := &session.Entry{Type: "system", Fields: recorder.Fields("subtype", "compact_boundary", "content", "Conversation compacted", "level", "info")}
	entries := []*session.Entry{boundary, said}
	for _, text := range c.shownAgain(t, head) {
		raw := recorder.JSON(&wire.TextBlock{Text: history.Reminder(text)})
		next.Add("user", raw)
		entries = append(entries, &session.Entry{Type: "user", Fields: recorder.Fields("isMeta", true),
			Message: recorder.JSON(map[string]any{"role": "user", "content": []json.RawMessage{raw}})})
	}
	if err := context.Cause(t.Ctx); err != nil {
		return err
	}
	next.Add("user", tail...)
	c.Rec.Identify(entries...)

	after := int64(c.Hist.Bytes(&next)) / 4
	dropped := c.dropped + max(0, before-after)
	took := c.Now().Sub(began).Milliseconds()
	meta := wire.CompactMetadata{Trigger: trigger, PreTokens: before, PostTokens: &after, CumulativeDroppedTokens: &dropped, DurationMS: &took}
	recorded := map[string]any{"trigger": trigger, "preTokens": before, "postTokens": after, "cumulativeDroppedTokens": dropped, "durationMs": took}
	if len(kept) > 0 {
		first, last, anchor := kept[0], kept[len(kept)-1], entries[len(entries)-1].UUID
		meta.PreservedSegment = recorder.JSON(map[string]string{"head_uuid": first, "anchor_uuid": anchor, "tail_uuid": last})
		meta.PreservedMessages = recorder.JSON(map[string]any{"anchor_uuid": anchor, "uuids": kept, "all_uuids": kept})
		recorded["preservedSegment"] = map[string]string{"headUuid": first, "anchorUuid": anchor, "tailUuid": last}
		recorded["preservedMessages"] = map[string]any{"anchorUuid": anchor, "uuids": kept, "allUuids": kept}
	}
	boundary.Fields["compactMetadata"] = recorder.JSON(recorded)
	was, trail := c.Rec.Parent(), c.trail
	if was != "" {
		boundary.Fields["logicalParentUuid"] = recorder.JSON(was)
	}
	c.trail = nil
	if err := c.Rec.Replace(entries...); err != nil {
		c.trail = trail
		return err
	}
	if len(kept) > 0 {
		c.trail = append(c.trail, trail...)
	}
	c.Hist.SetMessages(next)
	c.dropped, c.made, c.answers, c.failed = dropped, true, 0, 0
	t.Replaced()
	texts := append(t.SessionHooks(), t.Hooks(&wire.PostCompactInput{Trigger: trigger, CompactSummary: summary}, trigger).ForModel(hook.Above)...)

	c.emitEnd("")
	if trigger == Manual {
		t.EmitInit()
	}
	c.Rec.Emit(&wire.CompactBoundary{Metadata: meta, LogicalParentUUID: was, UUID: boundary.UUID})
	m := &wire.User{Message: wire.UserMessage{Role: "user", Content: wire.Blocks(&wire.TextBlock{Text: text})},
		UUID: said.UUID, IsSynthetic: true}
	if trigger == Manual {
		m.Message.Content = wire.Text(text)
		m.Extra = map[string]json.RawMessage{"isReplay": json.RawMessage("false")}
	}
	t.EmitUser(m)
	if trigger == Auto { // the context of the session's start
		if err := t.SendContext(); err != nil {
			return err
		}
	}
	for _, text := range texts {
		if err := t.Inform(text); err != nil {
			return err
		}
	}
	return nil
}

// preHooks runs the hooks before a compaction. They add instructions for the summary, or block it.
func (c *Compactor) preHooks(t Turn, trigger, instructions string) (more []string, err error) {
	v := t.Hooks(&wire.PreCompactInput{Trigger: trigger, CustomInstructions: instructions}, trigger)
	if cause := context.Cause(t.Ctx); cause != nil {
		return nil, cause
	}
	if v.Failed != nil {
		return nil, fmt.Errorf("a PreCompact hook failed, so nothing was compacted: %w", v.Failed)
	}
	if reason, blocked := v.Blocked(); blocked {
		return nil, &Blocked{strings.TrimSpace(reason)}
	}
	return v.Context, nil
}
