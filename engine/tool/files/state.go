package files

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/parley-go/parley/engine/tool"
)

// A Stamp distinguishes versions of a file without reading it.
type Stamp struct {
	Device, Inode uint64
	Size          int64
	ModTime       int64 // in nanoseconds
}

// StampOf returns the stamp of a file.
func StampOf(info fs.FileInfo) Stamp {
	s := Stamp{Size: info.Size(), ModTime: info.ModTime().UnixNano()}
	s.Device, s.Inode = identity(info)
	return s
}

// A version is the version of a file that a conversation has read or written.
type version struct {
	stamp  Stamp
	hash   [sha256.Size]byte
	hashed bool // false for a file that was too large to be read completely
}

// memory records what a conversation has read and written, by resolved path.
type memory struct {
	mu    sync.Mutex
	files map[string]version
}

type memoryKey struct{}

func memoryOf(env *tool.Env) *memory {
	return tool.Value(env, memoryKey{}, func() *memory { return &memory{files: map[string]version{}} })
}

// Remember records that the conversation has read the present version of the file. data
// is its content, or nil if it was not read completely.
func (p *Place) Remember(info fs.FileInfo, data []byte) {
	if data == nil {
		p.remember(version{stamp: StampOf(info)})
		return
	}
	p.RememberHash(info, sha256.Sum256(data))
}

// RememberHash is [Place.Remember] with the hash of the content.
func (p *Place) RememberHash(info fs.FileInfo, hash [sha256.Size]byte) {
	p.remember(version{stamp: StampOf(info), hash: hash, hashed: true})
}

func (p *Place) remember(v version) {
	m := memoryOf(p.env)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[p.Real] = v
}

// Seen reports whether the conversation has read or written the file.
func (p *Place) Seen() bool {
	m := memoryOf(p.env)
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.files[p.Real]
	return ok
}

// Current returns an error, for the model, unless the conversation has read or written
// the present version of the file.
func (p *Place) Current(info fs.FileInfo, data []byte) error {
	m := memoryOf(p.env)
	m.mu.Lock()
	v, ok := m.files[p.Real]
	m.mu.Unlock()
	switch {
	case !ok:
		return tool.Misuse("File has not been read yet. Read %s first, so that nothing in it is lost by mistake.", p.Path)
	case v.hashed && v.hash == sha256.Sum256(data):
		return nil
	case !v.hashed && v.stamp == StampOf(info):
		return nil
	}
	return tool.Misuse("File has been modified since it was read, by the user or by a program. Read %s again before writing to it.", p.Path)
}

// Seed records that the conversation has seen a file as it was at a time. A file that
// has changed since, or does not exist, still has to be read.
func Seed(env *tool.Env, path string, at time.Time) {
	real, err := Resolve(Abs(env, path))
	if err != nil {
		return
	}
	info, err := os.Stat(real)
	if err != nil || !info.Mode().IsRegular() || info.ModTime().UnixMilli() > at.UnixMilli() {
		return
	}
	m := memoryOf(env)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[real] = version{stamp: StampOf(info)}
}

// LinksNote returns a note that a file has other hard links, which a write does not
// affect, or "". info may be nil.
func LinksNote(info fs.FileInfo) string {
	if info == nil || links(info) < 2 {
		return ""
	}
	return fmt.Sprintf(" The file had %d names (hard links); the others still have the old content.", links(info))
}
