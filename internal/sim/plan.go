package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A Plan is one run: a workload and its faults.
type Plan struct {
	Seed    uint64
	Hub     bool   // a hub with viewers, instead of one client
	Yield   uint32 // one in so many locks and channel operations yields; 0 is never
	Shuffle uint32 // one in so many goroutines that become ready changes its place; 0 is never
	Nap     uint32 // one in so many locks and channel operations takes some milliseconds; 0 is never
	Prompts int    // of each life
	Lives   int    // maximum number of agents, one after the other
	Faults  []Fault
}

// A Fault happens at the Nth operation of its actor, counted over all lives.
type Fault struct {
	Kind string
	N    int
	D    time.Duration // duration, for faults that take time
}

// String returns the fault as shown in a trace.
func (f Fault) String() string {
	if f.D == 0 {
		return fmt.Sprintf("%s@%d", f.Kind, f.N)
	}
	return fmt.Sprintf("%s@%d(%v)", f.Kind, f.N, f.D)
}

// String returns the plan in a line.
func (p Plan) String() string {
	var faults []string
	for _, f := range p.Faults {
		faults = append(faults, f.String())
	}
	world := "pair"
	if p.Hub {
		world = "hub"
	}
	return fmt.Sprintf("seed %d, %s, %d prompts, %d lives, yield %d, shuffle %d, nap %d, faults [%s]", p.Seed, world, p.Prompts, p.Lives, p.Yield, p.Shuffle, p.Nap, strings.Join(faults, " "))
}

// A kind is a type of fault that happens at one of the first most operations of its actor.
type kind struct {
	name string
	most int
	time time.Duration // the maximum duration
}

// pairKinds are the faults of the SDK and the agent.
var pairKinds = []kind{
	{"model.refuse", 12, 0},    // the API returns a temporary error
	{"model.deny", 12, 0},      // the API returns a permanent error
	{"model.cut", 12, 0},       // the stream breaks
	{"model.stall", 12, 0},     // the stream is open and silent
	{"model.malformed", 12, 0}, // an event is not JSON
	{"model.slow", 12, 30 * time.Second},
	{"host.silent", 6, 0},                // a callback never answers
	{"host.twice", 10, 0},                // an answer is sent twice
	{"host.late", 6, 8 * time.Second},    // a callback answers after its request was withdrawn
	{"host.fail", 6, 0},                  // a callback fails
	{"host.sleep", 60, 90 * time.Second}, // the consumer stops reading
	{"host.dies", 120, 0},                // the host dies
	{"pipe.cut", 160, 0},                 // both directions end
	{"pipe.input", 100, 0},               // the agent's input ends
	{"pipe.output", 100, 0},              // the agent's output ends
	{"store.after", 40, 0},               // an append fails after it was committed
	{"store.before", 40, 0},              // an append fails and nothing is written
	{"store.slow", 40, 20 * time.Second},
	{"store.full", 40, 0},  // the disk is full from here on, for ten appends
	{"store.lease", 40, 0}, // another process has the lease
	{"tool.fail", 8, 0},
	{"tool.panic", 8, 0},
	{"tool.deaf", 8, 20 * time.Second}, // the tool ignores the end of its context
	{"kill", 200, 0},                   // the agent is killed between two operations
	{"interrupt", 40, 2 * time.Second}, // the host interrupts so long after a message
	{"interrupt", 40, 200 * time.Millisecond},
	{"host.both", 6, 0}, // the host answers a question and interrupts in one moment
}

// hubKinds are the faults of the hub, in addition to those of the pair.
var hubKinds = []kind{
	{"viewer.slow", 60, 40 * time.Second},
	{"viewer.gone", 60, 20 * time.Second},
	{"journal.after", 60, 0},
	{"journal.before", 60, 0},
	{"journal.slow", 60, 15 * time.Second},
	{"lease.lost", 60, 0}, // the hub is paused, and another takes over the session
	{"hub.killed", 200, 0},
	{"answer.twice", 6, 0},
}

// NewPlan returns the plan of a seed.
func NewPlan(seed uint64) Plan {
	r := source(seed, "plan")
	p := Plan{Seed: seed, Prompts: 1 + r.IntN(3), Lives: 1}
	p.Hub = r.IntN(4) == 0
	if r.IntN(4) > 0 {
		p.Yield = uint32(4 << r.IntN(6))
	}
	if r.IntN(4) > 0 {
		p.Shuffle = uint32(1 << r.IntN(4))
	}
	kinds := pairKinds
	if p.Hub {
		kinds = slices.Concat(pairKinds, hubKinds, hubKinds)
	}
	for range r.IntN(6) {
		k := kinds[r.IntN(len(kinds))]
		if p.Hub && !inHub(k.name) {
			continue
		}
		f := Fault{Kind: k.name, N: 1 + r.IntN(k.most)}
		if k.time > 0 {
			f.D = 1 + time.Duration(r.Int64N(int64(k.time)))
		}
		if f.Kind == "kill" || f.Kind == "hub.killed" || f.Kind == "lease.lost" {
			p.Lives++
		}
		p.Faults = append(p.Faults, f)
	}
	if n := source(seed, "nap"); n.IntN(3) == 0 {
		p.Nap = uint32(8 << n.IntN(5))
		if !p.Hub && n.IntN(2) == 0 { // what is half done shows best when a turn is stopped
			p.Faults = append(p.Faults, Fault{Kind: "host.both", N: 1 + n.IntN(6)})
		}
	}
	return p
}

// slow reports whether a fault of the plan takes longer than an agent waits for it.
func (p Plan) slow() bool {
	return slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == "store.slow" || f.Kind == "journal.slow" || f.Kind == "tool.deaf" })
}

// inHub reports whether a fault exists in the world of the hub, where a hub is the host.
func inHub(name string) bool {
	actor, _, _ := strings.Cut(name, ".")
	switch actor {
	case "host", "pipe", "store", "kill":
		return false
	}
	return true
}

// source returns the random source of an actor. No two actors share one.
func source(seed uint64, actor string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(actor))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}
