package session

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

const nonblock = 0

// lockFile takes the lock of a log, which every process sees and which ends with
// the one that has it. It does not wait. The lock is on a byte far behind the end,
// since a locked byte can be neither read nor written by others.
func lockFile(f *os.File) error {
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
		return ErrLocked
	}
	return failed
}
