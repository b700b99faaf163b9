package engine

import (
	"errors"

	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/internal/ledger"
	"github.com/parley-go/parley/engine/internal/recorder"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// clearCommand runs /clear: it starts a new conversation: another session, with no history and no cost.
func (c *Conversation) clearCommand(t *turn, p *prompt, args string) *ending {
	id := session.NewID()
	if c.started {
		c.runHooks(t, &wire.SessionEndInput{Reason: "clear"}, "clear")
	}
	for _, task := range c.runner.Env.Tasks().All() {
		if info := task.Info(); info.Status == tool.TaskRunning {
			c.tasks.Forget(info.ID)
			c.runWhileServing(task.Stop)
		}
	}
	next, old := recorder.Place{ID: id}, c.rec.Place()
	if old.Log != nil && c.cfg.NewLog != nil {
		var err error
		if next.Log, err = c.cfg.NewLog(id); err != nil {
			c.rec.Emit(c.init(t))
			return c.failCommand(t, "clear", "clear", args, "Error: the new session cannot be begun, so nothing was cleared: "+err.Error())
		}
		if err := errors.Join(c.rec.Record(), old.Log.Close()); err != nil {
			c.runner.Log.Error("the session could not be closed", "error", err)
		}
	}
	reset := session.NewID()
	c.rec.Emit(&wire.ConversationReset{NewConversationID: reset, Trigger: "clear", UserMessageUUID: p.uuid, UUID: reset})
	c.rec.Emit(&wire.BackgroundTasksChanged{Tasks: []*wire.BackgroundTask{}})
	c.rec.Begin(next)
	c.hist, c.lastUsage = history.History{}, nil // makePrefix writes its prefix below
	c.ledger, c.spentBefore = ledger.New(c.cfg.Catalog), 0
	c.ledger.BeginTurn()
	if c.keeper != nil {
		c.loadPart = nil // it reads the previous session
		c.keeper = c.newKeeper()
		c.publish()
	}
	c.compaction.Reset()
	c.loseContext()
	c.brief.clearPrompts()
	c.reloadProject() // an agent may have written these files, for example after /init
	c.makePrefix()
	c.started = true
	c.fromHooks = c.sessionHooks(t, "clear")
	c.rec.Emit(c.init(t))
	return &ending{noTurns: true, localCommand: "clear"}
}
