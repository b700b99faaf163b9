package tasklist_test

import (
	"encoding/json"
	"testing"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/tasklist"
)

// TestTaskTools: what the tools answer, to the model and to programs, is what the official command
// answers.
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
		{"TaskCreate", `{"subject":"Last","description":""}`, "Task #3 created successfully: Last", ``},
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
