package session

import (
	"bytes"
	"encoding/gob"
	"os"
	"path/filepath"
	"sync"
)

// listCacheName is a file in the configuration directory that holds what a list
// shows of sessions, so that the next list need not read those that have not
// changed. It says nothing that the logs do not, and may be removed at any time.
const listCacheName = "parley-sessions.gob"

// listCacheMin is how many sessions must be new for it to be worth writing.
const listCacheMin = 32

// listCacheMax is how large the file may become.
const listCacheMax = 64 << 20

// A listCache is what is known of sessions from an earlier list.
type listCache struct {
	mu    sync.Mutex
	known map[string]cachedDigest // by the name of the file
	fresh map[string]cachedDigest // read now
}

type cachedDigest struct {
	Size, Nanos int64
	Kept        *kept
}

type listCacheFile struct {
	Version  int
	Sessions map[string]cachedDigest
}

// readListCache reads what was kept. If nothing was, or it is malformed, it is
// empty.
func (f *Files) readListCache() *listCache {
	c := &listCache{fresh: map[string]cachedDigest{}}
	name := filepath.Join(f.Dir, listCacheName)
	info, err := os.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || info.Size() > listCacheMax {
		return c
	}
	text, err := os.ReadFile(name)
	var file listCacheFile
	if err == nil && gob.NewDecoder(bytes.NewReader(text)).Decode(&file) == nil && file.Version == 1 {
		c.known = file.Sessions
	}
	return c
}

// digest returns what a list shows of a session, from the cache if it has not
// changed since.
func (c *listCache) digest(f *Files, root *os.Root, p place) (*digest, error) {
	if p.packed {
		return f.digestPlace(root, p)
	}
	if k, ok := c.known[p.name()]; ok && k.Size == p.size && k.Nanos == p.mtime.UnixNano() && k.Kept != nil {
		return k.Kept.digest(), nil
	}
	d, err := f.digestPlace(root, p)
	if err == nil {
		c.mu.Lock()
		c.fresh[p.name()] = cachedDigest{Size: p.size, Nanos: p.mtime.UnixNano(), Kept: keptOf(d)}
		c.mu.Unlock()
	}
	return d, err
}

// write keeps what was read, if that is much. Those that are in no list any more are
// left out if all were listed. It is no error if it cannot.
func (c *listCache) write(f *Files, all []place, whole bool) {
	if len(c.fresh) < listCacheMin {
		return
	}
	file := listCacheFile{Version: 1, Sessions: c.fresh}
	if whole {
		for _, p := range all {
			if k, ok := c.known[p.name()]; ok && c.fresh[p.name()].Kept == nil {
				file.Sessions[p.name()] = k
			}
		}
	} else {
		for name, k := range c.known {
			if file.Sessions[name].Kept == nil {
				file.Sessions[name] = k
			}
		}
	}
	var text bytes.Buffer
	if err := gob.NewEncoder(&text).Encode(file); err != nil || text.Len() > listCacheMax {
		return
	}
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return
	}
	defer root.Close()
	(&Files{Durability: Write}).replace(root, listCacheName, text.Bytes())
}
