// Command bench measures Parley's SDK against the official TypeScript SDK: both
// drive the same fake CLI alternately, several times, and the medians are
// compared.
//
//	bench            runs everything and prints a table
//	bench -n 11      with so many runs of each
//	bench -only deltas   one measure; "agent" is the command beside the official
//	                     one, "others" is it beside all agents in PARLEY_SERVERS, "inside" is agents in this process, "search" is Grep and Glob beside ripgrep, "sessions"
//	                     appends to, resumes and lists sessions, "acp" is parley
//	                     acp beside the reference adapter, and goose if PARLEY_GOOSE
//	                     names it; "serve" is parley serve beside opencode
//	                     and goose in PARLEY_SERVERS
//
// make bench starts it. It builds the fake CLI, finds the official SDK and allows
// no network except loopback.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 && args[0] == "hold" {
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		return hold(n)
	}
	if len(args) >= 2 && args[0] == "check" { // bench check HOT [update]
		return checkInstructions(args[1], counts, len(args) > 2)
	}
	if len(args) == 2 && args[0] == "draw" { // the pictures of a page, again
		return drawPictures(args[1])
	}
	fs := flag.NewFlagSet("bench", flag.ExitOnError)
	n := fs.Int("n", 9, "runs of each measure")
	only := fs.String("only", "", "one measure or section alone: deltas, messages, permissions, first, later, memory, memory20, agent, others, inside, sessions, search, scale, acp, serve, checks")
	write := fs.String("write", "", "write the tables to this `FILE`, and the pictures to img beside it")
	limit := fs.Duration("limit", 15*time.Minute, "after half of this time the rest is measured three times, and after all of it not at all")
	profile := fs.String("profile", "", "write the processor profile of this process to `FILE`, for go tool pprof; PARLEY_PROFILE does the same for bench/sdk")
	fs.Parse(args)
	if err := startProfile(*profile); err != nil {
		return err
	}
	defer pprof.StopCPUProfile()
	bin, peers := os.Getenv("PARLEY_BENCH_BIN"), os.Getenv("PARLEY_PEERS")
	if bin == "" || peers == "" {
		return errors.New("start it with make bench: PARLEY_BENCH_BIN and PARLEY_PEERS name the programs to run")
	}
	official := filepath.Join(peers, "node_modules", "@anthropic-ai", "claude-agent-sdk-"+runtime.GOOS+"-"+nodeArch(), "claude")
	ours := filepath.Join(bin, "parley")
	b := &board{w: os.Stdout, last: readRun(lastRun)}
	begun, start := false, time.Now()
	for _, m := range measures {
		if *only != "" && m.name != *only {
			continue
		}
		if !begun {
			begun = true
			b.begin("The SDK", "TypeScript SDK", "Both SDKs drive the same fake CLI, which starts anew for each query. The time to import them does not count. "+
				"A program that asks once waits for the first query of its process. Later queries mostly wait for the start of the fake CLI. "+
				"The floor is a program that only reads the lines of the fake CLI, only sends a line through two pipes and back, or only starts the fake CLI and reads its first line. The factor compares it to the TypeScript SDK.")
		}
		if err := m.run(b, bin, peers, *n); err != nil {
			return fmt.Errorf("%s: %w", m.title, err)
		}
	}
	for _, s := range []struct {
		name string
		run  func(n int) error
		few  bool // it is measured at most three times
	}{
		{"agent", func(n int) error { return compareAgents(b, official, ours, filepath.Join(bin, "bare"), n) }, false},
		{"others", func(n int) error { return compareOthers(b, official, ours, os.Getenv("PARLEY_SERVERS"), n) }, false},
		{"inside", func(n int) error { return measureInside(b, n) }, false},
		{"scale", func(n int) error { return compareScale(b, official, ours) }, false},
		{"sessions", func(n int) error { return compareSessions(b, official, ours, peers, n) }, false},
		{"search", func(n int) error { return compareSearch(b, n) }, false},
		{"acp", func(n int) error { return compareEditors(b, official, ours, peers, n) }, true},
		{"serve", func(n int) error { return compareServers(b, ours, os.Getenv("PARLEY_SERVERS"), n) }, true},
		{"checks", func(int) error { return addChecks(b, checkTimes) }, true},
	} {
		if *only != "" && *only != s.name || s.name == "serve" && os.Getenv("PARLEY_SERVERS") == "" {
			continue
		}
		began, runs := time.Now(), *n
		if spent := began.Sub(start); spent > *limit {
			fmt.Printf("%s is not measured: %.0f minutes are over\n", s.name, limit.Minutes())
			continue
		} else if s.few || spent > *limit/2 {
			runs = min(runs, 3)
		}
		if err := s.run(runs); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Printf("%s took %.0f s\n", s.name, time.Since(began).Seconds())
	}
	if *write != "" {
		if err := b.write(*write); err != nil {
			return err
		}
		if err := b.save(lastRun); err != nil {
			return err
		}
	}
	fmt.Printf("\n%d missed; it took %.1f minutes\n", b.missed(), time.Since(start).Minutes())
	return nil
}

// startProfile writes the profile of this process to a file, unless it has no name.
func startProfile(file string) error {
	if file == "" {
		return nil
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return pprof.StartCPUProfile(f)
}

// A measure is one comparison of both SDKs.
type measure struct {
	name, title, unit string
	args              []string
	value             func(sample) float64
	more              bool    // higher is better
	want              float64 // required factor by which ours is better
	floor             []string
}

// A sample is the output of one run.
type sample struct {
	PerSecond    float64 `json:"perSecond"`
	Microseconds float64 `json:"microseconds"`
	Milliseconds float64 `json:"milliseconds"`
	RSSKiB       float64 `json:"rssKiB"`
}

var measures = []measure{
	{"deltas", "token deltas", "/s", []string{"deltas", "200000"}, func(s sample) float64 { return s.PerSecond }, true, 10, []string{"lines", "deltas", "200000"}},
	{"messages", "messages of 2.4 KB", "/s", []string{"messages", "50000", "2400"}, func(s sample) float64 { return s.PerSecond }, true, 8, []string{"lines", "messages", "50000", "2400"}},
	{"permissions", "permission round trip", "µs", []string{"permissions", "2000"}, func(s sample) float64 { return s.Microseconds }, false, 8, []string{"pipe", "2000"}},
	{"first", "query to first message", "ms", []string{"first", "1"}, func(s sample) float64 { return s.Milliseconds }, false, 5, []string{"exec", "1"}},
	{"later", "query to first message, later ones", "ms", []string{"first", "20"}, func(s sample) float64 { return s.Milliseconds }, false, 2, []string{"exec", "20"}},
	{"memory", "memory, 1 session", "MB", []string{"memory", "1"}, func(s sample) float64 { return s.RSSKiB * 1024 / 1e6 }, false, 5, nil},
	{"memory20", "memory, 20 sessions", "MB", []string{"memory", "20"}, func(s sample) float64 { return s.RSSKiB * 1024 / 1e6 }, false, 1, nil},
}

// run measures both sides alternately and adds a row.
func (m measure) run(b *board, bin, peers string, n int) error {
	script := filepath.Join("bench", "peers", "typescript.mjs")
	var theirs, ours, floor []float64
	sides := []struct {
		command []string
		values  *[]float64
	}{
		{append([]string{"node", script}, m.args...), &theirs},
		{append([]string{filepath.Join(bin, "sdk")}, m.args...), &ours},
		{append([]string{filepath.Join(bin, "sdk")}, m.floor...), &floor},
	}
	if m.floor == nil {
		sides = sides[:2]
	}
	for range n {
		for _, side := range sides {
			cmd := exec.Command(side.command[0], side.command[1:]...)
			cmd.Env = append(os.Environ(), "PARLEY_PEERS="+peers, "PARLEY_FAKECLI="+filepath.Join(bin, "fakecli"))
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				return fmt.Errorf("%s: %w", strings.Join(side.command, " "), err)
			}
			var s sample
			if err := json.Unmarshal(out, &s); err != nil {
				return fmt.Errorf("%s printed %q: %w", side.command[0], out, err)
			}
			*side.values = append(*side.values, m.value(s))
		}
	}
	b.add(row{title: m.title, unit: m.unit, theirs: theirs, ours: ours, floor: floor, more: m.more, want: m.want})
	return nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
