package process

import (
	"os"

	"golang.org/x/sys/unix"
)

// unnamed creates a file without a name, which no other program can open.
func unnamed() (*os.File, error) {
	fd, err := unix.MemfdCreate("parley", unix.MFD_CLOEXEC)
	if err != nil {
		return temporary()
	}
	return os.NewFile(uintptr(fd), "parley"), nil
}
