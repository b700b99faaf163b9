package engine

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/parley-go/parley/engine/tool"
)

// A transcript is the conversation as the API gets it. What was sent once is kept
// as bytes: the beginning of each request equals that of the one before, which is
// what prompt caching needs.
type transcript struct {
	messages []apiMessage

	// Blocks of an answer that the API takes only with another one behind them:
	// thoughts, and calls that the API itself serves. They become part of the
	// conversation when that comes.
	held    []json.RawMessage
	heldID  string // the message that they are of
	serving bool   // a call is among them
}

type apiMessage struct {
	role   string
	blocks []json.RawMessage
}

// answer appends a block of the model's message with that id.
func (t *transcript) answer(id string, block json.RawMessage) {
	if len(t.held) > 0 && t.heldID != id {
		// Their message ended behind them. If it only paused this one goes on;
		// what was thought and led to nothing is gone.
		t.goOn()
	}
	switch blockType(block) {
	case "server_tool_use":
		t.serving = true
		fallthrough
	case "thinking", "redacted_thinking":
		t.held, t.heldID = append(t.held, block), id
		return
	}
	blocks := append(t.held, block)
	t.held, t.serving = nil, false
	t.add("assistant", blocks...)
}

// goOn is called when the answer so far is sent back for the model to go on.
func (t *transcript) goOn() {
	held, serving := t.held, t.serving
	t.held, t.serving = nil, false
	if serving {
		t.add("assistant", held...)
	}
}

// blockType returns the type of a block.
func blockType(block json.RawMessage) string {
	var b struct {
		Type string `json:"type"`
	}
	json.Unmarshal(block, &b)
	return b.Type
}

// add appends blocks; those of one role that follow each other are one message.
func (t *transcript) add(role string, blocks ...json.RawMessage) {
	if len(blocks) == 0 {
		return
	}
	t.held, t.serving = nil, false
	if n := len(t.messages); n > 0 && t.messages[n-1].role == role {
		m := &t.messages[n-1]
		m.blocks = append(m.blocks, blocks...)
		return
	}
	t.messages = append(t.messages, apiMessage{role: role, blocks: append([]json.RawMessage(nil), blocks...)})
}

// size is how many bytes the messages have, about.
func (t *transcript) size() int {
	n := 0
	for _, m := range t.messages {
		for _, b := range m.blocks {
			n += len(b)
		}
	}
	return n
}

// cacheControl is put into the last block of a prefix that the API is to cache.
const cacheControl = `"cache_control":{"type":"ephemeral"}`

// cached returns a block with a breakpoint behind it.
func cached(block json.RawMessage) json.RawMessage {
	block = bytes.TrimSpace(block)
	if len(block) < 2 || block[len(block)-1] != '}' || bytes.Contains(block, []byte(`"cache_control"`)) {
		return block
	}
	out := append(json.RawMessage(nil), block[:len(block)-1]...)
	if len(block) > 2 {
		out = append(out, ',')
	}
	return append(append(out, cacheControl...), '}')
}

// appendMessages writes the messages. Two of the four breakpoints are here: behind
// the last message, and behind the user's message before it, so that a long turn
// still finds what the one before it wrote. Without mark there are none.
func (t *transcript) appendMessages(dst []byte, mark bool) []byte {
	marks := map[int]bool{}
	for i := len(t.messages) - 1; mark && i >= 0 && len(marks) < 2; i-- {
		if t.messages[i].role == "user" {
			marks[i] = true
		}
	}
	dst = append(dst, '[')
	if len(t.messages) > 0 && t.messages[0].role != "user" {
		// The API wants the user to begin.
		dst = append(dst, `{"role":"user","content":[{"type":"text","text":"(no content)"}]},`...)
	}
	for i, m := range t.messages {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, `{"role":"`...), m.role...), `","content":[`...)
		for k, b := range m.blocks {
			if k > 0 {
				dst = append(dst, ',')
			}
			if marks[i] && k == len(m.blocks)-1 {
				b = cached(b)
			}
			dst = append(dst, b...)
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, ']')
}

// A prefix is the part of every request that does not change with the
// conversation.
type prefix struct {
	system json.RawMessage
	tools  json.RawMessage
}

// newPrefix writes the system prompt and the tools. With mark a breakpoint is behind each.
func newPrefix(system []string, tools []tool.Tool, mark bool) prefix {
	var p prefix
	var blocks []json.RawMessage
	for _, s := range system {
		if strings.TrimSpace(s) != "" {
			blocks = append(blocks, mustJSON(map[string]string{"type": "text", "text": s}))
		}
	}
	if n := len(blocks); n > 0 {
		if mark {
			blocks[n-1] = cached(blocks[n-1])
		}
		p.system = mustJSON(blocks)
	}
	var list []json.RawMessage
	for _, t := range tools {
		spec := t.Spec()
		list = append(list, mustJSON(struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"input_schema"`
		}{spec.Name, spec.Description, spec.Schema}))
	}
	if n := len(list); n > 0 {
		if mark {
			list[n-1] = cached(list[n-1])
		}
		p.tools = mustJSON(list)
	}
	return p
}

// body writes a request.
func (c *Conversation) body() []byte { return c.bodyOf(&c.transcript, false) }

// bodyOf writes a request about a conversation. With noTools the model can call none,
// though it sees them.
func (c *Conversation) bodyOf(t *transcript, noTools bool) []byte {
	b := make([]byte, 0, 4096)
	member := func(name string, value []byte) {
		if len(value) == 0 {
			return
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(append(b, '"'), name...), `":`...), value...)
	}
	b = append(b, '{')
	member("model", mustJSON(c.model.ID))
	member("max_tokens", mustJSON(c.maxTokens()))
	member("thinking", c.thinkingMember())
	member("output_config", c.cfg.Tuning.outputConfig(c.effortLevel()))
	member("system", c.prefix.system)
	member("tools", c.prefix.tools)
	if noTools && len(c.prefix.tools) > 0 {
		member("tool_choice", []byte(`{"type":"none"}`))
	}
	b = append(b, `,"messages":`...)
	b = t.appendMessages(b, !c.cfg.Tuning.NoCaching)
	member("metadata", mustJSON(map[string]string{"user_id": "parley_" + c.rec.ID()}))
	b = append(b, `,"stream":true}`...)
	return b
}
