//go:build race

package agent_test

// raceEnabled reports whether the race detector changes the use of memory.
const raceEnabled = true
