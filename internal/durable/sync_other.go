//go:build !linux

package durable

import "os"

// syncData syncs more than the data.
func syncData(f *os.File) error { return f.Sync() }
