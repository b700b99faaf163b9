package engine

import (
	"fmt"

	"github.com/parley-go/parley/session"
)

// restore resumes a session. The next request is, byte for byte, the one that a process
// which never ended would have sent. Calls without a result do not run again: they are
// answered with their outcome in the log.
func (c *Conversation) restore(h *session.History) error {
	if h.Torn {
		c.notices = append(c.notices, "The last line of the session was incomplete and has been removed. Everything that was acknowledged is there.")
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
	c.hist.Restore(h.Latest)
	c.hist.Prefix.Restore(h.Latest)
	for _, e := range h.Entries {
		if e.Type == "system" {
			c.compaction.Restore(e)
		}
		if e.UUID != "" {
			c.compaction.Follow(e)
			c.rec.Resume(e.UUID)
			c.brief.restore(e)
			if e.Type == "user" && e.Fields["promptId"] != nil {
				c.uuids[e.UUID] = true
			}
		}
		if e.Type != "user" && e.Type != "assistant" || len(e.Message) == 0 {
			continue
		}
		c.restoreContext(e)
		c.compaction.RestoreTodos(e)
		c.restoreLoaded(e)
		if string(e.Fields["isApiErrorMessage"]) == "true" {
			continue // it was never sent to the model
		}
		if err := c.hist.RestoreMessage(e); err != nil {
			return err
		}
		if e.Type == "assistant" {
			c.compaction.NoteAnswer()
		}
	}
	if err := c.rec.Place().Append(added...); err != nil {
		return err
	}
	if e := h.Latest["cost-state"]; e != nil {
		if err := c.ledger.Restore(e.Fields); err != nil {
			c.runner.Log.Warn("the cost of the session cannot be read", "error", err)
		}
		c.spentBefore = c.ledger.Total().Nanos
	}
	c.restoreTasks(h.Latest[tasksType])
	if c.sub == nil {
		if gone := c.trees.restore(h.Latest[worktreeType]); gone != "" {
			c.fromHooks = append(c.fromHooks, gone)
		}
	}
	return nil
}
