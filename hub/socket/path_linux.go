package socket

import (
	"fmt"
	"os"
	"path/filepath"
)

// maxPath is the longest path that a socket can have.
const maxPath = 107

// short returns another path for a socket if its path is too long for the kernel. That
// path is valid as long as the returned file is open. The file is nil if the path is
// short enough.
func short(path string) (string, *os.File, error) {
	if len(path) <= maxPath {
		return path, nil, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), dir, nil
}
