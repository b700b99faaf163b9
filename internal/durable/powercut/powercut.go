//go:build unix

// Package powercut simulates power cuts in tests: a disk that keeps only the data that was
// synced through package durable, and perhaps the beginning of later writes.
package powercut

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/parley-go/parley/internal/durable"
)

// A Disk is a directory whose durable part is known.
type Disk struct {
	Dir string // directory of the code under test; it is on the real disk

	t     *testing.T
	check func(dir string) error

	mu    sync.Mutex
	data  map[uint64][]byte            // contents of files at their last sync, by inode
	names map[uint64]map[string]uint64 // contents of directories at their last sync
	held  []*os.File                   // so that inodes are not reused
	cuts  int
}

// Watch returns a disk. After each sync, and with each [Disk.Cut], it simulates a power cut:
// check gets a directory with the remaining contents, and returns what is missing. Tests that
// watch must not run in parallel with others of their package.
func Watch(t *testing.T, check func(dir string) error) *Disk {
	d := &Disk{Dir: t.TempDir(), t: t, check: check, data: map[uint64][]byte{}, names: map[uint64]map[string]uint64{}}
	durable.Synced = d.synced
	t.Cleanup(func() {
		durable.Synced = nil
		for _, f := range d.held {
			f.Close()
		}
	})
	return d
}

// Cuts returns the number of power cuts.
func (d *Disk) Cuts() int { return d.cuts }

// inode returns the number of a file and prevents its reuse.
func (d *Disk) inode(path string) (uint64, os.FileInfo) {
	f, err := os.Open(path)
	if err != nil {
		return 0, nil // it was removed meanwhile
	}
	info, err := f.Stat()
	if err != nil {
		d.t.Error(err)
	}
	d.held = append(d.held, f)
	return info.Sys().(*syscall.Stat_t).Ino, info
}

// synced records the data that is durable now.
func (d *Disk) synced(path string) {
	d.mu.Lock()
	ino, info := d.inode(path)
	switch {
	case info == nil:
	case info.IsDir():
		names := map[string]uint64{}
		entries, err := os.ReadDir(path)
		if err != nil {
			d.t.Error(err)
		}
		for _, e := range entries {
			names[e.Name()], _ = d.inode(filepath.Join(path, e.Name()))
		}
		d.names[ino] = names
	default:
		data, err := os.ReadFile(path)
		if err != nil {
			d.t.Error(err)
		}
		d.data[ino] = data
	}
	d.mu.Unlock()
	d.Cut("behind the sync of " + filepath.Base(path))
}

// Cut simulates a power cut: once without any unsynced data, and once with half of the bytes that
// were added to each file since its last sync.
func (d *Disk) Cut(when string) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cuts++
	current := map[uint64][]byte{}
	filepath.WalkDir(d.Dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			ino, _ := d.inode(path)
			current[ino], _ = os.ReadFile(path)
		}
		return nil
	})
	top, _ := d.inode(d.Dir)
	for _, torn := range []bool{false, true} {
		left := d.t.TempDir()
		d.restore(left, top, current, torn)
		if err := d.check(left); err != nil {
			d.t.Errorf("power cut %s, torn %v: %v", when, torn, err)
		}
	}
}

// restore writes the durable contents of a directory.
func (d *Disk) restore(to string, dir uint64, current map[uint64][]byte, torn bool) {
	for name, ino := range d.names[dir] {
		path := filepath.Join(to, name)
		if _, ok := d.names[ino]; ok || d.isDir(ino) {
			os.Mkdir(path, 0o700)
			d.restore(path, ino, current, torn)
			continue
		}
		data := d.data[ino]
		if now := current[ino]; torn && len(now) > len(data) {
			data = append(data[:len(data):len(data)], now[len(data):(len(data)+len(now)+1)/2]...)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			d.t.Error(err)
		}
	}
}

// isDir reports whether an inode was seen as a directory.
func (d *Disk) isDir(ino uint64) bool {
	for _, f := range d.held {
		if info, err := f.Stat(); err == nil && info.Sys().(*syscall.Stat_t).Ino == ino {
			return info.IsDir()
		}
	}
	return false
}
