// Package schedule implements the tools CronCreate, CronDelete, CronList and
// ScheduleWakeup, with which a session schedules prompts for itself.
//
// The schedules of the [tool.Env] store the jobs: in the hub, or in timers of the
// conversation that end with it.
package schedule

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/parley-go/parley/engine/tool"
)

//go:embed create.md
var createText string

//go:embed delete.md
var deleteText string

//go:embed list.md
var listText string

//go:embed wakeup.md
var wakeupText string

const createSchema = `{
	"type": "object",
	"properties": {
		"cron": {"type": "string", "description": "Five fields, local time: minute, hour, day of the month, month, day of the week. \"*/5 * * * *\" is every 5 minutes"},
		"prompt": {"type": "string", "description": "What to send at each time"},
		"recurring": {"type": "boolean", "description": "true (the default): at every match, for 7 days. false: at the next match only"},
		"durable": {"type": "boolean", "description": "Whether the user wants it to survive this session's process. It does wherever a hub keeps the session; the result says so"}
	},
	"required": ["cron", "prompt"]
}`

const deleteSchema = `{
	"type": "object",
	"properties": {"id": {"type": "string", "description": "The id that CronCreate returned"}},
	"required": ["id"]
}`

const listSchema = `{"type": "object", "properties": {}}`

const wakeupSchema = `{
	"type": "object",
	"properties": {
		"delaySeconds": {"type": "number", "description": "How many seconds from now, from 60 to 3600. Required unless stop is true"},
		"reason": {"type": "string", "description": "Why this delay, in one short sentence for the user. Required unless stop is true"},
		"prompt": {"type": "string", "description": "The same /loop prompt. Required unless stop is true"},
		"stop": {"type": "boolean", "description": "End the loop: no further wake-up fires"},
		"noop": {"type": "boolean", "description": "Whether nothing worth reporting happened since the last time"}
	}
}`

// Tools returns the four tools.
func Tools() []tool.Tool {
	return []tool.Tool{
		&jobTool{tool.Spec{Name: "CronCreate", Description: createText, Schema: json.RawMessage(createSchema)}, run(create)},
		&jobTool{tool.Spec{Name: "CronDelete", Description: deleteText, Schema: json.RawMessage(deleteSchema)}, run(remove)},
		&jobTool{tool.Spec{Name: "CronList", Description: listText, Schema: json.RawMessage(listSchema), ReadOnly: true}, run(list)},
		&jobTool{tool.Spec{Name: "ScheduleWakeup", Description: wakeupText, Schema: json.RawMessage(wakeupSchema)}, run(wakeup)},
	}
}

// A jobTool is one of the tools.
type jobTool struct {
	spec tool.Spec
	run  func(context.Context, tool.Schedules, json.RawMessage) (*tool.Result, error)
}

func run[In any](f func(context.Context, tool.Schedules, *In) (*tool.Result, error)) func(context.Context, tool.Schedules, json.RawMessage) (*tool.Result, error) {
	return func(ctx context.Context, s tool.Schedules, input json.RawMessage) (*tool.Result, error) {
		in := new(In)
		if err := tool.Decode(input, in); err != nil {
			return nil, err
		}
		return f(ctx, s, in)
	}
}

// Spec implements [tool.Tool].
func (t *jobTool) Spec() *tool.Spec { return &t.spec }

// Access returns nothing: the jobs belong to the session, and the effects of a prompt are
// decided in its turn.
func (t *jobTool) Access(*tool.Env, json.RawMessage) ([]tool.Access, error) { return nil, nil }

// Run reads or changes the jobs.
func (t *jobTool) Run(ctx context.Context, call *tool.Call) (*tool.Result, error) {
	if call.Env.Schedules == nil {
		return nil, errors.New("nothing can be scheduled here")
	}
	return t.run(ctx, call.Env.Schedules, call.Input)
}

// A row is a job in a structured result.
type row struct {
	ID            string `json:"id"`
	Cron          string `json:"cron,omitempty"`
	HumanSchedule string `json:"humanSchedule"`
	Prompt        string `json:"prompt,omitempty"`
	Recurring     *bool  `json:"recurring,omitempty"`
	Durable       *bool  `json:"durable,omitempty"`
	NextFireAt    int64  `json:"nextFireAt,omitempty"` // milliseconds
}

func rowOf(j tool.Job) row {
	r := row{ID: j.ID, Cron: j.Cron, HumanSchedule: tool.HumanSchedule(j.Cron), Prompt: j.Prompt}
	if j.Cron == "" { // a wake-up
		at := j.At.Local()
		r.Cron = fmt.Sprintf("%d %d * * *", at.Minute(), at.Hour())
		r.HumanSchedule = tool.HumanSchedule(r.Cron)
	}
	if !j.At.IsZero() {
		r.NextFireAt = j.At.UnixMilli()
	}
	return r
}

func when(t time.Time) string { return t.Local().Format("Jan 2 3:04pm") }

type createInput struct {
	Cron      string `json:"cron"`
	Prompt    string `json:"prompt"`
	Recurring *bool  `json:"recurring"`
	Durable   bool   `json:"durable"`
}

func create(ctx context.Context, s tool.Schedules, in *createInput) (*tool.Result, error) {
	at, err := tool.NextTime(in.Cron, time.Now())
	if err != nil {
		return nil, err
	}
	job, err := s.Add(ctx, tool.Job{Cron: in.Cron, At: at, Prompt: in.Prompt, Recurring: in.Recurring == nil || *in.Recurring})
	if err != nil {
		return nil, err
	}
	out := rowOf(job)
	out.Cron, out.Prompt, out.Recurring, out.Durable = "", "", &job.Recurring, &job.Durable
	kind, end := "one-shot task", "It fires once."
	if job.Recurring {
		kind, end = "recurring job", "It expires after 7 days; CronDelete ends it sooner."
	}
	kept := "The hub stores it: it fires even while nobody is attached, and survives restarts."
	if !job.Durable {
		kept = "It lasts while this process runs."
	}
	return tool.Text(fmt.Sprintf("Scheduled %s %s (%s). Next run: %s. %s %s", kind, job.ID, out.HumanSchedule, when(job.At), kept, end), out), nil
}

type removeInput struct {
	ID string `json:"id"`
}

func remove(ctx context.Context, s tool.Schedules, in *removeInput) (*tool.Result, error) {
	if err := s.Remove(ctx, in.ID); err != nil {
		return nil, err
	}
	return tool.Text("Removed job "+in.ID+".", in), nil
}

func list(ctx context.Context, s tool.Schedules, _ *struct{}) (*tool.Result, error) {
	jobs, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	rows, yes, no := []row{}, true, false
	var lines []string
	for _, j := range jobs {
		r, kind := rowOf(j), "one-shot"
		if j.Recurring {
			r.Recurring, kind = &yes, "recurring"
		}
		if !j.Durable {
			r.Durable = &no
			kind += ", as long as this process runs"
		}
		rows = append(rows, r)
		lines = append(lines, fmt.Sprintf("%s — %s (%s), next run %s: %s", j.ID, r.HumanSchedule, kind, when(j.At), j.Prompt))
	}
	text := strings.Join(lines, "\n")
	if text == "" {
		text = "No scheduled jobs."
	}
	return tool.Text(text, map[string]any{"jobs": rows}), nil
}

type wakeupInput struct {
	DelaySeconds *float64 `json:"delaySeconds"`
	Reason       string   `json:"reason"`
	Prompt       string   `json:"prompt"`
	Stop         bool     `json:"stop"`
	Noop         bool     `json:"noop"`
}

// A Wakeup is the structured result of ScheduleWakeup.
type Wakeup struct {
	ScheduledFor        int64 `json:"scheduledFor"` // milliseconds
	ClampedDelaySeconds int64 `json:"clampedDelaySeconds"`
	WasClamped          bool  `json:"wasClamped"`
	Stopped             bool  `json:"stopped,omitempty"`
	CancelledWakeups    *int  `json:"cancelledWakeups,omitempty"`
}

func wakeup(ctx context.Context, s tool.Schedules, in *wakeupInput) (*tool.Result, error) {
	if !in.Stop && (in.DelaySeconds == nil || in.Reason == "" || in.Prompt == "") {
		return nil, errors.New("`delaySeconds`, `reason` and `prompt` are required when `stop` is not true.")
	}
	jobs, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	// Replace the pending wakeup. It is removed last: if this call fails, the old one
	// still fires.
	replace := func() (n int, err error) {
		for _, j := range jobs {
			if j.Wakeup {
				if err := s.Remove(ctx, j.ID); err != nil {
					return n, err
				}
				n++
			}
		}
		return n, nil
	}
	if in.Stop {
		n, err := replace()
		if err != nil {
			return nil, err
		}
		return tool.Text(fmt.Sprintf("The loop has ended; %d pending wake-ups were removed. Tell the user the outcome.", n), &Wakeup{Stopped: true, CancelledWakeups: &n}), nil
	}
	delay := int64(min(max(*in.DelaySeconds, 60), 3600))
	out := &Wakeup{ClampedDelaySeconds: delay, WasClamped: *in.DelaySeconds < 60 || *in.DelaySeconds > 3600}
	at := time.Now().Add(time.Duration(delay) * time.Second).Truncate(time.Millisecond)
	if _, err := s.Add(ctx, tool.Job{At: at, Prompt: in.Prompt, Wakeup: true}); err != nil {
		return nil, err
	}
	if _, err := replace(); err != nil {
		return nil, err
	}
	out.ScheduledFor = at.UnixMilli()
	text := fmt.Sprintf("The next wake-up is at %s, in %d seconds.", at.Local().Format("15:04:05"), delay)
	if out.WasClamped {
		text += " The delay was brought into the range from 60 to 3600."
	}
	return tool.Text(text+" Tell the user now what they should know, then end the turn.", out), nil
}
