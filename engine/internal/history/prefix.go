package history

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
)

// A Prefix is the part of every request that does not change with the conversation. The
// keys identify the sources of its parts.
type Prefix struct {
	Key    string
	System json.RawMessage

	ToolsKey string
	Tools    json.RawMessage

	NoMarks bool // requests have no cache breakpoints

	kept *Prefix // as recorded in the session
}

// prefixType is the type of the record of the prefix. It is not part of the
// conversation, so other readers skip it.
const prefixType = "parley-prefix"

// SetSystem encodes the system prompt, with a breakpoint after it.
func (p *Prefix) SetSystem(key string, system []string) {
	p.Key, p.System = key, sharedSystem.Get(writtenSystem{system, p.NoMarks}, func() json.RawMessage {
		var blocks []json.RawMessage
		for _, s := range system {
			if strings.TrimSpace(s) != "" {
				blocks = append(blocks, recorder.JSON(map[string]string{"type": "text", "text": s}))
			}
		}
		if len(blocks) == 0 {
			return nil
		}
		blocks[len(blocks)-1] = p.withBreakpoint(blocks[len(blocks)-1])
		return encodedList(blocks)
	})
}

// encodedList returns a JSON array of values that are encoded already. Encoding the slice would parse
// each of them again.
func encodedList(list []json.RawMessage) json.RawMessage {
	size := len(list) + 1
	for _, v := range list {
		size += len(v)
	}
	out := append(make(json.RawMessage, 0, size), '[')
	for i, v := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, v...)
	}
	return append(out, ']')
}

type writtenSystem struct {
	texts   []string
	noMarks bool
}

var sharedSystem = Shared[writtenSystem, json.RawMessage]{Same: func(a, b writtenSystem) bool {
	return a.noMarks == b.noMarks && slices.Equal(a.texts, b.texts)
}}

// withBreakpoint returns a block with a breakpoint after it, unless NoMarks is set.
func (p *Prefix) withBreakpoint(block json.RawMessage) json.RawMessage {
	if p.NoMarks {
		return block
	}
	return cached(block)
}

// SetTools encodes the tools, with a breakpoint after them.
func (p *Prefix) SetTools(tools []tool.Tool) {
	p.Tools = nil
	if len(tools) == 0 {
		return
	}
	key := writtenTools{make([]writtenTool, len(tools)), p.NoMarks}
	for i, t := range tools {
		spec := t.Spec()
		key.tools[i] = writtenTool{spec.Name, spec.Description, spec.Schema}
	}
	p.Tools = sharedTools.Get(key, func() json.RawMessage {
		list := make([]json.RawMessage, len(tools))
		for i, t := range key.tools {
			list[i] = recorder.JSON(t)
		}
		list[len(list)-1] = p.withBreakpoint(list[len(list)-1])
		return encodedList(list)
	})
}

type writtenTools struct {
	tools   []writtenTool
	noMarks bool
}

type writtenTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
}

var sharedTools = Shared[writtenTools, json.RawMessage]{Same: func(a, b writtenTools) bool {
	return a.noMarks == b.noMarks && slices.EqualFunc(a.tools, b.tools, func(x, y writtenTool) bool {
		return x.Name == y.Name && x.Description == y.Description && bytes.Equal(x.Schema, y.Schema)
	})
}}

// Keep keeps the prefix stable: the session sends the one that it started with, also
// after a resume on another day or by another version, unless its sources have changed.
// It returns a record of the prefix if one must be written.
func (p *Prefix) Keep(toolsKey string) *session.Entry {
	p.ToolsKey = toolsKey
	kept := p.kept
	if kept == nil {
		kept = &Prefix{}
	}
	if kept.Key == p.Key && kept.System != nil {
		p.System = kept.System
	}
	if kept.ToolsKey == toolsKey && kept.Tools != nil {
		p.Tools = kept.Tools
	}
	if kept.Key == p.Key && kept.ToolsKey == toolsKey {
		return nil
	}
	p.kept = &Prefix{Key: p.Key, System: p.System, ToolsKey: toolsKey, Tools: p.Tools}
	f := recorder.Fields("key", p.Key, "toolsKey", toolsKey)
	if p.System != nil {
		f["system"] = p.System
	}
	if p.Tools != nil {
		f["tools"] = p.Tools
	}
	return &session.Entry{Type: prefixType, Fields: f, Fixed: true}
}

// Restore restores the prefix of a session.
func (p *Prefix) Restore(latest map[string]*session.Entry) {
	e := latest[prefixType]
	if e == nil {
		return
	}
	p.kept = &Prefix{System: e.Fields["system"], Tools: e.Fields["tools"]}
	json.Unmarshal(e.Fields["key"], &p.kept.Key)
	json.Unmarshal(e.Fields["toolsKey"], &p.kept.ToolsKey)
}

// A Request holds the members of a request besides the conversation.
type Request struct {
	Model     string
	MaxTokens int64
	Thinking  json.RawMessage // nil omits it
	Output    json.RawMessage // nil omits it
	NoTools   bool            // the model sees the tools but cannot call them
	Grows     bool            // the same conversation is sent again with more messages
	User      string
}

// Body encodes a request for a conversation.
func (p *Prefix) Body(t *Transcript, r Request) []byte {
	pieces := make([][]byte, 0, 32+len(t.pieces))
	member := func(name string, value []byte) {
		if len(value) > 0 {
			pieces = append(pieces, []byte(`,"`+name+`":`), value)
		}
	}
	pieces = append(pieces, []byte(`{"model":`), recorder.JSON(r.Model))
	member("max_tokens", recorder.JSON(r.MaxTokens))
	member("thinking", r.Thinking)
	member("output_config", r.Output)
	member("system", p.System)
	member("tools", p.Tools)
	if r.NoTools && len(p.Tools) > 0 {
		member("tool_choice", []byte(`{"type":"none"}`))
	}
	pieces = t.messages(append(pieces, []byte(`,"messages":`)), !p.NoMarks, r.Grows)
	member("metadata", recorder.JSON(map[string]string{"user_id": r.User}))
	return bytes.Join(append(pieces, []byte(`,"stream":true}`)), nil)
}
