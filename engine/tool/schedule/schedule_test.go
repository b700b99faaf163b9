package schedule_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/schedule"
)

func TestHumanSchedule(t *testing.T) {
	for cron, want := range map[string]string{
		"* * * * *": "Every minute", "*/5 * * * *": "Every 5 minutes", "0 * * * *": "Every hour", "7 * * * *": "Every hour at :07",
		"0 */2 * * *": "Every 2 hours", "30 14 * * *": "Every day at 2:30 PM", "0 9 * * 1-5": "Weekdays at 9:00 AM", "5 0 * * 7": "Every Sunday at 12:05 AM",
		"30 14 28 2 *": "30 14 28 2 *", "1,2 * * * *": "1,2 * * * *", "0 0 * * 9": "0 0 * * 9", "07 * * * *": "07 * * * *", "bad": "bad",
	} {
		if got := tool.HumanSchedule(cron); got != want {
			t.Errorf("%s is %q, want %q", cron, got, want)
		}
	}
}

// memory stores jobs and never fires them.
type memory struct{ jobs []tool.Job }

func (m *memory) Add(_ context.Context, j tool.Job) (tool.Job, error) {
	j.ID = string(rune('a' + len(m.jobs)))
	m.jobs = append(m.jobs, j)
	return j, nil
}

func (m *memory) Remove(_ context.Context, id string) error {
	n := len(m.jobs)
	if m.jobs = slices.DeleteFunc(m.jobs, func(j tool.Job) bool { return j.ID == id }); len(m.jobs) == n {
		return tool.NoJob(id)
	}
	return nil
}

func (m *memory) List(context.Context) ([]tool.Job, error) { return slices.Clone(m.jobs), nil }

func TestTools(t *testing.T) {
	zone := time.Local
	time.Local = time.UTC
	defer func() { time.Local = zone }()
	synctest.Test(t, func(t *testing.T) { // midnight UTC, 1 January 2000
		m := &memory{}
		env := &tool.Env{Schedules: m}
		for _, step := range []struct{ name, input, want string }{
			{"CronCreate", `{"cron":"*/5 * * * *","prompt":"look"}`, `{"id":"a","humanSchedule":"Every 5 minutes","recurring":true,"durable":false,"nextFireAt":946685100000}`},
			{"CronCreate", `{"cron":"0 9 * * 1-5","prompt":"once","recurring":false}`, `{"id":"b","humanSchedule":"Weekdays at 9:00 AM","recurring":false,"durable":false,"nextFireAt":946890000000}`},
			{"CronCreate", `{"cron":"bad","prompt":"x"}`, "error: Invalid cron expression 'bad'. Expected 5 fields: M H DoM Mon DoW."},
			{"CronCreate", `{"cron":"0 0 30 2 *","prompt":"x"}`, "error: No time matches the cron expression '0 0 30 2 *'."},
			{"CronCreate", `{"cron":"@daily","prompt":"x"}`, "error: Invalid cron expression '@daily'. Expected 5 fields: M H DoM Mon DoW."},
			{"ScheduleWakeup", `{"delaySeconds":10,"reason":"r","prompt":"/loop p","noop":false}`, `{"scheduledFor":946684860000,"clampedDelaySeconds":60,"wasClamped":true}`},
			{"ScheduleWakeup", `{"delaySeconds":120,"reason":"r","prompt":"/loop q"}`, `{"scheduledFor":946684920000,"clampedDelaySeconds":120,"wasClamped":false}`},
			{"CronList", `{}`, `{"jobs":[{"id":"a","cron":"*/5 * * * *","humanSchedule":"Every 5 minutes","prompt":"look","recurring":true,"durable":false,"nextFireAt":946685100000},{"id":"b","cron":"0 9 * * 1-5","humanSchedule":"Weekdays at 9:00 AM","prompt":"once","durable":false,"nextFireAt":946890000000},{"id":"d","cron":"2 0 * * *","humanSchedule":"Every day at 12:02 AM","prompt":"/loop q","durable":false,"nextFireAt":946684920000}]}`},
			{"ScheduleWakeup", `{"delaySeconds":120}`, "error: `delaySeconds`, `reason` and `prompt` are required when `stop` is not true."},
			{"ScheduleWakeup", `{"stop":true}`, `{"scheduledFor":0,"clampedDelaySeconds":0,"wasClamped":false,"stopped":true,"cancelledWakeups":1}`},
			{"ScheduleWakeup", `{"stop":true}`, `{"scheduledFor":0,"clampedDelaySeconds":0,"wasClamped":false,"stopped":true,"cancelledWakeups":0}`},
			{"CronDelete", `{"id":"nope"}`, "error: No scheduled job with id 'nope'"},
			{"CronDelete", `{"id":"a"}`, `{"id":"a"}`},
			{"CronDelete", `{"id":"b"}`, `{"id":"b"}`},
			{"CronList", `{}`, `{"jobs":[]}`},
		} {
			i := slices.IndexFunc(schedule.Tools(), func(tl tool.Tool) bool { return tl.Spec().Name == step.name })
			tl := schedule.Tools()[i]
			res, err := tl.Run(t.Context(), &tool.Call{Input: json.RawMessage(step.input), Env: env})
			got := ""
			if err != nil {
				got = "error: " + err.Error()
				if use := new(tool.UseError); errors.As(err, &use) != !strings.Contains(got, "required") {
					t.Errorf("%s %s: %T", step.name, step.input, err)
				}
			} else {
				raw, _ := json.Marshal(res.Structured)
				got = string(raw)
			}
			if got != step.want {
				t.Errorf("%s %s:\n%s\nwant\n%s", step.name, step.input, got, step.want)
			}
		}
		if _, err := schedule.Tools()[0].Run(t.Context(), &tool.Call{Input: json.RawMessage(`{"cron":"* * * * *","prompt":"x"}`), Env: &tool.Env{}}); err == nil {
			t.Error("something was scheduled where nobody keeps it")
		}
	})
}
