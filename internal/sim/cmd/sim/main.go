// Command sim builds the simulation of package sim with the overlay of Go's runtime and plays
// seeds with it, in as many processes as there are processors.
//
//	go run ./internal/sim/cmd/sim -time 1m            seeds for a minute
//	go run ./internal/sim/cmd/sim -seeds 100000       so many seeds, beginning at -from
//	go run ./internal/sim/cmd/sim -seed 17            one seed, with its trace
//	go run ./internal/sim/cmd/sim -twice -seeds 1000  each seed twice, and compare
//	go run ./internal/sim/cmd/sim -planted            which seed finds each planted bug
//
// A failing seed is repeated with fewer and fewer faults. The exit status is 1 if a seed
// fails.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley/internal/sim"
	"github.com/parley-go/parley/internal/sim/overlay"
)

var (
	seed    = flag.Int64("seed", -1, "play this seed alone and print its trace")
	from    = flag.Uint64("from", 0, "the first seed")
	seeds   = flag.Uint64("seeds", 1<<62, "how many seeds to play")
	limit   = flag.Duration("time", 0, "stop after this time; 0 means when all seeds are played")
	twice   = flag.Bool("twice", false, "play each seed twice and compare the traces")
	planted = flag.Bool("planted", false, "look for the first of -seeds (100000) that finds each planted bug")
	only    = flag.String("bug", "", "with -planted, only bugs whose name contains this; otherwise, play with this bug")
	workers = flag.Int("workers", runtime.NumCPU(), "how many processes play")
	keep    = flag.String("binary", "", "build into this file, and use it if it is there")
	long    = flag.Int("width", 300, "cut the lines of traces to this length; 0 means whole lines")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "parley-sim")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "sim.test")
	if *keep != "" {
		binary, _ = filepath.Abs(*keep)
	}
	if _, err := os.Stat(binary); err != nil {
		if err := build(dir, binary); err != nil {
			return err
		}
	}
	if *planted {
		return findPlanted(binary)
	}
	bug = *only
	if *seed >= 0 {
		r := play(binary, sim.NewPlan(uint64(*seed)))
		fmt.Println(r.Plan)
		printTrace(r)
		if len(r.Violations) > 0 {
			return errors.New("the seed fails")
		}
		return nil
	}
	began := time.Now()
	sum := &total{}
	failed := sum.play(binary, *from, *seeds, *limit)
	fmt.Printf("%d seeds from %d in %v (%.0f a second): %d events, %v of virtual time, %d faults; %d seeds failed", sum.Done, *from, time.Since(began).Round(time.Second),
		float64(sum.Done)/time.Since(began).Seconds(), sum.Events, sum.Virtual.Round(time.Hour), sum.Hits, len(failed))
	if *twice {
		fmt.Printf(", %d differed when played again", sum.Differ)
	}
	fmt.Printf("; heap at most %d MiB after a collection; traces %016x\n", sum.Heap>>20, sum.Traces)
	for i, f := range failed {
		if i == 5 {
			fmt.Printf("and %d more\n", len(failed)-i)
			break
		}
		small := shrink(binary, f)
		printTrace(small)
		fmt.Printf("%v\nshrunk to %v\n%s\n\n", f.Plan, small.Plan, strings.Join(small.Violations, "\n"))
	}
	if len(failed) > 0 || *twice && sum.Differ > 0 {
		return fmt.Errorf("%d seeds failed, %d differed", len(failed), sum.Differ)
	}
	return nil
}

// build builds the simulation.
func build(dir, binary string) error {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return err
	}
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	files := filepath.Join(dir, "overlay")
	if cache, err := os.UserCacheDir(); err == nil { // go build compiles everything again if files have other paths
		files = filepath.Join(cache, "parley-sim")
	}
	if err := os.MkdirAll(files, 0o777); err != nil {
		return err
	}
	file, err := overlay.Write(files, strings.TrimSpace(string(goroot)), root, *planted || *only != "")
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", file, "-tags", "simulation", "-o", binary, "./internal/sim")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

// worker returns a command that plays in its own process.
func worker(binary string, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, append([]string{"-test.run=^TestWorker$", "-test.timeout=0"}, args...)...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "GOGC=off", overlay.PlantedEnv+"="+bug)
	if memory := "/dev/shm"; os.Getenv("TMPDIR") == "" {
		if info, err := os.Stat(memory); err == nil && info.IsDir() {
			cmd.Env = append(cmd.Env, "TMPDIR="+memory)
		}
	}
	return cmd
}

// bug is the planted bug of the workers.
var bug string

// findPlanted reports for each planted bug the first seed that finds it. A seed that also
// fails without the bug does not count.
func findPlanted(binary string) error {
	count := min(*seeds, 100_000)
	missed := 0
	fmt.Println("| planted bug | first seed | promise that does not hold |\n|---|---|---|")
	for _, b := range overlay.Planted {
		if !strings.Contains(b.Name, *only) {
			continue
		}
		found := findBug(binary, b.Name, count)
		if found == nil {
			missed++
			fmt.Printf("| %s | none of %d | |\n", b.Name, count)
			continue
		}
		promise, rest, _ := strings.Cut(found.Violations[0], ": ")
		if promise == "panic" {
			promise = rest
		}
		fmt.Printf("| %s | %d | %s |\n", b.Name, found.Plan.Seed, promise)
	}
	if missed > 0 {
		return fmt.Errorf("%d planted bugs were not found", missed)
	}
	return nil
}

// findBug returns the report of the first seed that fails only with a bug.
func findBug(binary, name string, count uint64) *sim.Report {
	defer func() { bug = "" }()
	for next := *from; next < *from+count; {
		bug = name
		n := min(max(8, next-*from), batch)
		failed := new(total).playBatch(binary, next, n, 0)
		slices.SortFunc(failed, func(a, b *sim.Report) int { return cmp.Compare(a.Plan.Seed, b.Plan.Seed) })
		bug = ""
		for _, r := range failed {
			if again := play(binary, r.Plan); len(again.Violations) == 0 {
				return r
			}
		}
		next += n
	}
	return nil
}

// A total sums up the work of all workers.
type total struct {
	mu sync.Mutex
	sim.Totals
}

// patience is how long a run may compute. One that never ends needs more and more memory, because nothing is collected
// during a run. On a busy machine a run can wait for a processor much longer than that.
const patience = 30 * time.Second

// A watchdog kills a process that computes too long.
type watchdog struct {
	process *os.Process
	mu      sync.Mutex
	timer   *time.Timer
	since   time.Duration // what the process had computed when its run began
	bit     bool
}

func watch(p *os.Process) *watchdog {
	w := &watchdog{process: p}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(patience, w.look)
	return w
}

// pet is called when a run begins.
func (w *watchdog) pet() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.bit {
		w.timer.Reset(patience)
		w.since = computed(w.process.Pid)
	}
}

func (w *watchdog) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := computed(w.process.Pid); now > 0 && now < w.since+patience {
		w.timer.Reset(w.since + patience - now)
		return
	}
	w.bit = true
	w.process.Kill()
}

// stop ends the watch and reports whether the process was killed.
func (w *watchdog) stop() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	return w.bit
}

// computed returns the processor time of a process, or 0 where the system does not show it.
func computed(pid int) time.Duration {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // the kernel counts hundredths of a second
}

// batch is how many seeds a process plays, so that a process that dies loses little.
const batch = 500

// play plays seeds and returns the reports of the failed ones, at most 100.
func (t *total) play(binary string, from, count uint64, limit time.Duration) (failed []*sim.Report) {
	began := time.Now()
	next, end := from, from+count
	var work sync.WaitGroup
	for range *workers {
		work.Go(func() {
			for {
				t.mu.Lock()
				start := next
				n := min(batch, end-start)
				enough := len(failed) >= 100
				next += n
				t.mu.Unlock()
				if n == 0 || enough || limit > 0 && time.Since(began) > limit {
					return
				}
				left := time.Duration(0)
				if limit > 0 {
					left = max(limit-time.Since(began), time.Millisecond)
				}
				bad := t.playBatch(binary, start, n, left)
				for _, r := range bad { // a run of hours may be stopped before it shows them
					fmt.Printf("seed %d fails: %s\n", r.Plan.Seed, r.Violations[0])
				}
				t.mu.Lock()
				failed = append(failed, bad...)
				t.mu.Unlock()
			}
		})
	}
	work.Wait()
	slices.SortFunc(failed, func(a, b *sim.Report) int { return int(a.Plan.Seed) - int(b.Plan.Seed) })
	return failed
}

// playBatch plays seeds in one process, and continues in another after a seed that ends the
// process.
func (t *total) playBatch(binary string, start, n uint64, limit time.Duration) (failed []*sim.Report) {
	for end := start + n; start < end; {
		args := []string{"-sim.from=" + fmt.Sprint(start), "-sim.seeds=" + fmt.Sprint(end-start), "-sim.time=" + limit.String()}
		if *twice {
			args = append(args, "-sim.twice")
		}
		cmd := worker(binary, args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		stdout, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return append(failed, crashed(sim.NewPlan(start), fmt.Sprint("panic: the process cannot be started: ", err)))
		}
		dog := watch(cmd.Process)
		last := start
		for lines := bufio.NewReader(stdout); ; {
			line, end := lines.ReadBytes('\n')
			if end != nil {
				break
			}
			dog.pet()
			var r struct {
				At     *uint64
				Failed *sim.Report
				Totals *sim.Totals

				Differs string
			}
			if json.Unmarshal(line, &r) != nil {
				continue
			}
			switch {
			case r.At != nil:
				last = *r.At
			case r.Totals != nil:
				t.mu.Lock()
				t.Totals.Add(*r.Totals)
				t.mu.Unlock()
			case r.Differs != "":
				fmt.Println(r.Differs)
			case r.Failed != nil:
				failed = append(failed, r.Failed)
			}
		}
		err = cmd.Wait()
		if bit := dog.stop(); err == nil {
			break
		} else if bit {
			fmt.Fprintf(&stderr, "panic: it ends: the run did not end in %v\n", patience)
		}
		failed = append(failed, crashed(sim.NewPlan(last), stderr.String()))
		t.mu.Lock()
		t.Done += last - start + 1
		t.mu.Unlock()
		start = last + 1
	}
	return failed
}

// crashed returns the report of a run that ended its process: a panic, a deadlock, or a
// leaked goroutine.
func crashed(p sim.Plan, stderr string) *sim.Report {
	var lines []string
	for line := range strings.Lines(stderr) {
		if line = strings.TrimRight(line, "\n"); !strings.HasPrefix(line, "\tinternal/") {
			lines = append(lines, line)
		}
	}
	first := "the process ended"
	for _, line := range lines {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			first = line
			break
		}
	}
	return &sim.Report{Plan: p, Violations: []string{first}, Trace: lines[:min(len(lines), 120)]}
}

// play plays one plan and returns its report, with the trace.
func play(binary string, p sim.Plan) *sim.Report {
	data, _ := json.Marshal(p)
	cmd := worker(binary, "-sim.plan="+string(data), "-sim.trace")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return crashed(p, fmt.Sprint("the process cannot be started: ", err))
	}
	defer watch(cmd.Process).stop() // a shrunk plan may wait forever, for example for a silent host
	var found *sim.Report
	for lines := bufio.NewReader(out); ; {
		line, err := lines.ReadBytes('\n')
		var r sim.Report
		if json.Unmarshal(line, &r) == nil && r.Events > 0 {
			found = &r
		}
		if err == io.EOF {
			break
		}
	}
	if err := cmd.Wait(); err != nil || found == nil {
		return crashed(p, stderr.String())
	}
	return found
}

// shrink removes faults, prompts and the shuffling as long as the plan still fails.
func shrink(binary string, r *sim.Report) *sim.Report {
	best := r
	try := func(p sim.Plan) bool {
		if again := play(binary, p); len(again.Violations) > 0 {
			best = again
			return true
		}
		return false
	}
	for smaller := true; smaller; {
		smaller = false
		for i := range best.Plan.Faults {
			p := best.Plan
			p.Faults = slices.Delete(slices.Clone(p.Faults), i, i+1)
			if try(p) {
				smaller = true
				break
			}
		}
	}
	for best.Plan.Prompts > 1 {
		p := best.Plan
		p.Prompts--
		if !try(p) {
			break
		}
	}
	for _, change := range []func(*sim.Plan){func(p *sim.Plan) { p.Yield = 0 }, func(p *sim.Plan) { p.Shuffle = 0 }, func(p *sim.Plan) { p.Nap = 0 }} {
		p := best.Plan
		if change(&p); p.String() != best.Plan.String() {
			try(p)
		}
	}
	return best
}

func printTrace(r *sim.Report) {
	for _, line := range r.Trace {
		if *long > 0 && len(line) > *long {
			line = line[:*long] + "…"
		}
		fmt.Println(line)
	}
}
