package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/model"
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
		"Processor time is that of the process, the collector included. Of the later turn and round, the time to copy a request as long as theirs once is not counted: those bytes must be sent.")
	if err := insideRate(b, dir, n); err != nil {
		return err
	}
	if err := insideIdle(b, dir); err != nil {
		return err
	}
	if err := insideGrowth(b, dir); err != nil {
		return err
	}
	return insideAtOnce(b, dir)
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
func insideIdle(b *board, dir string) error {
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
	b.add(row{title: "an idle conversation", unit: "KB", ours: []float64{(heap() - before) / many / 1000}, limit: 60})
	for _, c := range clients {
		if err := c.Close(); err != nil {
			return err
		}
	}
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

// insideGrowth compares late turns and rounds with early ones.
func insideGrowth(b *board, dir string) error {
	const early, late, over = 10, 2000, 100 // averages over this many
	file := filepath.Join(dir, "a.txt")
	if err := os.WriteFile(file, []byte("one\ntwo\nthree\n"), 0o600); err != nil {
		return err
	}
	ctx := context.Background()
	for _, kind := range []string{"turn", "round"} {
		script := parleytest.Script(parleytest.Say("hello").Always())
		if kind == "round" {
			script = parleytest.Script(parleytest.Call("Read", map[string]string{"file_path": file}).Times(late+over), parleytest.Say("Done."))
		}
		m := &measuredModel{Model: script.Model()}
		c, err := parley.Connect(ctx, insideWith(dir, m))
		if err != nil {
			return err
		}
		var marks [4]time.Duration // processor times at the ends of both parts
		var sizes [2]int64
		i := 0
		next := func() {
			switch i++; i {
			case early:
				marks[0] = processorTime()
			case early + over:
				marks[1], sizes[0] = processorTime(), m.size.Load()
			case late:
				marks[2] = processorTime()
			case late + over:
				marks[3], sizes[1] = processorTime(), m.size.Load()
			}
		}
		for i < late+over {
			for msg, err := range c.Turn(ctx, "hi") {
				if err != nil {
					return err
				}
				if _, ok := msg.(*wire.Assistant); ok {
					next()
				}
			}
		}
		if err := c.Close(); err != nil {
			return err
		}
		first, last := us(marks[1]-marks[0])/over, us(marks[3]-marks[2])/over
		must := copying(sizes[1]) - copying(sizes[0])
		b.add(row{title: fmt.Sprintf("%s %d", kind, early), unit: "µs", ours: []float64{first}})
		b.add(row{title: fmt.Sprintf("%s %s, of which %.0f µs copy the request", kind, digits(late), must), unit: "µs", ours: []float64{last}})
		b.add(row{title: fmt.Sprintf("%s %s compared to %s %d", kind, digits(late), kind, early), unit: "×", ours: []float64{(last - must) / first}, limit: 1.2})
	}
	return nil
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
func insideAtOnce(b *board, dir string) error {
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
		times     int // number of measurements with few
		run       func(int) error
	}{{"conversations of five turns", 10, 1000, 20, atOnce}, {"subagents", 8, 64, 40, subagents}} {
		var each [2]float64
		var waited float64
		for i, n := range []int{k.few, k.many} {
			times := max(1, k.times*k.few/n)
			cpu, wait := processorTime(), mutexWait()
			for range times {
				if err := k.run(n); err != nil {
					return err
				}
			}
			each[i] = ms(processorTime()-cpu) / float64(n*times)
			waited = 1000 * (mutexWait() - wait) / float64(n*times)
			b.add(row{title: fmt.Sprintf("%s %s at once: processor time of each", digits(float64(n)), k.title), unit: "ms", ours: []float64{each[i]}})
		}
		b.add(row{title: fmt.Sprintf("%s compared to %d", digits(float64(k.many)), k.few), unit: "×", ours: []float64{each[1] / each[0]}, limit: 1.2})
		b.add(row{title: fmt.Sprintf("%s at once: each waits for locks", digits(float64(k.many))), unit: "ms", ours: []float64{waited}})
	}
	return nil
}

// mutexWait returns how many seconds goroutines have waited for mutexes.
func mutexWait() float64 {
	s := []metrics.Sample{{Name: "/sync/mutex/wait/total:seconds"}}
	metrics.Read(s)
	return s[0].Value.Float64()
}
