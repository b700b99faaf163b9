//go:build unix

package settings

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// onlyRoot returns an error if somebody other than the administrator could have written
// a managed file.
func onlyRoot(path string) error {
	for _, p := range []string{filepath.Dir(path), path} {
		info, err := os.Stat(p)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return &Error{Origin{Layer: Managed, File: path}, "the managed settings cannot be read: " + err.Error(), "Ask who manages this machine."}
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o002 != 0 || ok && info.Mode().Perm()&0o020 != 0 && st.Gid != 0 {
			return &Error{Origin{Layer: Managed, File: path}, "users other than root can change " + p, "Let root own it, and let nobody else write it."}
		}
	}
	return nil
}
