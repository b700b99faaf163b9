package bash_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/bash"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

// monitorEnv returns an environment that sends the events of tasks to a channel.
func monitorEnv(t *testing.T) (*tool.Env, chan tool.Event, *bash.Monitor) {
	env := tooltest.Env(t)
	events := make(chan tool.Event, 100)
	env.Notify = func(ev tool.Event) { events <- ev }
	return env, events, bash.NewMonitor(bash.New(&bash.Options{Report: time.Millisecond}))
}

func TestMonitorReportsLinesAndTheEnd(t *testing.T) {
	env, events, monitor := monitorEnv(t)
	gate := filepath.Join(env.Roots[0], "gate")
	r := tooltest.Do(t, env, monitor, "description", "watch", "timeout_ms", 600000,
		"command", "printf 'one\\ntw'; until [ -e gate ]; do sleep 0.01; done; printf 'o\\nthree' >&2; exit 3")
	out := r.Structured.(*bash.MonitorOutput)
	if out.TimeoutMS != 600000 || !strings.HasPrefix(r.Content.String(), "Monitor started (task "+out.TaskID) {
		t.Errorf("result %s, %+v", r.Content, out)
	}
	if ev := (<-events).(tool.TaskStarted); !ev.Info.Background || ev.Info.Kind != tool.TaskBash || ev.Info.Description != "watch" {
		t.Errorf("started: %+v", ev.Info)
	}
	// A line is reported when it is complete.
	if ev := (<-events).(tool.TaskReported); ev.Text != "one" || ev.Info.ID != out.TaskID {
		t.Errorf("reported %+v", ev)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var said []string
	for {
		switch ev := (<-events).(type) {
		case tool.TaskReported:
			said = append(said, ev.Text)
			continue
		case tool.TaskEnded:
			said = append(said, ev.Info.Event)
			if ev.Info.Status != tool.TaskFailed || ev.Info.Summary != `Monitor "watch" script failed (exit 3)` {
				t.Errorf("ended: %+v", ev.Info)
			}
		}
		break
	}
	if got := strings.Trim(strings.Join(said, "\n"), "\n"); got != "two\nthree" {
		t.Errorf("after the first line %q was reported", got)
	}
}

func TestMonitorEndsWhenItsTimeIsOver(t *testing.T) {
	env, events, monitor := monitorEnv(t)
	r := tooltest.Do(t, env, monitor, "description", "watch", "timeout_ms", 1000, "command", "sleep 3600")
	<-events // started
	if ev := (<-events).(tool.TaskReported); !strings.HasPrefix(ev.Text, "[The monitor ends: its time of 1s is over, with 0 reports before.") {
		t.Errorf("reported %q", ev.Text)
	}
	id := r.Structured.(*bash.MonitorOutput).TaskID
	if ev := (<-events).(tool.TaskEnded); ev.Info.Status != tool.TaskKilled || !env.Tasks().Stopped(id) {
		t.Errorf("ended: %+v", ev.Info)
	}
}
