//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package session

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// nonblock keeps the opening of what is no file from waiting.
const nonblock = unix.O_NONBLOCK

// lockFile takes the lock of a log, which every process sees and which ends with
// the last one that has the file open. It does not wait.
func lockFile(f *os.File) error {
	return control(f, func(fd int) error {
		for {
			err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
			switch {
			case errors.Is(err, unix.EINTR):
				continue
			case errors.Is(err, unix.EWOULDBLOCK):
				return ErrLocked
			}
			return err
		}
	})
}

// control calls f with the descriptor of a file.
func control(f *os.File, call func(fd int) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := c.Control(func(fd uintptr) { failed = call(int(fd)) }); err != nil {
		return err
	}
	return failed
}
