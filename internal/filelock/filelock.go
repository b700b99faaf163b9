// Package filelock locks files between processes. A lock is the system's: every process
// sees it, and it ends with the one that has it, however that ends. The package knows
// files that are open and nothing else.
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

// ErrHeld says that another has the lock.
var ErrHeld = errors.New("filelock: another process holds it")

// Take takes the lock of a file that it makes for it, and waits for it until ctx ends. What
// it returns gives the lock up and removes the file; it ends with this process at the latest.
func Take(ctx context.Context, root *os.Root, name string) (unlock func(), err error) {
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
					if !removed { // not every system removes what is open
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
