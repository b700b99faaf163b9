package policytest

import (
	"flag"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/wire"
)

// BenchmarkFiftyRules decides everyday commands with fifty rules. It reports the
// minimum of processor time, because others use the machine, too.
func BenchmarkFiftyRules(b *testing.B) {
	rules, err := FiftyRules()
	if err != nil || len(rules) != 50 {
		b.Fatalf("%d rules, want 50 (%v)", len(rules), err)
	}
	p, dir := policy.New(rules...), b.TempDir()
	for _, command := range FiveCommands {
		b.Run(strings.Fields(command)[0], func(b *testing.B) {
			req := CostRequest(command, dir)
			if d := p.Decide(req); d.Behavior != wire.BehaviorAllow {
				b.Fatalf("%s: %s (%s)", command, d.Behavior, d.Reason)
			}
			least := time.Hour
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for b.Loop() {
				decideIn(p, req, &least)
			}
			b.ReportMetric(float64(least.Nanoseconds()), "least-ns")
		})
	}
}

// decideIn decides, and updates the minimum time. The goroutine must be locked to its thread.
func decideIn(p *policy.Policy, req *policy.Request, least *time.Duration) {
	start := threadTime()
	p.Decide(req)
	*least = min(*least, threadTime()-start)
}

// TestDecisionsTakeThirtyMicroseconds decides every command of the everyday table until one
// decision about it took at most 30 µs of processor time. It depends on the machine, so it
// runs with PARLEY_TEST_LONG only.
func TestDecisionsTakeThirtyMicroseconds(t *testing.T) {
	if os.Getenv("PARLEY_TEST_LONG") == "" {
		t.Skip("PARLEY_TEST_LONG is not set")
	}
	fifty, err := FiftyRules()
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dir := t.TempDir()
	for n, rules := range [][]policy.Rule{nil, fifty} {
		p := policy.New(rules...)
		for _, c := range EverydayCommands() {
			least := time.Hour
			for try := 0; try < 100_000 && least > 30*time.Microsecond; try++ {
				decideIn(p, CostRequest(c.Command, dir), &least)
			}
			if least > 30*time.Microsecond {
				t.Errorf("%s takes %v with %d rules", c.Command, least, 50*n)
			}
		}
	}
}

// BenchmarkEveryday decides every command of the everyday table, without rules and with
// fifty, and reports the times of the slowest and of the median.
func BenchmarkEveryday(b *testing.B) {
	fifty, err := FiftyRules()
	if err != nil {
		b.Fatal(err)
	}
	for name, rules := range map[string][]policy.Rule{"no rules": nil, "fifty rules": fifty} {
		b.Run(name, func(b *testing.B) {
			p, dir, list := policy.New(rules...), b.TempDir(), EverydayCommands()
			least := make([]time.Duration, len(list))
			for i := range least {
				least[i] = time.Hour
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for b.Loop() {
				for i := range list {
					decideIn(p, CostRequest(list[i].Command, dir), &least[i])
				}
			}
			at := 0
			for i := range least {
				if least[i] > least[at] {
					at = i
				}
			}
			b.Logf("the slowest is %s", list[at].Command)
			if *slow > 0 {
				for i := range least {
					if least[i] >= *slow {
						b.Logf("%v %s", least[i], list[i].Command)
					}
				}
			}
			b.ReportMetric(float64(least[at].Nanoseconds()), "slowest-ns")
			slices.Sort(least)
			b.ReportMetric(float64(least[len(least)/2].Nanoseconds()), "median-ns")
		})
	}
}

var slow = flag.Duration("slow", 0, "name the commands that take at least as long")
