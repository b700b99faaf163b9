package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// Try locks a file until it is closed. It does not wait: the error is [ErrHeld] if
// another process holds the lock. The locked byte is far after the end, since others can
// neither read nor write a locked byte.
func Try(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := c.Control(func(fd uintptr) {
		failed = windows.LockFileEx(windows.Handle(fd), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY,
			0, 1, 0, &windows.Overlapped{OffsetHigh: 1 << 30})
	}); err != nil {
		return err
	}
	if errors.Is(failed, windows.ERROR_LOCK_VIOLATION) || errors.Is(failed, windows.ERROR_IO_PENDING) {
		return ErrHeld
	}
	return failed
}
