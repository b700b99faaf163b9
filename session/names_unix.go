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
	project := filepath.Dir(l.path)
	for _, dir := range []string{project, filepath.Dir(project), l.files.Dir} {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
	}
	return nil
}
