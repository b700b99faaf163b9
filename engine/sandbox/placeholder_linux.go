//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// A placeholder is an empty directory, or a small file, that keeps a path occupied
// while a command runs. It is recognized by its mode. All users of it, in this process
// and others, hold a shared lock; the last one removes it.
type placeholder struct {
	path string
	f    *os.File
}

// placeheld reports whether something is a placeholder, ours or one that a killed
// process left.
func placeheld(info fs.FileInfo) bool {
	mode := info.Mode()
	return mode&fs.ModeSticky != 0 && mode.Perm()&0o222 == 0 && (mode.IsDir() || mode.IsRegular())
}

func holdPlace(path string, file bool) (*placeholder, error) {
	for range 20 {
		var err error
		if file {
			var fd int
			if fd, err = syscall.Open(path, syscall.O_CREAT|syscall.O_EXCL|syscall.O_WRONLY|syscall.O_CLOEXEC, syscall.S_ISVTX|0o444); err == nil {
				if filepath.Base(path) == "commondir" {
					syscall.Write(fd, []byte(".\n")) // the repository is in this directory
				}
				syscall.Close(fd)
			}
		} else {
			err = syscall.Mkdir(path, syscall.S_ISVTX|0o555)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err != nil {
			f.Close() // it is being removed
			continue
		}
		mine, err1 := f.Stat()
		now, err2 := os.Lstat(path)
		if err1 == nil && err2 == nil && os.SameFile(mine, now) {
			return &placeholder{path, f}, nil
		}
		f.Close()
	}
	return nil, fs.ErrExist
}

// release removes the placeholder if nobody else uses it. A directory that is not
// empty, or a file that is no longer ours, stays.
func (p *placeholder) release() {
	defer p.f.Close()
	if syscall.Flock(int(p.f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return
	}
	mine, err1 := p.f.Stat()
	now, err2 := os.Lstat(p.path)
	if err1 == nil && err2 == nil && os.SameFile(mine, now) && placeheld(now) && (now.IsDir() || now.Size() <= 2) {
		os.Remove(p.path)
	}
}
