// Package filelock locks files between processes. Locks belong to the operating system:
// every process sees them, and a lock ends with the process that holds it, for whatever
// reason it ends. The package only handles open files.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// ErrHeld reports that another process holds the lock.
var ErrHeld = errors.New("filelock: another process holds it")

// Acquire creates a lock file and locks it. It waits for the lock until ctx ends. The returned
// function releases the lock and removes the file; the lock ends with this process at the
// latest.
func Acquire(ctx context.Context, root *os.Root, name string) (unlock func(), err error) {
	for {
		f, err := root.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		err = Try(f)
		if err == nil {
			// Its last owner may have removed it meanwhile.
			info, err := f.Stat()
			now, nowErr := root.Lstat(name)
			if err == nil && nowErr == nil && os.SameFile(info, now) {
				return func() {
					removed := root.Remove(name) == nil
					f.Close()
					if !removed { // not every system can remove open files
						root.Remove(name)
					}
				}, nil
			}
		}
		f.Close()
		if err != nil && !errors.Is(err, ErrHeld) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another process holds %s: try again when it has ended", filepath.Join(root.Name(), name))
		case <-time.After(time.Duration(1+rand.IntN(8)) * time.Millisecond):
		}
	}
}
