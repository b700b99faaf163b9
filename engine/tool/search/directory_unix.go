//go:build unix

package search

import (
	"io/fs"
	"os"
	"path"
	"slices"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// A directory is held open while it is in use. Everything in it is opened relative to
// it, and no symbolic link is followed.
type directory struct {
	file *os.File
	fd   int
	refs atomic.Int32
}

func newDirectory(f *os.File) *directory {
	d := &directory{file: f, fd: int(f.Fd())}
	d.refs.Store(1)
	return d
}

// openDirectory opens the directory of a walk.
func openDirectory(root *os.Root) (*directory, error) {
	f, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	return newDirectory(f), nil
}

func open(at int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|flags, 0)
		if err != syscall.EINTR {
			return fd, err
		}
	}
}

func (d *directory) hold() { d.refs.Add(1) }

func (d *directory) release() {
	if d.refs.Add(-1) == 0 {
		d.file.Close()
	}
}

func (d *directory) openDirectory(name string) (*directory, error) {
	fd, err := open(d.fd, name, unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	return newDirectory(os.NewFile(uintptr(fd), name)), nil
}

func (d *directory) list() ([]fs.DirEntry, error) { return d.file.ReadDir(-1) }

// readSmall reads a small file, such as an ignore file. The name may contain
// directories.
func (d *directory) readSmall(name string) (string, error) {
	if dir, base := path.Split(name); dir != "" {
		sub, err := d.openDirectory(path.Clean(dir))
		if err != nil {
			return "", err
		}
		defer sub.release()
		return sub.readSmall(base)
	}
	data, _, err := d.read(name, nil, maxIgnore, nil)
	return string(data), err
}

// read reads a regular file into a buffer, which it may replace by a larger one. It
// does not read a file that is larger than limit, and sets tooBig. It does not read a
// file with several hard links if hidden returns true; hidden may be nil.
func (d *directory) read(name string, buf []byte, limit int, hidden func(fs.FileInfo) bool) (data []byte, tooBig bool, err error) {
	fd, err := open(d.fd, name, unix.O_NOFOLLOW)
	if err != nil {
		return nil, false, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, false, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > int64(limit) {
		return nil, true, nil
	}
	if st.Nlink > 1 && hidden != nil {
		info, err := infoOf(fd)
		if err != nil {
			return nil, false, err
		}
		if hidden(info) {
			return nil, false, errHidden
		}
	}
	buf = buf[:cap(buf)]
	n := 0
	for {
		if n == len(buf) {
			if n > 0 {
				// It did not fit: check its size.
				if err := unix.Fstat(fd, &st); err != nil {
					return buf[:n], false, err
				}
				if st.Size > int64(limit) || n >= limit {
					return buf[:n], true, nil
				}
				buf = slices.Grow(buf, max(int(st.Size)+1, 2*n)-n)
				buf = buf[:cap(buf)]
			} else {
				buf = make([]byte, 256<<10)
			}
		}
		k, err := unix.Read(fd, buf[n:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return buf[:n], false, err
		}
		if k == 0 {
			return buf[:n], false, nil
		}
		short := k < len(buf)-n
		n += k
		if first := n == k; first && isBinary(buf[:n]) {
			return buf[:n], false, errBinary
		}
		if short && int64(n) == st.Size {
			return buf[:n], false, nil // without another call that finds the end
		}
	}
}

// infoOf returns the FileInfo of an open file.
func infoOf(fd int) (fs.FileInfo, error) {
	fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "")
	defer f.Close()
	return f.Stat()
}

// ModTime returns the modification time of the file, in nanoseconds.
func (f *File) ModTime() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(f.dir.fd, f.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, err
	}
	return st.Mtim.Nano(), nil
}
