//go:build unix

package interop

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// passed are the signals that a tap forwards.
var passed = []os.Signal{syscall.SIGTERM, syscall.SIGINT}

// runs reports whether the process with this id exists and has not ended.
func runs(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !strings.Contains(string(stat), ") Z ")
}
