package durable

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncData calls fdatasync.
func syncData(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := c.Control(func(fd uintptr) {
		for {
			if failed = unix.Fdatasync(int(fd)); !errors.Is(failed, unix.EINTR) {
				break
			}
		}
	}); err != nil {
		return err
	}
	return failed
}
