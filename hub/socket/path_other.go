//go:build !linux

package socket

import (
	"fmt"
	"os"
)

// maxPath is the longest path that a socket can have on every system.
const maxPath = 103

// short returns the path of a socket, or an error if it is too long for the kernel.
func short(path string) (string, *os.File, error) {
	if len(path) > maxPath {
		return "", nil, fmt.Errorf("the path of the hub's socket is too long: %s; set CLAUDE_CONFIG_DIR to a shorter one", path)
	}
	return path, nil, nil
}
