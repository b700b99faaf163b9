package files

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// Replace writes the whole file, or creates it with the directories above it, and
// records what was written. It is atomic: the bytes go to a temporary file in the same
// directory, which is then renamed. Mode and owner do not change.
//
// before is the FileInfo of the file that the caller read, or nil if it did not exist;
// if the file has changed since, nothing is written. The error is a sentence for the
// model.
func (p *Place) Replace(data []byte, before fs.FileInfo) error {
	var mode fs.FileMode // zero: that of a new file, subject to the umask
	if before != nil {
		mode = before.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	}
	return p.ReplaceMode(data, before, mode)
}

// ReplaceMode is [Place.Replace] with a given mode. A mode of zero is that of a new
// file.
func (p *Place) ReplaceMode(data []byte, before fs.FileInfo, mode fs.FileMode) error {
	if err := p.makeDirs(0o777); err != nil {
		return p.failed(err)
	}
	var random [6]byte
	rand.Read(random[:])
	name := p.base
	if len(name) > 200 {
		name = name[:200]
	}
	temp := "." + name + "." + hex.EncodeToString(random[:]) + ".tmp"
	perm := fs.FileMode(0o666)
	if mode != 0 {
		perm = 0o600
	}
	f, err := p.dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return p.failed(err)
	}
	err = fill(f, data, before, mode)
	if err == nil {
		err = p.unchanged(before)
	}
	if err == nil {
		err = p.dir.Rename(temp, p.base)
	}
	if err != nil {
		p.dir.Remove(temp)
		return p.failed(err)
	}
	info, err := p.dir.Lstat(p.base)
	if err != nil {
		return p.failed(err)
	}
	p.Remember(info, data)
	return nil
}

// Remove removes the file, if it has not changed since before.
func (p *Place) Remove(before fs.FileInfo) error {
	err := p.unchanged(before)
	if err == nil {
		err = p.dir.Remove(p.base)
	}
	if err != nil {
		return p.failed(err)
	}
	return nil
}

// fill writes a new file and closes it.
func fill(f *os.File, data []byte, before fs.FileInfo, mode fs.FileMode) error {
	_, err := f.Write(data)
	if err == nil && before != nil {
		keepOwner(f, before)
	}
	if err == nil && mode != 0 {
		err = f.Chmod(mode)
	}
	// Existing content must survive a power failure; a new file can be written again.
	if err == nil && before != nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// unchanged returns an error if the file has changed since before.
func (p *Place) unchanged(before fs.FileInfo) error {
	now, err := p.dir.Lstat(p.base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if before == nil {
			return nil
		}
		return fmt.Errorf("%s was removed by somebody else meanwhile; nothing was written", p.Path)
	case err != nil:
		return err
	case before == nil:
		return fmt.Errorf("%s was created by somebody else meanwhile; nothing was written. Read it first", p.Path)
	case StampOf(before) != StampOf(now):
		return fmt.Errorf("%s was changed by somebody else meanwhile; nothing was written. Read it again", p.Path)
	}
	return nil
}

// makeDirs creates missing directories. One that another process creates meanwhile is
// used, unless it is a symbolic link.
func (p *Place) makeDirs(perm fs.FileMode) error {
	for len(p.missing) > 0 {
		if err := p.dir.Mkdir(p.missing[0], perm); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		next, err := step(p.dir, p.missing[0])
		if err != nil {
			return err
		}
		p.dir.Close()
		p.dir, p.missing = next, p.missing[1:]
	}
	return nil
}

// failed describes an error of a write.
func (p *Place) failed(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, errQuota):
		return fmt.Errorf("the disk is full: %s was not written and is as it was", p.Path)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("the file system of %s can only be read; nothing was written", p.Path)
	case strings.Contains(err.Error(), "nothing was written"):
		return err
	}
	return fmt.Errorf("%w; nothing was written", explain(err, p.Path))
}
