// Package sim attacks the promises of ARCHITECTURE.md from a seed.
//
// A [Plan] is a workload and a list of faults, both made from a seed. [Run] plays it: the SDK
// and an agent in this process, or a hub with viewers, in a testing/synctest bubble, with
// the model, the host, the pipe, the tools and the store all played by actors that have a
// random source each. Afterwards the promises are checked, and a violation is returned with
// a trace that a person can read. An agent that is killed leaves what its store has, and
// the next life of the same run resumes from it in a new bubble.
//
// Built by the command sim below, with the overlay of Go's runtime, the order in which
// goroutines run is a function of the seed as well, and so is everything in a run: the same
// plan gives the same trace, byte for byte. A plain build plays the same plans with the
// schedules that Go happens to choose.
//
//	make sim                  # seeds until interrupted
//	make sim ONE=1234         # one seed, with its trace
//
// Nothing in the product knows of this package.
package sim
