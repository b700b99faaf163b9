//go:build !linux

package session

import "os"

// syncFile waits until what was written would survive a power cut.
func syncFile(f *os.File) error { return f.Sync() }
