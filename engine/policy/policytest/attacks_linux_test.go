package policytest

import (
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// played returns the rows that this run plays: every tenth, or all with
// PARLEY_TEST_LONG.
func played(t *testing.T) ([]Row, []int) {
	t.Helper()
	rows, err := Rows()
	if err != nil {
		t.Fatal(err)
	}
	only := os.Getenv("PARLEY_ATTACKS_ONLY")
	var list []int
	for i := range rows {
		if only != "" {
			if strings.Contains(rows[i].Where()+" "+rows[i].Family+" ", only) {
				list = append(list, i)
			}
		} else if os.Getenv("PARLEY_TEST_LONG") != "" || rows[i].InTenth() {
			list = append(list, i)
		}
	}
	return rows, list
}

// inParallel splits a job over as many workers as there are processors.
func inParallel(t *testing.T, j job) []result {
	n := min(runtime.GOMAXPROCS(0), 2, len(j.Rows))
	parts := make([][]result, n)
	var wg sync.WaitGroup
	for w := range n {
		part := j
		part.Rows = nil
		for i, r := range j.Rows {
			if i%n == w {
				part.Rows = append(part.Rows, r)
			}
		}
		wg.Go(func() { parts[w] = throwaway(t, part) })
	}
	wg.Wait()
	return slices.Concat(parts...)
}

// TestPositiveControl runs the attacks with nothing in between: each leaves its
// witness, or it is none.
func TestPositiveControl(t *testing.T) {
	rows, list := played(t)
	results := inParallel(t, job{Kind: "control", Rows: list})
	missing := map[string]int{}
	fired, slow := 0, int64(0)
	for _, res := range results {
		r := &rows[res.Row]
		slow += res.Millis
		switch {
		case res.Ran == "missing":
			missing[res.Note]++
		case res.Fired:
			fired++
		default:
			t.Errorf("%s: the witness is not there: %s: %s", r.Where(), r.line, res.Note)
		}
		if res.Millis > 1500 {
			t.Logf("%s: %d ms: %s", r.Where(), res.Millis, r.line)
		}
	}
	t.Logf("%d of %d rows left their witness in %d ms; skipped for want of a program: %v", fired, len(results), slow, missing)
}
