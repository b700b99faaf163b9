package tool

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/adhocore/gronx"
)

// A Job is a prompt that the conversation schedules for itself.
type Job struct {
	ID        string    `json:"id,omitempty"`
	Cron      string    `json:"cron,omitempty"` // five fields, local time; empty if only At is set
	At        time.Time `json:"at,omitzero"`    // when it is due next
	Prompt    string    `json:"prompt,omitempty"`
	Recurring bool      `json:"recurring,omitempty"` // it fires at every time of Cron, not only at the next one
	Wakeup    bool      `json:"wakeup,omitempty"`    // it continues a loop whose pace the model sets
	Durable   bool      `json:"durable,omitempty"`   // it survives the process of the agent
}

// Schedules stores the jobs of a conversation and fires them. It is safe for concurrent
// use.
type Schedules interface {
	// Add adds a job and returns it as stored.
	Add(ctx context.Context, job Job) (Job, error)
	// Remove removes a job. The error is a [UseError] if there is none.
	Remove(ctx context.Context, id string) error
	// List returns the jobs, oldest first.
	List(ctx context.Context) ([]Job, error)
}

// JobLife is how long a recurring job exists.
const JobLife = 7 * 24 * time.Hour

// MaxJobs is how many jobs a conversation can have.
const MaxJobs = 50

// NextTime returns the next time of a cron expression after a time.
func NextTime(cron string, after time.Time) (time.Time, error) {
	if len(strings.Fields(cron)) != 5 || !gronx.IsValid(cron) {
		return time.Time{}, Misuse("Invalid cron expression '%s'. Expected 5 fields: M H DoM Mon DoW.", cron)
	}
	t, err := gronx.NextTickAfter(cron, after.In(time.Local), false)
	if err != nil {
		return time.Time{}, Misuse("No time matches the cron expression '%s'.", cron)
	}
	return t, nil
}

// NoJob returns the error for a job that does not exist.
func NoJob(id string) error { return Misuse("No scheduled job with id '%s'", id) }

// HumanSchedule describes in words when a job recurs, or returns the expression if that is
// too complicated.
func HumanSchedule(cron string) string {
	var minute, hour, every int
	f := strings.Fields(cron)
	if len(f) != 5 || f[2] != "*" || f[3] != "*" {
		return cron
	}
	is := func(field, format string, v *int) bool {
		n, err := fmt.Sscanf(field, format, v)
		return n == 1 && err == nil && fmt.Sprintf(format, *v) == field
	}
	day := f[4]
	switch {
	case cron == "* * * * *":
		return "Every minute"
	case day == "*" && f[1] == "*" && is(f[0], "*/%d", &every):
		return fmt.Sprintf("Every %d minutes", every)
	case !is(f[0], "%d", &minute):
		return cron
	case day == "*" && f[1] == "*" && minute == 0:
		return "Every hour"
	case day == "*" && f[1] == "*":
		return fmt.Sprintf("Every hour at :%02d", minute)
	case day == "*" && minute == 0 && is(f[1], "*/%d", &every):
		return fmt.Sprintf("Every %d hours", every)
	case !is(f[1], "%d", &hour):
		return cron
	}
	at := time.Date(2000, 1, 1, hour, minute, 0, 0, time.UTC).Format("3:04 PM")
	switch {
	case day == "*":
		return "Every day at " + at
	case day == "1-5":
		return "Weekdays at " + at
	case is(day, "%d", &every) && every <= 7:
		return "Every " + time.Weekday(every%7).String() + " at " + at
	}
	return cron
}
