package transport

import (
	"os"

	"golang.org/x/sys/unix"
)

// outputSize is how much a command can write ahead of the reader. With the usual 64 KiB
// the command and the reader wake each other for every few messages of a long answer.
const outputSize = 256 << 10

// enlarge enlarges the buffer of a pipe, if the system allows it.
func enlarge(pipe *os.File) {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	conn.Control(func(fd uintptr) {
		unix.FcntlInt(fd, unix.F_SETPIPE_SZ, outputSize) // it also works without
	})
}
