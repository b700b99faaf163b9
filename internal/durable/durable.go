// Package durable waits until files and their names survive a power cut.
package durable

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

// Synced is called with the path of each synced file and directory. Tests set it to simulate
// power cuts, before anything is written; otherwise it is nil.
var Synced func(path string)

// File waits until the data written to a file survives a power cut.
func File(f *os.File) error { return synced(f.Name(), syncData(f)) }

// Dir waits until the names in a directory survive a power cut. Not every system supports
// that.
func Dir(name string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return synced(name, errors.Join(d.Sync(), d.Close()))
}

// Names waits until a file would be found after a power cut: its name, those of the
// directories above it up to top, and that of top itself.
func Names(path, top string) error {
	top = filepath.Clean(top)
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		// The directory above top may belong to another user; then top has existed for long.
		if err := Dir(dir); err != nil && (len(dir) >= len(top) || !errors.Is(err, os.ErrPermission)) {
			return err
		}
		if len(dir) < len(top) || dir == filepath.Dir(dir) {
			return nil
		}
	}
}

func synced(path string, err error) error {
	if err == nil && Synced != nil {
		Synced(path)
	}
	return err
}
