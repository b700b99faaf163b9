package transport

import (
	"os"

	"golang.org/x/sys/unix"
)

// outputSize is how much a command can write ahead of us. The usual 64 KiB have it
// and its reader wake each other for every few messages of a long answer.
const outputSize = 256 << 10

// enlarge gives a pipe more room, if the system has it.
func enlarge(pipe *os.File) {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return
	}
	conn.Control(func(fd uintptr) {
		unix.FcntlInt(fd, unix.F_SETPIPE_SZ, outputSize) // it works as well without
	})
}
