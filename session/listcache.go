package session

import (
	"bytes"
	"encoding/gob"
	"os"
	"path/filepath"
	"sync"
)

// listCacheName is a file in the configuration directory that caches digests of
// sessions, so that the next list need not read those that have not changed. It
// contains nothing that the logs do not, and may be removed at any time.
const listCacheName = "parley-sessions.gob"

// listCacheMin is the minimum number of new sessions for which it is written.
const listCacheMin = 32

// listCacheMax is the maximum size of the file, in bytes.
const listCacheMax = 64 << 20

// A listCache caches digests of sessions.
type listCache struct {
	mu    sync.Mutex
	known map[string]cachedDigest // by the name of the file
	fresh map[string]cachedDigest // read now
}

type cachedDigest struct {
	Size, Nanos int64
	Kept        *storedSummary
}

type listCacheFile struct {
	Version  int
	Sessions map[string]cachedDigest
}

// readListCache reads the cache. It is empty if there is none, or if it is malformed.
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

// digest returns the digest of a session, from the cache if it has not changed since.
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
		c.fresh[p.name()] = cachedDigest{Size: p.size, Nanos: p.mtime.UnixNano(), Kept: storedDigest(d)}
		c.mu.Unlock()
	}
	return d, err
}

// write stores the cache if there are many new digests. Removed sessions are left out
// if all were listed. Failures are ignored.
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
