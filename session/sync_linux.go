package session

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// syncFile waits until what was written would survive a power cut.
func syncFile(f *os.File) error {
	return control(f, func(fd int) error {
		for {
			if err := unix.Fdatasync(fd); !errors.Is(err, unix.EINTR) {
				return err
			}
		}
	})
}
