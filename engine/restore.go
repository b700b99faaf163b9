package engine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/parley-go/parley/engine/mcp"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// restore goes on where a session stopped, so that the next request is, byte for
// byte, the one that a process which never ended would have sent. Calls that
// nobody answered are answered with what is known of them: they are not run again.
func (c *Conversation) restore(h *session.History) error {
	if h.Torn {
		c.notices = append(c.notices, "The last line of the session was cut off when its process ended, and is gone. What was acknowledged is there.")
	}
	if h.Corrupt > 0 {
		c.notices = append(c.notices, fmt.Sprintf("%d lines of the session cannot be read, and were left out.", h.Corrupt))
	}
	added := session.Repair(h)
	if c.sub == nil {
		if c.unfinished = holdBack(h, added); c.unfinished != nil {
			h.Entries = h.Entries[:len(h.Entries)-len(added)]
			added = nil
		}
	}
	if e := h.Latest[quarantineType]; e != nil {
		json.Unmarshal(e.Fields["blocks"], &c.quarantined)
	}
	if e := h.Latest[prunedType]; e != nil {
		var ids []string
		json.Unmarshal(e.Fields["toolUseIds"], &ids)
		c.compaction.pruned = map[string]bool{}
		for _, id := range ids {
			c.compaction.pruned[id] = true
		}
	}
	size := measurer{}
	for _, e := range h.Entries {
		if e.Type == "assistant" {
			size.see(e, &c.transcript)
		}
		if e.Type == "system" {
			c.compaction.restore(e)
		}
		if e.UUID != "" {
			c.compaction.follow(e)
			c.rec.Resume(e.UUID)
			if e.Type == "user" && e.Fields["promptId"] != nil {
				c.uuids[e.UUID] = true
			}
		}
		if e.Type != "user" && e.Type != "assistant" || len(e.Message) == 0 {
			continue
		}
		c.restoreContext(e)
		c.restoreTodos(e)
		if string(e.Fields["isApiErrorMessage"]) == "true" {
			continue // the model was never told
		}
		id, blocks, err := messageBlocks(e.Message)
		if err != nil {
			return fmt.Errorf("the session holds a message that cannot be read: %w", err)
		}
		for _, b := range blocks {
			if len(c.quarantined) > 0 && e.Type == "user" {
				if reason, ok := c.quarantined[blockHash(b)]; ok {
					b, _ = withoutMedia(b, reason)
				}
			}
			if len(c.compaction.pruned) > 0 && e.Type == "user" {
				if empty, id, ok := withoutResult(b); ok && c.compaction.pruned[id] {
					b = empty
				}
			}
			if e.Type == "assistant" {
				c.compaction.answers++
				c.transcript.answer(id, b)
			} else {
				c.transcript.add("user", b)
			}
		}
	}
	c.measured = size.measure
	if err := c.rec.Place().Append(added...); err != nil {
		return err
	}
	if e := h.Latest["cost-state"]; e != nil {
		if err := c.ledger.Restore(e.Fields); err != nil {
			c.log.Warn("the cost of the session cannot be read", "error", err)
		}
		c.spentBefore = c.ledger.Total().Nanos
	}
	if e := h.Latest[prefixType]; e != nil {
		json.Unmarshal(e.Fields["key"], &c.kept.key)
		c.kept.system = e.Fields["system"]
		json.Unmarshal(e.Fields["toolsKey"], &c.kept.toolsKey)
		c.kept.tools = e.Fields["tools"]
	}
	return nil
}

// messageBlocks returns the content of a recorded message as it is written there.
func messageBlocks(message json.RawMessage) (id string, blocks []json.RawMessage, err error) {
	var m struct {
		ID      string          `json:"id"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(message, &m); err != nil {
		return "", nil, err
	}
	content := bytes.TrimSpace(m.Content)
	if len(content) > 0 && content[0] == '"' {
		var text string
		if err := json.Unmarshal(content, &text); err != nil {
			return "", nil, err
		}
		if text != "" {
			blocks = append(blocks, mustJSON(&wire.TextBlock{Text: text}))
		}
		return m.ID, blocks, nil
	}
	var all []json.RawMessage
	if err := json.Unmarshal(content, &all); err != nil {
		return "", nil, err
	}
	for _, b := range all {
		var text struct {
			Type string  `json:"type"`
			Text *string `json:"text"`
		}
		if err := json.Unmarshal(b, &text); err != nil {
			return "", nil, err
		}
		if text.Type == "text" && text.Text != nil && *text.Text == "" {
			continue // the API does not take it
		}
		blocks = append(blocks, b)
	}
	return m.ID, blocks, nil
}

// prefixType is the type of the record that keeps the system prompt. It has no
// place in the conversation, so that other readers skip it.
const prefixType = "parley-prefix"

// A keptPrompt is a system prompt as the session's log has it.
type keptPrompt struct {
	key    string // what it was made from
	system json.RawMessage

	toolsKey string
	tools    json.RawMessage
}

// keepPrompt holds the system prompt and the tools still: what the session began
// with is sent as it was then, also after a resume on another day or by another
// version, unless what it is made from has changed. It is called when a turn begins.
func (c *Conversation) keepPrompt() error {
	if c.promptKey != c.keyOfPrompt() {
		c.makePrefix()
	}
	toolsKey := c.keyOfTools()
	if c.kept.key == c.promptKey && c.kept.system != nil {
		c.prefix.system = c.kept.system
	}
	if c.kept.toolsKey == toolsKey && c.kept.tools != nil {
		c.prefix.tools = c.kept.tools
	}
	if c.kept.key == c.promptKey && c.kept.toolsKey == toolsKey {
		return nil
	}
	c.kept = keptPrompt{c.promptKey, c.prefix.system, toolsKey, c.prefix.tools}
	f := fields("key", c.kept.key, "toolsKey", toolsKey)
	if c.kept.system != nil {
		f["system"] = c.kept.system
	}
	if c.kept.tools != nil {
		f["tools"] = c.kept.tools
	}
	return c.rec.Record(&session.Entry{Type: prefixType, Fields: f})
}

// keyOfTools tells which tools there are. What our own say of themselves may differ
// from version to version; what those of servers say is part of them.
func (c *Conversation) keyOfTools() string {
	var all []any
	for _, t := range c.tools {
		spec := t.Spec()
		switch t.(type) {
		case *mcp.Tool, *structuredOutput:
			all = append(all, []any{spec.Name, spec.Description, spec.Schema})
		default:
			all = append(all, spec.Name)
		}
	}
	sum := sha256.Sum256(mustJSON(all))
	return hex.EncodeToString(sum[:16])
}

// A measurer finds out how large the last request of a session was.
type measurer struct {
	id string // of the answer
	measure
}

// see is called with each record of an answer before it is part of the conversation.
func (m *measurer) see(e *session.Entry, t *transcript) {
	var said struct {
		ID    string      `json:"id"`
		Usage *wire.Usage `json:"usage"`
	}
	if json.Unmarshal(e.Message, &said) != nil || said.ID == m.id || said.Usage == nil {
		return
	}
	if n := said.Usage.InputTokens + said.Usage.CacheCreationInputTokens + said.Usage.CacheReadInputTokens; n > 0 {
		*m = measurer{said.ID, measure{int64(t.size()), n}}
	}
}
