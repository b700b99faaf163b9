//go:build !unix

package session

// syncNames does nothing: directories cannot be synced here.
func (l *fileLog) syncNames() error { return nil }
