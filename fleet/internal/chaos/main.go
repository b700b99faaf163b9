// Command chaos tests that a fleet loses nothing: three nodes and four workers run as processes,
// which are killed, paused and disconnected while sessions work. `make chaos` runs it.
//
// Every prompt leads to one tool call that adds a line to a ledger file. In the end each prompt must have
// one result, no line may occur twice, no entry may be by a process that was not the owner, and porcupine must
// find an order for the operations of clients on logs and leases. Only violations of these rules fail;
// measurements are printed with their limits.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"time"
)

func main() {
	role := flag.String("role", "", "what this process is; for processes that chaos starts")
	spec := flag.String("spec", "", "for processes that chaos starts")
	seed := flag.Uint64("seed", 1, "of the faults")
	duration := flag.Duration("for", 45*time.Second, "how long to cause faults")
	sessions := flag.Int("sessions", 12, "how many sessions work")
	lease := flag.Duration("lease", 15*time.Second, "of the workers")
	rest := flag.Int("rest", 10_000, "how many sessions are at rest, and how many prompts a tenant sends at once, when a node alone is measured; 0 measures nothing")
	busy := flag.Bool("busy", false, "the machine may be busy: what does not finish in time is printed and does not fail")
	keep := flag.Bool("keep", false, "keep the directory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch *role {
	case "node":
		err = runNode(ctx, *spec)
	case "worker":
		err = runWorker(ctx, *spec)
	case "bars":
		err = runBars(ctx, *spec)
	default:
		err = run(ctx, *seed, *duration, *sessions, *rest, *lease, *keep)
	}
	if late := (*lateError)(nil); errors.As(err, &late) && *busy {
		fmt.Println("LATE, which does not fail here:", err)
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// A lateError reports that something did not happen in time.
type lateError struct{ what string }

func (e *lateError) Error() string { return e.what }

// run performs one run and prints its findings.
func run(ctx context.Context, seed uint64, duration time.Duration, sessions, rest int, lease time.Duration, keep bool) (err error) {
	dir, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		return err
	}
	defer func() {
		if !keep && err == nil { // after a failure, the log tells what happened
			os.RemoveAll(dir)
		}
	}()
	fmt.Printf("seed %d, %v of faults, %d sessions, lease %v\n", seed, duration, sessions, lease)
	if rest > 0 {
		if err := measureAlone(ctx, dir, rest); err != nil {
			return err
		}
	}
	w, err := newWorld(ctx, dir, lease, rand.New(rand.NewPCG(seed, 1)))
	if err != nil {
		return err
	}
	defer w.close()
	load, err := w.startLoad(ctx, sessions)
	if err != nil {
		return err
	}
	hist := w.startHistory(ctx)
	w.faults(ctx, duration)
	late := w.finish(ctx, load)
	hist.finish()
	return errors.Join(w.check(ctx, load, hist, late == nil), late)
}
