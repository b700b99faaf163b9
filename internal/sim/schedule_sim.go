//go:build simulation

package sim

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// Deterministic reports whether the runtime is that of package overlay.
const Deterministic = true

func seedSchedule(seed uint64, p *Plan, record bool) {
	runtime.SimSeed(seed, p.Yield, p.Shuffle, p.Nap, record)
}

func endSchedule() { runtime.SimOff() }

type decision = runtime.SimDecision

// decisions returns those of the seed since seedSchedule.
func decisions() []decision { return slices.Clone(runtime.SimDecisions()) }

// describe returns the kind of a decision and its stack.
func describe(d decision) string {
	var b strings.Builder
	fmt.Fprintf(&b, "kind %d", d.Kind)
	pcs := d.PCs[:]
	if i := slices.Index(pcs, 0); i >= 0 {
		pcs = pcs[:i]
	}
	for frames := runtime.CallersFrames(pcs); ; {
		f, more := frames.Next()
		fmt.Fprintf(&b, " < %s:%d", f.Function, f.Line)
		if !more {
			return b.String()
		}
	}
}
