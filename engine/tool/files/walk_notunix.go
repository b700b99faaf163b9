//go:build !unix

package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// walk opens a directory by a path without symbolic links. It returns the deepest
// directory that exists, and the missing names below it.
func walk(dir string) (_ *os.Root, missing []string, err error) {
	top := filepath.VolumeName(dir) + string(filepath.Separator)
	root, err := os.OpenRoot(top)
	if err != nil {
		return nil, nil, err
	}
	parts := strings.FieldsFunc(dir[len(top):], func(r rune) bool { return r == filepath.Separator })
	for i, part := range parts {
		next, err := step(root, part)
		if errors.Is(err, fs.ErrNotExist) {
			return root, parts[i:], nil
		}
		root.Close()
		if err != nil {
			return nil, nil, err
		}
		root = next
	}
	return root, nil, nil
}
