// Command bench measures Parley's SDK beside the official TypeScript SDK: both
// drive the same fake CLI, one after the other, several times in turn, and what is
// compared are the medians of one run.
//
//	bench            runs everything and prints a table
//	bench -n 11      with so many runs of each
//	bench -only deltas   one measure; "agent" is the command beside the official one
//	bench go MEASURE N [SIZE]   measures the Go side once, for the command itself
//
// It is started by make bench, which builds the fake CLI, finds the official SDK
// and sees to it that there is no network but loopback.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/wire"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) > 0 && args[0] == "go" {
		return measureGo(args[1:])
	}
	fs := flag.NewFlagSet("bench", flag.ExitOnError)
	n := fs.Int("n", 7, "runs of each measure")
	only := fs.String("only", "", "one measure alone")
	fs.Parse(args)
	bin, peers := os.Getenv("PARLEY_BENCH_BIN"), os.Getenv("PARLEY_PEERS")
	if bin == "" || peers == "" {
		return errors.New("start it with make bench: PARLEY_BENCH_BIN and PARLEY_PEERS say what to run")
	}
	fmt.Printf("%-34s %14s %14s %9s %9s\n", "", "TypeScript", "Parley", "ratio", "wanted")
	for _, m := range measures {
		if *only != "" && m.name != *only {
			continue
		}
		if err := m.run(bin, peers, *n); err != nil {
			return fmt.Errorf("%s: %w", m.title, err)
		}
	}
	if *only == "" || *only == "agent" {
		return compareAgents(bin, peers, *n)
	}
	return nil
}

// A measure is one thing that both SDKs are measured by.
type measure struct {
	name, title, unit string
	args              []string
	value             func(sample) float64
	more              bool    // more is better
	want              float64 // how many times better we want to be
}

// A sample is what one run prints.
type sample struct {
	PerSecond    float64 `json:"perSecond"`
	Microseconds float64 `json:"microseconds"`
	Milliseconds float64 `json:"milliseconds"`
	RSSKiB       float64 `json:"rssKiB"`
}

var measures = []measure{
	{"deltas", "token deltas", "/s", []string{"deltas", "200000"}, func(s sample) float64 { return s.PerSecond }, true, 4},
	{"messages", "messages of 2.4 KB", "/s", []string{"messages", "50000", "2400"}, func(s sample) float64 { return s.PerSecond }, true, 3},
	{"permissions", "permission round trip", "µs", []string{"permissions", "2000"}, func(s sample) float64 { return s.Microseconds }, false, 4},
	{"first", "query to first message", "ms", []string{"first", "20"}, func(s sample) float64 { return s.Milliseconds }, false, 2},
	{"memory", "memory, 1 session", "MB", []string{"memory", "1"}, func(s sample) float64 { return s.RSSKiB * 1024 / 1e6 }, false, 5},
	{"memory20", "memory, 20 sessions", "MB", []string{"memory", "20"}, func(s sample) float64 { return s.RSSKiB * 1024 / 1e6 }, false, 1},
}

// run measures both sides in turn and prints a row.
func (m measure) run(bin, peers string, n int) error {
	script := filepath.Join("bench", "peers", "typescript.mjs")
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var theirs, ours []float64
	for range n {
		for _, side := range []struct {
			cmd    *exec.Cmd
			values *[]float64
		}{
			{exec.Command("node", append([]string{script}, m.args...)...), &theirs},
			{exec.Command(self, append([]string{"go"}, m.args...)...), &ours},
		} {
			side.cmd.Env = append(os.Environ(), "PARLEY_PEERS="+peers, "PARLEY_FAKECLI="+filepath.Join(bin, "fakecli"))
			side.cmd.Stderr = os.Stderr
			out, err := side.cmd.Output()
			if err != nil {
				return fmt.Errorf("%s: %w", strings.Join(side.cmd.Args, " "), err)
			}
			var s sample
			if err := json.Unmarshal(out, &s); err != nil {
				return fmt.Errorf("%s printed %q: %w", side.cmd.Args[0], out, err)
			}
			*side.values = append(*side.values, m.value(s))
		}
	}
	a, b := median(theirs), median(ours)
	ratio := b / a
	if !m.more {
		ratio = a / b
	}
	verdict := ""
	if ratio < m.want {
		verdict = "  missed"
	}
	fmt.Printf("%-34s %14s %14s %8.1f× %8.0f×%s\n", m.title, format(a, m.unit), format(b, m.unit), ratio, m.want, verdict)
	return nil
}

func format(v float64, unit string) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f %s", v, unit)
	}
	return fmt.Sprintf("%.1f %s", v, unit)
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// measureGo measures our SDK once and prints a sample.
func measureGo(args []string) error {
	if len(args) < 2 {
		return errors.New("go MEASURE N [SIZE]")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	ctx := context.Background()
	opts := &parley.Options{Path: os.Getenv("PARLEY_FAKECLI"), SettingSources: []string{}}
	var s sample
	switch args[0] {
	case "deltas", "messages":
		prompt := strings.Join(args, " ")
		opts.PartialMessages = args[0] == "deltas"
		s.PerSecond, err = throughput(ctx, prompt, n, opts)
	case "permissions":
		// From one request to the next: our answer, the CLI's turn, the way back.
		var micros []float64
		var last time.Time
		opts.CanUseTool = func(context.Context, *wire.CanUseTool) (*wire.PermissionResult, error) {
			now := time.Now()
			if !last.IsZero() {
				micros = append(micros, float64(now.Sub(last).Nanoseconds())/1000)
			}
			last = now
			return parley.Allow(), nil
		}
		if _, err = parley.Run(ctx, fmt.Sprintf("permissions %d", n), opts); err == nil {
			s.Microseconds = median(micros)
		}
	case "first":
		var times []float64
		for range n {
			start := time.Now()
			for _, err := range parley.Query(ctx, "echo hi", opts) {
				if err != nil {
					return err
				}
				if start.IsZero() {
					continue
				}
				times = append(times, float64(time.Since(start).Microseconds())/1000)
				start = time.Time{}
			}
		}
		s.Milliseconds = median(times)
	case "memory":
		s.RSSKiB, err = memory(ctx, n, opts)
	default:
		err = fmt.Errorf("no measure %q", args[0])
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(s)
}

// throughput is how many messages of a turn come in a second, from the first to
// the last.
func throughput(ctx context.Context, prompt string, n int, opts *parley.Options) (float64, error) {
	var first, last time.Time
	got, text := 0, 0
	for m, err := range parley.Query(ctx, prompt, opts) {
		if err != nil {
			return 0, err
		}
		// What is counted is read as well, as the other side does.
		switch m := m.(type) {
		case *wire.StreamEvent:
			text += len(m.Text())
		case *wire.Assistant:
			text += len(m.Message.Content.String())
		case *wire.Result:
			last = time.Now()
			continue
		default:
			continue
		}
		if got++; got == 1 {
			first = time.Now()
		}
	}
	if got < n || text == 0 {
		return 0, fmt.Errorf("%d of %d messages came", got, n)
	}
	return float64(got) / last.Sub(first).Seconds(), nil
}

// memory is what this process holds with n sessions open that have answered once.
func memory(ctx context.Context, n int, opts *parley.Options) (float64, error) {
	var wg sync.WaitGroup
	clients := make([]*parley.Client, n)
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			c, err := parley.Connect(ctx, opts)
			if err != nil {
				errs[i] = err
				return
			}
			clients[i] = c
			for _, err := range c.Turn(ctx, "echo hi") {
				if err != nil {
					errs[i] = err
				}
			}
		})
	}
	wg.Wait()
	defer func() {
		for _, c := range clients {
			if c != nil {
				c.Close()
			}
		}
	}()
	if err := errors.Join(errs...); err != nil {
		return 0, err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	mb, err := memoryLine(string(status), "VmRSS:")
	return mb * 1e6 / 1024, err
}
