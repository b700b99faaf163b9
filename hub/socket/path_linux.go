package socket

import (
	"fmt"
	"os"
	"path/filepath"
)

// maxPath is how long the path of a socket can be.
const maxPath = 107

// short returns another path of a socket whose path is too long for the kernel. It holds
// as long as the file is open, which is nil if the path is short enough.
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
