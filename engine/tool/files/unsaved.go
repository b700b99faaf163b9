package files

import (
	"context"
	"fmt"
	"io"
	"io/fs"
)

// Unsaved returns the content of the file in the editor of the user, in the encoding of the file, or nil
// if it is that of the file on disk, which is data. The editor opens the file itself, by its resolved path.
func (p *Place) Unsaved(ctx context.Context, data []byte) []byte {
	return p.unsaved(ctx, data, false)
}

// UnsavedOf is [Place.Unsaved] for a file that is open at its beginning, where it is left.
func (p *Place) UnsavedOf(ctx context.Context, f io.ReadSeeker, info fs.FileInfo) []byte {
	if p.env == nil || p.env.Unsaved == nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, info.Size()))
	if _, again := f.Seek(0, io.SeekStart); err != nil || again != nil {
		return nil
	}
	return p.unsaved(ctx, data, false)
}

func (p *Place) unsaved(ctx context.Context, data []byte, save bool) []byte {
	if p.env == nil || p.env.Unsaved == nil || Binary(data[:min(len(data), 8000)]) {
		return nil
	}
	content, ok := p.env.Unsaved(ctx, p.Real, save)
	disk := Decode(data)
	if !ok || len(content) > MaxSize || Decode([]byte(content)).Content == disk.Content {
		return nil
	}
	bytes, err := disk.With(Decode([]byte(content)).Content).Encode()
	if err != nil {
		return nil
	}
	return bytes
}

// Save stores the unsaved content of the file, which [Place.Unsaved] returned, through the editor. It
// returns the FileInfo of the file as it is on disk afterwards.
func (p *Place) Save(ctx context.Context, unsaved []byte) (fs.FileInfo, error) {
	p.unsaved(ctx, unsaved, true)
	data, info, err := p.ReadAll(MaxSize)
	if err == nil && Decode(data).Content != Decode(unsaved).Content {
		err = fmt.Errorf("%s has changes in the editor of the user, and the editor did not save them; nothing was written. Read it again", p.Path)
	}
	return info, err
}
