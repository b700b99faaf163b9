package agent_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/tool"
	"github.com/parley-go/parley/internal/cli"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
)

// TestAbandonedCallEndsBeforeTheAgent checks that the agent does not return while a call
// that its turn abandoned still runs: the call would use a closed log, sandbox or MCP server. A call that
// does not stop delays the end by a few seconds at most, and does no harm when it returns later.
func TestAbandonedCallEndsBeforeTheAgent(t *testing.T) {
	spent := parleytest.Usage{Input: 1_000_000, Output: 1}
	for name, test := range map[string]struct {
		first  *parleytest.Turn
		args   []string
		cancel bool
	}{
		"the budget is exhausted": {first: parleytest.Call("Slow", `{}`).Pause(time.Second).Usage(spent), args: []string{"--max-budget-usd", "1", "--model", "claude-sonnet-4-5"}},
		"the agent is stopped":    {first: parleytest.Call("Slow", `{}`).Pause(time.Hour), cancel: true},
	} {
		for _, deaf := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", a call that does not stop"}[deaf], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var began, ended atomic.Bool
					stop := make(chan struct{})
					slow := &funcTool{"Slow", true, func(ctx context.Context, call *tool.Call) (*tool.Result, error) {
						began.Store(true)
						<-ctx.Done()
						if deaf {
							<-stop
						} else {
							time.Sleep(500 * time.Millisecond) // it cleans up
						}
						defer ended.Store(true)
						return tool.Text("late", nil), nil
					}}
					m := parleytest.Script(test.first, parleytest.Say("ok").Always()).Model()
					a := start(t, agent.Config{Model: m, Tools: []tool.Tool{slow}, Store: &session.Memory{}, Cwd: t.TempDir(), Environ: []string{"IS_SANDBOX=1"}},
						slices.Concat([]string{"-p", "--dangerously-skip-permissions"}, test.args, []string{"hi"}))
					a.stdin.Close()
					go func() {
						buf := make([]byte, 1<<10)
						for {
							if _, err := a.stdout.Read(buf); err != nil {
								return
							}
						}
					}()
					start := time.Now()
					if test.cancel {
						time.Sleep(time.Second)
						a.cancel(&cli.SignalError{Name: "SIGTERM", Status: 143})
					}
					a.wait()
					if !began.Load() {
						t.Fatal("the call did not start")
					}
					if !deaf && !ended.Load() {
						t.Error("the agent returned while the call was running")
					}
					if d := time.Since(start); d > 15*time.Second {
						t.Errorf("the agent returned after %v", d)
					}
					close(stop)
					synctest.Wait()
					if !ended.Load() {
						t.Error("the call did not return")
					}
				})
			})
		}
	}
}
