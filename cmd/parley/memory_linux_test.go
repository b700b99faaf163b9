package main

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestMemoryIsHidden checks that other processes of its user cannot trace the command,
// and therefore do not see its environment.
func TestMemoryIsHidden(t *testing.T) {
	before, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_DUMPABLE, uintptr(before), 0, 0, 0)
	hideMemory()
	if got, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); got != 0 || err != nil {
		t.Errorf("PR_GET_DUMPABLE is %d (%v), want 0", got, err)
	}
}
