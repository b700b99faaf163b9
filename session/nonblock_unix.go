//go:build unix

package session

import "syscall"

// nonblock prevents opening a special file from blocking.
const nonblock = syscall.O_NONBLOCK
