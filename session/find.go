package session

import (
	"context"
	"errors"
	"io/fs"
	"strings"
)

// find returns the id of the newest session with a title. A title is one that was given, or else one that a
// model made up; letters count the same in both cases.
func (f *Files) find(ctx context.Context, title string) (string, error) {
	title = strings.TrimSpace(title)
	if title == "" {
		return "", ErrNotFound
	}
	root, err := f.root(false)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = ErrNotFound
		}
		return "", err
	}
	defer root.Close()
	names, err := projects(root)
	if err != nil {
		return "", err
	}
	var all []place
	for _, project := range names {
		all = append(all, places(root, project)...)
	}
	newestFirst(all)
	for _, p := range all {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if d, err := digestPlace(root, p); err == nil && !d.sidechain && d.titled(title) {
			return p.id, nil
		}
	}
	return "", ErrNotFound
}
