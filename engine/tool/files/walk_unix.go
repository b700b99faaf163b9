//go:build unix

package files

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// walk opens a directory by a path without symbolic links. It returns the deepest
// directory that exists, and the missing names below it.
//
// It descends from the top of the file system and follows no link, so it always arrives
// at the directory with that very path. [os.Root] holds it.
func walk(dir string) (_ *os.Root, missing []string, err error) {
	parts := strings.FieldsFunc(dir, func(r rune) bool { return r == '/' })
	at, err := openat(unix.AT_FDCWD, "/")
	if err != nil {
		return nil, nil, &fs.PathError{Op: "open", Path: "/", Err: err}
	}
	defer func() { at.Close() }()
	for i, part := range parts {
		next, err := openat(int(at.Fd()), part)
		if err == unix.ENOENT {
			parts, missing = parts[:i], parts[i:]
			break
		}
		if err != nil {
			var st unix.Stat_t
			if unix.Fstatat(int(at.Fd()), part, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK {
				return nil, nil, ErrMoved
			}
			return nil, nil, &fs.PathError{Op: "open", Path: "/" + filepath.Join(parts[:i+1]...), Err: err}
		}
		at.Close()
		at = next
	}
	root, err := os.OpenRoot("/" + filepath.Join(parts...))
	if err != nil {
		return nil, nil, err
	}
	want, err := at.Stat()
	if err == nil {
		var got fs.FileInfo
		if got, err = root.Stat("."); err == nil && !os.SameFile(want, got) {
			err = ErrMoved
		}
	}
	if err != nil {
		root.Close()
		return nil, nil, err
	}
	return root, missing, nil
}

// openat opens a directory that is not a symbolic link.
func openat(at int, name string) (*os.File, error) {
	for {
		fd, err := unix.Openat(at, name, searchOnly|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			return os.NewFile(uintptr(fd), name), nil
		}
		if err != unix.EINTR {
			return nil, err
		}
	}
}
