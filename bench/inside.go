package main

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/engine/policy"
	"github.com/parley-go/parley/engine/policy/policytest"
	"github.com/parley-go/parley/parleytest"
	"github.com/parley-go/parley/session"
	"github.com/parley-go/parley/wire"
)

// measureInside measures agents in this process, each with its host: conversations per second,
// their resources, and how these change as conversations grow in length and number.
func measureInside(b *board, n int) error {
	dir, err := os.MkdirTemp("", "parley-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.begin("In process", "", "Agents and their hosts in one process, with a scripted model and a store in memory. A conversation is one prompt and its answer, from connecting to closing. "+
		"Processor time is that of the process, the collector included. The value of a turn or a round is the average of 100. The comparison does not count the time to copy the longer request once: those bytes must be sent.")
	for _, part := range []func(*board, string, int) error{insideRate, insideIdle, insidePolicy, insideGrowth, insideAtOnce} {
		if err := part(b, dir, n); err != nil {
			return err
		}
	}
	return nil
}

// inside returns the options of agents in this process whose model plays turns.
func inside(dir string, turns ...*parleytest.Turn) *parley.Options {
	if len(turns) == 0 {
		turns = []*parleytest.Turn{parleytest.Say("hello").Always()}
	}
	return insideWith(dir, parleytest.Script(turns...).Model())
}

func insideWith(dir string, m model.Model) *parley.Options {
	return &parley.Options{Cwd: dir, Dialer: agent.InProcess(agent.Config{Model: m, Store: &session.Memory{}})}
}

// turn sends a prompt and reads its turn.
func turn(ctx context.Context, c *parley.Client) error {
	for _, err := range c.Turn(ctx, "hi") {
		if err != nil {
			return err
		}
	}
	return nil
}

// insideRate measures complete conversations, one after the other, and first turns.
func insideRate(b *board, dir string, n int) error {
	const many = 300
	ctx := context.Background()
	opts := inside(dir)
	var rate, each, first []float64
	for range n {
		start, cpu := time.Now(), processorTime()
		for range many {
			if _, err := parley.Run(ctx, "hi", opts); err != nil {
				return err
			}
		}
		rate = append(rate, many/time.Since(start).Seconds())
		each = append(each, ms(processorTime()-cpu)/many)

		clients := make([]*parley.Client, many)
		for i := range clients {
			var err error
			if clients[i], err = parley.Connect(ctx, opts); err != nil {
				return err
			}
		}
		cpu = processorTime()
		for _, c := range clients {
			if err := turn(ctx, c); err != nil {
				return err
			}
		}
		first = append(first, ms(processorTime()-cpu)/many)
		for _, c := range clients {
			if err := c.Close(); err != nil {
				return err
			}
		}
	}
	b.add(row{title: "conversations", unit: "/s", ours: rate, more: true, least: 2000})
	b.add(row{title: "processor time of a conversation", unit: "ms", ours: each})
	b.add(row{title: "processor time of a first turn", unit: "ms", ours: first, limit: 0.4})
	return nil
}

// insideIdle measures the memory of a conversation that has answered once and waits.
func insideIdle(b *board, dir string, n int) error {
	const many = 500
	ctx := context.Background()
	opts := inside(dir)
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc + m.StackInuse)
	}
	if _, err := parley.Run(ctx, "hi", opts); err != nil { // creates the shared state
		return err
	}
	var idle []float64
	for range n {
		before := heap()
		clients := make([]*parley.Client, many)
		for i := range clients {
			var err error
			if clients[i], err = parley.Connect(ctx, opts); err != nil {
				return err
			}
			if err := turn(ctx, clients[i]); err != nil {
				return err
			}
		}
		idle = append(idle, (heap()-before)/many/1000)
		for _, c := range clients {
			if err := c.Close(); err != nil {
				return err
			}
		}
	}
	b.add(row{title: "an idle conversation", unit: "KB", ours: idle, limit: 60})
	return nil
}

// insidePolicy measures decisions about everyday commands with many rules.
func insidePolicy(b *board, dir string, n int) error {
	const many = 2000
	rules, err := policytest.FiftyRules()
	if err != nil {
		return err
	}
	p := policy.New(rules...)
	var each []float64
	for range n {
		cpu := processorTime()
		for i := range many {
			p.Decide(policytest.CostRequest(policytest.FiveCommands[i%len(policytest.FiveCommands)], dir))
		}
		each = append(each, us(processorTime()-cpu)/many)
	}
	b.add(row{title: "a policy decision with 50 rules", unit: "µs", ours: each, limit: 15})
	return nil
}

// measuredModel records the length of the last request.
type measuredModel struct {
	model.Model
	size atomic.Int64
}

func (m *measuredModel) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	m.size.Store(int64(len(req.Body)))
	return m.Model.Stream(ctx, req)
}

// growth is where turns and rounds are measured, each as the average over some of them.
var growth = []int{10, 200, 500, 1000, 2000}

const growthOver = 100

// insideGrowth compares late turns and rounds with early ones.
func insideGrowth(b *board, dir string, n int) error {
	file := filepath.Join(dir, "a.txt")
	if err := os.WriteFile(file, []byte("one\ntwo\nthree\n"), 0o600); err != nil {
		return err
	}
	last := len(growth) - 1
	for _, kind := range []string{"turn", "round"} {
		times := make([][]float64, len(growth))
		var copies, factors []float64
		for range n {
			each, sizes, err := grow(dir, file, kind == "round")
			if err != nil {
				return err
			}
			for i, t := range each {
				times[i] = append(times[i], t)
			}
			must := copying(sizes[last]) - copying(sizes[0])
			copies, factors = append(copies, must), append(factors, (each[last]-must)/each[0])
		}
		for i, at := range growth {
			b.add(row{title: kind + " " + count(at), unit: "µs", ours: times[i]})
		}
		b.add(row{title: "to copy the request of " + kind + " " + count(growth[last]), unit: "µs", ours: copies})
		b.add(row{title: kind + " " + count(growth[last]) + " compared to " + kind + " " + count(growth[0]), unit: "×", ours: factors, limit: 1.2})
	}
	return nil
}

// grow holds one long conversation, of turns or of rounds that read a file. It returns the processor
// time of each at the points of growth in microseconds, and the length of their requests.
func grow(dir, file string, rounds bool) (each []float64, sizes []int64, err error) {
	end := growth[len(growth)-1] + growthOver
	script := parleytest.Script(parleytest.Say("hello").Always())
	if rounds {
		script = parleytest.Script(parleytest.Call("Read", map[string]string{"file_path": file}).Times(end), parleytest.Say("Done."))
	}
	ctx := context.Background()
	m := &measuredModel{Model: script.Model()}
	c, err := parley.Connect(ctx, insideWith(dir, m))
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	var began time.Duration
	for i := 0; i < end; {
		for msg, err := range c.Turn(ctx, "hi") {
			if err != nil {
				return nil, nil, err
			}
			if _, ok := msg.(*wire.Assistant); !ok {
				continue
			}
			i++
			if slices.Contains(growth, i) {
				began = processorTime()
			}
			if slices.Contains(growth, i-growthOver) {
				each, sizes = append(each, us(processorTime()-began)/growthOver), append(sizes, m.size.Load())
			}
		}
	}
	return each, sizes, nil
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// copying returns how many microseconds it takes to copy n bytes.
func copying(n int64) float64 {
	const many = 500
	from, to := make([]byte, n), make([]byte, n)
	copy(to, from)
	cpu := processorTime()
	for range many {
		copy(to, from)
	}
	return us(processorTime()-cpu) / many
}

// insideAtOnce compares many concurrent conversations and subagents with few.
func insideAtOnce(b *board, dir string, n int) error {
	ctx := context.Background()
	atOnce := func(many int) error {
		opts := inside(dir)
		errs := make([]error, many)
		var wg sync.WaitGroup
		for i := range many {
			wg.Go(func() {
				c, err := parley.Connect(ctx, opts)
				if err != nil {
					errs[i] = err
					return
				}
				for range 5 {
					errs[i] = errors.Join(errs[i], turn(ctx, c))
				}
				errs[i] = errors.Join(errs[i], c.Close())
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	}
	subagents := func(many int) error {
		start := parleytest.Say("go")
		for range many {
			start = start.Call("Agent", map[string]any{"description": "work", "prompt": "Do it.", "subagent_type": "general-purpose", "run_in_background": false})
		}
		_, err := parley.Run(ctx, "hi", inside(dir, start, parleytest.Say("done").Always()))
		return err
	}
	for _, k := range []struct {
		title     string
		few, many int
		times     int // how often few are measured
		run       func(int) error
	}{{"conversations of five turns", 10, 1000, 20, atOnce}, {"subagents", 8, 64, 40, subagents}} {
		var each [2][]float64
		var factors, waits []float64
		for range n {
			for i, at := range []int{k.few, k.many} {
				times := max(1, k.times*k.few/at)
				cpu, wait := processorTime(), mutexWait()
				for range times {
					if err := k.run(at); err != nil {
						return err
					}
				}
				each[i] = append(each[i], ms(processorTime()-cpu)/float64(at*times))
				if i == 1 {
					waits = append(waits, 1000*(mutexWait()-wait)/float64(at*times))
				}
			}
			factors = append(factors, each[1][len(factors)]/each[0][len(factors)])
		}
		for i, at := range []int{k.few, k.many} {
			b.add(row{title: count(at) + " " + k.title + " at once, each", unit: "ms", ours: each[i]})
		}
		b.add(row{title: count(k.many) + " compared to " + count(k.few), unit: "×", ours: factors, limit: 1.2})
		b.add(row{title: count(k.many) + " at once, each waits for locks", unit: "ms", ours: waits})
	}
	return nil
}

// count returns a whole number with commas.
func count(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return digits(float64(n))
}

// mutexWait returns how many seconds goroutines have waited for mutexes.
func mutexWait() float64 {
	s := []metrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64()
}
