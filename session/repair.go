package session

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

// Types of our own records. They are not part of the tree, so other programs skip them.
const (
	typeIntent  = "parley-intent"
	typeOutcome = "parley-outcome"
	typeTurn    = "parley-turn"
)

// An Effect is whether the effect of a call has happened.
type Effect int

// The known effect of a call.
const (
	EffectNone    Effect = iota // there is no intent: it did not run
	EffectUnknown               // there is an intent and no outcome: it ran once, in part, or not at all
	EffectDone                  // there is an outcome: it ended, and ran once at most
)

// String returns none, unknown or done.
func (e Effect) String() string {
	switch e {
	case EffectNone:
		return "none"
	case EffectUnknown:
		return "unknown"
	case EffectDone:
		return "done"
	}
	return "invalid"
}

// Outcomes in records.
const (
	outcomeOK     = "ok"
	outcomeFailed = "failed"
)

// Intent returns the record that a call is about to have its effect, with its input, which may
// be nil. The effect may start when Append has returned.
func Intent(toolUseID, tool string, input json.RawMessage) *Entry {
	e := &Entry{Type: typeIntent, Time: time.Now(), Fields: map[string]json.RawMessage{
		"toolUseId": quote(toolUseID), "toolName": quote(tool),
	}}
	if len(input) > 0 {
		e.Fields["input"] = input
	}
	return e
}

// Outcome returns the record that the effect of a call is complete. The content, if any, is
// that of its tool_result block: with it a call whose result was not yet recorded when the
// process died gets the true one.
func Outcome(toolUseID string, failed bool, content json.RawMessage) *Entry {
	e := &Entry{Type: typeOutcome, Time: time.Now(), Fields: map[string]json.RawMessage{
		"toolUseId": quote(toolUseID), "outcome": quote(outcomeOK),
	}}
	if failed {
		e.Fields["outcome"] = quote(outcomeFailed)
	}
	if len(content) > 0 {
		e.Fields["content"] = content
	}
	return e
}

// TurnBegan returns the record that the turn of a prompt is running, for the log that has the
// prompt under its uuid and promptId. A turn without a [TurnEnded] record was interrupted by
// the end of its process.
func TurnBegan(uuid, promptID string) *Entry {
	return &Entry{Type: typeTurn, Time: time.Now(), Fields: map[string]json.RawMessage{
		"state": quote("running"), "promptUuid": quote(uuid), "promptId": quote(promptID),
	}}
}

// TurnEnded returns the record that no turn is running any more. The result is the message that
// ends the turn for the host, which the process may not live to send. It may be nil.
func TurnEnded(result json.RawMessage) *Entry {
	e := &Entry{Type: typeTurn, Time: time.Now(), Fields: map[string]json.RawMessage{"state": quote("ended")}}
	if len(result) > 0 {
		e.Fields["result"] = result
	}
	return e
}

// TurnResult returns the message in a [TurnEnded] record. It is nil for the record of a running
// turn, or of one without a result. ok reports whether the record is about a turn at all.
func TurnResult(record json.RawMessage) (result json.RawMessage, ok bool) {
	var r struct {
		Type   string          `json:"type"`
		Result json.RawMessage `json:"result"`
	}
	if !bytes.Contains(record, []byte(typeTurn)) || json.Unmarshal(record, &r) != nil || r.Type != typeTurn {
		return nil, false
	}
	return r.Result, true
}

// Unfinished returns the prompt whose turn was running when the process that wrote the log
// died, by the uuid and the promptId of its record. They are empty if no turn was running, if
// it was interrupted, and if another prompt has followed.
func (h *History) Unfinished() (uuid, promptID string) {
	last := h.Latest[typeTurn]
	if last == nil || string(last.Fields["state"]) != `"running"` {
		return "", ""
	}
	json.Unmarshal(last.Fields["promptUuid"], &uuid)
	json.Unmarshal(last.Fields["promptId"], &promptID)
	at := slices.IndexFunc(h.Entries, func(e *Entry) bool { return e.UUID == uuid })
	if at < 0 && (len(h.Entries) == 0 || h.Entries[0].Type != typeSystem) { // and it was not compacted
		return "", ""
	}
	for _, e := range h.Entries[at+1:] {
		if e.Type != typeUser || string(e.Fields["isMeta"]) == "true" || string(e.Fields["isCompactSummary"]) == "true" {
			continue
		}
		if _, results := blockIDs(e.Message); len(results) == 0 && string(e.Fields["promptId"]) != string(last.Fields["promptId"]) {
			return "", "" // another prompt, or the marker of an interrupt
		}
	}
	return uuid, promptID
}

func quote(s string) json.RawMessage { return appendString(nil, s) }

// An effect holds the records of the log about a call.
type effect struct {
	intent  bool
	outcome string // empty if unknown
	at      span   // line of the outcome
	content json.RawMessage
}

// outcomeContent returns the content in an outcome.
func outcomeContent(line []byte) json.RawMessage {
	var record struct {
		Content json.RawMessage `json:"content"`
	}
	json.Unmarshal(line, &record)
	return record.Content
}

// Effect returns the known effect of a call in Entries.
func (h *History) Effect(toolUseID string) Effect {
	switch f := h.effects[toolUseID]; {
	case f.outcome != "":
		return EffectDone
	case f.intent:
		return EffectUnknown
	}
	return EffectNone
}

// Orphans returns the ids of the calls in Entries without a result, in order.
func (h *History) Orphans() []string {
	answered := map[string]bool{}
	for _, e := range h.Entries {
		_, results := blockIDs(e.Message)
		for _, id := range results {
			answered[id] = true
		}
	}
	var orphans []string
	for _, e := range h.Entries {
		calls, _ := blockIDs(e.Message)
		for _, id := range calls {
			if !answered[id] {
				orphans = append(orphans, id)
				answered[id] = true
			}
		}
	}
	return orphans
}

// Results of calls whose process died, for the model.
const (
	toldNone    = "[Tool call interrupted: the agent stopped before this call began. It did not run and changed nothing. Make the call again if it is still wanted.]"
	toldUnknown = "[Tool call interrupted, outcome unknown: the agent stopped while this call ran. It may have taken effect in full, in part or not at all, and it was not run again. Find out before you repeat it.]"
	toldDone    = "[Tool call interrupted: the agent stopped after this call had run to its end and before its result was kept. It took effect once. Do not repeat it.]"
	toldFailed  = "[Tool call interrupted: the agent stopped after this call had failed and before its result was kept. It may have taken effect in part or not at all, and it was not run again.]"
)

// Repair completes a conversation whose process died during calls: it adds a tool_result for
// each call that has none, and returns the new entries. A result states whether the effect
// happened: not at all, once, or unknown; if the log has the outcome with its content, the
// result is that content. Nothing is run again. The caller appends the entries to the log.
// There are none if nothing is missing.
//
// Results come right after the calls of their message, or after existing results. Only the
// calls of the last message can be repaired at the end of the log; older ones, which other
// programs may have left behind, are repaired in Entries only, and their entries are not
// returned.
func Repair(h *History) []*Entry {
	orphans := map[string]bool{}
	for _, id := range h.Orphans() {
		orphans[id] = true
	}
	if len(orphans) == 0 {
		return nil
	}
	var whole, added []*Entry
	var pending []*Entry // calls that wait for the end of their message
	flush := func(last bool) {
		for _, call := range pending {
			ids, _ := blockIDs(call.Message)
			for _, id := range ids {
				if !orphans[id] {
					continue
				}
				delete(orphans, id)
				e := h.answer(id, call)
				if last {
					e.ParentUUID = lastUUID(whole)
					added = append(added, e)
				}
				whole = append(whole, e)
			}
		}
		pending = nil
	}
	for _, e := range h.Entries {
		_, results := blockIDs(e.Message)
		isPrompt := e.Type == typeUser && len(results) == 0
		isNew := e.Type == typeAssistant && len(pending) > 0 && messageID(e.Message) != messageID(pending[0].Message)
		if isPrompt || isNew {
			flush(false)
		}
		whole = append(whole, e)
		if calls, _ := blockIDs(e.Message); len(calls) > 0 {
			pending = append(pending, e)
		}
	}
	flush(true)
	h.Entries = whole
	return added
}

// answer returns the result for a call that has none.
func (h *History) answer(id string, call *Entry) *Entry {
	text, isError := toldNone, true
	var content json.RawMessage
	switch f := h.effects[id]; h.Effect(id) {
	case EffectUnknown:
		text = toldUnknown
	case EffectDone:
		text, isError = toldDone, f.outcome != outcomeOK
		if isError {
			text = toldFailed
		}
		content = f.content
	}
	if len(content) == 0 {
		content = quote(text)
	}
	// Encoded by hand, so that the content stays as it is, byte for byte.
	message := append([]byte(`{"role":"user","content":[{"type":"tool_result","tool_use_id":`), quote(id)...)
	message = append(append(message, `,"content":`...), content...)
	message = append(strconv.AppendBool(append(message, `,"is_error":`...), isError), `}]}`...)
	return &Entry{
		Type: typeUser, UUID: NewID(), ParentUUID: call.UUID, Time: time.Now().UTC().Truncate(time.Millisecond), Message: message,
		Fields: map[string]json.RawMessage{
			"sourceToolAssistantUUID": quote(call.UUID),
			"parleyEffect":            quote(h.Effect(id).String()),
		},
	}
}

func lastUUID(entries []*Entry) string {
	if len(entries) == 0 {
		return ""
	}
	return entries[len(entries)-1].UUID
}

func messageID(message json.RawMessage) string {
	var m struct {
		ID string `json:"id"`
	}
	json.Unmarshal(message, &m)
	return m.ID
}
