// Command bench measures Parley's SDK beside the official TypeScript SDK: both
// drive the same fake CLI, one after the other, several times in turn, and what is
// compared are the medians of one run.
//
//	bench            runs everything and prints a table
//	bench -n 11      with so many runs of each
//	bench -only deltas   one measure; "agent" is the command beside the official
//	                     one, "search" is Grep and Glob beside ripgrep, "sessions"
//	                     appends to, resumes and lists sessions
//
// It is started by make bench, which builds the fake CLI, finds the official SDK
// and sees to it that there is no network but loopback.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	fs := flag.NewFlagSet("bench", flag.ExitOnError)
	n := fs.Int("n", 7, "runs of each measure")
	only := fs.String("only", "", "one measure alone")
	fs.Parse(args)
	if *only == "sessions" {
		return compareSessions(os.Getenv("PARLEY_BENCH_BIN"), os.Getenv("PARLEY_PEERS"), max(*n, 11))
	}
	if *only == "search" {
		return compareSearch(max(*n, 11))
	}
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
		if err := compareAgents(bin, peers, *n); err != nil {
			return err
		}
	}
	if *only == "" {
		if err := compareSessions(bin, peers, max(*n, 11)); err != nil {
			return err
		}
		return compareSearch(max(*n, 11))
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
	var theirs, ours []float64
	for range n {
		for _, side := range []struct {
			cmd    *exec.Cmd
			values *[]float64
		}{
			{exec.Command("node", append([]string{script}, m.args...)...), &theirs},
			{exec.Command(filepath.Join(bin, "sdk"), m.args...), &ours},
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
