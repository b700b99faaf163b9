//go:build !unix

package search

import (
	"io"
	"io/fs"
	"os"
	"sync/atomic"
)

// A directory is held open while it is in use. Everything in it is opened relative to
// it.
type directory struct {
	root *os.Root
	refs atomic.Int32
}

// openDirectory opens the directory of a walk.
func openDirectory(top *os.Root) (*directory, error) {
	root, err := top.OpenRoot(".")
	if err != nil {
		return nil, err
	}
	d := &directory{root: root}
	d.refs.Store(1)
	return d, nil
}

func (d *directory) hold() { d.refs.Add(1) }

func (d *directory) release() {
	if d.refs.Add(-1) == 0 {
		d.root.Close()
	}
}

func (d *directory) openDirectory(name string) (*directory, error) {
	root, err := d.root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	sub := &directory{root: root}
	sub.refs.Store(1)
	return sub, nil
}

func (d *directory) list() ([]fs.DirEntry, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.ReadDir(-1)
}

func (d *directory) readSmall(name string) (string, error) {
	data, _, err := d.read(name, nil, maxIgnore, nil)
	return string(data), err
}

func (d *directory) read(name string, buf []byte, limit int, hidden func(fs.FileInfo) bool) (data []byte, tooBig bool, err error) {
	f, err := d.root.Open(name)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	if !info.Mode().IsRegular() || info.Size() > int64(limit) {
		return nil, true, nil
	}
	if hidden != nil && hidden(info) {
		return nil, false, errHidden
	}
	data, err = io.ReadAll(io.LimitReader(f, int64(limit)))
	if err == nil && isBinary(data[:min(len(data), 64<<10)]) {
		err = errBinary
	}
	return data, false, err
}

// ModTime returns the modification time of the file, in nanoseconds.
func (f *File) ModTime() (int64, error) {
	info, err := f.dir.root.Lstat(f.name)
	if err != nil {
		return 0, err
	}
	return info.ModTime().UnixNano(), nil
}
