package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

var (
	from    = flag.Uint64("sim.from", 0, "the first seed")
	seeds   = flag.Uint64("sim.seeds", 0, "how many seeds to play")
	atMost  = flag.Duration("sim.time", 0, "stop after this time")
	twice   = flag.Bool("sim.twice", false, "play each seed twice and compare")
	verbose = flag.Bool("sim.trace", false, "print the trace of each run")
	planArg = flag.String("sim.plan", "", "play this plan, as JSON")
)

// TestWorker plays the seeds that the command sim asks for. It prints a line of JSON for each
// failure, and one for all at the end.
func TestWorker(t *testing.T) {
	if *seeds == 0 && *planArg == "" {
		t.Skip("for the command sim")
	}
	debug.SetGCPercent(-1)
	runtime.MemProfileRate = 0
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("parley-sim-%010d", os.Getpid())) // of the same length in all processes
	t.Cleanup(func() { os.RemoveAll(dir) })
	out := json.NewEncoder(os.Stdout)
	if *planArg != "" {
		var plan Plan
		if err := json.Unmarshal([]byte(*planArg), &plan); err != nil {
			t.Fatal(err)
		}
		r := Run(t, plan, dir, *verbose)
		out.Encode(r)
		return
	}
	began := time.Now()
	var sum Totals
	for i := range 3 { // what is made once for a process
		Run(t, NewPlan(uint64(i)), dir, false)
	}
	for seed := *from; seed < *from+*seeds; seed++ {
		if *atMost > 0 && time.Since(began) > *atMost {
			break
		}
		out.Encode(map[string]uint64{"At": seed})
		plan := NewPlan(seed)
		r := Run(t, plan, dir, false)
		sum.Done++
		sum.Events += uint64(r.Events)
		sum.Hits += uint64(len(r.Hit))
		sum.Virtual += r.Virtual
		sum.Traces ^= r.Hash
		if len(r.Violations) > 0 {
			out.Encode(map[string]any{"Failed": r})
		}
		if *twice {
			if again := Run(t, plan, dir, false); again.Hash != r.Hash {
				sum.Differ++
				out.Encode(map[string]any{"Differs": explain(t, plan, dir)})
			}
		}
		if sum.Done%10 == 0 {
			runtime.GC()
		}
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	sum.Heap = m.HeapAlloc
	out.Encode(map[string]any{"Totals": sum})
}

// explain plays a plan with its trace until two runs differ, and shows where.
func explain(t *testing.T, plan Plan, dir string) string {
	r := Run(t, plan, dir, true)
	for range 20 {
		if again := Run(t, plan, dir, true); again.Hash != r.Hash {
			return fmt.Sprintf("seed %d differs at %s\n%s", plan.Seed, difference(r.Trace, again.Trace), otherDecision(r.decisions, again.decisions))
		}
	}
	return fmt.Sprintf("seed %d differed once, and 20 times not again", plan.Seed)
}

// difference shows where two traces differ first.
func difference(a, b []string) string {
	for i := range min(len(a), len(b)) {
		if a[i] == b[i] {
			continue
		}
		k := 0
		for k < min(len(a[i]), len(b[i])) && a[i][k] == b[i][k] {
			k++
		}
		k = max(0, k-80)
		return fmt.Sprintf("event %d:\n- %.40s … %.200s\n+ %.40s … %.200s", i, a[i], a[i][k:], b[i], b[i][k:])
	}
	return fmt.Sprintf("%d and %d events", len(a), len(b))
}

// otherDecision shows the first decision of the seed that only one of two runs needed.
func otherDecision(a, b []decision) string {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("decision %d of %d and %d:\n- %s\n+ %s", i, len(a), len(b), describe(a[i]), describe(b[i]))
		}
	}
	return fmt.Sprintf("%d and %d decisions, the first of them equal", len(a), len(b))
}

// TestPromises plays seeds with the schedules that Go happens to choose. PARLEY_TEST_LONG=1 plays
// more of them; make sim plays them with schedules from the seed.
func TestPromises(t *testing.T) {
	count := uint64(24)
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		count = 5000
	}
	dir := t.TempDir()
	for seed := range count {
		check(t, NewPlan(seed), dir)
	}
}

func check(t *testing.T, plan Plan, dir string) {
	t.Helper()
	r := Run(t, plan, dir, false)
	if len(r.Violations) == 0 {
		return
	}
	for _, line := range r.Trace {
		t.Logf("%.300s", line)
	}
	t.Errorf("%v:\n%s", plan, strings.Join(r.Violations, "\n"))
}

// TestFoundSeeds plays the plans that found a defect, each named for it.
func TestFoundSeeds(t *testing.T) {
	data, err := os.ReadFile("testdata/found.json")
	if err != nil {
		t.Fatal(err)
	}
	var found []struct {
		Defect string
		Plan   Plan
	}
	if err := json.Unmarshal(data, &found); err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Run(f.Defect, func(t *testing.T) { check(t, f.Plan, t.TempDir()) })
	}
}
