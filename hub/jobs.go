package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// jobLife is how long a schedule that an agent created recurs.
const jobLife = 7 * 24 * time.Hour

// A job is a schedule in the form that the agent uses: see the control request
// schedule.
type job struct {
	ID        string    `json:"id,omitempty"`
	Cron      string    `json:"cron,omitempty"`
	At        time.Time `json:"at,omitzero"` // when it is next due
	Prompt    string    `json:"prompt,omitempty"`
	Recurring bool      `json:"recurring,omitempty"`
	Wakeup    bool      `json:"wakeup,omitempty"`
	Durable   bool      `json:"durable,omitempty"`
}

// schedule handles the request of an agent to add, remove or list the schedules of its
// own session. It cannot reach other sessions.
func (a *agentRun) schedule(ctx context.Context, request json.RawMessage) (json.RawMessage, error) {
	var req struct {
		Action string
		Job    job
	}
	if err := json.Unmarshal(request, &req); err != nil {
		return nil, err
	}
	h, id := a.r.hub, a.r.id
	by := Actor{Name: "agent", From: "session", Rights: MayView | MayDrive}
	jobs := []job{}
	if req.Action == "add" {
		x := Schedule{Session: id, Prompt: req.Job.Prompt, Cron: req.Job.Cron, Once: !req.Job.Recurring && req.Job.Cron != "", Wakeup: req.Job.Wakeup}
		if x.Cron == "" {
			x.At = req.Job.At
		} else if !x.Once {
			x.Until = time.Now().Add(jobLife)
		}
		x, err := h.schedule(ctx, by, x)
		if err != nil {
			return nil, err
		}
		return mustJSON(map[string]any{"jobs": append(jobs, jobOf(x))}), nil
	}
	all, err := h.Schedules(ctx, by, id)
	if err != nil {
		return nil, err
	}
	for _, x := range all {
		switch {
		case req.Action == "list":
			jobs = append(jobs, jobOf(x))
		case req.Action == "remove" && x.ID == req.Job.ID:
			if err := h.Unschedule(ctx, by, x.ID); err != nil {
				return nil, err
			}
			jobs = append(jobs, jobOf(x))
		}
	}
	if req.Action != "list" && req.Action != "remove" {
		return nil, fmt.Errorf("hub: unknown action %q of schedule", req.Action)
	}
	return mustJSON(map[string]any{"jobs": jobs}), nil
}

func jobOf(x Schedule) job {
	return job{ID: x.ID, Cron: x.Cron, At: x.Next(), Prompt: x.Prompt, Recurring: x.recurs(), Wakeup: x.Wakeup, Durable: true}
}
