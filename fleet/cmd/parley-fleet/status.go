package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/parley-go/parley/fleet"
)

// status prints the state of the fleet.
func status(ctx context.Context, args []string, stdout, _ io.Writer) error {
	return show(ctx, "status", args, stdout, func(s *fleet.Status, asJSON bool) error {
		if asJSON {
			enc := json.NewEncoder(stdout)
			enc.SetIndent("", "  ")
			return enc.Encode(s)
		}
		return printStatus(stdout, s)
	}, false)
}

// top prints the status repeatedly, until it is interrupted.
func top(ctx context.Context, args []string, stdout, _ io.Writer) error {
	err := show(ctx, "top", args, stdout, func(s *fleet.Status, _ bool) error {
		fmt.Fprint(stdout, "\x1b[H\x1b[2J")
		return printStatus(stdout, s)
	}, true)
	if ctx.Err() != nil { // interrupted, perhaps during a request
		return nil
	}
	return err
}

// show opens the fleet and prints its status with f.
func show(ctx context.Context, name string, args []string, stdout io.Writer, f func(*fleet.Status, bool) error, again bool) error {
	var n natsFlags
	fs := newFlags(name, stdout)
	n.add(fs)
	asJSON := new(bool)
	if !again {
		asJSON = fs.Bool("json", false, "print JSON")
	}
	if err := parse(fs, args, nil); err != nil {
		return err
	}
	b, end, err := n.open(ctx, name)
	if err != nil {
		return err
	}
	defer end()
	for {
		s, err := b.Status(ctx)
		if err != nil {
			return err
		}
		if err := f(s, *asJSON); err != nil || !again {
			return err
		}
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
			return nil
		}
	}
}

func printStatus(stdout io.Writer, s *fleet.Status) error {
	fmt.Fprintf(stdout, "%d sessions: %d running (%d of them wait for a person), %d queued", s.Sessions, s.Running, s.Waiting, s.Queued)
	if s.Queued > 0 {
		fmt.Fprintf(stdout, ", the oldest for %s", s.Oldest.Round(100*time.Millisecond))
	}
	fmt.Fprintln(stdout)
	w := tabwriter.NewWriter(stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "WORKER\tSESSIONS\tSLOTS\tVERSION\tUP")
	slices.SortFunc(s.Workers, func(a, b fleet.WorkerInfo) int { return strings.Compare(a.Name+a.ID, b.Name+b.ID) })
	for _, x := range s.Workers {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\n", visible(x.Name), x.Sessions, x.Slots, visible(x.Version), max(0, time.Since(x.Since)).Round(time.Second))
	}
	return w.Flush()
}

// visible replaces characters of a worker's text that could control the terminal.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\ufffd'
		}
		return r
	}, text)
}

// metricsHandler serves the metrics for an autoscaler, in the text format of Prometheus.
func metricsHandler(b *fleet.Backend) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		s, err := b.Status(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		m := b.Metrics()
		for _, x := range []struct {
			name, kind, help string
			value            float64
		}{
			{"parley_fleet_sessions", "gauge", "Sessions that exist.", float64(s.Sessions)},
			{"parley_fleet_running", "gauge", "Sessions that have work and a worker.", float64(s.Running)},
			{"parley_fleet_waiting", "gauge", "Sessions that wait for an answer of a person; they are among the running ones.", float64(s.Waiting)},
			{"parley_fleet_queued", "gauge", "Sessions that have work and no worker.", float64(s.Queued)},
			{"parley_fleet_oldest_seconds", "gauge", "How long the oldest of the queued ones has waited.", s.Oldest.Seconds()},
			{"parley_fleet_workers", "gauge", "Workers that are alive.", float64(len(s.Workers))},
			{"parley_fleet_appends_total", "counter", "Messages that this process stored in journals.", float64(m.Appends.Load())},
			{"parley_fleet_fenced_total", "counter", "Appends of this process that were refused because another one owns the session.", float64(m.Fenced.Load())},
			{"parley_fleet_retries_total", "counter", "Requests to NATS that this process repeated.", float64(m.Retries.Load())},
			{"parley_fleet_takeovers_total", "counter", "Sessions that this process took from one that had died or was silent.", float64(m.Takeovers.Load())},
		} {
			fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n%s %g\n", x.name, x.help, x.name, x.kind, x.name, x.value)
		}
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return mux
}
