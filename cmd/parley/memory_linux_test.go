package main

import (
	"os"
	"strconv"
	"strings"
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

// TestCodeIsReleased checks that releaseCode unmaps most of the program, and that the program
// runs on.
func TestCodeIsReleased(t *testing.T) {
	mapped := func() int {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "RssFile:")
		kb, err := strconv.Atoi(strings.Fields(rest + " 0")[0])
		if err != nil || kb == 0 {
			t.Skip("the kernel does not report pages of files")
		}
		return kb
	}
	before := mapped()
	releaseCode()
	if after := mapped(); after > before/2 {
		t.Errorf("%d KB of files are mapped, %d KB before", after, before)
	}
}
