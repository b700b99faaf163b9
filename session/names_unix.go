//go:build unix

package session

import (
	"errors"
	"os"
	"path/filepath"
)

// syncNames waits until the file and the directories above it would be found
// after a power cut.
func (l *fileLog) syncNames() error {
	for dir := filepath.Dir(l.path); len(dir) >= len(filepath.Clean(l.files.Dir)); dir = filepath.Dir(dir) {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	return nil
}
