package history

import "sync/atomic"

// Shared holds the last values that were made of keys. Most conversations of a process need
// the same, such as the text of their tools, and making it costs more than anything else at
// their start. The zero value is ready but for Same. It is safe for concurrent use, and
// nobody waits.
type Shared[K, V any] struct {
	Same func(a, b K) bool
	last atomic.Pointer[[]*made[K, V]] // the newest first; never changes
}

type made[K, V any] struct {
	key   K
	value V
}

// sharedMany is how many values are held.
const sharedMany = 16

// Get returns the value of a key, which make makes if it is not there. Nobody may change the
// key or the value any more.
func (s *Shared[K, V]) Get(key K, make func() V) V {
	old := s.last.Load()
	if old != nil {
		for _, m := range *old {
			if s.Same(m.key, key) {
				return m.value
			}
		}
	}
	next := append([]*made[K, V](nil), &made[K, V]{key, make()})
	if old != nil {
		next = append(next, (*old)[:min(len(*old), sharedMany-1)]...)
	}
	s.last.CompareAndSwap(old, &next) // of two at once, one is made again later
	return next[0].value
}
