// Package regular reads files that may come from others: only regular files, without
// waiting for the writer of a pipe, and up to a size limit. The package does not interpret
// the contents.
package regular

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrNot reports that a path is not a regular file but, for example, a pipe or a device.
var ErrNot = errors.New("it is not a regular file")

// Read reads a file that is not larger than limit, in bytes.
func Read(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	return read(f, limit)
}

// ReadIn is like [Read] for a file below a root.
func ReadIn(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return nil, err
	}
	return read(f, limit)
}

func read(f *os.File, limit int64) ([]byte, error) {
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, ErrNot
	}
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(text)) > limit {
		return nil, fmt.Errorf("it is larger than %d KB", limit>>10)
	}
	return text, err
}
