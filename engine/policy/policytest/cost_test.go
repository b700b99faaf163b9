package policytest

import (
	"strings"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/wire"
)

// BenchmarkFiftyRules decides about commands of every day with fifty rules. The least
// is what counts on a machine that others use, too.
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
			for b.Loop() {
				start := time.Now()
				p.Decide(req)
				least = min(least, time.Since(start))
			}
			b.ReportMetric(float64(least.Nanoseconds()), "least-ns")
		})
	}
}
