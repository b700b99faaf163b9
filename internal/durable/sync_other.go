//go:build !linux

package durable

import "os"

// syncData also syncs the metadata.
func syncData(f *os.File) error { return f.Sync() }
