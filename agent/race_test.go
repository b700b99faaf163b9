//go:build race

package agent_test

// raceEnabled says that memory is not what it is otherwise.
const raceEnabled = true
