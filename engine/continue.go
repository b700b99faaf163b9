package engine

import (
	"context"
	"encoding/json"

	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// An unfinishedTurn is the turn that was running when an earlier process of the session
// died. It stays unfinished until the host continues it or another prompt arrives.
type unfinishedTurn struct {
	prompt   string // uuid
	promptID string
	joined   []string          // uuids of prompts that came later and joined the turn
	calls    []*unfinishedCall // calls of the last message without a result, in order
}

// An unfinishedCall is a call that has no result.
type unfinishedCall struct {
	block  *block
	uuid   string // of the record that contains the call
	effect session.Effect
	answer *session.Entry // sent to the model if the call does not run
}

// holdBack returns the turn of a history that can be continued, or nil. added are the
// results that were added for its calls.
func holdBack(h *session.History, added []*session.Entry) *unfinishedTurn {
	prompt, promptID := h.Unfinished()
	if prompt == "" {
		return nil
	}
	u := &unfinishedTurn{prompt: prompt, promptID: promptID}
	for _, e := range h.Entries {
		if e.Type == "user" && e.UUID != prompt && string(e.Fields["promptId"]) == string(mustJSON(promptID)) && e.Fields["sourceToolAssistantUUID"] == nil {
			u.joined = append(u.joined, e.UUID)
		}
	}
	for _, e := range added {
		_, blocks, err := history.MessageBlocks(e.Message)
		if err != nil || len(blocks) != 1 {
			return nil
		}
		var result wire.ToolResultBlock
		if json.Unmarshal(blocks[0], &result) != nil {
			return nil
		}
		call := findCall(h, result.ToolUseID)
		if call == nil {
			return nil
		}
		call.effect, call.answer = h.Effect(result.ToolUseID), e
		u.calls = append(u.calls, call)
	}
	return u
}

// findCall returns the call with the given id.
func findCall(h *session.History, id string) *unfinishedCall {
	for i := len(h.Entries) - 1; i >= 0; i-- {
		e := h.Entries[i]
		if e.Type != "assistant" {
			continue
		}
		_, blocks, err := history.MessageBlocks(e.Message)
		if err != nil {
			return nil
		}
		for _, raw := range blocks {
			var b wire.ToolUseBlock
			if history.BlockType(raw) == "tool_use" && json.Unmarshal(raw, &b) == nil && b.ID == id {
				call := &block{kind: "tool_use", raw: raw, id: b.ID, name: b.Name, input: b.Input, done: true}
				call.text.Write(b.Input)
				return &unfinishedCall{block: call, uuid: e.UUID}
			}
		}
	}
	return nil
}

// continueTurn starts the continuation of an unfinished turn.
func (c *Conversation) continueTurn(t *turn, u *unfinishedTurn) *ending {
	c.unfinished = nil
	t.promptID = u.promptID
	for _, uuid := range u.joined {
		t.prompts = append(t.prompts, &prompt{m: &wire.User{UUID: uuid}, uuid: uuid})
	}
	added := c.startSession(t)
	c.beginServers(t.ctx)
	c.rec.Emit(c.init(t))
	c.emitNotices()
	failed := c.awaitServers(t.ctx)
	if cause := context.Cause(t.ctx); cause != nil {
		return c.interrupted(t, "[Request interrupted by user]", "aborted_streaming", cause)
	}
	if failed != nil {
		end := c.broken(failed)
		end.noTurns = true
		return end
	}
	c.keepPrompt()
	c.offerServers()
	a := &answer{started: true, complete: true}
	run := c.newBatch(t)
	for _, uc := range u.calls {
		a.blocks = append(a.blocks, uc.block)
		tc := c.newCall(t, uc.block, uc.uuid)
		if uc.effect == session.EffectNone {
			run.Start(tc)
			continue
		}
		var result wire.ToolResultBlock
		if _, blocks, err := history.MessageBlocks(uc.answer.Message); err == nil && len(blocks) == 1 {
			json.Unmarshal(blocks[0], &result)
		}
		run.Add(tc, &tool.Result{Content: result.Content, IsError: result.IsError})
	}
	if len(run.Calls) > 0 {
		if end := c.collectResults(t, a, run); end != nil {
			return end
		}
	} else if c.hist.LastRole() == "assistant" {
		if err := c.appendAndEmitNote(t, "The agent was restarted after your answer above. Continue where the answer stopped; do not repeat it. If it was complete, say so in a few words.", ""); err != nil {
			return c.broken(err)
		}
	}
	for _, text := range added {
		if err := c.appendNote(text); err != nil {
			return c.broken(err)
		}
	}
	return nil
}
