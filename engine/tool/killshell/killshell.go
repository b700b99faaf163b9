// Package killshell implements the tool TaskStop, formerly KillShell, which stops a task in the
// background.
package killshell

import (
	"context"
	_ "embed"
	"encoding/json"
	"strings"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/taskoutput"
)

//go:embed killshell.md
var description string

const schema = `{
	"type": "object",
	"properties": {
		"task_id": {"type": "string", "description": "The id of the task to stop"},
		"shell_id": {"type": "string", "description": "Old name of task_id"}
	}
}`

// Tool is the tool TaskStop.
type Tool struct{ spec tool.Spec }

// New returns the tool.
func New() *Tool {
	return &Tool{spec: tool.Spec{Name: "TaskStop", Aliases: []string{"KillShell", "KillBash"}, Description: description, Schema: json.RawMessage(schema)}}
}

// Input is the input of the tool.
type Input struct {
	TaskID  string `json:"task_id"`
	ShellID string `json:"shell_id"`
}

// Output is the structured result.
type Output struct {
	Message  string `json:"message"`
	TaskID   string `json:"task_id"`
	TaskType string `json:"task_type"`
	Command  string `json:"command,omitempty"` // of an agent, its description
}

// Spec implements [tool.Tool].
func (t *Tool) Spec() *tool.Spec { return &t.spec }

// Access returns nothing: the task belongs to the conversation.
func (t *Tool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

// Check implements [tool.Checker].
func (t *Tool) Check(_ context.Context, call *tool.Call) error {
	_, err := find(call)
	return err
}

// find returns the running task that a call names.
func find(call *tool.Call) (tool.Task, error) {
	var in Input
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	id := in.TaskID
	if id == "" {
		id = in.ShellID
	}
	if id == "" {
		return nil, tool.Misuse("Missing required parameter: task_id")
	}
	task, ok := call.Env.Tasks().Get(id)
	if !ok {
		return nil, taskoutput.NotFound(call.Env, id)
	}
	if info := task.Info(); info.Status != tool.TaskRunning {
		return nil, tool.Misuse("Task %s is not running (status: %s)", id, info.Status)
	}
	return task, nil
}

// Run stops the task.
func (t *Tool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	task, err := find(call)
	if err != nil {
		return nil, err
	}
	call.Env.Tasks().Dismiss(task.Info().ID)
	info := task.Info()
	what := info.Command
	if what == "" {
		what = info.Description
	}
	message := "Successfully stopped task: " + info.ID + " (" + what + ")"
	out := &Output{Message: message, TaskID: info.ID, TaskType: info.Kind, Command: what}
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // keep the command readable
	if err := e.Encode(out); err != nil {
		return nil, err
	}
	return tool.Text(strings.TrimSpace(text.String()), out), nil
}
