// Package tasklist implements the tools TaskCreate, TaskGet, TaskUpdate and TaskList, with which
// the model keeps a list of tasks to do.
//
// The list is stored in the [tool.Env] and shared with subagents.
package tasklist

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

//go:embed create.md
var createText string

//go:embed get.md
var getText string

//go:embed update.md
var updateText string

//go:embed list.md
var listText string

const createSchema = `{
	"type": "object",
	"properties": {
		"subject": {"type": "string", "description": "The task in a few words"},
		"description": {"type": "string", "description": "What it takes, in detail; the subject if missing"},
		"activeForm": {"type": "string", "description": "The subject in progress, such as \"Running the tests\""},
		"metadata": {"type": "object", "description": "Anything to keep with the task"}
	},
	"required": ["subject"]
}`

const getSchema = `{
	"type": "object",
	"properties": {"taskId": {"type": "string", "description": "The id of the task"}},
	"required": ["taskId"]
}`

const updateSchema = `{
	"type": "object",
	"properties": {
		"taskId": {"type": "string", "description": "The id of the task"},
		"subject": {"type": "string", "description": "Another subject"},
		"description": {"type": "string", "description": "Another description"},
		"activeForm": {"type": "string", "description": "Another active form"},
		"status": {"type": "string", "enum": ["pending", "in_progress", "completed", "deleted"], "description": "The new state; deleted removes the task"},
		"addBlocks": {"type": "array", "items": {"type": "string"}, "description": "Tasks that have to wait for this one"},
		"addBlockedBy": {"type": "array", "items": {"type": "string"}, "description": "Tasks that this one has to wait for"},
		"owner": {"type": "string", "description": "Who does it"},
		"metadata": {"type": "object", "description": "More to keep with the task; null removes a member"}
	},
	"required": ["taskId"]
}`

const listSchema = `{"type": "object", "properties": {}}`

// A Task is an item on the list.
type Task struct {
	ID          string         `json:"id"`
	Subject     string         `json:"subject"`
	Description string         `json:"description"`
	ActiveForm  string         `json:"activeForm,omitempty"`
	Status      string         `json:"status"` // "pending", "in_progress" or "completed"
	Owner       string         `json:"owner,omitempty"`
	Blocks      []string       `json:"blocks"`
	BlockedBy   []string       `json:"blockedBy"`
	Metadata    map[string]any `json:"metadata,omitempty"`
}

type list struct {
	mu    sync.Mutex
	last  int // the id of the newest task
	tasks []*Task
}

type listKey struct{}

func listOf(env *tool.Env) *list {
	return tool.Shared(env, listKey{}, func() *list { return new(list) })
}

// Of returns the tasks of a conversation, oldest first.
func Of(env *tool.Env) []Task {
	l := listOf(env)
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]Task, len(l.tasks))
	for i, t := range l.tasks {
		all[i] = *t
	}
	return all
}

// Restore restores the tasks of a resumed conversation.
func Restore(env *tool.Env, tasks []Task) {
	l := listOf(env)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tasks = nil
	for _, t := range tasks {
		if n, err := strconv.Atoi(t.ID); err == nil {
			l.last = max(l.last, n)
		}
		l.tasks = append(l.tasks, &t)
	}
}

func (l *list) find(id string) *Task {
	id = strings.TrimPrefix(id, "#")
	if i := slices.IndexFunc(l.tasks, func(t *Task) bool { return t.ID == id }); i >= 0 {
		return l.tasks[i]
	}
	return nil
}

// Tools returns the four tools.
func Tools() []tool.Tool {
	return []tool.Tool{
		&listTool{tool.Spec{Name: "TaskCreate", Description: createText, Schema: json.RawMessage(createSchema)}, run(create)},
		&listTool{tool.Spec{Name: "TaskGet", Description: getText, Schema: json.RawMessage(getSchema), ReadOnly: true}, run(get)},
		&listTool{tool.Spec{Name: "TaskUpdate", Description: updateText, Schema: json.RawMessage(updateSchema)}, run(update)},
		&listTool{tool.Spec{Name: "TaskList", Description: listText, Schema: json.RawMessage(listSchema), ReadOnly: true}, run(show)},
	}
}

// A listTool is one of the tools.
type listTool struct {
	spec tool.Spec
	run  func(*tool.Call) (*tool.Result, error)
}

func run[In any](f func(*tool.Call, *list, *In) *tool.Result) func(*tool.Call) (*tool.Result, error) {
	return func(call *tool.Call) (*tool.Result, error) {
		var in In
		if err := tool.Decode(call.Input, &in); err != nil {
			return nil, err
		}
		l := listOf(call.Env)
		l.mu.Lock()
		defer l.mu.Unlock()
		return f(call, l, &in), nil
	}
}

// blocked runs hooks about a task. The list is unlocked meanwhile.
func (l *list) blocked(call *tool.Call, in wire.HookInput) (feedback string, blocked bool) {
	l.mu.Unlock()
	defer l.mu.Lock()
	reason, blocked := call.Blocked(in)
	return string(in.Event()) + " hook feedback:\n" + reason, blocked
}

// Spec implements [tool.Tool].
func (t *listTool) Spec() *tool.Spec { return &t.spec }

// Access returns nothing: the list belongs to the conversation.
func (t *listTool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

// Run reads or changes the list.
func (t *listTool) Run(_ context.Context, call *tool.Call) (*tool.Result, error) {
	return t.run(call)
}

type createInput struct {
	Subject     string         `json:"subject"`
	Description *string        `json:"description"`
	ActiveForm  string         `json:"activeForm"`
	Metadata    map[string]any `json:"metadata"`
}

func create(call *tool.Call, l *list, in *createInput) *tool.Result {
	l.last++
	t := &Task{ID: strconv.Itoa(l.last), Subject: in.Subject, Description: *cmp.Or(in.Description, &in.Subject), ActiveForm: in.ActiveForm, Status: "pending",
		Blocks: []string{}, BlockedBy: []string{}, Metadata: in.Metadata}
	if feedback, blocked := l.blocked(call, &wire.TaskCreatedInput{TaskID: t.ID, TaskSubject: t.Subject, TaskDescription: t.Description}); blocked {
		return tool.Failed(errors.New(feedback))
	}
	l.tasks = append(l.tasks, t)
	return tool.Text(fmt.Sprintf("Task #%s created successfully: %s", t.ID, t.Subject),
		map[string]any{"task": map[string]string{"id": t.ID, "subject": t.Subject, "description": t.Description}})
}

type getInput struct {
	TaskID string `json:"taskId"`
}

func get(_ *tool.Call, l *list, in *getInput) *tool.Result {
	t := l.find(in.TaskID)
	if t == nil {
		return tool.Text("Task not found", map[string]any{"task": nil})
	}
	text := fmt.Sprintf("Task #%s: %s\nStatus: %s\nDescription: %s", t.ID, t.Subject, t.Status, t.Description)
	if len(t.BlockedBy) > 0 {
		text += "\nBlocked by: " + ids(t.BlockedBy)
	}
	if len(t.Blocks) > 0 {
		text += "\nBlocks: " + ids(t.Blocks)
	}
	return tool.Text(text, map[string]any{"task": map[string]any{"id": t.ID, "subject": t.Subject, "description": t.Description, "status": t.Status,
		"blocks": slices.Clone(t.Blocks), "blockedBy": slices.Clone(t.BlockedBy)}})
}

func ids(list []string) string { return "#" + strings.Join(list, ", #") }

type updateInput struct {
	TaskID       string         `json:"taskId"`
	Subject      *string        `json:"subject"`
	Description  *string        `json:"description"`
	ActiveForm   *string        `json:"activeForm"`
	Status       *string        `json:"status"`
	Owner        *string        `json:"owner"`
	AddBlocks    []string       `json:"addBlocks"`
	AddBlockedBy []string       `json:"addBlockedBy"`
	Metadata     map[string]any `json:"metadata"`
}

// An Update is the structured result of TaskUpdate.
type Update struct {
	Success       bool              `json:"success"`
	TaskID        string            `json:"taskId"`
	UpdatedFields []string          `json:"updatedFields"`
	Error         string            `json:"error,omitempty"`
	StatusChange  map[string]string `json:"statusChange,omitempty"`
}

func update(call *tool.Call, l *list, in *updateInput) *tool.Result {
	t := l.find(in.TaskID)
	if t != nil && in.Status != nil && *in.Status == "completed" && t.Status != "completed" {
		feedback, blocked := l.blocked(call, &wire.TaskCompletedInput{TaskID: t.ID, TaskSubject: t.Subject, TaskDescription: t.Description})
		if blocked {
			return tool.Text(feedback, &Update{TaskID: t.ID, UpdatedFields: []string{}, Error: feedback})
		}
		t = l.find(in.TaskID) // another call may have removed it meanwhile
	}
	if t == nil {
		return tool.Text("Task not found", &Update{TaskID: in.TaskID, UpdatedFields: []string{}, Error: "Task not found"})
	}
	out := &Update{Success: true, TaskID: t.ID, UpdatedFields: []string{}}
	set := func(name string, field *string, value *string) {
		if value != nil && *value != *field {
			*field = *value
			out.UpdatedFields = append(out.UpdatedFields, name)
		}
	}
	set("subject", &t.Subject, in.Subject)
	set("description", &t.Description, in.Description)
	set("activeForm", &t.ActiveForm, in.ActiveForm)
	set("owner", &t.Owner, in.Owner)
	if len(in.Metadata) > 0 {
		t.Metadata = maps.Clone(t.Metadata)
		if t.Metadata == nil {
			t.Metadata = map[string]any{}
		}
		for k, v := range in.Metadata {
			if t.Metadata[k] = v; v == nil {
				delete(t.Metadata, k)
			}
		}
		out.UpdatedFields = append(out.UpdatedFields, "metadata")
	}
	if in.Status != nil && *in.Status != t.Status {
		out.StatusChange = map[string]string{"from": t.Status, "to": *in.Status}
		if *in.Status == "deleted" {
			l.remove(t)
			out.UpdatedFields = append(out.UpdatedFields, "deleted")
			return tool.Text("Updated task #"+t.ID+" deleted", out)
		}
		set("status", &t.Status, in.Status)
	}
	if l.block(t, in.AddBlocks, func(other *Task) (*Task, *Task) { return t, other }) {
		out.UpdatedFields = append(out.UpdatedFields, "blocks")
	}
	if l.block(t, in.AddBlockedBy, func(other *Task) (*Task, *Task) { return other, t }) {
		out.UpdatedFields = append(out.UpdatedFields, "blockedBy")
	}
	return tool.Text("Updated task #"+t.ID+" "+strings.Join(out.UpdatedFields, ", "), out)
}

// block makes tasks block each other; order returns the blocking task, then the blocked one. It
// reports whether that changed anything.
func (l *list) block(t *Task, with []string, order func(other *Task) (first, second *Task)) bool {
	changed := false
	for _, id := range with {
		other := l.find(id)
		if other == nil || other == t {
			continue
		}
		first, second := order(other)
		if !slices.Contains(first.Blocks, second.ID) {
			first.Blocks = append(slices.Clone(first.Blocks), second.ID)
			second.BlockedBy = append(slices.Clone(second.BlockedBy), first.ID)
			changed = true
		}
	}
	return changed
}

func (l *list) remove(t *Task) {
	l.tasks = slices.DeleteFunc(l.tasks, func(other *Task) bool { return other == t })
	for _, other := range l.tasks {
		is := func(id string) bool { return id == t.ID }
		other.Blocks = slices.DeleteFunc(slices.Clone(other.Blocks), is)
		other.BlockedBy = slices.DeleteFunc(slices.Clone(other.BlockedBy), is)
	}
}

func show(_ *tool.Call, l *list, _ *struct{}) *tool.Result {
	type row struct {
		ID        string   `json:"id"`
		Subject   string   `json:"subject"`
		Status    string   `json:"status"`
		Owner     string   `json:"owner,omitempty"`
		BlockedBy []string `json:"blockedBy"`
	}
	rows := []row{}
	var b strings.Builder
	for _, t := range l.tasks {
		waits := []string{}
		for _, id := range t.BlockedBy {
			if other := l.find(id); other != nil && other.Status != "completed" {
				waits = append(waits, id)
			}
		}
		rows = append(rows, row{t.ID, t.Subject, t.Status, t.Owner, waits})
		fmt.Fprintf(&b, "#%s [%s] %s", t.ID, t.Status, t.Subject)
		if t.Owner != "" {
			fmt.Fprintf(&b, " (%s)", t.Owner)
		}
		if len(waits) > 0 {
			fmt.Fprintf(&b, " [blocked by %s]", ids(waits))
		}
		b.WriteByte('\n')
	}
	text := strings.TrimSuffix(b.String(), "\n")
	if text == "" {
		text = "No tasks found"
	}
	return tool.Text(text, map[string]any{"tasks": rows})
}
