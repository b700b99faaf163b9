//go:build unix

package session

import "syscall"

// nonblock keeps the opening of what is no file from waiting.
const nonblock = syscall.O_NONBLOCK
