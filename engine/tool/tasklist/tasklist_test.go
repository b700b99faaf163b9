package tasklist_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/tasklist"
	"github.com/parley-go/parley/wire"
)

// TestTaskTools checks that the results of the tools, for the model and for programs, are those of
// the official command.
func TestTaskTools(t *testing.T) {
	env := &tool.Env{}
	tools := map[string]tool.Tool{}
	for _, tl := range tasklist.Tools() {
		tools[tl.Spec().Name] = tl
	}
	for _, step := range []struct{ tool, input, text, structured string }{
		{"TaskList", `{}`, "No tasks found", `{"tasks":[]}`},
		{"TaskCreate", `{"subject":"Fix it","description":"Fix the bug","activeForm":"Fixing it"}`, "Task #1 created successfully: Fix it", `{"task":{"description":"Fix the bug","id":"1","subject":"Fix it"}}`},
		{"TaskCreate", `{"subject":"Test it","description":"Run tests","metadata":{"a":1}}`, "Task #2 created successfully: Test it", `{"task":{"description":"Run tests","id":"2","subject":"Test it"}}`},
		{"TaskUpdate", `{"taskId":"1","status":"in_progress","owner":"me"}`, "Updated task #1 owner, status", `{"success":true,"taskId":"1","updatedFields":["owner","status"],"statusChange":{"from":"pending","to":"in_progress"}}`},
		{"TaskUpdate", `{"taskId":"2","addBlockedBy":["1"]}`, "Updated task #2 blockedBy", `{"success":true,"taskId":"2","updatedFields":["blockedBy"]}`},
		{"TaskGet", `{"taskId":"2"}`, "Task #2: Test it\nStatus: pending\nDescription: Run tests\nBlocked by: #1", `{"task":{"blockedBy":["1"],"blocks":[],"description":"Run tests","id":"2","status":"pending","subject":"Test it"}}`},
		{"TaskGet", `{"taskId":"9"}`, "Task not found", `{"task":null}`},
		{"TaskList", `{}`, "#1 [in_progress] Fix it (me)\n#2 [pending] Test it [blocked by #1]", `{"tasks":[{"id":"1","subject":"Fix it","status":"in_progress","owner":"me","blockedBy":[]},{"id":"2","subject":"Test it","status":"pending","blockedBy":["1"]}]}`},
		{"TaskUpdate", `{"taskId":"1","status":"completed"}`, "Updated task #1 status", `{"success":true,"taskId":"1","updatedFields":["status"],"statusChange":{"from":"in_progress","to":"completed"}}`},
		{"TaskList", `{}`, "#1 [completed] Fix it (me)\n#2 [pending] Test it", ``},
		{"TaskUpdate", `{"taskId":"1","status":"deleted"}`, "Updated task #1 deleted", `{"success":true,"taskId":"1","updatedFields":["deleted"],"statusChange":{"from":"completed","to":"deleted"}}`},
		{"TaskUpdate", `{"taskId":"7","status":"completed"}`, "Task not found", `{"success":false,"taskId":"7","updatedFields":[],"error":"Task not found"}`},
		{"TaskGet", `{"taskId":"2"}`, "Task #2: Test it\nStatus: pending\nDescription: Run tests", ``},
		{"TaskCreate", `{"subject":"Last"}`, "Task #3 created successfully: Last", `{"task":{"description":"Last","id":"3","subject":"Last"}}`},
	} {
		r, err := tools[step.tool].Run(t.Context(), &tool.Call{Input: json.RawMessage(step.input), Env: env})
		if err != nil {
			t.Fatalf("%s %s: %v", step.tool, step.input, err)
		}
		if got := r.Content.String(); got != step.text {
			t.Errorf("%s %s: %q, want %q", step.tool, step.input, got, step.text)
		}
		if got, _ := json.Marshal(r.Structured); step.structured != "" && string(got) != step.structured {
			t.Errorf("%s %s: %s, want %s", step.tool, step.input, got, step.structured)
		}
	}
	other := &tool.Env{}
	tasklist.Restore(other, tasklist.Of(env))
	if got := tasklist.Of(other); len(got) != 2 || got[1].Subject != "Last" {
		t.Errorf("restored %+v", got)
	}
}

// Hooks can block the creation and the completion of a task.
func TestHooksBlock(t *testing.T) {
	env := new(tool.Env)
	block := true
	var asked []wire.HookEvent
	run := func(n int, input string) *tool.Result {
		t.Helper()
		r, err := tasklist.Tools()[n].Run(t.Context(), &tool.Call{Env: env, Input: json.RawMessage(input), Hooks: func(in wire.HookInput) (string, bool) {
			asked = append(asked, in.Event())
			return "NOT YET", block
		}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const create, update = 0, 2
	if r := run(create, `{"subject":"Walk","description":"Far"}`); !r.IsError || !strings.Contains(r.Content.String(), "NOT YET") || len(tasklist.Of(env)) != 0 {
		t.Errorf("a blocked task: %+v, the list has %d", r, len(tasklist.Of(env)))
	}
	block = false
	run(create, `{"subject":"Run","description":"Fast"}`)
	block = true
	if r := run(update, `{"taskId":"2","status":"completed"}`); r.IsError || !strings.Contains(r.Content.String(), "NOT YET") || tasklist.Of(env)[0].Status != "pending" {
		t.Errorf("a blocked completion: %+v, %+v", r, tasklist.Of(env))
	}
	run(update, `{"taskId":"2","status":"in_progress"}`) // no hook runs
	block = false
	run(update, `{"taskId":"2","status":"completed"}`)
	run(update, `{"taskId":"2","status":"completed"}`) // it is completed already
	if want := []wire.HookEvent{"TaskCreated", "TaskCreated", "TaskCompleted", "TaskCompleted"}; !slices.Equal(asked, want) || tasklist.Of(env)[0].Status != "completed" {
		t.Errorf("asked %v, want %v; %+v", asked, want, tasklist.Of(env))
	}
}
