//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Try locks a file until it is closed. It does not wait: the error is [ErrHeld] if
// another process holds the lock.
func Try(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := c.Control(func(fd uintptr) {
		for {
			failed = unix.Flock(int(fd), unix.LOCK_EX|unix.LOCK_NB)
			if !errors.Is(failed, unix.EINTR) {
				break
			}
		}
	}); err != nil {
		return err
	}
	if errors.Is(failed, unix.EWOULDBLOCK) {
		return ErrHeld
	}
	return failed
}
