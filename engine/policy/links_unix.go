//go:build unix

package policy

import (
	"os"
	"syscall"
)

// links returns how many names a file has.
func links(fi os.FileInfo) int {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return int(st.Nlink)
	}
	return 2 // it may have more
}
