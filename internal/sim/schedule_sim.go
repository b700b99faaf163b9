//go:build simulation

package sim

import "runtime"

// Deterministic reports whether the runtime is that of package overlay.
const Deterministic = true

func seedSchedule(seed uint64, yield, shuffle uint32) { runtime.SimSeed(seed, yield, shuffle) }

func endSchedule() { runtime.SimOff() }
