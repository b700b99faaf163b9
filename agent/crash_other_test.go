//go:build !linux

package agent_test

const crashEnv = "PARLEY_TEST_CRASH"

// crashAgent is not needed: only one system can end a process at a byte.
func crashAgent() {}
