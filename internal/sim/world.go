package sim

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A Report is the result of a run.
type Report struct {
	Plan       Plan
	Hash       uint64 // of the trace
	Events     int    // in the trace
	Virtual    time.Duration
	Hit        []string // the faults that happened
	Violations []string // the violated promises; empty if all hold
	Trace      []string // if it was requested, or if there are violations

	decisions []decision // of the seed, with Trace
}

// Totals sums up many runs.
type Totals struct {
	Done, Events, Hits, Differ uint64
	Virtual                    time.Duration
	Heap                       uint64 // maximum, in bytes
	Traces                     uint64 // the hashes of all traces, xored: the same seeds have the same value in any order
}

// Add adds the totals of another process.
func (t *Totals) Add(o Totals) {
	t.Done, t.Events, t.Hits, t.Differ = t.Done+o.Done, t.Events+o.Events, t.Hits+o.Hits, t.Differ+o.Differ
	t.Virtual, t.Heap, t.Traces = t.Virtual+o.Virtual, max(t.Heap, o.Heap), t.Traces^o.Traces
}

// errKilled is returned by the operations of a killed agent: they have no effect.
var errKilled = errors.New("sim: killed")

// A world is the state that outlives the agents of a run.
type world struct {
	plan  Plan
	base  string // the directory of all files
	mu    sync.Mutex
	seq   int            // number of events
	count map[string]int // operations, by the kind of fault that can happen to them
	hit   []string
	bad   []string
	hash  uint64
	trace []event
	start time.Time
	lived time.Duration // of earlier lives

	disk  *disk
	calls map[string]*called
	asks  map[string]string // the host's answers about calls: "allow", "deny"
	bills map[string]*bill  // by the name of the prompt
	last  int               // the highest number of a prompt

	streaming map[string]bool // requests that the model is answering
	written   map[string]bool // uuids of acknowledged records, and ids of acknowledged intents

	agents *sync.WaitGroup // running agents

	decisions *[]decision // of the seed; nil if nobody needs them
}

type event struct {
	at    time.Duration
	actor string
	text  string
}

// A life is one agent and one host, in one bubble.
type life struct {
	n         int
	dead      bool // killed: the agent's operations have no effect
	cut       bool // the pipe was cut, or an end of it closed
	fenced    bool // another hub owns the session
	unwritten bool // the store failed
	healthy   bool // nothing has happened that ends a conversation early
	killed    chan struct{}
	acked     atomic.Int64 // when the last interrupt was acknowledged
	results   []string
	prompts   []string
	cancel    context.CancelFunc

	interrupts map[string]bool   // the ids of the requests
	names      map[string]string // of the prompts of this life, by their UUID
	started    map[string]int    // when the agent wrote that a prompt starts, by its name; 0 until then
	open       map[string]bool   // calls that the host received and that have no result yet
	questions  map[string]string // requests of the agent that are neither answered nor withdrawn, by id
	requests   map[string]int    // how often requests of the host were answered
	answers    map[string]int    // how often the host answered requests
	stolen     bool              // another process has the lease
	unbilled   bool              // the ledger of the agent started without the earlier usage
}

func newLife(n int) *life {
	return &life{n: n, healthy: true, interrupts: map[string]bool{}, names: map[string]string{}, started: map[string]int{}, open: map[string]bool{},
		questions: map[string]string{}, requests: map[string]int{}, answers: map[string]int{}, unbilled: n > 0}
}

// log adds an event to the trace.
func (w *world) log(actor, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logLocked(actor, format, args...)
}

func (w *world) logLocked(actor, format string, args ...any) int {
	if len(args) > 0 {
		format = fmt.Sprintf(format, args...)
	}
	return w.logText(actor, format)
}

func (w *world) logText(actor, text string) int {
	text = strings.ReplaceAll(text, w.base, "DIR")
	at := w.lived
	if !w.start.IsZero() {
		at += time.Since(w.start)
	}
	w.hash = mix(w.hash, uint64(at), actor, text)
	w.trace = append(w.trace, event{at, actor, text})
	w.seq++
	return w.seq
}

func mix(h, n uint64, words ...string) uint64 {
	const prime = 1099511628211
	h = (h ^ n) * prime
	for _, s := range words {
		h = (h ^ uint64(len(s))) * prime
		for ; len(s) >= 8; s = s[8:] {
			h = (h ^ binary.LittleEndian.Uint64([]byte(s[:8]))) * prime
			h ^= h >> 32
		}
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * prime
		}
	}
	return h
}

// violate records that a promise does not hold.
func (w *world) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violateLocked(format, args...)
}

func (w *world) violateLocked(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(w.bad) < 20 {
		w.bad = append(w.bad, text)
	}
	w.logLocked("VIOLATION", "%s", text)
}

// fault counts an operation to which any of kinds can happen and returns the fault that does.
func (w *world) fault(kinds ...string) *Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.faultLocked(kinds...)
}

func (w *world) faultLocked(kinds ...string) (found *Fault) {
	for _, k := range kinds {
		w.count[k]++
		for i := range w.plan.Faults {
			if f := &w.plan.Faults[i]; f.Kind == k && f.N == w.count[k] && found == nil {
				found = f
			}
		}
	}
	if found != nil {
		w.hit = append(w.hit, found.String())
		w.logLocked("FAULT", "%v", *found)
	}
	return found
}

// gate is called before everything that the agent does to the world. It returns false if the
// agent was killed, and then the operation must not happen.
func (w *world) gate(l *life) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !l.dead && w.faultLocked("kill") != nil {
		l.dead, l.healthy = true, false
		w.disk.release()
		close(l.killed)
	}
	return !l.dead
}

// pause sleeps for a random time below most. Once in a while it sleeps a hundred times as
// long, and just as often not at all, so that the next operation happens at the same time.
func pause(r *rand.Rand, most time.Duration) {
	d := 1 + time.Duration(r.Int64N(int64(most)))
	switch r.IntN(8) {
	case 0, 1:
		return
	case 2:
		d *= 100
	}
	time.Sleep(d)
}

// sleep sleeps until d has passed or ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ids provides random bytes from the seed, instead of crypto/rand.
type ids struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (i *ids) Read(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	var b [8]byte
	for n := 0; n < len(p); n += 8 {
		binary.LittleEndian.PutUint64(b[:], i.r.Uint64())
		copy(p[n:], b[:])
	}
	return len(p), nil
}

// reading guards crypto/rand.Reader, which the process shares.
var reading sync.Mutex

// Run plays a plan. With trace, the report has the trace even without violations. dir is a
// directory for the agents: Run removes its contents, because files of an earlier run would change
// this one. The trace has DIR instead of its name. Names of the same length do not change a run.
func Run(t *testing.T, plan Plan, dir string, trace bool) *Report {
	reading.Lock()
	defer reading.Unlock()
	base := dir
	for _, part := range []struct{ name, env string }{{"work", ""}, {"temp", "TMPDIR"}, {"home", "HOME"}} {
		path := filepath.Join(base, part.name)
		if err := errors.Join(os.RemoveAll(path), os.MkdirAll(path, 0o700)); err != nil {
			t.Fatal(err)
		}
		if part.env != "" {
			before, ok := os.LookupEnv(part.env)
			os.Setenv(part.env, path)
			defer func() {
				if os.Unsetenv(part.env); ok {
					os.Setenv(part.env, before)
				}
			}()
		}
	}
	dir = filepath.Join(base, "work")
	var reader io.Reader = &ids{r: source(plan.Seed, "ids")}
	reader, cryptorand.Reader = cryptorand.Reader, reader
	defer func() { cryptorand.Reader = reader }()

	w := &world{plan: plan, count: map[string]int{}, calls: map[string]*called{}, asks: map[string]string{},
		streaming: map[string]bool{}, bills: map[string]*bill{}, written: map[string]bool{}, hash: 14695981039346656037, base: base}
	if trace {
		w.decisions = new([]decision)
	}
	w.disk = newDisk(w)
	if plan.Hub {
		w.runHub(t, dir)
	} else {
		w.runPair(t, dir)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &Report{Plan: plan, Hash: w.hash, Events: len(w.trace), Virtual: w.lived, Hit: w.hit, Violations: w.bad}
	if trace {
		r.decisions = *w.decisions
	}
	if trace || len(w.bad) > 0 {
		for _, e := range w.trace {
			r.Trace = append(r.Trace, fmt.Sprintf("%14v  %-10s %s", e.at, e.actor, strings.TrimSpace(e.text)))
		}
	}
	return r
}

// bubble runs f in virtual time with its own schedule.
func (w *world) bubble(t *testing.T, n int, f func(t *testing.T)) {
	seedSchedule(w.plan.Seed*31+uint64(n), &w.plan, w.decisions != nil)
	defer endSchedule()
	synctest.Test(t, func(t *testing.T) {
		w.mu.Lock()
		w.start = time.Now()
		w.mu.Unlock()
		f(t)
		// Calls of an agent that was killed may still log.
		w.mu.Lock()
		w.lived += time.Since(w.start)
		w.start = time.Time{}
		w.mu.Unlock()
	})
	// Every goroutine of the bubble has ended, but the race detector knows only of locks: after this
	// one, the checks may read what they wrote.
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.decisions != nil {
		*w.decisions = append(*w.decisions, decisions()...)
	}
}
