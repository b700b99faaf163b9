package bash_test

import (
	"runtime"
	"testing"

	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/engine/tool/bash"
	"github.com/parley-go/parley/engine/tool/tooltest"
)

// TestEndIsSentBeforeItIsSeen checks that the end of a command is sent before it becomes
// visible. A conversation ends when no task runs any more; otherwise the model would never
// receive the end.
func TestEndIsSentBeforeItIsSeen(t *testing.T) {
	env := tooltest.Env(t)
	early := make(chan bool, 1)
	env.Notify = func(ev tool.Event) {
		if _, ok := ev.(tool.TaskEnded); !ok {
			return
		}
		seen := make(chan bool, 1)
		go func() { seen <- len(env.Tasks().Running()) == 0 }()
		for range 10000 {
			select {
			case was := <-seen:
				early <- was
				return
			default:
				runtime.Gosched()
			}
		}
		early <- false
	}
	tooltest.Do(t, env, bash.New(nil), "command", "true", "run_in_background", true)
	if <-early {
		t.Error("the command counts as ended before its end is sent")
	}
}
