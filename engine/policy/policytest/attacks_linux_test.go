package policytest

import (
	"fmt"
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

// configurations are the machines that attacks are played on: what the kernel refuses.
var configurations = []struct{ name, refuse string }{
	{"landlock", ""},
	{"no namespaces", "namespaces"},
	{"no landlock", "landlock"},
}

// inEveryConfiguration plays rows on every kind of machine, as root and as another user.
func inEveryConfiguration(t *testing.T, j job, check func(t *testing.T, rows []Row, results []result)) {
	rows, list := played(t)
	for i, c := range configurations {
		for n, user := range []int{0, anotherUser} {
			if os.Getenv("PARLEY_TEST_LONG") == "" && i%2 != n {
				continue
			}
			t.Run(fmt.Sprintf("%s/user %d", c.name, user), func(t *testing.T) {
				j := j
				j.Refuse, j.User, j.Rows = c.refuse, user, list
				check(t, rows, inParallel(t, j))
			})
		}
	}
}

// TestParleyStopsAttacks plays the attacks with Parley in between: the policy decides,
// and what it lets run runs where it would. No witness is there.
func TestParleyStopsAttacks(t *testing.T) {
	pending := Pending()
	inEveryConfiguration(t, job{Kind: "parley"}, func(t *testing.T, rows []Row, results []result) {
		ran := map[string]int{}
		for _, res := range results {
			r := &rows[res.Row]
			ran[res.Ran]++
			if res.Fired && !r.IsPending(pending) {
				t.Errorf("%s: it ran (%s) and left its witness:\t%s\t%s", r.Where(), res.Ran, r.line, res.Note)
			}
		}
		t.Logf("%d rows; ran: %v", len(results), ran)
	})
}

// TestWallStopsAttacks plays the attacks that need no rule as if every one of them was
// taken for harmless: the wall alone stops them.
func TestWallStopsAttacks(t *testing.T) {
	inEveryConfiguration(t, job{Kind: "wall"}, func(t *testing.T, rows []Row, results []result) {
		ran := 0
		for _, res := range results {
			if res.Row < 0 {
				t.Skip(res.Note)
			}
			ran++
			if r := &rows[res.Row]; res.Fired {
				t.Errorf("%s: it left its witness behind the wall:\t%s\t%s", r.Where(), r.line, res.Note)
			}
			if res.Millis > 1500 {
				t.Logf("%s: %d ms: %s", rows[res.Row].Where(), res.Millis, rows[res.Row].line)
			}
		}
		t.Logf("%d rows", ran)
	})
}
