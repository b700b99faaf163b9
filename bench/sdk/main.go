// Command sdk measures Parley's SDK with a fake CLI, as bench/peers does with the
// official one. It links only the SDK of this module.
//
//	sdk deltas N          token deltas per second, partial messages on
//	sdk messages N SIZE   assistant messages of SIZE bytes per second
//	sdk permissions N     permission round trips
//	sdk first N           Query to the first message, N queries one after the other
//	sdk memory N          resident memory with N sessions open at once
//	sdk pipe N            N round trips of a line through two pipes, with nothing
//	                      done on either side: what no SDK can beat
//	sdk exec N            N starts of the CLI to its first line, with nothing decoded
//	sdk lines MEASURE N [SIZE]   lines of the CLI per second, with nothing decoded
//
// PARLEY_FAKECLI is the CLI to start. One line of JSON goes to standard output.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/parley-go/parley"
	"github.com/parley-go/parley/wire"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "echo" {
		io.Copy(os.Stdout, os.Stdin)
		return
	}
	if name := os.Getenv("PARLEY_PROFILE"); name != "" {
		if f, err := os.Create(name); err == nil {
			pprof.StartCPUProfile(f)
			defer pprof.StopCPUProfile()
		}
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sdk:", err)
		os.Exit(1)
	}
}

// A sample is the output of one run.
type sample struct {
	PerSecond    float64 `json:"perSecond"`
	Microseconds float64 `json:"microseconds"`
	Milliseconds float64 `json:"milliseconds"`
	RSSKiB       float64 `json:"rssKiB"`
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// run measures once and prints a sample.
func run(args []string) error {
	if len(args) < 2 {
		return errors.New("sdk MEASURE N [SIZE]")
	}
	if args[0] == "lines" {
		rate, err := lines(strings.Join(args[1:], " "))
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(sample{PerSecond: rate})
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
		// From one request to the next: our response, the CLI's turn, the way back.
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
	case "pipe":
		s.Microseconds, err = pipes(n)
	case "exec":
		var times []float64
		for range n {
			start := time.Now()
			out, stop, err := bare("echo hi")
			if err != nil {
				return err
			}
			if _, err := out.ReadSlice('\n'); err != nil {
				return err
			}
			times = append(times, float64(time.Since(start).Microseconds())/1000)
			stop()
		}
		s.Milliseconds = median(times)
	default:
		err = fmt.Errorf("no measure %q", args[0])
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(s)
}

// throughput returns how many messages of a turn arrive per second, from the first
// to the last.
func throughput(ctx context.Context, prompt string, n int, opts *parley.Options) (float64, error) {
	var first, last time.Time
	got, text := 0, 0
	for m, err := range parley.Query(ctx, prompt, opts) {
		if err != nil {
			return 0, err
		}
		// Counted messages are also read, as on the other side.
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

// memory returns the memory of this process with n open sessions that have answered
// once.
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
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 64)
		}
	}
	return 0, errors.New("/proc/self/status has no VmRSS")
}

// pipes returns the round-trip time of a line to another process, in microseconds.
func pipes(n int) (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, "echo")
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	line := append([]byte(strings.Repeat("x", 250)), '\n')
	back := bufio.NewReader(out)
	var micros []float64
	for range n {
		start := time.Now()
		if _, err := in.Write(line); err != nil {
			return 0, err
		}
		if _, err := back.ReadSlice('\n'); err != nil {
			return 0, err
		}
		micros = append(micros, float64(time.Since(start).Nanoseconds())/1000)
	}
	in.Close()
	return median(micros), cmd.Wait()
}

// bare starts the CLI with a prompt. Its output is for the caller to read.
func bare(prompt string) (out *bufio.Reader, stop func(), err error) {
	cmd := exec.Command(os.Getenv("PARLEY_FAKECLI"), "--output-format", "stream-json", "--verbose", "--input-format", "stream-json", "--include-partial-messages")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	line, err := wire.Encode(wire.Prompt(wire.Text(prompt)))
	if err == nil {
		_, err = in.Write(append(line, '\n'))
	}
	return bufio.NewReaderSize(pipe, 64<<10), func() { in.Close(); io.Copy(io.Discard, pipe); cmd.Wait() }, err
}

// lines returns how many lines the CLI writes per second, from the first to the last.
func lines(prompt string) (float64, error) {
	out, stop, err := bare(prompt)
	if err != nil {
		return 0, err
	}
	defer stop()
	var first time.Time
	for got := 0.0; ; got++ {
		line, err := out.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			got-- // a part of the line
		} else if err != nil {
			return 0, err
		}
		if got == 0 {
			first = time.Now()
		}
		if bytes.Contains(line[:min(len(line), 40)], []byte(`"type":"result"`)) {
			return got / time.Since(first).Seconds(), nil
		}
	}
}
