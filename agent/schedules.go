package agent

import (
	"context"
	"encoding/json"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

// hostSchedules are stored by a host that sent keepsSchedules with initialize, as the hub
// does. The host sends the prompt of a job when it is due, even if this process has ended
// by then.
type hostSchedules struct{ s *server }

// A scheduleRequest is the control request schedule. Its response contains the jobs.
type scheduleRequest struct {
	Subtype string    `json:"subtype"`
	Action  string    `json:"action"` // "add", "remove" or "list"
	Job     *tool.Job `json:"job,omitempty"`
}

func (h hostSchedules) ask(ctx context.Context, action string, job *tool.Job) ([]tool.Job, error) {
	raw, err := json.Marshal(scheduleRequest{"schedule", action, job})
	if err != nil {
		return nil, err
	}
	r, err := h.s.request(ctx, &wire.UnknownRequest{Name: "schedule", Raw: raw})
	if err != nil {
		return nil, err
	}
	var answer struct {
		Jobs []tool.Job `json:"jobs"`
	}
	return answer.Jobs, json.Unmarshal(r.Response, &answer)
}

// Add implements [tool.Schedules].
func (h hostSchedules) Add(ctx context.Context, job tool.Job) (tool.Job, error) {
	jobs, err := h.ask(ctx, "add", &job)
	if err == nil && len(jobs) == 1 {
		job = jobs[0]
	}
	return job, err
}

// Remove implements [tool.Schedules].
func (h hostSchedules) Remove(ctx context.Context, id string) error {
	jobs, err := h.ask(ctx, "remove", &tool.Job{ID: id})
	if err == nil && len(jobs) == 0 {
		return tool.NoJob(id)
	}
	return err
}

// List implements [tool.Schedules].
func (h hostSchedules) List(ctx context.Context) ([]tool.Job, error) { return h.ask(ctx, "list", nil) }
