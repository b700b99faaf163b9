// Package sim plays the log and the leases of a fleet from a seed.
//
// A run is a bubble with virtual time: a real NATS server, and processes whose links are slow, stall and
// break, and which are killed. Each process takes the leases of sessions, and runs steps that each
// have an effect. Afterwards it is checked that
//
//   - no entry is by a process that was not the owner,
//   - everything that was acknowledged is in the log, once,
//   - no effect took place twice,
//   - no process keeps a lease whose entry has expired while another one has it.
//
// TestPlantedBugsAreFound shows that bugs in the code below are found. PARLEY_SIM_SEED plays one seed and
// prints its trace, PARLEY_SIM_SEEDS plays so many.
package sim
