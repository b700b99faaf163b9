package policytest

import (
	"cmp"
	"fmt"
	"maps"
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

// played returns the rows that this run plays: every tenth, or all with PARLEY_TEST_LONG.
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

// inParallel splits a job over workers. Rows of a place with few rows stay together, because
// each worker creates the places of its rows. A run of all rows has more workers than
// processors: half of its time it waits for commands that do not end by themselves.
func inParallel(t *testing.T, rows []Row, j job) []result {
	n := min(runtime.GOMAXPROCS(0), 2, len(j.Rows))
	if os.Getenv("PARLEY_TEST_LONG") != "" {
		n *= 3
	}
	lists, byPlace := make([][]int, n), map[string][]int{}
	for _, i := range j.Rows {
		s, err := ParseSetting(rows[i].Setting)
		if err != nil {
			t.Fatal(err)
		}
		byPlace[s.Place] = append(byPlace[s.Place], i)
	}
	shortest := func() *[]int {
		return &lists[slices.IndexFunc(lists, func(l []int) bool {
			return !slices.ContainsFunc(lists, func(o []int) bool { return len(o) < len(l) })
		})]
	}
	for _, place := range slices.SortedFunc(maps.Keys(byPlace), func(a, b string) int {
		return cmp.Or(len(byPlace[b])-len(byPlace[a]), strings.Compare(a, b))
	}) {
		parts := 1
		if len(byPlace[place]) > 100 {
			parts = n
		}
		for w := range parts {
			list := shortest()
			for i := w; i < len(byPlace[place]); i += parts {
				*list = append(*list, byPlace[place][i])
			}
		}
	}
	parts := make([][]result, n)
	var wg sync.WaitGroup
	for w := range n {
		part := j
		part.Rows = lists[w]
		wg.Go(func() { parts[w] = throwaway(t, part) })
	}
	wg.Wait()
	return slices.Concat(parts...)
}

// A machine is a configuration of the kernel and the sandbox on which attacks are played.
type machine struct {
	name    string
	refuse  string // what the kernel denies
	sandbox sandbox.Settings
	kind    string // the only kind of workspace sandbox to use
	walled  string // an earlier machine with the same read wall, if any
}

var machines = []machine{
	{name: "landlock only", kind: sandbox.Landlock},
	{name: "namespaces", kind: sandbox.Bubblewrap, sandbox: sandbox.Settings{NestedNamespaces: true}, walled: "landlock only"},
	{name: "bubblewrap", kind: sandbox.Bubblewrap, walled: "landlock only"},
	{name: "no user namespaces", refuse: "namespaces", kind: sandbox.Landlock},
	{name: "no landlock", refuse: "landlock", kind: sandbox.Bubblewrap},
}

// TestAttacksWork is the positive control: it plays the attacks without protection, as
// root and as another user. The outcome is the same on every machine. Without
// PARLEY_TEST_LONG it plays every tenth row as root.
func TestAttacksWork(t *testing.T) {
	for _, user := range []int{0, anotherUser} {
		if user == 0 || os.Getenv("PARLEY_TEST_LONG") != "" {
			t.Run(fmt.Sprint("user ", user), func(t *testing.T) { playKind(t, job{Kind: "control", User: user}, checkControl(user)) })
		}
	}
}

// TestAttacks plays the attacks on every machine, as root and as another user: with Parley
// in between, behind the read wall alone, and in the workspace sandbox. Without
// PARLEY_TEST_LONG it plays every tenth row, on each machine as one user.
func TestAttacks(t *testing.T) {
	for i, m := range machines {
		for n, user := range []int{0, anotherUser} {
			if os.Getenv("PARLEY_TEST_LONG") == "" && i%2 != n {
				continue
			}
			t.Run(fmt.Sprintf("%s/user %d", m.name, user), func(t *testing.T) {
				play := func(kind string, check func(t *testing.T, rows []Row, results []result)) {
					t.Run(kind, func(t *testing.T) {
						playKind(t, job{Kind: kind, Refuse: m.refuse, User: user, Wall: m.kind, Sandbox: m.sandbox}, check)
					})
				}
				if m.walled == "" {
					play("parley", checkParley)
					play("wall", checkWall)
				}
				play("sandbox", checkSandbox)
			})
		}
	}
}

// playKind plays the rows of this run and checks their results.
func playKind(t *testing.T, j job, check func(t *testing.T, rows []Row, results []result)) {
	rows, list := played(t)
	playList(t, rows, once(rows, list, j.Kind), j, check)
}

// once returns the rows that a job plays. The jobs "wall" and "sandbox" ignore the rules and the
// mode, so they play a command once if several rows have it in the same place.
func once(rows []Row, list []int, kind string) []int {
	if kind != "wall" && kind != "sandbox" {
		return list
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(list), func(i int) bool {
		r := &rows[i]
		s, err := ParseSetting(r.Setting)
		if err != nil || !r.confined(s, kind) {
			return true
		}
		key := strings.Join([]string{s.Place, r.Witness, r.Arg}, "\x00")
		again := seen[key]
		seen[key] = true
		return again
	})
}

// confined reports whether a row is an attack on the read wall ("wall"), or on the workspace
// sandbox ("sandbox").
func (r *Row) confined(s *Setting, kind string) bool {
	if kind == "wall" {
		return s.Ruleless() && len(s.Rules) == 0 && r.Tool == "Bash"
	}
	return reachesOut(r) && s.Place == "app"
}

// playList plays some rows and checks their results.
func playList(t *testing.T, rows []Row, list []int, j job, check func(t *testing.T, rows []Row, results []result)) {
	j.Rows = list
	before := processorTime()
	check(t, rows, inParallel(t, rows, j))
	t.Logf("%d rows with %v of processors", len(list), (processorTime() - before).Round(time.Second/10))
}

// processorTime returns the CPU time of the child processes that have ended.
func processorTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_CHILDREN, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// checkControl checks that each attack leaves its witness if nothing stops it; otherwise
// it is not an attack. Some work for root only.
func checkControl(user int) func(t *testing.T, rows []Row, results []result) {
	return func(t *testing.T, rows []Row, results []result) {
		missing := map[string]int{}
		fired, needRoot := 0, 0
		for _, res := range results {
			r := &rows[res.Row]
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
		}
		if needRoot > len(results)/20 {
			t.Errorf("%d of %d rows left no witness", needRoot, len(results))
		}
		t.Logf("%d of %d rows left their witness; skipped for want of a program: %v", fired, len(results), missing)
	}
}

// checkParley checks that no witness is left after the policy has decided and the allowed
// commands have run where they would.
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

// checkWall checks that the wall alone stopped the attacks that need no rule. They ran as
// if all of them had been taken for harmless.
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
	}
	t.Logf("%d rows", ran)
}

// checkSandbox checks that no attack in the workspace sandbox changed a file outside,
// reached a host or signalled a process. They ran as if every rule had failed.
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
