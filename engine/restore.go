package engine

import (
	"encoding/json"
	"fmt"

	"github.com/parley-go/parley/engine/session"
	"github.com/parley-go/parley/wire"
)

// restore goes on where a session stopped. Calls that nobody answered are answered
// with what is known: they are not run again.
func (c *Conversation) restore(h *session.History) error {
	answered := map[string]bool{}
	var open []string
	for _, e := range h.Entries {
		if e.UUID != "" {
			c.parent = e.UUID
		}
		if e.Type != "user" && e.Type != "assistant" || len(e.Message) == 0 {
			continue
		}
		if string(e.Fields["isApiErrorMessage"]) == "true" {
			continue
		}
		var m wire.APIMessage
		if err := json.Unmarshal(e.Message, &m); err != nil {
			return fmt.Errorf("the session holds a message that cannot be read: %w", err)
		}
		for _, b := range m.Content.All() {
			switch b := b.(type) {
			case *wire.ToolUseBlock:
				open = append(open, b.ID)
			case *wire.ToolResultBlock:
				answered[b.ToolUseID] = true
			case *wire.TextBlock:
				if b.Text == "" {
					continue
				}
			}
			c.transcript.add(e.Type, mustJSON(b))
		}
	}
	var missing []string
	for _, id := range open {
		if !answered[id] {
			missing = append(missing, id)
		}
	}
	for _, id := range missing {
		text := "The call was interrupted before its result was recorded: it may have run or not. Look before you do it again."
		if e := h.Latest["parley-intent"]; e == nil {
			text = "The call did not run: the session ended before it."
		}
		raw := mustJSON(&wire.ToolResultBlock{ToolUseID: id, Content: wire.Text(text), IsError: true})
		if err := c.record(&session.Entry{Type: "user", UUID: NewID(),
			Message: mustJSON(map[string]any{"role": "user", "content": []json.RawMessage{raw}})}); err != nil {
			return err
		}
		c.transcript.add("user", raw)
	}
	if e := h.Latest["cost-state"]; e != nil {
		if err := c.ledger.Restore(e.Fields); err != nil {
			c.log.Warn("the cost of the session cannot be read", "error", err)
		}
	}
	return nil
}
