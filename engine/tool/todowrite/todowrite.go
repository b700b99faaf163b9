// Package todowrite implements the tool TodoWrite, with which the model keeps a list of
// things to do.
//
// The list is stored in the [tool.Env]; [Of] returns it.
package todowrite

import (
	"context"
	_ "embed"
	"encoding/json"
	"sync"

	"github.com/parley-go/parley/engine/tool"
)

//go:embed todowrite.md
var description string

const schema = `{
	"type": "object",
	"properties": {
		"todos": {
			"type": "array",
			"description": "The whole list",
			"items": {
				"type": "object",
				"properties": {
					"content": {"type": "string", "description": "The task, such as \"Run the tests\""},
					"status": {"type": "string", "enum": ["pending", "in_progress", "completed"], "description": "The state of the task"},
					"activeForm": {"type": "string", "description": "The task in progress, such as \"Running the tests\""}
				},
				"required": ["content", "status"]
			}
		},
		"subject": {"type": "string", "description": "One task to add, instead of the whole list"},
		"description": {"type": "string", "description": "More about the subject"}
	}
}`

// Tool is the tool TodoWrite.
type Tool struct{ spec tool.Spec }

// New returns the tool.
func New() *Tool {
	return &Tool{spec: tool.Spec{Name: "TodoWrite", Description: description, Schema: json.RawMessage(schema)}}
}

// A Todo is an item on the list.
type Todo struct {
	Content    string `json:"content"`
	Status     string `json:"status"` // "pending", "in_progress" or "completed"
	ActiveForm string `json:"activeForm"`
}

// Input is the input of the tool: a list, or one item to add to it.
type Input struct {
	Todos       *[]Todo `json:"todos"`
	Subject     string  `json:"subject"`
	Description string  `json:"description"`
	ActiveForm  string  `json:"activeForm"`
}

// Output is the structured result.
type Output struct {
	OldTodos []Todo `json:"oldTodos"`
	NewTodos []Todo `json:"newTodos"`
}

type list struct {
	mu    sync.Mutex
	todos []Todo
}

type listKey struct{}

func listOf(env *tool.Env) *list {
	return tool.Value(env, listKey{}, func() *list { return new(list) })
}

// Of returns the list of a conversation.
func Of(env *tool.Env) []Todo {
	l := listOf(env)
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Todo{}, l.todos...)
}

// Set replaces the list of a conversation, for example when one is resumed.
func Set(env *tool.Env, todos []Todo) {
	l := listOf(env)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.todos = append([]Todo{}, todos...)
}

// Spec implements [tool.Tool].
func (t *Tool) Spec() *tool.Spec { return &t.spec }

// Access returns nothing: the list belongs to the conversation.
func (t *Tool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

// Run replaces the list.
func (t *Tool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	var in Input
	if err := tool.Decode(call.Input, &in); err != nil {
		return nil, err
	}
	if in.Todos == nil && in.Subject == "" {
		return nil, tool.Invalid(&t.spec, tool.Issue{Code: "invalid_type", Expected: "array", Path: []any{"todos"}, Message: "The required parameter `todos` is missing (The whole list)"})
	}
	l := listOf(call.Env)
	l.mu.Lock()
	defer l.mu.Unlock()
	old := append([]Todo{}, l.todos...)
	if in.Todos != nil {
		l.todos = append([]Todo{}, *in.Todos...)
	}
	if in.Subject != "" {
		l.todos = append(l.todos, Todo{Content: in.Subject, Status: "pending", ActiveForm: in.ActiveForm})
	}
	open := 0
	for i, todo := range l.todos {
		if todo.ActiveForm == "" {
			l.todos[i].ActiveForm = todo.Content
		}
		if todo.Status != "completed" {
			open++
		}
	}
	out := &Output{OldTodos: old, NewTodos: append([]Todo{}, l.todos...)}
	if open == 0 {
		l.todos = nil // a completed list is cleared
	}
	return tool.Text("The list has been updated. Keep it current, and continue with the next task.", out), nil
}
