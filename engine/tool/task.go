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

// The states of a task, as the protocol names them.
const (
	TaskRunning   = "running"
	TaskCompleted = "completed" // ended by itself, well
	TaskFailed    = "failed"    // ended by itself, badly
	TaskKilled    = "killed"    // was ended
)

// The kinds of tasks, as the protocol names them.
const (
	TaskBash  = "local_bash"
	TaskAgent = "local_agent"
)

// A TaskInfo says what a task is and how it stands.
type TaskInfo struct {
	ID          string // such as "b9f526abc"
	RunID       string
	ToolUseID   string // of the call that started it
	Agent       string // the subagent that started it; empty if the conversation itself did
	AgentType   string // of a subagent: what kind it is
	Kind        string // [TaskBash], [TaskAgent]
	Description string
	Command     string // of a shell task
	Background  bool   // whether it goes on beside the calls; false while its call waits for it
	Status      string // [TaskRunning], …
	ExitCode    *int   // of a shell task that ended by itself
	Started     time.Time
	Ended       time.Time // zero while it runs
	OutputFile  string    // where its output is; empty if it is nowhere on disk
	Summary     string    // one line about how it ended, for the model and for people
	Event       string    // of a command whose output is reported: the lines before its end
}

// A TaskOutput is what a task has said so far.
type TaskOutput struct {
	Text      string // the end of it
	Total     int64  // how many bytes it was in all
	Truncated bool   // whether Text is not all of it
}

// A Task is work that goes on beside the calls, or could: a command, a subagent. It
// is safe for concurrent use.
type Task interface {
	// Info says how the task stands.
	Info() TaskInfo
	// Output returns the end of what the task has said, at most limit bytes.
	Output(limit int) TaskOutput
	// Stop ends the task and returns when it has ended, within a few seconds.
	Stop()
	// Background lets the task go on beside the calls; the call that waits for
	// it returns. It reports whether there was one.
	Background() bool
	// Done is closed when the task has ended.
	Done() <-chan struct{}
}

// TaskStarted is the [Event] that a task began, or that a call has waited for its
// task so long that it is worth telling (Background is false then).
type TaskStarted struct{ Info TaskInfo }

// TaskUpdated is the [Event] that a reported task continues in the
// background.
type TaskUpdated struct{ Info TaskInfo }

// TaskPrinted is the [Event] that a command whose call waits for it has printed something.
type TaskPrinted struct {
	Info TaskInfo
	Tail string // the end of what it printed so far
}

// TaskReported is the [Event] that a command whose output is reported has printed lines, or
// that its time is over.
type TaskReported struct {
	Info TaskInfo
	Text string
}

// TaskEnded is the [Event] that a reported task has ended.
type TaskEnded struct{ Info TaskInfo }

// Tasks are the tasks of a conversation, those that ended included. Its zero value
// is empty; it is safe for concurrent use.
type Tasks struct {
	mu      sync.Mutex
	list    []Task
	stopped map[string]bool // somebody asked for their end
}

// keptTasks bounds how many tasks that ended are remembered.
const keptTasks = 256

// Add puts a task on the list. It takes the place of one with its id that has ended.
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

// Stop ends the task of an id because somebody asked for it, and returns when it
// has ended. It reports whether there is one.
func (t *Tasks) Stop(id string) bool {
	task, ok := t.Get(id)
	if !ok {
		return false
	}
	if task.Info().Status == TaskRunning {
		t.MarkStopped(id)
	}
	task.Stop()
	return true
}

// MarkStopped records that somebody asked for the end of a task.
func (t *Tasks) MarkStopped(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped == nil {
		t.stopped = map[string]bool{}
	}
	t.stopped[id] = true
}

// Stopped reports whether the task of an id was marked by [Tasks.Stop] or
// [Tasks.MarkStopped].
func (t *Tasks) Stopped(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stopped[id]
}

// All returns the tasks in the order they were added.
func (t *Tasks) All() []Task {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Task(nil), t.list...)
}

// Running returns what the tasks are that run in the background now.
func (t *Tasks) Running() []TaskInfo {
	var running []TaskInfo
	for _, task := range t.All() {
		if info := task.Info(); info.Background && info.Status == TaskRunning {
			running = append(running, info)
		}
	}
	return running
}

// RunningOf returns those of [Tasks.Running] that a subagent started, or the
// conversation itself with an empty id.
func (t *Tasks) RunningOf(agent string) []TaskInfo {
	return slices.DeleteFunc(t.Running(), func(info TaskInfo) bool { return info.Agent != agent })
}

// Background lets the running call of an id, or all with an empty one, go on in
// the background, what a subagent waits for before the subagent. It calls moved after
// each, if it is not nil, and returns how many there were.
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

// NewTaskID makes an id for a task: the prefix, which tells its kind, and eight
// digits. Shell tasks have "b".
func NewTaskID(prefix string) string { return prefix + digits() }

// NewRunID makes an id for one run of a task.
func NewRunID() string {
	at := strconv.FormatInt(time.Now().UnixMilli(), 36)
	return strings.Repeat("0", max(0, 9-len(at))) + at + "-" + digits()
}

func digits() string {
	var b [4]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}
