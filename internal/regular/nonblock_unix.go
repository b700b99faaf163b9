//go:build unix

package regular

import "syscall"

// nonblock prevents open from waiting for the other end of a pipe.
const nonblock = syscall.O_NONBLOCK
