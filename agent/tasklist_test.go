package agent_test

import (
	"testing"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
)

// TestTasksSurviveResume checks that the list of TaskCreate is there when the session
// continues in another process.
func TestTasksSurviveResume(t *testing.T) {
	dir, _ := workdir(t)
	cfg := agent.Config{Cwd: dir, Store: &session.Memory{}}
	const id = "0b7b1d7e-64ac-4a8d-8d9c-1f2e3d4c5b6a"
	play(t, cfg, parleytest.Script(
		parleytest.Call("TaskCreate", map[string]string{"subject": "Fix it", "description": "all of it"}),
		parleytest.Call("TaskUpdate", map[string]string{"taskId": "1", "status": "in_progress"}), parleytest.Say("begun")), "--session-id", id)
	play(t, cfg, parleytest.Script(
		parleytest.Call("TaskList", map[string]string{}),
		parleytest.Expect(parleytest.ToolResult("#1 [in_progress] Fix it")).Call("TaskCreate", map[string]string{"subject": "Next", "description": ""}),
		parleytest.Expect(parleytest.ToolResult("Task #2 created")).Say("done")), "--resume", id)
}
