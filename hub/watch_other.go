//go:build !linux

package hub

// changes reports no changes: files are polled on this system.
type changes struct{}

const written, closed = 0, 0

func (*changes) watch(dir, name string, events uint32) (changed <-chan struct{}, stop func()) {
	return nil, func() {}
}
