//go:build !simulation

package sim

// Deterministic reports whether the runtime is that of package overlay.
const Deterministic = false

func seedSchedule(uint64, *Plan, bool) {}

func endSchedule() {}

type decision struct{}

func decisions() []decision { return nil }

func describe(decision) string { return "" }
