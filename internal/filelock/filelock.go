// Package filelock locks files between processes. A lock is the system's: every process
// sees it, and it ends with the one that has it, however that ends. The package knows
// files that are open and nothing else.
package filelock

import "errors"

// ErrHeld says that another has the lock.
var ErrHeld = errors.New("filelock: another process holds it")
