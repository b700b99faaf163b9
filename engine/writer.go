package engine

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/parley-go/parley/engine/internal/call"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// writer records what becomes part of the conversation, adds it to the history, and emits it if the host receives it. Its
// methods are called by the owner of the conversation.
type writer struct {
	rec  *recorder.Recorder
	hist history.History
}

// append records blocks with the role of the user and adds them to the history.
func (c *writer) append(f map[string]json.RawMessage, blocks ...json.RawMessage) error {
	if err := c.rec.Record(userEntry(f, blocks...)); err != nil {
		return err
	}
	c.hist.Add("user", blocks...)
	return nil
}

// appendNote sends the model a text that is not from the user.
func (c *writer) appendNote(text string) error {
	return c.append(fields("isMeta", true), mustJSON(&wire.TextBlock{Text: text}))
}

// appendAndEmitNote is like appendNote, and also emits the text to the host. refused is the id of the model's
// message that was refused, if any.
func (c *writer) appendAndEmitNote(t *turn, text, refused string) error {
	if err := c.appendNote(text); err != nil {
		return err
	}
	t.userLines++
	c.rec.Emit(&wire.User{
		Message:     wire.UserMessage{Role: "user", Content: wire.Blocks(&wire.TextBlock{Text: text})},
		IsSynthetic: true, RefusedMessageID: refused,
	})
	return nil
}

// emitResult records the result of a call and emits it.
func (c *writer) emitResult(t *turn, tc *call.Call, out *call.Outcome) (json.RawMessage, error) {
	b := &wire.ToolResultBlock{ToolUseID: tc.ID, Content: out.Result.Content, IsError: out.Result.IsError}
	if tc.Tool != nil && tc.Tool.Spec().Name == "Bash" && !b.IsError && b.Content.Blocks == nil {
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
func (c *writer) answerUnrunCalls(a *answer) error {
	for _, b := range a.calls() {
		raw := mustJSON(&wire.ToolResultBlock{ToolUseID: b.id, Content: wire.Text("The call did not run: the turn ended before it."), IsError: true})
		if err := c.append(nil, raw); err != nil {
			return err
		}
	}
	return nil
}

// interrupted returns the ending of an interrupted turn.
func (c *writer) interrupted(t *turn, marker, reason string, cause error) *ending {
	if errors.Is(cause, errSuperseded) {
		return &ending{reason: reason, text: t.shownText}
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

// reportBlocked ends a turn because a hook blocked its prompt. It does not repeat the prompt,
// whether or not the hook suppresses it, because the hook may protect a secret in it. With stopped
// the hook only ended the turn: the prompt stays in the conversation, and the next prompt tells
// the model why it was not answered.
func (c *writer) reportBlocked(reason, plain string, stopped bool) *ending {
	kind, told, result := "blocked_by_hook", "UserPromptSubmit operation blocked by hook:\n"+reason, "The prompt was blocked by a hook: "+reason
	if stopped {
		kind, told = "stopped_by_hook", strings.TrimSuffix("Operation stopped by hook: "+reason, ": ")
		result = told
		if err := c.appendNote(told); err != nil {
			return c.broken(err)
		}
	}
	c.rec.Emit(&wire.Informational{Content: told, Level: "warning", PreventContinuation: true,
		PromptSubmitOutcome: mustJSON(map[string]any{"kind": kind, "prompt_kept": stopped, "reason": plain})})
	return &ending{noTurns: true, text: result}
}

// unrecorded is the result of a call whose own result could not be recorded.
const unrecorded = "[The result of this call could not be recorded, so its outcome is unknown: it may have taken effect in full, in part or not at all. Find out before you repeat it.]"

// broken ends a turn because the engine itself cannot continue. Another prompt may follow, so
// every call needs a result.
func (c *writer) broken(err error) *ending {
	c.hist.CloseCalls(unrecorded)
	return &ending{subtype: "error_during_execution", isError: true, errors: []string{err.Error()}}
}

// userEntry returns a record with the role of the user.
func userEntry(f map[string]json.RawMessage, blocks ...json.RawMessage) *session.Entry {
	return &session.Entry{Type: "user", Fields: f, Message: mustJSON(map[string]any{"role": "user", "content": blocks})}
}

// keepBlock records a block and adds it to the history.
func (c *writer) keepBlock(a *answer, b *block, uuid string, more map[string]json.RawMessage) error {
	if b.kind == "text" && b.text.Len() == 0 {
		return nil // the API rejects empty text in later requests
	}
	f := fields("requestId", a.requestID, "apiBlockIndex", b.index)
	for k, v := range more {
		f[k] = v
	}
	if err := c.rec.Record(&session.Entry{Type: "assistant", UUID: uuid, Fields: f,
		Message: mustJSON(&wire.APIMessage{ID: a.id, Type: "message", Role: "assistant", Model: a.model,
			Content: wire.Blocks(decodeBlock(b.raw)), Usage: a.startUsage})}); err != nil {
		return err
	}
	c.hist.Answer(a.id, b.raw)
	return nil
}

// decodeBlock decodes a block that this package has encoded.
func decodeBlock(raw json.RawMessage) wire.Block {
	var m wire.APIMessage
	if err := json.Unmarshal(append(append([]byte(`{"role":"assistant","content":[`), raw...), "]}"...), &m); err != nil || len(m.Content.Blocks) != 1 {
		return &wire.UnknownBlock{Raw: raw}
	}
	return m.Content.Blocks[0]
}

// closeUnfinished ends a turn that was not continued. The model is informed which of
// its calls did not run, and the logged outcome of the others.
func (c *writer) closeUnfinished(u *unfinishedTurn) error {
	if u == nil {
		return nil
	}
	for _, call := range u.calls {
		_, blocks, err := history.MessageBlocks(call.answer.Message)
		if err == nil {
			err = c.rec.Record(call.answer)
		}
		if err != nil {
			return err
		}
		c.hist.Add("user", blocks...)
	}
	return nil
}
