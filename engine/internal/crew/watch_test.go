package crew

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/wire"
)

func TestMonitorReportsBecomePrompts(t *testing.T) {
	var got []string
	w := &Watch{Env: &tool.Env{}, Emit: func(wire.Message) {}, AddPrompt: func(text string, o *wire.Origin) {
		if o.Kind != "task-notification" {
			t.Errorf("the origin is %+v", o)
		}
		got = append(got, text)
	}}
	info := tool.TaskInfo{ID: "b1", Description: "watch", Background: true}
	w.report(tool.TaskReported{Info: info, Text: "one\ntwo"})
	info.Status, info.Summary, info.Event = tool.TaskCompleted, `Monitor "watch" stream ended`, "three"
	w.report(tool.TaskEnded{Info: info})
	w.Forget("b1")
	w.report(tool.TaskReported{Info: info, Text: "late"})
	want := []string{"The monitor b1 (watch) reports:\none\ntwo",
		"The background task b1 has ended (completed): Monitor \"watch\" stream ended\nIts last lines:\nthree"}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A task that is in the list.
type listed struct{ tool.Task }

func (listed) Info() tool.TaskInfo {
	return tool.TaskInfo{ID: "b1", Background: true, Status: tool.TaskRunning}
}

// TestLastListIsCurrent checks that a list of tasks that is older than another one is not emitted
// after it.
func TestLastListIsCurrent(t *testing.T) {
	var mu sync.Mutex
	var lists []int // lengths, in the order of emission
	second := make(chan struct{})
	w := &Watch{Env: &tool.Env{}}
	var begun atomic.Bool
	w.Emit = func(m wire.Message) {
		if !begun.Swap(true) {
			w.Env.Tasks().Add(listed{})
			go func() {
				defer close(second)
				w.Changed()
			}()
			for range 10_000 { // let it overtake, if it can
				runtime.Gosched()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		lists = append(lists, len(m.(*wire.BackgroundTasksChanged).Tasks))
	}
	w.Changed()
	<-second
	if !slices.Equal(lists, []int{0, 1}) {
		t.Errorf("the lists have %v tasks", lists)
	}
}
