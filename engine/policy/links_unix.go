//go:build unix

package policy

import (
	"os"
	"syscall"
)

// An entry is the directory entry of a name. The zero value means that there is none.
type entry struct{ mode, links, dev, ino uint64 }

// lookAt looks up a path without following a link at its end.
func lookAt(path string) entry {
	var st syscall.Stat_t
	for {
		switch err := syscall.Lstat(path, &st); err {
		case nil:
			return newEntry(&st)
		case syscall.EINTR:
		default:
			return entry{}
		}
	}
}

func newEntry(st *syscall.Stat_t) entry {
	return entry{uint64(st.Mode), uint64(st.Nlink), uint64(st.Dev), uint64(st.Ino)}
}

// entryOf returns the entry for the result of a stat.
func entryOf(fi os.FileInfo) entry {
	if fi == nil {
		return entry{}
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return newEntry(st)
	}
	mode := uint64(syscall.S_IFREG)
	if fi.IsDir() {
		mode = syscall.S_IFDIR
	}
	return entry{mode: mode, links: 2} // unknown: assume several links
}

func (e entry) exists() bool      { return e.mode != 0 }
func (e entry) isDir() bool       { return e.mode&syscall.S_IFMT == syscall.S_IFDIR }
func (e entry) isLink() bool      { return e.mode&syscall.S_IFMT == syscall.S_IFLNK }
func (e entry) names() uint64     { return e.links }
func (e entry) same(o entry) bool { return e.dev == o.dev && e.ino == o.ino }
