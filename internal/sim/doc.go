// Package sim tests the promises of ARCHITECTURE.md with random workloads and faults from a
// seed.
//
// A [Plan] is a workload and a list of faults, both generated from a seed. [Run] plays it in
// a testing/synctest bubble: the SDK and an agent in this process, or a hub with viewers. The
// model, the host, the pipe, the tools and the store are actors, each with its own random
// source. Afterwards the promises are checked, and a violation is returned with a readable
// trace. An agent that is killed leaves the contents of its store, and the next life of the
// same run resumes from it in a new bubble.
//
// When the command sim below builds it with the overlay of Go's runtime, the order in which
// goroutines run is also a function of the seed, and so is everything in a run: the same plan
// produces the same trace, byte for byte. A plain build plays the same plans with the
// schedules that Go happens to choose.
//
//	make sim                  # seeds until interrupted
//	make sim ONE=1234         # one seed, with its trace
//
// The product does not depend on this package.
package sim
