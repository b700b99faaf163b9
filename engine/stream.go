package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/internal/ask"
	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// An answer is one message of the model, assembled from its stream.
type answer struct {
	id, model  string
	requestID  string
	usage      wire.Usage // from message_start, updated by message_delta
	startUsage *wire.Usage
	stopReason string
	stopSeq    string
	// stopDetails explains a refusal; nil if there is no explanation.
	stopDetails json.RawMessage
	started     bool
	complete    bool // message_stop was received
	closed      bool // message_stop was emitted, or is no longer due
	blocks      []*block
}

// A block is one content block of an answer.
type block struct {
	index    int
	kind     string
	first    json.RawMessage // as in content_block_start
	text     strings.Builder // text, thinking, or the input of a tool
	sign     strings.Builder // signature of thinking
	cited    []json.RawMessage
	done     bool
	raw      json.RawMessage // set once done
	id, name string          // of a tool call
	input    json.RawMessage // of a tool call; nil if it was not JSON
	began    time.Time       // start of thinking
	tokens   int64           // estimated tokens of thinking
	shown    *string         // replacement text from hooks; nil means the text itself
}

var errStream = errors.New("the model's stream is malformed")

// add applies one event. It returns the block that the event completes, if any.
func (a *answer) add(ev *wire.APIEvent) (*block, error) {
	switch ev.Type {
	case "message_start":
		if ev.Message == nil || a.started {
			return nil, fmt.Errorf("%w: message_start", errStream)
		}
		a.started = true
		a.id, a.model = ev.Message.ID, ev.Message.Model
		if ev.Message.Usage != nil {
			a.usage = *ev.Message.Usage
			a.startUsage = ev.Message.Usage
		}
	case "content_block_start":
		if !a.started || ev.Index == nil || ev.ContentBlock == nil || *ev.Index != len(a.blocks) {
			return nil, fmt.Errorf("%w: content_block_start", errStream)
		}
		raw, err := json.Marshal(ev.ContentBlock)
		if err != nil {
			return nil, err
		}
		b := &block{index: *ev.Index, first: raw}
		switch c := ev.ContentBlock.(type) {
		case *wire.TextBlock:
			b.kind = "text"
			b.text.WriteString(c.Text)
		case *wire.ThinkingBlock:
			b.kind = "thinking"
			b.text.WriteString(c.Thinking)
			b.sign.WriteString(c.Signature)
		case *wire.ToolUseBlock:
			b.kind, b.id, b.name = "tool_use", c.ID, c.Name
			if string(c.Input) != "{}" {
				b.text.Write(c.Input)
			}
		case *wire.ServerToolUseBlock:
			b.kind, b.id, b.name = "server_tool_use", c.ID, c.Name
			if string(c.Input) != "{}" {
				b.text.Write(c.Input)
			}
		default:
			b.kind = "other"
		}
		a.blocks = append(a.blocks, b)
	case "content_block_delta":
		b := a.block(ev.Index)
		if b == nil || ev.Delta == nil {
			return nil, fmt.Errorf("%w: content_block_delta", errStream)
		}
		b.add(ev.Delta)
	case "content_block_stop":
		b := a.block(ev.Index)
		if b == nil {
			return nil, fmt.Errorf("%w: content_block_stop", errStream)
		}
		b.finish()
		return b, nil
	case "message_delta":
		if ev.Delta != nil {
			a.stopReason, a.stopSeq, a.stopDetails = ev.Delta.StopReason, ev.Delta.StopSequence, ev.Delta.Extra["stop_details"]
		}
		if ev.Usage != nil {
			a.mergeUsage(ev.Usage)
		}
	case "message_stop":
		a.complete, a.closed = true, true
	}
	return nil, nil
}

// add appends a delta to the block.
func (b *block) add(d *wire.Delta) {
	switch d.Type {
	case "text_delta":
		b.text.WriteString(d.Text)
	case "thinking_delta":
		b.text.WriteString(d.Thinking)
	case "signature_delta":
		b.sign.WriteString(d.Signature)
	case "input_json_delta":
		b.text.WriteString(d.PartialJSON)
	case "citations_delta":
		b.cited = append(b.cited, d.Extra["citation"])
	}
}

// count adds the usage of items that arrived too late to be handled, because the turn was stopped.
// The API charges for them.
func (a *answer) count(late ...ask.Item) {
	for _, it := range late {
		switch {
		case it.Response != nil:
			a.requestID = it.Response.RequestID
		case it.Event == nil:
		case it.Event.Type == "message_start" && !a.started:
			a.closed = true // its start is not emitted, so no end is due
			a.add(it.Event)
		case it.Event.Type == "message_delta" && it.Event.Usage != nil:
			a.mergeUsage(it.Event.Usage)
		}
	}
}

// mergeUsage applies the counts of message_delta, which replace earlier ones.
func (a *answer) mergeUsage(u *wire.Usage) {
	set := func(dst *int64, v int64) {
		if v != 0 {
			*dst = v
		}
	}
	set(&a.usage.InputTokens, u.InputTokens)
	set(&a.usage.OutputTokens, u.OutputTokens)
	set(&a.usage.CacheCreationInputTokens, u.CacheCreationInputTokens)
	set(&a.usage.CacheReadInputTokens, u.CacheReadInputTokens)
	if u.OutputTokensDetails != nil {
		a.usage.OutputTokensDetails = u.OutputTokensDetails
	}
	if u.ServerToolUse != nil {
		a.usage.ServerToolUse = u.ServerToolUse
	}
	if u.CacheCreation != nil {
		a.usage.CacheCreation = u.CacheCreation
	}
}

// block returns the open block with the given index.
func (a *answer) block(index *int) *block {
	if index == nil || *index < 0 || *index >= len(a.blocks) || a.blocks[*index].done {
		return nil
	}
	return a.blocks[*index]
}

// finish sets raw to the encoded block.
func (b *block) finish() {
	b.done = true
	switch b.kind {
	case "text":
		text := &wire.TextBlock{Text: b.text.String()}
		if b.cited != nil {
			text.Citations = mustJSON(b.cited)
		}
		b.raw = mustJSON(text)
	case "thinking":
		b.raw = mustJSON(&wire.ThinkingBlock{Thinking: b.text.String(), Signature: b.sign.String()})
	case "tool_use":
		b.raw = mustJSON(&wire.ToolUseBlock{ID: b.id, Name: b.name, Input: b.parseInput()})
	case "server_tool_use":
		b.raw = mustJSON(&wire.ServerToolUseBlock{ID: b.id, Name: b.name, Input: b.parseInput()})
	default:
		b.raw = b.first
	}
}

// parseInput returns the input of a call. An input that is not a JSON object is wrapped
// as unparsed text.
func (b *block) parseInput() json.RawMessage {
	text := strings.TrimSpace(b.text.String())
	if text == "" {
		text = "{}"
	}
	if json.Valid([]byte(text)) && text[0] == '{' {
		b.input = json.RawMessage(text)
		return b.input
	}
	return mustJSON(map[string]any{"__unparsedToolInput": map[string]any{"raw": text, "len": len(text)}})
}

// complete sets default values in the input of a call.
func (b *block) complete(spec *tool.Spec) {
	if b.input == nil {
		return
	}
	b.input = tool.Complete(spec, b.input)
	b.raw = mustJSON(&wire.ToolUseBlock{ID: b.id, Name: b.name, Input: b.input})
}

// text returns the text of the answer.
func (a *answer) text() string {
	last := ""
	for _, b := range a.blocks {
		if b.kind == "text" && b.done {
			last = b.text.String()
		}
	}
	return last
}

// open returns the block that is not complete, or nil.
func (a *answer) open() *block {
	if n := len(a.blocks); n > 0 && !a.blocks[n-1].done {
		return a.blocks[n-1]
	}
	return nil
}

// empty reports whether the answer has no content besides thinking.
func (a *answer) empty() bool {
	for _, b := range a.blocks {
		switch {
		case b.kind == "thinking", history.BlockType(b.first) == "redacted_thinking":
		case b.kind == "text" && strings.TrimSpace(b.text.String()) == "":
		default:
			return false
		}
	}
	return true
}

// worthKeeping reports whether a broken stream contains a complete block other than
// thinking.
func (a *answer) worthKeeping() bool {
	for _, b := range a.blocks {
		if b.done && b.kind != "thinking" && history.BlockType(b.first) != "redacted_thinking" && !(b.kind == "text" && b.text.Len() == 0) {
			return true
		}
	}
	return false
}

// calls returns the tool calls that are complete.
func (a *answer) calls() []*block {
	var calls []*block
	for _, b := range a.blocks {
		if b.kind == "tool_use" && b.done {
			calls = append(calls, b)
		}
	}
	return calls
}

// mustJSON encodes a value that can always be encoded.
func mustJSON(v any) json.RawMessage {
	return recorder.JSON(v)
}

// dropOpen removes the blocks at the end of an answer that were never completed.
func (a *answer) dropOpen() {
	for len(a.blocks) > 0 && !a.blocks[len(a.blocks)-1].done {
		a.blocks = a.blocks[:len(a.blocks)-1]
	}
}

// event returns the message for an event of the stream.
func (a *answer) event(raw json.RawMessage) *wire.StreamEvent {
	return &wire.StreamEvent{Event: raw, APIMessageID: a.id}
}
