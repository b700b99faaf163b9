//go:build unix

package files

import (
	"io/fs"
	"os"
	"syscall"
)

// nonblock prevents an open from blocking, should the file have become a pipe.
const nonblock = syscall.O_NONBLOCK

const errQuota = syscall.EDQUOT

func identity(info fs.FileInfo) (device, inode uint64) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), uint64(st.Ino)
	}
	return 0, 0
}

func links(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink)
	}
	return 1
}

// keepOwner sets the owner of a file to that of another, as far as permitted.
func keepOwner(f *os.File, like fs.FileInfo) {
	st, ok := like.Sys().(*syscall.Stat_t)
	if !ok {
		return
	}
	if now, err := f.Stat(); err == nil {
		if is, ok := now.Sys().(*syscall.Stat_t); ok && is.Uid == st.Uid && is.Gid == st.Gid {
			return
		}
	}
	if f.Chown(int(st.Uid), int(st.Gid)) != nil {
		f.Chown(-1, int(st.Gid))
	}
}
