package tool

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// States of a task, as the protocol names them.
const (
	TaskRunning   = "running"
	TaskCompleted = "completed" // it ended successfully
	TaskFailed    = "failed"    // it ended with a failure
	TaskKilled    = "killed"    // it was stopped
)

// Kinds of tasks, as the protocol names them.
const (
	TaskBash  = "local_bash"
	TaskAgent = "local_agent"
)

// A TaskInfo describes a task and its status.
type TaskInfo struct {
	ID          string // such as "b9f526abc"
	RunID       string
	ToolUseID   string // of the call that started it
	Agent       string // id of the subagent that started it; empty if the conversation itself did
	AgentType   string // type of a subagent
	Kind        string // [TaskBash], [TaskAgent]
	Description string
	Command     string // of a shell task
	Background  bool   // it runs beside the calls; false while its call waits for it
	Status      string // [TaskRunning], …
	ExitCode    *int   // of a shell task that was not stopped
	Started     time.Time
	Ended       time.Time // zero while it runs
	OutputFile  string    // file with its output; empty if it is not on disk
	Summary     string    // one line about its end, for the model and for people
	Event       string    // for a monitored command: the lines before its end
}

// A TaskOutput is the output of a task so far.
type TaskOutput struct {
	Text      string // the end of the output
	Total     int64  // total size in bytes
	Truncated bool   // Text is not the whole output
}

// A Task is work that can outlast its call: a command or a subagent. It is safe for
// concurrent use.
type Task interface {
	// Info returns the status of the task.
	Info() TaskInfo
	// Output returns the end of the task's output, at most limit bytes.
	Output(limit int) TaskOutput
	// Stop stops the task and returns when it has ended, within a few seconds.
	Stop()
	// Background moves the task to the background; the call that waits for it returns. It
	// reports whether there was such a call.
	Background() bool
	// Done returns a channel that is closed when the task has ended.
	Done() <-chan struct{}
}

// TaskStarted is the [Event] that a task has started, or that a call has waited for its
// task long enough to report it (Background is false then).
type TaskStarted struct{ Info TaskInfo }

// TaskUpdated is the [Event] that a reported task continues in the
// background.
type TaskUpdated struct{ Info TaskInfo }

// TaskPrinted is the [Event] that a command has printed something while its call waits.
type TaskPrinted struct {
	Info TaskInfo
	Tail string // the end of its output so far
}

// TaskReported is the [Event] that a monitored command has printed lines, or that its time
// is over.
type TaskReported struct {
	Info TaskInfo
	Text string
}

// TaskEnded is the [Event] that a reported task has ended.
type TaskEnded struct{ Info TaskInfo }

// Tasks is the list of tasks of a conversation, including those that have ended. Its zero
// value is empty; it is safe for concurrent use.
type Tasks struct {
	listing sync.Mutex // held while a list is reported; locked before mu

	mu      sync.Mutex
	list    []Task
	stopped map[string]bool // tasks that were stopped on request
}

// keptTasks is how many ended tasks are remembered.
const keptTasks = 256

// Add adds a task to the list. It replaces an ended one with the same id.
func (t *Tasks) Add(task Task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := task.Info().ID
	delete(t.stopped, id)
	t.list = slices.DeleteFunc(t.list, func(old Task) bool {
		info := old.Info()
		return info.ID == id && info.Status != TaskRunning
	})
	t.list = append(t.list, task)
	if len(t.list) <= keptTasks {
		return
	}
	for i, old := range t.list {
		if old.Info().Status != TaskRunning {
			t.list = append(t.list[:i:i], t.list[i+1:]...)
			return
		}
	}
}

// Get finds a task by its id.
func (t *Tasks) Get(id string) (Task, bool) {
	for _, task := range t.All() {
		if task.Info().ID == id {
			return task, true
		}
	}
	return nil, false
}

// Dismiss is [Tasks.Stop] for the model that started the task.
func (t *Tasks) Dismiss(id string) bool {
	return t.stop(id, func(task Task) {
		if d, ok := task.(interface{ Dismiss() }); ok {
			d.Dismiss()
			return
		}
		task.Stop()
	})
}

// Stop stops the task with an id on request, and returns when it has ended. It reports
// whether there is one.
func (t *Tasks) Stop(id string) bool { return t.stop(id, Task.Stop) }

func (t *Tasks) stop(id string, stop func(Task)) bool {
	task, ok := t.Get(id)
	if !ok {
		return false
	}
	if info := task.Info(); info.Status == TaskRunning && info.Kind != TaskAgent { // the model expects the report of an agent
		t.MarkStopped(id)
	}
	stop(task)
	return true
}

// MarkStopped records that a task is stopped on request.
func (t *Tasks) MarkStopped(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped == nil {
		t.stopped = map[string]bool{}
	}
	t.stopped[id] = true
}

// Stopped reports whether the task with an id was marked by [Tasks.Stop] or
// [Tasks.MarkStopped].
func (t *Tasks) Stopped(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stopped[id]
}

// All returns the tasks in the order in which they were added.
func (t *Tasks) All() []Task {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Task(nil), t.list...)
}

// Running returns the tasks that run in the background now.
func (t *Tasks) Running() []TaskInfo {
	var running []TaskInfo
	for _, task := range t.All() {
		if info := task.Info(); info.Background && info.Status == TaskRunning {
			running = append(running, info)
		}
	}
	return running
}

// ReportRunning calls report with the tasks that run in the background now. The last call has the
// last list, whichever goroutines report at the same time.
func (t *Tasks) ReportRunning(report func([]TaskInfo)) {
	t.listing.Lock()
	defer t.listing.Unlock()
	report(t.Running())
}

// RunningOf returns the tasks of [Tasks.Running] that a subagent started, or the
// conversation itself if the id is empty.
func (t *Tasks) RunningOf(agent string) []TaskInfo {
	return slices.DeleteFunc(t.Running(), func(info TaskInfo) bool { return info.Agent != agent })
}

// Background moves the running call with an id to the background, or all calls if the id is
// empty; a call that a subagent waits for comes before the subagent. It calls moved, if not
// nil, after each, and returns how many there were.
func (t *Tasks) Background(toolUseID string, moved func()) int {
	n := 0
	for _, task := range slices.Backward(t.All()) {
		if toolUseID == "" || task.Info().ToolUseID == toolUseID {
			if task.Background() {
				n++
				if moved != nil {
					moved()
				}
			}
		}
	}
	return n
}

// NewTaskID returns an id for a task: the prefix, which identifies its kind, and eight
// digits. Shell tasks have "b".
func NewTaskID(prefix string) string { return prefix + digits() }

// NewRunID returns an id for one run of a task.
func NewRunID() string {
	at := strconv.FormatInt(time.Now().UnixMilli(), 36)
	return strings.Repeat("0", max(0, 9-len(at))) + at + "-" + digits()
}

func digits() string {
	var b [4]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
