//go:build unix && !linux

package files

import "golang.org/x/sys/unix"

// searchOnly opens a directory for traversal. On these systems that requires permission
// to list it.
const searchOnly = unix.O_RDONLY
