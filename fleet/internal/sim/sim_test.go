package sim

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/parley-go/parley/fleet"
	"github.com/parley-go/parley/hub"
)

// seeds calls f with the seeds to play.
func seeds(n int, f func(uint64)) {
	if one, err := strconv.ParseUint(os.Getenv("PARLEY_SIM_SEED"), 10, 64); err == nil {
		f(one)
		return
	}
	if more, err := strconv.Atoi(os.Getenv("PARLEY_SIM_SEEDS")); err == nil {
		n = more
	}
	for seed := range n {
		f(uint64(seed))
	}
}

func TestSimulatedLogAndLease(t *testing.T) {
	seeds(8, func(seed uint64) {
		if problems, trace := simulate(t, seed, nil); len(problems) > 0 || os.Getenv("PARLEY_SIM_SEED") != "" {
			t.Errorf("seed %d: %d problems\n%s", seed, len(problems), strings.Join(trace, "\n"))
		}
	})
}

// A bug is a backend that does something wrong.
type bug struct {
	*fleet.Backend
	writesFenced, keepsLease, acknowledgesEarly bool
}

// Append implements [hub.Backend].
func (b *bug) Append(ctx context.Context, id string, expect uint64, entries []hub.Entry) error {
	if b.acknowledgesEarly {
		go b.Backend.Append(ctx, id, expect, entries)
		return nil
	}
	err := b.Backend.Append(ctx, id, expect, entries)
	if !b.writesFenced || !errors.Is(err, hub.ErrConflict) {
		return err
	}
	var last uint64
	for e, err := range b.Read(ctx, id, 0, false) {
		if err != nil {
			return err
		}
		last = e.N
	}
	entries[0].N = last + 1
	return b.Backend.Append(ctx, id, last, entries)
}

// Lease implements [hub.Backend].
func (b *bug) Lease(ctx context.Context, id string) (hub.Lease, error) {
	l, err := b.Backend.Lease(ctx, id)
	if err == nil && b.keepsLease {
		l = &keptLease{l}
	}
	return l, err
}

type keptLease struct{ hub.Lease }

// Lost implements [hub.Lease].
func (*keptLease) Lost() <-chan struct{} { return nil }

// The simulation finds bugs that are planted in the backend.
func TestPlantedBugsAreFound(t *testing.T) {
	for name, plant := range map[string]bug{
		"an owner writes though it was fenced":          {writesFenced: true},
		"a lease is kept after it has expired":          {keepsLease: true},
		"an append is acknowledged before it is stored": {acknowledgesEarly: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(30) {
				problems, _ := simulate(t, seed, func(b *fleet.Backend) hub.Backend {
					x := plant
					x.Backend = b
					return &x
				})
				if len(problems) > 0 {
					t.Logf("seed %d: %s", seed, problems[0])
					return
				}
			}
			t.Error("nothing was found with 30 seeds")
		})
	}
}
