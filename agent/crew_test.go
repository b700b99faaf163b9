package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// TestManySubagents checks that 64 run at once, that more are rejected with a message, and
// that the others continue.
func TestManySubagents(t *testing.T) {
	first := parleytest.Expect()
	for i := range 70 {
		first = first.Call("Agent", map[string]any{"description": fmt.Sprint("n", i), "prompt": fmt.Sprint("P", i), "run_in_background": true})
	}
	refused := parleytest.Check("six are refused", func(r *parleytest.Request) error {
		if n := strings.Count(string(r.Body), "64 subagents are running already. Wait until some have ended."); n != 6 {
			return fmt.Errorf("%d are refused", n)
		}
		return nil
	})
	s := parleytest.Script(first, parleytest.Expect(refused).Say("main"), parleytest.Say("told").Always())
	s.When("sub", parleytest.FirstUser("P"), parleytest.Pause(5*time.Minute).Say("report").Always()).EachConversation()
	p := prompt(t, s, func(_ *parley.Options, c *agent.Config) {
		m := c.Model.(*parleytest.Model)
		m.Strict, m.Record = false, false // what is asked is long
	})
	var stats struct {
		Spawned, Completed int
		Refused            struct {
			Concurrency int `json:"concurrency_limit"`
		}
	}
	if p.err != nil || json.Unmarshal(p.r.SubagentStats, &stats) != nil || stats.Spawned != 64 || stats.Completed != 64 || stats.Refused.Concurrency != 6 {
		t.Errorf("%v, %s", p.err, p.r.SubagentStats)
	}
	if n := count[*wire.TaskNotification](p.all); n != 64 {
		t.Errorf("%d ended", n)
	}
}

// TestBudgetAtDepth checks that several subagents at once, three deep, share one budget.
// Whichever notices it, the turn ends in one result that says so, and all of them together
// exceed the budget by one request at most.
func TestBudgetAtDepth(t *testing.T) {
	for _, background := range []bool{false, true} {
		for _, max := range []float64{0.02, 0.1} {
			t.Run(fmt.Sprint(max, " background ", background), func(t *testing.T) {
				usage := parleytest.Usage{Input: 1000, Output: 100} // 0.0045 with sonnet
				three := func(prompt string) *parleytest.Turn {
					turn := parleytest.Expect().Usage(usage)
					for i := range 3 {
						turn = turn.Call("Agent", map[string]any{"description": "d", "prompt": fmt.Sprint(prompt, i), "run_in_background": background})
					}
					return turn
				}
				s := parleytest.Script(three("ONE"), parleytest.Say("main").Usage(usage).Always())
				s.When("one", parleytest.FirstUser("ONE"), three("TWO"), parleytest.Say("r").Usage(usage).Always()).EachConversation()
				s.When("two", parleytest.FirstUser("TWO"), three("THREE"), parleytest.Say("r").Usage(usage).Always()).EachConversation()
				s.When("three", parleytest.FirstUser("THREE"), parleytest.Pause(time.Second).Call("Read", `{"file_path":"none"}`).Usage(usage).Always()).EachConversation()
				p := prompt(t, s, func(o *parley.Options, c *agent.Config) {
					o.MaxBudgetUSD, o.Model = max, "claude-sonnet-4-5"
				})
				var last *wire.Result
				for _, m := range p.all {
					if r, ok := m.(*wire.Result); ok {
						last = r
					}
				}
				if last == nil || last.Subtype != "error_max_budget_usd" || !last.IsError || last.TerminalReason != "budget_exhausted" || p.err == nil {
					t.Fatalf("%v, %+v", p.err, last)
				}
				if last.TotalCostUSD < max || last.TotalCostUSD > max+0.0046 {
					t.Errorf("it cost %v of %v", last.TotalCostUSD, max)
				}
				var stats struct {
					Spawned int
					Depth   int `json:"max_depth"`
				}
				if json.Unmarshal(last.SubagentStats, &stats) != nil || max > 0.09 && stats.Depth != 3 {
					t.Errorf("%s", last.SubagentStats)
				}
			})
		}
	}
}

// TestAgentTasks checks that the tools and requests about background tasks know subagents.
func TestAgentTasks(t *testing.T) {
	for name, tt := range map[string]struct {
		call    *parleytest.Turn
		want    parleytest.Matcher
		status  string
		results int
	}{
		"TaskOutput waits": {parleytest.Expect().Chunks(10000).Call("TaskOutput", `{"task_id":"AGENT","block":true,"timeout":100000}`), parleytest.ToolResult("the report"), "completed", 1},
		"TaskOutput looks": {parleytest.Expect().Chunks(10000).Call("TaskOutput", `{"task_id":"AGENT","block":false}`), parleytest.ToolResult("running"), "completed", 2},
		"TaskStop":         {parleytest.Expect().Chunks(10000).Call("TaskStop", `{"task_id":"AGENT"}`), parleytest.ToolResult("AGENT").Not(), "stopped", 1},
		"KillShell":        {parleytest.Expect().Chunks(10000).Call("KillShell", `{"shell_id":"AGENT"}`), parleytest.ToolResult("AGENT").Not(), "stopped", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := parleytest.Script(launch(true), tt.call, parleytest.Expect(tt.want).Say("main"), parleytest.Say("told").Always())
			s.When("sub", parleytest.FirstUser("P1"), parleytest.Say("so far").Call("Glob", `{"pattern":"*"}`), parleytest.Pause(time.Minute).Say("the report").Always())
			p := prompt(t, s, func(o *parley.Options, c *agent.Config) { c.Model = addressing{Model: c.Model} })
			if p.err != nil {
				t.Fatal(p.err)
			}
			status := ""
			for _, m := range p.all {
				if n, ok := m.(*wire.TaskNotification); ok {
					status = n.Status
				}
			}
			if n := count[*wire.Result](p.all); status != tt.status || n != tt.results {
				t.Errorf("it is %s, with %d results\n%s", status, n, kinds(p.all))
			}
		})
	}
}

// TestPrintEndsAfterBackgroundSubagent checks that with -p a background subagent that ends
// at any moment is reported to the model, in the running turn or in another one, and that
// the agent then ends.
func TestPrintEndsAfterBackgroundSubagent(t *testing.T) {
	runs := 30
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		runs = 1000
	}
	for i := range runs {
		ok := t.Run(fmt.Sprint(i), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := parleytest.Script(launch(true), parleytest.Say("main"), parleytest.Expect(parleytest.LastUser("the report")).Say("told"))
				s.When("sub", parleytest.FirstUser("P1"), parleytest.Say("the report"))
				m := s.Model()
				m.Record = true
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				var stdout, stderr strings.Builder
				code := agent.Run(ctx, agent.Config{Model: m, Cwd: t.TempDir(), Store: &session.Memory{}}, []string{"-p", "go"}, strings.NewReader(""), &stdout, &stderr)
				want := "main\n"
				if reqs := m.Requests(); len(reqs) > 3 {
					want += "told\n"
				}
				reported := slices.ContainsFunc(m.Requests(), func(r *parleytest.Request) bool { return strings.Contains(string(r.Body), "the report") })
				if got := stdout.String(); code != 0 || got != want || !reported || ctx.Err() != nil {
					t.Errorf("exit %d, reported: %v, stdout %q, stderr %q, %v", code, reported, got, stderr.String(), ctx.Err())
				}
			})
		})
		if !ok {
			return
		}
	}
}

// TestInputEndedAndSubagentStuck checks that a background subagent that does not stop
// after an interrupt is abandoned, and that the agent, whose input has ended, ends.
func TestInputEndedAndSubagentStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := parleytest.Script(launch(true), parleytest.Say("main"))
		a := start(t, agent.Config{Model: stuckModel{s.Model()}, Cwd: t.TempDir(), Store: &session.Memory{}}, streaming)
		go func() {
			io.WriteString(a.stdin, hello+"\n")
			time.Sleep(time.Minute) // the turn has ended, the subagent waits for its model
			io.WriteString(a.stdin, `{"type":"control_request","request_id":"i","request":{"subtype":"interrupt"}}`+"\n")
			a.stdin.Close()
		}()
		defer time.Sleep(time.Hour) // until the model has ended
		defer time.AfterFunc(time.Hour, func() { a.cancel(errors.New("too late")) }).Stop()
		began := time.Now()
		stopped := false
		lines := wire.NewReader(a.stdout, nil)
		for m, err := lines.Next(); err == nil; m, err = lines.Next() {
			if n, ok := m.(*wire.TaskNotification); ok {
				stopped = n.Status == "stopped"
			}
		}
		if code := a.wait(); code != 0 || !stopped || time.Since(began) > 2*time.Minute {
			t.Errorf("exit %d after %v, stopped: %v", code, time.Since(began), stopped)
		}
	})
}

// A stuckModel does not stop when it is cancelled in a conversation that starts with P1.
type stuckModel struct{ model.Model }

func (d stuckModel) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	if strings.Contains(string(req.Body), `"text":"P1"`) {
		return func(func(model.Event, error) bool) { time.Sleep(time.Hour) }
	}
	return d.Model.Stream(ctx, req)
}
