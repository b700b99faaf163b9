package engine

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/internal/history"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// timers hold the scheduled jobs of a conversation, which end with it. If the host stores
// jobs, timers forward to the host.
type timers struct {
	brief *brief            // holds no prompts that a model scheduled
	do    func(func()) bool // see [Conversation.Do]
	queue *queue            // of the conversation; only its owner uses it

	mu   sync.Mutex
	jobs []*timedJob
	host tool.Schedules // nil if the host stores no jobs
}

type timedJob struct {
	tool.Job
	until time.Time
	timer *time.Timer
}

// watchSchedules lets the tools of a conversation schedule prompts.
func watchSchedules(env *tool.Env, t *timers) {
	env.Schedules = t
	env.OnClose(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, j := range t.jobs {
			j.timer.Stop()
		}
		t.jobs = nil
	})
}

func (t *timers) keeper() tool.Schedules {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.host
}

// Add implements [tool.Schedules].
func (t *timers) Add(ctx context.Context, job tool.Job) (tool.Job, error) {
	t.brief.markScheduled(job.Prompt)
	if host := t.keeper(); host != nil {
		return host.Add(ctx, job)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.jobs) >= tool.MaxJobs {
		return job, tool.Misuse("There are %d jobs already. Remove one first.", tool.MaxJobs)
	}
	job.ID = tool.NewTaskID("")
	j := &timedJob{Job: job, until: time.Now().Add(tool.JobLife)}
	t.jobs = append(t.jobs, j)
	t.startTimer(j)
	return job, nil
}

// startTimer starts the timer of a job. The caller holds mu.
func (t *timers) startTimer(j *timedJob) {
	j.timer = time.AfterFunc(time.Until(j.At), func() { t.do(func() { t.queueJob(j) }) })
}

// queueJob queues the prompt of a job, unless the previous one is still queued.
func (t *timers) queueJob(j *timedJob) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.jobs, j)
	if i < 0 {
		return // removed meanwhile
	}
	source := "schedule_wakeup"
	if j.Wakeup {
		source = "loop_wakeup"
	}
	if !slices.ContainsFunc(t.queue.inbox, func(p *prompt) bool { return p.job == j }) {
		m := wire.Prompt(wire.Text(j.Prompt))
		m.UUID = session.NewID()
		t.queue.inbox = append(t.queue.inbox, &prompt{m: m, uuid: m.UUID, job: j, wakeup: source})
	}
	next, err := tool.NextTime(j.Cron, time.Now())
	if !j.Recurring || err != nil || next.After(j.until) {
		t.jobs = slices.Delete(t.jobs, i, i+1)
		return
	}
	j.At = next
	t.startTimer(j)
}

// Remove implements [tool.Schedules].
func (t *timers) Remove(ctx context.Context, id string) error {
	if host := t.keeper(); host != nil {
		return host.Remove(ctx, id)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.jobs, func(j *timedJob) bool { return j.ID == id })
	if i < 0 {
		return tool.NoJob(id)
	}
	t.jobs[i].timer.Stop()
	t.jobs = slices.Delete(t.jobs, i, i+1)
	return nil
}

// List implements [tool.Schedules].
func (t *timers) List(ctx context.Context) ([]tool.Job, error) {
	if host := t.keeper(); host != nil {
		return host.List(ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []tool.Job
	for _, j := range t.jobs {
		all = append(all, j.Job)
	}
	return all, nil
}

//go:embed command_loop.md
var loopPrompt string

var (
	loopFirst = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(\d+)([smhd])(?:\s+|$)`) })
	loopLast  = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(?:^|\s+)every\s+(\d+)?\s*(s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)$`)
	})
)

// loopInterval splits the arguments of /loop into the interval and the rest. The interval is
// 0 if there is none.
func loopInterval(args string) (every time.Duration, rest string) {
	m, rest := loopFirst().FindStringSubmatch(args), args
	if m != nil {
		rest = args[len(m[0]):]
	} else if m = loopLast().FindStringSubmatch(args); m != nil {
		rest = args[:len(args)-len(m[0])]
	} else {
		return 0, args
	}
	n, err := strconv.Atoi(cmp.Or(m[1], "1"))
	if err != nil || n < 1 || n > 1_000_000 {
		return 0, args
	}
	unit := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}[strings.ToLower(m[2])[0]]
	return time.Duration(n) * unit, strings.TrimSpace(rest)
}

// loopCron returns the cron expression that comes closest to an interval.
func loopCron(every time.Duration) string {
	// The closest number that divides an hour or a day, so that the times are evenly spaced.
	nearest := func(n float64, of ...int) int {
		return slices.MinFunc(of, func(a, b int) int {
			return cmp.Compare(max(n/float64(a), float64(a)/n), max(n/float64(b), float64(b)/n))
		})
	}
	switch minutes := every.Minutes(); {
	case minutes <= 1:
		return "* * * * *"
	case minutes < 45:
		return fmt.Sprintf("*/%d * * * *", nearest(minutes, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30))
	case minutes < 90:
		return "0 * * * *"
	case minutes < 18*60:
		return fmt.Sprintf("0 */%d * * *", nearest(minutes/60, 2, 3, 4, 6, 8, 12))
	case minutes < 36*60:
		return "0 0 * * *"
	}
	return fmt.Sprintf("0 0 */%d * *", min(max(int(every.Hours()/24+0.5), 2), 28))
}

// expandLoop returns the prompt of /loop for the model. With an interval it schedules the
// prompt; without one the model receives instructions to continue at its own pace.
func expandLoop(ctx context.Context, schedules tool.Schedules, args string) (string, error) {
	every, rest := loopInterval(args)
	if rest == "" {
		return "", fmt.Errorf("Usage: /loop [interval] <prompt>, such as /loop 5m look at the build, or /loop look at the build until it is green")
	}
	if every == 0 {
		return strings.TrimSpace(strings.ReplaceAll(loopPrompt, "$ARGUMENTS", rest)), nil
	}
	cron := loopCron(every)
	at, err := tool.NextTime(cron, time.Now())
	if err != nil {
		return "", err
	}
	job, err := schedules.Add(ctx, tool.Job{Cron: cron, At: at, Prompt: rest, Recurring: true})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s\n\n%s", rest, history.Reminder(fmt.Sprintf("The user wants this repeated. It is already scheduled as the job %s (%s, cron %q), expires after 7 days, and ends sooner with CronDelete. Report that in one sentence, then do it now for the first time. If it is a slash command, use the Skill tool.", job.ID, tool.HumanSchedule(cron), cron))), nil
}
