package crew

import (
	"fmt"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// A Watch follows the tasks of a conversation: it reports them to the host, and queues a prompt
// when a background task has ended.
type Watch struct {
	Env  *tool.Env
	Emit func(wire.Message)
	Now  func() time.Time
	Do   func(func()) bool // runs a function in the goroutine that owns the conversation
	// AddPrompt queues a prompt for the model. It is called by the goroutine that owns the
	// conversation.
	AddPrompt func(text string, origin *wire.Origin)

	Reports Pending // events that are not reported yet

	forgotten map[string]bool // tasks that /clear ended; used by the owner only

	mu     sync.Mutex
	events []tool.Event // not reported yet
}

// Notify receives an event of a task. It is called by tools, which must not wait for the
// conversation.
func (w *Watch) Notify(ev tool.Event) {
	w.mu.Lock()
	w.events = append(w.events, ev)
	w.mu.Unlock()
	w.Reports.Begin()
	go func() {
		defer w.Reports.End()
		w.Do(w.Report)
	}()
}

// Report reports the events so far. Events before the end of a call are reported before its
// result. It is called by the goroutine that owns the conversation.
func (w *Watch) Report() {
	w.mu.Lock()
	events := w.events
	w.events = nil
	w.mu.Unlock()
	for _, ev := range events {
		w.report(ev)
	}
}

// reportLater is Report for goroutines other than the owner's.
func (w *Watch) reportLater() {
	w.mu.Lock()
	n := len(w.events)
	w.mu.Unlock()
	if n > 0 {
		w.Do(w.Report)
	}
}

func (w *Watch) report(ev tool.Event) {
	switch ev := ev.(type) {
	case tool.TaskStarted:
		info := ev.Info
		if info.Background {
			w.Changed()
		}
		w.Emit(&wire.TaskStarted{TaskID: info.ID, RunID: info.RunID, ToolUseID: info.ToolUseID, Description: info.Description,
			IsBackgrounded: &info.Background, TaskType: info.Kind})
	case tool.TaskUpdated:
		info := ev.Info
		w.Changed()
		w.Emit(&wire.TaskUpdated{TaskID: info.ID, RunID: info.RunID, Patch: wire.TaskPatch{IsBackgrounded: &info.Background}})
	case tool.TaskPrinted:
		info := ev.Info
		w.Emit(&wire.ToolProgress{ToolUseID: info.ToolUseID, ToolName: "Bash", Output: ev.Tail,
			ElapsedTimeSeconds: w.Now().Sub(info.Started).Round(time.Second).Seconds()})
	case tool.TaskReported:
		if !w.forgotten[ev.Info.ID] {
			w.AddPrompt(fmt.Sprintf("The monitor %s (%s) reports:\n%s", ev.Info.ID, ev.Info.Description, ev.Text), &wire.Origin{Kind: "task-notification", Producer: "session-task"})
		}
	case tool.TaskEnded:
		w.reportEnd(ev.Info)
	}
}

// reportEnd reports that a task has ended. If it ran in the background, the model gets a separate
// turn about it, unless the task was stopped; otherwise the result of the call reports it.
func (w *Watch) reportEnd(info tool.TaskInfo) {
	m := &wire.TaskNotification{TaskID: info.ID, RunID: info.RunID, ToolUseID: info.ToolUseID, Status: statusOf(info),
		OutputFile: info.OutputFile, Summary: info.Summary}
	if !info.Background {
		m.OutputFile = ""
		w.Emit(m)
		return
	}
	w.Emit(&wire.TaskUpdated{TaskID: info.ID, RunID: info.RunID, Patch: wire.TaskPatch{Status: info.Status, EndTime: info.Ended.UnixMilli()}})
	w.Emit(m)
	w.Changed()
	w.addPrompt(info, nil)
}

// statusOf returns the status of an ended task, as hosts name it.
func statusOf(info tool.TaskInfo) string {
	if info.Status == tool.TaskKilled {
		return "stopped"
	}
	return info.Status
}

// addPrompt queues a prompt that reports the end of a background task to the model, with the
// report of a subagent. It does nothing if the task's conversation is gone, or if the model
// stopped the task itself.
func (w *Watch) addPrompt(info tool.TaskInfo, report func() string) {
	if w.forgotten[info.ID] || info.Status == tool.TaskKilled && w.Env.Tasks().Stopped(info.ID) {
		return
	}
	text := fmt.Sprintf("The background task %s has ended (%s): ", info.ID, statusOf(info))
	if report != nil {
		text += info.Description + "\n" + report()
	} else {
		text += info.Summary
	}
	if info.Event != "" {
		text += "\nIts last lines:\n" + info.Event
	}
	if info.OutputFile != "" {
		text += "\nIts output is in " + info.OutputFile
	}
	w.AddPrompt(text, &wire.Origin{Kind: "task-notification", Producer: "session-task", RunID: info.RunID})
}

// Forget suppresses the prompt about the end of a task. It is called by the goroutine that owns
// the conversation.
func (w *Watch) Forget(id string) {
	if w.forgotten == nil {
		w.forgotten = map[string]bool{}
	}
	w.forgotten[id] = true
}

// Changed emits the list of background tasks to the host. It may be called from any goroutine.
func (w *Watch) Changed() {
	w.Env.Tasks().ReportRunning(func(running []tool.TaskInfo) {
		m := &wire.BackgroundTasksChanged{Tasks: []*wire.BackgroundTask{}}
		for _, info := range running {
			m.Tasks = append(m.Tasks, &wire.BackgroundTask{TaskID: info.ID, RunID: info.RunID, TaskType: info.Kind, SubagentType: info.AgentType,
				Description: info.Description, ParentTaskID: info.Agent})
		}
		w.Emit(m)
	})
}
