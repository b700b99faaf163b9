package engine

import (
	"fmt"
	"time"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// watchTasks tells the host of tasks, and starts a turn when one that went on in
// the background has ended.
func (c *Conversation) watchTasks() {
	c.env.Notify = func(ev tool.Event) {
		// It is called by tools, which must not wait for the conversation.
		c.eventsMu.Lock()
		c.events = append(c.events, ev)
		c.eventsMu.Unlock()
		c.nested.begin()
		go func() {
			defer c.nested.end()
			c.Do(c.tellEvents)
		}()
	}
}

// tellEvents tells what has happened so far. What happened before a call ended is
// told before its result.
func (c *Conversation) tellEvents() {
	c.eventsMu.Lock()
	events := c.events
	c.events = nil
	c.eventsMu.Unlock()
	for _, ev := range events {
		c.taskEvent(ev)
	}
}

// TellTasksNow tells what has become of tasks so far, those of subagents included. It
// may be called from anywhere but from inside a Do.
func (c *Conversation) TellTasksNow() {
	c.Do(c.tellEvents)
	for _, task := range c.env.Tasks().All() {
		s, ok := task.(*subagent)
		if !ok {
			continue
		}
		s.mu.Lock()
		child := s.child
		s.mu.Unlock()
		if child == nil {
			continue
		}
		child.eventsMu.Lock()
		n := len(child.events)
		child.eventsMu.Unlock()
		if n > 0 {
			child.Do(child.tellEvents)
		}
	}
}

func (c *Conversation) taskEvent(ev tool.Event) {
	switch ev := ev.(type) {
	case tool.TaskStarted:
		info := ev.Info
		if info.Background {
			c.backgroundChanged()
		}
		c.rec.Emit(&wire.TaskStarted{TaskID: info.ID, RunID: info.RunID, ToolUseID: info.ToolUseID, Description: info.Description,
			IsBackgrounded: &info.Background, TaskType: info.Kind})
	case tool.TaskUpdated:
		info := ev.Info
		c.backgroundChanged()
		c.rec.Emit(&wire.TaskUpdated{TaskID: info.ID, RunID: info.RunID, Patch: wire.TaskPatch{IsBackgrounded: &info.Background}})
	case tool.TaskPrinted:
		info := ev.Info
		c.rec.Emit(&wire.ToolProgress{ToolUseID: info.ToolUseID, ToolName: "Bash", Output: ev.Tail,
			ElapsedTimeSeconds: c.runner.Now().Sub(info.Started).Round(time.Second).Seconds()})
	case tool.TaskEnded:
		c.taskEnded(ev.Info)
	}
}

// taskEnded tells that a task is over. The model hears of one in the background by
// a turn of its own, unless somebody stopped it; of one whose call waited for it
// the result of the call tells.
func (c *Conversation) taskEnded(info tool.TaskInfo) {
	status := info.Status
	if status == tool.TaskKilled {
		status = "stopped"
	}
	m := &wire.TaskNotification{TaskID: info.ID, RunID: info.RunID, ToolUseID: info.ToolUseID, Status: status,
		OutputFile: info.OutputFile, Summary: info.Summary}
	if !info.Background {
		m.OutputFile = ""
		c.rec.Emit(m)
		return
	}
	c.rec.Emit(&wire.TaskUpdated{TaskID: info.ID, RunID: info.RunID, Patch: wire.TaskPatch{Status: info.Status, EndTime: info.Ended.UnixMilli()}})
	c.rec.Emit(m)
	c.backgroundChanged()
	if c.unheard(info) {
		return
	}
	c.inbox = append(c.inbox, taskPrompt(info, ""))
}

// taskPrompt tells the model that a task in the background has ended.
func taskPrompt(info tool.TaskInfo, more string) *prompt {
	status := info.Status
	if status == tool.TaskKilled {
		status = "stopped"
	}
	text := fmt.Sprintf("The background task %s has ended (%s)", info.ID, status)
	if more != "" {
		text += ": " + info.Description + "\n" + more
	} else {
		text += ": " + info.Summary
	}
	if info.OutputFile != "" {
		text += "\nIts output is in " + info.OutputFile
	}
	return &prompt{m: wire.Prompt(wire.Text(text)), uuid: session.NewID(),
		origin: &wire.Origin{Kind: "task-notification", Producer: "session-task", RunID: info.RunID}}
}

// unheard reports whether the model need not be told that a task has ended: the
// conversation that it was of is gone, or whoever stopped it knows.
func (c *Conversation) unheard(info tool.TaskInfo) bool {
	return c.forgotten[info.ID] || info.Status == tool.TaskKilled && c.env.Tasks().Stopped(info.ID)
}

// Remark tells the model something that came up beside the conversation, by a turn of
// its own.
func (c *Conversation) Remark(text string) {
	c.inbox = append(c.inbox, &prompt{m: wire.Prompt(wire.Text(text)), uuid: session.NewID(), origin: &wire.Origin{Kind: "hook"}})
}

// TellTasks tells the host what runs in the background.
func (c *Conversation) TellTasks() { c.backgroundChanged() }

// backgroundChanged tells what runs in the background. It may be called from
// anywhere.
func (c *Conversation) backgroundChanged() {
	m := &wire.BackgroundTasksChanged{Tasks: []*wire.BackgroundTask{}}
	for _, info := range c.env.Tasks().Running() {
		m.Tasks = append(m.Tasks, &wire.BackgroundTask{TaskID: info.ID, RunID: info.RunID, TaskType: info.Kind, SubagentType: info.AgentType,
			Description: info.Description, ParentTaskID: info.Agent})
	}
	c.rec.Emit(m)
}
