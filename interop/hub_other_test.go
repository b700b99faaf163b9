//go:build !linux

package interop

// hubRole does nothing: these tests need Linux.
func hubRole() {}
