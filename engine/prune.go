package engine

import (
	"encoding/json"
	"slices"

	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// prunedType is the type of the record that says which results of tools were taken out
// of what the model sees, by the ids of their calls. It is cumulative: the last one
// counts. The results themselves stay in the log.
const prunedType = "parley-pruned"

// prunedText is told in the place of a result.
const prunedText = "[The result was taken out to save space. Make the call again if it is needed.]"

// withoutResult returns the result of a call with nothing in it, and the id of the call.
// It is not ok if the block is none, or has nothing in it to speak of.
func withoutResult(block json.RawMessage) (out json.RawMessage, id string, ok bool) {
	if len(block) < pruneSmall {
		return nil, "", false
	}
	var b struct {
		Type      string `json:"type"`
		ToolUseID string `json:"tool_use_id"`
		IsError   bool   `json:"is_error"`
	}
	if json.Unmarshal(block, &b) != nil || b.Type != "tool_result" {
		return nil, "", false
	}
	return mustJSON(&wire.ToolResultBlock{ToolUseID: b.ToolUseID, Content: wire.Text(prunedText), IsError: b.IsError}), b.ToolUseID, true
}

// withoutResults returns the conversation without the results of the calls that want
// says, and their ids. A nil want means all.
func (t *transcript) withoutResults(want func(message, block int) bool) (out transcript, ids []string) {
	out = *t
	out.messages = slices.Clone(t.messages)
	for i, m := range out.messages {
		if m.role != "user" {
			continue
		}
		copied := false
		for k, b := range m.blocks {
			if want != nil && !want(i, k) {
				continue
			}
			empty, id, ok := withoutResult(b)
			if !ok {
				continue
			}
			if !copied {
				copied = true
				m.blocks = slices.Clone(m.blocks)
				out.messages[i].blocks = m.blocks
			}
			m.blocks[k] = empty
			ids = append(ids, id)
		}
	}
	return out, ids
}

// prune takes old results of tools out of the conversation, if that wins enough for the
// next request to stay well below a number of tokens; 0 means that any win counts that is
// worth it. It reports whether it did.
func (c *Conversation) prune(below int64) bool {
	newest := int64(0)
	type place struct{ message, block int }
	old := map[place]bool{}
	won := int64(0)
	for i := len(c.transcript.messages) - 1; i >= 0; i-- {
		m := c.transcript.messages[i]
		if m.role != "user" {
			continue
		}
		for k := len(m.blocks) - 1; k >= 0; k-- {
			if !isResult(m.blocks[k]) {
				continue
			}
			size := int64(len(m.blocks[k])) / 4
			if newest += size; newest > min(keptResults, c.model.ContextWindow/5) && len(m.blocks[k]) >= pruneSmall {
				old[place{i, k}] = true
				won += size - int64(len(prunedText))/4
			}
		}
	}
	least := max(pruneLeast, c.model.ContextWindow/10)
	if won < least || below > 0 && c.contextTokens(&c.transcript)-won > below-least/2 {
		return false
	}
	next, ids := c.transcript.withoutResults(func(i, k int) bool { return old[place{i, k}] })
	all := map[string]bool{}
	for id := range c.compaction.pruned {
		all[id] = true
	}
	for _, id := range ids {
		all[id] = true
	}
	if err := c.rec.Record(&session.Entry{Type: prunedType, Fields: fields("toolUseIds", sortedKeys(all))}); err != nil {
		c.log.Error("that results were taken out could not be recorded", "error", err)
		return false
	}
	c.transcript, c.compaction.pruned = next, all
	c.log.Info("old results of tools were taken out of the conversation", "results", len(ids), "tokens", won)
	return true
}

func sortedKeys(m map[string]bool) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
