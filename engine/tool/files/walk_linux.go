package files

import "golang.org/x/sys/unix"

// searchOnly opens a directory that may be traversed but not listed.
const searchOnly = unix.O_PATH
