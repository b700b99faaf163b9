//go:build unix

package interop

import (
	"os"
	"syscall"
)

// passed are the signals that a tap passes on.
var passed = []os.Signal{syscall.SIGTERM, syscall.SIGINT}
