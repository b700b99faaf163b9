//go:build !linux

package hub

// changes reports no changes: files are polled on this system.
type changes struct{}

func (*changes) watch(string) (changed <-chan struct{}, stop func()) { return nil, func() {} }
