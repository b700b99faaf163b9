//go:build !linux

package agent_test

const crashEnv = "PARLEY_TEST_CRASH"

// crashAgent does nothing: only one system can end a process at a byte.
func crashAgent() {}
