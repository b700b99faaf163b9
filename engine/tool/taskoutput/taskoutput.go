// Package taskoutput implements the tool TaskOutput, which returns the output of a task
// in the background.
package taskoutput

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/tool"
)

//go:embed taskoutput.md
var description string

const schema = `{
	"type": "object",
	"properties": {
		"task_id": {"type": "string", "description": "The id of the task"},
		"block": {"type": "boolean", "description": "Whether to wait for the task to end; default true"},
		"timeout": {"type": "number", "minimum": 0, "maximum": 600000, "description": "How long to wait, in milliseconds"}
	}
}`

// maxOutput is how many bytes of output are sent to the model.
const maxOutput = 30_000

// Tool is the tool TaskOutput.
type Tool struct{ spec tool.Spec }

// New returns the tool.
func New() *Tool {
	return &Tool{spec: tool.Spec{Name: "TaskOutput", Aliases: []string{"BashOutput", "AgentOutputTool", "BashOutputTool"}, Description: description, Schema: json.RawMessage(schema), ReadOnly: true}}
}

// Input is the input of the tool.
type Input struct {
	TaskID  string     `json:"task_id"`
	BashID  string     `json:"bash_id"` // former name of task_id
	Block   *tool.Bool `json:"block"`
	Timeout *tool.Int  `json:"timeout"`
}

// Output is the structured result.
type Output struct {
	RetrievalStatus string `json:"retrieval_status"` // "success", "not_ready" or "timeout"
	Task            Task   `json:"task"`
}

// Task is the status of the task.
type Task struct {
	TaskID      string `json:"task_id"`
	TaskType    string `json:"task_type"`
	Status      string `json:"status"`
	Description string `json:"description"`
	Output      string `json:"output"`
	OutputFile  string `json:"outputFile,omitempty"`
	ExitCode    *int   `json:"exitCode,omitempty"`
}

// Spec implements [tool.Tool].
func (t *Tool) Spec() *tool.Spec { return &t.spec }

// Access returns nothing: the task belongs to the conversation.
func (t *Tool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

// Run waits for the task, if requested, and returns its output.
func (t *Tool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	var in Input
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	id := in.TaskID + in.BashID
	if id == "" {
		return nil, tool.Misuse("Missing required parameter: task_id")
	}
	task, ok := call.Env.Tasks().Get(id)
	if !ok {
		return nil, NotFound(call.Env, id)
	}
	status := "success"
	if in.Block == nil || bool(*in.Block) {
		wait := 30 * time.Second
		if in.Timeout != nil {
			wait = time.Duration(*in.Timeout) * time.Millisecond
		}
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-task.Done():
		case <-timer.C:
			status = "timeout"
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	info, said := task.Info(), task.Output(maxOutput)
	if status == "success" && info.Status == tool.TaskRunning {
		status = "not_ready"
	}
	text := strings.TrimRight(said.Text, " \t\r\n")
	var b strings.Builder
	fmt.Fprintf(&b, "<retrieval_status>%s</retrieval_status>\n\n<task_id>%s</task_id>\n\n<task_type>%s</task_type>\n\n<status>%s</status>", status, info.ID, info.Kind, info.Status)
	if info.ExitCode != nil {
		fmt.Fprintf(&b, "\n\n<exit_code>%d</exit_code>", *info.ExitCode)
	}
	if text != "" {
		if said.Truncated {
			text = fmt.Sprintf("[The last %d of %d bytes. All of it: %s]\n", len(said.Text), said.Total, info.OutputFile) + text
		}
		fmt.Fprintf(&b, "\n\n<output>\n%s\n</output>", text)
	}
	return tool.Text(b.String(), &Output{RetrievalStatus: status, Task: Task{
		TaskID: info.ID, TaskType: info.Kind, Status: info.Status, Description: info.Description, Output: text, OutputFile: info.OutputFile, ExitCode: info.ExitCode,
	}}), nil
}

// NotFound returns the error for an unknown id, with the ids of all tasks.
func NotFound(env *tool.Env, id string) error {
	var ids []string
	for _, info := range env.Tasks().Running() {
		ids = append(ids, info.ID)
	}
	if len(ids) == 0 {
		return tool.Misuse("No task found with ID: %s", id)
	}
	return tool.Misuse("No task found with ID: %s. Running in the background: %s", id, strings.Join(ids, ", "))
}
