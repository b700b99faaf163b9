//go:build unix

package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ownedAlone returns an error unless a directory belongs to this user and nobody else
// can change it, read it or replace it. It removes permissions of our own that are too
// wide.
func ownedAlone(path string, info, above fs.FileInfo) error {
	me := uint32(os.Geteuid())
	if st, ok := above.Sys().(*syscall.Stat_t); ok {
		if st.Uid != me && st.Uid != 0 {
			return fmt.Errorf("the directory above it belongs to the user %d", st.Uid)
		}
		others := above.Mode().Perm()&0o002 != 0 || above.Mode().Perm()&0o020 != 0 && int(st.Gid) != os.Getegid()
		if others && above.Mode()&fs.ModeSticky == 0 {
			return errors.New("others can replace it: the directory above it is writable for them and not sticky")
		}
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != me {
		return fmt.Errorf("it belongs to the user %d", st.Uid)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return os.Chmod(path, 0o700)
	}
	return nil
}
