package policytest

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/parley-go/parley/engine/sandbox"
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

// A machine is what attacks are played on.
type machine struct {
	name    string
	refuse  string // what the kernel refuses
	sandbox sandbox.Settings
	kind    string // the only kind of workspace sandbox to use
	walled  string // the machine whose read wall is the same, if there is one before this
}

var machines = []machine{
	{name: "landlock only", kind: sandbox.Landlock},
	{name: "namespaces", kind: sandbox.Bubblewrap, sandbox: sandbox.Settings{NestedNamespaces: true}, walled: "landlock only"},
	{name: "bubblewrap", kind: sandbox.Bubblewrap, walled: "landlock only"},
	{name: "no user namespaces", refuse: "namespaces", kind: sandbox.Landlock},
	{name: "no landlock", refuse: "landlock", kind: sandbox.Bubblewrap},
}

// TestAttacks plays the attacks on every machine, as root and as another user: with
// nothing in between, with Parley in between, behind the read wall alone, and in the
// workspace sandbox. Without PARLEY_TEST_LONG it plays every tenth row, on each machine as
// one user.
func TestAttacks(t *testing.T) {
	rows, list := played(t)
	long := os.Getenv("PARLEY_TEST_LONG") != ""
	for i, m := range machines {
		for n, user := range []int{0, anotherUser} {
			if !long && i%2 != n {
				continue
			}
			t.Run(fmt.Sprintf("%s/user %d", m.name, user), func(t *testing.T) {
				before := processorTime()
				play := func(kind string, check func(t *testing.T, rows []Row, results []result)) {
					t.Run(kind, func(t *testing.T) {
						check(t, rows, inParallel(t, job{Kind: kind, Refuse: m.refuse, User: user, Rows: list, Wall: m.kind, Sandbox: m.sandbox}))
					})
				}
				if i == 0 { // it is the same on every machine
					play("control", checkControl(user))
				}
				if m.walled == "" {
					play("parley", checkParley)
					play("wall", checkWall)
				}
				play("sandbox", checkSandbox)
				t.Logf("%d rows with %v of processors", len(list), (processorTime() - before).Round(time.Second/10))
			})
		}
	}
}

// processorTime is what the processes that ended have used.
func processorTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// checkControl: run with nothing in between, each attack leaves its witness, or it is
// none. Some work for root only.
func checkControl(user int) func(t *testing.T, rows []Row, results []result) {
	return func(t *testing.T, rows []Row, results []result) {
		missing := map[string]int{}
		fired, needRoot, slow := 0, 0, int64(0)
		for _, res := range results {
			r := &rows[res.Row]
			slow += res.Millis
			switch {
			case res.Ran == "missing":
				missing[res.Note]++
			case res.Fired:
				fired++
			case user != 0:
				needRoot++
				t.Logf("%s: only root can: %s", r.Where(), r.line)
			default:
				t.Errorf("%s: the witness is not there: %s: %s", r.Where(), r.line, res.Note)
			}
			if res.Millis > 1500 {
				t.Logf("%s: %d ms: %s", r.Where(), res.Millis, r.line)
			}
		}
		if needRoot > len(results)/20 {
			t.Errorf("%d of %d rows left no witness", needRoot, len(results))
		}
		t.Logf("%d of %d rows left their witness in %d ms; skipped for want of a program: %v", fired, len(results), slow, missing)
	}
}

// checkParley: the policy decided, and what it let run ran where it would. No witness is
// there.
func checkParley(t *testing.T, rows []Row, results []result) {
	pending, ran := Pending(), map[string]int{}
	for _, res := range results {
		r := &rows[res.Row]
		ran[res.Ran]++
		if res.Fired && !r.IsPending(pending) {
			t.Errorf("%s: it ran (%s) and left its witness:\t%s\t%s", r.Where(), res.Ran, r.line, res.Note)
		}
	}
	t.Logf("%d rows; ran: %v", len(results), ran)
}

// checkWall: the attacks that need no rule ran as if every one of them was taken for
// harmless. The wall alone stopped them.
func checkWall(t *testing.T, rows []Row, results []result) {
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
}

// checkSandbox: the attacks ran in the workspace sandbox as if every rule had failed. None
// changed a file outside, reached a host or signalled a process.
func checkSandbox(t *testing.T, rows []Row, results []result) {
	ran := 0
	for _, res := range results {
		if res.Row < 0 {
			t.Skip(res.Note)
		}
		ran++
		if r := &rows[res.Row]; res.Fired {
			t.Errorf("%s: it left its witness in spite of the sandbox:\t%s", r.Where(), r.line)
		}
	}
	t.Logf("%d rows", ran)
}
