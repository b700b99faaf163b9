//go:build !simulation

package sim

// Deterministic says that the runtime is the one of package overlay.
const Deterministic = false

func seedSchedule(uint64, uint32, uint32) {}

func endSchedule() {}
