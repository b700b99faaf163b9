// Package sim tests the log and the leases of a fleet with random faults from a seed.
//
// A run is a bubble with virtual time: a real NATS server, and processes that are killed and whose links
// are slow, stall and break. Each process acquires the leases of sessions, and runs steps that each have
// an effect. Afterwards it checks that
//
//   - no entry is by a process that was not the owner,
//   - everything that was acknowledged is in the log, once,
//   - no effect took place twice,
//   - no process keeps a lease whose entry has expired while another one has it.
//
// TestPlantedBugsAreFound checks that the simulation finds bugs. PARLEY_SIM_SEED plays one seed and prints its
// trace, PARLEY_SIM_SEEDS plays that many seeds.
package sim
