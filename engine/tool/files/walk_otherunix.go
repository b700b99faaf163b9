//go:build unix && !linux

package files

import "golang.org/x/sys/unix"

// searchOnly is how directories are opened that are only passed through: there is no
// way here to do so without the right to list them.
const searchOnly = unix.O_RDONLY
