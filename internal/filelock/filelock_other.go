//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package filelock

import (
	"errors"
	"os"
)

// Try fails: without a lock two writers would take each other's work apart.
func Try(*os.File) error { return errors.ErrUnsupported }
