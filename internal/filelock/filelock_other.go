//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package filelock

import (
	"errors"
	"os"
)

// Try fails: without a lock two writers would corrupt each other's data.
func Try(*os.File) error { return errors.ErrUnsupported }
